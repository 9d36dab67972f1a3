"""Ops that compare elements along an axis: sort, argsort, arg_top_k, dense_rank, searchsorted.

All of them order by integer *keys* that :func:`ordered_keys` makes of the elements: -0 and 0 are equal, NaN is the
largest, all NaN are equal, and a descending order is the ascending order of the complements. So ties are seen the same
way everywhere, every order is stable, and ``sort`` and its derivative, which gathers by ``argsort``, agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape
from . import indexing, movement
from .family import INTEGER_RESULT, Array, mixed_error, rank_error, widen, with_batch
from .record import Jvp, Op
from .registry import register

_HALF = (dtypes.float16, dtypes.bfloat16)
_INFINITY = {  # the bits of infinity; those of a NaN are larger
    dtypes.float16: 0x7C00, dtypes.bfloat16: 0x7F80, dtypes.float32: 0x7F800000, dtypes.float64: 0x7FF0000000000000,
}


# -- keys --------------------------------------------------------------------------------------------------------------


def ordered_keys(x: Array, dtype: DType, descending: bool = False) -> Array:
    """Integers of the width of ``dtype`` whose ascending order is the order of ``x``, stable order included."""
    if dtype.kind == "f":
        keys = _float_keys(x, dtype)
    elif dtype.kind == "b":
        keys = x.view(np.uint8)
    else:
        keys = x
    return ~keys if descending else keys


def _float_keys(x: Array, dtype: DType) -> Array:
    integer = np.dtype(f"i{dtype.itemsize}")
    bits = np.ascontiguousarray(x).view(integer).reshape(x.shape)
    largest = np.iinfo(integer).max
    keys = np.bitwise_and(bits, integer.type(largest))  # the magnitude
    is_nan = keys > _INFINITY[dtype] if keys.size and keys.max() > _INFINITY[dtype] else None
    sign = np.right_shift(bits, 8 * dtype.itemsize - 1)  # -1 or 0
    keys ^= sign
    keys -= sign
    if is_nan is not None:
        keys[is_nan] = largest
    return keys


def _floats_of_keys(keys: Array, dtype: DType) -> Array:
    """The inverse of :func:`ordered_keys` for ascending float keys; all zeros are positive."""
    smallest = np.iinfo(keys.dtype).min
    return np.where(keys < 0, -keys | smallest, keys).view(dtype.numpy)


def _sort_kind(dtype: Any) -> Any:
    """NumPy's stable sort of narrow integers is a radix sort, several times as fast as its default."""
    return "stable" if dtype.itemsize <= 2 else None


def _stable_order(keys: Array) -> Array:
    """Positions (int64) that sort ``keys`` along the last axis, equal ones in their order.

    Key and position are packed in 64 bits and sorted as one number, which beats NumPy's argsort. Where they do not fit,
    the key's low bits are left out at first, and the few keys that differ in these alone are sorted after; are there
    many, NumPy's fast unstable order is repaired: within each run of equal keys the positions are sorted.
    """
    extent = keys.shape[-1]
    if keys.dtype.itemsize <= 2:
        return np.argsort(keys, axis=-1, kind="stable").astype(np.int64, copy=False)
    position = np.arange(extent, dtype=np.int64)
    if not keys.size:
        return np.empty(keys.shape, np.int64)
    low, high = int(keys.min()), int(keys.max())
    shift = max(extent - 1, 1).bit_length()
    omitted = max((high - low).bit_length() + shift - 64, 0)
    packed = keys.astype(np.uint64)  # modulo 2**64, which the difference to the smallest undoes
    packed -= np.uint64(low % (1 << 64))
    if omitted:
        packed >>= np.uint64(omitted)
    packed <<= np.uint64(shift)
    packed |= position.view(np.uint64)
    packed.sort(axis=-1)
    same = None
    if omitted:
        same = np.zeros(keys.shape, np.bool_)
        # Neighbours have the same high bits if what differs lies in the position's bits.
        np.less((packed[..., 1:] ^ packed[..., :-1]), np.uint64(1 << shift), out=same[..., 1:])
    packed &= np.uint64((1 << shift) - 1)
    order = packed.view(np.int64)
    if same is None or not same.any():
        return order
    if np.count_nonzero(same) * 16 < same.size:
        return _sorted_by_low_bits(order, same, keys)
    return _argsort_and_repair(keys)


