"""Padding, joining, pools, interpolation, transposed convolution, norms: what torch computes, imported and compiled."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_cases import Forward, assert_compiled, assert_imported, assert_same, drawn, module_of

import frittata as ft
from frittata.egraph import shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module

aten = torch.ops.aten
ROW, IMAGE, VOLUME = drawn(2, 4, 11), drawn(2, 4, 7, 9), drawn(1, 4, 5, 6, 7)
HOLED = IMAGE.clone()
HOLED[0, 0, 2, 3], HOLED[1, 1, 3, 3], HOLED[1, 2, 0, 0] = torch.nan, torch.inf, -torch.inf

FUNCTIONS: dict[str, tuple[Forward, Tensor]] = {
    "max pools": (
        lambda x: (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, (2, 3), 1, (1, 1), ceil_mode=True),
            F.max_pool2d(x, 3, 3, 1, ceil_mode=True),
        ),
        HOLED,
    ),
    "max pools with gaps": (
        lambda x: (F.max_pool2d(x, 2, 1, 1, 2), F.max_pool2d(x, 3, 2, 1, (1, 2), ceil_mode=True)),
        HOLED,
    ),
    "average pools": (
        lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, divisor_override=-3)),
        HOLED,
    ),
    "average pools that count": (
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, (2, 3), (3, 1), (1, 1), count_include_pad=False),
            F.avg_pool2d(x, 4, 3, 0, ceil_mode=True),
        ),
        HOLED,
    ),
    "pools of one axis": (lambda x: (F.max_pool1d(x, 3, 2, 1), F.avg_pool1d(x, 3, 2, 1)), ROW),
    "pools of three axes": (lambda x: (F.max_pool3d(x, 3, 2, 1), F.avg_pool3d(x, 2, 2, 1)), VOLUME),
    "pools without batch": (lambda x: (F.max_pool2d(x[0], 3, 2), F.avg_pool2d(x[0], 2)), IMAGE),
    "adaptive pools": (
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (1, 3)),
            F.adaptive_avg_pool2d(x, (7, 3)),
            F.adaptive_max_pool2d(x, 1),
            F.adaptive_max_pool2d(x, (7, 3)),
        ),
        HOLED,
    ),
    "adaptive pools, uneven": (
        lambda x: (
            F.adaptive_avg_pool2d(x, (3, 4)),
            F.adaptive_avg_pool2d(x, (10, 13)),
            F.adaptive_max_pool2d(x, (3, 4)),
            F.adaptive_avg_pool2d(x, (None, 2)),
        ),
        HOLED,
    ),
    "adaptive pools of other ranks": (lambda x: (F.adaptive_avg_pool1d(x, 4), F.adaptive_max_pool1d(x, 3)), ROW),
    "padding": (
        lambda x: (
            F.pad(x, (1, 2)),
            F.pad(x, (1, -1, 0, 3)),
            F.pad(x, (0, 0, 0, 0, 1, 1), value=2.5),
            F.pad(x, (0, 0)),
        ),
        HOLED,
    ),
    "borders": (
        lambda x: [F.pad(x, (2, 1, 1, 3), mode=mode) for mode in ("reflect", "replicate", "circular")],
        HOLED,
    ),
    "rings of what is left": (
        lambda x: [F.pad(x, pads, mode="circular") for pads in ((-1, 2), (2, -1), (-1, -1), (11, 0))],
        ROW,
    ),
    "borders of one side": (
        lambda x: [F.pad(x, pads, mode=mode) for mode in ("reflect", "replicate") for pads in ((2, 0), (0, 1))],
        ROW,
    ),
    "joining": (
        lambda x: (
            torch.cat([x, x[:, :1], x], 1),
            torch.stack([x, x]),
            torch.stack([x, x + 1], -1),
            torch.hstack([x, x]),
            torch.vstack([x, x]),
            torch.cat([x, x.long()], 2),
        ),
        IMAGE,
    ),
    "joining of few axes": (
        lambda x: [join([part, part + 1]) for part in (x, x[0], x[0, 0]) for join in (torch.hstack, torch.vstack)],
        IMAGE[0, 0],
    ),
    "moving": (
        lambda x: (x.flip(1, 3), x.roll(2, 1), x.roll((1, -2), (0, 2)), x.roll(5), x.fliplr(), x.flipud()),
        HOLED,
    ),
    "rotating": (lambda x: [torch.rot90(x, k, axes) for k in range(4) for axes in ((2, 3), (1, 2))], IMAGE),
    "windows": (
        lambda x: (
            x.unfold(2, 3, 2),
            x.unfold(0, 2, 1),
            x[0, 0, 0, 0].unfold(0, 1, 1),
            F.unfold(x, 3, padding=1, stride=2),
            F.unfold(x[0], 2),
        ),
        IMAGE,
    ),
    "repeating": (
        lambda x: (x.repeat_interleave(3, 1), x.repeat_interleave(2), x.tile(2, 3), x.tile(2, 1, 1, 1, 1)),
        ROW,
    ),
    "shuffling": (
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[:, :, :6, :8], 2), F.channel_shuffle(x, 2)),
        IMAGE,
    ),
    "interpolation of other ranks": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="linear"),
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, 17),
            F.interpolate(x, scale_factor=1.05),
            aten.upsample_nearest1d(x, [9]),
            aten._upsample_nearest_exact1d(x, [9], 1.3),
            aten.upsample_linear1d(x, [9], False),
            aten.upsample_linear1d(x, [9], False, 1.3),
            aten.upsample_linear1d(x, [9], True, 1.3),
        ),
        ROW,
    ),
    "trilinear": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="trilinear"),
            F.interpolate(x, (3, 7, 14)),
            F.interpolate(x, scale_factor=1.1),
        ),
        VOLUME,
    ),
    "same padding, uneven": (
        lambda x: (
            F.conv2d(x, torch.ones(3, 4, 2, 4, dtype=torch.float64), padding="same"),
            F.conv1d(x[:, :, 0], torch.ones(3, 4, 2, dtype=torch.float64), padding="same", dilation=3),
        ),
        IMAGE,
    ),
    "transposed convolution by hand": (
        lambda x: F.conv_transpose2d(x, torch.arange(72, dtype=torch.float64).view(4, 2, 3, 3), stride=2, dilation=2),
        IMAGE,
    ),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_means_what_it_means_in_torch(name: str) -> None:
    function, x = FUNCTIONS[name]
    assert_imported(function, x)


def test_a_mean_over_more_than_there_is_takes_what_there_is() -> None:
    far, mean = 90_000, partial(F.avg_pool2d, ceil_mode=True)  # numpy has no memory for windows of that extent
    assert_imported(lambda x: (mean(x, far), mean(x, (far, 3), (far, 2), (2, 1))), IMAGE)
    assert_imported(lambda x: (mean(x, far, far, 3, count_include_pad=False), mean(x, far, divisor_override=5)), IMAGE)


MODES = ("nearest", "nearest-exact", "bilinear")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(1, 1), (3, 9), (7, 18), (8, 5), (13, 14), (14, 33), (21, 27), (39, 2)])
def test_interpolation_to_a_size_reads_the_places_that_torch_reads(mode: str, size: tuple[int, int]) -> None:
    assert_imported(lambda x: F.interpolate(x, size=size, mode=mode), IMAGE)
    if mode == "bilinear":
        assert_imported(lambda x: F.interpolate(x, size=size, mode=mode, align_corners=True), IMAGE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [2, 3, 0.5, 1.5, 1.3, (2.0, 0.7), (1.1, 2.1)])
def test_interpolation_by_a_scale_goes_in_its_own_steps(mode: str, scale: Any) -> None:
    assert_imported(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), IMAGE, tolerance=1e-9)
    assert_imported(
        lambda x: F.interpolate(x, scale_factor=scale, mode=mode, recompute_scale_factor=True), IMAGE, tolerance=1e-9
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolation_without_aliases(mode: str) -> None:
    read = partial(F.interpolate, mode=mode, antialias=True)
    assert_imported(lambda x: [read(x, size) for size in ((3, 9), (13, 2), (7, 18))], IMAGE)
    assert_imported(lambda x: [read(x, scale_factor=scale) for scale in ((0.5, 1.05), 1.7)], IMAGE, tolerance=1e-9)
    assert "host" not in assert_compiled(lambda x: read(x, (5, 4)), IMAGE)
    for size, corners in ((1, False), (5, True)):
        with pytest.raises(UnsupportedOpError, match="antialias"):
            assert_imported(lambda x, size=size, at=corners: read(x, size, align_corners=at), drawn(1, 1, 40, 40))


@pytest.mark.parametrize("extent", [1, 2, 5, 7, 14, 49])
def test_nearest_neighbours_in_many_steps(extent: int) -> None:
    x = drawn(1, 1, extent)
    sizes = (1, 2, 3, 10, 13, 20, 49, 98, 147)
    assert_imported(lambda x: [F.interpolate(x, size=size) for size in sizes], x)


TRANSPOSED = [  # inputs, outputs, kernel, stride, padding, output padding, groups, dilation
    (4, 6, 3, 1, 0, 0, 1, 1),
    (4, 6, 4, 2, 1, 0, 1, 1),
    (4, 6, 2, 2, 0, 0, 1, 1),
    (4, 6, 3, 2, 1, 1, 2, 1),
    (4, 4, 3, 2, 1, 1, 4, 1),
    (4, 6, 3, 2, 1, 0, 1, 2),
    (4, 6, 1, 2, 0, 1, 1, 1),
    (4, 6, 5, 3, 2, 0, 2, 1),
    (4, 6, 3, 2, 2, 1, 1, 3),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolution_is_that_of_torch(case: tuple[int, ...]) -> None:
    inputs, outputs, kernel, stride, padding, extra, groups, dilation = case
    torch.manual_seed(0)
    more = (kernel, stride, padding, extra, groups, True, dilation)
    assert_imported(nn.ConvTranspose2d(inputs, outputs, *more), IMAGE)
    assert_imported(nn.ConvTranspose1d(inputs, outputs, *more), ROW[0])
    assert_imported(nn.ConvTranspose3d(inputs, outputs, *more), VOLUME)


def test_infinite_weights_of_a_transposed_convolution_touch_what_they_reach() -> None:
    layer = nn.ConvTranspose2d(4, 2, 3, 2).double()
    with torch.no_grad():
        layer.weight[1, 0, 1, 2] = torch.inf
        layer.weight[2, 1, 0, 0] = torch.nan
    assert_imported(layer, IMAGE.abs() + 1)


def trained(norm: nn.Module) -> nn.Module:
    """Draw weights and statistics."""
    for name, value in norm.state_dict().items():
        if value.dtype.is_floating_point:
            value.copy_(torch.rand_like(value) + (0.5 if name.endswith("var") else 0))
    return norm


NORMS: dict[str, tuple[Any, Tensor]] = {
    "group": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "group of vectors": (lambda: nn.GroupNorm(4, 8), drawn(3, 8)),
    "group without weights": (lambda: nn.GroupNorm(2, 4, affine=False), ROW),
    "instance": (lambda: nn.InstanceNorm2d(4), IMAGE),
    "instance with weights": (lambda: nn.InstanceNorm1d(4, affine=True), ROW),
    "instance with statistics": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGE),
    "root mean square": (lambda: nn.RMSNorm(9), IMAGE),
    "root mean square of two axes": (lambda: nn.RMSNorm([7, 9], eps=1e-3), IMAGE),
    "batch, three axes": (lambda: nn.BatchNorm3d(4), VOLUME),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalization_is_that_of_torch(name: str) -> None:
    make, x = NORMS[name]
    torch.manual_seed(0)
    assert_imported(trained(make()), x)


def test_a_root_mean_square_without_an_epsilon_has_that_of_its_dtype() -> None:
    assert_imported(lambda x: F.rms_norm(x.float() * 1e-4, (9,)), IMAGE, tolerance=1e-6)


FUSED: dict[str, tuple[Forward | nn.Module, list[str]]] = {
    "max pool": (lambda x: F.relu(F.max_pool2d(F.relu(x) + 1, 3, 2, 1) - 0.1), ["stencil"]),
    "pad": (lambda x: F.relu(F.pad(x * 2, (1, 2, 0, 1))) + 1, ["pointwise"]),
    "cat of channels": (lambda x: F.relu(torch.cat([x * 2, x + 1, x], 1)), ["pointwise"]),
    "cat of columns": (lambda x: F.relu(torch.cat([x * 2, x + 1], -1)), ["pointwise"]),
    "nearest": (lambda x: F.relu(F.interpolate(x + 1, scale_factor=(2, 1))), ["pointwise"]),
}


@pytest.mark.parametrize("name", FUSED)
def test_it_is_one_kernel_with_its_neighbours(name: str) -> None:
    function, templates = FUSED[name]
    assert assert_compiled(function, drawn(2, 4, 15, 17)) == templates


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_at_places_of_a_grid(mode: str, padding: str, corners: bool) -> None:
    """Places are computed once for all channels."""

    def sampled(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, mode, padding, corners)

    x, grid = drawn(2, 11, 5, 7), drawn(2, 3, 4, 2) * 0.8
    assert_imported(sampled, x, grid)
    imported = from_module(module_of(sampled), (x, grid))
    sizes = (shapes.size(term.shape) for term in imported.model.main.walk() if term.dtype == "i64")
    assert max(sizes) <= 2 * 3 * 4
    if (mode, padding, corners) == ("bilinear", "border", True):
        assert "host" not in assert_compiled(sampled, x, grid)


PLACES = [(math.nan, 0), (0, math.nan), (math.inf, 0.0), (-math.inf, 0), (1e20, 0), (-1e20, 0.3), (5, 5), (math.inf, 3)]


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_at_places_that_are_no_numbers_and_of_values_that_are_none(
    mode: str, padding: str, corners: bool
) -> None:
    halves = [(a / 5 * 2 - 1, b / 4 * 2 - 1) for a in range(-3, 9) for b in (-1, 2)]
    grid = torch.tensor(PLACES + [(0.3, y) for _, y in PLACES] + [(1, 1), (0.5, 0.5), (-1, -1), *halves])[None, None]
    whole = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(3))
    spoilt = whole.clone()
    spoilt[0, 0, 0, 0], spoilt[0, 1, 4, 3] = math.nan, math.inf

    def sampled(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, mode, padding, corners)

    imported = from_module(module_of(sampled), (whole, grid))
    compiled = ft.optimize(sampled, (whole, grid), machine=REFERENCE) if corners == (padding == "border") else None
    assert compiled is None or not compiled.report.externs
    for image in (whole, spoilt):
        expected = sampled(image, grid)
        assert_same(imported.model.interpret(image.numpy(), grid.numpy())[0], expected, 1e-5)
        if compiled is not None:
            assert_same(compiled(image, grid), expected, 1e-5)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("places", [(3, 4), (1, 5), (4, 1), (1, 1), (2, 1, 3)])
def test_grids_of_affine_maps(places: tuple[int, ...], corners: bool) -> None:
    """An axis of one place too, where torch's own decomposition makes a tensor that torch.export refuses."""
    theta = drawn(2, len(places), len(places) + 1)
    assert "host" not in assert_compiled(lambda t: F.affine_grid(t, [2, 5, *places], corners), theta)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_samples_in_space(mode: str, padding: str, corners: bool) -> None:
    """What torch makes of places that are no number is another thing than in a plane."""
    halves = [(a / 5 * 2 - 1, b / 4 * 2 - 1) for a in range(-3, 9) for b in (-1, 2)]
    places = torch.tensor([(*place, 0.2) for place in [*PLACES, *halves]] + [(0.1, *place) for place in PLACES])
    grid = torch.stack([places, places.flip(-1)])[:, None, None].double()
    volume = drawn(2, 3, 3, 5, 4)
    volume[0, 0, 0, 0, 0], volume[1, 1, 2, 4, 3] = math.nan, math.inf

    def sampled(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, mode, padding, corners)

    assert_imported(sampled, volume, grid)
    if (mode, padding, corners) == ("bilinear", "zeros", False):
        assert "host" not in assert_compiled(sampled, volume, grid)


