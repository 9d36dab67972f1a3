"""Functions that join, cut and repeat: concat and stack, split and chunk, tile and repeat, and NumPy's stacks.

Operands that are joined are promoted to one dtype. Shapes that do not fit and axes that are out of range raise
ShapeError.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError, TraceError
from ..graph.node import Node
from ..interop import materialize
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf
from ..ops import movement as move
from ..ops.scan import scan_sum
from ..ops.sorting import searchsorted
from ..shapes import as_int, as_shape, normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, promote

# -- joining -----------------------------------------------------------------------------------------------------------


def _several(arrays: Any, op: str) -> list[Node]:
    if isinstance(arrays, Tensor | np.ndarray) and len(arrays.shape):
        arrays = list(arrays)
    if not isinstance(arrays, Sequence) or not len(arrays):
        raise ShapeError(f"{op}: a non-empty sequence of arrays expected")
    return promote(*arrays, op=op)


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
    return Tensor(_concat(nodes, normalize_axis(axis, rank, "concat"), "concat"))


def _concat(nodes: list[Node], axis: int, op: str) -> Node:
    """The nodes one after the other, their shapes checked."""
    first = nodes[0].shape
    for n in nodes[1:]:
        if len(n.shape) != len(first) or any(
            a != b for d, (a, b) in enumerate(zip(n.shape, first, strict=True)) if d != axis
        ):
            raise ShapeError(f"{op}: shapes {first} and {n.shape} differ in more than axis {axis}")
    return move.concat(nodes, axis)


def stack(arrays: Sequence[ArrayLike], /, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    nodes = _several(arrays, "stack")
    shape = nodes[0].shape
    for n in nodes[1:]:
        if n.shape != shape:
            raise ShapeError(f"stack: all arrays must have one shape, got {shape} and {n.shape}")
    position = normalize_axis(axis, len(shape) + 1, "stack")
    return Tensor(move.concat([move.expand_dims(n, (position,)) for n in nodes], position))


def vstack(arrays: Sequence[ArrayLike], /) -> Tensor:
    """Rows below each other: concatenation along axis 0 of arrays made at least 2-d, vectors as rows."""
    nodes = [n if len(n.shape) > 1 else move.reshape(n, (1, n.size)) for n in _several(arrays, "vstack")]
    return Tensor(_concat(nodes, 0, "vstack"))


def hstack(arrays: Sequence[ArrayLike], /) -> Tensor:
    """Columns beside each other: concatenation along axis 1, of vectors (and 0-d arrays) along their only axis."""
    nodes = [n if n.shape else move.reshape(n, (1,)) for n in _several(arrays, "hstack")]
    return Tensor(_concat(nodes, 0 if len(nodes[0].shape) == 1 else 1, "hstack"))


def dstack(arrays: Sequence[ArrayLike], /) -> Tensor:
    """Concatenation along axis 2 of arrays made 3-d as by :func:`atleast_3d`."""
    nodes = [move.reshape(n, three_axes(n.shape)) for n in _several(arrays, "dstack")]
    return Tensor(_concat(nodes, 2, "dstack"))


def three_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with at least three axes: a vector lies along axis 1, a matrix in axes 0 and 1."""
    if len(shape) >= 3:
        return shape
    return {0: (1, 1, 1), 1: (1, *shape, 1)}.get(len(shape), (*shape, 1))


def column_stack(arrays: Sequence[ArrayLike], /) -> Tensor:
    """Vectors as the columns of a matrix, beside those of matrices."""
    nodes = [n if len(n.shape) > 1 else move.reshape(n, (n.size, 1)) for n in _several(arrays, "column_stack")]
    return Tensor(_concat(nodes, 1, "column_stack"))


def block(arrays: Any, /) -> Tensor:
    """An array put together from blocks: the innermost lists along the last axis, those around them along the one
    before, and so on. Blocks of fewer axes than lists are nested get leading ones.

    Raises ShapeError for lists of unequal depth, an empty list, or blocks that do not fit.
    """
    depth = _depth(arrays)
    flat: list[ArrayLike] = []
    _leaves(arrays, flat)
    nodes = promote(*flat, op="block")
    rank = builtins.max(depth, *[len(n.shape) for n in nodes])
    remaining = iter([move.reshape(n, (1,) * (rank - len(n.shape)) + n.shape) for n in nodes])

    def join(tree: Any, level: int) -> Node:
        if not isinstance(tree, list):
            return next(remaining)
        return _concat([join(branch, level + 1) for branch in tree], rank - depth + level, "block")

    return Tensor(join(arrays, 0))


def _depth(tree: Any) -> int:
    if not isinstance(tree, list):
        return 0
    depths = {_depth(branch) for branch in tree}
    if len(depths) != 1:
        what = f"lists nested {sorted(depths)} deep stand beside each other" if depths else "a list is empty"
        raise ShapeError(f"block: {what}")
    return depths.pop() + 1


