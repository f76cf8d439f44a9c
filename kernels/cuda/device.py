"""What there is of numba.cuda: a device, the simulator, or only the compiler; and memory on it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import math
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes
from frittata.egraph.errors import CompileError, ModelError
from frittata.kernels.cuda import halves, quads, remainders, tensor_cores, warps
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.plain import flat

Array = NDArray[Any]
State = Literal["simulator", "device", "compiler", "none"]

_WAYS_OUT = (
    "run on a machine with an NVIDIA GPU and `pip install frittata[cuda]`; "
    "or set NUMBA_ENABLE_CUDASIM=1 before anything imports numba, which simulates the device, slowly"
)
ALIGNMENT = 16
"""Where arguments start, in bytes: at a multiple of this, as all memory on the device does."""
MEMORY_DTYPES = {
    **{"bool": "uint8", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16"},
    **{"i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64", "f16": "uint16", "bf16": "uint16"},
}
"""What numpy and numba call elements on the device, where booleans are bytes, and halves their bits."""


@dataclass(frozen=True)
class Stream:
    """A stream by its driver's handle; whether what is sent to it is captured for a graph instead of run."""

    handle: int
    is_captured: bool = False

    @property
    def numba(self) -> Any:
        """The stream as numba takes it."""
        from numba import cuda

        return cuda.external_stream(self.handle) if self.handle else 0


@cache
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


def simulated(kernel: CudaKernel) -> Any:
    """Return a function of a kernel's arrays that runs it in the simulator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size")  # small results have small grids
        return _function(kernel)[kernel.blocks, kernel.threads]


def ptx(kernel: CudaKernel, capability: tuple[int, int] = (9, 0)) -> str:
    """Compile a kernel to PTX for a compute capability; needs the CUDA toolkit's compiler, no device.

    The kernel takes seven words for each of its arrays, as `launch.Launches` gives them.

    Raises: CompileError if there is no compiler, or if it refuses the source.
    """
    require("device", "compiler")
    from numba import cuda, types

    compiler: Any = cuda  # numba-cuda replaces the module that type checkers see
    arrays = [*kernel.dtypes, *(["i64"] if kernel.status_words else [])]
    signature = tuple(types.Array(getattr(types, MEMORY_DTYPES[dtype]), 1, "C") for dtype in arrays)
    options = {"device": False, "abi": "numba", "output": "ptx", "launch_bounds": _bounds(kernel)}
    function = _function(kernel, capability).py_func
    try:
        text, _ = compiler.compile(function, signature, cc=capability, **options)
    except Exception as error:  # numba, libnvvm and the search for it have errors of their own
        raise CompileError(f"kernel {kernel.name} does not compile: {error}", where=_filename(kernel)) from error
    return text


def capability() -> tuple[int, int]:
    """Return the compute capability of the current device, whose context becomes the calling thread's."""
    from numba import cuda

    return cuda.current_context().device.compute_capability


def toolkit() -> tuple[int, int] | None:
    """Return the version of the CUDA toolkit, None if there is none."""
    try:
        return importlib.import_module("numba.cuda").runtime.get_version()
    except Exception:  # the search for it has errors of its own
        return None


def current() -> int:
    """Return the number of the current device, whose context becomes the calling thread's."""
    from numba import cuda

    return 0 if state() == "simulator" else cuda.current_context().device.id


def on(number: int) -> AbstractContextManager[Any]:
    """Return what makes a device the current one of the calling thread for a while, which takes 10 us if it is not."""
    if state() == "simulator":
        return nullcontext()
    from numba import cuda

    _, there = driver().cuCtxGetDevice()
    return nullcontext() if there is not None and int(there) == number else cuda.gpus[number]


@cache
def driver() -> Any:
    """Return CUDA's driver."""
    return importlib.import_module("cuda.bindings.driver")


def _bounds(kernel: CudaKernel) -> tuple[int, ...]:
    """Return what bounds the registers of a kernel: the threads of a block, and blocks on a multiprocessor, if told."""
    return (kernel.threads, kernel.resident) if kernel.resident else (kernel.threads,)


