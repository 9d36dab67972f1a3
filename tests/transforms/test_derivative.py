"""The derivative engine: size, depth, what it follows, and the graphs that it writes."""

from __future__ import annotations

import time

import numpy as np
import pytest

import pullback as pb
from pullback import Tensor, dtypes
from pullback.graph.graph import validate
from pullback.graph.node import Node, topological_order
from pullback.graph.state import describe_derivative, describe_site
from pullback.graph.tracking import Scope
from pullback.ops import elementwise as e
from pullback.ops import leaf, reduction
from pullback.ops.reduction import sum_to
from pullback.runtime.reference import reference_values
from pullback.testing import check_grads
from pullback.transforms.derivative import gradients_of, ones_of, tangents_of, transpose_linear

pytestmark = pytest.mark.usefixtures("reference_backend")


def variable(scope: Scope, values) -> Node:
    node = leaf.data(np.asarray(values, np.float64))
    node.scope = scope
    return node


def value(node: Node) -> np.ndarray:
    return reference_values([node])[0]


def operations(*nodes: Node) -> list[str]:
    return [node.op.name for node in topological_order(list(nodes)) if node.inputs]


# -- size and depth ----------------------------------------------------------------------------------------------------


def test_a_long_chain_takes_linear_time_and_no_recursion():
    def seconds(length: int) -> tuple[float, Node]:
        with Scope() as scope:
            x = y = variable(scope, [0.1, 0.2])
            for _ in range(length):
                y = e.sin(y)
            start = time.perf_counter()
            (gradient,) = gradients_of([y], [ones_of(y)], [x], scope)
            (_tangent,) = tangents_of([y], [x], [ones_of(x)], scope)
            return time.perf_counter() - start, gradient

    short, _ = min((seconds(2_000) for _ in range(3)), key=lambda pair: pair[0])
    long, gradient = min((seconds(20_000) for _ in range(2)), key=lambda pair: pair[0])
    assert long < 50 * short  # a quadratic walk takes a hundred times as long
    assert gradient is not None
    del gradient


def test_the_gradient_of_a_long_chain_is_right():
    with Scope() as scope:
        x = y = variable(scope, [0.1, -0.2, 1.5])
        for _ in range(5_000):
            y = e.multiply(y, 1.0001)
        (gradient,) = gradients_of([y], [ones_of(y)], [x], scope)
    np.testing.assert_allclose(value(gradient), 1.0001**5000)


def test_a_thousand_diamonds_take_linear_time():
    with Scope() as scope:
        x = y = variable(scope, [0.5])
        for _ in range(1_000):
            y = e.add(y, e.multiply(0.001, y))
        before = time.perf_counter()
        (gradient,) = gradients_of([y], [ones_of(y)], [x], scope)
        assert time.perf_counter() - before < 5
        (tangent,) = tangents_of([y], [x], [ones_of(x)], scope)
    np.testing.assert_allclose(value(gradient), 1.001**1000)
    np.testing.assert_allclose(value(tangent), 1.001**1000)


def test_only_nodes_between_input_and_output_are_followed():
    """A gradient inside a loop must not walk over what came before it."""
    with Scope() as before:
        y = variable(before, [0.5])
        for _ in range(3_000):
            y = e.sin(y)
        with Scope() as inner:
            x = e.alias(y)
            x.scope = inner
            z = e.square(x)
            start = time.perf_counter()
            for _ in range(300):
                gradients_of([z], [ones_of(z)], [x], inner)
            # Walking over the outer chain each time would take 300 * 3,000 visits.
            assert time.perf_counter() - start < 0.5


# -- the graphs that are written ---------------------------------------------------------------------------------------


def test_known_ones_cost_no_multiplication():
    with Scope() as scope:
        x = variable(scope, [1.0, 2.0])
        total = reduction.reduce_sum(e.exp(x), (0,))
        (gradient,) = gradients_of([total], [ones_of(total)], [x], scope)
    assert operations(gradient) == ["exp"]


def test_known_minus_one_is_a_negation():
    with Scope() as scope:
        x = variable(scope, [1.0, 2.0])
        total = reduction.reduce_sum(e.negative(e.exp(x)), (0,))
        (gradient,) = gradients_of([total], [ones_of(total)], [x], scope)
    assert sorted(operations(gradient)) == ["exp", "negative"]


