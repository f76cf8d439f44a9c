"""Outputs that may lie where an input lies: what a call changes in place is written over, and not copied there."""

from __future__ import annotations

from collections.abc import Sequence

from frittata.egraph.ops import registry
from frittata.egraph.places import Places, find_places, placed_bodies
from frittata.egraph.program import Join, Kernel, Program, operands_of
from frittata.egraph.terms import Term
from frittata.kernels.templates.pointwise import POINTWISE


def written_over(program: Program, changes: Sequence[int]) -> dict[int, int]:
    """Return the outputs that may be written over the inputs that they become, with the numbers of both.

    Output `number` becomes input `changes[number]`. It may be if nothing reads the input after the kernel that writes
    the output, and that reads no element of it that it has written.
    """
    places = find_places(program)
    root = {name: place.root for name, place in places.by_name.items()}
    kernels = program.kernels
    banded = {name for band in program.bands for name in band.kernels}
    in_bands = {at for at, kernel in enumerate(kernels) if kernel.name in banded}
    elsewhere = {root[name] for name in program.outputs}
    elsewhere |= {root[part] for step in program.steps if isinstance(step, Join) for part in (*step.parts, step.name)}
    inputs = list(program.inputs)
    found: dict[int, int] = {}
    for number, change in enumerate(changes):
        name, old = program.outputs[number], inputs[change]
        writers = [at for at, kernel in enumerate(kernels) if any(output.name == name for output in kernel.outputs)]
        readers = [at for at, kernel in enumerate(kernels) if any(root[operand] == old for operand in kernel.operands)]
        if not writers or old in elsewhere or program.outputs.count(name) > 1:
            continue
        (writer,) = writers
        is_last = max(readers, default=writer) <= writer and in_bands.isdisjoint((writer, *readers))
        if is_last and (writer not in readers or _reads_what_it_writes(kernels[writer], old, places)):
            found[number] = change
    return found


def _reads_what_it_writes(kernel: Kernel, old: str, places: Places) -> bool:
    """Whether a kernel reads an element of a buffer only where it writes the results of that element, and before."""
    if any(operand != old and places.by_name[operand].root == old for operand in kernel.operands):
        return False
    bodies = [output.body for output in kernel.outputs]
    match kernel.template:
        case "write":
            base, *others = bodies[0].args
            return base.attrs[0] == old and not any(leaf.attrs[0] == old for leaf in operands_of(*others))
        case "pointwise":
            once = POINTWISE.computes_once(placed_bodies(kernel, places))
            return once and all(_is_read_in_place(body.args[0], old) for body in bodies)
        case _:
            return False


def _is_read_in_place(element: Term, old: str) -> bool:
    """Whether an element reads a buffer at its own index only."""
    if element.op == "load" or registry.get(element.op, "element").pointwise:
        return all(part.op == "input" or _is_read_in_place(part, old) for part in element.args)
    return not any(leaf.attrs[0] == old for leaf in operands_of(element))
