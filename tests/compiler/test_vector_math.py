"""Accuracy and special values of the vector math library, in units in the last place (ulp) of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from harness import TARGETS, compiled

from pullback.compiler.llvm.scalar import emit
from pullback.compiler.llvm.vector_math import UNARY
from pullback.compiler.llvm.vector_math.exp_log import exp2_or_zero

#: the most that any result may be off, over all targets (the bound of the library is 2)
BOUND = {
    "acos": 1.3, "acosh": 1.7, "asin": 1.4, "asinh": 1.9, "atan": 2, "atanh": 1.9, "cbrt": 1.1, "cos": 1.5, "cosh": 1.6,
    "erf": 1.4, "erfc": 2, "exp": 1.1, "exp2": 1.1, "expm1": 1.8, "log": 1.3, "log10": 1.6, "log1p": 1.7, "log2": 1.6,
    "sigmoid": 2, "sin": 1.5, "sinh": 1.8, "tan": 1.9, "tanh": 2, "pow": 1.3, "atan2": 2, "digamma": 2, "erfinv": 1.9,
    "lgamma": 1.4, "logit": 1.3, "hypot": 1.1, "logaddexp": 1.6, "logaddexp2": 1.6, "polygamma": 2.5, "sinc": 2,
}  # fmt: skip
EXACT: dict[str, Callable[[Any], Any]] = {
    "acos": mpmath.acos, "acosh": mpmath.acosh, "asin": mpmath.asin, "asinh": mpmath.asinh, "atan": mpmath.atan,
    "atanh": mpmath.atanh, "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), "cos": mpmath.cos,
    "cosh": mpmath.cosh, "digamma": mpmath.digamma, "erf": mpmath.erf, "erfc": mpmath.erfc, "erfinv": mpmath.erfinv,
    "exp": mpmath.exp, "lgamma": mpmath.loggamma, "logit": lambda x: mpmath.log(x / (1 - x)),
    "exp2": lambda x: mpmath.mpf(2) ** x, "expm1": mpmath.expm1, "log": mpmath.log, "log10": mpmath.log10,
    "log1p": mpmath.log1p, "log2": lambda x: mpmath.log(x, 2), "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "sin": mpmath.sin,
    "sinh": mpmath.sinh, "tan": mpmath.tan, "tanh": mpmath.tanh,
}  # fmt: skip
#: NumPy's version, in long double where that is wider than double
NUMPY: dict[str, Callable[[Any], Any]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cbrt": np.cbrt, "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
#: where the function is real and within the range of the dtype
DOMAIN = {
    "acos": (-1.0, 1.0), "acosh": (1.0, math.inf), "asin": (-1.0, 1.0), "atanh": (-1.0, 1.0), "cosh": (-87.0, 87.0),
    "sinh": (-87.0, 87.0), "log": (0.0, math.inf), "log10": (0.0, math.inf), "log2": (0.0, math.inf),
    "log1p": (-1.0, math.inf), "exp": (-103.0, 88.0), "exp2": (-149.0, 127.9), "expm1": (-100.0, 88.0),
    "digamma": (1e-300, math.inf), "erfinv": (-1.0, 1.0), "lgamma": (1e-300, 1e36), "logit": (0.0, 1.0),
    "erfc": (-10.0, 9.9), "erf": (-20.0, 20.0), "sigmoid": (-103.0, 200.0), "tanh": (-200.0, 200.0),
}  # fmt: skip
#: infinite there, which mpmath has as an error; see SPECIAL
POLES = {"erfinv": (-1.0, 1.0), "logit": (0.0, 1.0), "digamma": (0.0,), "lgamma": (0.0,)}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def run(name: str, dtype: str, target: str, *arrays: np.ndarray) -> np.ndarray:
    operands = (dtype,) * len(arrays)
    return compiled(target, operands, dtype, lambda b, args: emit(b, name, dtype, operands, args))(*arrays)


def ulps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of ``wanted``, which is wider than ``got``; infinities and NaN must agree."""
    rounded = wanted.astype(got.dtype)
    finite = np.isfinite(rounded) & np.isfinite(got)
    agree = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    unit = np.spacing(np.abs(np.where(finite, rounded, 1))).astype(wanted.dtype)
    distance = np.abs(np.where(finite, got, 0).astype(wanted.dtype) - np.where(finite, wanted, 0)) / unit
    return np.where(finite, distance, np.where(agree, 0, np.inf))


