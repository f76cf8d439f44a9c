"""Rows of aten's recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from frittata.egraph.errors import ModelError
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_recurrent, idioms_windows
from frittata.frontends.idioms_recurrent import Cell, State

Weights = Sequence[Term]
MakeCell = Callable[[Term, Term | None, Term | None], Cell]
"""From the state's weight and bias, and the weight of a projection, to a cell."""


def _layers(make: MakeCell) -> Callable[..., Any]:
    def row(
        x: Term,
        state: Term | Sequence[Term],
        weights: Weights,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[Term, ...]:
        """Run all layers, (T, B, I) or batch first; `state` is (layers * directions, B, H), for each part of it."""
        if train and dropout:
            raise ModelError("dropout in training mode is random", do="call model.eval() before the export")
        first = [state] if isinstance(state, Term) else list(state)
        x = idioms.swap(x, 0, 1) if batch_first else x
        directions = 2 if bidirectional else 1
        given = _groups(weights, len(weights) // (num_layers * directions), has_biases)
        last: list[State] = []
        for _ in range(num_layers):
            outputs: list[Term] = []
            for direction in range(directions):
                taken, held, bias, held_bias, projection = next(given)
                begin = tuple(idioms.select(part, 0, len(last)) for part in first)
                gates = idioms.linear(x, taken, bias)
                output, end = idioms_recurrent.run(gates, begin, make(held, held_bias, projection), direction == 1)
                outputs.append(output)
                last.append(end)
            x = idioms_windows.concat(outputs, -1)
        ends = (
            idioms_windows.concat([idioms.unsqueeze(part, 0) for part in parts], 0) for parts in zip(*last, strict=True)
        )
        return idioms.swap(x, 0, 1) if batch_first else x, *ends

    return row


def _groups(
    weights: Weights, size: int, has_biases: bool
) -> Iterator[tuple[Term, Term, Term | None, Term | None, Term | None]]:
    """Visit the weights of each layer and direction: of input and state, their biases, and of the projection."""
    for start in range(0, len(weights), size):
        taken, held, *more = weights[start : start + size]
        bias, held_bias = (more.pop(0), more.pop(0)) if has_biases else (None, None)
        yield taken, held, bias, held_bias, more[0] if more else None


ROWS: dict[str, Callable[..., Any]] = {
    "aten.lstm.input": _layers(lambda held, bias, projection: idioms_recurrent.lstm(held, bias, projection=projection)),
    "aten.gru.input": _layers(lambda held, bias, _: idioms_recurrent.gru(held, bias)),
    "aten.rnn_tanh.input": _layers(lambda held, bias, _: idioms_recurrent.elman(held, bias, "tanh")),
    "aten.rnn_relu.input": _layers(lambda held, bias, _: idioms_recurrent.elman(held, bias, "relu")),
}
