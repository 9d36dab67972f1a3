"""Indexing by NumPy's rules: ``x[index]``, ``x[index] = value``, ``x.at[index].add(value)``, ``take``.

What an index means is worked out in index_plan.py. A mask has to be evaluated to know how many elements it picks, so
reading through one inside ``jit`` raises TraceError and names ``where``; writing a value that broadcasts through a mask
needs no count and works everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..graph.state import state
from ..interop import has_plain_value, numpy_to_node, part_of
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf
from ..ops import movement as move
from ..shapes import Shape, broadcast_shapes, normalize_axis, size_of
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, scalar_node
from .index_plan import IndexArray, Plan, Slice, checked_index, classify, resolve, resolve_int

SMALL = 1 << 14  # elements

# -- x[index] ----------------------------------------------------------------------------------------------------------


def get_item(tensor: Tensor, index: Any) -> Tensor:
    """``tensor[index]``."""
    node = tensor.node
    is_plain = has_plain_value(node)
    if type(index) is int and is_plain and node.shape:
        start = resolve_int(index, node.shape[0], 0)
        rest = node.shape[1:]
        return Tensor(part_of(node, rest, start * size_of(rest)))
    if is_plain and type(index) is Tensor and not index.node.shape and has_plain_value(index.node):
        if index.node.dtype.kind in "iu" and node.shape:
            return get_item(tensor, int(index.node.buffer.numpy((), index.node.dtype.numpy)))  # type: ignore[union-attr]
    plan = resolve(index, node.shape)
    if node.buffer is None or state.trace is not None or plan.arrays:
        return Tensor(get_node(node, plan))
    part = _contiguous_part(node, plan) or _small_part(node, plan)
    if is_plain:
        return Tensor(get_node(node, plan) if part is None else part)
    # A derivative needs the way that the elements came; their values are there.
    result = get_node(node, plan)
    if part is not None and result.buffer is None:
        result.buffer = part.buffer
    return Tensor(result)


def _contiguous_part(node: Node, plan: Plan) -> Node | None:
    """``node[index]`` as a part of its memory, or None where it does not lie there in one piece."""
    offset, stride = 0, node.size
    shape = []
    is_cut = False  # from here on every axis must be whole
    axis = 0
    for entry in plan.entries:
        if entry is None:
            shape.append(1)
            continue
        extent = plan.merged[axis]
        axis += 1
        if extent == 0:
            return None
        stride //= extent
        if isinstance(entry, Slice):
            whole = entry.step == 1 and entry.length == extent
            if not whole and (is_cut or entry.step != 1 or not entry.length):
                return None
            is_cut = is_cut or extent > 1
            offset += entry.start * stride
            shape.append(entry.length)
        else:
            if is_cut:
                return None
            offset += entry * stride  # type: ignore[operator]  # an int: the index is basic
    return part_of(node, tuple(shape), offset)


def _small_part(node: Node, plan: Plan) -> Node | None:
    """``node[index]`` copied at once, or None where it is large.

    A view with other bounds is another program; ``x[:, i]`` in a loop over i would be planned anew each time, which
    takes longer than the copy of a few thousand elements.
    """
    kept = [e for e in plan.entries if isinstance(e, Slice)]
    if size_of([e.length for e in kept]) > SMALL or node.buffer is None:
        return None
    index: list[Any] = []
    for entry in plan.entries:
        if isinstance(entry, Slice):
            stop = entry.start + entry.step * entry.length
            index.append(slice(entry.start, stop if stop >= 0 else None, entry.step) if entry.length else slice(0, 0))
        else:
            index.append(entry)
    whole = node.buffer.numpy(node.shape, node.dtype.numpy)
    copy = leaf.data(np.array(whole[tuple(index)], order="C"), False)
    copy.weak = node.weak
    return copy


def get_node(node: Node, plan: Plan) -> Node:
    """The elements that ``plan`` picks."""
    node = _reshape(node, plan.merged)
    starts, stops, steps, reversed_axes = [], [], [], []
    kept: list[int] = []  # extents after the basic part
    array_axes: list[int] = []
    arrays: list[Node] = []
    place = 0  # how many kept axes stand before the first advanced entry
    seen_advanced = False
    beside_arrays = bool(plan.arrays)
    axis = 0
    for entry in plan.entries:
        if entry is None:
            kept.append(1)
            continue
        extent = plan.merged[axis]
        start, stop, step = 0, extent, 1
        if isinstance(entry, Slice):
            if entry.length == 0:
                stop = 0
            elif entry.step > 0:
                start, step = entry.start, entry.step
                stop = start + step * (entry.length - 1) + 1
            else:
                stop, step = entry.start + 1, -entry.step
                start = entry.start + entry.step * (entry.length - 1)
                reversed_axes.append(axis)
            kept.append(entry.length)
        else:
            if beside_arrays and not seen_advanced:
                place, seen_advanced = len(kept), True
            if isinstance(entry, IndexArray):
                array_axes.append(len(kept))
                arrays.append(entry.positions)
                kept.append(extent)
            else:
                start, stop = entry, entry + 1
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        axis += 1
    node = move.slice(node, tuple(starts), tuple(stops), tuple(steps))
    node = _reshape(move.flip(node, tuple(reversed_axes)), tuple(kept))
    if not arrays:
        return node
    shape = broadcast_index_shapes(arrays)
    node = index_ops.gather(node, [_broadcast(a, shape) for a in arrays], tuple(array_axes))
    rank, front = len(node.shape), len(shape)
    if plan.together and place and front:
        order = (*range(front, front + place), *range(front), *range(front + place, rank))
        node = move.permute(node, order)
    return node


def broadcast_index_shapes(arrays: Sequence[Node]) -> Shape:
    """The common shape of index arrays; IndexError if they do not broadcast, as in NumPy."""
    try:
        return broadcast_shapes(*[a.shape for a in arrays], op="index")
    except ShapeError as error:
        raise IndexError(f"index arrays do not broadcast together: {error}") from None


def _broadcast(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else move.broadcast_to(node, shape)


def _reshape(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else move.reshape(node, shape)


# -- x[index] = value --------------------------------------------------------------------------------------------------


def set_item(node: Node, index: Any, value: ArrayLike) -> Node:
    """``node`` after ``node[index] = value``."""
    return update(node, index, value, "set")


def update(node: Node, index: Any, value: ArrayLike, mode: Any) -> Node:
    """``node`` with ``value`` combined in at ``index``; mode: set, add, multiply, min or max.

    Raises IndexError, ShapeError if the value does not broadcast to ``node[index]``, DTypeError if it does not cast.
    """
    given = stored_node(value, node.dtype, "x[index] = value")
    mask = _lone_mask(index)
    if mask is not None:
        written = _write_through_mask(node, mask, given, mode)
        if written is not None:
            return written
    plan = resolve(index, node.shape)
    if not plan.arrays and _fills_much(plan):
        return _write_region(node, plan, given, mode)
    return _write_scattered(node, plan, given, mode)


def stored_node(value: ArrayLike, dtype: DType, op: str) -> Node:
    """``value`` as something that a tensor of ``dtype`` can hold: DTypeError if that would lose its kind."""
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        if dtypes.promote_weak(dtype, dtypes.of_scalar(value)) is not dtype:
            raise DTypeError(f"{op}: {value!r} cannot be stored in a tensor of dtype {dtype.name}")
        return scalar_node(value, dtype, op=op)
    given = as_node(value, None, op)
    if not (given.weak or dtypes.can_cast(given.dtype, dtype, "same_kind")):
        raise DTypeError(f"{op}: {given.dtype.name} cannot be stored in {dtype.name}; use value.astype(...)")
    return cast_node(given, dtype)


_COMBINE: dict[str, Any] = {
    "add": ops.add, "multiply": ops.multiply, "min": ops.minimum, "max": ops.maximum,
}


def _combine(mode: str, old: Node, new: Node) -> Node:
    if mode == "set":
        return new
    if old.dtype.kind == "b" and mode in ("min", "max"):
        return ops.logical_and(old, new) if mode == "min" else ops.logical_or(old, new)
    return _COMBINE[mode](old, new)


def _lone_mask(index: Any) -> Node | None:
    """The mask, if the index is nothing else (or a mask and '...')."""
    if isinstance(index, tuple):
        if (len(index) == 2 and index[1] is Ellipsis) or len(index) == 1:
            index = index[0]
        else:
            return None
    if index is None or index is Ellipsis or isinstance(index, slice | int):
        return None
    node = classify(index)
    return node if type(node) is Node and node.dtype.kind == "b" else None


def _write_through_mask(node: Node, mask: Node, value: Node, mode: str) -> Node | None:
    """The masked write as a choice between old and new, or None if the value has an entry for each picked element."""
    count = len(mask.shape)
    if mask.shape != node.shape[:count]:
        return None  # resolve() says what is wrong
    rest = node.shape[count:]
    shape = value.shape
    if len(shape) > len(rest) and size_of(shape[: len(shape) - len(rest)]) == 1:
        shape = shape[len(shape) - len(rest) :]
    if len(shape) > len(rest) or broadcast_shapes(shape, rest, op="x[mask] = value") != rest:
        return None
    value = _reshape(value, shape)
    mask = _reshape(mask, mask.shape + (1,) * len(rest))
    return ops.where(mask, _broadcast(_combine(mode, node, value), node.shape), node)


def _fills_much(plan: Plan) -> bool:
    """Whether a region is best written in one pass over the whole array: it is a large part of it, or is cut out of
    several axes, where single writes would need as many index lists."""
    region, partial = 1, 0
    axis = 0
    for entry in plan.entries:
        if entry is None:
            continue
        extent = plan.merged[axis]
        if isinstance(entry, Slice):
            region *= entry.length
            partial += entry.length != extent
        axis += 1
    return region * 4 >= size_of(plan.merged) or partial > 1


def _fit_value(value: Node, shape: Shape) -> Node:
    """``value`` broadcast to the shape of ``x[index]``; extra leading axes of extent 1 are dropped, as in NumPy."""
    extra = len(value.shape) - len(shape)
    if extra > 0 and size_of(value.shape[:extra]) == 1:
        value = move.reshape(value, value.shape[extra:])
    if len(value.shape) > len(shape) or broadcast_shapes(value.shape, shape, op="x[index] = value") != shape:
        raise ShapeError(f"x[index] = value: shape {value.shape} does not broadcast to {shape}, the shape of x[index]")
    return _broadcast(value, shape)


def _write_region(node: Node, plan: Plan, value: Node, mode: str) -> Node:
    """A basic index: the value spread over the array's shape, chosen where the region is."""
    shape: list[int] = []  # of x[index]
    spread: list[int] = []  # the same without new axes, ints as extent 1
    low, high, interior, reversed_axes = [], [], [], []
    axis = 0
    for entry in plan.entries:
        if entry is None:
            shape.append(1)
            continue
        extent = plan.merged[axis]
        if isinstance(entry, Slice):
            shape.append(entry.length)
            count, step = entry.length, abs(entry.step)
            first = entry.start if entry.step > 0 else entry.start + entry.step * (count - 1)
            if entry.step < 0:
                reversed_axes.append(axis)
            if not count:
                return node
        else:
            first, count, step = entry, 1, 1  # type: ignore[assignment]  # an int: the index is basic
        spread.append(count)
        low.append(first)
        high.append(extent - first - step * (count - 1) - 1)
        interior.append(step - 1)
        axis += 1
    value = _fit_value(value, tuple(shape))
    if tuple(spread) == node.shape and not reversed_axes:
        return _combine(mode, node, _reshape(value, node.shape))
    value = move.flip(_reshape(value, tuple(spread)), tuple(reversed_axes))
    edges = tuple(low), tuple(high), tuple(interior)
    spread_value = move.pad(value, scalar_node(0, node.dtype), *edges)
    inside = move.pad(leaf.full(tuple(spread), True, dtypes.bool_), scalar_node(False, dtypes.bool_), *edges)
    return ops.where(inside, _combine(mode, node, spread_value), node)


