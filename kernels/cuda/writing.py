"""Statements of loop nests as numba.cuda source: 32-bit indices, and operators that numba knows on the device.

Maxima and minima of float32, `maximum_f32` and `minimum_f32` of kernels/cuda/device.py, are one instruction that passes
NaN on; remainders and rounded quotients of floats are functions of kernels/cuda/remainders.py. Index variables are
int64 to numba and never negative where they subscript; `uint32(...)` around a subscript makes LLVM narrow all of its
arithmetic and spares the wraparound of negative indices. Quotients get names:

    x[uint32((i // 17)*768 + k0)]  ->  q0 = int32(uint32(i) // uint32(17)); x[uint32(q0*768 + k0)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from frittata.egraph import program, shapes
from frittata.egraph.indexing import Affine, Atom, Quot, Rem, Var, var
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import source, spelling
from frittata.kernels.loops import (
    Accumulate,
    Apply,
    Assign,
    AssignIndex,
    Constant,
    Expression,
    Load,
    Local,
    Lookup,
    Loop,
    Position,
    Row,
    Statement,
    Store,
    map_values,
)

INDEX_LIMIT = 1 << 31
"""Arrays with as many elements or more are indexed with 64 bits."""

_TEXT_BY_OP = {
    **spelling.TEXT_BY_OP,
    **{"floor": "math.floor({0})", "ceil": "math.ceil({0})"},
    **{"max_f32": "maximum_f32({0}, {1})", "min_f32": "minimum_f32({0}, {1})"},
    "mod": "({0} % {1})",
    **{f"{op}_{dtype}": f"{op}_{dtype}({{0}}, {{1}})" for op in ("mod", "floordiv") for dtype in ("f32", "f64")},
    "shuffle": "cuda.shfl_xor_sync(0xffffffff, {0}, half)",
    **{"and": "({0} & {1})", "or": "({0} | {1})"},  # without branches
}
_FIRST_INTEGRAL = {"f32": 2.0**23, "f64": 2.0**52}
"""From here on all floats are whole numbers."""
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True)
class Writer:
    """Writes statements; `wide` indices have 64 bits.

    Loops over `unrolled` variables are short, of constant extent: what they add to an index is in the instruction, if
    the rest is computed once.
    """

    wide: bool = False
    unrolled: frozenset[str] = frozenset()

    def lines(self, statement: Statement) -> list[str] | None:
        """Return the lines of a statement; None for loops and what every target spells the same."""
        dialect = self._dialect
        match statement:
            case Assign(name=name, value=value):
                return [f"{name} = {spelling.expression(value, dialect)}"]
            case AssignIndex(name=name, index=index, clamp=None):
                return [f"{name} = {self.index(index)}"]
            case AssignIndex(name=name, index=index, clamp=extent) if extent is not None:
                if self.wide or not _is_small(index):
                    return [f"{name} = min(max({self.index(index)}, 0), {extent - 1})"]
                return [f"{name} = min(max(int32({self.index(index)}), int32(0)), int32({extent - 1}))"]
            case Accumulate(name=name, fold="max" | "min" as fold, value=value) if value.dtype == "f32":
                step = Apply(f"{fold}_f32", (Local(name, "f32"), value), "f32")
                return [f"{name} = {spelling.expression(step, dialect)}"]
            case Accumulate(name=name, fold=fold, value=value):
                return [spelling.accumulation(name, fold, value, dialect)]
            case Lookup(name=name, value=value, extent=extent, site=site):
                return [
                    f"{name} = np.int64({spelling.expression(value, dialect)})",
                    f"if {name} < 0 or {name} >= {extent}:",
                    f"{source.INDENT}status[{site}] = {name}",
                    f"{name} = min(max({name}, 0), {extent - 1})",
                ]
            case Store(array=array, offset=offset, value=value):
                return [f"{array}[{self.subscript(offset)}] = {spelling.stored(value, dialect)}"]
            case Row(array=array, dtype=dtype, extent=extent):
                return [f"{array} = cuda.local.array({extent}, {spelling.memory_dtype(dtype)})"]
            case _:
                return None

    def write(self, body: list[Statement], level: int = 1) -> list[str]:
        """Return the lines of a block."""
        return list(source.write(body, self.lines, level))

    def value(self, value: Expression) -> str:
        """Spell an expression."""
        return spelling.expression(value, self._dialect)

    @property
    def _dialect(self) -> spelling.Dialect:
        return spelling.Dialect(_TEXT_BY_OP, self.subscript)

    def index(self, at: Affine) -> str:
        """Spell an index whose quotients have names, or that is one quotient; with 64 bits if what it divides has more.

        What is divided counts places that no array needs to have: those of an outer product that is summed up, say.
        """
        match at:
            case Affine(constant=0, terms=((Quot(of, by) | Rem(of, by) as atom, 1),)) if (
                not self.wide and of.bounds()[0] >= 0 and of.bounds()[1] < 1 << 32 and _is_small(at)
            ):
                sign = "//" if isinstance(atom, Quot) else "%"
                return f"int32(uint32({spelling.index(of)}) {sign} uint32({by}))"
            case _:
                return spelling.index(at)

    def subscript(self, at: Affine) -> str:
        """Spell an index that is not negative."""
        step = Affine(at.constant, tuple(term for term in at.terms if self._is_unrolled(term[0])))
        rest = Affine(0, tuple(term for term in at.terms if not self._is_unrolled(term[0])))
        if self.unrolled and step != Affine() and rest.terms and min(step.bounds()[0], rest.bounds()[0]) >= 0:
            start = self.index(rest) if self.wide else f"uint32({self.index(rest)})"
            return f"uint64({start}) + uint64({spelling.index(step)})"
        text = self.index(at)
        return text if self.wide or not at.terms else f"uint32({text})"

    def _is_unrolled(self, atom: Atom) -> bool:
        return isinstance(atom, Var) and atom.key in self.unrolled


def writer_for(bodies: tuple[Term, ...], unrolled: Iterable[str] = ()) -> Writer:
    """Return the writer for kernels that compute bodies."""
    arrays = (*program.operands_of(*bodies), *bodies)
    return Writer(any(shapes.size(term.shape) >= INDEX_LIMIT for term in arrays), frozenset(unrolled))


def numbers_of_block(radices: Sequence[int]) -> Iterator[str]:
    """Yield the lines that split a block's number into block0, block1, ..., the last one fastest."""
    inner = prod(radices)
    for n, radix in enumerate(radices):
        inner //= radix
        number = "uint32(cuda.blockIdx.x)" + (f" // uint32({inner})" if inner > 1 else "")
        yield f"block{n} = int32({number}{f' % uint32({radix})' if n else ''})"


