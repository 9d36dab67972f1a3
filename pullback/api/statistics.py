"""Order statistics and moments: median, quantile, percentile, ptp, average, cov, corrcoef.

Medians and quantiles sort, so their gradient goes to the elements taken, with the weights that they are taken with. A
row with a NaN has the value NaN. ``axis`` is an int, a tuple of ints, or None for all axes. float16 and bfloat16 are
computed in float32.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..interop import has_plain_value
from ..ops import elementwise as ops
from ..ops import indexing as index_ops
from ..ops import leaf
from ..ops import movement as move
from ..ops import reduction as fold
from ..shapes import normalize_axes, reduced_shape, size_of
from ..tensor import Tensor
from . import contraction, elementwise
from .convert import ArrayLike, as_node, cast_node, floating, promote
from .diagonal import diagonal_node
from .reduction import Axis, extremum_node, mean_node, operand, statistic_operand
from .sorting import sort

_HALF = (dtypes.float16, dtypes.bfloat16)

Fractions = np.ndarray[Any, Any] | Node

# -- quantiles ---------------------------------------------------------------------------------------------------------

# The plotting positions (alpha, beta) of Hyndman and Fan, "Sample quantiles in statistical packages", The American
# Statistician 50 (1996), for a position of n q + alpha + q (1 - alpha - beta), counted from 1.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_AVERAGES = ("midpoint", "averaged_inverted_cdf")
_DISCRETE = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
METHODS = (*_CONTINUOUS, *_AVERAGES, *_DISCRETE)


def _position(q: Any, n: Any, method: str, xp: Any) -> tuple[Any, Any]:
    """The place of the ``q``-quantile among ``n`` sorted elements, counted from 0 and not yet limited to them: that of
    the element below, and the weight of the next one (None: 0). ``xp`` has floor, ceil, round and where for ``q``."""
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        place = (n - 1) * q if method == "linear" else n * q + (alpha + q * (1 - alpha - beta)) - 1
        below = xp.floor(place)
        return below, place - below
    if method in ("lower", "higher", "nearest"):
        rounded = {"lower": xp.floor, "higher": xp.ceil, "nearest": xp.round}[method]
        return rounded((n - 1) * q), None
    if method == "midpoint":
        place = (n - 1) * q
        below = xp.floor(place)
        return below, xp.where(place == below, 0.0, 0.5)
    place = n * q - (1.5 if method == "closest_observation" else 1)
    below = xp.floor(place)
    if method == "averaged_inverted_cdf":
        return below, xp.where(place == below, 0.5, 1.0)
    exact = place == below
    if method == "closest_observation":  # halfway, the one that is even, counted from 1
        exact = exact & (below - 2 * xp.floor(below / 2) == 1)
    return xp.where(exact, below, below + 1), None


def _checked_q(q: ArrayLike, percent: bool, op: str) -> Fractions:
    """``q`` as fractions: a float64 node for a tensor, whose value may change without another program, else an array.
    ArgumentError outside [0, 1], where the values are plain to see."""
    scale = 100.0 if percent else 1.0
    if isinstance(q, Tensor) and not has_plain_value(q.node):
        return _as_fractions(q.node, scale)
    try:
        values = np.asarray(np.asarray(q, np.float64) / scale)
    except (TypeError, ValueError):
        raise ArgumentError(f"{op}: q must be a number or an array of numbers, got {q!r}") from None
    if not np.all((values >= 0) & (values <= 1)):
        raise ArgumentError(f"{op}: q must lie in [0, {scale:g}], got {np.asarray(q).tolist()}")
    return _as_fractions(q.node, scale) if isinstance(q, Tensor) else values


def _as_fractions(q: Node, scale: float) -> Node:
    fractions = cast_node(floating(q), dtypes.float64)
    return fractions if scale == 1 else ops.divide(fractions, scale)


def _sorted_rows(node: Node, axes: tuple[int, ...]) -> Node:
    """``axes`` made one, last, and sorted; NaN comes last."""
    kept = tuple([a for a in range(len(node.shape)) if a not in axes])
    rows = move.permute(node, (*kept, *axes))
    rows = move.reshape(rows, (*[node.shape[a] for a in kept], size_of([node.shape[a] for a in axes])))
    return sort(Tensor(rows), axis=-1).node


def _sum_of_shares(low: Node, high: Node, weight: Node) -> Node:
    """``(1 - weight) low + weight high``, in which a weight of 0 beats an infinity; exact for 0, 1/2 and 1."""
    return ops.add(ops.strong_product(ops.subtract(1, weight), low), ops.strong_product(weight, high))


def _interpolated(low: Node, high: Node, weight: Node) -> Node:
    """``low`` and ``high`` in the proportion 1 - weight to weight: from the nearer one, which is exact at both ends and
    between equals; as a sum of shares where that would meet infinities."""
    distance = ops.subtract(high, low)
    finite = ops.isfinite(distance)
    distance = ops.where(finite, distance, 0)
    from_low = ops.add(low, ops.multiply(weight, distance))
    from_high = ops.subtract(high, ops.multiply(ops.subtract(1, weight), distance))
    nearer = ops.where(ops.less(weight, 0.5), from_low, from_high)
    return ops.where(finite, nearer, _sum_of_shares(low, high, weight))


def quantile_of(
    x: ArrayLike, q: ArrayLike, axis: Axis, keepdims: bool, method: str, op: str, percent: bool, skip_nan: bool
) -> Tensor:
    """What :func:`quantile`, :func:`percentile` and their variants that pass NaN over do, in the name of ``op``."""
    if method not in METHODS:
        raise ArgumentError(f"{op}: method {method!r} is not one of {', '.join(METHODS)}")
    node, axes = operand(x, axis, op)
    if node.dtype.kind == "b" or (method not in _DISCRETE and node.dtype.kind != "f"):
        node = floating(node)
    fractions = _checked_q(q, percent, op)
    found = _quantiles(_sorted_rows(node, axes), fractions, method, skip_nan, op)
    if keepdims:
        found = move.reshape(found, (*fractions.shape, *reduced_shape(node.shape, axes, True)))
    return Tensor(found)


def _quantiles(rows: Node, q: Fractions, method: str, skip_nan: bool, op: str) -> Node:
    if skip_nan and rows.dtype.kind == "f" and rows.shape[-1]:
        return _of_present(rows, q, method)
    return _of_rows(rows, q, method, op)


def _of_rows(rows: Node, q: Fractions, method: str, op: str) -> Node:
    """The quantiles ``q`` of sorted rows, of shape q + rows; NaN for a row with a NaN."""
    dtype, n = rows.dtype, rows.shape[-1]
    lead = rows.shape[:-1]
    if n == 0:
        if dtype.kind != "f":
            raise ShapeError(f"{op}: there are no elements to choose from, and {dtype.name} has no NaN")
        return leaf.full((*q.shape, *lead), float("nan"), dtype)
    axis = len(lead)
    if isinstance(q, Node):
        below, weight = _position(Tensor(q), n, method, elementwise)
        result = _at_places(lambda place: index_ops.gather(rows, [_limited(place, n - 1)], (axis,)), below,
                            None if weight is None else _aligned(weight.node, axis), method, dtype)
        if dtype.kind == "f":
            result = ops.where(_aligned(_is_fraction(q), axis), result, float("nan"))
    else:
        below, weight = _position(q, n, method, np)
        mixed = weight is not None and bool(np.any(weight != 0))
        result = _at_places(lambda place: _columns(rows, np.clip(place, 0, n - 1)), below,
                            _aligned(leaf.data(np.asarray(weight), False), axis) if mixed else None, method, dtype)
    if dtype.kind != "f":
        return result
    last = _columns(rows, np.asarray(n - 1))  # a NaN is the last of its row
    return ops.where(ops.isnan(last), last, result)


def _of_present(rows: Node, q: Fractions, method: str) -> Node:
    """As :func:`_of_rows`, of the elements of each row that are not NaN; there is at least one element."""
    n, axis = rows.shape[-1], len(rows.shape) - 1
    missing = fold.reduce_sum(ops.cast(ops.isnan(rows), dtypes.int64), (axis,))
    count = Tensor(ops.cast(ops.subtract(n, missing), dtypes.float64))
    fractions = _aligned(q if isinstance(q, Node) else leaf.data(q, False), axis)
    below, weight = _position(Tensor(fractions), count, method, elementwise)
    shape = (*q.shape, *rows.shape[:-1])
    lines = [leaf.iota(shape, len(q.shape) + a, dtypes.int64) for a in range(axis)]
    greatest = elementwise.maximum(count - 1, 0)

    def at(place: Tensor) -> Node:
        position = move.broadcast_to(_limited(place, greatest), shape)
        return index_ops.gather(rows, [*lines, position], tuple(range(axis + 1)))

    result = _at_places(at, below, None if weight is None else weight.node, method, rows.dtype)
    result = ops.where(ops.equal(missing, n), float("nan"), result)
    return ops.where(_is_fraction(fractions), result, float("nan")) if isinstance(q, Node) else result


def _at_places(at: Callable[[Any], Node], below: Any, weight: Node | None, method: str, dtype: DType) -> Node:
    """What ``at`` finds at the places ``below``, or ``weight`` of the way from there to the next ones."""
    found = at(below)
    if weight is None:
        return found
    wide = dtypes.float32 if dtype in _HALF else dtype
    mix = _sum_of_shares if method in _AVERAGES else _interpolated
    return cast_node(mix(cast_node(found, wide), cast_node(at(below + 1), wide), cast_node(weight, wide)), dtype)


def _columns(rows: Node, places: np.ndarray[Any, Any]) -> Node:
    """Elements of every row (last axis) at ``places``, whose axes come first."""
    axis = len(rows.shape) - 1
    if places.ndim:
        return index_ops.gather(rows, [leaf.data(places.astype(np.int64), False)], (axis,))
    column = move.slice_axis(rows, axis, int(places), int(places) + 1)
    return move.reshape(column, rows.shape[:-1])


def _limited(place: Tensor, greatest: Any) -> Node:
    return ops.cast(elementwise.clip(place, 0, greatest).node, dtypes.int64)


def _is_fraction(q: Node) -> Node:
    return ops.logical_and(ops.greater_equal(q, 0), ops.less_equal(q, 1))


def _aligned(node: Node, rank: int) -> Node:
    """``node`` with ``rank`` axes of extent 1 after its own."""
    return move.reshape(node, (*node.shape, *(1,) * rank))


def quantile(
    x: ArrayLike, q: ArrayLike, /, axis: Axis = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """The value that a fraction ``q`` of the elements does not exceed; the axes of ``q`` come first in the result.

    q: numbers in [0, 1], ArgumentError elsewhere; or a tensor, by which the result has a derivative (that towards
    larger q, where it has two). Where its value is not known yet, floats are NaN outside [0, 1] and integers limited.
    method: of NumPy's, "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased".

    Integers give the default float dtype, but keep theirs with the methods that choose an element. No elements: NaN.
    """
    return quantile_of(x, q, axis, keepdims, method, "quantile", False, False)


def percentile(
    x: ArrayLike, q: ArrayLike, /, axis: Axis = None, keepdims: bool = False, method: str = "linear"
) -> Tensor:
    """As :func:`quantile`, with ``q`` in percent, from 0 to 100."""
    return quantile_of(x, q, axis, keepdims, method, "percentile", True, False)


def median(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The middle element, or the mean of the two in the middle, half of the gradient to each. NaN over no elements.

    PyTorch's ``median`` takes the lower of the two: ``quantile(x, 0.5, method="lower")``.
    """
    return median_of(x, axis, keepdims, "median", False)


