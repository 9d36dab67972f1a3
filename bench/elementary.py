"""The functions whose accuracy is measured: what computes each, to full precision and in wider arithmetic.

``exact`` is mpmath's. ``wide`` computes in the dtype of its arguments: float64 for the errors of float32. ``long`` says
whether it does so in long double as well, for the errors of float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from scipy import special

import pullback as pb

INF = math.inf
HALF_PI = math.pi / 2
#: the zero of digamma
DIGAMMA_ROOT = 1.4616321449683623
#: zeros of lgamma and digamma between the first poles
LGAMMA_ZEROS = (-2.4570247382208006, -2.7476826467274127, -3.1435808883499798, -3.955294284858598, -4.0393618397477)
DIGAMMA_ZEROS = (-0.5040830082644554, -1.5734984731623904, -2.6107208684441447, -3.6352933664369010)

Array = Any


@dataclass(frozen=True)
class Elementary:
    """A function of one or two numbers.

    domain: where it is real; poles within are left out by ``regular``.
    dense: the magnitudes among which most float32 arguments are chosen, since elsewhere the result hardly changes.
    special: arguments about which float64 ones are dense: zeros, poles, ends of the range, changes of form.
    bound: the error that no result may exceed, in ulp.
    floor: in float64 the unit is at least that of this number: for results that are differences of larger terms.
    """

    name: str
    call: Callable[..., Any]
    exact: Callable[..., Any]
    wide: Callable[..., Array]
    long: bool = True
    domain: tuple[float, float] = (-INF, INF)
    dense: tuple[float, float] = (2.0**-30, 2.0**30)
    special: tuple[float, ...] = ()
    bound: float = 2.0
    remark: str = ""
    whole_poles: bool = False
    arity: int = 1
    floor: float = 0.0
    accept: Callable[[Array, Array], Array] | None = None

    def regular(self, x: Array, y: Array | None = None) -> Array:
        """Where the function is real and finite, and this measurement looks."""
        if y is not None:
            inside = np.isfinite(x) & np.isfinite(y)
            return inside if self.accept is None else inside & self.accept(x, y)
        inside = np.isfinite(x) & (x >= self.domain[0]) & (x <= self.domain[1])
        if self.whole_poles:
            inside &= ~((x <= 0) & (x == np.rint(x)))
        return inside


def _of_pole(function: Callable[[Any], Any], poles: dict[float, float]) -> Callable[[Any], Any]:
    """mpmath's function, with its infinities."""

    def call(x: Any) -> Any:
        return mpmath.mpf(poles[float(x)]) if float(x) in poles else function(x)

    return call


def _erfc_exact(x: Any) -> Any:
    """Far out mpmath overflows; there the result is 0 or 2."""
    if abs(x) > 1e5:
        return mpmath.mpf(0 if x > 0 else 2)
    return mpmath.erfc(x)


def _lgamma_wide(x: Array) -> Array:
    """SciPy's real function loses digits near the zeros 1 and 2, the complex one does not."""
    near_zero = np.minimum(np.abs(x - 1), np.abs(x - 2)) < 0.1
    result = special.gammaln(x)
    result[near_zero] = special.loggamma(x[near_zero].astype(np.complex128)).real
    return np.where(np.isinf(x), INF, result)


def _lgamma_exact(x: Any) -> Any:
    return mpmath.loggamma(x) if x > 0 else mpmath.log(abs(mpmath.gamma(x)))


def _digamma_wide(x: Array) -> Array:
    return np.where(x == -INF, np.nan, special.psi(x))


