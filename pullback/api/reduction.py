"""Reductions over one axis, several, or all: sums, extremes, truth, positions, and the statistics made of them.

``axis`` is an int, a tuple of ints, or None for all axes; ``keepdims`` leaves the folded axes with extent 1. A wrong or
repeated axis raises ShapeError. Means, variances and logsumexp of float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import builtins
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..ops import reduction as fold
from ..shapes import normalize_axes, normalize_axis, reduced_shape, size_of
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node
from .elementwise import truth

Axis = int | tuple[int, ...] | None

_HALF = (dtypes.float16, dtypes.bfloat16)


def _operand(x: ArrayLike, axis: Axis, op: str) -> tuple[Node, tuple[int, ...]]:
    node = x.node if isinstance(x, Tensor) else as_node(x, None, op)
    return node, normalize_axes(axis, len(node.shape), op)


def accumulator_dtype(dtype: DType) -> DType:
    """What sums and products of ``dtype`` are computed in: integers and bools widen to 64 bits, floats stay."""
    if dtype.kind in "bi":
        return dtypes.int64
    return dtypes.uint64 if dtype.kind == "u" else dtype


def sum(x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum. Signed integers and bools give int64, unsigned integers uint64, floats their dtype; ``dtype`` overrides."""
    node, axes = _operand(x, axis, "sum")
    target = accumulator_dtype(node.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return Tensor(fold.reduce_sum(cast_node(node, target), axes, keepdims))


def prod(x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product, with the dtype rule of :func:`sum`. Its gradient is exact where elements are 0."""
    node, axes = _operand(x, axis, "prod")
    target = accumulator_dtype(node.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return Tensor(fold.reduce_prod(cast_node(node, target), axes, keepdims))


def max(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element, NaN if any is; tied elements share the gradient evenly. ShapeError over no elements."""
    node, axes = _operand(x, axis, "max")
    if node.dtype.kind == "b":
        _require_elements(node, axes, "max")
        return Tensor(fold.reduce_any(node, axes, keepdims))
    return Tensor(fold.reduce_max(node, axes, keepdims))


def min(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element, NaN if any is; tied elements share the gradient evenly. ShapeError over no elements."""
    node, axes = _operand(x, axis, "min")
    if node.dtype.kind == "b":
        _require_elements(node, axes, "min")
        return Tensor(fold.reduce_all(node, axes, keepdims))
    return Tensor(fold.reduce_min(node, axes, keepdims))


def _require_elements(node: Node, axes: tuple[int, ...], op: str) -> None:
    if not size_of(node.shape[a] for a in axes):
        raise ShapeError(f"{op}: no elements to compare along axes {axes} of shape {node.shape}")


def any(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether any element is true (numbers: not 0)."""
    node, axes = _operand(x, axis, "any")
    return Tensor(fold.reduce_any(truth(node), axes, keepdims))


def all(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true (numbers: not 0)."""
    node, axes = _operand(x, axis, "all")
    return Tensor(fold.reduce_all(truth(node), axes, keepdims))


def count_nonzero(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Number of elements that are not 0, int64."""
    node, axes = _operand(x, axis, "count_nonzero")
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


def _statistic_operand(x: ArrayLike, axis: Axis, dtype: Any, op: str) -> tuple[Node, tuple[int, ...], DType]:
    """The operand in the dtype to compute in, its axes, the dtype of the result."""
    node, axes = _operand(x, axis, op)
    if dtype is not None:
        result = dtypes.as_dtype(dtype)
        if result.kind != "f":
            raise DTypeError(f"{op}: the result is a fraction, so dtype must be floating, got {result.name}")
    else:
        result = node.dtype if node.dtype.kind == "f" else dtypes.get_default_dtype()
    return cast_node(node, dtypes.float32 if result in _HALF else result), axes, result


def mean_node(node: Node, axes: tuple[int, ...], keepdims: bool, fewer: float = 0.0) -> Node:
    """Sum over ``axes`` divided by their size less ``fewer``, at least 0; NaN over no elements."""
    count = builtins.max(size_of(node.shape[a] for a in axes) - fewer, 0.0)
    return ops.divide(fold.reduce_sum(node, axes, keepdims), count)


def mean(x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean; integers give the default float dtype, no elements NaN."""
    node, axes, result = _statistic_operand(x, axis, dtype, "mean")
    return Tensor(cast_node(mean_node(node, axes, keepdims), result))


def variance_node(node: Node, axes: tuple[int, ...], keepdims: bool, correction: float) -> Node:
    """Two passes: the mean first, then the mean square of what is left, which does not cancel."""
    centred = ops.subtract(node, mean_node(node, axes, True))
    return mean_node(ops.square(centred), axes, keepdims, correction)


def var(
    x: ArrayLike, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Variance: the mean square distance from the mean, computed in two passes.

    correction (NumPy's ``ddof``): the divisor is the number of elements less this.
    """
    node, axes, result = _statistic_operand(x, axis, None, "var")
    return Tensor(cast_node(variance_node(node, axes, keepdims, correction if ddof is None else ddof), result))


def std(
    x: ArrayLike, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Standard deviation, the square root of :func:`var`; its gradient where it is 0 is 0."""
    node, axes, result = _statistic_operand(x, axis, None, "std")
    variance = variance_node(node, axes, keepdims, correction if ddof is None else ddof)
    return Tensor(cast_node(root_node(variance), result))


def root_node(node: Node) -> Node:
    """Square root of a sum of squares, with derivative 0 (of every order) where it is 0; NaN keeps a derivative NaN."""
    zero = ops.equal(node, 0)
    return ops.where(zero, ops.stop_gradient(node), ops.sqrt(ops.where(zero, 1, node)))


def logsumexp(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` without overflow. Over -inf alone (or nothing): -inf, with gradient 0. With +inf: inf."""
    node, axes, result = _statistic_operand(x, axis, None, "logsumexp")
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
