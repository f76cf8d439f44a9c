"""Kernels over images line by line: what one line computes, and which elements of its buffers it reads and writes.

Lines run along an axis of a kernel's results in which two others lie, images along one more around it. Where a kernel
reads of the one before it a few neighbouring lines for each of its own, the two can run together, some lines at a time,
and what is between them takes the memory of these lines only. A line of a body is a body of the same kind:

    build(e, (n, h, w, c))    line y    build(e at y, (n, 1, w, c))

and so is what it reads: of each buffer the neighbours that it needs, as a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from frittata.egraph import shapes
from frittata.egraph.indexing import Affine, IndexMap, slice_map, var
from frittata.egraph.ops import registry
from frittata.egraph.places import Places, placed_bodies
from frittata.egraph.program import Kernel, Program, operands_of
from frittata.egraph.terms import Scalar, Term, size_bytes

_LEAST_AXES = 3
_SLOT_BYTES = 192 << 10
"""What the lines between two kernels may take together: several such stay in a second-level cache."""


@dataclass(frozen=True)
class Span:
    """The elements of a buffer that line y of an image reads or writes: `length`, from `start + y * step` on.

    In the next image they are `image` elements further on.
    """

    buffer: str
    start: int
    step: int
    length: int
    image: int = 0


@dataclass(frozen=True)
class Line:
    """One of `count` lines of an image: `body` computes it, `reads` says by name what its leaves stand for."""

    body: Term
    images: int
    count: int
    reads: Mapping[str, Span]
    writes: Span


def line_of(body: Term, name: str) -> Line | None:
    """Return what a line of a body is that fills the buffer `name`; None if its lines are not alike.

    `body` is a `build`, or a `part`, as `placed_bodies` returns it.
    """
    shape = shapes.concrete(body.shape)
    axes = [axis for axis in range(-len(shape), 1 - _LEAST_AXES) if shape[axis] > 1]
    if not axes or len(axes) > 2:
        return None
    try:
        line, reads, writes = _sliced(body, axes[0])
        images = 1
        if len(axes) == 2:
            images, of_image, image = shape[axes[0]], reads, writes.step
            line, of_line, writes = _sliced(line, axes[1])
            reads = {leaf: _composed(span, of_image[span.buffer]) for leaf, span in of_line.items()}
            writes = replace(writes, image=image)
    except _Unlike:
        return None
    return Line(line, images, shape[axes[-1]], reads, replace(writes, buffer=name))


def _composed(span: Span, image: Span) -> Span:
    """Return where elements lie that are a span of a part of a buffer, one for each image."""
    return replace(span, buffer=image.buffer, start=image.start + span.start, image=image.step)


def _sliced(body: Term, axis: int) -> tuple[Term, dict[str, Span], Span]:
    """Return a body at one place of an axis, what its leaves stand for, and where it is written.

    Raises: _Unlike
    """
    shape = shapes.concrete(body.shape)
    slicer = _Slicer()
    element = slicer.element(body.args[0], axis, var("y", shape[axis]), 1)
    inner = shape[axis + len(shape) + 1 :]
    one = (*shape[:axis], 1, *inner)
    if body.op == "build":
        line, writes = registry.tensor("build", element, shape=one), Span("", 0, prod(inner), prod(inner))
    else:
        at = body.attrs[1]
        step, inside = at.factor_of(axis), at.substitute({axis: Affine()})
        if not step or step < 0 or inside.bounds()[0] != 0:
            raise _Unlike
        line = registry.tensor("part", element, shape=one, at=inside)
        writes = Span("", 0, step, int(inside.bounds()[1]) + 1)
    whole = {leaf.attrs[0]: Span(leaf.attrs[0], 0, 0, shapes.size(leaf.shape)) for leaf in operands_of(line)}
    return line, {**whole, **slicer.reads}, writes


class _Unlike(Exception):
    """A body whose lines are not alike."""


class _Slicer:
    """Writes elements at a line: on one axis only as many places as the line needs, from a place that moves with it."""

    def __init__(self) -> None:
        self.reads: dict[str, Span] = {}
        self._known: dict[tuple[Term, int, Affine, int], Term] = {}

    def element(self, term: Term, axis: int, start: Affine, extent: int) -> Term:
        """Return an element that has at place i, of `extent`, what `term` has at place `start + i` of `axis`.

        `start` is a number plus a multiple of the line's, the variable "y".
        """
        if shapes.dim_at(term.shape, axis) == 1:
            return term
        key = term, axis, start, extent
        if key not in self._known:
            self._known[key] = self._element(term, axis, start, extent)
        return self._known[key]

    def _element(self, term: Term, axis: int, start: Affine, extent: int) -> Term:
        if term.op == "load":
            return self._load(term.args[0], axis, start, extent)
        if term.op == "reindex":
            return self._view(term, axis, start, extent)
        if term.op == "dot" and axis < -1:
            sides = (term.args[0], axis), (term.args[1], axis if axis < -2 else 0)
            args = tuple(self.element(side, at, start, extent) if at else side for side, at in sides)
        elif registry.get(term.op, "element").pointwise or term.op == "fold":
            args = tuple(self.element(arg, axis, start, extent) for arg in term.args)
        else:
            raise _Unlike
        return registry.make(term.op, term.sort, args, term.attrs)

    def _load(self, leaf: Term, axis: int, start: Affine, extent: int) -> Term:
        name, shape, dtype = leaf.attrs
        rank = len(shape)
        outer, inner = prod(shape[:axis]), prod(shape[axis + rank + 1 :])
        part = f"{name}[{start}:{extent}, {axis}]"
        places = extent if outer == 1 else shape[axis]  # else what is read has gaps, and is written as if it went on
        length = ((outer - 1) * shape[axis] + extent) * inner
        self.reads[part] = Span(name, start.constant * inner, (start.factor_of("y") or 0) * inner, length)
        held = (*shape[:axis], places, *shape[axis + rank + 1 :])
        load = registry.element("load", registry.make("input", "tensor", (), (part, held, dtype)))
        return load if outer == 1 else registry.element("reindex", load, map=slice_map(held, axis, 0, 1, extent))

    def _view(self, term: Term, axis: int, start: Affine, extent: int) -> Term:
        (inner,), (mapping,) = term.args, term.attrs
        rank = len(mapping.source)
        moving = [
            at for at in range(-rank, 0)
            if shapes.dim_at(inner.shape, at) != 1 and axis in mapping.sources[at].variables()
        ]  # fmt: skip
        if len(moving) != 1:
            raise _Unlike
        (at,) = moving
        read = mapping.sources[at]
        step = read.factor_of(axis)
        low, high = read.bounds()
        if not step or step < 0 or low < 0 or high >= mapping.source[at]:
            raise _Unlike
        rest = read.substitute({axis: Affine()})
        least, most = (int(bound) for bound in rest.bounds())
        places = step * (extent - 1) + most - least + 1
        here = {axis: var(axis, extent)}
        sources = [source.substitute(here) for source in mapping.sources]
        sources[at] += -least
        source = (*mapping.source[:at], places, *mapping.source[at + rank + 1 :])
        result = list(mapping.result)
        result[axis] = extent
        view = IndexMap(source, tuple(result), tuple(sources))
        return registry.element("reindex", self.element(inner, at, start * step + least, places), map=view)


# ---- kernels that run together ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A kernel of a band, and the buffer that it hands on, if it is not the last, in lines of `width` elements.

    Its line y is line `first + y` of an image there; lines that it does not write have the value `border`. There is
    memory for `held` lines.
    """

    kernel: Kernel
    line: Line
    root: str = ""
    width: int = 0
    first: int = 0
    held: int = 0
    border: Scalar | None = None