def test_numbers_are_plain_factors():
    with Scope() as scope:
        x = variable(scope, [1.0, 2.0])
        total = reduction.reduce_sum(e.multiply(e.divide(e.exp(e.multiply(x, 3.5)), 7.0), 2.0), (0,))
        (gradient,) = gradients_of([total], [ones_of(total)], [x], scope)
    np.testing.assert_allclose(value(gradient), np.exp([3.5, 7.0]), rtol=1e-12)
    # 2 / 7 is worked out before; an infinite or NaN partial could not meet a zero here.
    assert sorted(operations(gradient)) == ["exp", "multiply", "multiply", "multiply"]


def test_zero_cotangents_end_the_way():
    with Scope() as scope:
        x = variable(scope, [1.0, 2.0])
        y = e.exp(x)
        assert gradients_of([y], [leaf.full((2,), 0, y.dtype)], [x], scope) == [None]


def test_the_written_graphs_are_valid():
    def loss(x, w):
        return pb.sum(pb.tanh(pb.sum(x[:, None] * w, axis=0)) ** 2)

    args = np.ones(3), np.ones((3, 4))
    for transform in (pb.grad, pb.jacfwd, pb.hessian, lambda f: pb.grad(lambda *a: pb.sum(pb.grad(f)(*a) ** 2))):
        graph = pb.graph_of(transform(loss))(*args)
        graph.validate()


def test_new_nodes_carry_the_line_of_what_they_differentiate():
    with Scope() as scope:
        x = variable(scope, [1.0])
        y = e.tanh(x)
        (gradient,) = gradients_of([y], [ones_of(y)], [x], scope)
    assert gradient.site == (*y.site, "tanh")
    assert describe_site(gradient.site) == describe_site(y.site)
    assert describe_derivative(gradient.site) == "in the derivative of tanh"


def test_shapes_and_dtypes_of_gradients():
    for dtype in (pb.float16, pb.bfloat16, pb.float32, pb.float64):
        x, y = pb.ones((3, 1), dtype=dtype), pb.ones((4,), dtype=dtype)
        for gradient, argument in zip(pb.grad(lambda a, b: pb.sum(a * b), (0, 1))(x, y), (x, y)):
            assert gradient.shape == argument.shape
            assert gradient.dtype is dtype


def test_mixed_dtypes_return_to_each_operand():
    a, b = pb.ones((2,), dtype=pb.float32), pb.ones((2,), dtype=pb.float64)
    left, right = pb.grad(lambda x, y: pb.sum(x * y), (0, 1))(a, b)
    assert (left.dtype, right.dtype) == (pb.float32, pb.float64)


def test_sum_to():
    node = leaf.data(np.arange(24.0).reshape(2, 3, 4))
    for shape in ((2, 3, 4), (3, 4), (3, 1), (1, 1, 4), (1,), (), (2, 1, 1)):
        expected = np.arange(24.0).reshape(2, 3, 4)
        expected = expected.sum(tuple(range(3 - len(shape))))
        expected = expected.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)
        found = sum_to(node, shape)
        assert found.shape == shape
        np.testing.assert_array_equal(value(found), expected)


def test_empty_arrays():
    gradient = pb.grad(lambda x: pb.sum(pb.exp(x)))(np.zeros((0, 3)))
    assert gradient.shape == (0, 3)


# -- what is followed --------------------------------------------------------------------------------------------------


def test_integers_end_the_way_silently():
    gradient = pb.grad(lambda x: pb.sum(x * pb.argmax(x).astype(pb.float64)))(np.array([1.0, 3.0]))
    np.testing.assert_array_equal(np.asarray(gradient), [1.0, 1.0])


def test_an_op_without_a_derivative_is_named():
    def loss(x):
        return pb.sum(Tensor(e.bitcast(x.node, dtypes.bfloat16)))  # a line of this file

    for transform in (pb.grad(loss), lambda x: pb.jvp(loss, (x,), (x,))):
        with pytest.raises(pb.GradientError, match=r"bitcast has no derivative.*test_derivative.py"):
            transform(pb.ones(2, dtype=pb.float16))


def test_an_op_without_a_derivative_off_the_way_is_no_error():
    def loss(x, y):
        return pb.sum(x * Tensor(e.bitcast(y.node, dtypes.bfloat16)).astype(pb.float16))

    x = pb.ones(2, dtype=pb.float16)
    assert pb.grad(loss)(x, x).shape == (2,)


