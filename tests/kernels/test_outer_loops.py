"""Outer loops mean what Python means by the same source, for integers of both signs."""

from __future__ import annotations

import ctypes
import itertools
import textwrap
from typing import Any

import numpy as np
import pytest

from frittata.egraph.errors import CompileError
from frittata.kernels.compile import compile_kernel
from frittata.kernels.intrinsics import argument, make_index_intrinsic, make_tile_intrinsic, table_pointer
from frittata.kernels.simd import I64

_SOURCES = {
    "arithmetic": """
        put(table, 0, chunk + b - a * 3)
        put(table, 1, -7 + a)
        put(table, 2, 2 - 3 * 4)
    """,
    "quotients": """
        put(table, 0, a // b)
        put(table, 1, a % b)
        put(table, 2, a // 4)
        put(table, 3, a % 6)
        put(table, 4, -7 // 2 % 3)
        put(table, 5, a // 7 - b % 5)
    """,
    "least": """
        put(table, 0, min(a, b))
        put(table, 1, max(a, 2))
        put(table, 2, min(3, 5) + max(a, min(b, 1)))
    """,
    "pairs": """
        a, b = b, a + 1
        put(table, 0, a)
        put(table, 1, b)
    """,
    "branches": """
        if a < b:
            put(table, 0, 1)
        else:
            put(table, 0, 2)
        if a % 2:
            b = 9
        put(table, 1, b)
        if 3 == 3:
            pass
    """,
    "chains": """
        if -2 <= a < b:
            put(table, 0, 1)
        if a != b:
            put(table, 1, 1)
        if a > 1:
            put(table, 2, 1)
        if a >= 1:
            put(table, 3, 1)
    """,
    "choices": """
        put(table, 0, (a if a > b else b // 2))
        put(table, 1, 5 if is_odd(table, a) else a)
    """,
    "loops": """
        s = 0
        for i in range(a):
            for j in range(i, b, 2):
                s = s * 2 + j
            i = 100
        put(table, 0, s)
    """,
    "the last turn": """
        i = 5
        for i in range(b, b + 4, 3):
            k = i
            put(table, 0, k)
        put(table, 1, i)
    """,
    "no turn": """
        k = 1
        for i in range(3, 1):
            k = 2
        for i in range(4):
            k = k + i
        put(table, 0, k)
    """,
    "a call as a statement": """
        is_odd(table, a)
        put(table, 0, argument(table, 1))
    """,
}


def _kernel_source(body: str) -> str:
    lines = "a, b = table[1], table[2]\n" + textwrap.dedent(body)
    return "def loops(table, chunk):\n" + textwrap.indent(lines, "    ")


def _put(builder: Any, table: Any, place: Any, value: Any) -> None:
    builder.store(value, builder.gep(table_pointer(builder, table, 0, "i64"), [place]))


_NAMESPACE = {
    "put": make_tile_intrinsic("put", _put, 2),
    "is_odd": make_index_intrinsic("is_odd", lambda builder, _, value: builder.and_(value, I64(1)), 1),
    "argument": argument,
}


def _python(source: str, table: list[int], chunk: int) -> list[int]:
    out = [0] * 6
    scope: dict[str, Any] = {
        "put": lambda _, place, value: out.__setitem__(place, value),
        "is_odd": lambda _, value: value & 1,
        "argument": lambda table, place: table[place],
    }
    exec(source, scope)
    scope["loops"](table, chunk)
    return out


@pytest.mark.parametrize("name", _SOURCES)
def test_source_means_what_python_means(name: str) -> None:
    source = _kernel_source(_SOURCES[name])
    kernel = compile_kernel(source, "loops", _NAMESPACE)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)
    for a, b, chunk in itertools.product((-9, -4, -1, 0, 1, 3, 6, 7), (-5, -2, 1, 2, 8), (0, 3)):
        out = np.zeros(6, np.int64)
        table = np.array([out.ctypes.data, a, b], np.int64)
        call(table.ctypes.data, chunk)
        assert out.tolist() == _python(source, [0, a, b], chunk), (a, b, chunk)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("while a:\n    pass", "outer loops have no such While: while a"),
        ("a += 1", "no such AugAssign"),
        ("put(table, 0, a / b)", "no such BinOp: a / b"),
        ("put(table, 0, a < b)", "no such Compare"),
        ("put(table, 0, not_there(table))", "there is no 'not_there'"),
        ("put(table, 0, later)", "there is no 'later'"),
        ("put(chunk, 0, 1)", "there is no 'put' to use as in: put\\(chunk, 0, 1\\)"),
        ("put(table, 0, 1.5)", "no such Constant"),
        ("if a in b:\n    pass", "no such Compare: a in b"),
        ("for i in range(a):\n    pass\nelse:\n    pass", "no such For"),
    ],
)
def test_what_outer_loops_are_not_is_an_error(body: str, what: str) -> None:
    with pytest.raises(CompileError, match=f"kernel loops does not compile: .*{what}"):
        compile_kernel(_kernel_source(body), "loops", _NAMESPACE)
