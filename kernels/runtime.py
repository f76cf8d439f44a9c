"""Running a program: compiled kernels, tables of addresses, and one call of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.errors import LoweringError, ModelError
from frittata.egraph.ops import registry
from frittata.egraph.places import find_places, placed_bodies, touches_apart
from frittata.egraph.program import Join, Kernel, Program, View
from frittata.egraph.slices import sliced
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import lookups, templates
from frittata.kernels.bands import NOTHING, Banded, lower_bands, together
from frittata.kernels.batch import KernelSource, compile_kernels
from frittata.kernels.cache import KernelCache
from frittata.kernels.compile import CompiledKernel
from frittata.kernels.constants import Constants, part_of
from frittata.kernels.lowered import LoweredKernel, Operand, Scratch, Status
from frittata.kernels.plain import compile_plain
from frittata.kernels.plan import evaluate_constants, plan_buffers
from frittata.kernels.results import allocator
from frittata.kernels.segments import Bound, Compiled, Layout, Lowered, Segment
from frittata.kernels.tables import Tables, address, aligned_bytes, quick_addresses

Array = NDArray[Any]


def build(program_: Program, value_by_param: Mapping[str, Array], cache: KernelCache | None = None) -> Executable:
    """Lower and compile every kernel of a program, each distinct one once, and lay out its buffers.

    Raises: LoweringError, CompileError; ModelError if a param has no value.
    """
    lowered, banded = lower_kernels(program_)
    kernels = [low for low in lowered if isinstance(low, LoweredKernel)]
    every = list(dict.fromkeys([*kernels, *(called for band in banded for called in band.called)]))
    sources = [KernelSource(k.source, k.name, k.namespace, k.key) for k in every]
    compiled, new = compile_kernels(sources, cache)
    by_kernel = dict(zip(every, compiled, strict=True))
    return Executable(program_, lowered, banded, by_kernel, Constants(program_, value_by_param), new)


def lower_kernels(program_: Program) -> tuple[tuple[Lowered, ...], tuple[Banded, ...]]:
    """Lower the steps of a program, those equal up to the names of their buffers once, and its bands.

    A band stands at the place of its last kernel, and nothing at that of the others.

    Raises: LoweringError if a template cannot write a kernel where its buffers lie.
    """
    known: dict[Any, Lowered] = {}
    constants = program_.constant_buffers()
    places = find_places(program_)

    def lower(template: str, *bodies: Term) -> Any:
        renamed, named = canonical(bodies, constants)
        key = (template, renamed, named)
        if key not in known:
            known[key] = _lower(template, renamed, named)
        return known[key]

    def lower_sliced(template: str, *bodies: Term) -> Lowered:
        parts, starts = sliced(bodies, lambda leaf: leaf.attrs[0] in constants)
        try:
            return _beginning(lower(template, *parts), [*program.operands_of(*bodies)], starts)
        except LoweringError:  # the template knows these bodies by the shapes of what they read
            return lower(template, *bodies)

    banded = lower_bands(program_, places, lower)
    by_number = {number: NOTHING for band in banded for number in band.numbers}
    by_number.update((band.numbers[-1], band.kernel) for band in banded)
    out: list[Lowered] = []
    for number, kernel in enumerate(program_.kernels):
        if touches_apart(kernel, places) and not templates.is_in_place(kernel.template):
            raise LoweringError(f"the template {kernel.template} cannot write or read {kernel.name} in place")
        out.append(by_number.get(number) or lower_sliced(kernel.template, *placed_bodies(kernel, places)))
    return tuple(out), banded


def _beginning(lowered: Lowered, leaves: Sequence[Term], starts: Mapping[Term, int]) -> Lowered:
    """Let a kernel read its operands from those elements on."""
    if not starts:
        return lowered
    assert isinstance(lowered, LoweredKernel)  # a host step takes whole arrays, and views are no part of its body
    first = [starts.get(leaf, 0) * dtypes.itemsize(leaf.dtype) for leaf in leaves]
    arguments = (replace(a, start=first[a.index]) if isinstance(a, Operand) else a for a in lowered.arguments)
    return replace(lowered, arguments=tuple(arguments))


def _lower(template: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> Lowered:
    on_host = templates.host_by_name(template)
    if on_host is not None:
        return on_host.lower_host(template, bodies)
    return templates.by_name(template).lower(template, bodies, constants)


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


@dataclass(eq=False)
class _Context:
    """What one call at a time may use: an arena, and tables that point into it."""

    arena: Array
    entries: memoryview
    """The entries of all tables: faster to write to than the array."""
    segments: tuple[Segment, ...]
    status: memoryview
    """What kernels refused: 0, or an index outside of its axis."""
    copies: tuple[tuple[int, Bound], ...]
    """The outputs that no kernel writes, and where their values are."""


class Executable:
    """A program ready to run; may be called from several threads at once."""

    def __init__(
        self,
        program_: Program,
        lowered: tuple[Lowered, ...],
        banded: tuple[Banded, ...],
        compiled: Mapping[LoweredKernel, CompiledKernel],
        constants: Constants,
        newly_compiled: int = 0,
    ) -> None:
        self.program = program_
        self.lowered = lowered
        self.newly_compiled = newly_compiled
        self._compiled = compiled
        self._banded = banded
        types = program_.types()
        self._inputs = tuple((name, *_numpy_type(type_)) for name, type_ in program_.inputs.items())
        self.allocators = tuple(allocator(*_numpy_type(types[name])) for name in program_.outputs)
        """What makes an array for each output."""
        self.plan = plan_buffers(program_, _scratch_bytes(lowered), together(banded))
        code = {kernel: found.address for kernel, found in compiled.items()}
        self._tables = Tables(program_, lowered, self.plan, constants, code)
        self._moving = self._tables.moving
        self._layout = Layout(program_, lowered, self.plan, self._tables.constants)
        self._free: list[_Context] = []

    @property
    def steps(self) -> int:
        """How many kernels a call runs."""
        return len(self.lowered)

    @property
    def distinct_kernels(self) -> int:
        """How many of them differ: `newly_compiled` were compiled for this program, the others found."""
        return len({compiled.digest for compiled in self._compiled.values()})

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run the program on arguments in the order of its inputs; the arrays returned are the caller's.

        Raises: ModelError if the arguments do not fit; IndexRangeError if an index that they hold, or that is computed
            from them, lies outside of the axis that it points into.
        """
        outputs = [allocate() for allocate in self.allocators]
        moving = (*self._checked(arrays), *outputs)
        context = self._take(quick_addresses(moving))
        for segment in context.segments:
            segment.run(moving)
        self._check(context)
        for index, bound in context.copies:
            outputs[index][...] = bound(moving)
        self._free.append(context)  # not after an error: its status would outlive the call
        return tuple(outputs)

    @property
    def runs_at_addresses(self) -> bool:
        """Whether a run needs addresses only: there are no host steps, and kernels write all outputs."""
        return not self.plan.copied_outputs and all(isinstance(low, LoweredKernel) for low in self.lowered)

    def run_at(self, addresses: Sequence[int], meanwhile: Callable[[], None] | None = None) -> None:
        """Run the program on memory that is the caller's, if `runs_at_addresses`: first arguments, then outputs.

        It must be as the program's types say, row-major and contiguous, and each element aligned. The calling thread
        first does what is to be done `meanwhile`: other threads may have begun.

        Raises: IndexRangeError; what `meanwhile` raises.
        """
        context = self._take(addresses)
        for segment in context.segments:
            assert isinstance(segment, Compiled)  # as `runs_at_addresses` says: the only one
            segment.run((), meanwhile)
        self._check(context)
        self._free.append(context)

    def reads_in_place(self, start: int, stop: int) -> bool:
        """Whether kernels read memory between two addresses that is a constant's, and no copy of it."""
        return any(low < stop and start < high for low, high in self._tables.constant_memory)

    def measure(self, *arrays: Array, repeats: int = 10) -> NDArray[np.float64]:
        """Return the least time of each step over `repeats` runs, in seconds."""
        moving = (*self._checked(arrays), *(allocate() for allocate in self.allocators))
        context = self._take(quick_addresses(moving))
        runs = [[segment.run_timed(moving) for segment in context.segments] for _ in range(repeats + 1)]
        self._check(context)
        self._free.append(context)
        if not self.lowered:
            return np.zeros(0)
        seconds = np.min([np.concatenate(run) for run in runs[1:]], axis=0)
        predicted = np.array([kernel.estimate.seconds for kernel in self.program.kernels])
        for band in self._banded:  # only the whole of a band is known
            numbers = list(band.numbers)
            seconds[numbers] = seconds[numbers].sum() * predicted[numbers] / predicted[numbers].sum()
        return seconds

    def _checked(self, arrays: tuple[Array, ...]) -> list[Array]:
        if len(arrays) != len(self._inputs):
            raise ModelError(f"the program takes {len(self._inputs)} arguments, got {len(arrays)}")
        out: list[Array] = []
        for array, (name, shape, dtype) in zip(arrays, self._inputs, strict=True):
            if (
                type(array) is not np.ndarray
                or array.shape != shape
                or not (array.dtype is dtype or array.dtype == dtype)
            ):
                raise _misfit(name, array, shape, dtype)
            out.append(array if array.flags.num & _READABLE == _READABLE else array.copy("C"))
        return out

    def _take(self, addresses: Sequence[int]) -> _Context:
        """Return a context that no other call uses, with the addresses of arguments and outputs in its tables."""
        try:
            context = self._free.pop()
        except IndexError:
            context = self._new_context()
        entries = context.entries
        for entry, source, offset in self._moving:
            entries[entry] = addresses[source] + offset
        return context

    def _new_context(self) -> _Context:
        arena = aligned_bytes(self.plan.arena_bytes)
        table = self._tables.fixed.copy()
        table[self._tables.in_arena] += address(arena)
        status = np.zeros(self._tables.status_words, np.int64)
        table[self._tables.in_status] += address(status)
        table[self._tables.in_tables] += address(table)
        kernels = [low for low in self.lowered if isinstance(low, LoweredKernel)]
        steps = np.zeros((len(kernels), 3), np.int64)
        for step, start, lowered in zip(steps, self._tables.starts, kernels, strict=True):
            step[:] = self._compiled[lowered].address, address(table) + 8 * start, lowered.chunks
        copies = tuple((i, self._layout.bound(self.program.outputs[i], arena)) for i in self.plan.copied_outputs)
        self._layout.fill_borders(arena)
        for band in self._banded:
            memory = arena[self.plan.kept[band.numbers[-1]] :]
            for start, count, value in band.walk.borders:
                dtype = np.dtype(dtypes.to_numpy(value.dtype))
                memory[start : start + count * dtype.itemsize].view(dtype)[:] = value.value
        return _Context(arena, table.data, self._layout.bind(steps, arena), status.data, copies)

    def _check(self, context: _Context) -> None:
        """Raise IndexRangeError for what the first kernel that was given a wrong index has noted."""
        if not context.status or not any(context.status):
            return
        word, index = next((word, index) for word, index in enumerate(context.status) if index)
        checked = [
            check
            for kernel, low in zip(self.program.kernels, self.lowered, strict=True)
            if isinstance(low, LoweredKernel) and any(isinstance(a, Status) for a in low.arguments)
            for check in lookups.checks(kernel)
        ]
        raise checked[word].error(index)


