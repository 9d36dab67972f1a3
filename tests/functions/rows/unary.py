"""Elementwise functions of one operand."""

from __future__ import annotations

import pullback as pb
from tests.functions.row import Row, spread

ROWS = [
    Row("tanh", pb.tanh, (spread(-2, 2, 3, 4),), torch=lambda t: t.tanh),
]
