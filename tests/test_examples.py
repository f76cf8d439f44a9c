"""The examples run, and do what they say."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.machine import REFERENCE

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_trained_classifier_keeps_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    share = runpy.run_path(str(EXAMPLES / "clothes.py"))["main"]()
    assert share > 0.9
    assert "all as torch names them" in capsys.readouterr().out


def test_queries_keys_and_values_are_one_product_by_the_example(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, *params = (random.standard_normal(shape, np.float32) for shape in ((128, 768), *((768, 20), 20) * 2))

    def scores(x: Any) -> Any:
        queries, keys = (x @ w + b for w, b in zip(params[::2], params[1::2], strict=True))
        return queries @ keys.T / 8

    fast = ft.optimize(scores, (x,), machine=REFERENCE, cache=tmp_path, rules=EXAMPLES / "merge.rules")
    assert fast.explain_rule("merge-layers").matches == 1
    first = next(kernel for kernel in fast.kernels if kernel.template == "contraction")
    assert first.kernel.outputs[0].body.shape == (128, 40)  # tiles are narrower for 20, whatever the processor
    np.testing.assert_allclose(fast(x), scores(x), rtol=1e-3, atol=1e-2)
