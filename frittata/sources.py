"""What `optimize` accepts, and the front end that imports each; none is loaded before it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frittata.egraph.errors import ModelError
from frittata.egraph.model import Model
from frittata.frontends.calls import Call
from frittata.frontends.symbolic import Symbolic, of_imported

if TYPE_CHECKING:
    from frittata.frontends.imported import Imported


def imported(
    source: Any, args: Sequence[Any], fallback: str = "error", kwargs: Mapping[str, Any] | None = None
) -> Imported:
    """Import a module, an exported program, an fx graph, an ONNX model or a function; terms stay as they are.

    With `fallback="extern"` calls of torch and numpy without a definition stay calls of them.

    Raises: ModelError, UnsupportedOpError.
    """
    if isinstance(source, Model):
        return Call.of(source)
    source = resolved(source, args, kwargs)
    if hasattr(source, "flatten") and hasattr(source, "unflatten"):
        return source
    if _is_onnx(source):
        from frittata.frontends.onnx.importer import from_onnx

        if kwargs:
            raise ModelError("example arguments of an ONNX model by name", do="give them by position")
        return from_onnx(source, args)
    if _is_function(source):
        from frittata.frontends.arrays.trace import from_function

        return from_function(source, args, kwargs, fallback)
    if hasattr(source, "graph_signature"):
        from frittata.frontends.torch_symbolic import at_examples

        return at_examples(source, args, kwargs or {}, fallback)
    if not hasattr(source, "named_parameters"):
        raise ModelError(
            f"cannot import {source!r:.80}, of type {type(source).__name__}",
            do="give a torch.nn.Module, ExportedProgram, fx.GraphModule, ONNX model or path, function, frittata.Model",
        )
    import torch.fx

    if isinstance(source, torch.fx.GraphModule):
        from frittata.frontends.torch_fx import from_fx

        return from_fx(source, args, kwargs, fallback=fallback)
    from frittata.frontends.torch_export import from_module

    return from_module(source, args, kwargs, fallback=fallback)


def symbolic(
    source: Any,
    args: Sequence[Any],
    dynamic_shapes: Any,
    fallback: str = "error",
    kwargs: Mapping[str, Any] | None = None,
) -> Symbolic:
    """Return a source with its symbolic dims: those that it has already, or those that torch.export is to make.

    Raises: ModelError if there are none; as `imported`.
    """
    if isinstance(source, Model) or (hasattr(source, "flatten") and hasattr(source, "unflatten")):
        return of_imported(Call.of(source) if isinstance(source, Model) else source)
    if _is_onnx(source) and dynamic_shapes is True:
        from frittata.frontends.onnx.symbolic import of_onnx

        return of_onnx(source)
    if hasattr(source, "graph_signature") and dynamic_shapes is True:
        from frittata.frontends.torch_symbolic import of_program

        return of_program(source, fallback)
    if _is_function(source) and dynamic_shapes is not True:
        from frittata.frontends.arrays.symbolic import of_function

        return of_function(source, args, kwargs, dynamic_shapes, fallback)
    if not hasattr(source, "named_parameters"):
        raise ModelError(
            f"dynamic_shapes={dynamic_shapes!r:.80} for a {type(source).__name__}",
            do="name dims for a torch module or a function; or give True and a model that has symbolic dims",
        )
    from frittata.frontends.torch_symbolic import of_module

    shapes = None if dynamic_shapes is True else dynamic_shapes
    return of_module(source, args, kwargs, shapes, fallback)


def _is_onnx(source: Any) -> bool:
    return isinstance(source, str | Path | bytes) or hasattr(source, "opset_import")


def resolved(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """Return a function of torch tensors, which an example argument tells, as a module, and all else as it is.

    Raises: ModelError for a class, or a compiled model.
    """
    if isinstance(source, type):
        raise ModelError(f"{source.__name__} is a class", do=f"give an instance of it: {source.__name__}(...)")
    from frittata.dynamic import Dynamic
    from frittata.optimized import Optimized

    if isinstance(source, Optimized | Dynamic):
        raise ModelError("the model is compiled already", do="call it, or give the model that it was made of")
    if _is_function(source) and _holds_tensors((args, kwargs or {})):
        from frittata.frontends.torch_functions import as_module

        return as_module(source)
    return source


def _holds_tensors(tree: Any) -> bool:
    """Whether there are torch tensors among arguments, also in fields of dataclasses."""
    from frittata.frontends.arrays import trees

    return any(
        (hasattr(leaf, "detach") and hasattr(leaf, "requires_grad")) or (_is_data(leaf) and _holds_tensors(vars(leaf)))
        for _, leaf in trees.leaves(tree)
    )


def _is_data(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__")


def _is_function(source: Any) -> bool:
    return callable(source) and not any(hasattr(source, name) for name in ("named_parameters", "graph_signature"))
