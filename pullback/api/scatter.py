"""Reading and writing by arrays of positions along one axis: gather, scatter and PyTorch's ``index_`` functions.

Nothing is written in place: the functions that write return a changed copy. Positions may be negative (counted from the
end) and are checked: one out of range raises IndexError, at once if it is known, else when the graph runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf
from ..ops import movement as move
from ..shapes import Shape, broadcast_shapes, normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node
from .index_plan import checked_index, resolve_int
from .indexing import integer_node, stored_node, take, update

_HALF = (dtypes.float16, dtypes.bfloat16)
_MODES = {
    "set": "set", "add": "add", "sum": "add", "mul": "multiply", "multiply": "multiply", "prod": "multiply",
    "min": "min", "amin": "min", "max": "max", "amax": "max", "mean": "mean",
}


def _mode(name: str, op: str) -> str:
    if name not in _MODES:
        raise ArgumentError(f"{op}: mode {name!r} is none of {', '.join(_MODES)}")
    return _MODES[name]


# -- combining ---------------------------------------------------------------------------------------------------------


def neutral(mode: str, dtype: DType) -> bool | int | float:
    """What leaves every number as it is when combined with it."""
    if mode in ("add", "multiply"):
        return 0 if mode == "add" else 1
    if dtype.kind == "f":
        return math.inf if mode == "min" else -math.inf
    if dtype.kind == "b":
        return mode == "min"
    return dtypes.integer_limits(dtype)[1 if mode == "min" else 0]


def combined(
    node: Node, updates: Node, indices: Sequence[Node], axes: tuple[int, ...], mode: str, include_self: bool, op: str
) -> Node:
    """``node`` with ``updates`` combined in; see :func:`scatter` for the modes and ``include_self``."""
    dtype = node.dtype
    if dtype.kind == "b" and mode in ("add", "multiply", "mean"):
        raise DTypeError(f"{op}: bool has no {mode}; cast it with x.astype(...)")
    if mode == "mean":
        return _mean_combined(node, updates, indices, axes, include_self)
    if include_self or mode == "set":
        if dtype in _HALF and mode in ("add", "multiply"):  # rounded once, not at every update
            node, updates = ops.cast(node, dtypes.float32), ops.cast(updates, dtypes.float32)
            return ops.cast(index_ops.scatter(node, updates, indices, axes, mode), dtype)  # type: ignore[arg-type]
        return index_ops.scatter(node, updates, indices, axes, mode)  # type: ignore[arg-type]
    start = leaf.full(node.shape, neutral(mode, dtype), dtype)
    fresh = combined(start, updates, indices, axes, mode, True, op)
    return ops.where(_touched(node, updates, indices, axes), fresh, node)


def _touched(node: Node, updates: Node, indices: Sequence[Node], axes: tuple[int, ...]) -> Node:
    nowhere = leaf.full(node.shape, False, dtypes.bool_)
    return index_ops.scatter(nowhere, leaf.full(updates.shape, True, dtypes.bool_), indices, axes, "set")


def _mean_combined(
    node: Node, updates: Node, indices: Sequence[Node], axes: tuple[int, ...], include_self: bool
) -> Node:
    wide = node.dtype if node.dtype not in _HALF else dtypes.float32
    start = ops.cast(node, wide) if include_self else leaf.full(node.shape, 0, wide)
    total = index_ops.scatter(start, ops.cast(updates, wide), indices, axes, "add")
    ones = leaf.full(updates.shape, 1, wide)
    count = index_ops.scatter(leaf.full(node.shape, int(include_self), wide), ones, indices, axes, "add")
    if include_self:
        average = (ops.divide if wide.kind == "f" else ops.floor_divide)(total, count)
        return ops.cast(average, node.dtype)
    average = (ops.divide if wide.kind == "f" else ops.floor_divide)(total, ops.maximum(count, 1))
    return ops.where(ops.equal(count, 0), node, ops.cast(average, node.dtype))


# -- one position an element -------------------------------------------------------------------------------------------


def _aligned_index(node: Node, index: ArrayLike, axis: int, op: str) -> tuple[Node, int]:
    """The checked index of gather and scatter, and its axis."""
    a = normalize_axis(axis, len(node.shape), op)
    positions = integer_node(index, op)
    if len(positions.shape) != len(node.shape):
        raise ShapeError(f"{op}: the index must have {len(node.shape)} axes, as x has; got shape {positions.shape}")
    for other, (here, there) in enumerate(zip(positions.shape, node.shape)):
        if other != a and here > there:
            raise ShapeError(
                f"{op}: index of shape {positions.shape} is larger than the tensor, {node.shape}, on axis {other}"
            )
    return checked_index(positions, node.shape[a], a), a


def gather(x: ArrayLike, /, axis: int, index: ArrayLike) -> Tensor:
    """``out[..., i, ...] = x[..., index[..., i, ...], ...]`` (PyTorch's ``gather``): the shape of ``index``.

    index: integers, of x's rank; on the other axes at most as large as x.
    Repeated positions add their gradients. Raises ShapeError, DTypeError, or IndexError for a position out of range.
    """
    node = as_node(x, None, "gather")
    positions, a = _aligned_index(node, index, axis, "gather")
    return Tensor(index_ops.take_along(node, positions, a))


def scatter(
    x: ArrayLike, /, axis: int, index: ArrayLike, src: ArrayLike, mode: str = "set", include_self: bool = True
) -> Tensor:
    """A copy of ``x`` with ``src[..., i, ...]`` combined in at ``[..., index[..., i, ...], ...]``: PyTorch's
    ``scatter`` and ``scatter_reduce``.

    index: integers, of x's rank; on the other axes at most as large as x.
    src: of the rank of ``index`` and at least as large (the rest is not used), or a number.
    mode: "set" (of repeated positions the last wins), "add" or "sum", "mul", "multiply" or "prod", "min" or "amin",
        "max" or "amax", "mean" (rounded down for integers).
    include_self: whether the element of ``x`` takes part; else it only stays where nothing is written.

    Derivatives are exact to every order: for products where factors are 0; equal extremes share theirs evenly.
    Raises ShapeError, DTypeError, ArgumentError for an unknown mode, IndexError for a position out of range.
    """
    node = as_node(x, None, "scatter")
    how = _mode(mode, "scatter")
    positions, a = _aligned_index(node, index, axis, "scatter")
    updates = stored_node(src, node.dtype, "scatter")
    shape = positions.shape
    if not updates.shape:
        updates = move.broadcast_to(updates, shape)
    if len(updates.shape) != len(shape) or any(have < need for have, need in zip(updates.shape, shape)):
        raise ShapeError(f"scatter: src of shape {updates.shape} does not cover the index, of shape {shape}")
    updates = move.slice(updates, (0,) * len(shape), shape)
    indices = index_ops.line_indices(positions, node.shape, a)
    return Tensor(combined(node, updates, indices, tuple(range(len(shape))), how, include_self, "scatter"))


def put_along_axis(
    x: ArrayLike, /, indices: ArrayLike, values: ArrayLike, axis: int | None = -1, mode: str = "set"
) -> Tensor:
    """A copy of ``x`` with ``values`` at the positions that ``take_along_axis(x, indices, axis)`` reads.

    Unlike NumPy's, which writes into its operand. ``indices`` has x's rank and broadcasts against it on the other axes;
    ``values`` broadcasts to the shape of these positions. axis: None takes x and indices as flattened (the result has
    x's shape). mode: as in :func:`scatter`.
    """
    op = "put_along_axis"
    node = as_node(x, None, op)
    positions = integer_node(indices, op)
    if axis is None:
        flat = Tensor(move.reshape(node, (node.size,)))
        line = Tensor(move.reshape(positions, (positions.size,)))
        return Tensor(move.reshape(put_along_axis(flat, line, values, 0, mode).node, node.shape))
    how = _mode(mode, op)
    rank = len(node.shape)
    a = normalize_axis(axis, rank, op)
    if len(positions.shape) != rank:
        raise ShapeError(f"{op}: the ranks of indices {positions.shape} and tensor {node.shape} differ")
    lines = (*node.shape[:a], positions.shape[a], *node.shape[a + 1 :])
    if broadcast_shapes(lines, positions.shape, op=op) != lines:
        raise ShapeError(f"{op}: indices of shape {positions.shape} do not broadcast to {lines}")
    updates = stored_node(values, node.dtype, op)
    if broadcast_shapes(updates.shape, lines, op=op) != lines:
        raise ShapeError(f"{op}: values of shape {updates.shape} do not broadcast to {lines}")
    grid = move.broadcast_to(checked_index(positions, node.shape[a], a), lines)
    operands = index_ops.line_indices(grid, node.shape, a)
    return Tensor(combined(node, move.broadcast_to(updates, lines), operands, tuple(range(rank)), how, True, op))


# -- one position a slice ----------------------------------------------------------------------------------------------


def _line(x: ArrayLike, axis: int, index: ArrayLike, op: str) -> tuple[Node, int, Node]:
    node = as_node(x, None, op)
    a = normalize_axis(axis, len(node.shape), op)
    positions = integer_node(index, op)
    if len(positions.shape) > 1:
        raise ShapeError(f"{op}: the index must have at most one axis, got shape {positions.shape}")
    return node, a, checked_index(move.reshape(positions, (positions.size,)), node.shape[a], a)


def _write_slices(node: Node, axis: int, positions: Node, source: Node, mode: str, op: str) -> Tensor:
    expected = (*node.shape[:axis], positions.shape[0], *node.shape[axis + 1 :])
    if source.shape != expected:
        raise ShapeError(f"{op}: a source of shape {expected} expected, got {source.shape}")
    updates = move.move_axis(source, axis, 0)
    return Tensor(combined(node, updates, [positions], (axis,), mode, True, op))


def index_select(x: ArrayLike, /, axis: int, index: ArrayLike) -> Tensor:
    """The slices of ``x`` at the positions ``index`` (0-d or 1-d) along ``axis``; the axis stays.

    Repeated positions add their gradients. IndexError for a position out of range.
    """
    node, a, positions = _line(x, axis, index, "index_select")
    return take(Tensor(node), Tensor(positions), axis=a)


def select(x: ArrayLike, /, axis: int, index: int | ArrayLike) -> Tensor:
    """The slice of ``x`` at ``index``, an int or a 0-d integer tensor, along ``axis``, which goes. IndexError."""
    node = as_node(x, None, "select")
    a = normalize_axis(axis, len(node.shape), "select")
    if isinstance(index, int) and not isinstance(index, bool):
        start = resolve_int(index, node.shape[a], a)
        rest: Shape = node.shape[:a] + node.shape[a + 1 :]
        return Tensor(move.reshape(move.slice_axis(node, a, start, start + 1), rest))
    if integer_node(index, "select").shape:
        raise ShapeError("select: the index must be an int or 0-d; use pb.take for several")
    return take(Tensor(node), index, axis=a)


def index_add(
    x: ArrayLike, /, axis: int, index: ArrayLike, source: ArrayLike, alpha: float | ArrayLike = 1
) -> Tensor:
    """A copy of ``x`` with slice i of ``alpha * source`` added to its slice ``index[i]`` along ``axis``.

    source: of x's shape, but as long on ``axis`` as ``index`` (0-d or 1-d). Repeated positions add up.
    Raises ShapeError, DTypeError if x cannot hold the sum's kind, IndexError.
    """
    node, a, positions = _line(x, axis, index, "index_add")
    added = stored_node(source, node.dtype, "index_add")
    if not (isinstance(alpha, int | float) and alpha == 1):
        factor = stored_node(alpha, node.dtype, "index_add: alpha")
        if factor.shape:
            raise ShapeError(f"index_add: alpha must be a number or 0-d, got shape {factor.shape}")
        added = ops.multiply(added, factor)
    return _write_slices(node, a, positions, added, "add", "index_add")


def index_copy(x: ArrayLike, /, axis: int, index: ArrayLike, source: ArrayLike) -> Tensor:
    """A copy of ``x`` whose slice ``index[i]`` along ``axis`` is slice i of ``source``; of repeated ones the last wins.

    source: of x's shape, but as long on ``axis`` as ``index`` (0-d or 1-d). Raises ShapeError, DTypeError, IndexError.
    """
    node, a, positions = _line(x, axis, index, "index_copy")
    return _write_slices(node, a, positions, stored_node(source, node.dtype, "index_copy"), "set", "index_copy")


def index_fill(x: ArrayLike, /, axis: int, index: ArrayLike, value: ArrayLike) -> Tensor:
    """A copy of ``x`` whose slices at ``index`` (0-d or 1-d) along ``axis`` are ``value``, a number or 0-d tensor."""
    node, a, positions = _line(x, axis, index, "index_fill")
    filled = stored_node(value, node.dtype, "index_fill")
    if filled.shape:
        raise ShapeError(f"index_fill: the value must be a number or 0-d, got shape {filled.shape}")
    shape = (*node.shape[:a], positions.shape[0], *node.shape[a + 1 :])
    return _write_slices(node, a, positions, move.broadcast_to(filled, shape), "set", "index_fill")


def index_put(x: ArrayLike, /, indices: Any, values: ArrayLike, accumulate: bool = False) -> Tensor:
    """A copy of ``x`` after ``x[indices] = values``, or, with ``accumulate``, with ``values`` added there, as often as
    a position is repeated. ``indices`` is a tuple of arrays, one an axis, or any index.

    Raises ShapeError if the values do not broadcast to ``x[indices]``, DTypeError, IndexError.
    """
    index = tuple(indices) if isinstance(indices, list) else indices
    return Tensor(update(as_node(x, None, "index_put"), index, values, "add" if accumulate else "set"))


def checked_numbers(node: Node, count: int, op: str) -> Node:
    """Numbers of classes, segments and the like as int64, checked to lie in [0, count)."""
    # As unsigned numbers negative ones are out of range too, instead of counting from the end.
    return ops.check_index(cast_node(node, dtypes.uint64) if node.dtype.kind == "i" else node, count, op)
