"""Every scalar instruction against NumPy, for every dtype it takes and every target that this machine runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from harness import TARGETS, assembly, compiled, function_text

from pullback import dtypes
from pullback.compiler.llvm.builder import VectorBuilder
from pullback.compiler.llvm.scalar import INSTRUCTIONS, emit
from pullback.compiler.llvm.target import by_target_name
from pullback.compiler.llvm.values import Value
from pullback.compiler.llvm.vector_math import UNARY
from pullback.errors import CompileError
from pullback.ops import activation

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float32", "float64")
HALVES = ("float16", "bfloat16")
ALL = ("bool", *INTEGERS, *FLOATS)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy warns of the special values that these tests are about."""
    with np.errstate(all="ignore"):
        yield


def samples(dtype: str, seed: int = 0) -> np.ndarray:
    """Special values of the dtype and random ones."""
    rng = np.random.default_rng(seed)
    kind = dtypes.by_name(dtype).numpy
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        info = np.iinfo(kind)
        edge = [info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 3, 5, 7, 8, 31, 32, 33, 63, 64, 65, 100]
        edge += [] if info.min == 0 else [-1, -2, -3, -5, -7, -8, -100]
        wide = rng.integers(info.min, info.max, 40, dtype=kind, endpoint=True)
        return np.concatenate([np.array(edge, kind), wide])
    special = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e30]
    special += [1e8, -7.25, 8388607.5, -8388607.5, 4194304.5, 2.0**52 + 1, 2.0**51 + 0.5]
    special += [0.49999997, 0.49999999999999994]
    return np.concatenate([np.array(special), rng.normal(size=30) * 10, rng.uniform(-1, 1, 20)]).astype(kind)


