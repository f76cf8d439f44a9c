"""Running a program on the device: constants uploaded once, one arena of planned offsets, launches in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, program, shapes
from frittata.egraph.errors import CompileError, ModelError
from frittata.egraph.program import Kernel, Program
from frittata.egraph.terms import TensorType, Term, size_bytes
from frittata.kernels import lookups
from frittata.kernels.cuda import device, templates
from frittata.kernels.cuda.kernel import CudaKernel
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
Step = CudaKernel | HostStep


def build(program_: Program, value_by_param: Mapping[str, Array]) -> CudaExecutable:
    """Write every kernel of a program, each distinct one once, and lay out its buffers.

    Raises: LoweringError; CompileError if there is neither a device, nor the simulator, nor a compiler; ModelError if a
        param has no value.
    """
    device.require("device", "simulator", "compiler")
    known: dict[Any, Step] = {}
    steps: list[Step] = []
    for kernel in program_.kernels:
        bodies, _ = canonical(_bodies(kernel), frozenset())
        key = (kernel.template, bodies)
        if key not in known:
            known[key] = _written(kernel.template, kernel.name, bodies)
        steps.append(known[key])
    return CudaExecutable(program_, tuple(steps), evaluate_constants(program_, value_by_param))


def kernel_source(kernel: Kernel) -> str:
    """Return the source of a step, with its own names for buffers."""
    return templates.by_name(kernel.template).write(kernel.name, _bodies(kernel)).source


def _written(template: str, name: str, bodies: tuple[Term, ...]) -> Step:
    on_host = host_by_name(template)
    if on_host is not None:
        return on_host.lower_host(name, bodies)
    return templates.by_name(template).write(name, bodies)


def _bodies(kernel: Kernel) -> tuple[Term, ...]:
    return tuple(output.body for output in kernel.outputs)


@dataclass(frozen=True)
class _Buffer:
    """A part of memory: from element `start` on, in an argument, an output, a constant, or at a byte of the arena."""

    place: InArena | InArgument | InConstant | InOutput
    type: TensorType

    @property
    def size(self) -> int:
        """How many elements there are."""
        return shapes.size(self.type.shape)

    @property
    def dtype(self) -> Any:
        """The numpy dtype in memory."""
        return _memory_dtype(self.type)

    def of(self, whole: Any) -> Any:
        """Return the part of the memory that it lies in."""
        if isinstance(self.place, InArena):
            return whole[self.place.offset : self.place.offset + size_bytes(self.type)].view(self.dtype)
        start = self.place.offset // self.dtype.itemsize
        return whole if whole.size == self.size else whole[start : start + self.size]


@dataclass(eq=False)
class _Call:
    """The memory of one call."""

    arena: Any
    constants: Mapping[str, Any]
    arguments: list[Any]
    outputs: list[Any]
    owners: list[Any]
    """Of the outputs: torch's tensors if the arguments are some, otherwise None."""
    status: Any
    stream: device.Stream

    def array(self, buffer: _Buffer) -> Any:
        """Return a buffer as a flat array on the device."""
        match buffer.place:
            case InArgument(index=index):
                return buffer.of(self.arguments[index])
            case InOutput(index=index):
                return buffer.of(self.outputs[index])
            case InConstant(name=name):
                return buffer.of(self.constants[name])
            case InArena():
                return buffer.of(self.arena)


