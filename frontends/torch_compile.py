"""Graphs that torch.compile captures: each is optimized at its first call, when its parameters have come."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np
import torch

from frittata.egraph.errors import (
    EmptyError,
    ModelError,
    SharedMemoryError,
    StaleParametersError,
    UnsupportedOpError,
)

Optimize = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""Compiles a graph for example arguments."""

log = logging.getLogger(__name__)

_AT_ONCE = 8
"""So many programs of a graph are compiled when they are first wanted; torch recompiles as often unless told."""

_MOST_WORK = 1_000_000
"""So many steps may be taken to find whether two strided results have an element in common."""

_CONTAINERS = re.compile(r"^(_modules|_parameters|_buffers|__dict__)$")
_PART = re.compile(r"\['([^']+)'\]|\.(\w+)|\[(\d+)\]")


@dataclass(frozen=True)
class Placeholder:
    """An argument of a captured graph: a `number` in a tensor, a tensor that the model holds (`fixed`), or given."""

    node: str
    source: Any
    number: bool
    fixed: bool

    @classmethod
    def of(cls, node: torch.fx.Node) -> Placeholder:
        """Read what torch says of a placeholder, which it forgets once the graph is compiled."""
        known: Mapping[str, Any] = node.meta.get("tensor_dict") or {}
        argument: Any = node.meta.get("grapharg")
        number = bool(getattr(argument, "pass_arg_as_tensor", False)) and not argument.is_tensor  # numpy's arrays are
        own = node.type is torch.nn.Parameter or known.get("_dynamo_static_input_type") is not None
        return cls(node.name, getattr(argument, "source", None), number, number or own)


class CapturedGraph:
    """A graph that torch.compile captured, callable as torch calls it.

    Newer torch hands over parameters as arguments. They are folded like any parameter: there is one program for each
    set of parameters and each shape of the other arguments; dims that torch made dynamic are specialized. Beyond eight,
    one is compiled once torch has run the graph in its place for as long as compiling takes: what comes once, as the
    lengths of a cache that grows, is never compiled, and what stays takes at most twice the time.
    """

    def __init__(self, graph: torch.fx.GraphModule, optimize: Optimize) -> None:
        self._graph, self._optimize = graph, optimize
        self._placeholders = [Placeholder.of(node) for node in graph.graph.nodes if node.op == "placeholder"]
        self._program_by_key: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._by_torch_s, self._compiling_s = defaultdict[tuple[Any, ...], float](float), 0.0
        self._returns = bool(graph.graph.output_node().args[0])
        self._views = _views(graph.graph)

    def __call__(self, *args: Any) -> Any:
        """Run the program for these arguments; compile it if there is none, or if its parameters were changed.

        Torch runs the graph itself where there are many programs and none yet for these arguments, nothing is returned,
        what the graph changes shares memory with what else it reads, or it alone knows what an operator makes of an
        empty tensor.

        Raises: ModelError if gradients are wanted; as `optimize`.
        """
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            raise ModelError(
                "gradients are wanted, and this backend is for inference",
                do="call the compiled model under torch.no_grad() or torch.inference_mode()",
            )
        if not self._returns or self._views is None:
            return self._graph(*args)
        pairs = list(zip(self._placeholders, args, strict=True))
        key = tuple(_key(placeholder, value) for placeholder, value in pairs)
        if self._waits(key):
            start = perf_counter()
            results = self._graph(*args)
            self._by_torch_s[key] += perf_counter() - start
            return results
        try:
            results = self._results(key, pairs)
        except SharedMemoryError:
            return self._graph(*args)
        views = self._views
        return [views[at].read(args, results) if at in views else result for at, result in enumerate(results)]

    def _waits(self, key: tuple[Any, ...]) -> bool:
        """Whether a program is not compiled yet: there are many, and torch has not run long in the place of this."""
        if key in self._program_by_key or len(self._program_by_key) < _AT_ONCE:
            return False
        if not self._by_torch_s:
            what = "a graph has %d programs: where sizes, numbers or parameters are new, torch runs it for %.1f s first"
            log.warning(what, _AT_ONCE, self._compiling_s)
        return self._by_torch_s[key] < self._compiling_s

    def _results(self, key: tuple[Any, ...], pairs: Sequence[tuple[Placeholder, Any]]) -> Sequence[Any]:
        given = [value for placeholder, value in pairs if _is_given(placeholder, value)]
        if key in self._program_by_key:
            try:
                return self._program_by_key[key](*given)
            except StaleParametersError:
                del self._program_by_key[key]
        start = perf_counter()
        module = bound(self._graph, [pair for pair in pairs if not _is_given(*pair)])
        try:
            self._program_by_key[key] = self._optimize(module, given)
        except EmptyError:
            self._program_by_key[key] = module
        except UnsupportedOpError as error:
            error.do = "keep them out of the graph: call them in a function under @torch.compiler.disable"
            raise
        self._compiling_s = perf_counter() - start
        return self._program_by_key[key](*given)


