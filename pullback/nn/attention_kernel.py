"""Attention by kernels that never have the matrix of scores; what it means is nn/attention.py's definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import dtypes
from ..api import manipulation, padding
from ..graph.node import Node
from ..ops import elementwise, leaf, movement
from ..ops.attention import Extras, attention, attention_gradient
from ..shapes import size_of
from ..tensor import Tensor
from ..transforms.fused import Inputs, fused


class Operands(NamedTuple):
    """What attention is computed of. Those that are there for some calls only are None in others.

    first: int64, the first query's position among the keys, from which bounds are counted.
    key: the random key by which weights are dropped.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    first: Tensor | None = None
    key: Tensor | None = None


#: ``(operands, low, high) -> output``: q, k, v and mask with four axes (batch, heads, tokens, features), first with two
Definition = Callable[[Operands, "int | None", "int | None"], Tensor]


def random_key(key: Any, op: str) -> Tensor:
    """``key``, or the next one of the global generator."""
    from ..api.random import key_node

    return Tensor(key_node(key, op))


def attend(
    operands: Operands, low: int | None, high: int | None, scale: float, rate: float, lead: tuple[int, ...],
    definition: Definition,
) -> Tensor:  # fmt: skip
    """softmax(scale q k' + mask) v of float32 or float64, where query t attends to keys ``t + low`` up to ``t + high``.

    lead: the leading axes of the result, the heads among them; k and v may have fewer heads, and q, k and v other
        leading axes that broadcast. ``mask`` broadcasts to the scores, ``first`` to ``(*lead, 1, 1)``.
    rate: of the weights that are dropped; the others are divided by ``1 - rate``.
    """
    q, k, v, mask, position, key = operands
    heads = lead[-1] if lead else 1
    batch = lead[:-1]
    q = _with_four_axes(q, batch, heads)
    k, v = (_with_four_axes(x, batch, x.shape[-3] if x.ndim > 2 and 1 < x.shape[-3] < heads else heads) for x in (k, v))
    differs = position is not None and position.ndim > 2 and position.shape[-3] > 1
    if k.shape[1] != v.shape[1]:
        k, v = (_with_four_axes(x, batch, heads) for x in (k, v))
    if differs:
        k, v = (_for_each_head(x, heads) for x in (k, v))
    queries, first, last = q.shape[2], 0, q.shape[2]
    if position is None and not rate:  # what is dropped depends on the places of all queries and keys
        first, last, low, high, q, k, v, mask = _within_reach(low, high, q, k, v, mask)
        if mask is None and queries == 1 == last - first and q.shape[1] == k.shape[1] and k.shape[2]:
            # One query for each head of keys, as when tokens are decoded one by one: all the keys that are left are
            # within its reach. The scores are few, and a product of a vector and a matrix reads keys and values once,
            # unpacked.
            found = definition(Operands(q, k, v), None, None)
            return manipulation.reshape(found, (*lead, *q.shape[2:3], v.shape[-1]))
    if mask is not None:
        full = manipulation.broadcast_to(mask, (*lead, q.shape[2], k.shape[2]))
        mask = manipulation.reshape(full, (*q.shape[:3], k.shape[2]))
    if position is not None:
        position = _with_four_axes(position if position.ndim else position[None, None], batch, k.shape[1])
        position = manipulation.reshape(position, k.shape[:2])
    given = Operands(q, k, v, mask, position, key)
    names = [name for name, x in zip(Operands._fields, given) if x is not None]
    steps = (q.shape[2] * k.shape[2], k.shape[2])
    drop = (rate, *steps) if rate else None

    def defined(nodes: Inputs) -> Node:
        given = Operands(**{name: Tensor(node) for name, node in zip(names, nodes)})
        if given.first is not None:
            given = given._replace(first=_for_each_head(given.first, heads))
        return definition(given, low, high).node

    def arguments(nodes: Inputs) -> tuple[Node, Node, Node, Node | None, Extras]:
        """q, k, v, the mask, and the rest as the ops take it."""
        by_name = dict(zip(names, nodes))
        extras = Extras(by_name.get("first"))
        if rate:
            count = q.shape[0]
            counters = leaf.iota((count,), 0, dtypes.uint64)
            counters = elementwise.multiply(counters, q.shape[1] * steps[0])
            extras = extras._replace(keys=movement.broadcast_to(by_name["key"], (count,)), counters=counters)
        return by_name["q"], by_name["k"], by_name["v"], by_name.get("mask"), extras

    def value(nodes: Inputs) -> Node:
        q, k, v, mask, extras = arguments(nodes)
        return attention(q, k, v, mask, scale, low, high, extras, drop)

    def gradient(nodes: Inputs, cotangent: Node) -> list[Node | None]:
        q, k, v, mask, extras = arguments(nodes)
        found = attention_gradient(q, k, v, mask, cotangent, scale, low, high, extras, drop)
        return [*found, *[None] * (len(nodes) - 3)]

    out = Tensor(fused([x.node for x in given if x is not None], defined, value, gradient))
    if (first, last) != (0, queries):
        out = padding.pad(out, ((0, 0), (0, 0), (first, queries - last), (0, 0)))
    return manipulation.reshape(out, (*lead, *out.shape[2:]))


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    """x, (batch, heads of keys, ...), with each head as often as others share it, one after the other."""
    count = x.shape[1]
    if count == heads:
        return x
    full = manipulation.broadcast_to(
        manipulation.expand_dims(x, axis=2), (*x.shape[:2], heads // max(count, 1), *x.shape[2:])
    )
    return manipulation.reshape(full, (x.shape[0], heads, *x.shape[2:]))


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
