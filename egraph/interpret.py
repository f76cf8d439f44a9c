"""The meaning of every term, in numpy. With precision "f64" this interpreter is the law for all other ways to compute.

An element is evaluated on an index: for each axis an integer array, all of them broadcasting together. Binders add a
trailing dimension to the arrays, evaluate, and reduce it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.attend import expanded
from frittata.egraph.errors import ModelError
from frittata.egraph.ops import externs, indices, registry
from frittata.egraph.ops.contractions import contract
from frittata.egraph.ops.elements import FOLDS, window_extents
from frittata.egraph.ops.winograd import tiled_window
from frittata.egraph.terms import Scalar, Term

Array = np.ndarray[Any, np.dtype[Any]]
Index = Mapping[int, Array]
Precision = Literal["f64", "native", "rounded"]


def evaluate(
    roots: tuple[Term, ...], value_by_name: Mapping[str, Array], precision: Precision = "f64"
) -> tuple[Array, ...]:
    """Evaluate tensor terms; `value_by_name` binds inputs and params.

    With precision "f64" all floating-point work is done in float64, whatever the dtypes say; "native" does each
    operation in its dtype; "rounded" does it in float64 and rounds the result to its dtype.

    Raises: ModelError if a leaf has no value or a value of another shape; IndexRangeError if an index lies outside of
        the axis that it points into.
    """
    interpreter = Interpreter(value_by_name, precision, checked=True)
    return tuple(interpreter.tensor(root) for root in roots)


class Interpreter:
    """Evaluates terms under one binding of the leaves, each tensor once.

    `checked` refuses indices that lie outside of their axis, which are clamped otherwise.
    """

    def __init__(
        self, value_by_name: Mapping[str, Array], precision: Precision = "f64", *, checked: bool = False
    ) -> None:
        self._given = value_by_name
        self._precision = precision
        self._checked = checked
        self._value_by_term: dict[Term, Array] = {}
        self._seen: set[Term] = set()

    def tensor(self, root: Term) -> Array:
        """Return the values of a tensor term."""
        self._compute_tensors(root)
        return self._value_by_term[root]

    def element_at(self, element: Term, index: Index) -> Array:
        """Return the values of an element at an index, in range or out of range."""
        self._compute_tensors(element)
        with np.errstate(all="ignore"):
            return self._element(element, index, {})

    def _compute_tensors(self, root: Term) -> None:
        """Compute the tensors that a term is made of, but for those that are known."""
        with np.errstate(all="ignore"):
            for term in terms.walk(root, seen=self._seen):
                if term.sort == "tensor":
                    self._seen.discard(term)  # it may be refused
                    self._value_by_term[term] = self._compute(term)
                    self._seen.add(term)

    def _compute(self, term: Term) -> Array:
        shape = shapes.concrete(term.shape, term.op)
        if term.op in ("input", "param"):
            return self._leaf(term, shape)
        if term.op == "full":
            return np.full(shape, self._constant(term.attrs[0]))
        if term.op in ("build", "part"):
            return np.array(np.broadcast_to(self._element(term.args[0], grid(shape), {}), shape))
        reference = registry.get(term.op).reference
        if reference is None:
            raise ModelError(f"{term.op} has no numpy meaning", do="give its row a reference")
        operands = tuple(self._value_by_term[arg] for arg in term.args)
        if registry.is_own(term.op):
            operands = tuple(map(externs.read_only, operands))
        if self._checked:
            indices.check_indices(term.op, operands, term.attrs)
        try:
            value = self._applied(lambda *values: reference(*values, *term.attrs), operands, term)
        except ModelError:
            if not externs.is_extern(term.op):
                raise
            value = self._called_with_its_dtypes(reference, term, operands)
        if value.shape != shape:
            raise ModelError(f"the reference of {term.op} gave shape {value.shape} in place of {shape}")
        return value

    def _called_with_its_dtypes(self, reference: Callable[..., Any], call: Term, operands: Sequence[Array]) -> Array:
        """Return what a library makes of operands in their own dtypes: not all of its functions take float64 there."""
        given = (x.astype(dtypes.to_numpy(arg.dtype)) for x, arg in zip(operands, call.args, strict=True))
        found = self._rounded(reference(*given, *call.attrs), call.dtype)
        return found.astype(np.float64) if self._precision == "f64" and dtypes.is_float(call.dtype) else found

    def _leaf(self, term: Term, shape: tuple[int, ...]) -> Array:
        name = term.attrs[0]
        if name not in self._given:
            raise ModelError(f"no value for {term.op} {name!r}", do="bind it")
        value = np.asarray(self._given[name])
        if value.shape != shape:
            raise ModelError(f"{term.op} {name!r} has shape {value.shape}, declared {shape}")
        if self._precision == "f64" and dtypes.is_float(term.dtype):
            return value.astype(np.float64)
        return value

    def _applied(self, function: Callable[..., Any], operands: Sequence[Array], term: Term) -> Array:
        """Return what the operator of a term makes of its operands."""
        if self._precision == "rounded":
            operands = [_widened(operand) for operand in operands]
        return self._rounded(function(*operands), term.dtype)

    def _rounded(self, value: Any, dtype: str) -> Array:
        """Give a result its dtype: numpy widens sums of integers, and a cast between floats keeps what it gets."""
        wide = self._precision == "f64" and dtypes.is_float(dtype)
        return np.asarray(value) if wide else np.asarray(value).astype(dtypes.to_numpy(dtype), copy=False)

    def _constant(self, value: Scalar) -> Array:
        wide = self._precision == "f64" and dtypes.is_float(value.dtype)
        return np.asarray(value.value, np.float64 if wide else dtypes.to_numpy(value.dtype))

    def _element(self, e: Term, index: Index, known: dict[Term, Array]) -> Array:
        """Evaluate at one index; `known` holds what was computed there already."""
        if e not in known:
            known[e] = self._element_once(e, index, known)
        return known[e]

    def _element_once(self, e: Term, index: Index, known: dict[Term, Array]) -> Array:
        match e.op:
            case "load":
                value = self._value_by_term[e.args[0]]
                return value[tuple(_at(index, axis, value.shape[axis]) for axis in range(-value.ndim, 0))]
            case "const":
                return self._constant(e.attrs[0])
            case "iota":
                axis, extent, dtype = e.attrs
                wide = self._precision == "f64" and dtypes.is_float(dtype)
                return _at(index, axis, extent).astype(np.float64 if wide else dtypes.to_numpy(dtype))
            case "fold":
                op, axis, extent = e.attrs
                inner = self._element(e.args[0], _bind(index, axis, np.arange(extent)), {})
                return self._applied(lambda x: FOLDS[op].reduce(x, axis=-1), (_spread(inner, extent),), e)
            case "dot":
                (depth,) = e.attrs
                left = self._element(e.args[0], _bind(index, -1, np.arange(depth)), {})
                right = self._element(e.args[1], _bind(index, -2, np.arange(depth)), {})
                return self._applied(contract, (_spread(left, depth), _spread(right, depth)), e)
            case "window_dot":
                return self._window_dot(e, index)
            case "winograd_dot":
                return self._winograd_dot(e, index)
            case "attend":
                return self._element(expanded(e), index, known)
            case "reindex":
                return self._element(e.args[0], _mapped(index, e.attrs[0]), {})
            case "scan":
                return self._scan(e, index)
            case "at":
                return self._looked_up(e, index, known)
            case _:
                reference = registry.get(e.op, "element").reference
                assert reference is not None
                operands = tuple(self._element(arg, index, known) for arg in e.args)
                return self._applied(lambda *values: reference(*values, *e.attrs), operands, e)

    def _scan(self, e: Term, index: Index) -> Array:
        op, axis, extent = e.attrs
        inner = self._element(e.args[0], _bind(index, axis, np.arange(extent)), {})
        running = self._applied(lambda x: FOLDS[op].accumulate(x, axis=-1), (_spread(inner, extent),), e)
        place = _at(index, axis, extent)
        running = running.reshape((1,) * (place.ndim + 1 - running.ndim) + running.shape)
        others = np.indices(running.shape[:-1], sparse=True)
        return running[(*others, place)]

    def _looked_up(self, e: Term, index: Index, known: dict[Term, Array]) -> Array:
        axis, extent = e.attrs
        places = self._element(e.args[1], index, known)
        if self._checked:
            indices.check_range(places, extent, e.op)
        return self._element(e.args[0], {**index, axis: _inside(places, extent)}, {})

    def _window_dot(self, e: Term, index: Index) -> Array:
        source, channels, kernel, stride, padding, dilation, groups = e.attrs
        rank = len(kernel)
        inputs = source[0] // groups
        spatial = window_extents(source[1:], kernel, stride, padding, dilation)
        channel = _at(index, -rank - 1, channels)[..., None]
        group = channel // (channels // groups)
        places = [_at(index, i - rank, spatial[i])[..., None] * stride[i] - padding[i] for i in range(rank)]
        outer = {axis: at[..., None] for axis, at in index.items() if axis < -rank - 1}
        total: Any = 0
        for offset in product(*map(range, kernel)):
            at = [places[i] + offset[i] * dilation[i] for i in range(rank)]
            inside: Any = np.asarray(True)
            for i in range(rank):
                inside = inside & (at[i] >= 0) & (at[i] < source[1 + i])
            left_index = {**outer, -rank - 1: group * inputs + np.arange(inputs)}
            left_index.update({i - rank: _inside(at[i], source[1 + i]) for i in range(rank)})
            right_index = {-rank - 2: channel, -rank - 1: np.arange(inputs)}
            right_index.update({i - rank: np.asarray(offset[i]) for i in range(rank)})
            left = self._element(e.args[0], left_index, {})
            left = np.where(inside, left, np.zeros((), left.dtype))
            sides = (_spread(left, inputs), _spread(self._element(e.args[1], right_index, {}), inputs))
            total = total + self._applied(contract, sides, e)
        return np.asarray(total)

    def _winograd_dot(self, e: Term, index: Index) -> Array:
        inputs, channels = e.attrs[0][2], e.attrs[1]
        shape = window_extents(e.attrs[0][:2], (3, 3), (1, 1), e.attrs[2], (1, 1))
        place = {axis: _at(index, axis, n) for axis, n in zip(range(-3, 0), (*shape, channels), strict=True)}
        image, weights = (lambda at, arg=arg: _spread(self._element(arg, at, {}), inputs) for arg in e.args)
        return np.asarray(tiled_window(image, weights, {**index, **place}, e.attrs))


def grid(shape: tuple[int, ...]) -> Index:
    """Return the index that visits every place of a tensor."""
    rank = len(shape)
    return {
        axis: np.arange(shape[axis]).reshape(*(1,) * (rank + axis), -1, *(1,) * (-axis - 1)) for axis in range(-rank, 0)
    }


def _widened(value: Array) -> Array:
    """Give floats, those of ml_dtypes too, float64."""
    return value if value.dtype.kind in "biu" else value.astype(np.float64)


def _at(index: Index, axis: int, extent: int) -> Array:
    return _inside(index.get(axis, np.asarray(0)), extent)


def _inside(places: Array, extent: int) -> Array:
    """Take places to the nearest ones of an axis; `np.clip` spends several times as long on few of them."""
    return np.minimum(np.maximum(places, 0), extent - 1)


def _bind(index: Index, axis: int, values: Array) -> Index:
    return {**{a: at[..., None] for a, at in index.items()}, axis: values}


def _spread(value: Array, extent: int) -> Array:
    """Give the trailing dimension its extent where the value does not depend on it."""
    value = np.asarray(value)
    lead = value.shape[:-1] if value.ndim else ()
    return np.broadcast_to(value, (*lead, extent))


def _mapped(index: Index, mapping: Any) -> Index:
    result: dict[int | str, Array] = {
        axis: _at(index, axis, mapping.result[axis]) for axis in range(-len(mapping.result), 0)
    }
    rank = len(mapping.source)
    return {i - rank: np.asarray(expr.evaluate(result.__getitem__)) for i, expr in enumerate(mapping.sources)}