@dataclass(frozen=True)
class _View:
    """A result that is a view of an argument, or of another result: what is written to one, later, is in both."""

    of_result: bool
    number: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @staticmethod
    def between(value: torch.Tensor, of: torch.Tensor, number: int, *, of_result: bool) -> _View | None:
        """Return how a tensor lies in another, None if that is not known, or it is read as another dtype, say."""
        size, stride = tuple(value.shape), tuple(value.stride())
        offset: Any = value.storage_offset() - of.storage_offset()
        is_known = all(isinstance(part, int) for part in (*size, *stride, offset))
        return _View(of_result, number, size, stride, offset) if is_known and _reading(value) == _reading(of) else None

    def read(self, args: Sequence[Any], results: Sequence[Any]) -> torch.Tensor:
        source = (results if self.of_result else args)[self.number]
        return source.as_strided(self.size, self.stride, source.storage_offset() + self.offset)


def _views(graph: torch.fx.Graph) -> dict[int, _View] | None:
    """Return the results that are views of arguments, or of other results, by number.

    None if the size of one is not known, it is read otherwise than what it is a view of, conjugated or as another
    dtype, or no result has all the memory that some share.
    """
    examples = [node.meta.get("example_value") for node in graph.nodes if node.op == "placeholder"]
    number_by_memory = {_memory(value): number for number, value in enumerate(examples)}
    found: dict[int, _View | None] = {}
    made: dict[int, dict[int, torch.Tensor]] = {}
    for at, result in enumerate(graph.output_node().args[0]):  # type: ignore[arg-type]
        value: Any = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else None
        memory = _memory(value)
        if memory is None:
            continue
        argument = number_by_memory.get(memory)
        if argument is None:
            made.setdefault(memory, {})[at] = value
        else:
            found[at] = _View.between(value, examples[argument], argument, of_result=False)
    for values in made.values():
        found.update(_views_of_each_other(values))
    known = {at: view for at, view in found.items() if view is not None}
    return known if len(known) == len(found) else None


def _views_of_each_other(values: Mapping[int, torch.Tensor]) -> dict[int, _View | None]:
    """Return the views among results with one memory: none if no two of them have an element in common."""
    pairs = {(at, of): _View.between(values[at], values[of], of, of_result=True) for at in values for of in values}
    if len(values) == 1 or (None not in pairs.values() and not _overlap([*values.values()])):
        return {}
    for of, whole in values.items():
        views = {at: pairs[at, of] for at in values if at != of}
        if None not in pairs.values() and whole.is_contiguous() and all(map(partial(_holds, whole), values.values())):
            return views
    return dict.fromkeys(values)


def _holds(whole: torch.Tensor, part: torch.Tensor) -> bool:
    """Whether the memory from the begin to the end of a dense tensor has that of another."""
    return _begin(whole) <= _begin(part) and _end(part) <= _end(whole)


