"""Elementwise functions made of several ops: choosing and mixing, steps and powers, products with a logarithm."""

from __future__ import annotations

from collections.abc import Callable

from .. import dtypes
from ..errors import DTypeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..shapes import broadcast_shapes
from ..tensor import Tensor
from .convert import ArrayLike, cast_node, floating, promote, scalar_node
from .unary import node_of

#: the kinds of dtypes by what they hold
_RANK = {"b": 0, "u": 1, "i": 1, "f": 2}


def _wide(node: Node) -> Node:
    """``node``, float16 and bfloat16 as float32, for a function of several steps that is rounded once."""
    return cast_node(node, dtypes.float32) if node.dtype in (dtypes.float16, dtypes.bfloat16) else node


# -- choosing and mixing -----------------------------------------------------------------------------------------------


def masked_fill(x: ArrayLike, mask: ArrayLike, value: ArrayLike, /) -> Tensor:
    """``value`` where ``mask`` holds, else ``x``, in x's dtype; the three broadcast.

    mask: bool; DTypeError for other dtypes. value: a number or a tensor; DTypeError if x's dtype is of a lower kind (a
    float into an integer tensor). What the mask covers gets no gradient, whatever it holds.
    """
    node, covered = node_of(x, "masked_fill"), node_of(mask, "masked_fill")
    if covered.dtype.kind != "b":
        raise DTypeError(f"masked_fill: the mask must be bool, got {covered.dtype.name}; compare it with 0")
    is_number = isinstance(value, bool | int | float)
    given = dtypes.of_scalar(value) if is_number else node_of(value, "masked_fill").dtype
    if _RANK[given.kind] > _RANK[node.dtype.kind]:
        raise DTypeError(
            f"masked_fill: a value of {given.name} does not fit a tensor of {node.dtype.name}; cast one of them"
        )
    if is_number:
        fill = scalar_node(value, node.dtype, op="masked_fill")
    else:
        fill = cast_node(node_of(value, "masked_fill"), node.dtype)
    broadcast_shapes(node.shape, covered.shape, fill.shape, op="masked_fill")
    return Tensor(ops.where(covered, fill, node))


def lerp(start: ArrayLike, end: ArrayLike, weight: ArrayLike, /) -> Tensor:
    """``start + weight * (end - start)``, from the nearer end: exact for weights 0 and 1 (PyTorch's formula).

    The three broadcast; integers give the default float dtype.
    """
    a, b, w = promote(start, end, weight, op="lerp")
    broadcast_shapes(a.shape, b.shape, w.shape, op="lerp")
    a, b, w = floating(a), floating(b), floating(w)
    dtype = a.dtype
    a, b, w = _wide(a), _wide(b), _wide(w)
    step = ops.subtract(b, a)
    from_start = ops.add(a, ops.multiply(w, step))
    from_end = ops.subtract(b, ops.multiply(step, ops.subtract(1, w)))
    return Tensor(cast_node(ops.where(ops.less(ops.abs(w), 0.5), from_start, from_end), dtype))


# -- steps and powers --------------------------------------------------------------------------------------------------


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """0 where ``x1 < 0``, ``x2`` where it is 0, 1 above; NaN stays.

    The derivative by x1 is 0, by x2 1 where x1 is 0.
    """
    a, b = promote(x1, x2, op="heaviside")
    broadcast_shapes(a.shape, b.shape, op="heaviside")
    a, b = floating(a), floating(b)
    away = ops.divide(ops.add(ops.sign(a), 1), 2)  # NaN for NaN
    return Tensor(ops.where(ops.equal(a, 0), b, away))


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 * 2**x2`` of integers ``x2``, without overflow on the way; DTypeError for other ``x2``.

    The derivative by x1 is ``2**x2``.
    """
    exponent = node_of(x2, "ldexp")
    if exponent.dtype.kind not in "iu":
        raise DTypeError(f"ldexp: integer exponents expected, got {exponent.dtype.name}; cast with x2.astype(pb.int64)")
    node = floating(node_of(x1, "ldexp"))
    broadcast_shapes(node.shape, exponent.shape, op="ldexp")
    dtype = node.dtype
    # Beyond these bounds the result is 0 or infinite; a third of one is a power that the dtype holds.
    wide, bound = (dtypes.float64, 2100) if dtype is dtypes.float64 else (dtypes.float32, 300)
    if exponent.dtype is dtypes.uint64:
        exponent = ops.minimum(exponent, bound)
    bounded = ops.clip(cast_node(exponent, dtypes.int64), -bound, bound)
    third = ops.floor_divide(bounded, 3)
    result = cast_node(node, wide)
    for part in (third, third, ops.subtract(bounded, ops.multiply(2, third))):
        result = ops.multiply(result, ops.exp2(cast_node(part, wide)))
    return Tensor(cast_node(result, dtype))


def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 ** x2`` in float64, whatever the dtypes."""
    a, b = promote(x1, x2, op="float_power")
    return Tensor(ops.pow(cast_node(a, dtypes.float64), cast_node(b, dtypes.float64)))


# -- products with a logarithm -----------------------------------------------------------------------------------------


def xlogy(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 * log(x2)``, and 0 where x1 is 0 (NaN if x2 is).

    The derivatives are ``log(x2)``, 0 where x1 is 0 and x2 is not above 0, and ``x1 / x2``, 0 where x1 is 0 (PyTorch's
    rules). float16 and bfloat16 are computed in float32 and rounded once.
    """
    return _times_logarithm("xlogy", ops.log, 0, x1, x2)


def xlog1py(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1 * log1p(x2)``, and 0 where x1 is 0 (NaN if x2 is); derivatives as those of ``xlogy``."""
    return _times_logarithm("xlog1py", ops.log1p, -1, x1, x2)


def _times_logarithm(
    name: str, logarithm: Callable[[Node], Node], pole: int, x1: ArrayLike, x2: ArrayLike
) -> Tensor:
    a, b = promote(x1, x2, op=name)
    broadcast_shapes(a.shape, b.shape, op=name)
    a, b = floating(a), floating(b)
    dtype = a.dtype
    a, b = _wide(a), _wide(b)
    # Where nothing can come of the logarithm it is taken of a harmless number, so that its slope is harmless too.
    moot = ops.logical_and(ops.equal(a, 0), ops.less_equal(b, pole))
    product = ops.strong_multiply(a, logarithm(ops.where(moot, pole + 1, b)))
    return Tensor(cast_node(ops.where(ops.isnan(b), b, product), dtype))
