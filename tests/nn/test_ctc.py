"""The CTC loss against a sum over all alignments, finite differences and PyTorch; edge cases and errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, GradientError, ShapeError
from pullback.nn import functional as F
from tests.backends import on_backend


def scores(*shape, seed=0):
    return special.log_softmax(np.random.default_rng(seed).standard_normal(shape), axis=-1)


def collapsed(alignment, blank):
    """The labels of an alignment: repetitions merged, then blanks dropped."""
    return [k for k, _ in itertools.groupby(alignment) if k != blank]


def by_enumeration(log_probs, labels, blank=0):
    """Minus the logarithm of the sum over all alignments of (T, C) scores."""
    frames, classes = log_probs.shape
    totals = [
        sum(log_probs[t, k] for t, k in enumerate(alignment))
        for alignment in itertools.product(range(classes), repeat=frames)
        if collapsed(alignment, blank) == list(labels)
    ]
    return -special.logsumexp(totals) if totals else math.inf


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize(
    ("frames", "labels", "blank"),
    [(4, [1, 2], 0), (5, [1, 1], 0), (4, [2, 2, 2], 0), (3, [], 0), (4, [0, 1], 2), (1, [1], 0), (5, [1, 2, 1], 0)],
)
def test_against_all_alignments(frames, labels, blank, backend):
    x = 1.5 * np.random.default_rng(frames).standard_normal((frames, 3))  # not normalised: the formula does not need it
    with on_backend(backend):
        found = F.ctc_loss(x, np.array(labels, int), frames, len(labels), blank=blank, reduction="none")
    assert found.shape == ()
    np.testing.assert_allclose(float(found), by_enumeration(x, labels, blank), rtol=1e-12)


def test_the_gradient_is_minus_the_chance_of_each_class():
    """It is 0 after the last frame, and in each frame before the chances add up to 1."""
    x = scores(6, 2, 4)
    gradient = pb.grad(lambda x: F.ctc_loss(x, np.array([[1, 2], [3, 3]]), (6, 4), (2, 2), reduction="sum"))(
        pb.asarray(x)
    )
    found = np.asarray(gradient)
    np.testing.assert_allclose(found[:, 0].sum(-1), -1, rtol=1e-12)
    np.testing.assert_allclose(found[:4, 1].sum(-1), -1, rtol=1e-12)
    np.testing.assert_array_equal(found[4:, 1], 0)
    assert (found <= 0).all()


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_sequences_that_fit_no_alignment(zero_infinity):
    """Two equal labels need a blank between them: three frames."""
    x = pb.asarray(scores(5, 3, 4))
    arguments = np.array([[1, 1], [2, 2], [1, 2]]), (2, 5, 0), (2, 2, 1)

    def loss(x, reduction="sum"):
        return F.ctc_loss(x, *arguments, reduction=reduction, zero_infinity=zero_infinity)

    losses = np.asarray(loss(x, "none"))
    impossible = 0 if zero_infinity else math.inf
    assert losses[0] == losses[2] == impossible
    gradient = np.asarray(pb.grad(loss)(x))
    np.testing.assert_array_equal(gradient[:, [0, 2]], 0)
    assert np.isfinite(gradient).all()
    second = pb.grad(lambda x: pb.sum(pb.grad(loss)(x) ** 2))(x)
    assert np.isfinite(np.asarray(second)).all()


def test_classes_ruled_out():
    x = scores(5, 1, 4)
    x[2, 0, 1] = x[:, 0, 3] = -np.inf
    for labels in ([1, 2], [3]):
        value, gradient = pb.value_and_grad(
            lambda x, y=labels: F.ctc_loss(x, np.array([y]), (5,), (len(y),), reduction="sum")
        )(pb.asarray(x))
        np.testing.assert_allclose(float(value), by_enumeration(x[:, 0], labels), rtol=1e-12)
        assert np.isfinite(np.asarray(gradient)).all()
        assert float(gradient[2, 0, 1]) == 0


def test_reductions_and_forms_of_targets():
    x = pb.asarray(scores(6, 3, 5))
    padded, joined, lengths = np.array([[1, 2, 3], [4, 0, 0], [0, 0, 0]]), np.array([1, 2, 3, 4]), np.array([3, 1, 0])
    losses = np.asarray(F.ctc_loss(x, padded, (6, 6, 5), lengths, reduction="none"))
    np.testing.assert_array_equal(np.asarray(F.ctc_loss(x, joined, (6, 6, 5), lengths, reduction="none")), losses)
    np.testing.assert_allclose(float(F.ctc_loss(x, joined, (6, 6, 5), lengths)), np.mean(losses / [3, 1, 1]))
    np.testing.assert_allclose(float(F.ctc_loss(x, joined, (6, 6, 5), lengths, reduction="sum")), losses.sum())
    module = nn.CTCLoss(reduction="sum", zero_infinity=True)
    np.testing.assert_allclose(float(module(x, padded, [6, 6, 5], lengths)), losses.sum())
    single = F.ctc_loss(x[:, 0], padded[0], 6, 3)
    np.testing.assert_allclose(float(single), losses[0] / 3)
    assert F.ctc_loss(pb.zeros((4, 0, 3)), np.zeros((0, 2), int), [], [], reduction="none").shape == (0,)


def test_dtypes():
    x = scores(6, 2, 5)
    arguments = np.array([[1, 2], [3, 3]], np.int32), np.array([6, 5], np.uint8), pb.asarray([2, 2])
    expected = float(F.ctc_loss(x, *arguments))
    for dtype, rtol in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
        found = F.ctc_loss(pb.asarray(x).astype(dtype), *arguments)
        assert found.dtype.name == dtype
        np.testing.assert_allclose(float(found), expected, rtol=rtol)


def test_long_sequences_do_not_underflow():
    x = scores(800, 1, 20)
    labels = np.random.default_rng(1).integers(1, 20, (1, 60))
    value, gradient = pb.value_and_grad(lambda x: F.ctc_loss(x, labels, (800,), (60,), reduction="sum"))(pb.asarray(x))
    assert 1000 < float(value) < 3000
    np.testing.assert_allclose(np.asarray(gradient).sum(-1), -1, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_against_pytorch(seed):
    """Of random batches; the gradients by logits, through log_softmax, where PyTorch's own is right."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    count, classes = 5, 6
    lengths, frames = rng.integers(0, 6, count), rng.integers(8, 12, count)
    targets = rng.integers(1, classes, (count, 6))
    x, cotangent = rng.standard_normal((12, count, classes)), rng.standard_normal(count)
    leaf = torch.tensor(x, requires_grad=True)
    theirs = torch.nn.functional.ctc_loss(
        leaf.log_softmax(-1), torch.tensor(targets), torch.tensor(frames), torch.tensor(lengths), reduction="none",
        zero_infinity=True,
    )
    wanted = torch.autograd.grad(theirs, leaf, torch.tensor(cotangent))[0].numpy()

    def loss(x):
        return F.ctc_loss(F.log_softmax(x), targets, frames, lengths, reduction="none", zero_infinity=True)

    value, pull = pb.vjp(loss, pb.asarray(x))
    np.testing.assert_allclose(np.asarray(value), theirs.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(pull(pb.asarray(cotangent))[0]), wanted, rtol=1e-8, atol=1e-9)


