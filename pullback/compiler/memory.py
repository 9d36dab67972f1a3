"""Where a program's buffers are.

An output may take over the memory of an input that its caller gives up (*donation*). A temporary takes over the memory
of another that is read for the last time by the step that writes it, element for element; so may an output, and the
temporary then lies in the output's memory from the start. What remains shares one arena: two blocks have memory in
common when no wave needs both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .arena import place
from .values import Value

if TYPE_CHECKING:
    from .plan import Step

Place = tuple[str, int]  # ("input", position), ("output", number) or ("arena", byte offset)


@dataclass
class Layout:
    """places: of every value that is not an input, by id.   arena_bytes: size of the arena.

    live_bytes: of the temporaries of the wave that needs most, without a gap: no arena could be smaller.
    overwriting: ids of the values that are written over what the same kernel reads.
    """

    places: dict[int, Place]
    arena_bytes: int
    live_bytes: int
    overwriting: set[int]


@dataclass
class _Block:
    """Memory of one temporary, or of several that take it over one from the other; needed from wave ``first`` to
    ``last``."""

    nbytes: int
    first: int
    last: int
    values: list[Value]


def lay_out(
    steps: Sequence[Step], outputs: dict[int, Place], taken_over: Container[int] = (), reuse: bool = True
) -> Layout:
    """Places for all that ``steps`` write.

    outputs: places of the outputs, by value.   taken_over: numbers of outputs that overwrite an input.
    reuse: whether temporaries share memory at all.
    """
    places = dict(outputs)
    blocks: dict[int, _Block] = {}
    for step in steps:
        for value in (*step.reads, *step.writes):
            if value.kind == "input" or value.id in outputs:
                continue
            block = blocks.get(value.id)
            if block is None:
                blocks[value.id] = block = _Block(nbytes_of(value), step.wave, step.wave, [value])
            block.first, block.last = min(block.first, step.wave), max(block.last, step.wave)
    overwriting = {identity for identity, (_, number) in outputs.items() if number in taken_over}
    if reuse:
        overwriting |= _merge(steps, blocks, places, overwriting)
    else:  # as if all were needed at once
        for block in blocks.values():
            block.first, block.last = 0, 0
    found = list({id(block): block for block in blocks.values()}.values())
    offsets, arena_bytes = place([(block.nbytes, block.first, block.last) for block in found])
    for block, offset in zip(found, offsets, strict=True):
        for value in block.values:
            places[value.id] = ("arena", offset)
    return Layout(places, arena_bytes, _most_alive(found), overwriting)


def nbytes_of(value: Value) -> int:
    """Of the value's buffer."""
    return value.size * value.dtype.itemsize


def _merge(
    steps: Sequence[Step], blocks: dict[int, _Block], places: dict[int, Place], over_inputs: set[int]
) -> set[int]:
    """Let values take over the memory of what their step reads for the last time; returns their ids.

    over_inputs: those that overwrite an input, with which no temporary may share.
    """
    readers: dict[tuple[int, int], int] = {}  # of a value, in a wave
    writers: dict[int, int] = {}
    for step in steps:
        for identity in {value.id for value in step.reads}:
            readers[identity, step.wave] = readers.get((identity, step.wave), 0) + 1
        for value in step.writes:
            writers[value.id] = writers.get(value.id, 0) + 1
    taken: set[int] = set()
    overwriting: set[int] = set()
    for step in reversed(steps):  # so that a chain that ends in an output lies there as a whole
        over = Overwriting(step)
        for written in step.writes:
            where = places.get(written.id)
            if writers[written.id] != 1 or written.id in over_inputs:
                continue
            for read in over.candidates(written):
                before = blocks.get(read.id)
                if before is None or before.last != step.wave or read.id in taken:
                    continue
                if readers[read.id, step.wave] > 1:
                    continue
                taken.add(read.id)
                overwriting.add(written.id)
                if where is not None:
                    for value in before.values:
                        places[value.id] = where
                        del blocks[value.id]
                else:  # into the one that may have grown already
                    after = blocks[written.id]
                    after.first = before.first
                    after.values += before.values
                    for value in before.values:
                        blocks[value.id] = after
                break
    return overwriting


class Overwriting:
    """What a step may write over what it reads: its kernel reads each element where it writes, and not afterwards."""

    def __init__(self, step: Step) -> None:
        self._reads: dict[Any, list[Value]] = {}  # by the way that they are read
        self._stores: dict[int, Any] = {}  # of each value the way that it is stored
        kernel = step.kernel
        if kernel is None or kernel.chunks is not None or kernel.scatter is not None:
            return
        ways = [(access.offset, access.strides) for access in kernel.accesses]
        accesses: dict[int, list[int]] = {}
        for number, access in enumerate(kernel.accesses):
            accesses.setdefault(access.value.id, []).append(number)
        # A task's part of the domain is walked once a stage: what a stage before the last stored over, a later one may
        # have to read as it was.
        stages = kernel.stages if kernel.mode in ("map", "scalar") else kernel.stages[-1:]
        stored = [number for stage in stages for number, _ in stage.stores]
        for number in [*stored, *(number for number, _ in kernel.row_stores)]:
            value = kernel.accesses[number].value
            if len(accesses[value.id]) == 1:
                self._stores[value.id] = ways[number]
        elsewhere: set[Any] = set()  # by an index, from the step before; what a product before the kernel multiplies
        for expression in kernel.expressions:
            if expression[0] not in ("load", "op", "literal", "iota", "fold", "scan", "check"):
                elsewhere.update(number for number in expression[1:] if type(number) is int)
        operands = {access.value.id for lead in step.leads.values() for access in lead.accesses}
        if step.contraction is not None:
            operands |= {step.contraction.left.base.id, step.contraction.right.base.id}
        for value in step.reads:
            numbers = accesses.get(value.id, ())
            if len(numbers) == 1 and numbers[0] not in elsewhere and value.id not in operands:
                self._reads.setdefault(ways[numbers[0]], []).append(value)

    def candidates(self, written: Value) -> Iterator[Value]:
        """The values in whose memory ``written`` may lie."""
        way = self._stores.get(written.id)
        for read in self._reads.get(way, ()) if way is not None else ():
            if read.size == written.size and read.dtype.itemsize == written.dtype.itemsize:
                yield read


