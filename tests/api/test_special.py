"""Elementwise functions at their kinks, poles and ends, in every dtype, and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import pullback as pb

INF, NAN = np.inf, np.nan

pytestmark = pytest.mark.filterwarnings("error")


def values(function: Callable[..., Any], *arrays: Any) -> Any:
    return np.asarray(function(*[pb.asarray(np.array(a)) for a in arrays]))


def gradients(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Of the sum of elementwise results, by each argument; forward mode must agree."""
    operands = [pb.asarray(np.array(a, np.float64)) for a in arrays]
    found = pb.grad(lambda *xs: pb.sum(function(*xs)), argnums=tuple(range(len(arrays))))(*operands)
    for index, gradient in enumerate(found):
        tangents = tuple(pb.ones_like(x) if k == index else pb.zeros_like(x) for k, x in enumerate(operands))
        forward = np.asarray(pb.jvp(function, tuple(operands), tangents)[1])
        np.testing.assert_array_equal(np.broadcast_to(forward, gradient.shape), np.asarray(gradient))
    return [np.asarray(g) for g in found]


def derivative(function: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    """Of a function of a 0-d tensor, by reverse mode."""
    for _ in range(order):
        function = pb.grad(function)
    return function


def at(function: Callable[[Any], Any], order: int, x: float) -> float:
    return derivative(function, order)(pb.asarray(np.array(x))).item()


# -- values ------------------------------------------------------------------------------------------------------------

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 2.0, 1e-3, 7.0, 1e-310, 1e300, INF, -INF, NAN])


@pytest.mark.parametrize(
    ("name", "reference"),
    [("erfinv", special.erfinv), ("digamma", special.psi), ("logit", special.logit), ("sinc", np.sinc)],
)
def test_special_values_are_scipys(name: str, reference: Callable[..., Any], backend: str) -> None:
    with np.errstate(all="ignore"):
        expected = reference(SPECIAL)
    np.testing.assert_allclose(values(getattr(pb, name), SPECIAL), expected, rtol=1e-13, atol=2e-16)


