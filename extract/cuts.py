"""Which tensors are worth storing at all.

Between a tensor and the place where all its uses meet again, its immediate post-dominator, everything can stand in one
kernel unless something blocks: a contraction or a view reads the tensor, windows slide over it, a fold reads a
contraction or what depends on folds along another axis, or one of another extent, two contractions meet, or one and
what is looked up, a broadcast would repeat one, or a fold in an inner loop; many parts of a join stand in between, or
parts along an axis that is folded; or views read more places than there are, or show more than once what is computed of
dear values. A tensor without a block never needs memory: the kernel that computes it can hold
it and go on. All others and the outputs may be cut at. What several kernels can each compute, for only what is stored
lies between, or the uses never meet, may be cut at if it takes much; and in long chains, a tensor now and then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import IndexMap
from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import ElementType
from frittata.extract.formulas import dear_to_share, now_and_then
from frittata.extract.layouts import MOVES, computed, ends, layouts
from frittata.extract.problem import components
from frittata.extract.repeated import (
    arguments,
    computed_again,
    dear_classes,
    is_given,
    joined_under_folds,
    read_again,
    readers,
)

if TYPE_CHECKING:
    import networkx as nx

POINTWISE, FOLDED, CONTRACTED, ATTENDED = range(4)
"""What a body contains: no binder, folds, one contraction, or one attention, whose scores are a contraction."""

SCORES = "scores"
"""What `attend` is to its first operand, which may be a contraction: its only use that may."""
RESHAPED = "reshaped"
"""What a view is to its operand that shows the same rows by other numbers: what is in memory is the same."""
FOLDS = ("fold", "scan")

DEEPEST = 256
"""So many operators may be computed from each other in one kernel: what compiles it recurses."""

_MOST_PARTS = 8
"""What joins more parts is written part by part, or by a kernel of its own."""

_SHIFTS = ("reindex", "add", "sub", "mul")
_MOST_SHIFTS = 4
"""What may stand between a narrow element and what is stored wide of it, and how much of it."""

_SINK = -1

BLOCKED, SHARED = "blocked", "shared"
"""What stands between a tensor and the place where its uses meet: what no kernel may contain, or what is stored."""

_Axis = tuple[int, shapes.Dim]
"""Which axis from the end, and its extent."""


@dataclass(frozen=True)
class Cuts:
    """Tensor classes at which a kernel may end and another begin, and those at which it must.

    A fold or a contraction that some binder or view has to load is stored anyway: no other kernel computes it again. So
    is what a contraction slides over, which would compute it for each place of the window.
    `meeting` has the immediate post-dominators of classes of both sorts, where all of their uses meet again.
    `exchanged` are the element classes that may be had from another layout of theirs, all if it is None: those that are
    stored in some layout. `shown` are the element classes that show narrow values as wide ones. `outputs` are the
    classes that a program gives, or passes to the host.
    """

    may: frozenset[int]
    must: frozenset[int]
    meeting: Mapping[int, int]
    exchanged: frozenset[int] | None = None
    shown: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()

    def leads_to(self, class_: int, other: int) -> bool:
        """Whether all uses of a class are for computing the other."""
        while class_ in self.meeting and class_ != other:
            class_ = self.meeting[class_]
        return class_ == other


def everywhere(snapshot: Snapshot) -> Cuts:
    """Let kernels end at every tensor, and nowhere by force."""
    tensors = frozenset(c for c, sort in enumerate(snapshot.sorts) if sort == "tensor")
    return Cuts(tensors, frozenset(), {}, shown=frozenset(_shown_narrow(snapshot, _extents(snapshot))))


def find_cuts(snapshot: Snapshot, outputs: Iterable[int]) -> Cuts:
    """Look at every tensor's uses."""
    import networkx as nx  # not where a program comes from the cache: it takes as long to load as a kernel to compile

    passed = _passed_to_the_host(snapshot)
    outputs = frozenset(outputs) | passed
    graph = _uses(snapshot, outputs)
    operators_over = _operators_over(snapshot, graph)
    kinds = possible_kinds(snapshot, operators_over)
    meeting: dict[int, int] = nx.immediate_dominators(graph.reverse(copy=False), _SINK)
    looked_up, slid_over = _looked_up(snapshot), _slid_over(snapshot)
    loaded = {c for c in graph if c != _SINK and _must_be_loaded(snapshot, c, kinds[c], operators_over)}
    joined = _joined_of_many(snapshot) & graph.nodes
    apart = loaded | {c for c in graph if c != _SINK and any(_loads(node, joined) for node in snapshot.nodes[c])}
    dear = {class_ for class_ in dear_classes(snapshot, loaded) if kinds[class_] == {POINTWISE}}
    axes, looking_up = _folded_axes(snapshot), _looking_up(snapshot)
    known = _Known(kinds, _extents(snapshot), axes, apart, looking_up, dear, readers(snapshot))
    again = read_again(snapshot, graph, known.extents)
    may, must = joined | set(outputs) | _computed_by_the_host(snapshot), set(passed)
    shared = set[int]()
    for class_ in range(len(snapshot.nodes)):
        if snapshot.sorts[class_] == "element" and class_ in graph:
            tensors = [node.args[0] for node in snapshot.nodes[class_] if node.op == "load"]
            if class_ in looked_up or class_ in again or any(node.op == "scan" for node in snapshot.nodes[class_]):
                may.update(tensors)  # places may be read more than once; scans of one kernel run along one axis
            block = _block(snapshot, graph, class_, meeting.get(class_, _SINK), known) if tensors else None
            if block == BLOCKED or class_ in loaded:
                may.update(tensors)
                if class_ in slid_over or class_ in loaded:
                    must.update(tensors)
            elif block == SHARED:
                shared.add(class_)
    may |= dear_to_share(snapshot, shared, may)
    may |= joined_under_folds(snapshot) & graph.nodes
    may |= computed_again(snapshot, graph, may, dear)
    may |= now_and_then(snapshot, may)
    shown = _shown_narrow(snapshot, known.extents)
    narrow, wide = _stored_narrow(snapshot, graph, may, shown)
    may = may - (wide - outputs) | (narrow & graph.nodes)
    must -= wide - outputs
    exchanged = _exchanged(snapshot, must | outputs)
    may.update(node.args[0] for class_ in exchanged for node in snapshot.nodes[class_] if node.op == "load")
    meeting = {c: other for c, other in meeting.items() if c != _SINK}
    return Cuts(frozenset(may), frozenset(must), meeting, exchanged, frozenset(shown), outputs)


