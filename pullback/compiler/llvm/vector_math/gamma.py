"""The logarithm of the gamma function and its derivatives.

lgamma and digamma are polynomials near their zeros, shifted there by their recurrences, and asymptotic series
(Abramowitz and Stegun, 6.1.41 and 6.3.18) for large numbers; polygamma is the Hurwitz zeta function (6.4.10) by Euler
and Maclaurin's formula (23.1.30). Negative numbers, for which a reflection formula and more work are needed, are a slow
path. Coefficients are Chebyshev interpolants of the function named beside them.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..builder import VectorBuilder
from ..values import Value
from .double_word import Pair, quick_two_sum, two_product, two_sum
from .exp_log import LN2_HIGH, LN2_LOW, log_rest, split_log
from .hyperbolic import in_double
from .power import log_pair
from .rare import rare_vectors

#: lgamma(2+t) / t, |t| <= 1/2; and what rounding the first coefficient lost
_LGAMMA_NEAR_TWO = (
    0.42278433509846713, 0.3224670334241132, -0.06735230105319814, 0.02058080842778457, -0.0073855510286681535,
    0.002890510330738737, -0.0011927539120010226, 0.0005096695248853096, -0.00022315475074520367,
    9.945750909889392e-05, -4.4926351103833334e-05, 2.050726741605779e-05, -9.438458716242811e-06,
    4.374374916915131e-06, -2.0449201467015115e-06, 9.578663334114758e-07, -4.303558760359961e-07,
    2.0304806751615227e-07, -1.3412819758517287e-07, 6.379047507619774e-08,
)  # fmt: skip
_LGAMMA_NEAR_TWO_LOW = 4.998234382459033e-18
#: log(sin(pi*r) / (pi*r)) / r**2 as a polynomial of r**2, |r| <= 1/2
_LOG_SINC = (
    -1.6449340668482264, -0.5411616168555677, -0.3391143539952259, -0.2510193390014526, -0.20019891796834885,
    -0.1667075728485711, -0.14286848171826025, -0.12495963988301707, -0.11159624432133705, -0.09604171703944575,
    -0.11394393898999185, 0.010799424592471392, -0.3373112253634216, 0.37895513311753104, -0.4663842533732108,
)  # fmt: skip
#: where the asymptotic series of lgamma begins
_STIRLING_FROM = 7.5
#: x * (lgamma(x) - (x-1/2)*(log(x)-1) - _STIRLING_CONSTANT) as a polynomial of 1/x**2
_STIRLING = (
    0.08333333333333333, -0.0027777777777775368, 0.0007936507933649074, -0.0005952379653539187, 0.0008417216737331459,
    -0.0019139313272278763, 0.006159482931227775, -0.019960699917191262,
)  # fmt: skip
#: log(2*pi)/2 - 1/2, high + low
_STIRLING_CONSTANT = (0.4189385332046727, 1.6728209650585413e-17)
#: the zero of digamma, less 1, high + low
_DIGAMMA_ROOT = (0.46163214496836236, -1.5522348162858677e-17)
#: digamma(1+t) / (t - root) as a polynomial of t-1/2, 0 <= t <= 1
_DIGAMMA_NEAR_ROOT = (
    0.951055876031833, -0.4236274212814605, 0.2405424842407742, -0.14840492305390884, 0.09498872445494122,
    -0.061922133273064534, 0.04076083381242074, -0.02697579675613825, 0.0179072524394512, -0.011908218001568644,
    0.007926944646403797, -0.005279964873257405, 0.003519006401502276, -0.002345267632540769, 0.0015566317474486838,
    -0.0010376374098418604, 0.0007233266279287554, -0.0004821990530566789, 0.0002272331660987376,
    -0.00015148586836773365, 0.00025968482126430747, -0.00017312261802727394,
)  # fmt: skip
#: digamma(5/2+t), |t| <= 1/2
_DIGAMMA_MIDDLE = (
    0.7031566406452432, 0.49035775610023485, -0.11810202582086309, 0.03731764146954176, -0.013073166646180193,
    0.004821409821419739, -0.0018305640355441625, 0.0007073881640957325, -0.00027643930999581804,
    0.00010882586435206692, -4.3052048513574485e-05, 1.708891125596372e-05, -6.803232576993842e-06,
    2.7109965480846823e-06, -1.0640705254157975e-06, 4.2481223325063033e-07, -2.0687583795242883e-07,
    8.267815845287522e-08,
)  # fmt: skip
#: where the asymptotic series of digamma begins
_DIGAMMA_LARGE_FROM = 5.0
#: x**2 * (log(x) - 1/(2*x) - digamma(x)) as a polynomial of 1/x**2
_DIGAMMA_LARGE = (
    0.08333333333333333, -0.00833333333333292, 0.003968253967836393, -0.00416666650099078, 0.0075757235315827166,
    -0.021088660292497605, 0.08301385418697708, -0.42689440569710074, 2.4836912240131954, -12.625259928806628,
    36.409254740393564,
)  # fmt: skip
#: (1/r - pi*cot(pi*r)) / r as a polynomial of r**2, |r| <= 1/2
_COTANGENT = (
    3.289868133696453, 2.1646464674222266, 2.0346861239837795, 2.008154710650887, 2.0019892571205644,
    2.0004882445092558, 2.000216397061563, 1.9984989923885619, 2.0175482780709193, 1.8569869062340112,
    2.8304597027964618, -1.3837148002891513, 11.319882534156065, -14.00913635189951, 16.010441555350102,
)  # fmt: skip

# -- lgamma ------------------------------------------------------------------------------------------------------------


@in_double
def lgamma(b: VectorBuilder, x: Value) -> Value:
    """log|gamma(x)|; infinite at 0, at the negative integers and at both infinities."""
    size, infinity = b.abs(x), b.const(math.inf, x.dtype)
    pair = _lgamma_positive(b, size)
    quick = b.select(b.cmp("eq", b.abs(pair.high), infinity), infinity, b.add(pair.high, pair.low))
    pole = b.or_(b.cmp("eq", size, infinity), b.cmp("eq", size, b.const(0, x.dtype)))
    quick = b.select(pole, infinity, quick)
    needed = b.and_(b.cmp("lt", x, b.const(0, x.dtype)), b.cmp("lt", size, infinity))
    return rare_vectors(b, "lgamma", _lgamma_negative, (size,), quick, needed)


def _lgamma_negative(b: VectorBuilder, size: Value) -> Value:
    """Of -size: lgamma(-a) = -lgamma(a) - log(a*|r|) - log(sin(pi*r) / (pi*r)), where r is what is left of an integer.

    All of it in two words, since the terms cancel where gamma is about 1.
    """
    r = b.abs(b.sub(size, b.rint(size)))
    square = b.mul(r, r)
    total = _lgamma_positive(b, size)
    sine = Pair(b.mul(square, b.polynomial(square, _LOG_SINC)), b.const(0, r.dtype))
    for term in (log_pair(b, size), log_pair(b, r), sine):
        high = two_sum(b, total.high, term.high)
        total = Pair(high.high, b.add(b.add(total.low, high.low), term.low))
    result = b.neg(b.add(total.high, total.low))
    return b.select(b.cmp("eq", r, b.const(0, r.dtype)), b.const(math.inf, r.dtype), result)


def _lgamma_positive(b: VectorBuilder, a: Value) -> Pair:
    """Of a >= 0. Up to 7.5: lgamma(2+t), where t is what is left of the nearest integer, plus or minus the logarithm of
    the factors between; one logarithm serves both ranges."""
    one = b.const(1, "f64")
    n = b.rint(a)
    t = b.sub(a, n)

    def at_least(k: int) -> Value:
        return b.cmp("ge", n, b.const(k, "f64"))

    # The factors: a*(1+a) for n = 0, a for n = 1, none for 2, then (a-1), (a-1)*(a-2) and so on.
    factors = b.select(at_least(3), b.sub(a, one), one)
    for k in range(2, math.ceil(_STIRLING_FROM) - 2):
        factors = b.mul(factors, b.select(at_least(k + 2), b.sub(a, b.const(k, "f64")), one))
    next_one = quick_two_sum(b, one, a)  # of n = 0 only, where a < 1
    small = two_product(b, a, next_one.high)
    below_two, is_zero = b.cmp("lt", n, b.const(2, "f64")), b.cmp("eq", n, b.const(0, "f64"))
    factors = b.select(below_two, b.select(is_zero, small.high, a), factors)
    large = b.cmp("ge", a, b.const(_STIRLING_FROM, "f64"))
    logarithm = log_pair(b, b.select(large, a, factors))
    lost = b.fma(a, next_one.low, small.low)
    usable = b.and_(is_zero, b.cmp("gt", a, b.const(2.0**-100, "f64")))
    correction = b.select(usable, b.fdiv(lost, small.high), b.const(0, "f64"))

    # Near 2.
    first = b.const(_LGAMMA_NEAR_TWO[0], "f64")
    rest = b.fma(t, b.polynomial(t, _LGAMMA_NEAR_TWO[1:]), b.const(_LGAMMA_NEAR_TWO_LOW, "f64"))
    series = quick_two_sum(b, first, rest)
    near = two_product(b, t, series.high)
    near = Pair(near.high, b.fma(t, series.low, near.low))
    sign = b.select(below_two, b.const(-1, "f64"), one)
    log_high = b.select(b.cmp("eq", n, b.const(2, "f64")), b.const(0, "f64"), b.mul(sign, logarithm.high))
    log_low = b.mul(sign, b.add(logarithm.low, correction))
    moderate = two_sum(b, log_high, near.high)
    moderate = Pair(moderate.high, b.add(b.add(moderate.low, near.low), log_low))

    # Large.
    inverse = b.fdiv(one, a)
    constant, constant_low = (b.const(part, "f64") for part in _STIRLING_CONSTANT)
    rest = b.fma(inverse, b.polynomial(b.mul(inverse, inverse), _STIRLING), constant_low)
    lead, factor = b.sub(logarithm.high, one), b.sub(a, b.const(0.5, "f64"))
    product = two_product(b, factor, lead)
    total = quick_two_sum(b, product.high, constant)
    low = b.add(b.fma(factor, logarithm.low, product.low), b.add(total.low, rest))
    return Pair(b.select(large, total.high, moderate.high), b.select(large, low, moderate.low))


# -- digamma -----------------------------------------------------------------------------------------------------------


@in_double
def digamma(b: VectorBuilder, x: Value) -> Value:
    """The derivative of lgamma; minus the sign of x times infinity at 0, NaN at the negative integers."""
    zero = b.const(0, x.dtype)
    size = b.abs(x)
    quick, _ = _digamma_positive(b, size)
    quick = b.select(b.cmp("eq", size, zero), b.copysign(b.const(math.inf, x.dtype), b.neg(x)), quick)
    return rare_vectors(b, "digamma", _digamma_negative, (size,), quick, b.cmp("lt", x, zero))


def _digamma_negative(b: VectorBuilder, size: Value) -> Value:
    """Of -size: digamma(1+a) + pi*cot(pi*a)."""
    r = b.sub(size, b.rint(size))
    _, following = _digamma_positive(b, size)
    inverse = b.fdiv(b.const(1, r.dtype), r)
    total = two_sum(b, inverse, following.high)
    usable = b.cmp("gt", b.abs(r), b.const(2.0**-100, r.dtype))
    lost = b.select(usable, _reciprocal_rest(b, r, inverse), b.const(0, r.dtype))
    low = b.add(b.add(total.low, following.low), lost)
    rest = b.fnma(r, b.polynomial(b.mul(r, r), _COTANGENT), low)
    result = b.add(total.high, rest)
    infinite = b.cmp("eq", b.abs(inverse), b.const(math.inf, r.dtype))
    result = b.select(infinite, inverse, result)
    return b.select(b.cmp("eq", r, b.const(0, r.dtype)), b.const(math.nan, r.dtype), result)


def _digamma_positive(b: VectorBuilder, a: Value) -> tuple[Value, Pair]:
    """(digamma(a), digamma(1+a)) of a > 0, the second with what rounding the logarithm of a large one lost."""
    one = b.const(1, "f64")
    below_one = b.cmp("lt", a, one)

    # About the zero: a < 2. Below 1 it is the digamma of 1+a, from which 1/a is taken.
    t = b.select(below_one, a, b.sub(a, one))
    root, root_low = (b.const(part, "f64") for part in _DIGAMMA_ROOT)
    away = two_sum(b, t, b.neg(root))
    u = b.sub(t, b.const(0.5, "f64"))
    first = b.const(_DIGAMMA_NEAR_ROOT[0], "f64")
    factor = quick_two_sum(b, first, b.mul(u, b.polynomial(u, _DIGAMMA_NEAR_ROOT[1:])))
    cross = b.fma(away.high, factor.low, b.mul(b.sub(away.low, root_low), factor.high))
    near_root = b.fma(away.high, factor.high, cross)
    inverse = b.fdiv(one, a)
    usable = b.cmp("gt", a, b.const(2.0**-100, "f64"))
    lost = b.select(usable, _reciprocal_rest(b, a, inverse), b.const(0, "f64"))

    # From 2 to 5: shifted into [2, 3].
    from_three, from_four = b.cmp("ge", a, b.const(3, "f64")), b.cmp("ge", a, b.const(4, "f64"))
    less_one, less_two = b.sub(a, one), b.sub(a, b.const(2, "f64"))
    two_terms = b.fdiv(b.add(less_one, less_two), b.mul(less_one, less_two))
    shift = b.select(from_three, b.fdiv(one, less_one), b.const(0, "f64"))
    shift = b.select(from_four, two_terms, shift)
    shifted = b.select(from_four, less_two, b.select(from_three, less_one, a))
    middle = b.add(b.polynomial(b.sub(shifted, b.const(2.5, "f64")), _DIGAMMA_MIDDLE), shift)

    # From 5: log(a) - 1/(2a) - ..., the small terms added before the logarithm's large ones.
    square = b.mul(inverse, inverse)
    rest = b.fma(b.neg(square), b.polynomial(square, _DIGAMMA_LARGE), b.mul(inverse, b.const(-0.5, "f64")))
    f, n = split_log(b, a)
    rest = b.add(b.fma(n, b.const(LN2_LOW["f64"], "f64"), log_rest(b, f)), rest)
    near_one = quick_two_sum(b, f, rest)
    logarithm = b.mul(n, b.const(LN2_HIGH["f64"], "f64"))  # exact
    total = two_sum(b, logarithm, near_one.high)
    large = b.select(b.cmp("lt", a, b.const(math.inf, "f64")), total.high, a)

    at_least_one = b.select(b.cmp("lt", a, b.const(2, "f64")), near_root, middle)
    is_large = b.cmp("ge", a, b.const(_DIGAMMA_LARGE_FROM, "f64"))
    at_least_one = b.select(is_large, large, at_least_one)
    value = b.select(below_one, b.sub(b.sub(near_root, lost), inverse), at_least_one)
    following = two_sum(b, at_least_one, inverse)
    low = b.add(following.low, b.select(is_large, b.add(total.low, near_one.low), b.const(0, "f64")))
    zero = b.const(0, "f64")
    return value, Pair(b.select(below_one, near_root, following.high), b.select(below_one, zero, low))


def _reciprocal_rest(b: VectorBuilder, a: Value, inverse: Value) -> Value:
    """1/a - inverse."""
    if b.target.has_fma:
        return b.mul(b.fnma(inverse, a, b.const(1, a.dtype)), inverse)
    product = two_product(b, inverse, a)
    return b.mul(b.sub(b.sub(b.const(1, a.dtype), product.high), product.low), inverse)


# -- polygamma ---------------------------------------------------------------------------------------------------------

#: terms of the Euler-Maclaurin formula
_ZETA_TERMS = 11


def polygamma(b: VectorBuilder, x: Value, order: int) -> Value:
    """The derivative of digamma of this order (1 or more): (-1)**(order+1) * order! * zeta(order+1, x)."""
    if x.dtype == "f32":
        return b.cast(polygamma(b, b.cast(x, "f64"), order), "f32")
    s = order + 1
    factor = float(math.factorial(order)) * (-1) ** s
    positive = _zeta(b, x, s)

    def negative(b: VectorBuilder, x: Value) -> Value:
        """The sum of (x+k)**-s over all integers k, of which those that zeta(s, x) has not are taken away."""
        r = b.sub(x, b.rint(x))
        one = b.const(1, "f64")
        below, missing = _zeta(b, b.sub(one, r), s), _zeta(b, b.sub(one, x), s)
        other = b.sub(below, missing) if s % 2 == 0 else b.sub(missing, below)
        total = b.add(_over_power(b, one, r, s), b.add(_zeta(b, b.add(one, r), s), other))
        pole = b.or_(b.cmp("eq", r, b.const(0, "f64")), b.cmp("eq", x, b.const(-math.inf, "f64")))
        return b.select(pole, b.const(math.inf, "f64"), total)

    needed = b.cmp("lt", x, b.const(0, "f64"))
    result = rare_vectors(b, f"zeta{s}", negative, (x,), positive, needed)
    result = b.select(b.cmp("eq", x, b.const(0, "f64")), b.const(math.inf, "f64"), result)
    return b.mul(result, b.const(factor, "f64"))


def _power(b: VectorBuilder, x: Value, exponent: int) -> Value:
    """x**exponent by repeated squaring, exponent >= 1."""
    while not exponent & 1:
        x = b.mul(x, x)
        exponent >>= 1
    result = x
    while exponent := exponent >> 1:
        x = b.mul(x, x)
        if exponent & 1:
            result = b.mul(result, x)
    return result


def _over_power(b: VectorBuilder, numerator: Value, x: Value, exponent: int) -> Value:
    """numerator / x**exponent, by the power of 1/x where that of x would be subnormal or infinite."""
    size = b.abs(x)
    reach = 2.0 ** (1000 // exponent)
    extreme = b.or_(b.cmp("lt", size, b.const(1 / reach, "f64")), b.cmp("gt", size, b.const(reach, "f64")))
    inverse = _power(b, b.fdiv(b.const(1, "f64"), x), exponent)
    return b.select(extreme, b.mul(numerator, inverse), b.fdiv(numerator, _power(b, x, exponent)))


def _zeta(b: VectorBuilder, x: Value, s: int) -> Value:
    """The sum of (x+k)**-s over k >= 0, for x > 0: a few terms unless x is large, then the formula for the rest."""
    count, coefficients = zeta_plan(s)
    zero, one, shift = b.const(0, "f64"), b.const(1, "f64"), b.const(count, "f64")
    large = b.cmp("ge", x, shift)
    w = b.select(large, x, b.add(x, shift))
    # w**(1-s) * (1/(s-1) + 1/(2w) + c1/w**2 + c2/w**4 + ...)
    inverse = b.fdiv(one, w)
    square = b.mul(inverse, inverse)
    # The small terms first, so that adding the one that leads rounds once.
    small = b.fma(square, b.polynomial(square, coefficients), b.mul(inverse, b.const(0.5, "f64")))
    series = b.add(b.const(1 / (s - 1), "f64"), small)
    rest = _over_power(b, series, w, s - 1)
    total, lost = rest, zero
    for k in range(count - 1, -1, -1):
        following = b.fdiv(one, _power(b, b.add(x, b.const(k, "f64")), s)) if k else _over_power(b, one, x, s)
        exact = two_sum(b, total, following)
        total, lost = exact.high, b.add(lost, exact.low)
    lost = b.select(b.cmp("lt", b.abs(total), b.const(math.inf, "f64")), lost, zero)
    total = b.add(total, lost)
    total = b.select(large, rest, total)
    return b.select(b.cmp("eq", x, b.const(math.inf, "f64")), zero, total)


def zeta_plan(s: int) -> tuple[int, tuple[float, ...]]:
    """How many terms come before the formula, and the formula's coefficients B(2j)/(2j)! * s(s+1)...(s+2j-2).

    The first coefficient left out is to be below 2**-60 of the leading term 1/(s-1) at the smallest w.
    """
    bernoulli = _bernoulli(2 * _ZETA_TERMS + 2)
    coefficients = []
    for j in range(1, _ZETA_TERMS + 2):
        rising = math.prod(range(s, s + 2 * j - 1))
        coefficients.append(float(bernoulli[2 * j] * rising / math.factorial(2 * j)))
    left_out = abs(coefficients.pop()) * (s - 1)
    count = math.ceil((left_out * 2.0**60) ** (1 / (2 * _ZETA_TERMS + 2)))
    return count, tuple(coefficients)


def _bernoulli(last: int) -> list[Fraction]:
    """The Bernoulli numbers B(0) to B(last), by their recurrence."""
    numbers = [Fraction(1)]
    for m in range(1, last + 1):
        numbers.append(-sum((math.comb(m + 1, k) * numbers[k] for k in range(m)), Fraction(0)) / (m + 1))
    return numbers
