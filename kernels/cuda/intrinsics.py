"""Functions that sources call, and whose code is written here instruction by instruction: numba lacks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic

Emit = Callable[[Any, Any, Any, Any], Any]
"""Takes numba's context, the builder, the types of the arguments, and their values; returns the result."""


def function(emit: Emit, result: Any, arity: int) -> Any:
    """Return a function of that many arguments, whose result has a numba type."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        out = emit(context, builder, signature.args, values)
        return context.get_dummy_value() if result is types.void else out

    def typed(*arguments: Any) -> Any:
        return result(*arguments), generate

    names = ", ".join(f"x{i}" for i in range(arity))  # numba counts an intrinsic's parameters
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def function(_context{', ' if names else ''}{names}):\n    return typed({names})", scope)
    return intrinsic(scope["function"])
