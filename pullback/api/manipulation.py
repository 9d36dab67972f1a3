"""Functions that move elements without changing them: reshape, permute, join, split, repeat, pad.

They return new tensors; results never share changes with their operands. Axes that are out of range or given twice,
and shapes that do not fit, raise ShapeError.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..interop import has_plain_value, part_of
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf
from ..ops import movement as move
from ..shapes import as_shape, broadcast_shapes, normalize_axes, normalize_axis, reshape_shape
from ..tensor import Tensor
from .convert import ArrayLike, as_node, broadcast_nodes, promote, scalar_node


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
    new = (axis,) if isinstance(axis, int) else tuple(axis)
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


def atleast_1d(x: ArrayLike, /) -> Tensor:
    """``x``, with one axis if it has none."""
    node = _node(x, "atleast_1d")
    return Tensor(node if node.shape else move.reshape(node, (1,)))


def atleast_2d(x: ArrayLike, /) -> Tensor:
    """``x``, with axes of extent 1 put in front until it has two."""
    node = _node(x, "atleast_2d")
    missing = 2 - len(node.shape)
    return Tensor(move.reshape(node, (1,) * missing + node.shape) if missing > 0 else node)


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


def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Tensor:
    """Two axes exchanged."""
    node = _node(x, "swapaxes")
    rank = len(node.shape)
    a, b = normalize_axis(axis1, rank, "swapaxes"), normalize_axis(axis2, rank, "swapaxes")
    order = list(range(rank))
    order[a], order[b] = b, a
    return Tensor(_permute(node, order))


def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
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
        return Tensor(move.reshape(_roll(flat, int(total), 0), node.shape))
    axes = [normalize_axis(a, len(node.shape), "roll") for a in ((axis,) if isinstance(axis, int) else axis)]
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    if len(axes) == 1 and len(shifts) > 1:
        axes *= len(shifts)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for a, s in zip(axes, shifts, strict=True):
        node = _roll(node, int(s), a)
    return Tensor(node)


def _roll(node: Node, shift: int, axis: int) -> Node:
    extent = node.shape[axis]
    shift = shift % extent if extent else 0
    if shift == 0:
        return node
    return move.concat([narrow(node, axis, extent - shift, extent), narrow(node, axis, 0, extent - shift)], axis)


def narrow(node: Node, axis: int, start: int, stop: int) -> Node:
    """``node`` between two positions of one axis."""
    rank = len(node.shape)
    starts, stops = [0] * rank, list(node.shape)
    starts[axis], stops[axis] = start, stop
    return move.slice(node, tuple(starts), tuple(stops), (1,) * rank)


# -- joining and splitting ---------------------------------------------------------------------------------------------


def concat(arrays: Sequence[ArrayLike], /, axis: int | None = 0) -> Tensor:
    """The arrays one after the other along ``axis``, promoted; axis None flattens them first.

    Raises ShapeError naming the shapes if they differ elsewhere.
    """
    nodes = _several(arrays, "concat")
    if axis is None:
        nodes = [move.reshape(n, (n.size,)) for n in nodes]
        axis = 0
    rank = len(nodes[0].shape)
    if rank == 0:
        raise ShapeError("concat: 0-d tensors have no axis to join along; use stack")
    position = normalize_axis(axis, rank, "concat")
    for n in nodes[1:]:
        if len(n.shape) != rank or any(
            a != b for d, (a, b) in enumerate(zip(n.shape, nodes[0].shape, strict=True)) if d != position
        ):
            raise ShapeError(f"concat: shapes {nodes[0].shape} and {n.shape} differ in more than axis {position}")
    return Tensor(nodes[0] if len(nodes) == 1 else move.concat(nodes, position))


def _several(arrays: Any, op: str) -> list[Node]:
    if isinstance(arrays, Tensor | np.ndarray):
        arrays = list(arrays)
    if not isinstance(arrays, Sequence) or not len(arrays):
        raise ShapeError(f"{op}: a non-empty sequence of arrays expected")
    return promote(*arrays, op=op)


def stack(arrays: Sequence[ArrayLike], /, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    nodes = _several(arrays, "stack")
    shape = nodes[0].shape
    for n in nodes[1:]:
        if n.shape != shape:
            raise ShapeError(f"stack: all arrays must have one shape, got {shape} and {n.shape}")
    position = normalize_axis(axis, len(shape) + 1, "stack")
    expanded = [move.reshape(n, (*shape[:position], 1, *shape[position:])) for n in nodes]
    return Tensor(expanded[0] if len(expanded) == 1 else move.concat(expanded, position))


def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along ``axis``, without that axis."""
    node = _node(x, "unstack")
    a = normalize_axis(axis, len(node.shape), "unstack")
    rest = node.shape[:a] + node.shape[a + 1 :]
    return tuple([Tensor(move.reshape(narrow(node, a, i, i + 1), rest)) for i in range(node.shape[a])])


