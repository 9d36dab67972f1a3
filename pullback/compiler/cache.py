"""Compiled kernels, by structure: a kernel that was compiled once in this process is never compiled again."""

from __future__ import annotations

import threading
from typing import Any

from ..graph.state import open_after_fork
from ..runtime import llvm_engine
from .llvm.kernel import kernel_module
from .llvm.target import Target
from .loops import Kernel

_addresses: dict[Any, int] = {}
_lock = open_after_fork(threading.Lock())


def kernel_addresses(kernels: list[Kernel], target: Target) -> dict[int, int]:
    """The native function of each kernel, by ``id``; those not seen before are compiled, in one module."""
    keys = {id(kernel): (target.isa_key, kernel.key) for kernel in kernels}
    with _lock:
        missing: dict[Any, Kernel] = {}
        for kernel in kernels:
            key = keys[id(kernel)]
            if key not in _addresses:
                missing.setdefault(key, kernel)
        if missing:
            named = {f"kernel{number}": kernel for number, kernel in enumerate(missing.values())}
            found = llvm_engine.compile_ir(kernel_module(named, target), list(named))
            for name, key in zip(named, missing, strict=True):
                _addresses[key] = found[name]
        return {identity: _addresses[key] for identity, key in keys.items()}
