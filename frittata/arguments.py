"""Arguments of programs as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import IndexRangeError, ModelError
from frittata.egraph.program import Program
from frittata.egraph.torch_arrays import array_of
from frittata.kernels.cuda import device


def drawn(program: Program, run: Callable[..., Any]) -> list[Any]:
    """Return random arguments for what runs a program: normal floats, small integers that are not negative.

    Integers are zeros where it refuses others: each axis has a first place, few have all.
    """
    rng = np.random.default_rng(0)
    out: list[Any] = []
    for type_ in program.inputs.values():
        dtype = dtypes.to_numpy(type_.dtype)
        values = rng.standard_normal(shapes.concrete(type_.shape))
        out.append((values if dtypes.is_float(type_.dtype) else np.abs(values)).astype(dtype))
    try:
        run(*out)
    except IndexRangeError:
        return [value if dtypes.holds_floats(value) else np.zeros_like(value) for value in out]
    return out


def of(value: Any, keeps_device_arrays: bool) -> Any:
    """Return an argument as a program takes it: an array, or what lies on a device and may stay there.

    Raises: ModelError for what is no dense tensor.
    """
    return value if keeps_device_arrays and device.is_on_device(value) else _to_numpy(value)


def on_host(value: Any) -> Any:
    """Return an argument as an array in the host's memory, copied there if it lies on a device."""
    return _to_numpy(device.on_host(value)) if device.is_on_device(value) else of(value, False)


def _to_numpy(value: Any) -> Any:
    """Return the array that shares a tensor's memory.

    Raises: ModelError for what is no dense tensor on the CPU.
    """
    if isinstance(value, np.ndarray) and not isinstance(value, np.matrix | np.ma.MaskedArray):
        return np.asarray(value)  # a subclass, such as numpy.memmap; masks would be lost, and products mean others
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not hasattr(value, "detach"):
        return _from_dlpack(value)
    tensor: Any = value
    if tensor.device.type != "cpu":
        or_there = 'optimize with target="cuda", or ' if device.is_on_device(tensor) else ""
        raise ModelError(f"an argument is on {tensor.device}", do=f"{or_there}move it to the CPU")
    try:
        return array_of(tensor)
    except (TypeError, RuntimeError) as error:
        raise ModelError(
            f"an argument is a tensor that numpy cannot read: {error}",
            do="give dense tensors of the dtypes that the model was exported with",
        ) from error


def _from_dlpack(value: Any) -> Any:
    """Return the array that shares the memory of another library's.

    Raises: ModelError for what is none, or lies elsewhere.
    """
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        what = f"an argument is a {type(value).__name__}"
        raise ModelError(what, do="give torch tensors, numpy arrays, or arrays with __dlpack__")
    try:
        return np.from_dlpack(value)
    except (RuntimeError, BufferError, TypeError) as error:
        raise ModelError(f"an argument is an array that numpy cannot read: {error}", do="move it to the CPU") from error
