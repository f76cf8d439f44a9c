"""What the cost model knows of a machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Machine:
    """A machine profile.

    Units: `*_bytes_per_s` for all threads together, read plus write; `fma_f32_per_s` fused multiply-adds (two flops) in
    float32 for all threads; `scalar_per_s` additions in vector code; capacities in bytes (level one and two for each
    core); `launch_s` what one step of the driver costs; `sync_s` what splitting a step among threads costs more.

    `cold_weights` is a matter of the program that will run: its constants do not stay in a cache between two calls.
    """

    name: str
    threads: int
    lanes_f32: int
    registers: int
    fma_f32_per_s: float
    scalar_per_s: float
    memory_bytes_per_s: float
    l3_bytes_per_s: float
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    launch_s: float
    sync_s: float
    library_gemm_share: float
    cold_weights: bool = False

    def running(self, weights_bytes: int) -> Machine:
        """Return the machine as a program finds it whose constants take so many bytes together."""
        return replace(self, cold_weights=weights_bytes > self.l3_bytes / 2)

    def transfer_s(self, moved: float, weights: float = 0.0) -> float:
        """Return the time of reading operands and writing results once: `moved` bytes, `weights` of them constants.

        What takes more than half of the last cache begins to fall out of it before it is read again; what takes all of
        it comes from memory.
        """
        cold = min(weights, moved) if self.cold_weights or weights > self.l3_bytes / 2 else 0.0
        others = moved - cold
        cold += others * min(1.0, max(0.0, 2.0 * others / self.l3_bytes - 1.0))
        return cold / self.memory_bytes_per_s + (moved - cold) / self.l3_bytes_per_s

    def to_dict(self) -> dict[str, object]:
        """Return the profile as plain data."""
        return asdict(self)


BUSY = 0.02
"""Of the time that a profile was measured, the share of waiting for cores from which on it tells too little."""

REFERENCE = Machine(
    name="reference-avx2-2",
    threads=2,
    lanes_f32=8,
    registers=16,
    fma_f32_per_s=100e9,
    scalar_per_s=40e9,
    memory_bytes_per_s=36e9,
    l3_bytes_per_s=120e9,
    l1_bytes=32 << 10,
    l2_bytes=512 << 10,
    l3_bytes=32 << 20,
    launch_s=0.3e-6,
    sync_s=0.5e-6,
    library_gemm_share=0.72,
)
"""The checked-in profile of a two-core AVX2 machine, for tests whose outcome must not depend on where they run."""

REFERENCE_GPU = Machine(
    name="reference-h200",
    threads=132,
    lanes_f32=32,
    registers=255,
    fma_f32_per_s=30e12,
    scalar_per_s=30e12,
    memory_bytes_per_s=4.2e12,
    l3_bytes_per_s=6e12,
    l1_bytes=48 << 10,
    l2_bytes=228 << 10,
    l3_bytes=60 << 20,
    launch_s=1.0e-6,
    sync_s=0.0,
    library_gemm_share=0.83,
)
"""The checked-in profile of a GPU of the H200 class: rates of its data sheet; bandwidths, launches and products as
measured on one.

`threads` are multiprocessors, `lanes_f32` the threads of a warp, `registers` those of a thread; level one is the shared
memory that a block may declare, level two the memory of a multiprocessor, level three the cache that all share.
"""
