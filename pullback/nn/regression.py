"""Losses of numbers: squared, absolute, Huber, likelihoods of distributions. Names and arguments are PyTorch's.

Prediction and target must have one shape (ShapeError otherwise: broadcasting here is mostly a mistake); they are
promoted to one dtype, integer targets take the prediction's. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` (one
loss for each element), ArgumentError otherwise. float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from typing import Any

from ..api import elementwise as ew
from ..api import manipulation
from ..api.composite import composite
from ..errors import ArgumentError, ShapeError
from ..tensor import Tensor
from .operands import check_reduction, constant, fitting, narrowed, reduced, widened, widened_pair


@composite
def mse_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """``(prediction - target)^2``."""
    check_reduction(reduction, "mse_loss")
    x, y, dtype = widened_pair("mse_loss", prediction, target)
    difference = x - y
    return reduced(difference * difference, reduction, dtype)


@composite
def l1_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """``|prediction - target|``; derivative 0 where they are equal."""
    check_reduction(reduction, "l1_loss")
    x, y, dtype = widened_pair("l1_loss", prediction, target)
    return reduced(ew.abs(x - y), reduction, dtype)


@composite
def smooth_l1_loss(prediction: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """``d^2 / (2 beta)`` where ``d = |prediction - target|`` is below ``beta``, else ``d - beta / 2`` (Girshick 2015).

    beta: 0 gives :func:`l1_loss`; ArgumentError if negative.
    """
    if not beta >= 0.0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    if not isinstance(beta, Tensor) and beta == 0.0:
        return l1_loss(prediction, target, reduction=reduction)
    check_reduction(reduction, "smooth_l1_loss")
    x, y, dtype = widened_pair("smooth_l1_loss", prediction, target)
    difference = x - y
    distance = ew.abs(difference)
    square = difference * (difference / beta) * 0.5
    return reduced(ew.where(distance < beta, square, distance - 0.5 * beta), reduction, dtype)


@composite
def huber_loss(prediction: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """``d^2 / 2`` where ``d = |prediction - target|`` is at most ``delta``, else ``delta (d - delta / 2)``.

    delta: positive, or ArgumentError.
    """
    if not delta > 0.0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}")
    check_reduction(reduction, "huber_loss")
    x, y, dtype = widened_pair("huber_loss", prediction, target)
    difference = x - y
    distance = ew.abs(difference)
    square = difference * difference * 0.5
    return reduced(ew.where(distance <= delta, square, (distance - 0.5 * delta) * delta), reduction, dtype)


@composite
def gaussian_nll_loss(
    prediction: Any, target: Any, var: Any, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """``(log(var) + (prediction - target)^2 / var) / 2``, the negative log likelihood of ``target``.

    var: the variance, of the prediction's shape or of one that broadcasts to it (ShapeError otherwise), or without its
        last axis; at least ``eps`` is used, which derivatives ignore, as PyTorch's do.
    full: add the constant ``log(2 pi) / 2``. eps: positive, or ArgumentError.
    """
    if not eps > 0.0:
        raise ArgumentError(f"gaussian_nll_loss: eps must be positive, got {eps}")
    check_reduction(reduction, "gaussian_nll_loss")
    (x, y, variance), dtype = widened("gaussian_nll_loss", prediction, target, var)
    if x.shape != y.shape:
        raise ShapeError(
            f"gaussian_nll_loss: prediction and target must have one shape, got {x.shape} and {y.shape}"
        )
    if variance.shape != x.shape and variance.shape == x.shape[:-1] and x.ndim:
        variance = manipulation.expand_dims(variance, axis=-1)
    variance = fitting(variance, x, "var", "gaussian_nll_loss")
    variance = ew.where(variance < eps, (variance - constant(variance)) + eps, variance)
    difference = x - y
    losses = (ew.log(variance) + difference * (difference / variance)) * 0.5
    return reduced(losses + 0.5 * math.log(2.0 * math.pi) if full else losses, reduction, dtype)


@composite
def poisson_nll_loss(
    prediction: Any,
    target: Any,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """``exp(prediction) - target * prediction``, the negative log likelihood of a count, its constant apart.

    log_input: False takes the rate itself: ``prediction - target * log(prediction + eps)``.
    full: add Stirling's approximation ``target log(target) - target + log(2 pi target) / 2`` where ``target > 1``.
    """
    check_reduction(reduction, "poisson_nll_loss")
    x, y, dtype = widened_pair("poisson_nll_loss", prediction, target)
    losses = ew.exp(x) - y * x if log_input else x - y * ew.log(x + eps)
    if full:
        is_large = y > 1.0
        count = ew.where(is_large, y, 1.0)
        stirling = count * ew.log(count) - count + ew.log(count * (2.0 * math.pi)) * 0.5
        losses = losses + ew.where(is_large, stirling, 0.0)
    return reduced(losses, reduction, dtype)


@composite
def kl_div(prediction: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """``target * (log(target) - prediction)``, the Kullback-Leibler divergence of ``target`` from log-probabilities.

    prediction: log-probabilities. target: probabilities, or their logarithms if ``log_target``. A target of probability
        0 adds 0, whatever its prediction (-inf too).
    reduction: also ``"batchmean"``, the sum divided by the extent of the first axis, which is the divergence itself;
        ``"mean"`` is over elements.
    """
    check_reduction(reduction, "kl_div", ("mean", "batchmean", "sum", "none"))
    x, y, dtype = widened_pair("kl_div", prediction, target)
    if log_target:
        probability, log_probability = ew.exp(y), y
        is_counted = probability != 0.0
    else:
        is_counted = y != 0.0
        probability, log_probability = y, ew.log(ew.where(is_counted, y, 1.0))
    losses = ew.where(is_counted, probability * (log_probability - ew.where(is_counted, x, 0.0)), 0.0)
    if reduction == "batchmean":
        if not x.ndim:
            raise ShapeError("kl_div: reduction 'batchmean' needs a batch axis, got 0-d tensors")
        return narrowed(reduced(losses, "sum", losses.dtype) / x.shape[0], dtype)
    return reduced(losses, reduction, dtype)
