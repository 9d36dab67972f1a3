"""The native functions of attention: products of blocks of queries and keys, softmax as they go by, and the gradient.

The matrix of scores is never there as a whole. Forward, a task owns a block of queries and walks over blocks of keys:
it keeps the largest score so far, the sum of the exponentials and the weighted sum of the values of each query, and
scales the latter two whenever the first grows (Milakov and Gimelshein, "Online normalizer calculation for softmax",
2018; Dao et al., "FlashAttention", 2022). Backward, a task owns the queries of one head of keys and values; it computes
each block of scores again from the logarithm of the sum, and adds up the three gradients.

Each query may attend to a range of keys: those from ``t + low`` to ``t + high`` for query ``t`` (causal masks, windows,
offsets). Blocks outside of every range are skipped. A mask besides is added, or chooses, element by element.
"""

from __future__ import annotations

from collections.abc import Callable

from .contraction import ContractionLibrary, group_words
from .function import Function, Scalar
from .scalar import emit as emit_instruction
from .target import Target
from .values import LLVM_TYPE, Value

MASKS = ("none", "choose", "add")  # bool: True where a query may attend to a key; or a number that is added to a score

#: A launch's parameters, in words, followed by the groups.
PARAMETERS = (
    "q_slot", "q_offset", "k_slot", "k_offset", "v_slot", "v_offset", "mask_slot", "mask_offset",
    "out_slot", "out_offset", "lse_slot", "lse_offset",
    "dout_slot", "dout_offset",  # backward only, as are the places of the gradients
    "dq_slot", "dq_offset", "dk_slot", "dk_offset", "dv_slot", "dv_offset",
    "rows", "queries", "keys", "depth", "width",  # rows: queries of all heads that share keys; elements of q, of v
    "row_block", "row_blocks", "part", "key_block",  # part: rows of one block of scores
    "k_row", "v_row", "mask_step", "scale", "low", "high",  # bytes from key to key; the scale's bits
    "at_q_rows", "at_out_rows", "at_mask_rows", "at_key_rows", "at_value_rows", "at_depth", "at_width", "at_part",
    "at_a", "at_b", "at_keys", "at_values", "at_scores", "at_second", "at_sums", "at_key_sums", "at_value_sums",
    "at_largest", "at_total", "at_lines",
)  # fmt: skip
#: Of items (batch and heads of keys): strides of q, k and v; then of the mask. Of rows: strides of q, the output and
#: the mask.
GROUPS = ("items", "item_masks", "rows")
_GROUP_WORDS = len(group_words([]))


def attention_name(dtype: str, mask: str, backward: bool) -> str:
    return f"attend_{dtype}_{mask}{'_backward' if backward else ''}"


def attention_ir(dtype: str, mask: str, backward: bool, target: Target) -> str:
    """The module for float32 or float64 operands."""
    return _AttentionLibrary(dtype, mask, target).module(backward)


