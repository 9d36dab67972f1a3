"""A derivative's graph, and the time that it takes to build one, grow with the forward graph and no faster."""

from __future__ import annotations

import gc
import time
from itertools import pairwise

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.memory import nbytes_of
from pullback.compiler.program import compile_program
from pullback.graph.node import topological_order


@pytest.fixture(autouse=True)
def _cpu_time_without_collections():
    """The collector's passes over everything that earlier tests left alive are not what is timed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _nodes(function, *args) -> int:
    return len(pb.graph_of(function)(*args).nodes)


def _seconds(function) -> float:
    """Of the fastest of a few runs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def _diamonds(count):
    """x <- x + sin(x), ``count`` times: 2**count paths lead from the input to the output."""
    def function(x):
        for _ in range(count):
            x = x + pb.sin(x)
        return pb.sum(x)

    return function


def _wide_diamonds(count):
    """Both branches compute."""
    def function(x):
        for _ in range(count):
            x = 0.5 * (pb.sin(x) * pb.cos(x) + pb.tanh(x))
        return pb.sum(x)

    return function


def _chain(count):
    def function(x):
        for _ in range(count):
            x = pb.tanh(x)
        return pb.sum(x)

    return function


def _dense(count):
    """Every layer reads the sum of all before."""
    def function(x):
        total = x
        for _ in range(count):
            total = total + pb.tanh(total)
        return pb.sum(total)

    return function


X = np.array([0.1, -0.7, 0.4])
TRANSFORMS = {
    "reverse": pb.grad,
    "forward": lambda f: lambda x: pb.jvp(f, (x,), (x * 0 + 1,))[1],
    "forward over reverse": lambda f: lambda x: pb.jvp(pb.grad(f), (x,), (x * 0 + 1,))[1],
    "vmap of reverse": lambda f: lambda x: pb.vmap(pb.grad(f))(pb.stack([x, x])),
}


@pytest.mark.parametrize("stack", [_diamonds, _wide_diamonds, _chain, _dense])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_thousand_layers_take_a_thousand_times_one(stack, name):
    transform = TRANSFORMS[name]
    small, large = _nodes(transform(stack(500)), X), _nodes(transform(stack(1000)), X)
    assert large <= 2.01 * small
    assert large <= 20 * _nodes(stack(1000), X)
    x = pb.asarray(X)
    ratio = _seconds(lambda: transform(stack(1000))(x)) / _seconds(lambda: transform(stack(250))(x))
    assert ratio < 4 * 2.5  # quadratic time would give 16


def _scaled_sine(x):
    return 1.01 * pb.sin(x)


def _with_vjp():
    f = pb.custom_vjp(_scaled_sine)
    f.defvjp(lambda x: (_scaled_sine(x), x), lambda x, cotangent: (1.01 * pb.cos(x) * cotangent,))
    return f


def _with_jvp():
    f = pb.custom_jvp(_scaled_sine)
    f.defjvp(lambda primals, tangents: (_scaled_sine(*primals), 1.01 * pb.cos(*primals) * tangents[0]))
    return f


OWN = {"custom_vjp": _with_vjp, "custom_jvp": _with_jvp, "checkpoint": lambda: pb.checkpoint(_scaled_sine)}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_calls_with_a_rule_of_their_own_take_linear_time(name, own):
    layer, transform = OWN[own](), TRANSFORMS[name]

    def stack(count):
        def function(x):
            for _ in range(count):
                x = layer(x)
            return pb.sum(x)

        return function

    assert _nodes(transform(stack(200)), X) <= 2.01 * _nodes(transform(stack(100)), X)
    x = pb.asarray(X)
    ratio = _seconds(lambda: transform(stack(400))(x)) / _seconds(lambda: transform(stack(100))(x))
    assert ratio < 4 * 2.5  # quadratic time would give 16


def test_a_thousand_diamonds_have_the_right_derivative():
    """d/dx of 1,000 maps x + sin(x): the product of 1 + cos(x) along the way."""
    x = X.copy()
    expected = np.ones(3)
    for _ in range(1000):
        expected *= 1 + np.cos(x)
        x = x + np.sin(x)
    got = np.asarray(pb.grad(_diamonds(1000))(pb.asarray(X)))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-300)


def test_a_chain_of_20000():
    """Nothing recurses: the graph is built, differentiated, computed in pieces and freed."""
    x = pb.asarray(X)
    got = np.asarray(pb.grad(_chain(20_000))(x))
    value, expected = X.copy(), np.ones(3)
    for _ in range(20_000):
        value = np.tanh(value)
        expected *= 1 - value**2
    np.testing.assert_allclose(got, expected, rtol=1e-8)
    x.requires_grad_()
    _chain(20_000)(x).backward()
    np.testing.assert_allclose(np.asarray(x.grad), expected, rtol=1e-8)


def _residual(layers):
    def function(parameters, x):
        for weight, bias in parameters:
            x = x + pb.tanh(x @ weight + bias)
        return pb.mean(x**2)

    rng = np.random.default_rng(0)
    parameters = [(pb.asarray(rng.normal(0, 0.1, (8, 8))), pb.asarray(rng.normal(0, 0.1, 8))) for _ in range(layers)]
    return function, parameters, pb.asarray(rng.normal(size=(5, 8)))


