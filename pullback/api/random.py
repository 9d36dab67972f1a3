"""Random numbers from counters: element i of a draw is a hash of (key, i), the same in every mode and thread count.

A key is a 0-d uint64 tensor. Samplers given ``key=`` are pure functions of it. Without one they take a fresh key from
the global generator, whose state is a seed and a count of draws held in two tensors: a function under ``jit`` reads and
rebinds them like any other tensor from outside, so each call draws anew, and the same numbers come as without ``jit``.

The hash is Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Counters from
2**63 on split keys, so that split keys and the numbers drawn from one key never coincide.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, RangeError, ShapeError
from ..graph.node import Node
from ..graph.state import open_after_fork, state
from ..interop import is_traced, materialize
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..ops import reduction as fold
from ..ops import sorting as sorts
from ..ops.random import PARITY, ROTATIONS
from ..shapes import Shape, as_shape, broadcast_shapes, normalize_axis, size_of
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, scalar_node

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_SPLIT = 1 << 63  # first counter that splits keys
_SECOND_STREAM = 1 << 62  # first counter of a draw's second 64 bits
_FOLD_TWIST = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: a key that folds data in is not the key itself


def _threefry(key: int, counter: int) -> int:
    """The op ``threefry`` on Python ints, for the generator's own keys."""
    first, second = key >> 32, key & _MASK32
    schedule = (first, second, first ^ second ^ PARITY)
    x = ((counter >> 32) + first) & _MASK32
    y = ((counter & _MASK32) + second) & _MASK32
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = (x + y) & _MASK32
            y = (((y << distance) | (y >> (32 - distance))) & _MASK32) ^ x
        x = (x + schedule[(group + 1) % 3]) & _MASK32
        y = (y + schedule[(group + 2) % 3] + group + 1) & _MASK32
    return (x << 32) | y


def _stored(value: int) -> Node:
    return leaf.data(np.array(value, np.uint64), False)


class _Generator:
    """The global generator's state: two tensors, so that a trace sees them read and rebound."""

    def __init__(self) -> None:
        before = state.trace
        state.trace = None  # the state outlives a trace in which it is first used
        try:
            self.key = Tensor(_stored(int.from_bytes(os.urandom(8), "little")))
            self.counter = Tensor(_stored(0))
        finally:
            state.trace = before
        self.lock = open_after_fork(threading.Lock())

    def next_key(self) -> Node:
        """A key that was not drawn before."""
        with self.lock:
            key, counter = self.key.node, self.counter.node
            if is_traced(key) or is_traced(counter):
                self.counter.rebind(ops.add(counter, 1))
                return ops.threefry(key, counter)
            drawn = int(materialize(counter, "random").item())
            self.counter.rebind(_stored((drawn + 1) & _MASK64))
            return scalar_node(_threefry(int(materialize(key, "random").item()), drawn), dtypes.uint64)


_generator = _Generator()


def _seed_value(seed: Any, op: str) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise DTypeError(f"{op}: a seed is an int, got {seed!r}")
    value = int(seed)
    if not -(1 << 63) <= value <= _MASK64:
        raise RangeError(f"{op}: seed {value} does not fit in 64 bits")
    return value & _MASK64


def seed(seed: int) -> None:
    """Start the global generator anew: the same seed gives the same draws in the same order."""
    value = _seed_value(seed, "random.seed")
    with _generator.lock:
        _generator.key.rebind(_stored(value))
        _generator.counter.rebind(_stored(0))


def get_state() -> tuple[Tensor, Tensor]:
    """The global generator's seed and count of draws, as uint64 tensors; give them to :func:`set_state` to resume."""
    return _generator.key.copy(), _generator.counter.copy()


def set_state(state: tuple[ArrayLike, ArrayLike]) -> None:
    """Put the global generator where :func:`get_state` found it."""
    key, counter = (cast_node(as_node(part, dtypes.uint64, "random.set_state"), dtypes.uint64) for part in state)
    with _generator.lock:
        _generator.key.rebind(key)
        _generator.counter.rebind(counter)


# -- keys --------------------------------------------------------------------------------------------------------------


def key(seed: int) -> Tensor:
    """The key of a seed: a 0-d uint64 tensor."""
    return Tensor(_stored(_seed_value(seed, "random.key")))