def test_stop_gradient_and_no_grad():
    x = np.array([2.0, 3.0])
    np.testing.assert_array_equal(np.asarray(pb.grad(lambda x: pb.sum(x * pb.stop_gradient(x)))(x)), x)

    def loss(x):
        with pb.no_grad():
            y = x * x
        return pb.sum(x * y)

    np.testing.assert_array_equal(np.asarray(pb.grad(loss)(x)), x**2)
    np.testing.assert_array_equal(np.asarray(pb.jvp(loss, (x,), (np.ones(2),))[1]), np.sum(x**2))


def test_a_transform_under_no_grad_differentiates_and_its_result_is_constant():
    def loss(x):
        with pb.no_grad():
            value, gradient = pb.value_and_grad(lambda y: pb.sum(y**3))(x)
        return value + pb.sum(gradient * x)

    x = np.array([2.0, 3.0])
    np.testing.assert_array_equal(np.asarray(pb.grad(loss)(x)), 3 * x**2)


# -- linear functions --------------------------------------------------------------------------------------------------


def test_transpose_linear():
    a, b = leaf.data(np.arange(6.0).reshape(2, 3)), leaf.data(np.array([1.0, 2.0]))

    def function(xs):
        x, y = xs
        return [e.add(reduction.reduce_sum(e.multiply(a, x), (1,)), e.multiply(b, y)), e.negative(y), None]

    cotangent = leaf.data(np.array([10.0, 100.0]))
    like = [leaf.data(np.zeros(3)), leaf.data(np.zeros(2))]
    second = leaf.data(np.array([0.5, 0.25]))
    x, y = transpose_linear(function, like, [cotangent, second, cotangent])
    np.testing.assert_array_equal(value(x), value(cotangent) @ value(a))
    np.testing.assert_array_equal(value(y), value(cotangent) * value(b) - value(second))
    validate([x, y], placeholders=[])


def test_transpose_linear_of_an_unused_argument():
    node = leaf.data(np.zeros(3))
    x, y = transpose_linear(lambda xs: [e.negative(xs[0])], [node, node], [node])
    assert x is not None
    assert y is None


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("softmax, inner axis", lambda x: pb.exp(x) / pb.sum(pb.exp(x), axis=1, keepdims=True), [(2, 3, 2)]),
        ("standardise", lambda x: (x - pb.mean(x, axis=0)) / pb.sqrt(pb.var(x, axis=0) + 0.1), [(4, 3)]),
        ("matmul, tanh, matmul", lambda x, w, v: pb.tanh(x @ w) @ v, [(3, 4), (4, 5), (5, 2)]),
        ("batched matmul broadcast", lambda a, b: a @ b, [(2, 1, 3, 4), (5, 4, 2)]),
        ("gather repeated", lambda x: x[pb.asarray([0, 2, 0])] ** 2, [(3, 2)]),
        ("at add", lambda x, u: x.at[pb.asarray([0, 2, 0])].add(u) ** 2, [(3, 2), (3, 2)]),
        ("set item", lambda x, u: x.at[1:, ::2].set(u) ** 2, [(3, 4), (2, 2)]),
        ("sort", lambda x: pb.sort(x, axis=0) * pb.asarray([[1.0], [2.0], [3.0]]), [(3, 2)]),
        ("logsumexp", lambda x: pb.logsumexp(x, axis=0), [(3, 2)]),
        ("hypot", lambda x, y: pb.hypot(x, y), [(3,), (3,)]),
        ("logaddexp", lambda x, y: pb.logaddexp(x, y), [(3,), (3,)]),
        ("prod", lambda x: pb.prod(x, axis=0), [(3, 2)]),
        ("std", lambda x: pb.std(x, axis=1), [(2, 4)]),
        ("concat, stack, flip, roll",
         lambda x, y: pb.flip(pb.roll(pb.stack([pb.concat([x, y]), pb.concat([y, x])]), 2, axis=1), axis=1) ** 2,
         [(3,), (2,)]),
        ("pad, tril, repeat", lambda x: pb.repeat(pb.tril(pb.pad(x, 1)), 2, axis=1) ** 2, [(2, 3)]),
        ("pytree in and out", lambda d: {"a": d["x"] * d["y"], "b": [pb.sin(d["x"])]}, [{"x": (2,), "y": (2,)}]),
    ],
)
def test_composites_to_second_order(name, function, shapes):
    rng = np.random.default_rng(len(name))

    def make(shape):
        return {k: make(v) for k, v in shape.items()} if isinstance(shape, dict) else rng.uniform(0.3, 2, shape)

    check_grads(function, [make(shape) for shape in shapes], order=2)


