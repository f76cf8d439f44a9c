"""The passes over a row: folds that depend on the same earlier values share one; what several passes need may be held.

    softmax:  pass 0 folds the maximum; pass 1 folds the sum of exp, and holds exp; pass 2 writes

The plan is what a kernel does and what it is said to cost.
Units: additions of a vector's element, as in the cost model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from frittata.egraph import dtypes
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.kernels.frames import LANES, Frame
from frittata.kernels.holding import HOLD_UNITS, is_worth_holding
from frittata.kernels.points import Point, Points

GATHER_UNITS = 12.0
"""What an element costs that is loaded by itself, and put into its lane."""
ROW_REDUCE_UNITS = 120.0
"""What combining accumulators and lanes costs, once a row for each fold."""
PASS_UNITS = 100.0
"""What starting a pass over a row costs."""
_MOST_HELD_BYTES = 1 << 20
_MOST_HELD = 8


@dataclass(eq=False)
class Pass:
    """One pass: what it folds, what it stores to be read by later passes, and which outputs it writes."""

    folds: list[Point] = field(default_factory=list[Point])
    held: list[Point] = field(default_factory=list[Point])
    outputs: list[int] = field(default_factory=list[int])


@dataclass(eq=False)
class Passes:
    """All passes over a row. Outputs of a reduced shape are written after the last one."""

    frame: Frame
    points: Points
    outputs: tuple[Point, ...]
    passes: list[Pass]
    first_by_held: dict[Point, int]
    """The pass in which each held point is computed; outputs that are read again count as held."""

    def roots(self, number: int) -> list[Point]:
        """Return what a pass computes."""
        step = self.passes[number]
        folded = [self.points.args(fold)[0] for fold in step.folds]
        return [*folded, *step.held, *(self.outputs[i] for i in step.outputs)]

    def computed(self, number: int) -> list[Point]:
        """Return the points that a pass computes, each after what it is computed from, and the held ones it reads."""
        return list(self._walk(self.roots(number), number))

    def is_known(self, point: Point, number: int) -> bool:
        """Whether earlier passes have left a value: that of a fold, or a held one."""
        return point.term.op == "fold" or self.first_by_held.get(point, number) < number

    def _walk(self, roots: Iterable[Point], number: int) -> Iterator[Point]:
        seen: set[Point] = set()
        stack = [(root, False) for root in roots]
        while stack:
            point, done = stack.pop()
            if done:
                yield point
            elif point not in seen:
                seen.add(point)
                stack.append((point, True))
                if not self.is_known(point, number):
                    stack.extend((arg, False) for arg in self.points.args(point))


def plan_passes(frame: Frame, elements: tuple[Term, ...]) -> Passes:
    """Give every fold, held value and output its pass."""
    points = frame.points()
    outputs = tuple(map(points.at, elements))
    depth: dict[Point, int] = {}
    for point in points.walk(outputs):
        below = max((depth[arg] for arg in points.args(point)), default=0)
        depth[point] = below + (point.term.op == "fold")
    passes = [Pass() for _ in range(max(depth.values()) + (not frame.is_reduced))]
    for point, level in depth.items():
        if point.term.op == "fold":
            passes[level - 1].folds.append(point)
    plan = Passes(frame, points, outputs, passes, {})
    if not frame.is_reduced:
        for i, output in enumerate(outputs):
            passes[depth[output]].outputs.append(i)
            if not _is_free(output.term):
                plan.first_by_held.setdefault(output, depth[output])
    _hold(plan, depth)
    return plan


def _is_free(term: Term) -> bool:
    return term.op in ("const", "load", "iota", "fold")


def _hold(plan: Passes, depth: dict[Point, int]) -> None:
    """Hold what several passes would compute, the largest points first."""
    inner, frame = plan.frame.inner, plan.frame
    order = list(depth)
    count = 0
    while count < _MOST_HELD and len(plan.passes) > 1:
        uses: dict[Point, list[int]] = {}
        for number in range(len(plan.passes)):
            for point in plan.computed(number):
                uses.setdefault(point, []).append(number)
        held_terms = {point.term for point in plan.first_by_held}
        for point in reversed(order):
            again = [n for n in uses.get(point, []) if not plan.is_known(point, n)]
            axes = {axis for axis, keys in point.where.keys_by_axis.items() if keys & inner}
            if len(again) > 1 and _fits(point, frame) and is_worth_holding(point.term, axes, held_terms):
                plan.first_by_held[point] = again[0]
                plan.passes[again[0]].held.append(point)
                count += 1
                break
        else:
            return


def _fits(point: Point, frame: Frame) -> bool:
    width = frame.lanes if frame.columns else frame.extent
    size = frame.steps * width * dtypes.itemsize(point.term.dtype)
    return not _is_free(point.term) and not point.where.clamped and size <= _MOST_HELD_BYTES


# ---- cost ------------------------------------------------------------------------------------------------------------


def units(plan: Passes) -> float:
    """Return what all rows cost, lanes that are not used included."""
    frame = plan.frame
    width = -(-frame.extent // frame.lanes) * frame.lanes
    per_step, per_block, per_row = 0.0, 0.0, 0.0
    for number, step in enumerate(plan.passes):
        varying = [point for point in plan.computed(number) if point.keys & frame.inner]
        per_step += sum(_point_units(plan, point, number) for point in varying)
        per_step += len(step.folds) + len(step.outputs) + HOLD_UNITS / 2 * len(step.held)
        per_row += PASS_UNITS + (0 if frame.columns else ROW_REDUCE_UNITS * len(step.folds))
    for point in {p for number in range(len(plan.passes)) for p in plan.computed(number)} | set(plan.outputs):
        if not point.keys & frame.inner and point.term.op != "fold":
            cost = _own_units(point.term)
            if LANES in point.keys:
                per_block += cost
            else:
                per_row += cost * frame.lanes
    return frame.row_count * (width * (frame.steps * per_step + per_block) + per_row)


def _point_units(plan: Passes, point: Point, number: int) -> float:
    if plan.is_known(point, number):
        return 1.0
    if point.term.op in ("load", "iota"):
        slope = plan.points.offset(point).factor_of(LANES)
        return 1.0 if slope in (0, 1) else GATHER_UNITS
    return _own_units(point.term)


def _own_units(term: Term) -> float:
    return registry.get(term.op, "element").cost
