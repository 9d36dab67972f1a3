"""Losses of classes: cross entropy in its forms. Names and arguments are PyTorch's.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` (one loss for each target), ArgumentError otherwise. float16 and
bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

from ..api import convert, manipulation
from ..api import elementwise as ew
from ..api import reduction as fold
from ..api.composite import composite
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..shapes import as_number
from ..tensor import Tensor
from .labels import checked_labels, is_label
from .operands import (
    along_axis,
    check_reduction,
    compute_dtype,
    constant,
    fitting,
    float_tensor,
    narrowed,
    reduced,
    strong,
    widened,
    widened_pair,
)
from .probability import exponentials


def _class_axis(x: Tensor, axis: int | None, op: str) -> int:
    if x.ndim == 0:
        raise ShapeError(f"{op}: logits need a class axis, got a 0-d tensor")
    axis = (1 if x.ndim > 1 else 0) if axis is None else axis
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"{op}: axis {axis} is out of range for logits of shape {x.shape}")
    return axis % x.ndim


@composite
def cross_entropy(
    logits: Any,
    target: Any,
    weight: Any = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Tensor:
    """``-log softmax(logits)[target]``.

    Args:
        logits: (N, C), (C,) or (N, C, d1, ...), floating; -inf for a class that is ruled out.
        target: class numbers of the shape of ``logits`` without the class axis; or, of the shape of ``logits`` and
            floating, a probability for each class.
        weight: (C,): the weight of each class; the mean is then weighted too.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` (one loss for each target). The mean is over the targets that
            count, NaN if none does, as in PyTorch.
        ignore_index: targets of this number count for nothing.
        label_smoothing: the target becomes this much of the uniform distribution.
        axis: the class axis; by default 1, or 0 if ``logits`` has one axis.

    Raises IndexError (when the loss is evaluated) for a class number out of range, ShapeError and DTypeError for
    operands that do not fit.
    """
    op = "cross_entropy"
    check_reduction(reduction, op)
    if not 0.0 <= as_number(label_smoothing, op, "label_smoothing") <= 1.0:
        raise ArgumentError(f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}")
    x = float_tensor(logits, op)
    dtype = x.dtype
    x = narrowed(x, compute_dtype(dtype))
    axis = _class_axis(x, axis, op)
    target = convert.wrap(convert.as_node(target, None, op))
    weights = None if weight is None else along_axis(weight, x, axis, "weight", op)
    if target.dtype.kind == "f":
        # The mean is over targets, whatever their mass.
        return reduced(_dense_losses(x, target, weights, axis, label_smoothing), reduction, dtype)
    losses, mass = _label_losses(x, target, weights, axis, label_smoothing, ignore_index)
    return _mean_by_mass(losses, mass, reduction, dtype)


def _mean_by_mass(losses: Tensor, mass: Tensor | None, reduction: str, dtype: DType) -> Tensor:
    if reduction == "mean" and mass is not None:
        return narrowed(fold.sum(losses) / fold.sum(mass), dtype)
    return reduced(losses, reduction, dtype)


def _log_sum(total: Tensor) -> Tensor:
    """The logarithm of a sum of exponentials; -inf, with derivative 0, of one over a row of -inf."""
    empty = total == 0.0
    return ew.where(empty, -math.inf, ew.log(ew.where(empty, 1.0, total)))


def _label_logit(x: Tensor, chosen: Tensor, largest: Tensor, axis: int) -> Tensor:
    """The label's logit less the largest one."""
    return fold.sum(ew.where(chosen, x, 0.0), axis=axis) - manipulation.squeeze(largest, axis=axis)


def _dense_losses(x: Tensor, target: Tensor, weights: Tensor | None, axis: int, smoothing: float) -> Tensor:
    if target.shape != x.shape:
        raise ShapeError(
            f"cross_entropy: probabilities of shape {target.shape} do not fit logits of shape {x.shape}; "
            "they must be equal"
        )
    target = narrowed(target, x.dtype)
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / x.shape[axis]
    if weights is not None:
        target = target * weights
    # Less the largest logit, so that logits that are large as a whole do not cancel.
    _, shifted, total = exponentials(x, axis, "cross_entropy")
    normaliser = manipulation.squeeze(_log_sum(total), axis=axis)
    return fold.sum(target, axis=axis) * normaliser - fold.sum(strong(target, shifted), axis=axis)


def _chosen(
    target: Tensor, x: Tensor, axis: int, ignore_index: int | None, op: str
) -> tuple[Tensor, Tensor | None]:
    """Bools of the shape of ``x``, whether the class is the target's; and which targets count (None: all)."""
    if target.dtype.kind not in "iu":
        expected = "class numbers (integers) or probabilities (floats)" if op == "cross_entropy" else "class numbers"
        raise DTypeError(f"{op}: target must hold {expected}, got {target.dtype.name}")
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if target.shape != shape:
        raise ShapeError(
            f"{op}: logits of shape {x.shape} with classes on axis {axis} need class numbers of shape {shape}, "
            f"got {target.shape}"
        )
    counted = None
    if ignore_index is not None and (target.dtype.kind == "i" or ignore_index >= 0):
        counted = target != ignore_index
        target = ew.where(counted, target, 0)
    classes = x.shape[axis]
    return is_label(checked_labels(target, classes, f"{op}: class number"), classes, axis), counted


def _label_losses(
    x: Tensor, target: Tensor, weights: Tensor | None, axis: int, smoothing: float, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    classes = x.shape[axis]
    chosen, counted = _chosen(target, x, axis, ignore_index, "cross_entropy")
    largest, shifted, total = exponentials(x, axis, "cross_entropy")
    normaliser = manipulation.squeeze(_log_sum(total), axis=axis)
    losses = normaliser - _label_logit(x, chosen, largest, axis)
    mass = None
    if weights is not None:
        mass = fold.sum(ew.where(chosen, weights, 0.0), axis=axis)
        losses = strong(mass, losses)
    if smoothing:
        if weights is None:
            spread = normaliser * classes - fold.sum(shifted, axis=axis)
        else:
            spread = normaliser * fold.sum(weights) - fold.sum(strong(weights, shifted), axis=axis)
        losses = losses * (1.0 - smoothing) + spread * (smoothing / classes)
    if counted is not None:
        losses = ew.where(counted, losses, 0.0)
        mass = convert.astype(counted, x.dtype) if mass is None else ew.where(counted, mass, 0.0)
    return losses, mass


@composite
def nll_loss(
    log_probs: Any,
    target: Any,
    weight: Any = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    axis: int | None = None,
) -> Tensor:
    """``-weight[target] log_probs[target]``: :func:`cross_entropy` of logarithms of probabilities.

    Arguments, shapes and errors are those of :func:`cross_entropy` with class numbers as target.
    """
    check_reduction(reduction, "nll_loss")
    x = float_tensor(log_probs, "nll_loss")
    dtype = x.dtype
    x = narrowed(x, compute_dtype(dtype))
    axis = _class_axis(x, axis, "nll_loss")
    weights = None if weight is None else along_axis(weight, x, axis, "weight", "nll_loss")
    target = convert.wrap(convert.as_node(target, None, "nll_loss"))
    chosen, counted = _chosen(target, x, axis, ignore_index, "nll_loss")
    losses = -fold.sum(ew.where(chosen, x, 0.0), axis=axis)
    mass = None
    if weights is not None:
        mass = fold.sum(ew.where(chosen, weights, 0.0), axis=axis)
        losses = strong(mass, losses)
    if counted is not None:
        losses = ew.where(counted, losses, 0.0)
        mass = convert.astype(counted, x.dtype) if mass is None else ew.where(counted, mass, 0.0)
    return _mean_by_mass(losses, mass, reduction, dtype)


@composite
def masked_cross_entropy(logits: Any, labels: Any, weights: Any, *, axis: int = -1) -> Tensor:
    """``sum(weights * cross_entropy) / sum(|weights|)`` over the rows: a mean with signed weights.

    A negative weight reverses its row's gradient, away from the label; a row of weight 0 counts for nothing, whatever
    its logits and label are. If all weights are 0 the loss and its gradient are 0.

    logits: (..., C), floating; labels: (...), integers; weights: (...), of any real dtype.
    axis: the class axis of ``logits``.
    Raises IndexError (when the loss is evaluated) for a label out of range in a row that counts, ShapeError and
    DTypeError for operands that do not fit.
    """
    op = "masked_cross_entropy"
    (x, w), dtype = widened(op, logits, weights)
    axis = _class_axis(x, axis, op)
    target = convert.wrap(convert.as_node(labels, None, op))
    if w.shape != target.shape:
        raise ShapeError(f"{op}: weights of shape {w.shape} and labels of shape {target.shape} must have one shape")
    if target.dtype.kind in "iu":
        # In rows that do not count; a label that is in range stays, for the derivative by its weight.
        is_stray = ew.logical_and(w == 0.0, ew.logical_or(target < 0, target >= x.shape[axis]))
        target = ew.where(is_stray, 0, target)
    chosen, _ = _chosen(target, x, axis, None, op)
    largest, _, total = exponentials(x, axis, op)
    normaliser = manipulation.squeeze(_log_sum(total), axis=axis)
    losses = strong(w, normaliser - _label_logit(x, chosen, largest, axis))
    mass = fold.sum(ew.abs(w))
    empty = mass == 0.0
    return narrowed(ew.where(empty, 0.0, fold.sum(losses) / ew.where(empty, 1.0, mass)), dtype)


# -- of two classes ----------------------------------------------------------------------------------------------------


@composite
def binary_cross_entropy(prediction: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Tensor:
    """``-target log(prediction) - (1 - target) log(1 - prediction)`` of probabilities.

    As in PyTorch, logarithms are at least -100, and the derivative by the prediction is
    ``(prediction - target) / max(prediction (1 - prediction), 1e-12)``. Predictions outside [0, 1] give NaN.
    :func:`binary_cross_entropy_with_logits` needs neither limit.

    weight: of a shape that broadcasts to the prediction's (ShapeError otherwise), multiplies the losses.
    """
    check_reduction(reduction, "binary_cross_entropy")
    x, y, dtype = widened_pair("binary_cross_entropy", prediction, target)
    is_inside = (1.0 - x) * x >= _FLAT
    inside = ew.where(is_inside, x, 0.5)
    exact = -(y * ew.log(inside) + (1.0 - y) * ew.log1p(-inside))
    # Outside, the value is limited and the derivative by x is (x - y) / _FLAT: that of a term which is 0 itself.
    held = constant(x)
    low = ew.maximum(ew.log(held), -100.0)
    high = ew.maximum(ew.log1p(-held), -100.0)
    slope = ((x * x - held * held) * 0.5 - y * (x - held)) / _FLAT
    limited = slope - (y * low + (1.0 - y) * high)
    return _weighted(ew.where(is_inside, exact, limited), weight, reduction, dtype, "binary_cross_entropy")


_FLAT = 1e-12  # the product p (1 - p) below which PyTorch's gradient divides by this instead


@composite
def binary_cross_entropy_with_logits(
    logits: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """:func:`binary_cross_entropy` of ``sigmoid(logits)``, exact for logits of any size.

    ``(1 - target) softplus(logits) + pos_weight target softplus(-logits)``, where a factor of 0 makes its product 0; so
    an infinite logit on the target's side costs 0.

    weight: of a shape that broadcasts to the logits', multiplies the losses. pos_weight: likewise, multiplies the part
        of the positive target. ShapeError if they do not.
    """
    op = "binary_cross_entropy_with_logits"
    check_reduction(reduction, op)
    x, y, dtype = widened_pair(op, logits, target)
    positive, negative = y, 1.0 - y
    if pos_weight is not None:
        (_, factor), _ = widened(op, x, pos_weight)
        positive = positive * fitting(factor, x, "pos_weight", op)
    # Chosen by where, not by abs, whose derivative at 0 would spoil the second derivative.
    above = x >= 0.0
    tail = ew.log1p(ew.exp(ew.where(above, -x, x)))  # what softplus(x) and softplus(-x) are more than their lines
    lines = strong(negative, ew.where(above, x, 0.0)) + strong(positive, ew.where(above, 0.0, -x))
    tail = tail if pos_weight is None else (negative + positive) * tail
    return _weighted(tail + lines, weight, reduction, dtype, op)


def _weighted(losses: Tensor, weight: Any, reduction: str, dtype: Any, op: str) -> Tensor:
    if weight is not None:
        (_, factor), _ = widened(op, losses, weight)
        losses = losses * fitting(factor, losses, "weight", op)
    return reduced(losses, reduction, dtype)
