"""The plain form of a kernel: readable numba source over flat arrays, with nothing of ours in it.

It is what a kernel's `source` shows, a target of its own in the conformance tests, and how a program runs on a machine
whose vector width is not known.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import CompileError
from frittata.egraph.exporting import BUILTINS
from frittata.egraph.program import Kernel
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.halves import FUNCTIONS, HALVES
from frittata.kernels.lookups import Check, checks_of
from frittata.kernels.loops import Loop, Statement
from frittata.kernels.lower import identifier, lower, result_names

Array = NDArray[Any]

_SHOWN = {np.dtype(np.bool_): np.uint8, **{dtypes.to_numpy(dtype): np.uint16 for dtype in HALVES}}
"""What numba takes for the memory of other dtypes."""


@dataclass(frozen=True)
class PlainKernel:
    """Source of a function over flat arrays: operands, then results; booleans are bytes.

    If it looks values up, int64 words of status follow, in which it notes indices that lie outside of their axis.
    """

    name: str
    source: str
    is_parallel: bool


def plain_source(kernel: Kernel) -> str:
    """Return the plain source of a step of a program."""
    return write_plain(kernel.name, tuple(output.body for output in kernel.outputs)).source


def write_plain(name: str, bodies: tuple[Term, ...]) -> PlainKernel:
    """Lower bodies and write them as plain source."""
    nest = lower(bodies)
    is_parallel = any(isinstance(s, Loop) and s.parallel for s in nest.body)
    names = [array.name for array in (*nest.operands, *nest.results)]
    parameters = ", ".join([*names, "status"] if nest.status_words else names)
    lines = [
        *source.comment(bodies, result_names(bodies)),
        f'@numba.njit(parallel={is_parallel}, error_model="numpy")',
        f"def {identifier(name)}({parameters}):",
        *source.write(nest.body, _parallel_loop),
    ]
    return PlainKernel(identifier(name), "\n".join(lines) + "\n", is_parallel)


def _parallel_loop(statement: Statement) -> list[str] | None:
    if not isinstance(statement, Loop) or not statement.parallel:
        return None
    # numba counts parallel loops in uint64, which would make floats of index arithmetic
    return [
        f"for step in numba.prange({statement.extent}):",
        f"{source.INDENT}{statement.var} = np.int64(step)",
    ]


def compile_plain(name: str, bodies: tuple[Term, ...], *, parallel: bool = True) -> Callable[..., tuple[Array, ...]]:
    """Return a function of the operands' arrays that computes the bodies with the plain source.

    With `parallel=False` numba compiles it in a third of the time, for one thread.

    The function raises IndexRangeError if an index lies outside of its axis; `checked` tells what to call the look-ups.

    Raises: CompileError if numba refuses the source.
    """
    kernel = write_plain(name, bodies)
    filename = f"<frittata plain {kernel.name} {abs(hash(kernel.source)):x}>"
    linecache.cache[filename] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"np": np, "math": math, "numba": numba, **FUNCTIONS}
    text = kernel.source if parallel else kernel.source.replace("njit(parallel=True", "njit(parallel=False")
    exec(compile(text, filename, "exec"), scope)
    function = scope[kernel.name]

    def run(*arrays: Array, checked: Sequence[Check] | None = None) -> tuple[Array, ...]:
        words = checks_of(name, bodies) if checked is None else checked
        status = [np.zeros(len(words), np.int64)] if words else []
        results = tuple(np.empty(shapes.concrete(b.shape), dtypes.to_numpy(b.dtype)) for b in bodies)
        try:
            with BUILTINS:  # the first call compiles
                function(*(flat(array) for array in (*arrays, *results, *status)))
        except NumbaError as error:
            raise CompileError(f"kernel {kernel.name} does not compile: {error}", where=filename) from error
        for check, index in zip(words, status[0] if status else (), strict=True):
            if index:
                raise check.error(int(index))
        return results

    return run


def flat(array: Array) -> Array:
    """Return the elements in row-major order, booleans as bytes, halves as their bits: what plain source works on."""
    elements = np.ascontiguousarray(array).reshape(-1)
    return elements.view(_SHOWN.get(elements.dtype, elements.dtype))
