"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
from typing import Any

import numba
import torch


def description() -> dict[str, Any]:
    """Return the facts that a number needs beside it."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "numba": numba.__version__,
        "python": platform.python_version(),
    }