def _shown_narrow(snapshot: Snapshot, extents: Mapping[int, shapes.Shape]) -> dict[int, set[int]]:
    """Return the element classes that show narrow values as wide ones, each with the classes of those values.

    They may be shifted and scaled by single numbers.
    """
    if not any(isinstance(type_, str) and dtypes.is_narrow(type_) for type_ in snapshot.types):
        return {}

    def shown(class_: int, steps: int) -> set[int]:
        found: set[int] = set()
        for node in snapshot.nodes[class_]:
            if node.op == "cast" and dtypes.is_narrow(str(snapshot.types[node.args[0]])):
                found.add(node.args[0])
            elif steps and node.op in _SHIFTS:
                many = [arg for arg in node.args if shapes.strip(extents.get(arg, ()))]
                if len(many) == 1:
                    found |= shown(many[0], steps - 1)
        return found

    elements = (class_ for class_, sort in enumerate(snapshot.sorts) if sort == "element")
    every = ((class_, shown(class_, _MOST_SHIFTS)) for class_ in elements)
    return {class_: found for class_, found in every if found}


def _stored_narrow(
    snapshot: Snapshot, graph: nx.DiGraph[int], cut: Collection[int], shown: Mapping[int, set[int]]
) -> tuple[set[int], set[int]]:
    """Return the narrow tensors that may be stored in place of wide ones, and the wide ones that need not be.

    The latter are shown of integers, and are integers themselves, or no product reads them that is none of integers as
    well: those read the narrow ones.
    """
    counted = _counted(snapshot) if shown else set[int]()
    narrow: set[int] = set()
    wide: set[int] = set()
    for class_, found in shown.items():
        tensors = {node.args[0] for node in snapshot.nodes[class_] if _loads(node, cut)}
        loaded = {node.args[0] for c in found for node in snapshot.nodes[c] if node.op == "load"}
        if not tensors or not loaded:
            continue
        narrow |= loaded
        if all(dtypes.is_integer(str(snapshot.types[c])) for c in found):
            is_integer = dtypes.is_integer(str(snapshot.types[class_]))
            if is_integer or _products_of(snapshot, graph, class_) <= counted:
                wide |= tensors
    return narrow, wide


