"""Windows that slide along an axis: a view whose elements overlap, and its transpose, which adds what they share."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape
from . import movement
from .family import Array, rank_error
from .record import Linear, Op
from .reduction import reduce_sum
from .registry import register


def _infer_windows(inputs: tuple[Node, ...], axis: int, size: int, step: int) -> tuple[Shape, DType]:
    (x,) = inputs
    if not 0 <= axis < len(x.shape) or not 1 <= size <= x.shape[axis] or step < 1:
        raise rank_error("windows", f"there are no windows of {size} every {step} along axis {axis}", x)
    count = (x.shape[axis] - size) // step + 1
    return (*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype


def _windows_reference(node: Node, x: Array) -> Array:
    axis, size, step = node.attrs
    every = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return every[(slice(None),) * axis + (slice(None, None, step),)]


WINDOWS = register(Op(
    "windows", "view", _infer_windows, _windows_reference,
    Linear(lambda node, cotangent, index: overlap_add(cotangent, node.attrs[0], node.attrs[2], node.inputs[0].shape)),
    lambda node, inputs, batched, size: windows(inputs[0], node.attrs[0] + 1, *node.attrs[1:]),
    "windows", 0.0, ("axis", "size", "step"),
    "windows of `size` elements, one every `step` along an axis; their elements along a new last axis",
))


def windows(x: Node, axis: int, size: int, step: int) -> Node:
    """Windows of ``size`` elements, one every ``step``: their number in the place of ``axis``, their elements last."""
    return bind(WINDOWS, (x,), (axis, size, step), x.weak)


def overlap_add(x: Node, axis: int, step: int, shape: Shape) -> Node:
    """The transpose of :func:`windows` into ``shape``: each element is the sum of what the windows hold of it.

    The graph is as short for long windows as for short ones: a window is cut in blocks of ``step``, and rows of
    length m + 1 that are read with length m are each shifted by one more block.
    """
    rank = len(shape)
    count, size = x.shape[axis], x.shape[rank]
    blocks = -(-size // step)
    total = count - 1 + blocks
    x = movement.move_axis(x, axis, rank - 1)
    lead = x.shape[: rank - 1]
    none = (0,) * (rank - 1)
    x = movement.pad(x, 0, (0,) * (rank + 1), (*none, 0, blocks * step - size))
    if blocks > 1:
        x = movement.reshape(x, (*lead, count, blocks, step))
        x = movement.move_axis(x, rank, rank - 1)
        x = movement.pad(x, 0, (0,) * (rank + 2), (*none, 0, blocks, 0))  # rows of total + 1 blocks
        x = movement.reshape(x, (*lead, blocks * (total + 1), step))
        x = movement.slice_axis(x, rank - 1, 0, blocks * total)
        x = reduce_sum(movement.reshape(x, (*lead, blocks, total, step)), (rank - 1,))
    x = movement.reshape(x, (*lead, total * step))
    missing = shape[axis] - total * step  # below 0 where the last window was filled up
    x = movement.pad(x, 0, (0,) * rank, (*none, missing))
    return movement.move_axis(x, rank - 1, axis)
