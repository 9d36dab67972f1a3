"""What a row of the benchmark is, and what running it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import truediv
from statistics import median
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .limits import Limit, Work

PRODUCT = "pullback"
PEERS = ("numpy", "torch", "jax")
MODULES = {PRODUCT: "pullback", "numpy": "numpy", "torch": "torch", "jax": "jax", "torch.compile": "torch"}

Inputs = dict[str, Any]


class MismatchError(Exception):
    """Two libraries computed different numbers."""


@dataclass(frozen=True)
class Target:
    """What a row must reach: ``goal`` in the end, ``bar`` now.

    Both are ratios to the best peer's time, or seconds where ``absolute`` is set.
    """

    goal: float
    bar: float
    absolute: bool = False

    def verdict(self, value: float | None) -> str:
        """``goal``, ``pass`` (the bar is met, the goal is not), ``FAIL``, or ``-`` without a value to judge."""
        if value is None:
            return "-"
        return "goal" if value <= self.goal else "pass" if value <= self.bar else "FAIL"


@dataclass(frozen=True)
class Options:
    """How to run the rows.

    peers: the libraries to compare with that are installed.
    repeat: rounds of timing; one median is taken over them.
    tiny: small sizes and short timings, to test the benchmark itself.
    """

    peers: tuple[str, ...]
    repeat: int = 15
    tiny: bool = False


def fastest_peer(seconds: Mapping[str, float], judges: tuple[str, ...] = ()) -> str | None:
    """The fastest library but the product; among ``judges`` if one of them ran. None if no peer ran."""
    peers = [library for library in seconds if library != PRODUCT]
    peers = [library for library in peers if library in judges] or peers
    return min(peers, key=seconds.__getitem__, default=None)


@dataclass
class Outcome:
    """One line of the table.

    seconds: the median time of each library that ran.
    best_peer: the peer that the row is judged by.
    ratio: median over the rounds of product / best peer.
    notes: what else there is to say, each a short phrase.
    facts: figures for the JSON file.
    limit: what the machine allows, where the row states it.
    """

    row: str
    what: str
    target: Target
    seconds: dict[str, float]
    best_peer: str | None = None
    ratio: float | None = None
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    limit: Limit | None = None

    @property
    def shares(self) -> dict[str, float]:
        """Of each library, the share reached of what the machine allows; empty without a limit."""
        limit = self.limit
        return {} if limit is None else {name: limit.seconds / seconds for name, seconds in self.seconds.items()}

    @property
    def verdict(self) -> str:
        return self.target.verdict(self.seconds.get(PRODUCT) if self.target.absolute else self.ratio)


class Row(Protocol):
    """Anything that can be run for one or more lines of the table."""

    @property
    def name(self) -> str: ...

    @property
    def what(self) -> str: ...

    def run(self, options: Options) -> Iterator[Outcome]: ...


@runtime_checkable
class Computed(Protocol):
    """A row whose work in Pullback gives arrays that another run can be compared with."""

    @property
    def name(self) -> str: ...

    def computed(self, tiny: bool) -> list[np.ndarray]:
        """Do the work from the start; what it gave."""


@dataclass(frozen=True)
class Job:
    """A row's work in one library, ready to run.

    step: does the work once and waits for its result.
    result: turns what the last step returned into NumPy arrays to compare (any order of axes that all libraries share).
    """

    step: Callable[[], Any]
    result: Callable[[Any], list[np.ndarray]]


@dataclass(frozen=True)
class Timed:
    """A row that repeats the same work and times it.

    inputs: ``(tiny)`` to the inputs, made once and given to every library.
    builders: for each library, from the inputs to its Job; imports the library itself.
    tolerance: largest difference allowed, relative to the largest magnitude of each compared array.
    steps_to_check: steps before the comparison (more than one where a step changes state).
    first_call: whether a fresh process's first result is a line of its own.
    judges: the peers that the ratio may be against, where that is not all; the others are shown only.
    work: from the inputs to the least that must be done, where the row states its limit and the share of it reached.
    """

    name: str
    what: str
    target: Target
    inputs: Callable[[bool], Inputs]
    builders: Mapping[str, Callable[[Inputs], Job]]
    tolerance: float
    steps_to_check: int = 1
    first_call: bool = True
    judges: tuple[str, ...] = ()
    work: Callable[[Inputs], Work] | None = None

    def computed(self, tiny: bool) -> list[np.ndarray]:
        job = self.builders[PRODUCT](self.inputs(tiny))
        last: Any = None
        for _ in range(self.steps_to_check):
            last = job.step()
        return [np.array(array) for array in job.result(last)]

    def run(self, options: Options) -> Iterator[Outcome]:
        from .timing import check, time_jobs

        libraries = [PRODUCT, *(peer for peer in options.peers if peer in self.builders)]
        inputs = self.inputs(options.tiny)
        jobs = {library: self.builders[library](inputs) for library in libraries}
        check(self, jobs)
        rounds = time_jobs(jobs, options)
        seconds = {library: median(times) for library, times in rounds.items()}
        best = fastest_peer(seconds, self.judges)
        # Round by round, so that a drift of the machine's speed cancels.
        ratio = median(map(truediv, rounds[PRODUCT], rounds[best])) if best else None
        limit = None if self.work is None else self.work(inputs).limit()
        yield Outcome(self.name, self.what, self.target, seconds, best, ratio, limit=limit)
