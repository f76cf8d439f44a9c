"""Parameters that change after `optimize`: noticed, or read at every call."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from frittata.egraph.errors import StaleParametersError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Model
from frittata.kernels.runtime import Executable
from frittata.parameters import Guard

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def weight(module: nn.Sequential, layer: int) -> nn.Parameter:
    return module.get_parameter(f"{layer}.weight")


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).eval()


def written(module: nn.Sequential) -> None:
    with torch.no_grad():
        weight(module, 0).mul_(2)


def replaced(module: nn.Sequential) -> None:
    module[3].register_parameter("weight", nn.Parameter(torch.ones(3, 5)))


def loaded(module: nn.Sequential) -> None:
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})


def assigned(module: nn.Sequential) -> None:
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()}, assign=True)


def moved(module: nn.Sequential) -> None:
    weight(module, 0).data = weight(module, 0).data + 1


def a_buffer(module: nn.Sequential) -> None:
    module[1].register_buffer("running_mean", torch.ones_like(module[1].get_buffer("running_mean")))


def a_layer(module: nn.Sequential) -> None:
    torch.manual_seed(1)
    module[3] = nn.Linear(5, 3)


CHANGES = {f.__name__: f for f in (written, replaced, loaded, assigned, moved, a_buffer, a_layer)}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_and_freeze_drops_the_check(name: str, cache: Path) -> None:
    module = model()
    guarded = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    folded = ft.optimize(module, (X,), machine=REFERENCE, cache=cache, freeze=True)
    before = guarded(X)
    CHANGES[name](module)
    with pytest.raises(StaleParametersError, match=r"was changed(.|\n)*frittata.optimize again"):
        guarded(X)
    torch.testing.assert_close(folded(X), before)


def test_a_module_without_parameters_that_takes_the_place_of_another_is_noticed(cache: Path) -> None:
    module = nn.Sequential(nn.Tanh(), nn.Sequential(nn.ReLU())).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    fast(X)
    module[1].register_module("0", nn.Sigmoid())
    with pytest.raises(StaleParametersError, match="submodule '0' was changed"):
        fast(X)


def test_a_module_in_an_empty_one_is_noticed(cache: Path) -> None:
    empty = nn.Sequential()
    module = nn.Sequential(nn.Tanh(), empty).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    empty.append(nn.Sigmoid())
    with pytest.raises(StaleParametersError, match="submodule '0' was changed"):
        fast(X)


@pytest.mark.parametrize("which", [0, 1])
def test_each_name_of_a_parameter_that_modules_share_is_guarded(which: int, cache: Path) -> None:
    width = X.shape[-1]
    module = nn.Sequential(nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)).eval()
    module[1].weight = module[0].weight
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    module[which].weight = nn.Parameter(torch.ones(width, width))
    with pytest.raises(StaleParametersError, match="weight' was changed"):
        fast(X)


def test_without_freezing_all_names_of_a_parameter_that_modules_share_are_read(cache: Path) -> None:
    def linear() -> nn.Linear:
        return nn.Linear(X.shape[-1], X.shape[-1], bias=False)

    module = nn.Sequential(linear(), nn.Tanh(), linear(), nn.Tanh(), inner := linear(), inner).eval()
    module[2].weight = module[0].weight
    live = ft.optimize(module, (X,), machine=REFERENCE, cache=cache, freeze=False)
    with torch.no_grad():
        module.load_state_dict({name: torch.randn_like(value) for name, value in module.state_dict().items()})
        torch.testing.assert_close(live(X), module(X))
        module[0].weight = module[2].weight = linear().weight
        torch.testing.assert_close(live(X), module(X))
        module[2].weight = linear().weight
        with pytest.raises(StaleParametersError, match=r"'[02].weight' and '[02].weight' were one"):
            live(X)
        module[2] = module[0]
        torch.testing.assert_close(live(X), module(X))
        module[5] = linear()
        with pytest.raises(StaleParametersError, match=r"'[45].weight' and '[45].weight' were one"):
            live(X)


def test_without_freezing_a_parameter_that_is_gone_is_an_error(cache: Path) -> None:
    module = model()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache, freeze=False)
    del module[3]
    with pytest.raises(StaleParametersError, match=r"'3.weight' is not there any more"):
        fast(X)


class Shifted(nn.Module):
    """A module with a tensor that it has not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shift


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_another_tensor_in_an_attribute_is_noticed_or_read(depth: int, cache: Path) -> None:
    inner = module = Shifted().eval()
    for _ in range(depth):
        module = nn.Sequential(module).eval()
    guarded = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    live = ft.optimize(module, (X,), machine=REFERENCE, cache=cache, freeze=False)
    torch.testing.assert_close(guarded(X), X + 1)
    inner.shift = torch.full((4,), 5.0)
    with pytest.raises(StaleParametersError, match=r"shift' was changed"):
        guarded(X)
    torch.testing.assert_close(live(X), X + 5)


