"""Kernels compile for a device where the CUDA toolkit's compiler is installed, and to what they should."""

from __future__ import annotations

import importlib.util
import re

import pytest
from kernel_cases import CASES, Case, build, case_named, element, load, reindex

from frittata.egraph import indexing, terms
from frittata.egraph.machine import REFERENCE_GPU
from frittata.kernels.cuda import device, runtime
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.cuda.products import write_product
from frittata.kernels.cuda.templates import TEMPLATES
from frittata.kernels.cuda.tensor import write_tensor
from frittata.kernels.cuda.tensor_tiles import TENSOR_TILES, TensorTile
from frittata.kernels.cuda.tiles import TILES
from frittata.kernels.templates import contraction

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("needs numba-cuda and the CUDA toolkit's compiler", allow_module_level=True)

SLOW_PATHS = {"sin", "cos"}
"""Their ranges are reduced in float64 by the toolkit's own library."""
DIVIDING = {"mod", "floordiv"}
"""Operators that divide integers with 64 bits themselves."""


def kernels(case: Case) -> list[tuple[str, CudaKernel]]:
    taken = [t for t in TEMPLATES if t.estimate(case.bodies, frozenset(), REFERENCE_GPU) is not None]
    if taken[0].name == "pointwise":
        taken = taken[:1]
    return [(t.name, t.write(case.name, case.bodies)) for t in taken]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kernel_compiles(case: Case) -> None:
    for template, kernel in kernels(case):
        text = device.ptx(kernel)
        assert ".target sm_90" in text
        arrays = len(kernel.dtypes) + (kernel.status_words > 0)
        assert len(re.findall(r"\.param \.u64 \w+_param_", text)) == 7 * arrays, "launches pass others"
        divides = any(term.op in DIVIDING for term in terms.walk(*case.bodies))
        assert divides or not re.search(r"(?:div|rem)\.[su]64", text), "an index is divided with 64 bits"
        if SLOW_PATHS & set(re.findall(r"math\.(\w+)", kernel.source)):
            continue
        has_row = template == "nest" and "row0 = cuda.local" in kernel.source
        assert has_row or not re.search(r"(?:ld|st)\.local", text), "registers are spilled or indexed"
        if "f64" not in kernel.dtypes:
            assert ".f64" not in text, "float64 by accident"


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_sums_of_products_stay_in_registers(tile: object) -> None:
    body = build(element("dot", load("a", 256, 64), load("b", 64, 256), depth=64), 256, 256)
    work = contraction.describe((body,))
    assert work is not None and tile in TILES
    text = device.ptx(write_product("product", work, next(t for t in TILES if t is tile)))
    assert "fma.rn.f32" in text
    assert not re.search(r"(?:ld|st)\.local", text)
    assert not re.search(r"ld\.shared\.(?:f32|b32|v2)", text), "shared memory is read in 128-bit words"
    for words in (r"ld\.shared\.v4", r"ld\.global\.v4", r"st\.global\.v4", r"\.minnctapersm"):
        assert re.search(words, text), words


@pytest.mark.parametrize("tile", TENSOR_TILES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_sums_of_products_of_halves_stay_in_registers(tile: TensorTile, turned: bool) -> None:
    b = load("b", 264, 72, dtype="bf16") if turned else load("b", 72, 264, dtype="bf16")
    b = reindex(b, indexing.permute_map((264, 72), (1, 0))) if turned else b
    sides = (element("cast", e, dtype="f32") for e in (load("a", 256, 72, dtype="bf16"), b))
    work = contraction.describe((build(element("dot", *sides, depth=72), 256, 264),))
    assert work is not None
    text = device.ptx(write_tensor("product", work, tile))
    assert text.count("mma.sync.aligned.m16n8k16") == tile.m * tile.n * tile.depth // 16
    assert text.count("cp.async.cg.shared.global") == tile.stage // 8 // tile.threads
    assert re.findall(r"\.shared \.align (\d+)", text) == ["16"], "chunks are copied to multiples of 16 bytes"
    assert not re.search(r"(?:ld|st)\.local", text)


def test_the_ptx_of_a_program_is_named_after_its_kernels() -> None:
    executable = runtime.build(case_named("softmax-17").program("row"), {})
    assert list(executable.ptx()) == ["softmax-17"]
    assert "shfl.sync" in executable.ptx()["softmax-17"]
    assert ".target sm_80" in executable.ptx((8, 0))["softmax-17"]
