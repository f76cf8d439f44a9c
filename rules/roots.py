"""Rules with several results: which of their roots say the same when they are exchanged."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from frittata.rules.pattern import AttrVariable, Condition, Expression, Node, Number, Pattern, Rule, Variable


def exchangeable(rule: Rule) -> list[tuple[str, str]]:
    """Return the pairs of roots, both with results, whose exchange leaves left side and guard the same, up to names.

    `p = matmul(x, v), q = matmul(x, w)` matches two products in both orders, and one of them says all.
    """
    names = [binding.name for binding in rule.left]
    results = {binding.name for binding in rule.right}
    same = _form(rule, names)
    out: list[tuple[str, str]] = []
    for one, other in combinations((name for name in names if name in results), 2):
        exchanged = {one: other, other: one}
        if _form(rule, [exchanged.get(name, name) for name in names]) == same:
            out.append((one, other))
    return out


def _form(rule: Rule, order: list[str]) -> tuple[Any, ...]:
    """Spell the left side and the guard with names numbered in the order of their first mention from these roots."""
    name_by_name: dict[str, str] = {}
    for name in order:
        name_by_name[name] = f"r{len(name_by_name)}"
    pattern_by_root = {binding.name: binding.pattern for binding in rule.left}
    roots = tuple(_spelled(pattern_by_root[name], name_by_name) for name in order)
    return roots, frozenset(_condition(condition, name_by_name) for condition in rule.conditions)


def _spelled(pattern: Pattern | AttrVariable | Expression | None, names: dict[str, str]) -> Any:
    match pattern:
        case Variable(name=name) | AttrVariable(name=name):
            return names.setdefault(name, f"v{len(names)}")
        case Number(value=value):
            return repr(value)
        case Node():
            return (pattern.op, pattern.sort, *(_spelled(part, names) for part in (*pattern.args, *pattern.attrs)))
        case Expression():
            return _text(pattern.tree, names)
        case None:
            return None


def _condition(condition: Condition, names: Mapping[str, str]) -> Any:
    groups = condition.constants, condition.varying, condition.bare
    known = (tuple(sorted(names.get(name, name) for name in each)) for each in groups)
    return (*known, condition.expression and _text(condition.expression.tree, names))


def _text(tree: ast.expr, names: Mapping[str, str]) -> str:
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq):
        return " == ".join(sorted(_text(side, names) for side in (tree.left, tree.comparators[0])))
    return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), ast.unparse(tree))
