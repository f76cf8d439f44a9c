"""The template of running folds along one axis: down columns in vectors of them, or along a row in vectors of it."""

from __future__ import annotations

from typing import Any

from frittata.egraph import program
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.chunks import Split, column_loop, indented, row_indices, row_loop, split
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lookups import sites
from frittata.kernels.lower import result_names
from frittata.kernels.lowered import LoweredKernel, Status, addresses
from frittata.kernels.roofline import roofline
from frittata.kernels.scan_emitter import ScanEmitter
from frittata.kernels.scans import ScanPlan, plan_scan
from frittata.kernels.simd import Builder, Value


class ScanTemplate:
    """Runs bodies that are point-wise in running folds along one axis: cumulative sums, products and extremes."""

    name = "scan"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of arithmetic and memory; None for bodies without such folds, or with others."""
        plan = plan_scan(bodies)
        return roofline(bodies, plan.units, _split(plan).chunks, machine) if plan else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loops around the vectors."""
        plan = plan_scan(bodies)
        if plan is None:
            raise LoweringError("bodies without running folds along one axis", do="choose another template")
        cut, arguments = _split(plan), addresses(bodies)
        text = source.function(name, source.comment(bodies, result_names(bodies)), _lines(plan, cut))
        if words := len(sites(bodies)):
            arguments.append(Status(words))
        key = f"{[str(leaf.type) for leaf in program.operands_of(*bodies)]} {plan.describe()}"
        return LoweredKernel(name, text, _namespace(bodies, plan), cut.chunks, tuple(arguments), key)


SCAN = ScanTemplate()


def _split(plan: ScanPlan) -> Split:
    return split(plan.row_count, plan.extent, plan.units, plan.lanes if plan.columns else None)


def _lines(plan: ScanPlan, cut: Split) -> list[str]:
    at = ["table", *row_indices(plan.rows)]
    if not plan.columns:
        return indented(row_loop(cut, plan.row_count), [f"line({', '.join(at)})"])
    block, rest = f"columns({', '.join([*at, 'k'])})", f"last_columns({', '.join(at)})"
    return column_loop(cut, plan.row_count, plan.extent, plan.lanes, block, rest)


def _namespace(bodies: tuple[Term, ...], plan: ScanPlan) -> dict[str, Any]:
    rows = len(plan.rows)
    full = plan.extent - plan.extent % plan.lanes

    def line(builder: Builder, table: Value, *values: Value) -> None:
        ScanEmitter(builder, plan, bodies, table, values).emit_line()

    def columns(builder: Builder, table: Value, *values: Value) -> None:
        ScanEmitter(builder, plan, bodies, table, values[:rows]).emit_columns(values[rows], None)

    def last_columns(builder: Builder, table: Value, *values: Value) -> None:
        ScanEmitter(builder, plan, bodies, table, values).emit_columns(full, plan.extent - full)

    return {
        "line": make_tile_intrinsic("line", line, rows),
        "columns": make_tile_intrinsic("columns", columns, rows + 1),
        "last_columns": make_tile_intrinsic("last_columns", last_columns, rows),
    }
