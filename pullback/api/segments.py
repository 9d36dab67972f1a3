"""Sums and their like over groups of elements: segment_sum and its kin, bincount, histogram."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..interop import is_traced
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..ops import reduction as fold
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, floating, promote
from .indexing import integer_node
from .positions import checked_size, known_value
from .reduction import accumulator_dtype
from .scatter import checked_numbers, combined, neutral
from .sorting import searchsorted_node

# -- segments ----------------------------------------------------------------------------------------------------------


def _count(numbers: Node, given: int | None, least: int, op: str, argument: str) -> int:
    """``given``, or the largest of ``numbers`` plus 1, at least ``least``."""
    if given is not None:
        return checked_size(given, f"{op}: {argument}")
    values = known_value(numbers, op, argument)
    return max(least, int(values.max()) + 1 if values.size else 0)


def _reduce(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None, mode: str, op: str) -> Node:
    """Slices of ``data`` combined by segment, in the dtype of ``data`` (see the callers)."""
    node = as_node(data, None, op)
    ids = integer_node(segment_ids, f"{op}: segment_ids")
    front = len(ids.shape)
    if node.shape[:front] != ids.shape:
        raise ShapeError(f"{op}: segment_ids of shape {ids.shape} do not number the slices of data of {node.shape}")
    count = _count(ids, num_segments, 0, op, "num_segments")
    if mode in ("add", "multiply"):
        node = cast_node(node, accumulator_dtype(node.dtype))
    start = leaf.full((count, *node.shape[front:]), neutral("add" if mode == "mean" else mode, node.dtype), node.dtype)
    if not node.size and not ids.size:
        return start
    return combined(start, node, [checked_numbers(ids, count, f"{op}: segment")], (0,), mode, mode != "mean", op)


def segment_sum(data: ArrayLike, /, segment_ids: ArrayLike, num_segments: int | None = None) -> Tensor:
    """``out[s]``: the sum of the slices ``data[i]`` with ``segment_ids[i] == s``; 0 for a segment without any.

    data: of shape I + rest.   segment_ids: integers of shape I in [0, num_segments), in any order.
    Result: shape (num_segments,) + rest, with the dtype rule of ``pb.sum``. Of many elements in few segments (131072 in
        all, 64 to a segment on average) float32 sums are carried in float64; others are rounded at every element.
    num_segments: None takes the largest number plus 1, which raises TraceError under ``jit`` and ``vmap``.
    Raises ShapeError if the shapes do not fit, DTypeError for numbers that are no integers, IndexError for one out of
    range (negative ones are).
    """
    return Tensor(_reduce(data, segment_ids, num_segments, "add", "segment_sum"))


def segment_prod(data: ArrayLike, /, segment_ids: ArrayLike, num_segments: int | None = None) -> Tensor:
    """As :func:`segment_sum`, the product; 1 for a segment without elements. Its gradient is exact at factors of 0."""
    return Tensor(_reduce(data, segment_ids, num_segments, "multiply", "segment_prod"))


def segment_max(data: ArrayLike, /, segment_ids: ArrayLike, num_segments: int | None = None) -> Tensor:
    """As :func:`segment_sum`, the largest, in the dtype of ``data``; -inf (integers: the smallest number that the dtype
    holds, bool: False) for a segment without elements, as in JAX. Equal elements share the gradient evenly."""
    return Tensor(_reduce(data, segment_ids, num_segments, "max", "segment_max"))


def segment_min(data: ArrayLike, /, segment_ids: ArrayLike, num_segments: int | None = None) -> Tensor:
    """As :func:`segment_sum`, the smallest, in the dtype of ``data``; inf (integers: the largest number that the dtype
    holds, bool: True) for a segment without elements, as in JAX. Equal elements share the gradient evenly."""
    return Tensor(_reduce(data, segment_ids, num_segments, "min", "segment_min"))


def segment_mean(data: ArrayLike, /, segment_ids: ArrayLike, num_segments: int | None = None) -> Tensor:
    """As :func:`segment_sum`, the mean, for integers in the default float dtype; 0 for a segment without elements."""
    node = floating(as_node(data, None, "segment_mean"))
    return Tensor(_reduce(Tensor(node), segment_ids, num_segments, "mean", "segment_mean"))


# -- counting ----------------------------------------------------------------------------------------------------------


def bincount(
    x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0, length: int | None = None
) -> Tensor:
    """How often each of 0, 1, 2, ... occurs in ``x``, or the sum of the weights of its occurrences.

    x: 1-d, integers that are not negative.   weights: of x's shape; the sums have the dtype rule of ``pb.sum``.
    length: of the result; None takes the largest number plus 1, at least ``minlength``, which raises TraceError under
        ``jit`` and ``vmap``.
    Raises ShapeError if x is not 1-d or the weights' shape differs, DTypeError for numbers that are no integers,
    IndexError for one that is negative or not below ``length``.
    """
    node = integer_node(x, "bincount")
    if len(node.shape) != 1:
        raise ShapeError(f"bincount: one axis expected, got shape {node.shape}")
    count = _count(node, length, checked_size(minlength, "bincount: minlength"), "bincount", "length")
    return segment_sum(Tensor(_weights(weights, node, "bincount")), Tensor(node), count)


def _weights(weights: ArrayLike | None, node: Node, op: str) -> Node:
    """What each element of ``node`` counts: 1 where nothing is given."""
    if weights is None:
        return leaf.full(node.shape, 1, dtypes.int64)
    given = as_node(weights, None, op)
    if given.shape != node.shape:
        raise ShapeError(f"{op}: weights of shape {given.shape} do not fit x of shape {node.shape}")
    return given


class Histogram(NamedTuple):
    """What :func:`histogram` returns."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    x: ArrayLike, /, bins: int | ArrayLike = 10, range: tuple[Any, Any] | None = None, density: bool = False,
    weights: ArrayLike | None = None,
) -> Histogram:
    """How many elements of ``x`` (any shape) lie in each bin: ``(hist, bin_edges)``.

    bins: the number of bins of equal width between the ends ``range`` (None: the smallest and the largest element; 0
        and 1 if there is none; half a unit to each side if they are equal), or the ascending edges.
    Bin i holds ``edges[i] <= x < edges[i+1]``, the last its right edge too; NaN and what lies outside is not counted.
    hist: int64, or, with ``weights`` of x's shape, sums of weights with the dtype rule of ``pb.sum``, differentiable by
        the weights; ``density`` divides by the total and the bins' widths.
    Raises ArgumentError for a number of bins below 1 or edges that do not ascend, ShapeError for weights of another
    shape or edges of several axes, DTypeError for bool.
    """
    node = as_node(x, None, "histogram")
    if node.dtype.kind == "b":
        raise DTypeError("histogram: bool has no bins; cast with x.astype(pb.int64)")
    edges, values = _edges(node, bins, range)
    count = edges.shape[0] - 1
    flat = move.reshape(values, (values.size,))
    last = move.reshape(move.slice_axis(edges, 0, count, count + 1), ())
    slot = ops.where(ops.equal(flat, last), count, searchsorted_node(edges, flat, True))
    given = move.reshape(_weights(weights, node, "histogram"), flat.shape)
    # Slot 0 is what lies below, slot count + 1 what lies above.
    hist = move.slice_axis(segment_sum(Tensor(given), Tensor(slot), count + 2).node, 0, 1, count + 1)
    if density:
        lower, upper = move.slice_axis(edges, 0, 0, count), move.slice_axis(edges, 0, 1, count + 1)
        width, share = promote(Tensor(ops.subtract(upper, lower)), Tensor(floating(hist)), op="histogram")
        hist = ops.divide(share, ops.multiply(width, fold.reduce_sum(share, (0,))))
    return Histogram(Tensor(hist), Tensor(edges))


