"""What the simulator is given: shared arrays are one for all threads of a block, whoever asks first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frittata.kernels.cuda import warps


def test_threads_that_ask_at_once_get_one_shared_array(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, empty, others = SimpleNamespace(_allocations={}), np.empty, list[Any]()

    def array(size: int) -> Any:
        return warps._shared(shared, size, np.float32, alignment=16)  # pyright: ignore[reportPrivateUsage]

    def interrupted(size: int, dtype: Any) -> Any:
        monkeypatch.setattr(np, "empty", empty)
        others.append(array(size))  # by another thread, before this one has noted its own
        return empty(size, dtype)

    monkeypatch.setattr(np, "empty", interrupted)
    assert array(4) is others[0] and array(4) is others[0]
    assert warps._shared(shared, 4, np.float32) is not others[0]  # pyright: ignore[reportPrivateUsage]
