"""Batches: all rows once, orders, structures, sharing of memory, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.data import batches
from pullback.errors import DTypeError, ShapeError


def test_every_row_once_and_rows_stay_together():
    x, y = np.arange(20).reshape(10, 2), np.arange(10)
    seen = []
    for a, b in batches(x, y, batch_size=3, seed=0):
        assert isinstance(a, pb.Tensor) and a.dtype is pb.int64
        np.testing.assert_array_equal(np.asarray(a)[:, 0], np.asarray(b) * 2)
        seen += np.asarray(b).tolist()
    assert sorted(seen) == list(range(10)) and seen != list(range(10))


def test_lengths():
    x = np.arange(10)
    assert [len(b) for b in batches(x, batch_size=4, shuffle=False)] == [4, 4, 2]
    assert [len(b) for b in batches(x, batch_size=4, drop_last=True)] == [4, 4]
    assert len(batches(x, batch_size=4)) == 3 and len(batches(x, batch_size=4, drop_last=True)) == 2
    assert len(batches(x, batch_size=100)) == 1 and len(batches(x[:0], batch_size=3)) == 0


def test_every_pass_has_its_own_order_and_a_seed_fixes_them():
    def orders(seed):
        data = batches(np.arange(50), batch_size=50, seed=seed)
        return [np.asarray(next(iter(data))).tolist() for _ in range(3)]

    a = orders(1)
    assert a == orders(1) and a != orders(2)
    assert a[0] != a[1] != a[2]
    pb.random.seed(7)
    first = orders(None)
    pb.random.seed(7)
    assert first == orders(None) and first != orders(None)


def test_random_access():
    data = batches(np.arange(10), batch_size=3, seed=0)
    picked = [np.asarray(data[i]).tolist() for i in range(4)]
    assert np.asarray(data[-1]).tolist() == picked[3]
    assert [np.asarray(b).tolist() for b in data] == picked
    assert np.asarray(data[0]).tolist() != picked[0]
    with pytest.raises(IndexError):
        data[4]


def test_structures_and_tensors():
    tree = {"image": pb.ones((4, 2)), "more": [np.arange(4)]}
    batch = batches(tree, batch_size=2, shuffle=False)[1]
    assert batch["image"].shape == (2, 2)
    np.testing.assert_array_equal(np.asarray(batch["more"][0]), [2, 3])


def test_without_shuffling_memory_is_shared():
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    for source in (x, pb.asarray(x)):
        memory = np.asarray(source)
        for batch in batches(source, batch_size=3, shuffle=False):
            assert np.shares_memory(np.asarray(batch), memory)


def test_a_strided_array():
    x = np.arange(20).reshape(4, 5)[:, ::2]
    np.testing.assert_array_equal(np.asarray(batches(x, batch_size=2, shuffle=False)[1]), x[2:])


def test_refusals():
    with pytest.raises(ShapeError, match="differ"):
        batches(np.ones(3), np.ones(4), batch_size=2)
    with pytest.raises(ShapeError, match="0-d"):
        batches(np.array(1.0), batch_size=2)
    with pytest.raises(ShapeError, match="at least one"):
        batches(batch_size=2)
    with pytest.raises(DTypeError, match="str"):
        batches(["a"], batch_size=2)
    with pytest.raises(ValueError, match="batch_size"):
        batches(np.ones(3), batch_size=0)
    with pytest.raises(ValueError, match="seed"):
        batches(np.ones(3), batch_size=1, seed=-1)
