"""How expressions of loop nests are spelled in Python, so that numba rounds each operation to its dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import Affine, Atom, Clamp, Quot, Var
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.terms import Scalar
from frittata.kernels.halves import HALVES
from frittata.kernels.loops import Apply, Constant, Expression, Load, Local, Position

NUMPY_BY_DTYPE = {"bool": "np.bool_", "i32": "np.int32", "i64": "np.int64", "f32": "np.float32", "f64": "np.float64"}
_IN_MEMORY = {
    **{"bool": "np.uint8", "u8": "np.uint8", "i8": "np.int8", "u16": "np.uint16", "i16": "np.int16"},
    **dict.fromkeys(HALVES, "np.uint16"),
}

_TEXT_BY_OP = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "mod": "np.mod({0}, {1})",
    "floordiv": "({0} // {1})",
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "pow": "({0} ** {1})",
    "fma": "({0} * {1} + {2})",
    "neg": "(-{0})",
    "abs": "abs({0})",
    "sign": "np.sign({0})",
    "sqrt": "math.sqrt({0})",
    "rsqrt": "({one} / math.sqrt({0}))",
    "reciprocal": "({one} / {0})",
    "exp": "math.exp({0})",
    "log": "math.log({0})",
    "log1p": "math.log1p({0})",
    "expm1": "math.expm1({0})",
    "atan": "math.atan({0})",
    "tanh": "math.tanh({0})",
    "erf": "math.erf({0})",
    "sigmoid": "({one} / ({one} + math.exp(-{0})))",
    "sin": "math.sin({0})",
    "cos": "math.cos({0})",
    "floor": "np.floor({0})",
    "ceil": "np.ceil({0})",
    "round": "np.rint({0})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "and": "({0} and {1})",
    "or": "({0} or {1})",
    "not": "(not {0})",
    "bitwise_and": "({0} & {1})",
    "bitwise_or": "({0} | {1})",
    "bitwise_xor": "({0} ^ {1})",
    "left_shift": "(({0} << {1}) if 0 <= {1} < {bits} else 0)",
    "right_shift": "({0} >> ({1} if 0 <= {1} < {bits} else {bits} - 1))",
    "where": "({1} if {0} else {2})",
}
TEXT_BY_OP: Mapping[str, str] = _TEXT_BY_OP
"""Formats of operators: {0}, {1}, ... are the arguments, {one} is 1 of the result's dtype, {bits} its width."""
OPS = frozenset(_TEXT_BY_OP) | {"cast", "square"}
"""The scalar operators that have a spelling."""


@dataclass(frozen=True)
class Dialect:
    """How a target spells operators, and the index in a subscript."""

    text_by_op: Mapping[str, str]
    subscript: Callable[[Affine], str]


def expression(value: Expression, dialect: Dialect | None = None) -> str:
    """Spell an expression.

    Raises: LoweringError for an operator or a dtype that has no spelling.
    """
    return _bare(_spelled(value, dialect or Dialect(_TEXT_BY_OP, index)))


def _spelled(value: Expression, dialect: Dialect) -> str:
    match value:
        case Local(name=name):
            return name
        case Constant(value=scalar):
            text = constant(scalar)
            return f"({text})" if text.startswith("-") else text
        case Position(index=at, dtype=dtype):
            return f"{NUMPY_BY_DTYPE[dtype]}({index(at)})"
        case Load(array=array, offset=offset, dtype=dtype):
            element = f"{array}[{dialect.subscript(offset)}]"
            return _loaded(element, dtype)
        case Apply():
            return _applied(value, dialect)


def _loaded(element: str, dtype: DType) -> str:
    if dtype == "bool":
        return f"({element} != 0)"
    if dtype in HALVES:
        return f"{dtype}_value({element})"
    return f"np.int32({element})" if dtypes.is_narrow(dtype) else element


def stored(value: Expression, dialect: Dialect | None = None) -> str:
    """Spell what is written to memory of a value."""
    text = expression(value, dialect)
    return f"{value.dtype}_bits({text})" if value.dtype in HALVES else text


