"""Transforms written in Python, and pipelines: which transforms run, and which families of rules run together.

    Pipeline("mine", [relu_to_gelu, "default"])

Transforms may change what a model means, so they run before saturation, on terms; what keeps the meaning is a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from typing import Any, overload

from frittata.egraph.errors import FrittataError, ModelError
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.phases import LEVELS, Phase
from frittata.egraph.terms import Term


@dataclass(frozen=True)
class Info:
    """What is known of a transform without running it.

    It runs at `opt_level` and above; `requires` names transforms that have to run before it.
    """

    name: str
    opt_level: int = 0
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Transform:
    """A pass over models, made by `transform`; call it with a model and get another."""

    info: Info
    function: Callable[..., Any]
    is_of_models: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def given(self, **arguments: Any) -> Transform:
        """Return the transform with further arguments of its function.

        Raises: FrittataError if it has no such parameter.
        """
        try:
            signature(self.function).bind_partial(None, **self.arguments, **arguments)
        except TypeError as error:
            raise FrittataError(f"transform {self.info.name}: {error}", do="give what its function takes") from error
        return replace(self, arguments={**self.arguments, **arguments})

    def __call__(self, model: Model) -> Model:
        """Run it.

        Raises: ModelError if it raises, or returns something else than it should; if it is called with no model.
        """
        if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"transform {self.info.name} of a {type(model).__name__}", do="give a Model")
        if self.is_of_models:
            made = self._called(model)
            if not isinstance(made, Model):
                raise ModelError(f"transform {self.info.name} returned a {type(made).__name__}", do="return a Model")
            return made
        return model.rewritten(self._replaced)

    def _called(self, given: Any) -> Any:
        try:
            return self.function(given, **self.arguments)
        except FrittataError as error:
            error.where = f"transform {self.info.name}" + (f", {error.where}" if error.where else "")
            raise
        except Exception as error:  # the caller's code
            what = f"transform {self.info.name} raised {type(error).__name__}: {error}"
            raise ModelError(what, do="what raised it is the cause of this error, in the traceback") from error

    def _replaced(self, term: Term, args: tuple[Term, ...]) -> Term:
        same = term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)
        made = self._called(same)
        made = getattr(made, "term", made)  # of a frittata.Tensor
        if made is None:
            return same
        if not isinstance(made, Term) or made.type != same.type:
            given = made.type if isinstance(made, Term) else type(made).__name__
            raise ModelError(
                f"transform {self.info.name} replaces {same.op} of type {same.type} by {given}",
                do="return a term of the same type, or None to keep it",
            )
        return made


@overload
def transform(function: Callable[..., Any], /) -> Transform: ...


@overload
def transform(
    *, name: str = "", opt_level: int = 0, requires: Sequence[str] = (), of: str = "terms"
) -> Callable[[Callable[..., Any]], Transform]: ...


def transform(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    opt_level: int = 0,
    requires: Sequence[str] = (),
    of: str = "terms",
) -> Any:
    """Make a transform of a function from a term to what replaces it, None to keep it; or `of="models"`.

    Terms are offered bottom-up, once each. Further parameters of the function are given by `given`.

    >>> @transform
    ... def without_relu(term):
    ...     return term.args[0] if term.op == "relu" else None
    >>> without_relu.info.name
    'without_relu'

    Raises: FrittataError for another `of`, another level, or what is no function.
    """
    if opt_level not in LEVELS:
        raise FrittataError(f"a transform of opt_level {opt_level!r}", do=f"give one of {LEVELS}")
    if of not in ("terms", "models"):
        raise FrittataError(f"a transform of {of!r}", do='write of="terms" or of="models"')

    def made(one: Callable[..., Any]) -> Transform:
        if not callable(one):
            raise FrittataError(f"a transform of a {type(one).__name__}", do="give a function")
        own = name or getattr(one, "__name__", type(one).__name__)
        return Transform(Info(own, opt_level, tuple(requires)), one, of == "models")

    return made if function is None else made(function)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Transforms, then phases of rules; steps are transforms, pipelines or their names, and tuples of families.

    Each tuple is a phase: families that run together until nothing changes. Without one all families do. `limits` are
    those of each phase: round_limit, node_limit, time_limit_s.

    Raises: FrittataError for steps and limits that are none.
    """

    name: str
    steps: Sequence[Any]
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not isinstance(self.steps, list | tuple):
            raise FrittataError(f"pipeline {self.name!r} has the steps {self.steps!r}", do="give a list of steps")
        limits: Any = self.limits
        if not isinstance(limits, Mapping) or not all(_is_limit(*pair) for pair in limits.items()):  # pyright: ignore
            do = f"limits are {', '.join(_LIMITS)}: numbers greater than 0"
            raise FrittataError(f"pipeline {self.name!r} has the limits {limits}", do=do)
        for step in self.steps:
            is_phase = isinstance(step, tuple) and all(isinstance(family, str) for family in step)  # pyright: ignore
            if not (is_phase or isinstance(step, Transform | Pipeline | str)):
                raise FrittataError(
                    f"pipeline {self.name!r} has a step of type {type(step).__name__}",
                    do="give transforms, pipelines, names of pipelines, and tuples of names of families",
                )

    def transforms(self) -> Iterator[Transform]:
        """Visit the transforms, in order."""
        for step in self._flat():
            if isinstance(step, Transform):
                yield step

    def phases(self, families: Iterable[str], own: Iterable[str] = ()) -> tuple[Phase, ...]:
        """Return the phases, of those families that there are; one's `own` take part in each."""
        present, mine = list(families), set(own)
        wanted = [set(step) for step in self._flat() if isinstance(step, tuple)] or [set(present)]
        names = [str(i) for i in range(len(wanted))] if len(wanted) > 1 else ["all"]
        return tuple(
            Phase(name, tuple(f for f in present if f in group | mine), **self.limits)
            for name, group in zip(names, wanted, strict=True)
        )

    def families(self) -> set[str] | None:
        """Return the families that it names, None for all."""
        named = [set(step) for step in self._flat() if isinstance(step, tuple)]
        return set().union(*named) if named else None

    def _flat(self, around: tuple[Pipeline, ...] = ()) -> Iterator[Transform | tuple[str, ...]]:
        """Visit transforms and phases, those of the pipelines among the steps too.

        Raises: FrittataError if the pipeline is one of those that it is in.
        """
        if self in around:
            raise FrittataError(f"pipeline {self.name!r} contains itself", do="leave the step out")
        for step in self.steps:
            match step:
                case Pipeline():
                    yield from step._flat((*around, self))
                case str():
                    yield from get_pipeline(step)._flat((*around, self))
                case _:
                    yield step


