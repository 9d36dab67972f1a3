"""Losses where they are infinite, masked, at kinks, large, of half types; what they refuse; their modules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import functional as F

INF = math.inf


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def f64(*values):
    return pb.asarray(np.array(values, np.float64))


# -- binary cross entropy ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
def test_bce_at_the_ends_has_the_values_and_gradients_of_pytorch():
    """Logarithms are at least -100, and the gradient divides by 1e-12 at least."""
    p, t = f64(0, 0, 1, 1, 1e-13, 1e-13, 0.5), f64(0, 1, 0, 1, 0, 1, 1)
    losses = F.binary_cross_entropy(p, t, reduction="none")
    np.testing.assert_allclose(
        np.asarray(losses), [0, 100, 100, 0, 1e-13, -math.log(1e-13), math.log(2)], rtol=1e-13, atol=1e-300
    )
    gradient = pb.grad(lambda p: pb.sum(F.binary_cross_entropy(p, t, reduction="none")))(p)
    np.testing.assert_allclose(np.asarray(gradient), [0, -1e12, 1e12, 0, 0.1, -1e12 + 0.1, -2], rtol=1e-12)
    by_target = pb.grad(lambda t: pb.sum(F.binary_cross_entropy(p, t, reduction="none")))(t)
    expected = [100, 100, -100, -100, -math.log(1e-13), -math.log(1e-13), 0]
    np.testing.assert_allclose(np.asarray(by_target), expected, rtol=1e-12, atol=1e-12)


def test_bce_outside_the_unit_interval_is_nan():
    assert np.isnan(float(F.binary_cross_entropy(f64(1.5), f64(1.0))))


@pytest.mark.usefixtures("backend")
def test_bce_with_logits_far_out_and_at_infinity():
    x, t = f64(1e4, -1e4, 1e4, -1e4, INF, -INF, INF, -800), f64(1, 0, 0, 1, 1, 0, 0, 0)
    losses = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    np.testing.assert_array_equal(np.asarray(losses), [0, 0, 1e4, 1e4, 0, 0, INF, 0])

    def first(x):
        return pb.grad(lambda x: pb.sum(F.binary_cross_entropy_with_logits(x, t, reduction="none")))(x)

    np.testing.assert_array_equal(np.asarray(first(x)), [0, 0, 1, -1, 0, 0, 1, 0])
    np.testing.assert_array_equal(np.asarray(pb.grad(lambda x: pb.sum(first(x)))(x)), 0)


def test_bce_with_logits_keeps_the_digits_of_small_losses():
    """Where PyTorch's own formula gives 0."""
    loss = F.binary_cross_entropy_with_logits(f64(40.0), f64(1.0))
    np.testing.assert_allclose(float(loss), math.exp(-40), rtol=1e-12)
    loss = F.binary_cross_entropy_with_logits(f64(-40.0), f64(0.0))
    np.testing.assert_allclose(float(loss), math.exp(-40), rtol=1e-12)


def test_bce_takes_integer_and_bool_targets():
    x = pb.asarray([0.3, -0.2])
    for t in (np.array([1, 0]), np.array([True, False])):
        loss = F.binary_cross_entropy_with_logits(x, t)
        assert loss.dtype is pb.float32
        np.testing.assert_allclose(float(loss), np.logaddexp(0, [-0.3, -0.2]).mean(), rtol=1e-6)


# -- cross entropy -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dense", [False, True])
def test_classes_ruled_out_by_minus_infinity(dense):
    x = np.array([[0.5, -INF, 1.0], [-INF, 0.25, -INF]])
    labels = np.array([2, 1])
    target = pb.asarray(np.eye(3)[labels] if dense else labels)

    def loss(x):
        return F.cross_entropy(x, target, reduction="sum")

    p = special.softmax(x, axis=1)
    np.testing.assert_allclose(float(loss(pb.asarray(x))), -math.log(p[0, 2]), rtol=1e-12)
    found = pb.grad(loss)(pb.asarray(x))
    np.testing.assert_allclose(np.asarray(found), p - np.eye(3)[labels], rtol=1e-12, atol=1e-15)
    second = pb.grad(lambda x: pb.sum(pb.grad(loss)(x) ** 2))(pb.asarray(x))
    assert np.isfinite(np.asarray(second)).all()


