"""Remainders and rounded quotients of floats, as numpy has them: numba's `%` and `//` are off on the device.

There the remainder of a division is x - trunc(x / y)*y with a quotient that is rounded: wrong where that is large, and
NaN for an infinite y. `math.fmod` is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types

from frittata.kernels.cuda.intrinsics import function

_Function = Callable[[Any, Any], Any]


def compiled() -> dict[str, Any]:
    """Return the functions by name, for numba's compiler."""
    reals = {"f32": types.float32, "f64": types.float64}
    return {name: _compiled(code, reals[name[-3:]]) for name, code in functions(math).items()}


def _compiled(code: _Function, real: Any) -> Any:
    def emit(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
        return context.compile_internal(builder, code, real(*kinds), values)

    return function(emit, real, 2)


def functions(module: Any) -> dict[str, _Function]:
    """Return the functions by name, in terms of the module math, or of numpy for the simulator."""
    return _of("f32", np.float32, module) | _of("f64", np.float64, module)


def _of(dtype: str, real: Any, module: Any) -> dict[str, _Function]:
    one, half = real(1), real(0.5)

    def mod(x: Any, y: Any) -> Any:
        rest = module.fmod(x, y)
        if rest == 0:
            return module.copysign(rest, y)
        return rest + y if (rest < 0) != (y < 0) else rest

    def floordiv(x: Any, y: Any) -> Any:
        quotient = x / y
        if y == 0:
            return quotient
        rest = module.fmod(x, y)
        exact = (x - rest) / y
        if rest != 0 and (rest < 0) != (y < 0):
            exact -= one
        if exact == 0:
            return module.copysign(exact, quotient)
        whole = module.floor(exact)
        return whole + one if exact - whole > half else whole

    return {f"mod_{dtype}": mod, f"floordiv_{dtype}": floordiv}
