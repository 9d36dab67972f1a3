"""How a kernel is laid out for a target: vector width, unrolling, and the order of its run-time parameters."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from ...dtypes import by_name
from ..expressions import expression_dtype
from ..loops import Kernel
from .target import Target


def main_width(kernel: Kernel, target: Target) -> int:
    """Lanes of the kernel's vectors: as many as a register holds of the widest type that it calculates in."""
    if kernel.mode in ("scalar", "sequential"):
        return 1
    floats = integers = 0
    for expression in kernel.expressions:
        dtype = by_name(expression_dtype(expression))
        itemsize = 4 if dtype.name in ("float16", "bfloat16") else dtype.itemsize
        if dtype.kind == "f":
            floats = max(floats, itemsize)
        elif expression[0] in ("op", "load", "literal"):
            integers = max(integers, itemsize)
    itemsize = floats or integers or 8
    return max(1, min(target.vector_bits // (8 * itemsize), 32))


def unroll(kernel: Kernel) -> int:
    """Copies of the body in the main loop: more for small bodies, one where the order of the steps counts."""
    if kernel.scatter is not None or (kernel.mode == "row" and kernel.has_scan):
        return 1
    if kernel.cost <= 48:
        return 4
    return 2 if kernel.cost <= 90 else 1


WALK_COLUMNS = 2048  # in one task of a walk at most: its running values then stay in the caches next to the core


def column_block(kernel: Kernel, target: Target, threads: int = 1) -> int:
    """Columns that one task of a column or walk kernel takes.

    A walk's block is as wide as leaves a task for each thread: the longer the pieces of a row that one step touches,
    the fewer pages it goes to (twice as fast over 1000 columns as over 128). Columns do not depend on each other, so
    neither do results on the block.
    """
    least = main_width(kernel, target) * unroll(kernel)
    if kernel.mode != "walk":
        return least
    columns = kernel.domain[-1]
    for dim in kernel.grid_loops:
        columns *= kernel.domain[dim]
    block = min(WALK_COLUMNS, -(-columns // max(threads, 1)))
    return max(least, block + -block % least)


@dataclass
class ParameterLayout:
    """Which parameter of a launch means what; shared by the code that reads them and the plan that writes them."""

    extents: list[int] = field(default_factory=list)
    row_extent: int = -1
    accesses: list[tuple[int, int, dict[int, int]]] = field(default_factory=list)  # slot, offset, stride of each loop
    iotas: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    checks: list[tuple[int, int]] = field(default_factory=list)  # size, site
    terms: list[int] = field(default_factory=list)
    spills: list[int] = field(default_factory=list)
    block: int = -1  # columns in a task of a walk
    count: int = 0

    @classmethod
    def of(cls, kernel: Kernel) -> ParameterLayout:
        layout = cls()
        counter = itertools.count()
        layout.extents = [next(counter) for _ in kernel.domain]
        if kernel.chunks is not None:
            layout.row_extent = next(counter)
        for access in kernel.accesses:
            slot, offset = next(counter), next(counter)
            classes = kernel.step_classes(access)
            layout.accesses.append((slot, offset, {d: next(counter) for d, c in enumerate(classes) if c == "s"}))
        for _, coefficients in kernel.iotas:
            offset = next(counter)
            layout.iotas.append((offset, {d: next(counter) for d, c in enumerate(coefficients) if c not in (0, 1)}))
        layout.checks = [(next(counter), next(counter)) for _ in kernel.checks]
        layout.terms = [next(counter) for _ in kernel.terms]
        layout.spills = [next(counter) for _ in kernel.spill_dtypes]
        if kernel.mode == "walk":
            layout.block = next(counter)
        layout.count = next(counter)
        return layout
