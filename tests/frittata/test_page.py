"""The page: whole, well-formed, and dependent on nothing outside of it."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
import frittata.page as pages
from frittata.drawing import CHAR, program_svg
from frittata.egraph.machine import REFERENCE
from frittata.explain import explain, rival_rows
from frittata.optimized import Optimized
from frittata.page_style import SCRIPT, STYLE
from frittata.values import values_of


class Checker(HTMLParser):
    """Collects tags and attributes, and what is not closed as it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page(fast: Optimized, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fast.show(tmp_path_factory.mktemp("page") / "x.html", "A title <b>").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    return checker


def test_every_element_is_closed(checked: Checker) -> None:
    assert not checked.wrong
    assert not checked.open


def test_every_kernel_has_a_panel_with_a_drawing(page: str, fast: Optimized) -> None:
    for kernel in fast.kernels:
        panel = page.partition(f'data-panel="{kernel.name}"')[2].partition("</section>")[0]
        assert '<svg class="egraph"' in panel
        assert "@numba.njit" in panel


def test_rules_stand_beside_the_forms_that_they_made(checked: Checker) -> None:
    text = "\n".join(checked.text)
    for rule in ("legalize/split-softmax", "legalize/build-matmul", "scalar/invert-div"):
        assert rule in text
    assert "imported" in text and "gap against" in text


def test_the_page_says_what_explanations_and_the_report_say(cache: Path, tmp_path: Path) -> None:
    x, v = np.ones((64, 64), np.float32), np.arange(64, dtype=np.float32)

    def two(x: Any, y: Any) -> Any:
        return np.exp(x) + y, np.exp(x) * y + ft.ops.mul(v, v)

    fast = ft.optimize(two, (x, x), machine=REFERENCE, cache=cache)
    page = unescape(fast.show(tmp_path / "x.html").read_text(encoding="utf-8"))
    rows = [cell for kernel in fast.kernels for row in rival_rows(explain(fast.account, kernel.name)) for cell in row]
    assert any("also stores" in cell for cell in rows)
    told = [row.term for kernel in fast.kernels for row in explain(fast.account, kernel.name).folded]
    assert told
    for text in (*rows, *told, *fast.report.notes):
        assert text in page
    panel = page.partition('data-panel="')[2].partition("</section>")[0]
    assert told[0] in panel


def test_a_result_is_no_form_of_itself(fast: Optimized) -> None:
    for kernel in fast.program.kernels:
        for value in values_of(fast.account, kernel):
            notes = {row.text: row.note for row in value.rows if row.text.startswith("load(") and not row.chosen}
            assert value.kind != "result" or not notes
            assert set(notes.values()) <= {"if a kernel stores it"}


def test_what_kernels_write_parts_of_leads_to_one_of_them(joined: Optimized) -> None:
    leaves = [value for kernel in joined.program.kernels for value in values_of(joined.account, kernel)]
    (read,) = (leaf for leaf in leaves if leaf.title == "join")
    assert joined.graph().has_edge(read.kernel, "join")


def test_what_can_be_clicked_can_be_reached_by_keys(checked: Checker) -> None:
    linked = [tag for tag, name, _ in checked.attributes if name == "data-kernel"]
    assert {"g", "tr", "code"} <= set(linked)
    assert len(linked) == len([tag for tag, name, _ in checked.attributes if name == "tabindex"])
    assert "keydown" in SCRIPT and "hashchange" in SCRIPT


def test_drawings_shrink_to_what_there_is_room_for(checked: Checker) -> None:
    styles = [value or "" for tag, name, value in checked.attributes if (tag, name) == ("svg", "style")]
    assert styles and all(re.fullmatch(r"min-width:\d+px", value) for value in styles)
    assert re.search(r"svg \{[^}]*max-width:100%", STYLE)


def test_every_color_has_a_name_and_a_dark_value() -> None:
    light, dark = re.findall(r":root \{([^}]*)\}", STYLE)
    defined = set(re.findall(r"--([\w-]+):#", light))
    assert defined == set(re.findall(r"--([\w-]+):#", dark))
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE)) | {name for name, _ in pages._LEGEND}  # pyright: ignore[reportPrivateUsage]
    assert used - {"mono"} == defined
    assert "#" not in re.sub(r"#program", "", STYLE.partition("* { box-sizing")[2])


def test_a_long_type_leaves_room_for_times(cache: Path) -> None:
    script = "def main(x: f32[111, 222, 111, 222, 111]) -> f32[111, 222, 111, 222, 111]:\n    return exp(x)\n"
    account = ft.optimize(ft.parse(script), machine=REFERENCE, cache=cache).account
    account.measured["exp"] = 0.0123
    drawing = program_svg(account)
    left = re.search(r'<text x="([\d.]+)" y="[\d.]+" class="dim">(f32.*?)<', drawing)
    right = re.search(r'<text x="([\d.]+)" y="[\d.]+" class="end">(.*? / 12.3 ms)<', drawing)
    assert left and right
    assert float(left[1]) + len(left[2]) * CHAR < float(right[1]) - len(right[2]) * CHAR


def test_rules_say_how_many_kernels_and_constants_stand_on_them(page: str, fast: Optimized) -> None:
    for rule in fast.report.rules:
        row = page.partition("<h2>Rules</h2>")[2].partition(f"<td>{rule.name}</td>")[2].partition("</tr>")[0]
        stands = sum(rule.name in user.rules for user in (*fast.kernels, *fast.report.folded))
        assert re.findall(r'<td class="n">(.*?)</td>', row)[:3] == [str(rule.matches), str(rule.nodes), str(stands)]


def test_nothing_is_loaded_from_outside(page: str, checked: Checker) -> None:
    assert not re.search(r"https?:|//\w+\.|@import|url\(", page)
    assert not [name for _, name, _ in checked.attributes if name in ("src", "href", "xlink:href")]


def test_styles_are_well_formed() -> None:
    assert STYLE.count("{") == STYLE.count("}")
    assert all(line.count('"') % 2 == 0 for line in STYLE.splitlines())  # a string that is left open voids the sheet


def test_names_are_escaped(page: str) -> None:
    assert "A title &lt;b&gt;" in page
    assert "A title <b>" not in page


def test_drawings_have_sizes(checked: Checker) -> None:
    widths = [float(value or 0) for tag, name, value in checked.attributes if tag == "svg" and name == "width"]
    assert widths and min(widths) > 50


def test_notebooks_get_the_page_in_a_frame(fast: Optimized, tmp_path: Path) -> None:
    html = fast._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert html.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in html
    assert "matmul_relu" in unescape(html)
