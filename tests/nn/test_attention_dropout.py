"""Dropout of attention's weights by the kernels: what is drawn under transforms and in both directions, and memory."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.products import has_tile
from pullback.nn.attention import attention_definition

attention = nn.scaled_dot_product_attention
rng = np.random.default_rng(0)
Q, K, V = (rng.standard_normal((2, 3, n, 8)) for n in (40, 60, 60))


def test_every_element_of_a_vmap_drops_the_same_and_every_key_other_weights():
    key, keys = pb.random.key(3), pb.random.split(pb.random.key(3), 2)
    got = pb.vmap(lambda q, k, v: attention(q, k, v, dropout=0.4, key=key))(Q, K, V)
    for i in range(2):
        np.testing.assert_allclose(got.numpy()[i], attention(Q[i], K[i], V[i], dropout=0.4, key=key), atol=1e-14)
    got = pb.vmap(lambda key: attention(Q, K, V, dropout=0.4, key=key))(keys)
    for i in range(2):
        np.testing.assert_allclose(got.numpy()[i], attention(Q, K, V, dropout=0.4, key=keys[i]), atol=1e-14)
    assert np.abs(got.numpy()[0] - got.numpy()[1]).max() > 0.1


def test_a_call_without_a_key_draws_anew_under_jit():
    step = pb.jit(lambda q, k, v: attention(q, k, v, dropout=0.4))
    pb.random.seed(5)
    first, second = step(Q, K, V).numpy(), step(Q, K, V).numpy()
    assert np.abs(first - second).max() > 0.1
    pb.random.seed(5)
    np.testing.assert_array_equal(first, step(Q, K, V))


def test_the_gradient_drops_what_the_value_dropped():
    """The value is linear in v: its product with a cotangent is that of v with the gradient."""
    pb.random.seed(7)
    out, pull = pb.vjp(lambda v: attention(Q, K, v, dropout=0.6), V)
    cotangent = rng.standard_normal(out.shape)
    (gradient,) = pull(cotangent)
    np.testing.assert_allclose((out.numpy() * cotangent).sum(), (gradient.numpy() * V).sum(), rtol=1e-12)


def test_the_default_dtype_does_not_count():
    key, before = pb.random.key(0), pb.get_default_dtype()
    expected = attention(Q, K, V, dropout=0.5, key=key).numpy()
    try:
        pb.set_default_dtype(pb.float64)
        for function in (attention, attention_definition):
            np.testing.assert_allclose(function(Q, K, V, dropout=0.5, key=key), expected, atol=1e-13)
    finally:
        pb.set_default_dtype(before)


@pytest.mark.skipif(not has_tile(), reason="the kernel needs fused multiply-add")
@pytest.mark.parametrize("options", [{"dropout": 0.1}, {"is_causal": True, "offset": "traced"}], ids=str)
def test_no_matrix_of_scores_is_in_memory(options):
    tokens = 1500
    x = pb.asarray(rng.standard_normal((1, 1, tokens, 8), dtype=np.float32))

    def loss(x, offset):
        given = {**options, "offset": offset} if "offset" in options else options
        return pb.sum(attention(x, x, x, **given))

    assert pb.explain(pb.grad(loss))(x, pb.asarray(0)).peak < tokens * tokens
