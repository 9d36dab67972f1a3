"""From groups to launches: order, memory, parameters.

Steps that do not depend on each other share a *wave* and run at the same time. Temporaries live in one arena: two of
them share memory when no wave needs both.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from ..errors import CompileError
from ..runtime.buffers import padded
from .contraction import ContractionPlan
from .fuse import Fuser
from .groups import Group, bits
from .loops import Kernel
from .schedule import KernelBuilder
from .values import Value

CHUNK_WORK = 300_000.0  # about ten microseconds, in units of Kernel.cost
CHUNK_ELEMENTS = (1024, 65536)


@dataclass
class Step:
    """One launch, or one call of a library on the host."""

    number: int
    group: Group
    kernel: Kernel | None
    reads: list[Value]
    writes: list[Value]
    wave: int = 0

    @property
    def contraction(self) -> ContractionPlan | None:
        return self.group.contraction

    @property
    def is_host(self) -> bool:
        """Whether it is a call of a library on the host."""
        return self.kernel is None and self.contraction is None


@dataclass
class Plan:
    """Steps in order, and where each buffer is.

    places: value id -> ("input", position) | ("output", number) | ("arena", byte offset).
    outputs: for each output of the program its base value.
    """

    steps: list[Step]
    places: dict[int, tuple[str, int]]
    outputs: list[Value]
    arena_bytes: int
    donations: dict[int, int] = field(default_factory=dict)  # output number -> input position


def build_steps(fuser: Fuser, outputs: list[Value]) -> list[Step]:
    """A step for every group that something needs, last to first; returned first to last."""
    demanded: dict[int, Value] = {value.id: value for value in outputs}
    order = sorted(range(len(fuser.groups)), key=lambda n: (fuser.before[n].bit_count(), n))
    steps: list[Step] = []
    for number in reversed(order):
        group = fuser.groups[number]
        step = _step(fuser, group, demanded)
        if step is not None:
            steps.append(step)
    steps.reverse()
    return steps


def _step(fuser: Fuser, group: Group, demanded: dict[int, Value]) -> Step | None:
    if group.kind == "joined":
        return None
    if group.kind == "fused" or group.kind == "scatter":
        builder = KernelBuilder(fuser, group, demanded)
        if group.kind == "scatter" and group.target is not None and group.target.id not in demanded:
            return None
        kernel = builder.build_scatter() if group.kind == "scatter" else builder.build()
        if kernel is None:
            return None
        written = {access for stage in kernel.stages for access, _ in stage.stores}
        written |= {access for access, _ in kernel.row_stores}
        writes: list[Value] = []
        reads: list[Value] = []
        for position, access in enumerate(kernel.accesses):
            if position in written:
                writes.append(access.value)
            else:
                reads.append(access.value)
        if kernel.scatter is not None:
            writes.append(kernel.accesses[kernel.scatter.access].value)
        return Step(group.number, group, kernel, reads, writes)
    target = group.target
    if target is None or target.id not in demanded:
        return None
    if group.contraction is not None:
        reads = [group.contraction.left.base, group.contraction.right.base]
    else:
        reads = [fuser.materialise(operand) for operand in target.inputs]
    for value in reads:
        if value.kind != "input":
            demanded[value.id] = value
    return Step(group.number, group, None, reads, [target])


def assign_waves(steps: list[Step]) -> None:
    """Number the waves so that every step comes after what it reads.

    A host call runs alone, between two native segments: after all steps before it, and before all behind it.
    """
    written_in: dict[int, int] = {}
    wave_of_group: dict[int, int] = {}
    last = -1
    earliest = 0
    for step in steps:
        wave = earliest
        for value in step.reads:
            if value.kind != "input":
                if value.id not in written_in:
                    raise CompileError(f"{value} is read before it is written")
                wave = max(wave, written_in[value.id] + 1)
        for number in bits(step.group.after):
            if number in wave_of_group:
                wave = max(wave, wave_of_group[number] + 1)
        if step.is_host:
            wave = last + 1
            earliest = wave + 1
        step.wave = wave
        last = max(last, wave)
        wave_of_group[step.number] = wave
        for value in step.writes:
            written_in[value.id] = max(written_in.get(value.id, 0), wave)


def make_plan(
    fuser: Fuser, output_values: list[Value], donate: set[int]
) -> Plan:
    """Steps, waves and memory for the program with these outputs."""
    bases = [fuser.materialise(value) for value in output_values]
    steps = build_steps(fuser, [base for base in bases if base.kind != "input"])
    assign_waves(steps)
    places: dict[int, tuple[str, int]] = {}
    number = 0
    for base in bases:
        if base.kind != "input" and base.id not in places:
            places[base.id] = ("output", number)
            number += 1
    temporaries: dict[int, Value] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in steps:
        for value in (*step.reads, *step.writes):
            if value.kind == "input" or value.id in places:
                continue
            temporaries[value.id] = value
            first[value.id] = min(first.get(value.id, step.wave), step.wave)
            last[value.id] = max(last.get(value.id, step.wave), step.wave)
    if "reuse" in fuser.builder.without:
        first, last = dict.fromkeys(first, 0), dict.fromkeys(last, 0)  # as if all were needed at once
    arena = _lay_out(temporaries, first, last, places)
    plan = Plan(steps, places, bases, arena)
    if donate:
        plan.donations = _donations(plan, bases, donate)
    return plan


def _lay_out(
    temporaries: dict[int, Value], first: dict[int, int], last: dict[int, int], places: dict[int, tuple[str, int]]
) -> int:
    """Give each temporary an offset in the arena, the largest first; returns the arena's size."""
    placed: list[tuple[int, int, int, int]] = []  # start, end, first wave, last wave; in order
    size = 0
    for value in sorted(temporaries.values(), key=lambda v: -v.size * v.dtype.itemsize):
        nbytes = padded(max(1, value.size) * value.dtype.itemsize)
        begin, end = first[value.id], last[value.id]
        start = 0
        for other_start, other_end, other_first, other_last in placed:
            if other_first <= end and begin <= other_last and other_start < start + nbytes and start < other_end:
                start = other_end
        insort(placed, (start, start + nbytes, begin, end))
        places[value.id] = ("arena", start)
        size = max(size, start + nbytes)
    return size


