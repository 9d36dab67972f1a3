"""Activations at kinks, far out, at NaN and in every floating dtype, in both backends; gates, shrinks and PReLU."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import functional as F

SMOOTH = {
    "elu": F.elu, "celu": F.celu, "selu": F.selu, "gelu": F.gelu, "gelu quick": lambda x: F.gelu(x, "quick"),
    "silu": F.silu, "mish": F.mish, "softplus": F.softplus, "softsign": F.softsign, "log_sigmoid": F.log_sigmoid,
    "tanhshrink": F.tanhshrink, "sigmoid": F.sigmoid, "tanh": F.tanh,
}  # fmt: skip
KINKED = {
    "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "hardshrink": F.hardshrink, "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.5, 2.0), "prelu": lambda x: F.prelu(x, 0.25),
}  # fmt: skip
GATES = {
    "glu": F.glu, "swiglu": F.swiglu, "geglu": F.geglu, "softmax": F.softmax, "softmin": F.softmin,
    "log_softmax": F.log_softmax,
}  # fmt: skip
ALL = SMOOTH | KINKED


def slope(function, at):  # type: ignore[no-untyped-def]
    return float(pb.grad(function)(pb.asarray(at, dtype=pb.float64)))


# Function, where, value, derivative: PyTorch's, by the table of conventions.
KINKS = [
    ("relu", 0.0, 0, 0), ("relu6", 0.0, 0, 0), ("relu6", 6.0, 6, 0), ("hardtanh", -1.0, -1, 0), ("hardtanh", 1.0, 1, 0),
    ("hardsigmoid", -3.0, 0, 0), ("hardsigmoid", 3.0, 1, 0), ("hardswish", -3.0, 0, 0), ("hardswish", 3.0, 3, 1),
    ("leaky_relu", 0.0, 0, 0.01), ("prelu", 0.0, 0, 0.25), ("hardshrink", 0.5, 0, 0), ("hardshrink", -0.5, 0, 0),
    ("softshrink", 0.5, 0, 0), ("softshrink", -0.5, 0, 0), ("threshold", 0.5, 2, 0), ("elu", 0.0, 0, 1),
    ("softsign", 0.0, 0, 1),
]  # fmt: skip


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("name", "at", "value", "derivative"), KINKS)
def test_kinks(name, at, value, derivative):
    assert float(ALL[name](pb.asarray(at, dtype=pb.float64))) == value
    assert slope(ALL[name], at) == pytest.approx(derivative, rel=1e-15)


def test_elu_at_0_has_the_slope_of_its_left_side():
    assert slope(lambda x: F.elu(x, 0.3), 0.0) == pytest.approx(0.3)


def test_derivatives_of_prelu_by_its_weight():
    x = pb.asarray([-2.0, 0.0, 3.0])
    weight = pb.asarray(0.25)
    assert float(pb.grad(lambda w: pb.sum(F.prelu(x, w)))(weight)) == -2
    infinite = pb.asarray([np.inf, -1.0])
    assert float(pb.grad(lambda w: pb.sum(F.prelu(infinite, w)))(weight)) == -1


@pytest.mark.parametrize("name", ALL)
def test_nan_stays_nan(name):
    assert math.isnan(float(ALL[name](pb.asarray(math.nan))))


def test_slopes_at_nan_are_those_of_pytorch():
    for function in (F.relu, F.relu6, F.hardtanh, F.hardshrink, F.softshrink):
        assert slope(function, math.nan) == 1
    assert slope(F.hardsigmoid, math.nan) == 0
    assert slope(F.leaky_relu, math.nan) == pytest.approx(0.01)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ALL)
def test_far_out_both_derivatives_are_finite_and_right(name):
    """On each side every one of them is a line but for softsign, whose second derivative vanishes too."""
    dtype = np.float32 if pb.get_backend() == "compiled" else np.float64
    x = pb.asarray(np.array([-1e19, -1e4, -750, 750, 1e4, 1e19], dtype))
    function = ALL[name]
    first = pb.grad(lambda x: pb.sum(function(x)))
    expected = {
        "elu": (0, 1), "celu": (0, 1), "selu": (0, 1.0507009873554805), "log_sigmoid": (1, 0), "tanhshrink": (1, 1),
        "sigmoid": (0, 0), "tanh": (0, 0), "softsign": (0, 0), "relu6": (0, 0), "leaky_relu": (0.01, 1),
        "hardtanh": (0, 0), "hardsigmoid": (0, 0), "hardshrink": (1, 1), "softshrink": (1, 1), "prelu": (0.25, 1),
    }.get(name, (0, 1))
    assert np.isfinite(np.asarray(function(x))).all()
    np.testing.assert_allclose(np.asarray(first(x)), np.repeat(expected, 3), rtol=1e-6, atol=3e-6)
    second = np.asarray(pb.grad(lambda x: pb.sum(first(x)))(x))
    np.testing.assert_allclose(second, 0, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [*ALL, *GATES])
def test_half_types_are_rounded_once(name, dtype):
    """The result and the gradient are those of float32 rounded to the half type."""
    function = (ALL | GATES)[name]
    x = pb.asarray(np.linspace(-5.3, 5.9, 64).astype(np.float32)).astype(dtype).reshape(4, 16)
    wide = x.astype("float32")
    found, expected = function(x), function(wide)
    assert found.dtype is x.dtype
    np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(expected.astype(dtype), np.float32))
    weights = pb.asarray(np.linspace(0.5, 2, found.size).astype(np.float32).reshape(found.shape))
    gradient = pb.grad(lambda x: pb.sum(function(x).astype("float32") * weights))
    rounding = 2e-3 if dtype == "float16" else 2e-2
    np.testing.assert_allclose(
        np.asarray(gradient(x), np.float32), np.asarray(gradient(wide)), rtol=rounding, atol=rounding
    )


@pytest.mark.parametrize("name", [*ALL, *GATES])
def test_integers_are_refused(name):
    with pytest.raises(DTypeError, match="floating"):
        (ALL | GATES)[name](pb.arange(4))


def test_what_arguments_must_be():
    x = pb.ones((2, 3))
    for call, error, match in (
        (lambda: F.gelu(x, "fast"), ArgumentError, "'quick'"),
        (lambda: F.hardtanh(x, 1.0, 1.0), ArgumentError, "min_val"),
        (lambda: F.celu(x, 0.0), ArgumentError, "alpha"),
        (lambda: F.softplus(x, 0.0), ArgumentError, "beta"),
        (lambda: F.hardshrink(x, -1.0), ArgumentError, "lambd"),
        (lambda: F.softshrink(x, math.nan), ArgumentError, "lambd"),
        (lambda: F.glu(x), ShapeError, "even"),
        (lambda: F.swiglu(x, 2), ShapeError, "swiglu"),
        (lambda: F.prelu(x, pb.ones(2)), ShapeError, "weight"),
        (lambda: F.prelu(pb.ones(3), pb.ones(3)), ShapeError, "channel"),
        (lambda: F.softmax(x, 5), ShapeError, "softmax"),
        (lambda: nn.PReLU(0), ShapeError, "num_parameters"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_gates_take_the_first_half_as_theirs():
    x = pb.asarray([[1.0, 2.0, 3.0, -4.0]])
    a, b = np.array([1.0, 2.0]), np.array([3.0, -4.0])
    np.testing.assert_allclose(np.asarray(F.glu(x))[0], a / (1 + np.exp(-b)), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(F.swiglu(x))[0], a / (1 + np.exp(-a)) * b, rtol=1e-6)
    assert F.glu(pb.zeros((0, 4))).shape == (0, 2)


@pytest.mark.usefixtures("backend")
def test_rows_of_minus_infinity_have_no_gradient():
    x = pb.asarray([[-np.inf, -np.inf], [0.5, -np.inf], [0.5, 0.25]], dtype=pb.float64)
    weights = pb.asarray([1.0, 2.0], dtype=pb.float64)
    for function, value in ((F.softmax, [0, 0]), (F.log_softmax, [-np.inf, -np.inf])):
        np.testing.assert_array_equal(np.asarray(function(x))[0], value)
        gradient = pb.grad(lambda x, f=function: pb.sum(f(x) * weights))
        found = np.asarray(gradient(x))
        np.testing.assert_array_equal(found[0], 0)
        assert np.isfinite(found).all()
        second = pb.grad(lambda x, g=gradient: pb.sum(g(x) * weights))
        assert np.isfinite(np.asarray(second(x))).all()


def test_a_row_with_infinity_is_nan_as_in_pytorch():
    for function in (F.softmax, F.log_softmax):
        assert np.isnan(np.asarray(function(pb.asarray([np.inf, 0.0])))).all()


def test_softmax_does_not_see_the_offset_of_its_row():
    x = np.array([[0.5, -1.0, 2.0]])
    for offset in (1e5, -1e5):
        np.testing.assert_allclose(
            np.asarray(F.softmax(pb.asarray(x + offset))), np.asarray(F.softmax(pb.asarray(x))), rtol=1e-10
        )


MODULES = [
    (nn.PReLU(3, 0.1), lambda x: F.prelu(x, pb.full((3,), 0.1))), (nn.Tanhshrink(), F.tanhshrink),
    (nn.Hardshrink(0.2), lambda x: F.hardshrink(x, 0.2)), (nn.Softshrink(0.2), lambda x: F.softshrink(x, 0.2)),
    (nn.Threshold(0.1, 3.0), lambda x: F.threshold(x, 0.1, 3.0)), (nn.Softmin(0), lambda x: F.softmin(x, 0)),
    (nn.GLU(0), lambda x: F.glu(x, 0)), (nn.SwiGLU(0), lambda x: F.swiglu(x, 0)),
    (nn.GeGLU(0, "tanh"), lambda x: F.geglu(x, 0, "tanh")),
    (nn.GELU("quick"), lambda x: F.gelu(x, "quick")),
]  # fmt: skip


@pytest.mark.parametrize(("module", "function"), MODULES, ids=lambda m: type(m).__name__)
def test_modules_are_the_functions(module, function):
    x = pb.asarray(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
    np.testing.assert_array_equal(np.asarray(module(x)), np.asarray(function(x)))
    assert type(module).__name__ in repr(module)


def test_prelu_is_trained():
    layer = nn.PReLU()
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    layer(pb.asarray([-2.0, 1.0])).sum().backward()
    assert float(layer.weight.grad[0]) == -2
    assert nn.PReLU(2, dtype=pb.float64).weight.dtype is pb.float64
