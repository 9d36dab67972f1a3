"""Similarity and distance of vectors, and the losses made of them. Names and arguments are PyTorch's.

No square overflows or vanishes: vectors are scaled by their largest element first. Derivatives at a zero vector are
finite. float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

from ..api import convert, manipulation
from ..api import elementwise as ew
from ..api import reduction as fold
from ..api.composite import composite
from ..errors import ArgumentError, ShapeError
from ..shapes import as_number, broadcast_shapes, normalize_axis
from ..tensor import Tensor
from .operands import check_reduction, constant, narrowed, reduced, same_shape, widened


def _norm(x: Tensor, p: float, axis: int) -> Tensor:
    """The p-norm along ``axis``, kept with extent 1; its derivatives at 0, of every order, are 0."""
    if not x.shape[axis]:
        return fold.sum(x, axis=axis, keepdims=True)
    magnitudes = ew.abs(x)
    if p == 0.0:
        return fold.sum(convert.astype(x != 0.0, x.dtype), axis=axis, keepdims=True)
    if p == 1.0:
        return fold.sum(magnitudes, axis=axis, keepdims=True)
    if p == math.inf:
        return fold.max(magnitudes, axis=axis, keepdims=True)
    # The norm divided by the scale does not depend on it, so neither do derivatives, of any order.
    scale = constant(fold.max(magnitudes, axis=axis, keepdims=True))
    is_usable = ew.logical_and(scale > 0.0, ew.isfinite(scale))
    scale = ew.where(is_usable, scale, 1.0)
    if p == 2.0:
        scaled = x / scale
        total = fold.sum(scaled * scaled, axis=axis, keepdims=True)
    else:
        zero = x == 0.0  # where powers below 1 have no derivative
        powers = ew.pow(ew.where(zero, 1.0, magnitudes) / scale, p)
        total = fold.sum(ew.where(zero, 0.0, powers), axis=axis, keepdims=True)
    empty = total == 0.0
    total = ew.where(empty, 1.0, total)
    root = ew.sqrt(total) if p == 2.0 else ew.pow(total, 1.0 / p)
    return ew.where(empty, 0.0, root * scale)


def _broadcast(x1: Tensor, x2: Tensor, op: str) -> tuple[Tensor, Tensor]:
    shape = broadcast_shapes(x1.shape, x2.shape, op=op)
    if not shape:
        raise ShapeError(f"{op}: vectors need an axis, got 0-d tensors")
    return manipulation.broadcast_to(x1, shape), manipulation.broadcast_to(x2, shape)


@composite
def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """``x1 . x2 / (max(|x1|, eps) max(|x2|, eps))`` along ``axis``, which the result lacks; 0 for a zero vector.

    x1, x2: floating, broadcast against each other (ShapeError if they do not).
    """
    (a, b), dtype = widened("cosine_similarity", x1, x2)
    a, b = _broadcast(a, b, "cosine_similarity")
    axis = normalize_axis(axis, a.ndim, "cosine_similarity")
    return narrowed(fold.sum(_unit(a, axis, eps) * _unit(b, axis, eps), axis=axis), dtype)


def _unit(x: Tensor, axis: int, eps: float) -> Tensor:
    """``x / max(|x|, eps)``."""
    norm = _norm(x, 2.0, axis)
    return x / ew.where(norm < eps, eps, norm)


@composite
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis, which is kept with extent 1 if ``keepdims``.

    x1, x2: floating, broadcast against each other (ShapeError if they do not). p: from 0 (a count) to infinity (the
    largest difference), ArgumentError if negative. eps: keeps equal vectors off the norm's kink.
    """
    (a, b), dtype = widened("pairwise_distance", x1, x2)
    a, b = _broadcast(a, b, "pairwise_distance")
    distance = _distance(a, b, p, eps, "pairwise_distance")
    return narrowed(manipulation.expand_dims(distance, axis=-1) if keepdims else distance, dtype)


def _distance(x1: Tensor, x2: Tensor, p: float, eps: float, op: str) -> Tensor:
    order = as_number(p, op, "p")
    if not order >= 0.0:
        raise ArgumentError(f"{op}: p must not be negative, got {p}")
    return manipulation.squeeze(_norm(x1 - x2 + eps, float(order), x1.ndim - 1), axis=-1)


def cosine_embedding_loss(
    x1: Any, x2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``1 - cos(x1, x2)`` where ``target`` is 1, ``max(cos(x1, x2) - margin, 0)`` where it is -1, else 0.

    x1, x2: (N, D) or (D,), floating; target: (N,) or 0-d. The cosine is ``x1 . x2 / sqrt((|x1|^2 + 1e-12) (|x2|^2 +
    1e-12))``, as in PyTorch. Raises ShapeError if the shapes do not fit.
    """
    op = "cosine_embedding_loss"
    check_reduction(reduction, op)
    (a, b, sign), dtype = widened(op, x1, x2, target)
    same_shape(op, x1=a, x2=b)
    if a.ndim not in (1, 2) or sign.shape != a.shape[:-1]:
        raise ShapeError(
            f"{op}: x1 and x2 must be (N, D) or (D,) and target (N,) or 0-d, got shapes {a.shape}, {b.shape} and "
            f"{sign.shape}"
        )
    axis = a.ndim - 1
    product = (a / ew.hypot(_norm(a, 2.0, axis), 1e-6)) * (b / ew.hypot(_norm(b, 2.0, axis), 1e-6))
    cosine = fold.sum(product, axis=axis)
    apart = cosine - margin
    losses = ew.where(sign == 1.0, 1.0 - cosine, ew.where(ew.logical_and(sign == -1.0, apart >= 0.0), apart, 0.0))
    return reduced(losses, reduction, dtype)


def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``max(|anchor - positive| - |anchor - negative| + margin, 0)`` with the distances of :func:`pairwise_distance`
    (Balntas et al. 2016).

    anchor, positive, negative: (N, D) or (D,), of one shape (ShapeError otherwise).
    swap: where positive and negative are nearer to each other than anchor and negative, that distance is taken.
    """
    op = "triplet_margin_loss"
    check_reduction(reduction, op)
    (a, b, c), dtype = widened(op, anchor, positive, negative)
    same_shape(op, anchor=a, positive=b, negative=c)
    if not a.ndim:
        raise ShapeError(f"{op}: vectors need an axis, got 0-d tensors")
    near, far = _distance(a, b, p, eps, op), _distance(a, c, p, eps, op)
    if swap:
        far = ew.minimum(far, _distance(b, c, p, eps, op))
    apart = near - far + margin
    return reduced(ew.where(apart < 0.0, 0.0, apart), reduction, dtype)
