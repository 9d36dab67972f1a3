"""Attention and positions of ``pb.nn``."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, normal

nn = pb.nn
Q, K, V = normal(2, 3, 4, 6), normal(2, 3, 5, 6, seed=1), normal(2, 3, 5, 3, seed=2)
SQUARE = normal(2, 4, 5, 4, seed=3), normal(2, 4, 5, 4, seed=4), normal(2, 4, 5, 4, seed=5)
GROUPED = normal(2, 6, 4, 4, seed=6), normal(2, 2, 5, 4, seed=7), normal(2, 2, 5, 3, seed=8)
ALLOWED = np.random.default_rng(9).random((2, 1, 4, 5)) < 0.6
ALLOWED[..., 0] = True
BIAS = normal(3, 4, 5, seed=10)
BANNED = np.where(ALLOWED[0, 0], BIAS, -np.inf)
ENDS, ENDS_K = np.array([0, 3, 3, 7, 9]), np.array([0, 2, 5, 10, 11])
PACKED = normal(2, 10, 4, seed=11), normal(2, 10, 4, seed=12), normal(2, 10, 3, seed=13)
SEGMENTS = np.array([4, 4, 1, 1, 1, -1, -1, 7, 7, 1])


def _row(arrays: Any, note: str, torch: Any = None, mask: Any = None, **options: Any) -> Row:
    """torch: options of its function; False where it has no such function."""

    def ours(q: Any, k: Any, v: Any, *mask: Any) -> Any:
        return nn.scaled_dot_product_attention(q, k, v, *mask, **options)

    def theirs(t: Any) -> Any:
        return lambda *x: t.nn.functional.scaled_dot_product_attention(*x, **(options if torch is None else torch(t)))

    operands = arrays if mask is None else (*arrays, mask)
    return Row("nn.scaled_dot_product_attention", ours, operands, torch=None if torch is False else theirs, note=note)


def _lower(queries: int, keys: int, first: int, left: int | None = None, right: int | None = 0) -> Any:
    """Where |query - key| allows, as a mask of torch."""
    distance = first + np.arange(queries)[:, None] - np.arange(keys)
    allowed = np.ones(distance.shape, bool) if right is None else distance >= -right
    if left is not None:
        allowed &= distance <= left
    return lambda t: {"attn_mask": t.tensor(allowed)}


def _packed(note: str, *options: Any, arrays: Any = PACKED, **named: Any) -> Row:
    def function(q: Any, k: Any, v: Any) -> Any:
        return nn.packed_attention(q, k, v, *options, **named)

    return Row("nn.packed_attention", function, arrays, note=note)


ROWS = [
    _row((Q, K, V), ""),
    _row((Q[0, 0], K[0, 0], V[0, 0]), "one head"),
    _row((Q, K[:, :1], V[:1]), "broadcast"),
    _row(SQUARE, "causal", is_causal=True),
    _row((Q, K, V), "causal at the end", _lower(4, 5, 1), is_causal=True),
    _row((Q, K, V), "causal at the start", lambda t: {"is_causal": True}, is_causal=True, offset=0),
    _row((Q, K, V), "scale", scale=0.3),
    _row((Q, K, V), "bools", mask=ALLOWED),
    _row((Q, K, V), "floats", mask=BIAS),
    _row((Q, K, V), "infinite floats", mask=BANNED),
    _row(SQUARE, "window", _lower(5, 5, 0, 1, 2), window=(1, 2)),
    _row(SQUARE, "causal window", _lower(5, 5, 0, 2), window=(2, None), is_causal=True),
    _row((Q, K, V), "one side", _lower(4, 5, 2, None, 0), window=(-1, 0), offset=2),
    _row(GROUPED, "groups", enable_gqa=True),
    _row(GROUPED, "groups, bools", enable_gqa=True, mask=ALLOWED),
    _row((GROUPED[0], GROUPED[1][:, :1], GROUPED[2][:, :1]), "one head of keys", _lower(4, 5, 1), is_causal=True,
         enable_gqa=True),
    _row((Q[..., :0, :], K, V), "no queries"),
    _row((Q[:0], K[:0], V[:0]), "no batch"),
    _row((K, Q, V[..., :4, :]), "queries before the keys", False, is_causal=True),
    _row((Q, K[..., :0, :], V[..., :0, :]), "no keys", False),
    _packed("", ENDS),
    _packed("causal", ENDS, is_causal=True),
    _packed("other keys", ENDS, ENDS_K, is_causal=True, arrays=(PACKED[0], normal(2, 12, 4), normal(2, 12, 3))),
    _packed("window", ENDS, window=(1, 1)),
    _packed("segments", segments=SEGMENTS, is_causal=True),
    _packed("segments of other keys", segments=SEGMENTS, segments_k=SEGMENTS[::-1].copy()),
    Row("nn.rope", nn.rope, (normal(2, 5, 6),)),
    Row("nn.rope", lambda x, p: nn.rope(x, p, 100.0, True), (normal(3, 2, 5, 6), np.array([3, 0, 7, 7, 1])),
        note="interleaved"),
    Row("nn.rope", lambda x, p: nn.rope(x, p, dims=4), (normal(2, 5, 7), normal(2, 1, seed=1)), note="some features"),
    Row("nn.rope", lambda x: nn.rope(x, interleaved=True), (normal(0, 5, 6),), note="empty"),
    Row("nn.alibi", lambda: nn.alibi(6, 3, 4, dtype=pb.float64), (), note="causal"),
]
