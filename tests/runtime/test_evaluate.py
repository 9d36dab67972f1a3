"""Lazy evaluation: what is kept, so that loops without jit do nothing twice."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from pullback.graph.node import topological_order
from pullback.runtime import evaluate as evaluation

X = np.linspace(-1, 1, 50, dtype=np.float32)
Y = 3 * X - 1


def pending(tensor: Any) -> int:
    """Nodes below ``tensor`` that an evaluation would have to compute."""
    return sum(n.buffer is None for n in topological_order([tensor.node], lambda n: n.buffer is not None))


def loss_of(w: Any) -> Any:
    return pb.mean((w * X - Y) ** 2)


def test_an_update_before_the_loss_is_read_does_not_grow() -> None:
    w = pb.asarray(0.0).requires_grad_()
    sizes = []
    for _ in range(12):
        loss = loss_of(w)
        loss.backward()
        with pb.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        float(loss)
        sizes.append(pending(w))
    assert sizes == [0] * 12


def test_new_parameters_each_step_do_not_grow() -> None:
    p = {"w": pb.asarray(0.0)}
    sizes = []
    for _ in range(12):
        loss, gradient = pb.value_and_grad(lambda p: loss_of(p["w"]))(p)
        p = {"w": p["w"] - 0.1 * gradient["w"]}
        float(loss)
        sizes.append(pending(p["w"]))
    assert len(set(sizes[2:])) == 1
    before = len(evaluation._programs)
    for _ in range(5):
        loss, gradient = pb.value_and_grad(lambda p: loss_of(p["w"]))(p)
        p = {"w": p["w"] - 0.1 * gradient["w"]}
        float(loss)
    assert len(evaluation._programs) == before


def test_a_fault_in_another_tensor_does_not_spoil_the_one_that_is_read() -> None:
    x = pb.zeros(3)
    x[pb.asarray([6]) + 1] = 1.0
    assert float(pb.ones(()) + 1) == 2.0
    try:
        x.tolist()
    except IndexError as error:
        assert "7" in str(error)
    else:
        raise AssertionError("the index is out of range")
