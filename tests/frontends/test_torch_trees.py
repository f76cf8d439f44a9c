"""Trees of arguments and results: what torch's own walk finds, or nothing."""

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from frittata.frontends.torch_trees import Tree


class Pair(NamedTuple):
    """Two of anything."""

    first: Any
    second: Any


X, Y = torch.zeros(2), torch.ones(3)
TREES: list[Any] = [
    X, (X, Y), [X, [Y, 3]], {"b": X, "a": (Y, None)}, Pair(X, {"k": [Y, "s"]}), (), {}, ((X,), {"n": 1})
]  # fmt: skip


@pytest.mark.parametrize("value", TREES, ids=range(len(TREES)))
def test_leaves_and_values_are_those_of_torch(value: Any) -> None:
    wanted, spec = pytree.tree_flatten(value)
    tree = Tree.of(spec)
    assert tree is not None
    found: list[Any] = []
    assert tree.take(value, found) and len(found) == len(wanted)
    assert all(one is other for one, other in zip(found, wanted, strict=True))
    built = tree.build(iter(wanted))
    assert type(built) is type(value) and pytree.tree_flatten(built)[1] == spec


def test_dicts_are_taken_in_any_order() -> None:
    tree = Tree.of(pytree.tree_flatten({"b": X, "a": Y})[1])
    assert tree is not None
    found: list[Any] = []
    assert tree.take({"a": Y, "b": X}, found) and found[0] is X and found[1] is Y


@pytest.mark.parametrize(
    "other", [(X,), (X, Y, X), [X, Y], (X, (Y,)), {"b": X, "a": Y}, Pair(X, Y), X, None], ids=range(8)
)
def test_another_tree_is_not_taken(other: Any) -> None:
    tree = Tree.of(pytree.tree_flatten((X, Y))[1])
    assert tree is not None and not tree.take(other, [])


def test_other_containers_are_left_to_torch() -> None:
    assert Tree.of(pytree.tree_flatten(OrderedDict(a=X))[1]) is None
    assert Tree.of(pytree.tree_flatten([torch.Size([2]), OrderedDict(a=X)])[1]) is None
