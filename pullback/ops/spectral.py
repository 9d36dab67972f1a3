"""Linear algebra: eigenvalues, singular values, QR, pseudoinverse and exponential of matrices in the last two axes.

As in linalg.py: float32 and float64, on the host, leading axes are batch axes, several parts are packed.

**Equal values.** The derivatives of eigenvectors divide by differences of eigenvalues. Where two are equal, their
eigenvectors are any basis of a plane, and functions of them have no derivative, unless they do not depend on the choice
of that basis: functions of the eigenvalues alone, projectors, ``V f(w) V'``. Those are smooth, and their derivative
takes there the form 0/0. What it tends to as the values move apart is declared as the ops' ``Limit``, so that it is
right for equal values, and as right for nearly equal ones, where 0/0 in rounded numbers would be noise.
"""

from __future__ import annotations

import numpy as np

from .. import dtypes
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
from .record import Jvp, Limit, Linear
from .reduction import reduce_any, reduce_max, reduce_sum

_CLOSE = 0.6  # values are equal if they differ by less than eps**0.6 of the largest: 4e-10 in float64, 7e-5 in float32

# -- differences of values ---------------------------------------------------------------------------------------------


def _inverse(x: Node, vanishes: Node) -> Node:
    """``1 / x``, and 0 where ``vanishes``."""
    return e.where(vanishes, 0, e.reciprocal(e.where(vanishes, 1, x)))


def _threshold(values: Node) -> Node:
    """Below what differences of ``values`` (..., n) count as 0: (..., 1)."""
    largest = reduce_max(e.abs(e.stop_gradient(values)), (len(values.shape) - 1,), True)
    return e.multiply(largest, float(np.finfo(values.dtype.numpy).eps) ** _CLOSE)


def _close(values: Node) -> Node:
    """Whether values i and j are equal, true for i = j: (..., n, n)."""
    return e.less_equal(e.abs(e.subtract(row(values), column(values))), column(_threshold(values)))


def _apart(involved: Node, values: Node) -> tuple[Node, Node]:
    """Two directions, 0 where not ``involved``: n, n - 1, ..., 1 along the last axis, and ones."""
    n = values.shape[-1]
    numbers = e.subtract(n, leaf.iota(values.shape, len(values.shape) - 1, values.dtype))
    return e.where(involved, numbers, 0), e.where(involved, leaf.ones_like(values), 0)


def _is_close_to_another(values: Node) -> Node:
    n = values.shape[-1]
    rows, columns = (leaf.iota((n, n), axis, dtypes.int64) for axis in (0, 1))
    pairs = e.logical_and(_close(values), e.not_equal(rows, columns))
    return reduce_any(pairs, (len(pairs.shape) - 1,))


def _inverse_gaps(values: Node, index: int) -> Node:
    """What stands for ``1 / (values[j] - values[i])`` where that is 1/0, along direction ``index`` of :func:`_apart`.

    Of a numerator N that vanishes for equal values, the limit of N / (values[j] - values[i]) is its derivative along
    the numbers p, divided by p[j] - p[i]; less that along ones (which is 0, but has derivatives), times what of p is a
    common shift of both values. So the two move symmetrically, and the next derivative is right as well.
    """
    n = values.shape[-1]
    numbers = e.subtract(n, leaf.iota((n,), 0, values.dtype))
    gaps = e.subtract(row(numbers), column(numbers))
    same = e.equal(gaps, 0)
    inverse = _inverse(gaps, same)
    if index == 1:
        inverse = e.multiply(inverse, e.multiply(e.add(row(numbers), column(numbers)), -0.5))
    return e.where(_close(values), inverse, 0)


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
    """With M = V' dA V: dw = diag(M), dV = V (F * M) with F[i, j] = 1 / (w[j] - w[i]), left to the limit where these
    are equal."""
    (a,), (tangent,) = node.inputs, tangents
    values, vectors = eigh_parts(node, a.shape[-1])
    turned = mm(mt(vectors), mirrored(tangent), vectors)  # type: ignore[arg-type]
    inverse = _inverse(e.subtract(row(values), column(values)), _close(values))
    return pack(a.shape[:-2], diagonal(turned), mm(vectors, e.multiply(inverse, turned)))


def _eigenvalues(node: Node) -> Node:
    return node if node.op is EIGVALSH else eigh_parts(node, node.inputs[0].shape[-1])[0]


def _eigenvalues_apart(node: Node) -> tuple[Node, ...]:
    values = _eigenvalues(node)
    directions = _apart(_is_close_to_another(values), values)
    if node.op is EIGVALSH:
        return directions
    vectors = leaf.full((*values.shape, values.shape[-1]), 0, values.dtype)
    return tuple([pack(values.shape[:-1], direction, vectors) for direction in directions])


