"""A compiled call on eight elements: nothing but the way from Python to the kernel and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..row import Inputs, Job, Target, Timed


def make_inputs(tiny: bool) -> Inputs:
    """x and y f32[8]."""
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal(8, dtype=np.float32), "y": rng.standard_normal(8, dtype=np.float32)}


def build_pullback(inputs: Inputs) -> Job:
    import pullback as pb

    function = pb.jit(lambda x, y: x * y + 1)
    x, y = pb.asarray(inputs["x"]), pb.asarray(inputs["y"])

    def step() -> Any:
        z = function(x, y)
        pb.eval(z)
        return z

    return Job(step, lambda z: [np.asarray(z)])


def build_numpy(inputs: Inputs) -> Job:
    x, y = inputs["x"], inputs["y"]
    return Job(lambda: x * y + 1, lambda z: [z])


def build_torch(inputs: Inputs) -> Job:
    import torch

    x, y = torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["y"])
    return Job(lambda: x * y + 1, lambda z: [z.numpy()])


def build_jax(inputs: Inputs) -> Job:
    import jax
    import jax.numpy as jnp

    function = jax.jit(lambda x, y: x * y + 1)
    x, y = jnp.asarray(inputs["x"]), jnp.asarray(inputs["y"])
    return Job(lambda: function(x, y).block_until_ready(), lambda z: [np.asarray(z)])


ROWS = (
    Timed(
        name="dispatch",
        what="a jitted call on 8 elements",
        target=Target(goal=6e-6, bar=8e-6, absolute=True),
        inputs=make_inputs,
        builders={"pullback": build_pullback, "numpy": build_numpy, "torch": build_torch, "jax": build_jax},
        tolerance=1e-6,
        first_call=False,
    ),
)
