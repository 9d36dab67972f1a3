"""Numbers as unevaluated sums of two floats, for the steps that need more than a float's precision.

Algorithms of Dekker (1971) and Knuth; see Muller et al., "Handbook of Floating-Point Arithmetic", chapter 4.
"""

from __future__ import annotations

from typing import NamedTuple

from ..builder import VectorBuilder
from ..values import Value


class Pair(NamedTuple):
    """high + low, |low| at most about an ulp of high."""

    high: Value
    low: Value


def quick_two_sum(b: VectorBuilder, x: Value, y: Value) -> Pair:
    """x + y exactly, |x| >= |y|."""
    total = b.add(x, y)
    return Pair(total, b.sub(y, b.sub(total, x)))


def two_sum(b: VectorBuilder, x: Value, y: Value) -> Pair:
    """x + y exactly."""
    total = b.add(x, y)
    back = b.sub(total, x)
    return Pair(total, b.add(b.sub(x, b.sub(total, back)), b.sub(y, back)))


def two_product(b: VectorBuilder, x: Value, y: Value) -> Pair:
    """x * y exactly, unless it under- or overflows."""
    product = b.mul(x, y)
    if b.target.has_fma:
        return Pair(product, b.fma(x, y, b.neg(product)))
    xh, xl = _halves(b, x)
    yh, yl = _halves(b, y)
    low = b.sub(b.mul(xh, yh), product)
    low = b.add(b.add(b.add(low, b.mul(xh, yl)), b.mul(xl, yh)), b.mul(xl, yl))
    return Pair(product, low)


def _halves(b: VectorBuilder, x: Value) -> tuple[Value, Value]:
    """The upper half of x's mantissa, and the rest."""
    mask = -(1 << 12) if x.dtype == "f32" else -(1 << 27)
    high = b.bitcast(b.and_(b.bits(x), b.const(mask, "i32" if x.dtype == "f32" else "i64")), x.dtype)
    return high, b.sub(x, high)


def add_pairs(b: VectorBuilder, x: Pair, y: Pair) -> Pair:
    """x + y, |x| >= |y|."""
    total = quick_two_sum(b, x.high, y.high)
    return quick_two_sum(b, total.high, b.add(total.low, b.add(x.low, y.low)))


def multiply_pairs(b: VectorBuilder, x: Pair, y: Pair) -> Pair:
    product = two_product(b, x.high, y.high)
    cross = b.fma(x.high, y.low, b.fma(x.low, y.high, product.low))
    return quick_two_sum(b, product.high, cross)


def divide_pairs(b: VectorBuilder, x: Pair, y: Pair) -> Pair:
    """x / y: a quotient, and the remainder's share as its low part."""
    quotient = b.fdiv(x.high, y.high)
    product = two_product(b, quotient, y.high)
    rest = b.add(b.sub(b.sub(x.high, product.high), product.low), b.fnma(quotient, y.low, x.low))
    return Pair(quotient, b.fdiv(rest, y.high))