def _products_of(snapshot: Snapshot, graph: nx.DiGraph[int], class_: int) -> set[int]:
    """Return the contractions that read an element, through views and margins too."""
    found: set[int] = set()
    seen, stack = {class_}, [class_]
    while stack:
        current = stack.pop()
        for user in graph.successors(current) if current in graph else ():
            nodes = [node for node in snapshot.nodes[user] if current in node.args] if user != _SINK else []
            if any(node.op in CONTRACTIONS for node in nodes):
                found.add(user)
            if user not in seen and any(node.op in ("reindex", "where", "build", "load") for node in nodes):
                seen.add(user)
                stack.append(user)
    return found


def _counted(snapshot: Snapshot) -> set[int]:
    """Return the element classes that are sums of products of integers, shifted and scaled."""
    users: dict[int, set[int]] = {}
    found: set[int] = set()
    for class_, nodes in enumerate(snapshot.nodes):
        for node in nodes:
            if node.op in CONTRACTIONS and snapshot.types[class_] == "i32":
                found.add(class_)
            if node.op in (*_SHIFTS, "cast", "fma"):
                for arg in node.args:
                    users.setdefault(arg, set()).add(class_)
    new = set(found)
    for _ in range(_MOST_SHIFTS):
        new = {user for class_ in new for user in users.get(class_, ())} - found
        found |= new
    return found


def _loads(node: Node, tensors: Collection[int]) -> bool:
    return node.op == "load" and node.args[0] in tensors


def _joined_of_many(snapshot: Snapshot) -> set[int]:
    """Return the concatenations within such of more parts than a kernel tells apart by ranges of an axis."""
    parts = {
        class_: next((node.args for node in nodes if node.op == "concat"), ())
        for class_, nodes in enumerate(snapshot.nodes)
        if snapshot.sorts[class_] == "tensor"
    }
    found: set[int] = set()
    for class_ in parts:
        inside, leaves, stack = {class_}, 0, [class_]
        while stack:
            for arg in parts[stack.pop()]:
                if not parts[arg]:
                    leaves += 1
                elif arg not in inside:
                    inside.add(arg)
                    stack.append(arg)
        if leaves > _MOST_PARTS:
            found |= inside
    return found


def _exchanged(snapshot: Snapshot, stored: Iterable[int]) -> frozenset[int]:
    """Return the element classes of which some layout is that of a stored tensor."""
    stored, layout_of = frozenset(stored), layouts(snapshot)
    found = {
        layout_of(class_)
        for class_, nodes in enumerate(snapshot.nodes)
        if any(node.op == "load" and node.args[0] in stored for node in nodes)
    }
    return frozenset(c for c, sort in enumerate(snapshot.sorts) if sort == "element" and layout_of(c) in found)


def _computed_by_the_host(snapshot: Snapshot) -> set[int]:
    """The results of opaque operators, which no kernel computes on its way."""
    return {
        class_
        for class_, nodes in enumerate(snapshot.nodes)
        if snapshot.sorts[class_] == "tensor" and any(registry.get(node.op).opaque for node in nodes)
    }


def _passed_to_the_host(snapshot: Snapshot) -> frozenset[int]:
    """The operands of opaque operators that nothing else computes: they are stored."""
    found: set[int] = set()
    for class_, nodes in enumerate(snapshot.nodes):
        if snapshot.sorts[class_] == "tensor" and all(node.op != "build" for node in nodes):
            found.update(arg for node in nodes if registry.get(node.op).opaque for arg in node.args)
    return frozenset(found)


def _looked_up(snapshot: Snapshot) -> set[int]:
    """The element classes that are looked up at computed indices, through views too."""
    found: set[int] = set()
    new = {node.args[0] for nodes in snapshot.nodes for node in nodes if node.op == "at"}
    while new:
        found |= new
        new = {node.args[0] for c in new for node in snapshot.nodes[c] if node.op in MOVES} - found
    return found


