"""Windows of images as rows of a product, channels last: read in place, run by run, whatever the sizes."""

from __future__ import annotations

import pytest
from kernel_cases import Case, build, element, leaf, load, number, reindex
from product_cases import check

from frittata.egraph import indexing
from frittata.egraph.terms import Term
from frittata.kernels.contractions import Side
from frittata.kernels.gemm_kernel import sizes_of
from frittata.kernels.gemm_schedule import schedule
from frittata.kernels.templates.contraction import CONTRACTION, describe

NAME = CONTRACTION.name


def patches(
    image: Term,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    outputs: int,
    stride: int = 1,
    dilation: int = 1,
) -> tuple[Term, tuple[int, ...]]:
    """Return the element and the shape of a convolution of an image (batch, *spatial, inputs) without margins."""
    rank = len(kernel)
    mapping = indexing.patches_map(shape, kernel, (stride,) * rank, (dilation,) * rank)
    *places, depth = (int(dim) for dim in mapping.result if isinstance(dim, int))
    total = element("dot", reindex(image, mapping), load("w", depth, outputs, dtype=image.dtype), depth=depth)
    return total, (*places, outputs)


def guarded(shape: tuple[int, ...], margin: int) -> tuple[Term, tuple[int, ...]]:
    """Return an image with a margin of zeros, decided by the index, and its shape."""
    low = (0, *(margin,) * (len(shape) - 2), 0)
    mapping = indexing.pad_map(shape, low, low)
    wide = tuple(n + 2 * m for n, m in zip(shape, low, strict=True))
    inside: Term | None = None
    for axis in range(1 - len(shape), -1):
        place = element("iota", axis=axis, extent=wide[axis], dtype="i32")
        tests = (
            element("ge", place, number(margin, "i32")),
            element("lt", place, number(margin + shape[axis], "i32")),
        )
        for test in tests:
            inside = test if inside is None else element("and", inside, test)
    assert inside is not None
    return element("where", inside, reindex(load("x", *shape), mapping), number(0)), wide


SPACES = [
    ((9, 9), (3, 3)),
    ((7, 5), (2, 3)),
    ((7, 7), (7, 7)),
    ((6, 17), (1, 1)),
    ((17,), (4,)),
    ((5, 6, 7), (2, 3, 2)),
]


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (1, 2)])
@pytest.mark.parametrize(("extents", "kernel"), SPACES)
@pytest.mark.parametrize("inputs", [1, 7, 17])
def test_windows_in_place(
    extents: tuple[int, ...], kernel: tuple[int, ...], inputs: int, stride: int, dilation: int
) -> None:
    extents = tuple(n * dilation for n in extents)
    shape = (3, *extents, inputs)
    total, out = patches(load("x", *shape), shape, kernel, 21, stride, dilation)
    work = describe((build(total, *out),))
    assert work is not None and sizes_of(work, frozenset("w")).left == "direct"
    check(Case("windows", (build(total, *out),)), NAME, ("w",))


