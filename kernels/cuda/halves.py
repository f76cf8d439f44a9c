"""float16 and bfloat16 on the device: their bits in memory are `uint16`, and numbers of float32 in registers.

The functions have the names of those in `kernels/halves.py`, and sources call them in the same places. Rounding is an
instruction of the device, to the nearest, ties to even; it keeps infinities, and makes one NaN of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from frittata.egraph import dtypes
from frittata.kernels.halves import HALVES, function
from frittata.kernels.simd import F16, F32, I16

_I32 = ir.IntType(32)


def simulated() -> dict[str, Any]:
    """Return the functions by name, for the simulator, whose numbers are numpy's."""
    out: dict[str, Any] = {}
    for dtype in HALVES:
        half = dtypes.to_numpy(dtype).type
        out[f"{dtype}_value"] = lambda bits, half=half: np.float32(np.uint16(bits).view(half))
        out[f"{dtype}_bits"] = lambda value, half=half: half(value).view(np.uint16)
        out[f"{dtype}_rounded"] = lambda value, half=half: np.float32(half(value))
    return out


def compiled() -> dict[str, Any]:
    """Return the functions by name, for numba's compiler."""
    return {
        "bf16_value": function(types.float32, types.uint16, _bf16_value),
        "bf16_bits": function(types.uint16, types.float32, _bf16_bits),
        "bf16_rounded": function(types.float32, types.float32, _bf16_rounded),
        "f16_value": function(types.float32, types.uint16, _f16_value),
        "f16_bits": function(types.uint16, types.float32, _f16_bits),
        "f16_rounded": function(types.float32, types.float32, lambda b, value: _f16_value(b, _f16_bits(b, value))),
    }


def _bf16_value(builder: Any, bits: Any) -> Any:
    return builder.bitcast(builder.shl(builder.zext(bits, _I32), _I32(16)), F32)


def _bf16_bits(builder: Any, value: Any) -> Any:
    """Values are rounded before, so that nothing is lost."""
    return builder.trunc(builder.lshr(builder.bitcast(value, _I32), _I32(16)), I16)


def _bf16_rounded(builder: Any, value: Any) -> Any:
    nearest = ir.InlineAsm(ir.FunctionType(I16, [F32]), "cvt.rn.bf16.f32 $0, $1;", "=h,f")
    return _bf16_value(builder, builder.call(nearest, [value]))


def _f16_value(builder: Any, bits: Any) -> Any:
    return builder.fpext(builder.bitcast(bits, F16), F32)


def _f16_bits(builder: Any, value: Any) -> Any:
    return builder.bitcast(builder.fptrunc(value, F16), I16)
