"""Why a rule fired or did not: whether it took part, how often it matched, or how far its left side got.

What stopped an equation is looked for in the saturated e-graph, where one without matches has none either. Transforms
and fusion groups match terms, of the model as it was imported and of the transformed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from frittata.account import Account
from frittata.egraph.errors import RuleError
from frittata.egraph.saturate import StopReason
from frittata.egraph.snapshot import Snapshot
from frittata.egraph.terms import Term
from frittata.extract.constants import Folder
from frittata.options import Options
from frittata.report import Report
from frittata.rules import library
from frittata.rules.facts import NotApplicable
from frittata.rules.matching import Bindings, first_false, match_attrs, number, results
from frittata.rules.parse import parse_family
from frittata.rules.pattern import Condition, Family, Node, Number, Pattern, Rule, Variable

_MOST_STEPS = 200_000
"""Places that a search for the nearest miss looks at."""
_MOST_NAMED = 4


@dataclass(frozen=True)
class Miss:
    """Where a rule came nearest: what its root was tried at, how many parts of its left side fit, and what did not."""

    at: str
    fitting: int
    why: str


@dataclass(frozen=True)
class RuleAccount:
    """What became of one rule. Print it, or take its parts.

    `absent` says why it took no part, "" if it did. `kernels` are the chosen ones that hold what it made, or what was
    derived from that, `folded` the constants that do. `stopped` says which limit ended saturation, "" if none did.
    """

    rule: Rule
    absent: str
    matches: int
    nodes: int
    kernels: tuple[str, ...]
    folded: tuple[str, ...]
    miss: Miss | None
    stopped: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the account as data that `json.dumps` takes."""
        miss = None if self.miss is None else vars(self.miss)
        lists = {"kernels": [*self.kernels], "folded": [*self.folded]}
        return {**vars(self), **lists, "rule": self.rule.full_name, "miss": miss}

    def __str__(self) -> str:
        lines = [f"{self.rule.full_name}, {self.rule.location}", f"  {' '.join(str(self.rule).split())}"]
        if self.absent:
            lines.append(f"It took no part: {self.absent}.")
        elif self.matches:
            made = f" and made {_counted(self.nodes, 'node')}" if self.nodes else ""
            lines.append(f"It matched {_counted(self.matches, 'time')}{made}.")
            if self.rule.kind != "transform":
                lines.append(self._outcome())
        else:
            lines.append("It took part and matched nothing.")
            if self.miss is not None:
                lines.append(f"It came nearest at {self.miss.at}: {self.miss.why}.")
            else:
                roots = [binding.pattern.op for binding in self.rule.left if isinstance(binding.pattern, Node)]
                lacks = "one of them is not there" if len(roots) > 1 else "there is none"
                lines.append(f"It asks for {' and '.join(roots)}, and {lacks}.")
        if self.stopped:
            lines.append(f"Saturation ended at the {self.stopped}: with more it might match more.")
        return "\n".join(lines)

    __repr__ = __str__

    def _outcome(self) -> str:
        """Say what of the program holds what the rule made."""
        found = [f"constants folded before run time: {', '.join(self.folded)}"] if self.folded else []
        found = [f"kernels: {', '.join(self.kernels)}", *found] if self.kernels else found
        if found:
            return f"On it stand {'; '.join(found)}."
        if not self.nodes:
            return "What it makes was there already: it joined what is equal, and no kernel shows for which side."
        return "No kernel holds a node that it made: others were cheaper, or it showed that one of them is equal."


