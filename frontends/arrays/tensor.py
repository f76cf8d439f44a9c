"""Tensors of a function that is traced: operators, numpy's functions and an array's methods on them make terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from frittata.egraph import dtypes, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import EmptyError, MissingAttributeError, ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.frontends.arrays import dispatch, trees, ufuncs, written
from frittata.frontends.arrays.constants import constant, dtype_of, part_dtype
from frittata.frontends.arrays.functions import FUNCTIONS
from frittata.frontends.arrays.indexing import indexed
from frittata.frontends.arrays.places import note
from frittata.frontends.idioms_complex import Complex, each


class Tensor(NDArrayOperatorsMixin):
    """A tensor whose values are not known yet: what stands for an array while a function is traced.

    It takes an array's operators, methods and numpy's functions; dtypes come out as numpy's. What would need its values
    (`if x.sum() > 0`), or would change it in place, is an error.

    >>> x = input("x", (3, 4))
    >>> np.maximum(x @ x.T, 0).sum(axis=-1)
    Tensor(f32[3])
    """

    __slots__ = ("term",)
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]  numpy's mixin has none, for == makes a tensor

    def __init__(self, term: Complex | Term) -> None:
        self.term = term
        note(term)

    def __repr__(self) -> str:
        term = self.term
        return f"Tensor({term.type if isinstance(term, Term) else f'{self.dtype}{list(term.shape)}'})"

    # ---- what is known -----------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extent of each axis."""
        return self.term.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return dtype_of(self.term)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.term.shape)

    @property
    def size(self) -> int:
        """The number of values."""
        return shapes.size(self.term.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of a value."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all values."""
        return self.size * self.itemsize

    @property
    def T(self) -> Tensor:
        """The tensor with its axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Tensor:
        """The tensor with its last two axes swapped."""
        return _made(np.matrix_transpose, self)

    @property
    def real(self) -> Tensor:
        """The real part: of what is real the tensor itself."""
        return _made(np.real, self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part: of what is real zeros."""
        return _made(np.imag, self)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # a protocol that tensors do not have
            raise AttributeError(name)
        raise MissingAttributeError(
            f"a frittata.Tensor has no attribute {name!r}: its values are not known, and nothing changes them",
            do=f"write numpy.{name}(x)" if getattr(np, name, None) in FUNCTIONS else "write it with others",
        )

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a tensor without axes has no length")
        return shapes.concrete(self.term.shape)[0]

    # ---- what makes terms --------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        found = written.apply(ufunc, inputs, options) if method == "__call__" else NotImplemented
        if found is not NotImplemented:
            return found
        if method == "outer" and ufunc.nin == 2:
            first, second = (part if isinstance(part, Tensor) else np.asarray(part) for part in inputs)
            return ufunc(first.reshape(*first.shape, *(1,) * second.ndim), second, **options)
        if method == "__call__" and not options and any(map(_is_empty, inputs)):
            told = ufunc(*map(_told, inputs))
            if not any(part.size for part in (told if isinstance(told, tuple) else [told])):
                return told
        given, named = unwrapped(inputs), unwrapped(options)
        if method == "__call__":
            return wrapped(ufuncs.apply(ufunc, given, named))
        return wrapped(dispatch.fold(ufunc, method, given, named))

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Mapping[str, Any]) -> Any:
        found = written.apply(function, args, options)
        if found is not NotImplemented:
            return found
        if function in _JOINS and args and isinstance(args[0], list | tuple):
            args = _without_empties(function, args, options)
        return wrapped(dispatch.apply(function, unwrapped(args), unwrapped(options)))

    def __getitem__(self, key: Any) -> Any:
        """Return what an index chooses: a tensor, or an array if that is empty."""
        parts = key if isinstance(key, tuple) else (key,)
        for part in parts:
            if hasattr(part, "read"):  # an index of `build`
                return part.read(self, parts)
        try:
            return Tensor(each(partial(indexed, key=unwrapped(parts)), self.term))
        except EmptyError:
            if any(isinstance(part, Tensor) for part in parts):
                raise
            return np.empty(self.shape, self.dtype)[key]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tensor:
        """Convert the values; None is float64, as in numpy, and order, subok and copy say nothing of values."""
        wanted = np.float64 if dtype is None else dtype
        kind = np.dtype(wanted) if part_dtype(wanted) else dtypes.to_numpy(dtypes.from_numpy(wanted))
        if not np.can_cast(self.dtype, kind, casting):
            raise ModelError(f"{self!r} as {kind}, which is not {casting!r}", do="leave casting out")
        return Tensor(ufuncs.converted(self.term, kind))

    def reshape(self, *shape: Any, order: str = "C") -> Tensor:
        """Give the values, in their order, another shape; one extent may be -1."""
        return _made(np.reshape, self, shape[0] if len(shape) == 1 else shape, order)

    def transpose(self, *axes: Any) -> Tensor:
        """Permute the axes; without an argument, reverse them."""
        return _made(np.transpose, self, axes[0] if len(axes) == 1 else axes or None)

    def flatten(self, order: str = "C") -> Tensor:
        """Return all values along one axis."""
        return _made(np.ravel, self, order)

    def copy(self, order: str = "C") -> Tensor:
        """Return the tensor: nothing changes it."""
        return self

    def conj(self) -> Tensor:
        """Return the tensor with the other sign of its imaginary part."""
        return _made(np.conjugate, self)

    conjugate = conj

    def __round__(self, decimals: int | None = None) -> Tensor:
        return _made(np.round, self, decimals or 0)

    # ---- what needs values -------------------------------------------------------------------------------------------

    def _unknown(self, *_: Any, **__: Any) -> NoReturn:
        raise ModelError(
            f"the values of {self!r} are not known while a function is traced",
            do="choose between values with numpy.where, and between computations by what is no tensor",
        )

    def __format__(self, form: str) -> str:
        return self._unknown() if form else str(self)

    __bool__ = __int__ = __float__ = __index__ = __complex__ = item = tolist = _unknown

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise ModelError(
            f"numpy.asarray or numpy.array of {self!r}, or a function that calls it, wants values that are not known",
            do="leave it out: the argument behaves as an array; or write frittata.as_tensor, which takes arrays too; "
            "of a list of tensors numpy.stack, which makes one of them",
        )

    def _fixed(self, *_: Any, **__: Any) -> NoReturn:
        raise ModelError(
            f"{self!r} cannot be changed in place: other names of it would not see that, or should not",
            do="write x = x + y, numpy.where(condition, y, x), or numpy.concatenate",
        )

    __setitem__ = __iadd__ = __isub__ = __imul__ = __imatmul__ = __itruediv__ = __ifloordiv__ = _fixed
    __imod__ = __ipow__ = __ilshift__ = __irshift__ = __iand__ = __ior__ = __ixor__ = _fixed

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> NoReturn:
        name = getattr(function, "__name__", str(function))
        raise ModelError(
            f"torch.{name} was given a frittata.Tensor, because the example arguments are numpy arrays",
            do="give torch tensors as example arguments of functions that call torch",
        )


