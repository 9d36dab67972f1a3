"""Batches of arrays that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError
from ..interop import numpy_to_node
from ..tensor import Tensor
from ..transforms import pytree


class Batches:
    """Batches of one pass over some arrays; see :func:`batches`."""

    def __init__(
        self, arrays: tuple[Any, ...], batch_size: int, shuffle: bool, drop_last: bool, seed: int | None
    ) -> None:
        if not arrays:
            raise ShapeError("batches: give at least one array")
        if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool) or batch_size < 1:
            raise ArgumentError(f"batches: batch_size must be a positive int, got {batch_size!r}")
        leaves, self._structure = pytree.flatten(arrays[0] if len(arrays) == 1 else arrays)
        self._leaves = [_array(leaf) for leaf in leaves]
        if not self._leaves:
            raise ShapeError("batches: the arguments hold no array")
        lengths = [array.shape[0] if array.ndim else -1 for array in self._leaves]
        if -1 in lengths:
            raise ShapeError("batches: an array has no axis to take batches along (it is 0-d)")
        if len(set(lengths)) > 1:
            raise ShapeError(f"batches: the arrays differ in the length of their first axis: {lengths}")
        self.size = lengths[0]
        self.batch_size = int(batch_size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch = 0
        self._seed = _seed(seed) if shuffle else 0
        self._order: tuple[int, np.ndarray[Any, Any]] | None = None

    def __len__(self) -> int:
        return self.size // self.batch_size if self.drop_last else -(-self.size // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        """Batch ``index`` of the current pass; negative counts from the end."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"batches: index {index} is out of range for {count} batches")
        return self._batch(index % count, self.epoch)

    def __iter__(self) -> Iterator[Any]:
        """One pass. With ``shuffle`` each pass has an order of its own."""
        epoch = self.epoch
        self.epoch += 1
        for index in range(len(self)):
            yield self._batch(index, epoch)

    def _batch(self, index: int, epoch: int) -> Any:
        start = index * self.batch_size
        stop = min(start + self.batch_size, self.size)
        if self.shuffle:
            rows = self._permutation(epoch)[start:stop]
            parts = [array.take(rows, axis=0) for array in self._leaves]
        else:
            parts = [array[start:stop] for array in self._leaves]
        return pytree.unflatten(self._structure, [Tensor(numpy_to_node(part, None, None, "batches")) for part in parts])

    def _permutation(self, epoch: int) -> np.ndarray[Any, Any]:
        known = self._order
        if known is None or known[0] != epoch:
            order = np.random.default_rng([self._seed, epoch]).permutation(self.size)
            known = self._order = (epoch, order)
        return known[1]


def _array(leaf: Any) -> np.ndarray[Any, Any]:
    if isinstance(leaf, Tensor):
        return leaf.numpy()
    if isinstance(leaf, np.ndarray):
        return leaf
    raise DTypeError(f"batches: a leaf is a {type(leaf).__name__}; tensors and NumPy arrays expected")


def _seed(seed: int | None) -> int:
    if seed is None:
        from ..api import random

        return int(random.randint(0, 1 << 62).item())
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ArgumentError(f"batches: seed must be an int of 0 or more, or None, got {seed!r}")
    return int(seed)


def batches(
    *arrays: Any, batch_size: int, shuffle: bool = True, drop_last: bool = False, seed: int | None = None
) -> Batches:
    """An iterable of batches of rows of ``arrays``, which share the length of their first axis.

    Args:
        arrays: tensors, NumPy arrays, or pytrees of them. A batch has the same structure and holds tensors; of one
            argument it is that argument's structure, of several a tuple.
        batch_size: rows in a batch; the last has fewer if they do not divide, unless ``drop_last``.
        shuffle: every pass has a new random order, the same ones for the same ``seed``. Without it a batch shares the
            memory of the array: nothing is copied.
        seed: None draws one from ``pb.random``, so that ``pb.random.seed`` fixes it.

    ``len(b)`` is the number of batches, ``b[i]`` the batch i of the pass that starts next.
    Raises ShapeError if lengths differ, DTypeError for leaves that are not arrays.
    """
    return Batches(arrays, batch_size, shuffle, drop_last, seed)
