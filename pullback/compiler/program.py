"""Program: a compiled graph, ready to run any number of times.

``compile_program`` turns the graph between input and output nodes into native launches; calling the program runs
them. The *slots* of a call hold every address that kernels need: of the error record, the scratch memory, the arena,
the inputs, the outputs, and the values that are part of the program. Usually they lie on the stack of the native
function that runs the program (runtime/calling.py). A program that stops for a host call, that is looked at step by
step, or that has very many slots keeps arrays of slots, and so does every program where the interpreter offers ctypes
alone.
"""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..errors import CompileError
from ..graph.node import Node
from ..graph.state import describe_site
from ..runtime import calling, driver
from ..runtime.buffers import KEPT_ARENA_BYTES, RECYCLED_BYTES, Buffer, Ring, allocate, new_ring, recycled
from ..runtime.calling import ERROR_WORDS
from . import options
from .blockwise import BlockCall, Lead
from .cache import kernel_addresses
from .contraction import ContractionPlan, Operand
from .fuse import fuse
from .lead import lead_of
from .llvm.layout import ParameterLayout, column_block, walk_scratch
from .llvm.target import Target, host
from .llvm.values import STORAGE_SIZE
from .loops import Kernel
from .memory import late_outputs
from .plan import Plan, Step, make_plan, task_counts
from .products import prepare
from .simplify import simplify
from .values import Value, ValueBuilder, import_graph

ERROR, SCRATCH, NULL, ARENA, FIRST_INPUT = 0, 1, 2, 3, 4  # slots; NULL holds 0


def _count_unshared() -> int:
    """The references that this interpreter counts of a buffer that only its node and the caller's list hold."""
    buffers = {"node": Buffer(0, 0, None)}
    inputs = list(buffers.values())
    return getrefcount(inputs[0])


UNSHARED = _count_unshared()


class Site:
    """What to tell the user about a check that failed."""

    __slots__ = ("node", "what")

    def __init__(self, value: Value) -> None:
        self.node = value.node
        self.what = value.attrs[1]

    def error(self, index: int, size: int) -> IndexError:
        where = "" if self.node is None else f" (made at {describe_site(self.node.site)})"
        return IndexError(f"{self.what}: index {index} is out of range for size {size}{where}")


Record = Callable[["Program", Step, float, float], None]  # the step, its start and its end, of time.perf_counter
Observer = Callable[["Program", Sequence[Any]], list[Buffer]]

# While set, it is called instead of a program: explain and profile look on this way.
_observer: Observer | None = None


def observe(observer: Observer | None) -> Observer | None:
    """Let ``observer`` run every program of the process from now on, None nobody; returns the one before."""
    global _observer
    before, _observer = _observer, observer
    return before


class Entry(NamedTuple):
    """For who calls a program without going through it: ``call(record, [arena], *inputs, *outputs, *numbers)``, all of
    them addresses but for an input that is a number: there 0 stands, and among the last its slot and bits.

    slot, bits: the first input's slot, and for each input the function that gives a number's bits.
    sizes: bytes of the outputs.   rings: from which to take them, None for one to be allocated.
    answer: takes what ``call`` returns unless that is 0.   has_arena: an arena is an argument, to come from
    ``take_arena()`` and to be appended to ``arenas`` unless that is None.
    """

    call: Callable[..., Any]
    record: int
    slot: int
    bits: Sequence[Callable[[Any], int]]
    sizes: tuple[int, ...]
    rings: tuple[Ring | None, ...]
    answer: Callable[[Any], None]
    has_arena: bool
    take_arena: Callable[[], Buffer]
    arenas: list[Buffer] | None


