"""Running values: dtypes, kinks and special values, the conventions' rules for zeros, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, DTypeError, ShapeError

INF, NAN = np.inf, np.nan


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def gradient(function: Callable[..., Any], *arrays: Any, weights: Any = None, argnums: Any = 0) -> Any:
    """Of the sum of the function's value times ``weights``."""

    def loss(*xs: Any) -> Any:
        y = function(*xs)
        return pb.sum(y if weights is None else pb.where(pb.asarray(weights) != 0, y * weights, 0.0))

    found = pb.grad(loss, argnums)(*[np.asarray(a, float) for a in arrays])
    return tuple(np.asarray(g) for g in found) if isinstance(found, tuple) else np.asarray(found)


# -- dtypes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bool", "int64"), ("int8", "int64"), ("int32", "int64"), ("int64", "int64"), ("uint8", "uint64"),
     ("uint64", "uint64"), ("float16", "float16"), ("float32", "float32"), ("float64", "float64")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_accumulated_dtypes(name: str, dtype: str, expected: str) -> None:
    x = rng().integers(0, 2 if dtype == "bool" else 4, (3, 11)).astype(dtype)
    got = np.asarray(getattr(pb, name)(x, axis=1))
    assert got.dtype == expected
    np.testing.assert_array_equal(got, getattr(np, name)(x, axis=1, dtype=expected))
    assert getattr(pb, name)(x, axis=1, dtype="float64").dtype is pb.float64
    assert getattr(pb, name)(x, axis=1, include_initial=True).dtype.name == expected


def test_small_integers_do_not_wrap() -> None:
    x = np.full(1000, 127, np.int8)
    assert int(pb.cumulative_sum(x)[-1]) == 127_000
    assert int(pb.cumulative_sum(x, dtype="int8")[-1]) == int(np.cumsum(x, dtype=np.int8)[-1])


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint16", "float16", "float32", "float64"])
def test_extremes_keep_the_dtype(dtype: str) -> None:
    x = rng().integers(0, 2 if dtype == "bool" else 50, (5, 33)).astype(dtype)
    for function, ufunc in ((pb.cummax, np.maximum), (pb.cummin, np.minimum)):
        for axis in (0, 1):
            got = np.asarray(function(x, axis))
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, ufunc.accumulate(x, axis=axis, dtype=x.dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_are_carried_in_float32(dtype: Any) -> None:
    ones = np.full((4096, 3), 0.125, dtype)
    got = np.asarray(pb.cumulative_sum(ones, axis=0)).astype(float)
    np.testing.assert_allclose(got, (np.cumsum(np.full((4096, 3), 0.125), 0)).astype(dtype).astype(float))
    x = rng().normal(size=(40, 9)).astype(dtype)
    exact = np.log(np.cumsum(np.exp(x.astype(float)), axis=0))
    got = pb.logcumsumexp(x, 0)
    assert got.dtype.numpy == dtype
    np.testing.assert_allclose(np.asarray(got).astype(float), exact, rtol=1e-2, atol=4e-3)
    gates = np.full((4096,), 1, dtype)
    assert float(pb.gated_scan(gates, np.full(4096, 0.125, dtype))[-1]) == 512


def test_a_long_float32_sum_does_not_drift() -> None:
    x = rng().uniform(0.5, 1.5, 1_000_000).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64))
    for got in (pb.cumulative_sum(x), pb.gated_scan(np.ones_like(x), x)):
        np.testing.assert_allclose(np.asarray(got).astype(float), exact, rtol=6.1e-8)


def test_integers_to_the_default_float_dtype() -> None:
    x = np.arange(4)
    assert pb.logcumsumexp(x).dtype is pb.float32
    assert pb.gated_scan(x, x).dtype is pb.float32
    assert pb.gated_scan(np.float64(2), x).dtype is pb.float64
    np.testing.assert_array_equal(np.asarray(pb.gated_scan(2, x, initial=1)), [2, 5, 12, 27])


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_include_initial(name: str, axis: int | None) -> None:
    x = rng().normal(size=(3, 4) if axis is not None else 5)
    for initial in (False, True):
        got = np.asarray(getattr(pb, name)(x, axis=axis, include_initial=initial))
        np.testing.assert_allclose(got, getattr(np, name)(x, axis=axis, include_initial=initial), rtol=1e-14)
    empty = np.asarray(getattr(pb, name)(np.zeros((2, 0)), axis=1, include_initial=True))
    np.testing.assert_array_equal(empty, np.full((2, 1), name == "cumulative_prod"))


