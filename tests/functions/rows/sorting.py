"""Sorting, searching, and the different values of a tensor."""

from __future__ import annotations

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, spread

X = spread(-2, 2, 4, 6, 3)
WIDE = spread(-2, 2, 2, 200, seed=3)
TIES = integers(0, 4, 4, 6, 3)
LINE = np.sort(spread(0, 9, 7))
LABELS = integers(0, 5, 12)

ROWS = [
    Row("sort", pb.sort, (X,), torch=lambda t: lambda x: t.sort(x, -1)[0]),
    Row("sort", lambda x: pb.sort(x, axis=0), (X,), torch=lambda t: lambda x: t.sort(x, 0)[0], note="front"),
    Row("sort", lambda x: pb.sort(x, axis=-2, descending=True), (X,),
        torch=lambda t: lambda x: t.sort(x, 1, descending=True)[0], note="descending"),
    Row("sort", lambda x: pb.sort(x, axis=None), (X,), torch=lambda t: lambda x: t.sort(x.flatten())[0], note="flat"),
    Row("sort", lambda x: pb.sort(x) ** 2, (spread(-1, 1, 1),), torch=lambda t: lambda x: t.sort(x)[0] ** 2,
        note="one"),
    Row("sort", pb.sort, (np.zeros((2, 0)),), (), torch=lambda t: lambda x: t.sort(x)[0], note="empty"),
    Row("sort", lambda x: pb.sort(x, axis=1), (TIES,), torch=lambda t: lambda x: t.sort(x, 1)[0], note="integers"),
    Row("argsort", pb.argsort, (X,), (), torch=lambda t: lambda x: t.argsort(x, -1)),
    Row("argsort", lambda x: pb.argsort(x, axis=1), (TIES,),
        torch=lambda t: lambda x: t.argsort(x, dim=1, stable=True), note="ties"),
    Row("argsort", lambda x: pb.argsort(x, axis=0, descending=True), (TIES,),
        torch=lambda t: lambda x: t.sort(x, dim=0, descending=True, stable=True)[1], note="descending"),
    Row("topk", lambda x: tuple(pb.topk(x, 2)), (X,), torch=lambda t: lambda x: tuple(t.topk(x, 2))),
    Row("topk", lambda x: pb.topk(x, 3, axis=0, largest=False).values, (X,),
        torch=lambda t: lambda x: t.topk(x, 3, dim=0, largest=False)[0], note="smallest"),
    Row("topk", lambda x: tuple(pb.topk(x, 5, axis=-1)), (WIDE,), torch=lambda t: lambda x: tuple(t.topk(x, 5)),
        note="of many", order=1),
    Row("topk", lambda x: pb.topk(x, 0, axis=1).values, (X,), (), torch=lambda t: lambda x: t.topk(x, 0, dim=1)[0],
        note="none"),
    Row("searchsorted", pb.searchsorted, (LINE, spread(-1, 10, 3, 4)), (), torch=lambda t: t.searchsorted),
    Row("searchsorted", lambda a, v: pb.searchsorted(a, v, side="right"), (np.sort(LABELS), integers(-1, 6, 5)),
        torch=lambda t: lambda a, v: t.searchsorted(a, v, right=True), note="right", vmap=False),
    Row("searchsorted", lambda a, v: pb.searchsorted(pb.sort(a, axis=-1), v), (X[:, :, 0], spread(-2, 2, 4, 2)), (),
        torch=lambda t: lambda a, v: t.searchsorted(t.sort(a, -1)[0], v), note="rows"),
    Row("searchsorted", lambda a, v: pb.searchsorted(a, v, sorter=pb.argsort(a)), (X[0, :, 0], spread(-2, 2, 3)), (),
        torch=lambda t: lambda a, v: t.searchsorted(a, v, sorter=t.argsort(a)), note="sorter"),
    Row("searchsorted", pb.searchsorted, (LINE, np.array(4.0)), (), torch=lambda t: t.searchsorted, note="scalar"),
    Row("digitize", pb.digitize, (spread(-1, 10, 3, 4), LINE), (), torch=lambda t: lambda x, b: t.bucketize(
        x, b, right=True), vmap=False),
    Row("digitize", lambda x, b: pb.digitize(x, b, right=True), (LABELS, np.array([1, 3, 4])), (),
        torch=lambda t: t.bucketize, note="right", vmap=False),
    Row("unique", lambda x: pb.unique(x, size=15), (X[..., 0],), note="size"),
    Row("unique", lambda x: pb.unique(x, True, True, True, size=3, fill_value=9), (TIES,), note="parts"),
    Row("unique_values", lambda x: pb.unique_values(x, size=4), (X[0],), note="size"),
    Row("unique_values", lambda x: pb.unique_values(x, size=6, fill_value=-1), (TIES[0],), note="filled"),
    Row("unique_all", lambda x: tuple(pb.unique_all(x, size=4)), (X[0],)),
    Row("unique_counts", lambda x: tuple(pb.unique_counts(x, size=4)), (TIES[0],),
        torch=lambda t: lambda x: t.unique(x, return_counts=True)),
    Row("unique_inverse", lambda x: tuple(pb.unique_inverse(x, size=4)), (TIES[0],),
        torch=lambda t: lambda x: t.unique(x, return_inverse=True)),
    Row("isin", pb.isin, (LABELS.reshape(3, 4), np.array([1, 4, 7])), torch=lambda t: t.isin),
    Row("isin", lambda x, y: pb.isin(x, y, invert=True), (X[0], X[0, :2]), (),
        torch=lambda t: lambda x, y: t.isin(x, y, invert=True), note="floats"),
    Row("isin", pb.isin, (LABELS, np.zeros(0, np.int64)), torch=lambda t: t.isin, note="nothing"),
]