def test_zeros_around_a_convolution_are_its_own_padding() -> None:
    assert len(assert_compiled(nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(4, 5, 3)), drawn(2, 4, 15, 17))) == 1


COMPILED: dict[str, Forward | nn.Module] = {
    "pools": lambda x: (F.max_pool2d(x, 2, 1, 1, 2), F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, (4, 5))),
    "counted pool": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "bilinear": lambda x: F.interpolate(x, size=(33, 41), mode="bilinear", align_corners=True) * 2,
    "bilinear by 2": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "borders": lambda x: (F.pad(x, (2, 1, 1, 0), mode="reflect"), x.flip(-1).roll(2, 1), F.pixel_shuffle(x, 2)),
    "transposed convolution": nn.Sequential(nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.ReLU()),
    "norms": nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.InstanceNorm2d(4), nn.RMSNorm(17)),
    "conv of a sequence": nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 5, 4, padding="same"), nn.MaxPool1d(3, 2)),
}


VOLUMES: dict[str, nn.Module] = {
    "down": nn.Sequential(nn.Conv3d(4, 6, 3, 2, 1), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 5, (1, 3, 2))),
    "dilated, with groups": nn.Sequential(nn.Conv3d(4, 4, 3, dilation=2, padding=2), nn.Conv3d(4, 6, 3, groups=2)),
    "pools": nn.Sequential(nn.Conv3d(4, 5, 1), nn.MaxPool3d(2, 2, 1), nn.Conv3d(5, 3, 2), nn.AvgPool3d(2, 1)),
    "up": nn.Sequential(nn.Conv3d(4, 5, 3, padding=1), nn.LeakyReLU(0.1), nn.ConvTranspose3d(5, 3, 2, 2), nn.SiLU()),
    "norms": nn.Sequential(nn.Conv3d(4, 6, 3, padding=1), nn.InstanceNorm3d(6), nn.GELU(), nn.Flatten(), nn.Softmax(1)),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_compile(name: str) -> None:
    torch.manual_seed(0)
    assert_compiled(VOLUMES[name], drawn(2, 4, 5, 6, 7))


