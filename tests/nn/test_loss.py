"""Losses against formulas, against PyTorch where it is installed, and what they refuse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, ShapeError


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) * 2


def reference(x, labels, weight=None, reduction="mean", ignore=-100, smoothing=0.0):
    """Cross entropy of (N, C) logits, row by row."""
    classes = x.shape[1]
    w = np.ones(classes) if weight is None else weight
    log_p = special.log_softmax(x, axis=1)
    losses, masses = [], []
    for row, label in zip(log_p, labels):
        if label == ignore:
            losses.append(0.0)
            masses.append(0.0)
            continue
        losses.append((1 - smoothing) * -row[label] * w[label] + smoothing / classes * np.sum(-row * w))
        masses.append(w[label])
    if reduction == "none":
        return np.array(losses)
    return np.sum(losses) if reduction == "sum" else np.sum(losses) / np.sum(masses)


@pytest.mark.parametrize(
    ("reduction", "weighted", "smoothing", "ignoring"),
    list(itertools.product(["mean", "sum", "none"], [False, True], [0.0, 0.1], [False, True])),
)
def test_cross_entropy_of_labels(reduction, weighted, smoothing, ignoring):
    x, labels = sample(6, 4), np.array([0, 3, 2, 1, 3, 0])
    weight = np.array([0.5, 1.0, 2.0, 0.0]) if weighted else None
    if ignoring:
        labels[[1, 4]] = -100
    found = nn.cross_entropy(x, labels, weight, reduction=reduction, label_smoothing=smoothing)
    expected = reference(x, labels, weight, reduction, smoothing=smoothing)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    module = nn.CrossEntropyLoss(weight, reduction=reduction, label_smoothing=smoothing)
    np.testing.assert_allclose(np.asarray(module(x, labels)), expected, rtol=1e-12)


def test_gradient_of_cross_entropy():
    x, labels = sample(6, 4), np.array([0, 3, 2, 1, 3, 0])
    found = pb.grad(lambda x: nn.cross_entropy(x, labels))(pb.asarray(x))
    wanted = (special.softmax(x, 1) - np.eye(4)[labels]) / 6
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12, atol=1e-15)


def test_other_axes_and_ranks():
    x, labels = sample(2, 4, 3, 5), np.random.default_rng(1).integers(0, 4, (2, 3, 5))
    flat = np.moveaxis(x, 1, -1).reshape(-1, 4)
    expected = reference(flat, labels.ravel())
    np.testing.assert_allclose(float(nn.cross_entropy(x, labels)), expected, rtol=1e-12)
    np.testing.assert_allclose(float(nn.cross_entropy(np.moveaxis(x, 1, -1), labels, axis=-1)), expected, rtol=1e-12)
    one = x[0, :, 0, 0]
    np.testing.assert_allclose(float(nn.cross_entropy(one, 2)), reference(one[None], [2]), rtol=1e-12)


def test_cross_entropy_of_probabilities():
    x, p = sample(6, 4), special.softmax(sample(6, 4, seed=1), axis=1)
    weight = np.array([0.5, 1.0, 2.0, 3.0])
    rows = -np.sum(p * special.log_softmax(x, 1), axis=1)
    np.testing.assert_allclose(float(nn.cross_entropy(x, p)), rows.mean(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(nn.cross_entropy(x, p, reduction="none")), rows, rtol=1e-12)
    weighted = -np.sum(p * weight * special.log_softmax(x, 1), axis=1)
    np.testing.assert_allclose(float(nn.cross_entropy(x, p, weight)), weighted.mean(), rtol=1e-12)


def test_large_logits():
    x = pb.asarray([[1e30, 0.0], [-1e30, 0.0], [0.0, -np.inf]])
    losses = nn.cross_entropy(x, np.array([0, 0, 0]), reduction="none")
    np.testing.assert_allclose(np.asarray(losses), [0, 1e30, 0])


@pytest.mark.parametrize("label", [-1, 3, 1000])
@pytest.mark.parametrize("jitted", [False, True])
def test_labels_out_of_range(label, jitted):
    f = pb.jit(nn.cross_entropy) if jitted else nn.cross_entropy
    with pytest.raises(IndexError, match=f"class number.* {label} "):
        float(f(pb.asarray(sample(2, 3)), pb.asarray(np.array([0, label]))))


def test_unsigned_labels_and_ignored_ones():
    x = sample(3, 4)
    labels = np.array([0, 255, 2], np.uint8)
    found = nn.cross_entropy(x, labels, ignore_index=255)
    np.testing.assert_allclose(float(found), reference(x, [0, -100, 2]), rtol=1e-12)
    np.testing.assert_allclose(float(nn.cross_entropy(x, labels[[0, 2, 2]])), reference(x, [0, 2, 2]), rtol=1e-12)


def test_all_ignored_is_nan_as_in_pytorch():
    with np.errstate(all="ignore"):
        assert np.isnan(float(nn.cross_entropy(sample(2, 3), np.array([-100, -100]))))


def test_refusals():
    x = pb.asarray(sample(2, 3))
    with pytest.raises(ShapeError, match="cross_entropy"):
        nn.cross_entropy(x, np.array([0, 1, 2]))
    with pytest.raises(ShapeError, match="probabilities"):
        nn.cross_entropy(x, np.ones((2, 4)))
    with pytest.raises(DTypeError, match="cross_entropy"):
        nn.cross_entropy(pb.arange(6).reshape(2, 3), np.array([0, 1]))
    with pytest.raises(DTypeError, match="class numbers"):
        nn.cross_entropy(x, np.array([True, False]))
    with pytest.raises(ValueError, match="reduction"):
        nn.cross_entropy(x, np.array([0, 1]), reduction="average")
    with pytest.raises(ValueError, match="label_smoothing"):
        nn.cross_entropy(x, np.array([0, 1]), label_smoothing=2.0)
    with pytest.raises(ShapeError, match="weight"):
        nn.cross_entropy(x, np.array([0, 1]), np.ones(2))
    with pytest.raises(ShapeError, match="axis"):
        nn.cross_entropy(x, np.array([0, 1]), axis=2)
    with pytest.raises(ShapeError, match="0-d"):
        nn.cross_entropy(pb.asarray(1.0), 0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse_and_l1(reduction):
    x, y = sample(3, 4), sample(3, 4, seed=1)
    reduce = {"mean": np.mean, "sum": np.sum, "none": lambda a: a}[reduction]
    np.testing.assert_allclose(np.asarray(nn.mse_loss(x, y, reduction=reduction)), reduce((x - y) ** 2), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(nn.l1_loss(x, y, reduction=reduction)), reduce(np.abs(x - y)), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(nn.MSELoss(reduction=reduction)(x, y)), reduce((x - y) ** 2), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(nn.L1Loss(reduction=reduction)(x, y)), reduce(np.abs(x - y)), rtol=1e-12)


def test_losses_of_two_shapes_are_refused():
    with pytest.raises(ShapeError, match="mse_loss"):
        nn.mse_loss(pb.ones((4, 1)), pb.ones(4))
    with pytest.raises(ShapeError, match="l1_loss"):
        nn.l1_loss(pb.ones((4, 1)), pb.ones(4))


def test_against_pytorch():
    torch = pytest.importorskip("torch")
    x, labels = sample(5, 4), np.array([0, 3, -100, 1, 2])
    weight = np.array([0.5, 1.0, 2.0, 0.3])
    for reduction, smoothing, w in itertools.product(["mean", "sum", "none"], [0.0, 0.2], [None, weight]):
        leaf = torch.tensor(x, requires_grad=True)
        options = {"reduction": reduction, "label_smoothing": smoothing}
        theirs = torch.nn.functional.cross_entropy(
            leaf, torch.tensor(labels), weight=None if w is None else torch.tensor(w), **options
        )
        theirs.sum().backward()
        ours = nn.cross_entropy(x, labels, w, **options)
        np.testing.assert_allclose(np.asarray(ours), theirs.detach().numpy(), rtol=1e-12)

        def loss(x, w=w, options=options):
            return nn.cross_entropy(x, labels, w, **options).sum()

        gradient = pb.grad(loss)(pb.asarray(x))
        np.testing.assert_allclose(np.asarray(gradient), leaf.grad.numpy(), rtol=1e-10, atol=1e-14)