def median_of(x: ArrayLike, axis: Axis, keepdims: bool, op: str, skip_nan: bool) -> Tensor:
    """What :func:`median` and :func:`nanmedian` do, in the name of ``op``."""
    node, axes = operand(x, axis, op)
    rows = _sorted_rows(floating(node), axes)
    found = _quantiles(rows, np.asarray(0.5), "midpoint", skip_nan, op)
    return Tensor(move.reshape(found, reduced_shape(node.shape, axes, keepdims)))


# -- ranges and averages -----------------------------------------------------------------------------------------------


def ptp(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest less smallest element; gradients and errors as of :func:`max`. DTypeError for bools."""
    node, axes = operand(x, axis, "ptp")
    if node.dtype.kind == "b":
        raise DTypeError("ptp: a numeric dtype expected, got bool; cast with x.astype(pb.int64)")
    highest, lowest = [extremum_node(node, axes, keepdims, op) for op in ("max", "min")]
    return Tensor(ops.subtract(highest, lowest))


def average(
    x: ArrayLike, /, axis: Axis = None, weights: ArrayLike | None = None, returned: bool = False, keepdims: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """``sum(x * weights) / sum(weights)``; without weights the mean.

    weights: of the shape of x, or of x's extents along ``axis``. Weights that sum to 0 give NaN or infinity.
    returned: also return the sum of the weights. Raises ShapeError for weights of another shape.
    """
    if weights is None:
        node, axes, result = statistic_operand(x, axis, None, "average")
        mean = Tensor(cast_node(mean_node(node, axes, keepdims), result))
        if not returned:
            return mean
        return mean, Tensor(leaf.full(mean.shape, size_of(node.shape[a] for a in axes), mean.dtype))
    values, scale = promote(x, weights, op="average")
    ordered = normalize_axes(axis, len(values.shape), "average", ordered=True)
    axes = tuple(sorted(ordered))
    if scale.shape != values.shape:
        along = tuple([values.shape[a] for a in ordered])
        if axis is None or scale.shape != along:
            wanted = f"{values.shape}" if axis is None else f"{values.shape} or {along}, its extents along {ordered},"
            raise ShapeError(f"average: weights of shape {wanted} expected, got {scale.shape}")
        scale = move.permute(scale, tuple([ordered.index(a) for a in axes]))
        lined_up = tuple([n if a in axes else 1 for a, n in enumerate(values.shape)])
        scale = move.broadcast_to(move.reshape(scale, lined_up), values.shape)
    values, scale = floating(values), floating(scale)
    result, wide = values.dtype, dtypes.float32 if values.dtype in _HALF else values.dtype
    values, scale = cast_node(values, wide), cast_node(scale, wide)
    total = fold.reduce_sum(scale, axes, keepdims)
    mean = Tensor(cast_node(ops.divide(fold.reduce_sum(ops.multiply(values, scale), axes, keepdims), total), result))
    return (mean, Tensor(cast_node(total, result))) if returned else mean


# -- covariance --------------------------------------------------------------------------------------------------------


def cov(
    x: ArrayLike,
    /,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
) -> Tensor:
    """Covariance matrix of variables, one a row of ``x`` (one a column if not ``rowvar``), its columns observations.

    y: more variables of as many observations. ddof: what is taken from the number of observations in the divisor; None:
    1, or 0 with ``bias``. fweights: how often each observation is repeated. aweights: its relative importance, with
    which the divisor is ``sum(w) - ddof * sum(w * aweights) / sum(w)``, w the product of both (NumPy's rule).
    A vector is one variable and gives a 0-d result. Raises ShapeError for more than two axes or unequal observations.
    """
    rows, result = _variables(x, y, rowvar, "cov")
    return Tensor(cast_node(_covariance(rows, bias, ddof, fweights, aweights, "cov"), result))


def corrcoef(x: ArrayLike, /, y: ArrayLike | None = None, rowvar: bool = True) -> Tensor:
    """Correlation coefficients of variables: their covariances divided by both standard deviations, within [-1, 1].

    Arguments as for :func:`cov`. A variable that does not vary has NaN.
    """
    rows, result = _variables(x, y, rowvar, "corrcoef")
    matrix = _covariance(_of_size_one(rows), False, None, None, None, "corrcoef")
    if not matrix.shape:
        return Tensor(cast_node(ops.divide(matrix, matrix), result))
    deviations = ops.sqrt(diagonal_node(matrix))
    scaled = ops.divide(matrix, move.expand_dims(deviations, (1,)))
    scaled = ops.divide(scaled, move.expand_dims(deviations, (0,)))
    return Tensor(cast_node(ops.clip(scaled, -1, 1), result))


def _of_size_one(rows: Node) -> Node:
    """Rows less their means, the largest element of each 1 in size, lest squares overflow or vanish.

    For what no scale of a row changes: the scale is then a constant to every derivative.
    """
    last = (len(rows.shape) - 1,)
    if not rows.shape[-1]:
        return rows
    centred = ops.subtract(rows, mean_node(rows, last, True))
    size = ops.stop_gradient(fold.reduce_max(ops.abs(centred), last, True))
    usable = ops.logical_and(ops.greater(size, 0), ops.isfinite(size))
    return ops.divide(centred, ops.where(usable, size, 1))


def _variables(x: ArrayLike, y: ArrayLike | None, rowvar: bool, op: str) -> tuple[Node, DType]:
    """Variables as rows, in the dtype to compute in (one axis: a single variable), and the dtype of the result."""
    nodes = [floating(n) for n in promote(*([x] if y is None else [x, y]), op=op)]
    result = nodes[0].dtype
    for position, node in enumerate(nodes):
        if len(node.shape) > 2:
            raise ShapeError(f"{op}: at most two axes expected, got shape {node.shape}")
        if not node.shape:
            node = move.reshape(node, (1,))
        if len(node.shape) == 2 and not rowvar:
            node = move.permute(node, (1, 0))
        nodes[position] = cast_node(node, dtypes.float32 if result in _HALF else result)
    if len(nodes) == 1:
        return nodes[0], result
    lines = [n if len(n.shape) == 2 else move.expand_dims(n, (0,)) for n in nodes]
    if lines[0].shape[1] != lines[1].shape[1]:
        raise ShapeError(f"{op}: {lines[0].shape[1]} observations of x against {lines[1].shape[1]} of y")
    return move.concat(lines, 0), result


def _covariance(
    rows: Node, bias: bool, ddof: int | None, fweights: ArrayLike | None, aweights: ArrayLike | None, op: str
) -> Node:
    count = rows.shape[-1]
    fewer = (0 if bias else 1) if ddof is None else ddof
    last = (len(rows.shape) - 1,)
    weights: list[Node] = []
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        node = as_node(given, None, op)
        if node.shape != (count,):
            raise ShapeError(f"{op}: {name} of shape ({count},) expected, one for each observation, got {node.shape}")
        if name == "fweights" and node.dtype.kind not in "iu":
            raise DTypeError(f"{op}: fweights count observations, so they must be integers, got {node.dtype.name}")
        weights.append(cast_node(node, rows.dtype))
    if not weights:
        centred = ops.subtract(rows, mean_node(rows, last, True))
        factor: Any = builtins.max(count - fewer, 0)
        weighted = centred
    else:
        w = weights[0] if len(weights) == 1 else ops.multiply(*weights)
        total = fold.reduce_sum(w, (0,))
        mean = ops.divide(fold.reduce_sum(ops.multiply(rows, w), last, True), total)
        centred = ops.subtract(rows, mean)
        weighted = ops.multiply(centred, w)
        taken: Any = float(fewer)
        if aweights is not None and fewer:
            taken = ops.divide(ops.multiply(fold.reduce_sum(ops.multiply(w, weights[-1]), (0,)), float(fewer)), total)
        factor = ops.maximum(ops.subtract(total, taken), 0)
    if len(rows.shape) == 1:
        product = fold.reduce_sum(ops.multiply(centred, weighted), (0,))
    else:
        product = contraction.matmul_node(weighted, move.permute(centred, (1, 0)))
    return ops.divide(product, factor)
