"""The order of values along an axis, as source: what is first is found by insertion, or all are sorted by digits.

Values become integers in whose order they stand, NaN as the greatest and both zeros as one. Those of 32 bits share a
word with their places, so that words are compared and moved as a whole, and equal values stay in the order of theirs;
those of 64 bits have their places in a second array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod

from llvmlite import ir

from frittata.egraph import shapes
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.chunks import indented
from frittata.kernels.intrinsics import table_pointer
from frittata.kernels.lowered import aligned
from frittata.kernels.processor import processor
from frittata.kernels.simd import I64, Builder, Lane, Value

_MOST_INSERTED = 128
"""So many values at the most are found by insertion: where each is better than all before, each moves so many."""
BLOCK = 64
"""So many values are compared at once with the last that is kept."""
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_WORD = 1 << 32


@dataclass(frozen=True)
class Ordering:
    """Rows of `extent` values, `inner` elements apart, of which the first `count` places are wanted in order."""

    dtype: str
    rows: int
    extent: int
    inner: int
    count: int
    descending: bool

    @property
    def is_wide(self) -> bool:
        """Whether values take a whole word."""
        return self.dtype in ("f64", "i64")

    @property
    def inserts(self) -> bool:
        """Whether the first values are found by insertion."""
        return self.count <= _MOST_INSERTED and self._insertion_steps <= self._sorting_steps

    @property
    def compares_blocks(self) -> bool:
        """Whether values lie side by side, so that vectors of them are compared."""
        return self.inner == 1 and self.dtype != "bool"

    @property
    def rest(self) -> int:
        """How many values the last block has, if it is not a whole one."""
        return (self.extent - self.count) % BLOCK

    @property
    def digits(self) -> int:
        """How many digits a value has."""
        bits = {"bool": 8, "f32": 32, "i32": 32}.get(self.dtype, 64)
        return bits // _DIGIT_BITS

    @property
    def scratch(self) -> dict[str, int]:
        """The number of words of each array that a row is worked on in."""
        if self.inserts:
            sizes = {"words": self.count}
            return {**sizes, "places": self.count} if self.is_wide else sizes
        sizes = {"words": self.extent, "sorted_words": self.extent, "starts": self.digits * _DIGITS}
        return {**sizes, "places": self.extent, "sorted_places": self.extent} if self.is_wide else sizes

    @property
    def scratch_bytes(self) -> int:
        """The memory that a row is worked on in."""
        return sum(aligned(8 * size) for size in self.scratch.values())

    @property
    def units(self) -> float:
        """What all rows take, of random values, in additions of vector code: a step takes the time of a vector."""
        steps = self._insertion_steps if self.inserts else self._sorting_steps
        return self.rows * steps * (processor().width // 4)

    @property
    def _insertion_steps(self) -> float:
        better = self.count * log(self.extent / self.count)
        looked = self.extent * (_COMPARE_STEPS if self.compares_blocks else _READ_STEPS)
        at_first = self.count * (_INSERT_STEPS + _SHIFT_STEPS * self.count / 2)
        return looked + at_first + better * (_INSERT_STEPS + _SHIFT_STEPS * self.count)

    @property
    def _sorting_steps(self) -> float:
        moved = self.extent * (_WIDE_SHARE if self.is_wide else 1.0)
        return _DIGIT_STEPS * self.digits * (moved + _DIGITS)


_COMPARE_STEPS, _READ_STEPS, _INSERT_STEPS, _SHIFT_STEPS = 0.25, 4.0, 30.0, 2.0
"""To compare a value with the last that is kept, in vectors and one by one; to insert one, and to move another for it.

