"""Tensors of the source after `optimize`: guarded while they are folded, read at every call, or written to by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError, SharedMemoryError, StaleParametersError
from frittata.egraph.exporting import MODULES
from frittata.egraph.model import Model
from frittata.egraph.program import Program
from frittata.egraph.terms import Term
from frittata.egraph.torch_arrays import array_of, tensor_of
from frittata.frontends.calls import complex_of, real_of, source_of
from frittata.frontends.imported import Imported

_MOST_WORK = 1_000_000
"""So many steps may be taken to find whether two strided arrays have an element in common."""

_KINDS = ("_parameters", "_buffers", "__dict__")
"""Where a module has tensors by name; the last are those that it has not registered."""


@dataclass(frozen=True, eq=False)
class Home:
    """Where a module keeps a tensor: another may be put there, and another module in the place of one on the way."""

    source: Any
    path: tuple[str, ...]
    kind: str

    @staticmethod
    def of(source: Any, name: str) -> Home | None:
        """Find a tensor by the name of its param: a dotted path, after `self.` where an input has that name."""
        path = tuple(name.split("."))
        for parts in (path, path[1:]):
            for kind in _KINDS:
                home = Home(source, parts, kind)
                if parts and home.tensors.get(parts[-1]) is not None:
                    return home
        return None

    @property
    def tensors(self) -> Mapping[str, Any]:
        """The module's tensors of the kind, by the last part of their names; none where there is no such module."""
        module = self.source
        for part in self.path[:-1]:
            module = getattr(module, "_modules", {}).get(part)
        return getattr(module, self.kind, {})

    def read(self) -> Any:
        """Return the tensor that is there now.

        Raises: StaleParametersError if there is none.
        """
        found = self.tensors.get(self.path[-1])
        if found is None:
            raise StaleParametersError(f"parameter {'.'.join(self.path)!r} is not there any more", do=_AGAIN)
        return found

    def read_beside(self, others: Sequence[Home]) -> Any:
        """Return the tensor that is there now, and was the same one in other places when it was imported.

        Raises: StaleParametersError if there is none, or another one in another place: the model knows one only.
        """
        found = self.read()
        for other in others:
            if other.tensors.get(other.path[-1]) is not found:
                first, second = (".".join(home.path) for home in (self, other))
                what = f"parameters {first!r} and {second!r} were one at optimize(), and are not any more"
                raise StaleParametersError(what, do=f"{_AGAIN}, or put one tensor in both places")
        return found


_AGAIN = "call frittata.optimize again"


class Guard:
    """Notices that a folded tensor was written to, moved, or replaced in its module, or a module in another."""

    def __init__(self, tensor_by_name: Mapping[str, Any], source: Any) -> None:
        self._rows: list[tuple[str, Mapping[str, Any], str, Any, int, int]] = []
        self._uncounted: list[tuple[str, Mapping[str, Any], str, Any, int]] = []
        parts = [*source.modules()] if hasattr(source, "modules") else []
        kept = [getattr(part, kind) for part in parts for kind in _KINDS]
        places: dict[int, list[tuple[Mapping[str, Any], str]]] = {}  # several for a tensor that modules share
        for tensors in kept:
            for key, tensor in tensors.items():
                places.setdefault(id(tensor), []).append((tensors, key))
        for name, tensor in tensor_by_name.items():
            for tensors, key in places.get(id(tensor)) or [({name: tensor}, name)]:
                if tensor.is_inference():  # torch does not count writes to it
                    self._uncounted.append((name, tensors, key, tensor, tensor.data_ptr()))
                else:
                    self._rows.append((name, tensors, key, tensor, tensor._version, tensor.data_ptr()))
        self._modules: list[dict[str, Any]] = [
            part._modules for part in parts if part._modules or hasattr(part, "__len__")
        ]
        self._modules_before = [dict(modules) for modules in self._modules]

    def __len__(self) -> int:
        return len(self._rows)

    def divided(self, condition: Callable[[Any], bool]) -> tuple[Guard, Guard]:
        """Return a guard of the tensors for which a condition holds, and one of the others."""
        held, others = Guard({}, None), Guard({}, None)
        for row in self._rows:
            (held if condition(row[3]) else others)._rows.append(row)
        held._uncounted = self._uncounted
        others._modules, others._modules_before = self._modules, self._modules_before
        return held, others

    def check(self) -> None:
        """Raise StaleParametersError if a tensor has changed, or a module was added, replaced or removed."""
        try:
            return self._look()
        except StaleParametersError:  # perhaps what an export in another thread has put there
            pass
        with MODULES:
            self._look()

    def _look(self) -> None:
        for name, tensors, key, tensor, version, pointer in self._rows:  # every call waits for this
            if tensors.get(key) is not tensor or tensor._version != version or tensor.data_ptr() != pointer:
                raise _changed(name)
        for name, tensors, key, tensor, pointer in self._uncounted:
            if tensors.get(key) is not tensor or tensor.data_ptr() != pointer:
                raise _changed(name)
        if self._modules != self._modules_before:
            pairs = zip(self._modules, self._modules_before, strict=True)
            changed = {key: 0 for has, had in pairs for key in {**had, **has} if has.get(key) is not had.get(key)}
            what = f"submodule {', '.join(map(repr, changed))} was changed after optimize()"
            raise StaleParametersError(what, do=f"{_AGAIN}; freeze=True does not look at each call")


