"""Activations of networks with their derivatives: what both have in common is written once where both are wanted."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .exp_log import EXP_SHORT, clamp, expm1_reduced, reduce_exp
from .hyperbolic import tanh
from .scaling import FORMATS, power_of_two
from .special import erfc

#: from here on e**(-x**2 / 2) is taken as 0: it is no normal number, and the power of two that belongs to it has no
#: bits set
_DENSITY_LAST = {"f32": 13.272, "f64": 37.659}
#: Phi(-x) e**(x**2 / 2) as a polynomial of x / (1 + _MILLS x), 0 <= x <= 13.3, off by 7e-8 of it at most (a weighted
#: least-squares fit, iterated to equal extremes, with the first coefficient held)
_MILLS = 0.3
_MILLS_RATIO = (
    0.5, -0.39894333481788635, 0.13032899796962738, -0.018931293860077858, -0.00036531544174067676,
    0.0002657009463291615, 8.542447176296264e-05, -2.986393701576162e-05, 2.4936011868703645e-06,
)  # fmt: skip
#: beyond, the tanh of gelu_tanh is 1
_TANH_LAST = 10.0
_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def gelu(b: VectorBuilder, x: Value) -> Value:
    """x Phi(x)."""
    return b.mul(x, _normal_distribution(b, x))


def gelu_slope(b: VectorBuilder, x: Value) -> Value:
    """Phi(x) + x phi(x)."""
    near, bell = _bell(b, x)
    density = b.mul(bell, b.const(1 / math.sqrt(2 * math.pi), x.dtype))
    return b.fma(near, density, _normal_distribution(b, x))


def _bell(b: VectorBuilder, x: Value) -> tuple[Value, Value]:
    """x, no further from 0 than where e**(-x**2 / 2) is 0, and that."""
    dtype = x.dtype
    near = clamp(b, x, -_DENSITY_LAST[dtype], _DENSITY_LAST[dtype])
    reduced = reduce_exp(b, b.mul(b.mul(near, near), b.const(-0.5, dtype)))
    e = expm1_reduced(b, reduced, EXP_SHORT)
    form = FORMATS[dtype]
    s = power_of_two(b, b.add(reduced.n, b.const(form.magic + form.bias, dtype)))
    return near, b.fma(e, s, s)


def _normal_distribution(b: VectorBuilder, x: Value) -> Value:
    """Phi(x), small where x is far below 0."""
    dtype = x.dtype
    if dtype != "f32":  # erfc(-x / sqrt(2)) / 2
        return b.mul(b.const(0.5, dtype), erfc(b, b.neg(b.mul(x, b.const(math.sqrt(0.5), dtype)))))
    near, bell = _bell(b, x)
    size, one = b.abs(near), b.const(1, dtype)
    place = b.fdiv(size, b.fma(size, b.const(_MILLS, dtype), one))
    below = b.mul(bell, b.polynomial(place, _MILLS_RATIO))
    return b.select(b.cmp("lt", x, b.const(0, dtype)), below, b.sub(one, below))


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
