"""custom_vjp and custom_jvp: their rules under every transform, their errors, and straight-through estimators."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, GradientError, ShapeError
from pullback.testing import check_grads
from pullback.transforms import pytree

pytestmark = pytest.mark.usefixtures("reference_backend")

X, Y = np.linspace(-1.3, 1.2, 5), np.linspace(0.4, 2.0, 5)


def plain(x, y):
    return pb.sin(x) * y, 2 * x


def with_vjp():
    """``plain`` with its own reverse mode, and the calls of its parts."""
    calls = []
    f = pb.custom_vjp(plain)

    def fwd(x, y):
        calls.append("fwd")
        return plain(x, y), {"x": x, "y": y, "name": "residuals"}

    def bwd(residuals, cotangent):
        calls.append("bwd")
        x, y = residuals["x"], residuals["y"]
        return pb.cos(x) * y * cotangent[0] + 2 * cotangent[1], pb.sin(x) * cotangent[0]

    f.defvjp(fwd, bwd)
    return f, calls


def with_jvp():
    f = pb.custom_jvp(plain)

    @f.defjvp
    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return plain(x, y), (pb.cos(x) * y * dx + pb.sin(x) * dy, 2 * dx)

    return f


def loss_of(f):
    def loss(x, y):
        a, b = f(x, y)
        return pb.sum(a * b)

    return loss


def batched_loss(f):
    loss = pb.vmap(loss_of(f), in_axes=(0, None))
    return lambda x, y: pb.sum(loss(pb.stack([x, x + 1, 2 * x]), y))


TRANSFORMS = {
    "grad": lambda f: pb.grad(f, (0, 1)),
    "jit grad": lambda f: pb.jit(pb.grad(f, (0, 1))),
    "grad jit": lambda f: pb.grad(pb.jit(f), (0, 1)),
    "jacfwd": lambda f: pb.jacfwd(f, (0, 1)),
    "reverse over reverse": lambda f: pb.jacrev(pb.jacrev(f, (0, 1)), (0, 1)),
    "forward over reverse": lambda f: pb.jacfwd(pb.jacrev(f, (0, 1)), (0, 1)),
    "reverse over forward": lambda f: pb.jacrev(pb.jacfwd(f, (0, 1)), (0, 1)),
    "forward over forward": lambda f: pb.jacfwd(pb.jacfwd(f, (0, 1)), (0, 1)),
    "third order": lambda f: pb.jacfwd(pb.jacrev(pb.jacrev(f))),
    "per example": lambda f: lambda x, y: pb.vmap(pb.grad(f, (0, 1)), (0, None))(pb.stack([x, x + 1]), y),
    "jit vmap grad jit": lambda f: pb.jit(
        lambda x, y: pb.vmap(pb.grad(pb.jit(f), (0, 1)), (0, 0))(pb.stack([x, x + 1]), pb.stack([y, y]))
    ),
    "linearize": lambda f: lambda x, y: pb.linearize(f, x, y)[1](x, y),
    "hvp": lambda f: lambda x, y: pb.hvp(f, (x, y), (y, x)),
}


@pytest.mark.parametrize("make", [lambda: with_vjp()[0], with_jvp], ids=["vjp", "jvp"])
@pytest.mark.parametrize("wrap", [loss_of, batched_loss], ids=["plain", "batched"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_see_the_rule(name, wrap, make):
    transform = TRANSFORMS[name]
    got, expected = transform(wrap(make()))(X, Y), transform(wrap(plain))(X, Y)
    for a, b in zip(pytree.leaves(got), pytree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-12, atol=1e-12)


def test_vmap_of_vmap_with_shared_arguments():
    for make in (lambda: with_vjp()[0], with_jvp):
        results = []
        for f in (make(), plain):
            both = pb.vmap(pb.vmap(loss_of(f), in_axes=(0, None)), in_axes=(None, 0))
            gradient = pb.grad(lambda x, y, g=both: pb.sum(g(x, y)), (0, 1))
            results.append(gradient(np.stack([X, X + 1]), np.stack([Y] * 3)))
        for a, b in zip(*results):
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-12)


def test_check_grads():
    check_grads(loss_of(with_vjp()[0]), (X, Y), order=3)
    check_grads(loss_of(with_jvp()), (X, Y), order=3)


def test_the_rule_is_used_and_not_the_function():
    f = pb.custom_vjp(lambda x: x**2)
    f.defvjp(lambda x: (x**2, None), lambda _, cotangent: (10 * cotangent,))
    assert float(pb.grad(f)(3.0)) == 10
    g = pb.custom_jvp(lambda x: x**2)
    g.defjvp(lambda primals, tangents: (primals[0] ** 2, 20 * tangents[0]))
    assert float(pb.grad(g)(3.0)) == 20
    assert float(pb.jvp(g, (3.0,), (1.0,))[1]) == 20


def test_the_forward_function_runs_only_for_a_derivative():
    f, calls = with_vjp()
    f(X, Y)
    f(pb.asarray(X), pb.asarray(Y))
    assert calls == []
    pb.grad(loss_of(f))(X, Y)
    assert calls == ["fwd", "bwd"]  # once, with the cotangents of both outputs


def test_straight_through_rounding():
    @pb.custom_vjp
    def round_through(x):
        """Round forward, pass backward."""
        return pb.round(x)

    round_through.defvjp(lambda x: (pb.round(x), None), lambda _, cotangent: (cotangent,))
    assert round_through.__name__ == "round_through"
    assert round_through.__doc__ == "Round forward, pass backward."
    x = pb.asarray([0.4, 1.6, -2.3]).requires_grad_()
    pb.sum(round_through(x) * pb.asarray([1.0, 2.0, 3.0])).backward()
    np.testing.assert_array_equal(np.array(x.grad), [1, 2, 3])
    np.testing.assert_array_equal(np.array(round_through(x)), [0, 2, -2])


def test_a_gradient_may_be_clipped():
    clip = pb.custom_vjp(lambda x, limit: x, nondiff_argnums=1)
    clip.defvjp(lambda x, limit: (x, None), lambda limit, _, cotangent: (pb.clip(cotangent, -limit, limit),))
    np.testing.assert_array_equal(np.array(pb.grad(lambda x: pb.sum(clip(x, 0.5) * x))(X)), np.clip(X, -0.5, 0.5) + X)
    np.testing.assert_array_equal(
        np.array(pb.vmap(pb.grad(lambda x: clip(x, 0.5) * x))(X)), np.clip(X, -0.5, 0.5) + X
    )
    with pytest.raises(GradientError, match=r"forward mode.*not linear in the cotangent"):
        pb.jvp(lambda x: clip(x, 0.5), (X,), (X,))
    sign = pb.custom_vjp(lambda x: x)
    sign.defvjp(lambda x: (x, None), lambda _, cotangent: (pb.sign(cotangent),))
    with pytest.raises(GradientError, match="not linear in the cotangent"):
        pb.jacfwd(sign)(X)


def test_pytrees_integers_and_modules():
    layer = nn.Linear(3, 2)
    f = pb.custom_vjp(lambda model, batch: model(batch["x"])[batch["row"]])

    def bwd(residuals, cotangent):
        model, batch = residuals
        grads = pytree.map(lambda w: pb.full(w.shape, 7.0), model)
        return grads, {"x": pb.ones(batch["x"].shape) * cotangent[0], "row": None}

    f.defvjp(lambda model, batch: (model(batch["x"])[batch["row"]], (model, batch)), bwd)
    batch = {"x": pb.ones((4, 3)), "row": pb.asarray(2)}
    grads = pb.grad(lambda model: pb.sum(f(model, batch)))(layer)
    assert all(np.all(np.array(g) == 7) for g in pytree.leaves(grads))
    by_x = pb.grad(lambda x: pb.sum(f(layer.requires_grad_(False), {"x": x, "row": pb.asarray(2)})))(batch["x"])
    assert np.all(np.array(by_x) == 1)


def test_none_is_zero():
    f = pb.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, y), lambda y, cotangent: (y * cotangent, None))
    by_x, by_y = pb.grad(f, (0, 1))(3.0, 4.0)
    assert (float(by_x), float(by_y)) == (4, 0)


def test_keywords_and_methods():
    f = pb.custom_jvp(lambda x, scale=2.0: x * scale)
    f.defjvp(lambda primals, tangents: (primals[0] * primals[1], 5 * tangents[0]))
    assert float(pb.grad(lambda x: f(x=x))(1.0)) == 5
    assert float(pb.grad(lambda x: f(x, scale=3.0))(1.0)) == 5

    class Model:
        @pb.custom_jvp
        def __call__(self, x):
            return x * 2

    Model.__call__.defjvp(lambda primals, tangents: (primals[1] * 2, 3 * tangents[1]))
    assert float(pb.grad(lambda x: Model().__call__(x))(1.0)) == 3


def test_defjvps():
    f = pb.custom_jvp(lambda x, y: pb.exp(x) * y)
    f.defjvps(lambda t, out, x, y: t * out, lambda t, out, x, y: t * pb.exp(x))
    check_grads(f, (np.array(0.3), np.array(1.2)))
    g = pb.custom_jvp(lambda x, y: x * y)
    g.defjvps(lambda t, out, x, y: 100 * t, None)
    assert [float(v) for v in pb.grad(g, (0, 1))(2.0, 3.0)] == [100, 0]


def test_an_integer_output_passes():
    f = pb.custom_vjp(lambda x: (x * 2, pb.argmax(x)))
    f.defvjp(lambda x: ((x * 2, pb.argmax(x)), None), lambda _, cotangent: (3 * cotangent[0],))

    def loss(x):
        y, k = f(x)
        return y[k]

    np.testing.assert_array_equal(np.array(pb.grad(loss)(X)), [0, 0, 0, 0, 3])


BACKWARDS = [
    (lambda r, ct: ct, GradientError, "must return a tuple with one cotangent for each of its 2 arguments"),
    (lambda r, ct: (ct,), GradientError, "returned 1 cotangents for 2 arguments"),
    (lambda r, ct: (ct, ct), ShapeError, r"cotangent of shape \(5,\) for argument 1\['w'\], which has shape \(2,\)"),
    (lambda r, ct: (ct, ct[:2]), GradientError, "another structure for argument 1"),
    (lambda r, ct: (ct.astype(pb.float32), None), DTypeError, "dtype float32 for argument 0, which has dtype float64"),
    (lambda r, ct: ("no", None), GradientError, "a str as the cotangent of argument 0"),
]


@pytest.mark.parametrize(("bwd", "error", "match"), BACKWARDS)
def test_wrong_cotangents(bwd, error, match):
    def function(x, tree):
        return x * pb.sum(tree["w"])

    f = pb.custom_vjp(function)

    def changed(r, ct):
        out = bwd(r, ct)
        return (out[0], {"w": out[1]}) if error is ShapeError else out

    f.defvjp(lambda x, tree: (function(x, tree), None), changed)
    with pytest.raises(error, match=match) as caught:
        pb.grad(lambda x: pb.sum(f(x, {"w": pb.asarray(np.ones(2))})))(X)
    assert "custom_vjp: the backward function of function (called at " in str(caught.value)
    assert "test_custom.py" in str(caught.value)


RULES = [
    (lambda p, t: t[0], GradientError, r"must return \(output, tangent of the output\)"),
    (lambda p, t: (p[0][:2], t[0]), GradientError, r"shapes \[\(2,\)\], the function one of \* and \[\(5,\)\]"),
    (lambda p, t: ((p[0], p[0]), t[0]), GradientError, r"returned an output of structure \(\*, \*\)"),
    (lambda p, t: (p[0], t[0][:2]), ShapeError, r"tangent of shape \(2,\) for the output, which has shape \(5,\)"),
    (lambda p, t: (p[0], t[0].astype(pb.float32)), DTypeError, "dtype float32 for the output"),
    (lambda p, t: (p[0], (t[0], t[0])), GradientError, "a tuple of 2 as the tangent of the output"),
    (lambda p, t: (p[0], t[0] ** 2), GradientError, "not linear in the tangents"),
]


@pytest.mark.parametrize(("rule", "error", "match"), RULES)
def test_wrong_tangents(rule, error, match):
    f = pb.custom_jvp(lambda x: x * 1.0)
    f.defjvp(rule)
    with pytest.raises(error, match=match):
        pb.grad(lambda x: pb.sum(f(x)))(X)


def test_errors_of_calls():
    f = pb.custom_vjp(plain)
    with pytest.raises(GradientError, match=r"plain has no derivative yet; call plain.defvjp"):
        f(X, Y)
    f.defvjp(lambda x, y: plain(x, y)[0], lambda residuals, cotangent: (cotangent, None))
    with pytest.raises(GradientError, match=r"must return \(output, residuals\), got a Tensor"):
        pb.grad(loss_of(f))(X, Y)
    with pytest.raises(GradientError, match="expected a function"):
        pb.custom_vjp(3)
    with pytest.raises(GradientError, match="the rule of plain must be a function, got None"):
        pb.custom_vjp(plain).defvjp(plain, None)
    g = pb.custom_jvp(lambda x, *, key: x)
    g.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(GradientError, match=r"keyword-only arguments \['key'\]"):
        g(X, key=1)


def test_a_tensor_in_the_closure_is_refused():
    w = pb.asarray([1.0, 2.0]).requires_grad_()
    f = pb.custom_vjp(lambda x: x * w)
    f.defvjp(lambda x: (x * w, None), lambda _, cotangent: (cotangent,))
    with pytest.raises(GradientError, match=r"reads a tensor of shape \(2,\) .* not among its arguments"):
        f(pb.ones(2).requires_grad_())
    g = pb.custom_jvp(lambda x: x * pb.stop_gradient(w))
    g.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    g(pb.ones(2).requires_grad_())


def test_programs_are_shared_between_new_functions():
    """A rule is no part of a program's structure."""
    from pullback.graph.structure import structural_key

    def key(scale):
        f = pb.custom_vjp(lambda x: pb.exp(x))
        f.defvjp(lambda x: (pb.exp(x), None), lambda _, cotangent: (scale * cotangent,))
        x = pb.asarray([1.0]).requires_grad_()
        return structural_key([f(x).node])[0]

    assert key(1.0) == key(2.0)


