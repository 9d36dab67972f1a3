"""Panels of pairs: two steps of k side by side in each 32-bit lane, for instructions that multiply and add both.

Bytes and 16-bit integers become halves of int16 (``vpmaddwd``, which LLVM joins with the addition to ``vpdpwssd`` where
there is VNNI): the sums are exact, or wrap as int32 does. bfloat16 keeps its bits (``vdpbf16ps``). Where k is odd, the
last pair ends with a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .builder import VectorBuilder
from .function import Scalar
from .panels import Panel
from .target import Target
from .values import REGISTER, Value

if TYPE_CHECKING:
    from .packing import Packing

WORD = "int32"  # what holds a pair
_INTEGERS = ("int8", "uint8", "int16")


def half_of(dtype: str, target: Target) -> str | None:
    """The register dtype of each half of a lane; None where the target takes one step of k at a time."""
    if dtype in _INTEGERS and target.multiplies_pairs:
        return "i16"
    return "u16" if dtype == "bfloat16" and target.has_avx512_bf16 else None


def multiply_add(b: VectorBuilder, half: str, x: Value, y: Value, total: Value) -> Value:
    """``total`` plus the products of both halves of each lane of x and y."""
    bits = 32 * b.width
    is_float = half == "u16"
    halves = f"<{2 * b.width} x {'bfloat' if is_float else 'i16'}>"
    pairs = [f"{halves} {b.pure(f'bitcast {b.typed(v)} to {halves}', '').ref}" for v in (x, y)]
    if is_float:
        sums = b.type("f32")
        name = b.declare(f"llvm.x86.avx512bf16.dpbf16ps.{bits}", sums, sums, halves, halves)
        return b.pure(f"call {sums} {name}({b.typed(total)}, {', '.join(pairs)})", "f32")
    sums = b.type("i32")
    name = "llvm.x86.avx512.pmaddw.d.512" if bits == 512 else "llvm.x86.avx2.pmadd.wd"
    product = b.pure(f"call {sums} {b.declare(name, sums, halves, halves)}({', '.join(pairs)})", "i32")
    return b.add(product, total)


class PairPanel(Panel):
    """``packN`` with a lane for each two of ``count`` steps of k."""

    def __init__(self, packing: Packing, half: str, rows: int) -> None:
        super().__init__(packing, rows)
        self.half = half
        self.stored = "uint16" if packing.dtype == "bfloat16" else packing.dtype
        self.pairs = self.f.div("%count", 2)

    def along_rows(self, vectors: list[tuple[int, int]]) -> None:
        """Rows that follow each other: for each pair, vectors of (first row, lanes)."""
        f = self.f
        begin = f.word("%rows", 0)

        def pair(out: str, sources: list[str]) -> None:
            sources = [f.at(source, begin) for source in sources]
            for first, width in vectors:
                b = f.b.at_width(width)
                found = self._interleaved(b, [f.at(source, first * self.size) for source in sources])
                b.store(WORD, f.at(out, first * self.sum_size), found)

        self._each_pair(0, pair)

    def across(self) -> None:
        """Rows that lie apart."""
        f = self.f
        f.when(f.test("ne", "%k_run", 0), self._along_k)
        self._one_by_one()

    def _along_k(self) -> None:
        """All whole squares of steps that follow each other."""
        f, lanes = self.f, self.lanes
        base = f.at("%base", f.word("%ks", 0))
        wide = f.b.at_width(2 * lanes)

        def square(number: str) -> None:
            out, begin = f.at("%out", f.mul(number, self.step)), f.at(base, f.mul(number, 2 * self.size))
            for first in range(0, self.rows, lanes):
                here = min(lanes, self.rows - first)
                read = [wide.load(self.stored, f.at(begin, f.word("%rows", first + row))) for row in range(here)]
                vectors = [self._words(f.b, elements) for elements in read]
                vectors += [vectors[-1]] * (lanes - here)
                for i, vector in enumerate(self.packing.transpose(f, vectors)):
                    place = f.at(out, i * self.step + first * self.sum_size)
                    self.packing.store_rows(f, place, vector, here, self.rows)

        squares = f.emit(f"and i64 {self.pairs}, {-lanes}")
        f.loop(0, squares, lanes, square)
        f.set(self.packed, squares)

    def _one_by_one(self) -> None:
        f = self.f
        b = f.b.at_width(1)

        def pair(out: str, sources: list[str]) -> None:
            for row in range(self.rows):
                offset = f.word("%rows", row)
                found = self._interleaved(b, [f.at(source, offset) for source in sources])
                b.store(WORD, f.at(out, row * self.sum_size), found)

        self._each_pair(f.get(self.packed), pair)

    def _each_pair(self, start: Scalar, body: Callable[[str, list[str]], None]) -> None:
        """``body(out, sources)``: where the pair's lanes go, and where the elements at its steps of k are."""
        f = self.f

        def one(number: Scalar, steps: list[str]) -> None:
            body(f.at("%out", f.mul(number, self.step)), [f.at("%base", f.word("%ks", k)) for k in steps])

        def whole(number: str) -> None:
            k = f.mul(number, 2)
            one(number, [k, f.add(k, 1)])

        f.loop(start, self.pairs, 1, whole)
        f.when(f.test("ne", f.rem("%count", 2), 0), lambda: one(self.pairs, [f.sub("%count", 1)]))

    def _interleaved(self, b: VectorBuilder, places: list[str]) -> Value:
        """The lanes of elements at one or two steps of k."""
        found = [b.load(self.stored, place) for place in places]
        first, second = (*found, b.const(0, REGISTER[self.stored]))[:2]
        order = ", ".join(f"i32 {i + side * b.width}" for i in range(b.width) for side in (0, 1))
        both = f"shufflevector {b.typed(first)}, {b.typed(second)}, <{2 * b.width} x i32> <{order}>"
        return self._words(b, b.at_width(2 * b.width).pure(both, first.dtype))

    def _words(self, b: VectorBuilder, elements: Value) -> Value:
        """``elements``, twice the width of ``b``, as its lanes."""
        wide = b.at_width(2 * b.width)
        return b.pure(f"bitcast {wide.typed(wide.cast(elements, self.half))} to {b.type('i32')}", "i32")
