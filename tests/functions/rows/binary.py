"""Elementwise functions of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

#: the shapes of two operands
SHAPES = {"": ((2, 3), (2, 3)), "outer": ((3, 1), (2,)), "0-d": ((), (2, 3)), "ranks": ((3,), (2, 1, 3))}
ARITHMETIC = (
    "add", "subtract", "multiply", "divide", "true_divide", "pow", "power", "atan2", "arctan2", "hypot", "logaddexp",
    "logaddexp2", "maximum", "minimum", "fmax", "fmin", "copysign", "remainder", "mod", "fmod", "floor_divide",
    "xlogy", "xlog1py", "float_power", "heaviside",
)  # fmt: skip
#: what PyTorch spells otherwise, or has no derivative of
PEERS: dict[str, Callable[[Any], Callable[..., Any]] | None] = {
    "power": lambda t: t.pow, "mod": lambda t: t.remainder, "xlog1py": lambda t: t.special.xlog1py,
    "arctan2": lambda t: t.atan2,
}
NOT_DIFFERENTIABLE_THERE = ("heaviside", "floor_divide")


def _peer(name: str) -> Callable[[Any], Callable[..., Any]] | None:
    return PEERS[name] if name in PEERS else lambda t: getattr(t, name)


def _rows() -> list[Row]:
    rows = []
    for name in ARITHMETIC:
        by = () if name in NOT_DIFFERENTIABLE_THERE else None
        for note, (left, right) in SHAPES.items():
            x, y = spread(0.3, 2.9, *left, seed=1), spread(0.4, 3.1, *right, seed=2)
            rows.append(Row(name, getattr(pb, name), (x, y), note=note, torch=_peer(name), torch_by=by))
        rows.append(Row(name, getattr(pb, name), (np.ones((0, 3)), np.ones(3)), note="empty"))
    for name in ("add", "subtract", "multiply", "divide", "atan2", "hypot", "logaddexp", "logaddexp2", "maximum",
                 "minimum", "fmax", "fmin", "copysign", "remainder", "fmod"):  # fmt: skip
        x, y = spread(-5, 5, 3, 4, seed=3), spread(-3.03, 3, 4, seed=4)
        rows.append(Row(name, getattr(pb, name), (x, y), note="signs", torch=_peer(name)))
    rows.append(Row("divmod", lambda x, y: pb.divmod(x, y), (spread(-5, 5, 6), spread(-3.03, 3, 6, seed=4))))
    x, y = spread(-1, 1, 4), spread(-1, 1, 4, seed=5)
    rows.append(Row("nextafter", pb.nextafter, (x, y), by=(), torch=_peer("nextafter")))
    rows += [
        Row("pow", lambda x, p=p: pb.pow(x, p), (spread(0.4, 3, 5),), note=f"to {p}",
            torch=lambda t, p=p: lambda x: t.pow(x, p))
        for p in (0, 1, 2, 3, 4, 7, 0.5, -0.5, -1, -2, 1.7, -2.3)
    ]
    rows += [
        Row("pow", lambda x, p=p: pb.pow(p, x), (spread(-2, 2, 5),), note=f"of {p}",
            torch=lambda t, p=p: lambda x: t.pow(p, x))
        for p in (2, 0.3)
    ]
    rows.append(Row("pow", lambda x: pb.pow(x, 3), (spread(-2, 2, 5),), note="negative base",
                    torch=lambda t: lambda x: t.pow(x, 3)))
    rows += [
        Row(name, getattr(pb, name), (integers(0, 3, 3, 1), integers(0, 3, 4, seed=1)), note="integers",
            torch=lambda t, n=torch: getattr(t, n))
        for name, torch in (
            ("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
            ("greater_equal", "ge"), ("logical_and", "logical_and"), ("logical_or", "logical_or"),
            ("logical_xor", "logical_xor"), ("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"),
            ("bitwise_xor", "bitwise_xor"), ("bitwise_left_shift", "bitwise_left_shift"),
            ("bitwise_right_shift", "bitwise_right_shift"), ("left_shift", "bitwise_left_shift"),
            ("right_shift", "bitwise_right_shift"), ("add", "add"), ("maximum", "maximum"), ("pow", "pow"),
            ("fmax", "fmax"), ("fmin", "fmin"),
        )
    ]
    a, b = integers(-9, 9, 20), integers(1, 5, 20, seed=1) * np.where(normal(20) > 0, 1, -1)
    rows += [
        Row(name, getattr(pb, name), (a, b), note="integers", torch=_peer(name))
        for name in ("remainder", "fmod", "floor_divide")
    ]
    close = np.array([1.0, 2.0, np.nan, np.inf])
    rows.append(Row(
        "isclose", lambda x, y: pb.isclose(x, y, equal_nan=True), (close, close + [1e-9, 1e-3, 0, 0]), by=(),
        torch=lambda t: lambda x, y: t.isclose(x, y, equal_nan=True),
    ))
    return rows


ROWS = _rows()
