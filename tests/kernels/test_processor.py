"""Kernels for processors with other vector registers: right in what they compute, and in what they are compiled to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import config

from frittata.kernels.compile import toolchain
from frittata.kernels.processor import Processor, features, processor, processor_of

SCRIPT = Path(__file__).parents[1] / "support" / "other_processor.py"


@pytest.mark.parametrize("name", ["sse", "avx2", "avx512", "neon"])
def test_kernels_are_written_for_the_processor(name: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), name], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_registers_follow_from_features() -> None:
    avx512 = {"avx512f", "avx512vl", "avx512dq", "avx512bw"}
    pairs = {"multiplies_pairs": True}
    assert processor_of("x86_64", {"sse2"}) == Processor(16, 16, fuses=False, permutes=False, halves=False, **pairs)
    assert processor_of("x86_64", {"sse4.2"}) == Processor(16, 16, fuses=False, permutes=False, halves=False)
    assert processor_of("x86_64", {"avx"}) == Processor(16, 16, fuses=False, permutes=True, halves=False)
    avx2 = Processor(32, 16, fuses=True, permutes=True, halves=True)
    assert processor_of("AMD64", {"avx", "avx2", "fma", "f16c"}) == avx2
    assert processor_of("x86_64", {"avx", "avx2", "fma", "avx512f"}).width == 32
    assert processor_of("x86_64", {"avx", "avx2", "fma"} | avx512) == Processor(64, 32, True, True, halves=False)
    new = processor_of("x86_64", {"avx", "avx2", "fma", "sse2", "avx512vnni", "avx512bf16"} | avx512)
    assert (new.multiplies_pairs, new.multiplies_bytes, new.multiplies_halves) == (True, True, True)
    assert processor_of("x86_64", {"avx2", "fma", "avxvnni"}).multiplies_bytes
    assert [processor_of("x86_64", {"fma"} | avx512, model).splits for model in ("znver4", "znver5")] == [True, False]
    assert processor_of("arm64", set()) == Processor(16, 32, fuses=True, permutes=False, halves=True)


def test_no_kernel_has_instructions_that_numba_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    found, tools = processor.__wrapped__, toolchain.__wrapped__
    before = features(), tools()
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(config, "ENABLE_AVX", 0)
    assert "+avx" not in features()
    assert (found().width, found().permutes, found().splits) == (16, False, False)
    assert (tools() == before[1]) == (features() == before[0])
