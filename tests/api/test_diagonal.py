"""Diagonals and triangles against NumPy at every offset; they are views and pads, and so are their gradients."""

import numpy as np
import pytest

import pullback as pb

X = np.arange(60.0).reshape(3, 4, 5)


def same(got, expected):
    got = np.asarray(got)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("offset", range(-6, 7))
def test_offsets(offset):
    same(pb.diagonal(X, offset, 1, 2), np.diagonal(X, offset, 1, 2))
    same(pb.diagonal(X, offset, axis1=-1, axis2=0), np.diagonal(X, offset, -1, 0))
    same(pb.trace(X, offset), np.trace(X, offset, 1, 2))
    same(pb.trace(X, offset, 0, 1), np.trace(X, offset))
    same(pb.diag(X[0], offset), np.diag(X[0], offset))
    same(pb.diag(X[0, 0], offset), np.diag(X[0, 0], offset))
    same(pb.diagflat(X[0, :2], offset), np.diagflat(X[0, :2], offset))
    same(pb.tril(X, offset), np.tril(X, offset))
    same(pb.triu(X, offset), np.triu(X, offset))
    embedded = np.asarray(pb.diag_embed(X, offset))
    assert embedded.shape == (3, 4, 5 + abs(offset), 5 + abs(offset))
    same(np.diagonal(embedded, offset, -2, -1), X)
    assert np.count_nonzero(embedded) == np.count_nonzero(X)
    same(pb.diag_embed(X, offset, 0, -2), np.moveaxis(embedded, (-2, -1), (0, -2)))


def test_dtypes_and_empty():
    for dtype in (bool, np.int8, np.float16):
        x = np.ones((2, 3), dtype)
        same(pb.diagonal(x), np.diagonal(x))
        same(pb.diag(x[0], 1), np.diag(x[0], 1))
        same(pb.tril(x), np.tril(x))
    assert pb.trace(np.ones((2, 2), np.int8)).dtype is pb.int64
    assert pb.trace(np.ones((2, 2), np.float32), dtype="float64").dtype is pb.float64
    same(pb.diag(np.zeros(0)), np.zeros((0, 0)))
    same(pb.diag(np.zeros(0), 2), np.zeros((2, 2)))
    same(pb.diagonal(np.zeros((0, 3))), np.zeros(0))
    same(pb.trace(np.zeros((0, 0))), np.float64(0).reshape(()))


def test_masks_stop_what_is_not_finite():
    x = pb.asarray(np.array([[1.0, np.inf], [2.0, 3.0]]))
    same(pb.grad(lambda a: pb.sum(pb.tril(a) ** 2))(x), np.array([[2.0, 0.0], [4.0, 6.0]]))
    same(pb.tril(x), np.array([[1.0, 0.0], [2.0, 3.0]]))
    assert pb.diag(pb.asarray([np.nan, 1.0])).tolist()[1] == [0, 1]


def test_no_index_lists():
    x = pb.ones((4, 4))
    for function in (pb.diagonal, pb.trace, lambda a: pb.diag(a[0], 1)):
        for made in (function, pb.grad(lambda a, f=function: pb.sum(f(a)))):
            text = str(pb.graph_of(made)(x))
            assert "gather" not in text and "scatter" not in text and "where" not in text


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("diagonal: at least two axes", lambda: pb.diagonal(X[0, 0])),
        ("both axis 1", lambda: pb.diagonal(X, 0, 1, -2)),
        ("diagonal: axis 3", lambda: pb.diagonal(X, 0, 0, 3)), ("diag_embed take", lambda: pb.diag(X)),
        ("tril", lambda: pb.tril(X[0, 0])), ("triu", lambda: pb.triu(1.0)), ("trace", lambda: pb.trace(X[0, 0])),
        ("diag_embed: a 0-d", lambda: pb.diag_embed(1.0)), ("diag_embed: axis1", lambda: pb.diag_embed(X, 0, 1, 1)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(pb.ShapeError, match=message):
        call()
