"""A small classifier is trained, then compiled: ten kinds of made-up clothes. Run: python examples/clothes.py"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import frittata as ft

KINDS = 10
PIXELS = 28


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw pictures of every kind: a pattern of its own, moved by some pixels, brighter or darker, with noise.

    Shapes: pictures (count, 1, 28, 28) of float32, kinds (count,) of int64.
    """
    patterns = torch.nn.functional.interpolate(
        torch.rand(KINDS, 1, 7, 7, generator=torch.Generator().manual_seed(0)), size=PIXELS, mode="bilinear"
    )
    random = torch.Generator().manual_seed(seed)
    kinds = torch.randint(KINDS, (count,), generator=random)
    moves = torch.randint(-2, 3, (count, 2), generator=random).tolist()
    moved = torch.stack([patterns[k].roll(tuple(by), (1, 2)) for k, by in zip(kinds.tolist(), moves, strict=True)])
    light = 0.5 + torch.rand(count, 1, 1, 1, generator=random)
    return moved * light + 0.3 * torch.randn(moved.shape, generator=random), kinds


def trained(steps: int = 150) -> nn.Module:
    """Train a network of two dense layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS * PIXELS, 128), nn.ReLU(), nn.Linear(128, KINDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x, kinds = pictures(128, seed=step + 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), kinds).backward()
        optimizer.step()
    return model.eval()


def main() -> float:
    """Train, compile, and return the share of fresh pictures that both name alike and right."""
    model = trained()
    x, kinds = pictures(1000, seed=0)
    fast = ft.optimize(model, (x,), verify=True)
    with torch.no_grad():
        ours, theirs = fast(x).argmax(-1), model(x).argmax(-1)
    assert torch.equal(ours, theirs), "labels differ from torch's"
    share = float((ours == kinds).float().mean())
    print(f"{share:.1%} of {len(kinds)} pictures named right, all as torch names them")
    print(fast.report)
    return share


if __name__ == "__main__":
    main()
