"""Transforms of functions of modules: a module in, a module of derivatives out."""

from __future__ import annotations

import numpy as np

import pullback as pb
from pullback import nn

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((5, 3)).astype(np.float32), RNG.standard_normal((5, 2)).astype(np.float32)


class Counted(nn.Module):
    """A layer that changes its buffers when it runs."""

    def __init__(self):
        self.linear = nn.Linear(3, 2)
        self.mean = pb.zeros(2)
        self.calls = pb.asarray(0)

    def forward(self, x):
        y = self.linear(x)
        with pb.no_grad():
            self.mean.assign(0.9 * self.mean + 0.1 * pb.mean(y, axis=0))
            self.calls += 1
        return y


def loss(model, x, y):
    return pb.mean((model(x) - y) ** 2)


def test_a_module_of_gradients():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    value, gradient = pb.value_and_grad(loss)(model, X, Y)
    assert isinstance(gradient, nn.Sequential)
    total = loss(model, X, Y)
    total.backward()
    np.testing.assert_allclose(float(value), float(total), rtol=1e-6)
    for own, found in zip(model.parameters(), gradient.parameters(), strict=True):
        assert own.shape == found.shape
        np.testing.assert_allclose(np.asarray(found), np.asarray(own.grad), rtol=1e-5, atol=1e-6)


def test_the_module_itself_is_not_touched():
    model = nn.Linear(3, 2)
    before = [p.node for p in model.parameters()]
    pb.grad(loss)(model, X, Y)
    assert all(p.node is node and p.requires_grad and p.grad is None for p, node in zip(model.parameters(), before))


def test_buffers_change_and_integers_come_along():
    model = Counted()
    gradient = pb.grad(loss)(model, X, Y)
    assert int(model.calls) == 1
    assert float(pb.max(pb.abs(model.mean))) > 0
    assert int(gradient.calls) == 0
    np.testing.assert_array_equal(np.asarray(gradient.mean), [0.0, 0.0])
    assert float(pb.max(pb.abs(gradient.linear.weight))) > 0


def test_jvp_and_vmap_over_a_module():
    model = nn.Linear(3, 2)
    out, tangent = pb.jvp(lambda m: m(X), (model,), (model,))
    np.testing.assert_allclose(np.asarray(tangent), np.asarray(out), rtol=1e-5)  # linear in its parameters
    single = pb.vmap(lambda m, x: m(x), in_axes=(None, 0))(model, X)
    np.testing.assert_allclose(np.asarray(single), np.asarray(model(X)), rtol=1e-5)
    each = pb.vmap(pb.grad(loss), in_axes=(None, 0, 0))(model, X, Y)
    assert isinstance(each, nn.Linear)
    mean = pb.grad(loss)(model, X, Y)
    np.testing.assert_allclose(np.asarray(each.weight).mean(0), np.asarray(mean.weight), rtol=1e-4, atol=1e-6)


def test_a_step_in_the_functional_style():
    model = nn.Linear(3, 2)
    losses = []
    for _ in range(20):
        value, gradient = pb.value_and_grad(loss)(model, X, Y)
        model = pb.pytree.map(lambda p, g: p - 0.1 * g, model, gradient)
        losses.append(float(value))
    assert losses[-1] < losses[0]
    assert isinstance(model, nn.Linear)
