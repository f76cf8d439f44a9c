"""Outer loops: generated source around vector code, from its syntax tree to LLVM IR.

For a few lines over 64-bit integers numba's front end takes a third of the time in which a kernel is compiled. This is
the part of Python that they use: names, `+ - * // %`, `min` and `max`, comparisons, `for` over a range, `if`,
conditional expressions, entries of the table, and calls of `Intrinsic`s.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

from llvmlite import ir

from frittata.kernels import vmath
from frittata.kernels.flow import repeat
from frittata.kernels.intrinsics import Intrinsic, table_value
from frittata.kernels.simd import I64, Builder, Index, Value, as_index, call_symbol

_POINTER: Any = ir.IntType(8).as_pointer()
_STRIP = "llvm.strip.invariant.group.p0"
_FUNCTION_TYPE: Any = ir.FunctionType(ir.VoidType(), [I64.as_pointer(), I64])

_RELATIONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_OPERATORS: Mapping[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.FloorDiv: ("floordiv", operator.floordiv),
    ast.Mod: ("mod", operator.mod),
}
"""The names of operators in `vmath`; of arithmetic also what it is of numbers that are known."""


def emit_function(module: Any, symbol: str, source: str, intrinsics: Mapping[str, Intrinsic]) -> None:
    """Define the function `name(table, chunk)` of `source` as `symbol`, with all that it calls in its body.

    Raises: SyntaxError, NameError for source of another kind.
    """
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    function = ir.Function(module, _FUNCTION_TYPE, symbol)
    function.attributes.add("nounwind")
    entry, start = function.append_basic_block("entry"), function.append_basic_block("start")
    stored = (node for node in ast.walk(definition) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    variables = ir.IRBuilder(entry)
    slots = {name: variables.alloca(I64, name=name) for name in ["chunk", *dict.fromkeys(node.id for node in stored)]}
    table, chunk = function.args
    variables.store(chunk, slots["chunk"])
    variables.branch(start)
    builder = ir.IRBuilder(start)
    _Writer(builder, table, slots, intrinsics).block(definition.body)
    builder.ret_void()


class _Writer:
    """Emits statements where the builder stands. Numbers that are known stay Python's."""

    def __init__(
        self, builder: Builder, table: Value, slots: Mapping[str, Value], intrinsics: Mapping[str, Intrinsic]
    ) -> None:
        self._builder, self._table, self._slots, self._intrinsics = builder, table, slots, intrinsics

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                pass
            case ast.Expr(value=ast.Call() as call):
                self._value(call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._store(name, self._value(value))
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, [self._value(each) for each in values], strict=True):
                    assert isinstance(target, ast.Name)
                    self._store(target.id, value)
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Name(id="range"), args=bounds, keywords=[]),
                body=body,
                orelse=[],
            ):
                self._loop(name, [self._value(bound) for bound in bounds], body)
            case ast.If(test=test, body=body, orelse=otherwise):
                with self._builder.if_else(self._condition(test)) as (then, other):
                    with then:
                        self.block(body)
                    with other:
                        self.block(otherwise)
            case _:
                raise _refused(node)

    def _loop(self, name: str, bounds: Sequence[Index], body: Sequence[ast.stmt]) -> None:
        start, stop = (0, *bounds) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        assert isinstance(step, int)

        def turn(i: Value) -> None:
            self._store(name, i)
            self.block(body)

        repeat(self._builder, start, stop, step, turn)

    def _store(self, name: str, value: Index) -> None:
        self._builder.store(as_index(value), self._slots[name])

    def _condition(self, node: ast.expr) -> Value:
        if not isinstance(node, ast.Compare):
            return self._emit("ne", self._value(node), 0)
        if any(type(relation) not in _RELATIONS for relation in node.ops):
            raise _refused(node)
        values = [self._value(each) for each in (node.left, *node.comparators)]
        found = (self._emit(_RELATIONS[type(op)], a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False))
        return reduce(self._builder.and_, found)

    def _value(self, node: ast.expr) -> Index:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return -number
            case ast.Name(id=name) if name in self._slots:
                return self._builder.load(self._slots[name])
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                condition = self._condition(test)
                return self._builder.select(condition, as_index(self._value(body)), as_index(self._value(otherwise)))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                name, known = _OPERATORS[type(op)]
                a, b = self._value(left), self._value(right)
                return known(a, b) if isinstance(a, int) and isinstance(b, int) else self._emit(name, a, b)
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=args):
                return reduce(partial(self._emit, name), map(self._value, args))
            case ast.Subscript(value=ast.Name(id="table"), slice=ast.Constant(value=int() as entry)):
                return table_value(self._builder, self._table, entry)
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id="table"), *args]) if name in self._intrinsics:
                given = [_opaque(self._builder, self._value(each)) for each in args]
                return self._intrinsics[name].emit(self._builder, self._table, *given)
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
                raise NameError(f"there is no {name!r} to use as in: {ast.unparse(node)}")
            case _:
                raise _refused(node)

    def _emit(self, name: str, a: Index, b: Index) -> Value:
        return vmath.emit(name, self._builder, as_index(a), as_index(b))


def _opaque(builder: Builder, value: Index) -> Value:
    """Return a value of which LLVM knows nothing, so that a loop keeps it and not each address that is made of it."""
    if isinstance(value, int):
        return I64(value)
    kept = call_symbol(builder, _STRIP, _POINTER, [builder.inttoptr(value, _POINTER)])
    return builder.ptrtoint(kept, I64)


def _refused(node: ast.AST) -> SyntaxError:
    return SyntaxError(f"outer loops have no such {type(node).__name__}: {ast.unparse(node)}")
