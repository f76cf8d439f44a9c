"""Tensors written index by index, as in a tensor expression: `build` takes what stands at an index, `fold` reduces.

    build((n, m), lambda i, j: fold("sum", k, lambda r: a[i, r] * b[r, j]))

What stands at all indices at once is a tensor with an axis for each variable, those of folds in front, and extent 1
where it does not depend on one. So every operator and function of numpy works on it, and fusion is the rules'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from frittata.egraph import indexing, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, IndexMap
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.arrays.indexing import indexed
from frittata.frontends.arrays.tensor import Tensor, as_extents, as_tensor, unwrapped
from frittata.frontends.idioms_complex import Complex, each

_FOLDS: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@dataclass(frozen=True, eq=False)
class _Space:
    """The variables that are there while a function is called: the extents of their axes, those of folds in front."""

    extents: tuple[int, ...]
    outer: _Space | None = None

    def knows(self, other: _Space) -> bool:
        """Whether the variables of another are there, too."""
        return self is other or (self.outer is not None and self.outer.knows(other))


_SPACE: ContextVar[_Space | None] = ContextVar("_SPACE", default=None)


class Value(Tensor):
    """A number at each index. Operators and functions that work value by value take it; what works along axes does not.

    As an index it reads one value of a tensor. It goes with numbers and other values, not with whole tensors, and not
    outside of the function that it was computed in.
    """

    __slots__ = ("space",)

    def __init__(self, term: Complex | Term) -> None:
        super().__init__(term)
        self.space = _SPACE.get()

    def check(self) -> None:
        """Raise ModelError outside of the function that the number was computed in."""
        space = _SPACE.get()
        if space is None or self.space is None or not space.knows(self.space):
            raise ModelError("a number outside of its build or fold", do="use it in the function that computes it")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = f"numpy.{ufunc.__name__}"
        if method != "__call__" or ufunc.signature is not None:
            raise _no_axes(name if method == "__call__" else f"{name}.{method}")
        _check_numbers(name, inputs)
        return _as_value(super().__array_ufunc__(ufunc, method, *inputs, **options))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Mapping[str, Any]) -> Any:
        name = f"numpy.{function.__name__}"
        if function not in _BY_VALUE:
            raise _no_axes(name)
        _check_numbers(name, (*args, *options.values()))
        return _as_value(super().__array_function__(function, types, args, options))

    def __getitem__(self, key: Any) -> Tensor:
        raise _no_axes("an index")

    def _no_number(self, *_: Any, **__: Any) -> NoReturn:
        raise ModelError(
            "the number at an index is not known while a function is traced",
            do="index tensors, also where arrays and lists are known: frittata.as_tensor(table)[i, j]",
        )

    __index__ = __array__ = _no_number  # which lists and arrays ask for that are indexed

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Tensor:
        """Convert the number."""
        return _as_value(super().astype(dtype, *args, **options))

    @property
    def T(self) -> Tensor:
        """There are no axes to turn."""
        raise _no_axes("T")

    def read(self, x: Tensor, places: Sequence[Any]) -> Tensor:
        """Return what stands at a place of a tensor.

        Raises: ModelError if an index may leave its axis, or is none; if a variable belongs to another `build`.
        """
        if len(places) != x.ndim:
            raise ModelError(f"{len(places)} indices of {x!r}, which has {x.ndim} axes", do="give one for each axis")
        _check_numbers("an index", places)
        if isinstance(x, Value):
            raise _no_axes("an index")
        if not all(isinstance(place, Index | int | np.integer) for place in places):
            return Value(each(partial(indexed, key=unwrapped(tuple(places))), x.term))
        sources = tuple(place.affine if isinstance(place, Index) else Affine(int(place)) for place in places)
        for axis, (at, extent) in enumerate(zip(sources, shapes.concrete(x.shape), strict=True)):
            low, high = at.bounds()
            if low < 0 or high >= extent:
                raise ModelError(
                    f"index {low:.0f} to {high:.0f} on axis {axis} of {x!r}",
                    do="pad the tensor before (numpy.pad), or clamp: numpy.clip(i - 1, 0, n - 1)",
                )
        space = _SPACE.get()
        assert space is not None
        return Value(each(partial(_part, sources=sources, extents=space.extents), x.term))


class Index(Value):
    """A variable of `build` or `fold`, or what is computed from such by numbers: i + 1, 2 * i, i // 2, i % 3, i - j.

    As an index it has to stay within the extents. In arithmetic it is the integer.
    """

    __slots__ = ("affine",)

    def __init__(self, affine: Affine, extents: tuple[int, ...]) -> None:
        super().__init__(_numbers(affine, extents))
        self.affine = affine

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        _check_numbers(f"numpy.{ufunc.__name__}", inputs)
        found = _affine(ufunc, inputs) if method == "__call__" and not options else None
        return super().__array_ufunc__(ufunc, method, *inputs, **options) if found is None else _index(found)


_BY_VALUE = frozenset({np.where, np.clip, np.round, np.around, np.nan_to_num, np.real, np.imag, np.angle})
"""The functions of numpy, beside the universal ones, that work value by value."""


def _as_value(x: Tensor) -> Tensor:
    return Value(x.term)


def _no_axes(what: str) -> ModelError:
    return ModelError(
        f"{what} of the number at an index, which has no axes",
        do='reduce with fold("sum", extent, lambda r: ...), and index whole tensors: a[i, j]',
    )


def _check_numbers(what: str, parts: Sequence[Any]) -> None:
    """Raise ModelError for whole tensors, arrays, lists and slices among what goes with a number at an index."""
    for part in parts:
        if isinstance(part, Value):
            part.check()
        is_number = isinstance(part, Value | int | float | complex | np.generic | np.bool_ | None) or (
            isinstance(part, Tensor | np.ndarray) and part.ndim == 0
        )
        if not is_number:
            raise ModelError(
                f"{what} of a number at an index and {part!r:.80}", do="index whole tensors: a[i, j], all axes"
            )


def build(shape: Sequence[int] | int, function: Callable[..., Any]) -> Tensor:
    """Return the tensor of a shape whose value at i, j, ... is `function(i, j, ...)`.

    >>> a = as_tensor(np.arange(6.0).reshape(2, 3))
    >>> build((3, 2), lambda i, j: a[j, i] * 2)
    Tensor(f64[3, 2])

    Raises: ModelError if the value is no number at each index; if it is called within another `build`.
    """
    extents = as_extents("build", shape)
    if _SPACE.get() is not None:
        raise ModelError("a build within another", do="build the inner tensor before, or use fold")
    value = _value(function, _Space(extents), len(extents))
    return Tensor(each(partial(idioms.expand, shape=extents), value.term))


def fold(op: str, extents: Sequence[int] | int, function: Callable[..., Any]) -> Tensor:
    """Reduce by "sum", "prod", "max" or "min" over all values of further variables.

    Raises: ModelError for another `op`, or if the value is no number at each index.
    """
    if op not in _FOLDS:
        raise ModelError(f"fold by {op!r}", do=f"give one of {', '.join(_FOLDS)}")
    outer = _SPACE.get()
    kept = () if outer is None else outer.extents
    added = as_extents("fold", extents)
    space = _Space((*added, *kept), outer)
    value = _value(function, space, len(added))
    inner = value.shape[max(0, value.ndim - len(kept)) :]
    shape = (*added, *(1,) * (len(kept) - len(inner)), *inner)
    whole = Tensor(each(partial(idioms.expand, shape=shape), value.term))
    folded: Tensor = _FOLDS[op](whole, axis=tuple(range(len(added))))
    return folded if outer is None else _as_value(folded)


def _value(function: Callable[..., Any], space: _Space, count: int) -> Tensor:
    """Return what a function of the first variables of a space gives, for all indices at once.

    Raises: ModelError if that is not one number at each index.
    """
    token = _SPACE.set(space)
    try:
        rank = len(space.extents)
        found = function(*(_index(indexing.var(i - rank, space.extents[i])) for i in range(count)))
        if found is None or isinstance(found, list | tuple):
            raise ModelError(f"the value at an index is {found!r:.80}", do="return one number; build each result alone")
        _check_numbers("the result", [found])
        value = as_tensor(found)
    finally:
        _SPACE.reset(token)
    return value


def _index(affine: Affine) -> Index:
    space = _SPACE.get()
    assert space is not None
    return Index(affine, space.extents)


def _affine(ufunc: np.ufunc, inputs: Sequence[Any]) -> Affine | None:
    """Return what a ufunc makes of indices and numbers, if that is an index."""
    parts = [x.affine if isinstance(x, Index) else x for x in inputs]
    match ufunc, parts:
        case np.add, [Affine() as x, Affine() | int() as y]:
            return x + y
        case np.add, [int(x), Affine() as y]:
            return y + x
        case np.subtract, [Affine() as x, int(y)]:
            return x + -y
        case np.subtract, [Affine() as x, Affine() as y]:
            return x + y * -1
        case np.subtract, [int(x), Affine() as y]:
            return y * -1 + x
        case np.negative, [Affine() as x]:
            return x * -1
        case (np.multiply, [Affine() as x, int(by)]) | (np.multiply, [int(by), Affine() as x]):
            return x * by
        case np.floor_divide, [Affine() as x, int(by)] if by > 0:
            return x // by
        case np.remainder, [Affine() as x, int(by)] if by > 0:
            return x % by
        case _:
            return None


def _numbers(affine: Affine, extents: tuple[int, ...]) -> Term:
    """Return an index as a tensor of integers, with axes for the variables."""
    low, high = map(int, affine.bounds())
    count = high - low + 1
    numbers = tensor("build", element("iota", axis=-1, extent=count), shape=(count,))
    return tensor("add", _part(numbers, (affine + -low,), extents), idioms.scalar(low, "i64"))


def _part(x: Term, sources: tuple[Affine, ...], extents: tuple[int, ...]) -> Term:
    """Read a tensor at an index for each axis, for all values of the variables that these mention."""
    mentioned = {int(key) for at in sources for key in at.variables()}
    rank = -min(mentioned, default=0)
    shape = tuple(extents[axis] if axis in mentioned else 1 for axis in range(-rank, 0))
    view = element("reindex", element("load", x), map=IndexMap(x.shape, shape, sources))
    return tensor("build", view, shape=shape)
