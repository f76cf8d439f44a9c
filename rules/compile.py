"""From a rule as data to egglog.

A rule whose right side needs nothing computed runs in egglog alone. Any other is split. First egglog matches the left
side and records the match with the types and attributes that matter; between rounds Python evaluates the guard, the
attributes and the types of new nodes once for each distinct row of ids (its plan); then egglog joins matches with plans
and acts. Rows are few: twelve equal layers share theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import Any

from frittata.egraph import interning
from frittata.egraph.errors import ModelError
from frittata.egraph.ops import registry
from frittata.egraph.schema import KNOWN, SORT, Plan, Program, ruleset_of
from frittata.egraph.terms import ElementType, Scalar, Sort, TensorType
from frittata.rules import facts
from frittata.rules.own import is_of_package
from frittata.rules.pattern import (
    AttrVariable,
    Binding,
    Expression,
    Family,
    Node,
    Number,
    Pattern,
    Rule,
    Variable,
    nodes,
)
from frittata.rules.roots import exchangeable


def compile_families(families: tuple[Family, ...]) -> dict[str, tuple[Program, ...]]:
    """Compile the equations of every family; rules are numbered from 1 in order."""
    out: dict[str, tuple[Program, ...]] = {}
    number = 0
    for family in families:
        programs: list[Program] = []
        for rule in family.rules:
            if rule.kind == "equation":
                number += 1
                programs.append(_compiled(rule, number) or _Compiler(rule, number).program())
        out[family.name] = tuple(programs)
    return out


@cache
def _compiled(rule: Rule, number: int) -> Program | None:
    """Compile a rule once and for all; not if it mentions what the caller has defined, who may define it anew."""
    return _Compiler(rule, number).program() if is_of_package(rule) else None


@dataclass
class _Built:
    """One node of the right side in the making: how egglog names it, and where its computed parts come from."""

    pattern: Node | Number
    args: list[str]
    name: str
    inner: bool
    outputs: list[str] = field(default_factory=list[str])


class _Compiler:
    def __init__(self, rule: Rule, number: int) -> None:
        self.rule = rule
        self.number = number
        self.roots = {binding.name for binding in rule.left}
        self.literals: list[tuple[str, Number]] = []
        self.built: list[_Built] = []
        self.result_by_name: dict[str, str] = {}
        self.sort_by_name: dict[str, Sort] = dict(rule.sort_by_variable)
        for binding in rule.left:
            assert isinstance(binding.pattern, Node)
            self.sort_by_name[binding.name] = binding.pattern.sort
        self.attr_names: set[str] = set()
        self.exchanged: list[tuple[str, str]] = []
        self.neighbours: tuple[str, str] | None = None
        self._next, self._last = f"next_{number}", f"last_{number}"

    def program(self) -> Program:
        """Compile the rule."""
        roots = [self._left(binding.pattern) for binding in self.rule.left]
        atoms = [f"(= {_term(binding.name)} {node})" for binding, node in zip(self.rule.left, roots, strict=True)]
        for condition in self.rule.conditions:
            atoms += [f"(= (varies {_term(name)}) 0)" for name in condition.constants]
            atoms += [f"(= (varies {_term(name)}) 1)" for name in (*condition.varying, *condition.bare)]
            atoms += [f"(= (shifted {_term(name)}) 0)" for name in condition.bare]
        for binding in self.rule.right:
            self.result_by_name[binding.name] = self._right(binding.pattern, binding.name not in self.roots)
        actions = [line for built in self.built for line in self._actions(built)]
        for name in self.roots:
            if name in self.result_by_name:
                actions.append(f"(union {_term(name)} {self.result_by_name[name]})")
        actions += self._superseded()
        outputs = [output for built in self.built for output in built.outputs]
        noted = ""
        if len(roots) > 1:
            merged = self._merged_nodes()
            self.exchanged = exchangeable(self.rule) if merged else []
            self.neighbours = self.exchanged[0] if len(roots) == 2 and self.exchanged else None
            actions += [f"(set ({_merged(node)} {node.name}) 1)" for node in merged]
            for at, (binding, node) in enumerate(zip(self.rule.left, roots, strict=True)):
                noted += self._rule([f"(= root {node})"], [f"(set ({_merged(binding)} root) 0)"], f"#root{at}")
        queries = [[*atoms, *more] for more in self._queries()]
        planned = outputs or self.literals or any(c.expression for c in self.rule.conditions)
        if not planned and not self.neighbours:
            (query,) = queries
            rules = noted + self._rule(query, actions, "")
            return Program(self.rule.full_name, self.number, "", rules, None, *self._operators())
        return self._planned(noted, queries, actions, outputs)

    def _queries(self) -> list[list[str]]:
        """Return what is asked of several roots, in each way in which they may match.

        They differ, and none was merged by such a rule: what merges two would merge what it made with each of them,
        without end. If the rule merges, one order of those that may be exchanged is enough; two such merge if they are
        neighbours, and what they become merges with the next: runs of neighbours, not all that may be chosen of them.
        """
        names = [_term(binding.name) for binding in self.rule.left]
        differ = [_differ(*pair) for pair in combinations(names, 2)]
        single = [f"(= 0 ({_merged(binding)} {_term(binding.name)}))" for binding in self.rule.left]
        ordered = [_ordered(_term(p), _term(q)) for p, q in self.exchanged]
        queries = [[*differ, *single, *ordered]] if differ else [[]]
        if self.neighbours:
            p, q = map(_term, self.neighbours)
            after = [f"(= last ({self._last} {p}))", f"(= {q} ({self._next} last))"]
            queries.append([*differ, single[1], *after, _differ("last", q), _ordered("last", q)])
        return queries

    def _superseded(self) -> list[str]:
        """Hide what is computed of numbers alone once it is a number: zero times a number times another has no end.

        Sums and products are hidden the other way round, too. A rule may have turned them, and the answer to that one
        comes a round later; until then a sum that is one of its addends again, as 300 + 1e-5 is, would gather itself.
        """
        left, right = ([binding.pattern for binding in side] for side in (self.rule.left, self.rule.right))
        if len(left) != 1 or len(right) != 1 or not isinstance(left[0], Node) or not left[0].args:
            return []
        if not all(map(_is_const, (*left[0].args, right[0]))):
            return []
        hidden = [f"(subsume {self._left(left[0])})"]
        if left[0].op in ("add", "mul"):
            turned = self._left(replace(left[0], args=left[0].args[::-1]))
            hidden += [f"(union {_term(self.rule.left[0].name)} {turned})"]
            hidden += [f"(set (by_{turned[1:-1]}) {self.number})", f"(subsume {turned})"]
        return hidden

    def _planned(self, noted: str, queries: list[list[str]], actions: list[str], outputs: list[str]) -> Program:
        names = self._needed()
        types = [
            f"(= t_{n} ({'ty' if self.sort_by_name[n] == 'tensor' else 'dt'} {_term(n)}))"
            for n in names
            if n not in self.attr_names
        ]
        columns = [f"{'a' if n in self.attr_names else 't'}_{n}" for n in names]
        columns += [column for column, _ in self.literals]
        used = sorted(self._used_terms())
        attrs = sorted(self._used_attrs())
        kept = [_term(name) for name in used] + [f"a_{name}" for name in attrs]
        match, plan = f"match_{self.number}", f"plan_{self.number}"
        sorts = [SORT[self.sort_by_name[name]] for name in used] + ["i64"] * (len(attrs) + len(columns))
        tables = f"(relation {match} ({' '.join(sorts)}))\n"
        plan_table = f"(relation {plan} ({' '.join(['i64'] * (len(columns) + len(outputs)))}))\n"
        row = f"({match} {' '.join([*kept, *columns])})"
        matching = "".join(self._rule([*query, *types], [row], f"#match{at}") for at, query in enumerate(queries))
        acting = ""
        found = [row, f"({plan} {' '.join([*columns, *outputs])})"]
        if self.neighbours:
            p, q = map(_term, self.neighbours)
            sort = SORT[self.sort_by_name[self.neighbours[0]]]
            for name in (self._next, self._last):
                tables += f"(function {name} ({sort}) {sort} :merge (ordering-min old new))\n"
            acting = self._rule(found, [f"(set ({self._next} {p}) {q})"], "#next")
            found.append(f"(= {q} ({self._next} {p}))")
            actions += [f"(set ({self._last} {built.name}) {q})" for built in self._merged_nodes()]
        acting += self._rule(found, actions, "")

        @cache
        def evaluate(given: tuple[int, ...]) -> tuple[int, ...] | None:
            values = [interning.value_of(number) for number in given]
            try:
                return self._evaluate(dict(zip(names, values[: len(names)], strict=True)), values[len(names) :])
            except (ModelError, facts.NotApplicable):
                return None

        answers = Plan(match, plan, plan_table, acting, len(kept), len(columns), evaluate)
        return Program(self.rule.full_name, self.number, tables, noted + matching, answers, *self._operators())

    def _operators(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the constructors on the left, with what the conditions ask for, and on the right."""
        left = {f"{node.sort[0]}_{node.op}" for binding in self.rule.left for node in nodes(binding.pattern)}
        right = {f"{node.sort[0]}_{node.op}" for binding in self.rule.right for node in nodes(binding.pattern)}
        if any(number.sort == "tensor" for built in self.built if isinstance(number := built.pattern, Number)):
            right.add("t_full")
        left.update("e_const" if number.sort == "element" else "t_full" for _, number in self.literals)
        if any(condition.constants for condition in self.rule.conditions):
            left.add(KNOWN)
        return frozenset(left), frozenset(right | {"e_const"})

    def _rule(self, atoms: list[str], actions: list[str], suffix: str) -> str:
        body, head = " ".join(atoms), " ".join(actions)
        ruleset = ruleset_of(self.rule.family)
        return f'(rule ({body}) ({head}) :ruleset {ruleset} :name "{self.rule.full_name}{suffix}")\n'

    def _left(self, pattern: Pattern) -> str:
        match pattern:
            case Variable(name=name):
                return _term(name)
            case Number():
                column = f"c_{len(self.literals)}"
                self.literals.append((column, pattern))
                if pattern.sort == "tensor":
                    return f"(t_full {column} {interning.intern(())})"
                return f"(e_const {column})"
            case Node():
                parts = [self._left(arg) for arg in pattern.args]
                for attr in pattern.attrs:
                    if isinstance(attr, AttrVariable):
                        self.attr_names.add(attr.name)
                        parts.append(f"a_{attr.name}")
                    else:
                        assert attr is not None
                        parts.append(str(interning.intern(facts.evaluate(attr, {}))))
                return f"({' '.join([f'{pattern.sort[0]}_{pattern.op}', *parts])})"

    def _right(self, pattern: Pattern, inner: bool) -> str:
        if isinstance(pattern, Variable):
            return self.result_by_name.get(pattern.name, _term(pattern.name))
        args = [self._right(arg, True) for arg in pattern.args] if isinstance(pattern, Node) else []
        built = _Built(pattern, args, f"n{len(self.built)}", inner)
        first = sum(len(b.outputs) for b in self.built)
        computed = 1 if isinstance(pattern, Number) else sum(map(_is_computed, pattern.attrs))
        built.outputs = [f"o{first + i}" for i in range(computed + inner)]
        self.built.append(built)
        return built.name

    def _actions(self, built: _Built) -> list[str]:
        outputs = iter(built.outputs)
        pattern = built.pattern
        if isinstance(pattern, Number):
            shape = f" {interning.intern(())}" if pattern.sort == "tensor" else ""
            key = "e_const" if pattern.sort == "element" else "t_full"
            columns = f"{next(outputs)}{shape}"
        else:
            key = f"{pattern.sort[0]}_{pattern.op}"
            columns = " ".join([*built.args, *(self._attr(attr, outputs) for attr in pattern.attrs)])
        lines = [f"(let {built.name} ({key} {columns}))", f"(set (by_{key} {columns}) {self.number})"]
        if built.inner:
            fact = "ty" if pattern.sort == "tensor" else "dt"
            lines.append(f"(set ({fact} {built.name}) {next(outputs)})")
        return lines

    def _attr(self, attr: AttrVariable | Expression | None, outputs: Iterator[str]) -> str:
        if isinstance(attr, AttrVariable):
            return f"a_{attr.name}"
        if isinstance(attr, Expression) and not attr.names:
            return str(interning.intern(facts.evaluate(attr, {})))
        return next(outputs)

    def _needed(self) -> list[str]:
        """Variables whose type or value the plan reads, in order of first mention."""
        names: dict[str, None] = {}
        for condition in self.rule.conditions:
            if condition.expression:
                names.update(dict.fromkeys(condition.expression.names))
        for built in self.built:
            pattern = built.pattern
            if isinstance(pattern, Number):
                names[pattern.like or self.rule.left[0].name] = None
                continue
            for attr in pattern.attrs:
                if attr is None:
                    names[self.rule.left[0].name] = None
                elif isinstance(attr, Expression):
                    names.update(dict.fromkeys(attr.names))
                elif built.inner:
                    names[attr.name] = None
            if built.inner:
                names.update(dict.fromkeys(a.name for a in pattern.args if isinstance(a, Variable)))
        local = {binding.name for binding in self.rule.right} - self.roots
        return [name for name in names if name not in local]

    def _merged_nodes(self) -> list[_Built]:
        """Return the nodes of the right side that are no roots and have the operator of one: what these become."""
        roots = (binding.pattern for binding in self.rule.left)
        kinds = {(root.op, root.sort) for root in roots if isinstance(root, Node)}
        inner = ((built, built.pattern) for built in self.built if built.inner)
        return [built for built, node in inner if isinstance(node, Node) and (node.op, node.sort) in kinds]

    def _used_terms(self) -> set[str]:
        found = {name for name in self.roots if name in self.result_by_name}
        for binding in self.rule.right:
            found |= _variables(binding.pattern)
        return found - (self.result_by_name.keys() - self.roots)

    def _used_attrs(self) -> set[str]:
        return {
            attr.name
            for built in self.built
            if isinstance(built.pattern, Node)
            for attr in built.pattern.attrs
            if isinstance(attr, AttrVariable)
        }

    def _evaluate(self, env: dict[str, Any], literals: list[Any]) -> tuple[int, ...] | None:
        """The plan: check the guard, then compute attributes and types in the order of `outputs`."""
        for (_, number), found in zip(self.literals, literals, strict=True):
            if found != Scalar.of(number.value, found.dtype):
                return None
        readable = {
            name: facts.ElementFacts(value) if self.sort_by_name.get(name) == "element" else value
            for name, value in env.items()
        }
        for condition in self.rule.conditions:
            if condition.expression is not None and not facts.evaluate(condition.expression, readable):
                return None
        return tuple(self._outputs(env, readable))

    def _outputs(self, env: dict[str, Any], readable: dict[str, Any]) -> list[int]:
        type_by_name: dict[str, Any] = {}
        for name, value in env.items():
            if name in self.sort_by_name:
                type_by_name[_term(name)] = value if isinstance(value, TensorType) else ElementType((), value)
        built_by_local = {name: built for name, built in self.result_by_name.items() if name not in self.roots}
        name_by_local = {built: name for name, built in built_by_local.items()}
        out: list[int] = []
        for built in self.built:
            pattern = built.pattern
            if isinstance(pattern, Number):
                beside = pattern.like or self.rule.left[0].name
                like = type_by_name[built_by_local.get(beside, _term(beside))]
                scalar = Scalar.of(pattern.value, like.dtype)
                type_: Any = TensorType((), like.dtype) if pattern.sort == "tensor" else ElementType((), like.dtype)
                out.append(interning.intern(scalar))
            else:
                attrs: list[Any] = []
                for attr in pattern.attrs:
                    if isinstance(attr, AttrVariable):
                        attrs.append(env.get(attr.name))
                    else:
                        attrs.append(self._value(attr, env, readable))
                        if _is_computed(attr):
                            out.append(interning.intern(attrs[-1]))
                type_ = self._infer(built, attrs, type_by_name) if built.inner else None
            type_by_name[built.name] = type_
            if built.name in name_by_local:
                known = type_ if isinstance(type_, TensorType) else facts.ElementFacts(type_.dtype)
                readable = {**readable, name_by_local[built.name]: known}
            if built.inner:
                out.append(interning.intern(type_ if isinstance(type_, TensorType) else type_.dtype))
        return out

    def _value(self, attr: Expression | None, env: dict[str, Any], readable: dict[str, Any]) -> Any:
        if attr is None:
            return env[self.rule.left[0].name].shape
        return facts.evaluate(attr, readable)

    def _infer(self, built: _Built, attrs: list[Any], type_by_name: dict[str, Any]) -> Any:
        assert isinstance(built.pattern, Node)
        op = registry.get(built.pattern.op, built.pattern.sort)
        return op.infer(tuple(type_by_name[arg] for arg in built.args), tuple(attrs))


def _merged(of: Binding | _Built) -> str:
    """Return the table that has 1 for what rules of several results made, and 0 for what else may be their root."""
    assert isinstance(of.pattern, Node)
    return f"merged_{SORT[of.pattern.sort]}"


def _differ(one: str, other: str) -> str:
    return f"(!= {one} {other})"


def _ordered(one: str, other: str) -> str:
    return f"(= {one} (ordering-min {one} {other}))"


def _is_const(pattern: Pattern) -> bool:
    return isinstance(pattern, Node) and pattern.op == "const" and pattern.sort == "element"


def _is_computed(attr: AttrVariable | Expression | None) -> bool:
    return attr is None or (isinstance(attr, Expression) and bool(attr.names))


def _term(name: str) -> str:
    return f"v_{name}"


def _variables(pattern: Pattern) -> set[str]:
    match pattern:
        case Variable(name=name):
            return {name}
        case Node(args=args):
            return set().union(*map(_variables, args)) if args else set()
        case _:
            return set()
