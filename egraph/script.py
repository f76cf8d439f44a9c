"""The text form of models: `show` prints, `parse` in `script_parser` reads it back to the same terms.

    def main(
        x: f32[2, n],
        param fc_weight = "fc.weight": f32[3, 4],
    ) -> f32[2, n]:
        e1 = exp(load(x))
        v1: f32[2, n] = build(mul(e1, add(e1, f32(0.5))), shape=(2, n))
        return v1

Every tensor has a line with its type; elements stand inside the line that builds from them, except those used more
than once, which have lines of their own. Expressions are Python's; operators take operands first, then attributes
by name. `f32(0.5)` is a constant, exact to the bit. A name in a shape is a symbolic dim. On request a line
`data "fc.weight" = "..."` for each param follows, with its bytes in base64 (`script_data`).
`and_`, `or_` and `not_` stand for operators whose names Python keeps for itself.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from keyword import iskeyword
from typing import Any

from frittata.egraph import dtypes, script_data, shapes, terms
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, Atom, IndexMap, Quot, Var
from frittata.egraph.model import Function, Model, short_origin
from frittata.egraph.ops import registry
from frittata.egraph.script_parser import is_name, parse
from frittata.egraph.shapes import Shape, Sym
from frittata.egraph.terms import Scalar, TensorType, Term

__all__ = ["parse", "show", "show_attr", "show_term"]

_LONGEST_LINE = 160
_DEEPEST = 24  # Python's parser refuses more than 200 open parentheses
_OURS = re.compile(r"[ve]\d+|param")


def show(model: Model, data: bool = False) -> str:
    """Print a model as script; values of params are not part of it, unless their `data` is asked for.

    >>> from frittata.egraph.ops.registry import tensor
    >>> x = tensor("input", name="x", shape=(2, 3), dtype="f32")
    >>> print(show(Model({"main": Function((x,), (tensor("relu", x),))})))
    def main(
        x: f32[2, 3],
    ) -> f32[2, 3]:
        v1: f32[2, 3] = relu(x)
        return v1
    <BLANKLINE>
    """
    parts = [_function(name, function) for name, function in model.functions.items()]
    if data and model.params:
        parts.append(script_data.lines({_quoted(name): value for name, value in model.params.items()}))
    return "\n".join(parts)


def table(model: Model) -> str:
    """Print every function as a table, a row for each tensor: its name, operator, operands, type and origin."""
    rows = [("name", "operator", "operands and attributes", "type", "origin")]
    for name, function in model.functions.items():
        writer = _Writer(function.outputs, function.inputs)
        writer.declare_leaves()
        results = writer.write()
        for term in terms.walk(*function.inputs, *function.outputs):
            if isinstance(term.type, TensorType):
                origin = short_origin(model.origin_by_term.get(term, ""))
                rows.append((*writer.described(term), show_type(term.type), origin))
        rows.append((name, "return", ", ".join(results), "", ""))
    widths = [min(60, max(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    cut = ([cell if len(cell) <= 60 else f"{cell[:57]}..." for cell in row] for row in rows)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def show_term(term: Term) -> str:
    """Print one term, leaves by name: lines for what it shares, then the term itself.

    >>> from frittata.egraph.ops.registry import element
    >>> e = element("iota", axis=-1, extent=3, dtype="f32")
    >>> print(show_term(element("mul", e, element("exp", e))))
    mul(iota(axis=-1, extent=3, dtype='f32'), exp(iota(axis=-1, extent=3, dtype='f32')))
    """
    writer = _Writer((term,))
    writer.declare_leaves()
    last = writer.write()
    return "\n".join([*writer.lines, last[0]])


def show_attr(value: Any) -> str:
    """Print an attribute as the parser reads it.

    Raises: ModelError if it has no text form.
    """
    match value:
        case Scalar():
            return _scalar(value)
        case Sym(name=name):
            return name if is_name(name) else f"Sym({name!r})"
        case tuple():
            inner = ", ".join(map(show_attr, value))  # pyright: ignore[reportUnknownArgumentType]
            return f"({inner},)" if len(value) == 1 else f"({inner})"  # pyright: ignore[reportUnknownArgumentType]
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case bool() | int() | float() | str() | None:
            return repr(value)
        case IndexMap():
            return _index_map(value)
        case _:
            raise ModelError(
                f"attribute {value!r} has no text form", do="use numbers, strings, tuples, symbols or maps"
            )


def show_type(type_: TensorType) -> str:
    """Print the type of a tensor; `f32[()]` has no axes."""
    return f"{type_.dtype}[{_dims(type_.shape)}]"


def _dims(shape: Shape) -> str:
    return ", ".join(map(show_attr, shape)) or "()"


def _function(name: str, function: Function) -> str:
    if not is_name(name):
        raise ModelError(f"function name {name!r} is no identifier", do="rename it")
    writer = _Writer(function.outputs, function.inputs)
    header = writer.declare_leaves()
    results = writer.write()
    types = [show_type(out.type) for out in function.outputs if isinstance(out.type, TensorType)]
    returned = types[0] if len(types) == 1 else f"({', '.join(types)})"
    lines = [
        f"def {name}(",
        *(f"    {line}," for line in header),
        f") -> {returned}:",
        *(f"    {line}" for line in writer.lines),
        f"    return {', '.join(results) or '()'}",
    ]
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes terms as lines, arguments first; `text_by_term` is how a term is named where it is used."""

    def __init__(self, roots: tuple[Term, ...], inputs: tuple[Term, ...] = ()) -> None:
        self.lines: list[str] = []
        self._roots = roots
        self._order = list(terms.walk(*roots))
        self._uses = Counter(arg for term in self._order for arg in term.args)
        self._inputs = dict.fromkeys((*inputs, *(t for t in self._order if t.op == "input")))
        self._text_by_term: dict[Term, str] = {}
        self._depth_by_term: dict[Term, int] = {}
        self._counts: Counter[str] = Counter()

    def declare_leaves(self) -> list[str]:
        """Name inputs and params; return their declarations."""
        leaves = [*self._inputs, *(term for term in self._order if term.op == "param")]
        taken: set[str] = set()
        declared: list[str] = []
        for term in leaves:
            name = term.attrs[0]
            word = _free_word(name, taken)
            taken.add(word)
            self._text_by_term[term] = word
            assert isinstance(term.type, TensorType)
            kind = "param " if term.op == "param" else ""
            rename = "" if word == name else f" = {_quoted(name)}"
            declared.append(f"{kind}{word}{rename}: {show_type(term.type)}")
        return declared

    def write(self) -> list[str]:
        """Write all lines; return how the roots are named."""
        for term in self._order:
            if term not in self._text_by_term:
                self._text_by_term[term] = self._place(term)
        return [self._text_by_term[root] for root in self._roots]

    def described(self, term: Term) -> tuple[str, str, str]:
        """Return how a term that was written is named, its operator, and its operands and attributes."""
        if term.op in ("input", "param"):
            return self._text_by_term[term], term.op, ""
        inner = self._call(term).partition("(")[2].removesuffix(")")
        return self._text_by_term[term], term.op, inner

    def _place(self, term: Term) -> str:
        """Give a term a line of its own, or return its text for the line that uses it."""
        if term.op == "const" or (term.op == "full" and term.shape == ()):
            return _scalar(term.attrs[0])
        text = self._call(term)
        if isinstance(term.type, TensorType):
            name = self._next("v")
            self.lines.append(f"{name}: {show_type(term.type)} = {text}")
            return name
        depth = 1 + max((self._depth_by_term.get(arg, 0) for arg in term.args), default=0)
        is_shared = self._uses[term] > 1 and term.op not in ("load", "iota")
        if is_shared or depth > _DEEPEST or len(text) > _LONGEST_LINE:
            name = self._next("e")
            self.lines.append(f"{name} = {text}")
            return name
        self._depth_by_term[term] = depth
        return text

    def _call(self, term: Term) -> str:
        labels = [label for label, _ in registry.get(term.op, term.sort).attrs]
        operands = [self._text_by_term[arg] for arg in term.args]
        attrs = [f"{label}={show_attr(value)}" for label, value in zip(labels, term.attrs, strict=True)]
        word = f"{term.op}_" if iskeyword(term.op) else term.op
        return f"{word}({', '.join([*operands, *attrs])})"

    def _next(self, letter: str) -> str:
        self._counts[letter] += 1
        return f"{letter}{self._counts[letter]}"