def _looking_up(snapshot: Snapshot) -> set[int]:
    """The element classes that are computed, point-wise or through views, from what is looked up."""
    found: set[int] = set()
    changed = True
    while changed:
        before = len(found)
        found.update(
            class_
            for class_, nodes in enumerate(snapshot.nodes)
            if snapshot.sorts[class_] == "element"
            for node in nodes
            if node.op == "at" or (node.op not in (*FOLDS, *CONTRACTIONS) and not found.isdisjoint(node.args))
        )
        changed = len(found) != before
    return found


def _slid_over(snapshot: Snapshot) -> set[int]:
    """The element classes whose windows are rows or columns of contractions."""
    sides = {arg for nodes in snapshot.nodes for node in nodes if node.op in CONTRACTIONS for arg in node.args}
    views = (node for side in sides for node in snapshot.nodes[side] if node.op == "reindex")
    return {view.args[0] for view in views if _slides(view.attrs[0])}


def possible_kinds(snapshot: Snapshot, operators_over: Mapping[int, set[str]]) -> list[set[int]]:
    """Return, for each element class, what its bodies contain when all is inlined that may be.

    What some of `operators_over` a class must load is stored, and its users find a buffer. Where a fold meets a
    contraction, the contraction is stored and loaded; one that is seen reshaped counts as stored, though it may go on
    in its kernel, for other views could not read it there. Classes are settled after those that they are computed from.
    """
    kinds: list[set[int]] = [set() for _ in snapshot.nodes]
    for class_, nodes in enumerate(snapshot.nodes):
        if any(node.op == "load" and is_given(snapshot, node.args[0]) for node in nodes):
            kinds[class_].add(POINTWISE)
    found_by_users = list(kinds)
    for members in components(arguments(snapshot)):
        changed = True
        while changed:
            changed = False
            for class_ in members:
                before = len(kinds[class_])
                inline = [node for node in snapshot.nodes[class_] if node.op != "load"]
                for node in inline:
                    kinds[class_] |= _kinds_of(node, found_by_users)
                if not inline:
                    kinds[class_].add(POINTWISE)
                changed |= len(kinds[class_]) != before
        for class_ in members:
            if _must_be_loaded(snapshot, class_, kinds[class_], operators_over):
                found_by_users[class_] = {POINTWISE}
            elif _may_be_attended(kinds[class_], operators_over.get(class_, ())):
                found_by_users[class_] = kinds[class_] | {POINTWISE}
    return kinds


def _must_be_loaded(snapshot: Snapshot, class_: int, kinds: set[int], operators_over: Mapping[int, set[str]]) -> bool:
    """Whether a tensor has this element, and some operator over it may not stand over what it may contain.

    Scores and results of attentions are spared: whoever stores them does so by another way than one kernel.
    """
    uses = operators_over.get(class_, ())
    if _may_be_attended(kinds, uses) or all(node.op != "load" for node in snapshot.nodes[class_]):
        return False
    return any(not may_stand_under(use, kind) for use in uses for kind in kinds)


def _may_be_attended(kinds: Collection[int], uses: Collection[str]) -> bool:
    return SCORES in uses or ATTENDED in kinds


def _operators_over(snapshot: Snapshot, graph: nx.DiGraph[int]) -> dict[int, set[str]]:
    """The element operators that are applied to each element class on the way to an output.

    A view of what something else computes as well, a convolution that leaves its results in another order, is none of
    them, unless only views read that: whether it is used is open. Nor is a view of what may be had reshaped, if it may
    be had from that, too.
    """
    found: dict[int, set[str]] = {}
    last = ends(snapshot)
    reshaped: dict[int, set[int]] = {}
    for class_, nodes in enumerate(snapshot.nodes):
        for node in nodes:
            if node.op == "reindex" and use_of(node, 0) == RESHAPED:
                reshaped.setdefault(node.args[0], set()).add(class_)
    for class_, nodes in enumerate(snapshot.nodes):
        if snapshot.sorts[class_] == "element" and class_ in graph:
            read = {node.args[0] for node in nodes if node.op == "reindex"}
            for node in computed(nodes, last):
                for position, arg in enumerate(node.args):
                    if node.op != "reindex" or read.isdisjoint(reshaped.get(arg, ())):
                        found.setdefault(arg, set()).add(use_of(node, position))
    return found


