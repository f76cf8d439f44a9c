"""What the CUDA emitters hand to the runtime: source of one kernel and how it is launched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.lower import array_names, identifier, result_names

MOST_THREADS = 256
"""The threads of a block, at most, but for long rows and teams; all that a thread can address fits into registers."""
SHARED_BYTES = 48 << 10
"""The shared memory that a block may declare on every device."""
MULTIPROCESSORS = 132
"""How many there are on the device that launches are shaped for."""
ENOUGH_THREADS = MULTIPROCESSORS * 2048
"""What that device holds at a time: where there would be fewer, each does less."""


@dataclass(frozen=True)
class CudaKernel:
    """Source of a function over flat device arrays, operands first, then results; booleans are bytes.

    It is launched with `blocks` blocks of `threads` threads.
    """

    name: str
    source: str
    blocks: int
    threads: int
    dtypes: tuple[str, ...]
    """Of the arrays, in order."""
    status_words: int = 0
    """If there are any, a last array of int64 takes indices that lie outside of their axis."""
    resident: int = 0
    """How many blocks a multiprocessor is to hold at a time, which bounds the registers; 0 leaves that open."""


def cuda_kernel(
    name: str,
    bodies: tuple[Term, ...],
    blocks: int,
    threads: int,
    lines: Sequence[str],
    notes: Iterable[str] = (),
    status_words: int = 0,
    resident: int = 0,
) -> CudaKernel:
    """Put the head around the lines of a body: what it computes and how it is launched."""
    arrays = [*array_names(bodies).items(), *zip(bodies, result_names(bodies), strict=True)]
    parameters = ", ".join([*(array for _, array in arrays), *(["status"] if status_words else [])])
    text = [
        *source.comment(bodies, result_names(bodies)),
        *(f"# {note}" for note in notes),
        f"# {identifier(name)}[{blocks}, {threads}]({parameters})",
        "@cuda.jit",
        f"def {identifier(name)}({parameters}):",
        *lines,
    ]
    dtypes = tuple(term.dtype for term, _ in arrays)
    return CudaKernel(identifier(name), "\n".join(text) + "\n", blocks, threads, dtypes, status_words, resident)


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def power_of_two(least: int, most: int) -> int:
    """Return the power of two that is at least `least`, but no more than `most`."""
    return min(1 << max(0, least - 1).bit_length(), most)