def _filename(kernel: CudaKernel) -> str:
    return f"<frittata cuda {kernel.name} {abs(hash(kernel.source)):x}>"


def _function(kernel: CudaKernel, capability: tuple[int, int] | None = None) -> Any:
    filename = _filename(kernel)
    linecache.cache[filename] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), filename)
    scope = dict(_scope(capability))
    exec(compile(kernel.source, filename, "exec"), scope)
    return scope[kernel.name]


@lru_cache(maxsize=8)
def _scope(capability: tuple[int, int] | None) -> dict[str, Any]:
    """Return what sources name, for a compute capability or for the device that there is."""
    from numba import cuda, int32, uint32, uint64

    if state() != "simulator":
        there = capability or cuda.get_current_device().compute_capability
        extremes = {f"{name}_f32": warps.extreme(name, there) for name in ("maximum", "minimum")}
        integers = {"int32": int32, "uint32": uint32, "uint64": uint64}
        scope: dict[str, Any] = {"cuda": cuda, "math": math, "np": np}
        intrinsics = halves.compiled() | quads.compiled() | remainders.compiled() | tensor_cores.compiled()
        return scope | integers | extremes | intrinsics
    # Python's integers stand for indices, and functions that round like the device and raise nothing for math's
    warps.simulate()
    names = ("exp", "expm1", "log", "log1p", "tanh", "sqrt", "sin", "cos", "floor", "ceil")
    functions = {name: getattr(np, name) for name in names} | {"atan": np.arctan}
    rounded = SimpleNamespace(erf=lambda x: type(x)(math.erf(x)), **functions)
    integers: dict[str, Any] = dict.fromkeys(("int32", "uint32", "uint64"), int)
    extremes = {"maximum_f32": np.maximum, "minimum_f32": np.minimum}
    scope = {"cuda": cuda, "math": rounded, "np": np}
    plain = halves.simulated() | quads.plain() | remainders.functions(np) | tensor_cores.simulated()
    return scope | integers | extremes | plain


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


