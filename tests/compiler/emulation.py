"""Whole programs of the library on a processor that this machine is not.

``with emulated(machine):`` lets everything that is evaluated be compiled for that machine and run by an emulator: the
kernels, the engine's functions and the native driver that calls them. Every buffer has pages of its own between pages
that may not be touched, and ends where its pages do (or begins where they begin), so that an access outside of it, be
it by one byte, raises :class:`Fault`. Fresh buffers are full of NaN.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from pullback.compiler import attention, cache, products, program
from pullback.compiler.llvm import target as targets
from pullback.compiler.llvm.target import Target
from pullback.errors import CompileError
from pullback.runtime import buffers, calling, driver, driver_ir, evaluate, llvm_engine
from pullback.transforms import shortcut, variant
from tests.compiler.elf import load_elf
from tests.compiler.emulators import PAGE, Fault, Processor, new_pages


@dataclass(frozen=True)
class Machine:
    """A processor to compile for. ``triple``: LLVM's name of the architecture; ``name``: Python's."""

    target: Target
    triple: str
    name: str


def _x86(cpu: str, bf16: bool = False) -> Machine:
    """A processor with AVX-512, as ``target.host`` describes it there."""
    target = Target("avx512", 512, cpu, "", True, True, True, has_avx512=True, has_avx512_bf16=bf16)
    return Machine(target, "x86_64-unknown-linux-gnu", "x86_64")


def _arm(cpu: str) -> Machine:
    return Machine(Target("generic128", 128, cpu, "", True, True, True), "aarch64-unknown-linux-gnu", "aarch64")


MACHINES = {
    "skylake-avx512": _x86("skylake-avx512"),
    "znver5": _x86("znver5", bf16=True),
    "sapphirerapids": _x86("sapphirerapids", bf16=True),
    "x86-64-v4": _x86("x86-64-v4"),
    "neoverse-n1": _arm("neoverse-n1"),
    "neoverse-v1": _arm("neoverse-v1"),
    "apple-m1": _arm("apple-m1"),
}


# -- the process, for a while ------------------------------------------------------------------------------------------


class _Engine(llvm_engine._Engine):
    """LLVM for another machine. What it links is for ``processor``."""

    def __init__(self, machine: Machine, processor: Processor | None = None) -> None:
        super().__init__()
        self.llvm.initialize_all_targets()
        self.llvm.initialize_all_asmprinters()
        self.target = self.llvm.Target.from_triple(machine.triple)
        self.cpu, self.features = machine.target.cpu, machine.target.features
        self.processor = processor

    def load_object(self, code: bytes, names: Iterable[str]) -> dict[str, int]:
        if self.processor is None:
            raise CompileError("nothing runs this code")
        return load_elf(code, names, self.processor)


def assembly(machine: Machine, write: Callable[[], str]) -> str:
    """The machine's code for the module that ``write`` gives, as the library would make it there."""
    with mock.patch.object(platform, "machine", lambda: machine.name):
        text = write()
        with mock.patch.object(llvm_engine, "_engine", _Engine(machine)):
            return llvm_engine.emit_assembly(text)


class _Native:
    """The driver's function that runs a program, on the calling thread alone."""

    def __init__(self, processor: Processor, memory: _Memory) -> None:
        self.run_address = llvm_engine.compile_ir(driver_ir.driver_ir(), ["pullback_run"])["pullback_run"]
        self.processor, self.memory = processor, memory

    def run(self, table: int, slots: int) -> int:
        try:
            return self.processor.call(self.run_address, table, slots)
        except Fault as fault:
            fault.add_note(self.memory.describe(fault))
            raise

    def reserve(self) -> int:
        return 0

    def set(self, count: int) -> None:
        pass


class _Memory:
    """Buffers that end where their pages do, or begin where they begin."""

    def __init__(self, processor: Processor, flush: str) -> None:
        self.processor, self.at_end = processor, flush == "end"
        self.blocks: dict[int, int] = {}  # address -> bytes

    def new_block(self, size: int) -> buffers.Block:
        pages = -(-size // PAGE) * PAGE
        start, owner = new_pages(pages + 2 * PAGE)
        start += PAGE
        address = start + (pages - size if self.at_end else 0)
        array = np.frombuffer(owner, np.uint8)
        array[:] = 0xFF
        self.processor.allow(start, pages, True)
        self.blocks[address] = size
        weakref.finalize(array, self._free, address, start, pages).atexit = False
        return address, array

    def _free(self, address: int, start: int, pages: int) -> None:
        del self.blocks[address]
        self.processor.forbid(start, pages)

    def copy(self, array: np.ndarray[Any, Any], copy: bool = False) -> buffers.Buffer:
        return _from_numpy(array, copy=True)

    def describe(self, fault: Fault) -> str:
        place = fault.address
        if place is None:
            return "no access to memory"
        near = min(self.blocks, key=lambda address: max(address - place, place - address - self.blocks[address]))
        return f"the nearest buffer is of {self.blocks[near]} bytes; the access is to byte {place - near} of it"


_from_numpy = buffers.from_numpy
_new_table = driver.NativeTable
_new_slots = program.Program._new_slots


@contextlib.contextmanager
def emulated(machine: Machine, processor: Processor, flush: str = "end") -> Iterator[None]:
    """Compile for ``machine`` and run on ``processor``.

    flush: whether buffers "end" where their pages do, or "start" where they start. Nothing that was compiled before is
    used, and nothing that is compiled meanwhile may be used afterwards: jitted functions are to be made inside.
    """
    memory = _Memory(processor, flush)

    def new_table(words: np.ndarray[Any, Any], scratch_bytes: int) -> driver.NativeTable:
        processor.allow(words.ctypes.data, words.nbytes, False)
        return _new_table(words, scratch_bytes)

    def new_slots(self: program.Program) -> tuple[Any, int]:
        array, address = _new_slots(self)
        processor.allow(address, ctypes.sizeof(array), True)
        return array, address

    replaced: list[tuple[Any, str, Any]] = [
        (targets, "_detect", lambda: machine.target),
        (platform, "machine", lambda: machine.name),
        (cache, "_addresses", {}),
        (evaluate, "_programs", evaluate.Programs(1000)),
        (calling, "_caller", None),
        (buffers, "_size_class", lambda nbytes: max(nbytes, 1)),
        (buffers, "_by_size", {}),
        (buffers, "_free_lists", {}),
        (buffers, "_new_block", memory.new_block),
        *((module, "from_numpy", memory.copy) for module in (buffers, shortcut, variant)),
        (driver, "NativeTable", new_table),
        (program.Program, "_new_slots", new_slots),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(mock.patch.dict(os.environ))
        os.environ.pop(targets.ENVIRONMENT_VARIABLE, None)
        for function in (products._function, attention._function):
            function.cache_clear()
            stack.callback(function.cache_clear)
        stack.enter_context(mock.patch.object(llvm_engine, "_engine", _Engine(machine, processor)))
        stack.enter_context(mock.patch.object(driver, "_native", _Native(processor, memory)))
        yield
