"""Errors in units in the last place (ulp), and the search for the largest.

The unit is the distance of the numbers of the dtype at the exact result; beyond the largest number it stays as it is
there, and an infinite result counts as the power of two that follows the largest number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from .elementary import Elementary

Array = Any
Run = Callable[..., Array]
#: how many of the largest errors are computed again to full precision
CANDIDATES = 256
#: the error of the wider arithmetic that is not looked into, in ulp
SLACK = 0.01
DIGITS = 40


@dataclass(frozen=True)
class Accuracy:
    """The errors of one function in one dtype: over how many points, the largest, where, and their mean."""

    function: str
    dtype: str
    points: int
    max_ulp: float
    where: tuple[float, ...]
    mean_ulp: float


def _edge(dtype: Any) -> tuple[int, int]:
    """(mantissa bits, largest exponent)."""
    return (23, 127) if dtype == np.float32 else (52, 1023)


def errors(got: Array, wanted: Array, floor: float = 0.0) -> Array:
    """In ulp of ``got``'s dtype, against ``wanted`` of a wider one; infinite where exactly one is NaN. The unit is at
    least that of ``floor``."""
    mantissa, top = _edge(got.dtype)
    lowest = max(1 - top, math.frexp(floor)[1] - 1) if floor else 1 - top
    wide = wanted.dtype.type
    limit = wide(2.0) ** (top + 1)
    if wanted.dtype == np.float64:  # the exponents as bits, which is fast
        fields = np.clip((wanted.view(np.int64) >> 52) & 0x7FF, 1023 + lowest, 1023 + top)
        inverse_unit = ((2046 + mantissa - fields) << 52).view(np.float64)
    else:
        _, exponent = np.frexp(np.where(np.isfinite(wanted), wanted, limit))
        inverse_unit = np.ldexp(wide(1), mantissa - np.clip(exponent - 1, lowest, top))
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(np.clip(got.astype(wide), -limit, limit) - np.clip(wanted, -limit, limit)) * inverse_unit
    undefined = np.isnan(distance)
    if undefined.any():
        agree = np.isnan(got) & np.isnan(wanted)
        distance = np.where(undefined, np.where(agree, 0, np.inf), distance)
    return distance


def exact_results(function: Elementary, arguments: tuple[Array, ...]) -> Array:
    """To 40 digits, as the nearest long doubles."""
    high, low, exponents = [], [], []
    with mpmath.workdps(DIGITS):
        for values in zip(*(a.tolist() for a in arguments), strict=True):
            value = function.exact(*map(mpmath.mpf, values))
            if mpmath.isinf(value) or mpmath.isnan(value):
                high.append(float(value))
                low.append(0)
                exponents.append(0)
                continue
            man, exp = value.man_exp
            shift = man.bit_length() - 64
            size = abs(int(man))
            size, exp = (size >> shift, exp + shift) if shift > 0 else (size, exp)
            sign = -1 if value < 0 else 1
            high.append(sign * (size >> 32))
            low.append(sign * (size & 0xFFFFFFFF))
            exponents.append(max(-40000, min(40000, exp)))
    mantissas = np.array(high, np.longdouble) * 2.0**32 + np.array(low, np.longdouble)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(mantissas, np.array(exponents, np.int32))


def measure(
    function: Elementary, dtype: Any, run: Run, chunks: Iterable[tuple[Array, ...]], exact: bool = False
) -> Accuracy:
    """The errors of ``run`` at the arguments; ``exact``: against mpmath at all of them, not only at the worst."""
    wide = np.float64 if dtype == np.float32 else np.longdouble
    unit_floor = 0.0 if dtype == np.float32 else function.floor
    points, total = 0, 0.0
    worst, places = np.zeros(0), [np.zeros(0, dtype) for _ in range(function.arity)]
    for arguments in chunks:
        got = run(*arguments)
        if exact:
            wanted = exact_results(function, arguments)
        else:
            with np.errstate(all="ignore"):
                wanted = function.wide(*(a.astype(wide) for a in arguments))
        error = errors(got, wanted, unit_floor).astype(np.float64)
        points += error.size
        total += float(error.sum())
        least = worst[-1] if worst.size == CANDIDATES else 0.0
        chosen = np.flatnonzero(error > least)
        if chosen.size > CANDIDATES:
            chosen = chosen[np.argpartition(-error[chosen], CANDIDATES)[:CANDIDATES]]
        worst = np.concatenate([worst, error[chosen]])
        order = np.argsort(-worst, kind="stable")[:CANDIDATES]
        worst = worst[order]
        places = [np.concatenate([p, a[chosen]])[order] for p, a in zip(places, arguments, strict=True)]
    if not worst.size:
        return Accuracy(function.name, dtype.__name__, points, 0.0, (0.0,) * function.arity, 0.0)
    if exact:
        best, place = float(worst[0]), tuple(float(p[0]) for p in places)
    else:
        best, place = _confirm(function, unit_floor, run, worst, places)
    return Accuracy(function.name, dtype.__name__, points, best, place, total / points)


def _confirm(
    function: Elementary, floor: float, run: Run, worst: Array, places: list[Array]
) -> tuple[float, tuple[float, ...]]:
    """The largest error to full precision, among the candidates that it can be."""
    best, where = 0.0, tuple(float(p[0]) for p in places)
    for first in range(0, worst.size, 16):
        if worst[first] < best - SLACK:
            return best, where
        arguments = tuple(p[first : first + 16] for p in places)
        usable = np.isfinite(worst[first : first + 16])
        if not usable.all():  # NaN, or infinite where the result is not: nothing to measure
            index = int(np.argmin(usable))
            return float("inf"), tuple(float(a[index]) for a in arguments)
        error = errors(run(*arguments), exact_results(function, arguments), floor)
        index = int(np.argmax(error))
        if error[index] > best:
            best, where = float(error[index]), tuple(float(a[index]) for a in arguments)
    return best, where