def fresh(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """Return fresh memory: a tensor of torch's if `like` is one, else a flat array."""
    if like is None:
        return empty(math.prod(shape), MEMORY_DTYPES[dtype])
    import torch

    return torch.empty(shape, dtype=torch_dtype(dtype), device=like.device)


@cache
def torch_dtype(dtype: str) -> Any:
    """Return torch's dtype of a name."""
    import torch

    return getattr(torch, dtypes.to_numpy(dtype).name)


def upload(array: Array) -> Any:
    """Copy a flat array to the device, and wait for that: streams of torch's do not wait for the default one."""
    if state() == "simulator":
        return array.copy()
    from numba import cuda

    there = cuda.to_device(array)
    cuda.default_stream().synchronize()
    return there


_constants: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def constant(array: Array, number: int) -> Any:
    """Return a flat array on the current device, of that number, for as long as somebody holds it; nobody writes to it.

    Programs with equal weights, one for each size of a model, share them there.
    """
    key = (number, array.dtype, array.size, hashlib.sha256(array.view(np.uint8).data).digest())
    found = _constants.get(key)
    if found is None:
        found = _constants[key] = upload(array)
    return found


def download(array: Any, stream: Stream) -> Array:
    """Copy a flat array from the device, once all launches before in the stream are done."""
    array = borrow(array)
    if isinstance(array, np.ndarray):
        return array.copy()
    host = array.copy_to_host(stream=stream.numba)
    if stream.handle:
        stream.numba.synchronize()
    return host


def copy(target: Any, source: Any, stream: Stream) -> None:
    """Copy between flat arrays on the device."""
    target, source = borrow(target), borrow(source)
    if isinstance(target, np.ndarray):
        target[...] = source
    else:
        target.copy_to_device(source, stream=stream.numba)


def borrow(value: Any) -> Any:
    """Return row-major memory on the device as a flat array of numba's, without a copy."""
    if isinstance(value, np.ndarray):  # the simulator's
        return value
    from numba import cuda

    if is_torch(value):
        import torch

        value = value.reshape(-1)
        if value.dtype == torch.bool:
            value = value.view(torch.uint8)
        if value.dtype in (torch.float16, torch.bfloat16, torch.uint16):  # numba knows no bfloat16
            return cuda.as_cuda_array(value.view(torch.int16), sync=False).view(np.uint16)
        return cuda.as_cuda_array(value, sync=False)
    array = _lent(value)
    return array.view(MEMORY_DTYPES[dtypes.from_numpy(str(value.dtype))]).reshape(array.size)


def address(value: Any) -> int:
    """Return where memory on the device starts."""
    return value.data_ptr() if is_torch(value) else value.__cuda_array_interface__["data"][0] or 0


def require_memory(tensor: Any) -> None:
    """Check that a tensor of torch's has a shape, and memory that kernels may read.

    Raises: ModelError for others: sparse ones, nested ones, those that `torch.func` wraps.
    """
    try:
        _ = tensor.shape, tensor.data_ptr()
    except RuntimeError as error:
        raise ModelError(
            f"an argument is a tensor that kernels cannot read: {error}",
            do="give dense tensors, and call the program outside of torch.func's transformations",
        ) from error


def settled(value: Any, stream: Stream) -> Any:
    """Return an array on the device row-major and aligned for vector loads: itself, or a copy.

    Arrays of other libraries than torch that are not row-major are copied through the host.

    Raises: ModelError if such an array has negative strides.
    """
    if is_torch(value):
        is_plain = not (value.requires_grad or value.is_conj() or value.is_neg()) and value.is_contiguous()
        if is_plain and value.data_ptr() % ALIGNMENT == 0:
            return value
        value = value.detach().resolve_conj().resolve_neg()
        return value.contiguous() if value.data_ptr() % ALIGNMENT == 0 else value.clone().contiguous()
    if not _lent(value).is_c_contiguous():
        return upload(flat(on_host(value)))
    array = borrow(value)
    if address(array) % ALIGNMENT == 0:
        return array
    aligned = empty(array.size, array.dtype)
    aligned.copy_to_device(array, stream=stream.numba)
    return aligned


def shaped(array: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return memory that stays on the device under the shape and dtype of a result."""
    return array if is_torch(array) else array.view(dtypes.to_numpy(dtype)).reshape(shape)


def on_host(value: Any) -> Any:
    """Return a copy in the host's memory: a tensor of torch's if it is one, else an array.

    Raises: ModelError for an array of another library's with negative strides.
    """
    if is_torch(value):
        return value.detach().cpu()
    array = _lent(value)
    if min(array.strides, default=0) < 0:
        what = f"an argument is an array on the device with negative strides: {tuple(array.strides)}"
        raise ModelError(what, do="give a row-major copy of it, such as cupy.ascontiguousarray(x)")
    return array.copy_to_host()


def _lent(value: Any) -> Any:
    """Return an array of another library's as one of numba's, in the same memory and as it is laid out."""
    from numba import cuda

    return cuda.as_cuda_array(value)


def is_on_device(value: Any) -> bool:
    """Whether a value is an array on a device, of whatever library."""
    on_cuda = getattr(value, "is_cuda", None)  # torch's interface refuses tensors that require gradients
    return hasattr(value, "__cuda_array_interface__") if on_cuda is None else bool(on_cuda)


def is_torch(value: Any) -> bool:
    """Whether a value is a tensor of torch's on a device."""
    return getattr(value, "is_cuda", False) is True


def number_of(value: Any) -> int | None:
    """Return the number of the device that an array lies on, None on the host.

    Arrays of other libraries than torch are taken to lie on the current device.
    """
    if is_torch(value):
        return value.device.index
    return current() if is_on_device(value) else None


def stream_of(like: Any) -> Stream:
    """Return the stream that launches go to: torch's current one if `like` is a tensor, else the default.

    The default stream counts as captured, too, while torch captures its own.
    """
    if "torch" not in sys.modules:
        return Stream(0)
    import torch

    # what torch's own compiled code calls: making an object for the stream takes several times as long
    handle = 0 if like is None else torch._C._cuda_getCurrentRawStream(like.device.index)  # type: ignore[attr-defined]
    return Stream(handle, torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
