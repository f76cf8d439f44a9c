"""Models built by hand: functions one after the other, inputs, params with values, named results, one output each."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from frittata.egraph import dtypes, terms
from frittata.egraph.errors import ModelError
from frittata.egraph.model import Array, Function, Model
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends.arrays.constants import values_in
from frittata.frontends.arrays.tensor import Tensor, as_tensor, input, real_term
from frittata.frontends.calls import is_complex, real_of
from frittata.frontends.idioms_complex import Complex, as_complex, terms_of


class Builder:
    """Builds a model, function by function.

    >>> b = Builder()
    >>> with b.function("main"):
    ...     x = b.input("x", (4, 784))
    ...     w = b.param("w", np.zeros((784, 10), np.float32))
    ...     b.output(b.emit(np.maximum(x @ w, 0), "hidden"))
    >>> [str(term.type) for term in b.model()["main"].outputs]
    ['f32[4, 10]']

    Inputs stand in the order in which they were declared, unless `function` or `output` is given them in another.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._params: dict[str, Array] = {}
        self._origin_by_term: dict[Term, str] = {}
        self._inputs: list[Term] = []
        self._outputs: tuple[Term, ...] | None = None
        self._name: str | None = None

    @contextmanager
    def function(self, name: str, inputs: Sequence[Tensor] = ()) -> Generator[None]:
        """Begin a function, of inputs that are given first, or declared in it, or given to `output` last.

        Raises: ModelError at its end if it has no output, or uses an input that is not declared.
        """
        if self._name is not None:
            raise ModelError(f"function {name!r} within {self._name!r}", do="end that one before")
        if name in self._functions:
            raise ModelError(f"there is a function {name!r} already", do="choose another name")
        self._name, self._inputs, self._outputs = name, [_leaf(x) for x in inputs], None
        try:
            yield
            if self._outputs is None:
                raise ModelError(f"function {name!r} has no output", do="call output(...) once")
            self._functions[name] = Function(tuple(self._inputs), self._outputs)
        finally:
            self._name = None

    def input(self, name: str, shape: Sequence[Any], dtype: Any = "f32") -> Tensor:
        """Declare the next input of the function."""
        self._check_open()
        found = input(name, shape, dtype)
        self._inputs.append(_leaf(found))
        return found

    def param(self, name: str, value: Any) -> Tensor:
        """Return a param with its value, an array that is copied; the same name again must have an equal value."""
        whole = np.array(value)
        array = real_of(whole)
        known = self._params.setdefault(name, array)
        if known.dtype != array.dtype or not np.array_equal(known, array, equal_nan=dtypes.holds_floats(array)):
            raise ModelError(f"param {name!r} has another value already", do="choose another name")
        found = tensor("param", name=name, shape=array.shape, dtype=dtypes.from_numpy(array.dtype))
        return Tensor(as_complex(found) if is_complex(whole) else found)

    def emit(self, value: Any, name: str | None = None) -> Tensor:
        """Return what was computed, which reports will call by a name."""
        self._check_open()
        found = as_tensor(value)
        if name is not None:
            self._origin_by_term.update(dict.fromkeys(terms_of(found.term), name))
        return found

    def output(self, *values: Any, inputs: Sequence[Tensor] | None = None) -> None:
        """Say what the function returns, and all of its inputs, if that was not said before.

        Raises: ModelError if that was said already.
        """
        self._check_open()
        if self._outputs is not None:
            raise ModelError(f"function {self._name!r} has an output already", do="give all results to one output(...)")
        if inputs is not None:
            if self._inputs:
                raise ModelError(f"function {self._name!r} has inputs already", do="give them once, first or last")
            self._inputs = [_leaf(x) for x in inputs]
        self._outputs = tuple(real_term("an output", value) for value in values)

    def model(self) -> Model:
        """Return the model of all functions.

        Raises: ModelError if there is none, or one is not ended.
        """
        if self._name is not None or not self._functions:
            raise ModelError("the model is not complete", do="build at least one function, to its end")
        roots = [output for function in self._functions.values() for output in function.outputs]
        used = {term.attrs[0] for term in terms.walk(*roots) if term.op == "param"}
        values = {name: array for name, array in self._params.items() if name in used}
        return Model(dict(self._functions), {**values, **values_in(roots)}, dict(self._origin_by_term))

    def _check_open(self) -> None:
        if self._name is None:
            raise ModelError("outside of a function", do='write with builder.function("main"): ...')


def _leaf(x: Tensor) -> Term:
    term = x.term
    if isinstance(term, Complex) or term.op != "input":
        raise ModelError(f"{x!r} is no input", do="give what input(...) or frittata.input(...) returned")
    return term