def key_node(key: Any, op: str) -> Node:
    """The key that a sampler is given, or the next of the generator. Raises DTypeError for what is no key."""
    if key is None:
        return _generator.next_key()
    node = as_node(key, None, op)
    if node.dtype is not dtypes.uint64 or node.shape:
        raise DTypeError(
            f"{op}: key= takes a 0-d uint64 tensor from random.key, split or fold_in, got {node.dtype.name} of shape "
            f"{node.shape}; for several keys use pb.vmap"
        )
    return node


def split(key: ArrayLike, num: int = 2) -> Tensor:
    """``num`` new keys, of shape ``(num,)``; use each key for one thing only."""
    node = key_node(key, "random.split")
    (count,) = as_shape(num, "random.split")
    counters = ops.add(leaf.iota((count,), 0, dtypes.uint64), _SPLIT)
    return Tensor(ops.threefry(node, counters))


def fold_in(key: ArrayLike, data: ArrayLike) -> Tensor:
    """A new key of a key and an integer (a step, a layer's number), each integer giving another key."""
    node = key_node(key, "random.fold_in")
    if isinstance(data, int) and not isinstance(data, bool):
        number = scalar_node(_seed_value(data, "random.fold_in"), dtypes.uint64)
    else:
        number = as_node(data, None, "random.fold_in")
        if number.dtype.kind not in "iu":
            raise DTypeError(f"random.fold_in: an integer expected, got {number.dtype.name}")
        number = cast_node(number, dtypes.uint64)
    return Tensor(ops.threefry(ops.bitwise_xor(node, _FOLD_TWIST), number))


def bits(shape: Any = (), dtype: Any = "uint64", *, key: ArrayLike | None = None) -> Tensor:
    """Random bits of an unsigned integer dtype."""
    found = dtypes.as_dtype(dtype)
    if found.kind != "u":
        raise DTypeError(f"random.bits: an unsigned integer dtype expected, got {found.name}")
    extents = _extents(shape, "random.bits")
    words = ops.right_shift(_words(extents, key_node(key, "random.bits")), 64 - 8 * found.itemsize)
    return Tensor(move.reshape(cast_node(words, found), extents))


def _extents(shape: Any, op: str) -> Shape:
    if isinstance(shape, Tensor):
        raise ArgumentError(f"{op}: shape is a tensor; give a tuple of ints, and a key as key=")
    return as_shape(shape, op)


def _words(shape: Shape, key: Node, first: int = 0) -> Node:
    """64 random bits for each element of ``shape``, along one axis."""
    counters = leaf.iota((size_of(shape),), 0, dtypes.uint64)
    return ops.threefry(key, ops.add(counters, first) if first else counters)


# -- floating ----------------------------------------------------------------------------------------------------------


def _float_dtype(dtype: Any, op: str) -> DType:
    found = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if found.kind != "f":
        raise DTypeError(f"{op}: a floating dtype expected, got {found.name}")
    return found


def _top_bits(words: Node, count: int, dtype: DType) -> Node:
    """The ``count`` highest bits of each word as a whole number of ``dtype``, which holds them exactly."""
    whole = dtypes.int32 if count <= 31 else dtypes.int64  # signed: its conversion to float is one instruction
    return ops.cast(ops.cast(ops.right_shift(words, 64 - count), whole), dtype)


_MANTISSA = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}


def _unit(words: Node, dtype: DType) -> Node:
    """Numbers in [0, 1), evenly spaced, as many as ``dtype`` can tell apart at 1."""
    count = _MANTISSA[dtype]
    return ops.multiply(_top_bits(words, count, dtype), 2.0**-count)


def _open_unit(words: Node, dtype: DType) -> Node:
    """Numbers in (0, 1), evenly spaced and symmetric about 1/2; of float32 or float64."""
    count = _MANTISSA[dtype] - 1
    return ops.multiply(ops.add(_top_bits(words, count, dtype), 0.5), 2.0**-count)


def _work_dtype(dtype: DType) -> DType:
    return dtypes.float32 if dtype.itemsize == 2 else dtype


def _parameter(value: ArrayLike, dtype: DType, shape: Shape, name: str, op: str) -> Node:
    """A distribution's parameter: a number, or a tensor that broadcasts to the draw's shape."""
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return scalar_node(value, dtype)
    node = cast_node(as_node(value, None, op), dtype)
    if broadcast_shapes(node.shape, shape, op=op) != shape:
        raise ShapeError(f"{op}: {name} of shape {node.shape} does not broadcast to shape={shape}")
    return node


