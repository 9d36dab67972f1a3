"""Linear algebra: Cholesky, LU, solves and inverse of matrices in the last two axes, and what all its ops share.

The ops take float32 and float64 and run LAPACK on the host. Every leading axis is a batch axis, so batching needs no
rule of its own. Results of several parts are packed one after another along the last axis (see ``parts_of``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import LinAlgError
from ..graph.node import Node, bind
from ..graph.state import describe_site
from ..shapes import Shape, size_of
from . import contraction, indexing, leaf, movement
from . import elementwise as e
from .family import Array, kind_error, mixed_error, rank_error, with_batch
from .record import Derivative, Jvp, Linear, Op
from .registry import register

Tangents = tuple[Node | None, ...]
Infer = Callable[..., tuple[Shape, DType]]

# -- matrices in the last two axes -------------------------------------------------------------------------------------


def mt(x: Node) -> Node:
    """The last two axes exchanged."""
    ndim = len(x.shape)
    return movement.permute(x, (*range(ndim - 2), ndim - 1, ndim - 2))


def mm(*factors: Node) -> Node:
    """The matrix product of ``factors``, from the left; all have the same leading axes."""
    product = factors[0]
    for factor in factors[1:]:
        lead = tuple(range(len(product.shape) - 2))
        last = len(lead) + 1
        product = contraction.dot_general(product, factor, ((last,), (last - 1,)), (lead, lead))
    return product


def _rows_and_columns(x: Node) -> tuple[Node, Node]:
    shape = x.shape[-2:]
    return leaf.iota(shape, 0, dtypes.int64), leaf.iota(shape, 1, dtypes.int64)


def lower_part(x: Node, k: int = 0) -> Node:
    """Elements on and below the diagonal ``k``, else 0."""
    rows, columns = _rows_and_columns(x)
    return e.where(e.less_equal(columns, e.add(rows, k) if k else rows), x, 0)


def upper_part(x: Node, k: int = 0) -> Node:
    """Elements on and above the diagonal ``k``, else 0."""
    rows, columns = _rows_and_columns(x)
    return e.where(e.greater_equal(columns, e.add(rows, k) if k else rows), x, 0)


def mirrored(x: Node) -> Node:
    """The symmetric matrix with the lower triangle of ``x``."""
    rows, columns = _rows_and_columns(x)
    return e.where(e.greater_equal(rows, columns), x, mt(x))


def column(x: Node) -> Node:
    """``x`` with a last axis of extent 1: it scales the rows of a matrix."""
    return movement.reshape(x, (*x.shape, 1))


def row(x: Node) -> Node:
    """``x`` with an axis of extent 1 before its last: it scales the columns of a matrix."""
    return movement.reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def diagonal(x: Node) -> Node:
    """The main diagonal of square matrices."""
    n = x.shape[-1]
    lead = x.shape[:-2]
    if n == 0:
        return movement.reshape(x, (*lead, 0))
    flat = movement.reshape(x, (*lead, n * n))
    return movement.slice_axis(flat, len(lead), 0, n * n, n + 1)


def parts_of(packed: Node, *shapes: Shape) -> tuple[Node, ...]:
    """The parts of a packed result, of ``shapes`` after the batch axes."""
    lead = packed.shape[:-1]
    start = 0
    parts = []
    for shape in shapes:
        stop = start + size_of(shape)
        part = movement.slice_axis(packed, len(lead), start, stop)
        parts.append(movement.reshape(part, (*lead, *shape)))
        start = stop
    return tuple(parts)


def pack(lead: Shape, *parts: Node) -> Node:
    """The parts one after another along one axis after the batch axes ``lead``."""
    flat = [movement.reshape(part, (*lead, size_of(part.shape[len(lead) :]))) for part in parts]
    return movement.concat(flat, len(lead))


def pack_arrays(lead: Shape, *parts: Array) -> Array:
    """As :func:`pack`, of arrays."""
    return np.concatenate([np.reshape(part, (*lead, size_of(part.shape[len(lead) :]))) for part in parts], -1)


# -- declaring ---------------------------------------------------------------------------------------------------------


def check_matrix(name: str, x: Node, square: bool) -> None:
    """Raise DTypeError unless ``x`` is float32 or float64, ShapeError unless it holds (square) matrices."""
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise kind_error(name, "f", x)
    if len(x.shape) < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise rank_error(name, f"{'square ' if square else ''}matrices expected in the last two axes", x)


def infer_matrix(name: str, square: bool, shape: Callable[..., Shape]) -> Infer:
    """The rule of an op on matrices; ``shape(rows, columns, *attrs)`` is that of its result after the batch axes."""

    def infer(inputs: tuple[Node, ...], *attrs: Any) -> tuple[Shape, DType]:
        (x,) = inputs
        check_matrix(name, x, square)
        return (*x.shape[:-2], *shape(*x.shape[-2:], *attrs)), x.dtype

    return infer


def infer_pair(name: str) -> Infer:
    """The rule of an op on square matrices and as many tangents of them."""

    def infer(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
        a, b = inputs
        check_matrix(name, a, True)
        if a.dtype is not b.dtype:
            raise mixed_error(name, a, b)
        if a.shape != b.shape:
            raise rank_error(name, "the operands must have one shape", a, b)
        return a.shape, a.dtype

    return infer


def batch_leading(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    """One more leading axis; an operand without it is repeated."""
    return bind(node.op, tuple([with_batch(x, b, size) for x, b in zip(inputs, batched)]), node.attrs)


def matrix_op(
    name: str, infer: Infer, reference: Callable[..., Array], derivative: Derivative, doc: str,
    attr_names: tuple[str, ...] = (), cost: float = 100.0,
) -> Op:
    """Register a host op on matrices; its reference runs with floating-point warnings off."""

    def quiet(node: Node, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(reference(node, *arrays)).astype(node.dtype.numpy, copy=False)

    return register(Op(name, "host", infer, quiet, derivative, batch_leading, name, cost, attr_names, doc))


def failure(node: Node, why: str) -> Callable[[tuple[int, ...]], None]:
    """A function that raises LinAlgError for the matrix at a batch index of the op's first operand."""

    def fail(index: tuple[int, ...]) -> None:
        x = node.inputs[0]
        rows, columns = x.shape[-2:]
        which = f" at index {list(index)} of {list(x.shape)}" if index else ""
        raise LinAlgError(
            f"{node.op.name}: the {rows}x{columns} matrix{which} {why} (made at {describe_site(node.site)})"
        )

    return fail


