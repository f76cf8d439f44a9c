"""Drawings of the program and of the e-graph around a kernel, as SVG text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import frittata.tables as tables
from frittata.account import Account
from frittata.egraph.program import Kernel, View
from frittata.layout import Box, Drawing, Point, lay_out
from frittata.values import Row, Value, values_of

CHAR = 6.62
"""The width of a character of 11 pixels, monospaced."""

SMALL = 5.42
_ROW = 17.0
_PAD = 9.0
_HEAD = 21.0
_KERNEL_WIDTH = 268.0
_MARGIN = 8.0
_SMALLEST = 0.65
"""How far a drawing shrinks to fit; what is wider still is scrolled."""


# ---- the program -----------------------------------------------------------------------------------------------------


def program_svg(account: Account) -> str:
    """Draw inputs, kernels, views and outputs from top to bottom; constants stand in the kernels that read them."""
    program = account.program
    source_by_buffer = {name: name for name in program.inputs}
    sizes: dict[str, tuple[float, float]] = {name: _pill(name) for name in program.inputs}
    edges: dict[tuple[str, str], list[str]] = {}

    def connect(buffer: str, target: str) -> None:
        if buffer in source_by_buffer:
            edges.setdefault((source_by_buffer[buffer], target), []).append(buffer)

    for step in program.steps:
        if not isinstance(step, Kernel):
            sources = (step.source,) if isinstance(step, View) else step.parts
            if not source_by_buffer.keys() & set(sources):
                continue  # a view of a constant
            sizes[step.name] = _pill(step.name)
            for source in sources:
                connect(source, step.name)
            source_by_buffer[step.name] = step.name
        else:
            sizes[step.name] = (max(_KERNEL_WIDTH, len("  ".join(_type_and_times(account, step))) * CHAR + 20), 72.0)
            for operand in step.operands:
                connect(operand, step.name)
            source_by_buffer.update({output.name: step.name for output in step.outputs})
    for number, name in enumerate(program.outputs):
        sizes[f"output {number}"] = _pill(f"output {number}")
        connect(name, f"output {number}")
    drawing = lay_out(sizes, list(edges), gap=20.0, layer_gap=30.0)
    types = program.types()
    parts = [
        _curve(points, "flow", "\n".join(f"{b}: {types[b]}" for b in dict.fromkeys(edges[edge])))
        for edge, points in drawing.paths.items()
    ]
    steps = {step.name: step for step in program.steps}
    for key, box in drawing.boxes.items():
        step = steps.get(key)
        if isinstance(step, Kernel):
            parts.append(_kernel_box(account, step, box))
        else:
            kind = "view" if step else "input" if key in program.inputs else "output"
            type_ = types[key] if key in types else types[program.outputs[int(key.split()[1])]]
            parts.append(_pill_box(key, box, kind, f"{kind} {key}: {type_}"))
    return _svg(drawing, parts, "program")


def _pill(text: str) -> tuple[float, float]:
    return len(text) * CHAR + 26, 24.0


def _pill_box(text: str, box: Box, kind: str, title: str) -> str:
    return (
        f'<g class="pill {kind}"><title>{escape(title)}</title>{_rect(box, 12)}'
        f"{_text(box.center, box.y + 16, text, 'mid')}</g>"
    )


def _type_and_times(account: Account, kernel: Kernel) -> tuple[str, str]:
    times = tables.times(kernel.estimate.seconds, account.measured.get(kernel.name))
    return str(kernel.outputs[0].body.type), times


def _kernel_box(account: Account, kernel: Kernel, box: Box) -> str:
    view = next(row for row in account.kernels if row.kernel is kernel)
    share = view.predicted_s / account.program.cost_s if account.program.cost_s else 0.0
    type_, times = _type_and_times(account, kernel)
    constants = [name for name in kernel.operands if name in account.program.constants]
    room = int((box.width - 20) / SMALL)
    left, right = box.x + 10, box.x + box.width - 10
    lines = [
        _text(left, box.y + 18, tables.shortened(view.name, 24), "name"),
        _text(right, box.y + 18, view.template, "tag end"),
        _text(left, box.y + 35, type_, "dim"),
        _text(right, box.y + 35, times, "end"),
        _text(left, box.y + 51, tables.shortened("reads " + ", ".join(constants), room) if constants else "", "small"),
        f'<rect class="track" x="{left:.1f}" y="{box.y + 60:.1f}" width="{box.width - 20:.1f}" height="4" rx="2"/>',
        f'<rect class="bar" x="{left:.1f}" y="{box.y + 60:.1f}" width="{max(2.0, share * (box.width - 20)):.1f}" '
        'height="4" rx="2"/>',
    ]
    title = f"{view.name}: {share:.0%} of the predicted time"
    return (
        f'<g class="kernel" data-kernel="{escape(view.name)}" tabindex="0"><title>{escape(title)}</title>'
        f"{_rect(box, 7)}{''.join(lines)}</g>"
    )


# ---- the e-graph around a kernel -------------------------------------------------------------------------------------


def kernel_svg(account: Account, kernel: Kernel) -> str:
    """Draw the values that a kernel runs through, each with all its forms; chosen forms are marked and connected."""
    values = values_of(account, kernel)
    columns = {value.key: _Columns.of(value) for value in values}
    sizes = {value.key: columns[value.key].size for value in values}
    chosen = [(v.key, target) for v in values for row in v.rows if row.chosen for target in row.targets]
    drawing = lay_out(sizes, list(dict.fromkeys(chosen)), gap=22.0, layer_gap=34.0)
    rule_by_edge = {(v.key, t): row for v in values for row in v.rows if row.chosen for t in row.targets}
    parts = [_curve(points, "chosen", _rule_title(rule_by_edge[edge])) for edge, points in drawing.paths.items()]
    over: list[str] = []
    for value in values:
        box = drawing.boxes[value.key]
        parts.append(_value_box(value, box, columns[value.key]))
        over += _other_edges(value, box, drawing.boxes)
    return _svg(drawing, [*parts, *over], "egraph")


@dataclass
class _Columns:
    """How a value's box is filled: the lines of its rows, and its size."""

    width: float
    height: float
    lines: list[tuple[float, Row]] = field(default_factory=list[tuple[float, Row]])
    rules: list[float] = field(default_factory=list[float])

    @property
    def size(self) -> tuple[float, float]:
        return self.width, self.height

    @staticmethod
    def of(value: Value) -> _Columns:
        widest = max((len(row.text) * CHAR + len(row.note) * SMALL + 24 for row in value.rows), default=0.0)
        width = max(widest, len(value.title) * CHAR + len(value.type) * SMALL + 24, 90.0) + 2 * _PAD
        columns = _Columns(width, 0.0)
        y = _HEAD
        last = ""
        for row in value.rows:
            if last and row.section != last:
                y += 6
                columns.rules.append(y - 2)
            last = row.section
            columns.lines.append((y, row))
            y += _ROW
        columns.height = y + 5
        return columns


