"""The template of one `winograd_dot`: transforms and products of matrices fused, tile block by tile block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from llvmlite import ir

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.ops.winograd import KERNEL, TRANSFORMS
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels import source
from frittata.kernels.contractions import apart_beside, leaves_beside, loads_of, packer, structure
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import Array, LoweredKernel, PackedConstant, Scratch, addresses
from frittata.kernels.packing import aligned_zeros, fill_panels
from frittata.kernels.processor import processor
from frittata.kernels.roofline import balance
from frittata.kernels.units import apart, gather_units, operator_cost
from frittata.kernels.winograd import TiledConvolution, TiledPlan, describe, plan
from frittata.kernels.winograd_emitter import TiledCode

_SLOT = 0.82
"""What a slot takes of the time of a multiply-add in a contraction, where it includes some of what surrounds it."""


class WinogradTemplate:
    """Takes bodies that are point-wise in one convolution by tiles, with weights known before run time."""

    name = "winograd"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of products and transforms, and of what the bodies and the image compute; else None."""
        found = _plan(bodies, constants)
        return _estimate(found, machine) if found is not None else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write loops over blocks of tiles and panels of channels around vector code."""
        found = _plan(bodies, constants)
        if found is None:
            raise LoweringError("the winograd template takes tiled convolutions with weights that are known")
        return _lower(name, found)


WINOGRAD = WinogradTemplate()


def _plan(bodies: tuple[Term, ...], constants: frozenset[str]) -> TiledPlan | None:
    work = describe(bodies)
    return plan(work) if work is not None and work.weights.is_constant(constants) else None


# ---- the kernel ------------------------------------------------------------------------------------------------------


def _lower(name: str, plan: TiledPlan) -> LoweredKernel:
    work = plan.work
    operands = tuple(program.operands_of(*work.bodies))
    arguments = addresses(work.bodies, leaves_beside(work.product, (*work.bodies, work.image)))
    scratch = Scratch(plan.scratch_bytes)
    setup = [
        f"weights = table[{len(arguments)}]",
        f"image = table[{len(arguments) + 1}] + chunk*{scratch.stride_bytes}",
        f"sums = image + {plan.image_bytes}",
    ]
    arguments += [_packed(plan, operands), scratch]
    code = TiledCode(plan, operands)
    namespace = {
        "fill": make_tile_intrinsic("fill", code.fill, 4),
        "multiply": make_tile_intrinsic("multiply", code.multiply, 5),
        "finish": make_tile_intrinsic("finish", code.finish, 5),
    }
    text = source.function(name, [*source.comment(work.bodies), f"# {plan}"], [*setup, *_loops(plan)])
    return LoweredKernel(name, text, namespace, plan.chunks, tuple(arguments), f"{structure(work.bodies)}\n{plan}")


def _loops(plan: TiledPlan) -> Iterator[str]:
    work, indent = plan.work, source.INDENT
    item, planes, rows = work.itemsize, work.planes, plan.rows
    per_image = work.line_tiles * work.pixel_tiles
    parts, part_bytes = plan.fetched_lines[1], plan.depth * plan.width * item
    place = f"t // {per_image}, t % {per_image} // {work.pixel_tiles}, t % {work.pixel_tiles}"
    yield f"tile_part, panel_part = chunk // {plan.panel_parts}, chunk % {plan.panel_parts}"
    yield f"low, high = tile_part*{work.tiles} // {plan.tile_parts}, (tile_part + 1)*{work.tiles} // {plan.tile_parts}"
    yield f"for first in range(low, high, {plan.block}):"
    yield f"{indent}last = min(first + {plan.block}, high)"
    yield f"{indent}count = (last - first + {rows - 1}) // {rows}"
    yield f"{indent}for s in range(count*{rows}):"
    yield f"{indent * 2}t = min(first + s, last - 1)"
    yield f"{indent * 2}fill(table, {place}, image + s*{plan.image_row * item})"
    yield (
        f"{indent}for p in range(panel_part*{plan.panels} // {plan.panel_parts}, "
        f"(panel_part + 1)*{plan.panels} // {plan.panel_parts}):"
    )
    yield f"{indent * 2}for q in range({planes}):"
    yield f"{indent * 3}for d in range(0, {work.inputs}, {plan.depth}):"
    yield f"{indent * 4}panel = weights + (p*{planes} + q)*{plan.panel_bytes} + d*{plan.width * item}"
    yield f"{indent * 4}for r in range(count):"
    yield (
        f"{indent * 5}multiply(table, "
        f"image + q*{plan.image_plane * item} + r*{rows * plan.image_row * item} + d*{item}, panel, "
        f"sums + q*{plan.result_plane * item} + r*{rows * plan.width * item}, "
        f"panel + {part_bytes} + r % {parts}*{part_bytes // parts}, d)"
    )
    yield f"{indent * 2}for t in range(first, last):"
    yield f"{indent * 3}finish(table, {place}, p*{plan.width}, sums + (t - first)*{plan.width * item})"


def _packed(plan: TiledPlan, operands: tuple[Term, ...]) -> PackedConstant:
    """Return the transformed weights, computed in float64 and rounded once.

    Shapes: (panels, planes, inputs, channels of a panel).
    """
    work, side = plan.work, plan.work.weights
    extents = {"o": work.outputs, "c": work.inputs, "dy": KERNEL, "dx": KERNEL}
    compute, dtype = packer(side, extents), dtypes.to_numpy(work.dtype)
    matrix = np.array(TRANSFORMS[work.tile].weights)

    def pack(*arrays: Array) -> Array:
        taps = compute(*arrays).reshape(work.outputs, work.inputs, KERNEL**2)
        planes = np.kron(matrix, matrix) @ taps.transpose(1, 2, 0).astype(np.float64)
        out = aligned_zeros((plan.panels, work.planes, work.inputs, plan.width), dtype)
        for plane in range(work.planes):
            fill_panels(out[:, plane], planes[:, plane])
        return out

    leaves = tuple(program.operands_of(side.element))
    built = registry.make("build", "tensor", (side.element,), (side.element.shape,))
    layout = f"tiles of {work.tile}: {extents} by {plan.width} {work.dtype}"
    key = "\n".join([layout, *source.comment((built,), ("side",))])
    return PackedConstant(tuple(map(operands.index, leaves)), pack, key)


# ---- what it costs ---------------------------------------------------------------------------------------------------


def _estimate(plan: TiledPlan, machine: Machine) -> Estimate:
    work = plan.work
    slots = _SLOT * plan.slots * (processor().width // 4) / machine.fma_f32_per_s
    units = (_image_units(plan) + _body_units(work) + _gathered_units(plan)) * work.itemsize / 4
    moved = float(sum(map(size_bytes, (*work.bodies, *program.operands_of(*work.bodies)))))
    transformed = float(work.planes * work.inputs * plan.panels * plan.width * work.itemsize)
    traffic = machine.transfer_s(moved + transformed, transformed)
    seconds = max((slots + units / machine.scalar_per_s) / balance(plan.chunks, machine), traffic)
    overhead = machine.launch_s + (machine.sync_s if plan.chunks > 1 else 0.0)
    return Estimate(overhead + seconds, work.flops + _body_units(work), moved)


def _image_units(plan: TiledPlan) -> float:
    """Return what the image takes beside plain loads: its values are computed for each tile that depends on them."""
    work = plan.work
    values = IndexValues(ir.IRBuilder(), {}, Along("c", plan.lanes, plan.lanes))
    gathered = apart(values, (offset for _, offset in loads_of(work.image, index=work.at)))
    each = _cost(work.image) - registry.get("load", "element").cost + gathered * gather_units(plan.lanes)
    return each * work.tiles * work.planes * work.inputs * plan.panel_parts


def _body_units(work: TiledConvolution) -> float:
    cost = _cost(*(body.args[0] for body in work.bodies)) - _cost(work.product)
    return max(0.0, cost) * shapes.size(work.bodies[0].shape)


def _gathered_units(plan: TiledPlan) -> float:
    """Return what loads of the bodies take beside plain ones, where channels are apart."""
    work = plan.work
    values = IndexValues(ir.IRBuilder(), {}, Along("o", plan.lanes, plan.lanes))
    apart = apart_beside(work.product, work.bodies, work.place, values)
    return gather_units(plan.lanes) * apart * shapes.size(work.bodies[0].shape)


def _cost(*elements: Term) -> float:
    return sum(operator_cost(term) for term in terms.walk(*elements) if term.sort == "element")
