"""Rows by position: counting, sums of segments, rows of a table read and added to, histograms."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..jobs import build_jax, build_numpy, build_pullback, build_torch
from ..row import Inputs, Target, Timed

BINS, SEGMENTS, TABLE = 1000, 10_000, 50_000


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def count_inputs(tiny: bool) -> Inputs:
    """Numbers i64[n] below BINS."""
    return {"numbers": _rng().integers(0, BINS, 1000 if tiny else 1_000_000)}


def segment_inputs(tiny: bool) -> Inputs:
    """Values f32[n], and which segment each belongs to, i64[n], ascending."""
    count = 1000 if tiny else 1_000_000
    ids = np.sort(_rng().integers(0, SEGMENTS, count))
    return {"values": _rng().random(count, dtype=np.float32), "ids": ids}


def row_inputs(tiny: bool) -> Inputs:
    """A table f32[TABLE, width], rows f32[n, width], and positions i64[n]."""
    width, count = (5, 100) if tiny else (64, 100_000)
    rows = _rng().standard_normal((count, width), dtype=np.float32)
    return {
        "table": np.zeros((TABLE, width), np.float32), "rows": rows, "positions": _rng().integers(0, TABLE, count),
    }  # fmt: skip


def points_inputs(tiny: bool) -> Inputs:
    """Points f32[k, 3] and positions i64[n]."""
    count = 1000 if tiny else 1_000_000
    points = _rng().standard_normal((1000, 3), dtype=np.float32)
    return {"points": points, "positions": _rng().integers(0, 1000, count)}


def histogram_inputs(tiny: bool) -> Inputs:
    """x f32[n], away from the edges of its bins, which libraries round differently."""
    x = _rng().standard_normal(1000 if tiny else 1_000_000).astype(np.float32)
    place = (x + 3) / 6 * 128
    return {"x": x[np.abs(place - np.round(place)) > 1e-3]}


def add_numpy(table: np.ndarray, rows: np.ndarray, positions: np.ndarray) -> Any:
    result = table.copy()
    np.add.at(result, positions, rows)
    return result


def _embed_pullback(pb: Any, nn: Any, table: Any, rows: Any, positions: Any) -> Any:
    return nn.functional.layer_norm(nn.embedding(positions, table) + rows, (rows.shape[1],))


def _embed_torch(torch: Any, functional: Any, table: Any, rows: Any, positions: Any) -> Any:
    return functional.layer_norm(functional.embedding(positions, table) + rows, (rows.shape[1],))


def _embed_jax(jax: Any, jnp: Any, table: Any, rows: Any, positions: Any) -> Any:
    x = table.at[positions].get(mode="promise_in_bounds") + rows
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def _bincount_jax(jax: Any, jnp: Any, numbers: Any) -> Any:
    return jnp.bincount(numbers, length=BINS)


NONE_SLOWER = Target(1.0, 1.0)

ROWS = (
    Timed(
        "bincount", "1e6 i64 counted in 1000 bins", NONE_SLOWER, count_inputs,
        {
            "pullback": partial(build_pullback, work=lambda pb, nn, numbers: pb.bincount(numbers, length=BINS)),
            "numpy": partial(build_numpy, work=lambda numbers: np.bincount(numbers, minlength=BINS)),
            "torch": partial(build_torch, work=lambda torch, f, numbers: torch.bincount(numbers, minlength=BINS)),
            "jax": partial(build_jax, work=_bincount_jax),
        }, tolerance=0, first_call=False,
    ),
    Timed(
        "segment-sum", "1e6 f32 in 10,000 sorted segments", NONE_SLOWER, segment_inputs,
        {
            "pullback": partial(build_pullback, work=lambda pb, nn, values, ids: pb.segment_sum(values, ids, SEGMENTS)),
            "numpy": partial(build_numpy, work=lambda values, ids: np.bincount(ids, values, SEGMENTS)),
            "torch": partial(
                build_torch, work=lambda torch, f, values, ids: torch.zeros(SEGMENTS).index_add_(0, ids, values)
            ),
            "jax": partial(build_jax, work=lambda jax, jnp, values, ids: jax.ops.segment_sum(values, ids, SEGMENTS)),
        }, tolerance=1e-5, first_call=False,
    ),
    Timed(
        "scatter-rows", "100,000 rows of 64 f32 added to a table of 50,000", NONE_SLOWER, row_inputs,
        {
            "pullback": partial(
                build_pullback,
                work=lambda pb, nn, table, rows, positions: pb.index_put(table, (positions,), rows, accumulate=True),
            ),
            "numpy": partial(build_numpy, work=add_numpy),
            "torch": partial(
                build_torch, work=lambda torch, f, table, rows, positions: table.index_add(0, positions, rows)
            ),
            "jax": partial(build_jax, work=lambda jax, jnp, table, rows, positions: table.at[positions].add(rows)),
        }, tolerance=1e-5, first_call=False,
    ),
    Timed(
        "embedding-norm", "100,000 rows of 64 f32 looked up, added to and normalised", Target(0.8, 1.0), row_inputs,
        {
            "pullback": partial(build_pullback, work=_embed_pullback),
            "torch": partial(build_torch, work=_embed_torch),
            "jax": partial(build_jax, work=_embed_jax),
        }, tolerance=1e-4, first_call=False,
    ),
    Timed(
        "gather-points", "1e6 rows of 3 f32 taken from 1000", NONE_SLOWER, points_inputs,
        {
            "pullback": partial(
                build_pullback, work=lambda pb, nn, points, positions: pb.take(points, positions, axis=0)
            ),
            "numpy": partial(build_numpy, work=lambda points, positions: np.take(points, positions, axis=0)),
            "torch": partial(build_torch, work=lambda torch, f, points, positions: points.index_select(0, positions)),
            "jax": partial(build_jax, work=lambda jax, jnp, points, positions: points[positions]),
        }, tolerance=0, first_call=False,
    ),
    Timed(
        "histogram", "1e6 f32 in 128 equal bins", NONE_SLOWER, histogram_inputs,
        {
            "pullback": partial(build_pullback, work=lambda pb, nn, x: pb.histogram(x, 128, range=(-3.0, 3.0)).hist),
            "numpy": partial(build_numpy, work=lambda x: np.histogram(x, 128, (-3.0, 3.0))[0]),
            "torch": partial(build_torch, work=lambda torch, f, x: torch.histc(x, 128, -3.0, 3.0)),
            "jax": partial(build_jax, work=lambda jax, jnp, x: jnp.histogram(x, 128, (-3.0, 3.0))[0]),
        }, tolerance=0, first_call=False,
    ),
)  # fmt: skip
