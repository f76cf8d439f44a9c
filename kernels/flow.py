"""Loops and branches on an LLVM IR builder, in static single assignment form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from frittata.kernels.simd import I64, Builder, Index, Value, as_index, overload_name


def for_range(
    builder: Builder,
    start: Index,
    stop: Index,
    step: int,
    carried: Sequence[Value],
    body: Callable[[Value, list[Value]], Sequence[Value]],
) -> list[Value]:
    """Emit `for i in range(start, stop, step): carried = body(i, carried)` and return the last `carried`."""
    static = isinstance(start, int) and isinstance(stop, int)
    if static and start >= stop:
        return list(carried)
    first, limit, entry = as_index(start), as_index(stop), builder.basic_block
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
    if static:
        builder.branch(loop)
    else:
        builder.cbranch(builder.icmp_signed("<", first, limit), loop, done)
    builder.position_at_end(loop)
    index = _phi(builder, first, entry)
    values = [_phi(builder, value, entry) for value in carried]
    results = list(body(index, list(values)))
    following, latch = builder.add(index, I64(step), flags=["nsw"]), builder.basic_block
    for phi, value in zip([index, *values], [following, *results], strict=True):
        phi.add_incoming(value, latch)
    builder.cbranch(builder.icmp_signed("<", following, limit), loop, done)
    builder.position_at_end(done)
    return results if static else _merge(builder, entry, carried, latch, results)


def repeat(builder: Builder, start: Index, stop: Index, step: int, body: Callable[[Value], object]) -> None:
    """Emit `for i in range(start, stop, step): body(i)`."""

    def turn(i: Value, _: list[Value]) -> list[Value]:
        body(i)
        return []

    for_range(builder, start, stop, step, [], turn)


def _phi(builder: Builder, value: Value, block: Any) -> Value:
    phi = builder.phi(value.type)
    phi.add_incoming(value, block)
    return phi


def _merge(builder: Builder, skipped: Any, before: Sequence[Value], looped: Any, after: Sequence[Value]) -> list[Value]:
    merged = [_phi(builder, value, skipped) for value in before]
    for phi, value in zip(merged, after, strict=True):
        phi.add_incoming(value, looped)
    return merged


def rarely(builder: Builder, condition: Value, value: Value, emit: Callable[[], Value]) -> Value:
    """Return `value`, or what `emit` computes if the `i1` condition holds, which is seldom."""
    entry = builder.basic_block
    with builder.if_then(condition, likely=False):
        other, source = emit(), builder.basic_block
    result = _phi(builder, value, entry)
    result.add_incoming(other, source)
    return result


def apart(builder: Builder, name: str, operands: Sequence[Value], emit: Callable[..., Value]) -> Value:
    """Return what `emit(builder, *operands)` computes, of the type of the first, in a function beside the others.

    A module has one for each name and types of operands: what is seldom needed is compiled once for all places.
    """
    types = [operand.type for operand in operands]
    symbol = ".".join([name, *map(overload_name, types)])
    function = builder.module.globals.get(symbol)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(types[0], types), symbol)
        function.linkage = "internal"
        for attribute in ("noinline", "cold", "nounwind"):
            function.attributes.add(attribute)
        inside = ir.IRBuilder(function.append_basic_block())
        inside.ret(emit(inside, *function.args))
    return builder.call(function, list(operands))
