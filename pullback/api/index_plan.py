"""What an index means for an array: its entries checked against the shape and written down as a plan.

Indexing follows NumPy. An index is built of ints, slices, ``...``, ``None``, integer arrays and boolean masks. Ints and
NumPy arrays are checked at once; computed integer tensors when the graph runs, with the same IndexError. A mask has to
be evaluated to know how many elements it picks.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import TraceError
from ..graph.node import Node
from ..interop import is_traced, materialize
from ..ops import elementwise as ops
from ..ops import leaf
from ..shapes import Shape, size_of
from ..tensor import Tensor
from .convert import as_node


class Slice(NamedTuple):
    """A slice of one axis, its bounds counted from the front; ``step`` may be negative."""

    start: int
    step: int
    length: int


class IndexArray(NamedTuple):
    """An integer array on one axis: in range, int64."""

    positions: Node


Entry = int | Slice | IndexArray | None  # None is a new axis


class Plan(NamedTuple):
    """An index resolved against a shape.

    merged: the array's shape after each mask's axes have become one; every entry but None then takes one axis.
    together: whether the array entries (ints count as such beside arrays) stand next to each other, so that their axes
    stay in place; else the axes go to the front.
    """

    merged: Shape
    entries: tuple[Entry, ...]
    together: bool

    @property
    def arrays(self) -> list[IndexArray]:
        return [e for e in self.entries if isinstance(e, IndexArray)]


# -- reading an index --------------------------------------------------------------------------------------------------


def _is_int(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def classify(entry: Any) -> Any:
    """An index entry as an int, a slice, None, Ellipsis, or a node of integers or bools."""
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


def _resolve_slice(entry: slice, extent: int) -> Slice:
    try:
        start, stop, step = entry.indices(extent)
    except TraceError as error:
        raise TraceError(
            f"{error}. (A slice of a traced start has no known extent: index with start + pb.arange(n), to read or set "
            "n elements from there on)"
        ) from None
    except TypeError as error:
        raise IndexError(f"slice bounds must be integers or None, got {entry}") from error
    return Slice(start, step, len(range(start, stop, step)))


def resolve_int(entry: int, extent: int, axis: int) -> int:
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


def _resolve_plain(entries: tuple[Any, ...], shape: Shape) -> Plan | None:
    """The plan of an index of ints, slices and new axes that fits, which most are; None for any other."""
    rank = len(shape)
    resolved: list[Entry] = []
    axis = 0
    for entry in entries:
        if entry is None:
            resolved.append(None)
            continue
        if axis == rank:
            return None
        extent = shape[axis]
        if entry.__class__ is int:
            if not -extent <= entry < extent:
                return None
            resolved.append(entry + extent if entry < 0 else entry)
        elif entry.__class__ is slice:
            is_whole = entry.start is None and entry.stop is None and entry.step is None
            resolved.append(Slice(0, 1, extent) if is_whole else _resolve_slice(entry, extent))
        else:
            return None
        axis += 1
    for extent in shape[axis:]:
        resolved.append(Slice(0, 1, extent))
    return Plan(shape, tuple(resolved), True)


def resolve(index: Any, shape: Shape) -> Plan:
    """The plan of ``index`` for an array of ``shape``; IndexError if it does not fit."""
    plan = _resolve_plain(index if index.__class__ is tuple else (index,), shape)
    if plan is not None:
        return plan
    entries = [classify(entry) for entry in (index if isinstance(index, tuple) else (index,))]
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
    resolved: list[Entry] = []
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
                resolved.append(IndexArray(_mask_positions(entry, shape, axis)))
                merged.append(size_of(shape[axis : axis + count]))
                axis += count
                continue
            resolved.append(IndexArray(checked_index(entry, shape[axis], axis)))
        elif isinstance(entry, slice):
            resolved.append(_resolve_slice(entry, shape[axis]))
        else:
            if has_array:
                advanced.append(position)
            resolved.append(resolve_int(entry, shape[axis], axis))
        merged.append(shape[axis])
        axis += 1
    together = not advanced or advanced[-1] - advanced[0] + 1 == len(advanced)
    return Plan(tuple(merged), tuple(resolved), together)
