"""Compiled kernels, by structure: a kernel that was compiled once, in this process or in another before it, is not
compiled again. What has to be compiled is, by several threads at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from ..graph.state import open_after_fork
from ..runtime import object_cache
from ..runtime.driver import get_num_threads
from .llvm.kernel import kernel_module
from .llvm.target import Target
from .loops import Kernel

_NAMES = ["kernel"]

_addresses: dict[Any, int] = {}
origins: dict[Any, tuple[str, float]] = {}  # where each kernel's code came from ("llvm" or "disk"), in how many seconds
_lock = open_after_fork(threading.Lock())


def kernel_addresses(
    kernels: list[Kernel], target: Target, others: Sequence[Callable[[], object]] = ()
) -> dict[int, int]:
    """The native function of each kernel, by ``id``; each that was not seen before is a module of its own.

    others: compile what else a program needs, if need be; they run at the same time.
    """
    keys = {id(kernel): (target.isa_key, kernel.key) for kernel in kernels}
    with _lock:
        missing = {key: kernel for kernel in kernels if (key := keys[id(kernel)]) not in _addresses}
        for key in list(missing):
            start = perf_counter()
            found = object_cache.find(_source(key), _NAMES)
            if found is not None:
                _enter(key, found, "disk", start)
                del missing[key]
        # The longest first: the threads end at about the same time.
        order = sorted(missing.items(), key=lambda item: -item[1].cost * len(item[1].stages))
        _run_all([*others, *(partial(_compile, key, kernel, target) for key, kernel in order)], len(missing))
        return {identity: _addresses[key] for identity, key in keys.items()}


def _compile(key: Any, kernel: Kernel, target: Target) -> None:
    start = perf_counter()
    text = kernel_module({_NAMES[0]: kernel}, target)
    _enter(key, object_cache.compile_and_keep(_source(key), _NAMES, text), "llvm", start)


def _run_all(tasks: Sequence[Callable[[], object]], threads: int) -> None:
    """Run ``tasks`` in as many threads as programs run in, ``threads`` at most."""
    pending, faults = deque(tasks), deque[BaseException]()

    def work() -> None:
        try:
            while pending and not faults:
                try:
                    task = pending.popleft()
                except IndexError:  # another thread took the last
                    return
                task()
        except BaseException as fault:  # noqa: BLE001 (raised by the thread that waits for all)
            faults.append(fault)

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(get_num_threads(), threads) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if faults:
        raise faults[0]


def _source(key: Any) -> bytes:
    return repr(key).encode()


def _enter(key: Any, found: dict[str, int], origin: str, start: float) -> None:
    _addresses[key] = found[_NAMES[0]]
    origins[key] = (origin, perf_counter() - start)
