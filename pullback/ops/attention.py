"""attention and its gradient: softmax(scale * q k' + mask) v, in one kernel each that never has the matrix of scores.

Both are values without a derivative of their own: nn/attention.py joins them to their definition in other ops, which
has one of every order (see transforms/fused.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape, size_of
from . import movement
from .family import Array, with_batch
from .random import threefry_bits
from .record import NoDerivative, Op
from .reduction import reduce_sum
from .registry import register

# The gradient is cut in ranges of keys where there are not so many heads; each has so many keys at least, and a part of
# the cotangent of q, of so many bytes together at most.
TASKS = 8
LEAST_KEYS = 384
MOST_PARTIAL = 1 << 24
_WHY = "it is a kernel, joined to a definition that is differentiated in its place"



class Setting(NamedTuple):
    """The attributes of both ops; the gradient's ``splits`` comes behind them.

    low, high: query t attends to keys ``t + low`` up to ``t + high``; None: no bound.
    has_offset: both are counted from an operand, int64[batch, heads of keys].
    drop: rate of the weights that are dropped, and from which counters their random bits are: how far those of heads
        that follow each other are apart, and those of queries; keys' follow each other. Operands hold each batch's key
        and first counter, uint64[batch].
    """

    scale: float
    low: int | None
    high: int | None
    has_offset: bool = False
    drop: tuple[float, int, int] | None = None


class Extras(NamedTuple):
    """Operands that are there for some settings only, in their order: nodes, values of a program, or arrays."""

    offset: Any = None
    keys: Any = None
    counters: Any = None
    mask: Any = None


def setting_of(attrs: Sequence[Any]) -> Setting:
    return Setting(*attrs[: len(Setting._fields)])


def named_extras(setting: Setting, given: Sequence[Any]) -> Extras:
    """``given`` by name."""
    names = ["offset"] * setting.has_offset + ["keys", "counters"] * (setting.drop is not None)
    return Extras(**dict(zip([*names, "mask"], given)))


def kept_below(rate: float) -> int:
    """A weight is kept where the 24 high bits of its random word are a number below this one: those that a number of
    float32 in [0, 1) is made of (api/random.py)."""
    return math.ceil(float(np.float32(1.0 - rate)) * (1 << 24))


def _check(name: str, inputs: tuple[Node, ...], setting: Setting, given: tuple[Node, ...]) -> None:
    q, k, v = inputs[:3]
    if any(x.ndim != 4 for x in (q, k, v)):
        raise ShapeError(f"{name}: q, k and v have 4 axes, got {q.shape}, {k.shape}, {v.shape}")
    if q.dtype.name not in ("float32", "float64") or k.dtype is not q.dtype or v.dtype is not q.dtype:
        found = ", ".join(str(x.dtype) for x in (q, k, v))
        raise DTypeError(f"{name}: q, k and v of one dtype, float32 or float64, expected, got {found}")
    batch, heads, queries, depth = q.shape
    if k.shape[0] != batch or k.shape[3] != depth or v.shape[:3] != k.shape[:3] or heads % max(k.shape[1], 1):
        raise ShapeError(f"{name}: shapes {q.shape}, {k.shape}, {v.shape} do not fit each other")
    if not depth or not v.shape[3]:
        raise ShapeError(f"{name}: the last axes of q, k and v have an element at least, got {q.shape} and {v.shape}")
    extras = named_extras(setting, given)
    for x, shape, dtype in (
        (extras.offset, k.shape[:2], dtypes.int64), (extras.keys, (batch,), dtypes.uint64),
        (extras.counters, (batch,), dtypes.uint64),
    ):  # fmt: skip
        if x is not None and (x.shape != shape or x.dtype is not dtype):
            raise ShapeError(f"{name}: {dtype.name} of shape {shape} expected, got {x!r}")
    mask = extras.mask
    if mask is not None:
        fits = mask.dtype.kind == "b" or mask.dtype is q.dtype
        if mask.shape != (batch, heads, queries, k.shape[2]) or not fits:
            raise ShapeError(f"{name}: a mask {mask!r} does not fit {q!r} and {k!r}")


def _infer(inputs: tuple[Node, ...], *attrs: Any) -> tuple[Shape, DType]:
    _check("attention", inputs, setting_of(attrs), inputs[3:])
    q, _, v = inputs[:3]
    return (size_of(q.shape[:3]) * (v.shape[3] + 1),), q.dtype


def _infer_gradient(inputs: tuple[Node, ...], *attrs: Any) -> tuple[Shape, DType]:
    _check("attention_gradient", inputs, setting_of(attrs), inputs[5:])
    q, k, v = inputs[:3]
    return (attrs[-1] * q.size + k.size + v.size,), q.dtype


def _scores(setting: Setting, q: Array, k: Array, extras: Extras) -> Array:
    """Scaled and masked, in float64; heads of keys repeated."""
    scores = setting.scale * np.matmul(q.astype(np.float64), np.swapaxes(_repeated(k, q), 2, 3).astype(np.float64))
    places = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    if setting.has_offset:
        places = places - _repeated(extras.offset, q)[:, :, None, None]
    if setting.low is not None:
        scores = np.where(places < setting.low, -np.inf, scores)
    if setting.high is not None:
        scores = np.where(places >= setting.high, -np.inf, scores)
    mask = extras.mask
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
    return np.asarray(scores)


def _factors(setting: Setting, shape: Shape, extras: Extras) -> Array:
    """By what weights are multiplied that are dropped or kept."""
    if setting.drop is None:
        return np.ones(())
    rate, *steps = setting.drop
    places = [np.arange(extent, dtype=np.uint64) for extent in shape[1:]]
    heads, queries, keys = np.ix_(*places)
    counters = heads * np.uint64(steps[0]) + queries * np.uint64(steps[1]) + keys
    counters = counters + np.asarray(extras.counters).reshape(-1, 1, 1, 1)
    words = threefry_bits(np.asarray(extras.keys).reshape(-1, 1, 1, 1), counters)
    return np.where(words >> np.uint64(40) < kept_below(rate), 1 / (1 - rate), 0.0)


def _repeated(x: Array, q: Array) -> Array:
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def _reference(node: Node, q: Array, k: Array, v: Array, *given: Array) -> Array:
    setting = setting_of(node.attrs)
    extras = named_extras(setting, given)
    with np.errstate(all="ignore"):
        scores = _scores(setting, q, k, extras)
        largest = scores.max(axis=3, keepdims=True, initial=-np.inf)
        is_empty = np.isneginf(largest)
        weights = np.exp(scores - np.where(is_empty, 0, largest))
        total = weights.sum(axis=3, keepdims=True)
        kept = weights * _factors(setting, scores.shape, extras)
        out = np.where(is_empty, 0, np.matmul(kept, _repeated(v, q)) / np.where(is_empty, 1, total))
        logarithms = np.where(is_empty, 0, (largest + np.log(np.where(is_empty, 1, total))) * np.log2(np.e))
    return np.concatenate([out.ravel(), logarithms.ravel()]).astype(node.dtype.numpy)


def _gradient_reference(node: Node, q: Array, k: Array, v: Array, flat: Array, dout: Array, *given: Array) -> Array:
    setting = setting_of(node.attrs)
    extras = named_extras(setting, given)
    rows = q.shape[:3]
    out = flat[: size_of(rows) * v.shape[3]].reshape(*rows, v.shape[3]).astype(np.float64)
    logarithms = flat[out.size :].reshape(*rows, 1)
    with np.errstate(all="ignore"):
        weights = np.exp(_scores(setting, q, k, extras) - logarithms * np.log(2))
        factors = _factors(setting, weights.shape, extras)
        dv = np.matmul(np.swapaxes(weights * factors, 2, 3), dout)
        change = np.matmul(dout, np.swapaxes(_repeated(v, q), 2, 3))
        change = np.where(factors == 0, 0, change * factors) - (dout * out).sum(3, keepdims=True)
        dscores = np.where(weights == 0, 0, weights * change * setting.scale)
        keys, count = _repeated(k, q), node.attrs[-1]
        ends = [min(i * split_keys(k.shape[2], count), k.shape[2]) for i in range(count + 1)]
        dq = [np.matmul(dscores[..., a:b], keys[:, :, a:b]) for a, b in pairwise(ends)]
        dk = np.matmul(np.swapaxes(dscores, 2, 3), q)
    shared = (q.shape[0], k.shape[1], q.shape[1] // max(k.shape[1], 1), *k.shape[2:3])
    dk, dv = (x.reshape(*shared, x.shape[3]).sum(2) for x in (dk, dv))
    return np.concatenate([x.ravel() for x in (*dq, dk, dv)]).astype(node.dtype.numpy)


def _batch(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    """The batch axis joins the other one; parts of the flat result are sorted by element."""
    merged = []
    for place, (x, is_batched) in enumerate(zip(inputs, batched)):
        x = with_batch(x, is_batched, size)
        # The flat result of attention: outputs of all elements first, then logarithms.
        if place == 3 and node.op is ATTENTION_GRADIENT:
            width = inputs[2].shape[-1]
            outputs = x.shape[1] // (width + 1) * width
            parts = [movement.slice(x, (0, a), (size, b), (1, 1)) for a, b in ((0, outputs), (outputs, x.shape[1]))]
            merged.append(movement.concat([movement.reshape(part, (part.size,)) for part in parts], 0))
        else:
            merged.append(movement.reshape(x, (size * x.shape[1], *x.shape[2:])))
    flat = bind(node.op, tuple(merged), node.attrs)
    if node.op is ATTENTION:
        outputs = size_of(merged[0].shape[:3]) * merged[2].shape[3]
        sizes = [outputs, flat.size - outputs]
    else:
        sizes = [*[merged[0].size] * node.attrs[-1], *[x.size for x in merged[1:3]]]
    found, start = [], 0
    for count in sizes:
        part = movement.slice(flat, (start,), (start + count,), (1,))
        found.append(movement.reshape(part, (size, count // size)))
        start += count
    return movement.concat(found, 1)


ATTENTION = register(Op(
    "attention", "attention", _infer, _reference, NoDerivative(_WHY), _batch, "attention", 0.0,
    Setting._fields,
    "softmax(scale * q k' + mask) v of q[b, h, t, d], k[b, g, s, d], v[b, g, s, e], for query t of keys t + low to "
    "t + high; flat, and behind it the logarithms to base 2 of the sums of exponentials",
))  # fmt: skip
ATTENTION_GRADIENT = register(Op(
    "attention_gradient", "attention", _infer_gradient, _gradient_reference, NoDerivative(_WHY), _batch, "attention",
    0.0, (*Setting._fields, "splits"),
    "of q, k, v, what attention gave, the cotangent of its output, and the mask: the cotangents of q, k and v, flat; "
    "that of q in ``splits`` parts to be summed, by as many ranges of keys",
))  # fmt: skip


def attention(
    q: Node, k: Node, v: Node, mask: Node | None, scale: float, low: int | None, high: int | None,
    extras: Extras | None = None, drop: tuple[float, int, int] | None = None,
) -> Node:  # fmt: skip
    """The output, [b, h, t, e], of a kernel; it has no derivative by itself."""
    given, attrs = _operands(mask, scale, low, high, extras, drop)
    shape = (*q.shape[:3], v.shape[3])
    flat = bind(ATTENTION, (q, k, v, *given), attrs)
    return movement.reshape(movement.slice(flat, (0,), (size_of(shape),), (1,)), shape)


def attention_gradient(
    q: Node, k: Node, v: Node, mask: Node | None, cotangent: Node, scale: float, low: int | None, high: int | None,
    extras: Extras | None = None, drop: tuple[float, int, int] | None = None,
) -> list[Node]:  # fmt: skip
    """The cotangents of q, k and v; a program computes what attention gave once for both."""
    given, attrs = _operands(mask, scale, low, high, extras, drop)
    flat = bind(ATTENTION, (q, k, v, *given), attrs)
    count = splits(q, k)
    found = bind(ATTENTION_GRADIENT, (q, k, v, flat, cotangent, *given), (*attrs, count))
    parts, start = [], 0
    for shape in ((count, *q.shape), k.shape, v.shape):
        stop = start + size_of(shape)
        parts.append(movement.reshape(movement.slice(found, (start,), (stop,), (1,)), shape))
        start = stop
    parts[0] = reduce_sum(parts[0], (0,)) if count > 1 else movement.reshape(parts[0], q.shape)
    return parts


def _operands(
    mask: Node | None, scale: float, low: int | None, high: int | None, extras: Extras | None,
    drop: tuple[float, int, int] | None,
) -> tuple[list[Node], Setting]:  # fmt: skip
    extras = (extras or Extras())._replace(mask=mask)
    setting = Setting(float(scale), low, high, extras.offset is not None, drop)
    return [x for x in extras if x is not None], setting


def splits(q: Node, k: Node) -> int:
    """In how many ranges of keys the gradient is computed, each of which is a task for every head of keys."""
    heads = k.shape[0] * k.shape[1]
    most = min(k.shape[2] // LEAST_KEYS, MOST_PARTIAL // max(q.size * q.dtype.itemsize, 1))
    return max(1, min(-(-TASKS // max(heads, 1)), most))


def split_keys(keys: int, count: int) -> int:
    """The keys of each of ``count`` ranges but the last ones, which may have fewer."""
    return -(-keys // count)
