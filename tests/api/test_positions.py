"""nonzero, argwhere, flatnonzero, compress and extract against NumPy, with and without a given size."""

import numpy as np
import pytest

import pullback as pb
from pullback.testing import check_grads

X = np.array([[0, 1, 0], [2, 0, -3]])


@pytest.mark.parametrize("x", [X, X.astype(float), X > 0, np.zeros((0, 3)), np.zeros(4), np.ones((2, 1, 3))], ids=str)
def test_like_numpy(x):
    for got, expected in zip(pb.nonzero(x), np.nonzero(x), strict=True):
        assert got.dtype is pb.int64
        np.testing.assert_array_equal(got.numpy(), expected)
    np.testing.assert_array_equal(pb.argwhere(x).numpy(), np.argwhere(x))
    np.testing.assert_array_equal(pb.flatnonzero(x).numpy(), np.flatnonzero(x))
    np.testing.assert_array_equal(pb.extract(x, x).numpy(), np.extract(x, x))


@pytest.mark.parametrize("size", [0, 2, 3, 5, 9])
@pytest.mark.parametrize("x", [X, np.zeros((0, 3)), np.zeros((2, 2)), np.array([np.nan, 0.0, -0.0])], ids=str)
def test_with_a_size(x, size):
    expected = np.argwhere(x)[:size]
    fill = tuple(range(-x.ndim, 0))
    expected = np.concatenate([expected, np.tile(fill, (size - len(expected), 1))]).astype(int)
    for function in (pb.argwhere, pb.jit(pb.argwhere, static_argnames=("size", "fill_value"))):
        np.testing.assert_array_equal(function(pb.asarray(x), size=size, fill_value=fill).numpy(), expected)
    got = pb.nonzero(x, size=size, fill_value=fill)
    np.testing.assert_array_equal(np.stack([g.numpy() for g in got], 1), expected)


def test_zero_dimensions():
    assert pb.argwhere(3).shape == np.argwhere(3).shape == (1, 0)
    assert pb.argwhere(0).shape == (0, 0)
    assert pb.flatnonzero(3).tolist() == [0]
    with pytest.raises(pb.ShapeError, match="0-d"):
        pb.nonzero(3)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis):
    x = np.arange(6.0).reshape(2, 3)
    condition = [1, 0, 1] if axis in (1, -1, None) else [False, True]
    expected = np.compress(condition, x, axis)
    np.testing.assert_array_equal(pb.compress(condition, x, axis=axis).numpy(), expected)
    got = pb.compress(condition, x, axis=axis, size=3, fill_value=9).numpy()
    a = 0 if axis is None else axis
    missing = 3 - expected.shape[a]
    np.testing.assert_array_equal(got, np.concatenate([expected, np.full_like(got, 9).take(range(missing), a)], a))


def test_vmap_and_gradients():
    x = np.random.default_rng(0).normal(size=(4, 5))
    got = pb.vmap(lambda a: pb.extract(a > 0, a, size=3, fill_value=-1))(pb.asarray(x)).numpy()
    for row, line in zip(got, x):
        expected = [*line[line > 0], -1, -1, -1][:3]
        np.testing.assert_array_equal(row, expected)
    check_grads(lambda a: pb.compress([1, 0, 1, 1], a, axis=0), (x,))
    check_grads(lambda a: pb.extract(x > 0, a, size=25), (x,))


def test_traced_values_need_a_size():
    x = pb.asarray(X)
    for transform in (pb.jit, pb.vmap):
        for function in (pb.nonzero, pb.argwhere, pb.flatnonzero, lambda a: pb.extract(a, a)):
            with pytest.raises(pb.TraceError, match="give size="):
                transform(function)(x)


def test_errors():
    for size in (-1, 1.5, True, "2"):
        with pytest.raises(pb.ArgumentError, match="size"):
            pb.nonzero(X, size=size)
    with pytest.raises(pb.ArgumentError, match="fill_value"):
        pb.nonzero(X, size=2, fill_value=(1, 2, 3))
    with pytest.raises(pb.ShapeError, match="one axis"):
        pb.compress([[True]], X)
    with pytest.raises(pb.ShapeError, match="condition"):
        pb.extract([True], X)
    with pytest.raises(IndexError):
        pb.compress([0, 0, 1], X, axis=0)
    with pytest.raises(pb.DTypeError):
        pb.compress([1, 0], X, axis=0, size=2, fill_value=0.5)
