"""pad: elements added before and after those of each axis, by one of several rules.

Whatever the rule, the result is a concatenation of views of the array, and so is its gradient, in which the copies of
an element add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..graph.node import Node
from ..ops import movement as move
from ..shapes import broadcast_shapes, normalize_axis, size_of
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, scalar_node

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad(x: ArrayLike, pad_width: Any, /, mode: str = "constant", constant_values: ArrayLike = 0) -> Tensor:
    """``x`` with elements put around it, of its dtype.

    pad_width: as in NumPy: one int for all edges, ``(before, after)`` for all axes, such a pair for each axis, or a
    dict of an int or a pair for each axis that is padded.
    mode: "constant" puts ``constant_values`` (one number, or numbers laid out as ``pad_width``; tensors have a
    gradient); "edge" repeats the outermost element; "reflect" mirrors at it, "symmetric" beside it, so that it is
    repeated; "wrap" continues with the other end. A pad wider than the array goes on in the same way.

    Raises ShapeError for widths that do not fit or are negative, and for an axis without elements, which only
    "constant" can pad.
    """
    node = as_node(x, None, "pad")
    if mode not in MODES:
        raise ArgumentError(f"pad: mode {mode!r} is not one of {', '.join(map(repr, MODES))}")
    widths = _widths(pad_width, len(node.shape))
    if mode == "constant":
        return Tensor(_pad_constant(node, widths, constant_values))
    for axis, (low, high) in enumerate(widths):
        if low or high:
            node = _extend(node, axis, low, high, mode)
    return Tensor(node)


def _widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    """What comes before and after, for each axis."""
    if isinstance(pad_width, Mapping):
        widths = [(0, 0)] * rank
        for key, entry in pad_width.items():
            ((low, high),) = _widths(entry, 1)
            widths[normalize_axis(key, rank, "pad")] = low, high
        return widths
    try:
        array = np.asarray(pad_width)
        if array.shape == (0,):  # no pairs, of which NumPy cannot know that they are pairs
            array = array.reshape(0, 2)
        spread = np.broadcast_to(array, (rank, 2))
    except ValueError as error:
        raise ShapeError(
            f"pad: pad_width {pad_width!r} does not fit an array of {rank} axes: an int, a pair (before, after), or "
            f"{rank} such pairs expected"
        ) from error
    if spread.size and (array.dtype.kind not in "iu" or array.min() < 0):
        raise ShapeError(f"pad: widths must be non-negative integers, got {pad_width!r}; crop with x[start:stop]")
    return [(int(low), int(high)) for low, high in spread]


def _pad_constant(node: Node, widths: list[tuple[int, int]], constant_values: ArrayLike) -> Node:
    if not any(map(any, widths)):
        return node
    rank = len(widths)
    if isinstance(constant_values, bool | int | float):
        values = scalar_node(constant_values, node.dtype, op="pad")
    else:
        values = cast_node(as_node(constant_values, None, "pad"), node.dtype)
    low, high = tuple([w[0] for w in widths]), tuple([w[1] for w in widths])
    if size_of(values.shape) == 1:
        return move.pad(node, move.reshape(values, ()), low, high)
    if len(values.shape) > 2 or broadcast_shapes(values.shape, (rank, 2), op="pad") != (rank, 2):
        raise ShapeError(
            f"pad: constant_values of shape {values.shape} do not fit an array of {rank} axes: a number, a pair "
            f"(before, after), or {rank} such pairs expected"
        )
    table = move.broadcast_to(values, (rank, 2))
    # As in NumPy the last axis is padded last, and its values fill the corners.
    for axis in range(rank):
        for side, width in enumerate(widths[axis]):
            if width:
                value = move.reshape(move.slice(table, (axis, side), (axis + 1, side + 1)), ())
                edges = tuple([width if a == axis else 0 for a in range(rank)])
                none = (0,) * rank
                node = move.pad(node, value, *((edges, none) if side == 0 else (none, edges)))
    return node


def _extend(node: Node, axis: int, low: int, high: int, mode: str) -> Node:
    """One axis, continued in both directions."""
    extent = node.shape[axis]
    if extent == 0:
        raise ShapeError(f"pad: axis {axis} of shape {node.shape} has nothing to {mode}; mode 'constant' can pad it")
    if mode == "edge" or extent == 1:
        parts = [node]
        for width, place, position in ((low, 0, 0), (high, 2, extent - 1)):
            if width:
                outermost = move.slice_axis(node, axis, position, position + 1)
                shape = (*node.shape[:axis], width, *node.shape[axis + 1 :])
                parts.insert(place, move.broadcast_to(outermost, shape))
        return move.concat(parts, axis)
    # The continuation repeats after ``period`` elements, or mirrors after so many. While more is missing, whole periods
    # are added, which at least doubles the array: a wide pad takes few steps.
    mirrored = mode != "wrap"
    skipped = 1 if mode == "reflect" else 0
    period = extent - skipped
    while low:
        whole = (node.shape[axis] - skipped) // period * period
        count = min(low, whole)
        start = skipped if mirrored else whole - count
        node = move.concat([_piece(node, axis, start, count, mirrored), node], axis)
        low -= count
    while high:
        length = node.shape[axis]
        whole = (length - skipped) // period * period
        count = min(high, whole)
        start = length - skipped - count if mirrored else length - whole
        node = move.concat([node, _piece(node, axis, start, count, mirrored)], axis)
        high -= count
    return node


def _piece(node: Node, axis: int, start: int, count: int, mirrored: bool) -> Node:
    piece = move.slice_axis(node, axis, start, start + count)
    return move.flip(piece, (axis,)) if mirrored else piece
