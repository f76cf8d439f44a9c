"""Bands: kernels that run together, some lines at a time, so that what is between them stays in the nearest caches.

Each kernel is compiled for one line. A thread takes a part of the lines of the last kernel, one after the other, and
computes of the others what the next one needs and does not have yet. What is between two kernels has memory for some
lines; when it is full, those that are still needed move to its beginning. All this is known before the run: a part is a
list of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from llvmlite import ir

from frittata.egraph import dtypes, program
from frittata.egraph.bands import Finder, Span, Stages
from frittata.egraph.places import Places
from frittata.egraph.program import Band, Program
from frittata.egraph.terms import Scalar, Term
from frittata.kernels.flow import repeat
from frittata.kernels.intrinsics import make_tile_intrinsic, table_value
from frittata.kernels.lowered import (
    Call,
    Counter,
    Held,
    LoweredKernel,
    Number,
    Operand,
    Scratch,
    Status,
    Walk,
    Within,
    aligned,
)
from frittata.kernels.plan import Together
from frittata.kernels.simd import I1, I8, I64, Builder, Value

_WORD_BYTES = 8


def _emit_walk(builder: Builder, table: Value, chunk: Value) -> None:
    """Call all chunks of the kernels of the chunk's rows."""
    kernel_type = ir.FunctionType(ir.VoidType(), [I64.as_pointer(), I64])
    rows = table_value(builder, table, 0)
    first, end = (table_value(builder, table, builder.add(chunk, I64(1 + n))) for n in (0, 1))

    def call(row: Value) -> None:
        entries = builder.inttoptr(builder.add(rows, builder.mul(row, I64(3 * _WORD_BYTES))), I64.as_pointer())
        code, arguments, chunks = (builder.load(builder.gep(entries, [I64(n)])) for n in range(3))
        function = builder.inttoptr(code, kernel_type.as_pointer())

        def each(part: Value) -> None:
            builder.call(function, [builder.inttoptr(arguments, I64.as_pointer()), part])

        repeat(builder, 0, chunks, 1, each)

    repeat(builder, first, end, 1, call)


def _emit_move(builder: Builder, table: Value) -> None:
    """Copy bytes: to, from, how many."""
    target, source, count = (table_value(builder, table, n) for n in range(3))
    function = builder.module.declare_intrinsic("llvm.memmove", [I8.as_pointer(), I8.as_pointer(), I64])
    places = (builder.inttoptr(place, I8.as_pointer()) for place in (target, source))
    builder.call(function, [*places, count, I1(0)])


def _kernel(name: str, emit: Callable[..., None], arity: int) -> LoweredKernel:
    given = "".join(", chunk" for _ in range(arity))
    source = f"def {name}(table, chunk):\n    emitted(table{given})\n"
    namespace = {"emitted": make_tile_intrinsic("emitted", emit, arity)}
    return LoweredKernel(name, source, namespace, 0, (), name)


_WALK = _kernel("walk_rows", _emit_walk, 1)
_MOVE = replace(_kernel("move_lines", _emit_move, 0), chunks=1, arguments=tuple(map(Operand, range(3))))
NOTHING = _WALK
"""Takes the place of a kernel that runs together with a later one: it has no chunks."""


@dataclass(frozen=True, eq=False)
class Banded:
    """A band as one kernel, which stands at the place of its last."""

    numbers: tuple[int, ...]
    kernel: LoweredKernel
    buffers: frozenset[str]

    @property
    def walk(self) -> Walk:
        """What the kernel walks."""
        (walk,) = self.kernel.arguments
        assert isinstance(walk, Walk)
        return walk

    @cached_property
    def called(self) -> tuple[LoweredKernel, ...]:
        """The different kernels that it calls."""
        return tuple(dict.fromkeys(call.kernel for calls in self.walk.calls for call in calls))


def lower_bands(
    program_: Program, places: Places, lower: Callable[[str, Term], LoweredKernel]
) -> tuple[Banded, ...]:
    """Write the bands of a program as kernels; `lower` does it for a line, given a template and the body.

    A band whose lines need more than addresses is left out: its kernels run one after the other.
    """
    finder = Finder(program_, places)
    found = (_lowered(program_, finder, band, lower) for band in program_.bands)
    return tuple(banded for banded in found if banded is not None)


def _lowered(
    program_: Program, finder: Finder, band: Band, lower: Callable[[str, Term], LoweredKernel]
) -> Banded | None:
    stages = finder.stages(band.kernels)
    if stages is None:
        return None
    lines = [lower(stage.kernel.template, stage.line.body) for stage in stages.stages]
    if not all(map(_is_callable, lines)):
        return None
    walk = _Writer(stages, lines, program_).walk(band.parts)
    names = [kernel.name for kernel in program_.kernels]
    buffers = frozenset(stage.root for stage in stages.stages if stage.root)
    return Banded(tuple(map(names.index, band.kernels)), replace(_WALK, chunks=band.parts, arguments=(walk,)), buffers)


def _is_callable(kernel: LoweredKernel) -> bool:
    """Whether a kernel needs nothing of the runtime but addresses, and scratch memory in one piece at most."""
    scratch = [argument for argument in kernel.arguments if isinstance(argument, Scratch)]
    return len(scratch) < 2 and not any(isinstance(argument, Status | Counter) for argument in kernel.arguments)


