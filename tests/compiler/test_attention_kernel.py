"""The attention kernels against NumPy in float64, over shapes, ranges, masks and layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import assembly

import pullback as pb
from pullback.compiler.llvm.attention import attention_ir, attention_name
from pullback.compiler.llvm.target import by_target_name, host
from pullback.compiler.products import has_tile
from pullback.ops.attention import Extras, attention, attention_gradient
from pullback.tensor import Tensor
from tests.threads import same_bits

pytestmark = pytest.mark.skipif(not has_tile(), reason="the kernel needs fused multiply-add")

# batch, heads, heads of keys, queries, keys, depth, width, low, high
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1, None, None),
    (1, 1, 1, 5, 7, 4, 4, None, None),
    (2, 4, 2, 33, 65, 16, 24, None, None),
    (2, 4, 4, 70, 70, 32, 32, None, 1),
    (1, 4, 1, 100, 130, 64, 64, None, 31),
    (1, 2, 2, 300, 700, 20, 36, -50, 60),
    (1, 2, 1, 257, 257, 64, 64, None, 1),
    (1, 2, 1, 3, 900, 64, 64, None, 898),
    (1, 2, 2, 40, 30, 8, 8, 20, 25),  # queries without any key
    (1, 6, 2, 17, 600, 15, 17, None, None),
    (1, 2, 1, 50, 1500, 12, 20, None, 1451),  # keys in parts
]


def results(function, arrays, masks=()):
    """The output and the three gradients."""

    def run(q, k, v, cotangent, *mask):
        nodes = [pb.asarray(x).node for x in (q, k, v, cotangent)]
        full = pb.broadcast_to(pb.asarray(mask[0]), (*q.shape[:3], k.shape[2])).node if mask else None
        return [Tensor(node) for node in function(*nodes, full)]

    return [x.numpy() for x in pb.jit(run)(*arrays, *masks)]


def definition(arrays, low, high, scale, mask=None):
    q, k, v, cotangent = (x.astype(np.float64) for x in arrays)
    repeats = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeats, 1), np.repeat(v, repeats, 1)
    scores = scale * q @ k.swapaxes(2, 3)
    place = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    allowed = np.ones(place.shape, bool)
    if low is not None:
        allowed &= place >= low
    if high is not None:
        allowed &= place < high
    scores = np.where(allowed, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    largest = scores.max(3, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = weights.sum(3, keepdims=True)
    weights = np.where(total == 0, 0, weights / np.where(total == 0, 1, total))
    out = weights @ v
    change = cotangent @ v.swapaxes(2, 3)
    dscores = scale * weights * (change - (cotangent * out).sum(3, keepdims=True))
    dk, dv = dscores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ cotangent
    fold = (q.shape[0], -1, repeats)
    return out, dscores @ k, dk.reshape(*fold, *dk.shape[2:]).sum(2), dv.reshape(*fold, *dv.shape[2:]).sum(2)


def check(shape, dtype, mask=None, seed=0):
    batch, heads, groups, queries, keys, depth, width, low, high = shape
    rng = np.random.default_rng(seed)
    sizes = ((batch, heads, queries, depth), (batch, groups, keys, depth), (batch, groups, keys, width))
    arrays = [rng.standard_normal(size).astype(dtype) for size in (*sizes, (batch, heads, queries, width))]
    masks = ()
    if mask == "choice":
        masks = (rng.random((batch, 1, queries, keys)) > 0.4,)
    elif mask == "added":
        masks = (rng.standard_normal((1, heads, 1, keys)).astype(dtype),)
    elif mask == "by query":
        masks = (rng.standard_normal((batch, 1, queries, 1)).astype(dtype),)

    def both(q, k, v, cotangent, given):
        scale = depth**-0.5
        return (attention(q, k, v, given, scale, low, high),
                *attention_gradient(q, k, v, given, cotangent, scale, low, high))  # fmt: skip

    got = results(both, arrays, masks)
    want = definition(arrays, low, high, depth**-0.5, *masks)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    for mine, other in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance * max(1.0, np.abs(other).max()))
    return got


@pytest.mark.parametrize("mask", [None, "choice", "added", "by query"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradients(shape, dtype, mask):
    check(shape, dtype, mask)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        groups, repeats = rng.integers(1, 3, 2)
        queries, keys = (int(x) for x in np.exp(rng.uniform(0, 6, 2)))
        low = None if rng.random() < 0.5 else int(rng.integers(-keys - 1, 3))
        high = None if rng.random() < 0.4 else int(rng.integers(1, keys + 2))
        depth, width = (int(x) for x in rng.integers(1, 40, 2))
        shape = (int(rng.integers(1, 3)), int(groups * repeats), int(groups), queries, keys, depth, width, low, high)
        check(shape, "float64", [None, "choice", "added", "by query"][rng.integers(4)], seed)


def test_a_query_without_keys_gives_zeros():
    got = check((1, 2, 2, 40, 30, 8, 8, 20, 25), "float64")
    assert not got[0][:, :, 15:].any() and not got[1][:, :, 15:].any()


def test_heads_that_are_views_need_no_copy():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 33, 3, 4, 16))  # as a projection to q, k and v leaves it

    def split(x):
        return [pb.permute_dims(x[:, :, i], (0, 2, 1, 3)) for i in range(3)]

    def function(x):
        q, k, v = split(x)
        return Tensor(attention(q.node, k.node, v.node, None, 0.25, None, 1))

    q, k, v = (np.moveaxis(x[:, :, i], 1, 2) for i in range(3))
    want = definition((q, k, v, np.zeros_like(q)), None, 1, 0.25)[0]
    np.testing.assert_allclose(pb.jit(function)(x).numpy(), want, rtol=1e-12, atol=1e-13)
    report = pb.explain(lambda x: pb.sum(function(x)))(pb.asarray(x)).to_json()
    assert report.count('"attention"') == 1 and '"map"' not in report


def test_what_is_masked_does_not_get_through():
    rng = np.random.default_rng(0)
    q, k, v, cotangent = (rng.standard_normal((1, 1, 6, 4)) for _ in range(4))
    k[:, :, 5], v[:, :, 5] = np.inf, 1.0
    mask = np.ones((1, 1, 6, 6), bool)
    mask[..., 5] = False

    def both(q, k, v, cotangent, given):
        return (attention(q, k, v, given, 0.5, None, None),
                *attention_gradient(q, k, v, given, cotangent, 0.5, None, None)[1:])  # fmt: skip

    for x in results(both, (q, k, v, cotangent), (mask,)):
        assert np.isfinite(x).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [100, 333])
def test_blocks_that_a_mask_hides(length, dtype):
    """Sequences one after another, of which each sees itself: numbers as of the definition, and what lies in other
    sequences is not even multiplied by 0 where whole blocks are hidden."""
    rng = np.random.default_rng(length)
    count, depth = 1000, 8
    number = np.arange(count) // length
    mask = (number[:, None] == number)[None, None]
    mask[..., 7, :] = False
    arrays = [rng.standard_normal((1, 2, count, depth)).astype(dtype) for _ in range(4)]

    def both(q, k, v, cotangent, given):
        return (attention(q, k, v, given, 0.3, None, None),
                *attention_gradient(q, k, v, given, cotangent, 0.3, None, None))  # fmt: skip

    tolerance = 1e-5 if dtype == "float32" else 1e-13
    for given in (mask, np.arange(count)[None, None, None] < length, (number == 1)[None, None, :, None]):
        want = definition(arrays, None, None, 0.3, np.broadcast_to(given, mask.shape))
        for mine, other in zip(results(both, arrays, (given,)), want, strict=True):
            np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance * max(1.0, np.abs(other).max()))
    arrays[2][:, :, :length] = np.inf
    out, dq, *_ = results(both, arrays, (mask,))
    assert np.isfinite(out[:, :, 800:]).all() and np.isfinite(dq[:, :, 800:]).all()
    assert not np.isfinite(out[:, :, 0]).any()


@pytest.mark.parametrize("batch, queries, keys", [(0, 3, 4), (1, 0, 4), (1, 3, 0)])
def test_empty_extents(batch, queries, keys):
    def both(q, k, v, cotangent, given):
        out = attention(q, k, v, given, 1.0, None, None)
        return (out, *attention_gradient(q, k, v, given, cotangent, 1.0, None, None))

    arrays = [np.ones((batch, 2, n, width)) for n, width in ((queries, 5), (keys, 5), (keys, 6), (queries, 6))]
    for got, like in zip(results(both, arrays), (arrays[3], *arrays[:3]), strict=True):
        np.testing.assert_array_equal(got, np.zeros_like(like))


@pytest.mark.parametrize(
    "shape", [(2, 4, 2, 500, 700, 32, 32, None, 201), (1, 1, 1, 90, 2000, 16, 16, -300, 1900)], ids=str
)
def test_the_same_bits_on_any_number_of_threads(shape):
    same_bits(lambda: check(shape, "float32"))


@pytest.mark.parametrize("slope", [0.01, 0.1, 3.0, -3.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_that_grow_with_the_keys(dtype, slope):
    """A little, so that what is taken from them stays, and so much that all earlier weights vanish."""
    keys = 1300
    q, k = np.ones((1, 1, 20, 1)), slope * np.arange(keys)[:, None] * np.ones((1, 1, 1, 1))
    v = np.random.default_rng(0).standard_normal((1, 1, keys, 5))
    arrays = [x.astype(dtype) for x in (q, k, v, np.ones((1, 1, 20, 5)))]
    (got,) = results(lambda q, k, v, _, given: (attention(q, k, v, given, 1.0, None, None),), arrays)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(got, definition(arrays, None, None, 1.0)[0], rtol=0, atol=tolerance)


@pytest.mark.parametrize("has_offset, drop", [(True, None), (False, (0.25, 5000, 900)), (True, (0.9, 1 << 40, 901))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 4, 2, 50, 900, 8, 12, None, 1), (1, 3, 1, 130, 450, 16, 5, -100, 40)], ids=str)
def test_offsets_and_dropped_weights_are_those_of_the_reference(shape, dtype, has_offset, drop):
    batch, heads, groups, queries, keys, depth, width, low, high = shape
    rng = np.random.default_rng(0)
    sizes = ((batch, heads, queries, depth), (batch, groups, keys, depth), (batch, groups, keys, width))
    arrays = [rng.standard_normal(size).astype(dtype) for size in (*sizes, (batch, heads, queries, width))]
    offset = rng.integers(-60, keys, (batch, groups))
    draws = rng.integers(0, 2**64, (2, batch), dtype=np.uint64)

    def both(q, k, v, cotangent, offset, seeds, counters):
        extras = Extras(offset.node if has_offset else None, *((seeds.node, counters.node) if drop else ()))
        nodes = [x.node for x in (q, k, v)]
        found = (attention(*nodes, None, 0.3, low, high, extras, drop),
                 *attention_gradient(*nodes, None, cotangent.node, 0.3, low, high, extras, drop))  # fmt: skip
        return [Tensor(node) for node in found]

    def run():
        return [x.numpy() for x in both(*map(pb.asarray, (*arrays, offset, *draws)))]

    got = run()
    try:
        pb.set_backend("reference")
        want = run()
    finally:
        pb.set_backend("compiled")
    for mine, other in zip(got, want, strict=True):
        atol = (1e-5 if dtype == "float32" else 1e-13) * max(1.0, np.abs(other).max())
        np.testing.assert_allclose(mine, other, rtol=0, atol=atol)


@pytest.mark.parametrize(
    "name, dtype", [("avx512", "float32"), ("avx512", "bfloat16"), ("avx2", "float64"), ("generic128", "float32")]
)
def test_every_target_has_code(name, dtype):
    if name != "generic128" and not host().is_x86:
        pytest.skip("x86 only")
    target = replace(by_target_name(name), has_fma=True, has_avx512_bf16=name == "avx512")
    for setting in (("choose", False, False), ("add", True, True)):
        assert attention_name(dtype, *setting) in assembly(attention_ir(dtype, *setting, target), target)


def test_a_row_of_nan_scores_is_nan():
    q = np.ones((1, 1, 3, 4))
    k, v = np.ones((1, 1, 600, 4)), np.ones((1, 1, 600, 4))
    q[0, 0, 1] = np.nan
    out = pb.jit(lambda q, k, v: Tensor(attention(q.node, k.node, v.node, None, 0.5, None, None)))(q, k, v).numpy()
    assert np.isnan(out[0, 0, 1]).all()
    np.testing.assert_allclose(out[0, 0, ::2], 1.0, rtol=1e-14)


def test_an_infinite_score_makes_its_row_nan():
    """As exp(inf - inf) in the definition, even if the infinity is the largest only in a later block of keys."""
    q, k, v = np.ones((1, 1, 2, 1)), np.ones((1, 1, 900, 1)), np.ones((1, 1, 900, 3))
    k[0, 0, 800] = np.inf
    out = pb.jit(lambda q, k, v: Tensor(attention(q.node, k.node, v.node, None, 1.0, None, None)))(q, k, v).numpy()
    assert np.isnan(out).all()
