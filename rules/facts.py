"""Guards and attributes of rules: the functions they may call, and a safe evaluator for their expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import frexp, isfinite, prod
from typing import Any

import numpy as np

from frittata.egraph import dtypes, indexing, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import IndexMap
from frittata.egraph.ops import indices, reductions, registry
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import ElementType, Scalar, TensorType
from frittata.rules import geometry, spread
from frittata.rules.pattern import Expression

LONGEST_TUPLE = 64


class NotApplicable(Exception):
    """An attribute cannot be computed at this match, so the rule says nothing here."""


@dataclass(frozen=True)
class ElementFacts:
    """What is known of an element's class: its dtype and the axes, negative numbers, that it mentions, if known."""

    dtype: DType
    axes: frozenset[int] | None = None


Environment = Mapping[str, Any]
"""Tensor variables to TensorType, element variables to ElementFacts, attribute variables to their values."""


def shape(x: TensorType | ElementFacts) -> Shape:
    """Return the shape of a tensor."""
    if isinstance(x, ElementFacts):
        raise ModelError("an element has no shape")
    return x.shape


def dtype(x: TensorType | ElementFacts) -> DType:
    """Return the dtype of a tensor or an element."""
    return x.dtype


def rank(x: TensorType) -> int:
    """Return the number of axes of a tensor."""
    return len(shape(x))


def mentions(e: ElementFacts, axis: int) -> bool:
    """Whether the element depends on an axis."""
    if e.axes is None:
        raise ModelError("nobody knows which axes the element mentions")
    return axis in e.axes


