"""Linear algebra: eigenvalues, singular values, QR, pseudoinverse and exponential of matrices in the last two axes.

As in linalg.py: float32 and float64, on the host, leading axes are batch axes, several parts are packed.

**Equal values.** The derivative of an eigenvector divides by differences of eigenvalues. Where two are equal, to a few
units of the last place of the largest, their eigenvectors are any basis of a plane, and what turns them within it is
taken as 0: right for every function that is not changed by such a turn (a function of the eigenvalues alone, the
projector on the plane), and finite for all. A function that takes the two values *and* turns with the vectors, such as
``V f(w) V'``, depends there on derivatives of f that no rule for w and V can know; it is right as soon as they differ.
"""

from __future__ import annotations

import numpy as np

from ..graph.node import Node, bind
from ..shapes import Shape
from . import elementwise as e
from . import leaf, movement
from .family import Array
from .linalg import (
    Tangents,
    column,
    diagonal,
    infer_matrix,
    infer_pair,
    lower_part,
    matrix_op,
    mirrored,
    mm,
    mt,
    pack,
    pack_arrays,
    parts_of,
    row,
    solve_triangular,
    upper_part,
)
from .record import Jvp, Linear
from .reduction import reduce_max, reduce_sum

_EQUAL = 64  # differences of so many units in the last place of the largest value are rounding

# -- differences of values ---------------------------------------------------------------------------------------------


def _inverse_or_zero(x: Node, threshold: Node) -> Node:
    """``1 / x``, and 0 where ``|x| <= threshold``."""
    vanishes = e.less_equal(e.abs(x), threshold)
    return e.where(vanishes, 0, e.reciprocal(e.where(vanishes, 1, x)))


def _threshold(values: Node) -> Node:
    """Below what differences of ``values`` (..., n) are rounding errors: (..., 1, 1)."""
    largest = reduce_max(e.abs(e.stop_gradient(values)), (len(values.shape) - 1,), True)
    return column(e.multiply(largest, _EQUAL * float(np.finfo(values.dtype.numpy).eps)))


# -- symmetric eigenvalues ---------------------------------------------------------------------------------------------


def _eigh_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a, lower=True)
    values, vectors = lapack.filled_with_nan(tuple(np.linalg.eigh(a)), bad)
    return pack_arrays(a.shape[:-2], values, vectors)


def eigh_parts(packed: Node, n: int) -> tuple[Node, Node]:
    """Eigenvalues in ascending order, and the eigenvectors in the columns of a matrix."""
    values, vectors = parts_of(packed, (n,), (n, n))
    return values, vectors


def _eigh_tangent(node: Node, tangents: Tangents) -> Node:
    """With M = V' dA V: dw = diag(M), dV = V (F * M) with F[i, j] = 1 / (w[j] - w[i]), 0 where these are equal."""
    (a,), (tangent,) = node.inputs, tangents
    values, vectors = eigh_parts(node, a.shape[-1])
    turned = mm(mt(vectors), mirrored(tangent), vectors)  # type: ignore[arg-type]
    gaps = _inverse_or_zero(e.subtract(row(values), column(values)), _threshold(values))
    return pack(a.shape[:-2], diagonal(turned), mm(vectors, e.multiply(gaps, turned)))


EIGH = matrix_op(
    "eigh", infer_matrix("eigh", True, lambda m, n: (n + n * n,)), _eigh_reference, Jvp(_eigh_tangent),
    "eigenvalues and eigenvectors of a symmetric matrix, read from its lower triangle, packed",
)


def eigh(a: Node) -> Node:
    """The packed eigendecomposition of symmetric matrices, of which the lower triangle is read; see eigh_parts."""
    return bind(EIGH, (a,))


def _eigvalsh_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a, lower=True)
    return lapack.filled_with_nan((np.linalg.eigvalsh(a),), bad)[0]


def _eigvalsh_tangent(node: Node, tangents: Tangents) -> Node:
    (a,), (tangent,) = node.inputs, tangents
    _, vectors = eigh_parts(eigh(a), a.shape[-1])
    return _diagonal_of_product(vectors, mirrored(tangent), vectors)  # type: ignore[arg-type]


def _diagonal_of_product(left: Node, middle: Node, right: Node) -> Node:
    """The diagonal of ``left.T @ middle @ right``."""
    return reduce_sum(e.multiply(left, mm(middle, right)), (len(left.shape) - 2,))


