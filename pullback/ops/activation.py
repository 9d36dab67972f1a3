"""Activations as ops of one operand, with derivatives that are ops of one operand, too.

So a gradient is one product of the cotangent with something that the forward pass knows, and a kernel of the forward
pass may leave that behind instead of what it is made of.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph.node import Node
from . import elementwise as e
from .family import FLOAT, Array, Unary, unary, unary_function

_SCALE, _CUBE = math.sqrt(2 / math.pi), 0.044715


def _normal(x: Array) -> tuple[Any, Any, Any]:
    """x, its normal distribution function and x times the density, in float64."""
    from scipy.special import ndtr

    x = x.astype(np.float64)
    near = np.clip(x, -40, 40)
    return x, ndtr(x), near * np.exp(-near * near / 2) / math.sqrt(2 * math.pi)


def _gelu(x: Array) -> Any:
    wide, share, _ = _normal(x)
    return wide * share


def _gelu_slope(x: Array) -> Any:
    _, share, rest = _normal(x)
    return share + rest


def _cubic(x: Array) -> tuple[Any, Any, Any]:
    """x near enough for tanh(w) not to be 1, w = sqrt(2/pi) (x + 0.044715 x**3) and its derivative, in float64."""
    near = np.clip(x.astype(np.float64), -20, 20)
    return near, _SCALE * (near + _CUBE * near**3), _SCALE * (1 + 3 * _CUBE * near**2)


def _gelu_tanh(x: Array) -> Any:
    return x.astype(np.float64) * 0.5 * (1 + np.tanh(_cubic(x)[1]))


def _gelu_tanh_slope(x: Array) -> Any:
    near, w, slope = _cubic(x)
    return 0.5 * (1 + np.tanh(w)) + 0.5 * near * slope / np.cosh(w) ** 2


def _gelu_curvature(x: Node) -> Node:
    """(2 - x**2) times the normal density."""
    square = e.square(x)
    density = e.multiply(1 / math.sqrt(2 * math.pi), e.exp(e.multiply(-0.5, square)))
    return e.strong_product(density, e.subtract(2, square))


def _gelu_tanh_curvature(x: Node) -> Node:
    """(1 - t**2) (w' + x w'' / 2 - x t w'**2), t = tanh(w)."""
    square = e.square(x)
    t = e.tanh(e.multiply(e.multiply(_SCALE, x), e.add(1, e.multiply(_CUBE, square))))
    slope = e.multiply(_SCALE, e.add(1, e.multiply(3 * _CUBE, square)))
    bend = e.multiply(3 * _SCALE * _CUBE, square)
    total = e.subtract(e.add(slope, bend), e.multiply(e.multiply(x, t), e.square(slope)))
    return e.strong_product(e.subtract(1, e.square(t)), total)


GELU = unary("gelu", _gelu, FLOAT, lambda y, x: (lambda: gelu_slope(x),), "x Phi(x), Phi the normal distribution", 25)
GELU_SLOPE = unary(
    "gelu_slope", _gelu_slope, FLOAT, lambda y, x: (lambda: _gelu_curvature(x),),
    "Phi(x) + x phi(x), the derivative of gelu", 40,
)
GELU_TANH = unary(
    "gelu_tanh", _gelu_tanh, FLOAT, lambda y, x: (lambda: gelu_tanh_slope(x),),
    "x (1 + tanh(w)) / 2, w = sqrt(2/pi) (x + 0.044715 x**3)", 20,
)
GELU_TANH_SLOPE = unary(
    "gelu_tanh_slope", _gelu_tanh_slope, FLOAT, lambda y, x: (lambda: _gelu_tanh_curvature(x),),
    "gelu_tanh's derivative", 25,
)

gelu: Unary = unary_function(GELU)
gelu_slope: Unary = unary_function(GELU_SLOPE)
gelu_tanh: Unary = unary_function(GELU_TANH)
gelu_tanh_slope: Unary = unary_function(GELU_TANH_SLOPE)
