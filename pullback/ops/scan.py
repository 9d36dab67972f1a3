"""First-order recurrences along one axis: running sum, product, maximum and minimum, the gated linear recurrence, and
the shift by which their derivatives look at the step before.

A scan walks its axis from the front, or from the back with ``reverse``; "before" means nearer the start of the walk.
Floats of 32 bits are carried in 64, half types in 32. In a kernel a scan is a value like an elementwise one, except
that the loop along its axis runs in order: what it reads and what reads it at the same position join it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape
from . import elementwise as e
from . import leaf
from .family import ANY, FLOAT, NUMERIC, Array, describe, kind_error, mixed_error, rank_error, widen, with_batch
from .record import Derivative, Jvp, Linear, Op
from .registry import register

Number = bool | int | float

# -- the family --------------------------------------------------------------------------------------------------------


def _infer_axis(name: str, kinds: str) -> Callable[..., tuple[Shape, DType]]:
    def infer(inputs: tuple[Node, ...], axis: int, *_: Any) -> tuple[Shape, DType]:
        first = inputs[0]
        for x in inputs:
            if x.dtype is not first.dtype:
                raise mixed_error(name, *inputs)
            if x.dtype.kind not in kinds:
                raise kind_error(name, kinds, *inputs)
            if x.shape != first.shape:
                raise ShapeError(f"{name}: operands of one shape expected, got {describe(*inputs)}")
        if not 0 <= axis < len(first.shape):
            raise rank_error(name, f"there is no axis {axis}", *inputs)
        return first.shape, first.dtype

    return infer


def _batch_axis(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    operands = tuple([with_batch(x, b, size) for x, b in zip(inputs, batched)])
    return bind(node.op, operands, (node.attrs[0] + 1, *node.attrs[1:]), node.weak)


def identity_of(name: str, dtype: DType) -> Number:
    """What a scan starts from."""
    if name == "scan_sum":
        return 0
    if name == "scan_prod":
        return 1
    if dtype.kind == "f":
        return float("-inf") if name == "scan_max" else float("inf")
    if dtype.kind == "b":
        return name == "scan_min"
    return dtypes.integer_limits(dtype)[name == "scan_min"]


def _walk(array: Array, axis: int, reverse: bool) -> Array:
    """A view whose first axis is walked forwards."""
    moved = np.moveaxis(array, axis, 0)
    return moved[::-1] if reverse else moved


def _carried(array: Array, dtype: DType) -> Array:
    """Floats in double precision, rounded once at the end."""
    return widen(array, dtype).astype(np.float64) if dtype.kind == "f" else array


def _reference(name: str, function: np.ufunc) -> Callable[..., Array]:
    def reference(node: Node, x: Array) -> Array:
        axis, reverse, exclusive = node.attrs
        out = np.empty(node.shape, node.dtype.numpy)
        line, result = _walk(_carried(x, node.dtype), axis, reverse), _walk(out, axis, reverse)
        with np.errstate(all="ignore"):
            running = function.accumulate(line, axis=0, dtype=line.dtype)
            if not exclusive:
                result[...] = running
            elif len(result):
                result[0] = identity_of(name, node.dtype)
                result[1:] = running[:-1]
        return out

    return reference


class Scan(Protocol):
    """Makes a node of running values along ``axis``."""

    def __call__(self, x: Node, axis: int, reverse: bool = False, exclusive: bool = False) -> Node: ...


def _scan(
    name: str, function: np.ufunc, kinds: str, derivative: Derivative, lower: str, doc: str
) -> tuple[Op, Scan]:
    op = register(Op(
        name, "scan", _infer_axis(name, kinds), _reference(name, function), derivative, _batch_axis, lower, 1.0,
        ("axis", "reverse", "exclusive"), f"{doc}; exclusive: of the elements before only",
    ))

    def apply(x: Node, axis: int, reverse: bool = False, exclusive: bool = False) -> Node:
        return bind(op, (x,), (axis, reverse, exclusive), x.weak)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = op.doc
    return op, apply


# -- the step before ---------------------------------------------------------------------------------------------------


def _reference_shift(node: Node, x: Array) -> Array:
    axis, offset = node.attrs
    out = np.zeros(node.shape, node.dtype.numpy)
    line, result = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    if offset > 0:
        result[offset:] = line[:-offset]
    elif offset < 0:
        result[:offset] = line[-offset:]
    else:
        result[...] = line
    return out


SHIFT = register(Op(
    "shift", "shift", _infer_axis("shift", ANY), _reference_shift,
    Linear(lambda node, cotangent, index: shift(cotangent, node.attrs[0], -node.attrs[1])), _batch_axis,
    "shift", 1.0, ("axis", "offset"), "element i is element i - offset along an axis, 0 beyond the ends",
))


def shift(x: Node, axis: int, offset: int) -> Node:
    """Element i of the result along ``axis`` is element ``i - offset`` of ``x``, 0 (False) where there is none."""
    if offset == 0:
        return x
    if abs(offset) >= x.shape[axis]:
        return leaf.full(x.shape, 0, x.dtype)
    return bind(SHIFT, (x,), (axis, offset), x.weak)


def first_step(shape: Shape, axis: int, reverse: bool) -> Node:
    """Whether an element is the one where the walk along ``axis`` starts: bools that broadcast to ``shape``."""
    line = tuple([extent if a == axis else 1 for a, extent in enumerate(shape)])
    return e.equal(leaf.iota(line, axis, dtypes.int64), shape[axis] - 1 if reverse else 0)


def step_before(x: Node, axis: int, reverse: bool, start: Number = 0) -> Node:
    """What ``x`` is one step earlier on the walk, ``start`` at its first step."""
    moved = shift(x, axis, -1 if reverse else 1)
    return moved if start == 0 else e.where(first_step(x.shape, axis, reverse), start, moved)


# -- sum, product, extremes --------------------------------------------------------------------------------------------


def _transpose_sum(node: Node, cotangent: Node, index: int) -> Node:
    axis, reverse, exclusive = node.attrs
    return scan_sum(cotangent, axis, not reverse, exclusive)


def _prod_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    """``dP[t] = x[t] dP[t-1] + dx[t] P[t-1]``: no division, so exact with zeros, and to every order."""
    (x,), (tangent,) = node.inputs, tangents
    axis, reverse, exclusive = node.attrs
    before = node if exclusive else step_before(node, axis, reverse, 1)
    inclusive = strong_scan(x, e.strong_product(tangent, before), axis, reverse)  # type: ignore[arg-type]
    return step_before(inclusive, axis, reverse) if exclusive else inclusive


def taken_steps(x: Node, running: Node) -> Node:
    """Where a running extreme takes the element at hand: of equal ones the last wins, and a NaN stays."""
    equal = e.equal(x, running)
    return e.logical_or(equal, e.isnan(x)) if x.dtype.kind == "f" else equal


def _extremum_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    """The tangent of the element taken last: a recurrence whose gate closes where another element is taken."""
    (x,), (tangent,) = node.inputs, tangents
    axis, reverse, exclusive = node.attrs
    running = bind(node.op, (x,), (axis, reverse, False)) if exclusive else node
    taken = taken_steps(x, running)
    kept = e.cast(e.logical_not(taken), x.dtype)
    inclusive = strong_scan(kept, e.where(taken, tangent, 0), axis, reverse)  # type: ignore[arg-type]
    return step_before(inclusive, axis, reverse) if exclusive else inclusive


SCAN_SUM, scan_sum = _scan("scan_sum", np.add, NUMERIC, Linear(_transpose_sum), "add", "running sum along an axis")
SCAN_PROD, scan_prod = _scan(
    "scan_prod", np.multiply, NUMERIC, Jvp(_prod_tangent), "multiply",
    "running product along an axis; derivative exact at 0",
)
SCAN_MAX, scan_max = _scan(
    "scan_max", np.maximum, ANY, Jvp(_extremum_tangent), "maximum",
    "largest so far along an axis, NaN from the first NaN on; of equal ones the last has the derivative",
)
SCAN_MIN, scan_min = _scan(
    "scan_min", np.minimum, ANY, Jvp(_extremum_tangent), "minimum",
    "smallest so far along an axis, NaN from the first NaN on; of equal ones the last has the derivative",
)

# -- the gated linear recurrence ---------------------------------------------------------------------------------------


def _strong_product(x: Array, y: Array) -> Array:
    """x * y, and 0 where either is 0 whatever the other is."""
    return np.where((x == 0) | (y == 0), 0, x * y)


def _reference_gated(node: Node, gate: Array, term: Array) -> Array:
    axis, reverse, *_ = node.attrs
    is_late = node.op is STRONG_SCAN and node.attrs[2]
    product = np.multiply if node.op is GATED_SCAN else _strong_product
    out = np.empty(node.shape, node.dtype.numpy)
    a, b = (_walk(_carried(x, node.dtype), axis, reverse) for x in (gate, term))
    result = _walk(out, axis, reverse)
    carry = np.zeros(result.shape[1:])
    with np.errstate(all="ignore"):
        for t in range(len(result)):
            value = carry + b[t] if is_late else product(carry, a[t]) + b[t]
            result[t] = value
            carry = product(value, a[t]) if is_late else value
    return out


def _gated_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    """``dh[t] = a[t] dh[t-1] + (da[t] h[t-1] + db[t])``."""
    by_gate, by_term = tangents
    axis, reverse = node.attrs
    total = by_term
    if by_gate is not None:
        moved = e.strong_product(by_gate, step_before(node, axis, reverse))
        total = moved if total is None else e.add(moved, total)
    return strong_scan(node.inputs[0], total, axis, reverse)  # type: ignore[arg-type]


def _strong_transpose(node: Node, cotangent: Node, index: int) -> Node:
    """What flows back over a step passes that step's gate: the gate comes late exactly if it did not before."""
    axis, reverse, late = node.attrs
    return strong_scan(node.inputs[0], cotangent, axis, not reverse, not late)


