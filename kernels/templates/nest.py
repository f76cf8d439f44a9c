"""The template that takes every body: its loop nest as it is, in scalar code, a slice of the outer loops to a chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.indexing import var
from frittata.egraph.machine import Machine
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.program import Estimate
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import loads_of
from frittata.kernels.halves import FUNCTIONS
from frittata.kernels.lookups import sites
from frittata.kernels.loops import Loop, Nest, Row, Statement, statements
from frittata.kernels.lower import lower, result_names
from frittata.kernels.lowered import LoweredKernel, Scratch, Status, addresses, aligned
from frittata.kernels.pointers import POINTERS
from frittata.kernels.tiles import CACHE_LINE_BYTES
from frittata.kernels.traffic import constant_bytes, moved_bytes
from frittata.kernels.work import evaluated_units, units_without, work_units

_MOST_CHUNKS = 16
_LEAST_CHUNK_UNITS = 20_000.0
_APART_UNITS, _COLLIDING_UNITS, _COLLIDING_BYTES = 3.0, 30.0, 1024
"""What loading from another cache line each time takes, and where those lines share a few sets of a cache.

Source: Zen 5, transposing 1000 x 1000 and 2000 x 2000 floats: 3 units; 512 to 2048 a side, 22 to 65.
"""
_MOST_LOWERED = 200
"""Larger bodies are priced without being lowered."""


@dataclass(frozen=True)
class Split:
    """How the two outermost loops are cut: into `outer` slices, and each of those into `inner` slices of the second."""

    outer: int
    inner: int = 1


class NestTemplate:
    """Runs any well-formed bodies; the last resort of extraction."""

    name = "nest"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of scalar code, one lane where `Machine.scalar_per_s` counts all; None for a symbolic shape.

        Measured on two Zen 3 cores: 3 to 10 of 40 units a nanosecond.
        """
        if _is_symbolic(bodies):
            return None
        flops = _units(bodies) + _apart_units(bodies)
        moved = moved_bytes(bodies)
        transfer = machine.transfer_s(moved, constant_bytes(bodies, constants))
        started = machine.launch_s + (machine.sync_s if _is_cut(flops) else 0.0)
        return Estimate(started + _compute_s(flops, bodies, machine) + transfer, flops, moved)

    def least_s(self, bodies: tuple[Term, ...], machine: Machine) -> float:
        """Return seconds that are no more than `estimate` says, without a look at what loops repeat."""
        return 0.0 if _is_symbolic(bodies) else _compute_s(work_units(bodies), bodies, machine)

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loop nest over pointers from the table."""
        nest = lower(bodies)
        split = _split(nest, work_units(bodies))
        scratch = sum(aligned(_row_bytes(row)) for row in nest.rows())
        arguments = addresses(bodies)
        if scratch:
            arguments.append(Scratch(scratch))
        if nest.status_words:
            arguments.append(Status(len(sites(bodies))))
        lines = [*_bindings(nest, scratch), *source.write(nest.body, _Chunked(nest, split).special, 0)]
        text = source.function(name, source.comment(bodies, result_names(bodies)), lines)
        namespace = {"np": np, "math": math, **POINTERS, **FUNCTIONS}
        chunks = split.outer * split.inner
        return LoweredKernel(name, text, namespace, chunks, tuple(arguments))


NEST = NestTemplate()


def _is_symbolic(bodies: tuple[Term, ...]) -> bool:
    return any(isinstance(dim, Sym) for term in (*bodies, *program.operands_of(*bodies)) for dim in term.shape)


def _compute_s(units: float, bodies: tuple[Term, ...], machine: Machine) -> float:
    threads = machine.threads if _is_cut(work_units(bodies)) else 1
    return units / (machine.scalar_per_s / machine.lanes_f32 * threads / machine.threads)


def _units(bodies: tuple[Term, ...]) -> float:
    """Return what all chunks take together: each computes for itself what is outside of the loop that is cut."""
    units, shape = work_units(bodies), shapes.concrete(bodies[0].shape)
    if _may_repeat(bodies):
        units = max(units, evaluated_units(lower(bodies).body))
    outer = next((axis for axis in range(-len(shape), 0) if shapes.dim_at(shape, axis) != 1), None)
    if outer is None or not _is_cut(units):
        return units
    chunks = min(_MOST_CHUNKS, units // _LEAST_CHUNK_UNITS)
    return units + (chunks - 1) * units_without(bodies, outer)


def _apart_units(bodies: tuple[Term, ...]) -> float:
    """Return what bodies without folds wait where neighbours along the innermost loop lie in other cache lines."""
    elements = [body.args[0] for body in bodies]
    shape = shapes.concrete(bodies[0].shape)
    if not shape or any(term.op == "fold" or term.op in CONTRACTIONS for term in terms.walk(*elements)):
        return 0.0
    index = {axis: var(axis, shape[axis]) for axis in range(-len(shape), 0)}
    each = 0.0
    for leaf, offset in loads_of(*elements, index=index):
        step = 0 if offset is None else (offset.factor_of(-1) or 0) * dtypes.itemsize(leaf.dtype)
        if step >= CACHE_LINE_BYTES:
            each += _COLLIDING_UNITS if step % _COLLIDING_BYTES == 0 else _APART_UNITS
    return each * shapes.size(shape)


def _is_cut(units: float) -> bool:
    return units >= 2 * _LEAST_CHUNK_UNITS


def _may_repeat(bodies: tuple[Term, ...]) -> bool:
    """Whether loops may compute again what they have: for which of them is seen in the nest alone.

    Folds that folds are computed from, and elements that are the same along an axis around one of their own.
    """
    every = [*terms.walk(*bodies)]
    if len(every) > _MOST_LOWERED:
        return False
    folds = [term for term in every if term.op == "fold"]
    extents = dict(zip(range(-len(bodies[0].shape), 0), bodies[0].shape, strict=True))
    extents.update({fold.attrs[1]: fold.attrs[2] for fold in folds})
    loops = tuple(extents.get(axis, 1) for axis in range(min(extents, default=0), 0))
    computed = (term for term in every if term.sort == "element" and term.op not in ("load", "reindex", "fold"))
    return any(inner.op == "fold" for fold in folds for inner in terms.walk(*fold.args)) or any(
        shapes.is_repeated(term.shape, loops) for term in computed
    )


def _row_bytes(row: Row) -> int:
    return row.extent * dtypes.itemsize(row.dtype)


def _bindings(nest: Nest, scratch: int) -> list[str]:
    """Give names to the addresses in the table."""
    arrays = (*nest.operands, *nest.results)
    lines = [f"{array.name} = {array.dtype}_pointer(table[{i}])" for i, array in enumerate(arrays)]
    offset = 0
    for row in nest.rows():
        at = f"table[{len(arrays)}] + chunk*{scratch} + {offset}"
        lines.append(f"{row.array} = {row.dtype}_pointer({at})")
        offset += aligned(_row_bytes(row))
    if nest.status_words:
        lines.append(f"status = i64_pointer(table[{len(arrays) + bool(scratch)}])")
    return lines


def _split(nest: Nest, units: float) -> Split:
    """Cut into chunks that are worth a thread; never so that work outside of the loops cut is done more often."""
    outer = _outer_loop(nest.body)
    if outer is None or not _is_cut(units):
        return Split(1)
    chunks = int(min(_MOST_CHUNKS, units // _LEAST_CHUNK_UNITS))
    if outer.extent >= chunks:
        return Split(chunks)
    inner = _only_loop(outer)
    return Split(outer.extent, min(inner.extent, chunks // outer.extent) if inner else 1)


def _outer_loop(body: list[Statement]) -> Loop | None:
    for statement in body:
        if isinstance(statement, Loop) and statement.parallel:
            return statement
    return None


def _only_loop(loop: Loop) -> Loop | None:
    """Return the loop in a loop if nothing else in it takes time."""
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if len(inner) != 1 or any(isinstance(s, Row) for s in statements(loop.body)):
        return None
    return inner[0] if loop.body[-1] is inner[0] else None


class _Chunked:
    """Writes the loops that are cut, and rows, which are scratch."""

    def __init__(self, nest: Nest, split: Split) -> None:
        self._split = split
        self._outer = _outer_loop(nest.body)
        self._inner = _only_loop(self._outer) if self._outer is not None and split.inner > 1 else None

    def special(self, statement: Statement) -> list[str] | None:
        """Return the lines of a statement that differs from the plain form."""
        if isinstance(statement, Row):
            return []
        if statement is self._outer and self._split.outer > 1:
            assert self._outer is not None
            at = "chunk" if self._split.inner == 1 else f"(chunk // {self._split.inner})"
            return [_sliced(self._outer, at, self._split.outer)]
        if statement is self._inner and self._inner is not None:
            return [_sliced(self._inner, f"(chunk % {self._split.inner})", self._split.inner)]
        return None


def _sliced(loop: Loop, at: str, slices: int) -> str:
    if loop.extent == slices:
        return f"for {loop.var} in range({at}, {at} + 1):"
    low, high = f"{at}*{loop.extent} // {slices}", f"({at} + 1)*{loop.extent} // {slices}"
    return f"for {loop.var} in range({low}, {high}):"