def check(name: str, x: Any, got: np.ndarray, wanted: np.ndarray) -> None:
    error = ulps(got, wanted)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND[name], f"{error[worst]:.3f} ulp at {x[worst]!r}: {got[worst]!r}"


def samples(name: str, dtype: str, count: int) -> np.ndarray:
    """Numbers of the function's domain: of every magnitude, and dense where functions change form."""
    rng = np.random.default_rng(7)
    kind = np.dtype(dtype)
    tiny, huge = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    magnitudes = np.exp2(rng.uniform(np.log2(float(tiny)), np.log2(float(huge)), count))
    moderate = np.exp2(rng.uniform(-30, 20, count))
    near_one = 1 + np.exp2(rng.uniform(-23, 0, count)) * rng.choice([-1, 1], count)
    quarter_turns = rng.integers(1, 1 << 16, count) * (math.pi / 2)
    parts = [magnitudes, moderate, near_one, quarter_turns, rng.uniform(0, 1, count), rng.uniform(0, 10, 2 * count)]
    x = np.concatenate(parts)
    x = (x * rng.choice([-1, 1], x.size)).astype(kind)
    low, high = DOMAIN.get(name, (-math.inf, math.inf))
    if math.isfinite(high) and high > 20:
        x = np.concatenate([x, rng.uniform(low, high, count).astype(kind)])
    return x[np.isfinite(x) & (x >= low) & (x <= high) & ~np.isin(x, POLES.get(name, ()))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(NUMPY))
def test_float32(name: str, target: str) -> None:
    x = samples(name, "float32", 60000)
    check(name, x, run(name, "float32", target, x), NUMPY[name](x.astype(np.float64)))


