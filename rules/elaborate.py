"""From Python's syntax trees to patterns: look up operators, infer sorts, place attributes by name or order."""

from __future__ import annotations

import ast
import difflib
import keyword
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.errors import RuleError
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import REQUIRED, Op
from frittata.egraph.terms import Sort
from frittata.rules.facts import ALLOWED, FUNCTIONS
from frittata.rules.pattern import AttrVariable, Condition, Expression, Node, Number, Pattern, Variable
from frittata.rules.source import Tree, syntax_tree

INFIX: dict[type[ast.AST], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.USub: "neg"}
_SPELLED: dict[type[ast.AST] | type[None], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.Mod: "mod", ast.FloorDiv: "floordiv",
}  # fmt: skip
_BOOLEAN = {"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"}
KINDS = ("const", "varies", "bare")
"""What a condition may say of variables."""
_A: dict[Sort, str] = {"tensor": "a tensor", "element": "an element"}
Attribute = AttrVariable | Expression | None


@dataclass
class Scope:
    """The names of one rule. On the left a new name binds (`binding`), on the right and in guards it is an error."""

    default_sort: Sort = "tensor"
    sort_by_variable: dict[str, Sort] = field(default_factory=dict[str, Sort])
    attributes: set[str] = field(default_factory=set[str])
    binding: bool = True


