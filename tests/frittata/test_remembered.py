"""Programs from the cache: found again by an equal question only, and explained as if they had just been chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import SCRIPT, tiny

import frittata as ft
from frittata import cache as cache_folder
from frittata import ops, pipeline, remembered
from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import RuleError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.saturate import StopReason
from frittata.egraph.terms import Term
from frittata.kernels import targets, templates
from frittata.optimized import Optimized
from frittata.options import Options
from frittata.rules import audit, library
from frittata.rules.pattern import Family, Rule

X = np.random.default_rng(1).standard_normal((4, 24)).astype(np.float32)
JOINED = """
def main(x: f32[6, 8], y: f32[2, 8]) -> (f32[8, 8], f32[3, 16]):
    v1: f32[6, 8] = softmax(x, axis=-1)
    v2: f32[2, 8] = exp(y)
    v3: f32[8, 8] = concat(v1, v2, axis=-2)
    v4: f32[8, 8] = relu(v3)
    v5: f32[3, 16] = reshape(v1, (3, 16))
    return v3, v5
"""


@pytest.fixture
def folder(tmp_path: Path, cache: Path) -> Path:
    """Return a cache folder without programs, and with the kernels that other tests have compiled."""
    (cache / "kernels").mkdir(exist_ok=True)
    own = tmp_path / "cache"
    own.mkdir()
    (own / "kernels").symlink_to(cache / "kernels")
    return own


@pytest.fixture
def saturated(monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """Return the models that were saturated from here on."""
    seen: list[Model] = []
    whole = pipeline.saturate_model

    def noted(model: Model, *rest: Any) -> Any:
        seen.append(model)
        return whole(model, *rest)

    monkeypatch.setattr(pipeline, "saturate_model", noted)
    return seen


def optimized(folder: Path, source: Any = None, **options: Any) -> Optimized:
    given: dict[str, Any] = {"machine": REFERENCE, "library": False, "cache": folder, **options}
    return ft.optimize(tiny() if source is None else source, **given)


def test_the_second_time_nothing_is_saturated(folder: Path, saturated: list[Model]) -> None:
    first, second = optimized(folder), optimized(folder)
    assert len(saturated) == 1
    assert (first.report.is_remembered, second.report.is_remembered) == (False, True)
    assert second.program == first.program
    np.testing.assert_array_equal(second(X), first(X))
    assert len(saturated) == 1
    assert not {"saturate", "extract"} & second.report.phase_seconds.keys()


def test_a_new_process_finds_what_another_chose_without_what_searches(folder: Path) -> None:
    optimized(folder)
    script = "\n".join(
        [
            "import sys, pathlib",
            f"sys.path.insert(0, {str(Path(__file__).parents[1] / 'support')!r})",
            "from tiny_model import tiny",
            "import frittata as ft",
            "from frittata import pipeline",
            "from frittata.egraph.machine import REFERENCE",
            "pipeline.saturate_model = None",
            f"folder = pathlib.Path({str(folder)!r})",
            "fast = ft.optimize(tiny(), machine=REFERENCE, library=False, cache=folder)",
            "print(fast.report.is_remembered, {'egglog', 'networkx'} & sys.modules.keys())",
        ]
    )
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.stdout.strip() == "True set()", done.stderr


def test_rules_are_read_where_a_program_is_searched_for_or_something_asks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, read = optimized(folder), list[int]()
    path, whole = first.save(tmp_path / "model.frt"), library.builtin_families

    def noted() -> tuple[Family, ...]:
        read.append(1)
        return whole()

    monkeypatch.setattr(library, "builtin_families", noted)
    found = [optimized(folder), ft.load(path, cache=folder)]
    assert not read
    for fast in found:
        assert fast.compilation.families == first.compilation.families
        assert read.pop()


def test_a_name_that_is_none_is_refused_where_the_program_is_there(folder: Path) -> None:
    @ft.transform
    def mine(term: Term) -> None:
        """Change nothing."""

    options: dict[str, Any] = {"disable": "mine"}
    optimized(folder, pipeline=ft.Pipeline("with", [mine, "default"]), **options)
    with pytest.raises(RuleError, match="nothing to disable is called 'mine'"):
        optimized(folder, **options)


def test_kernels_that_were_not_optimized_are_loaded(folder: Path) -> None:
    lines = (
        "import sys, pathlib",
        f"sys.path.insert(0, {str(Path(__file__).parents[1] / 'support')!r})",
        "from tiny_model import tiny",
        "import frittata as ft",
        "from frittata.egraph.machine import REFERENCE",
        f"fast = ft.optimize(tiny(), machine=REFERENCE, library=False, cache=pathlib.Path({str(folder)!r}))",
        "print(fast.compilation.executable.newly_compiled)",
    )
    command, environment = [sys.executable, "-c", "\n".join(lines)], {**os.environ, "NUMBA_OPT": "0"}
    done = [subprocess.run(command, capture_output=True, text=True, check=False, env=environment) for _ in range(2)]
    assert [one.stdout.strip() for one in done] == ["3", "0"], done[-1].stderr


def test_weights_are_not_part_of_the_question(folder: Path, saturated: list[Model]) -> None:
    optimized(folder)
    model = tiny()
    others = {name: np.zeros_like(value) for name, value in model.params.items()}
    other = optimized(folder, Model(model.functions, others))
    assert len(saturated) == 1
    np.testing.assert_array_equal(other(X), np.zeros((4, 8)))


@pytest.mark.parametrize(
    "changed",
    [
        {"numerics": "exact"},
        {"disable": ("scalar",)},
        {"disable": ("fusion/index-built",)},
        {"library": True},
        {"form": "plain"},
        {"tune": "measure"},
        {"time_limit_s": 2.0},
        {"freeze": False},
        {"machine": replace(REFERENCE, launch_s=1e-6)},
    ],
    ids=str,
)
def test_another_option_is_another_question(folder: Path, saturated: list[Model], changed: dict[str, Any]) -> None:
    optimized(folder)
    assert not optimized(folder, **changed).report.is_remembered
    assert optimized(folder, **changed).report.is_remembered
    assert len(saturated) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f32[4, 24]", "f32[5, 24]"),
        ("f32", "f64"),
        ("param v: f32[24, 8]", "v: f32[24, 8]"),
        ("param b", "param c"),
        ("relu(v2)", "exp(v2)"),
        ("v4, v5)\n    return v6", "v3, v5)\n    return v6"),
    ],
)
def test_another_model_is_another_question(folder: Path, saturated: list[Model], old: str, new: str) -> None:
    optimized(folder)
    text = SCRIPT.replace(old, new)
    if old == "param b":
        text = text.replace("add(v1, b)", "add(v1, c)")
    if old == "f32[4, 24]":
        text = text.replace("f32[4, 8]", "f32[5, 8]")
    model = ft.parse(text)
    params = (term for term in model.main.walk() if term.op == "param")
    values = {p.attrs[0]: np.ones(shapes.concrete(p.shape), dtypes.to_numpy(p.dtype)) for p in params}
    assert not optimized(folder, Model(model.functions, values)).report.is_remembered
    assert len(saturated) == 2


def test_another_text_of_a_rule_file_is_another_question(tmp_path: Path, folder: Path, saturated: list[Model]) -> None:
    file = tmp_path / "mine.rules"
    for text, count in (("twice: exp(neg(x)) => exp(-x)\n", 1), ("twice: exp(neg(x)) => exp(0.0 - x)\n", 2)):
        file.write_text(text)
        optimized(folder, rules=file)
        assert optimized(folder, rules=file).report.is_remembered
        assert len(saturated) == count
    file.write_text("twice: exp(neg(x)) => exp(x)\n")
    with pytest.raises(ft.FrittataError, match="twice"):
        optimized(folder, rules=file)


def test_what_was_remembered_is_explained_as_what_was_chosen(
    tmp_path: Path, folder: Path, saturated: list[Model]
) -> None:
    first, second = optimized(folder), optimized(folder)
    assert second.report.is_remembered
    for kernel in first.kernels:
        assert str(second.explain(kernel.name)) == str(first.explain(kernel.name))
    assert len(saturated) == 2
    ours, theirs = second.report.to_dict(), first.report.to_dict()
    for name in ("kernels", "folded", "gap", "greedy_s", "predicted_s", "cost_before_s", "candidates", "nodes"):
        assert ours[name] == theirs[name], name
    assert "found in the cache" in str(second.report) and "found in the cache" not in str(first.report)
    assert second.graph().nodes.keys() == first.graph().nodes.keys()
    second.show(tmp_path / "page.html")


def test_views_and_joins_are_explained_too(folder: Path, saturated: list[Model]) -> None:
    model = ft.parse(JOINED)
    first, second = optimized(folder, model), optimized(folder, model)
    assert second.report.is_remembered
    assert {type(step).__name__ for step in second.program.steps} == {"Kernel", "View", "Join"}
    for kernel in first.kernels:
        assert str(second.explain(kernel.name)) == str(first.explain(kernel.name))


def test_a_candidate_that_is_not_enumerated_today_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimized(folder)
    second = optimized(folder)
    from frittata.extract import recall

    whole = recall.enumerate_candidates

    def fewer(*given: Any) -> Any:
        problem, free = whole(*given)
        for number, candidate in enumerate(problem.candidates):
            problem.candidates[number] = replace(candidate, template="another")
        return problem, free

    monkeypatch.setattr(recall, "enumerate_candidates", fewer)
    chosen = [second.account.placement.candidate(kernel.name) for kernel in second.program.kernels]
    assert [candidate.template for candidate in chosen] == [kernel.template for kernel in second.program.kernels]
    assert "softmax" in str(second.explain("softmax"))


def test_no_candidate_that_writes_more_is_taken_for_a_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = optimized(folder), optimized(folder)
    from frittata.extract import recall

    whole = recall.enumerate_candidates

    def wider(*given: Any) -> Any:
        problem, free = whole(*given)
        everything = tuple(row for candidate in problem.candidates for row in candidate.bodies)
        for number, candidate in enumerate(problem.candidates):
            bodies = tuple(dict.fromkeys((*candidate.bodies, *everything)))
            problem.candidates[number] = replace(candidate, bodies=bodies)
        return problem, free

    monkeypatch.setattr(recall, "enumerate_candidates", wider)
    assert second.report.is_remembered and second.report.folded == first.report.folded
    stored = {output.name for kernel in second.program.kernels for output in kernel.outputs}
    assert stored <= second.account.placement.class_by_buffer.keys()


def test_a_program_that_the_e_graph_does_not_have_is_no_silent_matter(folder: Path) -> None:
    optimized(folder)
    second = optimized(folder)
    second.compilation.model = ft.parse(SCRIPT.replace("softmax(v3, axis=-2)", "exp(v3)"))
    with pytest.raises(ft.FrittataError, match="frittata cache clear"):
        second.explain("softmax")


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "no archive"])
def test_a_damaged_entry_is_chosen_again(folder: Path, saturated: list[Model], damage: str) -> None:
    first = optimized(folder)
    (entry,) = cache_folder.files(folder)["programs"]
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "no archive":
        cache_folder.programs_in(folder).store(entry.parent.name + entry.stem, b"no archive")
    else:
        entry.write_bytes({"empty": b"", "cut": content[:100], "flipped": content}[damage])
    again = optimized(folder)
    assert (again.report.is_remembered, len(saturated)) == (False, 2)
    assert again.program == first.program
    assert optimized(folder).report.is_remembered


def test_a_gap_is_remembered_as_it_was(folder: Path) -> None:
    first, second = (optimized(folder, time_limit_s=0.0) for _ in range(2))
    assert second.report.is_remembered
    assert second.report.gap == first.report.gap == 1.0


def test_what_a_limit_of_time_cut_short_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pipeline.saturate_model

    def cut_short(*given: Any) -> Any:
        saturation = whole(*given)
        saturation.phases[0].stop = StopReason.TIME
        return saturation

    monkeypatch.setattr(pipeline, "saturate_model", cut_short)
    assert not any(optimized(folder).report.is_remembered for _ in range(2))


@pytest.mark.parametrize("infer", [lambda types, attrs: types[0], registry.get("relu").infer])
def test_operators_of_others_are_not_remembered(folder: Path, infer: Any) -> None:
    """What their rows say may change without a trace, though they take a type rule of the package."""
    registry.register(replace(registry.get("relu"), name="mine", infer=infer, opaque=True))
    try:
        model = ft.parse("def main(x: f32[3]) -> f32[3]:\n    v1: f32[3] = mine(x)\n    return v1\n")
        assert not any(optimized(folder, model).report.is_remembered for _ in range(2))
    finally:
        registry.unregister("mine")


def test_templates_of_others_are_not_remembered(folder: Path) -> None:
    class Mine(type(templates.NEST)):
        """A template whose prices may change without a trace."""

    mine = replace(
        targets.CPU, name="mine", templates=lambda form, library: (Mine(), *targets.CPU.templates(form, False))
    )
    targets.register(mine)
    try:
        assert not any(optimized(folder, target="mine").report.is_remembered for _ in range(2))
    finally:
        targets.unregister("mine")


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the rules that were audited from here on, by this process."""
    seen: list[str] = []
    whole = audit.audit

    def noted(rule: Rule, *rest: Any, **named: Any) -> Any:
        seen.append(rule.name)
        return whole(rule, *rest, **named)

    monkeypatch.setattr(audit, "audit", noted)
    monkeypatch.setattr(remembered, "spread", lambda work, order: {})
    return seen


