"""What follows from rows: ratios, means, what is listed as falling short."""

from __future__ import annotations

from typing import Any

import pytest

from bench import standings


def row(name: str, at_least: float = 1.0, **median_ms: float | str) -> dict[str, Any]:
    """A row in which contestants take so long, or in which something is said of them."""

    ours = median_ms.get("ours", 1.0)
    base = 1.0 if isinstance(ours, str) else ours

    def entry(value: float | str) -> dict[str, Any]:
        if isinstance(value, str):
            return {value: "why"}
        times = {"median_s": value / 1e3, "ratio": value / base, "spread": 0.05}
        return {"times": times, "share_of_floor": 0.5, "prepare_s": 1.0}

    names = {"torch_compile": "torch.compile", "no_library": "ours, no library"}
    found = {names.get(name, name): entry(value) for name, value in median_ms.items()}
    return {"name": name, "at_least": at_least, "floor": {"seconds": 1e-3, "bound": "compute"}, "contestants": found}


def test_the_ratio_is_to_the_fastest_of_those_timed() -> None:
    found = row("a", eager=9.0, onnxruntime=3.0, torch_compile=6.0, openvino="wrong", ours=2.0)
    assert standings.fastest_peer(found) == "onnxruntime"
    assert standings.ratio(found) == pytest.approx(1.5)


def test_the_fastest_is_so_by_the_ratios_of_turns() -> None:
    found = row("a", eager=3.0, onnxruntime=4.0, ours=2.0)
    found["contestants"]["onnxruntime"]["times"]["ratio"] = 1.25
    assert standings.fastest_peer(found) == "onnxruntime"
    assert standings.ratio(found) == pytest.approx(1.25)


def test_ours_without_library_is_compared_by_its_own_times() -> None:
    found = row("a", eager=6.0, ours=2.0, no_library=4.0)
    assert standings.ratio(found, "ours, no library") == pytest.approx(1.5)
    found["contestants"]["ours, no library"] = {"same_as": "ours"}
    assert standings.ratio(found, "ours, no library") == pytest.approx(3.0)


def test_the_summary_counts_rows_that_fall_short_and_those_without_a_ratio() -> None:
    rows = [
        row("two", 1.5, eager=4.0, ours=2.0),
        row("half", 1.0, eager=1.0, ours=2.0),
        row("failed", 1.0, eager=1.0, ours="failure"),
    ]
    found = standings.summary(rows)
    assert found["geometric_mean"] == pytest.approx(1.0)
    assert found["reached"] == 1 and found["rows"] == 3
    assert found["compute_bound_below_0.85"] == ["two", "half"]
    assert found["slower_than_0.97"] == ["half"] and found["without_ratio"] == ["failed"]


def test_tables_have_a_line_for_each_row_and_say_what_is_not_timed() -> None:
    rows = [row("two", eager=4.0, openvino="missing", ours=2.0), row("failed", eager=1.0, ours="failure")]
    head, two, failed = standings.times_table(rows).splitlines()
    assert head.split()[0] == "ms" and "4.000 (50%)" in two and "missing" in two and "2.00 (0.05)" in two
    assert standings.problems(rows[0]) == [("openvino", "missing")]
    assert "failure" in failed and len(head) == len(two) == len(failed)
    assert len(standings.compile_table(rows).splitlines()) == 3
    assert standings.summary([])["geometric_mean"] is None
