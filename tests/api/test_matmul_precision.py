"""What products are made with: the precision of float32, the dtype of sums and results, the bound of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback.compiler import products
from pullback.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((23, 300)).astype(np.float32)
Y = RNG.standard_normal((300, 17)).astype(np.float32)
EPS = 2.0**-24  # a rounding of float32


def rounded(x: Any) -> Any:
    """To bfloat16, in float64."""
    return np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float64)


def bound(x: Any, y: Any) -> Any:
    """What docs/architecture.md says of the error of ``x @ y``, which blocks of k are summed for."""
    k = x.shape[-1]
    roundings = min(k, products.MAX_K_BLOCK + k / products.MAX_K_BLOCK)
    return roundings * EPS * (np.abs(x) @ np.abs(y)) + EPS * np.abs(x @ y)


# -- the error of float32 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(64, 64, 64), (5, 3000, 7), (1, 20000, 300), (300, 20000, 1), (33, 1000, 65)], ids=str
)
@pytest.mark.parametrize("signs", ["mixed", "positive"])
def test_float32_within_the_documented_bound(shape: tuple[int, int, int], signs: str) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    if signs == "positive":
        x, y = np.abs(x), np.abs(y)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    error = np.abs(np.asarray(pb.matmul(x, y), np.float64) - exact)
    assert (error <= bound(x.astype(np.float64), y.astype(np.float64))).all()
    if k > 1000:  # in practice the square root of it
        scale = EPS * (np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64))
        assert error.max() <= 4 * np.sqrt(k) * scale.max()


# -- set_matmul_precision ----------------------------------------------------------------------------------------------

ROUNDING: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": pb.matmul,
    "@": lambda x, y: x @ y,
    "linear": lambda x, y: pb.linear(x, y.T),
    "dot": pb.dot,
    "inner": lambda x, y: pb.inner(x, y.T),
    "tensordot": lambda x, y: pb.tensordot(x, y, 1),
    "einsum": lambda x, y: pb.einsum("ij,jk->ik", x, y),
    "dot_general": lambda x, y: pb.dot_general(x, y, ((1,), (0,))),
    "matvec": lambda x, y: pb.matvec(x, y.T).T,
    "vecmat": lambda x, y: pb.vecmat(x, y),
    "batched": lambda x, y: (x[None] @ y[None])[0],
}


@pytest.mark.parametrize("name", ROUNDING)
def test_operands_are_rounded_to_bfloat16(name: str, backend: str) -> None:
    with pb.set_matmul_precision("bf16"):
        got = np.asarray(ROUNDING[name](pb.asarray(X), pb.asarray(Y)), np.float64)
    x, y = rounded(X), rounded(Y)
    assert got.shape == (23, 17)
    assert (np.abs(got - x @ y) <= bound(x, y)).all()
    assert np.abs(got - X.astype(np.float64) @ Y).max() > 0.01  # which float32 would not give


def test_gradients_are_products_of_rounded_operands(backend: str) -> None:
    weights = RNG.standard_normal((23, 17)).astype(np.float32)
    with pb.set_matmul_precision("bf16"):
        value, pull = pb.vjp(pb.matmul, pb.asarray(X), pb.asarray(Y))
    by_x, by_y = pull(pb.asarray(weights))  # the precision is that of the call
    x, y, w = rounded(X), rounded(Y), rounded(weights)
    assert by_x.dtype is pb.float32
    for got, left, right in ((value, x, y), (by_x, w, y.T), (by_y, x.T, w)):
        assert (np.abs(np.asarray(got, np.float64) - left @ right) <= bound(left, right)).all()
    # Not a second time: what comes out has float32's digits.
    assert (np.asarray(by_y) != rounded(by_y)).any()
    with pb.set_matmul_precision("bf16"):
        _, tangent = pb.jvp(pb.matmul, (pb.asarray(X), pb.asarray(Y)), (pb.asarray(X), pb.asarray(Y)))
    np.testing.assert_allclose(np.asarray(tangent), 2 * (x @ y), rtol=1e-4, atol=1e-3)


def test_second_derivatives_and_vmap_keep_the_precision() -> None:
    with pb.set_matmul_precision("bf16"):
        def loss(x: Any) -> Any:
            return pb.sum((x @ pb.asarray(Y)) ** 2)

        product = pb.hvp(loss, (pb.asarray(X),), (pb.ones(X.shape),))
        y = rounded(Y)
        expected = rounded(2 * (rounded(np.ones(X.shape)) @ y).astype(np.float32)) @ y.T
        np.testing.assert_allclose(np.asarray(product), expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())
        together = pb.vmap(lambda row: row @ pb.asarray(Y))(pb.asarray(X))
    assert (np.abs(np.asarray(together) - rounded(X) @ y) <= bound(rounded(X), y)).all()


def test_a_jitted_function_is_recorded_for_each_precision() -> None:
    product = pb.jit(lambda x, y: x @ y)
    x, y = pb.asarray(X), pb.asarray(Y)
    exact = np.asarray(product(x, y))
    with pb.set_matmul_precision("bf16"):
        rough = np.asarray(product(x, y))
        assert pb.get_matmul_precision() == "bf16"
    assert pb.get_matmul_precision() == "highest"
    np.testing.assert_array_equal(np.asarray(product(x, y)), exact)
    assert np.abs(rough - exact).max() > 0.01


def test_a_lazy_product_keeps_the_precision_of_its_call() -> None:
    with pb.set_matmul_precision("bf16"):
        rough = pb.matmul(X, Y)
    exact = pb.matmul(X, Y)
    with pb.set_matmul_precision("bf16"):
        assert np.abs(np.asarray(exact) - X.astype(np.float64) @ Y).max() < 1e-3
    assert np.abs(np.asarray(rough) - X.astype(np.float64) @ Y).max() > 0.01


def test_other_dtypes_and_other_functions_are_left_alone() -> None:
    wide = X.astype(np.float64)
    with pb.set_matmul_precision("bf16"):
        assert np.abs(np.asarray(pb.matmul(wide, Y.astype(np.float64))) - wide @ Y).max() < 1e-10
        square = pb.asarray(X[:, :23])
        inverse = np.asarray(pb.linalg.inv(square))
        single = np.asarray(pb.linalg.matrix_power(square, 2))
    assert np.abs(single - wide[:, :23] @ wide[:, :23]).max() < 1e-3
    assert np.abs(inverse @ X[:, :23] - np.eye(23)).max() < 1e-3


def test_special_values_of_rounded_operands(backend: str) -> None:
    x = np.array([[np.inf, 1.0], [np.nan, 1.0], [3.4e38, 0.0], [1e-40, 0.0]], np.float32)
    with pb.set_matmul_precision("bf16"):
        got = np.asarray(pb.matmul(x, np.ones((2, 1), np.float32)))[:, 0]
    assert got[0] == np.inf and np.isnan(got[1])
    assert got[2] == np.inf  # beyond the largest number of bfloat16
    assert got[3] == rounded(1e-40)  # below the normal ones


def test_wrong_names() -> None:
    with pytest.raises(ArgumentError, match="set_matmul_precision: 'low' is neither"):
        pb.set_matmul_precision("low")  # type: ignore[arg-type]
    assert pb.get_matmul_precision() == "highest"


# -- preferred_dtype ---------------------------------------------------------------------------------------------------

PREFERRED: dict[str, Callable[..., Any]] = {
    "matmul": lambda x, y, d: pb.matmul(x, y, preferred_dtype=d),
    "tensordot": lambda x, y, d: pb.tensordot(x, y, 1, preferred_dtype=d),
    "einsum": lambda x, y, d: pb.einsum("ij,jk->ik", x, y, preferred_dtype=d),
    "dot_general": lambda x, y, d: pb.dot_general(x, y, ((1,), (0,)), preferred_dtype=d),
}


@pytest.mark.parametrize("name", PREFERRED)
@pytest.mark.parametrize("shape", [(5, 900, 7), (64, 200, 48), (1, 900, 70), (3, 1, 4), (0, 3, 2), (3, 0, 2)], ids=str)
def test_int8_is_summed_in_int32(name: str, shape: tuple[int, int, int], backend: str) -> None:
    m, k, n = shape
    x, y = (RNG.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    got = np.asarray(PREFERRED[name](x, y, pb.int32))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, x.astype(np.int64) @ y.astype(np.int64))


def test_int8_wraps_without_it(backend: str) -> None:
    x, y = (RNG.integers(-128, 128, s).astype(np.int8) for s in ((5, 90), (90, 7)))
    got = np.asarray(pb.matmul(x, y))
    assert got.dtype == np.int8
    np.testing.assert_array_equal(got, x @ y)


@pytest.mark.parametrize("name", PREFERRED)
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(23, 300, 17), (64, 400, 65), (1, 300, 17), (200, 3, 300)], ids=str)
def test_half_types_with_float32_results(name: str, half: str, shape: tuple[int, int, int], backend: str) -> None:
    m, k, n = shape
    x, y = (pb.asarray(RNG.standard_normal(s)).astype(half) for s in ((m, k), (k, n)))
    got = PREFERRED[name](x, y, pb.float32)
    assert got.dtype is pb.float32
    left, right = (np.asarray(v.astype(pb.float64)) for v in (x, y))
    assert (np.abs(np.asarray(got, np.float64) - left @ right) <= bound(left, right)).all()
    assert (np.asarray(got) != np.asarray(got.astype(half).astype(pb.float32))).any()  # not rounded on the way


@pytest.mark.parametrize("name", PREFERRED)
def test_float32_is_summed_in_float64(name: str, backend: str) -> None:
    got = np.asarray(PREFERRED[name](X, Y, pb.float64))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, X.astype(np.float64) @ Y.astype(np.float64), rtol=1e-12, atol=1e-12)


def test_gradients_have_the_operands_dtype(backend: str) -> None:
    x, y = pb.asarray(X).astype(pb.bfloat16), pb.asarray(Y).astype(pb.bfloat16)
    value, pull = pb.vjp(lambda a, b: pb.matmul(a, b, preferred_dtype=pb.float32), x, y)
    weights = RNG.standard_normal(value.shape).astype(np.float32)
    by_x, by_y = pull(pb.asarray(weights))
    assert by_x.dtype is by_y.dtype is pb.bfloat16
    np.testing.assert_allclose(rounded(by_x.astype(pb.float32)), weights @ rounded(Y).T, rtol=5e-3, atol=1e-3)
    np.testing.assert_allclose(rounded(by_y.astype(pb.float32)), rounded(X).T @ weights, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("name", PREFERRED)
def test_a_dtype_that_does_not_hold_the_operands(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name}: preferred_dtype bfloat16 does not hold the operands' float32"):
        PREFERRED[name](X, Y, pb.bfloat16)
    with pytest.raises(DTypeError, match="preferred_dtype int32 does not hold"):
        PREFERRED[name](X, Y, pb.int32)


def test_axes_that_do_not_pair_up() -> None:
    with pytest.raises(ShapeError, match="contract must be a pair"):
        pb.dot_general(X, Y, (1, 0, 2))
    with pytest.raises(ShapeError, match="do not pair up"):
        pb.dot_general(X, Y, ((1, 0), (0,)))
    with pytest.raises(ShapeError, match="used twice"):
        pb.dot_general(X, X, ((1,), (1,)), ((1,), (1,)))


@pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")
def test_sizes_with_no_leftover_and_with_some() -> None:
    """Of the operands' dtype, and of what is read narrow."""
    for m, k, n in ((1, 2, 3), (7, 9, 11), (17, 16, 33), (48, 512, 64), (129, 385, 130)):
        x, y = (RNG.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        with pb.set_matmul_precision("bf16"):
            got = np.asarray(pb.asarray(x) @ pb.asarray(y), np.float64)
            flipped = np.asarray(pb.asarray(y).T @ pb.asarray(x).T, np.float64)
        left, right = rounded(x), rounded(y)
        assert (np.abs(got - left @ right) <= bound(left, right)).all(), (m, k, n)
        assert (np.abs(flipped.T - left @ right) <= bound(left, right)).all(), (m, k, n)


@pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")
def test_the_engine_reads_half_types_as_they_are() -> None:
    def computed(function: Callable[..., Any], *arrays: Any) -> list[str]:
        report = pb.explain(function)(*arrays)
        return [step.computes for step in report.steps if step.kind == "product"]

    x, y = pb.ones((64, 70), dtype=pb.bfloat16), pb.ones((70, 80), dtype=pb.bfloat16)
    wide = computed(lambda x, y: pb.matmul(x, y, preferred_dtype=pb.float32) + 1, x, y)
    assert wide == ["bfloat16 by the engine, then add"]
    with pb.set_matmul_precision("bf16"):
        rounded_first = computed(pb.matmul, x.astype(pb.float32), y.astype(pb.float32))
        assert rounded_first == ["bfloat16 by the engine, left from cast, right from cast"]
    assert computed(pb.matmul, x.astype(pb.float32), y.astype(pb.float32)) == ["float32 by the engine"]


@pytest.mark.parametrize("shape", [(1, 64), (64, 1), (1, 1), (5, 7), (70, 90)], ids=str)
def test_what_follows_a_product_of_half_types_with_float32_results(shape: tuple[int, int]) -> None:
    m, n = shape
    x, y = (pb.asarray(RNG.standard_normal(s)).astype(pb.bfloat16) for s in ((3, m, 65), (3, 65, n)))
    bias = pb.asarray(RNG.standard_normal(n).astype(np.float32))

    def function(x: Any, y: Any) -> Any:
        product = pb.matmul(x, y, preferred_dtype=pb.float32)
        return pb.tanh(product * 0.1 + bias), pb.matmul(y.mT, x.mT, preferred_dtype=pb.float32)

    got, flipped = pb.jit(function)(x, y)
    left, right = (np.asarray(v.astype(pb.float64)) for v in (x, y))
    np.testing.assert_allclose(got, np.tanh(left @ right * 0.1 + np.asarray(bias)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(flipped, (left @ right).swapaxes(1, 2), rtol=1e-5, atol=1e-5)