def memory_dtype(dtype: DType) -> str:
    """Spell the numpy dtype of elements in memory, where a bool is a byte."""
    return _IN_MEMORY.get(dtype) or NUMPY_BY_DTYPE[dtype]


def _applied(value: Apply, dialect: Dialect) -> str:
    args = [_spelled(arg, dialect) for arg in value.args]
    if value.op == "cast":
        return _cast(_bare(args[0]), value.args[0].dtype, value.dtype)
    form = dialect.text_by_op.get(value.op)
    if form is None:
        raise LoweringError(f"no loop code for the operator {value.op}", do="add its spelling to kernels/spelling.py")
    if form[0] != "(":
        args = [_bare(arg) for arg in args]
    one = constant(Scalar.of(1, value.dtype)) if "{one}" in form else ""
    bits = 8 * dtypes.itemsize(value.dtype)
    return _narrow(form.format(*args, one=one, bits=bits), value)


def _narrow(text: str, value: Apply) -> str:
    """numba computes in int64 whatever the width of integer operands."""
    if value.dtype == "i32" and value.op != "where":
        return f"np.int32({_bare(text)})"
    return text


def _cast(text: str, source: DType, target: DType) -> str:
    if target == "bool":
        return text if source == "bool" else f"({text} != 0)"
    if dtypes.is_narrow(target):
        wide = _cast(text, source, dtypes.wide(target))
        return f"{target}_rounded({wide})" if target in HALVES else f"np.int32({memory_dtype(target)}({wide}))"
    return f"{NUMPY_BY_DTYPE[target]}({text})"


def _bare(text: str) -> str:
    """Drop parentheses around the whole."""
    if not text.startswith("("):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def constant(scalar: Scalar) -> str:
    """Spell a number of its dtype."""
    value = scalar.value
    if scalar.dtype == "bool":
        return str(bool(value))
    if dtypes.is_narrow(scalar.dtype):
        return constant(Scalar.of(value, dtypes.wide(scalar.dtype)))
    if dtypes.is_integer(scalar.dtype):
        return f"{NUMPY_BY_DTYPE[scalar.dtype]}({value})"
    number = f"np.{'nan' if math.isnan(value) else 'inf'}" if not math.isfinite(value) else repr(value)
    if scalar.dtype == "f32":
        number = str(Scalar.of(value, "f32"))[4:-1] if math.isfinite(value) else number
    if math.isinf(value) and value < 0:
        number = "-np.inf"
    return f"np.float32({number})" if scalar.dtype == "f32" else number


def neutral(fold: str, dtype: DType) -> str:
    """Spell the value of an empty fold."""
    return constant(fold_identity(fold, dtype))


def accumulation(name: str, fold: str, value: Expression, dialect: Dialect | None = None) -> str:
    """Spell name = name <fold> value."""
    if value.dtype == "i32":
        step = Apply({"sum": "add", "prod": "mul"}.get(fold, fold), (Local(name, "i32"), value), "i32")
        return f"{name} = {expression(step, dialect)}"
    if fold in ("sum", "prod"):
        return f"{name} {'+' if fold == 'sum' else '*'}= {expression(value, dialect)}"
    return f"{name} = np.{fold}imum({name}, {expression(value, dialect)})"


def index(at: Affine) -> str:
    """Spell an index: i*768 + k0."""
    parts: list[str] = []
    for atom, factor in at.terms:
        sign = "-" if factor < 0 else "+"
        text = _atom(atom) + (f"*{abs(factor)}" if abs(factor) != 1 else "")
        parts += [sign, text]
    if at.constant or not parts:
        parts += ["-" if at.constant < 0 else "+", str(abs(at.constant))]
    return " ".join(parts[1:] if parts[0] == "+" else [parts[0] + parts[1], *parts[2:]])


def _atom(atom: Atom) -> str:
    if isinstance(atom, Var):
        return str(atom.key)
    inner = index(atom.of)
    if isinstance(atom, Clamp):
        return f"min(max({inner}, 0), {atom.by - 1})"
    inner = inner if inner.isidentifier() else f"({inner})"
    return f"({inner} {'//' if isinstance(atom, Quot) else '%'} {atom.by})"
