"""What `optimize` returns: a callable with the model's own results, and the account of how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from frittata.egraph.errors import ModelError, StaleParametersError
from frittata.egraph.model import Function, Model
from frittata.egraph.program import Program
from frittata.kernels import runtime
from frittata.pipeline import Compilation

if TYPE_CHECKING:
    from frittata.account import Account
    from frittata.egraph_view import EGraphView
    from frittata.explain import Explanation
    from frittata.graphs import Graph
    from frittata.report import KernelView, Report


class Optimized:
    """A compiled model. Call it as the model was called: torch tensors in, torch tensors out; numpy in, numpy out."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation
        self._run = self._runner()
        self._guards = _guards(compilation)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises: ModelError if the arguments do not fit; StaleParametersError if a frozen parameter has changed.
        """
        for tensor, version, pointer, name in self._guards:
            if tensor._version != version or tensor.data_ptr() != pointer:
                raise StaleParametersError(
                    f"parameter {name!r} was changed after optimize()",
                    do="call frittata.optimize again; freeze=True skips this check",
                )
        imported = self.compilation.imported
        values = list(args) if imported is None else imported.flatten(args, kwargs)
        arrays = [_to_numpy(value) for value in values]
        as_torch = any(not isinstance(value, np.ndarray) for value in values)
        outputs = [_to_torch(out) if as_torch else out for out in self._run(*arrays)]
        if imported is None:
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        return imported.unflatten(outputs)

    @property
    def program(self) -> Program:
        """The chosen kernels, views and constants."""
        return self.compilation.extraction.program

    @cached_property
    def model(self) -> Model:
        """The chosen program as a model: its terms say what each kernel computes."""
        before = self.compilation.model
        return Model({"main": Function(before.main.inputs, self.program.to_terms())}, before.params)

    def __str__(self) -> str:
        return str(self.model)

    def _runner(self) -> Any:
        if self.compilation.options.form == "plain":
            values = self.compilation.model.params
            return lambda *arrays: runtime.run_plain(self.program, values, arrays)
        return self.compilation.executable


def _guards(compilation: Compilation) -> list[tuple[Any, int, int, str]]:
    """Frozen parameters with what tells a change."""
    if compilation.imported is None or compilation.options.freeze:
        return []
    return [
        (tensor, tensor._version, tensor.data_ptr(), name)
        for name, tensor in compilation.imported.parameters.items()
        if not tensor.is_inference()
    ]


def _to_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "detach"):
        raise ModelError(f"an argument is a {type(value).__name__}", do="give torch tensors or numpy arrays")
    if value.device.type != "cpu":
        raise ModelError(f"an argument is on {value.device}", do="move it to the CPU")
    return value.detach().numpy()


def _to_torch(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)
