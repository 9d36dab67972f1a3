"""Choosing, mixing and reading bits."""

from __future__ import annotations

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

_MASK = normal(3, 4) > 0

ROWS = [
    Row("where", pb.where, (_MASK, normal(3, 4, seed=1), normal(3, 4, seed=2)), torch=lambda t: t.where),
    Row("where", pb.where, (_MASK[:, :1], normal(4, seed=1), normal(seed=2)), note="broadcast",
        torch=lambda t: t.where),
    Row("where", pb.where, (_MASK[:0], normal(4, seed=1), normal(seed=2)), note="empty", torch=lambda t: t.where),
    Row("where", lambda c, x: pb.where(c, x, 0), (_MASK, normal(3, 4, seed=1)), note="number",
        torch=lambda t: lambda c, x: t.where(c, x, 0)),
    Row("clip", lambda x: pb.clip(x, -0.51, 0.62), (spread(-1, 1, 3, 4),),
        torch=lambda t: lambda x: t.clip(x, -0.51, 0.62)),
    Row("clip", lambda x: pb.clip(x, min=-0.51), (spread(-1, 1, 3, 4),), note="min",
        torch=lambda t: lambda x: t.clip(x, min=-0.51)),
    Row("clip", lambda x: pb.clip(x, max=0.62), (spread(-1, 1, 3, 4),), note="max",
        torch=lambda t: lambda x: t.clip(x, max=0.62)),
    Row("clip", pb.clip, (spread(-1, 1, 3, 4), spread(-0.8, 0.1, 4, seed=1), spread(0.13, 0.9, 3, 1, seed=2)),
        note="tensors", torch=lambda t: t.clip),
    Row("lerp", pb.lerp, (normal(3, 4), normal(3, 4, seed=1), spread(-0.4, 1.4, 3, 4)), torch=lambda t: t.lerp),
    Row("lerp", pb.lerp, (normal(3, 1), normal(4, seed=1), spread(0.3, 0.8)), note="broadcast", torch=lambda t: t.lerp),
    Row("lerp", lambda x, y: pb.lerp(x, y, 0.3), (normal(4), normal(4, seed=1)), note="number",
        torch=lambda t: lambda x, y: t.lerp(x, y, 0.3)),
    Row("masked_fill", lambda x, m: pb.masked_fill(x, m, -1.5), (normal(3, 4), _MASK), note="number",
        torch=lambda t: lambda x, m: x.masked_fill(m, -1.5)),
    Row("masked_fill", pb.masked_fill, (normal(2, 3, 4), _MASK[1], normal(seed=3)),
        torch=lambda t: lambda x, m, v: x.masked_fill(m, v)),
    Row("masked_fill", pb.masked_fill, (normal(3, 4), _MASK, normal(4, seed=3)), note="broadcast"),
    Row("bitcast", lambda x: pb.bitcast(x, pb.int64), (normal(5),), by=(), torch=lambda t: lambda x: x.view(t.int64)),
    Row("bitcast", lambda x: pb.bitcast(x, pb.float64), (integers(0, 2**62, 5),), note="from integers",
        torch=lambda t: lambda x: x.view(t.float64)),
    Row("ldexp", pb.ldexp, (normal(3, 4), integers(-9, 9, 4)), torch=lambda t: lambda x, n: x * 2.0**n),
    Row("xlogy", pb.xlogy, (np.array([0.0, 0.0, 2.0, -1.5]), np.array([2.0, 0.7, 0.4, 3.0])), note="zero", order=1,
        torch=lambda t: t.xlogy),
]