def test_a_label_that_is_ruled_out_costs_infinity():
    x = pb.asarray([[-INF, 0.0, 0.0]], dtype=pb.float64)
    assert float(F.cross_entropy(x, np.array([0]))) == INF
    np.testing.assert_allclose(
        np.asarray(pb.grad(lambda x: F.cross_entropy(x, np.array([0])))(x)), [[-1, 0.5, 0.5]], rtol=1e-12
    )


def test_logits_that_are_large_as_a_whole_lose_no_digits():
    x = pb.asarray(np.array([[1e5, 1e5 - 8]], np.float32))
    expected = math.log1p(math.exp(-8))
    np.testing.assert_allclose(float(F.cross_entropy(x, np.array([0]))), expected, rtol=1e-3)
    np.testing.assert_allclose(float(F.cross_entropy(x, np.array([[1.0, 0.0]], np.float32))), expected, rtol=1e-3)
    np.testing.assert_allclose(
        float(F.masked_cross_entropy(x, np.array([0]), np.array([2.0]))), expected, rtol=1e-3
    )


def test_a_class_of_weight_0_may_be_ruled_out():
    x = pb.asarray([[-INF, 0.0, 0.5]], dtype=pb.float64)
    weight = f64(0, 1, 1)
    loss = F.cross_entropy(x, np.array([1]), weight, label_smoothing=0.1)
    assert np.isfinite(float(loss))
    assert np.isfinite(np.asarray(pb.grad(lambda x: F.cross_entropy(x, np.array([1]), weight))(x))).all()


@pytest.mark.parametrize("function", [F.cross_entropy, F.nll_loss])
def test_a_mean_over_nothing_is_nan_as_in_pytorch(function):
    ignored = np.array([-100, -100])
    x = pb.asarray(sample(2, 3))
    assert math.isnan(float(function(x, ignored)))
    assert float(function(x, ignored, reduction="sum")) == 0
    np.testing.assert_array_equal(np.asarray(pb.grad(lambda x: function(x, ignored, reduction="sum"))(x)), 0)


def test_ignored_rows_may_hold_anything():
    x = pb.asarray([[np.nan, INF, 0.0], [0.0, 1.0, 2.0]], dtype=pb.float64)
    labels = np.array([-100, 1])
    for function in (F.cross_entropy, F.nll_loss):
        assert np.isfinite(float(function(x, labels)))
        gradient = np.asarray(pb.grad(lambda x, f=function: f(x, labels))(x))
        np.testing.assert_array_equal(gradient[0], 0)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("label", [-1, 4])
def test_nll_labels_out_of_range(label):
    with pytest.raises(IndexError, match="nll_loss: class number"):
        float(F.nll_loss(pb.asarray(sample(2, 4)), np.array([0, label])))


# -- masked cross entropy ----------------------------------------------------------------------------------------------


def test_negative_weights_reverse_the_gradient():
    x, labels = pb.asarray(sample(3, 4)), np.array([1, 0, 3])

    def gradient(*weights):
        return np.asarray(pb.grad(lambda x: F.masked_cross_entropy(x, labels, f64(*weights)))(x))

    np.testing.assert_allclose(gradient(-1, -1, -1), -gradient(1, 1, 1), rtol=1e-14)
    plain = np.asarray(pb.grad(lambda x: F.cross_entropy(x, labels))(x))
    np.testing.assert_allclose(gradient(1, 1, 1), plain, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gradient(0.5, 0, -1.5)[[0, 2]], plain[[0, 2]] * 3 * [[0.25], [-0.75]], rtol=1e-12)
    np.testing.assert_array_equal(gradient(0.5, 0, -1.5)[1], 0)


@pytest.mark.usefixtures("backend")
def test_all_weights_0_give_loss_0_and_gradient_0():
    x, labels = pb.asarray(sample(3, 4)), np.array([1, 0, 3])
    both = pb.value_and_grad(lambda x, w: F.masked_cross_entropy(x, labels, w), argnums=(0, 1))
    value, gradients = both(x, f64(0, 0, 0))
    assert float(value) == 0
    for gradient in gradients:
        np.testing.assert_array_equal(np.asarray(gradient), 0)


