"""What a kernel reads of a buffer, if it is a part of it: kernels that read different parts of buffers are one code.

    load(x) at (7, j), x of 100 x 16  ->  load(x') at (0, j), where x' are 1 x 16 elements that begin with number 112

So the steps of a recurrence, each of which reads a row of its own, are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from frittata.egraph import shapes
from frittata.egraph.indexing import Affine, IndexMap, flatten
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Shape, Sym
from frittata.egraph.terms import Term, rebuild_all, walk

Index = tuple[Affine, ...]


@dataclass(frozen=True)
class Part:
    """A part of a buffer, under a shape of its own, and the number of its first element.

    It has the axes of the buffer, of which the first begin with `least`; or one, if it is `flat`.
    """

    shape: tuple[int, ...]
    start: int
    least: tuple[int, ...]
    flat: bool

    def view(self, term: Term) -> IndexMap:
        """Return what a view of the buffer shows of the part."""
        (leaf,), map_ = term.args[0].args, term.attrs[0]
        at = _index(leaf.shape, map_)
        if self.flat:
            index = (flatten(at, shapes.concrete(leaf.shape)) + -self.start,)
        else:
            index = tuple(axis + -low for axis, low in zip(at, self.least, strict=True))
        return IndexMap(self.shape, map_.result, index)


def parts_of(every: Iterable[Term], is_whole: Callable[[Term], bool]) -> dict[Term, Part]:
    """Return the part of its buffer that is read of each load that is read by views alone, of all terms of bodies.

    It is contiguous. There is none for operands that are `is_whole`, and where the first element is read, or the index
    may be out of range.
    """
    views: dict[Term, list[IndexMap] | None] = {}
    for term in every:
        for arg in term.args:
            if arg.op == "load" and not is_whole(arg.args[0]):
                known = views.setdefault(arg, [])
                if term.op != "reindex":
                    views[arg] = None
                elif known is not None:
                    known.append(term.attrs[0])
    parts = ((load, _part(load.args[0].shape, tuple(found))) for load, found in views.items() if found)
    return {load: part for load, part in parts if part is not None}


def sliced(bodies: tuple[Term, ...], is_whole: Callable[[Term], bool]) -> tuple[tuple[Term, ...], dict[Term, int]]:
    """Return bodies over the parts of buffers that they read, and the number of the element with which each begins."""
    part_by_load = parts_of(walk(*bodies), is_whole)
    if not part_by_load:
        return bodies, {}

    def replace(term: Term, args: tuple[Term, ...]) -> Term:
        part = part_by_load.get(term.args[0]) if term.op == "reindex" else None
        if part is None:
            return term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)
        name, _, dtype = term.args[0].args[0].attrs
        load = registry.element("load", registry.make("input", "tensor", (), (name, part.shape, dtype)))
        return registry.element("reindex", load, map=part.view(term))

    return rebuild_all(bodies, replace), {load.args[0]: part.start for load, part in part_by_load.items()}


@lru_cache(maxsize=1 << 14)
def _part(shape: Shape, maps: tuple[IndexMap, ...]) -> Part | None:
    """Return the part that views show of a buffer, None if it is to stay as it is."""
    if any(isinstance(dim, Sym) for dim in (*shape, *(dim for m in maps for dim in (*m.source, *m.result)))):
        return None
    extents = shapes.concrete(shape)
    axes = [*zip(*(_index(shape, map_) for map_ in maps), strict=True)]
    spans = [_span(axis) for axis in axes]
    if any(low < 0 or high >= extent for (low, high), extent in zip(spans, extents, strict=True)):
        return None
    first = next((axis for axis, (low, high) in enumerate(spans) if low < high), len(spans) - 1)
    apart = zip(spans[first + 1 :], axes[first + 1 :], strict=True)
    flat = any(low > 0 and not any(at.terms for at in axis) for (low, _), axis in apart)
    if not flat:
        spans[first + 1 :] = [(0, extent - 1) for extent in extents[first + 1 :]]
    least, most = zip(*spans, strict=True) if spans else ((), ())
    start, stop = (
        sum(at * step for at, step in zip(ends, shapes.strides(extents), strict=True)) for ends in (least, most)
    )
    if start == 0:
        return None
    return Part((stop - start + 1,) if flat else tuple(high - low + 1 for low, high in spans), start, least, flat)


def _span(values: Sequence[Affine]) -> tuple[int, int]:
    bounds = [value.bounds() for value in values]
    return int(min(low for low, _ in bounds)), int(max(high for _, high in bounds))


def _index(shape: Shape, view: IndexMap) -> Index:
    """Return the index into a buffer that a view shows; an axis of one place has none."""
    sources = dict(zip(range(-len(view.sources), 0), view.sources, strict=True))
    axes = enumerate(shape, -len(shape))
    return tuple(Affine() if extent == 1 else sources[axis] for axis, extent in axes)
