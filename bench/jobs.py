"""Jobs of functions without state: a row says what is computed in each library, these run it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .row import Inputs, Job

# A workload in one library: a function of the inputs as that library's arrays, and of the library's own modules.
Workload = Callable[..., Any]


def build_pullback(inputs: Inputs, work: Workload) -> Job:
    import pullback as pb
    from pullback import nn

    function = pb.jit(partial(work, pb, nn))
    arguments = {name: pb.asarray(value) for name, value in inputs.items()}

    def step() -> Any:
        result = function(**arguments)
        pb.eval(result)
        return result

    return Job(step, lambda result: [np.asarray(x) for x in _flat(result)])


def build_torch(inputs: Inputs, work: Workload) -> Job:
    import torch
    from torch.nn import functional

    arguments = {name: torch.from_numpy(value) for name, value in inputs.items()}
    return Job(lambda: work(torch, functional, **arguments), lambda result: [x.numpy() for x in _flat(result)])


def build_jax(inputs: Inputs, work: Workload) -> Job:
    import jax
    import jax.numpy as jnp

    function = jax.jit(partial(work, jax, jnp))
    arguments = {name: jnp.asarray(value) for name, value in inputs.items()}
    return Job(
        lambda: jax.block_until_ready(function(**arguments)), lambda result: [np.asarray(x) for x in _flat(result)]
    )


def build_numpy(inputs: Inputs, work: Workload) -> Job:
    return Job(lambda: work(**inputs), lambda result: [np.asarray(x) for x in _flat(result)])


def _flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def torch_gradients(loss: Callable[..., Any], *leaves: Any) -> list[Any]:
    """The loss and its gradients by ``leaves``, detached."""
    import torch

    tracked = [leaf.detach().requires_grad_() for leaf in leaves]
    value = loss(*tracked)
    return [value.detach(), *torch.autograd.grad(value, tracked)]


def builders_of(pullback: Workload, torch: Workload, jax: Workload | None = None) -> dict[str, Callable[[Inputs], Job]]:
    """A row's builders, from what it computes in each library."""
    found: dict[str, Callable[[Inputs], Job]] = {
        "pullback": partial(build_pullback, work=pullback), "torch": partial(build_torch, work=torch),
    }  # fmt: skip
    if jax is not None:
        found["jax"] = partial(build_jax, work=jax)
    return found
