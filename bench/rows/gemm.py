"""Float32 matrix products, square, thin and a matrix-vector product."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..row import Inputs, Job, Target, Timed

# The extents m, k, n of each product and the ratio to reach in the end.
SIZES = (
    ((64, 64, 64), 0.8),
    ((256, 256, 256), 1.0),
    ((1024, 1024, 1024), 1.0),
    ((2048, 2048, 2048), 1.0),
    ((32, 784, 128), 0.8),
    ((4096, 384, 1536), 1.0),
    ((1, 4096, 4096), 0.8),
)


def make_inputs(tiny: bool, *, size: tuple[int, int, int]) -> Inputs:
    """a f32[m, k], b f32[k, n]."""
    m, k, n = (min(extent, 33) for extent in size) if tiny else size
    rng = np.random.default_rng(0)
    return {"a": rng.standard_normal((m, k), dtype=np.float32), "b": rng.standard_normal((k, n), dtype=np.float32)}


def build_pullback(inputs: Inputs) -> Job:
    import pullback as pb

    function = pb.jit(lambda a, b: a @ b)
    a, b = pb.asarray(inputs["a"]), pb.asarray(inputs["b"])

    def step() -> Any:
        c = function(a, b)
        pb.eval(c)
        return c

    return Job(step, lambda c: [np.asarray(c)])


def build_numpy(inputs: Inputs) -> Job:
    a, b = inputs["a"], inputs["b"]
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    return Job(lambda: np.matmul(a, b, out=c), lambda c: [c])


def build_torch(inputs: Inputs) -> Job:
    import torch

    a, b = torch.from_numpy(inputs["a"]), torch.from_numpy(inputs["b"])
    c = torch.empty(a.shape[0], b.shape[1])
    return Job(lambda: torch.mm(a, b, out=c), lambda c: [c.numpy()])


def build_jax(inputs: Inputs) -> Job:
    import jax
    import jax.numpy as jnp

    function = jax.jit(jnp.matmul)
    a, b = jnp.asarray(inputs["a"]), jnp.asarray(inputs["b"])
    return Job(lambda: function(a, b).block_until_ready(), lambda c: [np.asarray(c)])


def name_of(size: tuple[int, int, int]) -> str:
    m, k, n = size
    return f"gemm-{m}" if m == k == n else f"gemm-{m}x{k}x{n}"


ROWS = tuple(
    Timed(
        name=name_of(size),
        what=f"f32 product, m k n = {' '.join(map(str, size))}",
        target=Target(goal, 1.1),
        inputs=partial(make_inputs, size=size),
        builders={"pullback": build_pullback, "numpy": build_numpy, "torch": build_torch, "jax": build_jax},
        tolerance=2e-5,
        first_call=size == (256, 256, 256),
    )
    for size, goal in SIZES
)