def _changed(name: str) -> StaleParametersError:
    return StaleParametersError(
        f"parameter {name!r} was changed after optimize()",
        do=f"{_AGAIN}; freeze=True does not look at each call, freeze=False reads anew what decides no size",
    )


def readers(imported: Imported, source: Any, freeze: bool | None) -> tuple[Callable[[], Any], ...]:
    """Return what reads the present value of what a source gives to each call beside its arguments.

    Those are the tensors that calls change; unless they are frozen the params too, in the order of `Model.detach`.
    """
    names = [*imported.state.tensors, *(_params(imported.model) if freeze is False else ())]
    tensor_by_name = {**imported.parameters, **imported.state.tensors}
    homes = _homes(source) if names else {}
    return tuple(_reader(name, imported, tensor_by_name, source, homes) for name in names)


def _homes(source: Any) -> dict[int, list[Home]]:
    """Return all places of each tensor of a module, of each of the names of modules that are there twice."""
    found: dict[int, list[Home]] = {}
    for path, part in source.named_modules(remove_duplicate=False) if hasattr(source, "named_modules") else ():
        for kind in _KINDS:
            for key, value in getattr(part, kind).items():
                found.setdefault(id(value), []).append(Home(source, (*filter(None, path.split(".")), key), kind))
    return found


def _reader(
    name: str, imported: Imported, tensor_by_name: Mapping[str, Any], source: Any, homes: Mapping[int, list[Home]]
) -> Callable[[], Any]:
    if name not in tensor_by_name:
        return lambda: imported.model.params[name]
    kept = tensor_by_name[name]
    home = Home.of(source, name)
    if home is None:
        return lambda: real_of(kept)
    others = [other for other in homes.get(id(kept), ()) if other.path != home.path]
    return lambda: real_of(home.read_beside(others))


def check_changes(values: Sequence[Any], changes: Sequence[int], given: int, folded: Sequence[Any]) -> None:
    """Check that what a call changes can be written to, and shares no memory with what else the call reads.

    The first `given` values are arguments; `folded` are tensors of the source that are not among the values.

    Raises: ModelError, SharedMemoryError.
    """
    values = [*map(source_of, values)]
    arguments = [values[place] for place in changes if place < given]
    for value in arguments:
        if not (value.flags.writeable if isinstance(value, np.ndarray) else hasattr(value, "copy_")):
            what = f"the call changes an argument in place, and this {type(value).__name__} cannot be written to"
            raise ModelError(what, do="give a torch tensor, or a numpy array that may be written to")
        if getattr(value, "requires_grad", False) and _wants_gradients():
            what = "the call changes an argument in place of which gradients are wanted: none flow through a call"
            raise ModelError(what, do="call it under torch.no_grad()")
        if any(_may_overlap([value, parameter], [0]) for parameter in folded):
            what = "the call changes an argument in place that shares memory with a parameter of the model"
            raise SharedMemoryError(what, do="give it memory of its own: x.clone()")
    for place in changes:
        _check_written(values[place])
    if not _may_overlap(values, changes):
        return
    for place in changes:
        if any(other != place and _share_memory(values[place], value) for other, value in enumerate(values)):
            what = "the call changes a tensor in place that shares memory with another that it takes"
            raise SharedMemoryError(what, do="give it memory of its own: x.clone()")


