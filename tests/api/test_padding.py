"""pad in all modes against NumPy; its gradients, which add the copies of an element; errors."""

import itertools

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
MODES = ("edge", "reflect", "symmetric", "wrap")


def same(got, expected):
    got = np.asarray(got)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.usefixtures("reference_backend")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
def test_any_width(mode, extent):
    x = RNG.normal(size=extent)
    for widths in itertools.product((0, 1, 2, 4, 7, 13), (0, 1, 3, 8, 14)):
        same(pb.pad(x, widths, mode=mode), np.pad(x, widths, mode=mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [2, (1, 3), ((1, 2), (0, 9), (3, 0)), {1: 2, -1: (0, 1)}, {}, 0], ids=str)
def test_widths_of_several_axes(mode, width):
    expected = np.zeros((3, 2), int)
    if isinstance(width, dict):
        for axis, entry in width.items():
            expected[axis] = entry
    else:
        expected[:] = width
    same(pb.pad(X, width, mode=mode), np.pad(X, expected, mode=mode))
    same(pb.pad(X, width), np.pad(X, expected))


@pytest.mark.parametrize("mode", ["constant", *MODES])
def test_an_array_without_axes_takes_no_pairs(mode):
    for width in ([], (), {}, np.zeros((0, 2), int), 3):
        same(pb.pad(np.float64(2), width, mode=mode), np.asarray(2.0))
    with pytest.raises(pb.ShapeError, match="1 such pairs"):
        pb.pad(np.zeros(3), [], mode=mode)


def test_constants():
    width = ((1, 2), (0, 3), (2, 0))
    for values in (7, (1, 2), ((1, 2), (3, 4), (5, 6)), ((1,), (2,), (3,))):
        same(pb.pad(X, width, constant_values=values), np.pad(X, width, constant_values=values))
    same(pb.pad(X, width, constant_values=pb.asarray(7)), np.pad(X, width, constant_values=7))
    same(pb.pad(np.arange(3), 1, constant_values=-1), np.pad(np.arange(3), 1, constant_values=-1))
    same(pb.pad(np.array([True]), 1), np.pad(np.array([True]), 1))
    same(pb.pad(np.zeros((0, 2)), 1), np.pad(np.zeros((0, 2)), 1))
    same(pb.pad(np.float64(2), 3), np.asarray(2.0))
    half = pb.ones(2, dtype="bfloat16")
    for mode in ("constant", *MODES):
        assert pb.pad(half, 1, mode=mode).dtype is pb.bfloat16


def test_gradients_add_the_copies():
    def gradient(mode, width, n=3):
        weights = pb.arange(1.0, n + sum(width) + 1, dtype="float64")
        x = pb.zeros(n, dtype="float64")
        return np.asarray(pb.grad(lambda a: pb.sum(weights * pb.pad(a, width, mode=mode)))(x)).tolist()

    # Weights 1 to 7 at the places of: edge 00|012|22, reflect 21|012|10, symmetric 10|012|21, wrap 12|012|01.
    assert gradient("edge", (2, 2)) == [6, 4, 18]
    assert gradient("reflect", (2, 2)) == [3 + 7, 2 + 4 + 6, 1 + 5]
    assert gradient("symmetric", (2, 2)) == [2 + 3, 1 + 4 + 7, 5 + 6]
    assert gradient("wrap", (2, 2)) == [3 + 6, 1 + 4 + 7, 2 + 5]
    values = pb.asarray([1.0, 2.0])
    by_values = pb.grad(lambda v: pb.sum(pb.pad(pb.zeros((2, 3)), ((1, 1), (2, 0)), constant_values=v)))(values)
    assert np.asarray(by_values).tolist() == [3 + 8, 3]


def test_padding_makes_no_index_lists():
    for mode in ("constant", *MODES):
        padded = lambda a, m=mode: pb.pad(a, 2, mode=m)  # noqa: E731
        for function in (padded, pb.grad(lambda a, f=padded: pb.sum(f(a)))):
            text = str(pb.graph_of(function)(pb.ones(4)))
            assert "gather" not in text and "scatter" not in text


ERRORS = {
    "mode": (pb.ArgumentError, "'reflect'", lambda: pb.pad(X, 1, mode="mean")),
    "pairs": (pb.ShapeError, "3 such pairs", lambda: pb.pad(X, ((1, 1), (2, 2)))),
    "negative": (pb.ShapeError, "non-negative", lambda: pb.pad(X, -1)),
    "fractions": (pb.ShapeError, "integers", lambda: pb.pad(X, 1.5)),
    "axis": (pb.ShapeError, "axis 3", lambda: pb.pad(X, {3: 1})),
    "empty": (pb.ShapeError, r"\(0, 2\) has nothing to wrap", lambda: pb.pad(np.zeros((0, 2)), 1, mode="wrap")),
    "constants": (pb.ShapeError, "pad", lambda: pb.pad(X, 1, constant_values=np.ones((2, 2)))),
    "range": (pb.RangeError, "300", lambda: pb.pad(np.zeros(2, np.int8), 1, constant_values=300)),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    kind, message, call = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()
