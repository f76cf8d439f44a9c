"""Calls into torch and numpy for what has no definition: opaque rows `extern_n`, one for each number of operands.

A call is text that says all of it, tensors by position: `aten.kthvalue.default(x0, 3, -1, False)`, or
`numpy.linalg.solve(x0, x1)`. Equal calls of equal operands are one term; the text goes through the e-graph and scripts
as it is. Only pure functions are admitted.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import REQUIRED, Op, register_variadic, tensor
from frittata.egraph.terms import Sort, TensorType, Term, Type
from frittata.egraph.torch_arrays import array_of, tensor_of

Array = NDArray[Any]

STEM, NUMPY = "extern", "numpy."
_TORCH_ALIGNMENT_BYTES = 64
_ATTRS = (("call", REQUIRED), ("result", REQUIRED), ("shape", REQUIRED), ("dtype", REQUIRED))


def extern(call: str, operands: Sequence[Term], result: int, type_: TensorType) -> Term:
    """Return result number `result` of a call as a term."""
    attrs = {"call": call, "result": result, "shape": type_.shape, "dtype": type_.dtype}
    return tensor(f"{STEM}_{len(operands)}", *operands, **attrs)


def is_extern(op: str) -> bool:
    """Whether an operator is a call into torch or numpy."""
    return op.startswith(f"{STEM}_")


def target_of(call: str) -> str:
    """Return the function that a call names: aten.sort.stable(x0, stable=True) -> aten.sort.stable."""
    return call.partition("(")[0]


def label_of(call: str) -> str:
    """Return the name of what a call names: aten.sort.stable(x0) -> sort, numpy.linalg.solve(x0, x1) -> solve."""
    parts = target_of(call).split(".")
    return parts[-1] if call.startswith(NUMPY) else parts[1]


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

    Raises: ModelError with the words of torch or numpy if it refuses the values.
    """
    found = called(call, arrays)
    if call.startswith(NUMPY):
        return tuple(np.asarray(leaf) for leaf in _leaves(found))
    import torch

    results = (found,) if isinstance(found, torch.Tensor) else tuple(found)
    return tuple(array_of(r) if r is not None else np.empty(0) for r in results)


def called(call: str, arrays: Sequence[Array]) -> Any:
    """Run a call on numpy arrays and return what it returns: tensors, or numpy's arrays.

    Raises: ModelError with the words of torch or numpy if it refuses the values.
    """
    function, arguments, keywords = _parsed(call)

    def result(given: Sequence[Any]) -> Any:
        return function(*(_bound(a, given) for a in arguments), **{k: _bound(a, given) for k, a in keywords})

    try:
        if call.startswith(NUMPY):
            return result([read_only(array) for array in arrays])
        import torch

        with torch.no_grad():
            return result([_aligned(tensor_of(_given(array))) for array in arrays])
    except Exception as error:  # functions of libraries raise what they want
        raise ModelError(f"{_library_of(call)} refuses {call}: {str(error).partition(chr(10))[0]}") from error


def read_only(array: Any) -> Array:
    """Return an array in the same memory that a function cannot write to."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _leaves(found: Any) -> Iterator[Any]:
    """Visit the results of a function in order."""
    if isinstance(found, tuple | list):
        for part in found:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(part)
    else:
        yield found


def _given(array: Any) -> Array:
    """Return an array as torch takes it: writable, with strides that are not negative."""
    out = np.ascontiguousarray(array).reshape(np.shape(array))
    return out if out.flags.writeable else out.copy()


def _aligned(tensor: Any) -> Any:
    """Return a tensor that starts where those of torch do: some of its kernels (products of bytes) crash elsewhere."""
    return tensor.clone() if tensor.data_ptr() % _TORCH_ALIGNMENT_BYTES else tensor


@lru_cache(maxsize=1024)
def _parsed(call: str) -> tuple[Any, tuple[ast.expr, ...], tuple[tuple[str, ast.expr], ...]]:
    """Read a call's text: the function, what it takes by position, and what by name.

    Torch's prims check types and shapes in Python, for 35 us a call: what they call then is the function.
    """
    try:
        tree = ast.parse(call, mode="eval").body
        assert isinstance(tree, ast.Call)
        name = ast.unparse(tree.func)
        function = of_numpy(name) if name.startswith(NUMPY) else _of_torch(name)
    except (SyntaxError, AssertionError, AttributeError, RuntimeError) as error:
        do = "write namespace.operator.overload(x0, ...), or numpy.function(x0, ...)"
        raise ModelError(f"{_library_of(call)} has no call {call!r}", do=do) from error
    function = getattr(function, "impl_aten", function)
    return function, tuple(tree.args), tuple((str(k.arg), k.value) for k in tree.keywords)


def _library_of(call: str) -> str:
    return "numpy" if call.startswith(NUMPY) else "torch"


def of_numpy(name: str) -> Any:
    """Return a function of numpy that only computes of arrays: a call's text may come from a file.

    Such are universal functions, and those that take what is like arrays, but for those that save them.

    Raises: AttributeError for others.
    """
    found: Any = np
    for part in name.removeprefix(NUMPY).split("."):
        if not (isinstance(found, ModuleType) and f"{found.__name__}.".startswith(NUMPY)):
            raise AttributeError(name)
        found = getattr(found, part)
    is_array_function = hasattr(found, "_implementation") and not found.__name__.startswith("save")
    if not (is_array_function or isinstance(found, np.ufunc)):
        raise AttributeError(name)
    return found


def _of_torch(name: str) -> Any:
    """Return an operator of torch.

    Raises: AttributeError for what is none.
    """
    import torch

    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, torch._ops.OpOverload):  # pyright: ignore[reportPrivateUsage]
        raise AttributeError(name)
    return found


def _bound(node: ast.expr, tensors: Sequence[Any]) -> Any:
    """Return the value of an argument."""
    match node:
        case ast.Name(id=name):
            return tensors[int(name[1:])]
        case ast.List(elts=parts):
            return [_bound(part, tensors) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(_bound(part, tensors) for part in parts)
        case ast.Attribute(attr=name):
            import torch

            return getattr(torch, name)
        case ast.Call(args=[text]):
            return float(ast.literal_eval(text))
        case _:
            return ast.literal_eval(node)


def _row(count: int) -> Op:
    operands: tuple[tuple[str, Sort], ...] = tuple((f"x{i}", "tensor") for i in range(count))
    doc = f"A call into torch or numpy with {count} tensors; `result` tells which of its results."
    name = f"{STEM}_{count}"
    return Op(name, "tensor", operands, _ATTRS, _type, _reference, cost=8.0, opaque=True, doc=doc, carries=True)


def _type(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> Type:
    return TensorType(attrs[2], attrs[3])


def _reference(*values: Any) -> Array:
    *arrays, call, result, _, _ = values
    return run(call, arrays)[result]


register_variadic(STEM, _row)
