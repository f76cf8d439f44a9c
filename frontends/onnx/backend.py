"""A backend for ONNX's own tests: models are imported and run by the reference interpreter, which is slow and exact.

To run a model fast, give it to `frittata.optimize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.frontends.onnx.importer import from_onnx
from frittata.frontends.onnx.values import LateError


class InterpretedModel(BackendRep):
    """A model that waits for inputs: their shapes bind its symbolic dims."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Import the model for inputs of these shapes and interpret it in float64.

        Inputs that are shapes, axes and the like are known to the import, and so are those without values.

        Raises: ModelError for more or fewer inputs than the model has; as `from_onnx`.
        """
        given: Sequence[Any] = inputs if isinstance(inputs, Sequence) else [inputs]
        initialized = {initializer.name for initializer in self._model.graph.initializer}
        names = [value.name for value in self._model.graph.input if value.name not in initialized]
        if len(given) != len(names):
            raise ModelError(f"the model takes {len(names)} inputs, got {len(given)}", do=f"give {', '.join(names)}")
        array_by_name = {name: np.asarray(array) for name, array in zip(names, given, strict=True)}
        known = {name: array for name, array in array_by_name.items() if not array.size}
        while True:
            arrays = [array for name, array in array_by_name.items() if name not in known]
            try:
                model = from_onnx(self._model, arrays, known=known).model
                break
            except LateError as error:
                late = error.inputs
                if not late:
                    raise
                known |= {name: array_by_name[name] for name in late}
        kinds = (dtypes.to_numpy(term.dtype) for term in model.main.outputs)
        return tuple(np.asarray(x, kind) for x, kind in zip(model.interpret(*arrays), kinds, strict=True))


class InterpreterBackend(Backend):
    """ONNX's interface to whatever runs models."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> InterpretedModel:
        """Return the model, ready to run."""
        return InterpretedModel(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Interpretation happens on the CPU."""
        return bool(Device(device).type == DeviceType.CPU)


prepare = InterpreterBackend.prepare
run_model = InterpreterBackend.run_model
supports_device = InterpreterBackend.supports_device
