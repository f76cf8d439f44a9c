"""Import of fx graphs: torch.export gives every call its meaning, unless the caller's converter does.

A converter is a function from terms to terms, or tensors of them. Its call stands in the exported graph as one operator
of our own, `frittata::convert`, whose row asks the converter again with the terms of the whole model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.utils import _pytree as pytree

from frittata.egraph import shapes
from frittata.egraph.errors import FrittataError, ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term, Type
from frittata.frontends import aten, narrow
from frittata.frontends.arrays.tensor import Tensor
from frittata.frontends.torch_dtypes import DTYPE_BY_TORCH, dtype_of
from frittata.frontends.torch_export import from_module, origin
from frittata.frontends.torch_imported import Imported

Target = Any
"""What a converter is for: a function, the name of a method, a class of modules."""

_CALLS = ("call_function", "call_method", "call_module")

Converter = Callable[..., Any]
"""Takes what the call takes, with terms for tensors; for a class of modules, first the `Parts` of the module."""

CONVERTERS: dict[Target, Converter] = {}
"""Converters that `@converter` registered, by target."""


def converter(*targets: Target) -> Callable[[Converter], Converter]:
    """Register a function as the meaning of functions, methods (by name) or classes of leaf modules.

    >>> @converter(torch.special.entr)
    ... def entr(x):
    ...     return tensor("neg", tensor("mul", x, tensor("log", x)))
    >>> CONVERTERS.pop(torch.special.entr) is entr
    True
    """

    def registered(function: Converter) -> Converter:
        CONVERTERS.update(_checked(dict.fromkeys(targets, function)))
        return function

    return registered


def _checked(converters: Mapping[Target, Converter]) -> Mapping[Target, Converter]:
    """Return converters.

    Raises: ModelError for what is none, or is for nothing that a graph calls.
    """
    if not isinstance(converters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ModelError(f"converters={converters!r}", do="give {target: function from terms to terms}")
    for target, function in converters.items():
        if not (hasattr(torch.Tensor, target) if isinstance(target, str) else callable(target)):
            do = "give a function, the name of a method of tensors, or a class of modules"
            raise ModelError(f"a converter is for {target!r}", do=do)
        if not callable(function):
            raise ModelError(f"the converter for {target!r} is {function!r}", do="give a function from terms to terms")
    return converters


def from_fx(
    graph_module: torch.fx.GraphModule,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    converters: Mapping[Target, Converter] | None = None,
    fallback: str = "error",
) -> Imported:
    """Import what `torch.fx.symbolic_trace` returns; a tuple of ints among `args` is the shape of a float32 tensor.

    Converters given here go before those that `@converter` registered, and both before the meaning that torch.export
    finds; `fallback` is for what has neither, as in `from_module`.

    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval())
    >>> from_fx(traced, [(5, 3)]).model.main.outputs[0].op
    'relu'

    Raises: UnsupportedOpError that names the node and the target of every call without a meaning; ModelError.
    """
    if not isinstance(graph_module, torch.fx.GraphModule):  # pyright: ignore[reportUnnecessaryIsInstance]
        what = f"from_fx of a {type(graph_module).__name__}"
        raise ModelError(what, do="give what torch.fx.symbolic_trace returns, or optimize it as it is")
    examples = tuple(map(_example, args))
    table = {**CONVERTERS, **_checked(converters or {})}
    described = {node.name: _described(node, graph_module) for node in graph_module.graph.nodes}
    with _converted(graph_module, table) as module:
        try:
            found = from_module(module, examples, kwargs, place=lambda node: _place(node, described), fallback=fallback)
        except UnsupportedOpError as error:
            error.do = "give converters={target: function from terms to terms}, or add a row to frontends/aten.py"
            raise
    return replace(found, output_spec=_plain(found.output_spec))


class Parts:
    """A module as its converter sees it: parameters and buffers are terms, the rest is as it is."""

    def __init__(self, module: torch.nn.Module, term_by_name: Mapping[str, Term], prefix: str = "") -> None:
        self._module, self._term_by_name, self._prefix = module, term_by_name, prefix

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, torch.nn.Module):
            return Parts(value, self._term_by_name, f"{self._prefix}{name}.")
        return self._term_by_name[self._prefix + name] if isinstance(value, torch.Tensor) else value


@dataclass(eq=False, repr=False)
class _Call:
    """One call that a converter takes: in the graph it is a function of tensors, in the import one of terms."""

    key: int
    convert: Converter
    what: str
    target: Target
    module: torch.nn.Module | None = None
    __name__: ClassVar[str] = "converted"  # as fx prints it
    _given: pytree.TreeSpec = field(init=False)
    _leaves: list[Any] = field(init=False)
    _returned: pytree.TreeSpec = field(init=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, self._given = pytree.tree_flatten((args, kwargs))
        self._leaves = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] + list(self._tensor_by_name().values())
        return pytree.tree_unflatten(torch.ops.frittata.convert(tensors, self.key), self._returned)

    def itself(self, tensors: Sequence[torch.Tensor]) -> tuple[list[Type], pytree.TreeSpec] | None:
        """Return what the call returns of tensors without values, with no converter; None where torch cannot tell."""
        args, kwargs, own = self._taken(tensors)
        called: Any
        try:
            if self.module is not None:  # a copy, with what it has of tensors: a call may change it
                parts = self._tensor_by_name()
                called = copy.deepcopy(self.module, {id(part): own[name] for name, part in parts.items()})
            else:
                called = getattr(torch.Tensor, self.target) if isinstance(self.target, str) else self.target
            leaves, spec = pytree.tree_flatten(called(*args, **kwargs))
            return [_unknown(leaf, "").type for leaf in leaves if isinstance(leaf, torch.Tensor)], spec
        except Exception:  # it may have a converter because torch cannot follow it
            return None

    def apply(self, terms: Sequence[Term]) -> tuple[Term, ...]:
        """Ask the converter.

        Raises: ModelError if it returns anything but terms.
        """
        args, kwargs, own = self._taken(terms)
        if self.module is not None:
            args = (Parts(self.module, own), *args)
        try:
            results, self._returned = pytree.tree_flatten(self.convert(*args, **kwargs))
        except FrittataError as error:
            error.where = self.what + (f", {error.where}" if error.where else "")
            raise
        except Exception as error:  # the caller's code: torch.export would say that it cannot follow the module
            do = "it gets and returns terms: call functions of frittata.ops, or numpy's of frittata.as_tensor(x)"
            raise ModelError(f"{self._converter} raised {type(error).__name__}: {error}", self.what, do) from error
        made: list[Any] = [result.term if isinstance(result, Tensor) else result for result in results]
        for result in made:
            if not isinstance(result, Term):
                raise ModelError(f"{self._converter} returned {result!r}", self.what, "return terms")
        return tuple(made)

    def check(self, results: Sequence[Term], types: Sequence[Type], spec: pytree.TreeSpec) -> None:
        """Compare what the converter returned with what the call returns itself.

        Raises: ModelError if shapes, dtypes or the number of tensors differ.
        """
        found, law = _shown([term.type for term in results], self._returned), _shown(types, spec)
        if found != law:
            what = f"{self._converter} returned {found}, and the call returns {law}"
            raise ModelError(what, self.what, "return as many tensors, of the same shapes and dtypes")

    @property
    def _converter(self) -> str:
        return f"converter {getattr(self.convert, '__name__', self.convert)}"

    def _taken(self, values: Sequence[Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Put values in the places of tensors: positional arguments, those by name, and the module's own."""
        names = self._tensor_by_name()
        given = iter(values)
        args, kwargs = pytree.tree_unflatten([next(given) if x is _TENSOR else x for x in self._leaves], self._given)
        return args, kwargs, dict(zip(names, given, strict=True))

    def _tensor_by_name(self) -> dict[str, torch.Tensor]:
        if self.module is None:
            return {}
        own = self.module.named_parameters(remove_duplicate=False), self.module.named_buffers(remove_duplicate=False)
        return {name: value for part in own for name, value in part}


