"""Fusion: which values are computed together, in one walk over one domain.

Values are placed in topological order. An elementwise value that depends on nothing but buffers stays *free* until
something needs it; a value that reads a group's members at the very position they are computed joins that group; a
reduction joins a group over the same domain and turns its folded loops into *row* loops. What remains in a group is one
kernel: softmax, layer norm and cross entropy with their gradients each come out as one.

Groups form a graph of their own without cycles: ``before[g]`` is the set (a bit mask) of groups that must run before g.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from ..errors import CompileError
from . import beside, pieces, windows
from .attention import plan_attention
from .contraction import plan_contraction
from .groups import CHEAP_COST, MAX_COST, Group, bits, fold_flags, gather_lead, value_size
from .values import Value, ValueBuilder
from .views import Linear, NotAffineError, broadcast_index, refine, row_major, split, through_view

MAX_MEMBERS = 160  # values in one kernel: keeps compile time linear in the graph
MAX_SERIAL_ROW = 1 << 17  # a longer row is not walked in several stages by few threads
FEW_ROWS = 8
MAX_SHARED_LAUNCH = 1 << 13  # elements up to which values that have only numbers in common share a launch
MAX_STAGED_ROW = 1 << 20  # beyond this the scratch memory of a row is not worth having
DEAR_COST = 20.0  # flops of an op from which it costs more to compute again than to keep
MIN_FOLLOWED = 1 << 15  # elements of a product from which what follows it is kept apart from what cannot
POSITIONS = ("argmax", "argmin")  # reductions that take the first of equal elements that they meet


class _ConflictError(Exception):
    """One free value would be needed at two different positions of the same kernel."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


@dataclass
class Free:
    """What an unplaced elementwise value depends on."""

    groups: int  # bit mask of the groups whose results it reads
    leaves: tuple[Value, ...]
    count: int
    cost: float


@dataclass
class Joining:
    """What a value brings into a group.

    arriving: it and the free values under it, with their levels.   reads: bit mask of the groups read.
    follows: whether a product is read element for element.
    """

    arriving: list[tuple[Value, str]]
    reads: int
    leaves: dict[int, Value]
    follows: bool


