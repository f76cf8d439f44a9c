"""The processor that kernels are compiled for: its vector registers, and which instructions there are."""

from __future__ import annotations

import platform
from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import binding
from numba.core import codegen
from numba.core import config as numba_config

_codegen: Any = codegen
_config: Any = numba_config

_AVX_512 = frozenset({"avx512f", "avx512vl", "avx512dq", "avx512bw"})
_SPLITTING = frozenset({"znver4"})
"""Models whose vectors of 64 bytes pass through units of 32.

Source: AMD, Software Optimization Guide for Zen 4: 512-bit operations take two cycles of a unit.
"""


@dataclass(frozen=True)
class Processor:
    """`width`: the bytes of a vector register; `registers`: how many there are.

    `fuses`: a multiplication and an addition are one instruction. `permutes`: so is to pick floats within 16 bytes by a
    vector of positions. `halves`: so is to convert to and from float16. `multiplies_pairs`: so are two products of
    int16 in a lane and their sum, `multiplies_bytes`: four of uint8 and int8, `multiplies_halves`: two of bfloat16.
    `splits`: a vector takes as long as two of half its width.
    """

    width: int
    registers: int
    fuses: bool
    permutes: bool
    halves: bool
    multiplies_pairs: bool = False
    multiplies_bytes: bool = False
    multiplies_halves: bool = False
    splits: bool = False


def processor_of(machine: str, features: Set[str], model: str = "") -> Processor:
    """Return the processor of a machine, as `platform.machine()` names it, with LLVM's names of features and model."""
    if machine.lower() in ("aarch64", "arm64"):
        return Processor(16, 32, fuses=True, permutes=False, halves=True)
    has = {
        "fuses": "fma" in features,
        "permutes": "avx" in features,
        "halves": "f16c" in features,
        "multiplies_pairs": "sse2" in features,
    }
    if features >= _AVX_512 and has["fuses"]:
        has |= {"multiplies_bytes": "avx512vnni" in features, "multiplies_halves": "avx512bf16" in features}
        return Processor(64, 32, splits=model in _SPLITTING, **has)
    if "avx2" in features and has["fuses"]:
        return Processor(32, 16, multiplies_bytes="avxvnni" in features, **has)
    return Processor(16, 16, **has)


def features() -> str:
    """Return the features that numba compiles for, with LLVM's names, as `+avx2,-avx512f`.

    Those of this machine, unless numba is told others; without any of AVX where numba does not use it: by
    `NUMBA_ENABLE_AVX=0`, and on the first processors that had it.
    """
    chosen = _config.CPU_FEATURES
    return str(_codegen.get_host_cpu_features() if chosen is None else chosen)


@cache
def processor() -> Processor:
    """Return this machine's processor, with those features only that numba compiles for."""
    used = {name[1:] for name in features().split(",") if name.startswith("+")}
    return processor_of(platform.machine(), used, _config.CPU_NAME or binding.get_host_cpu_name())
