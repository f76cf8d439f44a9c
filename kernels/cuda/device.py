"""What there is of numba.cuda: a device, the simulator, or only the compiler; and memory on it."""

from __future__ import annotations

import importlib.util
import linecache
import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from frittata.egraph.errors import CompileError
from frittata.kernels.cuda import quads
from frittata.kernels.cuda.kernel import CudaKernel

Array = NDArray[Any]
State = Literal["simulator", "device", "compiler", "none"]

_WAYS_OUT = (
    "run on a machine with an NVIDIA GPU and `pip install frittata[cuda]`; "
    "or set NUMBA_ENABLE_CUDASIM=1 before anything imports numba, which simulates the device, slowly"
)
_NUMBA_DTYPES = {
    **{"bool": "uint8", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16"},
    **{"i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64"},
}


@dataclass(frozen=True)
class Stream:
    """A stream by its driver's handle, and as numba takes it."""

    handle: int
    numba: Any


def state() -> State:
    """Say what kernels can do here: run on a device, run in the simulator, be compiled only, or nothing."""
    from numba import config

    if getattr(config, "ENABLE_CUDASIM", 0):
        return "simulator"
    if importlib.util.find_spec("numba_cuda") is not None:
        _mend_numpy()
    from numba import cuda

    if cuda.is_available():
        return "device"
    return "compiler" if getattr(cuda, "implementation", "") == "NVIDIA" else "none"


def require(*states: State) -> None:
    """Check that something of what is needed is there.

    Raises: CompileError that says what to do.
    """
    found = state()
    if found not in states:
        what = "compiles for" if "compiler" in states else "runs on"
        raise CompileError(f'target="cuda" {what} no device here: numba finds none', do=_WAYS_OUT)


def load(kernel: CudaKernel, stream: Stream) -> Any:
    """Return a function of a kernel's arrays that launches it in a stream; numba compiles it at the first call."""
    require("device", "simulator")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size")  # small results have small grids
        return _bounded(kernel)[kernel.blocks, kernel.threads, stream.numba]


def ptx(kernel: CudaKernel, capability: tuple[int, int] = (9, 0)) -> str:
    """Compile a kernel to PTX for a compute capability; needs the CUDA toolkit's compiler, no device.

    Raises: CompileError if there is no compiler, or if it refuses the source.
    """
    require("device", "compiler")
    from numba import cuda, types

    compiler: Any = cuda  # numba-cuda replaces the module that type checkers see
    dtypes = [*kernel.dtypes, *(["i64"] if kernel.status_words else [])]
    signature = tuple(types.Array(getattr(types, _NUMBA_DTYPES[dtype]), 1, "C") for dtype in dtypes)
    function = _function(kernel).py_func
    options = {"cc": capability, "device": False, "abi": "numba", "output": "ptx", **launch_bounds(kernel)}
    try:
        text, _ = compiler.compile(function, signature, **options)
    except Exception as error:  # numba, libnvvm and the search for it have errors of their own
        raise CompileError(f"kernel {kernel.name} does not compile: {error}", where=_filename(kernel)) from error
    return text


def launch_bounds(kernel: CudaKernel) -> dict[str, Any]:
    """Return numba's option that bounds the registers of a kernel, if it asks for that and numba has it."""
    from numba import cuda

    has_bounds = getattr(cuda, "implementation", "") == "NVIDIA" and state() != "simulator"
    return {"launch_bounds": (kernel.threads, kernel.resident)} if kernel.resident and has_bounds else {}


def _bounded(kernel: CudaKernel) -> Any:
    from numba import cuda

    bounds = launch_bounds(kernel)
    return cuda.jit(**bounds)(_function(kernel).py_func) if bounds else _function(kernel)


def _filename(kernel: CudaKernel) -> str:
    return f"<frittata cuda {kernel.name} {abs(hash(kernel.source)):x}>"


def _function(kernel: CudaKernel) -> Any:
    filename = _filename(kernel)
    linecache.cache[filename] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), filename)
    scope = dict(_scope())
    source = kernel.source
    if state() == "simulator":  # whose arrays take no alignment, and need none
        source = source.replace(", alignment=16", "")
    exec(compile(source, filename, "exec"), scope)
    return scope[kernel.name]


