"""Reductions, movement, indexing, contraction and sorting: values by definition, edge shapes, errors."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import dtypes as dt
from pullback.errors import DTypeError, ShapeError
from pullback.graph.node import Node
from pullback.ops import contraction, indexing, leaf, movement, reduction, sorting
from tests.ops.support import node_of, run

X = np.arange(24.0).reshape(2, 3, 4)


def _x(dtype: dt.DType, *shape: int) -> Node:
    return leaf.parameter(0, shape, dtype)


# -- reductions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d.kind != "b"], ids=str)
def test_sums_and_products_keep_the_dtype(dtype: dt.DType) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]]).astype(dtype.numpy)
    got = run(lambda x: reduction.reduce_sum(x, (1,)), x)
    assert got.dtype == dtype.numpy
    assert got.tolist() == [6, 15]
    got = run(lambda x: reduction.reduce_prod(x, (0,), True), x)
    assert got.dtype == dtype.numpy
    assert got.tolist() == [[4, 10, 18]]
    assert run(lambda x: reduction.reduce_max(x, (0, 1)), x).dtype == dtype.numpy


def test_sums_are_rounded_once() -> None:
    x = np.full(4096, 0.1).astype(np.float16)
    assert run(lambda x: reduction.reduce_sum(x, (0,)), x) == np.float16(np.sum(x.astype(np.float64)))
    assert run(lambda x: reduction.reduce_sum(x, (0,)), np.array([100, 100], np.int8)).tolist() == -56


def test_empty_axes() -> None:
    x = np.zeros((2, 0, 3))
    assert run(lambda x: reduction.reduce_sum(x, (1,)), x).tolist() == [[0, 0, 0]] * 2
    assert run(lambda x: reduction.reduce_prod(x, (1,)), x).tolist() == [[1, 1, 1]] * 2
    assert run(lambda x: reduction.reduce_any(x, (0,)), np.zeros(0, bool)).tolist() is False
    assert run(lambda x: reduction.reduce_all(x, (0,)), np.zeros(0, bool)).tolist() is True
    assert run(lambda x: reduction.reduce_max(x, (0,)), x).shape == (0, 3)
    for function in (reduction.reduce_max, reduction.reduce_min, reduction.argmax, reduction.argmin):
        with pytest.raises(ShapeError, match=r"axis 1 of float64\[2,0,3\] is empty"):
            function(node_of(x), (1,))


def test_nan_in_reductions() -> None:
    x = np.array([[1.0, np.nan, 3, np.nan], [4, 7, 7, 5]])
    np.testing.assert_array_equal(run(lambda x: reduction.reduce_max(x, (1,)), x), [np.nan, 7])
    assert run(lambda x: reduction.argmax(x, (1,)), x).tolist() == [1, 1]
    assert run(lambda x: reduction.argmin(x, (1,), True), x).tolist() == [[1], [0]]
    assert run(lambda x: reduction.argmax(x, (0,)), np.array([False, True, True])).dtype == np.int64


def test_reducing_no_axes_changes_nothing() -> None:
    x = node_of(X)
    assert reduction.reduce_sum(x, ()) is x
    assert reduction.sum_to(x, X.shape) is x


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (2, 1, 1), (), (1, 1, 1)])
def test_sum_to_is_the_transpose_of_broadcasting(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    small = rng.random(shape)
    got = run(lambda x: reduction.sum_to(x, shape), X)
    assert got.shape == shape
    np.testing.assert_allclose(np.sum(got * small), np.sum(X * np.broadcast_to(small, X.shape)))


# -- movement ----------------------------------------------------------------------------------------------------------


def test_movements_that_change_nothing_make_no_node() -> None:
    x = node_of(X)
    assert movement.reshape(x, (2, 3, 4)) is x
    assert movement.permute(x, (0, 1, 2)) is x
    assert movement.broadcast_to(x, (2, 3, 4)) is x
    assert movement.slice(x, (0, 0, 0), (2, 3, 4)) is x
    assert movement.flip(x, ()) is x
    assert movement.pad(x, 0, (0, 0, 0), (0, 0, 0)) is x
    assert movement.concat([x], 1) is x
    assert movement.move_axis(x, 1, 1) is x


def test_values_of_movements() -> None:
    assert run(lambda x: movement.permute(x, (2, 0, 1)), X).tolist() == X.transpose(2, 0, 1).tolist()
    assert run(lambda x: movement.slice(x, (0, 1, 0), (1, 3, 4), (1, 1, 3)), X).tolist() == X[0:1, 1:3, 0:4:3].tolist()
    assert run(lambda x: movement.flip(x, (0, 2)), X).tolist() == X[::-1, :, ::-1].tolist()
    assert run(lambda x: movement.expand_dims(x, (0, 2)), X).shape == (1, 2, 1, 3, 4)
    assert run(lambda x: movement.move_axis(x, 0, 2), X).tolist() == np.moveaxis(X, 0, 2).tolist()
    got = run(lambda a, b: movement.concat([a, b], 1), X, X[:, :0])
    assert got.tolist() == X.tolist()


@pytest.mark.parametrize(
    ("low", "high", "interior", "expected"),
    [
        (1, 2, 0, [9, 1, 2, 3, 9, 9]),
        (0, 0, 2, [1, 9, 9, 2, 9, 9, 3]),
        (-1, 1, 0, [2, 3, 9]),
        (-1, -1, 1, [9, 2, 9]),
        (2, -4, 1, [9, 9, 1]),
        (-3, 0, 0, []),
    ],
)
def test_pad(low: int, high: int, interior: int, expected: list[float]) -> None:
    got = run(lambda x: movement.pad(x, 9, (low,), (high,), (interior,)), np.array([1.0, 2, 3]))
    assert got.tolist() == expected


def test_pad_of_nothing() -> None:
    assert run(lambda x: movement.pad(x, True, (1,), (1,), (3,)), np.zeros(0, bool)).tolist() == [True, True]
    cropped = movement.pad(node_of(X), 0, (0, -1, 0), (0, 0, -2))
    assert cropped.op is movement.SLICE


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x: movement.reshape(x, (5, 5)), ShapeError, r"reshape: shape \(5, 5\) does not hold 24 elements"),
        (lambda x: movement.permute(x, (0, 1)), ShapeError, r"permute: \(0, 1\) is not an order of 3 axes"),
        (lambda x: movement.permute(x, (0, 1, 1)), ShapeError, "permute"),
        (lambda x: movement.broadcast_to(x, (3, 4)), ShapeError, "broadcast_to"),
        (lambda x: movement.broadcast_to(x, (2, 3, 5)), ShapeError, "broadcast_to"),
        (lambda x: movement.slice(x, (0, 0, 3), (2, 3, 5)), ShapeError, "slice: 3:5:1 does not lie in an axis of 4"),
        (lambda x: movement.slice(x, (0,), (2,)), ShapeError, "slice: one start"),
        (lambda x: movement.flip(x, (3,)), ShapeError, "flip"),
        (lambda x: movement.pad(x, 0, (0, 0, -3), (0, 0, -2)), ShapeError, "crop more than there is"),
        (lambda x: movement.pad(x, 0, (0,), (0,)), ShapeError, "do not fit the axes"),
        (lambda x: movement.pad(x, _x(dt.float32), (1, 0, 0), (0,) * 3), DTypeError, "pad: operands of one dtype"),
        (lambda x: movement.pad(x, _x(dt.float64, 1), (1, 0, 0), (0,) * 3), ShapeError, "must be 0-d"),
        (lambda x: movement.concat([x, _x(dt.float64, 2, 3)], 0), ShapeError, "shapes must agree except on axis 0"),
        (lambda x: movement.concat([x, _x(dt.float32, 2, 3, 4)], 0), DTypeError, "concat: operands of one dtype"),
        (lambda x: movement.concat([], 0), ShapeError, "at least one"),
        (lambda x: reduction.reduce_sum(x, (3,)), ShapeError, r"reduce_sum: axes \(3,\)"),
        (lambda x: reduction.reduce_sum(x, (1, 0)), ShapeError, "distinct axes in order"),
        (lambda x: reduction.argmax(x, (0, 1)), ShapeError, "argmax: one axis expected"),
        (lambda x: reduction.reduce_any(x, (0,)), DTypeError, "reduce_any: bool operands expected"),
        (lambda x: reduction.reduce_sum(_x(dt.bool_, 3), (0,)), DTypeError, "reduce_sum: numeric operands expected"),
        (lambda x: sorting.argsort(x, 3), ShapeError, "argsort: there is no axis 3"),
        (lambda x: indexing.gather(x, [_x(dt.int32, 2)], (0,)), DTypeError, "int64 indices expected, got int32"),
        (lambda x: indexing.gather(x, [_x(dt.int64, 2), _x(dt.int64, 3)], (0, 1)), ShapeError, "one shape"),
        (lambda x: indexing.gather(x, [_x(dt.int64, 2)], (3,)), ShapeError, "not distinct axes"),
        (lambda x: indexing.gather(x, [], ()), ShapeError, "0 index operands"),
        (lambda x: indexing.scatter(x, _x(dt.float64, 2, 3), [_x(dt.int64, 2)], (0,), "set"), ShapeError,
         r"updates of shape \(2, 3, 4\) expected, got \(2, 3\)"),
        (lambda x: indexing.scatter(x, _x(dt.float32, 2, 3, 4), [_x(dt.int64, 2)], (0,), "add"), DTypeError,
         "scatter_add: operands of one dtype"),
        (lambda x: contraction.dot_general(x, x, ((2,), (1,))), ShapeError, "contracted axis 2 of .* has 4 elements"),
        (lambda x: contraction.dot_general(x, x, ((2,), (2,)), ((2,), (2,))), ShapeError, "used twice"),
        (lambda x: contraction.dot_general(x, x, ((3,), (2,))), ShapeError, "out of range"),
        (lambda x: contraction.dot_general(x, x, ((1, 2), (2,))), ShapeError, "do not pair up"),
        (lambda x: contraction.dot_general(x, _x(dt.float32, 4), ((2,), (0,))), DTypeError, "operands of one dtype"),
    ],
)
def test_errors(make, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        make(node_of(X))


# -- indexing ----------------------------------------------------------------------------------------------------------


def test_gather() -> None:
    i, j = np.array([[1, 0], [1, 1]]), np.array([[0, 3], [2, 0]])
    assert run(lambda x, i: indexing.gather(x, [i], (1,)), X, i).tolist() == X[:, i].transpose(1, 2, 0, 3).tolist()
    got = run(lambda x, i, j: indexing.gather(x, [i, j], (0, 2)), X, i, j)
    assert got.tolist() == X.transpose(0, 2, 1)[i, j].tolist()


def test_scatter_applies_updates_in_order() -> None:
    x, i = np.array([1.0, 2, 3]), np.array([2, 0, 2])
    u = np.array([5.0, 0.5, 4])
    expected = {"set": [0.5, 2, 4], "add": [1.5, 2, 12], "multiply": [0.5, 2, 60], "min": [0.5, 2, 3], "max": [1, 2, 5]}
    for mode, values in expected.items():
        got = run(lambda x, u, i, m=mode: indexing.scatter(x, u, [i], (0,), m), x, u, i)
        assert got.tolist() == values, mode
    assert x.tolist() == [1, 2, 3]
    got = run(lambda x, u, i: indexing.scatter(x, u, [i], (0,), "max"), x, np.array([np.nan, 0, 0]), i)
    np.testing.assert_array_equal(got, [1, 2, np.nan])


def test_scatter_rounds_half_types_once() -> None:
    x = np.zeros(1, np.float16)
    u = np.full(3000, 1.0, np.float16)
    got = run(lambda x, u, i: indexing.scatter(x, u, [i], (0,), "add"), x, u, np.zeros(3000, np.int64))
    assert got.tolist() == [3000]


def test_scatter_on_a_middle_axis() -> None:
    x, u = np.zeros((2, 3, 4)), np.arange(16.0).reshape(2, 2, 4)
    got = run(lambda x, u, i: indexing.scatter(x, u, [i], (1,), "set"), x, u, np.array([2, 0]))
    expected = np.zeros((2, 3, 4))
    expected[:, 2], expected[:, 0] = u[0], u[1]
    assert got.tolist() == expected.tolist()


# -- contraction and sorting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_dot_general_over_dtypes(dtype: dt.DType) -> None:
    a, b = np.array([[1, 2], [0, 3]]).astype(dtype.numpy), np.array([[1, 0], [1, 2]]).astype(dtype.numpy)
    got = run(contraction.matrix_product, a, b)
    assert got.dtype == dtype.numpy
    assert got.tolist() == ([[True, True], [True, True]] if dtype is dt.bool_ else [[3, 4], [3, 6]])


@pytest.mark.parametrize(
    ("left", "right", "contract", "batch", "formula"),
    [
        ((2, 3, 4), (4, 5), ((2,), (0,)), ((), ()), "abc,cd->abd"),
        ((2, 3, 4), (5, 4, 2), ((2,), (1,)), ((0,), (2,)), "abc,dca->abd"),
        ((2, 3, 4), (3, 5, 2), ((1, 0), (0, 2)), ((), ()), "abc,bda->cd"),
        ((2, 3), (4,), ((), ()), ((), ()), "ab,c->abc"),
        ((3, 2), (2, 3), ((), ()), ((1, 0), (0, 1)), "ab,ba->ba"),
        ((2, 0), (0, 3), ((1,), (0,)), ((), ()), "ab,bc->ac"),
        ((0, 2), (2, 3), ((1,), (0,)), ((), ()), "ab,bc->ac"),
    ],
)
def test_dot_general_is_einsum(left, right, contract, batch, formula) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    a, b = rng.random(left), rng.random(right)
    got = run(lambda a, b: contraction.dot_general(a, b, contract, batch), a, b)
    np.testing.assert_allclose(got, np.einsum(formula, a, b), rtol=1e-14)


def test_gradient_of_a_product_needs_no_transpose_of_the_result() -> None:
    """x.T @ g comes out in w's order, and the transposed operand stays a choice of axes."""
    from tests.ops.support import gradient

    x, w, ct = node_of(np.ones((3, 4))), node_of(np.ones((4, 2))), node_of(np.ones((3, 2)))
    by_x, by_w = gradient(contraction.matrix_product, [x, w], ct)
    assert by_x.op is contraction.DOT_GENERAL
    assert by_w.op is contraction.DOT_GENERAL


def test_argsort() -> None:
    x = np.array([3.0, np.nan, 1, 3, -np.inf])
    assert run(lambda x: sorting.argsort(x, 0), x).tolist() == [4, 2, 0, 3, 1]
    assert run(lambda x: sorting.argsort(x, 0, descending=True), x).tolist() == [1, 0, 3, 2, 4]
    assert run(lambda x: sorting.argsort(x, 0), np.zeros((0, 2))).shape == (0, 2)
    assert run(lambda x: sorting.argsort(x, 0), x.astype(dt.bfloat16.numpy)).dtype == np.int64
