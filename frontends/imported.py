"""What every front end returns: a model, and how to call it as its source was called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from frittata.egraph.model import Model
from frittata.frontends.calls import Call, Empties, State


class Imported(Protocol):
    """A model with the calling convention of its source."""

    @property
    def model(self) -> Model:
        """The terms."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The source's own torch tensors by the name of their param: what a guard watches."""
        ...

    @property
    def is_flat(self) -> bool:
        """Whether the arguments of a call, if all are given by position, are the tensors that `flatten` returns."""
        ...

    @property
    def state(self) -> State:
        """What calls change."""
        ...

    @property
    def empties(self) -> Empties:
        """The results without values: each call makes them anew, beside the outputs of `model.main`."""
        ...

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the tensors of a call in the order of `model.main.inputs`, without those of the source itself.

        Raises: ModelError if the call does not fit.
        """
        ...

    def unflatten(self, outputs: Iterable[Any]) -> Any:
        """Return outputs in the structure that the source returns: those of `model.main`, without what calls change,
        and `empties` among them."""
        ...

    def call(self) -> Call:
        """Return how the model is called, as plain data: what is kept when it is saved."""
        ...
