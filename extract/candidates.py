"""Kernel candidates: for a tensor class, the ways to compute it in one kernel.

A body is an element term over `input` leaves named after tensor classes. At every element class that holds both
`load(t)` and the element t was built from there is a choice: load t, which then must be materialized, or inline it.
Bodies are enumerated bottom-up for each element class in its context, the extents of the axes in reach, and pruned.
What is held at an outer loop level, rather than recomputed, the templates decide and price.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import Machine
from frittata.egraph.ops import externs, registry
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.places import JOINS, can_be_placed
from frittata.egraph.program import HOST, Estimate, Template, is_in_place, operands_of
from frittata.egraph.shapes import Shape
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import Term, size_bytes
from frittata.extract import siblings
from frittata.extract.bodies import Body, Search, combinations, contexts, ran
from frittata.extract.cuts import (
    ATTENDED,
    CONTRACTED,
    DEEPEST,
    FOLDED,
    FOLDS,
    POINTWISE,
    RESHAPED,
    Cuts,
    may_stand_under,
    use_of,
)
from frittata.extract.evaluated import always_evaluated
from frittata.extract.layouts import computed
from frittata.extract.prices import Prices
from frittata.extract.pricing import Pricing, Spread
from frittata.extract.views import Views, is_view, leaf_of
from frittata.extract.work import Works

OPTION_LIMIT = 16
"""How many bodies of one element class are kept."""
_FEW = 4
"""How many are kept even if they are long."""
_MOST_OPERATORS = 256
"""How many operators the kept bodies of a class have together, if they are more than a few: each takes its time."""

_FINISHED = 1 << 60
"""What a search met if all that it asked were finished."""
_MOST_TURNS = 8
"""How often classes that are computed from each other are asked."""

_OF_PLACES = frozenset({"abs", "add", "and", "ge", "gt", "le", "lt", "not", "or", "reindex", "sub"})
"""What tells places apart in a few steps."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One kernel, or a view: what it produces from what, and its price in seconds."""

    bodies: tuple[tuple[int, Term], ...]
    loads: frozenset[int]
    template: str
    estimate: Estimate
    rules: frozenset[int] = frozenset()
    binders: frozenset[int] = frozenset()
    """The element classes of the folds and contractions that it computes."""

    produces: tuple[int, ...] = field(init=False)
    """The classes that it computes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "produces", tuple(class_ for class_, _ in self.bodies))

    @property
    def cost(self) -> float:
        """Seconds."""
        return self.estimate.seconds


@dataclass(frozen=True, eq=False)
class Offer:
    """A candidate before its price: `structure` has the number of what that depends on, None if it costs nothing.

    `more_s` is what it costs beside, in seconds.
    """

    bodies: tuple[tuple[int, Term], ...]
    loads: frozenset[int]
    structure: int | None
    template: str = ""
    rules: frozenset[int] = frozenset()
    binders: frozenset[int] = frozenset()
    more_s: float = 0.0


VIEW = "view"
"""The template of a candidate that only renames memory."""

JOIN = "join"
"""The template of a concatenation or a border whose parts are written in place."""


@dataclass
class Enumerator:
    """Enumerates candidates over one snapshot. `free` are classes that cost nothing to have: `constants` and inputs."""

    snapshot: Snapshot
    templates: tuple[Template, ...]
    machine: Machine
    constants: frozenset[int]
    free: frozenset[int]
    cuts: Cuts
    prices: Prices = field(default_factory=Prices)
    _bodies: dict[tuple[int, Shape], list[Body]] = field(default_factory=dict[tuple[int, Shape], list[Body]])
    _partial: dict[tuple[int, Shape], list[Body]] = field(default_factory=dict[tuple[int, Shape], list[Body]])
    _number: dict[tuple[int, Shape], int] = field(default_factory=dict[tuple[int, Shape], int])
    _unfinished: list[tuple[int, Shape]] = field(default_factory=list[tuple[int, Shape]])
    _offers: dict[int, list[Offer]] = field(default_factory=dict[int, list[Offer]])

    def __post_init__(self) -> None:
        self._pricing = Pricing(self.templates, self.machine, self.prices, self._is_constant)
        self._settled = self.cuts.must | self.constants
        self._storable = self.cuts.may - self.free
        self._at_hand = self.cuts.must | self.cuts.outputs | self.free
        self.evaluated = always_evaluated(self.snapshot, self.free)
        self._works, self._views = Works(), Views(self.snapshot)
        self._depths: dict[Term, int] = {}
        self._bytes_by_class: dict[int, float] = {}

    def candidates(self, class_: int) -> list[Candidate]:
        """Return the candidates of a tensor class, cheapest first, none dominated."""
        return _undominated([c for c in map(self._priced, self.offers(class_)) if c is not None])

    def _priced(self, offer: Offer) -> Candidate | None:
        template, estimate = offer.template, Estimate(0.0, 0.0, 0.0)
        if offer.structure is not None:
            price = self._pricing.price(offer.structure)
            if price is None:
                return None
            template, estimate = price
        estimate = replace(estimate, seconds=estimate.seconds + offer.more_s)
        return Candidate(offer.bodies, offer.loads, template, estimate, offer.rules, offer.binders)

    def price(self, roots: Iterable[int], spread: Spread) -> None:
        """Price in several processes what may be asked for of the classes that roots are computed from."""
        seen, stack = set[int](), [*roots]
        while stack:
            class_ = stack.pop()
            if class_ not in seen:
                seen.add(class_)
                stack += {load for offer in self.offers(class_) for load in offer.loads} - self.free - seen
        self._pricing.price_all(spread)

    def offers(self, class_: int) -> list[Offer]:
        """Return all candidates of a tensor class without their prices."""
        return [*self._own_offers(class_), *self._offers_beside.get(class_, ())]

    @cached_property
    def _offers_beside(self) -> dict[int, list[Offer]]:
        """Kernels that compute several tensors of those that are stored in any case."""
        found: dict[int, list[Offer]] = {}
        alone = {class_: self._kernels_alone(class_) for class_ in self._at_hand - self.free}
        for kernels in siblings.together(alone, self._is_constant, self.evaluated, self._works):
            bodies = tuple(body for kernel in kernels for body in kernel.bodies)
            loads, rules, binders = (
                frozenset[int]().union(*sets)
                for sets in zip(*((k.loads, k.rules, k.binders) for k in kernels), strict=True)
            )
            offer = Offer(bodies, loads, self._structure_of(bodies), "", rules, binders)
            for class_, _ in bodies:
                found.setdefault(class_, []).append(offer)
        return found

    def _kernels_alone(self, class_: int) -> list[Offer]:
        """Return the kernels for a tensor alone that load only what is stored in any case."""
        kernels = (o for o in self._own_offers(class_) if o.structure is not None and len(o.bodies) == 1)
        return [kernel for kernel in kernels if kernel.loads <= self._at_hand]

    def _own_offers(self, class_: int) -> list[Offer]:
        """Return the candidates that are made for a tensor class."""
        if class_ not in self._offers:
            shape = self.snapshot.tensor_type(class_).shape
            out = self._offers[class_] = list[Offer]()
            for node in self.snapshot.nodes[class_]:
                if node.op == "build" and node.attrs[0] == shape:
                    for body in self.bodies_of(node.args[0], shape):
                        out.extend(self._offers_of(class_, shape, body, node.rule))
                elif node.sort == "tensor" and registry.get(node.op).opaque:
                    out.extend(self._calls(class_, node))
                elif node.op in JOINS:
                    out.extend(self._joins(class_, node))
        return self._offers[class_]

    def _joins(self, class_: int, node: Node) -> Iterable[Offer]:
        """Offer to write the parts of a concatenation, or what has a border, in place."""
        parts = frozenset(node.args)
        if len(parts) < len(node.args) or class_ in parts or parts & self.free:
            return
        body = registry.make(node.op, "tensor", tuple(leaf_of(self.snapshot, arg) for arg in node.args), node.attrs)
        if can_be_placed(body) and (self._takes_gaps or _is_contiguous(body)):
            yield Offer(((class_, body),), parts, None, JOIN, frozenset((node.rule,)))

    @cached_property
    def _takes_gaps(self) -> bool:
        """Whether some template reads and writes what lies apart."""
        return any(map(is_in_place, self.templates))

    def _calls(self, class_: int, node: Node) -> Iterable[Offer]:
        """Offer to run an opaque operator as it is, with all results of the same call."""
        if class_ in node.args:
            return
        leaves = tuple(leaf_of(self.snapshot, arg) for arg in node.args)
        call = [(class_, node), *((c, n) for c, n in self._siblings.get(_call_key(node), ()) if c != class_)]
        bodies = tuple((c, registry.make(n.op, "tensor", leaves, n.attrs)) for c, n in dict(call).items())
        loads = frozenset(node.args) - self.free
        yield Offer(bodies, loads, self._structure_of(bodies), rules=frozenset((node.rule,)))

    @cached_property
    def _siblings(self) -> dict[Any, list[tuple[int, Node]]]:
        """The classes and nodes of the results of each call that has several."""
        found: dict[Any, list[tuple[int, Node]]] = {}
        for class_, nodes in enumerate(self.snapshot.nodes):
            for node in nodes:
                if externs.is_extern(node.op):
                    found.setdefault(_call_key(node), []).append((class_, node))
        return found

    def _offers_of(self, class_: int, shape: Shape, body: Body, rule: int) -> Iterable[Offer]:
        if class_ in body.reads:
            return
        built = registry.make("build", "tensor", (body.term,), (shape,))
        rules = body.rules | {rule}
        loads = body.loads - self.free
        own = ((class_, built),)
        if is_view(built):
            yield Offer(own, body.loads, None, VIEW, rules, body.binders)
            return
        yield Offer(own, loads, self._structure_of(own), "", rules, body.binders)
        stored = [c for c in body.inlined if not self._is_only_for(c, class_)]
        for count in range(1, min(len(stored), 2) + 1):
            chosen = stored[:count]
            if any(self._is_only_for(c, other) for c in chosen for other in chosen if c != other):
                continue  # what is computed from it is at hand, too
            if not loads & set(chosen):
                more = ((c, registry.make("build", "tensor", (body.inlined[c],), (shape,))) for c in chosen)
                bodies = (*own, *more)
                more_s = sum(map(self._bytes, chosen)) / self.machine.l3_bytes_per_s
                # the stores may be hidden behind arithmetic, but must never look free
                yield Offer(bodies, loads, self._structure_of(bodies), "", rules, body.binders, more_s)

    def _is_only_for(self, tensor: int, other: int) -> bool:
        """Whether a tensor is used for computing the other, or is it, and for nothing else."""
        return tensor == other or any(self.cuts.leads_to(tensor, e) for e in self._elements.get(other, ()))

    @cached_property
    def _elements(self) -> dict[int, set[int]]:
        """The element classes of each tensor class."""
        found: dict[int, set[int]] = {}
        for class_, nodes in enumerate(self.snapshot.nodes):
            for node in nodes:
                if node.op == "build":
                    found.setdefault(class_, set()).add(node.args[0])
                elif node.op == "load":
                    found.setdefault(node.args[0], set()).add(class_)
        return found

    def _structure_of(self, bodies: tuple[tuple[int, Term], ...]) -> int:
        return self._pricing.structure(tuple(body for _, body in bodies))

    def _is_constant(self, leaf: Term) -> bool:
        return int(leaf.attrs[0][1:]) in self.constants

    def bodies_of(self, class_: int, shape: Shape) -> list[Body]:
        """Return the bodies of a kernel's own element class: whatever is not the tensor itself."""
        found: list[Body] = []
        nodes = self._nodes(class_)
        for node in nodes:
            bodies = self._load(node, shape) if node.op == "load" else ran(self._apply(class_, node, shape))[0]
            found.extend(bodies if node.op == "load" else self._passing(nodes, bodies, shape))
        return self.pruned(found, of_kernels=True)

    def _nodes(self, class_: int) -> list[Node]:
        """Return the nodes of an element class, without other layouts of it that nothing stores."""
        nodes = self.snapshot.nodes[class_]
        if self.cuts.exchanged is None or class_ in self.cuts.exchanged:
            return nodes
        return [*(node for node in nodes if node.op == "load"), *computed(nodes)]

    def _search(self, class_: int, context: Shape) -> Search:
        """Find the bodies of an element class where the axes in reach have the extents of `context`.

        Where classes are computed from each other they are asked in turn, until none of them finds more. Also find the
        number of the first class, of those that are not finished, that was met.

        Source: Tarjan, Depth-first search and linear graph algorithms, 1972.
        """
        key = (class_, context)
        known = self._bodies.get(key)
        if known is not None:
            return known, _FINISHED
        if key in self._number:
            return self._partial[key], self._number[key]
        number = self._number[key] = len(self._unfinished)
        self._unfinished.append(key)
        self._partial[key] = []
        found, low = yield from self._evaluate(key)
        self._partial[key] = found
        if low < number:
            return found, low
        together = self._unfinished[number:]
        for _ in range(_MOST_TURNS if low < _FINISHED else 0):
            changed = False
            for other in reversed(together):
                found, _ = yield from self._evaluate(other)
                changed |= [body.term for body in found] != [body.term for body in self._partial[other]]
                self._partial[other] = found
            if not changed:
                break
        del self._unfinished[number:]
        for other in together:
            self._bodies[other] = self._partial.pop(other)
            del self._number[other]
        return self._bodies[key], _FINISHED

    def _evaluate(self, key: tuple[int, Shape]) -> Search:
        """Combine what is known of the classes that a class is computed from."""
        class_, context = key
        found: list[Body] = []
        low = _FINISHED
        nodes = self._nodes(class_)
        inline = [node for node in nodes if node.op != "load"]
        loads = [node for node in nodes if node.op == "load"]
        for node in loads:
            if self._may_cut(node.args[0], inline):
                found.extend(self._load(node, context))
        settled = found and any(node.args[0] in self._settled for node in loads)
        if not settled or self._tells_places(class_) or class_ in self.cuts.shown:
            for node in inline:
                bodies, met = yield self._apply(class_, node, context)
                low = min(low, met)
                found.extend(self._passing(nodes, bodies, context))
        return self.pruned(found), low

    def _passing(self, nodes: list[Node], bodies: list[Body], context: Shape) -> list[Body]:
        """Note the tensors that bodies of this class pass through at the whole context and that are worth storing.

        Those that have passed one of them before compute it from itself: they are left out.
        """
        passed = [
            node.args[0]
            for node in nodes
            if node.op == "load"
            and node.args[0] in self._storable
            and self.snapshot.tensor_type(node.args[0]).shape == context
        ]
        if not passed:
            return bodies
        return [
            replace(
                b,
                inlined={**b.inlined, **dict.fromkeys(passed, b.term)},
                passed={**b.passed, **dict.fromkeys(passed, sum(b.reads.values()))},
            )
            for b in bodies
            if b.passed.keys().isdisjoint(passed)
        ]

    def _may_cut(self, tensor: int, inline: list[Node]) -> bool:
        """Whether loading a tensor can be better than inlining it."""
        if any(node.op in ("const", "iota") for node in inline):
            return False
        return not inline or tensor in self.free or tensor in self.cuts.may

    def _tells_places(self, class_: int, steps: int = 4) -> bool:
        """Whether an element is computed from indices in no more than so many steps.

        It is a constant, but kernels can leave out work if they see what it says.
        """
        return any(
            node.op in ("const", "iota")
            or (steps and node.op in _OF_PLACES and all(self._tells_places(arg, steps - 1) for arg in node.args))
            for node in self.snapshot.nodes[class_]
        )

    @cached_property
    def _has_narrow(self) -> bool:
        return any(isinstance(type_, str) and dtypes.is_narrow(type_) for type_ in self.snapshot.types)

    def _load(self, node: Node, context: Shape) -> list[Body]:
        (tensor,) = node.args
        type_ = self.snapshot.tensor_type(tensor)
        if not shapes.fits(type_.shape, context):
            return []
        term = registry.make("load", "element", (leaf_of(self.snapshot, tensor),), ())
        reads = {tensor: self._bytes(tensor)}
        return [Body(term, reads, {}, {}, POINTWISE, None, self._works.of(term), frozenset((node.rule,)))]

    def _apply(self, class_: int, node: Node, context: Shape) -> Search:
        """Combine the bodies of a node's arguments."""
        inners = contexts(node, context)
        if inners is None:
            return [], _FINISHED
        low = _FINISHED
        choices: list[list[Body]] = []
        for position, (arg, inner) in enumerate(zip(node.args, inners, strict=True)):
            bodies, met = yield self._search(arg, inner)
            low = min(low, met)
            use = use_of(node, position)
            choices.append([b for b in bodies if may_stand_under(use, b.kind) and not _is_reshaped_window(use, b)])
        made = (self._combine(class_, node, combination) for combination in combinations(choices, self._is_alone))
        return [body for body in made if body is not None], low

    def _combine(self, class_: int, node: Node, parts: tuple[Body, ...]) -> Body | None:
        kind = max((part.kind for part in parts), default=POINTWISE)
        anchors = {part.anchor for part in parts if part.anchor is not None}
        if kind >= CONTRACTED and (len(anchors) > 1 or any(part.kind == FOLDED for part in parts)):
            return None
        try:
            term = registry.make(node.op, "element", tuple(part.term for part in parts), node.attrs)
        except ModelError:
            return None
        if self._depth(term) > DEEPEST:
            return None
        anchor = next(iter(anchors), None)
        if node.op in CONTRACTIONS:
            kind, anchor = (ATTENDED if node.op == "attend" else CONTRACTED), term
        elif node.op in FOLDS:
            kind = FOLDED
        pointwise = registry.get(node.op, "element").pointwise
        inlined = {c: t for part in parts for c, t in part.inlined.items()} if pointwise else {}
        passed = {c: t for part in parts for c, t in part.passed.items()}
        rules = frozenset((node.rule,)).union(*(part.rules for part in parts))
        binders = frozenset[int]().union(*(part.binders for part in parts))
        if node.op in CONTRACTIONS or node.op in FOLDS:
            binders |= {class_}
        return Body(term, self._reads(term, parts), inlined, passed, kind, anchor, self._works.of(term), rules, binders)

    def _reads(self, term: Term, parts: tuple[Body, ...]) -> dict[int, float]:
        """Return the bytes that a term reads of what its parts load; views and look-ups read what they show.

        What `kernels.traffic` finds in a whole body, from part to part: of most bodies nothing else is looked at.
        """
        reads: dict[int, float] = {}
        for position, part in enumerate(parts):
            most = inf
            if position == 0 and term.op in ("reindex", "at") and part.anchor is None:
                most = float(size_bytes(term))
            for class_, size in part.reads.items():
                reads[class_] = min(reads.get(class_, 0.0) + min(size, most), self._bytes(class_))
        return reads

    def _depth(self, term: Term) -> int:
        """How many operators are computed from each other; those of the arguments are known."""
        if term not in self._depths:
            self._depths[term] = 1 + max((self._depths.get(arg, 0) for arg in term.args), default=0)
        return self._depths[term]

    def pruned(self, found: list[Body], of_kernels: bool = False) -> list[Body]:
        """Keep at most OPTION_LIMIT bodies, none worse than another of its kind in both work and loads.

        Inside of a kernel, a part of a tensor is as good as the tensor; but some kernel has to compute that part.

        The best of each kind is kept in any case, for what may stand over a body depends on its kind; and so is the
        best of those with each contraction, for a sum of two has bodies with one, and with the other; and of those that
        compute it by each algorithm, and of values of each dtype; and of those for which nothing more has to be stored.
        """
        unique = {body.term: body for body in found if not self._repeats(body)}
        ranked = sorted(unique.values(), key=self._rank)
        kept: list[Body] = []
        kinds: set[Any] = set()
        room = _MOST_OPERATORS
        for body in ranked:
            kind = body.kind, self._way(body), self._is_alone(body)
            size = self._works.operators(body.term)
            is_full = len(kept) >= OPTION_LIMIT or (len(kept) >= _FEW and size > room)
            if is_full and kind in kinds:
                continue
            if not any(self._dominates(other, body, of_kernels) for other in kept):
                kept.append(body)
                kinds.add(kind)
                room -= size
        return kept

    def _way(self, body: Body) -> Hashable:
        """Return what is computed by a contraction, and by which instructions; None if a body has none."""
        if body.anchor is None:
            return None
        read = {leaf.dtype for leaf in operands_of(body.anchor)} if self._has_narrow else set[str]()
        return body.binders, body.anchor.op, frozenset(read)

    def _is_alone(self, body: Body) -> bool:
        """Whether a body without a contraction loads only what is stored in any case."""
        return body.anchor is None and body.reads.keys() <= self._at_hand

    def _repeats(self, body: Body) -> bool:
        """Whether a body computes anew what was computed for some of its loads, where that could be stored instead.

        To store and load it would move no more than to compute it again.
        """
        before = 0
        for load in body.reads:
            before |= self.evaluated.below.get(load, 0)
        return any(
            before & self.evaluated.bit.get(element, 0) and 2 * self._bytes(tensor) <= loaded
            for tensor, loaded in body.passed.items()
            for element in self._elements[tensor]
        )

    def _dominates(self, other: Body, body: Body, of_kernels: bool) -> bool:
        """Whether `other`, which ranks no worse, is as good in every way; a constant is as good as one no smaller."""
        if other.kind != body.kind or other.anchor is not body.anchor or other.work > body.work:
            return False
        more = other.reads.keys() - body.reads.keys()
        instead = (body.reads.keys() - other.reads.keys()) & self.constants
        return (
            body.inlined.keys() <= other.inlined.keys()
            and len(more & self.constants) <= len(instead)
            and sum(map(self._bytes, more & self.constants)) <= sum(map(self._bytes, instead))
            and all(c in self.constants or (not of_kernels and self._shows(body, c)) for c in more)
        )

    def _shows(self, body: Body, tensor: int) -> bool:
        """Whether a tensor is a part of one that a body loads."""
        return not body.reads.keys().isdisjoint(self._views.shown(tensor))

    def _rank(self, body: Body) -> tuple[float, int, bool]:
        """Return what orders bodies, the best first; of two that do the same the one view, not the view of a view.

        What is loaded may have to be stored for it: to store what it does not read is a matter of other users.
        """
        moved = sum(size * (1 if c in self.free else 2) for c, size in body.reads.items())
        seconds = body.work / self.machine.scalar_per_s + moved / self.machine.l3_bytes_per_s
        return seconds, len(body.reads), body.term.op == "reindex" and body.term.args[0].op == "reindex"

    def _bytes(self, class_: int) -> float:
        if class_ not in self._bytes_by_class:
            type_ = self.snapshot.tensor_type(class_)
            self._bytes_by_class[class_] = float(size_bytes(type_))
        return self._bytes_by_class[class_]


def _is_reshaped_window(use: str, body: Body) -> bool:
    """Whether a contraction other than a plain product would be stored through a reshape: no template does that."""
    return use == RESHAPED and body.kind == CONTRACTED and body.anchor is not None and body.anchor.op != "dot"


def _call_key(node: Node) -> tuple[Any, ...]:
    """Return what the results of one call share."""
    return node.op, node.args, node.attrs[:1]


def _is_contiguous(join: Term) -> bool:
    """Whether the parts of a join follow each other in memory."""
    return join.op == "concat" and shapes.size(join.shape[: join.attrs[0]]) == 1


def _undominated(found: list[Candidate]) -> list[Candidate]:
    """Drop what another does no worse; a kernel and a call stay beside each other: both have a price to tell."""
    kept: list[Candidate] = []
    for candidate in sorted(found, key=lambda c: (c.cost, len(c.loads), -len(c.bodies), c.estimate.bytes)):
        produces = set(candidate.produces)
        rivals = [k for k in kept if k.template != JOIN and (k.template == HOST) == (candidate.template == HOST)]
        if not any(k.loads <= candidate.loads and produces <= set(k.produces) for k in rivals):
            kept.append(candidate)
    return kept
