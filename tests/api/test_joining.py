"""Functions that join, cut and repeat, against NumPy; repeats whose counts are traced; errors."""

import numpy as np
import pytest

import pullback as pb

X = np.arange(24.0).reshape(2, 3, 4)
V = np.arange(3.0)


def same(got, expected):
    got = np.asarray(got)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


STACKS = [[V, V + 1], [X[0], X[1]], [X, X], [np.float64(1), np.float64(2)], [V.astype(np.float32), V.astype(np.int32)]]


@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack"])
@pytest.mark.parametrize("arrays", STACKS, ids=lambda a: str(a[0].shape))
def test_stacks(name, arrays):
    if name == "column_stack" and not arrays[0].shape:
        arrays = [np.atleast_1d(a) for a in arrays]
    expected = getattr(np, name)(arrays)
    if arrays[0].dtype == np.float32:
        expected = expected.astype(np.float32)  # NumPy takes float64 for float32 with int32
    same(getattr(pb, name)([pb.asarray(a) for a in arrays]), expected)


def test_stacks_of_mixed_ranks():
    same(pb.vstack([V, X[0, :, :3]]), np.vstack([V, X[0, :, :3]]))
    same(pb.hstack([np.float64(5), V]), np.hstack([np.float64(5), V]))
    same(pb.column_stack([V, X[0]]), np.column_stack([V, X[0]]))
    same(pb.dstack([X[0], X[0, :, :, None]]), np.dstack([X[0], X[0, :, :, None]]))


BLOCKS = {
    "matrix": lambda: [[X[0], X[1]], [X[1], X[0]]],
    "ranks": lambda: [[np.ones((1, 3)), V], [V, V]],
    "line": lambda: [V, np.float64(7), V],
    "one": lambda: V,
    "deep": lambda: [[[X], [X]], [[X], [X]]],
    "more axes": lambda: [X, X],
    "scalars": lambda: [[1.0, 2.0], [3.0, 4.0]],
}


@pytest.mark.parametrize("case", BLOCKS)
def test_block(case):
    blocks = BLOCKS[case]()
    expected = np.block(blocks)
    got = np.asarray(pb.block(blocks))
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


