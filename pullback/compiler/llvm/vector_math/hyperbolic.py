"""The logistic and hyperbolic functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..builder import VectorBuilder
from ..values import Value
from .double_word import Pair, quick_two_sum, two_product, two_sum
from .exp_log import (
    EXP,
    EXP_SHORT,
    EXPM1_SHORT,
    LN2_HIGH,
    LN2_LOW,
    clamp,
    expm1_reduced,
    log1p,
    reduce_exp,
    scaled_exp,
)
from .scaling import FORMATS, half_powers, power_of_two

#: from here on tanh rounds to 1
_TANH_ONE = {"f32": 9.02, "f64": 19.1}
#: beyond, sigmoid is 0 or 1
_SIGMOID_RANGE = {"f32": 104.0, "f64": 746.0}
#: beyond, sinh and cosh are infinite
_SINH_RANGE = {"f32": 90.0, "f64": 711.0}
#: (sinh(x) - x) / x**3 as a polynomial of x**2, |x| <= 1
_SINH = {
    "f32": (0.16666667, 0.0083333105, 0.00019842896, 2.7822132e-06),
    "f64": (
        0.16666666666666669, 0.008333333333332912, 0.0001984126984159341, 2.755731910675638e-06, 2.5052130998813605e-08,
        1.6056659158841526e-10, 7.776600402556083e-13,
    ),
}  # fmt: skip
#: beyond, asinh(x) is log(2x)
_HUGE = 2.0**60


def tanh(b: VectorBuilder, x: Value) -> Value:
    """With E = exp(-2|x|), tanh|x| = (1-E) / (1+E), numerator and denominator each rounded once.

    A negative exponent keeps the denominator in [1, 2], where its rounding costs least.
    """
    dtype = x.dtype
    form = FORMATS[dtype]
    size = b.fmin(b.const(_TANH_ONE[dtype], dtype), b.abs(x))
    # Reduced in units of x: -2|x| = n*log(2) - 2r. The bias in the constant makes the low bits 2**n's exponent field.
    magic = b.const(form.magic + form.bias, dtype)
    shifted = b.fma(size, b.const(-2 * math.log2(math.e), dtype), magic)
    n = b.sub(shifted, magic)
    if dtype == "f32" and b.target.has_fma:
        # |n| is at most 26 and the result insensitive where it is large: log(2) needs no second part.
        r = b.fma(n, b.const(math.log(2) / 2, dtype), size)
        square = b.mul(r, r)
        e = b.fma(b.polynomial(r, _mirrored(EXPM1_SHORT), square), square, b.add(r, r))  # 1 - exp(-2r)
    else:
        high = b.fma(n, b.const(LN2_HIGH[dtype] / 2, dtype), size)  # exact
        r = b.fma(n, b.const(LN2_LOW[dtype] / 2, dtype), high)
        low = b.mul(n, b.const(LN2_LOW[dtype], dtype))
        e = b.add(b.add(high, high), b.fma(b.polynomial(r, _mirrored(EXP[dtype])), b.mul(r, r), low))
    s, one = power_of_two(b, shifted), b.const(1, dtype)
    product = b.mul(s, e)  # exact: the sums round once, and adders are idler than multipliers
    numerator, denominator = b.add(b.sub(one, s), product), b.sub(b.add(one, s), product)
    sign = b.and_(b.bits(x), b.const(-1 << (form.mantissa + {"f32": 8, "f64": 11}[dtype]), form.integer))
    return b.bitcast(b.or_(b.bits(b.fdiv(numerator, denominator)), sign), dtype)


def _mirrored(table: tuple[float, ...]) -> tuple[float, ...]:
    """Of the polynomial q(x), that of -4*q(-2x)."""
    return tuple(-4 * c * (-2.0) ** k for k, c in enumerate(table))


def sigmoid(b: VectorBuilder, x: Value) -> Value:
    """exp(x) / (exp(x) + 1). With exp(x) = e * 2**n and n = g + h this is e*2**g / (e*2**g + 2**-h), which neither
    overflows nor loses a subnormal result."""
    dtype = x.dtype
    bound = _SIGMOID_RANGE[dtype]
    reduced = reduce_exp(b, clamp(b, x, -bound, bound), careful=True)
    e = expm1_reduced(b, reduced, EXP_SHORT)
    if b.target.has_fma:
        # Both scaled by 1.5, which lets the denominator's rounding cost less where it is near a power of two.
        g, h = half_powers(b, reduced.shifted, mantissa=1.5)
        numerator = b.fma(e, g, g)
        return b.fdiv(numerator, b.add(numerator, h))
    one = b.const(1, dtype)
    g, inverse = half_powers(b, reduced.shifted)
    numerator = b.mul(b.add(e, one), g)
    denominator = two_sum(b, numerator, b.fdiv(one, inverse))
    quotient = b.fdiv(numerator, denominator.high)
    return b.sub(quotient, b.mul(quotient, b.fdiv(denominator.low, denominator.high)))


def _half_exp(b: VectorBuilder, size: Value) -> Value:
    """exp(size) / 2, size >= 0."""
    dtype = size.dtype
    reduced = reduce_exp(b, b.fmin(b.const(_SINH_RANGE[dtype], dtype), size))
    one = b.const(1, dtype)
    return scaled_exp(b, expm1_reduced(b, reduced), b.sub(reduced.n, one), b.sub(reduced.shifted, one))


def sinh(b: VectorBuilder, x: Value) -> Value:
    """A polynomial up to 1, then exp(|x|)/2 - exp(-|x|)/2."""
    dtype = x.dtype
    size = b.abs(x)
    half = _half_exp(b, size)
    large = b.sub(half, b.fdiv(b.const(0.25, dtype), half))
    z = b.mul(size, size)
    small = b.fma(b.mul(size, z), b.polynomial(z, _SINH[dtype]), size)
    return b.copysign(b.select(b.cmp("lt", size, b.const(1, dtype)), small, large), x)


def cosh(b: VectorBuilder, x: Value) -> Value:
    half = _half_exp(b, b.abs(x))
    return b.add(half, b.fdiv(b.const(0.25, x.dtype), half))


def in_double(function: Callable[[VectorBuilder, Value], Value]) -> Callable[[VectorBuilder, Value], Value]:
    """f32 by way of f64: for rarely used functions, whose own reduction would lose bits."""

    def call(b: VectorBuilder, x: Value) -> Value:
        return b.cast(function(b, b.cast(x, "f64")), "f32") if x.dtype == "f32" else function(b, x)

    return call


@in_double
def asinh(b: VectorBuilder, x: Value) -> Value:
    """log1p(|x| + x**2 / (1 + sqrt(1 + x**2)))."""
    size, one = b.abs(x), b.const(1, x.dtype)
    huge = b.cmp("gt", size, b.const(_HUGE, x.dtype))
    square = b.mul(size, size)
    t = quick_two_sum(b, size, b.fdiv(square, b.add(one, b.sqrt(b.add(square, one)))))
    return b.copysign(_log1p_or_double(b, t, size, huge), x)


@in_double
def acosh(b: VectorBuilder, x: Value) -> Value:
    """With t = x-1, log1p(t + sqrt(2t + t**2)); NaN below 1."""
    one = b.const(1, x.dtype)
    huge = b.cmp("gt", x, b.const(_HUGE, x.dtype))
    t = b.sub(x, one)
    double, square = b.add(t, t), two_product(b, t, t)
    under = quick_two_sum(b, double, square.high)
    root = b.sqrt(under.high)
    again = two_product(b, root, root)
    rest = b.add(b.sub(b.sub(under.high, again.high), again.low), b.add(under.low, square.low))
    inner = quick_two_sum(b, root, t)
    correction = b.select(b.cmp("gt", root, b.const(0, x.dtype)), b.fdiv(rest, b.add(root, root)), inner.low)
    inner = Pair(inner.high, b.add(inner.low, correction))
    result = _log1p_or_double(b, inner, x, huge)
    return b.select(b.cmp("ge", x, one), result, b.const(math.nan, x.dtype))


def _log1p_or_double(b: VectorBuilder, t: Pair, size: Value, huge: Value) -> Value:
    """log1p(t), or log(2*size) where huge."""
    zero = b.const(0, size.dtype)
    extra = b.select(huge, b.const(math.log(2), size.dtype), zero)
    return b.add(log1p(b, b.select(huge, size, t.high), b.select(huge, zero, t.low)), extra)


@in_double
def atanh(b: VectorBuilder, x: Value) -> Value:
    """log1p(2|x| / (1-|x|)) / 2, as |x| + ... below 1/2, where that loses no bits."""
    dtype = x.dtype
    size, one = b.abs(x), b.const(1, dtype)
    double = b.add(size, size)
    small = b.cmp("lt", size, b.const(0.5, dtype))
    ratio = b.fdiv(b.select(small, b.mul(double, size), double), b.sub(one, size))
    t = b.select(small, b.add(double, ratio), ratio)
    return b.copysign(b.mul(b.const(0.5, dtype), log1p(b, t)), x)
