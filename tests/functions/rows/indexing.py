"""Reading and writing by positions, positions of what holds, sums over segments, counts."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, spread

X = spread(0.5, 2.5, 4, 3, 5)
TABLE = spread(-2, 2, 5, 4)
ROW = integers(0, 4, 6)
IDS = np.array([0, 2, 2, 1, 0, 2, 4])
DATA = spread(0.5, 2.5, 7, 3, seed=4)
MASK = np.array([True, False, True, True])


def _like(axis: int, extent: int, shape: tuple[int, ...], seed: int = 0) -> Any:
    """An index for gather and scatter along ``axis`` with repeated and missing positions."""
    return integers(0, extent, *shape, seed=seed)


def _reduce(mode: str, axis: int, include_self: bool) -> Row:
    index = _like(axis, X.shape[axis], (3, 3, 4), 5)
    torch_mode = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax", "mean": "mean"}[mode]
    return Row(
        "scatter", lambda x, s: pb.scatter(x, axis, index, s, mode=mode, include_self=include_self),
        (X, spread(0.6, 2.4, 3, 3, 4, seed=1)),
        torch=lambda t: lambda x, s: x.scatter_reduce(
            axis, t.tensor(index), s, torch_mode, include_self=include_self),
        note=f"{mode}{axis}{include_self}",
    )


def _segments(how: str, start: float, include_self: bool, count: int = 6) -> Any:
    """PyTorch's sums and their like by ``IDS``."""
    ids = np.broadcast_to(IDS[:, None], DATA.shape).copy()
    return lambda t: lambda d: t.full((count, 3), start, dtype=t.float64).scatter_reduce(
        0, t.tensor(ids), d, how, include_self=include_self)


UNIQUE_ROWS = np.array([[2, 0, 1], [0, 3, 3]])

