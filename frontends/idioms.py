"""What frameworks say with one operator and the term language says with several: promotion, axes, views, reductions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

from frittata.egraph import dtypes, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import EmptyError, ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.shapes import Dim, Shape, Sym
from frittata.egraph.terms import Scalar, Term

MOST_UNROLLED = 256
"""How many times the graph of a loop is imported."""

Number = bool | int | float
Operand = Term | Number

_FLOAT: ContextVar[DType] = ContextVar("_FLOAT", default="f32")


@contextmanager
def default_float(dtype: DType) -> Generator[None]:
    """Within the block `float_dtype` is another one."""
    token = _FLOAT.set(dtype)
    try:
        yield
    finally:
        _FLOAT.reset(token)


def float_dtype() -> DType:
    """Return the dtype of floating-point numbers that nothing else gives one."""
    return _FLOAT.get()


def scalar(value: Number, dtype: DType) -> Term:
    """Return a tensor without axes."""
    return filled(value, (), dtype)


def like(x: Term, value: Number) -> Term:
    """Return a tensor without axes, of the dtype of another."""
    return scalar(value, x.dtype)


def filled(value: Number, shape: Shape, dtype: DType) -> Term:
    """Return a tensor that holds one value everywhere."""
    return tensor("full", value=Scalar.of(value, dtype), shape=shape)


def cast(x: Term, dtype: DType) -> Term:
    """Convert to `dtype` if it is another one."""
    return x if x.dtype == dtype else tensor("cast", x, dtype=dtype)


def within(dtype: DType, meaning: Callable[[Term], Term], x: Term) -> Term:
    """Return what a meaning makes of x in a dtype: x and the result are rounded to it, what lies between is wide."""
    return cast(meaning(cast(cast(x, dtype), dtypes.wide(dtype))), dtype)


def summed_dtype(x: Term) -> DType:
    """Return the dtype in which torch adds up: integers and bools widen."""
    return x.dtype if dtypes.is_float(x.dtype) else "i64"


def as_float(x: Term) -> Term:
    """Convert integers and bools to the default floating-point dtype."""
    return x if dtypes.is_float(x.dtype) else cast(x, float_dtype())


def typed(x: Operand, dtype: DType) -> Term:
    """Return an operand as a tensor of `dtype`."""
    return cast(x, dtype) if isinstance(x, Term) else scalar(x, dtype)


def promoted_dtype(*operands: Operand) -> DType:
    """Return the dtype in which torch computes: a tensor with axes wins over one without, and both over a number.

    The weaker kind changes the dtype only if its category (bool, integer, float) is higher.
    """
    with_axes = [x.dtype for x in operands if isinstance(x, Term) and x.shape]
    without = [x.dtype for x in operands if isinstance(x, Term) and not x.shape]
    numbers = [_number_dtype(x) for x in operands if not isinstance(x, Term)]
    result = ""
    for group in (with_axes, without, numbers):
        if group:
            found = dtypes.promote(*group)
            if not result or _category(found) > _category(result):
                result = found
    return result


def _number_dtype(value: Number) -> DType:
    return "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else float_dtype()


def _category(dtype: DType) -> int:
    return 2 if dtypes.is_float(dtype) else int(dtypes.is_integer(dtype))


def promoted(*operands: Operand) -> tuple[Term, ...]:
    """Return the operands as tensors of one dtype."""
    dtype = promoted_dtype(*operands)
    return tuple(typed(x, dtype) for x in operands)


def widened(*operands: Operand) -> tuple[DType, list[Term]]:
    """Return the dtype that operands have in common, and them, rounded to it, in the dtype in which it is computed."""
    kind = promoted_dtype(*operands)
    return kind, [cast(x, dtypes.wide(kind)) for x in promoted(*operands)]


def promoted_floats(*operands: Operand) -> tuple[Term, ...]:
    """Return the operands as tensors of one floating-point dtype."""
    dtype = promoted_dtype(*operands)
    return tuple(typed(x, dtype if dtypes.is_float(dtype) else float_dtype()) for x in operands)


def negative_axis(axis: int, rank: int) -> int:
    """Count an axis from the right.

    Raises: ModelError if there is no such axis.
    """
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise ModelError(f"axis {axis} of a tensor with {rank} axes")
    return axis - rank if axis >= 0 else axis


def negative_axes(axes: Sequence[int] | int | None, rank: int) -> list[int]:
    """Count axes from the right, in order; None and no axes mean all."""
    if isinstance(axes, int):
        axes = [axes]
    if not axes:
        return list(range(-rank, 0))
    found = sorted({negative_axis(axis, rank) for axis in axes})
    return found if rank else []


def reshape(x: Term, shape: Sequence[Dim]) -> Term:
    """Reshape if the shape is another one; one dim may be -1."""
    wanted = infer_dim(x.shape, tuple(shape))
    return x if wanted == x.shape else tensor("reshape", x, shape=wanted)


def infer_dim(source: Shape, wanted: Shape) -> Shape:
    """Replace -1 by the dim that keeps the size.

    Raises: ModelError if no dim does.
    """
    if -1 not in wanted:
        return wanted
    at = wanted.index(-1)
    known = [*wanted[:at], *wanted[at + 1 :]]
    left = [dim for dim in source if isinstance(dim, Sym)]
    for dim in known:
        if isinstance(dim, Sym) and dim in left:
            left.remove(dim)
    size, part = (prod(dim for dim in dims if isinstance(dim, int)) for dims in (source, known))
    if left and (len(left) > 1 or size != part):
        raise ModelError(
            f"cannot reshape {shapes.fmt(source)} to {shapes.fmt(wanted)}",
            do="keep each symbolic dim as an axis of its own",
        )
    found: Dim = left[0] if left else size // part
    return (*wanted[:at], found, *wanted[at + 1 :])


def permute(x: Term, permutation: Sequence[int]) -> Term:
    """Permute the axes unless they stay as they are."""
    rank = len(x.shape)
    order = tuple(p % rank for p in permutation)
    return x if order == tuple(range(rank)) else tensor("permute", x, permutation=order)


def swap(x: Term, first: int = -1, second: int = -2) -> Term:
    """Transpose two axes."""
    rank = len(x.shape)
    order = list(range(rank))
    if rank:
        first, second = negative_axis(first, rank), negative_axis(second, rank)
        order[first], order[second] = order[second], order[first]
    return permute(x, order)


def expand(x: Term, shape: Sequence[Dim]) -> Term:
    """Broadcast; -1 keeps a dim."""
    lead = len(shape) - len(x.shape)
    wanted = tuple(x.shape[i - lead] if dim == -1 and i >= lead else dim for i, dim in enumerate(shape))
    return x if wanted == x.shape else tensor("expand", x, shape=wanted)


def repeat(x: Term, times: Sequence[int]) -> Term:
    """Repeat by broadcasting over a new axis before each repeated one: (3,) 2 times -> (1, 3) -> (2, 3) -> (6,)."""
    shape = (*(1,) * (len(times) - len(x.shape)), *x.shape)
    out = reshape(x, shape)
    for axis, count in zip(range(-len(shape), 0), times, strict=True):
        if count != 1:
            inner = out.shape[axis:]
            outer = out.shape[: len(shape) + axis]
            out = expand(reshape(out, (*outer, 1, *inner)), (*outer, count, *inner))
            out = reshape(out, (*outer, count * number(inner[0]), *inner[1:]))
    return out


def triangle(x: Term, op: str, diagonal: int) -> Term:
    """Keep the values where column - row compares with the diagonal, by "le" or "ge", and zero the others."""
    rows, columns = x.shape[-2:]
    distance = element("sub", element("iota", axis=-1, extent=columns), element("iota", axis=-2, extent=rows))
    inside = element(op, distance, element("const", value=Scalar.of(diagonal, "i64")))
    return tensor("where", tensor("build", inside, shape=(rows, columns)), x, scalar(0, x.dtype))


def unsqueeze(x: Term, axis: int) -> Term:
    """Insert an axis of extent 1; `axis` counts in the result."""
    at = negative_axis(axis, len(x.shape) + 1) + len(x.shape) + 1
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(x: Term, axes: Sequence[int] | None = None) -> Term:
    """Drop axes of extent 1, among `axes` or all."""
    rank = len(x.shape)
    chosen = range(-rank, 0) if axes is None else {negative_axis(axis, rank) for axis in axes}
    return reshape(x, [dim for i, dim in enumerate(x.shape) if dim != 1 or i - rank not in chosen])


def take_slice(x: Term, axis: int, start: int, step: int, length: int) -> Term:
    """Take `length` values of one axis.

    Raises: EmptyError if nothing is left.
    """
    axis = negative_axis(axis, len(x.shape))
    if length < 1:
        raise EmptyError(f"a slice of axis {axis} of {x.type} is empty", do="tensors need at least one value")
    if (start, step, length) == (0, 1, x.shape[axis]):
        return x
    return tensor("slice", x, axis=axis, start=start, step=step, length=length)


def select(x: Term, axis: int, index: Dim) -> Term:
    """Take one index of an axis and drop the axis."""
    axis = negative_axis(axis, len(x.shape))
    if isinstance(index, Sym):
        raise UnsupportedOpError("select by a number that a tensor holds", do="index with a tensor of one axis")
    at = index + number(x.shape[axis]) if index < 0 else index
    shape = list(x.shape)
    del shape[axis]
    return reshape(take_slice(x, axis, at, 1, 1), shape)


def split(x: Term, sizes: Sequence[int], axis: int) -> tuple[Term, ...]:
    """Cut one axis into pieces."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(take_slice(x, axis, start, 1, size) for start, size in zip(starts, sizes, strict=True))


