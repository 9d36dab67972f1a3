"""Ops that move elements: reshape, permute, broadcast_to, slice, flip, pad, concat. All are linear.

The functions skip what changes nothing, so callers need not test for it. Axes are non-negative here.
"""

from __future__ import annotations

from builtins import slice as index_slice
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape, broadcast_shapes, size_of
from . import elementwise as e
from . import leaf, reduction
from .family import Array, Operand, as_nodes, describe, lift, mixed_error, rank_error, with_batch
from .record import Linear, Op
from .registry import register

Ints = tuple[int, ...]

# -- reshape -----------------------------------------------------------------------------------------------------------


def _infer_reshape(inputs: tuple[Node, ...], shape: Shape) -> tuple[Shape, DType]:
    (x,) = inputs
    if size_of(x.shape) != size_of(shape):
        raise rank_error("reshape", f"shape {shape} does not hold {size_of(x.shape)} elements", x)
    return shape, x.dtype


RESHAPE = register(Op(
    "reshape", "view", _infer_reshape, lambda node, x: x.reshape(node.shape),
    Linear(lambda node, cotangent, index: reshape(cotangent, node.inputs[0].shape)),
    lambda node, inputs, batched, size: reshape(inputs[0], (size, *node.shape)),
    "reshape", 0.0, ("shape",), "the same elements in row-major order under another shape",
))


def reshape(x: Node, shape: Shape) -> Node:
    """The elements of ``x`` in row-major order as ``shape`` (no -1 here)."""
    return x if x.shape == shape else bind(RESHAPE, (x,), (shape,), x.weak)


def expand_dims(x: Node, axes: Ints) -> Node:
    """``x`` with axes of extent 1 inserted so that they stand at ``axes`` of the result."""
    rest = iter(x.shape)
    return reshape(x, tuple([1 if a in axes else next(rest) for a in range(len(x.shape) + len(axes))]))


# -- permute -----------------------------------------------------------------------------------------------------------


def _infer_permute(inputs: tuple[Node, ...], perm: Ints) -> tuple[Shape, DType]:
    (x,) = inputs
    if tuple(sorted(perm)) != tuple(range(len(x.shape))):
        raise rank_error("permute", f"{perm} is not an order of {len(x.shape)} axes", x)
    return tuple([x.shape[a] for a in perm]), x.dtype


def inverse_permutation(perm: Ints) -> Ints:
    """The order that undoes ``perm``."""
    inverse = [0] * len(perm)
    for position, axis in enumerate(perm):
        inverse[axis] = position
    return tuple(inverse)


PERMUTE = register(Op(
    "permute", "view", _infer_permute, lambda node, x: x.transpose(node.attrs[0]),
    Linear(lambda node, cotangent, index: permute(cotangent, inverse_permutation(node.attrs[0]))),
    lambda node, inputs, batched, size: permute(inputs[0], (0, *(a + 1 for a in node.attrs[0]))),
    "permute", 0.0, ("perm",), "axis k of the result is axis perm[k] of x",
))


def permute(x: Node, perm: Ints) -> Node:
    """``x`` with its axes in the order ``perm``."""
    return x if perm == tuple(range(len(perm))) == tuple(range(len(x.shape))) else bind(PERMUTE, (x,), (perm,), x.weak)


def move_axis(x: Node, source: int, target: int) -> Node:
    """``x`` with axis ``source`` moved to ``target``, the others in their order."""
    if source == target:
        return x
    order = [a for a in range(len(x.shape)) if a != source]
    order.insert(target, source)
    return permute(x, tuple(order))


# -- broadcast_to ------------------------------------------------------------------------------------------------------


def _infer_broadcast(inputs: tuple[Node, ...], shape: Shape) -> tuple[Shape, DType]:
    (x,) = inputs
    if len(shape) < len(x.shape) or broadcast_shapes(x.shape, shape, op="broadcast_to") != shape:
        raise rank_error("broadcast_to", f"shape {shape} is not one that it broadcasts to", x)
    return shape, x.dtype


BROADCAST_TO = register(Op(
    "broadcast_to", "view", _infer_broadcast, lambda node, x: np.broadcast_to(x, node.shape),
    Linear(lambda node, cotangent, index: reduction.sum_to(cotangent, node.inputs[0].shape)),
    lambda node, inputs, batched, size: broadcast_to(lift(inputs[0], True, len(node.shape)), (size, *node.shape)),
    "broadcast_to", 0.0, ("shape",), "x repeated along new leading axes and axes of extent 1",
))


def broadcast_to(x: Node, shape: Shape) -> Node:
    """``x`` repeated to ``shape`` by NumPy's rule."""
    return x if x.shape == shape else bind(BROADCAST_TO, (x,), (shape,), x.weak)


