"""Attention: masked rows, NaN, caches, groups, windows, packed sequences, dropout; rotary embeddings, linear biases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn.attention import attention_definition

attention = nn.scaled_dot_product_attention


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def gradients(function, *arrays):
    value, pull = pb.vjp(function, *map(pb.asarray, arrays))
    return [np.asarray(g) for g in pull(pb.asarray(normal(*value.shape, seed=9)))]


def by_hand(q, k, v, allowed):
    """One head, row by row."""
    out = np.zeros((len(q), v.shape[1]))
    for i, row in enumerate(allowed):
        if row.any():
            scores = k[row] @ q[i] / np.sqrt(q.shape[1])
            weights = np.exp(scores - scores.max())
            out[i] = weights @ v[row] / weights.sum()
    return out


# -- masks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [1, 3, 6])
@pytest.mark.parametrize("keys", [1, 4, 6])
@pytest.mark.parametrize("offset", [None, 0, 2, -2])
def test_causal_masks_and_windows_by_hand(queries, keys, offset):
    q, k, v = normal(queries, 4), normal(keys, 4, seed=1), normal(keys, 3, seed=2)
    first = keys - queries if offset is None else offset
    distance = first + np.arange(queries)[:, None] - np.arange(keys)
    cases = {
        (True, None): distance >= 0,
        (False, (1, 2)): (distance <= 1) & (distance >= -2),
        (True, (2, 5)): (distance <= 2) & (distance >= 0),
        (False, (None, 1)): distance >= -1,
        (False, (0, -1)): distance <= 0,
        (False, 1): abs(distance) <= 1,
        (False, (-1, None)): np.ones_like(distance, bool),
    }
    for (causal, window), allowed in cases.items():
        found = attention(q, k, v, is_causal=causal, window=window, offset=offset)
        np.testing.assert_allclose(np.asarray(found), by_hand(q, k, v, allowed), rtol=1e-12, atol=1e-14)


def test_when_everybody_sees():
    """Only then are the operands left as they are."""
    from pullback.nn.attention import _everybody_sees

    for queries, keys, first in itertools.product((1, 2, 4), (1, 3, 4), range(-5, 6)):
        distance = first + np.arange(queries)[:, None] - np.arange(keys)
        for left, right in itertools.product((None, 0, 1, 3), (0, 1, 2, None)):
            allowed = np.ones(distance.shape, bool)
            if left is not None:
                allowed &= distance <= left
            if right is not None:
                allowed &= distance >= -right
            expected = bool(allowed.any(0).all() and allowed.any(1).all())
            assert _everybody_sees(queries, keys, False, (left, right), first) == expected


@pytest.mark.parametrize("how", ["bools", "floats", "causal"])
def test_a_row_that_sees_nothing_is_0_without_gradient(how):
    q, k, v = normal(2, 4, 3), normal(2, 4, 3, seed=1), normal(2, 4, 3, seed=2)
    allowed = np.ones((4, 4), bool)
    allowed[1] = False
    allowed[:, 2] = False
    options = {
        "bools": {"mask": allowed}, "floats": {"mask": np.where(allowed, 0.0, -np.inf)},
        "causal": {"is_causal": True, "offset": -2},
    }[how]
    blind, unseen = ([1], [2]) if how != "causal" else ([0, 1], [2, 3])
    out = np.asarray(attention(q, k, v, **options))
    assert (out[:, blind] == 0).all()
    assert np.isfinite(out).all()
    by_q, by_k, by_v = gradients(lambda q, k, v: attention(q, k, v, **options), q, k, v)
    assert (by_q[:, blind] == 0).all()
    assert (by_k[:, unseen] == 0).all()
    assert (by_v[:, unseen] == 0).all()
    # What nobody sees does not count, whatever it is.
    for array, places in ((q, blind), (k, unseen), (v, unseen)):
        array[:, places] = np.nan
    np.testing.assert_array_equal(np.asarray(attention(q, k, v, **options)), out)
    again = gradients(lambda q, k, v: attention(q, k, v, **options), q, k, v)
    for a, b in zip(again, (by_q, by_k, by_v), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_the_gradient_by_a_mask_of_floats():
    q, k, v = normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 4, seed=2)
    bias = normal(3, 5, seed=3)
    bias[0] = -np.inf
    bias[1, 2:] = -np.inf
    (found,) = gradients(lambda bias: attention(q, k, v, bias), bias)
    assert np.isfinite(found).all()
    assert (found[np.isinf(bias)] == 0).all()
    assert (found[2] != 0).all()


def test_masks_combine():
    q, k, v = normal(5, 4), normal(5, 4, seed=1), normal(5, 4, seed=2)
    allowed = np.random.default_rng(3).random((5, 5)) < 0.5
    both = allowed & np.tri(5, dtype=bool)
    np.testing.assert_allclose(np.asarray(attention(q, k, v, allowed, True)), by_hand(q, k, v, both), rtol=1e-12)


@pytest.mark.parametrize("queries", [1, 3])
def test_masks_of_few_axes(queries):
    """One for each key, and one for all."""
    q, k, v = normal(2, 3, queries, 4), normal(2, 3, 5, 4, seed=1), normal(2, 3, 5, 2, seed=2)
    keys = np.array([True, False, True, True, False])
    for mask in (keys, np.where(keys, 0.5, -np.inf), np.array(True), np.array(False), np.array(0.25)):
        full = np.broadcast_to(mask, (2, 3, queries, 5))
        for options in ({}, {"is_causal": True}):
            expected = attention(q, k, v, full, **options)
            np.testing.assert_allclose(attention(q, k, v, mask, **options), expected, rtol=1e-12, atol=1e-15)
            for one, other in zip(
                gradients(lambda *x, m=mask, o=options: attention(*x, m, **o), q, k, v),
                gradients(lambda *x, m=full, o=options: attention(*x, m, **o), q, k, v), strict=True,
            ):  # fmt: skip
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_masks_of_broadcast_keys():
    """Keys and values that several heads or batches share count where any of them sees them."""
    q, k, v = normal(2, 4, 3, 5), normal(1, 1, 6, 5, seed=1), normal(6, 5, seed=2)
    allowed = np.random.default_rng(3).random((2, 4, 3, 6)) < 0.4
    expected = [[by_hand(q[i, j], k[0, 0], v, allowed[i, j]) for j in range(4)] for i in range(2)]
    np.testing.assert_allclose(np.asarray(attention(q, k, v, allowed)), expected, rtol=1e-12, atol=1e-14)


# -- caches and groups -------------------------------------------------------------------------------------------------


def test_tokens_one_by_one_through_a_cache():
    """A cache longer than what is in it, an offset that is traced, and garbage behind it."""
    q, k, v = normal(2, 6, 4), normal(2, 6, 4, seed=1), normal(2, 6, 4, seed=2)
    together = np.asarray(attention(q, k, v, is_causal=True))
    keys, values = np.full((2, 9, 4), np.nan), np.full((2, 9, 4), np.nan)
    step = pb.jit(lambda q, k, v, offset: attention(q, k, v, is_causal=True, offset=offset))
    for t in range(6):
        keys[:, t], values[:, t] = k[:, t], v[:, t]
        one = step(*map(pb.asarray, (q[:, t : t + 1], keys, values)), t)
        np.testing.assert_allclose(np.asarray(one)[:, 0], together[:, t], rtol=1e-12)


def test_a_single_query_reads_its_cache_without_the_kernel():
    """Its numbers and gradients are those of the first of two queries, which the kernel computes."""
    q, k, v = normal(2, 3, 1, 4), normal(2, 3, 9, 4, seed=1), normal(2, 3, 9, 5, seed=2)
    for options in ({}, {"is_causal": True, "offset": 5}, {"window": (2, 1), "offset": 4}):
        report = pb.explain(lambda q, k, v, options=options: attention(q, k, v, **options))(*map(pb.asarray, (q, k, v)))
        kinds = [step.kind for program in report.programs for step in program.steps]
        assert "attention" not in kinds
        twice = np.concatenate([q, q], axis=2)  # two queries, of which the second is left out
        several = gradients(lambda q, k, v, options=options: attention(q, k, v, **options)[:, :, :1], twice, k, v)
        alone = gradients(lambda q, k, v, options=options: attention(q, k, v, **options), q, k, v)
        np.testing.assert_allclose(alone[0], several[0][:, :, :1], rtol=1e-9, atol=1e-12)
        for one, other in zip(alone[1:], several[1:], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_an_offset_for_each_sequence():
    q, k, v = normal(3, 2, 2, 4), normal(3, 2, 7, 4, seed=1), normal(3, 2, 7, 4, seed=2)
    offsets = np.array([0, 2, 5])
    found = np.asarray(attention(q, k, v, is_causal=True, offset=offsets[:, None]))
    for i, offset in enumerate(offsets):
        alone = attention(q[i], k[i], v[i], is_causal=True, offset=int(offset))
        np.testing.assert_allclose(found[i], np.asarray(alone), rtol=1e-12)


def test_a_jitted_step_copies_no_cache():
    """It writes the new token's keys and values where the cache lies, and reads that once for each product."""
    keys, values = pb.zeros((2, 3, 600, 32)), pb.zeros((2, 3, 600, 32))
    q = np.random.default_rng(0).standard_normal((2, 3, 1, 32)).astype(np.float32)

    @pb.jit
    def step(q, k, v, keys, values, start):
        keys[:, :, start + pb.arange(1)] = k
        values[:, :, start + pb.arange(1)] = v
        return attention(q, keys, values, is_causal=True, offset=start)

    for start in range(3):
        step(q, q, q, keys, values, start)
    report = pb.explain(step)(q, q, q, keys, values, 3)
    assert report.programs[0].taken_over == keys.nbytes + values.nbytes
    assert report.programs[0].temporaries < keys.nbytes / 4