_JOINS = frozenset({np.concatenate, np.hstack, np.vstack, np.dstack, np.column_stack})
"""Functions of several arrays that pass over empty ones."""


def _without_empties(function: Any, args: Any, options: Mapping[str, Any]) -> Any:
    """Return the arguments of a join, if some arrays are empty without these, the others with the dtype of all.

    Raises: ValueError, as numpy does, for shapes that do not fit.
    """
    if not any(map(_is_empty, args[0])):
        return args
    told = function([*map(_told, args[0])], *args[1:], **options)
    return [as_tensor(part).astype(told.dtype) for part in args[0] if not _is_empty(part)], *args[1:]


def _is_empty(value: Any) -> bool:
    return not value.size if isinstance(value, np.ndarray) else isinstance(value, list | tuple) and not value


def _told(value: Any) -> Any:
    """Return an array of a tensor's shape and dtype, of which numpy tells those of results; all else as it is."""
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if isinstance(value, Tensor) else value


def _made(function: Any, *args: Any) -> Tensor:
    """Call a function of numpy, whose result is a tensor if an argument is: its types do not say so."""
    return function(*args)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **options: Any) -> Any:
        return function(self, *args, **options)

    method.__name__ = function.__name__
    method.__doc__ = f"What `numpy.{function.__name__}` returns."
    return method


