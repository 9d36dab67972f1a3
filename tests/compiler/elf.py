"""Links object files of x86-64 and AArch64, as far as compiled kernels need it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from typing import Any

from tests.compiler.emulators import Processor, new_pages

_ALLOCATED, _WRITABLE, _NO_BITS, _RELA, _SYMBOLS = 2, 1, 8, 4, 2  # flags and types of sections
_ARM = 183
_TRAP_BYTES = 16  # for each function that is missing
_TRAPS = {_ARM: 0xD4200000, 62: 0xF4F4F4F4}  # BRK; HLT

_kept: list[Any] = []  # compiled code lives as long as the process


def load_elf(code: bytes, names: Iterable[str], processor: Processor) -> dict[str, int]:
    """Lay out an object file in memory and link it: the address of each function in ``names``.

    A call of a function that the file does not hold stops the processor.
    """
    machine, at, count = struct.unpack_from("<H20xQ12xH", code, 18)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, at + 64 * number) for number in range(count)]
    size, offsets = 0, {}
    for number, (_, _, flags, _, _, nbytes, _, _, alignment, _) in enumerate(sections):
        if flags & _ALLOCATED:
            size = -(-size // max(alignment, 1)) * max(alignment, 1)
            offsets[number] = size
            size += nbytes
    traps = -(-size // _TRAP_BYTES) * _TRAP_BYTES
    names_of_symbols = []
    places: list[int | None] = []
    for _, kind, _, _, start, nbytes, link, *_ in sections:
        for entry in range(start, start + nbytes, 24) if kind == _SYMBOLS else ():
            name_at, section, value = struct.unpack_from("<I2xHQ", code, entry)
            first = sections[link][4] + name_at
            names_of_symbols.append(code[first : code.index(b"\0", first)].decode())
            places.append(offsets[section] + value if section in offsets else None)
    base, memory = new_pages(traps + _TRAP_BYTES * len(places))
    _kept.append(memory)
    writable = False
    for number, offset in offsets.items():
        _, kind, flags, _, start, nbytes, *_ = sections[number]
        writable |= bool(flags & _WRITABLE)
        if kind != _NO_BITS:
            ctypes.memmove(base + offset, code[start : start + nbytes], nbytes)
    for number in range(4 * len(places)):
        ctypes.c_uint32.from_address(base + traps + 4 * number).value = _TRAPS[machine]
    own = [traps + _TRAP_BYTES * number if place is None else place for number, place in enumerate(places)]
    addresses = [base + place for place in own]
    for _, kind, _, _, start, nbytes, _, info, *_ in sections:
        for entry in range(start, start + nbytes, 24) if kind == _RELA and info in offsets else ():
            offset, what, addend = struct.unpack_from("<QQq", code, entry)
            relocate = _relocate_arm if machine == _ARM else _relocate_x86
            relocate(what & 0xFFFFFFFF, base + offsets[info] + offset, addresses[what >> 32] + addend)
    processor.allow(base, traps + _TRAP_BYTES * len(places), writable)
    found = dict(zip(names_of_symbols, addresses))
    return {name: found[name] for name in names}


def _put(place: int, code: str, number: int) -> None:
    ctypes.memmove(place, struct.pack(code, number), struct.calcsize(code))


def _relocate_x86(kind: int, place: int, value: int) -> None:
    """Let the word at ``place`` speak of the address ``value``."""
    match kind:
        case 1:  # 64
            _put(place, "<Q", value)
        case 2 | 4:  # PC32, PLT32
            _put(place, "<i", value - place)
        case 24:  # PC64
            _put(place, "<q", value - place)
        case _:
            raise NotImplementedError(f"relocation {kind} of x86-64")


def _relocate_arm(kind: int, place: int, value: int) -> None:
    """Let the word or instruction at ``place`` speak of the address ``value``."""

    def field(bits: int, mask: int) -> None:
        word = ctypes.c_uint32.from_address(place)
        word.value = word.value & ~mask | bits & mask

    match kind:
        case 257:  # ABS64
            _put(place, "<Q", value)
        case 260:  # PREL64
            _put(place, "<q", value - place)
        case 261:  # PREL32
            _put(place, "<i", value - place)
        case 275:  # ADR_PREL_PG_HI21
            pages = (value >> 12) - (place >> 12)
            field((pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5, 0x60FFFFE0)
        case 277 | 278 | 284 | 285 | 286 | 299:  # the low 12 bits: ADD, LDST8, LDST16, LDST32, LDST64, LDST128
            shift = {284: 1, 285: 2, 286: 3, 299: 4}.get(kind, 0)
            field((value & 0xFFF) >> shift << 10, 0x3FFC00)
        case 282 | 283:  # JUMP26, CALL26
            field((value - place) >> 2, 0x3FFFFFF)
        case _:
            raise NotImplementedError(f"relocation {kind} of AArch64")