_TENSOR = object()
"""Stands for a tensor in a list of leaves."""

_call_by_key: dict[int, _Call] = {}
_keys = count()
_TORCH_BY_DTYPE = {name: dtype for dtype, name in DTYPE_BY_TORCH.items()}


@torch.library.custom_op("frittata::convert", mutates_args=())
def _convert(tensors: Sequence[torch.Tensor], call: int) -> list[torch.Tensor]:
    raise ModelError(f"{_call_by_key[call].what} has a converter: its meaning is in terms only")


@_convert.register_fake
def _(tensors: Sequence[torch.Tensor], call: int) -> list[torch.Tensor]:
    asked = _call_by_key[call]
    given = [_unknown(x, f"?{i}") for i, x in enumerate(tensors)]
    itself = asked.itself(tensors)
    results = narrow.applied(asked.apply, [given], {}, lambda: [kind.dtype for kind in itself[0]] if itself else [None])
    if itself:
        asked.check(results, *itself)
    return [torch.empty(shapes.concrete(term.shape), dtype=_TORCH_BY_DTYPE[term.dtype]) for term in results]


aten.ROWS["frittata.convert.default"] = lambda terms, key: _call_by_key[key].apply(terms)


def _shown(types: Sequence[Type], spec: pytree.TreeSpec) -> str:
    text = ", ".join(map(str, types))
    return text if spec.is_leaf() else f"a structure of {text}"


