"""tanh-GELU of a million float32 and its gradient: arithmetic on data that is read and written once."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ..row import Inputs, Job, Target, Timed

SCALE = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def make_inputs(tiny: bool) -> Inputs:
    """x f32[n], a few standard deviations wide."""
    count = 1003 if tiny else 1_000_000
    return {"x": (3 * np.random.default_rng(0).standard_normal(count)).astype(np.float32)}


def build_pullback(inputs: Inputs, gradient: bool) -> Job:
    import pullback as pb

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1 + pb.tanh(SCALE * (x + CUBIC * x**3)))

    function = pb.jit(pb.grad(lambda x: pb.sum(gelu(x)))) if gradient else pb.jit(gelu)
    x = pb.asarray(inputs["x"])

    def step() -> Any:
        y = function(x)
        pb.eval(y)
        return y

    return Job(step, lambda y: [np.asarray(y)])


def build_numpy(inputs: Inputs, gradient: bool) -> Job:
    """In place on arrays made once."""
    x = inputs["x"]
    inner, out, scratch = np.empty_like(x), np.empty_like(x), np.empty_like(x)

    def forward() -> np.ndarray:
        np.multiply(x, x, out=inner)
        np.multiply(inner, SCALE * CUBIC, out=inner)
        np.add(inner, SCALE, out=inner)
        np.multiply(inner, x, out=inner)
        np.tanh(inner, out=inner)
        np.add(inner, 1, out=out)
        np.multiply(out, x, out=out)
        np.multiply(out, 0.5, out=out)
        return out

    def backward() -> np.ndarray:
        # 0.5 (1 + t) + 0.5 x (1 - t^2) (s + 3 s c x^2),  t = tanh(s (x + c x^3))
        np.multiply(x, x, out=scratch)
        np.multiply(scratch, SCALE * CUBIC, out=inner)
        np.add(inner, SCALE, out=inner)
        np.multiply(inner, x, out=inner)
        np.tanh(inner, out=inner)
        np.multiply(scratch, 3 * SCALE * CUBIC, out=scratch)
        np.add(scratch, SCALE, out=scratch)
        np.multiply(scratch, x, out=scratch)
        np.multiply(inner, inner, out=out)
        np.subtract(1, out, out=out)
        np.multiply(out, scratch, out=out)
        np.add(out, inner, out=out)
        np.add(out, 1, out=out)
        np.multiply(out, 0.5, out=out)
        return out

    return Job(backward if gradient else forward, lambda y: [y])


def build_torch(inputs: Inputs, gradient: bool, compiled: bool = False) -> Job:
    import torch

    def gelu(x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate="tanh")

    if compiled:
        gelu = torch.compile(gelu)
    x = torch.from_numpy(inputs["x"])

    def forward() -> Any:
        with torch.no_grad():
            return gelu(x)

    leaf = x.detach().requires_grad_()

    def backward() -> Any:
        return torch.autograd.grad(gelu(leaf).sum(), leaf)[0]

    return Job(backward if gradient else forward, lambda y: [y.numpy()])


def build_jax(inputs: Inputs, gradient: bool) -> Job:
    import jax
    import jax.numpy as jnp

    def gelu(x: Any) -> Any:
        return jax.nn.gelu(x, approximate=True)

    function = jax.jit(jax.grad(lambda x: jnp.sum(gelu(x)))) if gradient else jax.jit(gelu)
    x = jnp.asarray(inputs["x"])
    return Job(lambda: function(x).block_until_ready(), lambda y: [np.asarray(y)])


def builders(gradient: bool) -> dict[str, Any]:
    return {
        "pullback": partial(build_pullback, gradient=gradient),
        "numpy": partial(build_numpy, gradient=gradient),
        "torch": partial(build_torch, gradient=gradient),
        "torch.compile": partial(build_torch, gradient=gradient, compiled=True),
        "jax": partial(build_jax, gradient=gradient),
    }


ROWS = (
    Timed("gelu", "tanh-GELU of 1e6 f32", Target(0.6, 0.8), make_inputs, builders(gradient=False), tolerance=1e-6),
    Timed("gelu-grad", "its gradient", Target(0.6, 0.8), make_inputs, builders(gradient=True), tolerance=1e-5),
)
