"""What Frittata does, in a minute: three models beside torch, one kernel explained, a user's rules. Run: make demo."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import frittata as ft

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # for bench

from bench import workloads  # noqa: E402
from bench.timing import paired  # noqa: E402

PAGE = "frittata-demo.html"
TURNS = 20


class Scores(nn.Module):
    """A toy with two exponentials and a ReLU, for the rules of a user."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(exp(x) * exp(y) - 1)."""
        return torch.relu(torch.exp(x) * torch.exp(y) - 1)


def title(text: str) -> None:
    print(f"\n{'=' * 100}\n{text}\n{'=' * 100}")


def compare(module: nn.Module, fast: Callable[..., object], args: tuple[Tensor, ...]) -> str:
    """Time whole calls, eager and compiled, the two taking turns."""
    with torch.inference_mode():
        times = paired({"eager": lambda: module(*args), "frittata": lambda: fast(*args)}, "eager", TURNS)
    shown = ", ".join(f"{name} {row.median_s * 1e3:.3f} ms" for name, row in times.items())
    ours = times["frittata"]
    return f"{shown} (medians of {TURNS} turns); ratio {ours.ratio:.2f}, spread {ours.spread:.2f}"


def show_models() -> None:
    models = {
        "MLP 784-256-10, batch 64": workloads.mlp(),
        "Transformer encoder layer, d 256, 2 x 128 tokens": workloads.encoder_layer(),
        "ResNet basic block, 64 channels, 56 x 56": workloads.basic_block(),
    }
    for name, (module, args) in models.items():
        title(name)
        start = time.perf_counter()
        fast = ft.optimize(module, args)
        spent = time.perf_counter() - start
        fast.measure()
        print(fast.report)
        with torch.inference_mode():
            difference = float((module(*args) - fast(*args)).abs().max())
        print(f"\noptimized in {spent:.1f} s; largest difference to eager {difference:.1e}")
        print(f"whole calls, taking turns: {compare(module, fast, args)}")
        if "encoder" in name:
            title('fast.explain("softmax")')
            print(fast.explain("softmax"))
            title('print(fast.kernel("softmax").source)')
            print(fast.kernel("softmax").source)
            fast.show(PAGE, name)


def show_rules() -> None:
    title("A user's rules: examples/my.rules")
    print((HERE / "my.rules").read_text())
    x, y = torch.randn(64, 1000), torch.randn(64, 1000)
    fast = ft.optimize(Scores().eval(), (x, y), rules=[HERE / "my.rules"])
    (kernel,) = fast.kernels
    print(f"{kernel.op}\nrules of one's own in it: {', '.join(r for r in kernel.rules if r.startswith('my/'))}")
    wanted = nn.functional.gelu(torch.exp(x + y) - 1)
    difference = float((fast(x, y) - wanted).abs().max() / wanted.max())
    print(f"largest difference to gelu(exp(x + y) - 1), as a share of the largest value: {difference:.1e}")
    title("A wrong equation is refused: examples/wrong.rules")
    try:
        ft.optimize(Scores().eval(), (x, y), rules=[HERE / "wrong.rules"])
    except ft.FrittataError as error:
        print(error)


if __name__ == "__main__":
    show_models()
    show_rules()
    print(f"\n{PAGE} draws the encoder layer: open it in a browser.")
