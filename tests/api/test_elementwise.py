"""Elementwise functions against NumPy: values, dtypes, scalars, and the cases where the rules differ from the op's."""

import math

import numpy as np
import pytest

import pullback as pb

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-3, 7.0, np.inf, -np.inf, np.nan])

SAME_NAME = [
    "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "negative", "abs", "sign", "square", "floor", "ceil", "trunc", "round", "isnan", "isinf",
    "isfinite", "signbit",
    "logical_not", "reciprocal", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "absolute", "deg2rad",
    "rad2deg", "positive", "radians", "degrees", "nan_to_num",
]  # fmt: skip


def close(got, expected, dtype="float64"):
    tolerance = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3}[dtype]
    np.testing.assert_allclose(np.asarray(got), expected, rtol=tolerance, atol=0 if dtype != "float16" else 1e-6)


@pytest.mark.parametrize("name", SAME_NAME)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_of_one_operand(name, dtype):
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    got = getattr(pb, name)(pb.asarray(x))
    assert got.dtype == expected.dtype
    if name in ("cos", "sin", "tan"):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-6 if dtype == "float32" else 1e-13, atol=1e-7)
    else:
        close(got, expected, dtype)


@pytest.mark.parametrize(("name", "reference"), [("erf", math.erf), ("erfc", math.erfc)])
def test_error_functions(name, reference):
    x = np.linspace(-4, 4, 33)
    close(getattr(pb, name)(x), [reference(v) for v in x])


def test_sigmoid_and_rsqrt_do_not_overflow():
    x = np.array([-800.0, -1.0, 0.0, 1.0, 800.0])
    close(pb.sigmoid(x)[1:], (1 / (1 + np.exp(-x[1:]))))
    assert pb.sigmoid(x)[0].item() in (0.0, pytest.approx(0, abs=1e-300))
    close(pb.rsqrt(np.array([4.0, 0.25])), [0.5, 2.0])


@pytest.mark.parametrize("name", ["exp", "sqrt", "log1p", "sin", "reciprocal", "erf", "sigmoid", "deg2rad"])
def test_integers_become_the_default_float(name):
    x = np.array([1, 2, 3], np.int16)
    got = getattr(pb, name)(pb.asarray(x))
    assert got.dtype is pb.float32
    np.testing.assert_allclose(np.asarray(got), np.asarray(getattr(pb, name)(x.astype(np.float32))), rtol=1e-6)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "positive", "nan_to_num"])
def test_rounding_leaves_integers(name):
    x = np.array([-3, 0, 7], np.int32)
    got = getattr(pb, name)(x)
    assert got.dtype is pb.int32
    np.testing.assert_array_equal(np.asarray(got), x)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_float_tests_of_integers(name):
    np.testing.assert_array_equal(np.asarray(getattr(pb, name)(np.arange(3))), getattr(np, name)(np.arange(3)))


def test_abs_of_bools_and_unsigned():
    np.testing.assert_array_equal(np.asarray(pb.abs(np.array([True, False]))), [True, False])
    assert pb.abs(np.array([3], np.uint8)).dtype is pb.uint8


def test_negative_of_bools_is_an_error():
    with pytest.raises(pb.DTypeError, match="negative"):
        pb.negative(pb.asarray([True]))


def test_round_to_decimals():
    x = np.array([1.25, -2.345, 12345.678])
    close(pb.round(x, decimals=2), np.round(x, 2))
    close(pb.round(x, decimals=-2), np.round(x, -2))
    np.testing.assert_array_equal(np.asarray(pb.round(np.array([1234, -1250]), decimals=-2)), [1200, -1200])


TWO_OPERANDS = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "maximum", "minimum", "arctan2", "copysign",
    "hypot", "logaddexp", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
    "logical_or", "logical_xor", "power",
]  # fmt: skip


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_functions_of_two_operands(name):
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    got = getattr(pb, name)(pb.asarray(x), pb.asarray(y))
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_integer_arithmetic(name, dtype):
    rng = np.random.default_rng(0)
    low, high = (0, 200) if dtype[0] == "u" else (-100, 100)
    x, y = rng.integers(low, high, (2, 50)).astype(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    got = getattr(pb, name)(x, y)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64"])
def test_bits(name, dtype):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 100, (2, 20)).astype(dtype)
    np.testing.assert_array_equal(np.asarray(getattr(pb, name)(x, y)), getattr(np, name)(x, y))
    np.testing.assert_array_equal(np.asarray(pb.bitwise_invert(x)), ~x)


