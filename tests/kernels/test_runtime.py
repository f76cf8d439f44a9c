"""Running programs: arguments, outputs, views, constants, threads and clocks."""

from __future__ import annotations

import threading
from functools import cache

import numba
import numpy as np
import pytest
from kernel_cases import Array, Case, build, case_named, element, leaf, load, number
from random_programs import SHAPE, random_program

from frittata.egraph import interpret
from frittata.egraph.errors import LoweringError, ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, View
from frittata.egraph.terms import TensorType
from frittata.kernels import runtime
from frittata.kernels.lowered import LoweredKernel
from frittata.kernels.runtime import Executable

WEIGHT = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)


def draw(seed: int = 0, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape or SHAPE).astype(np.float32)


@cache
def softmax() -> Executable:
    return runtime.build(case_named("softmax-17").program("nest"), {})


def everything() -> Program:
    """Return a program whose outputs are a kernel's, views of it, an argument, a view of one, and a constant."""
    weight = tensor("param", name="w", shape=SHAPE, dtype="f32")
    body = build(element("add", load("a", *SHAPE), load("c", *SHAPE)), *SHAPE)
    kernel = Kernel("add", "nest", (Output("sum", body),), ("a", "c"), Estimate(1, 0, 0))
    flat = TensorType((24,), "f32")
    views = (View("flat_sum", "sum", flat), View("flat_a", "a", flat))
    outputs = ("flat_sum", "sum", "a", "flat_a", "c")
    return Program({"a": TensorType(SHAPE, "f32")}, {"c": weight}, (kernel, *views), outputs)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_compute_what_their_terms_mean(seed: int) -> None:
    program = random_program(seed)
    a, b = draw(1), draw(2)
    expected = interpret.evaluate(program.to_terms(), {"a": a, "b": b, "w": WEIGHT})
    executable = runtime.build(program, {"w": WEIGHT})
    for _ in range(2):
        for got, law in zip(executable(a, b), expected, strict=True):
            np.testing.assert_allclose(got, law, rtol=1e-5, atol=1e-6)


def test_the_plain_form_runs_whole_programs() -> None:
    program = everything()
    a = draw()
    plain = runtime.run_plain(program, {"w": WEIGHT}, [a])
    for got, same in zip(plain, runtime.build(program, {"w": WEIGHT})(a), strict=True):
        np.testing.assert_array_equal(got, same)


def test_outputs_are_fresh_and_share_no_memory() -> None:
    executable = runtime.build(everything(), {"w": WEIGHT})
    a = draw()
    arrays = [*executable(a), *executable(a), a, WEIGHT]
    for i, one in enumerate(arrays):
        assert one.flags.writeable
        for other in arrays[:i]:
            assert not np.shares_memory(one, other)


def test_a_program_without_kernels_returns_copies() -> None:
    program = Program({"a": TensorType((3,), "f32")}, {}, (), ("a", "a"))
    a = draw(0, 3)
    first, second = runtime.build(program, {})(a)
    np.testing.assert_array_equal(first, a)
    assert not np.shares_memory(first, second)


def test_equal_kernels_are_lowered_and_compiled_once() -> None:
    executable = runtime.build(random_program(3, length=20), {"w": WEIGHT})
    assert executable.steps == len(executable.program.kernels)
    assert len({id(kernel) for kernel in executable.lowered}) < executable.steps


def test_callers_in_several_threads_do_not_disturb_each_other() -> None:
    executable = softmax()
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = draw(seed, 5, 17)
        expected = executable(x)[0]
        wrong.extend(seed for _ in range(50) if not (executable(x)[0] == expected).all())

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def chunks(executable: runtime.Executable) -> int:
    (lowered,) = executable.lowered
    assert isinstance(lowered, LoweredKernel)
    return lowered.chunks


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    case = case_named("softmax-large")
    executable = runtime.build(case.program("nest"), {})
    assert chunks(executable) > 1
    values = case.values()
    before = numba.get_num_threads()
    results: list[Array] = []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            results.append(executable(*values)[0])
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[-1])


def test_few_outer_rows_are_cut_on_two_loops() -> None:
    x = load("x", 3, 400, 100)
    case = Case("tall", (build(element("exp", element("add", x, load("b", 100))), 3, 400, 100),))
    executable = runtime.build(case.program("nest"), {})
    assert chunks(executable) == 15
    values = case.values()
    np.testing.assert_allclose(executable(*values)[0], case.expected(values)[0], rtol=1e-5)


def test_arguments_may_be_strided_or_misaligned() -> None:
    executable = softmax()
    x = draw(0, 5, 17)
    expected = executable(x)[0]
    strided = np.zeros((5, 34), np.float32)[:, ::2]
    shifted = np.zeros(4 * x.size + 1, np.uint8)[1:].view(np.float32).reshape(5, 17)
    for other in (strided, shifted, np.asfortranarray(x)):
        other[...] = x
        np.testing.assert_array_equal(executable(other)[0], expected)


@pytest.mark.parametrize(
    "arguments",
    [(), (draw(0, 5, 16),), (draw(0, 5, 17).astype(np.float64),), ([1.0],)],
    ids=["count", "shape", "dtype", "list"],
)
def test_arguments_that_do_not_fit_are_refused(arguments: tuple[Array, ...]) -> None:
    with pytest.raises(ModelError, match=r"takes 1 arguments|argument 'x' must be float32\[5, 17\]"):
        softmax()(*arguments)


def test_scalars_and_booleans_go_in_and_out() -> None:
    flag = element("load", leaf("flag", dtype="bool"))
    case = Case("flag", (build(element("not", flag)), build(element("where", flag, number(1), load("x")))))
    inverted, value = runtime.build(case.program("nest"), {})(np.array(False), np.array(3, np.float32))
    assert inverted.shape == () and inverted.dtype == np.bool_
    assert (bool(inverted), float(value)) == (True, 3.0)


def test_every_step_is_measured() -> None:
    executable = runtime.build(everything(), {"w": WEIGHT})
    seconds = executable.measure(draw(), repeats=3)
    assert seconds.shape == (executable.steps,)
    assert (seconds >= 0).all() and seconds.max() < 0.1


def test_a_template_that_is_not_there_is_named() -> None:
    with pytest.raises(LoweringError, match="no kernel template 'none'"):
        runtime.build(case_named("softmax-17").program("none"), {})
