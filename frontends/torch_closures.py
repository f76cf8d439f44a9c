"""What functions and modules hold beside their arguments: in closures and globals, lists, dicts and attributes."""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from logging import Logger
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

_DEEPEST, _OBJECT = 64, 16
"""So many lists, tuples and dicts may lie around what is found; an object, or a function, counts as several."""

_COLLECTIONS = (list, tuple, deque, dict)

_ASIDE = {"training", "_forward_hooks", "_forward_pre_hooks"}

_TORCHS = frozenset({*vars(torch.nn.Module()), "_flat_weights", "_flat_weight_refs"}) - _ASIDE
"""What torch keeps in modules: parameters, recurrent layers twice, buffers, parts, and what has no part in a call."""

_ATOMS = (torch.Tensor, ModuleType, Logger, type, str, bytes, int, float, complex, type(None))
"""What nothing lies in; from a logger all others can be reached, and torch makes some while it exports."""

_APART = (*_ATOMS, torch.nn.Module)

UNSET: Any = object()
"""Stands for nothing."""


def modules_of(function: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """Return the modules that a function has from elsewhere, each once, by name."""
    found: dict[int, tuple[str, torch.nn.Module]] = {}
    seen: dict[int, int] = {}
    for name, value in _names_in(function).items():
        for path, module in _held(name, value, _DEEPEST - _OBJECT, torch.nn.Module, seen):
            found.setdefault(id(module), (path, module))
    return dict(found.values())


def with_parameters(constants: Mapping[str, Any], module: torch.nn.Module) -> dict[str, Any]:
    """Return the constants of an export with a module's parameters in the place of what shares their memory.

    torch.export takes parameters that are no module's, in a list, say, for constants, and a copy of the tensor alone:
    writes to the parameter are not counted there.
    """
    if not constants:
        return {}
    seen: dict[int, int] = {}
    every = (found for part in module.modules() for _, found in _held("", part, _DEEPEST, torch.nn.Parameter, seen))
    by_place = {place_of(parameter): parameter for parameter in every}
    return {name: by_place.get(place_of(value), value) for name, value in constants.items()}


def place_of(value: Any) -> Any:
    """Return where a tensor lies and how; of what has no memory of its own which it is."""
    try:
        return value.data_ptr(), value.dtype, value.shape, value.stride()
    except (AttributeError, RuntimeError):  # no tensor, a sparse one, one that torch.func has wrapped
        return id(value)


def _held(path: str, value: Any, depth: int, kind: type, seen: dict[int, int]) -> Iterator[tuple[str, Any]]:
    """Visit what is of a kind in lists, tuples, dicts, functions and attributes of objects, with a name for each.

    `seen` says how deep what was looked at before was looked into.
    """
    if isinstance(value, kind):
        yield path, value
    elif _is_looked_into(value, depth, seen):
        for key, part in _parts(value):
            yield from _held(f"{path}_{key}".replace(".", "_"), part, _left(depth, value), kind, seen)


def containers_of(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Visit a module and its parts, and the lists, dicts, objects and functions that lie in them, with a name for each.

    What torch keeps in a module is left out, and torch's own objects and functions, and ours.
    """
    seen: dict[int, int] = {}
    for path, part in module.named_modules():
        name = ".".join(filter(None, ("self", path)))
        yield from _containers(name, part, _DEEPEST, seen)
        forward = getattr(type(part), "forward", None)
        if isinstance(forward, FunctionType) and not _is_known(forward):
            yield from _containers(f"{name}.forward", forward, _DEEPEST, seen)


def _containers(name: str, value: Any, depth: int, seen: dict[int, int]) -> Iterator[tuple[str, Any]]:
    if not _is_looked_into(value, depth, seen):
        return
    if not isinstance(value, tuple):
        yield name, value
    for key, part in own_parts(value).items():
        if not isinstance(part, _APART) and not _is_known(part):
            yield from _containers(name_in(name, value, key), part, _left(depth, value), seen)


def _is_known(value: Any) -> bool:
    """Whether something is torch's or ours."""
    home = value.__module__ if isinstance(value, FunctionType) else type(value).__module__
    return (home or "").partition(".")[0] in ("torch", "frittata")


def own_parts(value: Any) -> dict[Any, Any]:
    """Return what lies in something, but for what torch keeps in a module."""
    is_module = isinstance(value, torch.nn.Module)
    return {key: part for key, part in _parts(value) if not (is_module and key in _TORCHS)}


def name_in(name: str, value: Any, key: Any) -> str:
    """Return how code names what lies in something of a name."""
    if isinstance(value, _COLLECTIONS):
        return f"{name}[{key!r}]"
    return str(key) if isinstance(value, FunctionType | MethodType) else f"{name}.{key}"


def put(value: Any, parts: Mapping[Any, Any]) -> None:
    """Let something have other parts, and those that are `UNSET` no more."""
    if isinstance(value, list | deque):
        every = {**dict(enumerate(value)), **parts}
        value.clear()
        value.extend(every[at] for at in sorted(every) if every[at] is not UNSET)
        return
    for key, part in parts.items():
        if isinstance(value, dict):
            value.pop(key, None) if part is UNSET else value.update({key: part})
        elif isinstance(value, FunctionType | MethodType) and key not in vars(value):
            _rebind(value, key, part)
        elif part is not UNSET:
            object.__setattr__(value, key, part)
        elif hasattr(value, key):
            object.__delattr__(value, key)


def _rebind(function: Any, name: str, value: Any) -> None:
    """Bind what a function has from what encloses it, or from its globals."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        cells[name].cell_contents = value
    elif name in function.__globals__:
        function.__globals__[name] = value


def _is_looked_into(value: Any, depth: int, seen: dict[int, int]) -> bool:
    """Whether something may hold others, and was not looked into as deep before; it is noted."""
    if isinstance(value, _ATOMS) or depth <= seen.get(id(value), 0):
        return False
    seen[id(value)] = depth
    return True


def _left(depth: int, value: Any) -> int:
    return depth - (1 if isinstance(value, _COLLECTIONS) else _OBJECT)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return what is in a list, a tuple or a dict, what a function finds, or the attributes of an object, by name."""
    if isinstance(value, list | tuple | deque):
        return enumerate(value)
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, **value.keywords}.items()
    if isinstance(value, FunctionType | MethodType):
        return {**_names_in(value), **vars(value)}.items()
    kinds = [vars(kind) for kind in type(value).__mro__ if "__slots__" in vars(kind)]
    slots = [name for own in kinds for name, slot in own.items() if isinstance(slot, MemberDescriptorType)]
    filled = {name: getattr(value, name, None) for name in slots}
    return {**filled, **getattr(value, "__dict__", {})}.items()


def _names_in(function: Any) -> dict[str, Any]:
    """Return what the code of a function finds by name: globals, what encloses it, defaults, the object of a method.

    Of modules of Python and of classes that is what the code reads of them, if it is a module of torch.
    """
    code: CodeType = function.__code__
    every: dict[str, Any] = {}
    for name, attribute in _globals(code):
        value = function.__globals__.get(name)
        own = getattr(value, attribute, None) if isinstance(value, ModuleType | type) else None
        every |= {f"{name}_{attribute}": own} if isinstance(own, torch.nn.Module) else {name: value}
    every |= {f"default_{at}": value for at, value in enumerate(function.__defaults__ or ())}
    every |= function.__kwdefaults__ or {}
    return {"self": getattr(function, "__self__", None), **every, **enclosing(function)}


def enclosing(function: Any) -> dict[str, Any]:
    """Return what the code of a function finds in what encloses it, by name."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _globals(code: CodeType) -> Iterator[tuple[str, str]]:
    """Visit the names that code reads from its globals, with the attribute that it reads of each, if any.

    The code of functions within it counts.
    """
    for read, after in pairwise(dis.get_instructions(code)):  # the last one returns
        if read.opname == "LOAD_GLOBAL":
            yield read.argval, after.argval if after.opname in ("LOAD_ATTR", "LOAD_METHOD") else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)