@pytest.mark.parametrize("seed", range(12))
def test_a_tensor_for_an_offset_is_like_a_number(seed):
    """One query, which has no kernel, and several; NaN behind what they see; with masks and without."""
    rng = np.random.default_rng(seed)
    queries, keys, groups = (1, 1, 4)[seed % 3], 9, int(rng.integers(1, 3))
    q, k, v = normal(2, 2 * groups, queries, 4), normal(2, 2, keys, 4, seed=1), normal(2, 2, keys, 3, seed=2)
    offset = int(rng.integers(0, keys - queries))
    k[:, :, offset + queries :] = np.nan
    v[:, :, offset + queries :] = np.nan
    options = {"is_causal": True, "enable_gqa": groups > 1}
    if seed % 4 == 1:
        options["window"] = (2, 0)
    mask = None
    if seed % 4 >= 2:
        mask = rng.random((2, 1, queries, keys)) < 0.7
        mask = mask if seed % 4 == 2 else np.where(mask, rng.standard_normal(mask.shape), -np.inf)

    def results(function, offset):
        def call(q, k, v):
            return function(q, k, v, mask, offset=offset, **options)

        return [np.asarray(call(*map(pb.asarray, (q, k, v)))), *gradients(call, q, k, v)]

    def traced(q, k, v, mask, offset, **options):
        return pb.jit(lambda q, k, v, offset: attention(q, k, v, mask, offset=offset, **options))(q, k, v, offset)

    expected = results(attention_definition, offset)
    for function, given in (
        (attention, offset), (attention, np.array(offset)), (attention, np.full((2, 2 * groups), offset)),
        (traced, offset),
    ):  # fmt: skip
        for one, other in zip(results(function, given), expected, strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_groups_are_repeated_heads(heads):
    q, k, v = normal(2, 6, 3, 4), normal(2, heads, 5, 4, seed=1), normal(2, heads, 5, 2, seed=2)
    allowed = np.random.default_rng(3).random((2, 6, 3, 5)) < 0.5
    for options in ({}, {"is_causal": True}, {"mask": allowed}, {"mask": allowed[:, :1]}):
        found = attention(q, k, v, enable_gqa=True, **options)
        expected = attention(q, k.repeat(6 // heads, 1), v.repeat(6 // heads, 1), **options)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12, atol=1e-14)


# -- packed sequences --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (1, 0)}, {"enable_gqa": True}])
def test_packed_sequences_are_those_one_by_one(options):
    lengths, lengths_k = [3, 1, 0, 4], [5, 1, 2, 4]
    ends, ends_k = np.cumsum([0, *lengths]), np.cumsum([0, *lengths_k])
    heads = 1 if "enable_gqa" in options else 2
    q, k, v = normal(2, 9, 4), normal(heads, 13, 4, seed=1), normal(heads, 13, 3, seed=2)
    found = np.asarray(nn.packed_attention(q, k, v, ends, ends_k, **options))
    assert (found[:, 8:] == 0).all()
    for i in range(4):
        a, b = slice(ends[i], ends[i + 1]), slice(ends_k[i], ends_k[i + 1])
        alone = attention(q[:, a], k[:, b], v[:, b], **options)
        np.testing.assert_allclose(found[:, a], np.asarray(alone), rtol=1e-12, atol=1e-14)


def test_segments_of_a_batch():
    q, k, v = normal(2, 3, 6, 4), normal(2, 3, 6, 4, seed=1), normal(2, 3, 6, 4, seed=2)
    segments = np.array([[0, 0, 1, 1, 1, -1], [3, 3, 3, 3, 2, 2]])
    found = np.asarray(nn.packed_attention(q, k, v, segments=segments, is_causal=True))
    ends = [[0, 2, 5], [0, 4, 6]]
    for i in range(2):
        alone = nn.packed_attention(q[i], k[i], v[i], np.array(ends[i]), is_causal=True)
        np.testing.assert_allclose(found[i], np.asarray(alone), rtol=1e-12, atol=1e-14)


# -- dropout and dtypes ------------------------------------------------------------------------------------------------


def test_dropout():
    q, k, v = normal(50, 4), normal(60, 4, seed=1), np.eye(60)
    weights = np.asarray(attention(q, k, v))
    key = pb.random.key(3)
    dropped = np.asarray(attention(q, k, v, dropout=0.25, key=key))
    np.testing.assert_array_equal(dropped, np.asarray(attention(q, k, v, dropout=0.25, key=key)))
    kept = dropped != 0
    assert 0.7 < kept.mean() < 0.8
    np.testing.assert_allclose(dropped[kept], (weights / 0.75)[kept], rtol=1e-12)
    assert (np.asarray(attention(q, k, v, dropout=1.0)) == 0).all()


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32])
def test_narrow_types(dtype):
    arrays = [normal(2, 5, 8, seed=i) for i in range(3)]
    narrow = [pb.asarray(a).astype(dtype) for a in arrays]
    found = attention(*narrow, is_causal=True)
    assert found.dtype is dtype
    expected = attention(*[a.astype(pb.float64) for a in narrow], is_causal=True)
    tolerance = {pb.float16: 1e-3, pb.bfloat16: 8e-3, pb.float32: 1e-5}[dtype]
    np.testing.assert_allclose(np.asarray(found.astype(pb.float64)), np.asarray(expected), rtol=tolerance, atol=1e-3)
    turned = nn.rope(narrow[0])
    assert turned.dtype is dtype


# -- positions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_is_a_rotation_of_pairs(interleaved):
    x = normal(2, 7, 6)
    positions = np.array([0, 1, 2, 5, 9, 100, -3])
    z = x[..., ::2] + 1j * x[..., 1::2] if interleaved else x[..., :3] + 1j * x[..., 3:]
    z = z * np.exp(1j * positions[:, None] * 50.0 ** (-np.arange(3) / 3))
    expected = np.stack([z.real, z.imag], -1).reshape(x.shape) if interleaved else np.concatenate([z.real, z.imag], -1)
    found = nn.rope(x, positions, 50.0, interleaved)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)
    some = np.asarray(nn.rope(x, positions, 50.0, interleaved, dims=4))
    np.testing.assert_array_equal(some[..., 4:], x[..., 4:])
    np.testing.assert_allclose(some[..., :4], np.asarray(nn.rope(x[..., :4], positions, 50.0, interleaved)), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(nn.rope(x, dims=0)), x)