@pytest.mark.parametrize("change", [replaced, moved, a_buffer, a_layer])
def test_parameters_that_were_made_in_inference_mode_are_guarded(
    change: Callable[[nn.Sequential], None], cache: Path
) -> None:
    with torch.inference_mode():
        module = model()
        fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
        torch.testing.assert_close(fast(X), module(X))
        change(module)
        for _ in range(2):
            with pytest.raises(StaleParametersError, match="was changed"):
                fast(X)


def of_many_parameters() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.BatchNorm1d(4)))
    return nn.Sequential(*layers, nn.LayerNorm(4)).eval()


def another_activation(module: nn.Sequential) -> None:
    module[3] = nn.Identity()


def in_shared_memory(module: nn.Sequential) -> None:
    module.share_memory()


def test_of_many_parameters_those_are_looked_at_before_a_run_that_it_reads_where_they_lie(cache: Path) -> None:
    module = of_many_parameters()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    executable = fast.compilation.executable
    assert isinstance(executable, Executable)
    guard = Guard(dict(module.named_parameters()), module)
    read, others = guard.divided(lambda tensor: executable.reads_in_place(tensor.data_ptr(), tensor.data_ptr() + 1))
    assert (len(read), len(others)) == (2, len(guard) - 2)
    module[12].get_parameter("weight").data = torch.ones(4)
    others.check()
    with pytest.raises(StaleParametersError):
        read.check()


@pytest.mark.parametrize("change", [written, moved, a_buffer, in_shared_memory, another_activation])
def test_a_change_of_one_of_many_parameters_is_noticed(change: Callable[[nn.Sequential], None], cache: Path) -> None:
    module = of_many_parameters()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(X), module(X), rtol=1e-4, atol=1e-5)
    change(module)
    for _ in range(2):
        with pytest.raises(StaleParametersError, match="was changed"):
            fast(X)


@pytest.mark.parametrize("form", ["fast", "plain"])
def test_without_freezing_parameters_are_read_at_every_call(form: str, cache: Path) -> None:
    module = model()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=cache, freeze=False, form=form)
    assert not fast.report.folded and set(fast.program.inputs) > {"0_weight", "1_running_mean"}
    for change in (lambda _: None, *CHANGES.values()):
        change(module)
        with torch.no_grad():
            torch.testing.assert_close(fast(X), module(X), rtol=1e-4, atol=1e-5)


def test_without_freezing_kernels_are_measured_on_the_parameters(cache: Path) -> None:
    fast = ft.optimize(model(), (X,), machine=REFERENCE, cache=cache, freeze=False)
    assert set(fast.measure()) == {kernel.name for kernel in fast.kernels}


def test_without_freezing_the_params_of_a_script_are_read_too(cache: Path) -> None:
    script = """
def main(w_x: f32[2, 3], param w.x: f32[3, 3]) -> f32[2, 3]:
    v1: f32[2, 3] = matmul(w_x, w_x_)
    return v1
""".replace("param w.x", 'param w_x_ = "w.x"')
    values = {"w.x": np.eye(3, dtype=np.float32)}
    fast = ft.optimize(Model(ft.parse(script).functions, values), machine=REFERENCE, cache=cache, freeze=False)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(fast(x), x)
    values["w.x"][0, 0] = 3
    np.testing.assert_array_equal(fast(x), x @ values["w.x"])


@pytest.mark.parametrize("dims", [(2, None), ("n", True)])
def test_params_of_a_model_alone_are_copied(dims: tuple[int | str, bool | None], cache: Path) -> None:
    read = ft.parse(
        f"def main(x: f32[{dims[0]}, 4], param w: f32[4, 3], param b: f32[3]) -> f32[{dims[0]}, 3]:\n"
        f"    v1: f32[{dims[0]}, 3] = matmul(x, w)\n    v2: f32[{dims[0]}, 3] = add(v1, b)\n    return v2\n"
    )
    params = {"w": np.ones((4, 3), np.float32), "b": np.zeros(3, np.float32)}
    source = Model(read.functions, params)
    fast = ft.optimize(source, dynamic_shapes=dims[1], machine=REFERENCE, cache=cache)
    before = fast(X.numpy())
    for value in params.values():
        value[:] = 7
    np.testing.assert_array_equal(fast(X.numpy()), before)
    if dims[1]:
        np.testing.assert_array_equal(fast(X[:1].numpy()), before[:1])