class Fuser:
    """Places every value of a program in a group."""

    def __init__(self, builder: ValueBuilder, donated: Container[int] = ()) -> None:
        self.builder = builder
        self.donated = donated  # positions of inputs that outputs may overwrite
        self.fuses = "fuse" not in builder.without
        self.shares_launches = "launch" not in builder.without
        self.groups: list[Group] = []
        self.before: list[int] = []
        self.group_of: dict[int, Group] = {}
        self.free: dict[int, Free] = {}
        self.recomputable: dict[int, Free] = {}  # placed values so cheap that no other group need wait for them
        self.copies: dict[int, Value] = {}
        self.parts: dict[int, Value] = {}  # sums beside a row kernel, instead of partial reductions by themselves
        self.last_with_leaf: dict[int, Group] = {}
        self._last_of_size: dict[tuple[int, int], Group] = {}  # by a leaf and the size of the group
        self._commits = 0
        self._awaited = 0  # bit mask of the groups that some other runs after

    # -- looking at operands ------------------------------------------------------------------------------------------

    def base(self, value: Value) -> Value:
        """The value under ``value``'s views that has, or will have, a buffer."""
        while value.kind == "view":
            copy = self.copies.get(value.id)
            if copy is not None:
                return copy
            value = value.inputs[0]
        return value

    def trace(
        self,
        user: Value,
        shape: tuple[int, ...],
        operand: Value,
        index: Linear,
        domain: tuple[int, ...],
        group: Group | None = None,
    ) -> tuple[Value, Linear]:
        """The base under ``operand`` and the position in it that ``user``, of ``shape``, reads at ``index``.

        group: when its kernel is written, copies that were not made before it do not count.
        """
        index = broadcast_index(index, user, operand.shape, shape, domain)
        while operand.kind == "view":
            copy = self.copies.get(operand.id)
            if copy is not None and copy is not user and (group is None or self.precedes(copy, group)):
                return copy, index
            index = through_view(operand, index, domain)
            operand = operand.inputs[0]
        return operand, index

    def precedes(self, copy: Value, group: Group) -> bool:
        owner = self.group_of.get(copy.id)
        return owner is not None and bool(self.before[group.number] >> owner.number & 1)

    def describe(self, value: Value) -> Free:
        """What computing ``value`` from its operands depends on; operands that are free are looked through."""
        groups = 0
        leaves: dict[int, Value] = {}
        count = 1
        cost = value.op.cost if value.op is not None else 1.0
        # What a gather looks up lies in memory, whatever computes it.
        for operand in value.inputs[1:] if value.kind == "gather" else value.inputs:
            base = self.base(operand)
            free = self.recomputable.get(base.id) or self.free.get(base.id)
            group = self.group_of.get(base.id) if free is None else None
            if group is not None:
                groups |= 1 << group.number
                if group.kind != "fused":
                    leaves[base.id] = base
                continue
            if free is not None:
                groups |= free.groups
                count += free.count
                cost += free.cost
                for leaf in free.leaves:
                    leaves[leaf.id] = leaf
            elif base.kind == "input":
                leaves[base.id] = base
        return Free(groups, tuple(leaves.values())[:8], count, cost)

    # -- placing ------------------------------------------------------------------------------------------------------

    def place(self, value: Value) -> None:
        """Put ``value`` in a group, or leave it free."""
        kind = value.kind
        if kind in ("input", "literal", "view", "leaf"):
            return
        if kind in ("elementwise", "gather"):
            info = self.describe(value)
            small = info.count <= MAX_MEMBERS // 2 and info.cost <= MAX_COST / 2 and self.fuses
            if small and all(self.groups[n].kind != "fused" for n in bits(info.groups)):
                self.free[value.id] = info
                self._leave_behind(value, info)
            else:
                self.place_fused(value, info)
        elif kind in ("reduction", "scan"):
            part = self.parts.get(value.inputs[0].id)
            if part is not None:
                value.inputs = (part,)
            if not beside.place_beside(self, value):
                self.place_fused(value, self.describe(value))
        elif kind in windows.KINDS:
            info = self.describe(value)
            if (
                windows.is_window(value) and self.fuses and "window" not in self.builder.without
                and info.count <= MAX_MEMBERS // 2 and info.cost <= MAX_COST / 2
                and all(self.groups[n].kind != "fused" for n in bits(info.groups))
            ):  # fmt: skip
                self.free[value.id] = info
            else:
                pieces.place_pieces(self, value)
        elif kind == "shift":
            # It reads a buffer elsewhere than its reader is, so it belongs to none of the groups that compute that.
            self.free[value.id] = Free(0, (), 1, value.op.cost if value.op is not None else 1.0)
            if not self.fuses:
                self.ensure_placed(value)
        elif kind == "contraction":
            self._place_contraction(value)
        elif kind == "attention":
            attention = plan_attention(self, value)
            group = self.new_group(kind, [value], [operand.base for operand in attention.operands.values()])
            group.attention, group.target = attention, value
        elif kind == "host":
            group = self.new_group(kind, [value], [self.materialise(operand) for operand in value.inputs])
            group.target = value
        else:
            pieces.place_scatter(self, value)

    def _leave_behind(self, value: Value, info: Free) -> None:
        """Compute a dear value of a product (an activation's slope) where the product is at hand: in a kernel that
        follows it. What needs the value later then reads it instead of the product and what else it is made of."""
        if value.op is None or value.op.cost < DEAR_COST:
            return
        for leaf in info.leaves:
            group = self._last_of_size.get((leaf.id, value.size))
            if group is None or not group.is_follower or info.groups & ~self.before[group.number]:
                continue
            if self.try_join(group, value, group.domain, group.reduced):
                return

    def ensure_placed(self, value: Value) -> None:
        """Give a free value a group: it must be stored."""
        info = self.free.get(value.id)
        if info is not None and value.kind in windows.KINDS:
            del self.free[value.id]
            pieces.place_pieces(self, value)
        elif info is not None:
            self.place_fused(value, info)

    def place_fused(self, value: Value, info: Free) -> None:
        if not self.fuses:
            self.found(value)
            return
        candidates: dict[int, Group] = {}
        # The group that already waits for most others first: a group that has to wait longer fuses with less.
        for number in sorted(bits(info.groups), key=lambda n: (-self.before[n].bit_count(), -n)):
            if self.groups[number].kind == "fused":
                candidates[number] = self.groups[number]
        for leaf in info.leaves:
            # A shared number saves no memory traffic; where launches do not count, each kernel keeps to few streams.
            if leaf.size == 1 and (value.size > MAX_SHARED_LAUNCH or not self.shares_launches):
                continue
            for group in (self.last_with_leaf.get(leaf.id), self._last_of_size.get((leaf.id, value.size))):
                if group is not None:
                    candidates.setdefault(group.number, group)
        for group in list(candidates.values())[:6]:
            if not self._parts_from_product(group, value) and self.try_join(group, value, group.domain, group.reduced):
                return
        self.found(value)

    def _parts_from_product(self, group: Group, value: Value) -> bool:
        """Whether ``value``, a sum over columns (a bias's gradient), would keep the group from following a product."""
        return (
            group.is_follower and value.kind == "reduction"
            and len(value.inputs[0].shape) - 1 not in value.attrs[0]
        )  # fmt: skip

    def found(self, value: Value) -> Group:
        """A new group with ``value`` in it; whatever cannot be read in place is materialised first."""
        group = self.new_group("fused", [], [])
        shape = value.inputs[0].shape if value.kind == "reduction" else value.shape
        group.domain = tuple(extent for extent in shape if extent != 1)
        group.reduced = (False,) * len(group.domain)
        while True:
            culprit = self._join(group, value, group.domain, group.reduced)
            if culprit is None:
                return group
            if culprit.kind == "view":
                self.copy_of(culprit)
            elif culprit is not value and culprit.id in self.free:
                self.ensure_placed(culprit)
            else:
                raise CompileError(f"no kernel can compute {value}: {culprit} is in the way")

    def try_join(self, group: Group, value: Value, domain: tuple[int, ...], reduced: tuple[bool, ...]) -> bool:
        if len(group.members) >= MAX_MEMBERS or group.cost >= MAX_COST or group.target is not None:
            return False
        return self._join(group, value, domain, reduced) is None

    def _join(
        self, group: Group, value: Value, domain: tuple[int, ...], reduced: tuple[bool, ...]
    ) -> Value | None:
        """Add ``value`` and the free values under it to ``group``; None when done, else the value in the way."""
        reduction, scan = value.kind == "reduction", value.kind == "scan"
        shape = value.inputs[0].shape if reduction or value.kind == "side" else value.shape
        size = value_size(shape)
        if size == group.size:
            level = "full"
            refined = refine(domain, reduced, shape)
            if refined is None:
                return value
            domain, reduced = refined
        elif group.has_reduction and not reduction and not scan and size == group.rows:
            level = "reduced"
        else:
            return value
        chunks = value.attrs[2] if value.name == "partial" else None
        if reduction or scan:
            folded = fold_flags(domain, shape, value.attrs[0] if reduction else (value.attrs[0],))
            if (group.has_reduction or group.scan is not None) and (folded != reduced or chunks != group.chunks):
                return value
            if not self._walks_fit(group, value):
                return value
            if chunks is not None and any(depth for depth in group.depths.values()):
                return value
            reduced = folded
        elif group.chunks is not None and level == "reduced":
            return value
        if (found := chunks or group.chunks) is not None:
            outer = next((extent for extent, folded in zip(domain, reduced, strict=True) if folded), None)
            if outer != found[2]:
                return value
        may_refine = chunks is None and group.chunks is None
        stored: set[int] = set()
        commits = self._commits
        while True:
            try:
                plan = self._plan_join(group, value, level, domain, reduced, stored)
                break
            except _ConflictError as conflict:
                return conflict.value
            except NotAffineError as error:
                culprit = error.value
                finer = refine(domain, reduced, culprit.shape) if may_refine and culprit.size == group.size else None
                if finer is not None and finer != (domain, reduced):
                    domain, reduced = finer
                elif culprit.id in self.recomputable and culprit.id not in stored:
                    stored.add(culprit.id)
                else:
                    return culprit
        if plan is None:
            return value
        if commits != self._commits:
            # What had to be stored on the way was placed meanwhile, with values that were to come along perhaps, or in
            # this very group.
            return self._join(group, value, group.domain, group.reduced)
        self._commit(group, domain, reduced, plan)
        return None

    def _walks_fit(self, group: Group, value: Value) -> bool:
        """Whether ``value``, a reduction or a scan, can be computed while the group's rows are walked as they are."""
        if value.kind == "scan":
            reverse = value.attrs[1]
            if group.chunks is not None or group.scan not in (None, reverse):
                return False
            return not reverse or all(member.name not in POSITIONS for member in group.members)
        return not (group.scan and value.name in POSITIONS)

    def _plan_join(
        self, group: Group, value: Value, level: str, domain: tuple[int, ...], reduced: tuple[bool, ...],
        stored: set[int],
    ) -> Joining | None:
        """What comes along and what is read; None where the order forbids it.

        stored: recomputable values that are read from their own group's results nevertheless.
        """
        canonical = {kind: group.canonical(kind, domain, reduced) for kind in ("full", "reduced")}
        size, rows = group.size, (group.rows if group.has_reduction else -1)
        arriving: dict[int, tuple[Value, str]] = {value.id: (value, level)}
        reads = 0
        leaves: dict[int, Value] = {}
        follows = False
        # (user, level of a member or None when it is recomputed at `index`, index)
        work: list[tuple[Value, str | None, Linear]] = [(value, level, canonical[level])]
        while work:
            user, _, index = work.pop()
            shape = user.inputs[0].shape if user.kind in ("reduction", "side") else user.shape
            operands = user.inputs
            if user.kind in windows.KINDS:
                if split(index, user.shape, domain) is None:
                    raise NotAffineError(user)
                operands = user.inputs[1:] if user.kind == "pad" else ()
                for table in windows.tables(self, user, CHEAP_COST):
                    owner = self.group_of.get(table.id)
                    if owner is group:
                        return None
                    if owner is not None:
                        reads |= 1 << owner.number
            if user.kind in ("gather", "shift"):
                operands = user.inputs[1:]
                if user.kind == "shift" and split(index, user.shape, domain) is None:
                    raise NotAffineError(user)
                table, _, _ = self.strided(user.inputs[0])
                owner = self.group_of.get(table.id)
                if owner is group:
                    return None
                if owner is not None:
                    reads |= 1 << owner.number
            for operand in operands:
                if user.kind == "gather":
                    lead = gather_lead(user, index, domain)
                    base, where = self.trace(user, operand.shape, operand, lead, domain)
                else:
                    base, where = self.trace(user, shape, operand, index, domain)
                if base.kind == "leaf" and split(where, base.shape, domain) is None:
                    # A loop over several axes does not tell how far along one of them it is.
                    is_placed = user.id not in self.free and user.id not in self.recomputable
                    raise NotAffineError(operand if is_placed and operand.kind == "view" else user)
                owner = self.group_of.get(base.id)
                if owner is group:
                    at = group.levels[base.id]
                    if at in ("partial", "side") or where != canonical[at]:
                        return None
                    continue
                if base.id in self.recomputable and base.id not in stored:
                    work.append((base, None, where))
                    continue
                if owner is not None:
                    reads |= 1 << owner.number
                    if owner.kind != "fused":
                        leaves[base.id] = base
                        follows |= base.kind == "contraction" and base.size == size and where == canonical["full"]
                    continue
                if base.kind == "input":
                    leaves[base.id] = base
                    continue
                free = self.free.get(base.id)
                if free is None or base.id in arriving:
                    if base.id in arriving and where != canonical[arriving[base.id][1]]:
                        raise _ConflictError(base)
                    continue
                base_level = "full" if base.size == size else ("reduced" if base.size == rows else None)
                if base_level is not None and where == canonical[base_level] and len(arriving) < MAX_MEMBERS:
                    arriving[base.id] = (base, base_level)
                    work.append((base, base_level, where))
                elif free.cost <= CHEAP_COST and (base.kind not in windows.KINDS or size <= base.size):
                    work.append((base, None, where))  # but a padding that many windows read is stored
                else:
                    self.ensure_placed(base)
                    reads |= 1 << self.group_of[base.id].number
        reads &= ~(1 << group.number)
        for number in bits(reads):
            if self.before[number] >> group.number & 1:
                return None
        ordered = sorted(arriving.values(), key=lambda item: item[0].id)
        if len(group.members) + len(ordered) > 2 * MAX_MEMBERS:
            return None
        if not self._stages_fit(group, ordered, domain, reduced):
            return None
        return Joining(ordered, reads, leaves, follows and size >= MIN_FOLLOWED)

    def _stages_fit(
        self, group: Group, arriving: list[tuple[Value, str]], domain: tuple[int, ...], reduced: tuple[bool, ...]
    ) -> bool:
        """Several stages over a row need the row in cache and rows enough for the threads."""
        depths = dict(group.depths)
        deepest = 0
        for member, level in arriving:
            depth = self._depth(member, depths)
            depths[member.id] = depth + (member.kind == "reduction")
            if level == "full":
                deepest = max(deepest, depth)
        if deepest == 0:
            return True
        if group.chunks is not None or any(m.name == "partial" for m, _ in arriving):
            return False
        rows = row = 1
        for extent, folded in zip(domain, reduced, strict=True):
            if folded:
                row *= extent
            else:
                rows *= extent
        return row <= MAX_SERIAL_ROW or (rows >= FEW_ROWS and row <= MAX_STAGED_ROW)

    def _depth(self, member: Value, depths: dict[int, int]) -> int:
        depth = 0
        for operand in member.inputs:
            depth = max(depth, depths.get(self.base(operand).id, 0))
        return depth

    def _commit(self, group: Group, domain: tuple[int, ...], reduced: tuple[bool, ...], joining: Joining) -> None:
        self._commits += 1
        group.domain, group.reduced = domain, reduced
        group.follows |= joining.follows
        for member, member_level in joining.arriving:
            free = self.free.pop(member.id, None)
            if free is not None and free.cost <= CHEAP_COST and member.kind in ("elementwise", "shift") and self.fuses:
                # Computed again elsewhere, what follows a product would need it in memory.
                if not (group.is_follower and any(leaf.kind == "contraction" for leaf in free.leaves)):
                    self.recomputable[member.id] = free
            depth = self._depth(member, group.depths)
            if member.kind == "scan":
                group.scan = member.attrs[1]
            if member.kind == "side":
                member_level = "side"
            if member.kind == "reduction":
                group.has_reduction = True
                depth += 1
                member_level = "reduced"
                if member.name == "partial":
                    group.chunks = member.attrs[2]
                    member_level = "partial"
            group.cost += member.op.cost if member.op is not None else 0.0
            group.depths[member.id] = depth
            group.levels[member.id] = member_level
            group.members.append(member)
            self.group_of[member.id] = group
        for leaf in joining.leaves.values():
            self.last_with_leaf[leaf.id] = self._last_of_size[leaf.id, group.size] = group
        self.order(group, joining.reads)

    def order(self, group: Group, reads: int) -> None:
        """Record that ``group`` runs after the groups in ``reads``, and so do all that run after it."""
        earlier = reads
        for number in bits(reads):
            earlier |= self.before[number]
        mine = self.before[group.number]
        if earlier | mine == mine:
            return
        self._awaited |= earlier
        bit = 1 << group.number
        if not self._awaited & bit:
            self.before[group.number] = mine | earlier
            return
        for number, mask in enumerate(self.before):
            if number == group.number or mask & bit:
                self.before[number] = mask | earlier

    # -- values that need a buffer of their own ------------------------------------------------------------------------

    def copy_of(self, value: Value) -> Value:
        """A contiguous copy of the view ``value``."""
        known = self.copies.get(value.id)
        if known is not None:
            return known
        copy = Value(len(self.builder.values), "copy", "copy", None, (value,), (), value.shape, value.dtype, value.node)
        self.builder.values.append(copy)
        self.found(copy)
        self.copies[value.id] = copy
        return copy

    def materialise(self, value: Value) -> Value:
        """A value with a contiguous buffer that holds ``value``'s elements in ``value``'s order."""
        base = value
        while base.name == "reshape" and base.id not in self.copies:
            base = base.inputs[0]
        if base.id in self.copies:
            return self.copies[base.id]
        if base.kind in ("view", "literal", "leaf"):
            return self.copy_of(base)
        self.ensure_placed(base)
        return base

    def strided(self, value: Value, group: Group | None = None) -> tuple[Value, int, tuple[int, ...]]:
        """Base, offset and a stride for each axis of ``value`` (in elements), materialising what has none."""
        domain = value.shape
        while True:
            try:
                base, (offset, strides) = self.trace(value, domain, value, (0, row_major(domain)), domain, group)
            except NotAffineError as error:
                self.copy_of(error.value)
                continue
            is_free_gather = base.kind == "gather" and base.id in self.free
            if base.kind in ("literal", "leaf") or (is_free_gather and _is_permuted(domain, strides)):
                return self.copy_of(value), 0, row_major(domain)
            self.ensure_placed(base)
            return base, offset, strides

    def new_group(self, kind: str, members: list[Value], reads: list[Value], after: int = 0) -> Group:
        group = Group(len(self.groups), kind, members=list(members))
        self.groups.append(group)
        self.before.append(0)
        for member in members:
            self.group_of[member.id] = group
        mask = after
        for value in reads:
            owner = self.group_of.get(value.id)
            if owner is not None and owner is not group:
                mask |= 1 << owner.number
        self.order(group, mask)
        return group

    def _place_contraction(self, value: Value) -> None:
        plan = plan_contraction(self, value)
        group = self.new_group("contraction", [value], [plan.left.base, plan.right.base])
        group.contraction = plan
        group.target = value


def _is_permuted(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether an array of these strides holds the elements of ``shape`` once each, but in another order than row-major:
    what a gather finds is then better stored as its reader has it, which costs the gather nothing."""
    moving = [(stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1]
    expected = 1
    for stride, extent in sorted(moving):
        if stride != expected:
            return False
        expected *= extent
    return moving != sorted(moving, reverse=True)


def fuse(builder: ValueBuilder, outputs: list[Value], donated: Container[int] = ()) -> Fuser:
    """Place all values; outputs and operands of library calls get buffers."""
    fuser = Fuser(builder, donated)
    live = live_values(builder, outputs)
    late = beside.late(live)
    for value in sorted(live, key=lambda value: value.id in late):
        fuser.place(value)
    for output in outputs:
        fuser.materialise(output)
    return fuser


def live_values(builder: ValueBuilder, outputs: list[Value]) -> list[Value]:
    """The values that ``outputs`` depend on, operands first."""
    live = {value.id for value in outputs}
    found = []
    for value in reversed(builder.values):
        if value.id in live:
            found.append(value)
            live.update([operand.id for operand in value.inputs])
    found.reverse()
    return found