def number(dim: Dim) -> int:
    """Return a dim that must be a number."""
    return shapes.concrete((dim,))[0]


def check_steps(count: int) -> None:
    """Check how often a graph within a graph is imported.

    Raises: UnsupportedOpError if it is too often.
    """
    if count > MOST_UNROLLED:
        raise UnsupportedOpError(f"more than {MOST_UNROLLED} iterations")


def reduce(x: Term, fold: str, axes: Sequence[int] | int | None = None, keep: bool = False) -> Term:
    """Fold over some axes, None for all, and drop them unless they are kept."""
    chosen = negative_axes(axes, len(x.shape))
    out = x
    for axis in chosen:
        if out.shape[axis] != 1:
            out = tensor(f"reduce_{fold}", out, axis=axis)
    if keep:
        return out
    return reshape(out, [dim for i, dim in enumerate(x.shape) if i - len(x.shape) not in chosen])


def extreme(x: Term, fold: str, axes: Sequence[int] | int | None = None, keep: bool = False) -> Term:
    """Return the "max" or "min" over some axes, None for all; of bools, whether any or all hold."""
    if x.dtype == "bool":
        return tensor("ne", reduce(cast(x, "i32"), fold, axes, keep), scalar(0, "i32"))
    return reduce(x, fold, axes, keep)


