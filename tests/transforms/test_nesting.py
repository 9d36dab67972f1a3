"""Every transform inside every other, three deep, against definitions: Python loops and plain forward mode."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("reference_backend")

RNG = np.random.default_rng(0)
SIZE = 3
A = pb.asarray(RNG.standard_normal((SIZE, SIZE)) / 2)
T, C = pb.asarray(RNG.standard_normal(SIZE)), pb.asarray(RNG.standard_normal(SIZE))
X = RNG.standard_normal(SIZE)
SHIFTS = (0.0, 0.7)


def function(x):
    return pb.sin(A @ x) * x + pb.exp(-pb.sum(x**2)) * x


def _with_rule(f):
    """``f`` as a custom_vjp whose rule is its own derivative."""
    custom = pb.custom_vjp(f)
    custom.defvjp(lambda x: (f(x), x), lambda x, cotangent: pb.vjp(f, x)[1](cotangent))
    return custom


def _with_tangent(f):
    custom = pb.custom_jvp(f)
    custom.defjvp(lambda primals, tangents: pb.jvp(f, primals, tangents))
    return custom


def _pushed(f):
    return lambda x: pb.jvp(f, (x,), (T,))[1]


def _pulled(f):
    return lambda x: C @ pb.jacfwd(f)(x)


# Each makes a function of vectors of one of vectors. The second is the first by its definition.
TRANSFORMS = {
    "jit": (pb.jit, lambda f: f),
    "checkpoint": (pb.checkpoint, lambda f: f),
    "custom_vjp": (_with_rule, lambda f: f),
    "custom_jvp": (_with_tangent, lambda f: f),
    "vjp": (lambda f: lambda x: pb.vjp(f, x)[1](C)[0], _pulled),
    "grad": (lambda f: pb.grad(lambda x: pb.sum(f(x) * C)), _pulled),
    "jacrev": (lambda f: lambda x: C @ pb.jacrev(f)(x), _pulled),
    "jvp": (_pushed, lambda f: lambda x: pb.jacfwd(f)(x) @ T),
    "linearize": (lambda f: lambda x: pb.linearize(f, x)[1](T), _pushed),
    "vmap": (
        lambda f: lambda x: pb.sum(pb.vmap(f)(pb.stack([x + s for s in SHIFTS])), axis=0),
        lambda f: lambda x: sum((f(x + s) for s in SHIFTS), pb.zeros(SIZE, dtype=pb.float64)),
    ),
}


def _value(f) -> np.ndarray:
    return np.array(f(pb.asarray(X)))


@pytest.mark.parametrize("names", list(itertools.permutations(TRANSFORMS, 2)), ids="-".join)
def test_two_deep(names):
    _check(names)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_within_itself(name):
    _check((name, name))


@pytest.mark.parametrize(
    "names", [n for k, n in enumerate(itertools.product(TRANSFORMS, repeat=3)) if k % 5 == 0], ids="-".join
)
def test_three_deep(names):
    _check(names)


def _check(names):
    got = expected = function
    for name in reversed(names):
        transform, definition = TRANSFORMS[name]
        got, expected = transform(got), definition(expected)
    np.testing.assert_allclose(_value(got), _value(expected), rtol=1e-10, atol=1e-10)


# -- axes and trees ----------------------------------------------------------------------------------------------------


def test_vmap_axes_in_trees():
    def f(tree, scale):
        return {"sum": tree["a"] + tree["b"][0], "scaled": (tree["b"][0] * scale, tree["a"])}

    a, b = RNG.standard_normal((2, 4)), RNG.standard_normal((4, 2))
    mapped = pb.vmap(f, in_axes=({"a": 0, "b": (1,)}, None), out_axes={"sum": 0, "scaled": (1, -1)})
    out = mapped({"a": a, "b": (b,)}, 3.0)
    np.testing.assert_allclose(np.array(out["sum"]), a + b.T)
    np.testing.assert_allclose(np.array(out["scaled"][0]), 3 * b)
    np.testing.assert_allclose(np.array(out["scaled"][1]), a.T)


def test_per_example_gradients_of_a_jitted_loss():
    @pb.jit
    def loss(w, x, y):
        return pb.sum((pb.tanh(x @ w["a"]) + w["b"] - y) ** 2)

    w = {"a": RNG.standard_normal((3, 2)), "b": RNG.standard_normal(2)}
    x, y = RNG.standard_normal((5, 3)), RNG.standard_normal((5, 2))
    each = pb.vmap(pb.grad(loss), in_axes=(None, 0, 0))(w, x, y)
    for k in range(5):
        one = pb.grad(loss)(w, x[k], y[k])
        for name in w:
            np.testing.assert_allclose(np.array(each[name][k]), np.array(one[name]), rtol=1e-12)
    again = pb.jit(pb.vmap(pb.grad(loss), in_axes=(None, 0, 0)))(w, x, y)
    np.testing.assert_allclose(np.array(again["a"]), np.array(each["a"]), rtol=1e-12)


def test_derivatives_of_jit_to_third_order():
    f = pb.jit(lambda x: pb.sin(x) * x**2)
    third = pb.jit(pb.grad(pb.grad(pb.jit(pb.grad(f)))))
    x = 0.7
    exact = 6 * np.cos(x) - 6 * x * np.sin(x) - x**2 * np.cos(x)
    np.testing.assert_allclose(float(third(np.float64(x))), exact, rtol=1e-13)


def test_micro_batches_add_up():
    """The functional store: a pytree of gradients, accumulated over parts of a batch, is the gradient of the whole."""
    w = {"a": RNG.standard_normal((3, 2)), "b": RNG.standard_normal(2)}
    x, y = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 2))

    def loss(w, x, y):
        return pb.sum((x @ w["a"] + w["b"] - y) ** 2)

    whole = pb.grad(loss)(w, x, y)
    store = pb.pytree.map(lambda leaf: pb.zeros(leaf.shape, dtype=pb.float64), w)
    step = pb.jit(lambda store, x, y: pb.pytree.map(lambda a, b: a + b, store, pb.grad(loss)(w, x, y)))
    for part in range(3):
        store = step(store, x[2 * part : 2 * part + 2], y[2 * part : 2 * part + 2])
    for name in w:
        np.testing.assert_allclose(np.array(store[name]), np.array(whole[name]), rtol=1e-12)
    leaves = {name: pb.asarray(value).requires_grad_() for name, value in w.items()}
    for part in range(3):
        loss(leaves, x[2 * part : 2 * part + 2], y[2 * part : 2 * part + 2]).backward()
    for name in w:
        np.testing.assert_allclose(np.array(leaves[name].grad), np.array(whole[name]), rtol=1e-12)


def test_gradients_compose_to_the_leaves():
    x = pb.asarray(X).requires_grad_()
    w = pb.asarray(X + 2).requires_grad_()
    y = pb.sum(pb.sin(x * w) * x)
    first = pb.gradients(y, x)
    again = pb.gradients(y, x)
    np.testing.assert_array_equal(np.array(first), np.array(again))  # fresh: nothing accumulates
    assert x.grad is None
    second = pb.gradients(pb.sum(first**2), (x, w))
    f = lambda x, w: pb.sum(pb.grad(lambda x: pb.sum(pb.sin(x * w) * x))(x) ** 2)  # noqa: E731
    for a, b in zip(second, pb.grad(f, (0, 1))(X, X + 2)):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-12)
    third = pb.gradients(pb.sum(second[1]), x)
    np.testing.assert_allclose(
        np.array(third), np.array(pb.grad(lambda x: pb.sum(pb.grad(f, 1)(x, pb.asarray(X + 2))))(X)), rtol=1e-11
    )
