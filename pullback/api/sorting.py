"""Sorting. ``sort`` gathers by ``argsort``, so its gradient goes where the elements came from."""

from __future__ import annotations

from ..graph.node import Node
from ..ops import movement as move
from ..ops import sorting as ops
from ..shapes import normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node
from .indexing import take_along_node


def _operand(x: ArrayLike, axis: int | None, op: str) -> tuple[Node, int]:
    node = as_node(x, None, op)
    if axis is None:
        node = move.reshape(node, (node.size,))
        axis = 0
    return node, normalize_axis(axis, len(node.shape), op)


def argsort(x: ArrayLike, /, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Positions (int64) that sort ``x`` along ``axis`` (None: flattened). NaN sorts as the largest.

    stable: equal elements keep their order.
    """
    node, a = _operand(x, axis, "argsort")
    return Tensor(ops.argsort(node, a, descending, stable))


def sort(x: ArrayLike, /, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Elements in ascending (or descending) order along ``axis`` (None: flattened). NaN sorts as the largest."""
    node, a = _operand(x, axis, "sort")
    return Tensor(take_along_node(node, ops.argsort(node, a, descending, stable), a))
