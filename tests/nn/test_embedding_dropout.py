"""embedding and dropout: gradients, errors, modes and transforms."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import functional as F


def table(rows=5, columns=3):
    return np.random.default_rng(0).standard_normal((rows, columns))


# -- embedding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8])
def test_rows_and_their_gradients_add_up(dtype):
    weight, indices = pb.asarray(table()), np.array([[1, 4], [1, 0]], dtype)
    np.testing.assert_array_equal(np.asarray(F.embedding(indices, weight)), table()[indices])
    gradient = pb.grad(lambda w: pb.sum(F.embedding(indices, w)))(weight)
    np.testing.assert_array_equal(np.asarray(gradient)[:, 0], [1, 2, 0, 0, 1])


@pytest.mark.parametrize("padding_idx", [1, -4])
def test_the_padding_row_gets_no_gradient(padding_idx):
    weight, indices = pb.asarray(table()), np.array([1, 4, 1, 0])
    value, gradient = pb.value_and_grad(lambda w: pb.sum(F.embedding(indices, w, padding_idx)))(weight)
    np.testing.assert_allclose(float(value), table()[indices].sum(), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(gradient)[:, 0], [1, 0, 0, 0, 1])


@pytest.mark.parametrize("index", [-1, 5, 1000])
@pytest.mark.parametrize("jitted", [False, True])
def test_indices_out_of_range(index, jitted):
    function = pb.jit(F.embedding) if jitted else F.embedding
    with pytest.raises(IndexError, match=f"embedding: row.* {index} "):
        np.asarray(function(pb.asarray(np.array([0, index])), pb.asarray(table())))


def test_embedding_refusals():
    for call, error, match in (
        (lambda: F.embedding(np.ones(2), table()), DTypeError, "integers"),
        (lambda: F.embedding(np.array([0]), np.array([[1, 2]])), DTypeError, "floating"),
        (lambda: F.embedding(np.array([0]), np.ones(3)), ShapeError, "num_embeddings"),
        (lambda: F.embedding(np.array([0]), table(), 5), ArgumentError, "padding_idx"),
        (lambda: nn.Embedding(3, 2, padding_idx=-4), ArgumentError, "padding_idx"),
        (lambda: nn.Embedding(-1, 2), ShapeError, "Embedding"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_embedding_module():
    layer = nn.Embedding(6, 4, padding_idx=-1, key=pb.random.key(0))
    assert layer.padding_idx == 5
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    np.testing.assert_array_equal(np.asarray(layer.weight)[5], 0)
    assert np.asarray(layer.weight)[:5].all()
    again = nn.Embedding(6, 4, padding_idx=5, key=pb.random.key(0))
    np.testing.assert_array_equal(np.asarray(layer.weight), np.asarray(again.weight))
    layer(np.array([5, 2])).sum().backward()
    np.testing.assert_array_equal(np.asarray(layer.weight.grad)[:, 0], [0, 0, 1, 0, 0, 0])
    assert repr(layer).startswith("Embedding(6, 4, padding_idx=5)")


def test_vmap_of_embedding():
    indices = pb.asarray(np.array([[1, 4], [0, 0]]))
    found = pb.vmap(F.embedding, in_axes=(0, None))(indices, pb.asarray(table()))
    np.testing.assert_array_equal(np.asarray(found), table()[np.asarray(indices)])


# -- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitted", [False, True])
def test_forward_and_backward_drop_the_same(jitted):
    both = pb.value_and_grad(lambda x: pb.sum(F.dropout(x, 0.3)))
    both = pb.jit(both) if jitted else both
    x = pb.ones(1000)
    value, gradient = both(x)
    again, _ = both(x)
    kept = np.asarray(gradient) != 0
    np.testing.assert_allclose(np.asarray(gradient)[kept], 1 / 0.7, rtol=1e-6)
    np.testing.assert_allclose(float(value), kept.sum() / 0.7, rtol=1e-5)
    assert float(again) != float(value)


def test_dropout_of_everything_is_0_whatever_was_there():
    x = pb.asarray([np.inf, np.nan, 1.0])
    np.testing.assert_array_equal(np.asarray(F.dropout(x, 1.0)), 0)
    np.testing.assert_array_equal(np.asarray(pb.grad(lambda x: pb.sum(F.dropout(x, 1.0)))(x)), 0)


def test_what_is_dropped_is_0_even_where_it_is_nan():
    x = pb.full((200,), np.nan)
    key = pb.random.key(0)
    kept = np.asarray(F.dropout(pb.ones(200), 0.5, key=key)) != 0
    found = np.asarray(F.dropout(x, 0.5, key=key))
    assert np.isnan(found[kept]).all()
    np.testing.assert_array_equal(found[~kept], 0)


def test_vmap_of_dropout_with_a_key_each():
    keys = pb.random.split(pb.random.key(5), 4)
    x = pb.ones((4, 50))
    found = pb.vmap(lambda x, key: F.dropout(x, 0.5, key=key))(x, keys)
    loop = np.stack([np.asarray(F.dropout(x[i], 0.5, key=keys[i])) for i in range(4)])
    np.testing.assert_array_equal(np.asarray(found), loop)
    assert len({row.tobytes() for row in loop}) == 4


def test_second_derivative_through_dropout():
    key = pb.random.key(1)

    def first(x):
        return pb.grad(lambda x: pb.sum(F.dropout(x, 0.5, key=key) ** 3))(x)

    x = pb.asarray(np.linspace(1, 2, 20))
    kept = np.asarray(F.dropout(x, 0.5, key=key)) != 0
    second = np.asarray(pb.grad(lambda x: pb.sum(first(x)))(x))
    np.testing.assert_allclose(second, np.where(kept, 6 * 8 * np.asarray(x), 0), rtol=1e-12)


def test_dropout_keeps_the_dtype():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert F.dropout(pb.ones(4, dtype=dtype), 0.5).dtype.name == dtype
    with pytest.raises(DTypeError, match="dropout"):
        F.dropout(pb.arange(3), 0.5)


CHANNELS = [
    (F.dropout1d, nn.Dropout1d, (200, 3, 4), 2), (F.dropout1d, nn.Dropout1d, (300, 4), 1),
    (F.dropout2d, nn.Dropout2d, (50, 3, 2, 4), 2), (F.dropout2d, nn.Dropout2d, (50, 3, 4), 2),
    (F.dropout3d, nn.Dropout3d, (50, 3, 2, 1, 4), 2), (F.dropout3d, nn.Dropout3d, (300, 2, 2, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize(("function", "module", "shape", "channels"), CHANNELS)
def test_whole_channels_are_dropped(function, module, shape, channels):
    found = np.asarray(function(pb.ones(shape), 0.25, key=pb.random.key(0)))
    rows = found.reshape(*shape[:channels], -1)
    assert (rows == rows[..., :1]).all()
    assert set(np.unique(rows)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((rows == 0).mean() - 0.25) < 0.08
    x = pb.ones(shape)
    assert module(0.25).eval()(x) is x
    assert np.asarray(module(1.0)(x)).max() == 0
    with pytest.raises(ShapeError, match=function.__name__):
        function(pb.ones(2))


def test_alpha_dropout_keeps_mean_and_variance():
    x = np.random.default_rng(0).standard_normal(40_000)
    found = np.asarray(F.alpha_dropout(pb.asarray(x), 0.3, key=pb.random.key(1)))
    assert abs(found.mean()) < 0.02
    assert abs(found.var() - 1) < 0.03
    lowest = -1.7580993408473766
    scale = 1 / np.sqrt(0.7 * (1 + 0.3 * lowest**2))
    dropped = np.isclose(found, scale * lowest * 0.7, rtol=1e-9)
    assert abs(dropped.mean() - 0.3) < 0.02
    np.testing.assert_allclose(found[~dropped], scale * x[~dropped] - scale * 0.3 * lowest, rtol=1e-9, atol=1e-12)
    assert nn.AlphaDropout(0.3).eval()(pb.asarray(x)).shape == x.shape
    with pytest.raises(ArgumentError, match="alpha_dropout"):
        F.alpha_dropout(pb.ones(2), 1.5)
