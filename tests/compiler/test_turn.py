"""Rows too short for the lanes: the lanes run over rows instead."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import turn
from pullback.compiler.loops import Access
from pullback.compiler.program import compile_program
from pullback.graph.graph import Graph
from tests.backends import on_backend
from tests.threads import same_bits

F = pb.nn.functional
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def kernels_of(function, *args):
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs).kernels


def modes(function, *args):
    return [kernel.mode for kernel in kernels_of(function, *args)]


FUNCTIONS = {
    "row times vector": lambda x, v, c: x * v,
    "row plus number": lambda x, v, c: x + c,
    "sum": lambda x, v, c: pb.sum(x, axis=-1),
    "softmax": lambda x, v, c: F.softmax(x, axis=-1),
    "softmax gradient": lambda x, v, c: pb.grad(lambda x: pb.sum(F.softmax(x, axis=-1) * v))(x),
    "argmax and max": lambda x, v, c: (pb.argmax(x, axis=-1), pb.max(x, axis=-1)),
    "normalised": lambda x, v, c: x / pb.sqrt(pb.sum(x * x, axis=-1, keepdims=True)),
    "cumulative": lambda x, v, c: pb.cumulative_sum(x * v, axis=-1),
    "backwards": lambda x, v, c: x[:, ::-1] * v,
    "positions": lambda x, v, c: x + pb.arange(x.shape[1], dtype="float32"),
    "any": lambda x, v, c: pb.any(x > v, axis=-1),
    "other axis": lambda x, v, c: pb.sum(x * v, axis=0),
}


@pytest.mark.parametrize("rows", [67])
@pytest.mark.parametrize("width", [2, 3, 10, 16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, width, rows):
    function = FUNCTIONS[name]
    x, v, c = normal(rows, width), normal(width), normal(rows, 1)
    x[0, 0], x[1] = np.nan, -np.inf
    found = pb.jit(function)(*map(pb.asarray, (x, v, c)))
    with on_backend("reference"):
        expected = function(*map(pb.asarray, (x, v, c)))
        pb.eval(expected)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-5)


def test_which_kernels_are_turned():
    x, v, c = normal(500, 3), normal(3), normal(500, 1)
    assert modes(FUNCTIONS["row times vector"], x, v, c) == ["column"]
    assert modes(FUNCTIONS["softmax gradient"], x, v, c) == ["column"]
    assert modes(lambda x: x * 2, x) == ["map"]  # the two loops are one
    assert modes(lambda x: F.softmax(x, axis=-1), normal(500, 17)) == ["row"]
    assert modes(lambda x: F.softmax(x, axis=-1), normal(5, 3)) == ["row"]
    (kernel,) = kernels_of(lambda x, w: x * w[:, None], normal(500, 2, 3), normal(7, 2, 3))
    assert (kernel.domain, kernel.reduced) == ((7, 6, 500), (False, True, False))


def test_loops():
    access = Access(None, 5, (60, 6, 2, 1))
    domain, reduced = (4, 100, 3, 2), (False, False, False, True)
    sums = [("fold", 0, "float32")]
    found = turn.turn(domain, reduced, [access], [(1, (0, 1, 2, 3))], sums)
    assert found[:2] == ((4, 3, 2, 100), (False, False, True, False))
    assert (found[2][0].offset, found[2][0].strides) == (5, (60, 2, 1, 6))
    assert found[3] == [(1, (0, 2, 3, 1))]
    assert turn.turn(domain, reduced, [access], [], [])[1] == (False, True, True, False)
    assert turn.turn(domain, reduced, [access], [], [("lookup", 0, "float32", ())])[0] == domain


def test_a_loop_along_which_lanes_are_neighbours_comes_first():
    """Of the blocks of a strided pooling's gradient: not the images, which are far apart."""
    domain, reduced = (500, 28, 2, 28, 2), (False,) * 5
    read, written = Access(None, 0, (784, 28, 0, 1, 0)), Access(None, 0, (3136, 112, 56, 2, 1))
    assert turn.turn(domain, reduced, [read, written], [], [])[0] == (500, 28, 2, 2, 28)
    far = Access(None, 0, (784, 28, 0, 100, 0))
    assert turn.turn(domain, reduced, [far, written], [], [])[0] == (28, 2, 28, 2, 500)
    few = (500, 6, 2, 6, 2)
    assert turn.turn(few, reduced, [Access(None, 0, (36, 6, 0, 1, 0))], [], [])[0] == (6, 2, 6, 2, 500)


def test_in_place():
    step = pb.jit(lambda x, v: x * v)
    state = pb.asarray(normal(400, 3)) + 0
    x = np.asarray(state).copy()
    scale = normal(3)

    @pb.jit
    def update(v):
        state.assign(step(state, v))

    update(pb.asarray(scale))
    np.testing.assert_allclose(np.asarray(state), x * scale, rtol=1e-6)
    program = pb.explain(update)(pb.asarray(scale))
    np.testing.assert_allclose(np.asarray(state), x * scale * scale, rtol=1e-6)
    assert [step.kind for step in program.steps] == ["column"]


def test_the_same_bits_for_any_number_of_threads():
    x, v, c = map(pb.asarray, (normal(30000, 3), normal(3), normal(30000, 1)))
    same_bits(lambda: [pb.jit(f)(x, v, c) for f in FUNCTIONS.values()])
