"""From groups to launches: order, memory, parameters.

Steps that do not depend on each other share a *wave* and run at the same time. Where buffers are: see memory.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..errors import CompileError
from .attention import AttentionPlan
from .contraction import ContractionPlan
from .follow import attach_followers
from .fuse import Fuser
from .groups import Group, bits
from .lead import attach_leaders
from .loops import SIDE_ROWS, Kernel
from .memory import defer_updates, donations, lay_out
from .schedule import KernelBuilder
from .stream import mark_streams
from .values import Value

CHUNK_WORK = 300_000.0  # about ten microseconds, in units of Kernel.cost
CHUNK_ELEMENTS = (1024, 65536)
FEW_CHUNKS = 8  # with fewer of them, smaller ones are made, which threads that are awake share


@dataclass
class Step:
    """One launch, or one call of a library on the host.

    A step with both a contraction and a kernel is a product that the kernel follows (see follow.py); the product's own
    value is among ``writes`` if anybody else reads it.   leads: kernels that compute the product's operands, by the
    number of the operand, which then has no memory (see lead.py).
    """

    number: int
    group: Group
    kernel: Kernel | None
    reads: list[Value]
    writes: list[Value]
    wave: int = 0
    leads: dict[int, Kernel] = field(default_factory=dict)

    @property
    def kernels(self) -> list[Kernel]:
        """All that run in this step."""
        return [*self.leads.values(), *([] if self.kernel is None else [self.kernel])]

    @property
    def can_fail(self) -> bool:
        """Whether it may raise an error."""
        return self.is_host or any(kernel.checks for kernel in self.kernels)

    @property
    def contraction(self) -> ContractionPlan | None:
        return self.group.contraction

    @property
    def attention(self) -> AttentionPlan | None:
        return self.group.attention

    @property
    def engine(self) -> tuple[str, str] | None:
        """The dtypes of operands and result of the product that the contraction engine computes, if it is one."""
        plan, target = self.contraction, self.group.target
        if plan is None or plan.library != "engine" or target is None:
            return None
        return plan.left.base.dtype.name, target.dtype.name

    @property
    def is_host(self) -> bool:
        """Whether it is a call of a library on the host."""
        return self.kernel is None and self.contraction is None and self.attention is None


@dataclass
class Plan:
    """Steps in order, and where each buffer is.

    places: value id -> ("input", position) | ("output", number) | ("arena", byte offset).
    outputs: for each output of the program its base value.
    live_bytes: of the temporaries of the wave that needs most.
    """

    steps: list[Step]
    places: dict[int, tuple[str, int]]
    outputs: list[Value]
    arena_bytes: int
    live_bytes: int = 0
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
        written |= {access for access, _ in kernel.row_stores} | {side.access for side in kernel.sides}
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
    elif group.attention is not None:
        reads = [operand.base for operand in group.attention.operands.values()]
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


def _delay(steps: list[Step], donate: set[int]) -> None:
    """Move what depends on inputs alone (a fill of zeros, a mask) to the wave before the first that needs it, so that
    its memory is not held meanwhile. Not what can fail, nor what reads an input that is to be overwritten."""
    first_use: dict[int, int] = {}
    later: dict[int, list[int]] = {}  # group -> waves of the steps that must come after it
    for step in reversed(steps):
        reads_inputs = all(value.kind == "input" and value.attrs[0] not in donate for value in step.reads)
        used = [first_use[value.id] for value in step.writes if value.id in first_use]
        if reads_inputs and used and not step.can_fail:
            step.wave = max(step.wave, min([*used, *later.get(step.number, ())]) - 1)
        for number in bits(step.group.after):
            later.setdefault(number, []).append(step.wave)
        for value in (*step.reads, *step.writes):
            first_use[value.id] = min(first_use.get(value.id, step.wave), step.wave)


def make_plan(
    fuser: Fuser, output_values: list[Value], donate: set[int]
) -> Plan:
    """Steps, waves and memory for the program with these outputs."""
    bases = [fuser.materialise(value) for value in output_values]
    steps = build_steps(fuser, [base for base in bases if base.kind != "input"])
    if "follow" not in fuser.builder.without:
        steps = attach_followers(steps, bases)
    if "lead" not in fuser.builder.without:
        steps = attach_leaders(steps, bases)
    assign_waves(steps)
    _delay(steps, donate)
    defer_updates(steps, donate)
    # Memory is shared by waves, also where steps run one after another. In a wave, kernels come before products: these
    # push out of the cache what was just written.
    steps.sort(key=lambda step: (step.wave, step.contraction is not None))
    places: dict[int, tuple[str, int]] = {}
    number = 0
    for base in bases:
        if base.kind != "input" and base.id not in places:
            places[base.id] = ("output", number)
            number += 1
    donated = donations(steps, bases, places, donate) if donate else {}
    layout = lay_out(steps, places, donated, "reuse" not in fuser.builder.without)
    if "stream" not in fuser.builder.without:
        mark_streams([step.kernel for step in steps if step.kernel is not None], layout.overwriting)
    return Plan(steps, layout.places, bases, layout.arena_bytes, layout.live_bytes, donated)


def chunk_elements(kernel: Kernel) -> tuple[int, float]:
    """Points of the domain that make a chunk, and its weight (see ``driver.Launch``)."""
    low, high = CHUNK_ELEMENTS
    points = int(max(low, min(high, CHUNK_WORK / max(kernel.cost, 1.0))))
    return (points, 1.0) if math.prod(kernel.domain) >= FEW_CHUNKS * points else (points // 4, 0.25)


def task_counts(kernel: Kernel, block: int) -> tuple[int, int, float]:
    """How many tasks a launch has, how many make a chunk, and the weight of a chunk. ``block``: columns a task of a
    column kernel takes."""
    points, weight = chunk_elements(kernel)
    total, grain = _task_counts(kernel, block, points)
    return total, grain, weight


def _task_counts(kernel: Kernel, block: int, points: int) -> tuple[int, int]:
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
    if kernel.sides:
        tasks, inner = -(-tasks // SIDE_ROWS), inner * SIDE_ROWS
    if kernel.reduced[-1]:
        return tasks, max(1, points // max(1, inner))
    return tasks * (-(-last // block)), max(1, points // max(1, inner * block))
