"""Launches one after the other as one graph of CUDA's driver: a stream takes it for little more than one launch.

A launch takes the host 4 to 10 us, most kernels of small models the device 2 to 6.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.kernels.cuda import device
from frittata.kernels.cuda.driver import address, check

FEWEST = 4
"""With fewer launches than this a graph is not worth what it takes itself."""
_PARAMETERS = np.dtype(
    [
        ("function", np.int64),
        *((f"{name}_{axis}", np.uint32) for name in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", np.uint32),
        *((name, np.int64) for name in ("parameters", "extra", "kernel", "context")),
    ],
    align=True,
)
"""`CUDA_KERNEL_NODE_PARAMS_v2`."""
_Words = NDArray[np.int64]
_Pointer, _Size = ctypes.c_void_p, ctypes.c_size_t
_KIND_BY_NAME = {
    "cuGraphCreate": (_Pointer, ctypes.c_uint),
    "cuGraphAddKernelNode": (_Pointer, _Pointer, _Pointer, _Size, _Pointer),
    "cuGraphInstantiate": (_Pointer, _Pointer, ctypes.c_ulonglong),
    "cuGraphExecKernelNodeSetParams": (_Pointer, _Pointer, _Pointer),
    "cuGraphLaunch": (_Pointer, _Pointer),
    "cuGraphExecDestroy": (_Pointer,),
    "cuGraphDestroy": (_Pointer,),
}
"""What the driver's functions take."""


class Graph:
    """Kernels in order. What they take is read again at each run: it may have moved since.

    Raises: CompileError if the driver refuses it.
    """

    def __init__(self, rows: _Words, addresses: _Words, row_by_address: _Words) -> None:
        """`rows`: function, blocks, threads, and where pointers to its parameters lie, which hold `addresses`."""
        self._addresses, self._row_by_address = addresses, row_by_address
        self._known = addresses.copy()
        self._parameters = np.zeros(len(rows), _PARAMETERS)
        for name, column in (("function", 0), ("grid_x", 1), ("block_x", 2), ("parameters", 3)):
            self._parameters[name] = rows[:, column]
        for name in ("grid_y", "grid_z", "block_y", "block_z"):
            self._parameters[name] = 1
        self._graph, self._nodes = _Pointer(), [_Pointer() for _ in rows]
        self._executable = _Pointer()
        _call("cuGraphCreate", ctypes.byref(self._graph), 0)
        weakref.finalize(self, _destroy, "cuGraphDestroy", self._graph).atexit = False
        for number, node in enumerate(self._nodes):
            before = ctypes.byref(self._nodes[number - 1]) if number else None
            of_node = self._parameters_of(number)
            _call("cuGraphAddKernelNode", ctypes.byref(node), self._graph, before, int(number > 0), of_node)
        _call("cuGraphInstantiate", ctypes.byref(self._executable), self._graph, 0)
        weakref.finalize(self, _destroy, "cuGraphExecDestroy", self._executable).atexit = False

    def run(self, stream: int) -> None:
        """Run it in a stream, with the addresses of now.

        Raises: CompileError if the driver refuses it.
        """
        moved = self._addresses != self._known
        if moved.any():
            for number in dict.fromkeys(self._row_by_address[moved].tolist()):
                of_node = self._parameters_of(number)
                _call("cuGraphExecKernelNodeSetParams", self._executable, self._nodes[number], of_node)
            self._known[moved] = self._addresses[moved]
        _call("cuGraphLaunch", self._executable, stream)

    def _parameters_of(self, number: int) -> int:
        return self._parameters.ctypes.data + number * _PARAMETERS.itemsize


def _call(name: str, *arguments: Any) -> None:
    failed = _function(name)(*arguments)
    if failed:
        check((device.driver().CUresult(failed),), "a graph of launches")


def _destroy(name: str, handle: Any) -> None:
    """Give back what a handle stands for; the driver waits until the device is done with it."""
    _function(name)(handle)


@cache
def _function(name: str) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *_KIND_BY_NAME[name])(address(name))