def test_volumes_are_computed_by_tiles_with_the_planes_of_a_window_as_channels() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv3d(16, 24, 3, padding=(0, 1, 1)), nn.ReLU(), nn.Conv3d(24, 16, (2, 3, 3)))
    assert "winograd" in assert_compiled(layers, drawn(2, 16, 5, 13, 17))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", COMPILED)
def test_it_compiles(name: str) -> None:
    torch.manual_seed(0)
    assert_compiled(COMPILED[name], drawn(2, 4, 15, 17))


def test_nan_and_infinities_go_through_compiled_pools_as_in_torch() -> None:
    assert_compiled(lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1), F.adaptive_max_pool2d(x, 3)), HOLED)


def test_a_ring_is_no_shorter_than_its_border() -> None:
    """Where negative numbers leave less, torch raises or reads what nothing was written to."""
    for pads in ((-2, 6), (6, -2), (-7, 3)):
        with pytest.raises(ModelError, match="circular padding by"):
            from_module(module_of(lambda x, pads=pads: F.pad(x, pads, mode="circular")), (torch.zeros(1, 2, 7),))


def places_of_maxima(x: Tensor) -> Any:
    return (
        F.max_pool2d(x, 2, return_indices=True),
        F.max_pool2d(x[0], 3, (2, 1), 1, (1, 2), ceil_mode=True, return_indices=True),
        F.max_pool1d(x[0], 3, 2, 1, return_indices=True),
        F.max_pool3d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), [2, 2], output_size=x.shape[-2:]),
    )


