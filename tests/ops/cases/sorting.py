"""Examples of the ops that compare elements along an axis."""

from __future__ import annotations

import numpy as np

from pullback.ops import sorting
from tests.ops.support import Case, grid, ints

X = grid(-2, 2, (2, 7, 3))

CASES = [
    Case("sort", lambda x: sorting.sort(x, 0), (X,), (0,), "front"),
    Case("sort", lambda x: sorting.sort(x, 1, True), (X,), (0,), "descending"),
    Case("sort", lambda x: sorting.sort(x, 2), (X,), (0,), "last"),
    Case("sort", lambda x: sorting.sort(x, 0), (np.zeros((0, 2)),), (), "empty"),
    Case("sort", lambda x: sorting.sort(x, 1, True), (ints(0, 3, (2, 7, 2), np.int16),), (), "integers"),
    Case("argsort", lambda x: sorting.argsort(x, 0), (X,), (), "front"),
    Case("argsort", lambda x: sorting.argsort(x, 0), (np.zeros((0, 2)),), (), "empty"),
    Case("arg_top_k", lambda x: sorting.arg_top_k(x, 1, 3), (ints(0, 3, (2, 7, 2)),), (), "largest"),
    Case("arg_top_k", lambda x: sorting.arg_top_k(x, 0, 2, False), (ints(0, 30, (200, 3)),), (), "smallest"),
    Case("arg_top_k", lambda x: sorting.arg_top_k(x, 0, 0), (X,), (), "none"),
    Case("dense_rank", lambda x: sorting.dense_rank(x), (ints(0, 4, (3, 9)),)),
    Case("dense_rank", lambda x: sorting.dense_rank(x, True), (np.array([2.0, np.nan, 1.0, np.nan]),), (), "nan"),
    Case("searchsorted", lambda a, v: sorting.searchsorted(a, v), (np.sort(grid(0, 9, (6,))), grid(0, 9, (4,), 1))),
    Case("searchsorted", lambda a, v: sorting.searchsorted(a, v, True),
         (np.sort(ints(0, 9, (2, 3, 6))), ints(0, 9, (2, 3, 2), seed=1)), (), "rows"),
]
