"""Reductions over one axis, several, or all: sums, extremes, truth, positions, and the statistics made of them.

``axis`` is an int, a tuple of ints, or None for all axes; ``keepdims`` leaves the folded axes with extent 1. A wrong or
repeated axis raises ShapeError. Means, variances and logsumexp of float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..ops import reduction as fold
from ..ops.norm import vector_norm
from ..shapes import as_number, broadcast_shapes, normalize_axes, normalize_axis, reduced_shape, size_of
from ..tensor import Tensor
from .composite import composite
from .convert import ArrayLike, as_node, cast_node, promote, scalar_node
from .elementwise import truth

Axis = int | tuple[int, ...] | None

_HALF = (dtypes.float16, dtypes.bfloat16)


def operand(x: ArrayLike, axis: Axis, op: str) -> tuple[Node, tuple[int, ...]]:
    """The operand and the axes to fold, sorted."""
    node = x.node if isinstance(x, Tensor) else as_node(x, None, op)
    return node, normalize_axes(axis, len(node.shape), op)


def accumulator_dtype(dtype: DType) -> DType:
    """What sums and products of ``dtype`` are computed in: integers and bools widen to 64 bits, floats stay."""
    if dtype.kind in "bi":
        return dtypes.int64
    return dtypes.uint64 if dtype.kind == "u" else dtype


def _mask(where: ArrayLike | None, node: Node, op: str) -> Node | None:
    """NumPy's ``where=``: a bool array that broadcasts to the operand; None where every element counts."""
    if where is None or where is True:
        return None
    mask = as_node(where, None, op)
    if mask.dtype.kind != "b":
        raise DTypeError(f"{op}: where= must be bool, got {mask.dtype.name}; compare it with 0")
    if broadcast_shapes(mask.shape, node.shape, op=op) != node.shape:
        raise ShapeError(f"{op}: where= of shape {mask.shape} does not broadcast to {node.shape}, the array's shape")
    return mask


def _chosen(node: Node, where: ArrayLike | None, other: bool | int | float, op: str) -> Node:
    """``node`` with ``other`` where ``where`` does not hold: no derivative comes from there."""
    mask = _mask(where, node, op)
    return node if mask is None else ops.where(mask, node, other)