def test_places_of_maxima_are_those_of_torch() -> None:
    """The first of equal ones, and the last NaN."""
    x = torch.randint(-2, 3, (2, 4, 7, 9)).double()
    x[0, 0, :4, :4], x[0, 1, 1:4, 1:4], x[1, 2, 0, 0] = -torch.inf, torch.nan, torch.nan
    assert_imported(places_of_maxima, x)
    assert_compiled(places_of_maxima, x)
    halves, integers = x.half(), x.nan_to_num(3).clamp(-9, 9).int()
    for narrow in (halves, integers):
        fast = ft.optimize(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (narrow,), machine=REFERENCE)
        assert not fast.report.externs
        assert_same(fast(narrow), F.max_pool2d(narrow, 3, 2, 1, return_indices=True), 0)


@pytest.mark.parametrize("sizes", [(3, 4), (7, 2), (1, 1), (4, 13), (2, 3, 4)])
def test_maxima_of_adaptive_pools_stand_where_torch_finds_them(sizes: tuple[int, ...]) -> None:
    """The first of equal ones, the last of NaN, and the first where there is nothing but the lowest."""
    x = torch.randint(-2, 2, (2, 3, 7, 9), generator=torch.Generator().manual_seed(0)).to(torch.float64)
    x[0, 0, 2, 3] = x[0, 0, 2, 6] = x[0, 0, 5, 1] = torch.nan
    x[1, 1], x[1, 2, 3] = -torch.inf, torch.inf
    pool: Any = F.adaptive_max_pool2d if len(sizes) == 2 else F.adaptive_max_pool3d
    assert_imported(lambda x: pool(x, sizes, return_indices=True), x)


