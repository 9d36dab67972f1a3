"""Indexing against NumPy on random indices, and its errors, updates, gradients."""

import numpy as np
import pytest

import pullback as pb


def random_index(rng, shape):
    """An index of any mix of ints, slices, None, '...', integer arrays and masks that fits ``shape``."""
    entries, axis, has_ellipsis = [], 0, False
    while axis < len(shape) and rng.random() < 0.9:
        extent = shape[axis]
        kind = rng.choice(
            ["int", "slice", "none", "ellipsis", "array", "mask", "mask2", "list", "array0", "bool"],
            p=[0.2, 0.22, 0.08, 0.08, 0.2, 0.06, 0.04, 0.06, 0.04, 0.02],
        )
        if kind == "int" and extent:
            low = -extent - 1 if rng.random() < 0.05 else -extent
            entries.append(int(rng.integers(low, extent)))
            axis += 1
        elif kind == "slice":
            bounds = [None if rng.random() < 0.4 else int(rng.integers(-extent - 2, extent + 3)) for _ in range(2)]
            step = None if rng.random() < 0.4 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
            entries.append(slice(*bounds, step))
            axis += 1
        elif kind == "none":
            entries.append(None)
        elif kind == "ellipsis" and not has_ellipsis:
            has_ellipsis = True
            entries.append(Ellipsis)
            axis += int(rng.integers(0, len(shape) - axis + 1))
        elif kind in ("array", "list", "array0") and extent:
            size = {"array": [(3,), (2, 1), (1,), (2, 3)][rng.integers(4)], "list": (3,), "array0": ()}[kind]
            chosen = np.asarray(rng.integers(-extent, extent, size=size))
            entries.append(chosen.tolist() if kind == "list" else chosen)
            axis += 1
        elif kind == "mask":
            entries.append(rng.random(extent) < 0.5)
            axis += 1
        elif kind == "mask2" and axis + 1 < len(shape):
            entries.append(rng.random(shape[axis : axis + 2]) < 0.5)
            axis += 2
        elif kind == "bool":
            entries.append(bool(rng.random() < 0.5))
    return entries[0] if len(entries) == 1 and not isinstance(entries[0], list) else tuple(entries)


def as_ours(index, rng):
    def convert(entry):
        return pb.asarray(entry) if isinstance(entry, np.ndarray) and rng.random() < 0.5 else entry

    return tuple(map(convert, index)) if isinstance(index, tuple) else convert(index)


def outcome(function):
    try:
        return np.asarray(function())
    except (IndexError, ValueError) as error:
        return error


def check_case(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(v) for v in rng.integers(0 if rng.random() < 0.1 else 1, 5, size=rng.integers(1, 5)))
    x = rng.normal(size=shape)
    index = random_index(rng, shape)
    expected = outcome(lambda: x[index])
    got = outcome(lambda: pb.asarray(x)[as_ours(index, rng)])
    if isinstance(expected, Exception):
        assert isinstance(got, IndexError), (shape, index)
        return
    assert isinstance(got, np.ndarray), (shape, index, got)
    assert got.shape == expected.shape and np.array_equal(got, expected), (shape, index)

    value_shape = expected.shape
    value_shape = [value_shape, (), value_shape[1:], tuple(1 if rng.random() < 0.5 else s for s in value_shape)][
        rng.integers(4)
    ]
    value = rng.normal(size=value_shape)
    written, added = x.copy(), x.copy()
    written[index] = value
    np.add.at(added, index, np.broadcast_to(value, expected.shape).copy())
    tensor = pb.asarray(x)
    before = tensor.copy()
    tensor[as_ours(index, rng)] = value
    assert np.array_equal(np.asarray(tensor), written), (shape, index, value_shape)
    assert np.array_equal(np.asarray(before), x)
    got = before.at[as_ours(index, rng)].add(value)
    np.testing.assert_allclose(np.asarray(got), added, rtol=1e-12, err_msg=str((shape, index, value_shape)))


def test_random_indices_like_numpy(reference_backend):
    for seed in range(1500):
        check_case(seed)


def test_random_indices_compiled():
    for seed in range(5000, 5040):
        check_case(seed)


X = np.arange(24.0).reshape(2, 3, 4)


