"""Products of halves on the tensor cores: exact products of float16 or bfloat16, sums of float32 in registers.

A block goes along the depth slice by slice. While it multiplies one, the next ones are on their way to shared memory:
what a side only reads is copied there in chunks of eight, asynchronously; what it computes is evaluated, and its bits
are stored. Places in shared memory are turned, `chunk ^ line`, so that eight lines of a matrix lie in different banks.
What lies beyond the depth is zero; what lies beyond the result is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from frittata.egraph import dtypes, shapes
from frittata.egraph.indexing import Affine, Var
from frittata.egraph.ops import registry
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import source, spelling
from frittata.kernels.contractions import Contraction, Side, loads_of
from frittata.kernels.cuda.kernel import CudaKernel, cuda_kernel
from frittata.kernels.cuda.tensor_tiles import CHUNK, TensorTile
from frittata.kernels.cuda.writing import INDEX_LIMIT, Writer, name_quotients, spell_out, unknown
from frittata.kernels.loops import Apply, AssignIndex, Constant, Local, Statement, Store
from frittata.kernels.lower import array_names, lower_block, result_names

_INDICES = ("g", "i", "j", "k")
_CARRIES = ("reindex", "where", "max", "min", "neg", "abs")
"""Operators whose values are those of their operands, but for a sign."""


def halves_of(work: Contraction) -> str | None:
    """Return the dtype of 16 bits that holds all values of both sides; None if there is none, or sums are not f32."""
    found = {_half_of(side.element) for side in (work.left, work.right)}
    return found.pop() if work.dtype == "f32" and len(found) == 1 else None


def _half_of(element: Term) -> str | None:
    """Return the dtype of 16 bits that holds all values of an element."""
    if dtypes.is_half(element.dtype):
        return element.dtype
    if element.op == "cast":
        return element.args[0].dtype if dtypes.is_half(element.args[0].dtype) else None
    if element.op not in _CARRIES:
        return None
    parts = element.args[1:] if element.op == "where" else element.args
    found = {_half_of(part) for part in parts if part.op != "const"}
    half = found.pop() if len(found) == 1 else None
    numbers = [part.attrs[0].value for part in parts if part.op == "const"]
    return half if half and all(Scalar.of(n, half).value == n for n in numbers) else None


@dataclass(frozen=True)
class _Panel:
    """A side in shared memory: `rows` lines or columns of it, from half `first` of a stage on."""

    side: Side
    name: str
    index: str
    rows: int
    extent: int
    first: int
    half: str
    depth: int
    whole_depth: int

    @cached_property
    def copied(self) -> tuple[Term, Affine, str] | None:
        """The buffer, the offset, and the variable along which chunks are copied, if the side is only read so."""
        found = self.side.kept.plain()
        if found is None or found[0].dtype != self.half:
            return None
        leaf, offset = found
        for key, extent in (("k", self.whole_depth), (self.index, self.extent)):
            rest = [factor for atom, factor in offset.terms if not (isinstance(atom, Var) and atom.key == key)]
            if offset.factor_of(key) == 1 and not any(n % CHUNK for n in (extent, offset.constant, *rest)):
                return leaf, offset, key
        return None

    @cached_property
    def along_depth(self) -> bool:
        """Whether lines in shared memory run along the depth: if memory does."""
        if self.copied is not None:
            return self.copied[2] == "k"
        offsets = [offset for _, offset in loads_of(self.side.element, index=self.side.index) if offset is not None]
        moving = [offset.factor_of("k") for offset in offsets if offset.factor_of("k") != 0]
        return moving.count(1) * 2 > len(moving)

    @property
    def chunks(self) -> int:
        """The chunks of a line."""
        return (self.depth if self.along_depth else self.rows) // CHUNK

    def place(self, line: str, chunk: str) -> str:
        """Spell where a chunk of a line begins."""
        chunks = self.chunks
        turn = f"({line}) % 8" if chunks >= 8 else f"({line}) // {8 // chunks} % {chunks}"
        first = f" + {self.first}" if self.first else ""
        return f"stage{first} + ({line})*{chunks * CHUNK} + (({chunk}) ^ ({turn}))*{CHUNK}"

    def matrices(self) -> tuple[str, str]:
        """Spell which line and chunk a thread names when four matrices are loaded, of 16 of the depth from `part` on.

        Those of the left side are two above two, those of the right side two beside two.
        """
        one, other = ("lane % 16", "lane // 16") if self.name == "left" else ("lane % 8 + lane // 16*8", "lane // 8 % 2")
        if self.along_depth:
            return f"{self.name}_first + m*16 + {one}", f"part*2 + {other}"
        one, other = ("lane % 8 + lane // 16*8", "lane // 8 % 2") if self.name == "left" else ("lane % 16", "lane // 16")
        return f"part*16 + {one}", f"{self.name}_first // {CHUNK} + m*2 + {other}"


def write_tensor(name: str, work: Contraction, tile: TensorTile) -> CudaKernel:
    """Write the kernel of a product of halves."""
    return _TensorWriter(work, tile).kernel(name)


class _TensorWriter:
    def __init__(self, work: Contraction, tile: TensorTile) -> None:
        half = halves_of(work)
        assert half is not None
        self._work, self._tile, self._half = work, tile, half
        self._names = array_names(work.bodies)
        self._steps = -(-work.depth // tile.depth)
        sizes = [shapes.size(term.shape) for term in (*self._names, *work.bodies)]
        self._writer = Writer(wide=max(sizes) >= INDEX_LIMIT)
        shared = half, tile.depth, work.depth
        self._left = _Panel(work.left, "left", "i", tile.rows, work.rows, 0, *shared)
        self._right = _Panel(
            work.right, "right", "j", tile.columns, work.columns, tile.rows * tile.depth, *shared
        )

    def kernel(self, name: str) -> CudaKernel:
        work, tile = self._work, self._tile
        lines, columns = tile.blocks(work)
        batches = f"{work.batches} x " if work.batches > 1 else ""
        notes = [
            f"{batches}({work.rows}, {work.depth}) x ({work.depth}, {work.columns}): a block computes {tile.rows} x"
            f" {tile.columns}, a warp {tile.m * 16} x {tile.n * 8}, {tile.stages} slices of {tile.depth} at a time"
        ]
        body = [*self._head(lines, columns), *self._slices(), *self._store()]
        text = [source.INDENT + line for line in body]
        return cuda_kernel(name, work.bodies, work.batches * lines * columns, tile.threads, text, notes)

    def _head(self, lines: int, columns: int) -> Iterator[str]:
        tile = self._tile
        yield f"memory = cuda.shared.array({tile.shared_bytes // 16}, np.complex128)  # aligned to 16 bytes"
        yield "tiles = as_halves(memory)"
        yield "sums = as_floats(memory)"
        yield f"total = cuda.local.array({tile.m * tile.n * 4}, np.float32)"
        yield f"lefts = cuda.local.array({tile.m * 4}, np.uint32)"
        yield f"rights = cuda.local.array({tile.n * 2}, np.uint32)"
        yield "thread = uint32(cuda.threadIdx.x)"
        yield "lane = thread % 32"
        yield "warp = thread // 32"
        yield f"left_first = warp // {tile.across} * {tile.m * 16}"
        yield f"right_first = warp % {tile.across} * {tile.n * 8}"
        yield "block = uint32(cuda.blockIdx.x)"
        if self._work.batches > 1:
            yield f"g = block // {lines * columns}"
        yield f"first_i = block // {columns} % {lines} * {tile.rows}"
        yield f"first_j = block % {columns} * {tile.columns}"
        for panel in (self._left, self._right):
            if panel.copied is not None:
                yield f"{panel.name}_aligned = is_aligned({self._names[panel.copied[0]]})"

    def _slices(self) -> Iterator[str]:
        tile, ahead = self._tile, self._tile.stages - 1
        yield f"for h in range({tile.m * tile.n * 4}):"
        yield "    total[h] = np.float32(0.0)"
        yield f"for step in range({-ahead}, {self._steps}):"
        yield "    if step >= 0:"
        yield f"        copies_wait{ahead - 1}()"
        yield "    cuda.syncthreads()"
        yield f"    if step < {self._steps - ahead}:"
        yield f"        stage = (step + {ahead}) % {tile.stages} * {tile.stage}"
        yield f"        first_k = (step + {ahead}) * {tile.depth}"
        for panel in (self._left, self._right):
            yield from (source.INDENT * 2 + line for line in self._fill(panel))
        yield "    copies_end()"
        yield "    if step >= 0:"
        yield f"        stage = step % {tile.stages} * {tile.stage}"
        for part in range(tile.depth // 16):
            yield f"        part = {part}"
            for panel, count in ((self._left, tile.m), (self._right, tile.n // 2)):
                line, chunk = panel.matrices()
                load = "load_matrix" if panel.along_depth else "load_transposed"
                yield f"        for m in range({count}):"
                yield f"            {load}({panel.name}s, m*4, tiles, uint32({panel.place(line, chunk)}))"
            yield f"        for m in range({tile.m}):"
            yield f"            for n in range({tile.n}):"
            yield f"                multiply_{self._half}(total, (m*{tile.n} + n)*4, lefts, m*4, rights, n*2)"

    def _fill(self, panel: _Panel) -> Iterator[str]:
        """Bring a slice of a side to shared memory."""
        index, depth, rows = panel.index, panel.depth, panel.rows
        size = CHUNK if panel.copied is not None else 1
        yield f"for h in range({rows * depth // size // self._tile.threads}):"
        yield f"    at = h*{self._tile.threads} + thread"
        fast = (depth if panel.along_depth else rows) // size
        fast_name, slow_name = ("n", "m") if panel.along_depth else ("m", "n")
        step = f"*{size}" if size > 1 else ""
        yield f"    {fast_name} = at % {fast}{step}"
        yield f"    {slow_name} = at // {fast}"
        yield f"    k = first_k + n"
        yield f"    {index} = first_{index} + m"
        line, along = ("m", "n") if panel.along_depth else ("n", "m")
        yield f"    place = {panel.place(line, f'{along} // {CHUNK}')}" + ("" if size > 1 else f" + {along} % {CHUNK}")
        inside = [f"k < {panel.whole_depth}"] if panel.whole_depth % depth else []
        if panel.extent % rows:
            if panel.copied is not None and panel.copied[2] == index:
                inside += [f"{index} < {panel.extent}"]
            else:
                yield f"    {index} = min({index}, {panel.extent - 1})"
        lines = self._copy(panel, inside) if panel.copied is not None else self._evaluate(panel, inside)
        yield from (source.INDENT + line for line in lines)

    def _copy(self, panel: _Panel, inside: list[str]) -> Iterator[str]:
        assert panel.copied is not None
        leaf, offset, _ = panel.copied
        array = self._names[leaf]
        yield from self._lines([AssignIndex("offset", offset)])
        yield f"inside = {' and '.join(inside) or 'True'}"
        yield f"if {panel.name}_aligned:"
        yield f"    copy_chunk(tiles, uint32(place), {array}, {self._writer.subscript(unknown('offset'))}, inside)"
        yield "else:"
        yield f"    for e in range({CHUNK}):"
        at = self._writer.subscript(unknown("offset") + unknown("e"))
        value = f"{array}[{at}]" + (" if inside else np.uint16(0)" if inside else "")
        yield f"        tiles[uint32(place + e)] = {value}"

    def _evaluate(self, panel: _Panel, inside: list[str]) -> Iterator[str]:
        element = panel.side.kept.element
        if element.dtype != self._half:
            element = registry.element("cast", element, dtype=self._half)  # its values are such
        if inside:
            yield f"inside = {' and '.join(inside)}"
            yield f"k = min(k, {panel.whole_depth - 1})"
        body = lower_block([("tiles", unknown("place"), element, panel.side.index)], _INDICES, self._names, {})
        (store,) = (s for s in body if isinstance(s, Store))
        if inside:
            zero = Constant(Scalar.of(0, self._half))
            store.value = Apply("where", (Local("inside", "bool"), store.value, zero), self._half)
        yield from self._lines(body)

    def _store(self) -> Iterator[str]:
        """Turn the sums of a warp around in shared memory, 16 rows at a time, so that lanes have neighbours."""
        tile, work = self._tile, self._work
        results = zip(work.bodies, result_names(work.bodies), work.output_offsets, strict=True)
        stores = [(name, offset, body.args[0], work.place) for body, name, offset in results]
        columns, pitch = tile.n * 8, tile.pitch
        yield f"turned = warp * {16 * pitch}"
        for m in range(tile.m):
            yield "cuda.syncthreads()"
            yield f"for n in range({tile.n}):"
            yield "    for h in range(4):"
            where = f"turned + (lane // 4 + h // 2*8)*{pitch} + n*8 + lane % 4*2 + h % 2"
            yield f"        sums[uint32({where})] = total[({m * tile.n} + n)*4 + h]"
            yield "cuda.syncthreads()"
            yield f"for h in range({16 * columns // 32}):"
            yield "    at = h*32 + lane"
            yield f"    i = first_i + left_first + {m * 16} + at // {columns}"
            yield f"    j = first_j + right_first + at % {columns}"
            yield f"    if i < {work.rows} and j < {work.columns}:"
            yield f"        product = sums[uint32(turned + at // {columns}*{pitch} + at % {columns})]"
            body = lower_block(stores, _INDICES, self._names, {work.product: Local("product", work.dtype)})
            yield from (source.INDENT * 2 + line for line in self._lines(body))

    def _lines(self, body: list[Statement]) -> list[str]:
        spell_out(body)
        return self._writer.write(name_quotients(body, (*_INDICES, "place")), 0)
