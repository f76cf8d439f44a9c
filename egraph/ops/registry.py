"""Rows of operators: what each takes, what type it gives, what it means in numpy, what it costs."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from frittata.egraph import dtypes, terms
from frittata.egraph.errors import ModelError, NarrowError, UnsupportedOpError
from frittata.egraph.ops import attributes
from frittata.egraph.terms import ElementType, Sort, TensorType, Term, Type

REQUIRED: Any = object()
"""The default of an attribute that has none."""


@dataclass(frozen=True)
class Op:
    """One operator.

    `operands` names its arguments and gives their sorts; `attrs` names its attributes and gives their defaults.
    `infer(types, attrs)` returns the result's type or raises ModelError. `reference(*values, *attrs)` is its meaning in
    numpy; binders and atoms of elements, whose meaning needs an index, have none. `cost` is what one value costs, in
    units of one addition. An `opaque` operator has no definition by elements: it runs as a host step, by its reference,
    or by what `writes` its result into the last of the arrays that it is given. One that `carries` takes and gives
    values of narrow dtypes; others do not.
    """

    name: str
    sort: Sort
    operands: tuple[tuple[str, Sort], ...]
    attrs: tuple[tuple[str, Any], ...]
    infer: Callable[[tuple[Any, ...], tuple[Any, ...]], Type]
    reference: Callable[..., Any] | None = None
    cost: float = 1.0
    pointwise: bool = False
    opaque: bool = False
    doc: str = ""
    writes: Callable[..., Any] | None = None
    carries: bool = False

    @property
    def key(self) -> str:
        """The name with its sort: `t_add` works on tensors, `e_add` on elements."""
        return f"{self.sort[0]}_{self.name}"


RESERVED = ("and", "or", "not")
"""Words of Python that are names of operators; rules write `and_`."""

_TYPE_BY_SORT: dict[Sort, type[Type]] = {"tensor": TensorType, "element": ElementType}
_OP_BY_KEY: dict[str, Op] = {}
_ROW_BY_STEM: dict[str, Callable[[int], Op]] = {}
_MADE: set[str] = set()
_BUILT_IN: set[str] = set()


def register(op: Op) -> Op:
    """Add a row.

    Raises: ModelError if the name is taken, or cannot be written in rules and scripts; if there is no such sort; if
        operands, attributes, functions or the cost are none.
    """
    _check_row(op)
    if op.key in _OP_BY_KEY:
        own = "" if op.key in _BUILT_IN else f", or call frittata.ops.unregister({op.name!r}) before"
        what = f"operator {op.name} of sort {op.sort} is registered already"
        raise ModelError(what, do=f"choose another name{own}")
    _OP_BY_KEY[op.key] = op
    return op


def _check_row(op: Any) -> None:
    if not isinstance(op, Op):
        raise ModelError(f"an operator that is a {type(op).__name__}", do="give a frittata.ops.Op")
    given: Any = op
    if given.sort not in _TYPE_BY_SORT:
        raise ModelError(f"operator {given.name} of sort {given.sort!r}", do='give "tensor" or "element"')
    if not _is_word(given.name, RESERVED) or given.name in dtypes.NAMES or _is_made(given.name):
        do = "take a word that is reserved neither by Python nor as a dtype or an operator of the package"
        raise ModelError(f"an operator cannot be named {given.name!r}", do=do)
    if f"e_{given.name}" in _BUILT_IN and f"t_{given.name}" not in _BUILT_IN and given.sort == "tensor":
        raise ModelError(f"operator {given.name} is one on elements", do="choose another name")
    if not _are_pairs(given.operands) or any(sort not in _TYPE_BY_SORT for _, sort in given.operands):
        do = 'give pairs of a name and a sort: (("x", "tensor"),)'
        raise ModelError(f"operator {op.name} with the operands {given.operands!r}", do=do)
    if not _are_pairs(given.attrs):
        do = 'give pairs of a name and a default: (("axis", -1),)'
        raise ModelError(f"operator {op.name} with the attributes {given.attrs!r}", do=do)
    labels = [label for label, _ in (*op.operands, *op.attrs)]
    if not all(map(_is_word, labels)) or len({*labels}) < len(labels):
        raise ModelError(f"operator {op.name} takes {', '.join(map(str, labels))}", do="give each a word of its own")
    for what, function in (("infer", given.infer), ("reference", given.reference), ("writes", given.writes)):
        if not (callable(function) or (function is None and what != "infer")):
            raise ModelError(f"operator {op.name} with {what}={function!r}", do="give a function")
    if op.opaque and op.reference is None and op.writes is None:
        raise ModelError(f"operator {op.name} is opaque and has no reference", do="give the function that it runs by")
    if not isinstance(given.cost, int | float) or not 0 <= given.cost < inf:
        raise ModelError(f"operator {op.name} with cost={given.cost!r}", do="give what a value costs, in additions")


def _is_made(name: str) -> bool:
    """Whether a name is one of those that a row is made for when they are asked for."""
    stem, _, count = name.rpartition("_")
    return stem in _ROW_BY_STEM and count.isdecimal() and count == str(int(count))


def _is_word(name: Any, admitted: Sequence[str] = ()) -> bool:
    return isinstance(name, str) and name.isidentifier() and (not keyword.iskeyword(name) or name in admitted)


def _are_pairs(parts: Any) -> bool:
    return isinstance(parts, tuple) and all(isinstance(part, tuple) and len(part) == 2 for part in parts)  # pyright: ignore


def register_variadic(stem: str, row: Callable[[int], Op]) -> None:
    """Let `row(n)` make the operator `stem_n` of n operands when it is first asked for."""
    _ROW_BY_STEM[stem] = row


def unregister(name: str, sort: Sort = "tensor") -> None:
    """Take a user's row out again.

    Raises: ModelError if there is none, or it is built in.
    """
    key = f"{sort[0]}_{name}"
    if key in _BUILT_IN:
        raise ModelError(f"the {sort} operator {name!r} is built in", do="register another under a name of its own")
    if _OP_BY_KEY.pop(key, None) is None:
        raise ModelError(f"no {sort} operator {name!r} is registered")


def built_in() -> None:
    """Say that all rows so far stay."""
    _BUILT_IN.update(_OP_BY_KEY)


def is_built_in(name: str, sort: Sort) -> bool:
    """Whether a row is one of the package's, or made by one of them."""
    return f"{sort[0]}_{name}" in _BUILT_IN or name in _MADE