def test_a_residual_chain_of_50_layers():
    function, parameters, x = _residual(50)
    gradient = pb.jit(pb.grad(function))(parameters, x)
    reference = pb.grad(function)(parameters, x)
    for (a, b), (c, d) in zip(gradient, reference):
        np.testing.assert_allclose(np.asarray(a), np.asarray(c), rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(np.asarray(b), np.asarray(d), rtol=1e-10, atol=1e-14)
    forward = _nodes(function, parameters, x)
    assert _nodes(pb.grad(function), parameters, x) <= 3 * forward
    function, parameters, x = _residual(25)
    assert _nodes(function, parameters, x) >= forward // 2 - 10


def _mlp(parameters, x, labels):
    for weight, bias in parameters[:-1]:
        x = nn.relu(x @ weight + bias)
    weight, bias = parameters[-1]
    return nn.cross_entropy(x @ weight + bias, labels)


def _mlp_arguments():
    rng = np.random.default_rng(0)
    sizes = [20, 16, 16, 4]
    parameters = [(rng.normal(size=(m, n)), np.zeros(n)) for m, n in pairwise(sizes)]
    return parameters, rng.normal(size=(6, 20)), rng.integers(0, 4, 6)


M = np.random.default_rng(0).normal(size=(6, 16))
BOUNDED = {
    # name: function, arguments, nodes of value and gradient over nodes of the value
    "logsumexp": (lambda x: pb.sum(pb.logsumexp(x, axis=1)), (M,), 3),
    "softmax": (lambda x: pb.sum(nn.softmax(x, 1) ** 2), (M,), 3),
    "layer_norm": (lambda x: pb.sum(nn.layer_norm(x, (16,)) ** 3), (M,), 3),
    "rms_norm": (lambda x: pb.sum(nn.rms_norm(x, (16,)) ** 3), (M,), 3),
    "gelu": (lambda x: pb.sum(nn.gelu(x)), (M,), 3),
    "mlp": (_mlp, _mlp_arguments(), 3),
    "var": (lambda x: pb.sum(pb.var(x, axis=0)), (M,), 3),
    "max": (lambda x: pb.sum(pb.max(x, axis=0)), (M,), 4),
    "prod": (lambda x: pb.sum(pb.prod(x, axis=0)), (M,), 8),
    "einsum": (lambda x: pb.sum(pb.einsum("ij,kj,kl->il", x, x, x) ** 2), (M,), 4),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_gradients_of_what_networks_are_made_of(name):
    """A gradient's graph holds the forward one and a bounded number of nodes for each of its nodes."""
    function, args, factor = BOUNDED[name]
    forward = _nodes(function, *args)
    both = pb.graph_of(pb.value_and_grad(function))(*args)
    assert len(both.nodes) <= factor * forward + 6, (len(both.nodes), forward)
    assert len(topological_order(list(both.outputs))) <= len(both.nodes)


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "layer_norm", "mlp"])
def test_each_further_order_multiplies_by_a_bounded_factor(name):
    function, args, _ = BOUNDED[name]

    def once_more(f):
        return lambda *a: pb.sum(pb.pytree.leaves(pb.grad(f)(*a))[0] ** 2)

    sizes = [_nodes(function, *args)]
    for _ in range(3):
        function = once_more(function)
        sizes.append(_nodes(function, *args))
    for before, after in pairwise(sizes):
        assert after <= 5 * before + 10, sizes


# -- cost of the compiled derivative -----------------------------------------------------------------------------------


def _work(function, *args) -> tuple[int, int, int]:
    """Of the compiled function: products of matrices in multiplications, kernels, bytes that they read and write."""
    graph = pb.graph_of(function)(*args)
    program = compile_program(graph.inputs, graph.outputs)
    multiplications = traffic = 0
    for step in program.plan.steps:
        plan = step.contraction
        if plan is not None:
            multiplications += plan.m * plan.n * plan.k
        # A kernel that follows a product reads and writes too; the product alone may then never be in memory.
        traffic += sum([nbytes_of(value) for value in (*step.reads, *step.writes)])
    return multiplications, len(program.kernels), traffic


def test_a_residual_chain_costs_three_forward_passes():
    """Two products for each of the forward pass, but for the first layer's input; two kernels for each of its own."""
    function, parameters, x = _residual(50)
    forward = _work(function, parameters, x)
    both = _work(pb.value_and_grad(function), parameters, x)
    assert both[0] == 3 * forward[0] - 5 * 8 * 8
    assert both[1] <= 2 * forward[1] + 2
    assert both[2] <= 4 * forward[2]


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "layer_norm", "rms_norm", "gelu", "mlp"])
def test_a_gradient_reads_and_writes_at_most_four_times_what_the_value_does(name):
    function, args, _ = BOUNDED[name]
    forward, both = _work(function, *args), _work(pb.value_and_grad(function), *args)
    assert both[0] <= 3 * forward[0]
    assert both[1] <= 3 * forward[1] + 1
    assert both[2] <= 4 * forward[2]