def checked(folder: Path, path: Path, text: str) -> None:
    path.write_text(text)
    pipeline.choose_rules(Options(rules=(path,), cache=folder))


def test_a_rule_is_audited_once_until_something_of_it_changes(tmp_path: Path, audited: list[str]) -> None:
    here, there = tmp_path / "mine.rules", tmp_path / "yours.rules"
    rule = "once: relu(x) * 3.0 => 3.0 * relu(x)"
    checked(tmp_path, here, rule)
    checked(tmp_path, here, f"# a remark\n{rule}")
    checked(tmp_path, there, rule.replace("once", "same"))
    assert audited == ["once"]
    for changed in (
        "once: 3.0 * relu(x) => relu(x) * 3.0",
        "once: relu(x) * 4.0 => 4.0 * relu(x)",
        "once: relu(x) * 3.0 => 3.0 * relu(x) [reassoc]",
        "once: relu(x) * 3.0 => 3.0 * relu(x) if const(x)",
        'once: relu(x) * 3.0 => 3.0 * relu(x) if dtype(x) == "f32"',
    ):
        audited.clear()
        checked(tmp_path, here, changed)
        checked(tmp_path, here, changed)
        assert audited == ["once"], changed
    audited.clear()
    checked(tmp_path, here, "once: relu(x) * 3.0 <=> 3.0 * relu(x)")
    assert audited == []  # both directions are known from above


