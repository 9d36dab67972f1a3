"""Activations of networks with their derivatives: what both have in common is written once where both are wanted."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .exp_log import EXP_SHORT, clamp, expm1_reduced, reduce_exp
from .hyperbolic import tanh
from .scaling import FORMATS, power_of_two
from .special import erf_tail, erfc

#: from here on e**-u**2 is taken as 0: it is no normal number, and the power of two that belongs to it has no bits set
_DENSITY_LAST = {"f32": 9.385, "f64": 26.629}
#: beyond, the tanh of gelu_tanh is 1
_TANH_LAST = 10.0
_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def gelu(b: VectorBuilder, x: Value) -> Value:
    """x Phi(x)."""
    return b.mul(x, _normal_distribution(b, x))


def gelu_slope(b: VectorBuilder, x: Value) -> Value:
    """Phi(x) + x phi(x)."""
    dtype = x.dtype
    last = _DENSITY_LAST[dtype]
    u = clamp(b, _scaled(b, x), -last, last)
    reduced = reduce_exp(b, b.neg(b.mul(u, u)))
    e = expm1_reduced(b, reduced, EXP_SHORT)
    form = FORMATS[dtype]
    s = power_of_two(b, b.add(reduced.n, b.const(form.magic + form.bias, dtype)))
    density = b.mul(b.fma(e, s, s), b.const(1 / math.sqrt(math.pi), dtype))
    return b.fma(u, density, _normal_distribution(b, x))


def _scaled(b: VectorBuilder, x: Value) -> Value:
    return b.mul(x, b.const(math.sqrt(0.5), x.dtype))


def _normal_distribution(b: VectorBuilder, x: Value) -> Value:
    """Phi(x) = erfc(-x / sqrt(2)) / 2, small where x is far below 0."""
    half, u = b.const(0.5, x.dtype), _scaled(b, x)
    if x.dtype != "f32":
        return b.mul(half, erfc(b, b.neg(u)))
    size = b.abs(u)
    near, tail, is_near = erf_tail(b, u, size)
    below = b.mul(half, b.select(b.cmp("gt", size, b.const(4, "f32")), b.const(0, "f32"), tail))
    above = b.sub(b.const(1, "f32"), below)
    far = b.select(b.cmp("lt", u, b.const(0, "f32")), below, above)
    return b.select(is_near, b.fma(near, half, half), far)


def gelu_tanh(b: VectorBuilder, x: Value) -> Value:
    """x (1 + tanh(w)) / 2, w = sqrt(2/pi) (x + 0.044715 x**3)."""
    half = b.const(0.5, x.dtype)
    return b.mul(x, b.fma(_tanh_of_cubic(b, x)[0], half, half))


def gelu_tanh_slope(b: VectorBuilder, x: Value) -> Value:
    """(1 + t) / 2 + x (1 - t**2) w' / 2, t = tanh(w)."""
    dtype = x.dtype
    half, one = b.const(0.5, dtype), b.const(1, dtype)
    t, near, square = _tanh_of_cubic(b, x)
    slope = b.fma(square, b.const(1.5 * _TANH_SCALE * _TANH_CUBE, dtype), b.const(0.5 * _TANH_SCALE, dtype))
    rest = b.mul(b.sub(one, t), b.add(one, t))
    return b.fma(b.mul(near, rest), slope, b.fma(t, half, half))


def _tanh_of_cubic(b: VectorBuilder, x: Value) -> tuple[Value, Value, Value]:
    """tanh(w), and the x from which it is computed, with its square."""
    near = clamp(b, x, -_TANH_LAST, _TANH_LAST)
    square = b.mul(near, near)
    cubic = b.fma(square, b.const(_TANH_SCALE * _TANH_CUBE, x.dtype), b.const(_TANH_SCALE, x.dtype))
    return tanh(b, b.mul(near, cubic)), near, square
