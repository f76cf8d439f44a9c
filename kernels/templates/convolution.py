"""The template of one `window_dot`: an implicit matrix product of weights with the windows of an image.

Rows are output channels, lanes the pixels of one image in row-major order, the depth runs over input channels and
window offsets. Windows are packed by each chunk as it needs them; groups are batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from frittata.egraph import shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import gemm_kernel, window_packing
from frittata.kernels.contractions import Contraction, Side, only_product, split_index
from frittata.kernels.gemm_emitters import Code
from frittata.kernels.gemm_estimate import estimate
from frittata.kernels.gemm_kernel import sizes_of
from frittata.kernels.gemm_schedule import schedule
from frittata.kernels.lowered import LoweredKernel

_FEW_PIXELS = 256
"""Up to here lanes along channels may be worth what packing and storing along them costs."""


@dataclass(eq=False)
class ConvolutionTemplate:
    """Takes bodies that are point-wise in one convolution, whose operands are point-wise in buffers."""

    name: str
    turned: bool
    """Whether lanes run along output channels instead of pixels: for images of few pixels."""
    in_place: bool = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of the register tiles, of packing windows and of the epilogue; None for other bodies."""
        work = self._work(bodies)
        if work is None:
            return None
        windows = None if self.turned else window_packing.describe(work)
        if windows is None:
            return estimate(work, constants, machine)
        tile = schedule(sizes_of(work, constants)).tile
        return estimate(work, constants, machine, pack_units=windows.units(tile.lanes, tile.panels))

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write loops over panels of pixels and tiles of channels around vector code."""
        work = self._work(bodies)
        if work is None:
            raise LoweringError("the convolution template takes bodies that are point-wise in one window_dot")
        pack = None if self.turned else window_packing.pack_windows(work)
        return gemm_kernel.lower(name, work, constants, pack=pack or Code.pack_panel)

    def _work(self, bodies: tuple[Term, ...]) -> Contraction | None:
        work = describe(bodies)
        if work is None or not self.turned:
            return work
        return work.turned() if work.columns <= _FEW_PIXELS else None


CONVOLUTION = ConvolutionTemplate("convolution", turned=False)
CHANNELS = ConvolutionTemplate("channels", turned=True)


@lru_cache(maxsize=4096)
def describe(bodies: tuple[Term, ...]) -> Contraction | None:
    """Name the axes of a convolution as those of a contraction."""
    product = only_product(bodies, "window_dot")
    if product is None:
        return None
    image, weights = product.args
    source, channels, kernel, stride, padding, dilation, groups = product.attrs
    rank = len(kernel)
    shape = shapes.concrete(bodies[0].shape)
    spatial = window_extents(source[1:], kernel, stride, padding, dilation)
    axes = range(-rank, 0)
    channel_axis = -rank - 1
    batch = {axis: shape[axis] for axis in range(-len(shape), channel_axis)}
    batches = split_index("g", {**batch, channel_axis: groups})
    group = batches.pop(channel_axis)
    pixel = split_index("j", dict(zip(axes, spatial, strict=True)))
    inputs = source[0] // groups
    depth = split_index("k", {channel_axis: inputs, **dict(zip(axes, kernel, strict=True))})
    channel = group * (channels // groups) + var("i", channels // groups)
    at = {axis: pixel[axis] * stride[axis] + depth[axis] * dilation[axis] for axis in axes}
    return Contraction(
        bodies,
        product,
        shapes.size(tuple(batch.values())) * groups,
        channels // groups,
        shapes.size(spatial),
        inputs * shapes.size(kernel),
        Side(weights, {**depth, channel_axis - 1: channel}),
        Side(padded(image, source, padding), {**batches, channel_axis: group * inputs + depth[channel_axis], **at}),
        {**batches, channel_axis: channel, **pixel},
    )


def padded(image: Term, source: tuple[int, ...], padding: tuple[int, ...]) -> Term:
    """Return an image with a margin of zeros: image -> where(inside, image at the shifted index, 0)."""
    rank = len(padding)
    inside: Term | None = None
    given = (*image.shape[: -rank - 1], *source)
    wide = list(given)
    indices = [var(i - len(given), n) for i, n in enumerate(given)]
    for axis, margin in zip(range(-rank, 0), padding, strict=True):
        if not margin:
            continue
        wide[axis] = source[axis] + 2 * margin
        indices[axis] = Affine(-margin) + var(axis, wide[axis])
        place = registry.element("iota", axis=axis, extent=wide[axis], dtype="i64")
        for op, limit in (("ge", margin), ("lt", margin + source[axis])):
            test = registry.element(op, place, registry.element("const", value=Scalar.of(limit, "i64")))
            inside = test if inside is None else registry.element("and", inside, test)
    if inside is None:
        return image
    shifted = registry.element("reindex", image, map=IndexMap(tuple(given), tuple(wide), tuple(indices)))
    zero = registry.element("const", value=Scalar.of(0, image.dtype))
    return registry.element("where", inside, shifted, zero)
