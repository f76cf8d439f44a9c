"""What a caller may choose: one field for each option, with its unit and default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from frittata.egraph.errors import FrittataError
from frittata.egraph.machine import Machine
from frittata.instruments import Instrument
from frittata.passes import Pipeline, get_pipeline

Numerics = Literal["exact", "reassoc", "loose", "approx"]
Form = Literal["fast", "plain"]
Fallback = Literal["extern", "error"]
Tune = Literal["measure"]

_NUMERICS = ("exact", "reassoc", "loose", "approx")
_FORMS = ("fast", "plain")
_FALLBACKS = ("extern", "error")


@dataclass(frozen=True)
class Options:
    """Options of `optimize`.

    `rules`: files of rules that join the built-in ones. `numerics`: the loosest level of rules admitted. `disable`:
    names of families or of single rules (`family/name`). `library`: whether calls into a library may be chosen.
    `target`: what to compile for, "cpu" or "cuda". `form`: kernels as vector code, or the plain `@njit(parallel=True)`
    form. `fallback`: whether operators without a definition become calls into torch, or an error that lists them.
    `freeze`: None folds parameters and guards them against later changes, True folds without the guard, False folds
    nothing and reads them at every call. `tune`: "measure" times the chosen kernels and chooses again, until no others
    are predicted to be faster, and remembers what they took. `verify`: whether the results for the example arguments
    are compared with the model's in float64, and others are an error. `time_limit_s` bounds the search for the optimum,
    in seconds, and as much longer as its candidates took more than six to find. `machine`: a profile; None measures
    this machine once and remembers it, or takes the target's. `cache`: a folder for chosen programs and compiled
    kernels; None is the user's cache folder. `pipeline`: transforms, and which families of rules run together. Families
    and transforms of a greater level than `opt_level` are left out, unless they are `required`: level 0 makes every
    operator a kernel of its own, 1 fuses and simplifies, 2 is all. `instruments` are told of each stage.
    """

    rules: tuple[Path, ...] = ()
    numerics: Numerics = "reassoc"
    disable: tuple[str, ...] = ()
    library: bool = True
    target: str = "cpu"
    form: Form = "fast"
    fallback: Fallback = "extern"
    freeze: bool | None = None
    tune: Tune | None = None
    verify: bool = False
    time_limit_s: float = 3.0
    machine: Machine | None = None
    cache: Path | None = field(default=None)
    pipeline: Pipeline = field(default_factory=lambda: get_pipeline("default"))
    opt_level: int = 2
    required: tuple[str, ...] = ()
    instruments: tuple[Instrument, ...] = ()

    def __post_init__(self) -> None:
        if self.numerics not in _NUMERICS:
            raise FrittataError(f"no numerics level {self.numerics!r}", do=f"use one of {', '.join(_NUMERICS)}")
        if self.form not in _FORMS:
            raise FrittataError(f"no form {self.form!r}", do=f"use one of {', '.join(_FORMS)}")
        if self.tune not in (None, "measure"):
            raise FrittataError(f"no tune {self.tune!r}", do='use "measure", or leave it out')
        if self.tune and self.form == "plain":
            raise FrittataError("the plain form is not timed kernel by kernel", do='tune with form="fast"')
        if self.fallback not in _FALLBACKS:
            raise FrittataError(f"no fallback {self.fallback!r}", do=f"use one of {', '.join(_FALLBACKS)}")


def made(given: dict[str, Any]) -> Options:
    """Return options from what a caller gave: a name for a list of one, the name of a pipeline for it, paths as text.

    Raises: FrittataError if there is no such option.
    """
    check_names(given)
    out = dict(given)
    for name in ("rules", "disable", "required"):
        if name in out:
            out[name] = (out[name],) if isinstance(out[name], str | Path) else tuple(out[name])
    if "rules" in out:
        out["rules"] = tuple(map(Path, out["rules"]))
    if isinstance(out.get("pipeline"), str):
        out["pipeline"] = get_pipeline(out["pipeline"])
    if not isinstance(out.get("pipeline", get_pipeline("default")), Pipeline):
        raise FrittataError(f"pipeline={out['pipeline']!r}", do="give a Pipeline(name, steps), or the name of one")
    if not isinstance(out.get("opt_level", 0), int):
        raise FrittataError(f"opt_level={out['opt_level']!r}", do="give 0, 1 or 2")
    if "instruments" in out:
        found = out["instruments"]
        out["instruments"] = (found,) if isinstance(found, Instrument) else tuple(found)
        if not all(isinstance(one, Instrument) for one in out["instruments"]):
            raise FrittataError(f"instruments={found!r}", do="give instances of Instrument")
    return Options(**out)


def check_names(given: Iterable[str]) -> None:
    """Raise FrittataError if there is no option of a name."""
    known = Options.__dataclass_fields__
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise FrittataError(f"no option {', '.join(unknown)}", do=f"options are {', '.join(known)}")
