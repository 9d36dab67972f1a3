"""What a derivative costs: reverse mode of a scalar function against the function itself, both jitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import truediv
from statistics import median
from typing import Any

import numpy as np

from ..row import PRODUCT, Job, MismatchError, Options, Outcome, Target
from ..timing import time_jobs

LIMIT = 4.0  # forward and reverse together are some three passes' worth of products; the rest is memory traffic
Loss = Callable[[list[Any]], Any]
Made = tuple[Loss, list[np.ndarray]]


def make_mlp(tiny: bool) -> Made:
    """Cross entropy of a 784-128-10 ReLU network on a batch of 128."""
    from pullback import nn

    batch = 16 if tiny else 128
    rng = np.random.default_rng(0)
    images = rng.random((batch, 784), dtype=np.float32)
    labels = rng.integers(0, 10, batch)

    def loss(parameters: list[Any]) -> Any:
        w1, b1, w2, b2 = parameters
        return nn.cross_entropy(nn.relu(images @ w1 + b1) @ w2 + b2, labels)

    w1 = rng.standard_normal((784, 128), dtype=np.float32) / 28
    w2 = rng.standard_normal((128, 10), dtype=np.float32) / 11
    return loss, [w1, np.zeros(128, np.float32), w2, np.zeros(10, np.float32)]


def make_residual(tiny: bool) -> Made:
    """Fifty layers x + tanh(x @ w), 64 rows of 128."""
    import pullback as pb

    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 128), dtype=np.float32)

    def loss(weights: list[Any]) -> Any:
        y = pb.asarray(x)
        for w in weights:
            y = y + pb.tanh(y @ w)
        return pb.mean(y * y)

    return loss, [rng.standard_normal((128, 128), dtype=np.float32) / 40 for _ in range(5 if tiny else 50)]


def make_logsumexp(tiny: bool) -> Made:
    """The sum of logsumexp over the rows of f32[1024, 1024]."""
    import pullback as pb

    size = 64 if tiny else 1024
    x = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    return lambda inputs: pb.sum(pb.logsumexp(inputs[0], axis=-1)), [x]


@dataclass(frozen=True)
class GradientCost:
    """Time of the value and all gradients, over the time of the value."""

    name: str
    what: str
    make: Callable[[bool], Made]

    def computed(self, tiny: bool) -> list[np.ndarray]:
        import pullback as pb

        loss, arrays = self.make(tiny)
        value, gradients = pb.jit(pb.value_and_grad(loss))([pb.asarray(array) for array in arrays])
        return [np.array(value), *map(np.array, gradients)]

    def run(self, options: Options) -> Iterator[Outcome]:
        import pullback as pb

        loss, arrays = self.make(options.tiny)
        inputs = [pb.asarray(array) for array in arrays]
        forward, both = pb.jit(loss), pb.jit(pb.value_and_grad(loss))

        def run_forward() -> Any:
            value = forward(inputs)
            pb.eval(value)
            return value

        def run_both() -> Any:
            result = both(inputs)
            pb.eval(result)
            return result

        value, again = float(run_forward()), float(run_both()[0])
        if not abs(value - again) <= 1e-5 * abs(value):
            raise MismatchError(f"{self.name}: the value is {value} alone and {again} with its gradient")
        jobs = {PRODUCT: Job(run_both, lambda result: []), "forward": Job(run_forward, lambda result: [])}
        rounds = time_jobs(jobs, options)
        seconds = {name: median(times) for name, times in rounds.items()}
        ratio = median(map(truediv, rounds[PRODUCT], rounds["forward"]))
        yield Outcome(self.name, self.what, Target(LIMIT, LIMIT), seconds, "forward", ratio)


ROWS = (
    GradientCost("cost-mlp128", "value and gradient of a 784-128-10 network, batch 128, over the value", make_mlp),
    GradientCost("cost-residual50", "value and gradient of 50 residual layers of 128, over the value", make_residual),
    GradientCost("cost-logsumexp", "value and gradient of logsumexp, f32[1024, 1024], over the value", make_logsumexp),
)