def sum(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Tensor:
    """Sum. Signed integers and bools give int64, unsigned integers uint64, floats their dtype; ``dtype`` overrides.

    initial: a number or tensor to start from. where: a bool mask, broadcast to x, of the elements that count.
    """
    node, axes = operand(x, axis, "sum")
    if dtype is not None or where is not None or node.dtype.kind != "f":
        target = accumulator_dtype(node.dtype) if dtype is None else dtypes.as_dtype(dtype)
        node = _chosen(cast_node(node, target), where, 0, "sum")
    total = fold.reduce_sum(node, axes, keepdims)
    return Tensor(total if initial is None else ops.add(total, _start(initial, total, "sum")))


def prod(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Tensor:
    """Product, with the arguments and the dtype rule of :func:`sum`. Its gradient is exact where elements are 0."""
    node, axes = operand(x, axis, "prod")
    target = accumulator_dtype(node.dtype) if dtype is None else dtypes.as_dtype(dtype)
    total = fold.reduce_prod(_chosen(cast_node(node, target), where, 1, "prod"), axes, keepdims)
    return Tensor(total if initial is None else ops.multiply(total, _start(initial, total, "prod")))


def _start(initial: ArrayLike, result: Node, op: str) -> Node:
    """``initial`` in the dtype of the result, which keeps its shape."""
    if isinstance(initial, bool | int | float) and not isinstance(initial, np.generic):
        return scalar_node(initial, result.dtype, op=op)
    node = cast_node(as_node(initial, None, op), result.dtype)
    if broadcast_shapes(node.shape, result.shape, op=op) != result.shape:
        raise ShapeError(f"{op}: initial= of shape {node.shape} does not broadcast to {result.shape}, the result's")
    return node


def max(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Tensor:
    """Largest element, NaN if any is; tied elements share the gradient evenly.

    initial: the least that the result can be; with it, a maximum over no elements exists, else ShapeError.
    where: a bool mask, broadcast to x, of the elements that count; it needs ``initial``.
    """
    return _extremum(x, axis, keepdims, initial, where, "max")


def min(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Tensor:
    """Smallest element, NaN if any is; tied elements share the gradient evenly. Arguments as for :func:`max`."""
    return _extremum(x, axis, keepdims, initial, where, "min")


def _extremum(
    x: ArrayLike, axis: Axis, keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None, op: str
) -> Tensor:
    node, axes = operand(x, axis, op)
    if initial is None:
        if _mask(where, node, op) is not None:
            raise ArgumentError(f"{op}: where= may leave no element, so it needs initial=, the value of the empty {op}")
        return Tensor(extremum_node(node, axes, keepdims, op))
    node, start = promote(Tensor(node), initial, op=op)
    lowest = least(node.dtype) if op == "max" else greatest(node.dtype)
    node = _chosen(node, where, lowest, op)
    if size_of(node.shape[a] for a in axes):
        found = extremum_node(node, axes, keepdims, op)
    else:
        found = leaf.full(reduced_shape(node.shape, axes, keepdims), lowest, node.dtype)
    start = _start(Tensor(start), found, op)
    if node.dtype.kind == "b":
        return Tensor(ops.logical_or(found, start) if op == "max" else ops.logical_and(found, start))
    return Tensor(ops.maximum(found, start) if op == "max" else ops.minimum(found, start))


def extremum_node(node: Node, axes: tuple[int, ...], keepdims: bool, op: str) -> Node:
    """The largest (``op`` "max") or smallest element of a node of any dtype."""
    if node.dtype.kind == "b":
        if not size_of(node.shape[a] for a in axes):
            raise ShapeError(f"{op}: no elements to compare along axes {axes} of shape {node.shape}")
        return (fold.reduce_any if op == "max" else fold.reduce_all)(node, axes, keepdims)
    return (fold.reduce_max if op == "max" else fold.reduce_min)(node, axes, keepdims)


def least(dtype: DType) -> bool | int | float:
    """The smallest value of ``dtype``: what a maximum over nothing would be."""
    if dtype.kind == "f":
        return -math.inf
    return False if dtype.kind == "b" else dtypes.integer_limits(dtype)[0]


def greatest(dtype: DType) -> bool | int | float:
    """The largest value of ``dtype``: what a minimum over nothing would be."""
    if dtype.kind == "f":
        return math.inf
    return True if dtype.kind == "b" else dtypes.integer_limits(dtype)[1]


def any(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, where: ArrayLike | None = None) -> Tensor:
    """Whether any element (for which ``where`` holds) is true (numbers: not 0)."""
    node, axes = operand(x, axis, "any")
    return Tensor(fold.reduce_any(_chosen(truth(node), where, False, "any"), axes, keepdims))


def all(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, where: ArrayLike | None = None) -> Tensor:
    """Whether all elements (for which ``where`` holds) are true (numbers: not 0)."""
    node, axes = operand(x, axis, "all")
    return Tensor(fold.reduce_all(_chosen(truth(node), where, True, "all"), axes, keepdims))


def count_nonzero(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Number of elements that are not 0, int64."""
    node, axes = operand(x, axis, "count_nonzero")
    return Tensor(fold.reduce_sum(ops.cast(truth(node), dtypes.int64), axes, keepdims))


def argmax(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first largest element (of the first NaN, if there is one) along ``axis``, int64.

    axis: None searches the flattened array.
    """
    return _position(fold.argmax, x, axis, keepdims, "argmax")


def argmin(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first smallest element (of the first NaN, if there is one) along ``axis``, int64.

    axis: None searches the flattened array.
    """
    return _position(fold.argmin, x, axis, keepdims, "argmin")


def _position(function: Any, x: ArrayLike, axis: int | None, keepdims: bool, op: str) -> Tensor:
    node = x.node if isinstance(x, Tensor) else as_node(x, None, op)
    if node.dtype.kind == "b":
        node = ops.cast(node, dtypes.uint8)
    rank = len(node.shape)
    if axis is None:
        found = function(move.reshape(node, (node.size,)), (0,), False)
        return Tensor(move.reshape(found, (1,) * rank) if keepdims else found)
    return Tensor(function(node, (normalize_axis(axis, rank, op),), keepdims))


# -- statistics --------------------------------------------------------------------------------------------------------


def statistic_operand(x: ArrayLike, axis: Axis, dtype: Any, op: str) -> tuple[Node, tuple[int, ...], DType]:
    """The operand in the dtype to compute in, its axes, the dtype of the result."""
    node, axes = operand(x, axis, op)
    if dtype is not None:
        result = dtypes.as_dtype(dtype)
        if result.kind != "f":
            raise DTypeError(f"{op}: the result is a fraction, so dtype must be floating, got {result.name}")
    else:
        result = node.dtype if node.dtype.kind == "f" else dtypes.get_default_dtype()
    return cast_node(node, dtypes.float32 if result in _HALF else result), axes, result


def mean_node(
    node: Node, axes: tuple[int, ...], keepdims: bool, fewer: float = 0.0, mask: Node | None = None
) -> Node:
    """Sum over ``axes`` divided by their size less ``fewer``, at least 0; NaN over no elements.

    mask: which elements count; the others must be 0 already.
    """
    return ops.divide(fold.reduce_sum(node, axes, keepdims), _divisor(node, axes, keepdims, fewer, mask))


def _divisor(
    node: Node, axes: tuple[int, ...], keepdims: bool, fewer: float, mask: Node | None
) -> Node | float:
    """How many elements there are over ``axes``, less ``fewer``, at least 0."""
    if mask is None:
        return builtins.max(size_of(node.shape[a] for a in axes) - fewer, 0.0)
    mask = move.broadcast_to(mask, node.shape)
    count = ops.cast(fold.reduce_sum(ops.cast(mask, dtypes.int64), axes, keepdims), node.dtype)
    return ops.maximum(ops.subtract(count, fewer), 0) if fewer else count


@composite
def mean(
    x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False, where: ArrayLike | None = None
) -> Tensor:
    """Arithmetic mean; integers give the default float dtype, no elements NaN.

    where: a bool mask, broadcast to x, of the elements that count.
    """
    node, axes, result = statistic_operand(x, axis, dtype, "mean")
    mask = _mask(where, node, "mean")
    chosen = node if mask is None else ops.where(mask, node, 0)
    return Tensor(cast_node(mean_node(chosen, axes, keepdims, mask=mask), result))


def variance_node(
    node: Node, axes: tuple[int, ...], keepdims: bool, correction: float, mask: Node | None = None
) -> Node:
    """Two passes: the mean first, then the mean square of what is left, which does not cancel."""
    return mean_node(ops.square(_centred(node, axes, mask)), axes, keepdims, correction, mask)


def _centred(node: Node, axes: tuple[int, ...], mask: Node | None) -> Node:
    """The distances from the mean; 0 for elements that do not count."""
    if mask is None:
        return ops.subtract(node, mean_node(node, axes, True))
    chosen = ops.where(mask, node, 0)
    return ops.where(mask, ops.subtract(chosen, mean_node(chosen, axes, True, mask=mask)), 0)


@composite
def var(
    x: ArrayLike,
    /,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    ddof: float | None = None,
    where: ArrayLike | None = None,
) -> Tensor:
    """Variance: the mean square distance from the mean, computed in two passes.

    correction (NumPy's ``ddof``): the divisor is the number of elements less this; NaN where it is not positive.
    where: a bool mask, broadcast to x, of the elements that count.
    """
    node, axes, result = statistic_operand(x, axis, None, "var")
    fewer = as_number(correction if ddof is None else ddof, "var", "correction")
    mask = _mask(where, node, "var")
    return Tensor(cast_node(variance_node(node, axes, keepdims, fewer, mask), result))


@composite
def std(
    x: ArrayLike,
    /,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    ddof: float | None = None,
    where: ArrayLike | None = None,
) -> Tensor:
    """Standard deviation, the square root of :func:`var`; its gradient where it is 0 is 0.

    It is computed as a norm, so that it does not overflow where the variance does.
    """
    node, axes, result = statistic_operand(x, axis, None, "std")
    fewer = as_number(correction if ddof is None else ddof, "std", "correction")
    mask = _mask(where, node, "std")
    divisor = _divisor(node, axes, keepdims, fewer, mask)
    root = ops.sqrt(divisor) if isinstance(divisor, Node) else math.sqrt(divisor)
    return Tensor(cast_node(ops.divide(vector_norm(_centred(node, axes, mask), axes, keepdims), root), result))


@composite
def logsumexp(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` without overflow. Over -inf alone (or nothing): -inf, with gradient 0. With +inf: inf."""
    node, axes, result = statistic_operand(x, axis, None, "logsumexp")
    return Tensor(cast_node(logsumexp_node(node, axes, keepdims), result))


def logsumexp_node(node: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """See :func:`logsumexp`; of a floating node."""
    if not size_of(node.shape[a] for a in axes):
        return leaf.full(reduced_shape(node.shape, axes, keepdims), float("-inf"), node.dtype)
    top = ops.stop_gradient(fold.reduce_max(node, axes, True))
    top = ops.where(ops.isfinite(top), top, 0)
    total = fold.reduce_sum(ops.exp(ops.subtract(node, top)), axes, True)
    empty = ops.equal(total, 0)
    value = ops.add(ops.log(ops.where(empty, 1, total)), top)
    value = ops.where(empty, float("-inf"), value)
    return value if keepdims else move.reshape(value, reduced_shape(node.shape, axes, False))


# -- NumPy's names -----------------------------------------------------------------------------------------------------

amax, amin = max, min
