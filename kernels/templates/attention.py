"""The template of one attention: scores of a block of queries stay in cache between their two products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from frittata.egraph import program
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.attention import describe
from frittata.kernels.attention_emitter import AttentionCode
from frittata.kernels.attention_estimate import estimate
from frittata.kernels.attention_schedule import AttentionPlan, plan
from frittata.kernels.contractions import structure
from frittata.kernels.intrinsics import make_index_intrinsic, make_tile_intrinsic
from frittata.kernels.lowered import LoweredKernel, Scratch, addresses


class AttentionTemplate:
    """Takes bodies that are point-wise in one `attend` whose scores are point-wise in one `dot`, or in views of it."""

    name = "attention"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of both products, the softmax and the packing; None for other bodies."""
        found = _plan(bodies)
        return estimate(found, machine) if found is not None else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write loops over batches and blocks of queries around vector code."""
        found = _plan(bodies)
        if found is None:
            raise LoweringError("the attention template takes bodies that are point-wise in one attend of a dot")
        return _Kernel(name, found).lowered()


ATTENTION = AttentionTemplate()


@lru_cache(maxsize=4096)
def _plan(bodies: tuple[Term, ...]) -> AttentionPlan | None:
    work = describe(bodies)
    return plan(work) if work is not None else None


class _Kernel:
    """One kernel being written.

    For each batch keys and values are packed; for each block of tiles of queries then come the scores of all keys,
    panel by panel, the softmax of each row, and the results, panel by panel.
    """

    def __init__(self, name: str, plan: AttentionPlan) -> None:
        self._name, self._plan, self._work = name, plan, plan.work
        self._operands = tuple(program.operands_of(*plan.work.bodies))
        self._code = AttentionCode(plan, self._operands)
        self._namespace: dict[str, Any] = {}
        self._row_bytes = plan.row_elements * plan.work.itemsize

    def lowered(self) -> LoweredKernel:
        plan, work = self._plan, self._work
        scratch = Scratch(plan.offset_by_part["end"])
        arguments = addresses(work.bodies)
        setup = [f"scratch = table[{len(arguments)}] + chunk*{scratch.stride_bytes}"]
        setup += [f"{part} = scratch + {at}" for part, at in plan.offset_by_part.items() if part != "end"]
        setup += [f"{part} = 0" for part in ("keys", "values", "queries") if part not in plan.offset_by_part]
        for rows in (1, 2):
            self._namespace[f"soften_{rows}"] = make_tile_intrinsic(f"soften_{rows}", self._code.soften(rows), 2)
        comments = [
            *source.comment(work.bodies),
            f"# {work.scores.batches} x {work.queries} queries of {work.keys} keys: "
            f"tiles of {plan.tiling.large_rows} queries x {plan.key_width} keys, x {plan.value_width} features",
        ]
        text = source.function(self._name, comments, [*setup, *self._batches()])
        key = "\n".join([structure(work.bodies), str(plan.key_tile), str(plan.value_tile), str(plan.offset_by_part)])
        arguments.append(scratch)
        return LoweredKernel(self._name, text, self._namespace, plan.chunks, tuple(arguments), key)

    def _batches(self) -> Iterator[str]:
        plan, count = self._plan, self._work.scores.batches
        yield f"batch_part, row_part = chunk // {plan.row_parts}, chunk % {plan.row_parts}"
        parts = plan.batch_parts
        yield f"for g in range(batch_part*{count} // {parts}, (batch_part + 1)*{count} // {parts}):"
        yield from source.deeper(self._batch())

    def _batch(self) -> Iterator[str]:
        plan = self._plan
        tiles = plan.tiling.tiles
        yield f"begin, end = row_part*{tiles} // {plan.row_parts}, (row_part + 1)*{tiles} // {plan.row_parts}"
        if not plan.values_in_place:
            self._namespace["pack_values"] = make_tile_intrinsic("pack_values", self._code.pack_values, 2)
            yield "pack_values(table, g, values)"
        yield from self._skipping()
        if not plan.keys_in_place:
            self._namespace["pack_keys"] = make_tile_intrinsic("pack_keys", self._code.keys.pack_panel(), 3)
            yield f"for p in range({self._first_panel('begin', 'end')}, {self._panels(self._seen('end'))}):"
            yield f"{source.INDENT}pack_keys(table, g, p*{plan.key_width}, keys + p*{plan.key_panel_bytes})"
        yield f"for first in range(begin, end, {plan.block_tiles}):"
        yield f"{source.INDENT}last = min(first + {plan.block_tiles}, end)"
        yield f"{source.INDENT}low, high = {self._row_of('first')}, {self._row_of('last')}"
        yield from source.deeper(self._block())

    def _skipping(self) -> Iterator[str]:
        """Tell whether keys that no query sees may be left out: 0 times what is not finite would be NaN."""
        if not self._plan.skips:
            return
        self._namespace["is_finite"] = make_index_intrinsic("is_finite", self._code.is_finite, 1)
        yield "skips = is_finite(table, values)"

    def _seen(self, tile: str) -> str:
        """Spell how many keys count for rows before a tile."""
        keys, most = self._work.keys, self._work.band.most
        if most is None or not self._plan.skips:
            return str(keys)
        return f"(min({keys}, max(1, {self._row_of(tile)} + {most})) if skips else {keys})"

    def _first_panel(self, start: str, stop: str) -> str:
        """Spell the first panel of keys that count for rows from a tile to before another."""
        least, width = self._work.band.least, self._plan.key_width
        if least is None or not self._plan.skips:
            return "0"
        return f"(max(0, min({self._row_of(start)} + {least}, {self._seen(stop)} - 1)) // {width} if skips else 0)"

    def _panels(self, seen: str) -> str:
        """Spell how many panels that many keys take."""
        width = self._plan.key_width
        return str(-(-int(seen) // width)) if seen.isdigit() else f"({seen} + {width - 1}) // {width}"

    def _row_of(self, tile: str) -> str:
        """Spell the first row of a tile."""
        tiling = self._plan.tiling
        if not tiling.small_tiles:
            return f"{tile}*{tiling.large_rows}"
        return f"{tile}*{tiling.small_rows} + min({tile}, {tiling.large_tiles})"

    def _block(self) -> Iterator[str]:
        plan, indent = self._plan, source.INDENT
        if not plan.queries_in_place:
            self._namespace["fill"] = make_tile_intrinsic("fill", self._code.keys.fill_row(), 3)
            row_bytes = self._work.scores.depth * self._work.itemsize
            yield "for i in range(low, high):"
            yield f"{indent}fill(table, g, i, queries + (i - low)*{row_bytes})"
        yield f"seen = {self._seen('last')}"
        yield f"panels = {self._panels('seen') if plan.skips else plan.key_panels}"
        yield f"skipped = {self._first_panel('first', 'last')}"
        yield from self._score_panels()
        yield "for i in range(low, high - 1, 2):"
        yield f"{indent}soften_2(table, {self._share('i')}, (panels - skipped)*{plan.key_width})"
        yield "if (high - low) % 2:"
        yield f"{indent}soften_1(table, {self._share('high - 1')}, (panels - skipped)*{plan.key_width})"
        yield f"for p in range({plan.value_panels}):"
        yield from source.deeper(self._tiles("attend", self._attend))

    def _score_panels(self) -> Iterator[str]:
        plan = self._plan
        if self._work.keys % plan.key_width == 0:
            yield "for p in range(skipped, panels):"
            yield from source.deeper(self._tiles("scores", self._scores))
            return
        yield f"for p in range(skipped, min(panels, {plan.key_panels - 1})):"
        yield from source.deeper(self._tiles("scores", self._scores))
        yield f"if panels == {plan.key_panels}:"
        yield f"{source.INDENT}p = {plan.key_panels - 1}"
        yield from source.deeper(self._tiles("last_scores", self._scores))

    def _tiles(self, stem: str, call: Callable[[str], str]) -> Iterator[str]:
        """Spell the tiles of a block in one panel: those of one size, then those of one row less."""
        tiling, indent = self._plan.tiling, source.INDENT
        sizes = [("first", f"min(last, {tiling.large_tiles})", tiling.large_rows, 0)]
        if tiling.small_tiles:
            sizes.append((f"max(first, {tiling.large_tiles})", "last", tiling.small_rows, tiling.large_tiles))
        for start, stop, rows, extra in sizes:
            if f"{stem}_{rows}" not in self._namespace:
                self._namespace[f"{stem}_{rows}"] = self._intrinsic(stem, rows)
            yield f"for t in range({start}, {stop}):"
            yield f"{indent}i = t*{rows} + {extra}"
            yield f"{indent}{call(f'{stem}_{rows}')}"

    def _intrinsic(self, stem: str, rows: int) -> Any:
        if stem == "attend":
            return make_tile_intrinsic(f"attend_{rows}", self._code.value_tile(rows), 6)
        return make_tile_intrinsic(f"{stem}_{rows}", self._code.score_tile(rows, ends=stem == "last_scores"), 6)

    def _scores(self, name: str) -> str:
        plan = self._plan
        query = f"queries + (i - low)*{self._work.scores.depth * self._work.itemsize}"
        panel = "0" if plan.keys_in_place else f"keys + p*{plan.key_panel_bytes}"
        target = f"scores + (i - low)*{self._row_bytes} + p*{plan.key_width * self._work.itemsize}"
        return f"{name}(table, g, i, p*{plan.key_width}, {panel}, {query}, {target})"

    def _attend(self, name: str) -> str:
        plan = self._plan
        rows = plan.key_width * plan.value_width * self._work.itemsize
        panel = "0" if plan.values_in_place else f"values + p*{plan.value_panel_bytes} + skipped*{rows}"
        seen = f"seen - skipped*{plan.key_width}"
        return f"{name}(table, g, i, p*{plan.value_width}, {panel}, {self._share('i')}, {seen})"

    def _share(self, row: str) -> str:
        """Spell where a row of scores begins that a query of the block may see."""
        return f"scores + ({row} - low)*{self._row_bytes} + skipped*{self._plan.key_width * self._work.itemsize}"
