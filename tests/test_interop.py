"""NumPy and DLPack in both directions: values, dtypes, memory shared or copied."""

import gc

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback import dtypes

BUILT = [d.numpy for d in dtypes.ALL]


@pytest.mark.parametrize("dtype", BUILT, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_there_and_back(dtype, shape):
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    for make in (pb.asarray, pb.array, pb.tensor):
        back = np.asarray(make(x))
        assert back.dtype == dtype and back.shape == shape
        np.testing.assert_array_equal(back, x)


def test_layouts():
    base = np.arange(24.0).reshape(4, 6)
    repeated = np.broadcast_to(base[0], (3, 6))
    for x in (base.T, base[::2], base[:, ::-1], base[::-1, 1:4], np.asfortranarray(base), repeated):
        np.testing.assert_array_equal(np.asarray(pb.asarray(x)), x)
        with pytest.raises(ValueError, match="copy"):
            pb.asarray(x, copy=False)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.float64, offset=1)
    np.testing.assert_array_equal(np.asarray(pb.asarray(unaligned)), base.ravel())


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">u8", ">f2"])
def test_big_endian_arrays_keep_their_values(dtype):
    x = np.array([1, 2, 300], dtype)
    t = pb.asarray(x)
    assert t.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(np.asarray(t), x)
    np.testing.assert_array_equal(np.asarray(t + x), 2 * x)


def test_read_only_arrays():
    x = np.arange(3.0)
    x.flags.writeable = False
    t = pb.asarray(x)
    t += 1
    t[0] = 9
    assert t.tolist() == [9, 2, 3] and x.tolist() == [0, 1, 2]


def test_asarray_shares_and_array_copies():
    x = np.arange(4.0)
    shared, copied = pb.asarray(x), pb.array(x)
    assert np.shares_memory(x, shared.numpy()) and not np.shares_memory(x, copied.numpy())
    assert pb.asarray(x, copy=False).tolist() == x.tolist()
    x[0] = 100
    assert shared.tolist()[0] == 100 and copied.tolist()[0] == 0


def test_changing_a_tensor_leaves_the_array_alone():
    x = np.arange(4.0)
    t = pb.asarray(x)
    t += 1
    t[1] = 50
    t.assign(t * 2)
    pb.eval(t)
    assert x.tolist() == [0, 1, 2, 3]


def test_numpy_views_are_read_only_and_stay():
    t = pb.ones(1000) * 2
    view = t.numpy()
    assert not view.flags.writeable and np.shares_memory(view, np.asarray(t))
    t += 1
    t.numpy()
    del t
    gc.collect()
    for _ in range(3):
        (pb.ones(1000) * 5).numpy()
    assert (view == 2).all()
    writable = np.array(pb.ones(3))
    writable[0] = 7
    assert np.array(pb.ones(3), copy=True).flags.writeable


def test_array_protocol():
    t = pb.asarray([1.5, 2.5])
    assert np.asarray(t, dtype="float64").dtype == np.float64
    assert np.asarray(t, dtype=int).tolist() == [1, 2]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, dtype="float64", copy=False)
    np.testing.assert_allclose(np.add(np.asarray(t), 1), [2.5, 3.5])
    assert isinstance(np.ones(2) + t, pb.Tensor) and isinstance(np.float32(2) * t, pb.Tensor)
    assert np.stack([t, t]).shape == (2, 2)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax"])
def test_numpys_functions_take_tensors(name):
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(np.asarray(getattr(np, name)(pb.asarray(x))), getattr(np, name)(x))


def test_out_is_not_available():
    with pytest.raises(ValueError, match="out="):
        pb.ones(3).sum(out=np.zeros(()))


def test_subclasses_of_ndarray():
    class Labelled(np.ndarray):
        pass

    t = pb.asarray(np.arange(3).view(Labelled))
    assert t.tolist() == [0, 1, 2] and type(t.numpy()) is np.ndarray
    with pytest.raises(pb.DTypeError, match="mask"):
        pb.asarray(np.ma.masked_array([1.0], [True]))


@pytest.mark.parametrize("dtype", [d for d in BUILT if d != ml_dtypes.bfloat16], ids=str)
def test_dlpack_to_numpy_and_back(dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    t = pb.asarray(x)
    out = np.from_dlpack(t)
    assert np.shares_memory(out, t.numpy()) and out.dtype == dtype
    np.testing.assert_array_equal(out, x)
    back = pb.from_dlpack(x)
    assert np.shares_memory(back.numpy(), x)
    np.testing.assert_array_equal(np.asarray(pb.from_dlpack(x.T)), x.T)
    assert t.__dlpack_device__() == (1, 0)


def test_dlpack_copies_and_errors():
    t = pb.asarray([1.0, 2.0])
    assert not np.shares_memory(np.from_dlpack(t, copy=True), t.numpy())
    assert pb.from_dlpack(t).tolist() == [1, 2]
    with pytest.raises(BufferError, match="bfloat16"):
        np.from_dlpack(pb.ones(2, dtype="bfloat16"))
    with pytest.raises(BufferError, match="CPU"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy"):
        t.__dlpack__(copy=False)
    t.__dlpack__()
    with pytest.raises(pb.DTypeError, match="__dlpack__"):
        pb.from_dlpack([1, 2])
    with pytest.raises(pb.DTypeError):
        pb.from_dlpack(np.array([1j]))


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")
    source = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    t = pb.from_dlpack(source)
    assert t.numpy().ctypes.data == source.data_ptr()
    assert torch.from_dlpack(pb.ones(3)).tolist() == [1, 1, 1]
    np.testing.assert_array_equal(np.asarray(pb.asarray(source)), source.numpy())


def test_values_are_not_available_while_tracing():
    for bad in (np.asarray, lambda x: np.from_dlpack(x), lambda x: x.item()):
        with pytest.raises(pb.TraceError):
            pb.jit(lambda x, f=bad: f(x))(pb.asarray(1.0))


def test_eval_of_trees():
    x = pb.ones(3) + 1
    y = pb.ones(2) * 3
    assert pb.eval({"x": x, "rest": [y, None, 3]}, x) is None
    assert x.node.buffer is not None and y.node.buffer is not None
    with pytest.raises(pb.TraceError, match=r"pb\.eval"):
        pb.jit(lambda a: pb.eval(a + 1))(x)


def test_numpy_functions_on_tensors():
    t = pb.asarray([1.0, -2.0, 3.0])
    a = np.ones(3, np.float32)
    for result, expected in [
        (np.sin(t), np.sin(np.asarray(t))), (np.maximum(0, t), [1, 0, 3]), (a - t, [0, 3, -2]), (a @ t, 2.0),
        (np.float32(2) * t, [2, -4, 6]), (np.isnan(t), [False] * 3),
    ]:  # fmt: skip
        assert isinstance(result, pb.Tensor)
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)
    with pytest.raises(pb.DTypeError, match=r"np\.add\.reduce does not take a Tensor"):
        np.add.reduce(t)
    with pytest.raises(pb.DTypeError, match="with out="):
        a += t
    np.testing.assert_array_equal(a, 1)
