"""Kernels that the contraction engine calls on blocks of their domain, while these are in the cache.

A launch's parameters say where the kernel's loops begin and how long they are, so a kernel runs on some rows and some
columns of its domain with a changed copy of them. What it reads or writes in scratch instead of in memory has the slot
that holds 0: its offset then is an address.
"""

from __future__ import annotations

from .function import Function, Scalar
from .packing import Packing

#: A kernel on blocks: its address (0: none), 1 if the value that it shares with the product is in scratch alone, the
#: number of its parameters, where the extent of its columns is among them, the number of parameters that move with the
#: first column and the number of its accesses in scratch; then the parameters; (position, step) for each of those that
#: move; and for each access in scratch the position of its offset.
CALL = ("function", "only", "count", "columns", "moves", "accesses")
#: Before the CALL of a kernel that computes an operand: bytes of a row of the value that it computes and of an element;
#: bytes from row to row of a block in scratch; bytes in the value from row to row of A (or column to column of B), and
#: from one k to the next; the same two in scratch.
LEAD = ("row_bytes", "element", "block_row", "free_step", "k_step", "free_place", "k_place")


class BlockCalls(Packing):
    """Writes the functions that call kernels on blocks."""

    def block_calls(self) -> list[str]:
        """The functions."""
        return [self._call_on_block(), self._lead()]

    def _call_on_block(self) -> str:
        """Call a kernel on rows ``row`` to ``row + count`` and columns ``column`` to ``column + width``; ``block`` is
        where the first of these elements is in scratch."""
        f = self.function(
            "call_on_block", ("ptr", "record"), ("ptr", "slots"), ("ptr", "copy"), ("i64", "row"), ("i64", "count"),
            ("i64", "column"), ("i64", "width"), ("ptr", "block"), ("i64", "block_row"), ("ptr", "scratch"),
        )  # fmt: skip
        field = {name: f.word("%record", i) for i, name in enumerate(CALL)}
        given = f.at("%record", 8 * len(CALL))
        f.loop(0, field["count"], 1, lambda i: f.set_word("%copy", i, f.word(given, i)))
        f.set_word("%copy", field["columns"], "%width")
        moves = f.at(given, f.mul(field["count"], 8))

        def move(i: str) -> None:
            position, step = f.word(moves, f.mul(i, 2)), f.word(moves, f.add(f.mul(i, 2), 1))
            f.set_word("%copy", position, f.add(f.word("%copy", position), f.mul(step, "%column")))

        f.loop(0, field["moves"], 1, move)
        accesses = f.at(moves, f.mul(field["moves"], 16))

        def redirect(i: str) -> None:
            # The address that row 0 would have.
            address = f.emit("ptrtoint ptr %block to i64")
            f.set_word("%copy", f.word(accesses, i), f.sub(address, f.mul("%row", "%block_row")))

        f.loop(0, field["accesses"], 1, redirect)
        function = f.emit(f"inttoptr i64 {field['function']} to ptr")
        end = f.add("%row", "%count")
        f.line(f"call void {function}(ptr %slots, ptr %copy, i64 %row, i64 {end}, ptr %scratch)")
        return f.text()

    def _lead(self) -> str:
        """Compute ``free`` rows of A (or columns of B) and ``ks`` elements along k of an operand into ``block``.

        place: what would be the address of the first of them, were the operand's value at address 0.
        """
        f = self.function(
            "lead", ("ptr", "record"), ("ptr", "slots"), ("ptr", "copy"), ("ptr", "place"), ("i64", "free"),
            ("i64", "ks"), ("ptr", "block"), ("ptr", "scratch"),
        )  # fmt: skip
        field = {name: f.word("%record", i) for i, name in enumerate(LEAD)}
        position = f.emit("ptrtoint ptr %place to i64")
        row, column = f.div(position, field["row_bytes"]), f.rem(position, field["row_bytes"])
        # The value's columns are those of k, or else its rows are.
        along_k = f.test("eq", field["k_place"], field["element"])
        rows, columns = f.choose(along_k, "%free", "%ks"), f.choose(along_k, "%ks", "%free")
        f.line(
            f"call void @call_on_block(ptr {f.at('%record', 8 * len(LEAD))}, ptr %slots, ptr %copy, i64 {row}, "
            f"i64 {rows}, i64 {f.div(column, field['element'])}, i64 {columns}, ptr %block, "
            f"i64 {field['block_row']}, ptr %scratch)"
        )
        return f.text()

    def table(self, f: Function, out: str, step: Scalar, count: Scalar, padded: Scalar) -> None:
        """Offsets ``step`` bytes apart; the last of ``count`` again up to ``padded``."""
        f.line(f"call void @table(ptr {out}, i64 {step}, i64 {count}, i64 {padded})")