def account_of(account: Account, name: str) -> RuleAccount:
    """Tell of a rule, by `family/name` or by its name alone if no other has it.

    Raises: RuleError that names the nearest.
    """
    done = account.compilation
    own = [parse_family(text, name) for name, text in done.own_rules]
    (family, rule), *others = library.named(name, (*library.builtin_families(), *own))
    if others:
        every = " or ".join(other.full_name for _, other in ((family, rule), *others))
        raise RuleError(f"{1 + len(others)} rules are called {name!r}", do=f"name one of them: {every}")
    if rule.full_name not in {other.full_name for f in done.families for other in f.rules}:
        return RuleAccount(rule, _absence(family, rule, done.options), 0, 0, (), (), None)
    kernels = tuple(view.name for view in account.kernels if rule.full_name in view.rules)
    snapshot = account.snapshot
    matches = account.matches(rule)
    if rule.kind == "equation":
        search, places = search_of(snapshot), range(len(snapshot.nodes))
    else:
        places = account.terms_of(rule)
        search = Search(lambda term: [term], lambda term: term, _described_term)
    numbers = {key for key, other in done.saturation.rule_names.items() if other == rule.full_name}
    nodes = sum(node.rule in numbers for class_ in snapshot.nodes for node in class_)
    folded = tuple(row.name for row in Report(account, lambda **_: None).folded if rule.full_name in row.rules)
    miss = None if matches else search.nearest(rule, places)
    limits = dict.fromkeys(p.stop.value for p in done.saturation.phases if p.stop is not StopReason.SATURATED)
    stopped = " and the ".join(limits) if rule.kind == "equation" else ""
    return RuleAccount(rule, "", matches, nodes, kernels, folded, miss, stopped)


def _absence(family: Family, rule: Rule, options: Options) -> str:
    """Say why a rule was not admitted."""
    if {family.name, rule.full_name}.intersection(options.disable):
        return "it is disabled"
    if family.opt_level > options.opt_level and family.name not in options.required:
        return f"{family.name} is of opt_level {family.opt_level}, and the level is {options.opt_level}"
    wanted = options.pipeline.families()
    if wanted is not None and family.name not in wanted:
        return f"the pipeline {options.pipeline.name!r} leaves {family.name} out"
    if rule.level.unless:
        return f"its level is {rule.level.kind}, numerics is {options.numerics}, and {rule.level.unless} says the same"
    return f"its level is {rule.level.kind}, and numerics is {options.numerics}"


class _Applied(Protocol):
    """An operator applied: a node of the e-graph, or a term."""

    @property
    def op(self) -> str: ...
    @property
    def sort(self) -> str: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def attrs(self) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class _Known:
    """What names stand for so far: places and attributes; how many parts of the pattern fit."""

    place_by_name: Mapping[str, Any] = field(default_factory=dict[str, Any])
    attr_by_name: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fitting: int = 0

    def with_place(self, name: str, place: Any) -> _Known:
        return _Known({**self.place_by_name, name: place}, self.attr_by_name, self.fitting + 1)


