"""Models that differentiate or vectorize, which torch.export cannot follow: what they call is traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).eval()


NET, POINTS = net(), torch.randn(5, 3)


def value(point: Tensor) -> Tensor:
    return NET(point).squeeze(-1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "grad": grad(lambda x: NET(x).sum()),
    "vmap": vmap(lambda x: value(x) * 2),
    "jacrev": jacrev(lambda x: x[:, 0] * x[:, 1] * 2),
    "jacfwd": jacfwd(lambda x: x[:2].sin()),
    "vmap jacrev": vmap(jacrev(value)),
    "hessian": lambda x: hessian(value)(x[0]),
    "vmap hessian": vmap(hessian(value)),
    "jvp": lambda x: jvp(NET, (x,), (x + 1,)),
    "vmap along another axis": lambda x: vmap(lambda y, z: y.sin() * z, in_dims=(1, None), out_dims=1)(x, x[:, 0]),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # which torch.func uses
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_torch_func_transforms_is_as_torch_has_it(name: str) -> None:
    function = FUNCTIONS[name]
    got = ft.optimize(lambda x: function(x), (POINTS,), machine=REFERENCE, fallback="error")(POINTS)
    torch.testing.assert_close(got, function(POINTS), rtol=1e-5, atol=1e-6)


class Forces(nn.Module):
    """Energies of points, and what pulls at them: minus the gradient. Source: Behler and Parrinello, 2007."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, points: Tensor, *, scale: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.enable_grad():
            points = points.detach().requires_grad_(True)
            energy = self.net(points * scale["of"]).sum()
            (gradient,) = torch.autograd.grad(energy, points)
        return {"energy": energy.detach(), "forces": -gradient}


def test_gradients_within_a_model() -> None:
    model, scale = Forces().eval(), {"of": torch.tensor(0.5)}
    fast = ft.optimize(model, (POINTS,), kwargs={"scale": scale}, machine=REFERENCE, fallback="error")
    expected = model(POINTS, scale=scale)
    got = fast(POINTS, scale=scale)
    assert list(got) == list(expected)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "layer norm": (lambda: nn.LayerNorm(8), (2, 5, 8), "error"),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), (2, 5, 16), "error"),
    "images": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, 2), nn.GELU(), nn.MaxPool2d(2)), (1, 2, 11, 13), "extern"),
}
"""Layers, shapes of their arguments, and whether all that their gradients call has a definition."""


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(name: str) -> None:
    torch.manual_seed(0)
    make, shape, fallback = LAYERS[name]
    layer, x = make().eval(), torch.randn(shape)

    def gradient(x: Tensor) -> Tensor:
        return grad(lambda y: layer(y).square().sum())(x)

    got = ft.optimize(gradient, (x,), machine=REFERENCE, fallback=fallback)(x)
    torch.testing.assert_close(got, gradient(x), rtol=1e-4, atol=1e-5)


def test_the_second_result_of_fused_attention_is_not_what_torch_decomposes_it_to() -> None:
    def sums(q: Tensor) -> Tensor:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)[1]

    with pytest.raises(ft.FrittataError, match="result 1"):
        ft.optimize(sums, (torch.randn(1, 2, 5, 8),), machine=REFERENCE)


def test_parameters_have_their_names_and_are_looked_at() -> None:
    model, kwargs = Forces().eval(), {"scale": {"of": torch.tensor(2.0)}}
    imported = from_module(model, (POINTS,), kwargs)
    assert {"net.0.weight", "net.0.bias", "net.2.weight"} <= imported.model.params.keys()
    fast = ft.optimize(model, (POINTS,), kwargs=kwargs, machine=REFERENCE)
    with torch.no_grad():
        model.get_parameter("net.0.weight").mul_(2)
    with pytest.raises(ft.FrittataError, match=r"net\.0\.weight"):
        fast(POINTS, **kwargs)


def of_squares(x: Tensor) -> Tensor:
    return grad(lambda y: y.square().sum())(x)