def test_one_element_and_none() -> None:
    for function in (pb.cumulative_sum, pb.cumulative_prod, pb.cummax, pb.cummin, pb.logcumsumexp, pb.cumsum):
        assert np.asarray(function(np.zeros((2, 0, 3)), axis=1)).shape == (2, 0, 3)
        np.testing.assert_array_equal(np.asarray(function(np.full((2, 1), 1.5), axis=1)), [[1.5], [1.5]])
    for function in (pb.cumulative_sum, pb.cumulative_prod):
        start = float(function is pb.cumulative_prod)
        np.testing.assert_array_equal(np.asarray(function(np.full((2, 1), 1.5), axis=1, exclusive=True)), start)
    one = np.full((2, 1), 3.0)
    np.testing.assert_array_equal(np.asarray(pb.gated_scan(one, one, 1)), one)
    np.testing.assert_array_equal(np.asarray(pb.gated_scan(one, one, 1, initial=2.0)), 3 * one)
    assert np.asarray(pb.gated_scan(one[:, :0], one[:, :0], 1, initial=2.0)).shape == (2, 0)
    assert np.isnan(np.asarray(pb.gated_scan(one * INF, one, 1))).all()  # inf * 0 + 3, as in a loop


def test_layouts() -> None:
    x = np.asfortranarray(rng().normal(size=(6, 7)))
    for view in (x, x[::-1, ::2], x.T, x.astype(">f8"), x[1:2], np.broadcast_to(x[:1], (6, 7))):
        for axis in (0, 1):
            got = np.asarray(pb.cumulative_sum(view, axis=axis))
            np.testing.assert_allclose(got, np.cumsum(view, axis), rtol=1e-13)


def test_numpys_names() -> None:
    x = rng().normal(size=(3, 4))
    t = pb.asarray(x)
    for axis in (None, 0, 1):
        np.testing.assert_allclose(np.asarray(pb.cumsum(x, axis)), np.cumsum(x, axis), rtol=1e-14)
        np.testing.assert_allclose(np.asarray(pb.cumprod(x, axis)), np.cumprod(x, axis), rtol=1e-14)
        np.testing.assert_allclose(np.asarray(t.cumsum(axis)), np.cumsum(x, axis), rtol=1e-14)
        np.testing.assert_allclose(np.asarray(t.cumprod(axis)), np.cumprod(x, axis), rtol=1e-14)
    np.testing.assert_array_equal(np.asarray(pb.cumsum(np.float64(3))), [3])


# -- special values ----------------------------------------------------------------------------------------------------


def test_nan_and_infinities_pass_through() -> None:
    x = np.array([1.0, INF, 2.0, -INF, 3.0])
    np.testing.assert_array_equal(np.asarray(pb.cumulative_sum(x)), [1, INF, INF, NAN, NAN])
    np.testing.assert_array_equal(np.asarray(pb.cumulative_prod(np.array([2.0, INF, 3.0, 0.0, 1.0]))),
                                  [2, INF, INF, NAN, NAN])  # fmt: skip
    y = np.array([1.0, NAN, 5.0, NAN, 0.0])
    for function in (pb.cummax, pb.cummin):
        values, indices = function(y, return_indices=True)
        np.testing.assert_array_equal(np.asarray(values), [1, NAN, NAN, NAN, NAN])
        np.testing.assert_array_equal(np.asarray(indices), [0, 1, 1, 3, 3])


def test_the_sign_of_zero() -> None:
    for shape, axis in (((9,), 0), ((9, 5), 0), ((5, 9), 1)):
        got = np.asarray(pb.cumulative_sum(np.full(shape, -0.0), axis=axis))
        assert np.signbit(got).all()
        assert not np.signbit(np.asarray(pb.cumulative_sum(np.full(shape, 0.0), axis=axis, exclusive=True))).any()


