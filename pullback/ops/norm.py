"""The vector norm as one op, whose derivatives neither overflow nor vanish before their value does."""

from __future__ import annotations

import math

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape, reduced_shape
from . import elementwise as e
from . import movement
from .family import Array, kind_error, rank_error
from .record import Jvp, Op
from .reduction import reduce_sum
from .registry import register

Ints = tuple[int, ...]


def _infer_norm(inputs: tuple[Node, ...], axes: Ints, keepdims: bool, order: float) -> tuple[Shape, DType]:
    (x,) = inputs
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise kind_error("vector_norm", "f", x)
    if tuple(sorted(set(axes))) != axes or (axes and not 0 <= axes[0] <= axes[-1] < len(x.shape)):
        raise rank_error("vector_norm", f"axes {axes} are not distinct axes in order", x)
    if order == 0 or not math.isfinite(order):
        raise rank_error("vector_norm", f"order {order} is a count or an extremum", x)
    if order < 0 and any(x.shape[a] == 0 for a in axes):
        raise rank_error("vector_norm", f"of order {order}, an empty axis has none", x)
    return reduced_shape(x.shape, axes, keepdims), x.dtype


def _norm_reference(node: Node, x: Array) -> Array:
    axes, _, order = node.attrs
    if x.size == 0:
        return np.zeros(node.shape, x.dtype)
    with np.errstate(all="ignore"):
        size = np.abs(x.astype(np.float64))
        scale = size.max(axes, keepdims=True) if order > 0 else size.min(axes, keepdims=True)
        scale = np.where((scale == 0) | ~np.isfinite(scale), 1, scale)
        total = ((size / scale) ** order).sum(axes, keepdims=True)
        return (scale * total ** (1 / order)).astype(x.dtype).reshape(node.shape)


def _norm_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    """sum of sign(x) (|x| / norm)**(order - 1) dx: x / norm for order 2. Where the norm, or for other orders the
    element, is 0, so is the derivative."""
    (x,), (tangent,) = node.inputs, tangents
    axes, keepdims, order = node.attrs
    norm = node if keepdims else movement.expand_dims(node, axes)
    zero = e.equal(norm, 0)
    norm = e.where(zero, 1, norm)
    if order == 2:
        slope = e.where(zero, 0, e.divide(x, norm))
    else:
        kept = e.logical_not(e.logical_or(zero, e.equal(x, 0)))
        ratio = e.where(kept, e.divide(e.abs(x), norm), 1)
        slope = e.where(kept, e.multiply(e.sign(x), e.pow(ratio, order - 1)), 0)
    return reduce_sum(e.strong_product(tangent, slope), axes, keepdims)  # type: ignore[arg-type]


def _batch_norm(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    axes, keepdims, order = node.attrs
    return vector_norm(inputs[0], tuple([a + 1 for a in axes]), keepdims, order)


VECTOR_NORM = register(Op(
    "vector_norm", "reduction", _infer_norm, _norm_reference, Jvp(_norm_tangent), _batch_norm, "vector_norm", 4.0,
    ("axes", "keepdims", "order"), "(sum |x|**order)**(1 / order) over axes, of x scaled by its largest element",
))


def vector_norm(x: Node, axes: Ints, keepdims: bool = False, order: float = 2.0) -> Node:
    """``(sum |x|**order)**(1 / order)`` over ``axes``, for an order that is finite and not 0."""
    return bind(VECTOR_NORM, (x,), (axes, keepdims, order))