Source, of these and the next: one core of Zen 4, rows of 8 to 100000 random values, 0.23 ns a step.
"""
_DIGIT_STEPS, _WIDE_SHARE = 5.0, 1.3
"""To count and to move a value by one digit; what it takes where places move too."""


def describe(bodies: tuple[Term, ...]) -> Ordering | None:
    """Return what a body asks for, None for other bodies."""
    if len(bodies) != 1 or bodies[0].op not in ("argsort", "argtopk"):
        return None
    (body,) = bodies
    (x,) = body.args
    if any(isinstance(dim, Sym) for dim in x.shape) or not shapes.size(x.shape):
        return None
    axis, *first, descending = body.attrs
    shape = shapes.concrete(x.shape)
    extent, inner = shape[axis], prod(shape[axis:]) // shape[axis]
    count = first[0] if first else extent
    return Ordering(x.dtype, shapes.size(shape) // extent, extent, inner, count, descending)


def row_lines(work: Ordering, row: str) -> list[str]:
    """Write what finds the places of one row: reads `x`, the bits of the values, and writes `y`."""
    found = _insertion(work) if work.inserts else _sorting(work)
    result = f"y[start + j * {work.inner}] = {_place(work, 'j')}"
    return [
        f"first = {_start(work, row, work.extent)}",
        *found,
        f"start = {_start(work, row, work.count)}",
        *_loop(f"for j in range({work.count}):", [result]),
    ]


def _start(work: Ordering, row: str, count: int) -> str:
    """Write where a row of so many values begins."""
    return f"{row} // {work.inner} * {count * work.inner} + {row} % {work.inner}"


def _word(work: Ordering) -> list[str]:
    """Write how a value becomes a word that is in its place among all words."""
    lines = [f"word = np.int64(x[first + j * {work.inner}])"]
    if work.dtype in ("f32", "f64"):
        bits, mantissa = (64, 52) if work.is_wide else (32, 23)
        low = (1 << (bits - 1)) - 1
        infinity = low >> mantissa << mantissa
        lines += [
            f"word = word ^ ((word >> 63) & {low})",
            f"word = {low} if word > {infinity} or word < {-infinity - 1} else (0 if word == -1 else word)",
        ]
    return [*lines, "word = ~word"] if work.descending else lines


def _joined(work: Ordering) -> list[str]:
    return _word(work) + ([] if work.is_wide else [f"word = word * {_WORD} + j"])


def _arrays(work: Ordering) -> list[tuple[str, str]]:
    """Return the arrays that values are kept in, and what is kept of one."""
    return [("words", "word"), ("places", "j")][: 1 + work.is_wide]


def _insertion(work: Ordering) -> list[str]:
    """Keep the first values that were seen; of blocks without a better one than their last no more is looked at."""
    arrays = _arrays(work)
    shifted = [f"{name}[at] = {name}[at - 1]" for name, _ in arrays]
    put = [
        *_loop("while at > 0 and words[at - 1] > word:", [*shifted, "at -= 1"]),
        *(f"{name}[at] = {value}" for name, value in arrays),
    ]
    last = work.count - 1
    better = _loop(f"if word < words[{last}]:", [f"at = {last}", *put])
    lines = _loop(f"for j in range({work.count}):", [*_joined(work), "at = j", *put])
    if not work.compares_blocks:
        return lines + _loop(f"for j in range({work.count}, {work.extent}):", [*_joined(work), *better])
    full = work.extent - work.rest
    for name, low, high in (("beyond", work.count, full), ("beyond_rest", full, work.extent)):
        if low < high:
            found = f"left = {name}(table, first + block, first + {_place(work, last)})"
            inner = ["j = block + lowest(table, left)", "left &= left - 1", *_joined(work), *better]
            look = [found, *_loop("while left:", inner)]
            lines += _loop(f"for block in range({low}, {high}, {BLOCK}):", look)
    return lines


def _sorting(work: Ordering) -> list[str]:
    """Sort by digits, the least first, without those in which all values agree.

    Source: Knuth, The Art of Computer Programming, volume 3, 5.2.5.
    """
    n, low = work.extent, 0 if work.is_wide else 32
    digits = [(f"starts[{_DIGITS * d} + {_digit(work, d, low)}]", d) for d in range(work.digits)]
    arrays = _arrays(work)
    count = [*_joined(work), *(f"{name}[j] = {value}" for name, value in arrays)]
    lines = _loop(f"for t in range({work.digits * _DIGITS}):", ["starts[t] = 0"])
    lines += _loop(f"for j in range({n}):", [*count, *(f"{start} += 1" for start, _ in digits)])
    for start, d in digits:
        sums = [f"size = starts[{_DIGITS * d} + t]", f"starts[{_DIGITS * d} + t] = total", "total += size"]
        moved = [f"sorted_{name}[at] = {name}[j]" for name, _ in arrays]
        move = ["word = words[j]", f"at = {start}", f"{start} = at + 1", *moved]
        swap = [f"{name}, sorted_{name} = sorted_{name}, {name}" for name, _ in arrays]
        turn = ["total = 0", *_loop(f"for t in range({_DIGITS}):", sums), *_loop(f"for j in range({n}):", move), *swap]
        lines += ["word = words[0]", *_loop(f"if {start} < {n}:", turn)]
    return lines


def _digit(work: Ordering, digit: int, low: int) -> str:
    flip = f" ^ {_DIGITS // 2}" if digit == work.digits - 1 and work.dtype != "bool" else ""
    return f"((word >> {low + _DIGIT_BITS * digit} & {_DIGITS - 1}){flip})"


def _place(work: Ordering, number: int | str) -> str:
    return f"places[{number}]" if work.is_wide else f"(words[{number}] & {_WORD - 1})"


def beyond(builder: Builder, table: Value, block: Value, last: Value, work: Ordering, size: int) -> Value:
    """Return a bit for each of the values of a block that may be before the one at `last`; NaN always may."""
    lane = Lane(work.dtype, processor().width // Lane(work.dtype).itemsize)
    x = table_pointer(builder, table, 0, work.dtype)
    least = memory.load_splat(builder, lane, x, last)
    found: Value = I64(0)
    for at in range(0, size, lane.lanes):
        values = memory.load_masked(builder, lane, x, builder.add(block, I64(at)), min(lane.lanes, size - at))
        within = simd.compare(builder, "<=" if work.descending else ">=", values, least)
        bits = builder.bitcast(builder.not_(within), ir.IntType(lane.lanes))
        found = builder.or_(found, builder.shl(builder.zext(bits, I64), I64(at)))
    return found if size == BLOCK else builder.and_(found, I64((1 << size) - 1))


def lowest(builder: Builder, table: Value, bits: Value) -> Value:
    """Return the number of the lowest bit that is set."""
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


def _loop(head: str, lines: Sequence[str]) -> list[str]:
    return indented([head], lines)
