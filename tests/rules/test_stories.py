"""All families together: what the algebra of weights and of views must come to, and that it comes to an end."""

from pathlib import Path

import pytest
from rule_cases import Case, read_cases

from frittata.egraph.phases import Phase
from frittata.egraph.saturate import StopReason, saturate
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families

FOLDER = Path(__file__).parent / "stories"
STORIES = [story for name in ("weights.txt", "views.txt") for story in read_cases(FOLDER / name)]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story_ends_well(story: Case) -> None:
    families = builtin_families()
    phase = Phase("all", tuple(family.name for family in families))
    roots = (story.before, story.after)
    found = saturate(roots, compile_families(families), (phase,), lambda term: term.op == "param")
    assert found.phases[0].stop is StopReason.SATURATED
    assert found.phases[0].nodes < 2000
    assert found.snapshot.class_by_term[story.before] == found.snapshot.class_by_term[story.after]
