"""Values, dtypes and errors of the elementwise ops by definition, not by NumPy's word alone."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from pullback import dtypes as dt
from pullback.errors import DTypeError, ShapeError
from pullback.graph.node import Node
from pullback.ops import elementwise as e
from pullback.ops import leaf
from pullback.ops.selection import index_error
from tests.ops.support import node_of, run, value_of

INF, NAN = math.inf, math.nan
FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64)


def _cbrt(x: float) -> float:
    return math.copysign(abs(x) ** (1 / 3), x)


DEFINITIONS = {
    "negative": lambda x: -x, "abs": abs, "square": lambda x: x * x, "cube": lambda x: x * x * x,
    "reciprocal": lambda x: 1 / x, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "cbrt": _cbrt, "exp": math.exp, "exp2": lambda x: 2**x, "expm1": math.expm1,
    "log": math.log, "log2": math.log2, "log10": math.log10, "log1p": math.log1p, "sin": math.sin, "cos": math.cos,
    "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh,
    "tanh": math.tanh, "asinh": math.asinh, "acosh": math.acosh, "atanh": math.atanh, "erf": math.erf,
    "erfc": math.erfc, "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "floor": math.floor, "ceil": math.ceil,
    "round": round, "trunc": math.trunc, "sign": lambda x: (x > 0) - (x < 0), "isnan": math.isnan, "isinf": math.isinf,
    "isfinite": math.isfinite, "stop_gradient": lambda x: x, "alias": lambda x: x,
}
DOMAIN = {"acosh": [1.0, 1.5, 9.0], "asin": [-1.0, 0.3, 1.0], "acos": [-1.0, 0.3, 1.0], "atanh": [-0.9, 0.3]}
POSITIVE = ("reciprocal", "sqrt", "rsqrt", "log", "log2", "log10")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_unary(name: str, dtype: dt.DType) -> None:
    points = DOMAIN.get(name, [0.25, 0.5, 1.0, 2.5, 3.5] if name in POSITIVE else [-0.75, -0.5, 0.0, 0.5, 1.5, 2.5])
    x = np.array(points).astype(dtype.numpy)
    got = run(getattr(e, name), x)
    result = dt.bool_ if name.startswith("is") else dtype
    assert got.dtype == result.numpy
    expected = np.array([DEFINITIONS[name](float(v)) for v in x])
    rtol = float(ml_dtypes.finfo(dtype.numpy).eps) * (2 if dtype.itemsize == 2 else 8)
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-300)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 1)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    assert run(e.exp, x).shape == shape
    assert run(e.add, x, np.float32(2)).shape == shape
    assert run(e.add, np.float32(2), x).shape == shape
    assert run(e.where, np.array(True), x, np.float32(0)).shape == shape


def test_special_values() -> None:
    x = np.array([NAN, INF, -INF, 0.0, -0.0])
    np.testing.assert_array_equal(run(e.sign, x), [NAN, 1, -1, 0, 0])
    np.testing.assert_array_equal(run(e.log, x), [NAN, INF, NAN, -INF, -INF])
    np.testing.assert_array_equal(run(e.reciprocal, x), [NAN, 0, -0.0, INF, -INF])
    np.testing.assert_array_equal(run(e.sigmoid, x), [NAN, 1, 0, 0.5, 0.5])
    np.testing.assert_array_equal(run(e.maximum, x, np.zeros(5)), [NAN, INF, 0, 0, 0])
    np.testing.assert_array_equal(run(e.minimum, np.zeros(5), x), [NAN, 0, -INF, 0, 0])
    np.testing.assert_array_equal(run(e.clip, x, np.array(-1.0), np.array(1.0)), [NAN, 1, -1, 0, 0])
    np.testing.assert_array_equal(run(e.clip, np.array([0.0]), np.array(3.0), np.array(1.0)), [1])
    np.testing.assert_array_equal(run(e.round, np.array([0.5, 1.5, 2.5, -0.5])), [0, 2, 2, -0.0])
    assert np.signbit(run(e.round, np.array(-0.4)))
    assert np.signbit(run(e.copysign, np.array(3.0), np.array(-0.0)))
    x, y = np.array([5.0, -5, 5, -5]), np.array([3.0, 3, -3, -3])
    np.testing.assert_array_equal(run(e.remainder, x, y), [2, 1, -1, -2])
    np.testing.assert_array_equal(run(e.floor_divide, np.array([7.0, -7]), np.array([2.0, 2])), [3, -4])
    x, y = np.array([0.0, 1, NAN, -8]), np.array([0.0, NAN, 0, 1 / 3])
    np.testing.assert_array_equal(run(e.pow, x, y), [1, 1, 1, NAN])
    np.testing.assert_array_equal(run(e.atan2, np.array([0.0, -0.0]), np.array([-1.0, -1])), [math.pi, -math.pi])


def test_strong_zero() -> None:
    got = run(e.strong_multiply, np.array([0.0, -0.0, 0, 2, NAN]), np.array([INF, NAN, 5, 3, 0]))
    np.testing.assert_array_equal(got, [0, 0, 0, 6, NAN])


def test_integers() -> None:
    def ints(*values: int) -> np.ndarray:
        return np.array(values, np.int32)

    assert run(e.floor_divide, ints(7, -7, 7, 1), ints(2, 2, -2, 0)).tolist() == [3, -4, -4, 0]
    assert run(e.remainder, ints(7, -7, 7, 1), ints(2, 2, -2, 0)).tolist() == [1, 1, -1, 0]
    assert run(e.pow, ints(2, -1, 0, 1, -2, -1), ints(-1, -3, -1, -2, 3, -4)).tolist() == [0, -1, 0, 1, -8, 1]
    assert run(e.left_shift, ints(1, 1, 1), ints(4, 32, -1)).tolist() == [16, 0, 0]
    assert run(e.right_shift, ints(-8, -8, 8), ints(1, 40, -1)).tolist() == [-4, -1, 0]
    assert run(e.add, np.array([120], np.int8), np.array([10], np.int8)).tolist() == [-126]
    assert run(e.negative, np.array([1], np.uint8)).tolist() == [255]
    assert run(e.bitwise_invert, np.array([True, False])).tolist() == [False, True]
    assert run(e.floor, ints(3)).tolist() == [3]


def test_half_types_are_computed_in_float32_and_rounded_once() -> None:
    for dtype in (dt.float16, dt.bfloat16):
        x = np.linspace(-3, 3, 501).astype(dtype.numpy)
        for name in ("exp", "tanh", "square", "sigmoid"):
            wide = run(getattr(e, name), x.astype(np.float32))
            np.testing.assert_array_equal(run(getattr(e, name), x), wide.astype(dtype.numpy))


@pytest.mark.parametrize("target", [d for d in dt.ALL if d.is_integer], ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_float_to_integer_saturates(source: dt.DType, target: dt.DType) -> None:
    low, high = dt.integer_limits(target)
    with np.errstate(over="ignore"):
        x = np.array([NAN, INF, -INF, 2.75, -2.75, 1e30, -1e30]).astype(source.numpy)
    got = run(lambda x: e.cast(x, target), x)
    assert got.dtype == target.numpy
    big = int(float(x[5])) if math.isfinite(float(x[5])) else 10**30
    assert got.tolist() == [0, high, low, 2, max(-2, low), min(big, high), max(-big, low)]


def test_other_casts() -> None:
    x = np.array([0.0, -0.0, 0.5, NAN])
    assert run(lambda x: e.cast(x, dt.bool_), x).tolist() == [False, False, True, True]
    assert run(lambda x: e.cast(x, dt.int8), np.array([300, -1])).tolist() == [44, -1]
    assert run(lambda x: e.cast(x, dt.float32), np.array([True, False])).tolist() == [1, 0]
    assert run(lambda x: e.cast(x, dt.bfloat16), np.array(1.00390625)).dtype == dt.bfloat16.numpy
    node = node_of([1.0], dt.float32)
    assert e.cast(node, dt.float32) is node
    assert run(lambda x: e.bitcast(x, dt.uint32), np.array([1.0, -0.0], np.float32)).tolist() == [0x3F800000, 1 << 31]


def test_threefry_known_answers() -> None:
    """The vectors of Random123's kat_vectors, threefry2x32 with 20 rounds."""
    counters = np.array([0, 0xFFFFFFFFFFFFFFFF, 0x243F6A8885A308D3], np.uint64)
    keys = np.array([0, 0xFFFFFFFFFFFFFFFF, 0x13198A2E03707344], np.uint64)
    got = run(e.threefry, keys, counters).tolist()
    assert [hex(v) for v in got] == ["0x6b20015999ba4efe", "0x1cb996fcbb002be7", "0xc4923a9c483df7a0"]
    assert run(e.threefry, keys[0], counters[0]).shape == ()


