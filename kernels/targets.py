"""Targets: what a program can be compiled for, each with its templates, its prices and its runtime.

A third party adds one with `register`; `optimize(..., target=name)` then finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from frittata.egraph.errors import FrittataError
from frittata.egraph.machine import REFERENCE_GPU, Machine
from frittata.egraph.program import Kernel, Program, Template
from frittata.kernels import runtime, templates
from frittata.kernels.cache import KernelCache
from frittata.kernels.plain import plain_source

Array = NDArray[Any]


class Runnable(Protocol):
    """A program ready to run, and what the report tells of it."""

    @property
    def program(self) -> Program:
        """What it runs."""
        ...

    @property
    def lowered(self) -> tuple[Any, ...]:
        """Its steps in order, as the target wrote them."""
        ...

    @property
    def steps(self) -> int:
        """How many kernels a call runs."""
        ...

    @property
    def distinct_kernels(self) -> int:
        """How many of them differ."""
        ...

    @property
    def newly_compiled(self) -> int:
        """How many neither this process nor the cache had."""
        ...

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run the program on arguments in the order of its inputs."""
        ...

    def measure(self, *arrays: Any, repeats: int = 10) -> NDArray[np.float64]:
        """Return the least time of each kernel of the program, in seconds."""
        ...


def seconds_by_kernel(made: Runnable, program: Program, arrays: Sequence[Any], repeats: int) -> dict[str, float]:
    """Time a program on arguments and return the least seconds of each kernel by its name.

    Raises: FrittataError if what a target built gives something else; what `measure` raises.
    """
    names, found = [kernel.name for kernel in program.kernels], made.measure(*arrays, repeats=repeats)
    seconds = np.asarray(found)
    if seconds.shape != (len(names),) or seconds.dtype.kind not in "fiu":
        what = f"{type(made).__name__}.measure returned {found!r} for a program of {len(names)} kernels"
        raise FrittataError(what, do="return an array of the seconds of each kernel")
    return dict(zip(names, map(float, seconds), strict=True))


_PARTS = ("__call__", *(part for part in vars(Runnable) if not part.startswith("_")))


@dataclass(frozen=True)
class Target:
    """Something to compile for.

    `templates(form, library)` gives the templates to choose from, `build` makes a chosen program run, `source` writes a
    kernel for readers. `machine` is the profile to price with when the caller gives none; None measures this machine.
    `keeps_device_arrays` tells that arguments may lie on a device, and that results stay there.
    """

    name: str
    templates: Callable[[str, bool], tuple[Template, ...]]
    build: Callable[[Program, Mapping[str, Array], KernelCache], Runnable]
    source: Callable[[Kernel], str] = plain_source
    machine: Machine | None = None
    keeps_device_arrays: bool = False

    def built(self, program: Program, value_by_param: Mapping[str, Array], cache: KernelCache) -> Runnable:
        """Make a program run.

        Raises: FrittataError that names what the result lacks of a `Runnable`; what `build` raises.
        """
        made = self.build(program, value_by_param, cache)
        missing = [part for part in _PARTS if not hasattr(made, part)]
        if missing:
            what = f"target {self.name!r} built a {type(made).__name__} without {', '.join(missing)}"
            raise FrittataError(what, do="give it all that frittata.kernels.targets.Runnable has")
        return made


def _cuda_templates(form: str, library: bool) -> tuple[Template, ...]:
    from frittata.kernels.cuda import device
    from frittata.kernels.cuda.library import LIBRARIES, gemm
    from frittata.kernels.cuda.templates import TEMPLATES

    if form != "fast":
        raise FrittataError(f'target="cuda" has no form {form!r}', do="leave out form: its kernels are plain source")
    device.require("device", "simulator", "compiler")
    every: tuple[Template, ...] = TEMPLATES
    if device.state() == "device":
        capability = device.capability()
        every = (*every, *LIBRARIES) if library and gemm() else every
        every = tuple(t for t in every if getattr(t, "least_capability", capability) <= capability)
    return (*every, *templates.HOST_TEMPLATES)


def _cuda_build(program: Program, value_by_param: Mapping[str, Array], cache: KernelCache) -> Runnable:
    from frittata.kernels.cuda.runtime import build

    return build(program, value_by_param, cache)


def _cuda_source(kernel: Kernel) -> str:
    from frittata.kernels.cuda.runtime import kernel_source

    return kernel_source(kernel)


CPU = Target("cpu", templates.select, runtime.build)
CUDA = Target("cuda", _cuda_templates, _cuda_build, _cuda_source, REFERENCE_GPU, keeps_device_arrays=True)

_TARGET_BY_NAME: dict[str, Target] = {CPU.name: CPU, CUDA.name: CUDA}


def register(target: Target) -> Target:
    """Add a target.

    Raises: FrittataError if the name is taken, or what should be a function is none.
    """
    given: Any = target
    if not isinstance(given, Target):
        raise FrittataError(f"a target that is a {type(given).__name__}", do="give a Target")
    if not isinstance(given.name, str) or not given.name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FrittataError(f"a target cannot be named {given.name!r}", do="give a text")
    for what, function in (("templates", given.templates), ("build", given.build), ("source", given.source)):
        if not callable(function):
            raise FrittataError(f"target {given.name!r} with {what}={function!r}", do="give a function")
    if target.name in _TARGET_BY_NAME:
        own = "" if _TARGET_BY_NAME[target.name] in (CPU, CUDA) else ", or unregister that one"
        raise FrittataError(f"a target named {target.name!r} exists already", do=f"give it another name{own}")
    _TARGET_BY_NAME[target.name] = target
    return target


def unregister(name: str) -> None:
    """Remove a target that `register` added.

    Raises: FrittataError if there is none of that name, or it comes with the package.
    """
    if by_name(name) in (CPU, CUDA):
        raise FrittataError(f"target {name!r} comes with the package", do="register another under a name of its own")
    del _TARGET_BY_NAME[name]


def by_name(name: str) -> Target:
    """Return a target.

    Raises: FrittataError if there is none of that name.
    """
    if name not in _TARGET_BY_NAME:
        raise FrittataError(f"no target {name!r}", do=f"use one of {', '.join(_TARGET_BY_NAME)}")
    return _TARGET_BY_NAME[name]
