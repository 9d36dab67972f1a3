"""Elementwise functions of one operand, with the array API's names and NumPy's besides (see elementwise.py)."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable

from .. import dtypes
from ..errors import ArgumentError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import leaf
from ..shapes import as_number
from ..tensor import Tensor
from .convert import ArrayLike, as_node, floating

#: of polygamma: the factorial and the powers of larger orders leave float64's range
_LARGEST_ORDER = 100


def node_of(x: ArrayLike, op: str) -> Node:
    """The node of an operand."""
    return x.node if isinstance(x, Tensor) else as_node(x, None, op)


def _float_unary(function: Callable[[Node], Node], x: ArrayLike, op: str) -> Tensor:
    node = node_of(x, op)
    return Tensor(function(node if node.dtype.kind == "f" else floating(node)))


def _numeric_unary(function: Callable[[Node], Node], x: ArrayLike, op: str) -> Tensor:
    return Tensor(function(node_of(x, op)))


# -- one operand, floating result --------------------------------------------------------------------------------------


def sqrt(x: ArrayLike, /) -> Tensor:
    """Square root; NaN below 0, and the derivative at 0 is infinite."""
    return _float_unary(ops.sqrt, x, "sqrt")


def rsqrt(x: ArrayLike, /) -> Tensor:
    """``1 / sqrt(x)``."""
    return _float_unary(ops.rsqrt, x, "rsqrt")


def cbrt(x: ArrayLike, /) -> Tensor:
    """Cube root, of negative numbers too."""
    return _float_unary(ops.cbrt, x, "cbrt")


def reciprocal(x: ArrayLike, /) -> Tensor:
    """``1 / x``."""
    return _float_unary(ops.reciprocal, x, "reciprocal")


def exp(x: ArrayLike, /) -> Tensor:
    """``e ** x``."""
    return _float_unary(ops.exp, x, "exp")


def exp2(x: ArrayLike, /) -> Tensor:
    """``2 ** x``."""
    return _float_unary(ops.exp2, x, "exp2")


def expm1(x: ArrayLike, /) -> Tensor:
    """``e ** x - 1``, accurate near 0."""
    return _float_unary(ops.expm1, x, "expm1")


def log(x: ArrayLike, /) -> Tensor:
    """Natural logarithm; -inf at 0, NaN below."""
    return _float_unary(ops.log, x, "log")


def log2(x: ArrayLike, /) -> Tensor:
    """Logarithm to base 2."""
    return _float_unary(ops.log2, x, "log2")


def log10(x: ArrayLike, /) -> Tensor:
    """Logarithm to base 10."""
    return _float_unary(ops.log10, x, "log10")


def log1p(x: ArrayLike, /) -> Tensor:
    """``log(1 + x)``, accurate near 0."""
    return _float_unary(ops.log1p, x, "log1p")


def sin(x: ArrayLike, /) -> Tensor:
    """Sine of radians."""
    return _float_unary(ops.sin, x, "sin")


def cos(x: ArrayLike, /) -> Tensor:
    """Cosine of radians."""
    return _float_unary(ops.cos, x, "cos")


def tan(x: ArrayLike, /) -> Tensor:
    """Tangent of radians."""
    return _float_unary(ops.tan, x, "tan")


def asin(x: ArrayLike, /) -> Tensor:
    """Inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1]."""
    return _float_unary(ops.asin, x, "asin")


def acos(x: ArrayLike, /) -> Tensor:
    """Inverse cosine, in [0, pi]; NaN outside [-1, 1]."""
    return _float_unary(ops.acos, x, "acos")


def atan(x: ArrayLike, /) -> Tensor:
    """Inverse tangent, in [-pi/2, pi/2]."""
    return _float_unary(ops.atan, x, "atan")


def sinh(x: ArrayLike, /) -> Tensor:
    """Hyperbolic sine."""
    return _float_unary(ops.sinh, x, "sinh")


def cosh(x: ArrayLike, /) -> Tensor:
    """Hyperbolic cosine."""
    return _float_unary(ops.cosh, x, "cosh")


def tanh(x: ArrayLike, /) -> Tensor:
    """Hyperbolic tangent."""
    return _float_unary(ops.tanh, x, "tanh")


def asinh(x: ArrayLike, /) -> Tensor:
    """Inverse hyperbolic sine."""
    return _float_unary(ops.asinh, x, "asinh")


def acosh(x: ArrayLike, /) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1."""
    return _float_unary(ops.acosh, x, "acosh")


