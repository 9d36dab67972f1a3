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
from .target import Target
from .values import REGISTER, STORAGE_SIZE, Value

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


def pack(p: Packing, half: str, rows: int) -> str:
    """``packN`` (see packing.py), with a lane for each two of ``count`` steps of k."""
    f = p.function(
        f"pack{rows}", ("ptr", "out"), ("ptr", "base"), ("ptr", "rows"), ("ptr", "ks"), ("i64", "count"),
        ("i64", "k_run"),
    )  # fmt: skip
    is_run, packed = f.variable(), f.variable()
    f.line(f"call void @is_run(ptr {is_run}, ptr %rows, i64 {rows})")
    f.set(packed, 0)
    stored = "uint16" if p.dtype == "bfloat16" else p.dtype
    lanes, step = p.tile.lanes, rows * STORAGE_SIZE[WORD]
    pairs = f.div("%count", 2)

    def words(b: VectorBuilder, elements: Value) -> Value:
        """``elements``, twice the width of ``b``, as its lanes."""
        wide = b.at_width(2 * b.width)
        return b.pure(f"bitcast {wide.typed(wide.cast(elements, half))} to {b.type('i32')}", "i32")

    def interleaved(b: VectorBuilder, places: list[str]) -> Value:
        """The lanes of elements at one or two steps of k."""
        found = [b.load(stored, place) for place in places]
        first, second = (*found, b.const(0, REGISTER[stored]))[:2]
        order = ", ".join(f"i32 {i + side * b.width}" for i in range(b.width) for side in (0, 1))
        both = f"shufflevector {b.typed(first)}, {b.typed(second)}, <{2 * b.width} x i32> <{order}>"
        return words(b, b.at_width(2 * b.width).pure(both, first.dtype))

    def each_pair(start: Scalar, body: Callable[[str, list[str]], None]) -> None:
        """``body(out, sources)``: where the pair's lanes go, and where the elements at its steps of k are."""

        def one(number: Scalar, steps: list[str]) -> None:
            body(f.at("%out", f.mul(number, step)), [f.at("%base", f.word("%ks", k)) for k in steps])

        def whole(number: str) -> None:
            k = f.mul(number, 2)
            one(number, [k, f.add(k, 1)])

        f.loop(start, pairs, 1, whole)
        f.when(f.test("ne", f.rem("%count", 2), 0), lambda: one(pairs, [f.sub("%count", 1)]))

    def along_rows() -> None:
        begin = f.word("%rows", 0)

        def body(out: str, sources: list[str]) -> None:
            sources = [f.at(source, begin) for source in sources]
            for first, width in p.as_vectors(rows):
                b = f.b.at_width(width)
                found = interleaved(b, [f.at(source, first * p.size) for source in sources])
                b.store(WORD, f.at(out, first * STORAGE_SIZE[WORD]), found)

        each_pair(0, body)

    def along_k() -> None:
        base = f.at("%base", f.word("%ks", 0))
        wide = f.b.at_width(2 * lanes)

        def square(number: str) -> None:
            out, begin = f.at("%out", f.mul(number, step)), f.at(base, f.mul(number, 2 * p.size))
            for first in range(0, rows, lanes):
                here = min(lanes, rows - first)
                read = [wide.load(stored, f.at(begin, f.word("%rows", first + row))) for row in range(here)]
                vectors = [words(f.b, elements) for elements in read]
                vectors += [vectors[-1]] * (lanes - here)
                for i, vector in enumerate(p.transpose(f, vectors)):
                    p.store_rows(f, f.at(out, i * step + first * STORAGE_SIZE[WORD]), vector, here, rows)

        squares = f.emit(f"and i64 {pairs}, {-lanes}")
        f.loop(0, squares, lanes, square)
        f.set(packed, squares)

    def one_by_one() -> None:
        b = f.b.at_width(1)

        def body(out: str, sources: list[str]) -> None:
            for row in range(rows):
                offset = f.word("%rows", row)
                found = interleaved(b, [f.at(source, offset) for source in sources])
                b.store(WORD, f.at(out, row * STORAGE_SIZE[WORD]), found)

        each_pair(f.get(packed), body)

    def across() -> None:
        f.when(f.test("ne", "%k_run", 0), along_k)
        one_by_one()

    f.when(f.test("ne", f.get(is_run), 0), along_rows, across)
    return f.text()
