"""The symbolic integers of an exported program: dims by name, or numbers where sizes are given."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export.dynamic_shapes import (
    _check_dynamic_shapes,  # pyright: ignore[reportPrivateUsage]
    _combine_args,  # pyright: ignore[reportPrivateUsage]
)
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError
from frittata.egraph.shapes import Sym
from frittata.frontends.symbolic import Axis, Linear, Ranges

Places = Mapping[tuple[int, int], str]
"""Names of dims by (leaf of the arguments, axis)."""


def made_of_values(where: str = "") -> ModelError:
    """Return the error for a number, or a size, that depends on values."""
    return ModelError(
        "a number is made of the values of a tensor, by item(), float() or int(), or as an end of a slice",
        where,
        do="leave it a tensor: x.max() in place of x.max().item(), x[at + torch.arange(n)] in place of x[at : at + n]",
    )


@dataclass(frozen=True)
class Dims:
    """What torch's symbols are called, and their extents where they are known."""

    name_by_symbol: Mapping[Any, str] = field(default_factory=dict[Any, str])
    extent_by_symbol: Mapping[Any, Any] = field(default_factory=dict[Any, Any])

    @staticmethod
    def of(program: torch.export.ExportedProgram, name_by_place: Places) -> Dims:
        """Name the symbols of a program: as `name_by_place` does, else by input and axis where it is a size of one."""
        names: dict[Any, str] = {}
        sizes = [
            (dim.node.expr, (position, axis), f"{node.name}_{axis}")
            for position, node in enumerate(user_inputs(program))
            for axis, dim in enumerate(_shape(node))
            if isinstance(dim, torch.SymInt)
        ]
        for expression, place, _ in sizes:
            if place in name_by_place:
                names.update(dict.fromkeys(expression.free_symbols, name_by_place[place]))
        for expression, _, name in sizes:
            if expression.is_Symbol and expression not in names and name not in names.values():
                names[expression] = name
        return Dims(names)

    def at(self, sizes: Mapping[str, int], program: torch.export.ExportedProgram) -> Dims:
        """Return the dims of a program for sizes by name."""
        symbols = {
            symbol
            for node in user_inputs(program)
            for dim in _shape(node)
            if isinstance(dim, torch.SymInt)
            for symbol in dim.node.expr.free_symbols
        }
        extents = {symbol: sympy.Integer(sizes[self.name(symbol)]) for symbol in symbols if self.name(symbol) in sizes}
        return Dims(self.name_by_symbol, extents)

    def name(self, symbol: Any) -> str:
        """Return what a symbol is called."""
        return self.name_by_symbol.get(symbol, str(symbol))

    def ranges(self, program: torch.export.ExportedProgram, least: int = 1) -> Ranges:
        """Return the extents for which a program holds, `least` or more."""
        ranges: dict[str, tuple[int, int | None]] = {}
        for symbol, found in program.range_constraints.items():
            lower, upper = (int(end) if end.is_Integer else None for end in (found.lower, found.upper))  # pyright: ignore
            ranges[self.name(symbol)] = (max(least, lower or 0), upper)
        return ranges

    def read(self, value: Any) -> Any:
        """Return a dim as a number or a symbol, anything else as it is.

        Raises: ModelError for what is computed from dims that have no number.
        """
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return value
        expression: Any = value.node.expr.xreplace(self.extent_by_symbol)
        if free_unbacked_symbols(expression):
            raise made_of_values()
        if isinstance(value, torch.SymInt) and expression.is_Symbol:
            return Sym(self.name(expression))
        if expression.free_symbols:
            raise ModelError(
                f"{expression} is computed from symbolic dims",
                do="optimize(..., dynamic_shapes=...) imports such models for each size; or make these dims static",
            )
        python = int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool
        return python(expression)

    def asks_values(self, node: torch.fx.Node) -> bool:
        """Whether a node takes a number that is made of the values of a tensor, and not known."""
        taken = [used.meta.get("val") for used in node.all_input_nodes]
        of_values = (free_unbacked_symbols(v) for v in taken if isinstance(v, torch.SymInt | torch.Tensor))
        return any(symbols - self.extent_by_symbol.keys() for symbols in of_values)

    def axes(self, node: torch.fx.Node) -> tuple[Axis, ...]:
        """Return what the axes of an input tell."""
        return tuple(map(self._axis, _shape(node)))

    def _axis(self, dim: Any) -> Axis:
        if not isinstance(dim, torch.SymInt):
            return int(dim)
        expression: Any = dim.node.expr
        if len(expression.free_symbols) != 1:
            return int(expression) if expression.is_Integer else None
        (symbol,) = expression.free_symbols
        factor, offset = expression.coeff(symbol), expression.subs(symbol, 0)
        if not (factor.is_Integer and offset.is_Integer and factor > 0 and expression == factor * symbol + offset):
            return None
        return Linear(self.name(symbol), int(factor), int(offset))

    def example(self, program: torch.export.ExportedProgram) -> dict[str, int]:
        """Return the sizes with which a program was exported, by the names of dims."""
        sizes: dict[str, int] = {}
        for node in user_inputs(program):
            for axis, dim in zip(self.axes(node), _shape(node), strict=True):
                if isinstance(axis, Linear) and (size := axis.size_for(dim.node.hint)) is not None:
                    sizes[axis.dim] = size
        return sizes