def _overlap(values: Sequence[torch.Tensor]) -> bool:
    """Whether two tensors of one memory have an element in common."""
    memory = np.empty(max(map(_end, values)), np.int8)  # no more than addresses are looked at
    arrays = [np.ndarray(value.shape, np.int8, memory, _begin(value), value.stride()) for value in values]
    shared: Any = partial(np.shares_memory, max_work=_MOST_WORK)  # type: ignore[arg-type]
    try:
        return any(shared(one, other) for one, other in combinations(arrays, 2))
    except np.exceptions.TooHardError:
        return True


def _begin(value: torch.Tensor) -> int:
    """Return where in its memory a tensor begins, in elements."""
    return int(value.storage_offset())


def _end(value: torch.Tensor) -> int:
    """Return where in its memory a tensor ends, in elements."""
    steps = sum((extent - 1) * step for extent, step in zip(value.shape, value.stride(), strict=True))
    return _begin(value) + (steps + 1 if value.numel() else 0)


def _reading(value: torch.Tensor) -> tuple[torch.dtype, bool, bool]:
    return value.dtype, value.is_conj(), value.is_neg()


def _memory(value: Any) -> int | None:
    """Return which memory a tensor has, if any."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if is_dense else None  # pyright: ignore[reportPrivateUsage]


def bound(source: torch.fx.GraphModule, values: Sequence[tuple[Placeholder, Any]]) -> torch.fx.GraphModule:
    """Fix placeholders: tensors become attributes under their names in the model, numbers are written out."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, Any] = {}
    fixed = {placeholder.node: value for placeholder, value in values}
    numbers = {placeholder.node: value.item() for placeholder, value in values if placeholder.number}
    names = _names([placeholder for placeholder, _ in values])
    attributes: dict[str, Any] = {}
    for node in source.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            attributes[node.target] = attrgetter(node.target)(source)
        if node.target == "item" and node.args[0].name in numbers:
            copies[node] = numbers[node.args[0].name]
        elif node.name not in fixed:
            copies[node] = graph.node_copy(node, lambda used: copies[used])
        else:
            copies[node] = fixed[node.name]
            if isinstance(copies[node], torch.Tensor):
                attributes[names[node.name]] = copies[node]
                copies[node] = graph.get_attr(names[node.name])
    return torch.fx.GraphModule(attributes, graph).eval()


def _is_given(placeholder: Placeholder, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not placeholder.fixed


def _key(placeholder: Placeholder, value: Any) -> Any:
    """Return what a program depends on: the value of a number, which tensor of the model it is, else the type."""
    if not isinstance(value, torch.Tensor):
        return value
    if placeholder.number:
        return repr(value.item())  # 0.0 == -0.0, and NaN is not equal to itself
    return value.data_ptr() if placeholder.fixed else (tuple(value.shape), value.dtype)


def _names(placeholders: Sequence[Placeholder]) -> dict[str, str]:
    """Return dotted names by node: those in the model, if torch says that all tensors come from one, and they differ.

    An argument and a global may be two models of one name.
    """
    parts_by_node = {placeholder.node: _path(placeholder.source) for placeholder in placeholders}
    names = {node: ".".join(parts[1:]) or node for node, parts in parts_by_node.items()}
    if len({parts[:1] for parts in parts_by_node.values()}) > 1 or len({*names.values()}) < len(names):
        return {node: node for node in parts_by_node}
    return names


def _path(source: Any) -> tuple[str, ...]:
    """Split `L['self']._modules['fc']._parameters['weight']` into self, fc, weight."""
    name: Any = getattr(source, "name", "")
    text: str = name() if callable(name) else name  # pyright: ignore[reportAssignmentType]
    parts = (next(filter(None, found)) for found in _PART.findall(text))
    return tuple(part for part in parts if not _CONTAINERS.match(part))
