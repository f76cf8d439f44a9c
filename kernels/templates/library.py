"""Products of plain matrices by the BLAS that torch brings along, called from the driver like any other kernel.

torch's own shared library exports Fortran's `sgemm_` and `dgemm_`. Within the driver's parallel region BLAS runs on the
calling thread, so a product is split into blocks of rows, one chunk each. The address of the function differs from
process to process: it reaches the kernel through its table, and compiled code can be kept on disk.
"""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer
from frittata.kernels.lowered import Argument, LoweredKernel, Operand, Result, Table
from frittata.kernels.simd import Builder, Lane, Value

_SYMBOL_BY_DTYPE = {"f32": "sgemm_", "f64": "dgemm_"}
_MOST_CHUNKS = 16
_LEAST_ROWS = 32
_CALL_S = 0.5e-6
_TILE_VECTORS = 2.5
"""Its register tiles are as good as empty where there are much fewer columns than these vectors have."""

_POINTER = ir.IntType(8).as_pointer()


@dataclass(frozen=True)
class _Product:
    """C (m, n) = A (m, k) B (k, n), all row-major and contiguous."""

    m: int
    n: int
    k: int
    dtype: str


class LibraryTemplate:
    """Takes one product of two plain matrices, or of a stack of matrices with one matrix; nothing fused."""

    name = "library"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time by the library's share of the peak; None for other bodies, or without a library."""
        product = _product(bodies)
        if product is None or _address(product.dtype) == 0 or machine.library_gemm_share == 0:
            return None
        m, n, k = product.m, product.n, product.k
        flops = 2.0 * m * n * k
        wide = 2 if product.dtype == "f64" else 1
        rows, columns = m / (m + 8), n / (n + _TILE_VECTORS * machine.lanes_f32 / wide)  # empty parts of its tiles
        compute = flops * wide / (2 * machine.fma_f32_per_s * machine.library_gemm_share * rows * columns)
        moved = float(dtypes.itemsize(product.dtype) * (m * k + k * n + m * n))
        overhead = machine.launch_s + machine.sync_s + _CALL_S * _chunks(m) / machine.threads
        return Estimate(overhead + max(compute, machine.transfer_s(moved)), flops, moved)

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write a kernel that calls BLAS on its block of rows."""
        product = _product(bodies)
        address = _address(product.dtype) if product else 0
        if product is None or address == 0:
            raise LoweringError("the library template takes one product of plain matrices, and needs torch's BLAS")
        chunks = _chunks(product.m)
        call = make_tile_intrinsic("call_gemm", lambda b, table, row, rows: _call(b, table, row, rows, product), 2)
        source = (
            f"# {_SYMBOL_BY_DTYPE[product.dtype]}: C ({product.m}, {product.n}) = A ({product.m}, {product.k}) B\n"
            f"def {name}(table, chunk):\n"
            f"    first = {product.m} * chunk // {chunks}\n"
            f"    call_gemm(table, first, {product.m} * (chunk + 1) // {chunks} - first)\n"
        )
        arguments: list[Argument] = [*map(Operand, range(_operand_count(bodies))), Result(0)]
        arguments.append(Table(np.array([address], np.int64)))
        return LoweredKernel(name, source, {"call_gemm": call}, chunks, tuple(arguments), f"library {product}")


LIBRARY = LibraryTemplate()


def _product(bodies: tuple[Term, ...]) -> _Product | None:
    if len(bodies) != 1 or bodies[0].args[0].op != "dot":
        return None
    (body,) = bodies
    product = body.args[0]
    left, right = product.args
    if left.op != "load" or right.op != "load" or product.dtype not in _SYMBOL_BY_DTYPE or left is right:
        return None
    a, b = left.args[0], right.args[0]
    depth = product.attrs[0]
    plain = len(b.shape) >= 2 and all(dim == 1 for dim in b.shape[:-2])
    if not plain or b.shape[-2:] != (depth, body.shape[-1]) or a.shape != (*body.shape[:-1], depth):
        return None
    return _Product(shapes.size(a.shape[:-1]), int(body.shape[-1]), depth, product.dtype)  # type: ignore[arg-type]


def _operand_count(bodies: tuple[Term, ...]) -> int:
    return len({arg.args[0] for arg in bodies[0].args[0].args})


def _chunks(rows: int) -> int:
    return max(1, min(_MOST_CHUNKS, rows // _LEAST_ROWS))


def _call(builder: Builder, table: Value, row: Value, rows: Value, product: _Product) -> None:
    """Row-major C = A B is column-major C^T = B^T A^T: gemm(N, N, n, rows, k, 1, B, n, A, k, 0, C, n)."""
    a, b, c = (table_pointer(builder, table, i, product.dtype) for i in range(3))
    a = builder.gep(a, [builder.mul(row, ir.Constant(row.type, product.k))])
    c = builder.gep(c, [builder.mul(row, ir.Constant(row.type, product.n))])
    number = Lane(product.dtype).scalar

    def cell(value: Any) -> Value:
        place = builder.alloca(value.type)
        builder.store(value, place)
        return place

    def size(value: int | Value) -> Value:
        word = ir.IntType(32)
        return cell(ir.Constant(word, value) if isinstance(value, int) else builder.trunc(value, word))

    keep = cell(ir.Constant(ir.IntType(8), ord("N")))
    one, zero = (cell(ir.Constant(number, float(v))) for v in (1, 0))
    n, k = size(product.n), size(product.k)
    arguments = [keep, keep, n, size(rows), k, one, b, n, a, k, zero, c, n]
    type_ = ir.FunctionType(ir.VoidType(), [_POINTER] * len(arguments))
    gemm = builder.inttoptr(builder.load(table_pointer(builder, table, 3, "i64")), type_.as_pointer())
    builder.call(gemm, [builder.bitcast(argument, _POINTER) for argument in arguments])


@cache
def _address(dtype: str) -> int:
    """Return where torch's BLAS has the function for a dtype; 0 if there is no torch, or it does not export one."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return 0
    path = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
    try:
        function = getattr(ctypes.CDLL(str(path)), _SYMBOL_BY_DTYPE[dtype])
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
