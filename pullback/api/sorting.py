"""Sorting: sort, argsort, topk, searchsorted. Stable and in any direction; NaN counts as the largest, -0 equals 0."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..ops import indexing as index_ops
from ..ops import movement as move
from ..ops import sorting as ops
from ..shapes import normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node, promote
from .indexing import integer_node, take


class TopK(NamedTuple):
    """What :func:`topk` returns."""

    values: Tensor
    indices: Tensor


def _operand(x: ArrayLike, axis: int | None, op: str) -> tuple[Node, int]:
    node = as_node(x, None, op)
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    return node, normalize_axis(axis, len(node.shape), op)


def argsort(x: ArrayLike, /, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Positions (int64) that sort ``x`` along ``axis`` (None: flattened). NaN sorts as the largest.

    Equal elements keep their order, in a descending sort too, whether or not ``stable`` asks for it.
    Raises ShapeError for an axis that ``x`` does not have.
    """
    node, a = _operand(x, axis, "argsort")
    return Tensor(ops.argsort(node, a, bool(descending)))


def sort(x: ArrayLike, /, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Elements in ascending (or descending) order along ``axis`` (None: flattened). NaN sorts as the largest.

    Equal elements (-0 and 0) keep their order, whether or not ``stable`` asks for it; the gradient of an element of the
    result goes to where :func:`argsort` says that it came from.
    Raises ShapeError for an axis that ``x`` does not have.
    """
    node, a = _operand(x, axis, "sort")
    return Tensor(ops.sort(node, a, bool(descending)))


def topk(x: ArrayLike, /, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The ``k`` largest (or smallest) elements along ``axis`` and their positions (int64): ``(values, indices)``.

    The largest (smallest) comes first, whether or not ``sorted`` asks for it, of equal elements the first. NaN counts
    as the largest. The gradient goes to the elements taken.
    Raises ShapeError for an axis that ``x`` does not have, ArgumentError unless 0 <= k <= the axis's extent.
    """
    node, a = _operand(x, axis, "topk")
    extent = node.shape[a]
    if isinstance(k, bool) or not hasattr(k, "__index__"):
        raise ArgumentError(f"topk: k must be an int, got {k!r}")
    count = k.__index__()
    if not 0 <= count <= extent:
        raise ArgumentError(f"topk: k must lie between 0 and {extent}, the size of axis {a}; not {count}")
    indices = ops.arg_top_k(node, a, count, bool(largest))
    return TopK(Tensor(index_ops.take_along(node, indices, a)), Tensor(indices))


def searchsorted(
    sorted_line: ArrayLike, values: ArrayLike, /, side: str = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """Where ``values`` belong in ``sorted_line`` so that it stays sorted: positions (int64) of the shape of ``values``.

    sorted_line: ascending along its last axis, NaN last; with more than one axis, ``values`` has the same axes before
        its last, and each row is searched in the line of its own.
    side: "left": the first such position, the number of elements smaller than the value; "right": the last one.
    sorter: positions that sort ``sorted_line``, which then need not be sorted itself (1-d only).
    Raises ArgumentError for another side, ShapeError for axes that do not fit.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    line, wanted = promote(sorted_line, values, op="searchsorted")
    if not line.shape:
        raise ShapeError("searchsorted: the sorted line is 0-d; at least one axis expected")
    if sorter is not None:
        order = integer_node(sorter, "searchsorted: sorter")
        if len(line.shape) != 1 or order.shape != line.shape:
            raise ShapeError(
                f"searchsorted: a sorter has the shape of a 1-d line, got {order.shape} for a line of {line.shape}"
            )
        line = take(Tensor(line), Tensor(order)).node
    return Tensor(searchsorted_node(line, wanted, side == "right"))


def searchsorted_node(line: Node, values: Node, right: bool) -> Node:
    """See :func:`searchsorted`; a line of one axis serves values of any shape."""
    if len(line.shape) == 1:
        found = ops.searchsorted(line, move.reshape(values, (values.size,)), right)
        return move.reshape(found, values.shape)
    if values.shape[:-1] != line.shape[:-1] or len(values.shape) != len(line.shape):
        raise ShapeError(
            f"searchsorted: the axes before the last must agree, got lines of {line.shape} and values of {values.shape}"
        )
    return ops.searchsorted(line, values, right)


def digitize(x: ArrayLike, /, bins: ArrayLike, right: bool = False) -> Tensor:
    """The bin of each element of ``x``: i where ``bins[i-1] <= x < bins[i]`` (int64, of the shape of ``x``).

    bins: 1-d, increasing or decreasing. Below the first edge the bin is 0, beyond the last ``len(bins)``.
    right: the right edge belongs to a bin instead of the left one: ``bins[i-1] < x <= bins[i]``.
    Decreasing bins: ``bins[i-1] > x >= bins[i]`` (right: ``bins[i-1] >= x > bins[i]``).
    Raises ShapeError unless ``bins`` has one axis, DTypeError for bool.
    """
    from .elementwise import where

    edges, values = promote(bins, x, op="digitize")
    if len(edges.shape) != 1:
        raise ShapeError(f"digitize: bins must have one axis, got shape {edges.shape}")
    if edges.dtype.kind == "b":
        raise DTypeError("digitize: bool has no bins; cast with x.astype(pb.int64)")
    rising = searchsorted_node(edges, values, not right)
    count = edges.shape[0]
    if count < 2:
        return Tensor(rising)
    falling: Any = count - Tensor(searchsorted_node(move.flip(edges, (0,)), values, not right))
    line = Tensor(edges)
    return where(line[0] <= line[-1], Tensor(rising), falling)
