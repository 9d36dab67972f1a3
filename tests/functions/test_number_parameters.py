"""Parameters that are numbers, given as tensors that a gradient is taken by: the right gradient, or an error.

A number that decides what is computed (``if beta == 1``, ``float(p)``) would lose its gradient without a word.
"""

import inspect

import numpy as np
import pytest

import pullback as pb
from pullback import nn

RNG = np.random.default_rng(0)
X, Y = (pb.asarray(RNG.standard_normal((4, 6))) for _ in range(2))
UNIT = pb.asarray(RNG.uniform(0.2, 0.8, (4, 6)))
SIGNS = pb.asarray(np.array([1.0, -1.0, 1.0, -1.0]))
LABELS = pb.asarray(np.array([0, 3, 5, 1]))
HOLES = pb.asarray(np.array([[1.0, np.nan, np.inf], [-np.inf, 2.0, 3.0]]))
TALL = pb.asarray(RNG.standard_normal((2, 5, 4)))
ROWS = pb.asarray(np.array([0, 2]))
KEY = pb.random.key(0)

#: of each function with parameters that are numbers, a call; of which the arguments that decide nothing are left out
CALLS = {
    "isclose": lambda **p: pb.isclose(X, Y, **p),
    "arange": lambda start=0.5, stop=3.25, step=0.5: pb.arange(start, stop, step, dtype="float64"),
    "index_add": lambda **p: pb.index_add(X, 0, ROWS, X[:2], **p),
    "logit": lambda **p: pb.logit(UNIT, **p), "nan_to_num": lambda **p: pb.nan_to_num(HOLES, **p),
    "nanstd": lambda **p: pb.nanstd(X, axis=0, **p), "nanvar": lambda **p: pb.nanvar(X, axis=0, **p),
    "std": lambda **p: pb.std(X, axis=0, **p), "var": lambda **p: pb.var(X, axis=0, **p),
    "norm": lambda **p: pb.norm(X, axis=1, **p), "vector_norm": lambda **p: pb.linalg.vector_norm(X, axis=1, **p),
    "matrix_norm": lambda **p: pb.linalg.matrix_norm(X, **p), "cond": lambda **p: pb.linalg.cond(X[:, :4], **p),
    "lstsq": lambda **p: pb.linalg.lstsq(X, Y[:, 0], **p)[0], "pinv": lambda **p: pb.linalg.pinv(X, **p),
    "matrix_rank": lambda **p: pb.linalg.matrix_rank(X, **p),
    "alpha_dropout": lambda **p: nn.functional.alpha_dropout(X, key=KEY, **p),
    "dropout": lambda **p: nn.dropout(X, key=KEY, **p), "dropout1d": lambda **p: nn.dropout1d(TALL, key=KEY, **p),
    "dropout2d": lambda **p: nn.dropout2d(TALL, key=KEY, **p),
    "dropout3d": lambda **p: nn.dropout3d(TALL[None, None], key=KEY, **p),
    "batch_norm": lambda **p: nn.batch_norm(X, None, None, training=True, **p),
    "group_norm": lambda **p: nn.group_norm(X, 2, **p), "instance_norm": lambda **p: nn.instance_norm(TALL, **p),
    "layer_norm": lambda **p: nn.layer_norm(X, 6, **p), "rms_norm": lambda **p: nn.rms_norm(X, 6, **p),
    "celu": lambda **p: nn.celu(X, **p), "elu": lambda **p: nn.elu(X, **p),
    "hardshrink": lambda **p: nn.hardshrink(X, **p), "softshrink": lambda **p: nn.softshrink(X, **p),
    "hardtanh": lambda **p: nn.hardtanh(X, **p), "leaky_relu": lambda **p: nn.leaky_relu(X, **p),
    "softplus": lambda **p: nn.softplus(X, **p),
    "threshold": lambda threshold=0.2, value=0.4: nn.threshold(X, threshold, value),
    "cosine_embedding_loss": lambda **p: nn.cosine_embedding_loss(X, Y, SIGNS, **p),
    "cosine_similarity": lambda **p: nn.cosine_similarity(X, Y, **p),
    "cross_entropy": lambda **p: nn.cross_entropy(X, LABELS, **p),
    "gaussian_nll_loss": lambda **p: nn.gaussian_nll_loss(X, Y, UNIT, **p),
    "huber_loss": lambda **p: nn.huber_loss(X, Y, **p), "smooth_l1_loss": lambda **p: nn.smooth_l1_loss(X, Y, **p),
    "linear_cross_entropy": lambda **p: nn.linear_cross_entropy(X, X, LABELS % 4, **p),
    "pairwise_distance": lambda **p: nn.pairwise_distance(X, Y, **p),
    "poisson_nll_loss": lambda **p: nn.poisson_nll_loss(UNIT, Y, log_input=False, **p),
    "triplet_margin_loss": lambda **p: nn.triplet_margin_loss(X, Y, X * Y, **p),
    "interpolate": lambda **p: nn.interpolate(TALL, mode="linear", **p),
    "lp_pool1d": lambda norm_type=2.0: nn.lp_pool1d(TALL**2, norm_type, 2),
    "lp_pool2d": lambda norm_type=2.0: nn.lp_pool2d(TALL**2, norm_type, 2),
    "lp_pool3d": lambda norm_type=2.0: nn.lp_pool3d(TALL[None] ** 2, norm_type, 2),
    "rope": lambda **p: nn.rope(TALL, **p),
    "scaled_dot_product_attention": lambda **p: nn.scaled_dot_product_attention(TALL, TALL, TALL, key=KEY, **p),
    "packed_attention": lambda **p: nn.packed_attention(TALL, TALL, TALL, np.array([0, 2, 5]), key=KEY, **p),
}  # fmt: skip


