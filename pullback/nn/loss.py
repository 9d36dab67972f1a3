"""Losses, as functions and as modules. Names and arguments are PyTorch's."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..api import convert, manipulation, reduction
from ..api import elementwise as ew
from ..errors import ArgumentError, DTypeError, ShapeError
from ..tensor import Tensor
from .functional import _HALF, _float, checked_labels, is_label
from .module import Module

_REDUCTIONS = ("mean", "sum", "none")


def _reduce(losses: Tensor, how: str, op: str) -> Tensor:
    if how == "mean":
        return reduction.mean(losses)
    if how == "sum":
        return reduction.sum(losses)
    if how == "none":
        return losses
    raise _unknown_reduction(how, op)


def _unknown_reduction(how: str, op: str) -> ArgumentError:
    return ArgumentError(f"{op}: reduction must be one of {', '.join(map(repr, _REDUCTIONS))}, got {how!r}")


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
        logits: (N, C), (C,) or (N, C, d1, ...), floating.
        target: class numbers of the shape of ``logits`` without the class axis; or, of the shape of ``logits`` and
            floating, a probability for each class.
        weight: (C,): the weight of each class; the mean is then weighted too.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` (one loss for each target).
        ignore_index: targets of this number count for nothing.
        label_smoothing: the target becomes this much of the uniform distribution.
        axis: the class axis; by default 1, or 0 if ``logits`` has one axis.

    Raises IndexError (when the loss is evaluated) for a class number out of range, ShapeError and DTypeError for
    operands that do not fit.
    """
    if reduction not in _REDUCTIONS:
        raise _unknown_reduction(reduction, "cross_entropy")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}")
    x = _float(logits, "cross_entropy")
    if x.dtype in _HALF:
        loss = cross_entropy(
            convert.astype(x, dtypes.float32), target, weight, reduction=reduction, ignore_index=ignore_index,
            label_smoothing=label_smoothing, axis=axis,
        )
        return convert.astype(loss, x.dtype)
    if x.ndim == 0:
        raise ShapeError("cross_entropy: logits need a class axis, got a 0-d tensor")
    axis = (1 if x.ndim > 1 else 0) if axis is None else axis
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"cross_entropy: axis {axis} is out of range for logits of shape {x.shape}")
    axis %= x.ndim
    target = convert.wrap(convert.as_node(target, None, "cross_entropy"))
    weights = None if weight is None else _class_weights(weight, x, axis)
    if target.dtype.kind == "f":
        losses, mass = _dense_losses(x, target, weights, axis, label_smoothing)
    else:
        losses, mass = _label_losses(x, target, weights, axis, label_smoothing, ignore_index)
    if reduction == "mean" and mass is not None:
        return losses.sum() / mass.sum()
    return _reduce(losses, reduction, "cross_entropy")


def _class_weights(weight: Any, x: Tensor, axis: int) -> Tensor:
    weights = convert.wrap(convert.as_node(weight, x.dtype, "cross_entropy"))
    if weights.shape != (x.shape[axis],):
        raise ShapeError(
            f"cross_entropy: weight has shape {weights.shape}; "
            f"one number for each of the {x.shape[axis]} classes expected"
        )
    return manipulation.reshape(convert.astype(weights, x.dtype), (-1, *(1,) * (x.ndim - axis - 1)))


def _dense_losses(
    x: Tensor, target: Tensor, weights: Tensor | None, axis: int, smoothing: float
) -> tuple[Tensor, Tensor | None]:
    if target.shape != x.shape:
        raise ShapeError(
            f"cross_entropy: probabilities of shape {target.shape} do not fit logits of shape {x.shape}; "
            "they must be equal"
        )
    target = convert.astype(target, x.dtype)
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / x.shape[axis]
    if weights is not None:
        target = target * weights
    mass = reduction.sum(target, axis=axis)
    losses = mass * reduction.logsumexp(x, axis=axis) - reduction.sum(target * x, axis=axis)
    # The mean is over targets, whatever their mass.
    return losses, None


def _label_losses(
    x: Tensor, target: Tensor, weights: Tensor | None, axis: int, smoothing: float, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    classes = x.shape[axis]
    if target.dtype.kind not in "iu":
        raise DTypeError(
            "cross_entropy: target must hold class numbers (integers) or probabilities (floats), "
            f"got {target.dtype.name}"
        )
    expected = x.shape[:axis] + x.shape[axis + 1 :]
    if target.shape != expected:
        raise ShapeError(
            f"cross_entropy: logits of shape {x.shape} with classes on axis {axis} "
            f"need class numbers of shape {expected}, "
            f"got {target.shape}"
        )
    counted = None
    if target.dtype.kind == "i" or ignore_index >= 0:
        counted = target != ignore_index
        target = ew.where(counted, target, 0)
    chosen = is_label(checked_labels(target, classes, "cross_entropy: class number"), classes, axis)
    normaliser = reduction.logsumexp(x, axis=axis)
    losses = normaliser - reduction.sum(ew.where(chosen, x, 0.0), axis=axis)
    mass = None
    if weights is not None:
        mass = reduction.sum(ew.where(chosen, weights, 0.0), axis=axis)
        losses = losses * mass
    if smoothing:
        if weights is None:
            spread = normaliser * classes - reduction.sum(x, axis=axis)
        else:
            spread = normaliser * reduction.sum(weights) - reduction.sum(x * weights, axis=axis)
        losses = losses * (1.0 - smoothing) + spread * (smoothing / classes)
    if counted is not None:
        losses = ew.where(counted, losses, 0.0)
        mass = convert.astype(counted, x.dtype) if mass is None else ew.where(counted, mass, 0.0)
    return losses, mass


def _pair(prediction: Any, target: Any, op: str) -> tuple[Tensor, Tensor]:
    x = _float(prediction, op)
    y = convert.wrap(convert.as_node(target, x.dtype, op))
    if x.shape != y.shape:
        raise ShapeError(
            f"{op}: prediction and target must have one shape, got {x.shape} and {y.shape}; reshape one of them"
        )
    return x, y


def mse_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """``(prediction - target)^2``. Both of one shape, or ShapeError: broadcasting here is mostly a mistake."""
    x, y = _pair(prediction, target, "mse_loss")
    difference = x - y
    dtype = difference.dtype
    if dtype in _HALF:  # whose squares overflow
        difference = convert.astype(difference, dtypes.float32)
    return convert.astype(_reduce(difference * difference, reduction, "mse_loss"), dtype)


def l1_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """``|prediction - target|``. Both of one shape; ShapeError otherwise."""
    x, y = _pair(prediction, target, "l1_loss")
    return _reduce(ew.abs(x - y), reduction, "l1_loss")


class CrossEntropyLoss(Module):
    """:func:`cross_entropy` as a module."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        self.weight = None if weight is None else convert.wrap(convert.as_node(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, logits: Any, target: Any) -> Tensor:
        return cross_entropy(
            logits, target, self.weight, reduction=self.reduction, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )


class MSELoss(Module):
    """:func:`mse_loss` as a module."""

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return mse_loss(prediction, target, reduction=self.reduction)


class L1Loss(Module):
    """:func:`l1_loss` as a module."""

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return l1_loss(prediction, target, reduction=self.reduction)
