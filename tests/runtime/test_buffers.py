"""The caching allocator and the arrays over its memory."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from pullback.errors import DeviceError
from pullback.runtime import buffers


@pytest.fixture(autouse=True)
def clean_cache():
    gc.collect()
    buffers.release_cached()
    yield
    buffers.release_cached()


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 4096, (1 << 20) - 1, 1 << 20, 5_000_001])
def test_blocks_are_aligned_and_large_enough(nbytes: int) -> None:
    buffer = buffers.allocate(nbytes)
    assert buffer.address % buffers.ALIGNMENT == 0
    assert buffer.nbytes == nbytes
    assert buffer.owned
    array = buffer.writable((nbytes,), np.uint8)
    array[:] = 7
    assert (buffer.numpy((nbytes,), np.uint8) == 7).all()


def test_size_classes() -> None:
    for nbytes in [*range(3000), *(3 * (1 << bit) + offset for bit in range(10, 40) for offset in (-1, 0, 1))]:
        size = buffers._size_class(nbytes)
        assert size >= nbytes
        assert size % buffers.ALIGNMENT == 0
        assert size <= max(nbytes * 1.25 + 1, nbytes + buffers.ALIGNMENT)
        assert buffers._size_class(size) == size


def test_memory_is_used_again() -> None:
    for nbytes in (100, 3 << 20):
        buffer = buffers.allocate(nbytes)
        address = buffer.address
        del buffer
        assert buffers.cached_bytes() >= nbytes
        assert buffers.allocate(nbytes).address == address


def test_large_blocks_begin_at_different_places_in_a_page() -> None:
    live = [buffers.allocate(1 << 20) for _ in range(8)]
    assert len({buffer.address % 4096 for buffer in live}) >= 6
    for nbytes in (0, 1, 64, 100, 1 << 15, 1 << 20, (1 << 20) + 1088, (1 << 20) + 1089):
        room = buffers.padded(nbytes)
        assert nbytes <= room <= nbytes + 4096 + 64
        assert room % 64 == 0
        assert room % 4096 != 0 or nbytes < 1 << 15


def test_live_buffers_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    live: list[buffers.Buffer] = []
    for nbytes in rng.integers(0, 80_000, 500).tolist():
        live.append(buffers.allocate(nbytes))
        if len(live) > 40:
            del live[int(rng.integers(len(live)))]
        spans = sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in live)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128],
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_arrays_of_every_dtype_and_shape(dtype: type, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    buffer = buffers.from_numpy(values, copy=True)
    array = buffer.numpy(shape, dtype)
    assert array.dtype == np.dtype(dtype)
    assert array.shape == shape
    assert array.flags.c_contiguous
    assert not array.flags.writeable
    assert (array == values).all()
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_an_array_keeps_its_buffer(dtype: type) -> None:
    buffer = buffers.allocate(64)
    buffer.writable((4,), dtype)[:] = 3
    address = buffer.address
    view = buffer.numpy((4,), dtype)[1:]
    references = sys.getrefcount(buffer)
    assert references > 2, "a view counts as a holder of the buffer"
    del buffer
    gc.collect()
    assert buffers.allocate(64).address != address
    assert (view == 3).all()
    del view
    assert buffers.allocate(64).address == address


def test_an_array_that_does_not_fit() -> None:
    with pytest.raises(DeviceError, match="16 bytes does not fit in a buffer of 12"):
        buffers.allocate(12).numpy((4,), np.float32)


def test_from_numpy_shares_what_it_can() -> None:
    array = np.arange(6.0)
    buffer = buffers.from_numpy(array)
    assert not buffer.owned
    assert buffer.address == array.ctypes.data
    assert np.shares_memory(buffer.numpy((2, 3), np.float64), array)
    frozen = np.arange(6.0)
    frozen.flags.writeable = False
    assert buffers.from_numpy(frozen).address == frozen.ctypes.data
    half = np.ones(3, ml_dtypes.bfloat16)
    assert buffers.from_numpy(half).address == half.ctypes.data
    zero = np.array(2.5)
    assert buffers.from_numpy(zero).numpy((), np.float64) == 2.5
    assert buffers.from_numpy(np.empty((0, 2))).numpy((0, 2), np.float64).size == 0


def test_from_numpy_keeps_the_array() -> None:
    buffer = buffers.from_numpy(np.arange(1000.0))
    gc.collect()
    assert buffer.numpy((1000,), np.float64).sum() == 499500


def test_from_numpy_copies_the_rest() -> None:
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.int32, offset=1).reshape(4, 6)
    for array in (base[:, ::2], base.T, base[::-1], base.astype(">i4"), np.asfortranarray(base), unaligned):
        buffer = buffers.from_numpy(array)
        assert buffer.owned
        assert (buffer.numpy(array.shape, np.int32) == array).all()
    copied = buffers.from_numpy(base, copy=True)
    base[:] = 0
    assert copied.numpy((24,), np.int32)[-1] == 23


def test_failure_says_the_size() -> None:
    with pytest.raises(DeviceError, match=str(1 << 60)):
        buffers.allocate(1 << 60)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers._recycle_large, "__defaults__", (10 << 20, buffers._free_lists))
    live = [buffers.allocate(3 << 20) for _ in range(6)]
    live.clear()
    assert 0 < buffers.cached_bytes() <= 10 << 20
    # A new working set displaces the old one instead of being refused.
    live = [buffers.allocate(4 << 20) for _ in range(2)]
    live.clear()
    assert len(buffers._free_lists[4 << 20]) == 2
    assert buffers.cached_bytes() <= 10 << 20
    del live[:]
    buffers.allocate(11 << 20)
    assert not buffers._free_lists[buffers._size_class(11 << 20)]
    small = [buffers.allocate(64) for _ in range(5000)]
    small.clear()
    assert len(buffers._free_lists[64]) <= 1024


def test_many_threads() -> None:
    errors: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        live = []
        for nbytes in rng.integers(0, 3000, 2000).tolist():
            buffer = buffers.allocate(nbytes)
            buffer.writable((nbytes,), np.uint8)[:] = seed
            live.append(buffer)
            if len(live) > 10:
                old = live.pop(0)
                if not (old.numpy((old.nbytes,), np.uint8) == seed).all():
                    errors.append("overwritten by another thread")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_finalizers_inside_the_allocator() -> None:
    """Garbage cycles that hold buffers are collected at allocations, the allocator's own included."""

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.buffer = buffers.allocate(64)

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Cycle()
    finally:
        gc.set_threshold(*threshold)


def test_shutdown_is_silent() -> None:
    code = """
import sys, numpy as np
from pullback.runtime import buffers
keep = [buffers.allocate(n) for n in (0, 100, 5 << 20)]
class Late:
    def __init__(self): self.me, self.buffers = self, [buffers.allocate(n) for n in (0, 100, 5 << 20)]
late = Late()
sys.keep = [keep[0].numpy((0,), 'f4'), buffers.allocate(2 << 20), Late()]
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False
    )
    assert result.returncode == 0
    assert result.stderr == ""
