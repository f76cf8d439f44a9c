"""Python functions of arrays whose dims are not all known: traced for each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Term
from frittata.frontends.arrays import trees
from frittata.frontends.arrays.constants import dtype_of
from frittata.frontends.arrays.trace import ImportedFunction, from_function
from frittata.frontends.arrays.trees import Path
from frittata.frontends.calls import COMPLEX_TENSOR, axis_of_parts, is_tensor
from frittata.frontends.idioms_complex import as_complex
from frittata.frontends.symbolic import Axis, Linear, Symbolic

_HOW = "give an entry for each argument, nested as it is: ({axis: name, ...}, None, ...), or a dict of them by name"


def of_function(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any, fallback: str = "error"
) -> Symbolic:
    """Trace a function for the sizes of its example arguments, and then for those of each call.

    A dim is a name, or a `torch.export.Dim`, which has a range.

    Raises: ModelError if `dynamic_shapes` does not fit the arguments; as `from_function`.
    """
    first = from_function(function, args, kwargs, fallback)
    by_name: Any = dynamic_shapes
    if isinstance(dynamic_shapes, tuple | list):
        by_name = dict(zip(first.arguments, dynamic_shapes, strict=False))  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(by_name, Mapping) or len(by_name) != len(dynamic_shapes) or set(by_name) - set(first.arguments):
        raise ModelError(f"dynamic_shapes={dynamic_shapes!r:.80}", do=_HOW)
    leaves = dict(trees.leaves(first.arguments))
    paths = [path for path, leaf in leaves.items() if is_tensor(leaf)]
    kinds = {
        path: _kind(term, leaves[path] is COMPLEX_TENSOR)
        for path, term in zip(paths, first.model.main.inputs, strict=True)
    }
    ranges: dict[str, tuple[int, int | None]] = {}
    axes = {
        path: _axes(trees.name_of(path), shape, _part(by_name, path), ranges) for path, (shape, _) in kinds.items()
    }

    def at(sizes: Mapping[str, int]) -> ImportedFunction:
        def resized(path: Path, leaf: Any) -> Any:
            if not is_tensor(leaf):
                return leaf
            shape = [sizes[axis.dim] if isinstance(axis, Linear) else axis for axis in axes[path]]
            return np.zeros(shape, kinds[path][1])  # pyright: ignore[reportCallIssue, reportArgumentType]

        return first.again(trees.rebuilt(first.arguments, resized))

    inputs = tuple(
        (trees.name_of(path), (*axes[path], *axis_of_parts(np.empty(0, kind)))) for path, (_, kind) in kinds.items()
    )
    found = Symbolic(inputs, ranges, first.flatten, at, first.parameters)
    found.sizes(args, kwargs or {})
    return found


def _kind(term: Term, is_complex: bool) -> tuple[Shape, np.dtype[Any]]:
    """Return the shape and numpy's dtype of an argument that an input stands for."""
    whole = as_complex(term) if is_complex else term
    return whole.shape, dtype_of(whole)


def _part(tree: Any, path: Path) -> Any:
    """Return what lies in a tree at a path, None where the tree ends before."""
    for step in path:
        if isinstance(tree, Mapping):
            tree = tree.get(step)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        elif isinstance(tree, tuple | list) and isinstance(step, int) and step < len(tree):  # pyright: ignore
            tree = tree[step]  # pyright: ignore[reportUnknownVariableType]
        else:
            return None
    return tree  # pyright: ignore[reportUnknownVariableType]


def _axes(
    name: str, shape: Sequence[Any], given: Any, ranges: dict[str, tuple[int, int | None]]
) -> tuple[Axis, ...]:
    """Return the axes of an array, and note the ranges of its dims."""
    dims: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else dict(enumerate(given or ()))  # pyright: ignore
    out: list[Axis] = list(shape)
    for axis, dim in dims.items():
        if dim is None:
            continue
        word = dim if isinstance(dim, str) else getattr(dim, "__name__", "")
        is_axis = isinstance(axis, int) and axis in range(len(shape))
        if isinstance(given, str) or not word.isidentifier() or not is_axis:
            raise ModelError(f"dynamic_shapes of {name}, which has {len(shape)} axes: {{{axis!r}: {dim!r}}}", do=_HOW)
        out[axis] = Linear(word)
        most = getattr(dim, "max", None)
        ranges[word] = getattr(dim, "min", 0), most if isinstance(most, int) else None
    return tuple(out)