def test_check_index() -> None:
    node = e.check_index(node_of(np.array([-5, -1, 0, 4], np.int8)), 5, "x[i], axis 0")
    assert node.dtype is dt.int64
    assert value_of(node).tolist() == [0, 4, 0, 4]
    for bad in (np.array([0, 5]), np.array([-6]), np.array(2**63 + 1, np.uint64)):
        with pytest.raises(IndexError, match=r"x\[i\], axis 0: index .* is out of range for size 5 .*test_elem"):
            run(lambda i: e.check_index(i, 5, "x[i], axis 0"), bad)
    assert "index 7 is out of range" in str(index_error(node, 7))
    with pytest.raises(IndexError, match="size 0"):
        e.check_index(node_of([0]), 0, "x")
    assert e.check_index(node_of(np.zeros(0, np.int64)), 0, "x").shape == (0,)
    with pytest.raises(DTypeError, match="integer dtype, got float64"):
        e.check_index(node_of([0.5]), 5, "x")


def _x(dtype: dt.DType, *shape: int) -> Node:
    return leaf.parameter(0, shape, dtype)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: e.exp(_x(dt.int64, 3)), DTypeError, r"exp: floating operands expected, got int64\[3\]; cast"),
        (lambda: e.divide(_x(dt.int64, 3), 2), DTypeError, r"divide: floating .* int64\[3\] and int64\[\]"),
        (lambda: e.add(_x(dt.float32, 3), _x(dt.float64, 3)), DTypeError, r"add: .* one dtype .* float32\[3\]"),
        (lambda: e.add(_x(dt.bool_), _x(dt.bool_)), DTypeError, "add: numeric operands expected, got bool"),
        (lambda: e.logical_and(_x(dt.int8), _x(dt.int8)), DTypeError, "logical_and: bool operands expected"),
        (lambda: e.left_shift(_x(dt.float32), 1), DTypeError, "left_shift: integer operands expected"),
        (lambda: e.bitwise_or(_x(dt.float32), 1), DTypeError, "bitwise_or: integer or bool operands expected"),
        (lambda: e.add(_x(dt.float32, 3), _x(dt.float32, 4)), ShapeError, r"add: .*\(3,\) and \(4,\)"),
        (lambda: e.where(_x(dt.int8), 1.0, _x(dt.float32)), DTypeError, "where: the condition must be bool, got int8"),
        (lambda: e.where(_x(dt.bool_), _x(dt.float32), _x(dt.float64)), DTypeError, "where: operands of one dtype"),
        (lambda: e.where(_x(dt.bool_, 2), _x(dt.float32, 3), 0), ShapeError, "where: shapes"),
        (lambda: e.clip(_x(dt.float32, 2), _x(dt.float32, 3), 0), ShapeError, "clip: shapes"),
        (lambda: e.clip(_x(dt.float32), _x(dt.float64), 0), DTypeError, "clip: operands of one dtype"),
        (lambda: e.bitcast(_x(dt.float32), dt.int64), DTypeError, "bitcast: float32 cannot be read as int64"),
        (lambda: e.threefry(_x(dt.int64), _x(dt.int64)), DTypeError, "threefry: uint64 key and counter expected"),
        (lambda: e.add(_x(dt.uint8), 300), DTypeError, "uint8 cannot hold 300"),
        (lambda: e.add(_x(dt.int32), 0.5), DTypeError, "int32 cannot hold 0.5"),
        (lambda: e.add(_x(dt.int32), INF), DTypeError, "int32 cannot hold inf"),
        (lambda: e.add(1, 2), DTypeError, "add: at least one operand must be a node"),
    ],
)
def test_errors(make, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        make()


def test_leaves() -> None:
    assert value_of(leaf.iota((2, 3), 1, dt.int32)).tolist() == [[0, 1, 2]] * 2
    assert value_of(leaf.iota((2, 3), 0, dt.bfloat16)).tolist() == [[0] * 3, [1] * 3]
    assert value_of(leaf.full((2,), 7, dt.uint8)).tolist() == [7, 7]
    assert value_of(leaf.ones_like(node_of([[1.0]]))).tolist() == [[1]]
    with pytest.raises(ShapeError, match="axis 2"):
        leaf.iota((2, 3), 2, dt.int32)
    with pytest.raises(DTypeError, match="numeric"):
        leaf.iota((2,), 0, dt.bool_)
    with pytest.raises(DTypeError, match="not a bool"):
        leaf.constant(2, dt.bool_)


def test_data_copies_unless_told() -> None:
    array = np.arange(4.0)
    shared, own = leaf.data(array, copy=False), leaf.data(array)
    array[0] = 9
    assert value_of(shared)[0] == 9
    assert value_of(own)[0] == 0
    for odd in (array[::2], array.astype(">f8"), np.asfortranarray(np.ones((2, 3)))):
        np.testing.assert_array_equal(value_of(leaf.data(odd, copy=False)), odd)
    with pytest.raises(DTypeError):
        leaf.data(np.array([None]))
