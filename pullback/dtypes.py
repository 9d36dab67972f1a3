"""Element types, how they combine, and the defaults that Python numbers take.

Promotion follows the Python array API where it has a rule: within a kind the wider type wins, a signed and an
unsigned integer give the smallest signed integer that holds both, and a Python scalar is *weak*: it takes the
type of the array it meets. Where the array API leaves a mix undefined, an integer and a float give the float,
float16 and bfloat16 give float32, and uint64 with a signed integer is an error (no integer holds both).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .errors import ArgumentError, DTypeError


class DType:
    """An element type. Compare with ``is`` or ``==``; hash is identity. ``np.dtype(x.dtype)`` works.

    A comparison with anything that names a dtype (``x.dtype == "float32"``, ``x.dtype == np.float32``) works too.
    """

    __slots__ = ("itemsize", "kind", "name", "numpy")

    def __init__(self, name: str, kind: str, numpy_dtype: Any) -> None:
        self.name = name
        self.kind = kind  # 'b' bool, 'i' signed, 'u' unsigned, 'f' float, 'c' complex
        self.numpy = np.dtype(numpy_dtype)
        self.itemsize = self.numpy.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """What ``np.dtype(self)`` looks up."""
        return self.numpy

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        try:
            return bool(self.numpy == np.dtype(other))  # type: ignore[call-overload]
        except TypeError:
            return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"pullback.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (by_name, (self.name,))


bool_ = DType("bool", "b", np.bool_)
int8 = DType("int8", "i", np.int8)
int16 = DType("int16", "i", np.int16)
int32 = DType("int32", "i", np.int32)
int64 = DType("int64", "i", np.int64)
uint8 = DType("uint8", "u", np.uint8)
uint16 = DType("uint16", "u", np.uint16)
uint32 = DType("uint32", "u", np.uint32)
uint64 = DType("uint64", "u", np.uint64)
float16 = DType("float16", "f", np.float16)
bfloat16 = DType("bfloat16", "f", ml_dtypes.bfloat16)
float32 = DType("float32", "f", np.float32)
float64 = DType("float64", "f", np.float64)
complex64 = DType("complex64", "c", np.complex64)
complex128 = DType("complex128", "c", np.complex128)

ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
_BY_NAME = {d.name: d for d in (*ALL, *COMPLEX)}
_BY_NUMPY = {d.numpy: d for d in (*ALL, *COMPLEX)}
_ALIASES = {"half": float16, "single": float32, "float": float32, "double": float64, "bool_": bool_}

default_int = int64
_default_float = float32


def by_name(name: str) -> DType:
    """The dtype called ``name``; unpickling uses it to keep dtypes singletons."""
    return _BY_NAME[name]


def get_default_dtype() -> DType:
    """The float dtype that Python floats, ``zeros``, ``rand`` and divided integers take; float32 at the start."""
    return _default_float


def set_default_dtype(dtype: Any) -> None:
    """Choose the float dtype that Python floats take (``pb.float32`` or ``pb.float64``, or a half type)."""
    global _default_float
    new = as_dtype(dtype)
    if new.kind != "f":
        raise DTypeError(f"set_default_dtype: the default must be a floating dtype, got {new.name}")
    _default_float = new


def as_dtype(obj: Any) -> DType:
    """The dtype that ``obj`` names.

    obj: a DType; a NumPy dtype or scalar type, of either byte order; a string (``"float32"``, ``"f4"``,
    ``"bfloat16"``); or Python's ``bool``, ``int`` (int64) or ``float`` (the default float).

    Raises DTypeError for anything else, and for complex dtypes, which are not built yet.
    """
    if type(obj) is DType:
        found = obj
    elif obj is float:
        return _default_float
    elif obj is int:
        return default_int
    elif obj is bool:
        return bool_
    elif obj is complex:
        found = complex64
    elif isinstance(obj, str) and obj in _BY_NAME:
        found = _BY_NAME[obj]
    elif isinstance(obj, str) and obj in _ALIASES:
        found = _ALIASES[obj]
    elif obj is None:
        raise DTypeError("None is not a dtype")
    else:
        try:
            numpy_dtype = np.dtype(obj)
        except TypeError as error:
            raise DTypeError(f"{obj!r} is not a dtype; supported: {_supported()}") from error
        return from_numpy(numpy_dtype)
    if found.kind == "c":
        raise _complex_error(found.name)
    return found


def from_numpy(numpy_dtype: np.dtype[Any]) -> DType:
    """The DType of a NumPy dtype of either byte order; DTypeError for one that Pullback has no type for."""
    found = _BY_NUMPY.get(numpy_dtype)
    if found is None:
        found = _BY_NUMPY.get(numpy_dtype.newbyteorder("=")) if numpy_dtype.kind in "biufc" else None
        if found is None:
            if numpy_dtype.kind == "O":
                raise DTypeError("an object array has no numeric dtype; convert it with array.astype(...) first")
            raise DTypeError(f"NumPy dtype {numpy_dtype} is not supported; supported: {_supported()}")
    if found.kind == "c":
        raise _complex_error(found.name)
    return found


def _supported() -> str:
    return ", ".join(d.name for d in ALL)


def _complex_error(name: str) -> DTypeError:
    return DTypeError(f"{name}: complex dtypes are not supported yet; keep real and imaginary parts as two tensors")


# -- promotion ---------------------------------------------------------------------------------------------------------

_SIGNED = {1: int8, 2: int16, 4: int32, 8: int64}
_KIND_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _combine(a: DType, b: DType) -> DType | None:
    if a is b:
        return a
    if a.kind == b.kind:
        if a.itemsize == b.itemsize:
            return float32  # float16 and bfloat16
        return a if a.itemsize > b.itemsize else b
    rank_a, rank_b = _KIND_RANK[a.kind], _KIND_RANK[b.kind]
    if rank_a != rank_b:
        high, low = (a, b) if rank_a > rank_b else (b, a)
        if high is complex64 and low is float64:
            return complex128
        return high
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    return _SIGNED.get(max(signed.itemsize, 2 * unsigned.itemsize))


_PROMOTION = {(a, b): _combine(a, b) for a in _BY_NAME.values() for b in _BY_NAME.values()}


def promote_types(a: DType, b: DType) -> DType:
    """The common dtype of two arrays of dtypes ``a`` and ``b``; DTypeError where there is none."""
    if a is b:
        return a
    found = _PROMOTION[a, b]
    if found is None:
        raise DTypeError(
            f"{a.name} and {b.name} have no common integer dtype; choose one with x.astype(...)"
        )
    return found


def promote_weak(strong: DType, weak: DType) -> DType:
    """The dtype of an array of dtype ``strong`` that meets a Python scalar (or weak tensor) of dtype ``weak``.

    The scalar's width never counts. Its kind counts if it is higher: a bool array and an int give int64, an integer
    array and a float give the default float.
    """
    if _KIND_RANK[weak.kind] <= _KIND_RANK[strong.kind]:
        return strong
    return default_of_kind(weak.kind)


def default_of_kind(kind: str) -> DType:
    """The dtype that a lone Python scalar of ``kind`` takes."""
    if kind == "f":
        return _default_float
    return bool_ if kind == "b" else default_int


def of_scalar(value: Any) -> DType:
    """The (weak) dtype of a Python bool, int or float."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return default_int
    if isinstance(value, float):
        return _default_float
    if isinstance(value, complex):
        raise _complex_error("complex scalar")
    raise DTypeError(f"{value!r} is not a number")


