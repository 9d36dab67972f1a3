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


def power_of_two(b: VectorBuilder, shifted: Value) -> Value:
    """2**n, where ``shifted`` = n + magic + bias and -bias < n <= bias."""
    form = FORMATS[shifted.dtype]
    return b.bitcast(b.shl(b.bits(shifted), b.const(form.mantissa, form.integer)), shifted.dtype)


def three_halves_power_of_two(b: VectorBuilder, n: Value) -> Value:
    """1.5 * 2**n for an integral n (a float), -bias < n <= bias."""
    form = FORMATS[n.dtype]
    # In half units a last 1/2 lands in the top bit of the mantissa.
    shifted = b.add(n, b.const(form.magic / 2 + form.bias + 0.5, n.dtype))
    return b.bitcast(b.shl(b.bits(shifted), b.const(form.mantissa - 1, form.integer)), n.dtype)


def times_power_of_two(b: VectorBuilder, x: Value, n: Value) -> Value:
    """x * 2**n rounded once, for x in [0.5, 2) and integral n (a float) that may reach from below the least subnormal
    to above the largest number: x is scaled by half of n exactly, then by the rest."""
    form = FORMATS[x.dtype]
    if b.target.has_avx512 and b.width == (16 if x.dtype == "f32" else 8):
        return _scalef(b, x, n)
    magic = b.const(form.magic + form.bias, x.dtype)
    half = b.fma(n, b.const(0.5, x.dtype), magic)
    rest = b.add(b.sub(n, b.sub(half, magic)), magic)
    return b.mul(b.mul(x, power_of_two(b, half)), power_of_two(b, rest))


def _scalef(b: VectorBuilder, x: Value, n: Value) -> Value:
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


def split_exponent(b: VectorBuilder, x: Value, lowest: float) -> Split:
    """Of a positive finite x, subnormal or not: the mantissa in [lowest, 2*lowest) and the exponent; of other x, no
    matter what. ``lowest`` is between 0.5 and 1.
    """
    form = FORMATS[x.dtype]
    tiny = b.cmp("lt", x, b.const(form.minimum_normal, x.dtype))
    raised = b.select(tiny, b.mul(x, b.const(2.0 ** (form.mantissa + 1), x.dtype)), x)
    bits = b.bits(raised)
    # Counted from ``lowest``, the exponent field rolls over where the mantissa reaches 2*lowest.
    pattern = np.array(lowest, np.float32).view(np.int32) if x.dtype == "f32" else np.array(lowest).view(np.int64)
    offset = b.sub(bits, b.const(int(pattern), form.integer))
    field = b.and_(offset, b.const(-(1 << form.mantissa), form.integer))
    mantissa = b.bitcast(b.sub(bits, field), x.dtype)
    raise_exponent = b.select(tiny, b.const(-(form.mantissa + 1), x.dtype), b.const(0, x.dtype))
    if x.dtype == "f32":
        exponent = b.fma(b.cast(field, "f32"), b.const(2.0**-23, "f32"), raise_exponent)
    else:  # AVX2 has no conversion from 64-bit integers: place the biased field in the low bits of 2**52
        biased = b.shr(b.bitcast(b.add(offset, b.const(1023 << 52, "i64")), "u64"), b.const(52, "u64"))
        placed = b.bitcast(b.or_(biased, b.const(0x433 << 52, "u64")), "f64")
        exponent = b.add(b.sub(placed, b.const(2.0**52 + 1023, "f64")), raise_exponent)
    return Split(mantissa, exponent)
