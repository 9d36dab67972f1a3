"""x = n * pi/2 + r with |r| <= pi/4, for the trigonometric functions.

Up to a limit, n times pi/2 is taken away in parts (Cody and Waite). Beyond, a lane at a time, the needed bits of 2/pi
are multiplied in integers (M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983), which is exact
for every number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..builder import VectorBuilder
from ..values import Value
from .rare import rare_lanes
from .scaling import FORMATS

#: pi/2 in parts, each but the last rounded to the dtype: for fused multiply-add
_FUSED = {
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
#: pi/2 in parts of 33 bits and a rest: products with n < 2**20 are exact
_SPLIT = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
#: the largest |x| that is reduced in parts
_LIMIT = {"f32": 71476.0, "f64": 800000.0}

#: 2/pi after 64 zero bits, most significant word first
_TWO_OVER_PI = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
)

_TABLE = ", ".join(f"i64 {word}" for word in _TWO_OVER_PI)
_LARGE = f"""@pullback.two_over_pi = internal constant [{len(_TWO_OVER_PI)} x i64] [{_TABLE}]
define internal {{ double, double, double }} @pullback.rem_pio2(double %x) noinline {{
  %bits = bitcast double %x to i64
  %field = lshr i64 %bits, 52
  %biased = and i64 %field, 2047
  %fraction = and i64 %bits, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  ; |x| = m * 2**(biased-1075); bits of 2/pi above the window give multiples of 4
  %first = add i64 %biased, -1013
  %word = lshr i64 %first, 6
  %shift = and i64 %first, 63
  %p0 = getelementptr i64, ptr @pullback.two_over_pi, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %q0 = load i64, ptr %p0
  %q1 = load i64, ptr %p1
  %q2 = load i64, ptr %p2
  %q3 = load i64, ptr %p3
  %w0 = call i64 @llvm.fshl.i64(i64 %q0, i64 %q1, i64 %shift)
  %w1 = call i64 @llvm.fshl.i64(i64 %q1, i64 %q2, i64 %shift)
  %w2 = call i64 @llvm.fshl.i64(i64 %q2, i64 %q3, i64 %shift)
  ; t = m*w mod 2**192, in units of 2**-190 quarter turns
  %m128 = zext i64 %m to i128
  %w1x = zext i64 %w1 to i128
  %w2x = zext i64 %w2 to i128
  %low = mul i128 %m128, %w2x
  %middle = mul i128 %m128, %w1x
  %top = mul i64 %m, %w0
  %carry = lshr i128 %low, 64
  %middle1 = add i128 %middle, %carry
  %topx = zext i64 %top to i128
  %tops = shl i128 %topx, 64
  ; the upper 128 bits of t: two of quadrant, then the fraction
  %t = add i128 %tops, %middle1
  %half = shl i128 1, 125
  %rounded = add i128 %t, %half
  %quadrant = lshr i128 %rounded, 126
  %whole = shl i128 %quadrant, 126
  %f = sub i128 %t, %whole
  %negative = icmp slt i128 %f, 0
  %minus = sub i128 0, %f
  %size = select i1 %negative, i128 %minus, i128 %f
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %normal = shl i128 %size, %zeros
  %upper = lshr i128 %normal, 64
  ; times pi/2, of which 64 bits are enough
  %product = mul i128 %upper, 14488038916154245685
  %hi128 = lshr i128 %product, 75
  %hi = trunc i128 %hi128 to i64
  %lo128 = lshr i128 %product, 22
  %lo64 = trunc i128 %lo128 to i64
  %lo = and i64 %lo64, 9007199254740991
  %hid = uitofp i64 %hi to double
  %lod = uitofp i64 %lo to double
  %z = trunc i128 %zeros to i64
  %e = sub i64 973, %z
  %scalebits = shl i64 %e, 52
  %scale = bitcast i64 %scalebits to double
  %lodown = fmul double %lod, 0x3CA0000000000000
  %r0 = fmul double %hid, %scale
  %r1 = fmul double %lodown, %scale
  %flipx = lshr i64 %bits, 63
  %flip = trunc i64 %flipx to i1
  %change = xor i1 %flip, %negative
  %r0n = fneg double %r0
  %r1n = fneg double %r1
  %high = select i1 %change, double %r0n, double %r0
  %tail = select i1 %change, double %r1n, double %r1
  %q = trunc i128 %quadrant to i64
  %qd = uitofp i64 %q to double
  %qn = fneg double %qd
  %n = select i1 %flip, double %qn, double %qd
  %s0 = insertvalue {{ double, double, double }} poison, double %high, 0
  %s1 = insertvalue {{ double, double, double }} %s0, double %tail, 1
  %s2 = insertvalue {{ double, double, double }} %s1, double %n, 2
  ret {{ double, double, double }} %s2
}}"""

#: the same for f32, where the high part must be a float
_LARGE_F32 = """define internal { double, double, double } @pullback.rem_pio2f(double %x) noinline {
  %s = call { double, double, double } @pullback.rem_pio2(double %x)
  %r = extractvalue { double, double, double } %s, 0
  %tail = extractvalue { double, double, double } %s, 1
  %single = fptrunc double %r to float
  %high = fpext float %single to double
  %lost = fsub double %r, %high
  %low = fadd double %lost, %tail
  %s0 = insertvalue { double, double, double } %s, double %high, 0
  %s1 = insertvalue { double, double, double } %s0, double %low, 1
  ret { double, double, double } %s1
}"""


class Reduced(NamedTuple):
    """x = n * pi/2 + r + tail; ``quadrant`` is n modulo 4 in the low bits of an integer."""

    r: Value
    tail: Value
    quadrant: Value


def reduce_half_pi(b: VectorBuilder, x: Value) -> Reduced:
    """NaN for infinite x."""
    dtype = x.dtype
    form = FORMATS[dtype]
    magic = b.const(form.magic, dtype)
    n = b.sub(b.fma(x, b.const(2 / math.pi, dtype), magic), magic)
    if b.target.has_fma:
        r, tail = _fused(b, x, n)
    elif dtype == "f64":
        r, tail = _split(b, x, n)
    else:
        wide, wide_n = b.cast(x, "f64"), b.cast(n, "f64")
        exact = b.sub(wide, b.mul(wide_n, b.const(_SPLIT[0], "f64")))
        exact = b.sub(exact, b.mul(wide_n, b.const(_SPLIT[1] + _SPLIT[2], "f64")))
        r = b.cast(exact, "f32")
        tail = b.cast(b.sub(exact, b.cast(r, "f64")), "f32")
    size = b.abs(x)
    needed = b.and_(
        b.cmp("gt", size, b.const(_LIMIT[dtype], dtype)), b.cmp("lt", size, b.const(math.inf, dtype))
    )
    b.declare("llvm.fshl.i64", "i64", "i64", "i64", "i64")
    b.declare("llvm.ctlz.i128", "i128", "i128", "i1")
    b.declares.setdefault("pullback.rem_pio2", _LARGE)
    name, text = ("pullback.rem_pio2", _LARGE) if dtype == "f64" else ("pullback.rem_pio2f", _LARGE_F32)
    r, tail, n = rare_lanes(b, name, text, (x,), (r, tail, n), needed)
    return Reduced(r, tail, b.bits(b.add(n, magic)))


def _fused(b: VectorBuilder, x: Value, n: Value) -> tuple[Value, Value]:
    first, second, third = (b.const(part, x.dtype) for part in _FUSED[x.dtype])
    close = b.fma(n, b.neg(first), x)  # exact
    product = b.mul(n, second)
    r = b.sub(close, product)
    lost = b.sub(b.sub(b.sub(close, r), product), b.fma(n, second, b.neg(product)))
    return r, b.fma(n, b.neg(third), lost)


def _split(b: VectorBuilder, x: Value, n: Value) -> tuple[Value, Value]:
    rest = b.sub(x, b.mul(n, b.const(_SPLIT[0], "f64")))  # exact
    tail = b.const(0, "f64")
    for part in _SPLIT[1:]:
        product = b.mul(n, b.const(part, "f64"))
        closer = b.sub(rest, product)
        tail = b.add(tail, b.sub(b.sub(rest, closer), product))
        rest = closer
    r = b.add(rest, tail)
    return r, b.add(b.sub(rest, r), tail)
