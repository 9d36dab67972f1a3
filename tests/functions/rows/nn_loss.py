"""Losses of ``pb.nn``."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from pullback import nn
from pullback.nn import linear_loss
from tests.functions.row import Row, integers, normal, spread

F = pb.nn.functional
X, Y = normal(4, 3), normal(4, 3, seed=1)
P, T = spread(0.05, 0.95, 4, 3), spread(0.03, 0.97, 4, 3, seed=1)
LOGITS, LABELS, W = normal(5, 4), np.array([0, 3, 2, 1, 3]), spread(0.3, 2, 4)
DENSE = np.exp(normal(5, 4, seed=2)) / np.exp(normal(5, 4, seed=2)).sum(1, keepdims=True)
IMAGES, IMAGE_LABELS = normal(2, 4, 3, 2), integers(0, 4, 2, 3, 2)


def _row(name: str, call: Any, arrays: Any, note: str = "", **options: Any) -> Row:
    """A call that torch's function of the same name takes as well."""
    return Row(f"nn.{name}", call(F), arrays, torch=lambda t: call(t.nn.functional), note=note, **options)


def _option(name: str, arrays: Any, note: str, torch_by: Any = None, **options: Any) -> Row:
    return _row(name, lambda f: lambda *a: getattr(f, name)(*a, **options), arrays, note, torch_by=torch_by)


def _reductions(name: str, arrays: Any, torch_by: Any = None, **options: Any) -> list[Row]:
    return [
        _option(name, arrays, how, torch_by, reduction=how, **options) for how in ("mean", "sum", "none")
    ]


def _head(note: str, by: int, **options: Any) -> Row:
    """Cross entropy of a linear head of three inputs, in chunks of a class or two of its eight."""

    def function(x: Any, weight: Any, labels: Any, *bias: Any) -> Any:
        before, linear_loss.CHUNK_SIZE = linear_loss.CHUNK_SIZE, 8
        try:
            return nn.linear_cross_entropy(x, weight, labels, *bias, **options)
        finally:
            linear_loss.CHUNK_SIZE = before

    def torch(t: Any) -> Any:
        f = t.nn.functional
        return lambda x, w, y, *b: f.cross_entropy(f.linear(x, w, *b), y, **options)

    arrays = (X, normal(8, 3, seed=4), np.array([0, 7, 3, 4]), normal(8, seed=5))
    return Row("nn.linear_cross_entropy", function, arrays[:by], torch=torch, note=note)


def _masked(t: Any) -> Any:
    def function(logits: Any, labels: Any, weights: Any) -> Any:
        losses = t.nn.functional.cross_entropy(logits, labels, reduction="none")
        return (weights * losses).sum() / weights.abs().sum()

    return function


def _ctc(how: str, note: str, log_probs: Any, targets: Any, frames: Any, lengths: Any, blank: int = 0) -> Row:
    """Of logits through log_softmax: torch's own gradient is right for normalised ones only."""

    def call(f: Any, axis: Any, counts: Any) -> Any:
        return lambda x, y: f.ctc_loss(
            f.log_softmax(x, **axis), y, counts(frames), counts(lengths), blank=blank, reduction=how
        )

    return Row("nn.ctc_loss", call(F, {"axis": -1}, np.asarray), (log_probs, targets), note=f"{note}-{how}",
               torch=lambda t: call(t.nn.functional, {"dim": -1}, t.tensor))


FRAMES = normal(7, 3, 5)
PADDED, JOINED = np.array([[1, 2, 2, 4], [3, 3, 1, 2], [4, 1, 2, 3]]), np.array([1, 2, 2, 4, 3, 3])

