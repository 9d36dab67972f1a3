"""Reductions that pass NaN over, against NumPy; gradients, and rows of NaN alone."""

import warnings

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(1)
X = np.where(RNG.random((3, 4, 5)) < 0.4, np.nan, RNG.normal(size=(3, 4, 5)))
X[0] = np.nan
X[:, 1] = np.nan
REDUCTIONS = ["sum", "prod", "mean", "var", "std", "max", "min", "median"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
def test_against_numpy(name, axis):
    for keepdims in (False, True):
        got = np.asarray(getattr(pb, "nan" + name)(X, axis=axis, keepdims=keepdims))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = getattr(np, "nan" + name)(X, axis=axis, keepdims=keepdims)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_without_nan_they_are_the_plain_functions(name):
    for x in (RNG.normal(size=(3, 4)), RNG.integers(-9, 9, (3, 4)), RNG.random((3, 4)) < 0.5):
        got, expected = getattr(pb, "nan" + name)(x, axis=1), getattr(pb, name)(x, axis=1)
        assert got.dtype is expected.dtype
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-13)


def test_options():
    assert pb.nanvar(X, correction=1).item() == pytest.approx(np.nanvar(X, ddof=1))
    assert pb.nanstd(X, ddof=1).item() == pytest.approx(np.nanstd(X, ddof=1))
    assert pb.nansum(X.astype(np.float32), dtype="float64").dtype is pb.float64
    half = pb.asarray([1.0, np.nan, 3.0]).astype("float16")
    assert pb.nanmean(half).dtype is pb.float16 and pb.nanmean(half).item() == 2
    assert pb.nanmax(half).item() == 3 and pb.nanstd(half).item() == 1


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_at_nan_are_zero(name):
    function = getattr(pb, "nan" + name)
    x = pb.asarray(np.array([[np.nan, 1.0, 3.0, 2.0], [np.nan] * 4, [np.nan, 5.0, np.nan, np.nan]]))
    for mode in (pb.jacrev, pb.jacfwd):
        jacobian = np.asarray(mode(lambda a: function(a, axis=1))(x))
        assert jacobian.shape == (3, 3, 4)
        assert (jacobian[..., np.isnan(np.asarray(x))] == 0).all()
        present = np.asarray(mode(lambda a: getattr(pb, name)(a))(x[0, 1:]))
        np.testing.assert_allclose(jacobian[0, 0, 1:], present, rtol=1e-12)
        assert np.isfinite(jacobian).all()
    second = np.asarray(pb.hessian(lambda a: pb.sum(pb.where(pb.isnan(a[:, 1]), 0, function(a, axis=1))))(x))
    assert np.isfinite(second).all()


def test_ties_and_infinities():
    nan, inf = np.nan, np.inf
    grad = lambda f, x: np.asarray(pb.grad(f)(pb.asarray(np.array(x)))).tolist()  # noqa: E731
    assert grad(pb.nanmax, [2.0, nan, 2.0, 1.0]) == [0.5, 0, 0.5, 0]
    assert grad(pb.nanmax, [-inf, nan, -inf]) == [0.5, 0, 0.5]
    assert grad(pb.nanmin, [inf, nan, nan]) == [1, 0, 0]
    assert pb.nanmax([-inf, nan]).item() == -inf and pb.nanmin([nan, inf]).item() == inf
    assert np.isnan(pb.nanmax([nan, nan]).item())


@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_positions(name):
    function, there = getattr(pb, name), getattr(np, name)
    x = np.where(RNG.random((3, 4)) < 0.4, np.nan, RNG.integers(-2, 2, (3, 4)).astype(float))
    x[:, 2] = 0
    for axis in (None, 1, -1):
        for keepdims in (False, True):
            got = function(x, axis=axis, keepdims=keepdims)
            assert got.dtype is pb.int64
            np.testing.assert_array_equal(np.asarray(got), there(x, axis=axis, keepdims=keepdims))
    assert function(np.array([3, 1, 2])).item() == there([3, 1, 2])
    # An infinity that is there, where NumPy finds the NaN that it replaced by one.
    outermost = -np.inf if name == "nanargmax" else np.inf
    assert function([np.nan, outermost, np.nan, outermost]).item() == 1
    assert function([np.nan, outermost, 1.0]).item() == 2


@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_a_row_of_nan_has_no_position(name):
    x = np.array([[1.0, 2.0], [np.nan, np.nan]])
    function = getattr(pb, name)
    with pytest.raises(IndexError, match=f"{name} of a slice of NaN alone"):
        pb.eval(function(x, axis=1))
    with pytest.raises(IndexError, match=name):
        pb.eval(pb.jit(lambda a: function(a, axis=1))(x))
    with pytest.raises(pb.ShapeError, match="empty"):
        function(np.zeros((0, 2)), axis=0)


def test_errors():
    for name in ("nansum", "nanmax", "nanmedian", "nanargmax", "nanvar"):
        with pytest.raises(pb.ShapeError, match=name.replace("nan", "")):
            getattr(pb, name)(X, axis=3)
    with pytest.raises(pb.ShapeError, match="empty"):
        pb.nanmax(np.zeros((0, 3)), axis=0)