@dataclass
class Search:
    """Matches patterns at places, classes or terms, and remembers the match that came furthest."""

    nodes_of: Callable[[Any], Iterable[_Applied]]
    term_of: Callable[[Any], Term]
    described: Callable[[Any], str]
    _root: Any = None
    _best: tuple[int, Any, str] | None = None
    _steps: int = 0

    def nearest(self, rule: Rule, places: Iterable[Any]) -> Miss | None:
        """Return where the left side of a rule came furthest; None where nothing has the operator of its root."""
        every = [*places]
        for place in self._rooted(rule.left[0].pattern, every):
            self._root = place
            for known in self._matched(rule, place, every):
                false = first_false(rule.conditions, self._bindings(known))
                if false is not None:
                    self._miss(known, _guard(false, known, self.described))
                else:
                    whole = replace(known, fitting=known.fitting + 1)
                    self._miss(whole, f"all of it fits, but {self._unmade(rule, known)}")
        return None if self._best is None else Miss(self.described(self._best[1]), self._best[0], self._best[2])

    def _unmade(self, rule: Rule, known: _Known) -> str:
        """Say why what fits was not replaced."""
        try:
            if rule.kind == "transform":
                results(rule.right, self._bindings(known))
        except NotApplicable as error:
            return f"what it makes of it has no value: {error}"
        return "saturation stopped before, or judged another term"

    def _matched(self, rule: Rule, root: Any, every: list[Any]) -> list[_Known]:
        """Match the patterns of the left side one after the other, the first at a root, the others everywhere."""
        found = [_Known()]
        for at, binding in enumerate(rule.left):
            places = self._rooted(binding.pattern, every) if at else [root]
            others = [other.name for other in rule.left[:at]]
            found = [
                after.with_place(binding.name, place)
                for before in found
                for place in self._apart(binding.name, places, others, before)
                for after in self._match(binding.pattern, place, before)
            ]
        return found

    def _apart(self, name: str, places: list[Any], others: list[str], known: _Known) -> Iterator[Any]:
        """Visit the places where a root may be: two roots are two things."""
        for place in places:
            taken = [other for other in others if known.place_by_name[other] == place]
            if taken:
                self._miss(known, f"{taken[0]} and {name} would be one thing, {self.described(place)}")
            else:
                yield place

    def _rooted(self, pattern: Pattern, every: Iterable[Any]) -> list[Any]:
        wanted = (pattern.op, pattern.sort) if isinstance(pattern, Node) else None
        return [place for place in every if any((node.op, node.sort) == wanted for node in self.nodes_of(place))]

    def _match(self, pattern: Pattern, place: Any, known: _Known) -> Iterator[_Known]:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return
        match pattern:
            case Variable(name=name):
                if known.place_by_name.get(name, place) == place:
                    yield known.with_place(name, place)
                else:
                    both = self.described(known.place_by_name[name]), self.described(place)
                    self._miss(known, f"{name} would stand for two things, {both[0]} and {both[1]}")
            case Number(value=value):
                if any(_is_number(node, pattern) for node in self.nodes_of(place)):
                    yield replace(known, fitting=known.fitting + 1)
                else:
                    self._miss(known, f"it asks for {value}, and there is {self.described(place)}")
            case Node():
                yield from self._applied(pattern, place, known)

    def _applied(self, pattern: Node, place: Any, known: _Known) -> Iterator[_Known]:
        nodes = [node for node in self.nodes_of(place) if (node.op, node.sort) == (pattern.op, pattern.sort)]
        if not nodes:
            self._miss(known, f"it asks for {pattern.op}, and there is {self.described(place)}")
        for node in nodes:
            found = [replace(known, fitting=known.fitting + 1)]
            for inner, arg in zip(pattern.args, node.args, strict=True):
                found = [after for before in found for after in self._match(inner, arg, before)]
            for before in found:
                with_attrs = match_attrs(pattern, node.attrs, self._bindings(before))
                if with_attrs is None:
                    self._miss(before, f"attributes of {pattern.op} are others: {', '.join(map(str, node.attrs))}")
                else:
                    yield replace(before, attr_by_name=with_attrs.attr_by_name)

    def _bindings(self, known: _Known) -> Bindings:
        return Bindings({name: self.term_of(at) for name, at in known.place_by_name.items()}, known.attr_by_name)

    def _miss(self, known: _Known, why: str) -> None:
        if self._best is None or known.fitting > self._best[0]:
            self._best = known.fitting, self._root, why


def _is_number(node: _Applied, pattern: Number) -> bool:
    if node.op not in ("const", "full"):
        return False
    wanted = number(pattern, node.attrs[0].dtype)
    return (node.op, node.attrs) == (wanted.op, wanted.attrs)


def _guard(condition: Condition, known: _Known, described: Callable[[Any], str]) -> str:
    """Say which conjunct is not true, and what its names stand for."""
    if condition.expression is not None:
        text, names = condition.expression.text, condition.expression.names
    else:
        names = condition.constants or condition.varying or condition.bare
        what = "is known before run time" if condition.constants else "depends on an input"
        text = f"{', '.join(names)} {'varies, and is no sum with a constant' if condition.bare else what}"
    places = {name: described(known.place_by_name[name]) for name in names if name in known.place_by_name}
    attrs = {name: str(known.attr_by_name[name]) for name in names if name in known.attr_by_name}
    return f"all of it fits, but not the guard: {text}" + "".join(f"; {n} is {t}" for n, t in (places | attrs).items())


def search_of(snapshot: Snapshot) -> Search:
    """Return a search among the classes of an e-graph."""
    term_of = Folder(snapshot, reads_inputs=True).term
    return Search(lambda class_: snapshot.nodes[class_], term_of, lambda class_: _described(snapshot, class_))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _described_term(term: Term) -> str:
    return f"{_named(term)} of type {term.type}"


def _named(node: _Applied) -> str:
    """Return the operator, of an input or a param with its name."""
    return f"{node.op} {node.attrs[0]}" if node.op in ("input", "param") else node.op


def _described(snapshot: Snapshot, class_: int) -> str:
    ops = dict.fromkeys(_named(node) for node in snapshot.nodes[class_] if node.op != "build") or {"build": None}
    more = f" or {len(ops) - _MOST_NAMED} more" if len(ops) > _MOST_NAMED else ""
    return f"{' or '.join([*ops][:_MOST_NAMED])}{more} of type {snapshot.types[class_]}"
