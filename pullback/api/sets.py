"""The different values of a tensor: unique and the array API's unique_ functions, and isin.

How many there are depends on values, so the unique functions evaluate their operand, and raise TraceError under ``jit``
and ``vmap``. With ``size=`` they give that many, which works everywhere: the smallest ``size`` values; if there are
fewer, the rest of the values is ``fill_value`` (None: the smallest value), of the indices the smallest value's, of the
counts 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import ArgumentError
from ..graph.node import Node
from ..graph.tracking import is_tracked
from ..interop import materialize
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf, sorting
from ..ops import movement as move
from ..shapes import normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node, promote
from .indexing import stored_node, take
from .positions import checked_size, known_value
from .sorting import searchsorted_node


class UniqueAll(NamedTuple):
    """What :func:`unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What :func:`unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What :func:`unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


class _Parts(NamedTuple):
    """Positions of the first occurrences in the flattened operand, the rank of each element, counts, all 1-d; and, for
    a given size, which of the positions there are."""

    first: Node
    rank: Node
    counts: Node
    is_there: Node | None = None


def _index_data(array: Any) -> Node:
    return leaf.data(np.ascontiguousarray(array, np.int64), False)


def _parts_of_values(node: Node, equal_nan: bool, op: str) -> _Parts:
    """As many as there are: the values of ``node`` (1-d) are looked at."""
    rank = sorting.dense_rank(node, equal_nan)
    ranks = known_value(rank, op, "size")
    counts = np.bincount(ranks)
    first = np.empty(len(counts), np.int64)
    first[ranks[::-1]] = np.arange(ranks.size - 1, -1, -1)  # of repeated positions the last written wins
    return _Parts(_index_data(first), rank, _index_data(counts))


def _parts_of_size(node: Node, size: int, equal_nan: bool) -> _Parts:
    extent = node.shape[0]
    rank = sorting.dense_rank(node, equal_nan)
    slot = ops.minimum(rank, size)  # the last slot takes what is too much
    nowhere = leaf.full((size + 1,), extent, dtypes.int64)
    first = index_ops.scatter(nowhere, leaf.iota((extent,), 0, dtypes.int64), [slot], (0,), "min")
    zeros, ones = leaf.full((size + 1,), 0, dtypes.int64), leaf.full((extent,), 1, dtypes.int64)
    counts = move.slice_axis(index_ops.scatter(zeros, ones, [slot], (0,), "add"), 0, 0, size)
    first = move.slice_axis(first, 0, 0, size)
    is_there = ops.less(first, extent)
    if size:
        first = ops.where(is_there, first, move.slice_axis(first, 0, 0, 1))
    return _Parts(first, rank, counts, is_there)


def _unique(node: Node, size: int | None, fill_value: Any, equal_nan: bool, op: str) -> tuple[Node, _Parts]:
    """The values in ascending order and their parts; ``node`` is 1-d."""
    if size is None:
        parts = _parts_of_values(node, equal_nan, op)
        return index_ops.gather(node, [parts.first], (0,)), parts
    count = checked_size(size, op)
    if not node.size:
        if fill_value is None and count:
            raise ArgumentError(f"{op}: a tensor without elements has no smallest value; give fill_value=")
        nothing = leaf.full((count,), 0, dtypes.int64)
        fill = stored_node(0 if fill_value is None else fill_value, node.dtype, f"{op}: fill_value")
        return move.broadcast_to(fill, (count,)), _Parts(nothing, leaf.full((0,), 0, dtypes.int64), nothing)
    parts = _parts_of_size(node, count, equal_nan)
    values = index_ops.gather(node, [parts.first], (0,))
    if fill_value is not None and parts.is_there is not None:
        values = ops.where(parts.is_there, values, stored_node(fill_value, node.dtype, f"{op}: fill_value"))
    return values, parts


def _flat(x: ArrayLike, op: str) -> tuple[Node, Node]:
    node = as_node(x, None, op)
    return node, move.reshape(node, (node.size,))


def unique_all(x: ArrayLike, /, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """The different values in ascending order, the position (in the flattened x) at which each first occurs, for each
    element of x the position of its value, and how often each value occurs.

    NaN are different from each other, as in the array API (:func:`unique` can take them as equal); -0 equals 0. The
    gradient goes to the first occurrences. size, fill_value: see the module; ``inverse_indices`` of values that
    ``size`` leaves out are ``size`` or more.
    """
    node, flat = _flat(x, "unique_all")
    values, parts = _unique(flat, size, fill_value, False, "unique_all")
    inverse = move.reshape(parts.rank, node.shape)
    return UniqueAll(Tensor(values), Tensor(parts.first), Tensor(inverse), Tensor(parts.counts))


def unique_counts(x: ArrayLike, /, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """The different values in ascending order and how often each occurs; see :func:`unique_all`."""
    _, flat = _flat(x, "unique_counts")
    values, parts = _unique(flat, size, fill_value, False, "unique_counts")
    return UniqueCounts(Tensor(values), Tensor(parts.counts))


def unique_inverse(x: ArrayLike, /, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """The different values in ascending order and, for each element, the position of its value:
    ``values[inverse_indices]`` is x. See :func:`unique_all`.
    """
    node, flat = _flat(x, "unique_inverse")
    values, parts = _unique(flat, size, fill_value, False, "unique_inverse")
    return UniqueInverse(Tensor(values), Tensor(move.reshape(parts.rank, node.shape)))


def unique_values(x: ArrayLike, /, size: int | None = None, fill_value: Any = None) -> Tensor:
    """The different values in ascending order; see :func:`unique_all`."""
    _, flat = _flat(x, "unique_values")
    return Tensor(_values(flat, size, fill_value, False, "unique_values"))


def _values(flat: Node, size: int | None, fill_value: Any, equal_nan: bool, op: str) -> Node:
    if size is not None or is_tracked(flat):
        return _unique(flat, size, fill_value, equal_nan, op)[0]
    # Nobody asks where they came from, so sorted values will do.
    line = known_value(sorting.sort(flat, 0), op, "size")
    is_new = np.ones(line.shape, np.bool_)
    np.not_equal(line[1:], line[:-1], out=is_new[1:])
    if equal_nan and flat.dtype.kind == "f":
        is_new[1:] &= ~np.isnan(line[:-1])  # what follows a NaN is a NaN
    return leaf.data(np.ascontiguousarray(line[is_new]), False)


def unique(
    x: ArrayLike, /, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
) -> Any:
    """NumPy's ``unique``: the different values in ascending order, and after it, as asked for, the positions of the
    first occurrences, the positions of each element's value, and how often each value occurs.

    axis: None takes the elements of the flattened tensor, else the slices along an axis, in lexicographic order.
    equal_nan: whether NaN are equal to each other.   size, fill_value: see the module; with ``axis=None`` only.
    The gradient goes to the first occurrences. Raises ArgumentError for a size beside an axis.
    """
    node, flat = _flat(x, "unique")
    if axis is not None:
        if size is not None:
            raise ArgumentError("unique: size= needs axis=None; the number of different slices cannot be given")
        values, parts = _unique_slices(node, normalize_axis(axis, len(node.shape), "unique"), equal_nan)
        inverse = parts.rank
    elif not (return_index or return_inverse or return_counts):
        return Tensor(_values(flat, size, fill_value, equal_nan, "unique"))
    else:
        values, parts = _unique(flat, size, fill_value, equal_nan, "unique")
        inverse = move.reshape(parts.rank, node.shape)
    wanted = [(return_index, parts.first), (return_inverse, inverse), (return_counts, parts.counts)]
    result = (Tensor(values), *[Tensor(part) for asked, part in wanted if asked])
    return result if len(result) > 1 else result[0]


def _unique_slices(node: Node, axis: int, equal_nan: bool) -> tuple[Node, _Parts]:
    array = materialize(node, "unique along an axis")
    keys = sorting.ordered_keys(np.moveaxis(array, axis, 0), node.dtype)
    if keys.dtype.kind == "u" and keys.dtype.itemsize < 8:
        keys = keys.astype(np.int64)
    rows = keys.reshape(keys.shape[0], -1)
    if node.dtype.kind == "f" and not equal_nan:
        # Slices with a NaN are told apart by a last column.
        has_nan = (rows == np.iinfo(rows.dtype).max).any(axis=1)
        own = np.where(has_nan, np.arange(1, len(rows) + 1), 0)
        rows = np.column_stack([rows.astype(np.int64), own])
    _, first, rank, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True, axis=0)
    parts = _Parts(_index_data(first), _index_data(rank.reshape(-1)), _index_data(counts))
    return take(Tensor(node), Tensor(parts.first), axis=axis).node, parts


def isin(
    elements: ArrayLike, test_elements: ArrayLike, /, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among ``test_elements`` (bools of the shape of ``elements``); NaN is in nothing.

    invert: whether it is not.   assume_unique: accepted for NumPy's sake; it changes nothing.
    """
    wanted, among = promote(elements, test_elements, op="isin")
    if not among.size:
        return Tensor(leaf.full(wanted.shape, bool(invert), dtypes.bool_))
    line = sorting.sort(move.reshape(among, (among.size,)), 0)
    place = ops.minimum(searchsorted_node(line, wanted, False), among.size - 1)
    found = ops.equal(index_ops.gather(line, [place], (0,)), wanted)
    return Tensor(ops.logical_not(found) if invert else found)
