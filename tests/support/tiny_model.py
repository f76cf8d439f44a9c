"""A model small enough to be compiled in a moment that still has kernels, boundaries and something to fold.

The softmax runs down columns: one along rows, between two products, would be one kernel with them, an attention.
"""

import numpy as np

import frittata as ft
from frittata.egraph.model import Model

SCRIPT = """
def main(
    x: f32[4, 24],
    param w: f32[24, 24],
    param b: f32[24],
    param v: f32[24, 8],
) -> f32[4, 8]:
    v1: f32[4, 24] = matmul(x, w)
    v2: f32[4, 24] = add(v1, b)
    v3: f32[4, 24] = relu(v2)
    v4: f32[4, 24] = softmax(v3, axis=-2)
    v5: f32[24, 8] = mul(v, v)
    v6: f32[4, 8] = matmul(v4, v5)
    return v6
"""


def tiny() -> Model:
    """Two products with a softmax between them, and weights that are squared before run time."""
    model = ft.parse(SCRIPT)
    rng = np.random.default_rng(0)
    shapes = {"w": (24, 24), "b": (24,), "v": (24, 8)}
    return Model(model.functions, {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()})