def test_the_error_names_axis_index_and_size():
    x = pb.asarray(X)
    for bad in (lambda: x[:, 3], lambda: x[0, -4], lambda: x[:, np.array([0, 3])], lambda: x[:, [0, -4]]):
        with pytest.raises(IndexError, match=r"index (3|-4) is out of bounds for axis 1 with size 3"):
            bad()
    with pytest.raises(IndexError, match=r"index 5 is out of bounds for axis 0 with size 2"):
        x[5]


def test_a_computed_index_out_of_range_raises_when_it_runs():
    x, i = pb.asarray(X), pb.asarray([0, 1]) + 1
    with pytest.raises(IndexError, match=r"axis 0.*2.*size 2"):
        x[i].numpy()
    with pytest.raises(IndexError):
        pb.jit(lambda a, b: a[b])(x, i).numpy()
    with pytest.raises(IndexError):
        x.at[i].set(0.0).numpy()


def test_wrong_indices():
    x = pb.asarray(X)
    for bad in ((0, 0, 0, 0), (Ellipsis, Ellipsis), 1.5, "a", np.array([0.5]), [0.5], (0, {}), pb.asarray([1.0])):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(IndexError, match="boolean index"):
        x[np.ones(3, bool)]
    with pytest.raises(IndexError, match="broadcast"):
        x[[0, 1, 0], [0, 1]]
    with pytest.raises(IndexError):
        pb.asarray(1.0)[0]


def test_empty_indices():
    x = pb.asarray(X)
    assert x[[]].shape == (0, 3, 4)
    assert x[:, np.zeros((2, 0), int)].shape == (2, 2, 0, 4)
    assert x[()].shape == X.shape
    assert pb.asarray(np.zeros((0, 3)))[:, 1].shape == (0,)


def test_writing():
    x = pb.asarray(X)
    x[0, 1] = 7
    x[..., -1] = [1, 2, 3]
    expected = X.copy()
    expected[0, 1] = 7
    expected[..., -1] = [1, 2, 3]
    np.testing.assert_array_equal(np.asarray(x), expected)
    with pytest.raises(pb.ShapeError, match="broadcast"):
        x[0] = np.ones(5)
    with pytest.raises(pb.ShapeError, match="broadcast"):
        x[X > 3] = np.ones((2, 3))


def test_writing_keeps_the_dtype():
    x = pb.zeros(3, dtype="int32")
    x[0] = 2
    x[1] = True
    x[2] = np.int64(5)
    assert x.dtype is pb.int32 and x.tolist() == [2, 1, 5]
    for bad in (1.5, np.ones(1), pb.ones(1)):
        with pytest.raises(pb.DTypeError, match="cannot be stored"):
            x[0] = bad
    with pytest.raises(OverflowError):
        x[0] = 2**31
    y = pb.zeros(2, dtype="float32")
    y[0] = np.float64(1.5)
    assert y.dtype is pb.float32 and y.tolist() == [1.5, 0]


def test_masked_writes():
    x, expected = pb.asarray(X), X.copy()
    x[x > 5] = -1
    expected[expected > 5] = -1
    np.testing.assert_array_equal(np.asarray(x), expected)
    x[np.array([True, False])] = np.arange(4.0)
    expected[[True, False]] = np.arange(4.0)
    np.testing.assert_array_equal(np.asarray(x), expected)
    x[x < 0] = np.arange(12.0)[: int((expected < 0).sum())]
    assert np.asarray(x).min() >= 0


def test_at():
    x = pb.zeros(4, dtype="float64")
    i = [0, 2, 0]
    assert x.at[i].add(1).tolist() == [2, 0, 1, 0]
    assert x.at[i].subtract(1).tolist() == [-2, 0, -1, 0]
    assert x.at[i].set([1, 2, 3]).tolist() == [3, 0, 2, 0]
    assert (x + 2).at[i].multiply([3, 4, 5]).tolist() == [30, 2, 8, 2]
    assert (x + 2).at[i].mul(2).tolist() == [8, 2, 4, 2]
    assert x.at[i].min([1, -2, -3]).tolist() == [-3, 0, -2, 0]
    assert x.at[i].max([1, -2, 3]).tolist() == [3, 0, 0, 0]
    assert x.at[1:3].add(1).tolist() == [0, 1, 1, 0]
    assert x.at[1::2].max([5, -5]).tolist() == [0, 5, 0, 0]
    assert x.at[::-1].set(np.arange(4)).tolist() == [3, 2, 1, 0]
    assert x.at[x == 0].set(9).tolist() == [9, 9, 9, 9]
    assert x.at[2].get().item() == 0
    assert x.tolist() == [0, 0, 0, 0]
    flags = pb.zeros(3, dtype=bool)
    assert flags.at[[0, 2]].set(True).tolist() == [True, False, True]
    with pytest.raises(pb.DTypeError):
        flags.at[[0, 0]].add(True)


