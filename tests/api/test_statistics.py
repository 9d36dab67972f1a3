"""Medians, quantiles, averages and covariances against NumPy; where their gradients go; errors."""

import numpy as np
import pytest

import pullback as pb
from pullback.api.statistics import METHODS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
EVEN = RNG.normal(size=(4, 2, 3))
QS = [0, 0.25, 0.3, 0.5, 0.999, 1, [0.2, 0.8], [[0.0, 0.5], [0.3, 1]]]


def same(got, expected, rtol=1e-13):
    got = np.asarray(got)
    assert got.shape == np.shape(expected)
    single = got.dtype == np.float32  # integers give the default float dtype
    np.testing.assert_allclose(got, expected, rtol=1e-6 if single else rtol, atol=1e-6 if single else 1e-14)


@pytest.mark.usefixtures("reference_backend")
@pytest.mark.parametrize("method", METHODS)
def test_quantile(method):
    for array in (X, EVEN, RNG.integers(-9, 9, (3, 2, 2))):
        for q in QS:
            for axis in (None, 0, -1, (0, 2)):
                expected = np.quantile(array, q, axis=axis, keepdims=True, method=method)
                same(pb.quantile(array, q, axis=axis, keepdims=True, method=method), expected)
                if array is X:
                    # A tensor that was not computed yet: its value is not looked at.
                    later = pb.asarray(np.asarray(q, np.float64)) + 0.0
                    same(pb.quantile(array, later, axis=axis, keepdims=True, method=method), expected, 1e-9)


@pytest.mark.usefixtures("reference_backend")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_quantiles_with_nan(method):
    array = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    array[:, 1] = np.nan
    for q in QS[:-1]:  # of the last, NumPy's nanquantile orders the axes in another way than its quantile
        for axis in (None, 0, -1, (0, 2)):
            got = pb.nanquantile(array, q, axis=axis, method=method)
            same(got, np.nanquantile(array, q, axis=axis, method=method))
            same(pb.quantile(array, q, axis=axis, method=method), np.quantile(array, q, axis=axis, method=method))
            percents = (100 * np.asarray(q)).tolist()
            same(pb.nanpercentile(array, percents, axis=axis, method=method), np.asarray(got), 1e-9)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_median(axis, keepdims):
    for array in (X, EVEN):
        expected = np.median(array, axis=axis, keepdims=keepdims)
        got = np.asarray(pb.median(array, axis=axis, keepdims=keepdims))
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got, expected)


def test_dtypes():
    for dtype in ("float16", "bfloat16", "float32"):
        x = pb.asarray([1, 3, 2, 8, 5, 4]).astype(dtype)
        assert pb.median(x).dtype.name == dtype and pb.median(x).item() == 3.5
        assert pb.quantile(x, 0.9).dtype.name == dtype and pb.quantile(x, [0.2]).tolist() == [2]
        assert pb.nanmedian(x).dtype.name == dtype and pb.ptp(x).item() == 7
        assert pb.average(x, weights=x).dtype.name == dtype and pb.cov(x).dtype.name == dtype
    integers = pb.asarray([7, 1, 3, 9])
    assert pb.median(integers).dtype is pb.float32 and pb.median(integers).item() == 5
    for method in ("lower", "higher", "nearest", "inverted_cdf", "closest_observation"):
        got = pb.quantile(integers, 0.5, method=method)
        assert got.dtype is pb.int64 and got.item() == np.quantile([7, 1, 3, 9], 0.5, method=method)
    assert pb.quantile(integers, 0.5).dtype is pb.float32
    assert pb.median(pb.asarray([True, False, True])).item() == 1
    assert pb.cov(pb.asarray([[1, 2], [3, 5]])).dtype is pb.float32
    big = np.arange(6.0).astype(">f8")[::-2]
    assert pb.median(big).item() == 3 and pb.quantile(big, 0.25).item() == 2


def test_half_precision_is_mixed_in_single():
    x = np.array([60000, 65000, 62000, 61000], np.float16)
    assert pb.median(x).item() == np.float16(61500)
    assert pb.average(x, weights=np.full(4, 3, np.float16)).item() == np.float16(62000)


def test_infinities():
    inf = np.inf
    assert pb.median([inf, inf]).item() == inf and pb.quantile([inf, inf], 0.3).item() == inf
    assert pb.quantile([-inf, 1.0, inf], [0.0, 0.25, 0.5, 0.75, 1.0]).tolist() == [-inf, -inf, 1, inf, inf]
    assert np.isnan(pb.median([-inf, inf]).item())
    huge = np.array([-1.7e308, 1.7e308])
    assert pb.median(huge).item() == 0 and pb.quantile(huge, 0.25).item() == pytest.approx(-0.85e308)
    for scale in (1e19, 1e-19):
        same(pb.quantile(scale * X, 0.3, axis=1) / scale, np.quantile(X, 0.3, axis=1))


