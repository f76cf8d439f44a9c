"""Joins as balanced trees: of a chain of n all prefixes, and of a tree n - 1 in all, are tensors that could be stored.

    concat(concat(concat(a, b), c), d)  ->  concat(concat(a, b), concat(c, d))

A prefix that something else reads stays as it is: what joins more to it shares its memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from frittata.egraph import terms
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term

_JOIN = "concat"


def balanced(model: Model) -> Model:
    """Return a model that computes the same, with the joins that only joins of the same axis read in trees."""
    outputs = [term for function in model.functions.values() for term in function.outputs]
    every = [*terms.walk(*outputs)]
    users = Counter((*(arg for term in every for arg in term.args), *outputs))
    inner = {
        arg
        for term in every
        for arg in term.args
        if term.op == arg.op == _JOIN and term.attrs == arg.attrs and users[arg] == 1
    }
    if not inner:
        return model
    parts: dict[Term, list[Term]] = {}

    def new_term(term: Term, args: tuple[Term, ...]) -> Term:
        if term.op == _JOIN:
            pairs = zip(term.args, args, strict=True)
            parts[term] = [part for old, new in pairs for part in (parts[old] if old in inner else [new])]
            return term if term in inner else _tree(parts[term], term)
        return term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)

    return model.rewritten(new_term)


def _tree(parts: Sequence[Term], join: Term) -> Term:
    """Join parts, the largest power of two of them first: longer joins of the same parts share the trees of shorter."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << ((len(parts) - 1).bit_length() - 1)
    return registry.make(_JOIN, join.sort, (_tree(parts[:half], join), _tree(parts[half:], join)), join.attrs)
