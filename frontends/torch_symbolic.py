"""Torch models with dims that are not known: exported once, imported for each size."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError
from frittata.frontends import imported, torch_dims
from frittata.frontends.calls import axis_of_parts
from frittata.frontends.symbolic import Linear, Symbolic
from frittata.frontends.torch_dims import Dims, Places, dims_by_place, root, user_inputs
from frittata.frontends.torch_export import check_call, exported, from_exported_program, from_module
from frittata.frontends.torch_imported import Imported


def of_module(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    fallback: str,
) -> Symbolic:
    """Export a module with the dims that `dynamic_shapes` names; for each size anew if it can be exported so only.

    Raises: as `from_module`.
    """
    check_call(module, args, kwargs)
    dynamic_shapes = torch_dims.named(dynamic_shapes)
    torch_dims.check(module, args, kwargs or {}, dynamic_shapes)
    try:
        program, names = exported(module, args, kwargs, dynamic_shapes)
    except ModelError:
        found = _each_size(module, args, kwargs or {}, dynamic_shapes, fallback)
        if found is None:
            raise
        return found
    anew = _Exports(module, args, kwargs or {}, fallback)
    found = _Program(program, names, fallback, inspect.signature(module.forward), anew).symbolic()
    dims = map(root, dims_by_place(module, args, kwargs or {}, dynamic_shapes).values())
    least = {dim.__name__: dim.min for dim in dims}
    return replace(found, ranges={name: _opened(bounds, least.get(name)) for name, bounds in found.ranges.items()})


def of_program(program: torch.export.ExportedProgram, fallback: str) -> Symbolic:
    """Return an exported program with its dims; what cannot be imported is refused at the sizes of the export.

    Raises: as `from_exported_program`.
    """
    return _Program(program, {}, fallback).symbolic()


def at_examples(
    program: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any], fallback: str
) -> imported.Imported:
    """Import an exported program; example arguments, where there are any, say how large its dims are.

    Raises: as `from_exported_program`; ModelError if the arguments do not fit.
    """
    dims = [dim for node in user_inputs(program) for dim in getattr(node.meta["val"], "shape", ())]
    if not (args or kwargs) or not any(isinstance(dim, torch.SymInt) for dim in dims):
        return from_exported_program(program, fallback=fallback)
    symbolic = of_program(program, fallback=fallback)
    return symbolic.at(symbolic.sizes(args, kwargs))


class _Program:
    def __init__(
        self,
        program: torch.export.ExportedProgram,
        names: Places,
        fallback: str,
        signature: inspect.Signature | None = None,
        anew: _Exports | None = None,
    ) -> None:
        self._program, self._names, self._fallback, self._signature = program, names, fallback, signature
        self._anew = anew

    def symbolic(self) -> Symbolic:
        dims = Dims.of(self._program, self._names)
        inputs = tuple(
            (node.name, (*dims.axes(node), *axis_of_parts(node.meta["val"]))) for node in self._tensors()
        )
        first = self._at(dims.example(self._program))
        ranges = dims.ranges(self._program, least=1 if self._anew is None else 0)
        return Symbolic(inputs, ranges, first.flatten, self._at, first.parameters)

    def _tensors(self) -> list[torch.fx.Node]:
        return [node for node in user_inputs(self._program) if _is_tensor(node.meta["val"])]

    def _at(self, sizes: Mapping[str, int]) -> Imported:
        read = Dims.of(self._program, self._names).at(sizes, self._program).read
        shapes_ = [node.meta["val"].shape for node in self._tensors()]
        left_open = [read(dim) for shape in shapes_ for dim in shape if isinstance(dim, torch.SymInt)]
        known = [tuple(map(read, shape)) for shape in shapes_]
        if self._anew is not None and any(size < _LEAST_OPEN for size in (*sizes.values(), *left_open)):
            return self._anew.at(known)
        try:
            found = from_exported_program(self._program, self._names, None, self._fallback, sizes)
        except ModelError:  # its shapes do not hold for all sizes: x[:n] is said to have n lines, however long x is
            if self._anew is None:
                raise
            return self._anew.at(known)
        self._check_guards(found, sizes)
        return replace(found, signature=self._signature)

    def _check_guards(self, found: Imported, sizes: Mapping[str, int]) -> None:
        """Hold sizes to what the export took for granted: which way the module's branches went, say."""
        if self._guards is None:
            return
        extents = {leaf.attrs[0]: shapes.concrete(leaf.shape) for leaf in found.model.main.inputs}

        def sized(name: str, value: Any) -> Any:
            return torch.empty(extents[name][: value.dim()], device="meta") if _is_tensor(value) else value

        leaves = [sized(node.name, node.meta["val"]) for node in user_inputs(self._program)]
        try:
            self._guards(*leaves)
        except (AssertionError, RuntimeError) as error:
            given = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise ModelError(
                f"the export does not hold for {given}: {error}",
                do="export with examples of these sizes, or write the module without branches on sizes",
            ) from error

    @cached_property
    def _guards(self) -> Any:
        """What the export checks before a run, None if there is nothing."""
        return getattr(self._program.module(), "_guards_fn", None)