def atanh(x: ArrayLike, /) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    return _float_unary(ops.atanh, x, "atanh")


def erf(x: ArrayLike, /) -> Tensor:
    """Error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to x."""
    return _float_unary(ops.erf, x, "erf")


def erfc(x: ArrayLike, /) -> Tensor:
    """``1 - erf(x)``, accurate for large x."""
    return _float_unary(ops.erfc, x, "erfc")


def sigmoid(x: ArrayLike, /) -> Tensor:
    """Logistic function ``1 / (1 + exp(-x))``, without overflow."""
    return _float_unary(ops.sigmoid, x, "sigmoid")


def erfinv(x: ArrayLike, /) -> Tensor:
    """Inverse of ``erf``: infinite at -1 and 1, NaN beyond."""
    return _float_unary(ops.erfinv, x, "erfinv")


def logit(x: ArrayLike, /, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of ``sigmoid``: infinite at 0 and 1, NaN outside.

    eps: ``x`` is first clipped to [eps, 1 - eps].
    """
    node = floating(node_of(x, "logit"))
    if eps is not None:
        edge = as_number(eps, "logit", "eps")
        node = ops.clip(node, edge, 1.0 - edge)
    return Tensor(ops.logit(node))


def sinc(x: ArrayLike, /) -> Tensor:
    """``sin(pi x) / (pi x)``, 1 at 0; its derivatives of every order are exact there too."""
    return _float_unary(ops.sinc, x, "sinc")


def lgamma(x: ArrayLike, /) -> Tensor:
    """Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2... The derivative is ``digamma``."""
    return _float_unary(ops.lgamma, x, "lgamma")


def digamma(x: ArrayLike, /) -> Tensor:
    """Derivative of ``lgamma``; at 0 minus infinity (at -0.0 infinity), at the negative integers NaN.

    The derivative is ``polygamma(1, x)``.
    """
    return _float_unary(ops.digamma, x, "digamma")


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """Derivative of ``digamma`` of order ``n``, a Python int from 0 (``digamma`` itself) to 100; ArgumentError beyond.

    It is (-1)**(n+1) n! zeta(n+1, x), infinite at 0, -1, -2... (Abramowitz and Stegun, 6.4.10).
    """
    if isinstance(n, builtins.bool) or not hasattr(n, "__index__"):
        raise ArgumentError(f"polygamma: the order n must be a Python int, got {type(n).__name__}")
    order = operator.index(n)
    if not 0 <= order <= _LARGEST_ORDER:
        raise ArgumentError(f"polygamma: the order n must be from 0 to {_LARGEST_ORDER}, got {order}")
    if order == 0:
        return digamma(x)
    return Tensor(ops.polygamma(floating(node_of(x, "polygamma")), order))


# -- one operand, same dtype -------------------------------------------------------------------------------------------


def negative(x: ArrayLike, /) -> Tensor:
    """``-x``; a bool tensor raises DTypeError, as in NumPy."""
    return _numeric_unary(ops.negative, x, "negative")


def positive(x: ArrayLike, /) -> Tensor:
    """``x`` itself."""
    return Tensor(node_of(x, "positive"))


def abs(x: ArrayLike, /) -> Tensor:
    """Absolute value; its derivative is sign(x), 0 at 0."""
    node = node_of(x, "abs")
    return Tensor(node if node.dtype.kind in "bu" else ops.abs(node))


def sign(x: ArrayLike, /) -> Tensor:
    """-1, 0 or 1; NaN stays NaN. The derivative is 0."""
    return _numeric_unary(ops.sign, x, "sign")


def square(x: ArrayLike, /) -> Tensor:
    """``x * x``."""
    return _numeric_unary(ops.square, x, "square")


def floor(x: ArrayLike, /) -> Tensor:
    """Largest integer not above x, in x's dtype."""
    return _numeric_unary(ops.floor, x, "floor")


def ceil(x: ArrayLike, /) -> Tensor:
    """Smallest integer not below x, in x's dtype."""
    return _numeric_unary(ops.ceil, x, "ceil")


def trunc(x: ArrayLike, /) -> Tensor:
    """Nearest integer towards 0, in x's dtype."""
    return _numeric_unary(ops.trunc, x, "trunc")


def frac(x: ArrayLike, /) -> Tensor:
    """``x - trunc(x)``, of x's sign; 0 for integers."""
    node = node_of(x, "frac")
    return Tensor(ops.subtract(node, ops.trunc(node)) if node.dtype.kind == "f" else leaf.zeros_like(node))


def round(x: ArrayLike, /, decimals: int = 0) -> Tensor:
    """Nearest number of ``decimals`` decimals, halves to even (as ``x * 10**decimals`` falls)."""
    node = node_of(x, "round")
    if decimals == 0:
        return Tensor(ops.round(node))
    if node.dtype.kind != "f":
        if decimals > 0:
            return Tensor(node)
        scale = 10**-decimals
        exact = ops.cast(node, dtypes.float64)
        return Tensor(ops.cast(ops.multiply(ops.round(ops.divide(exact, scale)), scale), node.dtype))
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return Tensor(ops.divide(ops.round(ops.multiply(node, scale)), scale))
    return Tensor(ops.multiply(ops.round(ops.divide(node, scale)), scale))


def isnan(x: ArrayLike, /) -> Tensor:
    """Whether each element is NaN."""
    return _float_test(ops.isnan, x, "isnan", False)


def isinf(x: ArrayLike, /) -> Tensor:
    """Whether each element is infinite."""
    return _float_test(ops.isinf, x, "isinf", False)


def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether each element is neither NaN nor infinite."""
    return _float_test(ops.isfinite, x, "isfinite", True)


def isposinf(x: ArrayLike, /) -> Tensor:
    """Whether each element is +inf."""
    return _float_test(lambda node: ops.equal(node, math.inf), x, "isposinf", False)


def isneginf(x: ArrayLike, /) -> Tensor:
    """Whether each element is -inf."""
    return _float_test(lambda node: ops.equal(node, -math.inf), x, "isneginf", False)


def _float_test(function: Callable[[Node], Node], x: ArrayLike, op: str, otherwise: bool) -> Tensor:
    node = node_of(x, op)
    return Tensor(function(node) if node.dtype.kind == "f" else leaf.full(node.shape, otherwise, dtypes.bool_))


def signbit(x: ArrayLike, /) -> Tensor:
    """Whether the sign bit is set, for -0.0 and NaN too."""
    node = node_of(x, "signbit")
    if node.dtype.kind != "f":
        return Tensor(ops.less(node, 0))
    return Tensor(ops.less(ops.copysign(leaf.ones_like(node), node), 0))


def logical_not(x: ArrayLike, /) -> Tensor:
    """Not x; numbers count as true unless they are 0."""
    node = node_of(x, "logical_not")
    return Tensor(ops.logical_not(node) if node.dtype.kind == "b" else ops.equal(node, 0))


def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """All bits flipped; logical not for bools."""
    return _numeric_unary(ops.bitwise_invert, x, "bitwise_invert")


def nan_to_num(x: ArrayLike, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN replaced by ``nan``, infinities by ``posinf`` and ``neginf`` (the dtype's largest numbers if None)."""
    node = node_of(x, "nan_to_num")
    if node.dtype.kind != "f":
        return Tensor(node)
    limit = dtypes.finfo(node.dtype).max
    result = node
    for where, given, name, default in (
        (ops.isnan(node), nan, "nan", 0.0), (ops.equal(node, math.inf), posinf, "posinf", limit),
        (ops.equal(node, -math.inf), neginf, "neginf", -limit),
    ):  # fmt: skip
        number = default if given is None else as_number(given, "nan_to_num", name)
        result = ops.where(where, float(number), result)
    return Tensor(result)


def deg2rad(x: ArrayLike, /) -> Tensor:
    """Degrees to radians."""
    return Tensor(ops.multiply(floating(node_of(x, "deg2rad")), math.pi / 180.0))


def rad2deg(x: ArrayLike, /) -> Tensor:
    """Radians to degrees."""
    return Tensor(ops.multiply(floating(node_of(x, "rad2deg")), 180.0 / math.pi))


# -- NumPy's names -----------------------------------------------------------------------------------------------------

absolute = abs
arcsin, arccos, arctan = asin, acos, atan
arcsinh, arccosh, arctanh = asinh, acosh, atanh
invert = bitwise_invert
degrees, radians = rad2deg, deg2rad
