"""Making tensors: from every kind of object, filled, counted; and what cannot be made into one."""

import array
import collections

import numpy as np
import pytest

import pullback as pb


def same(got, expected, exact=True):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if exact:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (1.5, np.float32(1.5)), (3, np.int64(3)), (True, np.bool_(True)),
        ([1, 2], np.array([1, 2])), ([1.0, 2], np.array([1, 2], np.float32)), ([True, 2], np.array([1, 2])),
        ([[1, 2], [3, 4.5]], np.array([[1, 2], [3, 4.5]], np.float32)), ((1, 2), np.array([1, 2])),
        (range(4), np.arange(4)), ([], np.zeros(0, np.float32)), ([[], []], np.zeros((2, 0), np.float32)),
        ([range(2), range(2)], np.array([[0, 1], [0, 1]])),
        (np.float64(2), np.float64(2)), ([np.float64(1), 2.0], np.array([1, 2.0])),
        ([np.int8(1), 2], np.array([1, 2], np.int8)), ([np.ones(2), [2, 3]], np.array([[1.0, 1], [2, 3]])),
        (np.arange(3, dtype=np.int16), np.arange(3, dtype=np.int16)),
        (array.array("d", [1, 2]), np.array([1.0, 2.0])), (collections.UserList([1, 2]), np.array([1, 2])),
        (bytearray(b"ab"), np.array([97, 98], np.uint8)),
    ],
    ids=str,
)  # fmt: skip
def test_objects(obj, expected):
    same(pb.asarray(obj), expected)
    same(pb.array(obj), expected)


def test_objects_with_a_dtype():
    same(pb.asarray([1, 2], dtype="float64"), np.array([1.0, 2]))
    same(pb.asarray([1.7, -2.7], dtype=int), np.array([1, -2]))
    same(pb.asarray(np.array([1.7, np.nan, 1e30]), dtype="int8"), np.array([1, 0, 127], np.int8))
    same(pb.asarray(np.array([2, 0]), dtype=bool), np.array([True, False]))
    same(pb.asarray(2**63, dtype="uint64"), np.uint64(2**63))
    assert pb.asarray(1.5, dtype="bfloat16").dtype is pb.bfloat16
    assert pb.asarray([1.5], dtype="bfloat16").tolist() == [1.5]


@pytest.mark.parametrize("obj", [[[1, 2], [3]], [[1], 2], [1, [2, 3]], [np.ones(2), np.ones(3)], [[[1]], [[1, 2]]]])
def test_ragged_lists(obj):
    with pytest.raises(pb.ShapeError, match="ragged"):
        pb.asarray(obj)


def test_ragged_lists_of_tensors():
    with pytest.raises(pb.ShapeError, match="ragged"):
        pb.asarray([pb.ones(2), pb.ones(3)])


@pytest.mark.parametrize(
    "obj",
    [
        "text", b"bytes", None, ["a", "b"], [1, None], {1: 2}, {1, 2}, object(), [object()], 1j, [1j, 2],
        np.array(["a"]), np.array([None, 1]), np.array([1j]), np.array(["2020-01-01"], "M8[D]"),
        np.ma.masked_array([1, 2], [True, False]), np.zeros(2, [("x", int)]), np.ones(2, np.longdouble),
    ],
    ids=lambda obj: repr(obj).split(" at 0x")[0],  # the same name in every process
)  # fmt: skip
def test_not_numeric(obj):
    with pytest.raises(pb.DTypeError):
        pb.asarray(obj)


def test_integers_too_large():
    for obj in (2**63, [1, 2**63], -(2**63) - 1):
        with pytest.raises(OverflowError):
            pb.asarray(obj)
    with pytest.raises(OverflowError):
        pb.asarray([1, 300], dtype="uint8")


def test_a_list_inside_itself():
    obj: list = []
    obj.append(obj)
    with pytest.raises(pb.ShapeError, match="nested"):
        pb.asarray(obj)


def test_tensors_in_lists_stay_in_the_graph():
    def f(x):
        return pb.sum(pb.asarray([[x, 2 * x], [3.0, x * x]]))

    assert pb.grad(f)(pb.asarray(3.0)).item() == 1 + 2 + 6
    same(pb.asarray([pb.ones(2), [2, 3]]), np.array([[1, 1], [2, 3]], np.float32))
    same(pb.asarray([pb.asarray(1), 2.5]), np.array([1, 2.5], np.float32))


def test_large_lists_are_quick():
    values = list(range(200_000))
    same(pb.asarray(values), np.arange(200_000))


def test_asarray_of_a_tensor():
    x = pb.ones(2)
    assert pb.asarray(x) is x
    assert pb.asarray(x, copy=True) is not x
    assert pb.asarray(x, dtype="float64").dtype is pb.float64
    assert pb.asarray(x, dtype="float32") is x
    with pytest.raises(ValueError, match="copy"):
        pb.asarray(x, dtype="float64", copy=False)
    with pytest.raises(ValueError, match="copy"):
        pb.asarray([1, 2], copy=False)


