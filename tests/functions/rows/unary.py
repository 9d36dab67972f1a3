"""Elementwise functions of one operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

#: name -> interval in which the function is smooth
SMOOTH = dict.fromkeys(
    ("negative", "positive", "square", "exp", "exp2", "expm1", "sin", "cos", "atan", "sinh", "cosh", "tanh", "asinh",
     "erf", "erfc", "sigmoid", "sinc", "deg2rad", "rad2deg", "sign", "nan_to_num"), (-2.0, 2.0),
) | dict.fromkeys(
    ("sqrt", "rsqrt", "cbrt", "reciprocal", "log", "log2", "log10", "log1p", "lgamma", "digamma"), (0.3, 5.0),
) | dict.fromkeys(("tan", "asin", "acos", "atanh", "erfinv"), (-0.9, 0.9)) | {
    "abs": (-2.0, 2.0), "acosh": (1.2, 4.0), "logit": (0.05, 0.95), "floor": (-3.0, 3.0), "ceil": (-3.0, 3.0),
    "round": (-3.0, 3.0), "trunc": (-3.0, 3.0), "frac": (-3.0, 3.0), "absolute": (-2.0, 2.0),
    "arcsin": (-0.9, 0.9), "arccos": (-0.9, 0.9), "arctan": (-2.0, 2.0), "arcsinh": (-2.0, 2.0),
    "arccosh": (1.2, 4.0), "arctanh": (-0.9, 0.9), "degrees": (-2.0, 2.0), "radians": (-2.0, 2.0),
}  # fmt: skip
#: names that PyTorch spells otherwise, or lacks (None); of sign and the roundings it has zero gradients
PEERS: dict[str, str | None] = {"cbrt": None, "degrees": "rad2deg", "radians": "deg2rad"}
TESTS = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not")


def _peer(name: str) -> Callable[[Any], Callable[..., Any]] | None:
    spelt = PEERS.get(name, name)
    return None if spelt is None else lambda t: getattr(t, spelt)


def _rows() -> list[Row]:
    rows = []
    for name, (low, high) in SMOOTH.items():
        rows.append(Row(name, getattr(pb, name), (spread(low, high, 3, 4),), torch=_peer(name)))
    for name in ("exp", "lgamma", "sinc", "polygamma"):
        function = getattr(pb, name) if name != "polygamma" else lambda x: pb.polygamma(1, x)
        rows.append(Row(name, function, (spread(0.5, 2.0),), note="0-d"))
        rows.append(Row(name, function, (np.ones((2, 0)),), note="empty"))
    for name in ("lgamma", "digamma"):
        negative = spread(-3.9, -3.1, 5)
        rows.append(Row(name, getattr(pb, name), (negative,), note="negative", torch=_peer(name), rtol=1e-4))
        rows.append(Row(name, getattr(pb, name), (spread(8, 90, 5),), note="large", torch=_peer(name)))
    for n in (0, 1, 2, 4):
        rows.append(Row(
            "polygamma", lambda x, n=n: pb.polygamma(n, x), (spread(0.6, 9, 2, 3),), note=str(n),
            torch=lambda t, n=n: lambda x: t.polygamma(n, x),
        ))
    rows += [
        Row("sinc", pb.sinc, (np.array([0.0, 1e-8, -1e-3, 0.3, 1.0, -2.5, 40.25]),), note="zero", order=3),
        Row("logit", lambda x: pb.logit(x, eps=0.2), (spread(0.01, 0.99, 7),), note="eps",
            torch=lambda t: lambda x: t.logit(x, eps=0.2)),
        Row("round", lambda x: pb.round(x, decimals=1), (spread(-3, 3, 7),), note="decimals",
            torch=lambda t: lambda x: t.round(x, decimals=1)),
        Row("nan_to_num", lambda x: pb.nan_to_num(x, nan=2.0, posinf=3.0, neginf=4.0),
            (np.array([1.5, np.nan, np.inf, -np.inf, -0.5]),), by=(), note="special",
            torch=lambda t: lambda x: t.nan_to_num(x, nan=2.0, posinf=3.0, neginf=4.0)),
        Row("invert", pb.invert, (integers(-9, 9, 5),), torch=lambda t: t.bitwise_not),
        Row("bitwise_invert", pb.bitwise_invert, (normal(5) > 0,), note="bool", torch=lambda t: t.bitwise_not),
    ]
    special = np.array([[1.0, -0.0, 0.0], [np.nan, np.inf, -np.inf]])
    for name in TESTS:
        rows.append(Row(name, getattr(pb, name), (special,), by=(), torch=_peer(name)))
        rows.append(Row(name, getattr(pb, name), (integers(-2, 2, 4),), note="integers"))
    return rows


ROWS = _rows()
