"""The elementwise ops beyond the basic ones."""

from __future__ import annotations

import numpy as np

from pullback.ops import elementwise as e
from tests.ops.support import Case, grid

_SHAPES = {"same": ((3, 4), (3, 4)), "outer": ((3, 1), (4,)), "scalar": ((2, 3), ()), "ranks": ((4,), (2, 3, 1))}


def _unary() -> list[Case]:
    inside, share, positive = (-0.9, 0.9), (0.05, 0.95), (0.3, 6.0)
    cases = [
        Case(name, getattr(e, name), (grid(*interval, (3, 4)),), (0,))
        for name, interval in (
            ("erfinv", inside), ("logit", share), ("one_minus_square", (-2.0, 2.0)), ("lgamma", positive),
            ("digamma", positive),
        )
    ]
    cases.append(Case("lgamma", e.lgamma, (grid(-2.9, -2.1, (5,)),), (0,), "negative"))
    cases.append(Case("digamma", e.digamma, (grid(-2.9, -2.1, (5,)),), (0,), "negative"))
    cases.append(Case("lgamma", e.lgamma, (grid(6.0, 40.0, (5,)),), (0,), "large"))
    for order in (1, 2, 5):
        cases.append(Case("polygamma", lambda x, n=order: e.polygamma(x, n), (grid(0.5, 9, (3, 4)),), (0,), str(order)))
    cases.append(Case("polygamma", e.polygamma, (grid(-2.9, -2.1, (5,)),), (0,), "negative"))
    for order in (0, 1, 3):
        cases.append(Case("sinc", lambda x, n=order: e.sinc(x, n), (grid(-3, 3, (3, 4)),), (0,), str(order)))
    cases.append(Case("sinc", e.sinc, (np.array([0.0, 1e-9, -1e-5, 1.0]),), (0,), "zero"))
    return cases


def _binary() -> list[Case]:
    cases = []
    for note, (left, right) in _SHAPES.items():
        x, y = grid(0.3, 2.9, left, 1), grid(0.4, 3.1, right, 2)
        for name in ("fmod", "fmax", "fmin", "hypot", "logaddexp", "logaddexp2"):
            cases.append(Case(name, getattr(e, name), (x, y), (0, 1), note))
        cases.append(Case("fmod", e.fmod, (-3 * x, y), (0, 1), f"{note} negative"))
        cases.append(Case("nextafter", e.nextafter, (grid(-2, 2, left), grid(-2, 2, right, 5)), (), note))
    return cases


CASES: list[Case] = _unary() + _binary()
