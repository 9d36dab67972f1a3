"""Loads that are not of neighbours: every other element, backwards, by a run-time stride; in every dtype and length."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from tests.threads import same_bits

DTYPES = [np.float32, np.float64, np.float16, np.int8, np.uint16, np.int64, np.bool_]
SLICES = [np.s_[:, ::2], np.s_[:, 1::2], np.s_[:, ::-1], np.s_[:, ::-2], np.s_[:, ::3], np.s_[::-1, 1::2]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_loads(dtype):
    for length in (1, 2, 3, 8, 31, 33, 64, 129):
        x = (np.random.default_rng(length).standard_normal((3, length)) * 10).astype(dtype)
        plain = pb.jit(lambda t: [pb.logical_not(t[s] == 0) for s in SLICES])(x)
        folded = pb.jit(lambda t: [pb.sum(t[s].astype(pb.float64), axis=axis) for s in SLICES for axis in (0, 1)])(x)
        for got, index in zip(plain, SLICES):
            np.testing.assert_array_equal(np.asarray(got), x[index] != 0)
        expected = [x[s].astype(np.float64).sum(axis) for s in SLICES for axis in (0, 1)]
        for got, want in zip(folded, expected):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-12)


def test_nothing_beyond_the_last_element_is_read():
    """The buffer ends at the end of a page, behind which nothing may be read."""
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    if libc.mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 0) != 0:
        pytest.skip("memory cannot be protected here")
    try:
        for count in (1, 2, 63, 64, 65, 200):
            array = (ctypes.c_float * count).from_address(address + page - 4 * count)
            x = np.frombuffer(array, np.float32)
            x[:] = np.arange(count)
            found = pb.jit(lambda t: (t[::2] * 2, t[::-1] * 2, t[1::2] * 2))(pb.asarray(x, copy=False))
            for got, want in zip(found, (x[::2], x[::-1], x[1::2])):
                np.testing.assert_array_equal(np.asarray(got), want * 2)
            del x, found, got, want
    finally:
        libc.mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 3)


def test_every_other_element_is_no_gather():
    found = pb.explain(lambda t: t[::2] + t[1::2], verbose="llvm")(np.ones(1000, np.float32))
    loop, tail = found.steps[0].texts["llvm"].split("getelementptr i8", 1)
    assert "shufflevector" in loop + tail
    assert tail.index("shufflevector") < tail.index("masked.gather.")  # which only the tail needs


@pytest.mark.parametrize("shape", [(3, 5, 7, 6), (9, 13, 41, 7), (2, 1, 130, 33), (17, 2, 3, 4, 100)])
def test_loops_around_short_rows_are_counted_on_from_any_task(shape):
    """Chunks begin in the middle of all loops; what is computed depends on where in them it is."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    axes = (*reversed(range(len(shape) - 1)), len(shape) - 1)
    count = np.arange(x.shape[axes[1]], dtype=np.float32).reshape(-1, *[1] * (len(shape) - 2))

    def function(t):
        moved = pb.permute_dims(t, axes)
        return moved * pb.arange(count.size).reshape(count.shape), pb.sum(moved.astype(pb.float64), axis=-1)

    wide = x.transpose(axes)
    got, summed = same_bits(lambda: pb.jit(function)(x))
    np.testing.assert_array_equal(got, wide * count)
    np.testing.assert_allclose(summed, wide.sum(-1, dtype=np.float64), rtol=1e-12, atol=1e-12)
