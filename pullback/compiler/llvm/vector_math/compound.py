"""Functions of several steps whose intermediate results would overflow or cancel: hypot, logaddexp, logit, sinc."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..builder import VectorBuilder
from ..values import Value
from .double_word import Pair, divide_pairs, quick_two_sum, two_product, two_sum
from .exp_log import (
    EXP_RANGE,
    EXP_SHORT,
    LOG2_E,
    ReducedExp,
    clamp,
    expm1_reduced,
    log,
    log1p,
    reduce_exp,
    reduce_exp2,
    scaled_exp,
)
from .hyperbolic import in_double
from .trigonometric import half_turn

#: beyond these sizes squares overflow or lose bits, and are scaled by the power of two first
_HYPOT_LARGE, _HYPOT_SMALL, _HYPOT_SCALE = 2.0**510, 2.0**-450, 2.0**600

#: what rounding pi lost
_PI_LOW = 1.2246467991473532e-16


def _pair_in_double(
    function: Callable[[VectorBuilder, Value, Value], Value],
) -> Callable[[VectorBuilder, Value, Value], Value]:
    """f32 by way of f64."""

    def call(b: VectorBuilder, x: Value, y: Value) -> Value:
        if x.dtype != "f32":
            return function(b, x, y)
        return b.cast(function(b, b.cast(x, "f64"), b.cast(y, "f64")), "f32")

    return call


@_pair_in_double
def hypot(b: VectorBuilder, x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2); infinite where either is, NaN or not."""
    x, y = b.abs(x), b.abs(y)
    largest = b.fmax(x, y)
    one = b.const(1, "f64")
    scale = b.select(b.cmp("lt", largest, b.const(_HYPOT_SMALL, "f64")), b.const(_HYPOT_SCALE, "f64"), one)
    back = b.select(b.cmp("lt", largest, b.const(_HYPOT_SMALL, "f64")), b.const(1 / _HYPOT_SCALE, "f64"), one)
    large = b.cmp("gt", largest, b.const(_HYPOT_LARGE, "f64"))
    scale = b.select(large, b.const(1 / _HYPOT_SCALE, "f64"), scale)
    back = b.select(large, b.const(_HYPOT_SCALE, "f64"), back)
    first, second = b.mul(x, scale), b.mul(y, scale)
    result = b.mul(b.sqrt(b.fma(first, first, b.mul(second, second))), back)
    infinity = b.const(math.inf, "f64")
    return b.select(b.or_(b.cmp("eq", x, infinity), b.cmp("eq", y, infinity)), infinity, result)


def _larger_and_gap(b: VectorBuilder, x: Value, y: Value) -> tuple[Value, Pair]:
    """max(x, y), and -|x-y| with what rounding it lost; 0 for two equal infinities."""
    larger, smaller = b.maximum(x, y, signed_zero=False), b.minimum(x, y, signed_zero=False)
    gap = two_sum(b, smaller, b.neg(larger))
    zero = b.const(0, x.dtype)
    finite = b.cmp("lt", b.abs(gap.high), b.const(math.inf, x.dtype))
    return larger, Pair(b.select(b.cmp("eq", x, y), zero, gap.high), b.select(finite, gap.low, zero))


def _log1p_exp(b: VectorBuilder, reduced: ReducedExp) -> Pair:
    """log(1 + exp); the low part is the share of what rounding the exponential lost."""
    one = b.const(1, "f64")
    e = expm1_reduced(b, reduced, EXP_SHORT)
    t = scaled_exp(b, e, reduced.n, reduced.shifted)
    rounded = b.add(one, e)
    lost = b.fdiv(b.add(b.sub(one, rounded), e), rounded)
    return Pair(log1p(b, t), b.fdiv(b.mul(t, lost), b.add(one, t)))


def _raised(b: VectorBuilder, larger: Value, by: Pair) -> Value:
    """larger + by, rounded once; an infinity or NaN stays."""
    total = two_sum(b, larger, by.high)
    finite = b.cmp("lt", b.abs(larger), b.const(math.inf, "f64"))
    return b.select(finite, b.add(total.high, b.add(total.low, by.low)), larger)


