"""Norms of vectors and matrices, and what is measured with them; the cross product.

The gradient of a norm at 0 is 0. Norms of order 2 neither overflow nor vanish before their value does. float16 and
bfloat16 are computed in float32; integers and bools are taken as the default float dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import linalg, spectral
from ..ops import movement as move
from ..ops import norm as norm_ops
from ..ops import reduction as fold
from ..shapes import as_number, normalize_axes, normalize_axis, reduced_shape
from ..tensor import Tensor
from .convert import ArrayLike, as_node, broadcast_nodes, cast_node, floating, promote
from .diagonal import diagonal as diagonal_of_axes
from .linalg import check_shape, default_rtol, operand, rank_node, wide

_MATRIX_ORDERS = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)


def _float_node(x: ArrayLike, op: str) -> Node:
    return floating(x.node if isinstance(x, Tensor) else as_node(x, None, op))


def vector_norm(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """``sum(|x|**ord)**(1 / ord)`` over ``axis`` (None: over all elements).

    ord: any number; inf: the largest, -inf: the smallest absolute value (ties share the gradient evenly); 0: how
    many elements are not 0 (gradient 0). An empty axis has no norm of an order that is infinite or below 0: ShapeError.
    """
    node = _float_node(x, "vector_norm")
    axes = normalize_axes(axis, len(node.shape), "vector_norm")
    return Tensor(cast_node(_vector_node(wide(node), axes, keepdims, ord, "vector_norm"), node.dtype))


def _vector_node(node: Node, axes: tuple[int, ...], keepdims: bool, order: Any, op: str) -> Node:
    order = float(as_number(order, op, "ord of a vector"))
    if order != order:
        raise ArgumentError(f"{op}: ord of a vector must be a number, got {order!r}")
    if order == 0:
        return fold.reduce_sum(ops.cast(ops.not_equal(node, 0), node.dtype), axes, keepdims)
    if order == math.inf:
        return fold.reduce_max(ops.abs(node), axes, keepdims)
    if order == -math.inf:
        return fold.reduce_min(ops.abs(node), axes, keepdims)
    if order == 1 or not axes:
        return fold.reduce_sum(ops.abs(node), axes, keepdims)
    return norm_ops.vector_norm(node, axes, keepdims, order)


def matrix_norm(
    x: ArrayLike, /, *, axis: tuple[int, int] = (-2, -1), keepdims: bool = False, ord: float | str = "fro"
) -> Tensor:
    """The norm of the matrices in the two axes ``axis`` (rows, columns).

    ord: "fro": root of the sum of squares; "nuc": sum of the singular values; 2 and -2: the largest and the smallest of
    these; 1 and -1: the largest and the smallest column sum of absolute values; inf and -inf: of the rows. Any other
    raises ArgumentError. Ties share the gradient evenly; a singular value that is 0 has none.
    """
    node = _float_node(x, "matrix_norm")
    check_shape(node, "matrix_norm", square=False)
    axes = normalize_axes(axis, len(node.shape), "matrix_norm", ordered=True)
    if len(axes) != 2:
        raise ShapeError(f"matrix_norm: axis must name two axes, got {axis!r}")
    return Tensor(cast_node(_matrix_node(wide(node), axes, keepdims, ord, "matrix_norm"), node.dtype))


def _matrix_node(node: Node, axes: tuple[int, ...], keepdims: bool, order: Any, op: str) -> Node:
    rows, columns = axes
    pair = (min(axes), max(axes))
    if isinstance(order, bool) or order not in _MATRIX_ORDERS:
        allowed = ", ".join(map(repr, _MATRIX_ORDERS))
        raise ArgumentError(f"{op}: ord of a matrix must be one of {allowed}; got {order!r}")
    if order == "fro":
        return _vector_node(node, pair, keepdims, 2, op)
    if order in ("nuc", 2, -2):
        values = _singular_values(node, rows, columns)
        last = (len(values.shape) - 1,)
        if order == "nuc":
            folded = fold.reduce_sum(_without_zeros(values, _rtol(node, axes)), last)
        else:
            folded = fold.reduce_max(values, last) if order > 0 else fold.reduce_min(values, last)
    else:
        inner, outer = (rows, columns) if abs(order) == 1 else (columns, rows)
        sums = fold.reduce_sum(ops.abs(node), (inner,), True)
        folded = (fold.reduce_max if order > 0 else fold.reduce_min)(sums, (outer,), True)
    return move.reshape(folded, reduced_shape(node.shape, pair, keepdims))


def _rtol(node: Node, axes: tuple[int, ...]) -> float:
    """Relative to the largest singular value, what may be rounding."""
    return max(node.shape[a] for a in axes) * float(np.finfo(node.dtype.numpy).eps)


def _singular_values(node: Node, rows: int, columns: int) -> Node:
    order = (*[a for a in range(len(node.shape)) if a not in (rows, columns)], rows, columns)
    moved = move.permute(node, order)
    return spectral.svdvals(ops.stop_gradient(moved) if 0 in moved.shape else moved)


def _without_zeros(values: Node, rtol: float) -> Node:
    """Singular values, those that are 0 but for rounding constants to every derivative."""
    if values.shape[-1] == 0:
        return values
    largest = move.slice_axis(values, len(values.shape) - 1, 0, 1)
    return ops.where(ops.greater(values, ops.multiply(largest, rtol)), values, ops.stop_gradient(values))


def norm(
    x: ArrayLike, /, ord: float | str | None = None, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Tensor:
    """NumPy's ``norm``: of vectors along one axis, of matrices in two, or (ord and axis None) of all elements.

    ord: None is the 2-norm of a vector, the Frobenius norm of a matrix; see :func:`vector_norm`, :func:`matrix_norm`.
    axis: None takes x, of one or two axes if ord is given, as one vector or matrix.
    """
    node = _float_node(x, "norm")
    rank = len(node.shape)
    if axis is None and ord is not None and rank not in (1, 2):
        raise ShapeError(f"norm: ord={ord!r} needs one axis or two, got shape {node.shape}; name them by axis=")
    axes = normalize_axes(axis, rank, "norm", ordered=True)
    compute = wide(node)
    if ord is None:
        if axis is not None and len(axes) > 2:
            raise ShapeError(f"norm: axis must name one axis or two, got {axis!r}")
        result = _vector_node(compute, tuple(sorted(axes)), keepdims, 2, "norm")
    elif len(axes) == 1:
        result = _vector_node(compute, axes, keepdims, ord, "norm")
    elif len(axes) == 2:
        result = _matrix_node(compute, axes, keepdims, ord, "norm")
    else:
        raise ShapeError(f"norm: axis must name one axis or two, got {axis!r}")
    return Tensor(cast_node(result, node.dtype))


def cond(x: ArrayLike, /, p: float | str | None = None) -> Tensor:
    """The condition number: the norm of order p of x times that of its inverse; inf for a singular matrix.

    p: None or 2: largest over smallest singular value, of matrices that need not be square; -2: the inverse of that;
    else an order of :func:`matrix_norm`, of square matrices.
    """
    node, dtype = operand(x, "cond", square=p not in (None, 2, -2))
    if 0 in node.shape[-2:]:
        raise ShapeError(f"cond: an empty matrix has no condition number, got shape {node.shape}")
    if p in (None, 2, -2):
        values = spectral.svdvals(node)
        last = len(values.shape) - 1
        largest, smallest = (
            move.reshape(move.slice_axis(values, last, i, i + 1), values.shape[:-1])
            for i in (0, values.shape[last] - 1)
        )
        ratio = ops.divide(smallest, largest) if p == -2 else ops.divide(largest, smallest)
        return Tensor(cast_node(ratio, dtype))
    axes = (len(node.shape) - 2, len(node.shape) - 1)
    inverse = linalg.inv(node, check=False)
    ratio = ops.multiply(_matrix_node(node, axes, False, p, "cond"), _matrix_node(inverse, axes, False, p, "cond"))
    has_nan = fold.reduce_any(ops.isnan(node), axes)
    singular = ops.logical_and(ops.isnan(ratio), ops.logical_not(has_nan))
    return Tensor(cast_node(ops.where(singular, math.inf, ratio), dtype))


def matrix_rank(x: ArrayLike, /, tol: float | None = None, *, rtol: float | None = None) -> Tensor:
    """How many singular values exceed a tolerance, int64.

    tol: absolute. rtol: relative to the largest; if neither is given, the larger extent times the rounding unit.
    """
    node, _ = operand(x, "matrix_rank")
    for name, value in (("tol", tol), ("rtol", rtol)):
        if value is not None and not (isinstance(value, int | float | np.floating | np.integer) and value >= 0):
            raise ArgumentError(f"matrix_rank: {name} must be a number that is not negative, got {value!r}")
    if rtol is None:
        rtol = default_rtol(node) if tol is None else 0.0
    values = spectral.svdvals(ops.stop_gradient(node))
    return Tensor(rank_node(values, float(rtol), 0.0 if tol is None else float(tol)))


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along ``axis``; the other axes broadcast."""
    a, b = promote(x1, x2, op="cross")
    if a.dtype is dtypes.bool_:
        a, b = cast_node(a, dtypes.int64), cast_node(b, dtypes.int64)
    for node in (a, b):
        if node.shape[normalize_axis(axis, len(node.shape), "cross")] != 3:
            raise ShapeError(f"cross: axis {axis} must have 3 elements, got shapes {a.shape} and {b.shape}")
    if axis >= 0 and len(a.shape) != len(b.shape):
        raise ShapeError(f"cross: for shapes {a.shape} and {b.shape}, count axis from the end; got {axis}")
    a, b = broadcast_nodes([a, b], "cross")
    position = normalize_axis(axis, len(a.shape), "cross")

    def turned(node: Node, first: int) -> Node:
        order = [first, (first + 1) % 3, (first + 2) % 3]
        return move.concat([move.slice_axis(node, position, i, i + 1) for i in order], position)

    product = ops.multiply(turned(a, 1), turned(b, 2))
    return Tensor(ops.subtract(product, ops.multiply(turned(a, 2), turned(b, 1))))


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """Elements ``x[..., i, i + offset]`` of the matrices in the last two axes."""
    return diagonal_of_axes(x, offset, -2, -1)
