"""Launching kernels: PTX becomes functions of CUDA's driver, and one prebuilt function launches rows of them.

A launch by numba's dispatcher takes 27 us for three arrays, one of these 3.5 (measured on a virtual machine).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import groupby
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numpy.typing import NDArray

from frittata.egraph.errors import CompileError
from frittata.kernels.cache import KernelCache
from frittata.kernels.compile import kernel_digest
from frittata.kernels.cuda import device, library
from frittata.kernels.cuda.driver import address, check
from frittata.kernels.cuda.graphs import FEWEST, Graph
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.driver import compiled

_intrinsic: Any = extending.intrinsic
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_WORDS = 4
_WORD_BYTES = 8
_ARRAY_WORDS, _ADDRESS = 7, 4
_F32_ONE, _F64_ONE = 0x3F800000, 0x3FF0000000000000
_SUMS_F64 = 70
_LOG_BYTES = 8192
_DEFAULT_WAY = -1
"""The algorithm that cuBLAS chooses by itself."""


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
        kernel = self.kernel
        key = [self.capability, kernel.dtypes, kernel.status_words, kernel.threads, kernel.resident, _versions()]
        return kernel_digest(self.source, json.dumps(key))

    def find(self, cache: KernelCache | None) -> bytes | None:
        """Return the PTX that the cache has."""
        return cache.load(self.digest) if cache else None

    def compile(self, cache: KernelCache | None) -> bytes:
        """Compile it, unless it is found.

        Raises: CompileError if there is no compiler, or if it refuses the source.
        """
        ptx = self.find(cache)
        if ptx is None:
            ptx = device.ptx(self.kernel, self.capability).encode()
            if cache:
                cache.store(self.digest, ptx)
        return ptx

    def entry(self, ptx: bytes) -> str:
        """Return the name of the kernel in its PTX."""
        found = re.search(rb"\.visible \.entry (\S+?)\(", ptx)
        assert found is not None
        return found[1].decode()


@cache
def _versions() -> list[Any]:
    """Return the versions of all that makes PTX; the compiler need be no package, but is of the toolkit."""
    names = ("numba-cuda", "cuda-bindings", "nvidia-nvvm")
    return [device.toolkit(), *((name, each.version) for name in names for each in metadata.distributions(name=name))]


@dataclass(frozen=True)
class Part:
    """A flat array that a kernel takes: `size` elements, `start` bytes from where memory number `memory` begins."""

    memory: int
    start: int
    size: int
    itemsize: int


@dataclass(frozen=True)
class Launch:
    """A function of the driver, how many threads it is launched with, and the arrays that it takes.

    With `product`, what cuBLAS takes besides pointers, it is called instead.
    """

    function: int
    blocks: int
    threads: int
    parts: tuple[Part, ...]
    product: tuple[int, ...] = ()


class Launches:
    """Launches in order on one device, with memory for their parameters: for one call at a time."""

    def __init__(self, launches: Sequence[Launch], device: int = 0) -> None:
        self._device = device
        parts = [part for launch in launches for part in launch.parts]
        self._memory = np.array([part.memory for part in parts], np.int64)
        self._offset = np.array([part.start for part in parts], np.int64)
        # what numba makes of an array: two words that are 0, its size, its itemsize, its address, extent and stride
        self._words = np.array([(0, 0, p.size, p.itemsize, 0, p.size, p.itemsize) for p in parts], np.int64)
        self._words = self._words.reshape(-1, _ARRAY_WORDS)
        self._addresses = self._words[:, _ADDRESS]
        # the driver takes the address of each
        self._parameters = self._words.ctypes.data + _WORD_BYTES * np.arange(self._words.size, dtype=np.int64)
        self._products = [np.array(launch.product, np.int64) for launch in launches]
        firsts = np.cumsum([0, *(_ARRAY_WORDS * len(launch.parts) for launch in launches)])[: len(launches)]
        rows = [
            (
                product.ctypes.data if launch.product else launch.function,
                launch.blocks,
                launch.threads,
                self._parameters.ctypes.data + _WORD_BYTES * int(first),
            )
            for launch, product, first in zip(launches, self._products, firsts, strict=True)
        ]
        self._rows = np.array(rows, np.int64).reshape(-1, _WORDS)
        self._first_row = self._rows.ctypes.data
        self._row_by_part = np.repeat(np.arange(len(launches)), [len(launch.parts) for launch in launches])
        self._calls_library = any(launch.product for launch in launches)
        self._pieces_by_run: dict[tuple[int, int], list[tuple[int, int, Graph | None]]] = {}

    def point(self, starts: NDArray[np.int64]) -> None:
        """Say where the memories start."""
        np.add(starts[self._memory], self._offset, out=self._addresses)

    def run(self, first: int, count: int, stream: int) -> None:
        """Launch some of them in a stream, by graphs from the second time on: the first may be the only, or captured.

        Raises: CompileError if the driver refuses one.
        """
        run = first, count
        if run not in self._pieces_by_run:
            self._pieces_by_run[run] = []
            return self._walk(first, count, stream)
        if not self._pieces_by_run[run]:
            self._pieces_by_run[run] = self._pieces(first, count)
        for at, length, graph in self._pieces_by_run[run]:
            if graph is None:
                self._walk(at, length, stream)
            else:
                graph.run(stream)

    def _pieces(self, first: int, count: int) -> list[tuple[int, int, Graph | None]]:
        """Split a run into many kernels in a row, each with its graph, and what is between them."""
        out: list[tuple[int, int, Graph | None]] = []
        rows = range(first, first + count)
        for is_kernel, found in groupby(rows, lambda row: not self._products[row].size):
            part = [*found]
            if is_kernel and len(part) >= FEWEST:
                out.append((part[0], len(part), self._graph(part[0], part[-1] + 1)))
            elif out and out[-1][2] is None:
                at, length, _ = out.pop()
                out.append((at, length + len(part), None))
            else:
                out.append((part[0], len(part), None))
        return out

    def _graph(self, first: int, end: int) -> Graph:
        low, high = np.searchsorted(self._row_by_part, (first, end))
        return Graph(self._rows[first:end], self._addresses[low:high], self._row_by_part[low:high] - first)

    def _walk(self, first: int, count: int, stream: int) -> None:
        multiplier, handle = (library.gemm(), library.handle(self._device, stream)) if self._calls_library else (0, 0)
        row = self._first_row + _WORDS * _WORD_BYTES * first
        failed = _walk(row, count, address("cuLaunchKernel"), stream, multiplier, handle)
        if failed < 0:
            raise CompileError(f"cuBLAS refuses a product: status {-failed}", do="optimize with library=False")
        if failed:
            check((device.driver().CUresult(failed),))


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


@_intrinsic
def _is_product(_context: Any, row: Any) -> Any:
    """Whether a row is for cuBLAS: it has no blocks."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        words = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.icmp_signed("==", builder.load(builder.gep(words, [_I32(1)])), _I64(0))

    return types.boolean(types.int64), generate