def _trigamma_wide(x: Array) -> Array:
    """By reflection for negative numbers, recurrence up to 10, and the asymptotic series."""
    negative = x < 0
    size = np.where(negative, 1 - x, x)
    few = size < 10
    steps = np.where(few, size, 1)
    total = np.zeros_like(x)
    for k in range(10):
        total += 1 / np.square(steps + k)
    y = np.where(few, size + 10, size)
    inverse = 1 / np.square(y)
    series = np.zeros_like(x)
    for coefficient in (-691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = (series + coefficient) * inverse
    result = np.where(few, total, 0) + ((1 + series) / y + inverse / 2)
    rest = x[negative]
    rest = np.where(np.isinf(rest), 0, rest - np.rint(rest))
    result[negative] = (np.pi / np.sin(np.pi * rest)) ** 2 - result[negative]
    return result


def _trigamma_exact(x: Any) -> Any:
    """By reflection for negative numbers, else by recurrence to the asymptotic series; mpmath's takes seconds."""
    if x < 0:
        return (mpmath.pi / mpmath.sinpi(x)) ** 2 - _trigamma_exact(1 - x)
    total = mpmath.mpf(0)
    while x < 50:
        total += 1 / (x * x)
        x += 1
    inverse = 1 / (x * x)
    series = mpmath.fsum(mpmath.bernoulli(2 * k) * inverse**k for k in range(1, 24))
    return total + (1 + series) / x + inverse / 2


def _erfinv_exact(x: Any) -> Any:
    """One step of Halley's iteration, which triples SciPy's 15 digits."""
    size = abs(x)
    if size == 1:
        return mpmath.sign(x) * mpmath.inf
    if size < 1e-100:
        return x * mpmath.sqrt(mpmath.pi) / 2
    # float(1 - size) is exact near 1, where erfinv has lost the digits that erfcinv keeps.
    y = mpmath.mpf(float(special.erfinv(float(size)) if size < 0.9 else special.erfcinv(float(1 - size))))
    rest = mpmath.erf(y) - size if size < 0.5 else (1 - size) - mpmath.erfc(y)
    step = rest * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
    return mpmath.sign(x) * (y - step / (1 + y * step))


def _sinc_wide(x: Array) -> Array:
    n = np.rint(x)
    r = x - n
    sign = np.where(np.remainder(n, 2) == 1, -1, 1).astype(x.dtype)
    pi = np.asarray(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)).astype(x.dtype)
    return np.where(x == 0, 1, np.where(r == 0, 0, sign * np.sin(pi * r) / (pi * x)))


