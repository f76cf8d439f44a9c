"""Which kernels of a chosen program run together, a few lines of an image at a time.

That saves what passes between them through outer caches or memory, and repeats the lines that neighbouring parts both
need. Results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from frittata.egraph.bands import Finder, Stage, Stages
from frittata.egraph.machine import Machine
from frittata.egraph.places import find_places
from frittata.egraph.program import Band, Kernel, Program, Template, is_in_place

_PARTS_A_THREAD = (2, 1)
_SHARE_OF_CACHES = 0.5
"""Of caches of the first and second level: what takes less stays there."""
_COLD_SHARE = 0.6
"""Of what is written and read of larger ones, the part that passes through memory. Templates predict that none does."""
_HIDDEN_SHARE = 0.15
"""Of a kernel's time, so much of that is hidden behind its arithmetic."""


def choose_bands(program: Program, templates: Sequence[Template], machine: Machine) -> tuple[Band, ...]:
    """Return the bands of a program: from each kernel on the one that saves most, if any does."""
    chooser = _Chooser(program, templates, machine)
    found: list[Band] = []
    kernels = list(program.kernels)
    while kernels:
        band = chooser.longest(kernels)
        if band is not None:
            found.append(band)
        del kernels[: len(band.kernels) if band is not None else 1]
    return tuple(found)


class _Chooser:
    def __init__(self, program: Program, templates: Sequence[Template], machine: Machine) -> None:
        self._finder = Finder(program, find_places(program))
        self._constants = program.constant_buffers()
        self._templates = {template.name: template for template in templates}
        self._machine = machine
        self._least_bytes = _SHARE_OF_CACHES * machine.l2_bytes * machine.threads
        self._longer: dict[str, float] = {}

    def longest(self, kernels: Sequence[Kernel]) -> Band | None:
        """Return the band that begins with the first of some kernels and saves most.

        Lines lie in the memory of other lines: only templates that read and write in place can have them.
        """
        best: Band | None = None
        most = 0.0
        for count in range(2, len(kernels) + 1):
            pair = kernels[count - 2 : count]
            if not self._is_large(*pair) or not all(is_in_place(self._templates[kernel.template]) for kernel in pair):
                break
            stages = self._finder.stages([kernel.name for kernel in kernels[:count]])
            if stages is None:
                break
            for parts in (self._machine.threads * each for each in _PARTS_A_THREAD):
                saved = self._saved_s(stages, parts) if parts <= stages.total else 0.0
                if saved > most:
                    best, most = Band(tuple(kernel.name for kernel in kernels[:count]), parts), saved
        return best

    def _is_large(self, kernel: Kernel, following: Kernel) -> bool:
        root = self._finder.handed_on(kernel, following)
        return root is not None and self._finder.size_bytes(root) > self._least_bytes

    def _saved_s(self, stages: Stages, parts: int) -> float:
        """Return how much less kernels take together: what passes through memory, less what lines take more."""
        saved = 0.0
        computed = [stages.computed(low, high) for part in stages.parts(parts) for _, low, high in part]
        before = 0
        for stage, counts in zip(stages.stages, zip(*computed, strict=True), strict=True):
            lines, seconds = sum(counts), stage.kernel.estimate.seconds
            saved -= seconds * (lines / (stage.line.images * stage.line.count) * self._share_of_lines(stage) - 1.0)
            weights = self._finder.constant_bytes(stage.kernel)
            if weights > _SHARE_OF_CACHES * self._machine.l1_bytes:
                saved -= lines * weights / self._machine.l3_bytes_per_s
            behind = self._finder.size_bytes(stage.root) if stage.root else 0
            cold_s = _COLD_SHARE * (before + behind) / self._machine.memory_bytes_per_s
            saved += max(0.0, cold_s - _HIDDEN_SHARE * seconds)
            before = behind
        return saved

    def _share_of_lines(self, stage: Stage) -> float:
        """Return the arithmetic of all lines of a kernel, each by itself, beside that of the kernel."""
        name = stage.kernel.name
        if name not in self._longer:
            machine = replace(self._machine, l3_bytes_per_s=inf, memory_bytes_per_s=inf, launch_s=0.0, sync_s=0.0)
            threads = machine.threads
            rates = machine.fma_f32_per_s / threads, machine.scalar_per_s / threads
            alone = replace(machine, threads=1, fma_f32_per_s=rates[0], scalar_per_s=rates[1])
            template = self._templates[stage.kernel.template]
            line = template.estimate((stage.line.body,), self._constants, alone)
            whole = template.estimate(self._finder.bodies(stage.kernel), self._constants, machine)
            lines = stage.line.images * stage.line.count
            if line is None or whole is None or not whole.seconds:
                self._longer[name] = inf
            else:
                self._longer[name] = line.seconds * lines / threads / whole.seconds
        return self._longer[name]
