"""Attention's native function backward. See attention.py."""

from __future__ import annotations

from .attention_parts import AttentionLibrary
from .function import Function
from .values import Value
from .vector_math.exp_log import exp2_or_zero


class BackwardLibrary(AttentionLibrary):
    """Writes the functions of the gradient by q, k and v."""

    def module(self, name: str) -> str:
        accesses = ("direct", "across")
        functions = [
            *self.parts(accesses), *map(self.product, accesses), self.scaling(), self.filling(), self.chosen(),
            self._row(), self._row_dot(), self._copy_rows(), self._give(), self._backward(name),
        ]  # fmt: skip
        return "\n".join([*self.declares.values(), *functions])

    def _row(self) -> str:
        """One query's scores become weights again, in place, and ``second``, products of the output's gradient and the
        values, the gradient by the scaled scores."""
        f = self.function(
            "resoften", ("ptr", "row"), ("ptr", "second"), ("i64", "lo"), ("i64", "hi"), ("i64", "padded"),
            ("ptr", "mask"), ("i64", "mask_step"), ("ptr", "lse"), ("ptr", "delta"), *self.drawing,
        )  # fmt: skip
        b, dtype = f.b, self.sum_dtype
        kept = self.kept(f) if self.drops else None

        def some() -> None:
            self.hide(f)
            kind = b.type(self.register)
            numbers = [f.variable(kind) for _ in range(2)]
            for place, pointer in zip(numbers, ("%lse", "%delta")):
                f.set(place, b.load_scalar(dtype, pointer).ref, kind)

            def vector(j: str) -> None:
                lse, delta = (Value(f.get(place, kind), self.register) for place in numbers)
                for i in range(self.tile.vectors):
                    here = i * self.tile.lanes * self.sum_size
                    at, other = (f.at(f.at(row, f.mul(j, self.sum_size)), here) for row in ("%row", "%second"))
                    weight, change = exp2_or_zero(b, b.sub(b.load(dtype, at), lse)), b.load(dtype, other)
                    if kept:
                        column = f.add(j, i * self.tile.lanes)
                        b.store(dtype, at, kept(column, weight))
                        change = kept(column, change)
                    else:
                        b.store(dtype, at, weight)
                    change, nothing = b.sub(change, delta), b.const(0, self.register)
                    # A weight of 0 is strong: what is behind a mask does not get through, not even an infinity.
                    product = b.mul(weight, change)
                    b.store(dtype, other, b.select(b.cmp("eq", weight, nothing), nothing, product))

            self.vectors(f, "%padded", vector, step=self.tile.vectors)

        def none() -> None:
            for row in ("%row", "%second"):
                self.fill(f, row, 0, "%padded")

        f.when(f.test("slt", "%lo", "%hi"), some, none)
        return f.text()

    def _row_dot(self) -> str:
        """The sum of products of ``count`` elements of the output's gradient and of the output."""
        f = self.function("row_dot", ("ptr", "result"), ("ptr", "dout"), ("ptr", "out"), ("i64", "count"))
        b = f.b
        kind = b.type(self.register)
        total = f.variable(kind)
        f.set(total, "zeroinitializer", kind)

        def vector(j: str) -> None:
            mask = b.mask_below(f.sub("%count", j))
            x = b.load(self.dtype, f.at("%dout", f.mul(j, self.size)), mask)
            y = b.load(self.sum_dtype, f.at("%out", f.mul(j, self.sum_size)), mask)
            f.set(total, b.fma(x, y, Value(f.get(total, kind), self.register)).ref, kind)

        self.vectors(f, "%count", vector)
        b.store_scalar(self.sum_dtype, "%result", b.horizontal("add", Value(f.get(total, kind), self.register)))
        return f.text()

    def _give(self) -> str:
        """``count`` rows of sums to a result, without their padding."""
        f = self.function(
            "give", ("ptr", "sums"), ("i64", "sum_row"), ("ptr", "result"), ("i64", "count"), ("i64", "length")
        )
        b, size = f.b, self.sum_size

        def row(i: str) -> None:
            here, there = f.at("%sums", f.mul(i, "%sum_row")), f.at("%result", f.mul(f.mul(i, "%length"), size))

            def vector(j: str) -> None:
                value = b.load(self.sum_dtype, f.at(here, f.mul(j, size)))
                b.store(self.sum_dtype, f.at(there, f.mul(j, size)), value, b.mask_below(f.sub("%length", j)))

            self.vectors(f, "%length", vector)

        f.loop(0, "%count", 1, row)
        return f.text()

    def _copy_rows(self) -> str:
        """``count`` rows of ``length`` elements at offsets of a table, times ``scale``, to rows ``row`` bytes apart; in
        whole vectors, zeros behind the last element."""
        f = self.function(
            "copy_rows", ("ptr", "out"), ("i64", "row"), ("ptr", "base"), ("ptr", "rows"), ("i64", "count"),
            ("i64", "length"), ("i64", "scale"),
        )  # fmt: skip
        b, kind = f.b, f.b.type(self.register)
        scale = f.variable(kind)
        f.set(scale, self.from_bits(f, "%scale").ref, kind)
        filled = f.emit(f"and i64 {f.add('%length', self.tile.lanes - 1)}, {-self.tile.lanes}")

        def one(i: str) -> None:
            source, out = f.at("%base", f.word("%rows", i)), f.at("%out", f.mul(i, "%row"))

            def vector(j: str, lanes: Value | None) -> None:
                value = b.cast(b.load(self.dtype, f.at(source, f.mul(j, self.size)), lanes), self.register)
                value = b.mul(value, Value(f.get(scale, kind), self.register))
                b.store(self.sum_dtype, f.at(out, f.mul(j, self.sum_size)), value)

            f.each_vector("%length", vector)
            self.fill(f, out, filled, f.div("%row", self.sum_size))

        f.loop(0, "%count", 1, one)
        return f.text()

    def _backward(self, name: str) -> str:
        """Tasks: a part of the keys of each item. Gradients by q, k and v, whole rows contiguous; that by q as many
        times as the keys have parts, to be summed.

        Keys and values are packed once. A block of them is met by all queries that reach it, while the sums of its own
        gradients stay in the cache.
        """
        f = self.function(
            name, ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("ptr", "scratch"), is_public=True
        )
        p, groups, space = self.start(f)
        size = self.sum_size
        bases = self.bases(f, p, ("q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"))
        depth_padded, width_padded = self.padded(f, p["depth"]), self.padded(f, p["width"])
        q_bytes, v_bytes = f.mul(depth_padded, size), f.mul(width_padded, size)
        panel_row = self.tile.columns * size
        dout_row, out_row = f.mul(p["width"], self.size), f.mul(p["width"], size)
        for lines, step in (("q_lines", q_bytes), ("out_lines", v_bytes), ("out_rows", dout_row)):
            f.line(f"call void @table(ptr {space[lines]}, i64 {step}, i64 {p['part']}, i64 {p['part']})")

        def task(number: str) -> None:
            item, split = f.div(number, p["splits"]), f.rem(number, p["splits"])
            start, bounds = self.item(f, p, groups, bases, item)
            first_row = f.mul(item, p["rows"])
            dout, out = f.at(bases["dout"], f.mul(first_row, dout_row)), f.at(bases["out"], f.mul(first_row, out_row))
            lse = f.at(bases["lse"], f.mul(first_row, size))
            f.loop(0, p["rows"], 1, lambda i: f.line(
                f"call void @row_dot(ptr {f.at(space['total'], f.mul(i, size))}, ptr {f.at(dout, f.mul(i, dout_row))}, "
                f"ptr {f.at(out, f.mul(i, out_row))}, i64 {p['width']})"
            ))  # fmt: skip
            self.fill(f, space["sums"], 0, f.mul(p["rows"], depth_padded))
            first_key = f.mul(split, p["split_keys"])
            end = f.min(f.add(first_key, p["split_keys"]), p["keys"])

            def keys(j0: str) -> None:
                here, k, v, k_panel = self.keys(f, p, space, start, j0, end)
                v_panel = self.pack_columns(
                    f, space["values"], v, space["value_rows"], here, space["width"], p["width"], 1
                )
                # Keys once more, as the right operand of the gradient by the queries.
                again_panel = self.pack_columns(
                    f, space["keys_again"], k, space["depth"], p["depth"], space["key_rows"], here, 0
                )
                self.fill(f, space["key_sums"], 0, f.mul(here, depth_padded))
                self.fill(f, space["value_sums"], 0, f.mul(here, width_padded))

                def part(r0: str) -> None:
                    rows = f.min(p["part"], f.sub(p["rows"], r0))
                    reach, any_key = self.reached(f, bounds, r0, rows, j0, here)

                    def look() -> None:
                        self.row_tables(f, groups, space, r0, rows)
                        f.when(self.is_seen(f, p, space, start, 0, rows, j0, reach), work)

                    def work() -> None:
                        columns = self.padded(f, reach)
                        for to, row_bytes, source, table, length, scale in (
                            ("q", q_bytes, start["q"], "q_rows", p["depth"], p["q_scale"]),
                            ("dout", v_bytes, f.at(dout, f.mul(r0, dout_row)), "out_rows", p["width"], self.one),
                        ):
                            f.line(
                                f"call void @copy_rows(ptr {space[to]}, i64 {row_bytes}, ptr {source}, "
                                f"ptr {space[table]}, i64 {rows}, i64 {length}, i64 {scale})"
                            )
                        for block, left, left_row, right, panel, length in (
                            ("scores", "q", q_bytes, "keys", k_panel, p["depth"]),
                            ("second", "dout", v_bytes, "values", v_panel, p["width"]),
                        ):
                            self.call_product(
                                f, "direct", space[left], left_row, space[right], panel, space["lines"], length,
                                space[block], p["score_row"], rows, columns, 0,
                            )  # fmt: skip

                        def row(i: str) -> None:
                            lo, hi, mask = self.row_reach(f, bounds, space, start, r0, i, j0, reach)
                            at, r = f.mul(i, p["score_row"]), f.mul(f.add(r0, i), size)
                            f.line(
                                f"call void @resoften(ptr {f.at(space['scores'], at)}, "
                                f"ptr {f.at(space['second'], at)}, i64 {lo}, i64 {hi}, i64 {columns}, ptr {mask}, "
                                f"i64 {p['mask_step']}, ptr {f.at(lse, r)}, ptr {f.at(space['total'], r)}"
                                f"{self.counter(f, space, start, i, j0)}{self.draws(p)})"
                            )

                        f.loop(0, rows, 1, row)
                        # By the queries: the gradient by the scores times the keys.
                        self.call_product(
                            f, "direct", space["second"], p["score_row"], space["keys_again"], again_panel,
                            space["lines"], reach, f.at(space["sums"], f.mul(r0, q_bytes)), q_bytes, rows, p["depth"],
                            1,
                        )  # fmt: skip
                        # By keys and values: transposed blocks times the queries and the output's gradient.
                        for block, right, lines, sums, row_bytes, length in (
                            ("scores", "dout", "out_lines", "value_sums", v_bytes, p["width"]),
                            ("second", "q", "q_lines", "key_sums", q_bytes, p["depth"]),
                        ):
                            self.call_product(
                                f, "across", space[block], p["score_row"], space[right], panel_row, space[lines], rows,
                                space[sums], row_bytes, reach, length, 1,
                            )  # fmt: skip

                    f.when(any_key, look)

                f.loop(0, p["rows"], p["part"], part)
                # The queries were multiplied by the scale and log2(e).
                self._scale(f, space["key_sums"], f.mul(here, depth_padded), p["back_scale"])
                place = f.add(f.mul(item, p["keys"]), j0)
                self._hand_over(f, space["key_sums"], q_bytes, bases["dk"], place, here, p["depth"])
                self._hand_over(f, space["value_sums"], v_bytes, bases["dv"], place, here, p["width"])

            f.loop(first_key, end, p["key_block"], keys)
            self._scale(f, space["sums"], f.mul(p["rows"], depth_padded), p["scale"])
            place = f.mul(f.add(f.mul(split, p["items"]), item), p["rows"])
            self._hand_over(f, space["sums"], q_bytes, bases["dq"], place, p["rows"], p["depth"])

        f.loop("%lo", "%hi", 1, task)
        return f.text()

    def _scale(self, f: Function, sums: str, count: str, scale: str) -> None:
        f.line(f"call void @scale(ptr {sums}, i64 {count}, i64 {scale})")

    def _hand_over(
        self, f: Function, sums: str, sum_row: str, result: str, first: str, count: str, length: str
    ) -> None:
        target = f.at(result, f.mul(f.mul(first, length), self.sum_size))
        f.line(f"call void @give(ptr {sums}, i64 {sum_row}, ptr {target}, i64 {count}, i64 {length})")
