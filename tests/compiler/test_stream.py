"""Stores past the caches."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import options, stream
from pullback.compiler.llvm.kernel import kernel_module
from pullback.compiler.llvm.target import host
from pullback.compiler.program import compile_program
from pullback.graph.graph import Graph

F = pb.nn.functional
X = np.random.default_rng(0).standard_normal((64, 100)).astype(np.float32)
ALIGNED = np.ascontiguousarray(np.repeat(X, 2, axis=1)[:, :128])


def kernels_of(function, *args):
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs).kernels


def result_of(function, *args):
    results = pb.jit(lambda *args: function(*args))(*map(pb.asarray, args))
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.fixture
def small_cache(monkeypatch):
    monkeypatch.setattr(stream, "last_cache_bytes", lambda: 2000)


FUNCTIONS = {
    "map": (lambda x: -x, X),
    "several": (lambda x: (x + 1, x > 0, pb.astype(x, "float64"), pb.astype(x, "float16")), X),
    "row": (lambda x: F.softmax(x, axis=-1), ALIGNED),
    "column": (lambda x: x / pb.sum(x * x, axis=0), ALIGNED),
    "scan": (lambda x: pb.cumulative_sum(x, axis=0), ALIGNED),
    "backwards": (lambda x: pb.grad(lambda x: pb.sum(pb.cumulative_sum(x, axis=0) ** 2))(x), ALIGNED),
    "int": (lambda x: pb.astype(pb.floor(x * 9), "int64"), X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits(name, monkeypatch):
    function, x = FUNCTIONS[name]
    assert not any(kernel.streams for kernel in kernels_of(function, x))
    plain = result_of(function, x)
    monkeypatch.setattr(stream, "last_cache_bytes", lambda: 2000)
    kernels = kernels_of(function, x)
    assert any(kernel.streams for kernel in kernels)
    assert all("!nontemporal" in kernel_module({"k": kernel}, host()) for kernel in kernels if kernel.streams)
    for a, b in zip(plain, result_of(function, x), strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


@pytest.mark.usefixtures("small_cache")
def test_what_does_not_qualify():
    assert not any(kernel.streams for kernel in kernels_of(lambda x: F.softmax(x, axis=-1), X))  # rows of 400 bytes
    assert not any(kernel.streams for kernel in kernels_of(lambda x: pb.sum(x, axis=-1), ALIGNED))  # small
    with options.without("stream"):
        assert not any(kernel.streams for kernel in kernels_of(lambda x: -x, X))


@pytest.mark.usefixtures("small_cache")
def test_updates_in_place_stay_in_the_cache():
    state = pb.asarray(X) + 0
    pb.eval(state)

    @pb.jit
    def step():
        state.assign(state * 2)

    for _ in range(3):
        step()
    np.testing.assert_array_equal(np.asarray(state), X * 8)


def test_the_size_of_the_cache():
    assert stream.last_cache_bytes() >= 1 << 18