_METHODS = (
    "all any argmax argmin argsort clip cumprod cumsum diagonal dot max mean min prod ravel repeat round squeeze std"
    " sum swapaxes take trace var"
)
for _name in _METHODS.split():
    setattr(Tensor, _name, _method(getattr(np, _name)))


def input(name: str, shape: Sequence[Any], dtype: Any = "f32") -> Tensor:
    """Return an argument of a function; `dtype` is numpy's, or a name such as "f32"; a name is a symbolic dim."""
    given: Any = shape
    dims = [Sym(dim) if isinstance(dim, str) else dim for dim in given] if isinstance(given, tuple | list) else [0]
    if not all(isinstance(dim, Sym) or is_extent(dim) for dim in dims):
        do = 'give a tuple of extents, each at least 1, or names: ("n", 784)'
        raise ModelError(f"input {name!r} of shape {shape!r}", do=do)
    if part_dtype(dtype):
        raise ModelError(f"input {name!r} is complex", do="declare its parts, and join them: real + 1j * imag")
    return Tensor(tensor("input", name=name, shape=tuple(dims), dtype=dtype_named(dtype)))


def dtype_named(dtype: Any) -> DType:
    """Return the dtype of a name such as "f32", or numpy's."""
    return dtype if isinstance(dtype, str) and dtype in dtypes.NAMES else dtypes.from_numpy(dtype)


def as_extents(what: str, shape: Any) -> tuple[int, ...]:
    """Return a shape, for which a number stands where there is one axis.

    Raises: ModelError that says what has it, if it is none.
    """
    given: Any = (shape,) if isinstance(shape, int | np.integer) else shape
    if not isinstance(given, tuple | list) or not all(map(is_extent, given)):  # pyright: ignore
        raise ModelError(f"{what} of shape {shape!r}", do="give a tuple of extents, each at least 1")
    return tuple(map(int, given))  # pyright: ignore


def is_extent(dim: Any) -> bool:
    """Whether a value is an extent that a tensor can have."""
    return isinstance(dim, int | np.integer) and not isinstance(dim, bool) and int(dim) >= 1


def as_tensor(value: Any) -> Tensor:
    """Return an array or a number as a tensor whose values are known, a term as the tensor that it is."""
    if isinstance(value, Tensor):
        return value
    return Tensor(value if isinstance(value, Term | Complex) else constant(value))


def real_term(what: str, value: Any) -> Term:
    """Return the term of a tensor, an array or a number.

    Raises: ModelError that says what has it, if it is complex.
    """
    found = as_tensor(value).term
    if isinstance(found, Complex):
        raise ModelError(f"{what} of complex numbers", do="give their parts, x.real and x.imag, each as one")
    return found


def unwrapped(value: Any) -> Any:
    """Return what rows take: terms for tensors and arrays, within lists, tuples and dicts too."""
    match value:
        case Tensor(term=term):
            return term
        case np.ndarray() | np.generic():
            return constant(value)
        case list() | tuple():
            return type(value)(map(unwrapped, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case Mapping():
            return {key: unwrapped(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def wrapped(value: Any) -> Any:
    """Return what callers of rows get: tensors for terms, within lists and tuples too."""
    return trees.rebuilt(value, lambda _, leaf: Tensor(leaf) if isinstance(leaf, Term | Complex) else leaf)
