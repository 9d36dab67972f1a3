"""Linear algebra: determinants, and their derivatives of every order, right for singular matrices too."""

from __future__ import annotations

import numpy as np

from ..graph.node import Node, bind
from . import elementwise as e
from . import leaf, movement
from .family import Array
from .linalg import Tangents, column, diagonal, infer_matrix, infer_pair, inv, matrix_op, mm, mt
from .record import Jvp, Linear, NoDerivative
from .reduction import reduce_sum

# -- the determinant and its cofactors ---------------------------------------------------------------------------------


def _sum_of_products(tangent: Node, partial: Node) -> Node:
    """Over the last two axes; a zero tangent beats an infinite or NaN partial."""
    ndim = len(partial.shape)
    return reduce_sum(e.strong_product(tangent, partial), (ndim - 2, ndim - 1))


def _det_tangent(node: Node, tangents: Tangents) -> Node:
    """Jacobi's formula: the cofactors, summed against dA."""
    return _sum_of_products(tangents[0], bind(COFACTORS, node.inputs))  # type: ignore[arg-type]


def _cofactors_reference(node: Node, a: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a)
    return lapack.filled_with_nan((lapack.cofactors(a),), bad)[0]


def _cofactors_tangent(node: Node, tangents: Tangents) -> Node:
    return bind(COFACTORS_TANGENT, (node.inputs[0], tangents[0]))  # type: ignore[arg-type]


def _cofactors_tangent_reference(node: Node, a: Array, tangent: Array) -> Array:
    from ..runtime import lapack

    a, bad = lapack.finite_or_identity(a)
    return lapack.filled_with_nan((lapack.cofactors_tangent(a, tangent),), bad)[0]


def _third_derivative(node: Node, tangents: Tangents) -> Node:
    """The derivative by A of d (tr(X E) X' - X' E' X'), where X = A^-1 and d = det(A).

    It is a polynomial in A. Where A is (nearly) singular it is taken on both sides, at A with the smallest singular
    values moved by a fraction h of the largest and by -h, and averaged: exact to h**2.
    """
    a, direction = node.inputs
    tangent = tangents[0]
    shift = bind(SINGULAR_SHIFT, (a,))
    terms = [
        _invertible_third_derivative(moved, direction, tangent)  # type: ignore[arg-type]
        for moved in (e.add(a, shift), e.subtract(a, shift))
    ]
    return e.multiply(e.add(*terms), 0.5)


def _invertible_third_derivative(a: Node, direction: Node, tangent: Node) -> Node:
    x = inv(a, check=False)
    left, right = mm(x, direction), mm(x, tangent)
    trace_left, trace_right = (column(column(reduce_sum(diagonal(m), (len(m.shape) - 2,)))) for m in (left, right))
    product = mm(right, left)
    trace_both = column(column(reduce_sum(diagonal(product), (len(product.shape) - 2,))))
    # All transposed: X' E' X' is (X E X)'.
    whole = e.multiply(e.subtract(e.multiply(trace_right, trace_left), trace_both), x)
    whole = e.subtract(whole, e.add(e.multiply(trace_right, mm(left, x)), e.multiply(trace_left, mm(right, x))))
    whole = e.add(whole, e.add(mm(left, right, x), mm(right, left, x)))
    return mt(e.multiply(column(column(det(a))), whole))


def _singular_shift_reference(node: Node, a: Array) -> Array:
    u, s, vh = np.linalg.svd(np.where(np.isfinite(a), a, 0))
    h = float(np.finfo(a.dtype).eps) ** 0.25
    largest = np.where(s[..., :1] == 0, 1, s[..., :1])
    return (u * np.where(s <= h * largest, h * largest, 0)[..., None, :]) @ vh


DET = matrix_op(
    "det", infer_matrix("det", True, lambda m, n: ()), lambda node, a: np.linalg.det(a), Jvp(_det_tangent),
    "determinant, by LU; the derivative is exact for singular matrices",
)
COFACTORS = matrix_op(
    "cofactors", infer_matrix("cofactors", True, lambda m, n: (m, n)), _cofactors_reference, Jvp(_cofactors_tangent),
    "derivative of the determinant by each element",
)
COFACTORS_TANGENT = matrix_op(
    "cofactors_tangent", infer_pair("cofactors_tangent"), _cofactors_tangent_reference,
    # The second derivative of the determinant is symmetric.
    Linear(lambda node, ct, index: bind(node.op, (node.inputs[0], ct)), (1,), others=_third_derivative),
    "derivative of the cofactors along a tangent",
)
SINGULAR_SHIFT = matrix_op(
    "singular_shift", infer_matrix("singular_shift", True, lambda m, n: (m, n)), _singular_shift_reference,
    NoDerivative("it is a numerical device", zero=True), "what moves the vanishing singular values of A away from 0",
)


def det(a: Node) -> Node:
    """The determinant."""
    return bind(DET, (a,))


# -- its logarithm -----------------------------------------------------------------------------------------------------


def _slogdet_reference(node: Node, a: Array) -> Array:
    sign, logarithm = np.linalg.slogdet(a)
    return np.stack([sign, logarithm], -1)


def _slogdet_tangent(node: Node, tangents: Tangents) -> Node:
    inverse = mt(inv(node.inputs[0], check=False))
    slope = _sum_of_products(tangents[0], inverse)  # type: ignore[arg-type]
    return movement.concat((leaf.full((*slope.shape, 1), 0, slope.dtype), column(slope)), len(slope.shape))


SLOGDET = matrix_op(
    "slogdet", infer_matrix("slogdet", True, lambda m, n: (2,)), _slogdet_reference, Jvp(_slogdet_tangent),
    "sign of the determinant and logarithm of its size, packed; derivative of the logarithm: inv(A)'",
)


def slogdet(a: Node) -> Node:
    """Sign and logarithm of the size of the determinant, along a last axis of 2; 0 and -inf for a singular matrix."""
    return bind(SLOGDET, (a,))
