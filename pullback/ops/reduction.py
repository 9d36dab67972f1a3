"""Ops that fold axes: sum, prod, max, min, any, all, argmax, argmin.

``axes`` is a sorted tuple of non-negative ints. An empty axis has sum 0 and product 1; the others need an element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape, reduced_shape, size_of
from . import elementwise as e
from . import leaf, movement
from .family import ANY, BOOL, INTEGER_RESULT, NUMERIC, Array, describe, kind_error, rank_error, widen
from .record import Derivative, Jvp, Linear, NoDerivative, Op
from .registry import register

Ints = tuple[int, ...]
_HALF = (dtypes.float16, dtypes.bfloat16)

# -- the family --------------------------------------------------------------------------------------------------------


def _infer_reduction(name: str, kinds: str, needs_element: bool, result: DType | None) -> Callable[..., Any]:
    def infer(inputs: tuple[Node, ...], axes: Ints, keepdims: bool) -> tuple[Shape, DType]:
        (x,) = inputs
        if x.dtype.kind not in kinds:
            raise kind_error(name, kinds, x)
        ndim = len(x.shape)
        if len(axes) == 1:
            in_order = 0 <= axes[0] < ndim
        else:
            in_order = not axes or (tuple(sorted(set(axes))) == axes and axes[0] >= 0 and axes[-1] < ndim)
        if not in_order:
            raise rank_error(name, f"axes {axes} are not distinct axes in order", x)
        if needs_element:
            for axis in axes:
                if x.shape[axis] == 0:
                    raise ShapeError(f"{name}: axis {axis} of {describe(x)} is empty and has no {name[-3:]}imum")
        if result is not None and len(axes) != 1:
            raise rank_error(name, f"one axis expected, got {axes}", x)
        return reduced_shape(x.shape, axes, keepdims), x.dtype if result is None else result

    return infer


def _batch_reduction(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    axes, keepdims = node.attrs
    return bind(node.op, inputs, (tuple([a + 1 for a in axes]), keepdims), node.weak)


def _fold(function: Callable[..., Any]) -> Callable[..., Array]:
    """The reference that folds with ``function``, floats of 32 bits and fewer in double precision, rounded once."""

    def reference(node: Node, x: Array) -> Array:
        axes, keepdims = node.attrs
        if x.dtype.itemsize <= 4 and node.dtype.kind == "f":
            x = widen(x, node.dtype).astype(np.float64)
        with np.errstate(all="ignore"):
            folded = function(x, axis=axes, keepdims=keepdims, **({"dtype": x.dtype} if function in _TYPED else {}))
            return np.asarray(folded).astype(node.dtype.numpy, copy=False)

    return reference


_TYPED = (np.sum, np.prod)  # these would widen small integers unless told the dtype


def _position(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(node: Node, x: Array) -> Array:
        (axis,), keepdims = node.attrs
        return np.asarray(function(widen(x, node.inputs[0].dtype), axis=axis, keepdims=keepdims)).astype(np.int64)

    return reference


def _reduction(
    name: str, reference: Callable[..., Array], kinds: str, derivative: Derivative, lower: str, doc: str,
    needs_element: bool = False, result: DType | None = None,
) -> Op:
    infer = _infer_reduction(name, kinds, needs_element, result)
    return register(Op(
        name, "reduction", infer, reference, derivative, _batch_reduction, lower, 1.0, ("axes", "keepdims"), doc
    ))


class Reduction(Protocol):
    """Makes a node that folds ``axes``."""

    def __call__(self, x: Node, axes: Ints, keepdims: bool = False) -> Node: ...


def _reduction_function(op: Op) -> Reduction:
    def apply(x: Node, axes: Ints, keepdims: bool = False) -> Node:
        if not axes and x.dtype.kind != "b":
            return x
        return bind(op, (x,), (axes, keepdims), x.weak)

    apply.__name__ = apply.__qualname__ = op.name
    apply.__doc__ = op.doc
    return apply


# -- derivatives -------------------------------------------------------------------------------------------------------


def restore_axes(folded: Node, node: Node) -> Node:
    """``folded``, of the shape of the reduction ``node``, with the folded axes back as axes of extent 1."""
    axes, keepdims = node.attrs
    return folded if keepdims else movement.expand_dims(folded, axes)


def _transpose_sum(node: Node, cotangent: Node, index: int) -> Node:
    return movement.broadcast_to(restore_axes(cotangent, node), node.inputs[0].shape)


def _product_of_others(x: Node) -> Node:
    """Along the last axis, the product of all elements but the one at hand, without a division.

    The first half is multiplied with the second, those products' own product of others is found, and each half is
    then multiplied with the other's elements: twice the work of a product, and exact with zeros to every order.
    """
    halves: list[tuple[Node, Node]] = []
    last = len(x.shape) - 1
    extents = []
    while x.shape[last] > 1:
        extent = x.shape[last]
        extents.append(extent)
        if extent % 2:
            x = movement.pad(x, 1, (0,) * (last + 1), (*(0,) * last, 1))
        half = x.shape[last] // 2
        first = movement.slice_axis(x, last, 0, half)
        second = movement.slice_axis(x, last, half, 2 * half)
        halves.append((first, second))
        x = e.multiply(first, second)
    others = leaf.ones_like(x)
    for (first, second), extent in zip(reversed(halves), reversed(extents)):
        both = movement.concat((e.multiply(others, second), e.multiply(others, first)), last)
        others = movement.slice_axis(both, last, 0, extent)
    return others


def _prod_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    (x,), (tangent,) = node.inputs, tangents
    axes, keepdims = node.attrs
    kept = tuple([a for a in range(len(x.shape)) if a not in axes])
    order = (*kept, *axes)
    moved = movement.permute(x, order)
    kept_shape = tuple([x.shape[a] for a in kept])
    folded = size_of([x.shape[a] for a in axes])
    others = movement.reshape(_product_of_others(movement.reshape(moved, (*kept_shape, folded))), moved.shape)
    others = movement.permute(others, movement.inverse_permutation(order))
    # A tangent of 0 (of a masked element) beats a product that is infinite or NaN.
    return reduce_sum(e.strong_product(tangent, others), axes, keepdims)  # type: ignore[arg-type]


def share_of_ties(mask: Node, axes: Ints, dtype: DType) -> Node:
    """How many hold of ``mask`` along ``axes`` (kept), as ``dtype``, or as float32 for the half types, of which
    float16 ends at 65504 and neither counts beyond 2048 one by one."""
    return reduce_sum(e.cast(mask, dtypes.float32 if dtype in _HALF else dtype), axes, True)


def _extremum_tangent(node: Node, tangents: tuple[Node | None, ...]) -> Node:
    (x,), (tangent,) = node.inputs, tangents
    axes, keepdims = node.attrs
    # A row with a NaN has NaN as its extremum: its NaNs are the ones tied.
    tied = e.logical_or(e.equal(x, restore_axes(node, node)), e.isnan(x))
    count = share_of_ties(tied, axes, x.dtype)
    if not keepdims:
        count = movement.reshape(count, node.shape)
    shared = e.cast(e.where(tied, tangent, 0), count.dtype)  # type: ignore[arg-type]
    return e.cast(e.divide(reduce_sum(shared, axes, keepdims), count), x.dtype)


_BOOLEAN = NoDerivative("its result is boolean")

REDUCE_SUM = _reduction("reduce_sum", _fold(np.sum), NUMERIC, Linear(_transpose_sum), "add", "sum over axes")
REDUCE_PROD = _reduction(
    "reduce_prod", _fold(np.prod), NUMERIC, Jvp(_prod_tangent), "multiply", "product over axes; derivative exact at 0"
)
REDUCE_MAX = _reduction(
    "reduce_max", _fold(np.max), ANY, Jvp(_extremum_tangent), "maximum",
    "largest over axes, NaN if there is one; ties share the derivative evenly", needs_element=True,
)
REDUCE_MIN = _reduction(
    "reduce_min", _fold(np.min), ANY, Jvp(_extremum_tangent), "minimum",
    "smallest over axes, NaN if there is one; ties share the derivative evenly", needs_element=True,
)
REDUCE_ANY = _reduction("reduce_any", _fold(np.any), BOOL, _BOOLEAN, "logical_or", "whether any holds over axes")
REDUCE_ALL = _reduction("reduce_all", _fold(np.all), BOOL, _BOOLEAN, "logical_and", "whether all hold over axes")
ARGMAX = _reduction(
    "argmax", _position(np.argmax), ANY, INTEGER_RESULT, "argmax",
    "position of the first largest along one axis; the first NaN counts as largest", True, dtypes.int64,
)
ARGMIN = _reduction(
    "argmin", _position(np.argmin), ANY, INTEGER_RESULT, "argmin",
    "position of the first smallest along one axis; the first NaN counts as smallest", True, dtypes.int64,
)

reduce_sum = _reduction_function(REDUCE_SUM)
reduce_prod = _reduction_function(REDUCE_PROD)
reduce_max = _reduction_function(REDUCE_MAX)
reduce_min = _reduction_function(REDUCE_MIN)
reduce_any = _reduction_function(REDUCE_ANY)
reduce_all = _reduction_function(REDUCE_ALL)


def argmax(x: Node, axes: Ints, keepdims: bool = False) -> Node:
    """Position of the first largest element along the one axis of ``axes``, int64."""
    return bind(ARGMAX, (x,), (axes, keepdims))


def argmin(x: Node, axes: Ints, keepdims: bool = False) -> Node:
    """Position of the first smallest element along the one axis of ``axes``, int64."""
    return bind(ARGMIN, (x,), (axes, keepdims))


def sum_to(x: Node, shape: Shape) -> Node:
    """``x`` summed over the axes by which ``shape`` was broadcast to its shape: the transpose of broadcasting."""
    if x.shape == shape:
        return x
    value = movement.uniform_value(x)
    if value is not None and x.dtype.kind == "f":
        return leaf.full(shape, value * (size_of(x.shape) // max(size_of(shape), 1)), x.dtype)
    leading = len(x.shape) - len(shape)
    axes = [*range(leading)]
    for axis, extent in enumerate(shape, leading):
        if extent == 1 and x.shape[axis] != 1:
            axes.append(axis)
    return movement.reshape(reduce_sum(x, tuple(axes)), shape)
