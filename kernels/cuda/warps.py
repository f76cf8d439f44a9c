"""What numba lacks around a warp: maxima that pass NaN on in one instruction, and shuffles in the simulator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

WARP = 32
"""The threads that run together."""
_LEAST_CAPABILITY = (8, 0)
_PATIENCE_S = 60.0
"""How long a simulated lane waits for the others, which may have failed."""


def extreme(name: str, capability: tuple[int, int]) -> Any:
    """Return `maximum` or `minimum` of float32 for kernels of a compute capability: NaN if either is NaN."""
    if capability < _LEAST_CAPABILITY:
        return getattr(np, name)
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    instruction = f"{name[:3]}.NaN.f32 $0, $1, $2;"

    def definition(_: Any, a: Any, b: Any) -> Any:
        if a != types.float32 or b != types.float32:
            return None

        def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
            single = ir.FloatType()
            assembly = ir.InlineAsm(ir.FunctionType(single, [single] * 2), instruction, "=f,f,f", side_effect=False)
            return builder.call(assembly, args)

        return types.float32(types.float32, types.float32), code

    return intrinsic(definition)


# ---- the simulator ---------------------------------------------------------------------------------------------------


class _Warp:
    """The lanes of one simulated warp: what each shows the others, and where they wait for each other."""

    def __init__(self, lanes: int) -> None:
        self.shown: list[Any] = [None] * lanes
        self.barrier = threading.Barrier(lanes, timeout=_PATIENCE_S)


_LOCK = threading.Lock()


def simulate() -> None:
    """Give the simulator `cuda.shfl_xor_sync`: all lanes of a warp exchange values."""
    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    module: Any = FakeCUDAModule
    if not hasattr(module, "shfl_xor_sync"):
        module.shfl_xor_sync = _exchanged


def _exchanged(_: Any, mask: int, value: Any, distance: int) -> Any:
    thread: Any = threading.current_thread()
    number, lane = divmod(thread.thread_id, WARP)
    manager = thread._manager
    with _LOCK:
        found = manager.__dict__.setdefault("warps", {})
        if number not in found:
            found[number] = _Warp(min(WARP, int(np.prod(manager._block_dim)) - number * WARP))
    warp: _Warp = found[number]
    warp.shown[lane] = value
    warp.barrier.wait()
    out = warp.shown[lane ^ distance]
    warp.barrier.wait()
    return out
