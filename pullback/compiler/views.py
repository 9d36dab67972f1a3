"""Index algebra: where a view's element lies in the contiguous buffer underneath.

A kernel walks a *domain*: a tuple of extents, one loop each. While it does, the position read in a row-major buffer
is a linear form of the loop variables, ``offset + sum(coefficient[d] * variable[d])``. Views are followed down to the
value that they look at by rewriting that form: a reshape leaves it as it is, the others need it split into one form an
axis, which works whenever the domain is fine enough.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .values import Value

Linear = tuple[int, tuple[int, ...]]  # offset, coefficient for each dimension of the domain


class NotAffineError(Exception):
    """The position under ``value`` is not linear in the loop variables of the domain."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a C-contiguous array."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def split(index: Linear, shape: tuple[int, ...], domain: tuple[int, ...]) -> list[Linear] | None:
    """One linear form for each axis of ``shape`` that together make up the row-major position ``index``.

    None where a loop variable's steps carry from one axis into the next.
    """
    if 0 in shape:
        return [(0, (0,) * len(domain))] * len(shape)
    offset, coefficients = index
    strides = row_major(shape)
    offsets = [0] * len(shape)
    for axis, extent in enumerate(shape):
        if extent != 1:
            offsets[axis], offset = divmod(offset, strides[axis])
    if offset != 0:
        return None
    count = len(domain)
    per_axis: list[list[int] | None] = [None] * len(shape)
    low = offsets[:]
    high = offsets[:]
    for dim, coefficient in enumerate(coefficients):
        if coefficient == 0 or domain[dim] == 1:
            continue
        for axis, stride in enumerate(strides):
            if shape[axis] != 1 and abs(coefficient) >= stride and coefficient % stride == 0:
                break
        else:
            return None
        steps = coefficient // stride
        row = per_axis[axis]
        if row is None:
            row = per_axis[axis] = [0] * count
        row[dim] = steps
        reach = steps * (domain[dim] - 1)
        if reach > 0:
            high[axis] += reach
        else:
            low[axis] += reach
    for axis, extent in enumerate(shape):
        if low[axis] < 0 or high[axis] >= extent:
            return None
    zero = (0,) * count
    return [(offsets[a], zero if row is None else tuple(row)) for a, row in enumerate(per_axis)]


def join(axes: list[Linear], shape: tuple[int, ...], count: int) -> Linear:
    """The row-major position of the element at ``axes`` in an array of ``shape``; inverse of :func:`split`."""
    offset = 0
    total = [0] * count
    for (start, coefficients), stride in zip(axes, row_major(shape), strict=True):
        offset += start * stride
        for dim, coefficient in enumerate(coefficients):
            if coefficient:
                total[dim] += coefficient * stride
    return offset, tuple(total)


def broadcast_index(
    index: Linear, value: Value, shape: tuple[int, ...], target: tuple[int, ...], domain: tuple[int, ...]
) -> Linear:
    """Position in an array of ``shape`` that is broadcast to ``target``, given the position in ``target``."""
    if shape == target:
        return index
    zero = (0,) * len(domain)
    if all(extent == 1 for extent in shape):
        return 0, zero
    axes = split(index, target, domain)
    if axes is None:
        raise NotAffineError(value)
    lead = len(target) - len(shape)
    kept = [
        axes[lead + axis] if extent != 1 or target[lead + axis] == 1 else (0, zero) for axis, extent in enumerate(shape)
    ]
    return join(kept, shape, len(domain))


def through_view(view: Value, index: Linear, domain: tuple[int, ...]) -> Linear:
    """Position in the operand of ``view`` that lies under position ``index`` of its result."""
    name = view.name
    if name == "reshape":
        return index
    operand = view.inputs[0]
    if name == "broadcast_to":
        return broadcast_index(index, view, operand.shape, view.shape, domain)
    axes = split(index, view.shape, domain)
    if axes is None:
        raise NotAffineError(view)
    if name == "permute":
        placed: list[Linear] = [(0, ())] * len(axes)
        for axis, source in enumerate(view.attrs[0]):
            placed[source] = axes[axis]
        axes = placed
    elif name == "slice":
        starts, _, steps = view.attrs
        axes = [
            (start + step * offset, tuple(step * c for c in coefficients))
            for (offset, coefficients), start, step in zip(axes, starts, steps, strict=True)
        ]
    elif name == "flip":
        flipped = view.attrs[0]
        axes = [
            (view.shape[axis] - 1 - offset, tuple(-c for c in coefficients))
            if axis in flipped
            else (offset, coefficients)
            for axis, (offset, coefficients) in enumerate(axes)
        ]
    elif name == "windows":
        axis, _, step = view.attrs
        *axes, (inner, within) = axes
        offset, coefficients = axes[axis]
        axes[axis] = (step * offset + inner, tuple(step * c + w for c, w in zip(coefficients, within)))
    else:
        raise NotAffineError(view)
    return join(axes, operand.shape, len(domain))


def refine(
    domain: tuple[int, ...], reduced: tuple[bool, ...], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[bool, ...]] | None:
    """The coarsest domain in which both ``domain`` and ``shape`` (of one size) are products of neighbouring loops.

    None where there is none: (4, 6) and (6, 4).
    """
    cuts = {1}
    size = 1
    for extent in reversed(domain):
        size *= extent
        cuts.add(size)
    other = 1
    for extent in reversed(shape):
        other *= extent
        cuts.add(other)
    if other != size:
        return None
    if size == 0:
        return domain, reduced
    steps = sorted(cuts)
    extents: list[int] = []
    for small, large in pairwise(steps):
        if large % small:
            return None
        extents.append(large // small)
    extents.reverse()
    # Each new loop lies inside one old loop and keeps its kind.
    flags: list[bool] = []
    position = len(domain) - 1
    filled = 1
    for extent in reversed(extents):
        while position >= 0 and domain[position] == 1:
            position -= 1
        flags.append(reduced[position])
        filled *= extent
        if filled == domain[position]:
            position -= 1
            filled = 1
    flags.reverse()
    return tuple(extents), tuple(flags)
