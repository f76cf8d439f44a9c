"""Any valid choice gives a right program: the best one, and ones made badly on purpose."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import frittata as ft
from bench import workloads
from frittata.egraph import indexing, interpret, shapes
from frittata.egraph.errors import ExtractionError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import registry
from frittata.egraph.program import Program
from frittata.egraph.saturate import Saturation
from frittata.egraph.script import parse
from frittata.egraph.shapes import Shape
from frittata.egraph.snapshot import Node
from frittata.egraph.terms import Scalar
from frittata.extract import check
from frittata.extract.bodies import Body, contexts
from frittata.extract.candidates import OPTION_LIMIT, Candidate, Enumerator
from frittata.extract.choose import build_program, extract
from frittata.extract.collect import collect
from frittata.extract.constants import Folder
from frittata.extract.cuts import FOLDED, POINTWISE, everywhere, find_cuts
from frittata.extract.integer import Solution
from frittata.extract.problem import Problem
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_imported import Imported
from frittata.kernels.templates import TEMPLATES
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

SMALL = {
    "mlp": lambda: workloads.mlp(5, 4, 3, batch=2, dtype=torch.float64),
    "encoder": lambda: workloads.encoder_layer(6, 2, 4, tokens=3, batch=1, dtype=torch.float64),
    "block": lambda: workloads.basic_block(2, 4, batch=1, dtype=torch.float64),
}


def chaotic_choice(problem: Problem[Candidate], seed: int) -> set[int]:
    """Settle classes in random order by random candidates: valid, and bad."""
    rng = np.random.default_rng(seed)
    choice: dict[int, int] = {}
    while len(choice) < len(problem.by_class):
        ready = [
            n for n, c in enumerate(problem.candidates) if c.loads <= choice.keys() and set(c.produces) - choice.keys()
        ]
        number = int(rng.choice(ready))
        for class_ in problem.candidates[number].produces:
            choice.setdefault(class_, number)
    return check.needed(problem, choice)


def agree(program: Program, imported: Imported, args: tuple[torch.Tensor, ...]) -> bool:
    model = imported.model
    named = {t.attrs[0]: a.numpy() for t, a in zip(model.main.inputs, args, strict=True)}
    found = interpret.evaluate(program.to_terms(), {**model.params, **named})
    return all(
        np.allclose(f, e, rtol=1e-10, atol=1e-10) for f, e in zip(found, model.interpret(*named.values()), strict=True)
    )


def prepared(name: str) -> tuple[Imported, tuple[torch.Tensor, ...], Saturation]:
    module, args = SMALL[name]()
    imported = from_module(module, args)
    return imported, args, saturate_model(imported.model, choose_rules(Options()))


@pytest.mark.parametrize("name", SMALL)
def test_the_best_choice_computes_the_model(name: str) -> None:
    imported, args, found = prepared(name)
    main = imported.model.main
    result = extract(found.snapshot, main.inputs, main.outputs, TEMPLATES, REFERENCE, found.rule_names)
    assert agree(result.program, imported, args)
    assert result.solution.cost <= result.greedy_cost_s
    assert result.solution.gap < 0.01


@pytest.mark.parametrize("name", SMALL)
def test_chaotic_choices_compute_the_model(name: str) -> None:
    imported, args, found = prepared(name)
    main = imported.model.main
    roots = [found.snapshot.class_by_term[t] for t in main.outputs]
    given = {found.snapshot.class_by_term[t]: t for t in main.inputs}
    folder = Folder(found.snapshot)
    constants = folder.classes()
    enumerator = Enumerator(
        found.snapshot, TEMPLATES[-1:], REFERENCE, constants, constants | given.keys(), everywhere(found.snapshot)
    )
    problem = collect(enumerator, roots)
    assert problem.covers or name == "block"  # of which no convolution is computed by every program
    for seed in range(5):
        chosen = chaotic_choice(problem, seed)
        assert not any(map(chosen.isdisjoint, problem.covers)), seed
        solution = Solution(frozenset(chosen), check.cost(problem, chosen), 0.0)
        program = build_program(found.snapshot, folder, found.rule_names, main.inputs, roots, problem, solution)
        assert agree(program, imported, args), seed


def test_many_cheap_bodies_of_one_kind_leave_the_best_of_another() -> None:
    """A fold may stand over a point-wise body alone: cheaper ones with folds must not crowd it out."""

    def body(number: int, kind: int, work: float) -> Body:
        term = registry.element("const", value=Scalar.of(number, "i64"))
        return Body(term, {}, {number: term}, {}, kind, None, work, frozenset())

    _, _, found = prepared("mlp")
    enumerator = Enumerator(
        found.snapshot, TEMPLATES, REFERENCE, frozenset(), frozenset(), everywhere(found.snapshot)
    )
    folded = [body(number, FOLDED, float(number)) for number in range(2 * OPTION_LIMIT)]
    wanted = body(100, POINTWISE, 1000.0)
    kept = enumerator.pruned([*folded, wanted, body(101, POINTWISE, 2000.0)])
    assert kept == [*folded[:OPTION_LIMIT], wanted]
    bare = [replace(one, inlined={}) for one in (folded[0], wanted, body(101, POINTWISE, 2000.0))]
    assert enumerator.pruned(bare) == bare[:2]


def test_a_body_that_loads_a_part_of_a_tensor_is_charged_that_part() -> None:
    """Else a step of a recurrence would rather compute its part of a table again than load it."""
    model = parse("""
