"""Modules that torch.export cannot follow, for they differentiate or vectorize: traced as calls of ATen's operators."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch._higher_order_ops.flex_attention import math_attention
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from frittata.egraph.errors import FrittataError, ModelError
from frittata.frontends import torch_decided
from frittata.frontends.torch_captured import Captured
from frittata.frontends.torch_dims import made_of_values
from frittata.frontends.torch_origins import innermost
from frittata.frontends.torch_state import keeping_tensors

_TRANSFORMS = "torch._functorch"
"""Where what torch.func does to a graph is defined: torch.export leaves some of it in as calls."""

_GRADIENTS, _FLEX = torch.ops.higher_order.wrap_with_set_grad_enabled, torch.ops.higher_order.flex_attention
"""What torch.export leaves in as calls of graphs, and tracing takes apart."""


def followed(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any, captured: Captured
) -> torch.export.ExportedProgram:
    """Export a module, or what it calls where torch.export cannot follow it and all sizes are known.

    What it has from elsewhere is noted in `captured`.

    Raises: what torch.export says of the module; ModelError.
    """
    exported = partial(torch.export.export, args=tuple(args), kwargs=dict(kwargs), dynamic_shapes=dynamic_shapes)
    gradients: list[bool] = []

    def export(module: torch.nn.Module) -> torch.export.ExportedProgram:
        with _noting(gradients):
            return exported(module)

    try:
        with captured:
            program = export(module)
    except FrittataError:
        raise
    except Exception as error:
        if dynamic_shapes:
            raise
        program = _decided(module, export, captured) if isinstance(error, torch_decided.UNDECIDED) else None
        if program is None:
            try:
                return export(_traced(module, args, kwargs, captured))
            except FrittataError:
                raise
            except Exception:
                raise error from None
    else:
        if not dynamic_shapes and torch_decided.asks(program):
            program = _decided(module, export, captured) or program
    parts = (part for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule))
    targets = [node.target for part in parts for node in part.graph.nodes if node.op == "call_function"]
    is_transformed = any((getattr(target, "__module__", None) or "").startswith(_TRANSFORMS) for target in targets)
    if is_transformed and dynamic_shapes:
        raise ModelError("torch.func transforms a part of the model, and sizes are dynamic", do="give fixed sizes")
    is_called = (_FLEX in targets or (_GRADIENTS in targets and any(gradients))) and not dynamic_shapes
    return export(_traced(module, args, kwargs, captured)) if is_transformed or is_called else program


def _noting(gradients: list[bool]) -> Any:
    """Return a context in which it is noted that gradients are taken."""
    engine = "_engine_run_backward"
    run = getattr(torch.autograd, engine)

    def noted(*args: Any, **kwargs: Any) -> Any:
        gradients.append(True)
        return run(*args, **kwargs)

    return patch.object(torch.autograd, engine, noted)


def _decided(
    module: torch.nn.Module, export: Callable[[torch.nn.Module], torch.export.ExportedProgram], captured: Captured
) -> torch.export.ExportedProgram | None:
    """Export a module with the values of its small tensors known, if that helps; note those that decide."""

    def known() -> torch.export.ExportedProgram:
        with captured:
            return export(module)

    found = torch_decided.decided(module, known)
    if found is None:
        return None
    program, tensors = found
    captured.decided.update(tensors)
    return program


def _traced(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], captured: Captured
) -> torch.nn.Module:
    """Return a module that calls what another calls on arguments, with its parameters under their names.

    `torch.func` and `torch.autograd.grad` are gone then: the graph has what they compute. Values are not known while it
    is traced, so that what depends on them raises. What is no tensor among the arguments is as it was. The lines of the
    model are lost.

    Raises: what the module raises, and what torch does where it depends on values.
    """
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    result: list[pytree.TreeSpec] = []

    def called(*tensors: torch.Tensor) -> list[Any]:
        given = list(leaves)
        for place, value in zip(places, tensors, strict=True):
            given[place] = value
        positional, named = pytree.tree_unflatten(given, spec)
        values, shape = pytree.tree_flatten(module(*positional, **named))
        result[:] = [shape]
        return values

    # the gradient of fused attention is an operator of its own, that of its parts is products
    tensors = [leaves[place] for place in places]
    with keeping_tensors(module) as replaced, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.func about what it uses itself
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), _flexible(), _ReadingNone(), captured:
            found = make_fx(called, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    if replaced:
        what = f"torch.export cannot follow the module, which replaces its buffer {replaced[0]}"
        raise ModelError(what, do=f"write to it: self.{replaced[0]}.copy_(value)")
    if any(node.target is torch.ops.aten._linalg_check_errors.default for node in found.graph.nodes):
        raise ModelError(
            "linear algebra that raises on values is within what torch.func transforms, or in a model with gradients",
            do="write the derivative out, or solve outside of the model",
        )
    name_by_value = {id(value): name for name, value in (*module.named_parameters(), *module.named_buffers())}
    values: dict[str, Any] = {}
    for node in found.graph.nodes:
        if node.op == "get_attr":
            value = getattr(found, str(node.target))
            node.target = name = name_by_value.get(id(value), str(node.target))
            values[name] = value
    return _Traced(values, found.graph, places, result[0], inspect.signature(module.forward))


def _flexible() -> Any:
    """Return a context in which torch calls `flex_attention` as it is: it compiles it, which no mode may look at."""
    return patch.object(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


class _ReadingNone(TorchDispatchMode):
    """Raises ModelError where a number or a size is made of values of the module's own: torch would fix it.

    What is made of literals only, `torch.tensor(3)`, is fixed. Attention with scores and masks by functions is the
    products and the softmax that it stands for.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.literals = WeakTensorKeyDictionary()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return that torch compiles `torch.cond` beneath: what it leaves alone once it does so from then on."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.higher_order.flex_attention:
            return math_attention(*args, **(kwargs or {}))
        if func is torch.ops.higher_order.cond:
            return _chosen(*args)
        if isinstance(func, HigherOrderOperator):
            what = f"the model calls {func} beside derivatives, torch.vmap or flex_attention"
            raise ModelError(what, do="write it out: loops in Python, torch.where")
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        depends = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.intersection(func.tags)
        is_known = func is torch.ops.aten.lift_fresh.default or all(leaf in self.literals for leaf in given)
        is_own = not any(isinstance(leaf, FakeTensor) and leaf.constant is None for leaf in given)
        if depends and is_own and not is_known:
            raise made_of_values(innermost("".join(traceback.format_stack())))
        results = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(results):
            if isinstance(leaf, torch.Tensor):
                self.literals.pop(leaf, None)
                if is_known:
                    self.literals[leaf] = True
        return results


def _chosen(predicate: Any, yes: Any, no: Any, operands: Sequence[Any]) -> Any:
    """Return the results of one of two branches, value by value: both are computed."""
    if isinstance(predicate, bool):
        return (yes if predicate else no)(*operands)
    return pytree.tree_map(partial(torch.where, predicate.reshape(())), yes(*operands), no(*operands))


class _Traced(torch.nn.Module):
    """Runs a graph with the tensors at some places of the arguments; its results have a shape."""

    def __init__(
        self,
        values: Mapping[str, Any],
        graph: torch.fx.Graph,
        places: Sequence[int],
        shape: pytree.TreeSpec,
        signature: inspect.Signature,
    ) -> None:
        super().__init__()
        holder = torch.fx.GraphModule(dict(values), graph)
        self._modules, self._parameters, self._buffers = holder._modules, holder._parameters, holder._buffers
        self.eval()

        def forward(*args: Any, **kwargs: Any) -> Any:
            given = pytree.tree_leaves((args, kwargs))
            results = torch.fx.Interpreter(self, graph=graph).run(*(given[place] for place in places))
            return pytree.tree_unflatten(results, shape)

        forward.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        self.forward = forward
