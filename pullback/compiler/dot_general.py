"""A matrix product as what computes it: the engine, or a sum of products in a kernel like any other.

``simplify`` calls these rules as each product is made. What is still ``dot_general`` afterwards is read by the engine
(contraction.py), or by BLAS where the engine has no register tile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..ops.registry import by_name
from . import products
from .contraction import cast_source

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..graph.node import Node
    from ..ops.record import Op
    from .values import Value, ValueBuilder

MAX_PARTED = 1 << 14  # results of a product up to which its sums are cut in parts,
PART_SIZE, MAX_PARTS = 1 << 11, 16  # of at least so many terms
MAX_SUM_SIZE = 1 << 15  # elements of a matrix whose product with a vector is fused with what is around it
SHORT_ROW = 16  # columns below which a product that is no matrix product sums along its last axes


def dot_general(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Products that are sums of products: of bools, with one row or column, over one element, and of all integers where
    the engine has no register tile.

    Integers of less than 32 bits are multiplied in int32 where that is a product, half types in float32 where nothing
    else does it.
    """
    x, y = inputs
    contract, batch = attrs
    if any(x.shape[axis] == 0 for axis in contract[0]) and 0 not in shape:
        return b.filled(0 if dtype.kind != "b" else False, shape, dtype)
    if 0 in shape:
        return None
    free = [
        [a for a in range(len(v.shape)) if a not in (*c, *d)] for v, c, d in zip(inputs, contract, batch, strict=True)
    ]
    extents = [math.prod(v.shape[a] for a in axes) for v, axes in (*zip(inputs, free), (x, contract[0]))]
    is_integer = dtype.kind in "iu"
    has_tile = products.has_tile() and (dtype.name in products.DTYPES or is_integer)
    reads_once = (extents[0] == 1 and _overlaps(y)) or (extents[1] == 1 and _overlaps(x))
    is_sum = _is_sum(*extents) or (is_integer and 1 in extents) or _is_narrow_line(inputs, extents)
    has_product = (has_tile or dtype.name in ("float32", "float64")) and not reads_once and not is_sum
    is_narrow = dtype.itemsize < 4 and (dtype.kind == "f" or (is_integer and has_product))
    if has_product and not (is_integer and is_narrow):
        if 1 in extents[:2] and any(x.shape[axis] > 1 for axis in batch[0]):
            return None  # a batch of products with a vector, which BLAS reads as they are, but not in parts
        return _in_parts(b, op, inputs, attrs, shape, dtype, node)
    cast = by_name("cast")
    if is_narrow:
        wide = dtypes.int32 if is_integer else dtypes.float32
        operands = tuple([b.make(cast, (v,), (wide,), v.shape, wide, node) for v in inputs])
        product = b.make(op, operands, attrs, shape, wide, node)
        return b.make(cast, (product,), (dtype,), shape, dtype, node)
    if extents[1] == 1 < extents[0]:  # the vector on the left
        inputs, contract, batch, free = inputs[::-1], contract[::-1], batch[::-1], free[::-1]
    if 1 in extents[:2]:
        along_rows = _ends_with(inputs[1], contract[1])
    else:
        along_rows = extents[1] < SHORT_ROW <= extents[2]
    return _sum_of_products(b, inputs, (contract, batch), free, along_rows, shape, dtype, node)


def _sum_of_products(
    b: ValueBuilder,
    inputs: Any,
    attrs: Any,
    free: list[list[int]],
    along_rows: bool,
    shape: tuple[int, ...],
    dtype: DType,
    node: Node | None,
) -> Value:
    """A product as an elementwise product of views and its sum.

    free: axes of both operands that are neither contracted nor batched. along_rows: whether the summed axes come last.
    """
    x, y = inputs
    contract, batch = attrs
    lead, rows, columns, middle = len(batch[0]), len(free[0]), len(free[1]), len(contract[0])
    if along_rows:  # batch, free axes of x, of y, contracted axes
        left = _arrange(b, x, (*batch[0], *free[0], *contract[0]), gap=(lead + rows, columns))
        right = _arrange(b, y, (*batch[1], *free[1], *contract[1]), gap=(lead, rows))
        start = lead + rows + columns
    else:  # batch, free axes of x, contracted axes, free axes of y
        left = _arrange(b, x, (*batch[0], *free[0], *contract[0]), trailing=columns)
        right = _arrange(b, y, (*batch[1], *contract[1], *free[1]), gap=(lead, rows))
        start = lead + rows
    full = tuple(max(p, q) for p, q in zip(left.shape, right.shape, strict=True))
    product = b.make(by_name("logical_and" if dtype.kind == "b" else "multiply"), (left, right), (), full, dtype, node)
    axes = tuple(range(start, start + middle))
    if not axes:
        return b.reshape(product, shape)
    fold = by_name("reduce_any" if dtype.kind == "b" else "reduce_sum")
    return b.make(fold, (product,), (axes, False), shape, dtype, node)


