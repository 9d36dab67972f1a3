"""What the functions of ``pb.nn`` do with their operands: checks, the dtype to compute in, parameters of channels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from .. import dtypes
from ..api import convert, manipulation, reduction
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ops import elementwise as ops
from ..tensor import Tensor

HALF = (dtypes.float16, dtypes.bfloat16)

_P = ParamSpec("_P")


def float_tensor(x: Any, op: str) -> Tensor:
    """``x`` as a tensor; DTypeError unless it is floating."""
    node = convert.as_node(x, None, op)
    if node.dtype.kind != "f":
        raise DTypeError(f"{op}: a floating tensor expected, got {node.dtype.name}; cast it with x.astype(pb.float32)")
    return x if isinstance(x, Tensor) else Tensor(node)


def compute_dtype(dtype: DType) -> DType:
    """What functions of several steps compute ``dtype`` in: float32 for float16 and bfloat16, whose squares and
    exponentials would overflow and whose differences from 1 lose every digit."""
    return dtypes.float32 if dtype in HALF else dtype


def wide_inside(function: Callable[Concatenate[Any, _P], Tensor]) -> Callable[Concatenate[Any, _P], Tensor]:
    """The function, of float16 and bfloat16 computed in float32 and rounded once, at its end."""

    @functools.wraps(function)
    def computed(x: Any, *args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        if not isinstance(x, Tensor):
            x = Tensor(convert.as_node(x, None, function.__name__))
        dtype = x.dtype
        if dtype not in HALF:
            return function(x, *args, **kwargs)
        return convert.astype(function(convert.astype(x, dtypes.float32), *args, **kwargs), dtype)

    return computed


def strong(factor: Tensor, x: Tensor) -> Tensor:
    """``factor * x``, 0 where the factor is 0 whatever ``x`` is."""
    return Tensor(ops.strong_multiply(factor.node, x.node))


def widened(op: str, *operands: Any) -> tuple[list[Tensor], DType]:
    """The operands in one dtype to compute in, and the dtype of the result: the one they promote to.

    The first must be floating, or DTypeError; integers and bools among the others take its dtype.
    """
    first = float_tensor(operands[0], op)
    tensors = [first]
    for operand in operands[1:]:
        node = convert.as_node(operand, first.dtype, op)
        tensors.append(Tensor(node if node.dtype.kind == "f" else convert.cast_node(node, first.dtype)))
    dtype = convert.result_type(*tensors)
    wide = compute_dtype(dtype)
    return [t if t.dtype is wide else Tensor(convert.cast_node(t.node, wide)) for t in tensors], dtype


def widened_pair(op: str, prediction: Any, target: Any) -> tuple[Tensor, Tensor, DType]:
    """As :func:`widened` of a prediction and its target, which must have one shape: broadcasting is mostly a mistake
    there, and raises ShapeError."""
    (x, y), dtype = widened(op, prediction, target)
    same_shape(op, prediction=x, target=y)
    return x, y, dtype


def same_shape(op: str, **operands: Tensor) -> None:
    """ShapeError, naming the operands, unless all have one shape."""
    if len({x.shape for x in operands.values()}) > 1:
        *first, last = operands
        shapes = " and ".join([str(x.shape) for x in operands.values()])
        raise ShapeError(
            f"{op}: {', '.join(first)} and {last} must have one shape, got {shapes}; reshape or broadcast them"
        )


def narrowed(x: Tensor, dtype: DType) -> Tensor:
    """``x`` in the result's dtype."""
    return x if x.dtype is dtype else convert.astype(x, dtype)


def along_axis(parameter: Any, x: Tensor, axis: int, name: str, op: str) -> Tensor:
    """One number for each position on ``axis`` of ``x``, in its dtype and shaped to broadcast against it.

    ShapeError, naming the parameter, if their number is not the extent of the axis.
    """
    node = convert.as_node(parameter, x.dtype, op)
    if node.shape != (x.shape[axis],):
        raise ShapeError(
            f"{op}: {name} has shape {node.shape}; one number for each of the {x.shape[axis]} positions on axis "
            f"{axis} of the input's shape {x.shape} expected"
        )
    tensor = Tensor(convert.cast_node(node, x.dtype))
    trailing = x.ndim - axis - 1
    return manipulation.reshape(tensor, (-1, *(1,) * trailing)) if trailing and x.shape[axis] else tensor


def fitting(value: Tensor, x: Tensor, name: str, op: str) -> Tensor:
    """``value``, if it broadcasts to the shape of ``x``; ShapeError otherwise."""
    missing = x.ndim - value.ndim
    if missing < 0 or any(a not in (1, b) for a, b in zip(value.shape, x.shape[missing:])):
        raise ShapeError(f"{op}: {name} of shape {value.shape} does not broadcast to the input's shape {x.shape}")
    return value


def constant(x: Tensor) -> Tensor:
    """``x``, a constant to every derivative."""
    return Tensor(ops.stop_gradient(x.node))


# -- the last step of a loss -------------------------------------------------------------------------------------------

_REDUCTIONS = ("mean", "sum", "none")


def check_reduction(how: str, op: str, allowed: tuple[str, ...] = _REDUCTIONS) -> None:
    """ArgumentError unless ``how`` is one of those allowed."""
    if how not in allowed:
        raise ArgumentError(f"{op}: reduction must be one of {', '.join(map(repr, allowed))}, got {how!r}")


def reduced(losses: Tensor, how: str, dtype: DType) -> Tensor:
    """The mean or sum of ``losses``, or they themselves, in ``dtype``."""
    if how != "none":
        losses = reduction.mean(losses) if how == "mean" else reduction.sum(losses)
    return narrowed(losses, dtype)
