"""The interpreter with roundings drawn at random: where results differ from time to time, none is the right one.

A result that is rounded is the one of operands that are a little different. So each operator is given operands that
float32 can hardly tell from its own, and its results are rounded. What float32 computes as it is stays: small integers,
parts of a tensor, the larger of two values. In float64, which has no wider one beside it, nothing is moved.

Source: Parker, Monte Carlo arithmetic, 1997; Vignes, a stochastic arithmetic for reliable scientific computation, 1993.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.interpret import Array, Interpreter
from frittata.egraph.terms import Term

_SHARES = tuple(float(np.finfo(np.float32).eps) * times for times in (0.5, 4, 16))
"""How far operands are moved, as a share of their size: what one rounding, several, and another order of a sum do."""


class Shaken(Interpreter):
    """Evaluates terms under one binding of the leaves; indices are clamped, for they may move too."""

    def __init__(self, value_by_name: Mapping[str, Array], seed: int) -> None:
        super().__init__(value_by_name)
        self._rng = np.random.default_rng(seed)
        self._share = _SHARES[seed % len(_SHARES)]

    def _applied(self, function: Callable[..., Any], operands: Sequence[Array], term: Term) -> Array:
        exact = super()._applied(function, operands, term)
        if not dtypes.is_float(term.dtype) or term.dtype == "f64":
            return exact
        held = exact == _rounded(exact, term.dtype)
        if _adds_up(term):  # what is added up may be rounded on the way
            held = held & all(map(_is_short, operands))
        if held.all():
            return exact
        moved = super()._applied(function, [self._moved(x) for x in operands], term)
        return np.where(held, exact, _rounded(moved, term.dtype))

    def _moved(self, x: Array) -> Array:
        if x.dtype.kind != "f":
            return x
        return x * (1 + self._rng.uniform(-self._share, self._share, x.shape))


_SUMS = frozenset(
    (
        *("matmul", "linear", "conv", "conv_last", "conv_transpose", "conv_winograd", "reduce_sum", "reduce_prod"),
        *("cumsum", "cumprod", "scatter", "avg_pool", "resample", "softmax", "layer_norm", "batch_norm", "group_norm"),
        *("rms_norm", "attention", "masked_attention", "causal_attention", "dot", "window_dot"),
    )
)


def _adds_up(term: Term) -> bool:
    return term.op in _SUMS or (term.op in ("fold", "scan") and term.attrs[0] in ("sum", "prod"))


def _is_short(x: Array) -> bool:
    """Whether values are integers, or so many 256ths: sums and products of those are not rounded."""
    return x.dtype.kind != "f" or np.array_equal(x * 256, np.rint(x * 256))


def _rounded(x: Array, dtype: str) -> Array:
    return x.astype(dtypes.to_numpy(dtype)).astype(np.float64)
