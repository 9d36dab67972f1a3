"""The loops around the register tile: the function that computes any product of its dtype.

A task is a block of C of one product of the batch. For each block of k and each block of rows A is packed, unless it is
read in place; and the register tile walks along the panels of B, each of which is packed, unless it is read in place,
when the first rows meet it. Where no others do, panels take the place of those before, which never leave the nearer
caches. Rows whose last block of k is done are copied to C, if they are not summed there, and given to the kernel that
follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .blockwise import LEAD
from .function import Scalar
from .packing import GROUP_WORDS
from .panels import NEIGHBOURS

if TYPE_CHECKING:
    from .contraction import ContractionLibrary

#: A launch's parameters, in words: these, then the groups, then the CALL of the kernel that follows, then the LEADs.
PARAMETERS = (
    "a_slot", "a_offset", "b_slot", "b_offset", "c_slot", "c_offset",
    "m", "n", "k", "m_block", "n_block", "m_blocks", "n_blocks", "k_block", "row_block",
    "a_access", "b_access", "c_direct",  # see below; 1: C is written in place
    "a_row_step", "a_k_step", "c_row_step",  # bytes, where in place
    "at_a", "at_b", "at_rows", "at_columns", "at_out", "at_ka", "at_kb", "at_panels", "at_lines", "at_c",
    "at_lead_a", "at_lead_b", "at_call", "at_spills",  # bytes into the scratch
    "lead_a", "lead_b",  # where the LEAD of an operand is among the parameters; 0: it is in memory
)  # fmt: skip
#: How a tile reads A (see ``tile_of``), ACROSS where tiles cover its rows exactly. Of B, DIRECT: panels whose columns
#: follow each other are read in place; TOGETHER: panels are packed with their neighbours.
PACKED, DIRECT, ACROSS, TOGETHER = 0, 1, 2, 3
GROUPS = ("batch", "m", "n", "k")  # strides: of A, B and C; of A and C; of B and C; of A and B
AT_GROUPS = len(PARAMETERS)
AT_FOLLOW = AT_GROUPS + len(GROUPS) * GROUP_WORDS


@dataclass(frozen=True)
class _Block:
    """A task's block of C: ``height`` rows from ``m0`` on, ``width`` columns from ``n0`` on, of product ``item``.

    starts: where the product's A, B and C begin; of an operand that is led, from address 0 on.
    read: where A and B are read.   panels: of B, how many.
    c, c_row: where the block is summed, and bytes from row to row.
    again: whether rows that are complete after one block of k take the place of those before them.
    """

    item: str
    m0: str
    n0: str
    height: str
    width: str
    panels: str
    starts: dict[str, str]
    read: dict[str, str]
    c: str
    c_row: str
    again: str


@dataclass(frozen=True)
class _Steps:
    """A block of k: ``count`` steps from ``first`` on, in ``depth`` lanes of a panel.

    alone: the first panel of B that is not packed with its neighbours.   kept: how many panels there is room for.
    add: 1 where sums of earlier steps are there already.
    """

    first: str
    count: str
    depth: Scalar
    alone: str
    kept: str
    add: str
    is_last: str


@dataclass(frozen=True)
class _Rows:
    """``count`` rows of a block of C, from ``first`` on; ``c``: where they are summed.

    a, a_row: where A is read in place, and bytes from row to row.   fits_across: whether tiles read it across.
    """

    first: str
    count: str
    a: str
    a_row: str
    c: str
    fits_across: str


class BlockLoops:
    """Writes ``void(slots, params, lo, hi, scratch)``: tasks lo to hi."""

    def __init__(self, library: ContractionLibrary, name: str) -> None:
        self.library = library
        self.columns = library.tile.columns
        self.sum_size = library.sum_size
        self.f = f = library.function(
            name, ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("ptr", "scratch"), is_public=True
        )
        self.p = p = {field: f.word("%params", i) for i, field in enumerate(PARAMETERS)}
        self.groups = {field: f.at("%params", 8 * (AT_GROUPS + i * GROUP_WORDS)) for i, field in enumerate(GROUPS)}
        self.follower = f.at("%params", 8 * AT_FOLLOW)
        self.is_followed = f.test("ne", f.word(self.follower, 0), 0)
        self.is_in_c = f.emit(f"or i64 {p['c_direct']}, {f.word(self.follower, 1)}")  # or nobody reads it there
        self.space = {field[3:]: f.at("%scratch", p[field]) for field in PARAMETERS if field.startswith("at_")}
        self.bases = {}
        for operand in "abc":
            place = f.emit(f"getelementptr ptr, ptr %slots, i64 {p[operand + '_slot']}")
            slot = f.emit(f"load ptr, ptr {place}")
            self.bases[operand] = f.at(slot, p[f"{operand}_offset"])
        self.c_is_direct = f.test("ne", p["c_direct"], 0)
        self.a_is_direct, self.a_is_across = (f.test("eq", p["a_access"], access) for access in (DIRECT, ACROSS))
        self.b_is_direct, self.b_is_together = (f.test("eq", p["b_access"], access) for access in (DIRECT, TOGETHER))
        self.where, self.k_run_a, self.k_run_b = f.variable(), f.variable(), f.variable()
        # Tables that the task before left in scratch hold for this one, too, where it has the same block of n, or the
        # one block of k.
        self.n0_before, self.k_is_known = f.variable(), f.variable()
        f.set(self.n0_before, -1)
        f.set(self.k_is_known, 0)
        self.has_one_k_block = f.flag(f.test("sle", p["k"], p["k_block"]))
        library.table(f, self.space["lines"], self.columns * self.sum_size, p["k_block"], p["k_block"])
        self.leads = {operand: f.at("%params", f.mul(p[f"lead_{operand}"], 8)) for operand in "ab"}
        self.is_led = {operand: f.test("ne", p[f"lead_{operand}"], 0) for operand in "ab"}

    def text(self) -> str:
        """The function."""
        self.f.loop("%lo", "%hi", 1, self._task)
        return self.f.text()

    # -- a task -------------------------------------------------------------------------------------------------------

    def _task(self, number: str) -> None:
        f, p = self.f, self.p
        blocks = f.mul(p["m_blocks"], p["n_blocks"])
        item, rest = f.div(number, blocks), f.rem(number, blocks)
        m0, n0 = f.mul(f.div(rest, p["n_blocks"]), p["m_block"]), f.mul(f.rem(rest, p["n_blocks"]), p["n_block"])
        height, width = f.min(p["m_block"], f.sub(p["m"], m0)), f.min(p["n_block"], f.sub(p["n"], n0))
        starts = {}
        for column, operand in enumerate("abc"):
            self._offsets(self.where, "batch", column, item, 1, 1)
            starts[operand] = f.at(self.bases[operand], f.get(self.where))
        read = {
            operand: f.emit(
                f"select i1 {self.is_led[operand]}, ptr {self.space['lead_' + operand]}, ptr {starts[operand]}"
            )
            for operand in "ab"
        }
        panels = f.div(f.add(width, self.columns - 1), self.columns)
        whole = f.div(width, self.columns)
        f.when(
            f.test("ne", n0, f.get(self.n0_before)), lambda: self._look_at_columns(n0, width, panels, whole)
        )
        in_place = f.at(f.at(starts["c"], f.mul(m0, p["c_row_step"])), f.mul(n0, self.library.result_size))
        c = f.emit(f"select i1 {self.c_is_direct}, ptr {in_place}, ptr {self.space['c']}")
        c_row = f.choose(self.c_is_direct, p["c_row_step"], f.mul(p["n_block"], self.sum_size))
        in_scratch = f.test("eq", p["c_direct"], 0)
        again = f.emit(f"and i1 {in_scratch}, {f.test('sge', p['k_block'], p['k'])}")
        block = _Block(item, m0, n0, height, width, panels, starts, read, c, c_row, again)
        f.loop(0, p["k"], p["k_block"], lambda k0: self._block_of_k(block, k0))

    def _look_at_columns(self, n0: str, width: str, panels: str, whole: str) -> None:
        """Where the columns of B are, and which of its panels are read in place."""
        f = self.f
        self._positions("b", self.space["columns"], "n", n0, width, f.add(width, self.columns))

        def look_at_panel(j: str) -> None:
            # A panel that is not whole is packed: nothing behind a row is read.
            place = f.emit(f"getelementptr i64, ptr {self.space['panels']}, i64 {j}")
            first = f.at(self.space["columns"], f.mul(j, 8 * self.columns))
            f.set(place, 0)

            def ask() -> None:
                f.line(f"call void @is_run(ptr {place}, ptr {first}, i64 {self.columns})")

            f.when(f.emit(f"and i1 {self.b_is_direct}, {f.test('slt', j, whole)}"), ask)

        f.loop(0, panels, 1, look_at_panel)
        f.set(self.n0_before, n0)

    def _block_of_k(self, block: _Block, k0: str) -> None:
        f, p = self.f, self.p
        count = f.min(p["k_block"], f.sub(p["k"], k0))
        add = f.flag(f.test("ne", k0, 0))
        is_last = f.test("sge", f.add(k0, count), p["k"])
        f.when(self.is_led["b"], lambda: self._compute("b", block, block.n0, block.width, k0, count))
        f.when(f.test("eq", f.get(self.k_is_known), 0), lambda: self._look_at_k(k0, count))
        depth = self.library.depth_of(f, count)
        whole = f.emit(f"and i64 {f.div(block.width, self.columns)}, {-NEIGHBOURS}")
        alone = f.choose(self.b_is_together, whole, 0)
        at_once = f.choose(self.b_is_together, NEIGHBOURS, 1)
        kept = f.choose(f.test("sle", block.height, p["row_block"]), at_once, block.panels)
        steps = _Steps(k0, count, depth, alone, kept, add, is_last)
        f.loop(0, block.height, p["row_block"], lambda r0: self._block_of_rows(block, steps, r0))

    def _look_at_k(self, k0: str, count: str) -> None:
        """Where the steps of k are in both operands, and whether they follow each other."""
        f = self.f

        def look(operand: str, run: str) -> None:
            table = self.space[f"k{operand}"]
            self._positions(operand, table, "k", k0, count, count)
            f.line(f"call void @is_run(ptr {run}, ptr {table}, i64 {count})")

        look("b", self.k_run_b)
        f.when(self.a_is_direct, lambda: None, lambda: look("a", self.k_run_a))
        f.set(self.k_is_known, self.has_one_k_block)

    def _pack_b(self, block: _Block, steps: _Steps, j: str, has_neighbours: bool = False) -> None:
        f = self.f
        name = "_neighbours" if has_neighbours else self.columns
        apart = f"i64 {self._panel_bytes(steps)}, " if has_neighbours else ""
        f.line(
            f"call void @pack{name}(ptr {self._place_of_panel(steps, j)}, {apart}"
            f"ptr {block.read['b']}, ptr {f.at(self.space['columns'], f.mul(j, 8 * self.columns))}, "
            f"ptr {self.space['kb']}, i64 {steps.count}, i64 {f.get(self.k_run_b)})"
        )

    def _panel_bytes(self, steps: _Steps) -> str:
        return self.f.mul(steps.depth, self.columns * self.sum_size)

    def _place_of_panel(self, steps: _Steps, j: str) -> str:
        f = self.f
        return f.at(self.space["b"], f.mul(f.rem(j, steps.kept), self._panel_bytes(steps)))

    def _pack_panel(self, block: _Block, steps: _Steps, j: str) -> None:
        """Panel ``j``, with its neighbours if it is the first of them."""
        f = self.f
        if self.library.half is not None:
            self._pack_b(block, steps, j)
            return
        is_first = f.test("eq", f.rem(j, NEIGHBOURS), 0)

        def with_neighbours() -> None:
            f.when(is_first, lambda: self._pack_b(block, steps, j, has_neighbours=True))

        f.when(f.test("slt", j, steps.alone), with_neighbours, lambda: self._pack_b(block, steps, j))

    # -- a block of rows ----------------------------------------------------------------------------------------------

    def _block_of_rows(self, block: _Block, steps: _Steps, r0: str) -> None:
        f, p = self.f, self.p
        count = f.min(p["row_block"], f.sub(block.height, r0))

        def compute() -> None:
            self._compute("a", block, f.add(block.m0, r0), count, steps.first, steps.count)

        f.when(self.is_led["a"], compute)
        _, _, padded = self.library.split_rows(f, count)
        fits_across = f.emit(f"and i1 {self.a_is_across}, {f.test('eq', padded, count)}")

        def pack() -> None:
            self._positions("a", self.space["rows"], "m", f.add(block.m0, r0), count, padded)
            run = f.get(self.k_run_a)
            self.library.pack_rows(
                f, self.space["a"], block.read["a"], self.space["rows"], count, self.space["ka"], steps.count, run
            )

        f.when(f.emit(f"or i1 {self.a_is_direct}, {fits_across}"), lambda: None, pack)
        a_row = f.choose(self.is_led["a"], self._field("a", "block_row"), p["a_row_step"])
        in_place = f.at(f.at(block.starts["a"], f.mul(f.add(block.m0, r0), a_row)), f.mul(steps.first, p["a_k_step"]))
        in_place = f.emit(f"select i1 {self.is_led['a']}, ptr {self.space['lead_a']}, ptr {in_place}")
        c = f.at(block.c, f.mul(f.choose(block.again, 0, r0), block.c_row))
        rows = _Rows(r0, count, in_place, a_row, c, fits_across)
        f.loop(0, block.panels, 1, lambda j: self._panel(block, steps, rows, j))
        f.when(steps.is_last, lambda: self._finish(block, rows))

    def _panel(self, block: _Block, steps: _Steps, rows: _Rows, j: str) -> None:
        """The rows against panel ``j`` of B."""
        f = self.f
        b_stays = f.test("ne", f.word(self.space["panels"], j), 0)
        is_ready = f.emit(f"or i1 {b_stays}, {f.test('ne', rows.first, 0)}")
        f.when(is_ready, lambda: None, lambda: self._pack_panel(block, steps, j))
        column = f.mul(j, self.columns)
        valid = f.min(f.sub(block.width, column), self.columns)
        packed = self._place_of_panel(steps, j)
        placed = f.at(block.read["b"], f.word(self.space["columns"], column))
        b = f.emit(f"select i1 {b_stays}, ptr {placed}, ptr {packed}")
        ks = f.emit(f"select i1 {b_stays}, ptr {self.space['kb']}, ptr {self.space['lines']}")
        c = f.at(rows.c, f.mul(column, self.sum_size))

        def call(access: str, a: str, a_step: str) -> None:
            f.line(
                f"call void @rows{access}(ptr {a}, i64 {a_step}, ptr {b}, ptr {ks}, i64 {steps.depth}, "
                f"ptr {c}, i64 {block.c_row}, i64 {rows.count}, i64 {valid}, i64 {steps.add})"
            )

        def from_panels() -> None:
            call("", self.space["a"], rows.a_row)

        def packed_or_across() -> None:
            f.when(rows.fits_across, lambda: call("across", rows.a, self.p["a_k_step"]), from_panels)

        if self.library.is_read_in_place:
            f.when(self.a_is_direct, lambda: call("direct", rows.a, rows.a_row), packed_or_across)
        else:
            from_panels()

    def _finish(self, block: _Block, rows: _Rows) -> None:
        """Rows that are complete go to C and to the kernel that follows."""
        f, p = self.f, self.p

        def copy() -> None:
            self._offsets(self.space["rows"], "m", 1, f.add(block.m0, rows.first), rows.count, rows.count)
            self._offsets(self.space["out"], "n", 1, block.n0, block.width, block.width)
            f.line(
                f"call void @copy_out(ptr {rows.c}, i64 {block.c_row}, i64 {rows.count}, i64 {block.width}, "
                f"ptr {block.starts['c']}, ptr {self.space['rows']}, ptr {self.space['out']})"
            )

        def follow() -> None:
            row = f.add(f.mul(block.item, p["m"]), f.add(block.m0, rows.first))
            f.line(
                f"call void @call_on_block(ptr {self.follower}, ptr %slots, ptr {self.space['call']}, i64 {row}, "
                f"i64 {rows.count}, i64 {block.n0}, i64 {block.width}, ptr {rows.c}, i64 {block.c_row}, "
                f"ptr {self.space['spills']})"
            )

        f.when(f.test("eq", self.is_in_c, 0), copy)
        f.when(self.is_followed, follow)

    # -- operands -----------------------------------------------------------------------------------------------------

    def _field(self, operand: str, what: str) -> str:
        """A word of an operand's LEAD."""
        return self.f.word(self.leads[operand], LEAD.index(what))

    def _compute(self, operand: str, block: _Block, first: Scalar, count: Scalar, k0: Scalar, ks: Scalar) -> None:
        """``count`` rows of A or columns of B from ``first`` on, by the kernel that leads."""
        f = self.f
        moved = f.add(f.mul(first, self._field(operand, "free_step")), f.mul(k0, self._field(operand, "k_step")))
        f.line(
            f"call void @lead(ptr {self.leads[operand]}, ptr %slots, ptr {self.space['call']}, "
            f"ptr {f.at(block.starts[operand], moved)}, i64 {count}, i64 {ks}, ptr {self.space['lead_' + operand]}, "
            f"ptr {self.space['spills']})"
        )

    def _positions(self, operand: str, out: str, group: str, first: Scalar, count: Scalar, padded: Scalar) -> None:
        """Offsets of an operand's elements along m, n or k, from where it is read."""
        f = self.f
        column = int(operand == "b" and group == "k")
        place = "k_place" if group == "k" else "free_place"
        f.when(
            self.is_led[operand],
            lambda: self.library.table(f, out, self._field(operand, place), count, padded),
            lambda: self._offsets(out, group, column, first, count, padded),
        )

    def _offsets(self, out: str, group: str, column: int, first: Scalar, count: Scalar, padded: Scalar) -> None:
        self.f.line(
            f"call void @offsets(ptr {out}, ptr {self.groups[group]}, i64 {column}, i64 {first}, i64 {count}, "
            f"i64 {padded})"
        )
