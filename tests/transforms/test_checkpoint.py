"""checkpoint: the same derivatives, less memory, and nothing lost: closures, random numbers, named values."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler import program as program_module
from pullback.errors import ArgumentError, GradientError, NonFiniteError
from pullback.testing import check_grads
from pullback.transforms import pytree

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4, 4)) / 2
X = RNG.standard_normal((2, 4))


def layer(x, w):
    hidden = pb.checkpoint_name(pb.tanh(x @ w), "hidden")
    return pb.sin(hidden) * hidden + x


def chain(wrap):
    inner = wrap(layer)

    def loss(ws, x):
        for k in range(len(ws)):
            x = inner(x, ws[k])
        return pb.sum(x**2)

    return loss


WRAPS = {
    "nothing kept": pb.checkpoint,
    "hidden kept": lambda f: pb.checkpoint(f, policy=["hidden"]),
    "by a function": lambda f: pb.checkpoint(f, policy=lambda name: name.startswith("h")),
    "nested": lambda f: pb.checkpoint(lambda x, w: pb.checkpoint(f)(x, w) * 1.5),
    "jit inside": lambda f: pb.checkpoint(pb.jit(f)),
}
PLAIN = {"nested": lambda f: lambda x, w: f(x, w) * 1.5}

def _differentiated(f):
    """``f`` with its own derivative for a rule."""
    g = pb.custom_vjp(f)
    g.defvjp(lambda x, w: (f(x, w), (x, w)), lambda residuals, cotangent: pb.vjp(f, *residuals)[1](cotangent))
    return g


WRAPS["nested in a chain"] = lambda f: pb.checkpoint(lambda x, w: pb.sin(pb.checkpoint(f)(pb.cos(x), w)))
PLAIN["nested in a chain"] = lambda f: lambda x, w: pb.sin(f(pb.cos(x), w))
WRAPS["in a rule"] = lambda f: _differentiated(pb.checkpoint(pb.checkpoint(f)))
WRAPS["around a rule"] = lambda f: pb.checkpoint(_differentiated(pb.checkpoint(f)))

TRANSFORMS = {
    "jacrev": lambda f: lambda ws, x: pb.jacrev(f, (0, 1))(ws, x),
    "jacfwd": lambda f: lambda ws, x: pb.jacfwd(f, 1)(ws, x),
    "jacrev of a part": lambda f: lambda ws, x: pb.jacrev(lambda x: pb.stack([f(ws, x), f(2 * ws, x)]))(x),
    "linearize": lambda f: lambda ws, x: pb.linearize(f, ws, x)[1](ws, x),
    "grad": lambda f: pb.grad(f, (0, 1)),
    "jit grad": lambda f: pb.jit(pb.grad(f, (0, 1))),
    "jvp": lambda f: lambda ws, x: pb.jvp(f, (ws, x), (ws, x)),
    "hvp": lambda f: lambda ws, x: pb.hvp(f, (ws, x), (ws, x)),
    "reverse over reverse": lambda f: pb.grad(lambda ws, x: pb.sum(pb.grad(f)(ws, x) ** 2), (0, 1)),
    "vmap": lambda f: lambda ws, x: pb.vmap(pb.grad(f, (0, 1)), (None, 0))(ws, pb.stack([x, x + 1])),
    "grad of vmap": lambda f: pb.grad(lambda ws, x: pb.sum(pb.vmap(f, (None, 0))(ws, pb.stack([x, 2 * x]))), (0, 1)),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_same_derivatives(name, wrap):
    transform = TRANSFORMS[name]
    plain = PLAIN.get(wrap, lambda f: f)
    ws, x = pb.asarray(W), pb.asarray(X)
    got, expected = transform(chain(WRAPS[wrap]))(ws, x), transform(chain(plain))(ws, x)
    for a, b in zip(pytree.leaves(got), pytree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-10, atol=1e-12)


def test_check_grads(reference_backend):
    check_grads(chain(pb.checkpoint), (W, X), order=2)


def _arena_bytes(monkeypatch, function, *args):
    """Temporary memory of the jitted function's programs."""
    plans = []
    make_plan = program_module.make_plan
    monkeypatch.setattr(program_module, "make_plan", lambda *a, **k: plans.append(make_plan(*a, **k)) or plans[-1])
    pb.eval(pb.jit(function)(*args))
    monkeypatch.undo()
    return max(plan.arena_bytes for plan in plans)


