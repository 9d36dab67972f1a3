"""Sorting against NumPy: every dtype, ties, zeros of both signs, NaN, and keys that do not fit beside positions."""

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


def stable_order(x, axis, descending):
    """NumPy's stable order; half types as float32."""
    x = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)


def values_of(rng, dtype, shape, how):
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if how == "wide":
            return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        return rng.integers(0, 5, shape).astype(dtype)
    x = {
        "wide": lambda: rng.normal(size=shape),
        "ties": lambda: np.round(rng.normal(size=shape)),
        "special": lambda: rng.choice([0.0, -0.0, 1, np.nan, -np.nan, np.inf, -np.inf, -1], size=shape),
        "close": lambda: 1 + rng.normal(size=shape) * 1e-13,
    }[how]()
    return x.astype(dtype)


@pytest.mark.parametrize("how", ["wide", "ties", "special", "close"])
@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int64", "uint64", "int32", "uint32", "int16", "uint8", "bool_"],
)
def test_every_dtype_in_every_direction(dtype, how, reference_backend):
    rng = np.random.default_rng(0)
    dtype = getattr(pb, dtype).numpy
    shapes = ((300,), (200, 3), (5, 257), (2, 9, 3), (1,), (3, 0), (0, 3))
    for shape, axis in zip(shapes, (0, 0, -1, 1, 0, 1, 1), strict=True):
        x = values_of(rng, dtype, shape, how)
        for descending in (False, True):
            order = stable_order(x, axis, descending)
            np.testing.assert_array_equal(pb.argsort(x, axis=axis, descending=descending).numpy(), order)
            got, expected = pb.sort(x, axis=axis, descending=descending).numpy(), np.take_along_axis(x, order, axis)
            assert got.dtype == dtype
            if dtype.kind not in "iub":
                got, expected = got.astype(np.float64), expected.astype(np.float64)
                real = ~np.isnan(expected)
                np.testing.assert_array_equal(np.signbit(got)[real], np.signbit(expected)[real])
            np.testing.assert_array_equal(got, expected)
            for k in sorted({min(k, shape[axis]) for k in (0, 1, 4, 1000)}):
                values, indices = pb.topk(x, k, axis=axis, largest=descending)
                np.testing.assert_array_equal(indices.numpy(), np.take(order, np.arange(k), axis))
                assert values.dtype.numpy == dtype and values.shape == indices.shape


def test_many_keys_with_equal_high_bits(reference_backend):
    """A few of them are sorted apart; many go through the other path."""
    rng = np.random.default_rng(1)
    few = rng.normal(size=5000)
    few[:100] = few[100:200] + np.spacing(few[100:200])
    many = np.concatenate([1 + np.spacing(1.0) * rng.integers(0, 50, 3000), [-1e300, 1e300]])
    for x in (few, many, np.stack([many, many[::-1]])):
        np.testing.assert_array_equal(pb.argsort(x).numpy(), np.argsort(x, kind="stable"))
        np.testing.assert_array_equal(pb.argsort(x, descending=True).numpy(), stable_order(x, -1, True))


def test_compiled_in_the_middle_of_a_program():
    x = np.random.default_rng(2).normal(size=(5, 40))
    got = pb.jit(lambda a: pb.sort(a * 2, axis=0, descending=True) + pb.topk(-a, 40).values)(pb.asarray(x))
    np.testing.assert_allclose(got.numpy(), -np.sort(-x * 2, axis=0) + -np.sort(x), rtol=1e-15)
    np.testing.assert_array_equal(pb.sort(pb.asarray(x).T).numpy(), np.sort(x.T))
    np.testing.assert_array_equal(pb.sort(x[::-2, ::3]).numpy(), np.sort(x[::-2, ::3]))
    swapped = x.astype(">f8")
    np.testing.assert_array_equal(pb.argsort(swapped, axis=0).numpy(), np.argsort(x, axis=0))


def test_ties_send_their_gradients_where_argsort_says():
    x = pb.asarray([1.0, 0.0, 1.0, -0.0, 1.0])
    weights = pb.asarray([1.0, 2.0, 3.0, 4.0, 5.0])
    for descending in (False, True):
        gradient = pb.grad(lambda a, d=descending: pb.sum(pb.sort(a, descending=d) * weights))(x)
        expected = np.empty(5)
        expected[np.asarray(pb.argsort(x, descending=descending))] = weights.numpy()
        np.testing.assert_array_equal(gradient.numpy(), expected)
    gradient = pb.grad(lambda a: pb.sum(pb.topk(a, 2).values * weights[:2]))(x)
    assert gradient.tolist() == [1, 0, 2, 0, 0]
    gradient = pb.grad(lambda a: pb.sum(pb.sort(a) * weights))(pb.asarray([np.nan, 1.0, np.nan, 0.0, 5.0]))
    assert gradient.tolist() == [4, 2, 5, 1, 3]


