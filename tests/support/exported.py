"""Models that torch exports to ONNX, for the tests of that front end."""

from __future__ import annotations

import io
import logging
import warnings
from typing import Any

import onnx
import torch
from torch import nn

NAMES = ["x"]


def to_onnx(module: nn.Module, *args: torch.Tensor, dynamo: bool = False, **options: Any) -> onnx.ModelProto:
    """Export a module by either of torch's exporters, which both warn about themselves."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            program = torch.onnx.export(module, args, dynamo=True, verbose=False, input_names=NAMES, **options)
            assert program is not None
            return program.model_proto
        file: Any = io.BytesIO()
        torch.onnx.export(module, args, file, dynamo=False, input_names=NAMES, **options)
        return onnx.load_from_string(file.getvalue())


def drawn(module: nn.Module) -> nn.Module:
    """Draw the vectors among weights and statistics, so that none is all zeros or ones, and set eval mode."""
    for name, value in module.state_dict().items():
        if value.dim() == 1:
            with torch.no_grad():
                value.uniform_(0.5, 1.5) if "var" in name else value.normal_()
    return module.eval()
