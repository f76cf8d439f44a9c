"""What an attention is predicted to cost: two products, the softmax between them, packing, and the bytes moved."""

from __future__ import annotations

from frittata.egraph import program
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import size_bytes
from frittata.kernels.attention_schedule import AttentionPlan
from frittata.kernels.gemm_estimate import cost_of, epilogue_units, move_units, strided_units
from frittata.kernels.gemm_schedule import TILE_CYCLES, tile_cycles
from frittata.kernels.roofline import balance

_SOFTMAX_UNITS = 10.0
"""Additions that a score is worth from its maximum to its share, the exponential with them."""
_TURN_CYCLES = 40
"""What a vector of keys takes to add up, read where they lie."""


def estimate(plan: AttentionPlan, machine: Machine) -> Estimate:
    """Predict the time."""
    work = plan.work
    share = balance(plan.chunks, machine)
    size = work.itemsize / 4
    part = _computed(plan)
    arithmetic = part * _fma_units(plan) * size / (machine.fma_f32_per_s * share)
    scores = part * work.scores.batches * work.queries * plan.row_elements
    softmax = scores * (_SOFTMAX_UNITS + _score_units(plan))
    around = epilogue_units(work.values) + strided_units(work.values, plan.lanes)
    scalar = (softmax + around + _scratch_units(plan)) * size / (machine.scalar_per_s * share)
    moved = sum(size_bytes(term) for term in (*work.bodies, *program.operands_of(*work.bodies)))
    seconds = max(arithmetic + scalar, machine.transfer_s(moved))
    overhead = machine.launch_s + (machine.sync_s if plan.chunks > 1 else 0.0)
    return Estimate(overhead + seconds, work.scores.flops + work.values.flops + softmax + around, moved)


def _computed(plan: AttentionPlan) -> float:
    """Return the part of the scores that is computed: panels that no query of a block sees are left out."""
    work, (least, most) = plan.work, plan.work.band
    if not plan.skips:
        return 1.0
    total = 0
    for start in range(0, work.queries, plan.block_rows):
        end = min(start + plan.block_rows, work.queries)
        seen = work.keys if most is None else min(work.keys, max(1, end + most))
        before = 0 if least is None else max(0, min(start + least, seen - 1)) // plan.key_width * plan.key_width
        total += (end - start) * (seen - before)
    return total / (work.queries * work.keys)


def _fma_units(plan: AttentionPlan) -> float:
    """Return multiply-adds of float32 that both products are worth, those counted that lanes and latencies waste."""
    work, lanes = plan.work, plan.lanes
    products = tile_cycles(work.queries, plan.value_tile) * plan.value_panels * lanes * work.keys
    panels = plan.value_panels
    if plan.keys_in_place:
        cycles = work.scores.depth * (lanes + 1) / (2 * lanes) + _TURN_CYCLES
        products += work.queries * plan.key_panels * cycles * 2 * lanes
    else:
        products += tile_cycles(work.queries, plan.key_tile) * plan.key_panels * lanes * work.scores.depth
        panels += plan.key_panels
    return work.scores.batches * (products + plan.tiling.tiles * panels * TILE_CYCLES * 2 * lanes)


def _score_units(plan: AttentionPlan) -> float:
    """Return what a score takes beside its product."""
    product = plan.work.scores.product
    return max(0.0, cost_of(plan.work.score) - cost_of(product))


def _scratch_units(plan: AttentionPlan) -> float:
    """Return what packing takes."""
    keys, values, lanes = plan.work.scores, plan.work.values, plan.lanes
    units = 0.0
    if not plan.keys_in_place:
        units += move_units(keys.right, ("j", "k"), lanes) * keys.columns * keys.depth * plan.row_parts
    if not plan.values_in_place:
        units += move_units(values.right, ("j", "k"), lanes) * values.columns * values.depth * plan.row_parts
    if not plan.queries_in_place:
        units += move_units(keys.left, ("k",), lanes) * keys.rows * keys.depth
    return units * keys.batches
