"""Typed pointers for generated source: `x = f32_pointer(table[0])`, then `x[offset]`, without wraparound or bounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from numba.core import types
from numba.extending import intrinsic

# numba keeps a bool in one bit, memory in one byte; it has no float16.
_ELEMENT_BY_DTYPE: dict[str, Any] = {
    "bool": types.uint8,
    "u8": types.uint8,
    "i8": types.int8,
    "u16": types.uint16,
    "i16": types.int16,
    "bf16": types.uint16,
    "f16": types.uint16,
    "i32": types.int32,
    "i64": types.int64,
    "f32": types.float32,
    "f64": types.float64,
}


def _pointer_intrinsic(element: Any) -> Any:
    pointer = types.CPointer(element)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    @intrinsic
    def cast(_context: Any, address: Any) -> Any:
        return pointer(types.int64), generate

    return cast


POINTERS: Mapping[str, Any] = MappingProxyType(
    {f"{dtype}_pointer": _pointer_intrinsic(element) for dtype, element in _ELEMENT_BY_DTYPE.items()}
)
"""The functions by the name under which generated source calls them."""
