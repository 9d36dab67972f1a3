"""What the machine allows: its multiply-adds and its copies, measured on all cores; and what a row needs of them."""

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

ROUNDS = 8
CHAINS = 12  # independent accumulators: as many as two units of latency 4 to 5 need, in 16 registers
STEPS = 1 << 20  # of each chain, in one call
TILE = 1 << 18  # bytes of each slice of a copy
LEAST_COPY, MOST_COPY = 1 << 20, 1 << 28
COPY_SECONDS = 0.01  # of one measurement

_engines: list[Any] = []  # which keep their code

_LOOP = """
define void @chains(ptr %out, i64 %steps) {{
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
declare {type} @llvm.fma.{suffix}({type}, {type}, {type})
"""


@dataclass(frozen=True)
class Work:
    """The least that a row must do: ``flops`` additions and multiplications of ``dtype``, ``bytes`` read and written.

    bytes: each input and each result counts once, whatever lies in caches.
    dtype: float32 or float64; what is stored in fewer bits is computed in float32.
    """

    flops: float = 0.0
    bytes: float = 0.0
    dtype: str = "float32"

    def limit(self) -> Limit:
        """What the machine allows."""
        flops_rate, bytes_rate = peak_flops(self.dtype), copy_rate(self.bytes)
        by_flops, by_bytes = self.flops / flops_rate, self.bytes / bytes_rate
        if by_flops >= by_bytes:
            return Limit(by_flops, f"{self.flops / 1e9:.3g} GFLOP at {flops_rate / 1e9:.0f} GFLOP/s")
        return Limit(by_bytes, f"{self.bytes / 1e6:.3g} MB at {bytes_rate / 1e9:.0f} GB/s")


@dataclass(frozen=True)
class Limit:
    """Seconds that no implementation of the same arithmetic can be faster than, and what they come from."""

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
def _chains(dtype: str) -> Callable[[int, int], None]:
    """``(address, steps)``: steps multiply-adds in each of CHAINS registers; the sums go to the address."""
    import llvmlite.binding as llvm

    _, type_, suffix = _vector(dtype)
    phis = [f"  %a{n} = phi {type_} [ zeroinitializer, %entry ], [ %b{n}, %loop ]" for n in range(CHAINS)]
    adds = [
        f"  %b{n} = call {type_} @llvm.fma.{suffix}({type_} %factor, {type_} %a{n}, {type_} %factor)"
        for n in range(CHAINS)
    ]
    stores = []
    for n in range(CHAINS):
        stores += [f"  %p{n} = getelementptr {type_}, ptr %out, i64 {n}", f"  store {type_} %b{n}, ptr %p{n}, align 4"]
    text = _LOOP.format(
        phis="\n".join(phis), adds="\n".join(adds), stores="\n".join(stores), type=type_, suffix=suffix
    )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("chains"))
    _engines.append(engine)
    return function


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


@cache
def peak_flops(dtype: str) -> float:
    """Floating point operations a second of independent multiply-adds in registers, on all cores."""
    chains = _chains(dtype)
    lanes = _vector(dtype)[0]
    memory = [np.zeros(CHAINS * lanes, dtype) for _ in range(_cores())]
    seconds = _on_all_cores(lambda number: chains(memory[number].ctypes.data, STEPS))
    return 2.0 * lanes * CHAINS * STEPS * _cores() / seconds


def copy_rate(size: float) -> float:
    """Bytes a second, read and written, of a copy whose source and destination take ``size`` bytes together.

    So that what fits a cache is measured there. Rounded up to a power of two.
    """
    return _copy_rate(min(max(1 << int(size).bit_length(), LEAST_COPY), MOST_COPY))


@cache
def _copy_rate(size: int) -> float:
    part = size // 2 // _cores()
    sources = [np.ones(part, np.uint8) for _ in range(_cores())]
    destinations = [np.ones(part, np.uint8) for _ in range(_cores())]
    tiles = [slice(start, start + TILE) for start in range(0, part, TILE)]
    repeat = max(1, int(COPY_SECONDS * 50e9 / size))

    def copy(number: int) -> None:
        source, destination = sources[number], destinations[number]
        for _ in range(repeat):
            for tile in tiles:
                np.copyto(destination[tile], source[tile])

    return 2.0 * part * _cores() * repeat / _on_all_cores(copy)