@lru_cache(maxsize=1)
def _scope() -> dict[str, Any]:
    """Return what sources name."""
    from numba import cuda, int32, uint32

    if state() != "simulator":
        return {"cuda": cuda, "math": math, "np": np, "int32": int32, "uint32": uint32, **quads.compiled()}
    # Python's integers stand for indices, and functions that round like the device and raise nothing for math's
    names = ("exp", "log", "tanh", "sqrt", "sin", "cos", "floor", "ceil")
    rounded = SimpleNamespace(erf=lambda x: type(x)(math.erf(x)), **{name: getattr(np, name) for name in names})
    return {"cuda": cuda, "math": rounded, "np": np, "int32": int, "uint32": int, **quads.plain()}


def _mend_numpy() -> None:
    """numba-cuda 0.30 looks for a name that numpy 2.5 dropped: https://github.com/NVIDIA/numba-cuda."""
    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # type: ignore[attr-defined]


# ---- memory ----------------------------------------------------------------------------------------------------------
# In the simulator numpy's arrays are the device's; numba copies them around every launch.


def empty(size: int, dtype: Any) -> Any:
    """Return fresh memory on the device."""
    if state() == "simulator":
        return np.empty(size, dtype)
    from numba import cuda

    return cuda.device_array(size, dtype)


def fresh(size: int, dtype: Any, like: Any) -> tuple[Any, Any]:
    """Return fresh memory and the tensor that owns it, which is torch's if `like` is a tensor, else None."""
    if like is None:
        return empty(size, dtype), None
    import torch

    owner = torch.empty(size, dtype=getattr(torch, np.dtype(dtype).name), device=like.device)
    return borrow(owner), owner


def upload(array: Array) -> Any:
    """Copy a flat array to the device."""
    if state() == "simulator":
        return array.copy()
    from numba import cuda

    return cuda.to_device(array)


def download(array: Any, stream: Stream) -> Array:
    """Copy a flat array from the device, once all launches before in the stream are done."""
    if isinstance(array, np.ndarray):
        return array.copy()
    host = array.copy_to_host(stream=stream.numba)
    if stream.handle:
        stream.numba.synchronize()
    return host


def copy(target: Any, source: Any, stream: Stream) -> None:
    """Copy between flat arrays on the device."""
    if isinstance(target, np.ndarray):
        target[...] = source
    else:
        target.copy_to_device(source, stream=stream.numba)


def borrow(value: Any) -> Any:
    """Return another library's array as a flat one of numba's; without a copy if it is contiguous."""
    from numba import cuda

    if is_torch(value):
        import torch

        value = value.detach().contiguous().reshape(-1)
        value = value.view(torch.uint8) if value.dtype == torch.bool else value
        return cuda.as_cuda_array(value, sync=False)
    array = cuda.as_cuda_array(value)
    return (array.view(np.uint8) if array.dtype == np.bool_ else array).reshape(array.size)


def shaped(array: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return memory that stays on the device under the shape and dtype of a result."""
    if is_torch(array):
        import torch

        return (array.view(torch.bool) if dtype == "bool" else array).reshape(shape)
    return (array.view(np.bool_) if dtype == "bool" else array).reshape(shape)


def is_on_device(value: Any) -> bool:
    """Whether a value is an array on a device, of whatever library."""
    on_cuda = getattr(value, "is_cuda", None)  # torch's interface refuses tensors that require gradients
    return hasattr(value, "__cuda_array_interface__") if on_cuda is None else bool(on_cuda)


def is_torch(value: Any) -> bool:
    """Whether a value is a tensor of torch's on a device."""
    return type(value).__module__.split(".")[0] == "torch" and is_on_device(value)


def stream_of(like: Any) -> Stream:
    """Return the stream that launches go to: torch's current one if `like` is a tensor, else the default."""
    if like is None:
        return Stream(0, 0)
    import torch
    from numba import cuda

    handle = torch.cuda.current_stream(like.device).cuda_stream
    return Stream(handle, cuda.external_stream(handle) if handle else 0)
