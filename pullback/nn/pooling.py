"""Pooling over the last one, two or three axes: the largest, the mean or a norm of windows or of adaptive bins.

All take x of shape (N, C, ...) or (C, ...), where ... are the axes that are pooled, and accept one number for all of
these axes or one for each. The windows are views (see ops/pooling.py), never copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..api import convert
from ..api import elementwise as ew
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ops import elementwise as node_ops
from ..ops import indexing, leaf, movement
from ..ops import pooling as ops
from ..ops.pooling import Window, Windows
from ..ops.reduction import argmax
from ..ops.resampling import resample
from ..shapes import as_int, as_number, size_of
from ..tensor import Tensor
from .operands import float_tensor, wide_inside
from .resizing import bins

Sizes = int | Sequence[int]


# -- arguments ---------------------------------------------------------------------------------------------------------


def per_axis(value: Any, n: int, name: str, op: str, least: int) -> tuple[int, ...]:
    """``value`` for each of ``n`` axes: one int for all of them, or one for each; none below ``least``."""
    if isinstance(value, (tuple, list)):
        numbers = tuple([as_int(v, op, name) for v in value])
        if len(numbers) == 1:
            numbers *= n
    else:
        numbers = (as_int(value, op, name),) * n
    if len(numbers) != n:
        raise ArgumentError(f"{op}: {name} must be one number or {n}, got {value!r}")
    if any(number < least for number in numbers):
        raise ArgumentError(f"{op}: {name} must be at least {least}, got {value!r}")
    return numbers


def _operand(x: Any, n: int, op: str) -> Tensor:
    tensor = convert.wrap(convert.as_node(x, None, op))
    if tensor.dtype.kind not in "iuf":
        raise DTypeError(f"{op}: a floating or integer tensor expected, got {tensor.dtype.name}")
    return check_rank(tensor, n, op)


def check_rank(x: Tensor, n: int, op: str) -> Tensor:
    """``x``, if it has ``n`` axes behind its channels, with or without a batch axis; ShapeError otherwise."""
    if x.ndim not in (n + 1, n + 2):
        axes = ("L", "H, W", "D, H, W")[n - 1]
        raise ShapeError(f"{op}: an input of shape (N, C, {axes}) or (C, {axes}) expected, got shape {x.shape}")
    return x


def pool_windows(
    shape: tuple[int, ...], n: int, op: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> Windows:
    """The windows over the last ``n`` axes of ``shape``, as many as PyTorch counts.

    ceil_mode: also a last window that is partly beyond the end, if it starts at an element or in the padding before.
    """
    sizes = per_axis(kernel_size, n, "kernel_size", op, 1)
    steps = sizes if stride is None else per_axis(stride, n, "stride", op, 1)
    pads = per_axis(padding, n, "padding", op, 0)
    dilations = per_axis(dilation, n, "dilation", op, 1)
    axes = []
    for extent, size, step, pad, gap in zip(shape[-n:], sizes, steps, pads, dilations):
        span = (size - 1) * gap + 1
        if 2 * pad > size:
            raise ArgumentError(
                f"{op}: padding {pad} is more than half of kernel_size {size}: windows would hold nothing but padding"
            )
        room = extent + 2 * pad - span
        count = (-(-room // step) if ceil_mode else room // step) + 1
        if ceil_mode and (count - 1) * step >= extent + pad:
            count -= 1
        if extent == 0 or count < 1:
            raise ShapeError(
                f"{op}: a window that spans {span} elements (kernel_size {size}, dilation {gap}) does not fit an axis "
                f"of {extent} with padding {pad} on both sides; the input's shape is {shape}"
            )
        axes.append(Window(extent, size, step, gap, pad, count))
    return tuple(axes)


# -- the largest -------------------------------------------------------------------------------------------------------


def _max_pool(
    x: Any, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool
) -> Any:
    op = f"max_pool{n}d"
    x = _operand(x, n, op)
    axes = pool_windows(x.shape, n, op, kernel_size, stride, padding, dilation, ceil_mode)
    largest = Tensor(ops.window_max(x.node, axes))
    if not return_indices:
        return largest
    return largest, Tensor(ops.flat_positions(ops.window_argmax(x.node, axes), axes))


def max_pool1d(
    x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """The largest element of each window along the last axis.  x: (N, C, L) or (C, L), floating or integer.

    stride: from window to window; None: kernel_size.   padding: on both sides, at most half of kernel_size; it
        never wins.   dilation: from element to element of a window.
    ceil_mode: with a last window that is partly beyond the end, if it starts at an element or in the padding before.
    return_indices: also the positions of the largest elements along the axis (of several axes: row-major), int64.

    A NaN is larger than all. The gradient of equal elements goes to the first. Raises ShapeError for a window larger
    than the padded input, ArgumentError for too much padding or a size that is not positive.
    """
    return _max_pool(x, 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """As :func:`max_pool1d` over two axes.  x: (N, C, H, W) or (C, H, W)."""
    return _max_pool(x, 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:
    """As :func:`max_pool1d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W)."""
    return _max_pool(x, 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


# -- the mean ----------------------------------------------------------------------------------------------------------


def _divisors(w: Window, count_include_pad: bool) -> Any:
    """How many elements each window along an axis counts. What ceil_mode adds beyond the padding never counts."""
    at = w.positions()
    if count_include_pad:
        return (at < w.extent + w.low).sum(1)
    return ((at >= 0) & (at < w.extent)).sum(1)


def _mean_of(x: Tensor, axes: Windows, count_include_pad: bool, divisor: int | None) -> Tensor:
    total = Tensor(ops.window_sum(x.node, axes))
    if divisor is not None:
        return total / float(divisor)
    n = len(axes)
    counts = np.ones((1,) * n)
    for i, w in enumerate(axes):
        counts = counts * _divisors(w, count_include_pad).reshape([-1 if a == i else 1 for a in range(n)])
    if (counts == counts.flat[0]).all():
        return total / float(counts.flat[0])
    return total / Tensor(leaf.data(counts.astype(x.dtype.numpy)))


@wide_inside
def _avg_pool(
    x: Any, n: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    op = f"avg_pool{n}d"
    x = check_rank(float_tensor(x, op), n, op)
    axes = pool_windows(x.shape, n, op, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is not None and as_int(divisor_override, op, "divisor_override") == 0:
        raise ArgumentError(f"{op}: divisor_override must not be 0, by which sums are divided")
    return _mean_of(x, axes, count_include_pad, divisor_override)


def avg_pool1d(
    x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window along the last axis.  x: (N, C, L) or (C, L), floating.

    count_include_pad: whether the padding counts as zeros; what ``ceil_mode`` adds beyond it never counts.
    The other arguments and errors are those of :func:`max_pool1d`.
    """
    return _avg_pool(x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """As :func:`avg_pool1d` over two axes.  x: (N, C, H, W) or (C, H, W).

    divisor_override: divides the sum of a window instead of the number of its elements.
    """
    return _avg_pool(x, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:
    """As :func:`avg_pool2d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W)."""
    return _avg_pool(x, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


# -- norms -------------------------------------------------------------------------------------------------------------


@wide_inside
def _lp_pool(x: Any, n: int, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    op = f"lp_pool{n}d"
    x = check_rank(float_tensor(x, op), n, op)
    if not as_number(norm_type, op, "norm_type") > 0:
        raise ArgumentError(f"{op}: norm_type must be positive, got {norm_type}")
    axes = pool_windows(x.shape, n, op, kernel_size, stride, 0, 1, ceil_mode)
    size = float(size_of(w.size for w in axes))
    if norm_type == 1:
        return _mean_of(x, axes, True, None) * size
    total = _mean_of(x**norm_type, axes, True, None) * size
    empty = total == 0.0
    return ew.where(empty, 0.0, ew.where(empty, 1.0, total) ** (1.0 / norm_type))


def lp_pool1d(
    x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """``sum(x**norm_type)**(1 / norm_type)`` of each window along the last axis; 0, with derivative 0, where the sum
    is 0.  x: (N, C, L) or (C, L), floating; of an odd norm_type the sum may be negative, and its root NaN.

    A window that ``ceil_mode`` adds is scaled up by what it lacks, as in PyTorch. Raises ArgumentError for a norm_type
    that is not positive.
    """
    return _lp_pool(x, 1, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """As :func:`lp_pool1d` over two axes.  x: (N, C, H, W) or (C, H, W)."""
    return _lp_pool(x, 2, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """As :func:`lp_pool1d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W)."""
    return _lp_pool(x, 3, norm_type, kernel_size, stride, ceil_mode)


# -- adaptive bins -----------------------------------------------------------------------------------------------------


def _adaptive_sizes(x: Tensor, n: int, output_size: Any, op: str) -> tuple[int, ...]:
    extents = x.shape[-n:]
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(given) != n:
        raise ArgumentError(f"{op}: output_size must be one number or {n}, got {output_size!r}")
    sizes = tuple([e if s is None else as_int(s, op, "output_size") for e, s in zip(extents, given)])
    if any(size < 1 for size in sizes):
        raise ArgumentError(f"{op}: output_size must be at least 1, got {output_size!r}")
    if 0 in extents:
        raise ShapeError(f"{op}: an axis of extent 0 has no bins; the input's shape is {x.shape}")
    return sizes


def _even(extents: tuple[int, ...], sizes: tuple[int, ...]) -> Windows | None:
    """The bins as windows, where they all have one size and do not overlap."""
    if any(extent % size for extent, size in zip(extents, sizes)):
        return None
    return tuple([Window(e, e // s, e // s, 1, 0, s) for e, s in zip(extents, sizes)])


@wide_inside
def _adaptive_avg_pool(x: Any, n: int, output_size: Any) -> Tensor:
    op = f"adaptive_avg_pool{n}d"
    x = check_rank(float_tensor(x, op), n, op)
    sizes = _adaptive_sizes(x, n, output_size, op)
    even = _even(x.shape[-n:], sizes)
    if even is not None:
        return _mean_of(x, even, True, None)
    node = x.node
    for i, size in enumerate(sizes):
        extent = x.shape[x.ndim - n + i]
        if size != extent:
            node = resample(node, i - n, bins(extent, size))
    return Tensor(node)


def adaptive_avg_pool1d(x: Any, output_size: Any) -> Tensor:
    """The means of ``output_size`` bins along the last axis, bin i from ``floor(i L / size)`` up to
    ``ceil((i + 1) L / size)``.  x: (N, C, L) or (C, L), floating.

    output_size: of several axes one number for all or one each; None keeps the extent.
    Raises ArgumentError for a size below 1, ShapeError for an empty axis.
    """
    return _adaptive_avg_pool(x, 1, output_size)


def adaptive_avg_pool2d(x: Any, output_size: Any) -> Tensor:
    """As :func:`adaptive_avg_pool1d` over two axes.  x: (N, C, H, W) or (C, H, W)."""
    return _adaptive_avg_pool(x, 2, output_size)


def adaptive_avg_pool3d(x: Any, output_size: Any) -> Tensor:
    """As :func:`adaptive_avg_pool1d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W)."""
    return _adaptive_avg_pool(x, 3, output_size)


def _adaptive_max_pool(x: Any, n: int, output_size: Any, return_indices: bool) -> Any:
    op = f"adaptive_max_pool{n}d"
    x = _operand(x, n, op)
    sizes = _adaptive_sizes(x, n, output_size, op)
    extents = x.shape[-n:]
    even = _even(extents, sizes)
    if even is not None:
        largest = Tensor(ops.window_max(x.node, even))
        if not return_indices:
            return largest
        return largest, Tensor(ops.flat_positions(ops.window_argmax(x.node, even), even))
    # Every bin as long as the longest, its last element again where it is shorter: which changes no maximum.
    flat: Any = np.zeros((1,) * 2 * n, np.int64)
    for i, (extent, size) in enumerate(zip(extents, sizes)):
        positions = bins(extent, size).positions
        shape = [1] * 2 * n
        shape[i], shape[n + i] = positions.shape
        flat = flat * extent + positions.reshape(shape)
    flat = flat.reshape(*flat.shape[:n], -1)
    lead = x.shape[:-n]
    plane = movement.reshape(x.node, (*lead, size_of(extents)))
    table = leaf.data(np.ascontiguousarray(flat))
    held = indexing.gather(plane, [table], (len(lead),))
    place = argmax(held, (n,))  # over the elements of a bin, which stand behind the bins
    chosen = indexing.gather(table, _grid(sizes, lead, place), tuple(range(n + 1)))
    chosen = movement.permute(chosen, (*range(n, n + len(lead)), *range(n)))
    index = movement.reshape(chosen, (*lead, size_of(sizes)))
    largest = Tensor(movement.reshape(indexing.take_along(plane, index, len(lead)), (*lead, *sizes)))
    return (largest, Tensor(chosen)) if return_indices else largest


def _grid(sizes: tuple[int, ...], lead: tuple[int, ...], place: Any) -> list[Any]:
    """Index operands into a table (*sizes, elements) that pick ``place``, of shape (*sizes, *lead), in every bin."""
    shape = (*sizes, *lead)
    return [*[leaf.iota(shape, a, dtypes.int64) for a in range(len(sizes))], place]


def adaptive_max_pool1d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of ``output_size`` bins along the last axis, as :func:`adaptive_avg_pool1d` divides it.

    x: (N, C, L) or (C, L), floating or integer.   return_indices: as in :func:`max_pool1d`. Equal elements: the first.
    """
    return _adaptive_max_pool(x, 1, output_size, return_indices)


