"""Transforms (`~>`): rules that replace a term and may change what it means. They run once, before saturation."""

from __future__ import annotations

from collections.abc import Iterable

from frittata.egraph.errors import ModelError, RuleError
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.rules.facts import NotApplicable
from frittata.rules.matching import match_rule, results
from frittata.rules.pattern import Rule


def apply_transforms(model: Model, rules: Iterable[Rule]) -> Model:
    """Rewrite every function bottom-up; each node is offered once to each transform, in order.

    relu(matmul(x, w)) under `relu(y) ~> gelu(y)` -> gelu(matmul(x, w))

    Raises: RuleError if a replacement is ill-typed or has another type than what it replaces.
    """
    transforms = [rule for rule in rules if rule.kind == "transform"]
    if not transforms:
        return model

    def rewrite(term: Term, args: tuple[Term, ...]) -> Term:
        new = term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)
        for rule in transforms:
            new = replacement(rule, new) or new
        return new

    return model.rewritten(rewrite)


def replacement(rule: Rule, term: Term) -> Term | None:
    """Return what one transform puts in the place of a term; None if it does not match, or its result has no value.

    Raises: as `apply_transforms`.
    """
    found = match_rule(rule, term)
    if found is None:
        return None
    try:
        (new,) = results(rule.right, found).values()
    except NotApplicable:
        return None
    except ModelError as error:
        raise RuleError(f"{rule.full_name} makes an ill-typed term: {error.what}", str(rule.location)) from error
    if new.type != term.type:
        what = f"{rule.full_name} replaces {term.op} of type {term.type} by {new.op} of type {new.type}"
        raise RuleError(what, str(rule.location), "give both sides one type")
    return new