def _pass_on(index: tuple[int, ...]) -> None:
    """A failing matrix gives NaN."""


# -- Cholesky ----------------------------------------------------------------------------------------------------------


def _cholesky_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    fail = failure(node, "is not positive definite") if node.attrs[0] else _pass_on
    return lapack.each(np.linalg.cholesky, fail, a)


def _cholesky_tangent(node: Node, tangents: Tangents) -> Node:
    """dL = L phi(L^-1 dA L^-T), phi taking the lower triangle and half of the diagonal (Murray, Differentiation of the
    Cholesky decomposition, 2016)."""
    (tangent,) = tangents
    inner = solve_triangular(node, mirrored(tangent), lower=True)  # type: ignore[arg-type]
    inner = solve_triangular(node, mt(inner), lower=True)
    rows, columns = _rows_and_columns(inner)
    half = e.where(e.equal(rows, columns), e.multiply(inner, 0.5), 0)
    return mm(node, e.where(e.greater(rows, columns), inner, half))


CHOLESKY = matrix_op(
    "cholesky", infer_matrix("cholesky", True, lambda m, n, check: (m, n)), _cholesky_reference,
    Jvp(_cholesky_tangent),
    "L of A = L L', from the lower triangle of A; LinAlgError (or NaN) if not positive definite",
    ("check",),
)


def cholesky(a: Node, check: bool = True) -> Node:
    """The lower triangular L with ``L @ L.T = a``. Only the lower triangle of ``a`` is read.

    check: a matrix that is not positive definite raises LinAlgError when the graph runs; else it gives NaN.
    """
    return bind(CHOLESKY, (a,), (check,))


# -- solves ------------------------------------------------------------------------------------------------------------


def _infer_solve(name: str) -> Infer:
    def infer(inputs: tuple[Node, ...], *attrs: Any) -> tuple[Shape, DType]:
        a, b = inputs
        check_matrix(name, a, True)
        if a.dtype is not b.dtype:
            raise mixed_error(name, a, b)
        if len(b.shape) != len(a.shape) or b.shape[:-1] != a.shape[:-1]:
            raise rank_error(name, "the operands must agree in all axes but the last", a, b)
        return b.shape, b.dtype

    return infer