def rounded_dot_general(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value:
    """The product of operands that are rounded and widened again; the engine reads what is between (see
    contraction.py)."""
    if dtype is dtypes.float32:
        for narrow in (dtypes.bfloat16, dtypes.float32):
            inputs = tuple([b.make(by_name("cast"), (x,), (narrow,), x.shape, narrow, node) for x in inputs])
    return b.make(by_name("dot_general"), inputs, attrs, shape, dtype, node)


def swapped(
    b: ValueBuilder, dot: Value, permutation: tuple[int, ...], shape: tuple[int, ...], node: Node | None
) -> Value | None:
    """``permute(dot(x, y))`` that exchanges the free axes of x and y is ``dot(y, x)``."""
    (contract, batch) = dot.attrs
    x, y = dot.inputs
    batches = len(batch[0])
    free_x = len(x.shape) - batches - len(contract[0])
    free_y = len(y.shape) - batches - len(contract[1])
    exchanged = (
        *range(batches),
        *range(batches + free_x, batches + free_x + free_y),
        *range(batches, batches + free_x),
    )
    if permutation != exchanged or dot.op is None:
        return None
    attrs = ((contract[1], contract[0]), (batch[1], batch[0]))
    return b.make(dot.op, (y, x), attrs, shape, dot.dtype, node or dot.node)


def _in_parts(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value | None:
    """A product with few results and a long sum (the gradient of a weight) as a batch of products over parts of the
    longest summed axis, then their sum.

    The parts depend on the shapes alone, so the result does not depend on the number of threads.
    """
    contract, batch = attrs
    if math.prod(shape) > MAX_PARTED or "parts" in b.without or any(map(_overlaps, inputs)):
        return None
    extents = [inputs[0].shape[axis] for axis in contract[0]]
    number = max(range(len(extents)), key=extents.__getitem__)
    whole = extents[number]
    parts = min(MAX_PARTS, whole, math.prod(extents) // PART_SIZE)
    if parts < 2:
        return None
    parts = next((n for n in range(parts, parts // 2, -1) if whole % n == 0), parts)
    length = whole // parts
    wide = dtypes.float32 if dtype.kind == "f" and dtype.itemsize < 4 else dtype
    operands: list[Value] = []
    rests: list[Value] = []
    for x, axis in zip(inputs, (contract[0][number], contract[1][number]), strict=True):
        x = b.make(by_name("cast"), (x,), (wide,), x.shape, wide, node)
        cut = _along(b, x, axis, 0, parts * length)
        operands.append(b.reshape(cut, (*x.shape[:axis], parts, length, *x.shape[axis + 1 :])))
        if parts * length < whole:
            rests.append(_along(b, x, axis, parts * length, whole))
    axes = [places[number] for places in contract]
    moved = [
        [tuple([place + (place >= axis) for place in places[side]]) for places in (contract, batch)]
        for side, axis in enumerate(axes)
    ]
    part_attrs = (
        tuple(after[0] for after in moved),
        tuple((axis, *after[1]) for axis, after in zip(axes, moved, strict=True)),
    )
    product = b.make(op, tuple(operands), part_attrs, (parts, *shape), wide, node)
    total = b.make(by_name("reduce_sum"), (product,), ((0,), False), shape, wide, node)
    if rests:
        rest = b.make(op, tuple(rests), attrs, shape, wide, node)
        total = b.make(by_name("add"), (total, rest), (), shape, wide, node)
    return b.make(by_name("cast"), (total,), (dtype,), shape, dtype, node)


def _along(b: ValueBuilder, x: Value, axis: int, start: int, stop: int) -> Value:
    """The part of ``x`` from ``start`` to ``stop`` along an axis."""
    starts = tuple(start if a == axis else 0 for a in range(len(x.shape)))
    stops = tuple(stop if a == axis else extent for a, extent in enumerate(x.shape))
    shape = tuple(high - low for low, high in zip(starts, stops, strict=True))
    return b.make(by_name("slice"), (x,), (starts, stops, (1,) * len(shape)), shape, x.dtype)


def _is_sum(m: int, n: int, k: int) -> bool:
    """Whether a product is best computed as a sum of products: one over a single element, one of two vectors (whose sum
    is cut in chunks and right to a few roundings, and costs less), or with one row or column and so few elements that a
    launch of its own would cost more than it saves."""
    return k == 1 or m == n == 1 or (1 in (m, n) and k * max(m, n) <= MAX_SUM_SIZE)


def _is_narrow_line(inputs: Any, extents: list[int]) -> bool:
    """Whether a vector meets a matrix of a narrow type, such as the weights of a model that answers one question: a sum
    of products reads it as it is, once, at the speed of memory."""
    if 1 not in extents[:2]:
        return False
    stored = cast_source(inputs[1] if extents[0] == 1 else inputs[0]).dtype
    return stored.itemsize < 4 and stored.kind in "fiu"


def _overlaps(value: Value) -> bool:
    """Whether ``value`` is a view of windows, of which a product would make a copy: too much for one row or column."""
    while value.kind == "view":
        if value.name == "windows":
            return True
        value = value.inputs[0]
    return False


def _ends_with(value: Value, axes: tuple[int, ...]) -> bool:
    """Whether neighbours in memory, as far as permutations tell, lie along one of ``axes``."""
    order = list(range(len(value.shape)))
    while value.name in ("permute", "cast"):
        if value.name == "permute":
            order = [value.attrs[0][axis] for axis in order]
        value = value.inputs[0]
    long = [axis for axis in range(len(order)) if value.shape[order[axis]] != 1]
    return bool(long) and max(long, key=lambda axis: order[axis]) in axes


def _arrange(
    b: ValueBuilder, x: Value, order: tuple[int, ...], trailing: int = 0, gap: tuple[int, int] = (0, 0)
) -> Value:
    """``x`` with its axes in ``order``, and axes of extent 1 at the end and at a gap (position, count)."""
    shape = tuple(x.shape[axis] for axis in order)
    moved = b.make(by_name("permute"), (x,), (order,), shape, x.dtype)
    position, count = gap
    return b.reshape(moved, (*shape[:position], *(1,) * count, *shape[position:], *(1,) * trailing))