@_intrinsic
def _multiply(_context: Any, multiplier: Any, row: Any, handle: Any) -> Any:
    """Call `cublasGemmStridedBatchedEx` with what a row says, by the names in `library.WORDS`."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        multiplier, row, handle = arguments

        def word(words: Any, number: int) -> Any:
            return builder.load(builder.gep(words, [_I32(number)]))

        def pointer(address: Any) -> Any:
            return builder.inttoptr(address, _I64.as_pointer())

        words, parameters = pointer(word(pointer(row), 0)), pointer(word(pointer(row), 3))
        a, b, c = (word(pointer(word(parameters, _ARRAY_WORDS * n + _ADDRESS)), 0) for n in range(3))
        (transa, transb, m, n, k, a_kind, lda, over_a, b_kind, ldb, over_b, c_kind, ldc, over_c, batches, sums) = (
            word(words, number) for number in range(len(library.WORDS))
        )
        is_wide = builder.icmp_signed("==", sums, _I64(_SUMS_F64))
        one, zero = cgutils.alloca_once(builder, _I64), cgutils.alloca_once(builder, _I64)
        builder.store(builder.select(is_wide, _I64(_F64_ONE), _I64(_F32_ONE)), one)
        builder.store(_I64(0), zero)

        def small(value: Any) -> Any:
            return builder.trunc(value, _I32)

        taken = [handle, small(transa), small(transb), small(m), small(n), small(k), one]
        taken += [a, small(a_kind), small(lda), over_a, b, small(b_kind), small(ldb), over_b, zero]
        taken += [c, small(c_kind), small(ldc), over_c, small(batches), small(sums), _I32(_DEFAULT_WAY)]
        kind = ir.FunctionType(_I32, [value.type for value in taken])
        return builder.call(builder.inttoptr(multiplier, kind.as_pointer()), taken)

    return types.int32(types.int64, types.int64, types.int64), generate


@compiled
def _walk(rows: Any, count: Any, launcher: Any, stream: Any, multiplier: Any, handle: Any) -> Any:
    """Launch rows; stop at the first that fails, and return what the driver says of it, negative if it is cuBLAS."""
    for number in range(count):
        row = rows + _WORDS * _WORD_BYTES * number
        failed = -_multiply(multiplier, row, handle) if _is_product(row) else _launch(launcher, row, stream)
        if failed != 0:
            return failed
    return 0


# ---- the driver ------------------------------------------------------------------------------------------------------


@cache
def loaded(source: PtxSource, ptx: bytes, number: int) -> int:
    """Return the driver's function for a kernel, in the current context, that of device `number`, where it stays.

    Raises: CompileError if the driver cannot compile it: PTX that is newer than the driver, for one.
    """
    driver = device.driver()
    what, log, option = f"kernel {source.kernel.name}", bytearray(_LOG_BYTES), driver.CUjit_option
    options = {option.CU_JIT_ERROR_LOG_BUFFER: log, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(log)}
    returned = driver.cuModuleLoadDataEx(ptx + b"\0", len(options), [*options], [*options.values()])
    (module,) = check(returned, what, log)
    (found,) = check(driver.cuModuleGetFunction(module, source.entry(ptx).encode()), what)
    return int(found)