class Program:
    """A callable: buffers and Python numbers in, buffers out.

    inputs: for each input node its buffer, or for a 0-d one a Python number. Outputs come in the order of the output
    nodes; an output that is an input is that input's buffer. Thread-safe.
    """

    __slots__ = (
        "_address", "_arena_bytes", "_arenas", "_call", "_fixed", "_free", "_host_steps", "_in_order", "_input_count",
        "_numbers", "_output_bytes", "_outputs", "_pack", "_record", "_rings", "_run", "_segments", "_sites",
        "_slot_count", "_sources", "_step_tables", "_target", "donations", "kernels", "plan",
    )  # fmt: skip

    def __init__(self, plan: Plan, dtypes: list[Any], fixed: list[Any], target: Target, input_count: int) -> None:
        self.plan = plan
        self._fixed = fixed
        self._target = target
        self._input_count = input_count
        self._numbers = [_bit_packer(dtype) for dtype in dtypes]
        self.donations = plan.donations
        places = plan.places
        self._output_bytes: list[int] = []
        self._outputs: list[tuple[bool, int]] = []
        seen: set[int] = set()
        for base in plan.outputs:
            if base.kind == "input":
                self._outputs.append((False, base.attrs[0]))
                continue
            number = places[base.id][1]
            self._outputs.append((True, number))
            if base.id not in seen:
                seen.add(base.id)
                self._output_bytes.append(base.size * base.dtype.itemsize)
        self._in_order = self._outputs == [(True, number) for number in range(len(self._output_bytes))]
        given = input_count + len(self._output_bytes)
        self._slot_count = FIRST_INPUT + given + len(fixed)
        self._pack = struct.Struct(f"={given}q").pack_into
        self._sites: list[Site] = []
        self.kernels = [kernel for step in plan.steps for kernel in step.kernels]
        engines = {engine for step in plan.steps if (engine := step.engine) is not None}
        addresses = kernel_addresses(self.kernels, target, [partial(prepare, *dtypes, target) for dtypes in engines])
        self._segments, self._host_steps, scratch = self._link(addresses)
        self._arena_bytes = plan.arena_bytes + scratch
        self._run = driver.runner()
        self._step_tables: list[driver.NativeTable | None] | None = None
        self._free: list[tuple[Any, int]] = []
        # Small outputs and arenas cost more to allocate than to compute: the program keeps a few of its own.
        self._rings = [
            new_ring() if nbytes <= RECYCLED_BYTES and number not in plan.donations else None
            for number, nbytes in enumerate(self._output_bytes)
        ]
        self._sources = [plan.donations.get(number, -1) for number in range(len(self._output_bytes))]
        self._arenas: list[Buffer] | None = [] if self._arena_bytes <= KEPT_ARENA_BYTES else None
        self._call = None if self._host_steps or self._slot_count > calling.MAX_SLOTS else calling.caller()
        self._record = self._make_record()
        self._address = 0 if self._record is None else self._record.ctypes.data

    @property
    def spare_outputs(self) -> frozenset[int]:
        """Positions of outputs, no two in one buffer, that may be written over what a failure would have to leave."""
        late = set(late_outputs(self.plan.steps, self.plan.places)) - set(self.donations)
        return frozenset(self._outputs.index((True, number)) for number in late if self._rings[number] is None)

    @property
    def constant_bytes(self) -> int:
        """Of the arrays that the program itself holds."""
        return sum(value.nbytes for value in self._fixed if type(value) is Buffer)

    @property
    def scratch_bytes(self) -> int:
        """Private memory of the calling thread for kernels; workers have their own."""
        return self._arena_bytes - self.plan.arena_bytes

    # -- linking ------------------------------------------------------------------------------------------------------

    def slot_of(self, value: Value) -> tuple[int, int]:
        """Slot and byte offset of a value's buffer."""
        if value.kind == "input":
            return self._input_slot(value.attrs[0]), 0
        where, number = self.plan.places[value.id]
        if where == "output":
            return FIRST_INPUT + self._input_count + number, 0
        return ARENA, number

    def _input_slot(self, position: int) -> int:
        """The slot of an input; the values that are part of the program are counted after those that are given."""
        return FIRST_INPUT + position + (len(self._output_bytes) if position >= self._input_count else 0)

    def _link(self, addresses: dict[int, int]) -> tuple[list[driver.NativeTable], list[Step], int]:
        """Native tables, and the host calls between them."""
        waves: list[list[driver.Launch]] = []
        tables: list[driver.NativeTable] = []
        hosts: list[Step] = []
        by_wave: dict[int, list[Step]] = {}
        for step in self.plan.steps:
            by_wave.setdefault(step.wave, []).append(step)
        for wave in sorted(by_wave):
            launches = []
            for step in by_wave[wave]:
                launch = self._launch(step, addresses)
                if launch is not None:
                    launches.append(launch)
                else:
                    tables.append(driver.build_table(waves))
                    hosts.append(step)
                    waves = []
            if launches:
                waves.append(launches)
        tables.append(driver.build_table(waves))
        return tables, hosts, max(table.scratch_bytes for table in tables)

    def _launch(self, step: Step, addresses: dict[int, int]) -> driver.Launch | None:
        """None for a host call."""
        if step.contraction is not None:
            return self._product_launch(step.contraction, step, addresses)
        if step.attention is not None:
            (value,) = step.writes
            places = [self._place_of(operand) for operand in step.attention.operands.values()]
            return step.attention.launch(places, self.slot_of(value), self._target)
        return None if step.kernel is None else self._kernel_launch(step.kernel, addresses[id(step.kernel)])

    def _kernel_launch(self, kernel: Kernel, address: int) -> driver.Launch:
        layout = ParameterLayout.of(kernel)
        params = [0] * layout.count
        for dim, where in enumerate(layout.extents):
            params[where] = kernel.domain[dim]
        if kernel.chunks is not None:
            params[layout.row_extent] = kernel.chunks[2]
            params[layout.extents[kernel.row_loops[0]]] = kernel.chunks[1]
        sizes = []
        for access, (slot, offset, strides) in zip(kernel.accesses, layout.accesses, strict=True):
            size = STORAGE_SIZE[access.value.dtype.name]
            sizes.append(size)
            # What a product leaves in scratch only has no place; the engine says where its rows are.
            has_place = access.value.kind == "input" or access.value.id in self.plan.places
            params[slot], start = self.slot_of(access.value) if has_place else (NULL, 0)
            params[offset] = start + access.offset * size
            for dim, where in strides.items():
                params[where] = access.strides[dim] * size
        for (start, coefficients), (offset, steps) in zip(kernel.iotas, layout.iotas, strict=True):
            params[offset] = start
            for dim, where in steps.items():
                params[where] = coefficients[dim]
        for (size, value), (size_at, site_at) in zip(kernel.checks, layout.checks, strict=True):
            params[size_at] = size
            params[site_at] = len(self._sites)
            self._sites.append(Site(value))
        for number, (stride, where) in enumerate(zip(kernel.terms, layout.terms, strict=True)):
            params[where] = stride * sizes[kernel.access_of_term(number)]
        scratch = 0
        row = 1
        for dim in kernel.row_loops:
            row *= kernel.domain[dim]
        for dtype, where in zip(kernel.spill_dtypes, layout.spills, strict=True):
            params[where] = scratch
            scratch += (row * STORAGE_SIZE[dtype] + 127) // 64 * 64 + 256
        for side, where in zip(kernel.sides, layout.sides, strict=True):
            params[where] = scratch
            scratch += (row * STORAGE_SIZE[side.dtype] + 127) // 64 * 64 + 256
        block = column_block(kernel, self._target, driver.get_num_threads())
        if layout.block >= 0:
            params[layout.block] = block
        if kernel.mode == "walk":
            scratch = walk_scratch(kernel, self._target, block)
        total, grain, weight = task_counts(kernel, block)
        return driver.Launch(address, params, total, grain, scratch, weight=weight)

    def _place_of(self, operand: Operand) -> tuple[int, int]:
        """Slot and byte offset of an operand's first element."""
        slot, start = self.slot_of(operand.base)
        return slot, start + operand.offset * operand.base.dtype.itemsize

    def _product_launch(self, plan: ContractionPlan, step: Step, addresses: dict[int, int]) -> driver.Launch:
        value = step.group.target
        if value is None:
            raise CompileError(f"step {step.number} is a product of nothing")
        only = step.kernel is not None and value not in step.writes
        places = [(NULL, 0) if only else self.slot_of(value)]
        leads: list[Lead | None] = []
        for number, operand in enumerate((plan.left, plan.right)):
            kernel = step.leads.get(number)
            if kernel is None:
                places.insert(number, self._place_of(operand))
                leads.append(None)
                continue
            # In place of an address: how far it is from where the operand's buffer would begin.
            places.insert(number, (NULL, operand.offset * operand.base.dtype.itemsize))
            call = BlockCall.of(kernel, self._kernel_launch(kernel, addresses[id(kernel)]), operand.base, True)
            leads.append(lead_of(plan, number, kernel, call))
        follow = None
        if step.kernel is not None:
            launch = self._kernel_launch(step.kernel, addresses[id(step.kernel)])
            follow = BlockCall.of(step.kernel, launch, value, only)
        return plan.launch(value.dtype, places, self._target, follow, (leads[0], leads[1]))

    # -- running ------------------------------------------------------------------------------------------------------

    def _make_record(self) -> np.ndarray[Any, Any] | None:
        """What ``pullback_call`` needs to know of the program."""
        if self._call is None:
            return None
        addresses: dict[int, int] = {}
        numbers: dict[int, int] = {}
        for position, value in enumerate(self._fixed, self._input_count):
            if type(value) is Buffer:
                addresses[self._input_slot(position)] = value.address
            else:
                numbers[self._input_slot(position)] = self._numbers[position](value)
        first = ARENA if self._arena_bytes else FIRST_INPUT
        given = FIRST_INPUT - first + self._input_count + len(self._output_bytes)
        return calling.make_record(
            driver.run_address(), self._segments[0].address, self._slot_count, addresses, numbers, first, given,
            self.plan.arena_bytes,
        )  # fmt: skip

    def __call__(
        self, inputs: Sequence[Any], record: Record | None = None, spare: dict[int, Buffer] | None = None
    ) -> list[Buffer]:
        """record: run one step after the other and report each to it.

        spare: memory for outputs, by position, that only the caller can see; for some of ``spare_outputs``.
        """
        if _observer is not None and record is None:
            return _observer(self, inputs)
        call = self._call
        if call is None or record is not None:
            return self._call_with_array(inputs, record, spare)
        numbers: Sequence[int] = ()
        try:
            addresses = [self._address, *[value.address for value in inputs]]
        except AttributeError:
            addresses, numbers = self._with_numbers(inputs)
        fresh = self._fresh(inputs, spare)
        addresses += [buffer.address for buffer in fresh]
        if not self._arena_bytes:
            status = call(*addresses, *numbers)
        else:
            arena = self._take_arena()
            addresses.insert(1, arena.address)
            status = call(*addresses, *numbers)
            if self._arenas is not None:
                self._arenas.append(arena)
        if status:
            self._answer(status)
        if self._in_order:
            return fresh
        return [fresh[number] if made else self._input(inputs, number) for made, number in self._outputs]

    def entry(self) -> Entry | None:
        """The way in for buffers and numbers; None if the program has to be called."""
        if self._call is None or self.donations or not self._in_order:
            return None
        return Entry(
            self._call, self._address, FIRST_INPUT, self._numbers, tuple(self._output_bytes), tuple(self._rings),
            self._answer, self._arena_bytes > 0, self._take_arena, self._arenas,
        )  # fmt: skip

    def _with_numbers(self, inputs: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Addresses of the record and of the inputs, of which some are numbers; a slot and the bits for each number."""
        addresses = [self._address]
        numbers: list[int] = []
        for position, value in enumerate(inputs):
            if type(value) is Buffer:
                addresses.append(value.address)
            else:
                addresses.append(0)
                numbers += (FIRST_INPUT + position, self._numbers[position](value))
        return addresses, numbers

    def _answer(self, status: Any) -> None:
        """Do what the driver asks for; raise the error of a check that failed."""
        if status == 1:
            driver.start_workers()
            return
        _, site, index, size = struct.unpack(f"={ERROR_WORDS}q", status)
        raise self._sites[site].error(index, size)

    def _fresh(self, inputs: Sequence[Any], spare: dict[int, Buffer] | None) -> list[Buffer]:
        """Buffers for the outputs: spare ones, those of donated inputs that nobody else holds, and others."""
        if not self.donations and not spare:
            return [
                allocate(nbytes) if ring is None else recycled(ring, nbytes)
                for ring, nbytes in zip(self._rings, self._output_bytes)
            ]
        given: dict[int, Buffer] = {}
        for position, buffer in () if spare is None else spare.items():
            made, number = self._outputs[position]
            if made and buffer.nbytes == self._output_bytes[number] and buffer.owned:
                given[number] = buffer
        fresh = []
        for number, (ring, nbytes, source) in enumerate(zip(self._rings, self._output_bytes, self._sources)):
            if ring is not None:
                fresh.append(recycled(ring, nbytes))
            elif source >= 0 and getrefcount(inputs[source]) <= UNSHARED and inputs[source].free_list is not None:
                fresh.append(inputs[source])
            else:
                fresh.append(given[number] if number in given else allocate(nbytes))
        return fresh

    def _take_arena(self) -> Buffer:
        """Memory for one call. A small arena is given back to ``_arenas``."""
        if self._arenas:
            try:
                return self._arenas.pop()
            except IndexError:  # another thread took it
                pass
        return allocate(self._arena_bytes)

    # -- running with arrays of slots ----------------------------------------------------------------------------------

    def _new_slots(self) -> tuple[Any, int]:
        """A slots array with its constant entries filled in, and its address. Behind the slots lie the error record and
        the numbers."""
        count = self._slot_count
        inputs = self._input_count + len(self._fixed)
        array = (ctypes.c_int64 * (count + ERROR_WORDS + inputs))()
        address = ctypes.addressof(array)
        array[ERROR] = address + 8 * count
        for position, value in enumerate(self._fixed, self._input_count):
            self._put(array, address, position, value)
        return array, address

    def _put(self, array: Any, address: int, position: int, value: Any) -> None:
        slot = self._input_slot(position)
        if type(value) is Buffer:
            array[slot] = value.address
            return
        number = self._slot_count + ERROR_WORDS + position
        array[slot] = address + 8 * number
        array[number] = self._numbers[position](value)

    def _call_with_array(
        self, inputs: Sequence[Any], record: Record | None, spare: dict[int, Buffer] | None
    ) -> list[Buffer]:
        try:
            slots = self._free.pop()
        except IndexError:
            slots = self._new_slots()
        array, address = slots
        fresh = self._fresh(inputs, spare)
        given = [value.address if type(value) is Buffer else 0 for value in inputs]
        self._pack(array, 8 * FIRST_INPUT, *given, *[buffer.address for buffer in fresh])
        for position, value in enumerate(inputs):
            if type(value) is not Buffer:
                self._put(array, address, position, value)
        if self._arena_bytes:
            arena = self._take_arena()
            array[ARENA] = arena.address
            array[SCRATCH] = arena.address + self.plan.arena_bytes
        if record is not None:
            self._run_recorded(array, address, record)
        elif self._host_steps:
            self._run_segments(array, address)
        elif self._run(self._segments[0].address, address):
            driver.start_workers()
        error = None
        if self._sites and array[self._slot_count]:
            _, site, index, size = array[self._slot_count : self._slot_count + ERROR_WORDS]
            array[self._slot_count] = 0
            error = self._sites[site].error(index, size)
        self._free.append(slots)
        if error is not None:
            raise error
        if self._in_order:
            return fresh
        return [fresh[number] if made else self._input(inputs, number) for made, number in self._outputs]

    def _run_recorded(self, array: Any, address: int, record: Record) -> None:
        error = self._slot_count
        for step, table in zip(self.plan.steps, self._tables_of_steps()):
            start = perf_counter()
            if table is None:
                self._run_host(step, array)
            elif self._run(table.address, address):
                driver.start_workers()
            record(self, step, start, perf_counter())
            if array[error]:
                return

    def _tables_of_steps(self) -> list[driver.NativeTable | None]:
        """A native table for each step; None for a host call."""
        if self._step_tables is None:
            addresses = kernel_addresses(self.kernels, self._target)
            self._step_tables = [
                driver.build_table([[launch]]) if (launch := self._launch(step, addresses)) is not None else None
                for step in self.plan.steps
            ]
        return self._step_tables

    def _input(self, inputs: Sequence[Any], position: int) -> Buffer:
        """The input that is an output, as a buffer."""
        value = inputs[position] if position < self._input_count else self._fixed[position - self._input_count]
        if type(value) is Buffer:
            return value
        buffer = allocate(8)
        bits = self._numbers[position](value)
        ctypes.memmove(buffer.address, struct.pack("<q", bits), 8)
        return buffer

    def _run_segments(self, array: Any, address: int) -> None:
        error = self._slot_count
        for number, table in enumerate(self._segments):
            if self._run(table.address, address):
                driver.start_workers()
            if array[error]:
                return
            if number < len(self._host_steps):
                self._run_host(self._host_steps[number], array)

    def _run_host(self, step: Step, array: Any) -> None:
        (target,) = step.writes
        node = target.node
        if node is None:
            raise CompileError(f"{target} has no node to run")
        operands = zip(step.reads, target.inputs)
        arrays = [self._view(array, source, operand.shape) for source, operand in operands]
        out = self._view(array, target, target.shape)
        with np.errstate(all="ignore"):  # infinities and NaN pass silently, as in kernels
            if node.op.into is None:
                out[...] = node.op.reference(node, *arrays)
            else:
                node.op.into(node, out, *arrays)

    def _view(self, array: Any, value: Value, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        slot, offset = self.slot_of(value)
        memory = (ctypes.c_char * (value.size * value.dtype.itemsize)).from_address(array[slot] + offset)
        return np.frombuffer(memory, value.dtype.numpy).reshape(shape)


def _bit_packer(dtype: Any) -> Callable[[Any], int]:
    """A function from a Python number to the 64 bits whose low bytes are that number in ``dtype``."""
    name = dtype.name
    if name == "float32":
        single, word = struct.Struct("<f"), struct.Struct("<i")

        def pack(value: Any) -> int:
            try:
                return word.unpack(single.pack(value))[0]
            except OverflowError:
                with np.errstate(over="ignore"):
                    return int(np.float32(value).view(np.int32))

        return pack
    if name == "float64":
        double, long = struct.Struct("<d"), struct.Struct("<q")
        return lambda value: long.unpack(double.pack(value))[0]
    if dtype.kind in "biu":
        return lambda value: (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)

    def pack_half(value: Any) -> int:
        with np.errstate(over="ignore"):
            return int(np.asarray(value, dtype.numpy).view(np.uint16))

    return pack_half


def compile_program(
    inputs: Sequence[Node], outputs: Sequence[Node], donate: Sequence[int] = (), target: Target | None = None,
    without: frozenset[str] | None = None,
) -> Program:
    """Compile the graph between ``inputs`` and ``outputs``.

    inputs: nodes whose values are given at each call, as buffers or (0-d) as Python numbers. Evaluated nodes and
        constants that the outputs need besides become part of the program.
    donate: positions of inputs whose memory an output may take over when nobody else holds it.
    without: passes to leave out (see options.py); those that are off at present, by default.
    Raises CompileError.
    """
    collects = gc.isenabled()
    gc.disable()  # nothing here is in cycles, and looking for them takes a quarter of the time
    try:
        return _compile(inputs, outputs, donate, target, options.disabled() if without is None else without)
    finally:
        if collects:
            gc.enable()


def _compile(
    inputs: Sequence[Node], outputs: Sequence[Node], donate: Sequence[int], target: Target | None,
    without: frozenset[str],
) -> Program:
    builder = ValueBuilder(simplify, without)
    values, leaves = import_graph(builder, inputs, outputs)
    fixed = [node.attrs[0] if node.buffer is None else node.buffer for node in leaves]
    donated = set(donate) if "donate" not in without else set()
    fuser = fuse(builder, values, donated)
    plan = make_plan(fuser, values, donated)
    if options.VALIDATE:
        from .validate import validate_plan

        validate_plan(plan)
    return Program(plan, [node.dtype for node in (*inputs, *leaves)], fixed, target or host(), len(inputs))