_READABLE = 0x0101
"""numpy's flags for C order and for aligned elements."""


def _numpy_type(type_: TensorType) -> tuple[tuple[int, ...], Any]:
    return shapes.concrete(type_.shape), dtypes.to_numpy(type_.dtype)


def _misfit(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> ModelError:
    got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    return ModelError(f"argument {name!r} must be {dtype}{list(shape)}, got {got}")


def _scratch_bytes(lowered: Iterable[Lowered]) -> dict[tuple[int, int], int]:
    return {
        (number, position): argument.stride_bytes * kernel.chunks
        for number, kernel in enumerate(lowered)
        if isinstance(kernel, LoweredKernel)
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
            value[step.name] = part_of(value[step.source], step)
            continue
        if isinstance(step, Join):
            reference = registry.get(step.body.op).reference
            assert reference is not None
            value[step.name] = reference(*(value[part] for part in step.parts), *step.body.attrs)
            continue
        bodies, _ = canonical(_bodies(step), frozenset())
        operands = [value[leaf.attrs[0]] for leaf in program.operands_of(*_bodies(step))]
        if step.is_opaque:
            results = _called(bodies, operands)
        else:
            results = _plain(bodies)(*operands, checked=lookups.checks(step))
        value.update({output.name: result for output, result in zip(step.outputs, results, strict=True)})
    return tuple(value[name].copy() for name in program_.outputs)


def _called(bodies: tuple[Term, ...], operands: Sequence[Array]) -> tuple[Array, ...]:
    results = tuple(np.empty(shapes.concrete(b.shape), dtypes.to_numpy(b.dtype)) for b in bodies)
    arrays = [np.ascontiguousarray(o).reshape(o.shape) for o in operands]
    templates.OPAQUE.lower_host("called", bodies).run(arrays, results)
    return results


@lru_cache(maxsize=256)
def _plain(bodies: tuple[Term, ...]) -> Any:
    return compile_plain("plain", bodies)
