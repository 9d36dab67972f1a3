"""Program: a compiled graph, ready to run any number of times.

``compile_program`` turns the graph between input and output nodes into native launches; calling the program runs
them. One ``slots`` array a call holds every address that kernels need: the error record, the scratch memory, the arena,
the inputs (numbers live in the array itself) and the outputs.
"""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Callable, Sequence
from sys import getrefcount
from time import perf_counter
from typing import Any

import numpy as np

from ..errors import CompileError
from ..graph.node import Node
from ..graph.state import describe_site
from ..runtime import driver
from ..runtime.buffers import Buffer, allocate
from . import options
from .cache import kernel_addresses
from .contraction import ContractionPlan
from .fuse import fuse
from .llvm.layout import ParameterLayout, column_block, walk_scratch
from .llvm.target import Target, host
from .llvm.values import STORAGE_SIZE
from .loops import Kernel
from .memory import late_outputs
from .plan import Plan, Step, make_plan, task_counts
from .simplify import simplify
from .products import Follow
from .values import Value, ValueBuilder, import_graph

ERROR, SCRATCH, ARENA, NULL, FIRST_INPUT = 0, 1, 2, 3, 4  # slots; NULL holds 0
ERROR_WORDS = 4
UNSHARED = 3  # references to a buffer that only its node and the caller's list hold, plus getrefcount's own


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


