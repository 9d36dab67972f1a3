"""Exponentials and logarithms."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..builder import VectorBuilder
from ..values import Value
from .double_word import two_product
from .scaling import FORMATS, half_powers, has_scalef, power_of_two, scalef, split_exponent

#: (exp(r) - 1 - r) / r**2 on |r| <= log(2)/2
EXP = {
    "f32": (0.5, 0.16666636, 0.04166651, 0.008341511, 0.0013930545, 0.00015045205),
    "f64": (
        0.5, 0.16666666666666677, 0.041666666666666685, 0.008333333333321839, 0.0013888888888875,
        0.0001984126988584865, 2.4801587336212982e-05, 2.7557244029969933e-06, 2.7557272501474797e-07,
        2.5109251323346017e-08, 2.0912542499103525e-09,
    ),
}  # fmt: skip
#: the same, for results that need fewer of its bits
EXP_SHORT = {"f32": (0.5, 0.16666515, 0.041666582, 0.008369309, 0.0013921952), "f64": EXP["f64"]}
#: (2**r - 1) / r on |r| <= 1/2, with the error relative to 2**r
EXP2_SHORT = {
    "f32": (0.693147, 0.24022242, 0.055507336, 0.009671513, 0.0013264727),
    "f64": (
        0.6931471805599457, 0.24022650695910097, 0.05550410866479039, 0.009618129107607004, 0.001333355815344078,
        0.00015403530441570132, 1.525272738439033e-05, 1.321544267641943e-06, 1.0180647993977725e-07,
        7.0725702154847336e-09, 4.0780220772597157e-10,
    ),
}  # fmt: skip
#: (exp(r) - 1 - r) / r**2 in f32, with the error relative to exp(r) - 1
EXPM1_SHORT = (0.49999997, 0.16666539, 0.04166775, 0.008367088, 0.0013837861)
#: log(2) = high + low, where n * high is exact for every exponent n
LN2_HIGH = {"f32": 0.693359375, "f64": 6.93147180369123816490e-01}
LN2_LOW = {"f32": -2.12194440e-4, "f64": 1.90821492927058770002e-10}
#: arguments beyond which exp is surely 0 or infinite
EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
#: arguments below which expm1 is -1
_EXPM1_LOW = {"f32": -18.0, "f64": -40.0}
#: log10(2) = high + low, split as LN2
_LOG10_2 = {
    "f32": (3.0102920532e-01, 7.9034151668e-07),
    "f64": (3.01029995663611771306e-01, 3.69423907715893078616e-13),
}
#: log2(e) and log10(e) = high + low
LOG2_E = {"f32": (1.4426950216293335, 1.925963033500011e-08), "f64": (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10_E = {"f32": (0.4342944920063019, -1.0103049952192578e-08), "f64": (0.4342944819032518, 1.098319650216765e-17)}
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


class ReducedExp(NamedTuple):
    """x = n*log(2) + r, |r| <= log(2)/2, n integral.

    shifted: n + magic + 2*bias, see ``half_powers``.
    parts: None, or r before it was rounded, as the sum of two.
    """

    r: Value
    n: Value
    shifted: Value
    parts: tuple[Value, Value] | None = None


def reduce_exp(b: VectorBuilder, x: Value, low: Value | None = None, careful: bool = False) -> ReducedExp:
    """Of x, or x + low; ``careful``: so that ``expm1_reduced`` does without r's rounding."""
    dtype = x.dtype
    form = FORMATS[dtype]
    magic = b.const(form.magic + 2 * form.bias, dtype)
    shifted = b.fma(x, b.const(math.log2(math.e), dtype), magic)
    n = b.sub(shifted, magic)
    high = b.fma(n, b.const(-LN2_HIGH[dtype], dtype), x)  # exact
    less = b.const(-LN2_LOW[dtype], dtype)
    if careful:
        rest = b.mul(n, less)
        return ReducedExp(b.add(high, rest), n, shifted, (high, rest))
    r = b.fma(n, less, high)
    return ReducedExp(r if low is None else b.add(r, low), n, shifted)


