"""Rules on terms, without an e-graph: match the left side, test the guard, build the right side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from frittata.egraph import terms
from frittata.egraph.ops import registry
from frittata.egraph.terms import Scalar, TensorType, Term, Type
from frittata.rules import facts
from frittata.rules.facts import ElementFacts, NotApplicable
from frittata.rules.pattern import AttrVariable, Binding, Condition, Expression, Node, Number, Pattern, Rule, Variable


@dataclass(frozen=True)
class Bindings:
    """What the names of a rule stand for: terms (variables and roots) and attributes."""

    term_by_name: Mapping[str, Term] = field(default_factory=dict[str, Term])
    attr_by_name: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def with_term(self, name: str, term: Term) -> Bindings:
        """Return these and one more term."""
        return Bindings({**self.term_by_name, name: term}, self.attr_by_name)

    def with_attr(self, name: str, value: Any) -> Bindings:
        """Return these and one more attribute."""
        return Bindings(self.term_by_name, {**self.attr_by_name, name: value})

    def environment(self) -> dict[str, Any]:
        """Return what guards and attribute expressions see."""
        return {**{name: facts_of(term) for name, term in self.term_by_name.items()}, **self.attr_by_name}


def facts_of(term: Term) -> TensorType | ElementFacts:
    """Return the type of a tensor; the dtype and the axes of an element."""
    if isinstance(term.type, TensorType):
        return term.type
    extents = term.type.extents
    return ElementFacts(term.dtype, frozenset(axis for axis in range(-len(extents), 0) if extents[axis] != 1))


def same(left: Any, right: Any) -> bool:
    """Whether two attributes are equal, types included: 1, 1.0 and True differ, 0.0 and -0.0 too."""
    return left == right and repr(left) == repr(right)


def match_rule(rule: Rule, term: Term) -> Bindings | None:
    """Match a rule with one pattern, guard included, against a term."""
    (binding,) = rule.left
    found = match(binding.pattern, term)
    if found is None:
        return None
    found = found.with_term(binding.name, term)
    return found if holds(rule.conditions, found) else None


def match(pattern: Pattern, term: Term, known: Bindings | None = None) -> Bindings | None:
    """Match a pattern against a term, with names that are `known` already."""
    known = known or Bindings()
    match pattern:
        case Variable(name=name):
            if term.sort != pattern.sort or known.term_by_name.get(name, term) is not term:
                return None
            return known.with_term(name, term)
        case Number():
            return known if term is number(pattern, term.dtype) else None
        case Node():
            if (term.op, term.sort) != (pattern.op, pattern.sort):
                return None
            found: Bindings | None = known
            for inner, arg in zip(pattern.args, term.args, strict=True):
                found = match(inner, arg, found) if found is not None else None
            return None if found is None else match_attrs(pattern, term.attrs, found)


def match_attrs(pattern: Node, attrs: Iterable[Any], found: Bindings) -> Bindings | None:
    """Match the attributes of an operator, whose arguments have been matched."""
    for wanted, value in zip(pattern.attrs, attrs, strict=True):
        if isinstance(wanted, AttrVariable):
            if not same(found.attr_by_name.get(wanted.name, value), value):
                return None
            found = found.with_attr(wanted.name, value)
        elif isinstance(wanted, Expression) and not same(_value(wanted, found), value):
            return None
    return found


def _value(expression: Expression, bindings: Bindings) -> Any:
    try:
        return facts.evaluate(expression, bindings.environment())
    except (NotApplicable, NameError):
        return None


def holds(conditions: Iterable[Condition], bindings: Bindings) -> bool:
    """Whether the whole guard is true."""
    return first_false(conditions, bindings) is None


def first_false(conditions: Iterable[Condition], bindings: Bindings) -> Condition | None:
    """Return the first conjunct that is not true."""
    env = bindings.environment()
    for condition in conditions:
        if not all(is_constant(bindings.term_by_name[name]) for name in condition.constants):
            return condition
        if any(is_constant(bindings.term_by_name[name]) for name in condition.varying):
            return condition
        if not all(_is_bare(bindings.term_by_name[name]) for name in condition.bare):
            return condition
        if condition.expression is not None and not facts.holds(condition.expression, env):
            return condition
    return None


def is_constant(term: Term) -> bool:
    """Whether a term depends on no input."""
    return all(node.op != "input" for node in terms.walk(term))


def _is_bare(term: Term) -> bool:
    is_shifted = term.op == "add" and is_constant(term.args[1])
    return not is_shifted and not is_constant(term)


def number(pattern: Number, dtype: str) -> Term:
    """Return the term of a literal."""
    value = Scalar.of(pattern.value, dtype)
    if pattern.sort == "element":
        return registry.make("const", "element", (), (value,))
    return registry.make("full", "tensor", (), (value, ()))


def instantiate(pattern: Pattern, bindings: Bindings, root: Type) -> Term:
    """Build the term of a pattern; `root` is the type of the class that it joins.

    Raises: NotApplicable if an attribute has no value here, ModelError if the term is ill-typed.
    """
    match pattern:
        case Variable(name=name):
            return bindings.term_by_name[name]
        case Number(like=like):
            return number(pattern, bindings.term_by_name[like].dtype if like else root.dtype)
        case Node():
            args = tuple(instantiate(arg, bindings, root) for arg in pattern.args)
            attrs = tuple(attribute(attr, bindings, root) for attr in pattern.attrs)
            return registry.make(pattern.op, pattern.sort, args, attrs)


def attribute(attr: AttrVariable | Expression | None, bindings: Bindings, root: Type) -> Any:
    """Return the value of an attribute on the right.

    Raises: NotApplicable if it has none here.
    """
    match attr:
        case AttrVariable(name=name):
            return bindings.attr_by_name[name]
        case Expression():
            return facts.evaluate(attr, bindings.environment())
        case None:
            assert isinstance(root, TensorType)
            return root.shape


def results(right: Iterable[Binding], bindings: Bindings) -> dict[str, Term]:
    """Build every result of a rule whose left side is bound, by the name of the root that it equals.

    Raises: NotApplicable, ModelError as `instantiate` does.
    """
    out: dict[str, Term] = {}
    for binding in right:
        name = binding.name
        at_root = name in bindings.term_by_name
        root = bindings.term_by_name[name] if at_root else next(iter(bindings.term_by_name.values()))
        term = instantiate(binding.pattern, bindings, root.type)
        if at_root:
            out[name] = term
        else:
            bindings = bindings.with_term(name, term)
    return out
