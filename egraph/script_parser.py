"""Reading the text form of models. Headers are read from tokens, bodies with `ast`; nothing is ever executed."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any, NoReturn

from frittata.egraph import dtypes, script_data, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, IndexMap, Quot, Rem, Var
from frittata.egraph.model import Array, Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Dim, Shape, Sym
from frittata.egraph.terms import Scalar, Sort, TensorType, Term

_INPUTS = ("input", "param")
_AXIS = re.compile(r"a([1-9]\d*)")
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf")}


def parse(text: str, file: str = "script") -> Model:
    """Read a model from script; its params have the values of its lines of data, if it has any.

    >>> model = parse("def main(x: f32[2, 3]) -> f32[2, 3]:\\n    v1: f32[2, 3] = relu(x)\\n    return v1")
    >>> model.main.outputs[0].op
    'relu'

    Raises: ModelError with `file:line:column` and the line.
    """
    given: Any = text
    if not isinstance(given, str):
        raise ModelError(f"a script is text, got a {type(given).__name__}", do="give its text, as path.read_text()")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    source = _Source(text, file)
    before, null, _ = text.partition("\0")
    if null:
        source.fail("a script has no null characters", before.count("\n") + 1, len(before.split("\n")[-1]) + 1)
    code, data = script_data.parted(text)
    tokens = _tokens(_Source(code, file))
    functions: dict[str, Function] = {}
    at = 0
    while at < len(tokens):
        header = _Header(source, tokens, at)
        if header.name in functions:
            source.fail(f"function {header.name} is defined twice", header.line, header.column)
        body = _statements(source, code, header.last_line, header.body_end)
        functions[header.name] = _Body(source, header).function(body)
        at = header.next_function
    if not functions:
        source.fail("there is no function", 1, 1, "start with `def main(...) -> ...:`")
    return Model(functions, _values(source, data, functions.values()))


def _values(
    source: _Source, data: Mapping[int, script_data.Data | None], functions: Iterable[Function]
) -> dict[str, Array]:
    params = {term.attrs[0]: term for function in functions for term in function.walk() if term.op == "param"}
    values: dict[str, Array] = {}
    for line, found in data.items():
        if found is None:
            source.fail("this is no line of data", line, 1, 'write data "name" = "..."')
        if found.name not in params:
            source.fail(f"no function has a param {found.name!r}", line, 1)
        try:
            values[found.name] = found.value(params[found.name])
        except ModelError as error:
            source.fail(error.what, line, 1)
    return values


@dataclass(frozen=True)
class _Source:
    text: str
    file: str

    def fail(self, what: str, line: int, column: int, do: str = "") -> NoReturn:
        """Raise ModelError at a place; lines and columns count from 1."""
        lines = self.text.split("\n")
        shown = f"\n    {lines[line - 1]}\n    {' ' * (column - 1)}^" if 0 < line <= len(lines) else ""
        raise ModelError(what, f"{self.file}:{line}:{column}{shown}", do)

    def fail_at(self, what: str, node: ast.AST, do: str = "") -> NoReturn:
        """Raise ModelError at a node."""
        self.fail(what, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, do)


def _tokens(source: _Source) -> list[tokenize.TokenInfo]:
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: list[tokenize.TokenInfo] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type not in skipped:
                found.append(token._replace(string=_name(token.string)) if token.type == tokenize.NAME else token)
    except tokenize.TokenError:
        pass  # something is not closed: the header ends too early, or `ast` says what in a body
    except SyntaxError as error:
        source.fail(error.msg, error.lineno or 1, error.offset or 1)
    return found


def is_name(text: str) -> bool:
    """Whether a name stands in a script as it is."""
    return text.isascii() and text.isidentifier() and not iskeyword(text)


def _name(word: str) -> str:
    """Return a name as Python reads it in a body: of letters that look alike some are one."""
    return unicodedata.normalize("NFKC", word)


def _statements(source: _Source, code: str, last_line: int, body_end: int) -> list[ast.stmt]:
    """Parse the lines after a header, as the body of an `if` that stands in the header's last line."""
    lines = code.split("\n")[last_line:body_end]
    if not any(line.strip() and not line.strip().startswith("#") for line in lines):
        source.fail("the function has no body", last_line, 1, "end it with `return`")
    try:
        tree = ast.parse("\n" * (last_line - 1) + "if 1:\n" + "\n".join(lines))
    except SyntaxError as error:
        source.fail(error.msg, error.lineno or last_line, error.offset or 1)
    except (RecursionError, MemoryError):
        source.fail("an expression is nested too deeply", last_line + 1, 1, "give parts of it lines of their own")
    first, *rest = tree.body
    assert isinstance(first, ast.If)
    if rest:
        source.fail_at("a line outside of a function", rest[0], "indent it")
    return first.body