def test_rows_of_weight_0_may_hold_anything():
    x = pb.asarray([[np.nan, INF, 0.0], [0.0, 1.0, 2.0]], dtype=pb.float64)
    for stray in (-100, 7):
        labels, weights = np.array([stray, 1]), f64(0, -2)
        loss = F.masked_cross_entropy(x, labels, weights)
        np.testing.assert_allclose(float(loss), -(special.logsumexp([0, 1, 2]) - 1), rtol=1e-12)
        gradient = np.asarray(pb.grad(lambda x, l=labels, w=weights: F.masked_cross_entropy(x, l, w))(x))
        np.testing.assert_array_equal(gradient[0], 0)
        assert np.isfinite(gradient).all()


def test_masked_cross_entropy_of_sequences_and_refusals():
    x, labels, weights = sample(2, 3, 4), np.zeros((2, 3), int), sample(2, 3, seed=1)
    losses = -special.log_softmax(x, -1)[..., 0]
    np.testing.assert_allclose(
        float(F.masked_cross_entropy(x, labels, weights)), (losses * weights).sum() / np.abs(weights).sum(), rtol=1e-12
    )
    assert F.masked_cross_entropy(pb.asarray(x).astype("float16"), labels, np.ones((2, 3), bool)).dtype is pb.float16
    with pytest.raises(IndexError, match="masked_cross_entropy"):
        float(F.masked_cross_entropy(x, labels - 1, weights))
    with pytest.raises(ShapeError, match="weights"):
        F.masked_cross_entropy(x, labels, weights[0])
    with pytest.raises(ShapeError, match="class numbers of shape"):
        F.masked_cross_entropy(x, labels[0], weights[0])
    with pytest.raises(DTypeError, match="class numbers"):
        F.masked_cross_entropy(x, weights, weights)


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
def test_kinks_of_losses_of_numbers():
    zero = f64(0, 0, 0, 0)
    x = f64(0, 0.5, -0.5, 2)
    for function, expected in (
        (F.l1_loss, [0, 1, -1, 1]),
        (lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.5), [0, 1, -1, 1]),
        (lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.5), [0, 0.5, -0.5, 0.5]),
    ):
        found = pb.grad(lambda x, f=function: f(x, zero, reduction="sum"))(x)
        np.testing.assert_array_equal(np.asarray(found), expected)
    beyond = pb.grad(lambda x: F.smooth_l1_loss(x, zero, reduction="sum"))(f64(1e200, -1e200, 1e-200, 0))
    np.testing.assert_array_equal(np.asarray(beyond), [1, -1, 1e-200, 0])


@pytest.mark.usefixtures("backend")
def test_kl_div_of_a_target_of_0():
    x, t = f64(-INF, -1.0, -INF), f64(0, 0.5, 0)
    for log_target, target in ((False, t), (True, f64(-INF, math.log(0.5), -INF))):
        losses = F.kl_div(x, target, reduction="none", log_target=log_target)
        np.testing.assert_allclose(np.asarray(losses), [0, 0.5 * (math.log(0.5) + 1), 0], rtol=1e-14)
        gradient = pb.grad(lambda x, t=target, log=log_target: F.kl_div(x, t, reduction="sum", log_target=log))(x)
        np.testing.assert_allclose(np.asarray(gradient), [0, -0.5, 0], rtol=1e-14)


def test_kl_div_mean_is_over_elements_and_batchmean_over_rows():
    x, t = np.log(special.softmax(sample(4, 3), 1)), special.softmax(sample(4, 3, seed=1), 1)
    total = np.sum(t * (np.log(t) - x))
    np.testing.assert_allclose(float(F.kl_div(x, t)), total / 12, rtol=1e-12)
    np.testing.assert_allclose(float(F.kl_div(x, t, reduction="batchmean")), total / 4, rtol=1e-12)
    with pytest.raises(ShapeError, match="batchmean"):
        F.kl_div(pb.asarray(1.0), pb.asarray(1.0), reduction="batchmean")


def test_gaussian_nll_ignores_its_clamp_in_the_derivative():
    x, y, var = f64(1.0), f64(0.0), f64(1e-9)
    np.testing.assert_allclose(
        float(F.gaussian_nll_loss(x, y, var, eps=1e-2)), 0.5 * (math.log(1e-2) + 100), rtol=1e-12
    )
    slope = pb.grad(lambda v: F.gaussian_nll_loss(x, y, v, eps=1e-2))(var)
    np.testing.assert_allclose(float(slope), 0.5 * (1e2 - 1e4), rtol=1e-12)


