"""Attention's native function backward. See attention.py."""

from __future__ import annotations

from .attention_parts import AttentionLibrary
from .function import Function
from .values import Value
from .vector_math.exp_log import exp_or_zero


class BackwardLibrary(AttentionLibrary):
    """Writes the functions of the gradient by q, k and v."""

    def module(self, name: str) -> str:
        across = [self.tile_of(rows, "across") for rows in (self.tile.rows, self.tile.few_rows)]
        products = [self.product(access) for access in ("", "direct", "across")]
        functions = [
            *self.parts(), *across, self.row_panels("across"), *products, self.scaling(), self.filling(), self._row(),
            self._row_dot(), self._give(), self._backward(name),
        ]  # fmt: skip
        return "\n".join([*self.declares.values(), *functions])

    def _row(self) -> str:
        """One query's scores become weights again, in place, and ``second``, products of the output's gradient and the
        values, the gradient by the scaled scores."""
        f = self.function(
            "resoften", ("ptr", "row"), ("ptr", "second"), ("i64", "lo"), ("i64", "hi"), ("i64", "padded"),
            ("ptr", "mask"), ("i64", "mask_step"), ("ptr", "lse"), ("ptr", "delta"),
        )  # fmt: skip
        b, dtype = f.b, self.sum_dtype

        def some() -> None:
            self.fill(f, "%row", 0, "%lo", is_minus_infinity=True)
            self.fill(f, "%row", "%hi", "%padded", is_minus_infinity=True)
            if self.mask != "none":
                self.apply_mask(f)
            kind = b.type(self.register)
            kept = [f.variable(kind) for _ in range(2)]
            for place, pointer in zip(kept, ("%lse", "%delta")):
                f.set(place, b.load_scalar(dtype, pointer).ref, kind)

            def vector(j: str) -> None:
                lse, delta = (Value(f.get(place, kind), self.register) for place in kept)
                for i in range(self.tile.vectors):
                    here = i * self.tile.lanes * self.sum_size
                    at, other = (f.at(f.at(row, f.mul(j, self.sum_size)), here) for row in ("%row", "%second"))
                    weight = exp_or_zero(b, b.sub(b.load(dtype, at), lse))
                    b.store(dtype, at, weight)
                    change, nothing = b.sub(b.load(dtype, other), delta), b.const(0, self.register)
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

    def _backward(self, name: str) -> str:
        """Tasks: items. Gradients by q, k and v, whole rows contiguous."""
        f = self.function(
            name, ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("ptr", "scratch"), is_public=True
        )
        p, groups, space = self.start(f)
        size = self.sum_size
        bases = self.bases(f, p, ("q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"))
        depth_padded, width_padded = self.padded(f, p["depth"]), self.padded(f, p["width"])
        q_bytes, v_bytes = f.mul(depth_padded, size), f.mul(width_padded, size)

        def task(item: str) -> None:
            start = self.item(f, groups, bases, item)
            self.fill(f, space["key_sums"], 0, f.mul(p["keys"], depth_padded))
            self.fill(f, space["value_sums"], 0, f.mul(p["keys"], width_padded))

            def block(first: str) -> None:
                count = f.min(p["row_block"], f.sub(p["rows"], first))
                first_row = f.add(f.mul(item, p["rows"]), first)
                self.row_tables(f, groups, space, first, count)
                self._prepare(f, p, space, bases, first_row, count, start["q"])
                self.fill(f, space["sums"], 0, f.mul(count, depth_padded))
                lo, hi = self.span(f, p, first, count)

                def keys(j0: str) -> None:
                    here, k, v, k_panel = self.keys(f, p, space, start, j0)
                    v_panel = self.pack_columns(
                        f, space["values"], v, space["value_rows"], here, space["width"], p["width"], 1
                    )
                    # Keys once more, as the right operand of the gradient by the queries.
                    again_panel = self.pack_columns(
                        f, space["keys_again"], k, space["depth"], p["depth"], space["key_rows"], here, 0
                    )

                    def part(r0: str) -> None:
                        rows = f.min(p["part"], f.sub(count, r0))
                        reach, any_key = self.reached(f, p, f.add(first, r0), rows, j0, here)

                        def part_of(name: str, row: str) -> str:
                            return f.at(space[name], f.mul(f.mul(r0, row), size))

                        def work() -> None:
                            columns = self.padded(f, reach)
                            for block, left, right, panel, length in (
                                ("scores", "q", "keys", k_panel, p["depth"]),
                                ("second", "dout", "values", v_panel, p["width"]),
                            ):
                                self.call_product(
                                    f, space, "", part_of(left, length), 0, space[right], panel, length, space[block],
                                    p["score_row"], rows, columns, 0,
                                )  # fmt: skip

                            def row(i: str) -> None:
                                r = f.add(r0, i)
                                lo_i, hi_i, mask = self.row_reach(f, p, space, start, first, r, j0, reach)
                                lse = f.at(bases["lse"], f.mul(f.add(first_row, r), size))
                                at = f.mul(i, p["score_row"])
                                f.line(
                                    f"call void @resoften(ptr {f.at(space['scores'], at)}, "
                                    f"ptr {f.at(space['second'], at)}, i64 {lo_i}, i64 {hi_i}, i64 {columns}, "
                                    f"ptr {mask}, i64 {p['mask_step']}, ptr {lse}, "
                                    f"ptr {f.at(space['total'], f.mul(r, size))})"
                                )

                            f.loop(0, rows, 1, row)
                            # By the queries: the gradient by the scores times the keys.
                            self.call_product(
                                f, space, "direct", space["second"], p["score_row"], space["keys_again"], again_panel,
                                reach, part_of("sums", depth_padded), q_bytes, rows, p["depth"], 1,
                            )  # fmt: skip
                            # By keys and values: transposed blocks times the queries and the output's gradient.
                            for block, right, sums, row_bytes, padded, length in (
                                ("scores", "dout_panels", "value_sums", v_bytes, width_padded, p["width"]),
                                ("second", "q_panels", "key_sums", q_bytes, depth_padded, p["depth"]),
                            ):
                                self.call_product(
                                    f, space, "across", space[block], p["score_row"], part_of(right, padded),
                                    f.mul(rows, self.tile.columns * size), rows,
                                    f.at(space[sums], f.mul(j0, row_bytes)), row_bytes, reach, length, 1,
                                )  # fmt: skip

                        f.when(any_key, work)

                    f.loop(0, count, p["part"], part)

                f.loop(self.block_of_keys(f, p, lo), hi, p["key_block"], keys)
                total = f.mul(count, depth_padded)
                f.line(f"call void @scale(ptr {space['sums']}, i64 {total}, i64 {p['scale']})")
                self._hand_over(f, space["sums"], q_bytes, bases["dq"], first_row, count, p["depth"])

            f.loop(0, p["rows"], p["row_block"], block)
            total = f.mul(p["keys"], depth_padded)
            f.line(f"call void @scale(ptr {space['key_sums']}, i64 {total}, i64 {p['scale']})")
            whole = f.mul(item, p["keys"])
            self._hand_over(f, space["key_sums"], q_bytes, bases["dk"], whole, p["keys"], p["depth"])
            self._hand_over(f, space["value_sums"], v_bytes, bases["dv"], whole, p["keys"], p["width"])

        f.loop("%lo", "%hi", 1, task)
        return f.text()

    def _hand_over(
        self, f: Function, sums: str, sum_row: str, result: str, first: str, count: str, length: str
    ) -> None:
        target = f.at(result, f.mul(f.mul(first, length), self.sum_size))
        f.line(f"call void @give(ptr {sums}, i64 {sum_row}, ptr {target}, i64 {count}, i64 {length})")

    def _prepare(
        self, f: Function, p: dict[str, str], space: dict[str, str], bases: dict[str, str], first_row: str, count: str,
        q: str,
    ) -> None:  # fmt: skip
        """Of a block of rows: q and the output's gradient as left operands and, part by part, as right ones; and for
        each row the sum of products of the output and its gradient."""
        dout_row, out_row = f.mul(p["width"], self.size), f.mul(p["width"], self.sum_size)
        dout, out = f.at(bases["dout"], f.mul(first_row, dout_row)), f.at(bases["out"], f.mul(first_row, out_row))
        padded = f.add(count, 2 * self.tile.rows)
        f.line(f"call void @table(ptr {space['out_rows']}, i64 {dout_row}, i64 {count}, i64 {padded})")
        f.loop(0, count, 1, lambda i: f.line(
            f"call void @row_dot(ptr {f.at(space['total'], f.mul(i, self.sum_size))}, "
            f"ptr {f.at(dout, f.mul(i, dout_row))}, ptr {f.at(out, f.mul(i, out_row))}, i64 {p['width']})"
        ))  # fmt: skip
        self.pack_queries(f, p, space, q, count)

        def part(r0: str) -> None:
            rows = f.min(p["part"], f.sub(count, r0))
            tables = [f.at(space[name], f.mul(r0, 8)) for name in ("q_rows", "out_rows")]
            left = f.at(space["dout"], f.mul(f.mul(r0, p["width"]), self.sum_size))
            self.pack_rows(f, left, dout, tables[1], rows, space["width"], p["width"], 1)
            for name, base, table, length in (("q", q, tables[0], "depth"), ("dout", dout, tables[1], "width")):
                at = f.mul(f.mul(r0, self.padded(f, p[length])), self.sum_size)
                panels = f.at(space[f"{name}_panels"], at)
                self.pack_columns(f, panels, base, space[length], p[length], table, rows, 0)

        f.loop(0, count, p["part"], part)
