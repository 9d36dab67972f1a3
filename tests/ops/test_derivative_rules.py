"""Each derivative against finite differences, both modes, to second order; and the table of conventions."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import dtypes as dt
from pullback.errors import GradientError
from pullback.graph.node import Node
from pullback.ops import elementwise as e
from pullback.ops import indexing, leaf, movement, reduction
from tests.ops.support import CASES, Case, check_derivative, gradient, node_of, value_of

INF, NAN = np.inf, np.nan
SMOOTH = [c for c in CASES if c.differentiable]


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_against_finite_differences(case: Case) -> None:
    def build(*xs: Node) -> Node:
        operands = [node_of(a) for a in case.arrays]
        for position, x in zip(case.differentiable, xs):
            operands[position] = x
        return case.build(*operands)

    check_derivative(build, [case.arrays[i].astype(np.float64) for i in case.differentiable], case.order)


def test_product_to_third_order_with_zeros() -> None:
    check_derivative(lambda x: reduction.reduce_prod(x, (0,)), [np.array([2.0, 0, 0, 3, 0.5])], order=3)


def test_scattered_product_to_third_order_with_zeros() -> None:
    index = node_of(np.array([1, 0, 1, 1]))

    def build(x: Node, u: Node) -> Node:
        return indexing.scatter(x, u, [index], (0,), "multiply")

    check_derivative(build, [np.array([0.0, 2.0]), np.array([0.0, 3.0, 0.0, 2.0])], order=3)


def _grads(build, *arrays):  # type: ignore[no-untyped-def]
    return [value_of(g).tolist() for g in gradient(build, [node_of(np.array(a, np.float64)) for a in arrays])]


TABLE = [
    ("abs at 0", e.abs, [[-2.0, 0.0, 3.0]], [[-1, 0, 1]]),
    ("sign", e.sign, [[-2.0, 0.0]], [[0, 0]]),
    ("floor", e.floor, [[1.5, 2.0]], [[0, 0]]),
    ("round", e.round, [[1.5]], [[0]]),
    ("maximum, tie and NaN", e.maximum, [[1, 1, 2, NAN], [1, 2, 1, 0]], [[0.5, 0, 1, 1], [0.5, 1, 0, 1]]),
    ("minimum, tie", e.minimum, [[1, 1, 2], [1, 2, 1]], [[0.5, 1, 0], [0.5, 0, 1]]),
    ("max over an axis, ties", lambda x: reduction.reduce_max(x, (1,)), [[[1, 3, 3], [0, 0, 0]]],
     [[[0, 0.5, 0.5], [1 / 3] * 3]]),
    ("min over all, keepdims, ties", lambda x: reduction.reduce_min(x, (0, 1), True), [[[1, 3], [1, 4]]],
     [[[0.5, 0], [0.5, 0]]]),
    ("max with NaN goes to the NaN", lambda x: reduction.reduce_max(x, (0,)), [[1, NAN, 2]], [[0, 1, 0]]),
    ("clip on the bounds and NaN", lambda x: e.clip(x, -1, 1), [[-2, -1, 0, 1, 2, NAN]], [[0, 1, 1, 1, 0, 0]]),
    ("clip with one bound and NaN", lambda x: e.clip(x, -INF, 1), [[-2, 1, 2, NAN]], [[1, 1, 0, 0]]),
    ("clip with the other and NaN", lambda x: e.clip(x, 0, INF), [[-2, 0, 2, NAN]], [[0, 1, 1, 0]]),
    ("clip with no bound and NaN", lambda x: e.clip(x, -INF, INF), [[-2, NAN]], [[1, 0]]),
    ("clip by its bounds", e.clip, [[0, 2, 5, 9], [1, 1, 1, 3], [4, 4, 4, 2]],
     [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]]),
    ("pow by x at 0", lambda x, y: e.pow(x, y), [[0, 0, 0, 0, 3], [0, 1, 2, 3, 0]],
     [[0, 1, 0, 0, 0], [0, 0, 0, 0, np.log(3)]]),
    ("pow by y for x < 0 is NaN and leaves x alone", e.pow, [[-2.0], [2.0]], [[-4], [NAN]]),
    ("atan2 at 0", e.atan2, [[0.0], [0.0]], [[0], [0]]),
    ("atan2 of numbers whose squares vanish or overflow", e.atan2, [[1e-300, 3e200], [1e-300, 4e200]],
     [[5e299, 1.6e-201], [-5e299, -1.2e-201]]),
    ("remainder by the divisor", e.remainder, [[5.0, -5.0], [3.0, 3.0]], [[1, 1], [-1, 2]]),
    ("floor_divide", e.floor_divide, [[5.0], [3.0]], [[0], [0]]),
    ("copysign at 0", e.copysign, [[0, 1, -1, 2], [-1, -1, -2, 0.0]], [[0, -1, 1, 1], [0, 0, 0, 0]]),
    ("product with one zero", lambda x: reduction.reduce_prod(x, (0,)), [[2, 0, 3]], [[0, 6, 0]]),
    ("product with two zeros", lambda x: reduction.reduce_prod(x, (0,)), [[2, 0, 0]], [[0, 0, 0]]),
    ("where, the branch not taken", lambda x: e.where(e.less(x, 1), x, e.sqrt(x)), [[0.0, 4.0]], [[1, 0.25]]),
    ("where, log of what is masked", lambda x: e.where(e.greater(x, 0), e.log(x), 0), [[-1.0, 0.0, 2.0]],
     [[0, 0, 0.5]]),
    ("a zero times an infinite partial", lambda x: e.multiply(e.sqrt(x), 0), [[0.0]], [[0]]),
    ("division, the branch not taken", lambda x, y: e.where(e.equal(y, 0), x, e.divide(x, y)), [[1.0], [0.0]],
     [[1], [0]]),
    ("stop_gradient", lambda x: e.multiply(e.stop_gradient(x), x), [[3.0]], [[3]]),
    ("sigmoid far out", e.sigmoid, [[-800.0, 800.0]], [[0, 0]]),
    ("tanh far out", e.tanh, [[-800.0, 800.0]], [[0, 0]]),
    ("exp of -inf", e.exp, [[-INF]], [[0]]),
    ("asin at 1", e.asin, [[1.0]], [[INF]]),
    ("sqrt at 0", e.sqrt, [[0.0]], [[INF]]),
]


@pytest.mark.parametrize(("build", "arrays", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(build, arrays, expected) -> None:  # type: ignore[no-untyped-def]
    for got, want in zip(_grads(build, *arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize(
    ("mode", "x", "updates", "index", "by_x", "by_updates"),
    [
        ("set", [1, 2, 3], [5, 6, 7], [0, 0, 2], [0, 1, 0], [0, 1, 1]),
        ("add", [1, 2, 3], [5, 6, 7], [0, 0, 2], [1, 1, 1], [1, 1, 1]),
        ("multiply", [1, 2, 3], [5, 6, 7], [0, 0, 2], [30, 1, 7], [6, 5, 3]),
        ("max", [1, 1, 2], [2, 2, 1, 1], [0, 0, 1, 2], [0, 0.5, 1], [0.5, 0.5, 0.5, 0]),
        ("min", [1, 3, NAN], [1, 1, 4, 0], [0, 0, 1, 2], [1 / 3, 1, 1], [1 / 3, 1 / 3, 0, 0]),
    ],
)
def test_scatter_with_repeated_indices(mode, x, updates, index, by_x, by_updates) -> None:  # type: ignore[no-untyped-def]
    positions = node_of(np.array(index))
    got = _grads(lambda x, u: indexing.scatter(x, u, [positions], (0,), mode), x, updates)
    np.testing.assert_allclose(got[0], by_x)
    np.testing.assert_allclose(got[1], by_updates)


def test_pow_is_smooth_at_zero_to_third_order() -> None:
    """d3 x**3 = 6 and d3 x**2 = 0 at 0, through constants and through a variable exponent."""
    for exponent in (3.0, node_of(np.array(3.0))):
        def cube(x: Node, y: Node | float = exponent) -> Node:
            return e.pow(x, y)

        def first(x: Node, f=cube) -> Node:  # type: ignore[no-untyped-def]
            return gradient(f, [x])[0]

        def second(x: Node, f=first) -> Node:  # type: ignore[no-untyped-def]
            return gradient(f, [x])[0]

        zero = node_of(np.array([0.0]))
        assert value_of(first(zero)) == 0
        assert value_of(second(zero)) == 0
        assert value_of(gradient(second, [zero])[0]) == 6


def test_partials_keep_their_digits() -> None:
    """Where the obvious formula of the partial would cancel."""
    cases = [
        (e.expm1, -30.0, np.exp(-30.0)),
        (e.asin, 1 - 1e-12, 1 / np.sqrt(1e-12 * (2 - 1e-12))),
        (e.atanh, 1 - 1e-12, 1 / (1e-12 * (2 - 1e-12))),
        (e.log1p, 1e-20, 1.0),
    ]
    for function, x, expected in cases:
        np.testing.assert_allclose(_grads(function, [x])[0], [expected], rtol=1e-4)
    np.testing.assert_allclose(_grads(e.expm1, [-30.0])[0], [np.exp(-30.0)], rtol=1e-14)


def test_half_types_count_ties_exactly() -> None:
    x = node_of(np.ones(4096), dt.float16)
    (got,) = gradient(lambda x: reduction.reduce_max(x, (0,)), [x])
    assert got.dtype is dt.float16
    np.testing.assert_array_equal(value_of(got), np.full(4096, 1 / 4096, np.float16))


def test_casts_between_floats_are_linear() -> None:
    x = node_of([1.0, 2.0], dt.float32)
    (got,) = gradient(lambda x: e.multiply(e.cast(x, dt.float64), 3), [x])
    assert got.dtype is dt.float32
    assert value_of(got).tolist() == [3, 3]
    (got,) = gradient(lambda x: e.cast(e.cast(x, dt.int32), dt.float32), [x])
    assert value_of(got).tolist() == [0, 0]


def test_an_op_without_derivative_says_so() -> None:
    x = node_of(np.array([1.0, 2.0], np.float16))
    message = r"bitcast has no derivative: .* argument 0 of shape \(2,\) and dtype float16, made at .*test_deriv"
    with pytest.raises(GradientError, match=message):
        gradient(lambda x: e.bitcast(x, dt.bfloat16), [x])


def test_view_derivatives_stay_views() -> None:
    """The transposes of movements are movements: nothing is multiplied by a mask or gathered."""
    x = node_of(np.ones((4, 6)))
    ct = node_of(np.ones((6, 4)))
    (got,) = gradient(lambda x: movement.permute(x, (1, 0)), [x], ct)
    assert got.op is movement.PERMUTE
    ct = node_of(np.ones((2, 3)))
    (got,) = gradient(lambda x: movement.slice(x, (0, 1), (4, 6), (2, 2)), [x], ct)
    assert got.op is movement.PAD
    assert got.attrs == ((0, 1), (1, 0), (1, 1))
    assert leaf.CONSTANT is got.inputs[1].op