EIGVALSH = matrix_op(
    "eigvalsh", infer_matrix("eigvalsh", True, lambda m, n: (n,)), _eigvalsh_reference, Jvp(_eigvalsh_tangent),
    "eigenvalues of a symmetric matrix in ascending order, read from its lower triangle",
)


def eigvalsh(a: Node) -> Node:
    """Eigenvalues of symmetric matrices, of which the lower triangle is read, in ascending order."""
    return bind(EIGVALSH, (a,))


# -- singular values ---------------------------------------------------------------------------------------------------


def svd_shapes(m: int, n: int, full: bool) -> tuple[Shape, Shape, Shape]:
    """Of U, s and V' of an m x n matrix."""
    k = min(m, n)
    return (m, m if full else k), (k,), (n if full else k, n)


def svd_parts(node: Node) -> tuple[Node, Node, Node]:
    """U, s and V' of the packed result."""
    m, n = node.inputs[0].shape[-2:]
    u, s, vh = parts_of(node, *svd_shapes(m, n, node.attrs[0]))
    return u, s, vh


def _packed_size(m: int, n: int, full: bool) -> Shape:
    u, s, vh = svd_shapes(m, n, full)
    return (u[0] * u[1] + s[0] + vh[0] * vh[1],)


def _svd_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a)
    return pack_arrays(a.shape[:-2], *lapack.filled_with_nan(tuple(np.linalg.svd(a, node.attrs[0])), bad))


def _svd_tangent(node: Node, tangents: Tangents) -> Node:
    """With M = U' dA V, its symmetric and antisymmetric parts S and K, D[i, j] = 1 / (s[j] - s[i]) and
    E[i, j] = 1 / (s[i] + s[j]), both 0 where the divisor vanishes: ds = diag(M), dU = U (D S + E K) +
    (1 - U U') dA V / s, dV = V (D S - E K) + (1 - V V') dA' U / s. (Written so, no square of s can overflow.)

    Of full matrices, the vectors that A does not determine turn only as the others make them.
    """
    (a,), (tangent,) = node.inputs, tangents
    m, n = a.shape[-2:]
    k = min(m, n)
    u, s, vh = svd_parts(node)
    axis = len(a.shape) - 2
    extra_u = movement.slice_axis(u, axis + 1, k, u.shape[-1])
    extra_v = mt(movement.slice_axis(vh, axis, k, vh.shape[-2]))
    u = movement.slice_axis(u, axis + 1, 0, k)
    v = mt(movement.slice_axis(vh, axis, 0, k))
    by_v = mm(tangent, v)  # type: ignore[arg-type]
    by_u = mm(mt(tangent), u)  # type: ignore[arg-type]
    turned = mm(mt(u), by_v)
    threshold = _threshold(s)
    differences = _inverse_or_zero(e.subtract(row(s), column(s)), threshold)
    sums = _inverse_or_zero(e.add(row(s), column(s)), threshold)
    symmetric = e.multiply(e.multiply(e.add(turned, mt(turned)), 0.5), differences)
    antisymmetric = e.multiply(e.multiply(e.subtract(turned, mt(turned)), 0.5), sums)
    inverse = row(_inverse_or_zero(s, movement.reshape(threshold, (*s.shape[:-1], 1))))
    du = mm(u, e.add(symmetric, antisymmetric))
    if m > n:
        du = e.add(du, e.multiply(e.subtract(by_v, mm(u, turned)), inverse))
    dv = mm(v, e.subtract(symmetric, antisymmetric))
    if n > m:
        dv = e.add(dv, e.multiply(e.subtract(by_u, mm(v, mt(turned))), inverse))
    if extra_u.shape[-1]:
        du = movement.concat((du, _following(u, du, extra_u)), axis + 1)
    if extra_v.shape[-1]:
        dv = movement.concat((dv, _following(v, dv, extra_v)), axis + 1)
    return pack(a.shape[:-2], du, diagonal(turned), mt(dv))


def _following(vectors: Node, tangent: Node, extra: Node) -> Node:
    """How ``extra`` columns turn to stay orthogonal to ``vectors``, and no further."""
    return e.negative(mm(vectors, mm(mt(tangent), extra)))


