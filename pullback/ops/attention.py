"""attention and its gradient: softmax(scale * q k' + mask) v, in one kernel each that never has the matrix of scores.

Both are values without a derivative of their own: nn/attention.py joins them to their definition in other ops, which
has one of every order (see transforms/fused.py).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape, size_of
from . import movement
from .family import Array, with_batch
from .record import NoDerivative, Op
from .reduction import reduce_sum
from .registry import register

# The gradient is cut in ranges of keys where there are not so many heads; each has so many keys at least, and a part of
# the cotangent of q, of so many bytes together at most.
TASKS = 8
LEAST_KEYS = 384
MOST_PARTIAL = 1 << 25
_WHY = "it is a kernel, joined to a definition that is differentiated in its place"


def _check(name: str, inputs: tuple[Node, ...], masks: tuple[Node, ...]) -> None:
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
    for mask in masks:
        if mask.shape != (batch, heads, queries, k.shape[2]) or (mask.dtype.kind != "b" and mask.dtype is not q.dtype):
            raise ShapeError(f"{name}: a mask {mask!r} does not fit {q!r} and {k!r}")


def _infer(inputs: tuple[Node, ...], scale: float, low: int | None, high: int | None) -> tuple[Shape, DType]:
    _check("attention", inputs, inputs[3:])
    q, _, v = inputs[:3]
    return (size_of(q.shape[:3]) * (v.shape[3] + 1),), q.dtype


def _infer_gradient(
    inputs: tuple[Node, ...], scale: float, low: int | None, high: int | None, splits: int
) -> tuple[Shape, DType]:
    _check("attention_gradient", inputs, inputs[5:])
    q, k, v = inputs[:3]
    return (splits * q.size + k.size + v.size,), q.dtype


def _scores(node: Node, q: Array, k: Array, mask: tuple[Array, ...]) -> Array:
    """Scaled and masked, in float64; heads of keys repeated."""
    scale, low, high = node.attrs[:3]
    scores = scale * np.matmul(q.astype(np.float64), np.swapaxes(_repeated(k, q), 2, 3).astype(np.float64))
    places = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    if low is not None:
        scores = np.where(places < low, -np.inf, scores)
    if high is not None:
        scores = np.where(places >= high, -np.inf, scores)
    for given in mask:
        scores = np.where(given, scores, -np.inf) if given.dtype == np.bool_ else scores + given
    return np.asarray(scores)


def _repeated(x: Array, q: Array) -> Array:
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def _reference(node: Node, q: Array, k: Array, v: Array, *mask: Array) -> Array:
    with np.errstate(all="ignore"):
        scores = _scores(node, q, k, mask)
        largest = scores.max(axis=3, keepdims=True, initial=-np.inf)
        is_empty = np.isneginf(largest)
        weights = np.exp(scores - np.where(is_empty, 0, largest))
        total = weights.sum(axis=3, keepdims=True)
        out = np.where(is_empty, 0, np.matmul(weights, _repeated(v, q)) / np.where(is_empty, 1, total))
        logarithms = np.where(is_empty, 0, (largest + np.log(np.where(is_empty, 1, total))) * np.log2(np.e))
    return np.concatenate([out.ravel(), logarithms.ravel()]).astype(node.dtype.numpy)


def _gradient_reference(node: Node, q: Array, k: Array, v: Array, flat: Array, dout: Array, *mask: Array) -> Array:
    rows = q.shape[:3]
    out = flat[: size_of(rows) * v.shape[3]].reshape(*rows, v.shape[3]).astype(np.float64)
    logarithms = flat[out.size :].reshape(*rows, 1)
    with np.errstate(all="ignore"):
        weights = np.exp(_scores(node, q, k, mask) - logarithms * np.log(2))
        dv = np.matmul(np.swapaxes(weights, 2, 3), dout)
        change = np.matmul(dout, np.swapaxes(_repeated(v, q), 2, 3)) - (dout * out).sum(3, keepdims=True)
        dscores = np.where(weights == 0, 0, weights * change * node.attrs[0])
        keys, count = _repeated(k, q), node.attrs[3]
        ends = [min(i * split_keys(k.shape[2], count), k.shape[2]) for i in range(count + 1)]
        dq = [np.matmul(dscores[..., a:b], keys[:, :, a:b]) for a, b in pairwise(ends)]
        dk = np.matmul(np.swapaxes(dscores, 2, 3), q)
    shared = (q.shape[0], k.shape[1], q.shape[1] // max(k.shape[1], 1), *k.shape[2:3])
    dk, dv = (x.reshape(*shared, x.shape[3]).sum(2) for x in (dk, dv))
    return np.concatenate([x.ravel() for x in (*dq, dk, dv)]).astype(node.dtype.numpy)


def _batch(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    """The batch axis joins the other one; parts of the flat result are sorted by element."""
    merged = []
    for x, is_batched in zip(inputs, batched):
        x = with_batch(x, is_batched, size)
        if x.ndim == 2:  # the flat result of attention: outputs of all elements first, then logarithms
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
        sizes = [*[merged[0].size] * node.attrs[3], *[x.size for x in merged[1:3]]]
    found, start = [], 0
    for count in sizes:
        part = movement.slice(flat, (start,), (start + count,), (1,))
        found.append(movement.reshape(part, (size, count // size)))
        start += count
    return movement.concat(found, 1)


ATTENTION = register(Op(
    "attention", "attention", _infer, _reference, NoDerivative(_WHY), _batch, "attention", 0.0,
    ("scale", "low", "high"),
    "softmax(scale * q k' + mask) v of q[b, h, t, d], k[b, g, s, d], v[b, g, s, e], for query t of keys t + low to "
    "t + high; flat, and behind it the logarithms to base 2 of the sums of exponentials",
))  # fmt: skip
ATTENTION_GRADIENT = register(Op(
    "attention_gradient", "attention", _infer_gradient, _gradient_reference, NoDerivative(_WHY), _batch, "attention",
    0.0, ("scale", "low", "high", "splits"),
    "of q, k, v, what attention gave, the cotangent of its output, and the mask: the cotangents of q, k and v, flat; "
    "that of q in ``splits`` parts to be summed, by as many ranges of keys",
))  # fmt: skip


def attention(q: Node, k: Node, v: Node, mask: Node | None, scale: float, low: int | None, high: int | None) -> Node:
    """The output, [b, h, t, e], of a kernel; it has no derivative by itself."""
    flat = _flat(q, k, v, mask, scale, low, high)
    shape = (*q.shape[:3], v.shape[3])
    return movement.reshape(movement.slice(flat, (0,), (size_of(shape),), (1,)), shape)


def _flat(q: Node, k: Node, v: Node, mask: Node | None, scale: float, low: int | None, high: int | None) -> Node:
    return bind(ATTENTION, (q, k, v) if mask is None else (q, k, v, mask), (float(scale), low, high))


def attention_gradient(
    q: Node, k: Node, v: Node, mask: Node | None, cotangent: Node, scale: float, low: int | None, high: int | None
) -> list[Node]:
    """The cotangents of q, k and v; a program computes what attention gave once for both."""
    flat = _flat(q, k, v, mask, scale, low, high)
    inputs = (q, k, v, flat, cotangent) if mask is None else (q, k, v, flat, cotangent, mask)
    count = splits(q, k)
    found = bind(ATTENTION_GRADIENT, inputs, (float(scale), low, high, count))
    parts, start = [], 0
    for shape in ((count, *q.shape), k.shape, v.shape):
        stop = start + size_of(shape)
        parts.append(movement.reshape(movement.slice(found, (start,), (stop,), (1,)), shape))
        start = stop
    parts[0] = reduce_sum(parts[0], (0,)) if count > 1 else movement.reshape(parts[0], q.shape)
    return parts


def splits(q: Node, k: Node) -> int:
    """In how many ranges of keys the gradient is computed, each of which is a task for every head of keys."""
    heads = k.shape[0] * k.shape[1]
    most = min(k.shape[2] // LEAST_KEYS, MOST_PARTIAL // max(q.size * q.dtype.itemsize, 1))
    return max(1, min(-(-TASKS // max(heads, 1)), most))


def split_keys(keys: int, count: int) -> int:
    """The keys of each of ``count`` ranges but the last ones, which may have fewer."""
    return -(-keys // count)