def _strong_others(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    """The part of the tangent that is due to the gates'."""
    (gate, _), (tangent, _) = node.inputs, tangents
    axis, reverse, late = node.attrs
    if late:
        term = step_before(e.strong_product(tangent, node), axis, reverse)  # type: ignore[arg-type]
    else:
        term = e.strong_product(tangent, step_before(node, axis, reverse))  # type: ignore[arg-type]
    return strong_scan(gate, term, axis, reverse, late)


GATED_SCAN = register(Op(
    "gated_scan", "scan", _infer_axis("gated_scan", FLOAT), _reference_gated, Jvp(_gated_tangent), _batch_axis,
    "gated", 2.0, ("axis", "reverse"), "h[t] = a[t] h[t-1] + b[t] along an axis, from 0",
))
STRONG_SCAN = register(Op(
    "strong_scan", "scan", _infer_axis("strong_scan", FLOAT), _reference_gated,
    Linear(_strong_transpose, (1,), others=_strong_others), _batch_axis,
    "strong", 3.0, ("axis", "reverse", "late"),
    "gated_scan in which an h or a gate of 0 gives 0 whatever the other, as tangents and cotangents are carried; "
    "late: h[t] = a[t-1] h[t-1] + b[t]",
))


def gated_scan(a: Node, b: Node, axis: int, reverse: bool = False) -> Node:
    """``h[t] = a[t] h[t-1] + b[t]`` along ``axis``, from h = 0; ``a`` and ``b`` of one shape and floating dtype."""
    return bind(GATED_SCAN, (a, b), (axis, reverse))


def strong_scan(a: Node, b: Node, axis: int, reverse: bool = False, late: bool = False) -> Node:
    """:func:`gated_scan`, linear in ``b``, in which zeros are strong: where h is 0 the gate may be infinite or
    NaN, and where the gate is 0 so may h.

    late: a step's gate applies to what leaves it, ``h[t] = a[t-1] h[t-1] + b[t]``.
    """
    if b.dtype is not a.dtype:
        b = e.cast(b, a.dtype)
    return bind(STRONG_SCAN, (a, b), (axis, reverse, late))
