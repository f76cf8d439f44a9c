"""What the report, explanations, graphs and pages of one optimization share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from frittata.alternatives import Alternatives
from frittata.chains import Chains
from frittata.egraph.ops import externs, registry
from frittata.egraph.program import HOST, Estimate, Kernel, Program
from frittata.egraph.script import show_attr
from frittata.egraph.snapshot import Snapshot
from frittata.egraph.terms import Term, walk
from frittata.extract import groups
from frittata.kernels import source, targets
from frittata.neighbours import Boundaries
from frittata.pipeline import Compilation
from frittata.placement import Placement
from frittata.rules.matching import match_rule
from frittata.rules.pattern import Rule
from frittata.rules.transform import replacement


@dataclass
class Account:
    """One compilation, with where its program stands in the e-graph, and what was measured: seconds by kernel."""

    compilation: Compilation
    measured: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def program(self) -> Program:
        """The chosen program."""
        return self.compilation.program

    @property
    def snapshot(self) -> Snapshot:
        """The saturated e-graph."""
        return self.compilation.saturation.snapshot

    @cached_property
    def kernels(self) -> tuple[KernelView, ...]:
        """The steps of the driver, in order."""
        return tuple(KernelView(kernel, i, self) for i, kernel in enumerate(self.program.kernels))

    @cached_property
    def placement(self) -> Placement:
        """The program's steps and buffers in the e-graph."""
        return Placement(self.snapshot, self.compilation.extraction)

    @cached_property
    def chains(self) -> Chains:
        """Derivations of nodes."""
        rules = {rule.full_name: rule for family in self.compilation.families for rule in family.rules}
        return Chains(self.snapshot, self.compilation.saturation.rule_names, rules)

    @cached_property
    def groups(self) -> groups.Parts:
        """The fusion groups that rules mark."""
        return groups.parts_of(self.snapshot, frozenset())

    @cached_property
    def boundaries(self) -> Boundaries:
        """Why the program's kernels are apart."""
        return Boundaries(self.placement, self.alternatives, bool(self.fusing_rules))

    @cached_property
    def alternatives(self) -> Alternatives:
        """Prices of what was not chosen."""
        return Alternatives(self.compilation.extraction)

    def kernel(self, name: str) -> KernelView:
        """Return a kernel by its name, or the one that holds an operator.

        Raises: FrittataError that names the nearest.
        """
        found = self.placement.kernel_with(name)
        return next(view for view in self.kernels if view.kernel is found)

    @cached_property
    def own_rules(self) -> tuple[Rule, ...]:
        """The rules of one's own that take part."""
        own = self.compilation.own_families
        return tuple(rule for f in self.compilation.families if f.name in own for rule in f.rules)

    @cached_property
    def fusing_rules(self) -> tuple[str, ...]:
        """The equations that join an element with the load of the tensor built from it."""
        rules = (rule for family in self.compilation.families for rule in family.rules)
        return tuple(r.full_name for r in rules if str(r).replace(" ", "").partition(":")[2].startswith("load(build("))

    def matches(self, rule: Rule) -> int:
        """How often a rule matched: an equation in saturation, a transform the imported model, a group what is left."""
        done = self.compilation
        if rule.kind == "equation":
            return sum(phase.statistics.matches_by_rule.get(rule.full_name, 0) for phase in done.saturation.phases)
        matched = replacement if rule.kind == "transform" else match_rule
        return sum(matched(rule, term) is not None for term in self.terms_of(rule))

    def terms_of(self, rule: Rule) -> list[Term]:
        """Return the terms at which a rule that is no equation is tried."""
        model = self.compilation.model if rule.kind == "group" else self.compilation.imported.model
        return [*walk(*model.main.outputs)]

    def origins(self, class_: int) -> list[str]:
        """Return where in the user's source the imported terms of a class come from."""
        origins = self.compilation.model.origin_by_term
        terms = (term for term, at in self.snapshot.class_by_term.items() if at == class_)
        return [origins[term] for term in terms if term in origins]