def _value_box(value: Value, box: Box, columns: _Columns) -> str:
    left, right = box.x + _PAD, box.x + box.width - _PAD
    parts = [
        f"<title>{escape(value.description)}</title>",
        _rect(box, 6),
        _text(left, box.y + 15, value.title, "name"),
        _text(right, box.y + 15, value.type, "small end"),
    ]
    for y in columns.rules:
        parts.append(f'<line x1="{box.x:.1f}" x2="{box.x + box.width:.1f}" y1="{box.y + y:.1f}" y2="{box.y + y:.1f}"/>')
    for y, row in columns.lines:
        kind = "chosen" if row.chosen else "imported" if row.imported else "other"
        ground = (
            f'<rect class="ground" x="{box.x + 4:.1f}" y="{box.y + y:.1f}" width="{box.width - 8:.1f}" '
            f'height="{_ROW - 1:.1f}" rx="3"/>'
        )
        parts.append(
            f'<g class="row {kind}" data-row="{escape(row.key)}"><title>{escape(_rule_title(row))}</title>{ground}'
            f"{_text(left, box.y + y + 12, row.text, '')}{_text(right, box.y + y + 12, row.note, 'note end')}</g>"
        )
    link = f' data-kernel="{escape(value.kernel)}" tabindex="0"' if value.kernel else ""
    return f'<g class="value {value.kind}"{link}>{"".join(parts)}</g>'


def _other_edges(value: Value, box: Box, boxes: Mapping[str, Box]) -> Iterable[str]:
    """Draw where the arguments of forms that were not chosen are; shown while the pointer is on the row."""
    for row in value.rows:
        if not row.chosen:
            for target in (key for key in row.targets if key != value.key):
                end = boxes[target]
                yield _curve(
                    ((box.center, box.y + box.height), (end.center, end.y)),
                    "alternative",
                    "",
                    f' data-of="{escape(row.key)}"',
                )


def _rule_title(row: Row) -> str:
    return row.full + (f"\n{row.rule}\n{row.rule_text}" if row.rule else "\nas imported")


# ---- pieces of SVG ---------------------------------------------------------------------------------------------------


def _svg(drawing: Drawing, parts: Sequence[str], kind: str) -> str:
    width, height = drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN
    return (
        f'<svg class="{kind}" width="{width:.0f}" height="{height:.0f}" style="min-width:{_SMALLEST * width:.0f}px" '
        f'viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">{"".join(parts)}</svg>'
    )


def _rect(box: Box, radius: float) -> str:
    return (
        f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{radius:.0f}"/>'
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>' if text else ""


def _curve(points: Sequence[Point], kind: str, title: str, more: str = "") -> str:
    """Draw a smooth line that leaves and enters every point upright."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for nx, ny in rest:
        bend = (ny - y) / 2
        path.append(f"C{x:.1f} {y + bend:.1f} {nx:.1f} {ny - bend:.1f} {nx:.1f} {ny:.1f}")
        x, y = nx, ny
    shown = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="edge {kind}" d="{"".join(path)}"{more}>{shown}</path>'
