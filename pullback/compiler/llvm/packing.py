"""Packing: panels of an operand, in the order in which a register tile reads them, from wherever its elements are.

What engines are written on top of: where elements are, as tables of byte offsets, and the copies into panels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import pairs
from .builder import VectorBuilder
from .function import Function, Scalar
from .target import Target
from .values import REGISTER, STORAGE_SIZE, Value

UNROLL = 4  # steps of k in a loop
PREFETCHED = 24  # steps of k from what is copied to what is fetched for later


@dataclass(frozen=True)
class Tile:
    """The register tiles of a target: ``rows`` or ``few_rows`` by ``vectors`` of ``lanes`` columns."""

    rows: int
    few_rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tile_for(target: Target, dtype: str) -> Tile:
    """Accumulators fill the registers but for two vectors of B and one of A."""
    lanes = target.lanes(dtype)
    if target.vector_bits == 512:
        return Tile(14, 8, 2, lanes)
    if target.vector_bits == 256:
        return Tile(6, 4, 2, lanes)
    return Tile(8, 4, 2, lanes) if target.has_fma else Tile(4, 2, 2, lanes)


#: dtype of operands -> dtype of the sums of their products, where that is another
_SUMS = {
    "float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32",
}  # fmt: skip


def sum_dtype_of(dtype: str) -> str:
    """The dtype in which products of ``dtype`` are summed."""
    return _SUMS.get(dtype, dtype)


def steps_in_lane(dtype: str, target: Target) -> int:
    """How many steps of k a lane of a panel holds."""
    return 1 if pairs.half_of(dtype, target) is None else 2


class Packing:
    """Writes the functions that pack operands of one dtype. Those of narrow types are widened to what their products
    are summed in, or lie in pairs (pairs.py).

    takes_pairs: whether panels are in pairs where the target multiplies these.
    """

    takes_pairs = True

    def __init__(self, dtype: str, target: Target) -> None:
        self.dtype = dtype
        self.target = target
        self.size = STORAGE_SIZE[dtype]
        self.register = REGISTER[dtype]
        self.sum_dtype = sum_dtype_of(dtype)
        self.sum_size = STORAGE_SIZE[self.sum_dtype]  # of a lane, too
        self.half = pairs.half_of(dtype, target) if self.takes_pairs else None
        self.packed_dtype = self.sum_dtype if self.half is None else pairs.WORD  # of a lane
        self.is_read_in_place = self.dtype == self.sum_dtype  # where elements follow each other
        self.tile = tile_for(target, self.sum_dtype)
        self.declares: dict[str, str] = {}

    def packing(self) -> list[str]:
        """The functions: offsets, and a copy for each size of panel."""
        tile = self.tile
        sizes = sorted({tile.rows, tile.few_rows, tile.columns})
        found = [self._offsets(), self._table(), self.is_run("is_run", self.size), self._bend(), self._ragged()]
        found += [self._pack(size) if self.half is None else pairs.pack(self, self.half, size) for size in sizes]
        return [*found, self._pack_wide()] if self._packs_wide else found

    def function(self, name: str, *arguments: tuple[str, str], is_public: bool = False) -> Function:
        return Function(name, arguments, self.target, self.tile.lanes, self.declares, is_public)

    # -- where elements are -------------------------------------------------------------------------------------------

    def _offsets(self) -> str:
        """Byte offsets of elements ``first`` to ``first + count`` of a group under one of its strides; then the last
        one again, up to ``padded``."""
        f = self.function(
            "offsets", ("ptr", "out"), ("ptr", "group"), ("i64", "column"), ("i64", "first"), ("i64", "count"),
            ("i64", "padded"),
        )  # fmt: skip
        axes = f.word("%group", 0)
        inner = f.sub(axes, 1)
        extents = f.at("%group", 8)
        strides = f.at(extents, f.add(f.mul("%column", 8), 8))
        inner_extent, inner_stride = f.word(extents, f.mul(inner, 4)), f.word(strides, f.mul(inner, 4))
        done, rest, offset = f.variable(), f.variable(), f.variable()
        f.set(done, 0)

        def run() -> None:
            start = f.get(done)
            index = f.add("%first", start)
            within = f.rem(index, inner_extent)
            f.set(rest, f.div(index, inner_extent))
            f.set(offset, f.mul(within, inner_stride))

            def outer(number: str) -> None:
                axis = f.mul(f.sub(f.sub(inner, 1), number), 4)
                extent = f.word(extents, axis)
                here = f.get(rest)
                f.set(offset, f.add(f.get(offset), f.mul(f.rem(here, extent), f.word(strides, axis))))
                f.set(rest, f.div(here, extent))

            f.loop(0, inner, 1, outer)
            length = f.min(f.sub(inner_extent, within), f.sub("%count", start))
            base = f.get(offset)
            f.loop(0, length, 1, lambda i: f.set_word("%out", f.add(start, i), f.add(base, f.mul(i, inner_stride))))
            f.set(done, f.add(start, length))

        f.repeat(lambda: f.test("slt", f.get(done), "%count"), run)
        last = f.word("%out", f.sub("%count", 1))
        f.loop("%count", "%padded", 1, lambda i: f.set_word("%out", i, last))
        return f.text()

    def _table(self) -> str:
        """Offsets ``step`` bytes apart; the last of ``count`` again up to ``padded``."""
        f = self.function("table", ("ptr", "out"), ("i64", "step"), ("i64", "count"), ("i64", "padded"))
        last = f.sub("%count", 1)
        f.loop(0, "%padded", 1, lambda i: f.set_word("%out", i, f.mul(f.min(i, last), "%step")))
        return f.text()

    def is_run(self, name: str, size: int) -> str:
        """Whether ``count`` offsets follow each other element by element: 1 or 0 into ``out``."""
        f = self.function(name, ("ptr", "out"), ("ptr", "offsets"), ("i64", "count"))
        first = f.word("%offsets", 0)
        wrong = f.variable()
        f.set(wrong, 0)

        def look(i: str) -> None:
            expected = f.add(first, f.mul(i, size))
            difference = f.emit(f"xor i64 {expected}, {f.word('%offsets', i)}")
            f.set(wrong, f.emit(f"or i64 {f.get(wrong)}, {difference}"))

        f.loop(1, "%count", 1, look)
        f.set("%out", f.emit(f"zext i1 {f.test('eq', f.get(wrong), 0)} to i64"))
        return f.text()

    def _bend(self) -> str:
        """Where ``count`` offsets that are two runs go over from the first to the second; 0 where they are not."""
        f = self.function("bend", ("ptr", "out"), ("ptr", "offsets"), ("i64", "count"))
        last, bends = f.variable(), f.variable()
        f.set(last, 0)
        f.set(bends, 0)

        def look(i: str) -> None:
            step = f.sub(f.word("%offsets", i), f.word("%offsets", f.sub(i, 1)))
            breaks = f.test("ne", step, self.size)
            f.set(last, f.choose(breaks, i, f.get(last)))
            f.set(bends, f.add(f.get(bends), f.emit(f"zext i1 {breaks} to i64")))

        f.loop(1, "%count", 1, look)
        f.set("%out", f.choose(f.test("eq", f.get(bends), 1), f.get(last), 0))
        return f.text()

    def _ragged(self) -> str:
        """How many of ``count`` offsets follow each other where the others are the last of these again: the end of a
        matrix within a panel. 0 where it is otherwise."""
        f = self.function("ragged", ("ptr", "out"), ("ptr", "offsets"), ("i64", "count"))
        run, wrong = f.variable(), f.variable()
        f.set(run, 1)
        f.set(wrong, 0)

        def look(i: str) -> None:
            step = f.sub(f.word("%offsets", i), f.word("%offsets", f.sub(i, 1)))
            goes_on = f.emit(f"and i1 {f.test('eq', f.get(run), i)}, {f.test('eq', step, self.size)}")
            f.set(run, f.add(f.get(run), f.emit(f"zext i1 {goes_on} to i64")))
            jumps = f.emit(f"xor i1 {goes_on}, {f.test('ne', step, 0)}")
            f.set(wrong, f.emit(f"or i64 {f.get(wrong)}, {f.emit(f'zext i1 {jumps} to i64')}"))

        f.loop(1, "%count", 1, look)
        f.set("%out", f.choose(f.test("eq", f.get(wrong), 0), f.get(run), 0))
        return f.text()

    # -- packing ------------------------------------------------------------------------------------------------------

    def _pack(self, rows: int) -> str:
        """A panel of ``rows`` rows (of A, or columns of B): for each k the rows' elements, one after the other.

        k_run: the offsets along k follow each other. The last vector may be written up to a vector beyond the panel.
        """
        f = self.function(
            f"pack{rows}", ("ptr", "out"), ("ptr", "base"), ("ptr", "rows"), ("ptr", "ks"), ("i64", "count"),
            ("i64", "k_run"),
        )  # fmt: skip
        is_run = f.variable()
        f.line(f"call void @is_run(ptr {is_run}, ptr %rows, i64 {rows})")
        step = rows * self.sum_size

        def along_rows() -> None:
            self._copy_runs(f, rows, self.as_vectors(rows))

        packed, bend = f.variable(), f.variable()
        f.set(packed, 0)

        lanes = self.tile.lanes
        one = f.b.at_width(1)

        def column(k: str) -> None:
            source, out = f.at("%base", f.word("%ks", k)), f.at("%out", f.mul(k, step))
            for row in range(rows):
                value = self._load(one, f.at(source, f.word("%rows", row)))
                one.store(self.sum_dtype, f.at(out, row * self.sum_size), value)

        def square(k: str) -> None:
            """Steps k to k + lanes of all rows, whose offsets along k follow each other."""
            base, out = f.at("%base", f.word("%ks", k)), f.at("%out", f.mul(k, step))
            for first in range(0, rows, lanes):
                here = min(lanes, rows - first)
                vectors = [self._load(f.b, f.at(base, f.word("%rows", first + row))) for row in range(here)]
                vectors += [vectors[-1]] * (lanes - here)
                for i, vector in enumerate(self.transpose(f, vectors)):
                    self.store_rows(f, f.at(out, i * step + first * self.sum_size), vector, here, rows)

        def along_k() -> None:
            whole = f.emit(f"and i64 %count, {-lanes}")
            f.loop(0, whole, lanes, square)
            f.set(packed, whole)

        def in_runs() -> None:
            # The pixels of an image, row by row: squares as far as a row goes.
            def advance() -> None:
                k = f.get(packed)
                first, wrong = f.word("%ks", k), f.variable()
                last = f.sub(f.word("%ks", f.add(k, lanes - 1)), first)
                f.set(wrong, f.sub(last, (lanes - 1) * self.size))

                def look() -> None:
                    for i in range(1, lanes - 1):
                        difference = f.sub(f.sub(f.word("%ks", f.add(k, i)), first), i * self.size)
                        f.set(wrong, f.emit(f"or i64 {f.get(wrong)}, {difference}"))

                f.when(f.test("eq", f.get(wrong), 0), look)

                def take(pack: Callable[[str], None], steps: int) -> None:
                    pack(k)
                    f.set(packed, f.add(k, steps))

                f.when(f.test("eq", f.get(wrong), 0), lambda: take(square, lanes), lambda: take(column, 1))

            f.repeat(lambda: f.test("sle", f.add(f.get(packed), lanes), "%count"), advance)

        def two_runs() -> None:
            # The rows of an image that is narrower than a panel: each lane from one of two places.
            first, second = f.word("%rows", 0), f.word("%rows", f.get(bend))
            base = f.at("%base", first)
            moved = f.at("%base", f.sub(second, f.mul(f.get(bend), self.size)))
            masks = []
            for start in range(0, rows, lanes):
                before = f.b.mask_below(f.max(f.sub(f.get(bend), start), 0))
                kind = f.b.type("i1")
                pair = f.variable(kind), f.variable(kind)
                f.set(pair[0], before.ref, kind)
                f.set(pair[1], f.b.binary("xor", before, f.b.const(True, "i1")).ref, kind)
                masks.append(pair)

            def one(k: str) -> None:
                offset, out = f.word("%ks", k), f.at("%out", f.mul(k, step))
                for number, pair in enumerate(masks):
                    at = number * lanes * self.size
                    low, high = (Value(f.get(mask, f.b.type("i1")), "i1") for mask in pair)
                    here = self._load(f.b, f.at(f.at(base, offset), at), low)
                    there = self._load(f.b, f.at(f.at(moved, offset), at), high)
                    value = f.b.select(low, here, there)
                    f.b.store(self.sum_dtype, f.at(out, number * lanes * self.sum_size), value)

            f.loop(0, "%count", 1, one)
            f.set(packed, "%count")

        def part_of_a_run() -> None:
            base = f.at("%base", f.word("%rows", 0))
            kind = f.b.type("i1")
            masks = []
            for first in range(0, rows, self.tile.lanes):
                mask = f.variable(kind)
                f.set(mask, f.b.mask_below(f.max(f.sub(f.get(bend), first), 0)).ref, kind)
                masks.append((first, mask))

            def one(k: str) -> None:
                source, out = f.at(base, f.word("%ks", k)), f.at("%out", f.mul(k, step))
                for first, mask in masks:
                    value = self._load(f.b, f.at(source, first * self.size), Value(f.get(mask, kind), "i1"))
                    f.b.store(self.sum_dtype, f.at(out, first * self.sum_size), value)

            f.loop(0, "%count", 1, one)
            f.set(packed, "%count")

        def across() -> None:
            f.when(f.test("ne", "%k_run", 0), along_k)
            if rows == self.tile.columns:
                f.line(f"call void @ragged(ptr {bend}, ptr %rows, i64 {rows})")
                ends = f.test("sgt", f.get(bend), 1)
                f.when(f.emit(f"and i1 {ends}, {f.test('eq', f.get(packed), 0)}"), part_of_a_run)
                f.line(f"call void @bend(ptr {bend}, ptr %rows, i64 {rows})")
                bends_once = f.test("ne", f.get(bend), 0)
                f.when(f.emit(f"and i1 {bends_once}, {f.test('eq', f.get(packed), 0)}"), two_runs)
            f.when(f.test("eq", f.get(packed), 0), in_runs)
            f.loop(f.get(packed), "%count", 1, column)

        f.when(f.test("ne", f.get(is_run), 0), along_rows, across)
        return f.text()

    def _copy_runs(self, f: Function, rows: int, vectors: list[tuple[int, int]]) -> None:
        """A panel whose rows follow each other: for each k, vectors of (first row, lanes)."""
        base = f.at("%base", f.word("%rows", 0))
        step = f.sub(f.word("%ks", f.min(1, f.sub("%count", 1))), f.word("%ks", 0))
        ahead = f.mul(step, PREFETCHED)
        self.declares["llvm.prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"

        def one(k: str, number: int) -> None:
            place = f.add(k, number)
            source, out = f.at(base, f.word("%ks", place)), f.at("%out", f.mul(place, rows * self.sum_size))
            f.line(f"call void @llvm.prefetch.p0(ptr {f.at(source, ahead)}, i32 0, i32 3, i32 1)")
            for first, lanes in vectors:
                b = f.b.at_width(lanes)
                value = self._load(b, f.at(source, first * self.size))
                b.store(self.sum_dtype, f.at(out, first * self.sum_size), value)

        def several(k: str) -> None:
            for number in range(UNROLL):
                one(k, number)

        whole = f.emit(f"and i64 %count, {-UNROLL}")
        f.loop(0, whole, UNROLL, several)
        f.loop(whole, "%count", 1, lambda k: one(k, 0))

    @property
    def _packs_wide(self) -> bool:
        """Whether whole vectors take fewer steps for a row of a high panel than narrow ones of just its length."""
        rows, lanes = self.tile.rows, self.tile.lanes
        return self.half is None and -(-rows // lanes) < len(self.as_vectors(rows))

    def _pack_wide(self) -> str:
        """The panel of ``packN`` for rows behind which the table has a vector more of them, in whole vectors: what they
        write too much comes later in order."""
        rows, lanes = self.tile.rows, self.tile.lanes
        width = -(-rows // lanes) * lanes
        f = self.function(
            "pack_wide", ("ptr", "out"), ("ptr", "base"), ("ptr", "rows"), ("ptr", "ks"), ("i64", "count"),
            ("i64", "k_run"),
        )  # fmt: skip
        is_run = f.variable()
        f.line(f"call void @is_run(ptr {is_run}, ptr %rows, i64 {width})")

        def wide() -> None:
            self._copy_runs(f, rows, [(first, lanes) for first in range(0, width, lanes)])

        f.when(
            f.test("ne", f.get(is_run), 0),
            wide,
            lambda: f.line(f"call void @pack{rows}(ptr %out, ptr %base, ptr %rows, ptr %ks, i64 %count, i64 %k_run)"),
        )
        return f.text()

    def as_vectors(self, rows: int) -> list[tuple[int, int]]:
        """``rows`` elements as vectors, none longer than the target's: the first element and the lanes of each."""
        found, first = [], 0
        while first < rows:
            width = min(self.tile.lanes, 1 << (rows - first).bit_length() - 1)
            found.append((first, width))
            first += width
        return found

    def _load(self, b: VectorBuilder, address: str, mask: Value | None = None) -> Value:
        """Elements of an operand, in the dtype of the sums."""
        return b.cast(b.load(self.dtype, address, mask), REGISTER[self.sum_dtype])

    def store_rows(self, f: Function, target: str, vector: Value, count: int, rows: int) -> None:
        """The first ``count`` lanes of a vector, among those of a panel of ``rows``."""
        if count == self.tile.lanes or rows < self.tile.lanes:
            f.b.store(self.packed_dtype, target, vector)  # what it writes too much comes later in order
            return
        for done, width in self.as_vectors(count):
            narrow = f.b.at_width(width)
            order = ", ".join(f"i32 {i}" for i in range(done, done + width))
            lanes = f"<{width} x i32> <{order}>"
            part = f.emit(f"shufflevector {f.b.typed(vector)}, {f.b.type(vector.dtype)} poison, {lanes}")
            narrow.store(self.packed_dtype, f.at(target, done * self.sum_size), Value(part, vector.dtype))

    def transpose(self, f: Function, rows: list[Value]) -> list[Value]:
        """A square of vectors, transposed by exchanging ever larger blocks."""
        lanes = len(rows)
        distance = 1
        kind = f.b.type(rows[0].dtype)
        while distance < lanes:
            new = list(rows)
            low = [i if not i & distance else lanes + i - distance for i in range(lanes)]
            high = [i + distance if not i & distance else lanes + i for i in range(lanes)]
            for i in range(lanes):
                if i & distance:
                    continue
                for target, order in ((i, low), (i + distance, high)):
                    text = ", ".join(f"i32 {lane}" for lane in order)
                    pair = f"{kind} {rows[i].ref}, {kind} {rows[i + distance].ref}"
                    new[target] = Value(f.emit(f"shufflevector {pair}, <{lanes} x i32> <{text}>"), rows[0].dtype)
            rows = new
            distance *= 2
        return rows

    # -- calls of these functions -----------------------------------------------------------------------------------

    def pack_columns(
        self, f: Function, out: str, base: str, columns: str, count: Scalar, ks: str, depth: Scalar, k_run: Scalar
    ) -> str:
        """Panels of an operand on the right, ``columns`` and ``ks``: tables of offsets. Bytes from panel to panel."""
        size = self.tile.columns
        panel = f.mul(self.depth_of(f, depth), size * self.sum_size)

        def one(j: str) -> None:
            f.line(
                f"call void @pack{size}(ptr {f.at(out, f.mul(j, panel))}, ptr {base}, "
                f"ptr {f.at(columns, f.mul(j, 8 * size))}, ptr {ks}, i64 {depth}, i64 {k_run})"
            )

        f.loop(0, f.div(f.add(count, size - 1), size), 1, one)
        return panel

    def pack_rows(
        self, f: Function, out: str, base: str, rows: str, count: Scalar, ks: str, depth: Scalar, k_run: Scalar
    ) -> None:
        """Panels of an operand on the left."""
        tall, _, padded = self.split_rows(f, str(count))
        above = f.mul(tall, self.tile.rows)
        row_bytes = f.mul(self.depth_of(f, depth), self.sum_size)

        def one(size: int, row: str, suffix: str = "") -> None:
            panel = f.at(out, f.mul(row, row_bytes))
            f.line(
                f"call void @pack{suffix or size}(ptr {panel}, ptr {base}, "
                f"ptr {f.at(rows, f.mul(row, 8))}, ptr {ks}, i64 {depth}, i64 {k_run})"
            )

        start: Scalar = 0
        if self._packs_wide:
            start = f.max(f.sub(above, self.tile.rows), 0)  # the last one has no rows behind it
            f.loop(0, start, self.tile.rows, lambda row: one(self.tile.rows, row, "_wide"))
        f.loop(start, above, self.tile.rows, lambda row: one(self.tile.rows, row))
        f.loop(above, padded, self.tile.few_rows, lambda row: one(self.tile.few_rows, row))

    def depth_of(self, f: Function, count: Scalar) -> Scalar:
        """Lanes of a panel for each row, of ``count`` steps of k."""
        return count if self.half is None else f.div(f.add(count, 1), 2)

    def split_rows(self, f: Function, rows: str) -> tuple[str, str, str]:
        """How many high and how many low tiles cover ``rows`` with the least work, and how many rows they have."""
        high, low = self.tile.rows, self.tile.few_rows
        whole, rest = f.div(rows, high), f.rem(rows, high)

        def low_for(count: str) -> str:
            return f.div(f.add(count, low - 1), low)

        some = f.test("ne", rest, 0)
        # The rest in one high tile, in low tiles, or one high tile less and more low ones.
        padded = f.choose(some, high, 0)
        in_low = low_for(rest)
        longer = low_for(f.add(rest, high))
        cost_low, cost_longer = f.mul(in_low, low), f.sub(f.mul(longer, low), high)
        fewer = f.emit(f"and i1 {f.test('ne', whole, 0)}, {f.test('slt', cost_longer, f.min(padded, cost_low))}")
        use_low = f.test("slt", cost_low, padded)
        tall = f.choose(use_low, whole, f.add(whole, f.emit(f"zext i1 {some} to i64")))
        few = f.choose(use_low, in_low, 0)
        tall = f.choose(fewer, f.sub(whole, 1), tall)
        few = f.choose(fewer, longer, few)
        return tall, few, f.add(f.mul(tall, high), f.mul(few, low))
