"""Kernels that follow a product: they go over the rows of its result while these are in the cache.

A map kernel that reads a product element for element (a bias, an activation, a residual, the mask of a ReLU's gradient)
needs no launch of its own: the engine calls it on each block of rows that it has finished, on the same thread. Where
nobody else reads the product, that is never written to memory as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .loops import Access, Kernel
from .products import collapsed
from .values import Value
from .views import row_major

if TYPE_CHECKING:
    from .contraction import ContractionPlan
    from .plan import Step


def attach_followers(steps: list[Step], outputs: list[Value]) -> list[Step]:
    """The steps in an order that respects what each needs, with kernels joined to the products that they follow."""
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        for value in step.reads:
            readers.setdefault(value.id, []).append(number)
    kept = {value.id for value in outputs}
    needs = _needs(steps)
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
            others = needs[candidate] & ~(1 << number)
            if any(needs[n] >> number & 1 for n in _bits(others)):
                continue  # it waits for something else that is made of the product
            rows = _rows(kernel, product, plan.n)
            if rows is None:
                continue
            step.kernel = rows
            step.reads = [*step.reads, *(value for value in follower.reads if value is not product)]
            # In scratch, half types are float32: the kernel reads what is stored.
            is_shared = product.id in kept or product.dtype.itemsize < 4 or any(n != candidate for n in candidates)
            step.writes = [*([product] if is_shared else []), *follower.writes]
            gone.add(candidate)
            both = 1 << number | 1 << candidate
            together = (needs[number] | needs[candidate]) & ~both
            for n, mask in enumerate(needs):
                if mask & both:
                    needs[n] = mask | both | together
            needs[number] = needs[candidate] = together
            break
    left = [number for number in range(len(steps)) if number not in gone]
    left.sort(key=lambda number: needs[number].bit_count())
    return [steps[number] for number in left]


def _needs(steps: list[Step]) -> list[int]:
    """For each step, as bits, the numbers of those that must have run before it."""
    writers: dict[int, int] = {}
    of_group: dict[int, int] = {}
    needs: list[int] = []
    for number, step in enumerate(steps):
        mask = 0
        for value in step.reads:
            mask |= writers.get(value.id, 0)
        after = step.group.after
        for group in _bits(after):
            mask |= of_group.get(group, 0)
        for n in _bits(mask):
            mask |= needs[n]
        needs.append(mask)
        of_group[step.number] = 1 << number
        for value in step.writes:
            writers[value.id] = writers.get(value.id, 0) | 1 << number
    return needs


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


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


def _rows(kernel: Kernel, product: Value, columns: int) -> Kernel | None:
    """``kernel`` with loops over rows of ``columns`` elements, the last one along a row; None where it does not go over
    ``product`` that way, or reads it elsewhere than where it is."""
    if kernel.mode != "map" or kernel.scatter is not None or kernel.sides or kernel.checks or kernel.short:
        return None
    split = _split_last(kernel, columns)
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


def _split_last(kernel: Kernel, columns: int) -> Kernel | None:
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