def test_peak_memory_is_halved(monkeypatch):
    ws = [pb.asarray(RNG.standard_normal((32, 32)).astype(np.float32) / 6) for _ in range(64)]
    x = pb.asarray(RNG.standard_normal((512, 32)).astype(np.float32))
    peak = {}
    for name, wrap in (("kept", lambda f: f), ("again", pb.checkpoint)):
        peak[name] = _arena_bytes(monkeypatch, pb.grad(chain(wrap)), ws, x)
    assert peak["again"] < 0.5 * peak["kept"]
    assert peak["again"] < 64 * 512 * 32 * 4 + 2**21  # one activation a layer, and little besides


def test_a_policy_keeps_named_values(monkeypatch):
    """What is kept is stored in the forward pass and not computed again: more memory, fewer steps."""
    ws = [pb.asarray(RNG.standard_normal((32, 32)).astype(np.float32) / 6) for _ in range(8)]
    x = pb.asarray(RNG.standard_normal((512, 32)).astype(np.float32))

    def products(wrap):
        graph = pb.graph_of(pb.grad(chain(wrap)))(ws, x)
        return sum(node.op.name == "dot_general" for node in graph.nodes)

    assert products(pb.checkpoint) > products(lambda f: f)
    none = _arena_bytes(monkeypatch, pb.grad(chain(pb.checkpoint)), ws, x)
    hidden = _arena_bytes(monkeypatch, pb.grad(chain(lambda f: pb.checkpoint(f, policy={"hidden"}))), ws, x)
    assert none < hidden


def test_parameters_of_a_module_get_gradients():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = pb.asarray(X.astype(np.float32))
    pb.sum(model(x) ** 2).backward()
    expected = [np.array(p.grad) for p in model.parameters()]
    as_argument = pb.checkpoint(lambda model, x: model(x))
    nested = pb.checkpoint(lambda model, x: as_argument(model, x))
    for call in (
        pb.checkpoint(model),
        pb.checkpoint(lambda x: model(x)),
        lambda x: as_argument(model, x),
        lambda x: nested(model, x),
        lambda x: pb.jit(as_argument)(model, x),
    ):
        for p in model.parameters():
            p.grad = None
        pb.sum(call(x) ** 2).backward()
        for p, e in zip(model.parameters(), expected):
            np.testing.assert_allclose(np.array(p.grad), e, rtol=1e-6)


def test_random_numbers_are_the_same_both_times():
    pb.random.seed(3)

    @pb.checkpoint
    def noisy(x):
        return pb.sin(x * pb.random.normal(x.shape, dtype=x.dtype))

    x = pb.asarray(X)
    out, pull = pb.vjp(noisy, x)
    noise = np.arcsin(np.array(out)) / X
    inside = np.abs(X * noise) < 1.5
    gradient = np.array(pull(pb.ones_like(x))[0])
    exact = np.cos(X * noise) * noise
    pb.random.seed(3)
    again = pb.random.normal(x.shape, dtype=x.dtype)
    np.testing.assert_allclose(gradient, np.cos(X * np.array(again)) * np.array(again), rtol=1e-12)
    assert inside.any()
    assert exact.shape == gradient.shape


def test_values_looked_at_inside_keep_their_derivative():
    @pb.checkpoint
    def f(x):
        y = pb.exp(x)
        if float(pb.sum(y)) > 0:
            return y * x
        return y

    np.testing.assert_allclose(np.array(pb.grad(lambda x: pb.sum(f(x)))(X)), np.exp(X) * (1 + X), rtol=1e-12)