def _leaves(tree: Any, found: list[ArrayLike]) -> None:
    if isinstance(tree, list):
        for branch in tree:
            _leaves(branch, found)
    else:
        found.append(tree)


# -- cutting -----------------------------------------------------------------------------------------------------------


def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along ``axis``, without that axis."""
    node = as_node(x, None, "unstack")
    a = normalize_axis(axis, len(node.shape), "unstack")
    rest = node.shape[:a] + node.shape[a + 1 :]
    return tuple([Tensor(move.reshape(move.slice_axis(node, a, i, i + 1), rest)) for i in range(node.shape[a])])


def _cut(node: Node, axis: int, cuts: Sequence[int]) -> list[Tensor]:
    """Pieces before, between and after ``cuts``, read as the bounds of slices."""
    extent = node.shape[axis]
    pieces = []
    start = 0
    for cut in [*cuts, None]:
        low, high, _ = builtins.slice(start, cut).indices(extent)
        pieces.append(Tensor(move.slice_axis(node, axis, low, builtins.max(low, high))))
        start = cut if cut is not None else extent
    return pieces


def split(x: ArrayLike, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """Pieces along ``axis``: so many of equal extent, or cut before each of the given positions (NumPy's ``split``).

    Raises ShapeError where the extent does not divide; :func:`array_split` and :func:`chunk` allow that.
    """
    node = as_node(x, None, "split")
    a = normalize_axis(axis, len(node.shape), "split")
    return _split(node, indices_or_sections, a, "split", True)


def array_split(x: ArrayLike, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """As :func:`split`, but so many pieces need not be equal: the first ones have one element more."""
    node = as_node(x, None, "array_split")
    a = normalize_axis(axis, len(node.shape), "array_split")
    return _split(node, indices_or_sections, a, "array_split", False)


def _split(node: Node, sections: int | Sequence[int], axis: int, op: str, equal: bool) -> list[Tensor]:
    if isinstance(sections, Sequence) or (isinstance(sections, np.ndarray | Tensor) and sections.ndim):
        return _cut(node, axis, [as_int(c, op, "a position") for c in sections])
    count, extent = as_int(sections, op, "the number of pieces"), node.shape[axis]
    if count <= 0:
        raise ShapeError(f"{op}: the number of pieces must be positive, got {count}")
    if equal and extent % count:
        raise ShapeError(
            f"{op}: axis {axis} of extent {extent} does not divide into {count} equal pieces; use array_split or chunk"
        )
    each, more = divmod(extent, count)
    return _cut(node, axis, [each * i + builtins.min(i, more) for i in range(1, count)])


def hsplit(x: ArrayLike, indices_or_sections: int | Sequence[int], /) -> list[Tensor]:
    """:func:`split` along axis 1, of a vector along axis 0."""
    node = as_node(x, None, "hsplit")
    if not node.shape:
        raise ShapeError("hsplit: at least one axis expected, got a 0-d tensor")
    return _split(node, indices_or_sections, builtins.min(1, len(node.shape) - 1), "hsplit", True)


def vsplit(x: ArrayLike, indices_or_sections: int | Sequence[int], /) -> list[Tensor]:
    """:func:`split` along axis 0; ShapeError below two axes."""
    return _split(_of_rank(x, 2, "vsplit"), indices_or_sections, 0, "vsplit", True)


def dsplit(x: ArrayLike, indices_or_sections: int | Sequence[int], /) -> list[Tensor]:
    """:func:`split` along axis 2; ShapeError below three axes."""
    return _split(_of_rank(x, 3, "dsplit"), indices_or_sections, 2, "dsplit", True)


def _of_rank(x: ArrayLike, least: int, op: str) -> Node:
    node = as_node(x, None, op)
    if len(node.shape) < least:
        raise ShapeError(f"{op}: at least {least} axes expected, got shape {node.shape}")
    return node


def chunk(x: ArrayLike, chunks: int, /, axis: int = 0) -> list[Tensor]:
    """At most ``chunks`` pieces along ``axis``, of equal extent but for the last, which may be smaller (PyTorch's rule:
    7 elements in 4 chunks are 2, 2, 2, 1, and 5 are 2, 2, 1)."""
    node = as_node(x, None, "chunk")
    a = normalize_axis(axis, len(node.shape), "chunk")
    count = as_int(chunks, "chunk", "chunks")
    if count < 1:
        raise ShapeError(f"chunk: the number of pieces must be positive, got {count}")
    each = -(-node.shape[a] // count)
    return _cut(node, a, range(each, node.shape[a], each) if each else [0] * (count - 1))


def narrow(x: ArrayLike, axis: int, start: int, length: int, /) -> Tensor:
    """``length`` elements along ``axis`` from ``start`` on (negative: from the end); else IndexError."""
    node = as_node(x, None, "narrow")
    a = normalize_axis(axis, len(node.shape), "narrow")
    extent = node.shape[a]
    begin, count = as_int(start, "narrow", "start"), as_int(length, "narrow", "length")
    first = begin + (extent if begin < 0 else 0)
    if not 0 <= first <= first + count <= extent:
        raise IndexError(f"narrow: {count} elements from {begin} on are not in axis {a} of shape {node.shape}")
    return Tensor(move.slice_axis(node, a, first, first + count))


# -- repeating ---------------------------------------------------------------------------------------------------------


def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Tensor:
    """The whole array repeated ``repetitions`` times along each axis; the last entry is for the last axis."""
    node = as_node(x, None, "tile")
    counts = as_shape(repetitions, "tile")
    rank = builtins.max(len(counts), len(node.shape))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - len(node.shape)) + node.shape
    expanded = move.reshape(node, tuple([e for extent in shape for e in (1, extent)]))
    repeated = move.broadcast_to(
        expanded, tuple([e for count, extent in zip(counts, shape, strict=True) for e in (count, extent)])
    )
    return Tensor(move.reshape(repeated, tuple([c * e for c, e in zip(counts, shape, strict=True)])))


def repeat(
    x: ArrayLike,
    repeats: int | Sequence[int] | ArrayLike,
    /,
    axis: int | None = None,
    total_repeat_length: int | None = None,
) -> Tensor:
    """Each element repeated along ``axis`` (None: of the flattened array), all as often or each as its count says.

    total_repeat_length: the extent of the result, which ``jit`` and ``vmap`` have to know where counts are a traced
    tensor (TraceError without). Elements beyond it are cut off; where counts sum to less, the last element goes on.
    Raises DTypeError for counts that are not integers, ShapeError for other than one count an element.
    """
    node = as_node(x, None, "repeat")
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    a = normalize_axis(axis, len(node.shape), "repeat")
    extent = node.shape[a]
    counted = as_node(repeats if isinstance(repeats, Tensor) else np.asarray(repeats), None, "repeat")
    if counted.dtype.kind not in "iu":
        raise DTypeError(f"repeat: counts must be integers, got {counted.dtype.name}")
    if counted.shape not in ((), (1,), (extent,)):
        raise ShapeError(f"repeat: counts of shape {counted.shape} for axis {a} of extent {extent}")
    if total_repeat_length is not None:
        total = as_int(total_repeat_length, "repeat", "total_repeat_length")
        return Tensor(_repeat_to(node, a, counted, as_shape(total, "repeat")[0]))
    counts = _known_counts(repeats)
    if counts.size and counts.min() < 0:
        raise ArgumentError(f"repeat: counts must not be negative, got {counts.min()}")
    if counts.size == 1:
        return Tensor(_repeat_evenly(node, a, int(counts.reshape(()))))
    positions = leaf.data(np.repeat(np.arange(extent), counts), False)
    return Tensor(move.move_axis(index_ops.gather(node, [positions], (a,)), 0, a))


def _known_counts(repeats: ArrayLike) -> np.ndarray[Any, Any]:
    if not isinstance(repeats, Tensor):
        return np.asarray(repeats)
    try:
        return materialize(repeats.node, "repeat")
    except TraceError as error:
        raise TraceError(f"repeat: give the extent of the result, total_repeat_length=; {error}") from None


def _repeat_evenly(node: Node, axis: int, count: int) -> Node:
    before, extent, after = node.shape[:axis], node.shape[axis], node.shape[axis + 1 :]
    lined_up = move.reshape(node, (*before, extent, 1, *after))
    repeated = move.broadcast_to(lined_up, (*before, extent, count, *after))
    return move.reshape(repeated, (*before, extent * count, *after))


def _repeat_to(node: Node, axis: int, counts: Node, total: int) -> Node:
    """As often as ``counts`` say, known only later, in a result of extent ``total``."""
    extent = node.shape[axis]
    if extent == 0:
        if total:
            raise ShapeError(f"repeat: an axis without elements cannot fill total_repeat_length={total}")
        return node
    counts = move.broadcast_to(move.reshape(cast_node(counts, dtypes.int64), (counts.size,)), (extent,))
    # The element at a place is the first one that ends beyond it.
    places = leaf.iota((total,), 0, dtypes.int64)
    positions = searchsorted(scan_sum(counts, 0), places, True)
    positions = ops.minimum(positions, extent - 1)
    return move.move_axis(index_ops.gather(node, [positions], (axis,)), 0, axis)


# -- NumPy's name ------------------------------------------------------------------------------------------------------

concatenate = concat
