"""E-graphs in the JSON format of the extraction-gym: random ones of any size, and those that saturation makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

EGraphData = dict[str, Any]


def random_egraph(
    seed: int,
    classes: int,
    *,
    choices: float = 3.0,
    children: float = 2.0,
    reach: float = 0.1,
    back: float = 0.05,
    free: float = 0.1,
    leaves: float = 0.1,
    roots: int = 1,
) -> EGraphData:
    """Draw an e-graph in which every class has a derivation.

    Classes have about `choices` nodes of about `children` children, which lie up to `reach` of all classes further
    down: a short reach shares much. Only the last share `leaves` of classes has nodes without children. A share `back`
    of children points anywhere, so that classes wait for each other; a share `free` of nodes costs nothing.
    """
    rng = np.random.default_rng(seed)
    nodes: dict[str, Any] = {}
    span = max(2, int(reach * classes))
    for class_ in range(classes):
        for number in range(1 + int(rng.poisson(choices - 1))):
            count = min(int(rng.poisson(children - 1)) + (class_ < (1 - leaves) * classes), classes - 1 - class_)
            lower = class_ + 1 + rng.integers(0, min(span, classes - 1 - class_), count) if count else []
            found = [int(rng.integers(0, classes)) if number and rng.random() < back else int(child) for child in lower]
            cost = 0.0 if rng.random() < free else float(rng.integers(1, 20))
            nodes[f"{class_}.{number}"] = {
                "op": f"f{count}", "children": [f"{c}.0" for c in found], "eclass": str(class_), "cost": cost
            }  # fmt: skip
    tops = [str(class_) for class_ in {0, *map(int, rng.integers(0, classes, roots - 1))}]
    return {"nodes": nodes, "root_eclasses": tops, "class_data": {}}


def saturated(model: Model) -> EGraphData:
    """Return the saturated e-graph of a model; a node costs what one value of its operator does."""
    snapshot = saturate_model(model, choose_rules(Options())).snapshot
    nodes: dict[str, Any] = {}
    for class_, found in enumerate(snapshot.nodes):
        for number, node in enumerate(found):
            cost = registry.get(node.op, node.sort).cost if node.args else 0.0
            nodes[f"{class_}.{number}"] = {
                "op": node.op, "children": [f"{arg}.0" for arg in node.args], "eclass": str(class_), "cost": cost
            }  # fmt: skip
    roots = {str(snapshot.class_by_term[term]) for term in model.main.outputs}
    return {"nodes": nodes, "root_eclasses": sorted(roots)}
