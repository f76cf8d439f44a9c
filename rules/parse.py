"""Read a rule file: text, one rule a line, never executed.

    sort element          # of names and infix operators that may be either, from here on; at first tensor
    opt_level 1           # of the family
    name:  LEFT => RIGHT  if CONDITION and CONDITION  [level]    # an equation; <=> makes two, name and name.reverse
    name:  LEFT ~> RIGHT                                         # a transform
    name:  p = LEFT, q = LEFT  =>  y = TERM, p = RIGHT, q = RIGHT
    name:  PATTERN  if CONDITION  [one kernel]                   # a fusion group

Left and right are in Python's expression syntax: operands first, then attributes in the row's order or by keyword.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import get_args

from frittata.egraph.phases import LEVELS
from frittata.egraph.terms import Sort
from frittata.rules import elaborate
from frittata.rules.elaborate import Scope, nearest
from frittata.rules.pattern import Binding, Condition, Family, Kind, Level, Node, Rule
from frittata.rules.source import Source, Span, Tree, parse_expression

_KIND_BY_ARROW: dict[str, Kind] = {"<=>": "equation", "=>": "equation", "~>": "transform", "": "group"}
SORTS: tuple[Sort, ...] = get_args(Sort)
_ARROW = re.compile("<=>|=>|~>")
_IF = re.compile(r"\bif\b")
_NAME = re.compile(r"([A-Za-z][\w-]*)\s*:")
_DIRECTIVE = re.compile(r"(sort|opt_level)\s+(\S+)\s*$")
_ONE_KERNEL = re.compile(r"\[\s*one\s+kernel\s*\]\s*$")
_LEVEL = re.compile(r"(?:^|\s)\[\s*([A-Za-z_]\w*)\s*(?:\(([^)]*)\))?\s*(?:unless\s+([\w-]+)\s*)?\]\s*$")


def family_name(file_name: str | Path) -> str:
    """Return the name of the family in a file: `folder/my.rules` -> my."""
    return Path(file_name).stem


def parse_family(text: str, file_name: str) -> Family:
    """Read the rules of one file, whose name the family has.

    Raises: RuleError with file, line, column, the line and a caret.
    """
    source, family = Source(file_name, text), family_name(file_name)
    default: Sort = "tensor"
    opt_level = 0
    rules: list[Rule] = []
    line_by_name: dict[str, int] = {}
    start_by_unless: dict[str, int] = {}
    for span in source.logical_lines():
        directive = _DIRECTIVE.match(source.slice(span))
        if directive is None:
            added = _rules(source, span, family, default)
            for rule in added:
                if rule.name in line_by_name:
                    what = f"a rule named {rule.name!r} stands in line {line_by_name[rule.name]} already"
                    raise source.error(span.start, what, "give each rule of a family its own name")
                line_by_name[rule.name] = rule.location.line
                if rule.level.unless:
                    start_by_unless[rule.level.unless] = span.start
            rules += added
        elif directive[1] == "sort":
            default = _sort(source, span.start + directive.start(2), directive[2])
        elif directive[2] in map(str, LEVELS):
            opt_level = int(directive[2])
        else:
            raise source.error(span.start + directive.start(2), f"opt_level {directive[2]!r} is none of {LEVELS}")
    for name, start in start_by_unless.items():
        if name not in line_by_name:
            raise source.error(start, f"unless {name!r} names no rule of this file", nearest(name, line_by_name))
    return Family(family, tuple(rules), opt_level)


def _sort(source: Source, offset: int, text: str) -> Sort:
    for sort in SORTS:
        if sort == text:
            return sort
    raise source.error(offset, f"no sort {text!r}", "write tensor or element")


@dataclass(frozen=True)
class _Parts:
    """A rule cut at its separators."""

    name: str
    arrow: str
    left: Span
    right: Span | None
    guard: Span | None
    level: Level


def _rules(source: Source, span: Span, family: str, default: Sort) -> tuple[Rule, ...]:
    parts = _cut(source, span)
    rule = _rule(source, span, family, default, parts)
    if parts.right is None or parts.arrow != "<=>":
        return (rule,)
    back = _Parts(f"{parts.name}.reverse", "=>", parts.right, parts.left, parts.guard, parts.level)
    return rule, _rule(source, span, family, default, back)


def _cut(source: Source, span: Span) -> _Parts:
    named = _NAME.match(source.slice(span))
    if named is None:
        text = source.slice(span)
        indent = len(text) - len(text.lstrip())
        where = " at the beginning of a line: what is indented continues the one before" if indent else ""
        do = f"write  name: LEFT => RIGHT{where}"
        raise source.error(span.start + indent, "a rule starts with its name and a colon", do)
    start = span.start + named.end()
    group = _ONE_KERNEL.search(source.slice(span))
    level, stop = _level(source, Span(start, span.start + group.start() if group else span.stop))
    if level is not None and (group or _ONE_KERNEL.search(source.slice(Span(start, stop)))):
        raise source.error(stop, f"fusion group {named[1]!r} has a level", "it says what to fuse, not what is equal")
    free = source.outside_brackets(Span(start, stop))
    arrows = [(start + found.start(), found[0]) for found in _ARROW.finditer(free)]
    if group:
        if arrows:
            what = f"fusion group {named[1]!r} has an arrow"
            raise source.error(arrows[0][0], what, "write  name: PATTERN  [one kernel]")
        guard_at = _guard_at(free, start, start)
        guard = None if guard_at is None else Span(guard_at + 2, stop)
        return _Parts(named[1], "", Span(start, stop if guard_at is None else guard_at), None, guard, Level())
    if not arrows:
        do = "write => (equation), <=> (both ways) or ~> (transform)"
        raise source.error(max(start, stop - 1), f"rule {named[1]!r} has no arrow", do)
    at, arrow = arrows[0]
    if level is not None and arrow == "~>":
        what = f"transform {named[1]!r} has a level"
        raise source.error(stop, what, "leave it out: a transform may change the meaning")
    after = at + len(arrow)
    if len(arrows) > 1:
        do = "start each rule on a line of its own, at its beginning"
        raise source.error(arrows[1][0], f"rule {named[1]!r} has a second arrow", do)
    guard_at = _guard_at(free, start, after)
    guard = None if guard_at is None else Span(guard_at + 2, stop)
    right = Span(after, stop if guard_at is None else guard_at)
    return _Parts(named[1], arrow, Span(start, at), right, guard, level or Level())


def _guard_at(free: str, start: int, after: int) -> int | None:
    found = _IF.search(free, after - start + 1)
    return start + found.start() if found else None


def _level(source: Source, span: Span) -> tuple[Level | None, int]:
    """Read `[reassoc]` at the end of a rule; return it, None if there is none, and where the rest ends."""
    found = _LEVEL.search(source.slice(span))
    if found is None:
        return None, span.stop
    at = span.start + found.start(1)
    match found[1], found[2]:
        case ("exact" | "reassoc" | "loose") as kind, None:
            return Level(kind, unless=found[3] or ""), span.start + found.start()
        case "approx", str(tolerance):
            try:
                value = float(tolerance)
            except ValueError:
                raise source.error(span.start + found.start(2), f"tolerance {tolerance!r} is not a number") from None
            if not 0 < value < inf:
                raise source.error(span.start + found.start(2), f"tolerance {tolerance!r} is not positive and finite")
            return Level("approx", value, found[3] or ""), span.start + found.start()
        case _:
            do = "write [exact], [reassoc], [loose] or [approx(1e-5)]"
            raise source.error(at, f"no numerics level {source.slice(Span(at, span.stop)).rstrip().rstrip(']')!r}", do)


def _rule(source: Source, span: Span, family: str, default: Sort, parts: _Parts) -> Rule:
    scope = Scope(default)
    left = _left(source, parts, scope)
    scope.binding = False
    right = () if parts.right is None else _right(source, parts.right, scope, left)
    return Rule(
        name=parts.name,
        family=family,
        kind=_KIND_BY_ARROW[parts.arrow],
        left=left,
        right=right,
        conditions=_conditions(source, parts.guard, scope),
        level=parts.level,
        location=source.location(span.start, source.slice(span)),
        sort_by_variable=dict(scope.sort_by_variable),
    )


def _bindings(source: Source, span: Span) -> list[tuple[str | None, Tree, int]]:
    """Read `p = A, q = B` or a single `A`: names, trees rooted at each, and where they stand."""
    tree = parse_expression(source, span, "f(")
    assert isinstance(tree.root, ast.Call)
    call = tree.root
    if len(call.args) + len(call.keywords) > 1 and call.args:
        what = "of several patterns each needs a name"
        raise source.error(tree.offset(call.args[-1]), what, "write  p = ..., q = ...")
    parts: list[tuple[str | None, ast.expr]] = [(None, arg) for arg in call.args]
    parts += [(word.arg, word.value) for word in call.keywords]
    return [(name, Tree(source, span, node, tree.lead), tree.offset(node)) for name, node in parts]


def _left(source: Source, parts: _Parts, scope: Scope) -> tuple[Binding, ...]:
    out: list[Binding] = []
    for name, tree, offset in _bindings(source, parts.left):
        pattern = elaborate.pattern(tree, scope)
        if not isinstance(pattern, Node):
            raise source.error(offset, "the left side matches everything", "start it with an operator")
        out.append(Binding(name or "it", pattern))
    if _KIND_BY_ARROW[parts.arrow] != "equation" and len(out) > 1:
        raise source.error(parts.left.start, f"a {_KIND_BY_ARROW[parts.arrow]} has one pattern on the left")
    for binding in out:
        if binding.name in scope.sort_by_variable or binding.name in scope.attributes:
            what = f"{binding.name!r} names a pattern and a variable within one"
            raise source.error(parts.left.start, what, "choose another name")
        scope.sort_by_variable[binding.name] = binding.pattern.sort
    return tuple(out)


def _right(source: Source, span: Span, scope: Scope, left: tuple[Binding, ...]) -> tuple[Binding, ...]:
    sort_by_root: dict[str, Sort] = {binding.name: binding.pattern.sort for binding in left}
    out: list[Binding] = []
    for given, tree, offset in _bindings(source, span):
        name = given or "it"
        if given is None and name not in sort_by_root:
            roots = ", ".join(f"{root} = ..." for root in sort_by_root)
            raise source.error(offset, "which pattern of the left is this?", f"write  {roots}")
        if any(binding.name == name for binding in out):
            raise source.error(offset, f"{name!r} is given twice")
        if name not in sort_by_root and (name in scope.sort_by_variable or name in scope.attributes):
            raise source.error(offset, f"{name!r} is bound on the left already", "choose another name")
        pattern = elaborate.pattern(tree, scope, sort_by_root.get(name))
        scope.sort_by_variable[name] = pattern.sort
        out.append(Binding(name, pattern))
    if not any(binding.name in sort_by_root for binding in out):
        raise source.error(span.start, f"the right side says nothing about {', '.join(sort_by_root)}")
    return tuple(out)


def _conditions(source: Source, span: Span | None, scope: Scope) -> tuple[Condition, ...]:
    if span is None:
        return ()
    tree = parse_expression(source, span)
    conjunction = isinstance(tree.root, ast.BoolOp) and isinstance(tree.root.op, ast.And)
    parts = tree.root.values if conjunction and isinstance(tree.root, ast.BoolOp) else [tree.root]
    return tuple(elaborate.condition(tree, scope, part) for part in parts)
