"""Packing: panels of an operand, in the order in which a register tile reads them, from wherever its elements are.

What engines are written on top of: where elements are, as tables of byte offsets, and the copies into panels.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import pairs
from .builder import VectorBuilder
from .function import Function, Scalar
from .panels import Panel
from .target import Target
from .values import REGISTER, STORAGE_SIZE, Value

MAX_AXES = 6  # of a group of axes
GROUP_WORDS = 1 + 4 * MAX_AXES  # count; for each axis its extent and up to three strides in bytes


def group_words(axes: list[tuple[int, ...]]) -> list[int]:
    """A group as parameters: for each axis, outermost first, its extent and its strides in bytes."""
    words = [len(axes)]
    for axis in axes:
        words += [*axis, *[0] * (4 - len(axis))]
    return words + [0] * (GROUP_WORDS - len(words))


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
        found = [self._offsets(), self._table(), self.is_run("is_run", self.size), self._runs()]
        for size in sizes:
            panel = Panel(self, size) if self.half is None else pairs.PairPanel(self, self.half, size)
            found.append(panel.text())
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
        f.set("%out", f.flag(f.test("eq", f.get(wrong), 0)))
        return f.text()

    def _runs(self) -> str:
        """How ``count`` offsets follow each other: the length of the run that they begin with, how many of them are
        not one element behind the one before, and how many of these are the one before again."""
        f = self.function(
            "runs", ("ptr", "length"), ("ptr", "breaks"), ("ptr", "repeats"), ("ptr", "offsets"), ("i64", "count")
        )
        length, breaks, repeats = f.variable(), f.variable(), f.variable()
        f.set(length, "%count")
        f.set(breaks, 0)
        f.set(repeats, 0)

        def look(i: str) -> None:
            step = f.sub(f.word("%offsets", i), f.word("%offsets", f.sub(i, 1)))
            is_break = f.test("ne", step, self.size)
            f.set(length, f.min(f.get(length), f.choose(is_break, i, "%count")))
            f.set(breaks, f.add(f.get(breaks), f.flag(is_break)))
            f.set(repeats, f.add(f.get(repeats), f.flag(f.test("eq", step, 0))))

        f.loop(1, "%count", 1, look)
        for name, found in (("%length", length), ("%breaks", breaks), ("%repeats", repeats)):
            f.set(name, f.get(found))
        return f.text()

    # -- packing ------------------------------------------------------------------------------------------------------

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
        panel = Panel(self, rows, "pack_wide")
        f = panel.f
        is_run = f.variable()
        f.line(f"call void @is_run(ptr {is_run}, ptr %rows, i64 {width})")
        f.when(
            f.test("ne", f.get(is_run), 0),
            lambda: panel.along_rows([(first, lanes) for first in range(0, width, lanes)]),
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

    def load(self, b: VectorBuilder, address: str, mask: Value | None = None) -> Value:
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
        tall = f.choose(use_low, whole, f.add(whole, f.flag(some)))
        few = f.choose(use_low, in_low, 0)
        tall = f.choose(fewer, f.sub(whole, 1), tall)
        few = f.choose(fewer, longer, few)
        return tall, few, f.add(f.mul(tall, high), f.mul(few, low))