def test_third_and_fourth_order():
    check_grads(lambda x: pb.sum(pb.tanh(x) ** 3), [np.array([0.3, -0.4])], order=3)
    def fourth(x):
        return x**5

    for _ in range(4):
        fourth = pb.grad(fourth)
    assert float(fourth(2.0)) == 5 * 4 * 3 * 2 * 2.0


def test_check_grads_finds_a_wrong_derivative():
    with pytest.raises(pb.GradientError, match=r"fwd: d output\[[01]\] / d args\[0\]\[[01]\] is"):
        check_grads(lambda x: x * pb.stop_gradient(x), [np.array([1.0, 2.0])], order=1, modes=("fwd",))
    with pytest.raises(pb.GradientError, match=r"rev: d output\[[01]\] / d args\[0\]\[[01]\] is"):
        check_grads(lambda x: x * pb.stop_gradient(x), [np.array([1.0, 2.0])], order=1, modes=("rev",))
    with pytest.raises(pb.GradientError, match="fwd then fwd"):
        check_grads(_wrong_second_order, [np.array([1.0])])


def _wrong_second_order(x):
    """x**2 whose first derivative is right and whose second is 0."""
    constant = pb.stop_gradient(x)
    return constant**2 + 2 * constant * (x - constant)


# -- strong zeros ------------------------------------------------------------------------------------------------------


def _power(x, exponent):
    """x ** exponent where x > 0, else 0."""
    return np.where(x > 0, np.where(x > 0, x, 1.0) ** exponent, 0)


