"""The gamma function's logarithm and derivatives, and sinc with its derivatives: ops that come in ladders.

Each rung is the derivative of the one below: lgamma, digamma, polygamma(1), polygamma(2) and so on; sinc of order 0, 1,
2. So derivatives of every order keep their digits where a formula of quotients would cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape
from .family import FLOAT, Array, Unary, elementwise, infer_unary, unary, unary_function

# -- references --------------------------------------------------------------------------------------------------------


def _in_double(function: Callable[[Array], Any]) -> Callable[[Array], Array]:
    """float32 by way of float64, rounded once."""
    return lambda x: np.asarray(function(x.astype(np.float64))).astype(x.dtype)


def _lgamma(x: Array) -> Any:
    from scipy.special import gammaln, loggamma

    # The complex function keeps its digits near the zeros 1 and 2; C99's result is infinite at -inf too.
    near_zero = np.minimum(np.abs(x - 1), np.abs(x - 2)) < 0.1
    smooth = loggamma(np.where(near_zero, x, 1).astype(np.complex128)).real
    return np.where(np.isinf(x), np.inf, np.where(near_zero, smooth, gammaln(x)))


def _digamma(x: Array) -> Any:
    from scipy.special import psi

    return psi(x)


def _polygamma(node: Node, x: Array) -> Array:
    from scipy.special import zeta

    (order,) = node.attrs
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        value = zeta(order + 1.0, wide) * math.factorial(order)
    return np.asarray(value if order % 2 else -value).astype(node.dtype.numpy)


def _sinc(node: Node, x: Array) -> Array:
    """By recurrence in the order; of small x as the integral of pi**n * t**n * cos(pi*x*t + n*pi/2) over [0, 1]."""
    (order,) = node.attrs
    wide = np.atleast_1d(x.astype(np.float64))
    with np.errstate(all="ignore"):
        whole = np.rint(wide)
        rest = wide - whole
        sign = np.where(np.remainder(whole, 2) == 1, -1.0, 1.0)
        sine, cosine = sign * np.sin(np.pi * rest), sign * np.cos(np.pi * rest)
        z = np.pi * wide
        value = np.where(z == 0, 1, sine / z)
        for k in range(1, order + 1):
            value = ((sine, cosine, -sine, -cosine)[k % 4] - k * value) / z
        if order:
            nodes, weights = np.polynomial.legendre.leggauss(64)
            t, weights = (nodes + 1) / 2, weights / 2
            small = np.abs(z) < 8 + 2 * order
            inner = np.where(small, z, 0)[..., None] * t
            shifted = (np.sin if order % 2 else np.cos)(inner)  # of inner + order pi/2, up to a sign
            integral = (t**order * shifted) @ weights
            value = np.where(small, -integral if order % 4 in (1, 2) else integral, value)
        return (value * np.pi**order).reshape(node.shape).astype(node.dtype.numpy)


# -- the gamma function ------------------------------------------------------------------------------------------------

LGAMMA = unary(
    "lgamma", _in_double(_lgamma), FLOAT, lambda y, x: (lambda: digamma(x),),
    "log |gamma(x)|; derivative digamma(x)", 60,
)
DIGAMMA = unary(
    "digamma", _in_double(_digamma), FLOAT, lambda y, x: (lambda: polygamma(x, 1),),
    "derivative of lgamma; derivative polygamma(1, x)", 50,
)


def _infer_of_order(name: str) -> Callable[..., tuple[Shape, DType]]:
    infer = infer_unary(name, FLOAT)
    return lambda inputs, order: infer(inputs)


POLYGAMMA = elementwise(
    "polygamma", _infer_of_order("polygamma"), _polygamma,
    lambda y, x: (lambda: polygamma(x, y.attrs[0] + 1),), 80,
    "derivative of digamma, of an order of at least 1; derivative polygamma(order + 1, x)", ("order",),
)
SINC = elementwise(
    "sinc", _infer_of_order("sinc"), _sinc, lambda y, x: (lambda: sinc(x, y.attrs[0] + 1),), 40,
    "derivative, of an order of at least 0, of sin(pi x) / (pi x), which is 1 at 0", ("order",),
)

lgamma: Unary = unary_function(LGAMMA)
digamma: Unary = unary_function(DIGAMMA)


def polygamma(x: Node, order: int = 1) -> Node:
    """The derivative of ``digamma`` of this order, at least 1."""
    return bind(POLYGAMMA, (x,), (order,), x.weak)


def sinc(x: Node, order: int = 0) -> Node:
    """The derivative of this order (0: the function) of ``sin(pi x) / (pi x)``."""
    return bind(SINC, (x,), (order,), x.weak)
