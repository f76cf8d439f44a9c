"""The backend of torch.compile: `torch.compile(model, backend="frittata", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import frittata
from frittata.frontends.torch_compile import CapturedGraph


def backend(graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> CapturedGraph:
    """Take one graph that torch.compile captured; `options` are those of `frittata.optimize`.

    Parameters have not come yet, so the graph is compiled at its first call.
    """
    return CapturedGraph(graph, lambda module, args: frittata.optimize(module, tuple(args), **(options or {})))
