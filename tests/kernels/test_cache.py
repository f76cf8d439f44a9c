"""Compiled kernels on disk: kept, found again, and made again when damaged."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frittata.egraph.errors import CompileError
from frittata.kernels import children
from frittata.kernels import compile as compiling
from frittata.kernels.batch import KernelSource, compile_kernels
from frittata.kernels.cache import KernelCache
from frittata.kernels.compile import CompiledKernel, compile_kernel
from frittata.kernels.intrinsics import argument, make_tile_intrinsic, table_pointer
from frittata.kernels.memory import store
from frittata.kernels.simd import Lane, constant

SOURCE = "def set_number(table, chunk):\n    put(table, argument(table, 1) + chunk)\n"


def number_source(number: float) -> KernelSource:
    """Return a kernel that writes `number` at index table[1] + chunk; the source is the same for every number."""

    def emit(builder: Any, table: Any, index: Any) -> None:
        store(builder, constant(Lane("f64"), number), table_pointer(builder, table, 0, "f64"), index)

    namespace = {"put": make_tile_intrinsic("put", emit, 1), "argument": argument}
    return KernelSource(SOURCE, "set_number", namespace, key=f"number {number}")


def compile_number(number: float, cache: KernelCache | None = None) -> CompiledKernel:
    return number_source(number).compile(cache)


def result_of(kernel: CompiledKernel) -> list[float]:
    data = np.zeros(4)
    table = np.array([data.ctypes.data, 1], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(table.ctypes.data, 2)
    return data.tolist()


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything is compiled."""

    def refuse(*_: Any) -> CompiledKernel:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiling, "_compile", refuse)


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_kernel_is_compiled_without_a_cache() -> None:
    assert result_of(compile_number(1.5)) == [0, 0, 0, 1.5]


def test_a_cached_kernel_is_not_compiled_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    cache = KernelCache(tmp_path / "kernels")
    first = compile_number(2.5, cache)
    request.getfixturevalue("no_compiler")
    second = compile_number(2.5, cache)
    assert second.digest == first.digest
    assert result_of(second) == [0, 0, 0, 2.5]


def test_a_process_has_each_kernel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_KERNELS", {})
    first = compile_number(9.5, KernelCache(tmp_path / "first"))
    again, ([there], new), alone = (
        compile_number(9.5, KernelCache(tmp_path / "second")),
        compile_kernels([number_source(9.5)], KernelCache(tmp_path / "third")),
        compile_number(9.5),
    )
    assert first is again is there is alone and new == 0
    assert [len(entries(tmp_path / name)) for name in ("first", "second", "third")] == [1, 1, 1]


def test_kernels_of_one_source_and_different_keys_are_kept_apart(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    for number in (3.5, 4.5, 3.5, 4.5):
        assert result_of(compile_number(number, cache)) == [0, 0, 0, number]
    assert len(entries(tmp_path)) == 2


def test_nothing_but_entries_is_left_in_the_folder(tmp_path: Path) -> None:
    compile_number(5.5, KernelCache(tmp_path))
    assert [path.suffix for path in entries(tmp_path)] == [".kernel"]


@pytest.mark.parametrize(
    ("damage", "has_kernel"), [("empty", False), ("cut", False), ("flipped", False), ("other", False), ("cut", True)]
)
def test_a_damaged_entry_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, has_kernel: bool
) -> None:
    cache = KernelCache(tmp_path)
    made = compile_number(6.5, cache)
    digest = made.digest
    [entry] = entries(tmp_path)
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes({"empty": b"", "cut": content[:100], "flipped": content, "other": b"x" * 500}[damage])
    assert cache.load(digest) is None
    with monkeypatch.context() as patch:
        if has_kernel:
            patch.setattr(compiling, "_KERNELS", {digest: made})
        [kernel], new = compile_kernels([number_source(6.5)], cache)
    assert result_of(kernel) == [0, 0, 0, 6.5] and new == (not has_kernel)
    assert cache.load(digest) == kernel.object_code


def test_an_entry_that_is_no_object_code_is_made_again(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    digest = compile_number(7.5, cache).digest
    for payload in (b"", b"not a kernel", b'{"symbol": 1}\n', b"[]\n"):
        cache.store(digest, payload)
        assert result_of(compile_number(7.5, cache)) == [0, 0, 0, 7.5]


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert result_of(compile_number(8.5, KernelCache(blocked))) == [0, 0, 0, 8.5]


def test_a_new_process_finds_the_kernels_of_another(tmp_path: Path) -> None:
    script = "\n".join(
        [
            "import importlib.util, pathlib, sys",
            f"spec = importlib.util.spec_from_file_location('cases', {__file__!r})",
            "cases = importlib.util.module_from_spec(spec)",
            "spec.loader.exec_module(cases)",
            f"cache = cases.KernelCache(pathlib.Path({str(tmp_path)!r}))",
            "print(cases.result_of(cases.compile_number(9.5, cache))[3])",
        ]
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "9.5"
    assert len(entries(tmp_path)) == 1
    # Symbols are global: this process compiles another kernel of that name before it loads the stored one.
    assert result_of(compile_number(10.5)) == [0, 0, 0, 10.5]
    assert result_of(compile_number(9.5, KernelCache(tmp_path))) == [0, 0, 0, 9.5]


@pytest.mark.parametrize("source", ["def k(table, chunk):\n    missing(table)\n", "def k(table chunk):\n"])
def test_source_that_does_not_compile_is_an_error_with_its_name(source: str) -> None:
    with pytest.raises(CompileError, match="kernel k does not compile"):
        compile_kernel(source, "k", {})


@pytest.mark.parametrize("processes", [1, 3])
def test_many_kernels_are_compiled_and_equal_ones_once(tmp_path: Path, processes: int) -> None:
    numbers = [20.5, 21.5, 22.5, 20.5, 23.5, 24.5, 25.5]
    kernels, new = compile_kernels([number_source(n) for n in numbers], KernelCache(tmp_path), processes)
    assert [result_of(kernel)[3] for kernel in kernels] == numbers
    assert len(entries(tmp_path)) == len(set(numbers)) == new
    assert kernels[0].address == kernels[3].address


@pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")
def test_children_compile_and_this_process_only_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_may_fork", lambda: True)
    here: list[str] = []
    whole: Any = vars(compiling)["_compile"]
    monkeypatch.setattr(compiling, "_compile", lambda *given: here.append(given[1]) or whole(*given))
    numbers = [50.5, 51.5, 52.5, 53.5, 54.5]
    kernels, new = compile_kernels([number_source(n) for n in numbers], KernelCache(tmp_path), processes=2)
    assert [result_of(kernel)[3] for kernel in kernels] == numbers
    assert not here and new == len(numbers)


def test_many_kernels_are_compiled_without_a_cache() -> None:
    numbers = [30.5, 31.5, 32.5, 33.5, 34.5]
    kernels, _ = compile_kernels([number_source(n) for n in numbers], processes=2)
    assert [result_of(kernel)[3] for kernel in kernels] == numbers


def test_an_error_in_another_process_is_raised_here(tmp_path: Path) -> None:
    broken = KernelSource("def k(table, chunk):\n    missing(table)\n", "k", {})
    sources = [number_source(n) for n in (40.5, 41.5, 42.5)]
    with pytest.raises(CompileError, match="kernel k does not compile"):
        compile_kernels([sources[0], broken, *sources[1:]], KernelCache(tmp_path), processes=2)
