"""Running a program: compiled kernels, tables of addresses, and one call of the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.errors import ModelError
from frittata.egraph.ops import registry
from frittata.egraph.program import Kernel, Program, View
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import driver, templates
from frittata.kernels.batch import KernelSource, compile_kernels
from frittata.kernels.cache import KernelCache
from frittata.kernels.compile import CompiledKernel
from frittata.kernels.lowered import LoweredKernel, Scratch
from frittata.kernels.plain import compile_plain
from frittata.kernels.plan import InArena, InArgument, InConstant, evaluate_constants, plan_buffers
from frittata.kernels.tables import Tables, address, aligned_bytes, quick_address

Array = NDArray[Any]


def build(program_: Program, value_by_param: Mapping[str, Array], cache: KernelCache | None = None) -> Executable:
    """Lower and compile every kernel of a program, each distinct one once, and lay out its buffers.

    Raises: LoweringError, CompileError; ModelError if a param has no value.
    """
    lowered = lower_kernels(program_)
    sources = [KernelSource(k.source, k.name, k.namespace, k.key, tuple(sorted(k.fastmath))) for k in lowered]
    missing = {source.digest for source in sources if cache is None or not cache.has(source.digest)}
    compiled = tuple(compile_kernels(sources, cache))
    return Executable(program_, lowered, compiled, evaluate_constants(program_, value_by_param), len(missing))


def lower_kernels(program_: Program) -> tuple[LoweredKernel, ...]:
    """Lower the kernels of a program, those equal up to the names of their buffers once."""
    known: dict[Any, LoweredKernel] = {}
    out: list[LoweredKernel] = []
    for kernel in program_.kernels:
        bodies, constants = canonical(_bodies(kernel), _constant_names(program_))
        key = (kernel.template, bodies, constants)
        if key not in known:
            known[key] = templates.by_name(kernel.template).lower(kernel.template, bodies, constants)
        out.append(known[key])
    return tuple(out)


def canonical(bodies: tuple[Term, ...], constants: frozenset[str]) -> tuple[tuple[Term, ...], frozenset[str]]:
    """Rename operands to x0, x1, ... in their order, in bodies and among the names of constants."""
    leaves = list(program.operands_of(*bodies))
    new = {leaf: registry.make("input", "tensor", (), (f"x{i}", *leaf.attrs[1:])) for i, leaf in enumerate(leaves)}

    def rename(term: Term, args: tuple[Term, ...]) -> Term:
        return new[term] if term in new else registry.make(term.op, term.sort, args, term.attrs)

    names = frozenset(new[leaf].attrs[0] for leaf in leaves if leaf.attrs[0] in constants)
    return terms.rebuild_all(bodies, rename), names


def _bodies(kernel: Kernel) -> tuple[Term, ...]:
    return tuple(output.body for output in kernel.outputs)


def _constant_names(program_: Program) -> frozenset[str]:
    names = set(program_.constants)
    for step in program_.steps:
        if isinstance(step, View) and step.source in names:
            names.add(step.name)
    return frozenset(names)


@dataclass(eq=False)
class _Context:
    """What one call at a time may use: an arena, and tables that point into it."""

    arena: Array
    entries: memoryview
    """The entries of all tables: faster to write to than the array."""
    steps: driver.Steps


class Executable:
    """A program ready to run; may be called from several threads at once."""

    def __init__(
        self,
        program_: Program,
        lowered: tuple[LoweredKernel, ...],
        compiled: tuple[CompiledKernel, ...],
        constants: Mapping[str, Array],
        newly_compiled: int = 0,
    ) -> None:
        self.program = program_
        self.lowered = lowered
        self.newly_compiled = newly_compiled
        self._compiled = compiled
        types = program_.types()
        self._inputs = tuple((name, *_numpy_type(type_)) for name, type_ in program_.inputs.items())
        self._outputs = tuple(_numpy_type(types[name]) for name in program_.outputs)
        self.plan = plan_buffers(program_, _scratch_bytes(lowered))
        self._tables = Tables(program_, lowered, self.plan, constants)
        self._copied = tuple((i, self.plan.place_by_name[program_.outputs[i]]) for i in self.plan.copied_outputs)
        self._is_serial = all(kernel.chunks == 1 for kernel in lowered)
        self._free: list[_Context] = []

    @property
    def steps(self) -> int:
        """How many kernels a call runs."""
        return len(self.lowered)

    @property
    def distinct_kernels(self) -> int:
        """How many of them differ: `newly_compiled` were compiled for this program, the others came from the cache."""
        return len({compiled.digest for compiled in self._compiled})

    @property
    def arena_bytes(self) -> int:
        """The memory that each concurrent call needs besides arguments, constants and outputs."""
        return self.plan.arena_bytes

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run the program on arguments in the order of its inputs; the arrays returned are the caller's.

        Raises: ModelError if the arguments do not fit.
        """
        arguments = self._checked(arrays)
        context = self._take()
        try:
            outputs = self._point(context, arguments)
            if self.lowered:
                driver.run(context.steps, self._is_serial)
        finally:
            self._free.append(context)
        self._copy(outputs, arguments)
        return tuple(outputs)

    def measure(self, *arrays: Array, repeats: int = 10) -> NDArray[np.float64]:
        """Return the least time of each step over `repeats` runs, in seconds."""
        arguments = self._checked(arrays)
        context = self._take()
        try:
            outputs = self._point(context, arguments)
            runs = [driver.run_timed(context.steps) for _ in range(repeats + 1)]
        finally:
            self._free.append(context)
        del outputs
        return np.min(runs[1:], axis=0)

    def _checked(self, arrays: tuple[Array, ...]) -> list[Array]:
        if len(arrays) != len(self._inputs):
            raise ModelError(f"the program takes {len(self._inputs)} arguments, got {len(arrays)}")
        out: list[Array] = []
        for array, (name, shape, dtype) in zip(arrays, self._inputs, strict=True):
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                raise _misfit(name, array, shape, dtype)
            flags = array.flags
            out.append(array if flags.c_contiguous and flags.aligned else array.copy("C"))
        return out

    def _take(self) -> _Context:
        try:
            return self._free.pop()
        except IndexError:
            return self._new_context()

    def _new_context(self) -> _Context:
        arena = aligned_bytes(self.plan.arena_bytes)
        table = self._tables.fixed.copy()
        table[self._tables.in_arena] += address(arena)
        steps = np.zeros((len(self.lowered), 3), np.int64)
        rows = zip(self._compiled, self._tables.starts, self.lowered, strict=True)
        for step, (compiled, start, lowered) in zip(steps, rows, strict=True):
            step[:] = compiled.address, address(table) + 8 * start, lowered.chunks
        return _Context(arena, table.data, steps)

    def _point(self, context: _Context, arguments: list[Array]) -> list[Array]:
        """Write the addresses of arguments and fresh outputs into the tables."""
        outputs = [np.empty(shape, dtype) for shape, dtype in self._outputs]
        addresses = [quick_address(array) for array in (*arguments, *outputs)]
        entries = context.entries
        for entry, source in self._tables.moving:
            entries[entry] = addresses[source]
        return outputs

    def _copy(self, outputs: list[Array], arguments: list[Array]) -> None:
        for index, place in self._copied:
            if isinstance(place, InArgument):
                source = arguments[place.index]
            elif isinstance(place, InConstant):
                source = self._tables.constants[place.name]
            else:
                assert not isinstance(place, InArena)
                source = outputs[place.index]
            outputs[index][...] = source.reshape(outputs[index].shape)


