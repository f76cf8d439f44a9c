"""Kernels for another processor, in a process of its own: `python other_processor.py PROCESSOR`.

They are compiled for the processor itself: the assembly must have its registers, and call no function for a
multiply-add. Where this machine can run code of that width, by its own instructions or by several for one, results must
agree with the law.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import binding


@dataclass(frozen=True)
class Target:
    """What the compiler calls a processor, its features, and how its widest registers are written.

    An `emulated` one is not what numba compiles for; its code is compiled once more.
    """

    triple: str
    name: str
    features: frozenset[str]
    register: str
    emulated: bool = False


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_SSE = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"})
_AVX2 = _SSE | {"avx", "avx2", "fma", "bmi", "bmi2", "f16c"}
_AVX512 = _AVX2 | {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd"}
TARGETS = {
    "sse": Target(_X86, "nehalem", _SSE, r"mulps\s+.*%xmm"),
    "avx2": Target(_X86, "haswell", _AVX2, r"vfm\w+ps\s.*%ymm"),
    "avx512": Target(_X86, "skylake-avx512", _AVX512, r"vfm\w+ps\s.*%zmm"),
    "neon": Target(_ARM, "neoverse-n1", frozenset(), r"fmla\s+v\d+\.4s", emulated=True),
}
CASES = (
    *("unary-f32", "exp-f32", "tanh-f32", "erf-f32", "sigmoid-f32", "casts", "transpose", "causal", "folded-look-ups"),
    *("scan-sum-2", "scan-line", "fold-max", "fold-nan", "softmax-130", "softmax-f64", "layer-norm", "column"),
    *("pool-max", "dot-7x33x17", "dot-64x40x48", "dot-f64", "dot-bytes", "linear-layer-norm", "attention"),
    *("move-u8", "cast-i8", "sum-i16", "dot-i8", "where-bf16", "cast-bf16", "cast-f16", "sum-f16", "dot-bf16"),
    *("window-3x3-s1-p1-d1-g1", "window-3x3-s1-p1-d1-g6", "window-3x3-s2-p0-d1-g2"),
)
MOST_UNITS = 1e6
SCALAR = frozenset({"library", "host", "nest"})
"""Templates that write no vector code themselves."""


def assembly(target: Target, code: str) -> str:
    """Compile LLVM's language for a processor."""
    module = binding.parse_assembly(re.sub(r'target (triple|datalayout) = "[^"]*"\n', "", code))
    module.triple = target.triple
    machine = binding.Target.from_triple(target.triple).create_target_machine(cpu=target.name, opt=3)
    module.data_layout = str(machine.target_data)
    return machine.emit_assembly(module)


def failures(target: Target, runs: bool) -> Iterator[str]:
    """Run and compile the cases by every template that takes them; visit what is wrong."""
    from kernel_cases import assert_agrees, case_named

    from frittata.egraph.machine import REFERENCE
    from frittata.kernels import runtime, templates
    from frittata.kernels.compile import compile_kernel

    products = ""
    for case in map(case_named, CASES):
        values = case.values()
        for template in templates.TEMPLATES:
            estimate = template.estimate(case.bodies, frozenset(), REFERENCE)
            if estimate is None or template.name in SCALAR or estimate.flops > MOST_UNITS:
                continue
            low = template.lower("kernel", case.bodies, frozenset())
            library = compile_kernel(low.source, low.name, low.namespace, key=low.key).library
            assert library is not None
            found = assembly(target, library.get_llvm_str()) if target.emulated else library.get_asm_str()
            if re.search(r"\bfmaf?\b", found):
                yield f"{case.name} by {template.name} calls a function for a multiply-add"
            products += found if template.name == "contraction" else ""
            if runs:
                try:
                    assert_agrees(case, runtime.build(case.program(template.name), {})(*values), case.expected(values))
                except AssertionError as error:
                    yield f"{case.name} by {template.name}: {error}"
    if not re.search(target.register, products):
        yield f"no product uses the registers of {target.name}"


def main() -> None:
    """Check one processor; the exit status tells whether all is right."""
    target = TARGETS[sys.argv[1]]
    if not target.emulated:
        os.environ["NUMBA_CPU_NAME"] = target.name
        os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{name}" for name in sorted(target.features))
    from frittata.kernels import processor

    if target.emulated:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        found = processor.processor_of(target.triple.partition("-")[0], target.features)
        processor.processor = lambda: found  # type: ignore[assignment]
    present = {name for name, there in binding.get_host_cpu_features().items() if there}
    runs = target.emulated or target.features <= present
    wrong = list(failures(target, runs))
    print("\n".join(wrong) or f"{processor.processor()}: right, {'run and ' * runs}compiled")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
