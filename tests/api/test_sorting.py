"""sort and argsort against NumPy."""

import numpy as np
import pytest

import pullback as pb

X = np.random.default_rng(0).integers(0, 6, (4, 5, 3))


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool"])
def test_ascending(axis, dtype):
    x = X.astype(dtype)
    np.testing.assert_array_equal(np.asarray(pb.argsort(x, axis=axis)), np.argsort(x, axis=axis, kind="stable"))
    np.testing.assert_array_equal(np.asarray(pb.sort(x, axis=axis)), np.sort(x, axis=axis))


@pytest.mark.parametrize("axis", [0, -1])
def test_descending_is_stable(axis):
    np.testing.assert_array_equal(
        np.asarray(pb.argsort(X, axis=axis, descending=True)), np.argsort(-X, axis=axis, kind="stable")
    )
    np.testing.assert_array_equal(np.asarray(pb.sort(X, axis=axis, descending=True)), -np.sort(-X, axis=axis))


def test_nan_is_largest():
    x = np.array([np.nan, 1.0, -np.inf, np.inf])
    np.testing.assert_array_equal(np.asarray(pb.sort(x)), np.sort(x))
    assert pb.asarray(x).argsort().tolist() == [2, 1, 3, 0]


def test_gradient_goes_where_the_elements_came_from():
    weights = pb.asarray([1.0, 2.0, 3.0])
    gradient = pb.grad(lambda a: pb.sum(pb.sort(a) * weights))(pb.asarray([3.0, 1.0, 2.0]))
    assert gradient.tolist() == [3, 1, 2]


def test_errors():
    with pytest.raises(pb.ShapeError):
        pb.sort(X, axis=3)
    with pytest.raises(pb.ShapeError):
        pb.argsort(pb.asarray(1.0))
