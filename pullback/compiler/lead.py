"""Kernels that lead a product: they compute an operand block by block, just before the engine reads the block.

A kernel whose result only one product reads (an activation, a cast, a scale, a mask, a look-up, a norm of rows that are
one block of k) needs no launch of its own, and its result is never in memory as a whole. The block of A is computed
again for every block of columns of the result, that of B for every block of rows: a kernel leads where that costs less
than the way to memory and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blockwise import BlockCall, Lead
from .follow import split_last
from .loops import Kernel
from .products import takes_all_of_k, task_blocks
from .values import Value
from .views import row_major

if TYPE_CHECKING:
    from .contraction import ContractionPlan
    from .plan import Step

SAVED_PER_BYTE = 3.0  # of an operand that is neither written nor read, in units of Kernel.cost
SHORT_ROW, SMALL = 16, 1 << 12  # elements of a row that are too few to walk rows one by one, unless they are few in all


def attach_leaders(steps: list[Step], outputs: list[Value]) -> list[Step]:
    """The steps, with kernels joined to the products that they lead."""
    readers: dict[int, int] = {}
    writers: dict[int, list[Step]] = {}
    for step in steps:
        for value in step.reads:
            readers[value.id] = readers.get(value.id, 0) + 1
        for value in step.writes:
            writers.setdefault(value.id, []).append(step)
    kept = {value.id for value in outputs}
    gone: set[int] = set()
    for step in steps:
        plan = step.contraction
        if plan is None or plan.library != "engine":
            continue
        for number, operand in enumerate((plan.left, plan.right)):
            value = operand.base
            if value.kind == "input" or value.id in kept or readers[value.id] != 1 or len(writers[value.id]) != 1:
                continue
            (maker,) = writers[value.id]
            whole_rows = step.kernel is not None and step.kernel.mode == "row"
            kernel = _leader(maker, value, plan, number, whole_rows)
            if kernel is None:
                continue
            step.leads[number] = kernel
            step.reads = [*(other for other in step.reads if other is not value), *maker.reads]
            gone.add(id(maker))
    return [step for step in steps if id(step) not in gone]


def lead_of(plan: ContractionPlan, number: int, kernel: Kernel, call: BlockCall) -> Lead:
    """How the engine calls ``kernel``, the leader of an operand of ``plan``."""
    element = (plan.left, plan.right)[number].base.dtype.itemsize
    free, k = plan.operand_steps(number)
    return Lead(call, kernel.domain[-1] * element, element, (free or 0) * element, (k or 0) * element)


def _leader(maker: Step, value: Value, plan: ContractionPlan, number: int, whole_rows: bool) -> Kernel | None:
    """The kernel of ``maker`` with the loops that the engine wants; None where it is to be a launch of its own."""
    kernel = maker.kernel
    if kernel is None or maker.contraction is not None or maker.group.stores or maker.writes != [value]:
        return None
    columns = _row_length(plan, number)
    if columns is None or kernel.mode not in ("map", "row") or kernel.short or kernel.sides:
        return None
    if kernel.mode == "row" and not _makes_rows_of_k(kernel, columns, plan, number):
        return None
    split = split_last(kernel, columns)
    if split is None:
        return None
    (stored,) = [access for access in split.accesses if access.value is value]
    if stored.offset or stored.strides != row_major(split.domain):
        return None
    return split if _pays(split, value, plan, number, whole_rows) else None


def _makes_rows_of_k(kernel: Kernel, columns: int, plan: ContractionPlan, number: int) -> bool:
    """Whether the rows of a row kernel are rows of the operand along all of k, which the engine takes at once."""
    _, k_step = plan.operand_steps(number)
    rows = kernel.domain[-1] == columns == plan.k and not any(kernel.reduced[:-1]) and kernel.chunks is None
    return rows and k_step == 1 and takes_all_of_k(plan.k)


def _row_length(plan: ContractionPlan, number: int) -> int | None:
    """Of the value under an operand, as rows and columns of which the operand's block is a rectangle."""
    operand = (plan.left, plan.right)[number]
    free, k = plan.operand_steps(number)
    of_free = (plan.m, plan.n)[number]
    if free is None or k is None:
        return None
    if k == 1 and of_free > 1:
        columns, span = free, plan.k
    elif free == 1 and plan.k > 1:
        columns, span = k, of_free
    else:
        return None
    if columns < span or operand.base.size % columns:
        return None
    # No item's columns may go over into another row.
    last = operand.offset % columns + span - 1
    for extent, *strides in plan.batch_axes:
        stride = strides[number]
        if stride < 0:
            return None
        if stride % columns:
            last += (extent - 1) * stride
    return columns if last < columns else None


def _pays(kernel: Kernel, value: Value, plan: ContractionPlan, number: int, whole_rows: bool) -> bool:
    """Whether it takes no longer to compute blocks of ``value`` as often as they are read than to keep them."""
    m_block, n_block = task_blocks(plan.left.base.dtype.name, plan.m, plan.n, plan.k, plan.batch, whole_rows)
    times = -(-plan.n // n_block) if number == 0 else -(-plan.m // m_block)
    computed = plan.batch * (plan.m, plan.n)[number] * plan.k * times
    if kernel.domain[-1] < SHORT_ROW and computed > SMALL:
        return False
    return (computed - value.size) * kernel.cost <= value.size * value.dtype.itemsize * SAVED_PER_BYTE