def test_devices():
    assert pb.zeros(2, device="cpu").device == "cpu"
    with pytest.raises(pb.DeviceError):
        pb.zeros(2, device="cuda")
    with pytest.raises(pb.DeviceError):
        pb.ones(2).to_device("tpu")


# -- filled ------------------------------------------------------------------------------------------------------------


def test_filled():
    same(pb.zeros((2, 3)), np.zeros((2, 3), np.float32))
    same(pb.ones(3, dtype="int8"), np.ones(3, np.int8))
    same(pb.empty(2), np.zeros(2, np.float32))
    same(pb.full((2,), 7), np.full((2,), 7))
    same(pb.full((2,), 7.5), np.full((2,), 7.5, np.float32))
    same(pb.full((2, 2), np.array([1.0, 2.0])), np.full((2, 2), [1.0, 2.0]))
    same(pb.full(3, True), np.full(3, True))
    x = np.ones((2, 1), np.int16)
    for name in ("zeros_like", "ones_like"):
        same(getattr(pb, name)(x), getattr(np, name)(x))
    same(pb.full_like(x, 3), np.full_like(x, 3))
    same(pb.empty_like(x, dtype="float64"), np.zeros((2, 1)))
    with pytest.raises(OverflowError):
        pb.full(2, 300, dtype="uint8")
    with pytest.raises(pb.ShapeError):
        pb.full((2,), np.ones(3))
    with pytest.raises(pb.ShapeError, match="zeros"):
        pb.zeros((2, -1))


# -- counted -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [(5,), (0,), (-3,), (2, 7), (7, 2), (7, 2, -2), (0, 10, 3), (2.5,), (0, 1, 0.1), (1, 0, -0.3), (0.5, 3), (True,)],
    ids=str,
)
def test_arange(arguments):
    expected = np.arange(*arguments)
    if expected.dtype.kind == "f":
        got = pb.arange(*arguments, dtype="float64")
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-14)
        assert pb.arange(*arguments).dtype is pb.float32
    else:
        same(pb.arange(*arguments), expected)


def test_arange_dtypes_and_errors():
    same(pb.arange(3, dtype="uint8"), np.arange(3, dtype=np.uint8))
    same(pb.arange(5, 0, -1, dtype="uint64"), np.arange(5, 0, -1).astype(np.uint64))
    same(pb.arange(3, dtype="float16"), np.arange(3, dtype=np.float16))
    assert pb.arange(2**62, 2**62 + 2).tolist() == [2**62, 2**62 + 1]
    with pytest.raises(pb.ShapeError, match="step"):
        pb.arange(0, 3, 0)
    with pytest.raises(pb.ShapeError, match="finite"):
        pb.arange(0, float("inf"))
    with pytest.raises(OverflowError):
        pb.arange(300, dtype="uint8")
    with pytest.raises(pb.DTypeError):
        pb.arange("a")
    with pytest.raises(pb.DTypeError):
        pb.arange(3, dtype=bool)


@pytest.mark.parametrize("arguments", [(0, 1, 5), (1, -1, 4), (0, 1, 1), (0, 1, 0), (3, 3, 3), (0.1, 0.7, 50)])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace(arguments, endpoint):
    expected = np.linspace(*arguments, endpoint=endpoint)
    got = np.asarray(pb.linspace(*arguments, endpoint=endpoint, dtype="float64"))
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-16)
    if endpoint and arguments[2] > 1:
        assert got[0] == arguments[0] and got[-1] == arguments[1]
    assert pb.linspace(*arguments).dtype is pb.float32


def test_linspace_of_arrays():
    start, stop = np.zeros(2), np.array([1.0, 2.0])
    np.testing.assert_allclose(np.asarray(pb.linspace(start, stop, 3)), np.linspace(start, stop, 3))
    same(pb.linspace(0, 9, 4, dtype="int64"), np.linspace(0, 9, 4, dtype=np.int64))
    with pytest.raises(pb.ShapeError):
        pb.linspace(0, 1, -1)


def test_eye_and_grids():
    for arguments in ((3,), (2, 4), (0,)):
        for k in (-1, 0, 2):
            same(pb.eye(*arguments, k=k, dtype="float64"), np.eye(*arguments, k=k))
    same(pb.identity(2), np.identity(2, np.float32))
    a, b, c = np.arange(2.0), np.arange(3), np.arange(4)
    for indexing in ("xy", "ij"):
        for got, expected in zip(
            pb.meshgrid(a, b, c, indexing=indexing), np.meshgrid(a, b, c, indexing=indexing), strict=True
        ):
            same(got, expected)
    with pytest.raises(ValueError, match="indexing"):
        pb.meshgrid(a, indexing="zz")
    expected = np.fromfunction(lambda i, j: i + 2 * j, (2, 3))
    same(pb.fromfunction(lambda i, j: i + 2 * j, (2, 3), dtype="float64"), expected)


def test_astype():
    x = pb.asarray([1.5, -1.5, 0.0])
    assert x.astype("int32").tolist() == [1, -1, 0]
    assert x.astype(bool).tolist() == [True, True, False]
    assert x.astype(pb.float32) is not x
    with pytest.raises(pb.DTypeError):
        x.astype("complex64")
