"""Numbers in a module's own tensors that decide which program an export is: branches, sizes and ends of slices.

Where torch.export has to know a number to go on, as audio codecs compute how far to pad from kernels and strides in
buffers, the values of small tensors are told to it. What it read of them is fixed in the program, and guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorConverter
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

from frittata.frontends.torch_inplace import is_fresh, written
from frittata.frontends.torch_known import sizes

UNDECIDED = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""What torch.export raises where a number would have to be known."""

_DEPEND = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)

_MOST = 64
"""So many numbers may be in a tensor whose values are told."""


def decided(
    module: torch.nn.Module, export: Callable[[], torch.export.ExportedProgram]
) -> tuple[torch.export.ExportedProgram, dict[str, torch.Tensor]] | None:
    """Export a module with the values of its small tensors known; return the tensors that decide, too, by name.

    Nothing is returned where that does not help, or where the module changes a tensor that decides.
    """
    parameters, buffers = (of(remove_duplicate=False) for of in (module.named_parameters, module.named_buffers))
    own: dict[str, torch.Tensor] = {**dict(parameters), **dict(buffers)}
    told = [value for value in own.values() if value.numel() <= _MOST and not value.is_meta]
    small = {id(value): value.detach().clone() for value in told}
    if not small:
        return None
    try:
        with _told(small):
            program = export()
    except Exception:  # the first export says what is wrong
        return None
    sources = _sources(program)
    if sources is None:
        return None
    program.graph.eliminate_dead_code()
    return program, {name: own[name] for name in sources}


def asks(program: torch.export.ExportedProgram) -> bool:
    """Whether a size in an export depends on a number that is read from a tensor."""
    numbers = [node for node in program.graph.nodes if isinstance(node.meta.get("val"), _NUMBERS)]
    read = set[Any]().union(*(_symbols(node) for node in numbers if _depends(node)))
    return any(sizes(user) for node in numbers if not read.isdisjoint(_symbols(node)) for user in node.users)


@contextmanager
def _told(value_by_id: dict[int, torch.Tensor]) -> Generator[None]:
    """Have torch compute with the values of these tensors where it can, beside their shapes."""
    convert = FakeTensorConverter.from_real_tensor

    def converted(self: FakeTensorConverter, mode: Any, tensor: torch.Tensor, *rest: Any, **named: Any) -> Any:
        made = convert(self, mode, tensor, *rest, **named)
        if id(tensor) in value_by_id and made.constant is None:
            made.constant = value_by_id[id(tensor)]
            self.add_constant_storage_mapping(made)  # a write makes it unknown
        return made

    with patch.object(FakeTensorConverter, "from_real_tensor", converted):
        yield


def _sources(program: torch.export.ExportedProgram) -> set[str] | None:
    """Return the names of the tensors that fixed numbers and sizes are made of; None where one of them is changed."""
    signature = program.graph_signature
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    made_of: dict[torch.fx.Node, set[str]] = {}
    may_be: dict[torch.fx.Node, set[str]] = {}  # whose memory a call may return
    decide, changed = set[str](), set[str]()
    for node in program.graph.nodes:
        name = {node.name} if node.op == "placeholder" else set[str]()
        made_of[node] = name.union(*(made_of[used] for used in node.all_input_nodes))
        may_be[node] = set() if is_fresh(node) else name.union(*(may_be[used] for used in node.all_input_nodes))
        changed = changed.union(*(may_be[operand] for operand in written(node)))
        if _depends(node) and not _symbols(node) and made_of[node].isdisjoint(signature.user_inputs):
            decide |= made_of[node]
    return {own[name] for name in decide if name in own} if decide.isdisjoint(changed) else None


def _depends(node: torch.fx.Node) -> bool:
    """Whether a number that a call returns, or a size, depends on values."""
    return not _DEPEND.isdisjoint(getattr(node.target, "tags", ()))


def _symbols(node: torch.fx.Node) -> set[Any]:
    """Return the symbols of numbers and sizes that depend on values, in what a call returns."""
    told = node.meta.get("val")
    return set(free_unbacked_symbols(told)) if isinstance(told, _NUMBERS) else sizes(node)
