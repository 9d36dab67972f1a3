"""The logistic and hyperbolic functions."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .exp_log import _EXP, _EXP_SHORT, LN2_HIGH, LN2_LOW, clamp, reduce_exp
from .scaling import FORMATS, power_of_two

#: from here on tanh rounds to 1
_TANH_ONE = {"f32": 9.02, "f64": 19.1}
#: beyond, sigmoid is 0 or 1
_SIGMOID_RANGE = {"f32": 104.0, "f64": 746.0}


def tanh(b: VectorBuilder, x: Value) -> Value:
    """With t = exp(2|x|) - 1, tanh|x| = t / (t+2)."""
    dtype = x.dtype
    form = FORMATS[dtype]
    size = b.fmin(b.const(_TANH_ONE[dtype], dtype), b.abs(x))
    # Reduced in units of x: 2|x| = n*log(2) + 2r. The bias in the constant makes the low bits 2**n's exponent field.
    magic = b.const(form.magic + form.bias, dtype)
    shifted = b.fma(size, b.const(2 * math.log2(math.e), dtype), magic)
    n = b.sub(shifted, magic)
    r = b.fma(n, b.const(-LN2_HIGH[dtype] / 2, dtype), size)
    r = b.fma(n, b.const(-LN2_LOW[dtype] / 2, dtype), r)
    doubled = tuple(c * 2.0 ** (k + 2) for k, c in enumerate(_EXP[dtype]))
    e = b.fma(b.polynomial(r, doubled), b.mul(r, r), b.add(r, r))
    s = power_of_two(b, shifted)
    t = b.fma(s, e, b.sub(s, b.const(1, dtype)))
    return b.copysign(b.fdiv(t, b.add(t, b.const(2, dtype))), x)


def sigmoid(b: VectorBuilder, x: Value) -> Value:
    """1 / (1 + exp(-x)). With exp(-x) = e * 2**n and n = h + g this is 2**-h / (2**-h + e * 2**g), which neither
    overflows nor loses a subnormal result."""
    dtype = x.dtype
    form = FORMATS[dtype]
    bound = _SIGMOID_RANGE[dtype]
    r, n = reduce_exp(b, b.neg(clamp(b, x, -bound, bound)))
    e = b.add(b.fma(b.polynomial(r, _EXP_SHORT[dtype]), b.mul(r, r), r), b.const(1, dtype))
    magic = b.const(form.magic, dtype)
    half = b.fma(n, b.const(0.5, dtype), magic)
    rest = b.sub(n, b.sub(half, magic))
    g = power_of_two(b, b.add(rest, b.const(form.magic + form.bias, dtype)))
    h = power_of_two(b, b.sub(b.const(2 * form.magic + form.bias, dtype), half))
    return b.fdiv(h, b.fma(e, g, h))
