"""The call from Python into a program: a builtin function of our own, or ctypes where the interpreter hides its names.

A foreign call through ctypes costs about as much as a whole small kernel: it converts each argument by its declared
type, and the addresses have to be packed into an array first, through the buffer protocol. ``pullback_call`` is a
function of CPython's own calling convention (``METH_FASTCALL``), compiled by LLVM as kernels are, which takes the
addresses as plain integers and lays them out on its stack. It uses functions of the stable ABI only and looks into no
object, so it does not depend on the interpreter's version. It gives up the interpreter lock while the program runs.

``call(record, *addresses, *numbers) -> 0 | 1 | bytes``

* record: address of a program's *record*, see :func:`make_record`.
* addresses: what goes into the slots from ``first`` on, as many as the record says.
* numbers: pairs of a slot and the 64 bits whose address it gets.
* 0: it ran. 1: it ran, and asks for ``driver.start_workers()``. bytes: the error record of the check that failed.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import CompileError
from ..graph.state import open_after_fork
from . import object_cache

ERROR_WORDS = 4
MAX_SLOTS = 1 << 10  # on the stack; a program with more is called through ctypes

_METH_FASTCALL = 0x80
_HEADER_WORDS = 6  # run, table, slots, first slot of the addresses, their number, offset of the scratch in the arena

_TEXT = """
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyErr_Occurred()
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @pullback_call(ptr %self, ptr %args, i64 %nargs) {
entry:
  %first.arg = load ptr, ptr %args
  %record.n = call i64 @PyLong_AsLongLong(ptr %first.arg)
  %record = inttoptr i64 %record.n to ptr
  %run = load ptr, ptr %record
  %table.p = getelementptr i64, ptr %record, i64 1
  %table = load ptr, ptr %table.p
  %count.p = getelementptr i64, ptr %record, i64 2
  %count = load i64, ptr %count.p
  %first.p = getelementptr i64, ptr %record, i64 3
  %first = load i64, ptr %first.p
  %addresses.p = getelementptr i64, ptr %record, i64 4
  %addresses = load i64, ptr %addresses.p
  %offset.p = getelementptr i64, ptr %record, i64 5
  %offset = load i64, ptr %offset.p
  %template = getelementptr i64, ptr %record, i64 $HEADER

  %error = alloca [$ERROR_WORDS x i64], align 16
  store [$ERROR_WORDS x i64] zeroinitializer, ptr %error
  %slots = alloca i64, i64 %count, align 16
  %bytes = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %template, i64 %bytes, i1 false)
  store ptr %error, ptr %slots
  %numbers = alloca i64, i64 %nargs, align 16
  %addresses.end = add i64 %addresses, 1
  %target0 = getelementptr i64, ptr %slots, i64 %first
  br label %next

next:
  %i = phi i64 [ 1, %entry ], [ %i1, %address ]
  %more = icmp slt i64 %i, %addresses.end
  br i1 %more, label %address, label %next.number
address:
  %arg.p = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.p
  %value = call i64 @PyLong_AsLongLong(ptr %arg)
  %place = sub i64 %i, 1
  %target = getelementptr i64, ptr %target0, i64 %place
  store i64 %value, ptr %target
  %i1 = add i64 %i, 1
  br label %next

next.number:
  %k = phi i64 [ %addresses.end, %next ], [ %k2, %number ]
  %left = icmp slt i64 %k, %nargs
  br i1 %left, label %number, label %check
number:
  %slot.p = getelementptr ptr, ptr %args, i64 %k
  %slot.arg = load ptr, ptr %slot.p
  %slot = call i64 @PyLong_AsLongLong(ptr %slot.arg)
  %k1 = add i64 %k, 1
  %bits.p = getelementptr ptr, ptr %args, i64 %k1
  %bits.arg = load ptr, ptr %bits.p
  %bits = call i64 @PyLong_AsLongLong(ptr %bits.arg)
  %number.p = getelementptr i64, ptr %numbers, i64 %k
  store i64 %bits, ptr %number.p
  %slot.target = getelementptr ptr, ptr %slots, i64 %slot
  store ptr %number.p, ptr %slot.target
  %k2 = add i64 %k1, 1
  br label %next.number

check:
  %raised = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %raised, null
  br i1 %fine, label %go, label %fail
fail:
  ret ptr null

go:
  %arena.p = getelementptr i64, ptr %slots, i64 3
  %arena = load i64, ptr %arena.p
  %scratch = add i64 %arena, %offset
  %scratch.p = getelementptr i64, ptr %slots, i64 1
  store i64 %scratch, ptr %scratch.p
  %thread = call ptr @PyEval_SaveThread()
  %status = call i64 %run(ptr %table, ptr %slots)
  call void @PyEval_RestoreThread(ptr %thread)
  %flag = load i64, ptr %error
  %good = icmp eq i64 %flag, 0
  br i1 %good, label %done, label %bad
done:
  %number.result = call ptr @PyLong_FromLong(i64 %status)
  ret ptr %number.result
bad:
  %error.bytes = call ptr @PyBytes_FromStringAndSize(ptr %error, i64 $ERROR_BYTES)
  ret ptr %error.bytes
}
"""


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_UNKNOWN: Any = object()
_caller: Callable[..., Any] | None = _UNKNOWN
_definition = _MethodDefinition()  # of the one function that is made; it must outlive it
_lock = open_after_fork(threading.Lock())


def make_record(
    run: int, table: int, slots: int, addresses: dict[int, int], numbers: dict[int, int], first: int, given: int,
    scratch: int,
) -> np.ndarray[Any, Any]:
    """A program as ``call`` takes it; keep it alive while it runs.

    run: address of the driver's function.   table: of the program's launches.   slots: how many.
    addresses, numbers: by slot, what is the same at each call: addresses, and the bits of numbers.
    first, given: the slots that are filled at each call.   scratch: where in the arena the scratch memory begins.
    """
    words = [run, table, slots, first, given, scratch, *[0] * slots, *numbers.values()]
    record = np.array(words, np.int64)
    for slot, address in addresses.items():
        record[_HEADER_WORDS + slot] = address
    for number, slot in enumerate(numbers):
        record[_HEADER_WORDS + slot] = record.ctypes.data + 8 * (_HEADER_WORDS + slots + number)
    return record


def caller() -> Callable[..., Any] | None:
    """The builtin function, or None where the interpreter does not show its own functions to others."""
    global _caller
    if _caller is _UNKNOWN:
        with _lock:
            if _caller is _UNKNOWN:
                _caller = _make()
    return _caller


def kind() -> str:
    """How programs are called: ``"builtin"`` or ``"ctypes"``."""
    return "ctypes" if caller() is None else "builtin"


def _make() -> Callable[..., Any] | None:
    if sys.implementation.name != "cpython":
        return None
    text = _TEXT
    for name, value in (("$HEADER", _HEADER_WORDS), ("$ERROR_WORDS", ERROR_WORDS), ("$ERROR_BYTES", 8 * ERROR_WORDS)):
        text = text.replace(name, str(value))
    try:
        address = object_cache.compile_text(text, ["pullback_call"], quick=True)["pullback_call"]
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        new = prototype(("PyCFunction_NewEx", ctypes.pythonapi))
    except (CompileError, AttributeError):
        return None
    _definition.name, _definition.function, _definition.flags = b"pullback_call", address, _METH_FASTCALL
    function: Callable[..., Any] = new(ctypes.addressof(_definition), None, None)
    return function
