"""What a choice from an e-graph costs and what the best one costs, from its JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

EGraphData = dict[str, Any]


def price_of(data: EGraphData, choice: Mapping[str, str]) -> float:
    """Return the cost of a choice, checked from the JSON alone: complete, without cycles, nothing not needed."""
    nodes = data["nodes"]
    below = {c: {nodes[child]["eclass"] for child in nodes[name]["children"]} for c, name in choice.items()}
    assert all(nodes[name]["eclass"] == class_ for class_, name in choice.items())
    reached, stack = set[str](), list(data["root_eclasses"])
    while stack:
        class_ = stack.pop()
        if class_ not in reached:
            reached.add(class_)
            stack.extend(below[class_])
    assert reached == choice.keys()
    waiting = dict(below)
    while waiting:
        ready = {class_ for class_, children in waiting.items() if not children & waiting.keys()}
        assert ready, "a cycle"
        waiting = {class_: children for class_, children in waiting.items() if class_ not in ready}
    return sum(nodes[name]["cost"] for name in choice.values())


def least_price(data: EGraphData) -> float:
    """Return the cost of the best choice, by trying all."""
    by_class: dict[str, list[str | None]] = {}
    for name, node in data["nodes"].items():
        by_class.setdefault(node["eclass"], [None]).append(name)
    best = float("inf")
    for names in product(*by_class.values()):
        choice = {class_: name for class_, name in zip(by_class, names, strict=True) if name is not None}
        price = sum(data["nodes"][name]["cost"] for name in choice.values())
        if price < best and _is_complete(data, choice):
            best = price
    return best


def _is_complete(data: EGraphData, choice: Mapping[str, str]) -> bool:
    nodes = data["nodes"]
    done: set[str] = set()
    changed = True
    while changed:
        fresh = {
            class_
            for class_, name in choice.items()
            if class_ not in done and all(nodes[child]["eclass"] in done for child in nodes[name]["children"])
        }
        done |= fresh
        changed = bool(fresh)
    return done.issuperset(data["root_eclasses"])