def test_products_that_a_part_would_overflow() -> None:
    x = np.array([1e-300, 1e200, 1e200, 1e200, 1e-300, 1e-300])
    for shape, axis in (((6,), 0), ((6, 1), 0), ((1, 6), 1)):
        np.testing.assert_allclose(np.asarray(pb.cumulative_prod(x.reshape(shape), axis=axis)).ravel(),
                                   np.cumprod(x), rtol=1e-13)  # fmt: skip


# -- extremes ----------------------------------------------------------------------------------------------------------


def test_ties_go_to_the_last() -> None:
    x = np.array([2.0, 1.0, 2.0, 2.0, 3.0, 3.0, 0.0])
    values, indices = pb.cummax(x, return_indices=True)
    np.testing.assert_array_equal(np.asarray(values), [2, 2, 2, 2, 3, 3, 3])
    np.testing.assert_array_equal(np.asarray(indices), [0, 0, 2, 3, 4, 5, 5])
    weights = np.array([1.0, 2, 4, 8, 16, 32, 64])
    np.testing.assert_array_equal(gradient(lambda x: pb.cummax(x), x, weights=weights), [3, 0, 4, 8, 16, 96, 0])
    values, indices = pb.cummin(-x, reverse=True, return_indices=True)
    np.testing.assert_array_equal(np.asarray(values), [-3, -3, -3, -3, -3, -3, 0])
    np.testing.assert_array_equal(np.asarray(indices), [4, 4, 4, 4, 4, 5, 6])
    found = gradient(lambda x: pb.cummin(x, reverse=True), -x, weights=weights)
    np.testing.assert_array_equal(found, [0, 0, 0, 0, 31, 32, 64])


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes_with_ties_and_nan_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(6):
        x = rng(seed).integers(0, 4, (13, 5)).astype(float)
        x[rng(seed + 9).random(x.shape) < 0.03] = NAN
        for axis in (0, 1):
            theirs = torch.tensor(x, requires_grad=True)
            values, indices = getattr(torch, name)(theirs, axis)
            mine, places = getattr(pb, name)(x, axis, return_indices=True)
            np.testing.assert_array_equal(np.asarray(mine), values.detach().numpy())
            np.testing.assert_array_equal(np.asarray(places), indices.numpy())
            weights = rng(seed).normal(size=x.shape)
            (expected,) = torch.autograd.grad(values, theirs, torch.tensor(weights))
            _, pull = pb.vjp(lambda x, axis=axis: getattr(pb, name)(x, axis), x)
            np.testing.assert_allclose(np.asarray(pull(pb.asarray(weights))[0]), expected.numpy(), rtol=1e-12)


# -- products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_products_with_zeros(zeros: int) -> None:
    """Against the product's own derivative, formed element by element."""
    x = rng().uniform(0.5, 2, 7)
    x[[1, 4, 5][:zeros]] = 0
    weights = rng(1).normal(size=7)
    expected = np.zeros(7)
    second = np.zeros((7, 7))
    for t in range(7):
        for i in range(t + 1):
            rest = np.delete(x[: t + 1], i)
            expected[i] += weights[t] * np.prod(rest)
            for j in range(t + 1):
                if j != i:
                    second[i, j] += weights[t] * np.prod(np.delete(x[: t + 1], [i, j]))
    np.testing.assert_allclose(gradient(lambda x: pb.cumulative_prod(x), x, weights=weights), expected, rtol=1e-12)
    hessian = pb.hessian(lambda x: pb.sum(pb.cumulative_prod(x) * weights))(x)
    np.testing.assert_allclose(np.asarray(hessian), second, rtol=1e-12, atol=1e-14)


def test_strong_zeros_of_products_and_recurrences() -> None:
    """What no cotangent reaches has gradient 0, whatever lies between: both modes."""
    x = np.array([2.0, 3.0, INF, NAN])
    np.testing.assert_array_equal(gradient(lambda x: pb.cumulative_prod(x), x, weights=[1.0, 1, 0, 0]), [4, 2, 0, 0])
    a, b = np.array([0.5, 2.0, INF, NAN]), np.ones(4)
    da, db = gradient(lambda a, b: pb.gated_scan(a, b), a, b, weights=[1.0, 1, 0, 0], argnums=(0, 1))
    np.testing.assert_array_equal(da, [0, 1, 0, 0])
    np.testing.assert_array_equal(db, [3, 1, 0, 0])
    zero = np.zeros(4)
    _, tangent = pb.jvp(lambda a, b: pb.gated_scan(a, b), (a, b), (zero, zero))
    np.testing.assert_array_equal(np.asarray(tangent), zero)


