"""Running torch.export, which has global state: one export at a time, of modules that do in each call the same."""

from __future__ import annotations

import logging
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.export._trace as export_trace
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
    PendingUnbackedSymbolNotFound,
)
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError
from frittata.egraph.exporting import BUILTINS, MODULES
from frittata.frontends import draws, torch_modes
from frittata.frontends.torch_state import Attributes, Registered, keeping_tensors
from frittata.frontends.torch_statistics import WrittenOut

_LOGGERS = tuple(
    logging.getLogger(f"torch.{name}")
    for name in ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes", "export._trace")
)
"""Those that tell of an error beside raising it."""


def _silent(*_: Any, **__: Any) -> None:
    """Print nothing."""


@contextmanager
def alone() -> Generator[None]:
    """Keep other threads from torch.export, gradients from what it runs, and what it logs of errors that it raises."""
    thread = threading.get_ident()

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.WARNING

    with BUILTINS, MODULES, torch.no_grad(), WrittenOut(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The tensor attribute", UserWarning)  # `steady` looks at what it is about
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)  # torch's own, of its copies
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
_DISTRIBUTIONS = Path(torch.distributions.__file__).parent
_RECURRENT = Path(torch.nn.modules.rnn.__file__)
_AROUND = 'torch.compile(model, backend="frittata") leaves to torch what cannot be exported'
_BUILT_IN = re.compile(r"type <class '\w+'>")


def words(error: Exception) -> str:
    """Return what torch.export says is wrong, in a line, or in some where it lists what a dim has to be."""
    if isinstance(error, DynamicOutputShapeException):
        return f"it calls {error.func}, and no shape of the result is known before it runs"
    if isinstance(error, DataDependentOutputException):
        return f"it calls {error.func}, and its result is a number that depends on values"
    if isinstance(error, PendingUnbackedSymbolNotFound):
        return "how many places it looks up depends on values, as where masks meet other indices: x[mask_a, mask_b]"
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
    if isinstance(error, PendingUnbackedSymbolNotFound):
        return "index by one mask for all places; or keep all of them, and choose with torch.where or weigh with a mask"
    if "numpy.ndarray" in str(error):
        return "give torch tensors as example arguments: torch.from_numpy(x)"
    if "quantized nyi" in str(error):
        return torch_modes.INTEGERS
    if ".numpy() is not supported" in str(error):
        return "call torch's functions: numpy's, and frittata's, are for functions whose example arguments are arrays"
    if _UNKNOWN_TYPE.search(str(error)):
        if _BUILT_IN.search(str(error)):
            return "give the numbers in it, or tensors, and make it of them in the model"
        return (
            "give tensors in tuples, lists and dicts; or register the class: torch.export.register_dataclass(Class), "
            "torch.utils._pytree.register_pytree_node where it is no dataclass"
        )
    if "fake tensor in the exported program constant" in str(error):
        return "assign nothing to .data: write in place (x.mul_(mask)), or compute with another tensor (x * mask)"
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if _RECURRENT in files and "FakeTensor" in str(error):
        return (
            "run the layer on padded sequences, not on packed ones, and mask its outputs behind their ends; one that "
            f"runs backward too can be exported to ONNX, whose recurrent operators take lengths; or {_AROUND}"
        )
    if isinstance(error, GuardOnDataDependentSymNode):
        if any(file.parent == _DISTRIBUTIONS for file in files):
            return (
                "give the distribution validate_args=False, it looks at the values of its arguments; one that makes "
                "others: torch.distributions.Distribution.set_default_validate_args(False)"
            )
        do = "replace branches on values by torch.where or torch.cond, and numbers made of values by tensors"
        return f"{do}; or {_AROUND}"
    if isinstance(error, UserError | ConstraintViolationError):
        return "make the dims static, or name them as torch says"
    return f"call the model on these arguments first: it may fail the same way; if it does not, {_AROUND}"


def steady(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    export: Callable[[], torch.export.ExportedProgram],
) -> torch.export.ExportedProgram:
    """Export a module, and leave its attributes as they were.

    Raises: ModelError if the next call would compute something else, for the module counts calls, or draws random
        numbers; what `export` raises.
    """
    name = type(module).__name__
    registered = Registered(module)
    hooks = [
        module.register_forward_pre_hook(registered.begin),
        module.register_forward_hook(registered.end),
        module.register_forward_hook(lambda *_: attributes.note()),  # before torch puts back most of it
    ]
    attributes = Attributes(module)
    try:
        with draws.refused(name), draws.unseen(name):
            try:
                program = export()
            except Exception:
                registered.check()
                raise
            registered.check()
            changed = attributes.changed
            is_same = not changed or _is_next_the_same(program, attributes, export)
            if not is_same and not _gives_the_same(module, args, kwargs, attributes):
                raise ModelError(
                    f"{name} changes {', '.join(changed)} while it runs: the next call would compute something else",
                    do="keep tensors that calls change in buffers, self.register_buffer(name, tensor); take what else "
                    "changes as an argument, and return it",
                )
    finally:
        attributes.restore()
        registered.restore()
        for hook in hooks:
            hook.remove()
    return program


def _is_next_the_same(
    program: torch.export.ExportedProgram, attributes: Attributes, export: Callable[[], torch.export.ExportedProgram]
) -> bool:
    """Whether the next call is the same program, and reads no tensor that this one has left."""
    left = {tensor.data_ptr() for tensor in attributes.advance()}
    try:
        after = export()
    except Exception:  # of other values than a call would leave
        return False
    kept = (*after.state_dict.values(), *after.constants.values())
    return _is_same(program, after) and left.isdisjoint(filter(None, map(_address, kept)))


def _gives_the_same(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], attributes: Attributes
) -> bool:
    """Whether a call on other values gives the same after one on the examples as before it: tables made by the first.

    Values are random, of integers those of the examples at other places; of values that are all alike none are others.
    """
    dice = torch.Generator().manual_seed(0)

    def other(value: torch.Tensor) -> torch.Tensor:
        if value.is_floating_point():
            return torch.rand(value.shape, generator=dice).to(value.dtype)
        return value.flatten().roll(1).reshape(value.shape)

    def results(values: Any) -> list[Any]:
        given, named = pytree.tree_map_only(torch.Tensor, torch.clone, values)
        return pytree.tree_leaves(module(*given, **named))

    examples = tuple(args), dict(kwargs)
    try:
        others = pytree.tree_map_only(torch.Tensor, other, examples)
        attributes.restore()
        with keeping_tensors(module):
            before = results(others)
        attributes.restore()
        with keeping_tensors(module):
            results(examples)
            after = results(others)
    except Exception:  # the module runs on values that it may not be meant for
        return False
    return not _are_equal(*map(pytree.tree_leaves, (examples, others))) and _are_equal(before, after)


def _are_equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(_is_equal, some, others))


def _address(value: Any) -> int | None:
    """Return where the memory of a tensor begins; None for what has none of its own."""
    return value.data_ptr() if isinstance(value, torch.Tensor) and value.layout is torch.strided else None


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