def count(x: Term, axes: Sequence[int] | int | None) -> int:
    """Return how many values a reduction over `axes` folds into one."""
    return prod(number(x.shape[axis]) for axis in negative_axes(axes, len(x.shape)))


def mean(x: Term, axes: Sequence[int] | int | None = None, keep: bool = False) -> Term:
    """Return the mean over some axes, None for all."""
    x = as_float(x)
    return tensor("div", reduce(x, "sum", axes, keep), scalar(count(x, axes), x.dtype))


def variance(x: Term, axes: Sequence[int] | int | None = None, correction: float = 1, keep: bool = False) -> Term:
    """Return the sum of squared distances from the mean, divided by the count less `correction`."""
    distance = tensor("sub", x, mean(x, axes, True))
    freedom = max(0, count(x, axes) - correction)
    return tensor("div", reduce(tensor("square", distance), "sum", axes, keep), scalar(freedom, x.dtype))


_LOGIC_OF_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "ne"}


def bitwise(op: str, *operands: Term) -> Term:
    """Return a bitwise operator, `bitwise_not` among them, on integers of one dtype or on booleans."""
    x = operands[0]
    if op == "bitwise_not":
        return tensor("not", x) if x.dtype == "bool" else tensor("bitwise_xor", x, scalar(-1, x.dtype))
    return tensor(_LOGIC_OF_BITS[op] if x.dtype == "bool" else op, *operands)


