"""Import of Python functions: called once, with tensors in the place of arrays; what it returns says what it means."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import TensorType, Term
from frittata.frontends import draws
from frittata.frontends.arrays import numpy_calls, places, trees
from frittata.frontends.arrays.constants import values_in
from frittata.frontends.arrays.tensor import Tensor, as_tensor
from frittata.frontends.arrays.trees import Path
from frittata.frontends.calls import (
    COMPLEX_TENSOR,
    STATELESS,
    TENSOR,
    Call,
    Empties,
    State,
    is_complex,
    is_same,
    pairs_of,
    real_of,
    taken,
)
from frittata.frontends.idioms_complex import Complex, as_complex, stored

_ARRAYS = (np.ndarray, np.generic)
_MOST_NAMED = 4


def _is_array(leaf: Any) -> bool:
    """Whether a leaf of the arguments is an array, of numpy or of a library that speaks DLPack."""
    return isinstance(leaf, _ARRAYS) or (hasattr(leaf, "__dlpack__") and not isinstance(leaf, Tensor))


@dataclass(frozen=True, eq=False)
class ImportedFunction:
    """A model, and how to call it as the function was called."""

    model: Model
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    result: Any
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: State = STATELESS
    fallback: str = "error"
    empties: Empties = field(default_factory=dict[int, TensorType])

    @property
    def is_flat(self) -> bool:
        """Whether arrays by position, one for each argument, are a call as it was imported."""
        return self._is_flat

    @cached_property
    def _is_flat(self) -> bool:
        signature = self._signature
        parameters = [] if signature is None else signature.parameters.values()
        by_position = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        are_arrays = all(tree is TENSOR for tree in self.arguments.values())
        return are_arrays and (signature is None or by_position[: len(self.arguments)] == list(self.arguments))

    @cached_property
    def _signature(self) -> inspect.Signature | None:
        return _signature(self.function)

    @cached_property
    def _leaves(self) -> dict[Path, Any]:
        return dict(trees.leaves(self.arguments))

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the arrays of a call in the order of `model.main.inputs`.

        Raises: ModelError if the call has another structure than at the import, or another value that was fixed there.
        """
        is_whole = not kwargs and len(args) == len(self.arguments)
        if is_whole and self._is_flat and set(map(type, args)) == {np.ndarray}:
            return list(args)
        given = dict(trees.leaves(self._as_imported(_bound(self.function, self._signature, args, kwargs or {}))))
        if given.keys() != self._leaves.keys():
            different = sorted({trees.name_of(path) for path in given.keys() ^ self._leaves.keys()})
            named, more = ", ".join(different[:_MOST_NAMED]), len(different) - _MOST_NAMED
            raise ModelError(
                f"the call has another structure than the example arguments: {named}{f' and {more} more' * (more > 0)}",
                do="give the arguments nested as the example arguments were, or optimize again",
            )
        arrays: list[Any] = []
        for path, leaf in self._leaves.items():
            if leaf is TENSOR:
                arrays.append(given[path])
            elif leaf is COMPLEX_TENSOR:
                arrays.append(pairs_of(trees.name_of(path), given[path]))
            elif not is_same(given[path], leaf):
                raise _changed(trees.name_of(path), given[path], leaf)
        return arrays

    def _as_imported(self, given: dict[str, Any]) -> dict[str, Any]:
        """Leave out defaults that were left out at the import, and add those that were not."""
        if given.keys() == self.arguments.keys():
            return given
        defaults = _defaults(self._signature)
        apart = {name: value for name, value in given.items() if name in defaults and name not in self.arguments}
        for name, value in apart.items():
            if not _same_trees(value, defaults[name]):
                raise _changed(name, value, defaults[name])
        kept = {name: value for name, value in given.items() if name not in apart}
        return {name: defaults[name] for name in defaults if name in self.arguments} | kept

    def again(self, arguments: dict[str, Any]) -> ImportedFunction:
        """Trace the function once more, with arguments by name.

        Raises: as `from_function`.
        """
        return _traced(self.function, arguments, self.fallback)

    def unflatten(self, outputs: Iterable[Any]) -> Any:
        """Return the outputs of `model.main` in the structure that the function returns."""
        values = iter(outputs)
        return trees.rebuilt(self.result, lambda _, leaf: taken(leaf, values))

    def call(self) -> Call:
        """Return how the model is called, as plain data."""
        signature = self._signature
        if signature is None:
            return Call(self.model, tuple(self.arguments.values()), {}, self.result, empties=self.empties)
        bound = inspect.BoundArguments(signature, dict(self.arguments))  # pyright: ignore[reportArgumentType]
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        positional = list(self.arguments)[: len(bound.args)]
        names = tuple(name for name in positional if signature.parameters[name].kind is either)
        is_plain = len(names) == len(bound.args)
        names = names if is_plain else ()
        return Call(self.model, bound.args, bound.kwargs, self.result, names, empties=self.empties)