def compose(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """permute(permute(x, p), q) = permute(x, compose(p, q))."""
    return tuple(p[axis] for axis in q)


def inverse(p: tuple[int, ...]) -> tuple[int, ...]:
    """permute(permute(x, p), inverse(p)) = x."""
    return tuple(p.index(axis) for axis in range(len(p)))


def swap_last(axes: int) -> tuple[int, ...]:
    """Return the permutation that exchanges the last two of so many axes: swap_last(3) = (0, 2, 1)."""
    return (*range(axes - 2), axes - 1, axes - 2)


def to_last(axes: int) -> tuple[int, ...]:
    """Return the permutation (batch, channels, *spatial) -> (batch, *spatial, channels): to_last(4) = (0, 2, 3, 1)."""
    return (0, *range(2, axes), 1)


def is_back(p: tuple[int, ...]) -> bool:
    """Whether a permutation takes the channels of an image or a volume from the last place to behind the batch."""
    return len(p) in (4, 5) and inverse(p) == to_last(len(p))


def is_identity(p: tuple[int, ...]) -> bool:
    """Whether a permutation moves nothing."""
    return p == tuple(range(len(p)))


def compose_maps(first: IndexMap, then: IndexMap) -> IndexMap:
    """reindex(reindex(e, first), then) = reindex(e, compose_maps(first, then)), if no index is clamped in between."""
    if first.result != then.source:
        raise ModelError(f"views {first} and {then} do not follow each other")
    for index, extent in zip(then.sources, then.source, strict=True):
        low, high = index.bounds()
        if index != indexing.Affine() and not _is_axis(index, extent) and (low < 0 or high >= _number(extent)):
            raise ModelError(f"view {then} reads out of range")
    return indexing.compose(then, first)


def _is_axis(index: indexing.Affine, extent: shapes.Dim) -> bool:
    return any(index == indexing.var(key, extent) for key in index.variables())


def _number(extent: shapes.Dim) -> int:
    return shapes.concrete((extent,))[0]


def is_identity_map(mapping: IndexMap) -> bool:
    """Whether a view reads each place from itself, extents included."""
    return mapping.source == mapping.result and mapping.sources == indexing.axes_of(mapping.source)


def value(c: Scalar) -> Any:
    """Return the number that a constant stands for."""
    return c.value


def scalar(number: Any, dtype: DType) -> Scalar:
    """Round a number to a dtype."""
    if isinstance(number, shapes.Sym):
        raise ModelError(f"the dim {number} has no number here")
    return Scalar.of(number, dtype)


def fold_constants(name: str, *operands: Any) -> Scalar:
    """Apply a scalar operator to constants (then its attributes), rounded to its dtype: fold_constants("add", a, b)."""
    op = registry.get(name, "element")
    count = len(op.operands)
    scalars: tuple[Scalar, ...] = operands[:count]
    attrs = operands[count:]
    result = op.infer(tuple(ElementType((), c.dtype) for c in scalars), attrs).dtype
    arrays = [np.asarray(c.value, dtypes.to_numpy(c.dtype)) for c in scalars]
    assert op.reference is not None
    with np.errstate(all="ignore"):
        folded = np.asarray(op.reference(*arrays, *attrs)).astype(dtypes.to_numpy(result))
    return Scalar.of(np.nan, result) if folded != folded else Scalar.of(folded, result)


def is_exact(name: str, *operands: Scalar) -> bool:
    """Whether the sum or the product of finite constants is a number of their dtype, not rounded."""
    if not all(map(is_finite, operands)) or not is_finite(fold_constants(name, *operands)):
        return False
    exactly = operator.add if name == "add" else operator.mul
    a, b = (Fraction(c.value) for c in operands)
    return exactly(a, b) == Fraction(fold_constants(name, *operands).value)


def is_power_of_two(c: Scalar) -> bool:
    """Whether a floating-point constant and its reciprocal are both powers of two within the normal range."""
    if not dtypes.is_float(c.dtype) or not isfinite(c.value) or abs(frexp(c.value)[0]) != 0.5:
        return False
    tiny = float(dtypes.finfo(c.dtype).tiny)
    return tiny <= abs(c.value) <= 1 / tiny


def is_finite(c: Scalar) -> bool:
    """Whether a constant is neither infinite nor NaN."""
    return bool(isfinite(c.value))


def channel_shape(x: TensorType) -> Shape:
    """Return (channels, 1, ...), the shape of a vector of channels beside x, which is (batch, channels, ...)."""
    return (shape(x)[1], *(1,) * (rank(x) - 2))


def is_per_channel(s: TensorType, axes: int) -> bool:
    """Whether a tensor varies along no axis but axis 1 of `axes` axes."""
    return rank(s) <= axes and all(dim == 1 or i - rank(s) == 1 - axes for i, dim in enumerate(s.shape))


def scales(s: TensorType, w: TensorType, axis: int) -> bool:
    """Whether s spreads over w, and varies along no axis but one, a negative number."""
    varies = (i - rank(s) for i, dim in enumerate(s.shape) if dim != 1)
    return set(varies) <= {axis} and shapes.broadcast(s.shape, shape(w)) == shape(w)


def are_summed(x: str, w: str, depth: int) -> bool:
    """Whether values are integers of 8 or 16 bits, of which an i32 holds the sum of so many products."""
    if not all(dtypes.is_integer(dtype) and dtypes.is_narrow(dtype) for dtype in (x, w)):
        return False
    return depth << 8 * (dtypes.itemsize(x) + dtypes.itemsize(w)) < 2**31


def touch(kernel: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]) -> bool:
    """Whether every window reads some of an image, not padding alone."""
    return all(p == 0 or (d == 1 and p < k) for k, p, d in zip(kernel, padding, dilation, strict=True))


def is_stored(c: Scalar, dtype: str) -> bool:
    """Whether a number is a value of a dtype of integers."""
    info = np.iinfo(dtypes.to_numpy(dtype))
    return isfinite(c.value) and int(c.value) == c.value and info.min <= c.value <= info.max


def stored(c: Scalar, dtype: str) -> Scalar:
    """Return a number as a value of a dtype of integers."""
    return Scalar.of(int(c.value), dtype)


def unsigned(dtype: str) -> str:
    """Return the unsigned dtype of bytes for one of bytes, any other as it is."""
    return "u8" if dtype == "i8" else dtype


