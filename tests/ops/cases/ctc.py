"""Connectionist temporal classification: padded and joined targets, repeated labels, empty and short sequences."""

from __future__ import annotations

import numpy as np

from pullback.ops import ctc
from tests.ops.support import Case, grid

X, V = grid(-3.0, -0.2, (6, 3, 4)), grid(-1.0, 1.0, (6, 3, 4), 1)
FRAMES = np.array([6, 5, 3])
PADDED, LENGTHS = np.array([[1, 2, 2, 1], [3, 3, 1, 2], [1, 2, 3, 1]]), np.array([3, 2, 0])
JOINED, JOINED_LENGTHS = np.array([1, 3, 2, 3, 1]), np.array([3, 1, 1])

CASES = [
    Case("ctc_loss", lambda x, *rest: ctc.ctc_loss(x, *rest, blank=0), (X, PADDED, FRAMES, LENGTHS), (0,), "padded"),
    Case("ctc_loss", lambda x, *rest: ctc.ctc_loss(x, *rest, blank=0), (X, JOINED, FRAMES, JOINED_LENGTHS), (0,),
         "joined"),
    Case("ctc_loss", lambda x, *rest: ctc.ctc_loss(x, *rest, blank=3), (X, np.zeros((3, 0), int), FRAMES,
         np.zeros(3, int)), (0,), "empty"),
    Case("ctc_occupancy", lambda x, *rest: ctc.ctc_occupancy(x, *rest, blank=0), (X, PADDED, FRAMES, LENGTHS), (0,),
         order=1),
    Case("ctc_curvature", lambda x, *rest: ctc.ctc_curvature(x, *rest, blank=0), (X, V, PADDED, FRAMES, LENGTHS), (1,)),
]