def test_terms_that_do_not_fit_are_refused() -> None:
    from frittata.egraph.ops.registry import tensor
    from frittata.egraph.terms import Scalar

    x = tensor("input", name="x", shape=(2, 5), dtype="f32")
    wide = tensor("input", name="y", shape=(2, 5), dtype="f64")
    zero = Scalar.of(0, "f32")
    pool = {"kernel": (3,), "stride": (1,), "padding": (2,)}
    for make in (
        lambda: tensor("pad", x, low=(1,), high=(1,), value=zero),
        lambda: tensor("pad", x, low=(0, -3), high=(0, -2), value=zero),
        lambda: tensor("pad", wide, low=(0, 0), high=(0, 1), value=zero),
        lambda: tensor("concat", x, wide, axis=-1),
        lambda: tensor("resample", x, axis=-1, length=0),
        lambda: tensor("stuff", x, steps=(1, 0)),
        lambda: tensor("windows", x, kernel=(6,), stride=(1,), dilation=(1,)),
        lambda: tensor("max_pool", x, dilation=(1,), **pool),
        lambda: tensor("avg_pool", x, **pool),
    ):
        with pytest.raises(ModelError):
            make()


def test_the_interpreter_reads_what_numpy_reads() -> None:
    from frittata.egraph.interpret import evaluate
    from frittata.egraph.ops.registry import tensor

    x = np.arange(10.0).reshape(2, 5)
    leaf = tensor("input", name="x", shape=(2, 5), dtype="f64")
    resampled = tensor("resample", leaf, axis=-1, length=7, start=-2, step=3, divisor=2)
    stuffed = tensor("stuff", leaf, steps=(1, 3))
    a, b = evaluate((resampled, stuffed), {"x": x})
    np.testing.assert_array_equal(a, x[:, [0, 0, 2, 3, 4, 4, 4]])
    np.testing.assert_array_equal(b[:, ::3], x)
    assert b.shape == (2, 15) and (np.delete(b, np.s_[::3], 1) == 0).all()