def _eigh_limit(node: Node, tangents: Tangents, index: int) -> Node:
    (a,), (tangent,) = node.inputs, tangents
    values, vectors = eigh_parts(node, a.shape[-1])
    turned = mm(mt(vectors), mirrored(tangent), vectors)  # type: ignore[arg-type]
    turn = e.multiply(_inverse_gaps(values, index), turned)
    return pack(a.shape[:-2], leaf.zeros_like(values), mm(vectors, turn))


EIGH = matrix_op(
    "eigh", infer_matrix("eigh", True, lambda m, n: (n + n * n,)), _eigh_reference,
    Jvp(_eigh_tangent, Limit(_eigenvalues_apart, _eigh_limit, ("eigh", "eigvalsh"))),
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
    E[i, j] = 1 / (s[i] + s[j]): ds = diag(M), dU = U (D S + E K) + (1 - U U') dA V / s and
    dV = V (D S - E K) + (1 - V V') dA' U / s, where the divisors do not vanish. (So, no square of s can overflow.)

    Of full matrices, the vectors that A does not determine turn only as the others make them.
    """
    _, s, _ = svd_parts(node)
    small = e.less_equal(s, _threshold(s))
    inverse = _inverse(s, small)
    differences = _inverse(e.subtract(row(s), column(s)), _close(s))
    sums = e.add(row(s), column(s))
    return _svd_turned(node, tangents[0], inverse, differences, _inverse(sums, _vanish(sums, s)), False)


def _vanish(sums: Node, s: Node) -> Node:
    return e.less_equal(sums, column(_threshold(s)))


def _svd_limit(node: Node, tangents: Tangents, index: int) -> Node:
    """Sums and values that vanish grow along ones, the second direction, by 2 and by 1."""
    _, s, _ = svd_parts(node)
    differences = _inverse_gaps(s, index)
    if index == 0:
        return _svd_turned(node, tangents[0], leaf.zeros_like(s), differences, leaf.zeros_like(differences), True)
    inverse = e.where(e.less_equal(s, _threshold(s)), leaf.ones_like(s), 0)
    vanish = _vanish(e.add(row(s), column(s)), s)
    sums = e.where(vanish, leaf.full(vanish.shape, 0.5, s.dtype), 0)
    return _svd_turned(node, tangents[0], inverse, differences, sums, True)


def _singular_values_apart(node: Node) -> tuple[Node, ...]:
    s = node if node.op is SVDVALS else svd_parts(node)[1]
    directions = _apart(e.logical_or(_is_close_to_another(s), e.less_equal(s, _threshold(s))), s)
    if node.op is SVDVALS:
        return directions
    u, _, vh = svd_parts(node)
    return tuple([pack(s.shape[:-1], leaf.zeros_like(u), d, leaf.zeros_like(vh)) for d in directions])


def _svd_turned(
    node: Node, tangent: Node | None, inverse: Node, differences: Node, sums: Node, vectors_only: bool
) -> Node:
    """The packed tangent of a decomposition from the coefficients of its formula, see :func:`_svd_tangent`."""
    (a,) = node.inputs
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
    symmetric = e.multiply(e.multiply(e.add(turned, mt(turned)), 0.5), differences)
    antisymmetric = e.multiply(e.multiply(e.subtract(turned, mt(turned)), 0.5), sums)
    du = mm(u, e.add(symmetric, antisymmetric))
    if m > n:
        du = e.add(du, e.multiply(e.subtract(by_v, mm(u, turned)), row(inverse)))
    dv = mm(v, e.subtract(symmetric, antisymmetric))
    if n > m:
        dv = e.add(dv, e.multiply(e.subtract(by_u, mm(v, mt(turned))), row(inverse)))
    if extra_u.shape[-1]:
        du = movement.concat((du, _following(u, du, extra_u)), axis + 1)
    if extra_v.shape[-1]:
        dv = movement.concat((dv, _following(v, dv, extra_v)), axis + 1)
    return pack(a.shape[:-2], du, leaf.zeros_like(s) if vectors_only else diagonal(turned), mt(dv))


def _following(vectors: Node, tangent: Node, extra: Node) -> Node:
    """How ``extra`` columns turn to stay orthogonal to ``vectors``, and no further."""
    return e.negative(mm(vectors, mm(mt(tangent), extra)))


SVD = matrix_op(
    "svd", infer_matrix("svd", False, _packed_size), _svd_reference,
    Jvp(_svd_tangent, Limit(_singular_values_apart, _svd_limit, ("svd", "svdvals"))),
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
