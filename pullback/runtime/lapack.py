"""Batched matrix routines for the references of the linear algebra ops, on NumPy's LAPACK.

Arrays are float32 or float64 of shape ``(..., rows, columns)``. What NumPy has is called at the ops; here is what it
lacks: triangular solves, LU, cofactors, the matrix exponential, and failures that name the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_TRIANGULAR_BLOCK = 32
_VECTORISED_LU = 48  # largest matrix that is factored in step with the others of its batch


def transpose(a: Array) -> Array:
    """The last two axes exchanged."""
    return np.swapaxes(a, -1, -2)


def one_norm(a: Array) -> Array:
    """Largest absolute column sum of each matrix."""
    return np.abs(a).sum(-2).max(-1, initial=0)


def finite_or_identity(a: Array, lower: bool = False) -> tuple[Array, Array | None]:
    """``a`` with each matrix that has a NaN or infinity replaced by the identity, and which those are (None: none are).

    LAPACK's iterations need not end on them, and its answers to them are arbitrary.
    lower: the upper triangle does not count.
    """
    if np.isfinite(a).all():
        return a, None
    bad = np.asarray(~np.isfinite(np.tril(a) if lower else a).all((-1, -2)))
    return np.where(bad[..., None, None], np.eye(*a.shape[-2:], dtype=a.dtype), a), bad


def filled_with_nan(results: tuple[Array, ...], bad: Array | None) -> tuple[Array, ...]:
    """``results`` with NaN where the batch index is ``bad``."""
    if bad is None:
        return results
    return tuple([np.where(bad.reshape(bad.shape + (1,) * (r.ndim - bad.ndim)), np.nan, r) for r in results])


def each(function: Callable[..., Array], fail: Callable[[tuple[int, ...]], None], *arrays: Array) -> Array:
    """``function`` of all matrices together, or, where one makes it fail, one by one.

    fail: called with the batch index of a failing matrix; if it returns, or the matrix has a NaN, that result is NaN.
    """
    try:
        return function(*arrays)
    except np.linalg.LinAlgError:
        pass
    shape = arrays[-1].shape
    result = np.empty(shape, arrays[-1].dtype)
    for index in np.ndindex(shape[:-2]):
        try:
            result[index] = function(*[a[index] for a in arrays])
        except np.linalg.LinAlgError:
            if np.isfinite(np.tril(arrays[0][index])).all():
                fail(index)
            result[index] = np.nan
    return result


# -- triangular solves -------------------------------------------------------------------------------------------------


def solve_upper(a: Array, b: Array) -> Array:
    """X with ``a @ X = b``, of an upper triangular ``a`` (below the diagonal nothing is read): halves, then blocks.

    A zero on the diagonal divides by 0. A block is given to the general solver, whose factorisation of a triangular
    matrix is the matrix itself, so that what remains is back substitution, batched in C.
    """
    n = a.shape[-1]
    if n <= _TRIANGULAR_BLOCK:
        block = np.triu(a)
        if (np.diagonal(block, axis1=-2, axis2=-1) == 0).any():
            return _substitute(block, b)
        return np.linalg.solve(block, b)
    half = (n // 2 + _TRIANGULAR_BLOCK - 1) // _TRIANGULAR_BLOCK * _TRIANGULAR_BLOCK
    bottom = solve_upper(a[..., half:, half:], b[..., half:, :])
    top = solve_upper(a[..., :half, :half], b[..., :half, :] - a[..., :half, half:] @ bottom)
    return np.concatenate([top, bottom], -2)


def _substitute(a: Array, b: Array) -> Array:
    """Back substitution row by row, dividing by whatever is on the diagonal."""
    x = b.copy()
    for row in range(a.shape[-1] - 1, -1, -1):
        x[..., row, :] = (x[..., row, :] - (a[..., row, None, row + 1 :] @ x[..., row + 1 :, :])[..., 0, :]) / (
            a[..., row, row, None]
        )
    return x


def solve_triangular(a: Array, b: Array, lower: bool, transposed: bool, unit_diagonal: bool) -> Array:
    """X with ``a @ X = b`` (``a.T @ X = b`` if ``transposed``), reading one triangle of ``a``."""
    if unit_diagonal:
        a = a.copy()
        n = a.shape[-1]
        a[..., np.arange(n), np.arange(n)] = 1
    if transposed:
        a, lower = transpose(a), not lower
    if not lower:
        return solve_upper(a, b)
    return solve_upper(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]


# -- LU ----------------------------------------------------------------------------------------------------------------


def lu(a: Array) -> tuple[Array, Array]:
    """Factors of each matrix with partial pivoting: L (its unit diagonal left out) and U in one array, and the row
    that each row was exchanged with, in order (LAPACK's getrf, counting from 0)."""
    rows, columns = a.shape[-2:]
    count = min(rows, columns)
    factors = np.ascontiguousarray(a).reshape(math.prod(a.shape[:-2]), rows, columns).copy()
    pivots = np.zeros((len(factors), count), np.int64)
    if max(rows, columns) <= _VECTORISED_LU and len(factors) >= 8:
        _lu_in_step(factors, pivots)
    else:
        from scipy.linalg.lapack import get_lapack_funcs

        (getrf,) = get_lapack_funcs(("getrf",), dtype=a.dtype)
        for index in range(len(factors) if count else 0):
            factors[index], pivots[index], _ = getrf(factors[index])
    return factors.reshape(a.shape), pivots.reshape(*a.shape[:-2], count)


def _lu_in_step(factors: Array, pivots: Array) -> None:
    """Right-looking elimination, one column of all matrices at a time, in place."""
    every = np.arange(len(factors))
    for step in range(pivots.shape[-1]):
        row = np.argmax(np.abs(factors[:, step:, step]), -1) + step
        pivots[:, step] = row
        chosen = factors[every, row]
        factors[every, row] = factors[:, step]
        factors[:, step] = chosen
        pivot = factors[:, step, step]
        below = factors[:, step + 1 :, step] / np.where(pivot == 0, 1, pivot)[:, None]
        factors[:, step + 1 :, step] = below
        factors[:, step + 1 :, step + 1 :] -= below[:, :, None] * factors[:, step, None, step + 1 :]


def permutation(pivots: Array, rows: int) -> Array:
    """The order into which exchanging with ``pivots`` brings the rows: ``a[order] = L @ U``."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(rows), (len(flat), 1))
    every = np.arange(len(flat))
    for step in range(flat.shape[-1]):
        chosen = order[every, flat[:, step]]
        order[every, flat[:, step]] = order[:, step]
        order[:, step] = chosen
    return order.reshape(*pivots.shape[:-1], rows)


# -- cofactors ---------------------------------------------------------------------------------------------------------


def _decomposed(a: Array) -> tuple[Array, Array, Array, Array]:
    """U, s and V' of the singular value decomposition, and ``det(U) det(V)``, which is 1 or -1."""
    u, s, vh = np.linalg.svd(a)
    return u, s, vh, (np.linalg.slogdet(u)[0] * np.linalg.slogdet(vh)[0])[..., None, None]


def _products_before_and_after(s: Array) -> tuple[Array, Array]:
    """For each element, the products of those before it and of those after it along the last axis."""
    ones = np.ones_like(s[..., :1])
    before = np.concatenate([ones, np.cumprod(s, -1)[..., :-1]], -1)
    after = np.concatenate([np.cumprod(s[..., ::-1], -1)[..., ::-1][..., 1:], ones], -1)
    return before, after


def cofactors(a: Array) -> Array:
    """The derivative of the determinant by each element, ``det(a) * inv(a).T`` where there is an inverse.

    With ``a = U diag(s) V'`` it is ``det(U) det(V) U diag(product of the other s) V'``: no division, so it is right
    for singular matrices too.
    """
    u, s, vh, sign = _decomposed(a)
    before, after = _products_before_and_after(s)
    return sign * (u * (before * after)[..., None, :]) @ vh


def cofactors_tangent(a: Array, tangent: Array) -> Array:
    """The derivative of :func:`cofactors` along ``tangent``; no division either.

    For ``diag(s)`` along B it is ``diag(Q diag(B)) - Q * B'``, where ``Q[i, j]`` is the product of the s other than
    ``s[i]`` and ``s[j]``, and 0 for i = j.
    """
    u, s, vh, sign = _decomposed(a)
    n = s.shape[-1]
    before, after = _products_before_and_after(s)
    between = np.zeros((*s.shape, n), s.dtype)  # product of those strictly between row and column
    for column in range(1, n):
        between[..., : column - 1, column] = between[..., : column - 1, column - 1] * s[..., column - 1, None]
        between[..., column - 1, column] = 1
    upper = before[..., :, None] * between * after[..., None, :]
    others = upper + transpose(upper)
    turned = transpose(u) @ tangent @ transpose(vh)
    inner = -others * transpose(turned)
    diagonal = np.arange(n)
    inner[..., diagonal, diagonal] = (others @ turned[..., diagonal, diagonal, None])[..., 0]
    return sign * (u @ inner @ vh)


# -- the matrix exponential --------------------------------------------------------------------------------------------

_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)
_THETA = 4.25
_ROUNDING = float(np.finfo(np.float64).eps) / 2
_ERROR_COEFFICIENT = 1 / 113250775606021113483283660800000000.0  # of |A|**27 in the backward error


