"""Where something holds: nonzero, argwhere, flatnonzero, compress, extract.

How many positions there are depends on values, so these functions evaluate their operand, and raise TraceError under
``jit`` and ``vmap``. With ``size=`` the result has that many, the first ones, filled up if there are fewer: this works
everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, ShapeError, TraceError
from ..graph.node import Node
from ..interop import materialize
from ..ops import elementwise as ops
from ..ops import leaf, sorting
from ..ops import movement as move
from ..ops import reduction as fold
from ..shapes import normalize_axis, size_of
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node
from .indexing import stored_node, take


def checked_size(size: Any, op: str) -> int:
    """``size`` as an int that is not negative; ArgumentError for anything else."""
    if isinstance(size, bool) or not hasattr(size, "__index__") or size.__index__() < 0:
        raise ArgumentError(f"{op}: size must be an int that is not negative, got {size!r}")
    return int(size.__index__())


def known_value(node: Node, op: str, way_out: str) -> Any:
    """The value of ``node``, on which the shape of the result of ``op`` depends; TraceError under jit and vmap."""
    try:
        return materialize(node, op)
    except TraceError as error:
        raise TraceError(
            f"{op}: the shape of the result depends on values, which are not known under jit and vmap; give {way_out}= "
            f"({error})"
        ) from None


def padded_to(node: Node, size: int) -> Node:
    """The first ``size`` elements of the first axis, filled up with zeros."""
    rest = (0,) * (len(node.shape) - 1)
    return move.pad(node, 0, (0, *rest), (size - node.shape[0], *rest))


def _first_true(mask: Node, size: int) -> tuple[Node, Node]:
    """The first ``size`` positions at which the 1-d ``mask`` holds, and which of these there are."""
    order = sorting.argsort(mask, 0, descending=True)  # True comes first, in order
    count = fold.reduce_sum(ops.cast(mask, dtypes.int64), (0,))
    return padded_to(order, size), ops.less(leaf.iota((size,), 0, dtypes.int64), count)


def _positions(x: ArrayLike, size: int | None, fill_value: Any, op: str) -> list[Node]:
    """The positions on every axis, each of shape (count,)."""
    node = as_node(x, None, op)
    rank = len(node.shape)
    if size is None:
        values = known_value(node, op, "size")
        return [leaf.data(np.ascontiguousarray(p), False) for p in np.nonzero(values)] if rank else []
    count = checked_size(size, op)
    fills = list(fill_value) if isinstance(fill_value, tuple | list) else [fill_value] * rank
    if len(fills) != rank:
        raise ArgumentError(f"{op}: fill_value must be an int or {rank} ints, one an axis; got {fill_value!r}")
    found, is_there = _first_true(move.reshape(cast_node(node, dtypes.bool_), (node.size,)), count)
    result = []
    stride = node.size
    for extent, fill in zip(node.shape, fills):
        stride //= max(extent, 1)
        here = ops.remainder(ops.floor_divide(found, max(stride, 1)), max(extent, 1))
        result.append(ops.where(is_there, here, stored_node(fill, dtypes.int64, f"{op}: fill_value")))
    return result


def nonzero(x: ArrayLike, /, size: int | None = None, fill_value: Any = 0) -> tuple[Tensor, ...]:
    """Positions of the elements that are not 0, in row-major order: an int64 tensor of shape (count,) an axis.

    size: give the first ``size`` positions; what is missing is ``fill_value`` (an int, or a tuple with one an axis).
        Without it ``x`` is evaluated, which raises TraceError under ``jit`` and ``vmap``.
    Raises ShapeError for a 0-d tensor, ArgumentError for a size that is no int.
    """
    node = as_node(x, None, "nonzero")
    if not node.shape:
        raise ShapeError("nonzero: a 0-d tensor has no positions; use pb.atleast_1d")
    return tuple([Tensor(p) for p in _positions(Tensor(node), size, fill_value, "nonzero")])


def argwhere(x: ArrayLike, /, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Positions of the elements that are not 0 as rows: int64 of shape (count, number of axes).

    size, fill_value: as in :func:`nonzero`.
    """
    node = as_node(x, None, "argwhere")
    if not node.shape:
        (line,) = _positions(Tensor(move.reshape(node, (1,))), size, fill_value, "argwhere")
        return Tensor(leaf.full((line.shape[0], 0), 0, dtypes.int64))
    columns = _positions(Tensor(node), size, fill_value, "argwhere")
    return Tensor(move.concat([move.reshape(c, (c.shape[0], 1)) for c in columns], 1))


def flatnonzero(x: ArrayLike, /, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Positions, in the flattened tensor, of the elements that are not 0: int64 of shape (count,).

    size, fill_value: as in :func:`nonzero`.
    """
    node = as_node(x, None, "flatnonzero")
    (line,) = _positions(Tensor(move.reshape(node, (node.size,))), size, fill_value, "flatnonzero")
    return Tensor(line)


def compress(
    condition: ArrayLike, x: ArrayLike, /, axis: int | None = None, size: int | None = None, fill_value: Any = 0
) -> Tensor:
    """The slices of ``x`` along ``axis`` (None: of the flattened tensor) at which ``condition`` (1-d) is not 0.

    size: give the first ``size`` slices; what is missing is ``fill_value``. Without it ``condition`` is evaluated,
        which raises TraceError under ``jit`` and ``vmap``.
    The gradient goes to the elements taken. Raises ShapeError if ``condition`` is not 1-d, IndexError where it holds
    beyond the end of the axis.
    """
    chosen = cast_node(as_node(condition, None, "compress"), dtypes.bool_)
    node = as_node(x, None, "compress")
    if len(chosen.shape) != 1:
        raise ShapeError(f"compress: the condition must have one axis, got shape {chosen.shape}")
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    a = normalize_axis(axis, len(node.shape), "compress")
    if size is None:
        return take(Tensor(node), flatnonzero(Tensor(chosen)), axis=a)
    count = checked_size(size, "compress")
    fill = stored_node(fill_value, node.dtype, "compress: fill_value")
    shape = (*node.shape[:a], count, *node.shape[a + 1 :])
    if not node.shape[a] or not size_of(chosen.shape):
        return Tensor(move.broadcast_to(fill, shape))
    found, is_there = _first_true(chosen, count)
    taken = take(Tensor(node), Tensor(ops.where(is_there, found, 0)), axis=a).node
    column = move.reshape(is_there, (count, *(1,) * (len(shape) - 1 - a)))
    return Tensor(ops.where(column, taken, fill))


def extract(condition: ArrayLike, x: ArrayLike, /, size: int | None = None, fill_value: Any = 0) -> Tensor:
    """The elements of ``x`` at which ``condition``, of the same shape, is not 0, in row-major order: ``x[condition]``.

    size, fill_value: as in :func:`compress`. Raises ShapeError if the shapes differ.
    """
    chosen, node = as_node(condition, None, "extract"), as_node(x, None, "extract")
    if chosen.shape != node.shape:
        raise ShapeError(f"extract: the condition has shape {chosen.shape}, the tensor {node.shape}")
    return compress(Tensor(move.reshape(chosen, (chosen.size,))), Tensor(node), size=size, fill_value=fill_value)
