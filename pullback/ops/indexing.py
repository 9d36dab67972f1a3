"""gather and scatter: elements chosen, and elements written, by index operands.

Index operands are int64 nodes of one common shape I that :func:`elementwise.check_index` made, so they are in range.
Operand k indexes axis ``axes[k]`` of x; the other axes are taken whole and follow I in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError
from ..graph.node import Node, bind
from ..shapes import Shape, size_of
from . import elementwise as e
from . import leaf, movement, sorting
from .family import ANY, NUMERIC, Array, kind_error, mixed_error, rank_error, widen, with_batch
from .record import Derivative, Jvp, Linear, Op
from .registry import register

Ints = tuple[int, ...]
Mode = Literal["set", "add", "multiply", "min", "max"]


def rest_axes(ndim: int, axes: Ints) -> Ints:
    """The axes that are taken whole."""
    return tuple([a for a in range(ndim) if a not in axes])


def _selected_shape(name: str, x: Node, indices: Sequence[Node], axes: Ints) -> Shape:
    """Shape of the elements that ``indices`` choose: I and then the rest of x."""
    if not indices or len(indices) != len(axes):
        raise rank_error(name, f"{len(axes)} axes {axes} and {len(indices)} index operands", x)
    if len(set(axes)) != len(axes) or any(not 0 <= a < len(x.shape) for a in axes):
        raise rank_error(name, f"axes {axes} are not distinct axes of the operand", x)
    shape = indices[0].shape
    for index in indices:
        if index.dtype is not dtypes.int64:
            raise DTypeError(f"{name}: int64 indices expected, got {index.dtype.name}; make them with check_index")
        if index.shape != shape:
            raise rank_error(name, "index operands must have one shape", x, *indices)
    return (*shape, *[x.shape[a] for a in rest_axes(len(x.shape), axes)])


def _in_front(array: Array, axes: Ints) -> Array:
    return np.moveaxis(array, axes, range(len(axes)))


def _batched_indices(
    indices: Sequence[Node], batched: Sequence[bool], size: int
) -> list[Node]:
    """``indices`` with a batch axis each, and before them the one that stays within the same batch element."""
    shape = indices[0].shape if batched[0] else (size, *indices[0].shape)
    same = leaf.iota(shape, 0, dtypes.int64)
    return [same, *[with_batch(i, b, size) for i, b in zip(indices, batched)]]


def _shift(axes: Ints) -> Ints:
    return tuple([a + 1 for a in axes])


# -- gather ------------------------------------------------------------------------------------------------------------


def _infer_gather(inputs: tuple[Node, ...], axes: Ints) -> tuple[Shape, DType]:
    x, *indices = inputs
    return _selected_shape("gather", x, indices, axes), x.dtype


def _gather_reference(node: Node, x: Array, *indices: Array) -> Array:
    return np.asarray(_in_front(x, node.attrs[0])[indices])


def _transpose_gather(node: Node, cotangent: Node, index: int) -> Node:
    x, *indices = node.inputs
    return scatter(leaf.full(x.shape, 0, cotangent.dtype), cotangent, indices, node.attrs[0], "add")


def _batch_gather(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    (axes,) = node.attrs
    x, *indices = inputs
    if not any(batched[1:]):
        return movement.move_axis(gather(x, indices, _shift(axes)), len(indices[0].shape), 0)
    same, *indices = _batched_indices(indices, batched[1:], size)
    if batched[0]:
        return gather(x, [same, *indices], (0, *_shift(axes)))
    return gather(x, indices, axes)


GATHER = register(Op(
    "gather", "gather", _infer_gather, _gather_reference, Linear(_transpose_gather), _batch_gather,
    "gather", 1.0, ("axes",), "out[i, rest] = x[axes: index_k[i], rest]; repeated indices add their derivatives",
))


def gather(x: Node, indices: Sequence[Node], axes: Ints) -> Node:
    """``out[i..., rest...] = x`` at ``indices[k][i...]`` on axis ``axes[k]`` and ``rest...`` on the others."""
    return bind(GATHER, (x, *indices), (axes,), x.weak)


def line_indices(index: Node, shape: Shape, axis: int) -> list[Node]:
    """Index operands for every axis that pick ``index`` on ``axis`` and, on each other axis, the position at hand.

    Where ``shape`` has extent 1 the position is 0, so that the lines of an array of this shape repeat.
    """
    grid = index.shape
    indices = []
    for a in range(len(grid)):
        if a == axis:
            indices.append(index)
        elif shape[a] == 1:
            indices.append(leaf.full(grid, 0, dtypes.int64))
        else:
            indices.append(leaf.iota(grid, a, dtypes.int64))
    return indices


def take_along(x: Node, index: Node, axis: int) -> Node:
    """``out[..., i, ...] = x[..., index[..., i, ...], ...]``; ``index`` is in range and has x's rank.

    On the other axes it is not larger than x, or x has extent 1.
    """
    if len(x.shape) == 1:
        return gather(x, [index], (0,))
    return gather(x, line_indices(index, x.shape, axis), tuple(range(len(x.shape))))


# -- scatter -----------------------------------------------------------------------------------------------------------


def _infer_scatter(mode: Mode, kinds: str) -> Callable[..., tuple[Shape, DType]]:
    name = f"scatter_{mode}"

    def infer(inputs: tuple[Node, ...], axes: Ints, mode: Mode) -> tuple[Shape, DType]:
        x, updates, *indices = inputs
        if x.dtype is not updates.dtype:
            raise mixed_error(name, x, updates)
        if x.dtype.kind not in kinds:
            raise kind_error(name, kinds, x)
        expected = _selected_shape(name, x, indices, axes)
        if updates.shape != expected:
            raise rank_error(name, f"updates of shape {expected} expected, got {updates.shape}", x, *indices)
        return x.shape, x.dtype

    return infer


def _scatter_reference(combine: Any) -> Callable[..., Array]:
    def reference(node: Node, x: Array, updates: Array, *indices: Array) -> Array:
        out = np.array(widen(x, node.dtype), order="C")
        chosen = _in_front(out, node.attrs[0])
        with np.errstate(all="ignore"):
            if combine is None:
                chosen[indices] = updates
            else:
                combine.at(chosen, indices, widen(updates, node.dtype))
        return out.astype(node.dtype.numpy, copy=False)

    return reference


def _batch_scatter(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    axes, mode = node.attrs
    x, updates, *indices = inputs
    x = with_batch(x, batched[0], size)
    updates = with_batch(updates, batched[1], size)
    if any(batched[2:]):
        return scatter(x, updates, _batched_indices(indices, batched[2:], size), (0, *_shift(axes)), mode)
    return scatter(x, movement.move_axis(updates, 0, len(indices[0].shape)), indices, _shift(axes), mode)


def _spread(selected: Node, like: Node) -> Node:
    """``selected``, of shape I, repeated over the rest axes of ``like``, of shape I + rest."""
    missing = len(like.shape) - len(selected.shape)
    return movement.broadcast_to(movement.reshape(selected, (*selected.shape, *(1,) * missing)), like.shape)


def _numbered(indices: Sequence[Node]) -> Node:
    """0, 1, 2, ... over I in row-major order."""
    shape = indices[0].shape
    return movement.reshape(leaf.iota((size_of(shape),), 0, dtypes.int64), shape)


def _last_writer(node: Node) -> Node:
    """bool of shape I: whether this write is the last to its position."""
    x, _, *indices = node.inputs
    axes = node.attrs[0]
    numbers = _numbered(indices)
    nobody = leaf.full(tuple([x.shape[a] for a in axes]), -1, dtypes.int64)
    every = tuple(range(len(axes)))
    return e.equal(gather(scatter(nobody, numbers, indices, every, "set"), indices, every), numbers)


def _transpose_set(node: Node, cotangent: Node, index: int) -> Node:
    _, updates, *indices = node.inputs
    axes = node.attrs[0]
    if index == 0:
        nothing = leaf.full(updates.shape, 0, cotangent.dtype)
        return scatter(cotangent, nothing, indices, axes, "set")
    written = gather(cotangent, indices, axes)
    return e.where(_spread(_last_writer(node), written), written, 0)


def _transpose_add(node: Node, cotangent: Node, index: int) -> Node:
    return cotangent if index == 0 else gather(cotangent, node.inputs[2:], node.attrs[0])


def _shift_rows(x: Node, distance: int, fill: float | int | bool) -> Node:
    """Row i of the result is row ``i - distance`` of ``x``; rows from outside are ``fill``."""
    rest = (0,) * (len(x.shape) - 1)
    return movement.pad(x, fill, (distance, *rest), (-distance, *rest))


def _product_of_rivals(node: Node) -> Node:
    """For each update, the product of the other updates of its position, without a division.

    The writes are sorted by position; within each run of equal positions, products of all before and of all after come
    from doubling scans (Hillis and Steele, 1986). Exact with zeros, to every order.
    """
    x, updates, *indices = node.inputs
    axes = node.attrs[0]
    position = indices[0]
    for index, axis in zip(indices[1:], axes[1:]):
        position = e.add(e.multiply(position, x.shape[axis]), index)
    count = size_of(position.shape)
    rest = updates.shape[len(position.shape) :]
    order = sorting.argsort(movement.reshape(position, (count,)), 0)
    position = gather(movement.reshape(position, (count,)), [order], (0,))
    values = gather(movement.reshape(updates, (count, *rest)), [order], (0,))
    product: Node | None = None
    for direction in (1, -1):
        same = e.equal(position, _shift_rows(position, direction, -1))
        scanned = e.where(_spread(same, values), _shift_rows(values, direction, 1), 1)
        distance = 1
        while distance < count:
            step = direction * distance
            same = e.equal(position, _shift_rows(position, step, -1))
            further = e.where(_spread(same, values), _shift_rows(scanned, step, 1), 1)
            scanned = e.multiply(scanned, further)
            distance *= 2
        product = scanned if product is None else e.multiply(product, scanned)
    back = sorting.argsort(order, 0)
    return movement.reshape(gather(product, [back], (0,)), updates.shape)  # type: ignore[arg-type]


def _multiply_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    x, updates, *indices = node.inputs
    axes = node.attrs[0]
    by_x, by_updates = tangents[:2]
    result = None
    if by_x is not None:
        result = e.strong_multiply(by_x, scatter(leaf.ones_like(x), updates, indices, axes, "multiply"))
    if by_updates is not None:
        partial = e.multiply(gather(x, indices, axes), _product_of_rivals(node))
        start = leaf.full(x.shape, 0, x.dtype) if result is None else result
        result = scatter(start, e.strong_multiply(by_updates, partial), indices, axes, "add")
    return result  # type: ignore[return-value]


def _extremum_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    """The element of x and all updates that are equal to the result share it evenly.

    Where x is the infinity that any number replaces, it has no share.
    """
    x, updates, *indices = node.inputs
    axes, mode = node.attrs
    wide = dtypes.float32 if x.dtype.itemsize < 4 else x.dtype
    kept = e.logical_or(e.equal(x, node), e.isnan(x))
    taken = e.logical_or(e.equal(updates, gather(node, indices, axes)), e.isnan(updates))
    if movement.uniform_value(x) == (math.inf if mode == "min" else -math.inf):
        kept = leaf.full(x.shape, False, dtypes.bool_)
    tied = scatter(e.cast(kept, wide), e.cast(taken, wide), indices, axes, "add")
    tied = e.maximum(tied, 1)
    by_x, by_updates = tangents[:2]
    result = leaf.full(x.shape, 0, x.dtype) if by_x is None else e.where(kept, by_x, 0)
    if by_updates is not None:
        result = scatter(result, e.where(taken, by_updates, 0), indices, axes, "add")
    return e.cast(e.divide(e.cast(result, wide), tied), x.dtype)


def _scatter(mode: Mode, combine: Any, kinds: str, derivative: Derivative, doc: str) -> Op:
    return register(Op(
        f"scatter_{mode}", "scatter", _infer_scatter(mode, kinds), _scatter_reference(combine), derivative,
        _batch_scatter, "scatter", 1.0, ("axes", "mode"), doc,
    ))


SCATTER: dict[str, Op] = {
    "set": _scatter(
        "set", None, ANY, Linear(_transpose_set, (0, 1), joint=True), "x with updates written; the last write wins"
    ),
    "add": _scatter("add", np.add, NUMERIC, Linear(_transpose_add, (0, 1), joint=True), "x with updates added"),
    "multiply": _scatter(
        "multiply", np.multiply, NUMERIC, Jvp(_multiply_tangent), "x multiplied by updates; derivative exact at 0"
    ),
    "min": _scatter(
        "min", np.minimum, ANY, Jvp(_extremum_tangent), "smaller of x and updates; ties share the derivative evenly"
    ),
    "max": _scatter(
        "max", np.maximum, ANY, Jvp(_extremum_tangent), "larger of x and updates; ties share the derivative evenly"
    ),
}


def scatter(x: Node, updates: Node, indices: Sequence[Node], axes: Ints, mode: Mode) -> Node:
    """A copy of ``x`` with ``updates`` (shape I + rest) combined in at ``indices``, in row-major order of I."""
    return bind(SCATTER[mode], (x, updates, *indices), (axes, mode), x.weak and updates.weak)
