"""Segment sums and their kin, bincount and histogram: empty segments, ties, dtypes, errors."""

import numpy as np
import pytest

import pullback as pb
from pullback.testing import check_grads

IDS = np.array([3, 0, 0, 3, 1])
DATA = np.array([[1.0, -2.0], [3.0, 4.0], [-5.0, 4.0], [1.0, 6.0], [7.0, 0.0]])
FUNCTIONS = {
    "sum": (pb.segment_sum, 0), "prod": (pb.segment_prod, 1), "mean": (pb.segment_mean, 0),
    "max": (pb.segment_max, -np.inf), "min": (pb.segment_min, np.inf),
}


def by_hand(name, data, ids, count, empty):
    rows = [getattr(np, name)(data[ids == s], axis=0) if (ids == s).any() else np.full(data.shape[1:], empty)
            for s in range(count)]
    return np.array(rows).reshape(count, *data.shape[1:])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_a_loop(name):
    function, empty = FUNCTIONS[name]
    np.testing.assert_allclose(function(DATA, IDS).numpy(), by_hand(name, DATA, IDS, 4, empty), rtol=1e-15)
    np.testing.assert_allclose(function(DATA, IDS, 6).numpy(), by_hand(name, DATA, IDS, 6, empty), rtol=1e-15)
    got = pb.jit(lambda d, i: function(d, i, 5))(pb.asarray(DATA[:, 1]), pb.asarray(IDS))
    np.testing.assert_allclose(got.numpy(), by_hand(name, DATA[:, 1], IDS, 5, empty), rtol=1e-15)
    two = function(np.arange(12.0).reshape(2, 3, 2), [[0, 1, 0], [2, 2, 0]])
    np.testing.assert_allclose(
        two.numpy(), by_hand(name, np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 2, 2, 0]), 3, empty), rtol=1e-15)
    assert function(np.zeros((0, 2)), np.zeros(0, int)).shape == (0, 2)
    assert (function(np.zeros((0, 2)), np.zeros(0, int), 3).numpy() == empty).all()


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float16"])
def test_dtypes(dtype):
    data = np.array([1, 0, 1, 1]).astype(dtype)
    ids = [0, 0, 2, 2]
    wide = {"int32": pb.int64, "uint8": pb.uint64, "bool": pb.int64, "float16": pb.float16}[dtype]
    assert pb.segment_sum(data, ids).dtype is wide and pb.segment_sum(data, ids).tolist() == [1, 0, 2]
    assert pb.segment_prod(data, ids).dtype is wide and pb.segment_prod(data, ids).tolist() == [0, 1, 1]
    own = pb.asarray(data).dtype
    largest, smallest = pb.segment_max(data, ids), pb.segment_min(data, ids)
    assert largest.dtype is own and smallest.dtype is own
    assert largest.numpy()[[0, 2]].tolist() == [1, 1] and smallest.numpy()[[0, 2]].tolist() == [0, 1]
    if dtype == "float16":
        assert largest[1].item() == -np.inf and smallest[1].item() == np.inf
    elif dtype != "bool":
        assert largest[1].item() == np.iinfo(dtype).min and smallest[1].item() == np.iinfo(dtype).max
    else:
        assert largest[1].item() is False and smallest[1].item() is True
    mean = pb.segment_mean(data, ids)
    assert mean.dtype is (pb.float16 if dtype == "float16" else pb.get_default_dtype())
    assert mean.tolist() == [0.5, 0, 1]


def test_half_types_round_once():
    ones = np.ones(3000, np.float16)
    assert pb.segment_sum(ones, np.zeros(3000, int)).item() == 3000
    assert pb.segment_mean(ones, np.zeros(3000, int)).item() == 1


@pytest.mark.parametrize("name", ["max", "min"])
def test_equal_elements_share_evenly_and_infinities_do_not_share_with_the_start(name):
    function = FUNCTIONS[name][0]
    end = -np.inf if name == "max" else np.inf
    data = pb.asarray(np.array([2.0, 2.0, end, end, 5.0, np.nan]))
    gradient = pb.grad(lambda d: pb.sum(pb.stop_gradient(pb.ones(5)) * function(d, [0, 0, 1, 1, 2, 3], 5)))
    np.testing.assert_array_equal(gradient(data).numpy(), [0.5, 0.5, 0.5, 0.5, 1, 1])


def test_products_with_zeros():
    for data in ([0.0, 2.0, 3.0, 4.0], [0.0, 0.0, 3.0, 4.0], [0.0, 0.0, 0.0, 1.0]):
        check_grads(lambda d: pb.segment_prod(d, [0, 0, 0, 1], 3), (np.array(data),))


def test_means_of_nothing_have_no_gradient():
    gradient = pb.grad(lambda d: pb.sum(pb.segment_mean(d, [0, 0, 2], 4) ** 2))(pb.asarray([1.0, 3.0, 5.0]))
    assert gradient.tolist() == [2, 2, 10]


