"""The gated recurrent block, and how many launches it and other blocks of a network take."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler import products
from pullback.errors import ArgumentError, ShapeError

needs_tile = pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 7, 6))


def steps(function, *arrays):
    report = json.loads(pb.explain(function)(*map(pb.asarray, arrays)).to_json())
    return [step["kind"] for program in report["programs"] for step in program["steps"]]


@pytest.fixture
def block():
    return nn.GatedRecurrentBlock(6, 5, 8, dtype=pb.float64, key=pb.random.key(0))


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.finfo(float).eps) * weight


def by_hand(block, x):
    """One sequence, token by token."""
    p = {name: np.asarray(value) for name, value in block.named_parameters()}
    h, out = np.zeros(5), []
    for token in x:
        both = p["gates.weight"] @ rms_norm(token, p["norm.weight"]) + p["gates.bias"]
        gate = 1 / (1 + np.exp(-both[:5]))
        h = gate * h + (1 - gate) * both[5:]
        y = token + p["output.weight"] @ h
        a, b = np.split(p["up.weight"] @ rms_norm(y, p["feed_forward_norm.weight"]), 2)
        out.append(y + p["down.weight"] @ (a / (1 + np.exp(-a)) * b))
    return np.array(out)


def test_values(block):
    np.testing.assert_allclose(np.asarray(block(pb.asarray(X))), [by_hand(block, x) for x in X], rtol=1e-12, atol=1e-12)
    assert repr(block).startswith("GatedRecurrentBlock(6, hidden=5")


def test_derivatives(block):
    parameters = dict(block.named_parameters())
    names = list(parameters)
    assert len(names) == 7

    def loss(x, *values):
        for name, value in zip(names, values, strict=True):
            owner, _, attribute = name.rpartition(".")
            setattr(getattr(block, owner), attribute, value)
        return pb.sum(block(x) ** 2)

    primals = [X[0, :3], *[np.asarray(parameters[name]) for name in names]]
    pb.testing.check_grads(loss, primals, order=2, rtol=1e-5, atol=1e-5)


def test_a_sequence_in_parts(block):
    x = pb.asarray(X)
    whole, last = block(x, return_state=True)
    first, state = block(x[:, :3], return_state=True)
    second, end = block(x[:, 3:], state, return_state=True)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-12)
    np.testing.assert_allclose(end, last, rtol=1e-12)
    nothing, same = block(x[:, :0], state, return_state=True)
    assert nothing.shape == (2, 0, 6) and same is state


def test_vmap_and_jit(block):
    x = pb.asarray(X)
    expected = np.asarray(block(x))
    np.testing.assert_allclose(pb.vmap(block)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(pb.jit(block)(x), expected, rtol=1e-12)


def test_errors(block):
    with pytest.raises(ShapeError, match="tokens, 6"):
        block(pb.zeros((3, 5)))
    with pytest.raises(ShapeError, match="no tokens"):
        block(pb.zeros((0, 6)), return_state=True)
    with pytest.raises(ArgumentError, match="hidden must be at least 1"):
        nn.GatedRecurrentBlock(4, 0)


# -- launches ----------------------------------------------------------------------------------------------------------

A = RNG.standard_normal((70, 48)).astype(np.float32)
W = RNG.standard_normal((96, 48)).astype(np.float32)
SCALE, BIAS = (RNG.standard_normal(n).astype(np.float32) for n in (48, 96))

BLOCKS = {
    "linear and gelu": (lambda x, w, b: nn.linear(x, w, b, activation="gelu"), (A, W, BIAS), ["product"]),
    "linear, tanh, residual": (lambda x, w: x + pb.tanh(nn.linear(x, w)), (A, W[:48]), ["product"]),
    "swiglu of one product": (lambda x, w: nn.swiglu(nn.linear(x, w)), (A, W), ["product", "map"]),
    "geglu of two products": (
        lambda x, v, w: nn.gelu(nn.linear(x, v)) * nn.linear(x, w), (A, W, W + 1),
        ["product", "product"],
    ),
    "rms_norm and linear": (
        lambda x, g, w: nn.linear(nn.rms_norm(x, (48,), g), w), (A, SCALE, W), ["product"],
    ),
    "residual and norm": (
        lambda x, r, g: (lambda y: (y, nn.rms_norm(y, (48,), g)))(x + r), (A, A * 2, SCALE), ["row"],
    ),
    "linear, residual and norm": (
        lambda x, w, g: (lambda y: (y, nn.layer_norm(y, (48,), g)))(x + nn.linear(x, w)), (A, W[:48], SCALE),
        ["product"],
    ),
}  # fmt: skip


@needs_tile
@pytest.mark.parametrize("name", BLOCKS)
def test_launches(name):
    function, arrays, expected = BLOCKS[name]
    assert steps(function, *arrays) == expected


@pytest.mark.parametrize("name", BLOCKS)
def test_derivatives_of_blocks(name):
    """By all operands, in float64."""
    function, arrays, _ = BLOCKS[name]
    rows = [(a[:3] if a.shape == A.shape else a).astype(float) for a in arrays]
    operands = [pb.asarray(a) for a in rows]

    def loss(*operands):
        results = function(*operands)
        return sum(pb.sum(pb.sin(y)) for y in (results if isinstance(results, tuple) else (results,)))

    gradients = pb.grad(loss, tuple(range(len(rows))))(*operands)
    rng = np.random.default_rng(0)
    for number, gradient in enumerate(gradients):
        assert gradient.shape == rows[number].shape and gradient.dtype is pb.float64
        along = rng.standard_normal(rows[number].shape)
        moved = [[r + (s * 1e-6 * along if i == number else 0) for i, r in enumerate(rows)] for s in (1, -1)]
        slope = (float(loss(*map(pb.asarray, moved[0]))) - float(loss(*map(pb.asarray, moved[1])))) / 2e-6
        np.testing.assert_allclose(np.sum(np.asarray(gradient) * along), slope, rtol=1e-6, atol=1e-6)


@needs_tile
def test_a_recurrent_block_is_five_launches():
    block = nn.GatedRecurrentBlock(48, 64)
    pb.eval(block)  # the start of its parameters is a program of its own
    x = RNG.standard_normal((4, 40, 48)).astype(np.float32)
    found = steps(block, x)
    assert found.count("product") == 4
    assert len(found) == 5
