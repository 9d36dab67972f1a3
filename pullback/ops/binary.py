"""Elementwise ops of two operands: arithmetic, comparison, logic, bits, and the engine's strong_multiply."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..graph.node import Node
from . import elementwise as e
from . import leaf
from .family import (
    ANY,
    BITS,
    BITWISE,
    BOOL,
    BOOL_RESULT,
    FLOAT,
    INTEGER,
    NUMERIC,
    Array,
    Binary,
    binary,
    binary_function,
    elementwise,
    infer_binary,
    piecewise_constant,
)
from .record import NoDerivative

# -- arithmetic --------------------------------------------------------------------------------------------------------


def _integer_power(x: Array, y: Array) -> Array:
    """x ** y of integers; a negative exponent truncates towards 0, as PyTorch does (2 ** -1 is 0, 1 ** -1 is 1)."""
    if y.dtype.kind == "u":
        return np.pow(x, y)
    magnitude = np.pow(x, np.maximum(y, 0))
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)).astype(x.dtype)
    return np.where(y < 0, inverse, magnitude)


def _power(x: Array, y: Array) -> Any:
    if x.dtype.kind in "iu":
        return _integer_power(x, y)
    # Of one exponent 1/2 NumPy takes the square root, which differs from pow at -inf and -0.
    return np.where(y == 0.5, np.where(x == -np.inf, np.inf, np.abs(np.pow(x, y))), np.pow(x, y))


def _pow_partials(z: Node, x: Node, y: Node) -> tuple[Any, Any]:
    exponent = y.attrs[0] if y.op is leaf.CONSTANT else None

    def by_base() -> Node:
        if exponent == 2:
            return e.multiply(2, x)
        if exponent == 3:
            return e.multiply(3, e.square(x))
        if exponent is not None:
            return e.multiply(exponent, pow(x, exponent - 1))
        # x ** -1 overflows where x is 0 or tiny, and y = 0 wins over it; but no test of y may cut the derivative by y.
        flat = logical_and(equal(x, 0), equal(y, 0))
        return e.where(flat, 0, strong_multiply(y, pow(x, subtract(y, 1))))

    def by_exponent() -> Node:
        flat = e.logical_and(equal(x, 0), greater_equal(y, 0))
        return e.where(flat, 0, multiply(z, e.log(x)))

    if exponent in (0, 1):
        return exponent or None, by_exponent
    return by_base, by_exponent


def _divide_partials(z: Node, x: Node, y: Node) -> tuple[Any, Any]:
    number = y.attrs[0] if y.op is leaf.CONSTANT else 0
    if number and math.isfinite(1 / number):
        return 1 / number, lambda: e.negative(divide(z, y))
    return lambda: e.reciprocal(y), lambda: e.negative(divide(z, y))


def _atan2_partials(z: Node, y: Node, x: Node) -> tuple[Any, Any]:
    def over_square(numerator: Node) -> Node:
        # Neither square may overflow or vanish, so both operands are scaled; the result does not depend on the scale.
        largest = maximum(e.abs(x), e.abs(y))
        usable = logical_and(e.isfinite(largest), not_equal(largest, 0))
        scale = e.stop_gradient(e.where(usable, largest, 1))
        square = add(e.square(divide(y, scale)), e.square(divide(x, scale)))
        return e.where(equal(largest, 0), 0, divide(divide(divide(numerator, scale), square), scale))

    return lambda: over_square(x), lambda: e.negative(over_square(y))


def _hypot_partials(z: Node, x: Node, y: Node) -> tuple[Any, Any]:
    def over_norm(operand: Node) -> Node:
        return e.where(equal(z, 0), 0, divide(operand, z))

    return lambda: over_norm(x), lambda: over_norm(y)


def _logaddexp_partials(factor: float) -> Any:
    """Partials of log(b**x + b**y) to base b = e**factor: the shares b**x and b**y have in their sum; of two equal
    infinities half each, of two -inf, which are the logarithm of nothing, 0."""

    def partials(z: Node, x: Node, y: Node) -> tuple[Any, Any]:
        def share(a: Node, b: Node) -> Node:
            level = logical_and(equal(a, b), e.isinf(a))
            gap = subtract(a, b)
            taken = e.sigmoid(gap if factor == 1 else multiply(factor, gap))
            return e.where(level, e.where(greater(a, 0), leaf.constant(0.5, a.dtype), 0), taken)

        return lambda: share(x, y), lambda: share(y, x)

    return partials


def _present_partials(wins: Any) -> Any:
    """Partials of fmax and fmin: 1 to the operand taken, half to each in a tie, nothing to a NaN beside a number."""

    def partials(z: Node, x: Node, y: Node) -> tuple[Any, Any]:
        def share(a: Node, b: Node) -> Node:
            taken = logical_or(wins(a, b), e.isnan(b))
            rest = e.where(taken, leaf.constant(1, x.dtype), leaf.constant(0, x.dtype))
            return e.where(equal(x, y), 0.5, rest)

        return lambda: share(x, y), lambda: share(y, x)

    return partials


def _choice_partials(loses: Any) -> Any:
    """Partials of maximum and minimum: 1 to the operand taken, half to each in a tie, 1 to both where one is NaN."""

    def partials(z: Node, x: Node, y: Node) -> tuple[Any, Any]:
        def share(a: Node, b: Node) -> Node:
            rest = e.where(loses(a, b), leaf.constant(0, x.dtype), leaf.constant(1, x.dtype))
            return e.where(equal(x, y), 0.5, rest)

        return lambda: share(x, y), lambda: share(y, x)

    return partials


ADD = binary("add", np.add, NUMERIC, lambda z, x, y: (1, 1), "x + y")
SUBTRACT = binary("subtract", np.subtract, NUMERIC, lambda z, x, y: (1, -1), "x - y")
MULTIPLY = binary("multiply", np.multiply, NUMERIC, lambda z, x, y: (lambda: y, lambda: x), "x * y")
DIVIDE = binary("divide", np.divide, FLOAT, _divide_partials, "x / y; derivative by y: -z / y", 4)
FLOOR_DIVIDE = binary(
    "floor_divide", np.floor_divide, NUMERIC, piecewise_constant("floor_divide"),
    "floor(x / y) as Python; an integer divided by 0 is 0", 8,
)
REMAINDER = binary(
    "remainder", np.remainder, NUMERIC, lambda z, x, y: (1, lambda: e.negative(floor_divide(x, y))),
    "x - floor(x / y) * y, of y's sign; an integer by 0 is 0", 12,
)
# Of the quotient only its whole part counts: exact, where truncating x / y could round up to the next integer first.
FMOD = binary(
    "fmod", np.fmod, NUMERIC, lambda z, x, y: (1, lambda: e.negative(e.round(divide(subtract(x, z), y)))),
    "x - trunc(x / y) * y, of x's sign; an integer by 0 is 0", 12,
)
POW = binary(
    "pow", _power, NUMERIC, _pow_partials,
    "x ** y; derivatives y x**(y-1), exact at 0, and z log(x), 0 where x = 0 and y >= 0", 30,
)
ATAN2 = binary(
    "atan2", np.arctan2, FLOAT, _atan2_partials, "angle of the point (second, first operand); derivatives 0 at 0", 30
)
MAXIMUM = binary(
    "maximum", np.maximum, ANY, _choice_partials(lambda a, b: less(a, b)), "the larger; NaN wins; ties share evenly"
)
MINIMUM = binary(
    "minimum", np.minimum, ANY, _choice_partials(lambda a, b: greater(a, b)), "the smaller; NaN wins; ties share evenly"
)
FMAX = binary(
    "fmax", np.fmax, ANY, _present_partials(lambda a, b: greater(a, b)),
    "the larger; a number wins over NaN; ties share evenly", 2,
)
FMIN = binary(
    "fmin", np.fmin, ANY, _present_partials(lambda a, b: less(a, b)),
    "the smaller; a number wins over NaN; ties share evenly", 2,
)
HYPOT = binary(
    "hypot", np.hypot, FLOAT, _hypot_partials, "sqrt(x**2 + y**2) without overflow; derivatives x/z and y/z, 0 at 0", 10
)
LOGADDEXP = binary(
    "logaddexp", np.logaddexp, FLOAT, _logaddexp_partials(1),
    "log(e**x + e**y) without overflow; derivatives sigmoid(x - y) and sigmoid(y - x)", 25,
)
LOGADDEXP2 = binary(
    "logaddexp2", np.logaddexp2, FLOAT, _logaddexp_partials(math.log(2)),
    "log2(2**x + 2**y) without overflow; derivatives as of logaddexp, of x log(2) and y log(2)", 25,
)


def _nextafter(node: Node, x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        moved = np.nextafter(x, y)
        return np.where(x == y, y, moved).astype(node.dtype.numpy, copy=False)  # C's rule, which float16 lacks


NEXTAFTER = elementwise(
    "nextafter", infer_binary("nextafter", FLOAT), _nextafter,
    NoDerivative("it steps from one number that the dtype holds to the next"), 4, "the next number after x toward y",
)
COPYSIGN = binary(
    "copysign", np.copysign, FLOAT,
    lambda z, x, y: (lambda: e.multiply(e.sign(x), copysign(leaf.constant(1, x.dtype), y)), None),
    "|x| with y's sign; derivative by x: 1 or -1, 0 at 0",
)


def _strong_multiply(cotangent: Array, partial: Array) -> Any:
    return np.where(cotangent == 0, np.zeros((), cotangent.dtype), cotangent * partial)


STRONG_MULTIPLY = binary(
    "strong_multiply", _strong_multiply, FLOAT, lambda z, c, p: (lambda: p, lambda: c),
    "c * p, and 0 where c is 0 whatever p is (infinite and NaN too)", 2,
)


def _strong_product(x: Array, y: Array) -> Any:
    return np.where((x == 0) | (y == 0), np.zeros((), x.dtype), x * y)


# What the derivative of a strong_multiply multiplies with: either factor may then be a mask.
STRONG_PRODUCT = binary(
    "strong_product", _strong_product, FLOAT, lambda z, x, y: (lambda: y, lambda: x),
    "x * y, and 0 where either is 0 whatever the other is", 3,
)

# -- comparison, logic, bits -------------------------------------------------------------------------------------------

EQUAL = binary("equal", np.equal, ANY, BOOL_RESULT, "x == y", 1, dtypes.bool_)
NOT_EQUAL = binary("not_equal", np.not_equal, ANY, BOOL_RESULT, "x != y", 1, dtypes.bool_)
LESS = binary("less", np.less, ANY, BOOL_RESULT, "x < y", 1, dtypes.bool_)
LESS_EQUAL = binary("less_equal", np.less_equal, ANY, BOOL_RESULT, "x <= y", 1, dtypes.bool_)
GREATER = binary("greater", np.greater, ANY, BOOL_RESULT, "x > y", 1, dtypes.bool_)
GREATER_EQUAL = binary("greater_equal", np.greater_equal, ANY, BOOL_RESULT, "x >= y", 1, dtypes.bool_)
LOGICAL_AND = binary("logical_and", np.logical_and, BOOL, BOOL_RESULT, "x and y")
LOGICAL_OR = binary("logical_or", np.logical_or, BOOL, BOOL_RESULT, "x or y")
LOGICAL_XOR = binary("logical_xor", np.logical_xor, BOOL, BOOL_RESULT, "x != y")
BITWISE_AND = binary("bitwise_and", np.bitwise_and, BITS, BITWISE, "x & y")
BITWISE_OR = binary("bitwise_or", np.bitwise_or, BITS, BITWISE, "x | y")
BITWISE_XOR = binary("bitwise_xor", np.bitwise_xor, BITS, BITWISE, "x ^ y")
LEFT_SHIFT = binary("left_shift", np.left_shift, INTEGER, BITWISE, "x << y; 0 if y is not in [0, bits)")
RIGHT_SHIFT = binary(
    "right_shift", np.right_shift, INTEGER, BITWISE, "x >> y, arithmetic if signed; 0 or -1 if y is not in [0, bits)"
)

add: Binary = binary_function(ADD)
subtract: Binary = binary_function(SUBTRACT)
multiply: Binary = binary_function(MULTIPLY)
divide: Binary = binary_function(DIVIDE)
floor_divide: Binary = binary_function(FLOOR_DIVIDE)
remainder: Binary = binary_function(REMAINDER)
fmod: Binary = binary_function(FMOD)
pow: Binary = binary_function(POW)
atan2: Binary = binary_function(ATAN2)
maximum: Binary = binary_function(MAXIMUM)
minimum: Binary = binary_function(MINIMUM)
fmax: Binary = binary_function(FMAX)
fmin: Binary = binary_function(FMIN)
hypot: Binary = binary_function(HYPOT)
logaddexp: Binary = binary_function(LOGADDEXP)
logaddexp2: Binary = binary_function(LOGADDEXP2)
nextafter: Binary = binary_function(NEXTAFTER)
copysign: Binary = binary_function(COPYSIGN)
strong_multiply: Binary = binary_function(STRONG_MULTIPLY)
strong_product: Binary = binary_function(STRONG_PRODUCT)
equal: Binary = binary_function(EQUAL)
not_equal: Binary = binary_function(NOT_EQUAL)
less: Binary = binary_function(LESS)
less_equal: Binary = binary_function(LESS_EQUAL)
greater: Binary = binary_function(GREATER)
greater_equal: Binary = binary_function(GREATER_EQUAL)
logical_and: Binary = binary_function(LOGICAL_AND)
logical_or: Binary = binary_function(LOGICAL_OR)
logical_xor: Binary = binary_function(LOGICAL_XOR)
bitwise_and: Binary = binary_function(BITWISE_AND)
bitwise_or: Binary = binary_function(BITWISE_OR)
bitwise_xor: Binary = binary_function(BITWISE_XOR)
left_shift: Binary = binary_function(LEFT_SHIFT)
right_shift: Binary = binary_function(RIGHT_SHIFT)