class CudaExecutable:
    """A program ready to run; calls from several threads go one after the other on the device's stream.

    Arguments that lie on the device stay there, and so do the results; numpy arrays are copied there and back.
    """

    def __init__(self, program_: Program, steps: tuple[Step, ...], constants: Mapping[str, Array]) -> None:
        self.program = program_
        self.lowered = steps
        self.plan = plan_buffers(program_, {})
        self._types = program_.types()
        self._host_constants = constants
        self._constants: dict[str, Any] | None = None
        self._functions: dict[tuple[CudaKernel, int], Any] = {}
        self._buffers = [self._buffers_of(kernel) for kernel in program_.kernels]
        self._free: dict[int, list[Any]] = {}

    @property
    def steps(self) -> int:
        """How many kernels a call launches."""
        return len(self.lowered)

    @property
    def distinct_kernels(self) -> int:
        """How many of them differ."""
        return len({step.source for step in self.lowered if isinstance(step, CudaKernel)})

    @property
    def newly_compiled(self) -> int:
        """How many were written for this program: numba compiles each when it is first launched."""
        return self.distinct_kernels

    @property
    def arena_bytes(self) -> int:
        """The memory on the device that each concurrent call needs besides arguments, constants and outputs."""
        return self.plan.arena_bytes

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
        call = self._start(arrays)
        try:
            for number in range(self.steps):
                self._launch(number, call)
            self._check(call)
            return self._results(call, arrays)
        finally:
            self._release(call)

    def measure(self, *arrays: Any, repeats: int = 10) -> NDArray[np.float64]:
        """Return the least time of each step over `repeats` runs, in seconds, by the device's own clock.

        Raises: ModelError if the arguments do not fit; CompileError if there is no device.
        """
        if device.state() == "simulator":
            raise CompileError("the simulator keeps no time", do="measure on a machine with a GPU")
        device.require("device")
        from numba import cuda

        call = self._start(arrays)
        least = np.full(self.steps, np.inf)
        for _ in range(repeats + 1):  # the first run compiles
            for number in range(self.steps):
                start, end = cuda.event(), cuda.event()
                start.record(call.stream.numba)
                self._launch(number, call)
                end.record(call.stream.numba)
                end.synchronize()
                least[number] = min(least[number], start.elapsed_time(end) / 1e3)
        self._check(call)
        self._release(call)
        return least

    # ---- a call ------------------------------------------------------------------------------------------------------

    def _start(self, arrays: Sequence[Any]) -> _Call:
        device.require("device", "simulator")
        inputs = self.program.inputs.items()
        arguments = [_argument(array, *pair) for array, pair in zip(self._counted(arrays), inputs, strict=True)]
        if self._constants is None:
            self._constants = self._uploaded()
        # memory that a stream still works in is only used again by what comes later in the same stream
        like = next(filter(device.is_torch, arrays), None)
        stream = device.stream_of(like)
        free = self._free.setdefault(stream.handle, [])
        arena = free.pop() if free else device.empty(max(1, self.arena_bytes), np.uint8)
        memory = [device.fresh(shapes.size(t.shape), _memory_dtype(t), like) for t in self._output_types()]
        words = self._status_words()
        status = device.upload(np.zeros(sum(words), np.int64)) if sum(words) else None
        outputs, owners = [array for array, _ in memory], [owner for _, owner in memory]
        return _Call(arena, self._constants, arguments, outputs, owners, status, stream)

    def _release(self, call: _Call) -> None:
        self._free[call.stream.handle].append(call.arena)

    def _counted(self, arrays: Sequence[Any]) -> Sequence[Any]:
        if len(arrays) != len(self.program.inputs):
            raise ModelError(f"the program takes {len(self.program.inputs)} arguments, got {len(arrays)}")
        return arrays

    def _uploaded(self) -> dict[str, Any]:
        known: dict[int, Any] = {}
        for array in self._host_constants.values():
            if id(array) not in known:
                known[id(array)] = device.upload(flat(array))
        return {name: known[id(array)] for name, array in self._host_constants.items()}

    def _output_types(self) -> list[TensorType]:
        return [self._types[name] for name in self.program.outputs]

    def _status_words(self) -> list[int]:
        return [step.status_words if isinstance(step, CudaKernel) else 0 for step in self.lowered]

    def _buffers_of(self, kernel: Kernel) -> list[_Buffer]:
        leaves = [leaf.attrs[0] for leaf in program.operands_of(*_bodies(kernel))]
        names = [*leaves, *(output.name for output in kernel.outputs)]
        return [_Buffer(self.plan.place_by_name[name], self._types[name]) for name in names]

    def _launch(self, number: int, call: _Call) -> None:
        step, buffers = self.lowered[number], self._buffers[number]
        arrays = [call.array(buffer) for buffer in buffers]
        if isinstance(step, HostStep):
            _run_on_host(step, buffers, arrays, len(self.program.kernels[number].outputs), call.stream)
            return
        if step.status_words:
            words = self._status_words()
            first = sum(words[:number])
            arrays.append(call.status[first : first + step.status_words])
        key = step, call.stream.handle
        if key not in self._functions:
            self._functions[key] = device.load(step, call.stream)
        self._functions[key](*arrays)

    def _check(self, call: _Call) -> None:
        """Raise what the first kernel that was given a wrong index has noted."""
        if call.status is None:
            return
        checks = [
            check
            for kernel, words in zip(self.program.kernels, self._status_words(), strict=True)
            if words
            for check in lookups.checks(kernel)
        ]
        for check, index in zip(checks, device.download(call.status, call.stream), strict=True):
            if index:
                raise check.error(int(index))

    def _results(self, call: _Call, arrays: Sequence[Any]) -> tuple[Any, ...]:
        stays = any(map(device.is_on_device, arrays))
        out: list[Any] = []
        for index, (name, type_) in enumerate(zip(self.program.outputs, self._output_types(), strict=True)):
            if index in self.plan.copied_outputs:
                source = call.array(_Buffer(self.plan.place_by_name[name], type_))
                device.copy(call.outputs[index], source, call.stream)
            found = call.outputs[index] if call.owners[index] is None else call.owners[index]
            shape = shapes.concrete(type_.shape)
            out.append(device.shaped(found, shape, type_.dtype) if stays else _to_host(found, type_, call.stream))
        return tuple(out)


def _memory_dtype(type_: TensorType) -> Any:
    """Return the numpy dtype of elements on the device: booleans are bytes, halves their bits."""
    return np.dtype(device.MEMORY_DTYPES[type_.dtype])


def _argument(value: Any, name: str, type_: TensorType) -> Any:
    """Return an argument as a flat array on the device.

    Raises: ModelError if it is not of the type.
    """
    shape = shapes.concrete(type_.shape)
    wanted = f"{dtypes.to_numpy(type_.dtype)}{list(shape)}"
    if not isinstance(value, np.ndarray) and not device.is_on_device(value):
        raise ModelError(f"argument {name!r} must be {wanted}, got {type(value).__name__}")
    given = str(value.dtype).removeprefix("torch.")
    if tuple(value.shape) != shape or given != str(dtypes.to_numpy(type_.dtype)):
        raise ModelError(f"argument {name!r} must be {wanted}, got {given}{list(value.shape)}")
    return device.upload(flat(value)) if isinstance(value, np.ndarray) else device.borrow(value)


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