def test_gradients_in_both_modes_under_jit_and_vmap():
    x = np.random.default_rng(3).normal(size=(3, 7))

    def f(a):
        return pb.sum(pb.sort(a, descending=True) ** 3 * np.arange(7.0))

    expected = pb.vmap(pb.grad(f))(pb.asarray(x)).numpy()
    order = np.argsort(-x)
    by_hand = np.empty_like(x)
    np.put_along_axis(by_hand, order, 3 * np.take_along_axis(x, order, 1) ** 2 * np.arange(7.0), 1)
    np.testing.assert_allclose(expected, by_hand, rtol=1e-14)
    np.testing.assert_allclose(pb.jit(pb.vmap(pb.grad(f)))(pb.asarray(x)).numpy(), expected, rtol=1e-14)
    hessian = pb.jacfwd(pb.jacrev(f))(pb.asarray(x[0])).numpy()
    weight = np.empty(7)
    weight[order[0]] = np.arange(7.0)
    np.testing.assert_allclose(hessian, np.diag(6 * x[0] * weight), rtol=1e-13)


def test_errors():
    with pytest.raises(pb.ShapeError):
        pb.sort(X, axis=3)
    with pytest.raises(pb.ShapeError):
        pb.argsort(pb.asarray(1.0))
    for k in (-1, 4, 1.5, True):
        with pytest.raises(pb.ArgumentError, match="topk: k must"):
            pb.topk(X, k)
    with pytest.raises(pb.GradientError):
        pb.grad(lambda a: pb.sum(pb.argsort(a)))(pb.asarray([1.0, 2.0]))


# -- searchsorted and digitize -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint64"])
def test_searchsorted(side, dtype):
    rng = np.random.default_rng(4)
    line = np.sort(rng.integers(0, 9, 20).astype(dtype))
    values = rng.integers(0, 12, (3, 4)).astype(dtype)
    np.testing.assert_array_equal(pb.searchsorted(line, values, side=side).numpy(), np.searchsorted(line, values, side))
    mixed = rng.permutation(line)
    order = np.argsort(mixed)
    got = pb.searchsorted(mixed, values, side=side, sorter=order)
    np.testing.assert_array_equal(got.numpy(), np.searchsorted(mixed, values, side, sorter=order))
    assert pb.searchsorted(line, 3, side=side).shape == ()
    assert pb.searchsorted(line[:0], values).tolist() == np.zeros((3, 4)).tolist()


def test_searchsorted_nan_and_promotion():
    line = np.array([0.0, 1.0, np.nan, np.nan])
    values = np.array([np.nan, np.inf, 0.5])
    for side in ("left", "right"):
        np.testing.assert_array_equal(pb.searchsorted(line, values, side=side).numpy(),
                                      np.searchsorted(line, values, side))
    assert pb.searchsorted(pb.asarray([1, 3, 5]), 3.5).item() == 2


def test_searchsorted_errors():
    with pytest.raises(pb.ArgumentError, match="side"):
        pb.searchsorted([1.0], [1.0], side="middle")
    with pytest.raises(pb.ShapeError, match="0-d"):
        pb.searchsorted(1.0, [1.0])
    with pytest.raises(pb.ShapeError, match="before the last"):
        pb.searchsorted(np.ones((2, 3)), np.ones((3, 1)))
    with pytest.raises(pb.ShapeError, match="sorter"):
        pb.searchsorted([1.0, 2.0], [1.0], sorter=[0])
    with pytest.raises(IndexError):
        pb.searchsorted([1.0, 2.0], [1.0], sorter=[0, 2]).numpy()


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("bins", [[0.0, 1, 1, 2.5], [3.0, 1, 0.5], [1.0], []], ids=str)
def test_digitize(bins, right):
    x = np.array([[-1.0, 0, 1], [2.5, 3, 0.5]])
    got = pb.digitize(x, np.asarray(bins, float), right=right)
    np.testing.assert_array_equal(got.numpy(), np.digitize(x, np.asarray(bins, float), right=right))
    got = pb.jit(lambda a, b: pb.digitize(a, b, right=right))(pb.asarray(x), pb.asarray(np.asarray(bins, float)))
    np.testing.assert_array_equal(got.numpy(), np.digitize(x, np.asarray(bins, float), right=right))


def test_digitize_errors():
    with pytest.raises(pb.ShapeError, match="one axis"):
        pb.digitize([1.0], [[1.0]])
    with pytest.raises(pb.DTypeError, match="bool"):
        pb.digitize([True], [True])