def _kinds_of(node: Node, kinds: Sequence[set[int]]) -> set[int]:
    if node.op in CONTRACTIONS:
        return {ATTENDED if node.op == "attend" else CONTRACTED}
    if node.op in FOLDS:
        return {FOLDED}
    combinations = product(*(kinds[arg] for arg in node.args))
    if node.op in MOVES:
        return {ATTENDED if ATTENDED in given else POINTWISE for given in combinations}
    return {FOLDED if FOLDED in given else max(given, default=POINTWISE) for given in combinations}


def use_of(node: Node, position: int) -> str:
    """Return what an operator is to one of its operands."""
    if node.op == "reindex" and node.attrs[0].reshapes_rows():
        return RESHAPED
    return SCORES if node.op == "attend" and position == 0 else node.op


def may_stand_under(op: str, kind: int) -> bool:
    """No contraction under a binder, no fold under a contraction or a view: no template claims such a pair.

    Scores are a contraction, and what is attended may be stored through a view, what is contracted through a reshape.
    """
    if op == SCORES:
        return kind == CONTRACTED
    if op == RESHAPED:
        return kind != FOLDED
    if op == "reindex" and kind == ATTENDED:
        return True
    if op == "fold":
        return kind < CONTRACTED
    if op in CONTRACTIONS or op in MOVES or op == "scan":
        return kind == POINTWISE
    return True


