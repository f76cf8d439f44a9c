"""What rows of the comparison say: the fastest peer of each, our ratio to it, the geometric mean; tables of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.contestants import CONTESTANTS

Row = Mapping[str, Any]

_PROBLEMS = ("failure", "wrong", "missing")
PEERS = tuple(name for name, contestant in CONTESTANTS.items() if contestant.is_peer)
OURS = tuple(name for name, contestant in CONTESTANTS.items() if not contestant.is_peer)


def entry(row: Row, name: str) -> Mapping[str, Any]:
    """Return what is known of a contestant in a row; of the same program under another name, that of the first."""
    found = row.get("contestants", {}).get(name, {})
    return entry(row, found["same_as"]) if "same_as" in found else found


def fastest_peer(row: Row) -> str | None:
    """Name the peer with the least time by the paired ratios, None if none was timed."""
    timed = {name: entry(row, name)["times"]["ratio"] for name in PEERS if "times" in entry(row, name)}
    return min(timed, key=timed.__getitem__) if timed else None


def ratio(row: Row, name: str = "ours") -> float | None:
    """Return the time of the fastest peer over that of one of ours, from the paired ratios; None without both."""
    peer, found = fastest_peer(row), entry(row, name)
    if peer is None or "times" not in found:
        return None
    return entry(row, peer)["times"]["ratio"] / found["times"]["ratio"]


def summary(rows: Sequence[Row], name: str = "ours") -> dict[str, Any]:
    """Return the geometric mean of the ratios, how many rows reach what they should, and which fall short of what."""
    known = {row["name"]: (found, row["at_least"]) for row in rows if (found := ratio(row, name)) is not None}
    logs = [math.log(found) for found, _ in known.values()]
    return {
        "geometric_mean": math.exp(sum(logs) / len(logs)) if logs else None,
        "reached": sum(found >= wanted for found, wanted in known.values()),
        "slower_than_0.97": [label for label, (found, _) in known.items() if found < 0.97],
        "compute_bound_below_0.85": [row["name"] for row in rows if _is_far_from_peak(row, name)],
        "rows": len(rows),
        "without_ratio": [row["name"] for row in rows if row["name"] not in known],
    }


def _is_far_from_peak(row: Row, name: str) -> bool:
    floor = row.get("floor")
    return bool(floor) and floor["bound"] == "compute" and entry(row, name).get("share_of_floor", 1.0) < 0.85


def problems(row: Row) -> list[tuple[str, str]]:
    """Return who was not timed, and why in a word."""
    entries: Mapping[str, Mapping[str, Any]] = row["contestants"]
    return [(name, word) for name, found in entries.items() for word in _PROBLEMS if word in found]


def times_table(rows: Sequence[Row], name: str = "ours") -> str:
    """Write a line for each row: milliseconds and share of the floor for each contestant, and the ratio."""
    columns = ["eager", *(peer for peer in PEERS if peer != "eager"), name]
    head = ["ms (share of the floor)", "floor", *columns, "fastest peer", "ratio (spread)", "wanted"]
    return _table(head, [_times(row, columns, name) for row in rows])


def _times(row: Row, columns: Iterable[str], name: str) -> list[str]:
    floor = row.get("floor")
    peer, found = fastest_peer(row), ratio(row, name)
    spread = entry(row, peer)["times"]["spread"] if peer else 0.0
    return [
        row["name"],
        f"{floor['seconds'] * 1e3:.3f} {floor['bound']}" if floor else "-",
        *(_time(entry(row, column)) for column in columns),
        peer or "-",
        "-" if found is None else f"{found:.2f} ({spread:.2f})",
        f"{row['at_least']:.2f}",
    ]


def _time(found: Mapping[str, Any]) -> str:
    if "times" not in found:
        return next((word for word in _PROBLEMS if word in found), "-")
    share = f" ({found['share_of_floor']:.0%})" if "share_of_floor" in found else ""
    return f"{found['times']['median_s'] * 1e3:.3f}{share}"


def compile_table(rows: Sequence[Row]) -> str:
    """Write a line for each row: seconds to compile, cold and warm, and memory held and at most, in MiB."""
    pair = ("ours", "torch.compile")
    head = [
        "seconds, MiB",
        *(f"{name} {what}" for what in ("cold", "warm", "holds", "peak") for name in pair),
        "params",
    ]
    return _table(head, [_compile(row, pair) for row in rows])


def _compile(row: Row, names: Iterable[str]) -> list[str]:
    found = [entry(row, name) for name in names]
    cold = [each.get("cold", {}) for each in found]
    return [
        row["name"],
        *(_number(each.get("prepare_s")) for each in cold),
        *(_number(each.get("prepare_s")) for each in found),
        *(_number(each.get(key), 2**20) for key in ("resident_bytes", "peak_bytes") for each in cold),
        _number(row.get("parameter_bytes"), 2**20),
    ]


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:.1f}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    aligned = (
        "  ".join(
            [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in (head, *lines)
    )
    return "\n".join(aligned)
