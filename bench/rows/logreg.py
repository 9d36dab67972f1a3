"""Logistic regression of 100 x 5 in float64, to first and second order: so small that calling it is most of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


def build_pullback(inputs: Inputs, second_order: bool) -> Job:
    import pullback as pb

    def loss(w: Any, x: Any, signs: Any) -> Any:
        return pb.mean(pb.log1p(pb.exp(-signs * (x @ w))))

    function = pb.jit(pb.hessian(loss) if second_order else pb.value_and_grad(loss))
    w, x, signs = (pb.asarray(inputs[name]) for name in ("w", "x", "signs"))

    def step() -> Any:
        outputs = function(w, x, signs)
        pb.eval(outputs)
        return outputs

    return Job(step, lambda outputs: _arrays(outputs, second_order))


def build_numpy(inputs: Inputs, second_order: bool) -> Job:
    w, x, signs = inputs["w"], inputs["x"], inputs["signs"]
    negative = -signs
    scale = negative / len(x)
    transposed = np.ascontiguousarray(x.T)

    def value_and_gradient() -> Any:
        e = np.exp(negative * (x @ w))
        value = np.log1p(e).mean()
        return value, transposed @ (scale * (e / (1 + e)))

    def hessian() -> np.ndarray:
        # x^T diag(p (1 - p)) x / n,  p = 1 / (1 + exp(-margin));  signs squared are 1
        e = np.exp(negative * (x @ w))
        return (transposed * (e / ((1 + e) ** 2 * len(x)))) @ x

    return Job(hessian if second_order else value_and_gradient, lambda outputs: _arrays(outputs, second_order))


def build_torch(inputs: Inputs, second_order: bool) -> Job:
    import torch

    w, x, signs = (torch.from_numpy(inputs[name]) for name in ("w", "x", "signs"))
    leaf = w.clone().requires_grad_()

    def loss(w: Any) -> Any:
        return torch.log1p(torch.exp(-signs * (x @ w))).mean()

    def value_and_gradient() -> Any:
        value = loss(leaf)
        return value.detach(), torch.autograd.grad(value, leaf)[0]

    hessian = torch.func.hessian(loss)
    step = (lambda: hessian(w)) if second_order else value_and_gradient
    return Job(step, lambda outputs: _arrays(outputs, second_order))


def build_jax(inputs: Inputs, second_order: bool) -> Job:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def loss(w: Any, x: Any, signs: Any) -> Any:
        return jnp.mean(jnp.log1p(jnp.exp(-signs * (x @ w))))

    function = jax.jit(jax.hessian(loss) if second_order else jax.value_and_grad(loss))
    w, x, signs = (jnp.asarray(inputs[name]) for name in ("w", "x", "signs"))
    return Job(
        lambda: jax.block_until_ready(function(w, x, signs)), lambda outputs: _arrays(outputs, second_order)
    )


def _arrays(outputs: Any, second_order: bool) -> list[np.ndarray]:
    return [np.asarray(output) for output in ([outputs] if second_order else outputs)]


def builders(second_order: bool) -> dict[str, Callable[[Inputs], Job]]:
    return {
        "pullback": partial(build_pullback, second_order=second_order),
        "numpy": partial(build_numpy, second_order=second_order),
        "torch": partial(build_torch, second_order=second_order),
        "jax": partial(build_jax, second_order=second_order),
    }


ROWS = (
    Timed(
        name="logreg",
        what="value and gradient of logistic regression, 100 x 5, f64",
        target=Target(0.5, 0.8),
        inputs=make_inputs,
        builders=builders(second_order=False),
        tolerance=1e-12,
        judges=("torch", "jax"),  # NumPy's derivatives are derived by hand
    ),
    Timed(
        name="logreg-hessian",
        what="its 5 x 5 Hessian",
        target=Target(0.5, 1.0),
        inputs=make_inputs,
        builders=builders(second_order=True),
        tolerance=1e-12,
        judges=("torch", "jax"),
    ),
)
