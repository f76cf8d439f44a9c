"""What a row of the ONNX table is, and the names of ONNX's dtypes and domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from onnx import TensorProto

from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError, UnsupportedOpError

DTYPE_BY_ONNX: dict[int, DType] = {
    TensorProto.BOOL: "bool",
    TensorProto.UINT8: "u8",
    TensorProto.INT8: "i8",
    TensorProto.UINT16: "u16",
    TensorProto.INT16: "i16",
    TensorProto.INT32: "i32",
    TensorProto.INT64: "i64",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.FLOAT16: "f16",
    TensorProto.FLOAT: "f32",
    TensorProto.DOUBLE: "f64",
}


def dtype_of(kind: int, what: str) -> DType:
    """Return our name of a dtype.

    Raises: ModelError that says `what` has it, if there is none.
    """
    if kind not in DTYPE_BY_ONNX:
        known = ", ".join(DTYPE_BY_ONNX.values())
        raise ModelError(f"{what} has {TensorProto.DataType.Name(kind)}", do=f"convert to one of {known}")
    return DTYPE_BY_ONNX[kind]


NAME_BY_DOMAIN = {"ai.onnx": ""}
"""The default domain has two names."""


@dataclass(frozen=True)
class Row:
    """What an operator means from opset `since` on.

    `meaning` takes a term for each operand, None for one that is left out, and attributes by name; a parameter called
    `results` is given the number of results that are asked for. Operands in `known` come as arrays, and have to be
    known at import; those in `numbers` come as numbers where they are known and have no axes. With `joins` those that
    are empty do not come at all. With `by_value` those that are known, of 4-bit integers or 8-bit floats, come in a
    dtype that holds their values. `forwards` is what the meaning hands further attributes to. `law` computes in
    numpy, where all operands are known, what ONNX's reference does not compute as ONNX says it.
    """

    meaning: Callable[..., Any]
    known: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    since: int = 1
    joins: bool = False
    by_value: bool = False
    forwards: Callable[..., Any] | None = None
    law: Callable[..., Any] | None = None

    def takes(self, attribute: str) -> bool:
        """Whether the row knows an attribute."""
        return any(attribute in signature(known).parameters for known in (self.meaning, self.forwards) if known)

    def __call__(self, operands: Sequence[Any], attributes: dict[str, Any], results: int) -> tuple[Any, ...]:
        """Return the results; None stands for one without a definition.

        Raises: UnsupportedOpError if the row does not know an attribute or an operand.
        """
        parameters = signature(self.meaning).parameters
        if "results" in parameters:
            attributes = {**attributes, "results": results}
        kinds = {parameter.kind for parameter in parameters.values()}
        extra = sorted(attribute for attribute in attributes if not self.takes(attribute))
        positional = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters.values())
        if extra:
            raise UnsupportedOpError(f"attribute {', '.join(extra)}")
        if len(operands) > positional and not any(kind.name == "VAR_POSITIONAL" for kind in kinds):
            raise UnsupportedOpError(f"{len(operands)} operands")
        found = self.meaning(*operands, **attributes)
        return found if isinstance(found, tuple) else (found,)
