"""unique and isin against NumPy, with and without a given size."""

import numpy as np
import pytest

import pullback as pb

CASES = {
    "integers": np.random.default_rng(0).integers(-3, 4, (5, 6)),
    "floats": np.array([[3.0, 1.0, -0.0], [0.0, 3.0, np.inf]]),
    "nan": np.array([2.0, np.nan, 1.0, 2.0, np.nan]),
    "bools": np.array([True, False, True]),
    "half": np.array([1.5, 0.5, 1.5], np.float16),
    "bfloat16": np.array([1.5, 0.5, 1.5]).astype(pb.bfloat16.numpy),
    "unsigned": np.array([2**63 + 1, 5, 2**63 + 1, 0], np.uint64),
    "one": np.array([4.0]),
    "empty": np.zeros((0, 2)),
    "scalar": np.array(3.0),
}


def expected_parts(x, equal_nan=False):
    wide = x.astype(np.float32) if x.dtype == pb.bfloat16.numpy else x
    flags = {"return_index": True, "return_inverse": True, "return_counts": True, "equal_nan": equal_nan}
    values, *rest = np.unique(wide, **flags)
    return (values.astype(x.dtype), *rest)


def same(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        if b.dtype.kind not in "iub":
            assert a.dtype.numpy == b.dtype
            np.testing.assert_array_equal(a.numpy().astype(float), b.astype(float))
        else:
            np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("name", CASES)
def test_like_numpy(name):
    x = CASES[name]
    expected = expected_parts(x)
    same(pb.unique_all(x), expected)
    same(pb.unique_counts(x), (expected[0], expected[3]))
    same(pb.unique_inverse(x), (expected[0], expected[2]))
    same([pb.unique_values(x)], expected[:1])
    merged = expected_parts(x, True)
    same(pb.unique(x, True, True, True), merged)
    same([pb.unique(x)], merged[:1])
    same([pb.unique(x, equal_nan=False)], expected[:1])
    same(pb.unique(x, return_counts=True, equal_nan=True), (merged[0], merged[3]))


@pytest.mark.parametrize("name", [name for name, x in CASES.items() if x.size])
def test_with_a_size(name):
    """The first of all there are, or what fills up."""
    x = CASES[name]
    values, indices, inverse, counts = expected_parts(x)
    for size in (1, len(values), len(values) + 2):
        for function in (pb.unique_all, pb.jit(pb.unique_all, static_argnames=("size",))):
            got = function(pb.asarray(x), size=size)
            missing = max(size - len(values), 0)
            same(got, (np.concatenate([values[:size], *[values[:1]] * missing]),
                       np.concatenate([indices[:size], *[indices[:1]] * missing]), inverse,
                       np.concatenate([counts[:size], np.zeros(missing, int)])))
    filled = pb.unique_values(x, size=len(values) + 1, fill_value=True)
    same([filled], [np.concatenate([values, np.ones(1, x.dtype)])])


def test_size_of_nothing():
    assert pb.unique_values(np.zeros(0), size=2, fill_value=7).tolist() == [7, 7]
    assert pb.unique_values([1.0], size=0).shape == (0,)
    assert pb.unique_all(np.zeros(0), size=0).counts.shape == (0,)
    with pytest.raises(pb.ArgumentError, match="fill_value"):
        pb.unique_values(np.zeros(0), size=2)


def test_vmap():
    x = np.random.default_rng(1).integers(0, 4, (3, 8))
    got = pb.vmap(lambda a: pb.unique_all(a, size=3))(pb.asarray(x))
    for row in range(3):
        one = pb.unique_all(x[row], size=3)
        for a, b in zip(got, one, strict=True):
            np.testing.assert_array_equal(a[row].numpy(), b.numpy())


def test_the_first_occurrence_has_the_gradient():
    x = pb.asarray([2.0, 1.0, 2.0, 1.0, 3.0])
    weights = pb.asarray([1.0, 10.0, 100.0])
    for function in (pb.unique_values, lambda a: pb.unique_values(a, size=3), pb.unique):
        assert pb.grad(lambda a, f=function: pb.sum(f(a) * weights))(x).tolist() == [10, 1, 0, 0, 100]
    padded = pb.grad(lambda a: pb.sum(pb.unique_values(a, size=4, fill_value=0.0)))(x)
    assert padded.tolist() == [1, 1, 0, 0, 1]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slices(axis):
    x = np.array([[1, 2, 1], [0, 5, 0], [1, 2, 1]]).astype(float)
    same(pb.unique(x, True, True, True, axis=axis), [
        np.ravel(part) if i == 2 else part
        for i, part in enumerate(np.unique(x, True, True, True, axis=axis))
    ])
    x[1, 1] = np.nan
    x[:, 0] = x[:, 2] = np.nan
    assert pb.unique(x, axis=axis).shape == ((2, 3) if axis == 0 else (3, 2))
    assert pb.unique(x, axis=axis, equal_nan=False).shape == (3, 3)
    small = np.array([[3, 1], [3, 1], [0, 2]], np.uint8)
    same([pb.unique(small, axis=0)], [np.unique(small, axis=0)])


def test_errors():
    x = pb.asarray([1.0, 2.0])
    for function in (pb.unique, pb.unique_values, pb.unique_all, pb.unique_counts, pb.unique_inverse):
        with pytest.raises(pb.TraceError, match="give size="):
            pb.jit(function)(x)
        with pytest.raises(pb.TraceError, match="give size="):
            pb.vmap(function)(x[None])
        with pytest.raises(pb.ArgumentError, match="size"):
            function(x, size=-1)
    with pytest.raises(pb.ArgumentError, match="axis=None"):
        pb.unique(x, axis=0, size=1)
    with pytest.raises(pb.ShapeError):
        pb.unique(x, axis=1)


@pytest.mark.parametrize("invert", [False, True])
def test_isin(invert):
    rng = np.random.default_rng(2)
    for x, y in (
        (rng.integers(0, 9, (4, 5)), rng.integers(0, 9, 3)), (rng.random(3) < 0.5, np.array([True])),
        (np.array([1.0, np.nan, -0.0]), np.array([np.nan, 0.0])), (np.array(3), np.array([[1, 2], [3, 4]])),
        (np.zeros((0, 2)), np.ones(2)), (np.ones(2), np.zeros(0)), (np.array([1, 2]), np.array([1.0, 2.5])),
    ):
        expected = np.isin(x, y, invert=invert)
        np.testing.assert_array_equal(pb.isin(x, y, invert=invert).numpy(), expected)
        got = pb.jit(lambda a, b: pb.isin(a, b, invert=invert))(pb.asarray(x), pb.asarray(y))
        np.testing.assert_array_equal(got.numpy(), expected)
    assert pb.isin([1, 2, 3], 2).tolist() == [False, True, False]
