"""Programs as tables of launches, and the native driver and thread pool that run them.

A *launch* is a kernel with its static parameters and a range of tasks, cut into chunks of ``grain`` tasks. A *wave* is
a list of launches that may run at the same time; waves run one after the other. Chunks never depend on the number of
threads, and a kernel is always called with whole chunks, on one thread or on many.

Running a program is one foreign call::

    run = driver.runner()                    # a bare ctypes function; keep it
    slots = np.zeros(count, np.int64)        # slots[0]: address of the error record, slots[1]: of the scratch
    if run(table.address, slots_address):    # the GIL is released
        driver.start_workers()

The kernel's interface is ``void kernel(ptr slots, ptr params, i64 lo, i64 hi, ptr scratch)``.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import threading
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..graph.state import warn_once
from . import driver_ir, object_cache

#: of one program; a thread takes memory, and more of them than processors gain nothing
MAX_THREADS = max(1024, os.cpu_count() or 1)


SHARED_WEIGHT = 0.5  # of a wave: from there on threads that are awake take part


class Launch(NamedTuple):
    """A kernel over ``total`` tasks.

    address: of the native function.
    params: its static parameters, signed 64-bit.
    grain: tasks a chunk, at least 1; choose it so that a chunk is worth waking a thread for (some ten microseconds).
      A launch whose ``total`` is less than ``grain`` says how small it is.
    scratch_bytes: private memory that each thread running it needs, aligned to 64 bytes.
    guard: None, or the addresses of two functions ``void()`` that are called before and after the whole program
      (BLAS's thread setting); the same for all guarded launches of a program.
    weight: of a chunk; 1 is worth waking a thread for, a quarter worth sharing with a thread that is awake.
    """

    address: int
    params: Sequence[int]
    total: int
    grain: int
    scratch_bytes: int = 0
    guard: tuple[int, int] | None = None
    weight: float = 1.0


class NativeTable:
    """A program in the driver's format; immutable. Keep it alive while it runs.

    address: what ``run`` takes.
    scratch_bytes: size of the memory that slots[1] must point to (0: none is needed). It serves the calling thread;
      workers have their own.
    """

    __slots__ = ("_words", "address", "scratch_bytes")

    def __init__(self, words: np.ndarray[Any, Any], scratch_bytes: int) -> None:
        self._words = words
        self.address: int = words.ctypes.data
        self.scratch_bytes = scratch_bytes


def is_parallel(launches: Sequence[Launch]) -> bool:
    """Whether a wave is worth more than one thread: a launch of several chunks, or small ones worth two chunks."""
    if any(launch.total > launch.grain and launch.weight >= 1 for launch in launches):
        return True
    return _weight(launches) >= 2


def _weight(launches: Sequence[Launch]) -> float:
    return sum(launch.total / launch.grain * launch.weight for launch in launches)


def _mode(launches: Sequence[Launch]) -> int:
    """How a wave runs: driver_ir.ALONE, TOGETHER or IF_AWAKE."""
    if is_parallel(launches):
        return driver_ir.TOGETHER
    if sum(-(-launch.total // launch.grain) for launch in launches) > 1 and _weight(launches) >= SHARED_WEIGHT:
        return driver_ir.IF_AWAKE
    return driver_ir.ALONE


def build_table(waves: Sequence[Sequence[Launch]], serial: Container[int] = ()) -> NativeTable:
    """The table of a program. ``serial``: indices of waves that must run on the calling thread alone.

    Starts the workers of the pool where a wave can use them.
    """
    header, wave_words, launch_words = driver_ir.HEADER_WORDS, driver_ir.WAVE_WORDS, driver_ir.LAUNCH_WORDS
    kept: list[tuple[list[Launch], int]] = []
    for number, wave in enumerate(waves):
        launches = [launch for launch in wave if launch.total > 0]
        if launches:
            kept.append((launches, driver_ir.ALONE if number in serial else _mode(launches)))
    count = sum(len(launches) for launches, _ in kept)
    params_start = header + wave_words * len(kept) + launch_words * count
    size = params_start + sum(len(launch.params) for launches, _ in kept for launch in launches)
    words = np.zeros(size, np.int64)
    base = words.ctypes.data
    parallel = any(mode for _, mode in kept)
    scratch = 0
    guard: tuple[int, int] | None = None
    wave_at, launch_at, params_at = header, header + wave_words * len(kept), params_start
    for launches, mode in kept:
        chunk = 0
        first_launch = base + 8 * launch_at
        for launch in launches:
            if launch.grain < 1:
                raise ValueError(f"a launch's grain must be at least 1, got {launch.grain}")
            end = chunk - (-launch.total // launch.grain)
            params_end = params_at + len(launch.params)
            try:
                words[launch_at : launch_at + launch_words] = (
                    launch.address, base + 8 * params_at, launch.total, launch.grain, chunk, end,
                )  # fmt: skip
                words[params_at:params_end] = launch.params
            except OverflowError:
                raise DeviceError("a computation over 2**63 elements or more: no memory holds them") from None
            launch_at, params_at, chunk = launch_at + launch_words, params_end, end
            scratch = max(scratch, launch.scratch_bytes)
            if launch.guard is not None:
                if guard is not None and guard != launch.guard:
                    raise ValueError("the launches of a program have different guards")
                guard = launch.guard
        words[wave_at : wave_at + wave_words] = (first_launch, len(launches), chunk, mode)
        wave_at += wave_words
    scratch = scratch + 63 & -64
    words[:5] = (len(kept), parallel, scratch, *(guard or (0, 0)))
    words.flags.writeable = False
    if parallel:
        start_workers()
    return NativeTable(words, scratch)


class _Native:
    """The compiled driver."""

    def __init__(self) -> None:
        address = object_cache.compile_text(driver_ir.driver_ir(), driver_ir.FUNCTIONS, quick=True)
        integer = ctypes.c_ssize_t
        self.run_address = address["pullback_run"]
        self.run = ctypes.CFUNCTYPE(integer, integer, integer)(address["pullback_run"])
        self.worker = ctypes.CFUNCTYPE(None, integer)(address["pullback_worker"])
        self.reset = ctypes.CFUNCTYPE(None)(address["pullback_pool_reset"])
        self.set = ctypes.CFUNCTYPE(None, integer)(address["pullback_pool_set"])
        self.reserve = ctypes.CFUNCTYPE(integer)(address["pullback_pool_reserve"])
        self.release = ctypes.CFUNCTYPE(None, integer)(address["pullback_pool_release"])
        self.reset()


_native: _Native | None = None
_lock = threading.Lock()
_threads: int | None = None  # None: not asked for yet


def _get_native() -> _Native:
    global _native
    if _native is None:
        with _lock:
            if _native is None:
                native = _Native()
                native.set(get_num_threads() - 1)
                _native = native
    return _native


def _after_fork_in_child() -> None:
    # No worker came along, and one may have held the mutex. The next program starts new workers.
    if _native is not None:
        _native.reset()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)


def runner() -> Callable[[int, int], int]:
    """The native ``run(table_address, slots_address) -> int``.

    Nonzero asks for ``start_workers()`` before the next run: this one had fewer threads than it wanted (after a fork,
    or after ``set_num_threads``). Programs may run on several Python threads at once: one has the pool, the others run
    on their own thread alone.
    """
    return _get_native().run


def run_address() -> int:
    """Where ``runner()`` is, for calls that do not go through ctypes."""
    return _get_native().run_address


def run(table: NativeTable, slots_address: int) -> None:
    """Run a program, then start the workers that it lacked."""
    if _get_native().run(table.address, slots_address):
        start_workers()


def start_workers() -> None:
    """Start the workers that lack; they are daemon threads that live in native code, without the GIL."""
    native = _get_native()
    lacking = native.reserve()
    for started in range(lacking):
        number = max(get_num_threads() - lacking, 1) + started  # the workers that live are probably those before
        thread = threading.Thread(target=native.worker, args=(number,), name="pullback-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had (or the interpreter is going down): do with those there are
            missing = lacking - started
            native.release(missing)
            native.set(max(get_num_threads() - 1 - missing, 0))
            return


def get_num_threads() -> int:
    """Threads that run a program, the calling one included.

    At first PULLBACK_NUM_THREADS, or else the processors that the process may use: its affinity and its control
    group's quota are obeyed. Where PULLBACK_NUM_THREADS is no number of threads, a warning says so.
    """
    global _threads
    if _threads is None:
        _threads = default_num_threads()
    return _threads


def set_num_threads(n: int) -> None:
    """Let programs run on ``n`` threads, the calling one included. Results do not depend on it, bit for bit.

    Raises ArgumentError where ``n`` is below 1 or above ``MAX_THREADS`` (1024, or the machine's processors if more).
    """
    global _threads
    count = operator.index(n)
    if not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"set_num_threads: the number must be at least 1 and at most {MAX_THREADS}, got {n}")
    with _lock:
        _threads = count
        if _native is not None:
            _native.set(count - 1)


def default_num_threads() -> int:
    """What ``get_num_threads`` starts with. Warns where PULLBACK_NUM_THREADS is set to what is no number of threads."""
    text = os.environ.get("PULLBACK_NUM_THREADS", "").strip()
    chosen = int(text) if text.isdecimal() and len(text) < 20 else 0
    if 1 <= chosen <= MAX_THREADS:
        return chosen
    found = _usable_processors()
    if text:
        warn_once(
            "PULLBACK_NUM_THREADS",
            f"PULLBACK_NUM_THREADS must be an integer from 1 to {MAX_THREADS}, got {text!r}: "
            f"{found} threads are used, as if it were not set",
        )
    return found


def _usable_processors() -> int:
    """Processors that the process may use, by its affinity and its control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    quota = cgroup_processors()
    if quota is not None:
        processors = min(processors, max(1, math.ceil(quota)))
    return max(1, processors)


def cgroup_processors(membership: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float | None:
    """Processors' worth of time that the control groups (version 1 or 2) of this process allow, or None."""
    quotas: list[float] = []
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, version2 = Path(root), True
        elif "cpu" in controllers.split(","):
            base, version2 = Path(root, "cpu"), False
        else:
            continue
        # A limit binds all groups below it. In a container the path may be that of the host: then only the root is
        # there to read.
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            group = base.joinpath(*parts[:depth])
            if version2:
                fields = _read(group / "cpu.max").split()
            else:
                fields = [*_read(group / "cpu.cfs_quota_us").split(), *_read(group / "cpu.cfs_period_us").split()]
            if len(fields) == 2 and fields[0].isdecimal() and fields[1].isdecimal() and int(fields[1]) > 0:
                quotas.append(int(fields[0]) / int(fields[1]))
    return min(quotas, default=None)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
