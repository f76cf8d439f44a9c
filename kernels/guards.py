"""Vector code that takes values as indices: clamped to their axis, with a note in the status of those outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frittata.egraph.errors import LoweringError
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd, vmath
from frittata.kernels.intrinsics import table_pointer
from frittata.kernels.lookups import Site, sites
from frittata.kernels.simd import Builder, Index, Value, lane_of


@dataclass(frozen=True, eq=False)
class Guard:
    """The address of a kernel's status, and which word of it belongs to which look-up."""

    status: Value
    word_by_site: Mapping[Site, int]

    def index(self, builder: Builder, value: Value, element: Term, extent: int, valid: Index | None) -> Value:
        """Return values of an element as int64 indices; only the first `valid` lanes, if given, must be in range."""
        if (element, extent) not in self.word_by_site:
            raise LoweringError("a look-up that no word of the kernel's status belongs to")
        indices = vmath.cast(builder, value, "i64")
        lane = lane_of(indices)
        outside = builder.icmp_unsigned(">=", indices, simd.constant(lane, extent))
        if valid is not None and lane.lanes > 1:
            outside = builder.and_(outside, memory.valid_mask(builder, lane, valid))
        with builder.if_then(simd.any_lane(builder, outside), likely=False):
            found = simd.extract(builder, indices, 0)
            for i in range(1, lane.lanes):
                other = simd.extract(builder, indices, i)
                found = builder.select(simd.extract(builder, outside, i), other, found)
            memory.store(builder, found, self.status, self.word_by_site[element, extent])
        last = simd.constant(lane, extent - 1)
        return simd.minimum(builder, simd.maximum(builder, indices, simd.constant(lane, 0)), last)


def guard_of(builder: Builder, table: Value, position: int, bodies: tuple[Term, ...]) -> Guard | None:
    """Return the guard of a kernel whose table has its status at a position; None if it looks nothing up."""
    words = sites(bodies)
    return Guard(table_pointer(builder, table, position, "i64"), words) if words else None
