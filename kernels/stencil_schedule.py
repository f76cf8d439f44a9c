"""How a stencil is cut into register tiles, bands of lines and chunks, and where its scratch memory has what.

A function of sizes, never of the number of threads: results are the same bit for bit on any machine.

A chunk copies a band of an image, its margins and the values of its prologue into scratch memory, the columns sorted by
their remainder modulo the stride, so that the windows of neighbouring results read consecutive elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

from frittata.kernels.gemm_emitters import lanes_of
from frittata.kernels.simd import Lane
from frittata.kernels.stencils import DOT, Stencil, span

_MOST_LINES = 8
_MOST_OUTPUTS = 6
_MOST_VECTORS = 8
_MOST_SUMS = 12
_MOST_TURN = 4
_LATENCY = 9.5
"""Independent sums that keep two multiply-adds a cycle going."""
_LINE_BYTES = 64
"""A load that crosses two lines of the cache counts twice."""
_FAR_LOADS = 2.0
"""How much more a load costs that the first-level cache does not hold."""
_NEAR_BYTES = 32 << 10
_SHARE_BY_FOLD = {"sum": 1.0, "prod": 1.0, "max": 0.4, "min": 0.4}
"""How fast folds are, beside multiply-adds: an extremum takes several instructions, for NaN and signed zeros."""
_MOST_STEPS = 1200
"""Multiply-adds that are written out in a tile: what is larger is left to other templates."""
_BAND_BYTES = 24 << 10
_MOST_BAND_BYTES = 256 << 10
_MOST_CHUNKS = 64
_CHUNK_STEPS = 10_000.0
"""The least vector operations that are worth a chunk."""


@dataclass(frozen=True)
class StencilPlan:
    """Tiles of `outputs` by `lines` by `vectors` sums; bands of whole tiles along the lines; what fills scratch.

    `turn` lines of a window are written out, the turns are a loop. The last tile along an axis may overlap the one
    before it: what lies in both is computed twice.
    """

    work: Stencil
    outputs: int
    lines: int
    vectors: int
    bands: int
    turn: int

    @cached_property
    def lanes(self) -> int:
        """The lanes of a vector."""
        return lanes_of(self.work.dtype)

    @property
    def sums(self) -> int:
        """The vectors that a tile keeps in registers."""
        return self.outputs * self.lines * self.vectors

    @property
    def line_tiles(self) -> int:
        """The tiles along the lines of the result."""
        return -(-self.work.lines.result // self.lines)

    @property
    def pixel_tiles(self) -> int:
        """The tiles along a line."""
        return -(-self.work.pixels.result // (self.vectors * self.lanes))

    @property
    def output_tiles(self) -> int:
        """The tiles of output channels."""
        return -(-self.work.outputs // self.outputs)

    @cached_property
    def band_lines(self) -> int:
        """The most lines of the image, margins included, that a band takes."""
        tiles = -(-self.line_tiles // self.bands)
        return span(self.work.lines, min(tiles * self.lines, self.work.lines.result))

    @property
    def is_long(self) -> bool:
        """Whether a line of a window is so long that what one vector of results reads, others read some taps on.

        Then such taps go side by side, and the image is loaded once for all of them: most of its loads cross lines.
        """
        pixels = self.work.pixels
        is_one = self.outputs == self.lines == self.turn == pixels.dilation == 1 and self.work.op == DOT
        return is_one and self.runs[0] > 1 and self.vectors * self.lanes <= pixels.result

    @property
    def runs(self) -> tuple[int, int]:
        """How many taps of a phase are a vector's lanes apart from each other, and for how many first ones one more."""
        return divmod(-(-self.work.pixels.kernel // self.work.pixels.stride), self.lanes)

    def lines_seen(self, turn: int) -> int:
        """Return how many lines of the image a tile loads for so many lines of a window."""
        lines = self.work.lines
        steps = product(range(self.lines), range(turn))
        return len({row * lines.stride + dy * lines.dilation for row, dy in steps})

    @property
    def tile_span(self) -> int:
        """The lines of the image, margins included, that a tile takes."""
        return span(self.work.lines, self.lines)

    @property
    def key(self) -> str:
        """All that the vector code depends on but the bodies do not tell."""
        return f"{self.outputs} {self.lines} {self.vectors} {self.bands} {self.turn} {self.lanes}"

    @property
    def phases(self) -> int:
        """How many parts a line falls into, by the column's remainder modulo the stride."""
        pixels = self.work.pixels
        return min(pixels.stride, (pixels.kernel - 1) * pixels.dilation + 1)

    @cached_property
    def width(self) -> int:
        """The elements of a part of a line in scratch memory."""
        pixels = self.work.pixels
        reach = (pixels.kernel - 1) * pixels.dilation // pixels.stride
        return max(pixels.result, self.vector_starts[-1] + self.lanes) + reach

    @cached_property
    def vector_starts(self) -> tuple[int, ...]:
        """The offsets of the vectors of a tile; they overlap in lines shorter than a tile."""
        last = max(0, self.work.pixels.result - self.lanes)
        return tuple(min(v * self.lanes, last) for v in range(self.vectors))

    @property
    def last_start(self) -> int:
        """The greatest column at which a tile starts."""
        return max(0, self.work.pixels.result - self.vector_starts[-1] - self.lanes)

    @property
    def valid(self) -> int | None:
        """The lanes that hold results, if lines are shorter than a vector."""
        return self.work.pixels.result if self.work.pixels.result < self.lanes else None

    def columns(self, phase: int) -> tuple[int, int]:
        """Return which positions of a phase's part of a line to fill: the first, and one past the last.

        For a product those in the image, for a fold all.

        Column u of the image is position q of phase f where u + padding = q * stride + f.
        """
        pixels = self.work.pixels
        reach = span(pixels, pixels.result)
        if self.work.op != DOT:
            return 0, -((phase - reach) // pixels.stride)
        low = max(0, -((phase - pixels.padding) // pixels.stride))
        high = -((phase - pixels.source - pixels.padding) // pixels.stride)
        return low, min(high, -((phase - reach) // pixels.stride))

    @property
    def inside(self) -> bool:
        """Whether all lines are filled alike: no window reaches beyond the image, or there its index is clamped."""
        lines = self.work.lines
        return self.work.op != DOT or (lines.padding == 0 and span(lines, lines.result) <= lines.source)

    @cached_property
    def scratch_elements(self) -> int:
        """The size of a band in scratch memory."""
        return self.work.inputs * self.band_lines * self.phases * self.width

    @property
    def scratch_bytes(self) -> int:
        """The size of a band in scratch memory."""
        return self.scratch_elements * Lane(self.work.dtype).itemsize

    @property
    def weight_bytes(self) -> int:
        """The size of the weights of a tile."""
        return self.outputs * self.work.taps * Lane(self.work.dtype).itemsize

    @property
    def tasks(self) -> int:
        """Images times bands."""
        return self.work.count * self.bands

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.work.count * self.line_tiles * self.pixel_tiles * self.output_tiles

    @property
    def steps(self) -> float:
        """The vector operations of all tiles."""
        return float(self.tiles * self.outputs * self.lines * self.vectors * self.work.taps)

    @property
    def filled(self) -> float:
        """The elements that are copied into scratch memory."""
        columns = min(self.work.pixels.source, span(self.work.pixels, self.work.pixels.result))
        return float(self.tasks * self.work.inputs * self.band_lines * columns)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return max(1, min(_MOST_CHUNKS, self.tasks, int(self.steps / _CHUNK_STEPS)))


def plan(work: Stencil) -> StencilPlan | None:
    """Choose tiles and bands; None if a tile would be too long, or a band too large."""
    found = _plan(_Sized(work.sizes, work))
    return None if found is None else replace(found, work=work)


@dataclass(frozen=True)
class _Sized:
    """A stencil: the same as any other of its sizes."""

    sizes: tuple[Any, ...]
    work: Stencil = field(compare=False)


@lru_cache(maxsize=4096)
def _plan(sized: _Sized) -> StencilPlan | None:
    fitting = (p for p in _candidates(sized.work) if p.scratch_bytes <= _MOST_BAND_BYTES)
    return min(fitting, key=lambda p: (p.steps / efficiency(p), -p.sums, -p.turn), default=None)


def _candidates(work: Stencil) -> Iterator[StencilPlan]:
    """Return the tiles to try: of one channel or of several, some lines, each of some vectors."""
    wide = -(-work.pixels.result // lanes_of(work.dtype))
    for outputs in range(1, min(work.outputs, _MOST_OUTPUTS) + 1):
        for lines in range(1, min(work.lines.result, _MOST_LINES) + 1):
            for vectors in range(1, min(wide, _MOST_VECTORS) + 1):
                for turn in _turns(work, outputs):
                    whole = StencilPlan(work, outputs, lines, vectors, 1, turn)
                    if whole.sums <= _MOST_SUMS and _written_out(whole) <= _MOST_STEPS:
                        bands = min(whole.line_tiles, max(1, -(-whole.scratch_bytes // _BAND_BYTES)))
                        yield replace(whole, bands=bands)


def _turns(work: Stencil, outputs: int) -> Iterable[int]:
    """Return how many lines of a window may be written out: all, or the first of many; one for several channels."""
    kernel = work.lines.kernel
    return (1,) if outputs > 1 else sorted({*range(1, min(kernel, _MOST_TURN) + 1), kernel})


def _written_out(plan: StencilPlan) -> int:
    """Return the multiply-adds that are code of their own."""
    if plan.is_long:
        return plan.vectors * (plan.runs[0] + 1) * plan.phases * 2
    rest = plan.work.lines.kernel % plan.turn
    return plan.sums * plan.work.pixels.kernel * (plan.turn + rest)


def efficiency(plan: StencilPlan) -> float:
    """Return the share of the peak that a tile reaches: bound by latency, or by its loads."""
    lines, pixels, itemsize = plan.work.lines, plan.work.pixels, Lane(plan.work.dtype).itemsize
    crossing = 1 + (plan.lanes - 1) * itemsize / _LINE_BYTES
    if plan.is_long:
        taps = plan.runs[0]
        loads = (plan.vectors + taps - 1) * crossing + taps
        return min(1.0, plan.sums / _LATENCY, plan.vectors * taps / loads)
    turns, rest = divmod(lines.kernel, plan.turn)
    seen = turns * plan.lines_seen(plan.turn) + plan.lines_seen(rest)
    images = seen * plan.vectors * pixels.kernel * crossing * _distance(plan.scratch_bytes)
    weights = plan.outputs * lines.kernel * pixels.kernel * _distance(plan.weight_bytes)
    steps = plan.sums * lines.kernel * pixels.kernel
    if plan.work.op != DOT:
        return min(_SHARE_BY_FOLD[plan.work.op], steps / images)
    return min(1.0, plan.sums / _LATENCY, steps / (images + weights))


def _distance(size_bytes: int) -> float:
    return 1.0 if size_bytes <= _NEAR_BYTES else _FAR_LOADS