def test_a_closed_gate_stops_infinite_tangents() -> None:
    """Of running extremes, and of products and recurrences with a factor 0; in both modes, compiled or not."""
    x = np.array([0.0, 2.0, 3.0])
    for function in (lambda x: pb.cummax(pb.log(x)), lambda x: pb.gated_scan(x, pb.log(x[::-1]))[1:]):
        forward = np.asarray(pb.jacfwd(function)(x))
        reverse = np.asarray(pb.jacrev(function)(x))
        np.testing.assert_array_equal(forward, reverse)
        assert not np.isnan(forward).any()
    _, tangent = pb.jvp(lambda x: pb.cummax(pb.log(x)), (x,), (np.ones(3),))
    np.testing.assert_allclose(np.asarray(tangent), [INF, 1 / 2, 1 / 3], rtol=1e-15)


# -- logcumsumexp ------------------------------------------------------------------------------------------------------


def test_logcumsumexp_of_large_and_infinite_values() -> None:
    x = np.array([-INF, -INF, -1000.0, 1000.0, -INF, 999.0])
    exact = [-INF, -INF, -1000, 1000, 1000, 1000 + np.log1p(np.exp(-1.0))]
    np.testing.assert_allclose(np.asarray(pb.logcumsumexp(x)), exact, rtol=1e-15)
    np.testing.assert_array_equal(np.asarray(pb.logcumsumexp(np.full(5, -INF))), -INF)
    np.testing.assert_array_equal(np.asarray(pb.logcumsumexp(np.array([0.0, INF, 1.0, NAN, 2.0]))),
                                  [0, INF, INF, NAN, NAN])  # fmt: skip
    np.testing.assert_array_equal(np.asarray(pb.logcumsumexp(np.array([-INF, INF, -INF]))), [-INF, INF, INF])
    scaled = rng().normal(size=50) * 1e19
    np.testing.assert_allclose(np.asarray(pb.logcumsumexp(scaled)), np.maximum.accumulate(scaled), rtol=1e-15)
    far = np.array([0.0, -800.0, 5.0, 4.0])  # exp(-800) is 0
    np.testing.assert_allclose(np.asarray(pb.logcumsumexp(far)), np.logaddexp.accumulate(far), rtol=1e-15)


