"""Products of integers by the contraction engine: exact modulo the width of the result, in pairs or widened."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness import assembly

import pullback as pb
from pullback.compiler import products
from pullback.compiler.llvm import pairs
from pullback.compiler.llvm.builder import VectorBuilder
from pullback.compiler.llvm.contraction import contraction_ir
from pullback.compiler.llvm.target import by_target_name, host
from pullback.compiler.llvm.values import Value
from pullback.errors import GradientError
from tests.backends import on_backend
from tests.threads import same_bits

NARROW = ("int8", "uint8", "int16", "uint16")
WIDE = ("int32", "uint32", "int64", "uint64")
needs_tile = pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")
needs_x86 = pytest.mark.skipif(not host().is_x86, reason="these are instructions of x86")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """From the whole range, with its ends more often than chance would have them."""
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    ends = rng.random(shape)
    values[ends < 0.1], values[ends > 0.9] = limits.min, limits.max
    return values


def wrapped(subscripts: str, a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """The sums modulo 2^64, of which every integer dtype has the last bits."""
    return np.einsum(subscripts, a.astype(np.uint64), b.astype(np.uint64)).astype(dtype)


def product(subscripts: str, a: Any, b: Any, dtype: str | None) -> np.ndarray:
    return pb.einsum(subscripts, pb.asarray(a), pb.asarray(b), preferred_dtype=dtype and getattr(pb, dtype)).numpy()


@pytest.mark.parametrize("dtype", [*NARROW, *WIDE])
def test_every_small_extent(dtype: str) -> None:
    rng = np.random.default_rng(0)
    preferred = "int32" if dtype in NARROW else None
    odd = range(1, 18, 2) if dtype == "int8" else (1, 3, 7, 13, 17)
    for m, n, k in itertools.product(odd, (*odd, 2, 8, 16), (*odd, 2, 4, 8)):
        a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
        got = product("mk,kn->mn", a, b, preferred)
        assert got.dtype == (preferred or dtype)
        np.testing.assert_array_equal(got, wrapped("mk,kn->mn", a, b, preferred or dtype))


@pytest.mark.parametrize("dtype", [*NARROW, *WIDE])
@pytest.mark.parametrize("keeps_dtype", [False, True])
def test_random_shapes_transposes_and_strides(dtype: str, keeps_dtype: bool) -> None:
    rng = np.random.default_rng(1)
    preferred = None if keeps_dtype else "int64" if dtype in WIDE else "int32"
    if dtype == "uint64" and preferred:
        preferred = None
    result = preferred or dtype
    for _ in range(12):
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, 6, 3)).astype(int))
        extents = {"b": int(rng.integers(1, 4)), "m": m, "n": n, "k": k}
        left = ["bmk", "bkm", "mbk", "kmb"][rng.integers(4)]
        right = ["bkn", "bnk", "kn", "nk", "knb"][rng.integers(5)]
        a, b = (numbers(rng, tuple([extents[c] for c in text]), dtype) for text in (left, right))
        text = f"{left},{right}->bmn"
        np.testing.assert_array_equal(product(text, a, b, preferred), wrapped(text, a, b, result))
        wide, other = numbers(rng, (2 * m, k), dtype), numbers(rng, (n, 2 * k), dtype)
        x, y = pb.asarray(wide)[::2], pb.asarray(other)[::-1, ::2]
        got = product("mk,nk->mn", x, y, preferred)
        np.testing.assert_array_equal(got, wrapped("mk,nk->mn", wide[::2], other[::-1, ::2], result))


@pytest.mark.parametrize(("dtype", "number"), [("int8", -128), ("int8", 127), ("uint8", 255), ("int16", -(2**15))])
def test_extremes(dtype: str, number: int) -> None:
    """Two products of the most negative int16 are 2^31, which wraps as a sum in int32 does."""
    for k in (1, 2, 3, 64, 383, 384, 385, 769, 2000):
        a, b = np.full((7, k), number, dtype), np.full((k, 19), number, dtype)
        want = np.full((7, 19), k * number**2, np.int64).astype(np.int32)
        np.testing.assert_array_equal(product("mk,kn->mn", a, b, "int32"), want)


def test_unsigned_by_signed_bytes() -> None:
    rng = np.random.default_rng(2)
    a, b = numbers(rng, (33, 101), "uint8"), numbers(rng, (101, 40), "int8")
    np.testing.assert_array_equal(product("mk,kn->mn", a, b, "int32"), wrapped("mk,kn->mn", a, b, "int32"))


def test_the_same_bits_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(3)
    a, b = numbers(rng, (300, 1001), "int8"), numbers(rng, (1001, 500), "int8")
    found = same_bits(lambda: pb.jit(lambda x, y: pb.matmul(x, y, preferred_dtype=pb.int32))(a, b))
    np.testing.assert_array_equal(found, wrapped("mk,kn->mn", a, b, "int32"))


@needs_tile
@pytest.mark.parametrize(
    ("function", "read"),
    [
        (lambda x, y: pb.matmul(x, y, preferred_dtype=pb.int32), "int8"),
        (lambda x, y: x.astype(pb.int32) @ y.astype(pb.int32), "int8"),
        (lambda x, y: pb.astype(x, pb.int32).mT[::2] @ pb.astype(y, pb.int32)[:, 3:], "int8"),
        (lambda x, y: x @ y, "int8"),
        (lambda x, y: x.astype(pb.uint32) @ y.astype(pb.uint32), "int8"),
        (lambda x, y: x.astype(pb.int32) @ y.astype(pb.int32), "uint16"),
        (lambda x, y: x @ y, "int32"),
    ],
)
def test_narrow_operands_are_read_as_they_are(function: Any, read: str) -> None:
    x, y = (pb.asarray(numbers(np.random.default_rng(4), (40, 40), read)) for _ in range(2))
    report = pb.explain(function)(x, y).to_json()
    assert f'"computes": "{read} by the engine' in report
    found = function(x, y).numpy()
    with on_backend("reference"):
        np.testing.assert_array_equal(function(x, y).numpy(), found)


def test_without_a_tile_they_are_sums_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (11, 23), "int8"), numbers(rng, (23, 19), "int8")
    monkeypatch.setattr(products, "has_tile", lambda target=None: False)
    function = pb.jit(lambda x, y: pb.matmul(x, y, preferred_dtype=pb.int32))
    np.testing.assert_array_equal(function(a, b).numpy(), wrapped("mk,kn->mn", a, b, "int32"))
    assert '"kind": "product"' not in pb.explain(function)(a, b).to_json()


def test_they_have_no_gradient() -> None:
    a = pb.ones((3, 3), dtype=pb.int8)
    with pytest.raises(GradientError):
        pb.grad(lambda x: pb.sum(pb.matmul(x, x, preferred_dtype=pb.int32)))(a)


@needs_x86
@pytest.mark.parametrize(
    ("name", "cpu", "dtype", "result", "instruction"),
    [
        ("avx2", "x86-64-v3", "int8", "int32", "vpmaddwd"),
        ("avx2", "alderlake", "uint8", "int32", "vpdpwssd"),
        ("avx512", "x86-64-v4", "int16", "int32", "vpmaddwd"),
        ("avx512", "icelake-server", "int8", "int32", "vpdpwssd"),
        ("avx512", "sapphirerapids", "bfloat16", "float32", "vdpbf16ps"),
        ("avx512", "sapphirerapids", "bfloat16", "bfloat16", "vdpbf16ps"),
        ("avx2", "x86-64-v3", "int32", "int32", "vpmulld"),
    ],
)
def test_the_instructions_of_a_tile(name: str, cpu: str, dtype: str, result: str, instruction: str) -> None:
    target = replace(by_target_name(name), cpu=cpu, has_avx512_bf16=cpu == "sapphirerapids")
    code = assembly(contraction_ir(dtype, target, result), target)
    height = 6 if name == "avx2" else 14
    tile = code.split(f"\ntile{height}:")[1].split("\tretq")[0]
    loop = max(tile.split("\n.LBB"), key=lambda block: block.count(instruction))
    steps = 4 if dtype == "bfloat16" else 1
    assert loop.count(instruction) == 2 * height * steps
    spilled = [line for line in loop.splitlines() if "(%rsp)" in line and "mm" in line.split("\t", 2)[-1]]
    assert not spilled or instruction not in ("vpmaddwd", "vpdpwssd")  # sums stay in registers
    others = {"vpmaddwd", "vpdpwssd", "vdpbf16ps", "vfmadd231ps"} - {instruction}
    assert not any(other in tile for other in others)


@needs_x86
def test_a_target_with_another_instruction_has_another_key() -> None:
    plain = by_target_name("avx512")
    assert replace(plain, has_avx512_bf16=True).isa_key != plain.isa_key


@pytest.mark.parametrize("name", ["avx512", "avx2", "generic128"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_every_target_has_code(name: str, dtype: str) -> None:
    if name != "generic128" and not host().is_x86:
        pytest.skip("x86 only")
    target = replace(by_target_name(name), has_fma=True)  # the tile of a processor that has none is not used
    result = "int64" if dtype == "int64" else "int32"
    assert "contract_" in assembly(contraction_ir(dtype, target, result), target)


@needs_tile
def test_pairs_of_bfloat16_without_their_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``vdpbf16ps`` reads, multiplied by two instructions that every processor has."""

    def multiply_add(b: VectorBuilder, half: str, x: Value, y: Value, total: Value) -> Value:
        assert half == "u16"
        sixteen, upper = b.const(16, "i32"), b.const(-65536, "i32")
        for part in (lambda v: b.shl(v, sixteen), lambda v: b.and_(v, upper)):
            total = b.fma(b.bitcast(part(x), "f32"), b.bitcast(part(y), "f32"), total)
        return total

    monkeypatch.setattr(pairs, "half_of", lambda dtype, target: "u16" if dtype == "bfloat16" else None)
    monkeypatch.setattr(pairs, "multiply_add", multiply_add)
    products._function.cache_clear()
    rng = np.random.default_rng(6)
    try:
        for m, n, k in itertools.product((2, 5, 7, 40), (3, 16, 33), (2, 3, 17, 400, 1537)):
            a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
            x, y = (pb.astype(pb.asarray(v), pb.bfloat16) for v in (a, b))
            np.testing.assert_array_equal(pb.matmul(x, y, preferred_dtype=pb.float32).numpy(), a @ b)
            x, y = (pb.astype(pb.asarray(v.T.copy()), pb.bfloat16) for v in (a, b))
            got = pb.matmul(x.mT, y.mT, preferred_dtype=pb.float32).numpy()
            np.testing.assert_array_equal(got, a @ b)
    finally:
        products._function.cache_clear()
