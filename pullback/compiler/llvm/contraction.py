"""The contraction engine's native functions: packing, register tiles, and the loops around them (block_loops.py).

``C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n]``, where each of batch, m, n and k is a *group* of axes
with extents and byte strides given at run time. So one function for each dtype serves every size, transpose, window and
broadcast, and nothing is compiled for a new shape.

The loops are those of Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008): a task owns a
block of C; for each block of k it packs panels of B, then of A, and a register tile walks along them. An element of C
is one chain of multiply-adds within a block of k, and the blocks of k are added in order: neither tiles nor tasks nor
threads change a bit of it. An operand whose elements follow each other as the tile reads them is not packed.

Kernels may compute the blocks of an operand that are about to be read, and go over a task's rows while they are in the
cache: see blockwise.py.
"""

from __future__ import annotations

from . import pairs
from .block_loops import BlockLoops
from .blockwise import BlockCalls
from .function import Function, Scalar
from .panels import neighbours
from .target import Target
from .values import LLVM_TYPE, REGISTER, STORAGE_SIZE, Value, is_float

LONG_SUM = 128  # steps of k that take longer than a tile's place from memory
MOST_STARTS = 8  # addresses of rows that general registers hold beside what a loop needs


def function_name(dtype: str, result: str) -> str:
    return f"contract_{dtype}" if result == dtype else f"contract_{dtype}_{result}"


def contraction_ir(dtype: str, target: Target, result: str | None = None) -> str:
    """The module for operands of ``dtype``.

    result: the dtype of what is stored: that of the operands, or that of the sums.
    """
    return ContractionLibrary(dtype, target, result).text()