def test_nothing_to_choose_from():
    empty = np.zeros((0, 3))
    for function in (pb.median, lambda x, axis: pb.quantile(x, 0.3, axis=axis), pb.nanmedian):
        assert np.isnan(np.asarray(function(empty, axis=0))).tolist() == [True] * 3
        assert function(empty, axis=1).shape == (0,)
    assert pb.quantile(empty, [0.2, 0.4], axis=0).shape == (2, 3)
    with pytest.raises(pb.ShapeError, match="no elements"):
        pb.quantile(np.zeros((0,), np.int64), 0.5, method="lower")
    with pytest.raises(pb.ShapeError, match="max"):
        pb.ptp(empty, axis=0)
    assert np.isnan(pb.average(empty).item())


# -- where gradients go ------------------------------------------------------------------------------------------------


def gradient(function, x):
    return np.asarray(pb.grad(lambda a: pb.sum(function(a)))(pb.asarray(np.asarray(x, np.float64)))).tolist()


def test_the_elements_taken_have_the_gradient():
    assert gradient(pb.median, [5.0, 1, 3]) == [0, 0, 1]
    assert gradient(pb.median, [5.0, 1, 3, 2]) == [0, 0, 0.5, 0.5]
    assert gradient(lambda x: pb.quantile(x, 0.25), [4.0, 2, 1, 8]) == [0, 0.75, 0.25, 0]
    assert gradient(lambda x: pb.quantile(x, [0.0, 1.0]), [4.0, 2, 1, 8]) == [0, 0, 1, 1]
    assert gradient(lambda x: pb.quantile(x, 0.4, method="lower"), [4.0, 2, 1, 8]) == [0, 1, 0, 0]
    # Of equal elements, those that a stable sort puts there.
    assert gradient(pb.median, [2.0, 2, 2, 2]) == [0, 0.5, 0.5, 0]


def test_gradients_at_nan_are_zero():
    nan = np.nan
    assert gradient(pb.nanmedian, [nan, 1, 3, nan]) == [0, 0.5, 0.5, 0]
    assert gradient(lambda x: pb.nanquantile(x, 0.25), [nan, 1, 2]) == [0, 0.75, 0.25]
    assert gradient(pb.nanmedian, [nan, nan]) == [0, 0]
    assert gradient(lambda x: pb.nanquantile(x, 0.3, axis=1), [[nan, nan], [1.0, nan]]) == [[0, 0], [1, 0]]
    # A median that is NaN has its gradient at the NaN, as a maximum does.
    assert gradient(pb.median, [nan, 1, 3]) == [1, 0, 0]


def test_derivative_by_q():
    x = pb.asarray([1.0, 2.0, 4.0, 8.0], dtype="float64")
    by_q = pb.grad(lambda q: pb.quantile(x, q))
    assert float(by_q(pb.asarray(0.5, dtype="float64"))) == pytest.approx(3 * 2)
    assert float(by_q(pb.asarray(1 / 3, dtype="float64") + 1e-12)) == pytest.approx(3 * 2)
    assert float(by_q(pb.asarray(1.0, dtype="float64"))) == 0
    for method in ("lower", "midpoint", "nearest"):
        steps = pb.grad(lambda q, m=method: pb.quantile(x, q, method=m))
        assert float(steps(pb.asarray(0.5, dtype="float64"))) == 0


def test_under_jit():
    inside = pb.jit(lambda x, q: (pb.quantile(x, q, axis=0), pb.median(x), pb.nanmedian(x, axis=1)))
    x = X[0]
    for got, expected in zip(inside(x, pb.asarray(0.3, dtype="float64")), (
        np.quantile(x, 0.3, axis=0), np.median(x), np.median(x, axis=1)), strict=True):  # fmt: skip
        same(got, expected, 1e-12)
    assert np.isnan(np.asarray(inside(x, pb.asarray(1.5, dtype="float64"))[0])).all()


