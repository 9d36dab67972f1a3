"""Sums over the rows of a row kernel, taken beside the rows: a partial sum for every few of them.

The gradients of a norm's weights are sums over rows of what the kernel of its input's gradient has at hand. Summed
there, their operands are read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .groups import Group, bits, fold_flags
from .loops import SIDE_ROWS
from .values import Value
from .views import refine

if TYPE_CHECKING:
    from .fuse import Fuser

MIN_SIDE_ROWS = 256  # rows from which sums over them are worth taking beside them,
MIN_SIDE_ROW, MAX_SIDE_ROW = 32, 1 << 15  # of so many elements: the caches next to the core hold the sums


def place_beside(fuser: Fuser, value: Value) -> bool:
    """Take a sum over the very loops that a row kernel does not fold beside its rows, in parts: the gradients of a
    norm's weights, say, whose operands the kernel of its input's gradient has at hand. Whether that was possible.
    """
    if "side" in fuser.builder.without or not fuser.fuses or value.kind != "reduction":
        return False
    (source,) = value.inputs
    if value.op is None or value.op.lower != "add" or source.dtype.name not in ("float32", "float64"):
        return False
    info = fuser.describe(value)
    numbers = sorted(bits(info.groups), key=lambda n: (-fuser.before[n].bit_count(), -n))
    with_leaf = [fuser.last_with_leaf[leaf.id].number for leaf in info.leaves if leaf.id in fuser.last_with_leaf]
    for number in dict.fromkeys(numbers + with_leaf):
        group = fuser.groups[number]
        loops = _rows_across(group, source, value.attrs[0])
        if loops is None:
            continue
        kept = tuple([extent for axis, extent in enumerate(source.shape) if axis not in value.attrs[0]])
        shape = (-(-group.rows // SIDE_ROWS), *kept)
        identity = len(fuser.builder.values)
        part = Value(identity, "side", "side", value.op, (source,), value.attrs, shape, value.dtype, value.node)
        fuser.builder.values.append(part)
        if not fuser.try_join(group, part, *loops):
            continue
        if value.name == "partial":  # chunks of another length; its only reader adds them up
            fuser.parts[value.id] = part
        else:
            value.inputs, value.attrs = (part,), ((0,), *value.attrs[1:])
            fuser.place_fused(value, fuser.describe(value))
        return True
    return False


def _rows_across(
    group: Group, source: Value, axes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[bool, ...]] | None:
    """The group's loops over ``source``, if it folds all axes but ``axes`` in many rows of moderate length."""
    if group.kind != "fused" or not group.has_reduction or group.chunks is not None or group.scan is not None:
        return None
    row = group.size // max(group.rows, 1)
    if group.size != source.size or group.rows < MIN_SIDE_ROWS or not MIN_SIDE_ROW <= row <= MAX_SIDE_ROW:
        return None
    loops = refine(group.domain, group.reduced, source.shape)
    if loops is None or not loops[1][-1]:
        return None
    folded = fold_flags(loops[0], source.shape, axes)
    return loops if all(across != along for across, along in zip(folded, loops[1], strict=True)) else None


def late(live: list[Value]) -> set[int]:
    """Sums over leading axes that nothing else is computed from: they are placed when the kernels that they may lie
    beside are there."""
    needed: set[int] = set()
    found: set[int] = set()
    for value in reversed(live):
        folds = value.kind == "reduction" and len(value.inputs[0].shape) - 1 not in value.attrs[0]
        if value.id not in needed and (value.kind == "view" or folds):
            found.add(value.id)
        if value.id not in found or value.name not in ("reduce_sum", "reshape"):
            needed.update([operand.id for operand in value.inputs])
    return found