def _free_word(name: str, taken: set[str]) -> str:
    """Return an identifier for a leaf: fc.weight -> fc_weight, 0.bias -> p0_bias, v1 -> v1_."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not word or word[0].isdigit():
        word = f"p{word}"
    while word in taken or iskeyword(word) or _OURS.fullmatch(word):
        word += "_"
    return word


def _quoted(text: str) -> str:
    inner = repr(text)[1:-1]
    return repr(text) if '"' in inner else f'"{inner}"'


def _scalar(scalar: Scalar) -> str:
    """f32(0.1), i64(-3), bool(True), f32(nan); other NaNs, and what digits do not give back, by their bits."""
    value = scalar.value
    if isinstance(value, float):
        if math.isfinite(value):
            text = repr(value) if scalar.dtype == "f64" else _short(value, scalar.dtype)
        else:
            text = str(value)
        if Scalar.of(float(text), scalar.dtype) != scalar:
            text = f"bits=0x{scalar.bits:x}"
    else:
        text = repr(value)
    return f"{scalar.dtype}({text})"


def _short(value: float, dtype: str) -> str:
    text = str(dtypes.to_numpy(dtype).type(value))
    return text if set(text) & set(".en") else f"{text}.0"  # bfloat16 writes -0, which would be read as an integer


def _index_map(mapping: IndexMap) -> str:
    sources = [_affine(source, mapping.result) for source in mapping.sources]
    listed = f"({sources[0]},)" if len(sources) == 1 else f"({', '.join(sources)})"
    return f"index_map(source={show_attr(mapping.source)}, result={show_attr(mapping.result)}, sources={listed})"


def _affine(value: Affine, result: Shape) -> str:
    parts = [_atom(atom, result) + (f"*{factor}" if factor != 1 else "") for atom, factor in value.terms]
    if value.constant or not parts:
        parts.append(str(value.constant))
    return " + ".join(parts)


def _atom(atom: Atom, result: Shape) -> str:
    if isinstance(atom, Var):
        if isinstance(atom.key, str):
            return f"loop({atom.key!r}, {show_attr(atom.extent)})"
        if shapes.dim_at(result, atom.key) == atom.extent:
            return f"a{-atom.key}"
        return f"axis({atom.key}, {show_attr(atom.extent)})"
    inner = _affine(atom.of, result)
    is_atom = atom.of.constant == 0 and len(atom.of.terms) == 1 and atom.of.terms[0][1] == 1
    sign = "//" if isinstance(atom, Quot) else "%"
    return f"({inner if is_atom else f'({inner})'} {sign} {atom.by})"
