"""Losses whose own code in torch looks at values, or has no meaning before it runs, with operators that do neither."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from frittata.egraph.errors import ModelError
from frittata.frontends import idioms


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Return the loss of normal distributions, as F.gaussian_nll_loss; a variance below zero counts as `eps`."""
    given = var if isinstance(var, Tensor) else input.new_full((), var)
    if given.ndim and given.shape == input.shape[:-1] != input.shape:
        given = given[..., None]
    ends = zip(given.shape, input.shape, strict=False)
    if given.ndim not in (0, input.ndim) or any(one not in (1, other) for one, other in ends):
        what = f"variances of shape {tuple(given.shape)} beside an input of {tuple(input.shape)}"
        raise ModelError(what, do="give one for each value, or one for each row of values")
    given = given.clamp(min=eps)
    loss = (given.log() + (input - target).square() / given) / 2 + full * math.log(2 * math.pi) / 2
    return _reduced(loss, reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return the loss of labels of which it is not known when they are said, as F.ctc_loss; lengths may be values.

    Shapes: log_probs (times, batch, classes), targets (batch, labels) or all labels in a row; or no batch.
    Source: Graves et al., Connectionist temporal classification, ICML 2006, equations 6 to 8.
    """
    if log_probs.ndim == 2:
        spoken, wanted = (torch.as_tensor(given).reshape(1) for given in (input_lengths, target_lengths))
        rows = log_probs[:, None], targets.reshape(1, -1)
        return ctc_loss(*rows, spoken, wanted, blank, reduction, zero_infinity).reshape(())
    times, batch, _ = log_probs.shape
    if times > idioms.MOST_UNROLLED:
        what = f"ctc_loss over {times} times, more than {idioms.MOST_UNROLLED}"
        raise ModelError(what, do="compute the loss outside of the model")
    spoken, wanted = torch.as_tensor(input_lengths), torch.as_tensor(target_lengths)
    if targets.ndim == 1:
        most = targets.numel() if isinstance(target_lengths, Tensor) else max(target_lengths)
        places = (wanted.cumsum(0) - wanted)[:, None] + torch.arange(most)
        targets = targets[places.clamp(max=targets.numel() - 1)]
    none = torch.full((batch, 1), -math.inf, dtype=log_probs.dtype)
    labels = torch.full((batch, 2 * targets.shape[1] + 1), blank, dtype=torch.int64)  # a blank around each label
    labels[:, 1::2] = targets.where(torch.arange(targets.shape[1]) < wanted[:, None], blank)
    may_skip = torch.nn.functional.pad(labels[:, 2:] != labels[:, :-2], (2, 0)) & (labels != blank)
    scores = log_probs.gather(2, labels.expand(times, *labels.shape))
    total = scores[0].where(torch.arange(labels.shape[1]) < 2, none)
    for time, score in enumerate(scores[1:], 1):
        one, two = torch.cat([none, total[:, :-1]], 1), torch.cat([none, none, total[:, :-2]], 1)[:, : total.shape[1]]
        further = torch.logsumexp(torch.stack([total, one, two.where(may_skip, none)]), 0) + score
        total = further.where(time < spoken[:, None], total)
    ends = 2 * wanted[:, None] - torch.arange(2)
    ending = total.gather(1, ends.clamp(min=0)).where(ends >= 0, none)
    loss = -torch.logsumexp(ending, 1)
    loss = loss.where(spoken > 0, torch.where(wanted > 0, math.inf, 0.0).to(loss.dtype))
    if zero_infinity:
        loss = loss.where(loss != math.inf, torch.zeros_like(loss))
    return _reduced(loss / wanted.clamp(min=1) if reduction == "mean" else loss, reduction)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ModelError(f"reduction={reduction!r}", do="give 'none', 'mean' or 'sum'")
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
