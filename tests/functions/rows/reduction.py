"""Reductions: sums, extremes, truth, positions, means and variances, and those that pass NaN over."""

from __future__ import annotations

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

X = spread(-2, 2, 2, 3, 4)
POSITIVE = spread(0.4, 2, 2, 3, 4)
EMPTY = np.zeros((0, 3))
MASK = np.random.default_rng(3).random((2, 3, 4)) < 0.6
HOLES = np.where(np.random.default_rng(4).random((3, 4)) < 0.3, np.nan, spread(0.5, 2, 3, 4))
WITH_ZEROS = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.5, 2.0, -3.0]])
TIES = integers(0, 3, 3, 4)


def _sums(name: str) -> list[Row]:
    function = getattr(pb, name)
    return [
        Row(name, function, (POSITIVE,), torch=lambda t: getattr(t, name), note="all"),
        Row(name, lambda x: function(x, axis=1), (POSITIVE,), torch=lambda t: lambda x: getattr(t, name)(x, dim=1)),
        Row(name, lambda x: function(x, axis=-1, keepdims=True), (POSITIVE,), note="keepdims",
            torch=lambda t: lambda x: getattr(t, name)(x, dim=-1, keepdim=True)),
        Row(name, lambda x: function(x, axis=(0, -1)), (POSITIVE,), note="axes"),
        Row(name, lambda x: function(x, axis=()), (POSITIVE,), note="no axis"),
        Row(name, function, (np.array(1.7),), note="0-d", torch=lambda t: getattr(t, name)),
        Row(name, lambda x: function(x, axis=0), (EMPTY,), by=(), note="empty",
            torch=lambda t: lambda x: getattr(t, name)(x, dim=0)),
        Row(name, lambda x, m, i: function(x, axis=1, where=m, initial=i), (POSITIVE, MASK, normal(2, 4)),
            note="where and initial"),
        Row(name, lambda x: function(x, axis=0), (integers(-5, 5, 3, 2),), by=(), note="integers",
            torch=lambda t: lambda x: getattr(t, name)(x, dim=0)),
    ]  # fmt: skip


def _extremes(name: str) -> list[Row]:
    function = getattr(pb, name)
    torch_name = "a" + name
    return [
        Row(name, function, (X,), order=1, note="all", torch=lambda t: getattr(t, name)),
        Row(name, lambda x: function(x, axis=1), (X,), torch=lambda t: lambda x: getattr(t, torch_name)(x, dim=1)),
        Row(name, lambda x: function(x, axis=(0, -1), keepdims=True), (X,), note="axes",
            torch=lambda t: lambda x: getattr(t, torch_name)(x, dim=(0, -1), keepdim=True)),
        Row(name, function, (np.array(1.7),), note="0-d", torch=lambda t: getattr(t, name)),
        Row(name, lambda x: function(x, axis=1), (EMPTY,), by=(), note="empty"),
        Row(name, lambda x, m, i: function(x, axis=1, where=m, initial=i), (X, MASK, spread(-0.3, 0.3, 2, 4)),
            note="where and initial"),
        Row(name, lambda x: function(x, axis=0), (integers(-5, 5, 3, 2),), by=(), note="integers"),
    ]  # fmt: skip


def _moments(name: str) -> list[Row]:
    function = getattr(pb, name)

    def torch_function(**options: object) -> object:
        return lambda t: lambda x: getattr(t, name)(x, **options)

    rows = [
        Row(name, function, (X,), note="all", torch=torch_function(**({} if name == "mean" else {"correction": 0}))),
        Row(name, lambda x: function(x, axis=(0, -1), keepdims=True), (X,), note="axes", torch=torch_function(
            dim=(0, -1), keepdim=True, **({} if name == "mean" else {"correction": 0}))),
        Row(name, lambda x, m: function(x, axis=1, where=m), (X, np.ones_like(MASK) & (np.arange(3) != 1)[:, None]),
            note="where"),
        Row(name, lambda x: function(x, axis=1), (EMPTY,), by=(), note="empty"),
    ]  # fmt: skip
    if name != "mean":
        rows += [
            Row(name, lambda x: function(x, axis=1, correction=1), (X,), note="correction", torch=torch_function(
                dim=1, correction=1)),
            Row(name, lambda x: function(x, axis=-2, ddof=2), (X,), note="ddof", torch=torch_function(
                dim=-2, correction=2)),
        ]  # fmt: skip
    return rows


