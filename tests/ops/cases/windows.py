"""Examples of windows: overlapping, touching, with gaps, one alone, along each axis."""

from __future__ import annotations

from functools import partial

from pullback.ops.windows import windows
from tests.ops.support import Case, grid

EXAMPLES = (
    ((7,), 0, 3, 1), ((9, 2), 0, 4, 2), ((2, 11), 1, 5, 3), ((2, 8, 3), 1, 2, 2), ((3, 9), 1, 2, 4), ((4, 5), 1, 5, 1),
    ((10,), 0, 7, 2), ((6, 2), 0, 1, 1),
)

CASES = [
    Case("windows", partial(windows, axis=axis, size=size, step=step), (grid(-2, 2, shape),), (0,), f"{size}-{step}")
    for shape, axis, size, step in EXAMPLES
]
