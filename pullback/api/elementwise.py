"""Elementwise functions, with the array API's names and NumPy's besides; those of one operand stand in unary.py.

Operands may be tensors, NumPy arrays, Python numbers or nested lists; they are promoted (see dtypes.py) and broadcast
NumPy's way. Functions that leave the integers (``exp``, ``divide``...) give the default float dtype for integer
operands. All raise ShapeError for shapes that do not broadcast and DTypeError for dtypes without a meaning there.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, overload

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..graph.node import Node, bind
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops.record import Op
from ..ops.registry import by_name
from ..tensor import Tensor
from .convert import ArrayLike, binary, cast_node, floating, promote, scalar_node
from .unary import *  # noqa: F403 - this module has all elementwise functions
from .unary import node_of

_MAX_STATIC_EXPONENT = 8
_MISSING: Any = object()


# -- arithmetic of two operands ----------------------------------------------------------------------------------------

_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE = by_name("add"), by_name("subtract"), by_name("multiply"), by_name("divide")
_MAXIMUM, _MINIMUM = by_name("maximum"), by_name("minimum")
_FMAX, _FMIN = by_name("fmax"), by_name("fmin")


def _arithmetic(op: Op, on_bools: Callable[[Node, Node], Node], x1: ArrayLike, x2: ArrayLike) -> Tensor:
    a, b = promote(x1, x2, op=op.name)
    if a.dtype.kind == "b":
        return Tensor(on_bools(a, b))
    return Tensor(bind(op, (a, b), (), a.weak and b.weak))


def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 + x2``; logical or for bools."""
    return _arithmetic(_ADD, ops.logical_or, x1, x2)


def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 - x2``; two bool operands raise DTypeError, as in NumPy."""
    return binary(_SUBTRACT, x1, x2)


def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 * x2``; logical and for bools."""
    return _arithmetic(_MULTIPLY, ops.logical_and, x1, x2)


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 / x2``; integers give the default float dtype."""
    a, b = promote(x1, x2, op="divide")
    a, b = floating(a), floating(b)
    return Tensor(bind(_DIVIDE, (a, b), (), a.weak and b.weak))


def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``floor(x1 / x2)``; an integer divided by 0 gives 0, as in NumPy."""
    a, b = _not_bool(*promote(x1, x2, op="floor_divide"))
    return Tensor(ops.floor_divide(a, b))


def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 - x2 * floor(x1 / x2)``, with the sign of x2; an integer modulo 0 gives 0, as in NumPy."""
    a, b = _not_bool(*promote(x1, x2, op="remainder"))
    return Tensor(ops.remainder(a, b))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 - x2 * trunc(x1 / x2)``, exactly, with the sign of x1; an integer modulo 0 gives 0, as in NumPy.

    The derivative by x1 is 1, by x2 ``-trunc(x1 / x2)``.
    """
    a, b = _not_bool(*promote(x1, x2, op="fmod"))
    return Tensor(ops.fmod(a, b))


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """``(x1 // x2, x1 % x2)``."""
    return floor_divide(x1, x2), remainder(x1, x2)