def uniform(
    shape: Any = (), dtype: Any = None, *, low: ArrayLike = 0.0, high: ArrayLike = 1.0, key: ArrayLike | None = None
) -> Tensor:
    """Even on [low, high). ``low`` and ``high`` may be tensors that broadcast to ``shape``; gradients flow to them.

    Rounding in ``low + u * (high - low)`` may give ``high`` itself, as in NumPy.
    """
    op = "random.uniform"
    extents = _extents(shape, op)
    found = _float_dtype(dtype, op)
    unit = move.reshape(_unit(_words(extents, key_node(key, op)), found), extents)
    if type(low) in (int, float) and type(high) in (int, float):
        if low == 0 and high == 1:
            return Tensor(unit)
        return Tensor(ops.add(ops.multiply(unit, float(high - low)), float(low)))
    start = _parameter(low, found, extents, "low", op)
    stop = _parameter(high, found, extents, "high", op)
    return Tensor(ops.add(ops.multiply(unit, ops.subtract(stop, start)), start))


def normal(
    shape: Any = (), dtype: Any = None, *, mean: ArrayLike = 0.0, std: ArrayLike = 1.0, key: ArrayLike | None = None
) -> Tensor:
    """Gaussian, by the Box-Muller transform. ``mean`` and ``std`` may be tensors that broadcast to ``shape``; gradients
    flow to them. float16 and bfloat16 are drawn in float32 and rounded.
    """
    op = "random.normal"
    extents = _extents(shape, op)
    found = _float_dtype(dtype, op)
    drawn = cast_node(move.reshape(_standard_normal(extents, key_node(key, op), _work_dtype(found)), extents), found)
    if not (type(std) in (int, float) and std == 1):
        drawn = ops.multiply(drawn, _parameter(std, found, extents, "std", op))
    if not (type(mean) in (int, float) and mean == 0):
        drawn = ops.add(drawn, _parameter(mean, found, extents, "mean", op))
    return Tensor(drawn)


def _standard_normal(shape: Shape, key: Node, dtype: DType) -> Node:
    """sqrt(-2 log r) cos(2 pi t) with r in (0, 1], t in [0, 1): finite, and up to 6.5 (8.5 in float64) from 0."""
    words = _words(shape, key)
    if dtype is dtypes.float64:
        radius = ops.multiply(ops.add(_top_bits(words, 53, dtype), 1.0), 2.0**-53)
        turn = _unit(_words(shape, key, _SECOND_STREAM), dtype)
    else:
        radius = ops.multiply(ops.add(_top_bits(words, 31, dtype), 1.0), 2.0**-31)
        turn = _unit(ops.left_shift(words, 32), dtype)
    return ops.multiply(ops.sqrt(ops.multiply(ops.log(radius), -2.0)), ops.cos(ops.multiply(turn, 2 * math.pi)))


def exponential(
    shape: Any = (), dtype: Any = None, *, scale: ArrayLike = 1.0, key: ArrayLike | None = None
) -> Tensor:
    """Exponential with mean ``scale``."""
    op = "random.exponential"
    extents = _extents(shape, op)
    found = _float_dtype(dtype, op)
    drawn = _standard_exponential(extents, key_node(key, op), _work_dtype(found))
    drawn = cast_node(move.reshape(drawn, extents), found)
    if type(scale) in (int, float) and scale == 1:
        return Tensor(drawn)
    return Tensor(ops.multiply(drawn, _parameter(scale, found, extents, "scale", op)))


def _standard_exponential(shape: Shape, key: Node, dtype: DType) -> Node:
    return ops.negative(ops.log1p(ops.negative(_open_unit(_words(shape, key), dtype))))


def gumbel(shape: Any = (), dtype: Any = None, *, key: ArrayLike | None = None) -> Tensor:
    """Standard Gumbel: ``-log`` of an exponential, always finite."""
    op = "random.gumbel"
    extents = _extents(shape, op)
    found = _float_dtype(dtype, op)
    drawn = _standard_gumbel(extents, key_node(key, op), _work_dtype(found))
    return Tensor(cast_node(move.reshape(drawn, extents), found))


