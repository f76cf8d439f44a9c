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
    as_complex,
    as_real,
    conjugate,
    each,
    joined,
    multilinear,
    parts,
    polar,
    reciprocal,
)
from frittata.frontends.idioms_fourier import fourier, inverse_of_half

Row = Callable[..., Any]

PART_BY_DTYPE = {"c64": "f32", "c128": "f64"}
"""The dtype of the parts by our name of a complex dtype."""

_hypot, _atan2 = (aten_scalars.ROWS[f"aten.{name}.default"] for name in ("hypot", "atan2"))
_sinh_of_real, _cosh_of_real = (aten_scalars.ROWS[f"aten.{name}.default"] for name in ("sinh", "cosh"))
_copysign = aten_scalars.ROWS["aten.copysign.Tensor"]

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


def _mul(x: Any, y: Any) -> Term:
    return tensor("mul", *idioms.promoted(x, y))


def _sum(x: Any, y: Any, alpha: Any = 1, op: str = "add") -> Any:
    scaled = y if alpha == 1 else multilinear(_mul, (y, alpha))
    return each(lambda *pair: tensor(op, *idioms.promoted(*pair)), x, scaled)


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
    return _sum(multilinear(_mul, (x, beta)), multilinear(idioms.matmul, (a, b)), alpha)


def _addcmul(_: Row, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return _sum(x, multilinear(_mul, (y, z)), value)


def _addcdiv(_: Row, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return _sum(x, _divide(aten_scalars.divide, y, z), value)


def _einsum(row: Row, subscripts: str, operands: Sequence[Any], **keywords: Any) -> Any:
    return multilinear(lambda *chosen: row(subscripts, list(chosen), **keywords), operands)


def _divide(row: Row, x: Any, y: Any) -> Any:
    if isinstance(y, Complex):
        return multilinear(_mul, (x, reciprocal(y)))
    return multilinear(_mul, (x, 1 / y)) if isinstance(y, complex) else each(lambda part: row(part, y), x)


def _power(_: Row, z: Any, exponent: Any) -> Any:
    match exponent:
        case -1:
            return reciprocal(z)
        case 1:
            return z
        case 2:
            return multilinear(_mul, (z, z))
        case 0.5:
            return _root(z)
        case int() | float():
            return polar(idioms.power(_size(z), exponent), multilinear(_mul, (_angle(z), exponent)))
        case _:
            raise UnsupportedOpError("powers of complex numbers by others")


def _size(z: Complex) -> Term:
    return _hypot(z.real, z.imag)


def _angle(z: Complex | Term) -> Term:
    if isinstance(z, Complex):
        return _atan2(z.imag, z.real)
    x = idioms.as_float(z)
    turned = tensor("where", tensor("lt", x, idioms.scalar(0, x.dtype)), idioms.scalar(math.pi, x.dtype), x)
    straight = tensor("gt", x, idioms.scalar(0, x.dtype))
    return tensor("where", straight, idioms.scalar(0, x.dtype), turned)


def _exp(z: Complex) -> Complex:
    """Real where z is: infinity times the sine of 0 is none."""
    size = tensor("exp", z.real)
    found = polar(size, z.imag)
    straight = tensor("eq", z.imag, idioms.scalar(0, size.dtype))
    return Complex(tensor("where", straight, size, found.real), tensor("where", straight, z.imag, found.imag))


def _log(z: Complex) -> Complex:
    return Complex(tensor("log", _size(z)), _angle(z))


def _cosh(z: Complex) -> Complex:
    """Return cosh re cos im + i sinh re sin im."""
    real = _mul(_cosh_of_real(z.real), tensor("cos", z.imag))
    return Complex(real, _scaled(_sinh_of_real(z.real), tensor("sin", z.imag)))


def _sinh(z: Complex) -> Complex:
    """Return sinh re cos im + i cosh re sin im."""
    real = _mul(_sinh_of_real(z.real), tensor("cos", z.imag))
    return Complex(real, _scaled(_cosh_of_real(z.real), tensor("sin", z.imag)))


def _scaled(size: Term, sine: Term) -> Term:
    """Multiply a sine; one of 0 stays zero, however large the size is."""
    none = tensor("eq", sine, idioms.scalar(0, sine.dtype))
    return _mul(tensor("where", none, _copysign(idioms.scalar(1, size.dtype), size), size), sine)


def _sin(z: Complex) -> Complex:
    """Return sinh(i z) / i."""
    turned = _sinh(Complex(tensor("neg", z.imag), z.real))
    return Complex(turned.imag, tensor("neg", turned.real))


def _of_both(join: Callable[[Term, Term], Term]) -> Callable[..., Term]:
    """Join what a row makes of each part."""
    return lambda row, z, *rest, **keywords: join(*(row(part, *rest, **keywords) for part in (z.real, z.imag)))


def _sgn(z: Complex) -> Complex:
    size = _size(z)
    none = tensor("eq", size, idioms.scalar(0, size.dtype))
    return each(lambda part: tensor("where", none, part, tensor("div", part, size)), z)


def _root(z: Complex) -> Complex:
    """The root in the right half plane: its longer part is sqrt((|z| + |re z|) / 2), im z / 2 their product."""
    size = tensor("add", _size(z), tensor("abs", z.real))
    long = tensor("sqrt", _mul(size, 0.5))
    none = tensor("eq", long, idioms.scalar(0, long.dtype))
    short = tensor("where", none, long, tensor("div", _mul(tensor("abs", z.imag), 0.5), long))
    right = tensor("ge", z.real, idioms.scalar(0, long.dtype))
    return Complex(tensor("where", right, long, short), _copysign(tensor("where", right, short, long), z.imag))


def _vector_norm(row: Row, z: Complex, *args: Any, dtype: str = "") -> Term:
    wanted = PART_BY_DTYPE.get(dtype, z.real.dtype)
    return row(_size(each(lambda part: idioms.cast(part, wanted), z)), *args)


def _compared(join: str) -> Callable[..., Term]:
    return lambda row, *values: tensor(join, *(row(*part) for part in zip(*map(parts, values), strict=True)))


def _truth(x: Any) -> Any:
    """Return whether a tensor is not zero."""
    if not isinstance(x, Complex):
        return x
    return tensor("or", *(tensor("ne", part, idioms.scalar(0, part.dtype)) for part in (x.real, x.imag)))


def _of_truth(row: Row, *values: Any, **keywords: Any) -> Any:
    return row(*map(_truth, values), **keywords)


_MEANINGS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mul", "matmul", "mm", "bmm", "mv", "dot", "outer", "cross", "linalg_cross"), _product),
    **dict.fromkeys([f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)], _conv),
    **dict.fromkeys(("any", "all", "count_nonzero"), _of_truth),
    **dict.fromkeys([f"logical_{name}" for name in ("and", "or", "xor", "not")], _of_truth),
    **dict.fromkeys(("div", "divide", "true_divide"), _divide),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    **dict.fromkeys(("eq", "isfinite"), _compared("and")),
    **dict.fromkeys(("ne", "isnan", "isinf"), _compared("or")),
    "add": lambda _, x, y, alpha=1: _sum(x, y, alpha),
    "sub": lambda _, x, y, alpha=1: _sum(x, y, alpha, "sub"),
    "rsub": lambda _, x, y, alpha=1: _sum(y, x, alpha, "sub"),
    "linear": _linear,
    "einsum": _einsum,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "pow": _power,
    "square": lambda _, z: multilinear(_mul, (z, z)),
    "reciprocal": lambda _, z: reciprocal(z),
    "abs": lambda _, z: _size(z),
    "sgn": lambda _, z: _sgn(z),
    "sqrt": lambda _, z: _root(z),
    "exp": lambda _, z: _exp(z),
    "log": lambda _, z: _log(z),
    "log2": lambda _, z: multilinear(_mul, (_log(z), 1 / math.log(2))),
    "log10": lambda _, z: multilinear(_mul, (_log(z), 1 / math.log(10))),
    "cos": lambda _, z: _cosh(Complex(tensor("neg", z.imag), z.real)),
    "cosh": lambda _, z: _cosh(z),
    "sin": lambda _, z: _sin(z),
    "sinh": lambda _, z: _sinh(z),
    "var": _of_both(lambda real, imag: tensor("add", real, imag)),
    "std": _of_both(_hypot),
    "linalg_vector_norm": _vector_norm,
}
"""What other operators make of complex tensors, given their rows."""