def is_own(name: str) -> bool:
    """Whether a tensor operator was registered by the user."""
    return not is_built_in(name, "tensor") and find(name, "tensor") is not None


def find(name: str, sort: Sort) -> Op | None:
    """Return the row, or None."""
    found = _OP_BY_KEY.get(f"{sort[0]}_{name}")
    if found is None and sort == "tensor" and _is_made(name):
        stem, _, count = name.rpartition("_")
        found = _OP_BY_KEY[f"t_{name}"] = _ROW_BY_STEM[stem](int(count))
        _MADE.add(name)
    return found


def get(name: str, sort: Sort = "tensor") -> Op:
    """Return the row of an operator.

    Raises: UnsupportedOpError that names the nearest if there is none.
    """
    op = find(name, sort)
    if op is None:
        near = nearest(name, sort)
        raise UnsupportedOpError(f"unknown {sort} operator {name!r}", do=f"did you mean {near!r}?" if near else "")
    return op


def by_key(key: str) -> Op:
    """Return the row of `t_name` or `e_name`."""
    return _OP_BY_KEY[key]


def names(sort: Sort = "tensor") -> list[str]:
    """List all operators of a sort, but not the rows made for a number of operands."""
    return sorted(op.name for op in _OP_BY_KEY.values() if op.sort == sort and op.name not in _MADE)


def every() -> list[Op]:
    """List all rows."""
    return list(_OP_BY_KEY.values())


def nearest(name: str, sort: Sort | None = None) -> str | None:
    """Return the operator most like `name`: one misspelled, that begins it (max, maximum), or a little alike."""
    candidates = sorted({op.name for op in _OP_BY_KEY.values() if sort in (None, op.sort)} - _MADE)
    begins = [one for one in candidates if len(one) > 2 and name.startswith(one)]
    misspelled = difflib.get_close_matches(name, candidates, 1, 0.8)
    found = misspelled or sorted(begins, key=len)[-1:] or difflib.get_close_matches(name, candidates, 1, 0.5)
    return found[0] if found else None


