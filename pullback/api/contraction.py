"""Products that sum: matmul, linear, dot, inner, tensordot, vecdot; and outer and kron, which only multiply. Those that
sum become dot_general; einsum has its module.

Operands are promoted first. Shapes that do not fit raise ShapeError naming both. Where there is a ``preferred_dtype``,
products are made and summed in it, and it is the result's; DTypeError unless it holds the operands' dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..graph.node import Node
from ..ops import contraction as ops
from ..ops import elementwise
from ..ops import movement as move
from ..ops import reduction as fold
from ..ops.contraction import Precision
from ..runtime.evaluate import get_matmul_precision
from ..shapes import Shape, as_int, broadcast_shapes, normalize_axes, normalize_axis
from ..tensor import Tensor
from .convert import ArrayLike, cast_node, promote, promote_to
from .einsum import einsum
from .elementwise import add, multiply

_HALF = (dtypes.float16, dtypes.bfloat16)


def matmul(x1: ArrayLike, x2: ArrayLike, /, *, preferred_dtype: Any = None) -> Tensor:
    """Matrix product of the last two axes; other axes broadcast. A vector counts as a row on the left, as a column on
    the right, and its axis is not in the result.

    x1: ``(..., m, k)`` or ``(k,)``; x2: ``(..., k, n)`` or ``(k,)``. Raises ShapeError for 0-d operands, different k,
    or other axes that do not broadcast.
    preferred_dtype: of the sums and the result: int32 for int8, float32 for bfloat16, float64 for float32. Without it
        the result has the operands' dtype, in which integers wrap; float16 and bfloat16 are summed in float32.
        DTypeError for one that does not hold the operands.

    Terms are summed in blocks of up to 384 by fused multiply-adds, then the blocks: an error is at most about ``min(k,
    384 + k / 384)`` roundings (``2**-24`` each for float32) of the sum of the terms' magnitudes, in practice the square
    root of so many. The order of the sums does not depend on the number of threads.
    """
    a, b = promote(x1, x2, op="matmul")
    if preferred_dtype is not None:
        a, b = promote_to(preferred_dtype, a, b, op="matmul")
    return Tensor(matmul_node(a, b, get_matmul_precision()))


def matmul_node(a: Node, b: Node, precision: Precision = "highest") -> Node:
    """See :func:`matmul`; the nodes have one dtype."""
    rank_a, rank_b = len(a.shape), len(b.shape)
    if rank_a == 0 or rank_b == 0:
        raise ShapeError(f"matmul: operands need at least one axis, got shapes {a.shape} and {b.shape}; use * to scale")
    axis_b = 0 if rank_b == 1 else rank_b - 2
    if a.shape[-1] != b.shape[axis_b]:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {b.shape} do not fit: the last axis of the first has {a.shape[-1]} "
            f"elements, axis {axis_b} of the second {b.shape[axis_b]}"
        )
    if rank_b <= 2:
        return ops.dot_general(a, b, ((rank_a - 1,), (axis_b,)), precision=precision)
    if rank_a == 1:
        # (k) with (..., k, n): b's free axes are already (..., n).
        return ops.dot_general(a, b, ((0,), (axis_b,)), precision=precision)
    lead_a, lead_b = a.shape[:-2], b.shape[:-2]
    try:
        lead = broadcast_shapes(lead_a, lead_b, op="matmul")
    except ShapeError:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {b.shape} do not fit: leading axes {lead_a} and {lead_b} do not broadcast"
        ) from None
    return _batched(a, b, lead, precision)


def _batched(a: Node, b: Node, lead: tuple[int, ...], precision: Precision) -> Node:
    """Leading axes that both have are batch axes; one that an operand lacks (or has with extent 1) is a free axis of
    the other, so that nothing is repeated."""
    rank = len(lead)
    a_lead = (1,) * (rank - len(a.shape) + 2) + a.shape[:-2]
    b_lead = (1,) * (rank - len(b.shape) + 2) + b.shape[:-2]
    both = [d for d in range(rank) if a_lead[d] == b_lead[d]]
    only_a = [d for d in range(rank) if d not in both and b_lead[d] == 1]
    only_b = [d for d in range(rank) if d not in both and a_lead[d] == 1]
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    left = _reshape(a, tuple([a_lead[d] for d in (sorted(both + only_a))]) + (m, k))
    right = _reshape(b, tuple([b_lead[d] for d in (sorted(both + only_b))]) + (k, n))
    axes_a, axes_b = sorted(both + only_a), sorted(both + only_b)
    batch_a = tuple([axes_a.index(d) for d in both])
    batch_b = tuple([axes_b.index(d) for d in both])
    contract = (len(axes_a) + 1,), (len(axes_b),)
    product = ops.dot_general(left, right, contract, (batch_a, batch_b), precision)
    # Now: both, only_a, m, only_b, n. Wanted: the leading axes in order, m, n.
    current = [*both, *only_a, "m", *only_b, "n"]
    order = tuple([current.index(d) for d in [*range(rank), "m", "n"]])
    return product if order == tuple(range(rank + 2)) else move.permute(product, order)


def _reshape(node: Node, shape: tuple[int, ...]) -> Node:
    return node if node.shape == shape else move.reshape(node, shape)


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Matrices times vectors: ``(..., m, n)`` and ``(..., n)`` give ``(..., m)``; leading axes broadcast."""
    a, b = promote(x1, x2, op="matvec")
    _require_rank(a, 2, "matvec", "the matrix")
    _require_rank(b, 1, "matvec", "the vector")
    product = _product(a, move.reshape(b, (*b.shape, 1)), "matvec", a.shape, b.shape)
    return Tensor(move.reshape(product, product.shape[:-1]))


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Vectors times matrices: ``(..., n)`` and ``(..., n, m)`` give ``(..., m)``; leading axes broadcast."""
    a, b = promote(x1, x2, op="vecmat")
    _require_rank(a, 1, "vecmat", "the vector")
    _require_rank(b, 2, "vecmat", "the matrix")
    product = _product(move.reshape(a, (*a.shape[:-1], 1, a.shape[-1])), b, "vecmat", a.shape, b.shape)
    return Tensor(move.reshape(product, (*product.shape[:-2], product.shape[-1])))


def _require_rank(node: Node, rank: int, op: str, what: str) -> None:
    if len(node.shape) < rank:
        raise ShapeError(f"{op}: {what} needs at least {rank} {'axes' if rank > 1 else 'axis'}, got shape {node.shape}")


def _product(a: Node, b: Node, op: str, shape_a: Shape, shape_b: Shape) -> Node:
    """:func:`matmul_node`, its errors in terms of what the caller was given."""
    try:
        return matmul_node(a, b, get_matmul_precision())
    except ShapeError:
        raise ShapeError(f"{op}: shapes {shape_a} and {shape_b} do not fit") from None


def linear(x: ArrayLike, /, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """``x @ weight.T + bias``, the affine map of PyTorch's ``linear``.

    x: ``(..., n)``; weight: ``(m, n)``, or ``(n,)`` for a single output without an axis; bias: ``(m,)`` or 0-d.
    The result is ``(..., m)``. Raises ShapeError naming the shapes that do not fit.
    """
    operands = promote(x, weight, *(() if bias is None else (bias,)), op="linear")
    a, w = operands[:2]
    _require_rank(a, 1, "linear", "x")
    if len(w.shape) not in (1, 2) or w.shape[-1] != a.shape[-1]:
        raise ShapeError(
            f"linear: a weight of shape (outputs, {a.shape[-1]}) expected for x of shape {a.shape}, got {w.shape}"
        )
    contract = (len(a.shape) - 1,), (len(w.shape) - 1,)
    product = ops.dot_general(a, w, contract, precision=get_matmul_precision())
    if bias is None:
        return Tensor(product)
    added = operands[2]
    if added.shape not in ((), w.shape[:-1]):
        raise ShapeError(f"linear: a bias of shape {w.shape[:-1]} expected for weight {w.shape}, got {added.shape}")
    if product.dtype.kind == "b":
        return Tensor(elementwise.logical_or(product, added))
    return Tensor(elementwise.add(product, added))


def bilinear(x1: ArrayLike, x2: ArrayLike, /, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """``out[..., k] = sum_ij x1[..., i] weight[k, i, j] x2[..., j] + bias[k]`` (PyTorch's ``bilinear``).

    x1: ``(..., n1)``; x2: ``(..., n2)``, leading axes broadcast; weight: ``(m, n1, n2)``; bias: ``(m,)``.
    """
    operands = promote(x1, x2, weight, *(() if bias is None else (bias,)), op="bilinear")
    a, b, w = operands[:3]
    _require_rank(a, 1, "bilinear", "x1")
    _require_rank(b, 1, "bilinear", "x2")
    if len(w.shape) != 3 or w.shape[1:] != (a.shape[-1], b.shape[-1]):
        raise ShapeError(
            f"bilinear: a weight of shape (outputs, {a.shape[-1]}, {b.shape[-1]}) expected for operands of shapes "
            f"{a.shape} and {b.shape}, got {w.shape}"
        )
    product = einsum("...i,kij,...j->...k", Tensor(a), Tensor(w), Tensor(b))
    if bias is None:
        return product
    added = operands[3]
    if added.shape != w.shape[:1]:
        raise ShapeError(f"bilinear: a bias of shape {w.shape[:1]} expected for weight {w.shape}, got {added.shape}")
    return add(product, Tensor(added))


def dot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """NumPy's ``dot``: scales by a 0-d operand, else sums over the last axis of x1 and the last but one of x2 (its only
    one, if it is a vector), without broadcasting the others."""
    a, b = promote(x1, x2, op="dot")
    rank_a, rank_b = len(a.shape), len(b.shape)
    if rank_a == 0 or rank_b == 0:
        return multiply(Tensor(a), Tensor(b))
    axis_b = max(rank_b - 2, 0)
    return Tensor(_contract(a, b, (rank_a - 1,), (axis_b,), "dot"))


def inner(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Sum over the last axis of both, for all pairs of the other axes; scales by a 0-d operand."""
    a, b = promote(x1, x2, op="inner")
    if not a.shape or not b.shape:
        return multiply(Tensor(a), Tensor(b))
    return Tensor(_contract(a, b, (len(a.shape) - 1,), (len(b.shape) - 1,), "inner"))


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Products of all pairs of elements, of shape ``(x1.size, x2.size)``."""
    a, b = promote(x1, x2, op="outer")
    return multiply(Tensor(move.reshape(a, (a.size, 1))), Tensor(move.reshape(b, (1, b.size))))


def kron(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Kronecker product: every element of ``x1`` times all of ``x2``, laid out as blocks. The operand of fewer axes
    gets leading ones; extents multiply."""
    a, b = promote(x1, x2, op="kron")
    rank = max(len(a.shape), len(b.shape))
    shape_a = (1,) * (rank - len(a.shape)) + a.shape
    shape_b = (1,) * (rank - len(b.shape)) + b.shape
    left = move.reshape(a, tuple([e for extent in shape_a for e in (extent, 1)]))
    right = move.reshape(b, tuple([e for extent in shape_b for e in (1, extent)]))
    product = multiply(Tensor(left), Tensor(right)).node
    return Tensor(move.reshape(product, tuple([m * n for m, n in zip(shape_a, shape_b, strict=True)])))


