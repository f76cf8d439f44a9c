"""The command line: what it prints, and errors in words."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from tiny_model import SCRIPT

import frittata
from frittata.cli import main

FACTORY = """
import frittata
from tiny_model import SCRIPT, tiny

def model():
    return tiny(), ()

def wrong():
    return 3

def fails():
    raise KeyError("oops")

def taking(x):
    return x
"""

ONNX = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny.txt"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def options(cache: Path) -> list[str]:
    return ["--reference-machine", "--no-library", "--cache", str(cache)]


def test_optimize_prints_the_report_and_writes_the_page(
    script: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "x.html"
    assert main(["optimize", script, *options, "--measure", "--page", str(page)]) == 0
    text = capsys.readouterr().out
    assert "matmul_relu" in text and "measured;" in text
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_page_of_another_kind_is_refused_before_the_model_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "no_such_file.py:model", "--page", "x.pdf"]) == 1
    assert "cannot show a program as .pdf\n  to do: give a path in .html, .dot or .gv" in capsys.readouterr().err


def test_optimize_prints_json(script: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", script, *options, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kernels"]) == 3


def test_a_model_comes_from_a_function_in_a_file(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "models_of_a_user.py"
    file.write_text(FACTORY)
    assert main(["explain", f"{file}:model", "legalize/split-softmax", *options]) == 0
    assert "legalize/split-softmax, rules/legalize.rules" in capsys.readouterr().out
    assert main(["explain", f"{file}:model", "softmax", *options, "--source"]) == 0
    text = capsys.readouterr().out
    assert "softmax, by the template row" in text and "@numba.njit" in text
    assert main(["optimize", f"{file}:wrong", *options]) == 1
    assert "return (module, args)" in capsys.readouterr().err
    assert main(["optimize", f"{file}:fails", *options]) == 1
    assert "fails() raised KeyError: 'oops'" in capsys.readouterr().err
    assert main(["optimize", f"{file}:taking", *options]) == 1
    assert f"taking() missing 1 required positional argument: 'x'\n  where: {file}:taking\n" in capsys.readouterr().err
    assert main(["optimize", f"{file}:modell", *options]) == 1
    assert "it has fails, model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimize", "nothing.txt"], "cannot open the script"),
        (["optimize", "nothing.py:f"], "there is no such file"),
        (["optimize", "nothing.onnx"], "there is no such file"),
        (["optimize", "nothing.py:f", "--dim", "n=3"], "nothing.py:f has no symbolic dims"),
        (["optimize", "nothing"], "does not name a model"),
        (["optimize", "nothing.py:"], "does not name a model"),
        (["cache", "--cache", __file__], "is a file"),
        (["optimize", "no.such.module:f"], "cannot import no.such.module"),
        (["rules", "check", "nothing"], "families are"),
        (["rules", "show", "relu-relus"], "did you mean"),
    ],
)
def test_errors_are_told_in_words(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def test_options_of_optimize_are_flags(script: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--opt-level", "0", "--required", "scalar", "--pipeline", "default", "--fallback", "error"]
    flags += ["--verify", "--no-freeze", "--instruments", "timing", "--json"]
    assert main(["optimize", script, *options, *flags]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert len(report["kernels"]) > 3 and not report["folded"]
    assert "import" in captured.err and "matches" in captured.err


def test_an_onnx_model_is_a_file(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(ONNX), path)
    assert main(["optimize", str(path), *options, "--dim", "N=3", "--script"]) == 0
    assert "x: f32[3, 4]" in capsys.readouterr().out
    assert main(["optimize", str(path), *options]) == 1
    assert "N" in capsys.readouterr().err


def test_a_script_has_data_and_dims_and_is_saved(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, saved = tmp_path / "model.txt", tmp_path / "model.frt"
    path.write_text(
        "def main(x: f32[n, 2], param w: f32[2]) -> f32[n, 2]:\n    v1: f32[n, 2] = mul(x, w)\n    return v1\n"
        'data "w" = "AAAAQAAAQEA="\n'
    )
    assert main(["optimize", str(path), *options, "--dim", "n=3", "--save", str(saved)]) == 0
    assert f"written to {saved}" in capsys.readouterr().out
    assert frittata.load(saved)(np.ones((3, 2), np.float32)).tolist() == [[2, 3]] * 3
    for dims, said in (([], "--dim NAME=N"), (["--dim", "m=3"], "symbolic dims are n: bind"), (["--dim", "n=3"], "")):
        assert main(["optimize", str(path), *options, *dims]) == bool(said)
        assert said in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"frittata {version('frittata')}\n" == f"frittata {frittata.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimise"], "invalid choice"),
        (["extract", "graph.json", "--time-limit", "nan"], "nan is no time: give seconds, at least 0"),
        (["optimize", "model.txt", "--time-limit", "-1"], "-1 is no time"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_what_python_cannot_read_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "unclosed_of_a_user.py"
    file.write_text("\ndef model(\n")
    assert main(["optimize", f"{file}:model"]) == 1
    assert f"where: {file}:2\n" in capsys.readouterr().err


def test_a_sound_file_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("twice: neg(neg(x)) => x\nsmooth: relu(x) ~> gelu(x)\n")
    assert main(["rules", "check", str(file)]) == 0
    assert "1 equations checked, 0 wrong, 1 other rules skipped" in capsys.readouterr().out


def test_an_approximate_equation_is_admitted_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("a: gelu(x) => gelu_tanh(x) [approx(1e-3)]")
    assert main(["rules", "check", str(file)]) == 0
    assert "300 instances; no numerics admits it as an equation: write ~>" in capsys.readouterr().out


def test_a_wrong_rule_fails_the_check_with_a_counterexample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("wrong: neg(x) => x\n")
    assert main(["rules", "check", str(file)]) == 1
    text = capsys.readouterr().out
    assert "WRONG" in text and "mine.rules:1:1" in text and "left" in text


def test_a_syntax_error_shows_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("twice: neg(neg(x) => x\n")
    assert main(["rules", "check", str(file)]) == 1
    assert "^" in capsys.readouterr().err


def test_rules_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "list", "fusion"]) == 0
    assert capsys.readouterr().out.split() == ["fusion/index-built", "exact"]
    assert main(["rules", "show", "index-built"]) == 0
    assert "load(build(e, s)) => e" in capsys.readouterr().out


def test_a_rule_of_a_file_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("twice: neg(neg(x)) => x\n")
    assert main(["rules", "show", "twice", str(file)]) == 0
    assert "neg(neg(x)) => x" in capsys.readouterr().out
    assert main(["rules", "show", "index-built", str(file)]) == 1


def test_the_cache_is_told_and_cleared(
    script: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--cache", str(tmp_path)]
    assert main(["optimize", script, *options, *folder]) == 0
    capsys.readouterr()
    assert main(["cache", *folder]) == 0
    assert "3 kernels" in capsys.readouterr().out
    assert main(["cache", "clear", *folder]) == 0
    assert "is empty now; it held" in capsys.readouterr().out
    assert main(["cache", *folder]) == 0
    assert "0 kernels, 0 B\n  0 programs" in capsys.readouterr().out


def test_python_m_frittata_is_the_command_line() -> None:
    command = [sys.executable, "-m", "frittata", "rules", "show", "fusion/index-built"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "index-built" in result.stdout


def test_a_script_that_cannot_be_read_names_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.txt"
    for wrong, message in ((b"\xff", "is not text in UTF-8\n  where: {}"), (b"bad", "found 'bad'\n  where: {}:1:1")):
        path.write_bytes(wrong)
        assert main(["optimize", str(path)]) == 1
        assert message.format(path) in capsys.readouterr().err


def test_a_script_may_begin_with_a_mark(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(f"\ufeff{SCRIPT.lstrip()}", encoding="utf-8")
    assert main(["optimize", str(path), *options]) == 0
