"""Attention's native function forward. See attention.py."""

from __future__ import annotations

from .attention_parts import AttentionLibrary
from .scalar import emit as emit_instruction
from .values import LLVM_TYPE, Value
from .vector_math.exp_log import exp2_or_zero

# How far scores may be above the number that is taken from them, before powers of two: sums stay far from overflow.
HEADROOM = 32.0


class ForwardLibrary(AttentionLibrary):
    """Writes the functions of the forward direction."""

    def module(self, name: str) -> str:
        functions = [
            *self.parts(), self.product(""), self.product("direct"), self.scaling(), self.filling(), self.chosen(),
            self._norms(), self._raise(), self._weigh(), self._forward(name),
        ]  # fmt: skip
        return "\n".join([*self.declares.values(), *functions])

    def _raise(self) -> str:
        """The scores of one query, of which columns ``lo`` to ``hi`` count and ``padded`` are there, are hidden where
        they do not count. If one is larger than ``largest``, it is the new one, and the sums at ``sums`` (``sum_bytes``
        of them) and ``total`` are scaled to it.

        No score is larger than the product of the norms of its query and its key. Where that of ``query`` and of the
        longest key, ``key``, is not far above ``largest``, that one stays, and the scores are not compared.
        """
        f = self.function(
            "raise", ("ptr", "row"), ("i64", "lo"), ("i64", "hi"), ("i64", "padded"), ("ptr", "mask"),
            ("i64", "mask_step"), ("ptr", "largest"), ("ptr", "total"), ("ptr", "sums"), ("i64", "sum_bytes"),
            ("ptr", "query"), ("ptr", "key"),
        )  # fmt: skip
        b, dtype, size, several = f.b, self.sum_dtype, self.sum_size, self.tile.vectors
        kind, minus = b.type(self.register), b.const(float("-inf"), self.register)
        step = self.tile.lanes * size

        def compare_all() -> None:
            best = [f.variable(kind) for _ in range(several)]
            for place in best:
                f.set(place, minus.ref, kind)

            def compare(j: str) -> None:
                # A NaN is no maximum; it gets into the total by its exponential.
                for i, place in enumerate(best):
                    score = b.load(dtype, f.at(f.at("%row", f.mul(j, size)), i * step))
                    f.set(place, b.fmax(score, Value(f.get(place, kind), self.register)).ref, kind)

            self.vectors(f, "%padded", compare, step=several)
            found = Value(f.get(best[0], kind), self.register)
            for place in best[1:]:
                found = b.fmax(found, Value(f.get(place, kind), self.register))
            before = b.load_scalar(dtype, "%largest")
            now = b.combine("max", before, b.horizontal("max", found))
            grown = f.emit(f"fcmp une {LLVM_TYPE[self.register]} {b.first(before)}, {b.first(now)}")
            f.set(best[0], before.ref, kind)
            f.set(best[1], now.ref, kind)

            def rescale() -> None:
                before, now = (Value(f.get(place, kind), self.register) for place in best[:2])
                b.store_scalar(dtype, "%largest", now)
                factor = exp2_or_zero(b, b.sub(before, now))
                f.set(best[0], factor.ref, kind)
                b.store_scalar(dtype, "%total", b.mul(b.load_scalar(dtype, "%total"), factor))

                def vector(at: str) -> None:
                    place = f.at("%sums", at)
                    b.store(dtype, place, b.mul(b.load(dtype, place), Value(f.get(best[0], kind), self.register)))

                f.loop(0, "%sum_bytes", step, vector)

            f.when(grown, rescale)

        def some() -> None:
            self.hide(f)
            if self.mask == "add":
                compare_all()
                return
            bound = b.mul(b.load_scalar(dtype, "%query"), b.load_scalar(dtype, "%key"))
            excess = b.first(b.sub(bound, b.load_scalar(dtype, "%largest")))
            limit = b.first(b.const(HEADROOM, self.register))
            f.when(f.emit(f"fcmp ugt {LLVM_TYPE[self.register]} {excess}, {limit}"), compare_all)

        f.when(f.test("slt", "%lo", "%hi"), some, lambda: self.fill(f, "%row", 0, "%padded", is_minus_infinity=True))
        return f.text()

    def _weigh(self) -> str:
        """The scores of one query become weights, which are added to ``total``; then some are dropped."""
        f = self.function(
            "weigh", ("ptr", "row"), ("i64", "padded"), ("ptr", "largest"), ("ptr", "total"), *self.drawing
        )
        b, dtype, size, several = f.b, self.sum_dtype, self.sum_size, self.tile.vectors
        kind = b.type(self.register)
        largest = b.load_scalar(dtype, "%largest")
        is_empty = b.cmp("eq", largest, b.const(float("-inf"), self.register))
        shift, *total = [f.variable(kind) for _ in range(several + 1)]
        f.set(shift, b.sub(b.const(0, self.register), b.select(is_empty, b.const(0, self.register), largest)).ref, kind)
        for place in total:
            f.set(place, "zeroinitializer", kind)

        kept = self.kept(f) if self.drops else None

        def exponentials(j: str) -> None:
            for i, place in enumerate(total):
                at = f.at(f.at("%row", f.mul(j, size)), i * self.tile.lanes * size)
                weight = exp2_or_zero(b, b.add(b.load(dtype, at), Value(f.get(shift, kind), self.register)))
                b.store(dtype, at, kept(f.add(j, i * self.tile.lanes), weight) if kept else weight)
                f.set(place, b.add(Value(f.get(place, kind), self.register), weight).ref, kind)

        self.vectors(f, "%padded", exponentials, step=several)
        added = Value(f.get(total[0], kind), self.register)
        for place in total[1:]:
            added = b.add(added, Value(f.get(place, kind), self.register))
        b.store_scalar(dtype, "%total", b.add(b.load_scalar(dtype, "%total"), b.horizontal("add", added)))
        return f.text()

    def _norms(self) -> str:
        """Of ``count`` rows of ``length`` elements the Euclidean norms times ``scale``, or what is in ``out`` already,
        if larger; ``step`` bytes apart. A NaN wins."""
        f = self.function(
            "norms", ("ptr", "out"), ("i64", "step"), ("ptr", "base"), ("ptr", "rows"), ("i64", "count"),
            ("i64", "length"), ("i64", "scale"),
        )  # fmt: skip
        b, dtype, kind = f.b, self.sum_dtype, f.b.type(self.register)
        scale, total = f.variable(kind), f.variable(kind)
        f.set(scale, self.from_bits(f, "%scale").ref, kind)

        def row(i: str) -> None:
            source, out = f.at("%base", f.word("%rows", i)), f.at("%out", f.mul(i, "%step"))
            f.set(total, "zeroinitializer", kind)

            def vector(j: str, lanes: Value | None) -> None:
                x = b.cast(b.load(self.dtype, f.at(source, f.mul(j, self.size)), lanes), self.register)
                f.set(total, b.fma(x, x, Value(f.get(total, kind), self.register)).ref, kind)

            f.each_vector("%length", vector)
            norm = b.sqrt(b.horizontal("add", Value(f.get(total, kind), self.register)))
            norm = b.mul(norm, Value(f.get(scale, kind), self.register))
            b.store_scalar(dtype, out, b.combine("max", norm, b.load_scalar(dtype, out)))

        f.loop(0, "%count", 1, row)
        return f.text()

    def _forward(self, name: str) -> str:
        """Tasks: blocks of rows of each item."""
        f = self.function(
            name, ("ptr", "slots"), ("ptr", "params"), ("i64", "lo"), ("i64", "hi"), ("ptr", "scratch"), is_public=True
        )
        p, groups, space = self.start(f)
        size = self.sum_size
        bases = self.bases(f, p, ("q", "k", "v", "out", "lse"))
        width_padded = self.padded(f, p["width"])
        sum_bytes = f.mul(width_padded, size)
        score_row = p["score_row"]

        def task(t: str) -> None:
            item, first = f.div(t, p["row_blocks"]), f.mul(f.rem(t, p["row_blocks"]), p["row_block"])
            count = f.min(p["row_block"], f.sub(p["rows"], first))
            start, bounds = self.item(f, p, groups, bases, item)
            first_row = f.add(f.mul(item, p["rows"]), first)
            self.row_tables(f, groups, space, first, count)
            self.pack_queries(f, p, space, start["q"], count)
            self.fill(f, space["query_norms"], 0, count)
            f.line(
                f"call void @norms(ptr {space['query_norms']}, i64 {size}, ptr {start['q']}, ptr {space['q_rows']}, "
                f"i64 {count}, i64 {p['depth']}, i64 {p['norm_scale']})"
            )
            self.fill(f, space["largest"], 0, count, is_minus_infinity=True)
            self.fill(f, space["total"], 0, count)
            self.fill(f, space["sums"], 0, f.mul(count, width_padded))
            lo, hi = self.span(f, bounds, first, count)

            def keys(j0: str) -> None:
                here = f.min(p["key_block"], f.sub(p["keys"], j0))
                f.when(self.is_seen(f, p, space, start, 0, count, j0, here), lambda: block(j0))

            def block(j0: str) -> None:
                here, k, v, k_panel = self.keys(f, p, space, start, j0, p["keys"])
                v_panel = self.pack_columns(
                    f, space["values"], v, space["width"], p["width"], space["value_rows"], here, 0
                )

                self.fill(f, space["key_norm"], 0, 1)
                f.line(
                    f"call void @norms(ptr {space['key_norm']}, i64 0, ptr {k}, ptr {space['key_rows']}, i64 {here}, "
                    f"i64 {p['depth']}, i64 {self.one})"
                )

                def part(r0: str) -> None:
                    rows = f.min(p["part"], f.sub(count, r0))
                    reach, any_key = self.reached(f, bounds, f.add(first, r0), rows, j0, here)

                    def work() -> None:
                        columns = self.padded(f, reach)
                        q = f.at(space["q"], f.mul(f.mul(r0, p["depth"]), size))
                        self.call_product(
                            f, "", q, 0, space["keys"], k_panel, space["lines"], p["depth"], space["scores"],
                            score_row, rows, columns, 0,
                        )  # fmt: skip

                        def highest(i: str) -> None:
                            r = f.add(r0, i)
                            lo_i, hi_i, mask = self.row_reach(f, bounds, space, start, first, r, j0, reach)
                            f.line(
                                f"call void @raise(ptr {f.at(space['scores'], f.mul(i, score_row))}, i64 {lo_i}, "
                                f"i64 {hi_i}, i64 {columns}, ptr {mask}, i64 {p['mask_step']}, "
                                f"ptr {f.at(space['largest'], f.mul(r, size))}, "
                                f"ptr {f.at(space['total'], f.mul(r, size))}, "
                                f"ptr {f.at(space['sums'], f.mul(r, sum_bytes))}, i64 {sum_bytes}, "
                                f"ptr {f.at(space['query_norms'], f.mul(r, size))}, ptr {space['key_norm']})"
                            )

                        def weigh(i: str) -> None:
                            r = f.add(r0, i)
                            largest, total = (f.at(space[name], f.mul(r, size)) for name in ("largest", "total"))
                            f.line(
                                f"call void @weigh(ptr {f.at(space['scores'], f.mul(i, score_row))}, i64 {columns}, "
                                f"ptr {largest}, ptr {total}{self.counter(f, space, start, r, j0)}{self.draws(p)})"
                            )

                        def several(i: str) -> None:
                            # Rows in flight together, which stay in the innermost cache.
                            stop = f.min(f.add(i, self.tile.rows), rows)
                            f.loop(i, stop, 1, highest)
                            f.loop(i, stop, 1, weigh)

                        f.loop(0, rows, self.tile.rows, several)
                        self.call_product(
                            f, "direct", space["scores"], score_row, space["values"], v_panel, space["lines"], reach,
                            f.at(space["sums"], f.mul(r0, sum_bytes)), sum_bytes, rows, p["width"], 1,
                        )  # fmt: skip

                    def look() -> None:
                        f.when(self.is_seen(f, p, space, start, r0, rows, j0, reach), work)

                    f.when(any_key, look)

                f.loop(0, count, p["part"], part)

            f.loop(self.block_of_keys(f, p, lo), hi, p["key_block"], keys)
            out = f.at(bases["out"], f.mul(f.mul(first_row, p["width"]), size))
            lse = f.at(bases["lse"], f.mul(first_row, size))
            f.loop(0, count, 1, lambda i: f.line(
                f"call void @finish(ptr {f.at(space['largest'], f.mul(i, size))}, "
                f"ptr {f.at(space['total'], f.mul(i, size))}, ptr {f.at(space['sums'], f.mul(i, sum_bytes))}, "
                f"i64 {p['width']}, ptr {f.at(out, f.mul(f.mul(i, p['width']), size))}, "
                f"ptr {f.at(lse, f.mul(i, size))})"
            ))  # fmt: skip

        f.loop("%lo", "%hi", 1, task)
        return self._finish() + f.text()

    def _finish(self) -> str:
        """A query's sums over its total, and the logarithm to base 2 of the sum of exponentials; 0 where it saw no
        key."""
        f = self.function(
            "finish", ("ptr", "largest"), ("ptr", "total"), ("ptr", "sums"), ("i64", "width"), ("ptr", "out"),
            ("ptr", "lse"),
        )  # fmt: skip
        b, dtype = f.b, self.sum_dtype
        kind, zero = b.type(self.register), b.const(0, self.register)
        total = b.load_scalar(dtype, "%total")
        none = b.cmp("eq", total, zero)  # else the largest score alone adds 1
        divisor = b.select(none, b.const(1, self.register), total)
        log = emit_instruction(b, "log2", dtype, (dtype,), [divisor])
        b.store_scalar(dtype, "%lse", b.select(none, zero, b.add(b.load_scalar(dtype, "%largest"), log)))
        kept = f.variable(kind)
        f.set(kept, divisor.ref, kind)
        gone = f.variable("i1")
        f.set(gone, b.first(none), "i1")

        def vector(j: str) -> None:
            divisor = Value(f.get(kept, kind), self.register)
            value = b.fdiv(b.load(dtype, f.at("%sums", f.mul(j, self.sum_size))), divisor)
            value = b.select(b.splat(f.get(gone, "i1"), "i1"), zero, value)
            b.store(dtype, f.at("%out", f.mul(j, self.sum_size)), value, b.mask_below(f.sub("%width", j)))

        self.vectors(f, "%width", vector)
        return f.text()
