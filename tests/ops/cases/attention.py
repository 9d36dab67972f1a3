"""Examples of attention and of its gradient. They have no derivative of their own."""

from __future__ import annotations

import numpy as np

from pullback.graph.node import bind
from pullback.ops.attention import ATTENTION, ATTENTION_GRADIENT, Setting
from tests.ops.support import Case

rng = np.random.default_rng(0)


def arrays(batch, heads, groups, queries, keys, depth, width):
    """q, k, v, and an output's gradient."""
    shapes = (
        (batch, heads, queries, depth), (batch, groups, keys, depth), (batch, groups, keys, width),
        (batch, heads, queries, width),
    )  # fmt: skip
    return tuple(rng.standard_normal(shape) for shape in shapes)


def forward(low, high, has_offset=False, drop=None):
    return lambda *nodes: bind(ATTENTION, nodes, Setting(0.5, low, high, has_offset, drop))


def gradient(low, high, splits=1, has_offset=False, drop=None):
    return lambda *nodes: bind(ATTENTION_GRADIENT, nodes, (*Setting(0.5, low, high, has_offset, drop), splits))


def with_output(q, k, v, cotangent, *mask):
    """Operands of the gradient; what attention gave need not be right for the examples to agree."""
    flat = np.concatenate([rng.standard_normal(cotangent.size), 3 + rng.random(cotangent[..., 0].size)])
    return (q, k, v, flat, cotangent, *mask)


SMALL, GROUPED = arrays(1, 2, 2, 5, 7, 4, 3), arrays(2, 4, 2, 6, 9, 5, 8)
CHOICE = rng.random((2, 4, 6, 9)) > 0.4
ADDED = rng.standard_normal((2, 4, 6, 9))
OFFSET = np.array([[0, 2], [1, -3]])
KEYS, COUNTERS = rng.integers(0, 2**63, 2).astype(np.uint64), np.array([0, 2**32 - 100], np.uint64)
DROP = (0.3, 1000, 9)

CASES = [
    Case("attention", forward(None, None), SMALL[:3]),
    Case("attention", forward(None, 3), SMALL[:3], note="causal"),
    Case("attention", forward(-2, 4), GROUPED[:3], note="window"),
    Case("attention", forward(None, None), (*GROUPED[:3], CHOICE), note="choice"),
    Case("attention", forward(None, 4), (*GROUPED[:3], ADDED), note="added"),
    Case("attention_gradient", gradient(None, None), with_output(*SMALL)),
    Case("attention_gradient", gradient(None, 3), with_output(*SMALL), note="causal"),
    Case("attention_gradient", gradient(-2, 4), with_output(*GROUPED, CHOICE), note="choice"),
    Case("attention_gradient", gradient(None, None), with_output(*GROUPED, ADDED), note="added"),
    Case("attention_gradient", gradient(None, 4, 4), with_output(*GROUPED), note="splits"),
    Case("attention", forward(-2, 1, True), (*GROUPED[:3], OFFSET, CHOICE), note="offset"),
    Case("attention_gradient", gradient(None, 1, 1, True), with_output(*GROUPED, OFFSET), note="offset"),
    Case("attention", forward(None, 4, False, DROP), (*GROUPED[:3], KEYS, COUNTERS), note="drop"),
    Case("attention_gradient", gradient(None, 4, 2, True, DROP), with_output(*GROUPED, OFFSET, KEYS, COUNTERS, ADDED),
         note="all"),
]
