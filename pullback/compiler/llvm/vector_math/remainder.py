"""Remainder and floor division of floats, exact as in NumPy.

``fmod`` is exact for any operands, however large their quotient. Where every lane's quotient is small one division
and one fused multiply-subtract do it; else the rare lanes go one by one through long division of their mantissas.
"""

from __future__ import annotations

from ..builder import VectorBuilder
from ..values import Value
from .rare import rare_lanes

#: long division, eleven bits a step: (ma * 2**(ea-eb)) mod mb on 53-bit mantissas. x and y are finite, y is not 0.
_FMOD_SCALAR = """define internal { double } @pullback.fmod(double %x, double %y) noinline {
entry:
  %xs = bitcast double %x to i64
  %ys = bitcast double %y to i64
  %xb = and i64 %xs, 9223372036854775807
  %yb = and i64 %ys, 9223372036854775807
  %sign = and i64 %xs, -9223372036854775808
  %less = icmp ult i64 %xb, %yb
  br i1 %less, label %same, label %split
same:
  %r0 = insertvalue { double } poison, double %x, 0
  ret { double } %r0
split:
  %xe = lshr i64 %xb, 52
  %ye = lshr i64 %yb, 52
  %xf = and i64 %xb, 4503599627370495
  %yf = and i64 %yb, 4503599627370495
  %xn = icmp ne i64 %xe, 0
  %yn = icmp ne i64 %ye, 0
  %xi = select i1 %xn, i64 4503599627370496, i64 0
  %yi = select i1 %yn, i64 4503599627370496, i64 0
  %xm = or i64 %xf, %xi
  %ym = or i64 %yf, %yi
  %xe1 = call i64 @llvm.umax.i64(i64 %xe, i64 1)
  %ye1 = call i64 @llvm.umax.i64(i64 %ye, i64 1)
  %distance = sub i64 %xe1, %ye1
  %first = urem i64 %xm, %ym
  br label %loop
loop:
  %m = phi i64 [ %first, %split ], [ %reduced, %step ]
  %d = phi i64 [ %distance, %split ], [ %rest, %step ]
  %done = icmp eq i64 %d, 0
  br i1 %done, label %finish, label %step
step:
  %k = call i64 @llvm.umin.i64(i64 %d, i64 11)
  %shifted = shl i64 %m, %k
  %reduced = urem i64 %shifted, %ym
  %rest = sub i64 %d, %k
  br label %loop
finish:
  %zero = icmp eq i64 %m, 0
  br i1 %zero, label %nothing, label %normalise
nothing:
  %z = bitcast i64 %sign to double
  %r1 = insertvalue { double } poison, double %z, 0
  ret { double } %r1
normalise:
  %lead = call i64 @llvm.ctlz.i64(i64 %m, i1 true)
  %room = sub i64 %lead, 11
  %down = sub i64 %ye1, 1
  %up = call i64 @llvm.umin.i64(i64 %room, i64 %down)
  %mantissa = shl i64 %m, %up
  %exponent = sub i64 %down, %up
  %field = shl i64 %exponent, 52
  %bits = add i64 %field, %mantissa
  %signed = or i64 %bits, %sign
  %r = bitcast i64 %signed to double
  %r2 = insertvalue { double } poison, double %r, 0
  ret { double } %r2
}"""


def fmod(b: VectorBuilder, x: Value, y: Value) -> Value:
    """x - trunc(x/y)*y, exactly; NaN for infinite x or zero y."""
    dtype = x.dtype
    size, divisor = b.abs(x), b.abs(y)
    quotient = b.trunc(b.fdiv(size, divisor))
    # With few enough bits in the quotient the difference is exact and the quotient at most one too large.
    if b.target.has_fma:
        limit = 2.0**22 if dtype == "f32" else 2.0**51
        rest = b.fnma(quotient, divisor, size)
    elif dtype == "f32":
        limit = 2.0**22
        wide = b.sub(b.cast(size, "f64"), b.mul(b.cast(quotient, "f64"), b.cast(divisor, "f64")))
        rest = b.cast(wide, "f32")
    else:
        limit = 1.0  # the quotient is 0, or it takes the long way
        rest = size
    rest = b.select(b.cmp("lt", rest, b.const(0, dtype)), b.add(rest, divisor), rest)
    rest = b.select(b.cmp("lt", size, divisor), size, rest)  # an infinite divisor included
    finite = b.cmp("lt", size, b.const(float("inf"), dtype))
    usable = b.and_(finite, b.cmp("gt", divisor, b.const(0, dtype)))
    quick = b.select(usable, rest, b.const(float("nan"), dtype))
    needed = b.and_(usable, b.cmp("ge", quotient, b.const(limit, dtype)))
    for name in ("umin", "umax"):
        b.declare(f"llvm.{name}.i64", "i64", "i64", "i64")
    b.declare("llvm.ctlz.i64", "i64", "i64", "i1")
    (result,) = rare_lanes(b, "pullback.fmod", _FMOD_SCALAR, (size, divisor), (quick,), needed)
    return b.copysign(result, x)


def _divmod(b: VectorBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """(floor quotient before its final rounding, remainder), as NumPy computes them; y is not 0."""
    zero = b.const(0, x.dtype)
    rest = fmod(b, x, y)
    quotient = b.fdiv(b.sub(x, rest), y)
    nonzero = b.cmp("ne", rest, zero)
    differ = b.xor(b.cmp("lt", y, zero), b.cmp("lt", rest, zero))
    adjust = b.and_(nonzero, differ)
    quotient = b.select(adjust, b.sub(quotient, b.const(1, x.dtype)), quotient)
    rest = b.select(nonzero, b.select(adjust, b.add(rest, y), rest), b.copysign(zero, y))
    return quotient, rest


def remainder(b: VectorBuilder, x: Value, y: Value) -> Value:
    """x - floor(x/y)*y with the sign of y; NaN for zero y."""
    return _divmod(b, x, y)[1]


def floor_divide(b: VectorBuilder, x: Value, y: Value) -> Value:
    """floor(x/y) of the exact quotient; x/y for zero y."""
    zero = b.const(0, x.dtype)
    quotient, _ = _divmod(b, x, y)
    floor = b.floor(quotient)
    close = b.cmp("gt", b.sub(quotient, floor), b.const(0.5, x.dtype))
    floor = b.select(close, b.add(floor, b.const(1, x.dtype)), floor)
    ratio = b.fdiv(x, y)
    floor = b.select(b.cmp("eq", quotient, zero), b.copysign(zero, ratio), floor)
    return b.select(b.cmp("eq", y, zero), ratio, floor)
