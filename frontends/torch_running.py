"""Running torch.export, which has global state: one export at a time, of modules that do in each call the same."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.export._trace as export_trace
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

from frittata.egraph.errors import ModelError
from frittata.frontends import draws
from frittata.frontends.torch_statistics import WrittenOut

_LOCK = threading.RLock()
_LOGGERS = tuple(
    logging.getLogger(f"torch.{name}")
    for name in ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes", "export._trace")
)
"""Those that tell of an error beside raising it."""
_PLAIN = (int, float, bool, str)
_UNSET: Any = object()


@dataclass(frozen=True)
class _Change:
    """A number, text or truth value that a part of a module has otherwise after a call."""

    path: str
    part: torch.nn.Module
    key: str
    old: Any
    new: Any

    def set(self, value: Any) -> None:
        if value is not _UNSET:
            vars(self.part)[self.key] = value
        elif self.key in vars(self.part):
            del vars(self.part)[self.key]

    def __str__(self) -> str:
        return ".".join(filter(None, ("self", self.path, self.key)))


def _silent(*_: Any, **__: Any) -> None:
    """Print nothing."""


@contextmanager
def alone() -> Generator[None]:
    """Keep other threads from torch.export, gradients from what it runs, and what it logs of errors that it raises."""
    thread = threading.get_ident()

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.WARNING

    with _LOCK, torch.no_grad(), WrittenOut():
        for logger in _LOGGERS:
            logger.addFilter(is_wanted)
        printer = export_trace.__dict__.get("print", print)
        export_trace.__dict__["print"] = _silent  # the graph so far, where it raises
        try:
            yield
        finally:
            export_trace.__dict__["print"] = printer
            for logger in _LOGGERS:
                logger.removeFilter(is_wanted)


_UNKNOWN_TYPE = re.compile(r"Unsupported input type|in output, which is not a known type")


def words(error: Exception) -> str:
    """Return what torch.export says is wrong, in a line, or in some where it lists what a dim has to be."""
    if isinstance(error, DynamicOutputShapeException):
        return f"it calls {error.func}, and no shape of the result is known before it runs"
    if isinstance(error, DataDependentOutputException):
        return f"it calls {error.func}, and its result is a number that depends on values"
    lines = [line.rstrip() for line in str(error).strip().split("\n")]
    if _UNKNOWN_TYPE.search(lines[0]):
        return lines[0].partition(". ")[0]
    if isinstance(error, UserError | ConstraintViolationError):
        wanted = [line for line in lines[1:] if line.startswith("  ")]
        return "\n".join([lines[0].partition(" For more information")[0], *wanted])
    return lines[0] or type(error).__name__


def advice(error: Exception) -> str:
    """Say what to do about what torch.export raised."""
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return "write it with other operators, or compute this part outside of the model"
    if "numpy.ndarray" in str(error):
        return "give torch tensors as example arguments: torch.from_numpy(x)"
    if ".numpy() is not supported" in str(error):
        return "call torch's functions: numpy's, and frittata's, are for functions whose example arguments are arrays"
    if _UNKNOWN_TYPE.search(str(error)):
        return "register the class: torch.export.register_dataclass(Class)"
    if isinstance(error, GuardOnDataDependentSymNode):
        return "replace branches on values by torch.where or torch.cond, and numbers made of values by tensors"
    if isinstance(error, UserError | ConstraintViolationError):
        return "make the dims static, or name them as torch says"
    return "call the model on these arguments first: it may fail the same way"


def steady(
    module: torch.nn.Module, export: Callable[[], torch.export.ExportedProgram]
) -> torch.export.ExportedProgram:
    """Export a module, and leave its attributes as they were.

    Raises: ModelError if the next call would be another program, for the module counts calls, or draws random numbers;
        what `export` raises.
    """
    name = type(module).__name__
    before = [(path, part, dict(vars(part))) for path, part in module.named_modules()]
    changes: dict[str, _Change] = {}

    def note(*_: Any) -> None:  # before torch puts back most of them
        changes.update({str(change): change for change in _changes(before)})

    hook = module.register_forward_hook(note)
    try:
        with draws.refused(name):
            program = export()
            for change in changes.values():
                change.set(change.new)
            if changes and not _is_same(program, export()):
                raise ModelError(
                    f"{name} changes {', '.join(changes)} while it runs: the next call would compute something else",
                    do="compute new tensors and return them; state cannot be kept between calls",
                )
    finally:
        note()
        hook.remove()
        for change in changes.values():
            change.set(change.old)
    return program


def _changes(before: Sequence[tuple[str, torch.nn.Module, dict[str, Any]]]) -> Iterator[_Change]:
    for path, part, had in before:
        has = vars(part)
        for key in dict.fromkeys((*had, *has)):
            old, new = had.get(key, _UNSET), has.get(key, _UNSET)
            is_plain = isinstance(old, _PLAIN) or isinstance(new, _PLAIN)
            if is_plain and old is not new and (type(old), old) != (type(new), new):
                yield _Change(path, part, key, old, new)


def _is_same(one: torch.export.ExportedProgram, other: torch.export.ExportedProgram) -> bool:
    """Whether two exports of a module compute the same."""
    return (
        _code(one) == _code(other)
        and one.constants.keys() == other.constants.keys()
        and all(_is_equal(value, other.constants[name]) for name, value in one.constants.items())
    )


def _code(program: torch.export.ExportedProgram) -> str:
    """Return what results are computed by."""
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program.graph_module.code


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        is_same = one.dtype == other.dtype and one.shape == other.shape
        return is_same and bool(((one == other) | ((one != one) & (other != other))).all())
    return one is other
