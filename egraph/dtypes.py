"""Element types: short names, their numpy types, and how they combine.

Values are computed in the wide dtypes. The narrow ones are what tensors are stored as: their values are moved, chosen
among, and cast, each as a value of the wide dtype that `wide` names.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from frittata.egraph.errors import ModelError

DType = str
"""One of `NAMES`: "bool", "u8", "i8", "u16", "i16", "i32", "i64", "bf16", "f16", "f32", "f64"."""

_NUMPY_BY_NAME: dict[DType, Any] = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
NAMES: tuple[DType, ...] = tuple(_NUMPY_BY_NAME)
_NAME_BY_NUMPY = {numpy: name for name, numpy in _NUMPY_BY_NAME.items()}
_WIDE: dict[DType, DType] = {
    **dict.fromkeys(("u8", "i8", "u16", "i16"), "i32"),
    **dict.fromkeys(("bf16", "f16"), "f32"),
}
NARROW: tuple[DType, ...] = tuple(_WIDE)


def to_numpy(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype of a name."""
    return _NUMPY_BY_NAME[dtype]


def from_numpy(dtype: Any) -> DType:
    """Return the name of a numpy dtype.

    Raises: ModelError if there is none.
    """
    try:
        return _NAME_BY_NUMPY[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise ModelError(f"no element type for {dtype}", do=f"convert to one of {', '.join(NAMES)}") from None


def holds_floats(array: np.ndarray[Any, Any]) -> bool:
    """Whether the values of an array are floating-point: numpy does not say so of bfloat16."""
    return array.dtype.kind == "f" or array.dtype == _NUMPY_BY_NAME["bf16"]


def wide(dtype: DType) -> DType:
    """Return the dtype in which values of `dtype` are computed: itself unless it is narrow."""
    return _WIDE.get(dtype, dtype)


def is_narrow(dtype: DType) -> bool:
    """Whether values of `dtype` are stored only, and computed in a wider dtype."""
    return dtype in _WIDE


def is_float(dtype: DType) -> bool:
    """Whether values of `dtype` are floating-point."""
    return wide(dtype) in ("f32", "f64")


def is_half(dtype: DType) -> bool:
    """Whether values of `dtype` are floats that are stored in 16 bits."""
    return is_narrow(dtype) and is_float(dtype)


def is_integer(dtype: DType) -> bool:
    """Whether values of `dtype` are integers (bool is not)."""
    return wide(dtype) in ("i32", "i64")


def holds(dtype: DType, other: DType) -> bool:
    """Whether all values of `other` are values of `dtype`, so that to cast to it loses nothing."""
    # numpy calls it safe to make float64 of int64, which rounds
    return (other, dtype) != ("i64", "f64") and bool(np.can_cast(to_numpy(other), to_numpy(dtype), "safe"))


def finfo(dtype: DType) -> Any:
    """Return what numpy's `finfo` says of a floating-point dtype, and of bfloat16, which it does not know."""
    return ml_dtypes.finfo(to_numpy(dtype))


def itemsize(dtype: DType) -> int:
    """Return the size of one value in memory, in bytes."""
    return _NUMPY_BY_NAME[dtype].itemsize


def promote(*dtypes: DType) -> DType:
    """Return the narrowest dtype that holds the values of all of `dtypes`, where a float wins over any integer."""
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    return reduce(_promoted, floats or dtypes)


def _promoted(first: DType, second: DType) -> DType:
    if {first, second} == {"bf16", "f16"}:
        return "f32"
    if is_float(first):
        return max(first, second, key=NAMES.index)
    return from_numpy(np.promote_types(to_numpy(first), to_numpy(second)))