def vdot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Sum of products of all elements of both, flattened; ShapeError for different sizes."""
    a, b = promote(x1, x2, op="vdot")
    if a.size != b.size:
        raise ShapeError(f"vdot: {a.size} elements of shape {a.shape} against {b.size} of shape {b.shape}")
    return Tensor(ops.dot_general(move.reshape(a, (a.size,)), move.reshape(b, (b.size,)), ((0,), (0,))))


def _contract(a: Node, b: Node, axes_a: tuple[int, ...], axes_b: tuple[int, ...], op: str) -> Node:
    for i, j in zip(axes_a, axes_b, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"{op}: shapes {a.shape} and {b.shape} do not fit: axis {i} of the first has {a.shape[i]} elements, "
                f"axis {j} of the second {b.shape[j]}"
            )
    return ops.dot_general(a, b, (axes_a, axes_b), precision=get_matmul_precision())


def dot_general(
    x1: ArrayLike, x2: ArrayLike, /, contract: Any, batch: Any = ((), ()), *, preferred_dtype: Any = None
) -> Tensor:
    """The product that all others are made of, with axes named as in XLA's DotGeneral.

    contract: a pair of sequences of axes, of x1 and x2, over whose pairs products are summed. batch: likewise, axes
        that go in step. Result: the batch axes, then the other axes of x1, then those of x2.
    preferred_dtype: see :func:`matmul`.

    Raises ShapeError for axes that are not there, occur twice or do not pair up.
    """
    a, b = promote(x1, x2, op="dot_general")
    if preferred_dtype is not None:
        a, b = promote_to(preferred_dtype, a, b, op="dot_general")
    pairs = []
    for name, axes in (("contract", contract), ("batch", batch)):
        if not isinstance(axes, Sequence) or len(axes) != 2:
            raise ShapeError(f"dot_general: {name} must be a pair of sequences of axes, got {axes!r}")
        of_a = normalize_axes(axes[0], len(a.shape), "dot_general", ordered=True)
        pairs.append((of_a, normalize_axes(axes[1], len(b.shape), "dot_general", ordered=True)))
    return Tensor(ops.dot_general(a, b, pairs[0], pairs[1], get_matmul_precision()))


def tensordot(
    x1: ArrayLike, x2: ArrayLike, /, axes: int | Sequence[Any] = 2, *, preferred_dtype: Any = None
) -> Tensor:
    """Sum over pairs of axes, the others of x1 and then of x2 in the result.

    axes: n sums over the last n of x1 and the first n of x2; a pair of sequences (or of ints) names the axes of each.
    preferred_dtype: see :func:`matmul`.
    Raises ShapeError for axes that are not there or do not pair up.
    """
    a, b = promote(x1, x2, op="tensordot")
    if preferred_dtype is not None:
        a, b = promote_to(preferred_dtype, a, b, op="tensordot")
    if not isinstance(axes, Sequence):
        axes = as_int(axes, "tensordot", "axes")
        if axes < 0 or axes > min(len(a.shape), len(b.shape)):
            raise ShapeError(f"tensordot: {axes} axes to sum over, of shapes {a.shape} and {b.shape}")
        of_a = tuple(range(len(a.shape) - axes, len(a.shape)))
        of_b = tuple(range(axes))
    else:
        if len(axes) != 2:
            raise ShapeError(f"tensordot: axes must be an int or a pair of sequences, got {axes!r}")
        of_a = normalize_axes(axes[0], len(a.shape), "tensordot", ordered=True)
        of_b = normalize_axes(axes[1], len(b.shape), "tensordot", ordered=True)
        if len(of_a) != len(of_b):
            raise ShapeError(f"tensordot: {len(of_a)} axes of the first against {len(of_b)} of the second")
    return Tensor(_contract(a, b, of_a, of_b, "tensordot"))


def vecdot(x1: ArrayLike, x2: ArrayLike, /, axis: int = -1) -> Tensor:
    """Sum of products along one axis of both; the other axes broadcast."""
    a, b = promote(x1, x2, op="vecdot")
    i, j = normalize_axis(axis, len(a.shape), "vecdot"), normalize_axis(axis, len(b.shape), "vecdot")
    if a.shape[i] != b.shape[j]:
        raise ShapeError(f"vecdot: axis {axis} has {a.shape[i]} elements in shape {a.shape}, {b.shape[j]} in {b.shape}")
    a, b = move.move_axis(a, i, len(a.shape) - 1), move.move_axis(b, j, len(b.shape) - 1)
    if len(a.shape) == 1 and len(b.shape) == 1:
        return Tensor(ops.dot_general(a, b, ((0,), (0,))))
    dtype = a.dtype
    if dtype.kind == "b":
        product = elementwise.logical_and(a, b)
        return Tensor(fold.reduce_any(product, (len(product.shape) - 1,), False))
    if dtype in _HALF:  # as in the other products, only the result is rounded
        a, b = elementwise.cast(a, dtypes.float32), elementwise.cast(b, dtypes.float32)
    product = elementwise.multiply(a, b)
    return Tensor(cast_node(fold.reduce_sum(product, (len(product.shape) - 1,), False), dtype))