def _changed(name: str, value: Any, before: Any) -> ModelError:
    do = "optimize again with this value; only arrays among the example arguments may be others at each call"
    is_array = _is_array(value) and _is_array(before)
    what = "another array than its default" if is_array else f"{value!r:.80} and was {before!r:.80}"
    return ModelError(f"argument {name} is {what}", do=do)


def from_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    fallback: str = "error",
) -> ImportedFunction:
    """Trace a function of arrays; arguments may be nested in tuples, lists and dicts.

    With `fallback="extern"` numpy's functions without a definition stay calls of numpy.

    Arrays become inputs. Numbers, text and None stay what they are, for all calls; so do arrays that the function has
    from elsewhere, of which it keeps a copy.

    >>> imported = from_function(lambda x, y: np.tanh(x) + y, (np.zeros((3, 4)), np.ones(4)))
    >>> [str(term.type) for term in imported.model.main.outputs]
    ['f64[3, 4]']

    Raises: ModelError for what cannot be traced; what the function itself raises.
    """
    return _traced(function, _bound(function, _signature(function), args, kwargs or {}), fallback)


def _traced(function: Callable[..., Any], bound: dict[str, Any], fallback: str) -> ImportedFunction:
    inputs: dict[Path, Term] = {}
    tensors: dict[Path, Any] = {}
    for path, leaf in trees.leaves(bound):
        if isinstance(leaf, np.matrix | np.ma.MaskedArray):
            what = f"argument {trees.name_of(path)} is a {type(leaf).__name__}"
            raise ModelError(what, do="give a plain array: numpy.asarray(x)")
        found: Any = leaf
        if is_dataclass(found) and any(_is_array(getattr(found, one.name, None)) for one in fields(found)):
            what = f"argument {trees.name_of(path)} is a {type(leaf).__name__} of arrays, whose values would be fixed"
            raise ModelError(what, do="give arrays in tuples, lists and dicts")
        if _is_array(leaf):
            array = leaf if isinstance(leaf, _ARRAYS) else np.from_dlpack(leaf)
            if array is not leaf and np.iscomplexobj(array):
                what = f"argument {trees.name_of(path)} is a complex {type(leaf).__name__}"
                raise ModelError(what, do="give an array of numpy: numpy.from_dlpack(x)")
            inputs[path] = _input(trees.name_of(path), array, inputs.values())
            whole = Tensor(as_complex(inputs[path]) if is_complex(array) else inputs[path])
            tensors[path] = whole if array.size else array.copy()  # numpy knows all of what is empty
    given = trees.rebuilt(bound, lambda path, leaf: tensors.get(path, leaf))
    before = list(trees.leaves(given))
    name = getattr(function, "__name__", type(function).__name__)
    is_extern = fallback == "extern"
    with draws.refused(name), numpy_calls.allowed(is_extern), places.noted() as origin_by_term:
        result = _called(function, given)
    _check_unchanged(before, given)
    outputs: list[Term] = []
    empties: dict[int, TensorType] = {}

    def noted(_: Path, leaf: Any) -> Any:
        if not isinstance(leaf, (Tensor, *_ARRAYS)):
            _check_constant(leaf)
            return leaf
        if isinstance(leaf, np.ndarray) and not leaf.size:
            real = real_of(leaf)
            empties[len(outputs) + len(empties)] = TensorType(real.shape, dtypes.from_numpy(real.dtype))
            return COMPLEX_TENSOR if is_complex(leaf) else TENSOR
        found = as_tensor(leaf).term
        outputs.append(stored(found))
        return COMPLEX_TENSOR if isinstance(found, Complex) else TENSOR

    shape = trees.rebuilt(result, noted)

    def argument(path: Path, leaf: Any) -> Any:
        if path not in inputs:
            return _kept(leaf)
        return COMPLEX_TENSOR if is_complex(leaf) else TENSOR

    arguments = trees.rebuilt(bound, argument)
    main = Function(tuple(inputs.values()), tuple(outputs))
    origins = {term: origin_by_term[term] for term in main.walk() if term in origin_by_term}
    model = Model({"main": main}, values_in(outputs), origins)
    return ImportedFunction(model, function, arguments, shape, fallback=fallback, empties=empties)


