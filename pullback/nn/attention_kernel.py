"""Attention by kernels that never have the matrix of scores; what it means is nn/attention.py's definition."""

from __future__ import annotations

from collections.abc import Callable

from ..api import manipulation, padding
from ..graph.node import Node
from ..ops.attention import attention, attention_gradient
from ..shapes import size_of
from ..tensor import Tensor
from ..transforms.fused import Inputs, fused

#: ``(q, k, v, mask, low, high) -> output``, all with four axes: batch, heads, tokens, features
Definition = Callable[[Tensor, Tensor, Tensor, Tensor | None, int | None, int | None], Tensor]


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, low: int | None, high: int | None, scale: float,
    lead: tuple[int, ...], definition: Definition,
) -> Tensor:
    """softmax(scale q k' + mask) v of float32 or float64, where query t attends to keys ``t + low`` up to ``t + high``.

    lead: the leading axes of the result, the heads among them; k and v may have fewer heads, and q, k and v other
        leading axes that broadcast.
    mask: bools or floats that broadcast to the scores.
    """
    heads = lead[-1] if lead else 1
    batch = lead[:-1]
    q = _with_four_axes(q, batch, heads)
    k, v = (_with_four_axes(x, batch, x.shape[-3] if x.ndim > 2 and 1 < x.shape[-3] < heads else heads) for x in (k, v))
    if k.shape[1] != v.shape[1]:
        k, v = (_with_four_axes(x, batch, heads) for x in (k, v))
    queries = q.shape[2]
    first, last, low, high, q, k, v, mask = _within_reach(low, high, q, k, v, mask)
    if mask is None and queries == 1 == last - first and q.shape[1] == k.shape[1] and k.shape[2]:
        # One query for each head of keys, as when tokens are decoded one by one: all the keys that are left are within
        # its reach. The scores are few, and a product of a vector and a matrix reads keys and values once, unpacked.
        return manipulation.reshape(definition(q, k, v, None, None, None), (*lead, *q.shape[2:3], v.shape[-1]))
    inputs = [x.node for x in (q, k, v)]
    if mask is not None:
        full = manipulation.broadcast_to(mask, (*lead, q.shape[2], k.shape[2]))
        inputs.append(manipulation.reshape(full, (*q.shape[:3], k.shape[2])).node)

    def parts(nodes: Inputs) -> tuple[Node, Node, Node, Node | None]:
        return nodes[0], nodes[1], nodes[2], nodes[3] if len(nodes) > 3 else None

    def defined(nodes: Inputs) -> Node:
        given = [None if node is None else Tensor(node) for node in parts(nodes)]
        return definition(given[0], given[1], given[2], given[3], low, high).node  # type: ignore[arg-type]

    def gradient(nodes: Inputs, cotangent: Node) -> list[Node | None]:
        found = attention_gradient(*parts(nodes), cotangent, scale, low, high)
        return [*found, *[None] * (len(nodes) - 3)]

    out = Tensor(fused(inputs, defined, lambda nodes: attention(*parts(nodes), scale, low, high), gradient))
    if (first, last) != (0, queries):
        out = padding.pad(out, ((0, 0), (0, 0), (first, queries - last), (0, 0)))
    return manipulation.reshape(out, (*lead, *out.shape[2:]))


def _with_four_axes(x: Tensor, batch: tuple[int, ...], heads: int) -> Tensor:
    full = manipulation.broadcast_to(x, (*batch, heads, *x.shape[-2:]))
    return manipulation.reshape(full, (size_of(batch), heads, *x.shape[-2:]))


def _within_reach(
    low: int | None, high: int | None, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[int, int, int | None, int | None, Tensor, Tensor, Tensor, Tensor | None]:
    """Without the queries that reach no key, and the keys that none reaches: the queries that remain, from the first to
    behind the last, the bounds counted from there, and the operands."""
    queries, keys = q.shape[2], k.shape[2]
    low = None if low is not None and low <= 1 - queries else low  # these bound nothing
    high = None if high is not None and high >= keys else high
    first = 0 if high is None else min(max(1 - high, 0), queries)
    last = queries if low is None else max(min(keys - low, queries), first)
    start = 0 if low is None else min(max(first + low, 0), keys)
    stop = keys if high is None else max(min(last - 1 + high, keys), start)
    if (first, last, start, stop) == (0, queries, 0, keys):
        return first, last, low, high, q, k, v, mask
    is_empty = first == last or start == stop
    low, high = (None if bound is None or is_empty else bound + first - start for bound in (low, high))
    q, k, v = q[:, :, first:last], k[:, :, start:stop], v[:, :, start:stop]
    if mask is not None:
        if mask.ndim and mask.shape[-1] != 1:
            mask = mask[..., start:stop]
        if mask.ndim > 1 and mask.shape[-2] != 1:
            mask = mask[..., first:last, :]
    return first, last, low, high, q, k, v, mask
