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


# -- where and initial -------------------------------------------------------------------------------------------------

MASK = np.random.default_rng(3).random(X.shape) < 0.6
STARTS = {"sum": 2.5, "prod": 0.5, "max": 0.1, "min": -0.1}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("axis", [None, 1, (0, -1)])
def test_where_and_initial(name, axis):
    for mask in (MASK, MASK[:1, :, :1], np.zeros_like(MASK), True):
        got = getattr(pb, name)(X, axis=axis, initial=STARTS[name], where=mask, keepdims=True)
        expected = getattr(np, name)(X, axis=axis, initial=STARTS[name], where=mask, keepdims=True)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12)
        method = getattr(pb.asarray(X), name)(axis=axis, initial=STARTS[name], where=mask, keepdims=True)
        np.testing.assert_array_equal(np.asarray(method), np.asarray(got))
        through_numpy = getattr(np, name)(pb.asarray(X), axis=axis, initial=STARTS[name], where=mask, keepdims=True)
        np.testing.assert_array_equal(np.asarray(through_numpy), np.asarray(got))


@pytest.mark.parametrize("name", ["mean", "var", "std", "any", "all"])
@pytest.mark.parametrize("axis", [None, 1, (0, -1)])
def test_where(name, axis):
    x = X if name not in ("any", "all") else X > 0
    for mask in (MASK, np.add.outer(np.arange(4), np.arange(5)) % 2 == 0):
        got = np.asarray(getattr(pb, name)(x, axis=axis, where=mask))
        np.testing.assert_allclose(got, getattr(np, name)(x, axis=axis, where=mask), rtol=1e-12)
    assert pb.var(X, where=MASK, correction=1).item() == pytest.approx(X.var(where=MASK, ddof=1))
    assert np.isnan(pb.mean(X, where=False).item()) and np.isnan(pb.std(X, where=np.zeros_like(MASK)).item())


def test_an_initial_value_makes_empty_extremes():
    assert pb.max(np.zeros((0,)), initial=-3.0).item() == -3
    assert pb.min(np.zeros((2, 0), np.int8), axis=1, initial=5).tolist() == [5, 5]
    assert pb.max(np.array([-4, -2], np.int8), initial=-128, where=[True, False]).item() == -4
    assert pb.max(np.array([False]), initial=True).item() is True
    assert pb.min(np.array([True]), initial=True, where=[False]).item() is True
    assert pb.max(np.array([1, 2]), initial=2.5).item() == 2.5


def test_masked_elements_have_no_gradient():
    x = pb.asarray(np.array([np.nan, 1.0, np.inf, 3.0]))
    keep = np.array([False, True, False, True])
    for function, expected in (
        (lambda a: pb.sum(a * a, where=keep), [0, 2, 0, 6]), (lambda a: pb.prod(a, where=keep), [0, 3, 0, 1]),
        (lambda a: pb.mean(a, where=keep), [0, 0.5, 0, 0.5]),
        (lambda a: pb.max(a, initial=0, where=keep), [0, 0, 0, 1]),
        (lambda a: pb.var(a, where=keep), [0, -1, 0, 1]), (lambda a: pb.std(a, where=keep), [0, -0.5, 0, 0.5]),
        (lambda a: pb.mean(a, where=False), [0] * 4), (lambda a: pb.std(a, where=np.zeros(4, bool)), [0] * 4),
    ):  # fmt: skip
        for transform in (pb.grad, pb.jacfwd, lambda f: pb.jit(pb.grad(f))):
            np.testing.assert_allclose(np.asarray(transform(function)(x)), expected, rtol=1e-12)
    two = pb.grad(lambda a: pb.max(a, initial=3.0, where=keep))
    assert np.asarray(two(x)).tolist() == [0, 0, 0, 0.5]


