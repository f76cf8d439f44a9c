"""Running a program on the device: constants uploaded once, one arena of planned offsets, launches in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, program, shapes
from frittata.egraph.errors import CompileError, ModelError
from frittata.egraph.program import Kernel, Program
from frittata.egraph.terms import TensorType, Term, size_bytes
from frittata.kernels import lookups
from frittata.kernels.batch import compile_kernels
from frittata.kernels.cache import KernelCache
from frittata.kernels.cuda import device, templates
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.cuda.launch import Launch, Launches, Part, PtxSource, loaded
from frittata.kernels.cuda.library import LIBRARY, LibraryCall, gemm, has_handle
from frittata.kernels.lowered import HostStep
from frittata.kernels.plain import flat
from frittata.kernels.plan import (
    InArena,
    InArgument,
    InConstant,
    InOutput,
    evaluate_constants,
    plan_buffers,
)
from frittata.kernels.runtime import canonical
from frittata.kernels.templates import host_by_name

Array = NDArray[Any]
Step = CudaKernel | LibraryCall | HostStep


def build(program_: Program, value_by_param: Mapping[str, Array], cache: KernelCache | None = None) -> CudaExecutable:
    """Write and compile every kernel of a program, each distinct one once, and lay out its buffers.

    Raises: LoweringError; CompileError if there is neither a device, nor the simulator, nor a compiler; ModelError if a
        param has no value.
    """
    device.require("device", "simulator", "compiler")
    steps = written(program_)
    constants = evaluate_constants(program_, value_by_param)
    kernels = dict.fromkeys(step for step in steps if isinstance(step, CudaKernel))
    if device.state() != "device":
        return CudaExecutable(program_, steps, constants, None, len(kernels))
    sources = [PtxSource(kernel, device.capability()) for kernel in kernels]
    ptx, new = compile_kernels(sources, cache)
    compiled = {source.kernel: (source, text) for source, text in zip(sources, ptx, strict=True)}
    return CudaExecutable(program_, steps, constants, compiled, new)


def written(program_: Program) -> tuple[Step, ...]:
    """Write the steps of a program, those equal up to the names of their buffers once.

    Raises: LoweringError, CompileError.
    """
    known: dict[Any, Step] = {}
    steps: list[Step] = []
    for kernel in program_.kernels:
        bodies, _ = canonical(_bodies(kernel), frozenset())
        key = (kernel.template, bodies)
        if key not in known:
            known[key] = _written(kernel.template, kernel.name, bodies)
        steps.append(known[key])
    return tuple(steps)


def kernel_source(kernel: Kernel) -> str:
    """Return the source of a step, with its own names for buffers."""
    if kernel.template == LIBRARY.name:
        return LIBRARY.call(kernel.name, _bodies(kernel)).source
    return templates.by_name(kernel.template).write(kernel.name, _bodies(kernel)).source


def _written(template: str, name: str, bodies: tuple[Term, ...]) -> Step:
    if template == LIBRARY.name:
        if device.state() == "simulator" or (device.state() == "device" and not gemm()):
            raise CompileError(f"{name} is a call into cuBLAS, which is not here", do="optimize with library=False")
        return LIBRARY.call(name, bodies)
    on_host = host_by_name(template)
    if on_host is not None:
        return on_host.lower_host(name, bodies)
    return templates.by_name(template).write(name, bodies)


def _bodies(kernel: Kernel) -> tuple[Term, ...]:
    return tuple(output.body for output in kernel.outputs)


@dataclass(frozen=True)
class _Buffer:
    """A part of memory: `start` bytes into one of the memories of a call."""

    memory: int
    start: int
    type: TensorType

    def part(self, first: int = 0) -> Part:
        """Return it as what a launch takes, from element `first` on."""
        itemsize = _memory_dtype(self.type).itemsize
        return Part(self.memory, self.start + first * itemsize, shapes.size(self.type.shape), itemsize)

    def of(self, memories: Sequence[Any]) -> Any:
        """Return it as a flat array on the device."""
        whole = device.borrow(memories[self.memory])
        dtype = _memory_dtype(self.type)
        if self.memory == _ARENA:
            return whole[self.start : self.start + size_bytes(self.type)].view(dtype)
        size, first = shapes.size(self.type.shape), self.start // dtype.itemsize
        return whole if whole.size == size else whole[first : first + size]


_ARENA, _STATUS = 0, 1
"""The first of a call's memories; then there are constants, arguments and outputs."""


