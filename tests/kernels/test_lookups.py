"""Look-ups: an index outside of its axis is refused by every target, none inside is, and rows are loaded in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_cases import Array, Case, build, element, layer_norm, load, number, reindex

from frittata.egraph import indexing
from frittata.egraph.errors import IndexRangeError
from frittata.egraph.indexing import var
from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.frames import LANES, choose_frame
from frittata.kernels.lookups import looked_up, sites
from frittata.kernels.passes import plan_passes
from frittata.kernels.traffic import moved_bytes


def look(e: Term, i: Term, axis: int, extent: int) -> Term:
    return element("at", e, i, axis=axis, extent=extent)


def words(rows: int, tokens: int, width: int) -> Term:
    table = reindex(load("w", rows, width), indexing.reshape_map((rows, width), (rows, 1, width)))
    return look(
        table, reindex(load("ids", tokens, dtype="i64"), indexing.reshape_map((tokens,), (tokens, 1))), -3, rows
    )


def lanes(width: int) -> Term:
    return look(load("w", 3, 40), load("ids", 3, width, dtype="i64"), -1, 40)


BODIES: dict[str, tuple[str, Term]] = {
    "a row for each index": ("pointwise", build(words(9, 70, 33), 70, 33)),
    "an index for each lane": ("pointwise", build(lanes(21), 3, 21)),
    "rows in a norm": ("row", build(layer_norm(words(9, 70, 33), load("g", 33), load("b", 33), 33), 70, 33)),
    "a loop nest": ("nest", build(words(9, 70, 33), 70, 33)),
}


def drawn(case: Case, high: int) -> list[Array]:
    rng = np.random.default_rng(0)
    values = case.values()
    return [rng.integers(0, high, v.shape) if v.dtype == np.int64 else v for v in values]


def with_index(case: Case, values: list[Array], place: int, index: int) -> list[Array]:
    out = [value.copy() for value in values]
    position = next(i for i, leaf in enumerate(case.operands) if leaf.attrs[0] == "ids")
    out[position].reshape(-1)[place] = index
    return out


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])
@pytest.mark.parametrize("name", BODIES)
def test_an_index_outside_is_refused_wherever_it_stands_and_what_follows_is_right(name: str, plain: bool) -> None:
    template, body = BODIES[name]
    case = Case("case", (body,))
    values = drawn(case, 9)
    program = case.program(template)
    built = None if plain else runtime.build(program, {})

    def run(given: list[Array]) -> Array:
        return (runtime.run_plain(program, {}, given) if built is None else built(*given))[0]

    count = next(v.size for v, leaf in zip(values, case.operands, strict=True) if leaf.attrs[0] == "ids")
    extent = 9 if "an index" not in name else 40
    for place in (0, count - 1, count // 2):
        for index in (-1, extent, 2**40, -(2**62)):
            with pytest.raises(IndexRangeError, match=f"index {index} is outside of 0 .. {extent - 1}") as caught:
                run(with_index(case, values, place, index))
            assert "ids" in str(caught.value)
        law = case.expected(values)[0]
        np.testing.assert_allclose(run(values), law, rtol=1e-5, atol=1e-5)


def test_many_chunks_on_many_threads_note_one_index() -> None:
    case = Case("case", (build(words(500, 4000, 64), 4000, 64),))
    values = drawn(case, 500)
    built = runtime.build(case.program("pointwise"), {})
    assert built.lowered[0].chunks > 1  # type: ignore[union-attr]
    for place in (0, 1234, 3999):
        with pytest.raises(IndexRangeError, match="index 500 "):
            built(*with_index(case, values, place, 500))
        np.testing.assert_array_equal(built(*values)[0], case.expected(values)[0])


@pytest.mark.parametrize("width", [1, 3, 9, 19])
def test_lanes_beyond_the_end_are_never_refused(width: int) -> None:
    """Memory beyond the end reads as 0, and 0 - 1 would be outside."""
    before = element("sub", load("ids", 3, width, dtype="i64"), number(1, "i64"))
    case = Case("case", (build(look(load("w", 3, 40), before, -1, 40), 3, width),))
    values = [v + 1 if v.dtype == np.int64 else v for v in drawn(case, 39)]
    np.testing.assert_array_equal(runtime.build(case.program("pointwise"), {})(*values)[0], case.expected(values)[0])


def test_the_rows_of_a_table_are_loaded_in_vectors_and_its_other_rows_not_paid_for() -> None:
    def steps(body: Term) -> set[int | None]:
        frame = choose_frame((body,))
        assert frame is not None
        plan = plan_passes(frame, (body.args[0],))
        return {plan.points.step(p, LANES) for p in plan.points.walk(plan.outputs) if p.term.op == "load"}

    assert steps(build(words(9, 70, 33), 70, 33)) == {0, 1}
    assert steps(build(lanes(21), 3, 21)) == {1, None}
    small, large = (moved_bytes((build(words(rows, 70, 33), 70, 33),)) for rows in (50, 50_000))
    assert large == 70 * 33 * 4 * 2 + 70 * 8
    assert small == 50 * 33 * 4 + 70 * 33 * 4 + 70 * 8


def test_a_looked_up_index_has_one_name() -> None:
    i, j = (load(name, 5, dtype="i64") for name in "ij")
    place = ((-1, var("k", 5)),)
    assert looked_up(i, place, 9) == looked_up(load("i", 5, dtype="i64"), place, 9)
    others = [(j, place, 9), *((i, ((-1, var(*loop)),), 9) for loop in (("m", 5), ("k", 3))), (i, place, 8)]
    assert len({looked_up(*other) for other in [(i, place, 9), *others]}) == 5
    assert looked_up(i, place, 9).origins == {"k"}


def test_each_look_up_has_a_word_of_its_own() -> None:
    i, j = (load(name, 4, dtype="i64") for name in "ij")
    e = element("add", look(load("x", 9), i, -1, 9), look(load("y", 7), j, -1, 7))
    e = element("add", e, look(load("z", 9), i, -1, 9))
    body = build(e, 4)
    assert list(sites((body,)).values()) == [0, 1]
    case = Case("case", (body,))
    values = [v % 7 if v.dtype == np.int64 else v for v in case.values()]
    for template in ("pointwise", "nest"):
        built: Any = runtime.build(case.program(template), {})
        wrong = [
            np.full_like(v, 7) if leaf.attrs[0] == "j" else v for v, leaf in zip(values, case.operands, strict=True)
        ]
        with pytest.raises(IndexRangeError, match=r"index 7 is outside of 0 \.\. 6") as caught:
            built(*wrong)
        assert "indices from j" in str(caught.value)
