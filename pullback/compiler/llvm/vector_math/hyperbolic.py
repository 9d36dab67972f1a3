"""The logistic and hyperbolic functions."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .exp_log import _EXP, _EXP_SHORT, LN2_HIGH, LN2_LOW, clamp, reduce_exp
from .scaling import FORMATS, power_of_two, three_halves_power_of_two

#: from here on tanh rounds to 1
_TANH_ONE = {"f32": 9.02, "f64": 19.1}
#: beyond, sigmoid is 0 or 1
_SIGMOID_RANGE = {"f32": 104.0, "f64": 746.0}


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
    r = b.fma(n, b.const(LN2_HIGH[dtype] / 2, dtype), size)
    r = b.fma(n, b.const(LN2_LOW[dtype] / 2, dtype), r)
    mirrored = tuple(-c * (-2.0) ** k * 4 for k, c in enumerate(_EXP[dtype]))
    e = b.fma(b.polynomial(r, mirrored), b.mul(r, r), b.add(r, r))  # 1 - exp(-2r)
    s, one = power_of_two(b, shifted), b.const(1, dtype)
    numerator = b.fma(s, e, b.sub(one, s))
    denominator = b.fnma(s, e, b.add(one, s))
    return b.copysign(b.fdiv(numerator, denominator), x)


def sigmoid(b: VectorBuilder, x: Value) -> Value:
    """exp(x) / (exp(x) + 1). With exp(x) = e * 2**n and n = g + h this is e*2**g / (e*2**g + 2**-h), which neither
    overflows nor loses a subnormal result."""
    dtype = x.dtype
    form = FORMATS[dtype]
    bound = _SIGMOID_RANGE[dtype]
    r, n = reduce_exp(b, clamp(b, x, -bound, bound))
    e = b.fma(b.polynomial(r, _EXP_SHORT[dtype]), b.mul(r, r), r)
    magic = b.const(form.magic, dtype)
    half = b.sub(b.fma(n, b.const(0.5, dtype), magic), magic)
    # Both scaled by 1.5, which lets the denominator's rounding cost less where it is near a power of two.
    g = three_halves_power_of_two(b, b.sub(n, half))
    h = three_halves_power_of_two(b, b.neg(half))
    numerator = b.fma(e, g, g)
    return b.fdiv(numerator, b.add(numerator, h))
