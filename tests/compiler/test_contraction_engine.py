"""The contraction engine: every shape, stride and dtype against NumPy in float64, and the same bits on any threads."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback.compiler import products
from pullback.compiler.llvm.contraction import contraction_ir
from pullback.compiler.products import collapsed
from tests.compiler.emulation import MACHINES, assembly
from tests.threads import same_bits

pytestmark = pytest.mark.skipif(not products.has_tile(), reason="the engine has no register tile for this processor")

UNIT = {"float32": 2**-24, "float64": 2**-53, "float16": 2**-11, "bfloat16": 2**-8}


def numpy_dtype(name: str):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def assert_close(got, a, b, dtype, subscripts):
    """Within the bound of a sum of k products, and the rounding of the result."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    want = np.einsum(subscripts, wide_a, wide_b)
    size = np.einsum(subscripts, np.abs(wide_a), np.abs(wide_b))
    terms = max(1, round(a.size * b.size / max(got.size, 1)) ** 0.5)
    sums = UNIT["float64" if dtype == "float64" else "float32"]
    allowed = (terms + 2) * sums * size + UNIT[dtype] * np.abs(want) + (2**-25 if dtype == "float16" else 1e-30)
    assert np.all(np.abs(got.astype(np.float64) - want) <= allowed)


def product(a, b, subscripts):
    return pb.einsum(subscripts, pb.asarray(a), pb.asarray(b)).numpy()


def arrays(rng, dtype, *shapes):
    return [rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in shapes]


@pytest.mark.parametrize("dtype", list(UNIT))
def test_every_small_extent(dtype):
    rng = np.random.default_rng(0)
    for m, n, k in itertools.product((1, 2, 3, 5, 6, 7, 11, 13, 17), (1, 2, 7, 8, 15, 16, 17), (1, 2, 3, 4, 5, 8, 9)):
        a, b = arrays(rng, dtype, (m, k), (k, n))
        assert_close(product(a, b, "mk,kn->mn"), a, b, dtype, "mk,kn->mn")


@pytest.mark.parametrize("extent", range(1, 18))
def test_gradients_of_every_small_extent(extent):
    """Of a batch of products by both operands, and the derivative of those, in float64."""
    rng = np.random.default_rng(extent)
    other, third = 18 - extent, 1 + 5 * extent % 17

    def derivatives(a, b, ct, da, db):
        value, pull = pb.vjp(lambda a, b: pb.einsum("bmk,bnk->nbm", a, b), a, b)
        by_a, by_b = pull(ct)
        second = pb.grad(lambda a, b: (lambda g: pb.sum(g[0] * da) + pb.sum(g[1] * db))(
            pb.vjp(lambda a, b: pb.einsum("bmk,bnk->nbm", a, b), a, b)[1](ct)), argnums=(0, 1))(a, b)  # fmt: skip
        return value, by_a, by_b, *second

    compiled = pb.jit(derivatives)
    for m, n, k in itertools.permutations((extent, other, third)):
        a, b, da, db = (rng.standard_normal((2, rows, k)) for rows in (m, n, m, n))
        ct = rng.standard_normal((n, 2, m))
        wanted = [
            np.einsum("bmk,bnk->nbm", a, b), np.einsum("nbm,bnk->bmk", ct, b), np.einsum("nbm,bmk->bnk", ct, a),
            np.einsum("nbm,bnk->bmk", ct, db), np.einsum("nbm,bmk->bnk", ct, da),
        ]  # fmt: skip
        for got, want in zip(compiled(a, b, ct, da, db), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", list(UNIT))
@pytest.mark.parametrize("seed", range(6))
def test_random_shapes_transposes_and_strides(dtype, seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, 6, 3)).astype(int))
        batch = int(rng.integers(1, 4))
        left = ["bmk", "bkm", "mbk", "kmb"][rng.integers(4)]
        right = ["bkn", "bnk", "kn", "nk", "knb"][rng.integers(5)]
        extents = {"b": batch, "m": m, "n": n, "k": k}
        a, b = arrays(rng, dtype, *([extents[c] for c in text] for text in (left, right)))
        text = f"{left},{right}->bmn"
        assert_close(product(a, b, text), a, b, dtype, text)
        # Every other row, and rows backwards: views of the library, read in place.
        wide = rng.standard_normal((2 * m, k)).astype(numpy_dtype(dtype))
        other = rng.standard_normal((n, k)).astype(numpy_dtype(dtype))
        got = (pb.asarray(wide)[::2] @ pb.matrix_transpose(pb.asarray(other)[::-1])).numpy()
        assert_close(got, wide[::2], other[::-1], dtype, "mk,nk->mn")


def test_several_axes_of_each_kind_need_no_copy():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 4, 5, 6, 7))
    b = rng.standard_normal((6, 2, 4, 7, 3))
    text = "bikjl,jnilb->bkn"
    np.testing.assert_allclose(product(a, b, text), np.einsum(text, a, b), rtol=1e-12, atol=1e-12)
    report = pb.explain(lambda x, y: pb.einsum(text, x, y))(pb.asarray(a), pb.asarray(b)).to_json()
    assert '"kind": "map"' not in report


