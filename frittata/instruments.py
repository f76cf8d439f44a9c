"""Watching a compilation: instruments are told before and after each stage, each transform, each round of rules."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from frittata.egraph.errors import FrittataError
from frittata.egraph.model import Model
from frittata.egraph.program import Program

log = logging.getLogger("frittata")


@dataclass
class Stage:
    """A stage as it goes on. What it made is known after it: a model, a program, or a number of e-nodes.

    `level` is the opt level of a transform. `matches` counts those of rules, in a round or in all.
    """

    name: str
    level: int = 0
    seconds: float = 0.0
    size: int | None = None
    matches: int | None = None
    made: Any = None

    def ended(self, made: Any, size: int | None = None, matches: int | None = None) -> None:
        """Note what the stage made."""
        self.made, self.size, self.matches = made, size, matches


class Instrument:
    """The base of instruments: override one method, or both."""

    def before(self, stage: Stage) -> None:
        """Be told that a stage begins."""

    def after(self, stage: Stage) -> None:
        """Be told that it has ended, with what it made; not if it raised."""


class Snapshot(Instrument):
    """Writes the model or program after each stage that makes one; `texts` keeps them by the name of the stage."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.texts: dict[str, str] = {}
        self._file = file

    def after(self, stage: Stage) -> None:
        """Write what the stage made."""
        if stage.made is not None:
            self.texts[stage.name] = str(stage.made)
            print(f"# after {stage.name}, {1e3 * stage.seconds:.1f} ms\n{stage.made}", file=self._file or sys.stdout)


class Timing(Instrument):
    """Keeps every stage, in order; as text a table."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def after(self, stage: Stage) -> None:
        """Keep the stage."""
        self.stages.append(stage)

    def __str__(self) -> str:
        from frittata.tables import seconds, table

        def number(value: int | None) -> str:
            return "-" if value is None else str(value)

        rows = [(s.name, str(s.level), seconds(s.seconds), number(s.size), number(s.matches)) for s in self.stages]
        return "\n".join(table(("stage", "level", "time", "size", "matches"), rows, right=(1, 2, 3, 4)))


@dataclass(frozen=True)
class ChosenProgram:
    """A program, which as text is the model that says what its kernels compute."""

    model: Model
    program: Program

    def __str__(self) -> str:
        return str(self.program.as_model(self.model))


@contextmanager
def _named(instrument: Instrument, stage: Stage) -> Generator[None]:
    try:
        yield
    except FrittataError:
        raise
    except Exception as error:  # the caller's code
        what = f"instrument {type(instrument).__name__} raised {type(error).__name__}: {error}"
        do = "what raised it is the cause of this error, in the traceback"
        raise FrittataError(what, f"stage {stage.name}", do) from error


@dataclass
class Watch:
    """Times stages, and tells instruments of them."""

    instruments: Sequence[Instrument] = ()
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str, level: int = 0) -> Generator[Stage]:
        """Run a stage.

        Raises: FrittataError that names an instrument if one raises.
        """
        stage = Stage(name, level)
        for instrument in self.instruments:
            with _named(instrument, stage):
                instrument.before(stage)
        start = time.perf_counter()
        yield stage
        stage.seconds = time.perf_counter() - start
        for instrument in self.instruments:
            with _named(instrument, stage):
                instrument.after(stage)

    @contextmanager
    def phase(self, name: str) -> Generator[Stage]:
        """Run a stage whose time the report tells."""
        with self.stage(name) as stage:
            yield stage
        self.seconds[name] = stage.seconds
        log.info("%s took %.3f s", name, stage.seconds)
