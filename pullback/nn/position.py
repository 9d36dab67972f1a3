"""Positions in attention: rotary embeddings and linear biases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..api import convert, joining, manipulation
from ..api import elementwise as ew
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ops import leaf
from ..shapes import as_int, as_number
from ..tensor import Tensor
from .operands import compute_dtype, float_tensor, narrowed


def rope(
    x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False, dims: int | None = None
) -> Tensor:
    """Rotary position embedding (Su et al. 2021): pairs of features turned by angles that grow with the position.

    Pair i of position p is turned by ``p * base**(-2 i / dims)``, so that products of queries and keys depend on the
    difference of their positions.

    x: (..., tokens, features), floating: queries or keys, heads before tokens.
    positions: numbers that broadcast to (..., tokens), None for 0, 1, 2, ...
    interleaved: whether features 2i and 2i + 1 are a pair, as in the paper, GPT-J and Llama's own code; else features i
        and ``dims / 2 + i`` are, as in GPT-NeoX and Hugging Face's Llama.
    dims: how many features, from the first on, are turned; the rest stay as they are. None: all.

    Angles are computed in float32, or in float64 for a float64 x. Raises ArgumentError for dims that are odd or more
    than there are, ShapeError for positions that do not fit.
    """
    op = "rope"
    x = float_tensor(x, op)
    if x.ndim < 2:
        raise ShapeError(f"{op}: an input of shape (..., tokens, features) expected, got {x.shape}")
    tokens, features = x.shape[-2:]
    turned = features if dims is None else as_int(dims, op, "dims")
    if turned % 2 or not 0 <= turned <= features:
        raise ArgumentError(f"{op}: the number of features to turn must be even and at most {features}, got {turned}")
    if not 0 < as_number(base, op, "base") < math.inf:
        raise ArgumentError(f"{op}: base must be positive and finite, got {base}")
    if not turned:
        return x
    dtype = compute_dtype(x.dtype)
    if positions is None:
        place = Tensor(leaf.iota((tokens,), 0, dtype))
    else:
        place = convert.wrap(convert.as_node(positions, None, op))
        if place.dtype.kind not in "iuf":
            raise DTypeError(f"{op}: positions must be numbers, got {place.dtype.name}")
        missing = x.ndim - 1 - place.ndim
        if missing < 0 or any(a not in (1, b) for a, b in zip(place.shape, x.shape[missing:-1])):
            raise ShapeError(f"{op}: positions of shape {place.shape} do not broadcast to {x.shape[:-1]}")
        place = narrowed(place, dtype)
    half = turned // 2
    speeds = Tensor(leaf.data((base ** (-np.arange(half) / half)).astype(dtype.numpy)))
    angles = manipulation.expand_dims(place, axis=-1) * speeds if place.ndim else place * speeds
    cosine, sine = ew.cos(angles), ew.sin(angles)
    wide = narrowed(x, dtype)
    if interleaved:
        pairs = manipulation.reshape(wide[..., :turned], (*x.shape[:-1], half, 2))
        a, b = pairs[..., 0], pairs[..., 1]
        parts = joining.stack([a * cosine - b * sine, b * cosine + a * sine], axis=-1)
        result = manipulation.reshape(parts, (*x.shape[:-1], turned))
    else:
        a, b = wide[..., :half], wide[..., half:turned]
        result = joining.concat([a * cosine - b * sine, b * cosine + a * sine], axis=-1)
    if turned < features:
        result = joining.concat([result, wide[..., turned:]], axis=-1)
    return narrowed(result, x.dtype)


def alibi(heads: int, queries: int, keys: int | None = None, offset: Any = None, dtype: Any = None) -> Tensor:
    """(heads, queries, keys): attention with linear biases (Press et al. 2022), to be added to scores as their mask.

    A key at distance d from the query gets ``-slope * d``. Of n heads, a power of 2, head h has slope ``2**(-8 (h + 1)
    / n)``; for other numbers those of the power of 2 below come first and then every other one of that above, as in the
    paper's code.

    keys: None is as many as queries. offset: position of the first query among the keys, an int or a 0-d integer; None:
        ``keys - queries``, as in :func:`pullback.nn.scaled_dot_product_attention`.
    dtype: floating; None is the default float dtype.
    """
    op = "alibi"
    heads, queries = as_int(heads, op, "heads"), as_int(queries, op, "queries")
    keys = queries if keys is None else as_int(keys, op, "keys")
    if heads < 1 or queries < 0 or keys < 0:
        raise ArgumentError(
            f"{op}: 1 head or more and no negative numbers of queries and keys expected, got {heads}, {queries}, {keys}"
        )
    found = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if found.kind != "f":
        raise DTypeError(f"{op}: a floating dtype expected, got {found.name}")
    first: Any = keys - queries
    if offset is not None:
        first = convert.wrap(convert.as_node(offset, None, op))
        if first.dtype.kind not in "iu" or first.ndim:
            raise ArgumentError(f"{op}: offset must be one integer, got {first.dtype.name} of shape {first.shape}")
        first = convert.astype(first, dtypes.int64)
    at = Tensor(leaf.iota((queries, keys), 0, dtypes.int64)) + first
    distance = ew.abs(at - Tensor(leaf.iota((queries, keys), 1, dtypes.int64)))
    wide = compute_dtype(found)
    slopes = Tensor(leaf.data(_slopes(heads).astype(wide.numpy).reshape(heads, 1, 1)))
    return narrowed(convert.astype(distance, wide) * -slopes, found)


def _slopes(heads: int) -> Any:
    below = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, below + 1) / below)
    between = 2.0 ** (-8.0 * np.arange(1, 2 * below + 1, 2) / (2 * below))
    return np.concatenate([slopes, between[: heads - below]])
