"""Exponentials and logarithms."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .scaling import FORMATS, power_of_two, split_exponent, times_power_of_two

#: (exp(r) - 1 - r) / r**2 on |r| <= log(2)/2
_EXP = {
    "f32": (0.5, 0.16666636, 0.04166651, 0.008341511, 0.0013930545, 0.00015045205),
    "f64": (
        0.5, 0.16666666666666677, 0.041666666666666685, 0.008333333333321839, 0.0013888888888875,
        0.0001984126988584865, 2.4801587336212982e-05, 2.7557244029969933e-06, 2.7557272501474797e-07,
        2.5109251323346017e-08, 2.0912542499103525e-09,
    ),
}  # fmt: skip
#: the same, where 1 is added at once and fewer bits suffice
_EXP_SHORT = {"f32": (0.5, 0.16666515, 0.041666582, 0.008369309, 0.0013921952), "f64": _EXP["f64"]}
#: (2**r - 1) / r on |r| <= 1/2
_EXP2 = {
    "f32": (0.6931472, 0.2402265, 0.05550406, 0.009618086, 0.0013336609, 0.00015452773, 1.4698153e-05),
}
#: log(2) = high + low, where n * high is exact for every exponent n
LN2_HIGH = {"f32": 0.693359375, "f64": 6.93147180369123816490e-01}
LN2_LOW = {"f32": -2.12194440e-4, "f64": 1.90821492927058770002e-10}
#: arguments beyond which exp is surely 0 or infinite
_EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
#: (log(1+f) - f) / f**2 on sqrt(1/2) <= 1+f <= sqrt(2)
_LOG_F32 = (
    -0.5, 0.33333313, -0.25000015, 0.2000203, -0.16667394, 0.1422087, -0.12418111, 0.11892958, -0.11602938, 0.06643663,
)  # fmt: skip
#: (log(1+f) - 2s) / s**3 as a polynomial of s**2, s = f/(2+f)
_LOG_F64 = (
    0.6666666666666734, 0.39999999999417046, 0.2857142874189227, 0.22222198621703027, 0.18183561899658712,
    0.15314110599967187, 0.14795366452609096,
)  # fmt: skip
_SQRT_HALF = 0.70710678


def clamp(b: VectorBuilder, x: Value, low: float, high: float) -> Value:
    """x within the bounds; NaN stays."""
    return b.fmax(b.const(low, x.dtype), b.fmin(b.const(high, x.dtype), x))


def reduce_exp(b: VectorBuilder, x: Value, low: Value | None = None) -> tuple[Value, Value]:
    """(r, n): x = n*log(2) + r, |r| <= log(2)/2, n integral."""
    magic = b.const(FORMATS[x.dtype].magic, x.dtype)
    n = b.sub(b.fma(x, b.const(math.log2(math.e), x.dtype), magic), magic)
    r = b.fma(n, b.const(-LN2_HIGH[x.dtype], x.dtype), x)
    r = b.fma(n, b.const(-LN2_LOW[x.dtype], x.dtype), r)
    return (r if low is None else b.add(r, low)), n


def exp(b: VectorBuilder, x: Value) -> Value:
    r, n = reduce_exp(b, clamp(b, x, *_EXP_RANGE[x.dtype]))
    e = b.fma(b.polynomial(r, _EXP_SHORT[x.dtype]), b.mul(r, r), r)
    return times_power_of_two(b, b.add(e, b.const(1, x.dtype)), n)


def expm1_reduced(b: VectorBuilder, r: Value) -> Value:
    """exp(r) - 1 for |r| <= log(2)/2."""
    return b.fma(b.polynomial(r, _EXP[r.dtype]), b.mul(r, r), r)


def log(b: VectorBuilder, x: Value) -> Value:
    f, n = split_log(b, x)
    if x.dtype == "f32":
        r = b.fma(b.polynomial(f, _LOG_F32), b.mul(f, f), f)
        result = b.fma(n, b.const(math.log(2), "f32"), r)
    else:
        result = _log_f64(b, f, n)
    return log_special(b, x, result)


def split_log(b: VectorBuilder, x: Value) -> tuple[Value, Value]:
    """(f, n): x = 2**n * (1+f), sqrt(1/2) <= 1+f < sqrt(2)."""
    split = split_exponent(b, x, _SQRT_HALF)
    return b.sub(split.mantissa, b.const(1, x.dtype)), split.exponent


def _log_f64(b: VectorBuilder, f: Value, n: Value) -> Value:
    """n*log(2) + log(1+f), as in FreeBSD's e_log.c."""
    s = b.fdiv(f, b.add(b.const(2, "f64"), f))
    z = b.mul(s, s)
    rest = b.mul(z, b.polynomial(z, _LOG_F64))
    half = b.mul(b.mul(f, b.const(0.5, "f64")), f)
    low = b.fma(s, b.add(half, rest), b.mul(n, b.const(LN2_LOW["f64"], "f64")))
    return b.fma(n, b.const(LN2_HIGH["f64"], "f64"), b.sub(f, b.sub(half, low)))


def log_special(b: VectorBuilder, x: Value, result: Value) -> Value:
    """A logarithm's value for 0, negative numbers, infinity and NaN put where they belong."""
    infinity = b.const(math.inf, x.dtype)
    result = b.select(b.cmp("eq", x, infinity), infinity, result)
    pole = b.select(b.cmp("eq", x, b.const(0, x.dtype)), b.const(-math.inf, x.dtype), b.const(math.nan, x.dtype))
    return b.select(b.cmp("gt", x, b.const(0, x.dtype)), result, pole)