def test_a_rule_that_is_refused_is_refused_again(tmp_path: Path, audited: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(RuleError, match="unsound"):
            checked(tmp_path, tmp_path / "mine.rules", "good: exp(x) * 2.0 => 2.0 * exp(x)\nunsound: relu(x) => x")
    assert audited == ["good", "unsound"] * 2
    assert not cache_folder.files(tmp_path)["audits"]


def test_what_passed_elsewhere_is_not_audited_again(
    tmp_path: Path, audited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def spread(work: Any, order: Any) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for number in order:
            with suppress(RuleError):  # as a child ends at an error
                found[number] = work(number)
        return found

    monkeypatch.setattr(remembered, "spread", spread)
    with pytest.raises(RuleError, match="unsound"):
        checked(tmp_path, tmp_path / "mine.rules", "good: exp(x) * 2.0 => 2.0 * exp(x)\nunsound: relu(x) => x")
    assert audited == ["good", "unsound", "unsound"]
    assert not cache_folder.files(tmp_path)["audits"]


@pytest.mark.parametrize("infer", [lambda types, attrs: types[0], registry.get("relu").infer])
def test_rules_of_operators_from_elsewhere_are_audited_each_time(
    tmp_path: Path, audited: list[str], infer: Any
) -> None:
    """What is true of one reference is refused with another, though both take a type rule of the package."""
    path, rule = tmp_path / "mine.rules", "mine: twice(-x) => -twice(x)"
    for reference in (lambda x: 2 * x, lambda x: 3 * x, np.exp):
        ops.register(ops.Op("twice", "tensor", (("x", "tensor"),), (), infer, reference))
        try:
            with pytest.raises(RuleError, match="mine") if reference is np.exp else nullcontext():
                checked(tmp_path, path, rule)
        finally:
            ops.unregister("twice")
    assert audited == ["mine"] * 3


def test_all_rows_and_templates_of_this_package_are_ours() -> None:
    assert all(registry.is_built_in(row.name, row.sort) for row in registry.every())
    found = {type(template).__module__ for template in targets.CPU.templates("fast", True)}
    assert all(module.startswith("frittata.") for module in found)


def test_a_folder_is_told_and_cleared(tmp_path: Path) -> None:
    optimized(tmp_path)
    (tmp_path / "machine-0.json").write_text("{}")
    (tmp_path / "machine-1.tmp").write_text("{")  # of a process that was killed
    (tmp_path / "programs" / "notes.txt").write_text("mine")
    counts = {what: len(paths) for what, paths in cache_folder.files(tmp_path).items()}
    assert counts == {"kernels": 3, "programs": 1, "prices": 0, "audits": 0, "machine profiles": 2}
    cache_folder.clear(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes.txt"]
    assert not (tmp_path / "kernels").exists()
    cache_folder.clear(tmp_path)
