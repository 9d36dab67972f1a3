"""From a group of values to a kernel: expressions, stages, loops.

Kernels are made from the last group to the first, because only a finished kernel knows which values of earlier groups
it loads. A cheap value of another group is computed again instead of loaded when that reads no more memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CompileError
from . import windows
from .expressions import ExpressionTable, Pruner
from .fuse import Fuser
from .groups import Group, gather_lead, reduced_strides
from .loops import Access, Expression, Fold, Kernel, Scatter
from .stages import collapse, plan_stages
from .turn import turn
from .values import Value
from .views import Linear, NotAffineError, row_major, split

RECOMPUTE_COST = 2.0  # an op this cheap may be computed twice
RECOMPUTE_DEPTH = 3
MIN_WALK_POINTS = 1 << 20  # elements from which, and
MIN_WALK_ROWS = 24  # rows from which (of fewer, narrow blocks one after the other read each as one stream),
MIN_WALK_COLUMNS = 64  # columns from which,
MAX_WALK_COST = 16.0  # and cost of one up to which a fold is bound by memory
SHORT_ROW = 8  # elements of a gathered or scattered row that do not fill a vector
MAX_WALK_SCANS = 4  # whose running values the caches next to the core hold


class KernelBuilder(ExpressionTable):
    """Builds the kernel of one group. ``demanded`` holds the ids of values that need a buffer; it is added to."""

    def __init__(self, fuser: Fuser, group: Group, demanded: dict[int, Value]) -> None:
        super().__init__()
        self.fuser = fuser
        self.group = group
        self.demanded = demanded
        self.domain = group.domain
        self.reduced = group.reduced
        self.canonical = {level: group.canonical(level, self.domain, self.reduced) for level in ("full", "reduced")}
        self._ids: dict[Expression, int] = {}
        self._access_ids: dict[tuple[int, Linear], int] = {}
        self._memo: dict[tuple[int, Linear], int] = {}
        self._recomputing = 0

    # -- expressions --------------------------------------------------------------------------------------------------

    def intern(self, expression: Expression, cost: float = 0.0, arguments: tuple[int, ...] = (), depth: int = 0) -> int:
        found = self._ids.get(expression)
        if found is None:
            found = len(self.expressions)
            self._ids[expression] = found
            self.expressions.append(expression)
            for argument in arguments:
                cost += self.costs[argument]
                depth = max(depth, self.depths[argument])
            self.costs.append(cost)
            self.depths.append(depth)
        return found

    def access(self, value: Value, index: Linear) -> int:
        found = self._access_ids.get((value.id, index))
        if found is None:
            found = len(self.accesses)
            self._access_ids[(value.id, index)] = found
            self.accesses.append(Access(value, index[0], index[1]))
        return found

    def load(self, value: Value, index: Linear) -> int:
        if value.kind != "input" and self.fuser.group_of.get(value.id) is not self.group:
            self.demanded[value.id] = value
        return self.intern(("load", self.access(value, index), value.dtype.name))

    def expression(self, value: Value, index: Linear) -> int:
        """The expression for the element of ``value`` (no view) at position ``index``."""
        key = (value.id, index)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._expression(value, index)
        return found

    def _expression(self, value: Value, index: Linear) -> int:
        kind = value.kind
        if kind == "literal":
            return self.intern(("literal", repr(value.attrs[0]), value.dtype.name))
        if kind == "input":
            return self.load(value, index)
        if kind == "leaf":
            return self._iota(value, index)
        owner = self.fuser.group_of.get(value.id)
        if owner is self.group:
            level = self.group.levels[value.id]
            # Free values that were read elsewhere at first, and joined later, are computed again at that place.
            again = value.kind in ("elementwise", "gather", "shift", *windows.KINDS)
            if level == "partial" or index == self.canonical[level] or again:
                return self.compute(value, index)
            raise CompileError(f"{value} is read where its own kernel does not compute it")
        if owner is None or not self.fuser.precedes(value, self.group):
            return self.compute(value, index)
        if self._recompute_instead(value, owner):
            self._recomputing += 1
            try:
                return self.compute(value, index)
            except NotAffineError:
                pass
            finally:
                self._recomputing -= 1
        return self.load(value, index)

    def _recompute_instead(self, value: Value, owner: Group, depth: int = 0) -> bool:
        """Whether computing a value of another kernel again reads no more memory than loading it. depth: of what it is
        read by, and would be computed again too."""
        if value.id in self.demanded or owner.kind != "fused" or owner.stores:
            return False
        if value.kind == "shift":
            return True  # of a table that is in memory anyway
        if value.kind != "elementwise" or "fuse" in self.fuser.builder.without:
            return False
        if value.op is None or value.op.cost > RECOMPUTE_COST or self._recomputing + depth >= RECOMPUTE_DEPTH:
            return False
        large = 0
        for operand in value.inputs:
            base = self.fuser.base(operand)
            if base.kind in ("literal", "leaf") or base.size * 4 <= value.size:
                continue
            large += 1
            group = self.fuser.group_of.get(base.id)
            available = base.kind == "input" or base.id in self.demanded
            # What follows a product is not computed again elsewhere: the product would be needed in memory.
            apart = ("fused", "contraction") if owner.is_follower else ("fused",)
            available = available or (group is not None and group.kind not in apart)
            if not available and not (
                base.kind == "elementwise" and group is not None and self._recompute_instead(base, group, depth + 1)
            ):
                return False
        return large <= 1

    def _iota(self, value: Value, index: Linear) -> int:
        shape, axis, dtype = value.attrs
        axes = split(index, shape, self.domain)
        if axes is None:
            raise NotAffineError(value)
        form = axes[axis]
        if form not in self.iotas:
            self.iotas.append(form)
        return self.intern(("iota", self.iotas.index(form), dtype.name))

    def compute(self, value: Value, index: Linear) -> int:
        """``value`` from its operands."""
        op = value.op
        dtype = value.dtype.name
        if value.kind == "gather":
            return self._lookup(value, index)
        if value.kind == "shift":
            return self._shifted(value, index)
        if value.kind in windows.KINDS:
            return windows.read(self, value, index)
        shape = value.inputs[0].shape if value.kind == "reduction" else value.shape
        if value.kind == "reduction":
            index = self.canonical["full"]
        arguments = tuple([self.operand(value, shape, operand, index) for operand in value.inputs])
        if value.kind == "copy":
            return arguments[0]
        if op is None:
            raise CompileError(f"{value} cannot be computed")
        if value.kind == "reduction":
            fold = Fold(op.lower, arguments[0], value.inputs[0].dtype.name, self.depths[arguments[0]])
            self.folds.append(fold)
            return self.intern(("fold", len(self.folds) - 1, dtype), depth=fold.stage + 1)
        if op.name == "check_index":
            self.checks.append((value.attrs[0], value))
            return self.intern(("check", arguments[0], len(self.checks) - 1), op.cost, arguments)
        if value.kind == "scan":
            variant = len(value.attrs) > 2 and value.attrs[2]
            return self.intern(("scan", op.lower, dtype, arguments, variant), op.cost, arguments)
        return self.instruction(value, arguments)

    def instruction(self, value: Value, arguments: tuple[int, ...]) -> int:
        """An elementwise value of the elements of its operands."""
        op = value.op
        if op is None:
            raise CompileError(f"{value} cannot be computed")
        operand_dtypes = tuple([operand.dtype.name for operand in value.inputs])
        attrs = tuple([getattr(attr, "name", attr) for attr in value.attrs])
        return self.intern(("op", op.lower, value.dtype.name, operand_dtypes, arguments, attrs), op.cost, arguments)

    def operand(self, user: Value, shape: tuple[int, ...], operand: Value, index: Linear) -> int:
        base, where = self.fuser.trace(user, shape, operand, index, self.domain, self.group)
        return self.expression(base, where)

    def _lookup(self, value: Value, index: Linear) -> int:
        table, *indices = value.inputs
        (axes,) = value.attrs
        base, offset, strides = self.fuser.strided(table, self.group)
        lead = gather_lead(value, index, self.domain)
        forms = split(index, value.shape, self.domain)
        if forms is None:
            raise NotAffineError(value)
        rest = [axis for axis in range(len(table.shape)) if axis not in axes]
        total = [0] * len(self.domain)
        for axis, (start, coefficients) in zip(rest, forms[len(indices[0].shape) :], strict=True):
            offset += strides[axis] * start
            for dim, coefficient in enumerate(coefficients):
                total[dim] += strides[axis] * coefficient
        terms = []
        arguments = []
        for axis, operand in zip(axes, indices, strict=True):
            argument = self.operand(value, operand.shape, operand, lead)
            arguments.append(argument)
            terms.append((argument, len(self.terms)))
            self.terms.append(strides[axis])
        if base.kind != "input":
            self.demanded[base.id] = base
        access = self.access(base, (offset, tuple(total)))
        return self.intern(("lookup", access, value.dtype.name, tuple(terms)), 4.0, tuple(arguments))

    def _shifted(self, value: Value, index: Linear) -> int:
        """The element of a table a few steps away along an axis, where there is one."""
        axis, distance = value.attrs
        base, offset, strides = self.fuser.strided(value.inputs[0], self.group)
        forms = split(index, value.shape, self.domain)
        if forms is None:
            raise NotAffineError(value)
        start, coefficients = 0, [0] * len(self.domain)
        for (first, steps), stride in zip(forms, strides, strict=True):
            start += first * stride
            for dim, step in enumerate(steps):
                coefficients[dim] += step * stride
        first, steps = forms[axis]
        if distance > 0:
            guard = (first - distance, steps)
        else:
            guard = (value.shape[axis] - 1 + distance - first, tuple(-step for step in steps))
        if base.kind != "input":
            self.demanded[base.id] = base
        total = (offset + start, tuple(coefficients))
        moved = self.access(base, (total[0] - distance * strides[axis], total[1]))
        if guard not in self.iotas:
            self.iotas.append(guard)
        expression = ("shifted", self.access(base, total), value.dtype.name, moved, self.iotas.index(guard))
        return self.intern(expression, 1.0)

    # -- the kernel ---------------------------------------------------------------------------------------------------

    def build(self) -> Kernel | None:
        """The kernel that computes the group's demanded members; None where nobody needs any."""
        group = self.group
        stored = {number for number, (target, _) in group.stores.items() if target.id in self.demanded}
        roots = [m for m in group.members if m.id in self.demanded or m.id in stored]
        if not roots:
            return None
        needed = self._needed(roots)
        for member in needed:
            if member.kind == "shift":  # its table is in memory: what else is made of that need not be
                table, _, _ = self.fuser.strided(member.inputs[0], group)
                if table.kind != "input":
                    self.demanded[table.id] = table
        for member in needed:
            level = group.levels[member.id]
            try:
                if level != "side":
                    self.expression(member, self.canonical["full" if level == "full" else "reduced"])
            except NotAffineError:
                if member in roots:
                    raise
                # Read at another position only, at which its reader computes it.
        stores: list[tuple[int, int]] = []
        row_stores: list[tuple[int, int]] = []
        sides: list[tuple[int, int, str]] = []
        for root in roots:
            level = group.levels[root.id]
            if level == "side":
                sides.append(self._side(root))
                continue
            index = self.canonical["full" if level == "full" else "reduced"]
            expression = self.expression(root, index)
            target, where = root, index
            if root.id in group.stores:
                target, place = group.stores[root.id]
                where = self._placed(root, index, place)
            access = self.access(target, where)
            (stores if level == "full" else row_stores).append((access, expression))
        return self._finish(stores, row_stores, None, sides)

    def _side(self, root: Value) -> tuple[int, int, str]:
        """Where partial sums beside the rows go, what they add up, and how."""
        (source,) = root.inputs
        argument = self.operand(root, source.shape, source, self.canonical["full"])
        lines = reduced_strides(self.domain, tuple(not folded for folded in self.reduced))
        if root.op is None:
            raise CompileError(f"{root} cannot be computed")
        return self.access(root, (0, lines)), argument, root.op.lower

    def _placed(self, root: Value, index: Linear, place: Linear) -> Linear:
        """Position in a target, where ``place`` is an offset and a stride for each axis of ``root``."""
        forms = split(index, root.shape, self.domain)
        if forms is None:
            raise NotAffineError(root)
        offset, strides = place
        total = [0] * len(self.domain)
        for (start, coefficients), stride in zip(forms, strides, strict=True):
            offset += start * stride
            for dim, coefficient in enumerate(coefficients):
                total[dim] += coefficient * stride
        return offset, tuple(total)

    def _needed(self, roots: list[Value]) -> list[Value]:
        needed = {root.id for root in roots}
        found = []
        for member in reversed(self.group.members):
            if member.id in needed:
                found.append(member)
                needed.update([self.fuser.base(operand).id for operand in member.inputs])
        found.reverse()
        return found

    def build_scatter(self) -> Kernel:
        """The kernel that combines a scatter's updates into its target."""
        value = self.group.members[0]
        updates, indices = value.inputs[1], value.inputs[2:]
        axes, mode = value.attrs[:2]
        lead_shape = indices[0].shape
        lead = len(lead_shape)
        strides = row_major(value.shape)
        update = self.operand(value, updates.shape, updates, (0, row_major(updates.shape)))
        first, copies, copy_term = 0, 1, None
        if value.name == "scatter_copies":  # of shape (chunks, copies, the target's)
            first, copies = 2, value.shape[1]
        whole = [axis for axis in range(first, len(value.shape)) if axis - first not in axes]
        total = [0] * len(self.domain)
        for dim, axis in enumerate(whole, lead):
            total[dim] = strides[axis]
        terms = []
        lead_index = (0, (*row_major(lead_shape), *(0,) * len(whole)))
        for axis, operand in zip(axes, indices, strict=True):
            terms.append((self.operand(value, operand.shape, operand, lead_index), len(self.terms)))
            self.terms.append(strides[first + axis])
        if copies > 1:
            copy_term = len(self.terms)
            self.terms.append(strides[1])
        access = self.access(value, (0, tuple(total)))
        return self._finish([], [], Scatter(access, update, tuple(terms), mode, copies, copy_term))

    def _finish(
        self, stores: list[tuple[int, int]], row_stores: list[tuple[int, int]], scatter: Scatter | None,
        sides: Sequence[tuple[int, int, str]] = (),
    ) -> Kernel:  # fmt: skip
        without = self.fuser.builder.without
        prune = Pruner(self, stores, row_stores, scatter, list(sides))
        domain, reduced, chunks = self.domain, self.reduced, self.group.chunks
        accesses = prune.accesses
        iotas = prune.iotas
        if chunks is not None:
            number, length, _ = chunks
            row = reduced.index(True)
            rows = self.group.rows
            partial = {access for access, _ in prune.row_stores}
            for position, access in enumerate(accesses):
                step = rows if position in partial else length * access.strides[row]
                if prune.scatter is not None and position == prune.scatter.access:
                    step = access.value.size // number
                accesses[position] = Access(access.value, access.offset, (step, *access.strides))
            iotas = [(offset, (length * coefficients[row], *coefficients)) for offset, coefficients in iotas]
            domain, reduced = (number, *domain), (False, *reduced)
        scans = any(expression[0] == "scan" for expression in prune.expressions)
        domain, reduced, accesses, iotas, chunks = collapse(domain, reduced, accesses, iotas, chunks)
        inside = bool(prune.folds) or scans
        if chunks is None and scatter is None and not sides and "turn" not in without:
            domain, inner, accesses, iotas = turn(domain, reduced, accesses, iotas, prune.expressions)
            inside, reduced = inside or inner != reduced, inner
        kernel = Kernel(
            mode=_mode(domain, reduced, inside, scatter is not None),
            domain=domain,
            reduced=reduced,
            expressions=prune.expressions,
            accesses=accesses,
            iotas=iotas,
            checks=prune.checks,
            terms=prune.terms,
            folds=prune.folds,
            stages=[],
            row_stores=prune.row_stores,
            scatter=prune.scatter,
            chunks=chunks,
            cost=sum(prune.own_costs) + 2.0 * len(accesses),
            reverse=scans and bool(self.group.scan),
            wide="wide" not in without,
            sides=prune.sides,
        )
        kernel.short = _short_row(kernel)
        plan_stages(kernel, prune.stores, prune.costs, prune.depths)
        if kernel.mode == "column" and scatter is None and "walk" not in without and _is_walk(kernel):
            kernel.mode = "walk"
        return kernel


