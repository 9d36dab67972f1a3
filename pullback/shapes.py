"""Shapes and axes: broadcasting, normalisation, and the errors that name what does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from operator import index as as_index
from typing import Any

from .errors import ArgumentError, ShapeError, TraceError

Shape = tuple[int, ...]


def size_of(shape: Iterable[int]) -> int:
    """Number of elements of ``shape``."""
    size = 1
    for extent in shape:
        size *= extent
    return size


def broadcast_shapes(*shapes: Shape, op: str = "broadcast_shapes") -> Shape:
    """The shape that all of ``shapes`` broadcast to, aligned at the last axis as in NumPy.

    Raises ShapeError naming ``op`` and the shapes.
    """
    if not shapes:
        return ()
    result = tuple(shapes[0])
    for shape in shapes[1:]:
        if shape == result:
            continue
        long, short = (result, shape) if len(result) >= len(shape) else (shape, result)
        offset = len(long) - len(short)
        extents = list(long)
        for position, extent in enumerate(short):
            other = long[offset + position]
            if other == extent or extent == 1:
                continue
            if other != 1:
                listed = " and ".join(map(str, map(tuple, shapes)))
                raise ShapeError(f"{op}: shapes {listed} do not broadcast: {extent} and {other} differ, neither is 1")
            extents[offset + position] = extent
        result = tuple(extents)
    return result


def as_shape(shape: Any, op: str = "shape") -> Shape:
    """``shape`` as a tuple of non-negative ints; an int stands for a one-axis shape."""
    if type(shape) is int:
        extents: tuple[int, ...] = (shape,)
    else:
        extents = _ints(shape, op, "a shape is an int or a sequence of ints")
    for extent in extents:
        if extent < 0:
            raise ShapeError(f"{op}: negative extent {extent} in shape {extents}")
        if extent >= 1 << 63:
            raise ShapeError(f"{op}: extent {extent} in shape {extents} does not fit in 64 bits")
    return extents


def _ints(values: Any, op: str, expected: str) -> tuple[int, ...]:
    try:
        return (as_index(values),)
    except TraceError:  # a traced size: its own message says more
        raise
    except TypeError:
        pass
    if isinstance(values, str | bytes | dict):
        raise ShapeError(f"{op}: {expected}, got {values!r}")
    try:
        return tuple([as_index(v) for v in values])
    except TraceError:
        raise
    except TypeError as error:
        raise ShapeError(f"{op}: {expected}, got {values!r}") from error


def as_int(value: Any, op: str, name: str) -> int:
    """``value`` as a Python int; ArgumentError naming the argument if it is not an integer."""
    if type(value) is int:
        return value
    try:
        return as_index(value)
    except TraceError:  # a traced count: its own message says more
        raise
    except TypeError:
        raise ArgumentError(f"{op}: {name} must be an integer, got {value!r}") from None


def as_number(value: Any, op: str, name: str) -> int | float:
    """``value``, a Python or NumPy number that decides what is computed. ArgumentError naming the argument for anything
    else: through a tensor there would be no gradient."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentError(f"{op}: {name} must be a number, got {value!r}")
    return value if isinstance(value, int) else float(value)


def reshape_shape(shape: Any, size: int, op: str = "reshape", source: Shape | None = None) -> Shape:
    """The shape asked for by a reshape, with at most one -1 filled in so that it holds ``size`` elements."""
    extents = (shape,) if type(shape) is int else _ints(shape, op, "a shape is an int or a sequence of ints")
    described = f"shape {source}" if source is not None else f"{size} elements"
    unknown = -1
    known = 1
    for position, extent in enumerate(extents):
        if extent == -1:
            if unknown >= 0:
                raise ShapeError(f"{op}: only one extent can be -1, got {extents}")
            unknown = position
        elif extent < 0:
            raise ShapeError(f"{op}: negative extent {extent} in shape {extents}")
        else:
            known *= extent
    if unknown >= 0:
        if known == 0 or size % known:
            raise ShapeError(f"{op}: {described} cannot become {extents}: {size} elements do not divide by {known}")
        return (*extents[:unknown], size // known, *extents[unknown + 1 :])
    if known != size:
        raise ShapeError(f"{op}: {described} cannot become {extents}: {size} elements against {known}")
    return extents


def normalize_axis(axis: Any, ndim: int, op: str = "axis") -> int:
    """``axis`` counted from the front; ShapeError if the array has no such axis, or if it is a bool."""
    if type(axis) is not int:
        if isinstance(axis, bool):
            raise ShapeError(f"{op}: axis must be an int, not a bool, got {axis!r}")
        try:
            axis = as_index(axis)
        except TraceError:
            raise
        except TypeError as error:
            raise ShapeError(f"{op}: axis must be an int, got {axis!r}") from error
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{op}: axis {axis} is out of range for an array of {ndim} axes")
    return axis + ndim if axis < 0 else axis


def normalize_axes(axis: Any, ndim: int, op: str = "axis", ordered: bool = False) -> tuple[int, ...]:
    """Axes counted from the front, sorted unless ``ordered``; None stands for all of them.

    Raises ShapeError for an axis out of range or given twice.
    """
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int:
        return (normalize_axis(axis, ndim, op),)
    if isinstance(axis, bool):
        raise ShapeError(f"{op}: axis is an int, a tuple of ints or None, not a bool, got {axis!r}")
    axes = tuple([normalize_axis(a, ndim, op) for a in _ints(axis, op, "axis is an int, a tuple of ints or None")])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: an axis is given twice in {tuple(axis)}")
    return axes if ordered else tuple(sorted(axes))


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """``shape`` after folding ``axes``."""
    if len(axes) == len(shape) and not keepdims:
        return ()
    if keepdims:
        return tuple([1 if a in axes else extent for a, extent in enumerate(shape)])
    return tuple([extent for a, extent in enumerate(shape) if a not in axes])
