"""Kernels that follow a product: they go over the rows of its result while these are in the cache.

A map kernel that reads a product element for element (a bias, an activation, a residual, the mask of a ReLU's gradient)
needs no launch of its own: the engine calls it on each block of rows that it has finished, on the same thread. Where
nobody else reads the product, that is never written to memory as a whole. So does a row kernel (a softmax, a norm, a
sum or a position for each row) where whole rows make blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .groups import bits
from .loops import Access, Kernel
from .products import collapsed, whole_rows_fit
from .values import Value
from .views import row_major

if TYPE_CHECKING:
    from .contraction import ContractionPlan
    from .plan import Step


MAX_SEARCH = 200  # steps that are looked at to find out whether a kernel waits for something else made of its product
GAP = 1 << 64  # between the places of steps, so that others find room there


def attach_followers(steps: list[Step], outputs: list[Value]) -> list[Step]:
    """The steps in an order that respects what each needs, with kernels joined to the products that they follow."""
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        for value in step.reads:
            readers.setdefault(value.id, []).append(number)
    kept = {value.id for value in outputs}
    order = _Order(steps)
    gone: set[int] = set()
    for number, step in enumerate(steps):
        plan, product = step.contraction, step.group.target
        if plan is None or product is None or not _is_row_major(plan):
            continue
        candidates = readers.get(product.id, [])
        for candidate in candidates:
            follower = steps[candidate]
            kernel = follower.kernel
            if candidate in gone or kernel is None or follower.contraction is not None or follower.group.stores:
                continue
            rows = _rows(kernel, product, plan)
            if rows is None or order.leads_elsewhere_to(number, candidate):
                continue
            step.kernel = rows
            step.reads = [*step.reads, *(value for value in follower.reads if value is not product)]
            # In scratch, half types are float32: the kernel reads what is stored.
            is_shared = product.id in kept or product.dtype.itemsize < 4 or any(n != candidate for n in candidates)
            step.writes = [*([product] if is_shared else []), *follower.writes]
            gone.add(candidate)
            order.join(number, candidate)
            break
    left = [number for number in range(len(steps)) if number not in gone]
    left.sort(key=order.places.__getitem__)
    return [steps[number] for number in left]


class _Order:
    """Which steps must have run before which, and a place for each behind those that it needs.

    Places only ever move back, and as few as need to: what is asked and changed is near the steps in question, so
    that the work is linear in the number of steps.
    """

    def __init__(self, steps: list[Step]) -> None:
        self.places = [number * GAP for number in range(len(steps))]
        self._needs: list[set[int]] = []
        self._needed_by: list[set[int]] = [set() for _ in steps]
        writers: dict[int, list[int]] = {}
        of_group: dict[int, int] = {}
        for number, step in enumerate(steps):
            needs = {writer for value in step.reads for writer in writers.get(value.id, ())}
            needs.update(of_group[group] for group in bits(step.group.after) if group in of_group)
            self._needs.append(needs)
            for earlier in needs:
                self._needed_by[earlier].add(number)
            of_group[step.number] = number
            for value in step.writes:
                writers.setdefault(value.id, []).append(number)

    def leads_elsewhere_to(self, first: int, second: int) -> bool:
        """Whether ``second``, which needs ``first``, needs it also by way of another step; True too where that takes
        long to find out."""
        start = self.places[first]
        found = {number for number in self._needs[second] if number != first and self.places[number] > start}
        pending = list(found)
        while pending:
            needs = self._needs[pending.pop()]
            if first in needs or len(found) > MAX_SEARCH:
                return True
            further = {number for number in needs if self.places[number] > start} - found
            found |= further
            pending += further
        return False

    def join(self, first: int, second: int) -> None:
        """Let both run as one step, which keeps the number of ``first``."""
        needs, needed_by = self._needs, self._needed_by
        needed_by[first].remove(second)
        needs[second].remove(first)
        for earlier in needs[second]:
            needed_by[earlier].remove(second)
            needed_by[earlier].add(first)
        for later in needed_by[second]:
            needs[later].remove(second)
            needs[later].add(first)
        needs[first] |= needs[second]
        needed_by[first] |= needed_by[second]
        needs[second], needed_by[second] = set(), set()
        self.places[first] = self.places[second]
        behind = [first]
        while behind:
            number = behind.pop()
            for later in needed_by[number]:
                if self.places[later] <= self.places[number]:
                    self._move(later, self.places[number])
                    behind.append(later)

    def _move(self, number: int, behind: int) -> None:
        """Give the step a place behind another, before all that need it if there is room."""
        end = min([self.places[later] for later in self._needed_by[number]], default=behind + 2 * GAP)
        self.places[number] = behind + max(1, (end - behind) // 2)


def _is_row_major(plan: ContractionPlan) -> bool:
    """Whether the rows of the result, item after item, follow each other in memory, and their elements too."""
    rows = collapsed([(axis[0], axis[-1]) for axis in (*plan.batch_axes, *plan.m_axes)])
    columns = collapsed([(axis[0], axis[2]) for axis in plan.n_axes])
    height = plan.batch * plan.m
    return (
        plan.library == "engine"
        and columns in ([(plan.n, 1)], [(1, 0)])
        and rows in ([(height, plan.n)], [(1, 0)])
        and height * plan.n > 0
    )


def _rows(kernel: Kernel, product: Value, plan: ContractionPlan) -> Kernel | None:
    """``kernel`` with loops over the rows of ``product``, the last one along a row; None where it does not go over it
    that way, or reads it elsewhere than where it is."""
    if kernel.mode not in ("map", "row") or kernel.scatter is not None or kernel.sides or kernel.checks or kernel.short:
        return None
    if kernel.mode == "row" and not _takes_whole_rows(kernel, product, plan):
        return None
    split = split_last(kernel, plan.n)
    if split is None:
        return None
    place = row_major(split.domain)
    size = 1
    for extent in split.domain:
        size *= extent
    mine = {number for number, access in enumerate(split.accesses) if access.value is product}
    if size != product.size or any(
        split.accesses[n].offset or split.accesses[n].strides != place for n in mine
    ):
        return None
    for expression in split.expressions:
        if expression[0] in ("lookup", "shifted", "guarded") and mine.intersection(expression[1:4:2]):
            return None
    return split


def _takes_whole_rows(kernel: Kernel, product: Value, plan: ContractionPlan) -> bool:
    """Whether the kernel's rows are those of ``product``, and blocks of whole rows are as good as others."""
    if kernel.chunks is not None or any(kernel.reduced[:-1]) or kernel.domain[-1] != plan.n:
        return False
    return whole_rows_fit(product.dtype.name, plan.m, plan.n, plan.k, plan.batch)


def split_last(kernel: Kernel, columns: int) -> Kernel | None:
    """The kernel with a last loop of ``columns`` steps."""
    *outer, last = kernel.domain or (0,)
    if last == columns and outer:
        return replace(kernel)
    if last % columns or last == columns:
        return None

    def cut(strides: tuple[int, ...]) -> tuple[int, ...]:
        return (*strides[:-1], strides[-1] * columns, strides[-1])

    return replace(
        kernel,
        domain=(*outer, last // columns, columns),
        reduced=(*kernel.reduced, False),
        accesses=[Access(a.value, a.offset, cut(a.strides)) for a in kernel.accesses],
        iotas=[(start, cut(coefficients)) for start, coefficients in kernel.iotas],
    )