def test_errors_of_where_and_initial():
    with pytest.raises(pb.ArgumentError, match="needs initial="):
        pb.max(X, where=MASK)
    with pytest.raises(pb.DTypeError, match="where= must be bool"):
        pb.sum(X, where=np.ones(5))
    with pytest.raises(pb.ShapeError, match=r"where= of shape \(2, 3, 4, 5\)"):
        pb.sum(X, where=np.ones((2, 3, 4, 5), bool))
    with pytest.raises(pb.ShapeError, match="do not broadcast"):
        pb.mean(X, where=np.ones(3, bool))
    with pytest.raises(pb.ShapeError, match="initial= of shape"):
        pb.sum(X, initial=np.ones(2))
    with pytest.raises(pb.RangeError, match="300"):
        pb.prod(np.ones(2, np.int8), dtype="int8", initial=300)


# -- at the edges ------------------------------------------------------------------------------------------------------


def test_ties_over_several_axes_share_evenly():
    x = pb.asarray(np.array([[[2.0, 2.0], [1.0, 2.0]], [[0.0, 5.0], [5.0, 1.0]]]))
    expected = np.array([[[1, 1], [0, 1]], [[0, 1.5], [1.5, 0]]]) / 3
    for transform in (pb.grad, pb.jacfwd):
        got = np.asarray(transform(lambda a: pb.sum(pb.max(a, axis=(1, 2))))(x))
        np.testing.assert_allclose(got, expected, rtol=1e-15)
        np.testing.assert_allclose(np.asarray(transform(lambda a: pb.sum(pb.min(-a, axis=(2, 1))))(x)), -expected)


def test_logsumexp_at_any_scale():
    for scale in (1e19, 1e-19):
        np.testing.assert_allclose(np.asarray(pb.logsumexp(scale * X, axis=1)), special.logsumexp(scale * X, axis=1))
        gradient = np.asarray(pb.grad(lambda a, s=scale: pb.sum(pb.logsumexp(s * a, axis=1)))(pb.asarray(X))) / scale
        np.testing.assert_allclose(gradient, special.softmax(scale * X, axis=1), rtol=1e-12)
    with_infinity = pb.grad(lambda a: pb.logsumexp(a))(pb.asarray([np.inf, 0.0]))
    assert np.isfinite(np.asarray(with_infinity)).all()


def test_spread_of_one_element_is_zero():
    x = pb.asarray(np.array([[3.0], [np.inf]]))
    assert pb.std(x[:1], axis=1).tolist() == [0] and pb.var(x[:1], axis=1).tolist() == [0]
    for function in (pb.std, pb.var):
        for transform in (pb.jacrev, pb.jacfwd, pb.hessian):
            assert not np.asarray(transform(lambda a, f=function: f(a, axis=1))(x[:1])).any()
    assert np.isnan(pb.std(x[:1], axis=1, correction=1).item())


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std", "logsumexp"])
def test_layouts(name):
    function = getattr(pb, name)
    plain = np.asarray(function(X, axis=1))
    for view in (np.asfortranarray(X), X[:, ::-1], X.astype(">f8"), np.repeat(X, 2, axis=2)[:, :, ::2]):
        np.testing.assert_allclose(np.asarray(function(view, axis=1)), plain, rtol=1e-13)
    for dtype in ("float16", "bfloat16"):
        assert function(pb.asarray(X).astype(dtype), axis=1).dtype.name == dtype


def test_a_tangent_of_zero_beats_an_infinite_product():
    x, zero_and_one = pb.asarray(np.array([np.nan, 2.0, np.inf])), pb.asarray(np.array([1.0, 0.0, 0.0]))
    assert pb.jvp(lambda a: pb.prod(a), (x[:2],), (zero_and_one[:2],))[1].item() == 2
    assert pb.jvp(lambda a: pb.prod(a, axis=0), (x[1:],), (zero_and_one[1:],))[1].item() == 0
    branch = pb.grad(lambda a: pb.where(False, pb.prod(a), a[1]))(x)
    assert np.asarray(branch).tolist() == [0, 1, 0]
