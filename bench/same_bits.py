"""``python -m bench --same-bits``: each row's work in Pullback on several numbers of threads, compared bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from .row import Computed, Row

THREADS = (1, 2, 3, 7)


def _digest(arrays: Iterable[np.ndarray]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def digests(row: Computed, tiny: bool, threads: Sequence[int] = THREADS) -> dict[int, str]:
    """For each number of threads a digest of what the row computes, begun anew each time."""
    import pullback as pb

    before = pb.get_num_threads()
    found = {}
    try:
        for number in threads:
            pb.set_num_threads(number)
            found[number] = _digest(row.computed(tiny))
    finally:
        pb.set_num_threads(before)
    return found


def report(rows: Iterable[Row], tiny: bool) -> int:
    """Print a line a row; 0 if all of them agree, else 1."""
    different = 0
    for row in rows:
        if not isinstance(row, Computed):
            continue
        found = digests(row, tiny)
        same = len(set(found.values())) == 1
        different += not same
        text = found[THREADS[0]] if same else ", ".join(f"{number}: {digest}" for number, digest in found.items())
        print(f"{row.name:24} {'same' if same else 'DIFFERENT'}  {text}", flush=True)
    threads = ", ".join(map(str, THREADS))
    print(f"\n{different} rows differ" if different else f"\nThe same bits on {threads} threads")
    return 1 if different else 0
