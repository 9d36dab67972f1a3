"""unfold and sliding_window_view against NumPy's windows, and their gradients, which add what windows share."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import pullback as pb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))


@pytest.mark.usefixtures("reference_backend")
@pytest.mark.parametrize("extent", [1, 2, 5, 9])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unfold(extent, axis):
    shape = [2, 3, 2]
    shape[axis] = extent
    x = RNG.normal(size=shape)
    for size in range(1, extent + 1):
        for step in (1, 2, 3, 7):
            windows = sliding_window_view(x, size, axis=axis)
            at = axis if axis >= 0 else axis + 3
            expected = np.take(windows, range(0, windows.shape[at], step), axis=at)
            got = np.asarray(pb.unfold(x, axis, size, step))
            assert got.shape == expected.shape
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("window", "axis"), [((2, 3, 1), None), ((2, 3), (2, 0)), ((2, 3), (2, 2)), (4, 1), ((3,), (-1,))], ids=str
)
def test_sliding_window_view(window, axis):
    expected = sliding_window_view(X, window, axis=axis)
    got = np.asarray(pb.sliding_window_view(X, window, axis=axis))
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


def test_gradients_add_what_windows_share():
    x = pb.zeros(7, dtype="float64")
    count = lambda size, step: np.asarray(  # noqa: E731
        pb.grad(lambda a: pb.sum(pb.unfold(a, 0, size, step)))(x)
    ).tolist()
    assert count(3, 1) == [1, 2, 3, 3, 3, 2, 1]
    assert count(3, 2) == [1, 1, 2, 1, 2, 1, 1]
    assert count(2, 3) == [1, 1, 0, 1, 1, 0, 0]


def test_long_windows_make_a_short_graph():
    x = pb.ones(2000)
    function = pb.grad(lambda a: pb.sum(pb.unfold(a, 0, 400, 3) ** 2))
    text = str(pb.graph_of(function)(x))
    assert "gather" not in text and "scatter" not in text and text.count("\n") < 60
    np.testing.assert_allclose(np.asarray(function(x)).sum(), 2 * 400 * ((2000 - 400) // 3 + 1))


def test_dtypes():
    for dtype in ("bool", "int8", "bfloat16"):
        assert pb.unfold(pb.ones(5, dtype=dtype), 0, 2, 1).dtype.name == dtype
    assert pb.asarray(X).unfold(1, 2, 2).shape == (3, 2, 5, 2)
    assert pb.unfold(np.zeros((0, 3)), 1, 2, 1).shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("windows of 6 do not fit axis 1", lambda: pb.unfold(X, 1, 6, 1)),
        ("windows of 0", lambda: pb.unfold(X, 1, 0, 1)), ("step", lambda: pb.unfold(X, 1, 2, 0)),
        ("unfold: axis 3", lambda: pb.unfold(X, 3, 1, 1)),
        ("2 window sizes for 3 axes", lambda: pb.sliding_window_view(X, (1, 2))),
        ("sliding_window_view: windows of 5", lambda: pb.sliding_window_view(X, 5, axis=0)),
        ("axis 3", lambda: pb.sliding_window_view(X, 1, axis=3)),
    ],
)  # fmt: skip
def test_errors(message, call):
    with pytest.raises(pb.ShapeError, match=message):
        call()