def _check_written(value: Any) -> None:
    """Check what torch would not write to: before a call has changed anything.

    Raises: ModelError, SharedMemoryError.
    """
    if not isinstance(value, np.ndarray):
        _check_tensor(value)
    strides = value.strides if isinstance(value, np.ndarray) else value.stride()
    if any(step == 0 and extent > 1 for extent, step in zip(value.shape, strides, strict=True)):
        what = "the call changes a tensor in place whose elements lie in one place: it is expanded"
        raise SharedMemoryError(what, do="give it memory of its own: x.clone(), numpy.array(x)")


def _check_tensor(value: Any) -> None:
    import torch

    if value.layout is not torch.strided or value.is_nested:
        what = "the call changes a tensor in place, and this is no dense tensor"
        raise ModelError(what, do="give a dense tensor: x.to_dense()")
    if value.is_inference() and not torch.is_inference_mode_enabled():
        what = "the call changes a tensor in place that was made under torch.inference_mode()"
        raise ModelError(what, do="call it under torch.inference_mode(), or give x.clone()")


def _wants_gradients() -> bool:
    import torch

    return torch.is_grad_enabled()


def _may_overlap(values: Sequence[Any], changes: Sequence[int]) -> bool:
    """Whether something begins before a changed one ends that begins before it, or the other way round."""
    end, changed_end, changed = 0, 0, frozenset(changes)
    for start, stop, is_changed in sorted((*_span(value), place in changed) for place, value in enumerate(values)):
        if start < (end if is_changed else changed_end):
            return True
        end = max(end, stop)
        changed_end = max(changed_end, stop if is_changed else 0)
    return False


def _share_memory(one: Any, other: Any) -> bool:
    try:
        arrays = [value if isinstance(value, np.ndarray) else array_of(_as_it_lies(value)) for value in (one, other)]
        return np.shares_memory(*arrays, max_work=_MOST_WORK)  # pyright: ignore[reportArgumentType]
    except (TypeError, np.exceptions.TooHardError):  # on a device, or with strides that tell nothing soon
        return True


def _as_it_lies(tensor: Any) -> Any:
    """Return a tensor that is conjugated or negated when it is read as it is in memory."""
    import torch

    tensor = tensor.conj() if tensor.is_conj() else tensor
    return torch._neg_view(tensor) if tensor.is_neg() else tensor  # pyright: ignore


def _span(value: Any) -> tuple[int, int]:
    """Return where the memory of a tensor or an array begins and ends; of what does not tell, (0, 0)."""
    if isinstance(value, np.ndarray):
        return np.lib.array_utils.byte_bounds(value)
    try:
        if not hasattr(value, "data_ptr") or 0 in value.shape:
            return 0, 0
        if value.is_contiguous():
            return value.data_ptr(), value.data_ptr() + value.nbytes
        steps = sum((extent - 1) * step for extent, step in zip(value.shape, value.stride(), strict=True))
        return value.data_ptr(), value.data_ptr() + (steps + 1) * value.element_size()
    except RuntimeError:  # no dense tensor: refused when it is read
        return 0, 0


def write(old: Any, new: Any) -> None:
    """Write the values of a result over those of a tensor or an array, unless it is the result: that only counts."""
    import torch

    if source_of(old) is not old:
        old, new = source_of(old), complex_of(new)
    if old is new:
        if isinstance(old, torch.Tensor) and not old.is_inference():
            torch.autograd.graph.increment_version(old)
        return
    if isinstance(old, np.ndarray):
        old[...] = array_of(new) if isinstance(new, torch.Tensor) else new
        return
    with torch.no_grad():
        old.copy_(tensor_of(new) if isinstance(new, np.ndarray) else new)


def detached(model: Model, program: Program, form: str) -> Model:
    """Copy the params that a program would read where the module has them: what nobody watches must not change.

    The plain form folds anew at every call, and folding integers may only change their shape: those are copied too.
    """
    read = {term.attrs[0] for term in program.constants.values() if term.op == "param"}
    shared = {
        name
        for name, value in model.params.items()
        if name in read or form == "plain" or not dtypes.holds_floats(value)
    }
    params = {name: np.array(value) if name in shared else value for name, value in model.params.items()}
    return Model(model.functions, params, model.origin_by_term)


def _params(model: Model) -> dict[str, Term]:
    return {term.attrs[0]: term for term in model.main.walk() if term.op == "param"}