def to_unsigned(dtype: str) -> int:
    """Return what makes values of a dtype ones of `unsigned` of it."""
    return 128 if dtype == "i8" else 0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "unsigned": unsigned,
    "to_unsigned": to_unsigned,
    "touch": touch,
    "is_stored": is_stored,
    "stored": stored,
    "are_summed": are_summed,
    "shape": shape,
    "dtype": dtype,
    "rank": rank,
    "mentions": mentions,
    "compose": compose,
    "inverse": inverse,
    "swap_last": swap_last,
    "to_last": to_last,
    "is_back": is_back,
    "is_identity": is_identity,
    "permute_map": indexing.permute_map,
    "reshape_map": indexing.reshape_map,
    "slice_map": indexing.slice_map,
    "take_source": indices.take_source,
    "compose_maps": compose_maps,
    "is_identity_map": is_identity_map,
    "reduced": reductions.reduced,
    "broadcast": shapes.broadcast,
    "value": value,
    "scalar": scalar,
    "fold_identity": fold_identity,
    "fold_constants": fold_constants,
    "is_power_of_two": is_power_of_two,
    "is_finite": is_finite,
    "is_exact": is_exact,
    "is_float": dtypes.is_float,
    "is_integer": dtypes.is_integer,
    "is_narrow": dtypes.is_narrow,
    "holds": dtypes.holds,
    "channel_shape": channel_shape,
    "is_per_channel": is_per_channel,
    "scales": scales,
    "len": len,
    "abs": abs,
    "min": min,
    "max": max,
    "sum": sum,
    "prod": prod,
    **geometry.FUNCTIONS,
    **spread.FUNCTIONS,
}
"""What guards and attribute expressions may call."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
ALLOWED: tuple[type[ast.AST], ...] = (
    ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.Starred, ast.Call, ast.Subscript, ast.Slice, ast.IfExp,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.And, ast.Or, ast.Compare, *_BINARY, *_UNARY, *_COMPARE,
)  # fmt: skip
"""The syntax of guards and attribute expressions."""


def evaluate(expression: Expression, env: Environment) -> Any:
    """Evaluate an attribute expression.

    Raises: NotApplicable if it has no value here: a function refuses, an index is out of range, a dim is a symbol;
        NameError if the environment lacks a name.
    """
    try:
        return _evaluate(expression.tree, env)
    except (ModelError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise NotApplicable(f"{expression.text}: {error}") from error


def holds(expression: Expression, env: Environment) -> bool:
    """Whether a guard is true; one that has no value is false."""
    try:
        return bool(evaluate(expression, env))
    except NotApplicable:
        return False


def _evaluate(tree: ast.expr, env: Environment) -> Any:
    match tree:
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name):
            if name not in env:
                raise NameError(f"{name!r} is not bound")
            return env[name]
        case ast.Tuple(elts=parts):
            return tuple(_sequence(parts, env))
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name](*_sequence(args, env))
        case ast.Subscript(value=of, slice=ast.Slice(lower=low, upper=high, step=step)):
            bounds = (None if part is None else _evaluate(part, env) for part in (low, high, step))
            return _evaluate(of, env)[slice(*bounds)]
        case ast.Subscript(value=of, slice=index):
            return _evaluate(of, env)[_evaluate(index, env)]
        case ast.IfExp(test=test, body=body, orelse=other):
            return _evaluate(body if _evaluate(test, env) else other, env)
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_evaluate(operand, env))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(type(op), _evaluate(left, env), _evaluate(right, env))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_evaluate(part, env) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_evaluate(part, env) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_evaluate(part, env) for part in (left, *others)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case _:
            raise TypeError(f"{ast.unparse(tree)} is not allowed in an expression")


def _sequence(parts: list[ast.expr], env: Environment) -> list[Any]:
    out: list[Any] = []
    for part in parts:
        if isinstance(part, ast.Starred):
            out.extend(_evaluate(part.value, env))
        else:
            out.append(_evaluate(part, env))
    return out


def _arithmetic(op: type[ast.operator], left: Any, right: Any) -> Any:
    for repeated, times in ((left, right), (right, left)):
        if isinstance(repeated, str) or (op is ast.Mult and isinstance(repeated, tuple) and times > LONGEST_TUPLE):
            raise ValueError("strings and long tuples are not computed")
    return _BINARY[op](left, right)
