"""Processors in software: Bochs (``bochscpu``) runs AVX-512, QEMU (``unicorn``) runs AArch64, both in this process.

Memory has the same addresses inside and outside, page for page, but code that is run sees only the pages that it was
given: any other access stops it with a :class:`Fault`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from typing import Any, Protocol

import numpy as np

PAGE = 4096
_WORD = 2**64 - 1
_STACK_BYTES = 1 << 20


class Fault(Exception):
    """What stopped the code. ``address``: of memory that it may not touch, or None."""

    def __init__(self, what: str, address: int | None, counter: int) -> None:
        super().__init__(f"{what}, at the instruction {counter:#x}")
        self.address = address


class Processor(Protocol):
    def allow(self, start: int, nbytes: int, write: bool) -> None:
        """Let code read and execute the pages that hold ``nbytes`` bytes, and write to them if ``write``."""

    def forbid(self, start: int, nbytes: int) -> None:
        """Take the pages away again."""

    def call(self, function: int, *arguments: int) -> int:
        """Call a native function of integers and addresses. Raises Fault."""

    def close(self) -> None:
        """Nothing is called any more."""


def new_pages(nbytes: int) -> tuple[int, mmap.mmap]:
    """Zeroed memory of whole pages: its address, and the object that owns it."""
    memory = mmap.mmap(-1, -(-nbytes // PAGE) * PAGE)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)), memory


def pages_of(start: int, nbytes: int) -> range:
    return range(start & -PAGE, start + nbytes, PAGE)


class _Detours:
    """A way around a fault of Bochs: it does not know gathers and scatters whose index is one of zmm16 to zmm31.

    Such an instruction is replaced by a jump to the same one with an index of zmm0 or zmm1, whose value is kept.
    """

    size = 64 * PAGE
    _OPCODES = (0x90, 0x91, 0x92, 0x93, 0xA0, 0xA1, 0xA2, 0xA3)

    def __init__(self) -> None:
        self.start, self._memory = new_pages(self.size)
        self._used = 64  # the first bytes are for the register that is lent

    def around(self, end: int) -> int | None:
        """Replace the instruction that ends there: where it begins, or None if it is not one of these."""
        for length in (7, 8, 11):
            code = bytearray(ctypes.string_at(end - length, length))
            mode = code[5] >> 6
            fits = length == (7, 8, 11)[mode] if mode < 3 and not (mode == 0 and code[6] & 7 == 5) else length == 11
            if code[0] == 0x62 and code[4] in self._OPCODES and not code[3] & 8 and code[5] & 7 == 4 and fits:
                break
        else:
            return None
        high = not code[1] & 0x40  # bit 3 of the index
        index = code[6] >> 3 & 7 | high << 3  # and 16
        lent = 1 if code[5] >> 3 & 7 == 0 else 0
        code[1] |= 0x40
        code[3] |= 8
        code[6] = code[6] & 0xC7 | lent << 3
        here = self.start + self._used

        def memory_access(opcode: int, at: int) -> bytes:
            """Between the lent register and where it is kept."""
            return bytes((0x62, 0xF1, 0x7C, 0x48, opcode, 5 | lent << 3)) + struct.pack("<i", self.start - (at + 10))

        copy = bytes((0x62, 0x91 | (not high) << 5, 0x7C, 0x48, 0x28, 0xC0 | lent << 3 | index & 7))
        text = memory_access(0x11, here) + copy + bytes(code)
        text += memory_access(0x10, here + len(text))
        text += b"\xe9" + struct.pack("<i", end - (here + len(text) + 5))
        ctypes.memmove(here, text, len(text))
        self._used += len(text)
        ctypes.memmove(end - length, b"\xe9" + struct.pack("<i", here - (end - length + 5)), 5)
        return end - length


class Bochs:
    """A Sapphire Rapids in 64-bit mode: AVX-512 with VNNI, BF16 and FP16."""

    _MODEL = 30  # in Bochs's list of processors; the binding itself offers none of them
    _ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
    _UNKNOWN_INSTRUCTION, _PROTECTION_FAULT, _PAGE_FAULT = 6, 13, 14
    _FAULTS = {0: "division error", 6: "unknown instruction", 13: "protection fault", 16: "x87 error", 19: "SIMD error"}

    def __init__(self) -> None:
        flags = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_LAZY)  # its wheel names functions of a newer C library that it need not call
        try:
            import bochscpu
            import bochscpu.cpu
            import bochscpu.memory
        finally:
            sys.setdlopenflags(flags)
        self._insert = bochscpu.memory.page_insert
        self._choose_model(bochscpu._bochscpu.__file__)
        self._session = bochscpu.Session()
        self._session.missing_page_handler = self._on_missing_page
        self._hook = bochscpu.Hook()
        self._hook.exception = self._on_exception
        self._cpu = self._session.cpu
        self._exception: tuple[int, int, int] | None = None  # vector, address of a page fault, instruction
        self._keep: list[Any] = []
        self._next = 1 << 20  # the next free physical page
        self._tables: dict[tuple[int, int], tuple[int, Any]] = {}  # level, prefix of addresses -> page table
        self._entries: dict[int, int] = {}  # page -> physical page
        self._root = self._new_table()
        self._start(bochscpu)
        stack, memory = new_pages(_STACK_BYTES)
        self.allow(stack, _STACK_BYTES, True)
        self._stack = stack + _STACK_BYTES - 8 - 64
        self._end, end = new_pages(PAGE)  # where functions return to; 0xf4 is HLT, a protection fault for user code
        end[0] = 0xF4
        self.allow(self._end, PAGE, False)
        self._detours = _Detours()
        self.allow(self._detours.start, self._detours.size, True)
        self._keep += [memory, end]

    @classmethod
    def _choose_model(cls, library: str) -> None:
        functions = ctypes.CDLL(library)
        functions.sim_get_param_enum.restype = ctypes.c_void_p
        parameter = ctypes.c_void_p(functions.sim_get_param_enum(b"cpu.model"))
        number = ctypes.c_int64(cls._MODEL)
        functions._ZN14bx_param_num_c9set_rangeEmm(parameter, number, number)
        functions._ZN14bx_param_num_c3setEl(parameter, number)

    def _start(self, bochscpu: Any) -> None:
        state = bochscpu.State()
        bochscpu.cpu.set_long_mode(state)
        state.cr0 |= 1 << 1  # MP
        state.cr4 |= 1 << 9 | 1 << 10 | 1 << 18  # OSFXSR, OSXMMEXCPT, OSXSAVE
        state.xcr0 = 0xE7  # x87, SSE, AVX, mask registers, both halves of AVX-512's state
        state.mxcsr, state.fpcw, state.fptw = 0x1F80, 0x37F, 0xFFFF  # round to nearest, no exceptions, subnormals kept
        state.cr3 = self._root[0]
        for names, selector, attributes in ((("cs",), 0x33, 0x22FB), (("ds", "es", "ss", "fs", "gs"), 0x2B, 0xCF3)):
            segment = bochscpu.Segment()
            segment.present, segment.selector, segment.attr = True, selector, attributes
            segment.base, segment.limit = 0, 0xFFFF_FFFF
            for name in names:
                setattr(state, name, segment)
        self._cpu.state = state

    def _on_exception(self, session: Any, cpu: int, vector: int, code: int) -> None:
        self._exception = vector, self._cpu.cr2, self._cpu.rip
        session.stop()

    def _on_missing_page(self, page: int) -> None:
        raise RuntimeError(f"no memory at the physical address {page:#x}")

    def _new_table(self) -> tuple[int, Any]:
        address, memory = new_pages(PAGE)
        physical, self._next = self._next, self._next + PAGE
        self._insert(physical, address)
        table = np.frombuffer(memory, np.uint64)
        self._keep.append(memory)
        return physical, table

    def _table_of(self, page: int) -> Any:
        """The last page table on the way to ``page``."""
        table = self._root[1]
        for shift in (39, 30, 21):
            key = shift, page >> shift
            if key not in self._tables:
                self._tables[key] = self._new_table()
                table[page >> shift & 511] = self._tables[key][0] | 7  # present, writable, for user code
            table = self._tables[key][1]
        return table

    def allow(self, start: int, nbytes: int, write: bool) -> None:
        known = False
        for page in pages_of(start, nbytes):
            known |= page in self._entries
            if page not in self._entries:
                self._entries[page], self._next = self._next, self._next + PAGE
                self._insert(self._entries[page], page)
            self._table_of(page)[page >> 12 & 511] = self._entries[page] | 5 | 2 * write
        if known:
            self._cpu.set_mode()  # also forgets the translations that it remembers

    def forbid(self, start: int, nbytes: int) -> None:
        if self._cpu is None:
            return
        for page in pages_of(start, nbytes):
            self._table_of(page)[page >> 12 & 511] = 0
        self._cpu.set_mode()

    def call(self, function: int, *arguments: int) -> int:
        cpu = self._cpu
        for name, value in zip(self._ARGUMENTS, arguments):
            setattr(cpu, name, value & _WORD)
        ctypes.c_uint64.from_address(self._stack).value = self._end
        cpu.rsp, cpu.rip = self._stack, function
        while True:
            self._exception = None
            self._session.run([self._hook])
            vector, address, counter = self._exception or (-1, 0, 0)
            start = self._detours.around(counter) if vector == self._UNKNOWN_INSTRUCTION else None
            if start is None:
                break
            self._move(start & -PAGE)
            cpu.rip = start
        if vector == self._PROTECTION_FAULT and counter in (self._end, self._end + 1):
            return int(cpu.rax)
        if vector == self._PAGE_FAULT:
            raise Fault(f"no access to {address:#x}", address, counter)
        code = ctypes.string_at(counter - 16, 16).hex()
        raise Fault(f"{self._FAULTS.get(vector, f'exception {vector}')} at the end of {code}", None, counter)

    def _move(self, page: int) -> None:
        """Forget what was decoded in two pages: it is remembered by their physical addresses."""
        for each in (page, page + PAGE):
            if each in self._entries:
                rights = int(self._table_of(each)[each >> 12 & 511]) & (PAGE - 1)
                self._entries[each], self._next = self._next, self._next + PAGE
                self._insert(self._entries[each], each)
                self._table_of(each)[each >> 12 & 511] = self._entries[each] | rights
        self._cpu.set_mode()

    def close(self) -> None:
        # Python's functions in it are cycles, of which the binding would complain at the end of the process.
        self._session.missing_page_handler = self._hook.exception = _ignore
        self._session = self._hook = self._cpu = None


def _ignore(*arguments: Any) -> None:
    pass


class Unicorn:
    """A 64-bit ARM processor with all extensions that QEMU knows."""

    _SWITCHES = {  # op0, op1, crn, crm, op2 of a system register -> its value
        (3, 0, 1, 0, 2): 3 << 20 | 3 << 16,  # CPACR_EL1
        (3, 6, 1, 1, 2): 1 << 8,  # CPTR_EL3
        (3, 0, 1, 2, 0): 1,  # ZCR_EL1
        (3, 4, 1, 2, 0): 1,  # ZCR_EL2
        (3, 6, 1, 2, 0): 1,  # ZCR_EL3
    }

    def __init__(self) -> None:
        import unicorn
        from unicorn import arm64_const as names

        self._names = names
        self._engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._engine.ctl_set_cpu_model(names.UC_CPU_ARM64_MAX)
        self._unicorn = unicorn
        self._address: int | None = None
        self._engine.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_fault)
        self._allowed: dict[int, bool] = {}
        stack, memory = new_pages(_STACK_BYTES)
        self.allow(stack, _STACK_BYTES, True)
        self._stack = stack + _STACK_BYTES - 64
        self._end, end = new_pages(PAGE)
        self.allow(self._end, PAGE, False)
        self._keep = [memory, end]
        # Vector registers have to be switched on; those of SVE are of 256 bits.
        for register, value in self._SWITCHES.items():
            op0, op1, crn, crm, op2 = register
            self._engine.reg_write(names.UC_ARM64_REG_CP_REG, (crn, crm, op0, op1, op2, value))

    def _set(self, register: int, value: int) -> None:
        self._engine.reg_write(register, value & _WORD)

    def _on_fault(self, engine: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        self._address = address
        return False

    def allow(self, start: int, nbytes: int, write: bool) -> None:
        rights = self._unicorn.UC_PROT_READ | self._unicorn.UC_PROT_EXEC | (self._unicorn.UC_PROT_WRITE if write else 0)
        pages = pages_of(start, nbytes)
        if not any(page in self._allowed for page in pages):
            self._engine.mem_map_ptr(pages.start, len(pages) * PAGE, rights, ctypes.c_void_p(pages.start))
        else:
            for page in pages:
                if page not in self._allowed:
                    self._engine.mem_map_ptr(page, PAGE, rights, ctypes.c_void_p(page))
                elif write != self._allowed[page]:
                    self._engine.mem_protect(page, PAGE, rights)
        self._allowed |= dict.fromkeys(pages, write)

    def forbid(self, start: int, nbytes: int) -> None:
        for page in pages_of(start, nbytes) if self._engine is not None else ():
            if self._allowed.pop(page, None) is not None:
                self._engine.mem_unmap(page, PAGE)

    def call(self, function: int, *arguments: int) -> int:
        names = self._names
        for number, value in enumerate(arguments):
            self._set(names.UC_ARM64_REG_X0 + number, value)
        self._set(names.UC_ARM64_REG_SP, self._stack)
        self._set(names.UC_ARM64_REG_LR, self._end)
        self._address = None
        try:
            self._engine.emu_start(function, self._end)
        except self._unicorn.UcError as error:
            counter = self._engine.reg_read(names.UC_ARM64_REG_PC)
            code = ctypes.string_at(counter, 4).hex()
            raise Fault(f"{error} at {code}", self._address, counter) from None
        return int(self._engine.reg_read(names.UC_ARM64_REG_X0))

    def close(self) -> None:
        self._engine = None
