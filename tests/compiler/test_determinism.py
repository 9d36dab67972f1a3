"""The same bits whatever the number of threads, and no compilation for a new length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.llvm_engine import compile_count
from tests.threads import same_bits

F = pb.nn.functional


def bits(value: Any) -> bytes:
    return np.asarray(value).tobytes()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: pb.sum(x),
        lambda x: pb.sum(x, axis=0),
        lambda x: pb.sum(x, axis=1),
        lambda x: pb.var(x),
        lambda x: F.softmax(x, axis=-1),
        lambda x: F.softmax(x, axis=0),
        lambda x: pb.logsumexp(x),
        pb.grad(lambda x: pb.sum(F.softmax(x, axis=-1) ** 2)),
        pb.grad(lambda x: pb.mean(pb.tanh(x) * pb.exp(-x * x))),
        pb.grad(lambda x: pb.std(x)),
        lambda x: pb.matmul(x.astype(pb.bfloat16).mT, x.astype(pb.bfloat16), preferred_dtype=pb.float32),
        lambda x: F.linear_cross_entropy(x, pb.sin(pb.arange(4000.0 * 401).reshape(4000, 401)), pb.arange(1500)),
    ],
)
def test_threads_do_not_change_results(function: Callable[..., Any]) -> None:
    x = pb.asarray(np.random.default_rng(3).standard_normal((1500, 401)).astype(np.float32))
    same_bits(lambda: function(x), (1, 2, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: pb.tanh(x) * 2.0 + pb.sum(x),
        lambda x: F.softmax(x, axis=-1),
        pb.grad(lambda x: pb.sum(F.log_softmax(x) ** 2)),
    ],
)
def test_new_lengths_compile_nothing(function: Callable[..., Any]) -> None:
    jitted = pb.jit(function)
    # Lengths of one element, and long enough to be cut, have structures of their own.
    for length in (2, 100):
        pb.eval(jitted(np.ones(length, np.float32)))
    before = compile_count()
    for length in range(3, 103):
        x = np.linspace(-1, 1, length, dtype=np.float32)
        np.testing.assert_allclose(np.asarray(jitted(x)), np.asarray(function(pb.asarray(x))), rtol=1e-5, atol=1e-6)
    assert compile_count() == before


def batches(jitted: Callable[..., Any], sizes: tuple[int, ...]) -> int:
    """Modules that LLVM compiled for batches of these sizes."""
    rng = np.random.default_rng(0)
    before = compile_count()
    for size in sizes:
        x = rng.standard_normal((size, 40)).astype(np.float32)
        assert np.isfinite(float(jitted(x, rng.integers(0, 10, size))))
    return compile_count() - before


def test_a_jitted_step_of_any_batch_size_is_compiled_once() -> None:
    """A network trained on batches of all sizes, the last and shorter ones of an epoch among them."""
    model = pb.nn.Sequential(pb.nn.Linear(40, 30), pb.nn.ReLU(), pb.nn.Linear(30, 10))
    optimizer = pb.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @pb.jit
    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    batches(step, (128, 128))  # the first step of all makes the optimizer's state
    assert batches(step, (96, 100, 77, 127, 65, 256, 300, 1000)) == 0
    # Fewer rows than lanes pay for are a structure of their own; once it is known there is nothing to compile either.
    assert batches(step, (32,)) <= 3
    assert batches(step, (31, 17, 20, 50, 63)) == 0
