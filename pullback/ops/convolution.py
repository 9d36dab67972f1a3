"""convolution: a window of weights slid over an array and summed over channels; its transposes are convolutions too.

One op serves every layer and every gradient, because it is general in two ways. Both the array and the window may be
*dilated*: spread out, with nothing between the elements. And groups are an axis of their own, so that batch and
channels can change places, and a batch that ``vmap`` adds is more groups, a longer batch or more outputs.
"""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape, size_of
from . import leaf, movement
from .family import ANY, Array, kind_error, mixed_error, rank_error, widen
from .record import Linear, Op
from .registry import register

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

LEAD = 3  # axes before the spatial ones: group, batch or output, channel


def spread_extent(extent: int, dilation: int) -> int:
    """Length of ``extent`` elements, one every ``dilation`` positions."""
    return (extent - 1) * dilation + 1 if extent else 0


def output_extent(
    extent: int, taps: int, stride: int, padding: tuple[int, int], lhs_dilation: int, rhs_dilation: int
) -> int:
    """How often a window of ``taps`` fits: its positions along one axis."""
    room = spread_extent(extent, lhs_dilation) + sum(padding) - spread_extent(taps, rhs_dilation)
    return room // stride + 1 if room >= 0 else 0


def _infer(
    inputs: tuple[Node, ...], strides: Ints, padding: Pairs, lhs_dilation: Ints, rhs_dilation: Ints
) -> tuple[Shape, DType]:
    x, w = inputs
    if x.dtype is not w.dtype:
        raise mixed_error("convolution", x, w)
    if x.dtype.kind not in ANY:
        raise kind_error("convolution", ANY, x, w)
    rank = len(strides)
    if not len(x.shape) - LEAD == len(w.shape) - LEAD == rank == len(padding) == len(lhs_dilation) == len(rhs_dilation):
        raise rank_error(
            "convolution", f"{rank} strides, {len(padding)} paddings and {len(lhs_dilation)} and {len(rhs_dilation)} "
            f"dilations need operands of {rank + LEAD} axes", x, w,
        )
    if x.shape[0] != w.shape[0] or x.shape[2] != w.shape[2]:
        raise rank_error("convolution", "groups (axis 0) and channels (axis 2) of both must be the same", x, w)
    if any(step < 1 for step in (*strides, *lhs_dilation, *rhs_dilation)) or 0 in w.shape[LEAD:]:
        raise rank_error(
            "convolution", f"strides {strides}, dilations {lhs_dilation} and {rhs_dilation} and the window's extents "
            "must be at least 1", x, w,
        )
    extents = map(output_extent, x.shape[LEAD:], w.shape[LEAD:], strides, padding, lhs_dilation, rhs_dilation)
    return (x.shape[0], x.shape[1], w.shape[1], *extents), x.dtype


def _every(steps: Ints) -> tuple[slice, ...]:
    """The index that takes every so many elements of the axes after the first three."""
    return (slice(None),) * LEAD + tuple([slice(None, None, step) for step in steps])


def _reference(node: Node, x: Array, w: Array) -> Array:
    strides, padding, lhs_dilation, rhs_dilation = node.attrs
    if not (node.size and x.size and w.size):
        return np.zeros(node.shape, node.dtype.numpy)
    if node.dtype.kind == "f" and node.dtype.itemsize <= 4:
        x, w = (widen(a, node.dtype).astype(np.float64) for a in (x, w))
    rank = len(strides)
    axes = tuple(range(LEAD, LEAD + rank))
    spread = np.zeros((*x.shape[:LEAD], *map(spread_extent, x.shape[LEAD:], lhs_dilation)), x.dtype)
    spread[_every(lhs_dilation)] = x
    spread = np.pad(spread, [(0, 0)] * LEAD + [(max(low, 0), max(high, 0)) for low, high in padding])
    whole = [slice(None)] * LEAD
    kept = [slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(spread.shape[LEAD:], padding)]
    windows = np.lib.stride_tricks.sliding_window_view(
        spread[tuple(whole + kept)], tuple(map(spread_extent, w.shape[LEAD:], rhs_dilation)), axes
    )[_every((*strides, *rhs_dilation))]
    groups, batch, channels = x.shape[:LEAD]
    outputs = w.shape[1]
    positions, depth = size_of(node.shape[LEAD:]), channels * size_of(w.shape[LEAD:])
    taps = tuple(range(LEAD + rank, LEAD + 2 * rank))
    right = windows.transpose((0, 2, *taps, 1, *axes)).reshape(groups, depth, batch * positions)
    with np.errstate(all="ignore"):
        product = np.matmul(w.reshape(groups, outputs, depth), right)
    product = product.reshape(groups, outputs, batch, positions).swapaxes(1, 2)
    return product.reshape(node.shape).astype(node.dtype.numpy, copy=False)


