"""Operations that are one record for the sake of their derivative, and several values for the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..ops.registry import by_name
from ..shapes import reduced_shape

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..graph.node import Node
    from ..ops.record import Op
    from .values import Value, ValueBuilder


def vector_norm(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value:
    """``scale * (sum (|x| / scale)**order)**(1 / order)``, where scale is the largest |x| (of an order below 0, the
    smallest), or 1 where that is 0 or not finite."""
    (x,) = inputs
    axes, _, order = attrs
    kept = reduced_shape(x.shape, axes, True)

    def elementwise(name: str, *operands: Value, result: DType = dtype) -> Value:
        extents = next((v.shape for v in operands if v.shape == x.shape), kept)
        return b.make(by_name(name), operands, (), extents, result, node)

    def fold(name: str, operand: Value) -> Value:
        return b.make(by_name(name), (operand,), (axes, True), kept, dtype, node)

    def number(value: float) -> Value:
        return b.literal(value, dtype)

    if x.size == 0:
        return b.filled(0.0, shape, dtype)
    size = elementwise("abs", x)
    scale = fold("reduce_max" if order > 0 else "reduce_min", size)
    finite = elementwise("isfinite", scale, result=dtypes.bool_)
    positive = elementwise("not_equal", scale, number(0.0), result=dtypes.bool_)
    usable = elementwise("logical_and", finite, positive, result=dtypes.bool_)
    scale = elementwise("where", usable, scale, number(1.0))
    ratio = elementwise("divide", size, scale)
    if order == 2:
        root = elementwise("sqrt", fold("reduce_sum", elementwise("square", ratio)))
    else:
        total = fold("reduce_sum", elementwise("pow", ratio, number(order)))
        root = elementwise("pow", total, number(1 / order))
    result = elementwise("multiply", scale, root)
    return b.reshape(result, shape)


SEARCHED_LINE = 1 << 12  # elements of a line up to which a kernel searches it, in twelve steps


def searchsorted(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value | None:
    """One short line halved step by step, for all values at once: at every step the same half for each."""
    line, values = inputs
    (right,) = attrs
    if len(line.shape) != 1 or not 0 < line.size <= SEARCHED_LINE or line.dtype.kind == "b" or not values.size:
        return None

    def elementwise(name: str, *operands: Value, result: DType = dtypes.bool_) -> Value:
        return b.make(by_name(name), operands, (), shape, result)

    def goes_before(found: Value) -> Value:
        before = elementwise("less_equal" if right else "less", found, values)
        if line.dtype.kind != "f":
            return before
        last = elementwise("isnan", values)  # NaN counts as the largest, and all NaN as equal
        if not right:
            last = elementwise("logical_and", last, elementwise("logical_not", elementwise("isnan", found)))
        return elementwise("logical_or", before, last)

    start = b.filled(0, shape, dtypes.int64)
    length = line.size
    while length:
        half = (length + 1) // 2
        middle = elementwise("add", start, b.literal(half - 1, dtypes.int64), result=dtypes.int64)
        found = b.make(by_name("gather"), (line, middle), ((0,),), shape, line.dtype)
        behind = elementwise("add", start, b.literal(half, dtypes.int64), result=dtypes.int64)
        start = elementwise("where", goes_before(found), behind, start, result=dtypes.int64)
        length = 0 if length == 1 else length - half
    return start