def _edges(node: Node, bins: int | ArrayLike, ends: tuple[Any, Any] | None) -> tuple[Node, Node]:
    """Edges, and the elements in the same dtype."""
    if isinstance(bins, str):
        raise ArgumentError(f"histogram: bins must be a number of bins or their edges, got {bins!r}")
    if not isinstance(bins, int | np.integer) or isinstance(bins, bool):
        edges, values = promote(bins, Tensor(node), op="histogram")
        if len(edges.shape) != 1 or edges.shape[0] < 2:
            raise ShapeError(f"histogram: at least two edges on one axis expected, got shape {edges.shape}")
        if edges.buffer is not None and not is_traced(edges):
            known = edges.buffer.numpy(edges.shape, edges.dtype.numpy)
            if not (known[1:] >= known[:-1]).all():
                raise ArgumentError("histogram: the edges of the bins must ascend")
        return edges, values
    if bins < 1:
        raise ArgumentError(f"histogram: at least one bin expected, got {bins}")
    values = floating(node)
    dtype = values.dtype
    if ends is not None:
        low, high = (cast_node(as_node(end, dtype, "histogram: range"), dtype) for end in ends)
    elif values.size:
        axes = tuple(np.arange(len(values.shape)).tolist())
        low, high = fold.reduce_min(values, axes), fold.reduce_max(values, axes)
    else:
        low, high = leaf.constant(0, dtype), leaf.constant(1, dtype)
    same = ops.equal(low, high)
    low, high = ops.where(same, ops.subtract(low, 0.5), low), ops.where(same, ops.add(high, 0.5), high)
    place = leaf.iota((int(bins) + 1,), 0, dtype)
    edges = ops.add(ops.multiply(place, ops.divide(ops.subtract(high, low), int(bins))), low)
    return ops.where(ops.equal(place, int(bins)), high, edges), values
