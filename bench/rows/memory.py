"""Work at the speed of memory: an optimizer's step, batch norm, sums, masks, a table's gradient, a wide loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..jobs import build_jax, build_numpy, build_pullback, build_torch, builders_of, torch_gradients
from ..limits import Work
from ..row import Inputs, Job, Target, Timed

RATE, BETAS, EPSILON = 1e-3, (0.9, 0.999), 1e-8
WINDOW, HOP = 400, 160


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _rng().standard_normal(shape, dtype=np.float32)


# -- batch norm --------------------------------------------------------------------------------------------------------


def batch_norm_inputs(tiny: bool) -> Inputs:
    """x and its cotangent f32[batch, channels, side, side], scale and shift f32[channels]."""
    batch, channels, side = (2, 3, 4) if tiny else (32, 64, 56)
    return {
        "x": _normal(batch, channels, side, side), "g": _normal(batch, channels, side, side)[::-1].copy(),
        "w": _normal(channels), "b": _normal(channels),
    }  # fmt: skip


def batch_norm_pullback(pb: Any, nn: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    def loss(x: Any, w: Any, b: Any) -> Any:
        return pb.sum(nn.functional.batch_norm(x, None, None, w, b, training=True) * g)

    value, gradients = pb.value_and_grad(loss, (0, 1, 2))(x, w, b)
    return (value, *gradients)


def batch_norm_torch(torch: Any, functional: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    def loss(x: Any, w: Any, b: Any) -> Any:
        return (functional.batch_norm(x, None, None, w, b, training=True) * g).sum()

    return torch_gradients(loss, x, w, b)


def batch_norm_jax(jax: Any, jnp: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    def loss(x: Any, w: Any, b: Any) -> Any:
        mean = jnp.mean(x, (0, 2, 3), keepdims=True)
        centred = x - mean
        variance = jnp.mean(centred**2, (0, 2, 3), keepdims=True)
        y = centred * jax.lax.rsqrt(variance + 1e-5) * w[:, None, None] + b[:, None, None]
        return jnp.sum(y * g)

    value, gradients = jax.value_and_grad(loss, (0, 1, 2))(x, w, b)
    return (value, *gradients)


# -- layer norm --------------------------------------------------------------------------------------------------------


def layer_norm_inputs(tiny: bool) -> Inputs:
    """x and its cotangent f32[rows, width], scale and shift f32[width]."""
    rows, width = (300, 40) if tiny else (8192, 1024)
    return {"x": _normal(rows, width), "g": _normal(rows, width)[::-1].copy(), "w": _normal(width), "b": _normal(width)}


def layer_norm_pullback(pb: Any, nn: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    return pb.grad(lambda x, w, b: pb.sum(nn.functional.layer_norm(x, w.shape, w, b) * g), (0, 1, 2))(x, w, b)


def layer_norm_torch(torch: Any, functional: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    x, w, b = (leaf.detach().requires_grad_() for leaf in (x, w, b))
    return list(torch.autograd.grad(functional.layer_norm(x, w.shape, w, b), (x, w, b), g))


def layer_norm_jax(jax: Any, jnp: Any, x: Any, g: Any, w: Any, b: Any) -> Any:
    def norm(x: Any, w: Any, b: Any) -> Any:
        centred = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(centred**2, -1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * w + b

    return jax.vjp(norm, x, w, b)[1](g)


# -- short rows, padding -----------------------------------------------------------------------------------------------


def short_inputs(tiny: bool) -> Inputs:
    """x f32[rows, 3]."""
    return {"x": _normal(100 if tiny else 1_000_000, 3)}


def rotary_inputs(tiny: bool) -> Inputs:
    """Queries f32[batch, heads, steps, 64], cosines and sines f32[steps, 64]."""
    batch, heads, steps = (1, 2, 5) if tiny else (8, 12, 512)
    return {"q": _normal(batch, heads, steps, 64), "cos": _normal(steps, 64), "sin": _normal(steps, 64)[::-1].copy()}


def rotary(concatenate: Any, q: Any, cos: Any, sin: Any) -> Any:
    return q * cos + concatenate([-q[..., 32:], q[..., :32]], -1) * sin


# -- sums, masks, strided chains ---------------------------------------------------------------------------------------


def sum_inputs(tiny: bool) -> Inputs:
    """x f32[1000, 1000, 100]."""
    return {"x": _normal(*((10, 12, 7) if tiny else (1000, 1000, 100)))}


def sum_rows(axis: int) -> dict[str, Any]:
    return {
        "pullback": partial(build_pullback, work=lambda pb, nn, x: pb.sum(x, axis=axis)),
        "numpy": partial(build_numpy, work=lambda x: np.sum(x, axis=axis)),
        "torch": partial(build_torch, work=lambda torch, functional, x: x.sum(axis)),
        "jax": partial(build_jax, work=lambda jax, jnp, x: jnp.sum(x, axis=axis)),
    }


def mask_inputs(tiny: bool) -> Inputs:
    """x, y f32[n] and two masks bool[n]."""
    size = 1000 if tiny else 4_000_000
    return {
        "x": _normal(size), "y": _normal(size)[::-1].copy(),
        "keep": _rng().random(size) < 0.7, "flip": _rng().random(size) < 0.2,
    }  # fmt: skip


def masked(where: Any, x: Any, y: Any, keep: Any, flip: Any) -> Any:
    low = where(x < y, x, y)
    signed = where(flip, -low, low)
    return where(keep & (signed > -1.5), where(signed > 1.0, signed * 0.5 + 0.5, signed), x * 0.0)


def chain_inputs(tiny: bool) -> Inputs:
    """A signal f32[n] and a window f32[WINDOW]."""
    return {"signal": _normal(4000 if tiny else 2_000_000), "window": np.hanning(WINDOW).astype(np.float32)}


def chain_pullback(pb: Any, nn: Any, signal: Any, window: Any) -> Any:
    frames = pb.unfold(signal, 0, WINDOW, HOP) * window
    energy = pb.log(pb.sum(frames * frames, axis=-1) + 1e-6)
    return energy - pb.mean(energy), frames[:, ::2] - frames[:, 1::2]


def chain_torch(torch: Any, functional: Any, signal: Any, window: Any) -> Any:
    frames = signal.unfold(0, WINDOW, HOP) * window
    energy = torch.log((frames * frames).sum(-1) + 1e-6)
    return energy - energy.mean(), frames[:, ::2] - frames[:, 1::2]


def chain_jax(jax: Any, jnp: Any, signal: Any, window: Any) -> Any:
    count = (signal.shape[0] - WINDOW) // HOP + 1
    frames = signal[HOP * jnp.arange(count)[:, None] + jnp.arange(WINDOW)] * window
    energy = jnp.log(jnp.sum(frames * frames, axis=-1) + 1e-6)
    return energy - jnp.mean(energy), frames[:, ::2] - frames[:, 1::2]


def chain_numpy(signal: np.ndarray, window: np.ndarray) -> Any:
    frames = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[::HOP] * window
    energy = np.log(np.sum(frames * frames, axis=-1) + np.float32(1e-6))
    return energy - np.mean(energy), frames[:, ::2] - frames[:, 1::2]


# -- tables and wide losses --------------------------------------------------------------------------------------------


def embedding_inputs(tiny: bool) -> Inputs:
    """A table f32[rows, width], tokens i64[n], a cotangent f32[n, width]."""
    rows, width, count = (50, 8, 30) if tiny else (50_000, 128, 8192)
    return {"table": _normal(rows, width), "tokens": _rng().integers(0, rows, count), "g": _normal(count, width)}


def embedding_pullback(pb: Any, nn: Any, table: Any, tokens: Any, g: Any) -> Any:
    return pb.grad(lambda table: pb.sum(nn.embedding(tokens, table) * g))(table)


def embedding_torch(torch: Any, functional: Any, table: Any, tokens: Any, g: Any) -> Any:
    return torch_gradients(lambda table: (functional.embedding(tokens, table) * g).sum(), table)[1]


def embedding_jax(jax: Any, jnp: Any, table: Any, tokens: Any, g: Any) -> Any:
    return jax.grad(lambda table: jnp.sum(table[tokens] * g))(table)


def loss_inputs(tiny: bool) -> Inputs:
    """Logits f32[rows, classes] and labels i64[rows]."""
    rows, classes = (5, 60) if tiny else (512, 50_000)
    return {"logits": _normal(rows, classes), "labels": _rng().integers(0, classes, rows)}


def loss_pullback(pb: Any, nn: Any, logits: Any, labels: Any) -> Any:
    return pb.value_and_grad(lambda x: nn.cross_entropy(x, labels))(logits)


def loss_torch(torch: Any, functional: Any, logits: Any, labels: Any) -> Any:
    return torch_gradients(lambda x: functional.cross_entropy(x, labels), logits)


def loss_jax(jax: Any, jnp: Any, logits: Any, labels: Any) -> Any:
    def loss(x: Any) -> Any:
        chosen = jnp.take_along_axis(x, labels[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(x, axis=1) - chosen)

    return jax.value_and_grad(loss)(logits)


# -- Adam --------------------------------------------------------------------------------------------------------------


def adam_inputs(tiny: bool) -> Inputs:
    """Parameters and gradients f32[size], ``count`` of each, in one array f32[count, size]."""
    count, size = (5, 12) if tiny else (200, 50_000)
    return {"parameters": _normal(count, size), "gradients": _normal(count, size)[::-1].copy()}


def adam_pullback(inputs: Inputs) -> Job:
    import pullback as pb
    from pullback import optim

    parameters = [pb.asarray(p.copy()).requires_grad_() for p in inputs["parameters"]]
    gradients = [pb.asarray(g) for g in inputs["gradients"]]
    optimizer = optim.Adam(parameters, lr=RATE, betas=BETAS, eps=EPSILON)

    @pb.jit
    def update(gradients: Any) -> None:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        optimizer.step()

    def step() -> Any:
        update(gradients)
        return parameters

    return Job(step, lambda result: [np.asarray(p) for p in result[:3]])


def adam_torch(inputs: Inputs) -> Job:
    import torch

    parameters = [torch.from_numpy(p.copy()).requires_grad_() for p in inputs["parameters"]]
    for parameter, gradient in zip(parameters, inputs["gradients"]):
        parameter.grad = torch.from_numpy(gradient)
    optimizer = torch.optim.Adam(parameters, lr=RATE, betas=BETAS, eps=EPSILON, fused=True)

    def step() -> Any:
        optimizer.step()
        return parameters

    return Job(step, lambda result: [p.detach().numpy() for p in result[:3]])


def adam_jax(inputs: Inputs) -> Job:
    import jax
    import jax.numpy as jnp

    parameters = [jnp.asarray(p) for p in inputs["parameters"]]
    gradients = [jnp.asarray(g) for g in inputs["gradients"]]
    state: list[Any] = [parameters, [jnp.zeros_like(p) for p in parameters], [jnp.zeros_like(p) for p in parameters], 0]

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(p: Any, m: Any, v: Any, count: Any, g: Any) -> Any:
        m = [BETAS[0] * a + (1 - BETAS[0]) * b for a, b in zip(m, g)]
        v = [BETAS[1] * a + (1 - BETAS[1]) * b * b for a, b in zip(v, g)]
        rate, root = RATE / (1 - BETAS[0] ** count), jnp.sqrt(1 - BETAS[1] ** count)
        return [x - rate * a / (jnp.sqrt(b) / root + EPSILON) for x, a, b in zip(p, m, v)], m, v

    def step() -> Any:
        state[3] += 1
        state[:3] = update(state[0], state[1], state[2], float(state[3]), gradients)
        return jax.block_until_ready(state[0])

    return Job(step, lambda result: [np.asarray(p) for p in result[:3]])


NONE_SLOWER = Target(1.0, 1.0)


def rotary_row(build: Any, concatenate: Callable[[Any], Any]) -> Any:
    return partial(build, work=lambda library, _, **inputs: rotary(concatenate(library), **inputs))

ROWS = (
    Timed(
        "adam-10m", "an Adam step of 10 million f32 parameters in 200 tensors", Target(0.8, 1.0), adam_inputs,
        {"pullback": adam_pullback, "torch": adam_torch, "jax": adam_jax}, tolerance=1e-5, steps_to_check=3,
        work=lambda inputs: Work(read=4.0 * inputs["parameters"].nbytes, written=3.0 * inputs["parameters"].nbytes),
    ),
    Timed(
        "batchnorm-train", "batch norm in training, value and gradients, 32x64x56x56", NONE_SLOWER, batch_norm_inputs,
        builders_of(batch_norm_pullback, batch_norm_torch, batch_norm_jax), tolerance=1e-3,
    ),
    Timed(
        "layernorm-params-grad", "gradients of layer norm by its input, scale and shift, 8192 x 1024", NONE_SLOWER,
        layer_norm_inputs, builders_of(layer_norm_pullback, layer_norm_torch, layer_norm_jax), tolerance=1e-3,
        first_call=False,
    ),
    Timed(
        "softmax-short", "softmax of 1e6 rows of 3", NONE_SLOWER, short_inputs,
        builders_of(
            lambda pb, nn, x: nn.functional.softmax(x, -1), lambda torch, functional, x: torch.softmax(x, -1),
            lambda jax, jnp, x: jax.nn.softmax(x, -1),
        ), tolerance=1e-5, first_call=False,
    ),
    Timed(
        "rotary", "rotary embedding of 8 x 12 x 512 queries of 64", NONE_SLOWER, rotary_inputs,
        {
            "pullback": rotary_row(build_pullback, lambda pb: pb.concat),
            "torch": rotary_row(build_torch, lambda torch: torch.cat),
            "jax": partial(build_jax, work=lambda jax, jnp, **inputs: rotary(jnp.concatenate, **inputs)),
        }, tolerance=1e-5, first_call=False,
    ),
    *(
        Timed(
            f"sum-axis{axis}", f"sum over axis {axis} of f32[1000, 1000, 100]", NONE_SLOWER, sum_inputs, sum_rows(axis),
            tolerance=1e-4, first_call=False,
        )
        for axis in range(3)
    ),
    Timed(
        "masks", "five nested choices under masks, 4e6 f32", NONE_SLOWER, mask_inputs,
        {
            "pullback": partial(build_pullback, work=lambda pb, nn, **inputs: masked(pb.where, **inputs)),
            "numpy": partial(build_numpy, work=lambda **inputs: masked(np.where, **inputs)),
            "torch": partial(build_torch, work=lambda torch, functional, **inputs: masked(torch.where, **inputs)),
            "jax": partial(build_jax, work=lambda jax, jnp, **inputs: masked(jnp.where, **inputs)),
        }, tolerance=1e-6, first_call=False,
    ),
    Timed(
        "embedding-grad", "gradient of a table of 50,000 rows of 128 by 8192 tokens", NONE_SLOWER, embedding_inputs,
        builders_of(embedding_pullback, embedding_torch, embedding_jax), tolerance=1e-5, first_call=False,
    ),
    Timed(
        "cross-entropy-50k", "cross entropy of 512 rows of 50,000 classes, value and gradient", NONE_SLOWER,
        loss_inputs, builders_of(loss_pullback, loss_torch, loss_jax), tolerance=1e-4, first_call=False,
    ),
    Timed(
        "strided-chain", "windows of 400 every 160 of 2e6 f32: log energies and differences of neighbours", NONE_SLOWER,
        chain_inputs,
        {
            **builders_of(chain_pullback, chain_torch, chain_jax),
            "numpy": partial(build_numpy, work=chain_numpy),
        }, tolerance=1e-4, first_call=False,
    ),
)  # fmt: skip