def grid(dtype: str, arity: int) -> list[np.ndarray]:
    """Every combination of samples."""
    if arity == 1:
        return [samples(dtype)]
    base = samples(dtype)
    if arity == 3:
        base = base[:: max(1, len(base) // 18)]
    return [np.array(column, base.dtype) for column in zip(*itertools.product(base, repeat=arity), strict=True)]


def run(name: str, target: str, operands: tuple[str, ...], result: str, *arrays: Any) -> Any:
    return compiled(target, operands, result, lambda b, args: emit(b, name, result, operands, args))(*arrays)


def same(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal bits, but any NaN for a NaN."""
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype
    if got.dtype.kind not in "iub":
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(got), nan)
        got, wanted = got[~nan], wanted[~nan]
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
    np.testing.assert_array_equal(got, wanted)


def trunc_reciprocal(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x.astype(object)) == 1, x, 0).astype(x.dtype)


def integer_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = 8 * x.dtype.itemsize
    out = []
    for base, exponent in zip(x.tolist(), y.tolist(), strict=True):
        if exponent < 0:
            base, exponent = (base, -exponent) if abs(base) == 1 else (0, 1)
        out.append(pow(base, exponent, 1 << bits))
    return np.array(out, np.uint64).astype(f"u{x.dtype.itemsize}").view(x.dtype)


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """NumPy's, whose choice between zeros depends on the array's length: here +0 is the larger."""
    result = np.maximum(x, y)
    if x.dtype.kind != "f":
        return result
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x) & np.signbit(y), -0.0, 0.0), result).astype(x.dtype)


def minimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -maximum(-x, -y) if x.dtype.kind == "f" else np.minimum(x, y)


def fmax(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, maximum(x, y)))


def fmin(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, minimum(x, y)))


#: name -> (dtypes, number of operands, reference)
SAME_DTYPE: dict[str, tuple[tuple[str, ...], int, Any]] = {
    "add": (ALL, 2, np.add),
    "subtract": (INTEGERS + FLOATS, 2, np.subtract),
    "multiply": (ALL, 2, np.multiply),
    "divide": (FLOATS, 2, np.divide),
    "floor_divide": (INTEGERS + FLOATS, 2, np.floor_divide),
    "remainder": (INTEGERS + FLOATS, 2, np.remainder),
    "fmod": (INTEGERS + FLOATS, 2, np.fmod),
    "fmax": (ALL, 2, fmax),
    "fmin": (ALL, 2, fmin),
    "nextafter": ((*FLOATS, *HALVES), 2, lambda x, y: np.where(x == y, y, np.nextafter(x, y))),
    "one_minus_square": (FLOATS, 1, lambda x: (1 - x) * (1 + x)),
    "negative": (INTEGERS + FLOATS, 1, np.negative),
    "abs": (ALL, 1, np.abs),
    "sign": (INTEGERS + FLOATS, 1, np.sign),
    "square": (INTEGERS + FLOATS, 1, np.square),
    "cube": (INTEGERS + FLOATS, 1, lambda x: x * x * x),
    "sqrt": (FLOATS, 1, np.sqrt),
    "rsqrt": (FLOATS, 1, lambda x: 1 / np.sqrt(x)),
    "maximum": (ALL, 2, maximum),
    "minimum": (ALL, 2, minimum),
    "clip": (INTEGERS + FLOATS, 3, lambda x, low, high: minimum(maximum(x, low), high)),
    "copysign": (FLOATS, 2, np.copysign),
    "floor": (FLOATS, 1, np.floor),
    "ceil": (FLOATS, 1, np.ceil),
    "round": (FLOATS, 1, np.rint),
    "trunc": (FLOATS, 1, np.trunc),
    "bitwise_and": (("bool", *INTEGERS), 2, np.bitwise_and),
    "bitwise_or": (("bool", *INTEGERS), 2, np.bitwise_or),
    "bitwise_xor": (("bool", *INTEGERS), 2, np.bitwise_xor),
    "bitwise_invert": (("bool", *INTEGERS), 1, np.invert),
    "left_shift": (INTEGERS, 2, np.left_shift),
    "right_shift": (INTEGERS, 2, np.right_shift),
    "stop_gradient": (ALL, 1, lambda x: x),
    "alias": (ALL, 1, lambda x: x),
    "barrier": (ALL, 2, lambda x, after: x),
}
TO_BOOL: dict[str, tuple[tuple[str, ...], int, Any]] = {
    "isnan": (INTEGERS + FLOATS, 1, np.isnan),
    "isinf": (INTEGERS + FLOATS, 1, np.isinf),
    "isfinite": (INTEGERS + FLOATS, 1, np.isfinite),
    "equal": (ALL, 2, np.equal),
    "not_equal": (ALL, 2, np.not_equal),
    "less": (ALL, 2, np.less),
    "less_equal": (ALL, 2, np.less_equal),
    "greater": (ALL, 2, np.greater),
    "greater_equal": (ALL, 2, np.greater_equal),
    "logical_and": (ALL, 2, np.logical_and),
    "logical_or": (ALL, 2, np.logical_or),
    "logical_xor": (ALL, 2, np.logical_xor),
    "logical_not": (ALL, 1, np.logical_not),
}
GELUS = ("gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope")
#: tested on their own below, or in test_vector_math.py
ELSEWHERE = {
    *UNARY, *GELUS, "pow", "atan2", "hypot", "logaddexp", "logaddexp2", "polygamma", "sinc", "reciprocal",
    "strong_multiply", "strong_product", "where", "cast", "bitcast", "check_index", "threefry",
}  # fmt: skip


def test_every_instruction_is_tested() -> None:
    assert set(INSTRUCTIONS) == {*SAME_DTYPE, *TO_BOOL, *ELSEWHERE}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*SAME_DTYPE, *TO_BOOL])
def test_elementwise(name: str, target: str) -> None:
    kinds, arity, reference = (SAME_DTYPE | TO_BOOL)[name]
    for dtype in kinds:
        arrays = grid(dtype, arity)
        got = run(name, target, (dtype,) * arity, "bool" if name in TO_BOOL else dtype, *arrays)
        same(got, reference(*arrays))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GELUS)
def test_gelu(name: str, target: str) -> None:
    for dtype in FLOATS:
        x = np.concatenate([np.linspace(-9, 9, 2001), [0.0, -40, 40, 1e30, -1e30]]).astype(dtype)
        got = run(name, target, (dtype,), dtype, x)
        step = np.finfo(dtype).eps
        np.testing.assert_allclose(got, getattr(activation, f"_{name}")(x), rtol=8 * step, atol=64 * step)


@pytest.mark.parametrize("target", TARGETS)
def test_reciprocal(target: str) -> None:
    for dtype in FLOATS:
        x = samples(dtype)
        same(run("reciprocal", target, (dtype,), dtype, x), 1 / x)
    for dtype in INTEGERS:
        x = samples(dtype)
        same(run("reciprocal", target, (dtype,), dtype, x), trunc_reciprocal(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power(dtype: str, target: str) -> None:
    x, y = grid(dtype, 2)
    same(run("pow", target, (dtype, dtype), dtype, x, y), integer_power(x, y))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ALL)
def test_where(dtype: str, target: str) -> None:
    x, y = grid(dtype, 2)
    mask = np.arange(x.size) % 3 == 0
    same(run("where", target, ("bool", dtype, dtype), dtype, mask, x, y), np.where(mask, x, y))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_strong_products(dtype: str, target: str) -> None:
    x, y = grid(dtype, 2)
    one_sided = np.where(x == 0, 0, x * y).astype(x.dtype)
    two_sided = np.where((x == 0) | (y == 0), 0, x * y).astype(x.dtype)
    same(run("strong_multiply", target, (dtype, dtype), dtype, x, y), one_sided)
    same(run("strong_product", target, (dtype, dtype), dtype, x, y), two_sided)


def cast_reference(x: np.ndarray, dtype: str) -> np.ndarray:
    """NumPy's cast, but from a float to an integer that cannot hold it to the nearest that it can (NaN: 0)."""
    kind = dtypes.by_name(dtype).numpy
    if dtype not in INTEGERS or x.dtype.kind in "iub":
        return x.astype(kind)
    info = np.iinfo(kind)
    out = [0 if np.isnan(v) else info.max if v > info.max else info.min if v < info.min else int(v) for v in x.tolist()]
    return np.array(out, kind)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", [*ALL, *HALVES])
def test_cast(source: str, target: str) -> None:
    x = samples("float32" if source in HALVES else source).astype(dtypes.by_name(source).numpy)
    for dtype in (*ALL, *HALVES):
        got = run("cast", target, (source,), dtype, x)
        same(got, cast_reference(x, dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
def test_half_storage(dtype: str, target: str) -> None:
    """Every 16-bit pattern survives a load and a store; every float rounds to the nearest, ties to even."""
    kind = dtypes.by_name(dtype).numpy
    every = np.arange(65536, dtype=np.uint16).view(kind)
    got = compiled(target, [dtype], dtype, lambda b, args: args[0])(every)
    nan = np.isnan(every.astype(np.float32))
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], every.view(np.uint16)[~nan])
    assert np.isnan(got[nan].astype(np.float32)).all()
    widened = compiled(target, [dtype], "float32", lambda b, args: args[0])(every)
    same(widened, every.astype(np.float32))

    rng = np.random.default_rng(1)
    values = every.astype(np.float64)
    finite = np.sort(values[np.isfinite(values)])
    ties = (finite[1:] + finite[:-1]) / 2
    floats = np.concatenate([ties, ties * (1 + 1e-6), ties * (1 - 1e-6)]).astype(np.float32)
    floats = np.concatenate([floats, rng.integers(0, 2**32, 50000, dtype=np.uint64).astype(np.uint32).view(np.float32)])
    rounded = compiled(target, ["float32"], dtype, lambda b, args: args[0])(floats)
    same(rounded, floats.astype(kind))
    if dtype == "float16":  # float64 rounds once, not by way of float32
        doubles = np.concatenate([ties, ties * (1 + 1e-12), ties * (1 - 1e-12)])
        same(run("cast", target, ("float64",), dtype, doubles), doubles.astype(np.float16))


@pytest.mark.parametrize("target", TARGETS)
def test_bitcast(target: str) -> None:
    bytes_, words = ("bool", "int8", "uint8"), ("int16", "uint16", *HALVES)
    for group in (bytes_, words, ("int32", "uint32", "float32"), ("int64", "uint64", "float64")):
        for source, dtype in itertools.product(group, repeat=2):
            if "bool" in (source, dtype) and source != dtype:
                x = np.array([0, 1], dtypes.by_name(source).numpy)
            else:
                base = "float32" if source in HALVES else source
                x = samples(base).astype(dtypes.by_name(source).numpy)
                x = x[~np.isnan(x.astype(np.float64))]
            got = run("bitcast", target, (source,), dtype, x)
            wanted = x.view(dtypes.by_name(dtype).numpy)
            if dtype in HALVES:
                keep = ~np.isnan(wanted.astype(np.float32))
                got, wanted = got[keep].view(np.uint16), wanted[keep].view(np.uint16)
            same(got, wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_check_index(dtype: str, target: str) -> None:
    x = samples(dtype)
    size = 40
    wanted = []
    for i in x.astype(np.int64).tolist():  # an unsigned index beyond int64 counts as the negative number it wraps to
        wrapped = i + size if i < 0 and dtype in SIGNED else i
        wanted.append(wrapped if 0 <= wrapped < size else 0)
    reported: list[Value] = []

    def body(b: VectorBuilder, args: list[Value]) -> Value:
        b.on_bad_index = lambda bad, index, extent: reported.append(bad)  # type: ignore[method-assign]
        return emit(b, "check_index", "int64", (dtype,), args, (size, "test"))

    same(compiled(target, [dtype], "int64", body)(x), np.array(wanted, np.int64))
    assert len(reported) == 1

    def mask(b: VectorBuilder, args: list[Value]) -> Value:
        body(b, args)
        return reported[-1]

    bad = np.array([not -size <= i < size for i in x.tolist()])
    same(compiled(target, [dtype], "bool", mask)(x), bad)


@pytest.mark.parametrize("target", TARGETS)
def test_threefry(target: str) -> None:
    """Known answers of Random123 (kat_vectors, threefry2x32 20)."""
    vectors = [
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    columns = zip(*vectors, strict=True)
    counters, keys, wanted = (np.array([(h << 32) | low for h, low in column], np.uint64) for column in columns)
    same(run("threefry", target, ("uint64", "uint64"), "uint64", keys, counters), wanted)


def test_unknown_instruction_and_wrong_dtype() -> None:
    b = VectorBuilder(4, by_target_name("generic128"))
    x = b.const(1, "i32")
    with pytest.raises(CompileError, match="no instruction 'frobnicate'"):
        emit(b, "frobnicate", "int32", ("int32",), [x])
    with pytest.raises(CompileError, match="floats got int32"):
        emit(b, "exp", "int32", ("int32",), [x])
    with pytest.raises(CompileError, match="cannot be checked"):
        emit(b, "check_index", "int64", ("int64",), [b.const(0, "i64")], (3, "test"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_avx512_code(dtype: str) -> None:
    """What cannot run here at least compiles, to vector code that calls no library."""
    target = by_target_name("avx512")
    if not llvm.get_default_triple().startswith("x86_64"):
        pytest.skip("emits x86-64 code")
    pairs = ("pow", "atan2", "maximum", "add", "fmax", "hypot", "logaddexp", "logaddexp2", "nextafter")
    for name in (*UNARY, *pairs, "floor"):
        arity = 2 if name in pairs else 1
        operands = (dtype,) * arity
        for width in (1, target.lanes(dtype)):
            text = function_text(
                target, width, operands, dtype, lambda b, args, n=name, o=operands: emit(b, n, dtype, o, args)
            )
            code = assembly(text, target)
        assert "zmm" in code
        calls = [line for line in code.splitlines() if "call" in line.split() and "pullback." not in line]
        assert not calls, (name, calls)
