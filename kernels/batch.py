"""Compiling many kernels: those found in the cache are loaded, the others compiled by forked processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from frittata.egraph.exporting import BUILTINS
from frittata.kernels.cache import KernelCache
from frittata.kernels.children import spread
from frittata.kernels.compile import CompiledKernel, compile_kernel, find_kernel, kernel_digest

_FEWEST_TO_FORK = 4

Compiled = TypeVar("Compiled", covariant=True)


class Compilable(Protocol[Compiled]):
    """Source that is compiled to something that a cache keeps under `digest`."""

    @property
    def source(self) -> str:
        """The text."""
        ...

    @property
    def digest(self) -> str:
        """The content key."""
        ...

    def find(self, cache: KernelCache | None) -> Compiled | None:
        """Return what this process or the cache has of it."""
        ...

    def compile(self, cache: KernelCache | None) -> Compiled:
        """Compile it in this process, unless it is found.

        Raises: CompileError.
        """
        ...


@dataclass(frozen=True)
class KernelSource:
    """What `compile_kernel` takes, to be compiled later."""

    source: str
    name: str
    namespace: Mapping[str, Any] = field(repr=False)
    key: str = ""

    @property
    def digest(self) -> str:
        """The content key of the kernel."""
        return kernel_digest(self.source, self.key)

    def find(self, cache: KernelCache | None) -> CompiledKernel | None:
        """Return the kernel that this process or the cache has."""
        return find_kernel(self.name, self.digest, cache)

    def compile(self, cache: KernelCache | None) -> CompiledKernel:
        """Compile it in this process, unless it is found."""
        return compile_kernel(self.source, self.name, self.namespace, key=self.key, cache=cache)


def compile_kernels(
    sources: Sequence[Compilable[Compiled]], cache: KernelCache | None = None, processes: int | None = None
) -> tuple[list[Compiled], int]:
    """Compile kernels, equal ones once, in as many processes as there are processors in reach unless told.

    Return them, and how many were compiled because neither this process nor the cache had them.

    Raises: CompileError if a compiler refuses one of them.
    """
    if cache is None:
        with TemporaryDirectory(prefix="frittata-") as folder:
            return compile_kernels(sources, KernelCache(Path(folder)), processes)
    unique = {source.digest: source for source in sources}
    found = {digest: kernel for digest, source in unique.items() if (kernel := source.find(cache)) is not None}
    new = [source for digest, source in unique.items() if digest not in found]

    def store(number: int) -> None:
        new[number].compile(cache)

    if new:
        with BUILTINS:
            if len(new) >= _FEWEST_TO_FORK:
                spread(store, sorted(range(len(new)), key=lambda n: -len(new[n].source)), processes)
            # whatever a child has left undone is compiled here, and an error in it raised here
            found.update((source.digest, source.compile(cache)) for source in new)
    return [found[source.digest] for source in sources], len(new)