def test_inside_jit():
    @pb.jit
    def f(x, i, v):
        x = x.at[i].set(v)
        x[0] = x[i] + 1
        x[x > 2] = 0.0
        return x

    x = np.arange(4.0)
    got = f(pb.asarray(x), pb.asarray(2), 5.0)
    np.testing.assert_array_equal(np.asarray(got), [0, 1, 0, 0])
    with pytest.raises(pb.TraceError, match="boolean mask"):
        pb.jit(lambda a: a[a > 1])(pb.asarray(x))
    for bad in (
        lambda a, i: a[:i], lambda a, i: pb.zeros(i), lambda a, i: pb.zeros((2, i)), lambda a, i: pb.sum(a, i),
    ):  # fmt: skip
        with pytest.raises(pb.TraceError, match="integer index"):
            pb.jit(bad)(pb.asarray(x), pb.asarray(0))


def test_gradients_of_indexing():
    from pullback.testing import check_grads

    x = pb.asarray(X)
    v = pb.asarray(np.random.default_rng(0).normal(size=(2, 4)))
    for function in (
        lambda a: a[:, 1, ::-2], lambda a: a[[0, 1, 0], :, 2], lambda a: a[0, [2, 2], 1:], lambda a: a[..., None, 0],
        lambda a: a[a > 4.5], lambda a: pb.take(a, [2, 0, 2], axis=1), lambda a: a[pb.asarray(1)],
    ):  # fmt: skip
        check_grads(function, (x,))
    for function in (
        lambda a, b: a.at[:, 1].set(b), lambda a, b: a.at[:, [0, 2, 0]].add(b[:, None]),
        lambda a, b: a.at[1, ::2].multiply(b), lambda a, b: pb.where(a > 3.5, a, a.at[0, :2].set(b)),
    ):  # fmt: skip
        check_grads(function, (x, v))


# -- take and its like -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("indices", [1, [0, 1], [[0, -1], [1, 1]], []], ids=str)
def test_take(axis, indices):
    indices = np.asarray(indices, int)
    np.testing.assert_array_equal(np.asarray(pb.take(X, indices, axis=axis)), np.take(X, indices, axis=axis))
    np.testing.assert_array_equal(np.asarray(pb.asarray(X).take(indices, axis)), np.take(X, indices, axis=axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(axis):
    order = np.argsort(-X, axis=axis)
    np.testing.assert_array_equal(
        np.asarray(pb.take_along_axis(X, order, axis=axis)), np.take_along_axis(X, order, axis=axis)
    )
    first = np.expand_dims(np.argmax(X, axis=axis), axis)
    np.testing.assert_array_equal(
        np.asarray(pb.take_along_axis(pb.asarray(X), pb.asarray(first), axis=axis)), np.max(X, axis=axis, keepdims=True)
    )


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "uint64"])
def test_take_modes(mode, dtype):
    beyond = [2, 100, 3] if dtype[0] == "u" else [-1, -100, 7]
    indices = np.array([2, 0, 1] if mode == "raise" else beyond).astype(dtype)
    expected = np.take(X, indices.astype(np.int64), axis=1, mode=mode)
    np.testing.assert_array_equal(pb.take(X, indices, axis=1, mode=mode).numpy(), expected)
    assert pb.take(np.zeros((0, 2)), np.zeros((0,), dtype), axis=0, mode=mode).shape == (0, 2)