def test_products_of_rotated_vectors_depend_on_the_distance():
    q, k = normal(1, 8), normal(1, 8, seed=1)
    near = [(np.asarray(nn.rope(q, [p])) @ np.asarray(nn.rope(k, [p - 4])).T).item() for p in (4, 11, 100)]
    np.testing.assert_allclose(near, near[0], rtol=1e-10)


def test_alibi():
    np.testing.assert_allclose(-np.asarray(nn.alibi(8, 2))[:, 1, 0], 2.0 ** -np.arange(1, 9))
    expected = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]  # the paper's code for 6 heads
    np.testing.assert_allclose(-np.asarray(nn.alibi(6, 2))[:, 1, 0], expected)
    assert len(set(np.asarray(nn.alibi(12, 2))[:, 1, 0])) == 12
    bias = np.asarray(nn.alibi(1, 2, 4, dtype=pb.float64))
    np.testing.assert_array_equal(bias[0] * 256, -np.abs(2 + np.arange(2)[:, None] - np.arange(4)))
    np.testing.assert_array_equal(np.asarray(nn.alibi(1, 1, 4, offset=0))[0] * 256, [[0, -1, -2, -3]])
    q = normal(6, 3, 4)
    assert attention(q, q, q, nn.alibi(6, 3, dtype=pb.float64), is_causal=True).shape == (6, 3, 4)


