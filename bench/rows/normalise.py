"""Softmax and layer normalisation of 4096 rows of 1024, and the latter's gradient: several passes over each row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..row import Inputs, Job, Target, Timed

EPSILON = 1e-5


def make_inputs(tiny: bool) -> Inputs:
    """x f32[rows, columns]."""
    shape = (17, 67) if tiny else (4096, 1024)
    return {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}


def build_pullback(inputs: Inputs, kind: str) -> Job:
    import pullback as pb

    def softmax(x: Any) -> Any:
        e = pb.exp(x - pb.max(x, axis=-1, keepdims=True))
        return e / pb.sum(e, axis=-1, keepdims=True)

    def layer_norm(x: Any) -> Any:
        centred = x - pb.mean(x, axis=-1, keepdims=True)
        return centred / pb.sqrt(pb.mean(centred**2, axis=-1, keepdims=True) + EPSILON)

    function = {
        "softmax": pb.jit(softmax),
        "layernorm": pb.jit(layer_norm),
        "layernorm-grad": pb.jit(pb.grad(lambda x: pb.sum(layer_norm(x) ** 3))),
    }[kind]
    x = pb.asarray(inputs["x"])

    def step() -> Any:
        y = function(x)
        pb.eval(y)
        return y

    return Job(step, lambda y: [np.asarray(y)])


def build_numpy(inputs: Inputs, kind: str) -> Job:
    """In place on arrays made once."""
    x = inputs["x"]
    columns = x.shape[1]
    out, scratch = np.empty_like(x), np.empty_like(x)
    row, other = np.empty((len(x), 1), np.float32), np.empty((len(x), 1), np.float32)

    def softmax() -> np.ndarray:
        np.max(x, axis=1, keepdims=True, out=row)
        np.subtract(x, row, out=out)
        np.exp(out, out=out)
        np.sum(out, axis=1, keepdims=True, out=row)
        np.divide(out, row, out=out)
        return out

    def layer_norm() -> np.ndarray:
        np.mean(x, axis=1, keepdims=True, out=row)
        np.subtract(x, row, out=out)
        np.multiply(out, out, out=scratch)
        np.mean(scratch, axis=1, keepdims=True, out=row)
        np.add(row, EPSILON, out=row)
        np.sqrt(row, out=row)
        np.divide(out, row, out=out)
        return out

    def gradient() -> np.ndarray:
        # With y = ln(x) and g = 3 y^2:  (g - mean(g) - y mean(g y)) / sigma
        y = layer_norm()
        np.multiply(y, y, out=scratch)
        np.multiply(scratch, 3, out=scratch)
        np.einsum("ij,ij->i", scratch, y, out=other[:, 0])
        np.divide(other, columns, out=other)
        np.multiply(y, other, out=y)
        np.mean(scratch, axis=1, keepdims=True, out=other)
        np.subtract(scratch, other, out=scratch)
        np.subtract(scratch, y, out=scratch)
        np.divide(scratch, row, out=scratch)
        return scratch

    return Job({"softmax": softmax, "layernorm": layer_norm, "layernorm-grad": gradient}[kind], lambda y: [y])


def build_torch(inputs: Inputs, kind: str, compiled: bool = False) -> Job:
    import torch
    from torch.nn import functional

    x = torch.from_numpy(inputs["x"])
    leaf = x.detach().requires_grad_()

    def softmax(x: Any) -> Any:
        return functional.softmax(x, dim=-1)

    def layer_norm(x: Any) -> Any:
        return functional.layer_norm(x, (x.shape[-1],), eps=EPSILON)

    def loss(x: Any) -> Any:
        return (layer_norm(x) ** 3).sum()

    function = {"softmax": softmax, "layernorm": layer_norm, "layernorm-grad": loss}[kind]
    if compiled:
        function = torch.compile(function)

    def forward() -> Any:
        with torch.no_grad():
            return function(x)

    def backward() -> Any:
        return torch.autograd.grad(function(leaf), leaf)[0]

    return Job(backward if kind == "layernorm-grad" else forward, lambda y: [y.numpy()])


def build_jax(inputs: Inputs, kind: str) -> Job:
    import jax
    import jax.numpy as jnp

    def layer_norm(x: Any) -> Any:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPSILON)

    function = {
        "softmax": jax.jit(partial(jax.nn.softmax, axis=-1)),
        "layernorm": jax.jit(layer_norm),
        "layernorm-grad": jax.jit(jax.grad(lambda x: jnp.sum(layer_norm(x) ** 3))),
    }[kind]
    x = jnp.asarray(inputs["x"])
    return Job(lambda: function(x).block_until_ready(), lambda y: [np.asarray(y)])


def builders(kind: str) -> dict[str, Any]:
    return {
        "pullback": partial(build_pullback, kind=kind),
        "numpy": partial(build_numpy, kind=kind),
        "torch": partial(build_torch, kind=kind),
        "torch.compile": partial(build_torch, kind=kind, compiled=True),
        "jax": partial(build_jax, kind=kind),
    }


ROWS = (
    Timed("softmax", "4096 x 1024, last axis", Target(0.8, 1.0), make_inputs, builders("softmax"), tolerance=1e-5),
    Timed("layernorm", "4096 x 1024, last axis", Target(0.9, 1.0), make_inputs, builders("layernorm"), tolerance=1e-5),
    Timed(
        "layernorm-grad",
        "gradient of sum(layernorm(x)^3), 4096 x 1024",
        Target(0.9, 1.0),
        make_inputs,
        builders("layernorm-grad"),
        tolerance=1e-4,
    ),
)
