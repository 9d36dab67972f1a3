"""Values that are written to memory piece by piece: padding, concatenation, scatters.

Each piece is a kernel that writes part of a buffer, computing what it writes as it goes.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ..ops.registry import by_name
from .groups import CHEAP_COST, MAX_COST, Group, crop, gather_lead, separate_axes
from .values import Value
from .views import Linear, NotAffineError, row_major, split

if TYPE_CHECKING:
    from .fuse import Fuser

MAX_INDEX_COST = 8.0  # flops an index, and
MAX_SCATTER_COST = 32.0  # flops an update up to which it is computed where it is scattered
SCATTER_PARALLEL_ROW = 64  # elements of a row that several threads scatter to


def place_pieces(fuser: Fuser, value: Value) -> None:
    """A padding or a concatenation."""
    (place_pad if value.kind == "pad" else place_concat)(fuser, value)


def _piece(fuser: Fuser, target: Value, source: Value, index: Linear, shape: tuple[int, ...], after: int) -> Group:
    """A group that writes ``source`` into ``target``; ``index`` is an offset, and a stride for each axis."""
    copy = Value(len(fuser.builder.values), "copy", "copy", None, (source,), (), shape, source.dtype, source.node)
    fuser.builder.values.append(copy)
    group = fuser.found(copy)
    group.target = target
    group.after = after
    group.stores[copy.id] = (target, index)
    fuser.order(group, after)
    return group


def place_concat(fuser: Fuser, value: Value) -> None:
    """Each operand in its place: one after another along an axis, or where an interleaving has it."""
    strides = row_major(value.shape)
    if value.name == "interleave":
        places = value.attrs[0]
    else:
        (axis,) = value.attrs
        ends = accumulate([operand.shape[axis] for operand in value.inputs], initial=0)
        places = [(start * strides[axis], strides) for start in ends]
    after = 0
    for operand, place in zip(value.inputs, places, strict=False):
        if operand.size:
            after |= 1 << _piece(fuser, value, operand, place, operand.shape, 0).number
    _finish(fuser, value, after)


def _finish(fuser: Fuser, value: Value, after: int) -> None:
    """All pieces of ``value`` have been laid out; its readers wait for all of them."""
    fuser.group_of[value.id] = fuser.new_group("joined", [value], [], after)
    fuser.group_of[value.id].target = value


def place_pad(fuser: Fuser, value: Value) -> None:
    operand, filler = value.inputs
    low, _, interior = value.attrs
    strides = row_major(value.shape)
    first = _piece(fuser, value, fuser.builder.broadcast(filler, value.shape), (0, strides), value.shape, 0)
    after = 1 << first.number
    starts, stops, begin, inner = crop(operand.shape, low, interior, value.shape)
    if all(stop > start for start, stop in zip(starts, stops, strict=True)):
        shape = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        ones = (1,) * len(shape)
        piece = fuser.builder.make(by_name("slice"), (operand,), (starts, stops, ones), shape, operand.dtype)
        steps = tuple((gap + 1) * stride for gap, stride in zip(inner, strides, strict=True))
        offset = sum(b * stride for b, stride in zip(begin, strides, strict=True))
        second = _piece(fuser, value, piece, (offset, steps), shape, after)
        after |= 1 << second.number
    _finish(fuser, value, after)


def place_scatter(fuser: Fuser, value: Value) -> None:
    operand, updates, *indices = value.inputs
    # What overwrites an input must not fail any more: its indices are checked before.
    overwrites = operand.kind == "input" and operand.attrs[0] in fuser.donated
    first = _piece(fuser, value, operand, (0, row_major(value.shape)), value.shape, 0)
    after = 1 << first.number
    if updates.size:
        domain = updates.shape
        lead = len(indices[0].shape)
        apart = separate_axes(indices)
        reduced = (*[axis not in apart for axis in range(lead)], *(False,) * (len(domain) - lead))
        chunks = value.attrs[2] if value.name == "scatter_copies" else None
        # On one thread what others could compute in parallel is better computed before.
        serial = chunks is None and (all(reduced) or domain[-1] < SCATTER_PARALLEL_ROW)
        index = (0, (*row_major(indices[0].shape), *(0,) * (len(domain) - lead)))
        earlier = after
        reads: list[Value] = []
        for part, where, most in [
            (updates, (0, row_major(domain)), CHEAP_COST if serial else MAX_SCATTER_COST),
            *[(part, index, MAX_INDEX_COST if chunks is None else MAX_COST / 2) for part in indices],
        ]:
            is_apart = overwrites and part.name == "check_index"
            groups = None if is_apart else _along(fuser, value, part.shape, part, where, domain, most)
            if groups is None:
                reads.append(fuser.materialise(part))
            else:
                earlier |= groups
        group = fuser.new_group("scatter", [], reads, earlier)
        group.domain, group.reduced, group.chunks = domain, reduced, chunks
        group.target = value
        group.after = after
        group.members = [value]
        fuser.group_of[value.id] = group
        after |= 1 << group.number
    _finish(fuser, value, after)


def _along(
    fuser: Fuser, user: Value, shape: tuple[int, ...], operand: Value, index: Linear, domain: tuple[int, ...],
    most: float,
) -> int | None:
    """The groups that are read where a scatter computes ``operand`` as it goes; None where it had better be in
    memory, because it costs more than ``most`` or is not to be had in this order."""
    if not fuser.fuses:
        return None
    groups = 0
    work = [(user, shape, operand, index)]
    while work:
        user, shape, operand, index = work.pop()
        try:
            base, where = fuser.trace(user, shape, operand, index, domain)
        except NotAffineError:
            return None
        owner = fuser.group_of.get(base.id)
        if owner is not None:
            groups |= 1 << owner.number
        elif base.kind == "leaf":
            if split(where, base.shape, domain) is None:
                return None
        elif base.kind in ("elementwise", "gather"):
            most -= 1.0 if base.op is None else base.op.cost
            if most < 0:
                return None
            if base.kind == "elementwise":
                work += [(base, base.shape, part, where) for part in base.inputs]
                continue
            try:
                lead = gather_lead(base, where, domain)
            except NotAffineError:
                return None
            table, _, _ = fuser.strided(base.inputs[0])
            owner = fuser.group_of.get(table.id)
            groups |= 0 if owner is None else 1 << owner.number
            work += [(base, part.shape, part, lead) for part in base.inputs[1:]]
        elif base.kind not in ("input", "literal"):
            return None
    return groups
