"""Products and rows of arrays that end where memory does, in a process of its own: what reads beyond them ends it."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from kernel_cases import Array, Case, build, element, fold, load
from product_cases import assert_close, run

from frittata.kernels.gemm_emitters import lanes_of

PROT_NONE = 0


def at_the_end(values: Array) -> Array:
    """Return a copy, followed by a page that nobody may touch."""
    page = mmap.PAGESIZE
    size = -(-values.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    out = np.frombuffer(memory, values.dtype, values.size, size - values.nbytes).reshape(values.shape)
    out[...] = values
    protect: Any = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(out.ctypes.data + out.nbytes), ctypes.c_size_t(page), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return out


def main() -> None:
    """Run products of as many columns as all parts of a few tiles have, and of one less, and rows side by side."""
    half = lanes_of("f32") // 2
    for columns in {n * half - less for n in range(1, 11) for less in (0, 1)} - {0}:
        product = element("dot", load("a", 14, 5), load("b", 5, columns), depth=5)
        case = Case(f"{columns} columns", (build(product, 14, columns),))
        values = case.values()
        assert_close(case, run(case, [at_the_end(value) for value in values], "contraction"), values)
    for length in (5, 11):
        case = Case(f"rows of {length}", (build(fold("max", load("a", 4 * half, length), -1, length), 4 * half, 1),))
        values = case.values()
        assert_close(case, run(case, [at_the_end(value) for value in values], "row"), values)


if __name__ == "__main__":
    main()
