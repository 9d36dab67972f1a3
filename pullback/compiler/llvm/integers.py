"""Integer division, powers and shifts with NumPy's results, none of which may trap.

A vector division of integers is one scalar division a lane, and the processor's faults on 0 and on the most negative
number by -1. Narrow integers are divided as floats instead, which is exact.
"""

from __future__ import annotations

from .builder import VectorBuilder
from .values import BITS, LLVM_TYPE, Value, is_signed


def floor_divide(b: VectorBuilder, x: Value, y: Value) -> Value:
    """Rounded down; by zero 0; the most negative number by -1 wraps to itself."""
    quotient, _, by_zero = _divide(b, x, y)
    return b.select(by_zero, b.const(0, x.dtype), quotient)


def remainder(b: VectorBuilder, x: Value, y: Value) -> Value:
    """x - floor(x/y)*y, with the sign of y; by zero 0."""
    quotient, divisor, by_zero = _divide(b, x, y)
    return b.select(by_zero, b.const(0, x.dtype), b.sub(x, b.mul(quotient, divisor)))


def _divide(b: VectorBuilder, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """(floor(x / divisor), divisor, where y is 0); the divisor is y, or 1 where dividing by y would fault."""
    dtype = x.dtype
    one = b.const(1, dtype)
    by_zero = b.cmp("eq", y, b.const(0, dtype))
    bad = by_zero
    if is_signed(dtype):
        lowest = b.cmp("eq", x, b.const(-1 << (BITS[dtype] - 1), dtype))
        bad = b.or_(bad, b.and_(lowest, b.cmp("eq", y, b.const(-1, dtype))))
    divisor = b.select(bad, one, y)
    if BITS[dtype] <= 32:
        # The float quotient of integers that it holds exactly is never rounded past an integer.
        wide = "f32" if BITS[dtype] <= 16 else "f64"
        quotient = b.cast(b.floor(b.fdiv(b.cast(x, wide), b.cast(divisor, wide))), dtype)
    elif is_signed(dtype):
        # x / -1 would fault for the lowest x only, and there the divisor is 1 and x itself the wrapped quotient.
        truncated = b.binary("sdiv", x, divisor)
        rest = b.sub(x, b.mul(truncated, divisor))
        down = b.and_(b.cmp("ne", rest, b.const(0, dtype)), b.cmp("lt", b.xor(rest, divisor), b.const(0, dtype)))
        quotient = b.add(truncated, b.pure(f"sext {b.typed(down)} to {b.type(dtype)}", dtype))
    else:
        quotient = b.binary("udiv", x, divisor)
    return quotient, divisor, by_zero


def reciprocal(b: VectorBuilder, x: Value) -> Value:
    """1/x rounded toward zero; of zero 0."""
    result = b.select(b.cmp("eq", x, b.const(1, x.dtype)), x, b.const(0, x.dtype))
    return b.select(b.cmp("eq", x, b.const(-1, x.dtype)), x, result) if is_signed(x.dtype) else result


def power(b: VectorBuilder, x: Value, y: Value) -> Value:
    """x**y modulo the width, by squaring; a negative exponent gives 1/x**|y| rounded toward zero (of 0: 0)."""
    dtype = x.dtype
    vector, scalar, width = b.type(dtype), LLVM_TYPE[dtype], b.width
    name = f"pullback.ipow.v{width}{scalar}"
    reduce = f"llvm.vector.reduce.or.v{width}{scalar}"
    b.declare(reduce, scalar, vector)
    mask = f"<{width} x i1>"
    definition = f"""define internal {vector} @{name}({vector} %x, {vector} %y) {{
entry:
  br label %loop
loop:
  %base = phi {vector} [ %x, %entry ], [ %square, %loop ]
  %exponent = phi {vector} [ %y, %entry ], [ %next, %loop ]
  %result = phi {vector} [ splat ({scalar} 1), %entry ], [ %updated, %loop ]
  %odd = trunc {vector} %exponent to {mask}
  %product = mul {vector} %result, %base
  %updated = select {mask} %odd, {vector} %product, {vector} %result
  %square = mul {vector} %base, %base
  %next = lshr {vector} %exponent, splat ({scalar} 1)
  %left = call {scalar} @{reduce}({vector} %next)
  %more = icmp ne {scalar} %left, 0
  br i1 %more, label %loop, label %done
done:
  ret {vector} %updated
}}"""
    if not is_signed(dtype):
        return Value(b.call_helper(name, vector, definition, b.typed(x), b.typed(y)), dtype)
    negative = b.cmp("lt", y, b.const(0, dtype))
    base = b.select(negative, reciprocal(b, x), x)
    exponent = b.abs(y)  # only whether it is odd matters for the bases -1, 0 and 1 that a negative one leaves
    return Value(b.call_helper(name, vector, definition, b.typed(base), b.typed(exponent)), dtype)


def left_shift(b: VectorBuilder, x: Value, y: Value) -> Value:
    """0 where the distance is negative or at least the width."""
    distance, inside = _distance(b, y)
    return b.select(inside, b.shl(x, b.bitcast(distance, x.dtype)), b.const(0, x.dtype))


def right_shift(b: VectorBuilder, x: Value, y: Value) -> Value:
    """Copies of the sign bit where the distance is negative or at least the width."""
    distance, inside = _distance(b, y)
    shifted = b.shr(x, b.bitcast(distance, x.dtype))
    rest = b.shr(x, b.const(BITS[x.dtype] - 1, x.dtype)) if is_signed(x.dtype) else b.const(0, x.dtype)
    return b.select(inside, shifted, rest)


def _distance(b: VectorBuilder, y: Value) -> tuple[Value, Value]:
    """A shift's distance made safe, as unsigned, and where it was safe already."""
    unsigned = Value(y.ref, "u" + y.dtype[1:])
    safe = b.and_(unsigned, b.const(BITS[y.dtype] - 1, unsigned.dtype))
    return safe, b.cmp("lt", unsigned, b.const(BITS[y.dtype], unsigned.dtype))