# -- vectors -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
def test_zero_vectors_have_finite_gradients():
    zeros, y = pb.zeros((2, 3), dtype=pb.float64), pb.asarray(sample(2, 3))
    for function in (
        lambda x, y: pb.sum(F.cosine_similarity(x, y)),
        lambda x, y: F.cosine_embedding_loss(x, y, np.array([1, -1])),
        lambda x, y: pb.sum(F.pairwise_distance(x, y, eps=0.0)),
        lambda x, y: F.triplet_margin_loss(x, y, x, eps=0.0),
        lambda x, y: F.triplet_margin_loss(y, y, y, eps=0.0, swap=True) + 0 * pb.sum(x),
    ):
        for a, b in ((zeros, y), (y, zeros), (zeros, zeros), (y, y)):
            gradients = pb.grad(function, argnums=(0, 1))(a, b)
            assert all(np.isfinite(np.asarray(g)).all() for g in gradients)
            second = pb.grad(lambda a, b, f=function: sum(pb.sum(g) for g in pb.grad(f, argnums=(0, 1))(a, b)))(a, b)
            assert np.isfinite(np.asarray(second)).all()
    assert np.asarray(F.cosine_similarity(zeros, y)).tolist() == [0, 0]
    equal = pb.grad(lambda x: pb.sum(F.pairwise_distance(x, y, eps=0.0)))(y)
    np.testing.assert_array_equal(np.asarray(equal), 0)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, INF])
def test_distances_of_equal_entries_are_finite(p):
    x, y = f64(1, 2, 3), f64(1, 2.5, 1)
    first = pb.grad(lambda x: pb.sum(F.pairwise_distance(x, y, p, eps=0.0)))
    assert np.isfinite(np.asarray(first(x))).all()
    assert np.isfinite(np.asarray(pb.grad(lambda x: pb.sum(first(x)))(x))).all()
    assert np.isfinite(np.asarray(first(y))).all()