SINGULAR = {
    # name: function, points, gradient, diagonal of the Hessian
    "where sqrt": (
        lambda x: pb.where(x > 0, pb.sqrt(x), x), [0.0, -1.0, 4.0],
        lambda x: np.where(x > 0, 0.5 * _power(x, -0.5), 1), lambda x: -0.25 * _power(x, -1.5),
    ),
    "where log": (
        lambda x: pb.where(x > 0, pb.log(x), x * x), [0.0, -1.0, 4.0],
        lambda x: np.where(x > 0, _power(x, -1.0), 2 * x), lambda x: np.where(x > 0, -_power(x, -2.0), 2),
    ),
    "where divide": (
        lambda x: pb.where(x == 0, x * x, 1 / x), [0.0, 2.0, 4.0],
        lambda x: -_power(x, -2.0), lambda x: np.where(x > 0, 2 * _power(x, -3.0), 2),
    ),
    "where power": (
        lambda x: pb.where(x > 0, x**0.5, x**2), [0.0, -1.0, 4.0],
        lambda x: np.where(x > 0, 0.5 * _power(x, -0.5), 2 * x), lambda x: np.where(x > 0, -0.25 * _power(x, -1.5), 2),
    ),
    "where acos": (
        lambda x: pb.where(pb.abs(x) < 1, pb.acos(x), x), [1.0, -1.0, 2.0], lambda x: np.ones(3), lambda x: np.zeros(3),
    ),
    "where twice": (
        lambda x: pb.where(x > 0, pb.log(pb.where(x > 1, pb.sqrt(x - 1), 1.0)), 0.0), [0.0, 1.0, 2.0],
        lambda x: 0.5 * _power(x - 1, -1.0), lambda x: -0.5 * _power(x - 1, -2.0),
    ),
    "mask times sqrt": (
        lambda x: pb.sqrt(x) * pb.asarray([0.0, 1.0, 1.0]) + x**3, [0.0, 1.0, 4.0],
        lambda x: np.where(x > 0, 0.5 * _power(x, -0.5), 0) + 3 * x**2, lambda x: -0.25 * _power(x, -1.5) + 6 * x,
    ),
    "zero times sqrt": (
        lambda x: pb.sqrt(x) * 0.0 + x**3, [0.0, 1.0, 4.0], lambda x: 3 * x**2, lambda x: 6 * x,
    ),
    "mask times log of sqrt": (
        lambda x: (x > 0) * pb.log(pb.sqrt(x)), [1.0, 1.0, 4.0],
        lambda x: 0.5 * _power(x, -1.0), lambda x: -0.5 * _power(x, -2.0),
    ),
    "mask times sqrt, squared": (
        lambda x: (pb.asarray([0.0, 1.0, 1.0]) * pb.sqrt(x)) ** 2, [0.0, 1.0, 4.0],
        lambda x: np.array([0.0, 1, 1]), lambda x: np.zeros(3),
    ),
    "sqrt of a mask's product": (
        lambda x: pb.sqrt(x * (x > 0)) + x**3, [0.0, -1.0, 4.0],
        lambda x: 0.5 * _power(x, -0.5) + 3 * x**2, lambda x: -0.25 * _power(x, -1.5) + 6 * x,
    ),
    "sqrt of clip": (
        lambda x: pb.sqrt(pb.clip(x, 0.0, 9.0)) + x**3, [-1.0, 10.0, 4.0],
        lambda x: np.where(x == 4, 0.25, 0) + 3 * x**2, lambda x: np.where(x == 4, -1 / 32, 0) + 6 * x,
    ),
    "log of maximum": (
        lambda x: pb.log(pb.maximum(x, 0.0)), [-1.0, -2.0, 4.0],
        lambda x: np.where(x > 0, 1 / x, 0), lambda x: np.where(x > 0, -(x**-2.0), 0),
    ),
    "rsqrt of fmax": (
        lambda x: pb.rsqrt(pb.fmax(x, 0.0)), [-1.0, -2.0, 4.0],
        lambda x: -0.5 * _power(x, -1.5), lambda x: 0.75 * _power(x, -2.5),
    ),
    "maximum, clip of log": (
        lambda x: pb.maximum(pb.log(x), 0.0) + pb.clip(pb.log(x), 0.0, 9.0), [0.0, 0.0, 4.0],
        lambda x: 2 * _power(x, -1.0), lambda x: -2 * _power(x, -2.0),
    ),
    "acos of tanh": (
        lambda x: pb.acos(pb.tanh(x)), [100.0, -100.0, 0.0],
        lambda x: np.where(x == 0, -1.0, 0), lambda x: np.zeros(3),
    ),
    "running maximum of log": (
        lambda x: pb.cummax(pb.log(x))[1:], [0.0, 1.0, 4.0],
        lambda x: _power(x, -1.0), lambda x: -_power(x, -2.0),
    ),
    "a product at 0 keeps its second derivative": (
        lambda x: x * x * (1 + x), [0.0, 1.0, -1.0], lambda x: 2 * x + 3 * x**2, lambda x: 2 + 6 * x,
    ),
}
GRADIENTS = {"reverse": pb.grad, "forward": pb.jacfwd}
HESSIANS = {
    "forward over reverse": pb.hessian,
    "reverse over reverse": lambda f: pb.jacrev(pb.grad(f)),
    "forward over forward": lambda f: pb.jacfwd(pb.jacfwd(f)),
    "reverse over forward": lambda f: pb.jacrev(pb.jacfwd(f)),
}


@pytest.mark.parametrize("mode", GRADIENTS)
@pytest.mark.parametrize("name", SINGULAR)
def test_gradients_at_singular_points(name, mode):
    function, points, gradient, _ = SINGULAR[name]
    points = np.array(points)
    found = GRADIENTS[mode](lambda x: pb.sum(function(x)))(points)
    np.testing.assert_allclose(np.asarray(found), gradient(points), rtol=1e-12)


@pytest.mark.parametrize("mode", HESSIANS)
@pytest.mark.parametrize("name", SINGULAR)
def test_hessians_at_singular_points(name, mode):
    function, points, _, diagonal = SINGULAR[name]
    points = np.array(points)
    found = HESSIANS[mode](lambda x: pb.sum(function(x)))(points)
    np.testing.assert_allclose(np.asarray(found), np.diag(diagonal(points)), rtol=1e-12)


def test_third_derivative_of_a_product_at_zero():
    third = pb.grad(pb.grad(pb.grad(lambda x: x * x * x)))
    assert float(third(0.0)) == 6.0
    for outer, middle, inner in ((pb.jacfwd, pb.grad, pb.jacfwd), (pb.jacfwd, pb.jacfwd, pb.grad)):
        assert float(outer(middle(inner(lambda x: x * x * x)))(0.0)) == 6.0