def test_lgamma_has_cs_special_values(backend: str) -> None:
    """SciPy differs from C99 at -inf."""
    found = values(pb.lgamma, [1.0, 2.0, 0.0, -0.0, -3.0, INF, -INF, NAN, 1e306])
    np.testing.assert_array_equal(found, [0, 0, INF, INF, INF, INF, INF, NAN, special.gammaln(1e306)])
    found = values(pb.lgamma, [-0.5, -1e-300, 171.0])
    np.testing.assert_allclose(found, [math.log(2 * math.pi**0.5), 690.7755278982137, 706.5730622457874], rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_polygamma_is_scipys(n: int, backend: str) -> None:
    x = np.array([0.3, 1.0, 12.5, 400.0, INF, NAN])
    np.testing.assert_allclose(values(lambda x: pb.polygamma(n, x), x), special.polygamma(n, x), rtol=1e-14)
    assert values(lambda x: pb.polygamma(n, x), [-2.0])[0] == (INF if n % 2 else -INF)
    assert at(lambda x: pb.polygamma(n - 1, x), 1, 1.7) == pytest.approx(float(special.polygamma(n, 1.7)), rel=1e-14)


def test_lgamma_keeps_its_digits_near_its_zeros(backend: str) -> None:
    """log gamma(1+t) = -euler t + zeta(2)/2 t**2 - ..., so relative precision is not lost."""
    t = np.array([1e-3, -1e-6, 1e-10, -1e-14])
    around_one, around_two = 1 + t, 2 + t
    for x in (around_one, around_two):
        with mpmath.workdps(30):
            expected = [float(mpmath.loggamma(mpmath.mpf(v))) for v in x.tolist()]
        np.testing.assert_allclose(values(pb.lgamma, x), expected, rtol=2e-15)


FLOATING = (
    "erfinv", "logit", "lgamma", "digamma", "sinc", "frac", "xlogy", "xlog1py", "lerp", "fmod", "fmax", "fmin",
    "logaddexp2", "nextafter", "heaviside", "hypot", "logaddexp", "masked_fill", "ldexp", "polygamma",
)  # fmt: skip


def _call(name: str, x: Any) -> Any:
    """Any function of the family, of one operand in (0, 1)."""
    y = 1 - x / 3
    return {
        "lerp": lambda: pb.lerp(x, y, 0.7), "polygamma": lambda: pb.polygamma(1, x),
        "masked_fill": lambda: pb.masked_fill(x, x > 0.5, 2.0), "ldexp": lambda: pb.ldexp(x, pb.asarray(3)),
    }.get(name, lambda: getattr(pb, name)(x, y) if name in TWO else getattr(pb, name)(x))()  # fmt: skip


TWO = ("xlogy", "xlog1py", "fmod", "fmax", "fmin", "logaddexp2", "logaddexp", "hypot", "nextafter", "heaviside")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", FLOATING)
def test_narrow_dtypes_are_computed_wide_and_rounded_once(name: str, dtype: str, backend: str) -> None:
    x = pb.asarray(np.linspace(0.1, 0.9, 11)).astype(dtype)
    found = _call(name, x)
    assert found.dtype.name == dtype
    if name == "nextafter":
        return
    wide = "float64" if dtype == "float32" else "float32"
    if name in TWO:  # the second operand is rounded before it is used
        y = 1 - x / 3
        exact = getattr(pb, name)(x.astype(wide), y.astype(wide)).astype(dtype)
    else:
        exact = (_call(name, x.astype(wide)) if name != "lerp" else pb.lerp(
            x.astype(wide), (1 - x / 3).astype(wide), pb.asarray(0.7).astype(dtype).astype(wide)
        )).astype(dtype)
    tolerance = 4e-7 if dtype == "float32" else 0
    np.testing.assert_allclose(
        np.asarray(found).astype(np.float64), np.asarray(exact).astype(np.float64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("name", ["erfinv", "logit", "lgamma", "digamma", "sinc"])
def test_integers_become_the_default_float(name: str) -> None:
    found = getattr(pb, name)(pb.asarray(np.array([1, 0], np.int16)))
    assert found.dtype is pb.float32
    np.testing.assert_array_equal(np.asarray(found), np.asarray(getattr(pb, name)(np.array([1, 0], np.float32))))
    assert pb.polygamma(1, pb.asarray([1, 2])).dtype is pb.float32
    assert pb.hypot(pb.asarray([3]), pb.asarray([4])).tolist() == [5.0]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 1)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.4)
    for name in FLOATING:
        assert _call(name, pb.asarray(x)).shape == shape
        assert np.asarray(_call(name, pb.asarray(x))).shape == shape


def test_strided_and_big_endian_operands() -> None:
    x = np.linspace(0.1, 0.9, 12).reshape(3, 4)
    for odd in (x[:, ::2], x.T, np.asfortranarray(x), x.astype(">f8"), x[::-1]):
        for name in ("lgamma", "erfinv", "sinc"):
            np.testing.assert_array_equal(
                np.asarray(getattr(pb, name)(odd)), np.asarray(getattr(pb, name)(np.ascontiguousarray(odd, np.float64)))
            )


def test_fmod_and_remainder(backend: str) -> None:
    x = np.array([5.0, -5.0, 5.0, -5.0, 1e300, 3.0, INF, -0.0, 2.5])
    y = np.array([3.0, 3.0, -3.0, -3.0, 7.0, INF, 2.0, 1.0, 0.0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(values(pb.fmod, x, y), np.fmod(x, y))
    assert np.signbit(values(pb.fmod, -0.0, 1.0))
    for dtype in ("int8", "uint8", "int64", "uint64"):
        info = np.iinfo(dtype)
        x, y = np.array([7, info.min, info.max, 5], dtype), np.array([3, info.max, 2, 0], dtype)
        if info.min:
            x, y = np.append(x, np.array([-7, info.min, -7], dtype)), np.append(y, np.array([3, -1, -3], dtype))
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(values(pb.fmod, x, y), np.fmod(x, y))


def test_fmax_and_fmin_prefer_numbers(backend: str) -> None:
    x, y = np.array([1.0, NAN, NAN, 3.0, -INF, 0.0]), np.array([NAN, 2.0, NAN, 1.0, NAN, 5.0])
    np.testing.assert_array_equal(values(pb.fmax, x, y), [1, 2, NAN, 3, -INF, 5])
    np.testing.assert_array_equal(values(pb.fmin, x, y), [1, 2, NAN, 1, -INF, 0])
    assert values(pb.fmax, [True], [False]).tolist() == [True]
    assert values(pb.fmin, np.array([3], np.uint8), np.array([250], np.uint8)).tolist() == [3]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nextafter_steps_in_its_own_format(dtype: str, backend: str) -> None:
    x = pb.asarray([1.0, 1.0, 0.0, -0.0, -1.0, 2.0, INF, NAN, 0.0]).astype(dtype)
    y = pb.asarray([2.0, 0.0, -1.0, 1.0, -1.0, NAN, 0.0, 1.0, -0.0]).astype(dtype)
    found = np.asarray(pb.nextafter(x, y))
    info = pb.finfo(getattr(pb, dtype))
    eps, tiny = float(info.eps), float(found[3])
    assert found.dtype == x.dtype.numpy
    assert 0 < tiny < float(info.smallest_normal)
    assert float((found[3:4] / 2)[0]) == 0  # nothing lies between it and 0
    np.testing.assert_array_equal(
        found.astype(np.float64), [1 + eps, 1 - eps / 2, -tiny, tiny, -1, NAN, float(info.max), NAN, 0]
    )
    assert np.signbit(found[8].astype(np.float64))


def test_ldexp_reaches_every_number(backend: str) -> None:
    x, n = np.array([1.5, 1.0, -1.0, 5e-324, 1.0, 3.0]), np.array([10, -1074, 1023, 2000, -3000, 5000])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(values(pb.ldexp, x, n), np.ldexp(x, n))
    single = pb.ldexp(pb.asarray([1.0, 1.0, 1e-45]).astype("float32"), pb.asarray([-149, 128, 200]))
    np.testing.assert_array_equal(np.asarray(single), np.array([1e-45, INF, 2.0**51], np.float32))
    assert pb.ldexp(2, np.array([2**63], np.uint64)).tolist() == [INF]


def test_frac_heaviside_and_signs_of_infinity(backend: str) -> None:
    x = np.array([2.75, -2.75, 3.0, NAN])
    np.testing.assert_array_equal(values(pb.frac, x), [0.75, -0.75, 0, NAN])
    assert values(pb.frac, [3, -4]).tolist() == [0, 0]
    np.testing.assert_array_equal(values(pb.heaviside, [-2.0, 0.0, 3.0, NAN], [0.5] * 4), [0, 0.5, 1, NAN])
    special_values = np.array([INF, -INF, NAN, 0.0])
    assert values(pb.isposinf, special_values).tolist() == [True, False, False, False]
    assert values(pb.isneginf, special_values).tolist() == [False, True, False, False]
    assert values(pb.isposinf, [1, 2]).tolist() == [False, False]


def test_float_power_is_float64() -> None:
    found = pb.float_power(pb.asarray([2, -1]), pb.asarray([-1, 3]))
    assert found.dtype is pb.float64
    assert found.tolist() == [0.5, -1]


def test_bitcast(backend: str) -> None:
    x = np.array([1.0, -0.0, NAN], np.float32)
    np.testing.assert_array_equal(np.asarray(pb.bitcast(x, pb.int32)), x.view(np.int32))
    np.testing.assert_array_equal(np.asarray(pb.bitcast(x.view(np.int32), "float32")), x)
    assert pb.bitcast(np.array([True, False]), pb.uint8).tolist() == [1, 0]
    for dtype in (np.int32, "int32", np.dtype("int32"), pb.int32):
        np.testing.assert_array_equal(np.asarray(pb.asarray(x).view(dtype)), x.view(np.int32))
    assert pb.ones((2, 3)).view(np.int64(6)).shape == (6,)
    assert pb.ones((2, 3)).view(3, -1).shape == pb.ones((2, 3)).view((3, 2)).shape == (3, 2)


def test_half_powers_are_roots(backend: str) -> None:
    """As in PyTorch; a tensor of exponents gives C's pow."""
    x = np.array([-INF, -0.0, 0.0, 4.0, INF])
    found = values(lambda x: x**0.5, x)
    np.testing.assert_array_equal(found, [NAN, -0.0, 0, 2, INF])
    assert np.signbit(found[1])
    np.testing.assert_array_equal(values(lambda x: x**-0.5, x), [NAN, -INF, INF, 0.5, 0])
    np.testing.assert_array_equal(values(pb.pow, x, 0.5), [INF, 0, 0, 2, INF])
    np.testing.assert_array_equal(values(pb.pow, x, -0.5), [0, INF, INF, 0.5, 0])


def test_hypot_and_logaddexp_at_the_ends_of_the_range(backend: str) -> None:
    np.testing.assert_allclose(values(pb.hypot, [3e300, 3e-310, 1e200], [4e300, 4e-310, 0.0]), [5e300, 5e-310, 1e200])
    np.testing.assert_array_equal(values(pb.hypot, [INF, -INF, NAN], [NAN, 1.0, 2.0]), [INF, INF, NAN])
    for function, base in ((pb.logaddexp, math.e), (pb.logaddexp2, 2.0)):
        found = values(function, [1e4, -1e4, -INF, INF, INF, -INF, NAN], [1e4, -1e4, -INF, INF, -INF, 3.0, INF])
        one = math.log(2, base)
        np.testing.assert_allclose(found, [1e4 + one, -1e4 + one, -INF, INF, INF, 3, NAN])


def test_lerp_is_exact_at_both_ends(backend: str) -> None:
    start, end = np.array([0.1, 1e16, -3.3]), np.array([0.7, 1.0, 1e-9])
    np.testing.assert_array_equal(values(pb.lerp, start, end, 0.0), start)
    np.testing.assert_array_equal(values(pb.lerp, start, end, 1.0), end)


def test_where_of_a_condition_alone_gives_positions() -> None:
    x = np.array([[0, 3], [5, 0]])
    assert [p.tolist() for p in pb.where(pb.asarray(x))] == [[0, 1], [1, 0]]
    with pytest.raises(pb.TraceError, match="size="):
        pb.jit(lambda x: pb.where(x > 0))(pb.asarray(x))


def test_masked_fill_broadcasts(backend: str) -> None:
    x, mask = np.arange(6.0).reshape(2, 3), np.array([True, False, True])
    np.testing.assert_array_equal(values(lambda x, m: pb.masked_fill(x, m, -1), x, mask), np.where(mask, -1, x))
    assert pb.masked_fill(pb.asarray(np.array([1, 2], np.int8)), pb.asarray([True, False]), 5).dtype is pb.int8
    assert values(lambda x, m: pb.masked_fill(x, m, NAN), x, mask).dtype == np.float64


# -- derivatives -------------------------------------------------------------------------------------------------------


def test_gradients_at_kinks(backend: str) -> None:
    rows: list[tuple[Callable[..., Any], list[Any], list[Any]]] = [
        (pb.fmax, [[1, 1, 2, NAN, 1], [1, 2, 1, 4, NAN]], [[0.5, 0, 1, 0, 1], [0.5, 1, 0, 1, 0]]),
        (pb.fmin, [[1, 1, 2, NAN, 1], [1, 2, 1, 4, NAN]], [[0.5, 1, 0, 0, 1], [0.5, 0, 1, 1, 0]]),
        (pb.fmod, [[5.0, -5.0, 6.0, 0.3], [3.0, 3.0, -4.0, 0.1]], [[1] * 4, [-1, 1, 1, -2]]),
        (pb.remainder, [[5.0, -5.0, 6.0], [3.0, 3.0, -4.0]], [[1] * 3, [-1, 2, 2]]),
        (pb.copysign, [[1.0, -1.0, 0.0, 2.0], [-0.0, -3.0, -1.0, 1.0]], [[-1, 1, 0, 1], [0] * 4]),
        (pb.hypot, [[0.0, 3.0, -3e200, 3e-200, 0.0], [0.0, 4.0, 4e200, 4e-200, -2.0]],
         [[0, 0.6, -0.6, 0.6, 0], [0, 0.8, 0.8, 0.8, -1]]),
        (pb.logaddexp, [[1.0, -INF, INF, -INF, INF, 900.0], [1.0, -INF, INF, 2.0, 2.0, -900.0]],
         [[0.5, 0, 0.5, 0, 1, 1], [0.5, 0, 0.5, 1, 0, 0]]),
        (pb.logaddexp2, [[1.0, -INF, INF, -INF, INF, 3.0], [1.0, -INF, INF, 2.0, 2.0, 1.0]],
         [[0.5, 0, 0.5, 0, 1, 0.8], [0.5, 0, 0.5, 1, 0, 0.2]]),
        (pb.pow, [[0.0, 1e-310, 0.0, 0.0, 2.0], [0.0, 0.0, 1.0, 2.0, 0.0]],
         [[0, 0, 1, 0, 0], [0, math.log(1e-310), 0, 0, math.log(2)]]),
        (pb.xlogy, [[0.0, 0.0, 0.0, 2.0, 2.0], [3.0, 0.0, -1.0, 4.0, 0.0]],
         [[np.log(3), 0, 0, np.log(4), -INF], [0, 0, 0, 0.5, INF]]),
        (pb.xlog1py, [[0.0, 0.0, 0.0, 2.0], [2.0, -1.0, -2.0, 3.0]], [[np.log(3), 0, 0, np.log(4)], [0, 0, 0, 0.5]]),
        (lambda x: pb.clip(x, -1, 1), [[-2.0, -1, 0, 1, 2, NAN]], [[0, 1, 1, 1, 0, 0]]),
        (pb.clip, [[0.0, 2, 5, 9, 1], [1.0, 1, 1, 3, 1], [4.0, 4, 4, 2, 1]],
         [[0, 1, 0, 0, 1], [1, 0, 0, 0, 0], [0, 0, 1, 1, 0]]),
        (pb.frac, [[1.5, 2.0, -0.5]], [[1, 1, 1]]),
        (pb.heaviside, [[-1.0, 0.0, 1.0], [0.3, 0.3, 0.3]], [[0, 0, 0], [0, 1, 0]]),
        (lambda x, v: pb.masked_fill(x, pb.asarray([True, False]), v), [[NAN, 2.0], [3.0, 4.0]], [[0, 1], [1, 0]]),
        (pb.lerp, [[1.0, 1.0], [3.0, 3.0], [0.25, 0.75]], [[0.75, 0.25], [0.25, 0.75], [2, 2]]),
    ]  # fmt: skip
    for function, arrays, expected in rows:
        for got, want in zip(gradients(function, *arrays), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-300, err_msg=str(function))


def test_slopes_that_overflowed(backend: str) -> None:
    assert at(pb.asinh, 1, 1e200) == 1e-200
    assert at(pb.asinh, 1, -1e300) == 1e-300
    assert at(pb.asinh, 2, 2.0) == pytest.approx(-2 / 5**1.5, rel=1e-14)
    assert at(pb.acosh, 1, 1e200) == pytest.approx(1e-200, rel=1e-15)
    assert at(pb.atan, 1, 1e200) == 0
    for scale in (1e200, 1e-200):
        hessian = np.asarray(pb.hessian(lambda x: pb.hypot(x[0], x[1]))(pb.asarray(np.array([3.0, 4.0]) * scale)))
        np.testing.assert_allclose(hessian * scale, np.array([[16, -12], [-12, 9]]) / 125, rtol=1e-13)


INFINITE = [
    (pb.asin, 1.0, [INF, INF, INF]), (pb.asin, -1.0, [INF, -INF, INF]), (pb.acos, 1.0, [-INF, -INF, -INF]),
    (pb.acos, -1.0, [-INF, INF, -INF]), (pb.atanh, 1.0, [INF, INF, INF]), (pb.atanh, -1.0, [INF, -INF, INF]),
    (pb.acosh, 1.0, [INF, -INF, INF]), (pb.sqrt, 0.0, [INF, -INF, INF]), (pb.rsqrt, 0.0, [-INF, INF, -INF]),
    (pb.cbrt, 0.0, [INF, -INF, INF]), (pb.cbrt, -0.0, [INF, INF, INF]), (pb.log, 0.0, [INF, -INF, INF]),
    (pb.log2, 0.0, [INF, -INF, INF]), (pb.log10, 0.0, [INF, -INF, INF]), (pb.log1p, -1.0, [INF, -INF, INF]),
    (pb.reciprocal, 0.0, [-INF, INF, -INF]), (pb.erfinv, 1.0, [INF, INF, INF]), (pb.erfinv, -1.0, [INF, -INF, INF]),
    (pb.logit, 0.0, [INF, -INF, INF]), (pb.logit, 1.0, [INF, INF, INF]), (pb.lgamma, 0.0, [-INF, INF, -INF]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "x", "expected"), INFINITE, ids=[f"{f.__name__} {x}" for f, x, _ in INFINITE])
def test_derivatives_at_the_ends_are_infinite(
    function: Callable[..., Any], x: float, expected: list[float], backend: str
) -> None:
    """To third order; none is NaN."""
    assert [at(function, order, x) for order in (1, 2, 3)] == expected


ZERO = [
    (pb.sin, [1, 0, -1]), (pb.tan, [1, 0, 2]), (pb.asin, [1, 0, 1]), (pb.atan, [1, 0, -2]), (pb.sinh, [1, 0, 1]),
    (pb.tanh, [1, 0, -2]), (pb.asinh, [1, 0, -1]), (pb.atanh, [1, 0, 2]), (pb.expm1, [1, 1, 1]), (pb.log1p, [1, -1, 2]),
    (pb.sigmoid, [0.25, 0, -0.125]), (pb.sinc, [0, -(np.pi**2) / 3, 0]), (pb.square, [0, 2, 0]), (pb.abs, [0, 0, 0]),
    (pb.erf, [2 / np.pi**0.5, 0, -4 / np.pi**0.5]), (pb.erfinv, [np.pi**0.5 / 2, 0, np.pi**1.5 / 4]),
    (lambda x: x**3, [0, 0, 6]), (lambda x: x**2.5, [0, 0, INF]), (lambda x: x**5, [0, 0, 0]),
    (pb.exp2, [np.log(2), np.log(2) ** 2, np.log(2) ** 3]), (pb.cosh, [0, 1, 0]), (pb.acos, [-1, 0, -1]),
    (lambda x: pb.xlogy(x, 3.0), [np.log(3), 0, 0]), (lambda x: pb.lgamma(1 + x), [-np.euler_gamma, np.pi**2 / 6,
                                                                                   -2 * 1.2020569031595942]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "expected"), ZERO)
def test_derivatives_at_zero(function: Callable[..., Any], expected: list[float], backend: str) -> None:
    found = [at(function, order, 0.0) for order in (1, 2, 3)]
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("x", [0.0, 1e-200, -1e-9, 1e-3, 0.4, -0.7, 1.3])
def test_sinc_to_sixth_order(x: float, backend: str) -> None:
    """Where a formula of quotients loses every digit: against Taylor's series in high precision."""
    with mpmath.workdps(60):
        expected = [float(mpmath.diff(mpmath.sincpi, mpmath.mpf(x), n)) for n in range(7)]
    found = [at(pb.sinc, n, x) for n in range(7)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=3e-14)


def test_logit_is_the_inverse_of_sigmoid_at_both_ends(backend: str) -> None:
    x = np.array([-300.0, -5.0, 0.0, 1e-9, 7.0])
    np.testing.assert_allclose(values(lambda x: pb.logit(pb.sigmoid(x)), x), x, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(gradients(lambda x: pb.logit(pb.sigmoid(x)), x)[0][1:], 1, rtol=1e-11)
    np.testing.assert_allclose(gradients(lambda x: pb.logit(x, eps=0.1), [0.0, 0.5, 1.0])[0], [0, 4, 0])


def test_what_has_no_derivative_says_so() -> None:
    x = pb.asarray([1.0, 2.0])
    with pytest.raises(pb.GradientError, match="nextafter has no derivative"):
        pb.grad(lambda x: pb.sum(pb.nextafter(x, x + 1)))(x)
    with pytest.raises(pb.GradientError, match="bitcast has no derivative"):
        pb.grad(lambda x: pb.sum(pb.bitcast(x.astype("float16"), pb.bfloat16)))(x)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_errors() -> None:
    x = pb.ones(3)
    for bad in (True, 1.0, "2", None):
        with pytest.raises(pb.ArgumentError, match="polygamma: the order n must be a Python int"):
            pb.polygamma(bad, x)
    for bad in (-1, 101):
        with pytest.raises(pb.ArgumentError, match="polygamma: the order n must be from 0 to 100"):
            pb.polygamma(bad, x)
    with pytest.raises(pb.ArgumentError, match="where: either the condition alone or both"):
        pb.where(x > 0, x)
    with pytest.raises(pb.DTypeError, match="masked_fill: the mask must be bool, got float32"):
        pb.masked_fill(x, x, 0)
    with pytest.raises(pb.DTypeError, match="masked_fill: a value of float32 does not fit a tensor of int64"):
        pb.masked_fill(pb.asarray([1]), pb.asarray([True]), 0.5)
    with pytest.raises(OverflowError, match="masked_fill: Python integer 300"):
        pb.masked_fill(pb.asarray(np.array([1], np.uint8)), pb.asarray([True]), 300)
    with pytest.raises(pb.DTypeError, match="ldexp: integer exponents expected, got float32"):
        pb.ldexp(x, x)
    with pytest.raises(pb.DTypeError, match="bitcast: float32 cannot be read as int64"):
        pb.bitcast(x, pb.int64)
    with pytest.raises(pb.ShapeError, match=r"hypot: .*\(3,\) and \(2,\)"):
        pb.hypot(x, pb.ones(2))
    with pytest.raises(pb.ShapeError, match="lerp: shapes"):
        pb.lerp(x, pb.ones(2), 0.5)
