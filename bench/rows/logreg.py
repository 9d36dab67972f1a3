"""Logistic regression of 100 x 5 in float64: a problem so small that the way in and out is most of the time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..row import Inputs, Job, Target, Timed


def make_inputs(tiny: bool) -> Inputs:
    """x f64[n, 5], signs f64[n] of -1 and 1, w f64[5]."""
    count = 11 if tiny else 100
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((count, 5)),
        "signs": np.where(rng.random(count) < 0.5, -1.0, 1.0),
        "w": rng.standard_normal(5),
    }


def build_pullback(inputs: Inputs) -> Job:
    import pullback as pb

    def loss(w: Any, x: Any, signs: Any) -> Any:
        return pb.mean(pb.log1p(pb.exp(-signs * (x @ w))))

    function = pb.jit(pb.value_and_grad(loss))
    w, x, signs = (pb.asarray(inputs[name]) for name in ("w", "x", "signs"))

    def step() -> Any:
        outputs = function(w, x, signs)
        pb.eval(outputs)
        return outputs

    return Job(step, lambda outputs: [np.asarray(output) for output in outputs])


def build_numpy(inputs: Inputs) -> Job:
    w, x, signs = inputs["w"], inputs["x"], inputs["signs"]
    negative = -signs
    scale = negative / len(x)
    transposed = np.ascontiguousarray(x.T)

    def step() -> Any:
        e = np.exp(negative * (x @ w))
        value = np.log1p(e).mean()
        return value, transposed @ (scale * (e / (1 + e)))

    return Job(step, list)


def build_torch(inputs: Inputs) -> Job:
    import torch

    w, x, signs = (torch.from_numpy(inputs[name]) for name in ("w", "x", "signs"))
    leaf = w.clone().requires_grad_()

    def step() -> Any:
        value = torch.log1p(torch.exp(-signs * (x @ leaf))).mean()
        return value, torch.autograd.grad(value, leaf)[0]

    return Job(step, lambda outputs: [output.detach().numpy() for output in outputs])


def build_jax(inputs: Inputs) -> Job:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def loss(w: Any, x: Any, signs: Any) -> Any:
        return jnp.mean(jnp.log1p(jnp.exp(-signs * (x @ w))))

    function = jax.jit(jax.value_and_grad(loss))
    w, x, signs = (jnp.asarray(inputs[name]) for name in ("w", "x", "signs"))
    return Job(
        lambda: jax.block_until_ready(function(w, x, signs)), lambda outputs: [np.asarray(output) for output in outputs]
    )


ROWS = (
    Timed(
        name="logreg",
        what="value and gradient of logistic regression, 100 x 5, f64",
        target=Target(0.5, 0.8),
        inputs=make_inputs,
        builders={"pullback": build_pullback, "numpy": build_numpy, "torch": build_torch, "jax": build_jax},
        tolerance=1e-12,
        judges=("torch", "jax"),  # NumPy's gradient is derived by hand
    ),
)
