"""Launching kernels: PTX becomes functions of CUDA's driver, and one prebuilt function launches rows of them.

A launch by numba's dispatcher takes 27 us for three arrays, one of these 3.5 (measured on a virtual machine).
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numpy.typing import NDArray

from frittata.egraph.errors import CompileError
from frittata.kernels.cache import KernelCache
from frittata.kernels.compile import kernel_digest
from frittata.kernels.cuda import device
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.driver import compiled

_intrinsic: Any = extending.intrinsic
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_WORDS = 4
_WORD_BYTES = 8


@dataclass(frozen=True)
class PtxSource:
    """A kernel to be compiled to PTX for a compute capability."""

    kernel: CudaKernel
    capability: tuple[int, int]

    @property
    def source(self) -> str:
        """The text."""
        return self.kernel.source

    @property
    def digest(self) -> str:
        """The content key of the PTX."""
        versions = [metadata.version(name) for name in ("numba-cuda", "cuda-bindings")]
        key = [self.capability, self.kernel.dtypes, self.kernel.threads, versions]
        return kernel_digest(self.source, json.dumps(key))

    def compile(self, cache: KernelCache | None) -> bytes:
        """Compile it, or load what was compiled before.

        Raises: CompileError if there is no compiler, or if it refuses the source.
        """
        stored = cache.load(self.digest) if cache else None
        if stored is None:
            stored = device.ptx(self.kernel, self.capability).encode()
            if cache:
                cache.store(self.digest, stored)
        return stored

    def entry(self, ptx: bytes) -> str:
        """Return the name of the kernel in its PTX."""
        found = re.search(rb"\.visible \.entry (\S+?)\(", ptx)
        assert found is not None
        return found[1].decode()


@dataclass(frozen=True)
class Launch:
    """A function of the driver, how many threads it is launched with, and how many pointers it takes."""

    function: int
    blocks: int
    threads: int
    pointers: int


class Launches:
    """Launches in order, with memory for their parameters: for one call at a time.

    Each of their pointers, in order, is a number of a memory and bytes from its start on.
    """

    def __init__(self, launches: Sequence[Launch], pointers: Sequence[tuple[int, int]]) -> None:
        self._memory, self._offset = np.array(pointers, np.int64).reshape(-1, 2).T
        self._pointers = np.zeros(len(pointers), np.int64)
        # the driver takes the address of each parameter
        self._parameters = self._pointers.ctypes.data + _WORD_BYTES * np.arange(len(pointers), dtype=np.int64)
        starts = np.cumsum([0, *(launch.pointers for launch in launches)])[: len(launches)]
        rows = [
            (launch.function, launch.blocks, launch.threads, self._parameters.ctypes.data + _WORD_BYTES * int(start))
            for launch, start in zip(launches, starts, strict=True)
        ]
        self._rows = np.array(rows, np.int64).reshape(-1, _WORDS)

    def point(self, starts: NDArray[np.int64]) -> None:
        """Say where the memories start."""
        np.add(starts[self._memory], self._offset, out=self._pointers)

    def run(self, first: int, count: int, stream: int) -> None:
        """Launch some of them in a stream.

        Raises: CompileError if the driver refuses one.
        """
        failed = _walk(self._rows.ctypes.data + _WORDS * _WORD_BYTES * first, count, _launcher(), stream)
        if failed:
            driver = _driver()
            check((driver.CUresult(failed),))


@_intrinsic
def _launch(_context: Any, launcher: Any, row: Any, stream: Any) -> Any:
    """Call `cuLaunchKernel` with what a row says, and return what it returns."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        launcher, row, stream = arguments
        words = builder.inttoptr(row, _I64.as_pointer())
        function, blocks, threads, parameters = (
            builder.load(builder.gep(words, [_I32(number)])) for number in range(_WORDS)
        )
        kind = ir.FunctionType(_I32, [_I64, *[_I32] * 7, _I64, _I64, _I64])
        call = builder.inttoptr(launcher, kind.as_pointer())
        one, none = _I32(1), _I64(0)
        grid = [builder.trunc(blocks, _I32), one, one, builder.trunc(threads, _I32), one, one]
        return builder.call(call, [function, *grid, _I32(0), stream, parameters, none])

    return types.int32(types.int64, types.int64, types.int64), generate


@compiled
def _walk(rows: Any, count: Any, launcher: Any, stream: Any) -> Any:
    """Launch rows; stop at the first that fails, and return what the driver says of it."""
    for number in range(count):
        failed = _launch(launcher, rows + 32 * number, stream)
        if failed != 0:
            return failed
    return 0


# ---- the driver ------------------------------------------------------------------------------------------------------


@cache
def loaded(source: PtxSource, ptx: bytes, device: int) -> int:
    """Return the driver's function for a kernel, in the current context, which is that of `device`, where it stays.

    Raises: CompileError if the driver cannot compile it: PTX that is newer than the driver, for one.
    """
    driver = _driver()
    (module,) = check(driver.cuModuleLoadData(ptx + b"\0"), f"kernel {source.kernel.name}")
    (found,) = check(driver.cuModuleGetFunction(module, source.entry(ptx).encode()), f"kernel {source.kernel.name}")
    return int(found)


def check(returned: tuple[Any, ...], what: str = "a launch") -> tuple[Any, ...]:
    """Return what a call of the driver gives besides its status.

    Raises: CompileError if the status is not success.
    """
    status, *found = returned
    driver = _driver()
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        told = text.decode() if isinstance(text, bytes) else str(text)
        raise CompileError(f"CUDA's driver refuses {what}: {told} ({status.name})")
    return tuple(found)


@cache
def _launcher() -> int:
    """Return the address of `cuLaunchKernel`."""
    driver = _driver()
    address, _ = check(driver.cuGetProcAddress(b"cuLaunchKernel", 12000, 0), "its own entry point")
    return int(address)


@cache
def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")
