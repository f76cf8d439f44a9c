"""Operators of ONNX against its own reference, against ONNX Runtime where there is one, and against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper, parser
from onnx_models import RNG, Array, agrees, drawn, integers, ints, model_of, one

import frittata as ft
from frittata.egraph import shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.onnx.importer import from_onnx

NONE = np.zeros(0, np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, 1, -1, 0.5, 2.5, 1e30, 1e-20, -1e-5, 1e10, 0.999], np.float32)
IMAGE = drawn(2, 3, 5, 6)

LOOK_UPS: list[tuple[str, dict[str, Array], dict[str, Any]]] = [
    ("GatherND", {"x": drawn(3, 5, 7), "i": integers(-3, 3, 2, 4, 3)}, {}),
    ("GatherND", {"x": drawn(3, 5, 7), "i": integers(-3, 3, 4, 2)}, {}),
    ("GatherND", {"x": drawn(3, 5, 7), "i": ints(-2)}, {}),
    ("GatherND", {"x": drawn(3, 5, 7), "i": ints(-2, 4, 0)}, {}),
    ("GatherND", {"x": drawn(3, 5, 7), "i": integers(-5, 5, 3, 4, 1)}, {"batch_dims": 1}),
    ("GatherND", {"x": drawn(3, 5, 7, 4), "I": integers(-4, 4, 3, 5, 2, 2)}, {"batch_dims": 2}),
    ("ReverseSequence", {"x": drawn(6, 4, 2), "i": ints(3, 5, 1, 6)}, {}),
    ("ReverseSequence", {"x": drawn(4, 6), "I": ints(3, 5, 1, 6)}, {"batch_axis": 0, "time_axis": 1}),
    ("Compress", {"x": drawn(3, 7), "C": np.array([0, 1, 1, 0, 1], bool)}, {"axis": -1}),
    ("Compress", {"x": drawn(3, 7), "C": np.arange(20) % 3 > 0}, {}),
    ("EyeLike", {"x": drawn(3, 5)}, {"k": 1}),
    ("EyeLike", {"x": drawn(3, 5)}, {"k": -2, "dtype": onnx.TensorProto.INT64}),
]


@pytest.mark.parametrize(("name", "operands", "options"), LOOK_UPS)
def test_look_ups(name: str, operands: dict[str, Array], options: dict[str, Any]) -> None:
    agrees(one(name, operands, **options), operands)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_scatter_at_several_axes(reduction: str, axes: int) -> None:
    shape = (3, 5, 7)
    places = np.stack(np.unravel_index(RNG.permutation(int(np.prod(shape[:axes])))[:3], shape[:axes]), -1)
    places[0, 0] -= 3
    if reduction != "none":  # without one, places have to differ
        places = np.concatenate([places, places[:1]])
    operands = {"x": drawn(*shape), "i": places[None], "u": drawn(1, len(places), *shape[axes:])}
    agrees(one("ScatterND", operands, 18, reduction=reduction), operands, compiled=axes == 2)


def test_only_axes_of_one_value_are_dropped() -> None:
    operands = {"x": drawn(1, 3, 1), "A": ints(-1, 0)}
    agrees(one("Squeeze", operands), operands)
    with pytest.raises(ModelError, match=r"axes \[0, 1\] of f32\[1, 3, 1\] have several values"):
        from_onnx(one("Squeeze", operands | {"A": ints(0, 1)}))


def test_no_axes_to_drop_are_refused_where_some_could_be_meant() -> None:
    operands = {"x": drawn(2, 3), "A": ints()}
    agrees(one("Squeeze", operands), operands)
    known = helper.make_node("ConstantOfShape", ["S"], ["c"]), helper.make_node("Squeeze", ["c", "A"], ["y0"])
    folded = model_of(known, {}, {"S": ints(1, 3), "A": ints()}, 17)
    for model in (one("Squeeze", operands | {"x": drawn(1, 3)}), folded):
        with pytest.raises(ModelError, match="no axes: ONNX Runtime drops all of one value"):
            from_onnx(model)


@pytest.mark.parametrize("start", [-(2**63), -5])
def test_a_slice_backwards_begins_within_the_axis(start: int) -> None:
    table, ends = np.arange(8, dtype=np.float32).reshape(2, 4), {"S": ints(start), "E": ints(-(2**63)), "A": ints(1)}
    for x in ("x", "X"):
        operands = {x: table, **ends, "D": ints(-1)}
        model = one("Slice", operands)
        if x == "X":  # which is folded
            node = helper.make_node("Slice", ["c", *"SEAD"], ["y0"])
            kept = helper.make_node("Cast", ["X"], ["c"], to=onnx.TensorProto.INT64)
            model = model_of([kept, node], {}, operands, 17)
        found = from_onnx(model).model.interpret(*([table] if x == "x" else []))
        np.testing.assert_array_equal(found[0], [[0], [4]])


def test_the_scatter_of_old_is_that_of_elements() -> None:
    operands = {"x": drawn(3, 4), "i": ints(1, -2).reshape(1, 2), "u": drawn(1, 2)}

    def law(x: Array, i: Array, u: Array) -> Array:
        found = x.copy()
        found[i[0], [0, 1]] = u[0]
        return found

    agrees(one("Scatter", operands, 10), operands, law, compiled=True)


UPDATES = {"x": drawn(2, 3, 6, 4), "u": drawn(2, 3, 2, 4)}
WRITTEN: list[tuple[str, dict[str, Array], int, dict[str, Any]]] = [
    ("TensorScatter", UPDATES, 24, {}),
    ("TensorScatter", {**UPDATES, "i": ints(4, 1)}, 24, {"mode": "linear"}),
    ("TensorScatter", {**UPDATES, "i": ints(5, 1)}, 24, {"mode": "circular"}),
    ("TensorScatter", {"x": drawn(3, 6, 4), "u": drawn(3, 6, 2), "i": ints(1, 0, 2)}, 24, {"axis": -1}),
    (
        "MaxUnpool",
        {"x": drawn(1, 2, 2, 2), "i": ints(5, 7, 13, 15, 16, 19, 27, 30).reshape(1, 2, 2, 2)},
        11,
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
]


@pytest.mark.parametrize(("name", "operands", "opset", "options"), WRITTEN)
def test_what_is_written_in_places(name: str, operands: dict[str, Array], opset: int, options: dict[str, Any]) -> None:
    agrees(one(name, operands, opset, **options), operands, compiled=True)


@pytest.mark.parametrize(
    ("equation", "extents"),
    [
        ("bij , bjk", ((2, 3, 4), (2, 4, 5))),
        ("...ij,...kj->k...i", ((3, 5, 7), (3, 2, 7))),
        ("...ii->...i", ((2, 3, 3),)),
        ("ij->", ((4, 5),)),
        ("Ab,bC,C->CA", ((2, 3), (3, 4), (4,))),
    ],
)
def test_einsum(equation: str, extents: Sequence[tuple[int, ...]]) -> None:
    operands = {name: drawn(*shape) for name, shape in zip("xyz", extents, strict=False)}
    agrees(one("Einsum", operands, equation=equation), operands)


@pytest.mark.parametrize("name", ["Asinh", "Acosh", "Atanh"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_inverse_hyperbolic_functions(name: str, kind: Any) -> None:
    operands = {"x": np.concatenate([SPECIAL, drawn(20) * 0.3, drawn(20) * 30]).astype(kind)}
    with np.errstate(all="ignore"):
        agrees(one(name, operands), operands, compiled=kind is np.float32)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("y", ["y", "Y"])
def test_powers_of_integers(kind: Any, y: str) -> None:
    bases = np.array([0, 1, 2, -3, -1, -1, 7, 0], kind)
    for x, exponents in (
        (bases, ints(0, 5, 30, 3, 64, 65, 10, 70).astype(kind)),
        (np.array([[3, -2]], kind), ints(4)),
        (np.array([2, 9, 100, -4], kind), np.array([0.5, 1.5, 3, 3], np.float32)),
    ):
        operands = {"x": x, y: exponents}
        agrees(one("Pow", operands), operands)
    negative = {"x": np.array([1, 2, -1, -1], kind), y: np.array([-3, -1, -3, -2], kind)}
    agrees(one("Pow", negative), negative, lambda x, _: np.array([1, 0, -1, 1], kind))


def test_slopes_of_old_are_of_channels() -> None:
    operands = {"x": drawn(2, 3, 4, 3), "S": drawn(3)}
    law = {6: operands["S"].reshape(3, 1, 1), 7: operands["S"]}
    for opset, slope in law.items():
        agrees(one("PRelu", operands, opset), operands, lambda x, _, by=slope: np.where(x < 0, x * by, x))
    single = {"x": drawn(2, 3), "S": drawn(1)}
    agrees(one("PRelu", single, 6), single, lambda x, slope: np.where(x < 0, x * slope, x))


def test_masks_of_dropout_are_not_filled_before_they_were_said_to_be() -> None:
    assert from_onnx(one("Dropout", {"x": IMAGE}, 12, 2)).model.main.outputs[1].dtype == "bool"
    for opset in (7, 10):
        assert from_onnx(one("Dropout", {"x": IMAGE}, opset, ratio=0.3)).model.main.outputs[0].op == "input"
        with pytest.raises(UnsupportedOpError, match=r"Dropout \(result 1\)"):
            from_onnx(one("Dropout", {"x": IMAGE}, opset, 2))
    assert from_onnx(one("Dropout", {"x": IMAGE}, 6, is_test=1)).model.main.outputs[0].op == "input"
    with pytest.raises(ModelError, match="dropout in training mode is random"):
        from_onnx(one("Dropout", {"x": IMAGE}, 6))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_shifts_of_bits(direction: str, kind: Any) -> None:
    width = np.iinfo(kind).bits
    operands = {"x": integers(0, 2**width, 3, 10, dtype=kind), "y": integers(0, width, 10, dtype=kind)}
    agrees(one("BitShift", operands, direction=direction), operands)


def test_running_products() -> None:
    operands = {"x": drawn(3, 4), "A": np.array(-1)}
    model = one("CumProd", operands, 26, exclusive=1, reverse=1)
    before = np.concatenate([operands["x"][:, 1:], np.ones((3, 1), np.float32)], 1)
    agrees(model, operands, lambda x, _: before[:, ::-1].cumprod(1)[:, ::-1])


@pytest.mark.parametrize("name", ["ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_folds_that_leave_the_integers_are_rounded_towards_zero(name: str, kind: Any) -> None:
    low = 1 if name == "ReduceLogSum" else -9
    operands = {"x": integers(low, 9, 3, 4, 5, dtype=kind), "A": ints(-1, 0)}
    law = {
        "ReduceMean": lambda x: x.mean((0, 2)),
        "ReduceL2": lambda x: np.sqrt((x**2).sum((0, 2))),
        "ReduceLogSum": lambda x: np.log(x.sum((0, 2))),
        "ReduceLogSumExp": lambda x: np.log(np.exp(x).sum((0, 2))),
    }[name]
    model = one(name, operands, 18, keepdims=0)
    agrees(model, operands, lambda x, _: np.trunc(law(x.astype(np.float64))).astype(kind), compiled=kind is np.int32)


# ---- norms and pools -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("power", [1, 2])
def test_normalization_by_a_norm_leaves_zeros(axis: int, power: int) -> None:
    operands = {"x": drawn(3, 4, 5)}
    operands["x"][1] = operands["x"][:, 2] = operands["x"][..., 3] = 0

    def law(x: Array) -> Array:
        norm = (np.abs(x) ** power).sum(axis, keepdims=True) ** (1 / power)
        return x / np.where(norm == 0, 1, norm).astype(x.dtype)

    agrees(one("LpNormalization", operands, axis=axis, p=power), operands, law)


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (11, 1)])
def test_hardmax_marks_the_first_maximum(opset: int, axis: int) -> None:
    operands = {"x": np.round(drawn(3, 4, 5))}

    def law(x: Array) -> Array:
        rows = x.reshape(3, 20) if opset == 11 else np.moveaxis(x, axis, -1)
        marked = np.eye(rows.shape[-1], dtype=x.dtype)[rows.argmax(-1)]
        return marked.reshape(x.shape) if opset == 11 else np.moveaxis(marked, -1, axis)

    agrees(one("Hardmax", operands, opset, axis=axis), operands, law)


WINDOWS: list[tuple[dict[str, Any], tuple[int, int]]] = [
    ({"kernel_shape": [2, 3]}, (0, 0)),
    ({"kernel_shape": [2, 2], "strides": [2, 3], "dilations": [2, 1], "ceil_mode": 1}, (0, 0)),
    ({"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 0, 0, 2]}, (1, 0)),
    ({"kernel_shape": [2, 2], "strides": [2, 1], "auto_pad": "SAME_LOWER"}, (1, 1)),
]
"""Attributes of pools, and how much is padded at the start."""


def windows(x: Array, nothing: float, options: Mapping[str, Any], low: Sequence[int], extents: Sequence[int]) -> Array:
    """Return the windows of images, values on the last axis."""
    padded = np.pad(x, [(0, 0), (0, 0), (low[0], 9), (low[1], 9)], constant_values=nothing)
    steps, gaps = options.get("strides", [1, 1]), options.get("dilations", [1, 1])
    rows, columns = (np.arange(n) * step for n, step in zip(extents, steps, strict=True))
    inner = [(i * gaps[0], j * gaps[1]) for i, j in np.ndindex(*options["kernel_shape"])]
    return np.stack([padded[:, :, rows[:, None] + i, columns + j] for i, j in inner], -1)


@pytest.mark.parametrize("padded", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pads_do_not_count_beside_automatic_ones(padded: str) -> None:
    options: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 1], "auto_pad": padded}
    pads: list[dict[str, Any]] = [{"pads": [0, 1, 0, 1]}, {}]
    both, alone = (one("MaxPool", {"x": IMAGE}, **options, **each) for each in pads)
    assert from_onnx(both).model == from_onnx(alone).model


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize(("options", "low"), WINDOWS)
def test_pools_by_a_norm(power: int, options: dict[str, Any], low: tuple[int, int]) -> None:
    operands = {"x": IMAGE}
    model = one("LpPool", operands, 18, p=power, **options)
    extents = shapes.concrete(from_onnx(model).model.main.outputs[0].shape[2:])

    def law(x: Array) -> Array:
        return (windows(np.abs(x) ** power, 0, options, low, extents).sum(-1) ** (1 / power)).astype(np.float32)

    agrees(model, operands, law)


@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("options", [{"alpha": 0.1, "beta": 0.7, "bias": 2.0}, {}])
def test_normalization_over_neighbouring_channels(size: int, options: dict[str, Any]) -> None:
    operands = {"x": drawn(2, 7, 3, 2) * 5}
    usual = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0} | options

    def law(x: Array) -> Array:
        near = [range(max(0, c - (size - 1) // 2), min(7, c + size // 2 + 1)) for c in range(7)]
        means = np.stack([(x[:, channels] ** 2).sum(1) for channels in near], 1) / size
        return (x / (usual["bias"] + usual["alpha"] * means) ** usual["beta"]).astype(np.float32)

    agrees(one("LRN", operands, size=size, **options), operands, law)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_one_norm_for_each_channel(power: int) -> None:
    operands = {"x": IMAGE}
    law = (np.abs(IMAGE) ** power).sum((2, 3), keepdims=True) ** (1 / power)
    agrees(one("GlobalLpPool", operands, p=power), operands, lambda x: law.astype(np.float32))


@pytest.mark.parametrize("name", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_without_axes_after_the_channels_there_is_no_pool(name: str) -> None:
    with pytest.raises(ModelError, match=r"a pool of f32\[2, 3\]\n.*\n.*axes after batch and channels"):
        from_onnx(one(name, {"x": drawn(2, 3)}))


@pytest.mark.parametrize("by_columns", [0, 1])
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(("options", "low"), WINDOWS)
def test_maxima_of_pools_stand_at_the_first_place_in_memory(
    options: dict[str, Any], low: tuple[int, int], is_whole: bool, by_columns: int
) -> None:
    x = np.round(IMAGE)
    if not is_whole:
        x[0, 1, 2, 3] = x[1, 2, 1:3] = np.nan
    model = one("MaxPool", {"x": x}, 18, 2, storage_order=by_columns, **options)
    values, places = from_onnx(model).model.interpret(x)
    every = windows(x, -np.inf, options, low, values.shape[2:])
    np.testing.assert_array_equal(values, every.max(-1))
    memory = np.arange(x.size).reshape(2, 3, 6, 5).swapaxes(2, 3) if by_columns else np.arange(x.size).reshape(x.shape)
    own = windows(memory, -1, options, low, values.shape[2:])
    np.testing.assert_array_equal(places, np.take_along_axis(own, every.argmax(-1)[..., None], -1)[..., 0])


# ---- between values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placed", ["half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"])
@pytest.mark.parametrize("options", [{}, {"exclude_outside": 1, "cubic_coeff_a": -0.5}])
def test_cubic_resizing(placed: str, options: dict[str, Any]) -> None:
    operands = {"x": IMAGE, "0": NONE, "1": NONE, "SIZES": ints(2, 3, 9, 4)}
    model = one("Resize", operands, 19, mode="cubic", coordinate_transformation_mode=placed, **options)
    agrees(model, operands, compiled=placed == "asymmetric")


@pytest.mark.parametrize(("mode", "exclude"), [("linear", 0), ("cubic", 0), ("cubic", 1)])
@pytest.mark.parametrize("sizes", [(2, 3, 2, 4), (2, 3, 9, 4)])
def test_resizing_without_aliases(mode: str, exclude: int, sizes: tuple[int, ...]) -> None:
    operands = {"x": IMAGE, "0": NONE, "1": NONE, "SIZES": ints(*sizes)}
    agrees(one("Resize", operands, 19, mode=mode, exclude_outside=exclude, antialias=1), operands)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resizing_of_a_part(mode: str) -> None:
    part = np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.3], np.float32)
    operands = {"x": IMAGE, "ROI": part, "0": NONE, "SIZES": ints(2, 3, 4, 7)}
    placed = "tf_crop_and_resize"
    model = one("Resize", operands, 18, mode=mode, coordinate_transformation_mode=placed, extrapolation_value=7.0)
    agrees(model, operands)


@pytest.mark.parametrize(("mode", "of_torch"), [("linear", "bilinear"), ("cubic", "bicubic")])
@pytest.mark.parametrize("scale", [1.3, 1.5, 0.7])
def test_corners_are_those_of_the_result_that_a_scale_leaves(mode: str, of_torch: str, scale: float) -> None:
    """The reference takes them from the product of scale and extent, which need not be whole."""
    operands = {"x": IMAGE, "0": NONE, "SCALES": np.array([1, 1, scale, scale], np.float32)}
    model = one("Resize", operands, 13, mode=mode, coordinate_transformation_mode="align_corners")

    def law(x: Array, *_: Array) -> Array:
        return F.interpolate(torch.from_numpy(x), scale_factor=scale, mode=of_torch, align_corners=True).numpy()

    agrees(model, operands, law)


def test_the_ends_of_a_part_are_those_of_the_result_that_a_scale_leaves() -> None:
    part, scales = np.array([0, 0.2, 1, 0.8], np.float32), np.array([1, 1.7], np.float32)
    operands = {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "ROI": part, "SCALES": scales}
    model = one("Resize", operands, 13, mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
    agrees(model, operands, lambda x, *_: x[:, :1] + np.linspace(1, 4, 10, dtype=np.float32))


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resizing_that_keeps_proportions(policy: str) -> None:
    operands = {"x": IMAGE, "0": NONE, "1": NONE, "SIZES": ints(13, 9)}
    agrees(one("Resize", operands, 18, mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy), operands)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_samples_at_a_grid(mode: str, padding: str, corners: int) -> None:
    operands = {"x": IMAGE, "g": drawn(2, 3, 4, 2) * np.float32(1.2)}
    model = one("GridSample", operands, 20, mode=mode, padding_mode=padding, align_corners=corners)

    def law(x: Array, grid: Array) -> Array:
        image, places = torch.from_numpy(x), torch.from_numpy(grid)
        return F.grid_sample(image, places, "bicubic", padding, bool(corners)).numpy()

    is_moved = (mode, padding) == ("cubic", "border")  # by the reference alone, which puts places on the border first
    agrees(model, operands, law if is_moved else None, compiled=mode == "linear" and not corners)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_samples_in_space(mode: str) -> None:
    operands = {"x": drawn(1, 2, 4, 1, 5), "g": drawn(1, 3, 2, 2, 3) * np.float32(1.2)}
    agrees(one("GridSample", operands, 20, mode=mode, padding_mode="reflection"), operands)


def test_a_place_that_is_no_number_is_the_first() -> None:
    operands = {"x": IMAGE[:1], "g": np.array([[[[np.nan, 0]]]], np.float32)}
    model = one("GridSample", operands, 20, mode="nearest", padding_mode="border")
    agrees(model, operands, lambda x, _: x[:, :, 2:3, :1])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_what_is_read_between_at_no_number_is_none(mode: str) -> None:
    operands = {"x": IMAGE[:1], "g": np.array([[[[np.nan, 0], [np.inf, 0]]]], np.float32)}
    model = one("GridSample", operands, 20, mode=mode)
    agrees(model, operands, lambda x, _: np.full((1, x.shape[1], 1, 2), np.nan, np.float32))


def test_old_names_of_modes_of_samples() -> None:
    operands = {"x": IMAGE, "g": drawn(2, 3, 4, 2)}
    old, new = (one("GridSample", operands, *how) for how in ((16,), (20,)))
    old.graph.node[0].attribute.append(helper.make_attribute("mode", "bicubic"))
    new.graph.node[0].attribute.append(helper.make_attribute("mode", "cubic"))
    assert from_onnx(old).model == from_onnx(new).model


@pytest.mark.parametrize(
    ("name", "kind", "options", "reason"),
    [
        ("GridSample", np.float32, {"mode": "sharp"}, "mode sharp, padding_mode zeros"),
        ("GridSample", np.float32, {"padding_mode": "far"}, "mode linear, padding_mode far"),
        ("GridSample", np.int32, {}, "interpolation of i32"),
        ("Resize", np.uint8, {"mode": "cubic"}, "interpolation of u8"),
    ],
)
def test_what_is_not_read_between_values(name: str, kind: Any, options: dict[str, Any], reason: str) -> None:
    operands: dict[str, Array] = {"x": IMAGE.astype(kind)}
    operands |= {"g": drawn(2, 3, 4, 2)} if name == "GridSample" else {"0": NONE, "1": NONE, "SIZES": ints(2, 3, 9, 4)}
    with pytest.raises(UnsupportedOpError, match=reason):
        from_onnx(one(name, operands, 20, **options))


@pytest.mark.parametrize(
    ("name", "operands", "options"),
    [
        ("Reshape", {"x": drawn(2, 3), "S": ints(0, 0, 0)}, {}),
        ("Expand", {"x": drawn(3, 1), "S": ints(2, 4)}, {}),
        ("Tile", {"x": drawn(3, 4), "S": ints(2)}, {}),
        ("Gather", {"x": drawn(3, 4), "i": ints(1)}, {"axis": 5}),
        ("DepthToSpace", {"x": drawn(1, 4, 2, 2)}, {}),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_where(
    name: str, operands: dict[str, Array], options: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match=rf"do not fit: .*\n  where: {name} 'y0'\n  to do: .*onnx.checker"):
        from_onnx(one(name, operands, **options))


@pytest.mark.parametrize(
    ("name", "operands", "options"),
    [
        ("Unsqueeze", {"x": drawn(2, 3), "A": ints(4)}, {}),
        ("Softmax", {"x": drawn(2, 3)}, {"opset": 11, "axis": 4}),
        ("LayerNormalization", {"x": drawn(2, 3), "W": drawn(3)}, {"axis": 4}),
        ("Pad", {"x": drawn(2, 3), "P": ints(1, 1), "0": NONE, "A": ints(4)}, {"opset": 18}),
        ("Resize", {"x": drawn(2, 3), "0": NONE, "1": NONE, "S": ints(6)}, {"opset": 18, "axes": [4]}),
    ],
)
def test_axes_that_are_none_are_refused(name: str, operands: dict[str, Array], options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="axis 4 of a tensor with"):
        from_onnx(one(name, operands, **options))


def test_weights_of_a_normalization_are_spread_over_its_axes() -> None:
    operands = {"x": drawn(2, 3, 3), "W": drawn(3), "B": drawn(3, 1)}
    agrees(one("LayerNormalization", operands, axis=1), operands)
    with pytest.raises(UnsupportedOpError, match=r"a weight of f32\[3, 1\] for values of shape 3"):
        from_onnx(one("LayerNormalization", operands))


def test_an_axis_that_is_left_out_by_an_empty_name_is_the_usual_one() -> None:
    nodes = [helper.make_node("DFT", ["x", *rest], ["y0"]) for rest in ((), ("", ""))]
    short, long = (from_onnx(model_of([node], {"x": drawn(2, 8, 2)}, {}, 20)).model for node in nodes)
    assert short == long


# ---- empty tensors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [{"x": (1, 2, 5, 8)}, {"x": (1, 5, 16), "num_heads": 2}])
def test_rotations_of_all_of_a_head(axes: dict[str, Any]) -> None:
    """The part that passes by is empty."""
    shape = axes["x"]
    operands = {"x": drawn(*shape), "c": drawn(1, 5, 4), "s": drawn(1, 5, 4)}
    options = {name: value for name, value in axes.items() if name != "x"}
    agrees(one("RotaryEmbedding", operands, 23, **options), operands)


def test_empty_parts_are_joined() -> None:
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Slice", ["x", "two", "one", "one"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Shape", ["d"], ["shape"]),
        helper.make_node("Compress", ["x", "none"], ["f"], axis=1),
        helper.make_node("Concat", ["a", "c", "b", "d", "f"], ["e"], axis=-1),
        helper.make_node("Expand", ["e", "rest"], ["y0"]),
    ]
    known = {"sizes": ints(0, 3), "two": ints(2), "one": ints(1), "rest": ints(2, 1, 3), "none": np.zeros(2, bool)}
    operands = {"x": drawn(1, 3)}
    agrees(model_of(nodes, operands, known, 17), operands)
    with pytest.raises(ModelError, match=r"c is empty: shape 1x0"):
        from_onnx(model_of([*nodes[:2], helper.make_node("Mul", ["c", "x"], ["y0"])], operands, known, 17))


# ---- graphs in nodes -------------------------------------------------------------------------------------------------

HEAD = '<ir_version: 8, opset_import: ["" : 18]> g '


@pytest.mark.parametrize(
    ("shape", "call"),
    [("2,9,3", "DFT<axis = 1>(x)"), ("2,9", "STFT(x, n, , m)"), ("2,3,1", "STFT(x, n, , m)")],
)
def test_signals_that_are_none_are_refused(shape: str, call: str) -> None:
    text = f"(float[{shape}] x) => (float y) <int64 n = {{2}}, int64 m = {{4}}> {{ y = {call} }}"
    with pytest.raises(ModelError, match=r"give (it|a longer signal)"):
        from_onnx(parser.parse_model(HEAD + text))


def boxes() -> Array:
    """Return boxes that begin outside, leave the image of 7 x 9 pixels, and have no size."""
    return np.array([[-9, -5, 3, 3], [4, 4, 40, 41], [0, 8, 30, 27], [9, 9, 9, 9], [20, 12, 10, 6]], np.float32)


@pytest.mark.parametrize("options", [{}, {"coordinate_transformation_mode": "output_half_pixel"}, {"mode": "max"}])
def test_means_and_maxima_over_the_cells_of_boxes(options: dict[str, Any]) -> None:
    grid: dict[str, Any] = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.25}
    operands = {"x": drawn(2, 3, 7, 9), "r": boxes(), "i": ints(0, 1, 1, 0, 1)}
    agrees(one("RoiAlign", operands, 16, **grid, **options), operands)


def test_up_to_opset_15_boxes_are_not_moved_by_half_a_pixel() -> None:
    operands = {"x": drawn(2, 3, 7, 9), "r": boxes(), "i": ints(0, 1, 1, 0, 1)}
    grid: dict[str, Any] = {"output_height": 2, "output_width": 2, "sampling_ratio": 1, "spatial_scale": 0.25}
    new = one("RoiAlign", operands, 16, coordinate_transformation_mode="output_half_pixel", **grid)
    assert str(from_onnx(one("RoiAlign", operands, 10, **grid)).model) == str(from_onnx(new).model)


def test_how_many_samples_a_cell_has_must_be_known() -> None:
    operands = {"x": drawn(2, 3, 7, 9), "r": boxes(), "i": ints(0, 1, 1, 0, 1)}
    with pytest.raises(UnsupportedOpError, match="no sampling_ratio"):
        from_onnx(one("RoiAlign", operands, 16))


DEFORMED: list[tuple[int, int, dict[str, Any], list[str]]] = [
    (2, 2, {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}, ["b", "m"]),
    (1, 4, {}, ["", "m"]),
    (1, 1, {"pads": [1, 1, 1, 1]}, []),
]


@pytest.mark.parametrize(("groups", "offsets", "options", "further"), DEFORMED)
def test_convolutions_with_an_offset_for_each_place(
    groups: int, offsets: int, options: dict[str, Any], further: list[str]
) -> None:
    (top, left, bottom, right), steps = options.get("pads", [0] * 4), options.get("strides", [1, 1])
    down, across = options.get("dilations", [1, 1])
    rows, columns = (8 + top + bottom - 2 * down - 1) // steps[0] + 1, (7 + left + right - across - 1) // steps[1] + 1
    operands = {"x": drawn(2, 4, 8, 7), "w": drawn(6, 4 // groups, 3, 2)}
    operands["o"] = 2 * drawn(2, offsets * 12, rows, columns)
    operands |= {key: drawn(6) if key != "m" else drawn(2, offsets * 6, rows, columns) for key in further}
    model = one("DeformConv", operands, 19, group=groups, offset_group=offsets, **options)
    agrees(model, operands)


FOLDED: list[tuple[Sequence[int], Sequence[int], int, dict[str, Any]]] = [
    ((8, 10), (2, 3), 16, {"dilations": [2, 1], "pads": [1, 0, 0, 2], "strides": [2, 3]}),
    ((9,), (4,), 3, {"strides": [2]}),
    ((5, 6, 4), (1, 5, 3), 20, {}),
]


@pytest.mark.parametrize(("extents", "kernel", "windows", "options"), FOLDED)
def test_windows_are_added_where_they_would_be_read(
    extents: Sequence[int], kernel: Sequence[int], windows: int, options: dict[str, Any]
) -> None:
    columns = drawn(2, 3 * int(np.prod(kernel)), windows)
    columns[0, 0, 0], columns[1, 1, 1] = np.nan, np.inf
    operands = {"x": columns, "I": ints(*extents), "B": ints(*kernel)}
    agrees(one("Col2Im", operands, 18, **options), operands)


@pytest.mark.parametrize("shape", [(), (7,)], ids=str)
@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("Softplus", lambda x: np.logaddexp(x, 0)),
        ("Elu", lambda x: np.where(x > 0, x, np.expm1(x))),
        ("Celu", lambda x: np.maximum(x, 0) + np.minimum(np.expm1(x), 0)),
        ("Selu", lambda x: 1.0507010 * np.where(x > 0, x, 1.6732632 * np.expm1(x))),
    ],
)
def test_exponentials_keep_their_digits(name: str, law: Callable[[Array], Array], shape: tuple[int, ...]) -> None:
    for value in (-8.6, -1e-5, 3.0):
        x = np.full(shape, value, np.float32)
        got = ft.optimize(one(name, {"x": x}), (x,), machine=REFERENCE)(x)
        np.testing.assert_allclose(got, law(x.astype(np.float64)), rtol=2e-6)
        assert got.shape == shape
