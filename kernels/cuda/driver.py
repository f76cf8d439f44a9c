"""CUDA's driver: where its functions are, and what it refuses."""

from __future__ import annotations

from functools import cache
from typing import Any

from frittata.egraph.errors import CompileError
from frittata.kernels.cuda import device

_VERSION = 12000
_WAYS_OUT = {
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "install a CUDA toolkit that is no newer than the driver, or a newer driver",
    "CUDA_ERROR_INVALID_PTX": "report it, with the PTX that `fast.compilation.executable.ptx()` gives",
}
"""What to do about refusals, by the driver's names of them."""


@cache
def address(name: str) -> int:
    """Return where a function of the driver's is, as it was in CUDA 12.0.

    Raises: CompileError if there is none.
    """
    found, _ = check(device.driver().cuGetProcAddress(name.encode(), _VERSION, 0), name)
    return int(found)


def check(returned: tuple[Any, ...], what: str = "a launch", log: bytes | bytearray = b"") -> tuple[Any, ...]:
    """Return what a call of the driver gives besides its status; `log` is what its compiler says, up to a zero.

    Raises: CompileError if the status is not success.
    """
    status, *found = returned
    driver = device.driver()
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        told = text.decode() if isinstance(text, bytes) else str(text)
        where = log.partition(b"\0")[0].decode(errors="replace").strip()
        do = _WAYS_OUT.get(status.name, "")
        raise CompileError(f"CUDA's driver refuses {what}: {told} ({status.name})", where=where, do=do)
    return tuple(found)
