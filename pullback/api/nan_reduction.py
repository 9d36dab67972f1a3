"""Reductions that pass NaN over: nansum, nanmean, nanmax and their like. NaN elements have gradient 0.

Arguments are those of the functions without "nan". A row of NaN alone counts as one without elements: its sum is 0, its
product 1, its mean, variance, extremes and quantiles NaN, all with gradient 0. Integers and bools have no NaN.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import movement as move
from ..ops import reduction as fold
from ..shapes import normalize_axis, reduced_shape
from ..tensor import Tensor
from . import reduction
from .convert import ArrayLike, as_node, cast_node, scalar_node
from .reduction import Axis, greatest, least, operand
from .statistics import median_of, quantile_of


def _present(x: ArrayLike, op: str) -> tuple[Tensor, Tensor | None]:
    """``x`` and where it is not NaN; None where none can be."""
    node = as_node(x, None, op)
    if node.dtype.kind != "f":
        return Tensor(node), None
    return Tensor(node), Tensor(ops.logical_not(ops.isnan(node)))


def nansum(x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum of the elements that are not NaN, with the dtype rule of :func:`sum`."""
    tensor, present = _present(x, "nansum")
    return reduction.sum(tensor, axis, dtype, keepdims, where=present)


def nanprod(x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product of the elements that are not NaN, with the dtype rule of :func:`sum`."""
    tensor, present = _present(x, "nanprod")
    return reduction.prod(tensor, axis, dtype, keepdims, where=present)


def nanmean(x: ArrayLike, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Mean of the elements that are not NaN."""
    tensor, present = _present(x, "nanmean")
    return reduction.mean(tensor, axis, dtype, keepdims, where=present)


def nanvar(
    x: ArrayLike, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Variance of the elements that are not NaN; see :func:`var`."""
    tensor, present = _present(x, "nanvar")
    return reduction.var(tensor, axis, correction, keepdims, ddof, where=present)


def nanstd(
    x: ArrayLike, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """Standard deviation of the elements that are not NaN; see :func:`std`."""
    tensor, present = _present(x, "nanstd")
    return reduction.std(tensor, axis, correction, keepdims, ddof, where=present)


def nanmax(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element that is not NaN; ties share the gradient evenly. ShapeError over no elements."""
    node, axes = operand(x, axis, "nanmax")
    return Tensor(_extremum(node, axes, keepdims, "max"))


def nanmin(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element that is not NaN; ties share the gradient evenly. ShapeError over no elements."""
    node, axes = operand(x, axis, "nanmin")
    return Tensor(_extremum(node, axes, keepdims, "min"))


def _extremum(node: Node, axes: tuple[int, ...], keepdims: bool, op: str) -> Node:
    if node.dtype.kind != "f":
        return reduction.extremum_node(node, axes, keepdims, op)
    missing = ops.isnan(node)
    outermost = least(node.dtype) if op == "max" else greatest(node.dtype)
    found = reduction.extremum_node(ops.where(missing, outermost, node), axes, True, op)
    # Where the extremum is the value that stands for NaN, these would take their share of the gradient as tied: there
    # the result is the mean of its equals, the others left out.
    shape = reduced_shape(node.shape, axes, keepdims)
    wide = dtypes.float32 if node.dtype.itemsize == 2 else node.dtype
    tied = ops.equal(node, found)
    count = ops.cast(fold.reduce_sum(ops.cast(tied, dtypes.int64), axes, True), wide)
    total = fold.reduce_sum(cast_node(ops.where(tied, node, 0), wide), axes, True)
    mean = cast_node(ops.divide(total, ops.where(ops.equal(count, 0), 1, count)), node.dtype)
    found = ops.where(ops.equal(found, outermost), mean, found)
    all_missing = fold.reduce_all(missing, axes, True)
    return move.reshape(ops.where(all_missing, float("nan"), found), shape)


def nanargmax(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first largest element that is not NaN, int64. A row of NaN alone raises IndexError when it is
    computed, under ``jit`` too."""
    return _position(x, axis, keepdims, "nanargmax")


def nanargmin(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first smallest element that is not NaN, int64; errors as of :func:`nanargmax`."""
    return _position(x, axis, keepdims, "nanargmin")


def _position(x: ArrayLike, axis: int | None, keepdims: bool, op: str) -> Tensor:
    function = reduction.argmax if op == "nanargmax" else reduction.argmin
    node = as_node(x, None, op)
    rank = len(node.shape)
    axes = tuple(range(rank)) if axis is None else (normalize_axis(axis, rank, op),)
    if node.dtype.kind != "f":
        return function(Tensor(node), axis, keepdims)
    missing = ops.isnan(node)
    is_max = op == "nanargmax"
    outermost = least(node.dtype) if is_max else greatest(node.dtype)
    filled = ops.where(missing, outermost, node)
    # Where the extremum is the value that stands for NaN, the first element that is there is looked for.
    extremum = reduction.extremum_node(filled, axes, True, "max" if is_max else "min")
    presence = ops.where(missing, scalar_node(0 if is_max else 1, node.dtype), 1 if is_max else 0)
    found = function(Tensor(ops.where(ops.equal(extremum, outermost), presence, filled)), axis, keepdims).node
    size = node.size if axis is None else node.shape[axes[0]]
    all_missing = move.reshape(fold.reduce_all(missing, axes, True), found.shape)
    return Tensor(ops.check_index(ops.where(all_missing, size, found), size, f"{op} of a slice of NaN alone"))


def nanmedian(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Median of the elements that are not NaN; see :func:`median`."""
    return median_of(x, axis, keepdims, "nanmedian", True)


def nanquantile(
    x: ArrayLike, q: ArrayLike, /, axis: Axis = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """Quantiles of the elements that are not NaN; see :func:`quantile`."""
    return quantile_of(x, q, axis, keepdims, method, "nanquantile", False, True)


def nanpercentile(
    x: ArrayLike, q: ArrayLike, /, axis: Axis = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """As :func:`nanquantile`, with ``q`` in percent, from 0 to 100."""
    return quantile_of(x, q, axis, keepdims, method, "nanpercentile", True, True)
