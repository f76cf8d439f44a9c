"""The stages from a model to a compiled program, as one readable list.

import_model -> transform -> choose_rules -> saturate -> extract (-> tune) -> compile

A program that was chosen before for the same question is taken from the cache instead of `choose_rules -> saturate ->
extract`. Rules are chosen first where the options name any: they may be wrong, and among them may be transforms.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from frittata import arguments, cache, collector, remembered, sources, tuning
from frittata.egraph.balance import balanced
from frittata.egraph.demand import narrowed
from frittata.egraph.errors import ExtractionError, FrittataError, ModelError, RuleError
from frittata.egraph.exporting import MODULES
from frittata.egraph.machine import Machine
from frittata.egraph.model import Model
from frittata.egraph.numbers import settled
from frittata.egraph.program import Program, Template, level_of
from frittata.egraph.saturate import Saturation, StopReason, saturate
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.extract.choose import Extraction, extract
from frittata.extract.prices import Prices
from frittata.extract.recall import Choice, choice_of, recall
from frittata.frontends.calls import Call
from frittata.instruments import ChosenProgram, Watch
from frittata.kernels import limits, targets
from frittata.kernels.cache import KernelCache
from frittata.kernels.children import spread
from frittata.kernels.targets import Runnable, Target
from frittata.options import Numerics, Options
from frittata.parameters import detached, readers
from frittata.passes import get_pipeline
from frittata.rules import library
from frittata.rules.compile import compile_families
from frittata.rules.groups import find_groups
from frittata.rules.parse import family_name
from frittata.rules.pattern import Family, Rule
from frittata.rules.transform import apply_transforms

if TYPE_CHECKING:
    from frittata.frontends.imported import Imported

log = logging.getLogger("frittata")
log.addHandler(logging.NullHandler())

_TUNING_REPEATS = 20
"""A kernel is timed so often in its program; the least counts."""

_LEVELS = get_args(Numerics)


@dataclass
class Compilation:
    """All that the stages produced, in order, with the seconds that each took.

    Where the program came from the cache, `is_remembered`, the rules, the e-graph and the candidates that it was chosen
    from are made when something asks for them: a report or an explanation.
    """

    options: Options
    imported: Imported
    model: Model
    read_rules: Callable[[], tuple[Family, ...]]
    machine: Machine
    choice: Choice
    executable: Runnable
    is_remembered: bool
    prices: Prices
    own_rules: tuple[tuple[str, str], ...] = ()
    """The caller's rule files: names and texts."""
    phase_seconds: dict[str, float] = field(default_factory=dict[str, float])
    lost: Term | None = None
    """What no dtype holds of constants that rules over the reals made; a program without these was looked for."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise FrittataError(
            "a compiled model cannot be pickled or copied deeply: its kernels are machine code in this process",
            do="write it with fast.save(path), and read it with frittata.load(path)",
        )

    @property
    def own_families(self) -> set[str]:
        """The names of the caller's families."""
        return {family_name(name) for name, _ in self.own_rules}

    @property
    def program(self) -> Program:
        """The chosen program."""
        return self.choice.program

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The rules that take part."""
        return self.read_rules()

    @cached_property
    def saturation(self) -> Saturation:
        """The saturated e-graph."""
        return saturate_model(self.model, self.families, self.options)

    @cached_property
    def extraction(self) -> Extraction:
        """The candidates, and those of them that were chosen."""
        main = self.model.main
        templates = templates_for(self.options)
        snapshot = self.saturation.snapshot
        return recall(self.choice, snapshot, main.inputs, main.outputs, templates, self.machine, self.prices)


@collector.resting()
def compile_model(
    source: Any, args: Sequence[Any], options: Options, kwargs: Mapping[str, Any] | None = None
) -> Compilation:
    """Run all stages; without rules that hold over the reals where these make constants that no dtype holds."""
    watch = Watch(options.instruments)
    with watch.phase("import") as stage:
        imported, model = import_model(source, args, options.fallback, kwargs)
        model = model.detach()[0] if options.freeze is False else model
        stage.ended(model, _size(model))
    done = _compiled(source, args, options, kwargs, imported, model, watch)
    lost = done.lost
    if lost is None:
        return done
    log.info("a constant leaves the range of %s at %s: compiling with numerics='exact'", lost.dtype, lost.op)
    with contextlib.suppress(ExtractionError):  # where a rule of the caller's over the reals defines an operator
        done = _compiled(source, args, replace(options, numerics="exact"), kwargs, imported, model, watch)
    done.lost = lost
    return done


def _compiled(
    source: Any,
    args: Sequence[Any],
    options: Options,
    kwargs: Mapping[str, Any] | None,
    imported: Imported,
    model: Model,
    watch: Watch,
) -> Compilation:
    read_rules = functools.cache(partial(choose_rules, options))
    families = _read(read_rules, watch) if _names_rules(options) else ()
    with watch.phase("transform") as stage:
        before, model = model, transformed(model, families, options, watch)
        imported = _called_anew(imported, before, model)
        if not model.main.outputs and not imported.empties:
            do = "return a tensor; a function that takes none of torch, and returns one, has to be an nn.Module"
            raise ModelError("the model returns nothing that is computed", do=do)
        stage.ended(model, _size(model))
    folder = cache.folder_of(options.cache)
    with watch.phase("machine"):
        target = targets.by_name(options.target)
        machine = options.machine or target.machine or _this_machine(folder)
        machine = machine.running(sum(value.nbytes for value in model.params.values()))
    with watch.phase("recall"):
        key = remembered.key_of(model, families, templates_for(options), machine, options)
        choice = remembered.load(cache.programs_in(folder), key)
        prices_key = remembered.prices_key(machine, options)
        prices = tuning.load(cache.prices_in(folder), prices_key) if options.tune else Prices()
    found = None
    if choice is None:
        families = families or _read(read_rules, watch)
        with watch.phase("saturate") as stage:
            saturation = saturate_model(model, families, options, watch)
            stage.ended(None, saturation.phases[-1].nodes, _matches(saturation))
        choose = partial(extract_model, model, saturation, machine, options)
        with watch.phase("extract") as stage:
            extraction = choose(prices)
            stage.ended(ChosenProgram(model, extraction.program), len(extraction.program.kernels))
        if options.tune:
            with watch.phase("tune") as stage:
                arrays = partial(_example_arrays, source, args, kwargs, imported, options)
                times_of = partial(_times_of, target, model, arrays, cache.kernels_in(folder))
                extraction = tuning.tune(extraction, choose, times_of, prices)
                tuning.store(cache.prices_in(folder), prices_key, prices)
                stage.ended(ChosenProgram(model, extraction.program), len(extraction.program.kernels))
        found, choice = (saturation, extraction), choice_of(extraction)
        remembered.store(cache.programs_in(folder), key, choice, saturation)
    with watch.phase("compile") as stage, limits.noting() as noted:
        if options.freeze or (options.freeze is None and isinstance(source, Model)):
            model = detached(model, choice.program, options.form)
        executable = target.built(choice.program, model.params, cache.kernels_in(folder))
        stage.ended(ChosenProgram(model, choice.program), len(choice.program.kernels))
    own = tuple((path.name, path.read_text(encoding="utf-8-sig")) for path in options.rules)
    done = Compilation(
        options, imported, model, read_rules, machine, choice, executable, found is None, prices, own, watch.seconds
    )
    if options.numerics != "exact":
        of_the_model = set(model.main.walk())
        done.lost = next((term for term in noted if term not in of_the_model), None)
    if found is not None:
        done.saturation, done.extraction = found
    return done


def _names_rules(options: Options) -> bool:
    return bool(options.rules or options.disable or options.required) or options.pipeline.families() is not None


def _read(read_rules: Callable[[], tuple[Family, ...]], watch: Watch) -> tuple[Family, ...]:
    with watch.phase("rules") as stage:
        families = read_rules()
        stage.ended(None, sum(len(family.rules) for family in families))
    return families


def _size(model: Model) -> int:
    return sum(1 for _ in model.main.walk())


def _matches(saturation: Saturation) -> int:
    return sum(sum(phase.statistics.matches_by_rule.values()) for phase in saturation.phases)


def transformed(model: Model, families: Sequence[Family], options: Options, watch: Watch) -> Model:
    """Run the transforms of the pipeline, in order, then those of rule files.

    Raises: ModelError if one requires another that has not run before it; what a transform raises.
    """
    done: set[str] = set()
    for step in options.pipeline.transforms():
        info = step.info
        if info.name in options.disable or (info.opt_level > options.opt_level and info.name not in options.required):
            continue
        missing = [name for name in info.requires if name not in done]
        if missing:
            raise ModelError(
                f"transform {info.name} requires {', '.join(missing)}, which did not run before it",
                do="put it before in the pipeline, and let it run: opt_level=, required=, disable=",
            )
        with watch.stage(info.name, info.opt_level) as stage:
            model = step(model)
            stage.ended(model, _size(model))
        done.add(info.name)
    rules = [rule for family in families for rule in family.rules]
    model = narrowed(apply_transforms(_concrete(model), rules))
    return balanced(model if options.numerics == "exact" else settled(model))


def unfused(done: Compilation) -> Extraction:
    """Extract the model as it was imported, every operator a kernel of its own: what the report compares with."""
    families = tuple(family for family in done.families if family.name == "legalize")
    plain = replace(done.options, pipeline=get_pipeline("default"))
    return extract_model(done.model, saturate_model(done.model, families, plain), done.machine, done.options)


def _called_anew(imported: Imported, before: Model, after: Model) -> Imported:
    """Return how a transformed model is called: a model alone by what it takes and returns now, all else as its source.

    Raises: ModelError if what the source takes or returns is not there any more.
    """
    if isinstance(imported, Call):
        read = len(before.main.inputs) - len(imported.model.main.inputs)
        return replace(Call.of(after, read), model=imported.model)
    for what in ("inputs", "outputs"):
        had, has = len(getattr(before.main, what)), len(getattr(after.main, what))
        if had != has:
            raise ModelError(
                f"a transform left {has} {what} of {had}, and the model is called as its source is",
                do="keep them all, or optimize a frittata.Model",
            )
    return imported


def import_model(
    source: Any, args: Sequence[Any], fallback: str, kwargs: Mapping[str, Any] | None = None
) -> tuple[Imported, Model]:
    """Turn whatever the caller has into terms.

    Raises: ModelError, UnsupportedOpError.
    """
    imported = sources.imported(source, args, fallback, kwargs)
    return imported, _concrete(imported.model)


def _concrete(model: Model) -> Model:
    """Refuse what kernels cannot be written for yet, and empty tensors, for which all terms are equal.

    Raises: ModelError that says which it is.
    """
    for term in model.main.inputs:
        if any(isinstance(dim, Sym) for dim in term.shape):
            raise ModelError(
                f"input {term.attrs[0]!r} has symbolic dims: {term.type}",
                do="optimize with dynamic_shapes=True, for all sizes, or give numbers: Model.bind_dims, --dim NAME=N",
            )
    for term in model.main.walk():
        if term.sort == "tensor" and 0 in term.shape:
            raise ModelError(f"{term.op} gives an empty tensor: {term.type}", do="handle empty batches before the call")
    return model


def choose_rules(options: Options) -> tuple[Family, ...]:
    """Return the families that the options admit: built-in ones, and the caller's files once they are audited.

    Raises: RuleError if a file cannot be read or a rule is unsound; if `disable` names nothing.
    """
    own = [library.load_file(path) for path in options.rules]
    builtin = {family.name for family in library.builtin_families()}
    for number, (family, path) in enumerate(zip(own, options.rules, strict=True)):
        if family.name in builtin | {other.name for other in own[:number]}:
            raise RuleError(f"a family named {family.name!r} exists already", str(path), "give the file another name")
        remembered.check_rules(cache.audits_in(cache.folder_of(options.cache)), family)
    return admitted(options, own)


def admitted(options: Options, own: Sequence[Family]) -> tuple[Family, ...]:
    """Return the built-in families of the pipeline and one's own, with the rules that the options admit.

    Raises: RuleError if `disable` or `required` name nothing, or a rule is no equation.
    """
    families = (*library.builtin_families(), *own)
    names = {family.name for family in families} | {rule.full_name for family in families for rule in family.rules}
    _check_names(options, names)
    wanted = options.pipeline.families()
    if wanted is not None:
        known = {family.name for family in families}
        if wanted - known:
            what = f"pipeline {options.pipeline.name!r} names no family: {', '.join(sorted(wanted - known))}"
            raise RuleError(what, do=f"families are {', '.join(sorted(known))}")
        families = tuple(family for family in families if family.name in wanted or family in own)
    levels = _levels(options)
    kept = [
        replace(f, rules=tuple(r for r in f.rules if _is_admitted(r, options, levels)))
        for f in families
        if f.name not in options.disable and (f.opt_level <= options.opt_level or f.name in options.required)
    ]
    loose = [rule for family in kept for rule in family.rules if rule.level.kind == "approx"]
    if loose:
        raise RuleError(
            f"{loose[0].full_name} is approximate: as an equation it would make unequal terms equal everywhere",
            str(loose[0].location),
            "alternatives beside a class are not there yet; write a transform (~>), or disable the rule",
        )
    return tuple(map(_without_replaced, kept))


def _check_names(options: Options, rules: set[str]) -> None:
    known = rules | {step.info.name for step in options.pipeline.transforms()}
    for what, names in (("disable", options.disable), ("require", options.required)):
        for name in names:
            if name == "cse":
                do = "equal terms are one term in an e-graph; what is cheap to recompute is recomputed by price"
                raise RuleError(f"nothing to {what} is called 'cse'", do=do)
            if name not in known:
                near = sorted(one for one in known if one.endswith(f"/{name}"))
                near = near or difflib.get_close_matches(name, sorted(known), 3)
                do = f"did you mean {' or '.join(near)}?" if near else "`frittata rules list` shows all names"
                raise RuleError(f"nothing to {what} is called {name!r}", do=do)


def _without_replaced(family: Family) -> Family:
    """Leave out rules in whose place a looser one takes part: two forms of one constant multiply at every sum."""
    names = {rule.name for rule in family.rules}
    return replace(family, rules=tuple(rule for rule in family.rules if rule.level.unless not in names))


def _is_admitted(rule: Rule, options: Options, levels: tuple[str, ...]) -> bool:
    return rule.level.kind in levels and rule.full_name not in options.disable


def saturate_model(
    model: Model, families: tuple[Family, ...], options: Options | None = None, watch: Watch | None = None
) -> Saturation:
    """Saturate the outputs of `main` in the phases of the pipeline; params are known before run time."""
    chosen, watching = options or Options(), watch or Watch()
    phases = chosen.pipeline.phases((f.name for f in families), map(family_name, chosen.rules))
    outputs = model.main.outputs
    programs, over_reals = compile_families(families), chosen.numerics != "exact"
    done = saturate(outputs, programs, phases, lambda term: term.op == "param", watching.stage, over_reals)
    done.snapshot.groups = find_groups(done.snapshot, outputs, [rule for f in families for rule in f.rules])
    return done


def extract_model(
    model: Model, saturation: Saturation, machine: Machine, options: Options, prices: Prices | None = None
) -> Extraction:
    """Choose the program for a saturated model.

    Raises: ExtractionError if there is none; if saturation reached a limit before it had one, it says so.
    """
    try:
        return extract(
            saturation.snapshot,
            model.main.inputs,
            model.main.outputs,
            templates_for(options),
            machine,
            saturation.rule_names,
            options.time_limit_s,
            prices,
            spread,
        )
    except ExtractionError as error:
        limits = dict.fromkeys(p.stop.value for p in saturation.phases if p.stop is not StopReason.SATURATED)
        if limits:
            ended = f"saturation ended at the {' and the '.join(limits)} before all rules had been tried"
            error.do = f"{ended}: give the pipeline longer limits, or leave out rules that grow without end"
        raise


def _times_of(
    target: Target,
    model: Model,
    arrays: Callable[[Program, Runnable], list[Any]],
    kernels: KernelCache,
    program: Program,
) -> dict[str, float]:
    """Compile and run a program, one kernel after the other; return the least seconds of each by name."""
    executable = target.built(replace(program, bands=()), model.params, kernels)
    return targets.seconds_by_kernel(executable, program, arrays(program, executable), _TUNING_REPEATS)


def _example_arrays(
    source: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    imported: Imported,
    options: Options,
    program: Program,
    executable: Runnable,
) -> list[Any]:
    """Return the arguments of a program for the caller's examples; random ones if there are none."""
    if not args and not kwargs:
        return arguments.drawn(program, executable)
    values = imported.flatten(args, kwargs)
    with MODULES:
        values += [read() for read in readers(imported, source, options.freeze)]
    keeps = targets.by_name(options.target).keeps_device_arrays
    return [arguments.of(value, keeps) for value in values]


def _levels(options: Options) -> tuple[str, ...]:
    """Return the levels of numerics that take part."""
    return _LEVELS[: _LEVELS.index(options.numerics) + 1]


def templates_for(options: Options) -> tuple[Template, ...]:
    """Return the templates that the target has under the options."""
    every = targets.by_name(options.target).templates(options.form, options.library)
    return tuple(template for template in every if level_of(template) in _levels(options))


def _this_machine(folder: Path) -> Machine:
    from frittata.extract.machine import load_or_measure
    from frittata.kernels.calibrate import measure, use

    return load_or_measure(folder, measure, use())