def test_shifts():
    x = np.array([1, -8, 100], np.int32)
    np.testing.assert_array_equal(np.asarray(pb.bitwise_left_shift(x, 3)), x << 3)
    np.testing.assert_array_equal(np.asarray(pb.asarray(x) >> 2), x >> 2)


def test_bool_arithmetic_is_logic():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    for name in ("add", "multiply", "maximum", "minimum"):
        got = getattr(pb, name)(a, b)
        assert got.dtype is pb.bool
        np.testing.assert_array_equal(np.asarray(got), getattr(np, name)(a, b))
    with pytest.raises(pb.DTypeError):
        pb.subtract(a, b)


def test_division_of_integers_is_floating():
    got = pb.asarray([1, 2, 3]) / pb.asarray([2, 2, 2])
    assert got.dtype is pb.float32
    close(got, [0.5, 1, 1.5], "float32")


def test_integers_and_floats_give_the_float():
    assert (pb.ones(2, dtype="int64") + pb.ones(2, dtype="float16")).dtype is pb.float16
    with pytest.raises(pb.DTypeError, match="no common integer dtype"):
        pb.ones(2, dtype="int64") + pb.ones(2, dtype="uint64")


# -- powers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-8, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2.0, 0.5, -0.5, 1.5, 3.7])
def test_constant_exponents(exponent):
    x = np.array([0.3, 1.0, 2.0, 3.7])
    close(pb.asarray(x) ** exponent, x**exponent)


def test_small_exponents_are_multiplications():
    x = pb.ones(3)
    assert (x**2).node.op.name == "square"
    assert (x**3).node.op.name == "cube"
    assert (x**6).node.op.name == "cube"
    assert (x**4).node.op.name == "square"
    assert (x**0.5).node.op.name == "sqrt"
    assert (x**2.5).node.op.name == "pow"


def test_integer_powers():
    x = np.array([-3, 0, 2, 5])
    for n in (0, 1, 2, 3, 7, 11):
        got = pb.asarray(x) ** n
        assert got.dtype is pb.int64
        np.testing.assert_array_equal(np.asarray(got), x**n)
    np.testing.assert_array_equal(np.asarray(pb.pow(2, pb.asarray([0, 3, 5]))), [1, 8, 32])
    with pytest.raises(ValueError, match="negative integer powers"):
        pb.asarray(x) ** -1
    assert (pb.asarray(x) ** 2.0).dtype is pb.float32


# -- Python numbers ----------------------------------------------------------------------------------------------------


def test_a_python_int_that_the_dtype_cannot_hold():
    x = pb.asarray(np.array([1, 2], np.uint8))
    for bad in (256, -1, 10**30):
        with pytest.raises(OverflowError, match="out of bounds for uint8"):
            x + bad
    np.testing.assert_array_equal(np.asarray(x < 300), [True, True])
    np.testing.assert_array_equal(np.asarray(x == -1), [False, False])
    np.testing.assert_array_equal(np.asarray(x > -1), [True, True])
    np.testing.assert_array_equal(np.asarray(300 > x), [True, True])
    np.testing.assert_array_equal(np.asarray(x != 256), [True, True])


def test_complex_numbers_and_strings():
    x = pb.ones(2)
    with pytest.raises(pb.DTypeError, match="complex"):
        x + 1j
    with pytest.raises(TypeError):
        x + "a"
    assert (x == "a") is False
    assert (x != None) is True  # noqa: E711


def test_lists_and_numpy_arrays_as_operands():
    x = pb.asarray([1.0, 2.0])
    close(x + [1, 2], [2, 4], "float32")
    close([1, 2] * x, [1, 4], "float32")
    array = np.array([1.0, 2.0])
    for result in (array + x, x + array, array @ x, np.float64(2) * x):
        assert isinstance(result, pb.Tensor) and result.dtype is pb.float64


def test_a_numpy_operand_is_copied():
    array = np.ones(3)
    result = pb.ones(3, dtype="float64") + array
    array[:] = 100
    close(result, [2, 2, 2])


# -- choosing ----------------------------------------------------------------------------------------------------------


def test_where():
    c = np.array([[True], [False]])
    x, y = np.arange(3.0), np.float64(-1)
    close(pb.where(c, x, y), np.where(c, x, y))
    close(pb.where(pb.asarray([0, 2, 0]), pb.asarray(x), 5), np.where([0, 2, 0], x, 5))
    assert pb.where(c, 1, 2).dtype is pb.int64
    assert pb.where(c, pb.ones(1, dtype="int8"), 2).dtype is pb.int8


