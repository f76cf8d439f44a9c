"""Running folds in kernels: which axes they run along, and the loops of kernels that run along one of them.

for i0 in rows:                    the axes that nothing runs along
    for k in lanes:                  down columns: the last axis in lanes,
        for s in sequence:             each of which has its own running fold
for i0 in rows:                    along a row: the lanes are neighbours of one fold,
    for k in lanes:                  which are folded in them, and then with what was before
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log2, prod

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.kernels import vmath
from frittata.kernels.frames import LANES, Loop
from frittata.kernels.points import Points
from frittata.kernels.processor import processor
from frittata.kernels.simd import Lane
from frittata.kernels.stores import BODIES, stored_at
from frittata.kernels.units import EXTREME_UNITS, SIMPLE_UNITS, gather_units, operator_units

SEQUENCE = "s"
_ALONG_STEP_UNITS = 0.6
_ALONG_FOLD_TIMES = 2.0
"""What a step along a row costs, to move lanes, and how many times the fold itself: each step waits for the one before.

Source: Zen 4, rows of 64 to 8,192 values of four and eight bytes, AVX2 and AVX-512: predicted over measured 0.5
to 2.1, for products of int64 with AVX2 0.4.
"""
_LINE_UNITS = 40.0
"""What starting a line, or a block of columns, costs."""
_ABOVE = vmath.OPS | {"cast", "scan", "load", "const", "iota"}
_BELOW = vmath.OPS | {"cast", "load", "const", "iota", "reindex", "at"}


def scanned_axes(*bodies: Term) -> frozenset[int]:
    """Return the axes of more than one place that scans in bodies run along."""
    return frozenset(term.attrs[1] for term in terms.walk(*bodies) if term.op == "scan" and term.attrs[2] > 1)


@dataclass(frozen=True, eq=False)
class ScanPlan:
    """How the axes of bodies become loops; `scans` are their running folds, along the lanes or down columns."""

    shape: tuple[int, ...]
    scans: tuple[Term, ...]
    elements: tuple[Term, ...]
    index: Mapping[int, Affine]
    rows: tuple[Loop, ...]
    steps: int
    extent: int
    lanes: int

    @property
    def columns(self) -> bool:
        """Whether each lane is a fold of its own."""
        return self.steps > 1

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return prod(loop.extent for loop in self.rows)

    @property
    def units(self) -> float:
        """What all rows cost, in additions of a vector's element."""
        points = Points(self.index, {})
        per_element = SIMPLE_UNITS * len(self.elements)
        for point in points.walk([points.at(e) for e in (*self.elements, *(scan.args[0] for scan in self.scans))]):
            if point.term.op in ("load", "iota"):
                is_apart = points.step(point, LANES) not in (0, 1)
                per_element += gather_units(processor().width // 4) if is_apart else SIMPLE_UNITS
            elif point.term.op == "scan":
                per_element += 1.0 if self.columns else self._along_units(point.term)
            elif point.term.op != "const":
                per_element += operator_units(point.term)
        width = -(-self.extent // self.lanes) * self.lanes
        lines = width / self.lanes if self.columns else 1.0
        return self.row_count * (per_element * width * self.steps + _LINE_UNITS * lines)

    def _along_units(self, scan: Term) -> float:
        """Return what an element costs that is folded with its neighbours, and those with what was before."""
        steps = log2(self.lanes) + 2
        fold = SIMPLE_UNITS
        if dtypes.is_float(scan.dtype):  # products look for what is not of a normal size
            fold = {"sum": SIMPLE_UNITS, "prod": 2 * SIMPLE_UNITS}.get(scan.attrs[0], EXTREME_UNITS)
        return steps * (_ALONG_STEP_UNITS + _ALONG_FOLD_TIMES * fold) * Lane(scan.dtype).register_bytes / 4

    def describe(self) -> str:
        """Return all that tells plans of the same bodies apart."""
        return f"{self.rows} {self.steps} {self.extent} {self.lanes}"


@lru_cache(maxsize=4096)
def plan_scan(bodies: tuple[Term, ...]) -> ScanPlan | None:
    """Return the loops for bodies that are point-wise in scans along one axis, point-wise below too; else None."""
    elements = tuple(body.args[0] for body in bodies if body.op in BODIES)
    if len(elements) != len(bodies) or any(isinstance(dim, Sym) for t in terms.walk(*bodies) for dim in t.shape):
        return None
    shape, scans = shapes.concrete(bodies[0].shape), _scans(elements)
    axes = {scan.attrs[1:] for scan in scans or ()}
    if not scans or len(axes) != 1 or any(body.shape != shape for body in bodies):
        return None
    ((axis, extent),) = axes
    if -axis > len(shape) or shape[axis] != extent or extent == 1:
        return None
    plan = _planned(shape, axis, scans, elements)
    return plan if all(stored_at(body, plan.index).factor_of(LANES) in (0, 1) for body in bodies) else None


def _scans(elements: tuple[Term, ...]) -> tuple[Term, ...] | None:
    """Return the scans that elements are point-wise in; None if there is anything else than such."""
    found: dict[Term, None] = {}
    seen: set[Term] = set()
    stack = list(elements)
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if term.op == "scan":
            found[term] = None
        elif term.op not in _ABOVE and scanned_axes(term):
            return None
        elif term.sort == "element":
            stack += term.args
    below = [scan.args[0] for scan in found]
    rest = (t for t in terms.walk(*elements, *below) if t.sort == "element" and t not in found)
    if any(term.op not in _BELOW for term in rest) or any(map(scanned_axes, below)):
        return None
    return tuple(found)


def _planned(shape: tuple[int, ...], axis: int, scans: tuple[Term, ...], elements: tuple[Term, ...]) -> ScanPlan:
    live = [a for a in range(-len(shape), 0) if shape[a] > 1]
    columns = live[-1] != axis
    index: dict[int, Affine] = {live[-1]: var(LANES, shape[live[-1]])}
    if columns:
        index[axis] = var(SEQUENCE, shape[axis])
    rows = {a: Loop(f"i{number}", shape[a]) for number, a in enumerate(a for a in live if a not in index)}
    index |= {a: var(loop.key, loop.extent) for a, loop in rows.items()}
    sizes = [Lane(term.dtype).register_bytes for term in terms.walk(*elements) if term.dtype != "bool"]
    extent = shape[live[-1]]
    lanes = min(processor().width // min(sizes, default=4), 1 << (extent - 1).bit_length())
    steps = shape[axis] if columns else 1
    return ScanPlan(shape, scans, elements, index, tuple(rows.values()), steps, extent, lanes)
