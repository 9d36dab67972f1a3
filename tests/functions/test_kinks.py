"""The table of derivatives in docs/conventions.md, for the public functions, through every way to ask for a derivative.

Each row gives points at which a derivative is a matter of choice, or where the obvious formula fails, and the gradient
of the sum of the results there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from tests.backends import on_backend

INF, NAN = np.inf, np.nan
Array = np.ndarray[Any, Any]


def _weighted(*weights: float) -> Array:
    return np.array(weights)


def _index(*values: int) -> Array:
    return np.array(values)


_CROSS = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]])
C = np.array([[1.0, 2.0, -1.0], [0.5, 3.0, 4.0], [2.0, -2.0, 0.25]])

# name: function, points, gradients.
TABLE: dict[str, tuple[Callable[..., Any], list[Any], list[Any]]] = {
    # Activations at a kink: 0, and the slope.
    "relu": (nn.relu, [[-1, 0, 2]], [[0, 0, 1]]),
    "relu6": (nn.relu6, [[-1, 0, 3, 6, 7]], [[0, 0, 1, 0, 0]]),
    "hardtanh": (nn.hardtanh, [[-2, -1, 0, 1, 2]], [[0, 0, 1, 0, 0]]),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.1), [[-1, 0, 2]], [[0.1, 0.1, 1]]),
    "prelu": (lambda x, a: nn.prelu(x, a), [[-1, 0, 2], 0.25], [[0.25, 0.25, 1], -1]),
    "hardsigmoid": (nn.hardsigmoid, [[-3, 0, 3]], [[0, 1 / 6, 0]]),
    "hardswish": (nn.hardswish, [[-3, 0, 3, 4]], [[0, 0.5, 1, 1]]),
    "elu": (nn.elu, [[-1000, 0, 1000]], [[0, 1, 1]]),
    "celu": (nn.celu, [[-1000, 0, 1000]], [[0, 1, 1]]),
    "softshrink": (nn.softshrink, [[-1, -0.5, 0, 0.5, 1]], [[1, 0, 0, 0, 1]]),
    "hardshrink": (nn.hardshrink, [[-1, -0.5, 0, 0.5, 1]], [[1, 0, 0, 0, 1]]),
    "threshold": (lambda x: nn.threshold(x, 1.0, 7.0), [[0, 1, 2]], [[0, 0, 1]]),
    "softsign": (nn.softsign, [[0]], [[1]]),
    "softplus": (nn.softplus, [[-1000, 0, 1000]], [[0, 0.5, 1]]),
    "silu": (nn.silu, [[-1000, 0, 1000]], [[0, 0.5, 1]]),
    "mish": (nn.mish, [[-1000, 1000]], [[0, 1]]),
    "gelu": (nn.gelu, [[-1000, 0, 1000]], [[0, 0.5, 1]]),
    "log_sigmoid": (nn.log_sigmoid, [[-1000, 0, 1000]], [[1, 0.5, 0]]),
    # Losses where the prediction is right.
    "l1_loss": (lambda x, y: 2 * nn.l1_loss(x, y), [[1, 2], [1, 3]], [[0, -1], [0, 1]]),
    "smooth_l1_loss": (lambda x, y: 2 * nn.smooth_l1_loss(x, y), [[1, 2], [1, 3]], [[0, -1], [0, 1]]),
    "huber_loss": (lambda x, y: 2 * nn.huber_loss(x, y), [[1, 2], [1, 3]], [[0, -1], [0, 1]]),
    "pairwise_distance": (
        lambda x, y: nn.pairwise_distance(x, y, eps=0.0), [[[1, 2], [3, 4]], [[1, 2], [0, 0]]],
        [[[0, 0], [0.6, 0.8]], [[0, 0], [-0.6, -0.8]]],
    ),
    "triplet_margin_loss": (
        lambda a, p: nn.triplet_margin_loss(a, p, p + 10.0, eps=0.0), [[[1, 1]], [[1, 1]]], [[[0, 0]], [[0, 0]]]
    ),
    # abs, sign, and what is constant in pieces.
    "abs": (pb.abs, [[-2, 0, 3]], [[-1, 0, 1]]),
    "abs of a negative zero": (pb.abs, [[-0.0]], [[0]]),
    "sign": (pb.sign, [[-2, 0, 3]], [[0, 0, 0]]),
    "floor": (pb.floor, [[-1, 0, 1.5, 2]], [[0, 0, 0, 0]]),
    "ceil": (pb.ceil, [[-1, 0, 1.5, 2]], [[0, 0, 0, 0]]),
    "round": (pb.round, [[-0.5, 0, 1.5, 2]], [[0, 0, 0, 0]]),
    "trunc": (pb.trunc, [[-1, 0, 1.5, 2]], [[0, 0, 0, 0]]),
    "frac": (lambda x: pb.frac(x), [[-1, 0, 1.5]], [[1, 1, 1]]),
    "floor_divide": (pb.floor_divide, [[4.0, 5.0], [2.0, 3.0]], [[0, 0], [0, 0]]),
    "remainder": (pb.remainder, [[4.0, 5.0, -5.0], [2.0, 3.0, 3.0]], [[1, 1, 1], [-2, -1, 2]]),
    # Ties: half to each, and evenly.
    "maximum": (pb.maximum, [[1, 1, 2], [1, 2, 1]], [[0.5, 0, 1], [0.5, 1, 0]]),
    "minimum": (pb.minimum, [[1, 1, 2], [1, 2, 1]], [[0.5, 1, 0], [0.5, 0, 1]]),
    "fmax": (
        lambda x, y: pb.fmax(x, y), [[1, 1, 2, NAN, 3], [1, 2, 1, 4, NAN]], [[0.5, 0, 1, 0, 1], [0.5, 1, 0, 1, 0]]
    ),
    "fmin": (
        lambda x, y: pb.fmin(x, y), [[1, 1, 2, NAN, 3], [1, 2, 1, 4, NAN]], [[0.5, 1, 0, 0, 1], [0.5, 0, 1, 1, 0]]
    ),
    "max": (lambda x: pb.max(x, axis=1), [[[1, 3, 3], [0, 0, 0]]], [[[0, 0.5, 0.5], [1 / 3] * 3]]),
    "max along the first axis": (lambda x: pb.max(x, axis=0), [[[1, 3], [1, 0]]], [[[0.5, 1], [0.5, 0]]]),
    "min": (lambda x: pb.min(x, keepdims=True), [[[1, 3], [1, 4]]], [[[0.5, 0], [0.5, 0]]]),
    "nanmax": (lambda x: pb.nanmax(x, axis=0), [[3, NAN, 3, 1]], [[0.5, 0, 0.5, 0]]),
    "nanmin": (lambda x: pb.nanmin(x, axis=0), [[3, NAN, 1, 1]], [[0, 0, 0.5, 0.5]]),
    "segment_max with a segment of nothing": (
        lambda x: pb.segment_max(x, _index(0, 0, 1), 3)[:2], [[1, 1, 2]], [[0.5, 0.5, 1]]
    ),
    # clip: inclusive; NaN: 0.
    "clip": (lambda x: pb.clip(x, -1, 1), [[-2, -1, 0, 1, 2, NAN]], [[0, 1, 1, 1, 0, 0]]),
    "clip from below": (lambda x: pb.clip(x, 0, None), [[-2, 0, 2, NAN]], [[0, 1, 1, 0]]),
    # Products with no, one and two zeros.
    "prod": (lambda x: pb.prod(x, axis=1), [[[2, 5, 3], [2, 0, 3], [0, 0, 3]]], [[[15, 6, 10], [0, 6, 0], [0, 0, 0]]]),
    "cumulative_prod": (lambda x: pb.cumulative_prod(x), [[2, 0, 3, 0]], [[1, 8, 0, 0]]),
    # pow.
    "pow by x": (lambda x: x ** np.array([0, 1, 2, 3.0]), [[0, 0, 0, 0]], [[0, 1, 0, 0]]),
    "pow by both at 0": (pb.pow, [[0, 0, 0, 3], [0, 1, 2, 0]], [[0, 1, 0, 0], [0, 0, 0, np.log(3)]]),
    "pow of a negative base": (pb.pow, [[-2, -2], [2, 3]], [[-4, 12], [NAN, NAN]]),
    "pow by Python numbers": (lambda x: x**0 + x**1 + x**2, [[0, 3]], [[1, 7]]),
    "remainder by infinity and fmod": (
        lambda x, y: pb.remainder(x, y) + pb.fmod(x, y), [[4, -5], [2, 3]], [[2, 2], [-4, 3]]
    ),
    "xlogy": (lambda x, y: pb.xlogy(x, y), [[0, 2, 0], [0, 4, 3]], [[0, np.log(4), np.log(3)], [0, 0.5, 0]]),
    # Norms and distances at 0.
    "norm": (lambda x: pb.linalg.norm(x), [[0, 0]], [[0, 0]]),
    "norm, not at 0": (lambda x: pb.linalg.norm(x), [[3, 4]], [[0.6, 0.8]]),
    "vector_norm": (lambda x: pb.linalg.vector_norm(x, axis=1), [[[0, 0], [3, 4]]], [[[0, 0], [0.6, 0.8]]]),
    "vector_norm of order 1": (lambda x: pb.linalg.vector_norm(x, ord=1), [[0, -2, 3]], [[0, -1, 1]]),
    "vector_norm of order 3": (lambda x: pb.linalg.vector_norm(x, ord=3), [[0, 0]], [[0, 0]]),
    "vector_norm of order inf": (lambda x: pb.linalg.vector_norm(x, ord=INF), [[2, -2, 1]], [[0.5, -0.5, 0]]),
    "vector_norm of order 1/2": (lambda x: pb.linalg.vector_norm(x, ord=0.5), [[0, 4]], [[0, 1]]),
    "vector_norm of order 0": (lambda x: pb.linalg.vector_norm(x, ord=0), [[0, 4]], [[0, 0]]),
    "matrix_norm": (lambda x: pb.linalg.matrix_norm(x), [[[0, 0], [0, 0]]], [[[0, 0], [0, 0]]]),
    "matrix_norm, nuclear": (lambda x: pb.linalg.matrix_norm(x, ord="nuc"), [[[0, 0], [0, 0]]], [[[0, 0], [0, 0]]]),
    "cosine_similarity": (lambda x: nn.cosine_similarity(x, x), [[[3, 4]]], [[[0, 0]]]),
    "det of a singular matrix": (lambda x: pb.linalg.det(x), [[[1, 0], [0, 0]]], [[[0, 0], [0, 1]]]),
    "det of a matrix of rank 0": (lambda x: pb.linalg.det(x), [[[0, 0], [0, 0]]], [[[0, 0], [0, 0]]]),
    "sinc": (lambda x: pb.sinc(x), [[0]], [[0]]),
    "std": (lambda x: pb.std(x, axis=1), [[[2, 2, 2], [1, 1, 1]]], [[[0, 0, 0], [0, 0, 0]]]),
    "a distance": (lambda x, y: pb.linalg.norm(x - y), [[1, 2], [1, 2]], [[0, 0], [0, 0]]),
    "hypot": (pb.hypot, [[0, 3], [0, 4]], [[0, 0.6], [0, 0.8]]),
    "atan2": (pb.atan2, [[0.0], [0.0]], [[0], [0]]),
    "copysign": (pb.copysign, [[0, 1, -1], [-1, -1, -2]], [[0, -1, 1], [0, 0, 0]]),
    # Rows of -inf.
    "logsumexp": (
        lambda x: pb.logsumexp(x, axis=1), [[[-INF, -INF], [0, -INF], [1, 1]]], [[[0, 0], [1, 0], [0.5, 0.5]]]
    ),
    "softmax": (lambda x: nn.softmax(x, 1) ** 2, [[[-INF, -INF], [0, -INF]]], [[[0, 0], [0, 0]]]),
    "logaddexp": (pb.logaddexp, [[-INF, 1, -INF], [-INF, 1, 2]], [[0, 0.5, 0], [0, 0.5, 1]]),
    "logaddexp2": (lambda x, y: pb.logaddexp2(x, y), [[-INF, 1, -INF], [-INF, 1, 2]], [[0, 0.5, 0], [0, 0.5, 1]]),
    "logcumsumexp": (lambda x: pb.logcumsumexp(x), [[-INF, -INF, 0]], [[0, 0, 1]]),
    # Strong zeros: a branch that was not taken.
    "where, sqrt": (lambda x: pb.where(x < 1, x, pb.sqrt(x)), [[0, 4, -1]], [[1, 0.25, 1]]),
    "where, log": (lambda x: pb.where(x > 0, pb.log(x), 0), [[-1, 0, 2]], [[0, 0, 0.5]]),
    "where, divide": (lambda x, y: pb.where(y == 0, x, x / y), [[1, 1], [0, 2]], [[1, 0.5], [0, -0.25]]),
    "where, pow": (lambda x: pb.where(x > 0, x**-0.5, x), [[0, 4]], [[1, -1 / 16]]),
    "where, acos": (lambda x: pb.where(pb.abs(x) < 1, pb.acos(x), 0), [[1, 0, -1, 2]], [[0, -1, 0, 0]]),
    "where, norm": (
        lambda x: pb.where(x[:, 0] > 0, pb.sqrt(pb.sum(x * x, axis=1)), 0), [[[0, 0], [3, 4]]], [[[0, 0], [0.6, 0.8]]]
    ),
    "masked_fill": (lambda x: pb.masked_fill(pb.log(x), x <= 0, 7.0), [[0, -1, 2]], [[0, 0, 0.5]]),
    "a mask of zeros": (lambda x: pb.sqrt(x) * np.array([0.0, 1.0]), [[0, 4]], [[0, 0.25]]),
    "a slice": (lambda x: pb.sqrt(x)[1:], [[0, 4]], [[0, 0.25]]),
    "where without a branch": (lambda x: pb.where(np.array([False, True]), 1 / x, x), [[0, 2]], [[1, -0.25]]),
    # What the forward took.
    "sort": (lambda x: pb.sort(x) * _weighted(1, 2, 3), [[1, 1, 0]], [[2, 3, 1]]),
    "sort descending": (lambda x: pb.sort(x, descending=True) * _weighted(1, 2, 3), [[0, 1, 1]], [[3, 1, 2]]),
    "topk": (lambda x: pb.topk(x, 2)[0] * _weighted(1, 10), [[3, 1, 3]], [[1, 0, 10]]),
    "cummax": (lambda x: _values(pb.cummax(x)), [[1, 1, 0, 1, 2]], [[1, 2, 0, 1, 1]]),
    "cummin": (lambda x: _values(pb.cummin(x)), [[1, 1, 0, 1, 0]], [[1, 1, 2, 0, 1]]),
    "median": (lambda x: pb.median(x), [[2, 1, 2, 1]], [[0.5, 0, 0, 0.5]]),
    # Repeated indices add.
    "take": (lambda x: pb.take(x, _index(0, 0, 2)), [[1, 2, 3]], [[2, 0, 1]]),
    "an index array": (lambda x: x[_index(1, 1, -1)], [[1, 2, 3]], [[0, 2, 1]]),
    "take_along_axis": (lambda x: pb.take_along_axis(x, _index(0, 0)[None], 1), [[[1, 2]]], [[[2, 0]]]),
    "embedding": (lambda w: nn.embedding(_index(1, 1), w), [[[1, 2], [3, 4]]], [[[0, 0], [2, 2]]]),
    # Writing: the last of repeated writes, ties evenly, products exactly.
    "scatter, repeated": (
        lambda x, s: pb.scatter(x, 0, _index(1, 1, 0), s), [[1, 2, 3], [4, 5, 6]], [[0, 0, 1], [0, 1, 1]]
    ),
    "scatter by max": (
        lambda x, s: pb.scatter(x, 0, _index(0, 0, 1), s, mode="max"), [[2, 3], [2, 1, 3]], [[0.5, 0.5], [0.5, 0, 0.5]]
    ),
    "scatter by min, without x": (
        lambda x, s: pb.scatter(x, 0, _index(0, 0), s, mode="min", include_self=False), [[2, 3], [2, 2]],
        [[0, 1], [0.5, 0.5]],
    ),
    "scatter by multiply": (
        lambda x, s: pb.scatter(x, 0, _index(0, 0, 1), s, mode="mul"), [[2, 0], [0, 3, 0]], [[0, 0], [6, 0, 0]]
    ),
    "segment_max": (lambda x: pb.segment_max(x, _index(0, 0, 0)), [[1, 3, 3]], [[0, 0.5, 0.5]]),
    "segment_min of infinities": (lambda x: pb.segment_min(x, _index(0, 0)), [[INF, INF]], [[0.5, 0.5]]),
    "segment_prod": (lambda x: pb.segment_prod(x, _index(0, 0, 1, 1)), [[0, 3, 0, 0]], [[3, 0, 0, 0]]),
    "unique": (lambda x: pb.unique_values(x, size=2) * _weighted(1, 10), [[3, 1, 3, 1]], [[10, 1, 0, 0]]),
    # Equal eigenvalues and singular values, functions that no choice of vectors changes.
    "eigvalsh": (lambda a: pb.linalg.eigvalsh(a) ** 2, [np.eye(3).tolist()], [(2 * np.eye(3)).tolist()]),
    "eigh": (lambda a: _projector(a) * C, [np.diag([1.0, 1, 3]).tolist()], [(-_CROSS * (C + C.T) / 4).tolist()]),
    "svdvals": (lambda a: pb.linalg.svdvals(a), [np.eye(3).tolist()], [np.eye(3).tolist()]),
    "svd": (lambda a: _polar_factor(a) * C, [(2 * np.eye(3)).tolist()], [((C - C.T) / 4).tolist()]),
    # Ends of a domain, from within.
    "sqrt at 0": (pb.sqrt, [[0]], [[INF]]),
    "rsqrt at 0": (pb.rsqrt, [[0]], [[-INF]]),
    "the power 0.5 at 0": (lambda x: x**0.5, [[0]], [[INF]]),
    "the power -0.5 at 0": (lambda x: x**-0.5, [[0]], [[-INF]]),
    "cbrt at 0": (pb.cbrt, [[0]], [[INF]]),
    "reciprocal at 0": (pb.reciprocal, [[0]], [[-INF]]),
    "log at 0": (pb.log, [[0]], [[INF]]),
    "log1p at -1": (pb.log1p, [[-1]], [[INF]]),
    "asin at 1": (pb.asin, [[-1, 1]], [[INF, INF]]),
    "acos at 1": (pb.acos, [[-1, 1]], [[-INF, -INF]]),
    "acosh at 1": (pb.acosh, [[1]], [[INF]]),
    "atanh at 1": (pb.atanh, [[-1, 1]], [[INF, INF]]),
    "logit at 0 and 1": (pb.logit, [[0, 1]], [[INF, INF]]),
    "erfinv at 1": (pb.erfinv, [[-1, 1]], [[INF, INF]]),
    # Disconnected.
    "disconnected": (lambda x, y: x * 2, [[1, 2], [3]], [[2, 2], [0]]),
    "stop_gradient": (lambda x: pb.stop_gradient(x) * x, [[3]], [[3]]),
    "rounded on the way": (lambda x: x * pb.round(x), [[1.25]], [[1]]),
}  # fmt: skip


def _values(result: Any) -> Any:
    """Of a function that may give indices as well."""
    return result[0] if isinstance(result, tuple) else result


def _projector(a: Any) -> Any:
    """On the space of the two smaller eigenvalues, which are equal here."""
    vectors = pb.linalg.eigh((a + pb.matrix_transpose(a)) / 2)[1][:, :2]
    return vectors @ pb.matrix_transpose(vectors)


def _polar_factor(a: Any) -> Any:
    """The nearest orthogonal matrix."""
    u, _, vh = pb.linalg.svd(a)
    return u @ vh


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: pb.sum(function(*args))


def _numbers(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def _by_backward(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    tensors = [pb.asarray(np.asarray(a)).requires_grad_() for a in args]
    _loss(function)(*tensors).backward()
    return [pb.zeros_like(x) if x.grad is None else x.grad for x in tensors]


def _by_vmap(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    found = pb.vmap(pb.grad(_loss(function), _numbers(len(args))))(*[pb.stack([a, a]) for a in args])
    for x in found:
        np.testing.assert_array_equal(np.asarray(x[0]), np.asarray(x[1]))
    return [x[0] for x in found]


WAYS: dict[str, Callable[[Callable[..., Any], Sequence[Any]], Sequence[Any]]] = {
    "grad": lambda f, args: pb.grad(_loss(f), _numbers(len(args)))(*args),
    "jacrev": lambda f, args: pb.jacrev(_loss(f), _numbers(len(args)))(*args),
    "jacfwd": lambda f, args: pb.jacfwd(_loss(f), _numbers(len(args)))(*args),
    "jit of grad": lambda f, args: pb.jit(pb.grad(_loss(f), _numbers(len(args))))(*args),
    "grad of jit": lambda f, args: pb.grad(pb.jit(_loss(f)), _numbers(len(args)))(*args),
    "jit of jacfwd": lambda f, args: pb.jit(pb.jacfwd(_loss(f), _numbers(len(args))))(*args),
    "vmap of grad": _by_vmap,
    "backward": _by_backward,
}


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("name", TABLE)
def test_table(name: str, backend: str) -> None:
    function, points, expected = TABLE[name]
    args = [pb.asarray(np.array(point, np.float64)) for point in points]
    with on_backend(backend):
        for way, derivative in WAYS.items():
            if backend == "reference" and "jit" in way:
                continue  # recorded once more, and run by the same references
            found = derivative(function, args)
            for position, (got, want) in enumerate(zip(found, expected, strict=True)):
                np.testing.assert_allclose(
                    np.asarray(got), want, rtol=1e-12, atol=1e-14, err_msg=f"{name} by {way}, argument {position}"
                )


# What has a second derivative at the kink, in each order of modes.
SECOND: dict[str, tuple[Callable[..., Any], list[Any], list[Any]]] = {
    "where, sqrt": (lambda x: pb.where(x < 1, x * x, pb.sqrt(x)), [0, 4], [2, -1 / 32]),
    "where, log": (lambda x: pb.where(x > 0, pb.log(x), x**2), [-1, 0, 2], [2, 2, -0.25]),
    "where, divide": (lambda x: pb.where(x == 0, 0, 1 / x), [0, 2], [0, 0.25]),
    "where, acos": (lambda x: pb.where(pb.abs(x) < 1, pb.acos(x), 0), [1, 0], [0, 0]),
    "where, pow": (lambda x: pb.where(x > 0, x**1.5, 0), [0, 4], [0, 0.375]),
    "prod": (lambda x: pb.prod(x) * x, [0.0], [2]),
    "pow": (lambda x: x**2 + x**3, [0, 1], [2, 8]),
    "relu": (lambda x: nn.relu(x) * x, [-1, 0, 2], [0, 0, 2]),
    "abs": (lambda x: pb.abs(x) * x, [-1, 0, 2], [-2, 0, 2]),
    "clip": (lambda x: pb.clip(x, 0, 1) * x, [-1, 0, 0.5, 1, 2], [0, 2, 2, 2, 0]),
    "maximum": (lambda x: pb.maximum(x, 0) * x, [-1, 0, 2], [0, 1, 2]),
    "norm": (lambda x: pb.linalg.vector_norm(x[:, None], axis=1), [0, 2], [0, 0]),
    "std": (lambda x: pb.std(pb.stack([x, x, x]), axis=0), [0, 2], [0, 0]),
    "hypot": (lambda x: pb.hypot(x, x), [0, 2], [0, 0]),
    "cumulative_prod": (lambda x: pb.cumulative_prod(pb.stack([x, x, x]), axis=0), [0, 1], [2, 8]),
    "det": (lambda x: pb.linalg.det(x[:, None, None] * np.eye(2)), [0, 1], [2, 2]),
    "logsumexp": (lambda x: pb.logsumexp(pb.stack([x, x - pb.inf]), axis=0), [0, 1], [0, 0]),
    "sinc": (pb.sinc, [0], [-np.pi**2 / 3]),
    "huber": (lambda x: nn.huber_loss(x, 0 * x, reduction="none"), [0, 3], [1, 0]),
    "softplus": (nn.softplus, [-1000, 0, 1000], [0, 0.25, 0]),
    "xlogy": (lambda x: pb.xlogy(x, x + 1), [0], [2]),
    "a composite of ends": (lambda x: pb.where(x > 0, pb.sqrt(x) * pb.log(x), 0), [0, 1], [0, 0]),
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("outer", ["fwd", "rev"])
@pytest.mark.parametrize("inner", ["fwd", "rev"])
def test_second_derivatives(name: str, inner: str, outer: str) -> None:
    function, points, expected = SECOND[name]
    modes = {"fwd": pb.jacfwd, "rev": pb.jacrev}
    x = pb.asarray(np.array(points, np.float64))
    second = modes[outer](modes[inner](_loss(function)))
    for derivative in (second, pb.jit(second)):
        np.testing.assert_allclose(np.asarray(derivative(x)), np.diag(expected), rtol=1e-12, atol=1e-14)


# -- what has no derivative --------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "an integer argument": (lambda n: pb.sum(n * 2.0), np.array([1, 2]), r"argument 0.*int64.*\(2,\)"),
    "a bool argument": (lambda n: pb.sum(n * 2.0), np.array([True]), "argument 0.*bool"),
    "a result that is no scalar": (lambda x: x * 2, np.array([1.0, 2.0]), r"scalar, got shape \(2,\)"),
    "argmax": (lambda x: pb.argmax(x), np.array([1.0, 2.0]), "floating scalar, got int64"),
    "argsort": (lambda x: pb.argsort(x)[0], np.array([1.0, 2.0]), "floating scalar, got int64"),
    "a comparison": (lambda x: pb.all(x > 0), np.array([1.0, 2.0]), "floating scalar, got bool"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("transform", [pb.grad, lambda f: pb.jit(pb.grad(f))], ids=["grad", "jit of grad"])
def test_what_has_no_derivative_is_an_error(name: str, transform: Any) -> None:
    function, point, message = REFUSED[name]
    with pytest.raises(pb.GradientError, match=message):
        transform(function)(pb.asarray(point))


def test_integers_on_the_way_carry_no_derivative() -> None:
    """A cast to integers is a choice of the user's and constant in pieces."""
    gradient = pb.grad(lambda x: pb.sum(x * x.astype(pb.int64).astype(pb.float64)))(pb.asarray([1.5, 2.5]))
    assert np.asarray(gradient).tolist() == [1, 2]


def test_an_op_without_derivative_is_named() -> None:
    x = pb.asarray(np.array([1.0, 2.0], np.float16))
    for derivative in (pb.grad, pb.jacfwd):
        with pytest.raises(pb.GradientError, match=r"bitcast has no derivative.*made at .*test_kinks\.py"):
            np.asarray(derivative(lambda x: pb.sum(pb.bitcast(x, pb.bfloat16)))(x))


def test_every_way_finds_a_wrong_row() -> None:
    """The table can fail."""
    TABLE["wrong"] = (pb.abs, [[0.0]], [[1]])
    try:
        with pytest.raises(AssertionError, match="wrong by grad, argument 0"):
            test_table("wrong", "reference")
    finally:
        del TABLE["wrong"]