def split(x: ArrayLike, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """Pieces along ``axis``: so many of equal extent, or cut before each of the given positions (NumPy's ``split``)."""
    node = _node(x, "split")
    a = normalize_axis(axis, len(node.shape), "split")
    extent = node.shape[a]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0 or extent % count:
            raise ShapeError(f"split: axis {a} of extent {extent} does not divide into {count} equal pieces")
        cuts = [extent // count * i for i in range(1, count)]
    else:
        cuts = [int(c) for c in indices_or_sections]
    pieces = []
    start = 0
    for cut in [*cuts, None]:
        low, high, _ = builtins.slice(start, cut).indices(extent)
        pieces.append(Tensor(narrow(node, a, low, builtins.max(low, high))))
        start = cut if cut is not None else extent
    return pieces


def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Tensor:
    """The whole array repeated ``repetitions`` times along each axis; the last entry is for the last axis."""
    node = _node(x, "tile")
    counts = as_shape(repetitions, "tile")
    rank = builtins.max(len(counts), len(node.shape))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - len(node.shape)) + node.shape
    expanded = move.reshape(node, tuple([e for extent in shape for e in (1, extent)]))
    repeated = move.broadcast_to(
        expanded, tuple([e for count, extent in zip(counts, shape, strict=True) for e in (count, extent)])
    )
    return Tensor(move.reshape(repeated, tuple([c * e for c, e in zip(counts, shape, strict=True)])))


def repeat(x: ArrayLike, repeats: int | Sequence[int] | Tensor, /, axis: int | None = None) -> Tensor:
    """Each element repeated along ``axis`` (None: of the flattened array), all as often or each as its count says.

    Counts that differ must be known now: a traced tensor of counts raises TraceError.
    """
    node = _node(x, "repeat")
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    a = normalize_axis(axis, len(node.shape), "repeat")
    before, extent, after = node.shape[:a], node.shape[a], node.shape[a + 1 :]
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or (counts.size and counts.min() < 0):
        raise DTypeError(f"repeat: counts must be non-negative integers, got {repeats!r}")
    if counts.size == 1:
        count = int(counts.reshape(())[()])
        expanded = move.broadcast_to(move.reshape(node, (*before, extent, 1, *after)), (*before, extent, count, *after))
        return Tensor(move.reshape(expanded, (*before, extent * count, *after)))
    if counts.shape != (extent,):
        raise ShapeError(f"repeat: counts of shape {counts.shape} for axis {a} of extent {extent}")
    positions = leaf.data(np.repeat(np.arange(extent), counts), False)
    gathered = index_ops.gather(node, [positions], (a,))
    return moveaxis(Tensor(gathered), 0, a)


# -- edges and triangles -----------------------------------------------------------------------------------------------


def pad(x: ArrayLike, pad_width: Any, /, mode: str = "constant", constant_values: ArrayLike = 0) -> Tensor:
    """``constant_values`` put around the array.

    pad_width: as in NumPy: one int for all edges, ``(before, after)`` for all axes, or such a pair for each axis.
    """
    node = _node(x, "pad")
    if mode != "constant":
        raise ArgumentError(f"pad: mode {mode!r} is not available; supported: 'constant'")
    rank = len(node.shape)
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (rank, 2))
    except ValueError as error:
        raise ShapeError(f"pad: pad_width {pad_width!r} does not fit an array of {rank} axes") from error
    if widths.dtype.kind not in "iu" or (widths.size and widths.min() < 0):
        raise ShapeError(f"pad: widths must be non-negative integers, got {pad_width!r}")
    if isinstance(constant_values, int | float):
        value = scalar_node(constant_values, node.dtype)
    else:
        value = ops.cast(_node(constant_values, "pad"), node.dtype)
        if value.shape:
            raise ShapeError(f"pad: constant_values must be one number, got shape {value.shape}")
    low = tuple([int(w) for w in widths[:, 0]])
    high = tuple([int(w) for w in widths[:, 1]])
    if not any(low) and not any(high):
        return Tensor(node)
    return Tensor(move.pad(node, value, low, high, (0,) * rank))