@dataclass(frozen=True, eq=False)
class KernelView:
    """One kernel as the user sees it. `measured_s` is None until the program has been measured."""

    kernel: Kernel
    step: int
    _account: Account = field(repr=False)

    def __repr__(self) -> str:
        types = ", ".join(str(output.body.type) for output in self.kernel.outputs)
        return f"KernelView({self.name}: {self.template}, {types}, {self.predicted_s:.3g} s predicted)"

    @property
    def name(self) -> str:
        """Its name in the program, which is that of its first result."""
        return self.kernel.name

    @property
    def template(self) -> str:
        """The template that computes it."""
        return self.kernel.template

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The rules that lead from the model as imported to its nodes, that want a group in it, or that fuse it."""
        part = self._account.placement.part(self.name)
        chains = (self._account.chains.chain(at, node) for at, node in part.nodes.items() if node.op != "load")
        computed = part.holds.union(part.nodes)
        marked = {
            group.rule
            for group, (roots, _) in self._account.groups.items()
            if roots & computed and not roots & part.leaves
        }
        fusing = self._account.fusing_rules if self.is_fused else ()
        return tuple(sorted(marked.union(fusing, (step.rule for chain in chains for step in chain))))

    @property
    def is_fused(self) -> bool:
        """Whether it computes tensors on its way that it does not store."""
        return len(self._account.placement.part(self.name).holds) > len(self.kernel.outputs)

    @property
    def estimate(self) -> Estimate:
        """Predicted seconds, floating-point operations and bytes moved."""
        return self.kernel.estimate

    @property
    def flops(self) -> float:
        """Floating-point operations, as predicted."""
        return self.kernel.estimate.flops

    @property
    def bytes(self) -> float:
        """Bytes moved, as predicted."""
        return self.kernel.estimate.bytes

    @property
    def predicted_s(self) -> float:
        """Seconds, as predicted."""
        return self.kernel.estimate.seconds

    @property
    def measured_s(self) -> float | None:
        """The least time observed, in seconds."""
        return self._account.measured.get(self.name)

    @cached_property
    def op(self) -> str:
        """What it computes: the element term of each result, parts used twice by name; the operator if it is opaque."""
        if self.kernel.is_opaque:
            return "\n".join(f"{o.name}: {o.body.type} = {_call_text(o.body)}" for o in self.kernel.outputs)
        names = tuple(output.name for output in self.kernel.outputs)
        lines: list[str] = []
        for line in source.comment(tuple(output.body for output in self.kernel.outputs), names):
            text = line.removeprefix("# ")
            if text.startswith(" ") and lines:  # broken for the width of a source line
                lines[-1] += f" {text.strip()}"
            else:
                lines.append(text)
        return "\n".join(lines)

    @cached_property
    def source(self) -> str:
        """The kernel as plain numba source that runs as it is, for the target; of a host step, the call."""
        if self.kernel.is_opaque:
            own = f"code of the template {self.template}"
            where = "runs in Python, between kernels" if self.template == HOST else own
            return f"# {where}\n{self.op}\n"
        return targets.by_name(self._account.compilation.options.target).source(self.kernel)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        plain = ("name", "template", "op", "flops", "bytes", "predicted_s", "measured_s", "source")
        return {name: getattr(self, name) for name in plain} | {
            "rules": list(self.rules),
            "operands": list(self.kernel.operands),
            "outputs": {output.name: str(output.body.type) for output in self.kernel.outputs},
        }


def _call_text(body: Term) -> str:
    """Write an opaque operator over buffers: sort(x, axis=-1); of a call into torch, the call and its operands."""
    names = ", ".join(str(leaf.attrs[0]) for leaf in body.args)
    if externs.is_extern(body.op):
        return f"{body.attrs[0]}[{body.attrs[1]}] of {names}"
    attrs = zip(registry.get(body.op).attrs, body.attrs, strict=True)
    return f"{body.op}({', '.join([names, *(f'{label}={show_attr(value)}' for (label, _), value in attrs)])})"