def test_per_example_gradients():
    """vmap over sequences of one equals the batch."""
    x, labels = pb.asarray(scores(6, 4, 5)), pb.asarray(np.array([[1, 2], [3, 3], [4, 1], [2, 2]]))
    whole = pb.grad(lambda x: F.ctc_loss(x, labels, (6,) * 4, (2,) * 4, reduction="sum"))(x)
    single = pb.vmap(pb.grad(lambda x, y: F.ctc_loss(x, y, 6, 2, reduction="sum")), in_axes=(1, 0), out_axes=1)
    np.testing.assert_allclose(np.asarray(single(x, labels)), np.asarray(whole), rtol=1e-12)


def test_a_third_derivative_is_an_error():
    def loss(x):
        return F.ctc_loss(x, np.array([1, 2]), 4, 2)

    def again(f):
        return lambda x: pb.sum(pb.grad(f)(x) ** 2)

    with pytest.raises(GradientError, match="first and second order"):
        pb.grad(again(again(loss)))(pb.asarray(scores(4, 3)))


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    ("targets", "frames", "lengths", "error", "match"),
    [
        ([[1, 9], [1, 2]], [5, 5], [2, 2], IndexError, "label 9"),
        ([[1, 0], [1, 2]], [5, 5], [2, 2], IndexError, "label 0"),
        ([[1, 3], [1, 2]], [6, 5], [2, 2], ArgumentError, "input_lengths"),
        ([[1, 3], [1, 2]], [5, -1], [2, 2], ArgumentError, "input_lengths"),
        ([[1, 3], [1, 2]], [5, 5], [3, 2], ArgumentError, "target_lengths"),
        ([1, 3, 2], [5, 5], [2, 2], ArgumentError, "add up to 4"),
    ],
)
def test_values_that_do_not_fit(targets, frames, lengths, error, match, jitted):
    function = pb.jit(F.ctc_loss) if jitted else F.ctc_loss
    with pytest.raises(error, match=match):
        float(function(*[pb.asarray(np.array(a)) for a in (scores(5, 2, 4), targets, frames, lengths)]))


def test_refusals():
    x, y = pb.asarray(scores(5, 2, 4)), np.array([[1, 3], [1, 2]])
    for call, error, match in (
        (lambda: F.ctc_loss(x, y * 1.0, (5, 5), (2, 2)), DTypeError, "targets must be integers"),
        (lambda: F.ctc_loss(x, y, (5.0, 5.0), (2, 2)), DTypeError, "input_lengths"),
        (lambda: F.ctc_loss(pb.arange(6).reshape(3, 2), y[0], 3, 2), DTypeError, "floating"),
        (lambda: F.ctc_loss(x, y, (5, 5, 5), (2, 2)), ShapeError, "input_lengths"),
        (lambda: F.ctc_loss(x, y, (5, 5), 2), ShapeError, "target_lengths"),
        (lambda: F.ctc_loss(x, y[:1], (5, 5), (2, 2)), ShapeError, "targets"),
        (lambda: F.ctc_loss(x[0, 0], y, (5, 5), (2, 2)), ShapeError, "log_probs"),
        (lambda: F.ctc_loss(x[:, 0], y, (5, 5), (2, 2)), ShapeError, "one sequence"),
        (lambda: F.ctc_loss(x, y, (5, 5), (2, 2), blank=4), ArgumentError, "blank"),
        (lambda: F.ctc_loss(x, y, (5, 5), (2, 2), reduction="max"), ArgumentError, "reduction"),
    ):
        with pytest.raises(error, match=match):
            call()
