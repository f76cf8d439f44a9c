"""What numba lacks around a warp: maxima that pass NaN on in one instruction, and shuffles in the simulator."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from frittata.kernels.cuda.intrinsics import function

WARP = 32
"""The threads that run together."""
_LEAST_CAPABILITY = (8, 0)
_PATIENCE_S = 60.0
"""How long a simulated lane waits for the others, which may have failed."""


def extreme(name: str, capability: tuple[int, int]) -> Any:
    """Return `maximum` or `minimum` of float32 for kernels of a compute capability: NaN if either is NaN."""
    if capability < _LEAST_CAPABILITY:
        return getattr(np, name)
    kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 2)
    assembly = ir.InlineAsm(kind, f"{name[:3]}.NaN.f32 $0, $1, $2;", "=f,f,f", side_effect=False)
    return function(lambda context, builder, kinds, values: builder.call(assembly, values), types.float32, 2)


# ---- the simulator ---------------------------------------------------------------------------------------------------


_LOCK = threading.Lock()


class _Warp:
    """The lanes of a simulated warp, each a thread of the operating system, which show each other a value.

    Two lists take turns, so that nobody shows the next value where others still read the last.
    """

    def __init__(self, lanes: int) -> None:
        self.barrier = threading.Barrier(lanes, timeout=_PATIENCE_S)
        self.shown: list[list[Any]] = [[None] * lanes, [None] * lanes]
        self.turns = [0] * lanes


def exchange(value: Any) -> tuple[list[Any], int]:
    """Return what all lanes of a simulated thread's warp show, and its number among them; all of them have to ask."""
    thread: Any = threading.current_thread()
    number, lane = divmod(thread.thread_id, WARP)
    manager = thread._manager
    with _LOCK:
        warps = manager.__dict__.setdefault("warps", {})
        if number not in warps:
            warps[number] = _Warp(min(WARP, int(np.prod(manager._block_dim)) - number * WARP))
    warp: _Warp = warps[number]
    shown = warp.shown[warp.turns[lane]]
    warp.turns[lane] = 1 - warp.turns[lane]
    shown[lane] = value
    warp.barrier.wait()
    return shown, lane


def simulate() -> None:
    """Give the simulator `cuda.shfl_xor_sync`, and shared arrays of which all threads of a block get the same."""
    from numba.cuda.simulator.kernelapi import FakeCUDAModule, FakeCUDAShared

    module: Any = FakeCUDAModule
    module.shfl_xor_sync = _shuffled
    shared: Any = FakeCUDAShared
    shared.array = _shared


def _shared(self: Any, shape: int, dtype: Any, alignment: int = 1) -> Any:
    """Return the shared array of the line that asks for it, of which numba makes two if two threads ask at once."""
    own = inspect.currentframe()
    assert own is not None
    assert own.f_back is not None
    line = own.f_back.f_code.co_filename, own.f_back.f_lineno
    return self._allocations.setdefault(line, np.empty(shape, dtype))


def _shuffled(_: Any, mask: int, value: Any, distance: int) -> Any:
    shown, lane = exchange(value)
    return shown[lane ^ distance]
