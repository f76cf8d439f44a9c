"""The program and the e-graph as networkx graphs, and the layered layout."""

from pathlib import Path

import networkx as nx
import pytest

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.graphs import to_dot
from frittata.layout import lay_out
from frittata.optimized import Optimized
from frittata.tables import times


def test_program_graph_has_every_step_and_buffer(fast: Optimized) -> None:
    graph = fast.graph()
    kinds = {name: data["kind"] for name, data in graph.nodes(data=True)}
    assert [name for name, kind in kinds.items() if kind == "kernel"] == [kernel.name for kernel in fast.kernels]
    assert kinds["x"] == "input" and kinds["folded"] == "constant" and kinds["output 0"] == "output"
    assert graph.edges["matmul_relu", "softmax"] == {"buffers": ("matmul_relu",), "type": "f32[4, 24]", "bytes": 384}
    assert nx.is_directed_acyclic_graph(graph)


def test_egraph_graph_marks_what_was_chosen_and_by_which_rule(fast: Optimized) -> None:
    graph = fast.egraph.graph()
    nodes = [data for _, data in graph.nodes(data=True) if data["kind"] == "node"]
    chosen = {data["op"] for data in nodes if data["chosen"]}
    assert {"dot", "exp", "fold", "build"} <= chosen and "softmax" not in chosen
    (softmax,) = (data for data in nodes if data["op"] == "softmax" and data["imported"])
    assert softmax["label"] == "softmax(matmul_relu, -2)"
    assert any(data["rule"] == "legalize/split-softmax" for data in nodes)
    assert any(data["chosen"] for *_, data in graph.edges(data=True))


def test_egraph_graph_is_what_reaches_an_output(fast: Optimized) -> None:
    graph = fast.egraph.graph()
    output = fast.account.snapshot.class_by_term[fast.compilation.model.main.outputs[0]]
    assert set(graph) == {f"c{output}"} | nx.descendants(graph, f"c{output}")


def test_egraph_graph_around_an_operator_grows_with_the_radius(fast: Optimized) -> None:
    near, far = fast.egraph.graph(around="softmax", radius=0), fast.egraph.graph(around="softmax", radius=3)
    assert set(near) < set(far) <= set(fast.egraph.graph())


def test_dot_text_has_a_cluster_for_each_class(fast: Optimized) -> None:
    graph = fast.egraph.graph(around="softmax")
    text = to_dot(graph)
    classes = sum(data["kind"] == "class" for _, data in graph.nodes(data=True))
    assert text.count("subgraph") == classes
    assert text.count("{") == text.count("}")
    assert '"matmul_relu" -> "softmax"' in to_dot(fast.graph())


def test_graphs_are_there_before_anything_loads_them() -> None:
    assert ft.__getattr__("graphs").to_dot is to_dot


def test_dot_text_says_prices_rules_and_what_was_chosen(fast: Optimized) -> None:
    kernel = fast.kernel("matmul_relu")
    assert f'"matmul_relu\\n{kernel.template}\\n{times(kernel.predicted_s, kernel.measured_s)}"' in to_dot(fast.graph())
    text = to_dot(fast.egraph.graph())
    assert '[label="softmax(matmul_relu, -2)\\nimported", shape=box, style="filled", fillcolor="#fff6e0"]' in text
    chosen = [line for line in text.splitlines() if 'style="filled,bold"' in line]
    assert any("legalize/build-exp" in line for line in chosen)
    assert all("lhead=" in line for line in text.splitlines() if "->" in line)


def test_dot_text_of_a_program_with_a_join(joined: Optimized) -> None:
    graph = joined.graph()
    (join,) = (name for name, data in graph.nodes(data=True) if data["kind"] == "join")
    assert f'"{join}" [label="{join}", shape=plain]' in to_dot(graph)


def test_a_program_is_written_as_dot_and_nothing_as_what_it_is_not(fast: Optimized, tmp_path: Path) -> None:
    text = fast.show(tmp_path / "x.dot", "tiny").read_text()
    assert text.startswith('digraph "tiny"') and '"matmul_relu" -> "softmax"' in text
    with pytest.raises(ModelError, match=r"as .svg(.|\n)*.html, .dot"):
        fast.show(tmp_path / "x.svg")


def test_layout_points_down_without_overlap() -> None:
    sizes = {key: (60.0, 20.0) for key in "abcdef"}
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("d", "e"), ("c", "f")]
    drawing = lay_out(sizes, edges)
    for source, target in edges:
        assert drawing.boxes[source].y + 20 < drawing.boxes[target].y
        assert drawing.paths[source, target][-1] == (drawing.boxes[target].center, drawing.boxes[target].y)
    boxes = list(drawing.boxes.values())
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            assert one.y != other.y or one.x + one.width <= other.x or other.x + other.width <= one.x


def test_layout_avoids_a_crossing() -> None:
    sizes = {key: (10.0, 10.0) for key in "abxy"}
    boxes = lay_out(sizes, [("a", "y"), ("b", "x")]).boxes
    assert (boxes["a"].x < boxes["b"].x) == (boxes["y"].x < boxes["x"].x)
