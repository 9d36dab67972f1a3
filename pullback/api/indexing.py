"""Indexing by NumPy's rules: ``x[index]``, ``x[index] = value``, ``x.at[index].add(value)``, ``take``.

An index is built of ints, slices, ``...``, ``None``, integer arrays and boolean masks. Ints and NumPy arrays are
checked at once; integer tensors when the graph runs (their values may not be known before), with the same IndexError. A
mask has to be evaluated to know how many elements it picks, so inside ``jit`` it raises TraceError and names ``where``;
writing a value that broadcasts through a mask needs no count and works everywhere.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..graph.node import Node
from ..interop import is_traced, materialize, numpy_to_node
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf
from ..ops import movement as move
from ..shapes import Shape, broadcast_shapes, normalize_axis, size_of
from .convert import ArrayLike, as_node, cast_node, scalar_node

if TYPE_CHECKING:
    from ..tensor import Tensor


class _Slice(NamedTuple):
    """A slice of one axis, its bounds counted from the front; ``step`` may be negative."""

    start: int
    step: int
    length: int


class _Array(NamedTuple):
    """An integer array on one axis: in range, int64."""

    positions: Node


_Entry = int | _Slice | _Array | None  # None is a new axis


class Plan(NamedTuple):
    """An index resolved against a shape.

    merged: the array's shape after each mask's axes have become one; every entry but None then takes one axis.
    together: whether the array entries (ints count as such beside arrays) stand next to each other, so that their axes
    stay in place; else the axes go to the front.
    """

    merged: Shape
    entries: tuple[_Entry, ...]
    together: bool

    @property
    def arrays(self) -> list[_Array]:
        return [e for e in self.entries if isinstance(e, _Array)]


# -- reading an index --------------------------------------------------------------------------------------------------


def _is_int(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _classify(entry: Any) -> Any:
    """An index entry as an int, a slice, None, Ellipsis, or a node of integers or bools."""
    from ..tensor import Tensor

    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if _is_int(entry):
        return int(entry)
    if isinstance(entry, Tensor):
        node = entry.node
    elif isinstance(entry, bool | np.bool_):
        return leaf.constant(bool(entry), dtypes.bool_)
    elif isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 0:
        return leaf.data(np.zeros((0,), np.int64), False)
    elif isinstance(entry, np.ndarray | Sequence) and not isinstance(entry, str):
        node = as_node(entry, None, "index")
    elif hasattr(entry, "__index__"):
        return operator.index(entry)
    else:
        raise IndexError(
            f"only integers, slices, '...', None, integer or boolean arrays are indices, got {type(entry).__name__}"
        )
    if node.dtype.kind not in "biu":
        raise IndexError(f"arrays used as indices must be of integer or bool dtype, got {node.dtype.name}")
    return node


def _taken_axes(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    if type(entry) is Node and entry.dtype.kind == "b":
        return len(entry.shape)
    return 1


def _resolve_slice(entry: slice, extent: int) -> _Slice:
    try:
        start, stop, step = entry.indices(extent)
    except TypeError as error:
        raise IndexError(f"slice bounds must be integers or None, got {entry}") from error
    return _Slice(start, step, len(range(start, stop, step)))


def _resolve_int(entry: int, extent: int, axis: int) -> int:
    if not -extent <= entry < extent:
        raise IndexError(f"index {entry} is out of bounds for axis {axis} with size {extent}")
    return entry + extent if entry < 0 else entry


def checked_index(node: Node, extent: int, axis: int) -> Node:
    """Integer positions on an axis, counted from the front; IndexError at once where the values are already known."""
    if node.op is leaf.DATA and node.buffer is not None and not is_traced(node) and node.size <= 1 << 16:
        values = node.buffer.numpy(node.shape, node.dtype.numpy)
        outside = (values >= extent) | ((values < -extent) if node.dtype.kind == "i" else False)
        if outside.any():
            value = int(np.asarray(values)[outside].flat[0])
            raise IndexError(f"index {value} is out of bounds for axis {axis} with size {extent}")
    return ops.check_index(node, extent, f"index into axis {axis}")


def _mask_positions(mask: Node, shape: Shape, first: int) -> Node:
    """Where a mask over the axes from ``first`` on holds, counted along these axes merged into one."""
    for offset, extent in enumerate(mask.shape):
        if shape[first + offset] != extent:
            raise IndexError(
                f"boolean index of shape {mask.shape} does not match shape {shape} along axis {first + offset}: "
                f"{extent} against {shape[first + offset]}"
            )
    values = materialize(mask, "indexing by a boolean mask (the number of true elements becomes an extent)")
    return leaf.data(np.flatnonzero(values), False)


def resolve(index: Any, shape: Shape) -> Plan:
    """The plan of ``index`` for an array of ``shape``; IndexError if it does not fit."""
    entries = [_classify(entry) for entry in (index if isinstance(index, tuple) else (index,))]
    taken = sum(map(_taken_axes, entries))
    rank = len(shape)
    if taken > rank:
        raise IndexError(f"too many indices: {taken} for an array of {rank} axes (shape {shape})")
    ellipses = [position for position, entry in enumerate(entries) if entry is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    full = [slice(None)] * (rank - taken)
    where = ellipses[0] if ellipses else len(entries)
    separated = bool(ellipses)  # an ellipsis parts its neighbours even where it stands for no axis
    entries[where : where + 1] = full if not separated or full else [Ellipsis]

    merged: list[int] = []
    resolved: list[_Entry] = []
    advanced: list[int] = []
    axis = 0
    has_array = any(type(entry) is Node for entry in entries)
    for position, entry in enumerate(entries):
        if entry is Ellipsis:
            continue
        if entry is None:
            resolved.append(None)
            continue
        if type(entry) is Node:
            advanced.append(position)
            if entry.dtype.kind == "b":
                count = len(entry.shape)
                resolved.append(_Array(_mask_positions(entry, shape, axis)))
                merged.append(size_of(shape[axis : axis + count]))
                axis += count
                continue
            resolved.append(_Array(checked_index(entry, shape[axis], axis)))
        elif isinstance(entry, slice):
            resolved.append(_resolve_slice(entry, shape[axis]))
        else:
            if has_array:
                advanced.append(position)
            resolved.append(_resolve_int(entry, shape[axis], axis))
        merged.append(shape[axis])
        axis += 1
    together = not advanced or advanced[-1] - advanced[0] + 1 == len(advanced)
    return Plan(tuple(merged), tuple(resolved), together)


# -- x[index] ----------------------------------------------------------------------------------------------------------


def get_item(tensor: Tensor, index: Any) -> Tensor:
    """``tensor[index]``."""
    from ..tensor import Tensor

    node = tensor.node
    if type(index) is int and node.shape:
        extent = node.shape[0]
        start = _resolve_int(index, extent, 0)
        return Tensor(move.reshape(move.slice_axis(node, 0, start, start + 1), node.shape[1:]))
    return Tensor(get_node(node, resolve(index, node.shape)))


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
        if isinstance(entry, _Slice):
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
            if isinstance(entry, _Array):
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
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        if dtypes.promote_weak(node.dtype, dtypes.of_scalar(value)) is not node.dtype:
            raise DTypeError(f"x[index] = value: {value!r} cannot be stored in a tensor of dtype {node.dtype.name}")
        given = scalar_node(value, node.dtype)
    else:
        given = as_node(value, None, "x[index] = value")
        if not (given.weak or dtypes.can_cast(given.dtype, node.dtype, "same_kind")):
            raise DTypeError(
                f"x[index] = value: {given.dtype.name} cannot be stored in {node.dtype.name}; use value.astype(...)"
            )
        given = cast_node(given, node.dtype)
    mask = _lone_mask(index)
    if mask is not None:
        written = _write_through_mask(node, mask, given, mode)
        if written is not None:
            return written
    plan = resolve(index, node.shape)
    if not plan.arrays and _fills_much(plan):
        return _write_region(node, plan, given, mode)
    return _write_scattered(node, plan, given, mode)


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
    node = _classify(index)
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
        if isinstance(entry, _Slice):
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
        if isinstance(entry, _Slice):
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
    kept = [e for e in plan.entries if e is None or isinstance(e, _Slice)]
    kept_shape = tuple([1 if e is None else e.length for e in kept])
    place = 0
    if plan.together and arrays:
        first = next(i for i, e in enumerate(plan.entries) if isinstance(e, int | _Array))
        place = sum(1 for e in plan.entries[:first] if e is None or isinstance(e, _Slice))
    value = _fit_value(value, kept_shape[:place] + array_shape + kept_shape[place:])
    front = len(array_shape)
    if place and front:
        rank = len(value.shape)
        value = move.permute(value, (*range(place, place + front), *range(place), *range(place + front, rank)))

    extents = [extent for extent, e in zip(plan.merged, [e for e in plan.entries if e is not None], strict=True)
               if isinstance(e, _Slice)]
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
        if isinstance(entry, _Array):
            lined_up = _broadcast(entry.positions, array_shape)
            index = _broadcast(_reshape(lined_up, array_shape + (1,) * len(partial)), grid)
        elif isinstance(entry, _Slice):
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
        from ..tensor import Tensor

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
        from .elementwise import negative

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


def _integers(indices: ArrayLike, op: str) -> Node:
    if isinstance(indices, np.ndarray):
        node = numpy_to_node(indices, None, True, op)
    else:
        node = as_node(indices, None, op)
    if node.dtype.kind not in "iu":
        if node.size == 0:
            return leaf.data(np.zeros(node.shape, np.int64), False)
        raise DTypeError(f"{op}: indices must be integers, got {node.dtype.name}")
    return node


def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None) -> Tensor:
    """Elements at ``indices`` along ``axis``, whose place the axes of ``indices`` take; negative indices count back.

    axis: None takes from the flattened array. IndexError for an index out of range.
    """
    from ..tensor import Tensor

    node = as_node(x, None, "take")
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    a = normalize_axis(axis, len(node.shape), "take")
    index = checked_index(_integers(indices, "take"), node.shape[a], a)
    gathered = index_ops.gather(node, [index], (a,))
    front = len(index.shape)
    if a and front:
        rank = len(gathered.shape)
        gathered = move.permute(gathered, (*range(front, front + a), *range(front), *range(front + a, rank)))
    return Tensor(gathered)


def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int = -1) -> Tensor:
    """``out[..., i, ...] = x[..., indices[..., i, ...], ...]``: one index list for each line along ``axis``.

    ``indices`` has x's rank and broadcasts against it on the other axes.
    """
    from ..tensor import Tensor

    node = as_node(x, None, "take_along_axis")
    rank = len(node.shape)
    a = normalize_axis(axis, rank, "take_along_axis")
    index = _integers(indices, "take_along_axis")
    if len(index.shape) != rank:
        raise ShapeError(f"take_along_axis: the ranks of indices {index.shape} and array {node.shape} differ")
    return Tensor(take_along_node(node, checked_index(index, node.shape[a], a), a))


def take_along_node(node: Node, index: Node, axis: int) -> Node:
    """See :func:`take_along_axis`; ``index`` is in range."""
    lines = node.shape[:axis] + (1,) + node.shape[axis + 1 :]
    common = broadcast_shapes(lines, index.shape[:axis] + (1,) + index.shape[axis + 1 :], op="take_along_axis")
    grid = (*common[:axis], index.shape[axis], *common[axis + 1 :])
    indices = []
    for a in range(len(grid)):
        if a == axis:
            indices.append(_broadcast(index, grid))
        elif node.shape[a] == 1:
            indices.append(leaf.full(grid, 0, dtypes.int64))
        else:
            indices.append(leaf.iota(grid, a, dtypes.int64))
    return index_ops.gather(node, indices, tuple(range(len(grid))))


def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Positions of the elements that are not 0, an int64 tensor an axis. Evaluates ``x``: TraceError in ``jit``."""
    from ..tensor import Tensor

    node = as_node(x, None, "nonzero")
    if not node.shape:
        raise ShapeError("nonzero: a 0-d tensor has no positions; use pb.atleast_1d")
    values = materialize(node, "nonzero (its result's shape)")
    return tuple([Tensor(leaf.data(np.ascontiguousarray(p), False)) for p in np.nonzero(values)])
