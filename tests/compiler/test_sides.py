"""Sums over the rows of a row kernel, taken in parts beside the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import options
from pullback.compiler.program import compile_program
from pullback.compiler.validate import validate_kernel
from pullback.errors import CompileError
from pullback.graph.graph import Graph
from tests.threads import same_bits

F = pb.nn.functional
RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def kernels_of(function, *args):
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs).kernels


def layer_norm_gradients(x, w, b, g):
    axes = x.shape[-w.ndim:]
    return pb.grad(lambda x, w, b: pb.sum(F.layer_norm(x, axes, w, b) * g), (0, 1, 2))(x, w, b)


def expected_gradients(x, w, b, g):
    """Ba, Kiros and Hinton, "Layer normalization" (2016), differentiated by hand, in float64."""
    x, w, g = (v.astype(np.float64) for v in (x, w, g))
    rows = tuple(range(x.ndim - w.ndim, x.ndim))
    centred = x - x.mean(rows, keepdims=True)
    scale = 1 / np.sqrt((centred * centred).mean(rows, keepdims=True) + 1e-5)
    normal = centred * scale
    y = g * w
    dx = scale * (y - y.mean(rows, keepdims=True) - normal * (y * normal).mean(rows, keepdims=True))
    lead = tuple(range(x.ndim - w.ndim))
    return dx, (g * normal).sum(lead), g.sum(lead)


@pytest.mark.parametrize(("rows", "shape"), [
    ((256,), (32,)), ((257,), (33,)), ((1000,), (100,)), ((16, 40), (48,)), ((300,), (7, 9)), ((3, 5, 31), (2, 3, 11)),
    ((4096,), (64,)), ((260,), (1100,)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_a_norm(rows, shape, dtype):
    x, g, w, b = (normal(*s, dtype=dtype) for s in (rows + shape, rows + shape, shape, shape))
    kernels = kernels_of(layer_norm_gradients, x, w, b, g)
    assert [len(kernel.sides) for kernel in kernels if kernel.mode == "row"] == [2]
    assert len(kernels) <= 3
    tolerance = 2e-5 if dtype is np.float32 else 1e-11
    found = pb.jit(layer_norm_gradients)(*map(pb.asarray, (x, w, b, g)))
    for a, e in zip(found, expected_gradients(x, w, b, g), strict=True):
        np.testing.assert_allclose(np.asarray(a), e, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("function", [
    lambda x: (F.softmax(x, -1), pb.sum(F.softmax(x, -1), 0)),
    lambda x: (x - pb.mean(x, -1, keepdims=True), pb.mean(pb.abs(x - pb.mean(x, -1, keepdims=True)), 0, keepdims=True)),
    lambda x: (x / pb.sum(x * x, -1, keepdims=True), pb.sum(x, 0) + 1, pb.sum(x[:, ::-1], 0)),
    lambda x: pb.sum(pb.sum(x * x, 1, keepdims=True) * x, 0),
    lambda x: pb.sum(pb.sum(F.softmax(x, -1), 0)),
])  # fmt: skip
def test_other_sums(function):
    x = normal(500, 70)
    found = pb.jit(function)(pb.asarray(x))
    with options.without("side", "fuse"):
        expected = pb.jit(lambda x: function(x))(pb.asarray(x))
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


def test_which_sums():
    w = normal(64)

    def sides(x, function=layer_norm_gradients):
        return [len(kernel.sides) for kernel in kernels_of(function, x, w, w, x)]

    assert sum(sides(normal(512, 64))) == 2
    assert sum(sides(normal(64, 64))) == 0  # few rows
    with options.without("side"):
        assert sum(sides(normal(512, 64))) == 0


def test_a_sum_of_many_rows_is_exact_enough():
    x = np.full((1 << 16, 40), 0.1, np.float32)
    total = pb.jit(lambda x: (x - pb.max(x, -1, keepdims=True), pb.sum(x, 0)))(pb.asarray(x))[1]
    np.testing.assert_allclose(np.asarray(total), np.float64(np.float32(0.1)) * (1 << 16), rtol=1e-6)


def test_the_same_bits_for_any_number_of_threads():
    x, g, w, b = (pb.asarray(normal(*s)) for s in ((5000, 64), (5000, 64), (64,), (64,)))
    same_bits(lambda: pb.jit(layer_norm_gradients)(x, w, b, g))


def test_the_validator_sees_a_fault():
    w = normal(64)
    (kernel,) = (k for k in kernels_of(layer_norm_gradients, normal(512, 64), w, w, normal(512, 64)) if k.sides)
    validate_kernel(kernel)
    for change in ({"stage": 9}, {"dtype": "float64"}, {"access": kernel.stages[-1].stores[0][0]}):
        broken = replace(kernel, sides=[replace(kernel.sides[0], **change), *kernel.sides[1:]])
        with pytest.raises(CompileError):
            validate_kernel(broken)
