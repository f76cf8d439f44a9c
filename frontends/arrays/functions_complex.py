"""What numpy's functions mean of complex tensors, most of them by what their rows make of real ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from inspect import BoundArguments
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.arrays import trees, ufuncs
from frittata.frontends.arrays.constants import dtype_of, part_dtype, term_of
from frittata.frontends.arrays.functions import FUNCTIONS
from frittata.frontends.arrays.ufuncs_complex import lacking
from frittata.frontends.idioms_complex import (
    Complex,
    angle,
    conjugate,
    each,
    hypot,
    joined,
    multilinear,
    parts,
    size,
)

Row = Callable[..., Any]
Meaning = Callable[[Row, BoundArguments], Any]
"""Takes the row of a function and its arguments."""


def takes(given: BoundArguments) -> bool:
    """Whether there is a complex tensor, number or dtype among arguments."""
    named = given.arguments
    return part_dtype(named.get("dtype")) is not None or _has_complex(named.values())


def apply(name: str, function: Any, row: Row, given: BoundArguments) -> Any:
    """Apply a function that has a row for real tensors.

    Raises: UnsupportedOpError if it has no meaning, or a complex argument in a place where it takes none.
    """
    if function in _MEANINGS:
        return _MEANINGS[function](row, given)
    if function not in _PARTWISE:
        raise lacking(name)
    (label, first), *others = given.arguments.items()
    if _has_complex(value for _, value in others):
        raise UnsupportedOpError(f"{name} with complex numbers for places or sizes", do="give integers")
    return _each_part(row, given, {label: first})


def _has_complex(values: Iterable[Any]) -> bool:
    return any(isinstance(leaf, Complex | complex) for _, leaf in trees.leaves(tuple(values)))


def _called(row: Row, given: BoundArguments, **others: Any) -> Any:
    """Call a row with other values of some arguments."""
    bound = BoundArguments(given.signature, OrderedDict({**given.arguments, **others}))
    return row(*bound.args, **bound.kwargs)


def _each_part(row: Row, given: BoundArguments, values: Mapping[str, Any]) -> Any:
    """Do the same to the real parts of some arguments, and to the imaginary ones."""
    pairs = {label: parts(trees.rebuilt(value, lambda _, leaf: _wide(leaf))) for label, value in values.items()}
    return joined(*(_called(row, given, **{label: pair[i] for label, pair in pairs.items()}) for i in (0, 1)))


def _wide(leaf: Any) -> Any:
    """Widen halves: complex numbers have none for parts."""
    return idioms.cast(leaf, "f32") if isinstance(leaf, Term) and dtypes.is_half(leaf.dtype) else leaf


def _where(row: Row, given: BoundArguments) -> Any:
    choices = given.arguments.get("choices", ())
    return _each_part(row, given, {"choices": choices}) if _has_complex(choices) else _called(row, given)


def _diff(row: Row, given: BoundArguments) -> Any:
    ends = {label: value for label, value in given.arguments.items() if label in ("a", "prepend", "append")}
    return _each_part(row, given, {label: term_of(value) for label, value in ends.items()})


def _pad(row: Row, given: BoundArguments) -> Any:
    named = given.arguments
    if not isinstance(named["array"], Complex):
        return _called(row, given)
    return _each_part(row, given, {label: named.get(label, 0) for label in ("array", "constant_values")})


def _each_alone(row: Row, given: BoundArguments) -> Any:
    found = [each(row, term_of(x)) for x in given.arguments["arys"]]
    return tuple(found) if len(found) > 1 else found[0]


def _reduced(row: Row, given: BoundArguments) -> Any:
    x = ufuncs.converted(term_of(given.arguments["a"]), given.arguments.get("dtype"))
    if not isinstance(x, Complex):
        return _called(row, given, a=x)
    return each(lambda part: _called(row, given, a=part, dtype=None), x)


def _spread(join: Callable[[Term, Term], Term]) -> Meaning:
    def meaning(row: Row, given: BoundArguments) -> Any:
        x, dtype = term_of(given.arguments["a"]), given.arguments.get("dtype")
        is_complex = part_dtype(dtype) is not None
        if isinstance(x, Complex) and dtype is not None and not is_complex:
            raise UnsupportedOpError("a spread of complex numbers in a real dtype", do="leave dtype out")
        found = _reduced(row, given)
        spread = join(found.real, found.imag)
        return Complex(*parts(spread)) if is_complex else spread

    return meaning


def _product(row: Row, given: BoundArguments) -> Any:
    factors = [term_of(given.arguments[label]) for label in ("a", "b")]
    return multilinear(lambda x, y: _called(row, given, a=x, b=y), factors)


def _vdot(row: Row, given: BoundArguments) -> Any:
    turned = conjugate(term_of(given.arguments["a"]))
    return _product(row, BoundArguments(given.signature, OrderedDict({**given.arguments, "a": turned})))


def _einsum(row: Row, given: BoundArguments) -> Any:
    operands = list(map(term_of, given.arguments["operands"]))
    return multilinear(lambda *chosen: _called(row, given, operands=chosen), operands)


def _norm(row: Row, given: BoundArguments) -> Any:
    return _called(row, given, x=size(Complex(*parts(term_of(given.arguments["x"])))))


def _filled(value: Any = None) -> Meaning:
    """Fill a tensor with a value, or with the one that is given."""

    def meaning(_: Row, given: BoundArguments) -> Any:
        named = given.arguments
        real, _ = parts(named["a"])
        dtype = named["dtype"] if named.get("dtype") is not None else dtype_of(named["a"])
        part, fill, shape = part_dtype(dtype), named.get("fill_value", value), named.get("shape")
        row = FUNCTIONS[np.full_like]
        if part is None:
            return row(real, fill, dtype, shape)
        return Complex(*(row(real, one, dtypes.to_numpy(part), shape) for one in parts(fill)))

    return meaning


_PARTWISE = frozenset[Any](
    (
        *(np.reshape, np.ravel, np.transpose, np.matrix_transpose, np.swapaxes, np.moveaxis),
        *(np.linalg.matrix_transpose, np.expand_dims, np.squeeze, np.broadcast_to),
        *(np.concatenate, np.stack, np.hstack, np.vstack, np.dstack, np.column_stack),
        *(np.split, np.array_split, np.tile, np.repeat),
        *(np.roll, np.flip, np.fliplr, np.flipud, np.take, np.take_along_axis, np.diag, np.diagonal),
        *(np.tril, np.triu, np.round, np.around, np.nan_to_num, np.copy),
    )
)
"""Functions that do the same to both parts of their first argument."""

_MEANINGS: dict[Any, Meaning] = {
    **dict.fromkeys((np.any, np.all, np.count_nonzero, np.shape, np.ndim, np.size), _called),
    **dict.fromkeys((np.sum, np.mean, np.cumsum, np.trace), _reduced),
    **dict.fromkeys((np.dot, np.inner, np.outer, np.tensordot, np.cross), _product),
    **dict.fromkeys((np.atleast_1d, np.atleast_2d, np.atleast_3d), _each_alone),
    np.vdot: _vdot,
    np.einsum: _einsum,
    np.where: _where,
    np.pad: _pad,
    np.diff: _diff,
    np.var: _spread(lambda real, imag: tensor("add", real, imag)),
    np.std: _spread(hypot),
    np.linalg.norm: _norm,
    np.zeros_like: _filled(0),
    np.empty_like: _filled(0),
    np.ones_like: _filled(1),
    np.full_like: _filled(),
}
"""What other functions make of complex tensors, given their rows."""


def _real(val: Any) -> Term:
    return parts(term_of(val))[0]


def _imag(val: Any) -> Term:
    return parts(term_of(val))[1]


def _angle(z: Any, deg: bool = False) -> Any:
    x = term_of(z)
    found = angle(x) if isinstance(x, Complex) else ufuncs.apply(np.arctan2, (0, x), {})
    return idioms.cast(ufuncs.apply(np.multiply, (found, 180 / np.pi), {}), found.dtype) if deg else found


ROWS: dict[Any, Row] = {
    np.real: _real,
    np.imag: _imag,
    np.angle: _angle,
    np.iscomplexobj: lambda x: isinstance(x, Complex),
    np.isrealobj: lambda x: not isinstance(x, Complex),
    np.iscomplex: lambda x: ufuncs.apply(np.not_equal, (_imag(x), 0), {}),
    np.isreal: lambda x: ufuncs.apply(np.equal, (_imag(x), 0), {}),
}
"""What functions mean that tell complex numbers from real ones."""
