"""Exported graphs as the importer takes them: no operator changes a tensor in place, and each has a row if it can."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decomposition_table

from frittata.egraph.errors import ModelError, SharedMemoryError
from frittata.frontends import aten, torch_running
from frittata.frontends.torch_extern import is_left_to_torch
from frittata.frontends.torch_inplace import check_windows, drops_nothing, in_place_calls
from frittata.frontends.torch_origins import source_of

_EINSUM = "aten.einsum.default"


def prepared(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Make in-place operators functional, and decompose operators that have no row, where there are any."""
    renamed = in_place_calls(program.graph.nodes)
    targets = [
        renamed[node][0] if node in renamed else node.target
        for node in program.graph.nodes
        if node.op == "call_function"
    ]
    if all(str(target) in aten.ROWS or _is_python(target) or str(target) in aten.SAYS_NOTHING for target in targets):
        return program
    check_windows(program.graph.nodes)
    table = {**decomposition_table, **torch.export.default_decompositions()}
    whole = {*aten.ROWS, *(str(node.target) for node in program.graph.nodes if is_left_to_torch(node))}
    if any(map(_changes, targets)) and any(map(_is_of_one, program.graph.nodes)):
        whole.discard(_EINSUM)  # it may be a view, and does not say so
    table = {op: meaning for op, meaning in table.items() if str(op) not in whole}
    done = _decomposed(program, table)
    checking = {source_of(node)[1] for node in done.graph.nodes if node.target is torch.ops.higher_order.with_effects}
    if checking:  # linear algebra that raises on values: its checks cannot be told apart from effects, it stays whole
        done = _decomposed(program, {op: meaning for op, meaning in table.items() if str(op) not in checking})
    return done


def _changes(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable


def _is_of_one(node: torch.fx.Node) -> bool:
    return str(node.target) == _EINSUM and len(node.args[1]) == 1  # type: ignore[arg-type]


@contextmanager
def _dropout_as_it_is(graph: torch.fx.Graph) -> Generator[None]:
    """Within the block dropout that drops nothing is its operand, as when it is called: torch makes a copy of it."""
    given = {node: node.args for node in graph.nodes if drops_nothing(node, "aten.dropout.default")}
    for node in given:
        node.target, node.args = torch.ops.aten.alias.default, node.args[:1]
    try:
        yield
    finally:
        for node, args in given.items():
            node.target, node.args = torch.ops.aten.dropout.default, args


def _decomposed(program: torch.export.ExportedProgram, table: Mapping[Any, Any]) -> torch.export.ExportedProgram:
    kept = {name: value for name, value in program.constants.items() if isinstance(value, torch.nn.Parameter)}
    program.constants.update({name: value.detach() for name, value in kept.items()})  # torch takes none here
    try:
        with torch_running.alone(), _dropout_as_it_is(program.graph):
            done = program.run_decompositions(dict(table))
    except Exception as error:  # it runs meanings of many operators
        line = str(error).partition("\n")[0]
        do = "export parts of it to see which"
        what = f"torch cannot decompose what it exported: {type(error).__name__}: {line}"[:300]
        if "is mutated in the forward method" in line:
            name = line.removeprefix("Constant ").partition(" ")[0]
            what = f"the module changes {name} in place, and it is no buffer"
            do = "keep it in a buffer: self.register_buffer(name, tensor)"
        elif "compiled_fn to be GraphModule" in line or "view input mutations" in line:
            what = "the module changes a tensor in place that shares memory with another that it reads"
            raise SharedMemoryError(what, do="read it by one name, or give each memory of its own") from error
        elif "user_output" in line:
            what = "the module writes one value to two of its buffers or arguments, which torch cannot export"
            do = "write a copy to one of them: x.copy_(y.clone())"
        elif "output has alias annotations" in line:
            name = line.partition("annotations: ")[2].partition("(")[0]
            what, do = f"torch cannot export {name}, which writes to its operand", "call what returns a new tensor"
        raise ModelError(what, do=do) from error
    finally:
        program.constants.update(kept)
    done.constants.update({name: value for name, value in kept.items() if name in done.constants})
    return done


def _is_python(target: Any) -> bool:
    """Whether a call is Python's own: getitem, and arithmetic on dims."""
    return getattr(target, "__module__", "") in ("_operator", "math", "builtins") or str(target).startswith("aten.sym_")