def functions():
    """Name and parameters that are numbers of every public function of arrays that has some."""
    found = {}
    for module in (pb, nn, nn.functional, pb.linalg, pb.random):
        for name in module.__all__ if hasattr(module, "__all__") else dir(module):
            function = getattr(module, name)
            if name == "allclose" or name.startswith("_") or not inspect.isfunction(function):
                continue
            numbers = [p.name for p in inspect.signature(function).parameters.values() if "float" in str(p.annotation)]
            if numbers:
                found[name] = numbers
    return found


FUNCTIONS = functions()
CASES = [(name, parameter) for name in CALLS for parameter in FUNCTIONS.get(name, ())]


def test_every_function_has_a_call():
    assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize(("name", "parameter"), CASES, ids=[f"{name} {parameter}" for name, parameter in CASES])
def test_a_tensor_has_the_right_gradient_or_is_refused(name, parameter):
    def total(number):
        result = CALLS[name](**{parameter: number})
        return pb.sum(pb.sin(result * 1.3 + 0.2)) if result.dtype.kind == "f" else pb.sum(result) * 0.0

    step = 1e-5
    for value in (0.0, 0.3, 1.0):
        try:
            found = float(pb.grad(total)(pb.asarray(value, dtype="float64")))
            around = [float(total(value + n * step)) for n in (-2, -1, 1, 2)]
        except pb.PullbackError:
            continue
        slopes = [(around[1] - around[0]) / step, (around[3] - around[2]) / step]
        close = 1e-3 * (1.0 + max(map(abs, slopes)))
        if abs(slopes[0] - slopes[1]) < close:  # no kink
            assert found == pytest.approx(slopes[0], abs=2 * close)


def test_a_scale_of_attention_may_be_a_tensor():
    q, k, v = (pb.asarray(RNG.standard_normal((2, 7, 5))) for _ in range(3))
    scale = pb.asarray(0.3, dtype="float64")

    def loss(scale, causal):
        return pb.sum(nn.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale) ** 2)

    for causal in (False, True):
        pb.testing.check_grads(lambda s, causal=causal: loss(s, causal), (scale,))
        assert float(loss(scale, causal)) == pytest.approx(float(loss(0.3, causal)), rel=1e-12)
        of_each = pb.vmap(pb.grad(lambda s, causal=causal: loss(s, causal)))(pb.stack([scale, 2 * scale]))
        assert float(of_each[0]) == pytest.approx(float(pb.grad(loss)(scale, causal)), rel=1e-12)
    with pytest.raises(pb.ShapeError, match="scale must be a number or a 0-d tensor"):
        nn.scaled_dot_product_attention(q, k, v, scale=pb.ones(2, dtype="float64"))
    with pytest.raises(pb.ArgumentError, match="scale must be a number, got 'a'"):
        nn.scaled_dot_product_attention(q, k, v, scale="a")