def _not_bool(*nodes: Node) -> list[Node]:
    """NumPy divides bools as int8."""
    return [cast_node(n, dtypes.int8) if n.dtype.kind == "b" else n for n in nodes]


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 ** x2``.

    Python exponents that are whole and at most 8 in size become multiplications; 0.5 is ``sqrt`` and -0.5 ``rsqrt``, as
    in PyTorch (of -inf NaN, of -0.0 that zero and -inf; a tensor of exponents gives C's pow: inf, 0, 0 and inf there).
    An integer tensor to a negative Python exponent raises ArgumentError; write ``x.astype(pb.float32) ** -1``.
    """
    kind = type(x2)
    if (kind is int or kind is float) and not isinstance(x1, int | float):
        base = node_of(x1, "pow")
        if kind is int and base.dtype.kind in "biu":
            if x2 < 0:
                raise ArgumentError(
                    f"pow: Integers to negative integer powers are not allowed ({base.dtype.name}{list(base.shape)} to "
                    f"{x2}); cast first: x.astype(pb.float32) ** {x2}"
                )
            if base.dtype.kind == "b":
                base = cast_node(base, dtypes.int64)
            scalar_node(x2, base.dtype, op="pow")
        else:
            base = floating(base)
        if x2 == 0.5:
            return Tensor(ops.sqrt(base))
        if x2 == -0.5:
            return Tensor(ops.rsqrt(base))
        if builtins.abs(x2) <= _MAX_STATIC_EXPONENT and x2 == int(x2):
            return Tensor(_static_power(base, int(x2)))
        return Tensor(ops.pow(base, scalar_node(x2, base.dtype, weak=base.weak)))
    a, b = promote(x1, x2, op="pow")
    a, b = _not_bool(a, b)
    return Tensor(ops.pow(a, b))


def _static_power(base: Node, exponent: int) -> Node:
    """``base ** exponent`` by repeated squaring."""
    if exponent < 0:
        # Not the reciprocal of the power, whose derivative at 0 is infinity times 0.
        return _static_power(ops.reciprocal(base), -exponent)
    if exponent == 0:
        return leaf.ones_like(base)
    while not exponent & 1:
        base = ops.square(base)
        exponent >>= 1
    if exponent == 3:
        return ops.cube(base)
    result = factor = base
    exponent >>= 1
    while exponent:
        factor = ops.square(factor)
        if exponent & 1:
            result = ops.multiply(result, factor)
        exponent >>= 1
    return result


def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger of both, NaN if either is; at a tie each takes half of the gradient."""
    return _arithmetic(_MAXIMUM, ops.logical_or, x1, x2)


def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of both, NaN if either is; at a tie each takes half of the gradient."""
    return _arithmetic(_MINIMUM, ops.logical_and, x1, x2)


def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger of both, the other one where one is NaN; at a tie each takes half of the gradient."""
    return _arithmetic(_FMAX, ops.logical_or, x1, x2)


def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of both, the other one where one is NaN; at a tie each takes half of the gradient."""
    return _arithmetic(_FMIN, ops.logical_and, x1, x2)


def _float_pair(x1: ArrayLike, x2: ArrayLike, op: str) -> tuple[Node, Node]:
    a, b = promote(x1, x2, op=op)
    return floating(a), floating(b)


def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Angle of the point (x2, x1) in (-pi, pi]."""
    return Tensor(ops.atan2(*_float_pair(x1, x2, "atan2")))


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1`` with the sign of ``x2``."""
    return Tensor(ops.copysign(*_float_pair(x1, x2, "copysign")))


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The next number after ``x1`` that its dtype holds, toward ``x2``. It has no derivative: GradientError."""
    return Tensor(ops.nextafter(*_float_pair(x1, x2, "nextafter")))


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``sqrt(x1**2 + x2**2)`` without overflow; the gradient at (0, 0) is 0."""
    return Tensor(ops.hypot(*_float_pair(x1, x2, "hypot")))


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``log(exp(x1) + exp(x2))`` without overflow; of two -inf it is -inf, with gradient 0."""
    return Tensor(ops.logaddexp(*_float_pair(x1, x2, "logaddexp")))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``log2(2**x1 + 2**x2)`` without overflow; of two -inf it is -inf, with gradient 0."""
    return Tensor(ops.logaddexp2(*_float_pair(x1, x2, "logaddexp2")))


# -- comparison --------------------------------------------------------------------------------------------------------


def _compare(function: Callable[[Node, Node], Node], x1: ArrayLike, x2: ArrayLike, op: str, outcome: str) -> Tensor:
    """outcome: the result for "x1 below x2" and for "x1 above x2" ('tf' for less), where an integer tensor meets a
    Python int that its dtype cannot hold: such a comparison has an answer, as in NumPy."""
    try:
        a, b = promote(x1, x2, op=op)
    except OverflowError:
        left_is_number = isinstance(x1, int)
        number, tensor = (x1, x2) if left_is_number else (x2, x1)
        below = (number > 0) != left_is_number
        node = node_of(tensor, op)
        return Tensor(leaf.full(node.shape, outcome[0 if below else 1] == "t", dtypes.bool_))
    return Tensor(function(a, b))


def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 == x2``, elementwise; NaN equals nothing."""
    return _compare(ops.equal, x1, x2, "equal", "ff")


def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 != x2``, elementwise."""
    return _compare(ops.not_equal, x1, x2, "not_equal", "tt")


def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 < x2``, elementwise."""
    return _compare(ops.less, x1, x2, "less", "tf")


def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 <= x2``, elementwise."""
    return _compare(ops.less_equal, x1, x2, "less_equal", "tf")


def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 > x2``, elementwise."""
    return _compare(ops.greater, x1, x2, "greater", "ft")


def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 >= x2``, elementwise."""
    return _compare(ops.greater_equal, x1, x2, "greater_equal", "ft")


def isclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """``|x1 - x2| <= atol + rtol * |x2|``, elementwise; equal infinities are close."""
    a, b = _float_pair(x1, x2, "isclose")
    bound = ops.add(ops.multiply(ops.abs(b), float(rtol)), float(atol))
    near = ops.logical_and(ops.less_equal(ops.abs(ops.subtract(a, b)), bound), ops.isfinite(b))
    result = ops.logical_or(near, ops.equal(a, b))
    if equal_nan:
        result = ops.logical_or(result, ops.logical_and(ops.isnan(a), ops.isnan(b)))
    return Tensor(result)


# -- logic and bits ----------------------------------------------------------------------------------------------------


def truth(node: Node) -> Node:
    """``node`` as bools: whether each element differs from 0."""
    return node if node.dtype.kind == "b" else ops.not_equal(node, 0)


def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Both true; numbers count as true unless they are 0."""
    return Tensor(ops.logical_and(truth(node_of(x1, "logical_and")), truth(node_of(x2, "logical_and"))))


def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Either true; numbers count as true unless they are 0."""
    return Tensor(ops.logical_or(truth(node_of(x1, "logical_or")), truth(node_of(x2, "logical_or"))))


def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Exactly one true; numbers count as true unless they are 0."""
    return Tensor(ops.logical_xor(truth(node_of(x1, "logical_xor")), truth(node_of(x2, "logical_xor"))))


def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 & x2`` of integers or bools."""
    return binary(by_name("bitwise_and"), x1, x2)


def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 | x2`` of integers or bools."""
    return binary(by_name("bitwise_or"), x1, x2)


def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 ^ x2`` of integers or bools."""
    return binary(by_name("bitwise_xor"), x1, x2)


def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 << x2`` of integers; 0 for shifts by the width or more."""
    return binary(by_name("left_shift"), x1, x2)


def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 >> x2`` of integers, keeping the sign."""
    return binary(by_name("right_shift"), x1, x2)


# -- choosing ----------------------------------------------------------------------------------------------------------


@overload
def where(condition: ArrayLike, /) -> tuple[Tensor, ...]: ...


@overload
def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor: ...


def where(condition: ArrayLike, x1: ArrayLike = _MISSING, x2: ArrayLike = _MISSING, /) -> Tensor | tuple[Tensor, ...]:
    """``x1`` where ``condition`` holds, else ``x2``; the three broadcast. The branch not taken has gradient 0, always.

    condition: bool; numbers count as true unless they are 0.

    ``where(condition)`` alone is ``nonzero(condition)``: positions of what is true, an int64 tensor an axis.
    """
    if x1 is _MISSING and x2 is _MISSING:
        from .positions import nonzero  # which knows this module

        return nonzero(condition)
    if x1 is _MISSING or x2 is _MISSING:
        raise ArgumentError("where: either the condition alone or both x1 and x2, got one of them")
    a, b = promote(x1, x2, op="where")
    chooser = condition.node if condition.__class__ is Tensor else node_of(condition, "where")
    return Tensor(ops.where(chooser if chooser.dtype.kind == "b" else truth(chooser), a, b))


def bitcast(x: ArrayLike, dtype: Any, /) -> Tensor:
    """The bits of ``x`` read as ``dtype``, ``x.view(dtype)`` in NumPy; DTypeError for bool or another size.

    It has no derivative: GradientError.
    """
    return Tensor(ops.bitcast(node_of(x, "bitcast"), dtypes.as_dtype(dtype)))


def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """``x`` limited to ``min <= x <= max`` (either may be None); where min > max the result is max.

    The gradient on a bound is 1 (PyTorch's convention). A Python bound does not change x's dtype: a float bound of an
    integer tensor raises DTypeError.
    """
    node = node_of(x, "clip")
    dtype = node.dtype
    strong: list[Any] = [node]
    for bound in (min, max):
        if bound is not None and not isinstance(bound, int | float):
            strong.append(node_of(bound, "clip"))
    if len(strong) > 1:
        node = promote(*strong, op="clip")[0]
        dtype = node.dtype
    low = _bound(min, dtype, "min", False)
    high = _bound(max, dtype, "max", True)
    if dtype.kind == "b":
        return Tensor(ops.logical_and(ops.logical_or(node, low), high))
    return Tensor(ops.clip(node, low, high))


def _bound(bound: ArrayLike | None, dtype: DType, name: str, upper: bool) -> Node:
    if bound is None:
        if dtype.kind == "f":
            return scalar_node(float("inf") if upper else float("-inf"), dtype)
        if dtype.kind == "b":
            return scalar_node(upper, dtype)
        return scalar_node(dtypes.integer_limits(dtype)[upper], dtype)
    if type(bound) is int and dtype.kind in "iu":
        # A bound beyond the dtype's range never binds on one side and always on the other: NumPy's answer is the same.
        low, high = dtypes.integer_limits(dtype)
        return scalar_node(builtins.min(builtins.max(bound, low), high), dtype)
    if type(bound) is float and dtype.kind != "f":
        raise DTypeError(f"clip: {name}={bound} is a float, the tensor {dtype.name}; cast one of them")
    if isinstance(bound, int | float) and not isinstance(bound, Tensor):
        return scalar_node(bound, dtype)
    return cast_node(node_of(bound, "clip"), dtype)


# -- NumPy's names -----------------------------------------------------------------------------------------------------

arctan2 = atan2
power = pow
mod = remainder
true_divide = divide
left_shift, right_shift = bitwise_left_shift, bitwise_right_shift
