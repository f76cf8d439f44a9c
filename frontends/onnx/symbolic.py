"""ONNX models with symbolic dims, imported for each size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import ValueInfoProto

from frittata.egraph.errors import ModelError
from frittata.frontends.onnx.files import loaded
from frittata.frontends.onnx.importer import ImportedOnnx, arguments_of, declared_inputs, from_onnx
from frittata.frontends.symbolic import Axis, Linear, Symbolic


def of_onnx(source: Any) -> Symbolic:
    """Return a ModelProto, or the model at a path, with its dims: those without a name are `input_axis`.

    Raises: ModelError if it has none, or inputs whose rank is not known.
    """
    model = loaded(source)
    inputs = tuple((declared.name, _axes(declared)) for declared in declared_inputs(model.graph))
    names = [name for name, _ in inputs]

    def at(sizes: Mapping[str, int]) -> ImportedOnnx:
        shapes = [tuple(sizes[a.dim] if isinstance(a, Linear) else a for a in axes) for _, axes in inputs]
        return from_onnx(model, shapes)

    dims = {axis.dim for _, axes in inputs for axis in axes if isinstance(axis, Linear)}
    return Symbolic(inputs, dict.fromkeys(dims, (0, None)), lambda args, kwargs: arguments_of(names, args, kwargs), at)


def _axes(declared: ValueInfoProto) -> tuple[Axis, ...]:
    kind = declared.type.tensor_type
    if not kind.HasField("shape"):
        raise ModelError(f"input {declared.name} has no shape", do="declare its axes in the model, by names at least")
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else Linear(dim.dim_param or f"{declared.name}_{axis}")
        for axis, dim in enumerate(kind.shape.dim)
    )