# ---- operators -------------------------------------------------------------------------------------------------------


def spell_out(body: list[Statement]) -> None:
    """Write the operators that numba lacks on the device in terms of others, in place."""
    map_values(body, _spelled_out)


def _spelled_out(value: Expression) -> Expression:
    match value:
        case Apply(op="sign", args=(x,), dtype=dtype):
            one, minus = (Constant(Scalar.of(number, dtype)) for number in (1, -1))
            return _where("gt", x, 0, one, _where("lt", x, 0, minus, x))
        case Apply(op="round", args=(x,), dtype=dtype):
            large = _FIRST_INTEGRAL[dtype]
            shift = _where("lt", x, 0, Constant(Scalar.of(-large, dtype)), Constant(Scalar.of(large, dtype)))
            rounded = Apply("sub", (Apply("add", (x, shift), dtype), shift), dtype)
            return _where("lt", Apply("abs", (x,), dtype), large, rounded, x)
        case Apply(op="max" | "min" as op, args=args, dtype="f32"):
            return Apply(f"{op}_f32", args, "f32")
        case Apply(op="mod" | "floordiv" as op, args=args, dtype="f32" | "f64" as dtype):
            return Apply(f"{op}_{dtype}", args, dtype)
        case Apply(op=op, args=(Position(index=at, dtype="i64"), Constant(value=limit))) if (
            op in _COMPARISONS and _is_small(at) and abs(int(limit.value)) < INDEX_LIMIT
        ):
            return Apply(op, (Position(at, "i32"), Constant(Scalar.of(limit.value, "i32"))), "bool")
        case _:
            return value


