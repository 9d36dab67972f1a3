"""Compiled kernels, by structure: a kernel that was compiled once, in this process or in another before it, is not
compiled again."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from ..graph.state import open_after_fork
from ..runtime import object_cache
from .llvm.kernel import kernel_module
from .llvm.target import Target
from .loops import Kernel

_NAME = "kernel"

_addresses: dict[Any, int] = {}
origins: dict[Any, tuple[str, float]] = {}  # where each kernel's code came from ("llvm" or "disk"), in how many seconds
_lock = open_after_fork(threading.Lock())


def kernel_addresses(kernels: list[Kernel], target: Target) -> dict[int, int]:
    """The native function of each kernel, by ``id``; each that was not seen before is a module of its own."""
    keys = {id(kernel): (target.isa_key, kernel.key) for kernel in kernels}
    with _lock:
        for kernel in kernels:
            key = keys[id(kernel)]
            if key not in _addresses:
                _addresses[key] = _compile(kernel, key, target)
        return {identity: _addresses[key] for identity, key in keys.items()}


def _compile(kernel: Kernel, key: Any, target: Target) -> int:
    start, hits = perf_counter(), object_cache.hit_count()
    found = object_cache.compile_cached(repr(key).encode(), [_NAME], lambda: kernel_module({_NAME: kernel}, target))
    origins[key] = ("disk" if object_cache.hit_count() > hits else "llvm", perf_counter() - start)
    return found[_NAME]
