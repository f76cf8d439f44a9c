"""How a model is called, as plain data: what is kept of a front end when a compiled model is saved."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError
from frittata.egraph.model import Model
from frittata.egraph.terms import TensorType
from frittata.frontends.arrays import trees

TENSOR: Any = object()
"""Stands for a tensor among the leaves of arguments and results."""

COMPLEX_TENSOR: Any = object()
"""Stands for a complex tensor, which is a real one of the model's: along its last axis lie both parts."""

Empties = Mapping[int, TensorType]
"""Results without values, by their places among all that a run gives: no program computes them."""

_CONSTANTS = (type(None), bool, int, float, str)


@dataclass(frozen=True, eq=False)
class State:
    """What calls change: the first outputs of a model become what its inputs at these places were, and are no results.

    The last inputs are `tensors` of the source itself, by name: they are read at every call.
    """

    changes: tuple[int, ...] = ()
    tensors: Mapping[str, Any] = field(default_factory=dict[str, Any])


STATELESS = State()


@dataclass(frozen=True, eq=False)
class Call:
    """A model, its arguments by position and by name, and its result: trees of tensors and constants.

    `names` are those of positional arguments that may be given by name too.
    If the model `reads_memory`, by strides, arguments have to lie in memory in order, from its begin. `empties` are
    as those of an `Imported`.
    """

    model: Model
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    names: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reads_memory: bool = False
    state: State = STATELESS
    empties: Empties = field(default_factory=dict[int, TensorType])

    @staticmethod
    def of(model: Model, read: int = 0, empties: Empties | None = None) -> Call:
        """Return the call of a model alone: inputs by position or name; one output as it is, several as a tuple.

        The last inputs are no arguments if so many are parameters that are read at every call.
        """
        inputs = model.main.inputs[: len(model.main.inputs) - read]
        count = len(model.main.outputs) + len(empties or {})
        result = TENSOR if count == 1 else (TENSOR,) * count
        names = tuple(term.attrs[0] for term in inputs)
        return Call(model, (TENSOR,) * len(inputs), {}, result, names, empties=empties or {})

    @property
    def is_flat(self) -> bool:
        """Whether all that a call takes are tensors by position: such calls need no tree."""
        return self._is_flat and not self.reads_memory and not self.state.changes

    @cached_property
    def _is_flat(self) -> bool:
        return not self.kwargs and all(arg is TENSOR for arg in self.args)

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the tensors of a call in the order of `model.main.inputs`.

        Raises: ModelError if the call has another structure, or another constant, than the model was compiled for; if
            the model reads memory by strides, and a tensor is a view that lies in it otherwise.
        """
        tensors = self._tensors(args, kwargs)
        if self.reads_memory:
            check_order(tensors)
        return tensors

    def _tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
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
            elif leaf is COMPLEX_TENSOR:
                tensors.append(pairs_of(self._name(path), value))
            elif not is_same(value, leaf):
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
        return trees.rebuilt(self.result, lambda _, leaf: taken(leaf, values))

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
            "reads_memory": self.reads_memory,
            "changes": self.state.changes,
            "empties": [[place, type_.shape, type_.dtype] for place, type_ in self.empties.items()],
        }

    @staticmethod
    def from_dict(model: Model, data: Mapping[str, Any]) -> Call:
        """Read what `to_dict` returned."""
        kwargs = {name: _decoded(tree) for name, tree in data["kwargs"].items()}
        args = tuple(map(_decoded, data["args"]))
        return Call(
            model,
            args,
            kwargs,
            _decoded(data["result"]),
            tuple(data["names"]),
            reads_memory=data.get("reads_memory", False),
            state=State(tuple(data.get("changes", ()))),
            empties={place: TensorType(tuple(shape), dtype) for place, shape, dtype in data.get("empties", ())},
        )


def is_same(value: Any, other: Any) -> bool:
    """Whether one constant is another: of one type, and equal; zeros have signs, and not a number is not a number."""
    if type(value) is not type(other):
        return False
    if isinstance(value, float | complex):
        return repr(value) == repr(other)
    return bool(value is other or value == other)


def is_tensor(leaf: Any) -> bool:
    """Whether a leaf stands for a tensor."""
    return leaf is TENSOR or leaf is COMPLEX_TENSOR


def pairs_of(name: str, value: Any) -> Any:
    """Return a complex argument of a name as the model takes it.

    Raises: ModelError if it is none.
    """
    if not is_complex(value):
        raise ModelError(f"argument {name} is no complex tensor or array, and the model takes one", do="convert it")
    return real_of(value)


def real_of(value: Any) -> Any:
    """Return a complex tensor or array as the real numbers in its memory, both parts along a new last axis.

    Of a conjugate that torch has not computed yet they are a copy, of which `source_of` tells.
    """
    if not is_complex(value):
        return value
    if not hasattr(value, "is_conj"):
        if isinstance(value, np.matrix | np.ma.MaskedArray):
            return value  # to be refused as those of real numbers are
        array: Any = np.asarray(value)
        return array[..., None].view(array.real.dtype)
    import torch

    pairs: Any = torch.view_as_real(value.resolve_conj())
    if value.is_conj():
        pairs.copy_of = value
    return pairs


def source_of(value: Any) -> Any:
    """Return the conjugate that `real_of` copied, else the value."""
    return getattr(value, "copy_of", value)


def axis_of_parts(value: Any) -> tuple[int, ...]:
    """Return the extent of the axis that is added where a complex tensor or array is a real one."""
    return (2,) if is_complex(value) else ()


def is_complex(value: Any) -> bool:
    """Whether a tensor or an array is complex."""
    kind = getattr(value, "is_complex", None)
    return isinstance(value, np.ndarray | np.generic) and np.iscomplexobj(value) if kind is None else kind()


def taken(leaf: Any, values: Iterator[Any]) -> Any:
    """Return what stands in a result for a leaf: the next value, which may be a complex tensor's, or a constant."""
    if leaf is TENSOR:
        return next(values)
    return complex_of(next(values)) if leaf is COMPLEX_TENSOR else leaf


