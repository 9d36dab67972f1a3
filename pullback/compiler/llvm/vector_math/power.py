"""Powers and the cube root."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .double_word import Pair, add_pairs, divide_pairs, multiply_pairs, quick_two_sum, two_product
from .exp_log import EXP_RANGE, EXP_SHORT, LN2_HIGH, LN2_LOW, clamp, expm1_reduced, reduce_exp, scaled_exp, split_log
from .scaling import FORMATS, power_of_two, split_exponent

#: (atanh(s)/s - 1 - s**2/3) / s**4 as a polynomial of s**2, |s| <= (sqrt(2)-1)/(sqrt(2)+1)
_ATANH = (
    0.1999999999999999, 0.1428571428572192, 0.11111111108894814, 0.09090909422011118, 0.07692279212764659,
    0.06668132324803694, 0.05837888515116272, 0.05990894331849944,
)  # fmt: skip
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
#: log2((1+s) / (1-s)) / s as a polynomial of s**2, to 37 bits
_LOG2_F32 = (2.885390081790085, 0.9617966733433064, 0.5770835846624661, 0.4116727379956003, 0.3407297404547719)
#: (2**r - 1) / r on |r| <= 1/2, to 34 bits
_EXP2_F32 = (
    0.6931471807055894, 0.24022651068821962, 0.05550410363334353, 0.009618037760049202, 0.0013333936181362926,
    0.0001546688626530287, 1.519616492444756e-05,
)  # fmt: skip
#: with an exponent this large every base but 1 gives 0 or infinity
_LARGEST_EXPONENT = {"f32": 2.0**40, "f64": 2.0**80}
#: cbrt(m) on sqrt(1/2) <= m <= sqrt(2)
_CBRT = (0.45166704, 0.9048182, -0.5356302, 0.21693745, -0.037788197)


def log_pair(b: VectorBuilder, x: Value) -> Pair:
    """log of a positive finite f64 to about twice its precision: n*log(2) + 2*atanh(f / (2+f))."""
    f, n = split_log(b, x)
    s = divide_pairs(b, Pair(f, b.const(0, "f64")), quick_two_sum(b, b.const(2, "f64"), f))
    s = quick_two_sum(b, s.high, s.low)
    square = two_product(b, s.high, s.high)
    z = Pair(square.high, b.fma(b.add(s.high, s.high), s.low, square.low))
    third, third_low = (b.const(part, "f64") for part in _THIRD)
    series = quick_two_sum(b, third, b.mul(z.high, b.polynomial(z.high, _ATANH)))
    series = Pair(series.high, b.add(series.low, third_low))
    half = add_pairs(b, s, multiply_pairs(b, s, multiply_pairs(b, z, series)))
    near_one = Pair(b.add(half.high, half.high), b.add(half.low, half.low))
    low = two_product(b, n, b.const(LN2_LOW["f64"], "f64"))
    total = add_pairs(b, quick_two_sum(b, b.mul(n, b.const(LN2_HIGH["f64"], "f64")), low.high), near_one)
    return Pair(total.high, b.add(total.low, low.low))


def _positive_power_f32(b: VectorBuilder, x: Value, y: Value) -> Value:
    """2**(y * log2(x)) in f64, of which f32 needs few terms and no second words."""
    mantissa, n = split_exponent(b, b.cast(x, "f64"), math.sqrt(0.5), normal=True)
    f = b.sub(mantissa, b.const(1, "f64"))
    s = b.fdiv(f, b.add(b.const(2, "f64"), f))
    logarithm = b.fma(s, b.polynomial(b.mul(s, s), _LOG2_F32), n)
    product = clamp(b, b.mul(b.cast(y, "f64"), logarithm), -200.0, 200.0)
    form = FORMATS["f64"]
    magic = b.const(form.magic + form.bias, "f64")
    shifted = b.add(product, magic)
    r = b.sub(product, b.sub(shifted, magic))
    e = b.fma(b.polynomial(r, _EXP2_F32), r, b.const(1, "f64"))
    return b.cast(b.mul(e, power_of_two(b, shifted)), "f32")


def _positive_power_f64(b: VectorBuilder, x: Value, y: Value) -> Value:
    """exp(y * log(x)) with the logarithm and the product in two words."""
    logarithm = log_pair(b, x)
    product = two_product(b, logarithm.high, y)
    low = clamp(b, b.fma(logarithm.low, y, product.low), -0.01, 0.01)
    reduced = reduce_exp(b, clamp(b, product.high, *EXP_RANGE["f64"]), low)
    return scaled_exp(b, expm1_reduced(b, reduced, EXP_SHORT), reduced.n, reduced.shifted)


def pow(b: VectorBuilder, x: Value, y: Value) -> Value:
    """With the special cases of C99 F.9.4.4."""
    dtype = x.dtype
    zero, one = b.const(0, dtype), b.const(1, dtype)
    size = b.abs(x)
    bound = _LARGEST_EXPONENT[dtype]
    positive = _positive_power_f32 if dtype == "f32" else _positive_power_f64
    result = positive(b, size, clamp(b, y, -bound, bound))

    infinity = b.const(math.inf, dtype)
    is_zero, is_infinite = b.cmp("eq", x, zero), b.cmp("eq", size, infinity)
    extreme = b.or_(is_zero, is_infinite)
    grows = b.xor(is_zero, b.cmp("gt", y, zero))
    result = b.select(extreme, b.select(grows, infinity, zero), result)
    # The sign of a negative base survives an odd exponent; one between integers has no real power.
    half = b.mul(y, b.const(0.5, dtype))
    integral = b.cmp("eq", b.trunc(y), y)
    odd = b.and_(integral, b.cmp("ne", b.trunc(half), half))
    result = b.select(odd, b.copysign(result, x), result)
    undefined = b.and_(b.and_(b.cmp("lt", x, zero), b.not_(is_infinite)), b.not_(integral))
    undefined = b.or_(undefined, b.cmp("uno", x, y))
    result = b.select(undefined, b.const(math.nan, dtype), result)
    return b.select(b.or_(b.cmp("eq", y, zero), b.cmp("eq", x, one)), one, result)


def cbrt(b: VectorBuilder, x: Value) -> Value:
    """Newton's iteration from a polynomial, with the exponent divided by three."""
    dtype = x.dtype
    form = FORMATS[dtype]
    size = b.abs(x)
    mantissa, n = split_exponent(b, size, math.sqrt(0.5))
    magic = b.const(form.magic, dtype)
    third = b.const(1 / 3, dtype)
    k = b.sub(b.fma(b.sub(n, b.const(1, dtype)), third, magic), magic)
    rest = b.sub(n, b.mul(k, b.const(3, dtype)))  # 0, 1 or 2
    is_one, is_two = b.cmp("eq", rest, b.const(1, dtype)), b.cmp("eq", rest, b.const(2, dtype))

    def by_rest(of_zero: float, of_one: float, of_two: float) -> Value:
        below_two = b.select(is_one, b.const(of_one, dtype), b.const(of_zero, dtype))
        return b.select(is_two, b.const(of_two, dtype), below_two)

    v = b.mul(mantissa, by_rest(1, 2, 4))
    y = b.mul(b.polynomial(mantissa, _CBRT), by_rest(1, 2 ** (1 / 3), 4 ** (1 / 3)))
    for _ in range(1 if dtype == "f32" else 2):
        square = b.mul(y, y)
        excess = b.fma(square, y, b.neg(v))
        y = b.sub(y, b.fdiv(excess, b.mul(square, b.const(3, dtype))))
    result = b.copysign(b.mul(y, power_of_two(b, b.add(k, b.const(form.magic + form.bias, dtype)))), x)
    ordinary = b.and_(b.cmp("gt", size, b.const(0, dtype)), b.cmp("lt", size, b.const(math.inf, dtype)))
    return b.select(ordinary, result, x)
