"""The names of torch's dtypes."""

from __future__ import annotations

from typing import Any

import torch

from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError

DTYPE_BY_TORCH: dict[torch.dtype, DType] = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.uint16: "u16",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
}

COMPLEX: dict[torch.dtype, DType] = {torch.complex64: "c64", torch.complex128: "c128"}
"""What arguments name: a complex tensor is two real ones."""


def dtypes_of(value: Any) -> list[DType | None]:
    """Return the dtypes of what torch computed, None for what is no tensor of a known one."""
    values = value if isinstance(value, list | tuple) else [value]
    return [DTYPE_BY_TORCH.get(one.dtype) if isinstance(one, torch.Tensor) else None for one in values]


def is_complex(value: Any) -> bool:
    """Whether there is a complex tensor in what torch computed."""
    values = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(one, torch.Tensor) and one.is_complex() for one in values)


def dtype_of(dtype: torch.dtype, what: str) -> DType:
    """Return our name of a dtype.

    Raises: ModelError that says `what` has it, if there is none.
    """
    if dtype not in DTYPE_BY_TORCH:
        known = ", ".join(str(kind) for kind in DTYPE_BY_TORCH)
        raise ModelError(f"{what} has {dtype}", do=f"convert to one of {known}")
    return DTYPE_BY_TORCH[dtype]