def pieces(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        same(a, b)


def test_cuts():
    for argument in (1, 2, 3, 5, [1], [1, 3], [3, 1], [0, 9], [-1], np.array([2])):
        pieces(pb.array_split(X, argument, axis=-1), np.array_split(X, argument, axis=-1))
    pieces(pb.hsplit(X, 3), np.hsplit(X, 3))
    pieces(pb.hsplit(V, [1]), np.hsplit(V, [1]))
    pieces(pb.vsplit(X, 2), np.vsplit(X, 2))
    pieces(pb.dsplit(X, [1, 2]), np.dsplit(X, [1, 2]))
    pieces(pb.split(X, np.int64(2), axis=2), np.split(X, 2, axis=2))
    for count, extents in ((3, [2, 2]), (4, [1, 1, 1, 1]), (1, [4]), (9, [1, 1, 1, 1])):
        assert [p.shape[2] for p in pb.chunk(X, count, axis=2)] == extents
    assert [p.shape for p in pb.chunk(np.zeros((0, 2)), 3)] == [(0, 2)] * 3
    assert [p.shape[0] for p in pb.chunk(np.zeros(7), 4)] == [2, 2, 2, 1]
    same(pb.narrow(X, 1, 1, 2), X[:, 1:3])
    same(pb.narrow(X, -1, -3, 2), X[..., 1:3])
    same(pb.narrow(X, 0, 2, 0), X[2:])
    same(pb.asarray(X).narrow(2, 0, 1), X[..., :1])


def test_repeat():
    for counts, axis in ((2, None), ([1, 0, 2], 1), (np.array([3]), 0), ([2, 1], 0), (0, 2)):
        expected = np.repeat(X, counts, axis=axis)
        same(pb.repeat(X, counts, axis=axis), expected)
        same(pb.repeat(X, pb.asarray(np.asarray(counts)), axis=axis), expected)
        length = expected.shape[axis or 0]
        if length:
            same(pb.repeat(X, counts, axis=axis, total_repeat_length=length), expected)


def test_repeat_with_traced_counts():
    counts = np.array([1, 0, 2])
    fixed = pb.jit(lambda x, n: pb.repeat(x, n, axis=1, total_repeat_length=3))
    same(fixed(X, counts), np.repeat(X, counts, axis=1))
    same(fixed(X, np.array([2, 2, 2])), X[:, [0, 0, 1]])  # cut off
    same(fixed(X, np.array([0, 1, 0])), X[:, [1, 2, 2]])  # the last goes on
    many = np.array([[1, 0, 2], [0, 3, 0], [1, 1, 1]])
    mapped = pb.vmap(lambda n: pb.repeat(X, n, axis=1, total_repeat_length=3))(pb.asarray(many))
    for got, n in zip(np.asarray(mapped), many, strict=True):
        np.testing.assert_array_equal(got, np.repeat(X, n, axis=1))
    for transform, given in ((pb.jit, counts), (pb.vmap, many)):
        with pytest.raises(pb.TraceError, match="total_repeat_length="):
            transform(lambda n: pb.repeat(X, n, axis=1))(pb.asarray(given))
    gradient = pb.grad(lambda x: pb.sum(pb.repeat(x, pb.asarray([2, 0, 3]), total_repeat_length=6)))(pb.asarray(V))
    assert np.asarray(gradient).tolist() == [2, 0, 4]
    same(pb.repeat(np.zeros((0, 2)), np.zeros(0, int), axis=0, total_repeat_length=0), np.zeros((0, 2)))


def test_rotations_and_flips():
    for k in range(-5, 6):
        same(pb.rot90(X, k, (1, 2)), np.rot90(X, k, (1, 2)))
        same(pb.rot90(X, k, (-1, 0)), np.rot90(X, k, (-1, 0)))
    same(pb.fliplr(X), np.fliplr(X))
    same(pb.flipud(X), np.flipud(X))
    for x in (np.float64(3), V, X[0], X):
        same(pb.atleast_3d(x), np.atleast_3d(x))
    same(pb.flatten(X, 1), X.reshape(2, 12))
    same(pb.flatten(X, 0, 1), X.reshape(6, 4))
    same(pb.flatten(X, 1, 1), X)
    same(pb.asarray(X).flatten(-2), X.reshape(2, 12))
    same(pb.asarray(X).permute(2, 0, 1), X.transpose(2, 0, 1))
    same(pb.asarray(X).permute((0, 2, 1)), X.transpose(0, 2, 1))


ERRORS = {
    "chunk fraction": (pb.ArgumentError, "chunks must be an integer, got 1.5", lambda: pb.chunk(X, 1.5)),
    "split fraction": (pb.ArgumentError, "number of pieces", lambda: pb.split(X, 1.5)),
    "narrow fraction": (pb.ArgumentError, "narrow: start", lambda: pb.narrow(X, 0, 0.5, 1)),
    "rot90 fraction": (pb.ArgumentError, "rot90: k", lambda: pb.rot90(X, 0.5)),
    "roll fraction": (pb.ArgumentError, "roll: shift", lambda: pb.roll(X, 1.5)),
    "vstack": (pb.ShapeError, "vstack: shapes", lambda: pb.vstack([V, X[0]])),
    "hstack": (pb.ShapeError, "hstack: shapes", lambda: pb.hstack([X[0], X])),
    "block depths": (pb.ShapeError, "deep", lambda: pb.block([[V], V])),
    "block empty": (pb.ShapeError, "empty", lambda: pb.block([[]])),
    "block shapes": (pb.ShapeError, "block: shapes", lambda: pb.block([[V], [X[0]]])),
    "split": (pb.ShapeError, "array_split or chunk", lambda: pb.split(X, 3, axis=2)),
    "no pieces": (pb.ShapeError, "positive", lambda: pb.array_split(X, 0)),
    "chunks": (pb.ShapeError, "positive", lambda: pb.chunk(X, 0)),
    "hsplit": (pb.ShapeError, "0-d", lambda: pb.hsplit(pb.asarray(1.0), 1)),
    "vsplit": (pb.ShapeError, "vsplit: at least 2", lambda: pb.vsplit(V, 1)),
    "dsplit": (pb.ShapeError, "dsplit: at least 3", lambda: pb.dsplit(X[0], 1)),
    "narrow": (IndexError, r"3 elements from 1 on are not in axis 1 of shape \(2,", lambda: pb.narrow(X, 1, 1, 3)),
    "narrow before": (IndexError, "narrow", lambda: pb.narrow(X, 1, -4, 1)),
    "narrow negative": (IndexError, "narrow", lambda: pb.narrow(X, 1, 1, -1)),
    "counts": (pb.ShapeError, r"counts of shape \(2,\) for axis 1 of extent 3", lambda: pb.repeat(X, [1, 2], axis=1)),
    "fractions": (pb.DTypeError, "integers", lambda: pb.repeat(X, [1.5, 1, 2], axis=1)),
    "negative": (pb.ArgumentError, "negative, got -1", lambda: pb.repeat(X, [1, -1, 1], axis=1)),
    "length": (pb.ShapeError, "fill", lambda: pb.repeat(np.zeros(0), 1, total_repeat_length=2)),
    "rot90 twice": (pb.ShapeError, "rot90", lambda: pb.rot90(X, 1, (1, 1))),
    "rot90 three": (pb.ShapeError, "two axes", lambda: pb.rot90(X, 1, (0, 1, 2))),
    "fliplr": (pb.ShapeError, "fliplr", lambda: pb.fliplr(V)),
    "flipud": (pb.ShapeError, "flipud", lambda: pb.flipud(1.0)),
    "flatten": (pb.ShapeError, "start_axis 2 comes after end_axis 0", lambda: pb.flatten(X, 2, 0)),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    kind, message, call = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()