def test_an_argument_rebound_inside():
    @pb.checkpoint
    def f(x):
        x += 1
        return x * x

    x = pb.asarray(X)
    np.testing.assert_allclose(np.array(pb.grad(lambda x: pb.sum(f(x)))(x)), 2 * (X + 1), rtol=1e-12)
    np.testing.assert_array_equal(np.array(x), X + 1)  # as without checkpoint


def test_one_tensor_given_twice():
    def f(x, y):
        x += 1
        return x * y

    for g in (f, pb.checkpoint(f)):
        x = pb.asarray(X)
        np.testing.assert_allclose(np.array(pb.grad(lambda x, g=g: pb.sum(g(x, x)))(x)), 2 * (X + 1), rtol=1e-12)


def test_a_leaf_made_inside_collects_its_gradient():
    leaves = []

    def f(x):
        h = pb.sin(x).detach().requires_grad_()
        leaves.append(h)
        return h * h * x

    for g in (f, pb.checkpoint(f)):
        x = pb.asarray(X).requires_grad_()
        pb.sum(g(x)).backward()
        np.testing.assert_allclose(np.array(leaves[-1].grad), 2 * np.sin(X) * X, rtol=1e-12)
        np.testing.assert_allclose(np.array(x.grad), np.sin(X) ** 2, rtol=1e-12)


def test_a_value_kept_inside_has_no_gradient_in_silence():
    kept = []

    def f(x):
        kept.append(pb.sin(x))
        return kept[-1] * x

    x = pb.asarray(X).requires_grad_()
    for g in (pb.checkpoint(f), _differentiated(lambda x, w: f(x))):
        out = pb.sum(g(x) if g.__name__ == "f" else g(x, 1.0))
        with pytest.raises(GradientError, match=r"an input \(shape \(2, 4\), .* was computed inside a function"):
            pb.gradients(out, kept[-1])
        np.testing.assert_allclose(np.array(pb.gradients(pb.sum(kept[-1]), x)), np.cos(X), rtol=1e-12)
        np.testing.assert_array_equal(np.array(pb.gradients(out, pb.ones(3).requires_grad_())), np.zeros(3))


def test_results_that_need_nothing_pass():
    @pb.checkpoint
    def f(x, flag):
        assert flag
        return {"index": pb.argmax(x), "x": x, "y": pb.exp(x), "one": 1.0}

    out = f(pb.asarray(X), True)
    assert int(out["index"]) == int(np.argmax(X))
    grads = pb.grad(lambda x: pb.sum(f(x, True)["y"] + f(x, True)["x"]))(X)
    np.testing.assert_allclose(np.array(grads), np.exp(X) + 1)


def test_errors():
    with pytest.raises(ArgumentError, match=r"give a collection of names: \['hidden'\]"):
        pb.checkpoint(layer, policy="hidden")
    with pytest.raises(ArgumentError, match="policy must be a collection of names"):
        pb.checkpoint(layer, policy=3)
    with pytest.raises(ArgumentError, match="expected a function, got a int"):
        pb.checkpoint(3)
    with pytest.raises(ArgumentError, match="a name must be a string, got 3"):
        pb.checkpoint_name(X, 3)
    with pytest.raises(GradientError, match=r"checkpoint: the function returned a str at result\['a'\]"):
        pb.grad(lambda x: pb.checkpoint(lambda x: {"a": "text"})(x))(X)


@pytest.mark.parametrize("jitted", [False, True])
def test_debug_nans_names_the_op_inside(jitted):
    gradient = pb.grad(lambda x: pb.sum(pb.checkpoint(lambda x: pb.sqrt(x))(x)))
    if jitted:
        gradient = pb.jit(gradient)
    with pb.debug_nans(), pytest.raises(NonFiniteError, match=r"in the derivative of sqrt made at .*test_checkpoint"):
        np.array(gradient(np.array([0.0, 1.0])))
