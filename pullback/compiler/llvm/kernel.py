"""Kernel IR to LLVM IR.

Every kernel becomes one function ``void k(ptr slots, ptr params, i64 lo, i64 hi, ptr scratch)`` that runs tasks ``lo``
to ``hi``. Main loops are unmasked and unrolled with an accumulator for each copy; one masked loop takes the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..expressions import expression_dtype
from ..loops import Kernel, Stage
from .emitter import Point
from .folds import SETTLE_AFTER, FoldEmitter, WideSums
from .scans import Carries, Scan
from .scatter import ScatterEmitter
from .sides import SideEmitter
from .target import Target
from .values import STORAGE_SIZE, Value

WALKED_ROWS = 4  # of a walk at once: what it carries is read and written as often less


@dataclass
class RowWalk:
    """One stage over a row: what the code at each of its points needs.

    number: of the stage. here: the row. outer: values that are the same at all its points.
    slots: accumulators of each fold.
    reloads, spills: scratch rows read and written, by expression. carries: of the scans along the row.
    wide: the float64 sums of its float32 folds.
    """

    number: int
    stage: Stage
    roots: list[int]
    here: Point
    extents: dict[int, str]
    outer: dict[int, Value]
    slots: dict[int, list[tuple[str, ...]]]
    reloads: dict[int, str]
    spills: list[tuple[int, str]]
    carries: Carries
    wide: WideSums | None


class KernelWriter(FoldEmitter, SideEmitter, ScatterEmitter):
    """Writes one kernel, by its mode."""

    def function(self, name: str) -> str:
        """The function's text; declarations are left in ``declares``."""
        modes = {
            "scalar": self._scalar, "map": self._map, "row": self._row, "column": self._column,
            "walk": self._walk, "scatter": self.scatter_kernel,
        }  # fmt: skip
        modes[self.kernel.mode]()
        return self.finish(name)

    def _scalar(self) -> None:
        point = Point(self.bases(), None, {}, None)
        env: dict[int, Value] = {}
        for stage in self.kernel.stages:
            self.evaluate_all([e for _, e in stage.stores], point, env)
            for access, expression in stage.stores:
                self.store(access, env[expression], point)

    def _map(self) -> None:
        bases = self.bases()
        stores = [store for stage in self.kernel.stages for store in stage.stores]
        if self.kernel.is_copy:
            self._unless_in_place(bases)
        roots = [expression for _, expression in stores]
        grid = self.kernel.grid_loops

        def run(pointers: list[str], indices: dict[int, str], start: str, stop: str) -> None:
            outer: dict[int, Value] = {}
            self.evaluate_outer(roots, Point(pointers, None, indices, None), outer)

            def copy(position: str, mask: Value | None) -> None:
                point = Point(pointers, position, indices, mask)
                env = dict(outer)
                self.evaluate_all(roots, point, env)
                for access, expression in stores:
                    self.store(access, env[expression], point)

            def body(positions: list[str], masks: list[Value | None]) -> None:
                self.interleave(partial(copy, *place) for place in zip(positions, masks, strict=True))

            # Rows are short often: of an image, of a table. A masked store takes as long as ten others.
            self.vector_loop(start, stop, body, singly=bool(grid))

        if not grid:
            run(bases, {}, "%lo", "%hi")
            return

        def task(indices: dict[int, str]) -> None:
            extent = self.parameter(self.layout.extents[self.kernel.vector_loop])
            run(self.advance(bases, indices), indices, "0", extent)

        self.walk_tasks(grid, task)

    def _unless_in_place(self, bases: list[str]) -> None:
        """Leave if a copy would go over what it copies: a state that a scatter then changes where it lies. (Nothing
        else is copied over itself; see memory.py.)"""
        goes, leaves = self.label("copies"), self.label("in_place")
        same = self.emit(f"icmp eq ptr {bases[0]}, {bases[1]}")
        self.line(f"br i1 {same}, label %{leaves}, label %{goes}")
        self.mark(leaves)
        self.line("ret void")
        self.mark(goes)

    def row_position(self, inner: dict[int, str], extents: dict[int, str], last: str | None) -> str:
        """The place in the row, counted in row-major order of the row loops; ``last`` is the innermost variable."""
        total: str | None = None
        for dim in self.kernel.row_loops:
            index = inner.get(dim, last)
            if index is None:
                continue
            if total is None:
                total = index
            else:
                scaled = self.mul(total, extents[dim])
                total = self.add(scaled, index)
        return total or "0"

    def _row(self) -> None:
        bases = self.bases()
        kernel = self.kernel

        def task(indices: dict[int, str]) -> None:
            pointers = self.advance(bases, indices)
            extents = self.row_extents(indices)
            here = Point(pointers, None, indices, None)
            outer: dict[int, Value] = {}
            for stage_number, stage in enumerate(kernel.stages):
                roots = self.stage_roots(stage_number)
                self.evaluate_outer(roots, here, outer)
                walk = RowWalk(
                    stage_number, stage, roots, here, extents, outer,
                    slots={fold: self.accumulators(fold, self.unroll) for fold in stage.folds},
                    reloads={e: self.scratch_row(row) for e, row in stage.reloads.items()},
                    spills=[(e, self.scratch_row(row)) for e, row in stage.spills],
                    carries=self.carries(roots, set(outer) | set(stage.reloads)), wide=self.wide_sums(stage.folds, 1),
                )  # fmt: skip
                self.nest(kernel.row_loops[:-1], extents, partial(self._walk_row, walk))
                for fold in stage.folds:
                    self.publish(fold, self.finish_rows(fold, walk.slots[fold], walk.wide), outer)
            self._store_rows(here, outer)

        self.tasks_of_rows(task, bases)

    def _walk_row(self, walk: RowWalk, inner: dict[int, str]) -> None:
        """The innermost loop of a stage; ``inner`` are the variables of the row loops around it."""
        pointers = self.advance(walk.here.pointers, inner) if inner else walk.here.pointers
        indices = {**walk.here.indices, **inner}

        def body(positions: list[str], masks: list[Value | None]) -> None:
            points = [
                Point(pointers, position, indices, mask, walk.carries)
                for position, mask in zip(positions, masks, strict=True)
            ]
            self.interleave(partial(self._row_point, walk, inner, copy, point) for copy, point in enumerate(points))

        extent = walk.extents[self.kernel.vector_loop]
        wide = walk.wide
        if wide is None:
            self.vector_loop("0", extent, body, self.kernel.reverse)
            return
        step = self.width * self.unroll

        def stretch(start: str) -> None:
            end = self.add(start, SETTLE_AFTER * step)
            end = self.emit(f"call i64 @llvm.smin.i64(i64 {end}, i64 {extent})")
            self.vector_loop(start, end, body)
            # Rounded up: a lane of a masked tail has had one more.
            elements = self.emit(f"add i64 {self.emit(f'sub i64 {end}, {start}')}, {step - 1}")
            groups = {fold: [slots] for fold, slots in walk.slots.items()}
            self.settle(wide, groups, self.div(elements, step))

        self.b.declares["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        self.loop("0", extent, SETTLE_AFTER * step, stretch)

    def _row_point(self, walk: RowWalk, inner: dict[int, str], copy: int, point: Point) -> None:
        kernel, b = self.kernel, self.b
        env = dict(walk.outer)
        looks = walk.reloads or walk.spills or kernel.sides
        place = self.row_position(inner, walk.extents, point.position) if looks else ""
        for e, row in walk.reloads.items():
            dtype = expression_dtype(kernel.expressions[e])
            env[e] = b.load(dtype, self.scratch_address(row, dtype, place))
        self.evaluate_all(walk.roots, point, env)
        for access, e in walk.stage.stores:
            self.store(access, env[e], point)
        for e, row in walk.spills:
            dtype = expression_dtype(kernel.expressions[e])
            b.store(dtype, self.scratch_address(row, dtype, place), env[e], point.mask)

        if kernel.sides:
            self.add_sides(walk.number, place, env, point)

        def place_in_row() -> Value:
            return b.add(b.splat(self.row_position(inner, walk.extents, point.position), "i64"), b.iota())

        for fold in walk.stage.folds:
            self.accumulate(fold, walk.slots[fold][copy], env[kernel.folds[fold].argument], point.mask, place_in_row)

    def _store_rows(self, point: Point, env: dict[int, Value]) -> None:
        self.evaluate_all([e for _, e in self.kernel.row_stores], point, env)
        for access, expression in self.kernel.row_stores:
            self.store(access, env[expression], point)

    def scratch_row(self, row: int) -> str:
        offset = self.parameter(self.layout.spills[row])
        return self.emit(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def scratch_address(self, row: str, dtype: str, position: str) -> str:
        moved = self.mul(position, STORAGE_SIZE[dtype])
        return self.at(row, moved)

    def _column(self) -> None:
        bases = self.bases()
        kernel = self.kernel
        grid = kernel.grid_loops
        last = kernel.vector_loop
        block = self.width * self.unroll

        def task(number: str) -> None:
            extent = self.parameter(self.layout.extents[last])
            padded = self.add(extent, block - 1)
            blocks = self.div(padded, block)
            which = self.rem(number, blocks)
            rest = self.div(number, blocks)
            indices = self.split_task(rest, grid)
            pointers = self.advance(bases, indices)
            start = self.mul(which, block)
            stop = self.add(start, block)
            positions = [start] + [self.add(start, u * self.width) for u in range(1, self.unroll)]
            whole = self.test("sle", stop, extent)

            def all_lanes() -> None:
                self._columns(pointers, indices, positions, [None] * self.unroll)

            def lanes_inside() -> None:
                left = [self.max(self.sub(extent, position), 0) for position in positions]
                self._columns(pointers, indices, positions, [self.b.mask_below(count) for count in left])

            self.when(whole, all_lanes, lanes_inside)

        self.tasks(task)

    def _columns(
        self, pointers: list[str], indices: dict[int, str], positions: list[str], masks: list[Value | None]
    ) -> None:
        """All stages over one block of columns."""
        kernel = self.kernel
        heads = [Point(pointers, p, indices, m) for p, m in zip(positions, masks, strict=True)]
        outers: list[dict[int, Value]] = [{} for _ in heads]
        extents = self.row_extents(indices)
        for stage_number, stage in enumerate(kernel.stages):
            roots = self.stage_roots(stage_number)
            for head, outer in zip(heads, outers, strict=True):
                self.evaluate_outer(roots, head, outer)
            slots = {fold: self.accumulators(fold, len(heads)) for fold in stage.folds}
            wide = self.wide_sums(stage.folds, len(heads))
            walks = [
                RowWalk(
                    stage_number, stage, roots, head, extents, outer,
                    {fold: [slots[fold][copy]] for fold in stage.folds}, {}, [], self.carries(roots, set(outer)), wide,
                )
                for copy, (head, outer) in enumerate(zip(heads, outers, strict=True))
            ]
            self.nest(kernel.row_loops, extents, partial(self._column_row, walks))
            for copy, walk in enumerate(walks):
                for fold in stage.folds:
                    self.publish(fold, self.finish_column(fold, walk.slots[fold][0], wide, copy), walk.outer)
        for head, outer in zip(heads, outers, strict=True):
            self._store_rows(head, outer)

    def _column_row(self, walks: list[RowWalk], inner: dict[int, str]) -> None:
        """One row of a block of columns, vector by vector."""
        kernel = self.kernel
        pointers = self.advance(walks[0].here.pointers, inner)

        def column(walk: RowWalk) -> None:
            indices = {**walk.here.indices, **inner}
            point = Point(pointers, walk.here.position, indices, walk.here.mask, walk.carries)
            env = dict(walk.outer)
            self.evaluate_all(walk.roots, point, env)
            for access, e in walk.stage.stores:
                self.store(access, env[e], point)

            def place_in_row() -> Value:
                return self.b.splat(self.row_position(inner, walk.extents, None), "i64")

            for fold in walk.stage.folds:
                self.accumulate(fold, walk.slots[fold][0], env[kernel.folds[fold].argument], None, place_in_row)

        self.interleave(partial(column, walk) for walk in walks)
        wide = walks[0].wide
        if wide is not None:
            self.settle(wide, {fold: [walk.slots[fold] for walk in walks] for fold in wide.slots}, "1")

    def _walk(self) -> None:
        """Row after row of a wide block of columns; where the rows go backwards so do the columns (see ``tasks``)."""
        bases = self.bases()
        kernel, b = self.kernel, self.b
        stores = [store for stage in kernel.stages for store in stage.stores]
        folds = range(len(kernel.folds))
        roots = [kernel.folds[fold].argument for fold in folds] + [expression for _, expression in stores]
        scans = self.scans(roots, set())
        b.declares["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"

        def task(number: str) -> None:
            extent, block = self.parameter(self.layout.extents[kernel.vector_loop]), self.parameter(self.layout.block)
            padded = self.add(extent, block)
            blocks = self.emit(f"udiv i64 {self.emit(f'sub i64 {padded}, 1')}, {block}")
            which = self.rem(number, blocks)
            indices = self.split_task(self.div(number, blocks), kernel.grid_loops)
            pointers = self.advance(bases, indices)
            start = self.mul(which, block)
            stop = self.emit(f"call i64 @llvm.smin.i64(i64 {self.emit(f'add i64 {start}, {block}')}, i64 {extent})")
            columns = self.sub(stop, start)
            vectors = self.emit(f"udiv i64 {self.emit(f'add i64 {columns}, {self.width - 1}')}, {self.width}")

            def reset(i: str) -> None:
                record = self.walk_record(i)
                self.walk_carries(scans, record).reset(b)
                for fold in folds:
                    self.reset_element(fold, record)

            self.loop("0", vectors, 1, reset)

            def over_columns(copy: Callable[[str, Value | None, str], None], reverse: bool) -> None:
                """``copy(position, mask, record)`` for every vector of the block."""

                def one(position: str, mask: Value | None) -> None:
                    column = self.sub(position, start)
                    copy(position, mask, self.walk_record(self.div(column, self.width)))

                def body(positions: list[str], masks: list[Value | None]) -> None:
                    self.interleave(partial(one, *place) for place in zip(positions, masks, strict=True))

                self.vector_loop(start, stop, body, reverse, singly=True)

            def rows(places: list[dict[int, str]]) -> None:
                """Some rows; a step of an accumulator takes the values of them all."""
                reached = [(self.advance(pointers, inner), {**indices, **inner}) for inner in places]

                def copy(position: str, mask: Value | None, record: str) -> None:
                    values: list[list[Value]] = [[] for _ in folds]
                    for here, around in reached:
                        point = Point(here, position, around, mask, self.walk_carries(scans, record))
                        env: dict[int, Value] = {}
                        self.evaluate_all(roots, point, env)
                        for access, e in stores:
                            self.store(access, env[e], point)
                        for fold in folds:
                            values[fold].append(env[kernel.folds[fold].argument])
                    for fold in folds:
                        self.accumulate_element(fold, record, values[fold])

                over_columns(copy, kernel.reverse)

            extents = self.row_extents(indices)
            if folds:
                *outer, last = kernel.row_loops

                def several(inner: dict[int, str]) -> None:
                    whole = self.emit(f"and i64 {extents[last]}, {-WALKED_ROWS}")
                    self.loop(
                        "0", whole, WALKED_ROWS,
                        lambda i: rows([{**inner, last: self.add(i, k)} for k in range(WALKED_ROWS)]),
                    )  # fmt: skip
                    self.loop(whole, extents[last], 1, lambda i: rows([{**inner, last: i}]))

                self.nest(outer, extents, several)
            else:
                self.nest(kernel.row_loops, extents, lambda inner: rows([inner]))
            if kernel.row_stores:

                def finish(position: str, mask: Value | None, record: str) -> None:
                    env: dict[int, Value] = {}
                    for fold in folds:
                        self.publish(fold, self.finish_element(fold, record), env)
                    self._store_rows(Point(pointers, position, indices, mask), env)

                over_columns(finish, False)

        self.tasks(task)

    def walk_record(self, index: str) -> str:
        """The address of what is carried from row to row for vector number ``index`` of a block."""
        offset = self.mul(index, self.record.nbytes)
        return self.emit(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def walk_carries(self, scans: dict[int, Scan], record: str) -> Carries:
        """The carries in a record."""
        offsets = self.record.scans
        return Carries(scans, {n: self.at(record, offsets[n]) for n in scans})


def kernel_module(kernels: dict[str, Kernel], target: Target) -> str:
    """One module's text with a function for each named kernel."""
    declares: dict[str, str] = {}
    functions = []
    for name, kernel in kernels.items():
        emitter = KernelWriter(kernel, target)
        functions.append(emitter.function(name))
        declares.update(emitter.declares)
    return "\n".join([*declares.values(), *functions])
