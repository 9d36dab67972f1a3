"""Elementwise ops that choose, convert or mark: where, clip, cast, bitcast, identities, and the index check."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..graph.node import Node, bind
from ..graph.state import describe_site
from ..shapes import Shape, broadcast_shapes, size_of
from . import elementwise as e
from . import leaf, movement
from .family import (
    ANY,
    INTEGER_RESULT,
    Array,
    Operand,
    as_nodes,
    elementwise,
    infer_unary,
    kind_error,
    mixed_error,
    reference_elementwise,
    widen,
    with_batch,
)
from .record import Linear, NoDerivative, Op
from .reduction import sum_to
from .registry import register

# -- where and clip ----------------------------------------------------------------------------------------------------


def _infer_where(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
    condition, x, y = inputs
    if condition.dtype.kind != "b":
        raise DTypeError(f"where: the condition must be bool, got {condition.dtype.name}; compare it with 0")
    if x.dtype is not y.dtype:
        raise mixed_error("where", x, y)
    shape = condition.shape
    if shape != x.shape or shape != y.shape:
        shape = broadcast_shapes(shape, x.shape, y.shape, op="where")
    return shape, x.dtype


def _transpose_where(node: Node, cotangent: Node, index: int) -> Node:
    condition, x, y = node.inputs
    if index == 1:
        return sum_to(where(condition, cotangent, 0), x.shape)
    return sum_to(where(condition, 0, cotangent), y.shape)


WHERE = elementwise(
    "where", _infer_where, reference_elementwise(np.where), Linear(_transpose_where, (1, 2), joint=True), 1,
    "x where the condition holds, else y; the branch not taken has derivative 0",
)


def _infer_clip(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
    x, low, high = inputs
    if x.dtype is not low.dtype or x.dtype is not high.dtype:
        raise mixed_error("clip", x, low, high)
    if x.dtype.kind not in ANY:
        raise kind_error("clip", ANY, x)
    shape = x.shape
    if (low.shape and low.shape != shape) or (high.shape and high.shape != shape):
        shape = broadcast_shapes(shape, low.shape, high.shape, op="clip")
    return shape, x.dtype


def _is_infinite(bound: Node, sign: int) -> bool:
    return bound.op is leaf.CONSTANT and bound.attrs[0] == sign * math.inf


def _clip_partials(z: Node, x: Node, low: Node, high: Node) -> tuple[Any, Any, Any]:
    dtype = x.dtype

    def indicator(condition: Node) -> Node:
        return e.where(condition, leaf.constant(1, dtype), leaf.constant(0, dtype))

    def by_x() -> Node:
        # Comparisons are false for NaN, which gives it 0; so one of them must stay even if both bounds are infinite.
        if _is_infinite(low, -1):
            return indicator(e.less_equal(x, high))
        if _is_infinite(high, 1):
            return indicator(e.greater_equal(x, low))
        return indicator(e.logical_and(e.greater_equal(x, low), e.less_equal(x, high)))

    return (
        by_x,
        lambda: indicator(e.logical_and(e.less(x, low), e.less(low, high))),
        lambda: indicator(e.logical_or(e.greater(x, high), e.less(high, low))),
    )


CLIP = elementwise(
    "clip", _infer_clip, reference_elementwise(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    _clip_partials, 2, "min(max(x, low), high); derivative by x is 1 on the bounds, 0 outside and for NaN",
)


def where(condition: Node, x: Operand, y: Operand) -> Node:
    """``x`` where ``condition`` (bool) holds, else ``y``; the three broadcast."""
    if x.__class__ is not Node or y.__class__ is not Node:
        x, y = as_nodes("where", x, y)
    return bind(WHERE, (condition, x, y), (), x.weak and y.weak)


def clip(x: Node, low: Operand, high: Operand) -> Node:
    """``x`` limited to [low, high]; where low > high the result is high. NaN stays NaN."""
    return bind(CLIP, as_nodes("clip", x, low, high), (), x.weak)


# -- conversions -------------------------------------------------------------------------------------------------------


def _infer_cast(inputs: tuple[Node, ...], dtype: DType) -> tuple[Shape, DType]:
    return inputs[0].shape, dtype


def float_to_integer(array: Array, dtype: DType) -> Array:
    """Truncation towards 0; out of range saturates, NaN gives 0 (LLVM's fptosi.sat and fptoui.sat)."""
    low, high = dtypes.integer_limits(dtype)
    with np.errstate(all="ignore"):
        whole = np.trunc(array.astype(np.float64))
        inside = (whole >= low) & (whole < float(high) + (1 if high < 2**53 else 0))
        result = np.where(inside, whole, 0).astype(dtype.numpy)
    result[whole < low] = low
    result[~inside & (whole > 0)] = high
    return result


def _cast_reference(node: Node, array: Array) -> Array:
    source, target = node.inputs[0].dtype, node.dtype
    if source.kind == "f" and target.kind in "iu":
        return float_to_integer(np.array(array, ndmin=1), target).reshape(node.shape)
    with np.errstate(all="ignore"):
        if source.kind == "f" and target.kind == "b":
            return np.asarray(widen(array, source) != 0)
        return array.astype(target.numpy)


CAST = elementwise(
    "cast", _infer_cast, _cast_reference, Linear(lambda node, ct, index: cast(ct, node.inputs[0].dtype)), 1,
    "x in another dtype: to bool x != 0; float to integer truncates, saturates, NaN gives 0; integers wrap",
    ("dtype",),
)


def _infer_bitcast(inputs: tuple[Node, ...], dtype: DType) -> tuple[Shape, DType]:
    (x,) = inputs
    if x.dtype.itemsize != dtype.itemsize or dtype.kind == "b":
        raise DTypeError(
            f"bitcast: {x.dtype.name} cannot be read as {dtype.name}; the target must not be bool and must have "
            f"{x.dtype.itemsize} bytes"
        )
    return x.shape, dtype


BITCAST = elementwise(
    "bitcast", _infer_bitcast, lambda node, x: np.ascontiguousarray(x).view(node.dtype.numpy).reshape(node.shape),
    NoDerivative("it reads the bits of its operand"), 0, "the same bits read as another dtype of the same size",
    ("dtype",),
)


def cast(x: Node, dtype: DType) -> Node:
    """``x`` in ``dtype``; ``x`` itself if it is already of that dtype and not weak."""
    if x.dtype is dtype and not x.weak:
        return x
    return bind(CAST, (x,), (dtype,))


def bitcast(x: Node, dtype: DType) -> Node:
    """The bits of ``x`` read as ``dtype``; DTypeError unless both have the same size."""
    return x if x.dtype is dtype else bind(BITCAST, (x,), (dtype,))


# -- identities --------------------------------------------------------------------------------------------------------

STOP_GRADIENT = elementwise(
    "stop_gradient", infer_unary("stop_gradient", ANY), lambda node, x: x,
    NoDerivative("it stops gradients", zero=True), 0, "x, a constant to every derivative",
)
ALIAS = elementwise(
    "alias", infer_unary("alias", ANY), lambda node, x: x, Linear(lambda node, cotangent, index: cotangent), 0,
    "x under another identity: the leaf that a derivative is taken by",
)


def stop_gradient(x: Node) -> Node:
    """``x``, a constant to every derivative."""
    return bind(STOP_GRADIENT, (x,), (), x.weak)


def alias(x: Node) -> Node:
    """``x`` as a node of its own."""
    return bind(ALIAS, (x,), (), x.weak)


def _infer_barrier(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
    x, after = inputs
    if after.shape:
        raise ShapeError(f"barrier: a 0-d second operand expected, got shape {after.shape}")
    return x.shape, x.dtype


def _batch_barrier(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    x, after = inputs
    if batched[1]:
        after = movement.reshape(movement.slice_axis(after, 0, 0, 1), ())
    return with_batch(barrier(x, after), batched[0], size)


BARRIER = register(Op(
    "barrier", "elementwise", _infer_barrier, lambda node, x, after: x,
    Linear(lambda node, cotangent, index: cotangent), _batch_barrier, "barrier", 0.0, (),
    "x apart from its other uses, and not before the second operand is known: what follows is computed again",
))


def barrier(x: Node, after: Node) -> Node:
    """``x``; what is computed from it is not shared with other uses of x, nor begun before 0-d ``after`` is known."""
    return bind(BARRIER, (x, after), (), x.weak)


# -- the index check ---------------------------------------------------------------------------------------------------


def index_error(node: Node, value: int) -> IndexError:
    """What is raised for ``value`` out of range at the ``check_index`` node."""
    size, what = node.attrs
    if value >= 1 << 63:  # a negative number that the caller reads as unsigned, so that it does not count from the end
        value -= 1 << 64
    return IndexError(f"{what}: index {value} is out of range for size {size} (made at {describe_site(node.site)})")


def _infer_check_index(inputs: tuple[Node, ...], size: int, what: str) -> tuple[Shape, DType]:
    (x,) = inputs
    if x.dtype.kind not in "iu":
        raise DTypeError(f"{what}: an index must be of an integer dtype, got {x.dtype.name}[{len(x.shape)} axes]")
    if size == 0 and size_of(x.shape):
        raise IndexError(f"{what}: no index is in range for size 0")
    return x.shape, dtypes.int64


def _check_index_reference(node: Node, index: Array) -> Array:
    size, _ = node.attrs
    # An unsigned index above 2**63 would turn negative as int64.
    outside = (index >= size) | (index < -size if index.dtype.kind == "i" else False)
    if outside.any():
        raise index_error(node, int(index[outside].flat[0] if index.ndim else index))
    signed = index.astype(np.int64)
    return np.where(signed < 0, signed + size, signed)


CHECK_INDEX = elementwise(
    "check_index", _infer_check_index, _check_index_reference, INTEGER_RESULT, 3,
    "an index counted from the front; IndexError unless -size <= x < size", ("size", "what"),
)


def check_index(x: Node, size: int, what: str) -> Node:
    """Index ``x`` (any integer dtype) into an axis of ``size`` as int64 in [0, size).

    A value out of range raises IndexError, its message beginning with ``what``: at once where no value can be right,
    else when the graph runs.
    """
    return bind(CHECK_INDEX, (x,), (size, what))
