"""Normalisation functions of ``pb.nn``."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, normal, spread

F = pb.nn.functional
X, IMAGES, ROWS_2D = normal(3, 4, 5), normal(2, 4, 3, 2, seed=1), normal(5, 3, seed=2)
W, B = spread(0.4, 1.9, 4), spread(-1, 1, 4)


def _same(function: Any) -> Any:
    """The same call of torch's function, by the name that both have."""
    return lambda t: function(t.nn.functional)


def _row(name: str, call: Any, arrays: Any, note: str = "", **options: Any) -> Row:
    return Row(f"nn.{name}", call(F), arrays, torch=_same(call), note=note, **options)


ROWS = [
    _row("layer_norm", lambda f: lambda x: f.layer_norm(x, (5,)), (X,)),
    _row("layer_norm", lambda f: lambda x, w, b: f.layer_norm(x, (5,), w, b), (X, spread(0.5, 2, 5), spread(-1, 1, 5)),
         "affine"),
    _row("layer_norm", lambda f: lambda x, w: f.layer_norm(x, (4, 5), w, eps=1e-2), (X, spread(0.5, 2, 4, 5)),
         "two axes"),
    _row("layer_norm", lambda f: lambda x: f.layer_norm(x, (3,)), (np.zeros((0, 3)),), "empty"),
    _row("rms_norm", lambda f: lambda x: f.rms_norm(x, (5,)), (X,)),
    _row("rms_norm", lambda f: lambda x, w: f.rms_norm(x, (4, 5), w, 1e-3), (X, spread(0.5, 2, 4, 5)), "two axes"),
    _row("group_norm", lambda f: lambda x: f.group_norm(x, 2), (X,)),
    _row("group_norm", lambda f: lambda x, w, b: f.group_norm(x, 4, w, b, 1e-3), (IMAGES, W, B), "one channel each"),
    _row("group_norm", lambda f: lambda x, w, b: f.group_norm(x, 1, w, b), (IMAGES, W, B), "one group"),
    _row("batch_norm", lambda f: lambda x: f.batch_norm(x, None, None, training=True), (ROWS_2D,)),
    _row("batch_norm", lambda f: lambda x, w, b: f.batch_norm(x, None, None, w, b, True, 0.1, 1e-3), (X, W, B),
         "sequences"),
    _row("batch_norm", lambda f: lambda x, w, b: f.batch_norm(x, None, None, w, b, True), (IMAGES, W, B), "images"),
    Row("nn.batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (IMAGES, B, W, W[::-1].copy(), B),
        note="eval", torch=lambda t: t.nn.functional.batch_norm, torch_by=(0, 3, 4)),
    _row("instance_norm", lambda f: lambda x: f.instance_norm(x), (X,)),
    _row("instance_norm", lambda f: lambda x, w, b: f.instance_norm(x, weight=w, bias=b, eps=1e-3), (IMAGES, W, B),
         "images"),
    Row("nn.instance_norm", lambda x, m, v: F.instance_norm(x, m, v, use_input_stats=False), (IMAGES, B, W),
        note="eval", torch_by=(0,),
        torch=lambda t: lambda x, m, v: t.nn.functional.instance_norm(x, m, v, use_input_stats=False)),
]