def main(x: f32[32, 64], w: f32[64, 7]) -> (f32[32, 7], f32[1, 64], f32[32, 1]):
    y: f32[32, 64] = exp(x)
    a: f32[32, 7] = matmul(y, w)
    b: f32[1, 64] = slice(y, axis=-2, start=3, step=1, length=1)
    c: f32[1, 64] = neg(b)
    d: f32[32, 1] = reduce_sum(y, axis=-1)
    return a, c, d
""")
    found = saturate_model(model, choose_rules(Options()))
    snapshot = found.snapshot
    a, *others = model.main.outputs
    y = snapshot.class_by_term[a.args[0]]
    enumerator = Enumerator(snapshot, TEMPLATES, REFERENCE, frozenset(), frozenset(), everywhere(snapshot))
    for term, expected in zip(others, (4.0 * 64, 4.0 * 32 * 64), strict=True):
        (build,) = snapshot.builds(snapshot.class_by_term[term])
        bodies = enumerator.bodies_of(build.args[0], shapes.concrete(term.shape))
        assert {body.reads[y] for body in bodies if y in body.reads} == {expected}


def test_what_no_kernel_computes_is_named_not_what_waits_for_it() -> None:
    model = parse("""
def main(x: f32[3, 5]) -> f32[3, 1]:
    found: i64[3, 1] = argmax(x, axis=-1)
    return exp(cast(found, dtype="f32"))
""")
    found = saturate_model(model, choose_rules(Options(disable=("legalize/build-argmax",))))
    main = model.main
    with pytest.raises(ExtractionError, match=r"i64\[3, 1\]\n.*argmax") as raised:
        extract(found.snapshot, main.inputs, main.outputs, TEMPLATES, REFERENCE, found.rule_names)
    assert raised.value.__context__ is None


@pytest.mark.parametrize("mask", ["window", "near", "hidden"])
def test_masks_of_places_are_constants_that_kernels_look_into(mask: str) -> None:
    """Attention computes what the queries of a block see, though the mask as a constant would be cheaper to read."""

    class Windows(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            at = torch.arange(q.shape[-2])
            ahead = at[None, :] - at[:, None]
            if mask == "hidden":
                scores = q @ k.transpose(-1, -2) / 6
                return scores.masked_fill((ahead > 0) | (ahead <= -32), -torch.inf).softmax(-1) @ v
            seen = (ahead <= 0) & (ahead > -32) if mask == "window" else ahead.abs() <= 16
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    given = [torch.randn(1, 2, 600, 32) for _ in range(3)]
    fast = ft.optimize(Windows().eval(), given, machine=REFERENCE)
    (kernel,) = fast.program.kernels
    assert kernel.template == "attention" and set(kernel.operands) == set(fast.program.inputs)
    torch.testing.assert_close(fast(*given), Windows()(*given), rtol=1e-5, atol=1e-5)


def test_no_two_buffers_have_one_name() -> None:
    """An argument has the bare name of an operator, a parameter the second one."""

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.softmax_2 = torch.nn.Parameter(torch.randn(4))

        def forward(self, softmax: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.softmax(softmax, -1)
            return y.sum(0), torch.softmax(y * self.softmax_2, -1).T @ y

    torch.manual_seed(0)
    model, x = Named().eval(), torch.randn(4, 4)
    fast = ft.optimize(model, (x,), machine=REFERENCE)
    program = fast.compilation.program
    names = [*program.inputs, *program.constants, *(output.name for k in program.kernels for output in k.outputs)]
    assert len(names) == len(set(names))
    torch.testing.assert_close(fast(x), model(x))


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_computed_on_the_way_is_stored_beside_it(count: int) -> None:
    type_, results = "f32[400, 300]", ["a", "b", "c"][:count]
    model = parse(f"""