def _kept(leaf: Any) -> Any:
    """Return what arguments of calls are compared with: a copy of an object that equals others by its contents."""
    if type(leaf).__hash__ is not None:
        return leaf
    try:
        copied = deepcopy(leaf)
        return copied if is_same(copied, leaf) else leaf
    except Exception:  # it may hold anything
        return leaf


def _check_unchanged(before: Sequence[tuple[Path, Any]], given: dict[str, Any]) -> None:
    """Raise ModelError if a function changed lists or dicts that it was given: a call would leave them as they are."""
    old, new = dict(before), dict(trees.leaves(given))
    changed = [path for path in {**old, **new} if path not in old or path not in new or old[path] is not new[path]]
    if changed:
        what = f"the function changes its argument {changed[0][0]}: {trees.name_of(changed[0])}"
        raise ModelError(what, do="change a copy, and return it")


def _check_constant(leaf: Any) -> None:
    """Raise ModelError for a result that has tensors in it, or gives them out, and is no tree of them."""
    parts = [getattr(leaf, one.name, None) for one in fields(leaf)] if is_dataclass(leaf) else []
    if isinstance(leaf, Iterator) or any(isinstance(part, Tensor) for part in parts):
        what = f"the function returns a {type(leaf).__name__} of tensors"  # pyright: ignore[reportUnknownArgumentType]
        raise ModelError(what, do="return arrays in tuples, lists and dicts")


def _same_trees(tree: Any, other: Any) -> bool:
    one, two = (dict(trees.leaves(part)) for part in (tree, other))
    return one.keys() == two.keys() and all(
        leaf is two[path] or (not _is_array(leaf) and is_same(leaf, two[path])) for path, leaf in one.items()
    )


def _defaults(signature: inspect.Signature | None) -> dict[str, Any]:
    """Return the values of arguments that need not be given."""
    parameters = {} if signature is None else signature.parameters
    return {name: one.default for name, one in parameters.items() if one.default is not inspect.Parameter.empty}


def _input(name: str, array: Any, taken: Iterable[Term]) -> Term:
    try:
        real = real_of(array)
        return tensor("input", name=_fresh(name, taken), shape=real.shape, dtype=dtypes.from_numpy(real.dtype))
    except ModelError as error:
        error.where = f"argument {name}"
        raise


def _fresh(name: str, taken: Iterable[Term]) -> str:
    names = {term.attrs[0] for term in taken}
    while name in names:
        name += "_"
    return name


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _bound(
    function: Callable[..., Any], signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments by name, in the order in which the function has them.

    Raises: ModelError if the function does not take them.
    """
    if signature is None:
        return {**{f"x{i}": arg for i, arg in enumerate(args)}, **kwargs}
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ModelError(f"{name}{signature}: {error}", do="give the arguments that the function takes") from error


def _called(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    signature = _signature(function)
    try:
        if signature is None:
            return function(*given.values())
        bound = inspect.BoundArguments(signature, given)  # pyright: ignore[reportArgumentType]
        return function(*bound.args, **bound.kwargs)
    except ValueError as error:
        if not isinstance(error.__cause__, ModelError):
            raise
        what = f"a value of an array is written: {error.__cause__.what}"
        raise ModelError(what, do="join what the array is made of: numpy.stack, numpy.concatenate") from error