_LEAST_OPEN = 2
"""An export takes for granted, and has no guard for it, that extents which it leaves open are at least so large."""


def _opened(bounds: tuple[int, int | None], least: int | None) -> tuple[int, int | None]:
    """Return bounds that go down to what was asked for, where torch may have put its own."""
    lower, upper = bounds
    return (least if lower == _LEAST_OPEN and least is not None and least < lower else lower, upper)


@dataclass(frozen=True)
class _Exports:
    """A module that is exported for one shape of each tensor among its arguments."""

    module: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    fallback: str

    def at(self, shapes_: Iterable[Sequence[int]]) -> Imported:
        leaves, spec = pytree.tree_flatten((tuple(self.args), dict(self.kwargs)))
        each = iter(shapes_)
        resized = [leaf.new_zeros(next(each)) if _is_tensor(leaf) else leaf for leaf in leaves]
        given, named = pytree.tree_unflatten(resized, spec)
        return from_module(self.module, given, named, fallback=self.fallback)


def _each_size(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any, fallback: str
) -> Symbolic | None:
    """Return a module that is exported for each size, as it is where a size is a number for it: in math.sqrt(n), say.

    None if its dims cannot be told from the example arguments, or do not fit them, or it cannot be exported even with
    their sizes.
    """
    try:
        dims = dims_by_place(module, args, kwargs, dynamic_shapes)
        first = from_module(module, args, kwargs, fallback=fallback)
    except (ModelError, TypeError):
        return None
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
    if any(_linear(dim).size_for(leaves[i].shape[axis]) is None for (i, axis), dim in dims.items()):
        return None
    axes = [
        tuple(_linear(dims[i, axis]) if (i, axis) in dims else extent for axis, extent in enumerate(leaf.shape))
        for i, leaf in enumerate(leaves)
        if _is_tensor(leaf)
    ]
    given = [(*own, *axis_of_parts(leaf)) for own, leaf in zip(axes, filter(_is_tensor, leaves), strict=True)]
    names = (leaf.attrs[0] for leaf, _ in zip(first.model.main.inputs, given, strict=False))  # without the module's own
    roots = map(root, dims.values())
    ranges = {dim.__name__: (dim.min, dim.max if isinstance(dim.max, int) else None) for dim in roots}

    anew = _Exports(module, args, kwargs, fallback)

    def at(sizes: Mapping[str, int]) -> Imported:
        return anew.at([axis.extent_for(sizes) if isinstance(axis, Linear) else axis for axis in own] for own in axes)

    return Symbolic(tuple(zip(names, given, strict=True)), ranges, first.flatten, at, first.parameters)


def _linear(dim: Any) -> Linear:
    """Return the extent that a dim of torch stands for, or one derived from it: 2*n + 1."""
    if root(dim) is dim:
        return Linear(dim.__name__)
    offset = int(dim.fn(0))
    return Linear(root(dim).__name__, int(dim.fn(1)) - offset, offset)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
