"""What a contraction is predicted to cost: register tiles, packing, epilogue, and the bytes that pass by."""

from __future__ import annotations

from llvmlite import ir

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.indexing import Affine, Var
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.contractions import Contraction, InPlace, Side, apart_beside, loads_of
from frittata.kernels.gemm_emitters import moves_along, stores_columns
from frittata.kernels.gemm_kernel import sizes_of
from frittata.kernels.gemm_schedule import TILE_CYCLES, Schedule, Sizes, schedule, tile_cycles
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.multiply_adds import MultiplyAdd, choose
from frittata.kernels.packing import tile_rows
from frittata.kernels.points import Points
from frittata.kernels.roofline import balance
from frittata.kernels.tiles import CACHE_LINE_BYTES
from frittata.kernels.traffic import constant_bytes, moved_bytes, read_bytes
from frittata.kernels.units import gather_units, operator_cost

_RUN_CYCLES = 12
"""What a tile whose rows are windows spends from one run to the next."""

_COPY_UNITS = 2.0
_TRANSPOSE_UNITS = 4.0
"""Additions that moving one element into scratch memory is worth."""
_CLAMPED_UNITS = 30.0
"""The same where the index may be clamped: lane by lane."""
_FAR_UNITS = 50.0
"""The same where neighbours along every axis lie in other cache lines: the second-level cache is waited for."""
_QUOTIENT_STEPS = 3.5
"""Additions of whole vectors that a quotient or a remainder of one index is worth: processors divide lane by lane.

Source: Zen 5: windows of 7 x 7 of an image of three planes.
"""
_LINE = CACHE_LINE_BYTES // 4
"""Elements of float32."""
_STRIDED_ROWS = 1.4
"""How much longer steps take that read the left side in place, each from another cache line."""
_BESIDE = 0.1
"""The part of the arithmetic that does not hide behind weights that it waits for.

Source: Zen 4, 960 x 1280 weights from memory: 1 to 8 rows take 1.0 to 1.15 times what the weights take, their
arithmetic 0.2 to 0.7 times. Of two ways that wait as long, the one with less to do is faster where weights stay in a
cache.
"""
_COLUMN_UNITS = 6.0
"""Additions that storing an element is worth where those of a few rows are stored together."""
_SCATTER_STEPS = 1.6
"""Additions of whole vectors that storing one element by itself is worth: Zen 4 stores 0.7 of them a cycle."""


def estimate(
    work: Contraction,
    constants: frozenset[str],
    machine: Machine,
    multiply: MultiplyAdd | None = None,
    pack_units: float | None = None,
) -> Estimate:
    """Predict the time; `pack_units` overrides what packing an element of the right side takes."""
    multiply = multiply or choose(work, constants)
    sizes = sizes_of(work, constants, multiply)
    plan = schedule(sizes)
    share = balance(plan.chunks, machine)
    in_place = multiply.rows(work) if sizes.left == "direct" else None
    steps = _fma_units(sizes, plan, _run_cycles(in_place)) * _apart(in_place) * multiply.slower
    arithmetic = steps / (machine.fma_f32_per_s * share)
    scalar = epilogue_units(work) + strided_units(work, plan.tile.lanes)
    left, right = _scratch_units(work, sizes, plan, multiply, pack_units)
    wider = _wider_bytes(work, sizes, multiply)
    moved = moved_bytes(work.bodies) + wider
    per_unit = work.itemsize / 4 / (machine.scalar_per_s * share)
    seconds = arithmetic + (scalar + right) * per_unit + machine.transfer_s(_read_between_tiles(work))
    transfer = machine.transfer_s(moved, constant_bytes(work.bodies, constants) + wider)
    seconds = max(seconds, transfer + _BESIDE * seconds)
    seconds += left * per_unit  # nothing of the right side is read meanwhile
    overhead = machine.launch_s + (machine.sync_s if plan.chunks > 1 else 0.0)
    return Estimate(overhead + seconds, work.flops + epilogue_units(work), moved)


def _wider_bytes(work: Contraction, sizes: Sizes, multiply: MultiplyAdd) -> float:
    """Return the bytes that packed panels have more than what they are packed from."""
    if multiply.steps == 1 or sizes.right != "packed":
        return 0.0
    right = multiply.sides(work)[1]
    more = max(0, dtypes.itemsize(multiply.right) - dtypes.itemsize(right.element.dtype))
    return float(more * (work.batches if right.mentions("g") else 1) * work.depth * work.columns)


def _apart(rows: InPlace | None) -> float:
    return _STRIDED_ROWS if rows is not None and abs(rows.step) > 1 else 1.0