def _triangle(node: Node, k: int, lower: bool, op: str) -> Node:
    if len(node.shape) < 2:
        raise ShapeError(f"{op}: at least two axes expected, got shape {node.shape}")
    rows = leaf.iota(node.shape[-2:], 0, dtypes.int64)
    columns = leaf.iota(node.shape[-2:], 1, dtypes.int64)
    reach = ops.add(rows, int(k)) if k else rows
    kept = ops.less_equal(columns, reach) if lower else ops.greater_equal(columns, reach)
    return ops.where(kept, node, scalar_node(0, node.dtype))


def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The lower triangle of the last two axes, up to the diagonal ``k``; 0 above."""
    return Tensor(_triangle(_node(x, "tril"), k, True, "tril"))


def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The upper triangle of the last two axes, from the diagonal ``k``; 0 below."""
    return Tensor(_triangle(_node(x, "triu"), k, False, "triu"))


def diagonal(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Elements ``x[..., i, i + offset]`` of two axes, along a new last axis."""
    node = _node(x, "diagonal")
    rank = len(node.shape)
    a, b = normalize_axis(axis1, rank, "diagonal"), normalize_axis(axis2, rank, "diagonal")
    if a == b:
        raise ShapeError(f"diagonal: axis1 and axis2 are both {a}")
    moved = _permute(node, (*[d for d in range(rank) if d not in (a, b)], a, b))
    return Tensor(diagonal_node(moved, offset))


def diagonal_node(node: Node, offset: int = 0) -> Node:
    """The diagonal of the last two axes. Reading a matrix of row length n with stride n + 1 needs no index list."""
    rows, columns = node.shape[-2:]
    lead = node.shape[:-2]
    if offset >= 0:
        node = narrow(node, len(lead) + 1, builtins.min(offset, columns), columns)
    else:
        node = narrow(node, len(lead), builtins.min(-offset, rows), rows)
    rows, columns = node.shape[-2:]
    length = builtins.min(rows, columns)
    if length == 0:
        return move.reshape(node, (*lead, 0))
    node = narrow(narrow(node, len(lead), 0, length), len(lead) + 1, 0, length)
    flat = move.reshape(node, (*lead, length * length))
    count = len(lead)
    return move.slice(
        flat, (0,) * (count + 1), (*lead, length * length), (1,) * count + (length + 1,)
    )


def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A vector on the diagonal ``k`` of a square matrix of zeros, or the diagonal ``k`` of a matrix."""
    node = _node(x, "diag")
    if len(node.shape) == 2:
        return Tensor(diagonal_node(node, k))
    if len(node.shape) != 1:
        raise ShapeError(f"diag: one or two axes expected, got shape {node.shape}")
    extent = node.shape[0]
    rows = leaf.iota((extent, extent), 0, dtypes.int64)
    columns = leaf.iota((extent, extent), 1, dtypes.int64)
    square = ops.where(ops.equal(rows, columns), move.reshape(node, (1, extent)), scalar_node(0, node.dtype))
    if k == 0:
        return Tensor(square)
    edges = ((0, abs(k)), (abs(k), 0)) if k > 0 else ((abs(k), 0), (0, abs(k)))
    return pad(Tensor(square), edges)


def trace(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """Sum of the diagonal of the last two axes; integers give int64 or uint64."""
    from .reduction import sum

    node = _node(x, "trace")
    if len(node.shape) < 2:
        raise ShapeError(f"trace: at least two axes expected, got shape {node.shape}")
    return sum(Tensor(diagonal_node(node, offset)), axis=-1)


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
        node = minus(narrow(node, a, 1, extent), narrow(node, a, 0, extent - 1))
    return Tensor(node)


# -- NumPy's names -----------------------------------------------------------------------------------------------------

concatenate = concat
transpose = permute_dims