def expm1_reduced(b: VectorBuilder, reduced: ReducedExp, table: dict[str, tuple[float, ...]] | None = None) -> Value:
    """exp(r) - 1."""
    r, parts = reduced.r, reduced.parts
    square = b.mul(r, r)
    polynomial = b.polynomial(r, (table or EXP)[r.dtype], square)
    if parts is None:
        return b.fma(polynomial, square, r)
    return b.add(parts[0], b.fma(polynomial, square, parts[1]))


def scaled_exp(b: VectorBuilder, e: Value, n: Value, shifted: Value) -> Value:
    """(1+e) * 2**n, subnormal or infinite where it must be."""
    one = b.const(1, e.dtype)
    if has_scalef(b, e.dtype):
        return scalef(b, b.add(e, one), n)
    low, high = half_powers(b, shifted)
    return b.mul(b.fma(e, low, low) if b.target.has_fma else b.mul(b.add(e, one), low), high)


def exp(b: VectorBuilder, x: Value) -> Value:
    reduced = reduce_exp(b, clamp(b, x, *EXP_RANGE[x.dtype]))
    return scaled_exp(b, expm1_reduced(b, reduced, EXP_SHORT), reduced.n, reduced.shifted)


def exp2_or_zero(b: VectorBuilder, x: Value) -> Value:
    """2**x where it is a normal number, and 0 where it would be smaller; x is below 127. Cheap, and off by at most 2.5
    units in the last place."""
    form = FORMATS[x.dtype]
    magic, one = b.const(form.magic + form.bias, x.dtype), b.const(1, x.dtype)
    x = b.fmax(b.const(-form.bias, x.dtype), x)  # where the power of two is 0
    shifted = b.add(x, magic)
    r = b.sub(x, b.sub(shifted, magic))
    value = b.fma(b.polynomial(r, EXP2_SHORT[x.dtype], b.mul(r, r)), r, one)
    return b.mul(value, power_of_two(b, shifted))


def reduce_exp2(b: VectorBuilder, x: Value, low: Value | None = None) -> ReducedExp:
    """Of x, or x + low, times log(2)."""
    dtype = x.dtype
    form = FORMATS[dtype]
    bound = float(form.bias + form.mantissa + 2)
    x = clamp(b, x, -bound, bound)
    shifted = b.add(x, b.const(form.magic + 2 * form.bias, dtype))
    n = b.sub(shifted, b.const(form.magic + 2 * form.bias, dtype))
    r = b.sub(x, n)
    return ReducedExp(b.mul(r if low is None else b.add(r, low), b.const(math.log(2), dtype)), n, shifted)


def exp2(b: VectorBuilder, x: Value) -> Value:
    reduced = reduce_exp2(b, x)
    return scaled_exp(b, expm1_reduced(b, reduced, EXP_SHORT), reduced.n, reduced.shifted)


def expm1(b: VectorBuilder, x: Value) -> Value:
    """2**n * (exp(r) - 1) + (2**n - 1)."""
    dtype = x.dtype
    form = FORMATS[dtype]
    x_in_range = clamp(b, x, _EXPM1_LOW[dtype], EXP_RANGE[dtype][1])
    reduced = reduce_exp(b, x_in_range, careful=dtype == "f64" or not b.target.has_fma)
    e, n, one = expm1_reduced(b, reduced), reduced.n, b.const(1, dtype)
    last = b.cmp("gt", n, b.const(form.bias, dtype))  # the only n whose power of two overflows
    n = b.fmin(b.const(form.bias, dtype), n)
    s = power_of_two(b, b.add(n, b.const(form.magic + form.bias, dtype)))
    result = b.mul(b.fma(s, e, b.sub(s, one)), b.select(last, b.const(2, dtype), one))
    return b.select(b.cmp("eq", x, b.const(0, dtype)), x, result)


def log(b: VectorBuilder, x: Value) -> Value:
    f, n = split_log(b, x)
    return log_special(b, x, _log_near_one(b, f, n))


