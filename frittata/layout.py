"""Layered drawing of directed graphs: layers by longest path, order by barycenters, places by least squares.

Source: Sugiyama, Tagawa, Toda, Methods for Visual Understanding of Hierarchical System Structures, IEEE SMC, 1981.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]

_SWEEPS = 12
_DUMMY_WIDTH = 14.0


@dataclass(frozen=True)
class Box:
    """Where a node stands: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def center(self) -> float:
        """The middle, across."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Drawing:
    """Boxes of the nodes, and the points that each edge runs through, from below its source to its target's top."""

    boxes: dict[str, Box]
    paths: dict[tuple[str, str], tuple[Point, ...]]
    width: float
    height: float


def lay_out(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str]],
    gap: float = 26.0,
    layer_gap: float = 46.0,
) -> Drawing:
    """Place nodes of the given sizes so that edges point down; the graph must have no cycle."""
    layers = _Layers(sizes, edges, gap)
    layers.order()
    center_by_key = layers.place()
    left = min((center_by_key[key] - layers.width(key) / 2 for key in center_by_key), default=0.0)
    tops: list[float] = []
    top = 0.0
    for layer in layers.rows:
        tops.append(top)
        top += max((sizes[key][1] for key in layer if key in sizes), default=0.0) + layer_gap
    boxes = {
        key: Box(center_by_key[key] - sizes[key][0] / 2 - left, tops[layers.level[key]], *sizes[key]) for key in sizes
    }
    heights = [max((sizes[key][1] for key in layer if key in sizes), default=0.0) for layer in layers.rows]
    paths: dict[tuple[str, str], tuple[Point, ...]] = {}
    for (source, target), between in layers.between.items():
        points: list[Point] = [(boxes[source].center, boxes[source].y + boxes[source].height)]
        for key in between:
            x, level = center_by_key[key] - left, layers.level[key]
            points += [(x, tops[level]), (x, tops[level] + heights[level])]
        points.append((boxes[target].center, boxes[target].y))
        paths[source, target] = tuple(points)
    width = max((box.x + box.width for box in boxes.values()), default=0.0)
    return Drawing(boxes, paths, width, max(0.0, top - layer_gap))


@dataclass
class _Layers:
    """Nodes in layers; an edge over several layers gets a place in each of them."""

    sizes: Mapping[str, tuple[float, float]]
    edges: Sequence[tuple[str, str]]
    gap: float
    level: dict[str, int] = field(default_factory=dict[str, int])
    rows: list[list[str]] = field(default_factory=list[list[str]])
    between: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])

    def __post_init__(self) -> None:
        self._assign()
        self.rows = [[] for _ in range(max(self.level.values(), default=-1) + 1)]
        for key in self.sizes:
            self.rows[self.level[key]].append(key)
        self._up: dict[str, list[str]] = {}
        self._down: dict[str, list[str]] = {}
        for source, target in dict.fromkeys(self.edges):
            chain = [f"{source}>{target}@{level}" for level in range(self.level[source] + 1, self.level[target])]
            self.between[source, target] = chain
            for key in chain:
                self.level[key] = int(key.rpartition("@")[2])
                self.rows[self.level[key]].append(key)
            for a, b in zip([source, *chain], [*chain, target], strict=True):
                self._down.setdefault(a, []).append(b)
                self._up.setdefault(b, []).append(a)

    def _assign(self) -> None:
        """Put each node below all that lead to it, and then as low as what it leads to allows: edges become short."""
        above: dict[str, list[str]] = {key: [] for key in self.sizes}
        below: dict[str, list[str]] = {key: [] for key in self.sizes}
        for source, target in self.edges:
            above[target].append(source)
            below[source].append(target)
        order: list[str] = []
        waiting = {key: len(sources) for key, sources in above.items()}
        ready = [key for key in self.sizes if not waiting[key]]
        while ready:
            key = ready.pop(0)
            order.append(key)
            self.level[key] = max((self.level[source] + 1 for source in above[key]), default=0)
            for target in below[key]:
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
        for key in reversed(order):
            if below[key]:
                self.level[key] = min(self.level[target] for target in below[key]) - 1

    def width(self, key: str) -> float:
        return self.sizes[key][0] if key in self.sizes else _DUMMY_WIDTH

    def order(self) -> None:
        """Sort each layer by the mean place of the neighbours above, then below, and so on; keep the best order met."""
        best = [list(row) for row in self.rows]
        fewest = self._crossings()
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            neighbours = self._up if down else self._down
            for row in self.rows if down else reversed(self.rows):
                position = {key: i for other in self.rows for i, key in enumerate(other)}
                mean = {
                    key: sum(position[n] for n in neighbours[key]) / len(neighbours[key])
                    if neighbours.get(key)
                    else float(position[key])
                    for key in row
                }
                row.sort(key=mean.__getitem__)
            crossings = self._crossings()
            if crossings < fewest:
                fewest, best = crossings, [list(row) for row in self.rows]
        self.rows = best

    def _crossings(self) -> int:
        total = 0
        for row, following in pairwise(self.rows):
            position = {key: i for i, key in enumerate(following)}
            ends = [sorted(position[b] for b in self._down.get(a, ()) if b in position) for a in row]
            flat = [end for group in ends for end in group]
            total += sum(1 for i, a in enumerate(flat) for b in flat[i + 1 :] if a > b)
        return total

    def place(self) -> dict[str, float]:
        """Move centers towards the mean of their neighbours as far as order and widths allow."""
        center: dict[str, float] = {}
        for row in self.rows:
            center.update(self._spread(row, [0.0] * len(row)))
        for sweep in range(_SWEEPS):
            rows = self.rows if sweep % 2 == 0 else self.rows[::-1]
            for row in rows:
                wanted: list[float] = []
                for key in row:
                    near = [*self._up.get(key, ()), *self._down.get(key, ())]
                    wanted.append(sum(center[n] for n in near) / len(near) if near else center[key])
                center.update(self._spread(row, wanted))
        return center

    def _spread(self, row: list[str], wanted: list[float]) -> dict[str, float]:
        """Return the centers nearest to `wanted`, by least squares, without overlap: pool adjacent violators."""
        offsets = [0.0]
        for left, right in pairwise(row):
            offsets.append(offsets[-1] + (self.width(left) + self.width(right)) / 2 + self.gap)
        pools: list[tuple[float, int]] = []
        for want, offset in zip(wanted, offsets, strict=False):
            pools.append((want - offset, 1))
            while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
                (a, m), (b, n) = pools[-2:]
                pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
        values = [value for value, count in pools for _ in range(count)]
        return {key: value + offset for key, value, offset in zip(row, values, offsets, strict=False)}
