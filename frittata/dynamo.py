"""The backend of torch.compile: `torch.compile(model, backend="frittata", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import frittata
from frittata.egraph.errors import FrittataError
from frittata.frontends.torch_compile import CapturedGraph
from frittata.kernels.cuda.device import is_on_device

_LONGEST: Mapping[str, Any] = {"pipeline": "max", "tune": "measure"}

_OPTIONS_BY_MODE: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": _LONGEST,
    "max-autotune-no-cudagraphs": _LONGEST,
}


def backend(
    graph: Any, example_inputs: Sequence[Any], *, mode: str = "default", options: Mapping[str, Any] | None = None
) -> CapturedGraph:
    """Take one graph that torch.compile captured; `options` are those of `frittata.optimize`.

    Where its arguments lie on a GPU, and the options say nothing else, it is compiled for the GPU.

    Of torch's modes, "max-autotune" searches longer and measures what it chose among; "reduce-overhead" asks for what
    is always so. Parameters have not come yet, so the graph is compiled at its first call.

    Raises: FrittataError for another mode.
    """
    if mode not in _OPTIONS_BY_MODE:
        raise FrittataError(f"no mode {mode!r}", do=f"use one of {', '.join(_OPTIONS_BY_MODE)}")
    chosen = {**_OPTIONS_BY_MODE[mode], **(options or {})}

    def optimize(module: Any, args: Sequence[Any]) -> Any:
        where = {"target": "cuda"} if any(map(is_on_device, args)) else {}
        return frittata.optimize(module, tuple(args), **{**where, **chosen})

    return CapturedGraph(graph, optimize)
