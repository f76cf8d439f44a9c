"""A compiled model in a file gives the same results where it is loaded, and explains itself there."""

import copy
import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from exported import to_onnx
from torch import nn

import frittata as ft
from frittata.egraph.errors import FrittataError, ModelError, StaleParametersError
from frittata.egraph.machine import REFERENCE


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(-1)).eval()


X = torch.linspace(-1, 1, 24).reshape(4, 6)


@pytest.mark.parametrize("freeze", [None, True, False])
def test_results_are_the_same(freeze: bool | None, tmp_path: Path) -> None:
    fast = ft.optimize(mlp(), (X,), machine=REFERENCE, cache=tmp_path, freeze=freeze)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    assert torch.equal(loaded(X), fast(X))
    assert str(loaded) == str(fast)
    np.testing.assert_array_equal(loaded(X.numpy()), fast(X).numpy())
    again = ft.load(loaded.save(tmp_path / "again.frt"), cache=tmp_path)
    assert torch.equal(again(X), fast(X))


@pytest.mark.parametrize("freeze", [True, None, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_halves_again(dtype: torch.dtype, freeze: bool | None, tmp_path: Path) -> None:
    x, module = X.to(dtype), mlp().to(dtype)
    fast = ft.optimize(module, (x,), machine=REFERENCE, cache=tmp_path, freeze=freeze)
    found = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)(x)
    assert found.dtype is dtype and torch.equal(found, fast(x))


def test_it_explains_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text("no-relu-twice: relu(relu(x)) => relu(x)\n")
    rules = tmp_path / "mine.rules"
    fast = ft.optimize(mlp(), (X,), machine=REFERENCE, cache=tmp_path, rules=rules, disable="scalar")
    fast.save(tmp_path / "model.frt")
    rules.unlink()
    loaded = ft.load(tmp_path / "model.frt", cache=tmp_path)
    assert str(loaded.explain("softmax")) == str(fast.explain("softmax"))
    assert [family.name for family in loaded.compilation.families] == [f.name for f in fast.compilation.families]
    assert "chosen by an earlier run" in str(loaded.report)
    assert loaded.verify().is_right


def test_calls_keep_their_structure(tmp_path: Path) -> None:
    def model(params: dict[str, Any], x: Any, scale: float = 1.0) -> dict[str, Any]:
        return {"y": [x @ params["w"] * scale], "rest": ("text", None, scale)}

    x, w = X.numpy(), np.ones((6, 2), np.float32)
    fast = ft.optimize(model, ({"w": w}, x, 2.0), machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    got = loaded({"w": w}, scale=2.0, x=x)
    np.testing.assert_array_equal(got["y"][0], fast({"w": w}, x, 2.0)["y"][0])
    assert got["rest"] == ("text", None, 2.0)
    for args, message in (
        (({"w": w}, x, 3.0), "scale is 3.0 and was 2.0"),
        (({"w": w}, x), "lacks scale"),
        (({"w": w}, x, 2.0, 1), "takes 3 arguments by position, got 4"),
        (({"v": w}, x, 2.0), "lacks params_w"),
    ):
        with pytest.raises(ModelError, match=message):
            loaded(*args)


class Parts(NamedTuple):
    first: Any
    rest: Any


def test_named_tuples_keep_their_names(tmp_path: Path) -> None:
    def model(x: Parts) -> OrderedDict[str, Any]:
        return OrderedDict(b=Parts(x.rest + 1, None), a=x.first)

    fast = ft.optimize(model, (Parts(X.numpy(), X.numpy()),), machine=REFERENCE, cache=tmp_path)
    largest = ft.optimize(lambda x: torch.max(x, 1), (X,), machine=REFERENCE, cache=tmp_path)
    loaded, of_torch = (ft.load(one.save(tmp_path / "model.frt"), cache=tmp_path) for one in (fast, largest))
    got = loaded((X.numpy(), X.numpy()))
    assert type(got) is OrderedDict and list(got) == ["b", "a"]
    assert type(got["b"]).__name__ == "Parts" and got["b"].rest is None
    np.testing.assert_array_equal(got["b"].first, X.numpy() + 1)
    assert torch.equal(of_torch(X).indices, torch.max(X, 1).indices)


def test_any_number_of_arguments(tmp_path: Path) -> None:
    x = X.numpy()
    both = ft.optimize(lambda *xs: xs[0] - xs[1], (x, x * 2), machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(both.save(tmp_path / "model.frt"), cache=tmp_path)
    np.testing.assert_allclose(loaded(x * 3, x), x * 2, 1e-6)


class Named(nn.Module):
    def forward(self, x: torch.Tensor, *, extra: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, Any]]:
        return x + extra["b"] - extra["a"], {"sum": extra["a"] + 1, "n": 3}


def test_modules_keep_keywords_and_dicts(tmp_path: Path) -> None:
    from frittata.frontends.torch_export import from_module

    extra = {"b": X * 2, "a": X * 3}
    imported = from_module(Named().eval(), (X,), {"extra": extra})
    fast = ft.optimize(imported, machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    y, rest = loaded(X, extra={"a": X * 3, "b": X * 2})
    assert torch.equal(y, X + extra["b"] - extra["a"])
    assert torch.equal(rest["sum"], X * 3 + 1) and rest["n"] == 3


def test_arguments_of_modules_and_functions_go_by_name_too(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, by: torch.Tensor, times: int = 2) -> torch.Tensor:
        return x * by * times

    layer = nn.Linear(6, 2).eval()
    sources: tuple[tuple[Any, dict[str, Any]], ...] = ((layer, {"input": X}), (scaled, {"by": X, "x": X + 1}))
    for source, given in sources:
        fast = ft.optimize(source, tuple(given[name] for name in sorted(given, reverse=True)), machine=REFERENCE)
        loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
        assert torch.equal(loaded(**given), fast(**given))
    x = X.numpy()
    skipping = ft.optimize(lambda x, by=2.0, plus=0.0: x * by + plus, (x,), {"plus": x}, machine=REFERENCE)
    loaded = ft.load(skipping.save(tmp_path / "model.frt"), cache=tmp_path)
    np.testing.assert_array_equal(loaded(x=x, plus=x), 3 * x)


def test_what_is_not_registered_is_named(tmp_path: Path) -> None:
    def turned(x: Any, result: Any) -> None:
        result[...] = x[::-1]

    def model(x: Any) -> Any:
        return ft.extern(turned, (x,), out=(x.shape, x.dtype)) * 2

    x = X.numpy()
    path = ft.optimize(model, (x,), machine=REFERENCE, cache=tmp_path).save(tmp_path / "model.frt")
    ft.ops.unregister("turned")
    with pytest.raises(ModelError, match=r"unknown tensor operator 'turned'\n(.|\n)*register it before"):
        ft.load(path, cache=tmp_path)


def test_models_of_terms_and_several_results(tmp_path: Path) -> None:
    model = ft.parse(
        "def main(x: f32[3], y: f32[3]) -> (f32[3], f32[3]):\n    v: f32[3] = add(x, y)\n    return v, x\n"
    )
    fast = ft.optimize(model, machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    one = np.ones(3, np.float32)
    np.testing.assert_array_equal(loaded(one, one)[0], one * 2)


@pytest.mark.parametrize("freeze", [None, False])
def test_params_of_models_of_terms(freeze: bool | None, tmp_path: Path) -> None:
    b = ft.Builder()
    with b.function("main"):
        b.output(b.input("x", (3,)) * b.param("scale", np.float32(2.5)) + b.param("w", np.ones(3, np.float32)))
    fast = ft.optimize(b.model(), machine=REFERENCE, cache=tmp_path, freeze=freeze)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    one = np.ones(3, np.float32)
    np.testing.assert_array_equal(loaded(one), one * 3.5)
    np.testing.assert_array_equal(loaded(x=one), one * 3.5)
    assert loaded.verify().is_right
    assert loaded.compilation.model.params.get("scale", np.zeros(())).shape == ()


def traced(x: Any) -> dict[str, Any]:
    return {"y": x + 1, "rest": (x * 2, [x - 1])}


def test_graphs_of_fx_return_plain_trees(tmp_path: Path) -> None:
    fast = ft.optimize(torch.fx.symbolic_trace(traced), (X,), machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    for found in (fast(X), loaded(X)):
        assert type(found) is dict and type(found["rest"][1]) is list
        assert torch.equal(found["rest"][1][0], X - 1)


def test_models_of_onnx(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(to_onnx(mlp(), X).SerializeToString())
    fast = ft.optimize(tmp_path / "model.onnx", machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    np.testing.assert_array_equal(loaded(X.numpy()), fast(X.numpy()))


def test_exported_programs(tmp_path: Path) -> None:
    fast = ft.optimize(torch.export.export(mlp(), (X,)), machine=REFERENCE, cache=tmp_path)
    loaded = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    assert torch.equal(loaded(X), fast(X))


def test_loading_needs_no_framework(tmp_path: Path) -> None:
    fast = ft.optimize(mlp(), (X,), machine=REFERENCE, cache=tmp_path)
    fast.save(tmp_path / "model.frt")
    code = (
        "import sys, numpy as np, frittata as ft\n"
        f"fast = ft.load({str(tmp_path / 'model.frt')!r}, cache={str(tmp_path)!r})\n"
        "print(float(fast(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)).sum()), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    total, has_torch = done.stdout.split()
    assert float(total) == pytest.approx(4.0, abs=1e-5)
    assert has_torch == "False"


def test_changed_parameters_are_not_saved(tmp_path: Path) -> None:
    module = mlp()
    fast = ft.optimize(module, (X,), machine=REFERENCE, cache=tmp_path)
    with torch.no_grad():
        next(module.parameters()).add_(1)
    with pytest.raises(StaleParametersError):
        fast.save(tmp_path / "model.frt")


class Box(tuple[Any, ...]):
    pass


def test_what_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    fast = ft.optimize(lambda x: Box((x + 1,)), (X.numpy(),), machine=REFERENCE, cache=tmp_path)
    with pytest.raises(ModelError, match="a Box among arguments or results"):
        fast.save(tmp_path / "model.frt")


UNLIKE_PLAIN: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "a float of numpy": (X, lambda x: (x + 1, np.float64(2.5)), "a float64 among arguments or results"),
    "a key of bytes": (X.numpy(), lambda x: {b"a": x + 1}, "a bytes as a key"),
    "a key of numpy": (X.numpy(), lambda x: {(np.int64(1), "a"): x + 1}, "a int64 as a key"),
}


@pytest.mark.parametrize("name", UNLIKE_PLAIN)
def test_what_would_be_loaded_as_something_else_is_refused(name: str, tmp_path: Path) -> None:
    x, function, message = UNLIKE_PLAIN[name]
    fast = ft.optimize(function, (x,), machine=REFERENCE, cache=tmp_path)
    with pytest.raises(ModelError, match=message):
        fast.save(tmp_path / "model.frt")
    assert not (tmp_path / "model.frt").exists()


def test_files_that_are_none_of_ours(tmp_path: Path) -> None:
    saved = ft.optimize(mlp(), (X,), machine=REFERENCE, cache=tmp_path).save(tmp_path / "model.frt")
    with zipfile.ZipFile(saved) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    header = json.loads(parts["frittata.json"])

    def written(**changed: bytes) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.frt"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in {**parts, **changed}.items():
                file.writestr(name, content)
        return path

    def damaged(at: Callable[[bytearray], int]) -> Path:
        path = written()
        content = bytearray(path.read_bytes())
        content[at(content)] ^= 0xFF
        path.write_bytes(content)
        return path

    def changed(**parts_of_header: Any) -> Path:
        return written(**{"frittata.json": json.dumps({**header, **parts_of_header}).encode()})

    code = io.BytesIO()
    np.save(code, np.array([object()], dtype=object), allow_pickle=True)
    for path, message in (
        (tmp_path / "nowhere.frt", "cannot open"),
        (Path(__file__), "is no saved model"),
        (damaged(lambda content: content.index(b"frittata.json") + len("frittata.json")), "is no saved model"),
        (damaged(lambda content: content.rindex(b"PK\1\2") + 8), "is no saved model"),
        (changed(format=0), "has format 0"),
        (written(terms=b"cos\nsystem\n(S'true'\ntR."), "is no saved model"),
        (written(**{"param/0.npy": code.getvalue()}), "is no saved model"),
        *((changed(params=[]), "is no saved model"), (changed(machine=None), "is no saved model")),
        *((changed(call={}), "is no saved model"), (changed(options={"a": 1}), "is no saved model")),
        (changed(call={**header["call"], "args": ["x"]}), "is no saved model"),
    ):
        with pytest.raises(ModelError, match=message):
            ft.load(path, cache=tmp_path)
    nothing: Any = None
    with pytest.raises(ModelError, match="a path is a text or a Path, got None"):
        ft.load(nothing)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    fast = ft.optimize(mlp(), (X,), machine=REFERENCE, cache=tmp_path)
    for write in (fast.save, fast.show):
        for path in (tmp_path, tmp_path / "nowhere" / "model"):
            with pytest.raises(ModelError, match=f"cannot write {path}: (.|\n)*in a folder that is there"):
                write(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device without room on this system")
def test_where_there_is_no_room(tmp_path: Path) -> None:
    fast = ft.optimize(mlp(), (X,), machine=REFERENCE, cache=tmp_path)
    for write in (fast.save, fast.show):
        with pytest.raises(ModelError, match="cannot write /dev/full: No space left on device"):
            write("/dev/full")


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_compiled_model_is_copied_by_saving_it(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    fast = ft.optimize(np.tanh, (X.numpy(),), machine=REFERENCE, cache=tmp_path)
    script = ft.parse("def main(x: f32[n]) -> f32[n]:\n    y: f32[n] = exp(x)\n    return y")
    for made in (fast, ft.optimize(script, dynamic_shapes=True, machine=REFERENCE, cache=tmp_path)):
        assert copy.copy(made) is made
        with pytest.raises(FrittataError, match=r"save\(path\)"):
            copied(made)
    for part in (fast.report, fast.kernels[0]):
        with pytest.raises(FrittataError, match=r"save\(path\)"):
            copied(part)
