"""What the import knows of a value: an array, a term, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.model import Array
from frittata.egraph.terms import Scalar, Term, walk
from frittata.frontends.onnx.tables import DTYPE_BY_ONNX

_HOLDS: dict[int, DType] = {
    TensorProto.INT4: "i8",
    TensorProto.UINT4: "u8",
    TensorProto.FLOAT8E4M3FN: "f16",
    TensorProto.FLOAT8E4M3FNUZ: "f16",
    TensorProto.FLOAT8E5M2: "f16",
    TensorProto.FLOAT8E5M2FNUZ: "f16",
}


@dataclass(eq=False)
class LateError(UnsupportedOpError):
    """A value that has to be known at import is computed at run time, of `inputs` of the model that are short."""

    inputs: tuple[str, ...] = ()


MOST_FOLDED = 4096
"""How many values an array may have that is computed at import: shapes and indices are short, weights are not."""


@dataclass
class Value:
    """What a name of the graph holds: an array that is known at import, a term, or both; `weight` if it is learned.

    An operand that is left out has neither; nor has a sequence, which has `items`, or a result without a definition,
    which is `lacking`: an operator and its place.
    """

    array: Array | None = None
    term: Term | None = None
    weight: bool = False
    lacking: tuple[str, str] | None = None
    items: tuple[Value, ...] | None = None

    @property
    def is_absent(self) -> bool:
        """Whether an operand is left out."""
        return self.array is None and self.term is None and self.items is None

    @property
    def is_empty(self) -> bool:
        """Whether there are no values; there are no terms of such tensors."""
        return self.array is not None and not self.array.size


def late(what: str, *values: Value) -> LateError:
    """Return the error for values that are computed at run time; inputs with several axes are data, no shapes."""
    terms = walk(*(value.term for value in values if value.term is not None))
    return LateError(what, inputs=tuple(term.attrs[0] for term in terms if term.op == "input" and len(term.shape) < 2))


def is_known(value: Value) -> bool:
    """Whether an operand is known; one that is left out hinders nothing."""
    return value.is_absent or value.array is not None


def is_foldable(value: Value) -> bool:
    """Whether an operand is known, and short, and no weight; one that is left out hinders nothing."""
    return value.is_absent or (value.array is not None and not value.weight and is_short(value.array))


def is_short(array: Array) -> bool:
    return array.size <= MOST_FOLDED


def is_uniform(array: Array) -> bool:
    """Whether there is one number everywhere, bit by bit: zero and minus zero are two."""
    first = array.flat[0]
    return bool(first == first) and array.tobytes() == first.tobytes() * array.size


def initial(stored: TensorProto) -> Value:
    """Return what a model stores: a weight if it is of floats and has axes, or of narrow integers and has several.

    Raises: ModelError if its values cannot be read.
    """
    try:
        array = numpy_helper.to_array(stored)
    except Exception as error:  # of each format in its own way
        what = f"initializer {stored.name} cannot be read: {str(error).partition(chr(10))[0]}"
        raise ModelError(what, do="give the path of the model, so that files beside it are found") from error
    return Value(array, weight=_is_weight(array, DTYPE_BY_ONNX.get(stored.data_type, "bool")))


def _is_weight(array: Array, dtype: DType) -> bool:
    return array.ndim > 0 if dtypes.is_float(dtype) else dtypes.is_narrow(dtype) and array.ndim > 1


def held(value: Value) -> Value:
    """Return integers of 4 bits and floats of 8, where they are known, in a dtype that has a name and holds them."""
    if value.array is None:
        return value
    dtype = _HOLDS.get(helper.np_dtype_to_tensor_dtype(value.array.dtype))
    if dtype is None:
        return value
    array = value.array.astype(dtypes.to_numpy(dtype))
    return Value(array, weight=_is_weight(array, dtype))


def of_result(result: Any) -> Value:
    """Wrap what a row returned; one number everywhere is known."""
    if isinstance(result, np.ndarray):
        return Value(result)
    if result.op != "full":
        return Value(term=result)
    number: Scalar = result.attrs[0]
    return Value(np.broadcast_to(np.asarray(number.value, dtypes.to_numpy(result.dtype)), result.shape), result)


def is_same(first: Array, second: Array) -> bool:
    """Whether two arrays are one, or short and equal bit by bit."""
    if first is second:
        return True
    alike = (first.dtype, first.shape) == (second.dtype, second.shape)
    return alike and is_short(first) and first.tobytes() == second.tobytes()