@dataclass(eq=False)
class _Context:
    """What one call at a time may use: an arena, words for what kernels refuse, and launches."""

    arena: Any
    status: Any
    launches: Launches | None
    """None in the simulator."""
    starts: NDArray[np.int64]
    """Where the memories of the call begin on the device."""


@dataclass(eq=False)
class _Call:
    """The memory of one call."""

    context: _Context
    memories: list[Any]
    stream: device.Stream


class CudaExecutable:
    """A program ready to run; calls from several threads go one after the other on the device's stream.

    Arguments that lie on the device stay there, and so do the results; numpy arrays are copied there and back. The
    device is the one where the arguments of the first call lie, or the current one if they lie on the host.
    """

    def __init__(
        self,
        program_: Program,
        steps: tuple[Step, ...],
        constants: Mapping[str, Array],
        compiled: Mapping[CudaKernel, tuple[PtxSource, bytes]] | None,
        newly_compiled: int,
    ) -> None:
        self.program = program_
        self.lowered = steps
        self.newly_compiled = newly_compiled
        self.plan = plan_buffers(program_, {})
        self._compiled = compiled
        self._types = program_.types()
        inputs = program_.inputs.items()
        self._inputs = [(name, shapes.concrete(t.shape), dtypes.to_numpy(t.dtype), t.dtype) for name, t in inputs]
        self._outputs = [(shapes.concrete(t.shape), t) for t in map(self._types.__getitem__, program_.outputs)]
        self._host_constants = dict(constants)
        self._constants: list[Any] | None = None
        self._device: int | None = None
        self._lock = Lock()
        self._first_argument = _STATUS + 1 + len(constants)
        self._first_output = self._first_argument + len(program_.inputs)
        self._buffers = [self._buffers_of(kernel) for kernel in program_.kernels]
        self._words = [step.status_words if isinstance(step, CudaKernel) else 0 for step in steps]
        self._free: dict[int, list[_Context]] = {}

    @property
    def steps(self) -> int:
        """How many kernels a call launches."""
        return len(self.lowered)

    @property
    def distinct_kernels(self) -> int:
        """How many of them differ."""
        return len({step for step in self.lowered if isinstance(step, CudaKernel)})

    def ptx(self, capability: tuple[int, int] = (9, 0)) -> dict[str, str]:
        """Return the PTX of each kernel by the kernel's name in the program; needs a compiler, but no device.

        Raises: CompileError.
        """
        known: dict[CudaKernel, str] = {}
        out: dict[str, str] = {}
        for kernel, step in zip(self.program.kernels, self.lowered, strict=True):
            if isinstance(step, CudaKernel):
                if step not in known:
                    known[step] = device.ptx(step, capability)
                out[kernel.name] = known[step]
        return out

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run the program on arguments in the order of its inputs.

        Raises: ModelError if the arguments do not fit; IndexRangeError if an index lies outside of its axis;
            CompileError if there is no device.
        """
        number = self._where(arrays)
        with device.on(number):
            call = self._start(arrays, number)
            for first, count in self._segments:
                self._run(first, count, call)
            self._check(call)
            results = self._results(call, arrays)
            self._release(call)  # not after an error: its status would outlive the call
        return results

    def measure(self, *arrays: Any, repeats: int = 10) -> NDArray[np.float64]:
        """Return the least time of each step over `repeats` runs, in seconds, by the device's own clock.

        Raises: ModelError if the arguments do not fit; CompileError if there is no device.
        """
        if device.state() == "simulator":
            raise CompileError("the simulator keeps no time", do="measure on a machine with a GPU")
        device.require("device")
        from numba import cuda

        least = np.full(self.steps, np.inf)
        number = self._where(arrays)
        with device.on(number):
            call = self._start(arrays, number)
            for _ in range(repeats + 1):  # the first run loads
                for step in range(self.steps):
                    start, end = cuda.event(), cuda.event()
                    start.record(call.stream.numba)
                    self._run(step, 1, call)
                    end.record(call.stream.numba)
                    end.synchronize()
                    least[step] = min(least[step], start.elapsed_time(end) / 1e3)
            self._check(call)
            self._release(call)
        return least

    # ---- a call ------------------------------------------------------------------------------------------------------

    @cached_property
    def _segments(self) -> list[tuple[int, int]]:
        """The first step and the number of steps of each run of kernels, and of each step in Python."""
        out: list[tuple[int, int]] = []
        for number, step in enumerate(self.lowered):
            if out and not isinstance(step, HostStep) and not isinstance(self.lowered[number - 1], HostStep):
                first, count = out.pop()
                out.append((first, count + 1))
            else:
                out.append((number, 1))
        return out

    def _where(self, arrays: Sequence[Any]) -> int:
        """Return the number of the device that a call runs on.

        Raises: ModelError if an argument lies on another one; CompileError if there is no device.
        """
        device.require("device", "simulator")
        if len(arrays) != len(self._inputs):
            raise ModelError(f"the program takes {len(self._inputs)} arguments, got {len(arrays)}")
        there = [device.number_of(array) for array in arrays]
        number = next((each for each in (self._device, *there) if each is not None), None)
        for (name, *_), each in zip(self._inputs, there, strict=True):
            if each not in (None, number):
                raise _elsewhere(f"argument {name!r} is", each, number)
        return device.current() if number is None else number

    def _start(self, arrays: Sequence[Any], number: int) -> _Call:
        like = next(filter(device.is_torch, arrays), None)
        stream = device.stream_of(like)
        if stream.is_captured:
            self._require_capturable(arrays, number)
        known = zip(arrays, self._inputs, strict=True)
        arguments = [_argument(array, *input_, stream) for array, input_ in known]
        with self._lock:  # two first calls at once would each upload, and free what the other points to
            if self._constants is None:
                self._constants, self._device = self._uploaded(number), number
            if self._device != number:
                raise _elsewhere("arguments are", number, self._device)
            # memory that a stream still works in is only used again by what comes later in the same stream
            free = self._free.setdefault(stream.handle, [])
            context = free.pop() if free and not stream.is_captured else None
        context = context or self._new_context(like, stream, number)
        outputs = [device.fresh(shape, type_.dtype, like) for shape, type_ in self._outputs]
        call = _Call(context, [context.arena, context.status, *self._constants, *arguments, *outputs], stream)
        if context.launches is not None:
            context.starts[self._first_argument :] = [device.address(memory) for memory in (*arguments, *outputs)]
            context.launches.point(context.starts)
        return call

    def _require_capturable(self, arrays: Sequence[Any], number: int) -> None:
        """Check that a call neither allocates, nor copies between host and device, nor waits: that ends a capture.

        Raises: CompileError.
        """
        if self._constants is None or any(self._words):
            raise CompileError(
                "a program that was never called, or that looks up what its arguments say, cannot be captured",
                do="call it once before; look-ups are checked after each call, which graphs have no place for",
            )
        on_host = next((step for step in self.lowered if isinstance(step, HostStep)), None)
        if on_host is not None:
            what = f"a program with a step in Python, {on_host.name}, cannot be captured"
            raise CompileError(what, do="optimize what comes before it and what comes after alone, and capture those")
        if not arrays or not all(map(device.is_torch, arrays)):
            what = "a call that is captured takes torch tensors on the device, and nothing else"
            raise CompileError(what, do="move its arguments there before the capture")
        if any(isinstance(step, LibraryCall) for step in self.lowered) and not has_handle(number):
            what = "the first call of cuBLAS in a thread cannot be captured"
            raise CompileError(what, do="call the program once before, in the thread that captures")

    def _release(self, call: _Call) -> None:
        """Keep what a call used for others in its stream; what a graph uses goes with the graph's own memory."""
        if not call.stream.is_captured:
            self._free[call.stream.handle].append(call.context)

    def _new_context(self, like: Any, stream: device.Stream, number: int) -> _Context:
        arena = device.fresh((max(1, self.plan.arena_bytes),), "u8", like if stream.is_captured else None)
        status = None if stream.is_captured else device.upload(np.zeros(max(1, sum(self._words)), np.int64))
        starts = np.zeros(self._first_output + len(self._outputs), np.int64)
        if self._compiled is None:
            return _Context(arena, status, None, starts)
        known = [device.address(memory) for memory in (arena, *(self._constants or ()))]
        starts[_ARENA], starts[_STATUS + 1 : self._first_argument] = known[0], known[1:]
        starts[_STATUS] = 0 if status is None else device.address(status)
        return _Context(arena, status, self._new_launches(self._compiled, number), starts)

    def _new_launches(self, compiled: Mapping[CudaKernel, tuple[PtxSource, bytes]], number: int) -> Launches:
        launches: list[Launch] = []
        for step, buffers, word in zip(self.lowered, self._buffers, np.cumsum([0, *self._words]), strict=False):
            if isinstance(step, LibraryCall):
                parts = tuple(buffers[position].part(first) for position, first in step.places)
                launches.append(Launch(0, 0, 0, parts, step.words))
            elif isinstance(step, CudaKernel):
                status = (Part(_STATUS, 8 * int(word), step.status_words, 8),) if step.status_words else ()
                parts = (*(buffer.part() for buffer in buffers), *status)
                launches.append(Launch(loaded(*compiled[step], number), step.blocks, step.threads, parts))
            else:
                launches.append(Launch(0, 0, 0, ()))
        return Launches(launches, number)

    def _uploaded(self, number: int) -> list[Any]:
        """Copy the constants to the current device, of that number, where they are not there yet.

        Raises: CompileError if that is an older one than the program was compiled for.
        """
        wanted = max((source.capability for source, _ in (self._compiled or {}).values()), default=None)
        if wanted is not None and device.capability() < wanted:
            needed, there = (f"{major}.{minor}" for major, minor in (wanted, device.capability()))
            what = f"the program was compiled for compute capability {needed}, the device of its arguments has {there}"
            raise CompileError(what, do="optimize while that device is the current one, by torch.cuda.device")
        known: dict[int, Any] = {}
        for array in self._host_constants.values():
            if id(array) not in known:
                known[id(array)] = device.constant(flat(array), number)
        return [known[id(array)] for array in self._host_constants.values()]

    def _buffers_of(self, kernel: Kernel) -> list[_Buffer]:
        leaves = [leaf.attrs[0] for leaf in program.operands_of(*_bodies(kernel))]
        return [self._buffer(name) for name in (*leaves, *(output.name for output in kernel.outputs))]

    def _buffer(self, name: str) -> _Buffer:
        match self.plan.place_by_name[name]:
            case InArena(offset=start):
                memory = _ARENA
            case InConstant(name=constant, offset=start):
                memory = _STATUS + 1 + list(self._host_constants).index(constant)
            case InArgument(index=index, offset=start):
                memory = self._first_argument + index
            case InOutput(index=index, offset=start):
                memory = self._first_output + index
        return _Buffer(memory, start, self._types[name])

    def _run(self, first: int, count: int, call: _Call) -> None:
        """Run some steps: kernels, or one in Python."""
        step = self.lowered[first]
        if isinstance(step, HostStep):
            buffers = self._buffers[first]
            arrays = [buffer.of(call.memories) for buffer in buffers]
            _run_on_host(step, buffers, arrays, len(self.program.kernels[first].outputs), call.stream)
        elif call.context.launches is not None:
            call.context.launches.run(first, count, call.stream.handle)
        else:
            for number in range(first, first + count):
                self._simulate(number, call)

    def _simulate(self, number: int, call: _Call) -> None:
        step = self.lowered[number]
        assert isinstance(step, CudaKernel)
        arrays = [buffer.of(call.memories) for buffer in self._buffers[number]]
        if step.status_words:
            first = sum(self._words[:number])
            arrays.append(call.context.status[first : first + step.status_words])
        device.simulated(step)(*arrays)

    def _check(self, call: _Call) -> None:
        """Raise what the first kernel that was given a wrong index has noted."""
        if not any(self._words):
            return
        noted = device.download(call.context.status, call.stream)
        if not noted.any():
            return
        known = zip(self.program.kernels, self._words, strict=True)
        checks = [check for kernel, words in known if words for check in lookups.checks(kernel)]
        for check, index in zip(checks, noted, strict=True):
            if index:
                raise check.error(int(index))

    def _results(self, call: _Call, arrays: Sequence[Any]) -> tuple[Any, ...]:
        stays = any(map(device.is_on_device, arrays))
        found = call.memories[self._first_output :]
        for index in self.plan.copied_outputs:
            source = self._buffer(self.program.outputs[index])
            device.copy(found[index], source.of(call.memories), call.stream)
        if not stays:
            pairs = zip(found, self._outputs, strict=True)
            return tuple(_to_host(array, type_, call.stream) for array, (_, type_) in pairs)
        pairs = zip(found, self._outputs, strict=True)
        return tuple(device.shaped(array, shape, type_.dtype) for array, (shape, type_) in pairs)