SVD = matrix_op(
    "svd", infer_matrix("svd", False, _packed_size), _svd_reference, Jvp(_svd_tangent),
    "U, s and V' of A = U diag(s) V', packed", ("full_matrices",),
)


def svd(a: Node, full_matrices: bool) -> Node:
    """The packed singular value decomposition; see svd_parts."""
    return bind(SVD, (a,), (full_matrices,))


def _svdvals_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a)
    return lapack.filled_with_nan((np.linalg.svd(a, compute_uv=False),), bad)[0]


def _svdvals_tangent(node: Node, tangents: Tangents) -> Node:
    u, s, vh = svd_parts(svd(node.inputs[0], False))
    slope = _diagonal_of_product(u, tangents[0], mt(vh))  # type: ignore[arg-type]
    return e.where(e.equal(s, 0), 0, slope)


SVDVALS = matrix_op(
    "svdvals", infer_matrix("svdvals", False, lambda m, n: (min(m, n),)), _svdvals_reference, Jvp(_svdvals_tangent),
    "singular values in descending order; derivative u' dA v, 0 where the value is 0",
)


def svdvals(a: Node) -> Node:
    """Singular values in descending order."""
    return bind(SVDVALS, (a,))


# -- QR ----------------------------------------------------------------------------------------------------------------


def qr_shapes(m: int, n: int, complete: bool) -> tuple[Shape, Shape]:
    """Of Q and R."""
    k = m if complete else min(m, n)
    return (m, k), (k, n)


def qr_parts(node: Node) -> tuple[Node, Node]:
    """Q and R of the packed result."""
    m, n = node.inputs[0].shape[-2:]
    q, r = parts_of(node, *qr_shapes(m, n, node.attrs[0]))
    return q, r


def _qr_reference(node: Node, a: Array) -> Array:
    q, r = np.linalg.qr(a, "complete") if node.attrs[0] else np.linalg.qr(a)
    return pack_arrays(a.shape[:-2], q, r)


def _qr_tangent(node: Node, tangents: Tangents) -> Node:
    """Of the first k = min(m, n) columns, with C = dA R^-1, M = Q' C and X = (M below the diagonal) less its transpose:
    dQ = C + Q (X - M), dR = (M - X) R (Walter, Lehmann and Lamour, On evaluating higher-order derivatives of the QR
    decomposition, 2012). The other columns of R are Q' A; further columns of Q turn only as the first make them."""
    (a,), (tangent,) = node.inputs, tangents
    m, n = a.shape[-2:]
    k = min(m, n)
    axis = len(a.shape) - 2
    q, r = qr_parts(node)
    extra = movement.slice_axis(q, axis + 1, k, q.shape[-1])
    q = movement.slice_axis(q, axis + 1, 0, k)
    square = movement.slice_axis(movement.slice_axis(r, axis, 0, k), axis + 1, 0, k)
    first = movement.slice_axis(tangent, axis + 1, 0, k)  # type: ignore[arg-type]
    scaled = mt(solve_triangular(square, mt(first), lower=False, transposed=True))
    inner = mm(mt(q), scaled)
    below = lower_part(inner, -1)
    turn = e.subtract(below, mt(below))
    dq = e.add(scaled, mm(q, e.subtract(turn, inner)))
    # Upper triangular but for rounding.
    dr = mm(upper_part(e.subtract(inner, turn)), square)
    if n > k:
        rest = movement.slice_axis(a, axis + 1, k, n)
        moved = movement.slice_axis(tangent, axis + 1, k, n)  # type: ignore[arg-type]
        dr = movement.concat((dr, e.add(mm(mt(dq), rest), mm(mt(q), moved))), axis + 1)
    if extra.shape[-1]:
        dq = movement.concat((dq, _following(q, dq, extra)), axis + 1)
        dr = movement.concat((dr, leaf.full((*a.shape[:-2], m - k, n), 0, a.dtype)), axis)
    return pack(a.shape[:-2], dq, dr)


QR = matrix_op(
    "qr", infer_matrix("qr", False, lambda m, n, complete: (sum([r * c for r, c in qr_shapes(m, n, complete)]),)),
    _qr_reference, Jvp(_qr_tangent), "Q and R of A = Q R, packed", ("complete",),
)


def qr(a: Node, complete: bool) -> Node:
    """The packed QR factorisation; see qr_parts."""
    return bind(QR, (a,), (complete,))


