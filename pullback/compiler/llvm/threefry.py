"""Threefry-2x32-20, the counter-based random function behind ``pullback.random``.

J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11; constants of Random123.
"""

from __future__ import annotations

from .builder import VectorBuilder
from .values import Value

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(b: VectorBuilder, key: Value, counter: Value) -> Value:
    """The 64 random bits of a 64-bit key and counter, both u64.

    The high word of each is its word 0; word 0 of the output is the high word of the result. The twenty rounds are a
    function of their own: a loop and its tail share them, and LLVM takes long over such a chain.
    """
    vector = b.type("u64")
    name = f"pullback.threefry.v{b.width}"
    if name not in b.declares:
        body = VectorBuilder(b.width, b.target, declares=b.declares)
        bits = _rounds(body, Value("%key", "u64"), Value("%counter", "u64"))
        lines = "\n".join(body.lines)
        b.declares[name] = f"""define internal {vector} @{name}({vector} %key, {vector} %counter) noinline {{
{lines}
  ret {vector} {bits.ref}
}}"""
    return Value(b.call_helper(name, vector, b.declares[name], b.typed(key), b.typed(counter)), "u64")


def _rounds(b: VectorBuilder, key: Value, counter: Value) -> Value:
    words = [*_split(b, key)]
    words.append(b.xor(b.xor(words[0], words[1]), b.const(_PARITY, "u32")))
    x0, x1 = _split(b, counter)
    x0, x1 = b.add(x0, words[0]), b.add(x1, words[1])
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            x0 = b.add(x0, x1)
            # As two shifts: LLVM finds the rotation, where there is one, in three quarters of the time.
            left, right = b.shl(x1, b.const(distance, "u32")), b.shr(x1, b.const(32 - distance, "u32"))
            x1 = b.xor(b.or_(left, right), x0)
        x0 = b.add(x0, words[(block + 1) % 3])
        x1 = b.add(x1, b.add(words[(block + 2) % 3], b.const(block + 1, "u32")))
    high = b.shl(b.cast(x0, "u64"), b.const(32, "u64"))
    return b.or_(high, b.cast(x1, "u64"))


def _split(b: VectorBuilder, x: Value) -> tuple[Value, Value]:
    """The high and the low word."""
    return b.cast(b.shr(x, b.const(32, "u64")), "u32"), b.cast(x, "u32")
