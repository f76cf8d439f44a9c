"""Arguments of functions of arrays: what a call may look like, and what of it is fixed at the import."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Array
from frittata.frontends.arrays.trace import from_function

RNG = np.random.default_rng(0)
M = RNG.standard_normal((5, 7))
V = RNG.standard_normal(7).astype(np.float32)


@dataclass
class Pair:
    x: Any
    y: Any


def test_calls_are_nested_as_the_example_arguments_were() -> None:
    def model(params: dict[str, Any], xs: list[Array], scale: float = 2.0) -> dict[str, Any]:
        return {"out": xs[0] @ params["w"] * scale, "rest": (xs[1], scale, None)}

    args = ({"w": M.T, "b": V}, [M, V])
    imported = from_function(model, args)
    swapped = ({"b": V, "w": M.T}, [M, V])
    got = imported.unflatten(imported.model.interpret(*imported.flatten(swapped)))
    np.testing.assert_allclose(got["out"], M @ M.T * 2)
    assert got["rest"][1:] == (2.0, None)
    assert [term.attrs[0] for term in imported.model.main.inputs] == ["params_w", "params_b", "xs_0", "xs_1"]
    with pytest.raises(ModelError, match="params_b"):
        imported.flatten(({"w": M}, [M, V]))
    with pytest.raises(ModelError, match=r"argument scale is 3.0 and was 2.0"):
        from_function(model, (*args, 2.0)).flatten((*args, 3.0))


def test_arrays_by_position_are_a_call_only_as_it_was_imported() -> None:
    def model(a: Array, b: Any = 1.0, c: Any = None) -> Array:
        return a + b if c is None else a * c

    pair = from_function(model, (M, M))
    for args, kwargs in (((M, 2 * M), {}), ((M,), {"b": 2 * M}), ((), {"b": 2 * M, "a": M})):
        np.testing.assert_array_equal(pair.flatten(args, kwargs), [M, 2 * M])
    skipped = from_function(model, (M,), {"c": M})
    np.testing.assert_array_equal(skipped.flatten((M,), {"c": 2 * M}), [M, 2 * M])
    with pytest.raises(ModelError, match=r"argument b is array(.|\n)*and was 1\.0"):
        skipped.flatten((M, M))
    nested = from_function(lambda p, x: p["w"] * x, ({"w": M}, M))
    named = from_function(lambda a, *, b: a - b, (M,), {"b": M})
    for imported, message in ((nested, "another structure"), (named, "too many positional arguments")):
        with pytest.raises(ModelError, match=message):
            imported.flatten((M, M))


def test_arguments_whose_names_collide_are_two() -> None:
    (found,) = from_function(lambda x, x_0: x[0] - x_0, ([M], M)).model.interpret(M, 2 * M)
    np.testing.assert_array_equal(found, -M)


def test_a_default_may_be_given_or_not() -> None:
    def model(x: Array, scale: float = 2.0, shape: tuple[int, ...] = (35,), *, w: Array = M, rest: Any = None) -> Any:
        return (x * scale + w).reshape(shape)

    without, given = from_function(model, (M,)), from_function(model, (M, 2.0), {"w": M})
    for args, kwargs in (((M,), {}), ((M, 2.0), {}), ((M,), {"shape": (35,), "rest": None})):
        assert without.flatten(args, kwargs) == [M]
        assert without.flatten(args, {**kwargs, "w": M}) == [M]
        assert given.flatten(args, kwargs) == [M, M]
    assert from_function(model, (M, 3.0)).flatten((M, 3.0, (35,))) == [M]
    other = ({"shape": (7, 5)}, {"shape": ()}, {"w": M + 1}, {"rest": 1})
    for args, kwargs in (((M, 3.0), {}), *(((M,), each) for each in other)):
        with pytest.raises(ModelError, match=r"argument (scale|shape|rest) is .* and was|w is another array"):
            without.flatten(args, kwargs)
    with pytest.raises(ModelError, match="another structure than the example arguments: x, x_0, x_1, x_10 and 31 more"):
        without.flatten((list(range(34)),))


def test_numbers_among_the_arguments_are_told_apart_by_their_bits(tmp_path: Path) -> None:
    def model(x: Any, scale: float) -> Any:
        return x / scale

    x = torch.from_numpy(M)
    saved = ft.optimize(model, (M, 0.0), machine=REFERENCE).save(tmp_path / "model.frt")
    for fast, given in (
        (ft.optimize(model, (M, 0.0), machine=REFERENCE), M),
        (ft.load(saved), M),
        (ft.optimize(model, (x, 0.0), machine=REFERENCE), x),
    ):
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(fast(given, 0.0), model(given, 0.0))
        with pytest.raises(ModelError, match=r"is -0\.0 and was 0\.0"):
            fast(given, -0.0)
    unknown = ft.optimize(model, (x, float("nan")), machine=REFERENCE)
    assert unknown(x, float("nan")).isnan().all()


@pytest.mark.parametrize("given", [..., complex, (0, ...)])
def test_an_ellipsis_and_a_class_among_the_arguments_are_constants(given: Any) -> None:
    picked = from_function(lambda x, at: x[at] if at is not complex else x, (M, given))
    assert picked.flatten((M, given)) == [M]


def test_dataclasses_of_arrays_are_refused_and_others_are_constants() -> None:
    with pytest.raises(ModelError, match="argument pair is a Pair of arrays, whose values would be fixed"):
        from_function(lambda pair: pair.x + pair.y, (Pair(M, M),))
    scaled = from_function(lambda x, pair: x * pair.x, (M, Pair(2.0, 1.0)))
    assert scaled.flatten((M, Pair(2.0, 1.0))) == [M]
    with pytest.raises(ModelError, match="argument pair is"):
        scaled.flatten((M, Pair(3.0, 1.0)))


def _put(state: dict[str, Any], x: Array) -> Array:
    state["sum"] = state["sum"] + x
    return state["sum"]


def _remember(state: dict[str, Any], x: Array) -> Array:
    state["seen"].append(x)
    return x


def _take(state: dict[str, Any], x: Array) -> Array:
    return state.pop("sum") + x


CHANGING = [(_put, "state_sum"), (_remember, "state_seen_1"), (_take, "state_sum")]


@pytest.mark.parametrize(("function", "name"), CHANGING)
def test_what_changes_lists_or_dicts_that_it_is_given_is_refused(function: Callable[..., Any], name: str) -> None:
    """A call would leave them as they are."""
    state = {"sum": M, "seen": [M]}
    with pytest.raises(ModelError, match=f"changes its argument state: {name}(.|\n)*a copy, and return it"):
        from_function(function, (state, M))
    assert state.keys() == {"sum", "seen"} and state["sum"] is M and len(state["seen"]) == 1


@pytest.mark.parametrize("given", [Pair(2.0, 1.0), SimpleNamespace(x=2.0, y=1.0)])
def test_an_argument_that_was_changed_after_the_import_is_refused(given: Any) -> None:
    scaled = from_function(lambda x, pair: x * pair.x, (M, given))
    assert scaled.flatten((M, given)) == [M]
    given.x = 3.0
    with pytest.raises(ModelError, match=r"argument pair is \w+\(x=3\.0, y=1\.0\) and was \w+\(x=2\.0, y=1\.0\)"):
        scaled.flatten((M, given))


def test_an_object_beside_arrays_may_hold_anything() -> None:
    """A stream has a `detach`, as tensors of torch have; a module holds all sorts of things."""

    class Settings:
        def __init__(self) -> None:
            self.scale, self.log, self.library = 2.0, sys.stderr, np

    given, x = Settings(), np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    fast = ft.optimize(lambda x, given: given.library.exp(x) * given.scale, (x, given), machine=REFERENCE)
    np.testing.assert_allclose(fast(x, given), np.exp(x) * 2, rtol=1e-5)
