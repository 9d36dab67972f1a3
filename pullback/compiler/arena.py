"""Where blocks of memory that are needed for some time each lie in one arena, so that it is small."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from ..runtime.buffers import padded

MANY_BLOCKS = 400  # from which not all are compared with each other

Block = tuple[int, int, int]  # bytes, the first and the last wave that need it


def place(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """The offset of each block, and the bytes of the whole.

    Placing the largest first finds the smallest arenas, but compares each block with all before it. Of many blocks
    those that hold most of the memory are placed so, and the others behind them wave by wave; or all of them wave by
    wave, if that is no worse.
    """
    order = sorted(range(len(blocks)), key=lambda number: -blocks[number][0])
    ordered = [(padded(max(1, nbytes)), first, last) for nbytes, first, last in map(blocks.__getitem__, order)]
    found, size = _largest_first(ordered[:MANY_BLOCKS])
    if len(ordered) > MANY_BLOCKS:
        behind, more = _wave_by_wave(ordered[MANY_BLOCKS:])
        found += [size + offset for offset in behind]
        size += more
        alternative, other_size = _wave_by_wave(ordered)
        if other_size <= size:
            found, size = alternative, other_size
    offsets = [0] * len(blocks)
    for number, offset in zip(order, found, strict=True):
        offsets[number] = offset
    return offsets, size


def _largest_first(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Each block where it fits first between those that are needed at the same time."""
    placed: list[tuple[int, int, int, int]] = []  # start, end, first wave, last wave; in order
    offsets = []
    size = 0
    for room, first, last in blocks:
        start = 0
        for other_start, other_end, other_first, other_last in placed:
            if other_first <= last and first <= other_last and other_start < start + room and start < other_end:
                start = other_end
        insort(placed, (start, start + room, first, last))
        offsets.append(start)
        size = max(size, start + room)
    return offsets, size


def _wave_by_wave(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Each block, when its first wave comes, in the smallest hole where it fits that others have left."""
    beginning: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for number, (_, first, last) in enumerate(blocks):
        beginning.setdefault(first, []).append(number)
        ending.setdefault(last + 1, []).append(number)
    holes = _Holes()
    offsets = [0] * len(blocks)
    for wave in sorted({*beginning, *ending}):
        for number in ending.get(wave, ()):
            holes.give(offsets[number], blocks[number][0])
        for number in beginning.get(wave, ()):
            offsets[number] = holes.take(blocks[number][0])
    return offsets, holes.size


class _Holes:
    """The free parts of an arena that grows where none of them is large enough."""

    def __init__(self) -> None:
        self.size = 0
        self._by_size: list[tuple[int, int]] = []  # size and start, in order
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}

    def take(self, room: int) -> int:
        """The start of so many bytes."""
        position = bisect_left(self._by_size, (room, 0))
        if position < len(self._by_size):
            size, start = self._by_size[position]
            self._remove(start, size)
            if size > room:
                self._add(start + room, size - room)
            return start
        start = self.size
        last = self._by_end.get(start)
        if last is not None:  # the hole at the end grows
            start -= last
            self._remove(start, last)
        self.size = start + room
        return start

    def give(self, start: int, room: int) -> None:
        """Make bytes free again; they are one hole with those that touch them."""
        before, behind = self._by_end.get(start), self._by_start.get(start + room)
        if before is not None:
            self._remove(start - before, before)
            start, room = start - before, room + before
        if behind is not None:
            self._remove(start + room, behind)
            room += behind
        self._add(start, room)

    def _add(self, start: int, size: int) -> None:
        insort(self._by_size, (size, start))
        self._by_start[start] = self._by_end[start + size] = size

    def _remove(self, start: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, start))]
        del self._by_start[start], self._by_end[start + size]
