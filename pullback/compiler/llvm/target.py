"""The instruction set that kernels are written for.

A :class:`Target` fixes the vector width and the few properties of a processor that change the code we emit. Kernels
for a target are named by :attr:`Target.isa_key`, so compiled code of one target is never used for another.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache

from ...dtypes import by_name
from ...errors import CompileError

ENVIRONMENT_VARIABLE = "PULLBACK_TARGET"
NAMES = ("avx512", "avx2", "generic128")


@dataclass(frozen=True)
class Target:
    """One instruction set.

    vector_bits: the width of a vector register.
    cpu, features: for LLVM's target machine; empty features mean those of ``cpu``.
    has_fma: fused multiply-add in hardware. Without it ``llvm.fma`` would become a library call a lane, so the
        builder multiplies and adds.
    has_round: instructions that round a vector to integers (SSE4.1, NEON).
    has_f16c: instructions that convert vectors between half and float.
    has_avx512: AVX-512 F, BW, DQ and VL: masked byte loads, ``vscalefps``, 64-bit integer conversion.
    has_avx512_bf16: ``vdpbf16ps``, which adds the products of pairs of bfloat16 to a float32.
    """

    name: str
    vector_bits: int
    cpu: str
    features: str
    has_fma: bool
    has_round: bool
    has_f16c: bool
    has_avx512: bool = False
    has_avx512_bf16: bool = False

    @property
    def is_x86(self) -> bool:
        return _is_x86()

    @property
    def multiplies_pairs(self) -> bool:
        """Whether one instruction multiplies pairs of int16 and adds the two products (``vpmaddwd``)."""
        return self.is_x86 and self.vector_bits >= 256

    @property
    def isa_key(self) -> str:
        """The properties that change the emitted code, as text."""
        flags = (self.has_fma, self.has_round, self.has_f16c, self.has_avx512, self.has_avx512_bf16)
        return f"{self.name}-{self.vector_bits}-" + "".join("1" if flag else "0" for flag in flags)

    def lanes(self, dtype_name: str) -> int:
        """How many elements of the dtype one vector register holds (float16 and bfloat16 are held as float32)."""
        itemsize = 4 if dtype_name in ("float16", "bfloat16") else by_name(dtype_name).itemsize
        return max(1, self.vector_bits // (8 * itemsize))


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


@cache
def by_target_name(name: str) -> Target:
    """The target called ``name``, with code that every processor of that class runs.

    Raises CompileError for a name that is not one of ``NAMES``.
    """
    if name == "avx512":
        return Target(name, 512, "x86-64-v4", "", has_fma=True, has_round=True, has_f16c=True, has_avx512=True)
    if name == "avx2":
        return Target(name, 256, "x86-64-v3", "", has_fma=True, has_round=True, has_f16c=True)
    if name == "generic128":
        if _is_x86():
            return Target(name, 128, "x86-64", "", has_fma=False, has_round=False, has_f16c=False)
        arm = platform.machine().lower() in ("aarch64", "arm64")
        return Target(name, 128, "generic", "", has_fma=arm, has_round=arm, has_f16c=arm)
    raise CompileError(f"unknown target {name!r}: {ENVIRONMENT_VARIABLE} must be one of {', '.join(NAMES)}")


@cache
def _detect() -> Target:
    """The best target that this processor runs, tuned for it."""
    import llvmlite.binding as llvm

    if not _is_x86():
        generic = by_target_name("generic128")
        return Target(
            generic.name, generic.vector_bits, llvm.get_host_cpu_name(), "",
            generic.has_fma, generic.has_round, generic.has_f16c,
        )  # fmt: skip
    features = llvm.get_host_cpu_features()

    def has(*names: str) -> bool:
        return all(features.get(name, False) for name in names)

    fma, rounding, f16c = has("fma"), has("sse4.1"), has("f16c")
    cpu, flat = llvm.get_host_cpu_name(), features.flatten()
    if has("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"):
        return Target(
            "avx512", 512, cpu, flat, fma, rounding, f16c, has_avx512=True, has_avx512_bf16=has("avx512bf16")
        )
    if has("avx2", "fma"):
        return Target("avx2", 256, cpu, flat, fma, rounding, f16c)
    return Target("generic128", 128, cpu, flat, fma, rounding, f16c)


def host() -> Target:
    """The target that kernels of this process are made for: the processor's own, or the one that the environment
    variable ``PULLBACK_TARGET`` names.

    Raises CompileError if the variable holds an unknown name, or one whose code this processor does not run.
    """
    name = os.environ.get(ENVIRONMENT_VARIABLE, "")
    detected = _detect()
    if name in ("", detected.name):
        return detected
    target = by_target_name(name)
    if target.vector_bits > detected.vector_bits:
        raise CompileError(
            f"{ENVIRONMENT_VARIABLE}={name}: this processor does not run {name} code; unset the variable, or choose "
            f"one of {', '.join(NAMES[NAMES.index(detected.name):])}"
        )
    return target
