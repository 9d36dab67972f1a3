"""What the machine allows: multiply-adds, reads and copies, measured on all cores; and what a row needs of them."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

ROUNDS = 12  # of a measurement, of which the fastest counts
CHAINS = 12  # independent accumulators: as many as two units of latency 4 to 5 need, in 16 registers
STEPS = 1 << 20  # of each chain, in one call
TILE = 1 << 18  # bytes of each slice of a copy
LEAST_MEASURED, MOST_MEASURED = 1 << 20, 1 << 28  # bytes that lie in memory
SECONDS = 0.01  # of one measurement of reading or copying

_engines: list[Any] = []  # which keep their code
_fastest: dict[Any, float] = {}  # rate of each measurement: each row measures again, and the fastest so far counts

_CODE = """
define void @multiply_add(ptr %out, i64 %steps) {{
entry:
  %factor = load {type}, ptr %out, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{adds}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}

define void @read(ptr %out, ptr %in, i64 %steps) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
  %first = mul i64 %i, {chains}
{reads}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
declare {type} @llvm.fma.{suffix}({type}, {type}, {type})
"""


@dataclass(frozen=True)
class Work:
    """The least that a row must do: ``flops`` additions and multiplications of ``dtype``, bytes read and written.

    Each input and each result counts once, whatever lies in caches.
    dtype: float32 or float64; what is stored in fewer bits is computed in float32.
    """

    flops: float = 0.0
    read: float = 0.0
    written: float = 0.0
    dtype: str = "float32"

    def limit(self) -> Limit:
        """What the machine allows."""
        rate = peak_flops(self.dtype)
        by_flops = Limit(self.flops / rate, f"{self.flops / 1e9:.3g} GFLOP at {rate / 1e9:.0f} GFLOP/s")
        size = self.read + self.written
        copied = min(self.read, self.written)
        seconds = 2 * copied / copy_rate(size) + (self.read - copied) / read_rate(size)
        seconds += (self.written - copied) / copy_rate(size)
        by_bytes = Limit(seconds, f"{size / 1e6:.3g} MB at {size / max(seconds, 1e-12) / 1e9:.0f} GB/s")
        return max(by_flops, by_bytes, key=lambda limit: limit.seconds)


@dataclass(frozen=True)
class Limit:
    """Seconds that the same arithmetic needs at least on this machine, and what they come from."""

    seconds: float
    why: str


def _vector(dtype: str) -> tuple[int, str, str]:
    """Lanes of the widest register, the LLVM type of a register and the suffix of its intrinsics."""
    from .machine import vector_flags

    flags = vector_flags()
    bits = 512 if "avx512f" in flags else 256 if "avx" in flags else 128
    lanes = bits // (32 if dtype == "float32" else 64)
    return lanes, f"<{lanes} x {'float' if dtype == 'float32' else 'double'}>", f"v{lanes}f{bits // lanes}"


@cache
def _compiled(dtype: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """``multiply_add(out, steps)``: one in each of CHAINS registers a step; ``read(out, address, steps)``: one load."""
    import llvmlite.binding as llvm

    _, vector, suffix = _vector(dtype)
    numbers = range(CHAINS)
    fma = f"call {vector} @llvm.fma.{suffix}"
    reads, stores = [], []
    for n in numbers:
        reads += [
            f"  %j{n} = add i64 %first, {n}", f"  %p{n} = getelementptr {vector}, ptr %in, i64 %j{n}",
            f"  %v{n} = load {vector}, ptr %p{n}, align 4", f"  %b{n} = fadd {vector} %a{n}, %v{n}",
        ]  # fmt: skip
        stores.append(f"  %q{n} = getelementptr {vector}, ptr %out, i64 {n}")
        stores.append(f"  store {vector} %b{n}, ptr %q{n}, align 4")
    text = _CODE.format(
        phis="\n".join(f"  %a{n} = phi {vector} [ zeroinitializer, %entry ], [ %b{n}, %loop ]" for n in numbers),
        adds="\n".join(f"  %b{n} = {fma}({vector} %factor, {vector} %a{n}, {vector} %factor)" for n in numbers),
        reads="\n".join(reads), stores="\n".join(stores), type=vector, suffix=suffix, chains=CHAINS,
    )  # fmt: skip
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    _engines.append(engine)
    multiply_add = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    read = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return multiply_add(engine.get_function_address("multiply_add")), read(engine.get_function_address("read"))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_all_cores(work: Callable[[int], Any]) -> float:
    """Seconds until ``work(number)`` has ended in a thread a core, fastest of ROUNDS."""
    best = float("inf")
    for _ in range(ROUNDS):
        barrier = threading.Barrier(_cores() + 1)

        def body(number: int, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            work(number)
            barrier.wait()

        threads = [threading.Thread(target=body, args=(number,)) for number in range(_cores())]
        for thread in threads:
            thread.start()
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        best = min(best, time.perf_counter() - start)
        for thread in threads:
            thread.join()
    return best


def _at_least(key: Any, rate: float) -> float:
    """The fastest rate measured so far under ``key``."""
    _fastest[key] = max(rate, _fastest.get(key, 0.0))
    return _fastest[key]


def peak_flops(dtype: str) -> float:
    """Floating point operations a second of independent multiply-adds in registers, on all cores."""
    multiply_add = _compiled(dtype)[0]
    lanes = _vector(dtype)[0]
    memory = [np.zeros(CHAINS * lanes, dtype) for _ in range(_cores())]
    seconds = _on_all_cores(lambda number: multiply_add(memory[number].ctypes.data, STEPS))
    return _at_least(dtype, 2.0 * lanes * CHAINS * STEPS * _cores() / seconds)


def copy_rate(size: float) -> float:
    """Bytes a second, read and written, of a copy whose source and destination take ``size`` bytes together.

    So that what fits a cache is measured there.
    """
    size = _rounded(size)
    return _at_least(("copy", size), _copy_rate(size))


def read_rate(size: float) -> float:
    """Bytes a second of reading ``size`` bytes."""
    size = _rounded(size)
    return _at_least(("read", size), _read_rate(size))


def _rounded(size: float) -> int:
    """Up to a power of two within what is measured."""
    return min(max(1 << max(int(size) - 1, 0).bit_length(), LEAST_MEASURED), MOST_MEASURED)


def _repeats(size: int) -> int:
    return max(1, int(SECONDS * 50e9 / size))


def _copy_rate(size: int) -> float:
    part, repeats = size // 2 // _cores(), _repeats(size)
    sources = [np.ones(part, np.uint8) for _ in range(_cores())]
    destinations = [np.ones(part, np.uint8) for _ in range(_cores())]
    tiles = [slice(start, start + TILE) for start in range(0, part, TILE)]

    def copy(number: int) -> None:
        source, destination = sources[number], destinations[number]
        for _ in range(repeats):
            for tile in tiles:
                np.copyto(destination[tile], source[tile])

    return 2.0 * part * _cores() * repeats / _on_all_cores(copy)


def _read_rate(size: int) -> float:
    read, lanes = _compiled("float32")[1], _vector("float32")[0]
    steps, repeats = size // _cores() // (4 * lanes * CHAINS), _repeats(size)
    memory = [np.ones(steps * lanes * CHAINS, np.float32) for _ in range(_cores())]
    sums = [np.empty(lanes * CHAINS, np.float32) for _ in range(_cores())]

    def work(number: int) -> None:
        for _ in range(repeats):
            read(sums[number].ctypes.data, memory[number].ctypes.data, steps)

    return 4.0 * lanes * CHAINS * steps * _cores() * repeats / _on_all_cores(work)