def test_logcumsumexp_gradient_is_finite() -> None:
    for reverse in (False, True):
        rows = [np.full(5, -INF), np.array([-INF, -INF, -1000.0, 1000.0, -INF]), np.array([0.0, -800, 800, -INF, 2])]
        for x in rows:
            found = gradient(lambda x, r=reverse: pb.logcumsumexp(x, reverse=r), x, weights=np.isfinite(x) * 1.0)
            assert np.isfinite(found).all()
            np.testing.assert_array_equal(found[x == -INF], 0)
            first, second = (pb.grad(lambda x, r=reverse: pb.sum(pb.exp(pb.logcumsumexp(x - 1000.0, reverse=r))))(x),
                             pb.hessian(lambda x, r=reverse: pb.sum(pb.tanh(pb.logcumsumexp(x, reverse=r))))(x))
            assert np.isfinite(np.asarray(first)).all()
            assert np.isfinite(np.asarray(second)).all()
    whole = gradient(lambda x: pb.logcumsumexp(x), np.full(4, -INF))
    np.testing.assert_array_equal(whole, 0)
    # Weights of softmax: each column of the Jacobian sums to one step's share.
    x = rng().normal(size=6) * 300
    jacobian = np.asarray(pb.jacrev(lambda x: pb.logcumsumexp(x))(x))
    np.testing.assert_allclose(jacobian.sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(jacobian, np.tril(jacobian))


# -- the recurrence ----------------------------------------------------------------------------------------------------


def test_recurrence_with_a_start_that_gates_make_infinite() -> None:
    h = np.asarray(pb.gated_scan(np.array([INF, 0.5]), np.array([1.0, 1.0]), initial=2.0))
    np.testing.assert_array_equal(h, [INF, INF])
    found = gradient(lambda a, b, h: pb.gated_scan(a, b, initial=h), [0.5, 0.25], [1.0, 2.0], 3.0, argnums=(0, 1, 2))
    np.testing.assert_allclose(found[0], [3 * 1.25, 2.5])
    np.testing.assert_allclose(found[1], [1.25, 1])
    np.testing.assert_allclose(found[2], 0.5 * 1.25)


def test_recurrence_continues_where_it_stopped() -> None:
    a, b = rng().uniform(0, 1, (20, 3)), rng(1).normal(size=(20, 3))
    whole = np.asarray(pb.gated_scan(a, b, 0))
    first = pb.gated_scan(a[:8], b[:8], 0)
    rest = pb.gated_scan(a[8:], b[8:], 0, initial=first[-1])
    np.testing.assert_allclose(np.concatenate([np.asarray(first), np.asarray(rest)]), whole, rtol=1e-13)
    turned = pb.gated_scan(a[::-1].copy(), b[::-1].copy(), 0, reverse=True)
    np.testing.assert_allclose(np.asarray(turned)[::-1], whole, rtol=1e-13)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["cumulative_sum", "cumulative_prod", "cummax", "cummin", "logcumsumexp", "gated_scan"]
)
def test_errors_name_the_function(name: str) -> None:
    function = getattr(pb, name)
    extra = (np.ones((2, 3)),) if name == "gated_scan" else ()
    with pytest.raises(ShapeError, match=rf"{name}: .*0-d"):
        function(*[1.0] * (2 if extra else 1))
    with pytest.raises(ShapeError, match=rf"{name}: axis must be given for an array of 2 axes, shape \(2, 3\)"):
        function(np.ones((2, 3)), *extra)
    with pytest.raises(ShapeError, match=rf"{name}: axis 2 is out of range"):
        function(np.ones((2, 3)), *extra, axis=2)
    with pytest.raises(ShapeError, match=rf"{name}: axis must be an int"):
        function(np.ones((2, 3)), *extra, axis=0.5)


def test_other_errors() -> None:
    with pytest.raises(ArgumentError, match=r"cumulative_prod: exclusive .*include_initial"):
        pb.cumulative_prod(np.ones(3), exclusive=True, include_initial=True)
    with pytest.raises(DTypeError, match=r"cumulative_sum: .*dtype must not be bool"):
        pb.cumulative_sum(np.ones(3), dtype="bool")
    with pytest.raises(ShapeError, match=r"gated_scan: shapes \(2, 3\) and \(4,\) do not broadcast"):
        pb.gated_scan(np.ones((2, 3)), np.ones(4), 0)
    with pytest.raises(ShapeError, match=r"initial of shape \(2, 1, 3\) does not broadcast to \(3,\)"):
        pb.gated_scan(np.ones((2, 3)), np.ones((2, 3)), 0, initial=np.ones((2, 1, 3)))
    with pytest.raises(ShapeError, match=r"gated_scan: initial: shapes \(2,\) and \(3,\) do not broadcast"):
        pb.gated_scan(np.ones((2, 3)), np.ones((2, 3)), 0, initial=np.ones(2))
    with pytest.raises(ShapeError, match="diff: n must not be negative"):
        pb.diff(np.ones(3), -1)
    with pytest.raises(ShapeError, match="diff: axis"):
        pb.diff(1.0)


# -- differences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float32", "float64"])
def test_diff_as_numpy(dtype: str) -> None:
    x = rng().integers(0, 2 if dtype == "bool" else 100, (4, 6, 3)).astype(dtype)
    for axis in (0, 1, -1):
        for n in (0, 1, 2, 5, 7):
            got = np.asarray(pb.diff(x, n, axis))
            want = np.diff(x, n, axis)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
        edge = np.take(x, [0, 1], axis)
        for options in ({"prepend": edge}, {"append": edge}, {"prepend": edge, "append": x}):
            np.testing.assert_array_equal(np.asarray(pb.diff(x, axis=axis, **options)),
                                          np.diff(x, axis=axis, **options))  # fmt: skip
    np.testing.assert_array_equal(np.asarray(pb.diff(x, n=0, prepend=edge)), x)