def _transpose(node: Node, cotangent: Node, index: int) -> Node:
    """From ``out[j] = sum_t x[i] w[t]``, where ``j stride + t rhs_dilation - low = i lhs_dilation``: each of the three
    indices is determined by the two others in the same way, with the roles of stride and dilations exchanged."""
    x, w = node.inputs
    if not (node.size and x.size and w.size):
        return leaf.zeros_like(node.inputs[index])
    strides, padding, lhs_dilation, rhs_dilation = node.attrs
    rank = len(strides)
    swap = (0, 2, 1, *range(LEAD, LEAD + rank))  # batch or outputs, and channels
    pads = []
    of_x = map(spread_extent, x.shape[LEAD:], lhs_dilation)
    of_w = map(spread_extent, w.shape[LEAD:], rhs_dilation)
    of_out = map(spread_extent, node.shape[LEAD:], strides)
    for (low, _), in_x, in_w, in_out in zip(padding, of_x, of_w, of_out):
        # As many positions as the operand has elements.
        first = in_w - 1 - low if index == 0 else low
        pads.append((first, in_x + in_w - 1 - in_out - first if index == 0 else in_w - 1 + in_out - in_x - first))
    if index == 0:
        turned = movement.flip(movement.permute(w, swap), tuple(range(LEAD, LEAD + rank)))
        return convolution(cotangent, turned, lhs_dilation, tuple(pads), strides, rhs_dilation)
    x, cotangent = movement.permute(x, swap), movement.permute(cotangent, swap)
    return movement.permute(convolution(x, cotangent, rhs_dilation, tuple(pads), lhs_dilation, strides), swap)


def _batch(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    x, w = inputs
    groups, batch, outputs, *positions = node.shape
    if all(batched):
        x, w = (movement.reshape(a, (size * groups, *a.shape[2:])) for a in (x, w))
        return movement.reshape(convolution(x, w, *node.attrs), (size, *node.shape))
    mapped = movement.move_axis(x if batched[0] else w, 0, 1)
    merged = movement.reshape(mapped, (groups, size * mapped.shape[2], *mapped.shape[3:]))
    if batched[0]:  # a longer batch
        result = convolution(merged, w, *node.attrs)
        return movement.move_axis(movement.reshape(result, (groups, size, batch, outputs, *positions)), 1, 0)
    result = convolution(x, merged, *node.attrs)  # more outputs
    return movement.move_axis(movement.reshape(result, (groups, batch, size, outputs, *positions)), 2, 0)


CONVOLUTION = register(Op(
    "convolution", "contraction", _infer, _reference, Linear(_transpose, (0, 1)), _batch,
    "convolution", 2.0, ("strides", "padding", "lhs_dilation", "rhs_dilation"),
    "out[g, n, o, j] = sum over c, t of x[g, n, c, i] w[g, o, c, t], where on every spatial axis i * lhs_dilation = "
    "j * stride + t * rhs_dilation - low; 0 where there is no such i. bool: any of and",
))


def convolution(
    x: Node, w: Node, strides: Ints, padding: Pairs, lhs_dilation: Ints | None = None, rhs_dilation: Ints | None = None
) -> Node:
    """``w`` slid over ``x``: ``(groups, batch, channels, *spatial)`` with ``(groups, outputs, channels, *taps)`` gives
    ``(groups, batch, outputs, *positions)``.

    padding: zeros before and after each spatial axis; negative ones crop, after ``x`` is spread by its dilation.
    The window is not flipped. float16 and bfloat16 accumulate in float32; integers wrap. The zeros of the padding are
    multiplied like other elements: by an infinite weight they give NaN.
    """
    ones = (1,) * len(strides)
    attrs = (strides, padding, lhs_dilation or ones, rhs_dilation or ones)
    return bind(CONVOLUTION, (x, w), attrs, x.weak and w.weak)