def _normalized(z: Any, extents: Sequence[Any], normalization: int) -> Any:
    """Multiply a transform as torch's number says: by 1, 1 / sqrt(n) or 1 / n."""
    count = math.prod(map(idioms.number, extents))
    return multilinear(_mul, (z, (1, count**-0.5, 1 / count)[normalization])) if normalization else z


def _fft_of_real(x: Term, axes: Sequence[int], normalization: int, onesided: bool) -> Complex:
    extents = [x.shape[axis] for axis in axes]
    last = idioms.number(extents[-1])
    z = fourier(idioms.as_float(x), axes[-1], True, last // 2 + 1 if onesided else last)
    for axis in axes[:-1]:
        z = fourier(z, axis, True)
    return _normalized(z, extents, normalization)


def _fft(z: Complex, axes: Sequence[int], normalization: int, forward: bool) -> Complex:
    extents = [z.shape[axis] for axis in axes]
    for axis in axes:
        z = fourier(z, axis, forward)
    return _normalized(z, extents, normalization)


def _fft_to_real(z: Complex, axes: Sequence[int], normalization: int, extent: int) -> Term:
    extents = [*(z.shape[axis] for axis in axes[:-1]), extent]
    for axis in axes[:-1]:
        z = fourier(z, axis, False)
    return _normalized(inverse_of_half(z, axes[-1], extent), extents, normalization)


def _frequencies(extent: int, step: float = 1.0, dtype: str | None = None) -> Term:
    """Return 0, 1, ..., -1 over extent * step."""
    ordered = tensor("sub", idioms_indices.numbers(extent, -1), idioms.scalar(extent // 2, "i64"))
    numbers = idioms_indices.roll(ordered, [-(extent // 2)])
    return _mul(idioms.cast(numbers, dtype or idioms.float_dtype()), 1 / (extent * step))


def _frequencies_of_half(extent: int, step: float = 1.0, dtype: str | None = None) -> Term:
    numbers = idioms_indices.numbers(extent // 2 + 1, -1)
    return _mul(idioms.cast(numbers, dtype or idioms.float_dtype()), 1 / (extent * step))


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
    "aten._fft_r2c.default": _fft_of_real,
    "aten._fft_c2c.default": _fft,
    "aten._fft_c2r.default": _fft_to_real,
}
"""What overloads mean that make complex tensors, or are for them only."""