class _AttentionLibrary(ContractionLibrary):
    """Writes the functions for one dtype and kind of mask."""

    def __init__(self, dtype: str, mask: str, target: Target) -> None:
        super().__init__(dtype, target)
        self.mask = mask

    def module(self, backward: bool) -> str:
        own = [self._backward_row(), self._row_dot(), self._backward()] if backward else [self._row(), self._forward()]
        functions = [*self.parts(), self._product(), *own]
        return "\n".join([*self.declares.values(), *functions])

    # -- pieces -------------------------------------------------------------------------------------------------------

    def _product(self) -> str:
        """``rows`` rows of packed ``a`` times all panels of ``b``, which are ``panel`` bytes apart, to ``c``."""
        f = self.function(
            "product", ("ptr", "a"), ("ptr", "b"), ("i64", "panel"), ("i64", "count"), ("ptr", "c"), ("i64", "c_row"),
            ("i64", "rows"), ("i64", "columns"), ("i64", "add"), ("i64", "direct_row"), ("ptr", "lines"),
        )  # fmt: skip
        step = self.tile.columns * self.sum_size

        def one(j: str) -> None:
            b = f.at("%b", f.mul(j, "%panel"))
            c = f.at("%c", f.mul(j, step))

            def call(suffix: str, a_row: Scalar) -> None:
                f.line(
                    f"call void @rows{suffix}(ptr %a, i64 {a_row}, ptr {b}, ptr %lines, i64 %count, ptr {c}, "
                    f"i64 %c_row, i64 %rows, i64 {self.tile.columns}, i64 %add)"
                )

            f.when(f.test("ne", "%direct_row", 0), lambda: call("direct", "%direct_row"), lambda: call("", 0))

        f.loop(0, f.div(f.add("%columns", self.tile.columns - 1), self.tile.columns), 1, one)
        return f.text()

    def _exp(self, f: Function, x: Value) -> Value:
        return emit_instruction(f.b, "exp", self.dtype, (self.dtype,), [x])

    def _fill(self, f: Function, row: str, start: Scalar, stop: Scalar, value: float) -> None:
        one = f.b.at_width(1)
        number = one.const(value, self.register)
        f.loop(start, stop, 1, lambda j: one.store(self.dtype, f.at(row, f.mul(j, self.size)), number))

    def _vectors(self, f: Function, stop: Scalar, body: Callable[[str], None]) -> None:
        f.loop(0, stop, self.tile.lanes, body)

    def _masked_score(self, f: Function, score: Value, scale: Value, j: str, stop: Scalar) -> Value:
        """The score at column ``j``, scaled, with the mask; nothing of the mask from ``stop`` on is read."""
        b = f.b
        score = b.mul(score, scale)
        if self.mask == "none":
            return score
        dtype = "bool" if self.mask == "choose" else self.dtype
        size = 1 if self.mask == "choose" else self.size
        found = f.variable(b.type("i1" if self.mask == "choose" else self.register))
        kind = b.type("i1" if self.mask == "choose" else self.register)

        def along() -> None:
            left = f.max(f.sub(stop, j), 0)
            f.set(found, b.load(dtype, f.at("%mask", f.mul(j, size)), b.mask_below(left)).ref, kind)

        f.when(
            f.test("eq", "%mask_step", 0),
            lambda: f.set(found, b.load_scalar(dtype, "%mask").ref, kind),
            along,
        )
        value = Value(f.get(found, kind), "i1" if self.mask == "choose" else self.register)
        if self.mask == "choose":
            return b.select(value, score, b.const(float("-inf"), self.register))
        return b.add(score, value)

    def _row(self) -> str:
        """One query's scores become weights: columns ``lo`` to ``hi`` count, ``padded`` are there. The sums at ``sums``
        (``sum_bytes`` of them) and ``total`` are scaled to the new ``largest``."""
        f = self.function(
            "soften", ("ptr", "row"), ("i64", "lo"), ("i64", "hi"), ("i64", "padded"), ("i64", "scale"),
            ("ptr", "mask"), ("i64", "mask_step"), ("ptr", "largest"), ("ptr", "total"), ("ptr", "sums"),
            ("i64", "sum_bytes"),
        )  # fmt: skip
        b = f.b
        kind, minus = b.type(self.register), b.const(float("-inf"), self.register)
        scale = self._from_bits(f, "%scale")

        def some() -> None:
            self._fill(f, "%row", 0, "%lo", float("-inf"))
            self._fill(f, "%row", "%hi", "%padded", float("-inf"))
            best = f.variable(kind)
            f.set(best, minus.ref, kind)

            def first(j: str) -> None:
                at = f.at("%row", f.mul(j, self.size))
                score = self._masked_score(f, b.load(self.dtype, at), scale, j, "%hi")
                b.store(self.dtype, at, score)
                f.set(best, b.combine("max", Value(f.get(best, kind), self.register), score).ref, kind)

            self._vectors(f, "%padded", first)
            before = b.load_scalar(self.dtype, "%largest")
            now = b.combine("max", before, b.horizontal("max", Value(f.get(best, kind), self.register)))
            safe = b.select(b.cmp("eq", now, minus), b.const(0, self.register), now)
            f.set(best, safe.ref, kind)
            ratio = f.variable(kind)
            f.set(ratio, self._exp(f, b.sub(before, safe)).ref, kind)
            total = f.variable(kind)
            f.set(total, "zeroinitializer", kind)

            def second(j: str) -> None:
                at = f.at("%row", f.mul(j, self.size))
                weight = self._exp(f, b.sub(b.load(self.dtype, at), Value(f.get(best, kind), self.register)))
                b.store(self.dtype, at, weight)
                f.set(total, b.add(Value(f.get(total, kind), self.register), weight).ref, kind)

            self._vectors(f, "%padded", second)
            factor = Value(f.get(ratio, kind), self.register)
            added = b.horizontal("add", Value(f.get(total, kind), self.register))
            b.store_scalar(self.dtype, "%total", b.fma(b.load_scalar(self.dtype, "%total"), factor, added))
            b.store_scalar(self.dtype, "%largest", now)
            same = f.emit(f"fcmp oeq {LLVM_TYPE[self.register]} {b.first(factor)}, 1.0")

            def rescale() -> None:
                def vector(at: str) -> None:
                    place = f.at("%sums", at)
                    factor = Value(f.get(ratio, kind), self.register)
                    b.store(self.dtype, place, b.mul(b.load(self.dtype, place), factor))

                f.loop(0, "%sum_bytes", self.tile.lanes * self.size, vector)

            f.when(same, lambda: None, rescale)

        f.when(f.test("slt", "%lo", "%hi"), some, lambda: self._fill(f, "%row", 0, "%padded", 0.0))
        return f.text()

    def _from_bits(self, f: Function, bits: str) -> Value:
        """The number whose bits are an i64's low ones, in every lane."""
        scalar = LLVM_TYPE[self.register]
        narrow = bits if self.size == 8 else f.emit(f"trunc i64 {bits} to i32")
        return f.b.splat(f.emit(f"bitcast {'i64' if self.size == 8 else 'i32'} {narrow} to {scalar}"), self.register)

    def _backward_row(self) -> str:
        """One query's scores become weights again, in place, and ``second``, products of the output's gradient and the
        values, the gradient by the scores."""
        f = self.function(
            "resoften", ("ptr", "row"), ("ptr", "second"), ("i64", "lo"), ("i64", "hi"), ("i64", "padded"),
            ("i64", "scale"), ("ptr", "mask"), ("i64", "mask_step"), ("ptr", "lse"), ("ptr", "delta"),
        )  # fmt: skip
        b = f.b
        scale = self._from_bits(f, "%scale")

        def some() -> None:
            lse, delta = b.load_scalar(self.dtype, "%lse"), b.load_scalar(self.dtype, "%delta")

            def vector(j: str) -> None:
                at, other = f.at("%row", f.mul(j, self.size)), f.at("%second", f.mul(j, self.size))
                score = self._masked_score(f, b.load(self.dtype, at), scale, j, "%hi")
                weight = self._exp(f, b.sub(score, lse))
                b.store(self.dtype, at, weight)
                change = b.mul(b.sub(b.load(self.dtype, other), delta), scale)
                nothing = b.const(0, self.register)
                # A weight of 0 is strong: what is behind a mask does not get through, not even an infinity.
                b.store(self.dtype, other, b.select(b.cmp("eq", weight, nothing), nothing, b.mul(weight, change)))

            self._vectors(f, "%padded", vector)
            for row in ("%row", "%second"):
                self._fill(f, row, 0, "%lo", 0.0)
                self._fill(f, row, "%hi", "%padded", 0.0)

        def none() -> None:
            for row in ("%row", "%second"):
                self._fill(f, row, 0, "%padded", 0.0)

        f.when(f.test("slt", "%lo", "%hi"), some, none)
        return f.text()

    def _row_dot(self) -> str:
        """The sum of products of two rows of ``count`` elements."""
        f = self.function("row_dot", ("ptr", "out"), ("ptr", "x"), ("ptr", "y"), ("i64", "count"))
        b = f.b
        kind = b.type(self.register)
        total = f.variable(kind)
        f.set(total, "zeroinitializer", kind)

        def vector(j: str) -> None:
            mask = b.mask_below(f.sub("%count", j))
            x, y = (b.load(self.dtype, f.at(p, f.mul(j, self.size)), mask) for p in ("%x", "%y"))
            f.set(total, b.fma(x, y, Value(f.get(total, kind), self.register)).ref, kind)

        self._vectors(f, "%count", vector)
        b.store_scalar(self.dtype, "%out", b.horizontal("add", Value(f.get(total, kind), self.register)))
        return f.text()

    # -- the loops ----------------------------------------------------------------------------------------------------

    def _start(self, f: Function) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Parameters, addresses of the groups, and of the places in the scratch."""
        p = {name: f.word("%params", i) for i, name in enumerate(PARAMETERS)}
        groups = {name: f.at("%params", 8 * (len(PARAMETERS) + i * _GROUP_WORDS)) for i, name in enumerate(GROUPS)}
        space = {name[3:]: f.at("%scratch", p[name]) for name in PARAMETERS if name.startswith("at_")}
        longest = f.max(f.max(p["depth"], p["width"]), f.max(p["part"], p["key_block"]))
        step = self.tile.columns * self.sum_size
        f.line(f"call void @table(ptr {space['lines']}, i64 {step}, i64 {longest}, i64 {longest})")
        return p, groups, space

    def _bases(self, f: Function, p: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
        """Where operands and results begin, and the mask if there is one."""
        found = {}
        for name in names if self.mask == "none" else (*names, "mask"):
            place = f.emit(f"getelementptr ptr, ptr %slots, i64 {p[name + '_slot']}")
            found[name] = f.at(f.emit(f"load ptr, ptr {place}"), p[name + "_offset"])
        return found

    def _item(self, f: Function, groups: dict[str, str], bases: dict[str, str], item: str) -> dict[str, str]:
        """Where the operands of one item begin."""
        start = {
            name: f.at(bases[name], self._offset(f, groups["items"], column, item))
            for column, name in enumerate(("q", "k", "v"))
        }
        if self.mask != "none":
            start["mask"] = f.at(bases["mask"], self._offset(f, groups["item_masks"], 0, item))
        return start

    def _row_tables(
        self, f: Function, groups: dict[str, str], space: dict[str, str], first: str, count: str, padded: str
    ) -> None:
        """Where rows of q and of the mask are."""
        for column, name in ((0, "q_rows"), (2, "mask_rows")):
            f.line(
                f"call void @offsets(ptr {space[name]}, ptr {groups['rows']}, i64 {column}, i64 {first}, "
                f"i64 {count}, i64 {padded})"
            )

    def _keys(
        self, f: Function, p: dict[str, str], space: dict[str, str], start: dict[str, str], j0: str
    ) -> tuple[str, str, str, str]:
        """A block of keys, packed, with tables of its rows of k and v: how many keys, where k and v begin, and bytes
        from panel to panel."""
        here = f.min(p["key_block"], f.sub(p["keys"], j0))
        padded = self._padded(f, here)
        k, v = (f.at(start[name], f.mul(j0, p[f"{name}_row"])) for name in "kv")
        for table, step in (("key_rows", "k_row"), ("value_rows", "v_row")):
            f.line(f"call void @table(ptr {space[table]}, i64 {p[step]}, i64 {here}, i64 {padded})")
        panel = self.pack_columns(f, space["keys"], k, space["key_rows"], here, space["depth"], p["depth"], 1)
        return here, k, v, panel

    def _reached(
        self, f: Function, p: dict[str, str], first: str, rows: str, j0: str, here: str
    ) -> tuple[str, str]:
        """How many keys of a block ``rows`` rows from ``first`` on reach, and whether they reach any."""
        lo, hi = self._span(f, p, first, rows)
        reach = f.min(f.sub(hi, j0), here)
        begins = f.test("slt", lo, f.add(j0, here))
        return reach, f.emit(f"and i1 {f.test('sgt', reach, 0)}, {begins}")

    def _row_reach(
        self, f: Function, p: dict[str, str], space: dict[str, str], start: dict[str, str], first: str, r: str,
        j0: str, reach: str,
    ) -> tuple[str, str, str]:  # fmt: skip
        """Which columns of a block one row reaches, and its part of the mask."""
        lo, hi = self._range(f, p, f.rem(f.add(first, r), p["queries"]))
        lo, hi = f.max(f.sub(lo, j0), 0), f.min(f.max(f.sub(hi, j0), 0), reach)
        if self.mask == "none":
            return lo, hi, "null"
        mask = f.at(start["mask"], f.word(space["mask_rows"], r))
        return lo, hi, f.at(mask, f.mul(j0, p["mask_step"]))

    def _offset(self, f: Function, group: str, column: int, index: str) -> str:
        """Of one element of a group, in bytes."""
        where = f.variable()
        f.line(f"call void @offsets(ptr {where}, ptr {group}, i64 {column}, i64 {index}, i64 1, i64 1)")
        return f.get(where)

    def _padded(self, f: Function, count: Scalar) -> str:
        columns = self.tile.columns
        return f.mul(f.div(f.add(count, columns - 1), columns), columns)

    def _range(self, f: Function, p: dict[str, str], query: str) -> tuple[str, str]:
        """The keys that a query may attend to, as far as its place says."""
        lo = f.max(f.min(f.add(query, p["low"]), p["keys"]), 0)
        return lo, f.max(f.min(f.add(query, p["high"]), p["keys"]), 0)

    def _span(self, f: Function, p: dict[str, str], first: str, count: str) -> tuple[str, str]:
        """The keys that any of ``count`` rows from ``first`` on may attend to. Rows run over the queries of one head
        after the other: where they go on to the next one, it may be any key."""
        begin = f.rem(first, p["queries"])
        end = f.add(begin, f.sub(count, 1))
        lo, _ = self._range(f, p, begin)
        _, hi = self._range(f, p, end)
        wraps = f.test("sge", end, p["queries"])
        return f.choose(wraps, 0, lo), f.choose(wraps, p["keys"], hi)

    def _block_of_keys(self, f: Function, p: dict[str, str], lo: str) -> str:
        """Blocks of keys begin at multiples of their size: sums do not depend on which queries share a task."""
        return f.mul(f.div(lo, p["key_block"]), p["key_block"])

    def _forward(self) -> str:
        """Tasks: blocks of rows of each item."""
        f = self.function(
            attention_name(self.dtype, self.mask, False), ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"),
            ("i64", "hi"), ("ptr", "scratch"), is_public=True,
        )  # fmt: skip
        p, groups, space = self._start(f)
        b, size = f.b, self.size
        bases = self._bases(f, p, ("q", "k", "v", "out", "lse"))
        f.line(f"call void @table(ptr {space['depth']}, i64 {size}, i64 {p['depth']}, i64 {p['depth']})")
        width_padded = self._padded(f, p["width"])
        f.line(f"call void @table(ptr {space['width']}, i64 {size}, i64 {p['width']}, i64 {width_padded})")
        sum_bytes = f.mul(width_padded, size)
        score_row = f.mul(p["key_block"], size)

        def task(t: str) -> None:
            item, first = f.div(t, p["row_blocks"]), f.mul(f.rem(t, p["row_blocks"]), p["row_block"])
            count = f.min(p["row_block"], f.sub(p["rows"], first))
            start = self._item(f, groups, bases, item)
            first_row = f.add(f.mul(item, p["rows"]), first)
            out = f.at(bases["out"], f.mul(f.mul(first_row, p["width"]), size))
            self._row_tables(f, groups, space, first, count, f.add(count, 2 * self.tile.rows))
            one = b.at_width(1)
            nothing, minus = one.const(0, self.register), one.const(float("-inf"), self.register)

            def clear(i: str) -> None:
                one.store(self.dtype, f.at(space["largest"], f.mul(i, size)), minus)
                one.store(self.dtype, f.at(space["total"], f.mul(i, size)), nothing)

            f.loop(0, count, 1, clear)
            f.loop(0, f.mul(count, width_padded), 1, lambda i: one.store(
                self.dtype, f.at(space["sums"], f.mul(i, size)), nothing
            ))  # fmt: skip
            lo, hi = self._span(f, p, first, count)

            def keys(j0: str) -> None:
                here, _, v, k_panel = self._keys(f, p, space, start, j0)
                v_panel = self.pack_columns(
                    f, space["values"], v, space["width"], p["width"], space["value_rows"], here, 0
                )

                def part(r0: str) -> None:
                    rows = f.min(p["part"], f.sub(count, r0))
                    reach, any_key = self._reached(f, p, f.add(first, r0), rows, j0, here)

                    def work() -> None:
                        columns = self._padded(f, reach)
                        self.pack_rows(
                            f, space["a"], start["q"], f.at(space["q_rows"], f.mul(r0, 8)), rows, space["depth"],
                            p["depth"], 1,
                        )  # fmt: skip
                        f.line(
                            f"call void @product(ptr {space['a']}, ptr {space['keys']}, i64 {k_panel}, "
                            f"i64 {p['depth']}, ptr {space['scores']}, i64 {score_row}, i64 {rows}, i64 {columns}, "
                            f"i64 0, i64 0, ptr {space['lines']})"
                        )

                        def row(i: str) -> None:
                            r = f.add(r0, i)
                            lo_i, hi_i, mask = self._row_reach(f, p, space, start, first, r, j0, reach)
                            f.line(
                                f"call void @soften(ptr {f.at(space['scores'], f.mul(i, score_row))}, i64 {lo_i}, "
                                f"i64 {hi_i}, i64 {columns}, i64 {p['scale']}, ptr {mask}, i64 {p['mask_step']}, "
                                f"ptr {f.at(space['largest'], f.mul(r, size))}, "
                                f"ptr {f.at(space['total'], f.mul(r, size))}, "
                                f"ptr {f.at(space['sums'], f.mul(r, sum_bytes))}, i64 {sum_bytes})"
                            )

                        f.loop(0, rows, 1, row)
                        f.line(
                            f"call void @product(ptr {space['scores']}, ptr {space['values']}, i64 {v_panel}, "
                            f"i64 {reach}, ptr {f.at(space['sums'], f.mul(r0, sum_bytes))}, i64 {sum_bytes}, "
                            f"i64 {rows}, "
                            f"i64 {p['width']}, i64 1, i64 {score_row}, ptr {space['lines']})"
                        )

                    f.when(any_key, work)

                f.loop(0, count, p["part"], part)

            f.loop(self._block_of_keys(f, p, lo), hi, p["key_block"], keys)

            def finish(i: str) -> None:
                total = b.load_scalar(self.dtype, f.at(space["total"], f.mul(i, size)))
                largest = b.load_scalar(self.dtype, f.at(space["largest"], f.mul(i, size)))
                zero = b.const(0, self.register)
                none = b.cmp("eq", largest, b.const(float("-inf"), self.register))
                divisor = b.select(none, b.const(1, self.register), total)
                log = emit_instruction(b, "log", self.dtype, (self.dtype,), [divisor])
                lse = b.select(none, zero, b.add(largest, log))
                lse_at = f.at(bases["lse"], f.mul(f.add(first_row, i), size))
                b.store_scalar(self.dtype, lse_at, lse)
                source, target = f.at(space["sums"], f.mul(i, sum_bytes)), f.at(out, f.mul(f.mul(i, p["width"]), size))
                kind = b.type(self.register)
                kept, gone = f.variable(kind), f.variable("i1")
                f.set(kept, divisor.ref, kind)
                f.set(gone, b.first(none), "i1")

                def vector(j: str) -> None:
                    mask = b.mask_below(f.sub(p["width"], j))
                    value = b.load(self.dtype, f.at(source, f.mul(j, size)))
                    value = b.fdiv(value, Value(f.get(kept, kind), self.register))
                    value = b.select(b.splat(f.get(gone, "i1"), "i1"), zero, value)
                    b.store(self.dtype, f.at(target, f.mul(j, size)), value, mask)

                self._vectors(f, p["width"], vector)

            f.loop(0, count, 1, finish)

        f.loop("%lo", "%hi", 1, task)
        return f.text()

    def _backward(self) -> str:
        """Tasks: items. Gradients by q, k and v, whole rows contiguous."""
        f = self.function(
            attention_name(self.dtype, self.mask, True), ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"),
            ("i64", "hi"), ("ptr", "scratch"), is_public=True,
        )  # fmt: skip
        p, groups, space = self._start(f)
        b, size = f.b, self.size
        bases = self._bases(f, p, ("q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"))
        depth_padded, width_padded = self._padded(f, p["depth"]), self._padded(f, p["width"])
        f.line(f"call void @table(ptr {space['depth']}, i64 {size}, i64 {p['depth']}, i64 {depth_padded})")
        f.line(f"call void @table(ptr {space['width']}, i64 {size}, i64 {p['width']}, i64 {width_padded})")
        score_row = f.mul(p["key_block"], size)
        q_bytes, v_bytes = f.mul(depth_padded, size), f.mul(width_padded, size)
        # The transposes of blocks of scores: their rows follow each other, and k runs down a column.
        f.line(f"call void @table(ptr {space['part']}, i64 {score_row}, i64 {p['part']}, i64 {p['part']})")
        one = b.at_width(1)

        def clear(place: str, count: str) -> None:
            nothing = one.const(0, self.register)
            f.loop(0, count, 1, lambda i: one.store(self.dtype, f.at(place, f.mul(i, size)), nothing))

        def give(source: str, row_bytes: str, target: str, count: str, length: str) -> None:
            """Rows of sums without their padding."""

            def row(i: str) -> None:
                here, there = f.at(source, f.mul(i, row_bytes)), f.at(target, f.mul(f.mul(i, length), size))

                def vector(j: str) -> None:
                    value = b.load(self.dtype, f.at(here, f.mul(j, size)))
                    b.store(self.dtype, f.at(there, f.mul(j, size)), value, b.mask_below(f.sub(length, j)))

                self._vectors(f, length, vector)

            f.loop(0, count, 1, row)

        def task(item: str) -> None:
            start = self._item(f, groups, bases, item)
            clear(space["key_sums"], f.mul(p["keys"], depth_padded))
            clear(space["value_sums"], f.mul(p["keys"], width_padded))

            def block(first: str) -> None:
                count = f.min(p["row_block"], f.sub(p["rows"], first))
                first_row = f.add(f.mul(item, p["rows"]), first)
                row_bytes = f.mul(p["width"], size)
                dout = f.at(bases["dout"], f.mul(first_row, row_bytes))
                out = f.at(bases["out"], f.mul(first_row, row_bytes))
                padded_count = f.add(count, 2 * self.tile.rows)
                self._row_tables(f, groups, space, first, count, padded_count)
                f.line(f"call void @table(ptr {space['out_rows']}, i64 {row_bytes}, i64 {count}, i64 {padded_count})")

                def prepare(i: str) -> None:
                    at = f.mul(i, row_bytes)
                    f.line(
                        f"call void @row_dot(ptr {f.at(space['total'], f.mul(i, size))}, ptr {f.at(dout, at)}, "
                        f"ptr {f.at(out, at)}, i64 {p['width']})"
                    )

                f.loop(0, count, 1, prepare)
                clear(space["sums"], f.mul(count, depth_padded))
                lo, hi = self._span(f, p, first, count)

                def keys(j0: str) -> None:
                    here, k, v, k_panel = self._keys(f, p, space, start, j0)
                    v_panel = self.pack_columns(
                        f, space["values"], v, space["value_rows"], here, space["width"], p["width"], 1
                    )
                    # Keys once more, as the right operand of the gradient by the queries; behind the values.
                    again = f.at(space["values"], f.mul(f.mul(self._padded(f, here), width_padded), size))
                    again_panel = self.pack_columns(
                        f, again, k, space["depth"], p["depth"], space["key_rows"], here, 0
                    )

                    def part(r0: str) -> None:
                        rows = f.min(p["part"], f.sub(count, r0))
                        reach, any_key = self._reached(f, p, f.add(first, r0), rows, j0, here)

                        def product(
                            a: str, right: str, panel: str, depth: str, c: str, c_row: str, height: str, columns: str,
                            add: int, direct: Scalar = 0,
                        ) -> None:  # fmt: skip
                            f.line(
                                f"call void @product(ptr {a}, ptr {right}, i64 {panel}, i64 {depth}, ptr {c}, "
                                f"i64 {c_row}, i64 {height}, i64 {columns}, i64 {add}, i64 {direct}, "
                                f"ptr {space['lines']})"
                            )

                        def work() -> None:
                            columns = self._padded(f, reach)
                            q_rows = f.at(space["q_rows"], f.mul(r0, 8))
                            out_rows = f.at(space["out_rows"], f.mul(r0, 8))
                            self.pack_rows(f, space["a"], start["q"], q_rows, rows, space["depth"], p["depth"], 1)
                            product(
                                space["a"], space["keys"], k_panel, p["depth"], space["scores"], score_row, rows,
                                columns, 0,
                            )  # fmt: skip
                            self.pack_rows(f, space["a"], dout, out_rows, rows, space["width"], p["width"], 1)
                            product(
                                space["a"], space["values"], v_panel, p["width"], space["second"], score_row, rows,
                                columns, 0,
                            )  # fmt: skip

                            def row(i: str) -> None:
                                r = f.add(r0, i)
                                lo_i, hi_i, mask = self._row_reach(f, p, space, start, first, r, j0, reach)
                                lse = f.at(bases["lse"], f.mul(f.add(first_row, r), size))
                                f.line(
                                    f"call void @resoften(ptr {f.at(space['scores'], f.mul(i, score_row))}, "
                                    f"ptr {f.at(space['second'], f.mul(i, score_row))}, i64 {lo_i}, i64 {hi_i}, "
                                    f"i64 {columns}, i64 {p['scale']}, ptr {mask}, i64 {p['mask_step']}, ptr {lse}, "
                                    f"ptr {f.at(space['total'], f.mul(r, size))})"
                                )

                            f.loop(0, rows, 1, row)
                            # By the queries: the gradient by the scores times the keys.
                            product(
                                space["second"], again, again_panel, reach, f.at(space["sums"], f.mul(r0, q_bytes)),
                                q_bytes, rows, p["depth"], 1, score_row,
                            )  # fmt: skip
                            # By keys and values: transposed blocks times the queries and the output's gradient.
                            reach_rows = f.add(reach, 2 * self.tile.rows)
                            f.line(
                                f"call void @table(ptr {space['key_rows']}, i64 {size}, i64 {reach}, i64 {reach_rows})"
                            )
                            for block, source, table, columns_of, base, row_of, length in (
                                ("scores", dout, out_rows, "width", "value_sums", v_bytes, p["width"]),
                                ("second", start["q"], q_rows, "depth", "key_sums", q_bytes, p["depth"]),
                            ):
                                panel = self.pack_columns(
                                    f, space["b"], source, space[columns_of], length, table, rows, 0
                                )
                                self.pack_rows(
                                    f, space["a"], space[block], space["key_rows"], reach, space["part"], rows, 0
                                )
                                product(
                                    space["a"], space["b"], panel, rows, f.at(space[base], f.mul(j0, row_of)), row_of,
                                    reach, length, 1,
                                )  # fmt: skip

                        f.when(any_key, work)

                    f.loop(0, count, p["part"], part)

                f.loop(self._block_of_keys(f, p, lo), hi, p["key_block"], keys)
                dq = f.at(bases["dq"], f.mul(f.mul(first_row, p["depth"]), size))
                give(space["sums"], q_bytes, dq, count, p["depth"])

            f.loop(0, p["rows"], p["row_block"], block)
            whole = f.mul(item, p["keys"])
            for name, sums, row_bytes, length in (
                ("dk", "key_sums", q_bytes, p["depth"]),
                ("dv", "value_sums", v_bytes, p["width"]),
            ):
                target = f.at(bases[name], f.mul(f.mul(whole, length), size))
                give(space[sums], row_bytes, target, p["keys"], length)

        f.loop("%lo", "%hi", 1, task)
        return f.text()
