"""Products of plain matrices by cuBLAS, where it is installed, called by the function that launches kernels.

All products are by float32 or float64 units, or by those for halves with sums in float32: never in TF32. Tensor cores
cut off what they add below the last place of a sum, so that products of halves are of level `reassoc`, as `tensor` is.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from frittata.egraph import program
from frittata.egraph.errors import CompileError, LoweringError
from frittata.egraph.indexing import Affine
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels.contractions import Contraction, Side
from frittata.kernels.cuda.kernel import ceil_div
from frittata.kernels.halves import HALVES
from frittata.kernels.templates import contraction, convolution

_KIND_BY_DTYPE = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
"""`cudaDataType` of matrices."""
_COMPUTE_BY_DTYPE = {"f32": 68, "f64": 70}
"""`cublasComputeType_t` of sums."""
_TAKEN = frozenset({
    *((dtype, dtype, dtype) for dtype in ("f32", "f64")),
    *((half, result, "f32") for half in HALVES for result in (half, "f32")),
})  # fmt: skip
"""Dtypes of both operands, of the result and of sums that go together: table of `cublasGemmEx` in cuBLAS's manual."""
_SUMS_STAY_WIDE = 16
"""The math mode that adds parts of sums in float32, never in halves."""
_TILE = 64
_DEEP = 768
_BEGIN_S, _MEET_S = 2e-6, 5e-6
"""What a product takes besides arithmetic, and what adding the parts of a deep one takes. Measured on an H200."""
_HALVES_RATE = 14.0
"""How many times as fast as float32 products of halves are. Measured on an H200."""
_LIMIT = 1 << 31


@dataclass(frozen=True)
class LibraryCall:
    """C = A B as cuBLAS sees it, column-major: `words` are what it takes besides pointers, by the names in `WORDS`.

    `places` give A, B and C: the position among the operands and results, and elements from its start on.
    """

    name: str
    words: tuple[int, ...]
    places: tuple[tuple[int, int], ...]

    status_words = 0

    @property
    def source(self) -> str:
        """The call, for readers."""
        given = ", ".join(f"{name}={word}" for name, word in zip(WORDS, self.words, strict=True))
        return f"# {self.name}: cublasGemmStridedBatchedEx({given})\n"


