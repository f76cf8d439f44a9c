"""The ONNX operators and what each means in terms, by name and opset."""

from __future__ import annotations

from frittata.frontends.onnx import (
    rows_indices,
    rows_layers,
    rows_math,
    rows_microsoft,
    rows_quantized,
    rows_recurrent,
    rows_sampling,
    rows_signal,
    rows_views,
)
from frittata.frontends.onnx.tables import Row

ROWS: dict[str, tuple[Row, ...]] = {
    **rows_math.ROWS,
    **rows_layers.ROWS,
    **rows_views.ROWS,
    **rows_indices.ROWS,
    **rows_sampling.ROWS,
    **rows_signal.ROWS,
    **rows_recurrent.ROWS,
    **rows_quantized.ROWS,
}
"""What each operator of the default domain means: the newest row that is not newer than the model's opset."""

LAYERS = rows_layers.ROWS.keys() - {"MatMul"} | rows_sampling.ROWS.keys() | rows_recurrent.ROWS.keys()
"""Operators with which no shapes and no indices are computed."""

ROWS_BY_DOMAIN: dict[str, dict[str, tuple[Row, ...]]] = {"": ROWS, "com.microsoft": rows_microsoft.ROWS}
"""The same for each domain."""