class _Header:
    """`def name(x: type, param w = "name": type) -> type:`, read from tokens."""

    def __init__(self, source: _Source, tokens: list[tokenize.TokenInfo], at: int) -> None:
        self._source, self._tokens, self._at = source, tokens, at
        self.term_by_name: dict[str, Term] = {}
        self.inputs: list[Term] = []
        start = self._take("def", "a function starts with `def`")
        self.line, self.column = start.start[0], start.start[1] + 1
        at_name = self._place()
        self.name = self._word("the function's name")
        if not is_name(self.name):
            source.fail(f"function name {self.name!r} is no identifier", *at_name, "rename it")
        self._take("(")
        while self._peek() != ")":
            self._leaf()
            if self._peek() != ")":
                self._take(",")
        self._take(")")
        self._take("->", "a function gives the types of its results")
        self.results = self._results()
        self.last_line = self._take(":").start[0]
        if self._at < len(tokens) and tokens[self._at].type != tokenize.NEWLINE:
            source.fail("the body of a function starts in a line of its own", *self._place())
        self.next_function = self._find_next()
        ended = self.next_function >= len(tokens)
        self.body_end = len(source.text.split("\n")) if ended else tokens[self.next_function].start[0] - 1

    def _find_next(self) -> int:
        for at in range(self._at, len(self._tokens)):
            token = self._tokens[at]
            if token.string == "def" and token.start[1] == 0:
                return at
        return len(self._tokens)

    def _leaf(self) -> None:
        place = self._place()
        is_param = self._peek() == "param" and self._peek(1) != ":"
        if is_param:
            self._at += 1
        word = name = self._word("a name")
        if self._peek() == "=":
            self._at += 1
            name = self._string()
        self._take(":")
        type_ = self._type()
        kind = "param" if is_param else "input"
        term = registry.tensor(kind, name=name, shape=type_.shape, dtype=type_.dtype)
        if word in self.term_by_name:
            self._source.fail(f"{word} is declared twice", *place)
        self.term_by_name[word] = term
        if not is_param:
            self.inputs.append(term)

    def _results(self) -> list[TensorType]:
        if self._peek() != "(":
            return [self._type()]
        self._at += 1
        found: list[TensorType] = []
        while self._peek() != ")":
            found.append(self._type())
            if self._peek() != ")":
                self._take(",")
        self._at += 1
        return found

    def _type(self) -> TensorType:
        place = self._place()
        dtype = self._word("a type such as f32[2, n]")
        if dtype not in dtypes.NAMES:
            self._source.fail(f"no dtype {dtype!r}", *place, f"use one of {', '.join(dtypes.NAMES)}")
        self._take("[")
        dims: list[Dim] = []
        if self._peek() == "(":
            self._at += 1
            self._take(")")
        while self._peek() != "]":
            dims.append(self._dim())
            if self._peek() != "]":
                self._take(",")
        self._at += 1
        return TensorType(tuple(dims), dtype)

    def _dim(self) -> Dim:
        token = self._next()
        if token.type == tokenize.NUMBER and token.string.isdigit():
            return int(token.string)
        if token.string == "Sym" and self._peek() == "(":
            self._at += 1
            name = self._string()
            self._take(")")
            return Sym(name)
        if token.type == tokenize.NAME:
            return Sym(token.string)
        self._source.fail(f"{token.string!r} is no dim", token.start[0], token.start[1] + 1, "write a number or a name")

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].string if at < len(self._tokens) else ""

    def _place(self) -> tuple[int, int]:
        line, column = self._tokens[min(self._at, len(self._tokens) - 1)].start
        return line, column + 1

    def _next(self) -> tokenize.TokenInfo:
        if self._at >= len(self._tokens):
            lines = self._source.text.rstrip("\n").split("\n")
            self._source.fail("the script ends too early", len(lines), len(lines[-1]) + 1)
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, string: str, why: str = "") -> tokenize.TokenInfo:
        token = self._next()
        if token.string != string:
            found = repr(token.string.strip()) if token.string.strip() else "the end of the line"
            self._source.fail(f"expected {string!r}, found {found}", token.start[0], token.start[1] + 1, why)
        return token

    def _word(self, what: str) -> str:
        token = self._next()
        if token.type != tokenize.NAME:
            self._source.fail(f"expected {what}, found {token.string!r}", token.start[0], token.start[1] + 1)
        return token.string

    def _string(self) -> str:
        token = self._next()
        if token.type != tokenize.STRING:
            self._source.fail(f"expected a quoted name, found {token.string!r}", token.start[0], token.start[1] + 1)
        value = script_data.unquoted(token.string)
        if value is None:
            self._source.fail(f"{token.string} is no string", token.start[0], token.start[1] + 1)
        return value


