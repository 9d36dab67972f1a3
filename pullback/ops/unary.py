"""Elementwise ops of one operand: signs, powers, exponentials, trigonometry, rounding and tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..graph.node import Node
from . import elementwise as e
from .family import (
    BITS,
    BITWISE,
    BOOL,
    BOOL_RESULT,
    FLOAT,
    NUMERIC,
    Unary,
    piecewise_constant,
    rounding_function,
    unary,
    unary_function,
)

# In a partial, y is the op's own output: reusing it costs nothing in a fused kernel.

# -- signs and powers --------------------------------------------------------------------------------------------------

NEGATIVE = unary("negative", np.negative, NUMERIC, lambda y, x: (-1,), "-x")
ABS = unary("abs", np.abs, NUMERIC, lambda y, x: (lambda: sign(x),), "|x|; derivative sign(x), 0 at 0")
SIGN = unary("sign", np.sign, NUMERIC, piecewise_constant("sign"), "-1, 0 or 1; NaN stays NaN")
SQUARE = unary("square", np.square, NUMERIC, lambda y, x: (lambda: e.multiply(2, x),), "x * x")
# A product would have two partials, each with its own guard against infinity: more work in every gradient of a cube.
CUBE = unary("cube", lambda x: x * x * x, NUMERIC, lambda y, x: (lambda: e.multiply(3, square(x)),), "x * x * x", 2)
RECIPROCAL = unary(
    "reciprocal", np.reciprocal, FLOAT, lambda y, x: (lambda: negative(square(y)),), "1 / x; derivative -y**2", 4
)
SQRT = unary("sqrt", np.sqrt, FLOAT, lambda y, x: (lambda: e.divide(0.5, y),), "x ** (1/2); derivative 1 / (2 y)", 4)
RSQRT = unary(
    "rsqrt", lambda x: 1 / np.sqrt(x), FLOAT, lambda y, x: (lambda: e.multiply(e.multiply(-0.5, y), square(y)),),
    "x ** (-1/2); derivative -y**3 / 2", 8,
)
CBRT = unary(
    # Not divided by the square, whose own derivative is 0 where x is: at 0 the second derivative would be NaN.
    "cbrt", np.cbrt, FLOAT, lambda y, x: (lambda: e.multiply(1 / 3, square(reciprocal(y))),),
    "x ** (1/3); derivative 1 / (3 y**2)", 20,
)

# -- exponentials and logarithms ---------------------------------------------------------------------------------------

EXP = unary("exp", np.exp, FLOAT, lambda y, x: (lambda: y,), "e ** x", 10)
EXP2 = unary("exp2", np.exp2, FLOAT, lambda y, x: (lambda: e.multiply(math.log(2), y),), "2 ** x", 10)
# y + 1 would lose every digit where x is far below 0.
EXPM1 = unary("expm1", np.expm1, FLOAT, lambda y, x: (lambda: exp(x),), "e ** x - 1, accurate near 0", 12)
LOG = unary("log", np.log, FLOAT, lambda y, x: (lambda: reciprocal(x),), "natural logarithm", 10)
LOG2 = unary("log2", np.log2, FLOAT, lambda y, x: (lambda: e.divide(1 / math.log(2), x),), "logarithm to base 2", 10)
LOG10 = unary(
    "log10", np.log10, FLOAT, lambda y, x: (lambda: e.divide(1 / math.log(10), x),), "logarithm to base 10", 10
)
LOG1P = unary(
    "log1p", np.log1p, FLOAT, lambda y, x: (lambda: reciprocal(e.add(1, x)),), "log(1 + x), accurate near 0", 12
)


def _sigmoid(x: Any) -> Any:
    from scipy.special import expit

    return expit(x)


def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _erfc(x: Any) -> Any:
    from scipy.special import erfc

    return erfc(x)


def _erfinv(x: Any) -> Any:
    from scipy.special import erfinv

    return erfinv(x)


def _logit(x: Any) -> Any:
    from scipy.special import logit

    return logit(x)


def _erf_slope(x: Node, factor: float) -> Node:
    return e.multiply(factor * 2 / math.sqrt(math.pi), exp(negative(square(x))))


SIGMOID = unary(
    "sigmoid", _sigmoid, FLOAT, lambda y, x: (lambda: e.multiply(y, e.subtract(1, y)),),
    "1 / (1 + e**-x); derivative y (1 - y)", 12,
)
ERF = unary("erf", _erf, FLOAT, lambda y, x: (lambda: _erf_slope(x, 1),), "error function; 2/sqrt(pi) e**-x**2", 20)
ERFC = unary("erfc", _erfc, FLOAT, lambda y, x: (lambda: _erf_slope(x, -1),), "1 - erf(x), accurate for large x", 25)
ERFINV = unary(
    "erfinv", _erfinv, FLOAT, lambda y, x: (lambda: e.multiply(math.sqrt(math.pi) / 2, exp(square(y))),),
    "inverse of erf; derivative sqrt(pi)/2 e**y**2", 40,
)
# The sum, not 1 / (x (1 - x)), whose own derivative at 0 and 1 is infinity times 0.
LOGIT = unary(
    "logit", _logit, FLOAT, lambda y, x: (lambda: e.add(reciprocal(x), reciprocal(e.subtract(1, x))),),
    "log(x / (1 - x)), inverse of sigmoid; derivative 1/x + 1/(1-x)", 20,
)

# -- trigonometry ------------------------------------------------------------------------------------------------------


# Its factor 1 - x is exact near 1, where 1 - x*x would cancel. A product of the factors would have two partials, one of
# which is 0 at 1: times the infinite slopes of asin and atanh there it would be NaN.
ONE_MINUS_SQUARE = unary(
    "one_minus_square", lambda x: (1 - x) * (1 + x), FLOAT, lambda y, x: (lambda: e.multiply(-2, x),),
    "(1 - x) (1 + x); derivative -2 x", 3,
)
SIN = unary("sin", np.sin, FLOAT, lambda y, x: (lambda: cos(x),), "sine of radians", 15)
COS = unary("cos", np.cos, FLOAT, lambda y, x: (lambda: negative(sin(x)),), "cosine of radians", 15)
TAN = unary("tan", np.tan, FLOAT, lambda y, x: (lambda: e.add(1, square(y)),), "tangent; derivative 1 + y**2", 20)
ASIN = unary(
    "asin", np.arcsin, FLOAT, lambda y, x: (lambda: rsqrt(one_minus_square(x)),), "inverse sine, in [-pi/2, pi/2]", 20
)
ACOS = unary(
    "acos", np.arccos, FLOAT, lambda y, x: (lambda: negative(rsqrt(one_minus_square(x))),),
    "inverse cosine, in [0, pi]", 20,
)
ATAN = unary(
    "atan", np.arctan, FLOAT, lambda y, x: (lambda: reciprocal(e.add(1, square(x))),), "inverse tangent", 20
)
SINH = unary("sinh", np.sinh, FLOAT, lambda y, x: (lambda: cosh(x),), "(e**x - e**-x) / 2", 15)
COSH = unary("cosh", np.cosh, FLOAT, lambda y, x: (lambda: sinh(x),), "(e**x + e**-x) / 2", 15)
TANH = unary("tanh", np.tanh, FLOAT, lambda y, x: (lambda: e.subtract(1, square(y)),), "derivative 1 - y**2", 15)
# 1 + x*x would overflow.
ASINH = unary("asinh", np.arcsinh, FLOAT, lambda y, x: (lambda: reciprocal(e.hypot(x, 1)),), "inverse of sinh", 20)
# Two roots, so that x < -1, where acosh is NaN, has a NaN slope as well.
ACOSH = unary(
    "acosh", np.arccosh, FLOAT,
    lambda y, x: (lambda: e.multiply(rsqrt(e.subtract(x, 1)), rsqrt(e.add(x, 1))),), "inverse of cosh", 20,
)
ATANH = unary(
    "atanh", np.arctanh, FLOAT, lambda y, x: (lambda: reciprocal(one_minus_square(x)),), "inverse of tanh", 20
)

# -- rounding, tests and bits ------------------------------------------------------------------------------------------

FLOOR = unary("floor", np.floor, FLOAT, piecewise_constant("floor"), "largest integer not above x")
CEIL = unary("ceil", np.ceil, FLOAT, piecewise_constant("ceil"), "smallest integer not below x")
ROUND = unary("round", np.rint, FLOAT, piecewise_constant("round"), "nearest integer, halves to even")
TRUNC = unary("trunc", np.trunc, FLOAT, piecewise_constant("trunc"), "nearest integer towards 0")
ISNAN = unary("isnan", np.isnan, FLOAT, BOOL_RESULT, "whether x is NaN", 1, dtypes.bool_)
ISINF = unary("isinf", np.isinf, FLOAT, BOOL_RESULT, "whether x is infinite", 1, dtypes.bool_)
ISFINITE = unary("isfinite", np.isfinite, FLOAT, BOOL_RESULT, "whether x is neither NaN nor infinite", 1, dtypes.bool_)
LOGICAL_NOT = unary("logical_not", np.logical_not, BOOL, BOOL_RESULT, "not x")
BITWISE_INVERT = unary("bitwise_invert", np.invert, BITS, BITWISE, "all bits of x flipped")

negative: Unary = unary_function(NEGATIVE)
abs: Unary = unary_function(ABS)
sign: Unary = unary_function(SIGN)
square: Unary = unary_function(SQUARE)
cube: Unary = unary_function(CUBE)
reciprocal: Unary = unary_function(RECIPROCAL)
sqrt: Unary = unary_function(SQRT)
rsqrt: Unary = unary_function(RSQRT)
cbrt: Unary = unary_function(CBRT)
exp: Unary = unary_function(EXP)
exp2: Unary = unary_function(EXP2)
expm1: Unary = unary_function(EXPM1)
log: Unary = unary_function(LOG)
log2: Unary = unary_function(LOG2)
log10: Unary = unary_function(LOG10)
log1p: Unary = unary_function(LOG1P)
sigmoid: Unary = unary_function(SIGMOID)
erf: Unary = unary_function(ERF)
erfc: Unary = unary_function(ERFC)
erfinv: Unary = unary_function(ERFINV)
logit: Unary = unary_function(LOGIT)
one_minus_square: Unary = unary_function(ONE_MINUS_SQUARE)
sin: Unary = unary_function(SIN)
cos: Unary = unary_function(COS)
tan: Unary = unary_function(TAN)
asin: Unary = unary_function(ASIN)
acos: Unary = unary_function(ACOS)
atan: Unary = unary_function(ATAN)
sinh: Unary = unary_function(SINH)
cosh: Unary = unary_function(COSH)
tanh: Unary = unary_function(TANH)
asinh: Unary = unary_function(ASINH)
acosh: Unary = unary_function(ACOSH)
atanh: Unary = unary_function(ATANH)
floor: Unary = rounding_function(FLOOR)
ceil: Unary = rounding_function(CEIL)
round: Unary = rounding_function(ROUND)
trunc: Unary = rounding_function(TRUNC)
isnan: Unary = unary_function(ISNAN)
isinf: Unary = unary_function(ISINF)
isfinite: Unary = unary_function(ISFINITE)
logical_not: Unary = unary_function(LOGICAL_NOT)
bitwise_invert: Unary = unary_function(BITWISE_INVERT)
