"""Loads, stores, gathers, reductions across lanes and the text that the builder writes."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from harness import TARGETS, address, assembly, compiled, function_text

from pullback import dtypes
from pullback.compiler.llvm import target as targets
from pullback.compiler.llvm.builder import VectorBuilder
from pullback.compiler.llvm.target import Target, by_target_name, host
from pullback.compiler.llvm.values import STORAGE_SIZE, Value
from pullback.errors import CompileError

STORED = [d.name for d in dtypes.ALL]


def numbers(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = dtypes.by_name(dtype).numpy
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, count, dtype=kind, endpoint=True)
    return rng.normal(size=count).astype(kind)


def target_of(name: str) -> Target:
    return host() if host().name == name else by_target_name(name)


def kernel(target: Target, lines: list[str], declares: dict[str, str], parameters: str) -> Callable[..., None]:
    """Compile ``void k(parameters)`` around straight-line code; the result takes addresses and integers."""
    text = "\n".join([*declares.values(), f"define void @k({parameters}) {{", *lines, "  ret void", "}"])
    kinds = [ctypes.c_void_p if p.startswith("ptr") else ctypes.c_int64 for p in parameters.split(", ")]
    return ctypes.CFUNCTYPE(None, *kinds)(address(text, target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("width", [1, 2, 8, 16])
def test_load_and_store(dtype: str, width: int, target: str) -> None:
    x = numbers(dtype, 48)
    got = compiled(target, [dtype], dtype, lambda b, args: args[0], width=width)(x)
    np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORED)
def test_masked_lanes_are_neither_read_nor_written(dtype: str, target: str) -> None:
    """The mapping ends where the array does: touching a masked lane would end the process."""
    if sys.platform == "win32":
        pytest.skip("needs mprotect")
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 4 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (1, 3):
        assert libc.mprotect(ctypes.c_void_p(start + guard * page), ctypes.c_size_t(page), 0) == 0
    kind = dtypes.by_name(dtype).numpy
    t, width = target_of(target), 16
    b = VectorBuilder(width, t)
    mask = b.mask_below("%n")
    b.store(dtype, "%out", b.load(dtype, "%in", mask), mask)
    run = kernel(t, b.lines, b.declares, "ptr %out, ptr %in, i64 %n")
    for count in (0, 1, 3, 8, 15, 16):
        x = numbers(dtype, count, count)
        source, destination = (start + end * page - count * kind.itemsize for end in (1, 3))
        ctypes.memmove(source, x.ctypes.data, x.nbytes)
        run(destination, source, count)
        got = np.frombuffer(ctypes.string_at(destination, x.nbytes), kind)
        np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8))
    for guard in (1, 3):
        libc.mprotect(ctypes.c_void_p(start + guard * page), ctypes.c_size_t(page), 3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORED)
def test_masked_lanes_load_as_zero(dtype: str, target: str) -> None:
    t = target_of(target)
    b = VectorBuilder(8, t)
    b.store(dtype, "%out", b.load(dtype, "%in", b.mask_below("%n")))
    run = kernel(t, b.lines, b.declares, "ptr %out, ptr %in, i64 %n")
    x = numbers(dtype, 8)
    out = np.empty_like(x)
    run(out.ctypes.data, x.ctypes.data, 5)
    wanted = x.copy()
    wanted[5:] = 0
    np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("static", [True, False])
def test_strided(dtype: str, static: bool, target: str) -> None:
    """Every third element, backwards, with and without a mask; the other elements stay."""
    t, size = target_of(target), STORAGE_SIZE[dtype]
    x = numbers(dtype, 40)
    for masked in (False, True):
        b = VectorBuilder(8, t)
        mask = b.mask_below("%n") if masked else None
        step: str | int = -3 * size if static else "%step"
        value = b.load_strided(dtype, "%in", step, mask)
        b.store_strided(dtype, "%out", step, value, mask)
        run = kernel(t, b.lines, b.declares, "ptr %out, ptr %in, i64 %step, i64 %n")
        out = numbers(dtype, 40, 1)
        wanted = out.copy()
        count = 5 if masked else 8
        chosen = 30 - 3 * np.arange(count)
        wanted[chosen] = x[chosen]
        run(out.ctypes.data + 30 * size, x.ctypes.data + 30 * size, -3 * size, count)
        np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORED)
def test_gather_and_scatter(dtype: str, target: str) -> None:
    t, size = target_of(target), STORAGE_SIZE[dtype]
    x = numbers(dtype, 20)
    index = np.array([3, 19, 0, 3, 7, 7, 7, 12])
    b = VectorBuilder(8, t)
    offsets = b.mul(b.load("int64", "%index"), b.const(size, "i64"))
    value = b.gather(dtype, "%in", offsets)
    b.store(dtype, "%out", value)
    b.scatter(dtype, "%spread", b.mul(b.load("int64", "%places"), b.const(size, "i64")), value)
    run = kernel(t, b.lines, b.declares, "ptr %out, ptr %spread, ptr %in, ptr %index, ptr %places")
    out, spread = np.empty(8, x.dtype), np.zeros(9, x.dtype)
    places = np.array([8, 6, 4, 2, 0, 1, 1, 1])
    run(out.ctypes.data, spread.ctypes.data, x.ctypes.data, index.ctypes.data, places.ctypes.data)
    np.testing.assert_array_equal(out.view(np.uint8), x[index].view(np.uint8))
    wanted = np.zeros(9, x.dtype)
    wanted[places] = x[index]  # the last of several writes to one place stays, as in lane order
    np.testing.assert_array_equal(spread.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORED)
def test_scalars(dtype: str, target: str) -> None:
    t, size = target_of(target), STORAGE_SIZE[dtype]
    b = VectorBuilder(4, t)
    value = b.load_scalar(dtype, "%in")
    b.store(dtype, "%out", value)
    b.lines.append(f"  %last = getelementptr i8, ptr %out, i64 {4 * size}")
    b.store_scalar(dtype, "%last", value)
    x, out = numbers(dtype, 1), np.zeros(6, dtypes.by_name(dtype).numpy)
    kernel(t, b.lines, b.declares, "ptr %out, ptr %in")(out.ctypes.data, x.ctypes.data)
    wanted = np.zeros_like(out)
    wanted[:5] = x[0]
    np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8))


HORIZONTAL: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", list(HORIZONTAL))
def test_horizontal(op: str, target: str) -> None:
    for dtype in ("bool", "int8", "uint16", "int32", "int64", "uint64", "float32", "float64"):
        if op in ("and", "or", "xor") and dtype.startswith("float"):
            continue
        for width in (1, 4, 16):
            x = numbers(dtype, width)
            got = compiled(target, [dtype], dtype, lambda b, args: b.horizontal(op, args[0]), width=width)(x)
            with np.errstate(over="ignore"):
                wanted = HORIZONTAL[op].reduce(x, dtype=x.dtype)
            if dtype.startswith("float"):
                np.testing.assert_allclose(got, wanted, rtol=1e-5)
                assert len(set(got.tolist())) == 1
            else:
                np.testing.assert_array_equal(got, np.full(width, wanted))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_horizontal_extremum_of_nan(dtype: str, target: str) -> None:
    for place in range(8):
        x = numbers(dtype, 8)
        x[place] = np.nan
        for op in ("min", "max"):
            got = compiled(target, [dtype], dtype, lambda b, args, op=op: b.horizontal(op, args[0]), width=8)(x)
            assert np.isnan(got).all()


@pytest.mark.parametrize("target", TARGETS)
def test_mask_below_and_any_lane(target: str) -> None:
    t = target_of(target)
    for width in (1, 4, 16):
        b = VectorBuilder(width, t)
        mask = b.mask_below("%n")
        b.store("bool", "%out", mask)
        b.lines.append(f"  %some = zext i1 {b.any_lane(mask)} to i8")
        b.lines.append("  store i8 %some, ptr %any")
        run = kernel(t, b.lines, b.declares, "ptr %out, ptr %any, i64 %n")
        for count in (0, 1, 3, 15, 16, 1 << 32, (1 << 32) + 1):
            out, some = np.empty(width, bool), np.empty(1, bool)
            run(out.ctypes.data, some.ctypes.data, count)
            np.testing.assert_array_equal(out, np.arange(width) < count)
            assert some[0] == (count > 0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("constant", [0.0, -0.0, 1.0, np.nan])
def test_extremum_with_a_constant(constant: float, dtype: str, target: str) -> None:
    register = {"float32": "f32", "float64": "f64"}[dtype]
    x = np.array([0.0, -0.0, 1, -1, 2, np.nan, np.inf, -np.inf], dtype)
    for name, reference in (("maximum", np.maximum), ("minimum", np.minimum)):
        for first in (True, False):

            def body(b: VectorBuilder, args: list[Value], name: str = name, first: bool = first) -> Value:
                pair = (args[0], b.const(constant, register))
                return getattr(b, name)(*(pair if first else pair[::-1]))  # type: ignore[no-any-return]

            got = compiled(target, [dtype], dtype, body)(x)
            wanted = reference(x, np.asarray(constant, dtype))
            np.testing.assert_array_equal(got, wanted)
            zeros = (x == 0) & (constant == 0)
            both = np.signbit(x) & np.signbit(constant) if name == "maximum" else np.signbit(x) | np.signbit(constant)
            np.testing.assert_array_equal(np.signbit(got)[zeros], both[zeros])


def test_constants() -> None:
    b = VectorBuilder(4, by_target_name("generic128"))
    assert b.const(1, "f32") == Value("splat (float 0x3FF0000000000000)", "f32")
    assert b.const(0.1, "f32").ref == "splat (float 0x3FB99999A0000000)"
    assert b.const(0.1, "f64").ref == "splat (double 0x3FB999999999999A)"
    assert b.const(-1, "u8").ref == "splat (i8 255)"
    assert b.const(1e300, "f32") == b.const(float("inf"), "f32")
    assert b.const(2, "i1").ref == "splat (i1 true)"
    assert b.iota("u32").ref == "<i32 0, i32 1, i32 2, i32 3>"
    assert not b.lines


def test_equal_instructions_are_written_once_a_block() -> None:
    b = VectorBuilder(4, by_target_name("generic128"))
    x, y = b.load("float32", "%p"), b.load("float32", "%q")
    assert b.add(x, y) == b.add(x, y)
    count = len(b.lines)
    b.lines += ["  br label %next", "next:"]
    again = b.add(x, y)
    assert len(b.lines) == count + 3
    assert b.add(x, y) == again
    b.lines = []
    assert b.add(x, y) != again


def test_builders_of_one_function_share_names() -> None:
    b = VectorBuilder(4, by_target_name("generic128"))
    one = b.at_width(1)
    names = {b.emit("add i32 1, 1"), one.emit("add i32 1, 1"), b.emit("add i32 1, 1")}
    assert len(names) == 3
    assert one.lines is b.lines
    assert one.type("f32") == "<1 x float>"


def test_no_library_is_called() -> None:
    """Rounding, fused multiply-add and half conversion become instructions on every target, never calls."""
    for name in targets.NAMES:
        target = by_target_name(name)
        if target.name != "generic128" and not llvm.get_default_triple().startswith("x86_64"):
            continue

        def body(b: VectorBuilder, args: list[Value]) -> Value:
            x = b.fma(args[0], args[1], args[2])
            for function in (b.rint, b.floor, b.ceil, b.trunc, b.sqrt, b.abs):
                x = b.add(x, function(x))
            return b.maximum(x, args[0])

        for dtype in ("float16", "bfloat16", "float32", "float64"):
            code = assembly(function_text(target, target.lanes(dtype), [dtype] * 3, dtype, body), target)
            assert not [line for line in code.splitlines() if "call" in line.split()], (name, dtype)


def test_targets() -> None:
    for name, bits in zip(targets.NAMES, (512, 256, 128), strict=True):
        target = by_target_name(name)
        assert target.vector_bits == bits
        assert target.lanes("float32") == target.lanes("bfloat16") == bits // 32
        assert target.lanes("float64") == bits // 64
        assert target.lanes("bool") == bits // 8
    assert len({by_target_name(name).isa_key for name in targets.NAMES}) == 3
    with pytest.raises(CompileError, match="unknown target 'vax': PULLBACK_TARGET must be one of avx512, avx2"):
        by_target_name("vax")


def test_target_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULLBACK_TARGET", raising=False)
    detected = host()
    monkeypatch.setenv("PULLBACK_TARGET", "generic128")
    assert host().name == "generic128"
    assert host().vector_bits == 128
    monkeypatch.setenv("PULLBACK_TARGET", detected.name)
    assert host() == detected
    monkeypatch.setenv("PULLBACK_TARGET", "sparc")
    with pytest.raises(CompileError, match="sparc"):
        host()
    monkeypatch.setattr(targets, "_detect", lambda: by_target_name("avx2"))
    monkeypatch.setenv("PULLBACK_TARGET", "avx512")
    with pytest.raises(CompileError, match=r"does not run avx512 code; .* avx2, generic128"):
        host()