def adaptive_max_pool2d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """As :func:`adaptive_max_pool1d` over two axes.  x: (N, C, H, W) or (C, H, W)."""
    return _adaptive_max_pool(x, 2, output_size, return_indices)


def adaptive_max_pool3d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """As :func:`adaptive_max_pool1d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W)."""
    return _adaptive_max_pool(x, 3, output_size, return_indices)


# -- back to where the largest were ------------------------------------------------------------------------------------


def _max_unpool(
    x: Any, indices: Any, n: int, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    op = f"max_unpool{n}d"
    x = _operand(x, n, op)
    chosen = convert.wrap(convert.as_node(indices, None, op))
    if chosen.dtype.kind not in "iu":
        raise DTypeError(f"{op}: indices must be integers, as return_indices=True gives them, got {chosen.dtype.name}")
    if chosen.shape != x.shape:
        raise ShapeError(f"{op}: indices must have the input's shape {x.shape}, got {chosen.shape}")
    sizes = per_axis(kernel_size, n, "kernel_size", op, 1)
    steps = sizes if stride is None else per_axis(stride, n, "stride", op, 1)
    pads = per_axis(padding, n, "padding", op, 0)
    least = tuple([(e - 1) * s + k - 2 * p for e, s, k, p in zip(x.shape[-n:], steps, sizes, pads)])
    extents = least
    if output_size is not None:
        extents = per_axis(tuple(output_size)[-n:], n, "output_size", op, 1)
        if any(not e - s < given < e + s for given, e, s in zip(extents, least, steps)):
            raise ArgumentError(
                f"{op}: output_size {extents} is not one whose pooling gives the input's shape {x.shape}; each extent "
                f"must be less than a stride {steps} from {least}"
            )
    lead = x.shape[:-n]
    flat = (size_of(lead), size_of(x.shape[-n:]))
    size = size_of(extents)
    rows = leaf.iota(flat, 0, dtypes.int64)
    places = node_ops.check_index(movement.reshape(chosen.node, flat), size, op)
    zeros = leaf.full((flat[0], size), 0, x.dtype)
    placed = indexing.scatter(zeros, movement.reshape(x.node, flat), [rows, places], (0, 1), "set")
    return Tensor(movement.reshape(placed, (*lead, *extents)))


def max_unpool1d(
    x: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Any = None
) -> Tensor:
    """Each element of ``x`` at the position before pooling that ``indices``, from ``max_pool1d(...,
    return_indices=True)``, gives it, and 0 elsewhere; of several at one position, the last.

    output_size: the extents before pooling, where several have the same number of windows.
    Raises ShapeError for indices of another shape, IndexError (when it is evaluated) for one beyond the output.
    """
    return _max_unpool(x, indices, 1, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Any = None
) -> Tensor:
    """As :func:`max_unpool1d` over two axes."""
    return _max_unpool(x, indices, 2, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Any = None
) -> Tensor:
    """As :func:`max_unpool1d` over three axes."""
    return _max_unpool(x, indices, 3, kernel_size, stride, padding, output_size)

