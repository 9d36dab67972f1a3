"""softmax and its kin, along any axis or several; -inf rules an element out, and a row of -inf is 0 without NaN."""

from __future__ import annotations

import math
from typing import Any

from ..api import elementwise as ew
from ..api import reduction
from ..api.composite import composite
from ..shapes import normalize_axes, size_of
from ..tensor import Tensor
from .operands import constant, float_tensor, wide_inside


def exponentials(x: Tensor, axis: int | tuple[int, ...], op: str) -> tuple[Tensor, Tensor, Tensor]:
    """The largest element along ``axis``, ``x`` less that, and the sum of the exponentials of what is left.

    The largest, a constant to derivatives, and the sum keep ``axis`` with extent 1. In a row of -inf both are 0.
    """
    axes = normalize_axes(axis, x.ndim, op)
    if not size_of(x.shape[a] for a in axes):  # there is no largest element
        zero = reduction.sum(x, axis=axes, keepdims=True)
        return zero, x, zero
    largest = constant(reduction.max(x, axis=axes, keepdims=True))
    largest = ew.where(largest == -math.inf, 0.0, largest)
    shifted = x - largest
    return largest, shifted, reduction.sum(ew.exp(shifted), axis=axes, keepdims=True)


@composite
@wide_inside
def softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``. A row of -inf gives 0 everywhere, with derivative 0."""
    _, shifted, total = exponentials(float_tensor(x, "softmax"), axis, "softmax")
    return ew.exp(shifted) / ew.where(total == 0.0, 1.0, total)


@composite
@wide_inside
def softmin(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """:func:`softmax` of ``-x``."""
    return softmax(-float_tensor(x, "softmin"), axis)


@composite
@wide_inside
def log_softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """``x - log(sum(exp(x)))`` along ``axis``. A row of -inf stays -inf, with derivative 0."""
    _, shifted, total = exponentials(float_tensor(x, "log_softmax"), axis, "log_softmax")
    empty = total == 0.0
    return ew.where(empty, -math.inf, shifted - ew.log(ew.where(empty, 1.0, total)))
