"""Checking that libraries agree, and timing them in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .row import PRODUCT, Job, MismatchError, Options, Timed

BLOCK_SECONDS = 0.04  # of one library before the next has its turn
# Between turns: OpenBLAS's threads spin for 25 to 110 ms before they sleep, on a core that the next library needs.
REST_SECONDS = 0.02
MAX_RESTS = 50
WARM_UP_SECONDS = 0.2
SLOW_SECONDS, SLOW_REPEAT = 0.5, 3  # where a library takes that long for a step, that many rounds


def check(row: Timed, jobs: dict[str, Job]) -> None:
    """Runs each job ``row.steps_to_check`` times and compares the product's results with every peer's.

    Raises MismatchError where they differ by more than ``row.tolerance`` of the peer's largest magnitude.
    """
    results: dict[str, list[np.ndarray]] = {}
    for library, job in jobs.items():
        last: Any = None
        for _ in range(row.steps_to_check):
            last = job.step()
        results[library] = [np.array(array) for array in job.result(last)]
    product = results.pop(PRODUCT)
    for library, peer in results.items():
        if len(peer) != len(product):
            raise MismatchError(f"{row.name}: {PRODUCT} gave {len(product)} arrays, {library} {len(peer)}")
        for position, (ours, theirs) in enumerate(zip(product, peer, strict=True)):
            if ours.shape != theirs.shape:
                raise MismatchError(f"{row.name}: array {position} has shape {ours.shape}, {library}'s {theirs.shape}")
            difference = np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), initial=0.0)
            allowed = row.tolerance * max(float(np.max(np.abs(theirs), initial=0.0)), 1e-30)
            if not difference <= allowed:
                raise MismatchError(
                    f"{row.name}: array {position} differs from {library}'s by {difference:.3g}, {allowed:.3g} allowed"
                )


def time_jobs(jobs: dict[str, Job], options: Options) -> dict[str, list[float]]:
    """Seconds a step of each job in each of ``options.repeat`` rounds.

    The jobs take turns, so that a drift of the machine's speed meets all of them.
    """
    block = BLOCK_SECONDS / 20 if options.tiny else BLOCK_SECONDS
    fastest = {library: _calibrate(job.step, options.tiny) for library, job in jobs.items()}
    counts = {library: max(1, min(100_000, round(block / max(fastest[library], 1e-7)))) for library in jobs}
    slowest = max(fastest.values())
    rounds: dict[str, list[float]] = {library: [] for library in jobs}
    repeat = options.repeat if slowest < SLOW_SECONDS else min(options.repeat, SLOW_REPEAT)
    for number in range(repeat):
        order = list(jobs)
        if number % 2:  # nobody always follows the same neighbour
            order.reverse()
        for library in order:
            _rest()
            rounds[library].append(_time_block(jobs[library].step, counts[library]))
    return rounds


def _rest() -> None:
    """Sleeps until no thread of this process runs any more."""
    for _ in range(MAX_RESTS):
        before = time.process_time()
        time.sleep(REST_SECONDS)
        if time.process_time() - before < REST_SECONDS / 10:
            return


def _calibrate(step: Callable[[], Any], tiny: bool) -> float:
    """Warms ``step`` up; the seconds of the fastest one."""
    deadline = time.perf_counter() + (0.0 if tiny else WARM_UP_SECONDS)
    count = 0
    fastest = float("inf")
    while count < 3 or time.perf_counter() < deadline:
        start = time.perf_counter()
        step()
        fastest = min(fastest, time.perf_counter() - start)
        count += 1
    return fastest


def _time_block(step: Callable[[], Any], count: int) -> float:
    """Seconds a step over ``count`` steps, after one that wakes the library's threads."""
    step()
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def time_once(step: Callable[[], Any]) -> float:
    """Seconds of a single step."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
