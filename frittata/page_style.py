"""How the page looks, and what it does when it is pointed at: no outside fonts, styles or scripts."""

from __future__ import annotations

STYLE = """
:root { color-scheme:light dark; --ink:#1c2430; --soft:#66717f; --faint:#808b99; --line:#d9dfe7; --ground:#f5f7fa;
  --card:#fff; --accent:#2458d3; --tint:#e8effd; --chosen:#d6e3fc; --import:#8a5a00; --import-ground:#fff6e0;
  --outline:#c3ccd8; --edge:#aeb9c7; --input:#eef3ee; --constant:#f1f2f4; --buffer:#f3eefb; --track:#e7ebf1;
  --mono:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace; }
@media (prefers-color-scheme:dark) { :root { --ink:#dde3ea; --soft:#98a3b0; --faint:#8893a0; --line:#343c47;
  --ground:#14181d; --card:#1b2027; --accent:#86abff; --tint:#222e45; --chosen:#2a3f6b; --import:#e0b25c;
  --import-ground:#3a3120; --outline:#4a5462; --edge:#6a7686; --input:#233029; --constant:#272d35; --buffer:#302a41;
  --track:#2c333d; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--ground); color:var(--ink);
  font:14px/1.45 system-ui,"Segoe UI","DejaVu Sans",sans-serif; }
header { padding:18px 24px 14px; background:var(--card); border-bottom:1px solid var(--line); }
h1 { font-size:19px; margin:0 0 10px; }
h2 { font-size:15px; margin:0 0 8px; }
h3 { font-size:13px; margin:16px 0 6px; }
header p { margin:10px 0 0; }
.wide > p { margin:0 0 8px; }
.figures { display:flex; flex-wrap:wrap; gap:10px 28px; }
.figure b { display:block; font-size:17px; font-weight:600; }
.figure span { color:var(--soft); font-size:12px; }
main { display:grid; grid-template-columns:minmax(320px,max-content) minmax(0,1fr); gap:16px; padding:16px 24px; }
section { background:var(--card); border:1px solid var(--line); border-radius:8px; padding:14px 16px; overflow-x:auto; }
#program { align-self:start; position:sticky; top:12px; max-height:calc(100vh - 24px); overflow:auto;
  max-width:44vw; }
.panel .drawing { overflow:auto; max-height:74vh; margin:0 -6px; }
.wide { margin:0 24px 16px; }
table { border-collapse:collapse; font-size:12.5px; }
th { text-align:left; color:var(--soft); font-weight:500; border-bottom:1px solid var(--line);
  padding:3px 12px 3px 0; }
td { padding:3px 12px 3px 0; border-bottom:1px solid var(--line); vertical-align:top; }
td:last-child:not(.n) { min-width:16em; }
td.n, th.n { text-align:right; }
td.n { font-variant-numeric:tabular-nums; white-space:nowrap; }
code, pre, .mono { font-family:var(--mono); font-size:11.5px; }
pre { overflow:auto; background:var(--ground); border:1px solid var(--line); border-radius:6px; padding:10px;
  margin:6px 0; max-height:420px; }
pre.term { white-space:pre-wrap; }
summary { cursor:pointer; color:var(--accent); padding:3px 0; }
.soft { color:var(--soft); }
[data-kernel] { cursor:pointer; }
tr[data-kernel]:hover td, tr.here td { background:var(--tint); }
.legend { color:var(--soft); font-size:12px; margin:2px 0 8px; }
.legend i { display:inline-block; width:11px; height:11px; border-radius:3px; margin:0 4px -1px 12px;
  border:1px solid var(--line); }
.reason { margin:0 0 6px; }
.reason code { color:var(--accent); }
svg { display:block; font-family:var(--mono); font-size:11px; max-width:100%; height:auto; }
svg text { fill:var(--ink); }
svg .mid { text-anchor:middle; }
svg .end { text-anchor:end; }
svg .name { font-weight:600; }
svg .small, svg .note { font-size:9px; fill:var(--soft); }
svg .note { font-style:italic; }
svg .dim { fill:var(--soft); }
svg .tag { font-size:9.5px; fill:var(--accent); }
svg .box { fill:var(--card); stroke:var(--outline); }
svg .edge { fill:none; stroke:var(--edge); stroke-width:1.3; }
svg .edge:hover { stroke-width:3; }
svg .edge.chosen { stroke:var(--accent); stroke-width:1.6; opacity:.75; }
svg .edge.alternative { stroke:var(--import); stroke-dasharray:4 3; display:none; pointer-events:none; }
svg .edge.alternative.on { display:inline; }
svg .pill .box { fill:var(--input); }
svg .pill.view .box { fill:var(--card); stroke-dasharray:4 3; }
svg .kernel:hover .box { stroke:var(--accent); }
svg .kernel.here .box { stroke:var(--accent); stroke-width:2.2; fill:var(--tint); }
svg .track { fill:var(--track); }
svg .bar { fill:var(--accent); }
svg .value line { stroke:var(--line); }
svg .value.result > .box { stroke:var(--accent); stroke-width:2; }
svg .value.constant > .box { fill:var(--constant); }
svg .value.input > .box { fill:var(--input); }
svg .value.buffer > .box { fill:var(--buffer); }
svg .row .ground { fill:transparent; }
svg .row.chosen .ground { fill:var(--chosen); }
svg .row.imported .ground { fill:var(--import-ground); }
svg .row.imported .note { fill:var(--import); }
svg .row.other text { fill:var(--faint); }
svg .row:hover .ground { stroke:var(--accent); }
@media (max-width:1000px) { main { grid-template-columns:minmax(0,1fr); } #program { position:static;
  max-width:none; } }
"""

