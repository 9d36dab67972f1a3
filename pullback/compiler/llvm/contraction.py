"""The contraction engine's native functions: packing, register tiles, and the loops around them.

``C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n]``, where each of batch, m, n and k is a *group* of axes
with extents and byte strides given at run time. So one function for each dtype serves every size, transpose, window and
broadcast, and nothing is compiled for a new shape.

The loops are those of Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008): a task owns a
block of C; for each block of k it packs panels of B, then of A, and a register tile walks along them. An element of C
is one chain of multiply-adds within a block of k, and the blocks of k are added in order: neither tiles nor tasks nor
threads change a bit of it. An operand whose elements follow each other as the tile reads them is not packed.

A task may hand its rows on while they are in the cache: see ``FOLLOW``.
"""

from __future__ import annotations

from dataclasses import dataclass

from .function import Function, Scalar
from .target import Target
from .values import LLVM_TYPE, REGISTER, STORAGE_SIZE, Value

MAX_AXES = 6  # of a group
UNROLL = 4  # steps of k in a tile's loop
_GROUP_WORDS = 1 + 4 * MAX_AXES  # count; for each axis its extent and up to three strides in bytes

#: A launch's parameters, in words: these, then the groups, then what FOLLOW describes.
PARAMETERS = (
    "a_slot", "a_offset", "b_slot", "b_offset", "c_slot", "c_offset",
    "m", "n", "k", "m_block", "n_block", "m_blocks", "n_blocks", "k_block", "row_block",
    "a_direct", "b_direct", "c_direct",  # 1: read, written in place
    "a_row_step", "a_k_step", "c_row_step",  # bytes, where direct
    "at_a", "at_b", "at_rows", "at_columns", "at_out", "at_ka", "at_kb", "at_panels", "at_lines", "at_c",
    "at_follow",  # bytes into the scratch
)  # fmt: skip
GROUPS = ("batch", "m", "n", "k")  # strides: of A, B and C; of A and C; of B and C; of A and B
#: The kernel that goes over a task's rows as soon as they are complete: its address (0: none), 1 if C is only kept in
#: scratch for it, the number of its parameters, where the extent of its columns is among them, the number of parameters
#: that move with the first column and the number of its accesses to C in scratch; then the parameters; (position, step)
#: for each of those that move; and for each access to C in scratch, whose slot holds 0, the position of its offset.
FOLLOW = ("function", "only", "count", "columns", "moves", "accesses")
AT_GROUPS = len(PARAMETERS)
AT_FOLLOW = AT_GROUPS + len(GROUPS) * _GROUP_WORDS


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


def function_name(dtype: str, result: str) -> str:
    return f"contract_{dtype}" if result == dtype else f"contract_{dtype}_{result}"


def group_words(axes: list[tuple[int, ...]]) -> list[int]:
    """A group as parameters: for each axis, outermost first, its extent and its strides in bytes."""
    words = [len(axes)]
    for axis in axes:
        words += [*axis, *[0] * (4 - len(axis))]
    return words + [0] * (_GROUP_WORDS - len(words))


def contraction_ir(dtype: str, target: Target, result: str | None = None) -> str:
    """The module for operands of ``dtype``: float16 and bfloat16 are summed in float32, the others in themselves.

    result: the dtype of what is stored: that of the operands, or that of the sums.
    """
    return ContractionLibrary(dtype, target, result).text()