def expm(a: Array) -> Array:
    """The exponential of each float64 matrix: scaling and squaring with the [13/13] Pade approximant.

    The scaling is chosen by norms of powers (Al-Mohy and Higham, A New Scaling and Squaring Algorithm for the Matrix
    Exponential, 2009).
    """
    n = a.shape[-1]
    if a.size == 0:
        return a.copy()
    a, bad = finite_or_identity(a)
    # Powers of a matrix of norm at most 1, so that none overflows.
    halvings = np.maximum(np.ceil(np.log2(np.maximum(one_norm(a), 1))), 0)
    a = a * np.exp2(-halvings)[..., None, None]
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    d6, d8, d10 = one_norm(a6) ** (1 / 6), one_norm(a4 @ a4) ** (1 / 8), one_norm(a4 @ a6) ** (1 / 10)
    eta = np.minimum(np.maximum(d6, d8), np.maximum(d8, d10))
    tiny = np.finfo(np.float64).tiny
    squarings = np.maximum(np.ceil(np.log2(np.maximum(eta, tiny) / _THETA) + halvings), 0)
    squarings += _more_squarings(a, halvings - squarings)
    scale = np.exp2(halvings - squarings)[..., None, None]
    a, a2, a4, a6 = a * scale, a2 * scale**2, a4 * scale**4, a6 * scale**6
    b = _PADE
    identity = np.eye(n)
    odd = a @ (
        a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * identity
    )
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * identity
    result = np.linalg.solve(even - odd, even + odd)
    for step in range(int(squarings.max())):
        active = squarings > step
        result[active] = result[active] @ result[active]
    return filled_with_nan((result,), bad)[0]


