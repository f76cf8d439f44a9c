"""Wrong rules made from right ones: one change on the right side each."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from frittata.egraph.ops import registry
from frittata.rules.pattern import AttrVariable, Binding, Expression, Node, Number, Pattern, Rule

COMMUTATIVE = {"add", "mul", "eq", "ne", "and", "or", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"}
"""Operators whose operands may be swapped; max and min up to the sign of a zero, which numpy does not promise."""

NO_ORDER = {"added", "broadcast", "padded_axes", "scalar", "fold_constants"}
"""Functions of attributes whose arguments may be swapped, or are of different kinds."""

OTHER_OP = {
    "add": "sub", "sub": "add", "mul": "add", "div": "mul", "max": "min", "min": "max", "pow": "div", "neg": "abs",
    "abs": "neg", "sign": "neg", "square": "abs", "sqrt": "square", "rsqrt": "sqrt", "reciprocal": "sqrt",
    "exp": "tanh", "log": "exp", "tanh": "erf", "erf": "tanh", "sigmoid": "tanh", "sin": "cos", "cos": "sin",
    "floor": "ceil", "ceil": "floor", "round": "floor", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne",
    "ne": "eq", "and": "or", "or": "and", "relu": "gelu", "gelu": "relu", "gelu_tanh": "gelu", "silu": "relu",
    "reduce_sum": "reduce_max", "reduce_max": "reduce_sum", "reduce_prod": "reduce_sum", "reduce_min": "reduce_max",
    "sum": "max", "prod": "sum",
}  # fmt: skip


_SAME = re.compile(
    r"linear_algebra/(unsign|integer|center)-\S+: (add -> sub|sign in add flipped|128 -> -128)"
    r"|\S+: pad: .*pool_low\(.*on_all\(k, 1\), c\).* -> .*"
    r"|legalize/count-avg-pool-(inside|clipped): avg_pool: (True|False) -> (True|False)"
)


def is_right(mutant: str) -> bool:
    """Whether a mutant that nothing catches says the same as the rule.

    To a byte 128 is -128; where a window begins does not depend on the dilation; what is divided by a number that is
    given does not ask what to count.
    """
    return _SAME.fullmatch(mutant) is not None


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield wrong rules, each with what was changed."""
    for position, binding in enumerate(rule.right):
        for what, pattern in _patterns(binding.pattern):
            right = list(rule.right)
            right[position] = Binding(binding.name, pattern)
            yield f"{rule.full_name}: {what}", replace(rule, right=tuple(right))
    root = rule.right[-1]
    if root.pattern.sort == "element":
        flipped = Node("neg", "element", (root.pattern,), ())
        yield f"{rule.full_name}: negated", replace(rule, right=(*rule.right[:-1], Binding(root.name, flipped)))


def _patterns(pattern: Pattern) -> Iterator[tuple[str, Pattern]]:
    if isinstance(pattern, Number):
        for value in {-pattern.value or 1, pattern.value + 1}:
            yield f"{pattern.value} -> {value}", replace(pattern, value=value)
    if not isinstance(pattern, Node):
        return
    yield from _at(pattern)
    for position, arg in enumerate(pattern.args):
        for what, inner in _patterns(arg):
            yield what, replace(pattern, args=_put(pattern.args, position, inner))
    labels = [label for label, _ in registry.get(pattern.op, pattern.sort).attrs]
    for position, attr in enumerate(pattern.attrs):
        for what, other in _attributes(labels[position], attr):
            yield f"{pattern.op}: {what}", replace(pattern, attrs=_put(pattern.attrs, position, other))


def _put(items: tuple[Any, ...], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


def _at(pattern: Node) -> Iterator[tuple[str, Pattern]]:
    if pattern.op in OTHER_OP:
        yield f"{pattern.op} -> {OTHER_OP[pattern.op]}", replace(pattern, op=OTHER_OP[pattern.op])
    *others, last = pattern.args or (None,)
    if others and pattern.op not in COMMUTATIVE and last != others[-1]:
        yield f"operands of {pattern.op} swapped", replace(pattern, args=(*others[:-1], last, others[-1]))
    if pattern.op == "neg":
        yield "neg dropped", pattern.args[0]
    elif pattern.op in ("add", "mul", "sub"):
        flipped = Node("neg", pattern.sort, (pattern.args[-1],), ())
        yield f"sign in {pattern.op} flipped", replace(pattern, args=(*pattern.args[:-1], flipped))


OTHER_ATTRIBUTE = {
    "value": "fold_constants('neg', {})", "map": "compose_maps({0}, {0})", "dtype": "'i32'",
    **dict.fromkeys(("stride", "padding", "dilation", "kernel", "permutation", "shape", "source"), "{}[::-1]"),
}  # fmt: skip
"""How to change an attribute of this label; any other is off by one."""


def _attributes(label: str, attr: Any) -> Iterator[tuple[str, Any]]:
    """Change an attribute variable; or in an expression one number, operator or order of arguments."""
    if isinstance(attr, AttrVariable):
        text = OTHER_ATTRIBUTE.get(label, "{} - 1").format(attr.name)
        yield f"{attr.name} -> {text}", Expression(text, ast.parse(text, mode="eval").body, (attr.name,))
    elif isinstance(attr, Expression):
        for position in range(len(list(ast.walk(attr.tree)))):
            tree = ast.parse(attr.text, mode="eval").body
            if _change(list(ast.walk(tree))[position]):
                text = ast.unparse(tree)
                yield f"{attr.text} -> {text}", Expression(text, ast.parse(text, mode="eval").body, attr.names)


def _change(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str() as name) if name in OTHER_OP:
            node.value = OTHER_OP[name]
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case ast.BinOp(op=ast.Add()):
            node.op = ast.Sub()
        case ast.BinOp(op=ast.Mult()):
            node.op = ast.Add()
        case ast.Call(func=ast.Name(id=name), args=[first, second]) if name not in NO_ORDER:
            node.args = [second, first]
        case _:
            return False
    return True