# -- errors ------------------------------------------------------------------------------------------------------------

Q, K, V = np.zeros((2, 4, 3, 8)), np.zeros((2, 4, 5, 8)), np.zeros((2, 4, 5, 6))
PACKED = np.zeros((4, 5, 8))
ERRORS = [
    (lambda: attention(Q[0, 0, 0], K, V), ShapeError, r"\(..., tokens, features\) expected"),
    (lambda: attention(Q, K[..., :7], V), ShapeError, "differ in their last axis, the features"),
    (lambda: attention(Q, K, V[..., :4, :]), ShapeError, "the keys"),
    (lambda: attention(Q, K[:, :2], V[:, :2]), ShapeError, "do not broadcast; .* enable_gqa=True"),
    (lambda: attention(Q, K[:, :3], V[:, :3], enable_gqa=True), ShapeError, "got 4 heads of q, 3 of k and 3 of v"),
    (lambda: attention(Q, K[:, :2], V[:, :1], enable_gqa=True), ShapeError, "2 of k and 1 of v"),
    (lambda: attention(Q.astype(int), K, V), DTypeError, "floating"),
    (lambda: attention(Q, K, V, np.ones((3, 4), bool)), ShapeError, r"mask of shape \(3, 4\) .* \(2, 4, 3, 5\)"),
    (lambda: attention(Q, K, V, np.ones((1, 2, 4, 3, 5), bool)), ShapeError, "does not broadcast"),
    (lambda: attention(Q, K, V, np.ones((3, 5), int)), DTypeError, "mask of bools .* got int64"),
    (lambda: attention(Q, K, V, window=(1, 2, 3)), ArgumentError, "window must be"),
    (lambda: attention(Q, K, V, window=(-2, 0)), ArgumentError, "must not be negative"),
    (lambda: attention(Q, K, V, window=1.5), ArgumentError, "window must be an integer"),
    (lambda: attention(Q, K, V, is_causal=True, offset=1.0), DTypeError, "offset must be an integer"),
    (lambda: attention(Q, K, V, is_causal=True, offset=np.zeros(3, int)), ShapeError, r"offset of shape \(3,\)"),
    (lambda: attention(Q, K, V, dropout=1.5), ArgumentError, "dropout must be in"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED), ArgumentError, "either cu_seqlens or segments"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, np.zeros(3)), DTypeError, "cu_seqlens must be integers"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, np.zeros((3, 1), int)), ShapeError, "cu_seqlens of shape"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, np.zeros(3, int), np.zeros(4, int)), ShapeError, "different"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, [0, 3, 2]), ArgumentError, r"go up from 0 .* \[0 3 2\]"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, [0, 3, 6]), ArgumentError, "at most the 5 tokens"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, np.array([1, 5])), ArgumentError, "must go up from 0"),
    (lambda: nn.packed_attention(PACKED, PACKED[:, :4], PACKED[:, :4], [0, 5]), ArgumentError, "at most the 4 tokens"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, segments=np.zeros(4, int)), ShapeError, r"\(..., 5\)"),
    (lambda: nn.packed_attention(PACKED, PACKED[:, :4], PACKED[:, :4], segments=np.zeros(5, int)), ShapeError,
     "give segments_k"),
    (lambda: nn.packed_attention(PACKED, PACKED, PACKED, segments=np.zeros(5, int), segments_k=np.zeros(5, int),
                                 is_causal=True), ArgumentError, "no segments_k"),
    (lambda: nn.rope(Q, dims=3), ArgumentError, "even and at most 8, got 3"),
    (lambda: nn.rope(Q, dims=10), ArgumentError, "at most 8"),
    (lambda: nn.rope(Q, np.arange(4)), ShapeError, r"positions of shape \(4,\)"),
    (lambda: nn.rope(Q, base=-1.0), ArgumentError, "base"),
    (lambda: nn.rope(Q.astype(int)), DTypeError, "floating"),
    (lambda: nn.alibi(0, 3), ArgumentError, "1 head or more"),
    (lambda: nn.alibi(2, 3, dtype=pb.int32), DTypeError, "floating dtype"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_name_what_does_not_fit(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dropout", [0.0, 1e-30])
def test_the_precision_of_products_does_not_count(dropout):
    q = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    expected = np.asarray(nn.scaled_dot_product_attention(q, q, q, dropout=dropout, key=pb.random.key(0)))
    with pb.set_matmul_precision("bf16"):
        got = np.asarray(nn.scaled_dot_product_attention(q, q, q, dropout=dropout, key=pb.random.key(0)))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("far", [1 << 40, 1 << 62, 1 << 70])
def test_places_far_from_every_key(far):
    q, k, v = (pb.asarray(np.random.default_rng(n).normal(size=(2, 5, 4))) for n in range(3))

    def results(**places):
        def loss(*inputs):
            out = nn.scaled_dot_product_attention(*inputs, **places)
            return pb.sum(pb.sin(out)), out

        gradients, out = pb.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)
        return [np.asarray(x) for x in (out, *gradients)]

    for places in ({"is_causal": True, "offset": far}, {"window": far}, {"window": (far, 2), "offset": far - 4}):
        for found, expected in zip(results(**places), results(), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-12)
    for places in ({"is_causal": True, "offset": -far}, {"window": 3, "offset": far}):
        for found in results(**places):
            np.testing.assert_array_equal(found, 0.0)
