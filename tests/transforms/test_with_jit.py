"""Transforms of jitted functions, and jitted transforms."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb

X = np.array([0.3, -0.7, 1.2])


def f(x):
    return pb.sum(pb.sin(x) * x**2)


GRADIENT = np.cos(X) * X**2 + 2 * X * np.sin(X)
SECOND = -np.sin(X) * X**2 + 4 * X * np.cos(X) + 2 * np.sin(X)

ORDERS = {
    "jit grad": (lambda: pb.jit(pb.grad(f)), GRADIENT),
    "grad jit": (lambda: pb.grad(pb.jit(f)), GRADIENT),
    "jit grad jit": (lambda: pb.jit(pb.grad(pb.jit(f))), GRADIENT),
    "jit jvp": (lambda: pb.jit(lambda x: pb.jvp(f, (x,), (np.ones(3),))[1]), GRADIENT.sum()),
    "jvp jit": (lambda: lambda x: pb.jvp(pb.jit(f), (x,), (np.ones(3),))[1], GRADIENT.sum()),
    "jit vjp": (lambda: pb.jit(lambda x: pb.vjp(f, x)[1](2.0)[0]), 2 * GRADIENT),
    "vjp jit": (lambda: lambda x: pb.vjp(pb.jit(f), x)[1](2.0)[0], 2 * GRADIENT),
    "jit hessian": (lambda: pb.jit(pb.hessian(f)), np.diag(SECOND)),
    "hessian jit": (lambda: pb.hessian(pb.jit(f)), np.diag(SECOND)),
    "grad jit grad": (lambda: pb.grad(lambda x: pb.sum(pb.jit(pb.grad(f))(x))), SECOND),
    "jit vmap grad": (lambda: pb.jit(pb.vmap(pb.grad(lambda x: pb.sin(x) * x**2))), GRADIENT),
    "vmap jit grad": (lambda: pb.vmap(pb.jit(pb.grad(lambda x: pb.sin(x) * x**2))), GRADIENT),
    "vmap grad jit": (lambda: pb.vmap(pb.grad(pb.jit(lambda x: pb.sin(x) * x**2))), GRADIENT),
    "jit hvp": (lambda: pb.jit(lambda x: pb.hvp(f, (x,), (np.ones(3),))), SECOND),
}


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_on_every_call(order):
    make, expected = ORDERS[order]
    transformed = make()
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(transformed(pb.asarray(X))), expected, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(transformed(X)), expected, rtol=1e-12)


def test_backward_through_a_jitted_function():
    jitted = pb.jit(lambda x, y: x * pb.sum(y))
    x, y = pb.asarray(X).requires_grad_(), pb.asarray(X + 1).requires_grad_()
    for _ in range(3):
        x.grad = y.grad = None
        pb.sum(jitted(x * 2, y) * X).backward()
        np.testing.assert_allclose(np.asarray(x.grad), 2 * X * (X + 1).sum(), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(y.grad), np.full(3, (2 * X * X).sum()), rtol=1e-12)


def test_backward_inside_a_jitted_function():
    x = pb.asarray(X).requires_grad_()

    @pb.jit
    def step(scale):
        x.grad = None
        loss = f(x) * scale
        loss.backward()
        return loss

    for scale in (1.0, 2.0, 3.0):
        loss = step(scale)
        np.testing.assert_allclose(float(loss), scale * (np.sin(X) * X**2).sum(), rtol=1e-6)
        np.testing.assert_allclose(np.asarray(x.grad), scale * GRADIENT, rtol=1e-6)


def test_gradient_accumulation_inside_a_jitted_function():
    x = pb.asarray(X).requires_grad_()

    @pb.jit
    def accumulate():
        f(x).backward()

    for count in range(1, 4):
        accumulate()
        np.testing.assert_allclose(np.asarray(x.grad), count * GRADIENT, rtol=1e-12)


def test_gradients_of_a_captured_tensor():
    w = pb.asarray(X).requires_grad_()
    by_w = pb.jit(lambda s: pb.gradients(f(w) * s, w))
    np.testing.assert_allclose(np.asarray(by_w(2.0)), 2 * GRADIENT, rtol=1e-12)
    w.assign(pb.asarray(X) * 0)
    np.testing.assert_allclose(np.asarray(by_w(2.0)), np.zeros(3), atol=1e-12)


def test_a_branch_on_a_traced_value_names_the_line():
    with pytest.raises(pb.TraceError, match=r"test_with_jit.py"):
        pb.jit(pb.grad(lambda x: x if x > 0 else -x))(2.0)
