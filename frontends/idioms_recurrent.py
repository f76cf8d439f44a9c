"""Recurrent layers, step by step, in the term language: framework-neutral builders.

Shapes: T steps of B samples; weights are (gates * H, width), gates in the order that each cell says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_windows

State = tuple[Term, ...]
"""What a step hands on: its output first, each (B, H)."""

Cell = Callable[[Term, State], State]
"""From what the input adds to the gates of a step, (B, gates * H), and the state before to the state."""


def run(
    gates: Term, state: State, cell: Cell, backward: bool = False, lengths: Term | None = None
) -> tuple[Term, State]:
    """Return the outputs of all steps, (T, B, H), and the last state; `gates` are (T, B, gates * H).

    A sample takes only as many steps as `lengths`, (B,), says, the first ones: in others its state stays as it is, and
    its output is zero.
    """
    steps = range(idioms.number(gates.shape[0]))
    outputs: list[Term] = []
    for step in reversed(steps) if backward else steps:
        found = shown = cell(idioms.select(gates, 0, step), state)
        if lengths is not None:
            takes = idioms.unsqueeze(tensor("gt", lengths, idioms.scalar(step, lengths.dtype)), -1)
            found = tuple(tensor("where", takes, *parts) for parts in zip(found, state, strict=True))
            shown = (tensor("where", takes, shown[0], idioms.scalar(0, gates.dtype)),)
        state = found
        outputs.append(idioms.unsqueeze(shown[0], 0))
    return idioms_windows.concat(outputs[::-1] if backward else outputs, 0), state


def lstm(
    weight: Term,
    bias: Term | None,
    order: Sequence[int] = (0, 1, 2, 3),
    projection: Term | None = None,
    peepholes: Sequence[Term] | None = None,
) -> Cell:
    """Long short-term memory; the gates for input, forgetting, the cell and output are numbers `order`.

    `peepholes`, (H,), are the weights of the cell in the gates for input, forgetting and output.

    Source: Gers et al., 2000; peepholes: Gers et al., 2002; projections: Sak et al., 2014.
    """

    def cell(row: Term, state: State) -> State:
        output, kept = state
        parts = _parts(_sum(idioms.linear(output, weight, bias), row), 4)
        taken, left, new, shown = (parts[n] for n in order)
        if peepholes is not None:
            taken, left = (
                _sum(gate, _product(kept, seen)) for gate, seen in zip((taken, left), peepholes[:2], strict=True)
            )
        kept = _sum(_product(_sigmoid(left), kept), _product(_sigmoid(taken), tensor("tanh", new)))
        if peepholes is not None:
            shown = _sum(shown, _product(kept, peepholes[2]))
        output = _product(_sigmoid(shown), tensor("tanh", kept))
        return output if projection is None else idioms.linear(output, projection, None), kept

    return cell


def gru(weight: Term, bias: Term | None, order: Sequence[int] = (0, 1)) -> Cell:
    """Gated recurrent unit; the gates for reset and update are numbers `order`, the new value is last.

    The reset acts on what the product makes of the state, bias included.

    Source: Cho et al., 2014, in the form of cuDNN.
    """

    def cell(row: Term, state: State) -> State:
        given, held = _parts(row, 3), _parts(idioms.linear(state[0], weight, bias), 3)
        reset, update = (_sigmoid(_sum(given[n], held[n])) for n in order)
        return _updated(state[0], update, _sum(given[2], _product(reset, held[2])))

    return cell


def gru_reset_first(weight: Term, bias: Term | None, order: Sequence[int] = (0, 1)) -> Cell:
    """As `gru`, but the reset acts on the state, before its product. Source: Cho et al., 2014."""
    gates = 2 * idioms.number(weight.shape[-1])
    first, last = _cut(weight, gates)
    bias_first, bias_last = (None, None) if bias is None else _cut(bias, gates)

    def cell(row: Term, state: State) -> State:
        given, held = _parts(row, 3), _parts(idioms.linear(state[0], first, bias_first), 2)
        reset, update = (_sigmoid(_sum(given[n], held[n])) for n in order)
        return _updated(state[0], update, _sum(given[2], idioms.linear(_product(reset, state[0]), last, bias_last)))

    return cell


def elman(weight: Term, bias: Term | None, activation: str) -> Cell:
    """The plain recurrent cell, with `tanh` or `relu`. Source: Elman, 1990."""

    def cell(row: Term, state: State) -> State:
        return (tensor(activation, _sum(idioms.linear(state[0], weight, bias), row)),)

    return cell


def _parts(gates: Term, count: int) -> tuple[Term, ...]:
    width = idioms.number(gates.shape[-1]) // count
    return idioms.split(gates, [width] * count, -1)


def _updated(output: Term, update: Term, new: Term) -> State:
    new = tensor("tanh", new)
    return (_sum(_product(tensor("sub", output, new), update), new),)


def _cut(x: Term, at: int) -> tuple[Term, ...]:
    return idioms.split(x, [at, idioms.number(x.shape[0]) - at], 0)


def _sigmoid(x: Term) -> Term:
    return tensor("sigmoid", x)


def _product(x: Term, y: Term) -> Term:
    return tensor("mul", x, y)


def _sum(x: Term, y: Term) -> Term:
    return tensor("add", x, y)