def uniform_value(x: Node) -> bool | int | float | None:
    """The Python number that every element of ``x`` is known to be; None where none is known."""
    while (x.op is BROADCAST_TO or x.op is RESHAPE) and x.inputs:
        x = x.inputs[0]
    return x.attrs[0] if x.op is leaf.CONSTANT else None


# -- slice and flip ----------------------------------------------------------------------------------------------------


def _infer_slice(inputs: tuple[Node, ...], starts: Ints, stops: Ints, steps: Ints) -> tuple[Shape, DType]:
    (x,) = inputs
    if not len(starts) == len(stops) == len(steps) == len(x.shape):
        raise rank_error("slice", f"one start, stop and step an axis expected, got {starts}, {stops}, {steps}", x)
    shape = []
    for start, stop, step, extent in zip(starts, stops, steps, x.shape):
        if not 0 <= start <= stop <= extent or step < 1:
            raise rank_error("slice", f"{start}:{stop}:{step} does not lie in an axis of {extent}", x)
        shape.append((stop - start + step - 1) // step)
    return tuple(shape), x.dtype


def _slice_reference(node: Node, x: Array) -> Array:
    return x[tuple([index_slice(*bounds) for bounds in zip(*node.attrs)])]


def _transpose_slice(node: Node, cotangent: Node, index: int) -> Node:
    starts, _, steps = node.attrs
    after = []
    for start, step, extent, count in zip(starts, steps, node.inputs[0].shape, node.shape):
        after.append(extent - start - (1 + (count - 1) * step if count else 0))
    return pad(cotangent, 0, starts, tuple(after), tuple([step - 1 for step in steps]))


SLICE = register(Op(
    "slice", "view", _infer_slice, _slice_reference, Linear(_transpose_slice),
    lambda node, inputs, batched, size: slice(
        inputs[0], (0, *node.attrs[0]), (size, *node.attrs[1]), (1, *node.attrs[2])
    ),
    "slice", 0.0, ("starts", "stops", "steps"), "x[start:stop:step] on every axis; steps are positive",
))


def slice(x: Node, starts: Ints, stops: Ints, steps: Ints | None = None) -> Node:
    """``x[start:stop:step]`` on every axis; ``0 <= start <= stop <= extent``, ``step >= 1``."""
    steps = (1,) * len(starts) if steps is None else steps
    if stops == x.shape and not any(starts) and all(s == 1 for s in steps):
        return x
    return bind(SLICE, (x,), (starts, stops, steps), x.weak)


def slice_axis(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """``x[start:stop:step]`` along one axis."""
    ndim = len(x.shape)
    starts, stops, steps = [0] * ndim, list(x.shape), [1] * ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return slice(x, tuple(starts), tuple(stops), tuple(steps))


def _infer_flip(inputs: tuple[Node, ...], axes: Ints) -> tuple[Shape, DType]:
    (x,) = inputs
    if any(not 0 <= a < len(x.shape) for a in axes) or len(set(axes)) != len(axes):
        raise rank_error("flip", f"axes {axes} are not distinct axes", x)
    return x.shape, x.dtype


FLIP = register(Op(
    "flip", "view", _infer_flip, lambda node, x: np.flip(x, node.attrs[0]),
    Linear(lambda node, cotangent, index: flip(cotangent, node.attrs[0])),
    lambda node, inputs, batched, size: flip(inputs[0], tuple([a + 1 for a in node.attrs[0]])),
    "flip", 0.0, ("axes",), "x reversed along axes",
))


def flip(x: Node, axes: Ints) -> Node:
    """``x`` reversed along ``axes``."""
    axes = tuple([a for a in axes if a >= len(x.shape) or x.shape[a] != 1])
    return bind(FLIP, (x,), (axes,), x.weak) if axes else x


# -- pad ---------------------------------------------------------------------------------------------------------------


def _padded_extent(extent: int, low: int, high: int, interior: int) -> int:
    return low + high + extent + max(extent - 1, 0) * interior


def _infer_pad(inputs: tuple[Node, ...], low: Ints, high: Ints, interior: Ints) -> tuple[Shape, DType]:
    x, value = inputs
    if x.dtype is not value.dtype:
        raise mixed_error("pad", x, value)
    if value.shape:
        raise rank_error("pad", "the value must be 0-d", x, value)
    if not len(low) == len(high) == len(interior) == len(x.shape) or any(i < 0 for i in interior):
        raise rank_error("pad", f"low {low}, high {high}, interior {interior} do not fit the axes", x)
    shape = tuple(map(_padded_extent, x.shape, low, high, interior))
    if any(extent < 0 for extent in shape):
        raise rank_error("pad", f"low {low} and high {high} crop more than there is", x)
    return shape, x.dtype


def _pad_reference(node: Node, x: Array, value: Array) -> Array:
    low, high, interior = node.attrs
    # Spread and padded by what is positive first, then cropped by what is negative.
    full = np.full(
        [_padded_extent(n, max(lo, 0), max(hi, 0), i) for n, lo, hi, i in zip(x.shape, low, high, interior)],
        value, node.dtype.numpy,
    )
    inside = []
    for n, lo, i in zip(x.shape, low, interior):
        start = max(lo, 0)
        inside.append(index_slice(start, start + (n - 1) * (i + 1) + 1 if n else start, i + 1))
    full[tuple(inside)] = x
    return full[tuple([index_slice(max(-lo, 0), n - max(-hi, 0)) for n, lo, hi in zip(full.shape, low, high)])]


def _padding_mask(node: Node) -> Node:
    """True at the padding, False at x's elements."""
    x = node.inputs[0]
    return pad(leaf.full(x.shape, False, dtypes.bool_), True, *node.attrs)


def _transpose_pad(node: Node, cotangent: Node, index: int) -> Node:
    if index == 1:
        masked = e.where(_padding_mask(node), cotangent, 0)
        return reduction.reduce_sum(masked, tuple(range(len(node.shape))))
    low, high, interior = node.attrs
    spread = pad(cotangent, 0, tuple([-n for n in low]), tuple([-n for n in high]), (0,) * len(low))
    return slice(spread, (0,) * len(low), spread.shape, tuple([i + 1 for i in interior]))


def _batch_pad(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    low, high, interior = ((0, *attr) for attr in node.attrs)
    x, value = inputs
    if not batched[1]:
        return pad(x, value, low, high, interior)
    padded = pad(with_batch(x, batched[0], size), 0, low, high, interior)
    return e.where(_padding_mask(node), lift(value, True, len(node.shape)), padded)


PAD = register(Op(
    "pad", "pad", _infer_pad, _pad_reference, Linear(_transpose_pad, (0, 1), joint=True), _batch_pad,
    "pad", 0.0, ("low", "high", "interior"), "value before, after and between x's elements; negative low and high crop",
))


def pad(x: Node, value: Operand, low: Ints, high: Ints, interior: Ints | None = None) -> Node:
    """``x`` with ``low[a]`` times ``value`` before, ``high[a]`` after and ``interior[a]`` between, on every axis a.

    Negative ``low`` and ``high`` crop, after the elements are spread. ``value``: a number or a 0-d node.
    """
    interior = (0,) * len(low) if interior is None else interior
    if not any(i and n > 1 for i, n in zip(interior, x.shape)) and len(interior) == len(low) == len(x.shape):
        interior = (0,) * len(low)
        if max(low, default=0) <= 0 and max(high, default=0) <= 0:
            starts = tuple([-n for n in low])
            stops = tuple([extent + n for extent, n in zip(x.shape, high)])
            if all(start <= stop for start, stop in zip(starts, stops)):
                return slice(x, starts, stops)
    return bind(PAD, as_nodes("pad", x, value), (low, high, interior), x.weak)


# -- concat ------------------------------------------------------------------------------------------------------------


def _infer_concat(inputs: tuple[Node, ...], axis: int) -> tuple[Shape, DType]:
    if not inputs:
        raise ShapeError("concat: at least one operand expected")
    first = inputs[0]
    total = 0
    if not 0 <= axis < len(first.shape):
        raise rank_error("concat", f"there is no axis {axis}", *inputs)
    for x in inputs:
        if x.dtype is not first.dtype:
            raise mixed_error("concat", *inputs)
        if len(x.shape) != len(first.shape) or any(
            m != n for a, (m, n) in enumerate(zip(x.shape, first.shape)) if a != axis
        ):
            raise ShapeError(f"concat: shapes must agree except on axis {axis}, got {describe(*inputs)}")
        total += x.shape[axis]
    return (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype


def _transpose_concat(node: Node, cotangent: Node, index: int) -> Node:
    axis = node.attrs[0]
    start = sum([x.shape[axis] for x in node.inputs[:index]])
    return slice_axis(cotangent, axis, start, start + node.inputs[index].shape[axis])


def _batch_concat(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    return concat(tuple([with_batch(x, b, size) for x, b in zip(inputs, batched)]), node.attrs[0] + 1)


CONCAT = register(Op(
    "concat", "concat", _infer_concat, lambda node, *arrays: np.concatenate(arrays, node.attrs[0]),
    Linear(_transpose_concat, (), joint=True), _batch_concat,
    "concat", 0.0, ("axis",), "the operands one after another along an axis",
))


def concat(nodes: Any, axis: int) -> Node:
    """``nodes`` (at least one, of one dtype) one after another along ``axis``."""
    nodes = tuple(nodes)
    return nodes[0] if len(nodes) == 1 else bind(CONCAT, nodes, (axis,), all(x.weak for x in nodes))