def _standard_gumbel(shape: Shape, key: Node, dtype: DType) -> Node:
    return ops.negative(ops.log(_standard_exponential(shape, key, dtype)))


# -- discrete ----------------------------------------------------------------------------------------------------------


def randint(
    low: ArrayLike,
    high: ArrayLike | None = None,
    shape: Any = (),
    dtype: Any = "int64",
    *,
    key: ArrayLike | None = None,
) -> Tensor:
    """Integers in [low, high), or in [0, low) if ``high`` is None; of any integer dtype.

    No value is more likely than another by more than (high - low) / 2**64 of its probability.
    Raises ShapeError for an empty range, RangeError for one that ``dtype`` does not hold.
    """
    op = "random.randint"
    found = dtypes.as_dtype(dtype)
    if found.kind not in "iu":
        raise DTypeError(f"{op}: an integer dtype expected, got {found.name}")
    if high is None:
        low, high = 0, low
    extents = _extents(shape, op)
    words = _words(extents, key_node(key, op))
    if isinstance(low, int | np.integer) and isinstance(high, int | np.integer):
        first, last = int(low), int(high) - 1
        if last < first:
            raise ShapeError(f"{op}: no integer in [{low}, {high})")
        for bound in (first, last):
            scalar_node(bound, found)  # raises RangeError
        offset = _below(words, last - first + 1)
        start = scalar_node(first & _MASK64, dtypes.uint64)
        return Tensor(move.reshape(ops.cast(ops.add(offset, start), found), extents))
    bounds = [as_node(v, None, op) for v in (low, high)]
    for node in bounds:
        if node.dtype.kind not in "iu" or node.shape:
            raise DTypeError(f"{op}: bounds must be integers, got {node.dtype.name} of shape {node.shape}")
    start, stop = (cast_node(node, dtypes.uint64) for node in bounds)
    span = ops.maximum(ops.subtract(stop, start), 1)
    return Tensor(move.reshape(ops.cast(ops.add(ops.remainder(words, span), start), found), extents))


def _below(words: Node, span: int) -> Node:
    """Numbers in [0, span): the high half of the 128-bit product of word and span where that is cheap."""
    if span == 1 << 64:
        return words
    if span & (span - 1) == 0:
        return ops.right_shift(words, 65 - span.bit_length()) if span > 1 else leaf.zeros_like(words)
    if span >= 1 << 32:
        return ops.remainder(words, span)
    low = ops.right_shift(ops.multiply(ops.bitwise_and(words, _MASK32), span), 32)
    return ops.right_shift(ops.add(ops.multiply(ops.right_shift(words, 32), span), low), 32)


def bernoulli(
    p: ArrayLike = 0.5, shape: Any = None, dtype: Any = "bool", *, key: ArrayLike | None = None
) -> Tensor:
    """True with probability ``p``, a number or a tensor that broadcasts to ``shape`` (None: p's shape)."""
    op = "random.bernoulli"
    found = dtypes.as_dtype(dtype)
    chance = as_node(p, None, op)
    work = chance.dtype if chance.dtype.kind == "f" and chance.dtype.itemsize > 2 else dtypes.float32
    extents = chance.shape if shape is None else as_shape(shape, op)
    chance = _parameter(p, work, extents, "p", op)
    unit = move.reshape(_unit(_words(extents, key_node(key, op)), work), extents)
    return Tensor(cast_node(ops.less(unit, chance), found))


def permutation(x: ArrayLike, axis: int = 0, *, key: ArrayLike | None = None) -> Tensor:
    """The numbers below an int in random order (int64), or an array's slices along ``axis`` in random order."""
    op = "random.permutation"
    node_key = key_node(key, op)
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return Tensor(_order(as_shape(int(x), op), node_key))
    node = as_node(x, None, op)
    a = normalize_axis(axis, len(node.shape), op)
    return Tensor(_pick(node, _order((node.shape[a],), node_key), a))


def _order(shape: Shape, key: Node) -> Node:
    """Sorting 64 random bits an element: two are equal about once in 2**64 / n**2 draws, and then keep their order."""
    return sorts.argsort(_words(shape, key), 0)


def _pick(node: Node, positions: Node, axis: int) -> Node:
    from ..ops.indexing import gather

    picked = gather(node, [positions], (axis,))
    if axis and len(positions.shape) == 1:
        return move.move_axis(picked, 0, axis)
    front = len(positions.shape)
    order = (*range(front, front + axis), *range(front), *range(front + axis, len(picked.shape)))
    return move.permute(picked, order) if axis and front else picked


