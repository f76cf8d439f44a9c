"""Numbers and tables as plain text: short units, aligned columns, nothing wider than a page of 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 100


def seconds(value: float | None) -> str:
    """Write a time with three digits: 0.00123 -> 1.23 ms; None -> -."""
    if value is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(value) * factor >= 0.9995:
            return f"{_digits(value * factor)} {unit}"
    return f"{_digits(value * 1e9)} ns" if value else "0"


def times(predicted_s: float, measured_s: float | None) -> str:
    """Write a predicted time, and beside it the measured one if there is one: 702 ns / 180 ns."""
    return seconds(predicted_s) + (f" / {seconds(measured_s)}" if measured_s is not None else "")


def count(value: float, unit: str = "") -> str:
    """Write a number with a decimal prefix: 12944640 -> 12.9 M."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{value:.0f} {unit}".rstrip()


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def shortened(text: str, width: int) -> str:
    """Cut a text that is too long: matmul_gelu -> matmul_g..."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> list[str]:
    """Align columns; those numbered in `right` to the right. The last column is cut where the page ends."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    widths[-1] = min(widths[-1], max(8, WIDTH - len(indent) - sum(widths[:-1]) - 2 * len(widths[:-1])))

    def line(row: Sequence[str]) -> str:
        cells = [shortened(cell, width) for cell, width in zip(row, widths, strict=True)]
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return (indent + "  ".join(cells)).rstrip()

    return [line(head), indent + "  ".join("-" * width for width in widths), *map(line, rows)]


def wrapped(text: str, indent: str = "", hanging: str = "    ") -> list[str]:
    """Break a text at spaces; further lines hang."""
    lines: list[str] = []
    lead = indent
    while len(lead) + len(text) > WIDTH:
        cut = text.rfind(" ", 0, WIDTH - len(lead))
        if cut <= 0:
            break
        lines.append(lead + text[:cut])
        text, lead = text[cut + 1 :], indent + hanging
    return [*lines, lead + text]
