"""Attention: forward, and its gradient by queries, keys and values; one new token against a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..jobs import builders_of
from ..limits import Work
from ..row import Inputs, Target, Timed

TARGET = Target(0.8, 1.0)
# Batch, heads, tokens, features; and whether a token sees only those before it.
SIZES = (((4, 8, 1024, 64), True), ((1, 8, 4096, 64), False))
CACHE = (4, 8, 4096, 64)


def make_inputs(tiny: bool, *, size: tuple[int, int, int, int], kind: str) -> Inputs:
    """q, k, v, and for the gradient the cotangent g, f32[batch, heads, tokens, features]; decoding has one query."""
    batch, heads, tokens, features = (2, 3, 40, 16) if tiny else size
    rng = np.random.default_rng(0)
    queries = 1 if kind == "decode" else tokens
    counts = {"q": queries, "k": tokens, "v": tokens} | ({"g": queries} if kind == "grad" else {})
    shapes = {name: (batch, heads, count, features) for name, count in counts.items()}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def work(inputs: Inputs, *, causal: bool) -> Work:
    """Two products forward, five backward: one recomputes the scores, which are not kept. Causal: half of each."""
    queries, keys = inputs["q"], inputs["k"]
    products = 7 if "g" in inputs else 2
    flops = 2.0 * products * queries.size * keys.shape[-2] * (0.5 if causal else 1.0)
    results = 3 * keys.nbytes if "g" in inputs else queries.nbytes
    return Work(flops, float(sum(array.nbytes for array in inputs.values())), float(results))


def forward_pullback(pb: Any, nn: Any, q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, is_causal=causal)


def forward_torch(torch: Any, functional: Any, q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def grad_pullback(pb: Any, nn: Any, q: Any, k: Any, v: Any, g: Any, *, causal: bool) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return pb.sum(nn.scaled_dot_product_attention(q, k, v, is_causal=causal) * g)

    return pb.grad(loss, (0, 1, 2))(q, k, v)


def grad_torch(torch: Any, functional: Any, q: Any, k: Any, v: Any, g: Any, *, causal: bool) -> Any:
    q, k, v = (leaf.detach().requires_grad_() for leaf in (q, k, v))
    return torch.autograd.grad(functional.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v), g)


def _row(name: str, what: str, size: tuple[int, int, int, int], kind: str, causal: bool, target: Target) -> Timed:
    functions = (grad_pullback, grad_torch) if kind == "grad" else (forward_pullback, forward_torch)
    pullback, torch = (partial(function, causal=causal) for function in functions)
    return Timed(
        name, what, target, partial(make_inputs, size=size, kind=kind), builders_of(pullback, torch), tolerance=2e-5,
        first_call=False, work=partial(work, causal=causal),
    )  # fmt: skip


ROWS = (
    *(
        _row(
            f"attention-{size[2]}{suffix}", f"attention of {'x'.join(map(str, size))}{', causal' * causal}, {text}",
            size, kind, causal, TARGET,
        )
        for size, causal in SIZES
        for kind, suffix, text in (("forward", "", "forward"), ("grad", "-grad", "forward and backward"))
    ),
    _row(
        "decode-4096", "attention of one new token to a cache of 4,096, 4 sequences, 8 heads of 64", CACHE, "decode",
        False, Target(1.0, 1.0),
    ),
)  # fmt: skip
