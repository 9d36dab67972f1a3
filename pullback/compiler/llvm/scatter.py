"""Scatters: updates read, combined with what is there, and written, one after the other.

The last loop is the vectorised one. Where all its lanes have the same indices it runs along a row of the target, which
is read and written in whole vectors; else values and indices are computed in vectors, and combined lane by lane.
"""

from __future__ import annotations

from functools import partial

from ...errors import CompileError
from ..loops import Scatter
from .emitter import KernelEmitter, Point
from .values import STORAGE_SIZE, Value

PREFETCH_UPDATES = 12  # steps ahead, at which
PREFETCH_LINES = 2  # lines of a row are asked for; the processor sees where it goes on from there

_INSTRUCTION = {"add": "add", "multiply": "mul", "min": "min", "max": "max"}


class ScatterEmitter(KernelEmitter):
    """Adds scatters to the emitter."""

    def scatter_kernel(self) -> None:
        """Tasks are chunks of the updates with a target of their own, or parts of it that others leave alone, or blocks
        of columns."""
        kernel = self.kernel
        scatter = kernel.scatter
        if scatter is None:
            raise CompileError("no scatter in a scatter kernel")
        bases = self.bases()
        roots = [scatter.value, *(argument for argument, _ in scatter.terms)]
        if not kernel.domain:
            self.tasks(lambda number: self._update(scatter, roots, {}, Point(bases, None, {}, None)))
            return
        last = kernel.vector_loop
        self.b.declares["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"

        def task(number: str) -> None:
            start, stop = "0", ""
            if not kernel.reduced[last]:
                extent, block = self.parameter(self.layout.extents[last]), self.parameter(self.layout.block)
                padded = self.add(extent, block)
                blocks = self.emit(f"udiv i64 {self.emit(f'sub i64 {padded}, 1')}, {block}")
                which = self.rem(number, blocks)
                number = self.div(number, blocks)
                start = self.mul(which, block)
                end = self.add(start, block)
                stop = self.emit(f"call i64 @llvm.smin.i64(i64 {end}, i64 {extent})")
            indices = self.split_task(number, kernel.grid_loops)
            pointers = self.advance(bases, indices)
            extents = self.row_extents(indices)
            stop = stop or extents[last]

            def line(inner: dict[int, str]) -> None:
                here = self.advance(pointers, inner) if inner else pointers
                if self._writes_rows(scatter) and inner and kernel.chunks is None:
                    self._prefetch(scatter, pointers, indices, inner, extents, start)
                around = {**indices, **inner}
                same: dict[int, Value] = {}
                for root in self.needed(roots, set()):
                    if self.uniform[root]:
                        same[root] = self.evaluate_once(root, Point(here, None, around, None), same)

                def body(positions: list[str], masks: list[Value | None]) -> None:
                    points = [Point(here, p, around, m) for p, m in zip(positions, masks, strict=True)]
                    self.interleave(partial(self._update, scatter, roots, same, point) for point in points)

                if not self._writes_rows(scatter) or kernel.short:
                    self.vector_loop(start, stop, body)
                    return
                # What is left of a row goes one by one: what was stored behind a mask is long in coming back.
                length = self.sub(stop, start)
                end = self.emit(f"add i64 {start}, {self.emit(f'and i64 {length}, {-self.width}')}")
                self.vector_loop(start, end, body, singly=True)
                with self.one_lane(same) as one:
                    self.loop(end, stop, 1, lambda i: self._update(scatter, roots, one, Point(here, i, around, None)))

            self.nest([dim for dim in kernel.row_loops if dim != last], extents, line)

        self.tasks(task)

    def _writes_rows(self, scatter: Scatter) -> bool:
        """Whether the lanes are neighbours in one row of the target."""
        columns = bool(self.kernel.domain) and not self.kernel.reduced[-1]
        return columns and all(self.uniform[argument] for argument, _ in scatter.terms)

    def _prefetch(
        self, scatter: Scatter, pointers: list[str], indices: dict[int, str], inner: dict[int, str],
        extents: dict[int, str], start: str,
    ) -> None:  # fmt: skip
        """Ask for the row of an update some steps ahead, if its indices are as good as known: what is not in the cache
        is waited for otherwise, one row after the other, as each may be the one before. (Copies of a target are small.)
        """
        kernel = self.kernel
        known = []
        for argument, _ in scatter.terms:
            expression = kernel.expressions[argument]
            known.append(expression[1] if expression[0] == "check" else argument)
        for number in self.needed(known, set()):
            expression = kernel.expressions[number]
            if expression[0] not in ("load", "literal", "iota") and expression[1] != "cast":
                return
        dim = max(inner)
        last = self.sub(extents[dim], 1)
        ahead = self.add(inner[dim], PREFETCH_UPDATES)
        moved = {**inner, dim: self.emit(f"call i64 @llvm.smin.i64(i64 {ahead}, i64 {last})")}
        there = self.advance(pointers, moved)
        env: dict[int, Value] = {}
        for number in self.needed(known, set()):
            env[number] = self.evaluate_once(number, Point(there, None, {**indices, **moved}, None), env)
        terms = [(argument, term) for argument, (_, term) in zip(known, scatter.terms, strict=True)]
        for argument in known:
            env[argument] = self.b.cast(env[argument], "i64")
        offsets = self._offsets(tuple(terms), env)
        if offsets is None:
            return
        row = self.emit(f"getelementptr i8, ptr {there[scatter.access]}, i64 {self.b.first(offsets)}")
        size = STORAGE_SIZE[kernel.accesses[scatter.access].value.dtype.name]
        row = self.emit(f"getelementptr i8, ptr {row}, i64 {self.emit(f'mul i64 {start}, {size}')}")
        for line in range(PREFETCH_LINES):
            self.b.prefetch(self.at(row, 64 * line), is_written=True)

    def _update(self, scatter: Scatter, roots: list[int], same: dict[int, Value], point: Point) -> None:
        """The updates of one vector; ``same``: what is known of them before."""
        env = dict(same)
        self.evaluate_all(roots, point, env)
        offsets = self._offsets(scatter.terms, env)
        pointer, step = self.address(scatter.access, point)
        if offsets is None:
            raise CompileError("a scatter without indices")
        if self._writes_rows(scatter):
            self._combine_row(scatter, pointer, step, offsets, env[scatter.value], point.mask)
            return
        if step != 0:
            offsets = self.b.add(offsets, self.b.mul(self.b.iota(), self.b.splat(str(step), "i64")))
        if scatter.copy_term is not None:
            offsets = self.b.add(offsets, self._copy_offsets(scatter.copies, scatter.copy_term))
        self._combine_lanes(scatter, pointer, offsets, env[scatter.value], point.mask)

    def _combine_row(
        self, scatter: Scatter, pointer: str, step: str | int, offsets: Value, value: Value, mask: Value | None
    ) -> None:
        """A vector of neighbouring columns of one row of the target."""
        b = self.b
        dtype = self.kernel.accesses[scatter.access].value.dtype.name
        distance = step if step != 0 else STORAGE_SIZE[dtype]
        pointer = self.at(pointer, b.first(offsets))
        if scatter.mode != "set":
            before = b.load_strided(dtype, pointer, distance, mask)
            value = b.combine(_INSTRUCTION[scatter.mode], before, value)
        b.store_strided(dtype, pointer, distance, value, mask)

    def _combine_lanes(self, scatter: Scatter, pointer: str, offsets: Value, value: Value, mask: Value | None) -> None:
        """One lane after the other, because several may have the same place."""
        b, one = self.b, self.b.at_width(1)
        dtype = self.kernel.accesses[scatter.access].value.dtype.name

        def update(lane: int) -> None:
            moved = self.emit(f"extractelement {b.typed(offsets)}, i64 {lane}")
            place = self.at(pointer, moved)
            element = b.lane(value, lane)
            if scatter.mode != "set":
                element = one.combine(_INSTRUCTION[scatter.mode], one.load(dtype, place), element)
            one.store(dtype, place, element)

        for lane in range(b.width):
            if mask is None:
                update(lane)
            else:
                is_here = self.emit(f"extractelement {b.typed(mask)}, i64 {lane}")
                self.when(is_here, partial(update, lane))

    def _copy_offsets(self, copies: int, term: int) -> Value:
        """Lanes take turns with the copies of the target, so that a place written often is waited for less."""
        distance = self.parameter(self.layout.terms[term])
        turns = ", ".join(f"i64 {lane % copies}" for lane in range(self.width))
        return self.b.mul(Value(f"<{turns}>", "i64"), self.b.splat(distance, "i64"))
