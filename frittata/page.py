"""One page that shows what was chosen and why; it needs nothing but itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

import frittata.tables as tables
from frittata.account import KernelView
from frittata.drawing import kernel_svg, program_svg
from frittata.explain import RIVAL_HEAD, Explanation, explain, rival_rows
from frittata.page_style import SCRIPT, STYLE
from frittata.report import KERNEL_HEAD, Folded, Report, kernel_row

_LEGEND = (
    ("chosen", "chosen form"),
    ("import-ground", "as imported, after transforms"),
    ("card", "other forms, by the rule named beside them"),
    ("buffer", "result of another kernel"),
    ("constant", "constant"),
)
"""Names of colors in the style, and what they stand for."""


def page(report: Report, title: str = "frittata") -> str:
    """Return the page as HTML text."""
    script = str(report.account.program.as_model(report.compilation.model))
    dearest = max(report.kernels, key=lambda view: view.predicted_s, default=None)
    first = dearest.name if dearest else ""
    body = (
        _header(report, title),
        f'<main><section id="program"><h2>Program</h2>{program_svg(report.account)}</section>',
        f"<div>{''.join(_panel(report, view, view.name == first) for view in report.kernels)}</div></main>",
        _wide("Kernels", _kernel_table(report)),
        _wide("Rules", _rule_table(report)),
        _wide("Time", _time(report)),
        _wide("Folded before run time", _folded(report.folded)) if report.folded else "",
        f'<section class="wide"><details><summary>The chosen program as script</summary><pre>{escape(script)}'
        "</pre></details></section>",
    )
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f'<body data-first="{escape(first)}">{"".join(body)}<script>{SCRIPT}</script></body></html>'
    )


def framed(report: Report) -> str:
    """Return the page in a frame of its own, for a notebook: its styles stay inside."""
    return (
        f'<iframe srcdoc="{escape(page(report))}" style="width:100%;height:820px;border:1px solid #d9dfe7" '
        'sandbox="allow-scripts"></iframe>'
    )


def _wide(title: str, body: str) -> str:
    return f'<section class="wide"><h2>{title}</h2>{body}</section>'


def _header(report: Report, title: str) -> str:
    measured = (
        [("measured, sum of kernels", tables.seconds(report.measured_s))] if report.measured_s is not None else []
    )
    figures = [
        ("kernels", str(len(report.kernels))),
        ("predicted", tables.seconds(report.predicted_s)),
        *measured,
        ("each operator alone, predicted", tables.seconds(report.cost_before_s)),
        ("flops", tables.count(report.flops)),
        ("bytes moved", tables.count(report.bytes, "B")),
        (f"gap against {report.candidates} enumerated candidates", f"{report.gap:.2%}"),
        (f"e-nodes in {report.classes} classes", str(report.nodes)),
    ]
    shown = "".join(f'<div class="figure"><b>{escape(v)}</b><span>{escape(name)}</span></div>' for name, v in figures)
    notes = f'<p class="soft">{escape("; ".join(report.notes))}</p>'
    return f'<header><h1>{escape(title)}</h1><div class="figures">{shown}</div>{notes}</header>'


def _panel(report: Report, view: KernelView, visible: bool) -> str:
    explanation = explain(report.account, view.name)
    legend = "".join(f'<i style="background:var(--{color})"></i>{escape(text)}' for color, text in _LEGEND)
    measured = f", {tables.seconds(view.measured_s)} measured" if view.measured_s is not None else ""
    head = (
        f"{tables.seconds(view.predicted_s)} predicted ({explanation.share:.0%}){measured} &middot; "
        f"{tables.count(view.flops, 'flop')} &middot; {tables.count(view.bytes, 'B')} &middot; "
        f"template {escape(view.template)}"
    )
    hidden = "" if visible else " hidden"
    return (
        f'<section class="panel" data-panel="{escape(view.name)}"{hidden}><h2>{escape(view.name)} '
        f'<span class="soft">{head}</span></h2><div class="legend">The e-graph around it:{legend}. '
        "Point at a form for its rule. Prices are of whole kernels: see the candidates below.</div>"
        f'<div class="drawing">{kernel_svg(report.account, view.kernel)}</div>'
        f"<h3>Computes</h3><pre class=term>{escape(view.op)}</pre>{_details(explanation)}"
        f"<details><summary>Source, in its plain form</summary><pre>{escape(view.source)}</pre></details></section>"
    )


def _details(explanation: Explanation) -> str:
    parts: list[str] = []
    if explanation.holds:
        rows = [(h.op, _kept(h.type), "result" if h.is_result else "inside", h.origin) for h in explanation.holds]
        parts.append(_titled("Operators of the model in it", _table(("operator", "type", "", "from"), rows)))
    if explanation.boundaries:
        reasons = "".join(
            f'<p class="reason">{_link(b.producer)} &rarr; {_link(b.consumer)} {escape(str(b.type))}: '
            f"{escape(b.reason)}</p>"
            for b in explanation.boundaries
        )
        parts.append(_titled("Why its neighbours are kernels of their own", reasons))
    more = f'<p class="soft">and {explanation.more_rivals} more</p>' if explanation.more_rivals else ""
    table = _table(RIVAL_HEAD, rival_rows(explanation), numbers=(1, 2))
    none = '<p class="soft">None: no other body for it was kept.</p>'
    parts.append(_titled("Other candidates for its result", table + more if explanation.rivals else none))
    if explanation.folded:
        parts.append(_titled("Constants folded for it", _folded(explanation.folded)))
    chains = [
        (", ".join(d.nodes), f"{d.origin} &rarr; " + " &rarr; ".join(map(escape, d.rules)))
        for d in explanation.derivations
    ]
    texts = {r: t for d in explanation.derivations for r, t in zip(d.rules, d.texts, strict=True)}
    listed = "".join(f"<div>{escape(text)}</div>" for text in texts.values())
    body = _table(("nodes", "imported operator and rules"), chains, markup=True)
    parts.append(
        f"<details open><summary>Rules that made its nodes</summary>{body}"
        f'<details><summary>Their text</summary><div class="mono">{listed}</div></details></details>'
    )
    return "".join(parts)


def _titled(title: str, body: str) -> str:
    return f"<h3>{escape(title)}</h3>{body}"


def _link(kernel: str) -> str:
    return f'<code data-kernel="{escape(kernel)}" tabindex="0">{escape(kernel)}</code>'


def _kept(text: str) -> str:
    """Keep a type on one line."""
    return text.replace(" ", "\u00a0")


def _kernel_table(report: Report) -> str:
    rows = [(*map(_kept, kernel_row(view)), ", ".join(view.rules)) for view in report.kernels]
    return _table((*KERNEL_HEAD, "rules"), rows, numbers=(2, 3, 4, 5), links=[view.name for view in report.kernels])


def _rule_table(report: Report) -> str:
    users = Counter(rule for user in (*report.kernels, *report.folded) for rule in user.rules)
    rows = [
        (
            rule.name,
            str(rule.matches),
            str(rule.nodes),
            str(users[rule.name]),
            tables.seconds(rule.seconds),
            report.account.chains.text_of(rule.name),
        )
        for rule in report.rules
    ]
    head = ("rule", "matches", "nodes", "used by", "time", "text")
    most = max(15, len(report.account.own_rules))
    few, rest = (_table(head, part, numbers=(1, 2, 3, 4)) for part in (rows[:most], rows[most:]))
    more = f"<details><summary>{len(rows) - most} more</summary>{rest}</details>" if len(rows) > most else ""
    note = "Your own come first. Used by so many chosen kernels and folded constants, which stand on what it made; "
    why = "fast.explain_rule(name) tells which, and why a rule matched nothing."
    return f'<p class="soft">{note}{why}</p>{few}{more}'


def _time(report: Report) -> str:
    stages = report.phase_seconds
    phases = [
        (p.name, p.stop, str(p.rounds), str(p.nodes), tables.seconds(p.seconds), tables.seconds(p.between_rounds_s))
        for p in report.phases
    ]
    head = ("phase", "stopped", "rounds", "nodes", "time", "between rounds")
    return (
        f"{_table([*stages], [[*map(tables.seconds, stages.values())]])}<h3>Saturation</h3>"
        f"{_table(head, phases, numbers=(2, 3, 4, 5))}<p>{escape(report.compile_line)}</p>"
    )


def _folded(constants: Iterable[Folded]) -> str:
    rows = [(row.name, _kept(str(row.type)), row.term, ", ".join(row.rules)) for row in constants]
    return _table(("constant", "type", "computed as", "rules"), rows)


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Sequence[int] = (),
    links: Sequence[str] = (),
    *,
    markup: bool = False,
) -> str:
    kind = [' class="n"' if i in numbers else "" for i in range(len(head))]
    lines = ["<tr>", *(f"<th{k}>{escape(cell)}</th>" for k, cell in zip(kind, head, strict=True)), "</tr>"]
    for number, row in enumerate(rows):
        link = f' data-kernel="{escape(links[number])}" tabindex="0"' if links else ""
        cells = (cell if markup else escape(cell) for cell in row)
        lines += [f"<tr{link}>", *(f"<td{k}>{cell}</td>" for k, cell in zip(kind, cells, strict=True)), "</tr>"]
    return f"<table>{''.join(lines)}</table>"
