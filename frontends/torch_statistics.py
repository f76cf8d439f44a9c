"""Functions of torch whose own code looks at values, to warn of them, say, written with operators that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from frittata.egraph.errors import ModelError
from frittata.frontends import torch_losses, torch_numbers


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Return the covariances of rows of observations, which `fweights` repeat and `aweights` weigh, as torch.cov."""
    _check(input, fweights, aweights)
    x = input if input.ndim == 2 else input.reshape(1, -1)
    weights: Any = prod((given for given in (fweights, aweights) if given is not None), start=torch.ones_like(x[0]))
    total = weights.sum()
    x = x - (x * weights).sum(1, keepdim=True) / total
    lost = correction * (weights * aweights).sum() / total if aweights is not None and correction else correction
    return ((x * weights @ x.mT) / (total - lost).clamp(min=0)).squeeze()


def _check(input: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> None:
    """Raise ModelError for what torch.cov refuses, but for negative weights, which are values."""
    if input.ndim > 2:
        raise ModelError(f"torch.cov of {input.ndim} dims", do="give two at the most, rows of observations")
    if input.is_complex():
        raise ModelError("torch.cov of complex numbers", do="write it with products")
    count = input.shape[-1] if input.ndim else 1
    for what, kind, weights in (("fweights", "integers", fweights), ("aweights", "floats", aweights)):
        if weights is None:
            continue
        is_float, is_integer = weights.is_floating_point(), not (weights.is_floating_point() or weights.is_complex())
        if weights.shape != (count,) or not (is_float if kind == "floats" else is_integer):
            given = f"{what} of {weights.dtype} of shape {tuple(weights.shape)}"
            raise ModelError(f"torch.cov with {given}", do=f"give {kind}, one for each of {count} observations")


def corrcoef(input: Tensor) -> Tensor:
    """Return the correlations of rows of observations, as torch.corrcoef."""
    found = cov(input)
    if found.ndim == 0:
        return found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations[:, None] / deviations).clamp(-1, 1)


def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Return least-squares solutions by the pseudoinverse, and beside them what each driver of torch.linalg.lstsq does.

    Singular values of at most `rcond` times the largest are none: the solution is the least one, as with most drivers.
    """
    rows, columns = input.shape[-2:]
    least = max(rows, columns) * torch.finfo(input.dtype).eps if rcond is None else rcond
    is_vector, is_plain = b.shape == input.shape[:-1], driver in (None, "gelsy")
    right = b[..., None] if is_vector else b
    solution, empty = torch.linalg.pinv(input, rtol=least) @ right, input.real.new_empty(0)
    residuals = empty if is_plain or rows <= columns else (input @ solution - right).abs().square().sum(-2)
    rank = empty.long() if driver == "gels" else torch.linalg.matrix_rank(input, rtol=least)
    values = empty if is_plain or driver == "gels" else torch.linalg.svdvals(input)
    types: Any = torch.return_types
    return types.linalg_lstsq((solution[..., 0] if is_vector else solution, residuals, rank, values))


_WRITTEN: dict[Any, Any] = {
    torch.Tensor.__setitem__: torch_numbers.put,
    torch.Tensor.__getitem__: torch_numbers.got,
    torch.cov: cov,
    torch.Tensor.cov: cov,
    torch.corrcoef: corrcoef,
    torch.Tensor.corrcoef: corrcoef,
    torch.linalg.lstsq: lstsq,
    F.ctc_loss: torch_losses.ctc_loss,
    F.gaussian_nll_loss: torch_losses.gaussian_nll_loss,
}


_DETECT = "_detect_is_causal_mask"


def _is_said_to_be_causal(_: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Return what the caller of a transformer's layers says of a mask, which is applied in any case."""
    return is_causal is True


class WrittenOut(TorchFunctionMode):
    """Has functions that look at values compute the same without."""

    def __enter__(self) -> WrittenOut:
        self._detect = transformer.__dict__[_DETECT]
        transformer.__dict__[_DETECT] = _is_said_to_be_causal  # torch does not dispatch it
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        transformer.__dict__[_DETECT] = self._detect

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _WRITTEN.get(func, func)(*args, **(kwargs or {}))