def exact(f: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The function to 40 digits, as the long double nearest to it."""
    out = np.empty(arrays[0].shape, np.longdouble)
    with mpmath.workdps(40):
        for i, values in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
            value = f(*map(mpmath.mpf, values))
            high = float(value)
            low = float(value - mpmath.mpf(high)) if math.isfinite(high) else 0.0
            out[i] = np.longdouble(high) + np.longdouble(low)
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", UNARY)
def test_against_exact(name: str, target: str) -> None:
    for dtype in ("float32", "float64"):
        x = samples(name, dtype, 60)
        check(name, x, run(name, dtype, target, x), exact(EXACT[name], x))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="long double is no wider than double")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(set(NUMPY) - {"exp2"}))
def test_float64(name: str, target: str) -> None:
    x = samples(name, "float64", 20000)
    check(name, x, run(name, "float64", target, x), NUMPY[name](x.astype(np.longdouble)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_hard_arguments(name: str, target: str) -> None:
    """Doubles and floats next to multiples of pi/2: the worst known cancellations of argument reduction."""
    worst = [6381956970095103.0 * 2.0**797, 5.706674932067741e262, 1.4e22, 2.0**1023, 6755399441055744.0]
    x = np.array(worst + [-w for w in worst])
    check(name, x, run(name, "float64", target, x), exact(EXACT[name], x))
    multiples = np.arange(1, 45000) * (math.pi / 2)
    x = np.unique(multiples.astype(np.float32))
    x = np.concatenate([x, np.array([16367173 * 2.0**72, 3.0e38, 71476.0, 71477.0, 1e5, -1e10], np.float32)])
    check(name, x, run(name, "float32", target, x), NUMPY[name](x.astype(np.float64)))


NAN, INF = math.nan, math.inf
#: name -> (argument, result), after C99 Annex F
SPECIAL: dict[str, tuple[tuple[float, float], ...]] = {
    "acos": ((1, 0.0), (2, NAN), (INF, NAN), (NAN, NAN)),
    "acosh": ((1, 0.0), (0.5, NAN), (-1, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "asin": ((0.0, 0.0), (-0.0, -0.0), (-1.5, NAN), (INF, NAN), (NAN, NAN)),
    "asinh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)),
    "atan": ((0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN)),
    "atanh": ((0.0, 0.0), (-0.0, -0.0), (1, INF), (-1, -INF), (2, NAN), (INF, NAN), (NAN, NAN)),
    "cbrt": ((0.0, 0.0), (-0.0, -0.0), (27, 3.0), (-8, -2.0), (INF, INF), (-INF, -INF), (NAN, NAN)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
    "digamma": ((0.0, -INF), (-0.0, INF), (-1, NAN), (-7, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "erfinv": ((0.0, 0.0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (-2, NAN), (INF, NAN), (NAN, NAN)),
    "lgamma": ((0.0, INF), (-0.0, INF), (1, 0.0), (2, 0.0), (-1, INF), (-9, INF), (INF, INF), (-INF, INF),
               (3, math.log(2)), (NAN, NAN)),
    "logit": ((0.0, -INF), (-0.0, -INF), (0.5, 0.0), (1, INF), (1.5, NAN), (-1, NAN), (INF, NAN), (NAN, NAN)),
    "cosh": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (1e4, INF), (NAN, NAN)),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (30, 1.0), (NAN, NAN)),
    "erfc": ((0.0, 1.0), (INF, 0.0), (-INF, 2.0), (40, 0.0), (NAN, NAN)),
    "exp": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0), (NAN, NAN)),
    "exp2": ((0.0, 1.0), (3, 8.0), (INF, INF), (-INF, 0.0), (1e5, INF), (-1e5, 0.0), (NAN, NAN)),
    "expm1": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (NAN, NAN)),
    "log": ((1, 0.0), (0.0, -INF), (-0.0, -INF), (-1, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "log10": ((1, 0.0), (1000, 3.0), (0.0, -INF), (-1, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "log1p": ((0.0, 0.0), (-0.0, -0.0), (-1, -INF), (-2, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "log2": ((1, 0.0), (8, 3.0), (0.0, -INF), (-1, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)),
    "sigmoid": ((0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0), (-1e4, 0.0), (NAN, NAN)),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
    "sinh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e4, INF), (NAN, NAN)),
    "tan": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN)),
    "tanh": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e4, 1.0), (NAN, NAN)),
}


def assert_same(name: str, got: np.ndarray, wanted: np.ndarray, *arguments: Any) -> None:
    """Equal, with the sign of zeros."""
    same = (got == wanted) & (np.signbit(got) == np.signbit(wanted)) | (np.isnan(got) & np.isnan(wanted))
    wrong = int(np.argmin(same))
    assert same.all(), f"{name}{tuple(a[wrong] for a in arguments)} gave {got[wrong]}, not {wanted[wrong]}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str, dtype: str, target: str) -> None:
    x, wanted = np.array(SPECIAL[name], dtype).T
    assert_same(name, run(name, dtype, target, x), wanted, x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["asin", "asinh", "atan", "atanh", "expm1", "log1p", "sin", "sinh", "tan", "tanh"])
def test_subnormal_arguments(name: str, dtype: str, target: str) -> None:
    """These functions are the identity near 0."""
    tiny = float(np.finfo(dtype).smallest_subnormal)
    x = np.array([k * tiny for k in (1, 2, 3, 1000, -1, -7, -12345)], dtype)
    np.testing.assert_array_equal(run(name, dtype, target, x), x)


def pairs(values: list[float], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return x.ravel(), y.ravel()


EDGES = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, INF, -INF, NAN, 1e-40, -1e-40, 1e30, -1e30]
EDGES += [16777215.0, -16777217.0, 2.5]


def float64_samples(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = np.exp2(rng.uniform(-60, 60, count)) * rng.choice([-1, 1], count)
    return np.concatenate([rng.uniform(-4, 4, count), spread])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow(dtype: str, target: str) -> None:
    x, y = pairs(EDGES, dtype)
    wanted = np.array([c_pow(*v) for v in zip(x.tolist(), y.tolist(), strict=True)])
    got = run("pow", dtype, target, x, y)
    check("pow", list(zip(x, y, strict=True)), got, wanted.astype(np.longdouble))
    real = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[real], np.signbit(wanted)[real])
    whole = np.arange(-9.0, 10.0).astype(dtype)
    np.testing.assert_array_equal(run("pow", dtype, target, whole, np.full_like(whole, 3)), whole**3)

    rng = np.random.default_rng(3)
    base = np.exp2(rng.uniform(-100, 100, 1500)).astype(dtype)
    near_one = (1 + np.exp2(rng.uniform(-20, -1, 1500)) * rng.choice([-1, 1], 1500)).astype(dtype)
    x = np.concatenate([base, near_one, rng.uniform(0.1, 4, 1500).astype(dtype)])
    reach = 125 if dtype == "float32" else 1000
    y = (rng.uniform(-reach, reach, x.size) / np.maximum(np.abs(np.log2(x.astype(np.float64))), 1e-6)).astype(dtype)
    check("pow", list(zip(x, y, strict=True)), run("pow", dtype, target, x, y), exact(mpmath.power, x, y))


def c_pow(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(INF, x) if y == math.trunc(y) and y % 2 else INF
    except ValueError:  # 0 to a negative power, or a negative number to a fraction
        if x == 0:
            return math.copysign(INF, x) if y % 2 == 1 else INF
        return NAN


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_atan2(dtype: str, target: str) -> None:
    y, x = pairs(EDGES, dtype)
    got, wanted = run("atan2", dtype, target, y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64))
    check("atan2", list(zip(y, x, strict=True)), got, wanted.astype(np.longdouble))
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(wanted)[~np.isnan(got)])
    y, x = float64_samples(800, 1).astype(dtype), float64_samples(800, 2)[::-1].astype(dtype)
    check("atan2", list(zip(y, x, strict=True)), run("atan2", dtype, target, y, x), exact(mpmath.atan2, y, x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
def test_division_with_remainder(name: str, dtype: str, target: str) -> None:
    """Exactly NumPy's, for quotients of every size."""
    x, y = pairs(EDGES, dtype)
    reference = np.remainder if name == "remainder" else np.floor_divide
    x = np.concatenate([x, float64_samples(4000, 1).astype(dtype), np.arange(-500, 500).astype(dtype)])
    y = np.concatenate([y, float64_samples(4000, 2)[::-1].astype(dtype), np.tile(np.arange(1, 11), 100).astype(dtype)])
    assert_same(name, run(name, dtype, target, x, y), reference(x, y), x, y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_of_negative_numbers(name: str, target: str) -> None:
    """Exact but for the digits that cancel near a zero, of which there is one between any two poles."""
    rng = np.random.default_rng(4)
    x = -np.concatenate([rng.uniform(0, 6, 150), rng.uniform(6, 60, 50), np.exp2(rng.uniform(-40, 0, 30))])
    f = (lambda v: mpmath.log(abs(mpmath.gamma(v)))) if name == "lgamma" else mpmath.digamma
    wanted = exact(f, x)
    error = np.abs(run(name, "float64", target, x).astype(np.longdouble) - wanted)
    assert np.max(error / np.maximum(np.abs(wanted), 1)) < (2.3e-16 if name == "lgamma" else 1.5e-15)


def run_of_order(name: str, order: int, dtype: str, target: str, x: np.ndarray) -> np.ndarray:
    return compiled(target, (dtype,), dtype, lambda b, args: emit(b, name, dtype, (dtype,), args, (order,)))(x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", [1, 2, 3, 20])
def test_polygamma(order: int, target: str) -> None:
    """A few ulp for small orders; each factor of the powers of large ones adds half of one."""
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(0, 20, 40), np.exp2(rng.uniform(-20, 20, 20)), -rng.uniform(0, 9, 15)])
    wanted = exact(lambda v: mpmath.polygamma(order, v), x)
    got = run_of_order("polygamma", order, "float64", target, x)
    error = np.where(x > 0, ulps(got, wanted), 0)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND["polygamma"] + order / 2, x[worst]
    # Of negative numbers two sides cancel at odd orders of the power.
    scale = math.factorial(order) * 2.0 ** (order + 1)
    np.testing.assert_allclose(got[x < 0].astype(float), wanted[x < 0].astype(float), rtol=1e-15 * (order + 3),
                               atol=1e-15 * scale)
    single = run_of_order("polygamma", order, "float32", target, x[x > 1.0].astype(np.float32))
    wanted = exact(lambda v: mpmath.polygamma(order, v), x[x > 1.0].astype(np.float32))
    small = np.abs(wanted) < 1e-37
    assert np.max(np.where(small, 0, ulps(single, wanted))) <= 1
    poles = np.array([0.0, -0.0, -1, -5, INF, -INF, NAN])
    pole = INF if order % 2 else -INF
    np.testing.assert_array_equal(
        run_of_order("polygamma", order, "float64", target, poles), [pole] * 4 + [0, pole, NAN]
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", [0, 1, 2, 3, 6])
def test_sinc(order: int, target: str) -> None:
    """In units of the derivative's scale pi**order / (order + 1), its size at 0; of order 0 in ulp as well."""
    def exactly(x: Any) -> Any:
        """By the recurrence, with digits to spare for what it cancels near 0."""
        if x == 0:
            return (-1) ** (order // 2) * mpmath.pi**order / (order + 1) if order % 2 == 0 else mpmath.mpf(0)
        with mpmath.workdps(40 + order * 14):
            value, z = mpmath.sincpi(x), mpmath.pi * x
            for k in range(1, order + 1):
                value = (mpmath.sin(z + k * mpmath.pi / 2) - k * value) / z
            return value * mpmath.pi**order

    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(-6, 6, 40), np.exp2(rng.uniform(-40, 0, 10)), [0.0, 0.5, -1.5, 2.0]])
    wanted = exact(exactly, x)
    got = run_of_order("sinc", order, "float64", target, x)
    scale = math.pi**order / (order + 1)
    assert np.max(np.abs(got - wanted)) < 1.5e-15 * scale
    if order == 0:
        check("sinc", x[wanted != 0], got[wanted != 0], wanted[wanted != 0])
        np.testing.assert_array_equal(got[wanted == 0], 0)
        special = run_of_order("sinc", 0, "float64", target, np.array([0.0, 1e15, 1e308, 3.0, INF, NAN]))
        np.testing.assert_array_equal(special, [1, 0, 0, 0, NAN, NAN])
    single = run_of_order("sinc", order, "float32", target, x.astype(np.float32))
    assert np.max(np.abs(single - exact(exactly, x.astype(np.float32)))) < 1.2e-7 * scale * (order + 1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["hypot", "logaddexp", "logaddexp2"])
def test_pairs(name: str, target: str) -> None:
    f = {
        "hypot": lambda x, y: mpmath.sqrt(x * x + y * y),
        "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
        "logaddexp2": lambda x, y: mpmath.log(mpmath.mpf(2) ** x + mpmath.mpf(2) ** y, 2),
    }[name]
    for dtype in ("float32", "float64"):
        rng = np.random.default_rng(8)
        if name == "hypot":
            reach = 37 if dtype == "float32" else 306
            x = (10 ** rng.uniform(-reach, reach, 300)).astype(dtype)
            x, y = np.concatenate([x, x]), np.concatenate([x * rng.uniform(0.1, 9, 300), x[::-1]]).astype(dtype)
        else:  # positive, since the result of two negative numbers may be near 0
            x, y = rng.uniform(0, 30, (2, 300)).astype(dtype)
        check(name, list(zip(x, y, strict=True)), run(name, dtype, target, x, y), exact(f, x, y))
        x, y = pairs([0.0, -0.0, 1, -2.5, 1e30, INF, -INF, NAN], dtype)
        wanted = getattr(np, name)(x.astype(np.float64), y.astype(np.float64))
        np.testing.assert_allclose(run(name, dtype, target, x, y), wanted.astype(dtype), rtol=3e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", TARGETS)
def test_exp2_or_zero_is_exp2_without_subnormals(target, dtype):
    kernel = compiled(target, (dtype,), dtype, lambda b, args: exp2_or_zero(b, args[0]))
    info = np.finfo(dtype)
    least = float(np.log2(info.tiny))
    x = np.random.default_rng(0).uniform(least, 1.0, 10000).astype(dtype)
    x[5000:] = np.random.default_rng(1).uniform(-3.0, 0.0, 5000)
    x[:3] = 0.0, -0.0, 1e-30
    want = np.exp2(x.astype(np.longdouble))
    error = np.abs(kernel(x) - want) / np.spacing(want.astype(dtype))
    assert error.max() <= 2.5
    np.testing.assert_array_equal(kernel(np.arange(least, 1, dtype=dtype)), np.exp2(np.arange(least, 1, dtype=dtype)))
    ends = np.array([-np.inf, info.min, 2 * least, least - 1, np.nan], dtype)
    np.testing.assert_array_equal(kernel(ends), np.array([0, 0, 0, 0, np.nan], dtype))
