"""What a caller may choose: one field for each option, with its unit and default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from frittata.egraph.errors import FrittataError
from frittata.egraph.machine import Machine
from frittata.egraph.phases import LEVELS
from frittata.instruments import Instrument
from frittata.passes import Pipeline, get_pipeline

Numerics = Literal["exact", "reassoc", "loose", "approx"]
Form = Literal["fast", "plain"]
Fallback = Literal["extern", "error"]
Tune = Literal["measure"]

_CHOICES: dict[str, tuple[Any, ...]] = {
    "numerics": get_args(Numerics),
    "form": get_args(Form),
    "fallback": get_args(Fallback),
    "tune": (None, *get_args(Tune)),
    "freeze": (None, True, False),
    "opt_level": LEVELS,
}
_KINDS: dict[str, tuple[Any, str]] = {
    "library": (bool, "True or False"),
    "verify": (bool, "True or False"),
    "time_limit_s": (int | float, "seconds"),
    "machine": (Machine | None, "a frittata.egraph.machine.Machine, such as REFERENCE there; None measures this one"),
    "cache": (str | Path | None, "the path of a folder"),
    "pipeline": (Pipeline, "a Pipeline(name, steps), or the name of one"),
}


@dataclass(frozen=True)
class Options:
    """Options of `optimize`.

    `rules`: files of rules that join the built-in ones. `numerics`: the loosest level of rules admitted. `disable`:
    names of families or of single rules (`family/name`). `library`: whether calls into a library may be chosen.
    `target`: what to compile for, "cpu" or "cuda". `form`: kernels as vector code, or the plain `@njit(parallel=True)`
    form. `fallback`: whether operators without a definition become calls into torch or numpy, or an error with them.
    `freeze`: None folds parameters and guards them against later changes, True folds without the guard, False folds
    nothing and reads them at every call. `tune`: "measure" times the chosen kernels and chooses again, until no others
    are predicted to be faster, and remembers what they took. `verify`: whether the results for the example arguments
    are compared with the model's in float64, and others are an error. `time_limit_s` bounds the search for the optimum,
    in seconds of processor time, and as much longer as its candidates took more than six to find. `machine`: a profile;
    None measures this machine once and remembers it, or takes the target's. `cache`: a folder for chosen programs and
    compiled kernels; None is the user's cache folder. `pipeline`: transforms, and which families of rules run together.
    Families and transforms of a greater level than `opt_level` are left out, unless they are `required`: level 0 makes
    every operator a kernel of its own, 1 fuses and simplifies, 2 is all. `instruments` are told of each stage.
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
    cache: Path | None = None
    pipeline: Pipeline = field(default_factory=lambda: get_pipeline("default"))
    opt_level: int = 2
    required: tuple[str, ...] = ()
    instruments: tuple[Instrument, ...] = ()

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                what = f"no {name} {getattr(self, name)!r}"
                raise FrittataError(what, do=f"give one of {', '.join(map(repr, choices))}")
        for name, (kind, wanted) in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise _refused(name, getattr(self, name), wanted)
        if isinstance(self.time_limit_s, bool) or not self.time_limit_s >= 0:
            raise _refused("time_limit_s", self.time_limit_s, "seconds, at least 0")
        if self.tune and self.form == "plain":
            raise FrittataError("the plain form is not timed kernel by kernel", do='tune with form="fast"')


def _refused(name: str, value: Any, wanted: str) -> FrittataError:
    return FrittataError(f"{name}={value!r}", do=f"give {wanted}")


def made(given: dict[str, Any]) -> Options:
    """Return options from what a caller gave: a name for a list of one, the name of a pipeline for it, paths as text.

    Raises: FrittataError if there is no such option.
    """
    check_names(given)
    out = dict(given)
    for name in ("rules", "disable", "required"):
        found = out.get(name, ())
        several = (found,) if isinstance(found, str | Path) else found
        if not isinstance(several, list | tuple | set) or not all(isinstance(one, str | Path) for one in several):
            raise _refused(name, found, "a name, or a list of names")
        out[name] = tuple(map(Path, several)) if name == "rules" else tuple(several)
    if isinstance(out.get("pipeline"), str):
        out["pipeline"] = get_pipeline(out["pipeline"])
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