def user_inputs(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """Return what a user gives a program, leaf after leaf."""
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    pairs = zip(nodes, program.graph_signature.input_specs, strict=True)
    return [node for node, spec in pairs if spec.kind is InputKind.USER_INPUT]


def _shape(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return the shape of a tensor, () of what is none."""
    return tuple(getattr(node.meta.get("val"), "shape", ()))


def named(dynamic_shapes: Any) -> Any:
    """Return dynamic_shapes with a `Dim` in the place of each name, one for equal names; a name alone stays.

    Raises: ModelError for a name that torch does not take.
    """
    dim_by_name: dict[str, Any] = {}

    def dim(part: Any) -> Any:
        if isinstance(part, str) and part not in dim_by_name:
            try:
                dim_by_name[part] = torch.export.Dim(part)
            except AssertionError as error:
                raise ModelError(f"dynamic_shapes has a dim {part!r}", do="give a word as its name") from error
        return dim_by_name[part] if isinstance(part, str) else part

    return dynamic_shapes if isinstance(dynamic_shapes, str) else pytree.tree_map(dim, dynamic_shapes)


def check(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> None:
    """Hold dynamic_shapes to the arguments of a module.

    Raises: ModelError that gives torch's reason.
    """
    do = "give an entry for each argument: ({axis: name or torch.export.Dim(...)}, ...), or a dict of them by name"
    if not isinstance(dynamic_shapes, dict | list | tuple | None):
        raise ModelError(f"dynamic_shapes={dynamic_shapes!r:.80}", do=do)
    try:
        _check_dynamic_shapes(_combine_args(module, args, dict(kwargs)), dynamic_shapes)
    except (RuntimeError, ValueError, AssertionError) as error:  # UserError among them
        reason = str(error).partition(" For more information")[0].partition("\n")[0]
        raise ModelError(f"dynamic_shapes does not fit the arguments: {reason}", do=do) from error
    dims_by_place(module, args, kwargs, dynamic_shapes)


def dims_by_place(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> dict[tuple[int, int], Any]:
    """Return the `Dim`s of dynamic_shapes by (position among the leaves of the arguments, axis).

    Raises: ModelError for an axis that an argument does not have.
    """
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
    position_by_id = {id(leaf): position for position, leaf in enumerate(leaves)}
    found: dict[tuple[int, int], Any] = {}

    def visit(value: Any, dims: Any) -> None:
        if isinstance(value, torch.Tensor):
            for axis, dim in dims.items() if isinstance(dims, dict) else enumerate(dims or ()):
                if not -value.ndim <= axis < value.ndim:
                    what = f"dynamic_shapes has axis {axis} for an argument of shape {tuple(value.shape)}"
                    raise ModelError(what, do="give axes that it has")
                if isinstance(dim, torch.export.Dim):
                    found[position_by_id[id(value)], axis % value.ndim] = dim
        elif isinstance(value, dict) and isinstance(dims, dict):
            for key in value.keys() & dims.keys():
                visit(value[key], dims[key])
        elif isinstance(value, list | tuple) and isinstance(dims, list | tuple):
            for inner, part in zip(value, dims, strict=False):
                visit(inner, part)

    given = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    visit(given if isinstance(dynamic_shapes, dict) else list(given.values()), dynamic_shapes)
    return found


def root(dim: Any) -> Any:
    """Return the `Dim` from which one is derived: n of 2*n."""
    return getattr(dim, "root", dim)