def _sorted_by_low_bits(order: Array, same: Array, keys: Array) -> Array:
    """``order`` with each run, of places where ``same`` holds and the one before, sorted by key."""
    member = same.copy()
    member[..., :-1] |= same[..., 1:]
    place = np.flatnonzero(member)
    run = np.cumsum(~same.reshape(-1)[place])
    extent = keys.shape[-1]
    positions = order.reshape(-1)[place]
    values = keys.reshape(-1)[place // extent * extent + positions]
    order.reshape(-1)[place] = positions[np.lexsort((values, run))]
    return order


def _argsort_and_repair(keys: Array) -> Array:
    extent = keys.shape[-1]
    order = np.argsort(keys, axis=-1).astype(np.int64, copy=False)
    in_order = np.take_along_axis(keys, order, -1)
    is_new = in_order[..., 1:] != in_order[..., :-1]
    if not is_new.all():
        group = np.zeros(keys.shape, np.int64)
        np.cumsum(is_new, axis=-1, out=group[..., 1:])
        group *= extent
        order += group  # groups are in order already, so sorting these numbers sorts within each group
        order.sort(axis=-1)
        order -= group
    return order


def _lines(x: Array, axis: int) -> Array:
    """``x`` with ``axis`` moved to the end, contiguous."""
    return np.ascontiguousarray(np.moveaxis(x, axis, -1))


def _check_axis(name: str, x: Node, axis: int) -> None:
    if not 0 <= axis < len(x.shape):
        raise rank_error(name, f"there is no axis {axis}", x)


# -- sort --------------------------------------------------------------------------------------------------------------


def _infer_sort(inputs: tuple[Node, ...], axis: int, descending: bool) -> tuple[Shape, DType]:
    (x,) = inputs
    _check_axis("sort", x, axis)
    return x.shape, x.dtype


def _sort_into(node: Node, out: Array, x: Array) -> None:
    axis, descending = node.attrs
    dtype = node.dtype
    kind = _sort_kind(dtype)
    if dtype in _HALF:
        keys = ordered_keys(x, dtype)
        keys.sort(axis=axis, kind=kind)
        np.copyto(np.flip(out, axis) if descending else out, _floats_of_keys(keys, dtype))
    elif not descending:
        np.copyto(out, x)
        out.sort(axis=axis, kind=kind)
    else:
        opposite: Any = np.negative if dtype.kind == "f" else np.invert
        opposite(x, out=out)
        out.sort(axis=axis, kind=kind)
        if dtype.kind == "f" and x.size and np.isnan(np.take(out, -1, axis)).any():
            backwards = np.flip(out, axis)  # NaN are last in either sign, and belong to the front
            np.copyto(backwards, x)
            backwards.sort(axis=axis)
        else:
            opposite(out, out=out)
    if dtype.kind == "f" and x.size:
        bits = np.ascontiguousarray(x).view(f"i{dtype.itemsize}")
        if bits.min() == np.iinfo(bits.dtype).min:  # there is a -0
            # The zeros of both signs are equal, so they stay in their order. Each line has as many before as after.
            source, target = np.moveaxis(x, axis, -1), np.moveaxis(out, axis, -1)
            target[target == 0] = source[source == 0]


def _sort_reference(node: Node, x: Array) -> Array:
    out = np.empty(node.shape, node.dtype.numpy)
    _sort_into(node, out, x)
    return out


def _sort_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    axis, descending = node.attrs
    order = argsort(node.inputs[0], axis, descending)
    return indexing.take_along(tangents[0], order, axis)  # type: ignore[arg-type]


def _batch_sort(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    axis, *rest = node.attrs
    return bind(node.op, inputs, (axis + 1, *rest), node.weak)


SORT = register(Op(
    "sort", "host", _infer_sort, _sort_reference, Jvp(_sort_tangent), _batch_sort, "sort", 30.0,
    ("axis", "descending"), "x in order along an axis; NaN counts as the largest; the derivative goes where the "
    "elements came from, equal ones in their order", into=_sort_into,
))


def sort(x: Node, axis: int, descending: bool = False) -> Node:
    """``x`` in order along ``axis``; NaN counts as the largest."""
    return bind(SORT, (x,), (axis, descending), x.weak)


# -- argsort -----------------------------------------------------------------------------------------------------------


def _infer_argsort(inputs: tuple[Node, ...], axis: int, descending: bool) -> tuple[Shape, DType]:
    (x,) = inputs
    _check_axis("argsort", x, axis)
    return x.shape, dtypes.int64


def _argsort_reference(node: Node, x: Array) -> Array:
    axis, descending = node.attrs
    order = _stable_order(_lines(ordered_keys(x, node.inputs[0].dtype, descending), axis))
    return np.moveaxis(order, -1, axis)


ARGSORT = register(Op(
    "argsort", "host", _infer_argsort, _argsort_reference, INTEGER_RESULT, _batch_sort, "argsort", 30.0,
    ("axis", "descending"), "positions that sort x along an axis, ties in their order; NaN counts as the largest",
))


def argsort(x: Node, axis: int, descending: bool = False) -> Node:
    """Positions (int64) that sort ``x`` along ``axis``, ties in their order; NaN counts as the largest."""
    return bind(ARGSORT, (x,), (axis, descending))


# -- arg_top_k ---------------------------------------------------------------------------------------------------------


def _infer_arg_top_k(inputs: tuple[Node, ...], axis: int, k: int, largest: bool) -> tuple[Shape, DType]:
    (x,) = inputs
    _check_axis("arg_top_k", x, axis)
    if not 0 <= k <= x.shape[axis]:
        raise rank_error("arg_top_k", f"k = {k} is not between 0 and the extent {x.shape[axis]} of axis {axis}", x)
    return (*x.shape[:axis], k, *x.shape[axis + 1 :]), dtypes.int64


def _top_positions(x: Array, dtype: DType, k: int, largest: bool) -> Array:
    """Positions along the last axis of the ``k`` first in order, of equal elements the first ones."""
    extent = x.shape[-1]
    if k == 0 or not x.size or k * 8 > extent or extent < 128:
        return _stable_order(ordered_keys(x, dtype, largest))[..., :k]
    line = x  # in which comparisons are those of the order
    place = extent - k if largest else k - 1
    if dtype in _HALF:
        line = ordered_keys(x, dtype)
    limit = np.partition(line, place, axis=-1)[..., place : place + 1]
    if line.dtype.kind == "f" and np.isnan(limit).any():
        line = ordered_keys(x, dtype)
        limit = np.partition(line, place, axis=-1)[..., place : place + 1]
    chosen = line < limit if largest else line <= limit
    if largest:
        np.logical_not(chosen, out=chosen)  # not >=, which is false for NaN: they are the largest
    if np.count_nonzero(chosen) > k * (x.size // extent):  # of those equal to the limit not all
        inside = ~(line <= limit) if largest else line < limit
        equal = line == limit
        room = k - np.count_nonzero(inside, axis=-1, keepdims=True)
        chosen = inside | (equal & (np.cumsum(equal, axis=-1) <= room))
    found = np.flatnonzero(chosen).reshape(*x.shape[:-1], k)
    found %= extent
    taken = np.take_along_axis(x, found, -1)
    return np.take_along_axis(found, _stable_order(ordered_keys(taken, dtype, largest)), -1)


def _arg_top_k_reference(node: Node, x: Array) -> Array:
    axis, k, largest = node.attrs
    found = _top_positions(_lines(x, axis), node.inputs[0].dtype, k, largest)
    return np.moveaxis(found, -1, axis).astype(np.int64, copy=False)


ARG_TOP_K = register(Op(
    "arg_top_k", "host", _infer_arg_top_k, _arg_top_k_reference, INTEGER_RESULT, _batch_sort, "arg_top_k", 5.0,
    ("axis", "k", "largest"), "positions of the k largest (or smallest) along an axis in order, ties in their order",
))


def arg_top_k(x: Node, axis: int, k: int, largest: bool = True) -> Node:
    """Positions (int64) of the ``k`` largest (or smallest) along ``axis``, these first: ``argsort``'s first ``k``."""
    return bind(ARG_TOP_K, (x,), (axis, k, largest))


# -- dense_rank --------------------------------------------------------------------------------------------------------


def _infer_dense_rank(inputs: tuple[Node, ...], equal_nan: bool) -> tuple[Shape, DType]:
    (x,) = inputs
    if not x.shape:
        raise rank_error("dense_rank", "at least one axis expected", x)
    return x.shape, dtypes.int64


def runs(keys: Array, dtype: DType, equal_nan: bool) -> Array:
    """Where, in keys sorted along the last axis, a value differs from the one before; True at the first."""
    is_new = np.ones(keys.shape, np.bool_)
    np.not_equal(keys[..., 1:], keys[..., :-1], out=is_new[..., 1:])
    if dtype.kind == "f" and not equal_nan:
        is_new |= keys == np.iinfo(keys.dtype).max
    return is_new


def _dense_rank_reference(node: Node, x: Array) -> Array:
    dtype = node.inputs[0].dtype
    keys = ordered_keys(x, dtype)
    order = _stable_order(keys)
    is_new = runs(np.take_along_axis(keys, order, -1), dtype, node.attrs[0])
    rank = np.empty(x.shape, np.int64)
    np.put_along_axis(rank, order, np.cumsum(is_new, axis=-1, dtype=np.int64) - 1, -1)
    return rank


DENSE_RANK = register(Op(
    "dense_rank", "host", _infer_dense_rank, _dense_rank_reference, INTEGER_RESULT,
    lambda node, inputs, batched, size: dense_rank(inputs[0], *node.attrs), "dense_rank", 40.0, ("equal_nan",),
    "along the last axis, how many different values are smaller than each element",
))


def dense_rank(x: Node, equal_nan: bool = False) -> Node:
    """Along the last axis, how many different values are smaller (int64); equal elements have equal ranks.

    ``equal_nan``: whether NaN are equal to each other; else each is larger than the one before.
    """
    return bind(DENSE_RANK, (x,), (equal_nan,))


# -- searchsorted ------------------------------------------------------------------------------------------------------


def _infer_searchsorted(inputs: tuple[Node, ...], right: bool) -> tuple[Shape, DType]:
    line, values = inputs
    if line.dtype is not values.dtype:
        raise mixed_error("searchsorted", line, values)
    if not line.shape or len(line.shape) != len(values.shape) or line.shape[:-1] != values.shape[:-1]:
        raise rank_error("searchsorted", "the axes before the last must be the same", line, values)
    return values.shape, dtypes.int64


def _searchsorted_reference(node: Node, line: Array, values: Array) -> Array:
    side: Any = "right" if node.attrs[0] else "left"
    line, values = widen(line, node.inputs[0].dtype), widen(values, node.inputs[0].dtype)
    if line.ndim == 1:
        return np.asarray(np.searchsorted(line, values, side)).astype(np.int64, copy=False)
    found = np.empty(values.shape, np.int64)
    for place in np.ndindex(line.shape[:-1]):
        found[place] = np.searchsorted(line[place], values[place], side)
    return found


def _batch_searchsorted(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    (right,) = node.attrs
    line, values = inputs
    if batched[0]:
        return searchsorted(line, with_batch(values, batched[1], size), right)
    # One search of all values in each line.
    rank = len(line.shape)
    together = movement.move_axis(values, 0, rank - 1)
    flat = movement.reshape(together, (*line.shape[:-1], size * values.shape[-1]))
    return movement.move_axis(movement.reshape(searchsorted(line, flat, right), together.shape), rank - 1, 0)


SEARCHSORTED = register(Op(
    "searchsorted", "host", _infer_searchsorted, _searchsorted_reference, INTEGER_RESULT, _batch_searchsorted,
    "searchsorted", 20.0, ("right",), "how many elements of a sorted line are smaller (right: not larger)",
))


def searchsorted(line: Node, values: Node, right: bool = False) -> Node:
    """For each of ``values``, how many elements of ``line``, sorted along its last axis, are smaller.

    right: not larger. The axes before the last are the same in both: one line for each row of values.
    """
    return bind(SEARCHSORTED, (line, values), (right,))