def _uses(snapshot: Snapshot, outputs: Iterable[int]) -> nx.DiGraph[int]:
    """The graph from each class to those computed from it, as far as it leads to an output."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    last = ends(snapshot)
    for class_, nodes in enumerate(snapshot.nodes):
        elements = computed(nodes, last) if snapshot.sorts[class_] == "element" else []
        for node in [*elements, *(node for node in nodes if node.op in ("build", "load"))]:
            graph.add_edges_from((arg, class_) for arg in node.args)
    graph.add_edges_from((class_, _SINK) for class_ in outputs)
    graph.add_node(_SINK)  # which nothing leads to where there are no outputs
    return graph.subgraph(nx.ancestors(graph, _SINK) | {_SINK}).copy()


@dataclass(frozen=True)
class _Known:
    """What is known of element classes: what their bodies contain, their extents, the axes along which what they depend
    on is folded; those that kernels load, or may load; those that are computed from what is looked up; those whose
    values take much; and of a class and an element class the nodes of the second that read the first.
    """

    kinds: list[set[int]]
    extents: dict[int, shapes.Shape]
    axes: dict[int, set[_Axis]]
    loaded: set[int]
    looking_up: set[int]
    dear: set[int]
    reads: dict[tuple[int, int], list[Node]]


def _block(snapshot: Snapshot, graph: nx.DiGraph[int], class_: int, meeting: int, known: _Known) -> str | None:
    """Walk from a class to where its uses meet and look for what no kernel may contain.

    It is `SHARED` if only what is stored lies between, or its uses never meet: each of several kernels can compute it.
    """
    if all(node.op == "load" for node in snapshot.nodes[class_]):
        return BLOCKED
    folded = known.axes[class_] | _bound(snapshot, class_)
    found = SHARED if meeting == _SINK else None
    seen = {class_, _SINK}
    stack = [class_]
    while stack:
        current = stack.pop()
        for user in graph.successors(current):
            for node in known.reads.get((current, user), ()):
                if (
                    _blocks(node, current, user, class_, known)
                    or _is_across(node, known.axes[class_])
                    or _is_beside(known.extents.get(user, ()), folded)
                    or (current == class_ and _is_repeated(node, class_, user, known))
                ):
                    return BLOCKED
            if user in known.loaded and user != meeting:
                found = SHARED
            elif user != meeting and user not in seen:
                seen.add(user)
                stack.append(user)
    return found


def _blocks(node: Node, current: int, user: int, class_: int, known: _Known) -> bool:
    """Whether an operator on the way from a class, of which one operand is `current`, may not stand in its kernel."""
    here, one, many = known.kinds[class_], known.extents.get(current, ()), known.extents.get(user, ())
    if node.op in CONTRACTIONS:
        return True
    if node.op == "scan":
        return bool(here & {FOLDED, CONTRACTED})
    if node.op in MOVES:
        return bool(here & {FOLDED, CONTRACTED}) or (node.op == "reindex" and _slides(node.attrs[0]))
    if FOLDED in here and shapes.is_repeated(one, many):
        return True
    if node.op == "load":
        return False
    beside = [arg for arg in node.args if arg != current]
    others = set[int]().union(*(known.kinds[arg] for arg in beside))
    if not here & {CONTRACTED, ATTENDED}:
        return class_ in known.looking_up and bool(others & {CONTRACTED, ATTENDED})
    is_met = bool(others - {POINTWISE}) or not known.looking_up.isdisjoint(beside)
    return node.op == "fold" or is_met or one != many


def _is_repeated(node: Node, class_: int, user: int, known: _Known) -> bool:
    """Whether an operator repeats values that take much along an axis that they do not have."""
    one, many = (known.extents.get(c, ()) for c in (class_, user))
    return class_ in known.dear and node.op != "reindex" and shapes.is_repeated(one, many)


def _is_across(node: Node, axes: set[_Axis]) -> bool:
    """Whether an operator folds along another axis what depends on folds along these."""
    return node.op == "fold" and bool(axes - {(node.attrs[1], node.attrs[2])})


def _is_beside(extents: shapes.Shape, axes: set[_Axis]) -> bool:
    """Whether a loop runs where one of another extent has been folded."""
    return any(shapes.dim_at(extents, axis) not in (1, extent) for axis, extent in axes)


def _folded_axes(snapshot: Snapshot) -> dict[int, set[_Axis]]:
    """The axes along which something is folded that each element class depends on, unless it is itself a fold."""
    found: dict[int, set[_Axis]] = {c: set() for c, sort in enumerate(snapshot.sorts) if sort == "element"}
    changed = True
    while changed:
        changed = False
        for class_, axes in found.items():
            before = len(axes)
            for node in snapshot.nodes[class_]:
                if node.op not in ("load", *FOLDS, *MOVES, *CONTRACTIONS):
                    for arg in node.args:
                        axes |= _bound(snapshot, arg) or found[arg]
            changed |= len(axes) != before
    return found


def _bound(snapshot: Snapshot, class_: int) -> set[_Axis]:
    """The axes that the folds of an element class bind: no loop runs along two of different extents."""
    return {(axis, extent) for node in snapshot.nodes[class_] if node.op == "fold" for _, axis, extent in [node.attrs]}


def _slides(mapping: IndexMap) -> bool:
    """Whether a view reads windows that overlap: values at sums of indices, some of them again and again."""
    is_larger = shapes.size(mapping.result) > shapes.size(mapping.source)
    return is_larger and any(len(source.terms) > 1 for source in mapping.sources)


def _extents(snapshot: Snapshot) -> dict[int, shapes.Shape]:
    """The extents of one member of each element class."""
    found: dict[int, ElementType] = {}
    changed = True
    while changed:
        changed = False
        for class_, nodes in enumerate(snapshot.nodes):
            if class_ in found or snapshot.sorts[class_] == "tensor":
                continue
            for node in nodes:
                type_ = _type_of(snapshot, node, found)
                if type_ is not None:
                    found[class_] = type_
                    changed = True
                    break
    return {class_: type_.extents for class_, type_ in found.items()}


def _type_of(snapshot: Snapshot, node: Node, found: dict[int, ElementType]) -> ElementType | None:
    if node.op == "load":
        type_ = snapshot.tensor_type(node.args[0])
        return ElementType(shapes.strip(type_.shape), type_.dtype)
    if any(arg not in found for arg in node.args):
        return None
    try:
        inferred = registry.get(node.op, "element").infer(tuple(found[arg] for arg in node.args), node.attrs)
    except ModelError:
        return None
    return inferred if isinstance(inferred, ElementType) else None
