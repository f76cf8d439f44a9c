"""Torch tensors and numpy arrays of the same memory. numpy has no bfloat16 of its own, and torch reads no other's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return the array that shares a tensor's memory, of a lazily negated or conjugated one that of its values.

    Raises: TypeError or RuntimeError where numpy cannot read it.
    """
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(_BFLOAT16)
    return tensor.numpy()


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Return the tensor that shares an array's memory."""
    import torch

    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    shared = torch.from_numpy(array)
    return shared if array.size else shared.new_empty(array.shape)  # which has strides, as none of numpy's has