@pytest.mark.parametrize("scale", [1e-19, 1e19, 1e30])
def test_float32_vectors_of_any_size(scale):
    x, y = sample(4, 5) * scale, sample(4, 5, seed=1) * scale

    def both(dtype):
        arguments = [pb.asarray(a.astype(np.float32).astype(dtype)) for a in (x, y)]
        for function in (
            lambda a, b: F.cosine_similarity(a, b, eps=1e-30), lambda a, b: F.pairwise_distance(a, b, 3.0, 0.0)
        ):
            value, pull = pb.vjp(function, *arguments)
            yield from (np.asarray(v, np.float64) for v in (value, *pull(pb.ones_like(value))))

    for found, expected in zip(both(np.float32), both(np.float64), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


# -- all of them -------------------------------------------------------------------------------------------------------

X, Y = sample(4, 3), sample(4, 3, seed=1)
P, Q = special.expit(sample(4, 3, seed=2)), special.expit(sample(4, 3, seed=3))
LABELS, SIGNS = np.array([0, 2, 1, 1]), np.array([1, -1, 1, -1])
LOSSES = {
    "mse_loss": (nn.MSELoss, (X, Y)), "l1_loss": (nn.L1Loss, (X, Y)), "smooth_l1_loss": (nn.SmoothL1Loss, (X, Y)),
    "huber_loss": (nn.HuberLoss, (X, Y)), "gaussian_nll_loss": (nn.GaussianNLLLoss, (X, Y, P)),
    "poisson_nll_loss": (nn.PoissonNLLLoss, (X, P)), "kl_div": (nn.KLDivLoss, (X, P)),
    "binary_cross_entropy": (nn.BCELoss, (P, Q)),
    "binary_cross_entropy_with_logits": (nn.BCEWithLogitsLoss, (X, Q)),
    "cross_entropy": (nn.CrossEntropyLoss, (X, LABELS)), "nll_loss": (nn.NLLLoss, (X, LABELS)),
    "cosine_embedding_loss": (nn.CosineEmbeddingLoss, (X, Y, SIGNS)),
    "triplet_margin_loss": (nn.TripletMarginLoss, (X, Y, P)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_modules_are_the_functions(name):
    module, operands = LOSSES[name]
    for reduction in ("mean", "sum", "none"):
        expected = getattr(F, name)(*operands, reduction=reduction)
        np.testing.assert_array_equal(np.asarray(module(reduction=reduction)(*operands)), np.asarray(expected))
    assert list(module().parameters()) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", LOSSES)
def test_half_types_are_computed_in_float32(name, dtype):
    _, operands = LOSSES[name]
    narrow = [pb.asarray(a).astype(dtype) if a.dtype.kind == "f" else a for a in operands]
    wide = [a.astype("float32") if isinstance(a, pb.Tensor) else a for a in narrow]
    for reduction in ("mean", "none"):
        found = getattr(F, name)(*narrow, reduction=reduction)
        assert found.dtype is narrow[0].dtype
        expected = getattr(F, name)(*wide, reduction=reduction).astype(dtype)
        np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(expected, np.float32))


@pytest.mark.parametrize("name", LOSSES)
def test_what_every_loss_refuses(name):
    _, (first, *rest) = LOSSES[name]
    function = getattr(F, name)
    with pytest.raises(ArgumentError, match=f"{name}: reduction"):
        function(first, *rest, reduction="average")
    with pytest.raises(DTypeError, match=name):
        function(pb.zeros(first.shape, dtype=pb.int64), *rest)
    with pytest.raises(ShapeError, match=name):
        function(first[:3], *rest)


@pytest.mark.parametrize("name", [n for n in LOSSES if n not in ("cross_entropy", "nll_loss")])
def test_two_dtypes_are_promoted(name):
    _, (first, *rest) = LOSSES[name]
    found = getattr(F, name)(pb.asarray(first.astype(np.float32)), *rest, reduction="none")
    assert found.dtype is (pb.float64 if any(a.dtype == np.float64 for a in rest) else pb.float32)


def test_other_refusals():
    x = pb.ones((2, 3))
    for call, error, match in (
        (lambda: F.smooth_l1_loss(x, x, beta=-1.0), ArgumentError, "beta"),
        (lambda: F.huber_loss(x, x, delta=0.0), ArgumentError, "delta"),
        (lambda: F.gaussian_nll_loss(x, x, x, eps=0.0), ArgumentError, "eps"),
        (lambda: F.gaussian_nll_loss(x, x, pb.ones(2, dtype=pb.float32)[None]), ShapeError, "var"),
        (lambda: F.binary_cross_entropy(x, x, pb.ones(2)), ShapeError, "weight"),
        (lambda: F.binary_cross_entropy_with_logits(x, x, pos_weight=pb.ones(2)), ShapeError, "pos_weight"),
        (lambda: F.cosine_similarity(pb.asarray(1.0), pb.asarray(1.0)), ShapeError, "axis"),
        (lambda: F.cosine_similarity(x, x, 2), ShapeError, "cosine_similarity"),
        (lambda: F.cosine_similarity(x, pb.ones(2)), ShapeError, "cosine_similarity"),
        (lambda: F.pairwise_distance(x, x, -1.0), ArgumentError, "p must"),
        (lambda: F.cosine_embedding_loss(x, x, np.ones((2, 3))), ShapeError, "target"),
        (lambda: F.nll_loss(x, np.array([0.0, 1.0])), DTypeError, "class numbers"),
        (lambda: F.nll_loss(x, np.array([0, 1, 2])), ShapeError, "nll_loss"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_vector_modules():
    np.testing.assert_array_equal(np.asarray(nn.CosineSimilarity(0)(X, Y)), np.asarray(F.cosine_similarity(X, Y, 0)))
    np.testing.assert_array_equal(
        np.asarray(nn.PairwiseDistance(1.0, keepdims=True)(X, Y)),
        np.asarray(F.pairwise_distance(X, Y, 1.0, keepdims=True)),
    )


def test_class_weights_of_modules_are_buffers():
    weight = np.array([0.5, 1.0, 2.0])
    loss = nn.NLLLoss(weight)
    assert [name for name, _ in loss.named_buffers()] == ["weight"]
    np.testing.assert_array_equal(np.asarray(loss(X, LABELS)), np.asarray(F.nll_loss(X, LABELS, weight)))
    loss = nn.BCEWithLogitsLoss(pos_weight=weight)
    expected = F.binary_cross_entropy_with_logits(X, Q, pos_weight=weight)
    np.testing.assert_array_equal(np.asarray(loss(X, Q)), np.asarray(expected))