ROWS = [
    *_reductions("mse_loss", (X, Y)),
    _row("mse_loss", lambda f: f.mse_loss, (np.array(0.3), np.array(-1.2)), "0-d"),
    _row("mse_loss", lambda f: lambda x, y: f.mse_loss(x, y, reduction="sum"), (np.zeros((0, 2)), np.zeros((0, 2))),
         "empty"),
    *_reductions("l1_loss", (X, Y)),
    *_reductions("smooth_l1_loss", (X, Y)),
    _option("smooth_l1_loss", (X, Y), "beta", beta=0.37),
    _option("smooth_l1_loss", (X, Y), "zero", beta=0.0),
    *_reductions("huber_loss", (X, Y)),
    _option("huber_loss", (X, Y), "delta", delta=0.41),
    *_reductions("gaussian_nll_loss", (X, Y, spread(0.2, 2, 4, 3))),
    _row("gaussian_nll_loss", lambda f: lambda x, y, v: f.gaussian_nll_loss(x, y, v, full=True), (X, Y,
         spread(0.2, 2, 4)), "row variance"),
    _row("gaussian_nll_loss", lambda f: lambda x, y, v: f.gaussian_nll_loss(x, y, v, eps=0.9), (X, Y,
         spread(0.2, 2, 4, 1)), "clamped", order=0, by=()),
    *_reductions("poisson_nll_loss", (X, T + 1)),
    _option("poisson_nll_loss", (P, 3 * T), "rate", log_input=False, full=True),
    # For "mean" torch warns that it is not the divergence.
    _option("kl_div", (X, T), "sum", reduction="sum"), _option("kl_div", (X, T), "none", reduction="none"),
    _option("kl_div", (X, Y), "log", log_target=True, reduction="sum"),
    _row("kl_div", lambda f: lambda x, y: f.kl_div(x, y, reduction="batchmean"), (X, T), "batchmean"),
    *_reductions("binary_cross_entropy", (P, T)),
    _row("binary_cross_entropy", lambda f: lambda x, y, w: f.binary_cross_entropy(x, y, w), (P, T, W[:3]), "weight",
         torch_by=(0, 1)),
    *_reductions("binary_cross_entropy_with_logits", (X, T)),
    _row("binary_cross_entropy_with_logits", lambda f: lambda x, y, w, p: f.binary_cross_entropy_with_logits(
         x, y, w, pos_weight=p), (X, T, spread(0.1, 1, 4, 1), W[:3]), "weights", torch_by=(0, 1)),
    _row("binary_cross_entropy_with_logits", lambda f: f.binary_cross_entropy_with_logits,
         (np.zeros((2, 2)), np.array([[0.0, 1], [0.5, 1]])), "at 0", by=(0,)),
    *_reductions("cross_entropy", (LOGITS, LABELS)),
    _head("no bias", 3),
    _head("none", 4, reduction="none", ignore_index=3, label_smoothing=0.2),
    Row("nn.linear_cross_entropy", nn.linear_cross_entropy, (X[:2], normal(5, 3, seed=6), np.array([4, 1])), note="few",
        torch=lambda t: lambda x, w, y: t.nn.functional.cross_entropy(t.nn.functional.linear(x, w), y)),
    _option("cross_entropy", (LOGITS, LABELS, W), "weights", (0,), label_smoothing=0.2, ignore_index=3),
    _option("cross_entropy", (LOGITS, LABELS), "smoothing", label_smoothing=0.3),
    _option("cross_entropy", (LOGITS, DENSE), "dense"),
    _option("cross_entropy", (LOGITS, DENSE, W), "dense weights", label_smoothing=0.1),
    _option("cross_entropy", (IMAGES, IMAGE_LABELS, W), "image", (0,), ignore_index=1),
    _row("cross_entropy", lambda f: f.cross_entropy, (LOGITS[0], np.array(2)), "one"),
    Row("nn.cross_entropy", lambda x, y: F.cross_entropy(x, y, axis=-1), (normal(2, 3, 4), integers(0, 4, 2, 3)),
        note="last axis",
        torch=lambda t: lambda x, y: t.nn.functional.cross_entropy(x.reshape(-1, 4), y.reshape(-1))),
    *_reductions("nll_loss", (-P, np.array([0, 2, 1, 1]))),
    _option("nll_loss", (-P, np.array([0, 2, 1, 1]), W[:3]), "weights", (0,), ignore_index=1),
    _option("nll_loss", (IMAGES, IMAGE_LABELS, W), "image", (0,), ignore_index=2),
    Row("nn.masked_cross_entropy", F.masked_cross_entropy, (LOGITS, LABELS, np.array([1.0, -0.7, 0.4, -2.0, 0.3])),
        torch=_masked),
    Row("nn.masked_cross_entropy", lambda x, y, w: F.masked_cross_entropy(x, y, w, axis=1),
        (IMAGES, IMAGE_LABELS, spread(-1, 1, 2, 3, 2)), note="axis 1", torch=_masked),
    _row("cosine_similarity", lambda f: f.cosine_similarity, (X, Y)),
    _row("cosine_similarity", lambda f: lambda x, y: f.cosine_similarity(x, y, 0), (X, Y), "axis 0"),
    _row("cosine_similarity", lambda f: lambda x, y: f.cosine_similarity(x, y, -1), (normal(2, 1, 3), Y), "broadcast"),
    *[
        _row("pairwise_distance", lambda f, p=p: lambda x, y: f.pairwise_distance(x, y, p), (X, Y), f"{p}")
        for p in (1.0, 2.0, 3.0, 1.5, 0.5, np.inf)
    ],
    Row("nn.pairwise_distance", lambda x, y: F.pairwise_distance(x, y, keepdims=True), (X, Y[0]), note="kept",
        torch=lambda t: lambda x, y: t.nn.functional.pairwise_distance(x, y, keepdim=True)),
    Row("nn.pairwise_distance", lambda x, y: F.pairwise_distance(x, y, 0.0), (X, Y), note="count", by=(),
        torch=lambda t: lambda x, y: t.nn.functional.pairwise_distance(x, y, 0.0)),
    *_reductions("cosine_embedding_loss", (normal(4, 2), normal(4, 2, seed=3), np.array([1, -1, 1, -1])), margin=0.1),
    *_reductions("triplet_margin_loss", (X, Y, normal(4, 3, seed=2))),
    _option("triplet_margin_loss", (X, Y, normal(4, 3, seed=2)), "swap", swap=True, margin=0.4, p=1.0, eps=1e-5),
    _row("triplet_margin_loss", lambda f: f.triplet_margin_loss, (X[0], Y[0], Y[1]), "vectors"),
    *[_ctc(how, "padded", FRAMES, PADDED, (7, 6, 5), (4, 3, 2)) for how in ("mean", "sum", "none")],
    _ctc("mean", "joined", FRAMES, JOINED, (7, 5, 3), (4, 2, 0)),
    _ctc("none", "blank", FRAMES, PADDED - 1, (7, 7, 7), (4, 3, 1), blank=4),
    _ctc("mean", "one", FRAMES[:, 0], PADDED[0], 7, 4),
    _ctc("sum", "no labels", FRAMES, np.zeros((3, 0), int), (7, 6, 5), (0, 0, 0)),
    Row("nn.ctc_loss", lambda x: F.ctc_loss(x, PADDED, (7, 6, 5), (4, 3, 2), reduction="none"), (FRAMES,),
        note="not normalised"),
]
