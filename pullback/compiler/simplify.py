"""Rewrites that are exact in IEEE arithmetic, applied as each value is made.

A rule sees an operation about to be made and may return a simpler value instead. Nothing here changes a bit of any
result (``x + 0`` stays, because it turns -0 into 0), with one exception that conventions.md defines: a strong product
with a literal one or zero cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import convolution, expand, windows
from .groups import counted_axis, separate_axes
from .values import Value, ValueBuilder

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..graph.node import Node
    from ..ops.record import Op

Rule = Callable[..., "Value | None"]


def _ops() -> Any:
    from ..ops.registry import by_name

    return by_name


def splat(value: Value) -> Any:
    """The number that every element of ``value`` is, if it is a literal seen through views; else None."""
    while value.kind == "view":
        value = value.inputs[0]
    return value.attrs[0] if value.kind == "literal" else None


def _is(value: Value, number: int) -> bool:
    found = splat(value)
    return found is not None and not isinstance(found, bool) and found == number


def broadcast(b: ValueBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    """``value`` broadcast to ``shape``."""
    if value.shape == shape:
        return value
    return b.make(_ops()("broadcast_to"), (value,), (shape,), shape, value.dtype)


def reshape(b: ValueBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    """``value`` reshaped to ``shape``."""
    if value.shape == shape:
        return value
    return b.make(_ops()("reshape"), (value,), (shape,), shape, value.dtype)


def filled(b: ValueBuilder, number: Any, shape: tuple[int, ...], dtype: DType) -> Value:
    """A literal broadcast to ``shape``."""
    return broadcast(b, b.literal(number, dtype), shape)


def _identity(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0]


def _no_value(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return filled(b, 0, shape, dtype)


def _cast(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0] if inputs[0].dtype is dtype else None


def _multiply(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x, y = inputs
    for factor, other in ((x, y), (y, x)):
        if _is(factor, 1):
            return broadcast(b, other, shape)
        if _is(factor, -1) and dtype.kind == "f":
            return broadcast(b, b.make(_ops()("negative"), (other,), (), other.shape, dtype, node), shape)
    return None


def _strong_multiply(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any
) -> Value | None:
    cotangent, partial = inputs
    if _is(cotangent, 0):
        return filled(b, 0, shape, dtype)
    if _is(cotangent, 1) or _is(cotangent, -1) or _is(partial, 1) or _is(partial, -1):
        return _multiply(b, op, inputs, attrs, shape, dtype, node)
    return None


def _strong_product(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any
) -> Value | None:
    if _is(inputs[0], 0) or _is(inputs[1], 0):
        return filled(b, 0, shape, dtype)
    return _multiply(b, op, inputs, attrs, shape, dtype, node)


def _divide(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return broadcast(b, inputs[0], shape) if _is(inputs[1], 1) and inputs[0].dtype is dtype else None


def _subtract(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    number = splat(inputs[1])
    if number is not None and number == 0 and str(number) != "-0.0":
        return broadcast(b, inputs[0], shape)
    return None


def _add(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """The gradient of what was split: paddings by zeros that together fill the result are their operands one behind the
    other, each plus 0, which turns -0 into 0 as their sum does."""
    terms = _paddings(inputs, shape)
    if not terms:
        return None
    axes = {axis for term in terms for axis, gap in enumerate(zip(*term.attrs[:2], strict=True)) if any(gap)}
    if len(axes) != 1:
        return None
    (axis,) = axes
    terms.sort(key=lambda term: term.attrs[0][axis])
    end = 0
    for term in terms:
        if term.attrs[0][axis] != end:
            return None
        end += term.inputs[0].shape[axis]
    if end != shape[axis]:
        return None
    zero = b.literal(0, dtype)
    parts = tuple([b.make(op, (x, zero), (), x.shape, dtype, node) for x in (term.inputs[0] for term in terms)])
    return b.make(_ops()("concat"), parts, (axis,), shape, dtype, node)


def _paddings(values: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """The paddings by zeros, without gaps or cropping, that the sum of ``values`` is one of; none where there are other
    terms, or too many."""
    found: list[Value] = []
    pending = list(values)
    while pending:
        value = pending.pop()
        if value.name == "add" and value.shape == shape and len(found) + len(pending) < windows.MAX_OPERANDS:
            pending += value.inputs
            continue
        if value.kind != "pad" or value.shape != shape or len(found) == windows.MAX_OPERANDS:
            return []
        low, high, interior = value.attrs
        filler = splat(value.inputs[1])
        if filler is None or filler != 0 or str(filler) == "-0.0" or min(*low, *high, 0) < 0 or any(interior):
            return []
        found.append(value)
    return found


def _negative(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0].inputs[0] if inputs[0].name == "negative" else None


def _where(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    condition, x, y = inputs
    if x is y:
        return broadcast(b, x, shape)
    number = splat(condition)
    if number is not None:
        return broadcast(b, x if number else y, shape)
    return None


def _reshape(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x = inputs[0]
    if x.shape == shape:
        return x
    if x.name == "reshape":
        return reshape(b, x.inputs[0], shape)
    if x.name == "broadcast_to" and x.inputs[0].size == 1:
        return broadcast(b, reshape(b, x.inputs[0], ()), shape)
    return None


def _broadcast(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x = inputs[0]
    if x.shape == shape:
        return x
    if x.name == "broadcast_to":
        return broadcast(b, x.inputs[0], shape)
    return None


def _permute(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x, permutation = inputs[0], attrs[0]
    if permutation == tuple(range(len(shape))):
        return x
    if x.name == "permute":
        composed = tuple(x.attrs[0][axis] for axis in permutation)
        return b.make(op, (x.inputs[0],), (composed,), shape, dtype, node)
    if x.name == "dot_general":
        swapped = _swap_contraction(b, x, permutation, shape, node)
        if swapped is not None:
            return swapped
    long = [axis for axis in permutation if x.shape[axis] != 1]
    if long == sorted(long):
        return reshape(b, x, shape)
    if x.name == "reshape":
        return _permute_below(b, op, x, long, shape, node)
    return None


def _permute_below(
    b: ValueBuilder, op: Op, x: Value, long: list[int], shape: tuple[int, ...], node: Node | None
) -> Value | None:
    """Axes of ``x``, a reshape that only adds or drops axes of extent 1, come in another order: that of its operand.

    long: its axes of other extents, in their new order. What is under the reshape may then take the new order itself.
    """
    operand = x.inputs[0]
    places = [axis for axis, extent in enumerate(operand.shape) if extent != 1]
    if operand.name not in ("permute", "dot_general") or [operand.shape[a] for a in places] != [
        extent for extent in x.shape if extent != 1
    ]:
        return None
    place_of = dict(zip(sorted(long), places, strict=True))
    ones = [axis for axis, extent in enumerate(operand.shape) if extent == 1]
    order = (*ones, *[place_of[axis] for axis in long])
    moved = b.make(op, (operand,), (order,), tuple([operand.shape[a] for a in order]), operand.dtype, node)
    return reshape(b, moved, shape)


def _swap_contraction(
    b: ValueBuilder, dot: Value, permutation: tuple[int, ...], shape: tuple[int, ...], node: Node | None
) -> Value | None:
    """``permute(dot(x, y))`` that exchanges the free axes of x and y is ``dot(y, x)``."""
    (contract, batch) = dot.attrs
    x, y = dot.inputs
    batches = len(batch[0])
    free_x = len(x.shape) - batches - len(contract[0])
    free_y = len(y.shape) - batches - len(contract[1])
    swapped = (
        *range(batches),
        *range(batches + free_x, batches + free_x + free_y),
        *range(batches, batches + free_x),
    )
    if permutation != swapped or dot.op is None:
        return None
    attrs = ((contract[1], contract[0]), (batch[1], batch[0]))
    return b.make(dot.op, (y, x), attrs, shape, dot.dtype, node or dot.node)


def _scan(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """One step: what is added to nothing, or what is before it."""
    if shape[attrs[0]] > 1:
        return None
    if op.name == "strong_scan":
        return inputs[1]
    if op.name == "gated_scan":
        before = b.make(_ops()("multiply"), (inputs[0], filled(b, 0, shape, dtype)), (), shape, dtype, node)
        return b.make(_ops()("add"), (before, inputs[1]), (), shape, dtype, node)
    from ..ops.scan import identity_of

    return filled(b, identity_of(op.name, dtype), shape, dtype) if attrs[2] else inputs[0]


def _slice(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0] if inputs[0].shape == shape else None


def _reduce(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x = inputs[0]
    axes = attrs[0]
    if x.size == 0:
        return filled(b, REDUCTION_IDENTITY[op.name], shape, dtype) if op.name in REDUCTION_IDENTITY else None
    if all(x.shape[axis] == 1 for axis in axes):
        if op.name in ("argmax", "argmin"):
            return filled(b, 0, shape, dtype)
        return reshape(b, x, shape) if x.dtype is dtype else None
    if op.name in CHUNKED and "chunk" not in b.without:
        return _in_chunks(b, op, x, axes, shape, dtype, node)
    return None


def _in_chunks(
    b: ValueBuilder, op: Op, x: Value, axes: tuple[int, ...], shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value | None:
    """A long reduction with few results as one over chunks, then one over the chunks' results.

    The chunks depend on the shape alone, so the result does not depend on the number of threads.
    """
    kept = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    results = 1
    for extent in kept:
        results *= extent
    tasks = results if len(x.shape) - 1 in axes else results // COLUMNS_PER_TASK
    if x.size < CHUNKED_SIZE or tasks >= ENOUGH_TASKS:
        return None
    merged: list[int] = []
    folded: list[bool] = []
    for axis, extent in enumerate(x.shape):
        if folded and folded[-1] and axis in axes:
            merged[-1] *= extent
        elif extent != 1:
            merged.append(extent)
            folded.append(axis in axes)
    first = folded.index(True)
    length = -(-merged[first] // min(merged[first], -(-x.size // CHUNK_SIZE)))
    number = -(-merged[first] // length)
    if number < 2:
        return None
    flat = reshape(b, x, tuple(merged))
    merged_axes = tuple(axis for axis, fold in enumerate(folded) if fold)
    kept = tuple(extent for extent, fold in zip(merged, folded, strict=True) if not fold)
    attrs = (merged_axes, False, (number, length, merged[first]))
    partial = b.raw("reduction", "partial", op, (flat,), attrs, (number, *kept), dtype, node)
    return reshape(b, b.make(op, (partial,), ((0,), False), kept, dtype, node), shape)


def _scatter(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Half types in float32; many updates of few places in chunks, which have copies of the target to themselves.

    Chunks and copies depend on the shapes alone, so the result does not depend on the number of threads.
    """
    from .. import dtypes

    x, updates, *indices = inputs
    axes, mode = attrs
    if not updates.size:
        return x
    cast = _ops()("cast")
    wide = dtype
    if mode in ("add", "multiply") and dtype.kind == "f" and dtype.itemsize < 4:
        wide = dtypes.float32
        operands = [b.make(cast, (v,), (wide,), v.shape, wide, node) for v in (x, updates)]
        total = b.make(op, (*operands, *indices), attrs, shape, wide, node)
        return b.make(cast, (total,), (dtype,), shape, dtype, node)
    count = rows = 1
    for extent in indices[0].shape:
        count *= extent
    for axis in axes:
        rows *= shape[axis]
    copies = 1
    if dtype.kind == "f" and updates.size == count:
        copies = SCATTER_COPIES if rows <= MAX_COPIED_ROWS else SCATTER_COPIES // 2
    chunks = min(
        updates.size // SCATTER_CHUNK, count // (UPDATES_PER_PLACE * copies * max(rows, 1)), MAX_SCATTER_CHUNKS
    )
    if mode not in SCATTER_FOLDS or dtype.kind == "b" or chunks < 2 or separate_axes(indices) or "copies" in b.without:
        return None
    if dtype is dtypes.float32 and mode in ("add", "multiply") and "wide" not in b.without:
        wide = dtypes.float64
    length = -(-count // chunks)
    chunks = -(-count // length)
    x, updates = [b.make(cast, (v,), (wide,), v.shape, wide, node) for v in (x, updates)]
    parts = [reshape(b, v, (count, *v.shape[len(indices[0].shape) :])) for v in (updates, *indices)]
    fold, combine, neutral = SCATTER_FOLDS[mode]
    start = filled(b, neutral(wide), (chunks, copies, *shape), wide)
    attrs = (axes, mode, (chunks, length, count))
    copied = b.raw("scatter", "scatter_copies", op, (start, *parts), attrs, start.shape, wide, node)
    total = b.make(_ops()(fold), (copied,), ((0, 1), False), shape, wide, node)
    if not _is(x, 0) or mode != "add":
        total = b.make(_ops()(combine), (x, total), (), shape, wide, node)
    return b.make(cast, (total,), (dtype,), shape, dtype, node)


def _check_index(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Positions that count along an axis are in range where the axis is not longer."""
    (x,) = inputs
    axis = counted_axis(x)
    return x if axis is not None and x.dtype is dtype and shape[axis] <= attrs[0] else None


def _largest(dtype: DType) -> int | float:
    from ..dtypes import integer_limits

    return math.inf if dtype.kind == "f" else integer_limits(dtype)[1]


def _smallest(dtype: DType) -> int | float:
    from ..dtypes import integer_limits

    return -math.inf if dtype.kind == "f" else integer_limits(dtype)[0]


def _contract(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Products that are sums of products: of bools, with one row or column, over one element, and of all integers where
    the engine has no register tile.

    Integers of less than 32 bits are multiplied in int32 where that is a product, half types in float32 where nothing
    else does it.
    """
    from .. import dtypes
    from .products import DTYPES, has_tile

    x, y = inputs
    contract, batch = attrs
    if any(x.shape[axis] == 0 for axis in contract[0]) and 0 not in shape:
        return filled(b, 0 if dtype.kind != "b" else False, shape, dtype)
    if 0 in shape:
        return None
    free = [
        [a for a in range(len(v.shape)) if a not in (*c, *d)] for v, c, d in zip(inputs, contract, batch, strict=True)
    ]
    extents = [math.prod(v.shape[a] for a in axes) for v, axes in (*zip(inputs, free), (x, contract[0]))]
    is_integer = dtype.kind in "iu"
    has_product = dtype.name in ("float32", "float64") or (has_tile() and (dtype.name in DTYPES or is_integer))
    reads_once = (extents[0] == 1 and _overlaps(y)) or (extents[1] == 1 and _overlaps(x))
    is_sum = _is_sum(*extents) or (is_integer and 1 in extents)
    has_product = has_product and not reads_once and not is_sum
    is_narrow = dtype.itemsize < 4 and (dtype.kind == "f" or (is_integer and has_product))
    if has_product and not (is_integer and is_narrow):
        return _in_parts(b, op, inputs, attrs, shape, dtype, node)
    cast = _ops()("cast")
    if is_narrow:
        wide = dtypes.int32 if is_integer else dtypes.float32
        operands = tuple([b.make(cast, (v,), (wide,), v.shape, wide, node) for v in inputs])
        product = b.make(op, operands, attrs, shape, wide, node)
        return b.make(cast, (product,), (dtype,), shape, dtype, node)
    lead, rows, columns, middle = len(batch[0]), len(free[0]), len(free[1]), len(contract[0])
    if extents[1] < SHORT_ROW <= extents[2] or (extents[0] == 1 and _ends_with(y, contract[1])):
        # The sums run along the last axes: batch, free axes of x, of y, contracted axes.
        left = _arrange(b, x, (*batch[0], *free[0], *contract[0]), gap=(lead + rows, columns))
        right = _arrange(b, y, (*batch[1], *free[1], *contract[1]), gap=(lead, rows))
        start = lead + rows + columns
    else:  # batch, free axes of x, contracted axes, free axes of y
        left = _arrange(b, x, (*batch[0], *free[0], *contract[0]), trailing=columns)
        right = _arrange(b, y, (*batch[1], *contract[1], *free[1]), gap=(lead, rows))
        start = lead + rows
    full = tuple(max(p, q) for p, q in zip(left.shape, right.shape, strict=True))
    product = b.make(_ops()("logical_and" if dtype.kind == "b" else "multiply"), (left, right), (), full, dtype, node)
    axes = tuple(range(start, start + middle))
    if not axes:
        return reshape(b, product, shape)
    fold = _ops()("reduce_any" if dtype.kind == "b" else "reduce_sum")
    return b.make(fold, (product,), (axes, False), shape, dtype, node)


def _in_parts(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value | None:
    """A product with few results and a long sum (the gradient of a weight) as a batch of products over parts of the
    longest summed axis, then their sum.

    The parts depend on the shapes alone, so the result does not depend on the number of threads.
    """
    from .. import dtypes

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
        x = b.make(_ops()("cast"), (x,), (wide,), x.shape, wide, node)
        cut = _along(b, x, axis, 0, parts * length)
        operands.append(reshape(b, cut, (*x.shape[:axis], parts, length, *x.shape[axis + 1 :])))
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
    total = b.make(_ops()("reduce_sum"), (product,), ((0,), False), shape, wide, node)
    if rests:
        rest = b.make(op, tuple(rests), attrs, shape, wide, node)
        total = b.make(_ops()("add"), (total, rest), (), shape, wide, node)
    return b.make(_ops()("cast"), (total,), (dtype,), shape, dtype, node)


def _along(b: ValueBuilder, x: Value, axis: int, start: int, stop: int) -> Value:
    """The part of ``x`` from ``start`` to ``stop`` along an axis."""
    starts = tuple(start if a == axis else 0 for a in range(len(x.shape)))
    stops = tuple(stop if a == axis else extent for a, extent in enumerate(x.shape))
    shape = tuple(high - low for low, high in zip(starts, stops, strict=True))
    return b.make(_ops()("slice"), (x,), (starts, stops, (1,) * len(shape)), shape, x.dtype)


def _is_sum(m: int, n: int, k: int) -> bool:
    """Whether a product is best computed as a sum of products: one over a single element, one of two vectors (whose sum
    is cut in chunks and right to a few roundings, and costs less), or with one row or column and so few elements that a
    launch of its own would cost more than it saves."""
    return k == 1 or m == n == 1 or (1 in (m, n) and k * max(m, n) <= MAX_SUM_SIZE)


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
    while value.name == "permute":
        order = [value.attrs[0][axis] for axis in order]
        value = value.inputs[0]
    long = [axis for axis in range(len(order)) if value.shape[order[axis]] != 1]
    return bool(long) and max(long, key=lambda axis: order[axis]) in axes


def _attend(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Without queries or keys there is nothing to attend to."""
    q, k = inputs[:2]
    return filled(b, 0, shape, dtype) if not q.size or not k.size else None


def _arrange(
    b: ValueBuilder, x: Value, order: tuple[int, ...], trailing: int = 0, gap: tuple[int, int] = (0, 0)
) -> Value:
    """``x`` with its axes in ``order``, and axes of extent 1 at the end and at a gap (position, count)."""
    shape = tuple(x.shape[axis] for axis in order)
    moved = b.make(_ops()("permute"), (x,), (order,), shape, x.dtype)
    position, count = gap
    return reshape(b, moved, (*shape[:position], *(1,) * count, *shape[position:], *(1,) * trailing))


MAX_PARTED = 1 << 14  # results of a product up to which its sums are cut in parts,
PART_SIZE, MAX_PARTS = 1 << 11, 16  # of at least so many terms
MAX_SUM_SIZE = 1 << 15  # elements of a matrix whose product with a vector is fused with what is around it
CHUNKED = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all")
SHORT_ROW = 16  # columns below which a product that is no matrix product sums along its last axes
CHUNKED_SIZE = 1 << 17  # elements from which a reduction is worth cutting
CHUNK_SIZE = 1 << 15  # elements of a chunk
COLUMNS_PER_TASK = 32  # about what one task of a column kernel takes
ENOUGH_TASKS = 16

SCATTER_CHUNK = 1 << 16  # elements of updates in a chunk,
UPDATES_PER_PLACE = 8  # for each element of its copies at least so many
MAX_SCATTER_CHUNKS = 64
# Copies of a target of single floats, by turns: additions to one place wait for each other (a sum of 1e6 numbers in
# sorted segments took 2.1 ms with one copy, 0.9 with four), those to integers hardly.
SCATTER_COPIES = 4
MAX_COPIED_ROWS = 2048  # of more there are half as many, which the caches hold
# How copies of a target become one, and what they start with.
SCATTER_FOLDS: dict[str, tuple[str, str, Callable[[DType], int | float]]] = {
    "add": ("reduce_sum", "add", lambda dtype: 0),
    "multiply": ("reduce_prod", "multiply", lambda dtype: 1),
    "min": ("reduce_min", "minimum", _largest),
    "max": ("reduce_max", "maximum", _smallest),
}

REDUCTION_IDENTITY = {"reduce_sum": 0, "reduce_prod": 1, "reduce_any": False, "reduce_all": True}

RULES: dict[str, Rule] = {
    "alias": _identity,
    "stop_gradient": _identity,
    "custom_call": _no_value,
    "custom_result": _identity,
    "named": _identity,
    "saved": _identity,
    "cast": _cast,
    "add": _add,
    "multiply": _multiply,
    "strong_multiply": _strong_multiply,
    "strong_product": _strong_product,
    "divide": _divide,
    "subtract": _subtract,
    "negative": _negative,
    "where": _where,
    "reshape": _reshape,
    "broadcast_to": _broadcast,
    "permute": _permute,
    "slice": _slice,
    "attention": _attend, "attention_gradient": _attend,
    "dot_general": _contract,
    "rounded_dot_general": expand.rounded_dot_general,
    "convolution": convolution.convolution,
    "vector_norm": expand.vector_norm,
    "searchsorted": expand.searchsorted,
    "check_index": _check_index,
    **dict.fromkeys(("scatter_set", "scatter_add", "scatter_multiply", "scatter_min", "scatter_max"), _scatter),
    **dict.fromkeys(("scan_sum", "scan_prod", "scan_max", "scan_min", "gated_scan", "strong_scan"), _scan),
    **dict.fromkeys(
        (
            "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all", "argmax", "argmin",
        ),
        _reduce,
    ),
}

#: the rules that only save work; the others rewrite what no kernel can compute
OPTIONAL = frozenset({
    "add", "cast", "multiply", "strong_multiply", "strong_product", "divide", "subtract", "negative", "where",
    "reshape", "broadcast_to", "permute", "slice", "searchsorted", "check_index",
})  # fmt: skip


def simplify(
    b: ValueBuilder,
    op: Op,
    inputs: tuple[Value, ...],
    attrs: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: DType,
    node: Node | None,
) -> Value | None:
    """A simpler value equal to ``op(*inputs)``, or None."""
    rule = RULES.get(op.name)
    if rule is not None and (op.name not in OPTIONAL or "simplify" not in b.without):
        found = rule(b, op, inputs, attrs, shape, dtype, node)
        if found is not None:
            return found
    if op.kind != "leaf" and op.kind != "view" and inputs and 0 in shape:
        return filled(b, 0 if dtype.kind != "b" else False, shape, dtype)
    return None
