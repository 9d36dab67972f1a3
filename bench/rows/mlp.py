"""One training step of a 784-128-10 ReLU network with cross entropy: the field's own MNIST row.

Each library slices the batch from the whole array itself, the next batch at every step, and updates its own parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..row import Inputs, Job, Target, Timed

LEARNING_RATE = 0.01


def make_inputs(tiny: bool, *, batch: int, momentum: float) -> Inputs:
    """Images f32[n, 784] and labels i64[n], and the network's first parameters as NumPy keeps them: W f32[in, out]."""
    count = 512 if tiny else 60_000
    features, hidden, classes = 784, 128, 10
    rng = np.random.default_rng(0)
    images = aligned_empty((count, features))
    rng.random(dtype=np.float32, out=images)
    return {
        "images": images,
        "labels": rng.integers(0, classes, count),
        "w1": (rng.standard_normal((features, hidden)) / features**0.5).astype(np.float32),
        "b1": np.zeros(hidden, np.float32),
        "w2": (rng.standard_normal((hidden, classes)) / hidden**0.5).astype(np.float32),
        "b2": np.zeros(classes, np.float32),
        "batch": batch,
        "momentum": momentum,
    }


def aligned_empty(shape: tuple[int, int]) -> np.ndarray:
    """f32 at an address that every library can use as it is; NumPy alone aligns to 16 bytes, where JAX copies."""
    alignment = 64
    size = 4 * shape[0] * shape[1]
    memory = np.empty(size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(np.float32).reshape(shape)


class Batches:
    """The start of the next batch at each call; begins again at the end."""

    def __init__(self, inputs: Inputs) -> None:
        self.batch: int = inputs["batch"]
        self.last = len(inputs["images"]) - self.batch
        self.start = -self.batch

    def __call__(self) -> int:
        self.start += self.batch
        if self.start > self.last:
            self.start = 0
        return self.start


def build_pullback(inputs: Inputs) -> Job:
    import pullback as pb
    from pullback import nn, optim

    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model.load_state_dict(
        {
            "0.weight": inputs["w1"].T,
            "0.bias": inputs["b1"],
            "2.weight": inputs["w2"].T,
            "2.bias": inputs["b2"],
        }
    )
    optimizer = optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=inputs["momentum"])

    @pb.jit
    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    images, labels, batch = inputs["images"], inputs["labels"], inputs["batch"]
    next_start = Batches(inputs)

    def step() -> Any:
        start = next_start()
        loss = train_step(images[start : start + batch], labels[start : start + batch])
        pb.eval(loss)
        return loss

    def result(loss: Any) -> list[np.ndarray]:
        state = {name: np.asarray(value) for name, value in model.state_dict().items()}
        return [np.asarray(loss), state["0.weight"].T, state["0.bias"], state["2.weight"].T, state["2.bias"]]

    return Job(step, result)


def build_numpy(inputs: Inputs) -> Job:
    """By hand, as an expert would: every array made once, all parameters in one so that the update is four calls."""
    names = ("w1", "b1", "w2", "b2")
    parameters = np.concatenate([inputs[name].ravel() for name in names])
    gradients = np.empty_like(parameters)
    velocity = np.zeros_like(parameters)
    scratch = np.empty_like(parameters)
    views: list[tuple[np.ndarray, np.ndarray]] = []
    offset = 0
    for name in names:
        shape, size = inputs[name].shape, inputs[name].size
        part = slice(offset, offset + size)
        views.append((parameters[part].reshape(shape), gradients[part].reshape(shape)))
        offset += size
    (w1, gw1), (b1, gb1), (w2, gw2), (b2, gb2) = views

    images, labels, batch, momentum = inputs["images"], inputs["labels"], inputs["batch"], inputs["momentum"]
    hidden = np.empty((batch, w1.shape[1]), np.float32)
    hidden_gradient = np.empty_like(hidden)
    active = np.empty(hidden.shape, bool)
    logits = np.empty((batch, w2.shape[1]), np.float32)
    column = np.empty((batch, 1), np.float32)
    rows = np.arange(batch)
    next_start = Batches(inputs)

    def step() -> np.float32:
        start = next_start()
        x, y = images[start : start + batch], labels[start : start + batch]
        np.matmul(x, w1, out=hidden)
        np.add(hidden, b1, out=hidden)
        np.maximum(hidden, 0, out=hidden)
        np.matmul(hidden, w2, out=logits)
        np.add(logits, b2, out=logits)
        np.max(logits, axis=1, keepdims=True, out=column)
        np.subtract(logits, column, out=logits)
        correct = logits[rows, y]
        np.exp(logits, out=logits)
        np.sum(logits, axis=1, keepdims=True, out=column)
        loss = np.mean(np.log(column[:, 0]) - correct)
        np.multiply(column, batch, out=column)
        np.divide(logits, column, out=logits)
        logits[rows, y] -= np.float32(1 / batch)

        np.matmul(hidden.T, logits, out=gw2)
        np.sum(logits, axis=0, out=gb2)
        np.matmul(logits, w2.T, out=hidden_gradient)
        np.greater(hidden, 0, out=active)
        np.multiply(hidden_gradient, active, out=hidden_gradient)
        np.matmul(x.T, hidden_gradient, out=gw1)
        np.sum(hidden_gradient, axis=0, out=gb1)

        if momentum:
            np.multiply(velocity, momentum, out=velocity)
            np.add(velocity, gradients, out=velocity)
            np.multiply(velocity, LEARNING_RATE, out=scratch)
        else:
            np.multiply(gradients, LEARNING_RATE, out=scratch)
        np.subtract(parameters, scratch, out=parameters)
        return loss

    return Job(step, lambda loss: [np.asarray(loss), w1, b1, w2, b2])


