"""Rows of ONNX's recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_recurrent, idioms_windows
from frittata.frontends.idioms_recurrent import Cell, State
from frittata.frontends.onnx.tables import Row

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Given:
    """What one direction has of its own: the state's weight and bias, peepholes, and what it is asked for."""

    weight: Term
    bias: Term | None
    peepholes: Term | None
    activations: Sequence[str]
    linear_before_reset: int


def _row(make: Callable[[_Given], Cell], usual: tuple[str, ...], parts: int = 1) -> Row:
    """Return the row of an operator: its cell, the activations of a direction unless told, the parts of its state."""

    def meaning(
        x: Term,
        weights: Term,
        held: Term,
        biases: Term | None = None,
        lengths: Term | None = None,
        output: Term | None = None,
        kept: Term | None = None,
        peepholes: Term | None = None,
        *,
        hidden_size: int | None = None,
        direction: str = "forward",
        layout: int = 0,
        activations: Sequence[str] = (),
        linear_before_reset: int = 0,
    ) -> tuple[Term, ...]:
        """Run all directions; x is (T, B, I), with `layout` 1 (B, T, I); weights are (directions, gates * H, width).

        A sample without steps has zeros for its last state, as in ONNX Runtime, whatever it begins with.
        """
        x = idioms.swap(x, 0, 1) if layout else x
        steps, batch = (idioms.number(dim) for dim in x.shape[:2])
        if lengths is not None and lengths.op == "full" and lengths.attrs[0].value == steps:
            lengths = None
        nothing = idioms.filled(0, (batch, idioms.number(held.shape[-1])), x.dtype)
        outputs: list[Term] = []
        last: list[State] = []
        for number, backward in enumerate(_DIRECTIONS[direction]):
            weight, own = (idioms.select(part, 0, number) for part in (weights, held))
            bias = own_bias = None
            if biases is not None:
                bias, own_bias = idioms.split(idioms.select(biases, 0, number), [idioms.number(own.shape[0])] * 2, 0)
            seen = None if peepholes is None else idioms.select(peepholes, 0, number)
            named = activations[number * len(usual) :][: len(usual)] or usual
            cell = make(_Given(own, own_bias, seen, named, linear_before_reset))
            begun = [nothing if s is None else idioms.select(s, layout, number) for s in (output, kept)[:parts]]
            if lengths is not None:
                has_none = idioms.unsqueeze(tensor("le", lengths, idioms.scalar(0, lengths.dtype)), -1)
                begun = [tensor("where", has_none, nothing, part) for part in begun]
            gates = idioms.linear(x, weight, bias)
            found, end = idioms_recurrent.run(gates, tuple(begun), cell, backward, lengths)
            outputs.append(idioms.unsqueeze(found, 1))
            last.append(end)
        ends = ([idioms.unsqueeze(part, layout) for part in every] for every in zip(*last, strict=True))
        joined = idioms_windows.concat(outputs, 1)
        first = idioms.permute(joined, (2, 0, 1, 3)) if layout else joined
        return first, *(idioms_windows.concat(end, layout) for end in ends)

    return Row(meaning)


def _expect(given: _Given, *usual: str) -> None:
    if tuple(given.activations) != usual:
        raise UnsupportedOpError(f"activations {', '.join(given.activations)}")


def _lstm(given: _Given) -> Cell:
    _expect(given, "Sigmoid", "Tanh", "Tanh")
    seen = None
    if given.peepholes is not None:
        width = idioms.number(given.weight.shape[-1])
        taken, shown, left = idioms.split(given.peepholes, [width] * 3, 0)
        seen = (taken, left, shown)
    return idioms_recurrent.lstm(given.weight, given.bias, (0, 2, 3, 1), peepholes=seen)


def _gru(given: _Given) -> Cell:
    _expect(given, "Sigmoid", "Tanh")
    cell = idioms_recurrent.gru if given.linear_before_reset else idioms_recurrent.gru_reset_first
    return cell(given.weight, given.bias, (1, 0))


def _elman(given: _Given) -> Cell:
    (name,) = given.activations
    known = {"Tanh": "tanh", "Relu": "relu"}
    if name not in known:
        raise UnsupportedOpError(f"activations {name}")
    return idioms_recurrent.elman(given.weight, given.bias, known[name])


ROWS: dict[str, tuple[Row, ...]] = {
    "LSTM": (_row(_lstm, ("Sigmoid", "Tanh", "Tanh"), parts=2),),
    "GRU": (_row(_gru, ("Sigmoid", "Tanh")),),
    "RNN": (_row(_elman, ("Tanh",)),),
}
"""What each operator means, by opset."""
