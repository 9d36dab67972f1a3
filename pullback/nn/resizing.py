"""Resizing of images, sequences and volumes: interpolate, pixel_shuffle and its inverse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..api import convert, manipulation
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ops.family import Array
from ..ops.resampling import Taps, resample
from ..shapes import as_int, as_number, size_of
from ..tensor import Tensor
from .operands import wide_inside

_RANKS = {"linear": (1,), "bilinear": (2,), "bicubic": (2,), "trilinear": (3,)}
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")
_CUBIC = -0.75  # the kernel's slope at 1; Keys 1981 has -0.5, PyTorch and OpenCV -0.75
_CUBIC_ANTIALIASED = -0.5  # and PyTorch, as PIL, where it filters


# -- tables of one axis ------------------------------------------------------------------------------------------------


def bins(extent: int, size: int) -> Taps:
    """The means over ``size`` bins, bin i from ``floor(i extent / size)`` up to ``ceil((i + 1) extent / size)``. Where
    a bin is shorter than the longest, its last position is repeated with weight 0."""
    i = np.arange(size)
    starts = i * extent // size
    stops = -(-(i + 1) * extent // size)
    lengths = (stops - starts)[:, None]
    place = np.arange(int(lengths.max()))
    return Taps(extent, starts[:, None] + np.minimum(place, lengths - 1), (place < lengths) / lengths)


def _nearest(extent: int, count: int, scale: float, exact: bool) -> Taps:
    # Rounded to single precision before the floor, so that what should be whole is: as PyTorch has it in float64.
    place = (np.arange(count) + (0.5 if exact else 0.0)) * scale
    source = np.floor(place.astype(np.float32)).astype(np.int64)
    return Taps(extent, np.minimum(source, extent - 1)[:, None], np.ones((count, 1)))


def _linear(extent: int, count: int, scale: float, align_corners: bool) -> Taps:
    o = np.arange(count)
    if count == extent:  # whatever factor was given
        return Taps(extent, o[:, None], np.ones((count, 1)))
    source = o * scale if align_corners else np.maximum((o + 0.5) * scale - 0.5, 0.0)
    first = np.minimum(np.floor(source).astype(np.int64), extent - 1)
    weight = np.clip(source - first, 0.0, 1.0)
    weight[first == extent - 1] = 0.0  # there is no next one
    positions = np.stack([first, np.minimum(first + 1, extent - 1)], 1)
    return Taps(extent, positions, np.stack([1.0 - weight, weight], 1))


def _cubic_kernel(x: Array, a: float) -> Array:
    """The cubic convolution kernel of Keys 1981, "Cubic convolution interpolation for digital image processing"."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _cubic(extent: int, count: int, scale: float, align_corners: bool) -> Taps:
    o = np.arange(count)
    source = o * scale if align_corners else (o + 0.5) * scale - 0.5
    first = np.floor(source)
    offsets = np.arange(-1, 3)
    weights = _cubic_kernel((source - first)[:, None] - offsets, _CUBIC)
    positions = np.clip(first.astype(np.int64)[:, None] + offsets, 0, extent - 1)
    return Taps(extent, positions, weights)


def _antialiased(
    extent: int, count: int, scale: float, kernel: Callable[[Array], Array], support: float
) -> Taps:
    """The kernel widened by ``scale`` where that is above 1, so that it covers what a result stands for, and cut off
    and scaled to sum 1 at the ends; as PIL and PyTorch do."""
    wide = max(scale, 1.0)
    reach = support * wide
    center = (np.arange(count) + 0.5) * scale
    first = np.maximum((center - reach + 0.5).astype(np.int64), 0)
    stop = np.minimum((center + reach + 0.5).astype(np.int64), extent)
    place = np.arange(int((stop - first).max()))
    positions = first[:, None] + place
    weights = np.where(positions < stop[:, None], kernel((positions - center[:, None] + 0.5) / wide), 0.0)
    weights /= weights.sum(1, keepdims=True)
    return Taps(extent, np.minimum(positions, extent - 1), weights)