def test_take_errors():
    with pytest.raises(pb.ArgumentError, match="mode"):
        pb.take(X, [5], axis=0, mode="ignore")
    with pytest.raises(IndexError, match="size 0"):
        pb.take(np.zeros((0, 2)), [0], axis=0, mode="wrap")
    with pytest.raises(IndexError):
        pb.take(X, [5], axis=0)
    with pytest.raises(pb.DTypeError):
        pb.take(X, [0.5], axis=0)
    with pytest.raises(pb.ShapeError):
        pb.take(X, [0], axis=3)
    with pytest.raises(pb.ShapeError, match="rank"):
        pb.take_along_axis(X, np.array([0]), axis=0)
    with pytest.raises(IndexError):
        pb.take_along_axis(X, np.full((1, 3, 4), 2), axis=0)


# -- parts of evaluated tensors share memory ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index", [1, (0, 2), slice(1, 2), (0, slice(1, 3)), (None, 1), Ellipsis, (1, ..., slice(None))], ids=str
)
def test_a_contiguous_part_is_not_copied(index):
    x = pb.asarray(X) + 0
    pb.eval(x)
    part = x[index]
    np.testing.assert_array_equal(part.numpy(), X[index])
    assert np.shares_memory(part.numpy(), x.numpy())
    assert not np.shares_memory(x[:, 1].numpy(), x.numpy())


def test_a_small_part_is_copied_at_once_and_a_large_one_is_not_computed_before_it_is_asked_for():
    x = pb.asarray(np.arange(300_000.0).reshape(300, 1000)) + 0
    pb.eval(x)
    backwards = slice(None, None, -1), slice(5, 2, -1)
    for index in ((slice(None), 7), backwards, (3, slice(None, None, 9)), (None, slice(9, 2), 1)):
        assert x[index].node.buffer is not None
        np.testing.assert_array_equal(x[index].numpy(), x.numpy()[index])
    assert x[:, 1:].node.buffer is None
    assert pb.jit(lambda a: a[:, 2])(x).shape == (300,)
    gradient = pb.grad(lambda a: pb.sum(a[:, 2]))(x)
    assert gradient[:, 2].tolist() == [1] * 300 and pb.sum(gradient).item() == 300


def test_parts_do_not_share_changes():
    x = pb.asarray(X) + 0
    pb.eval(x)
    row, again = x[1], x.reshape(-1)
    row += 100
    pb.eval(row)
    again *= 2
    pb.eval(again)
    np.testing.assert_array_equal(x.numpy(), X)
    row = x[0]
    x -= 5
    pb.eval(x)
    np.testing.assert_array_equal(row.numpy(), X[0])
    np.testing.assert_array_equal(x.numpy(), X - 5)
    del x
    for _ in range(4):
        pb.eval(pb.asarray(X) + 7)
    np.testing.assert_array_equal(row.numpy(), X[0])


def test_parts_of_tracked_tensors_stay_in_the_graph():
    w = pb.tensor(X, requires_grad=True)
    (w[1] * w.reshape(-1)[:12].reshape(3, 4)).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), X[::-1])
    gradient = pb.grad(lambda a: (pb.sum(a * 2) + a[0, 0, 0] * 3))(pb.asarray(X))
    assert gradient[0, 0, 0].item() == 5 and gradient[1, 0, 0].item() == 2

    def evaluated_inside(a):
        a.numpy()
        return pb.sum(a[0] * a[1])

    np.testing.assert_array_equal(pb.grad(evaluated_inside)(pb.asarray(X)).numpy(), X[::-1])


PARTS = [1, (slice(None), 2), (slice(1, 3), slice(None, None, -1)), (None, -1), (Ellipsis, 0)]


@pytest.mark.parametrize("index", PARTS)
def test_parts_of_an_evaluated_tensor_have_their_values_at_once(index):
    values = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    w = pb.asarray(values).requires_grad_()
    part = w[index]
    assert part.node.buffer is not None
    np.testing.assert_array_equal(part.numpy(), values[index])
    pb.sum(part * part).backward()
    expected = np.zeros_like(values)
    expected[index] = 2 * values[index]
    np.testing.assert_array_equal(w.grad.numpy(), expected)
    np.testing.assert_array_equal(pb.grad(lambda x: pb.sum(x[index] ** 2))(pb.asarray(values)).numpy(), expected)
    with pb.no_grad():
        w += 1  # must not be seen through the part
    np.testing.assert_array_equal(part.numpy(), values[index])
