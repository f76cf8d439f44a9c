"""Products by cuBLAS: which bodies it takes, and what it is called with. A stand-in for it reads host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernel_cases import CASES, Case, assert_agrees, build, element, load, number, reindex, transposed

from frittata.egraph import dtypes, program, shapes
from frittata.egraph.errors import CompileError, LoweringError
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.machine import REFERENCE_GPU, Machine
from frittata.egraph.terms import Term
from frittata.kernels.cuda import launch, library
from frittata.kernels.cuda.launch import Launch, Launches, Part


def dot(left: Term, right: Term, depth: int) -> Term:
    return element("dot", left, right, depth=depth)


def cast(e: Term, *dtypes_: str) -> Term:
    for dtype in dtypes_:
        e = element("cast", e, dtype=dtype)
    return e


def halves(dtype: str, *shape: int) -> Term:
    return cast(load(f"{dtype}_{shape[0]}", *shape, dtype=dtype), "f32")


def squares(dtype: str, rows: int, columns: int) -> Term:
    """Return the product of a matrix of halves with itself turned, in float32."""
    side = halves(dtype, rows, columns)
    return dot(side, transposed(side), columns)


def below(e: Term, rows: int, columns: int) -> Term:
    """Return the last rows of a matrix."""
    first = shapes.concrete(e.shape)[-2] - rows
    return reindex(e, IndexMap(e.shape, (rows, columns), (var(-2, rows) + first, var(-1, columns))))


A, B = load("a", 7, 13), load("b", 13, 5)
HELD = (
    Case("turned left", (build(dot(transposed(load("a", 13, 7)), B, 13), 7, 5),)),
    Case("turned right", (build(dot(A, transposed(load("b", 5, 13)), 13), 7, 5),)),
    Case("both turned", (build(dot(transposed(load("a", 13, 7)), transposed(load("b", 5, 13)), 13), 7, 5),)),
    Case("with itself", (build(dot(A, transposed(A), 13), 7, 7),)),
    Case("part", (build(dot(below(load("a", 11, 13), 7, 13), below(load("b", 17, 5), 13, 5), 13), 7, 5),)),
    Case("stack", (build(dot(load("a", 3, 7, 13), load("b", 3, 13, 5), 13), 3, 7, 5),)),
    Case("stack by one", (build(dot(load("a", 3, 7, 13), B, 13), 3, 7, 5),)),
    Case("turned stack", (build(dot(load("a", 3, 7, 13), transposed(load("b", 3, 5, 13)), 13), 3, 7, 5),)),
    Case("column", (build(dot(A, load("b", 13, 1), 13), 7, 1),)),
    Case("row", (build(dot(load("a", 1, 13), B, 13), 1, 5),)),
    Case("one deep", (build(dot(load("a", 7, 1), load("b", 1, 5), 1), 7, 5),)),
    *(Case(dtype, (build(element("cast", squares(dtype, 7, 13), dtype=dtype), 7, 7),)) for dtype in ("f16", "bf16")),
    Case("wide sums", (build(squares("f16", 7, 13), 7, 7),)),
)
OTHERS = {
    "bias": element("add", dot(A, B, 13), load("c", 5)),
    "scale": element("mul", dot(A, B, 13), number(2)),
    "before": dot(element("exp", A), B, 13),
    "integers": dot(load("a", 7, 13, dtype="i32"), load("b", 13, 5, dtype="i32"), 13),
    "repeated": dot(A, reindex(load("b", 13), IndexMap((13,), (13, 5), (var(-2, 13),))), 13),
    "two casts": cast(dot(A, B, 13), "i32", "f32"),
    "truth": cast(dot(A, B, 13), "bool", "f32"),
    "rounded twice": cast(dot(halves("f16", 7, 13), halves("f16", 13, 5), 13), "f16", "f32"),
    "wider": cast(dot(A, B, 13), "f64"),
    "narrower": cast(dot(load("a", 7, 13, dtype="f64"), load("b", 13, 5, dtype="f64"), 13), "f32"),
    "half of a float": cast(dot(A, B, 13), "bf16"),
    "other half": cast(dot(halves("f16", 7, 13), halves("f16", 13, 5), 13), "bf16"),
    "two halves": dot(halves("f16", 7, 13), halves("bf16", 13, 5), 13),
    "a half and a float": dot(halves("bf16", 7, 13), B, 13),
    "a half of both": cast(dot(A, halves("bf16", 13, 5), 13), "bf16"),
    "every other": dot(A, reindex(load("b", 13, 10), IndexMap((13, 10), (13, 5), (var(-2, 13), var(-1, 5) * 2))), 13),
}


def price(bodies: tuple[Term, ...], machine: Machine = REFERENCE_GPU) -> float | None:
    """Return the least price of a library template, in seconds."""
    found = [template.estimate(bodies, frozenset(), machine) for template in library.LIBRARIES]
    return min((estimate.seconds for estimate in found if estimate is not None), default=None)


TAKEN = [case for case in CASES if price(case.bodies) is not None]
_DTYPE_BY_KIND = {0: np.float32, 1: np.float64, 2: np.float16, 14: dtypes.to_numpy("bf16")}
_I32, _I64 = ctypes.c_int32, ctypes.c_int64


def gemm(*given: Any) -> int:
    """Do what cublasGemmStridedBatchedEx does, on host memory."""
    _, transa, transb, m, n, k, alpha, a, a_kind, lda, over_a, b, b_kind, ldb, over_b, beta, c, c_kind, ldc, over_c = (
        given[:20]
    )
    batches, sums, way = given[20:]
    wide, number = (np.float64, ctypes.c_double) if sums == 70 else (np.float32, ctypes.c_float)
    assert sums in (68, 70) and way == -1
    assert (number.from_address(alpha).value, number.from_address(beta).value) == (1, 0)

    def matrix(start: int, kind: int, rows: int, columns: int, line: int) -> Any:
        dtype = np.dtype(_DTYPE_BY_KIND[kind])
        assert line >= rows
        size = line * (columns - 1) + rows
        memory: Any = (ctypes.c_byte * (size * dtype.itemsize)).from_address(start)
        flat = np.frombuffer(memory, dtype)
        strides = (dtype.itemsize, line * dtype.itemsize)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), strides, writeable=True)

    for g in range(batches):
        sizes = [np.dtype(_DTYPE_BY_KIND[kind]).itemsize for kind in (a_kind, b_kind, c_kind)]
        starts = [s + g * over * size for s, over, size in zip((a, b, c), (over_a, over_b, over_c), sizes, strict=True)]
        left = matrix(starts[0], a_kind, *((k, m) if transa else (m, k)), lda).astype(wide)
        right = matrix(starts[1], b_kind, *((n, k) if transb else (k, n)), ldb).astype(wide)
        product = (left.T if transa else left) @ (right.T if transb else right)
        matrix(starts[2], c_kind, m, n, ldc)[...] = product
    return 0


def stand_in(monkeypatch: pytest.MonkeyPatch, function: Callable[..., int]) -> Any:
    kind = ctypes.CFUNCTYPE(
        _I32, _I64, *[_I32] * 5, _I64, _I64, _I32, _I32, _I64, _I64, _I32, _I32, _I64, _I64, _I64, _I32, _I32, _I64,
        *[_I32] * 3,
    )  # fmt: skip
    made = kind(function)
    monkeypatch.setattr(library, "gemm", lambda: ctypes.cast(made, ctypes.c_void_p).value)
    monkeypatch.setattr(library, "handle", lambda device, stream: 5)
    monkeypatch.setattr(launch, "address", lambda name: 0)
    return made


def run(case: Case, values: list[Any]) -> tuple[Any, ...]:
    call = library.LIBRARY.call(case.name, case.bodies)
    given = dict(zip(case.program("library").inputs, values, strict=True))
    operands = [np.ascontiguousarray(given[leaf.attrs[0]]) for leaf in program.operands_of(*case.bodies)]
    (body,) = case.bodies
    result = np.full(shapes.concrete(body.shape), 7, dtypes.to_numpy(body.dtype))
    memories = [*operands, result]
    parts = [
        Part(position, start * memories[position].itemsize, memories[position].size, memories[position].itemsize)
        for position, start in call.places
    ]
    launches = Launches([Launch(0, 0, 0, tuple(parts), call.words)])
    launches.point(np.array([memory.ctypes.data for memory in memories], np.int64))
    launches.run(0, 1, 0)
    return (result,)


@pytest.mark.parametrize("case", [*HELD, *TAKEN], ids=lambda case: case.name)
def test_products_agree_with_the_interpreter(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = stand_in(monkeypatch, gemm)
    values = case.values()
    assert_agrees(case, run(case, values), case.expected(values))
    assert kept is not None


@pytest.mark.parametrize("name", OTHERS)
def test_other_bodies_are_not_taken(name: str) -> None:
    bodies = (build(OTHERS[name], 7, 5),)
    assert price(bodies) is None
    with pytest.raises(LoweringError, match="one product of plain matrices"):
        library.LIBRARY.call("other", bodies)


def test_large_products_are_predicted_by_their_flops_and_halves_faster() -> None:
    n = 4096
    wide = (build(dot(load("a", n, n), load("b", n, n), n), n, n),)
    narrow = (build(element("cast", squares("bf16", n, n), dtype="bf16"), n, n),)
    seconds = price(wide), price(narrow)
    assert seconds[0] is not None and seconds[1] is not None
    assert 40e12 < 2 * n**3 / seconds[0] < 60e12
    assert seconds[1] < seconds[0] / 10


def test_halves_need_a_level_that_lets_sums_be_cut_off() -> None:
    taking = {"f32": "exact", "f64": "exact", "f16": "reassoc", "bf16": "reassoc"}
    for dtype, level in taking.items():
        operands = load("a", 64, 64, dtype=dtype), load("b", 64, 64, dtype=dtype)
        left, right = (cast(e, "f32") for e in operands) if dtypes.is_half(dtype) else operands
        bodies = (build(dot(left, right, 64), 64, 64),)
        found = [t for t in library.LIBRARIES if t.estimate(bodies, frozenset(), REFERENCE_GPU) is not None]
        assert [program.level_of(template) for template in found] == [level]


def test_a_profile_without_a_library_has_no_price() -> None:
    assert price((build(dot(A, B, 13), 7, 5),), replace(REFERENCE_GPU, library_gemm_share=0.0)) is None


def test_what_the_library_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = stand_in(monkeypatch, lambda *given: 13)
    with pytest.raises(CompileError, match="status 13"):
        run(TAKEN[0], TAKEN[0].values())
    assert kept is not None


def test_each_thread_has_a_handle_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def create(place: Any) -> int:
        made.append(len(made) + 1)
        place._obj.value = made[-1]
        return 0

    def succeed(*given: Any) -> int:
        return 0

    cublas = SimpleNamespace(cublasCreate_v2=create, cublasSetMathMode=succeed, cublasSetStream_v2=succeed)
    monkeypatch.setattr(library, "_library", lambda: cublas)

    def handles() -> list[int]:
        assert not library.has_handle(0)
        found = [library.handle(device, stream) for device in (0, 1, 0) for stream in (3, 4)]
        assert library.has_handle(0) and not library.has_handle(2)
        return found

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        assert [pool.submit(handles).result() for pool in (one, other)] == [[1, 1, 2, 2, 1, 1], [3, 3, 4, 4, 3, 3]]


def test_products_run_by_the_handle_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    kept = stand_in(monkeypatch, lambda *given: 0)
    monkeypatch.setattr(library, "handle", lambda device, stream: asked.append((device, stream)) or 5)
    call = library.LIBRARY.call(TAKEN[0].name, TAKEN[0].bodies)
    Launches([Launch(0, 0, 0, (Part(0, 0, 1, 4),) * 3, call.words)], 1).run(0, 1, 7)
    assert asked == [(1, 7)]
    assert kept is not None