def _unknown(value: torch.Tensor, name: str) -> Term:
    return tensor("input", name=name, shape=tuple(value.shape), dtype=dtype_of(value.dtype, "an argument"))


@contextmanager
def _converted(source: torch.fx.GraphModule, table: Mapping[Target, Converter]) -> Generator[torch.fx.GraphModule]:
    """Yield the graph with `_Call`s in place of the calls that have converters."""
    graph = copy.deepcopy(source.graph)
    calls: dict[int, _Call] = {}
    for node in graph.nodes:
        # torch.export remembers the node that a call comes from only where the node has some meta.
        node.meta.setdefault("nn_module_stack", {})
        module = source.get_submodule(node.target) if node.op == "call_module" else None
        convert = table.get(node.target if module is None else type(module)) if node.op in _CALLS else None
        if convert is not None:
            key = next(_keys)
            calls[key] = _Call(key, convert, _described(node, source), node.target, module)
            node.op, node.target = "call_function", calls[key]
    module = torch.fx.GraphModule(source, graph)
    module.training = False  # what fx makes anew is in no mode: what the graph calls has one
    for call in calls.values():
        if call.module is not None:  # GraphModule keeps what call_module nodes name, and these are gone
            module.add_submodule(call.target, call.module)
    _call_by_key.update(calls)
    try:
        yield module
    finally:
        for key in calls:
            del _call_by_key[key]


_PLAIN = {immutable_list: list, immutable_dict: dict}
"""What a graph returns where torch.export says that it returns what fx keeps in the graph."""


def _plain(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    if spec.is_leaf():
        return spec
    parts = [_plain(spec.child(i)) for i in range(spec.num_children)]
    return pytree.TreeSpec(_PLAIN.get(spec.type, spec.type), spec.context, parts)


def _example(arg: Any) -> Any:
    if not isinstance(arg, tuple) or not all(type(dim) is int for dim in arg):  # pyright: ignore[reportUnknownVariableType]
        return arg
    if min(arg, default=0) < 0:
        raise ModelError(f"an argument of shape {arg}", do="give extents that are not negative")
    return torch.zeros(arg)


def _described(node: torch.fx.Node, source: torch.fx.GraphModule) -> str:
    """Name a node and its target as the model has them: `node 'relu' (torch.relu)`, `node 'fc' (Linear 'fc')`."""
    target: Any = node.target
    match node.op:
        case "call_module":
            target = f"{type(source.get_submodule(target)).__name__} {target!r}"
        case "call_method":
            target = f"method {target!r}"
        case "call_function":
            name = getattr(target, "__name__", str(target))
            target = torch.overrides.resolve_name(target) or f"{getattr(target, '__module__', '')}.{name}".lstrip("._")
        case _:
            target = node.op
    return f"node {node.name!r} ({target})"


def _place(node: torch.fx.Node, described: Mapping[str, str]) -> str:
    """Say which node of the fx graph a node of the export comes from, and its source line where the graph has it."""
    sources = node.meta.get("from_node") or []
    first = sources[0] if sources else None
    while first is not None and first.from_node:
        first = first.from_node[0]
    parts = (described.get(first.name, "") if first is not None else "", origin(node))
    return " at ".join(filter(None, parts))
