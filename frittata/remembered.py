"""What was found before, on disk, by all that decides it: chosen programs, and which rules passed their audit.

Values of weights decide nothing: a param is a name with a type, and constants are computed after the choice.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from frittata.egraph import archive
from frittata.egraph.machine import Machine
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.program import Template
from frittata.egraph.saturate import Saturation, StopReason
from frittata.egraph.terms import Sort
from frittata.extract.recall import Choice
from frittata.kernels.cache import KernelCache
from frittata.kernels.children import spread
from frittata.kernels.compile import toolchain
from frittata.options import Options
from frittata.rules.own import is_of_package
from frittata.rules.parse import family_name
from frittata.rules.pattern import Family, Rule

log = logging.getLogger(__name__)

_PACKAGES = ("frittata", "frittata.egraph", "frittata.rules", "frittata.extract")
"""Those that decide beside the kernels, of which `kernels.compile.toolchain` tells."""
_DECIDING = ("egglog", "highspy", "networkx", "numpy", "torch")


def key_of(
    model: Model, families: Iterable[Family], templates: tuple[Template, ...], machine: Machine, options: Options
) -> str | None:
    """Return the sha256 of all that decides which program is chosen; None if code outside of this package does.

    Rules stand in the key by what admits them: the text of the caller's files, the level, the names left out. Families
    may lack the built-in ones, whose operators are ours.
    """
    if not _is_ours(model, families, templates):
        return None
    parts = (
        archive.fingerprint((*model.main.inputs, *model.main.outputs)),
        len(model.main.inputs),
        [(family_name(path), path.read_text(encoding="utf-8")) for path in options.rules],
        (options.numerics, options.disable, options.library, options.target, options.form, options.tune),
        (options.opt_level, options.required, options.pipeline.phases(sorted(options.pipeline.families() or ()))),
        options.time_limit_s,
        [template.name for template in templates],
        machine,
        _toolchain(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def prices_key(machine: Machine, options: Options) -> str:
    """Return the sha256 of all that decides how long a kernel takes, beside what it computes."""
    return hashlib.sha256(repr((options.target, machine, _toolchain())).encode()).hexdigest()


def check_rules(folder: KernelCache, family: Family) -> None:
    """Audit the equations of a family that have not passed before; several in several processes.

    Raises: RuleError that shows a counterexample for each unsound rule.
    """
    from frittata.rules import audit

    keys = {rule: _audit_key(rule) for rule in family.rules if rule.kind == "equation"}
    new = [rule for rule, key in keys.items() if not (key and folder.load(key) is not None)]
    passed = spread(lambda number: bool(audit.check(replace(family, rules=(new[number],)))), range(len(new)))
    audit.check(replace(family, rules=tuple(rule for number, rule in enumerate(new) if number not in passed)))
    for rule in new:
        if key := keys[rule]:
            folder.store(key, b"")


def _audit_key(rule: Rule) -> str | None:
    """Return the sha256 of all that decides whether an equation passes, whatever its name and place."""
    if not is_of_package(rule):
        return None
    sorts = sorted(rule.sort_by_variable.items())
    said = (rule.kind, rule.left, rule.right, rule.conditions, rule.level, sorts, _toolchain())
    return hashlib.sha256(repr(said).encode()).hexdigest()


def load(folder: KernelCache, key: str | None) -> Choice | None:
    """Return the choice stored under a key, None if there is none that can be read."""
    stored = folder.load(key) if key else None
    if stored is None:
        return None
    try:
        return Choice(*archive.from_bytes(stored))
    except (ValueError, TypeError) as error:
        log.warning("cache: program %s cannot be read and will be chosen again: %s", key, error)
        return None


def store(folder: KernelCache, key: str | None, choice: Choice, saturation: Saturation) -> None:
    """Keep a choice, unless how far saturation came was a matter of time: another run would see another e-graph."""
    if key and all(phase.stop is not StopReason.TIME for phase in saturation.phases):
        folder.store(key, archive.to_bytes((choice.program, choice.bodies, choice.greedy_cost_s)))


def _is_ours(model: Model, families: Iterable[Family], templates: tuple[Template, ...]) -> bool:
    """Whether operators, templates and functions of rules are of this package, whose sources are part of the key."""
    own = all(type(template).__module__.startswith("frittata.") for template in templates)
    rules = (rule for family in families for rule in family.rules)
    mentioned: set[tuple[str, Sort]] = {(term.op, term.sort) for term in model.main.walk()}
    return own and all(map(is_of_package, rules)) and all(registry.is_built_in(*operator) for operator in mentioned)


@cache
def _toolchain() -> tuple[str, ...]:
    """Describe what turns a model into a program: our sources and rules, the engines, and what prices depend on."""
    own = hashlib.sha256()
    for package in _PACKAGES:
        folder = Path(str(import_module(package).__file__)).parent
        for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.rules"))):
            own.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return (own.hexdigest(), *map(_version, _DECIDING), *toolchain())


def _version(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"no {distribution}"