def _numpy_type(type_: TensorType) -> tuple[tuple[int, ...], Any]:
    return shapes.concrete(type_.shape), dtypes.to_numpy(type_.dtype)


def _misfit(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> ModelError:
    got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    return ModelError(f"argument {name!r} must be {dtype}{list(shape)}, got {got}")


def _scratch_bytes(lowered: Iterable[LoweredKernel]) -> dict[tuple[int, int], int]:
    return {
        (number, position): argument.stride_bytes * kernel.chunks
        for number, kernel in enumerate(lowered)
        for position, argument in enumerate(kernel.arguments)
        if isinstance(argument, Scratch)
    }


# ---- the plain target ------------------------------------------------------------------------------------------------


def run_plain(program_: Program, value_by_param: Mapping[str, Array], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Run a program with the plain form of its kernels, one after the other."""
    value: dict[str, Array] = dict(zip(program_.inputs, arrays, strict=True))
    value.update(evaluate_constants(program_, value_by_param))
    for step in program_.steps:
        if isinstance(step, View):
            value[step.name] = value[step.source].reshape(shapes.concrete(step.type.shape))
            continue
        bodies, _ = canonical(_bodies(step), frozenset())
        operands = [value[leaf.attrs[0]] for leaf in program.operands_of(*_bodies(step))]
        results = _plain(bodies)(*operands)
        value.update({output.name: result for output, result in zip(step.outputs, results, strict=True)})
    return tuple(value[name].copy() for name in program_.outputs)


@lru_cache(maxsize=256)
def _plain(bodies: tuple[Term, ...]) -> Any:
    return compile_plain("plain", bodies)