def _write_scattered(node: Node, plan: Plan, value: Node, mode: Any) -> Node:
    """Any index: one scatter whose index grid covers the arrays and the slices that do not take a whole axis."""
    arrays = [e.positions for e in plan.arrays]
    array_shape = broadcast_index_shapes(arrays) if arrays else ()
    # The axes of x[index] other than the arrays' own, in order: slices and new axes.
    kept = [e for e in plan.entries if e is None or isinstance(e, Slice)]
    kept_shape = tuple([1 if e is None else e.length for e in kept])
    place = 0
    if plan.together and arrays:
        first = next(i for i, e in enumerate(plan.entries) if isinstance(e, int | IndexArray))
        place = sum(1 for e in plan.entries[:first] if e is None or isinstance(e, Slice))
    value = _fit_value(value, kept_shape[:place] + array_shape + kept_shape[place:])
    front = len(array_shape)
    if place and front:
        rank = len(value.shape)
        value = move.permute(value, (*range(place, place + front), *range(place), *range(place + front, rank)))

    extents = [extent for extent, e in zip(plan.merged, [e for e in plan.entries if e is not None], strict=True)
               if isinstance(e, Slice)]
    slices = [e for e in kept if e is not None]
    value = _reshape(value, array_shape + tuple([e.length for e in slices]))
    whole = [e.step == 1 and e.length == extent for e, extent in zip(slices, extents, strict=True)]
    partial = [i for i, w in enumerate(whole) if not w]
    order = (*range(front), *[front + i for i in partial], *[front + i for i, w in enumerate(whole) if w])
    if order != tuple(range(len(order))):
        value = move.permute(value, order)
    grid = array_shape + tuple([slices[i].length for i in partial])

    indices: list[Node] = []
    axes: list[int] = []
    used = 0
    position = 0
    for axis, entry in enumerate([e for e in plan.entries if e is not None]):
        if isinstance(entry, IndexArray):
            lined_up = _broadcast(entry.positions, array_shape)
            index = _broadcast(_reshape(lined_up, array_shape + (1,) * len(partial)), grid)
        elif isinstance(entry, Slice):
            is_whole = whole[position]
            position += 1
            if is_whole:
                continue
            index = leaf.iota(grid, front + used, dtypes.int64)
            if entry.step != 1:
                index = ops.multiply(index, entry.step)
            if entry.start:
                index = ops.add(index, entry.start)
            used += 1
        else:
            index = leaf.full(grid, entry, dtypes.int64)
        indices.append(index)
        axes.append(axis)
    merged = _reshape(node, plan.merged)
    if not indices:
        return _reshape(_combine(mode, merged, value), node.shape)
    if node.dtype.kind == "b" and mode in ("add", "multiply"):
        raise DTypeError(f"x.at[index].{mode}: a bool tensor has no {mode}; cast it with x.astype(...)")
    return _reshape(index_ops.scatter(merged, value, indices, tuple(axes), mode), node.shape)


