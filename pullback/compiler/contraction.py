"""Contractions as matrix products: the strides that a batch of ``C = A B`` reads, and the copies it needs first.

``dot_general`` contracts any axes; a matrix product wants one batch, one row and one column stride. Views (transposes
above all) are looked through, so ``x.T @ y`` costs no copy. This file is the seam for a contraction engine of our own:
of BLAS it asks only which strides it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..runtime.blas import accepts
from .values import Value

if TYPE_CHECKING:
    from .fuse import Fuser


@dataclass
class MatrixOperand:
    """A batch of matrices inside ``base``; offset and strides in elements."""

    base: Value
    offset: int
    row_stride: int
    column_stride: int
    batch_stride: int


@dataclass
class ContractionPlan:
    """``C[batch, m, n] = A[batch, m, k] B[batch, k, n]``, C contiguous."""

    left: MatrixOperand
    right: MatrixOperand
    batch: int
    m: int
    n: int
    k: int


def plan_contraction(fuser: Fuser, value: Value) -> ContractionPlan:
    """Lay out the operands of ``value`` (a ``dot_general``), placing copies in ``fuser`` where needed."""
    (contract_left, contract_right), (batch_left, batch_right) = value.attrs
    x, y = value.inputs
    free_left = _rest(x, contract_left, batch_left)
    free_right = _rest(y, contract_right, batch_right)
    left = _operand(fuser, x, batch_left, free_left, contract_left)
    right = _operand(fuser, y, batch_right, contract_right, free_right)
    return ContractionPlan(
        left,
        right,
        batch=_extent(x, batch_left),
        m=_extent(x, free_left),
        n=_extent(y, free_right),
        k=_extent(x, contract_left),
    )


def _rest(value: Value, contract: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(value.shape)) if axis not in contract and axis not in batch)


def _extent(value: Value, axes: tuple[int, ...]) -> int:
    extent = 1
    for axis in axes:
        extent *= value.shape[axis]
    return extent


def _operand(
    fuser: Fuser, value: Value, batch: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]
) -> MatrixOperand:
    base, offset, strides = fuser.strided(value)
    found = [_collapse(value.shape, strides, axes) for axes in (batch, rows, columns)]
    if all(stride is not None for stride in found):
        batch_stride, row_stride, column_stride = (stride or 0 for stride in found)
        if accepts(_extent(value, rows), _extent(value, columns), row_stride, column_stride):
            return MatrixOperand(base, offset, row_stride, column_stride, batch_stride)
    from ..ops.registry import by_name

    order = (*batch, *rows, *columns)
    shape = tuple(value.shape[axis] for axis in order)
    arranged = value
    if order != tuple(range(len(order))):
        arranged = fuser.builder.raw("view", "permute", by_name("permute"), (value,), (order,), shape, value.dtype)
    copy = fuser.copy_of(arranged)
    width = _extent(value, columns)
    return MatrixOperand(copy, 0, width, 1, _extent(value, rows) * width)


def _collapse(shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...]) -> int | None:
    """The one stride with which ``axes``, outermost first, can be walked; None where there is none."""
    stride = 0
    extent = 1
    for axis in reversed(axes):
        if shape[axis] == 1:
            continue
        if extent == 1:
            stride = strides[axis]
        elif strides[axis] != stride * extent:
            return None
        extent *= shape[axis]
    return stride