ROWS = [
    Row("take", lambda x: pb.take(x, [[1, 0], [-1, 1]], axis=1), (X,),
        torch=lambda t: lambda x: x[:, t.tensor([[1, 0], [2, 1]])]),
    Row("take", lambda x, i: pb.take(x, i), (TABLE, integers(0, 20, 3, 2)), torch=lambda t: t.take, note="flat"),
    Row("take", lambda x: pb.take(x, [], axis=0), (TABLE,), (), note="empty"),
    Row("take", lambda x: pb.take(x, 2, axis=-1), (X,), torch=lambda t: lambda x: x[..., 2], note="scalar"),
    Row("take_along_axis", lambda x, i: pb.take_along_axis(x, i, axis=-1), (TABLE, integers(0, 4, 5, 6)),
        torch=lambda t: lambda x, i: t.take_along_dim(x, i, -1)),
    Row("take_along_axis", lambda x, i: pb.take_along_axis(x, i, axis=0), (X, integers(0, 4, 2, 1, 5)),
        torch=lambda t: lambda x, i: t.take_along_dim(x, i, 0), note="broadcast"),
    Row("put_along_axis", lambda x, v: pb.put_along_axis(x, UNIQUE_ROWS.T, v, axis=0), (TABLE[:, :2], TABLE[:3, 2:])),
    Row("put_along_axis", lambda x, v: pb.put_along_axis(x, [[1], [0], [1], [3], [2]], v, axis=-1, mode="add"),
        (TABLE, np.array(0.5)), note="add"),
    Row("put_along_axis", lambda x, v: pb.put_along_axis(x, [3, 9, 11], v, axis=None), (TABLE, spread(0, 1, 3)),
        note="flat"),
    Row("gather", lambda x, i: pb.gather(x, 1, i), (X, integers(0, 3, 4, 6, 2)),
        torch=lambda t: lambda x, i: t.gather(x, 1, i)),
    Row("gather", lambda x, i: pb.gather(x, -1, i), (TABLE, integers(0, 4, 2, 2)),
        torch=lambda t: lambda x, i: t.gather(x, -1, i), note="small"),
    Row("gather", lambda x, i: pb.gather(x, 0, i), (TABLE, np.zeros((0, 4), np.int64)), (),
        torch=lambda t: lambda x, i: t.gather(x, 0, i), note="empty"),
    Row("scatter", lambda x, s: pb.scatter(x, 1, [[2, 0, 1], [0, 3, 1]], s), (TABLE, spread(-1, 1, 2, 3)),
        torch=lambda t: lambda x, s: t.scatter(x, 1, t.tensor([[2, 0, 1], [0, 3, 1]]), s), note="set"),
    Row("scatter", lambda x: pb.scatter(x, 0, [[2, 0, 1, 1]], 3.0), (TABLE,),
        torch=lambda t: lambda x: t.scatter(x, 0, t.tensor([[2, 0, 1, 1]]), 3.0), note="number"),
    Row("scatter", lambda x, s: pb.scatter(x, 0, UNIQUE_ROWS, s, mode="add"), (TABLE, spread(-1, 1, 4, 4)),
        torch=lambda t: lambda x, s: t.scatter_add(x, 0, t.tensor(UNIQUE_ROWS), s), torch_by=(0,), note="larger src"),
    *[_reduce(mode, *how) for how in ((0, True), (2, False)) for mode in ("add", "mul", "min", "max", "mean")],
    Row("index_select", lambda x, i: pb.index_select(x, -1, i), (TABLE, ROW),
        torch=lambda t: lambda x, i: t.index_select(x, -1, i)),
    Row("index_select", lambda x: pb.index_select(x, 1, 2), (X,),
        torch=lambda t: lambda x: t.index_select(x, 1, t.tensor(2)), note="scalar"),
    Row("select", lambda x: pb.select(x, 1, -1), (X,), torch=lambda t: lambda x: t.select(x, 1, -1)),
    Row("select", lambda x, i: pb.select(x, -1, i), (X, np.array(3)), torch=lambda t: lambda x, i: x[:, :, i],
        note="computed"),
    Row("index_add", lambda x, s: pb.index_add(x, 1, [2, 0, 2, 2], s), (X, spread(-1, 1, 4, 4, 5)),
        torch=lambda t: lambda x, s: t.index_add(x, 1, t.tensor([2, 0, 2, 2]), s)),
    Row("index_add", lambda x, s: pb.index_add(x, -1, [1, 1], s, alpha=-2.5), (TABLE, spread(-1, 1, 5, 2)),
        torch=lambda t: lambda x, s: t.index_add(x, -1, t.tensor([1, 1]), s, alpha=-2.5), note="alpha"),
    Row("index_add", lambda x, s, a: pb.index_add(x, 0, 3, s, alpha=a), (TABLE, spread(-1, 1, 1, 4), np.array(1.5)),
        note="scalars"),
    Row("index_copy", lambda x, s: pb.index_copy(x, 0, [3, 0], s), (TABLE, spread(-1, 1, 2, 4)),
        torch=lambda t: lambda x, s: t.index_copy(x, 0, t.tensor([3, 0]), s)),
    Row("index_fill", lambda x, v: pb.index_fill(x, 1, [2, 0, 2], v), (TABLE, np.array(0.3)),
        torch=lambda t: lambda x, v: t.index_fill(x, 1, t.tensor([2, 0, 2]), v)),
    Row("index_put", lambda x, v: pb.index_put(x, ([0, 1], [1, 3]), v), (TABLE, spread(-1, 1, 2)),
        torch=lambda t: lambda x, v: t.index_put(x, (t.tensor([0, 1]), t.tensor([1, 3])), v)),
    Row("index_put", lambda x, v: pb.index_put(x, (pb.asarray([0, 0, 1]),), v, accumulate=True), (X, spread(-1, 1, 5)),
        torch=lambda t: lambda x, v: t.index_put(x, (t.tensor([0, 0, 1]),), v, accumulate=True), note="accumulate"),
    Row("one_hot", lambda x: pb.one_hot(x, 5), (IDS,), torch=lambda t: lambda x: t.nn.functional.one_hot(x, 5)),
    Row("segment_sum", lambda d: pb.segment_sum(d, IDS, 6), (DATA,),
        torch=lambda t: lambda d: t.zeros(6, 3, dtype=t.float64).index_add(0, t.tensor(IDS), d)),
    Row("segment_sum", lambda d, i: pb.segment_sum(d, i, 3), (DATA, integers(0, 3, 7, 3)), note="two axes"),
    Row("segment_sum", lambda d: pb.segment_sum(d, IDS), (DATA[:, 0],), note="counted"),
    Row("segment_sum", lambda d: pb.segment_sum(d, np.zeros(0, np.int64), 2), (np.zeros((0, 3)),), (), note="empty"),
    Row("segment_prod", lambda d: pb.segment_prod(d, IDS, 6), (DATA,), torch=_segments("prod", 1.0, True)),
    Row("segment_prod", lambda d: pb.segment_prod(d, [0, 0, 1, 1, 1, 2, 2]), (np.array([0, 2.0, 0, 0, 3, 4, 5]),),
        note="zeros"),
    Row("segment_mean", lambda d: pb.segment_mean(d, IDS, 6), (DATA,), torch=_segments("mean", 0.0, False)),
    Row("segment_max", lambda d: pb.segment_max(d, IDS, 5), (DATA,), torch=_segments("amax", -np.inf, True, 5)),
    Row("segment_min", lambda d: pb.segment_min(d, IDS, 5), (DATA,), torch=_segments("amin", np.inf, True, 5)),
    Row("bincount", lambda x: pb.bincount(x, length=7), (IDS,), torch=lambda t: lambda x: t.bincount(x, minlength=7)),
    Row("bincount", lambda w: pb.bincount(IDS, w, minlength=7), (DATA[:, 0],),
        torch=lambda t: lambda w: t.bincount(t.tensor(IDS), w, minlength=7), torch_by=(), note="weights"),
    Row("histogram", lambda x, w: pb.histogram(x, 4, weights=w).hist, (TABLE, TABLE[::-1].copy()), (1,),
        torch=lambda t: lambda x, w: t.histogram(x, 4, weight=w)[0], torch_by=(), note="weights"),
    Row("histogram", lambda x: pb.histogram(x, 3, range=(-1, 1), density=True).hist, (TABLE,), (),
        torch=lambda t: lambda x: t.histogram(x, 3, range=(-1, 1), density=True)[0], note="density"),
    Row("histogram", lambda x: pb.histogram(x, [-1.0, 0.0, 0.5]).hist * 1.0, (TABLE,), (),
        torch=lambda t: lambda x: t.histogram(x, t.tensor([-1.0, 0.0, 0.5], dtype=t.float64))[0], note="edges"),
    Row("nonzero", lambda x: pb.nonzero(x > 1, size=12), (X,), ()),
    Row("nonzero", lambda x: pb.nonzero(x, size=30, fill_value=(-1, -2)), (integers(0, 2, 3, 4),), note="filled"),
    Row("argwhere", lambda x: pb.argwhere(x, size=4), (integers(0, 2, 3, 4),)),
    Row("flatnonzero", lambda x: pb.flatnonzero(x, size=4, fill_value=-1), (integers(0, 2, 3, 4),)),
    Row("compress", lambda x: pb.compress(MASK, x, axis=0), (X,), torch=lambda t: lambda x: x[t.tensor(MASK)]),
    Row("compress", lambda c, x: pb.compress(c, x, axis=1, size=2, fill_value=7), (MASK, TABLE), note="size"),
    Row("extract", lambda x: pb.extract(x > 0, x, size=25), (TABLE,), note="size"),
    Row("Tensor.__getitem__", lambda x: x[::-2, None, [0, 2], 1:], (X,),
        torch=lambda t: lambda x: x.flip(0)[::2, None, [0, 2], 1:]),
]
