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

from frittata.egraph import dtypes
from frittata.egraph.indexing import Affine, Var, var
from frittata.egraph.ops import registry
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import source
from frittata.kernels.contractions import Contraction, Side
from frittata.kernels.cuda.kernel import CudaKernel, cuda_kernel
from frittata.kernels.cuda.tensor_tiles import CHUNK, TENSOR_TILES, TensorTile
from frittata.kernels.cuda.writing import name_quotients, spell_out, writer_for
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


def evaluated_sides(work: Contraction) -> list[Side]:
    """Return the sides that are computed element by element, not copied."""
    return [panel.side for panel in _panels(work, TENSOR_TILES[0]) if panel.copied is None]


def _panels(work: Contraction, tile: TensorTile) -> tuple[_Panel, _Panel]:
    half = halves_of(work)
    assert half is not None
    shared, first = (half, tile.depth, work.depth), tile.rows * tile.depth
    left = _Panel(work.left, "left", "i", tile.rows, work.rows, 0, *shared)
    return left, _Panel(work.right, "right", "j", tile.columns, work.columns, first, *shared)


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
            is_whole = not any(n % CHUNK for n in (extent, offset.constant, *rest))
            if offset.factor_of(key) == 1 and offset.factor_of("k") is not None and is_whole:
                return leaf, offset, key
        return None

    @cached_property
    def along_depth(self) -> bool:
        """Whether lines in shared memory run along the depth: if memory does."""
        if self.copied is not None:
            return self.copied[2] == "k"
        return self.side.lies_along("k", self.whole_depth, (self.index, self.extent))

    @property
    def chunks(self) -> int:
        """The chunks of a line."""
        return (self.depth if self.along_depth else self.rows) // CHUNK

    @property
    def line(self) -> int:
        """The halves of a line."""
        return self.chunks * CHUNK

    def place(self, line: str, chunk: str) -> str:
        """Spell where a chunk of a line begins."""
        chunks = self.chunks
        line = line if line.isidentifier() else f"({line})"
        turn = f"{line} % 8" if chunks >= 8 else f"{line} // {8 // chunks} % {chunks}"
        first = f"{self.first} + " if self.first else ""
        return f"{first}{line}*{self.line} + (({chunk}) ^ ({turn}))*{CHUNK}"

    def corner(self, chunk: str) -> str:
        """Spell where the line of four matrices begins that a thread names, those with chunk number `chunk` of a warp.

        Those of the left side are two above two along its rows, those of the right side two beside two.
        """
        inner, outer = "lane % 8 + lane // 16*8", "lane // 8 % 2"
        if (self.name == "left") == self.along_depth:
            inner, outer = "lane % 16", "lane // 16"
        if self.along_depth:
            return self.place(f"{self.name}_first + {inner}", f"{chunk}*2 + {outer}")
        return self.place(inner, f"{self.name}_first // {CHUNK} + {chunk}*2 + {outer}")


def write_tensor(name: str, work: Contraction, tile: TensorTile) -> CudaKernel:
    """Write the kernel of a product of halves."""
    return _TensorWriter(work, tile).kernel(name)


