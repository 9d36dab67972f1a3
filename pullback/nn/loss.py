"""Losses as modules; the formulas are in regression.py, classification.py, distance.py and ctc.py."""

from __future__ import annotations

from typing import Any

from ..api import convert
from ..tensor import Tensor
from . import classification, ctc, distance, regression
from .module import Module


def _optional(weight: Any) -> Tensor | None:
    return None if weight is None else convert.wrap(convert.as_node(weight))


class CrossEntropyLoss(Module):
    """:func:`~pullback.nn.cross_entropy` as a module."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        self.weight = _optional(weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, logits: Any, target: Any) -> Tensor:
        return classification.cross_entropy(
            logits, target, self.weight, reduction=self.reduction, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Module):
    """:func:`~pullback.nn.nll_loss` as a module."""

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        self.weight = _optional(weight)
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, log_probs: Any, target: Any) -> Tensor:
        return classification.nll_loss(
            log_probs, target, self.weight, reduction=self.reduction, ignore_index=self.ignore_index
        )


class BCELoss(Module):
    """:func:`~pullback.nn.binary_cross_entropy` as a module."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        self.weight = _optional(weight)
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return classification.binary_cross_entropy(prediction, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """:func:`~pullback.nn.binary_cross_entropy_with_logits` as a module."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None) -> None:
        self.weight = _optional(weight)
        self.pos_weight = _optional(pos_weight)
        self.reduction = reduction

    def forward(self, logits: Any, target: Any) -> Tensor:
        return classification.binary_cross_entropy_with_logits(
            logits, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class MSELoss(Module):
    """:func:`~pullback.nn.mse_loss` as a module."""

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return regression.mse_loss(prediction, target, reduction=self.reduction)


class L1Loss(Module):
    """:func:`~pullback.nn.l1_loss` as a module."""

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return regression.l1_loss(prediction, target, reduction=self.reduction)


class SmoothL1Loss(Module):
    """:func:`~pullback.nn.smooth_l1_loss` as a module."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        self.reduction = reduction
        self.beta = beta

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return regression.smooth_l1_loss(prediction, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Module):
    """:func:`~pullback.nn.huber_loss` as a module."""

    def __init__(self, *, reduction: str = "mean", delta: float = 1.0) -> None:
        self.reduction = reduction
        self.delta = delta

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return regression.huber_loss(prediction, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(Module):
    """:func:`~pullback.nn.kl_div` as a module."""

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        self.reduction = reduction
        self.log_target = log_target

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return regression.kl_div(prediction, target, reduction=self.reduction, log_target=self.log_target)


class GaussianNLLLoss(Module):
    """:func:`~pullback.nn.gaussian_nll_loss` as a module."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        self.full = full
        self.eps = eps
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any, var: Any) -> Tensor:
        return regression.gaussian_nll_loss(
            prediction, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class PoissonNLLLoss(Module):
    """:func:`~pullback.nn.poisson_nll_loss` as a module."""

    def __init__(
        self, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        self.log_input = log_input
        self.full = full
        self.eps = eps
        self.reduction = reduction

    def forward(self, prediction: Any, target: Any) -> Tensor:
        return regression.poisson_nll_loss(
            prediction, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class CosineEmbeddingLoss(Module):
    """:func:`~pullback.nn.cosine_embedding_loss` as a module."""

    def __init__(self, *, margin: float = 0.0, reduction: str = "mean") -> None:
        self.margin = margin
        self.reduction = reduction

    def forward(self, x1: Any, x2: Any, target: Any) -> Tensor:
        return distance.cosine_embedding_loss(x1, x2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(Module):
    """:func:`~pullback.nn.triplet_margin_loss` as a module."""

    def __init__(
        self, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap
        self.reduction = reduction

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        return distance.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(Module):
    """:func:`~pullback.nn.ctc_loss` as a module."""

    def __init__(self, *, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        self.blank = blank
        self.reduction = reduction
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor:
        return ctc.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, blank=self.blank, reduction=self.reduction,
            zero_infinity=self.zero_infinity,
        )


class CosineSimilarity(Module):
    """:func:`~pullback.nn.cosine_similarity` as a module."""

    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        self.axis = axis
        self.eps = eps

    def forward(self, x1: Any, x2: Any) -> Tensor:
        return distance.cosine_similarity(x1, x2, self.axis, self.eps)


class PairwiseDistance(Module):
    """:func:`~pullback.nn.pairwise_distance` as a module."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> None:
        self.p = p
        self.eps = eps
        self.keepdims = keepdims

    def forward(self, x1: Any, x2: Any) -> Tensor:
        return distance.pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)
