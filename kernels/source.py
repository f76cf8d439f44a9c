"""Writing a loop nest as Python source that numba compiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from frittata.egraph import terms
from frittata.egraph.terms import Term
from frittata.kernels import spelling
from frittata.kernels.loops import (
    Accumulate,
    Accumulator,
    Assign,
    AssignIndex,
    Lookup,
    Loop,
    Row,
    Statement,
    Store,
)

INDENT = "    "
_WIDTH = 116

Special = Callable[[Statement], list[str] | None]
"""Lines that stand for a statement, or None for the usual ones; of a loop only the lines above its body."""


def write(body: list[Statement], special: Special, level: int = 1) -> Iterator[str]:
    """Yield the lines of a block."""
    for statement in body:
        lines = special(statement)
        for line in _lines(statement) if lines is None else lines:
            yield INDENT * level + line
        if isinstance(statement, Loop):
            yield from write(statement.body, special, level + 1)


def _lines(statement: Statement) -> list[str]:
    match statement:
        case Assign(name=name, value=value):
            return [f"{name} = {spelling.expression(value)}"]
        case AssignIndex(name=name, index=index, clamp=None):
            return [f"{name} = {spelling.index(index)}"]
        case AssignIndex(name=name, index=index, clamp=extent):
            return [f"{name} = min(max({spelling.index(index)}, 0), {extent} - 1)"]
        case Lookup(name=name, value=value, extent=extent, site=site):
            return [
                f"{name} = np.int64({spelling.expression(value)})",
                f"if {name} < 0 or {name} >= {extent}:",
                f"{INDENT}status[{site}] = {name}",
                f"{name} = min(max({name}, 0), {extent} - 1)",
            ]
        case Accumulator(name=name, fold=fold, dtype=dtype):
            return [f"{name} = {spelling.neutral(fold, dtype)}"]
        case Accumulate(name=name, fold=fold, value=value):
            return [spelling.accumulation(name, fold, value)]
        case Store(array=array, offset=offset, value=value):
            return [f"{array}[{spelling.index(offset)}] = {spelling.stored(value)}"]
        case Row(array=array, dtype=dtype, extent=extent):
            return [f"{array} = np.empty({extent}, {spelling.memory_dtype(dtype)})"]
        case Loop(var=var, extent=extent):
            return [f"for {var} in range({extent}):"]


def function(name: str, comments: Iterable[str], body: Iterable[str]) -> str:
    """Write a kernel: comments, its head, its body."""
    return "\n".join([*comments, f"def {name}(table, chunk):", *deeper(body)]) + "\n"


def deeper(lines: Iterable[str]) -> Iterator[str]:
    """Indent lines by one level."""
    return (INDENT + line for line in lines)


# ---- the comment that opens a kernel ---------------------------------------------------------------------------------


def comment(bodies: tuple[Term, ...], results: Sequence[str] = ()) -> list[str]:
    """Write the element terms of a kernel, of which those used often get names; results are out0, ... by default."""
    results = results or [f"out{i}" for i in range(len(bodies))]
    elements = tuple(body.args[0] for body in bodies)
    uses = Counter(arg for term in terms.walk(*elements) for arg in term.args if arg.sort == "element")
    text: dict[Term, str] = {}
    lines: list[str] = []
    for term in terms.walk(*elements):
        if term.sort == "tensor":
            text[term] = str(term.attrs[0])
            continue
        text[term] = _text(term, text)
        if uses[term] > 1 and term.op not in ("load", "const"):
            name = f"e{len(lines)}"
            lines.append(f"{name} = {text[term]}")
            text[term] = name
    for body, element, result in zip(bodies, elements, results, strict=True):
        where = f" at {body.attrs[1]}" if body.op == "part" else ""
        lines.append(f"{result}: {body.type}{where} = {text[element]}")
    return [piece for line in lines for piece in _wrapped(line)]


def call_comment(body: Term) -> list[str]:
    """Write the opaque operator that a kernel runs."""
    operands = [f"{leaf.attrs[0]}: {leaf.type}" for leaf in body.args]
    return [*_wrapped(f"{body.type} = {body.op}({', '.join([*operands, *map(str, body.attrs)])})")]


def _text(term: Term, text: dict[Term, str]) -> str:
    if term.op == "const":
        return str(term.attrs[0])
    return f"{term.op}({', '.join([*(text[arg] for arg in term.args), *map(str, term.attrs)])})"


def _wrapped(line: str) -> Iterator[str]:
    lead = "# "
    while len(lead + line) > _WIDTH:
        cut = line.rfind(" ", 0, _WIDTH - len(lead))
        if cut <= 0:
            break
        yield lead + line[:cut]
        line, lead = line[cut + 1 :], "#     "
    yield lead + line
