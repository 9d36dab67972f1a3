"""Values in vector registers: their types and how LLVM spells them.

Registers hold one of the *register dtypes* i1 (a mask, or a bool), i8..i64, u8..u64, f32 and f64. Memory holds *storage
dtypes*, which are the names of :mod:`pullback.dtypes`: float16 and bfloat16 are widened to f32 as they are loaded, and
bool is a byte that is 0 or 1.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np


class Value(NamedTuple):
    """A vector in the code being written: an SSA name or a constant, and its register dtype."""

    ref: str
    dtype: str


LLVM_TYPE = {
    "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "f32": "float", "f64": "double",
}  # fmt: skip
BITS = {name: {"float": 32, "double": 64}.get(kind) or int(kind[1:]) for name, kind in LLVM_TYPE.items()}

#: storage dtype -> register dtype
REGISTER = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64",
}  # fmt: skip
#: storage dtype -> LLVM type in memory
STORAGE_TYPE = {name: LLVM_TYPE[register] for name, register in REGISTER.items()} | {
    "bool": "i8", "float16": "i16", "bfloat16": "i16",
}  # fmt: skip
#: storage dtype -> bytes an element
STORAGE_SIZE = {
    name: {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}[kind] for name, kind in STORAGE_TYPE.items()
}

#: the suffix of overloaded intrinsics
SUFFIX = {name: {"float": "f32", "double": "f64"}.get(t, t) for name, t in LLVM_TYPE.items()}


def is_float(dtype: str) -> bool:
    return dtype[0] == "f"


def is_signed(dtype: str) -> bool:
    """A signed integer of at least 8 bits."""
    return dtype[0] == "i" and dtype != "i1"


def literal(value: float | int | bool, dtype: str) -> str:
    """An LLVM literal of a register dtype; floats exactly (f32: rounded once), integers modulo their width."""
    if dtype == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if dtype == "f32":
        with np.errstate(over="ignore"):
            single = np.float32(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(single)))[0]:016X}"
    if dtype == "i1":
        return "true" if value else "false"
    return str(int(value) & ((1 << BITS[dtype]) - 1))
