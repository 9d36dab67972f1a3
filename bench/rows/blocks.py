"""Blocks of language models: a gated feed-forward layer, a norm and its linear layer, the loss of a large head."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..jobs import builders_of, torch_gradients
from ..limits import Work
from ..row import Inputs, Target, Timed

EPSILON = 1e-5


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def _products(flop: float, inputs: Inputs, results: float) -> Work:
    return Work(flop, float(sum(array.nbytes for array in inputs.values())), results)


# -- feed-forward with a gate ------------------------------------------------------------------------------------------


def feed_forward_inputs(tiny: bool) -> Inputs:
    """x f32[tokens, width], up f32[2 hidden, width] (gate, then value), down f32[width, hidden]."""
    tokens, width, hidden = (150, 24, 40) if tiny else (1024, 384, 1024)
    rng = np.random.default_rng(0)
    up = _normal(rng, 2 * hidden, width, scale=width**-0.5)
    return {"x": _normal(rng, tokens, width), "up": up, "down": _normal(rng, width, hidden, scale=hidden**-0.5)}


def feed_forward_work(inputs: Inputs, *, passes: int) -> Work:
    weights = inputs["up"].size + inputs["down"].size
    results = inputs["x"].nbytes + (4.0 * weights if passes > 1 else 0.0)
    return _products(2.0 * passes * len(inputs["x"]) * weights, inputs, results)


def feed_forward_pullback(pb: Any, nn: Any, x: Any, up: Any, down: Any) -> Any:
    return pb.linear(nn.swiglu(pb.linear(x, up)), down)


def feed_forward_torch(torch: Any, functional: Any, x: Any, up: Any, down: Any) -> Any:
    a, b = functional.linear(x, up).chunk(2, -1)
    return functional.linear(functional.silu(a) * b, down)


def feed_forward_jax(jax: Any, jnp: Any, x: Any, up: Any, down: Any) -> Any:
    a, b = jnp.split(x @ up.T, 2, -1)
    return (jax.nn.silu(a) * b) @ down.T


def feed_forward_grad_pullback(pb: Any, nn: Any, x: Any, up: Any, down: Any) -> Any:
    value, gradients = pb.value_and_grad(lambda *a: pb.sum(feed_forward_pullback(pb, nn, *a) ** 2), (0, 1, 2))(
        x, up, down
    )
    return [value, *gradients]


def feed_forward_grad_torch(torch: Any, functional: Any, x: Any, up: Any, down: Any) -> Any:
    return torch_gradients(lambda *a: (feed_forward_torch(torch, functional, *a) ** 2).sum(), x, up, down)


def feed_forward_grad_jax(jax: Any, jnp: Any, x: Any, up: Any, down: Any) -> Any:
    value, gradients = jax.value_and_grad(lambda *a: jnp.sum(feed_forward_jax(jax, jnp, *a) ** 2), (0, 1, 2))(
        x, up, down
    )
    return [value, *gradients]


# -- a norm and a linear layer -----------------------------------------------------------------------------------------


def norm_inputs(tiny: bool) -> Inputs:
    """x f32[rows, width], scale f32[width], w f32[width, width]."""
    rows, width = (300, 72) if tiny else (4096, 768)
    rng = np.random.default_rng(0)
    weights = _normal(rng, width, width, scale=width**-0.5)
    return {"x": _normal(rng, rows, width), "scale": _normal(rng, width), "w": weights}


def norm_work(inputs: Inputs) -> Work:
    return _products(2.0 * inputs["x"].size * len(inputs["w"]), inputs, float(inputs["x"].nbytes))


def norm_pullback(pb: Any, nn: Any, x: Any, scale: Any, w: Any) -> Any:
    return pb.linear(nn.rms_norm(x, (x.shape[-1],), scale, EPSILON), w)


def norm_torch(torch: Any, functional: Any, x: Any, scale: Any, w: Any) -> Any:
    return functional.linear(functional.rms_norm(x, (x.shape[-1],), scale, EPSILON), w)


def norm_jax(jax: Any, jnp: Any, x: Any, scale: Any, w: Any) -> Any:
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON) * scale) @ w.T


# -- cross entropy of a linear head ------------------------------------------------------------------------------------


def head_inputs(tiny: bool) -> Inputs:
    """x f32[tokens, width], w f32[vocabulary, width], labels int64[tokens]."""
    tokens, width, vocabulary = (6, 8, 50) if tiny else (512, 256, 32000)
    rng = np.random.default_rng(0)
    x, w = _normal(rng, tokens, width), _normal(rng, vocabulary, width, scale=width**-0.5)
    return {"x": x, "w": w, "labels": rng.integers(0, vocabulary, tokens)}


def head_work(inputs: Inputs) -> Work:
    """Three products: logits, and the gradients by both operands; not the logits' second time."""
    x, w = inputs["x"], inputs["w"]
    return _products(6.0 * len(x) * w.size, inputs, float(x.nbytes + w.nbytes))


def head_pullback(pb: Any, nn: Any, x: Any, w: Any, labels: Any) -> Any:
    value, gradients = pb.value_and_grad(lambda x, w: nn.linear_cross_entropy(x, w, labels), (0, 1))(x, w)
    return [value, *gradients]


def head_torch(torch: Any, functional: Any, x: Any, w: Any, labels: Any) -> Any:
    return torch_gradients(lambda x, w: functional.cross_entropy(functional.linear(x, w), labels), x, w)


def head_jax(jax: Any, jnp: Any, x: Any, w: Any, labels: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        logits = x @ w.T
        chosen = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen)

    value, gradients = jax.value_and_grad(loss, (0, 1))(x, w)
    return [value, *gradients]


ROWS = (
    Timed(
        "feed-forward", "swiglu layer, 1024 x 384 x 1024, forward", Target(0.9, 1.0), feed_forward_inputs,
        builders_of(feed_forward_pullback, feed_forward_torch, feed_forward_jax),
        tolerance=2e-5, first_call=False, work=partial(feed_forward_work, passes=1),
    ),
    Timed(
        "feed-forward-grad", "its value and all gradients", Target(0.9, 1.0), feed_forward_inputs,
        builders_of(feed_forward_grad_pullback, feed_forward_grad_torch, feed_forward_grad_jax),
        tolerance=1e-4, first_call=False, work=partial(feed_forward_work, passes=3),
    ),
    Timed(
        "norm-linear", "rms_norm, then a linear layer, 4096 x 768", Target(0.9, 1.0), norm_inputs,
        builders_of(norm_pullback, norm_torch, norm_jax), tolerance=2e-5, first_call=False, work=norm_work,
    ),
    Timed(
        "head-loss", "cross entropy of a linear head, 512 x 256 to 32,000 classes, value and gradients",
        Target(1.0, 1.0), head_inputs, builders_of(head_pullback, head_torch, head_jax), tolerance=1e-4,
        first_call=False, work=head_work,
    ),
)  # fmt: skip
