"""Models whose dims are not all known: a program for each size that they meet, compiled when it is first met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError
from frittata.egraph.model import Model
from frittata.egraph.shapes import Sym
from frittata.frontends.calls import Call
from frittata.frontends.imported import Imported
from frittata.optimized import Optimized
from frittata.options import Options
from frittata.pipeline import compile_model

Sizes = tuple[tuple[str, int], ...]


class Dynamic:
    """A model with symbolic dims. Call it as the model is called, with any sizes within the `ranges` of its dims.

    `programs` are those compiled so far, by the sizes of the dims. Each is the best for its sizes; a size that is new
    takes as long as `optimize`, or less: kernels that do not depend on it come from the cache.
    """

    def __init__(
        self, imported: Imported, ranges: Mapping[str, tuple[int, int | None]], options: Options, source: Any
    ) -> None:
        named = {dim.name for leaf in imported.model.main.inputs for dim in leaf.shape if isinstance(dim, Sym)}
        if not named:
            raise ModelError("no dim of the model is symbolic", do="name dims in dynamic_shapes=, or leave it out")
        self.ranges = {name: ranges.get(name, (1, None)) for name in sorted(named)}
        self.programs: dict[Sizes, Optimized] = {}
        self._imported, self._options, self._source = imported, options, source

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for the sizes of the arguments; compile it if it is the first call with them.

        Raises: ModelError if the arguments do not fit, or a size is out of range; what `optimize` raises.
        """
        return self.at(**self._sizes(self._imported.flatten(args, kwargs)))(*args, **kwargs)

    def at(self, **extents: int) -> Optimized:
        """Return the program for some sizes, one for each dim.

        Raises: ModelError if one is missing, unknown, no integer or out of range.
        """
        if extents.keys() != self.ranges.keys():
            raise ModelError(f"sizes of {', '.join(extents) or 'nothing'}", do=f"give {', '.join(self.ranges)}")
        for name, extent in extents.items():
            least, most = self.ranges[name]
            if not isinstance(extent, int | np.integer):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(f"{name} is {extent!r}", do="give an integer")
            if extent < least or (most is not None and extent > most):
                upper = "" if most is None else f" to {most}"
                raise ModelError(
                    f"{name} is {extent}, and the model holds from {least}{upper}",
                    do="optimize for this size alone, or name the dim with other bounds",
                )
        key = tuple(sorted((name, int(extent)) for name, extent in extents.items()))
        if key not in self.programs:
            bound = _Bound(self._imported, self._imported.model.bind_dims(dict(key)))
            self.programs[key] = Optimized(compile_model(bound, (), self._options), (), self._source)
        return self.programs[key]

    def _sizes(self, values: Sequence[Any]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for leaf, value in zip(self._imported.model.main.inputs, values, strict=True):
            shape = tuple(getattr(value, "shape", ()))
            if len(shape) != len(leaf.shape):
                raise ModelError(f"argument {leaf.attrs[0]!r} has shape {shape}, the model takes {leaf.type}")
            for dim, extent in zip(leaf.shape, shape, strict=True):
                if isinstance(dim, Sym) and sizes.setdefault(dim.name, int(extent)) != extent:
                    raise ModelError(
                        f"{dim.name} is {sizes[dim.name]} in one argument and {extent} in {leaf.attrs[0]!r}",
                        do="give arguments whose sizes agree",
                    )
        return sizes


class _Bound:
    """What a front end returned, its model for some sizes."""

    def __init__(self, imported: Imported, model: Model) -> None:
        self.model = model
        self.parameters, self.is_flat = imported.parameters, imported.is_flat
        self.flatten, self.unflatten, self._of = imported.flatten, imported.unflatten, imported

    def call(self) -> Call:
        return replace(self._of.call(), model=self.model)


def dynamic(
    source: Any,
    args: Sequence[Any],
    dynamic_shapes: Any,
    options: Options,
    kwargs: Mapping[str, Any] | None = None,
) -> Dynamic:
    """Import a model with symbolic dims: `dynamic_shapes` is what torch.export takes, or True for dims it has already.

    Raises: ModelError if no dim is symbolic, or the source is none that can have such dims.
    """
    if isinstance(source, Model):
        return Dynamic(Call.of(source), {}, options, None)
    if dynamic_shapes is True:
        from frittata.sources import imported

        found: Any = imported(source, args, options.fallback, kwargs)
    elif hasattr(source, "named_parameters"):
        from frittata.frontends.torch_export import from_module

        found = from_module(source, args, kwargs, dynamic_shapes, fallback=options.fallback)
    else:
        raise ModelError(
            f"dynamic_shapes for a {type(source).__name__}",
            do="give a torch module; or dynamic_shapes=True and a model that has symbolic dims",
        )
    return Dynamic(found, getattr(found, "range_by_dim", {}), options, source)
