"""unfold and fold: the windows of an image side by side as columns, and their sum back into an image."""

from __future__ import annotations

from typing import Any

from ..api.composite import composite
from ..api.convert import as_node
from ..errors import ArgumentError, ShapeError
from ..graph.node import Node
from ..ops import movement as move
from ..ops.convolution import output_extent, spread_extent
from ..ops.windows import overlap_add, windows
from ..shapes import size_of
from ..tensor import Tensor
from .convolution import Ints, Pairs, padding_pairs, per_axis


def _window(
    op: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Ints, Ints, Pairs, Ints]:
    """Taps, dilations, padding and strides of each axis; there are two axes unless ``kernel_size`` says otherwise."""
    rank = len(kernel_size) if isinstance(kernel_size, list | tuple) else 2
    if not rank:
        raise ArgumentError(f"{op}: kernel_size must be an int or one int for each spatial axis, got {kernel_size!r}")
    taps = per_axis(kernel_size, rank, op, "kernel_size", 1)
    gaps = per_axis(dilation, rank, op, "dilation", 1)
    if isinstance(padding, str):
        raise ArgumentError(f"{op}: padding must be ints or pairs of ints, got {padding!r}")
    return taps, gaps, padding_pairs(padding, rank, op), per_axis(stride, rank, op, "stride", 1)


def _positions(op: str, extents: Ints, taps: Ints, gaps: Ints, pairs: Pairs, steps: Ints) -> Ints:
    found = []
    for extent, count, gap, pair, step in zip(extents, taps, gaps, pairs, steps):
        positions = output_extent(extent, count, step, pair, 1, gap)
        if positions < 1:
            raise ShapeError(
                f"{op}: a window of {spread_extent(count, gap)} elements does not fit an axis of {extent}, padded by "
                f"{pair}, of the spatial shape {extents}"
            )
        found.append(positions)
    return tuple(found)


@composite
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Every window of an image as a column (im2col): PyTorch's ``nn.functional.unfold``. (``pb.unfold`` is the windows
    along one axis.)

    x: (N, C, H, W) or (C, H, W). Result: (N, C * KH * KW, L) or without the N: channel by channel the elements of each
    window, which are zeros in the padding, in the order of the L windows.
    kernel_size: an int, or one for each spatial axis, of which there may then be any number.
    dilation, stride: an int, or one for each axis. padding: also pairs (before, after).

    A convolution needs none of this: :func:`conv2d` reads windows where they are.
    Raises ShapeError for an x of other axes and a window that does not fit, ArgumentError for other wrong arguments.
    """
    op = "unfold"
    taps, gaps, pairs, steps = _window(op, kernel_size, dilation, padding, stride)
    node, rank = as_node(x, None, op), len(taps)
    if len(node.shape) not in (rank + 1, rank + 2):
        raise ShapeError(f"{op}: x must have the axes (N, C, *{rank} spatial) or (C, *{rank} spatial), got shape "
                         f"{node.shape}")
    is_single = len(node.shape) == rank + 1
    if is_single:
        node = move.reshape(node, (1, *node.shape))
    batch, channels, *extents = node.shape
    positions = _positions(op, tuple(extents), taps, gaps, pairs, steps)
    low, high = (0, 0, *[p[0] for p in pairs]), (0, 0, *[p[1] for p in pairs])
    node = move.pad(node, False if node.dtype.kind == "b" else 0, low, high)
    for axis, (count, gap, step) in enumerate(zip(taps, gaps, steps), 2):
        node = windows(node, axis, spread_extent(count, gap), step)
        last = len(node.shape) - 1
        node = move.slice_axis(node, last, 0, node.shape[last], gap)
    node = move.permute(node, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    shape = (channels * size_of(taps), size_of(positions))
    return Tensor(move.reshape(node, shape if is_single else (batch, *shape)))


@composite
def fold(
    x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns added up where their windows lie in an image (col2im): the transpose of :func:`unfold`, and PyTorch's
    ``nn.functional.fold``.

    x: (N, C * KH * KW, L) or (C * KH * KW, L), L the number of windows in ``output_size``. Result: (N, C, H, W) or
    (C, H, W), where H and W are ``output_size``: an int, or one for each spatial axis. What lies in the padding is
    lost.
    Other arguments and errors: as in :func:`unfold`; ShapeError if L is not the number of windows.
    """
    op = "fold"
    taps, gaps, pairs, steps = _window(op, kernel_size, dilation, padding, stride)
    node, rank = as_node(x, None, op), len(taps)
    extents = per_axis(output_size, rank, op, "output_size", 1)
    positions = _positions(op, extents, taps, gaps, pairs, steps)
    if len(node.shape) not in (2, 3) or node.shape[-2] % size_of(taps) or node.shape[-1] != size_of(positions):
        raise ShapeError(
            f"{op}: x must have shape (N, C * {size_of(taps)}, {size_of(positions)}) or without the N, a column for "
            f"each of the {positions} windows of {taps} in {extents}; got {node.shape}"
        )
    is_single = len(node.shape) == 2
    batch = 1 if is_single else node.shape[0]
    channels = node.shape[-2] // size_of(taps)
    node = move.reshape(node, (batch, channels, *taps, *positions))
    node = move.permute(node, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    for axis in reversed(range(rank)):
        node = _add_windows(node, axis + 2, gaps[axis], steps[axis], extents[axis] + sum(pairs[axis]))
    starts = (0, 0, *[p[0] for p in pairs])
    node = move.slice(node, starts, (batch, channels, *[p[0] + n for p, n in zip(pairs, extents)]))
    return Tensor(move.reshape(node, node.shape[1:]) if is_single else node)


def _add_windows(x: Node, axis: int, gap: int, step: int, extent: int) -> Node:
    """The sum of windows, whose elements lie along the last axis, in the place of the axis of their positions."""
    last = len(x.shape) - 1
    none = (0,) * (last + 1)
    x = move.pad(x, 0, none, none, (*none[1:], gap - 1))
    return overlap_add(x, axis, step, (*x.shape[:axis], extent, *x.shape[axis + 1 : last]))
