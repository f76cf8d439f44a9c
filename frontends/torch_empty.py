"""Calls of operators around tensors without values, which have no terms: what is left of them has values, or is known.

Of empty tensors alone torch gives what it always gives: a constant. Beside others the call is what torch decomposes it
into, `addmm(b, x, y)` say into `b + mm(x, y)`, where the parts are of empty tensors alone or of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
class Around:
    """A call that takes empty tensors, or gives some among others; `read` gives the value of an argument."""

    node: torch.fx.Node
    target: Any
    value_by_node: Mapping[torch.fx.Node, Any]
    read: Callable[[Any], Any]

    def result(self, known: Callable[[Any], Any], run: Callable[[torch.fx.GraphModule, Sequence[Any]], None]) -> Any:
        """Return what it gives, None if torch does not decompose it.

        `known` makes terms of tensors, `run` imports a graph for the values of its inputs.

        Raises: ModelError.
        """
        leaves = pytree.tree_leaves((self.node.args, dict(self.node.kwargs)))
        given = [self.value_by_node[leaf] for leaf in leaves if _is_tensor(leaf)]
        args, kwargs = pytree.tree_map_only(torch.fx.Node, self._made, (self.node.args, dict(self.node.kwargs)))
        if is_pure(self.target) and all(value is EMPTY for value in given):
            return known(_computed(self.target, args, kwargs))
        graph = _decomposed(self.target, args, kwargs)
        if graph is None:
            return None
        for part in graph.graph.nodes:
            part.meta = {**self.node.meta, "val": part.meta.get("val")}
        run(graph, given)
        found = pytree.tree_map_only(torch.fx.Node, self.value_by_node.get, graph.graph.output_node().args[0])
        return tuple(found) if isinstance(found, list) else found

    def _made(self, used: torch.fx.Node) -> Any:
        """Return an argument, a tensor on the meta device."""
        if not _is_tensor(used):
            return self.read(used)
        value = used.meta["val"]
        return torch.empty([*map(self.read, value.shape)], dtype=value.dtype, device="meta")


def _computed(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what an operator gives for tensors on the meta device, all of which are empty.

    Raises: ModelError that gives torch's reason.
    """
    given, named = pytree.tree_map_only(torch.Tensor, partial(torch.empty_like, device="cpu"), (args, kwargs))
    try:
        with torch.no_grad():
            return target(*given, **named)
    except (RuntimeError, ValueError, IndexError) as error:
        what = f"torch cannot compute it: {str(error).partition(chr(10))[0]}"
        raise ModelError(what, do="call the model on these arguments") from error


def _decomposed(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.fx.GraphModule | None:
    """Return the graph into which torch decomposes a call of tensors on the meta device; None if it does not.

    Its inputs are the tensors among the arguments, one for each time that it is there.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    every = {**decomposition_table, **torch.export.default_decompositions()}
    table = {op: meaning for op, meaning in every.items() if op is target or str(op) not in aten.ROWS}

    def call(*tensors: torch.Tensor) -> Any:
        each = iter(tensors)
        given, named = pytree.tree_unflatten([next(each) if _is_meta(leaf) else leaf for leaf in leaves], spec)
        return target(*given, **named)

    with FakeTensorMode(), torch.no_grad():
        tensors = [torch.empty(leaf.shape, dtype=leaf.dtype) for leaf in leaves if _is_meta(leaf)]
        try:
            found = make_fx(call, table, tracing_mode="fake")(*tensors)
        except Exception:  # it runs the meanings of many operators, some of which do not expect this
            return None
    found.graph.eliminate_dead_code()
    return None if any(node.target is target for node in found.graph.nodes) else found


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_tensor(value: Any) -> bool:
    """Whether an argument is a node that gives a tensor."""
    return isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)