@pytest.mark.parametrize(("extents", "kernel"), [((9, 9), (3, 3)), ((52,), (9,))])
def test_windows_of_a_great_depth_are_taken_in_parts(extents: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    shape = (1, *extents, 1040)
    total, out = patches(load("x", *shape), shape, kernel, 70)
    work = describe((build(total, *out),))
    assert work is not None
    sizes = sizes_of(work, frozenset("w"))
    assert schedule(sizes).depth < sizes.depth and (sizes.runs == 0) == (len(kernel) == 1)
    check(Case("windows", (build(total, *out),)), NAME, ("w",))


@pytest.mark.parametrize("outputs", [1, 7, 17, 33])
def test_ragged_channels_and_an_epilogue(outputs: int) -> None:
    shape = (2, 9, 8, 5)
    total, out = patches(load("x", *shape), shape, (3, 3), outputs, 2)
    shifted = element("add", element("add", total, load("b", outputs)), load("r", *out))
    check(Case("epilogue", (build(element("max", shifted, number(0)), *out),)), NAME, ("w", "b"))


def test_one_pixel_reads_several_panels() -> None:
    total, out = patches(load("x", 1, 3, 3, 7), (1, 3, 3, 7), (3, 3), 70)
    assert out[:-1] == (1, 1, 1)
    check(Case("pixel", (build(total, *out),)), NAME, ("w",))


def test_double_precision_and_weights_that_vary() -> None:
    total, out = patches(load("x", 2, 8, 7, 6, dtype="f64"), (2, 8, 7, 6), (3, 2), 18)
    check(Case("f64", (build(total, *out),)), NAME)


def test_large_windows_in_blocks_and_chunks() -> None:
    total, out = patches(load("x", 1, 30, 31, 40), (1, 30, 31, 40), (3, 3), 70)
    case = Case("large", (build(total, *out),))
    assert CONTRACTION.lower("k", case.bodies, frozenset("w")).chunks > 1
    check(case, NAME, ("w",))


@pytest.mark.parametrize("inputs", [3, 8])
def test_a_margin_that_no_buffer_holds_is_filled_row_by_row(inputs: int) -> None:
    image, wide = guarded((2, 6, 5, inputs), 1)
    total, out = patches(image, wide, (3, 3), 12)
    work = describe((build(total, *out),))
    assert work is not None and sizes_of(work, frozenset("w")).left == "scratch"
    check(Case("margin", (build(total, *out),)), NAME, ("w",))


def test_an_image_with_the_channels_first_is_read_in_place_too() -> None:
    mapping = indexing.compose(
        indexing.patches_map((2, 9, 8, 5), (3, 3), (1, 1), (1, 1)), indexing.permute_map((2, 5, 9, 8), (0, 2, 3, 1))
    )
    total = element("dot", reindex(load("x", 2, 5, 9, 8), mapping), load("w", 45, 12), depth=45)
    check(Case("first", (build(total, 2, 7, 6, 12),)), NAME, ("w",))


def test_runs_are_the_lines_of_a_window() -> None:
    index = {axis: indexing.var(name, n) for axis, name, n in ((-2, "i", 5), (-1, "k", 18))}
    mapping = indexing.patches_map((1, 7, 6, 3), (3, 2), (1, 1), (1, 1))
    flat = indexing.compose(indexing.reshape_map(mapping.result, (25, 18)), mapping)
    rows = Side(reindex(load("x", 1, 7, 6, 3), flat), {-2: indexing.var("i", 25), -1: index[-1]}).rows(18)
    assert rows is not None and rows.leaf is leaf("x", 1, 7, 6, 3)
    assert rows.runs == ((3, 18), (6, 1)) and rows.length == 6 and rows.count == 3 and rows.step == 1


def test_a_view_without_runs_is_no_row_in_place() -> None:
    k = indexing.var(-1, 10)
    mapping = indexing.IndexMap((40,), (4, 10), (indexing.var(-2, 4) * 9 + k // 3 + k % 3,))
    rows = Side(reindex(load("x", 40), mapping), {-2: indexing.var("i", 4), -1: indexing.var("k", 10)}).rows(10)
    assert rows is None
    total = element("dot", reindex(load("x", 40), mapping), load("w", 10, 9), depth=10)
    check(Case("irregular", (build(total, 4, 9),)), NAME, ("w",))


@pytest.mark.parametrize("block", [8, 16, 32])
@pytest.mark.parametrize("kernel", [1, 3])
def test_images_in_blocks_of_channels_are_read_and_written_in_place(kernel: int, block: int) -> None:
    """(batch, block, height, width, channel) to the same: no layout is known to the template."""
    side, blocks, results = 7, 2, 3
    shape, depth = (1, blocks, side + kernel - 1, side + kernel - 1, block), blocks * kernel**2 * block
    _, _, y, x, _ = indexing.axes_of((1, 1, side, side, depth))
    b, dy, dx, channel = indexing.reshape_map((blocks, kernel, kernel, block), (depth,)).sources
    windows = indexing.IndexMap(shape, (1, 1, side, side, depth), (indexing.Affine(), b, y + dy, x + dx, channel))
    which, _, k, column = indexing.axes_of((results, 1, depth, block))
    split = indexing.IndexMap((depth, results * block), (results, 1, depth, block), (k, which * block + column))
    weights = reindex(load("w", depth, results * block), split)
    total = element("dot", reindex(load("x", *shape), windows), weights, depth=depth)
    out = (1, results, side, side, block)
    shifted = element("max", element("add", total, load("c", results, 1, 1, block)), number(0))
    work = describe((build(shifted, *out),))
    assert work is not None and sizes_of(work, frozenset("wc")).left == "direct"
    check(Case("blocked", (build(shifted, *out),)), NAME, ("w", "c"))
