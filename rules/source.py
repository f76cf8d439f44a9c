"""The text of a rule file: comments, logical lines, places of separators, and errors that point at a place."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock

from frittata.egraph.errors import RuleError
from frittata.rules.pattern import Location

OPENING = "([{"
CLOSING = ")]}"
_KEPT = re.compile(r"(?:^|[(,=+*/-])\s*(and|or)\s*\(")
_PARSING = Lock()
_STRING_OR_BRACKET = re.compile(r"""("[^"]*"?|'[^']*'?|[()\[\]{}])""")
_NAMED = re.compile(r"[A-Za-z][\w.-]*\s*:")


@dataclass(frozen=True)
class Span:
    """A piece of the text, from `start` up to `stop`."""

    start: int
    stop: int


@dataclass(frozen=True)
class Source:
    """A rule file; places in it are offsets into `text`, from which comments are blanked."""

    file: str
    original: str
    text: str = field(init=False, repr=False)
    _line_starts: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        starts = [0, *(found.end() for found in re.finditer("\n", self.original))]
        object.__setattr__(self, "text", blank_comments(self.original))
        object.__setattr__(self, "_line_starts", tuple(starts))

    def location(self, offset: int, text: str = "") -> Location:
        """Return the line and column of an offset."""
        line = bisect_right(self._line_starts, offset)
        return Location(self.file, line, offset - self._line_starts[line - 1] + 1, text)

    def error(self, offset: int, what: str, do: str = "") -> RuleError:
        """Return an error that shows the line with a caret below the place."""
        place = self.location(offset)
        line = self.original.split("\n")[place.line - 1]
        indent = re.sub(r"\S", " ", line[: place.column - 1])
        return RuleError(what, f"{place}\n    {line.rstrip()}\n    {indent}^", do)

    def slice(self, span: Span) -> str:
        """Return the text of a span, without comments."""
        return self.text[span.start : span.stop]

    def logical_lines(self) -> Iterator[Span]:
        """Yield each statement; indented lines and lines inside brackets continue the one before."""
        start, stop, depth = None, 0, 0
        for position in range(len(self._line_starts)):
            span = self._line(position)
            line = self.slice(span)
            if not line.strip():
                continue
            continues = line[0].isspace() or (depth > 0 and not _NAMED.match(line))
            if start is None or not continues:
                if start is not None:
                    yield Span(start, stop)
                start, depth = span.start, 0
            stop = span.start + len(line.rstrip())
            depth += sum(line.count(c) for c in OPENING) - sum(line.count(c) for c in CLOSING)
        if start is not None:
            yield Span(start, stop)

    def _line(self, position: int) -> Span:
        ends = (*self._line_starts[1:], len(self.text) + 1)
        return Span(self._line_starts[position], ends[position] - 1)

    def outside_brackets(self, span: Span) -> str:
        """Overwrite brackets and strings of a span, and what is in them, with spaces: `f(x) => y` -> `f    => y`.

        Raises: RuleError at a bracket without a partner.
        """
        text = self.slice(span)
        opened: list[int] = []
        for found in _STRING_OR_BRACKET.finditer(text):
            sign, start = found[0], found.start()
            if sign in OPENING:
                opened.append(start)
            elif sign in CLOSING:
                if not opened or OPENING.index(text[opened[-1]]) != CLOSING.index(sign):
                    raise self.error(span.start + start, f"{sign!r} closes nothing")
                start = opened.pop()
            if not opened:
                text = text[:start] + " " * (found.end() - start) + text[found.end() :]
        if opened:
            raise self.error(span.start + opened[-1], f"{text[opened[-1]]!r} is never closed")
        return text


def blank_comments(text: str) -> str:
    """Overwrite `# ...` with spaces, so that offsets stay: `f(x)  # twice` -> `f(x)         `."""
    return re.sub(r"""("[^"\n]*"|'[^'\n]*')|#[^\n]*""", lambda m: m[1] or " " * len(m[0]), text)


@dataclass(frozen=True)
class Tree:
    """A Python expression parsed from a span, which can tell where each of its nodes stands."""

    source: Source
    span: Span
    root: ast.expr
    lead: int

    def offset(self, node: ast.expr | ast.keyword) -> int:
        """Return the offset of a node in the source."""
        text = self.source.slice(self.span)
        lines = text.split("\n")
        before = sum(len(line) + 1 for line in lines[: node.lineno - 1])
        lead = self.lead if node.lineno == 1 else 0
        in_line = ("#" * lead + lines[node.lineno - 1]).encode()[: node.col_offset]
        return self.span.start + before + len(in_line.decode()) - lead

    def text(self, node: ast.expr) -> str:
        """Return a node in Python's syntax, on one line."""
        return ast.unparse(node)


def syntax_tree(text: str) -> ast.expr:
    """Parse an expression, one thread at a time: several that call `ast.parse` make CPython 3.11 raise SystemError."""
    with _PARSING:
        return ast.parse(text, mode="eval").body


def parse_expression(source: Source, span: Span, wrap: str = "(") -> Tree:
    """Parse a span as one expression; with `wrap` = "f(" as the arguments of a call.

    Raises: RuleError where Python finds a syntax error.
    """
    text = source.slice(span)
    if not text.strip():
        raise source.error(min(span.start, len(source.text) - 1), "an expression is missing here")
    try:
        root = syntax_tree(f"{wrap}{text}\n)")
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        lines = text.split("\n")[: line - 1]
        place = sum(len(one) + 1 for one in lines) + column - 1 - (len(wrap) if line == 1 else 0)
        offset = span.start + max(0, min(place, len(text.rstrip())))
        word = _KEPT.search(text)
        do = f"write {word[1]}_(...): Python keeps the word" if word else ""
        raise source.error(offset, f"cannot read this: {error.msg}", do) from None
    return Tree(source, span, root, len(wrap))
