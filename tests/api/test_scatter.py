"""gather, scatter and the index_ functions: modes, ties, zeros, dtypes, errors."""

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.testing import check_grads

COMBINE = {"set": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
RNG = np.random.default_rng(0)


def loop(x, axis, index, src, mode, include_self):
    """The definition of scatter."""
    out, written = x.astype(np.float64), np.zeros(x.shape, int)
    for place in np.ndindex(index.shape):
        target = list(place)
        target[axis] = index[place]
        target = tuple(target)
        value = src[place]
        if mode == "set" or (not include_self and not written[target]):
            out[target] = value
        elif mode == "mean":
            out[target] += value
        else:
            out[target] = COMBINE[mode](out[target], value)
        written[target] += 1
    if mode == "mean":
        out = out / np.maximum(written + include_self, 1)
        out = np.floor(out) if x.dtype.kind in "iu" else out
    return out.astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("mode", ["set", "add", "mul", "min", "max", "mean"])
def test_scatter_like_its_definition(mode, dtype):
    rng = np.random.default_rng(1)
    dtype = getattr(pb, dtype).numpy
    for axis, include_self in itertools.product((0, 1, -1), (True, False)):
        x = rng.integers(1, 4, (3, 4, 2)).astype(dtype)
        index = rng.integers(0, x.shape[axis], (3, 3, 2))
        index[index == 1] = 0
        src = rng.integers(1, 4, (3, 4, 3)).astype(dtype)
        got = pb.scatter(x, axis, index - x.shape[axis] * (index == 0), src, mode=mode, include_self=include_self)
        assert got.dtype.numpy == dtype
        expected = loop(x, axis % 3, index, src, mode, include_self)
        np.testing.assert_allclose(got.numpy().astype(float), expected.astype(float), rtol=1e-15)


@pytest.mark.parametrize("name, same", [("sum", "add"), ("prod", "mul"), ("multiply", "mul"), ("amin", "min"),
                                        ("amax", "max")])
def test_names_of_modes(name, same):
    x, index, src = RNG.normal(size=(3, 2)), np.array([[0, 0], [2, 0]]), RNG.normal(size=(2, 2))
    np.testing.assert_array_equal(pb.scatter(x, 0, index, src, mode=name).numpy(),
                                  pb.scatter(x, 0, index, src, mode=same).numpy())


def test_bools():
    x = np.array([True, False, True])
    index = [0, 0, 1]
    assert pb.scatter(x, 0, index, [False, True, True], mode="max").tolist() == [True, True, True]
    assert pb.scatter(x, 0, index, [False, True, False], mode="min").tolist() == [False, False, True]
    assert pb.scatter(x, 0, index, [False, False, True], mode="max", include_self=False).tolist() == [False, True, True]
    for mode in ("add", "mul", "mean"):
        with pytest.raises(pb.DTypeError, match="bool"):
            pb.scatter(x, 0, index, True, mode=mode)


def test_half_types_round_once():
    src = np.full(3000, 1, np.float16)
    for function in (lambda s: pb.scatter(pb.zeros(1, dtype=pb.float16), 0, np.zeros(3000, int), s, mode="add"),
                     lambda s: pb.index_add(pb.zeros(1, dtype=pb.float16), 0, np.zeros(3000, int), s)):
        assert function(src).item() == 3000  # one by one it would stop at 2048


# -- derivatives at kinks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("include_self", [True, False])
def test_products_of_zeros(include_self, reference_backend):
    x = np.array([2.0, 0.0, 3.0])
    for src in ([0.0, 0.0, 4.0, 0.0], [0.0, 5.0, 0.0, 6.0], [1.0, 2.0, 3.0, 0.0]):
        check_grads(lambda a, s: pb.scatter(a, 0, [0, 0, 0, 1], s, mode="mul", include_self=include_self),
                    (x, np.array(src)))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_equal_extremes_share_evenly(mode):
    x = pb.asarray([1.0, 5.0, 1.0])
    src = pb.asarray([1.0, 1.0, 2.0 if mode == "min" else 0.0, 1.0])

    def f(a, s, include_self):
        return pb.scatter(a, 0, [0, 0, 0, 2], s, mode=mode, include_self=include_self).sum()

    by_x, by_src = pb.grad(f, argnums=(0, 1))(x, src, True)
    np.testing.assert_allclose(by_x.numpy(), [1 / 3, 1, 1 / 2], rtol=1e-6)
    np.testing.assert_allclose(by_src.numpy(), [1 / 3, 1 / 3, 0, 1 / 2], rtol=1e-6)
    by_x, by_src = pb.grad(f, argnums=(0, 1))(x, src, False)
    np.testing.assert_allclose(by_x.numpy(), [0, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(by_src.numpy(), [1 / 2, 1 / 2, 0, 1], rtol=1e-6)
    by_x, by_src = pb.jit(pb.grad(f, argnums=(0, 1)), static_argnames=("include_self",))(x, src, include_self=False)
    np.testing.assert_allclose(by_src.numpy(), [1 / 2, 1 / 2, 0, 1], rtol=1e-6)


def test_of_repeated_writes_the_last_has_the_gradient():
    x, src = pb.zeros(3), pb.asarray([1.0, 2.0, 3.0])
    by_x, by_src = pb.grad(lambda a, s: (pb.scatter(a, 0, [1, 1, 0], s) * pb.asarray([1.0, 10.0, 100.0])).sum(),
                           argnums=(0, 1))(x, src)
    assert by_x.tolist() == [0, 0, 100] and by_src.tolist() == [0, 10, 1]


def test_gradients_of_repeated_positions_add():
    gradient = pb.grad(lambda a: pb.gather(a, 0, [[0, 0], [0, 1]]).sum())(pb.ones((2, 3)))
    assert gradient.tolist() == [[2, 1, 0], [0, 1, 0]]


def test_infinite_elements_that_are_not_read():
    x = pb.asarray([0.0, 4.0])
    gradient = pb.grad(lambda a: pb.scatter(pb.sqrt(a), 0, [0], 2.0).sum())(x)
    assert gradient.tolist() == [0, 0.25]


def test_zero_cotangents_beat_infinite_products():
    x, src = pb.asarray([2.0, 3.0]), pb.asarray([np.inf, 4.0, 0.5])
    by_x, by_src = pb.grad(lambda a, s: pb.sum(pb.where(pb.asarray([False, True]), pb.scatter(
        a, 0, [0, 0, 1], s, mode="mul"), 1.0)), argnums=(0, 1))(x, src)
    assert by_x.tolist() == [0, 0.5] and by_src.tolist() == [0, 0, 3]


# -- the others --------------------------------------------------------------------------------------------------------


def test_put_along_axis_like_numpy():
    x = RNG.normal(size=(4, 5))
    for axis, indices, values in ((0, [[1], [3]], 7.0), (1, RNG.permuted(np.tile(np.arange(5), (4, 1)), axis=1)[:, :2],
                                                           RNG.normal(size=(4, 2))), (-1, [[0]] * 4, [[1.0]]),
                                  (None, [3, 19, -1], [1.0, 2.0, 3.0])):
        expected = x.copy()
        indices = np.asarray(indices)
        np.put_along_axis(expected, indices if axis != 0 else np.broadcast_to(indices, (2, 5)), values, axis)
        np.testing.assert_array_equal(pb.put_along_axis(x, indices, values, axis=axis).numpy(), expected)
    added = pb.put_along_axis(np.zeros(3), [1, 1, 0], [1.0, 2.0, 3.0], mode="add")
    assert added.tolist() == [3, 3, 0]


def test_inside_vmap_and_jit():
    x, index, src = RNG.normal(size=(3, 4)), RNG.integers(0, 4, (3, 6)), RNG.normal(size=(3, 6))
    for mode in ("set", "add", "mul", "min", "max", "mean"):
        def f(a, i, s, mode=mode):
            return pb.scatter(a, 0, i, s, mode=mode)

        rows = [f(a, i, s).numpy() for a, i, s in zip(x, index, src)]
        np.testing.assert_allclose(pb.jit(pb.vmap(f))(*map(pb.asarray, (x, index, src))).numpy(), rows, rtol=1e-12)
        shared = pb.vmap(f, in_axes=(None, None, 0))(*map(pb.asarray, (x[0], index[0], src))).numpy()
        np.testing.assert_allclose(shared, [f(x[0], index[0], s).numpy() for s in src], rtol=1e-12)


def test_positions_out_of_range():
    x = pb.zeros((2, 3))
    for function in (
        lambda i: pb.gather(x, 1, i[None]), lambda i: pb.scatter(x, 1, i[None], 1.0),
        lambda i: pb.index_select(x, 1, i),
        lambda i: pb.index_add(x, 1, i, pb.ones((2, 1))), lambda i: pb.index_copy(x, 1, i, pb.ones((2, 1))),
        lambda i: pb.index_fill(x, 1, i, 1.0), lambda i: pb.take_along_axis(x, pb.stack([i, i]), axis=1),
        lambda i: pb.put_along_axis(x, i[None], 1.0, axis=1), lambda i: pb.take(x, i, axis=1),
        lambda i: pb.select(x, 1, i[0]), lambda i: pb.index_put(x, (slice(None), i), 1.0),
    ):
        for bad in (3, -4):
            with pytest.raises(IndexError, match=r"axis 1.* size 3"):
                function(pb.asarray([bad])).numpy()
            with pytest.raises(IndexError, match=r"axis 1.* size 3"):
                pb.jit(function)(pb.asarray([bad])).numpy()
    with pytest.raises(IndexError, match="axis 0 with size 2"):
        pb.select(x, 0, 2)


def test_errors():
    x = pb.zeros((2, 3))
    with pytest.raises(pb.ShapeError, match="2 axes"):
        pb.gather(x, 0, [0])
    with pytest.raises(pb.ShapeError, match=r"larger than the tensor.* axis 1"):
        pb.gather(x, 0, np.zeros((1, 4), int))
    with pytest.raises(pb.DTypeError, match="integers"):
        pb.gather(x, 0, [[0.5]])
    with pytest.raises(pb.ShapeError, match="axis"):
        pb.gather(x, 2, [[0]])
    with pytest.raises(pb.ArgumentError, match="mode 'sub'"):
        pb.scatter(x, 0, [[0]], 1.0, mode="sub")
    with pytest.raises(pb.ShapeError, match="does not cover"):
        pb.scatter(x, 0, [[0, 1]], [[1.0]])
    with pytest.raises(pb.DTypeError, match="cannot be stored"):
        pb.scatter(pb.zeros((2, 3), dtype=pb.int32), 0, [[0]], 1.5)
    with pytest.raises(pb.ShapeError, match="source of shape"):
        pb.index_add(x, 0, [0, 1], pb.ones((2, 2)))
    with pytest.raises(pb.ShapeError, match="alpha"):
        pb.index_add(x, 0, [0], pb.ones((1, 3)), alpha=pb.ones(3))
    with pytest.raises(pb.ShapeError, match="at most one axis"):
        pb.index_select(x, 0, [[0]])
    with pytest.raises(pb.ShapeError, match="number or 0-d"):
        pb.index_fill(x, 0, [0], pb.ones(3))
    with pytest.raises(pb.ShapeError, match="0-d"):
        pb.select(x, 0, [0])
    with pytest.raises(pb.ShapeError, match="ranks"):
        pb.put_along_axis(x, [0], 1.0, axis=0)
    with pytest.raises(pb.ShapeError, match="broadcast"):
        pb.put_along_axis(x, [[0, 1, 2]], np.ones(2), axis=1)
