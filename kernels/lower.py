"""Lowering: bodies of a kernel to one loop nest.

Each element is evaluated in the outermost block where its axes are known, so that what does not depend on the inner
loops is hoisted out of them, folds included: softmax becomes one loop over rows with loops over the row inside. What
several inner loops need, and is dear, is held in a row.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from frittata.egraph import dtypes, indexing, program, shapes
from frittata.egraph.attend import expanded
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.ops.winograd import as_window_dot
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import merge
from frittata.kernels.holding import HOLD_UNITS, recompute_units
from frittata.kernels.lookups import Site, sites
from frittata.kernels.loops import (
    Accumulate,
    Accumulator,
    Apply,
    Array,
    Assign,
    AssignIndex,
    Constant,
    Expression,
    Load,
    Local,
    Lookup,
    Loop,
    Nest,
    Position,
    Row,
    Statement,
    Store,
)
from frittata.kernels.scans import scanned_axes
from frittata.kernels.scopes import ALONG, Index, Names, Pattern, Place, Scope, close, place_of, variables_of
from frittata.kernels.stores import BODIES, stored_at

_MOST_ROW_BYTES = 1 << 20
_MOST_ROWS = 8
_LETTERS = "ijklmnpq"
_OWN_NAMES = re.compile(
    rf"[{_LETTERS}]|(i|k|t|at|row|out|sum|prod|max|min)\d*|abs|range|np|math|numba|step|table|chunk|status|(bool|bf16|[fiu]\d+)_pointer|"
    r"b?f16_(bits|value|rounded)|cuda|u?int32|uint64|m(ax|in)imum_f32|(mod|floordiv)_f\d+|thread|lane|member|half|down|across|total|inside|product|first|[gh]|"
    r"(tree|tile|q|j|sum|block|held|quad)\d*|(held|out)\d*_value|(load|store|shared|put)_quad|put|"
    r"(left|right)(s|\d*|_\w+)|first_[ijk]|tiles|sums|warp|place|offset|stage|part|turned|e|as_halves|is_aligned|"
    r"copy_chunk|copies_\w+|load_(matrix|transposed)|multiply_b?f16|team|others?"
)


@dataclass(frozen=True)
class Around:
    """The loops around what a kernel stores, outermost first, and the index that it stores at, in their variables.

    Rows are held up to `most_row_bytes`, of what costs more than `hold_units` to compute again. `is_shared`: the
    outermost loop may be shared out among threads.
    """

    extent_by_loop: Mapping[str, int]
    index: Index
    most_row_bytes: int = _MOST_ROW_BYTES
    is_shared: bool = True
    hold_units: float = HOLD_UNITS


def lower(bodies: tuple[Term, ...], around: Around | None = None) -> Nest:
    """Lower `build` terms of one shape to one nest that computes them all.

    Without `around` each axis is a loop, and sums down columns are interchanged.

    Raises: LoweringError if a body is not a `build`, or has a symbolic dim.
    """
    _check(bodies)
    loops = around or _axis_by_axis(shapes.concrete(bodies[0].shape), scanned_axes(*bodies))
    held: set[Pattern] = set()
    names = Names()
    while True:
        lowering = _Lowering(frozenset(held), names, array_names(bodies), loops.most_row_bytes)
        nest = lowering.run(bodies, loops)
        worth_it = lowering.next_row(loops.hold_units) if len(held) < _MOST_ROWS else None
        if worth_it is None:
            return merge.tidy(nest, interchanges=around is None)
        held.add(worth_it)


def lower_block(
    stores: Iterable[tuple[str, Affine, Term, Index]],
    variables: Iterable[str],
    array_by_leaf: Mapping[Term, str],
    given: Mapping[Term, Expression],
) -> list[Statement]:
    """Lower stores of elements, as (array, offset, element, index), to one block that knows `variables`.

    Elements that are `given` are not computed.
    """
    lowering = _Lowering(frozenset(), Names(), array_by_leaf, 0, given)
    scope = Scope(variables=set(variables))
    for array, offset, element, index in stores:
        scope.block.append(Store(array, offset, lowering.element(element, index, scope)))
    return merge.tidy(Nest((), (), scope.block), interchanges=False).body


def _axis_by_axis(shape: tuple[int, ...], scanned: frozenset[int]) -> Around:
    """Open a loop for each axis, those that scans run along innermost, so that each scan is filled once."""
    extent_by_loop: dict[str, int] = {}
    index: dict[int, Affine] = {}
    for axis in sorted(range(-len(shape), 0), key=lambda axis: (axis in scanned, axis)):
        if shape[axis] > 1:
            name = _letter(len(extent_by_loop))
            extent_by_loop[name] = shape[axis]
            index[axis] = var(name, shape[axis])
    is_shared = any(axis not in scanned for axis in index)
    return Around(extent_by_loop, index, is_shared=is_shared)


def _check(bodies: tuple[Term, ...]) -> None:
    for body in bodies:
        if body.op not in BODIES:
            raise LoweringError(f"a kernel computes build terms, not {body.op}")
        if body.shape != bodies[0].shape:
            raise LoweringError(f"bodies of shapes {shapes.fmt(body.shape)} and {shapes.fmt(bodies[0].shape)}")
        shapes.concrete(body.shape, "output of a kernel")


def operand_names(bodies: tuple[Term, ...]) -> tuple[str, ...]:
    """Return the names of the arrays that the operands of bodies become, in order."""
    names: list[str] = []
    for leaf in program.operands_of(*bodies):
        name = identifier(leaf.attrs[0])
        while name in names:
            name += "_"
        names.append(name)
    return tuple(names)


def array_names(bodies: tuple[Term, ...]) -> dict[Term, str]:
    """Return the names of the arrays that the operands of bodies become."""
    return dict(zip(program.operands_of(*bodies), operand_names(bodies), strict=True))


def result_names(bodies: tuple[Term, ...]) -> tuple[str, ...]:
    """Return the names of the arrays that bodies fill, in order."""
    return ("out",) if len(bodies) == 1 else tuple(f"out{i}" for i in range(len(bodies)))


def identifier(name: str) -> str:
    """Turn the name of a buffer or kernel into one that source may use beside its own."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not plain or plain[0].isdigit() or keyword.iskeyword(plain) or _OWN_NAMES.fullmatch(plain):
        return f"x_{plain}"
    return plain