def _donations(plan: Plan, bases: list[Value], donate: set[int]) -> dict[int, int]:
    """Outputs that may be written over an input: same size, read by no later step, and element for element."""
    readers: dict[int, list[Step]] = {}
    writers: dict[int, list[Step]] = {}
    for step in plan.steps:
        for value in step.reads:
            if value.kind == "input":
                readers.setdefault(value.attrs[0], []).append(step)
        for value in step.writes:
            writers.setdefault(value.id, []).append(step)
    # A check that fails ends the program with its wave. Only what is written later may overwrite an input: an error
    # leaves everything as it was.
    last_check = max((s.wave for s in plan.steps if s.kernel is not None and s.kernel.checks), default=-1)
    kept = {base.attrs[0] for base in bases if base.kind == "input"}
    taken: set[int] = set()
    donations: dict[int, int] = {}
    for base in bases:
        if base.kind == "input" or base.id not in writers or len(writers[base.id]) != 1:
            continue
        (step,) = writers[base.id]
        kernel = step.kernel
        number = plan.places[base.id][1]
        if kernel is None or kernel.mode not in ("map", "scalar") or number in donations or step.wave <= last_check:
            continue
        store = next(a for a in kernel.accesses if a.value is base)
        for access in kernel.accesses:
            value = access.value
            if value.kind != "input" or value.attrs[0] not in donate or value.attrs[0] in kept | taken:
                continue
            if value.size != base.size or value.dtype.itemsize != base.dtype.itemsize:
                continue
            if (access.offset, access.strides) != (store.offset, store.strides):
                continue
            others = [a for a in kernel.accesses if a.value is value and a is not access]
            if others or any(s is not step and s.wave >= step.wave for s in readers[value.attrs[0]]):
                continue
            donations[number] = value.attrs[0]
            taken.add(value.attrs[0])
            break
    return donations


def chunk_elements(kernel: Kernel) -> int:
    """Points of the domain worth one chunk of work."""
    low, high = CHUNK_ELEMENTS
    return int(max(low, min(high, CHUNK_WORK / max(kernel.cost, 1.0))))


def task_counts(kernel: Kernel, block: int) -> tuple[int, int]:
    """How many tasks a launch has, and how many make a chunk. ``block``: columns a task of a column kernel takes."""
    points = chunk_elements(kernel)
    if not kernel.domain:
        return 1, points  # so that a few of them side by side do not seem worth a second thread
    tasks = 1
    for dim in kernel.grid_loops:
        tasks *= kernel.domain[dim]
    last = kernel.domain[-1]
    if kernel.mode == "map":
        if not kernel.grid_loops:
            return last, points + -points % 256
        return tasks, max(1, points // max(1, last))
    inner = 1
    for dim in kernel.row_loops:
        inner *= kernel.domain[dim]
    if kernel.reduced[-1]:
        return tasks, max(1, points // max(1, inner))
    return tasks * (-(-last // block)), max(1, points // max(1, inner * block))
