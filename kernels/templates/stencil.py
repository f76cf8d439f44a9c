"""The template of sliding windows over few channels: depthwise and grouped convolution, the first layers of networks.

Nothing is packed for a matrix product: lanes run along the pixels of a line, and every window offset reads vectors of
the image itself, copied with its margins into scratch memory that stays in cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import apart_beside, leaves_beside, loads_of, packer, structure
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import Array, LoweredKernel, PackedConstant, Scratch, addresses
from frittata.kernels.packing import aligned_zeros
from frittata.kernels.roofline import with_traffic
from frittata.kernels.stencil_emitter import StencilCode
from frittata.kernels.stencil_schedule import StencilPlan, efficiency, plan
from frittata.kernels.stencils import describe
from frittata.kernels.units import apart, gather_units, operator_units

_FILL_UNITS = 1.5
_SHARE = 0.95
"""The part of the bound on a tile that its steps reach."""
_TILE_STEPS = 30.0
"""What a tile takes besides, in vector operations."""


class StencilTemplate:
    """Takes bodies that are point-wise in one stencil, with weights known before run time."""

    name = "stencil"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of tiles, of filling scratch memory and of the epilogue; None for other bodies."""
        found = _plan(bodies, constants)
        return _estimate(found, machine) if found is not None else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write loops over bands and tiles around vector code."""
        found = _plan(bodies, constants)
        if found is None:
            raise LoweringError("the stencil template takes small windows with weights that are known")
        return _lower(name, found)


STENCIL = StencilTemplate()


def _plan(bodies: tuple[Term, ...], constants: frozenset[str]) -> StencilPlan | None:
    work = describe(bodies)
    if work is None or (work.weights is not None and not work.weights.is_constant(constants)):
        return None
    return plan(work)


# ---- the kernel ------------------------------------------------------------------------------------------------------


def _lower(name: str, plan: StencilPlan) -> LoweredKernel:
    work = plan.work
    operands = tuple(program.operands_of(*work.bodies))
    arguments = addresses(work.bodies, leaves_beside(work.hole, (*work.bodies, work.image)))
    scratch = Scratch(plan.scratch_bytes)
    setup = [f"scratch = table[{len(arguments)}] + chunk*{scratch.stride_bytes}", "clear(table, scratch)"]
    arguments.append(scratch)
    weights = "0"
    if work.weights is not None:
        setup.insert(0, f"weights = table[{len(arguments)}]")
        arguments.append(_packed(plan, operands))
        tile = "n" if work.groups == 1 else f"(g % {work.groups}*{plan.output_tiles} + n)"
        weights = f"weights + {tile}*{plan.weight_bytes}"
    code = StencilCode(plan, operands)
    namespace = {
        "clear": make_tile_intrinsic("clear", code.clear, 1),
        "fill": make_tile_intrinsic("fill", code.fill, 5),
        "tiles": make_tile_intrinsic("tiles", code.tiles, 6),
    }
    note = f"# tiles of {plan.outputs} channels x {plan.lines} lines x {plan.vectors * plan.lanes} pixels"
    text = source.function(name, [*source.comment(work.bodies), note], [*setup, *_loops(plan, weights)])
    return LoweredKernel(name, text, namespace, plan.chunks, tuple(arguments), f"{structure(work.bodies)}\n{plan.key}")


def _loops(plan: StencilPlan, weights: str) -> Iterator[str]:
    work, indent = plan.work, source.INDENT
    last, step = work.lines.result - plan.lines, work.lines.stride
    tasks, chunks = plan.tasks, plan.chunks
    yield f"for t in range(chunk*{tasks} // {chunks}, (chunk + 1)*{tasks} // {chunks}):"
    yield f"{indent}g, band = t // {plan.bands}, t % {plan.bands}"
    yield f"{indent}low, high = band*{plan.line_tiles} // {plan.bands}, (band + 1)*{plan.line_tiles} // {plan.bands}"
    yield f"{indent}first = min(low*{plan.lines}, {last})"
    yield f"{indent}lines = (min((high - 1)*{plan.lines}, {last}) - first)*{step} + {plan.tile_span}"
    yield f"{indent}for c in range({work.inputs}):"
    yield f"{indent * 2}for r in range(lines):"
    yield f"{indent * 3}fill(table, g, c, first*{step} + r, c*{plan.band_lines} + r, scratch)"
    yield f"{indent}for n in range({plan.output_tiles}):"
    yield f"{indent * 2}o = min(n*{plan.outputs}, {work.outputs - plan.outputs})"
    yield f"{indent * 2}for i in range(low, high):"
    yield f"{indent * 3}y = min(i*{plan.lines}, {last})"
    yield f"{indent * 3}tiles(table, g, o, y, (y - first)*{step}, {weights}, scratch)"


def _packed(plan: StencilPlan, operands: tuple[Term, ...]) -> PackedConstant:
    """Return the weights, tile by tile.

    Shapes: (groups, tiles, inputs, kernel height, kernel width, outputs of a tile).
    """
    work, side = plan.work, plan.work.weights
    assert side is not None
    lines, pixels = work.lines.kernel, work.pixels.kernel
    extents = {"h": work.groups, "c": work.inputs, "dy": lines, "dx": pixels, "o": work.outputs}
    compute, dtype = packer(side, extents), dtypes.to_numpy(work.dtype)

    def pack(*arrays: Array) -> Array:
        values = compute(*arrays)
        out = aligned_zeros((work.groups, plan.output_tiles, work.inputs, lines, pixels, plan.outputs), dtype)
        for tile in range(plan.output_tiles):
            first = min(tile * plan.outputs, work.outputs - plan.outputs)
            out[:, tile] = values[..., first : first + plan.outputs]
        return out

    leaves = tuple(program.operands_of(side.element))
    built = registry.make("build", "tensor", (side.element,), (side.element.shape,))
    key = "\n".join([f"windows {extents} by {plan.outputs} {work.dtype}", *source.comment((built,), ("side",))])
    return PackedConstant(tuple(map(operands.index, leaves)), pack, key)


# ---- what it costs ---------------------------------------------------------------------------------------------------


def _estimate(plan: StencilPlan, machine: Machine) -> Estimate:
    work = plan.work
    size = dtypes.itemsize(work.dtype) / 4
    steps = plan.steps / (_SHARE * efficiency(plan)) + plan.tiles * _TILE_STEPS
    tiles = steps * plan.lanes * size / machine.fma_f32_per_s
    scalar = (plan.filled * _fill_units(plan) + _epilogue_units(plan)) * size / machine.scalar_per_s
    return with_traffic(work.bodies, tiles + scalar, work.flops + _epilogue_units(plan), plan.chunks, machine)


def _fill_units(plan: StencilPlan) -> float:
    """Return what copying an element of the image into scratch memory takes, in additions."""
    work = plan.work
    values = IndexValues(ir.IRBuilder(), {}, Along("u", plan.lanes))
    loads = loads_of(work.image, index=work.at)
    gathered = apart(values, (offset for _, offset in loads if offset is not None))
    return _FILL_UNITS + _cost(work.image) + gathered * gather_units(plan.lanes)


def _epilogue_units(plan: StencilPlan) -> float:
    work = plan.work
    inside = _cost(work.hole)
    cost = max(0.0, _cost(*(body.args[0] for body in work.bodies)) - inside)
    values = IndexValues(ir.IRBuilder(), {}, Along("x", plan.lanes, plan.lanes))
    cost += gather_units(plan.lanes) * apart_beside(work.hole, work.bodies, work.place, values)
    return cost * shapes.size(work.bodies[0].shape)


def _cost(*elements: Term) -> float:
    return sum(operator_units(term) for term in terms.walk(*elements) if term.sort == "element")