def power(x: Term, exponent: Number) -> Term:
    """Raise to a number; some have forms of their own, as in torch and numpy."""
    square = tensor("square", x)
    match exponent:
        case 0:
            return filled(1, x.shape, x.dtype)
        case 1:
            return x
        case 2:
            return square
        case 3:
            return tensor("mul", square, x)
        case 0.5:
            return tensor("sqrt", x)
        case -0.5:
            return tensor("rsqrt", x)
        case -1:
            return tensor("reciprocal", x)
        case -2:
            return tensor("reciprocal", square)
        case int() if exponent > 0 and not dtypes.is_float(x.dtype):
            half = power(square, exponent // 2)
            return tensor("mul", half, x) if exponent % 2 else half
        case _:
            return tensor("pow", x, scalar(exponent, x.dtype))


def polynomial(x: Term, *factors: float) -> Term:
    """Return the polynomial of these factors, the highest power first."""
    out = like(x, factors[0])
    for factor in factors[1:]:
        out = tensor("add", tensor("mul", out, x), like(x, factor))
    return out


def log_softmax(x: Term, axis: int) -> Term:
    """Return the logarithm of softmax, without underflow."""
    shifted = tensor("sub", x, reduce(x, "max", axis, True))
    return tensor("sub", shifted, tensor("log", reduce(tensor("exp", shifted), "sum", axis, True)))


def matmul(a: Term, b: Term) -> Term:
    """Multiply as torch and numpy do: an operand with one axis is a row on the left, a column on the right."""
    if not a.shape or not b.shape:
        raise ModelError(f"matmul of {a.type} and {b.type}", do="both sides need at least one axis")
    left = reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    out = tensor("matmul", left, right)
    shape = list(out.shape)
    if len(b.shape) == 1:
        del shape[-1]
    if len(a.shape) == 1:
        del shape[-1 if len(b.shape) == 1 else -2]
    return reshape(out, shape)


def linear(x: Term, weight: Term, bias: Term | None) -> Term:
    """Return x weight^T + bias.

    Shapes: x (*batch, inputs), weight (outputs, inputs), bias (outputs,) or what stretches to the result.
    """
    if bias is not None and bias.shape != weight.shape[:-1]:
        return tensor("add", linear(x, weight, None), bias)
    if len(weight.shape) != 2:
        out = matmul(x, weight)
        return out if bias is None else tensor("add", out, bias)
    rows = reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    out = tensor("matmul", rows, swap(weight)) if bias is None else tensor("linear", rows, weight, bias)
    return reshape(out, (*x.shape[:-1], weight.shape[0]))


def convolution(
    x: Term,
    weight: Term,
    bias: Term | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Term:
    """Convolve, one channel's bias added to each of its values.

    Shapes: x (batch, inputs, *spatial), weight (outputs, inputs / groups, *kernel), bias (outputs,).
    """
    out = tensor("conv", x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return out if bias is None else tensor("add", out, per_channel(bias, len(x.shape)))


def per_channel(x: Term, rank: int) -> Term:
    """Give a vector the shape that broadcasts over axis 1 of (batch, channels, *spatial) with `rank` axes."""
    return reshape(x, (*x.shape, *(1,) * (rank - 2)))
