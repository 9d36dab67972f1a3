"""The arguments at which accuracy is measured.

Of float32, bit patterns in equal steps with a random offset in each step, so that every exponent is met with mantissas
of every kind; of float64, random samples and those known to be hard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np

from .elementary import Elementary

Array = Any
#: numbers taken at a time: what is computed with them stays in the cache
CHUNK = 1 << 18
TRIGONOMETRIC = ("sin", "cos", "tan")


# -- float32 -----------------------------------------------------------------------------------------------------------


def _bits(x: float) -> int:
    return int(np.float32(min(x, 3.4028234e38)).view(np.uint32))


def _pattern_ranges(function: Elementary) -> list[tuple[int, int]]:
    """The bit patterns of dense arguments, as ranges with their ends."""
    low, high = function.dense
    start, stop = function.domain
    ranges = []
    if stop > 0:
        ranges.append((_bits(max(low, start, 0.0)), _bits(min(high, stop))))
    if start < 0:
        ranges.append(((1 << 31) + _bits(max(low, -stop, 0.0)), (1 << 31) + _bits(min(high, -start))))
    return ranges


def float32_arguments(function: Elementary, count: int) -> Iterator[tuple[Array, ...]]:
    """Chunks of about ``count`` arguments: seven eighths dense, the rest of all numbers, infinities included."""
    if function.arity == 2:
        rng = np.random.default_rng(11)
        for _ in range(max(1, count // CHUNK)):
            yield random_pairs(function, rng, min(count, CHUNK), np.float32)
        return
    everything = [(0, 0x7F800000), (1 << 31, 0xFF800000)]
    for share, ranges in ((count - count // 8, _pattern_ranges(function)), (count // 8, everything)):
        total = sum(stop - start + 1 for start, stop in ranges)
        step = max(1.0, total / max(share, 1))
        rng = np.random.default_rng(10)
        for start, stop in ranges:
            steps = math.ceil((stop - start + 1) / step)
            for first in range(0, steps, CHUNK):
                k = np.arange(first, min(first + CHUNK, steps))
                offset = rng.random(k.size) if step > 1 else np.zeros(k.size)
                bits = np.minimum(start + ((k + offset) * step).astype(np.int64), stop)
                yield (bits.astype(np.uint32).view(np.float32),)


# -- float64 -----------------------------------------------------------------------------------------------------------


def _neighbours(x: Array) -> Array:
    """x and what is next to it on both sides."""
    return np.concatenate([x, np.nextafter(x, math.inf), np.nextafter(x, -math.inf)])


@cache
def near_multiples_of_half_pi() -> Array:
    """For every exponent, the doubles nearest to a multiple of pi/2: denominators of the continued fraction of
    2**e * 2/pi (after W. Kahan's program ``nearpi``)."""
    with mpmath.workprec(2400):
        two_over_pi = Fraction(int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, 2300))), 1 << 2300)
    found = []
    for e in range(-52, 972):
        ratio = two_over_pi * 2**e if e >= 0 else two_over_pi / 2**-e
        before, last = 0, 1
        while ratio.denominator > 1:
            ratio -= ratio.numerator // ratio.denominator
            if ratio == 0:
                break
            ratio = 1 / ratio
            before, last = last, before + (ratio.numerator // ratio.denominator) * last
            if last >= 1 << 53:
                break
            if last >= 1 << 40:
                found.append(math.ldexp(last * ((1 << 53) // last), e))
    return np.array(found)


def hard_arguments(function: Elementary) -> Array:
    """Powers of two, subnormals, numbers near 1 and near whatever is special for the function, with neighbours."""
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    subnormal = np.array([1, 2, 3, 5, 1000, 2**52 - 1, 2**52, 2**52 + 1, 3 * 2**50]) * 5e-324
    closeness = np.ldexp(1.0, -np.arange(1, 53))
    parts = [_neighbours(powers), subnormal, _neighbours(1 + closeness), _neighbours(1 - closeness)]
    for point in function.special:
        around = np.concatenate([point * (1 + closeness), point * (1 - closeness)])
        near = point + np.arange(-20, 21) * np.spacing(point)
        parts += [around, near, near, near]
    if function.name in TRIGONOMETRIC:
        hard = near_multiples_of_half_pi()
        parts += [hard, hard, _neighbours(np.arange(1, 2000) * (math.pi / 2))]
    x = np.concatenate([np.asarray(part, np.float64) for part in parts])
    x = np.concatenate([x, -x])
    return x[function.regular(x) & (x != 0)]


def random_arguments(function: Elementary, rng: np.random.Generator, count: int) -> Array:
    """Float64: uniform in the exponent over the dense magnitudes and over all, and uniform over moderate ones."""
    low, high = function.dense
    widest = max((abs(p) for p in function.special if math.isfinite(p)), default=0.0)
    low, high = max(low, 2.0**-1074), min(max(high, min(widest, 1e4)), 1.7e308)
    linear_end = min(high, 40.0)
    third = count // 3 + 1
    x = np.concatenate([
        np.exp2(rng.uniform(math.log2(low), math.log2(high), third)),
        np.exp2(rng.uniform(-1074, 1024, third)),
        rng.uniform(0, linear_end, third),
    ])  # fmt: skip
    x = x * rng.choice([-1, 1], x.size)
    start, stop = function.domain
    if math.isfinite(start) and math.isfinite(stop):
        x = np.concatenate([x, rng.uniform(start, stop, 2 * third)])
    else:
        x = np.where((x < start) | (x > stop), -x, x)
    x = x[function.regular(x)]
    return rng.permutation(x)[:count]


def float64_arguments(function: Elementary, count: int) -> tuple[Array, ...]:
    """``count`` arguments (fewer if there are not as many), half of them hard ones."""
    rng = np.random.default_rng(12)
    if function.arity == 2:
        return random_pairs(function, rng, count, np.float64)
    hard = rng.permutation(hard_arguments(function))[: count // 2]
    return (np.concatenate([hard, random_arguments(function, rng, count - hard.size)]),)


# -- pairs -------------------------------------------------------------------------------------------------------------


def random_pairs(function: Elementary, rng: np.random.Generator, count: int, dtype: Any) -> tuple[Array, Array]:
    """Pairs that make the function do something, and pairs of any numbers."""
    single = dtype is np.float32
    bits, bias = (24, 127) if single else (53, 1023)
    lowest, highest = -(bias + bits - 2), bias + 1
    half, quarter = count // 2, count // 4

    def spread(low: float, high: float, size: int) -> Array:
        return np.exp2(rng.uniform(low, high, size))

    with np.errstate(all="ignore"):
        if function.name == "pow":
            near_one = 1 + spread(-bits + 1, -1, quarter) * rng.choice([-1, 1], quarter)
            x = np.concatenate([spread(lowest, highest, half), near_one]).astype(dtype)
            logarithm = np.log2(x.astype(np.float64))
            y = rng.uniform(lowest - 3, highest + 1, x.size) / np.where(logarithm == 0, 1, logarithm)
            whole = rng.integers(-40, 41, count - x.size)
            x = np.concatenate([x, rng.uniform(-20, 20, whole.size)])
            y = np.concatenate([y, np.where(x[y.size :] < 0, whole, rng.uniform(-40, 40, whole.size))])
        elif function.name.endswith("cancelling"):
            x = rng.uniform(-2, 0, count)
            y = x - np.where(rng.random(count) < 0.5, rng.uniform(0, 3, count), spread(-20, 5, count))
        elif function.name.startswith("logaddexp"):
            x = np.concatenate([rng.uniform(-40, 40, half), spread(-40, 10, count - half)])
            x *= rng.choice([-1, 1], count)
            y = x + rng.uniform(-1, 1, count) * np.where(rng.random(count) < 0.5, 40, np.abs(x) + 1)
        else:
            exponent = rng.uniform(lowest, highest, count)
            other = np.where(rng.random(count) < 0.7, exponent + rng.uniform(-12, 12, count),
                             exponent + rng.uniform(-2 * bits, 2 * bits, count))  # fmt: skip
            x = np.exp2(exponent) * rng.choice([-1, 1], count)
            y = np.exp2(np.clip(other, lowest, highest)) * rng.choice([-1, 1], count)
        x, y = x.astype(dtype), y.astype(dtype)
    good = function.regular(x, y)
    x, y = x[good], y[good]
    if x.size == 0:
        raise ValueError(f"no pairs for {function.name}")
    return np.resize(x, count), np.resize(y, count)
