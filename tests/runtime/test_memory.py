"""Memory does not grow: over steps, over functions that are jitted anew each time, over shapes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime import buffers
from pullback.runtime import evaluate as evaluation
from pullback.runtime.programs import Programs
from pullback.transforms import jit

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
Y = X @ np.array([1.0, -2.0, 0.5], np.float32)


def growth(step: Callable[[int], Any], warm: int, steps: int) -> int:
    """By how many blocks of memory Python holds more after ``steps`` than before them, having run ``warm`` steps."""
    for i in range(warm):
        step(i)
    gc.collect()
    before, cached = sys.getallocatedblocks(), buffers.cached_bytes()
    for i in range(warm, warm + steps):
        step(i)
    gc.collect()
    assert buffers.cached_bytes() <= cached + (64 << 10)
    return sys.getallocatedblocks() - before


def training(jitted: bool) -> Callable[[int], Any]:
    w = pb.zeros(3).requires_grad_()
    optimizer = pb.optim.Adam([w], lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = pb.mean(pb.square(x @ w - Y))
        loss.backward()
        optimizer.step()
        return loss

    run = pb.jit(step) if jitted else step
    x = pb.asarray(X)
    return lambda i: float(run(x))


@pytest.mark.parametrize("jitted", [True, False])
def test_training_steps(jitted: bool) -> None:
    assert growth(training(jitted), 50, 10_000 if jitted else 4000) < 200


def test_steps_whose_loss_nobody_reads() -> None:
    w = pb.zeros(3).requires_grad_()
    optimizer = pb.optim.SGD([w], lr=0.01, momentum=0.9)

    def step(i: int) -> None:
        optimizer.zero_grad()
        pb.mean(pb.square(pb.asarray(X) @ w - Y)).backward()
        optimizer.step()

    assert growth(step, 50, 1000) < 200


def test_functions_jitted_anew_each_time() -> None:
    x = pb.asarray(X)
    assert growth(lambda i: pb.jit(lambda x: x * (i + 0.5) + i)(x).numpy(), 200, 1000) < 600


def test_gradients_of_new_functions() -> None:
    x = pb.asarray(X)
    assert growth(lambda i: pb.grad(lambda x: pb.sum(x * x * (i + 0.5)))(x).numpy(), 200, 1000) < 600


def test_shapes_without_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_programs", Programs(100))
    assert growth(lambda i: pb.sum(pb.exp(pb.asarray(np.ones(100 + i, np.float32)))).item(), 100, 400) < 3000
    assert 10 <= len(evaluation._programs) <= 200


def test_shapes_with_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_MAX_KEYS", 20)
    function = pb.jit(lambda x: pb.sum(pb.exp(x)))
    assert growth(lambda i: function(np.ones(100 + i, np.float32)).item(), 60, 400) < 3000


def test_large_programs_with_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_MAX_NODES", 50)
    function = pb.jit(lambda x: pb.sum(pb.exp(pb.sin(x) * 2)))
    for i in range(40):
        function(np.ones(100 + i, np.float32))
    kept = [variant.nodes for variants in function._variants.values() for variant in variants]
    assert 4 <= len(kept) < 20 and sum(kept) <= 50
    assert function(np.zeros(100, np.float32)).item() == 100


def test_programs_that_were_used_last_stay() -> None:
    programs = Programs(30)
    for i in range(20):
        programs.add(i, f"program {i}", 10)
        assert programs.get(0) == "program 0"
        assert len(programs) <= 6
    assert programs.get(19) == "program 19"
    assert programs.get(5) is None
    programs.add("large", "a program", 1000)
    assert programs.get("large") == "a program"
    assert programs.get(0) == "program 0"
