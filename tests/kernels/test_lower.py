"""Conformance: every target computes every body as the interpreter does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_cases import (
    CASES,
    RANDOM_CASES,
    Array,
    Case,
    assert_agrees,
    build,
    case_named,
    element,
    fold,
    load,
    number,
    random_case,
    reindex,
)

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import permute_map
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import registry
from frittata.kernels import runtime, templates
from frittata.kernels.holding import is_worth_holding, recompute_units
from frittata.kernels.loops import Apply, AssignIndex, Loop, Statement, parts, statements, values_of
from frittata.kernels.lower import lower
from frittata.kernels.plain import compile_plain, flat, write_plain
from frittata.kernels.processor import processor
from frittata.kernels.templates.nest import NEST
from frittata.kernels.work import work_units

Target = Callable[[Case, list[Array]], tuple[Array, ...]]


def plain(case: Case, values: list[Array]) -> tuple[Array, ...]:
    return compile_plain("kernel", case.bodies, parallel=False)(*values)


def through_template(name: str) -> Target:
    def run(case: Case, values: list[Array]) -> tuple[Array, ...]:
        return runtime.build(case.program(name), {})(*values)

    return run


TARGETS: dict[str, Target] = {"plain": plain, **{t.name: through_template(t.name) for t in templates.TEMPLATES}}


def takes(target: str, case: Case) -> bool:
    return target == "plain" or templates.by_name(target).estimate(case.bodies, frozenset(), REFERENCE) is not None


TAKEN = [(case, target) for case in [*CASES, *RANDOM_CASES] for target in TARGETS if takes(target, case)]


def test_every_target_takes_some_case() -> None:
    """But for tiled convolutions, whose weights are constants, attention with its own cases, and what is not here."""
    not_here = set[str]() if processor().multiplies_halves else {"halves"}
    assert {target for _, target in TAKEN} == set(TARGETS) - {"winograd", "attention"} - not_here


@pytest.mark.parametrize(("case", "target"), TAKEN, ids=lambda part: part if isinstance(part, str) else part.name)
def test_targets_compute_what_the_interpreter_does(case: Case, target: str) -> None:
    values = case.values()
    assert_agrees(case, TARGETS[target](case, values), case.expected(values))


class _NoNumba:
    """Stands for numba where generated source is run by Python itself."""

    prange = range

    @staticmethod
    def njit(**_: Any) -> Callable[[Any], Any]:
        return lambda function: function


def run_by_python(case: Case, values: list[Array]) -> tuple[Array, ...]:
    kernel = write_plain("kernel", case.bodies)
    scope: dict[str, Any] = {"np": np, "math": math, "numba": _NoNumba}
    exec(kernel.source, scope)
    results = tuple(np.empty(shapes.concrete(b.shape), dtypes.to_numpy(b.dtype)) for b in case.bodies)
    scope["kernel"](*(flat(array) for array in (*values, *results)))
    return results


@pytest.mark.parametrize("seed", range(0, 300, 30))
def test_random_bodies_become_right_loops(seed: int) -> None:
    for case in map(random_case, range(seed, seed + 30)):
        values = case.values()
        assert_agrees(case, run_by_python(case, values), case.expected(values))


def test_the_parallel_form_computes_the_same() -> None:
    case = case_named("softmax-17")
    values = case.values()
    assert_agrees(case, compile_plain("kernel", case.bodies)(*values), case.expected(values))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_floor_quotients_in_loops_are_those_of_the_exact_quotient(dtype: str) -> None:
    numbers = np.array([5.5, -5.5, 0.3, 7.0, -0.0, np.inf, np.nan], dtypes.to_numpy(dtype))
    x, y = (np.ascontiguousarray(a) for a in np.broadcast_arrays(numbers[:, None], np.append(numbers, 0.1)[None]))
    y = y.astype(x.dtype)
    body = build(element("floordiv", load("x", *x.shape, dtype=dtype), load("y", *x.shape, dtype=dtype)), *x.shape)
    with np.errstate(all="ignore"):
        expected = np.floor_divide(x, y)
    np.testing.assert_array_equal(compile_plain("kernel", (body,), parallel=False)(x, y)[0], expected)


def loops_over(body: list[Statement]) -> list[Any]:
    """Return the nesting of loops as nested lists of extents."""
    return [[s.extent, *loops_over(s.body)] for s in body if isinstance(s, Loop)]


def test_softmax_is_one_loop_over_rows_with_three_inside_and_one_row() -> None:
    nest = lower(case_named("softmax-17").bodies)
    assert loops_over(nest.body) == [[5, [17], [17], [17]]]
    assert [row.extent for row in nest.rows()] == [17]


def test_cheap_values_are_computed_again_instead_of_held() -> None:
    nest = lower(case_named("layer-norm-f64").bodies)
    assert loops_over(nest.body) == [[3, [17], [17], [17]]]
    assert nest.rows() == []


def test_a_dear_value_of_the_inner_axis_alone_is_computed_once() -> None:
    nest = lower(case_named("column").bodies)
    assert loops_over(nest.body) == [[9], [6, [9]]]
    assert [row.extent for row in nest.rows()] == [9]


def test_size_one_axes_make_no_loops() -> None:
    assert loops_over(lower(case_named("ones").bodies).body) == []


def choices(nest: Any) -> list[Apply]:
    found = (part for s in statements(nest.body) for value in values_of(s) for part in parts(value))
    return [part for part in found if isinstance(part, Apply) and part.op == "where"]


def test_the_padding_reads_as_zero() -> None:
    assert len(choices(lower(case_named("window-3x3-s1-p1-d1-g1").bodies))) == 1


def test_a_window_without_padding_needs_no_choice() -> None:
    assert not choices(lower(case_named("window-3x3-s2-p0-d1-g2").bodies))


def test_views_need_no_clamps() -> None:
    for name in ("transpose", "slice", "reshape", "heads"):
        nest = lower(case_named(name).bodies)
        assert not any(isinstance(s, AssignIndex) for s in statements(nest.body)), name


def test_names_of_buffers_do_not_collide_with_those_of_the_source() -> None:
    names = ("i", "k0", "out", "x.1", "x_1", "for", "1")
    total = load(names[0], 4, 3)
    for name in names[1:]:
        total = element("add", total, load(name, 4, 3))
    case = Case("names", (build(total, 4, 3),))
    values = case.values()
    assert_agrees(case, run_by_python(case, values), case.expected(values))


def test_a_body_that_loads_what_is_no_buffer_is_refused() -> None:
    inner = build(number(1), 3)
    with pytest.raises(LoweringError, match="no buffer"):
        lower((build(element("load", inner), 3),))


def test_bodies_of_different_shapes_are_refused() -> None:
    with pytest.raises(LoweringError, match="shapes"):
        lower((build(number(1), 3), build(number(1), 4)))


def test_recomputing_is_priced_by_what_depends_on_the_axis() -> None:
    x = load("x", 5, 7)
    total = fold("sum", x, -1, 7)
    assert recompute_units(x, {-1}) == 1
    exp = registry.get("exp", "element").cost
    assert recompute_units(element("exp", element("sub", x, total)), {-1}) == exp + 2
    assert not is_worth_holding(element("sub", x, total), {-1})
    assert is_worth_holding(element("exp", x), {-1})
    assert recompute_units(total, {-1}) == 0
    assert recompute_units(total, {-2}) == 14


@pytest.mark.parametrize("name", ["softmax-17", "window-3x3-s1-p1-d1-g1", "attention"])
def test_plain_source_reads_well(name: str, golden: Any) -> None:
    golden(f"{name}.py.txt", write_plain(name, case_named(name).bodies).source)


def test_work_is_counted_once_for_each_index_that_a_value_depends_on() -> None:
    row, whole = load("b", 7), load("x", 5, 7)
    exp = registry.get("exp", "element").cost
    assert work_units((build(element("add", whole, element("exp", row)), 5, 7),)) == 35 * 3 + 7 * (exp + 1)
    assert work_units((build(fold("sum", whole, -1, 7), 5, 1),)) == 35 * 2 + 5
    twice = (build(element("exp", whole), 5, 7), build(element("neg", element("exp", whole)), 5, 7))
    assert work_units(twice) == 35 * (1 + exp + 1 + 2)


def test_the_last_resort_takes_every_case_at_a_finite_price() -> None:
    for case in CASES:
        estimate = NEST.estimate(case.bodies, frozenset(), REFERENCE)
        assert estimate is not None and 0 < estimate.seconds < 0.1, case.name


def test_products_read_the_rows_of_the_right_operand_in_order() -> None:
    nest = lower(case_named("dot-7x33x17").bodies)
    assert loops_over(nest.body) == [[7, [17], [33, [17]], [17]]]


def test_products_with_a_transposed_operand_stay_dot_products() -> None:
    x, w = load("x", 9, 33), reindex(load("w", 17, 33), permute_map((17, 33), (1, 0)))
    nest = lower((build(element("dot", x, w, depth=33), 9, 17),))
    assert loops_over(nest.body) == [[9, [17, [33]]]]