class _Writer:
    """Writes the calls of a band; `kernels` are those of its lines."""

    def __init__(self, stages: Stages, kernels: Sequence[LoweredKernel], program_: Program) -> None:
        self.stages, self.kernels = stages, kernels
        self.itemsize = {name: dtypes.itemsize(type_.dtype) for name, type_ in program_.types().items()}
        self.number_by_root = {stage.root: number for number, stage in enumerate(stages.stages) if stage.root}
        self.line_bytes = [stage.width * self.itemsize[stage.root] for stage in stages.stages[:-1]]
        self._size = 0
        held = zip(stages.stages, self.line_bytes, strict=False)
        self.slots = [self._add((stage.held + 1) * size) for stage, size in held]
        """Where the memory for the lines of each buffer begins; behind them is one of the border."""
        self.scratch = [self._add(_scratch_bytes(kernel)) for kernel in kernels]

    def _add(self, size: int) -> int:
        start = self._size
        self._size += aligned(size)
        return start

    def walk(self, parts: int) -> Walk:
        """Return the calls of all parts."""
        calls: list[tuple[Call, ...]] = []
        borders: list[tuple[int, int, Scalar]] = []
        for part, segments in enumerate(self.stages.parts(parts)):
            memory = part * self._size
            calls.append(tuple(c for n, low, high in segments for c in _Part(self, memory, n).calls(low, high)))
            for slot, stage in zip(self.slots, self.stages.stages, strict=False):
                if stage.border is not None:
                    borders.append((part * self._size + slot, (stage.held + 1) * stage.width, stage.border))
        return Walk(tuple(calls), parts * self._size, tuple(borders))


def _scratch_bytes(kernel: LoweredKernel) -> int:
    return sum(a.stride_bytes * kernel.chunks for a in kernel.arguments if isinstance(a, Scratch))


class _Part:
    """Writes the calls of a part for one image; the memory of the part begins `memory` bytes in.

    Of each buffer between kernels the lines from `low` on, before `end`, are in memory.
    """

    def __init__(self, writer: _Writer, memory: int, image: int) -> None:
        self._writer, self._memory, self._image = writer, memory, image
        self._stages = writer.stages.stages
        self._low = [-1] * len(writer.slots)
        self._end = [-1] * len(writer.slots)

    def calls(self, low: int, high: int) -> Iterator[Call]:
        """Visit the calls that compute the lines of the last kernel from `low` on, before `high`."""
        for line in range(low, high):
            yield from self._line(len(self._stages) - 1, line)

    def _line(self, number: int, y: int) -> Iterator[Call]:
        """Compute line y of a kernel, and before it what it reads of the one before."""
        if number:
            yield from self._lines_for(number, y)
        stage, kernel = self._stages[number], self._writer.kernels[number]
        spans = (stage.line.reads[leaf.attrs[0]] for leaf in program.operands_of(stage.line.body))
        operands = tuple(self._where(span, y) for span in spans)
        yield Call(kernel, operands, self._where(stage.line.writes, y), self._memory + self._writer.scratch[number])

    def _lines_for(self, number: int, y: int) -> Iterator[Call]:
        first, end = self._writer.stages.needed(number, y, y + 1)
        before = number - 1
        stage = self._stages[before]
        if self._end[before] <= first:
            self._low[before] = self._end[before] = first
        if end - self._low[before] > stage.held:
            source, count = self._slot(before, first), self._end[before] - first
            self._low[before] = first
            yield self._move(before, self._slot(before, first), source, count)
        for line in range(self._end[before], end):
            if 0 <= line - stage.first < stage.line.count:
                yield from self._line(before, line - stage.first)
            else:
                border = self._slot(before, self._low[before] + stage.held)
                yield self._move(before, self._slot(before, line), border, 1)
            self._end[before] = line + 1

    def _move(self, number: int, target: int, source: int, lines: int) -> Call:
        return Call(_MOVE, (Held(target), Held(source), Number(lines * self._writer.line_bytes[number])))

    def _slot(self, number: int, line: int) -> int:
        """Return where a line of a buffer lies."""
        at = (line - self._low[number]) * self._writer.line_bytes[number]
        return self._memory + self._writer.slots[number] + at

    def _where(self, span: Span, y: int) -> Held | Within:
        """Return where the elements of line y begin."""
        place = self._writer.stages.places.by_name[span.buffer]
        itemsize = self._writer.itemsize[span.buffer]
        moved = span.start + y * span.step
        number = self._writer.number_by_root.get(place.root)
        if number is None:
            return Within(span.buffer, (moved + self._image * span.image) * itemsize)
        line, rest = divmod(place.offset + moved, self._stages[number].width)
        return Held(self._slot(number, line) + rest * itemsize)


def together(bands: Sequence[Banded]) -> Together:
    """Return what bands mean for the memory of a program."""
    return Together(
        {number: band.numbers[-1] for band in bands for number in band.numbers},
        frozenset(buffer for band in bands for buffer in band.buffers),
        {band.numbers[-1]: band.walk.size_bytes for band in bands},
    )