# -- pseudoinverse -----------------------------------------------------------------------------------------------------


def _pinv_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a)
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    kept = s > node.attrs[0] * s[..., :1]
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0)
    return lapack.filled_with_nan((lapack.transpose(vh) @ (inverse[..., None] * lapack.transpose(u)),), bad)[0]


def _pinv_tangent(node: Node, tangents: Tangents) -> Node:
    """dP = -P dA P + P P' dA' (1 - A P) + (1 - P A) dA' P' P, of a rank that stays (Golub and Pereyra, 1973).

    Products are ordered so that none is larger than A or min(m, n) squared, and A is scaled to size 1, where P' P can
    neither overflow nor vanish.
    """
    (a,), (tangent,) = node.inputs, tangents
    axes = (len(a.shape) - 2, len(a.shape) - 1)
    size = reduce_max(e.abs(e.stop_gradient(a)), axes, True)
    size = e.where(e.logical_and(e.isfinite(size), e.not_equal(size, 0)), size, 1)
    a, p = e.divide(a, size), e.multiply(node, size)
    da = e.divide(tangent, size)  # type: ignore[arg-type]
    g = mt(da)
    if a.shape[-2] >= a.shape[-1]:
        within = mm(mm(p, mt(p)), e.subtract(g, mm(mm(g, a), p)))
        beside = mm(g, mt(p), p)
        beside = e.subtract(beside, mm(mm(p, a), beside))
        direct = mm(mm(p, da), p)
    else:
        within = mm(p, mm(mt(p), e.subtract(g, mm(g, mm(a, p)))))
        beside = mm(g, mm(mt(p), p))
        beside = e.subtract(beside, mm(p, mm(a, beside)))
        direct = mm(p, mm(da, p))
    return e.divide(e.subtract(e.add(within, beside), direct), size)


PINV = matrix_op(
    "pinv", infer_matrix("pinv", False, lambda m, n, rtol: (n, m)), _pinv_reference, Jvp(_pinv_tangent),
    "pseudoinverse; singular values up to rtol times the largest count as 0", ("rtol",),
)


def pinv(a: Node, rtol: float) -> Node:
    """The pseudoinverse; singular values up to ``rtol`` times the largest count as 0."""
    return bind(PINV, (a,), (rtol,))


# -- matrix exponential ------------------------------------------------------------------------------------------------


def _expm_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    return lapack.expm(a.astype(np.float64))


def _expm_tangent(node: Node, tangents: Tangents) -> Node:
    return bind(EXPM_TANGENT, (node.inputs[0], tangents[0]))  # type: ignore[arg-type]


def _expm_tangent_reference(node: Node, a: Array, tangent: Array) -> Array:
    from ..runtime import lapack

    return lapack.expm_tangent(a.astype(np.float64), tangent.astype(np.float64))


def _transpose_expm_tangent(node: Node, cotangent: Node, index: int) -> Node:
    return bind(EXPM_TANGENT, (mt(node.inputs[0]), cotangent))


def _expm_second(node: Node, tangents: Tangents) -> Node:
    """d/dt of the derivative at A + t F along E: the upper right block of the derivative at [[A, E], [0, A]] along
    [[F, 0], [0, F]]."""
    a, direction = node.inputs
    n = a.shape[-1]
    axis = len(a.shape) - 2
    zero = leaf.zeros_like(a)

    def block(diagonal: Node, corner: Node) -> Node:
        top = movement.concat((diagonal, corner), axis + 1)
        return movement.concat((top, movement.concat((zero, diagonal), axis + 1)), axis)

    whole = bind(EXPM_TANGENT, (block(a, direction), block(tangents[0], zero)))  # type: ignore[arg-type]
    return movement.slice_axis(movement.slice_axis(whole, axis, 0, n), axis + 1, n, 2 * n)


EXPM = matrix_op(
    "expm", infer_matrix("expm", True, lambda m, n: (m, n)), _expm_reference, Jvp(_expm_tangent),
    "matrix exponential, by scaling and squaring",
)
EXPM_TANGENT = matrix_op(
    "expm_tangent", infer_pair("expm_tangent"), _expm_tangent_reference,
    Linear(_transpose_expm_tangent, (1,), others=_expm_second), "derivative of the matrix exponential along a tangent",
)


def expm(a: Node) -> Node:
    """The matrix exponential."""
    return bind(EXPM, (a,))
