"""Dtypes: names, promotion against NumPy, weak scalars, limits, the default."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback import dtypes

BUILT = dtypes.ALL


@pytest.fixture
def default_dtype():
    before = pb.get_default_dtype()
    yield
    pb.set_default_dtype(before)


@pytest.mark.parametrize("dtype", BUILT, ids=str)
def test_a_dtype_has_many_names(dtype):
    assert dtypes.as_dtype(dtype) is dtype
    assert dtypes.as_dtype(dtype.name) is dtype
    assert dtypes.as_dtype(dtype.numpy) is dtype
    assert dtypes.as_dtype(dtype.numpy.type) is dtype
    assert np.dtype(dtype) == dtype.numpy
    assert dtype == dtype.numpy and dtype == dtype.name
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_python_types_and_byte_orders_name_dtypes():
    assert dtypes.as_dtype(float) is pb.float32
    assert dtypes.as_dtype(int) is pb.int64
    assert dtypes.as_dtype(bool) is pb.bool
    assert dtypes.as_dtype(">f8") is pb.float64
    assert dtypes.as_dtype(np.dtype(">i2")) is pb.int16
    assert dtypes.as_dtype(np.longlong) is pb.int64


@pytest.mark.parametrize("bad", [None, "float33", object, np.dtype("O"), "datetime64[s]", "S3", 3, np.longdouble])
def test_other_things_are_no_dtypes(bad):
    with pytest.raises(pb.DTypeError):
        dtypes.as_dtype(bad)


@pytest.mark.parametrize("name", [complex, "complex64", np.complex128, pb.complex64])
def test_complex_says_that_it_is_not_there_yet(name):
    with pytest.raises(pb.DTypeError, match="complex dtypes are not supported yet"):
        pb.zeros(3, dtype=name)


def test_equality_with_things_that_are_no_dtypes_is_false():
    assert pb.float32 != "no such"
    assert pb.float32 != pb.float64
    assert pb.float32 is not None and pb.float32 != 3


@pytest.mark.parametrize("a", BUILT, ids=str)
@pytest.mark.parametrize("b", BUILT, ids=str)
def test_promotion_agrees_with_numpy_or_keeps_the_float(a, b):
    kinds = {a.kind, b.kind}
    if kinds == {"u", "i"} and dtypes.uint64 in (a, b):
        with pytest.raises(pb.DTypeError, match="no common integer dtype"):
            dtypes.promote_types(a, b)
        return
    found = dtypes.promote_types(a, b)
    assert found is dtypes.promote_types(b, a)
    if "f" in kinds and kinds != {"f"}:
        assert found is (a if a.kind == "f" else b)
    elif dtypes.bfloat16 in (a, b):
        other = b if a is dtypes.bfloat16 else a
        expected = {dtypes.bfloat16: dtypes.bfloat16, dtypes.float64: dtypes.float64}.get(other, dtypes.float32)
        assert found is expected
    else:
        assert found.numpy == np.promote_types(a.numpy, b.numpy)


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        ("float16", 2, "float16"), ("float16", 2.5, "float16"), ("bfloat16", True, "bfloat16"),
        ("float64", 1, "float64"),
        ("int8", 2, "int8"), ("uint8", True, "uint8"), ("int8", 2.5, "float32"), ("bool", 2, "int64"),
        ("bool", 1.5, "float32"), ("bool", True, "bool"),
    ],
)
def test_python_scalars_are_weak(dtype, scalar, expected):
    x = pb.ones(3, dtype=dtype)
    assert pb.result_type(x, scalar).name == expected
    assert (pb.where(True, x, scalar)).dtype.name == expected
    if expected != "bool":
        assert (x * scalar).dtype.name == expected
        assert (scalar * x).dtype.name == expected


def test_result_type_takes_dtypes_arrays_and_scalars():
    assert pb.result_type("int32", np.float16(1)) is pb.float16
    assert pb.result_type(1, 2.0) is pb.float32
    assert pb.result_type(np.zeros(2, np.int16), 3) is pb.int16
    with pytest.raises(pb.DTypeError):
        pb.result_type()


def test_casting_rules():
    assert pb.can_cast(pb.int8, pb.int16)
    assert not pb.can_cast(pb.int16, pb.int8)
    assert pb.can_cast(pb.ones(2), "float64") and not pb.can_cast(np.ones(2), "float32")
    assert dtypes.can_cast(pb.float64, pb.float32, "same_kind")
    assert dtypes.can_cast(pb.uint8, pb.int8, "same_kind")
    assert not dtypes.can_cast(pb.int8, pb.uint8, "same_kind")
    assert not dtypes.can_cast(pb.float32, pb.int64, "same_kind")
    with pytest.raises(ValueError, match="casting"):
        dtypes.can_cast(pb.int8, pb.int16, "unsafe")


def test_isdtype():
    assert pb.isdtype(pb.int8, "signed integer") and pb.isdtype(pb.uint8, "integral")
    assert pb.isdtype(pb.bfloat16, ("bool", "real floating"))
    assert not pb.isdtype(pb.bool, "numeric")
    assert pb.isdtype("float32", pb.float32) and not pb.isdtype("float32", pb.float64)
    with pytest.raises(ValueError, match="unknown kind"):
        pb.isdtype(pb.int8, "whole")


@pytest.mark.parametrize("dtype", [d for d in BUILT if d.kind == "f"], ids=str)
def test_float_limits(dtype):
    info, expected = pb.finfo(dtype), ml_dtypes.finfo(dtype.numpy)
    assert info.max == float(expected.max) and info.min == float(expected.min) and info.eps == float(expected.eps)
    assert info.bits == expected.bits and info.dtype is dtype and info.tiny == float(expected.tiny)


@pytest.mark.parametrize("dtype", [d for d in BUILT if d.kind in "iu"], ids=str)
def test_integer_limits(dtype):
    info, expected = pb.iinfo(dtype), np.iinfo(dtype.numpy)
    assert (info.min, info.max, info.bits) == (expected.min, expected.max, expected.bits)


def test_limits_of_a_tensor_and_of_the_wrong_kind():
    assert pb.finfo(pb.ones(2)).dtype is pb.float32
    assert pb.finfo(np.float64).dtype is pb.float64
    with pytest.raises(pb.DTypeError):
        pb.finfo(pb.int32)
    with pytest.raises(pb.DTypeError):
        pb.iinfo(pb.float32)


def test_default_dtype(default_dtype):
    pb.set_default_dtype(pb.float64)
    assert pb.asarray(1.0).dtype is pb.float64
    assert pb.zeros(2).dtype is pb.float64
    assert (pb.ones(2, dtype="int8") / 2).dtype is pb.float64
    assert (pb.ones(2, dtype="float32") * 2.0).dtype is pb.float32
    with pytest.raises(pb.DTypeError):
        pb.set_default_dtype(pb.int32)
