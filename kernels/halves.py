"""Values of float16 and bfloat16 in generated source, where numba has no such types: their bits are `uint16`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from frittata.kernels import narrow
from frittata.kernels.simd import I16, Lane

HALVES = ("bf16", "f16")


def function(result: Any, argument: Any, emit: Callable[[Any, Any], Any]) -> Any:
    """Return what source calls to have `emit(builder, value)` emitted, from one numba type to another."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return emit(builder, arguments[0])

    @intrinsic
    def called(_context: Any, _value: Any) -> Any:
        return result(argument), generate

    return called


def _functions(dtype: str) -> dict[str, Any]:
    lane = Lane(dtype)

    def bits(builder: Any, value: Any) -> Any:
        return builder.bitcast(narrow.narrowed(builder, value, lane.memory_scalar), I16)

    def value(builder: Any, bits: Any) -> Any:
        return narrow.widened(builder, builder.bitcast(bits, lane.memory_scalar), lane)

    def rounded(builder: Any, value: Any) -> Any:
        return narrow.rounded(builder, value, dtype)

    return {
        f"{dtype}_bits": function(types.uint16, types.float32, bits),
        f"{dtype}_value": function(types.float32, types.uint16, value),
        f"{dtype}_rounded": function(types.float32, types.float32, rounded),
    }


FUNCTIONS: Mapping[str, Any] = MappingProxyType({name: f for dtype in HALVES for name, f in _functions(dtype).items()})
"""The functions by the name under which generated source calls them."""