@dataclass
class _Body:
    """The lines of one function."""

    source: _Source
    header: _Header
    term_by_name: dict[str, Term] = field(default_factory=dict)

    def function(self, statements: list[ast.stmt]) -> Function:
        """Read all lines; the last one returns."""
        self.term_by_name.update(self.header.term_by_name)
        *lines, last = statements
        for line in lines:
            self._line(line)
        if not isinstance(last, ast.Return):
            self.source.fail_at("the last line of a function returns", last, "end it with `return ...`")
        outputs = self._returned(last)
        declared = self.header.results
        if [out.type for out in outputs] != declared:
            found = ", ".join(str(out.type) for out in outputs)
            self.source.fail_at(f"returns {found}, declared {', '.join(map(str, declared))}", last)
        return Function(tuple(self.header.inputs), outputs)

    def _returned(self, statement: ast.Return) -> tuple[Term, ...]:
        match statement.value:
            case None:
                return ()
            case ast.Tuple(elts=nodes):
                return tuple(self.term(node, "tensor") for node in nodes)
            case node:
                return (self.term(node, "tensor"),)

    def _line(self, statement: ast.stmt) -> None:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                term = self.term(value, "tensor")
                declared = self._type(annotation)
                if term.type != declared:
                    self.source.fail_at(f"{name} is declared {declared}, but it is {term.type}", annotation)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                term = self.term(value, "element")
            case _:
                self.source.fail_at(
                    "this is no line of a script",
                    statement,
                    "write `name: type = ...` for tensors, `name = ...` for elements, and `return ...` last",
                )
        if name in self.term_by_name:
            self.source.fail_at(f"{name} is defined twice", statement)
        self.term_by_name[name] = term

    def _type(self, node: ast.expr) -> TensorType:
        match node:
            case ast.Subscript(value=ast.Name(id=dtype), slice=inner) if dtype in dtypes.NAMES:
                dims = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return TensorType(tuple(self._dim(dim) for dim in dims), dtype)
            case _:
                self.source.fail_at("this is no type", node, "write a type such as f32[2, n]")

    def _dim(self, node: ast.expr) -> Dim:
        value = self.attr(node)
        if isinstance(value, Sym) or (type(value) is int and value >= 0):
            return value
        self.source.fail_at("this is no dim", node, "write a number or a name")

    def term(self, node: ast.expr, sort: Sort) -> Term:
        """Read an expression that stands for a term of one sort."""
        match node:
            case ast.Name(id=name):
                return self._named(node, name, sort)
            case ast.Call(func=ast.Name(id=name)) if name in dtypes.NAMES:
                value = self._scalar(node, name)
                if sort == "element":
                    return registry.element("const", value=value)
                return registry.tensor("full", value=value, shape=())
            case ast.Call(func=ast.Name(id=name)):
                return self._call(node, name, sort)
            case _:
                do = "write a name or a call of an operator; a number with its dtype: f32(0.5)"
                self.source.fail_at(f"this is no {sort}", node, do)

    def _named(self, node: ast.expr, name: str, sort: Sort) -> Term:
        term = self.term_by_name.get(name)
        if term is None:
            self.source.fail_at(f"{name} is not defined", node)
        if term.sort != sort:
            do = "write build(..., shape=...)"
            if sort == "element":
                do = "write load(...) to read a tensor; a line that makes a tensor says its type, y: f32[4, 8] = ..."
            self.source.fail_at(f"{name} is of sort {term.sort}, needed is {sort}", node, do)
        return term

    def _call(self, node: ast.Call, name: str, sort: Sort) -> Term:
        if name.endswith("_") and iskeyword(name[:-1]):
            name = name[:-1]
        op = registry.find(name, sort)
        if op is None or name in _INPUTS:
            near = registry.nearest(name, sort)
            do = f"did you mean {near!r}?" if near else ""
            if sort == "element" and registry.find(name, "tensor"):
                do = f"a line of a tensor has its type, `v1: f32[2, n] = {name}(...)`; elements stand in build(...)"
            self.source.fail_at(f"unknown {sort} operator {name!r}", node, do)
        count = len(op.operands)
        if len(node.args) < count:
            labels = ", ".join(label for label, _ in op.operands)
            self.source.fail_at(f"{name} takes {count} operands: {labels}", node)
        operands = [self.term(arg, kind) for arg, (_, kind) in zip(node.args, op.operands, strict=False)]
        attrs = self._attrs(node, op)
        try:
            return registry.make(name, sort, tuple(operands), attrs)
        except ModelError as error:
            self.source.fail_at(error.what, node, error.do)

    def _attrs(self, node: ast.Call, op: registry.Op) -> tuple[Any, ...]:
        labels = [label for label, _ in op.attrs]
        given: dict[str, Any] = {}
        extra = node.args[len(op.operands) :]
        if len(extra) > len(labels):
            self.source.fail_at(f"{op.name} takes {len(op.operands)} operands and {len(labels)} attributes", node)
        for label, arg in zip(labels, extra, strict=False):
            given[label] = self.attr(arg)
        for keyword in node.keywords:
            if keyword.arg not in labels:
                known = f"use {', '.join(labels)}" if labels else "it has none"
                self.source.fail_at(f"{op.name} has no attribute {keyword.arg}", keyword, known)
            if keyword.arg in given:
                self.source.fail_at(f"attribute {keyword.arg} is given twice", keyword)
            given[keyword.arg] = self.attr(keyword.value)
        missing = [label for label, default in op.attrs if default is registry.REQUIRED and label not in given]
        if missing:
            self.source.fail_at(f"{op.name} needs attribute {', '.join(missing)}", node)
        return tuple(given.get(label, default) for label, default in op.attrs)

    def attr(self, node: ast.expr) -> Any:
        """Read the value of an attribute."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Tuple(elts=items):
                return tuple(self.attr(item) for item in items)
            case ast.Name(id=name):
                return Sym(name)
            case ast.Call(func=ast.Name(id="Sym"), args=[ast.Constant(value=str() as name)], keywords=[]):
                return Sym(name)
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="nan" | "inf" | "-inf" as text)]):
                return float(text)
            case ast.Call(func=ast.Name(id="index_map")):
                return self._index_map(node)
            case ast.Call(func=ast.Name(id=name)) if name in dtypes.NAMES:
                return self._scalar(node, name)
            case _:
                self.source.fail_at("this is no attribute", node, "write a number, a string, a tuple, a dim or a map")

    def _scalar(self, node: ast.Call, dtype: DType) -> Scalar:
        match node:
            case ast.Call(args=[], keywords=[ast.keyword(arg="bits", value=ast.Constant(value=int() as bits))]):
                if bits >= 1 << (1 if dtype == "bool" else 8 * dtypes.itemsize(dtype)):
                    self.source.fail_at(f"{bits:#x} has too many bits for {dtype}", node)
                return Scalar(dtype, bits)
            case ast.Call(args=[ast.Name(id="nan" | "inf" as name)], keywords=[]):
                value: Any = _NOT_FINITE[name]
            case ast.Call(args=[ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="nan" | "inf" as name))], keywords=[]):
                value = -_NOT_FINITE[name]
            case ast.Call(args=[argument], keywords=[]):
                value = self.attr(argument)
            case _:
                self.source.fail_at(f"{dtype}(...) takes one number", node)
        number = int if dtypes.is_integer(dtype) or type(value) is int else float
        kind = bool if dtype == "bool" else number
        if type(value) is not kind:
            self.source.fail_at(f"{dtype}(...) takes a {kind.__name__}", node)
        try:
            scalar = Scalar.of(value, dtype)
        except OverflowError:
            self.source.fail_at(f"{value} does not fit into {dtype}", node)
        if dtypes.is_integer(dtype) and scalar.value != value:
            self.source.fail_at(f"{value} does not fit into {dtype}", node)
        return scalar

    def _index_map(self, node: ast.Call) -> IndexMap:
        part_by_name = {keyword.arg: keyword.value for keyword in node.keywords}
        if node.args or set(part_by_name) != {"source", "result", "sources"}:
            self.source.fail_at("index_map takes source=, result= and sources=", node)
        source, result = (self._shape(part_by_name[label]) for label in ("source", "result"))
        listed = part_by_name["sources"]
        if not isinstance(listed, ast.Tuple) or len(listed.elts) != len(source):
            self.source.fail_at(f"sources has one expression for each of the {len(source)} axes of source", listed)
        return IndexMap(source, result, tuple(self._affine(item, result) for item in listed.elts))

    def _shape(self, node: ast.expr) -> Shape:
        if not isinstance(node, ast.Tuple):
            self.source.fail_at("this is no shape", node, "write a tuple of dims")
        return tuple(self._dim(item) for item in node.elts)

    def _affine(self, node: ast.expr, result: Shape) -> Affine:
        """Read index arithmetic part by part, so that what was printed comes back as it was."""
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self._affine(left, result), self._affine(right, result)
                return Affine(first.constant + second.constant, first.terms + second.terms)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                inner, factor = self._affine(left, result), self.attr(right)
                if inner.constant or len(inner.terms) != 1 or inner.terms[0][1] != 1 or type(factor) is not int:
                    self.source.fail_at("a product is of one axis, quotient or remainder and one number", node)
                return Affine(0, ((inner.terms[0][0], factor),))
            case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as operator, right=right):
                by = self.attr(right)
                if type(by) is not int or by < 1:
                    self.source.fail_at("index arithmetic divides by positive numbers", right)
                kind = Quot if isinstance(operator, ast.FloorDiv) else Rem
                return Affine(0, ((kind(self._affine(left, result), by), 1),))
            case ast.Name(id=name) if found := _AXIS.fullmatch(name):
                axis = -int(found[1])
                return Affine(0, ((Var(axis, shapes.dim_at(result, axis)), 1),))
            case ast.Call(func=ast.Name(id="axis" | "loop"), args=[key, extent], keywords=[]):
                return Affine(0, ((Var(self.attr(key), self._dim(extent)), 1),))
            case _:
                value = self.attr(node)
                if type(value) is not int:
                    self.source.fail_at("this is no index arithmetic", node, "write axes a1, a2, ... with + * // %")
                return Affine(value)