def _is_limit(name: Any, limit: Any) -> bool:
    return name in _LIMITS and isinstance(limit, int | float) and limit > 0


_LIMITS = tuple(limit.name for limit in fields(Phase) if limit.name.endswith(("_limit", "_limit_s")))
_LONGER = {"node_limit": 1_000_000, "time_limit_s": 120.0}

_PIPELINE_BY_NAME: dict[str, Pipeline] = {
    "default": Pipeline("default", ()),
    "zero": Pipeline("zero", (("constants", "fusion", "legalize", "views"),)),
    "max": Pipeline("max", (), _LONGER),
}


def get_pipeline(name: str) -> Pipeline:
    """Return a pipeline: "default", "zero" (legalize, fold and fuse, no algebra), "max" (longer limits), or one's own.

    Raises: FrittataError if there is none of that name.
    """
    if name not in _PIPELINE_BY_NAME:
        raise FrittataError(f"no pipeline {name!r}", do=f"use one of {', '.join(_PIPELINE_BY_NAME)}")
    return _PIPELINE_BY_NAME[name]


def register_pipeline(pipeline: Pipeline) -> Pipeline:
    """Let `get_pipeline` and `optimize(..., pipeline=name)` find a pipeline; a later one of the name takes its place.

    Raises: FrittataError for the names of those that come with the package.
    """
    if pipeline.name in _BUILT_IN:
        raise FrittataError(f"pipeline {pipeline.name!r} comes with the package", do="choose another name")
    _PIPELINE_BY_NAME[pipeline.name] = pipeline
    return pipeline


_BUILT_IN = frozenset(_PIPELINE_BY_NAME)
