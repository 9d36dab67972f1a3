"""argsort, the one op of sorting: sort, topk and median gather by its result, and so inherit its derivative."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape
from .family import INTEGER_RESULT, Array, rank_error, widen
from .record import Op
from .registry import register


def _infer_argsort(
    inputs: tuple[Node, ...], axis: int, descending: bool, stable: bool
) -> tuple[Shape, DType]:
    (x,) = inputs
    if not 0 <= axis < len(x.shape):
        raise rank_error("argsort", f"there is no axis {axis}", x)
    return x.shape, dtypes.int64


def _argsort_reference(node: Node, x: Array) -> Array:
    axis, descending, stable = node.attrs
    x = widen(x, node.inputs[0].dtype)
    kind: Literal["stable"] | None = "stable" if stable else None
    if not descending:
        return np.argsort(x, axis=axis, kind=kind).astype(np.int64, copy=False)
    # Sorting the reversed array and reversing the answer keeps equal elements in their order.
    order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind=kind), axis)
    return (x.shape[axis] - 1 - order).astype(np.int64, copy=False)


def _batch_argsort(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    axis, descending, stable = node.attrs
    return argsort(inputs[0], axis + 1, descending, stable)


ARGSORT = register(Op(
    "argsort", "host", _infer_argsort, _argsort_reference, INTEGER_RESULT, _batch_argsort, "argsort", 30.0,
    ("axis", "descending", "stable"), "positions that sort x along an axis; NaN counts as the largest",
))


def argsort(x: Node, axis: int, descending: bool = False, stable: bool = True) -> Node:
    """Positions (int64) that sort ``x`` along ``axis``; NaN counts as the largest. ``stable`` keeps ties in order."""
    return bind(ARGSORT, (x,), (axis, descending, stable))
