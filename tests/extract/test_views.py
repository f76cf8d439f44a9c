"""Views: a body is one where it is a contiguous part of its operand, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import build, element, load, reindex

from frittata.egraph import interpret, shapes
from frittata.egraph.indexing import permute_map, reshape_map, slice_map
from frittata.egraph.program import operands_of
from frittata.egraph.script import parse
from frittata.egraph.terms import Term
from frittata.extract.views import Views, view_offset
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

X, ROW = load("x", 3, 4), load("x", 4)
BODIES: dict[str, tuple[Term, int | None]] = {
    "itself": (build(X, 3, 4), 0),
    "with one more axis": (build(X, 1, 3, 4), 0),
    "the last rows": (build(reindex(X, slice_map((3, 4), -2, 1, 1, 2)), 2, 4), 4),
    "one row": (build(reindex(X, slice_map((3, 4), -2, 2, 1, 1)), 1, 4), 8),
    "a part of a row": (build(reindex(ROW, slice_map((4,), -1, 1, 1, 2)), 2), 1),
    "another shape": (build(reindex(X, reshape_map((3, 4), (2, 6))), 2, 6), 0),
    "repeated": (build(ROW, 3, 4), None),
    "columns": (build(reindex(X, slice_map((3, 4), -1, 1, 1, 2)), 3, 2), None),
    "every other row": (build(reindex(X, slice_map((3, 4), -2, 0, 2, 2)), 2, 4), None),
    "turned": (build(reindex(X, permute_map((3, 4), (1, 0))), 4, 3), None),
    "rows of what is repeated": (build(reindex(ROW, slice_map((3, 4), -2, 1, 1, 2)), 2, 4), None),
    "rows that are repeated": (build(reindex(X, slice_map((3, 4), -2, 1, 1, 2)), 5, 2, 4), None),
    "computed": (build(element("exp", X), 3, 4), None),
    "a part of what is computed": (build(reindex(element("exp", X), slice_map((3, 4), -2, 1, 1, 2)), 2, 4), None),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_view_begins_where_its_values_lie(name: str) -> None:
    body, offset = BODIES[name]
    assert view_offset(body) == offset
    if offset is not None:
        (leaf,) = operands_of(body)
        x = np.arange(shapes.size(leaf.shape), dtype=np.float64)
        (found,) = interpret.evaluate((body,), {"x": x.reshape(shapes.concrete(leaf.shape))})
        np.testing.assert_array_equal(found.reshape(-1), x[offset : offset + found.size])


def test_parts_of_what_is_stored_are_known() -> None:
    model = parse("""
def main(x: f32[6, 4]) -> (f32[6, 4], f32[2, 4], f32[6, 2], f32[24], f32[4, 6]):
    y: f32[6, 4] = exp(x)
    rows: f32[2, 4] = slice(y, axis=-2, start=3, step=1, length=2)
    columns: f32[6, 2] = slice(y, axis=-1, start=0, step=1, length=2)
    flat: f32[24] = reshape(y, shape=(24,))
    turned: f32[4, 6] = permute(y, permutation=(1, 0))
    return y, rows, columns, flat, turned
""")
    snapshot = saturate_model(model, choose_rules(Options())).snapshot
    views = Views(snapshot)
    y, rows, columns, flat, turned = (snapshot.class_by_term[term] for term in model.main.outputs)
    assert [views.shown(class_) for class_ in (rows, flat)] == [{y}, {y}]
    assert not any(map(views.shown, (y, columns, turned)))
