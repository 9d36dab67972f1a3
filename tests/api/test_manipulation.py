"""Functions that move elements, against NumPy, and the errors of shapes that do not fit."""

import numpy as np
import pytest

import pullback as pb

X = np.arange(24.0).reshape(2, 3, 4)


def same(got, expected):
    got = np.asarray(got)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


CASES = {
    "reshape": lambda m: m.reshape(X, (4, -1)),
    "reshape int": lambda m: m.reshape(X, -1),
    "ravel": lambda m: m.ravel(X),
    "squeeze": lambda m: m.squeeze(X[:1, :, :1]),
    "squeeze one": lambda m: m.squeeze(X[:1, :, :1], axis=-1),
    "expand_dims": lambda m: m.expand_dims(X, -1),
    "expand_dims two": lambda m: m.expand_dims(X, (0, 2)),
    "broadcast_to": lambda m: m.broadcast_to(X[:, :1], (5, 2, 3, 4)),
    "transpose": lambda m: m.transpose(X),
    "transpose order": lambda m: m.transpose(X, (1, 2, 0)),
    "permute negative": lambda m: m.transpose(X, (-1, 0, 1)),
    "swapaxes": lambda m: m.swapaxes(X, 0, -1),
    "moveaxis": lambda m: m.moveaxis(X, 0, -1),
    "moveaxis two": lambda m: m.moveaxis(X, (0, 1), (-1, 0)),
    "flip": lambda m: m.flip(X),
    "flip one": lambda m: m.flip(X, axis=1),
    "flip two": lambda m: m.flip(X, axis=(0, -1)),
    "roll": lambda m: m.roll(X, 5),
    "roll axis": lambda m: m.roll(X, -1, axis=2),
    "roll axes": lambda m: m.roll(X, (1, 7), axis=(0, 1)),
    "roll pair": lambda m: m.roll(X, 2, axis=(1, 2)),
    "concat": lambda m: m.concatenate([X, X[:1]]),
    "concat axis": lambda m: m.concatenate([X, X[:, :, :1]], axis=-1),
    "concat flat": lambda m: m.concatenate([X, X[0]], axis=None),
    "concat mixed": lambda m: m.concatenate([X, np.zeros((1, 3, 4), np.float32)]),
    "concat empty": lambda m: m.concatenate([X, X[:0]]),
    "stack": lambda m: m.stack([X, X + 1]),
    "stack axis": lambda m: m.stack([X, X + 1, X], axis=-2),
    "tile": lambda m: m.tile(X, 2),
    "tile many": lambda m: m.tile(X, (2, 1, 3)),
    "tile more": lambda m: m.tile(X, (2, 1, 1, 2)),
    "tile none": lambda m: m.tile(X, (1, 0, 1)),
    "repeat": lambda m: m.repeat(X, 2),
    "repeat axis": lambda m: m.repeat(X, 3, axis=1),
    "repeat counts": lambda m: m.repeat(X, [1, 0, 2], axis=1),
    "repeat counts last": lambda m: m.repeat(X, [1, 0, 2, 3], axis=-1),
    "pad": lambda m: m.pad(X, 1),
    "pad pair": lambda m: m.pad(X, (1, 2)),
    "pad axes": lambda m: m.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=7),
    "pad nothing": lambda m: m.pad(X, 0),
    "tril": lambda m: m.tril(X),
    "tril k": lambda m: m.tril(X, k=-1),
    "triu": lambda m: m.triu(X, k=1),
    "diagonal": lambda m: m.diagonal(X),
    "diagonal offset": lambda m: m.diagonal(X, offset=-1),
    "diagonal axes": lambda m: m.diagonal(X, 2, 1, 2),
    "diagonal outside": lambda m: m.diagonal(X, offset=7),
    "diag": lambda m: m.diag(X[0, 0]),
    "diag k": lambda m: m.diag(X[0, 0], k=2),
    "diag below": lambda m: m.diag(X[0, 0], k=-1),
    "diag of matrix": lambda m: m.diag(X[0], k=1),
    "diff": lambda m: m.diff(X),
    "diff twice": lambda m: m.diff(X, n=2, axis=1),
    "diff too often": lambda m: m.diff(X, n=5, axis=0),
    "diff edges": lambda m: m.diff(X, axis=1, prepend=X[:, :1], append=0.0),
    "diff bool": lambda m: m.diff(X > 5),
    "atleast_1d": lambda m: m.atleast_1d(np.float64(3)),
    "atleast_2d": lambda m: m.atleast_2d(X[0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_against_numpy(case):
    same(CASES[case](pb), CASES[case](np))


def test_lists_of_results():
    for got, expected in zip(pb.broadcast_arrays(X, X[0, 0]), np.broadcast_arrays(X, X[0, 0]), strict=True):
        same(got, expected)
    for argument in (3, [1], [1, 2], [2, 1], [0, 5], [-1]):
        for got, expected in zip(pb.split(X, argument, axis=1), np.split(X, argument, axis=1), strict=True):
            same(got, expected)
    for got, expected in zip(pb.unstack(X, axis=1), np.moveaxis(X, 1, 0), strict=True):
        same(got, expected)


def test_trace_and_transposes():
    same(pb.trace(X, offset=1), np.trace(X, offset=1, axis1=1, axis2=2))
    same(pb.matrix_transpose(X), X.mT)
    same(pb.asarray(X).T, X.T)
    same(pb.asarray(X).mT, X.mT)


ERRORS = {
    "reshape": lambda: pb.reshape(X, (5, 5)),
    "reshape unknown": lambda: pb.reshape(X, (-1, -1)),
    "squeeze": lambda: pb.squeeze(X, axis=0),
    "broadcast_to": lambda: pb.broadcast_to(X, (2, 3, 5)),
    "broadcast_to fewer": lambda: pb.broadcast_to(X, (3, 4)),
    "permute_dims": lambda: pb.permute_dims(X, (0, 1)),
    "permute_dims twice": lambda: pb.permute_dims(X, (0, 0, 1)),
    "matrix_transpose": lambda: pb.matrix_transpose(X[0, 0]),
    "moveaxis": lambda: pb.moveaxis(X, (0, 1), 0),
    "concat shapes": lambda: pb.concat([X, X[:, :2]]),
    "concat ranks": lambda: pb.concat([X, X[0]]),
    "concat 0-d": lambda: pb.concat([pb.asarray(1.0), pb.asarray(2.0)]),
    "concat nothing": lambda: pb.concat([]),
    "stack": lambda: pb.stack([X, X[0]]),
    "split": lambda: pb.split(X, 2, axis=1),
    "roll": lambda: pb.roll(X, (1, 2), axis=(0, 1, 2)),
    "repeat": lambda: pb.repeat(X, [1, 2], axis=1),
    "pad": lambda: pb.pad(X, ((1, 1), (2, 2))),
    "pad negative": lambda: pb.pad(X, -1),
    "tril": lambda: pb.tril(X[0, 0]),
    "diagonal": lambda: pb.diagonal(X, 0, 1, 1),
    "diag": lambda: pb.diag(X),
    "flip": lambda: pb.flip(X, axis=3),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    with pytest.raises(pb.ShapeError, match=case.split()[0]):
        ERRORS[case]()


def test_other_errors():
    with pytest.raises(ValueError, match="mode"):
        pb.pad(X, 1, mode="mean")
    with pytest.raises(pb.DTypeError, match="repeat"):
        pb.repeat(X, [0.5, 1, 2], axis=1)


def test_gradients_pass_through():
    from pullback.testing import check_grads

    x = pb.asarray(X)
    for function in (
        lambda a: pb.roll(a, 2, axis=1) * a, lambda a: pb.tile(a, (1, 2, 1)), lambda a: pb.repeat(a, [2, 0, 1], axis=1),
        lambda a: pb.diagonal(a, 1, 1, 2), lambda a: pb.tril(a), lambda a: pb.pad(a, 1),
        lambda a: pb.diag(a[0, 0], k=1),
        lambda a: pb.concat([a, a * a], axis=2), lambda a: pb.stack([a, a * a], axis=1),
    ):  # fmt: skip
        check_grads(function, (x,))