def can_cast(source: DType, target: DType, casting: str = "safe") -> bool:
    """Whether a value of ``source`` may become ``target``.

    ``"safe"``: the promotion of both is ``target``. ``"same_kind"``, for writes in place: also a narrower type of the
    same kind (float64 to float32, int64 to int8), never a float to an integer or a signed to an unsigned integer.
    """
    if source is target:
        return True
    if casting == "same_kind":
        if source.kind == target.kind:
            return True
        order = "buifc"
        return order.index(source.kind) < order.index(target.kind)
    if casting != "safe":
        raise ArgumentError(f"can_cast: casting must be 'safe' or 'same_kind', got {casting!r}")
    return _PROMOTION[source, target] is target


_DTYPE_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether ``dtype`` is of ``kind``: a dtype, a name of the array API's (``"integral"``...), or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _DTYPE_KINDS:
        return as_dtype(dtype).kind in _DTYPE_KINDS[kind]
    if isinstance(kind, str) and kind not in _BY_NAME:
        raise ArgumentError(f"isdtype: unknown kind {kind!r}; expected one of {', '.join(_DTYPE_KINDS)}")
    return as_dtype(dtype) is as_dtype(kind)


# -- limits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating dtype, as Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """NumPy's name of ``smallest_normal``."""
        return self.smallest_normal


@dataclass(frozen=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(dtype: Any) -> FloatInfo:
    """Limits of a floating dtype, or of a tensor's dtype."""
    found = as_dtype(getattr(dtype, "dtype", dtype) if not isinstance(dtype, type) else dtype)
    if found.kind != "f":
        raise DTypeError(f"finfo: {found.name} is not a floating dtype")
    info: Any = ml_dtypes.finfo(found.numpy)
    return FloatInfo(
        found.itemsize * 8, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal),
        float(info.smallest_subnormal), found,
    )


def integer_limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    bits = dtype.itemsize * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)


def iinfo(dtype: Any) -> IntegerInfo:
    """Limits of an integer dtype, or of a tensor's dtype."""
    found = as_dtype(getattr(dtype, "dtype", dtype) if not isinstance(dtype, type) else dtype)
    if found.kind not in "iu":
        raise DTypeError(f"iinfo: {found.name} is not an integer dtype")
    low, high = integer_limits(found)
    return IntegerInfo(found.itemsize * 8, high, low, found)
