"""Element types: short names, their numpy types, and how they combine."""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError

DType = str
"""One of `NAMES`: "bool", "i32", "i64", "f32", "f64"."""

_NUMPY_BY_NAME: dict[DType, Any] = {
    "bool": np.dtype(np.bool_),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
NAMES: tuple[DType, ...] = tuple(_NUMPY_BY_NAME)
_NAME_BY_NUMPY = {numpy: name for name, numpy in _NUMPY_BY_NAME.items()}


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


def is_float(dtype: DType) -> bool:
    """Whether values of `dtype` are floating-point."""
    return dtype[0] == "f"


def is_integer(dtype: DType) -> bool:
    """Whether values of `dtype` are integers (bool is not)."""
    return dtype[0] == "i"


def itemsize(dtype: DType) -> int:
    """Return the size of one value in bytes."""
    return _NUMPY_BY_NAME[dtype].itemsize


def promote(*dtypes: DType) -> DType:
    """Return the widest of `dtypes` in the order of `NAMES` (a float wins over any integer)."""
    return max(dtypes, key=NAMES.index)
