"""Operators of ONNX that have graphs: the branch that is taken is imported, or both, and loops are unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import GraphProto, NodeProto

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.onnx.sequences import AsTerm, attributes_of, joined
from frittata.frontends.onnx.values import Value, late

Run = Callable[[GraphProto, Sequence[Value | None], str], "list[Value | None]"]
"""Imports a graph for the values of its inputs, at a place within the node's, and returns those of its outputs."""


def branch(node: NodeProto, values: Sequence[Value], run: Run, as_term: AsTerm) -> list[Value | None]:
    """Import the branch that a known condition takes; of one computed at run time both, and choose value by value."""
    condition, graphs = values[0], attributes_of(node)
    if condition.array is not None:
        return run(graphs["then_branch" if condition.array.item() else "else_branch"], [], "")
    chosen = idioms.reshape(as_term(condition, node.input[0]), ())
    pairs = zip(run(graphs["then_branch"], [], "then/"), run(graphs["else_branch"], [], "else/"), strict=True)
    return [_either(chosen, yes, no, name, as_term) for (yes, no), name in zip(pairs, node.output, strict=True)]


def _either(condition: Term, yes: Value | None, no: Value | None, name: str, as_term: AsTerm) -> Value | None:
    """Return the value of one branch or the other; None if one is lost."""
    if yes is None or no is None:
        return None
    left, right = as_term(yes, name), as_term(no, name)
    if left.type != right.type:
        what = f"the condition is computed at run time, and {name} is {left.type} or {right.type}"
        raise late(what, Value(term=condition))
    return Value(term=tensor("where", condition, left, right))


def loop(node: NodeProto, values: Sequence[Value], run: Run, as_term: AsTerm) -> list[Value | None]:
    """Import the body as often as it runs, which has to be known: by a number, by conditions, or both."""
    trips, condition, *state = [*values, *(Value() for _ in range(2 - len(values)))]
    if any(value.array is None and not value.is_absent for value in (trips, condition)):
        raise late("how often it runs is computed at run time", trips, condition)
    limit = idioms.MOST_UNROLLED + 1 if trips.array is None else int(trips.array.item())
    goes_on, carried = condition, list[Value | None](state)
    body: GraphProto = attributes_of(node)["body"]
    collected: list[list[Value | None]] = [[] for _ in node.output[len(state) :]]
    done = 0
    while done < limit and (goes_on.array is None or goes_on.array.item()):
        idioms.check_steps(done + 1)
        given = (Value(np.array(done, np.int64)), Value(np.array(True)), *carried)
        after, *results = run(body, given, f"{done}/")
        if after is None or after.array is None:
            raise late("whether it runs again is computed at run time", *filter(None, [after]))
        if condition.is_absent and not after.array.item():
            raise UnsupportedOpError(
                "no condition is given, and the body stops: ONNX Runtime does then, by ONNX's words it goes on"
            )
        goes_on = after
        carried = results[: len(state)]
        for parts, part in zip(collected, results[len(state) :], strict=False):
            parts.append(part)
        done += 1
    names = node.output[len(state) :]
    return [*carried, *(_stacked(parts, name, 0, as_term) for parts, name in zip(collected, names, strict=True))]


def scan(node: NodeProto, values: Sequence[Value], run: Run, as_term: AsTerm) -> list[Value | None]:
    """Import the body for each slice of the operands that are scanned."""
    given = attributes_of(node)
    if "directions" in given or "num_scan_inputs" not in given or any(value.is_absent for value in values):
        raise UnsupportedOpError("the form of opset 8, which has a batch")
    count: int = given["num_scan_inputs"]
    if len(given["body"].input) != len(values):
        raise UnsupportedOpError(f"{len(values)} operands for a body of {len(given['body'].input)}")
    carried, scanned = list[Value | None](values[:-count]), values[-count:]
    axes: Sequence[int] = given.get("scan_input_axes", [0] * count)
    directions: Sequence[int] = given.get("scan_input_directions", [0] * count)
    terms = [as_term(value, name) for value, name in zip(scanned, node.input[-count:], strict=True)]
    steps = idioms.number(terms[0].shape[axes[0]])
    idioms.check_steps(steps)
    names = node.output[len(carried) :]
    collected: list[list[Value | None]] = [[] for _ in names]
    for step in range(steps):
        places = (steps - 1 - step if backward else step for backward in directions)
        slices = [Value(term=idioms.select(*part)) for part in zip(terms, axes, places, strict=True)]
        results = run(given["body"], [*carried, *slices], f"{step}/")
        for parts, part in zip(collected, results[len(carried) :], strict=False):
            parts.append(part)
        carried = results[: len(carried)]
    turned = zip(collected, given.get("scan_output_directions", [0] * len(names)), strict=True)
    ordered = [parts[::-1] if backward else parts for parts, backward in turned]
    along = zip(ordered, names, given.get("scan_output_axes", [0] * len(names)), strict=True)
    return [*carried, *(_stacked(*part, as_term) for part in along)]


def _stacked(parts: Sequence[Value | None], name: str, axis: int, as_term: AsTerm) -> Value | None:
    """Join what iterations gave, along a new axis; None if a part is lost."""
    if not parts:
        raise UnsupportedOpError("no iteration, after which what it collects is empty")
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return joined(found, name, axis, True, as_term)


OPERATORS = {"If": branch, "Loop": loop, "Scan": scan}
"""What each means: results for a node, the values of its operands, and how a graph is imported."""