def main(x: {type_}) -> ({", ".join([type_] * count)}):
    a: {type_} = exp(x)
    between: {type_} = neg(a)
    b: {type_} = tanh(between)
    c: {type_} = sqrt(b)
    return {", ".join(results)}
""")
    found, main = saturate_model(model, choose_rules(Options())), model.main
    args = (found.snapshot, main.inputs, main.outputs, TEMPLATES, REFERENCE, found.rule_names)
    extraction = extract(*args)
    (kernel,) = extraction.program.kernels
    assert len(kernel.outputs) == count
    wanted = {found.snapshot.class_by_term[term] for term in main.outputs}
    assert all(wanted.issuperset(candidate.produces) for candidate in extraction.problem.candidates)


CHANNELS = indexing.permute_map((4, 3), (1, 0))
CONTEXTS: dict[str, tuple[str, tuple[Any, ...], Shape, list[Shape] | None]] = {
    "a sum": ("fold", ("sum", -2, 5), (4, 1, 3), [(4, 5, 3)]),
    "a sum around": ("fold", ("sum", -3, 5), (3,), [(5, 1, 3)]),
    "running sums": ("scan", ("sum", -1, 3), (4, 3), [(4, 3)]),
    "running sums of one": ("scan", ("sum", -1, 1), (4, 3), [(4, 3)]),
    "running sums of others": ("scan", ("sum", -1, 5), (4, 3), None),
    "a product": ("dot", (5,), (2, 4, 3), [(2, 4, 5), (2, 5, 3)]),
    "windows": (
        "window_dot", ((6, 9, 9), 8, (3, 3), (1, 1), (0, 0), (1, 1), 2), (5, 8, 7, 7), [(5, 6, 9, 9), (8, 3, 3, 3)]
    ),
    "windows of one image": (
        "window_dot", ((6, 9, 9), 8, (3, 3), (1, 1), (0, 0), (1, 1), 2), (7, 7), [(6, 9, 9), (8, 3, 3, 3)]
    ),
    "tiles": ("winograd_dot", ((9, 9, 6), 8, (0, 0), 4), (5, 7, 7, 8), [(5, 9, 9, 6), (8, 6, 3, 3)]),
    "tiles of one image": ("winograd_dot", ((9, 9, 6), 8, (0, 0), 4), (7, 8), [(9, 9, 6), (8, 6, 3, 3)]),
    "a view": ("reindex", (CHANNELS,), (2, 3, 4), [(4, 3)]),
    "a view of others": ("reindex", (CHANNELS,), (2, 6, 4), None),
    "a look-up": ("at", (-2, 9), (4, 3), [(9, 3), (4, 3)]),
    "places": ("iota", (-1, 3, "f32"), (4, 3), []),
    "places of others": ("iota", (-1, 4, "f32"), (4, 3), None),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_operators_stand_where_their_indices_fit(name: str) -> None:
    op, attrs, context, expected = CONTEXTS[name]
    node = Node(op, "element", tuple(range(len(expected or ()))), attrs, 0)
    assert contexts(node, context) == expected


def test_what_binders_have_to_load_is_stored_and_what_only_passes_is_not() -> None:
    model = parse("""
def main(x: f32[6, 4], w: f32[4, 5], v: f32[5, 3]) -> (f32[6, 3], f32[6, 3], f32[6, 5], f32[6, 1]):
    product: f32[6, 5] = matmul(x, w)
    twice: f32[6, 3] = matmul(product, v)
    read: f32[6, 5] = tanh(product)
    again: f32[6, 3] = matmul(read, v)
    passing: f32[6, 5] = sin(product)
    result: f32[6, 5] = cos(passing)
    begun: f32[6, 4] = exp(x)
    held: f32[6, 5] = matmul(begun, w)
    folded: f32[6, 5] = relu(held)
    most: f32[6, 1] = reduce_max(folded, axis=-1)
    return twice, again, result, most
""")
    main = model.main
    snapshot = saturate_model(model, choose_rules(Options())).snapshot
    cuts = find_cuts(snapshot, [snapshot.class_by_term[term] for term in main.outputs])
    twice, again, result, most = main.outputs
    (passing,), (folded,), product, read = result.args, most.args, twice.args[0], again.args[0]
    (held,) = folded.args
    must, may, never = (product, folded), (read, held.args[0]), (passing, held)
    number = snapshot.class_by_term
    assert all(number[term] in cuts.must & cuts.may for term in must)
    assert all(number[term] in cuts.may - cuts.must for term in may)
    assert not any(number[term] in cuts.may for term in never)