NOT_LINEAR = [
    lambda x, t: t + 1,
    lambda x, t: x - t,
    lambda x, t: 3 * pb.ones_like(t),
    lambda x, t: pb.where(x > 0, t, 1.0),
    lambda x, t: pb.concatenate([t[:2], x[2:]]),
    lambda x, t: (t + 1) * x,
    lambda x, t: pb.no_grad()(lambda: 2 * t)(),
    lambda x, t: t * pb.no_grad()(lambda: 2 * t)(),
]
LINEAR = [
    lambda x, t: t + pb.zeros_like(x) + np.zeros(5) + 0 * x,
    lambda x, t: pb.where(x > 0, t, 0.0) - 2 * t,
    lambda x, t: pb.concatenate([t[:2], pb.zeros(3, dtype=t.dtype)]),
    lambda x, t: pb.zeros_like(x),
]


@pytest.mark.parametrize("jitted", [False, True])
def test_a_rule_that_adds_something_is_not_linear(jitted):
    """Transposed, what is added would be lost without a word."""

    def transposed(rule):
        f = pb.custom_jvp(lambda x: pb.sin(x))
        f.defjvp(lambda primals, tangents: (pb.sin(primals[0]), rule(primals[0], tangents[0])))
        g = pb.custom_vjp(lambda x: pb.sin(x))
        g.defvjp(lambda x: (pb.sin(x), x), lambda x, cotangent: (rule(x, cotangent),))
        wrap = pb.jit if jitted else lambda function: function
        return wrap(pb.jacrev(f)), wrap(pb.jacfwd(g)), pb.jacfwd(f)

    for rule in NOT_LINEAR:
        for derivative in transposed(rule)[:2]:
            with pytest.raises(GradientError, match=r"not linear in the (co)?tangent"):
                derivative(X)
    for rule in LINEAR:
        by_reverse, by_forward, exact = (np.array(derivative(X)) for derivative in transposed(rule))
        np.testing.assert_array_equal(by_reverse, exact)
        np.testing.assert_array_equal(by_forward, exact.T)