def log1p(b: VectorBuilder, x: Value, low: Value | None = None) -> Value:
    """log of 1+x, corrected for what rounding 1+x lost; of 1+x+low if low is given."""
    dtype = x.dtype
    form = FORMATS[dtype]
    u = b.add(b.const(1, dtype), x)
    lost = b.sub(x, b.sub(u, b.const(1, dtype)))
    if low is not None:
        lost = b.add(lost, low)
    split = split_exponent(b, u, _SQRT_HALF)
    n = split.exponent
    # u >= 2**-53, so 2**-n is a normal number unless u is huge, where nothing was lost.
    moderate = b.fmin(b.const(form.bias - 1, dtype), n)
    down = power_of_two(b, b.sub(b.const(form.magic + form.bias, dtype), moderate))
    f = b.fma(lost, down, b.sub(split.mantissa, b.const(1, dtype)))
    result = log_special(b, u, _log_near_one(b, f, n))
    return b.select(b.cmp("eq", x, b.const(0, dtype)), x, result)


def log2(b: VectorBuilder, x: Value) -> Value:
    f, n = split_log(b, x)
    return log_special(b, x, b.add(n, _scaled_log(b, f, None, *LOG2_E[x.dtype])))


def log10(b: VectorBuilder, x: Value) -> Value:
    dtype = x.dtype
    f, n = split_log(b, x)
    high, low = _LOG10_2[dtype]
    near_one = _scaled_log(b, f, b.mul(n, b.const(low, dtype)), *_LOG10_E[dtype])
    return log_special(b, x, b.fma(n, b.const(high, dtype), near_one))


def _scaled_log(b: VectorBuilder, f: Value, more: Value | None, high: float, low: float) -> Value:
    """(high + low) * log(1+f), plus ``more``."""
    dtype = f.dtype
    rest = b.mul(log_rest(b, f), b.const(high, dtype))
    rest = b.fma(f, b.const(low, dtype), rest if more is None else b.add(rest, more))
    if b.target.has_fma:
        return b.fma(f, b.const(high, dtype), rest)
    product = two_product(b, f, b.const(high, dtype))
    return b.add(product.high, b.add(product.low, rest))


def _log_near_one(b: VectorBuilder, f: Value, n: Value) -> Value:
    """log(1+f) + n*log(2)."""
    if f.dtype == "f32":
        square = b.mul(f, f)
        r = b.fma(b.polynomial(f, _LOG_F32, square), square, f)
        return b.fma(n, b.const(math.log(2), "f32"), r)
    rest = b.fma(n, b.const(LN2_LOW["f64"], "f64"), log_rest(b, f))
    return b.fma(n, b.const(LN2_HIGH["f64"], "f64"), b.add(f, rest))


def log_rest(b: VectorBuilder, f: Value) -> Value:
    """log(1+f) - f. For f64 as in FreeBSD's e_log.c."""
    if f.dtype == "f32":
        square = b.mul(f, f)
        return b.mul(b.polynomial(f, _LOG_F32, square), square)
    s = b.fdiv(f, b.add(b.const(2, "f64"), f))
    z = b.mul(s, s)
    half = b.mul(b.mul(f, b.const(0.5, "f64")), f)
    return b.sub(b.mul(s, b.fma(z, b.polynomial(z, _LOG_F64, b.mul(z, z)), half)), half)


def split_log(b: VectorBuilder, x: Value) -> tuple[Value, Value]:
    """(f, n): x = 2**n * (1+f), sqrt(1/2) <= 1+f < sqrt(2)."""
    split = split_exponent(b, x, _SQRT_HALF)
    return b.sub(split.mantissa, b.const(1, x.dtype)), split.exponent


def log_special(b: VectorBuilder, x: Value, result: Value) -> Value:
    """A logarithm's value for 0, negative numbers, infinity and NaN put where they belong."""
    infinity = b.const(math.inf, x.dtype)
    result = b.select(b.cmp("eq", x, infinity), infinity, result)
    pole = b.select(b.cmp("eq", x, b.const(0, x.dtype)), b.const(-math.inf, x.dtype), b.const(math.nan, x.dtype))
    return b.select(b.cmp("gt", x, b.const(0, x.dtype)), result, pole)