# -- averages and covariances ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "shape"), [(None, (3, 4, 5)), (1, (4,)), (-1, (3, 4, 5)), ((0, 2), (3, 5)), ((2, 0), (5, 3)), (0, None)]
)
def test_average(axis, shape):
    weights = None if shape is None else RNG.random(shape)
    expected = np.average(X, axis=axis, weights=weights, returned=True, keepdims=True)
    found = pb.average(X, axis=axis, weights=weights, returned=True, keepdims=True)
    for got, value in zip(found, expected, strict=True):
        same(got, value)


@pytest.mark.parametrize("options", [{}, {"rowvar": False}, {"bias": True}, {"ddof": 0}, {"ddof": 3}], ids=str)
def test_cov(options):
    x = RNG.normal(size=(4, 6))
    same(pb.cov(x, **options), np.cov(x, **options), 1e-12)
    same(pb.cov(x, x[::-1], **options), np.cov(x, x[::-1], **options), 1e-12)
    same(pb.corrcoef(x, rowvar=options.get("rowvar", True)), np.corrcoef(x, rowvar=options.get("rowvar", True)), 1e-12)


def test_cov_with_weights():
    x, often, important = RNG.normal(size=(4, 6)), RNG.integers(1, 4, 6), RNG.random(6)
    both = {"fweights": often, "aweights": important}
    for options in ({"fweights": often}, {"aweights": important}, both, {**both, "ddof": 0}):
        same(pb.cov(x, **options), np.cov(x, **options), 1e-12)
        same(pb.cov(x[0], **options), np.cov(x[0], **options), 1e-12)


def test_corrcoef_at_its_bounds():
    x = np.array([1.0, 2.0, 4.0])
    assert pb.corrcoef(x).item() == 1
    np.testing.assert_allclose(np.asarray(pb.corrcoef(np.stack([x, -3 * x]))), [[1, -1], [-1, 1]], rtol=1e-14)
    assert np.isnan(np.asarray(pb.corrcoef(np.stack([x, 0 * x])))[1]).all()


ERRORS = {
    "text q": (pb.ArgumentError, "q must be a number", lambda: pb.quantile(X, "half")),
    "method": (pb.ArgumentError, "linear", lambda: pb.quantile(X, 0.5, method="cubic")),
    "q": (pb.ArgumentError, r"\[0, 1\]", lambda: pb.quantile(X, 1.5)),
    "q of a tensor": (pb.ArgumentError, r"\[0, 1\]", lambda: pb.quantile(X, pb.asarray([0.5, -0.1]))),
    "percent": (pb.ArgumentError, r"\[0, 100\]", lambda: pb.percentile(X, 101)),
    "nan q": (pb.ArgumentError, "q must lie", lambda: pb.quantile(X, np.nan)),
    "axis": (pb.ShapeError, "median: axis 3", lambda: pb.median(X, axis=3)),
    "axis twice": (pb.ShapeError, "nanquantile: an axis", lambda: pb.nanquantile(X, 0.5, axis=(0, 0))),
    "weights": (pb.ShapeError, r"weights of shape .*\(4,\)", lambda: pb.average(X, axis=1, weights=[1.0, 2.0])),
    "weights flat": (pb.ShapeError, "weights of shape", lambda: pb.average(X, weights=[1.0, 2.0])),
    "ptp": (pb.DTypeError, "ptp", lambda: pb.ptp(X > 0)),
    "cov axes": (pb.ShapeError, "cov: at most two axes", lambda: pb.cov(X)),
    "cov observations": (pb.ShapeError, "4 observations of x against 3", lambda: pb.cov(X[0].T[:, :4], X[0, :3, :3])),
    "fweights": (pb.DTypeError, "fweights", lambda: pb.cov(X[0], fweights=np.ones(5))),
    "aweights": (pb.ShapeError, "aweights", lambda: pb.cov(X[0], aweights=np.ones(4))),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    kind, message, call = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(("scale", "dtype"), [(1e37, "f4"), (1e-30, "f4"), (1e300, "f8"), (1e-200, "f8")])
def test_correlation_of_large_and_small_values(scale: float, dtype: str) -> None:
    x = (np.random.default_rng(3).normal(size=(3, 7)) * scale).astype(dtype)
    ordinary = x.astype("f8") / np.float64(scale)
    tolerance = 1e-6 if dtype == "f4" else 1e-13
    np.testing.assert_allclose(np.asarray(pb.corrcoef(x)), np.corrcoef(ordinary), atol=tolerance)
    slope = pb.grad(lambda x: pb.corrcoef(x)[0, 1])
    expected = np.asarray(slope(pb.asarray(ordinary)))
    np.testing.assert_allclose(np.asarray(slope(pb.asarray(x)) * scale), expected, atol=tolerance)