def test_clip():
    x = np.array([-3.0, 0.5, 3.0, np.nan])
    close(pb.clip(x, -1, 1), np.clip(x, -1, 1))
    close(pb.clip(x, min=0), np.clip(x, 0, None))
    close(pb.clip(x, max=0), np.clip(x, None, 0))
    close(pb.clip(x), x)
    close(pb.clip(x, np.zeros(4), np.ones((2, 1))), np.clip(x, np.zeros(4), np.ones((2, 1))))
    i = np.array([-5, 5, 200], np.int16)
    np.testing.assert_array_equal(np.asarray(pb.clip(i, -1, 10**6)), np.clip(i, -1, 2**15 - 1))
    with pytest.raises(pb.DTypeError, match="float"):
        pb.clip(i, 0.5, 2)


def test_isclose():
    a = np.array([1.0, 1.0, np.inf, np.nan, 1e10])
    b = np.array([1.0 + 1e-9, 1.1, np.inf, np.nan, 1.00001e10])
    np.testing.assert_array_equal(np.asarray(pb.isclose(a, b)), np.isclose(a, b))
    np.testing.assert_array_equal(np.asarray(pb.isclose(a, b, equal_nan=True)), np.isclose(a, b, equal_nan=True))
    assert pb.allclose(a[:1], b[:1]) and not pb.allclose(a, b)
    assert pb.array_equal([1, 2], [1, 2]) and not pb.array_equal([1, 2], [1, 3]) and not pb.array_equal([1], [1, 1])


# -- derivatives of the composed ones ----------------------------------------------------------------------------------


def test_gradients_of_composed_functions_at_awkward_points():
    gradient = pb.grad(lambda a, b: pb.hypot(a, b), argnums=(0, 1))
    assert [g.item() for g in gradient(pb.asarray(3.0), pb.asarray(4.0))] == pytest.approx([0.6, 0.8])
    assert [g.item() for g in gradient(pb.asarray(0.0), pb.asarray(0.0))] == [0, 0]
    gradient = pb.grad(lambda a, b: pb.logaddexp(a, b), argnums=(0, 1))
    assert [g.item() for g in gradient(pb.asarray(1.0), pb.asarray(1.0))] == pytest.approx([0.5, 0.5])
    assert pb.grad(lambda x: x**0)(pb.asarray(2.0)).item() == 0
    assert pb.grad(lambda x: x**3)(pb.asarray(2.0)).item() == 12
    assert pb.grad(lambda x: x**-2)(pb.asarray(2.0)).item() == pytest.approx(-0.25)
    at_zero = pb.grad(lambda x: pb.sum(x**-2 + x**-3))(pb.asarray([0.0, np.inf]))
    np.testing.assert_array_equal(np.asarray(at_zero), [-np.inf, 0])


@pytest.mark.parametrize(
    ("function", "formula"),
    [
        # Hessians: of hypot ((b^2, -a b), (-a b, a^2)) / h^3, of logaddexp s (1 - s) ((1, -1), (-1, 1)).
        (pb.hypot, lambda a, b: np.array([[b * b, -a * b], [-a * b, a * a]]) / np.hypot(a, b) ** 3),
        (pb.logaddexp, lambda a, b: np.array([[1, -1], [-1, 1]]) / (2 + np.exp(a - b) + np.exp(b - a))),
    ],
)
def test_second_derivatives_where_operands_tie_or_vanish(function, formula):
    hessian = pb.hessian(lambda x: function(x[0], x[1]))
    for a, b in ((1.0, 1.0), (0.0, 2.0), (-3.0, 0.0), (2.0, -2.0), (0.5, 0.7)):
        found = np.asarray(hessian(pb.asarray(np.array([a, b]))))
        np.testing.assert_allclose(found, formula(a, b), rtol=1e-12, atol=1e-15)


def test_nan_is_not_a_flat_spot_of_hypot():
    gradient = pb.grad(lambda a, b: pb.hypot(a, b), argnums=(0, 1))
    assert np.isnan([g.item() for g in gradient(pb.asarray(np.nan), pb.asarray(2.0))]).all()


def test_half_types_are_rounded_once():
    a, b = np.float16([-0.712, 300, 40000]), np.float16([-0.809, 400, 30000])
    for function, formula in ((pb.logaddexp, np.logaddexp), (pb.hypot, np.hypot)):
        found = np.asarray(function(a, b))
        np.testing.assert_array_equal(found, formula(a.astype(np.float64), b.astype(np.float64)).astype(np.float16))