class ContractionLibrary(BlockCalls):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str, target: Target, result: str | None = None) -> None:
        super().__init__(dtype, target)
        self.result = dtype if result is None else result
        self.result_size = STORAGE_SIZE[self.result]

    def text(self) -> str:
        """The module that computes whole contractions."""
        accesses = ("", "direct", "across") if self.is_read_in_place else ("",)
        functions = [*self.parts(accesses), self._copy_out(), *self.block_calls(), self._loops()]
        if self.half is None:
            functions.append(neighbours(self))
        if self.result_size != self.size:
            functions.append(self.is_run("is_run_of_results", self.result_size))
        return "\n".join([*self.declares.values(), *functions])

    def _loops(self) -> str:
        return BlockLoops(self, function_name(self.dtype, self.result)).text()

    def parts(self, accesses: tuple[str, ...] = ("", "direct")) -> list[str]:
        """What other engines are made of, too: offsets, packing, tiles, and panels of rows; ``accesses`` to A."""
        tile = self.tile
        functions = self.packing()
        for access in accesses:
            functions += [self.tile_of(rows, access) for rows in (tile.rows, tile.few_rows)]
            functions.append(self.row_panels(access))
        return [*functions, self._copy_tile()]

    # -- the register tile --------------------------------------------------------------------------------------------

    def tile_of(self, rows: int, access: str) -> str:
        """``rows`` rows of C by the tile's columns, of which ``valid`` rows exist in A; summed onto C if ``add``.

        count: steps of k, or pairs of steps.
        ks: offsets of the rows of B, one for each step.
        access: "" where A is packed. "direct": it is read in place; its rows are ``a_row`` bytes apart and elements
            along k follow each other. "across": rows follow each other, and elements along k are ``a_row`` bytes apart.
        """
        name = f"tile{rows}{access}"
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

        def fetch() -> None:
            # The tile's place comes from far while the products are summed.
            for row in places:
                for place in (row[0], f.at(row[-1], (lanes - 1) * self.sum_size)):
                    b.prefetch(place, is_written=True)

        is_far = f.emit(f"or i1 {f.test('ne', '%add', 0)}, {f.test('sge', '%count', LONG_SUM)}")
        f.when(is_far, fetch)
        starts = ["%a"]
        if access == "direct":
            starts += [f.at("%a", f.mul(f.min(row, last), "%a_row")) for row in range(1, rows)]
        one = b.at_width(1)

        def step(k: str, number: int) -> None:
            """Multiply-adds for k + number."""
            at_b = f.at("%b", f.word("%ks", f.add(k, number)))
            columns = [b.load(self.packed_dtype, f.at(at_b, v * lanes * self.sum_size)) for v in range(vectors)]
            for row in range(rows):
                if access == "direct":
                    address = f.at(f.at(starts[row], f.mul(k, self.sum_size)), number * self.sum_size)
                elif access == "across":
                    address = f.at(f.at("%a", f.mul(f.add(k, number), "%a_row")), row * self.sum_size)
                else:
                    packed = rows * self.sum_size
                    address = f.at(f.at("%a", f.mul(k, packed)), number * packed + row * self.sum_size)
                value = b.splat(one.first(one.load(self.packed_dtype, address)), REGISTER[self.packed_dtype])
                for v in range(vectors):
                    old = Value(f.get(sums[row][v], kind), register)
                    f.set(sums[row][v], self._multiply_add(f, value, columns[v], old).ref, kind)

        if is_float(register) and len(starts) <= MOST_STARTS:
            f.unrolled("%count", step)
        else:
            # Sums of integers over several steps LLVM regroups, into more than there are registers. Where it has to
            # reload addresses it reads the columns of all steps before, and sums lose their registers to them.
            f.loop(0, "%count", 1, lambda k: step(k, 0))

        def go_on() -> None:
            for place, total in cells:
                added = f.b.add(b.load(self.sum_dtype, place), Value(f.get(total, kind), register))
                f.set(total, added.ref, kind)

        f.when(f.test("ne", "%add", 0), go_on)
        for place, total in cells:
            b.store(self.sum_dtype, place, Value(f.get(total, kind), register))
        return f.text()

    def _multiply_add(self, f: Function, x: Value, y: Value, total: Value) -> Value:
        """``total`` plus the products of the lanes of packed operands."""
        if self.half is None:
            return f.b.fma(x, y, total)
        return pairs.multiply_add(f.b, self.half, x, y, total)

    def _copy_tile(self) -> str:
        """``rows`` by ``columns`` sums from ``source`` to ``target``."""
        f = self.function(
            "copy_tile", ("ptr", "target"), ("i64", "target_row"), ("ptr", "source"), ("i64", "source_row"),
            ("i64", "rows"), ("i64", "columns"),
        )  # fmt: skip

        def row(i: str) -> None:
            source, target = f.at("%source", f.mul(i, "%source_row")), f.at("%target", f.mul(i, "%target_row"))

            def vector(j: str, mask: Value | None) -> None:
                at = f.mul(j, self.sum_size)
                f.b.store(self.sum_dtype, f.at(target, at), f.b.load(self.sum_dtype, f.at(source, at), mask), mask)

            f.each_vector("%columns", vector)

        f.loop(0, "%rows", 1, row)
        return f.text()

    def row_panels(self, access: str) -> str:
        """One panel of B against ``rows`` rows of A, in tiles of both heights."""
        f = self.function(
            f"rows{access}", ("ptr", "a"), ("i64", "a_row"), ("ptr", "b"), ("ptr", "ks"),
            ("i64", "count"), ("ptr", "c"), ("i64", "c_row"), ("i64", "rows"), ("i64", "columns"), ("i64", "add"),
        )  # fmt: skip
        tall, few, _ = self.split_rows(f, "%rows")
        above = f.mul(tall, self.tile.rows)

        corner = f.variable(f"[{self.tile.rows * self.tile.columns} x {LLVM_TYPE[REGISTER[self.sum_dtype]]}]")
        corner_row = self.tile.columns * self.sum_size

        def call(height: int, row: str) -> None:
            step: Scalar = "%a_row" if access == "direct" else self.sum_size
            step = step if access else f.mul("%count", self.sum_size)
            a = f.at("%a", f.mul(row, step))
            c = f.at("%c", f.mul(row, "%c_row"))
            valid = f.min(f.sub("%rows", row), height)

            def tile(target: str, target_row: Scalar) -> None:
                f.line(
                    f"call void @tile{height}{access}(ptr {a}, i64 %a_row, ptr %b, ptr %ks, i64 %count, "
                    f"ptr {target}, i64 {target_row}, i64 {valid}, i64 %add)"
                )

            def part() -> None:
                # Nothing outside C is touched: the tile is summed beside it.
                def begin() -> None:
                    f.line(
                        f"call void @copy_tile(ptr {corner}, i64 {corner_row}, ptr {c}, i64 %c_row, i64 {valid}, "
                        "i64 %columns)"
                    )

                f.when(f.test("ne", "%add", 0), begin)
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

        def row(i: str) -> None:
            source, target = f.at("%block", f.mul(i, "%block_row")), f.at("%c", f.word("%rows", i))

            def vector(j: str, mask: Value | None) -> None:
                value = f.b.load(self.sum_dtype, f.at(source, f.mul(j, self.sum_size)), mask)
                f.b.store(self.result, f.at(start, f.mul(j, self.result_size)), value, mask)

            start = f.at(target, f.word("%columns", 0))

            def scattered() -> None:
                one = f.b.at_width(1)

                def element(j: str) -> None:
                    value = one.load(self.sum_dtype, f.at(source, f.mul(j, self.sum_size)))
                    one.store(self.result, f.at(target, f.word("%columns", j)), value)

                f.loop(0, "%width", 1, element)

            f.when(contiguous, lambda: f.each_vector("%width", vector), scattered)

        f.loop(0, "%count", 1, row)
        return f.text()
