"""The copy of an operand into one panel: for each step of k the elements of its rows, one after the other.

Where the elements lie is known only at run time, from tables of offsets (packing.py). A panel whose rows follow each
other is read in vectors of rows; one whose steps of k do, in squares that are transposed; an image, whose rows are
shorter than a panel, by its pieces; what is left, element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .function import Scalar
from .values import Value

if TYPE_CHECKING:
    from .packing import Packing

PREFETCHED = 24  # steps of k from what is copied to what is fetched for later
NEIGHBOURS = 8  # panels that are packed together
LINE_BYTES = 64  # of the caches


class Panel:
    """Writes the function that packs a panel of ``rows`` rows (of A, or columns of B).

    k_run: the offsets along k follow each other. The last vector may be written up to a vector beyond the panel.
    """

    def __init__(self, packing: Packing, rows: int, name: str = "") -> None:
        self.packing = packing
        self.rows = rows
        self.lanes = packing.tile.lanes
        self.size = packing.size
        self.sum_size = packing.sum_size
        self.step = rows * packing.sum_size  # bytes of the panel for a step of k
        self.f = packing.function(
            name or f"pack{rows}", ("ptr", "out"), ("ptr", "base"), ("ptr", "rows"), ("ptr", "ks"), ("i64", "count"),
            ("i64", "k_run"),
        )  # fmt: skip
        self.packed = self.f.variable()  # steps of k that are done

    def text(self) -> str:
        """The function ``packN``."""
        f = self.f
        is_run = f.variable()
        f.line(f"call void @is_run(ptr {is_run}, ptr %rows, i64 {self.rows})")
        f.set(self.packed, 0)
        f.when(
            f.test("ne", f.get(is_run), 0),
            lambda: self.along_rows(self.packing.as_vectors(self.rows)),
            self.across,
        )
        return f.text()

    def along_rows(self, vectors: list[tuple[int, int]]) -> None:
        """Rows that follow each other: for each k, vectors of (first row, lanes)."""
        f = self.f
        base = f.at("%base", f.word("%rows", 0))
        step = f.sub(f.word("%ks", f.min(1, f.sub("%count", 1))), f.word("%ks", 0))
        # Of windows the next step is on the same line, and what comes from far is the next panel.
        overlaps = f.test("ult", f.add(step, LINE_BYTES), 2 * LINE_BYTES)
        ahead = f.choose(overlaps, self.rows * self.size + LINE_BYTES // 2, f.mul(step, PREFETCHED))

        def one(k: str, number: int) -> None:
            place = f.add(k, number)
            source, out = f.at(base, f.word("%ks", place)), f.at("%out", f.mul(place, self.step))
            f.b.prefetch(f.at(source, ahead))
            for first, lanes in vectors:
                b = f.b.at_width(lanes)
                value = self.packing.load(b, f.at(source, first * self.size))
                b.store(self.packing.sum_dtype, f.at(out, first * self.sum_size), value)

        f.unrolled("%count", one)

    def across(self) -> None:
        """Rows that lie apart."""
        f = self.f
        f.when(f.test("ne", "%k_run", 0), self._along_k)
        f.when(self._is_untouched(), self._in_pieces)
        f.loop(f.get(self.packed), "%count", 1, self._column)

    def _is_untouched(self) -> str:
        return self.f.test("eq", self.f.get(self.packed), 0)

    def _along_k(self) -> None:
        """All whole squares."""
        f = self.f
        whole = f.emit(f"and i64 %count, {-self.lanes}")
        f.loop(0, whole, self.lanes, self._square)
        f.set(self.packed, whole)

    def _square(self, k: str) -> None:
        """Steps k to k + lanes of all rows, whose offsets along k follow each other."""
        f, lanes = self.f, self.lanes
        base, out = f.at("%base", f.word("%ks", k)), f.at("%out", f.mul(k, self.step))
        for first in range(0, self.rows, lanes):
            here = min(lanes, self.rows - first)
            places = [f.at(base, f.word("%rows", first + row)) for row in range(here)]
            vectors = [self.packing.load(f.b, place) for place in places]
            vectors += [vectors[-1]] * (lanes - here)
            for i, vector in enumerate(self.packing.transpose(f, vectors)):
                self.packing.store_rows(f, f.at(out, i * self.step + first * self.sum_size), vector, here, self.rows)

    def _column(self, k: str) -> None:
        """Step k of all rows, element by element."""
        f = self.f
        one = f.b.at_width(1)
        source, out = f.at("%base", f.word("%ks", k)), f.at("%out", f.mul(k, self.step))
        for row in range(self.rows):
            value = self.packing.load(one, f.at(source, f.word("%rows", row)))
            one.store(self.packing.sum_dtype, f.at(out, row * self.sum_size), value)

    def _in_pieces(self) -> None:
        f = self.f
        if self.rows == self.packing.tile.columns:
            length, breaks, repeats = f.variable(), f.variable(), f.variable()
            f.line(f"call void @runs(ptr {length}, ptr {breaks}, ptr {repeats}, ptr %rows, i64 {self.rows})")
            run, broken = f.get(length), f.get(breaks)
            # The end of a matrix within a panel: all behind the first run is its last offset again.
            repeated = f.test("eq", broken, f.get(repeats))
            only = f.emit(f"and i1 {repeated}, {f.test('eq', f.add(run, broken), self.rows)}")
            f.when(f.emit(f"and i1 {only}, {f.test('sgt', run, 1)}"), lambda: self._in_one_run(run))
            # The rows of an image that is narrower than a panel: each lane from one of two places.
            last, second = f.word("%rows", f.sub(run, 1)), f.word("%rows", run)
            twice = f.emit(f"and i1 {f.test('eq', broken, 1)}, {f.test('sgt', second, last)}")
            f.when(f.emit(f"and i1 {twice}, {self._is_untouched()}"), lambda: self._in_two_runs(run, second))
        f.when(self._is_untouched(), self._in_runs_of_k)

    def _lanes_below(self, length: str) -> list[tuple[int, Callable[[], Value]]]:
        """For each vector of rows its first, and which of its lanes are below ``length``."""
        f = self.f
        kind = f.b.type("i1")
        found: list[tuple[int, Callable[[], Value]]] = []
        for start in range(0, self.rows, self.lanes):
            mask = f.variable(kind)
            f.set(mask, f.b.mask_below(f.max(f.sub(length, start), 0)).ref, kind)
            found.append((start, partial(lambda place: Value(f.get(place, kind), "i1"), mask)))
        return found

    def _in_one_run(self, length: str) -> None:
        """Vectors of the first ``length`` rows, which follow each other; the lanes of the others are 0."""
        f = self.f
        base = f.at("%base", f.word("%rows", 0))
        vectors = self._lanes_below(length)

        def one(k: str) -> None:
            source, out = f.at(base, f.word("%ks", k)), f.at("%out", f.mul(k, self.step))
            for start, below in vectors:
                value = self.packing.load(f.b, f.at(source, start * self.size), below())
                f.b.store(self.packing.sum_dtype, f.at(out, start * self.sum_size), value)

        f.loop(0, "%count", 1, one)
        f.set(self.packed, "%count")

    def _in_two_runs(self, length: str, second: str) -> None:
        """Vectors of the first ``length`` rows, which follow each other, and of the others, which do from ``second``
        on, further behind. Both are read as long as the panel: what is read too much lies between the first row and
        the last. (Masks would take twice as long.)"""
        f = self.f
        bases = [f.at("%base", f.word("%rows", 0)), f.at("%base", f.sub(second, f.mul(length, self.size)))]
        vectors = self._lanes_below(length)
        last = f.sub("%count", 1)

        def one(k: str, number: int) -> None:
            place = f.add(k, number)
            offset, out = f.word("%ks", place), f.at("%out", f.mul(place, self.step))
            later = f.word("%ks", f.min(f.add(place, PREFETCHED), last))
            for run, beside in zip(bases, (0, self.rows * self.size - 1), strict=True):
                f.b.prefetch(f.at(f.at(run, later), beside))
            for start, below in vectors:
                here, there = (self.packing.load(f.b, f.at(f.at(run, offset), start * self.size)) for run in bases)
                f.b.store(self.packing.sum_dtype, f.at(out, start * self.sum_size), f.b.select(below(), here, there))

        f.unrolled("%count", one)
        f.set(self.packed, "%count")

    def _in_runs_of_k(self) -> None:
        """The pixels of an image, row by row: squares as far as a row goes."""
        f, lanes = self.f, self.lanes

        def take(pack: Callable[[str], None], k: str, steps: Scalar) -> None:
            pack(k)
            f.set(self.packed, f.add(k, steps))

        def advance() -> None:
            k = f.get(self.packed)
            first, wrong = f.word("%ks", k), f.variable()
            last = f.sub(f.word("%ks", f.add(k, lanes - 1)), first)
            f.set(wrong, f.sub(last, (lanes - 1) * self.size))

            def look() -> None:
                for i in range(1, lanes - 1):
                    difference = f.sub(f.sub(f.word("%ks", f.add(k, i)), first), i * self.size)
                    f.set(wrong, f.emit(f"or i64 {f.get(wrong)}, {difference}"))

            f.when(f.test("eq", f.get(wrong), 0), look)
            is_run = f.test("eq", f.get(wrong), 0)
            f.when(is_run, lambda: take(self._square, k, lanes), lambda: take(self._column, k, 1))

        f.repeat(lambda: f.test("sle", f.add(f.get(self.packed), lanes), "%count"), advance)


def neighbours(packing: Packing) -> str:
    """``pack_neighbours``: panels of B side by side, ``panel_bytes`` apart. Where all their columns follow each other,
    long pieces of rows are read: a piece for one panel is often all that would be read of a page."""
    columns, lanes = packing.tile.columns, packing.tile.lanes
    f = packing.function(
        "pack_neighbours", ("ptr", "out"), ("i64", "panel_bytes"), ("ptr", "base"), ("ptr", "columns"), ("ptr", "ks"),
        ("i64", "count"), ("i64", "k_run"),
    )  # fmt: skip
    is_run = f.variable()
    f.line(f"call void @is_run(ptr {is_run}, ptr %columns, i64 {NEIGHBOURS * columns})")

    def together() -> None:
        base = f.at("%base", f.word("%columns", 0))
        ahead = f.mul(f.sub(f.word("%ks", f.min(1, f.sub("%count", 1))), f.word("%ks", 0)), PREFETCHED)
        panels = [f.at("%out", f.mul("%panel_bytes", panel)) for panel in range(NEIGHBOURS)]

        def one(k: str) -> None:
            source = f.at(base, f.word("%ks", k))
            place = f.mul(k, columns * packing.sum_size)
            for at in range(0, NEIGHBOURS * columns * packing.size, LINE_BYTES):
                f.b.prefetch(f.at(source, f.add(ahead, at)))
            for panel, out in enumerate(panels):
                for first in range(0, columns, lanes):
                    value = packing.load(f.b, f.at(source, (panel * columns + first) * packing.size))
                    f.b.store(packing.sum_dtype, f.at(out, f.add(place, first * packing.sum_size)), value)

        f.loop(0, "%count", 1, one)

    def singly() -> None:
        def one(panel: str) -> None:
            f.line(
                f"call void @pack{columns}(ptr {f.at('%out', f.mul(panel, '%panel_bytes'))}, ptr %base, "
                f"ptr {f.at('%columns', f.mul(panel, 8 * columns))}, ptr %ks, i64 %count, i64 %k_run)"
            )

        f.loop(0, NEIGHBOURS, 1, one)

    f.when(f.test("ne", f.get(is_run), 0), together, singly)
    return f.text()
