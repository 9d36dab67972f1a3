"""Trigonometric functions and their inverses."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .argument_reduction import Reduced, reduce_half_pi
from .double_word import Pair, divide_pairs, quick_two_sum, two_product
from .scaling import FORMATS

#: (sin(r) - r) / r**3 as a polynomial of r**2, |r| <= pi/4
_SIN = {
    "f32": (-0.16666655, 0.008332188, -0.00019518095),
    "f64": (
        -0.1666666666666663, 0.00833333333332184, -0.00019841269829358533, 2.755731353851757e-06,
        -2.5050734389452314e-08, 1.5895433246833449e-10,
    ),
}  # fmt: skip
#: (cos(r) - 1) / r**2
_COS = {
    "f32": (-0.5, 0.041666646, -0.001388731, 2.4432327e-05),
    "f64": (
        -0.5, 0.041666666666666595, -0.0013888888888873325, 2.4801587288983695e-05, -2.75573142100849e-07,
        2.0875704273076257e-09, -1.135868347520136e-11,
    ),
}  # fmt: skip
#: (asin(x) - x) / x**3, |x| <= 1/2
_ASIN = {
    "f32": (0.16666752, 0.074953094, 0.045469146, 0.024184812, 0.04215823),
    "f64": (
        0.1666666666666676, 0.07499999999970863, 0.04464285717456482, 0.03038194270964689, 0.022372214942623515,
        0.01735161272547189, 0.013980812898467749, 0.011398969059485212, 0.010779960709371839, 0.0037074279108410013,
        0.021705142175343622, -0.020996015074106384, 0.032626835578249185,
    ),
}  # fmt: skip
#: (atan(t) - t) / t**3, |t| <= tan(pi/8)
_ATAN = {
    "f32": (-0.33333316, 0.19998528, -0.14244391, 0.105991684, -0.06090052),
    "f64": (
        -0.33333333333333326, 0.19999999999997098, -0.14285714285317075, 0.11111111083805313, -0.09090907988530611,
        0.07692279270631036, -0.06666175814326228, 0.058765282899802, -0.05215260666614023, 0.04490895493374357,
        -0.03318274505740442, 0.014901697405534648,
    ),
}  # fmt: skip
#: multiples of pi/4 as high + low
_QUARTER_TURNS = {
    "f32": ((0.0, 0.0), (0.7853981852531433, -2.1855694143368964e-08), (1.5707963705062866, -4.371138828673793e-08),
            (2.356194496154785, -5.962440319251527e-09), (3.1415927410125732, -8.742277657347586e-08)),
    "f64": ((0.0, 0.0), (0.7853981633974483, 3.061616997868383e-17), (1.5707963267948966, 6.123233995736766e-17),
            (2.356194490192345, 9.184850993605148e-17), (3.141592653589793, 1.2246467991473532e-16)),
}  # fmt: skip
_TAN_PI_8 = math.sqrt(2) - 1


def _sine_rest(b: VectorBuilder, reduced: Reduced, z: Value) -> Value:
    """sin(r + tail) - r."""
    r, tail, _ = reduced
    return b.fma(b.mul(r, z), b.polynomial(z, _SIN[r.dtype]), tail)


def _cosine_rest(b: VectorBuilder, reduced: Reduced, z: Value) -> Value:
    """cos(r + tail) - 1."""
    r, tail, _ = reduced
    return b.fma(z, b.polynomial(z, _COS[r.dtype]), b.neg(b.mul(r, tail)))


def _bit(b: VectorBuilder, x: Value, bit: int) -> Value:
    """Is this bit of an integer set?"""
    return b.cmp("ne", b.and_(x, b.const(1 << bit, x.dtype)), b.const(0, x.dtype))


def _sine_like(b: VectorBuilder, x: Value, turn: int) -> Value:
    """sin(x + turn * pi/2)."""
    dtype = x.dtype
    form = FORMATS[dtype]
    reduced = reduce_half_pi(b, x)
    z = b.mul(reduced.r, reduced.r)
    sine = b.add(reduced.r, _sine_rest(b, reduced, z))
    cosine = b.add(b.const(1, dtype), _cosine_rest(b, reduced, z))
    quadrant = b.add(reduced.quadrant, b.const(turn, form.integer)) if turn else reduced.quadrant
    result = b.select(_bit(b, quadrant, 0), cosine, sine)
    top = b.const(FORMATS[dtype].mantissa + {"f32": 7, "f64": 10}[dtype], form.integer)
    sign = b.shl(b.and_(quadrant, b.const(2, form.integer)), top)
    return b.bitcast(b.xor(b.bits(result), sign), dtype)


def sin(b: VectorBuilder, x: Value) -> Value:
    return _keep_zero(b, x, _sine_like(b, x, 0))


def cos(b: VectorBuilder, x: Value) -> Value:
    return _sine_like(b, x, 1)


def half_turn(b: VectorBuilder, r: Value) -> tuple[Pair, Pair]:
    """(sin(pi*r), cos(pi*r)) for |r| <= 1/2, without a range reduction, and what rounding them lost."""
    dtype = r.dtype
    size = b.abs(r)
    rest = b.sub(b.const(0.5, dtype), size)
    steep = b.cmp("lt", rest, size)
    part = b.select(steep, rest, size)
    pi, pi_low = (b.const(word, dtype) for word in _QUARTER_TURNS[dtype][4])
    angle = two_product(b, part, pi)
    low = b.fma(part, pi_low, angle.low)
    z = b.mul(angle.high, angle.high)
    reduced = Reduced(angle.high, low, r)
    sine = quick_two_sum(b, angle.high, _sine_rest(b, reduced, z))
    cosine = quick_two_sum(b, b.const(1, dtype), _cosine_rest(b, reduced, z))
    negative = b.cmp("lt", r, b.const(0, dtype))
    upright, level = (
        Pair(*(b.select(steep, x, y) for x, y in zip(first, second, strict=True)))
        for first, second in ((cosine, sine), (sine, cosine))
    )
    return Pair(*(b.select(negative, b.neg(part), part) for part in upright)), level


def tan(b: VectorBuilder, x: Value) -> Value:
    reduced = reduce_half_pi(b, x)
    z = b.mul(reduced.r, reduced.r)
    sine = quick_two_sum(b, reduced.r, _sine_rest(b, reduced, z))
    cosine = quick_two_sum(b, b.const(1, x.dtype), _cosine_rest(b, reduced, z))
    odd = _bit(b, reduced.quadrant, 0)
    minus = (b.neg(cosine.high), b.neg(cosine.low))
    numerator = type(sine)(b.select(odd, minus[0], sine.high), b.select(odd, minus[1], sine.low))
    denominator = type(sine)(b.select(odd, sine.high, cosine.high), b.select(odd, sine.low, cosine.low))
    quotient = divide_pairs(b, numerator, denominator)
    return _keep_zero(b, x, b.add(quotient.high, quotient.low))


def _keep_zero(b: VectorBuilder, x: Value, result: Value) -> Value:
    """-0 for -0."""
    return b.select(b.cmp("eq", x, b.const(0, x.dtype)), x, result)


def _asin_small(b: VectorBuilder, x: Value, z: Value) -> Value:
    """asin(x) - x for |x| <= 1/2; z = x**2."""
    return b.mul(b.mul(x, z), b.polynomial(z, _ASIN[x.dtype]))


def _half_angle(b: VectorBuilder, x: Value) -> tuple[Value, Value, Value]:
    """(is |x| > 1/2?, t, asin(t) - t), t = sqrt((1-|x|)/2) if so, else |x|. NaN for |x| > 1."""
    dtype = x.dtype
    half = b.const(0.5, dtype)
    size = b.abs(x)
    large = b.cmp("gt", size, half)
    rest = b.mul(b.sub(b.const(1, dtype), size), half)
    z = b.select(large, rest, b.mul(size, size))
    t = b.select(large, b.sqrt(rest), size)
    return large, t, _asin_small(b, t, z)


def asin(b: VectorBuilder, x: Value) -> Value:
    """For |x| > 1/2, asin|x| = pi/2 - 2*asin(sqrt((1-|x|)/2))."""
    dtype = x.dtype
    large, t, rest = _half_angle(b, x)
    two = b.const(2, dtype)
    high, low = _QUARTER_TURNS[dtype][2]
    difference = quick_two_sum(b, b.const(high, dtype), b.neg(b.mul(two, t)))
    near_one = b.sub(difference.high, b.sub(b.mul(two, rest), b.add(difference.low, b.const(low, dtype))))
    return b.copysign(b.select(large, near_one, b.add(t, rest)), x)


def acos(b: VectorBuilder, x: Value) -> Value:
    """2*asin(sqrt((1-|x|)/2)), from pi for negative x; for |x| <= 1/2, pi/2 - asin(x)."""
    dtype = x.dtype
    large, t, rest = _half_angle(b, x)
    zero = b.const(0, dtype)
    negative = b.cmp("lt", x, zero)
    scale = b.select(large, b.const(2, dtype), b.const(-1, dtype))
    scale = b.select(negative, b.neg(scale), scale)
    quarter, turn = _QUARTER_TURNS[dtype][2], _QUARTER_TURNS[dtype][4]

    def base(part: int) -> Value:
        far = b.select(negative, b.const(turn[part], dtype), zero)
        return b.select(large, far, b.const(quarter[part], dtype))

    return b.add(base(0), b.fma(scale, t, b.fma(scale, rest, base(1))))


def _atan_of_ratio(b: VectorBuilder, y: Value, x: Value, negative: Value | None) -> Value:
    """The angle of the point (x, y), both >= 0; of (-x, y) where ``negative``.

    The ratio is turned by 0, 1 or 2 quarters of a right angle (as in FreeBSD's s_atan.c, but with two turns for four),
    which leaves a tangent of at most tan(pi/8).
    """
    dtype = x.dtype
    zero, one = b.const(0, dtype), b.const(1, dtype)
    equal = b.cmp("eq", y, x)  # both infinite included; both zero is no turn
    steep = b.cmp("gt", y, b.mul(x, b.const(1 / _TAN_PI_8, dtype)))
    some = b.cmp("gt", y, b.mul(x, b.const(_TAN_PI_8, dtype)))
    middle = b.and_(b.or_(some, equal), b.cmp("gt", y, zero))
    numerator = b.select(steep, b.neg(x), b.select(middle, b.sub(y, x), y))
    denominator = b.select(steep, y, b.select(middle, b.add(y, x), x))
    numerator = b.select(equal, zero, numerator)
    denominator = b.select(equal, one, denominator)
    t = b.fdiv(numerator, denominator)
    z = b.mul(t, t)
    turns = _QUARTER_TURNS[dtype]

    def base(part: int) -> Value:
        ahead = b.select(steep, b.const(turns[2][part], dtype), b.select(middle, b.const(turns[1][part], dtype), zero))
        if negative is None:
            return ahead
        behind = b.select(middle, b.const(turns[3][part], dtype), b.const(turns[4][part], dtype))
        behind = b.select(steep, b.const(turns[2][part], dtype), behind)
        return b.select(negative, behind, ahead)

    if negative is not None:
        t = b.select(negative, b.neg(t), t)
    rest = b.fma(b.mul(t, z), b.polynomial(z, _ATAN[dtype]), base(1))
    return b.add(base(0), b.add(t, rest))


def atan(b: VectorBuilder, x: Value) -> Value:
    return b.copysign(_atan_of_ratio(b, b.abs(x), b.const(1, x.dtype), None), x)


def atan2(b: VectorBuilder, y: Value, x: Value) -> Value:
    """The angle of (x, y) in [-pi, pi]; signed zeros choose the side of the cut."""
    dtype = x.dtype
    form = FORMATS[dtype]
    ay, ax = b.abs(y), b.abs(x)
    # Halved twice where the sum could overflow; raised where the products that choose the turn could be subnormal.
    largest = b.fmax(ax, ay)
    huge = b.cmp("gt", largest, b.const(2.0 ** (form.bias - 1), dtype))
    tiny = b.cmp("lt", largest, b.const(form.minimum_normal * 2.0 ** (form.mantissa + 1), dtype))
    scale = b.select(huge, b.const(0.25, dtype), b.const(1, dtype))
    scale = b.select(tiny, b.const(2.0 ** (form.mantissa + 1), dtype), scale)
    negative = b.cmp("lt", b.bits(x), b.const(0, form.integer))
    angle = _atan_of_ratio(b, b.mul(ay, scale), b.mul(ax, scale), negative)
    return b.copysign(angle, y)