class ContractionLibrary:
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str, target: Target, result: str | None = None) -> None:
        self.dtype = dtype
        self.result = result or dtype
        self.result_size = STORAGE_SIZE[self.result]
        self.target = target
        self.size = STORAGE_SIZE[dtype]
        self.register = REGISTER[dtype]
        self.sum_dtype = "float32" if dtype in ("float16", "bfloat16") else dtype
        self.sum_size = STORAGE_SIZE[self.sum_dtype]
        self.tile = tile_for(target, self.sum_dtype)
        self.declares: dict[str, str] = {}

    def text(self) -> str:
        """The module that computes whole contractions."""
        functions = [*self.parts(), self._copy_out(), self._follow(), self._contract()]
        if self.result_size != self.size:
            functions.append(self._is_run("is_run_of_results", self.result_size))
        return "\n".join([*self.declares.values(), *functions])

    def parts(self) -> list[str]:
        """What other engines are made of, too: offsets, packing, tiles, and panels of rows."""
        tile = self.tile
        functions = [self._offsets(), self._line(), self._is_run("is_run", self.size), self._bend()]
        functions += [self._pack(size) for size in sorted({tile.rows, tile.few_rows, tile.columns})]
        for rows in (tile.rows, tile.few_rows):
            functions += [self._tile(rows, direct=False), self._tile(rows, direct=True)]
        return [*functions, self._copy_tile(), self._row_panels(direct=False), self._row_panels(direct=True)]

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

    def _line(self) -> str:
        """``count`` offsets that are ``step`` bytes apart."""
        f = self.function("line", ("ptr", "out"), ("i64", "step"), ("i64", "count"))
        f.loop(0, "%count", 1, lambda i: f.set_word("%out", i, f.mul(i, "%step")))
        return f.text()

    def _is_run(self, name: str, size: int) -> str:
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
            base = f.at("%base", f.word("%rows", 0))

            def one(k: str) -> None:
                source, out = f.at(base, f.word("%ks", k)), f.at("%out", f.mul(k, step))
                done = 0
                while done < rows:
                    width = self.tile.lanes
                    while width > rows - done:
                        width //= 2
                    b = f.b.at_width(width)
                    value = b.load(self.dtype, f.at(source, done * self.size))
                    b.store(self.sum_dtype, f.at(out, done * self.sum_size), value)
                    done += width

            f.loop(0, "%count", 1, one)

        packed, bend = f.variable(), f.variable()
        f.set(packed, 0)

        def one_by_one() -> None:
            one = f.b.at_width(1)

            def column(k: str) -> None:
                source, out = f.at("%base", f.word("%ks", k)), f.at("%out", f.mul(k, step))
                for row in range(rows):
                    value = one.load(self.dtype, f.at(source, f.word("%rows", row)))
                    one.store(self.sum_dtype, f.at(out, row * self.sum_size), value)

            f.loop(f.get(packed), "%count", 1, column)

        def along_k() -> None:
            lanes = self.tile.lanes
            whole = f.emit(f"and i64 %count, {-lanes}")
            base = f.at("%base", f.word("%ks", 0))

            def square(k: str) -> None:
                out = f.at("%out", f.mul(k, step))
                for first in range(0, rows, lanes):
                    here = min(lanes, rows - first)
                    vectors = []
                    for row in range(here):
                        start = f.at(base, f.add(f.word("%rows", first + row), f.mul(k, self.size)))
                        vectors.append(f.b.load(self.dtype, start))
                    vectors += [vectors[-1]] * (lanes - here)
                    for i, vector in enumerate(self._transpose(f, vectors)):
                        target = f.at(out, i * step + first * self.sum_size)
                        if here == lanes or rows < lanes:
                            f.b.store(self.sum_dtype, target, vector)  # what it writes too much comes later in order
                        else:
                            self._store_part(f, target, vector, here)

            f.loop(0, whole, lanes, square)
            f.set(packed, whole)

        def two_runs() -> None:
            # The rows of an image that is narrower than a panel: each lane from one of two places.
            first, second = f.word("%rows", 0), f.word("%rows", f.get(bend))
            base = f.at("%base", first)
            moved = f.at("%base", f.sub(second, f.mul(f.get(bend), self.size)))
            lanes = self.tile.lanes
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
                    here = f.b.load(self.dtype, f.at(f.at(base, offset), at), low)
                    there = f.b.load(self.dtype, f.at(f.at(moved, offset), at), high)
                    value = f.b.select(low, here, there)
                    f.b.store(self.sum_dtype, f.at(out, number * lanes * self.sum_size), value)

            f.loop(0, "%count", 1, one)
            f.set(packed, "%count")

        def across() -> None:
            f.when(f.test("ne", "%k_run", 0), along_k)
            if rows == self.tile.columns:
                f.line(f"call void @bend(ptr {bend}, ptr %rows, i64 {rows})")
                bends_once = f.test("ne", f.get(bend), 0)
                f.when(f.emit(f"and i1 {bends_once}, {f.test('eq', f.get(packed), 0)}"), two_runs)
            one_by_one()

        f.when(f.test("ne", f.get(is_run), 0), along_rows, across)
        return f.text()

    def _store_part(self, f: Function, target: str, vector: Value, count: int) -> None:
        """The first ``count`` lanes of a vector."""
        done = 0
        while done < count:
            width = self.tile.lanes
            while width > count - done:
                width //= 2
            narrow = f.b.at_width(width)
            order = ", ".join(f"i32 {i}" for i in range(done, done + width))
            lanes = f"<{width} x i32> <{order}>"
            part = f.emit(f"shufflevector {f.b.typed(vector)}, {f.b.type(vector.dtype)} poison, {lanes}")
            narrow.store(self.sum_dtype, f.at(target, done * self.sum_size), Value(part, vector.dtype))
            done += width

    def _transpose(self, f: Function, rows: list[Value]) -> list[Value]:
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

    # -- the register tile --------------------------------------------------------------------------------------------

    def _tile(self, rows: int, direct: bool) -> str:
        """``rows`` rows of C by the tile's columns, of which ``valid`` rows exist in A; summed onto C if ``add``.

        ks: offsets of the rows of B, one for each k.
        direct: A is read in place; its rows are ``a_row`` bytes apart and elements along k follow each other.
        """
        name = f"tile{rows}{'direct' if direct else ''}"
        f = self.function(
            name, ("ptr", "a"), ("i64", "a_row"), ("ptr", "b"), ("ptr", "ks"), ("i64", "count"), ("ptr", "c"),
            ("i64", "c_row"), ("i64", "valid"), ("i64", "add"),
        )  # fmt: skip
        b = f.b
        vectors, lanes = self.tile.vectors, self.tile.lanes
        register = REGISTER[self.sum_dtype]
        kind = b.type(register)
        places = [
            [f.at("%c", f.add(f.mul("%c_row", row), v * lanes * self.sum_size)) for v in range(vectors)]
            for row in range(rows)
        ]
        sums = [[f.variable(kind) for _ in range(vectors)] for _ in range(rows)]
        cells = [(places[row][v], sums[row][v]) for row in range(rows) for v in range(vectors)]

        for _, total in cells:
            f.set(total, "zeroinitializer", kind)
        last = f.sub("%valid", 1)
        starts = ["%a"]
        if direct:
            starts += [f.at("%a", f.mul(f.min(row, last), "%a_row")) for row in range(1, rows)]
        one = b.at_width(1)

        def step(k: str, number: int) -> None:
            """Multiply-adds for k + number."""
            at_b = f.at("%b", f.word("%ks", f.add(k, number)))
            columns = [b.load(self.sum_dtype, f.at(at_b, v * lanes * self.sum_size)) for v in range(vectors)]
            for row in range(rows):
                if direct:
                    address = f.at(f.at(starts[row], f.mul(k, self.size)), number * self.size)
                else:
                    packed = rows * self.sum_size
                    address = f.at(f.at("%a", f.mul(k, packed)), number * packed + row * self.sum_size)
                value = b.splat(one.first(one.load(self.sum_dtype, address)), register)
                for v in range(vectors):
                    old = Value(f.get(sums[row][v], kind), register)
                    f.set(sums[row][v], self._multiply_add(f, value, columns[v], old).ref, kind)

        def several(k: str) -> None:
            for number in range(UNROLL):
                step(k, number)

        whole = f.emit(f"and i64 %count, {-UNROLL}")
        f.loop(0, whole, UNROLL, several)
        f.loop(whole, "%count", 1, lambda k: step(k, 0))

        def go_on() -> None:
            for place, total in cells:
                added = self._plus(f, b.load(self.sum_dtype, place), Value(f.get(total, kind), register))
                f.set(total, added.ref, kind)

        f.when(f.test("ne", "%add", 0), go_on)
        for place, total in cells:
            b.store(self.sum_dtype, place, Value(f.get(total, kind), register))
        return f.text()

    def _copy_tile(self) -> str:
        """``rows`` by ``columns`` sums from ``source`` to ``target``."""
        f = self.function(
            "copy_tile", ("ptr", "target"), ("i64", "target_row"), ("ptr", "source"), ("i64", "source_row"),
            ("i64", "rows"), ("i64", "columns"),
        )  # fmt: skip
        one = f.b.at_width(1)

        def row(i: str) -> None:
            source, target = f.at("%source", f.mul(i, "%source_row")), f.at("%target", f.mul(i, "%target_row"))

            def element(j: str) -> None:
                at = f.mul(j, self.sum_size)
                one.store(self.sum_dtype, f.at(target, at), one.load(self.sum_dtype, f.at(source, at)))

            f.loop(0, "%columns", 1, element)

        f.loop(0, "%rows", 1, row)
        return f.text()

    def _multiply_add(self, f: Function, x: Value, y: Value, total: Value) -> Value:
        if self.register[0] == "f" and self.target.has_fma:
            return f.b.fma(x, y, total)
        return self._plus(f, total, f.b.mul(x, y))

    @staticmethod
    def _plus(f: Function, x: Value, y: Value) -> Value:
        return f.b.add(x, y)

    def _row_panels(self, direct: bool) -> str:
        """One panel of B against ``rows`` rows of A, in tiles of both heights."""
        f = self.function(
            f"rows{'direct' if direct else ''}", ("ptr", "a"), ("i64", "a_row"), ("ptr", "b"), ("ptr", "ks"),
            ("i64", "count"), ("ptr", "c"), ("i64", "c_row"), ("i64", "rows"), ("i64", "columns"), ("i64", "add"),
        )  # fmt: skip
        tall, few, _ = self.split_rows(f, "%rows")
        above = f.mul(tall, self.tile.rows)
        suffix = "direct" if direct else ""

        corner = f.variable(f"[{self.tile.rows * self.tile.columns} x {LLVM_TYPE[REGISTER[self.sum_dtype]]}]")
        corner_row = self.tile.columns * self.sum_size

        def call(height: int, row: str) -> None:
            step = "%a_row" if direct else f.mul("%count", self.sum_size)
            a = f.at("%a", f.mul(row, step))
            c = f.at("%c", f.mul(row, "%c_row"))
            valid = f.min(f.sub("%rows", row), height)

            def tile(target: str, target_row: Scalar) -> None:
                f.line(
                    f"call void @tile{height}{suffix}(ptr {a}, i64 %a_row, ptr %b, ptr %ks, i64 %count, "
                    f"ptr {target}, i64 {target_row}, i64 {valid}, i64 %add)"
                )

            def part() -> None:
                # Nothing outside C is touched: the tile is summed beside it.
                f.line(
                    f"call void @copy_tile(ptr {corner}, i64 {corner_row}, ptr {c}, i64 %c_row, i64 {valid}, "
                    "i64 %columns)"
                )
                tile(corner, corner_row)
                f.line(
                    f"call void @copy_tile(ptr {c}, i64 %c_row, ptr {corner}, i64 {corner_row}, i64 {valid}, "
                    "i64 %columns)"
                )

            cells = f.mul(valid, "%columns")
            f.when(f.test("eq", cells, height * self.tile.columns), lambda: tile(c, "%c_row"), part)

        f.loop(0, above, self.tile.rows, lambda row: call(self.tile.rows, row))
        end = f.add(above, f.mul(few, self.tile.few_rows))
        f.loop(above, end, self.tile.few_rows, lambda row: call(self.tile.few_rows, row))
        return f.text()

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

    # -- the results --------------------------------------------------------------------------------------------------

    def _copy_out(self) -> str:
        """The block at ``block`` to the elements of C at its rows' and columns' offsets."""
        f = self.function(
            "copy_out", ("ptr", "block"), ("i64", "block_row"), ("i64", "count"), ("i64", "width"), ("ptr", "c"),
            ("ptr", "rows"), ("ptr", "columns"),
        )  # fmt: skip
        is_run = f.variable()
        check = "is_run" if self.result_size == self.size else "is_run_of_results"
        f.line(f"call void @{check}(ptr {is_run}, ptr %columns, i64 %width)")
        contiguous = f.test("ne", f.get(is_run), 0)
        lanes = self.tile.lanes

        def row(i: str) -> None:
            source, target = f.at("%block", f.mul(i, "%block_row")), f.at("%c", f.word("%rows", i))

            def vector(j: str, mask: Value | None) -> None:
                value = f.b.load(self.sum_dtype, f.at(source, f.mul(j, self.sum_size)), mask)
                f.b.store(self.result, f.at(start, f.mul(j, self.result_size)), value, mask)

            start = f.at(target, f.word("%columns", 0))

            def run() -> None:
                whole = f.emit(f"and i64 %width, {-lanes}")
                f.loop(0, whole, lanes, lambda j: vector(j, None))
                f.loop(whole, "%width", lanes, lambda j: vector(j, f.b.mask_below(f.sub("%width", j))))

            def scattered() -> None:
                one = f.b.at_width(1)

                def element(j: str) -> None:
                    value = one.load(self.sum_dtype, f.at(source, f.mul(j, self.sum_size)))
                    one.store(self.result, f.at(target, f.word("%columns", j)), value)

                f.loop(0, "%width", 1, element)

            f.when(contiguous, run, scattered)

        f.loop(0, "%count", 1, row)
        return f.text()

    def _follow(self) -> str:
        """Call the kernel that follows on rows ``row`` to ``row + count`` of the whole C, columns ``column`` to
        ``column + width``; ``block`` is where the first of these rows is in scratch."""
        f = self.function(
            "follow", ("ptr", "record"), ("ptr", "slots"), ("ptr", "copy"), ("i64", "row"), ("i64", "count"),
            ("i64", "column"), ("i64", "width"), ("ptr", "block"), ("i64", "block_row"),
        )  # fmt: skip
        field = {name: f.word("%record", i) for i, name in enumerate(FOLLOW)}
        given = f.at("%record", 8 * len(FOLLOW))
        f.loop(0, field["count"], 1, lambda i: f.set_word("%copy", i, f.word(given, i)))
        f.set_word("%copy", field["columns"], "%width")
        moves = f.at(given, f.mul(field["count"], 8))

        def move(i: str) -> None:
            position, step = f.word(moves, f.mul(i, 2)), f.word(moves, f.add(f.mul(i, 2), 1))
            f.set_word("%copy", position, f.add(f.word("%copy", position), f.mul(step, "%column")))

        f.loop(0, field["moves"], 1, move)
        accesses = f.at(moves, f.mul(field["moves"], 16))

        def redirect(i: str) -> None:
            # The slot holds 0: the offset is the address that row 0 would have.
            address = f.emit("ptrtoint ptr %block to i64")
            f.set_word("%copy", f.word(accesses, i), f.sub(address, f.mul("%row", "%block_row")))

        f.loop(0, field["accesses"], 1, redirect)
        function = f.emit(f"inttoptr i64 {field['function']} to ptr")
        end = f.add("%row", "%count")
        f.line(f"call void {function}(ptr %slots, ptr %copy, i64 %row, i64 {end}, ptr null)")
        return f.text()

    # -- the whole ----------------------------------------------------------------------------------------------------

    def _contract(self) -> str:
        """``void(slots, params, lo, hi, scratch)``: tasks lo to hi, each a block of C of one product of the batch."""
        f = self.function(
            function_name(self.dtype, self.result), ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"),
            ("ptr", "scratch"), is_public=True,
        )  # fmt: skip
        p = {name: f.word("%params", i) for i, name in enumerate(PARAMETERS)}
        groups = {name: f.at("%params", 8 * (AT_GROUPS + i * _GROUP_WORDS)) for i, name in enumerate(GROUPS)}
        record = f.at("%params", 8 * AT_FOLLOW)
        followed = f.test("ne", f.word(record, 0), 0)
        copied = f.emit(f"or i64 {p['c_direct']}, {f.word(record, 1)}")
        space = {name[3:]: f.at("%scratch", p[name]) for name in PARAMETERS if name.startswith("at_")}
        bases = {}
        for name in "abc":
            place = f.emit(f"getelementptr ptr, ptr %slots, i64 {p[name + '_slot']}")
            slot = f.emit(f"load ptr, ptr {place}")
            bases[name] = f.at(slot, p[f"{name}_offset"])
        conditions = {name: f.test("ne", p[f"{name}_direct"], 0) for name in "abc"}
        where, k_run_a, k_run_b = f.variable(), f.variable(), f.variable()
        f.line(f"call void @line(ptr {space['lines']}, i64 {self.tile.columns * self.sum_size}, i64 {p['k_block']})")

        def offsets(out: str, group: str, column: int, first: Scalar, count: Scalar, padded: Scalar) -> None:
            f.line(
                f"call void @offsets(ptr {out}, ptr {groups[group]}, i64 {column}, i64 {first}, i64 {count}, "
                f"i64 {padded})"
            )

        def task(t: str) -> None:
            blocks = f.mul(p["m_blocks"], p["n_blocks"])
            item, rest = f.div(t, blocks), f.rem(t, blocks)
            m0, n0 = f.mul(f.div(rest, p["n_blocks"]), p["m_block"]), f.mul(f.rem(rest, p["n_blocks"]), p["n_block"])
            height, width = f.min(p["m_block"], f.sub(p["m"], m0)), f.min(p["n_block"], f.sub(p["n"], n0))
            starts = {}
            for column, name in enumerate("abc"):
                offsets(where, "batch", column, item, 1, 1)
                starts[name] = f.at(bases[name], f.get(where))
            offsets(space["columns"], "n", 0, n0, width, f.add(width, self.tile.columns))
            panels = f.div(f.add(width, self.tile.columns - 1), self.tile.columns)
            whole = f.div(width, self.tile.columns)

            def look_at_panel(j: str) -> None:
                # A panel that is not whole is packed: nothing behind a row is read.
                place = f.emit(f"getelementptr i64, ptr {space['panels']}, i64 {j}")
                first = f.at(space["columns"], f.mul(j, 8 * self.tile.columns))
                f.set(place, 0)

                def ask() -> None:
                    f.line(f"call void @is_run(ptr {place}, ptr {first}, i64 {self.tile.columns})")

                f.when(f.emit(f"and i1 {conditions['b']}, {f.test('slt', j, whole)}"), ask)

            f.loop(0, panels, 1, look_at_panel)
            in_place = f.at(f.at(starts["c"], f.mul(m0, p["c_row_step"])), f.mul(n0, self.result_size))
            c = f.emit(f"select i1 {conditions['c']}, ptr {in_place}, ptr {space['c']}")
            c_row = f.choose(conditions["c"], p["c_row_step"], f.mul(p["n_block"], self.sum_size))

            def block_of_k(k0: str) -> None:
                count = f.min(p["k_block"], f.sub(p["k"], k0))
                add = f.emit(f"zext i1 {f.test('ne', k0, 0)} to i64")
                is_last = f.test("sge", f.add(k0, count), p["k"])
                offsets(space["kb"], "k", 1, k0, count, count)
                f.line(f"call void @is_run(ptr {k_run_b}, ptr {space['kb']}, i64 {count})")
                panel_bytes = f.mul(count, self.tile.columns * self.sum_size)

                def pack_b(j: str) -> None:
                    f.line(
                        f"call void @pack{self.tile.columns}(ptr {f.at(space['b'], f.mul(j, panel_bytes))}, "
                        f"ptr {starts['b']}, ptr {f.at(space['columns'], f.mul(j, 8 * self.tile.columns))}, "
                        f"ptr {space['kb']}, i64 {count}, i64 {f.get(k_run_b)})"
                    )

                f.loop(0, panels, 1, lambda j: f.when(f.test("eq", f.word(space["panels"], j), 0), lambda: pack_b(j)))

                def pack_a_setup() -> None:
                    offsets(space["ka"], "k", 0, k0, count, count)
                    f.line(f"call void @is_run(ptr {k_run_a}, ptr {space['ka']}, i64 {count})")

                f.when(conditions["a"], lambda: None, pack_a_setup)

                def rows(r0: str) -> None:
                    here = f.min(p["row_block"], f.sub(height, r0))

                    def pack_a() -> None:
                        tall, _, padded = self.split_rows(f, here)
                        offsets(space["rows"], "m", 0, f.add(m0, r0), here, padded)
                        above = f.mul(tall, self.tile.rows)

                        def pack(size: int, row: str) -> None:
                            out = f.at(space["a"], f.mul(f.mul(row, count), self.sum_size))
                            f.line(
                                f"call void @pack{size}(ptr {out}, ptr {starts['a']}, "
                                f"ptr {f.at(space['rows'], f.mul(row, 8))}, ptr {space['ka']}, i64 {count}, "
                                f"i64 {f.get(k_run_a)})"
                            )

                        f.loop(0, above, self.tile.rows, lambda row: pack(self.tile.rows, row))
                        f.loop(above, padded, self.tile.few_rows, lambda row: pack(self.tile.few_rows, row))

                    f.when(conditions["a"], lambda: None, pack_a)
                    a_row = p["a_row_step"]
                    direct = f.at(f.at(starts["a"], f.mul(f.add(m0, r0), a_row)), f.mul(k0, p["a_k_step"]))
                    c_here = f.at(c, f.mul(r0, c_row))

                    def panel(j: str) -> None:
                        column = f.mul(j, self.tile.columns)
                        valid = f.min(f.sub(width, column), self.tile.columns)
                        packed = f.at(space["b"], f.mul(j, panel_bytes))
                        placed = f.at(starts["b"], f.word(space["columns"], column))
                        in_place = f.test("ne", f.word(space["panels"], j), 0)
                        b = f.emit(f"select i1 {in_place}, ptr {placed}, ptr {packed}")
                        ks = f.emit(f"select i1 {in_place}, ptr {space['kb']}, ptr {space['lines']}")
                        c_panel = f.at(c_here, f.mul(column, self.sum_size))

                        def call(suffix: str, a: str) -> None:
                            f.line(
                                f"call void @rows{suffix}(ptr {a}, i64 {a_row}, ptr {b}, ptr {ks}, i64 {count}, "
                                f"ptr {c_panel}, i64 {c_row}, i64 {here}, i64 {valid}, i64 {add})"
                            )

                        f.when(conditions["a"], lambda: call("direct", direct), lambda: call("", space["a"]))

                    f.loop(0, panels, 1, panel)

                    def finish() -> None:
                        def copy() -> None:
                            offsets(space["rows"], "m", 1, f.add(m0, r0), here, here)
                            offsets(space["out"], "n", 1, n0, width, width)
                            f.line(
                                f"call void @copy_out(ptr {c_here}, i64 {c_row}, i64 {here}, i64 {width}, "
                                f"ptr {starts['c']}, ptr {space['rows']}, ptr {space['out']})"
                            )

                        f.when(f.test("eq", copied, 0), copy)

                        def follow() -> None:
                            row = f.add(f.mul(item, p["m"]), f.add(m0, r0))
                            f.line(
                                f"call void @follow(ptr {record}, ptr %slots, ptr {space['follow']}, i64 {row}, "
                                f"i64 {here}, i64 {n0}, i64 {width}, ptr {c_here}, i64 {c_row})"
                            )

                        f.when(followed, follow)

                    f.when(is_last, finish)

                f.loop(0, height, p["row_block"], rows)

            f.loop(0, p["k"], p["k_block"], block_of_k)

        f.loop("%lo", "%hi", 1, task)
        return f.text()