def _solve_reference(node: Node, a: Array, b: Array) -> Array:
    from ..runtime import lapack

    if node.attrs[0]:
        a = lapack.transpose(a)
    return lapack.each(np.linalg.solve, failure(node, "is singular"), a, b)


def _solve_others(node: Node, tangents: Tangents) -> Node:
    """A X = B, so A dX = -dA X."""
    (transposed,) = node.attrs
    a, tangent = node.inputs[0], tangents[0]
    turned = mt(tangent) if transposed else tangent  # type: ignore[arg-type]
    return solve(a, e.negative(mm(turned, node)), transposed)  # type: ignore[arg-type]


def _transpose_solve(node: Node, cotangent: Node, index: int) -> Node:
    return solve(node.inputs[0], cotangent, not node.attrs[0])


SOLVE = matrix_op(
    "solve", _infer_solve("solve"), _solve_reference, Linear(_transpose_solve, (1,), others=_solve_others),
    "X of A X = B (of A' X = B if transposed), by LU; LinAlgError if A is singular", ("transposed",),
)


def solve(a: Node, b: Node, transposed: bool = False) -> Node:
    """X with ``a @ X = b``, or ``a.T @ X = b``. The operands have the same batch axes; ``b`` has columns."""
    return bind(SOLVE, (a, b), (transposed,))


def _triangle(x: Node, lower: bool, strict: bool) -> Node:
    return lower_part(x, -int(strict)) if lower else upper_part(x, int(strict))


def _triangular_reference(node: Node, a: Array, b: Array) -> Array:
    from ..runtime import lapack

    lower, transposed, unit_diagonal, check = node.attrs
    if check and not unit_diagonal:
        singular = (np.diagonal(a, axis1=-2, axis2=-1) == 0).any(-1)
        if singular.any():
            failure(node, "has a zero on its diagonal")(tuple([int(i) for i in np.argwhere(singular)[0]]))
    return lapack.solve_triangular(a, b, lower, transposed, unit_diagonal)


def _triangular_others(node: Node, tangents: Tangents) -> Node:
    lower, transposed, unit_diagonal, _ = node.attrs
    tangent = _triangle(tangents[0], lower, unit_diagonal)  # type: ignore[arg-type]
    turned = mt(tangent) if transposed else tangent
    return bind(SOLVE_TRIANGULAR, (node.inputs[0], e.negative(mm(turned, node))), node.attrs)


def _transpose_triangular(node: Node, cotangent: Node, index: int) -> Node:
    lower, transposed, unit_diagonal, check = node.attrs
    return solve_triangular(node.inputs[0], cotangent, lower, not transposed, unit_diagonal, check)


SOLVE_TRIANGULAR = matrix_op(
    "solve_triangular", _infer_solve("solve_triangular"), _triangular_reference,
    Linear(_transpose_triangular, (1,), others=_triangular_others),
    "X of A X = B (of A' X = B if transposed), by substitution, reading one triangle of A",
    ("lower", "transposed", "unit_diagonal", "check"), 20.0,
)


def solve_triangular(
    a: Node, b: Node, lower: bool, transposed: bool = False, unit_diagonal: bool = False, check: bool = False
) -> Node:
    """X with ``a @ X = b``, or ``a.T @ X = b``, where only one triangle of ``a`` is read.

    unit_diagonal: the diagonal of ``a`` is taken as ones and not read.
    check: a zero on the diagonal raises LinAlgError when the graph runs; else it divides by 0.
    """
    return bind(SOLVE_TRIANGULAR, (a, b), (lower, transposed, unit_diagonal, check))


# -- inverse -----------------------------------------------------------------------------------------------------------


def _inv_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    return lapack.each(np.linalg.inv, failure(node, "is singular") if node.attrs[0] else _pass_on, a)


def _inv_tangent(node: Node, tangents: Tangents) -> Node:
    """d(A^-1) = -A^-1 dA A^-1. Where there is no inverse, and NaN in its place, the derivative is 0: times a mask's 0
    it must not be NaN."""
    inverse = node if node.attrs[0] else e.where(e.isfinite(node), node, 0)
    return e.negative(mm(inverse, tangents[0], inverse))  # type: ignore[arg-type]


