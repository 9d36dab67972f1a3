"""Running values along one axis: sums, products, extremes, logarithms of sums, and the gated linear recurrence.

``axis`` may be left out where there is only one. ``reverse`` walks the axis from its end; ``exclusive`` gives at each
element the value of those before it on the walk, without itself. A 0-d operand or a wrong axis raises ShapeError.
Each function is one walk over memory, and so is its gradient: elementwise functions before and after it join in.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import leaf, scan
from ..ops import movement as move
from ..shapes import broadcast_shapes, normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, promote
from .reduction import accumulator_dtype

_HALF = (dtypes.float16, dtypes.bfloat16)


def _axis(node: Node, axis: int | None, op: str) -> int:
    rank = len(node.shape)
    if rank == 0:
        raise ShapeError(f"{op}: an array of at least one axis expected, got a 0-d one; reshape it to (1,)")
    if axis is None:
        if rank > 1:
            raise ShapeError(f"{op}: axis must be given for an array of {rank} axes, shape {node.shape}")
        return 0
    return normalize_axis(axis, rank, op)


def _accumulated(
    x: ArrayLike, axis: int | None, dtype: Any, include_initial: bool, exclusive: bool, reverse: bool, op: str,
    function: scan.Scan,
) -> Tensor:
    node = as_node(x, None, op)
    position = _axis(node, axis, op)
    if include_initial and exclusive:
        raise ArgumentError(
            f"{op}: exclusive already starts with the initial value; give only one of exclusive and include_initial"
        )
    target = accumulator_dtype(node.dtype) if dtype is None else dtypes.as_dtype(dtype)
    if target.kind == "b":
        raise DTypeError(f"{op}: running values are numbers, so dtype must not be bool; use pb.cummax for 'any so far'")
    running = function(cast_node(node, target), position, reverse, exclusive)
    if not include_initial:
        return Tensor(running)
    edge = tuple([1 if a == position else extent for a, extent in enumerate(node.shape)])
    initial = leaf.full(edge, 0 if function is scan.scan_sum else 1, target)
    return Tensor(move.concat((running, initial) if reverse else (initial, running), position))


def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Running sum along ``axis``: ``y[t] = x[0] + ... + x[t]``, of ``x``'s shape.

    dtype: of the result; by default signed integers and bools give int64, unsigned integers uint64, floats their own.
    include_initial: one element more, the 0 from which the sum starts, at the front (at the end if ``reverse``).
    exclusive: ``y[t] = x[0] + ... + x[t-1]``. reverse: ``y[t] = x[t] + ... + x[n-1]``.
    float32 is summed in float64, half types in float32. The gradient is the running sum the other way.
    Raises ShapeError for a 0-d ``x``, a wrong axis, or no axis where there are several; ArgumentError if both
    ``include_initial`` and ``exclusive`` are asked for; DTypeError for dtype bool.
    """
    return _accumulated(x, axis, dtype, include_initial, exclusive, reverse, "cumulative_sum", scan.scan_sum)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Running product along ``axis``: ``y[t] = x[0] * ... * x[t]``; arguments and errors as :func:`cumulative_sum`.

    The derivative, ``dy[t] = x[t] dy[t-1] + dx[t] y[t-1]``, divides by nothing: exact where elements are 0.
    """
    return _accumulated(x, axis, dtype, include_initial, exclusive, reverse, "cumulative_prod", scan.scan_prod)


def _flattened(x: ArrayLike, axis: int | None, op: str) -> tuple[Tensor, int]:
    node = as_node(x, None, op)
    if axis is None:
        return Tensor(move.reshape(node, (node.size,))), 0
    return Tensor(node), _axis(node, axis, op)


def cumsum(
    x: ArrayLike, /, axis: int | None = None, dtype: Any = None, *, exclusive: bool = False, reverse: bool = False
) -> Tensor:
    """:func:`cumulative_sum` under NumPy's name: without an axis, of the flattened array."""
    flat, a = _flattened(x, axis, "cumsum")
    return cumulative_sum(flat, axis=a, dtype=dtype, exclusive=exclusive, reverse=reverse)


def cumprod(
    x: ArrayLike, /, axis: int | None = None, dtype: Any = None, *, exclusive: bool = False, reverse: bool = False
) -> Tensor:
    """:func:`cumulative_prod` under NumPy's name: without an axis, of the flattened array."""
    flat, a = _flattened(x, axis, "cumprod")
    return cumulative_prod(flat, axis=a, dtype=dtype, exclusive=exclusive, reverse=reverse)


def _extreme(
    x: ArrayLike, axis: int | None, reverse: bool, return_indices: bool, op: str, function: scan.Scan
) -> Tensor | tuple[Tensor, Tensor]:
    node = as_node(x, None, op)
    position = _axis(node, axis, op)
    running = function(node, position, reverse)
    if not return_indices:
        return Tensor(running)
    line = tuple([extent if a == position else 1 for a, extent in enumerate(node.shape)])
    places = leaf.iota(line, position, dtypes.int64)
    taken = scan.taken_steps(node, running)
    if reverse:  # positions fall along the walk
        latest = scan.scan_min(ops.where(taken, places, node.shape[position]), position, True)
    else:
        latest = scan.scan_max(ops.where(taken, places, -1), position)
    return Tensor(running), Tensor(latest)