def write(function: Callable[..., Any], arrays: Iterable[Any], result: np.ndarray[Any, Any]) -> None:
    """Let what an operator `writes` write its result.

    Raises: ModelError if it returns another array instead.
    """
    found = function(*arrays, result)
    if isinstance(found, np.ndarray) and not np.may_share_memory(found, result):  # pyright: ignore[reportUnknownArgumentType]
        name = getattr(function, "__name__", type(function).__name__)
        raise ModelError(f"{name} returned an array, and may not have written its result", do="write result[...] = ...")


def make(name: str, sort: Sort, args: tuple[Term, ...], attrs: tuple[Any, ...]) -> Term:
    """Build a typed term.

    Raises: UnsupportedOpError, ModelError if the arguments or attributes do not fit the row.
    """
    op = get(name, sort)
    is_ours = is_built_in(name, sort)
    if is_ours and (known := terms.known(name, sort, args, attrs)):
        return known
    if len(args) != len(op.operands):
        raise ModelError(f"{name} takes {len(op.operands)} operands, got {len(args)}")
    for (label, wanted), arg in zip(op.operands, args, strict=True):
        if getattr(arg, "sort", None) != wanted:
            raise ModelError(f"operand {label} of {name} must be a {wanted}, got {arg!r}")
    full = complete(op, tuple(map(attributes.plain, attrs)))
    for (label, _), value in zip(op.attrs, full, strict=True):
        attributes.check(name, label, value, is_ours)
    if not op.carries:
        _refuse_narrow(name, [arg.dtype for arg in args])
    try:
        type_ = op.infer(tuple(arg.type for arg in args), full)
    except ModelError as error:
        given = ", ".join(str(arg.type) for arg in args)
        error.where = error.where or f"{name}({given}) with {dict(zip((a for a, _ in op.attrs), full, strict=True))}"
        raise
    except Exception as error:  # a row may be the caller's code
        raise ModelError(f"the type rule of {name} raised {type(error).__name__}: {error}") from error
    if not isinstance(type_, _TYPE_BY_SORT[sort]):
        raise ModelError(f"the type rule of {name} gave {type_!r}", do=f"return a {_TYPE_BY_SORT[sort].__name__}")
    extents = type_.shape if isinstance(type_, TensorType) else type_.extents
    if not is_ours and not attributes.is_type(extents, type_.dtype):
        raise ModelError(f"the type rule of {name} gave {type_!r}", do="give a tuple of extents and a dtype's name")
    if not op.carries:
        _refuse_narrow(name, [type_.dtype])
    return terms.intern(name, sort, args, full, type_, is_ours)


def _refuse_narrow(name: str, given: list[str]) -> None:
    narrow = next(filter(dtypes.is_narrow, given), None)
    if narrow is not None:
        what = f"{name} of {narrow}, a dtype that values are only stored in"
        raise NarrowError(what, do=f"cast to {dtypes.wide(narrow)}, and back")


def complete(op: Op, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fill in the defaults of trailing attributes."""
    if len(attrs) > len(op.attrs):
        raise ModelError(f"{op.name} takes {len(op.attrs)} attributes, got {len(attrs)}")
    rest = tuple(default for _, default in op.attrs[len(attrs) :])
    if any(value is REQUIRED for value in rest):
        missing = [label for label, default in op.attrs[len(attrs) :] if default is REQUIRED]
        raise ModelError(f"{op.name} needs attribute {', '.join(missing)}")
    return (*attrs, *rest)


def tensor(name: str, /, *args: Term, **attrs: Any) -> Term:
    """Build a tensor term with attributes by name: `tensor("softmax", x, axis=-1)`."""
    return _by_name(name, "tensor", args, attrs)


def element(name: str, /, *args: Term, **attrs: Any) -> Term:
    """Build an element term with attributes by name: `element("fold", e, op="sum", axis=-1, extent=4)`."""
    return _by_name(name, "element", args, attrs)


def _by_name(name: str, sort: Sort, args: tuple[Term, ...], attrs: dict[str, Any]) -> Term:
    op = get(name, sort)
    unknown = set(attrs) - {label for label, _ in op.attrs}
    if unknown:
        raise ModelError(f"{name} has no attribute {', '.join(sorted(unknown))}")
    return make(name, sort, args, tuple(attrs.get(label, default) for label, default in op.attrs))