def _triangle(x: Array) -> Array:
    return np.maximum(1.0 - np.abs(x), 0.0)


@lru_cache(maxsize=256)
def _taps(extent: int, count: int, mode: str, align_corners: bool, antialias: bool, factor: float | None) -> Taps:
    """The table of one axis. factor: the scale factor that was given and counts, in the place of ``count / extent``."""
    if mode == "area":
        return bins(extent, count)
    if align_corners:
        scale = (extent - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = extent / count if factor is None else 1.0 / factor
    if mode in ("nearest", "nearest-exact"):
        return _nearest(extent, count, scale, mode == "nearest-exact")
    if mode == "bicubic":
        if antialias:
            return _antialiased(extent, count, scale, lambda x: _cubic_kernel(x, _CUBIC_ANTIALIASED), 2.0)
        return _cubic(extent, count, scale, align_corners)
    if antialias:
        return _antialiased(extent, count, scale, _triangle, 1.0)
    return _linear(extent, count, scale, align_corners)


# -- interpolate -------------------------------------------------------------------------------------------------------


def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """``x`` resized along its last axes.  x: (N, C, L), (N, C, H, W) or (N, C, D, H, W), floating (of any kind for the
    nearest modes).

    size, scale_factor: exactly one of them, one number for all axes or one each; a factor gives
        ``floor(extent * scale_factor)``.
    mode: ``"nearest"`` takes element ``floor(o * extent / size)``, ``"nearest-exact"`` that at ``o + 0.5``;
        ``"linear"`` (one axis), ``"bilinear"`` (two) and ``"trilinear"`` (three) take two neighbours an axis,
        ``"bicubic"`` (two axes) four, by the kernel of Keys 1981 with a = -0.75; ``"area"`` the mean of adaptive bins.
    align_corners: for the linear and cubic modes, whether first and last elements keep their places; else elements are
        squares whose outer edges do.
    recompute_scale_factor: whether positions follow from the rounded size and not from ``scale_factor`` itself.
    antialias: for ``"bilinear"`` and ``"bicubic"``, to filter with a kernel as wide as results stand for.

    Conventions and numbers are PyTorch's. An element of weight 0 does not count, even if it is NaN. Raises
    ArgumentError for a size below 1 or options that do not fit the mode, ShapeError for a rank that does not.
    """
    x = convert.wrap(convert.as_node(x, None, "interpolate"))
    if mode not in _MODES:
        raise ArgumentError(f"interpolate: mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    n = x.ndim - 2
    if n not in _RANKS.get(mode, (1, 2, 3)):
        wanted = ", ".join(str(rank + 2) for rank in _RANKS.get(mode, (1, 2, 3)))
        raise ShapeError(
            f"interpolate: mode {mode!r} expects an input of {wanted} axes (N, C, ...), got shape {x.shape}"
        )
    if mode not in ("nearest", "nearest-exact") and x.dtype.kind != "f":
        raise DTypeError(f"interpolate: mode {mode!r} expects a floating tensor, got {x.dtype.name}; cast it first")
    if align_corners and mode not in _RANKS:
        raise ArgumentError(f"interpolate: align_corners has no meaning for mode {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"interpolate: antialias is for the modes 'bilinear' and 'bicubic', got {mode!r}")
    extents = x.shape[2:]
    sizes, factors = _sizes(extents, size, scale_factor)
    if recompute_scale_factor:
        factors = (None,) * n
    return _resized(x, sizes, factors, mode, bool(align_corners), antialias)


@wide_inside
def _resized(
    x: Any, sizes: tuple[int, ...], factors: Sequence[float | None], mode: str, align_corners: bool, antialias: bool
) -> Tensor:
    node = x.node
    n = len(sizes)
    for i in min(itertools.permutations(range(n)), key=lambda order: _work(x.shape[2:], sizes, order)):
        taps = _taps(x.shape[2 + i], sizes[i], mode, align_corners, antialias, factors[i])
        if not _changes_nothing(taps):
            node = resample(node, i - n, taps)
    return Tensor(node)


def _work(extents: tuple[int, ...], sizes: tuple[int, ...], order: Sequence[int]) -> int:
    """What resizing one axis after another costs: each element made counts, along the last axis, where neighbours are
    gathered one by one, three times."""
    work, shape = 0, list(extents)
    for axis in order:
        shape[axis] = sizes[axis]
        work += size_of(shape) * (3 if axis == len(shape) - 1 else 1)
    return work


def _changes_nothing(taps: Taps) -> bool:
    same = taps.positions == np.arange(taps.count)[:, None]
    return taps.count == taps.extent and bool(((taps.weights == 0) | (same & (taps.weights == 1))).all())


def _sizes(
    extents: tuple[int, ...], size: Any, scale_factor: Any
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """The new extents, and the factors that were given."""
    n = len(extents)
    if (size is None) == (scale_factor is None):
        raise ArgumentError(f"interpolate: give either size or scale_factor, got {size!r} and {scale_factor!r}")
    if 0 in extents:
        raise ShapeError(f"interpolate: an axis of extent 0 has nothing to interpolate; the axes are {extents}")
    given = size if size is not None else scale_factor
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    name = "size" if size is not None else "scale_factor"
    if len(values) != n:
        raise ArgumentError(f"interpolate: {name} must be one number or {n}, for the axes {extents}; got {given!r}")
    if size is not None:
        sizes = tuple([as_int(v, "interpolate", "size") for v in values])
        factors: tuple[float | None, ...] = (None,) * n
    else:
        factors = tuple([_factor(v) for v in values])
        sizes = tuple([math.floor(extent * f) for extent, f in zip(extents, factors)])  # type: ignore[operator]
    if any(s < 1 for s in sizes):
        raise ArgumentError(f"interpolate: {name} {given!r} makes {sizes} of the axes {extents}; 1 is the least")
    return sizes, factors


def _factor(value: Any) -> float:
    factor = float(as_number(value, "interpolate", "scale_factor"))
    if not 0 < factor < math.inf:
        raise ArgumentError(f"interpolate: scale_factor must be positive and finite, got {value!r}")
    return factor


# -- pixels and channels -----------------------------------------------------------------------------------------------


def _image(x: Any, factor: Any, name: str, op: str) -> tuple[Tensor, int]:
    x = convert.wrap(convert.as_node(x, None, op))
    factor = as_int(factor, op, name)
    if factor < 1:
        raise ArgumentError(f"{op}: {name} must be at least 1, got {factor}")
    if x.ndim < 3:
        raise ShapeError(f"{op}: an input of shape (..., C, H, W) expected, got shape {x.shape}")
    return x, factor


def pixel_shuffle(x: Any, upscale_factor: int) -> Tensor:
    """(..., C r^2, H, W) to (..., C, H r, W r): each r^2 channels become a square of r times r (Shi et al. 2016).

    Raises ShapeError unless r^2 divides the channels.
    """
    x, r = _image(x, upscale_factor, "upscale_factor", "pixel_shuffle")
    *lead, channels, height, width = x.shape
    if channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels of shape {x.shape} are no multiple of {r}**2 = {r * r}")
    k = len(lead)
    split = manipulation.reshape(x, (*lead, channels // (r * r), r, r, height, width))
    moved = manipulation.permute_dims(split, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return manipulation.reshape(moved, (*lead, channels // (r * r), height * r, width * r))


def pixel_unshuffle(x: Any, downscale_factor: int) -> Tensor:
    """(..., C, H r, W r) to (..., C r^2, H, W): the inverse of :func:`pixel_shuffle`.

    Raises ShapeError unless r divides both extents.
    """
    x, r = _image(x, downscale_factor, "downscale_factor", "pixel_unshuffle")
    *lead, channels, height, width = x.shape
    if height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: extents {height} and {width} of shape {x.shape} are no multiples of {r}")
    k = len(lead)
    split = manipulation.reshape(x, (*lead, channels, height // r, r, width // r, r))
    moved = manipulation.permute_dims(split, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return manipulation.reshape(moved, (*lead, size_of((channels, r, r)), height // r, width // r))