def test_a_module_as_an_argument_in_backward():
    """Its parameters are followed from outside, though no functional transform is running."""
    layer = nn.Linear(3, 2)
    f = pb.custom_vjp(lambda model, x: model(x))
    f.defvjp(lambda model, x: (model(x), (model, x)), lambda residuals, cotangent: pb.vjp(
        lambda model, x: 5 * model(x), *residuals)[1](cotangent))
    x = pb.ones((4, 3)).requires_grad_()
    pb.sum(f(layer, x)).backward()
    np.testing.assert_array_equal(np.array(layer.bias.grad), [20, 20])
    np.testing.assert_array_equal(np.array(layer.weight.grad), np.full((2, 3), 20))
    np.testing.assert_allclose(np.array(x.grad)[0], 5 * np.array(layer.weight).sum(axis=0), rtol=1e-6)


def test_an_argument_rebound_inside():
    def counted(x, count):
        count += 1
        return x * 2

    f = pb.custom_vjp(counted)
    f.defvjp(lambda x, count: (counted(x, count), None), lambda _, cotangent: (2 * cotangent, None))
    count = pb.asarray(0)
    f(pb.asarray(1.0), count)
    pb.grad(f)(1.0, count)
    f(pb.asarray(1.0).requires_grad_(), count)
    pb.jit(f)(pb.asarray(1.0), count)
    assert int(count) == 4


@pb.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, cotangent: (2 * cotangent,))


def test_pickled_by_name():
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.deepcopy(doubled) is doubled
    other = pb.custom_jvp(abs)  # without a name of its own
    other.defjvps(abs)
    again = copy.copy(other)
    assert again is not other
    assert again.rule is other.rule
    assert copy.deepcopy(other)(pb.asarray(-1.0)) == 1
