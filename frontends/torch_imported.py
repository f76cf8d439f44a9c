"""A model that came from torch, and how to call it as its source was called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError
from frittata.egraph.model import Model
from frittata.egraph.terms import TensorType
from frittata.egraph.torch_arrays import tensor_of
from frittata.frontends.calls import (
    COMPLEX_TENSOR,
    STATELESS,
    TENSOR,
    Call,
    Empties,
    State,
    check_order,
    is_same,
    is_tensor,
    pairs_of,
    taken,
)
from frittata.frontends.torch_trees import Tree

_ARRAYS = frozenset({torch.Tensor, torch.nn.Parameter, np.ndarray})
"""What is no tree."""
_CONSTANTS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)


@dataclass(frozen=True, eq=False, repr=False)
class Imported:
    """A model and how to call it as the module was called.

    `parameters` holds the module's own tensors by the name of their param: what a guard watches. `range_by_dim` holds
    the least and the greatest extent of each symbolic dim for which the export holds, None where there is no greatest.
    `signature` is that of the module, where it is known: by it a call may name arguments, and give defaults.
    If the model `reads_memory`, by strides, arguments have to lie in memory as at the export: in order, from its begin.
    """

    model: Model
    parameters: Mapping[str, torch.Tensor]
    input_spec: pytree.TreeSpec
    output_spec: pytree.TreeSpec
    range_by_dim: Mapping[str, tuple[int, int | None]]
    _leaves: tuple[Any, ...]
    _names: tuple[str, ...]
    _results: tuple[Any, ...]
    signature: inspect.Signature | None = None
    reads_memory: bool = False
    state: State = STATELESS
    empties: Empties = field(default_factory=dict[int, TensorType])

    def __repr__(self) -> str:
        return f"Imported({self.model!r}, {len(self.parameters)} parameters)"

    @property
    def is_flat(self) -> bool:
        """Whether all that a call takes are tensors by position: such calls need no tree."""
        return self._is_flat and not self.reads_memory and not self.state.changes

    @cached_property
    def _is_flat(self) -> bool:
        positional, named = self.input_spec.child(0), self.input_spec.child(1)
        flat = all(positional.child(i).is_leaf() for i in range(positional.num_children)) and not named.num_children
        return flat and all(leaf is TENSOR for leaf in self._leaves)

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the tensors of a call in the order of `model.main.inputs`.

        Raises: ModelError if the call has another structure than at the export, or another value that was fixed there;
            if the model reads memory by strides, and a tensor is a view that lies in it otherwise.
        """
        tensors = self._tensors(args, kwargs)
        if self.reads_memory:
            check_order(tensors)
        return tensors

    def _tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
        if self._is_flat and not kwargs and len(args) == len(self._leaves) and _ARRAYS.issuperset(map(type, args)):
            return list(args)
        given: list[Any] = []
        if self._input_tree is None or not self._input_tree.take((tuple(args), kwargs or {}), given):
            given = self._walked(args, kwargs or {})
        tensors: list[Any] = []
        for name, leaf, value in zip(self._names, self._leaves, given, strict=True):
            if leaf is TENSOR and type(value) not in _CONSTANTS:
                tensors.append(value)
            elif leaf is COMPLEX_TENSOR and type(value) not in _CONSTANTS:
                tensors.append(pairs_of(name, value))
            elif is_tensor(leaf) or not _same(value, leaf):
                raise _changed(name, value, leaf)
        return tensors

    def _walked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leaves of a call in the order of the export.

        Raises: ModelError if it has another structure.
        """
        given, spec = pytree.tree_flatten((tuple(args), self._ordered(kwargs)))
        if spec != self.input_spec:
            given, spec = pytree.tree_flatten(self._as_exported(args, kwargs))
        if spec != self.input_spec:
            what = f"the call {_described(spec)} has another structure than the export {_described(self.input_spec)}"
            raise ModelError(
                what + self._misfit(args, kwargs),
                do="give as many arguments as at the export, by position and by name as there, nested alike",
            )
        return given

    def _misfit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Say which argument the source itself would not take; empty if it would take them all."""
        try:
            if self.signature is not None:
                self.signature.bind(*args, **kwargs)
        except TypeError as error:
            return f": {error}"
        return ""

    def unflatten(self, outputs: Iterable[Any]) -> Any:
        """Return the outputs of `model.main`, and `empties`, in the structure that the module returns.

        They are of the library of the arguments: tensors, where there are no arguments that tell.
        """
        if not self._takes_tensors:
            outputs = [tensor_of(output) if isinstance(output, np.ndarray) else output for output in outputs]
        if self._is_one_tensor:
            (output,) = outputs
            return output
        values = iter(outputs)
        leaves = [taken(result, values) for result in self._results]
        if self._output_tree is not None:
            return self._output_tree.build(iter(leaves))
        return pytree.tree_unflatten(leaves, self.output_spec)

    @cached_property
    def _input_tree(self) -> Tree | None:
        return Tree.of(self.input_spec)

    @cached_property
    def _output_tree(self) -> Tree | None:
        return Tree.of(self.output_spec)

    @cached_property
    def _takes_tensors(self) -> bool:
        return any(map(is_tensor, self._leaves))

    @cached_property
    def _is_one_tensor(self) -> bool:
        return self.output_spec.is_leaf() and self._results[0] is TENSOR

    def call(self) -> Call:
        """Return how the model is called, as plain data."""
        args, kwargs = pytree.tree_unflatten(self._leaves, self.input_spec)
        result = pytree.tree_unflatten(self._results, self.output_spec)
        parameters = [] if self.signature is None else list(self.signature.parameters.values())[: len(args)]
        names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        is_plain = len(names) == len(args)
        names = names if is_plain else ()
        return Call(self.model, tuple(args), kwargs, result, names, {}, self.reads_memory, self.state, self.empties)

    def _as_exported(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by position and by name as at the export, with the defaults that were given there, and no others.

        Raises: ModelError for another value in the place of a default that was left out.
        """
        parameters = {} if self.signature is None else self.signature.parameters
        if self.signature is None or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
            return tuple(args), dict(kwargs)
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:
            return tuple(args), dict(kwargs)
        bound.apply_defaults()
        given = bound.arguments
        positional = list(given)[: self.input_spec.child(0).num_children]
        named: list[str] = list(self.input_spec.child(1).context or [])
        for name in given.keys() - {*positional, *named}:
            if not _same(given[name], parameters[name].default):
                raise _changed(name, given[name], parameters[name].default)
        return tuple(given[name] for name in positional), {name: given[name] for name in named}

    def _ordered(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments in the order of the export: trees of dicts keep order."""
        wanted: list[str] = list(self.input_spec.child(1).context or [])
        if set(wanted) != set(kwargs):
            return dict(kwargs)
        return {name: kwargs[name] for name in wanted}


def _same(value: Any, other: Any) -> bool:
    return value is other or (isinstance(value, _CONSTANTS) and is_same(value, other))


def _changed(name: str, value: Any, old: Any) -> ModelError:
    do = "optimize again with this value; only tensors may have others at each call"
    return ModelError(f"argument {name} is {_text(value)} and was {_text(old)} at the export", do=do)


def _text(value: Any) -> str:
    if is_tensor(value):
        return "a tensor"
    return repr(value) if type(value) in _CONSTANTS else f"a {type(value).__name__}"


def _described(spec: pytree.TreeSpec) -> str:
    """Write the structure of a call: f(*, [*, *], scale=*)."""
    positional, named = spec.child(0), spec.child(1)
    parts = [_nested(positional.child(i)) for i in range(positional.num_children)]
    parts += [f"{name}={_nested(named.child(i))}" for i, name in enumerate(named.context or [])]
    return f"f({', '.join(parts)})"


def _nested(spec: pytree.TreeSpec) -> str:
    if spec.is_leaf():
        return "*"
    inner = ", ".join(_nested(spec.child(i)) for i in range(spec.num_children))
    return f"{{{inner}}}" if spec.type is dict else f"({inner})" if spec.type is tuple else f"[{inner}]"
