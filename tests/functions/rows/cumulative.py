"""Running values along an axis, differences, and the gated linear recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

X = spread(-1.6, 1.7, 4, 5, 3)
ZEROS = np.array([[2.0, 0, 3, -1], [0, 0, 5, 2], [1, 2, 3, 0]])
LINE = spread(-1.2, 1.3, 6, seed=3)
GATES, TERMS, STATE = spread(-1.1, 1.2, 4, 5, 3, seed=1), spread(-2, 2, 4, 5, 3, seed=2), normal(4, 3, seed=3)


def _torch_of(name: str, axis: int, reverse: bool = False, exclusive: bool = False) -> Any:
    """torch's function, turned around by flips and moved on by what it starts from."""

    def of(torch: Any) -> Any:
        def function(x: Any) -> Any:
            x = torch.flip(x, (axis,)) if reverse else x
            y = getattr(torch, name)(x, axis)
            y = y if isinstance(y, torch.Tensor) else y[0]
            if exclusive:
                start = torch.full_like(y.narrow(axis, 0, 1), 0 if name == "cumsum" else 1)
                y = torch.cat([start, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
            return torch.flip(y, (axis,)) if reverse else y

        return function

    return of


def _loop(axis: int, reverse: bool = False, has_state: bool = False) -> Any:
    """The recurrence step by step in torch."""

    def of(torch: Any) -> Any:
        def function(a: Any, b: Any, *state: Any) -> Any:
            a, b = torch.broadcast_tensors(a, b)
            h = state[0] if has_state else torch.zeros_like(b.select(axis, 0))
            steps = range(b.shape[axis])
            found = {}
            for t in reversed(steps) if reverse else steps:
                h = found[t] = a.select(axis, t) * h + b.select(axis, t)
            return torch.stack([found[t] for t in steps], axis)

        return function

    return of


ROWS = [
    Row("cumulative_sum", lambda x: pb.cumulative_sum(x), (LINE,), torch=_torch_of("cumsum", 0), note="line"),
    Row("cumulative_sum", lambda x: pb.cumulative_sum(x, axis=0, include_initial=True), (X,), note="initial"),
    Row("cumulative_sum", lambda x: pb.cumulative_sum(x, axis=1, include_initial=True, reverse=True), (X,),
        note="initial at the end"),
    Row("cumulative_sum", lambda x: pb.cumulative_sum(x, axis=1), (integers(-9, 9, 3, 4),),
        torch=_torch_of("cumsum", 1), note="integers"),
    Row("cumulative_sum", lambda x: pb.cumulative_sum(x, axis=0), (spread(0, 1, 0, 3),), by=(), vmap=False,
        torch=_torch_of("cumsum", 0), note="empty"),
    Row("cumulative_prod", lambda x: pb.cumulative_prod(x), (LINE,), torch=_torch_of("cumprod", 0), note="line"),
    Row("cumulative_prod", lambda x: pb.cumulative_prod(x, axis=-1), (ZEROS,), torch=_torch_of("cumprod", 1),
        note="zeros"),
    Row("cumulative_prod", lambda x: pb.cumulative_prod(x, axis=0, include_initial=True), (ZEROS,), note="initial"),
    Row("cumulative_prod", lambda x: pb.cumulative_prod(x, axis=0), (spread(0, 1, 3, 0),), by=(), note="empty"),
    Row("cumsum", lambda x: pb.cumsum(x), (X,), torch=lambda t: lambda x: x.flatten().cumsum(0), note="flattened"),
    Row("cumsum", lambda x: pb.cumsum(x, 1), (X,), torch=_torch_of("cumsum", 1)),
    Row("cumprod", lambda x: pb.cumprod(x), (X[0, 0],), torch=lambda t: lambda x: x.flatten().cumprod(0)),
    Row("cumprod", lambda x: pb.cumprod(x, -2), (X,), torch=_torch_of("cumprod", 1)),
    Row("cummax", lambda x: pb.cummax(x), (LINE,), torch=_torch_of("cummax", 0), note="line"),
    Row("cummax", lambda x: pb.cummax(x, 1, return_indices=True), (X,), torch=lambda t: lambda x: tuple(t.cummax(x, 1)),
        note="indices"),
    Row("cummin", lambda x: pb.cummin(x, -1, return_indices=True), (X,),
        torch=lambda t: lambda x: tuple(t.cummin(x, -1)), note="indices"),
    Row("cummax", lambda x: pb.cummax(x, 0, return_indices=True), (integers(0, 3, 7, 2),),
        torch=lambda t: lambda x: tuple(t.cummax(x, 0)), note="integers with ties"),
    Row("cummin", lambda x: pb.cummin(x, 0), (spread(0, 1, 0, 2),), by=(), vmap=False, note="empty"),
    Row("logcumsumexp", lambda x: pb.logcumsumexp(x), (30 * LINE,), torch=_torch_of("logcumsumexp", 0), note="line",
        rtol=1e-4),
    Row("logcumsumexp", lambda x: pb.logcumsumexp(x, 0), (spread(0, 1, 2, 0),), by=(), note="empty"),
    Row("gated_scan", lambda a, b: pb.gated_scan(a, b), (LINE, LINE[::-1].copy()), torch=_loop(0), note="line"),
    Row("gated_scan", lambda a, b: pb.gated_scan(a, b, 1), (GATES[:, :, :1], TERMS), torch=_loop(1),
        note="broadcast gates"),
    Row("gated_scan", lambda a, b: pb.gated_scan(a, b, 0), (GATES, TERMS[0]), torch=_loop(0), note="broadcast terms"),
    Row("gated_scan", lambda a, b: pb.gated_scan(a, b, 1), (np.ones((2, 1)), TERMS[0, :2, :1]), torch=_loop(1),
        note="one step"),
    Row("gated_scan", lambda a, b: pb.gated_scan(a, b, 1), (ZEROS, ZEROS[::-1].copy()), torch=_loop(1), note="zeros"),
    Row("gated_scan", lambda a, b, h: pb.gated_scan(a, b, 1, initial=h), (GATES, TERMS, STATE),
        torch=_loop(1, has_state=True), note="initial"),
    Row("gated_scan", lambda a, b, h: pb.gated_scan(a, b, -2, reverse=True, initial=h), (GATES, TERMS, STATE[0]),
        torch=_loop(1, True, True), note="broadcast initial, reverse"),
    Row("gated_scan", lambda a, b, h: pb.gated_scan(a, b, initial=h), (LINE, LINE[::-1].copy(), np.array(0.7)),
        torch=_loop(0, has_state=True), note="0-d initial"),
    Row("gated_scan", lambda a, b: pb.gated_scan(a, b, 0), (spread(0, 1, 0, 2), spread(0, 1, 0, 2)), by=(),
        vmap=False, note="empty"),
    Row("diff", lambda x: pb.diff(x), (LINE,), torch=lambda t: lambda x: t.diff(x), note="line"),
    Row("diff", lambda x: pb.diff(x, 2, 1), (X,), torch=lambda t: lambda x: t.diff(x, 2, 1), note="twice"),
    Row("diff", lambda x: pb.diff(x, n=0, axis=0), (X,), torch=lambda t: lambda x: t.diff(x, 0, 0), note="none"),
    Row("diff", lambda x: pb.diff(x, n=9, axis=0), (X,), by=(), torch=lambda t: lambda x: t.diff(x, 9, 0),
        note="more than there are"),
    Row("diff", lambda x, p, a: pb.diff(x, axis=-2, prepend=p, append=a), (X, X[:, :2] + 0.1, X[:, :1] - 0.2),
        torch=lambda t: lambda x, p, a: t.diff(x, 1, -2, p, a), note="edges"),
    Row("diff", lambda x, p: pb.diff(x, 3, 0, prepend=p), (X, X[:3] - 0.1),
        torch=lambda t: lambda x, p: t.diff(x, 3, 0, p), note="thrice with an edge"),
    Row("diff", lambda x: pb.diff(x, prepend=0.0, append=1), (X,), note="edges that are numbers"),
    Row("diff", lambda x: pb.diff(x, axis=0), (integers(-9, 9, 4, 2),), torch=lambda t: lambda x: t.diff(x, dim=0),
        note="integers"),
    Row("diff", lambda x: pb.diff(x, axis=0), (integers(0, 2, 6).astype(bool),), torch=lambda t: lambda x: t.diff(x),
        note="bools"),
]  # fmt: skip

_OPTIONS = [(axis, reverse, exclusive) for axis in (0, 1, -1) for reverse in (False, True)
            for exclusive in (False, True)]
for _axis, _reverse, _exclusive in _OPTIONS:
    _note = f"axis {_axis}{', reverse' if _reverse else ''}{', exclusive' if _exclusive else ''}"
    for _name, _theirs in (("cumulative_sum", "cumsum"), ("cumulative_prod", "cumprod")):
        _function = getattr(pb, _name)
        ROWS.append(Row(
            _name, lambda x, f=_function, a=_axis, r=_reverse, e=_exclusive: f(x, axis=a, reverse=r, exclusive=e), (X,),
            torch=_torch_of(_theirs, _axis, _reverse, _exclusive), note=_note,
        ))
    if _exclusive:
        continue
    for _name in ("cummax", "cummin", "logcumsumexp"):
        _function = getattr(pb, _name)
        ROWS.append(Row(
            _name, lambda x, f=_function, a=_axis, r=_reverse: f(x, a, reverse=r), (X,),
            torch=_torch_of(_name, _axis, _reverse), note=_note,
        ))
    ROWS.append(Row(
        "gated_scan", lambda a, b, n=_axis, r=_reverse: pb.gated_scan(a, b, n, reverse=r), (GATES, TERMS),
        torch=_loop(_axis, _reverse), note=_note,
    ))
