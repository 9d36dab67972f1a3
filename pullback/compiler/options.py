"""Passes of the compiler that can be switched off, one at a time: to find which one is at fault, and to show that
results do not depend on them.

``PULLBACK_DISABLE`` names, separated by commas, those that are off from the start. What is compiled while a pass is off
is kept apart from what is compiled while it is on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import ArgumentError
from ..graph.state import open_after_fork

ENVIRONMENT_VARIABLE = "PULLBACK_DISABLE"
VALIDATE_VARIABLE = "PULLBACK_VALIDATE"

#: name of each pass -> what is done without it
PASSES = {
    "simplify": "no algebra: only what has no instruction of its own is rewritten",
    "share": "equal expressions are computed each by itself",
    "fuse": "each value is a kernel of its own",
    "launch": "values that have only numbers in common never share a kernel",
    "chunk": "long reductions are not cut in chunks",
    "reuse": "each temporary has memory of its own",
    "follow": "no kernel goes over the rows of a product while they are in the cache",
    "lead": "no kernel computes an operand of a product as that is read",
    "donate": "no output takes over the memory of an input",
    "side": "sums over the rows of a row kernel are kernels of their own",
    "stream": "large results are stored through the caches",
    "turn": "lanes run over the last loop however short it is",
    "window": "what is padded or concatenated is written to memory before it is read",
    "walk": "no wide blocks of columns",
    "wide": "sums of float32 are carried in float32",
    "copies": "no copies of a scatter's target, one for each chunk of the updates",
}

_lock = open_after_fork(threading.Lock())
_watchers: list[Callable[[], None]] = []


def parse(text: str, what: str) -> frozenset[str]:
    """The passes named in ``text``, separated by commas; for another name ArgumentError, which says ``what``."""
    return _checked([name for name in map(str.strip, text.split(",")) if name], what)


def _checked(names: list[str], what: str) -> frozenset[str]:
    for name in names:
        if name not in PASSES:
            raise ArgumentError(f"{what}: the compiler has no pass {name!r}; there are {', '.join(PASSES)}")
    return frozenset(names)


_counts = dict.fromkeys(parse(os.environ.get(ENVIRONMENT_VARIABLE, ""), ENVIRONMENT_VARIABLE), 1)
_disabled = frozenset(_counts)

#: whether every kernel is checked before it is written (compiler/validate.py)
VALIDATE = os.environ.get(VALIDATE_VARIABLE, "") not in ("", "0")


def disabled() -> frozenset[str]:
    """The passes that are off."""
    return _disabled


def watch(watcher: Callable[[], None]) -> None:
    """Call ``watcher`` from now on whenever passes were switched; it must be quick."""
    _watchers.append(watcher)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """A context in which the passes ``names`` are off, in all threads. Contexts nest, and may overlap between threads.

    Raises ArgumentError for a name that is not in ``PASSES``.
    """
    chosen = _checked(list(names), "without")
    _count(chosen, 1)
    try:
        yield
    finally:
        _count(chosen, -1)


def _count(names: frozenset[str], by: int) -> None:
    global _disabled
    with _lock:
        for name in names:
            _counts[name] = _counts.get(name, 0) + by
        _disabled = frozenset(name for name, count in _counts.items() if count)
        for watcher in _watchers:
            watcher()
