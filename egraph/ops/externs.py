"""Calls into torch for operators without a definition: opaque rows `extern_n`, one for each number of operands.

A call is text that says all of it, tensors by position: `aten.kthvalue.default(x0, 3, -1, False)`. Equal calls of equal
operands are one term; the text goes through the e-graph and scripts as it is. Only pure functions are admitted.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import REQUIRED, Op, register_variadic, tensor
from frittata.egraph.terms import Sort, TensorType, Term, Type
from frittata.egraph.torch_arrays import array_of, tensor_of

Array = NDArray[Any]

STEM = "extern"
_ATTRS = (("call", REQUIRED), ("result", REQUIRED), ("shape", REQUIRED), ("dtype", REQUIRED))


def extern(call: str, operands: Sequence[Term], result: int, type_: TensorType) -> Term:
    """Return result number `result` of a call as a term."""
    attrs = {"call": call, "result": result, "shape": type_.shape, "dtype": type_.dtype}
    return tensor(f"{STEM}_{len(operands)}", *operands, **attrs)


def is_extern(op: str) -> bool:
    """Whether an operator is a call into torch."""
    return op.startswith(f"{STEM}_")


def target_of(call: str) -> str:
    """Return the function that a call names: aten.sort.stable(x0, stable=True) -> aten.sort.stable."""
    return call.partition("(")[0]


def show_argument(value: Any) -> str:
    """Write an argument that is no tensor as a call's text has it.

    Raises: ModelError if it has no text.
    """
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show_argument, value))}]"  # pyright: ignore[reportUnknownArgumentType]
    text = str(value)
    if not text.startswith("torch.") or type(value).__module__ != "torch":
        raise ModelError(f"argument {text} of type {type(value).__name__} has no text form")
    return text


def run(call: str, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Run a call on numpy arrays and return all of its results.

    Raises: ModelError with torch's words if it refuses the values.
    """
    import torch

    function, arguments, keywords = _parsed(call)
    tensors = [tensor_of(_given(array)) for array in arrays]
    with torch.no_grad():
        try:
            found = function(*(_bound(a, tensors) for a in arguments), **{k: _bound(a, tensors) for k, a in keywords})
        except (RuntimeError, IndexError, NotImplementedError) as error:
            raise ModelError(f"torch refuses {call}: {str(error).partition(chr(10))[0]}") from error
    results = (found,) if isinstance(found, torch.Tensor) else tuple(found)
    return tuple(array_of(r) if r is not None else np.empty(0) for r in results)


def _given(array: Any) -> Array:
    """Return an array as torch takes it: writable, with strides that are not negative."""
    out = np.ascontiguousarray(array).reshape(np.shape(array))
    return out if out.flags.writeable else out.copy()


@lru_cache(maxsize=1024)
def _parsed(call: str) -> tuple[Any, tuple[ast.expr, ...], tuple[tuple[str, ast.expr], ...]]:
    """Read a call's text: the function, what it takes by position, and what by name.

    Torch's prims check types and shapes in Python, for 35 us a call: what they call then is the function.
    """
    import torch

    try:
        tree = ast.parse(call, mode="eval").body
        assert isinstance(tree, ast.Call)
        function: Any = torch.ops
        for part in ast.unparse(tree.func).split("."):
            function = getattr(function, part)
    except (SyntaxError, AssertionError, AttributeError, RuntimeError) as error:
        raise ModelError(f"torch has no call {call!r}", do="write namespace.operator.overload(x0, ...)") from error
    function = getattr(function, "impl_aten", function)
    return function, tuple(tree.args), tuple((str(k.arg), k.value) for k in tree.keywords)


def _bound(node: ast.expr, tensors: Sequence[Any]) -> Any:
    """Return the value of an argument."""
    import torch

    match node:
        case ast.Name(id=name):
            return tensors[int(name[1:])]
        case ast.List(elts=parts):
            return [_bound(part, tensors) for part in parts]
        case ast.Attribute(attr=name):
            return getattr(torch, name)
        case ast.Call(args=[text]):
            return float(ast.literal_eval(text))
        case _:
            return ast.literal_eval(node)


def _row(count: int) -> Op:
    operands: tuple[tuple[str, Sort], ...] = tuple((f"x{i}", "tensor") for i in range(count))
    doc = f"A call into torch with {count} tensors; `result` tells which of its results."
    name = f"{STEM}_{count}"
    return Op(name, "tensor", operands, _ATTRS, _type, _reference, cost=8.0, opaque=True, doc=doc, carries=True)


def _type(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> Type:
    return TensorType(attrs[2], attrs[3])


def _reference(*values: Any) -> Array:
    *arrays, call, result, _, _ = values
    return run(call, arrays)[result]


register_variadic(STEM, _row)