def complex_of(pairs: Any) -> Any:
    """Return the complex tensor or array whose parts lie along a last axis, in the same memory."""
    if hasattr(pairs, "detach"):
        import torch

        return torch.view_as_complex(pairs)
    array: Any = pairs if isinstance(pairs, np.ndarray) else np.from_dlpack(pairs)
    return array.view(np.result_type(array.dtype, np.complex64))[..., 0]


def check_order(tensors: Iterable[Any]) -> None:
    """Check that tensors lie in memory in order, from its begin.

    Raises: ModelError if one is a view that does not.
    """
    if not all(map(_is_in_order, tensors)):
        what = "the model reads memory by strides, and an argument is a view of other memory"
        raise ModelError(what, do="give x.contiguous().clone() of a tensor, numpy.array(x, order='C') of an array")


def _is_in_order(value: Any) -> bool:
    if hasattr(value, "storage_offset"):
        return value.is_contiguous() and value.storage_offset() == 0
    flags = getattr(value, "flags", None)
    return flags is None or flags.c_contiguous


def _text(tree: Any) -> str:
    if is_tensor(tree):
        return "*"
    return str(trees.rebuilt(tree, lambda _, leaf: "*" if is_tensor(leaf) else leaf)).replace("'*'", "*")


def _encoded(tree: Any) -> Any:
    if tree is TENSOR:
        return {"tensor": True}
    if tree is COMPLEX_TENSOR:
        return {"complex": True}
    if type(tree) is tuple:
        return {"tuple": list(map(_encoded, tree))}
    if type(tree) is list:
        return {"list": list(map(_encoded, tree))}
    if type(tree) in (dict, OrderedDict):
        kind = "dict" if type(tree) is dict else "ordered"
        return {kind: [[_encoded_key(key), _encoded(part)] for key, part in tree.items()]}
    if isinstance(tree, tuple) and (names := _names_of_parts(type(tree))):  # pyright: ignore[reportUnknownArgumentType]
        return {"named": [type(tree).__name__, names, list(map(_encoded, tree))]}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if type(tree) in _CONSTANTS:
        return {"constant": tree}
    raise ModelError(
        f"a {type(tree).__name__} among arguments or results cannot be saved",
        do="take and return tensors, and tuples, lists and dicts of them",
    )


def _names_of_parts(kind: type) -> list[str]:
    """Return the names that a class of named tuples gives its parts, as those of torch do; none of other classes."""
    return list(getattr(kind, "_fields", ()) or getattr(kind, "__match_args__", ()))


def _encoded_key(key: Any) -> Any:
    if type(key) is tuple:
        return list(map(_encoded_key, key))
    if type(key) in _CONSTANTS:
        return key
    raise ModelError(
        f"a {type(key).__name__} as a key of a dict among arguments or results cannot be saved",
        do="use texts, numbers, and tuples of them as keys",
    )


def _key(key: Any) -> Any:
    return tuple(map(_key, key)) if isinstance(key, list) else key  # pyright: ignore


def _decoded(data: Any) -> Any:
    ((kind, value),) = data.items()
    match kind:
        case "tensor":
            return TENSOR
        case "complex":
            return COMPLEX_TENSOR
        case "tuple":
            return tuple(map(_decoded, value))
        case "list":
            return list(map(_decoded, value))
        case "dict":
            return {_key(key): _decoded(part) for key, part in value}
        case "ordered":
            return OrderedDict((_key(key), _decoded(part)) for key, part in value)
        case "named":
            name, names, parts = value
            return namedtuple(name, names)(*map(_decoded, parts))  # pyright: ignore[reportUntypedNamedTuple]
        case _:
            return value
