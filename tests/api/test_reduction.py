"""Reductions against NumPy: axes, keepdims, dtypes, empty extents, and the numerics of the statistics."""

import numpy as np
import pytest
from scipy import special

import pullback as pb

AXES = [None, 0, 1, -1, (0, 2), (), (0, 1, 2), [1, 2]]
X = np.random.default_rng(0).normal(size=(3, 4, 5))


def numpy_axis(axis):
    return tuple(axis) if isinstance(axis, list) else axis


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_against_numpy(name, axis, keepdims):
    got = getattr(pb, name)(X, axis=axis, keepdims=keepdims)
    expected = getattr(np, name)(X, axis=numpy_axis(axis), keepdims=keepdims)
    assert got.shape == expected.shape and got.dtype is pb.float64
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12, atol=1e-14)
    method = getattr(pb.asarray(X), name)(axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(np.asarray(method), np.asarray(got))


@pytest.mark.parametrize("name", ["any", "all", "count_nonzero"])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
def test_truth(name, axis, dtype):
    x = np.random.default_rng(1).integers(0, 2, (3, 4, 2)).astype(dtype)
    np.testing.assert_array_equal(np.asarray(getattr(pb, name)(x, axis=axis)), getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "int8", "bool"])
def test_positions(name, axis, keepdims, dtype):
    x = np.random.default_rng(2).integers(0, 3, (3, 4, 5)).astype(dtype)
    got = getattr(pb, name)(x, axis=axis, keepdims=keepdims)
    assert got.dtype is pb.int64
    np.testing.assert_array_equal(np.asarray(got), getattr(np, name)(x, axis=axis, keepdims=keepdims))


def test_position_of_the_first_nan():
    x = np.array([1.0, np.nan, 3.0, np.nan])
    assert pb.argmax(x).item() == np.argmax(x) == 1
    assert pb.argmin(x).item() == np.argmin(x) == 1
    assert np.isnan(pb.max(x).item()) and np.isnan(pb.min(x).item())


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int8", "int64"), ("int32", "int64"), ("uint8", "uint64"), ("uint64", "uint64"), ("bool", "int64"),
     ("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "float32")],
)
def test_dtypes_of_sums(dtype, expected):
    x = pb.ones(200, dtype=dtype)
    assert pb.sum(x).dtype.name == expected and pb.sum(x).item() == 200
    assert pb.prod(x).dtype.name == expected
    assert pb.sum(x, dtype="float64").dtype is pb.float64


def test_mean_of_integers_is_the_default_float():
    got = pb.mean(pb.asarray([1, 2, 4]))
    assert got.dtype is pb.float32 and got.item() == pytest.approx(7 / 3)
    assert pb.mean(pb.asarray([True, False])).item() == 0.5
    assert pb.mean(pb.asarray([1, 2]), dtype=pb.float64).dtype is pb.float64
    with pytest.raises(pb.DTypeError, match="mean"):
        pb.mean(pb.asarray([1, 2]), dtype=pb.int32)


def test_half_precision_statistics_do_not_overflow():
    x = np.full(3000, 100, np.float16)
    x[0] = 200
    got = pb.mean(x)
    assert got.dtype is pb.float16 and got.item() == np.float16(x.astype(np.float64).mean())
    assert pb.var(x).item() == np.float16(x.astype(np.float64).var())


def test_variance_does_not_cancel():
    x = np.float32(1e4) + np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert pb.var(x).item() == pytest.approx(x.astype(np.float64).var(), rel=1e-3)
    assert pb.var(X, correction=1).item() == pytest.approx(X.var(ddof=1))
    assert pb.std(X, ddof=1).item() == pytest.approx(X.std(ddof=1))


def test_nothing_to_reduce():
    empty = np.zeros((0, 3))
    np.testing.assert_array_equal(np.asarray(pb.sum(empty, axis=0)), [0, 0, 0])
    assert pb.prod(empty).item() == 1
    assert pb.sum(empty, axis=1).shape == (0,)
    assert np.isnan(pb.mean(empty).item()) and np.isnan(pb.var(np.zeros(1), correction=1).item())
    assert pb.logsumexp(empty).item() == -np.inf
    assert pb.all(empty).item() is True and pb.any(empty).item() is False
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(pb.ShapeError, match=name):
            getattr(pb, name)(empty, axis=0)
    with pytest.raises(pb.ShapeError):
        pb.max(np.zeros((0,), bool))
    assert pb.max(empty, axis=1).shape == (0,)


def test_scalars_reduce_to_themselves():
    for name in ("sum", "prod", "max", "min", "mean"):
        assert getattr(pb, name)(3.5).item() == 3.5
    assert pb.argmax(3.5).item() == 0 and pb.logsumexp(3.5).item() == 3.5


@pytest.mark.parametrize("axis", [3, -4, (0, 0), (1, -2), 1.5, "x"])
def test_wrong_axes(axis):
    for name in ("sum", "max", "mean", "logsumexp"):
        with pytest.raises(pb.ShapeError, match=name):
            getattr(pb, name)(X, axis=axis)


# -- logsumexp and std -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp(axis, keepdims):
    for scale in (1, 1000):
        got = pb.logsumexp(scale * X, axis=axis, keepdims=keepdims)
        expected = special.logsumexp(scale * X, axis=axis, keepdims=keepdims)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-13)


def test_logsumexp_of_infinities():
    inf = np.inf
    x = np.array([[-inf, -inf], [-inf, 1.0], [inf, 0.0], [inf, -inf], [np.nan, 0.0]])
    np.testing.assert_allclose(np.asarray(pb.logsumexp(x, axis=1)), [-inf, 1, inf, inf, np.nan])
    gradient = np.asarray(pb.grad(lambda a: pb.sum(pb.logsumexp(a, axis=1)))(pb.asarray(x[:2])))
    np.testing.assert_allclose(gradient, [[0, 0], [0, 1]])
    second = pb.hessian(lambda a: pb.logsumexp(a))(pb.asarray(x[0]))
    np.testing.assert_array_equal(np.asarray(second), np.zeros((2, 2)))


def test_gradient_of_std_where_it_is_zero():
    x = pb.ones((2, 3), dtype="float64")
    np.testing.assert_array_equal(np.asarray(pb.grad(lambda a: pb.sum(pb.std(a, axis=1)))(x)), np.zeros((2, 3)))
    np.testing.assert_array_equal(np.asarray(pb.hessian(lambda a: pb.std(a))(x[0])), np.zeros((3, 3)))
    of_nan = pb.grad(lambda a: pb.std(a))(pb.asarray([1.0, np.nan]))
    assert np.isnan(np.asarray(of_nan)).all()


def test_gradients_of_statistics():
    from pullback.testing import check_grads

    for function in (
        lambda a: pb.var(a, axis=1, correction=1), lambda a: pb.std(a, axis=(0, 2)), lambda a: pb.logsumexp(a, axis=0),
        lambda a: pb.mean(a, axis=-1),
    ):  # fmt: skip
        check_grads(function, (pb.asarray(X),))


def test_more_ties_than_float16_can_count():
    x = pb.zeros(70000, dtype="float16")
    gradient = np.asarray(pb.grad(lambda a: pb.max(a))(x), np.float64)
    np.testing.assert_allclose(gradient, np.float16(1 / 70000), rtol=0.01)
