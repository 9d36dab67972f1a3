"""The contraction engine's native functions: packing, register tiles, and the loops around them.

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
from .blockwise import LEAD, BlockCalls
from .function import Function, Scalar
from .target import Target
from .values import LLVM_TYPE, REGISTER, STORAGE_SIZE, Value, is_float

MAX_AXES = 6  # of a group
LONG_SUM = 128  # steps of k that take longer than a tile's place from memory
_GROUP_WORDS = 1 + 4 * MAX_AXES  # count; for each axis its extent and up to three strides in bytes

#: A launch's parameters, in words: these, then the groups, then the CALL of the kernel that follows, then the LEADs.
PARAMETERS = (
    "a_slot", "a_offset", "b_slot", "b_offset", "c_slot", "c_offset",
    "m", "n", "k", "m_block", "n_block", "m_blocks", "n_blocks", "k_block", "row_block",
    "a_access", "b_direct", "c_direct",  # of A: PACKED, DIRECT or ACROSS; 1: read, written in place
    "a_row_step", "a_k_step", "c_row_step",  # bytes, where in place
    "at_a", "at_b", "at_rows", "at_columns", "at_out", "at_ka", "at_kb", "at_panels", "at_lines", "at_c",
    "at_lead_a", "at_lead_b", "at_call", "at_spills",  # bytes into the scratch
    "lead_a", "lead_b",  # where the LEAD of an operand is among the parameters; 0: it is in memory
)  # fmt: skip
PACKED, DIRECT, ACROSS = 0, 1, 2  # how a tile reads A (see ``tile_of``); ACROSS where tiles cover its rows exactly
GROUPS = ("batch", "m", "n", "k")  # strides: of A, B and C; of A and C; of B and C; of A and B
AT_GROUPS = len(PARAMETERS)
AT_FOLLOW = AT_GROUPS + len(GROUPS) * _GROUP_WORDS


def function_name(dtype: str, result: str) -> str:
    return f"contract_{dtype}" if result == dtype else f"contract_{dtype}_{result}"


def group_words(axes: list[tuple[int, ...]]) -> list[int]:
    """A group as parameters: for each axis, outermost first, its extent and its strides in bytes."""
    words = [len(axes)]
    for axis in axes:
        words += [*axis, *[0] * (4 - len(axis))]
    return words + [0] * (_GROUP_WORDS - len(words))


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
        functions = [*self.parts(accesses), self._copy_out(), *self.block_calls(), self._contract()]
        if self.result_size != self.size:
            functions.append(self.is_run("is_run_of_results", self.result_size))
        return "\n".join([*self.declares.values(), *functions])

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
        self.declares["llvm.prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
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
                    f.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 1, i32 3, i32 1)")

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

        if is_float(register):
            f.unrolled("%count", step)
        else:  # sums of integers over several steps LLVM regroups, into more than there are registers
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
        lanes = self.tile.lanes

        def row(i: str) -> None:
            source, target = f.at("%source", f.mul(i, "%source_row")), f.at("%target", f.mul(i, "%target_row"))

            def vector(j: str, mask: Value | None) -> None:
                at = f.mul(j, self.sum_size)
                f.b.store(self.sum_dtype, f.at(target, at), f.b.load(self.sum_dtype, f.at(source, at), mask), mask)

            whole = f.emit(f"and i64 %columns, {-lanes}")
            f.loop(0, whole, lanes, lambda j: vector(j, None))
            f.loop(whole, "%columns", lanes, lambda j: vector(j, f.b.mask_below(f.sub("%columns", j))))

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
        conditions = {name: f.test("ne", p[f"{name}_direct"], 0) for name in "bc"}
        is_direct, is_across = (f.test("eq", p["a_access"], access) for access in (DIRECT, ACROSS))
        where, k_run_a, k_run_b = f.variable(), f.variable(), f.variable()
        # Tables that the task before left in scratch hold for this one, too, where it has the same block of n, or the
        # one block of k.
        before, k_is_known = f.variable(), f.variable()
        f.set(before, -1)
        f.set(k_is_known, 0)
        has_one_k_block = f.flag(f.test("sle", p["k"], p["k_block"]))
        self.table(f, space["lines"], self.tile.columns * self.sum_size, p["k_block"], p["k_block"])
        records = {name: f.at("%params", f.mul(p[f"lead_{name}"], 8)) for name in "ab"}
        led = {name: f.test("ne", p[f"lead_{name}"], 0) for name in "ab"}

        def field(name: str, what: str) -> str:
            return f.word(records[name], LEAD.index(what))

        def compute(name: str, first: Scalar, count: Scalar, k0: Scalar, ks: Scalar) -> None:
            """``count`` rows of A or columns of B from ``first`` on, by the kernel that leads."""
            moved = f.add(f.mul(first, field(name, "free_step")), f.mul(k0, field(name, "k_step")))
            f.line(
                f"call void @lead(ptr {records[name]}, ptr %slots, ptr {space['call']}, "
                f"ptr {f.at(starts[name], moved)}, i64 {count}, i64 {ks}, ptr {space['lead_' + name]}, "
                f"ptr {space['spills']})"
            )

        def positions(name: str, out: str, group: str, first: Scalar, count: Scalar, padded: Scalar) -> None:
            """Offsets of an operand's elements along m, n or k, from where it begins."""
            column = int(name == "b" and group == "k")
            f.when(
                led[name],
                lambda: self.table(f, out, field(name, "k_place" if group == "k" else "free_place"), count, padded),
                lambda: offsets(out, group, column, first, count, padded),
            )

        def offsets(out: str, group: str, column: int, first: Scalar, count: Scalar, padded: Scalar) -> None:
            f.line(
                f"call void @offsets(ptr {out}, ptr {groups[group]}, i64 {column}, i64 {first}, i64 {count}, "
                f"i64 {padded})"
            )

        starts: dict[str, str] = {}  # of a task's item; of an operand that is led, from address 0 on

        def task(t: str) -> None:
            blocks = f.mul(p["m_blocks"], p["n_blocks"])
            item, rest = f.div(t, blocks), f.rem(t, blocks)
            m0, n0 = f.mul(f.div(rest, p["n_blocks"]), p["m_block"]), f.mul(f.rem(rest, p["n_blocks"]), p["n_block"])
            height, width = f.min(p["m_block"], f.sub(p["m"], m0)), f.min(p["n_block"], f.sub(p["n"], n0))
            for column, name in enumerate("abc"):
                offsets(where, "batch", column, item, 1, 1)
                starts[name] = f.at(bases[name], f.get(where))
            read = {
                name: f.emit(f"select i1 {led[name]}, ptr {space['lead_' + name]}, ptr {starts[name]}") for name in "ab"
            }
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

            def look_at_columns() -> None:
                positions("b", space["columns"], "n", n0, width, f.add(width, self.tile.columns))
                f.loop(0, panels, 1, look_at_panel)
                f.set(before, n0)

            f.when(f.test("ne", n0, f.get(before)), look_at_columns)
            c_in_place = f.at(f.at(starts["c"], f.mul(m0, p["c_row_step"])), f.mul(n0, self.result_size))
            c = f.emit(f"select i1 {conditions['c']}, ptr {c_in_place}, ptr {space['c']}")
            c_row = f.choose(conditions["c"], p["c_row_step"], f.mul(p["n_block"], self.sum_size))
            in_scratch = f.test("eq", p["c_direct"], 0)
            again = f.emit(f"and i1 {in_scratch}, {f.test('sge', p['k_block'], p['k'])}")

            def block_of_k(k0: str) -> None:
                count = f.min(p["k_block"], f.sub(p["k"], k0))
                add = f.flag(f.test("ne", k0, 0))
                is_last = f.test("sge", f.add(k0, count), p["k"])
                f.when(led["b"], lambda: compute("b", n0, width, k0, count))

                def look_at_k() -> None:
                    positions("b", space["kb"], "k", k0, count, count)
                    f.line(f"call void @is_run(ptr {k_run_b}, ptr {space['kb']}, i64 {count})")

                    def look_at_a() -> None:
                        positions("a", space["ka"], "k", k0, count, count)
                        f.line(f"call void @is_run(ptr {k_run_a}, ptr {space['ka']}, i64 {count})")

                    f.when(is_direct, lambda: None, look_at_a)
                    f.set(k_is_known, has_one_k_block)

                f.when(f.test("eq", f.get(k_is_known), 0), look_at_k)
                depth = self.depth_of(f, count)
                panel_bytes = f.mul(depth, self.tile.columns * self.sum_size)

                def pack_b(j: str) -> None:
                    f.line(
                        f"call void @pack{self.tile.columns}(ptr {f.at(space['b'], f.mul(j, panel_bytes))}, "
                        f"ptr {read['b']}, ptr {f.at(space['columns'], f.mul(j, 8 * self.tile.columns))}, "
                        f"ptr {space['kb']}, i64 {count}, i64 {f.get(k_run_b)})"
                    )

                f.loop(0, panels, 1, lambda j: f.when(f.test("eq", f.word(space["panels"], j), 0), lambda: pack_b(j)))

                def rows(r0: str) -> None:
                    here = f.min(p["row_block"], f.sub(height, r0))
                    f.when(led["a"], lambda: compute("a", f.add(m0, r0), here, k0, count))

                    _, _, padded = self.split_rows(f, here)
                    fits_across = f.emit(f"and i1 {is_across}, {f.test('eq', padded, here)}")

                    def pack_a() -> None:
                        positions("a", space["rows"], "m", f.add(m0, r0), here, padded)
                        run = f.get(k_run_a)
                        self.pack_rows(f, space["a"], read["a"], space["rows"], here, space["ka"], count, run)

                    f.when(f.emit(f"or i1 {is_direct}, {fits_across}"), lambda: None, pack_a)
                    a_row = f.choose(led["a"], field("a", "block_row"), p["a_row_step"])
                    in_place = f.at(f.at(starts["a"], f.mul(f.add(m0, r0), a_row)), f.mul(k0, p["a_k_step"]))
                    in_place = f.emit(f"select i1 {led['a']}, ptr {space['lead_a']}, ptr {in_place}")
                    # Rows that are complete after one block of k take the place of those before them.
                    c_here = f.at(c, f.mul(f.choose(again, 0, r0), c_row))

                    def panel(j: str) -> None:
                        column = f.mul(j, self.tile.columns)
                        valid = f.min(f.sub(width, column), self.tile.columns)
                        packed = f.at(space["b"], f.mul(j, panel_bytes))
                        placed = f.at(read["b"], f.word(space["columns"], column))
                        b_stays = f.test("ne", f.word(space["panels"], j), 0)
                        b = f.emit(f"select i1 {b_stays}, ptr {placed}, ptr {packed}")
                        ks = f.emit(f"select i1 {b_stays}, ptr {space['kb']}, ptr {space['lines']}")
                        c_panel = f.at(c_here, f.mul(column, self.sum_size))

                        def call(suffix: str, a: str, a_step: str) -> None:
                            f.line(
                                f"call void @rows{suffix}(ptr {a}, i64 {a_step}, ptr {b}, ptr {ks}, i64 {depth}, "
                                f"ptr {c_panel}, i64 {c_row}, i64 {here}, i64 {valid}, i64 {add})"
                            )

                        def packed_or_across() -> None:
                            f.when(
                                fits_across,
                                lambda: call("across", in_place, p["a_k_step"]),
                                lambda: call("", space["a"], a_row),
                            )

                        if self.is_read_in_place:
                            f.when(is_direct, lambda: call("direct", in_place, a_row), packed_or_across)
                        else:
                            call("", space["a"], a_row)

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
                                f"call void @call_on_block(ptr {record}, ptr %slots, ptr {space['call']}, i64 {row}, "
                                f"i64 {here}, i64 {n0}, i64 {width}, ptr {c_here}, i64 {c_row}, ptr {space['spills']})"
                            )

                        f.when(followed, follow)

                    f.when(is_last, finish)

                f.loop(0, height, p["row_block"], rows)

            f.loop(0, p["k"], p["k_block"], block_of_k)

        f.loop("%lo", "%hi", 1, task)
        return f.text()
