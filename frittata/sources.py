"""What `optimize` accepts beside a Model, and the front end that imports each; none is loaded before it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frittata.egraph.errors import ModelError

if TYPE_CHECKING:
    from frittata.frontends.imported import Imported


def imported(source: Any, args: Sequence[Any], fallback: str = "error") -> Imported:
    """Import a module, an exported program, an fx graph or an ONNX model; what is imported already stays as it is.

    With `fallback="extern"` calls of torch without a definition stay calls of torch.

    Raises: ModelError, UnsupportedOpError.
    """
    if hasattr(source, "flatten") and hasattr(source, "unflatten"):
        return source
    if isinstance(source, str | Path) or hasattr(source, "opset_import"):
        from frittata.frontends.onnx.importer import from_onnx

        return from_onnx(source, args)
    if hasattr(source, "graph_signature"):
        from frittata.frontends.torch_export import from_exported_program

        return from_exported_program(source, fallback=fallback)
    if not hasattr(source, "named_parameters"):
        raise ModelError(
            f"cannot import a {type(source).__name__}",
            do="give a torch.nn.Module, ExportedProgram, fx.GraphModule, ONNX model or its path, or frittata.Model",
        )
    import torch.fx

    if isinstance(source, torch.fx.GraphModule):
        from frittata.frontends.torch_fx import from_fx

        return from_fx(source, args, fallback=fallback)
    from frittata.frontends.torch_export import from_module

    return from_module(source, args, fallback=fallback)