def shuffle(x: Tensor, axis: int = 0, *, key: ArrayLike | None = None) -> None:
    """Reorder a tensor's slices along ``axis`` in place (the tensor names the reordered value from then on)."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"random.shuffle: a Tensor expected, got {type(x).__name__}; use random.permutation")
    x.rebind(permutation(x, axis, key=key).node)


def categorical(
    logits: ArrayLike, axis: int = -1, shape: Any = None, dtype: Any = "int64", *, key: ArrayLike | None = None
) -> Tensor:
    """Positions along ``axis`` drawn with probabilities ``softmax(logits, axis)``, by the Gumbel maximum.

    shape: of the result; None for the logits' shape without ``axis``; more axes in front draw independently. A logit of
    -inf is never drawn.
    """
    op = "random.categorical"
    found = dtypes.as_dtype(dtype)
    if found.kind not in "iu":
        raise DTypeError(f"{op}: an integer dtype expected, got {found.name}")
    node = as_node(logits, None, op)
    if node.dtype.kind != "f":
        node = cast_node(node, dtypes.get_default_dtype())
    node = cast_node(node, _work_dtype(node.dtype))
    a = normalize_axis(axis, len(node.shape), op)
    if node.shape[a] == 0:
        raise ShapeError(f"{op}: no categories along axis {a} of shape {node.shape}")
    node = move.move_axis(node, a, len(node.shape) - 1)
    batch = node.shape[:-1]
    extents = batch if shape is None else as_shape(shape, op)
    if broadcast_shapes(batch, extents, op=op) != extents:
        raise ShapeError(f"{op}: logits of shape {batch} without axis {a} do not broadcast to shape={extents}")
    full = (*extents, node.shape[-1])
    noise = move.reshape(_standard_gumbel(full, key_node(key, op), node.dtype), full)
    drawn = fold.argmax(ops.add(noise, ops.stop_gradient(node)), (len(full) - 1,), False)
    return Tensor(cast_node(drawn, found))


def choice(
    a: ArrayLike, shape: Any = (), replace: bool = True, p: ArrayLike | None = None, axis: int = 0, *,
    key: ArrayLike | None = None,
) -> Tensor:
    """Elements (slices along ``axis``) of ``a``, or numbers below an int ``a``, drawn with or without replacement.

    p: probabilities of the elements; None for equal ones. Raises ShapeError if more are asked for than there are
    without replacement, or if there are none.
    """
    op = "random.choice"
    extents = _extents(shape, op)
    if isinstance(a, int | np.integer) and not isinstance(a, bool):
        node, position, count = None, 0, int(a)
    else:
        node = as_node(a, None, op)
        position = normalize_axis(axis, len(node.shape), op)
        count = node.shape[position]
    wanted = size_of(extents)
    if wanted and (count <= 0 or (not replace and wanted > count)):
        raise ShapeError(f"{op}: {wanted} elements asked for, there are {count}" + ("" if replace else " to take once"))
    weights = None
    if p is not None:
        weights = as_node(p, None, op)
        if weights.shape != (count,):
            raise ShapeError(f"{op}: p of shape {weights.shape} for {count} elements")
        weights = ops.log(weights if weights.dtype.kind == "f" else cast_node(weights, dtypes.get_default_dtype()))
        weights = cast_node(weights, _work_dtype(weights.dtype))
    node_key = key_node(key, op)
    if replace and weights is None:
        drawn = ops.cast(_below(_words(extents, node_key), max(count, 1)), dtypes.int64)
    elif replace and weights is not None:
        full = (wanted, count)
        noise = move.reshape(_standard_gumbel(full, node_key, weights.dtype), full)
        drawn = fold.argmax(ops.add(noise, weights), (1,), False)
    elif weights is None:
        drawn = move.slice_axis(_order((count,), node_key), 0, 0, wanted)
    else:
        scores = ops.add(_standard_gumbel((count,), node_key, weights.dtype), weights)
        drawn = move.slice_axis(sorts.argsort(scores, 0, True), 0, 0, wanted)
    drawn = move.reshape(drawn, extents)
    return Tensor(drawn if node is None else _pick(node, drawn, position))