def _more_squarings(a: Array, exponent: Array) -> Array:
    """How many more halvings the backward error of ``2**exponent * a`` asks for (the paper's ell)."""
    size = np.abs(a) * np.exp2(exponent)[..., None, None]
    norm = one_norm(size)
    more = np.zeros_like(norm)
    # Of a smaller norm, |A|**27 cannot be large enough.
    large = norm**26 * _ERROR_COEFFICIENT > _ROUNDING
    if large.any():
        size, norm = size[large], norm[large]
        sums = np.ones((len(size), 1, a.shape[-1]))
        for _ in range(27):
            sums = sums @ size
        error = sums.max((-1, -2)) / norm * _ERROR_COEFFICIENT / _ROUNDING
        more[large] = np.maximum(np.ceil(np.log2(np.maximum(error, 1)) / 26), 0)
    return more


def expm_tangent(a: Array, tangent: Array) -> Array:
    """The derivative of the exponential at ``a`` along ``tangent``.

    It is the upper right block of the exponential of ``[[a, tangent], [0, a]]`` (Najfeld and Havel, Derivatives of the
    Matrix Exponential and Their Computation, 1995).
    """
    n = a.shape[-1]
    if a.size == 0:
        return tangent.copy()
    # It is linear in the tangent, whose size must not decide about the scaling.
    size = one_norm(tangent)[..., None, None]
    size = np.where((size == 0) | ~np.isfinite(size), 1, size)
    block = np.zeros((*a.shape[:-2], 2 * n, 2 * n))
    block[..., :n, :n] = block[..., n:, n:] = a
    block[..., :n, n:] = tangent / size
    return expm(block)[..., :n, n:] * size
