"""grad, vjp, jvp, linearize, Jacobians and gradients: arguments, results, errors."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import namedtuple

import numpy as np
import pytest

import pullback as pb
from pullback.graph.node import topological_order
from pullback.testing import check_grads

pytestmark = pytest.mark.usefixtures("reference_backend")

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((7, 3)), RNG.standard_normal(3)


def logistic_loss(w):
    return pb.sum(pb.log1p(pb.exp(pb.asarray(X) @ w)))


def logistic_gradient(w):
    return X.T @ (1 / (1 + np.exp(-X @ w)))


def logistic_hessian(w):
    s = 1 / (1 + np.exp(-X @ w))
    return (X.T * (s * (1 - s))) @ X


# -- grad and value_and_grad -------------------------------------------------------------------------------------------


def test_grad_takes_arrays_and_numbers():
    np.testing.assert_allclose(np.asarray(pb.grad(logistic_loss)(W)), logistic_gradient(W), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(pb.grad(logistic_loss)(pb.asarray(W))), logistic_gradient(W), rtol=1e-12)
    assert float(pb.grad(lambda x: x**3)(2.0)) == 12.0
    assert float(pb.grad(lambda x: x**3)(np.float64(2.0))) == 12.0


def test_value_and_grad():
    value, gradient = pb.value_and_grad(logistic_loss)(W)
    np.testing.assert_allclose(float(value), np.log1p(np.exp(X @ W)).sum())
    np.testing.assert_allclose(np.asarray(gradient), logistic_gradient(W), rtol=1e-12)


def test_argnums():
    def f(a, b, c):
        return a * b**2 * c

    assert float(pb.grad(f)(2.0, 3.0, 5.0)) == 45.0
    assert float(pb.grad(f, 1)(2.0, 3.0, 5.0)) == 60.0
    assert float(pb.grad(f, -1)(2.0, 3.0, 5.0)) == 18.0
    assert [float(g) for g in pb.grad(f, (2, 0))(2.0, 3.0, 5.0)] == [18.0, 45.0]
    assert len(pb.grad(f, (1,))(2.0, 3.0, 5.0)) == 1


def test_keywords_and_other_arguments_pass_through():
    def f(x, mode, scale=1.0, flag=None):
        assert mode == "a"
        assert flag is True
        return x * scale

    assert float(pb.grad(f)(2.0, "a", scale=4.0, flag=True)) == 4.0


def test_has_aux():
    def f(x):
        return (pb.sum(x**2), {"twice": 2 * x, "note": "kept"})

    gradient, aux = pb.grad(f, has_aux=True)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(np.asarray(gradient), [2.0, 4.0])
    np.testing.assert_array_equal(np.asarray(aux["twice"]), [2.0, 4.0])
    assert aux["note"] == "kept"
    (value, aux), gradient = pb.value_and_grad(f, has_aux=True)(np.array([1.0, 2.0]))
    assert float(value) == 5.0


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Layer:
    weight: object
    bias: object
    name: str = dataclasses.field(default="layer", metadata={"static": True})


def test_pytrees_keep_their_structure():
    tree = {"z": [1.0, (2.0, None)], "a": Point(3.0, Layer(4.0, 5.0, "first"))}

    def f(t):
        assert isinstance(t["a"].y, Layer)
        return t["z"][0] * t["a"].x + t["z"][1][0] * t["a"].y.weight + 7 * t["a"].y.bias

    gradient = pb.grad(f)(tree)
    assert list(gradient) == ["z", "a"]
    assert gradient["z"][1][1] is None
    assert isinstance(gradient["a"], Point)
    assert gradient["a"].y.name == "first"
    assert [float(v) for v in (gradient["z"][0], gradient["z"][1][0])] == [3.0, 4.0]
    assert [float(v) for v in (gradient["a"].x, gradient["a"].y.weight, gradient["a"].y.bias)] == [1.0, 2.0, 7.0]


def test_a_disconnected_argument_gets_zeros():
    gradient = pb.grad(lambda a, b: pb.sum(a), 1)(np.ones(2), np.ones((3, 2), np.float32))
    assert gradient.dtype is pb.float32
    np.testing.assert_array_equal(np.asarray(gradient), np.zeros((3, 2)))


def test_a_result_that_depends_on_nothing():
    assert float(pb.grad(lambda x: pb.asarray(3.0))(2.0)) == 0.0


def test_the_function_sees_values():
    def f(x):
        return 3 * x if float(x) > 0 else x * x

    assert float(pb.grad(f)(2.0)) == 3.0
    assert float(pb.grad(f)(-2.0)) == -4.0

    def newton(x):
        for _ in range(100):
            step = (x * x - 2) / (2 * x)
            x = x - step
            if abs(float(step)) < 1e-12:
                break
        return x

    assert abs(float(newton(pb.asarray(1.0, dtype=pb.float64))) - 2**0.5) < 1e-12
    assert abs(float(pb.grad(newton)(pb.asarray(1.0, dtype=pb.float64)))) < 1e-9


def test_changes_of_an_argument_reach_the_caller():
    def f(x):
        y = pb.sum(x * x)
        x += 1
        return y

    x = pb.asarray([1.0, 2.0])
    gradient = pb.grad(f)(x)
    np.testing.assert_array_equal(np.asarray(gradient), [2.0, 4.0])
    np.testing.assert_array_equal(np.asarray(x), [2.0, 3.0])


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_the_graph_is_freed_after_the_call(backend):
    pb.set_backend(backend)
    seen = []

    def f(x):
        y = pb.exp(x)
        seen.append(weakref.ref(y.node))
        return pb.sum(y * x)

    gradient = pb.grad(f)(np.ones(3))
    np.asarray(gradient)
    gc.collect()
    assert seen[0]() is None


def test_scopes_close_after_an_error():
    with pytest.raises(ZeroDivisionError):
        pb.grad(lambda x: x * (1 // 0))(1.0)
    y = pb.asarray([1.0]) * 2
    np.asarray(y)
    assert y.node.inputs == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.grad(pb.sum)(np.arange(3)), r"grad: argument 0 has dtype int64 and shape \(3,\)"),
        (lambda: pb.grad(lambda a, b: pb.sum(a), (0, 1))(np.ones(2), True), r"argument 1 has dtype bool"),
        (lambda: pb.grad(lambda t: pb.sum(t["a"][0]))({"a": [np.ones(2), np.arange(2)]}),
         r"argument 0\['a'\]\[1\] has dtype int64"),
        (lambda: pb.grad(lambda t, u: t, (1, 0))(1.0, {"k": 3}), r"argument 1\['k'\] has dtype int64"),
        (lambda: pb.grad(lambda x: x)("text"), r"argument 0 is a str"),
        (lambda: pb.grad(lambda x: x)(np.ones((2, 3))), r"must return a scalar, got shape \(2, 3\)"),
        (lambda: pb.grad(lambda x: (x, x))(1.0), r"one scalar tensor, got a tuple of 2"),
        (lambda: pb.grad(lambda x: None)(1.0), r"got None \(is a return statement missing"),
        (lambda: pb.grad(lambda x: "text")(1.0), r"returned a str"),
        (lambda: pb.grad(lambda x: x > 0)(1.0), r"floating scalar, got bool"),
        (lambda: pb.grad(lambda x: x, has_aux=True)(1.0), r"must return \(output, aux\)"),
        (lambda: pb.grad(lambda x: x, 1)(1.0), r"argnums=1 is out of range for 1 positional"),
        (lambda: pb.grad(lambda x: x, (0, -1))(1.0), r"names an argument twice"),
        (lambda: pb.grad(lambda x: x, ())(1.0), r"argnums is empty"),
        (lambda: pb.jvp(lambda x: x, 1.0, 1.0), r"primals must be a tuple"),
        (lambda: pb.jvp(lambda x: x, (1.0,), 1.0), r"tangents must be a tuple"),
        (lambda: pb.vjp(pb.sin, np.arange(3)), r"vjp: primals\[0\] has dtype int64"),
        (lambda: pb.jacrev(lambda x: x > 0)(np.ones(2)), r"result has dtype bool"),
    ],
)
def test_gradient_errors(call, message):
    with pytest.raises(pb.GradientError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.jvp(pb.sin, (np.ones(3),), (np.ones(2),)), pb.ShapeError, r"tangents\[0\] has shape \(2,\)"),
        (lambda: pb.jvp(pb.sin, (np.ones(3),), (np.ones(3, np.float32),)), pb.DTypeError, r"has dtype float32"),
        (lambda: pb.vjp(pb.sin, np.ones(3))[1](np.ones(2)), pb.ShapeError, r"cotangent has shape \(2,\)"),
        (lambda: pb.vjp(pb.sin, np.ones(3))[1]({"a": np.ones(3)}), pb.ShapeError, r"structure"),
        (lambda: pb.jvp(pb.sin, (np.ones(3),), ([np.ones(3)],)), pb.ShapeError, r"structure"),
    ],
)
def test_tangents_and_cotangents_must_fit(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- vjp, jvp, linearize -----------------------------------------------------------------------------------------------


def test_vjp_is_used_many_times_and_later():
    def forward(x):
        calls.append(1)
        return {"y": pb.tanh(x) * x, "n": pb.argmax(x)}

    calls = []
    out, pullback = pb.vjp(forward, W)
    np.asarray(out["y"])  # evaluates, so that nodes let go of their inputs
    slope = 1 - np.tanh(W) ** 2
    for cotangent in (np.ones(3), np.array([1.0, -2.0, 0.0])):
        (found,) = pullback({"y": cotangent, "n": 0})
        np.testing.assert_allclose(np.asarray(found), cotangent * (np.tanh(W) + W * slope), rtol=1e-12)
    assert len(calls) == 1


def test_vjp_with_several_primals_and_aux():
    _out, pullback, aux = pb.vjp(lambda a, b: (a * b, "aux"), 3.0, 4.0, has_aux=True)
    assert aux == "aux"
    assert [float(g) for g in pullback(2.0)] == [8.0, 6.0]


def test_pullback_is_differentiable_by_its_cotangent_and_by_the_point():
    def through(x, cotangent):
        _, pullback = pb.vjp(lambda y: pb.sin(y) * y, x)
        return pb.sum(pullback(cotangent)[0] ** 2)

    check_grads(through, (W, np.array([0.5, -1.0, 2.0])), order=2)
    _, pullback = pb.vjp(lambda y: pb.sin(y) * y, W)
    jacobian = pb.jacrev(lambda c: pullback(c)[0])(np.ones(3))
    np.testing.assert_allclose(np.asarray(jacobian), np.diag(np.sin(W) + W * np.cos(W)), rtol=1e-12)


def test_jvp():
    out, tangent = pb.jvp(lambda a, b: {"p": a * b, "i": pb.argmax(a)}, (W, W + 1), (np.ones(3), np.zeros(3)))
    np.testing.assert_allclose(np.asarray(tangent["p"]), W + 1)
    assert int(tangent["i"]) == 0
    out, tangent, aux = pb.jvp(lambda a: (a**2, 5), (3.0,), (1.0,), has_aux=True)
    assert (float(out), float(tangent), aux) == (9.0, 6.0, 5)


def test_linearize_agrees_with_jvp_and_is_linear():
    def f(a, b):
        return pb.tanh(a) * pb.sum(b)

    _out, push = pb.linearize(f, W, X)
    for _ in range(2):
        tangents = RNG.standard_normal(3), RNG.standard_normal((7, 3))
        expected = pb.jvp(f, (W, X), tangents)[1]
        np.testing.assert_allclose(np.asarray(push(*tangents)), np.asarray(expected), rtol=1e-12)
    doubled = push(*[2 * t for t in tangents])
    np.testing.assert_allclose(np.asarray(doubled), 2 * np.asarray(expected), rtol=1e-12)


# -- Jacobians ---------------------------------------------------------------------------------------------------------


def test_jacobian_structure():
    def f(a, b):
        return {"u": pb.sin(a) * b["z"], "v": [pb.sum(a) * b["z"]]}

    a, z = W, np.array(2.0)
    for jacobian in (pb.jacrev, pb.jacfwd):
        found = jacobian(f, (0, 1))(a, {"z": z})
        np.testing.assert_allclose(np.asarray(found["u"][0]), np.diag(2 * np.cos(a)), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found["u"][1]["z"]), np.sin(a), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found["v"][0][0]), np.full(3, 2.0))
        np.testing.assert_allclose(np.asarray(found["v"][0][1]["z"]), np.sum(a))
        single, aux = jacobian(lambda x: (x[:2] ** 2, "aux"), has_aux=True)(a)
        assert single.shape == (2, 3)
        assert aux == "aux"


def test_jacobian_of_matrices_has_the_outputs_axes_first():
    m = RNG.standard_normal((2, 3))
    for jacobian in (pb.jacrev, pb.jacfwd):
        found = np.asarray(jacobian(lambda x: x.T)(m))
        expected = np.zeros((3, 2, 2, 3))
        for i in range(3):
            for j in range(2):
                expected[i, j, j, i] = 1
        np.testing.assert_array_equal(found, expected)


def test_jacobian_of_what_does_not_depend_on_the_argument():
    for jacobian in (pb.jacrev, pb.jacfwd):
        found = jacobian(lambda x, y: y * 2, 0)(np.ones(2), np.ones(3))
        np.testing.assert_array_equal(np.asarray(found), np.zeros((3, 2)))


@pytest.mark.parametrize(
    "hessian",
    [pb.hessian, lambda f: pb.jacrev(pb.grad(f)), lambda f: pb.jacfwd(pb.jacfwd(f)), lambda f: pb.jacrev(pb.jacfwd(f))],
    ids=["hessian", "reverse over reverse", "forward over forward", "reverse over forward"],
)
def test_hessian_of_a_logistic_regression(hessian):
    np.testing.assert_allclose(np.asarray(hessian(logistic_loss)(W)), logistic_hessian(W), rtol=1e-10)


def test_hessian_is_one_compact_graph():
    def loss(w, x, y):
        z = x @ w
        return pb.mean(pb.log1p(pb.exp(z)) - y * z)

    args = np.zeros(5), np.ones((100, 5)), np.ones(100)
    def size(f):
        return len(topological_order(list(pb.graph_of(f)(*args).outputs)))

    # Batched over its 5 columns, not repeated for them.
    assert size(pb.hessian(loss)) < 60


def test_hvp():
    v = np.array([1.0, -2.0, 0.5])
    expected = logistic_hessian(W) @ v
    np.testing.assert_allclose(np.asarray(pb.hvp(logistic_loss, (W,), (v,))), expected, rtol=1e-10)
    np.testing.assert_allclose(np.asarray(pb.hvp(logistic_loss, W, v)), expected, rtol=1e-10)
    a, b = pb.hvp(lambda a, b: a**2 * b, (2.0, 3.0), (1.0, 10.0))
    assert (float(a), float(b)) == (2 * 3.0 + 2 * 2.0 * 10, 2 * 2.0)


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_gradients_between_tensors():
    x = pb.asarray([1.0, 2.0]).requires_grad_()
    h = x * x
    y = pb.sum(h * 3)
    by_x, by_h = pb.gradients(y, [x, h])
    np.testing.assert_array_equal(np.asarray(by_x), [6.0, 12.0])
    np.testing.assert_array_equal(np.asarray(by_h), [3.0, 3.0])
    assert x.grad is None
    again = pb.gradients(y, {"x": x})
    np.testing.assert_array_equal(np.asarray(again["x"]), [6.0, 12.0])


def test_gradients_with_a_cotangent_and_of_several_outputs():
    x = pb.asarray([1.0, 2.0]).requires_grad_()
    np.testing.assert_array_equal(np.asarray(pb.gradients(x**2, x, pb.asarray([1.0, 10.0]))), [2.0, 40.0])
    found = pb.gradients((x**2, pb.sum(x)), x, (pb.asarray([1.0, 10.0]), 1.0))
    np.testing.assert_array_equal(np.asarray(found), [3.0, 41.0])


def test_gradients_can_be_differentiated_again():
    x = pb.asarray(2.0).requires_grad_()
    first = pb.gradients(x**4, x)
    second = pb.gradients(first, x)
    third = pb.gradients(second, x)
    assert [float(g) for g in (first, second, third)] == [32.0, 48.0, 48.0]


def test_gradients_after_evaluation():
    x = pb.asarray([1.0, 2.0]).requires_grad_()
    h = pb.exp(x)
    y = pb.sum(h)
    np.asarray(h), float(y)
    np.testing.assert_allclose(np.asarray(pb.gradients(y, x)), np.exp([1.0, 2.0]), rtol=1e-6)


def test_gradients_of_a_tracked_input_without_a_path_are_zeros():
    x, z = pb.asarray([1.0]).requires_grad_(), pb.asarray([[2.0]]).requires_grad_()
    np.testing.assert_array_equal(np.asarray(pb.gradients(pb.sum(x), z)), [[0.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, c: pb.gradients(pb.sum(x * c), c), r"inputs .*is not tracked; call x.requires_grad_\(\)"),
        (lambda x, c: pb.gradients(pb.sum(x), {"k": c}), r"inputs\['k'\]"),
        (lambda x, c: pb.gradients(pb.sum(c), x), r"does not depend on a tracked tensor"),
        (lambda x, c: pb.gradients(x, x), r"output has shape \(2,\) and needs a cotangent"),
        (lambda x, c: pb.gradients(pb.argmax(x), x), r"output has dtype int64"),
        (lambda x, c: pb.gradients(pb.sum(x), 3.0), r"inputs is a float"),
    ],
)
def test_gradients_errors(call, message):
    x, c = pb.asarray([1.0, 2.0]).requires_grad_(), pb.asarray([3.0, 4.0])
    with pytest.raises(pb.GradientError, match=message):
        call(x, c)


def test_stop_gradient_of_a_tree():
    tree = {"a": pb.asarray([1.0]), "n": 3, "s": "text"}
    stopped = pb.stop_gradient(tree)
    assert stopped["n"] == 3
    assert stopped["s"] == "text"
    np.testing.assert_array_equal(np.asarray(stopped["a"]), [1.0])


# -- nesting -----------------------------------------------------------------------------------------------------------


def test_inner_and_outer_variables_are_not_confused():
    # d/dx (x * d/dy (x + y)) = 1; perturbation confusion would give 2.
    def forward(f):
        return lambda x: pb.jvp(f, (x,), (1.0,))[1]

    assert float(pb.grad(lambda x: x * pb.grad(lambda y: x + y)(1.0))(3.0)) == 1.0
    assert float(pb.grad(lambda x: x * forward(lambda y: x + y)(1.0))(3.0)) == 1.0
    assert float(forward(lambda x: x * pb.grad(lambda y: x + y)(1.0))(3.0)) == 1.0
    assert float(forward(lambda x: x * forward(lambda y: x + y)(1.0))(3.0)) == 1.0


def test_an_inner_transform_sees_an_outer_variable_through_a_closure():
    def f(x):
        return pb.grad(lambda y: x**2 * y**3)(x)  # 3 x^4

    assert float(pb.grad(f)(2.0)) == 12 * 2.0**3
    assert float(pb.grad(pb.grad(f))(2.0)) == 36 * 2.0**2


@pytest.mark.parametrize("outer", ["grad", "jvp", "vjp", "linearize", "jacfwd", "jacrev"])
@pytest.mark.parametrize("middle", ["grad", "jvp", "vjp", "linearize", "jacfwd", "jacrev"])
@pytest.mark.parametrize("inner", ["grad", "jvp", "vjp", "linearize", "jacfwd", "jacrev"])
def test_third_derivatives_in_every_order_of_transforms(outer, middle, inner):
    derivative = {
        "grad": pb.grad,
        "jvp": lambda f: lambda x: pb.jvp(f, (x,), (1.0,))[1],
        "vjp": lambda f: lambda x: pb.vjp(f, x)[1](1.0)[0],
        "linearize": lambda f: lambda x: pb.linearize(f, x)[1](1.0),
        "jacfwd": pb.jacfwd,
        "jacrev": pb.jacrev,
    }
    f = derivative[outer](derivative[middle](derivative[inner](lambda x: pb.sin(x) * x**2)))
    x = 0.7
    expected = 6 * np.cos(x) - 6 * x * np.sin(x) - x * x * np.cos(x)
    assert abs(float(f(np.float64(x))) - expected) < 1e-12


def test_evaluation_inside_a_transform_keeps_the_outer_gradient():
    def inner(y, x):
        z = x * y
        float(z)  # evaluates what the outer transform still needs
        return z**2

    def outer(x):
        gradient = pb.grad(inner)(x, x)
        float(gradient)
        return gradient  # 2 x^3

    assert float(pb.grad(outer)(3.0)) == 54.0


@pytest.mark.parametrize(
    "function", [lambda x: 3.0, lambda x: float(x) ** 2, lambda x: x.item(), lambda x: np.asarray(x)]
)
def test_a_result_that_left_the_graph_is_an_error(function):
    with pytest.raises(pb.GradientError, match="leave the graph"):
        pb.grad(function)(3.0)