INV = matrix_op(
    "inv", infer_matrix("inv", True, lambda m, n, check: (m, n)), _inv_reference, Jvp(_inv_tangent),
    "A^-1; LinAlgError (or NaN) if A is singular", ("check",),
)


def inv(a: Node, check: bool = True) -> Node:
    """The inverse. check: a singular matrix raises LinAlgError when the graph runs; else it gives NaN."""
    return bind(INV, (a,), (check,))


# -- LU ----------------------------------------------------------------------------------------------------------------


def _lu_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    factors, pivots = lapack.lu(a)
    order = lapack.permutation(pivots, a.shape[-2])
    return pack_arrays(a.shape[:-2], factors, order.astype(a.dtype))


def lu_parts(packed: Node) -> tuple[Node, Node, Node]:
    """L (m x k), U (k x n) and the order of the rows (int64, ``a[order] = L @ U``) of a packed LU; k = min(m, n)."""
    m, n = packed.inputs[0].shape[-2:]
    both, order = parts_of(packed, (m, n), (m,))
    k = min(m, n)
    axis = len(both.shape) - 2
    strict = lower_part(movement.slice_axis(both, axis + 1, 0, k), -1)
    rows, columns = _rows_and_columns(strict)
    lower = e.where(e.equal(rows, columns), 1, strict)
    upper = upper_part(movement.slice_axis(both, axis, 0, k))
    return lower, upper, e.cast(order, dtypes.int64)


def _permuted_rows(x: Node, order: Node) -> Node:
    """``x[..., order, :]`` for each matrix."""
    m, n = x.shape[-2:]
    count = size_of(x.shape[:-2])
    which = movement.broadcast_to(leaf.iota((count, 1), 0, dtypes.int64), (count, m))
    flat = movement.reshape(x, (count, m, n))
    gathered = indexing.gather(flat, [which, movement.reshape(order, (count, m))], (0, 1))
    return movement.reshape(gathered, x.shape)


def _lu_tangent(node: Node, tangents: Tangents) -> Node:
    """P'A = L U. With the square blocks L1, U1 and M = L1^-1 (P'dA)1 U1^-1: dL1 = L1 (M below the diagonal) and
    dU1 = (M from the diagonal on) U1; the rest of L or of U follows from P'dA = dL U + L dU."""
    (a,), (tangent,) = node.inputs, tangents
    m, n = a.shape[-2:]
    k = min(m, n)
    lower, upper, order = lu_parts(node)
    axis = len(a.shape) - 2
    moved = _permuted_rows(tangent, order)  # type: ignore[arg-type]
    square_l = movement.slice_axis(lower, axis, 0, k)
    square_u = movement.slice_axis(upper, axis + 1, 0, k)
    square = movement.slice_axis(movement.slice_axis(moved, axis, 0, k), axis + 1, 0, k)
    inner = solve_triangular(square_l, square, lower=True, unit_diagonal=True)
    inner = mt(solve_triangular(square_u, mt(inner), lower=False, transposed=True))
    by_l = mm(square_l, lower_part(inner, -1))
    by_u = mm(upper_part(inner), square_u)
    both = e.add(by_l, by_u)
    if m > n:
        known = mm(movement.slice_axis(lower, axis, k, m), by_u)
        rest = e.subtract(movement.slice_axis(moved, axis, k, m), known)
        rest = mt(solve_triangular(square_u, mt(rest), lower=False, transposed=True))
        both = movement.concat((both, rest), axis)
    elif n > m:
        known = mm(by_l, movement.slice_axis(upper, axis + 1, k, n))
        rest = e.subtract(movement.slice_axis(moved, axis + 1, k, n), known)
        rest = solve_triangular(square_l, rest, lower=True, unit_diagonal=True)
        both = movement.concat((both, rest), axis + 1)
    lead = a.shape[:-2]
    return pack(lead, both, leaf.full((*lead, m), 0, a.dtype))


LU = matrix_op(
    "lu", infer_matrix("lu", False, lambda m, n: (m * n + m,)), _lu_reference, Jvp(_lu_tangent),
    "L and U of A = P L U by partial pivoting in one matrix, and the order of the rows, packed",
)


def lu(a: Node) -> Node:
    """The packed LU factorisation; see :func:`lu_parts`."""
    return bind(LU, (a,), ())
