"""Runs vector code on NumPy arrays: one function that loads its operands, computes, and stores its result."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from pullback.compiler.llvm.builder import VectorBuilder
from pullback.compiler.llvm.target import Target, by_target_name, host
from pullback.compiler.llvm.values import STORAGE_SIZE, Value
from pullback.dtypes import by_name

#: the targets that this machine can run
TARGETS = tuple(dict.fromkeys(t.name for t in (by_target_name("generic128"), host())))
if host().name == "avx512":
    TARGETS = ("generic128", "avx2", "avx512")


class Recorder(VectorBuilder):
    """A builder that counts bad indices instead of recording them."""

    def on_bad_index(self, bad: Value, index: Value, size: str | int) -> None:
        pass


def new_machine(target: Target) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.Target.from_default_triple()
    return triple.create_target_machine(cpu=target.cpu, features=target.features, opt=2, codemodel="jitdefault")


machine = cache(new_machine)


def function_text(
    target: Target,
    width: int,
    operands: Sequence[str],
    result: str,
    body: Callable[[VectorBuilder, list[Value]], Value],
    masked: bool = False,
) -> str:
    """``void k(ptr out, i64 n, ptr in0, ptr in1, ...)`` over vectors; ``masked``: every access under the tail's mask.
    Without, n must be a multiple of the width."""
    b = Recorder(width, target)
    mask = None
    if masked:
        b.lines.append("  %left = sub i64 %n, %i")
        mask = b.mask_below("%left")
    args = []
    for k, name in enumerate(operands):
        b.lines.append(f"  %offset{k} = mul i64 %i, {STORAGE_SIZE[name]}")
        b.lines.append(f"  %p{k} = getelementptr i8, ptr %in{k}, i64 %offset{k}")
        args.append(b.load(name, f"%p{k}", mask))
    value = body(b, args)
    b.lines.append(f"  %offset = mul i64 %i, {STORAGE_SIZE[result]}")
    b.lines.append("  %p = getelementptr i8, ptr %out, i64 %offset")
    b.store(result, "%p", value, mask)
    lines = "\n".join(b.lines)
    declares = "\n".join(b.declares.values())
    parameters = ", ".join(f"ptr noalias %in{k}" for k in range(len(operands)))
    return f"""{declares}
define void @k(ptr noalias %out, i64 %n{', ' if operands else ''}{parameters}) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{lines}
  %next = add i64 %i, {width}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def optimised(text: str, target: Target) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    tm = machine(target)
    builder = llvm.create_pass_builder(tm, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    return module


def assembly(text: str, target: Target) -> str:
    return str(machine(target).emit_assembly(optimised(text, target)))


_engines: list[Any] = []


def address(text: str, target: Target) -> int:
    """Where the function ``k`` of a module is, once compiled."""
    engine = llvm.create_mcjit_compiler(optimised(text, target), new_machine(target))  # which then owns the machine
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address("k"))


def compiled(
    target_name: str,
    operands: Sequence[str],
    result: str,
    body: Callable[[VectorBuilder, list[Value]], Value],
    width: int | None = None,
    masked: bool = False,
) -> Callable[..., np.ndarray]:
    """A function of NumPy arrays of the operand dtypes, all of one size, that gives the result array."""
    target = host() if host().name == target_name else by_target_name(target_name)
    lanes = width or max(target.lanes(name) for name in (*operands, result))
    lanes = min(lanes, 16) if width is None else lanes
    text = function_text(target, lanes, operands, result, body, masked)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * len(operands))
    k = kind(address(text, target))

    def run(*arrays: Any, size: int | None = None) -> np.ndarray:
        given = [np.asarray(a, by_name(name).numpy) for a, name in zip(arrays, operands, strict=True)]
        if given:
            given = list(np.broadcast_arrays(*given))
            size = given[0].size
        assert size is not None
        shape = given[0].shape if given else (size,)
        room = size if masked else -(-size // lanes) * lanes
        padded = []
        for a in given:
            p = np.ones(room, a.dtype)
            p[:size] = a.reshape(-1)
            padded.append(p)
        out = np.zeros(room, by_name(result).numpy)
        k(out.ctypes.data, room, *[p.ctypes.data for p in padded])
        return out[:size].reshape(shape)

    return run
