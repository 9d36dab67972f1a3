"""Activations, normalisations, dropout and one_hot: values by formulas in float64, derivatives by differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, ShapeError
from pullback.nn import functional as F
from tests.backends import on_backend

_GELU = math.sqrt(2.0 / math.pi)

ACTIVATIONS = {
    "relu": (F.relu, lambda x: np.maximum(x, 0)),
    "relu6": (F.relu6, lambda x: np.clip(x, 0, 6)),
    "leaky_relu": (F.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "elu": (F.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "elu 0.5": (lambda x: F.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0)))),
    "celu 2": (lambda x: F.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2))),
    "selu": (
        F.selu,
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    ),
    "gelu": (F.gelu, lambda x: x * special.ndtr(x)),
    "gelu tanh": (
        lambda x: F.gelu(x, "tanh"), lambda x: 0.5 * x * (1 + np.tanh(_GELU * (x + 0.044715 * x**3))),
    ),
    "silu": (F.silu, lambda x: x * special.expit(x)),
    "mish": (F.mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "sigmoid": (F.sigmoid, special.expit),
    "tanh": (F.tanh, np.tanh),
    "softplus": (F.softplus, lambda x: np.logaddexp(x, 0)),
    "softplus 2": (lambda x: F.softplus(x, 2.0), lambda x: np.logaddexp(2 * x, 0) / 2),
    "softsign": (F.softsign, lambda x: x / (1 + np.abs(x))),
    "hardtanh": (F.hardtanh, lambda x: np.clip(x, -1, 1)),
    "hardsigmoid": (F.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "hardswish": (F.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "log_sigmoid": (F.log_sigmoid, special.log_expit),
    "softmax": (F.softmax, lambda x: special.softmax(x, -1)),
    "softmax 0": (lambda x: F.softmax(x, 0), lambda x: special.softmax(x, 0)),
    "log_softmax": (F.log_softmax, lambda x: special.log_softmax(x, -1)),
}

MODULES = {
    "relu": nn.ReLU(), "relu6": nn.ReLU6(), "leaky_relu": nn.LeakyReLU(), "elu 0.5": nn.ELU(0.5),
    "celu 2": nn.CELU(2.0),
    "selu": nn.SELU(), "gelu": nn.GELU(), "gelu tanh": nn.GELU("tanh"), "silu": nn.SiLU(), "mish": nn.Mish(),
    "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh(), "softplus 2": nn.Softplus(2.0), "softsign": nn.Softsign(),
    "hardtanh": nn.Hardtanh(), "hardsigmoid": nn.Hardsigmoid(), "hardswish": nn.Hardswish(),
    "log_sigmoid": nn.LogSigmoid(), "softmax 0": nn.Softmax(0), "log_softmax": nn.LogSoftmax(),
}  # fmt: skip


def sample(shape=(5, 7), seed=0, scale=3.0):
    return np.random.default_rng(seed).standard_normal(shape) * scale


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values(name):
    function, formula = ACTIVATIONS[name]
    x = sample()
    np.testing.assert_allclose(np.asarray(function(pb.asarray(x))), formula(x), rtol=1e-12, atol=1e-14)
    single = function(pb.asarray(x.astype(np.float32)))
    assert single.dtype is pb.float32
    np.testing.assert_allclose(np.asarray(single), formula(x), rtol=1e-5, atol=1e-6)
    half = function(pb.asarray(x.astype(np.float16)))
    assert half.dtype is pb.float16
    np.testing.assert_allclose(np.asarray(half), formula(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_the_functions(name):
    x = pb.asarray(sample())
    np.testing.assert_array_equal(np.asarray(MODULES[name](x)), np.asarray(ACTIVATIONS[name][0](x)))
    assert "Module" not in repr(MODULES[name])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives(name):
    function, formula = ACTIVATIONS[name]
    x = sample(seed=1)
    weights = sample(seed=2)
    step = 1e-6
    expected = np.empty_like(x)
    for index in np.ndindex(x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][index] += step
        moved[1][index] -= step
        expected[index] = np.sum(weights * (formula(moved[0]) - formula(moved[1]))) / (2 * step)
    found = pb.grad(lambda x: pb.sum(function(x) * weights))(pb.asarray(x))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-7)


KINKS = [
    ("relu", 0.0, 0.0), ("relu", -0.0, 0.0), ("relu6", 0.0, 0.0), ("relu6", 6.0, 0.0), ("hardtanh", -1.0, 0.0),
    ("hardtanh", 1.0, 0.0), ("leaky_relu", 0.0, 0.01), ("hardsigmoid", -3.0, 0.0), ("hardsigmoid", 3.0, 0.0),
    ("hardswish", -3.0, 0.0), ("hardswish", 3.0, 1.0), ("elu", 0.0, 1.0), ("softsign", 0.0, 1.0),
    ("softplus", 0.0, 0.5),
    ("silu", 0.0, 0.5), ("gelu", 0.0, 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "at", "slope"), KINKS)
def test_derivatives_at_kinks(name, at, slope):
    found = pb.grad(ACTIVATIONS[name][0])(pb.asarray(at, dtype=pb.float64))
    assert float(found) == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if "softmax" not in n])
@pytest.mark.parametrize("at", [-1e4, 1e4])
def test_far_out_nothing_is_nan(name, at):
    function, formula = ACTIVATIONS[name]
    x = pb.asarray(np.float32(at))
    assert np.isfinite(float(function(x)))
    np.testing.assert_allclose(float(function(x)), formula(np.float64(at)), rtol=1e-6, atol=1e-30)
    assert np.isfinite(float(pb.grad(function)(x)))


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "hardtanh", "softplus"])
def test_nan_stays_nan(name):
    assert np.isnan(float(ACTIVATIONS[name][0](pb.asarray(float("nan")))))


def test_integers_are_refused():
    with pytest.raises(DTypeError, match="relu"):
        F.relu(pb.arange(3))
    with pytest.raises(ValueError, match="approximate"):
        F.gelu(pb.ones(1), "fast")


def test_softmax_of_rows_without_a_finite_value():
    x = pb.asarray([[-np.inf, -np.inf], [0.0, -np.inf]], dtype=pb.float64)
    np.testing.assert_array_equal(np.asarray(F.softmax(x)), [[0, 0], [1, 0]])
    np.testing.assert_array_equal(np.asarray(F.log_softmax(x)), [[-np.inf, -np.inf], [0, -np.inf]])
    found = pb.grad(lambda x: pb.sum(F.softmax(x) * pb.asarray([1.0, 2.0], dtype=pb.float64)))(x)
    np.testing.assert_array_equal(np.asarray(found), np.zeros((2, 2)))
    large = F.softmax(pb.asarray([1e30, 1e30, 0.0]))
    np.testing.assert_array_equal(np.asarray(large), [0.5, 0.5, 0])


# -- normalisation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (5, 7), 7])
def test_layer_norm(shape):
    x = sample((3, 5, 7))
    axes = (-1,) if isinstance(shape, int) or len(shape) == 1 else (-2, -1)
    full = (shape,) if isinstance(shape, int) else shape
    w, b = sample(full, 1), sample(full, 2)
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5) * w + b
    found = F.layer_norm(pb.asarray(x), shape, pb.asarray(w), pb.asarray(b))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10)
    plain = nn.LayerNorm(shape, elementwise_affine=False)(pb.asarray(x))
    np.testing.assert_allclose(np.asarray(plain) * w + b, expected, rtol=1e-10)


def test_rms_norm():
    x = sample((3, 5, 7))
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(np.asarray(F.rms_norm(pb.asarray(x), 7, eps=1e-3)), expected, rtol=1e-10)
    layer = nn.RMSNorm(7, eps=1e-3, dtype=pb.float64)
    np.testing.assert_allclose(np.asarray(layer(pb.asarray(x))), expected, rtol=1e-10)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_norms_refuse_other_shapes():
    with pytest.raises(ShapeError, match="normalized_shape"):
        F.layer_norm(pb.ones((2, 3)), 4)
    with pytest.raises(ShapeError, match="rms_norm"):
        F.rms_norm(pb.ones((2, 3)), (2, 4))


# -- dropout and one_hot -----------------------------------------------------------------------------------------------


def test_dropout():
    x = pb.ones(20_000)
    y = np.asarray(F.dropout(x, 0.3, key=pb.random.key(1)))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((y == 0).mean() - 0.3) < 0.02
    assert F.dropout(x, 0.3, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert not np.asarray(F.dropout(x, 1.0)).any()
    with pytest.raises(ValueError, match="p must be"):
        F.dropout(x, 1.5)


def test_dropout_passes_the_gradient_of_what_it_kept():
    x = pb.ones(100)
    key = pb.random.key(2)
    y = np.asarray(F.dropout(x, 0.5, key=key))
    g = np.asarray(pb.grad(lambda x: F.dropout(x, 0.5, key=key).sum())(x))
    np.testing.assert_array_equal(g, y)


def test_dropout_module():
    layer = nn.Dropout(0.5)
    x = pb.ones(1000)
    pb.random.seed(0)
    a, b = np.asarray(layer(x)), np.asarray(layer(x))
    assert not np.array_equal(a, b)
    pb.random.seed(0)
    np.testing.assert_array_equal(np.asarray(layer(x)), a)
    layer.eval()
    assert layer(x) is x
    with pytest.raises(ValueError, match="p must be"):
        nn.Dropout(-0.1)


def test_one_hot():
    labels = np.array([[0, 2], [1, 1]], np.int32)
    np.testing.assert_array_equal(np.asarray(F.one_hot(labels, 3)), np.eye(3)[labels])
    assert F.one_hot(labels, 3).dtype is pb.int64
    assert F.one_hot(labels, 3, dtype=pb.float32).dtype is pb.float32
    assert F.one_hot(labels).shape == (2, 2, 3)
    with pytest.raises(IndexError, match="index 3"):
        np.asarray(F.one_hot(np.array([0, 3]), 3))
    with pytest.raises(IndexError, match="index -1"):
        np.asarray(F.one_hot(np.array([0, -1]), 3))
    with pytest.raises(DTypeError):
        F.one_hot(pb.ones(2), 3)


_HALF_CASES = {
    "softplus": (F.softplus, lambda x: np.logaddexp(x, 0)),
    "log_sigmoid": (F.log_sigmoid, special.log_expit),
    "mish": (F.mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "silu": (F.silu, lambda x: x * special.expit(x)),
    "gelu tanh": (
        lambda x: F.gelu(x, "tanh"), lambda x: 0.5 * x * (1 + np.tanh(_GELU * (x + 0.044715 * x**3))),
    ),
    "hardswish": (F.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "layer_norm": (
        lambda x: F.layer_norm(x, x.shape[-1]),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "rms_norm": (
        lambda x: F.rms_norm(x, x.shape[-1], eps=1e-5),
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    ),
    "log_softmax": (F.log_softmax, lambda x: special.log_softmax(x, -1)),
}


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("name", _HALF_CASES)
def test_half_types_are_computed_in_float32(name, backend):
    """float16: e**x overflows above 11, x**3 above 40, x**2 above 255; none of it may reach the result."""
    function, formula = _HALF_CASES[name]
    x = np.array([[15, -15, 12, 300, -300, 9000, -9000, 1], [-11.5, 0.25, -3, 11.5, 20, 40, 41, 255]], np.float16)
    with on_backend(backend):
        found = function(pb.asarray(x))
        slope = pb.grad(lambda x: pb.sum(function(x).astype(pb.float32) * weights))
        weights = np.linspace(1, 2, x.size).reshape(x.shape).astype(np.float32)
        in_half = np.asarray(slope(pb.asarray(x)), np.float32)
    assert found.dtype == pb.float16
    np.testing.assert_allclose(np.asarray(found, np.float64), formula(x.astype(np.float64)), rtol=2e-3, atol=1e-6)
    in_float = np.asarray(slope(pb.asarray(x.astype(np.float32))))
    np.testing.assert_allclose(in_half, in_float, rtol=2e-2, atol=2e-3)


def test_log_sigmoid_far_from_zero():
    x = np.array([-400.0, -300, -40, -21, -20, 0, 20, 40, 300, 800])
    np.testing.assert_allclose(np.asarray(F.log_sigmoid(pb.asarray(x))), special.log_expit(x), rtol=1e-15)
    slope = pb.grad(lambda x: pb.sum(F.log_sigmoid(x)))
    np.testing.assert_allclose(np.asarray(slope(pb.asarray(x))), special.expit(-x), rtol=1e-14)
    curvature = np.asarray(pb.grad(lambda x: pb.sum(slope(x)))(pb.asarray(x)))
    np.testing.assert_allclose(curvature, -special.expit(x) * special.expit(-x), rtol=1e-13, atol=1e-15)