def _memory_dtype(type_: TensorType) -> Any:
    """Return the numpy dtype of elements on the device: booleans are bytes, halves their bits."""
    return np.dtype(device.MEMORY_DTYPES[type_.dtype])


def _argument(
    value: Any, name: str, shape: tuple[int, ...], wanted: Any, dtype: str, stream: device.Stream
) -> Any:
    """Return an argument as contiguous memory on the device.

    Raises: ModelError if it is not of the type, or no dense array.
    """
    if device.is_torch(value):
        device.require_memory(value)
        if value.shape != shape or value.dtype is not device.torch_dtype(dtype):
            raise _misfit(name, shape, wanted, f"{value.dtype}{list(value.shape)}".removeprefix("torch."))
        return device.settled(value, stream)
    if not isinstance(value, np.ndarray) and not device.is_on_device(value):
        raise _misfit(name, shape, wanted, type(value).__name__)
    if tuple(value.shape) != shape or value.dtype != wanted:
        raise _misfit(name, shape, wanted, f"{value.dtype}{list(value.shape)}")
    return device.upload(flat(value)) if isinstance(value, np.ndarray) else device.settled(value, stream)


def _elsewhere(what: str, there: int | None, here: int | None) -> ModelError:
    return ModelError(
        f"{what} on cuda:{there}, the program runs on cuda:{here}",
        do=f"move arguments to cuda:{here}, or optimize once more and call that with arguments on cuda:{there}",
    )


def _misfit(name: str, shape: tuple[int, ...], wanted: Any, given: str) -> ModelError:
    return ModelError(f"argument {name!r} must be {wanted}{list(shape)}, got {given}")


def _to_host(array: Any, type_: TensorType, stream: device.Stream) -> Array:
    values = device.download(array, stream)
    return values.view(dtypes.to_numpy(type_.dtype)).reshape(shapes.concrete(type_.shape))


def _run_on_host(
    step: HostStep, buffers: list[_Buffer], arrays: list[Any], results: int, stream: device.Stream
) -> None:
    """Run a step in Python on copies of its operands, and copy its results to the device."""
    values = [_to_host(array, buffer.type, stream) for array, buffer in zip(arrays, buffers, strict=True)]
    first = len(values) - results
    step.run(values[:first], values[first:])
    for array, value in zip(arrays[first:], values[first:], strict=True):
        device.copy(array, device.upload(flat(value)), stream)
