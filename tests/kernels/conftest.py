"""Settings for the tests of kernels."""

import pytest

from frittata.kernels import compile as compiling
from frittata.kernels.compile import CompiledKernel


class _Nothing(dict[str, CompiledKernel]):
    """Keeps no kernels: what is compiled next is compiled as in another process."""

    def __setitem__(self, digest: str, kernel: CompiledKernel) -> None:
        pass


@pytest.fixture(autouse=True)
def other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every compilation be that of a process that has no kernels yet: tests change what emitters look at."""
    monkeypatch.setattr(compiling, "_KERNELS", _Nothing())
