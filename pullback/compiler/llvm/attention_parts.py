"""What the two directions of attention share: a launch's parameters, and where operands, keys and masks are.

See attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from .contraction import ContractionLibrary
from .function import Function, Scalar
from .packing import GROUP_WORDS
from .target import Target
from .threefry import threefry
from .values import LLVM_TYPE, Value

DRAWN_BITS = 24  # of a random word, its highest: what a number of float32 in [0, 1) is made of
#: A launch's parameters, in words, followed by the groups.
PARAMETERS = (
    "q_slot", "q_offset", "k_slot", "k_offset", "v_slot", "v_offset", "mask_slot", "mask_offset",
    "first_slot", "first_offset", "seeds_slot", "seeds_offset", "counters_slot", "counters_offset",
    "out_slot", "out_offset", "lse_slot", "lse_offset",
    "dout_slot", "dout_offset",  # backward only, as are the places of the gradients
    "dq_slot", "dq_offset", "dk_slot", "dk_offset", "dv_slot", "dv_offset",
    "rows", "queries", "keys", "depth", "width",  # rows: queries of all heads that share keys; elements of q, of v
    "row_block", "row_blocks",  # forward only: rows of a task, tasks of an item
    "items", "splits", "split_keys",  # backward only: tasks of an item, keys of a task
    "part", "key_block", "score_row",  # rows and keys of one block of scores, bytes from row to row
    "k_row", "v_row", "mask_step",  # bytes from key to key
    "scale", "q_scale", "norm_scale", "back_scale",  # bits of the scale, times log2(e), its absolute value; of log(2)
    "low", "high", "has_first",  # bounds of the keys of query 0; 1: counted from an operand
    "kept_below", "kept_scale",  # random numbers whose weights are kept, and by what (bits) these are multiplied
    "at_q_rows", "at_out_rows", "at_mask_rows", "at_draw_rows", "at_key_rows", "at_value_rows", "at_depth", "at_width",
    "at_q", "at_dout", "at_keys", "at_values", "at_keys_again",
    "at_scores", "at_second", "at_sums", "at_key_sums", "at_value_sums", "at_largest", "at_total",
    "at_query_norms", "at_key_norm",
    "at_lines", "at_q_lines", "at_out_lines",  # offsets of rows: of a panel, of sums for q and for the output
)  # fmt: skip
LOG2_E = math.log2(math.e)  # scores are multiplied by it, for exponentials to base 2
#: Of items (batch and heads of keys): strides of q, k and v; of the mask and the random counters; of the operands with
#: the first positions, the random keys and their first counters. Of rows: strides of q, the mask and the counters.
GROUPS = ("items", "item_masks", "item_draws", "rows")


class AttentionLibrary(ContractionLibrary):
    """Writes functions for one dtype of q, k and v and one kind of mask. All else is of the sums' dtype.

    drops: whether weights are dropped at random.
    """

    takes_pairs = False  # tiles multiply panels by scores, too

    def __init__(self, dtype: str, mask: str, drops: bool, target: Target) -> None:
        super().__init__(dtype, target)
        self.mask = mask
        self.drops = drops

    @property
    def one(self) -> int:
        """The bits of 1."""
        return 0x3F800000 if self.sum_size == 4 else 0x3FF << 52

    # -- pieces -------------------------------------------------------------------------------------------------------

    def product(self, access: str) -> str:
        """``rows`` rows of ``a`` times all panels of ``b``, which are ``panel`` bytes apart, to ``c``.

        access: how ``a`` is read, see ``tile_of``.   ks: offsets of the rows of a panel.
        """
        f = self.function(
            f"product{access}", ("ptr", "a"), ("i64", "a_row"), ("ptr", "b"), ("i64", "panel"), ("ptr", "ks"),
            ("i64", "count"), ("ptr", "c"), ("i64", "c_row"), ("i64", "rows"), ("i64", "columns"), ("i64", "add"),
        )  # fmt: skip
        height, width = self.tile.rows, self.tile.columns
        tall, _, _ = self.split_rows(f, "%rows")
        above = f.mul(f.min(tall, f.div("%rows", height)), height)
        panels = f.div(f.add("%columns", width - 1), width)
        step: Scalar = "%a_row" if access == "direct" else self.sum_size
        step = step if access else f.mul("%count", self.sum_size)

        def places(row: str, j: str) -> tuple[str, str, str]:
            c = f.at(f.at("%c", f.mul(row, "%c_row")), f.mul(j, width * self.sum_size))
            return f.at("%a", f.mul(row, step)), f.at("%b", f.mul(j, "%panel")), c

        def tile(row: str, j: str) -> None:
            a, b, c = places(row, j)
            f.line(
                f"call void @tile{height}{access}(ptr {a}, i64 %a_row, ptr {b}, ptr %ks, i64 %count, ptr {c}, "
                f"i64 %c_row, i64 {height}, i64 %add)"
            )

        def rest(j: str) -> None:
            a, b, c = places(above, j)
            f.line(
                f"call void @rows{access}(ptr {a}, i64 %a_row, ptr {b}, ptr %ks, i64 %count, ptr {c}, i64 %c_row, "
                f"i64 {f.sub('%rows', above)}, i64 {width}, i64 %add)"
            )

        # The panel stays in the innermost cache; across, where a tile's rows lie apart, these do.
        if access == "across":
            f.loop(0, above, height, lambda row: f.loop(0, panels, 1, lambda j: tile(row, j)))
        else:
            f.loop(0, panels, 1, lambda j: f.loop(0, above, height, lambda row: tile(row, j)))
        f.when(f.test("slt", above, "%rows"), lambda: f.loop(0, panels, 1, rest))
        return f.text()

    def call_product(
        self, f: Function, access: str, a: str, a_row: Scalar, b: str, panel: Scalar, ks: str, count: Scalar, c: str,
        c_row: str, rows: str, columns: str, add: int,
    ) -> None:  # fmt: skip
        f.line(
            f"call void @product{access}(ptr {a}, i64 {a_row}, ptr {b}, i64 {panel}, ptr {ks}, i64 {count}, ptr {c}, "
            f"i64 {c_row}, i64 {rows}, i64 {columns}, i64 {add})"
        )

    def scaling(self) -> str:
        """``count`` sums at ``at`` times ``scale``, in whole vectors."""
        f = self.function("scale", ("ptr", "at"), ("i64", "count"), ("i64", "scale"))
        scale = self.from_bits(f, "%scale")

        def vector(j: str) -> None:
            place = f.at("%at", f.mul(j, self.sum_size))
            f.b.store(self.sum_dtype, place, f.b.mul(f.b.load(self.sum_dtype, place), scale))

        self.vectors(f, "%count", vector)
        return f.text()

    def filling(self) -> str:
        """Sums ``lo`` to ``hi`` of a row become the number whose bits are ``value``."""
        f = self.function("fill", ("ptr", "row"), ("i64", "lo"), ("i64", "hi"), ("i64", "value"))
        value = self.from_bits(f, "%value")
        one = f.b.at_width(1)
        single = one.splat(f.b.first(value), self.register)
        whole = f.add("%lo", f.emit(f"and i64 {f.max(f.sub('%hi', '%lo'), 0)}, {-self.tile.lanes}"))

        def place(j: str) -> str:
            return f.at("%row", f.mul(j, self.sum_size))

        self.vectors(f, whole, lambda j: f.b.store(self.sum_dtype, place(j), value), "%lo")
        f.loop(whole, "%hi", 1, lambda j: one.store(self.sum_dtype, place(j), single))
        return f.text()

    def fill(self, f: Function, row: str, start: Scalar, stop: Scalar, is_minus_infinity: bool = False) -> None:
        """Zeros, or -inf."""
        infinity = 0xFF800000 if self.sum_size == 4 else -(1 << 52)
        bits = infinity if is_minus_infinity else 0
        f.line(f"call void @fill(ptr {row}, i64 {start}, i64 {stop}, i64 {bits})")

    def vectors(self, f: Function, stop: Scalar, body: Callable[[str], None], start: Scalar = 0, step: int = 1) -> None:
        """From ``start`` to ``stop`` in ``step`` vectors at a time."""
        f.loop(start, stop, step * self.tile.lanes, body)

    def from_bits(self, f: Function, bits: str) -> Value:
        """The number whose bits are an i64's low ones, in every lane."""
        scalar = LLVM_TYPE[self.register]
        narrow = bits if self.sum_size == 8 else f.emit(f"trunc i64 {bits} to i32")
        kind = "i64" if self.sum_size == 8 else "i32"
        return f.b.splat(f.emit(f"bitcast {kind} {narrow} to {scalar}"), self.register)

    def masked(self, f: Function, score: Value, j: Scalar, step: Scalar, lanes: Value | None) -> Value:
        """The scores at column ``j`` with the mask, whose elements are ``step`` bytes apart: 0 or an element's size."""
        b = f.b
        dtype = "bool" if self.mask == "choose" else self.sum_dtype
        if step == 0:
            value = b.load_scalar(dtype, "%mask")
        else:
            value = b.load(dtype, f.at("%mask", f.mul(j, step)), lanes)
        if self.mask == "choose":
            return b.select(value, score, b.const(float("-inf"), self.register))
        return b.fma(value, b.const(LOG2_E, self.register), score)

    def apply_mask(self, f: Function) -> None:
        """The mask onto the scores %lo to %hi of %row; those before and behind are -inf, and stay so."""
        b = f.b
        element = 1 if self.mask == "choose" else self.sum_size

        def walk(step: int) -> None:
            def vector(j: str, lanes: Value | None) -> None:
                at = f.at("%row", f.mul(j, self.sum_size))
                b.store(self.sum_dtype, at, self.masked(f, b.load(self.sum_dtype, at), j, step, lanes))

            first = f.emit(f"and i64 %lo, {-self.tile.lanes}")
            f.each_vector("%hi", vector, first)

        f.when(f.test("eq", "%mask_step", 0), lambda: walk(0), lambda: walk(element))
        if self.mask == "add":  # of an infinity or a NaN nothing may be left where a query does not reach
            self.fill(f, "%row", 0, "%lo", is_minus_infinity=True)

    def chosen(self) -> str:
        """``found`` is not 0 if a mask of bools has a True among the first ``length`` columns of ``count`` rows, whose
        places are in ``rows``."""
        f = self.function(
            "chosen", ("ptr", "found"), ("ptr", "mask"), ("ptr", "rows"), ("i64", "count"), ("i64", "length")
        )
        row = f.variable()
        f.set(row, 0)
        f.set("%found", 0)
        whole = f.emit("and i64 %length, -8")

        def look() -> None:
            start = f.at("%mask", f.word("%rows", f.get(row)))

            def add(value: str) -> None:
                f.set("%found", f.emit(f"or i64 {f.get('%found')}, {value}"))

            f.loop(0, whole, 8, lambda j: add(f.emit(f"load i64, ptr {f.at(start, j)}, align 1")))
            f.loop(whole, "%length", 1, lambda j: add(f.emit(f"zext i8 {f.get(f.at(start, j), 'i8')} to i64")))
            f.set(row, f.add(f.get(row), 1))

        def goes_on() -> str:
            return f.emit(f"and i1 {f.test('slt', f.get(row), '%count')}, {f.test('eq', f.get('%found'), 0)}")

        f.repeat(goes_on, look)
        return f.text()

    def hide(self, f: Function) -> None:
        """Of ``padded`` scores of %row only those from %lo to %hi count, with the mask; the others are -inf."""
        for condition, start, stop in (
            (f.test("sgt", "%lo", 0), 0, "%lo"), (f.test("slt", "%hi", "%padded"), "%hi", "%padded"),
        ):  # fmt: skip
            f.when(condition, partial(self.fill, f, "%row", start, stop, is_minus_infinity=True))
        if self.mask != "none":
            self.apply_mask(f)

    # -- places -------------------------------------------------------------------------------------------------------

    def start(self, f: Function) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Parameters, addresses of the groups, and of the places in the scratch, whose tables of columns are filled."""
        p = {name: f.word("%params", i) for i, name in enumerate(PARAMETERS)}
        groups = {name: f.at("%params", 8 * (len(PARAMETERS) + i * GROUP_WORDS)) for i, name in enumerate(GROUPS)}
        space = {name[3:]: f.at("%scratch", p[name]) for name in PARAMETERS if name.startswith("at_")}
        longest = f.max(f.max(p["depth"], p["width"]), f.max(p["part"], p["key_block"]))
        step = self.tile.columns * self.sum_size
        f.line(f"call void @table(ptr {space['lines']}, i64 {step}, i64 {longest}, i64 {longest})")
        for name in ("depth", "width"):
            padded = self.padded(f, p[name])
            f.line(f"call void @table(ptr {space[name]}, i64 {self.size}, i64 {p[name]}, i64 {padded})")
        return p, groups, space

    def bases(self, f: Function, p: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
        """Where operands and results begin, those that there are for some settings only, too."""
        found = {}
        extras = ["first", *["seeds", "counters"] * self.drops, *["mask"] * (self.mask != "none")]
        for name in (*names, *extras):
            place = f.emit(f"getelementptr ptr, ptr %slots, i64 {p[name + '_slot']}")
            found[name] = f.at(f.emit(f"load ptr, ptr {place}"), p[name + "_offset"])
        return found

    def item(
        self, f: Function, p: dict[str, str], groups: dict[str, str], bases: dict[str, str], item: str
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Where the operands of one item begin; and the parameters, with the bounds of its query 0."""
        start = {
            name: f.at(bases[name], self._offset(f, groups["items"], column, item))
            for column, name in enumerate(("q", "k", "v"))
        }
        if self.mask != "none":
            start["mask"] = f.at(bases["mask"], self._offset(f, groups["item_masks"], 0, item))
        if self.drops:
            seeds, counters = (
                f.word(f.at(bases[name], self._offset(f, groups["item_draws"], column, item)), 0)
                for column, name in ((1, "seeds"), (2, "counters"))
            )
            start |= {"seed": seeds, "counter": f.add(counters, self._offset(f, groups["item_masks"], 1, item))}
        first = f.variable()
        f.set(first, 0)
        f.when(f.test("ne", p["has_first"], 0), lambda: f.set(
            first, f.word(f.at(bases["first"], self._offset(f, groups["item_draws"], 0, item)), 0)
        ))  # fmt: skip
        moved = {bound: f.add(p[bound], f.get(first)) for bound in ("low", "high")}
        return start, {**p, **moved}

    def row_tables(
        self, f: Function, groups: dict[str, str], space: dict[str, str], first: Scalar, count: str
    ) -> None:
        """Where rows of q and of the mask are, and by how much their random counters are further."""
        padded = f.add(count, 2 * self.tile.rows)
        for column, name in ((0, "q_rows"), (1, "mask_rows"), *[(2, "draw_rows")] * self.drops):
            f.line(
                f"call void @offsets(ptr {space[name]}, ptr {groups['rows']}, i64 {column}, i64 {first}, "
                f"i64 {count}, i64 {padded})"
            )

    def pack_queries(
        self, f: Function, p: dict[str, str], space: dict[str, str], q: str, count: str
    ) -> None:
        """All rows of q, scaled, as left operands of one part after the other."""

        def part(r0: str) -> None:
            rows = f.min(p["part"], f.sub(count, r0))
            out = f.at(space["q"], f.mul(f.mul(r0, p["depth"]), self.sum_size))
            table = f.at(space["q_rows"], f.mul(r0, 8))
            self.pack_rows(f, out, q, table, rows, space["depth"], p["depth"], 1)

        f.loop(0, count, p["part"], part)
        total = f.mul(f.add(count, self.tile.rows + self.tile.few_rows), p["depth"])
        f.line(f"call void @scale(ptr {space['q']}, i64 {total}, i64 {p['q_scale']})")

    def keys(
        self, f: Function, p: dict[str, str], space: dict[str, str], start: dict[str, str], j0: str, end: str
    ) -> tuple[str, str, str, str]:
        """A block of the keys before ``end``, packed, with tables of its rows of k and v: how many keys, where k and v
        begin, and bytes from panel to panel."""
        here = f.min(p["key_block"], f.sub(end, j0))
        padded = self.padded(f, here)
        k, v = (f.at(start[name], f.mul(j0, p[f"{name}_row"])) for name in "kv")
        for table, step in (("key_rows", "k_row"), ("value_rows", "v_row")):
            f.line(f"call void @table(ptr {space[table]}, i64 {p[step]}, i64 {here}, i64 {padded})")
        panel = self.pack_columns(f, space["keys"], k, space["key_rows"], here, space["depth"], p["depth"], 1)
        return here, k, v, panel

    def _offset(self, f: Function, group: str, column: int, index: str) -> str:
        """Of one element of a group, in bytes."""
        where = f.variable()
        f.line(f"call void @offsets(ptr {where}, ptr {group}, i64 {column}, i64 {index}, i64 1, i64 1)")
        return f.get(where)

    def padded(self, f: Function, count: Scalar) -> str:
        columns = self.tile.columns
        return f.mul(f.div(f.add(count, columns - 1), columns), columns)

    # -- what queries reach -------------------------------------------------------------------------------------------

    def reached(
        self, f: Function, p: dict[str, str], first: str, rows: str, j0: str, here: str
    ) -> tuple[str, str]:
        """How many keys of a block ``rows`` rows from ``first`` on reach, and whether they reach any."""
        lo, hi = self.span(f, p, first, rows)
        reach = f.min(f.sub(hi, j0), here)
        begins = f.test("slt", lo, f.add(j0, here))
        return reach, f.emit(f"and i1 {f.test('sgt', reach, 0)}, {begins}")

    def is_seen(
        self, f: Function, p: dict[str, str], space: dict[str, str], start: dict[str, str], r: Scalar, rows: str,
        j0: str, columns: str,
    ) -> str:  # fmt: skip
        """Whether the mask lets one of ``rows`` rows, from ``r`` of the tables on, see one of ``columns`` keys from
        ``j0`` on: a block that it hides is left out."""
        if self.mask != "choose":
            return "true"
        found = f.variable()
        length = f.choose(f.test("eq", p["mask_step"], 0), 1, columns)
        mask = f.at(start["mask"], f.mul(j0, p["mask_step"]))
        table = f.at(space["mask_rows"], f.mul(r, 8))
        f.line(f"call void @chosen(ptr {found}, ptr {mask}, ptr {table}, i64 {rows}, i64 {length})")
        return f.test("ne", f.get(found), 0)

    def row_reach(
        self, f: Function, p: dict[str, str], space: dict[str, str], start: dict[str, str], first: str, r: str,
        j0: str, reach: str,
    ) -> tuple[str, str, str]:  # fmt: skip
        """Which columns of a block row ``first + r`` reaches, and its part of the mask; tables begin at ``first``."""
        lo, hi = self._range(f, p, f.rem(f.add(first, r), p["queries"]))
        lo, hi = f.max(f.sub(lo, j0), 0), f.min(f.max(f.sub(hi, j0), 0), reach)
        if self.mask == "none":
            return lo, hi, "null"
        mask = f.at(start["mask"], f.word(space["mask_rows"], r))
        return lo, hi, f.at(mask, f.mul(j0, p["mask_step"]))

    def counter(self, f: Function, space: dict[str, str], start: dict[str, str], r: str, j0: str) -> str:
        """That of row ``r`` of the tables and key ``j0``, and what else ``kept`` needs: arguments of a call."""
        if not self.drops:
            return ""
        return f", i64 {start['seed']}, i64 {f.add(f.add(start['counter'], f.word(space['draw_rows'], r)), j0)}"

    def draws(self, p: dict[str, str]) -> str:
        """Arguments of a call that are the same for all rows."""
        return f", i64 {p['kept_below']}, i64 {p['kept_scale']}" if self.drops else ""

    @property
    def drawing(self) -> tuple[tuple[str, str], ...]:
        """The parameters for them."""
        names = ("seed", "counter", "kept_below", "kept_scale") if self.drops else ()
        return tuple(("i64", name) for name in names)

    def kept(self, f: Function) -> Callable[[Scalar, Value], Value]:
        """Writes ``(column, values) -> values`` times the scale where their weights are kept, and 0 elsewhere."""
        b = f.b
        words, numbers = b.type("u64"), b.type(self.register)
        seed, scale = f.variable(words), f.variable(numbers)
        f.set(seed, b.splat("%seed", "u64").ref, words)
        f.set(scale, self.from_bits(f, "%kept_scale").ref, numbers)

        def apply(j: Scalar, values: Value) -> Value:
            counters = b.add(b.iota("u64"), b.splat(f.add("%counter", j), "u64"))
            bits = threefry(b, Value(f.get(seed, words), "u64"), counters)
            is_kept = b.cmp("lt", b.shr(bits, b.const(64 - DRAWN_BITS, "u64")), b.splat("%kept_below", "u64"))
            scaled = b.mul(values, Value(f.get(scale, numbers), self.register))
            return b.select(is_kept, scaled, b.const(0, self.register))

        return apply

    def _range(self, f: Function, p: dict[str, str], query: str) -> tuple[str, str]:
        """The keys that a query may attend to, as far as its place says."""
        lo = f.max(f.min(f.add(query, p["low"]), p["keys"]), 0)
        return lo, f.max(f.min(f.add(query, p["high"]), p["keys"]), 0)

    def span(self, f: Function, p: dict[str, str], first: str, count: str) -> tuple[str, str]:
        """The keys that any of ``count`` rows from ``first`` on may attend to. Rows run over the queries of one head
        after the other: where they go on to the next one, it may be any query."""
        begin = f.rem(first, p["queries"])
        end = f.add(begin, f.sub(count, 1))
        wraps = f.test("sge", end, p["queries"])
        lo, _ = self._range(f, p, f.choose(wraps, 0, begin))
        _, hi = self._range(f, p, f.choose(wraps, f.sub(p["queries"], 1), end))
        return lo, hi

    def block_of_keys(self, f: Function, p: dict[str, str], lo: str) -> str:
        """Blocks of keys begin at multiples of their size: sums do not depend on which queries share a task."""
        return f.mul(f.div(lo, p["key_block"]), p["key_block"])
