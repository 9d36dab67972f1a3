"""Functions that move elements without changing them: shapes, the order of axes and of elements; and diff.

They return new tensors; results never share changes with their operands. Axes that are out of range or given twice,
and shapes that do not fit, raise ShapeError.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError
from ..graph.node import Node
from ..interop import has_plain_value, part_of
from ..ops import elementwise as ops
from ..ops import movement as move
from ..shapes import Shape, as_int, as_shape, broadcast_shapes, normalize_axes, normalize_axis, reshape_shape, size_of
from ..tensor import Tensor
from .convert import ArrayLike, as_node, broadcast_nodes
from .joining import concat, three_axes


def _node(x: ArrayLike, op: str) -> Node:
    return x.node if isinstance(x, Tensor) else as_node(x, None, op)


# -- shape -------------------------------------------------------------------------------------------------------------


def reshape(x: ArrayLike, /, shape: Any, copy: bool | None = None) -> Tensor:
    """The elements in C order in another shape, one extent of which may be -1.

    copy: accepted for the array API's sake; whether elements are copied is the compiler's choice.
    """
    node = _node(x, "reshape")
    target = reshape_shape(shape, node.size, source=node.shape)
    if target == node.shape:
        return Tensor(node)
    return Tensor(part_of(node, target) if has_plain_value(node) else move.reshape(node, target))


def ravel(x: ArrayLike, /) -> Tensor:
    """All elements along one axis, in C order."""
    return reshape(x, -1)


def flatten(x: ArrayLike, /, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """The axes from ``start_axis`` to ``end_axis``, both included, as one, in C order (PyTorch's ``flatten``; by
    default NumPy's). ShapeError where the end comes before the start."""
    node = _node(x, "flatten")
    rank = len(node.shape)
    if rank == 0:
        return Tensor(move.reshape(node, (1,)))
    start, end = normalize_axis(start_axis, rank, "flatten"), normalize_axis(end_axis, rank, "flatten")
    if end < start:
        raise ShapeError(f"flatten: start_axis {start} comes after end_axis {end} in shape {node.shape}")
    shape = node.shape
    return reshape(Tensor(node), (*shape[:start], size_of(shape[start : end + 1]), *shape[end + 1 :]))


def squeeze(x: ArrayLike, /, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Without the axes of extent 1, or without those in ``axis``; ShapeError if one of these has another extent."""
    node = _node(x, "squeeze")
    shape = node.shape
    if axis is None:
        axes = tuple([a for a, extent in enumerate(shape) if extent == 1])
    else:
        axes = normalize_axes(axis, len(shape), "squeeze")
        for a in axes:
            if shape[a] != 1:
                raise ShapeError(f"squeeze: axis {a} of shape {shape} has extent {shape[a]}, not 1")
    return reshape(Tensor(node), tuple([extent for a, extent in enumerate(shape) if a not in axes]))


def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """With new axes of extent 1 at the positions ``axis`` of the result."""
    node = _node(x, "expand_dims")
    new = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    rank = len(node.shape) + len(new)
    axes = normalize_axes(new, rank, "expand_dims")
    extents = iter(node.shape)
    return Tensor(move.reshape(node, tuple([1 if a in axes else next(extents) for a in range(rank)])))


def broadcast_to(x: ArrayLike, /, shape: Any) -> Tensor:
    """Repeated along new leading axes and axes of extent 1 until it has ``shape``."""
    node = _node(x, "broadcast_to")
    target = as_shape(shape, "broadcast_to")
    if node.shape == target:
        return Tensor(node)
    if broadcast_shapes(node.shape, target, op="broadcast_to") != target:
        raise ShapeError(f"broadcast_to: shape {node.shape} does not broadcast to {target}")
    return Tensor(move.broadcast_to(node, target))


def broadcast_arrays(*arrays: ArrayLike) -> list[Tensor]:
    """The arrays, each broadcast to their common shape."""
    return [Tensor(n) for n in broadcast_nodes([_node(x, "broadcast_arrays") for x in arrays], "broadcast_arrays")]


def atleast_1d(*arrays: ArrayLike) -> Tensor | tuple[Tensor, ...]:
    """Each array, with one axis if it has none; several arrays give a tuple."""
    return _of_each(arrays, "atleast_1d", lambda shape: shape or (1,))


def atleast_2d(*arrays: ArrayLike) -> Tensor | tuple[Tensor, ...]:
    """Each array, with axes of extent 1 put in front until it has two; several arrays give a tuple."""
    return _of_each(arrays, "atleast_2d", lambda shape: (1,) * (2 - len(shape)) + shape)


def atleast_3d(*arrays: ArrayLike) -> Tensor | tuple[Tensor, ...]:
    """Each array with at least three axes: a vector lies along axis 1, a matrix in axes 0 and 1 (NumPy's rule); several
    arrays give a tuple."""
    return _of_each(arrays, "atleast_3d", three_axes)


def _of_each(
    arrays: tuple[ArrayLike, ...], op: str, target: Callable[[Shape], Shape]
) -> Tensor | tuple[Tensor, ...]:
    nodes = [_node(x, op) for x in arrays]
    made = tuple([Tensor(move.reshape(n, target(n.shape))) for n in nodes])
    return made[0] if len(made) == 1 else made


# -- order -------------------------------------------------------------------------------------------------------------


def _permute(node: Node, order: Sequence[int]) -> Node:
    order = tuple(order)
    return node if order == tuple(range(len(order))) else move.permute(node, order)


def permute_dims(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Axes in the order ``axes``; None reverses them."""
    node = _node(x, "permute_dims")
    rank = len(node.shape)
    if axes is None:
        return Tensor(_permute(node, range(rank)[::-1]))
    order = normalize_axes(tuple(axes), rank, "permute_dims", ordered=True)
    if len(order) != rank:
        raise ShapeError(f"permute_dims: {len(order)} axes given for an array of {rank} (shape {node.shape})")
    return Tensor(_permute(node, order))


def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """The last two axes exchanged; ShapeError below two axes."""
    node = _node(x, "matrix_transpose")
    rank = len(node.shape)
    if rank < 2:
        raise ShapeError(f"matrix_transpose: at least two axes expected, got shape {node.shape}")
    return Tensor(_permute(node, (*range(rank - 2), rank - 1, rank - 2)))


def swapaxes(x: ArrayLike, /, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    node = _node(x, "swapaxes")
    rank = len(node.shape)
    a, b = normalize_axis(axis1, rank, "swapaxes"), normalize_axis(axis2, rank, "swapaxes")
    order = list(range(rank))
    order[a], order[b] = b, a
    return Tensor(_permute(node, order))


def moveaxis(x: ArrayLike, /, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes ``source`` put at the positions ``destination``, the others in their order."""
    node = _node(x, "moveaxis")
    rank = len(node.shape)
    origins = normalize_axes(source, rank, "moveaxis", ordered=True)
    targets = normalize_axes(destination, rank, "moveaxis", ordered=True)
    if len(origins) != len(targets):
        raise ShapeError(f"moveaxis: {len(origins)} source axes and {len(targets)} destinations")
    order = [a for a in range(rank) if a not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return Tensor(_permute(node, order))


def fliplr(x: ArrayLike, /) -> Tensor:
    """Columns in reverse order: :func:`flip` along axis 1. ShapeError below two axes."""
    node = _node(x, "fliplr")
    if len(node.shape) < 2:
        raise ShapeError(f"fliplr: at least two axes expected, got shape {node.shape}")
    return Tensor(move.flip(node, (1,)))


def flipud(x: ArrayLike, /) -> Tensor:
    """Rows in reverse order: :func:`flip` along axis 0. ShapeError for a 0-d operand."""
    node = _node(x, "flipud")
    if not node.shape:
        raise ShapeError("flipud: at least one axis expected, got a 0-d tensor")
    return Tensor(move.flip(node, (0,)))


def rot90(x: ArrayLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """``k`` quarter turns in the plane of two axes, from the first towards the second. ShapeError unless these are two
    different axes."""
    node = _node(x, "rot90")
    order = normalize_axes(tuple(axes), len(node.shape), "rot90", ordered=True)
    if len(order) != 2:
        raise ShapeError(f"rot90: two axes expected, got {axes!r}")
    a, b = order
    turns = as_int(k, "rot90", "k") % 4
    if turns == 0:
        return Tensor(node)
    if turns == 2:
        return Tensor(move.flip(node, (a, b)))
    swapped = list(range(len(node.shape)))
    swapped[a], swapped[b] = b, a
    if turns == 1:
        return Tensor(_permute(move.flip(node, (b,)), swapped))
    return Tensor(move.flip(_permute(node, swapped), (b,)))


def flip(x: ArrayLike, /, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Elements in reverse order along ``axis``; None reverses all axes."""
    node = _node(x, "flip")
    axes = normalize_axes(axis, len(node.shape), "flip")
    return Tensor(move.flip(node, axes) if axes else node)


def roll(x: ArrayLike, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved by ``shift`` places along ``axis``, those that fall off coming in again at the other end.

    axis: None rolls the flattened array.
    """
    node = _node(x, "roll")
    if axis is None:
        flat = move.reshape(node, (node.size,))
        total = builtins.sum(shift) if isinstance(shift, Sequence) else shift
        return Tensor(move.reshape(_roll(flat, as_int(total, "roll", "shift"), 0), node.shape))
    axes = [normalize_axis(a, len(node.shape), "roll") for a in (axis if isinstance(axis, Sequence) else (axis,))]
    shifts = list(shift) if isinstance(shift, Sequence) else [shift] * len(axes)
    if len(axes) == 1 and len(shifts) > 1:
        axes *= len(shifts)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for a, s in zip(axes, shifts, strict=True):
        node = _roll(node, as_int(s, "roll", "shift"), a)
    return Tensor(node)


def _roll(node: Node, shift: int, axis: int) -> Node:
    extent = node.shape[axis]
    shift = shift % extent if extent else 0
    if shift == 0:
        return node
    cut = extent - shift
    return move.concat([move.slice_axis(node, axis, cut, extent), move.slice_axis(node, axis, 0, cut)], axis)


def diff(
    x: ArrayLike, /, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Tensor:
    """Differences of neighbours along ``axis``, taken ``n`` times; of bools, whether they differ.

    prepend, append: arrays (or numbers) put before and after ``x`` along the axis first.
    """
    node = _node(x, "diff")
    if n < 0:
        raise ShapeError(f"diff: n must not be negative, got {n}")
    a = normalize_axis(axis, len(node.shape), "diff")
    if n == 0:
        return Tensor(node)
    parts: list[ArrayLike] = [Tensor(node)]
    for edge, place in ((prepend, 0), (append, len(parts) + 1)):
        if edge is not None:
            one = _node(edge, "diff")
            line = one if one.shape else move.broadcast_to(one, (*node.shape[:a], 1, *node.shape[a + 1 :]))
            parts.insert(place, Tensor(line))
    if len(parts) > 1:
        node = concat(parts, axis=a).node
    minus = ops.not_equal if node.dtype.kind == "b" else ops.subtract
    for _ in range(n):
        extent = node.shape[a]
        if extent == 0:
            break
        node = minus(move.slice_axis(node, a, 1, extent), move.slice_axis(node, a, 0, extent - 1))
    return Tensor(node)


# -- NumPy's name ------------------------------------------------------------------------------------------------------

transpose = permute_dims