def pattern(tree: Tree, scope: Scope, expected: Sort | None = None, node: ast.expr | None = None) -> Pattern:
    """Read a pattern; `expected` is the sort that the place wants, None at a root on the left.

    Raises: RuleError at the place of an unknown operator, a wrong operand or attribute, an unbound name.
    """
    node = node or tree.root
    sort = expected or _sort_of(node, scope) or scope.default_sort
    literal = _literal(node)
    if literal is not None:
        _check_number(tree, node, literal)
        return Number(literal, sort, None)
    match node:
        case ast.Name(id=name):
            return _variable(tree, scope, node, name, sort)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in INFIX:
            return _infix(tree, scope, sort, node, INFIX[type(op)], (left, right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _infix(tree, scope, sort, node, "neg", (operand,))
        case ast.Call(func=ast.Name()):
            return _call(tree, scope, sort, node, at_root=node is tree.root and expected is not None)
        case _:
            what = f"{tree.text(node)!r} is no pattern"
            do = "write a variable, a number, + - * / or an operator's name"
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                do = "write not_(...): Python keeps the word"
            sign = node.op if isinstance(node, ast.BinOp) else node.ops[0] if isinstance(node, ast.Compare) else None
            if type(sign) in _SPELLED:
                do = f"write {_SPELLED[type(sign)]}(..., ...)"
            raise tree.source.error(tree.offset(node), what, do)


def _literal(node: ast.expr) -> int | float | None:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case _:
            return None


def _check_number(tree: Tree, node: ast.expr, value: object) -> None:
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise tree.source.error(tree.offset(node), "no dtype holds this number")


def operator_name(text: str) -> str:
    """Return the operator that a called name stands for; `and_` is `and`, which Python keeps for itself."""
    return text[:-1] if text.endswith("_") and keyword.iskeyword(text[:-1]) else text


def _sort_of(node: ast.expr, scope: Scope) -> Sort | None:
    """Return the sort that a tree can only have, None if it may be either."""
    match node:
        case ast.Name(id=name):
            return scope.sort_by_variable.get(name)
        case ast.BinOp(left=left, right=right):
            return _first(_sort_of(part, scope) for part in (left, right))
        case ast.UnaryOp(operand=operand):
            return _sort_of(operand, scope)
        case ast.Call(func=ast.Name(id=text), args=args):
            tensor, element = (registry.find(operator_name(text), sort) for sort in ("tensor", "element"))
            if tensor and element:
                return _first(_sort_of(arg, scope) for arg in args[: len(tensor.operands)])
            return tensor.sort if tensor else element.sort if element else None
        case _:
            return None


def _first(sorts: Iterable[Sort | None]) -> Sort | None:
    return next((sort for sort in sorts if sort), None)


def _variable(tree: Tree, scope: Scope, node: ast.expr, name: str, sort: Sort) -> Variable:
    found = scope.sort_by_variable.get(name)
    if found is None:
        if name in scope.attributes:
            number = f"scalar({name}, dtype(x))"  # x: any variable beside it
            do = f"if it is a number, write {f'full({number}, ())' if sort == 'tensor' else f'const({number})'}"
            raise tree.source.error(tree.offset(node), f"{name!r} is an attribute where {_A[sort]} is needed", do)
        if not scope.binding:
            raise _unbound(tree, node, name, scope.sort_by_variable)
        scope.sort_by_variable[name] = found = sort
    if found != sort:
        what = f"{name!r} is {_A[found]} where {_A[sort]} is needed"
        raise tree.source.error(tree.offset(node), what, _conversion(found))
    return Variable(name, sort)


def _conversion(found: Sort) -> str:
    return "write load(...) to index a tensor" if found == "tensor" else "write build(...) to make a tensor"


def _unbound(tree: Tree, node: ast.expr, name: str, known: Iterable[str]) -> RuleError:
    do = f'write "{name}"' if name in dtypes.NAMES else nearest(name, known)
    return tree.source.error(tree.offset(node), f"{name!r} is not bound on the left", do)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the question whether the most similar of known names was meant, empty if none is similar."""
    found = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"did you mean {found[0]!r}?" if found else ""


def _infix(tree: Tree, scope: Scope, sort: Sort, node: ast.expr, name: str, operands: tuple[ast.expr, ...]) -> Node:
    return _applied(name, sort, tuple(pattern(tree, scope, sort, operand) for operand in operands), ())


def _applied(name: str, sort: Sort, args: tuple[Pattern, ...], attrs: tuple[Attribute, ...]) -> Node:
    """Build a node; its numbers take the dtype of a variable beside them."""
    siblings = args[1:] if name == "where" else args
    like = next((found for arg in siblings if (found := dtype_variable(arg))), None)
    typed = tuple(replace(arg, like=like) if isinstance(arg, Number) else arg for arg in args)
    return Node(name, sort, typed, attrs)


def dtype_variable(part: Pattern) -> str | None:
    """Return a variable that surely has the dtype of a pattern, if there is one."""
    match part:
        case Variable(name=name):
            return name
        case Number(like=like):
            return like
        case Node(op=name) if name in _BOOLEAN or name == "cast":
            return None
        case Node(op=name, args=args):
            return next((found for arg in args[name == "where" :] if (found := dtype_variable(arg))), None)


def _call(tree: Tree, scope: Scope, sort: Sort, node: ast.Call, at_root: bool) -> Node:
    assert isinstance(node.func, ast.Name)
    op = _operator(tree, node, operator_name(node.func.id), sort)
    count = len(op.operands)
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            raise tree.source.error(tree.offset(arg), "a pattern takes no starred operand")
    if len(node.args) < count:
        labels = ", ".join(label for label, _ in op.operands)
        raise tree.source.error(
            tree.offset(node), f"{op.name} takes {_counted(count)} ({labels}), got {len(node.args)}"
        )
    operands = zip(node.args[:count], op.operands, strict=True)
    args = tuple(pattern(tree, scope, wanted, arg) for arg, (_, wanted) in operands)
    return _applied(op.name, sort, args, _attributes(tree, scope, op, node, at_root))


def _counted(count: int) -> str:
    return "1 operand" if count == 1 else f"{count} operands"


def _operator(tree: Tree, node: ast.Call, name: str, sort: Sort) -> Op:
    op = registry.find(name, sort)
    if op is not None:
        return op
    other: Sort = "element" if sort == "tensor" else "tensor"
    if registry.find(name, other):
        what = f"{name} gives {_A[other]} where {_A[sort]} is needed"
        do = "write full(c, ()) for a number as a tensor" if name == "const" else _conversion(other)
        raise tree.source.error(tree.offset(node), what, do)
    if name in FUNCTIONS:
        what = f"{name}(...) is a value, of attributes and conditions, where {_A[sort]} is needed"
        do = "write full(c, ()) for a constant as a tensor, const(c) as an element; scalar(n, t) makes one of a number"
        raise tree.source.error(tree.offset(node), what, do)
    near = registry.nearest(name)
    do = f"did you mean {near!r}?" if near else "register it, or write one of the operators' names"
    raise tree.source.error(tree.offset(node), f"unknown operator {name!r}", do)


def _attributes(tree: Tree, scope: Scope, op: Op, node: ast.Call, at_root: bool) -> tuple[Attribute, ...]:
    labels = [label for label, _ in op.attrs]
    extra = node.args[len(op.operands) :]
    if len(extra) > len(labels):
        what = f"{op.name} takes {_counted(len(op.operands))}" + (f", then {', '.join(labels)}" if labels else "")
        raise tree.source.error(tree.offset(extra[len(labels)]), f"{what}; this is one too many")
    given: dict[str, ast.expr] = dict(zip(labels, extra, strict=False))
    for word in node.keywords:
        if word.arg not in labels:
            what = f"{op.name} has no attribute {word.arg!r}"
            raise tree.source.error(tree.offset(word), what, nearest(word.arg or "", labels))
        if word.arg in given:
            raise tree.source.error(tree.offset(word), f"attribute {word.arg!r} is given twice")
        given[word.arg] = word.value
    out: list[Attribute] = []
    for label, default in op.attrs:
        if label in given:
            out.append(_attribute(tree, scope, given[label]))
        elif op.name == "build" and at_root and not scope.binding:
            out.append(None)
        elif default is REQUIRED:
            every = ", ".join(name for name, _ in op.attrs)
            do = "write a name to match any value" if scope.binding else f"its attributes are {every}"
            raise tree.source.error(tree.offset(node), f"{op.name} needs the attribute {label!r}", do)
        else:
            out.append(_constant(default))
    return tuple(out)


def _constant(value: Any) -> Expression:
    text = repr(value)
    return Expression(text, syntax_tree(text), ())


def _attribute(tree: Tree, scope: Scope, node: ast.expr) -> Attribute:
    if isinstance(node, ast.Name):
        if node.id in scope.sort_by_variable:
            what = f"{node.id!r} is {_A[scope.sort_by_variable[node.id]]} where an attribute is needed"
            raise tree.source.error(tree.offset(node), what, "write shape(...) or dtype(...) of it")
        if node.id not in scope.attributes:
            if not scope.binding:
                raise _unbound(tree, node, node.id, scope.attributes)
            scope.attributes.add(node.id)
        return AttrVariable(node.id)
    return expression(tree, scope, node)


def expression(tree: Tree, scope: Scope, root: ast.expr | None = None) -> Expression:
    """Read an attribute expression or a guard.

    Raises: RuleError at syntax that is not allowed, an unknown function, an unbound name, a variable used as a number.
    """
    root = root or tree.root
    names: list[str] = []
    _check_expression(tree, scope, root, names, in_call=False)
    return Expression(tree.text(root), root, tuple(dict.fromkeys(names)))


def _check_expression(tree: Tree, scope: Scope, node: ast.AST, names: list[str], in_call: bool) -> None:
    if isinstance(node, ast.Call):
        _check_function(tree, scope, node)
        for arg in node.args:
            _check_expression(tree, scope, arg, names, in_call=True)
        return
    if isinstance(node, ast.Constant):
        _check_number(tree, node, node.value)
    if isinstance(node, ast.Name):
        if node.id not in scope.attributes and node.id not in scope.sort_by_variable:
            raise _unbound(tree, node, node.id, {*scope.attributes, *scope.sort_by_variable})
        if node.id in scope.sort_by_variable and not in_call:
            what = f"{node.id!r} is {_A[scope.sort_by_variable[node.id]]} where a value is needed"
            raise tree.source.error(tree.offset(node), what, "write shape(...) or dtype(...) of it")
        names.append(node.id)
    elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) and (sign := _sign_not_allowed(node)):
        what = f"{ast.unparse(node)!r} is not allowed in an expression: it has {sign}"
        raise tree.source.error(tree.offset(node), what)
    elif not isinstance(node, ALLOWED):
        place = node if isinstance(node, ast.expr) else tree.root
        do = f"write {node.attr}({ast.unparse(node.value)})" if isinstance(node, ast.Attribute) else ""
        raise tree.source.error(tree.offset(place), f"{ast.unparse(node)!r} is not allowed in an expression", do)
    for child in ast.iter_child_nodes(node):
        _check_expression(tree, scope, child, names, in_call=False)


def _sign_not_allowed(node: ast.BinOp | ast.UnaryOp | ast.Compare) -> str:
    signs = node.ops if isinstance(node, ast.Compare) else [node.op]
    return next((type(sign).__name__ for sign in signs if not isinstance(sign, ALLOWED)), "")


def _check_function(tree: Tree, scope: Scope, node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise tree.source.error(tree.offset(node), "an expression calls functions by name, without keywords")
    if node.func.id in KINDS:
        what = f"{node.func.id}(...) is a condition by itself, no part of an expression"
        raise tree.source.error(tree.offset(node), what, "join it to others by `and`; write a rule for each case")
    if node.func.id not in FUNCTIONS:
        near = nearest(node.func.id, FUNCTIONS)
        do = f"{near} {'or define' if near else 'define'} it in Python, with @frittata.rule_function".strip()
        raise tree.source.error(tree.offset(node), f"unknown function {node.func.id!r}", do)
    for arg in node.args:
        if node.func.id == "value" and isinstance(arg, ast.Name) and arg.id in scope.sort_by_variable:
            sort = scope.sort_by_variable[arg.id]
            what = f"{arg.id!r} is {_A[sort]} where a constant is needed"
            do = f"match {'full(c, ())' if sort == 'tensor' else 'const(c)'}, and write value(c)"
            raise tree.source.error(tree.offset(arg), what, do)


def condition(tree: Tree, scope: Scope, node: ast.expr) -> Condition:
    """Read one conjunct of a guard: `const(v, w)`, `varies(x)`, `bare(x)`, or an expression that must be true."""
    match node:
        case ast.Call(func=ast.Name(id=kind), args=args) if kind in KINDS:
            for arg in args:
                if not isinstance(arg, ast.Name) or scope.sort_by_variable.get(arg.id) != "tensor":
                    raise tree.source.error(tree.offset(arg), f"{kind}(...) takes tensors bound on the left")
            names = tuple(arg.id for arg in args if isinstance(arg, ast.Name))
            if not names:
                raise tree.source.error(tree.offset(node), f"{kind}(...) takes tensors bound on the left")
            if kind == "bare":
                return Condition(bare=names)
            return Condition(constants=names) if kind == "const" else Condition(varying=names)
        case _:
            return Condition(expression=expression(tree, scope, node))
