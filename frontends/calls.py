"""How a model is called, as plain data: what is kept of a front end when a compiled model is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from frittata.egraph.errors import ModelError
from frittata.egraph.model import Model
from frittata.frontends.arrays import trees

TENSOR: Any = ...
"""Stands for a tensor among the leaves of arguments and results."""

_CONSTANTS = (type(None), bool, int, float, str)


@dataclass(frozen=True, eq=False)
class Call:
    """A model, its arguments by position and by name, and its result: trees of tensors and constants.

    `names` are those of positional arguments that may be given by name too.
    """

    model: Model
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    names: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @staticmethod
    def of(model: Model, read: int = 0) -> Call:
        """Return the call of a model alone: inputs by position or name; one output as it is, several as a tuple.

        The last inputs are no arguments if so many are parameters that are read at every call.
        """
        inputs, outputs = model.main.inputs[: len(model.main.inputs) - read], model.main.outputs
        result = TENSOR if len(outputs) == 1 else (TENSOR,) * len(outputs)
        return Call(model, (TENSOR,) * len(inputs), {}, result, tuple(term.attrs[0] for term in inputs))

    @property
    def is_flat(self) -> bool:
        """Whether all that a call takes are tensors by position."""
        return self._is_flat

    @cached_property
    def _is_flat(self) -> bool:
        return not self.kwargs and all(arg is TENSOR for arg in self.args)

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the tensors of a call in the order of `model.main.inputs`.

        Raises: ModelError if the call has another structure, or another constant, than the model was compiled for.
        """
        if not kwargs and self._is_flat and len(args) == len(self.args):
            return list(args)
        named = dict(kwargs or {})
        twice = [name for name in self.names[: len(args)] if name in named]
        if twice:
            raise ModelError(f"{twice[0]} is given by position and by name", do=f"call it as {self}")
        rest = [named.pop(name) for name in self.names[len(args) :] if name in named]
        given = dict(trees.leaves((*args, *rest))) | dict(trees.leaves(named))
        tensors: list[Any] = []
        for path, leaf in self._leaves.items():
            if path not in given:
                raise ModelError(f"the call lacks {self._name(path)}", do=f"call it as {self}")
            value = given.pop(path)
            if leaf is TENSOR:
                tensors.append(value)
            elif type(value) is not type(leaf) or (value != leaf and not (value != value and leaf != leaf)):
                raise ModelError(f"{self._name(path)} is {value!r} and was {leaf!r}", do="compile for it")
        if len(args) > len(self.args):
            takes = f"{len(self.args)} argument{'s' * (len(self.args) != 1)}"
            raise ModelError(f"the model takes {takes} by position, got {len(args)}", do=f"call it as {self}")
        if given:
            raise ModelError(f"the model takes no {self._name(next(iter(given)))}", do=f"call it as {self}")
        return tensors

    def unflatten(self, outputs: Iterable[Any]) -> Any:
        """Return the outputs of `model.main` in the structure of the result."""
        values = iter(outputs)
        return trees.rebuilt(self.result, lambda _, leaf: next(values) if leaf is TENSOR else leaf)

    def call(self) -> Call:
        """Return itself: it is what is kept of a front end."""
        return self

    @cached_property
    def _leaves(self) -> dict[trees.Path, Any]:
        return dict(trees.leaves(self.args)) | dict(trees.leaves(self.kwargs))

    def __str__(self) -> str:
        named = {**dict(zip(self.names, self.args, strict=False)), **self.kwargs}
        parts = [_text(arg) for arg in self.args[len(self.names) :]]
        return f"f({', '.join(parts + [f'{name}={_text(arg)}' for name, arg in named.items()])})"

    def _name(self, path: trees.Path) -> str:
        """Name an argument, or what lies in one, as a caller would: x, or argument_0_w."""
        position = path[0]
        if not isinstance(position, int):
            return trees.name_of(path)
        return trees.name_of((self.names[position], *path[1:]) if position < len(self.names) else ("argument", *path))

    def to_dict(self) -> dict[str, Any]:
        """Return arguments and result as data that `json.dumps` takes.

        Raises: ModelError for trees of other classes than tuples, lists and dicts, or other constants.
        """
        encoded = {name: _encoded(tree) for name, tree in self.kwargs.items()}
        return {
            "args": list(map(_encoded, self.args)),
            "kwargs": encoded,
            "result": _encoded(self.result),
            "names": list(self.names),
        }

    @staticmethod
    def from_dict(model: Model, data: Mapping[str, Any]) -> Call:
        """Read what `to_dict` returned."""
        kwargs = {name: _decoded(tree) for name, tree in data["kwargs"].items()}
        args = tuple(map(_decoded, data["args"]))
        return Call(model, args, kwargs, _decoded(data["result"]), tuple(data["names"]))


def _text(tree: Any) -> str:
    if tree is TENSOR:
        return "*"
    return str(trees.rebuilt(tree, lambda _, leaf: "*" if leaf is TENSOR else leaf)).replace("'*'", "*")


def _encoded(tree: Any) -> Any:
    if tree is TENSOR:
        return {"tensor": True}
    if type(tree) is tuple:
        return {"tuple": list(map(_encoded, tree))}
    if type(tree) is list:
        return {"list": list(map(_encoded, tree))}
    if type(tree) is dict:
        return {"dict": [[key, _encoded(part)] for key, part in tree.items()]}
    if isinstance(tree, _CONSTANTS):
        return {"constant": tree}
    raise ModelError(
        f"a {type(tree).__name__} among arguments or results cannot be saved",
        do="take and return tensors, and tuples, lists and dicts of them",
    )


def _key(key: Any) -> Any:
    return tuple(map(_key, key)) if isinstance(key, list) else key  # pyright: ignore


def _decoded(data: Any) -> Any:
    ((kind, value),) = data.items()
    match kind:
        case "tensor":
            return TENSOR
        case "tuple":
            return tuple(map(_decoded, value))
        case "list":
            return list(map(_decoded, value))
        case "dict":
            return {_key(key): _decoded(part) for key, part in value}
        case _:
            return value
