"""Runs a function on several numbers of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

import pullback as pb
from pullback.transforms import pytree

T = TypeVar("T")

THREADS = (1, 2, 3, 7)


def on_threads(run: Callable[[], T], counts: Sequence[int] = THREADS) -> list[T]:
    """What ``run()`` returns on each number of threads."""
    before = pb.get_num_threads()
    results = []
    try:
        for count in counts:
            pb.set_num_threads(count)
            results.append(run())
    finally:
        pb.set_num_threads(before)
    return results


def same_bits(run: Callable[[], Any], counts: Sequence[int] = THREADS) -> Any:
    """What ``run()`` returns, a pytree of tensors or arrays, which must have the same bits on any number of threads.

    Its leaves are returned as NumPy arrays.
    """
    first, *others = on_threads(lambda: pytree.map(np.array, run()), counts)
    for count, other in zip(counts[1:], others, strict=True):
        for index, (want, found) in enumerate(zip(pytree.leaves(first), pytree.leaves(other), strict=True)):
            assert found.tobytes() == want.tobytes(), f"leaf {index} differs between {counts[0]} and {count} threads"
    return first