def may_overwrite(step: Step, written: Value, read: Value) -> bool:
    """Whether ``step`` may write ``written`` in the memory of ``read``."""
    return any(value is read for value in Overwriting(step).candidates(written))


def defer_updates(steps: Sequence[Step], donate: set[int]) -> None:
    """Let steps whose results nobody reads here, and that could overwrite an input, wait for all that still read it."""
    if not donate or any(step.is_host for step in steps):
        return
    waves: dict[int, list[int]] = {}  # in which a value is read, in order
    for step in steps:
        for identity in {value.id for value in step.reads}:
            insort(waves.setdefault(identity, []), step.wave)
    awaited = 0
    for step in steps:
        awaited |= step.group.after
    for step in steps:
        if any(value.id in waves for value in step.writes) or awaited >> step.number & 1:
            continue
        if step.kernel is None or step.can_fail:
            continue
        wave = step.wave
        over = Overwriting(step)
        for written in step.writes:
            for value in over.candidates(written):
                if value.kind == "input" and value.attrs[0] in donate:
                    *others, last = waves[value.id][-2:]  # the step's own is among all
                    wave = max([wave, *(other + 1 for other in others)]) if last == step.wave else last + 1
        if wave > step.wave:
            for identity in {value.id for value in step.reads}:
                found = waves[identity]
                del found[bisect_left(found, step.wave)]
                insort(found, wave)
            step.wave = wave


def _most_alive(blocks: Sequence[_Block]) -> int:
    """The bytes of the wave that needs most."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.nbytes
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.nbytes
    alive = most = 0
    for wave in sorted(changes):
        alive += changes[wave]
        most = max(most, alive)
    return most


def last_failure(steps: Sequence[Step]) -> int:
    """The last wave in which the program can fail, and then ends, leaving everything as it was; -1 if in none."""
    return max((step.wave for step in steps if step.can_fail), default=-1)


def late_outputs(steps: Sequence[Step], places: dict[int, Place]) -> frozenset[int]:
    """Numbers of the outputs in whose memory nothing is written before the program can no longer fail."""
    first: dict[int, int] = {}
    for step in steps:
        for value in step.writes:
            where, number = places[value.id]
            if where == "output":
                first[number] = min(first.get(number, step.wave), step.wave)
    settled = last_failure(steps)
    return frozenset(number for number, wave in first.items() if wave > settled)


def first_change(step: Step, others: Sequence[Step]) -> int | None:
    """The wave in which ``step``, and ``others`` after it, first write to an output what an input did not hold there.
    None if the output may not lie over an input: several steps write it, and are no copy and scatters into that."""
    if not others:
        return step.wave
    is_state = step.kernel is not None and step.kernel.is_copy and all(
        other.kernel is not None and other.kernel.scatter is not None for other in others
    )
    return min(other.wave for other in others) if is_state else None


def donations(
    steps: Sequence[Step], outputs: Sequence[Value], numbers: dict[int, Place], donate: set[int]
) -> dict[int, int]:
    """Outputs that may be written over an input: same size, read by no later step, and element for element.

    So may a copy be that scatters then change, once no other step reads the input: until then all is as it was, and
    where the input is given up the copy does nothing.

    outputs: their values, inputs among them.   numbers: their places.   donate: inputs that may be overwritten.
    Returns output number -> input position.
    """
    last_readers: dict[int, list[Step]] = {}  # those of the last wave
    writers: dict[int, list[Step]] = {}
    for step in steps:
        for value in step.reads:
            if value.kind == "input":
                found_last = last_readers.setdefault(value.attrs[0], [step])
                if found_last[0].wave < step.wave:
                    found_last[:] = [step]
                elif found_last[0].wave == step.wave and found_last[-1] is not step:
                    found_last.append(step)
        for value in step.writes:
            writers.setdefault(value.id, []).append(step)
    settled = last_failure(steps)  # only what is written later may overwrite an input
    taken = {value.attrs[0] for value in outputs if value.kind == "input"}
    overwriting: dict[int, Overwriting] = {}
    found: dict[int, int] = {}
    for output in outputs:
        if output.kind == "input" or output.id not in writers:
            continue
        step, *others = writers[output.id]
        number = numbers[output.id][1]
        changed = first_change(step, others)
        if number in found or changed is None or changed <= settled:
            continue
        if id(step) not in overwriting:
            overwriting[id(step)] = Overwriting(step)
        for value in overwriting[id(step)].candidates(output):
            if value.kind != "input" or value.attrs[0] not in donate or value.attrs[0] in taken:
                continue
            last = last_readers[value.attrs[0]]
            if all(reader is step or reader.wave < changed for reader in last):
                found[number] = value.attrs[0]
                taken.add(value.attrs[0])
                break
    return found
