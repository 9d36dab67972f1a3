"""Diagonals and triangles of the last two axes: diagonal, diag, diagflat, diag_embed, trace, tril, triu.

Reading the diagonal of a matrix, and writing one, are views and padding of its rows laid end to end, where it has the
stride "row length plus one"; so are their gradients.
"""

from __future__ import annotations

import builtins
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..shapes import as_int, normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node, scalar_node
from .reduction import sum as _sum


def _matrix(x: ArrayLike, op: str) -> Node:
    node = as_node(x, None, op)
    if len(node.shape) < 2:
        raise ShapeError(f"{op}: at least two axes expected, got shape {node.shape}")
    return node


def _triangle(node: Node, k: int, lower: bool) -> Node:
    rows = leaf.iota(node.shape[-2:], 0, dtypes.int64)
    columns = leaf.iota(node.shape[-2:], 1, dtypes.int64)
    reach = ops.add(rows, k) if k else rows
    kept = ops.less_equal(columns, reach) if lower else ops.greater_equal(columns, reach)
    return ops.where(kept, node, scalar_node(0, node.dtype))


def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The lower triangle of the last two axes, up to the diagonal ``k``; 0 above. ShapeError below two axes."""
    return Tensor(_triangle(_matrix(x, "tril"), as_int(k, "tril", "k"), True))


def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The upper triangle of the last two axes, from the diagonal ``k``; 0 below. ShapeError below two axes."""
    return Tensor(_triangle(_matrix(x, "triu"), as_int(k, "triu", "k"), False))


def diagonal(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Elements ``x[..., i, i + offset]`` of two axes, along a new last axis; none, if the diagonal lies outside.

    Raises ShapeError below two axes, or where both axes are one.
    """
    node = _matrix(x, "diagonal")
    return Tensor(diagonal_node(_last_two(node, axis1, axis2, "diagonal"), as_int(offset, "diagonal", "offset")))


def _last_two(node: Node, axis1: int, axis2: int, op: str) -> Node:
    """``node`` with two of its axes moved to the end."""
    rank = len(node.shape)
    a, b = normalize_axis(axis1, rank, op), normalize_axis(axis2, rank, op)
    if a == b:
        raise ShapeError(f"{op}: axis1 and axis2 are both axis {a} of shape {node.shape}; two different ones expected")
    return move.permute(node, (*[d for d in range(rank) if d not in (a, b)], a, b))


def diagonal_node(node: Node, offset: int = 0) -> Node:
    """The diagonal of the last two axes. Reading a matrix of row length n with stride n + 1 needs no index list."""
    rows, columns = node.shape[-2:]
    lead = node.shape[:-2]
    count = len(lead)
    if offset >= 0:
        node = move.slice_axis(node, count + 1, builtins.min(offset, columns), columns)
    else:
        node = move.slice_axis(node, count, builtins.min(-offset, rows), rows)
    rows, columns = node.shape[-2:]
    length = builtins.min(rows, columns)
    if length == 0:
        return leaf.full((*lead, 0), 0, node.dtype)
    node = move.slice_axis(move.slice_axis(node, count, 0, length), count + 1, 0, length)
    flat = move.reshape(node, (*lead, length * length))
    return move.slice_axis(flat, count, 0, length * length, length + 1)


def embedded_node(node: Node, offset: int = 0) -> Node:
    """Matrices of zeros with the last axis of ``node`` on their diagonal ``offset``."""
    *lead, length = node.shape
    count = len(lead)
    side = length + abs(offset)
    if length == 0:
        return leaf.full((*lead, side, side), 0, node.dtype)
    spread = move.pad(node, 0, (0,) * (count + 1), (0,) * (count + 1), (*(0,) * count, length))
    square = move.reshape(spread, (*lead, length, length))
    above, left = builtins.max(-offset, 0), builtins.max(offset, 0)
    return move.pad(square, 0, (*(0,) * count, above, left), (*(0,) * count, left, above))


def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A vector on the diagonal ``k`` of a square matrix of zeros, or the diagonal ``k`` of a matrix, as a vector.

    Raises ShapeError for other than one or two axes.
    """
    node = as_node(x, None, "diag")
    if len(node.shape) == 2:
        return Tensor(diagonal_node(node, as_int(k, "diag", "k")))
    if len(node.shape) != 1:
        raise ShapeError(
            f"diag: one or two axes expected, got shape {node.shape}; diagonal and diag_embed take any number"
        )
    return Tensor(embedded_node(node, as_int(k, "diag", "k")))


def diagflat(x: ArrayLike, /, k: int = 0) -> Tensor:
    """All elements, in C order, on the diagonal ``k`` of a square matrix of zeros."""
    node = as_node(x, None, "diagflat")
    return Tensor(embedded_node(move.reshape(node, (node.size,)), as_int(k, "diagflat", "k")))


def diag_embed(x: ArrayLike, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The last axis of ``x`` on the diagonal ``offset`` of matrices of zeros, whose axes are ``axis1`` and ``axis2`` of
    the result (as PyTorch's ``diag_embed``). ShapeError for a 0-d operand, or where both axes are one.
    """
    node = as_node(x, None, "diag_embed")
    rank = len(node.shape) + 1
    if rank < 2:
        raise ShapeError("diag_embed: a 0-d tensor has no axis to put on a diagonal; use pb.atleast_1d")
    a, b = normalize_axis(axis1, rank, "diag_embed"), normalize_axis(axis2, rank, "diag_embed")
    if a == b:
        raise ShapeError(f"diag_embed: axis1 and axis2 are both axis {a}; two different ones expected")
    rest = iter(range(rank - 2))
    order = tuple([rank - 2 if d == a else rank - 1 if d == b else next(rest) for d in range(rank)])
    return Tensor(move.permute(embedded_node(node, as_int(offset, "diag_embed", "offset")), order))


def trace(x: ArrayLike, /, offset: int = 0, axis1: int = -2, axis2: int = -1, dtype: Any = None) -> Tensor:
    """Sum of the diagonal ``offset`` of two axes, by default the last two (the array API's rule; NumPy's default is the
    first two). Integers give int64 or uint64, as :func:`sum` does. ShapeError below two axes.
    """
    node = _last_two(_matrix(x, "trace"), axis1, axis2, "trace")
    return _sum(Tensor(diagonal_node(node, as_int(offset, "trace", "offset"))), axis=-1, dtype=dtype)
