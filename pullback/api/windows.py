"""Windows that slide along an axis: unfold (PyTorch's) and sliding_window_view (NumPy's)."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..graph.node import Node
from ..ops.windows import windows
from ..shapes import as_int, as_shape, normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node


def unfold(x: ArrayLike, axis: int, size: int, step: int = 1, /) -> Tensor:
    """Windows of ``size`` neighbours along ``axis``, one every ``step`` elements: their number stands in the place of
    the axis, their elements along a new last axis (PyTorch's ``Tensor.unfold``).

    What is left at the end and does not fill a window is dropped. Raises ShapeError for a size or step below 1, or a
    window longer than the axis.
    """
    node = as_node(x, None, "unfold")
    a = normalize_axis(axis, len(node.shape), "unfold")
    return Tensor(windows_node(node, a, as_int(size, "unfold", "size"), as_int(step, "unfold", "step"), "unfold"))


def windows_node(node: Node, axis: int, size: int, step: int, op: str) -> Node:
    """See :func:`unfold`."""
    extent = node.shape[axis]
    if not 1 <= size <= extent:
        raise ShapeError(f"{op}: windows of {size} do not fit axis {axis} of shape {node.shape} (1 to {extent})")
    if step < 1:
        raise ShapeError(f"{op}: the step from window to window must be at least 1, got {step}")
    return windows(node, axis, size, step)


def sliding_window_view(
    x: ArrayLike, window_shape: int | Sequence[int], /, axis: int | Sequence[int] | None = None
) -> Tensor:
    """All windows of ``window_shape`` along ``axis`` (None: all axes, in order), their elements along new last axes;
    NumPy's function of that name, but a value of its own and not a view. ShapeError for windows that do not fit.
    """
    node = as_node(x, None, "sliding_window_view")
    sizes = as_shape(window_shape, "sliding_window_view")
    rank = len(node.shape)
    if axis is None:
        axes = tuple(range(rank))
    else:
        given = (axis,) if isinstance(axis, int) else tuple(axis)
        axes = tuple([normalize_axis(a, rank, "sliding_window_view") for a in given])
    if len(axes) != len(sizes):
        raise ShapeError(f"sliding_window_view: {len(sizes)} window sizes for {len(axes)} axes of shape {node.shape}")
    for a, size in zip(axes, sizes, strict=True):
        node = windows_node(node, a, size, 1, "sliding_window_view")
    return Tensor(node)
