"""One row through the comparison: what it says of contestants that are right, wrong, missing, or fail."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import blocks, contest, contestants, peers, standings
from bench.contestants import Case, Contestant, Missing, Prepared
from bench.rows import ROWS, Row
from frittata.egraph.machine import REFERENCE

PACE = contest.Pace(2, 0.0, 1e-3)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contest, contestants):
        monkeypatch.setattr(module, "known_machine", lambda: replace(REFERENCE, l3_bytes=1 << 20))


def run(make: Any, folder: Path, *names: str) -> dict[str, Any]:
    return contest.contest(Case(Row("row", make, 1.5), folder), names, PACE)


@pytest.mark.parametrize(
    "make",
    [
        partial(blocks.transformer_mlp, 7, 13, 2, 3),
        partial(blocks.attention, 12, 3, 17, True),
        partial(blocks.pointwise_chain, 7, 17),
        partial(blocks.softmax_layer_norm, 7, 17),
    ],
    ids=lambda make: make.func.__name__,
)
def test_ours_is_right_and_timed_beside_eager(make: Any, tmp_path: Path) -> None:
    row = json.loads(json.dumps(run(make, tmp_path, "eager", "ours", "ours, no library")))
    entries = row["contestants"]
    for name in ("eager", "ours"):
        assert entries[name]["error"] < 1e-5
        assert entries[name]["times"]["median_s"] >= entries[name]["times"]["least_s"] > 0
        assert entries[name]["share_of_floor"] > 0
    assert entries["ours, no library"] == {"same_as": "ours"}
    floor = row["floor"]
    most, together = max(floor["compute_s"], floor["bytes_s"]), floor["compute_s"] + floor["bytes_s"]
    assert most * (1 - 1e-12) <= floor["seconds"] <= together * (1 + 1e-12)
    assert row["baseline"] == "ours" and entries["ours"]["times"]["ratio"] == 1.0
    assert standings.ratio(row) == entries["eager"]["times"]["ratio"]
    assert all(rate > 0 for rate in row["ceilings"].values())


def _contestant(prepare: Any, load: Any = lambda case: None) -> Contestant:
    return Contestant(load, prepare)


def test_who_is_wrong_or_fails_or_is_missing_is_said_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def eager_and_more(case: Case) -> Prepared:
        module, args = case.workload
        return Prepared(lambda: module(*args) + 1)

    def nan(case: Case) -> Prepared:
        return Prepared(lambda: torch.full((3, 17), torch.nan))

    def fail(_case: Case) -> Prepared:
        raise RuntimeError("cannot do this")

    def missing(_case: Case) -> None:
        raise Missing("not installed")

    more = {
        "wrong": _contestant(eager_and_more),
        "nan": _contestant(nan),
        "failing": _contestant(fail),
        "missing": _contestant(fail, missing),
    }
    monkeypatch.setattr(contest, "CONTESTANTS", contestants.CONTESTANTS | more)
    row = run(partial(blocks.dense, 2, 17, 3), tmp_path, "eager", *more)
    entries = row["contestants"]
    assert entries["wrong"]["wrong"] and entries["wrong"]["error"] > 0.1
    assert entries["nan"]["wrong"]
    assert "cannot do this" in entries["failing"]["failure"]
    assert entries["missing"] == {"missing": "not installed"}
    assert [name for name, entry in entries.items() if "times" in entry] == ["eager"]
    assert row["floor"] is None and row["baseline"] == "eager"


def test_ours_without_library_calls_is_a_contestant_of_its_own(tmp_path: Path) -> None:
    entries = run(partial(blocks.dense, 1, 17, 3), tmp_path, "eager", "ours, no library")["contestants"]
    assert "library" not in entries["ours, no library"]["kernels"]
    assert "times" in entries["ours, no library"]


def test_the_command_writes_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "peers.json"
    name = "MLP 784-256-10, batch 1"
    options = ["--contestant", "eager", "--contestant", "ours", "--turns", "1", "--output", str(output)]
    peers.main([name, *options])
    found = json.loads(output.read_text())
    assert [row["name"] for row in found["rows"]] == [row for row in ROWS if name in row]
    (row,) = found["rows"]
    ours = row["contestants"]["ours"]
    assert ours["error"] < contest.TOLERANCE and ours["cold"]["prepare_s"] > 0 and ours["prepare_s"] > 0
    assert "saturate" in ours["cold"]["phase_seconds"] and "saturate" not in ours["phase_seconds"]
    assert row["floor"]["flops"] == 2 * (784 * 256 + 256 * 10)
    assert found["summary"]["ours"]["geometric_mean"] == pytest.approx(standings.ratio(row))
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name} (") and "times eager" in printed and "share of the floor" in printed


def test_names_that_match_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["no such row"])
    assert "no row's name contains no such row" in capsys.readouterr().err


def test_who_ends_the_process_is_found_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def child(name: str, names: Any, folder: str, pace: Any) -> dict[str, Any]:
        calls.append(tuple(names))
        if "openvino" in names:
            return {"failure": "exit status -11"}
        return {"contestants": {one: {"prepare_s": 1.0, "error": 0.0} for one in names}}

    monkeypatch.setattr(peers, "_child", child)
    output = tmp_path / "peers.json"
    given = ["eager", "ours", "openvino"]
    peers.main(["MLP 4 x 1024", "--output", str(output), *(o for one in given for o in ("--contestant", one))])
    (row,) = json.loads(output.read_text())["rows"]
    assert row["contestants"]["openvino"] == {"failure": "exit status -11"}
    assert row["contestants"]["ours"]["cold"] == {"prepare_s": 1.0, "error": 0.0}
    assert "failure" not in row and calls[-1] == ("eager", "ours")
