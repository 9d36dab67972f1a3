"""Powers of two: the range reduction of exponentials and logarithms, and scaling that keeps subnormals.

Adding ``1.5 * 2**23`` (f32; ``2**52`` for f64) to a small number rounds it to an integer that then stands in the low
bits of the sum. One addition so gives the integer both as a float (after taking the constant away) and as bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..builder import VectorBuilder
from ..values import Value


class Format(NamedTuple):
    """A binary floating-point format."""

    integer: str  # integer register dtype of the same size
    mantissa: int  # explicit mantissa bits
    bias: int
    magic: float  # 1.5 * 2**mantissa
    minimum_normal: float


FORMATS = {
    "f32": Format("i32", 23, 127, 1.5 * 2.0**23, 2.0**-126),
    "f64": Format("i64", 52, 1023, 1.5 * 2.0**52, 2.0**-1022),
}


def bit_pattern(x: float, dtype: str) -> int:
    """The bits of a positive float."""
    return int(np.array(x, np.float32).view(np.int32) if dtype == "f32" else np.array(x).view(np.int64))


def power_of_two(b: VectorBuilder, shifted: Value) -> Value:
    """2**n, where ``shifted`` = n + magic + bias and -bias < n <= bias."""
    form = FORMATS[shifted.dtype]
    return b.bitcast(b.shl(b.bits(shifted), b.const(form.mantissa, form.integer)), shifted.dtype)


def biased_twice(b: VectorBuilder, n: Value) -> Value:
    """n + magic + 2*bias, from which ``half_powers`` starts."""
    form = FORMATS[n.dtype]
    return b.add(n, b.const(form.magic + 2 * form.bias, n.dtype))


def half_powers(b: VectorBuilder, shifted: Value, mantissa: float = 1) -> tuple[Value, Value]:
    """(2**floor(n/2), 2**ceil(n/2)), where ``shifted`` = n + magic + 2*bias: powers that do not overflow where the
    product does, nor vanish. ``mantissa`` 1.5 multiplies the first by it and gives for the second 1.5 / 2**ceil(n/2).
    """
    form = FORMATS[shifted.dtype]
    integer = form.integer
    bits = b.bits(shifted)
    if mantissa == 1:
        other = b.add(bits, b.const(1, integer))
    else:  # of -n
        other = b.sub(b.const(2 * bit_pattern(form.magic, shifted.dtype) + 4 * form.bias, integer), bits)

    def power(x: Value) -> Value:
        # The lowest bit of n would fall into the mantissa.
        exponent = b.and_(b.shl(x, b.const(form.mantissa - 1, integer)), b.const(-1 << form.mantissa, integer))
        if mantissa != 1:
            exponent = b.or_(exponent, b.const(1 << (form.mantissa - 1), integer))
        return b.bitcast(exponent, shifted.dtype)

    return power(bits), power(other)


def times_power_of_two(b: VectorBuilder, x: Value, n: Value) -> Value:
    """x * 2**n rounded once, for x in [0.5, 2) and integral n (a float) that may reach from below the least subnormal
    to above the largest number."""
    if has_scalef(b, x.dtype):
        return scalef(b, x, n)
    low, high = half_powers(b, biased_twice(b, n))
    return b.mul(b.mul(x, low), high)


def has_scalef(b: VectorBuilder, dtype: str) -> bool:
    return b.target.has_avx512 and b.width == (16 if dtype == "f32" else 8)


def scalef(b: VectorBuilder, x: Value, n: Value) -> Value:
    """AVX-512's instruction for x * 2**n."""
    kind, mask = ("ps", "i16") if x.dtype == "f32" else ("pd", "i8")
    name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
    vector = b.type(x.dtype)
    b.declare(name, vector, vector, vector, vector, mask, "i32")
    operands = f"{b.typed(x)}, {b.typed(n)}, {vector} zeroinitializer, {mask} -1, i32 4"
    return b.pure(f"call {vector} @{name}({operands})", x.dtype)


class Split(NamedTuple):
    """x = 2**exponent * mantissa."""

    mantissa: Value
    exponent: Value  # integral, as a float


def split_exponent(b: VectorBuilder, x: Value, lowest: float, normal: bool = False) -> Split:
    """Of a positive finite x: the mantissa in [lowest, 2*lowest) and the exponent; of other x, no matter what.

    lowest: between 0.5 and 1. normal: x is known not to be subnormal.
    """
    form = FORMATS[x.dtype]
    raised = x
    if not normal:
        tiny = b.cmp("lt", x, b.const(form.minimum_normal, x.dtype))
        raised = b.select(tiny, b.mul(x, b.const(2.0 ** (form.mantissa + 1), x.dtype)), x)
    bits = b.bits(raised)
    # Counted from ``lowest``, the exponent field rolls over where the mantissa reaches 2*lowest.
    offset = b.sub(bits, b.const(bit_pattern(lowest, x.dtype), form.integer))
    field = b.and_(offset, b.const(-(1 << form.mantissa), form.integer))
    mantissa = b.bitcast(b.sub(bits, field), x.dtype)
    zero = b.const(0, x.dtype)
    correction = zero if normal else b.select(tiny, b.const(-(form.mantissa + 1), x.dtype), zero)
    if x.dtype == "f32":
        exponent = b.fma(b.cast(field, "f32"), b.const(2.0**-23, "f32"), correction)
    else:  # AVX2 has no conversion from 64-bit integers: place the biased field in the low bits of 2**52
        biased = b.shr(b.bitcast(b.add(offset, b.const(1023 << 52, "i64")), "u64"), b.const(52, "u64"))
        placed = b.bitcast(b.or_(biased, b.const(0x433 << 52, "u64")), "f64")
        exponent = b.sub(placed, b.const(2.0**52 + 1023, "f64"))
        exponent = exponent if normal else b.add(exponent, correction)
    return Split(mantissa, exponent)
