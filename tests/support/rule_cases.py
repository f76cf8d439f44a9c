"""Before/after pairs as text: what a rule must make equal, in the syntax of rules, over declared tensors.

    # relu-relu                     the rule, which alone makes the pair equal
    x: f32[3, 4]                    an input; `w: param f32[4, 5]` is a constant
    families: tensor views          optional; the rule's own family otherwise
    before: relu(relu(x))
    after: relu(x)

Rules up to the numerics level of the named one take part. Indented lines continue the one before.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from frittata.egraph.ops import registry
from frittata.egraph.terms import Sort, TensorType, Term
from frittata.rules import elaborate
from frittata.rules.elaborate import Scope
from frittata.rules.matching import Bindings, instantiate
from frittata.rules.source import Source, Span, parse_expression

_LEAF = re.compile(r"(param\s+)?(\w+)\[([\d,\s]*)\]$")


@dataclass
class Case:
    """One pair; `line` tells where it starts."""

    name: str
    family: str
    line: int
    families: tuple[str, ...] = ()
    leaves: dict[str, Term] = field(default_factory=dict[str, Term])
    sides: dict[str, Term] = field(default_factory=dict[str, Term])

    @property
    def before(self) -> Term:
        """The term that a user writes."""
        return self.sides["before"]

    @property
    def after(self) -> Term:
        """The term that it must become equal to."""
        return self.sides["after"]


def read_cases(file: Path) -> list[Case]:
    """Read the cases of one family: `cases/tensor.txt` holds those of tensor.rules."""
    text = file.read_text(encoding="utf-8")
    names = re.sub(r"(?m)^#[ \t]*(\S+)[ \t]*$", r"@ \1", text)  # a line of its own, so that no comment is lost
    source = Source(file.name, names)
    cases: list[Case] = []
    for span in source.logical_lines():
        line = source.slice(span)
        if line.startswith("@ "):
            cases.append(Case(line[2:].strip(), file.stem, source.location(span.start).line, (file.stem,)))
        else:
            _read_line(source, span, cases[-1])
    return cases


def _read_line(source: Source, span: Span, case: Case) -> None:
    key, colon, rest = source.slice(span).partition(":")
    if key == "families":
        case.families = tuple(rest.split())
    elif key in ("before", "after"):
        case.sides[key] = _term(source, Span(span.start + len(key) + 1, span.stop), case)
    else:
        found = _LEAF.match(rest.strip())
        if not colon or not found:
            raise source.error(span.start, "write  NAME: f32[3, 4]  or  before: TERM")
        shape = tuple(int(dim) for dim in found[3].split(",") if dim.strip())
        leaf = "param" if found[1] else "input"
        case.leaves[key] = registry.make(leaf, "tensor", (), (key, shape, found[2]))


def _term(source: Source, span: Span, case: Case) -> Term:
    sorts: dict[str, Sort] = {name: "tensor" for name in case.leaves}
    scope = Scope("tensor", sorts, binding=False)
    pattern = elaborate.pattern(parse_expression(source, span), scope)
    return instantiate(pattern, Bindings(dict(case.leaves)), TensorType((), "f32"))
