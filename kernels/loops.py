"""Loop nests: the small language between element terms and source.

Statements compute into locals, each assigned once in its block; arrays are flat and named. A body reads only operands,
rows that were filled by an earlier loop, and locals of the blocks around it.

    for i in range(128):                     Loop("i", 128, ..., parallel=True)
        max0 = -inf                            Accumulator("max0", "max", ...)
        for k0 in range(768):                  Loop("k0", 768, ...)
            max0 = max(max0, x[i*768 + k0])      Accumulate("max0", "max", Load("x", i*768 + k0))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from frittata.egraph.dtypes import DType
from frittata.egraph.indexing import Affine
from frittata.egraph.terms import Scalar


@dataclass(frozen=True)
class Local:
    """The value of a local."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Constant:
    """A number."""

    value: Scalar

    @property
    def dtype(self) -> DType:
        """The dtype of the number."""
        return self.value.dtype


@dataclass(frozen=True)
class Position:
    """An index as a value."""

    index: Affine
    dtype: DType


@dataclass(frozen=True)
class Load:
    """An element of an operand or a row, at a flat offset."""

    array: str
    offset: Affine
    dtype: DType


@dataclass(frozen=True)
class Apply:
    """A scalar operator of the registry; `dtype` is that of the result."""

    op: str
    args: tuple[Expression, ...]
    dtype: DType


Expression = Local | Constant | Position | Load | Apply


@dataclass
class Assign:
    """name = value."""

    name: str
    value: Expression


@dataclass
class AssignIndex:
    """name = index, clamped to 0 .. clamp - 1 if that is given."""

    name: str
    index: Affine
    clamp: int | None = None


@dataclass
class Lookup:
    """name = value, an integer, as an index clamped to 0 .. extent - 1; status[site] = value where it lies outside."""

    name: str
    value: Expression
    extent: int
    site: int


@dataclass
class Accumulator:
    """name = the neutral element of a fold."""

    name: str
    fold: str
    dtype: DType


@dataclass
class Accumulate:
    """name = name <fold> value."""

    name: str
    fold: str
    value: Expression


@dataclass
class Store:
    """array[offset] = value."""

    array: str
    offset: Affine
    value: Expression


@dataclass
class Row:
    """array = fresh private memory."""

    array: str
    dtype: DType
    extent: int


@dataclass
class Loop:
    """for var in range(extent): body."""

    var: str
    extent: int
    body: list[Statement] = field(default_factory=list["Statement"])
    parallel: bool = False


Statement = Assign | AssignIndex | Lookup | Accumulator | Accumulate | Store | Row | Loop


@dataclass(frozen=True)
class Array:
    """A flat array that a nest reads or writes."""

    name: str
    dtype: DType
    size: int


@dataclass
class Nest:
    """A whole kernel."""

    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    body: list[Statement]

    @property
    def status_words(self) -> int:
        """How many look-ups note their failure in the kernel's status."""
        return 1 + max((s.site for s in statements(self.body) if isinstance(s, Lookup)), default=-1)

    def rows(self) -> list[Row]:
        """Return the private rows in order."""
        return [s for s in statements(self.body) if isinstance(s, Row)]


def statements(body: list[Statement]) -> Iterator[Statement]:
    """Visit every statement, outer ones first."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body)


def values_of(statement: Statement) -> tuple[Expression, ...]:
    """Return the expressions that a statement itself evaluates."""
    if isinstance(statement, Assign | Lookup | Accumulate | Store):
        return (statement.value,)
    return ()


def indices_of(statement: Statement) -> tuple[Affine, ...]:
    """Return the index expressions that a statement itself evaluates, outside of its values."""
    match statement:
        case AssignIndex(index=index) | Store(offset=index):
            return (index,)
        case _:
            return ()


def parts(expression: Expression) -> Iterator[Expression]:
    """Visit an expression and all in it."""
    yield expression
    if isinstance(expression, Apply):
        for arg in expression.args:
            yield from parts(arg)


def reads(statement: Statement) -> Iterator[str]:
    """Visit the names of locals, accumulators and index variables that a statement and all in it read."""
    for inner in statements([statement]):
        if isinstance(inner, Accumulate):
            yield inner.name
        for index in indices_of(inner):
            yield from map(str, index.variables())
        for value in values_of(inner):
            for part in parts(value):
                if isinstance(part, Local):
                    yield part.name
                elif isinstance(part, Load | Position):
                    index = part.offset if isinstance(part, Load) else part.index
                    yield from map(str, index.variables())


def writes(statement: Statement) -> Iterator[str]:
    """Visit the names of locals, accumulators and index variables that a statement and all in it assign."""
    for inner in statements([statement]):
        if isinstance(inner, Assign | AssignIndex | Lookup | Accumulator | Accumulate):
            yield inner.name


def map_values(body: list[Statement], change: Callable[[Expression], Expression]) -> None:
    """Replace every expression, innermost first, in place."""
    for statement in statements(body):
        if isinstance(statement, Assign | Lookup | Accumulate | Store):
            statement.value = _mapped(statement.value, change)


def _mapped(value: Expression, change: Callable[[Expression], Expression]) -> Expression:
    if isinstance(value, Apply):
        value = replace(value, args=tuple(_mapped(arg, change) for arg in value.args))
    return change(value)


def substitute_indices(body: list[Statement], by_key: Mapping[int | str, Affine]) -> None:
    """Replace index variables wherever they are read, in place."""

    def change(value: Expression) -> Expression:
        match value:
            case Load(offset=offset):
                return replace(value, offset=offset.substitute(by_key))
            case Position(index=index):
                return replace(value, index=index.substitute(by_key))
            case _:
                return value

    map_values(body, change)
    for statement in statements(body):
        if isinstance(statement, Store):
            statement.offset = statement.offset.substitute(by_key)
        elif isinstance(statement, AssignIndex):
            statement.index = statement.index.substitute(by_key)
