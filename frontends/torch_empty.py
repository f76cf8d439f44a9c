"""Calls of operators around tensors without values, which have no terms: what is left of them has values, or is known.

Of empty tensors alone torch gives what it always gives: a constant. Beside others the call is what torch decomposes it
into, `addmm(b, x, y)` say into `b + mm(x, y)`, where the parts are of empty tensors alone or of others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError
from frittata.frontends import aten
from frittata.frontends.torch_known import is_pure

EMPTY: Any = object()
"""Stands for a tensor without values."""

ONLY_DTYPES = frozenset((
    *(f"aten.new_{name}.default" for name in ("empty", "empty_strided", "full", "ones", "zeros")),
    *("aten.to.other", "aten.type_as.default"),
))
"""Operators to which an empty operand tells a dtype."""

PASSES = aten.JOINS | ONLY_DTYPES
"""Operators whose rows take what is left."""

WRITES = frozenset((
    *(f"aten.{name}_scatter.default" for name in ("as_strided", "diagonal", "slice")),
    *(f"aten.scatter.{kind}" for kind in ("src", "value", "reduce", "value_reduce")),
    *("aten.scatter_add.default", "aten.scatter_reduce.two", "aten.index_add.default", "aten.index_copy.default"),
    *("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor", "aten.index_reduce.default", "aten.put.default"),
    *("aten.index_put.default", "aten._unsafe_index_put.default"),
))
"""Operators that write to places of their first operand: it remains where another is empty, and there are none."""


@dataclass(frozen=True)
class Call:
    """A call of an operator; `read` gives the value of an argument, and `is_empty` says it of a tensor."""

    node: torch.fx.Node
    target: Any
    value_by_node: Mapping[torch.fx.Node, Any]
    read: Callable[[Any], Any]
    is_empty: Callable[[torch.Tensor], bool]

    @cached_property
    def takes(self) -> list[bool]:
        """Which of its operands are empty."""
        used = (node for node in self.node.all_input_nodes if _is_tensor(node.meta.get("val")))
        return [self.value_by_node[node] is EMPTY for node in used]

    @cached_property
    def gives(self) -> list[bool]:
        """Which of its results are empty, of those that are used: some norms give statistics without values."""
        value, users = self.node.meta.get("val"), self.node.users
        if isinstance(value, tuple | list) and all(user.target is operator.getitem for user in users):
            used = [user.args[1] for user in users]
            value = [found for key, found in enumerate(value) if key in used]
        return [self.is_empty(found) for found in pytree.tree_leaves(value) if _is_tensor(found)]

    @property
    def _is_alone(self) -> bool:
        """Whether torch can say what it gives: all its operands are empty."""
        is_known = bool(self.takes) and all(self.takes) and is_pure(self.target)
        return is_known and str(self.target) not in ONLY_DTYPES

    def remains(self, indices: Sequence[Any]) -> Any:
        """Return what it gives, if that takes no look at the operator; None if it does.

        `indices` are what is known of them.

        Raises: ModelError if torch refuses it.
        """
        nowhere = any(_is_tensor(index) and not index.numel() for index in indices)
        if self.gives and all(self.gives) and not self._is_alone:
            return EMPTY
        if str(self.target) in WRITES and (nowhere or any(self.takes)) and not all(self.gives):
            self._called()  # for torch.export does not look at all shapes
            return self.value_by_node[self.node.args[0]]  # type: ignore[index]
        return None

    def result(self, known: Callable[[Any], Any], run: Callable[[torch.fx.GraphModule, Sequence[Any]], None]) -> Any:
        """Return what it gives, None if no tensor is empty, or torch does not decompose it.

        `known` makes terms of tensors, `run` imports a graph for the values of its inputs.

        Raises: ModelError if torch refuses it.
        """
        if self._is_alone:
            return known(self._computed())
        concerned = any(self.gives) or (any(self.takes) and str(self.target) not in PASSES)
        return self._decomposed(run) if concerned else None

    def _computed(self) -> Any:
        """Return what it gives, of empty tensors alone.

        Raises: ModelError that gives torch's reason, or where the export has taken it for something else.
        """
        found = self._called()
        leaves = (pytree.tree_leaves(value) for value in (found, self.node.meta["val"]))
        for value, told in ((value, told) for value, told in zip(*leaves, strict=True) if _is_tensor(told)):
            shape, exported = [*value.shape], [*map(self.read, told.shape)]
            if shape != exported:
                what = f"torch gives {shape} of empty tensors, where torch.export takes it to be {exported}"
                raise ModelError(what, do="compute this part outside of the model")
        return found

    def _called(self) -> Any:
        """Return what torch gives of zeros.

        Raises: ModelError if it refuses them.
        """
        given, named = self._arguments("cpu")
        try:
            with torch.no_grad():
                return self.target(*given, **named)
        except (RuntimeError, ValueError, IndexError) as error:
            what = f"torch cannot compute it: {str(error).partition(chr(10))[0]}"
            raise ModelError(what, do="call the model on these arguments") from error

    def _decomposed(self, run: Callable[[torch.fx.GraphModule, Sequence[Any]], None]) -> Any:
        """Return what it gives, None if torch does not decompose it; `run` imports a graph for values of its inputs."""
        graph = _graph_of(self.target, *self._arguments("meta"))
        if graph is None:
            return None
        for part in graph.graph.nodes:
            part.meta = {**self.node.meta, "val": part.meta.get("val")}
        leaves = pytree.tree_leaves((self.node.args, dict(self.node.kwargs)))
        nodes = (leaf for leaf in leaves if isinstance(leaf, torch.fx.Node) and _is_tensor(leaf.meta.get("val")))
        run(graph, [self.value_by_node[node] for node in nodes])
        found = pytree.tree_map_only(torch.fx.Node, self.value_by_node.get, graph.graph.output_node().args[0])
        return tuple(found) if isinstance(found, list) else found

    def _arguments(self, device: str) -> tuple[Any, Any]:
        """Return what it is called with, by position and by name; tensors of zeros."""

        def argument(used: torch.fx.Node) -> Any:
            value = used.meta["val"]
            return _made(value, self.read, device) if _is_tensor(value) else self.read(used)

        return pytree.tree_map_only(torch.fx.Node, argument, (self.node.args, dict(self.node.kwargs)))


def values(nodes: Iterable[torch.fx.Node], read: Callable[[Any], Any]) -> dict[torch.fx.Node, torch.Tensor]:
    """Return the tensors of those nodes that give empty ones; `read` gives their dims."""
    told = {node: node.meta["val"] for node in nodes if _is_tensor(node.meta.get("val"))}
    return {node: _made(value, read) for node, value in told.items() if 0 in map(read, value.shape)}


def _made(told: torch.Tensor, read: Callable[[Any], Any], device: str = "cpu") -> torch.Tensor:
    """Return a tensor of a shape that is told."""
    return torch.zeros([*map(read, told.shape)], dtype=told.dtype, device=device)


def _graph_of(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.fx.GraphModule | None:
    """Return the graph into which torch decomposes a call of tensors on the meta device; None if it does not.

    Its inputs are the tensors among the arguments, one for each time that it is there.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    every: dict[Any, Any] = {**decomposition_table, **torch.export.default_decompositions()}
    table = {op: meaning for op, meaning in every.items() if op is target or str(op) not in aten.ROWS}

    def call(*tensors: torch.Tensor) -> Any:
        each = iter(tensors)
        given, named = pytree.tree_unflatten([next(each) if _is_tensor(leaf) else leaf for leaf in leaves], spec)
        return target(*given, **named)

    with FakeTensorMode(), torch.no_grad():
        tensors = [torch.empty(leaf.shape, dtype=leaf.dtype) for leaf in leaves if _is_tensor(leaf)]
        try:
            found = make_fx(call, table, tracing_mode="fake")(*tensors)
        except Exception:  # it runs the meanings of many operators, some of which do not expect this
            return None
    found.graph.eliminate_dead_code()
    return None if any(node.target is target for node in found.graph.nodes) else found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
