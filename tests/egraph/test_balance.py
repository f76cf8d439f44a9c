"""Chains of joins become balanced trees, unless something else reads a prefix."""

import numpy as np
import pytest

from frittata.egraph import shapes
from frittata.egraph.balance import balanced
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import make, tensor
from frittata.egraph.terms import Term

PARTS = tuple(make("input", "tensor", (), (f"x{i}", (2, i + 1), "f32")) for i in range(7))


def chain(parts: tuple[Term, ...], axis: int = -1) -> Term:
    joined = parts[0]
    for part in parts[1:]:
        joined = tensor("concat", joined, part, axis=axis)
    return joined


def model(*outputs: Term) -> Model:
    return Model({"main": Function(PARTS, outputs)})


def depth(term: Term) -> int:
    return 1 + max(map(depth, term.args)) if term.op == "concat" else 0


@pytest.mark.parametrize("count", range(2, 8))
def test_a_chain_becomes_a_tree_with_its_parts_in_order(count: int) -> None:
    before = model(chain(PARTS[:count]))
    after = balanced(before)
    (joined,) = after.main.outputs
    assert depth(joined) == (count - 1).bit_length()
    values = [np.full(shapes.concrete(part.shape), i, np.float32) for i, part in enumerate(PARTS)]
    np.testing.assert_array_equal(after.interpret(*values)[0], before.interpret(*values)[0])


def test_a_prefix_that_something_else_reads_stays() -> None:
    prefix = chain(PARTS[:4])
    for other in (prefix, tensor("relu", prefix), tensor("concat", prefix, PARTS[6], axis=-1)):
        (longer, read) = balanced(model(chain((prefix, *PARTS[4:6])), other)).main.outputs
        (kept,) = {term for term in Function(PARTS, (longer,)).walk() if term.type == prefix.type}
        assert kept in (read, *read.args) and depth(kept) == 2


def test_joins_along_other_axes_are_parts() -> None:
    block = tensor("concat", PARTS[3], PARTS[3], axis=-2)
    before = model(chain((block, block, block)))
    assert balanced(before) == before


def test_what_stands_in_the_place_of_a_term_has_its_origin() -> None:
    joined = chain(PARTS[:5])
    after = tensor("relu", joined)
    found = balanced(Model({"main": Function(PARTS, (after,))}, {}, {joined: "cat", after: "relu"}))
    (new,) = found.main.outputs
    assert found.origin_by_term == {new: "relu", new.args[0]: "cat"} and new != after