class At:
    """``x.at``: indexed updates that leave ``x`` alone and return the changed tensor."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getitem__(self, index: Any) -> IndexedUpdate:
        return IndexedUpdate(self._tensor, index)


class IndexedUpdate:
    """``x.at[index]``. With repeated indices ``add``, ``multiply``, ``min`` and ``max`` apply each value in turn."""

    __slots__ = ("_index", "_tensor")

    def __init__(self, tensor: Tensor, index: Any) -> None:
        self._tensor = tensor
        self._index = index

    def _update(self, value: ArrayLike, mode: str) -> Tensor:
        return Tensor(update(self._tensor.node, self._index, value, mode))

    def get(self) -> Tensor:
        """``x[index]``."""
        return get_item(self._tensor, self._index)

    def set(self, value: ArrayLike) -> Tensor:
        """``x`` after ``x[index] = value``; of repeated indices the last wins."""
        return self._update(value, "set")

    def add(self, value: ArrayLike) -> Tensor:
        """``x`` with ``value`` added at ``index``."""
        return self._update(value, "add")

    def subtract(self, value: ArrayLike) -> Tensor:
        """``x`` with ``value`` subtracted at ``index``."""
        from .unary import negative

        return self._update(negative(value), "add")

    def multiply(self, value: ArrayLike) -> Tensor:
        """``x`` multiplied by ``value`` at ``index``."""
        return self._update(value, "multiply")

    mul = multiply

    def min(self, value: ArrayLike) -> Tensor:
        """``x`` with the smaller of it and ``value`` at ``index``."""
        return self._update(value, "min")

    def max(self, value: ArrayLike) -> Tensor:
        """``x`` with the larger of it and ``value`` at ``index``."""
        return self._update(value, "max")


# -- functions ---------------------------------------------------------------------------------------------------------


def integer_node(indices: ArrayLike, op: str) -> Node:
    """The node of an array of integers; DTypeError for another dtype (an empty list is one of int64)."""
    if isinstance(indices, np.ndarray):
        node = numpy_to_node(indices, None, True, op)
    else:
        node = as_node(indices, None, op)
    if node.dtype.kind not in "iu":
        if node.size == 0:
            return leaf.data(np.zeros(node.shape, np.int64), False)
        raise DTypeError(f"{op}: indices must be integers, got {node.dtype.name}")
    return node


def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None, mode: str = "raise") -> Tensor:
    """Elements at ``indices`` along ``axis``, whose place the axes of ``indices`` take; negative indices count back.

    axis: None takes from the flattened array.
    mode: of an index out of range "raise" makes an IndexError, "wrap" its remainder by the size, "clip" the nearest
        index (0 for a negative one, which then does not count back). ArgumentError for another mode.
    Repeated indices add their gradients.
    """
    node = as_node(x, None, "take")
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    a = normalize_axis(axis, len(node.shape), "take")
    index = _index_within(integer_node(indices, "take"), node.shape[a], a, mode)
    gathered = index_ops.gather(node, [index], (a,))
    front = len(index.shape)
    if a and front:
        rank = len(gathered.shape)
        gathered = move.permute(gathered, (*range(front, front + a), *range(front), *range(front + a, rank)))
    return Tensor(gathered)


def _index_within(index: Node, extent: int, axis: int, mode: str) -> Node:
    if mode == "raise":
        return checked_index(index, extent, axis)
    if mode not in ("wrap", "clip"):
        raise ArgumentError(f"take: mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    if not extent and index.size:
        raise IndexError(f"take: axis {axis} with size 0 has no elements")
    if mode == "clip":
        highest = min(extent - 1, dtypes.integer_limits(index.dtype)[1])
        return cast_node(ops.clip(index, 0, max(highest, 0)), dtypes.int64)
    if index.dtype is not dtypes.uint64:
        return ops.remainder(cast_node(index, dtypes.int64), max(extent, 1))
    return cast_node(ops.remainder(index, max(extent, 1)), dtypes.int64)


def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int = -1) -> Tensor:
    """``out[..., i, ...] = x[..., indices[..., i, ...], ...]``: one index list for each line along ``axis``.

    ``indices`` has x's rank and broadcasts against it on the other axes.
    """
    node = as_node(x, None, "take_along_axis")
    rank = len(node.shape)
    a = normalize_axis(axis, rank, "take_along_axis")
    index = integer_node(indices, "take_along_axis")
    if len(index.shape) != rank:
        raise ShapeError(f"take_along_axis: the ranks of indices {index.shape} and array {node.shape} differ")
    return Tensor(take_along_node(node, checked_index(index, node.shape[a], a), a))


def take_along_node(node: Node, index: Node, axis: int) -> Node:
    """See :func:`take_along_axis`; ``index`` is in range."""
    lines = node.shape[:axis] + (1,) + node.shape[axis + 1 :]
    common = broadcast_shapes(lines, index.shape[:axis] + (1,) + index.shape[axis + 1 :], op="take_along_axis")
    return index_ops.take_along(node, _broadcast(index, (*common[:axis], index.shape[axis], *common[axis + 1 :])), axis)