ROWS = [
    *_sums("sum"),
    *_sums("prod"),
    Row("prod", lambda x: pb.prod(x, axis=1), (WITH_ZEROS,), note="zeros",
        torch=lambda t: lambda x: t.prod(x, dim=1)),
    Row("sum", lambda x: pb.sum(x, dtype="float64"), (integers(-5, 5, 3, 2),), by=(), note="dtype"),
    *_extremes("max"),
    *_extremes("min"),
    Row("amax", lambda x: pb.amax(x, axis=0), (X,), torch=lambda t: lambda x: t.amax(x, dim=0)),
    Row("amin", lambda x: pb.amin(x, axis=0), (X,), torch=lambda t: lambda x: t.amin(x, dim=0)),
    Row("any", lambda x: pb.any(x, axis=1), (MASK,), torch=lambda t: lambda x: t.any(x, dim=1)),
    Row("any", lambda x, m: pb.any(x, axis=(0, 2), keepdims=True, where=m), (TIES.reshape(3, 2, 2), TIES.reshape(
        3, 2, 2) > 1), note="where"),
    Row("all", lambda x: pb.all(x, axis=1), (MASK,), torch=lambda t: lambda x: t.all(x, dim=1)),
    Row("all", lambda x, m: pb.all(x, axis=(0, 2), keepdims=True, where=m), (TIES.reshape(3, 2, 2), TIES.reshape(
        3, 2, 2) > 1), note="where"),
    Row("argmax", lambda x: pb.argmax(x, axis=1), (X,), by=(), torch=lambda t: lambda x: t.argmax(x, dim=1)),
    Row("argmax", lambda x: pb.argmax(x, axis=-1, keepdims=True), (TIES,), note="ties"),
    Row("argmax", pb.argmax, (X,), by=(), note="flat", torch=lambda t: t.argmax),
    Row("argmin", lambda x: pb.argmin(x, axis=1), (X,), by=(), torch=lambda t: lambda x: t.argmin(x, dim=1)),
    Row("argmin", lambda x: pb.argmin(x, axis=-1, keepdims=True), (TIES,), note="ties"),
    Row("argmin", pb.argmin, (X,), by=(), note="flat", torch=lambda t: t.argmin),
    Row("count_nonzero", lambda x: pb.count_nonzero(x, axis=0), (TIES,),
        torch=lambda t: lambda x: t.count_nonzero(x, dim=0)),
    Row("count_nonzero", lambda x: pb.count_nonzero(x, axis=(0, 1), keepdims=True), (WITH_ZEROS,), by=(), note="axes"),
    *_moments("mean"),
    *_moments("var"),
    *_moments("std"),
    Row("std", lambda x: pb.std(x, axis=1), (np.array([[1.5], [-0.3]]),), note="one element"),
    Row("logsumexp", lambda x: pb.logsumexp(x, axis=1), (X,), torch=lambda t: lambda x: t.logsumexp(x, dim=1)),
    Row("logsumexp", lambda x: pb.logsumexp(x, axis=(0, -1), keepdims=True), (X,), note="axes",
        torch=lambda t: lambda x: t.logsumexp(x, dim=(0, -1), keepdim=True)),
    Row("logsumexp", lambda x: pb.logsumexp(600 * x), (X,), note="large", rtol=1e-4,
        torch=lambda t: lambda x: t.logsumexp(600 * x, dim=(0, 1, 2))),
    Row("logsumexp", lambda x, m: pb.exp(pb.logsumexp(pb.where(m, x, -np.inf), axis=1)), (X[0], np.array(
        [[True, False, True, True], [False] * 4, [True, True, False, True]])), note="rows of -inf"),
    Row("logsumexp", lambda x: pb.logsumexp(x, axis=1), (EMPTY,), by=(), note="empty"),
    Row("nansum", lambda x: pb.nansum(x, axis=1), (HOLES,), by=(), note="value",
        torch=lambda t: lambda x: t.nansum(x, dim=1)),
    Row("nanmean", lambda x: pb.nanmean(x, axis=-1), (HOLES,), by=(), note="value",
        torch=lambda t: lambda x: t.nanmean(x, dim=1)),
    Row("nanargmax", lambda x: pb.nanargmax(x, axis=1), (HOLES,), by=()),
    Row("nanargmin", lambda x: pb.nanargmin(x), (HOLES,), by=(), note="flat"),
    Row("nanargmin", lambda x: pb.nanargmin(x, axis=0, keepdims=True), (TIES,), note="integers"),
]  # fmt: skip

# NaN comes in by a mask, so that the finite differences are of what is present.
for _name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"):
    _function = getattr(pb, _name)
    ROWS += [
        Row(_name, lambda x, m, f=_function: f(pb.where(m, x, np.nan), axis=1), (POSITIVE, MASK)),
        Row(_name, lambda x, m, f=_function: f(pb.where(m, x, np.nan), axis=(0, -1), keepdims=True), (POSITIVE, MASK),
            note="axes"),
        Row(_name, lambda x, f=_function: f(x, axis=0), (integers(-5, 5, 3, 2),), by=(), note="integers"),
    ]  # fmt: skip