def _is_walk(kernel: Kernel) -> bool:
    """Whether a column kernel takes wide blocks of columns, with what it carries from row to row in memory: for scans
    alone, and for light folds of more than the caches hold, of which narrow blocks would touch short pieces of rows."""
    scans = sum(expression[0] == "scan" for expression in kernel.expressions)
    if scans:
        return scans <= MAX_WALK_SCANS and not kernel.folds and not kernel.row_stores
    points = rows = 1
    for extent, folded in zip(kernel.domain, kernel.reduced, strict=True):
        points *= extent
        rows *= extent if folded else 1
    return (
        points >= MIN_WALK_POINTS
        and rows >= MIN_WALK_ROWS
        and kernel.domain[-1] >= MIN_WALK_COLUMNS
        and kernel.cost <= MAX_WALK_COST
        and len(kernel.stages) == 1
        and 0 < len(kernel.folds) <= MAX_WALK_SCANS
        and not any(fold.instruction in ("argmax", "argmin") for fold in kernel.folds)
    )


def _short_row(kernel: Kernel) -> int:
    """How many elements a row has that is gathered or scattered, where they are too few to fill a vector: a masked
    access takes longer than each of them. 0: there is no such row."""
    looks_up = kernel.mode == "map" and any(expression[0] == "lookup" for expression in kernel.expressions)
    short = (looks_up or kernel.mode == "scatter") and len(kernel.domain) > 1 and not kernel.reduced[-1]
    return kernel.domain[-1] if short and 0 < kernel.domain[-1] < SHORT_ROW else 0


def _mode(domain: tuple[int, ...], reduced: tuple[bool, ...], inside: bool, scatter: bool) -> str:
    """inside: whether there are loops that a task walks."""
    if scatter:
        return "scatter"
    if not domain:
        return "scalar"
    if not inside:
        return "map"
    return "row" if reduced[-1] else "column"
