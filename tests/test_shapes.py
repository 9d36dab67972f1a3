"""Shapes: broadcasting, axes, reshapes, and what their errors say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback import shapes

extents = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple)


@given(st.lists(extents, min_size=1, max_size=4))
def test_broadcasting_is_numpys(found):
    try:
        expected = np.broadcast_shapes(*found)
    except ValueError:
        with pytest.raises(pb.ShapeError, match="do not broadcast"):
            shapes.broadcast_shapes(*found)
    else:
        assert shapes.broadcast_shapes(*found) == expected


def test_broadcasting_error_names_the_op_and_the_shapes():
    with pytest.raises(pb.ShapeError, match=r"multiply: shapes \(2, 3\) and \(4,\).*3 and 4|multiply: .*4 and 3"):
        pb.ones((2, 3)) * pb.ones(4)


def test_shapes_are_ints_or_sequences_of_ints():
    assert shapes.as_shape(3) == (3,)
    assert shapes.as_shape(np.int64(3)) == (3,)
    assert shapes.as_shape([2, np.int32(3)]) == (2, 3)
    assert shapes.as_shape(()) == ()
    for bad in (-1, (2, -1), "ab", 2.5, [2.5], None, {2: 3}):
        with pytest.raises(pb.ShapeError):
            shapes.as_shape(bad)


def test_reshape_shapes():
    assert shapes.reshape_shape((2, -1), 6) == (2, 3)
    assert shapes.reshape_shape(-1, 0) == (0,)
    assert shapes.reshape_shape((0, 3), 0) == (0, 3)
    for bad, size in (((-1, -1), 4), ((4, -1), 6), ((-2, 3), 6), ((2, 2), 6), ((0, -1), 0)):
        with pytest.raises(pb.ShapeError):
            shapes.reshape_shape(bad, size)


def test_axes():
    assert shapes.normalize_axis(-1, 3) == 2
    assert shapes.normalize_axes(None, 2) == (0, 1)
    assert shapes.normalize_axes((-1, 0), 3) == (0, 2)
    assert shapes.normalize_axes((-1, 0), 3, ordered=True) == (2, 0)
    assert shapes.normalize_axes((), 3) == ()
    for bad in (3, -4, 1.5, (0, 0), (0, -3), "x"):
        with pytest.raises(pb.ShapeError):
            shapes.normalize_axes(bad, 3)


@pytest.mark.parametrize("axis", [True, False, np.True_])
def test_a_bool_is_no_axis(axis):
    """As in NumPy: where ``sum(x, True)`` is written, keepdims is meant."""
    for normalize in (shapes.normalize_axis, shapes.normalize_axes):
        with pytest.raises(pb.ShapeError, match=r"f: axis .*(True|False)"):
            normalize(axis, 2, "f")


def test_reduced_shape():
    assert shapes.reduced_shape((2, 3, 4), (1,), False) == (2, 4)
    assert shapes.reduced_shape((2, 3, 4), (0, 2), True) == (1, 3, 1)
