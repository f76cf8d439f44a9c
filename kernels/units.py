"""What the steps of vector code cost, an element, in additions: the units of `Machine.scalar_per_s`."""

from __future__ import annotations

from collections.abc import Iterable

from llvmlite import ir

from frittata.egraph import dtypes
from frittata.egraph.indexing import Affine
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.processor import processor

SIMPLE_UNITS = 0.5
"""A load, a store, an operator of cost one: the processor takes several at a time."""
PERMUTED_UNITS = 0.6
"""A load whose lanes lie in one block, in another order."""
EXTREME_UNITS = 1.2
"""A maximum or a minimum of floats that finds every NaN and signed zero."""
ONE_LOAD_UNITS = {0: SIMPLE_UNITS, 1: SIMPLE_UNITS, -1: PERMUTED_UNITS}
"""What a vector takes that is one load, by how much its index grows from lane to lane: backwards it is turned over."""
_ROUNDED_UNITS = {"bf16": 8.0, "f16": 2.0}
"""What rounding to halves takes; no instruction rounds to bfloat16 as numpy does. Measured on Zen 5: 4 M values."""
_DOUBLE_TIMES = {"exp": 4.0, "log": 4.0, "sigmoid": 4.0, "sqrt": 4.0, "rsqrt": 4.0, "sin": 2.0, "cos": 2.0}
"""How much longer than one of float32 a value of float64 takes: half the lanes, polynomials of more terms.

Source: Zen 4, 131,072 values, AVX2 and AVX-512: 4.5 and 3.1 for exp, log and sigmoid, 3.7 and 5 for roots, 2.2 for sin.
"""
_CALLED_IN_DOUBLE = frozenset({"tanh", "erf", "atan", "log1p", "expm1", "pow"})
"""Functions of C in float64, called lane by lane."""
_CALL_STEPS = 60.0
"""Vector additions that one such call is worth. Source: the same: 50 to 90 with AVX2, 38 to 68 with AVX-512."""
_DIVIDE_STEPS = 8.0
"""The same of a quotient of int64, that the processor divides lane by lane. Source: Zen 4, AVX-512."""
_WIDE_BYTES = 64
"""In vectors of this size one instruction makes int64 of floats; in smaller ones each lane is converted by itself."""
_GATHER_STEPS = 1.5
"""Vector additions that one lane of a load made lane by lane is worth."""
_LOOKUP_STEPS = 1.0
"""The same of an index that is looked up: widened, clamped, taken out of its vector."""


def gather_units(lanes: int, lookups: int = 0) -> float:
    """Return what an element costs that is loaded lane by lane in vectors of so many, at so many looked-up indices."""
    return (_GATHER_STEPS + _LOOKUP_STEPS * lookups) * lanes


def load_units(offset: Affine, size: int, key: str, lanes: int) -> float:
    """Return what an element of a load from a buffer of `size` costs, in vectors along `key`."""
    values = IndexValues(ir.IRBuilder(), {}, Along(key, lanes, lanes))
    slope = values.slope(offset)
    if slope in ONE_LOAD_UNITS:
        return ONE_LOAD_UNITS[slope]
    return PERMUTED_UNITS if values.block(offset, size) is not None else gather_units(lanes)


def apart(values: IndexValues, offsets: Iterable[Affine | None]) -> int:
    """Return how many of the loads at some offsets are made lane by lane; None stands for clamped ones."""
    return sum(offset is None or values.slope(offset) not in ONE_LOAD_UNITS for offset in offsets)


def operator_units(element: Term) -> float:
    """Return what the topmost operator of an element costs."""
    if element.op == "cast":
        if element.dtype in _ROUNDED_UNITS:
            return _ROUNDED_UNITS[element.dtype]
        if element.dtype == "i64" and dtypes.is_float(element.args[0].dtype) and processor().width < _WIDE_BYTES:
            return gather_units(processor().width // 4)
    cost = operator_cost(element)
    return SIMPLE_UNITS if cost == 1 else cost


def operator_cost(element: Term) -> float:
    """Return the cost of the topmost operator of an element, for its dtype."""
    if _is_called(element):
        return _CALL_STEPS * (processor().width // 4)
    if element.op in ("mod", "floordiv") and element.dtype == "i64" and element.args[1].op != "const":
        return _DIVIDE_STEPS * (processor().width // 4)
    cost = registry.get(element.op, "element").cost
    return cost * _DOUBLE_TIMES.get(element.op, 1.0) if element.dtype == "f64" else cost


def scalar_cost(element: Term) -> float:
    """Return the same in scalar code, in additions of one lane."""
    return _CALL_STEPS if _is_called(element) else registry.get(element.op, "element").cost


def _is_called(element: Term) -> bool:
    return element.dtype == "f64" and element.op in _CALLED_IN_DOUBLE
