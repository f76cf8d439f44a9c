"""Sources whose dims are not all known: a front end imports them anew for the sizes of each call.

What depends on a size, a view by twice a dim, a table of as many places, is then as plain as where all is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from frittata.egraph.errors import ModelError
from frittata.egraph.model import Model
from frittata.egraph.shapes import Sym
from frittata.frontends.calls import Call
from frittata.frontends.imported import Imported

Ranges = Mapping[str, tuple[int, int | None]]
"""The least and the greatest extent of each dim, None where there is no greatest."""


@dataclass(frozen=True)
class Linear:
    """The extent of an axis: a dim times `factor`, and `offset`."""

    dim: str
    factor: int = 1
    offset: int = 0

    def size_for(self, extent: int) -> int | None:
        """Return the dim where the axis has an extent; None if there is none."""
        size, rest = divmod(extent - self.offset, self.factor)
        return None if rest else size

    def extent_for(self, sizes: Mapping[str, int]) -> int:
        """Return the extent for a size of the dim."""
        return self.factor * sizes[self.dim] + self.offset

    def __str__(self) -> str:
        times = "" if self.factor == 1 else f"{self.factor}*"
        return f"{times}{self.dim}{self.offset:+}" if self.offset else f"{times}{self.dim}"


Axis = int | Linear | None
"""An extent that is known, that tells a dim, or that follows from dims in another way."""


@dataclass(eq=False)
class Symbolic:
    """A source with dims: the axes of its inputs by name in order, what a call has of tensors, an import for sizes.

    `at` raises ModelError for sizes for which the source was not made. `parameters` are as those of an `Imported`.
    """

    inputs: tuple[tuple[str, tuple[Axis, ...]], ...]
    ranges: Ranges
    flatten: Callable[[Sequence[Any], Mapping[str, Any] | None], list[Any]]
    at: Callable[[Mapping[str, int]], Imported]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        told = {axis.dim for _, axes in self.inputs for axis in axes if isinstance(axis, Linear)}
        if not told:
            raise ModelError("no dim of the model is symbolic", do="name dims in dynamic_shapes=, or leave it out")
        self.ranges = {name: self.ranges.get(name, (1, None)) for name in sorted(told)}

    def sizes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
        """Return the dims of a call.

        Raises: ModelError if the arguments do not fit each other or the model.
        """
        sizes: dict[str, int] = {}
        for (name, axes), value in zip(self.inputs, self.flatten(args, kwargs), strict=True):
            shape = tuple(getattr(value, "shape", ()))
            wanted = ", ".join("?" if axis is None else str(axis) for axis in axes)
            if len(shape) != len(axes):
                raise ModelError(f"argument {name!r} has shape {shape}, the model takes ({wanted})")
            for axis, extent in zip(axes, shape, strict=True):
                if axis is None:
                    continue
                size = axis.size_for(int(extent)) if isinstance(axis, Linear) else extent if axis == extent else None
                if size is None:
                    raise ModelError(f"argument {name!r} has shape {shape}, the model takes ({wanted})")
                if isinstance(axis, Linear) and sizes.setdefault(axis.dim, size) != size:
                    raise ModelError(
                        f"{axis.dim} is {sizes[axis.dim]} in one argument and {size} in {name!r}",
                        do="give arguments whose sizes agree",
                    )
        return sizes


def of_imported(imported: Imported) -> Symbolic:
    """Return a model whose terms have symbolic dims."""
    leaves = imported.model.main.inputs
    arguments = leaves[: len(leaves) - len(imported.state.tensors)]
    inputs = tuple((leaf.attrs[0], tuple(map(_axis, leaf.shape))) for leaf in arguments)
    ranges: Ranges = getattr(imported, "range_by_dim", {})

    def at(sizes: Mapping[str, int]) -> Imported:
        return _Bound(imported, imported.model.bind_dims(sizes))

    return Symbolic(inputs, ranges, imported.flatten, at, imported.parameters)


def _axis(dim: int | Sym) -> Axis:
    return Linear(dim.name) if isinstance(dim, Sym) else dim


class _Bound:
    """What a front end returned, its model for some sizes."""

    def __init__(self, imported: Imported, model: Model) -> None:
        self.model = model
        self.parameters, self.is_flat = imported.parameters, imported.is_flat
        self.state, self.empties = imported.state, imported.empties
        self.flatten, self.unflatten, self._of = imported.flatten, imported.unflatten, imported

    def call(self) -> Call:
        return replace(self._of.call(), model=self.model)
