"""One page that shows what was chosen and why; it needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import frittata.tables as tables
from frittata.account import KernelView
from frittata.drawing import kernel_svg, program_svg
from frittata.explain import Explanation, explain, signed
from frittata.page_style import SCRIPT, STYLE
from frittata.report import KERNEL_HEAD, Report, kernel_row

_LEGEND = (
    ("#d6e3fc", "chosen form"),
    ("#fff6e0", "as imported"),
    ("#fff", "other forms, by the rule named beside them"),
    ("#f3eefb", "result of another kernel"),
    ("#f1f2f4", "constant"),
)


def page(report: Report, title: str = "frittata") -> str:
    """Return the page as HTML text."""
    script = str(report.account.program.as_model(report.compilation.model))
    dearest = max(report.kernels, key=lambda view: view.predicted_s, default=None)
    first = dearest.name if dearest else ""
    body = (
        _header(report, title),
        f'<main><section id="program"><h2>Program</h2>{program_svg(report.account)}</section>',
        f"<div>{''.join(_panel(report, view, view.name == first) for view in report.kernels)}</div></main>",
        f'<section class="wide"><h2>Kernels</h2>{_kernel_table(report)}</section>',
        f'<section class="wide"><h2>Rules</h2>{_rule_table(report)}</section>',
        f'<section class="wide"><h2>Time</h2>{_time(report)}</section>',
        f'<section class="wide"><h2>Folded before run time</h2>{_folded(report)}</section>' if report.folded else "",
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
        ("library calls", str(len(report.library))),
        ("fallbacks", str(len(report.externs))),
    ]
    shown = "".join(f'<div class="figure"><b>{escape(v)}</b><span>{escape(name)}</span></div>' for name, v in figures)
    return f'<header><h1>{escape(title)}</h1><div class="figures">{shown}</div></header>'


def _panel(report: Report, view: KernelView, visible: bool) -> str:
    explanation = explain(report.account, view.name)
    legend = "".join(f'<i style="background:{color}"></i>{escape(text)}' for color, text in _LEGEND)
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
        "Point at a form for its rule.</div>"
        f'<div class="drawing">{kernel_svg(report.account, view.kernel)}</div>'
        f"<h3>Computes</h3><pre class=term>{escape(view.op)}</pre>{_details(explanation)}"
        f"<details><summary>Source, in its plain form</summary><pre>{escape(view.source)}</pre></details></section>"
    )


def _details(explanation: Explanation) -> str:
    parts: list[str] = []
    if explanation.holds:
        rows = [(h.op, h.type, "result" if h.is_result else "inside", h.origin) for h in explanation.holds]
        parts.append(_titled("Operators of the model in it", _table(("operator", "type", "", "from"), rows)))
    if explanation.boundaries:
        reasons = "".join(
            f'<p class="reason"><code>{escape(b.producer)} &rarr; {escape(b.consumer)}</code> {escape(str(b.type))}: '
            f"{escape(b.reason)}</p>"
            for b in explanation.boundaries
        )
        parts.append(_titled("Why its neighbours are kernels of their own", reasons))
    rivals = [
        (r.template, tables.seconds(r.seconds), signed(r.delta_s), signed(r.program_delta_s), ", ".join(r.loads))
        for r in explanation.rivals
    ]
    more = f'<p class="soft">and {explanation.more_rivals} more</p>' if explanation.more_rivals else ""
    table = _table(("template", "price", "kernel", "program", "loads"), rivals, numbers=(1, 2, 3))
    none = '<p class="soft">None: no other body for it was kept.</p>'
    parts.append(_titled("Other candidates for its result", table + more if rivals else none))
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


def _kernel_table(report: Report) -> str:
    rows = [(*kernel_row(view), ", ".join(view.rules)) for view in report.kernels]
    return _table((*KERNEL_HEAD, "rules"), rows, numbers=(2, 3, 4, 5), links=[view.name for view in report.kernels])


def _rule_table(report: Report) -> str:
    rows = [
        (
            rule.name,
            str(rule.matches),
            str(rule.nodes),
            tables.seconds(rule.seconds),
            report.account.chains.text_of(rule.name),
        )
        for rule in report.rules
    ]
    head = ("rule", "matches", "nodes", "time", "text")
    few, rest = rows[:15], rows[15:]
    more = (
        f"<details><summary>{len(rest)} more</summary>{_table(head, rest, numbers=(1, 2, 3))}</details>" if rest else ""
    )
    return _table(head, few, numbers=(1, 2, 3)) + more


def _time(report: Report) -> str:
    stages = [(name, tables.seconds(spent)) for name, spent in report.phase_seconds.items()]
    phases = [
        (p.name, p.stop, str(p.rounds), str(p.nodes), tables.seconds(p.seconds), tables.seconds(p.between_rounds_s))
        for p in report.phases
    ]
    info = report.compile
    compiled = f"{info['distinct']} distinct kernels: {info['compiled']} compiled, {info['cached']} from the cache."
    head = ("phase", "stopped", "rounds", "nodes", "time", "between rounds")
    return (
        f"{_table(('stage', 'time'), stages, numbers=(1,))}<h3>Saturation</h3>"
        f"{_table(head, phases, numbers=(2, 3, 4, 5))}<p>{escape(compiled)}</p>"
    )


def _folded(report: Report) -> str:
    rows = [(row.name, str(row.type), row.term, ", ".join(row.rules)) for row in report.folded]
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
        link = f' data-kernel="{escape(links[number])}"' if links else ""
        cells = (cell if markup else escape(cell) for cell in row)
        lines += [f"<tr{link}>", *(f"<td{k}>{cell}</td>" for k, cell in zip(kind, cells, strict=True)), "</tr>"]
    return f"<table>{''.join(lines)}</table>"