class _TensorWriter:
    def __init__(self, work: Contraction, tile: TensorTile) -> None:
        self._work, self._tile = work, tile
        self._names = array_names(work.bodies)
        self._steps = -(-work.depth // tile.depth)
        self._writer = writer_for(work.bodies)
        self._left, self._right = _panels(work, tile)
        self._half = self._left.half

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
        yield f"sums = cuda.shared.array({tile.shared_bytes // 4}, np.float32, alignment=16)"
        yield "tiles = as_halves(sums)"
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
        for panel, count in ((self._left, tile.m), (self._right, tile.n // 2)):
            yield f"{panel.name}_at = cuda.local.array({(corners := self._corners(panel, count))}, np.uint32)"
            yield f"for h in range({corners}):"
            yield f"    {panel.name}_at[h] = {panel.corner('h')}"
            yield from self._prepare(panel)

    def _corners(self, panel: _Panel, count: int) -> int:
        """Return in how many chunks the matrices of a warp begin: where lines run along the depth, in those of it."""
        return self._tile.depth // 16 if panel.along_depth else count

    def _slices(self) -> Iterator[str]:
        tile, ahead = self._tile, self._tile.stages - 1
        yield f"for h in range({tile.m * tile.n * 4}):"
        yield "    total[h] = np.float32(0.0)"
        yield f"for step in range({-ahead}, {self._steps}):"
        yield "    if step >= 0:"
        yield f"        copies_wait{ahead - 1}()"
        yield "    cuda.syncthreads()"
        yield f"    if step < {self._steps - ahead}:"
        yield f"        stage = uint32((step + {ahead}) % {tile.stages} * {tile.stage})"
        yield f"        first_k = {self._at(f'(step + {ahead})*{tile.depth}')}"
        for panel in (self._left, self._right):
            fill = self._copy(panel, *panel.copied[:2]) if panel.copied is not None else self._evaluate(panel)
            yield from (source.INDENT * 2 + line for line in fill)
        yield "    copies_end()"
        yield "    if step >= 0:"
        yield f"        stage = uint32(step % {tile.stages} * {tile.stage})"
        yield f"        for part in range({tile.depth // 16}):"
        for panel, count in ((self._left, tile.m), (self._right, tile.n // 2)):
            load = "load_matrix" if panel.along_depth else "load_transposed"
            chunk, line = ("part", "m") if panel.along_depth else ("m", "part")
            yield f"            for m in range({count}):"
            yield f"                place = stage + {panel.name}_at[{chunk}] + {line}*{16 * panel.line}"
            yield f"                {load}({panel.name}s, m*4, tiles, uint32(place))"
        yield f"            for m in range({tile.m}):"
        yield f"                for n in range({tile.n}):"
        yield f"                    multiply_{self._half}(total, (m*{tile.n} + n)*4, lefts, m*4, rights, n*2)"

    def _at(self, text: str) -> str:
        return text if self._writer.wide else f"uint32({text})"

    def _piece(self, panel: _Panel) -> Iterator[str]:
        """Say which one number `at` is: `m` lines or columns and `n` of the depth from the tile's corner."""
        size = CHUNK if panel.copied is not None else 1
        fast, slow = ("n", "m") if panel.along_depth else ("m", "n")
        step = f"*{size}" if size > 1 else ""
        yield f"{fast} = at % {panel.line // size}{step}"
        yield f"{slow} = at // {panel.line // size}"
        yield f"{panel.index} = first_{panel.index} + m"

    def _prepare(self, panel: _Panel) -> Iterator[str]:
        """Compute once where the chunks of a thread come from in the first slice, and where in a stage they go."""
        if panel.copied is None:
            return
        leaf, offset, key = panel.copied
        name, count = panel.name, panel.rows * panel.depth // CHUNK // self._tile.threads
        yield f"{name}_aligned = is_aligned({self._names[leaf]})"
        yield f"{name}_from = cuda.local.array({count}, {'np.int64' if self._writer.wide else 'np.uint32'})"
        yield f"{name}_to = cuda.local.array({count}, np.uint32)"
        if self._is_ragged(panel):
            yield f"{name}_k = cuda.local.array({count}, np.int32)"
        yield f"for h in range({count}):"
        lines = [f"at = h*{self._tile.threads} + thread", *self._piece(panel), "k = n"]
        if self._is_ragged(panel):
            outside = f" if {panel.index} < {panel.extent} else {panel.whole_depth}"
            lines.append(f"{name}_k[h] = n{outside if key != 'k' and panel.extent % panel.rows else ''}")
        if key == "k" and panel.extent % panel.rows:
            lines.append(f"{panel.index} = min({panel.index}, {panel.extent - 1})")
        lines += self._lines([AssignIndex("offset", offset)])
        lines.append(f"{name}_from[h] = {self._at('offset')}")
        line, along = ("m", "n") if panel.along_depth else ("n", "m")
        lines.append(f"{name}_to[h] = {panel.place(line, f'{along} // {CHUNK}')}")
        yield from (source.INDENT + line for line in lines)

    def _is_ragged(self, panel: _Panel) -> bool:
        """Whether some chunks that are copied lie outside: of the depth, or of lines along columns."""
        assert panel.copied is not None
        along_columns = panel.copied[2] != "k" and panel.extent % panel.rows
        return bool(panel.whole_depth % panel.depth or along_columns)

    def _copy(self, panel: _Panel, leaf: Term, offset: Affine) -> Iterator[str]:
        factor = offset.factor_of("k")
        name, array, count = panel.name, self._names[leaf], panel.rows * panel.depth // CHUNK // self._tile.threads
        lines = [
            f"place = stage + {name}_to[h]",
            f"offset = {name}_from[h] + first_k{'' if factor == 1 else f'*{factor}'}",
        ]
        inside = "True"
        if self._is_ragged(panel):
            inside = "inside"
            lines.append(f"inside = first_k + {name}_k[h] < {panel.whole_depth}")
        value = f"{array}[{self._at('offset + e')}]" + (" if inside else np.uint16(0)" if inside == "inside" else "")
        yield f"if {name}_aligned:"
        yield f"    for h in range({count}):"
        yield from (source.INDENT * 2 + line for line in lines)
        yield f"        copy_chunk(tiles, uint32(place), {array}, {self._at('offset')}, {inside})"
        yield "else:"
        yield f"    for h in range({count}):"
        yield from (source.INDENT * 2 + line for line in lines)
        yield f"        for e in range({CHUNK}):"
        yield f"            tiles[uint32(place + e)] = {value}"

    def _evaluate(self, panel: _Panel) -> Iterator[str]:
        yield f"for at in range(cuda.threadIdx.x, {panel.rows * panel.depth}, {self._tile.threads}):"
        lines = list(self._piece(panel))
        lines.append("k = first_k + n")
        if panel.extent % panel.rows:
            lines.append(f"{panel.index} = min({panel.index}, {panel.extent - 1})")
        line, along = ("m", "n") if panel.along_depth else ("n", "m")
        lines.append(f"place = stage + {panel.place(line, f'{along} // {CHUNK}')} + {along} % {CHUNK}")
        ragged = panel.whole_depth % panel.depth != 0
        if ragged:
            lines += [f"inside = k < {panel.whole_depth}", f"k = min(k, {panel.whole_depth - 1})"]
        element = panel.side.kept.element
        if element.dtype != self._half:
            element = registry.element("cast", element, dtype=self._half)  # its values are such
        place = var("place", self._tile.stages * self._tile.stage)
        body = lower_block([("tiles", place, element, panel.side.index)], _INDICES, self._names, {})
        if ragged:
            (store,) = (s for s in body if isinstance(s, Store))
            zero = Constant(Scalar.of(0, self._half))
            store.value = Apply("where", (Local("inside", "bool"), store.value, zero), self._half)
        yield from (source.INDENT + line for line in (*lines, *self._lines(body)))

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
            yield f"        sums[uint32({where})] = total[{4 * m * tile.n} + n*4 + h]"
            yield "cuda.syncthreads()"
            yield f"for h in range({16 * columns // 32}):"
            yield "    at = h*32 + lane"
            yield f"    i = first_i + left_first + at // {columns}" + (f" + {m * 16}" if m else "")
            yield f"    j = first_j + right_first + at % {columns}"
            yield f"    if i < {work.rows} and j < {work.columns}:"
            yield f"        product = sums[uint32(turned + at // {columns}*{pitch} + at % {columns})]"
            body = lower_block(stores, _INDICES, self._names, {work.product: Local("product", work.dtype)})
            yield from (source.INDENT * 2 + line for line in self._lines(body))

    def _lines(self, body: list[Statement]) -> list[str]:
        spell_out(body)
        return self._writer.write(name_quotients(body, (*_INDICES, "place")), 0)
