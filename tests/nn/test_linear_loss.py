"""The cross entropy of a linear head, chunk by chunk, against the one with all logits."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import linear_loss

RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((9, 5)), RNG.standard_normal((37, 5)), RNG.standard_normal(37)
LABELS = np.array([0, 36, -100, 5, 17, 18, 30, 31, 2])


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    monkeypatch.setattr(linear_loss, "CHUNK_SIZE", 40)  # of the arrays here: 9 chunks of 5 classes


def defined(x, w, labels, b=None, **options):
    return nn.cross_entropy(pb.linear(x, w, b), pb.asarray(labels), **options)


def value_and_gradients(function, *arrays):
    value, pull = pb.vjp(function, *map(pb.asarray, arrays))
    cotangent = np.random.default_rng(1).standard_normal(value.shape)
    return [np.asarray(t.astype(pb.float64)) for t in (value, *pull(pb.asarray(cotangent).astype(value.dtype)))]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [0.0, 1000.0], ids=["", "large"])
def test_values_and_gradients_are_the_definitions(smoothing, offset):
    options = {"reduction": "none", "label_smoothing": smoothing}
    got = value_and_gradients(lambda *a: nn.linear_cross_entropy(a[0], a[1], LABELS, a[2], **options), X, W, B + offset)
    expected = value_and_gradients(lambda *a: defined(a[0], a[1], LABELS, a[2], **options), X, W, B + offset)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(got[0][2], 0.0)


CLASS_WEIGHT = np.where(np.arange(37) % 7 == 3, 0.0, np.linspace(0.2, 3.0, 37))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_weights_of_classes(smoothing, reduction):
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": 17}
    labels = np.array([0, 36, 17, 3, 17, 18, 30, 31, 2])

    def ours(x, w, b, c):
        return nn.linear_cross_entropy(x, w, labels, b, class_weight=c, **options)

    def theirs(x, w, b, c):
        return defined(x, w, labels, b, weight=c, **options)

    for offset in (0.0, 1000.0):
        arrays = (X, W, B + offset, CLASS_WEIGHT)
        got, expected = value_and_gradients(ours, *arrays), value_and_gradients(theirs, *arrays)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)
    pb.testing.check_grads(ours, (X, W, B, CLASS_WEIGHT), order=2)


def test_a_class_of_weight_0_may_be_ruled_out():
    bias = np.where(CLASS_WEIGHT == 0.0, -np.inf, B)
    labels = np.arange(9) * 4
    arrays = (X, W)
    options = {"label_smoothing": 0.2, "reduction": "none"}
    got = value_and_gradients(
        lambda x, w: nn.linear_cross_entropy(x, w, labels, bias, class_weight=CLASS_WEIGHT, **options), *arrays
    )
    expected = value_and_gradients(
        lambda x, w: defined(x, w, labels, pb.asarray(bias), weight=CLASS_WEIGHT, **options), *arrays
    )
    for a, b in zip(got, expected, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def test_classes_that_are_ruled_out():
    bias = np.full(37, -np.inf)
    bias[[1, 5, 6, 20]] = 1.0, 2.0, -2000.0, 0.0  # whole chunks without a class, at the start too
    labels = np.array([1, 5, 20, 1, 5, 20, 1, 5, 36])  # the last is impossible
    got = value_and_gradients(lambda x, w: nn.linear_cross_entropy(x, w, labels, bias, reduction="none"), X, W)
    expected = value_and_gradients(lambda x, w: defined(x, w, labels, pb.asarray(bias), reduction="none"), X, W)
    assert got[0][8] == np.inf and np.isfinite(got[0][:8]).all()
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
        assert not np.isnan(a).any()


def test_what_is_ignored_does_not_count_even_if_it_is_not_finite():
    x = X.copy()
    x[2] = np.nan
    value, *gradients = value_and_gradients(lambda x, b: nn.linear_cross_entropy(x, W, LABELS, b), x, B)
    clean, *expected = value_and_gradients(lambda x, b: nn.linear_cross_entropy(x, W, LABELS, b), X, B)
    assert value == clean
    for a, b in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    all_ignored = nn.linear_cross_entropy(X, W, np.full(9, -100), reduction="mean")
    assert np.isnan(float(all_ignored))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_narrow_dtypes(dtype):
    x, w = (np.asarray(pb.asarray(a).astype(dtype).astype(pb.float64)) for a in (X, W))

    def loss(x, w):
        return nn.linear_cross_entropy(x.astype(dtype), w.astype(dtype), LABELS)

    value, pull = pb.vjp(loss, pb.asarray(x), pb.asarray(w))
    assert value.dtype is getattr(pb, dtype)
    expected = value_and_gradients(lambda x, w: defined(x, w, LABELS), x, w)
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    np.testing.assert_allclose(float(value), expected[0], rtol=tolerance)
    cotangent = np.random.default_rng(1).standard_normal(())
    for a, b in zip(pull(pb.asarray(cotangent).astype(dtype)), expected[1:], strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=tolerance * 0.1)


def test_leading_axes_and_no_rows():
    x = X[:8].reshape(2, 4, 5)
    labels = LABELS[:8].reshape(2, 4)
    got = nn.linear_cross_entropy(x, W, labels, B, reduction="none")
    assert got.shape == (2, 4)
    np.testing.assert_allclose(got, defined(x.reshape(8, 5), W, LABELS[:8], B, reduction="none").reshape(2, 4))
    assert nn.linear_cross_entropy(X[:0], W, LABELS[:0], reduction="none").shape == (0,)
    assert float(nn.linear_cross_entropy(X[0], W, 3)) == pytest.approx(float(defined(X[:1], W, [3])))
    assert float(nn.linear_cross_entropy(X[:, :0], W[:, :0], LABELS)) == pytest.approx(np.log(37))


def test_the_precision_of_products_is_that_of_the_call():
    x, w = X.astype(np.float32), W.astype(np.float32)
    with pb.set_matmul_precision("bf16"):
        value, pull = pb.vjp(lambda x, w: nn.linear_cross_entropy(x, w, LABELS), pb.asarray(x), pb.asarray(w))
        expected, pull_defined = pb.vjp(lambda x, w: defined(x, w, LABELS), pb.asarray(x), pb.asarray(w))
    assert float(value) == pytest.approx(float(expected), rel=1e-6)
    for a, b in zip(pull(pb.ones(())), pull_defined(pb.ones(())), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=1e-4)
    assert abs(float(value) - float(defined(x, w, LABELS))) > 1e-6


def test_errors():
    with pytest.raises(ShapeError, match=r"x \(..., D\) and a weight \(C, D\)"):
        nn.linear_cross_entropy(X, W[:, 1:], LABELS)
    with pytest.raises(ShapeError, match="a bias of shape"):
        nn.linear_cross_entropy(X, W, LABELS, B[1:])
    with pytest.raises(ShapeError, match=r"class_weight of shape \(37,\) expected, got \(9,\)"):
        nn.linear_cross_entropy(X, W, LABELS, class_weight=np.ones(9))
    with pytest.raises(ShapeError, match="needs labels of shape"):
        nn.linear_cross_entropy(X, W, LABELS[1:])
    with pytest.raises(DTypeError, match="class numbers"):
        nn.linear_cross_entropy(X, W, X[:, 0])
    with pytest.raises(DTypeError, match="floating"):
        nn.linear_cross_entropy(X, np.ones((37, 5), int), LABELS)
    with pytest.raises(ArgumentError, match="label_smoothing"):
        nn.linear_cross_entropy(X, W, LABELS, label_smoothing=1.5)
    with pytest.raises(ArgumentError, match="reduction"):
        nn.linear_cross_entropy(X, W, LABELS, reduction="max")
    for wrong in (37, -1):
        with pytest.raises(IndexError, match="class number"):
            float(nn.linear_cross_entropy(X, W, np.full(9, wrong)))


def test_memory_is_a_fraction_of_the_logits(monkeypatch):
    monkeypatch.undo()
    rows, classes = 512, 40000
    x, w = pb.zeros((rows, 16)), pb.zeros((classes, 16))
    labels = pb.zeros(rows, dtype=pb.int64)

    def loss(x, w):
        return nn.linear_cross_entropy(x, w, labels)

    logits = rows * classes * 4
    given = 2 * (x.nbytes + w.nbytes)
    assert pb.explain(loss)(x, w).peak < given + logits / 9
    assert pb.explain(pb.value_and_grad(loss, argnums=(0, 1)))(x, w).peak < given + w.nbytes + logits / 9
    assert pb.explain(lambda x, w: defined(x, w, labels))(x, w).peak > logits


def test_without_jit_the_logits_are_not_kept_for_the_derivative():
    from pullback.graph.structure import Structure

    leaves = [pb.asarray(a).requires_grad_() for a in (X, W)]
    loss = nn.linear_cross_entropy(*leaves, LABELS)
    loss.backward()
    wanted = [leaf.grad.node for leaf in leaves]
    kept = Structure([loss.node, *wanted]).kept
    assert not [node for node in kept if node.op.kind == "contraction"]