SCRIPT = """
(function () {
  var panels = Array.prototype.slice.call(document.querySelectorAll('.panel'));
  function reveal(box, mark) {
    var b = box.getBoundingClientRect(), m = mark.getBoundingClientRect();
    if (m.left < b.left || m.right > b.right) { box.scrollLeft += (m.left + m.right - b.left - b.right) / 2; }
    if (m.top < b.top || m.bottom > b.bottom) { box.scrollTop += (m.top + m.bottom - b.top - b.bottom) / 2; }
  }
  function select(name) {
    panels.forEach(function (panel) { panel.hidden = panel.dataset.panel !== name; });
    document.querySelectorAll('svg.program .kernel, tr[data-kernel]').forEach(function (mark) {
      mark.classList.toggle('here', mark.dataset.kernel === name);
    });
    reveal(document.getElementById('program'), document.querySelector('svg.program .here'));
    document.querySelectorAll('.panel:not([hidden]) .drawing').forEach(function (drawing) {
      var result = drawing.querySelector('.result');
      if (result) { reveal(drawing, result); }
    });
  }
  function asked() {
    var found = panels.filter(function (panel) {
      return '#' + encodeURIComponent(panel.dataset.panel) === location.hash;
    });
    return found.length ? found[0].dataset.panel : document.body.dataset.first;
  }
  function follow(event) {
    var mark = event.target.closest('[data-kernel]');
    if (mark) { location.hash = encodeURIComponent(mark.dataset.kernel); }
  }
  document.addEventListener('click', follow);
  document.addEventListener('keydown', function (event) { if (event.key === 'Enter') { follow(event); } });
  window.addEventListener('hashchange', function () {
    select(asked());
    var panel = document.querySelector('.panel:not([hidden])'), top = panel.getBoundingClientRect().top;
    if (top < 0 || top > window.innerHeight / 2) { panel.scrollIntoView(); }
  });
  function show(event, on) {
    var row = event.target.closest('.row');
    if (!row) { return; }
    row.ownerSVGElement.querySelectorAll('.alternative').forEach(function (edge) {
      if (edge.dataset.of === row.dataset.row) { edge.classList.toggle('on', on); }
    });
  }
  document.addEventListener('mouseover', function (event) { show(event, true); });
  document.addEventListener('mouseout', function (event) { show(event, false); });
  if (panels.length) { select(asked()); }
})();
"""
