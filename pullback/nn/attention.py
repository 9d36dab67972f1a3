"""Scaled dot-product attention, defined in primitives.

``attention_definition`` is what attention means, with the whole score matrix; ``scaled_dot_product_attention`` is what
users call, and computes the same, where it can by kernels that never have that matrix (attention_kernel.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from .. import dtypes
from ..api import contraction, convert, indexing, manipulation, reduction, sorting
from ..api import elementwise as ew
from ..compiler.products import has_tile
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..interop import is_traced
from ..ops import leaf
from ..shapes import as_int, as_number, broadcast_shapes, size_of
from ..tensor import Tensor
from ..transforms.fused import Inputs, fused
from .attention_kernel import Operands, attend, random_key
from .operands import narrowed, widened
from .probability import softmax

Window = tuple[int | None, int | None] | None


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    is_causal: bool = False,
    window: int | Sequence[int | None] | None = None,
    scale: float | Tensor | None = None,
    dropout: float = 0.0,
    enable_gqa: bool = False,
    offset: Any = None,
    key: Any = None,
) -> Tensor:
    """``softmax(q k^T scale) v``: each query's mean of the values, weighted by how well their keys fit it.

    q: (..., heads, queries, features), k: (..., heads, keys, features), v: (..., heads, keys, outputs), floating;
        leading axes broadcast. Result: (..., heads, queries, outputs).
    mask: what broadcasts to (..., heads, queries, keys): bools, True where a query may attend to a key, or floats that
        are added to the scores, -inf for where it may not. (PyTorch's ``attn_mask``.)
    is_causal: a query attends to keys up to its own position.
    window: ``(left, right)``, how far from its own position a query attends to keys before and after it, None or -1 for
        any distance; one number for both sides.
    offset: position of the first query among the keys, an int or integers that broadcast to the leading axes (...,
        heads): with a cache of keys, the number of tokens in it before these queries. None: ``keys - queries``, so that
        the last query stands at the last key. PyTorch's ``is_causal`` has an offset of 0, which differs where the
        numbers of queries and keys do. A jitted step of n tokens fills a cache with room for more by ``cache[..., start
        + pb.arange(n), :] = k`` and attends to it with ``is_causal=True, offset=start``.
    scale: None is ``1 / sqrt(features)``; a number, or a 0-d tensor, which then has a gradient.
    dropout: probability with which a weight is set to 0, and the others scaled up, always; pass 0 when not training.
        (PyTorch's ``dropout_p``.)
        key: a random key for it; without one the global generator is used.
    enable_gqa: k and v may have fewer heads, of which each serves as many heads of q that follow one another (grouped
        and multi-query attention). They are not repeated in memory.

    Masks combine. A query that may attend to nothing gives 0, and no gradient; keys and values that no query may attend
    to do not count, even if they are NaN. float16 and bfloat16 are computed in float32.

    The matrix of scores is never in memory as a whole, and blocks of it that places or a mask of bools hide are not
    computed: the gradient computes it again, from one number a query, and draws again what is dropped. It is there in
    derivatives beyond the first by reverse mode (the gradient by a mask of floats, forward mode, second derivatives),
    and on processors without fused multiply-add.

    Raises ShapeError, DTypeError or ArgumentError that name what does not fit.
    """
    op = "scaled_dot_product_attention"
    rate = as_number(dropout, op, "dropout")
    if not has_tile() or not 0.0 <= rate < 1.0:
        return attention_definition(q, k, v, mask, is_causal, window, scale, dropout, enable_gqa, offset, key)
    (q, k, v), dtype = widened(op, q, k, v)
    shape, groups = _check_operands(q, k, v, enable_gqa, op)
    if not q.shape[-1] or not v.shape[-1]:
        return narrowed(attention_definition(q, k, v, mask, is_causal, window, scale, 0.0, enable_gqa, offset), dtype)
    allowed, bias = _check_mask(mask, shape, q.dtype, op)
    span = as_window(window, op)
    first = _first_position(offset, shape, op)
    q, scale = _scaled(q, scale, op)
    is_known = isinstance(first, int)
    low, high = _bounds(is_causal, span, first if is_known else 0)
    hides = allowed is not None or not _everybody_sees(shape[-2], shape[-1], is_causal, span, first)
    if hides and (allowed is not None or not is_known or rate):
        rules = (allowed, _by_place(shape, is_causal, span, first))
        seen = reduce(ew.logical_and, [x for x in rules if x is not None])
        if shape[-2] == 1 and not rate:
            return narrowed(_one_query(q, k, v, seen, bias, scale, groups), dtype)
        zeroed = _without_unseen(q, k, v, seen, groups)
        # Without a mask and a bound on the left, the kernel comes by no key that no query sees.
        q, k, v = (zeroed[0], k, v) if allowed is None and low is None else zeroed
    if bias is not None:
        bias = ew.where(allowed, bias, -math.inf)
    if groups == 1:  # heads that k and v have one of are no group unless that is asked for
        k, v = (manipulation.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (k, v))

    def definition(given: Operands, low: int | None, high: int | None) -> Tensor:
        q, k, v, mask = given.q, given.k, given.v, given.mask
        place = _positions(k.shape[2], -2) - _positions(q.shape[2], -1)
        if given.first is not None:
            place = place - manipulation.expand_dims(given.first, axis=(-2, -1))
        for bound, inside in ((low, lambda: place >= low), (high, lambda: place < high)):
            if bound is not None:
                is_float = mask is not None and mask.dtype.kind == "f"
                mask = ew.where(inside(), mask, -math.inf) if is_float else _both(mask, inside())
        return attention_definition(q, k, v, mask, scale=scale, enable_gqa=True, dropout=rate, key=given.key)

    operands = Operands(
        q, k, v, allowed if bias is None else bias, None if is_known or (low is None and high is None) else first,
        random_key(key, op) if rate else None,
    )
    found = attend(operands, low, high, scale, rate, shape[:-2], definition)
    return narrowed(found, dtype)


def _both(mask: Tensor | None, other: Tensor) -> Tensor:
    return other if mask is None else ew.logical_and(mask, other)


def _scaled(q: Tensor, scale: Any, op: str) -> tuple[Tensor, float]:
    """Queries and the number by which scores are multiplied; queries that are multiplied already, by a tensor."""
    if scale is None:
        return q, 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    if not isinstance(scale, Tensor):
        return q, float(as_number(scale, op, "scale"))
    if scale.shape:
        raise ShapeError(f"{op}: scale must be a number or a 0-d tensor, got shape {scale.shape}")
    return q * narrowed(scale, q.dtype), 1.0


def _bounds(is_causal: bool, window: Window, first: int) -> tuple[int | None, int | None]:
    """Query t attends to keys from ``t + low`` up to ``t + high``."""
    left, right = window if window is not None else (None, None)
    right = 0 if is_causal else right
    low, high = None if left is None else first - left, None if right is None else first + right + 1
    return None if low is None else _near(low), None if high is None else _near(high)


def _near(place: int) -> int:
    """A number of 64 bits that is as far from all queries and keys."""
    return min(max(place, -1 << 40), 1 << 40)


def attention_definition(
    q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False, window: Any = None, scale: Any = None,
    dropout: float = 0.0, enable_gqa: bool = False, offset: Any = None, key: Any = None,
) -> Tensor:
    """:func:`scaled_dot_product_attention` step by step."""
    op = "scaled_dot_product_attention"
    (q, k, v), dtype = widened(op, q, k, v)
    shape, groups = _check_operands(q, k, v, enable_gqa, op)
    if not 0.0 <= dropout <= 1.0:
        raise ArgumentError(f"{op}: dropout must be in [0, 1], got {dropout}")
    queries, keys = shape[-2:]
    allowed, bias = _check_mask(mask, shape, q.dtype, op)
    span = as_window(window, op)
    first = _first_position(offset, shape, op)
    hides = allowed is not None or not _everybody_sees(queries, keys, is_causal, span, first)
    within = _by_place(shape, is_causal, span, first)
    if within is not None:
        allowed = _both(allowed, within)
    if allowed is not None and hides:
        q, k, v = _without_unseen(q, k, v, allowed, groups)
    q, scale = _scaled(q, scale, op)
    weights = _weights(q, k, allowed, bias, scale, groups)
    if dropout:
        weights = _dropped(weights, dropout, key)
    return narrowed(_by_group(weights, v, groups), dtype)


def _dropped(weights: Tensor, rate: float, key: Any) -> Tensor:
    """As ``functional.dropout``; its random numbers are of float32 always, as the kernel draws them."""
    if rate == 1.0:
        return ew.where(False, weights, 0.0)
    from ..api import random

    kept = random.bernoulli(np.float32(1.0 - rate), shape=weights.shape, key=key)
    return ew.where(kept, weights / (1.0 - rate), 0.0)


def _weights(q: Tensor, k: Tensor, allowed: Tensor | None, bias: Tensor | None, scale: float, groups: int) -> Tensor:
    scores = _by_group(q, manipulation.matrix_transpose(k), groups) * scale
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = ew.where(allowed, scores, -math.inf)
    return softmax(scores, axis=-1)


def _one_query(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor | None, scale: float, groups: int
) -> Tensor:
    """A query for each head, as when tokens are decoded one by one: its scores are few, and keys and values are best
    read once where they lie. Keys that it may not attend to need no zeros in their place, as their scores are hidden
    anyway; but the derivatives do, which multiply by them."""
    inputs = [x.node for x in (q, k, v, allowed, *(() if bias is None else (bias,)))]

    def attended(nodes: Inputs, hides_keys: bool) -> Node:
        q, k, v, allowed, *rest = map(Tensor, nodes)
        zeroed = _without_unseen(q, k, v, allowed, groups)
        q, k, v = zeroed if hides_keys else (q, k, zeroed[2])
        weights = _weights(q, k, allowed, rest[0] if rest else None, scale, groups)
        if groups == 1 and not hides_keys:  # a sum, that no product waits for the zeros
            return reduction.sum(manipulation.matrix_transpose(weights) * v, axis=-2, keepdims=True).node
        return _by_group(weights, v, groups).node

    return Tensor(fused(
        inputs, lambda nodes: attended(nodes, True), lambda nodes: attended(nodes, False),
        lambda nodes, _: [None] * len(nodes),
    ))  # fmt: skip


def packed_attention(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens: Any = None,
    cu_seqlens_k: Any = None,
    segments: Any = None,
    segments_k: Any = None,
    is_causal: bool = False,
    window: int | Sequence[int | None] | None = None,
    scale: float | Tensor | None = None,
    dropout: float = 0.0,
    enable_gqa: bool = False,
    key: Any = None,
) -> Tensor:
    """Attention within each of several sequences that lie one after another along the axis of tokens.

    q, k, v: as in :func:`scaled_dot_product_attention`, the axes of queries and keys holding the tokens of all
        sequences.
    cu_seqlens: (sequences + 1,) integers from 0 up, sequence i being tokens ``cu_seqlens[i]`` up to
        ``cu_seqlens[i + 1]``; tokens from the last number on are padding. cu_seqlens_k: the same of the keys, None
        where they are as the queries.
    segments: in the place of cu_seqlens, (..., tokens) integers that broadcast over the leading axes before the heads:
        tokens of one number attend to each other; below 0 is padding. segments_k: the same of the keys.
    is_causal, window: by positions within each sequence, whose last query stands at its last key. With segments, by
        positions along the axis, which must be one for queries and keys: there is no segments_k then.

    Padding gives 0, and no gradient. Raises ShapeError, DTypeError or ArgumentError that name what does not fit.
    """
    op = "packed_attention"
    if (cu_seqlens is None) == (segments is None):
        raise ArgumentError(f"{op}: give either cu_seqlens or segments, to say which tokens belong together")
    queries, keys = [_tokens(x, name, op) for x, name in ((q, "q"), (k, "k"))]
    span = as_window(window, op)
    ordered = is_causal or span is not None
    if cu_seqlens is not None:
        if segments_k is not None:
            raise ArgumentError(f"{op}: segments_k goes with segments, and cu_seqlens_k with cu_seqlens")
        ends = _ends(cu_seqlens, queries if cu_seqlens_k is not None else min(queries, keys), "cu_seqlens", op)
        ends_k = ends if cu_seqlens_k is None else _ends(cu_seqlens_k, keys, "cu_seqlens_k", op)
        if ends.shape != ends_k.shape:
            raise ShapeError(f"{op}: cu_seqlens {ends.shape} and cu_seqlens_k {ends_k.shape} count different sequences")
        ids, place = _sequence_of(ends, queries)
        ids_k, place_k = _sequence_of(ends_k, keys)
        distance = manipulation.expand_dims(place, axis=-1) - manipulation.expand_dims(place_k, axis=-2)
    else:
        if cu_seqlens_k is not None:
            raise ArgumentError(f"{op}: cu_seqlens_k goes with cu_seqlens, and segments_k with segments")
        if segments_k is not None and ordered:
            raise ArgumentError(
                f"{op}: is_causal and window compare positions along one axis, so with segments there must be no "
                "segments_k; give cu_seqlens and cu_seqlens_k"
            )
        ids = _segments(segments, queries, "segments", op)
        ids_k = ids if segments_k is None else _segments(segments_k, keys, "segments_k", op)
        if ids_k.shape[-1] != keys:
            raise ShapeError(f"{op}: segments of {queries} queries say nothing of {keys} keys; give segments_k")
        distance = _positions(queries, -1) - _positions(keys, -2)
    allowed = ew.logical_and(
        manipulation.expand_dims(ids, axis=-1) == manipulation.expand_dims(ids_k, axis=-2),
        manipulation.expand_dims(ids, axis=-1) >= 0,
    )
    if ordered:
        allowed = ew.logical_and(allowed, _within(distance, is_causal, span))
    if allowed.ndim > 2:
        allowed = manipulation.expand_dims(allowed, axis=-3)  # the heads
    return scaled_dot_product_attention(
        q, k, v, allowed, scale=scale, dropout=dropout, enable_gqa=enable_gqa, key=key
    )


# -- operands ----------------------------------------------------------------------------------------------------------


def _check_operands(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool, op: str) -> tuple[tuple[int, ...], int]:
    """The shape of the scores, and how many heads of q share one of k and v."""
    least = 3 if enable_gqa else 2
    if min(q.ndim, k.ndim, v.ndim) < least:
        axes = "(..., heads, tokens, features)" if enable_gqa else "(..., tokens, features)"
        raise ShapeError(f"{op}: q, k and v of shape {axes} expected, got {q.shape}, {k.shape} and {v.shape}")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"{op}: q {q.shape} and k {k.shape} differ in their last axis, the features")
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"{op}: k {k.shape} and v {v.shape} differ in their last axis but one, the keys")
    groups = 1
    lead_k, lead_v = k.shape[:-2], v.shape[:-2]
    if enable_gqa:
        heads, heads_k, heads_v = q.shape[-3], k.shape[-3], v.shape[-3]
        if heads_k != heads_v or heads_k == 0 or heads % heads_k:
            raise ShapeError(
                f"{op}: with enable_gqa, k and v must have one number of heads, which divides that of q; got {heads} "
                f"heads of q, {heads_k} of k and {heads_v} of v"
            )
        groups = heads // heads_k
        lead_k, lead_v = (*lead_k[:-1], heads), (*lead_v[:-1], heads)
    try:
        lead = broadcast_shapes(q.shape[:-2], lead_k, lead_v, op=op)
    except ShapeError as error:
        hint = "" if enable_gqa else "; for fewer heads of k and v pass enable_gqa=True"
        raise ShapeError(
            f"{op}: the leading axes of q {q.shape}, k {k.shape} and v {v.shape} do not broadcast{hint}"
        ) from error
    return (*lead, q.shape[-2], k.shape[-2]), groups


def _without_unseen(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for queries that may attend to nothing, and for keys and values that no query may attend to."""
    q = ew.where(manipulation.expand_dims(_some(allowed, -1, q.shape[:-1], 1), axis=-1), q, 0.0)
    seen = manipulation.expand_dims(_some(allowed, -2, k.shape[:-1], groups), axis=-1)
    return q, ew.where(seen, k, 0.0), ew.where(seen, v, 0.0)


def _by_group(x: Tensor, y: Tensor, groups: int) -> Tensor:
    """``x @ y``, where each matrix of ``y`` serves ``groups`` of x that follow one another on the axis before."""
    if groups == 1:
        return Tensor(contraction.matmul_node(x.node, y.node))
    *lead, heads, rows, inner = x.shape
    together = manipulation.reshape(x, (*lead, heads // groups, groups * rows, inner))
    product = Tensor(contraction.matmul_node(together.node, y.node))
    return manipulation.reshape(product, (*product.shape[:-3], heads, rows, y.shape[-1]))


# -- masks -------------------------------------------------------------------------------------------------------------


def _check_mask(mask: Any, shape: tuple[int, ...], dtype: DType, op: str) -> tuple[Tensor | None, Tensor | None]:
    """Where the mask allows to attend, and what it adds to the scores."""
    if mask is None:
        return None, None
    found = convert.wrap(convert.as_node(mask, None, op))
    missing = len(shape) - found.ndim
    if missing < 0 or any(a not in (1, b) for a, b in zip(found.shape, shape[missing:])):
        raise ShapeError(f"{op}: a mask of shape {found.shape} does not broadcast to the scores' shape {shape}")
    found = manipulation.reshape(found, (*(1,) * (2 - found.ndim), *found.shape))
    if found.dtype.kind == "b":
        return found, None
    if found.dtype.kind != "f":
        raise DTypeError(
            f"{op}: a mask of bools (True: may attend) or floats (added to the scores) expected, got {found.dtype.name}"
        )
    bias = narrowed(found, dtype)
    return bias != -math.inf, ew.where(bias == -math.inf, 0.0, bias)


def as_window(window: Any, op: str) -> Window:
    """``(left, right)``, each None for any distance; None where both are."""
    if window is None:
        return None
    sides = tuple(window) if isinstance(window, (tuple, list)) else (window, window)
    if len(sides) != 2:
        raise ArgumentError(f"{op}: window must be (left, right) or one number, got {window!r}")
    reach = [None if side is None else as_int(side, op, "window") for side in sides]
    if any(side is not None and side < -1 for side in reach):
        raise ArgumentError(f"{op}: a window's sides must not be negative (-1 or None: any distance), got {window!r}")
    left, right = (None if side == -1 else side for side in reach)
    return None if left is None and right is None else (left, right)


def _positions(count: int, axis: int) -> Tensor:
    """0, 1, 2, ..., with an axis of extent 1 at ``axis``."""
    return manipulation.expand_dims(Tensor(leaf.iota((count,), 0, dtypes.int64)), axis=axis)


def _first_position(offset: Any, shape: tuple[int, ...], op: str) -> Any:
    """The first query's position among the keys: an int, or a tensor that broadcasts against (..., queries, keys)."""
    if offset is None:
        return shape[-1] - shape[-2]
    if isinstance(offset, int) and not isinstance(offset, bool):
        return offset
    first = convert.wrap(convert.as_node(offset, None, op))
    if first.dtype.kind not in "iu":
        raise DTypeError(f"{op}: offset must be an integer, the first query's position, got {first.dtype.name}")
    lead = shape[:-2]
    missing = len(lead) - first.ndim
    if missing < 0 or any(a not in (1, b) for a, b in zip(first.shape, lead[missing:])):
        raise ShapeError(f"{op}: an offset of shape {first.shape} does not broadcast to the leading axes {lead}")
    first = convert.astype(first, dtypes.int64)
    return manipulation.expand_dims(first, axis=(-2, -1)) if first.ndim else first


def _reach(is_causal: bool, window: Window) -> tuple[int | None, int | None]:
    """How far a query sees to the left and to the right; None for any distance."""
    left, right = window if window is not None else (None, None)
    return left, 0 if is_causal else right


def _within(distance: Tensor, is_causal: bool, window: Window) -> Tensor:
    """Where a key at ``distance`` (the query's position less its own) may be attended to, by one rule or both."""
    left, right = _reach(is_causal, window)
    if right is None:
        return distance <= left
    before = distance >= -right
    return before if left is None else ew.logical_and(before, distance <= left)


def _by_place(shape: tuple[int, ...], is_causal: bool, window: Window, first: Any) -> Tensor | None:
    """Where the places of queries, the first of which is ``first``, and keys allow to attend; None: everywhere."""
    if not is_causal and window is None:
        return None
    return _within(_positions(shape[-2], -1) + first - _positions(shape[-1], -2), is_causal, window)


def _everybody_sees(queries: int, keys: int, is_causal: bool, window: Window, first: Any) -> bool:
    """Whether it is known that every query sees a key and every key is seen."""
    left, right = _reach(is_causal, window)
    if (left is None and right is None) or not queries or not keys:
        return True
    if not isinstance(first, int):
        return False
    # A query's view and a key's viewers are intervals that move with it: the outermost are the first to be empty.
    last = first + queries - 1
    query_sees = (left is None or last - left < keys) and (right is None or first + right >= 0)
    key_seen = (right is None or last + right >= keys - 1) and (left is None or first - left <= 0)
    return query_sees and key_seen


def _some(allowed: Tensor, axis: int, shape: tuple[int, ...], groups: int) -> Tensor:
    """Whether any holds of ``allowed`` along ``axis`` (of the queries or the keys), in a shape that broadcasts to
    ``shape``: of k's heads, each serves ``groups`` of the scores'."""
    found = reduction.any(allowed, axis=axis)
    if groups > 1 and found.ndim > 1 and found.shape[-2] > 1:
        *lead, heads, tokens = found.shape
        found = reduction.any(manipulation.reshape(found, (*lead, heads // groups, groups, tokens)), axis=-2)
    extra = found.ndim - len(shape)
    if extra > 0:
        found = reduction.any(found, axis=tuple(range(extra)))
    missing = len(shape) - found.ndim
    axes = tuple([a for a, extent in enumerate(found.shape) if extent > 1 and shape[missing + a] == 1])
    return reduction.any(found, axis=axes, keepdims=True) if axes else found


# -- packed sequences --------------------------------------------------------------------------------------------------


def _tokens(x: Any, name: str, op: str) -> int:
    shape = convert.as_node(x, None, op).shape
    if len(shape) < 2:
        raise ShapeError(f"{op}: {name} of shape (..., heads, tokens, features) expected, got {shape}")
    return int(shape[-2])


def _integers(x: Any, name: str, op: str) -> Tensor:
    found = convert.wrap(convert.as_node(x, None, op))
    if found.dtype.kind not in "iu":
        raise DTypeError(f"{op}: {name} must be integers, got {found.dtype.name}")
    return convert.astype(found, dtypes.int64)


def _ends(x: Any, tokens: int, name: str, op: str) -> Tensor:
    found = _integers(x, name, op)
    if found.ndim != 1 or size_of(found.shape) < 1:
        raise ShapeError(f"{op}: {name} of shape (sequences + 1,) expected, got {found.shape}")
    node = convert.as_node(x, None, op)
    if node.buffer is not None and not is_traced(node):
        known = node.buffer.numpy(node.shape, node.dtype.numpy)
        if known[0] != 0 or known[-1] > tokens or (known[1:] < known[:-1]).any():
            raise ArgumentError(
                f"{op}: {name} must go up from 0 to at most the {tokens} tokens, an end for each sequence; got "
                f"{np.array2string(known, threshold=10)}"
            )
    return found


def _segments(x: Any, tokens: int, name: str, op: str) -> Tensor:
    found = _integers(x, name, op)
    if found.ndim < 1 or found.shape[-1] != tokens:
        raise ShapeError(f"{op}: {name} of shape (..., {tokens}) expected, one number a token, got {found.shape}")
    return found


def _sequence_of(ends: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """For each token its sequence's number, -1 for padding, and how far it is before the sequence's end."""
    place = Tensor(leaf.iota((tokens,), 0, dtypes.int64))
    count = ends.shape[0] - 1
    number = sorting.searchsorted(ends, place, side="right") - 1
    inside = ew.logical_and(number >= 0, number < count)
    number = ew.where(inside, number, -1)
    stop = indexing.take(ends, ew.where(inside, number + 1, 0), axis=0)
    return number, place - stop
