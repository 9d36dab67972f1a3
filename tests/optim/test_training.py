"""Whole training steps, written as a PyTorch and as a JAX user would: jitted equals not jitted, step for step."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim, pytree

STEPS = 20

OPTIMIZERS = {
    "sgd": lambda params: optim.SGD(params, lr=0.1),
    "nesterov": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda params: optim.Adam(params, lr=0.01),
    "adamw": lambda params: optim.AdamW(params, lr=0.01, weight_decay=0.1),
}


def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((STEPS, 16, 6)).astype(np.float32), rng.integers(0, 3, (STEPS, 16))


def make_model():
    pb.random.seed(11)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 3))


def change_from_outside(step, optimizer, model):
    """What a user does between steps."""
    if step == 5:
        optimizer.lr = 0.02
    if step == 8:
        model.eval()
    if step == 12:
        model.train()
    if step == 15:
        optimizer.param_groups[0]["lr"] = 0.005


def pytorch_style(make_optimizer, jitted):
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    runs = []

    def step(x, y):
        runs.append(1)
        optimizer.zero_grad()
        loss = nn.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = pb.jit(step) if jitted else step
    losses = []
    for k, (x, y) in enumerate(zip(*data())):
        change_from_outside(k, optimizer, model)
        losses.append(float(step(x, y)))
    if jitted:
        assert len(runs) == 2  # one recording a mode
    return losses, [np.asarray(p) for p in model.parameters()], [np.asarray(p.grad) for p in model.parameters()]


def jax_style(make_optimizer, jitted):
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    state = optimizer.init(model)
    runs = []

    def step(model, state, x, y):
        runs.append(1)
        loss, grads = pb.value_and_grad(lambda model: nn.cross_entropy(model(x), y))(model)
        model, state = optimizer.apply(model, grads, state)
        return model, state, loss

    step = pb.jit(step) if jitted else step
    losses = []
    for k, (x, y) in enumerate(zip(*data())):
        change_from_outside(k, optimizer, model)
        model, state, loss = step(model, state, x, y)
        losses.append(float(loss))
    if jitted:
        assert len(runs) == 2
    return losses, [np.asarray(p) for p in model.parameters()], []


@pytest.mark.parametrize("style", [pytorch_style, jax_style])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_jit_equals_no_jit(style, name):
    plain = style(OPTIMIZERS[name], False)
    jitted = style(OPTIMIZERS[name], True)
    np.testing.assert_allclose(jitted[0], plain[0], rtol=1e-5, atol=1e-6)
    for a, b in zip(jitted[1] + jitted[2], plain[1] + plain[2]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert plain[0][-1] < plain[0][0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_both_styles_agree(name):
    a, b = pytorch_style(OPTIMIZERS[name], True), jax_style(OPTIMIZERS[name], True)
    np.testing.assert_allclose(a[0], b[0], rtol=1e-4, atol=1e-5)


def test_model_and_optimizer_both_captured_and_passed():
    """The model is an argument, the optimizer holds the same parameters."""
    results = []
    for jitted in (False, True):
        models = [make_model(), make_model()]
        optimizer = optim.SGD(models[0].parameters(), lr=0.1)

        def step(model, x, y, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = pb.jit(step) if jitted else step
        losses = []
        for k, (x, y) in enumerate(zip(*data())):
            losses.append(float(run(models[k % 3 == 2], x, y)))
        results.append((losses, [np.asarray(p) for m in models for p in m.parameters()]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    for a, b in zip(results[0][1], results[1][1]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_gradients_accumulate_over_calls():
    results = []
    for jitted in (False, True):
        model = nn.Linear(6, 3)
        model.weight.assign(np.ones((3, 6)))
        model.bias.assign(np.zeros(3))

        def accumulate(x, y, model=model):
            loss = nn.cross_entropy(model(x), y)
            loss.backward()
            return loss

        run = pb.jit(accumulate) if jitted else accumulate
        for x, y in list(zip(*data()))[:4]:
            run(x, y)
        results.append(np.asarray(model.weight.grad))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_a_loop_without_jit_does_not_grow():
    model = make_model()
    optimizer = optim.Adam(model.parameters())
    for x, y in list(zip(*data()))[:5]:
        optimizer.zero_grad()
        nn.cross_entropy(model(x), y).backward()
        optimizer.step()
    for p in model.parameters():
        assert not p.node.inputs
    model = pytree.map(lambda p: p * 1.0, model)
    pb.eval(model)
    assert not any(p.node.inputs for p in model.parameters())
