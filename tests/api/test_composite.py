"""Composites are built again node for node as their definitions build them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import Graph, nn
from pullback.api.composite import composite
from pullback.graph.node import topological_order

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
LABELS = np.array([0, 5, 2, -100])
CALLS = {
    "relu": lambda f, x: f(x),
    "gelu": lambda f, x: f(x, approximate="tanh"),
    "softmax": lambda f, x: f(x, axis=0),
    "log_softmax": lambda f, x: f(x),
    "cross_entropy": lambda f, x: f(x, pb.asarray(LABELS), label_smoothing=0.1),
    "layer_norm": lambda f, x: f(x, (6,), pb.ones(6), pb.zeros(6)),
    "mse_loss": lambda f, x: f(x, x * 2.0, reduction="sum"),
}


def text(tensor: Any, x: Any) -> str:
    return Graph([x.node], [tensor.node]).text(sites=False)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_the_graph_is_that_of_the_definition(name: str, dtype: str) -> None:
    function = getattr(nn, name)
    x = pb.asarray(X.astype(dtype)).requires_grad_()
    expected = text(CALLS[name](function.__wrapped__, x), x)
    for _ in range(3):
        result = CALLS[name](function, x)
        assert text(result, x) == expected
        assert result.requires_grad


def test_nodes_carry_the_line_of_the_call() -> None:
    x = pb.asarray(X)
    nn.softmax(x)
    node = nn.softmax(x).node
    lines = {below.site for below in topological_order([node]) if below is not x.node}
    assert len(lines) == 1
    assert node.site[0].co_name == "test_nodes_carry_the_line_of_the_call"


def test_arguments_that_differ_are_told_apart() -> None:
    made = []

    @composite
    def scaled(x: Any, by: Any = 1.0, axis: Any = None) -> Any:
        made.append((by, axis))
        return pb.sum(x * by, axis=axis)

    x = pb.asarray(X)
    for by in (1, 1.0, 2.0, -0.0, 0.0, True):
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(scaled(x, by)), np.sum(X * by), rtol=1e-5, atol=1e-5)
    assert len(made) == 6
    scaled(x, axis=0)
    scaled(x, axis=(0, 1))
    scaled(pb.asarray(X[:2]))
    scaled(pb.asarray(X.astype(np.float64)))
    with pb.no_grad():
        scaled(x)
    assert len(made) == 11
    scaled(x, axis=0)
    assert len(made) == 11
    assert scaled(X).shape == scaled(X).shape == ()  # not plain: always the function itself
    assert len(made) == 13


def test_functions_that_cannot_be_repeated_are_called() -> None:
    table = pb.asarray(X)
    calls = []

    @composite
    def reads(x: Any) -> Any:
        calls.append(1)
        return x + table  # from outside

    @composite
    def looks(x: Any) -> Any:
        return x * 2 if float(pb.sum(x)) > 0 else x * 3

    @composite
    def same(x: Any) -> Any:
        return x

    x = pb.asarray(np.ones_like(X))
    for _ in range(3):
        np.testing.assert_array_equal(reads(x).numpy(), X + 1)
        table[0, 0] = 5.0
        np.testing.assert_array_equal(reads(x).numpy()[0, 0], 6.0)
        table[0, 0] = X[0, 0]
        assert looks(x).numpy()[0, 0] == 2.0
        assert looks(-x).numpy()[0, 0] == -3.0
        assert same(x) is x
    assert len(calls) == 7


def test_errors_are_those_of_the_call() -> None:
    x = pb.asarray(X)
    for _ in range(2):
        with pytest.raises(pb.ShapeError, match=r"logits of shape \(4, 6\)"):
            nn.cross_entropy(x, pb.asarray([1, 2]))
        with pytest.raises(pb.ArgumentError, match="label_smoothing"):
            nn.cross_entropy(x, pb.asarray(LABELS), label_smoothing=2.0)


def test_under_transforms() -> None:
    def f(x: Any) -> Any:
        return pb.sum(pb.square(nn.log_softmax(nn.gelu(x))))

    x = pb.asarray(X)
    f(x)
    expected = pb.grad(f)(x).numpy()
    np.testing.assert_allclose(pb.jit(pb.grad(f))(x).numpy(), expected, rtol=2e-5, atol=1e-6)
    rows = pb.vmap(lambda row: pb.grad(f)(row))(x).numpy()
    np.testing.assert_allclose(rows, np.stack([pb.grad(f)(pb.asarray(row)).numpy() for row in X]), rtol=2e-5, atol=1e-6)
    with pb.no_grad():
        assert not f(pb.asarray(X).requires_grad_()).requires_grad
