"""Medians, quantiles, ranges, averages, covariances."""

from __future__ import annotations

import numpy as np

import pullback as pb
from pullback.api.statistics import METHODS
from tests.functions.row import Row, integers, normal, spread

X = spread(-2, 2, 2, 3, 4)
ODD = spread(-2, 2, 5, 3)
MASK = np.random.default_rng(3).random((3, 5)) < 0.7
Q = np.array([0.13, 0.71])
FREQUENCIES = np.array([1, 3, 2, 1, 2])
IMPORTANCE = spread(0.3, 1.4, 5)

ROWS = [
    Row("median", pb.median, (X,), note="all"),
    Row("median", lambda x: pb.median(x, axis=0), (ODD,), note="odd",
        torch=lambda t: lambda x: t.median(x, dim=0).values),
    Row("median", lambda x: pb.median(x, axis=-1, keepdims=True), (X,), note="even",
        torch=lambda t: lambda x: t.quantile(x, 0.5, dim=-1, keepdim=True)),
    Row("median", lambda x: pb.median(x, axis=(0, 2)), (X,), note="axes"),
    Row("median", pb.median, (np.array(1.5),), note="0-d", torch=lambda t: t.median),
    Row("median", lambda x: pb.median(x, axis=0), (integers(-9, 9, 4, 3),), note="integers"),
    Row("median", lambda x: pb.median(x, axis=1), (np.zeros((0, 3)),), by=(), note="empty"),
    *[Row("quantile", lambda x, m=method: pb.quantile(x, 0.37, axis=0, method=m), (ODD,), note=method)
      for method in METHODS],
    *[Row("quantile", lambda x, m=method: pb.quantile(x, [0.13, 0.71], axis=-1, keepdims=True, method=m), (X,),
          note=f"{method} vector", torch=lambda t, m=method: lambda x: t.quantile(
              x, t.tensor([0.13, 0.71], dtype=t.float64), dim=-1, keepdim=True, interpolation=m))
      for method in ("linear", "lower", "higher", "nearest", "midpoint")],
    *[Row("quantile", lambda x, q, m=method: pb.quantile(x, q, axis=(0, 2), method=m), (X, Q), note=f"{method} by q")
      for method in METHODS],
    Row("quantile", lambda x, q: pb.quantile(x, q, axis=1), (X, Q), note="by q",
        torch=lambda t: lambda x, q: t.quantile(x, q, dim=1)),
    Row("quantile", lambda x, q: pb.quantile(x, q), (X, np.array(0.4)), note="by 0-d q",
        torch=lambda t: lambda x, q: t.quantile(x, q)),
    Row("quantile", lambda x: pb.quantile(x, 0.4, method="lower"), (integers(-9, 9, 4, 3),), note="integers"),
    Row("percentile", lambda x: pb.percentile(x, [13, 71.5], axis=0), (ODD,)),
    Row("percentile", lambda x, q: pb.percentile(x, q, axis=0), (ODD, 100 * Q), note="by q"),
    Row("nanmedian", lambda x, m: pb.nanmedian(pb.where(m, x, np.nan), axis=1), (spread(-2, 2, 3, 5), MASK)),
    Row("nanquantile", lambda x, m: pb.nanquantile(pb.where(m, x, np.nan), 0.4, axis=1, keepdims=True),
        (spread(-2, 2, 3, 5), MASK), torch=lambda t: lambda x, m: t.nanquantile(
            t.where(m, x, t.nan), 0.4, dim=1, keepdim=True)),
    Row("nanquantile", lambda x, m, q: pb.nanquantile(pb.where(m, x, np.nan), q, axis=0),
        (spread(-2, 2, 3, 5), MASK, Q), note="by q",
        torch=lambda t: lambda x, m, q: t.nanquantile(t.where(m, x, t.nan), q, dim=0)),
    Row("nanpercentile", lambda x, m: pb.nanpercentile(pb.where(m, x, np.nan), [20, 66], method="hazen"),
        (spread(-2, 2, 3, 5), MASK)),
    Row("ptp", lambda x: pb.ptp(x, axis=1), (X,), torch=lambda t: lambda x: t.amax(x, 1) - t.amin(x, 1)),
    Row("ptp", lambda x: pb.ptp(x, axis=(0, -1), keepdims=True), (X,), note="axes"),
    Row("average", lambda x: pb.average(x, axis=1), (X,), torch=lambda t: lambda x: t.mean(x, dim=1)),
    Row("average", lambda x, w: pb.average(x, axis=1, weights=w, returned=True), (X, IMPORTANCE[:3]), note="weights"),
    Row("average", lambda x, w: pb.average(x, axis=(2, 0), weights=w, keepdims=True), (X, spread(0.3, 1.4, 4, 2)),
        note="axes"),
    Row("average", lambda x, w: pb.average(x, weights=w), (X, spread(0.3, 1.4, 2, 3, 4)), note="all"),
    Row("cov", pb.cov, (normal(3, 5),), torch=lambda t: t.cov),
    Row("cov", pb.cov, (normal(5),), note="vector", torch=lambda t: t.cov),
    Row("cov", lambda x, y: pb.cov(x, y, rowvar=False, bias=True), (normal(5, 2), normal(5, 1, seed=1)), note="two"),
    Row("cov", lambda x, f, a: pb.cov(x, fweights=f, aweights=a), (normal(3, 5), FREQUENCIES, IMPORTANCE),
        note="weights", torch=lambda t: lambda x, f, a: t.cov(x, fweights=f, aweights=a)),
    Row("corrcoef", pb.corrcoef, (normal(3, 5),), torch=lambda t: t.corrcoef),
    Row("corrcoef", lambda x, y: pb.corrcoef(x, y), (normal(5), normal(2, 5, seed=1)), note="two"),
]  # fmt: skip