def build_torch(inputs: Inputs, compiled: bool = False) -> Job:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    first, last = model[0], model[2]
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(inputs["w1"].T))
        first.bias.copy_(torch.from_numpy(inputs["b1"]))
        last.weight.copy_(torch.from_numpy(inputs["w2"].T))
        last.bias.copy_(torch.from_numpy(inputs["b2"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=inputs["momentum"])
    loss_function = nn.CrossEntropyLoss()
    images, labels, batch = torch.from_numpy(inputs["images"]), torch.from_numpy(inputs["labels"]), inputs["batch"]
    next_start = Batches(inputs)

    def loss_of(x: Any, y: Any) -> Any:
        return loss_function(model(x), y)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step() -> Any:
        start = next_start()
        optimizer.zero_grad()
        loss = loss_of(images[start : start + batch], labels[start : start + batch])
        loss.backward()
        optimizer.step()
        return loss

    def result(loss: Any) -> list[np.ndarray]:
        parameters = first.weight.T, first.bias, last.weight.T, last.bias
        return [loss.detach().numpy(), *(parameter.detach().numpy() for parameter in parameters)]

    return Job(step, result)


def build_jax(inputs: Inputs) -> Job:
    import jax
    import jax.numpy as jnp

    images = jax.device_put(inputs["images"])  # no copy, unlike jnp.asarray
    labels = jnp.asarray(inputs["labels"].astype(np.int32))
    batch, momentum = inputs["batch"], inputs["momentum"]
    parameters = tuple(jnp.asarray(inputs[name]) for name in ("w1", "b1", "w2", "b2"))
    velocity = tuple(jnp.zeros_like(parameter) for parameter in parameters) if momentum else ()
    next_start = Batches(inputs)

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = parameters
        logits = jax.nn.relu(x @ w1 + b1) @ w2 + b2
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(parameters: Any, velocity: Any, images: Any, labels: Any, start: Any) -> Any:
        x = jax.lax.dynamic_slice_in_dim(images, start, batch)
        y = jax.lax.dynamic_slice_in_dim(labels, start, batch)
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        if momentum:
            velocity = tuple(momentum * v + g for v, g in zip(velocity, gradients, strict=True))
            gradients = velocity
        parameters = tuple(p - LEARNING_RATE * g for p, g in zip(parameters, gradients, strict=True))
        return parameters, velocity, loss

    state = [parameters, velocity]

    def step() -> Any:
        state[0], state[1], loss = train_step(state[0], state[1], images, labels, next_start())
        jax.block_until_ready(state)
        return loss

    return Job(step, lambda loss: [np.asarray(loss), *(np.asarray(parameter) for parameter in state[0])])


BUILDERS: dict[str, Callable[[Inputs], Job]] = {
    "pullback": build_pullback,
    "numpy": build_numpy,
    "torch": build_torch,
    "torch.compile": partial(build_torch, compiled=True),
    "jax": build_jax,
}

ROWS = (
    Timed(
        name="mlp128",
        what="SGD-momentum step of 784-128-10, batch 128 of 60,000 rows",
        target=Target(goal=0.6, bar=1.0),
        inputs=partial(make_inputs, batch=128, momentum=0.9),
        builders=BUILDERS,
        tolerance=1e-4,
        steps_to_check=5,
    ),
    Timed(
        name="mlp32",
        what="plain SGD step of 784-128-10, batch 32 of 60,000 rows",
        target=Target(goal=0.6, bar=1.0),
        inputs=partial(make_inputs, batch=32, momentum=0.0),
        builders=BUILDERS,
        tolerance=1e-4,
        steps_to_check=5,
    ),
)
