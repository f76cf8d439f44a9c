"""Models whose dims are not all known: a program for each size that they meet, compiled when it is first met."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

import numpy as np

from frittata import sources
from frittata.egraph.errors import ModelError
from frittata.egraph.exporting import MODULES
from frittata.egraph.model import Model
from frittata.frontends.symbolic import Symbolic
from frittata.optimized import Optimized
from frittata.options import Options
from frittata.parameters import Guard
from frittata.pipeline import compile_model

Sizes = tuple[tuple[str, int], ...]


class Dynamic:
    """A model with symbolic dims. Call it as the model is called, with any sizes within the `ranges` of its dims.

    `programs` are those compiled so far, by the sizes of the dims. Each is the best for its sizes; a size that is new
    takes as long as `optimize`, or less: kernels that do not depend on it come from the cache.
    """

    def __init__(self, symbolic: Symbolic, options: Options, source: Any) -> None:
        self.ranges = symbolic.ranges
        self.programs: dict[Sizes, Optimized] = {}
        self._symbolic, self._options, self._source = symbolic, options, source
        with MODULES:
            self._guard = Guard({}, None) if options.freeze is False else Guard(symbolic.parameters, source)
        self._compiling, self._changing = threading.RLock(), threading.Lock()
        self._verified: WeakSet[Optimized] = WeakSet()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program for the sizes of the arguments; compile it if it is the first call with them.

        Under `verify` the first call of each is compared.

        Raises: ModelError if the arguments do not fit, or a size is out of range; what `optimize` raises.
        """
        fast = self.at(**self._symbolic.sizes(args, kwargs))
        if self._options.verify and fast not in self._verified:
            fast.verify(*args, **kwargs).check()
            self._verified.add(fast)
        return fast(*args, **kwargs)

    def __repr__(self) -> str:
        ranges = self.ranges.items()
        dims = (f"{name} from {least}" + ("" if most is None else f" to {most}") for name, (least, most) in ranges)
        return f"Dynamic({', '.join(dims)}: {len(self.programs)} programs)"

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            what = f"a model with symbolic dims has no {name!r}"
            if hasattr(Optimized, name):
                what += f", but a program for each size: ask one, {self._at}.{name}"
            raise AttributeError(what)

    def __copy__(self) -> Dynamic:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ModelError(
            "a model with symbolic dims cannot be pickled or copied deeply: it compiles a program for each size",
            do="write the program for some sizes with fast.at(...).save(path)",
        )

    @property
    def _at(self) -> str:
        return f"at({', '.join(f'{name}=...' for name in self.ranges)})"

    def at(self, /, **extents: int) -> Optimized:
        """Return the program for some sizes, one for each dim.

        Raises: ModelError if one is missing, unknown, no integer or out of range; StaleParametersError if the program
            has to be compiled, and a parameter was changed since `optimize`.
        """
        if extents.keys() != self.ranges.keys():
            given = ", ".join(extents) or "none"
            raise ModelError(f"sizes of {given}, where the dims are {', '.join(self.ranges)}", do=f"call {self._at}")
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
            with self._compiling:
                if key not in self.programs:  # another thread may have met the size meanwhile
                    self._guard.check()
                    bound = self._symbolic.at(dict(key))
                    compilation = compile_model(bound, (), self._options)
                    self.programs[key] = Optimized(compilation, (), self._source, changing=self._changing)
        return self.programs[key]


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
    if isinstance(source, Model) and options.freeze is not False:  # nothing guards its params
        source = replace(source, params={name: np.array(value) for name, value in source.params.items()})
    return Dynamic(sources.symbolic(source, args, dynamic_shapes, options.fallback, kwargs), options, source)