class _Lowering:
    """One attempt, with a set of patterns to hold; it notes which others would be worth it."""

    def __init__(
        self,
        held: frozenset[Pattern],
        names: Names,
        array_by_leaf: Mapping[Term, str],
        most_row_bytes: int,
        given: Mapping[Term, Expression] | None = None,
    ) -> None:
        self._held = held
        self._names = names
        self._array_by_leaf = array_by_leaf
        self._most_row_bytes = most_row_bytes
        self._given = given or {}
        self._sites: dict[Site, int] = {}
        self._held_terms = {term for term, _ in held}
        self._evaluations: dict[Pattern, dict[str, int]] = {}
        self._counts: dict[str, int] = {}

    def run(self, bodies: tuple[Term, ...], around: Around) -> Nest:
        root = scope = Scope()
        self._sites = sites(bodies)
        opened: list[Scope] = []
        for name, extent in around.extent_by_loop.items():
            scope = Scope(scope, name, extent)
            opened.append(scope)
        for body, name in zip(bodies, result_names(bodies), strict=True):
            offset = stored_at(body, around.index)
            scope.block.append(Store(name, offset, self.element(body.args[0], around.index, scope)))
        for inner in reversed(opened):
            assert inner.parent is not None and inner.var is not None
            parallel = inner is opened[0] and around.is_shared
            inner.parent.block.append(Loop(inner.var, inner.extent, inner.block, parallel=parallel))
        operands = tuple(_array(name, leaf) for leaf, name in self._array_by_leaf.items())
        results = tuple(_array(name, body) for name, body in zip(result_names(bodies), bodies, strict=True))
        return Nest(operands, results, root.block)

    def next_row(self, hold_units: float) -> Pattern | None:
        """Return an element that is worth a row, is evaluated more than once at a place, and is no part of another."""
        for (element, place), count_by_loop in self._evaluations.items():  # users are noted before what they use
            axes = {axis for axis, index in place if ALONG in index.variables()}
            if sum(count_by_loop.values()) > 1 and recompute_units(element, axes, self._held_terms) > hold_units:
                return element, place
        return None

    # ---- elements ----------------------------------------------------------------------------------------------------

    def element(self, e: Term, index: Index, scope: Scope) -> Expression:
        """Return the value of an element at an index, computed in the outermost block that knows it."""
        if e in self._given:
            return self._given[e]
        if e.op == "const":
            return Constant(e.attrs[0])
        if e.op == "reindex":
            return self.element(e.args[0], self._mapped(e.attrs[0], e.args[0], index, scope), scope)
        place = place_of(e, index)
        home = scope.home_of(variables_of(place))
        key = (e, place)
        if key not in home.known:
            row = self._row(e, place, home)
            home.known[key] = row or self._computed(e, dict(place), home)
        return home.known[key]

    def _computed(self, e: Term, index: Index, home: Scope) -> Expression:
        match e.op:
            case "load":
                return self._load(e.args[0], index, home)
            case "iota":
                axis, extent, dtype = e.attrs
                return self._named(home, Position(self._clamped(index, axis, extent, home), dtype))
            case "fold":
                return self._fold(e, index, home)
            case "dot":
                return self._dot(e, index, home)
            case "window_dot":
                return self._window_dot(e, index, home)
            case "winograd_dot":
                return self.element(as_window_dot(e), index, home)
            case "attend":
                return self.element(expanded(e), index, home)
            case "scan":
                return self._scan(e, index, home)
            case "at":
                return self.element(e.args[0], {**index, e.attrs[0]: self._lookup(e, index, home)}, home)
            case "square":
                value = self.element(e.args[0], index, home)
                return self._named(home, Apply("mul", (value, value), e.dtype))
            case _:
                args = tuple(self.element(arg, index, home) for arg in e.args)
                return self._named(home, Apply(e.op, args, e.dtype))

    def _load(self, leaf: Term, index: Index, home: Scope) -> Expression:
        if leaf not in self._array_by_leaf:
            raise LoweringError(f"a body loads {leaf.op}, which is no buffer", do="materialize it or inline it first")
        shape = shapes.concrete(leaf.shape)
        at = tuple(self._clamped(index, axis, shape[axis], home) for axis in range(-len(shape), 0))
        return self._named(home, Load(self._array_by_leaf[leaf], indexing.flatten(at, shape), leaf.dtype))

    def _fold(self, e: Term, index: Index, home: Scope) -> Expression:
        op, axis, extent = e.attrs
        if extent == 1:
            return self.element(e.args[0], {**index, axis: Affine()}, home)
        total = self._accumulator(home, op, e)
        loop = self._open(home, extent, e, place_of(e, index))
        value = self.element(e.args[0], {**index, axis: var(loop.var or "", extent)}, loop)
        loop.block.append(Accumulate(total.name, op, value))
        close(loop)
        return total

    def _dot(self, e: Term, index: Index, home: Scope) -> Expression:
        (depth,) = e.attrs
        total = self._accumulator(home, "sum", e)
        loop = self._open(home, depth, e, place_of(e, index)) if depth > 1 else home
        k = var(loop.var or "", depth)
        self._accumulate_product(e, total, ({**index, -1: k}, {**index, -2: k}), loop)
        if loop is not home:
            close(loop)
        return total

    def _accumulate_product(
        self, e: Term, total: Local, indices: tuple[Index, Index], scope: Scope, inside: tuple[Expression, ...] = ()
    ) -> None:
        left, right = (self.element(arg, index, scope) for arg, index in zip(e.args, indices, strict=True))
        if inside:
            padding = Constant(Scalar.of(0, e.dtype))
            left = self._named(scope, Apply("where", (reduce(_both, inside), left, padding), e.dtype))
        scope.block.append(Accumulate(total.name, "sum", Apply("mul", (left, right), e.dtype)))

    def _window_dot(self, e: Term, index: Index, home: Scope) -> Expression:
        """Loops over input channels and window offsets; what lies in the padding reads as zero."""
        source, channels, kernel, stride, padding, dilation, groups = e.attrs
        rank, inputs = len(kernel), source[0] // groups
        spatial = window_extents(source[1:], kernel, stride, padding, dilation)
        channel = self._clamped(index, -rank - 1, channels, home)
        total = self._accumulator(home, "sum", e)
        scope = self._open(home, inputs, e, place_of(e, index)) if inputs > 1 else home
        depth = var(scope.var or "", inputs)
        left: dict[int, Affine] = {axis: at for axis, at in index.items() if axis < -rank - 1}
        left[-rank - 1] = channel // (channels // groups) * inputs + depth
        right: dict[int, Affine] = {-rank - 2: channel, -rank - 1: depth}
        inside: list[Expression] = []
        for i in range(rank):
            at = self._clamped(index, i - rank, spatial[i], home)
            if kernel[i] > 1:
                scope = self._open(scope, kernel[i], e, place_of(e, index), i)
                right[i - rank] = var(scope.var or "", kernel[i])
            place = at * stride[i] + right.get(i - rank, Affine()) * dilation[i] + -padding[i]
            left[i - rank] = self._clamped({-1: place}, -1, source[1 + i], scope)
            if not _is_within(place, source[1 + i]):
                inside.append(self._named(scope, _is_inside(place, source[1 + i])))
        self._accumulate_product(e, total, (left, right), scope, tuple(inside))
        while scope is not home:
            scope = close(scope)
        return total

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _row(self, e: Term, place: Place, home: Scope) -> Expression | None:
        """Return a held value if the element is to be held along this loop; otherwise note that it is evaluated."""
        if home.parent is None or home.var is None or e.op in ("load", "iota", "scan"):
            return None
        if variables_of(place) & home.variables != {home.var}:
            return None
        along: dict[int | str, Affine] = {home.var: var(ALONG, home.extent)}
        pattern = (e, tuple((axis, at.substitute(along)) for axis, at in place))
        outer = home.parent.home_of(variables_of(pattern[1]))
        if pattern not in self._held:
            if home.extent * dtypes.itemsize(e.dtype) <= self._most_row_bytes:
                self._evaluations.setdefault(pattern, {})[home.var] = home.repeats_within(outer)
            return None
        if pattern not in outer.rows:
            self._fill(pattern, home.extent, outer)
        return self._named(home, Load(outer.rows[pattern], var(home.var, home.extent), e.dtype))

    def _fill(self, pattern: Pattern, extent: int, outer: Scope) -> None:
        element, place = pattern
        name = outer.rows[pattern] = self._fresh("row")
        outer.block.append(Row(name, element.dtype, extent))
        loop = self._open(outer, extent, pattern)
        at = var(loop.var or "", extent)
        by_key: dict[int | str, Affine] = {ALONG: at}
        index = {axis: where.substitute(by_key) for axis, where in place}
        value = loop.known[(element, place_of(element, index))] = self._computed(element, index, loop)
        loop.block.append(Store(name, at, value))
        close(loop)

    # ---- indices -----------------------------------------------------------------------------------------------------

    def _mapped(self, mapping: IndexMap, inner: Term, index: Index, scope: Scope) -> dict[int, Affine]:
        """Return the index into the operand of a view."""
        rank = len(mapping.source)
        extents = shapes.concrete(mapping.result)
        needed = [i for i in range(rank) if shapes.dim_at(inner.shape, i - rank) != 1]
        mentioned = {axis for i in needed for axis in mapping.sources[i].variables()}
        by_key: dict[int | str, Affine] = {
            axis: self._clamped(index, axis, extents[axis], scope)
            for axis in range(-len(extents), 0)
            if axis in mentioned
        }
        return {i - rank: mapping.sources[i].substitute(by_key) for i in needed}

    def _clamped(self, index: Index, axis: int, extent: int, scope: Scope) -> Affine:
        """Return the index on an axis, clamped to 0 .. extent - 1 where it could lie outside."""
        at = index.get(axis, Affine())
        if extent == 1:
            return Affine()
        if _is_within(at, extent):
            return at
        if not at.variables():
            return Affine(min(max(at.constant, 0), extent - 1))
        home = scope.home_of(at.variables())
        if (at, extent) not in home.clamped:
            name = self._names.of("at", (at, extent))
            home.block.append(AssignIndex(name, at, extent))
            home.variables.add(name)
            home.clamped[at, extent] = var(name, extent)
        return home.clamped[at, extent]

    def _scan(self, e: Term, index: Index, home: Scope) -> Expression:
        """Fill a row with the running fold in the outermost block that knows the other axes, and read it."""
        op, axis, extent = e.attrs
        if extent == 1:
            return self.element(e.args[0], {**index, axis: Affine()}, home)
        at = self._clamped(index, axis, extent, home)
        place = tuple((a, where) for a, where in place_of(e, index) if a != axis)
        outer = home.home_of(variables_of(place))
        if (e, place) not in outer.rows:
            name = outer.rows[e, place] = self._fresh("row")
            outer.block.append(Row(name, e.dtype, extent))
            total = self._accumulator(outer, op, e)
            loop = self._open(outer, extent, e, place)
            k = var(loop.var or "", extent)
            loop.block.append(Accumulate(total.name, op, self.element(e.args[0], {**dict(place), axis: k}, loop)))
            loop.block.append(Store(name, k, total))
            close(loop)
        return self._named(home, Load(outer.rows[e, place], at, e.dtype))

    def _lookup(self, e: Term, index: Index, scope: Scope) -> Affine:
        """Return the index that a look-up computes, once for each place of it."""
        (_, indices), (_, extent) = e.args, e.attrs
        place = place_of(indices, index)
        home = scope.home_of(variables_of(place))
        key = (indices, place, extent)
        if key not in home.lookups:
            value = self.element(indices, index, home)
            name = self._names.of("at", key)
            site = self._sites.setdefault((indices, extent), len(self._sites))
            home.block.append(Lookup(name, value, extent, site))
            home.variables.add(name)
            home.lookups[key] = var(name, extent)
        return home.lookups[key]

    # ---- writing -----------------------------------------------------------------------------------------------------

    def _accumulator(self, home: Scope, fold: str, e: Term) -> Local:
        name = self._fresh(fold)
        home.block.append(Accumulator(name, fold, e.dtype))
        return Local(name, e.dtype)

    def _open(self, parent: Scope, extent: int, *what: Any) -> Scope:
        return Scope(parent, self._names.of("k", what), extent)

    def _named(self, home: Scope, value: Expression) -> Expression:
        name = self._fresh("t")
        home.block.append(Assign(name, value))
        return Local(name, value.dtype)

    def _fresh(self, stem: str) -> str:
        number = self._counts.get(stem, 0)
        self._counts[stem] = number + 1
        return f"{stem}{number}"


def _is_within(index: Affine, extent: int) -> bool:
    low, high = index.bounds()
    return low >= 0 and high < extent


def _letter(position: int) -> str:
    return _LETTERS[position] if position < len(_LETTERS) else f"i{position}"


def _array(name: str, term: Term) -> Array:
    return Array(name, term.dtype, shapes.size(term.shape))


def _is_inside(place: Affine, extent: int) -> Expression:
    """Return whether an index lies in 0 .. extent - 1."""
    at = Position(place, "i64")
    low = Apply("ge", (at, Constant(Scalar.of(0, "i64"))), "bool")
    return _both(low, Apply("lt", (at, Constant(Scalar.of(extent, "i64"))), "bool"))


def _both(first: Expression, second: Expression) -> Expression:
    return Apply("and", (first, second), "bool")
