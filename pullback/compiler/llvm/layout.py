"""How a kernel is laid out for a target: vector width, unrolling, and the order of its run-time parameters."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from ...dtypes import by_name
from ..expressions import expression_dtype
from ..loops import Kernel
from .scans import Scan
from .target import Target
from .values import BITS, REGISTER


def main_width(kernel: Kernel, target: Target) -> int:
    """Lanes of the kernel's vectors: as many as a register holds of the widest type that it calculates in."""
    if kernel.mode == "scalar" or not kernel.domain:
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
    most = 32
    if kernel.short:
        most = kernel.short if kernel.short in (2, 4) else 1
    return max(1, min(target.vector_bits // (8 * itemsize), most))


def unroll(kernel: Kernel) -> int:
    """Copies of the body in the main loop: more for small bodies, one where the order of the steps counts."""
    in_order = kernel.mode == "scatter" and kernel.reduced[-1:] != (False,)
    if in_order or kernel.short or (kernel.mode == "row" and kernel.has_scan):
        return 1
    if kernel.cost <= 48:
        return 4
    return 2 if kernel.cost <= 90 else 1


WALK_BYTES = 1 << 18  # what one task of a walk carries from row to row at most: the caches next to the core hold it
SCATTER_COLUMNS = 32  # of a row that are not divided among tasks: whole lines of the cache
SLOT_BYTES = 16  # what a vector in scratch memory is aligned to


@dataclass
class Record:
    """What a walk carries from row to row for one vector of columns: where each accumulator and carry lies in it.

    folds: by fold number; scans: by expression number; in bytes. The records of neighbouring vectors are neighbours.
    """

    folds: dict[int, int] = field(default_factory=dict)
    scans: dict[int, int] = field(default_factory=dict)
    nbytes: int = 0

    def _slot(self, register: str, width: int) -> int:
        here = self.nbytes
        nbytes = (width * BITS[register] + 7) // 8
        self.nbytes += nbytes + -nbytes % SLOT_BYTES
        return here

    @classmethod
    def of(cls, kernel: Kernel, width: int) -> Record:
        record = cls()
        for number in range(len(kernel.folds)):
            record.folds[number] = record._slot(element_register(kernel, number), width)
        for number, expression in enumerate(kernel.expressions):
            if expression[0] == "scan":
                record.scans[number] = record._slot(Scan(expression[1], expression[2], expression[4]).register, width)
        return record


def element_register(kernel: Kernel, fold: int) -> str:
    """What an accumulator in scratch memory holds: of float32 sums, a float64 one."""
    spec = kernel.folds[fold]
    register = REGISTER[spec.dtype]
    return "f64" if kernel.wide and spec.instruction == "add" and register == "f32" else register


def column_block(kernel: Kernel, target: Target, threads: int = 1) -> int:
    """Columns that one task of a column, walk or scatter kernel takes.

    A walk's block is as wide as leaves as many tasks to each thread, and as the caches hold what it carries: the longer
    the pieces of a row that one step touches, the fewer pages it goes to (a sum of 1000 rows of 100,000 took 26 ms in
    blocks of 2048 columns, 19 in blocks of 32768). Columns do not depend on each other, so neither do results on the
    block. So is a scatter's, whose tasks all read the indices.
    """
    width = main_width(kernel, target)
    least = width * unroll(kernel)
    if kernel.mode not in ("walk", "scatter") or not kernel.domain:
        return least
    columns = kernel.domain[-1]
    for dim in kernel.grid_loops:
        columns *= kernel.domain[dim]
    threads = max(threads, 1)
    if kernel.mode == "scatter":
        least = max(least, SCATTER_COLUMNS)
        block = -(-columns // threads)
        return max(least, block + -block % least)
    widest = max(1, WALK_BYTES // Record.of(kernel, width).nbytes) * width
    rounds = -(-columns // (threads * widest))
    block = -(-columns // (threads * rounds))
    return max(least, block + -block % least)


def walk_scratch(kernel: Kernel, target: Target, block: int) -> int:
    """Bytes of scratch memory for what a walk over ``block`` columns carries."""
    width = main_width(kernel, target)
    return Record.of(kernel, width).nbytes * -(-block // width)


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
    sides: list[int] = field(default_factory=list)  # where the accumulators of each are in scratch memory
    block: int = -1  # columns in a task of a walk or a scatter
    count: int = 0

    @classmethod
    def of(cls, kernel: Kernel) -> ParameterLayout:
        layout = cls()
        counter = itertools.count()
        layout.extents = [next(counter) for _ in kernel.domain]
        if kernel.chunks is not None:
            layout.row_extent = next(counter)
        for number, (access, twin) in enumerate(zip(kernel.accesses, kernel.twins, strict=True)):
            slot, offset = next(counter), next(counter)
            if twin < number:
                strides = layout.accesses[twin][2]
            else:
                strides = {d: next(counter) for d, c in enumerate(kernel.step_classes(access)) if c == "s"}
            layout.accesses.append((slot, offset, strides))
        for _, coefficients in kernel.iotas:
            offset = next(counter)
            layout.iotas.append((offset, {d: next(counter) for d, c in enumerate(coefficients) if c not in (0, 1)}))
        layout.checks = [(next(counter), next(counter)) for _ in kernel.checks]
        layout.terms = [next(counter) for _ in kernel.terms]
        layout.spills = [next(counter) for _ in kernel.spill_dtypes]
        layout.sides = [next(counter) for _ in kernel.sides]
        if kernel.mode == "walk" or (kernel.mode == "scatter" and kernel.reduced[-1:] == (False,)):
            layout.block = next(counter)
        layout.count = next(counter)
        return layout
