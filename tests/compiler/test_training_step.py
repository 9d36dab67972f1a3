"""What a training step does besides its products: how many kernels are left, and what they read and write."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler import options, products
from pullback.nn import functional as F

rng = np.random.default_rng(0)
ROWS, WIDTH, HIDDEN = 512, 48, 128
X, G = rng.standard_normal((2, ROWS, WIDTH))
UP, BIAS, DOWN = rng.standard_normal((HIDDEN, WIDTH)), rng.standard_normal(HIDDEN), rng.standard_normal((WIDTH, HIDDEN))
ACTIVATIONS = {"gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, "tanh"), "relu": F.relu, "silu": F.silu}
needs_tile = pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")


def gradients(activation):
    """A loss of a feed-forward block, and its gradients by the input and the parameters."""

    def loss(x, up, bias, down, g):
        return pb.sum(pb.square(F.linear(activation(F.linear(x, up, bias)), down) - g))

    return pb.value_and_grad(loss, argnums=(0, 1, 2, 3))


def arrays(dtype):
    return [array.astype(dtype) for array in (X, UP, BIAS, DOWN, G)]


@needs_tile
@pytest.mark.parametrize("name", ["gelu", "gelu tanh"])
def test_an_activations_slope_is_left_behind_by_the_forward_pass(name):
    steps = pb.explain(gradients(ACTIVATIONS[name]))(*arrays(np.float32)).steps
    kinds = [step.kind for step in steps]
    assert kinds.count("product") == 6
    assert "map" not in kinds
    forward = next(step for step in steps if "slope" in step.computes)
    assert forward.kind == "product"
    assert forward.written == 2 * 4 * ROWS * HIDDEN  # the activation and its slope, not what they are made of
    backward = next(step for step in steps if step.computes.endswith("strong_product"))
    assert backward.kind == "product"
    assert backward.written == 4 * ROWS * HIDDEN


@needs_tile
def test_a_sum_over_columns_reads_what_follows_a_product():
    steps = pb.explain(gradients(ACTIVATIONS["relu"]))(*arrays(np.float32)).steps
    (total,) = [step for step in steps if step.kind == "column"]
    assert total.read == 4 * ROWS * HIDDEN
    few = [np.ascontiguousarray(a[:32]) if len(a) == ROWS else a for a in arrays(np.float32)]
    kinds = [step.kind for step in pb.explain(gradients(ACTIVATIONS["relu"]))(*few).steps]
    assert kinds.count("column") == 1  # of few elements with the mask, in one kernel


@needs_tile
def test_in_a_wave_kernels_come_before_products():
    steps = pb.explain(gradients(ACTIVATIONS["gelu"]))(*arrays(np.float32)).steps
    for before, after in pairwise(steps):
        assert before.wave != after.wave or not (before.kind == "product" and after.kind != "product")


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_are_those_of_separate_kernels(name, dtype):
    given = arrays(dtype)
    function = gradients(ACTIVATIONS[name])
    together = [g.numpy() for g in pb.pytree.flatten(pb.jit(lambda *a: function(*a))(*given))[0]]
    with options.without("fuse", "follow"):
        apart = [g.numpy() for g in pb.pytree.flatten(pb.jit(lambda *a: function(*a))(*given))[0]]
    for got, want in zip(together, apart, strict=True):
        scale = np.abs(want).max()
        np.testing.assert_allclose(got, want, atol=scale * (2e-5 if dtype is np.float32 else 1e-13))


@pytest.mark.parametrize("name", ["gelu", "gelu tanh"])
def test_a_slope_for_another_shape_or_another_operand_is_not_left_behind(name):
    """The slope of a transposed product, and of one with more added that is not there yet when the product is."""
    activation = ACTIVATIONS[name]

    def function(x, up, bias, down, g):
        hidden = F.linear(x, up, bias)
        y = activation(hidden)
        late = F.softmax(y @ down.mT, axis=-1)
        slope = pb.vjp(activation, hidden.mT * 2)[1](pb.ones_like(hidden.mT))[0]
        later = pb.vjp(activation, hidden + late[:, :1])[1](pb.ones_like(hidden))[0]
        return y, slope, later

    given = arrays(np.float64)
    together = [leaf.numpy() for leaf in pb.jit(lambda *a: function(*a))(*given)]
    with options.without("fuse", "follow"):
        apart = [leaf.numpy() for leaf in pb.jit(lambda *a: function(*a))(*given)]
    for got, want in zip(together, apart, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def test_training_block_decreases_its_loss():
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
    optimizer = pb.optim.Adam(model.parameters(), lr=1e-2)
    x, target = pb.asarray(X.astype(np.float32)), pb.asarray(G.astype(np.float32))

    @pb.jit
    def step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    losses = [float(step()) for _ in range(10)]
    assert losses[-1] < losses[0]


# -- gradients of what was split ---------------------------------------------------------------------------------------


def halves(x, axis, parts):
    """A function of ``parts`` pieces of ``x`` along ``axis``, of which no two do the same."""
    pieces = pb.split(x, parts, axis)
    return pb.sum(sum(pb.sin(piece * (n + 1.0)) for n, piece in enumerate(pieces)) * pieces[0])


@pytest.mark.parametrize(("axis", "parts"), [(0, 2), (1, 2), (1, 3), (-1, 4), (-1, 6)])
def test_the_gradient_of_what_was_split_is_written_once(axis, parts):
    x = rng.standard_normal((12, 24, 48))
    gradient = pb.grad(lambda x: halves(x, axis, parts))
    got = pb.jit(lambda x: gradient(x))(x).numpy()
    with options.without("simplify"):
        want = pb.jit(lambda x: gradient(x))(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)
    written = sum(step.written for step in pb.explain(lambda x: gradient(x) @ pb.ones((48, 48)))(x).steps)
    if parts <= 4:
        assert written <= (1 + 1 + 2 / parts) * x.nbytes


def test_the_sum_of_paddings_has_no_negative_zero():
    x = np.array([[-0.0, 1.0, -0.0, np.nan], [np.inf, -np.inf, 0.0, -2.0]])

    def together(x):
        left = pb.pad(x[:, :2], ((0, 0), (0, 2)))
        return left + pb.pad(x[:, 2:], ((0, 0), (2, 0)))

    got = pb.jit(together)(x).numpy()
    np.testing.assert_array_equal(got, x)
    assert not np.signbit(got[x == 0]).any()


@pytest.mark.parametrize(
    "gaps", [((0, 2), (3, 0)), ((0, 2), (1, 1)), ((1, 1), (2, 0)), ((0, 3), (2, 0)), ((0, 1), (3, 0)), ((2, 0), (2, 0))]
)
def test_paddings_that_overlap_or_leave_a_gap_are_added(gaps):
    (a, b), (c, d) = gaps
    x, y = rng.standard_normal((2, 3, 6))
    x, y = x[:, : 6 - a - b], y[:, : 6 - c - d]
    got = pb.jit(lambda x, y: pb.pad(x, ((0, 0), (a, b))) + pb.pad(y, ((0, 0), (c, d))))(x, y).numpy()
    np.testing.assert_array_equal(got, np.pad(x, ((0, 0), (a, b))) + np.pad(y, ((0, 0), (c, d))))
