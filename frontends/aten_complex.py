"""Operators of aten on complex tensors, which are pairs of real ones: what `aten.ROWS` says of them, part by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from frittata.egraph import shapes
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import aten_scalars, aten_views, idioms, idioms_indices
from frittata.frontends.idioms_complex import (
    Complex,
    added,
    angle,
    as_complex,
    as_real,
    compared,
    conjugate,
    cos,
    cosh,
    divided,
    each,
    exp,
    hypot,
    joined,
    log,
    multilinear,
    parts,
    polar,
    power,
    power_by,
    reciprocal,
    root,
    sign,
    sin,
    sinh,
    size,
    tan,
    tanh,
    times,
    truth,
)
from frittata.frontends.idioms_fourier import transform, transform_of_real, transform_to_real

Row = Callable[..., Any]

PART_BY_DTYPE = {"c64": "f32", "c128": "f64"}
"""The dtype of the parts by our name of a complex dtype."""

_MADE = (("", ""), ("", "_like"), ("new_", ""))
"""What stands before and after the names of operators that fill a tensor."""

_VALUES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys({name.split(".")[1] for name in aten_views.ROWS}, (0,)),
    **dict.fromkeys(("index", "_unsafe_index", "index_select", "gather", "take_along_dim", "take", "embedding"), (0,)),
    **dict.fromkeys(("flip", "fliplr", "flipud", "rot90", "roll", "diagonal", "tril", "triu"), (0,)),
    **dict.fromkeys(("repeat_interleave", "unfold", "im2col", "col2im"), (0,)),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "convert_element_type"), (0,)),
    **dict.fromkeys(("clone", "contiguous", "detach", "alias", "lift_fresh", "lift_fresh_copy", "dropout"), (0,)),
    **dict.fromkeys(("to", "_to_copy", "type_as", "scalar_tensor", "neg", "sum", "mean", "cumsum"), (0,)),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack", "vstack"), (0,)),
    **dict.fromkeys(("copy", "slice_scatter", "select_scatter", "diagonal_scatter"), (0, 1)),
    **dict.fromkeys(("full", "full_like", "where"), (1, 2)),
    **dict.fromkeys(("index_put", "_unsafe_index_put", "masked_fill", "constant_pad_nd", "new_full", "put"), (0, 2)),
    "masked_scatter": (0, 2),
    **dict.fromkeys(("pad", "index_add", "index_copy", "scatter", "scatter_add"), (0, 3)),
    **{f"{start}{name}{end}": () for name in ("zeros", "ones", "empty") for start, end in _MADE},
}
"""Operators that do the same to both parts, and the positions of what has parts: values, not places or shapes."""


def takes(values: Sequence[Any]) -> bool:
    """Whether there is a complex tensor, number or dtype among arguments."""
    return any(
        isinstance(value, Complex | complex)
        or (isinstance(value, str) and value in PART_BY_DTYPE)
        or (isinstance(value, list | tuple) and takes(value))  # pyright: ignore[reportUnknownArgumentType]
        for value in values
    )


def meaning(name: str, row: Row, is_complex: bool) -> Row:
    """Return what an overload means on complex tensors, given what it means on real ones.

    `is_complex`: whether the result is; where it is not, the imaginary part is dropped.

    Raises: UnsupportedOpError.
    """
    operator = name.split(".")[1]
    if name in ROWS:
        return ROWS[name]
    if operator in _MEANINGS:
        return partial(_MEANINGS[operator], row)
    if operator in _VALUES and name != "aten.view.dtype":
        return partial(_each, row, _VALUES[operator], is_complex)
    raise UnsupportedOpError("of complex numbers")


def _each(row: Row, places: tuple[int, ...], is_complex: bool, *args: Any, **keywords: Any) -> Any:
    """Apply a row to the real parts of the arguments at some places, and to the imaginary ones.

    What is true of a complex number is what is true of a part.
    """
    named = {name: _real(value) for name, value in keywords.items()}
    real, imag = ([parts(x)[i] if at in places else _real(x) for at, x in enumerate(args)] for i in (0, 1))
    first = row(*real, **named)
    if is_complex:
        return joined(first, row(*imag, **named)) if places else first
    is_truth = isinstance(first, Term) and first.dtype == "bool"
    return tensor("or", first, row(*imag, **named)) if is_truth else first


def _real(value: Any) -> Any:
    """Return what stands for an argument that has no parts of its own.

    Raises: UnsupportedOpError for a complex number.
    """
    if isinstance(value, complex):
        raise UnsupportedOpError("of complex numbers")
    if isinstance(value, str):
        return PART_BY_DTYPE.get(value, value)
    return value.real if isinstance(value, Complex) else value


def _sum(x: Any, y: Any, alpha: Any = 1, op: str = "add") -> Any:
    return added(x, y if alpha == 1 else times(y, alpha), op)


def _product(row: Row, x: Any, y: Any, *rest: Any, **keywords: Any) -> Any:
    return multilinear(lambda left, right: row(left, right, *rest, **keywords), (x, y))


def _linear(row: Row, x: Any, weight: Any, bias: Any = None) -> Any:
    product = multilinear(row, (x, weight))
    return product if bias is None else _sum(product, bias)


def _conv(row: Row, x: Any, weight: Any, bias: Any = None, *rest: Any) -> Any:
    product = multilinear(lambda left, right: row(left, right, None, *rest), (x, weight))
    if bias is None:
        return product
    return _sum(product, each(lambda part: idioms.per_channel(part, len(weight.shape)), bias))


def _addmm(_: Row, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _sum(times(x, beta), multilinear(idioms.matmul, (a, b)), alpha)


def _addcmul(_: Row, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return _sum(x, times(y, z), value)


def _addcdiv(_: Row, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return _sum(x, divided(y, z, aten_scalars.divide), value)


def _einsum(row: Row, subscripts: str, operands: Sequence[Any], **keywords: Any) -> Any:
    return multilinear(lambda *chosen: row(subscripts, list(chosen), **keywords), operands)


def _power(_: Row, z: Any, exponent: Any) -> Any:
    if isinstance(z, Complex) and isinstance(exponent, int | float):
        return power(z, exponent)
    return power_by(z, exponent)


def _angle(z: Complex | Term) -> Term:
    if isinstance(z, Complex):
        return angle(z)
    x = idioms.as_float(z)
    turned = tensor("where", tensor("lt", x, idioms.like(x, 0)), idioms.like(x, math.pi), x)
    return tensor("where", tensor("gt", x, idioms.like(x, 0)), idioms.like(x, 0), turned)


def _of_both(join: Callable[[Term, Term], Term]) -> Callable[..., Term]:
    """Join what a row makes of each part."""
    return lambda row, z, *rest, **keywords: join(*(row(part, *rest, **keywords) for part in (z.real, z.imag)))


def _vector_norm(row: Row, z: Complex, *args: Any, dtype: str = "") -> Term:
    wanted = PART_BY_DTYPE.get(dtype, z.real.dtype)
    return row(size(each(lambda part: idioms.cast(part, wanted), z)), *args)


def _truth(x: Any) -> Any:
    return truth(x) if isinstance(x, Complex) else x


def _of_truth(row: Row, *values: Any, **keywords: Any) -> Any:
    return row(*map(_truth, values), **keywords)


def _of_one(meaning: Callable[[Complex], Any], _: Row, z: Complex) -> Any:
    return meaning(z)


_BY_NAME: dict[str, Callable[[Complex], Any]] = {
    **{"reciprocal": reciprocal, "abs": size, "sgn": sign, "sqrt": root, "exp": exp, "log": log},
    **{"cos": cos, "cosh": cosh, "sin": sin, "sinh": sinh, "tan": tan, "tanh": tanh},
}
"""Functions of one complex tensor, whose rows they do not need."""

_MEANINGS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mul", "matmul", "mm", "bmm", "mv", "dot", "outer", "cross", "linalg_cross"), _product),
    **dict.fromkeys([f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)], _conv),
    **dict.fromkeys(("any", "all", "count_nonzero"), _of_truth),
    **dict.fromkeys([f"logical_{name}" for name in ("and", "or", "xor", "not")], _of_truth),
    **dict.fromkeys(("div", "divide", "true_divide"), lambda row, x, y: divided(x, y, row)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    **dict.fromkeys(("eq", "isfinite"), partial(compared, "and")),
    **dict.fromkeys(("ne", "isnan", "isinf"), partial(compared, "or")),
    "add": lambda _, x, y, alpha=1: _sum(x, y, alpha),
    "sub": lambda _, x, y, alpha=1: _sum(x, y, alpha, "sub"),
    "rsub": lambda _, x, y, alpha=1: _sum(y, x, alpha, "sub"),
    "linear": _linear,
    "einsum": _einsum,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "pow": _power,
    "square": lambda _, z: times(z, z),
    **{name: partial(_of_one, meaning) for name, meaning in _BY_NAME.items()},
    "log2": lambda _, z: log(z, 2),
    "log10": lambda _, z: log(z, 10),
    "var": _of_both(lambda real, imag: tensor("add", real, imag)),
    "std": _of_both(hypot),
    "linalg_vector_norm": _vector_norm,
}
"""What other operators make of complex tensors, given their rows."""


def _frequencies(extent: int, step: float = 1.0, dtype: str | None = None) -> Term:
    """Return 0, 1, ..., -1 over extent * step."""
    ordered = tensor("sub", idioms_indices.numbers(extent, -1), idioms.scalar(extent // 2, "i64"))
    numbers = idioms_indices.roll(ordered, [-(extent // 2)])
    return times(idioms.cast(numbers, dtype or idioms.float_dtype()), 1 / (extent * step))


def _frequencies_of_half(extent: int, step: float = 1.0, dtype: str | None = None) -> Term:
    numbers = idioms_indices.numbers(extent // 2 + 1, -1)
    return times(idioms.cast(numbers, dtype or idioms.float_dtype()), 1 / (extent * step))


def _paired(real: Term, imag: Term) -> Complex:
    shape = shapes.broadcast(real.shape, imag.shape)
    return Complex(idioms.expand(real, shape), idioms.expand(imag, shape))


ROWS: dict[str, Row] = {
    "aten.view_as_real.default": as_real,
    "aten.view_as_complex.default": as_complex,
    "aten.complex.default": _paired,
    "aten.polar.default": polar,
    "aten.real.default": lambda z: z.real if isinstance(z, Complex) else z,
    "aten.imag.default": lambda z: z.imag,
    "aten.angle.default": _angle,
    **{f"aten.{name}.default": conjugate for name in ("conj", "_conj", "conj_physical", "_conj_physical")},
    **{f"aten.{name}.default": lambda z: z for name in ("resolve_conj", "resolve_neg")},
    "aten.fft_fftfreq.default": _frequencies,
    "aten.fft_rfftfreq.default": _frequencies_of_half,
    "aten._fft_r2c.default": transform_of_real,
    "aten._fft_c2c.default": transform,
    "aten._fft_c2r.default": transform_to_real,
}
"""What overloads mean that make complex tensors, or are for them only."""
