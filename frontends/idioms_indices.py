"""What frameworks say with computed indices: advanced indexing, scatters in their many forms, masks of attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from frittata.egraph import dtypes, indexing, shapes
from frittata.egraph.errors import EmptyError, ModelError, UnsupportedOpError
from frittata.egraph.indexing import IndexMap
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.shapes import Dim
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms

# ---- reading ---------------------------------------------------------------------------------------------------------


def wrapped(indices: Term, extent: Dim) -> Term:
    """Count negative indices from the end."""
    below = tensor("lt", indices, idioms.scalar(0, indices.dtype))
    from_end = tensor("add", indices, idioms.scalar(idioms.number(extent), indices.dtype))
    return tensor("where", below, from_end, indices)


def take(x: Term, indices: Term, axis: int) -> Term:
    """Look up slices along an axis, in the place of which the axes of the indices stand."""
    return tensor("take", x, indices, axis=idioms.negative_axis(axis, len(x.shape)))


def gather(x: Term, indices: Term, axis: int) -> Term:
    """Look up single values along an axis; on the others the indices may end earlier than the operand."""
    if not x.shape:
        found = gather(idioms.reshape(x, (1,)), idioms.reshape(indices, (-1,)), 0)
        return idioms.reshape(found, indices.shape)
    axis = idioms.negative_axis(axis, len(x.shape))
    for other in range(-len(x.shape), 0):
        if other != axis:
            x = idioms.take_slice(x, other, 0, 1, idioms.number(indices.shape[other]))
    return tensor("gather", x, indices, axis=axis)


def one_hot(indices: Term, classes: int) -> Term:
    """Return one at each index and zero elsewhere, along a new last axis."""
    return take(eye(classes, classes, "i64"), indices, -2)


def eye(rows: Dim, columns: Dim, dtype: str, offset: int = 0) -> Term:
    """Return ones on a diagonal."""
    row = element("iota", axis=-2, extent=rows)
    row = element("add", row, _number(offset)) if offset else row
    same = element("eq", row, element("iota", axis=-1, extent=columns))
    return idioms.cast(tensor("build", same, shape=(rows, columns)), dtype)


def numbers(extent: int, axis: int) -> Term:
    """Return 0, 1, ... along an axis counted from the right, and axes of extent 1 after it."""
    shape = (extent, *(1,) * (-axis - 1))
    return tensor("build", element("iota", axis=axis, extent=extent), shape=shape)


def advanced(x: Term, indices: Sequence[Term | None], apart: bool = False) -> Term:
    """Index as numpy does, with a tensor of integers for some axes and None for the others, which stay whole.

    The axes of the indices stand in front if these are `apart`, though they be for neighbours.

    Raises: UnsupportedOpError for masks, whose results have no static shape.
    """
    places = _placed(x, indices)
    if len(places) == 1:
        ((at, found),) = places.items()
        return take(x, found, at - len(x.shape))
    return looked_up(x, places, apart)


def _placed(x: Term, indices: Sequence[Term | None]) -> dict[int, Term]:
    """Return the indices by the number of their axis, none of them negative."""
    places = {at: i for at, i in enumerate(indices) if i is not None}
    if any(i.dtype == "bool" for i in places.values()):
        do = "compute all places, and choose among them: where(mask, x, y)"
        raise UnsupportedOpError("indexing by a mask, whose result has no static shape", do=do)
    return {at: wrapped(i, x.shape[at]) for at, i in places.items()}


def looked_up(x: Term, places: dict[int, Term], apart: bool = False) -> Term:
    """Look up several axes at once, at indices that are not negative.

    The axes of the indices stand where the first of theirs was if they are neighbours, and not `apart`, else in front.
    Those that are looked up are put in front, apart from those of the result.
    """
    rank, count = len(x.shape), len(places)
    wide = shapes.broadcast(*(i.shape for i in places.values()))
    others = [at for at in range(rank) if at not in places]
    numbers = sorted(places)
    start = numbers[0] if numbers == list(range(numbers[0], numbers[0] + count)) and not apart else 0
    shape = (*(x.shape[at] for at in others[:start]), *wide, *(x.shape[at] for at in others[start:]))
    fronted = (*(x.shape[at] for at in numbers), *(x.shape[at] for at in others[:start]), *(1,) * len(wide))
    fronted += tuple(x.shape[at] for at in others[start:])
    place_by_axis = {at: i for i, at in enumerate(numbers)}
    place_by_axis |= {at: count + i + (len(wide) if i >= start else 0) for i, at in enumerate(others)}
    sources = tuple(indexing.var(place_by_axis[at] - len(fronted), x.shape[at]) for at in range(rank))
    e = element("reindex", element("load", x), map=IndexMap(x.shape, fronted, sources))
    after = len(others) - start
    for position, at in enumerate(numbers):
        spread = (*places[at].shape, *(1,) * after)
        i = element("load", idioms.reshape(places[at], spread))
        e = element("at", e, i, axis=position - len(fronted), extent=idioms.number(x.shape[at]))
    return tensor("build", e, shape=shape)


def places_among(ordered: Term, values: Term, right: bool) -> Term:
    """Return how many of what is in order along the last axis are less than each value, `right`: or equal to it.

    By bisection as in torch, which finds the same where NaN is among what is ordered. Several rows are for one row of
    values each, of the same dtype.
    """
    count = idioms.number(ordered.shape[-1])
    look_up = take if len(ordered.shape) == 1 else gather
    one, most = (idioms.scalar(value, "i64") for value in (1, count - 1))
    low, high = (idioms.filled(value, values.shape, "i64") for value in (0, count))
    for _ in range(count.bit_length()):
        middle = tensor("right_shift", tensor("add", low, high), one)
        found = look_up(ordered, tensor("min", middle, most), -1)
        above = tensor("or", tensor("gt" if right else "ge", found, values), tensor("eq", low, high))
        low, high = (tensor("where", above, low, tensor("add", middle, one)), tensor("where", above, middle, high))
    return low


# ---- writing ---------------------------------------------------------------------------------------------------------


def scatter(x: Term, axis: int, indices: Term, source: Term, how: str = "set") -> Term:
    """Write or combine values at indices along an axis; the source may be larger than the indices."""
    if not x.shape:
        one = [idioms.reshape(t, (1,)) for t in (x, indices, source)]
        return idioms.reshape(scatter(one[0], -1, one[1], one[2], how), ())
    for at in range(-len(x.shape), 0):
        source = idioms.take_slice(source, at, 0, 1, idioms.number(indices.shape[at]))
    if indices.op == "expand":  # equal places of whole slices: what they were before says it shorter
        (indices,) = indices.args
        indices = idioms.reshape(indices, (*(1,) * (len(x.shape) - len(indices.shape)), *indices.shape))
    return _scattered(x, indices, source, idioms.negative_axis(axis, len(x.shape)), how)


def _scattered(x: Term, indices: Term, source: Term, axis: int, how: str) -> Term:
    """Write or combine values; truth values are combined as numbers."""
    if x.dtype != "bool" or how == "set":
        return tensor("scatter", x, indices, source, axis=axis, reduce=how)
    fold = {"sum": "max", "prod": "min"}.get(how, how)
    return idioms.cast(_scattered(idioms.cast(x, "i32"), indices, idioms.cast(source, "i32"), axis, fold), "bool")


def scatter_reduce(x: Term, axis: int, indices: Term, source: Term, how: str, include_self: bool = True) -> Term:
    """Combine by `how`, a mean among them; without `include_self` what stood at the indices does not count."""
    touched = scatter(idioms.filled(False, x.shape, "bool"), axis, indices, _whole(True, indices, "bool"))
    start = x
    if not include_self:
        start = tensor("where", touched, idioms.typed(_neutral(how, x.dtype), x.dtype), x)
    fold = "sum" if how == "mean" else how
    out = scatter(start, axis, indices, source, fold)
    if how != "mean":
        return out
    if not dtypes.is_float(x.dtype):
        raise UnsupportedOpError("the mean of integers in a scatter")
    counts = scatter(
        idioms.filled(int(include_self), x.shape, x.dtype), axis, indices, _whole(1, indices, x.dtype), "sum"
    )
    return tensor("div", out, tensor("max", counts, idioms.scalar(1, x.dtype)))


def _neutral(how: str, dtype: str) -> Term:
    return tensor("full", value=fold_identity("sum" if how == "mean" else how, dtype), shape=())


def _whole(value: idioms.Number, like: Term, dtype: str) -> Term:
    return idioms.filled(value, like.shape, dtype)


def index_write(x: Term, axis: int, indices: Term, source: Term, how: str = "set") -> Term:
    """Write or combine slices of the source at the indices, a vector, along an axis."""
    if not x.shape:
        return idioms.reshape(index_write(idioms.reshape(x, (1,)), -1, indices, idioms.reshape(source, (1,)), how), ())
    axis = idioms.negative_axis(axis, len(x.shape))
    vector = idioms.reshape(indices, (-1,))
    shape = (*x.shape[: axis + len(x.shape)], vector.shape[0], *x.shape[axis + len(x.shape) + 1 :])
    places = idioms.reshape(vector, tuple(dim if at == axis else 1 for at, dim in enumerate(shape, -len(shape))))
    return _scattered(x, places, idioms.expand(source, shape), axis, how)


def index_put(x: Term, indices: Sequence[Term | None], values: Term, how: str = "set") -> Term:
    """Write or combine values where advanced indexing would read them.

    Raises: UnsupportedOpError for masks with a value for each place.
    """
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype == "bool":
        return _put_equal(x, indices, given[0], values, how)
    places = _placed(x, indices)
    numbers = sorted(places)
    others = [at for at in range(len(x.shape)) if at not in places]
    wide = shapes.broadcast(*(i.shape for i in places.values()))
    read = advanced(x, indices).shape
    start = numbers[0] if numbers == list(range(numbers[0], numbers[0] + len(numbers))) else 0
    order = [*range(start, start + len(wide)), *range(start), *range(start + len(wide), len(read))]
    extents = [idioms.number(x.shape[at]) for at in numbers]
    linear = _linear([idioms.expand(idioms.cast(places[at], "i64"), wide) for at in numbers], extents)
    count, rest = shapes.size(wide), shapes.size(tuple(x.shape[at] for at in others))
    flat = idioms.reshape(idioms.permute(x, [*numbers, *others]), (shapes.size(tuple(extents)), rest))
    source = idioms.reshape(idioms.permute(idioms.expand(values, read), order), (count, rest))
    written = index_write(flat, 0, linear, source, how)
    back = idioms.reshape(written, (*extents, *(x.shape[at] for at in others)))
    return idioms.permute(back, [[*numbers, *others].index(at) for at in range(len(x.shape))])


def _linear(indices: list[Term], extents: list[int]) -> Term:
    """Join indices into one; -1 where one of several is outside of its axis, which no other may hide."""
    if len(indices) == 1:
        return indices[0]

    def outside(i: Term, extent: int) -> Term:
        low = tensor("lt", i, idioms.scalar(0, i.dtype))
        return tensor("or", low, tensor("ge", i, idioms.scalar(extent, i.dtype)))

    joined = indices[0]
    for i, extent in zip(indices[1:], extents[1:], strict=True):
        joined = tensor("add", tensor("mul", joined, idioms.scalar(extent, "i64")), i)
    wrong = reduce(lambda a, b: tensor("or", a, b), map(outside, indices, extents))
    return tensor("where", wrong, idioms.scalar(-1, "i64"), joined)


def put_masked(x: Term, indices: Sequence[Term | None], values: Term, how: str) -> Term:
    """Write or combine values where a mask, which stands alone among the indices, holds; they have the shape of x."""
    ((at, mask),) = ((at, i) for at, i in enumerate(indices) if i is not None)
    condition = idioms.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - at - len(mask.shape))))
    return tensor("where", condition, tensor("add", x, values) if how == "sum" else values, x)


def _put_equal(x: Term, indices: Sequence[Term | None], mask: Term, values: Term, how: str) -> Term:
    """Write the same values at all places of a mask: as many axes as it has become one, which they do not have."""
    after = len(x.shape) - list(indices).index(mask) - len(mask.shape)
    lengths = (*(1,) * (after + 1 - len(values.shape)), *values.shape)
    before, (length, *rest) = lengths[: len(lengths) - after - 1], lengths[len(lengths) - after - 1 :]
    if length != 1:
        raise UnsupportedOpError("writing several values by a mask")
    shape = (*before, *(1,) * len(mask.shape), *rest)
    shape = shape[max(0, len(shape) - len(x.shape)) :]
    return put_masked(x, indices, idioms.expand(idioms.reshape(idioms.cast(values, x.dtype), shape), x.shape), how)


def slice_scatter(x: Term, source: Term, axis: int, start: int, step: int) -> Term:
    """Write the source over a slice of an axis: places start, start + step, ..."""
    axis = idioms.negative_axis(axis, len(x.shape))
    extent, length = x.shape[axis], idioms.number(source.shape[axis])
    place = (indexing.var(axis, extent) + -start) // step
    at = element("iota", axis=axis, extent=length)
    sources = list(indexing.axes_of(x.shape))
    sources[axis] = place
    mapping = IndexMap(source.shape, x.shape, tuple(sources))
    ones = (*(1,) * (len(x.shape) + axis), length, *(1,) * (-axis - 1))
    line = (*ones[: len(x.shape) + axis], extent, *ones[len(x.shape) + axis + 1 :])
    only = tuple(indexing.Affine() if n == 1 else place for n in ones)
    nearest = element("reindex", at, map=IndexMap(ones, line, only))
    own = element("add", element("mul", nearest, _number(step)), _number(start))
    inside = element("eq", own, element("iota", axis=axis, extent=extent))
    written = element("reindex", element("load", idioms.cast(source, x.dtype)), map=mapping)
    return tensor("build", element("where", inside, written, element("load", x)), shape=x.shape)


def diagonal_scatter(x: Term, source: Term, offset: int = 0, first: int = 0, second: int = 1) -> Term:
    """Write the source over a diagonal of two axes; its places are the last axis of the source."""
    rank = len(x.shape)
    order = [*(at for at in range(rank) if at not in (first % rank, second % rank)), first % rank, second % rank]
    moved = idioms.permute(x, order)
    rows, columns = (idioms.number(dim) for dim in moved.shape[-2:])
    start = max(0, -offset) * columns + max(0, offset)
    flat = idioms.reshape(moved, (*moved.shape[:-2], rows * columns))
    written = idioms.reshape(slice_scatter(flat, source, -1, start, columns + 1), moved.shape)
    return idioms.permute(written, [order.index(at) for at in range(rank)])


def strided(x: Term, size: Sequence[int], strides: Sequence[int], offset: int) -> Term:
    """Read a tensor, whose values lie in a row, at offset + the sum of index * stride.

    Raises: ModelError for places beyond its end.
    """
    flat, rank = _strided_over(x, size, strides, offset), len(size)
    parts = (indexing.var(at - rank, size[at]) * strides[at] for at in range(rank))
    mapping = IndexMap(flat.shape, tuple(size), (sum(parts, indexing.Affine(offset)),))
    return tensor("build", element("reindex", element("load", flat), map=mapping), shape=tuple(size))


def strided_scatter(x: Term, source: Term, size: Sequence[int], strides: Sequence[int], offset: int) -> Term:
    """Write the source where `strided` reads.

    Raises: ModelError for places beyond the end.
    """
    flat, values = _strided_over(x, size, strides, offset), idioms.reshape(source, (-1,))
    steps = [stride for extent, stride in zip(size, strides, strict=True) if extent > 1]
    if len(steps) < 2 and 0 not in steps:
        written = slice_scatter(flat, values, -1, offset, *steps or [1])
    else:
        place = _number(offset)
        for axis, extent, stride in zip(range(-len(size), 0), size, strides, strict=True):
            along_ = element("iota", axis=axis, extent=extent)
            place = element("add", place, element("mul", along_, _number(stride)))
        places = tensor("build", place, shape=tuple(size))
        written = index_write(flat, -1, places, idioms.cast(values, x.dtype))
    return idioms.reshape(written, x.shape)


def _strided_over(x: Term, size: Sequence[int], strides: Sequence[int], offset: int) -> Term:
    """Return all values of a tensor in a row, if strides stay within."""
    flat = idioms.reshape(x, (-1,))
    last = offset + sum((extent - 1) * stride for extent, stride in zip(size, strides, strict=True))
    if last >= idioms.number(flat.shape[0]):
        raise ModelError(f"strides {list(strides)} from {offset} lead out of {x.type}", do="read within the tensor")
    return flat


def _number(value: int) -> Term:
    return element("const", value=Scalar.of(value, "i64"))


def masked_scatter(x: Term, mask: Term, source: Term) -> Term:
    """Write values of the source, in its order, where the mask holds."""
    shape = shapes.broadcast(x.shape, mask.shape)
    where, x = idioms.expand(mask, shape), idioms.expand(x, shape)
    count = running(idioms.cast(idioms.reshape(where, (-1,)), "i64"), "cumsum", 0)
    place = tensor("max", tensor("sub", count, idioms.scalar(1, "i64")), idioms.scalar(0, "i64"))
    written = take(idioms.reshape(source, (-1,)), idioms.reshape(place, shape), -1)
    return tensor("where", where, written, x)


# ---- bags ------------------------------------------------------------------------------------------------------------


def bags(rows: Term, counted: Term | None, number: int, how: str) -> Term:
    """Combine rows by a "sum", "mean" or "max", as many for each bag; those that are not `counted` are left out.

    Shapes: rows (indices, columns), counted (indices,), result (number, columns).

    Raises: UnsupportedOpError for the "max" of some.
    """
    length = idioms.number(rows.shape[0]) // number
    grouped = idioms.reshape(rows, (number, length, rows.shape[1]))
    if how == "max":
        return _first_or_greatest(grouped, counted)
    if counted is None:
        return idioms.mean(grouped, -2) if how == "mean" else idioms.reduce(grouped, how, -2)
    mask = idioms.reshape(counted, (number, length, 1))
    total = idioms.reduce(tensor("where", mask, grouped, idioms.scalar(0, rows.dtype)), "sum", -2)
    return total if how == "sum" else _mean_of_bags(total, idioms.reduce(idioms.cast(mask, rows.dtype), "sum", -2))


def _first_or_greatest(grouped: Term, counted: Term | None) -> Term:
    """Return the greatest along the last axis but one, passing over NaN unless it is the first."""
    if counted is not None:
        raise UnsupportedOpError("the greatest values of bags with padding")
    lowest = tensor("full", value=fold_identity("max", grouped.dtype), shape=())
    greatest = idioms.reduce(tensor("where", tensor("eq", grouped, grouped), grouped, lowest), "max", -2)
    first = idioms.select(grouped, -2, 0)
    return tensor("where", tensor("eq", first, first), greatest, first)


def ragged_bags(rows: Term, counted: Term | None, offsets: Term, number: int, how: str) -> Term:
    """Combine rows as `bags` does, each bag from an offset on; those after the last of more offsets are left out.

    Raises: UnsupportedOpError for the "max".
    """
    if how == "max":
        raise UnsupportedOpError("the greatest values of bags of different lengths")
    total, extent = idioms.number(rows.shape[0]), idioms.number(offsets.shape[0])
    begun = index_write(idioms.filled(0, (total + 1,), "i64"), 0, offsets, _whole(1, offsets, "i64"), "sum")
    bag = tensor("sub", idioms.take_slice(running(begun, "cumsum", 0), 0, 0, 1, total), idioms.scalar(1, "i64"))
    mask = idioms.filled(True, (total,), "bool") if counted is None else counted
    rows = tensor("where", idioms.unsqueeze(mask, -1), rows, idioms.scalar(0, rows.dtype))

    def combined(parts: Term) -> Term:
        whole = index_write(idioms.filled(0, (extent, *parts.shape[1:]), parts.dtype), 0, bag, parts, "sum")
        return idioms.take_slice(whole, 0, 0, 1, number)

    if how == "sum":
        return combined(rows)
    return _mean_of_bags(combined(rows), combined(idioms.unsqueeze(idioms.cast(mask, rows.dtype), -1)))


def _mean_of_bags(total: Term, counts: Term) -> Term:
    """Divide; the mean of nothing is zero."""
    return tensor("div", total, tensor("max", counts, idioms.scalar(1, counts.dtype)))


# ---- orders ----------------------------------------------------------------------------------------------------------


def place(x: Term, fold: str, axis: int | None = None, keep: bool = False) -> Term:
    """Return where the "max" or "min" along an axis stands, the first of equal ones; without an axis, in all of x."""
    x = idioms.cast(x, "i32") if x.dtype == "bool" else x
    along = None if axis is None else idioms.negative_axis(axis, len(x.shape))
    if along is None or not x.shape:
        out = tensor(f"arg{fold}", idioms.reshape(x, (-1,)), axis=-1)
        return idioms.reshape(out, (1,) * len(x.shape) if keep else ())
    out = tensor(f"arg{fold}", x, axis=along)
    return out if keep else idioms.squeeze(out, [along])


def running(x: Term, op: str, axis: int) -> Term:
    """Apply a running fold such as "cumsum"."""
    if not x.shape:
        return x
    return tensor(op, x, axis=idioms.negative_axis(axis, len(x.shape)))


def running_extreme(x: Term, op: str, axis: int) -> tuple[Term, Term]:
    """Apply "cummax" or "cummin": the values, and where the last of those that are equal so far stands, as torch does.

    A NaN stays, and stands where the last NaN does.
    """
    if x.dtype == "bool":
        values, places = running_extreme(idioms.cast(x, "i32"), op, axis)
        return idioms.cast(values, "bool"), places
    values = running(x, op, axis)
    if not x.shape:
        return values, idioms.scalar(0, "i64")
    axis = idioms.negative_axis(axis, len(x.shape))
    stands = tensor("eq", x, values)
    if dtypes.is_float(x.dtype):
        stands = tensor("or", stands, tensor("ne", x, x))
    reached = tensor("where", stands, numbers(shapes.concrete(x.shape)[axis], axis), idioms.scalar(0, "i64"))
    return values, tensor("cummax", reached, axis=axis)


def ordered(x: Term, axis: int, descending: bool) -> tuple[Term, Term]:
    """Sort along an axis: the values, and where they stood."""
    if not x.shape:
        return x, idioms.scalar(0, "i64")
    axis = idioms.negative_axis(axis, len(x.shape))
    return tensor("sort", x, axis=axis, descending=descending), tensor("argsort", x, axis=axis, descending=descending)


def first_of(x: Term, count: int, axis: int, largest: bool) -> tuple[Term, Term]:
    """Return the `count` largest or smallest along an axis in order, and where they stood."""
    if not x.shape:
        return x, idioms.scalar(0, "i64")
    places = idioms.take_slice(ordered(x, axis, largest)[1], axis, 0, 1, count)
    return gather(x, places, axis), places


def nth(x: Term, number: int, axis: int = -1, keep: bool = False) -> tuple[Term, Term]:
    """Return the value that `number` - 1 others are before along an axis, NaN after all, and where it stood."""
    if not x.shape:
        return first_of(x, number, axis, False)
    axis = idioms.negative_axis(axis, len(x.shape))
    _, places = first_of(x, number, axis, False)
    place = idioms.take_slice(places, axis, number - 1, 1, 1)
    return _at_place(x, place, axis, keep)


def median(x: Term, axis: int, keep: bool = False) -> tuple[Term, Term]:
    """Return the value in the middle along an axis, the lower one of two, or the first NaN; and where it stood."""
    if not x.shape:
        return first_of(x, 1, axis, False)
    axis = idioms.negative_axis(axis, len(x.shape))
    _, middle = nth(x, (idioms.number(x.shape[axis]) + 1) // 2, axis, True)
    if dtypes.is_float(x.dtype):
        greatest = place(x, "max", axis, True)
        value = gather(x, greatest, axis)
        middle = tensor("where", tensor("ne", value, value), greatest, middle)
    return _at_place(x, middle, axis, keep)


def median_of_numbers(x: Term, axis: int, keep: bool = False) -> tuple[Term, Term]:
    """Return the median along an axis of what is not NaN, where there is any; and where it stood."""
    if not x.shape:
        return first_of(x, 1, axis, False)
    axis = idioms.negative_axis(axis, len(x.shape))
    one = idioms.scalar(1, "i64")
    known = idioms.reduce(idioms.cast(tensor("eq", x, x), "i64"), "sum", axis, True)
    middle = tensor("right_shift", tensor("sub", tensor("max", known, one), one), one)
    return _at_place(x, gather(ordered(x, axis, False)[1], middle, axis), axis, keep)


def mode(x: Term, axis: int, keep: bool = False) -> tuple[Term, Term]:
    """Return the most frequent value along an axis, the least of several, and where the last of them stood.

    In order it is the first run of equal values that gets as long as any does.
    """
    if not x.shape:
        return first_of(x, 1, axis, False)
    axis = idioms.negative_axis(axis, len(x.shape))
    values, places = ordered(x, axis, False)
    along_ = numbers(idioms.number(x.shape[axis]), axis)
    begins = tensor("where", tensor("ne", values, roll(values, [1], [axis])), along_, idioms.scalar(0, "i64"))
    longest = place(tensor("sub", along_, running(begins, "cummax", axis)), "max", axis, True)
    return _at_place(x, gather(places, longest, axis), axis, keep)


def _at_place(x: Term, at: Term, axis: int, keep: bool) -> tuple[Term, Term]:
    value = gather(x, at, axis)
    return (value, at) if keep else (idioms.squeeze(value, [axis]), idioms.squeeze(at, [axis]))


# ---- views -----------------------------------------------------------------------------------------------------------


def flip(x: Term, axes: Sequence[int]) -> Term:
    """Reverse some axes; a single value has none."""
    if not x.shape:
        return x
    turned = {idioms.negative_axis(axis, len(x.shape)) for axis in axes}
    sources = list(indexing.axes_of(x.shape))
    for axis in turned:
        sources[axis] = sources[axis] * -1 + (idioms.number(x.shape[axis]) - 1)
    return _view(x, tuple(sources))


def roll(x: Term, shifts: Sequence[int], axes: Sequence[int] | None = None) -> Term:
    """Move values along axes, those that leave at the end in again at the start; without axes, as one long one."""
    if not axes:
        return idioms.reshape(roll(idioms.reshape(x, (-1,)), shifts, [0]), x.shape)
    sources = list(indexing.axes_of(x.shape))
    for shift, given in zip(shifts, axes, strict=True):
        axis = idioms.negative_axis(given, len(x.shape))
        extent = idioms.number(x.shape[axis])
        sources[axis] = (sources[axis] + (-shift) % extent) % extent
    return _view(x, tuple(sources))


def cross(x: Term, y: Term, axis: int) -> Term:
    """Return the cross products of vectors along an axis.

    Raises: ModelError if they are not of three.
    """
    for each in (x, y):
        if each.shape[idioms.negative_axis(axis, len(each.shape))] != 3:
            raise ModelError(f"cross products of {each.type} along axis {axis}", do="give vectors of three")
    ahead, behind = ((lambda v, by=by: roll(v, [by], [axis])) for by in (-1, 1))
    return tensor("sub", tensor("mul", ahead(x), behind(y)), tensor("mul", behind(x), ahead(y)))


def diagonal(x: Term, offset: int = 0, first: int = 0, second: int = 1) -> Term:
    """Return a diagonal of two axes, as the last axis."""
    rank = len(x.shape)
    rows, columns = first % rank, second % rank
    row, column = max(0, -offset), max(0, offset)
    length = min(idioms.number(x.shape[rows]) - row, idioms.number(x.shape[columns]) - column)
    if length < 1:
        raise EmptyError(f"diagonal {offset} of {x.type} is empty", do="tensors need at least one value")
    others = [at for at in range(rank) if at not in (rows, columns)]
    shape = (*(x.shape[at] for at in others), length)
    along_ = indexing.var(-1, length)
    by_axis = {rows: along_ + row, columns: along_ + column}
    by_axis |= {at: indexing.var(i - len(shape), x.shape[at]) for i, at in enumerate(others)}
    mapping = IndexMap(x.shape, shape, tuple(by_axis[at] for at in range(rank)))
    return tensor("build", element("reindex", element("load", x), map=mapping), shape=shape)


def _view(x: Term, sources: tuple[indexing.Affine, ...]) -> Term:
    mapping = IndexMap(x.shape, x.shape, sources)
    return tensor("build", element("reindex", element("load", x), map=mapping), shape=x.shape)


# ---- attention -------------------------------------------------------------------------------------------------------


def attention(
    q: Term, k: Term, v: Term, scale: float, mask: Term | None = None, causal: bool = False, groups: int = 1
) -> Term:
    """Attention, under a mask or causal; each head of keys and values serves `groups` heads of queries."""
    k, v = (repeat_each(t, groups, -3) for t in (k, v))
    if causal:
        return tensor("causal_attention", q, k, v, scale=scale)
    if mask is None:
        return tensor("attention", q, k, v, scale=scale)
    mask = mask if mask.dtype == "bool" else idioms.cast(mask, q.dtype)
    return tensor("masked_attention", q, k, v, mask, scale=scale)


def repeat_each(x: Term, times: int, axis: int) -> Term:
    """Repeat each slice of an axis: (a, b) twice -> (a, a, b, b)."""
    if times == 1:
        return x
    axis = idioms.negative_axis(axis, len(x.shape))
    lead, rest = x.shape[: len(x.shape) + axis + 1], x.shape[len(x.shape) + axis + 1 :]
    wide = idioms.expand(idioms.reshape(x, (*lead, 1, *rest)), (*lead, times, *rest))
    return idioms.reshape(wide, (*lead[:-1], idioms.number(lead[-1]) * times, *rest))
