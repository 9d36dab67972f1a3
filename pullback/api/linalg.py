"""Linear algebra of matrices in the last two axes; all other axes are batch axes.

Computed by LAPACK in float32 or float64; float16 and bfloat16 in float32 and rounded; integers and bools are taken as
the default float dtype. Operands of fewer than two axes, and where a square matrix is needed others, raise ShapeError.
What only fails on a matrix's values (a singular one has no inverse) raises LinAlgError when it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError
from ..graph.node import Node
from ..ops import determinant, leaf, linalg, spectral
from ..ops import elementwise as ops
from ..ops import movement as move
from ..ops import reduction as fold
from ..shapes import as_number, broadcast_shapes, size_of
from ..tensor import Tensor
from .contraction import matmul_node
from .convert import ArrayLike, as_node, cast_node, floating, promote

_HALF = (dtypes.float16, dtypes.bfloat16)


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """``U @ diag(S) @ Vh``, S in descending order."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class QRResult(NamedTuple):
    """``Q @ R``: orthonormal columns times an upper triangle."""

    Q: Tensor
    R: Tensor


class LUResult(NamedTuple):
    """``P @ L @ U``: a permutation, a unit lower and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class SlogdetResult(NamedTuple):
    """The determinant is ``sign * exp(logabsdet)``."""

    sign: Tensor
    logabsdet: Tensor


class LstsqResult(NamedTuple):
    """The solution of least norm, the sums of squared residuals, the rank, and the singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# -- operands ----------------------------------------------------------------------------------------------------------


def wide(node: Node) -> Node:
    """``node`` as float32 or float64."""
    node = floating(node)
    return cast_node(node, dtypes.float32) if node.dtype in _HALF else node


def check_shape(node: Node, op: str, square: bool) -> None:
    """ShapeError unless ``node`` holds matrices (square ones)."""
    if len(node.shape) < 2:
        raise ShapeError(f"{op}: a matrix in the last two axes expected, got shape {node.shape}")
    if square and node.shape[-1] != node.shape[-2]:
        raise ShapeError(
            f"{op}: a square matrix in the last two axes expected, got {node.shape[-2]}x{node.shape[-1]} "
            f"(shape {node.shape})"
        )


def operand(x: ArrayLike, op: str, square: bool = False) -> tuple[Node, DType]:
    """The matrices in the dtype to compute in, and the dtype of the result. Empty ones carry no derivative."""
    node = floating(x.node if isinstance(x, Tensor) else as_node(x, None, op))
    check_shape(node, op, square)
    dtype = node.dtype
    node = wide(node)
    return ops.stop_gradient(node) if 0 in node.shape else node, dtype


def _symmetric(node: Node) -> Node:
    """``node``, of which an op will read the lower triangle, with the gradient of a symmetric matrix: half to each of
    two mirrored elements. What stands above the diagonal may be anything; a NaN or infinity there has gradient 0."""
    still = ops.stop_gradient(node)
    zero = ops.where(ops.isfinite(still), ops.subtract(node, still), 0)
    return ops.add(still, ops.multiply(ops.add(zero, linalg.mt(zero)), 0.5))


def _paired(a: Node, b: Node, op: str) -> tuple[Node, Node]:
    """Both with the same batch axes."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2], op=op)
    return move.broadcast_to(a, (*lead, *a.shape[-2:])), move.broadcast_to(b, (*lead, *b.shape[-2:]))


def _shared(a: Node, b: Node) -> Node | None:
    """The columns of all matrices of ``b`` in one matrix, if ``a`` is one matrix for them all."""
    if len(a.shape) != 2 or len(b.shape) < 3:
        return None
    lead = len(b.shape) - 2
    moved = move.permute(b, (lead, *range(lead), lead + 1))
    return move.reshape(moved, (b.shape[-2], size_of(b.shape[:-2]) * b.shape[-1]))


def _unshared(x: Node, b: Node) -> Node:
    """What undoes :func:`_shared`."""
    lead = len(b.shape) - 2
    split = move.reshape(x, (x.shape[0], *b.shape[:-2], b.shape[-1]))
    return move.permute(split, (*range(1, lead + 1), 0, lead + 1))


# -- factorisations ----------------------------------------------------------------------------------------------------


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with ``L @ L.T = x``, or the upper triangular U with ``U.T @ U = x``.

    x: symmetric and positive definite, else LinAlgError is raised when it is computed. Only its lower (``upper``: its
    upper) triangle is read; its gradient is symmetric.
    """
    node, dtype = operand(x, "cholesky", square=True)
    factor = linalg.cholesky(_symmetric(linalg.mt(node) if upper else node))
    return Tensor(cast_node(linalg.mt(factor) if upper else factor, dtype))


