"""Rewrites that are exact in IEEE arithmetic, applied as each value is made.

A rule sees an operation about to be made and may return a simpler value instead. Nothing here changes a bit of any
result (``x + 0`` stays, because it turns -0 into 0), with one exception that conventions.md defines: a strong product
with a literal one or zero cotangent. Other rules say how an operation is computed that is no kernel as it stands: long
sums and scatters in chunks, products and convolutions (dot_general.py, convolution.py), composites (expand.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..ops.registry import by_name
from . import convolution, dot_general, expand, windows
from .groups import counted_axis, separate_axes
from .values import Value, ValueBuilder, splat

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..graph.node import Node
    from ..ops.record import Op

Rule = Callable[..., "Value | None"]


def _is(value: Value, number: int) -> bool:
    found = splat(value)
    return found is not None and not isinstance(found, bool) and found == number


def _identity(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0]


def _no_value(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return b.filled(0, shape, dtype)


def _cast(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0] if inputs[0].dtype is dtype else None


def _multiply(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x, y = inputs
    for factor, other in ((x, y), (y, x)):
        if _is(factor, 1):
            return b.broadcast(other, shape)
        if _is(factor, -1) and dtype.kind == "f":
            return b.broadcast(b.make(by_name("negative"), (other,), (), other.shape, dtype, node), shape)
    return None


def _strong_multiply(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any
) -> Value | None:
    cotangent, partial = inputs
    if _is(cotangent, 0):
        return b.filled(0, shape, dtype)
    if _is(cotangent, 1) or _is(cotangent, -1) or _is(partial, 1) or _is(partial, -1):
        return _multiply(b, op, inputs, attrs, shape, dtype, node)
    return None


def _strong_product(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any
) -> Value | None:
    if _is(inputs[0], 0) or _is(inputs[1], 0):
        return b.filled(0, shape, dtype)
    return _multiply(b, op, inputs, attrs, shape, dtype, node)


def _divide(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return b.broadcast(inputs[0], shape) if _is(inputs[1], 1) and inputs[0].dtype is dtype else None


def _subtract(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    number = splat(inputs[1])
    if number is not None and number == 0 and str(number) != "-0.0":
        return b.broadcast(inputs[0], shape)
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
    return b.make(by_name("concat"), parts, (axis,), shape, dtype, node)


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
        return b.broadcast(x, shape)
    number = splat(condition)
    if number is not None:
        return b.broadcast(x if number else y, shape)
    return None


def _reshape(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x = inputs[0]
    if x.shape == shape:
        return x
    if x.name == "reshape":
        return b.reshape(x.inputs[0], shape)
    if x.name == "broadcast_to" and x.inputs[0].size == 1:
        return b.broadcast(b.reshape(x.inputs[0], ()), shape)
    return None


def _broadcast(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x = inputs[0]
    if x.shape == shape:
        return x
    if x.name == "broadcast_to":
        return b.broadcast(x.inputs[0], shape)
    return None


def _permute(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x, permutation = inputs[0], attrs[0]
    if permutation == tuple(range(len(shape))):
        return x
    if x.name == "permute":
        composed = tuple(x.attrs[0][axis] for axis in permutation)
        return b.make(op, (x.inputs[0],), (composed,), shape, dtype, node)
    if x.name == "dot_general":
        swapped = dot_general.swapped(b, x, permutation, shape, node)
        if swapped is not None:
            return swapped
    long = [axis for axis in permutation if x.shape[axis] != 1]
    if long == sorted(long):
        return b.reshape(x, shape)
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
    return b.reshape(moved, shape)


def _scan(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """One step: what is added to nothing, or what is before it."""
    if shape[attrs[0]] > 1:
        return None
    if op.name == "strong_scan":
        return inputs[1]
    if op.name == "gated_scan":
        before = b.make(by_name("multiply"), (inputs[0], b.filled(0, shape, dtype)), (), shape, dtype, node)
        return b.make(by_name("add"), (before, inputs[1]), (), shape, dtype, node)
    from ..ops.scan import identity_of

    return b.filled(identity_of(op.name, dtype), shape, dtype) if attrs[2] else inputs[0]


def _slice(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    return inputs[0] if inputs[0].shape == shape else None


def _reduce(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    x = inputs[0]
    axes = attrs[0]
    if x.size == 0:
        return b.filled(REDUCTION_IDENTITY[op.name], shape, dtype) if op.name in REDUCTION_IDENTITY else None
    if all(x.shape[axis] == 1 for axis in axes):
        if op.name in ("argmax", "argmin"):
            return b.filled(0, shape, dtype)
        return b.reshape(x, shape) if x.dtype is dtype else None
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
    flat = b.reshape(x, tuple(merged))
    merged_axes = tuple(axis for axis, fold in enumerate(folded) if fold)
    kept = tuple(extent for extent, fold in zip(merged, folded, strict=True) if not fold)
    attrs = (merged_axes, False, (number, length, merged[first]))
    partial = b.raw("reduction", "partial", op, (flat,), attrs, (number, *kept), dtype, node)
    return b.reshape(b.make(op, (partial,), ((0,), False), kept, dtype, node), shape)


def _scatter(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Half types in float32; many updates of few places in chunks, which have copies of the target to themselves.

    Chunks and copies depend on the shapes alone, so the result does not depend on the number of threads.
    """
    x, updates, *indices = inputs
    axes, mode = attrs
    if not updates.size:
        return x
    cast = by_name("cast")
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
    parts = [b.reshape(v, (count, *v.shape[len(indices[0].shape) :])) for v in (updates, *indices)]
    fold, combine, neutral = SCATTER_FOLDS[mode]
    start = b.filled(neutral(wide), (chunks, copies, *shape), wide)
    attrs = (axes, mode, (chunks, length, count))
    copied = b.raw("scatter", "scatter_copies", op, (start, *parts), attrs, start.shape, wide, node)
    total = b.make(by_name(fold), (copied,), ((0, 1), False), shape, wide, node)
    if not _is(x, 0) or mode != "add":
        total = b.make(by_name(combine), (x, total), (), shape, wide, node)
    return b.make(cast, (total,), (dtype,), shape, dtype, node)


def _check_index(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Positions that count along an axis are in range where the axis is not longer."""
    (x,) = inputs
    axis = counted_axis(x)
    return x if axis is not None and x.dtype is dtype and shape[axis] <= attrs[0] else None


def _largest(dtype: DType) -> int | float:
    return math.inf if dtype.kind == "f" else dtypes.integer_limits(dtype)[1]


def _smallest(dtype: DType) -> int | float:
    return -math.inf if dtype.kind == "f" else dtypes.integer_limits(dtype)[0]


def _attend(b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: Any, dtype: Any, node: Any) -> Value | None:
    """Without queries or keys there is nothing to attend to."""
    q, k = inputs[:2]
    return b.filled(0, shape, dtype) if not q.size or not k.size else None


CHUNKED = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all")
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
    "dot_general": dot_general.dot_general,
    "rounded_dot_general": dot_general.rounded_dot_general,
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
        return b.filled(0 if dtype.kind != "b" else False, shape, dtype)
    return None