def test_segment_errors():
    with pytest.raises(pb.ShapeError, match="segment_ids"):
        pb.segment_sum(DATA, IDS[:3])
    with pytest.raises(pb.DTypeError, match="integers"):
        pb.segment_sum(DATA, IDS * 1.0)
    for bad in (-1, 4):
        with pytest.raises(IndexError, match=f"segment_max: segment: index {bad} .*size 4"):
            pb.segment_max(DATA, [0, 1, 2, 3, bad], 4).numpy()
    for transform in (pb.jit, pb.vmap):
        with pytest.raises(pb.TraceError, match=r"segment_sum: .*give num_segments="):
            transform(lambda i: pb.segment_sum(i, i))(pb.asarray([[0, 1]]) if transform is pb.vmap else pb.asarray([0]))
    with pytest.raises(pb.ArgumentError, match="num_segments"):
        pb.segment_sum(DATA, IDS, -1)


# -- bincount ----------------------------------------------------------------------------------------------------------


def test_bincount():
    np.testing.assert_array_equal(pb.bincount(IDS).numpy(), np.bincount(IDS))
    np.testing.assert_array_equal(pb.bincount(IDS.astype(np.uint8), minlength=7).numpy(), np.bincount(IDS, minlength=7))
    np.testing.assert_array_equal(pb.bincount(IDS, DATA[:, 0]).numpy(), np.bincount(IDS, DATA[:, 0]))
    assert pb.bincount(IDS, length=6).tolist() == [2, 1, 0, 2, 0, 0]
    assert pb.jit(lambda i: pb.bincount(i, length=5))(pb.asarray(IDS)).tolist() == [2, 1, 0, 2, 0]
    assert pb.bincount([]).shape == (0,)
    assert pb.bincount([], minlength=3).tolist() == [0, 0, 0]
    assert pb.bincount(IDS, weights=[1, 2, 3, 4, 5]).dtype is pb.int64
    rows = np.stack([IDS, IDS[::-1]])
    np.testing.assert_array_equal(pb.vmap(lambda i: pb.bincount(i, length=4))(pb.asarray(rows)).numpy(),
                                  [np.bincount(r, minlength=4) for r in rows])
    check_grads(lambda w: pb.bincount(IDS, w) ** 2, (DATA[:, 0],))


def test_bincount_errors():
    with pytest.raises(pb.ShapeError, match="one axis"):
        pb.bincount([[1]])
    with pytest.raises(pb.ShapeError, match="weights"):
        pb.bincount([1], weights=[1.0, 2.0])
    with pytest.raises(pb.DTypeError, match="integers"):
        pb.bincount([1.5])
    for bad in (-1, 3):
        with pytest.raises(IndexError):
            pb.bincount([0, bad], length=3).numpy()
    with pytest.raises(pb.TraceError, match="give length="):
        pb.jit(pb.bincount)(pb.asarray(IDS))


# -- histogram ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"bins": 3}, {"bins": 4, "range": (-1, 1)}, {"bins": [-1.0, 0.0, 0.25, 3.0]}, {"bins": [2.0, 3.0]}],
    ids=str,
)
def test_histogram_like_numpy(options, density):
    x = np.random.default_rng(0).normal(size=(20, 4))
    x[0, :2] = 0.25, 1.0
    for weights in (None, np.random.default_rng(1).random(x.shape)):
        expected = np.histogram(x, density=density, weights=weights, **options)
        got = pb.histogram(x, density=density, weights=weights, **options)
        np.testing.assert_allclose(got.hist.numpy(), expected[0], rtol=1e-12)
        np.testing.assert_allclose(got.bin_edges.numpy(), expected[1], rtol=1e-15)
        again = pb.jit(lambda a: pb.histogram(a, density=density, weights=weights, **options))(pb.asarray(x))  # noqa: B023
        np.testing.assert_allclose(again.hist.numpy(), expected[0], rtol=1e-12)


def test_histogram_of_little():
    for x in (np.zeros(0), np.full(3, 2.0)):
        for got, expected in zip(pb.histogram(x, 4), np.histogram(x, 4), strict=True):
            np.testing.assert_array_equal(got.numpy(), expected)
    got = pb.histogram(np.array([1, 2, 2, 5]), 2)
    assert got.hist.tolist() == [3, 1] and got.hist.dtype is pb.int64
    assert pb.histogram([0.0, np.nan, 1.0, np.inf], 2, range=(0, 1)).hist.tolist() == [1, 1]


def test_histogram_errors():
    for bad in (0, -2, "auto"):
        with pytest.raises(pb.ArgumentError, match="bin"):
            pb.histogram([1.0], bad)
    with pytest.raises(pb.ArgumentError, match="ascend"):
        pb.histogram([1.0], np.array([1.0, 0.0]))
    with pytest.raises(pb.ShapeError, match="edges"):
        pb.histogram([1.0], np.array([1.0]))
    with pytest.raises(pb.ShapeError, match="weights"):
        pb.histogram([1.0], weights=[1.0, 2.0])
    with pytest.raises(pb.DTypeError, match="bool"):
        pb.histogram([True])