@pytest.mark.parametrize("backwards", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_what_is_summed_may_run_backwards(backwards, side):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((20, 5, 9)), rng.standard_normal((33, 5, 9))
    for axes in ((0, 1, 2), (1, 2, 0)):  # along and across what is summed
        flipped = [pb.asarray(np.ascontiguousarray(x.transpose(axes))) for x in (a, b)]
        places = tuple(axes.index(axis) for axis in backwards)
        x, y = (pb.flip(z, places) if side in (name, "both") else z for z, name in zip(flipped, ("left", "right")))
        want = np.einsum("mij,nij->mn", *(np.asarray(z).transpose(np.argsort(axes)) for z in (x, y)))
        text = "mij,nij->mn" if axes == (0, 1, 2) else "ijm,ijn->mn"
        np.testing.assert_allclose(pb.einsum(text, x, y).numpy(), want, rtol=1e-12, atol=1e-12)


def test_windows_are_read_in_place():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 12, 11)), rng.standard_normal((4, 3, 3, 2))
    text = "bcyxij,ocij->boyx"

    def convolve(x, w):
        return pb.einsum(text, pb.sliding_window_view(x, (3, 2), axis=(2, 3)), w)

    want = np.einsum(text, np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3)), w)
    np.testing.assert_allclose(convolve(pb.asarray(x), pb.asarray(w)).numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", list(UNIT))
@pytest.mark.parametrize("width", [5, 9, 14, 15, 17, 31])
@pytest.mark.parametrize("backwards", [(), (2,), (3,)])
def test_rows_of_an_image_that_are_shorter_than_a_panel(dtype, width, backwards):
    # What lies between two rows is not theirs, and is NaN.
    rng = np.random.default_rng(width)
    (w,) = arrays(rng, dtype, (7, 3, 3, 2))
    whole = np.full((2, 3, 9, width + 5), np.nan, numpy_dtype(dtype))
    whole[..., 2:-3] = rng.standard_normal((2, 3, 9, width))
    x = whole[..., 2:-3]
    image = pb.asarray(whole)[..., 2:-3]
    if backwards:
        x, image = np.flip(x, backwards), pb.flip(image, backwards)
    text = "bcyxij,ocij->boyx"
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
    got = pb.einsum(text, pb.sliding_window_view(image, (3, 2), axis=(2, 3)), pb.asarray(w)).numpy()
    assert_close(got, windows, w, dtype, text)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_same_bits_on_any_number_of_threads(dtype):
    rng = np.random.default_rng(0)
    for m, n, k in ((300, 700, 500), (97, 65, 3000), (2000, 33, 64), (70, 5000, 400)):
        operands = arrays(rng, dtype, (m, k), (k, n))
        same_bits(lambda operands=operands: pb.jit(lambda x, y: x @ y)(*operands))


def test_values_outside_an_operand_do_not_leak_in():
    # NaN all around the block that is multiplied: in front of, behind and between its rows.
    for m, n, k in ((7, 9, 5), (13, 33, 40), (6, 16, 8)):
        big_a, big_b = np.full((m + 2, k + 3), np.nan, np.float32), np.full((k + 2, n + 5), np.nan, np.float32)
        big_a[1:-1, 1:-2], big_b[1:-1, 2:-3] = 1, 2
        a, b = pb.asarray(big_a)[1:-1, 1:-2], pb.asarray(big_b)[1:-1, 2:-3]
        np.testing.assert_array_equal((a @ b).numpy(), np.full((m, n), 2.0 * k, np.float32))


def test_infinities_and_nan_stay_in_their_rows_and_columns():
    a, b = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    a[3, 4], b[7, 5] = np.nan, np.inf
    got = pb.matmul(pb.asarray(a), pb.asarray(b)).numpy()
    assert np.isnan(got[3]).all() and np.isinf(got[[0, 1, 2, 19], 5]).all()
    mask = np.ones((20, 40), bool)
    mask[3], mask[:, 5] = False, False
    assert (got[mask] == 30).all()


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1_000_000), (4, 20, 200_000), (20, 20, 200_000)])
def test_long_sums_of_one_sign_do_not_lose_what_is_added(m, n, k):
    # One chain of float32 through all of k would be off by 5e-4, and stop growing after 2^24 elements.
    a, b = np.full((m, k), 1.1, np.float32), np.ones((k, n), np.float32)
    np.testing.assert_allclose((pb.asarray(a) @ pb.asarray(b)).numpy(), float(a[0, 0]) * k, rtol=5e-5)


@pytest.mark.parametrize("shapes", [((0, 5), (5, 3)), ((5, 0), (0, 3)), ((0, 2, 3), (0, 3, 4)), ((2, 3), (3, 0))])
def test_empty_extents(shapes):
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    np.testing.assert_array_equal(pb.matmul(pb.asarray(a), pb.asarray(b)).numpy(), np.matmul(a, b))


def test_axes_that_follow_each_other_are_one():
    assert collapsed([(2, 12, 24), (3, 4, 8), (1, 99, 7), (4, 1, 2)]) == [(24, 1, 2)]
    assert collapsed([(2, 12, 24), (3, 4, 9)]) == [(2, 12, 24), (3, 4, 9)]
    assert collapsed([(1, 5, 5)]) == [(1, 0, 0)]


@pytest.mark.parametrize(("name", "rows"), [("znver5", (14, 8)), ("neoverse-n1", (8, 4))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_a_tile_stay_in_registers(name, rows, dtype):
    machine = MACHINES[name]
    code = assembly(machine, lambda: contraction_ir(dtype, machine.target))
    multiply_add, is_vector = {"znver5": ("\tvfmadd", "zmm"), "neoverse-n1": ("\tfmla\t", "\tq")}[name]
    for function in [f"tile{height}{access}" for height in rows for access in ("", "direct", "across")]:
        body = code.split(f"\n{function}:")[1].split(".Lfunc_end")[0]
        loop = max(body.split("\n.LBB"), key=lambda block: block.count(multiply_add)).splitlines()
        assert sum(multiply_add in line for line in loop) >= 16
        assert not [line for line in loop if is_vector in line and ("(%rsp)" in line or "[sp" in line)], function
