"""The text of CUDA kernels: how it reads, its indices, and what lanes may share."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from kernel_cases import build, case_named, element, fold, load, number, reindex

from frittata.egraph import dtypes, indexing
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import var
from frittata.egraph.machine import REFERENCE_GPU
from frittata.egraph.terms import Scalar
from frittata.kernels.cuda import flat, guarded, neighbours, products, rows, templates
from frittata.kernels.cuda.kernel import SHARED_BYTES, CudaKernel
from frittata.kernels.cuda.tiles import Tile
from frittata.kernels.cuda.writing import INDEX_LIMIT, Writer, name_quotients, spell_out, writer_for
from frittata.kernels.loops import (
    Apply,
    Assign,
    AssignIndex,
    Constant,
    Load,
    Local,
    Loop,
    Position,
    Statement,
    Store,
)
from frittata.kernels.lower import identifier
from frittata.kernels.templates import contraction


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("softmax-130", "row"),
        ("window-fused", "convolution"),
        ("heads", "pointwise"),
        ("halves-turned-f16", "tensor"),
    ],
)
def test_source_reads_well(name: str, template: str, golden: Any) -> None:
    golden(f"{name}.cuda.txt", templates.by_name(template).write(name, case_named(name).bodies).source)


def test_quotients_get_names_in_the_outermost_block_that_knows_them() -> None:
    i, k = var("i", 100), var("k0", 5)
    at = i // 7 * 5 + k
    loop = Loop("k0", 5, [Store("out", at, Load("x", at + i % 7, "f32"))])
    named = name_quotients([loop], ["i"])
    assert [type(s) for s in named] == [AssignIndex, AssignIndex, Loop]
    assert Writer().write(named, 0) == [
        "q0 = int32(uint32(i) // uint32(7))",
        "q1 = int32(uint32(i) % uint32(7))",
        "for k0 in range(5):",
        "    out[uint32(q0*5 + k0)] = x[uint32(q0*5 + k0 + q1)]",
    ]


def test_a_quotient_of_what_may_be_negative_rounds_down() -> None:
    at = (var("i", 10) * -3) // 2 + 14
    (store,) = name_quotients([Store("out", at, Local("t", "f32"))], ["i"])
    assert Writer().lines(store) == ["out[uint32(((-i*3) // 2) + 14)] = t"]


def test_large_arrays_are_indexed_with_64_bits() -> None:
    small, large = (build(load("x", 1), n) for n in (INDEX_LIMIT - 1, INDEX_LIMIT))
    assert not writer_for((small,)).wide
    wide = writer_for((small, large))
    assert writer_for((build(fold("sum", load("x", INDEX_LIMIT), -1, INDEX_LIMIT), 1),)).wide
    assert wide.lines(Assign("t", Load("x", var("i", INDEX_LIMIT) * 3, "f32"))) == ["t = x[i*3]"]
    assert wide.index(var("i", INDEX_LIMIT) // 7) == "(i // 7)"


def test_what_counts_more_than_32_bits_is_divided_with_64() -> None:
    assert Writer().index(var("k", 1 << 32) // 7) == "int32(uint32(k) // uint32(7))"
    assert Writer().index(var("k", (1 << 32) + 1) // 7) == "(k // 7)"
    assert Writer().index(var("k", 1 << 32) // 2) == "int32(uint32(k) // uint32(2))"
    assert Writer().index((var("k", 1 << 31) + 2) // 1) == "k + 2"
    assert Writer().index((var("k", 1 << 32) + 2) % 7) == "((k + 2) % 7)"
    assert Writer().index(var("k", 1 << 32) % ((1 << 31) + 1)) == f"(k % {(1 << 31) + 1})"
    n = 70_000
    outer = element("sub", load("x", n, 1), load("y", 1, n))
    total = fold("sum", fold("sum", element("abs", outer), -1, n), -2, n)
    text = templates.by_name("row").write("sum", (build(total, 1, 1),)).source
    assert f"q0 = ((g*8192 + h*1024 + lane) // {n})" in text


def test_what_unrolled_loops_add_to_an_index_is_apart() -> None:
    at = var("i", 100) * 32 + var("h", 4) * 8 + 3
    assert Writer(unrolled=frozenset("h")).subscript(at) == "uint64(uint32(i*32)) + uint64(h*8 + 3)"
    assert Writer(True, frozenset("h")).subscript(at) == "uint64(i*32) + uint64(h*8 + 3)"
    backwards = var("i", 100) * -32 + var("h", 4) * 8 + 3200
    assert Writer(unrolled=frozenset("h")).subscript(backwards) == "uint32(-i*32 + h*8 + 3200)"
    assert Writer().subscript(at) == "uint32(i*32 + h*8 + 3)"


@pytest.mark.parametrize("op", ["sign", "round"])
def test_operators_that_the_device_lacks_are_spelled_by_others(op: str) -> None:
    body = [Assign("t", Apply(op, (Local("x", "f32"),), "f32"))]
    spell_out(body)  # type: ignore[arg-type]
    text = "\n".join(Writer().write(body))  # type: ignore[arg-type]
    assert op not in text and " if " in text


def test_what_loops_share_stays_in_registers_if_it_fits_and_is_computed_again_otherwise() -> None:
    def softmax(count: int, extent: int) -> CudaKernel:
        return templates.by_name("row").write("softmax", (build(_softmax(count, extent), count, extent),))

    warp = softmax(65536, 1024)
    assert warp.threads == 256 and warp.blocks == 8192
    assert "row0 = cuda.local.array(32, np.float32)" in warp.source
    assert warp.source.count(" = x[") == 1 and "syncthreads" not in warp.source
    block = softmax(1024, 32768)
    assert block.threads == 1024 and "row0 = cuda.local.array(32, np.float32)" in block.source
    assert "tree0 = cuda.shared.array(32, np.float32)" in block.source
    assert "row0" not in softmax(64, 50_000).source


def test_few_rows_have_more_lanes() -> None:
    assert [_lanes(count, 1024) for count in (65536, 4096, 512, 1)] == [32, 64, 256, 256]
    assert _lanes(512, 20) == 32 and _lanes(65536, 3) == 4


def _lanes(count: int, extent: int) -> int:
    inner = frozenset({-1})
    found = rows.plan((build(_softmax(count, extent), count, extent),), inner)
    assert found is not None
    return found.lanes


def test_lanes_have_no_more_values_than_registers_hold() -> None:
    loads = [load(name, 65536, 1024) for name in "abcd"]
    means = [element("sub", e, fold("max", e, -1, 1024)) for e in loads]
    total = element("add", element("add", means[0], means[1]), element("add", means[2], means[3]))
    found = rows.plan((build(total, 65536, 1024),), frozenset({-1}))
    assert found is not None and len(found.private) == 4 and found.lanes == 128


def test_a_thread_has_several_outputs_where_there_are_enough() -> None:
    def relu(*shape: int) -> CudaKernel:
        return flat.write_flat("relu", (build(element("max", load("x", *shape), number(0)), *shape),))

    assert (relu(16384, 4096).blocks, relu(16384, 4096).threads) == (65536, 256)
    assert "for h in range(4):" in relu(16384, 4096).source and "maximum_f32(x[" in relu(16384, 4096).source
    assert " h " not in relu(128, 4096).source and (relu(128, 4096).blocks, relu(128, 4096).threads) == (2048, 256)
    assert relu(16384, 768).threads == 192, "a block's outputs are a row"
    ragged = relu(4_000_003).source
    assert "if cuda.blockIdx.x < 3906:" in ragged and "for i in range(first, 4000003, 256):" in ragged
    assert relu(4096).blocks == 128


def test_transposes_go_through_tiles() -> None:
    transposed = reindex(load("x", 64, 70), indexing.permute_map((64, 70), (1, 0)))
    body = build(element("add", transposed, load("y", 70, 64)), 70, 64)
    text = flat.write_flat("turn", (body,)).source
    assert "tile0 = cuda.shared.array(1056, np.float32)" in text and text.count("cuda.syncthreads()") == 1
    assert "min(max(" in text, "70 is no multiple of 32"
    straight = build(element("add", load("x", 64, 64), load("y", 64)), 64, 64)
    assert "tile" not in flat.write_flat("add", (straight,)).source


@pytest.mark.parametrize(("dtype", "most"), [("f64", 5), ("f32", 11), ("bf16", 12)])
def test_tiles_of_transposes_fit_into_shared_memory(dtype: str, most: int) -> None:
    sides = [reindex(load(f"x{n}", 64, 64, dtype=dtype), indexing.permute_map((64, 64), (1, 0))) for n in range(12)]
    total = sides[0]
    for side in sides[1:]:
        total = element("where", load("flag", 64, dtype="bool"), total, side)
    text = flat.write_flat("turn", (build(total, 64, 64),)).source
    assert text.count("cuda.shared.array(1056, ") == most
    assert most * 1056 * dtypes.itemsize(dtype) <= SHARED_BYTES


def _softmax(count: int, extent: int) -> Any:
    e = load("x", count, extent)
    shifted = element("exp", element("sub", e, fold("max", e, -1, extent)))
    return element("div", shifted, fold("sum", shifted, -1, extent))


def test_a_fold_of_folds_is_one_fold() -> None:
    total = fold("sum", fold("sum", load("x", 2, 3, 8, 9), -1, 9), -2, 8)
    (joined,) = rows.join_folds((build(total, 2, 3, 1, 1),))
    assert [t.attrs[2] for t in _folds(joined)] == [72]
    mixed = fold("max", fold("sum", load("x", 2, 3, 8, 9), -1, 9), -2, 8)
    assert rows.join_folds((build(mixed, 2, 3, 1, 1),)) == (build(mixed, 2, 3, 1, 1),)
    (plan,) = [p for p in rows.plans((build(total, 2, 3, 1, 1),)) if p.count == 6]
    assert [s.extent for s in plan.block if isinstance(s, Loop)] == [72]


def _folds(body: Any) -> list[Any]:
    from frittata.egraph import terms

    return [term for term in terms.walk(body) if term.op == "fold"]


def test_neighbouring_threads_have_neighbouring_columns() -> None:
    (plan, *_) = rows.plans((build(fold("sum", load("x", 100, 8192), -2, 100), 1, 8192),))
    assert plan.columns and plan.members == 32 and plan.lanes == 8
    (plan, *_) = rows.plans((build(fold("sum", load("x", 100, 64), -2, 100), 1, 64),))
    assert plan.columns and plan.members == 8 and plan.lanes == 32, "few columns are split among more blocks"
    (plan, *_) = rows.plans((build(fold("sum", load("x", 64, 100), -1, 100), 64, 1),))
    assert not plan.columns and plan.lanes == 32


def test_a_loop_that_reads_its_own_running_sum_is_not_shared() -> None:
    body = build(element("scan", load("x", 4, 6), op="sum", axis=-1, extent=6), 4, 6)
    assert list(rows.plans((body,))) == []
    assert templates.by_name("row").estimate((body,), frozenset(), REFERENCE_GPU) is None
    with pytest.raises(LoweringError, match="cannot be shared"):
        templates.by_name("row").write("scan", (body,))


def test_one_thread_runs_a_scan() -> None:
    body = build(element("scan", load("x", 4, 6), op="sum", axis=-1, extent=6), 4, 6)
    kernel = flat.write_flat("scan", (body,))
    assert (kernel.blocks, kernel.threads) == (1, 4)
    backwards = reindex(element("scan", load("x", 4, 10**5), op="sum", axis=-1, extent=10**5), _flip(4, 10**5))
    with pytest.raises(LoweringError, match="400000 bytes for each thread"):
        flat.write_flat("scan", (build(backwards, 4, 10**5),))


def _flip(rows_: int, columns: int) -> Any:
    at = (var(-2, rows_), var(-1, columns) * -1 + (columns - 1))
    return indexing.IndexMap((rows_, columns), (rows_, columns), at)


def test_tiles_are_filled_along_the_memory_of_each_side() -> None:
    transposed = reindex(load("w", 64, 48), indexing.permute_map((64, 48), (1, 0)))
    body = build(element("dot", load("x", 32, 48), transposed, depth=48), 32, 64)
    found = contraction.describe((body,))
    assert found is not None
    text = products.write_product("linear", found, Tile(8, 16, 4, 4, 16)).source
    # both sides run along the depth: slices are padded by one quad against bank conflicts
    assert "quad0 = load_quad(x, uint32(i0*48 + left_k0*4))" in text
    assert "right = cuda.shared.array(2176, np.float32, alignment=16)" in text
    assert "w, uint32(j0*48 + right_k0*4))" in text
    assert "inside" not in text and "min(" not in text


@pytest.mark.parametrize(("channels", "quads"), [(8, 1), (6, 0)])
def test_windows_with_the_channels_last_are_loaded_along_them(channels: int, quads: int) -> None:
    found = contraction.describe(case_named(f"dot-windows-{channels}").bodies)
    assert found is not None
    for tile in (Tile(4, 8, 4, 4, 8), Tile(4, 8, 4, 4, 8, 2)):
        text = products.write_product("windows", found, tile).source
        assert text.count("= load_quad(x, ") == quads
        assert f"left = cuda.shared.array({2 * (16 + 4) * 8 * tile.teams}," in text, "not filled along the depth"


def test_loads_of_neighbours_join_and_those_that_a_condition_guards_do_not() -> None:
    i = var("i", 16)
    loads = [Load("x", i * 4 + e, "f32") for e in range(5)]

    def lines(array: str) -> list[str]:
        return list(neighbours.write([Assign(f"t{e}", load) for e, load in enumerate(loads)], Writer(), {array}))

    assert lines("x")[:2] == ["quad0 = load_quad(x, uint32(i*4))", "t0 = quad0[0]"]
    assert lines("x")[-1] == "t4 = x[uint32(i*4 + 4)]"
    assert lines("y")[0] == "t0 = x[uint32(i*4)]"
    zero, flag = Constant(Scalar.of(0, "f32")), Local("flag", "bool")
    chosen: list[Any] = [Assign(f"t{e}", Apply("where", (flag, load, zero), "f32")) for e, load in enumerate(loads)]
    assert not any("quad" in line for line in neighbours.write(chosen, Writer(), {"x"}))
    every = [*chosen[:1], *(Assign(f"s{e}", load) for e, load in enumerate(loads[:4])), *chosen[1:]]
    text = list(neighbours.write(every, Writer(), {"x"}))
    assert text[:3] == ["t0 = x[uint32(i*4)] if flag else np.float32(0.0)", *lines("x")[:1], "s0 = quad0[0]"]
    assert "t1 = quad0[1] if flag else np.float32(0.0)" in text


def test_an_index_that_a_condition_keeps_inside_is_not_clamped() -> None:
    i = var("i", 58)
    low = Apply("ge", (Position(i, "i64"), Constant(Scalar.of(1, "i64"))), "bool")
    high = Apply("lt", (Position(i, "i64"), Constant(Scalar.of(57, "i64"))), "bool")

    def block(condition: Any) -> list[Any]:
        load, zero = Load("x", var("at0", 56), "f32"), Constant(Scalar.of(0, "f32"))
        return [AssignIndex("at0", i + -1, 56), Assign("t0", Apply("where", (condition, load, zero), "f32"))]

    (whole,) = guarded.unclamp(block(Apply("and", (low, high), "bool")))
    assert "x[uint32(i - 1)] if" in Writer().write([whole], 0)[0]
    assert len(guarded.unclamp(block(low))) == 2


def test_a_condition_on_a_position_that_is_no_integer_frees_no_index() -> None:
    i = var("i", 58)
    low, high = (  # 56 lies between them
        Apply(op, (Position(i, "f32"), Constant(Scalar.of(n, "f32"))), "bool") for op, n in (("ge", 0), ("lt", 56.5))
    )
    load, zero = Load("x", var("at0", 56), "f32"), Constant(Scalar.of(0, "f32"))
    chosen = Apply("where", (Apply("and", (low, high), "bool"), load, zero), "f32")
    block: list[Statement] = [AssignIndex("at0", i, 56), Assign("t0", chosen)]
    assert len(guarded.unclamp(block)) == 2


def test_windows_read_the_digits_of_the_depth_from_shared_memory() -> None:
    text = templates.by_name("convolution").write("window", case_named("window-3x3-s1-p1-d1-g1").bodies).source
    assert "right_digits0 = shared_quad(right_digits, " in text
    assert "//" not in text[text.index("for step in") : text.index("if thread <", text.index("for step in"))]


def test_names_of_buffers_do_not_collide_with_the_kernels_own() -> None:
    body = build(element("add", load("thread", 4), element("mul", load("cuda", 4), number(2))), 4)
    assert "def add(x_thread, x_cuda, out):" in flat.write_flat("add", (body,)).source


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("tensor", ("halves-ragged", "halves-turned-bf16", "halves-computed")),
        ("pointwise", ("mod-f32", "max-f32")),
        ("contraction", ("dot-64x40x48", "dot-windows-8")),
        ("row", ("fold-outer", "softmax-large")),
    ],
)
def test_no_buffer_has_a_name_that_sources_use(template: str, names: tuple[str, ...]) -> None:
    for name in names:
        text = templates.by_name(template).write(name, case_named(name).bodies).source
        (function,) = ast.parse(text).body
        assert isinstance(function, ast.FunctionDef)
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for word in used - {argument.arg for argument in function.args.args}:
            assert identifier(word) == f"x_{word}"


def test_narrow_values_are_widened_where_they_are_loaded_and_rounded_where_bodies_say() -> None:
    text = templates.by_name("row").write("sum", case_named("sum-u8").bodies).source
    assert "np.int32(x[" in text and "np.int32(np.uint8(" in text
    text = templates.by_name("row").write("sum", case_named("sum-bf16").bodies).source
    assert "bf16_value(x[" in text and "= bf16_bits(bf16_rounded(" in text
