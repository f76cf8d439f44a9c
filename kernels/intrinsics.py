"""Functions that generated numba source calls, whose bodies are LLVM IR emitted by Python.

A kernel is `void kernel(int64* table, int64 chunk)`; the table holds addresses of buffers and run-time sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from frittata.egraph.terms import Term
from frittata.kernels.simd import Builder, Index, Lane, Value, as_index

TABLE_TYPE: Any = types.CPointer(types.int64)


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """A function that generated source calls by `name`: what `emit(builder, *arguments)` appends and returns."""

    name: str
    signature: Any
    emit: Callable[..., Any]

    def declare(self) -> Any:
        """Return the function as numba knows it, which numba keeps for as long as the process lives."""

        def generate(context: Any, builder: Builder, _signature: Any, arguments: Any) -> Value:
            value = self.emit(builder, *arguments)
            return context.get_dummy_value() if self.signature.return_type == types.void else value

        parameters = ", ".join(f"a{i}" for i in range(len(self.signature.args)))
        # numba reads the parameters off the function, so it has to be spelled with as many as the signature has
        scope: dict[str, Any] = {"signature": self.signature, "generate": generate}
        exec(f"def {self.name}(context, {parameters}):\n    return signature, generate", scope)
        return intrinsic(scope[self.name])


def make_tile_intrinsic(name: str, emit: Callable[..., None], arity: int) -> Intrinsic:
    """Return a function that generated source calls as `name(table, i, j, ...)`, `arity` int64 values after the table.

    `emit(builder, table, *values)` appends the body at the builder's position and may open blocks; it returns nothing.
    """
    return Intrinsic(name, types.void(TABLE_TYPE, *[types.int64] * arity), emit)


def make_index_intrinsic(name: str, emit: Callable[..., Value], arity: int) -> Intrinsic:
    """Return a function like that of `make_tile_intrinsic` whose `emit` returns an int64."""
    return Intrinsic(name, types.int64(TABLE_TYPE, *[types.int64] * arity), emit)


def table_value(builder: Builder, table: Value, index: Index) -> Value:
    """Read entry `index` of the argument table as an int64; the table does not change while a kernel runs."""
    value = builder.load(builder.gep(table, [as_index(index)]), align=8)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def table_pointer(builder: Builder, table: Value, index: Index, dtype: str) -> Value:
    """Read entry `index` of the argument table as the address of elements of `dtype`."""
    return builder.inttoptr(table_value(builder, table, index), Lane(dtype).memory_scalar.as_pointer())


def operand_pointers(builder: Builder, table: Value, operands: Iterable[Term]) -> dict[Term, Value]:
    """Read the addresses of operands, with which a table begins."""
    return {leaf: table_pointer(builder, table, n, leaf.dtype) for n, leaf in enumerate(operands)}


def result_pointers(builder: Builder, table: Value, first: int, bodies: Iterable[Term]) -> list[Value]:
    """Read the addresses of results, from entry `first` on."""
    return [table_pointer(builder, table, n, body.dtype) for n, body in enumerate(bodies, first)]


argument = make_index_intrinsic("argument", table_value, 1)
"""`argument(table, index)` in generated source: an entry of the table as an int64."""