def cummax(
    x: ArrayLike, /, axis: int | None = None, *, reverse: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Largest element so far along ``axis``; NaN from the first NaN on.

    return_indices: also the positions (int64) that the elements came from, the last of equal ones, where the gradient
    goes. Errors as :func:`cumulative_sum`.
    """
    return _extreme(x, axis, reverse, return_indices, "cummax", scan.scan_max)


def cummin(
    x: ArrayLike, /, axis: int | None = None, *, reverse: bool = False, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Smallest element so far along ``axis``; NaN from the first NaN on. Otherwise as :func:`cummax`."""
    return _extreme(x, axis, reverse, return_indices, "cummin", scan.scan_min)


def logcumsumexp(x: ArrayLike, /, axis: int | None = None, *, reverse: bool = False) -> Tensor:
    """``log(cumulative_sum(exp(x)))`` without overflow: ``y[t] = m[t] + log(s[t])``, where m is the largest element so
    far and ``s[t] = exp(m[t-1] - m[t]) s[t-1] + exp(x[t] - m[t])`` (M. Milakov and N. Gimelshein, "Online normalizer
    calculation for softmax", 2018).

    After only -inf the value is -inf and the gradient 0; from +inf on it is +inf; from NaN on NaN. Integers give the
    default float dtype; float16 and bfloat16 are computed in float32. Errors as :func:`cumulative_sum`.
    """
    node = as_node(x, None, "logcumsumexp")
    position = _axis(node, axis, "logcumsumexp")
    result = node.dtype if node.dtype.kind == "f" else dtypes.get_default_dtype()
    node = cast_node(node, dtypes.float32 if result in _HALF else result)
    return Tensor(cast_node(_logcumsumexp_node(node, position, reverse), result))


def _logcumsumexp_node(node: Node, axis: int, reverse: bool) -> Node:
    """See :func:`logcumsumexp`; of a floating node."""
    # The value does not depend on what is taken out, so neither does any derivative.
    top = ops.stop_gradient(scan.scan_max(node, axis, reverse))
    before = ops.stop_gradient(scan.scan_max(node, axis, reverse, True))
    finite = ops.isfinite(top)
    safe = ops.where(finite, top, 0)
    carried = ops.logical_and(finite, ops.isfinite(before))
    gate = ops.where(carried, ops.exp(ops.where(carried, ops.subtract(before, safe), 0)), 0)
    terms = ops.where(finite, ops.exp(ops.where(finite, ops.subtract(node, safe), 0)), 0)
    total = scan.gated_scan(gate, terms, axis, reverse)
    return ops.where(finite, ops.add(safe, ops.log(ops.where(finite, total, 1))), top)


def gated_scan(
    a: ArrayLike, b: ArrayLike, /, axis: int | None = None, *, reverse: bool = False, initial: ArrayLike | None = None
) -> Tensor:
    """The gated linear recurrence ``h[t] = a[t] * h[t-1] + b[t]`` along ``axis``: one kernel, and one for its gradient.

    a, b: gates and terms, floating (integers become the default float dtype); they broadcast to each other.
    initial: h before the first step, of a shape that broadcasts to the operands' without ``axis``; None: 0.
    reverse: from the end, ``h[t] = a[t] * h[t+1] + b[t]``.
    float32 is carried in float64, half types in float32. With g the cotangents of b, ``g[t] = dh[t] + a[t+1] g[t+1]``,
    those of a are ``g[t] h[t-1]``.
    Raises ShapeError where shapes do not broadcast, for 0-d operands, for a wrong axis, or for no axis where there are
    several.
    """
    gate, term = promote(a, b, op="gated_scan")
    dtype = gate.dtype if gate.dtype.kind == "f" else dtypes.get_default_dtype()
    gate, term = (cast_node(x, dtype) for x in (gate, term))
    gate, term = _broadcast(gate, term)
    position = _axis(term, axis, "gated_scan")
    if initial is not None and term.shape[position]:
        gate, term = _started(gate, term, as_node(initial, dtype, "gated_scan"), position, reverse)
    return Tensor(scan.gated_scan(gate, term, position, reverse))


def _broadcast(gate: Node, term: Node) -> tuple[Node, Node]:
    shape = broadcast_shapes(gate.shape, term.shape, op="gated_scan")
    return move.broadcast_to(gate, shape), move.broadcast_to(term, shape)


def _started(gate: Node, term: Node, initial: Node, axis: int, reverse: bool) -> tuple[Node, Node]:
    """Gates and terms of the same recurrence from 0: the first step's gate is applied in its term."""
    rest = (*term.shape[:axis], *term.shape[axis + 1 :])
    if broadcast_shapes(initial.shape, rest, op="gated_scan: initial") != rest:
        raise ShapeError(
            f"gated_scan: initial of shape {initial.shape} does not broadcast to {rest}, the operands' shape "
            f"{term.shape} without axis {axis}"
        )
    start = move.expand_dims(move.broadcast_to(cast_node(initial, term.dtype), rest), (axis,))
    first = scan.first_step(term.shape, axis, reverse)
    moved = ops.add(ops.multiply(gate, start), term)
    return ops.where(first, 0, gate), ops.where(first, moved, term)
