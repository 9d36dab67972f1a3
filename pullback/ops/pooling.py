"""Windows over the last axes of an array: their largest elements, their sums, and the transposes of both.

Nothing here copies windows. A window is a view, folded where it is read; and a transpose does not write windows out to
add them up, but visits, for each element of the array, the few windows that hold it. With ``step`` s, element
``b * s + r`` of an axis lies in window ``b + d`` for the same few d whatever b is: so an array is read in blocks of s
elements, and all that depends on r and d is a small table.

The four operations on windows are each other's derivatives, which is what their rules say:

    window_sum(x)          the sum of each window's elements
    spread_windows(y)      its transpose: to each element the sum of y over the windows that hold it
    window_take(x, slot)   of each window the element that ``slot`` names
    window_put(y, slot)    its transpose: y at the element that each window's slot names
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..graph.node import Node
from ..shapes import size_of
from . import elementwise as e
from . import leaf, movement
from .custom import Rule, custom_call, custom_result
from .family import Array
from .indexing import gather
from .reduction import reduce_max, reduce_min, reduce_sum, sum_to
from .windows import windows

MAX_UNROLLED = 16  # slots of a window, or windows that hold an element, up to which each is code of its own


@dataclass(frozen=True)
class Window:
    """The windows along one axis of ``extent`` elements: ``count`` of them, window o holding the elements
    ``o * step - low + a * dilation`` for a in range(size), of which some may lie outside, in the padding."""

    extent: int
    size: int
    step: int
    dilation: int
    low: int
    count: int

    @property
    def span(self) -> int:
        """Elements from a window's first to its last."""
        return (self.size - 1) * self.dilation + 1

    @property
    def high(self) -> int:
        """Padding after the last element; negative where elements at the end are in no window."""
        return (self.count - 1) * self.step + self.span - self.low - self.extent

    @property
    def padded(self) -> bool:
        return self.low > 0 or self.high > 0

    @property
    def blocks(self) -> int:
        """Blocks of ``step`` elements that the axis is read in by a transpose."""
        return -(-self.extent // self.step)

    @property
    def reach(self) -> tuple[int, int]:
        """The smallest and the largest d for which elements of block b lie in window b + d."""
        return -((self.span - 1 - self.low) // self.step), (self.step - 1 + self.low) // self.step

    def positions(self) -> Array:
        """(count, size): which element each window holds at each place; negative or at least ``extent`` outside."""
        starts = np.arange(self.count)[:, None] * self.step - self.low
        return starts + np.arange(self.size) * self.dilation


Windows = tuple[Window, ...]


# -- views and tables --------------------------------------------------------------------------------------------------


def window_view(x: Node, axes: Windows, fill: Any) -> Node:
    """The windows over the last axes of ``x``: the windows' numbers in the place of these axes, their places last."""
    rank, n = len(x.shape), len(axes)
    lead = rank - n
    none = (0,) * lead
    x = _padded(x, fill, (*none, *[w.low for w in axes]), (*none, *[w.high for w in axes]))
    for i, w in enumerate(axes):
        x = windows(x, lead + i, w.span, w.step)
        if w.dilation > 1:
            x = movement.slice_axis(x, rank + i, 0, w.span, w.dilation)
    return x


def _slot_views(x: Node, axes: Windows, fill: Any) -> list[Node]:
    """For each slot its element of every window: :func:`window_view`, slot by slot."""
    lead = len(x.shape) - len(axes)
    none, front = (0,) * lead, x.shape[:lead]
    x = _padded(x, fill, (*none, *[w.low for w in axes]), (*none, *[w.high for w in axes]))
    steps = (*(1,) * lead, *[w.step for w in axes])
    views = []
    for place in itertools.product(*[range(w.size) for w in axes]):
        starts = [a * w.dilation for a, w in zip(place, axes)]
        stops = [start + (w.count - 1) * w.step + 1 for start, w in zip(starts, axes)]
        views.append(movement.slice(x, (*none, *starts), (*front, *stops), steps))
    return views


def _padded(x: Node, fill: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Node:
    """``x`` padded with a number that is part of the code, so that a derivative finds the same value made before."""
    return movement.pad(x, leaf.constant(fill, x.dtype, static=True), low, high)


def _blocks_view(y: Node, axes: Windows, fill: Any) -> Node:
    """For each element of the array, one value for each window that may hold it: first the windows, then the other
    axes, then for each axis its blocks and an axis of extent 1 for the places in a block."""
    rank, n = len(y.shape), len(axes)
    lead = rank - n
    low, high, spans = [0] * lead, [0] * lead, []
    for w in axes:
        first, last = w.reach
        spans.append(last - first + 1)
        low.append(-first)
        high.append(w.blocks + last - w.count)
    y = _padded(y, fill, tuple(low), tuple(high))
    for i, span in enumerate(spans):
        y = windows(y, lead + i, span, 1)
    y = movement.permute(y, (*range(rank, rank + n), *range(rank)))
    blocks = [extent for w in axes for extent in (w.blocks, 1)]
    return movement.reshape(y, (*spans, *y.shape[n : n + lead], *blocks))


def _joined_blocks(y: Node, axes: Windows) -> Node:
    """The blocks of each axis one after another, without what is beyond its end."""
    lead = len(y.shape) - 2 * len(axes)
    front = y.shape[:lead]
    y = movement.reshape(y, (*front, *[w.blocks * w.step for w in axes]))
    return movement.slice(y, (0,) * len(y.shape), (*front, *[w.extent for w in axes]))


@lru_cache(maxsize=256)
def _held_slots(axes: Windows) -> Array:
    """(windows that may hold an element..., places in a block...): the slot under which they do, else the number of
    slots."""
    n = len(axes)
    slots: Array = np.zeros((1,) * 2 * n, np.int64)
    held: Array = np.ones((1,) * 2 * n, bool)
    for i, w in enumerate(axes):
        first, last = w.reach
        at = np.arange(w.step) + w.low - w.step * np.arange(first, last + 1)[:, None]
        inside = (at >= 0) & (at % w.dilation == 0) & (at // w.dilation < w.size)
        shape = [1] * 2 * n
        shape[i], shape[n + i] = at.shape
        slots = slots * w.size + (at // w.dilation).reshape(shape)
        held = held & inside.reshape(shape)
    none = _slots(axes)
    return np.where(held, slots, none).astype(np.int32)


def _held_table(axes: Windows, lead: int) -> Node:
    """:func:`_held_slots` shaped to broadcast against :func:`_blocks_view`."""
    table = _held_slots(axes)
    n = len(axes)
    places = [extent for step in table.shape[n:] for extent in (1, step)]
    return leaf.data(table.reshape(*table.shape[:n], *(1,) * lead, *places))


@lru_cache(maxsize=256)
def _first_slots(axes: Windows) -> Array:
    """The first slot of each window that is not padding."""
    slots: Array = np.zeros((1,) * len(axes), np.int64)
    for i, w in enumerate(axes):
        first = np.argmax(w.positions() >= 0, axis=1)
        slots = slots * w.size + first.reshape([-1 if i == a else 1 for a in range(len(axes))])
    return slots.astype(np.int32)


def _slots(axes: Windows) -> int:
    return size_of(w.size for w in axes)


def _lifted(x: Node, rank: int) -> Node:
    """``x`` with axes of extent 1 in front, to ``rank`` axes."""
    return movement.reshape(x, (*(1,) * (rank - len(x.shape)), *x.shape))


# -- the largest element -----------------------------------------------------------------------------------------------


def _lowest(dtype: DType) -> Any:
    return -np.inf if dtype.kind == "f" else dtypes.integer_limits(dtype)[0]


def window_max(x: Node, axes: Windows) -> Node:
    """The largest element of each window over the last axes of ``x``, NaN where there is one. Its derivative goes to
    the first of equal ones. Padding counts for nothing."""
    value = _largest(x, axes)
    if x.dtype.kind != "f":
        return value
    return custom_result(value, custom_call((x,), _MaxRule(axes)), 0)


def _largest(x: Node, axes: Windows) -> Node:
    if _slots(axes) <= MAX_UNROLLED:
        return _first_largest(x, axes)[0]  # as window_argmax has it, which then shares the work
    rank = len(x.shape)
    return reduce_max(window_view(x, axes, _lowest(x.dtype)), tuple(range(rank, rank + len(axes))))


def window_argmax(x: Node, axes: Windows) -> Node:
    """The slot (row-major place in its window, int32) of each window's first largest element, or NaN."""
    lowest = _lowest(x.dtype)
    most, slot = (_first_largest if _slots(axes) <= MAX_UNROLLED else _largest_compared)(x, axes)
    if any(w.padded for w in axes):
        # Where nothing is larger than padding, the first of all may be padding.
        first = movement.broadcast_to(leaf.data(_first_slots(axes)), slot.shape)
        slot = e.where(e.equal(most, leaf.constant(lowest, x.dtype, static=True)), first, slot)
    return slot


def _first_largest(x: Node, axes: Windows) -> tuple[Node, Node]:
    """The largest element of each window and its slot, one slot after the other."""
    most, *others = _slot_views(x, axes, _lowest(x.dtype))
    slot = leaf.full(most.shape, 0, dtypes.int32)
    for number, element in enumerate(others, 1):
        wins = e.logical_not(e.less_equal(element, most))  # so does a NaN
        if x.dtype.kind == "f":
            wins = e.logical_and(wins, e.logical_not(e.isnan(most)))
        most = e.where(wins, element, most)
        slot = e.where(wins, leaf.constant(number, dtypes.int32, static=True), slot)
    return most, slot


def _largest_compared(x: Node, axes: Windows) -> tuple[Node, Node]:
    """The same in two passes over windows of many slots: the slot is found from the largest by comparing once more,
    which in lanes of 32 bits is faster than to carry positions."""
    rank = len(x.shape)
    view = window_view(x, axes, _lowest(x.dtype))
    places = tuple(range(rank, len(view.shape)))
    most = _largest(x, axes)
    same = e.equal(view, movement.expand_dims(most, places))
    if x.dtype.kind == "f":
        same = e.logical_or(same, e.isnan(view))
    chosen = e.where(same, _names(axes), leaf.constant(_slots(axes), dtypes.int32, static=True))
    return most, reduce_min(chosen, places)


def _names(axes: Windows) -> Node:
    """0, 1, 2, ... over the places of a window."""
    sizes = tuple([w.size for w in axes])
    return leaf.data(np.arange(size_of(sizes), dtype=np.int32).reshape(sizes))


@lru_cache(maxsize=256)
def _positions(axes: Windows) -> tuple[Array, Array]:
    """Where each window starts in the array, row-major over its last axes, and how far from there each slot is."""
    starts: Array = np.zeros((1,) * len(axes), np.int64)
    distances: Array = np.zeros(1, np.int64)
    for i, w in enumerate(axes):
        along = (np.arange(w.count) * w.step - w.low).reshape([-1 if i == a else 1 for a in range(len(axes))])
        starts = starts * w.extent + along
        distances = np.add.outer(distances * w.extent, np.arange(w.size) * w.dilation).ravel()
    return starts, distances


def flat_positions(slot: Node, axes: Windows) -> Node:
    """Row-major position over the last axes of the array, int64, of what each window's ``slot`` names."""
    starts, distances = _positions(axes)
    return e.add(gather(leaf.data(distances), [e.cast(slot, dtypes.int64)], (0,)), leaf.data(starts))


# -- the linear operations ---------------------------------------------------------------------------------------------


def window_sum(x: Node, axes: Windows) -> Node:
    """The sum of each window over the last axes of ``x``; padding is 0."""
    rank = len(x.shape)
    if _slots(axes) <= MAX_UNROLLED:
        value = reduce(e.add, _slot_views(x, axes, 0))
    else:
        value = reduce_sum(window_view(x, axes, 0), tuple(range(rank, rank + len(axes))))
    return custom_result(value, custom_call((x,), _SumRule(axes)), 0)


def spread_windows(y: Node, axes: Windows) -> Node:
    """The transpose of :func:`window_sum`: to each element the sum of ``y`` over the windows that hold it."""
    view = _blocks_view(y, axes, 0)
    n = len(axes)
    held = _held_slots(axes) < _slots(axes)
    if not held.all():
        slots = leaf.constant(_slots(axes), dtypes.int32, static=True)
        table = e.less(_held_table(axes, len(y.shape) - n), slots)
        total = _sum_over(held.shape[:n], lambda at: e.where(_picked(table, at), _picked(view, at), 0))
    else:
        places = [extent for w in axes for extent in (w.blocks, w.step)]
        view = movement.broadcast_to(view, (*view.shape[: -2 * n], *places))
        total = _sum_over(held.shape[:n], lambda at: _picked(view, at))
    value = _joined_blocks(total, axes)
    return custom_result(value, custom_call((y,), _SpreadRule(axes)), 0)


def window_take(x: Node, slot: Node, axes: Windows) -> Node:
    """Of each window over the last axes of ``x`` the element that ``slot`` names; leading axes broadcast."""
    rank = max(len(x.shape), len(slot.shape))
    places = tuple(range(rank, rank + len(axes)))
    chosen = e.equal(movement.expand_dims(_lifted(slot, rank), places), _names(axes))
    value = reduce_sum(e.where(chosen, window_view(_lifted(x, rank), axes, 0), 0), places)
    return custom_result(value, custom_call((x, slot), _TakeRule(axes)), 0)


def window_put(y: Node, slot: Node, axes: Windows) -> Node:
    """The transpose of :func:`window_take`: each window's ``y`` added at the element that its ``slot`` names."""
    n = len(axes)
    rank = max(len(y.shape), len(slot.shape))
    table = _held_table(axes, rank - n)
    named = _blocks_view(_lifted(slot, rank), axes, _slots(axes))
    placed = _blocks_view(_lifted(y, rank), axes, 0)

    def part(at: tuple[int, ...] | None) -> Node:
        return e.where(e.equal(_picked(named, at), _picked(table, at)), _picked(placed, at), 0)

    value = _joined_blocks(_sum_over(table.shape[:n], part), axes)
    return custom_result(value, custom_call((y, slot), _PutRule(axes)), 0)


def _sum_over(spans: tuple[int, ...], part: Callable[[tuple[int, ...] | None], Node]) -> Node:
    """The sum of ``part`` at all positions on the first axes, of extents ``spans``: one by one, or of many as a loop,
    over what ``part`` gives without a position."""
    if size_of(spans) <= MAX_UNROLLED:
        return reduce(e.add, [part(at) for at in itertools.product(*map(range, spans))])
    return reduce_sum(part(None), tuple(range(len(spans))))


def _picked(x: Node, at: tuple[int, ...] | None) -> Node:
    """``x`` at a position on its first axes; all of it without one."""
    if at is None:
        return x
    rest = x.shape[len(at) :]
    stops = (*[a + 1 for a in at], *rest)
    return movement.reshape(movement.slice(x, (*at, *(0,) * len(rest)), stops, (1,) * len(stops)), rest)


# -- their derivatives -------------------------------------------------------------------------------------------------


class _WindowRule(Rule):
    """A rule that is the same whatever leading axes there are, so batching leaves it as it is."""

    def __init__(self, axes: Windows) -> None:
        self.axes = axes

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        return self

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        return [None if tangents[0] is None else self.forward(tangents[0], node)]

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        found = sum_to(self.transpose(cotangents[0], node), node.inputs[0].shape)
        return [found, *[None] * (len(node.inputs) - 1)]

    def forward(self, tangent: Node, node: Node) -> Node:
        raise TypeError(f"{type(self).__name__} has no tangent")

    def transpose(self, cotangent: Node, node: Node) -> Node:
        raise TypeError(f"{type(self).__name__} has no transpose")


class _MaxRule(_WindowRule):
    def forward(self, tangent: Node, node: Node) -> Node:
        return window_take(tangent, window_argmax(node.inputs[0], self.axes), self.axes)

    def transpose(self, cotangent: Node, node: Node) -> Node:
        return window_put(cotangent, window_argmax(node.inputs[0], self.axes), self.axes)


class _SumRule(_WindowRule):
    def forward(self, tangent: Node, node: Node) -> Node:
        return window_sum(tangent, self.axes)

    def transpose(self, cotangent: Node, node: Node) -> Node:
        return spread_windows(cotangent, self.axes)


class _SpreadRule(_WindowRule):
    def forward(self, tangent: Node, node: Node) -> Node:
        return spread_windows(tangent, self.axes)

    def transpose(self, cotangent: Node, node: Node) -> Node:
        return window_sum(cotangent, self.axes)


class _TakeRule(_WindowRule):
    def forward(self, tangent: Node, node: Node) -> Node:
        return window_take(tangent, node.inputs[1], self.axes)

    def transpose(self, cotangent: Node, node: Node) -> Node:
        return window_put(cotangent, node.inputs[1], self.axes)


class _PutRule(_WindowRule):
    def forward(self, tangent: Node, node: Node) -> Node:
        return window_put(tangent, node.inputs[1], self.axes)

    def transpose(self, cotangent: Node, node: Node) -> Node:
        return window_take(cotangent, node.inputs[1], self.axes)