def _run_cycles(rows: InPlace | None) -> float:
    """Return what a tile spends between the runs of its rows."""
    return (rows.count - 1) * _RUN_CYCLES if rows is not None else 0.0


def _fma_units(sizes: Sizes, plan: Schedule, run_cycles: float) -> float:
    """Return multiply-adds of float32, those counted that lanes and latencies waste."""
    tile = plan.tile
    groups = -(-plan.panels // tile.panels) if tile.panels > 1 else plan.panels
    per_step = tile_cycles(sizes.rows, tile) * groups * tile.lanes
    if tile.panels > 1:
        per_step *= plan.panels / (groups * tile.panels)
    tiles = tile_rows(sizes.rows, tile.rows).tiles * groups
    extra = tiles * (TILE_CYCLES + run_cycles) * 2 * sizes.lanes
    return sizes.batches * (per_step * sizes.depth + extra) * sizes.itemsize / 4


def _read_between_tiles(work: Contraction) -> float:
    """Return the bytes that the epilogue reads: tiles wait for them, a few elements of each row at a time."""
    factors = set(program.operands_of(work.product))
    return sum(read for leaf, read in read_bytes(work.bodies).items() if leaf not in factors)


def epilogue_units(work: Contraction) -> float:
    elements = tuple(body.args[0] for body in work.bodies)
    cost = cost_of(*elements) - registry.get(work.product.op, "element").cost
    cost -= sum(cost_of(arg) for arg in work.product.args)
    return max(0.0, cost) * shapes.size(work.bodies[0].shape)


def strided_units(work: Contraction, lanes: int) -> float:
    """Return what loads and stores of the epilogue take where elements are apart along the columns."""
    values = IndexValues(ir.IRBuilder(), {}, Along("j", lanes, lanes))
    apart = [offset for offset in work.output_offsets if values.slope(offset) not in (0, 1)]
    each = gather_units(lanes) * apart_beside(work.product, work.bodies, work.place, values)
    each += sum(_COLUMN_UNITS if stores_columns(offset, lanes) else _SCATTER_STEPS * lanes for offset in apart)
    return each * shapes.size(work.bodies[0].shape)


def cost_of(*elements: Term) -> float:
    return sum(operator_cost(t) for t in terms.walk(*elements) if t.sort == "element")


def _scratch_units(
    work: Contraction, sizes: Sizes, plan: Schedule, multiply: MultiplyAdd, pack_units: float | None
) -> tuple[float, float]:
    """Return what evaluating the left and the right side takes, in each part of the other side again."""
    before = after = 0.0
    left, right = multiply.sides(work)
    if sizes.left == "scratch":
        each = move_units(left, ("k",), plan.tile.lanes)
        before = each * sizes.batches * work.depth * sizes.rows * plan.panel_parts
    if sizes.right == "scratch":
        each = pack_units if pack_units is not None else move_units(right, ("j", "k"), plan.tile.lanes)
        after = each * sizes.batches * work.depth * sizes.columns * plan.row_parts
    return before, after


def _is_far(offset: Affine) -> bool:
    """Whether neighbours along all axes of a side, most of them at least, lie in cache lines of their own."""
    first = offset.evaluate(lambda _: 0)
    axes = offset.variables() & {"i", "j", "k"}
    steps = [offset.evaluate(lambda key, axis=axis: int(key == axis)) - first for axis in axes]
    return bool(steps) and all(abs(step) >= _LINE for step in steps)


def _quotients(offset: Affine, key: str) -> int:
    """Return how many quotients and remainders an offset takes that differ along a variable."""
    inner = [atom.of for atom, _ in offset.terms if not isinstance(atom, Var) and key in atom.of.variables()]
    return len(inner) + sum(_quotients(of, key) for of in inner)


def move_units(side: Side, keys: tuple[str, ...], lanes: int) -> float:
    """Return what evaluating an element of a side takes, by whether its loads are consecutive along the first key."""
    smooth = [moves_along(side, key, lanes) for key in keys]
    move = _COPY_UNITS if smooth[0] else _TRANSPOSE_UNITS if any(smooth) else gather_units(lanes)
    found = [offset for _, offset in loads_of(side.element, index=side.index)]
    known = [offset for offset in found if offset is not None]
    if len(known) < len(found):
        move = _CLAMPED_UNITS
    elif not any(smooth) and any(map(_is_far, known)):
        move = _FAR_UNITS
    if not any(smooth):
        move += _QUOTIENT_STEPS * lanes * sum(_quotients(offset, keys[0]) for offset in known)
    points = Points(side.index, {})
    walked = points.walk([points.at(side.element)])
    return move + sum(operator_cost(point.term) for point in walked)