@dataclass(frozen=True)
class LibraryTemplate:
    """Takes one product of plain matrices, or a stack of such products; nothing fused."""

    dtypes: tuple[str, ...]
    """Of operands."""
    level: str = "exact"
    least_capability: tuple[int, int] = (0, 0)

    name = "library"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of arithmetic, in whole tiles, and memory; None for other bodies, or without a library."""
        found = _found(bodies)
        dtype = next(program.operands_of(*bodies)).dtype if found is not None else ""
        if found is None or dtype not in self.dtypes or machine.library_gemm_share == 0:
            return None
        work, _ = found
        halves = dtype in HALVES
        rate = 2 * machine.fma_f32_per_s * machine.library_gemm_share * (_HALVES_RATE if halves else 4 / work.itemsize)
        tiles = ceil_div(work.rows, _TILE) * ceil_div(work.columns, _TILE)
        whole = 2.0 * work.batches * tiles * _TILE**2 * work.depth
        moved = float(sum(size_bytes(term) for term in (*bodies, *program.operands_of(*bodies))))
        meet_s = 0.0 if halves else _MEET_S * min(1.0, work.depth / _DEEP)
        seconds = max(machine.launch_s, _BEGIN_S) + meet_s + max(whole / rate, machine.transfer_s(moved))
        return Estimate(seconds, work.flops, moved)

    def call(self, name: str, bodies: tuple[Term, ...]) -> LibraryCall:
        """Return the call that computes `bodies`, whatever the dtype of their operands.

        Raises: LoweringError for other bodies.
        """
        found = _found(bodies)
        if found is None:
            raise LoweringError("the library template takes one product of plain matrices")
        return LibraryCall(name, *found[1])


LIBRARY = LibraryTemplate(("f32", "f64"))
LIBRARIES = (LIBRARY, LibraryTemplate(("f16",), "reassoc"), LibraryTemplate(("bf16",), "reassoc", (8, 0)))
"""A template for each level and compute capability; any of them writes the calls of all."""

_Call = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
WORDS = (
    *("transa", "transb", "m", "n", "k", "Atype", "lda", "strideA", "Btype", "ldb", "strideB", "Ctype", "ldc"),
    *("strideC", "batchCount", "computeType"),
)


@lru_cache(maxsize=4096)
def _found(bodies: tuple[Term, ...]) -> tuple[Contraction, _Call] | None:
    if len(bodies) != 1 or bodies[0].op != "build":
        return None
    for describe in (contraction.describe, convolution.describe):
        work = describe(bodies)
        if work is not None:
            call = _call(work)
            return None if call is None else (work, call)
    return None


def _call(work: Contraction) -> _Call | None:
    """Describe a product to cuBLAS, which sees row-major matrices as transposed: C^T = B^T A^T."""
    (body,) = work.bodies
    (offset,) = work.output_offsets
    if not _stores_product(body, work.product):
        return None
    if offset.factor_of("j") != 1 and offset.factor_of("i") == 1:
        work = work.turned()
        (offset,) = work.output_offsets
    operands = list(program.operands_of(body))
    words: list[int] = []
    places: list[tuple[int, int]] = []
    ops: list[int] = []
    for side, key in ((work.right, "j"), (work.left, "i")):
        found = _matrix(side, key, work)
        if found is None:
            return None
        leaf, runs_along_depth, *steps, start = found
        if (leaf.dtype, body.dtype, work.dtype) not in _TAKEN:
            return None
        ops.append(int(runs_along_depth == (key == "j")))
        words += [_KIND_BY_DTYPE[leaf.dtype], *steps]
        places.append((operands.index(leaf), start))
    result = _linear(offset, ("i", "j", "g"))
    if result is None or len({leaf.dtype for leaf in operands}) > 1:
        return None
    line, step, over = result
    if (step != 1 and work.columns > 1) or (line < work.columns and work.rows > 1):
        return None
    words += [_KIND_BY_DTYPE[body.dtype], max(line, work.columns), over]
    places.append((len(operands), offset.constant))
    sizes = (work.columns, work.rows, work.depth)
    every = (*ops, *sizes, *words, work.batches, _COMPUTE_BY_DTYPE[work.dtype])
    return (every, tuple(places)) if max(every) < _LIMIT and min(sizes) > 0 else None


def _stores_product(body: Term, product: Term) -> bool:
    """Whether a body is a product as it is, reshaped, or cast once."""
    element, casts = body.args[0], 0
    while element is not product:
        if element.op not in ("reindex", "cast"):
            return False
        casts += element.op == "cast"
        element = element.args[0]
    return casts <= 1


def _matrix(side: Side, key: str, work: Contraction) -> tuple[Term, bool, int, int, int] | None:
    """Return a side's buffer, whether depth runs along its lines, their distance, that of matrices, and the start."""
    found = side.kept.plain()
    if found is None:
        return None
    leaf, offset = found
    extent = work.columns if key == "j" else work.rows
    steps = _linear(offset, (key, "k", "g"))
    if steps is None:
        return None
    across, along, over = steps
    if across == 1 and (along >= extent or work.depth == 1):
        return leaf, False, max(along, extent), over, offset.constant
    if along == 1 and (across >= work.depth or extent == 1):
        return leaf, True, max(across, work.depth), over, offset.constant
    return None


def _linear(offset: Affine, keys: tuple[str, str, str]) -> tuple[int, int, int] | None:
    """Return how far an offset moves for a step of each variable; None if it moves otherwise, too."""
    steps = tuple(offset.factor_of(key) for key in keys)
    if any(step is None or step < 0 for step in steps) or not offset.variables() <= set(keys):
        return None
    return steps  # type: ignore[return-value]


# ---- the library -----------------------------------------------------------------------------------------------------


@cache
def gemm() -> int:
    """Return the address of `cublasGemmStridedBatchedEx`, 0 if there is no cuBLAS."""
    library = _library()
    return 0 if library is None else ctypes.cast(library.cublasGemmStridedBatchedEx, ctypes.c_void_p).value or 0


class _OfThread(threading.local):
    """What each thread has of its own."""

    def __init__(self) -> None:
        self.handle_by_device: dict[int, ctypes.c_void_p] = {}


_of_thread = _OfThread()


def has_handle(device: int) -> bool:
    """Whether the calling thread has a handle of cuBLAS for a device; making one allocates memory."""
    return device in _of_thread.handle_by_device


def handle(device: int, stream: int) -> int:
    """Return the calling thread's handle of cuBLAS for a device, which is the current one, set to a stream.

    Raises: CompileError.
    """
    library = _library()
    assert library is not None
    found = _of_thread.handle_by_device.get(device)
    if found is None:
        found = ctypes.c_void_p()
        _check(library.cublasCreate_v2(ctypes.byref(found)))
        _check(library.cublasSetMathMode(found, _SUMS_STAY_WIDE))
        _of_thread.handle_by_device[device] = found
    _check(library.cublasSetStream_v2(found, ctypes.c_void_p(stream)))
    return found.value or 0


def _check(status: int) -> None:
    if status:
        raise CompileError(f"cuBLAS refuses a call: status {status}", do="optimize with library=False")


@cache
def _library() -> Any:
    try:
        found = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublas")
        return ctypes.CDLL(found.abs_path)
    except Exception:  # the search for it has errors of its own
        return None