def _is_small(at: Affine) -> bool:
    """Whether an index has 32 bits, also if it is negative."""
    low, high = at.bounds()
    return low >= -INDEX_LIMIT and high < INDEX_LIMIT


def _where(compare: str, x: Expression, limit: float, yes: Expression, no: Expression) -> Expression:
    test = Apply(compare, (x, Constant(Scalar.of(limit, x.dtype))), "bool")
    return Apply("where", (test, yes, no), yes.dtype)


# ---- quotients -------------------------------------------------------------------------------------------------------


@dataclass
class _Block:
    """A block that is being written again: its variables, the quotients that have names in it, its statements."""

    variables: set[int | str]
    name_by_atom: dict[Atom, Affine] = field(default_factory=dict[Atom, Affine])
    made: list[Statement] = field(default_factory=list[Statement])


def name_quotients(body: list[Statement], variables: Iterable[int | str], stem: str = "q") -> list[Statement]:
    """Give quotients and remainders names, each in the outermost block that knows it; `variables` are known before."""
    return _Naming(stem).block(body, [_Block(set(variables))])


class _Naming:
    def __init__(self, stem: str) -> None:
        self._stem = stem
        self._count = 0

    def block(self, body: list[Statement], around: list[_Block]) -> list[Statement]:
        here = around[-1]
        for statement in body:
            change_indices(statement, lambda at: self._named(at, around))
            if isinstance(statement, Loop):
                statement.body = self.block(statement.body, [*around, _Block({statement.var})])
            elif isinstance(statement, AssignIndex | Lookup):
                here.variables.add(statement.name)
            here.made.append(statement)
        return here.made

    def _named(self, at: Affine, around: list[_Block]) -> Affine:
        out = Affine(at.constant)
        for atom, factor in at.terms:
            out += (Affine(0, ((atom, 1),)) if isinstance(atom, Var) else self._name_of(atom, around)) * factor
        return out

    def _name_of(self, atom: Atom, around: list[_Block]) -> Affine:
        assert not isinstance(atom, Var)
        inner = type(atom)(self._named(atom.of, around), atom.by)
        value = Affine(0, ((inner, 1),))
        low, high = value.bounds()
        if low < 0:  # names stand for what is not negative
            return value
        block = next((block for i, block in enumerate(around) if _is_known(inner.of, around[: i + 1])), around[-1])
        if inner not in block.name_by_atom:
            name = f"{self._stem}{self._count}"
            self._count += 1
            block.made.append(AssignIndex(name, value))
            block.variables.add(name)
            block.name_by_atom[inner] = var(name, int(high) + 1)
        return block.name_by_atom[inner]


def change_indices(statement: Statement, change: Callable[[Affine], Affine]) -> None:
    """Replace the indices that a statement itself evaluates, in place."""
    if isinstance(statement, Loop):
        return
    map_values([statement], lambda value: _with_index(value, change))
    if isinstance(statement, Store):
        statement.offset = change(statement.offset)
    elif isinstance(statement, AssignIndex):
        statement.index = change(statement.index)


def _is_known(at: Affine, blocks: list[_Block]) -> bool:
    known = set[int | str]().union(*(block.variables for block in blocks))
    return at.variables() <= known


def _with_index(value: Expression, change: Callable[[Affine], Affine]) -> Expression:
    match value:
        case Load(array=array, offset=offset, dtype=dtype):
            return Load(array, change(offset), dtype)
        case Position(index=index, dtype=dtype):
            return Position(change(index), dtype)
        case _:
            return value
