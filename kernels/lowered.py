"""What a template hands to the runtime: generated source, what fills its argument table, and how many chunks it has.

A kernel is `void name(int64* table, int64 chunk)`. Entry i of the table is the address of what `arguments[i]` stands
for. Buffers are row-major and contiguous. Those between kernels start at a cache line; arguments, constants and outputs
of the program are aligned to one element. Elements are f32, f64, i32, i64, and bool as one byte.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from frittata.egraph import program
from frittata.egraph.terms import Scalar, Term

ALIGNMENT_BYTES = 64

Array = NDArray[Any]
Pack = Callable[..., Array]
"""Takes the values of constant operands in their shapes, returns one array in the layout that the kernel reads."""


def aligned(size_bytes: int) -> int:
    """Round a size up to whole cache lines."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class Operand:
    """The address of what the kernel reads of a buffer, number `index` of `program.operands_of(*bodies)`.

    It begins `start` bytes in.
    """

    index: int
    start: int = 0


@dataclass(frozen=True)
class Unread:
    """No address: an operand that the kernel reads only in packed form."""


@dataclass(frozen=True)
class Result:
    """The address of the buffer that body number `index` fills."""

    index: int


@dataclass(frozen=True)
class PackedConstant:
    """The address of an array computed once, before run time, from constant operands.

    `key` tells apart functions that pack the same operands differently: weights are packed once for each key.
    """

    operands: tuple[int, ...]
    pack: Pack = field(compare=False)
    key: str


@dataclass(frozen=True, eq=False)
class Table:
    """The address of a constant array, such as int32 offsets."""

    array: Array


@dataclass(frozen=True)
class Scratch:
    """The address of `chunks * stride_bytes` bytes that live while the step runs; chunk c owns the c-th stride.

    The kernel itself adds `chunk * stride_bytes`. What the memory holds at first is not defined.
    """

    bytes_per_chunk: int

    @property
    def stride_bytes(self) -> int:
        """The distance between the memory of two chunks: whole cache lines."""
        return aligned(self.bytes_per_chunk)


@dataclass(frozen=True)
class Status:
    """The address of `words` int64 in which a kernel notes what it refuses; they are 0 before the run.

    Word i belongs to look-up number i of the bodies: see `lookups.sites`.
    """

    words: int


@dataclass(frozen=True)
class Counter:
    """The address of one int64 that is 0 before the step, and that its chunks leave at 0."""


@dataclass(frozen=True)
class Number:
    """No place: the number itself is what the kernel takes."""

    value: int


@dataclass(frozen=True)
class Held:
    """A place in the memory of a `Walk`, `offset` bytes in."""

    offset: int


@dataclass(frozen=True)
class Within:
    """A place in a buffer of the program, `offset` bytes in."""

    buffer: str
    offset: int


@dataclass(frozen=True, eq=False)
class Call:
    """All chunks of a kernel, one after the other: where its operands and its result lie.

    Its scratch memory is that of the `Walk`, `scratch` bytes in.
    """

    kernel: LoweredKernel
    operands: tuple[Held | Within | Number, ...]
    result: Held | Within | None = None
    scratch: int = 0


@dataclass(frozen=True, eq=False)
class Walk:
    """The address of rows (kernel, table, chunks), as the driver has them, then the row with which each chunk begins.

    The calls of all chunks stand one after the other; the last number is how many they are. `size_bytes` of memory are
    theirs alone: `borders` says which elements it begins with, by offset in bytes, number and value.
    """

    calls: tuple[tuple[Call, ...], ...]
    size_bytes: int
    borders: tuple[tuple[int, int, Scalar], ...]


Argument = Operand | Unread | Result | PackedConstant | Table | Scratch | Status | Counter | Walk


def addresses(bodies: tuple[Term, ...], read: Container[Term] | None = None) -> list[Argument]:
    """Return what a table begins with: the operands of bodies, Unread where only others are `read`, and the results."""
    operands = enumerate(program.operands_of(*bodies))
    given = [Operand(number) if read is None or leaf in read else Unread() for number, leaf in operands]
    return [*given, *map(Result, range(len(bodies)))]


@dataclass(frozen=True, eq=False)
class LoweredKernel:
    """Generated source with all that compiling and calling it takes.

    `source` defines the function `name(table, chunk)`; `namespace` holds what it calls; `key` tells apart what the
    namespace's intrinsics emit, which the source does not show. Equal (source, key) is one compiled kernel.
    `chunks` depends on shapes only, never on the number of threads: that keeps results the same bit for bit.
    """

    name: str
    source: str
    namespace: Mapping[str, Any]
    chunks: int
    arguments: tuple[Argument, ...]
    key: str = ""


@dataclass(frozen=True, eq=False)
class HostStep:
    """A step in Python between kernels: `run(operands, results)` fills the results.

    Operands come in the order of `program.operands_of(*bodies)`; all arrays are row-major and contiguous.
    """

    name: str
    run: Callable[[Sequence[Array], Sequence[Array]], None]


class HostTemplate(program.Template, Protocol):
    """A template whose steps run in Python."""

    def lower_host(self, name: str, bodies: tuple[Term, ...]) -> HostStep:
        """Return the step that computes `bodies`, whose operands are named as for kernels."""
        ...


class KernelTemplate(program.Template, Protocol):
    """A template that can also write its kernels."""

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the kernel that computes `bodies`, `build` terms of one shape, as the function `name`.

        `constants` names the operands known before run time. The runtime gives operands the names x0, x1, ... in the
        order of `program.operands_of(*bodies)`, so that kernels equal up to names are lowered and compiled once.

        Raises: LoweringError if `estimate` would return None.
        """
        ...