def _sigmoid_wide(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _logit_wide(x: Array) -> Array:
    """2*atanh(2x - 1) in the middle, where the quotient's rounding would count."""
    middle = (x > 0.25) & (x < 0.75)
    return np.where(middle, 2 * np.arctanh(np.where(middle, 2 * x - 1, 0)), np.log(x / (1 - x)))


def _logaddexp_exact(x: Any, y: Any) -> Any:
    x, y = max(x, y), min(x, y)
    return x + mpmath.log1p(mpmath.exp(y - x))


def _logaddexp2_exact(x: Any, y: Any) -> Any:
    x, y = max(x, y), min(x, y)
    return x + mpmath.log1p(mpmath.mpf(2) ** (y - x)) / mpmath.log(2)


def _cancels(x: Array, y: Array, reach: float) -> Array:
    """Where the larger number and the logarithm added to it have opposite signs and may cancel."""
    larger = np.maximum(x, y)
    return (larger < 0) & (larger > -reach)


def _polygamma1(x: Any) -> Any:
    return pb.polygamma(1, x)


def _exponential(name: str, low: float, high: float, exact: Any, wide: Any, *more: float) -> Elementary:
    """One that over- and underflows: at ``low`` and ``high`` in float32; ``more`` are the limits of float64."""
    top = max(abs(low), high)
    return Elementary(name, getattr(pb, name), exact, wide, dense=(2.0**-30, top), special=(low, high, *more))


FLOOR = "float64 in units of the last place of 1 where the result is below 1: near its zeros terms cancel"
_NEAR_TAIL = " near multiples of pi/2 included, to the largest number"
ELEMENTARY: tuple[Elementary, ...] = (
    _exponential("exp", -104, 89, mpmath.exp, np.exp, -745.13, -708.4, 709.78, 0.34657),
    _exponential("exp2", -150, 128, lambda x: mpmath.mpf(2) ** x, np.exp2, -1074.9, -1022, 1023.9, 0.5),
    _exponential("expm1", -17.5, 89, mpmath.expm1, np.expm1, -37.4, 709.78, 0.34657),
    Elementary("log", pb.log, mpmath.log, np.log, domain=(5e-324, INF), dense=(0, INF), special=(1.0, 0.7071, 1.4142)),
    Elementary("log2", pb.log2, lambda x: mpmath.log(x, 2), np.log2, domain=(5e-324, INF), dense=(0, INF),
               special=(1.0, 0.7071, 1.4142)),
    Elementary("log10", pb.log10, mpmath.log10, np.log10, domain=(5e-324, INF), dense=(0, INF),
               special=(1.0, 0.7071, 1.4142, 1000.0)),
    Elementary("log1p", pb.log1p, mpmath.log1p, np.log1p, domain=(-1 + 2.0**-53, INF), special=(-0.2929, 0.4142, -1.0)),
    Elementary("sin", pb.sin, mpmath.sin, np.sin, dense=(2.0**-14, INF), remark="arguments" + _NEAR_TAIL),
    Elementary("cos", pb.cos, mpmath.cos, np.cos, dense=(2.0**-14, INF), remark="arguments" + _NEAR_TAIL),
    Elementary("tan", pb.tan, mpmath.tan, np.tan, dense=(2.0**-14, INF), remark="arguments" + _NEAR_TAIL),
    Elementary("asin", pb.asin, mpmath.asin, np.arcsin, domain=(-1.0, 1.0), dense=(2.0**-14, 1.0),
               special=(0.5, 1.0, -0.5, -1.0)),
    Elementary("acos", pb.acos, mpmath.acos, np.arccos, domain=(-1.0, 1.0), dense=(2.0**-27, 1.0),
               special=(0.5, 1.0, -0.5, -1.0)),
    Elementary("atan", pb.atan, mpmath.atan, np.arctan, special=(0.41421356, 2.41421356, 1.0)),
    Elementary("sinh", pb.sinh, mpmath.sinh, np.sinh, dense=(2.0**-14, 90.0), special=(1.0, 710.47, 89.4)),
    Elementary("cosh", pb.cosh, mpmath.cosh, np.cosh, dense=(2.0**-14, 90.0), special=(710.47, 89.4)),
    Elementary("tanh", pb.tanh, mpmath.tanh, np.tanh, dense=(2.0**-14, 10.0), special=(19.06, 9.01)),
    Elementary("asinh", pb.asinh, mpmath.asinh, np.arcsinh, special=(1.0, 2.0**60)),
    Elementary("acosh", pb.acosh, mpmath.acosh, np.arccosh, domain=(1.0, INF), dense=(1.0, INF),
               special=(1.0, 2.0**60)),
    Elementary("atanh", pb.atanh, _of_pole(mpmath.atanh, {1.0: INF, -1.0: -INF}), np.arctanh, domain=(-1.0, 1.0),
               dense=(2.0**-14, 1.0), special=(0.5, 1.0, -1.0)),
    Elementary("sigmoid", pb.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), _sigmoid_wide, dense=(2.0**-30, 105.0),
               special=(-745.13, -708.4, 37.0, -104.0, 17.0)),
    Elementary("logit", pb.logit, _of_pole(lambda x: mpmath.log(x / (1 - x)), {0.0: -INF, 1.0: INF}), _logit_wide,
               domain=(0.0, 1.0), dense=(2.0**-126, 1.0), special=(0.5, 1.0)),
    Elementary("erf", pb.erf, mpmath.erf, special.erf, False, dense=(2.0**-14, 6.0),
               special=(0.927734375, 1.0, 5.9, 3.9)),
    Elementary("erfc", pb.erfc, _erfc_exact, special.erfc, False, dense=(2.0**-24, 10.4),
               special=(0.5, 1.0, 10.05, 26.5, 27.22, -5.8)),
    Elementary("erfinv", pb.erfinv, _erfinv_exact, special.erfinv, False, domain=(-1.0, 1.0), dense=(2.0**-14, 1.0),
               special=(0.5, 0.9990347, 1.0, -1.0)),
    Elementary("lgamma", pb.lgamma, _lgamma_exact, _lgamma_wide, False, domain=(5e-324, INF), dense=(2.0**-24, 2.0**24),
               special=(1.0, 2.0, 0.5, 7.5, 2.556e305), remark="x > 0, relative also near the zeros 1 and 2"),
    Elementary("lgamma, x < 0", pb.lgamma, _lgamma_exact, _lgamma_wide, False, domain=(-INF, -5e-324),
               dense=(2.0**-24, 2.0**24), whole_poles=True, special=(-1.0, -2.0, -10.0, *LGAMMA_ZEROS), floor=1.0,
               remark=FLOOR),
    Elementary("digamma", pb.digamma, mpmath.digamma, _digamma_wide, False, domain=(5e-324, INF),
               dense=(2.0**-24, 2.0**24), special=(1.0, 2.0, 3.0, 4.0, 5.0, DIGAMMA_ROOT),
               remark="x > 0, relative also near the zero 1.4616"),
    Elementary("digamma, x < 0", pb.digamma, mpmath.digamma, _digamma_wide, False, domain=(-INF, -5e-324),
               dense=(2.0**-24, 2.0**24), whole_poles=True, special=(-1.0, -2.0, -10.0, *DIGAMMA_ZEROS), floor=1.0,
               remark=FLOOR),
    Elementary("polygamma(1)", _polygamma1, _trigamma_exact, _trigamma_wide, False,
               dense=(2.0**-24, 2.0**24), whole_poles=True, special=(1.0, 2.0, -1.0, -2.0, -10.0)),
    Elementary("sinc", pb.sinc, lambda x: mpmath.sincpi(x), _sinc_wide, dense=(2.0**-14, 2.0**24),
               special=(0.4774648, 1.0, 2.0, 7.0, 1.5)),
    Elementary("sqrt", pb.sqrt, mpmath.sqrt, np.sqrt, domain=(0.0, INF), dense=(0, INF)),
    Elementary("rsqrt", pb.rsqrt, lambda x: 1 / mpmath.sqrt(x), lambda x: 1 / np.sqrt(x), domain=(5e-324, INF),
               dense=(0, INF)),
    Elementary("cbrt", pb.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), np.cbrt, dense=(0, INF)),
    Elementary("reciprocal", pb.reciprocal, lambda x: 1 / x, lambda x: 1 / x, dense=(0, INF)),
    Elementary("pow", pb.pow, mpmath.power, np.power, arity=2),
    Elementary("atan2", pb.atan2, mpmath.atan2, np.arctan2, arity=2),
    Elementary("hypot", pb.hypot, lambda x, y: mpmath.sqrt(x * x + y * y), np.hypot, arity=2),
    Elementary("logaddexp", pb.logaddexp, _logaddexp_exact, np.logaddexp, arity=2,
               accept=lambda x, y: ~_cancels(x, y, 1.5), remark="max(x, y) not between -1.5 and 0"),
    Elementary("logaddexp, cancelling", pb.logaddexp, _logaddexp_exact, np.logaddexp, arity=2, floor=1.0,
               accept=lambda x, y: _cancels(x, y, 1.5), remark="max(x, y) between -1.5 and 0; " + FLOOR),
    Elementary("logaddexp2", pb.logaddexp2, _logaddexp2_exact, np.logaddexp2, arity=2,
               accept=lambda x, y: ~_cancels(x, y, 2), remark="max(x, y) not between -2 and 0"),
    Elementary("logaddexp2, cancelling", pb.logaddexp2, _logaddexp2_exact, np.logaddexp2, arity=2, floor=1.0,
               accept=lambda x, y: _cancels(x, y, 2), remark="max(x, y) between -2 and 0; " + FLOOR),
)  # fmt: skip
BY_NAME = {function.name: function for function in ELEMENTARY}
