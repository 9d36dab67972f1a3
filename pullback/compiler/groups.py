"""Groups: the values that one kernel computes, its loops, and where each value lies in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .attention import AttentionPlan
from .contraction import ContractionPlan
from .values import Value
from .views import Linear, NotAffineError, join, row_major, split

MAX_COST = 400.0  # of a kernel's values for one element: with more members compile time would not grow linearly
CHEAP_COST = 4.0  # flops an element up to which a small broadcast operand is recomputed in its consumer


@dataclass
class Group:
    """One kernel (or library call) in the making.

    domain, reduced: extents of the loops, outermost first, and which of them the group's reductions fold (and its scans
        walk).
    levels: for each member "full" (one element a point), "reduced" (one a row), "partial" (one a chunk of a row) or
        "side" (a row for every few rows).
    depths: how many reductions must have finished before the member can be computed.
    stores: members written into part of another buffer: the target, an offset and a stride for each of their axes.
    """

    number: int
    kind: str
    domain: tuple[int, ...] = ()
    reduced: tuple[bool, ...] = ()
    members: list[Value] = field(default_factory=list)
    levels: dict[int, str] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    chunks: tuple[int, int, int] | None = None  # number, length and the extent of the outermost row loop they cut
    has_reduction: bool = False
    scan: bool | None = None  # whether the row loops run backwards, for scans; None where there is none
    cost: float = 0.0
    stores: dict[int, tuple[Value, Linear]] = field(default_factory=dict)
    target: Value | None = None
    follows: bool = False  # whether it reads a product element for element
    after: int = 0  # groups that write another part of the same target first
    contraction: ContractionPlan | None = None
    attention: AttentionPlan | None = None

    @property
    def size(self) -> int:
        size = 1
        for extent in self.domain:
            size *= extent
        return size

    @property
    def is_follower(self) -> bool:
        """Whether it may run on rows of a product while these are in the cache (see follow.py)."""
        return self.follows and not self.has_reduction

    @property
    def rows(self) -> int:
        """How many points a reduced member has."""
        size = 1
        for extent, folded in zip(self.domain, self.reduced, strict=True):
            if not folded:
                size *= extent
        return size

    def canonical(self, level: str, domain: tuple[int, ...], reduced: tuple[bool, ...]) -> Linear:
        """Position of a member's element at a point of the domain, in the member's own row-major order."""
        if level == "full":
            return 0, row_major(domain)
        return 0, reduced_strides(domain, reduced)


def reduced_strides(domain: tuple[int, ...], reduced: tuple[bool, ...]) -> tuple[int, ...]:
    strides = [0] * len(domain)
    stride = 1
    for dim in range(len(domain) - 1, -1, -1):
        if not reduced[dim]:
            strides[dim] = stride
            stride *= domain[dim]
    return tuple(strides)


def gather_lead(gather: Value, index: Linear, domain: tuple[int, ...]) -> Linear:
    """Position in a gather's index operands, given the position in its result."""
    lead = gather.inputs[1].shape
    axes = split(index, gather.shape, domain)
    if axes is None:
        raise NotAffineError(gather)
    return join(axes[: len(lead)], lead, len(domain))


def separate_axes(indices: Sequence[Value]) -> tuple[int, ...]:
    """The axes of a scatter's index operands along which no two updates meet: one of them counts along the axis."""
    counted = [counted_axis(index) for index in indices]
    return tuple(axis for axis in range(len(indices[0].shape)) if axis in counted)


def counted_axis(value: Value) -> int | None:
    """The axis along which ``value`` is 0, 1, 2, ..., the same on all others; None where it is something else."""
    if value.kind == "leaf":
        return int(value.attrs[1])
    if value.name not in ("reshape", "broadcast_to"):
        return None
    (operand,) = value.inputs
    axis = counted_axis(operand)
    if axis is None or operand.shape[axis] == 1:
        return None
    if value.name == "broadcast_to":
        return axis + len(value.shape) - len(operand.shape)
    longer = [a for a, extent in enumerate(value.shape) if extent != 1]
    if [value.shape[a] for a in longer] != [extent for extent in operand.shape if extent != 1]:
        return None
    return longer[sum(extent != 1 for extent in operand.shape[:axis])]


def fold_flags(domain: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[bool, ...]:
    """For each loop of ``domain`` (a refinement of ``shape``), whether it lies in one of the folded ``axes``."""
    flags = [False] * len(domain)
    dim = len(domain) - 1
    for axis in range(len(shape) - 1, -1, -1):
        remaining = shape[axis]
        while remaining > 1:
            flags[dim] = axis in axes
            remaining //= domain[dim]
            dim -= 1
    return tuple(flags)


def crop(
    shape: tuple[int, ...], low: tuple[int, ...], interior: tuple[int, ...], target: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Which part of a padded operand lands inside the result, and where: starts, stops, first position, gaps."""
    starts, stops, begin = [], [], []
    for extent, before, gap, total in zip(shape, low, interior, target, strict=True):
        step = gap + 1
        start = 0 if before >= 0 else -(before // step)
        first = before + start * step
        room = total - first
        count = 0 if room <= 0 else (room + step - 1) // step
        starts.append(start)
        stops.append(max(start, min(extent, start + count)))
        begin.append(first)
    return tuple(starts), tuple(stops), tuple(begin), interior


def value_size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def bits(mask: int) -> list[int]:
    """The positions of the ones in ``mask``."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