def qr(x: ArrayLike, /, mode: str = "reduced") -> QRResult | Tensor:
    """``x = Q @ R`` with orthonormal columns in Q and an upper triangular R.

    mode: "reduced": Q is m x k and R k x n, with k = min(m, n); "complete": Q is m x m and R m x n; "r": R (k x n)
    alone. Derivatives need the first k columns of x to be independent. In "complete" mode, the columns of Q beyond
    n are any basis of the rest; functions that do not depend on the choice have right gradients.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    node, dtype = operand(x, "qr")
    q, r = spectral.qr_parts(spectral.qr(node, mode == "complete"))
    if mode == "r":
        return Tensor(cast_node(r, dtype))
    return QRResult(Tensor(cast_node(q, dtype)), Tensor(cast_node(r, dtype)))


def lu(x: ArrayLike, /) -> LUResult:
    """``x = P @ L @ U`` by partial pivoting: P a permutation matrix (m x m), L unit lower triangular (m x k), U upper
    triangular (k x n), with k = min(m, n).

    P is piecewise constant. Derivatives need the first k rows of ``P.T @ x`` to have an inverse.
    """
    node, dtype = operand(x, "lu")
    lower, upper, order = linalg.lu_parts(linalg.lu(node))
    m = node.shape[-2]
    rows = leaf.iota((m, m), 0, dtypes.int64)
    permutation = ops.cast(ops.equal(rows, linalg.row(order)), dtype)
    return LUResult(Tensor(permutation), Tensor(cast_node(lower, dtype)), Tensor(cast_node(upper, dtype)))


def eigh(x: ArrayLike, /, UPLO: str = "L") -> EighResult:
    """Eigenvalues (ascending) and orthonormal eigenvectors (columns) of a symmetric matrix.

    UPLO: "L" or "U", the triangle of x that is read; the gradient is symmetric. NaN for matrices with NaN or infinity.

    Eigenvectors of equal eigenvalues are any basis of a plane. Functions that do not depend on its choice, nor on the
    vectors' signs (of the eigenvalues alone, projectors, ``V f(w) V.T``), have right first and second derivatives there
    too, and where eigenvalues differ by less than ``eps**0.6`` of the largest; others have finite ones. If the eigh is
    inside of ``checkpoint`` or a custom rule, the function of its results must be inside as well.
    """
    node, dtype = _triangle_of(x, UPLO, "eigh")
    values, vectors = spectral.eigh_parts(spectral.eigh(node), node.shape[-1])
    return EighResult(Tensor(cast_node(values, dtype)), Tensor(cast_node(vectors, dtype)))


def eigvalsh(x: ArrayLike, /, UPLO: str = "L") -> Tensor:
    """Eigenvalues of a symmetric matrix in ascending order; see :func:`eigh`."""
    node, dtype = _triangle_of(x, UPLO, "eigvalsh")
    return Tensor(cast_node(spectral.eigvalsh(node), dtype))


def _triangle_of(x: ArrayLike, uplo: str, op: str) -> tuple[Node, DType]:
    if uplo not in ("L", "U", "l", "u"):
        raise ArgumentError(f"{op}: UPLO must be 'L' or 'U', got {uplo!r}")
    node, dtype = operand(x, op, square=True)
    return _symmetric(linalg.mt(node) if uplo in "Uu" else node), dtype


def svd(x: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True) -> SVDResult | Tensor:
    """``x = U @ diag(S) @ Vh`` with orthonormal columns in U and rows in Vh, S in descending order.

    full_matrices: U is m x m and Vh n x n, else m x k and k x n, with k = min(m, n). compute_uv: False gives S alone
    (see :func:`svdvals`). NaN for matrices with NaN or infinity.

    The vectors that x does not determine, and those of equal or vanishing singular values, are any basis; functions
    that do not depend on its choice (of S alone, projectors, ``U f(S) Vh`` with odd f) have right first and second
    derivatives all the same, as those of :func:`eigh`.
    """
    if not compute_uv:
        return svdvals(x)
    node, dtype = operand(x, "svd")
    u, s, vh = spectral.svd_parts(spectral.svd(node, bool(full_matrices)))
    return SVDResult(Tensor(cast_node(u, dtype)), Tensor(cast_node(s, dtype)), Tensor(cast_node(vh, dtype)))


def svdvals(x: ArrayLike, /) -> Tensor:
    """Singular values in descending order; the gradient of one that is 0 is 0."""
    node, dtype = operand(x, "svdvals")
    return Tensor(cast_node(spectral.svdvals(node), dtype))


# -- solving -----------------------------------------------------------------------------------------------------------


def _system(
    a: ArrayLike, b: ArrayLike, op: str, square: bool, left: bool = True
) -> tuple[Node, Node, bool, DType]:
    """A matrix and the columns on the right hand side, in a dtype that LAPACK has; whether ``b`` is a vector, and the
    dtype of the result. ShapeError where they do not fit."""
    matrix, rhs = promote(a, b, op=op)
    dtype = floating(matrix).dtype
    matrix, rhs = wide(matrix), wide(rhs)
    check_shape(matrix, op, square=square)
    is_vector = len(rhs.shape) == 1
    if not rhs.shape:
        raise ShapeError(f"{op}: the right hand side needs at least one axis, got shape ()")
    extent = rhs.shape[-1] if is_vector or not left else rhs.shape[-2]
    if extent != matrix.shape[-2]:
        raise ShapeError(
            f"{op}: a matrix of shape {matrix.shape} and a right hand side of shape {rhs.shape} do not fit"
        )
    return matrix, linalg.column(rhs) if is_vector else rhs, is_vector, dtype


def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """X with ``x1 @ X = x2``, by LU with partial pivoting.

    x1: ``(..., n, n)``. x2: ``(n,)``, or ``(..., n, k)``, whose leading axes broadcast with those of x1. A singular x1
    raises LinAlgError when it is computed.
    """
    a, b, is_vector, dtype = _system(x1, x2, "solve", square=True)
    columns = _shared(a, b)
    x = _unshared(linalg.solve(a, columns), b) if columns is not None else linalg.solve(*_paired(a, b, "solve"))
    return Tensor(cast_node(move.reshape(x, x.shape[:-1]) if is_vector else x, dtype))


def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool | None = None, upper: bool | None = None, trans: bool = False,
    unit_diagonal: bool = False, left: bool = True,
) -> Tensor:
    """X with ``a @ X = b`` for a triangular matrix, by substitution.

    a: ``(..., n, n)``, of which one triangle is read: the lower if ``lower`` (or not ``upper``), else the upper.
    b: ``(n,)``, or ``(..., n, k)``, whose leading axes broadcast with those of a.
    trans: solve ``a.T @ X = b``. unit_diagonal: take the diagonal of a as ones and do not read it.
    left: False solves ``X @ a = b``, with b ``(..., k, n)``.

    A zero on the diagonal raises LinAlgError when it is computed.
    """
    if lower is not None and upper is not None and bool(lower) == bool(upper):
        raise ArgumentError(f"solve_triangular: lower={lower} and upper={upper} contradict each other")
    is_lower = bool(lower) if lower is not None else upper is not None and not upper
    matrix, rhs, is_vector, dtype = _system(a, b, "solve_triangular", square=True, left=left)
    turned = bool(trans)
    if not left and not is_vector:
        rhs = linalg.mt(rhs)
    if not left:
        turned = not turned
    columns = _shared(matrix, rhs)
    first, second = _paired(matrix, rhs, "solve_triangular") if columns is None else (matrix, columns)
    x = linalg.solve_triangular(first, second, is_lower, turned, bool(unit_diagonal), check=True)
    if columns is not None:
        x = _unshared(x, rhs)
    if is_vector:
        x = move.reshape(x, x.shape[:-1])
    elif not left:
        x = linalg.mt(x)
    return Tensor(cast_node(x, dtype))


def inv(x: ArrayLike, /) -> Tensor:
    """The inverse. A singular matrix raises LinAlgError when it is computed."""
    node, dtype = operand(x, "inv", square=True)
    return Tensor(cast_node(linalg.inv(node), dtype))


def default_rtol(node: Node) -> float:
    """The rank tolerance of the array API: the larger extent times the rounding unit."""
    return max(node.shape[-2:]) * float(np.finfo(node.dtype.numpy).eps)


def _tolerance(rtol: float | None, node: Node, op: str) -> float:
    if rtol is None:
        return default_rtol(node)
    found = float(as_number(rtol, op, "the relative tolerance"))
    if not found >= 0:
        raise ArgumentError(f"{op}: the relative tolerance must not be negative, got {rtol!r}")
    return found


def pinv(x: ArrayLike, /, *, rtol: float | None = None) -> Tensor:
    """The Moore-Penrose pseudoinverse, ``(..., n, m)`` of ``(..., m, n)``.

    rtol: singular values up to ``rtol`` times the largest count as 0; None: ``max(m, n)`` times the rounding unit. The
    derivative is that at constant rank (Golub and Pereyra, 1973).
    """
    node, dtype = operand(x, "pinv")
    return Tensor(cast_node(spectral.pinv(node, _tolerance(rtol, node, "pinv")), dtype))


def lstsq(a: ArrayLike, b: ArrayLike, /, rcond: float | None = None) -> LstsqResult:
    """X of least norm among those that minimise ``|a @ X - b|``.

    a: ``(..., m, n)``. b: ``(m,)``, or ``(..., m, k)``, whose leading axes broadcast with those of a.
    rcond: as ``rtol`` of :func:`pinv`.

    Returns the solution, the sums of squared residuals (of every column, whatever the rank), the rank (int64), and the
    singular values of a.
    """
    matrix, rhs, is_vector, dtype = _system(a, b, "lstsq", square=False)
    if 0 in matrix.shape:
        matrix = ops.stop_gradient(matrix)
    rtol = _tolerance(rcond, matrix, "lstsq")
    solution = matmul_node(spectral.pinv(matrix, rtol), rhs)
    residual = ops.subtract(rhs, matmul_node(matrix, solution))
    squares = fold.reduce_sum(ops.square(residual), (len(residual.shape) - 2,))
    values = spectral.svdvals(matrix)
    if is_vector:
        solution, squares = move.reshape(solution, solution.shape[:-1]), move.reshape(squares, squares.shape[:-1])
    return LstsqResult(
        Tensor(cast_node(solution, dtype)), Tensor(cast_node(squares, dtype)), Tensor(rank_node(values, rtol)),
        Tensor(cast_node(values, dtype)),
    )


def rank_node(values: Node, rtol: float, atol: float = 0.0) -> Node:
    """How many singular values exceed ``atol`` and ``rtol`` times the first."""
    last = len(values.shape) - 1
    if values.shape[last] == 0:
        return leaf.full(values.shape[:-1], 0, dtypes.int64)
    threshold = ops.maximum(ops.multiply(move.slice_axis(values, last, 0, 1), rtol), atol)
    return fold.reduce_sum(ops.cast(ops.greater(values, threshold), dtypes.int64), (last,))


# -- functions of a matrix ---------------------------------------------------------------------------------------------


def det(x: ArrayLike, /) -> Tensor:
    """The determinant. Its first two derivatives are exact for singular matrices too (cofactors, without division)."""
    node, dtype = operand(x, "det", square=True)
    return Tensor(cast_node(determinant.det(node), dtype))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Sign of the determinant, and the logarithm of its size (0 and -inf for a singular matrix, with gradient NaN)."""
    node, dtype = operand(x, "slogdet", square=True)
    packed = determinant.slogdet(node)
    last = len(packed.shape) - 1
    sign, logarithm = (
        Tensor(cast_node(move.reshape(move.slice_axis(packed, last, i, i + 1), node.shape[:-2]), dtype)) for i in (0, 1)
    )
    return SlogdetResult(sign, logarithm)


