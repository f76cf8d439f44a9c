"""Where a node of an exported graph comes from: a line of the model, and the call that it was decomposed from."""

from __future__ import annotations

import operator
import re
from pathlib import Path

import torch

_TORCH, _HERE = str(Path(torch.__file__).parent), str(Path(__file__).parent)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def origin(node: torch.fx.Node) -> str:
    """Return the user's source line as `file:line`."""
    return innermost(node.meta.get("stack_trace") or "")


def source_of(node: torch.fx.Node) -> tuple[str, str]:
    """Return the name and the operator of the call from which this one was decomposed."""
    sources = node.meta.get("from_node") or []
    if not sources or node.target is operator.getitem:
        return node.name, ""
    return sources[0].name, sources[0].target if "aten" in sources[0].target else ""


def innermost(trace: str) -> str:
    """Return the innermost frame outside torch, else the innermost; none of what we import by."""
    frames = [frame for frame in _FRAME.findall(trace) if not frame[0].startswith((_HERE, "<"))]
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    file, line = (own or frames or [("", "")])[-1]
    return f"{file}:{line}" if file else ""
