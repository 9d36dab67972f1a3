"""Running sums along each axis, and the gradient of a gated linear recurrence."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..jobs import build_jax, build_pullback, build_torch
from ..row import Inputs, Job, Target, Timed


def make_matrix(tiny: bool, flat: bool) -> Inputs:
    """x f32[n] or f32[n, n]."""
    shape = (67,) if tiny and flat else (17, 19) if tiny else (1_000_000,) if flat else (1000, 1000)
    return {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}


def make_sequences(tiny: bool) -> Inputs:
    """Gates a in (0, 1) and terms b, f32[batch, time, channels]."""
    shape = (2, 9, 19) if tiny else (8, 512, 128)
    rng = np.random.default_rng(0)
    return {"a": rng.random(shape, dtype=np.float32), "b": rng.standard_normal(shape, dtype=np.float32)}


def sum_in_numpy(inputs: Inputs, axis: int) -> Job:
    x = inputs["x"]
    out = np.empty_like(x)
    return Job(lambda: np.cumsum(x, axis, out=out), lambda y: [y])


def gradient_in_pullback(pb: Any, nn: Any, a: Any, b: Any) -> Any:
    return pb.grad(lambda a, b: pb.sum(pb.gated_scan(a, b, axis=1) ** 2), (0, 1))(a, b)


def gradient_in_numpy(inputs: Inputs) -> Job:
    """By hand, step by step in time."""
    a, b = inputs["a"], inputs["b"]
    h, by_a, by_b = np.empty_like(b), np.empty_like(a), np.empty_like(b)
    steps = a.shape[1]

    def step() -> tuple[np.ndarray, np.ndarray]:
        h[:, 0] = b[:, 0]
        for t in range(1, steps):
            np.multiply(a[:, t], h[:, t - 1], out=h[:, t])
            h[:, t] += b[:, t]
        np.multiply(h, 2, out=by_b)
        for t in range(steps - 1, 0, -1):
            by_b[:, t - 1] += a[:, t] * by_b[:, t]
        by_a[:, 0] = 0
        np.multiply(by_b[:, 1:], h[:, :-1], out=by_a[:, 1:])
        return by_a, by_b

    return Job(step, list)


def gradient_in_jax(jax: Any, jnp: Any, a: Any, b: Any) -> Any:
    """XLA's parallel scan, over pairs of a gate and a term."""

    def join(x: Any, y: Any) -> Any:
        return x[0] * y[0], x[1] * y[0] + y[1]

    def loss(a: Any, b: Any) -> Any:
        return jnp.sum(jax.lax.associative_scan(join, (a, b), axis=1)[1] ** 2)

    return jax.grad(loss, (0, 1))(a, b)


def _sums(name: str, what: str, axis: int, flat: bool) -> Timed:
    builders = {
        "pullback": partial(build_pullback, work=lambda pb, nn, x: pb.cumulative_sum(x, axis=axis)),
        "numpy": partial(sum_in_numpy, axis=axis),
        "torch": partial(build_torch, work=lambda torch, functional, x: torch.cumsum(x, axis)),
        "jax": partial(build_jax, work=lambda jax, jnp, x: jnp.cumsum(x, axis)),
    }
    # The peers add in float32, whose rounding a million terms show.
    return Timed(name, what, Target(0.5, 1.0), partial(make_matrix, flat=flat), builders, 1e-4, first_call=False)


ROWS = (
    _sums("cumsum-line", "running sum of 1e6 f32", 0, True),
    _sums("cumsum-0", "running sums of 1000 x 1000 f32, first axis", 0, False),
    _sums("cumsum-1", "running sums of 1000 x 1000 f32, last axis", 1, False),
    Timed(
        "gated-grad",
        "gradient of sum(h^2), h[t] = a[t] h[t-1] + b[t], 8 x 512 steps x 128 f32",
        Target(0.5, 1.0),
        make_sequences,
        {
            "pullback": partial(build_pullback, work=gradient_in_pullback),
            "numpy": gradient_in_numpy,
            "jax": partial(build_jax, work=gradient_in_jax),
        },
        tolerance=1e-4,
        first_call=False,
    ),
)