VALUES: dict[str, Callable[..., Any]] = {
    "a branch": lambda x: of_squares(x) if x.sum() > 0 else x,
    "a size": lambda x: of_squares(x)[: int(x.abs().sum().item())],
    "an array": lambda x: of_squares(x) * torch.from_numpy(x.numpy()),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_depends_on_values_is_refused_as_before(name: str) -> None:
    with pytest.raises(ModelError, match=r"torch\.export cannot follow|is made of the values of a tensor"):
        ft.optimize(VALUES[name], (POINTS,), machine=REFERENCE)


@pytest.mark.parametrize(
    "function", [lambda x: of_squares(x) * x.sum().item(), lambda x: of_squares(x) * x.tolist()[0][0]]
)
def test_numbers_made_of_values_are_those_of_each_call(function: Callable[[Tensor], Tensor]) -> None:
    fast = ft.optimize(function, (POINTS,), machine=REFERENCE)
    torch.testing.assert_close(fast(3 - POINTS), function(3 - POINTS))


class Powers(nn.Module):
    """Gradients, and a size, that a buffer decides, of which a call may make another."""

    power: Tensor

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.register_buffer("power", torch.tensor(2))
        self.counts = counts

    def forward(self, x: Tensor) -> Tensor:
        self.power.add_(self.counts)
        return grad(lambda y: (y ** (self.power + 1).item()).sum())(x) if x.ndim == 2 else x[: int(self.power)]


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("x", [POINTS, POINTS[0]], ids=["a power", "a size"])
def test_numbers_of_the_modules_own_tensors_are_not_fixed(counts: bool, x: Tensor) -> None:
    with pytest.raises(ModelError, match="made of the values of a tensor") as caught:
        ft.optimize(Powers(counts).eval(), (x,), machine=REFERENCE)
    assert "test_torch_traced.py" in str(caught.value)


def test_numbers_of_literals_are_fixed() -> None:
    def function(x: Tensor) -> Tensor:
        return grad(lambda y: (y ** (torch.tensor(2) + 1).item()).sum())(x) * torch.tensor(3).item()

    fast = ft.optimize(function, (POINTS,), machine=REFERENCE, fallback="error")
    torch.testing.assert_close(fast(POINTS), function(POINTS))


class Step(nn.Module):
    """A step along the gradient by its own weights, then the layer. Source: Finn, Abbeel and Levine, 2017."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor, rates: tuple[float, None]) -> tuple[Tensor, None, Tensor]:
        with torch.enable_grad():
            weight, bias = torch.autograd.grad(self.layer(x).square().sum(), tuple(self.layer.parameters()))
        moved = nn.functional.linear(x, self.layer.weight - rates[0] * weight, self.layer.bias - rates[0] * bias)
        return moved, rates[1], weight


def test_gradients_by_parameters_beside_arguments_that_are_no_tensors() -> None:
    model, args = Step().eval(), (POINTS, (0.1, None))
    fast = ft.optimize(model, args, machine=REFERENCE, fallback="error")
    torch.testing.assert_close(fast(*args), model(*args), rtol=1e-5, atol=1e-6)


def _branches(x: Tensor) -> tuple[Tensor, Tensor]:
    inner = partial(torch.cond, true_fn=lambda x: x * 3, false_fn=lambda x: x.exp(), operands=(x,))
    return torch.cond(x.sum() > 0, lambda x: (x.sin(), x > 0), lambda x: (inner(x[:1, 0] > 0), x > 1), (x,))


BRANCHES: dict[str, Callable[[Tensor], Any]] = {
    "beside": lambda x: (*_branches(x), of_squares(x)),
    "inside": lambda x: of_squares(_branches(x)[0]),
    "known": lambda x: torch.cond(len(x) > 3, torch.sin, torch.cos, (x,)) + of_squares(x),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_beside_what_is_transformed(name: str) -> None:
    fast = ft.optimize(BRANCHES[name], (POINTS,), machine=REFERENCE, fallback="error")
    for given in (POINTS, POINTS.abs(), -POINTS.abs()):
        torch.testing.assert_close(fast(given), BRANCHES[name](given), rtol=1e-5, atol=1e-6)


def test_scans_beside_what_is_transformed_are_refused_and_go_on_in_torch() -> None:
    def sums(x: Tensor) -> Tensor:
        return scan(lambda total, row: (total + row, total * row), torch.zeros(x.shape[1:]), x)[1]

    with pytest.raises(ModelError, match=r"calls scan beside derivatives(.|\n)*loops in Python"):
        ft.optimize(lambda x: sums(x) + of_squares(x), (POINTS,), machine=REFERENCE)
    assert sums(POINTS).shape == POINTS.shape


def test_where_gradients_are_enabled_and_none_is_taken_the_export_is_kept() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.enable_grad():  # as lazy properties of torch.distributions do
            y = x.exp()
        return y[:3] + torch.linalg.cholesky(x.T @ x + torch.eye(3))

    fast = ft.optimize(function, (POINTS,), machine=REFERENCE)
    torch.testing.assert_close(fast(POINTS), function(POINTS), rtol=1e-5, atol=1e-6)


def test_no_line_of_the_compiler_is_told_as_one_of_the_model() -> None:
    fast = ft.optimize(lambda x: of_squares(x) + x.sin(), (POINTS,), machine=REFERENCE)
    assert not any(fast.compilation.model.origin_by_term.values())


def test_dynamic_sizes_are_refused_in_words() -> None:
    rows = torch.export.Dim("rows", min=2, max=50)
    with pytest.raises(ModelError, match="sizes are dynamic"):
        from_module(Rows().eval(), (POINTS,), dynamic_shapes=({0: rows},))


class Rows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return vmap(lambda row: row.sin().sum())(x)


class Biased(nn.Module):
    """Attention within documents, with a bias by distance of each head. Source: Press, Smith and Lewis, 2022."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.25]))

    def forward(self, q: Tensor, k: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
        def bias(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score - self.slopes[head] * (i - j).abs()

        def seen(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (document[batch, i] == document[batch, j]) & (j > 0)

        mask = create_block_mask(seen, q.shape[0], None, q.shape[2], k.shape[2], device="cpu")
        free: Any = flex_attention(q, k, k, score_mod=bias)
        return free, flex_attention(q, k, k, score_mod=bias, block_mask=mask, enable_gqa=True)  # type: ignore[return-value]


def test_attention_whose_scores_and_masks_are_functions() -> None:
    torch.manual_seed(0)
    model, q, document = Biased().eval(), torch.randn(2, 2, 9, 8), torch.tensor([[0] * 9, [0] + [1] * 8])
    distance = (torch.arange(9)[:, None] - torch.arange(9)).abs()
    scores = q @ q.mT / 8**0.5 - model.slopes[:, None, None] * distance
    sees = ((document[:, :, None] == document[:, None]) & (torch.arange(9) > 0))[:, None]
    free, within = ft.optimize(model, (q, q, document), machine=REFERENCE, fallback="error")(q, q, document)
    torch.testing.assert_close(free, scores.softmax(-1) @ q, rtol=1e-5, atol=1e-5)
    expected = scores.masked_fill(~sees, -torch.inf).softmax(-1).nan_to_num() @ q  # one row sees nothing
    torch.testing.assert_close(within, expected, rtol=1e-5, atol=1e-5)
