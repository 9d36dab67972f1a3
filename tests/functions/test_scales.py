"""Large and small arguments: functions whose obvious formulas overflow or vanish, in float32 near an end of its range,
against the same functions in float64, where nothing is near an end. Values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn

X = np.array([[0.7, -1.3, 2.1, 0.4], [1.9, 0.3, -0.8, -2.2], [-0.6, 1.1, 0.9, 1.7]])
Y = np.array([[1.2, 0.5, -0.9, 1.4], [-0.3, 2.0, 0.6, 1.0], [0.8, -1.5, 1.3, 0.2]])
A = X[:3, :3] + np.diag([2.0, 3.0, 4.0])

# Homogeneous functions of degree 0 and 1, at arguments times 1e19 and 1e-19, whose squares are no float32.
HOMOGENEOUS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "linalg.norm": (lambda x: pb.linalg.norm(x), (X,)),
    "linalg.norm of rows": (lambda x: pb.linalg.norm(x, axis=1), (X,)),
    "linalg.vector_norm of order 3": (lambda x: pb.linalg.vector_norm(x, ord=3, axis=0), (X,)),
    "linalg.vector_norm of order 1": (lambda x: pb.linalg.vector_norm(x, ord=1), (X,)),
    "linalg.vector_norm of order inf": (lambda x: pb.linalg.vector_norm(x, ord=np.inf, axis=1), (X,)),
    "linalg.matrix_norm": (lambda x: pb.linalg.matrix_norm(x), (X,)),
    "linalg.matrix_norm, nuclear": (lambda x: pb.linalg.matrix_norm(x, ord="nuc"), (X,)),
    "linalg.matrix_norm of order 2": (lambda x: pb.linalg.matrix_norm(x, ord=2), (X,)),
    "linalg.svdvals": (lambda x: pb.linalg.svdvals(x), (X,)),
    "linalg.eigvalsh": (lambda x: pb.linalg.eigvalsh(x + x.T), (A,)),
    "linalg.solve": (lambda a, b: pb.linalg.solve(a, b[:3, 0]), (A, Y)),
    "linalg.qr": (lambda x: pb.linalg.qr(x)[1], (A,)),
    "hypot": (pb.hypot, (X, Y)),
    "atan2": (pb.atan2, (X, Y)),
    "std": (lambda x: pb.std(x, axis=1), (X,)),
    "mean": (lambda x: pb.mean(x, axis=1), (X,)),
    "divide": (pb.divide, (X, Y)),
    "a ratio of norms": (lambda x, y: pb.linalg.norm(x) / pb.linalg.norm(y), (X, Y)),
    "maximum": (pb.maximum, (X, Y)),
    "relu": (nn.relu, (X,)),
    "std of chosen elements": (lambda x: pb.std(x, axis=0, where=x > 0, correction=0), (X + 3,)),
}


def _gradients(function: Callable[..., Any], arrays: tuple[Any, ...], weights: Any = None) -> list[Any]:
    """Value, and the gradients of its weighted sum."""
    value, pullback = pb.vjp(function, *arrays)
    rng = np.random.default_rng(0)
    cotangent = pb.asarray(rng.uniform(0.5, 1.5, value.shape)).astype(value.dtype)
    return [np.asarray(x) for x in (value, *pullback(cotangent))]


@pytest.mark.parametrize("scale", [1e19, 1e-19])
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_homogeneous(name: str, scale: float) -> None:
    function, arrays = HOMOGENEOUS[name]
    single = tuple([pb.asarray((a * scale).astype(np.float32)) for a in arrays])
    double = tuple([pb.asarray(np.asarray(a).astype(np.float64)) for a in single])
    for got, expected in zip(_gradients(function, single), _gradients(function, double), strict=True):
        assert got.dtype == np.float32
        largest = np.max(np.abs(expected))
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=3e-6 * largest, err_msg=name)


# Far out, where exponentials overflow or vanish.
FAR: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "logsumexp": (lambda x: pb.logsumexp(x, axis=1), (X,)),
    "logcumsumexp": (lambda x: pb.logcumsumexp(x, axis=1), (X,)),
    "softmax": (lambda x: nn.softmax(x, 1), (X,)),
    "log_softmax": (lambda x: nn.log_softmax(x, 1), (X,)),
    "softplus": (nn.softplus, (X,)),
    "log_sigmoid": (nn.log_sigmoid, (X,)),
    "sigmoid": (pb.sigmoid, (X,)),
    "silu": (nn.silu, (X,)),
    "mish": (nn.mish, (X,)),
    "gelu": (nn.gelu, (X,)),
    "gelu by tanh": (lambda x: nn.gelu(x, approximate="tanh"), (X,)),
    "elu": (nn.elu, (X,)),
    "tanh": (pb.tanh, (X,)),
    "softsign": (nn.softsign, (X,)),
    "logaddexp": (pb.logaddexp, (X, Y)),
    "logaddexp2": (lambda x, y: pb.logaddexp2(x, y), (X, Y)),
    "binary_cross_entropy_with_logits": (
        lambda x: nn.binary_cross_entropy_with_logits(x, (x > 0).astype(x.dtype)), (X,)
    ),
    "cross_entropy": (lambda x: nn.cross_entropy(x, pb.asarray(np.array([0, 1, 3]))), (X,)),
    "layer_norm": (lambda x: nn.layer_norm(x, (4,)), (X,)),
    "rms_norm": (lambda x: nn.rms_norm(x, (4,), eps=1e-12), (X,)),
    "erf": (pb.erf, (X,)),
    "asinh": (pb.asinh, (X,)),
    "atan": (pb.atan, (X,)),
}


@pytest.mark.parametrize("scale", [1e4, 1e-4, 100.0])
@pytest.mark.parametrize("name", FAR)
def test_far_out(name: str, scale: float) -> None:
    """Finite everywhere, and in float32 what float64 says."""
    function, arrays = FAR[name]
    single = tuple([pb.asarray((a * scale).astype(np.float32)) for a in arrays])
    double = tuple([pb.asarray(np.asarray(a).astype(np.float64)) for a in single])
    for got, expected in zip(_gradients(function, single), _gradients(function, double), strict=True):
        assert np.isfinite(expected).all(), name
        largest = np.max(np.abs(expected), initial=1e-4)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=4e-6 * largest, err_msg=name)
        second = pb.grad(lambda *a: pb.sum(pb.grad(lambda *b: pb.sum(function(*b)))(*a)))(*single)
        assert np.isfinite(np.asarray(second)).all(), f"{name}: second derivative"
