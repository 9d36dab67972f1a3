"""gelu and its kin against their definitions: values, derivatives of three orders, what is far out."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pullback as pb
from pullback.nn import functional as F

SCALE = math.sqrt(2 / math.pi)
DEFINITIONS = {
    "none": lambda x: x * 0.5 * (1.0 + pb.erf(x * math.sqrt(0.5))),
    "tanh": lambda x: x * 0.5 * (1.0 + pb.tanh((x + x * x * x * 0.044715) * SCALE)),
}


def derivative(function, order):
    for _ in range(order):
        function = (lambda f: lambda x: pb.grad(lambda y: pb.sum(f(y)))(x))(function)
    return function


@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", DEFINITIONS)
def test_derivatives_are_those_of_the_definition(kind, order):
    x = pb.asarray(np.linspace(-6, 6, 301))
    got = derivative(lambda x: F.gelu(x, kind), order)(x).numpy()
    np.testing.assert_allclose(got, derivative(DEFINITIONS[kind], order)(x).numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", DEFINITIONS)
def test_both_modes_agree(kind, order):
    x = pb.asarray(np.linspace(-3, 3, 41))
    function = derivative(lambda x: F.gelu(x, kind), order)
    forward = pb.jvp(function, (x,), (pb.ones_like(x),))[1].numpy()
    np.testing.assert_allclose(forward, derivative(function, 1)(x).numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", DEFINITIONS)
def test_far_from_zero_it_is_the_identity_or_nothing(kind, dtype):
    x = np.array([-np.inf, -1e30, -1000, -50, 0, 50, 1000, 1e30, np.inf], dtype)
    values = F.gelu(pb.asarray(x), kind).numpy()
    np.testing.assert_array_equal(values[1:], np.where(x > 0, x, 0)[1:])
    for order, above in ((1, 1.0), (2, 0.0), (3, 0.0)):
        found = derivative(lambda x: F.gelu(x, kind), order)(pb.asarray(x)).numpy()
        np.testing.assert_array_equal(np.delete(found, 4), np.delete(np.where(x > 0, above, 0), 4))
    assert np.isnan(derivative(lambda x: F.gelu(x, kind), 1)(pb.asarray(np.array([np.nan], dtype))).numpy()).all()


def test_float32_is_right_where_the_distribution_is_small_too():
    """1 + erf cancels there, the tail of the distribution by itself does not."""
    from scipy.special import ndtr

    x = np.linspace(-12, 12, 60_001).astype(np.float32)
    wide = x.astype(np.float64)
    expected = ndtr(wide)
    values = F.gelu(pb.asarray(x)).numpy()
    np.testing.assert_allclose(values[x < 0], (wide * expected)[x < 0], rtol=8e-6)
    np.testing.assert_allclose(values[x >= 0], (wide * expected)[x >= 0], rtol=5e-7)
    slope = expected + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(derivative(F.gelu, 1)(pb.asarray(x)).numpy(), slope, rtol=0, atol=3e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", DEFINITIONS)
def test_half_types_are_rounded_once(kind, dtype):
    x = pb.asarray(np.linspace(-4, 4, 99).astype(np.float32)).astype(getattr(pb, dtype))
    wide = F.gelu(x.astype(pb.float32), kind).astype(getattr(pb, dtype))
    np.testing.assert_array_equal(F.gelu(x, kind).astype(pb.float32).numpy(), wide.astype(pb.float32).numpy())
