"""Weights of 4-bit integers and 8-bit floats are read by their values; nothing is computed in these dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import RNG, agrees, drawn, model_of

from frittata.egraph.errors import ModelError
from frittata.frontends.onnx.importer import from_onnx

KINDS = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def values(kind: str, *shape: int) -> Any:
    """Draw values of a dtype of ml_dtypes, its ends among them."""
    low = 0 if kind == "uint4" else -8
    return np.asarray(RNG.integers(low, low + 16, shape)).astype(getattr(ml_dtypes, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [0, 16])
def test_weights_are_read_by_their_values(kind: str, block: int) -> None:
    count = (3, 40) if block else (40,)
    scale = {"S": np.abs(drawn(*count)) + 0.1, "W": values(kind, 40, 40)}
    zeros = {"Z": values(kind, *count)} if kind.endswith("int4") else {}
    options: dict[str, Any] = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["W", "S", *zeros], ["w"], **options),
        helper.make_node("Mul", ["x", "w"], ["y0"]),  # ONNX Runtime rounds x to bytes before a product of matrices
    ]
    x = {"x": drawn(40, 40)}
    agrees(model_of(nodes, x, {**scale, **zeros}, 23), x, compiled=True)


@pytest.mark.parametrize("kind", KINDS[2:])
def test_every_float_of_eight_bits_is_held(kind: str) -> None:
    every = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, kind)).reshape(2, 128)
    nodes = [helper.make_node("Cast", ["W"], ["w"], to=TensorProto.FLOAT), helper.make_node("Add", ["w", "x"], ["y0"])]
    x = {"x": np.zeros((2, 128), np.float32)}
    agrees(model_of(nodes, x, {"W": every}, 23), x)


def test_a_zero_point_that_says_to_round_to_four_bits_is_refused() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["W", "S", "Z"], ["w"]),
        helper.make_node("Add", ["w", "x"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "S", "Z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "S", "Z"], ["y0"]),
    ]
    known = {"W": values("int4", 80, 80), "S": np.array(0.5, np.float32), "Z": values("int4")}
    x = {"x": drawn(80, 80)}
    with pytest.raises(ModelError, match="Z has INT4"):
        from_onnx(model_of(nodes, x, known, 23), list(x.values()))
