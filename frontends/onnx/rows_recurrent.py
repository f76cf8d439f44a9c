"""Rows of ONNX's recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_recurrent, idioms_windows
from frittata.frontends.idioms_recurrent import Cell, State
from frittata.frontends.onnx.tables import Row

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

MakeCell = Callable[[int, Term, Term | None], Cell]
"""From the number of a direction and the state's weight and bias to a cell."""


def _run(
    x: Term,
    weights: Term,
    held: Term,
    biases: Term | None,
    lengths: Any,
    state: Sequence[Term | None],
    make: MakeCell,
    direction: str,
    layout: int,
) -> tuple[Term, ...]:
    """Run all directions; x is (T, B, I), with `layout` 1 (B, T, I); weights are (directions, gates * H, width)."""
    x = idioms.swap(x, 0, 1) if layout else x
    steps, batch = (idioms.number(dim) for dim in x.shape[:2])
    if lengths is not None and (np.asarray(lengths) != steps).any():
        raise UnsupportedOpError("sequence_lens of several lengths")
    nothing = idioms.filled(0, (batch, idioms.number(held.shape[-1])), x.dtype)
    outputs: list[Term] = []
    last: list[State] = []
    for number, backward in enumerate(_DIRECTIONS[direction]):
        begin = tuple(nothing if s is None else idioms.select(s, 1 if layout else 0, number) for s in state)
        weight, own = (idioms.select(part, 0, number) for part in (weights, held))
        bias = own_bias = None
        if biases is not None:
            bias, own_bias = idioms.split(idioms.select(biases, 0, number), [idioms.number(own.shape[0])] * 2, 0)
        cell = make(number, own, own_bias)
        output, end = idioms_recurrent.run(idioms.linear(x, weight, bias), begin, cell, backward)
        outputs.append(output)
        last.append(end)
    ends = (
        idioms_windows.concat([idioms.unsqueeze(p, layout) for p in parts], layout) for parts in zip(*last, strict=True)
    )
    found = idioms_windows.concat([idioms.unsqueeze(output, 1) for output in outputs], 1)
    return idioms.permute(found, (2, 0, 1, 3)) if layout else found, *ends


def _usual(activations: Sequence[str], usual: Sequence[str]) -> None:
    """Refuse activations that are not the usual ones, of each direction."""
    if any(name != usual[at % len(usual)] for at, name in enumerate(activations)):
        raise UnsupportedOpError(f"activations {', '.join(activations)}")


def _lstm(
    x: Term,
    weights: Term,
    held: Term,
    biases: Term | None = None,
    lengths: Any = None,
    output: Term | None = None,
    kept: Term | None = None,
    peepholes: Term | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    activations: Sequence[str] = (),
) -> tuple[Term, ...]:
    _usual(activations, ("Sigmoid", "Tanh", "Tanh"))

    def make(number: int, weight: Term, bias: Term | None) -> Cell:
        seen = None
        if peepholes is not None:
            width = idioms.number(weight.shape[-1])
            taken, shown, left = idioms.split(idioms.select(peepholes, 0, number), [width] * 3, 0)
            seen = (taken, left, shown)
        return idioms_recurrent.lstm(weight, bias, (0, 2, 3, 1), peepholes=seen)

    return _run(x, weights, held, biases, lengths, (output, kept), make, direction, layout)


def _gru(
    x: Term,
    weights: Term,
    held: Term,
    biases: Term | None = None,
    lengths: Any = None,
    output: Term | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    linear_before_reset: int = 0,
    activations: Sequence[str] = (),
) -> tuple[Term, ...]:
    _usual(activations, ("Sigmoid", "Tanh"))

    def make(number: int, weight: Term, bias: Term | None) -> Cell:
        cell = idioms_recurrent.gru if linear_before_reset else idioms_recurrent.gru_reset_first
        return cell(weight, bias, (1, 0))

    return _run(x, weights, held, biases, lengths, (output,), make, direction, layout)


def _rnn(
    x: Term,
    weights: Term,
    held: Term,
    biases: Term | None = None,
    lengths: Any = None,
    output: Term | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    activations: Sequence[str] = ("Tanh", "Tanh"),
) -> tuple[Term, ...]:
    known = {"Tanh": "tanh", "Relu": "relu"}
    if not set(activations) <= known.keys():
        raise UnsupportedOpError(f"activations {', '.join(activations)}")

    def make(number: int, weight: Term, bias: Term | None) -> Cell:
        return idioms_recurrent.elman(weight, bias, known[activations[number]])

    return _run(x, weights, held, biases, lengths, (output,), make, direction, layout)


ROWS: dict[str, tuple[Row, ...]] = {
    "LSTM": (Row(_lstm, known=(4,)),),
    "GRU": (Row(_gru, known=(4,)),),
    "RNN": (Row(_rnn, known=(4,)),),
}
"""What each operator means, by opset."""
