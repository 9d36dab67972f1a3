"""Partial sums beside a row kernel: of its columns, over the few rows of one task.

Each task sets an array in scratch memory to zero, as long as a row, adds the rows to it one after the other, and stores
it as one line of the result. A float32 sum of so few rows needs no wider accumulator.
"""

from __future__ import annotations

from collections.abc import Callable

from ..loops import SIDE_ROWS
from .combine import COMBINE, identity
from .emitter import KernelEmitter, Point
from .values import REGISTER, STORAGE_SIZE, Value


class SideEmitter(KernelEmitter):
    """Adds partial sums of columns to the emitter."""

    def tasks_of_rows(self, row: Callable[[dict[int, str]], None], bases: list[str]) -> None:
        """Tasks that are one row each, or ``SIDE_ROWS`` of them where partial sums are taken. ``row`` is given the
        variables of the loops over rows."""
        kernel = self.kernel
        if not kernel.sides:
            self.walk_tasks(kernel.grid_loops, row)
            return
        self.b.declares["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"

        def task(number: str) -> None:
            length = self._product(kernel.row_loops)
            self._over_row(length, self._clear)
            start = self.mul(number, SIDE_ROWS)
            stop = self.add(start, SIDE_ROWS)
            stop = self.emit(f"call i64 @llvm.smin.i64(i64 {stop}, i64 {self._product(kernel.grid_loops)})")
            self.loop(start, stop, 1, lambda i: row(self.split_task(i, kernel.grid_loops)))
            line = self.mul(number, length)
            self._over_row(length, lambda place, mask: self._flush(bases, line, place, mask))

        self.tasks(task)

    def _product(self, loops: list[int]) -> str:
        total = "1"
        for dim in loops:
            total = self.mul(total, self.parameter(self.layout.extents[dim]))
        return total

    def _over_row(self, length: str, body: Callable[[str, Value | None], None]) -> None:
        def vectors(positions: list[str], masks: list[Value | None]) -> None:
            for position, mask in zip(positions, masks, strict=True):
                body(position, mask)

        self.vector_loop("0", length, vectors)

    def _slot(self, side: int, place: str) -> str:
        """The accumulator of the element at ``place`` of the row, and of those behind it."""
        size = STORAGE_SIZE[self.kernel.sides[side].dtype]
        start = self.parameter(self.layout.sides[side])
        offset = self.emit(f"add i64 {self.emit(f'mul i64 {place}, {size}')}, {start}")
        return self.emit(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def _clear(self, place: str, mask: Value | None) -> None:
        for number, side in enumerate(self.kernel.sides):
            zero = self.b.const(identity(side.instruction, side.dtype), REGISTER[side.dtype])
            self.b.store(side.dtype, self._slot(number, place), zero)  # there is room behind the last

    def _flush(self, bases: list[str], line: str, place: str, mask: Value | None) -> None:
        for number, side in enumerate(self.kernel.sides):
            total = self.b.load(side.dtype, self._slot(number, place))
            here = self.emit(f"mul i64 {self.emit(f'add i64 {line}, {place}')}, {STORAGE_SIZE[side.dtype]}")
            pointer = self.emit(f"getelementptr i8, ptr {bases[side.access]}, i64 {here}")
            self.b.store(side.dtype, pointer, total, mask)

    def add_sides(self, stage: int, place: str, env: dict[int, Value], point: Point) -> None:
        """Add one vector of a row, which begins at ``place`` of it."""
        b = self.b
        for number, side in enumerate(self.kernel.sides):
            if side.stage != stage:
                continue
            slot = self._slot(number, place)
            before = b.load(side.dtype, slot)
            after = b.combine(COMBINE[side.instruction], before, env[side.argument])
            # What lies behind a row's last vector may be the accumulators of its next.
            b.store(side.dtype, slot, after if point.mask is None else b.select(point.mask, after, before))