def expm(x: ArrayLike, /) -> Tensor:
    """The matrix exponential, by scaling and squaring with a Pade approximant (Al-Mohy and Higham, 2009)."""
    node, dtype = operand(x, "expm", square=True)
    return Tensor(cast_node(spectral.expm(node), dtype))


def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """The product of n factors ``x``, by repeated squaring; 0 gives the identity, a negative n powers of the inverse.

    Integers stay integers unless n is negative.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise ArgumentError(f"matrix_power: the exponent must be an int, got {n!r}")
    exponent = int(n)
    node = x.node if isinstance(x, Tensor) else as_node(x, None, "matrix_power")
    check_shape(node, "matrix_power", square=True)
    if exponent == 0:
        rows, columns = (leaf.iota(node.shape[-2:], axis, dtypes.int64) for axis in (0, 1))
        return Tensor(move.broadcast_to(ops.cast(ops.equal(rows, columns), node.dtype), node.shape))
    dtype = node.dtype
    if exponent < 0:
        node, dtype = operand(Tensor(node), "matrix_power", square=True)
        node = linalg.inv(node)
        exponent = -exponent
    elif dtype in _HALF:
        node = wide(node)
    result: Node | None = None
    while True:
        if exponent & 1:
            result = node if result is None else matmul_node(result, node)
        exponent >>= 1
        if not exponent:
            break
        node = matmul_node(node, node)
    return Tensor(cast_node(result, dtype))  # type: ignore[arg-type]


def multi_dot(arrays: Sequence[ArrayLike], /) -> Tensor:
    """The product of two or more matrices, in the order that costs least (the matrix chain problem).

    The first may be a vector, a row then, and the last one, a column; their axes are not in the result.
    """
    if len(arrays) < 2:
        raise ShapeError(f"multi_dot: at least two arrays expected, got {len(arrays)}")
    nodes = promote(*arrays, op="multi_dot")
    first_vector, last_vector = len(nodes[0].shape) == 1, len(nodes[-1].shape) == 1
    if first_vector:
        nodes[0] = linalg.row(nodes[0])
    if last_vector:
        nodes[-1] = linalg.column(nodes[-1])
    for position, node in enumerate(nodes):
        if len(node.shape) != 2:
            raise ShapeError(f"multi_dot: operand {position} must be a matrix, got shape {node.shape}")
    for left, right in pairwise(nodes):
        if left.shape[1] != right.shape[0]:
            raise ShapeError(f"multi_dot: shapes {left.shape} and {right.shape} do not fit")
    result = _chain(nodes)
    shape = result.shape[int(first_vector) : 2 - int(last_vector)]
    return Tensor(move.reshape(result, shape))


def _chain(nodes: list[Node]) -> Node:
    """The product, its splits found by dynamic programming over spans."""
    count = len(nodes)
    extents = [nodes[0].shape[0], *[n.shape[1] for n in nodes]]
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for span in range(1, count):
        for start in range(count - span):
            stop = start + span
            options = [
                (cost[start][k] + cost[k + 1][stop] + extents[start] * extents[k + 1] * extents[stop + 1], k)
                for k in range(start, stop)
            ]
            cost[start][stop], split[start][stop] = min(options)

    def product(start: int, stop: int) -> Node:
        if start == stop:
            return nodes[start]
        middle = split[start][stop]
        return matmul_node(product(start, middle), product(middle + 1, stop))

    return product(0, count - 1)


matrix_exp = expm