class Program:
    """A callable: buffers and Python numbers in, buffers out.

    inputs: for each input node its buffer, or for a 0-d one a Python number. Outputs come in the order of the output
    nodes; an output that is an input is that input's buffer. Thread-safe.
    """

    __slots__ = (
        "_arena_bytes", "_fixed", "_free", "_host_steps", "_in_order", "_input_count", "_numbers", "_output_bytes",
        "_outputs", "_pack_inputs", "_pack_outputs", "_run", "_segments", "_sites", "_slot_count", "_step_tables",
        "_target", "donations", "kernels", "plan",
    )  # fmt: skip

    def __init__(self, plan: Plan, dtypes: list[Any], fixed: list[Any], target: Target, input_count: int) -> None:
        self.plan = plan
        self._fixed = fixed
        self._target = target
        self._input_count = input_count
        self._numbers = [_bit_packer(dtype) for dtype in dtypes]
        self.donations = plan.donations
        count = input_count + len(fixed)
        self._slot_count = FIRST_INPUT + count
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
        self._pack_inputs = struct.Struct(f"={input_count}q").pack_into
        self._pack_outputs = struct.Struct(f"={len(self._output_bytes)}q").pack_into
        self._sites: list[Site] = []
        self.kernels = [step.kernel for step in plan.steps if step.kernel is not None]
        addresses = kernel_addresses(self.kernels, target)
        self._segments, self._host_steps, scratch = self._link(addresses)
        self._arena_bytes = plan.arena_bytes + scratch
        self._run = driver.runner()
        self._step_tables: list[driver.NativeTable | None] | None = None
        self._free: list[tuple[Any, int]] = []

    @property
    def spare_outputs(self) -> frozenset[int]:
        """Positions of outputs, no two in one buffer, that may be written over what a failure would have to leave."""
        late = set(late_outputs(self.plan.steps, self.plan.places)) - set(self.donations)
        return frozenset(self._outputs.index((True, number)) for number in late)

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
            return FIRST_INPUT + value.attrs[0], 0
        where, number = self.plan.places[value.id]
        if where == "output":
            return self._slot_count + number, 0
        return ARENA, number

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
        total, grain = task_counts(kernel, block)
        return driver.Launch(address, params, total, grain, scratch)

    def _product_launch(self, plan: ContractionPlan, step: Step, addresses: dict[int, int]) -> driver.Launch:
        value = step.group.target
        if value is None:
            raise CompileError(f"step {step.number} is a product of nothing")
        only = step.kernel is not None and value not in step.writes
        places = [(NULL, 0) if only else self.slot_of(value)]
        for operand in (plan.right, plan.left):
            slot, start = self.slot_of(operand.base)
            places.insert(0, (slot, start + operand.offset * operand.base.dtype.itemsize))
        follow = None
        if step.kernel is not None:
            params = self._kernel_launch(step.kernel, addresses[id(step.kernel)]).params
            follow = Follow.of(step.kernel, addresses[id(step.kernel)], list(params), value, only)
        return plan.launch(value.dtype, places, self._target, follow)

    # -- running ------------------------------------------------------------------------------------------------------

    def _new_slots(self) -> tuple[Any, int]:
        """A slots array with its constant entries filled in, and its address."""
        count = self._slot_count + len(self._output_bytes)
        inputs = self._input_count + len(self._fixed)
        array = (ctypes.c_int64 * (count + ERROR_WORDS + inputs))()
        address = ctypes.addressof(array)
        array[ERROR] = address + 8 * count
        for position in range(inputs):
            array[FIRST_INPUT + position] = address + 8 * (count + ERROR_WORDS + position)
        for position, value in enumerate(self._fixed, self._input_count):
            self._put(array, address, position, value)
        return array, address

    def _put(self, array: Any, address: int, position: int, value: Any) -> None:
        if type(value) is Buffer:
            array[FIRST_INPUT + position] = value.address
            return
        number = self._slot_count + len(self._output_bytes) + ERROR_WORDS + position
        array[FIRST_INPUT + position] = address + 8 * number
        array[number] = self._numbers[position](value)

    def __call__(
        self, inputs: Sequence[Any], record: Record | None = None, spare: dict[int, Buffer] | None = None
    ) -> list[Buffer]:
        """record: run one step after the other and report each to it.

        spare: memory for outputs, by position, that only the caller can see; for some of ``spare_outputs``.
        """
        if _observer is not None and record is None:
            return _observer(self, inputs)
        try:
            slots = self._free.pop()
        except IndexError:
            slots = self._new_slots()
        array, address = slots
        try:
            self._pack_inputs(array, 8 * FIRST_INPUT, *[value.address for value in inputs])
        except AttributeError:  # there are numbers among them
            for position, value in enumerate(inputs):
                self._put(array, address, position, value)
            value = None  # no reference of ours may count below
        if self.donations or spare:
            fresh = self._take_over(inputs, spare or {})
        else:
            fresh = [allocate(nbytes) for nbytes in self._output_bytes]
        self._pack_outputs(array, 8 * self._slot_count, *[buffer.address for buffer in fresh])
        if self._arena_bytes:
            arena = allocate(self._arena_bytes)
            array[ARENA] = arena.address
            array[SCRATCH] = arena.address + self.plan.arena_bytes
        if record is not None:
            self._run_recorded(array, address, record)
        elif self._host_steps:
            self._run_segments(array, address)
        elif self._run(self._segments[0].address, address):
            driver.start_workers()
        if self._sites:
            error = self._slot_count + len(self._output_bytes)
            if array[error]:
                _, site, index, size = array[error : error + ERROR_WORDS]
                array[error] = 0
                self._free.append(slots)
                raise self._sites[site].error(index, size)
        self._free.append(slots)
        if self._in_order:
            return fresh
        return [fresh[number] if made else self._input(inputs, number) for made, number in self._outputs]

    def _run_recorded(self, array: Any, address: int, record: Record) -> None:
        error = self._slot_count + len(self._output_bytes)
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

    def _take_over(self, inputs: Sequence[Any], spare: dict[int, Buffer]) -> list[Buffer]:
        """Buffers for the outputs: spare ones, those of donated inputs that nobody else holds, and new ones."""
        given = {}
        for position, buffer in spare.items():
            made, number = self._outputs[position]
            if made and buffer.nbytes == self._output_bytes[number] and buffer.owned:
                given[number] = buffer
        fresh = []
        for number, nbytes in enumerate(self._output_bytes):
            source = self.donations.get(number)
            if source is not None and getrefcount(inputs[source]) <= UNSHARED and inputs[source].owned:
                fresh.append(inputs[source])
            else:
                fresh.append(given[number] if number in given else allocate(nbytes))
        return fresh

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
        error = self._slot_count + len(self._output_bytes)
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
    fuser = fuse(builder, values)
    plan = make_plan(fuser, values, set(donate) if "donate" not in without else set())
    if options.VALIDATE:
        from .validate import validate_plan

        validate_plan(plan)
    return Program(plan, [node.dtype for node in (*inputs, *leaves)], fixed, target or host(), len(inputs))