@_pair_in_double
def logaddexp(b: VectorBuilder, x: Value, y: Value) -> Value:
    """max(x, y) + log1p(exp(-|x-y|))."""
    larger, gap = _larger_and_gap(b, x, y)
    return _raised(b, larger, _log1p_exp(b, reduce_exp(b, clamp(b, gap.high, *EXP_RANGE["f64"]), gap.low)))


@_pair_in_double
def logaddexp2(b: VectorBuilder, x: Value, y: Value) -> Value:
    """max(x, y) + log2(1 + 2**-|x-y|)."""
    larger, gap = _larger_and_gap(b, x, y)
    near_one = _log1p_exp(b, reduce_exp2(b, gap.high, gap.low))
    high, low = (b.const(part, "f64") for part in LOG2_E["f64"])
    product = two_product(b, near_one.high, high)
    rest = b.fma(near_one.low, high, b.fma(near_one.high, low, product.low))
    return _raised(b, larger, Pair(product.high, rest))


@in_double
def logit(b: VectorBuilder, x: Value) -> Value:
    """log(x / (1-x)), where what rounding the quotient lost is put back, since it counts near 1/2."""
    zero, one = b.const(0, "f64"), b.const(1, "f64")
    ratio = divide_pairs(b, Pair(x, zero), quick_two_sum(b, one, b.neg(x)))
    # Below 2**-100 the remainder of the division underflows; there the quotient is x itself.
    usable = b.and_(b.cmp("gt", x, b.const(2.0**-100, "f64")), b.cmp("lt", x, one))
    correction = b.select(usable, b.fdiv(ratio.low, ratio.high), zero)
    return b.add(log(b, ratio.high), correction)


# -- sinc --------------------------------------------------------------------------------------------------------------


def sinc(b: VectorBuilder, x: Value, order: int) -> Value:
    """The derivative of this order of sin(pi*x) / (pi*x): pi**order * F(order, pi*x), where F(0, z) = sin(z)/z and

        z * F(n, z) = sin(z + n*pi/2) - n * F(n-1, z),

    which is stable for large z; below, the series of F in powers of z.
    """
    if x.dtype == "f32":
        return b.cast(sinc(b, b.cast(x, "f64"), order), "f32")
    split, coefficients = sinc_plan(order)
    z, lost = two_product(b, x, b.const(math.pi, "f64"))
    small = b.polynomial(b.mul(z, z), coefficients)
    if order % 2:
        small = b.mul(small, z)

    n = b.rint(x)
    half = b.mul(n, b.const(0.5, "f64"))
    odd = b.cmp("ne", b.trunc(half), half)
    whole, level = half_turn(b, b.sub(x, n))
    sine, sine_low, cosine = (b.select(odd, b.neg(v), v) for v in (*whole, level.high))
    exact = b.cmp("eq", sine, b.const(0, "f64"))  # as it is of every number so large that z overflows
    lost = b.fma(x, b.const(_PI_LOW, "f64"), lost)
    ratio = divide_pairs(b, Pair(sine, sine_low), Pair(z, lost))
    large = b.select(exact, ratio.high, b.add(ratio.high, ratio.low))
    if order:
        shifted = (sine, cosine, b.neg(sine), b.neg(cosine))
        for k in range(1, order + 1):
            large = b.fdiv(b.fnma(b.const(k, "f64"), large, shifted[k % 4]), z)
    result = b.select(b.cmp("lt", b.abs(z), b.const(split, "f64")), small, large)
    return b.mul(result, b.const(math.pi**order, "f64")) if order else result


def sinc_plan(order: int) -> tuple[float, tuple[float, ...]]:
    """Where the recurrence takes over from the series, and the series' coefficients, from the first power that it has.

    F(n, z) is the sum over k of (-1)**k * z**(2k-n) / ((2k+1) * (2k-n)!).

    At the n-th root of n! the recurrence has multiplied its first error by 1.
    """
    split = max(1.5, math.factorial(order) ** (1 / max(order, 1)))
    coefficients = []
    k = (order + 1) // 2
    while True:
        term = 1 / ((2 * k + 1) * math.factorial(2 * k - order))
        coefficients.append(-term if k % 2 else term)
        if term * split ** (2 * k - order) < 2.0**-60 / (order + 1):
            return split, tuple(coefficients)
        k += 1