@dataclass(frozen=True)
class Stages:
    """The kernels of a band in order."""

    stages: tuple[Stage, ...]
    places: Places

    def needed(self, number: int, low: int, high: int) -> tuple[int, int]:
        """Return which lines of the buffer before a stage its own need from `low` on, before `high`: first, end."""
        before = self.stages[number - 1]
        reads = [span for span in self.stages[number].line.reads.values() if self._root(span) == before.root]
        starts = [span.start + self.places.by_name[span.buffer].offset for span in reads]
        first = min((start + low * span.step) // before.width for start, span in zip(starts, reads, strict=True))
        ends = [start + (high - 1) * span.step + span.length for start, span in zip(starts, reads, strict=True)]
        return first, -(-max(ends) // before.width)

    def computed(self, low: int, high: int) -> list[int]:
        """Return how many lines of an image each stage computes for those of the last from `low` on, before `high`."""
        counts = [high - low]
        for number in range(len(self.stages) - 1, 0, -1):
            before = self.stages[number - 1]
            low, high = self.needed(number, low, high)
            low, high = (min(max(0, line - before.first), before.line.count) for line in (low, high))
            counts.insert(0, high - low)
        return counts

    @property
    def total(self) -> int:
        """The lines of the last stage in all images."""
        last = self.stages[-1].line
        return last.images * last.count

    def parts(self, count: int) -> Iterator[list[tuple[int, int, int]]]:
        """Visit `count` parts of the last stage's lines: images, each with its first line and that behind its last."""
        lines = self.stages[-1].line.count
        for part in range(count):
            low, high = part * self.total // count, (part + 1) * self.total // count
            images = range(low // lines, -(-high // lines))
            yield [(n, max(low - n * lines, 0), min(high - n * lines, lines)) for n in images]

    def _root(self, span: Span) -> str:
        return self.places.by_name[span.buffer].root


class Finder:
    """Finds which kernels of a program can run together; `places` are those of the program."""

    def __init__(self, program: Program, places: Places) -> None:
        self._places = places
        self._types = program.types()
        self._kernels = {kernel.name: kernel for kernel in program.kernels}
        self._constants = program.constant_buffers()
        self._lines: dict[str, Line | None] = {}
        self._readers: dict[str, list[str]] = {}
        self._writers: dict[str, list[str]] = {}
        for kernel in program.kernels:
            for name in dict.fromkeys(places.by_name[name].root for name in kernel.operands):
                self._readers.setdefault(name, []).append(kernel.name)
            for output in kernel.outputs:
                self._writers.setdefault(places.by_name[output.name].root, []).append(kernel.name)
        self._kept = {places.by_name[name].root for name in program.outputs}

    def handed_on(self, kernel: Kernel, following: Kernel) -> str | None:
        """Return the buffer that one kernel alone writes for the next alone; None if there is none, or more."""
        if len(kernel.outputs) != 1:
            return None
        root = self._places.by_name[kernel.outputs[0].name].root
        alone = self._writers[root] == [kernel.name] and self._readers.get(root) == [following.name]
        return root if alone and root not in self._kept else None

    def line(self, kernel: Kernel) -> Line | None:
        """Return what a line of a kernel is; None if it has none, or constants would have lines."""
        if kernel.name not in self._lines:
            self._lines[kernel.name] = self._line(kernel)
        return self._lines[kernel.name]

    def _line(self, kernel: Kernel) -> Line | None:
        if len(kernel.outputs) != 1 or kernel.is_opaque:
            return None
        (body,) = self.bodies(kernel)
        found = line_of(body, kernel.outputs[0].name)
        moving = () if found is None else (span.buffer for span in found.reads.values() if span.step)
        return None if self._constants.intersection(moving) else found

    def bodies(self, kernel: Kernel) -> tuple[Term, ...]:
        """Return the bodies of a kernel where its buffers lie."""
        return placed_bodies(kernel, self._places)

    def constant_bytes(self, kernel: Kernel) -> int:
        """Return the size of what a kernel reads that is known before run time."""
        return sum(map(self.size_bytes, self._constants.intersection(kernel.operands)))

    def size_bytes(self, root: str) -> int:
        """Return the size of a buffer."""
        return size_bytes(self._types[root])

    def stages(self, names: Sequence[str]) -> Stages | None:
        """Return the stages of a band; None if these kernels cannot run together."""
        kernels = [self._kernels[name] for name in names]
        found: list[Stage] = []
        for kernel, following in zip(kernels, (*kernels[1:], None), strict=True):
            line = self.line(kernel)
            if line is None:
                return None
            stage = Stage(kernel, line)
            if following is not None:
                handed = self._with_buffer(stage, following)
                if handed is None:
                    return None
                stage = handed
            found.append(stage)
        return Stages(tuple(found), self._places)

    def _with_buffer(self, stage: Stage, following: Kernel) -> Stage | None:
        root, reader = self.handed_on(stage.kernel, following), self.line(following)
        if root is None or reader is None:
            return None
        place, writes, size = self._places.by_name[stage.line.writes.buffer], stage.line.writes, self._elements(root)
        width = writes.step
        first, offset = divmod(place.offset + writes.start, width)
        reads = [span for span in reader.reads.values() if self._places.by_name[span.buffer].root == root]
        steps = {span.step for span in reads}
        in_lines = len(steps) == 1 and min(steps) > 0 and min(steps) % width == 0 and offset + writes.length <= width
        images = {writes.image, *(span.image for span in reads)}
        image = writes.image or size
        in_images = len(images) == 1 and image % width == 0 and image * stage.line.images == size
        if not in_lines or not in_images or reader.images != stage.line.images:
            return None
        joins = self._places.border_by_join.items()
        borders = [value for join, value in joins if self._places.by_name[join].root == root]
        is_whole = image // width == stage.line.count and writes.length == width
        if len(set(borders)) > 1 or not (borders or is_whole):
            return None
        found = replace(stage, root=root, width=width, first=first, border=borders[0] if borders else None)
        low, high = Stages((found, Stage(following, reader)), self._places).needed(1, 0, 1)
        more = min(steps) // width
        most = _SLOT_BYTES // (width * self.size_bytes(root) // size)
        held = high - low + more * max(1, (most - (high - low)) // more)
        return replace(found, held=held) if held <= 2 * most else None

    def _elements(self, root: str) -> int:
        return shapes.size(self._types[root].shape)
