"""Linear algebra beyond the rows: degenerate matrices, failures, kinks, scales, dtypes and shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.graph.node import topological_order
from pullback.testing import check_grads

la = pb.linalg
rng = np.random.default_rng(0)


def gradient(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    return np.asarray(pb.grad(function)(*[pb.asarray(a) for a in arrays]))


def orthogonal(n: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# -- equal eigenvalues and singular values -----------------------------------------------------------------------------

Q4 = orthogonal(4)
SPECTRA = {
    "identity": np.eye(4), "zero": np.zeros((4, 4)), "twice two": np.diag([1.0, 1, 3, 3]),
    "turned": Q4 @ np.diag([1.0, 1, 2, 3]) @ Q4.T, "three": Q4 @ np.diag([2.0, 2, 2, -1]) @ Q4.T,
    "nearly": np.diag([1, 1 + 1e-14, 2, 3]), "nearly, turned": Q4 @ np.diag([1, 1 + 1e-14, 2, 3]) @ Q4.T,
    "close": Q4 @ np.diag([1, 1 + 1e-9, 2, 3]) @ Q4.T,
}


@pytest.mark.parametrize("name", SPECTRA)
def test_functions_of_equal_eigenvalues(name: str) -> None:
    """sum f(w), trace V f(w) V' and V V' have the gradients f'(A), f'(A) and 0."""
    a = SPECTRA[name]
    w, v = np.linalg.eigh(a)
    exponential = (v * np.exp(w)) @ v.T

    def trace(x: Any) -> Any:
        values, vectors = la.eigh(x)
        return pb.trace((vectors * pb.exp(values)) @ vectors.mT)

    def identity(x: Any) -> Any:
        _, vectors = la.eigh(x)
        return pb.sum((vectors @ vectors.mT) * pb.asarray(normal(4, 4)))

    close = name == "close"
    for eigenvalues in (la.eigvalsh, lambda x: la.eigh(x)[0]):
        got = gradient(lambda x, f=eigenvalues: pb.sum(pb.exp(f(x))), a)
        np.testing.assert_allclose(got, exponential, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gradient(trace, a), exponential, atol=1e-5 if close else 1e-12)
    np.testing.assert_allclose(gradient(identity, a), np.zeros((4, 4)), atol=1e-5 if close else 1e-12)


@pytest.mark.parametrize("gap", [0.0, 1e-14])
def test_projector_on_equal_eigenvalues(gap: float) -> None:
    """The projector on a plane of equal eigenvalues is smooth: it turns only against the others."""
    w = np.array([1.0, 1 + gap, 2, 3])
    a, c = (Q4 * w) @ Q4.T, normal(4, 4)
    c = c + c.T

    def function(x: Any) -> Any:
        vectors = la.eigh(x)[1][:, :2]
        return pb.sum((vectors @ vectors.mT) * pb.asarray(c))

    turned, expected = Q4.T @ c @ Q4, np.zeros((4, 4))
    for i in range(2):
        for j in (2, 3):
            expected[i, j] = expected[j, i] = turned[i, j] / (w[i] - w[j])
    np.testing.assert_allclose(gradient(function, a), Q4 @ expected @ Q4.T, rtol=1e-12, atol=1e-13)
    direction = normal(4, 4, seed=5)
    _, tangent = pb.jvp(function, (pb.asarray(a),), (pb.asarray(direction),))
    np.testing.assert_allclose(float(tangent), np.sum(Q4 @ expected @ Q4.T * direction), rtol=1e-12)


@pytest.mark.parametrize("gap", [1e-3, 1e-6])
def test_a_function_of_a_matrix_with_close_eigenvalues(gap: float) -> None:
    """The gradient of V w**2 V', which is A @ A, is right to rounding over the gap."""
    a, c = (Q4 * [1, 1 + gap, 2, 3]) @ Q4.T, normal(4, 4)

    def function(x: Any) -> Any:
        values, vectors = la.eigh(x)
        return pb.sum(((vectors * values**2) @ vectors.mT) * pb.asarray(c))

    expected = a @ c + c @ a
    np.testing.assert_allclose(gradient(function, a), (expected + expected.T) / 2, atol=1e-14 / gap)


def _symmetrised(x: np.ndarray) -> np.ndarray:
    return (x + x.T) / 2


@pytest.mark.parametrize("name", [name for name in SPECTRA if name != "close"])
def test_functions_of_a_matrix_with_equal_eigenvalues(name: str) -> None:
    """V w**3 V' is A A A: its first and second derivatives, by all pairs of modes, though 1 / (w_j - w_i) is 1/0."""
    a, c, d, f = SPECTRA[name], normal(4, 4), _symmetrised(normal(4, 4, seed=1)), _symmetrised(normal(4, 4, seed=2))
    sc, tol = _symmetrised(c), {"rtol": 1e-11, "atol": 1e-11}
    x, along, also = pb.asarray(a), pb.asarray(d), pb.asarray(f)

    def first(e: np.ndarray) -> np.ndarray:
        return e @ a @ a + a @ e @ a + a @ a @ e

    def second(e: np.ndarray, g: np.ndarray) -> np.ndarray:
        return e @ g @ a + g @ e @ a + e @ a @ g + g @ a @ e + a @ e @ g + a @ g @ e

    def cube(x: Any) -> Any:
        values, vectors = la.eigh(x)
        return (vectors * values**3) @ vectors.mT

    def loss(x: Any) -> Any:
        return pb.sum(cube(x) * pb.asarray(c))

    def slope(x: Any) -> Any:
        return pb.jvp(loss, (x,), (along,))[1]

    np.testing.assert_allclose(np.asarray(pb.jvp(cube, (x,), (along,))[1]), first(d), **tol)
    np.testing.assert_allclose(np.asarray(pb.linearize(cube, x)[1](along)), first(d), **tol)
    np.testing.assert_allclose(np.asarray(pb.grad(loss)(x)), first(sc), **tol)
    np.testing.assert_allclose(np.asarray(pb.jit(pb.grad(loss))(x)), first(sc), **tol)
    np.testing.assert_allclose(np.asarray(pb.vmap(pb.grad(loss))(pb.stack([x, x * 2])))[0], first(sc), **tol)
    with pb.no_grad():
        np.testing.assert_allclose(np.asarray(pb.grad(loss)(x)), first(sc), **tol)
    leaf = pb.asarray(a).requires_grad_()
    loss(leaf).backward()
    np.testing.assert_allclose(np.asarray(leaf.grad), first(sc), **tol)
    for hessian in (
        lambda: pb.jvp(pb.grad(loss), (x,), (along,))[1], lambda: pb.grad(slope)(x), lambda: pb.jit(pb.grad(slope))(x),
        lambda: pb.grad(lambda x: pb.sum(pb.grad(loss)(x) * along))(x),
    ):
        np.testing.assert_allclose(np.asarray(hessian()), _symmetrised(second(sc, d)), **tol)
    np.testing.assert_allclose(float(pb.jvp(slope, (x,), (also,))[1]), np.sum(second(sc, d) * f), **tol)
    for eigenvalues in (la.eigvalsh, lambda x: la.eigh(x)[0]):
        def spectral(x: Any, f: Callable[..., Any] = eigenvalues) -> Any:
            return pb.sum(f(x) ** 3)

        for hessian in (lambda f=spectral: pb.jvp(pb.grad(f), (x,), (along,))[1],
                        lambda f=spectral: pb.grad(lambda x: pb.jvp(f, (x,), (along,))[1])(x)):
            np.testing.assert_allclose(np.asarray(hessian()), 3 * (a @ d + d @ a), **tol)


def test_a_row_of_eigendecompositions() -> None:
    """(A**2)**(1/2) is A; and of a row the graph of the gradient grows like a square, not exponentially."""
    a, c = np.diag([1.0, 2.0, 3.0]), normal(3, 3)

    def power(x: Any, exponent: float) -> Any:
        values, vectors = la.eigh(x)
        return (vectors * values**exponent) @ vectors.mT

    same = gradient(lambda x: pb.sum(power(power(x, 2), 0.5) * pb.asarray(c)), a)
    np.testing.assert_allclose(same, _symmetrised(c), rtol=1e-12)

    def size(count: int) -> int:
        def loss(x: Any) -> Any:
            for _ in range(count):
                x = power(x, 1.5)
            return pb.sum(x)

        return len(topological_order([pb.grad(loss)(pb.asarray(a)).node]))

    assert size(8) < 6 * size(4) < 36 * size(2)


def test_a_gradient_through_an_eigenvector_stays_finite_where_a_second_derivative_is_not() -> None:
    """V w**1.5 V' at 0: the second derivative of w**1.5 is infinite there, in eigenvalues that equal no other too."""
    for a in (np.diag([0.0, 1, 2]), np.diag([0.0, 0, 1])):
        def function(x: Any) -> Any:
            values, vectors = la.eigh(x)
            return pb.trace((vectors * pb.where(values > 0, values, 0.0) ** 1.5) @ vectors.mT)

        np.testing.assert_allclose(gradient(function, a), 1.5 * np.sqrt(a), atol=1e-12)


@pytest.mark.parametrize("values", [(2, 2, 1), (2, 2, 2), (3, 1, 0), (1, 0, 0), (0, 0, 0), (1, 1 + 1e-14, 0.5)])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)])
def test_equal_and_vanishing_singular_values(values: tuple[float, ...], shape: tuple[int, int]) -> None:
    u, v = orthogonal(shape[0], 1)[:, :3], orthogonal(shape[1], 2)[:, :3]
    a = (u * np.array(values, float)) @ v.T
    for function in (
        lambda x: pb.sum(la.svdvals(x) ** 2), lambda x: pb.sum(la.svd(x).S ** 2),
        lambda x: pb.sum(la.svd(x, full_matrices=False).S ** 2), lambda x: la.matrix_norm(x) ** 2,
    ):
        np.testing.assert_allclose(gradient(function, a), 2 * a, rtol=1e-12, atol=1e-13)
    nuclear = gradient(lambda x: la.matrix_norm(x, ord="nuc"), a)
    kept = np.array(values) > 0
    np.testing.assert_allclose(nuclear, u[:, kept] @ v[:, kept].T, atol=1e-12)

    def whole(x: Any) -> Any:
        left, _, right = la.svd(x)
        return pb.sum((left @ left.mT) ** 3) + pb.sum((right.mT @ right) ** 3)

    np.testing.assert_allclose(gradient(whole, a), np.zeros(shape), atol=1e-10)
    assert np.isfinite(gradient(lambda x: pb.sum(la.svd(x).U ** 3) + pb.sum(la.svd(x).Vh ** 3), a)).all()


@pytest.mark.parametrize("values", [(2, 2, 1), (2, 2, 2), (3, 1, 0), (1, 0, 0), (0, 0, 0), (1, 1 + 1e-14, 0.5)])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_functions_of_a_matrix_with_equal_and_vanishing_singular_values(
    values: tuple[float, ...], shape: tuple[int, int], full: bool
) -> None:
    """U s V' is A, and U s**3 V' is A A' A: first and second derivatives."""
    u, v = orthogonal(shape[0], 1)[:, :3], orthogonal(shape[1], 2)[:, :3]
    a, c, d = (u * np.array(values, float)) @ v.T, normal(*shape), normal(*shape, seed=1)
    x, weights, along, tol = pb.asarray(a), pb.asarray(c), pb.asarray(d), {"rtol": 1e-11, "atol": 1e-11}

    def power(x: Any, n: int) -> Any:
        left, s, right = la.svd(x, full_matrices=full)
        return (left[:, :3] * s**n) @ right[:3]

    np.testing.assert_allclose(gradient(lambda x: pb.sum(power(x, 1) * weights), a), c, **tol)
    np.testing.assert_allclose(np.asarray(pb.jvp(lambda x: power(x, 1), (x,), (along,))[1]), d, **tol)
    first = c @ a.T @ a + a @ c.T @ a + a @ a.T @ c
    np.testing.assert_allclose(gradient(lambda x: pb.sum(power(x, 3) * weights), a), first, **tol)
    tangent = np.asarray(pb.jvp(lambda x: power(x, 3), (x,), (along,))[1])
    np.testing.assert_allclose(tangent, d @ a.T @ a + a @ d.T @ a + a @ a.T @ d, **tol)
    second = np.asarray(pb.jvp(pb.grad(lambda x: pb.sum(power(x, 3) * weights)), (x,), (along,))[1])
    expected = c @ (d.T @ a + a.T @ d) + d @ c.T @ a + a @ c.T @ d + (d @ a.T + a @ d.T) @ c
    np.testing.assert_allclose(second, expected, **tol)
    quartic = np.asarray(pb.jvp(pb.grad(lambda x: pb.sum(la.svdvals(x) ** 4)), (x,), (along,))[1])
    np.testing.assert_allclose(quartic, 4 * tangent, **tol)


def test_gradients_of_symmetric_matrices_are_symmetric_and_read_one_triangle() -> None:
    a = normal(3, 3)
    a = a @ a.T + np.eye(3)
    torn = np.where(np.triu(np.ones((3, 3)), 1) > 0, np.nan, a)
    for function in (lambda x: pb.sum(la.cholesky(x) ** 3), lambda x: pb.sum(la.eigvalsh(x) ** 3),
                     lambda x: pb.sum(la.eigh(x)[1][..., 0] ** 4)):
        expected = gradient(function, a)
        np.testing.assert_allclose(expected, expected.T, rtol=1e-13)
        np.testing.assert_allclose(gradient(function, torn), np.tril(expected), rtol=1e-12)
    for function, upper in (
        (la.cholesky(pb.asarray(torn)), la.cholesky(pb.asarray(torn.T), upper=True).mT),
        (la.eigvalsh(pb.asarray(torn)), la.eigvalsh(pb.asarray(torn.T), UPLO="U")),
        (la.eigh(pb.asarray(torn))[0], la.eigh(pb.asarray(torn.T), UPLO="U")[0]),
    ):
        assert np.isfinite(np.asarray(function)).all()
        np.testing.assert_allclose(np.asarray(function), np.asarray(upper), rtol=1e-13)


# -- determinants of singular matrices ---------------------------------------------------------------------------------


def _cofactors(a: np.ndarray) -> np.ndarray:
    n = len(a)
    minors = [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)] for i in range(n)]
    return np.array(minors) * (-1.0) ** np.add.outer(np.arange(n), np.arange(n))


@pytest.mark.parametrize("rank", [4, 3, 2, 1, 0])
def test_determinant_to_third_order(rank: int) -> None:
    a = normal(4, rank, seed=1) @ normal(rank, 4, seed=2)
    expected = _cofactors(a)
    if rank < 3:
        expected = np.zeros((4, 4))
    np.testing.assert_allclose(gradient(la.det, a), expected, atol=1e-12)
    check_grads(la.det, [a], order=2, rtol=1e-7, atol=1e-8)

    def second(x: Any) -> Any:
        return pb.jvp(pb.grad(la.det), (x,), (pb.asarray(normal(4, 4, seed=3)),))[1]

    check_grads(second, [a], order=1, rtol=1e-5, atol=1e-5)


def test_determinant_of_one_number_and_of_nothing() -> None:
    assert gradient(la.det, np.zeros((1, 1))).tolist() == [[1]]
    assert float(la.det(pb.zeros((0, 0)))) == 1
    assert gradient(la.det, np.zeros((0, 0))).shape == (0, 0)
    sign, logarithm = la.slogdet(pb.zeros((2, 0, 0)))
    assert np.asarray(sign).tolist() == [1, 1]
    assert np.asarray(logarithm).tolist() == [0, 0]


def test_slogdet_of_a_masked_singular_matrix() -> None:
    stack = np.stack([np.eye(2) * 2, np.ones((2, 2))])

    def function(x: Any) -> Any:
        sign, logarithm = la.slogdet(x)
        return pb.sum(pb.where(sign == 0, 0.0, logarithm))

    expected = [np.eye(2) / 2, np.zeros((2, 2))]
    np.testing.assert_allclose(gradient(function, stack), expected)
    np.testing.assert_allclose(np.asarray(pb.jit(pb.grad(function))(pb.asarray(stack))), expected)
    hessian = np.asarray(pb.hessian(function)(pb.asarray(stack)))
    assert np.isfinite(hessian).all()
    assert not hessian[1].any()
    sign, logarithm = la.slogdet(pb.asarray(stack))
    assert np.asarray(sign).tolist() == [1, 0]
    assert np.asarray(logarithm)[1] == -math.inf


# -- failures ----------------------------------------------------------------------------------------------------------

BAD = np.stack([np.eye(3), np.ones((3, 3)) - 1, np.eye(3)])
FAILURES = {
    "cholesky": (la.cholesky, r"cholesky: the 3x3 matrix at index \[1\] of \[3, 3, 3\] is not positive definite"),
    "inv": (la.inv, r"inv: the 3x3 matrix at index \[1\] of \[3, 3, 3\] is singular .*test_linalg.py"),
    "solve": (lambda a: la.solve(a, pb.ones((3, 1), dtype=a.dtype)), r"solve: .* at index \[1\] .* is singular"),
    "solve_triangular": (lambda a: la.solve_triangular(a, pb.ones((3, 1), dtype=a.dtype)), r"index \[1\].*zero on its"),
    "matrix_power": (lambda a: la.matrix_power(a, -1), "inv: .*is singular"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_name_the_matrix(name: str) -> None:
    function, message = FAILURES[name]
    one = pb.asarray(BAD[1])
    for call in (function, pb.jit(function), pb.vmap(function)):
        with pytest.raises(pb.LinAlgError, match=message) as caught:
            np.asarray(call(pb.asarray(BAD)))
        assert isinstance(caught.value, np.linalg.LinAlgError)
    with pytest.raises(np.linalg.LinAlgError, match=r"the 3x3 matrix (is|has)"):
        np.asarray(function(one))
    assert np.isfinite(np.asarray(function(pb.asarray(BAD[:1])))).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: la.det(pb.ones((2, 3))), pb.ShapeError, r"det: a square matrix .* got 2x3 \(shape \(2, 3\)\)"),
        (lambda: la.inv(pb.ones(3)), pb.ShapeError, r"inv: .* got shape \(3,\)"),
        (lambda: la.svd(1.0), pb.ShapeError, r"svd: .* got shape \(\)"),
        (lambda: la.solve(pb.ones((2, 2)), pb.ones(3)), pb.ShapeError, r"solve: .*\(2, 2\).*\(3,\)"),
        (lambda: la.solve(pb.ones((2, 2)), 1.0), pb.ShapeError, "solve: the right hand side"),
        (lambda: la.solve(pb.ones((3, 2, 2)), pb.ones((4, 2, 1))), pb.ShapeError, "solve: .*do not broadcast"),
        (lambda: la.solve_triangular(pb.ones((2, 2)), pb.ones(2), lower=True, upper=True), pb.ArgumentError,
         "contradict"),
        (lambda: la.qr(pb.ones((2, 2)), mode="full"), pb.ArgumentError, "qr: mode must be .* got 'full'"),
        (lambda: la.eigh(pb.ones((2, 2)), UPLO="X"), pb.ArgumentError, "eigh: UPLO .* got 'X'"),
        (lambda: la.pinv(pb.ones((2, 2)), rtol=-1), pb.ArgumentError, "pinv: .*not be negative"),
        (lambda: la.matrix_power(pb.ones((2, 2)), 0.5), pb.ArgumentError, "matrix_power: .*int, got 0.5"),
        (lambda: la.matrix_rank(pb.ones((2, 2)), rtol="a"), pb.ArgumentError, "matrix_rank: rtol"),
        (lambda: la.vector_norm(pb.ones(2), ord="fro"), pb.ArgumentError, "vector_norm: ord of a vector .*'fro'"),
        (lambda: la.matrix_norm(pb.ones((2, 2)), ord=3), pb.ArgumentError, "matrix_norm: ord of a matrix .* got 3"),
        (lambda: la.matrix_norm(pb.ones((2, 2)), axis=(0, 0)), pb.ShapeError, "matrix_norm: an axis is given twice"),
        (lambda: la.norm(pb.ones((2, 2, 2)), 2), pb.ShapeError, "norm: ord=2 needs one axis or two"),
        (lambda: la.norm(pb.ones((2, 2, 2)), axis=(0, 1, 2)), pb.ShapeError, "norm: axis must name"),
        (lambda: la.vector_norm(pb.ones((0,)), ord=math.inf), pb.ShapeError, "axis 0 .* is empty"),
        (lambda: la.cond(pb.ones((0, 0))), pb.ShapeError, "cond: an empty matrix"),
        (lambda: la.cross(pb.ones(2), pb.ones(2)), pb.ShapeError, "cross: axis -1 must have 3 elements"),
        (lambda: la.multi_dot([pb.ones((2, 2))]), pb.ShapeError, "multi_dot: at least two"),
        (lambda: la.multi_dot([pb.ones((2, 3)), pb.ones((2, 3))]), pb.ShapeError, r"\(2, 3\) and \(2, 3\) do not fit"),
        (lambda: la.diagonal(pb.ones(3)), pb.ShapeError, "diagonal: at least two axes"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_nan_in_one_matrix_stays_there() -> None:
    a = np.stack([np.eye(3) * 2, np.eye(3)])
    a[1, 1, 0] = np.nan
    for function in (la.cholesky, la.eigvalsh, la.svdvals, la.expm, la.pinv, lambda x: la.eigh(x)[1], la.det,
                     lambda x: la.svd(x)[0], lambda x: la.qr(x)[0]):
        result = np.asarray(function(pb.asarray(a)))
        assert np.isfinite(result[0]).all()
        assert np.isnan(result[1]).any()
    a[1, 1, 0] = np.inf
    assert np.isnan(np.asarray(la.eigvalsh(pb.asarray(a)))[1]).all()


# -- norms -------------------------------------------------------------------------------------------------------------


def test_norms_at_zero_have_gradient_zero() -> None:
    for order in (2, 1, 3, 0.5, -1, math.inf, 0):
        for function in (lambda x, p=order: la.vector_norm(x, ord=p), lambda x, p=order: la.norm(x, p)):
            assert gradient(function, np.zeros(3)).tolist() == [0, 0, 0]
            assert np.asarray(pb.hessian(function)(pb.zeros(3))).tolist() == np.zeros((3, 3)).tolist()
    for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        assert not gradient(lambda x, p=order: la.matrix_norm(x, ord=p), np.zeros((2, 3))).any()
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(gradient(lambda x: pb.sum(pb.norm(x, axis=1)), rows), [[0.6, 0.8], [0, 0]])


def test_ties_share_the_gradient() -> None:
    assert gradient(lambda x: la.vector_norm(x, ord=math.inf), np.array([2.0, -2, 1])).tolist() == [0.5, -0.5, 0]
    assert gradient(lambda x: la.vector_norm(x, ord=-math.inf), np.array([1.0, -1, 2])).tolist() == [0.5, -0.5, 0]
    got = gradient(lambda x: la.matrix_norm(x, ord=1), np.array([[1.0, 1], [-1, 1]]))
    assert got.tolist() == [[0.5, 0.5], [-0.5, 0.5]]
    np.testing.assert_allclose(gradient(lambda x: la.matrix_norm(x, ord=2), np.eye(2)), np.eye(2) / 2, atol=1e-15)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "scale"), [
    ("float64", 1e200), ("float64", 1e-200), ("float64", 1e300), ("float64", 1e-300),
    ("float32", 1e19), ("float32", 1e-19), ("float32", 1e30), ("float32", 1e-30),
])
def test_norms_neither_overflow_nor_vanish(dtype: str, scale: float, compiled: bool) -> None:
    """Value, gradient, and second derivative: 1/|x| less the direction's square."""
    x = (np.array([3.0, -4.0, 0.0]) * scale).astype(dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    wrap: Callable[..., Any] = pb.jit if compiled else lambda f: f
    unit = np.array([0.6, -0.8, 0])
    np.testing.assert_allclose(np.asarray(wrap(pb.norm)(pb.asarray(x))), 5 * scale, rtol=rtol)
    np.testing.assert_allclose(np.asarray(wrap(pb.grad(pb.norm))(pb.asarray(x))), unit, rtol=rtol)
    second = np.asarray(wrap(pb.hessian(pb.norm))(pb.asarray(x))).astype(float) * scale
    np.testing.assert_allclose(second, (np.eye(3) - np.outer(unit, unit)) / 5, rtol=rtol, atol=rtol)
    cube = lambda x: la.vector_norm(x, ord=3)  # noqa: E731
    np.testing.assert_allclose(np.asarray(wrap(cube)(pb.asarray(x))), 91 ** (1 / 3) * scale, rtol=rtol)
    expected = np.array([9, -16, 0]) / 91 ** (2 / 3)
    np.testing.assert_allclose(np.asarray(wrap(pb.grad(cube))(pb.asarray(x))), expected, rtol=rtol)


def test_norms_of_infinities_and_nan() -> None:
    for order in (1, 2, 3, math.inf):
        norm = lambda x, p=order: float(la.vector_norm(pb.asarray(x), ord=p))  # noqa: E731
        assert norm([1.0, -math.inf]) == math.inf
        assert math.isnan(norm([1.0, math.nan]))
    assert float(la.vector_norm(pb.asarray([1.0, math.inf]), ord=-1)) == 1
    assert float(la.vector_norm(pb.asarray([1.0, 0.0]), ord=-1)) == 0


def test_a_masked_norm_has_a_gradient() -> None:
    def function(x: Any) -> Any:
        return pb.sum(pb.where(pb.any(pb.isnan(x), axis=1), 0.0, pb.norm(x, axis=1)))

    x = np.array([[3.0, 4.0], [np.nan, 1.0]])
    np.testing.assert_allclose(gradient(function, x), [[0.6, 0.8], [0, 0]])
    _, tangent = pb.jvp(function, (pb.asarray(x),), (pb.asarray([[1.0, 0.0], [0.0, 0.0]]).astype(pb.float64),))
    np.testing.assert_allclose(float(tangent), 0.6)


def test_condition_numbers_of_singular_matrices_are_infinite() -> None:
    stack = np.stack([np.diag([1.0, 2.0]), np.diag([1.0, 0.0])])
    for order in (None, 1, "fro", math.inf):
        got = np.asarray(la.cond(pb.asarray(stack), order))
        np.testing.assert_allclose(got, np.linalg.cond(stack, order))
        assert got[1] == math.inf

        def masked(x: Any, p: Any = order) -> Any:
            value = la.cond(x, p)
            return pb.sum(pb.where(pb.isfinite(value), value, 0.0))

        assert np.isfinite(gradient(masked, stack)).all()


# -- scales ------------------------------------------------------------------------------------------------------------


def _projected(x: Any) -> Any:
    vectors = la.eigh((x + x.mT) / 2)[1]
    return vectors[:, :1] @ vectors[:, :1].mT


HOMOGENEOUS: dict[str, tuple[Callable[..., Any], int]] = {
    "eigh": (_projected, 0), "eigvalsh": (lambda x: la.eigvalsh((x + x.mT) / 2), 1), "svdvals": (la.svdvals, 1),
    "svd": (lambda x: la.svd(x).U @ la.svd(x).Vh, 0), "inv": (la.inv, -1), "pinv": (lambda x: la.pinv(x[:, :2]), -1),
    "q": (lambda x: la.qr(x).Q, 0), "r": (lambda x: la.qr(x).R, 1), "l": (lambda x: la.lu(x).L, 0),
    "u": (lambda x: la.lu(x).U, 1), "slogdet": (lambda x: la.slogdet(x)[1], 0),
    "solve": (lambda x: la.solve(x, pb.ones(3, dtype=x.dtype)), -1), "nuc": (lambda x: la.matrix_norm(x, ord="nuc"), 1),
    "lstsq": (lambda x: la.lstsq(x, pb.ones(3, dtype=x.dtype))[0], -1), "cond": (la.cond, 0),
}


@pytest.mark.parametrize("scale", [1e19, 1e-19])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_scaled_inputs(name: str, dtype: str, scale: float) -> None:
    """f(s x) = s**p f(x), so the gradient at s x of f / s**(p - 1) is that at x."""
    function, power = HOMOGENEOUS[name]
    x = normal(3, 3, seed=4).astype(dtype)
    value, pull = pb.vjp(function, pb.asarray(x))
    cotangent = normal(*value.shape, seed=5).astype(dtype)
    large, pull_large = pb.vjp(function, pb.asarray(x * np.asarray(scale, dtype)))
    rtol = 1e-3 if dtype == "float32" else 1e-11
    if name != "slogdet":
        np.testing.assert_allclose(np.asarray(large, float) / scale**power, np.asarray(value), rtol=rtol, atol=rtol)
    # Half of the factor before and half after, so that float32 can hold both.
    factor = scale ** (1 - power)
    before = scale if power < 0 else 1.0
    got = np.asarray(pull_large(pb.asarray(cotangent * np.asarray(before, dtype)))[0], float) * (factor / before)
    np.testing.assert_allclose(got, np.asarray(pull(pb.asarray(cotangent))[0]), rtol=rtol, atol=rtol)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_triangular_solves_of_every_size(n: int, lead: tuple[int, ...]) -> None:
    a = normal(*lead, n, n, seed=n) / n + 2 * np.eye(n)
    b = normal(*lead, n, 3)
    for lower in (False, True):
        for trans in (False, True):
            triangle = np.tril(a) if lower else np.triu(a)
            expected = np.linalg.solve(np.swapaxes(triangle, -1, -2) if trans else triangle, b)
            got = la.solve_triangular(pb.asarray(a), pb.asarray(b), lower=lower, trans=trans)
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (20, 5, 4), (20, 4, 5), (60, 60), (2, 60, 50), (9, 1, 1), (8, 3, 3)])
def test_lu_of_every_size(shape: tuple[int, ...]) -> None:
    a = normal(*shape)
    if shape == (8, 3, 3):
        a[:, :, 1] = a[:, :, 0]  # a zero pivot
    p, lower, upper = (np.asarray(x) for x in la.lu(pb.asarray(a)))
    np.testing.assert_allclose(p @ lower @ upper, a, rtol=1e-12, atol=1e-13)
    assert (np.abs(lower) <= 1).all()
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_array_equal(upper, np.triu(upper))
    np.testing.assert_array_equal(p.sum(-1), np.ones(shape[:-1]))


@pytest.mark.parametrize("scale", [0, 1e-9, 0.1, 1, 5, 30, 100])
def test_expm_against_scipy(scale: float) -> None:
    scipy_linalg = pytest.importorskip("scipy.linalg")
    a = normal(6, 5, 5) * scale
    np.testing.assert_allclose(np.asarray(la.expm(pb.asarray(a))), scipy_linalg.expm(a), rtol=1e-9)
    nilpotent = np.triu(np.full((4, 4), 1e6 * scale), 1)
    np.testing.assert_allclose(np.asarray(la.expm(pb.asarray(nilpotent))), scipy_linalg.expm(nilpotent), rtol=1e-12)
    decaying = -np.diag([1.0, 10, 100]) * scale
    expected = np.diag(np.exp(np.diag(decaying)))
    np.testing.assert_allclose(np.asarray(la.expm(pb.asarray(decaying))), expected, rtol=1e-12)


def test_numpy_agrees() -> None:
    a, tall = normal(2, 4, 4), normal(6, 3)
    b = normal(6, 2)
    x = pb.asarray(a)
    for name in ("inv", "det", "cond", "matrix_rank", "svdvals"):
        np.testing.assert_allclose(np.asarray(getattr(la, name)(x)), getattr(np.linalg, name)(a), rtol=1e-11)
    solution, residuals, rank, values = la.lstsq(pb.asarray(tall), pb.asarray(b))
    expected = np.linalg.lstsq(tall, b, rcond=None)
    for got, want in zip((solution, residuals, rank, values), expected):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-11)
    for order in (None, 1, -1, 2, -2, math.inf, -math.inf, 0, 3):
        np.testing.assert_allclose(float(la.norm(pb.asarray(tall[:, 0]), order)), np.linalg.norm(tall[:, 0], order))
    for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        np.testing.assert_allclose(float(la.norm(pb.asarray(tall), order)), np.linalg.norm(tall, order))
    chain = [normal(3, 50), normal(50, 2), normal(2, 40), normal(40, 4)]
    np.testing.assert_allclose(np.asarray(la.multi_dot(chain)), np.linalg.multi_dot(chain), rtol=1e-11)
    assert la.matrix_power(pb.asarray([[1, 1], [1, 0]]), 50).tolist()[0][1] == 12586269025


# -- dtypes and layouts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    a = pb.asarray([[4, 1], [1, 3]]).astype(dtype) if dtype != "bool" else pb.asarray([[True, False], [True, True]])
    expected = pb.get_default_dtype() if dtype in ("int32", "bool") else a.dtype
    results: list[Any] = [
        la.inv(a), la.det(a), *la.slogdet(a), *la.eigh(a), *la.svd(a), *la.qr(a), *la.lu(a), la.pinv(a), la.expm(a),
        la.solve(a, a), la.solve_triangular(a, a), la.norm(a), la.cond(a), la.matrix_norm(a, ord="nuc"),
        la.matrix_power(a, -2), la.lstsq(a, a)[0], la.vector_norm(a, ord=3), la.cond(a, 1), la.cholesky(a),
    ]
    assert {x.dtype for x in results} == {expected}
    if expected.itemsize >= 4:
        reference = np.asarray(a, np.float64)
        np.testing.assert_allclose(np.asarray(la.inv(a)), np.linalg.inv(reference), rtol=1e-5)
    elif dtype == "float16":
        np.testing.assert_allclose(np.asarray(la.inv(a), np.float64), np.linalg.inv([[4, 1], [1, 3]]), rtol=1e-3)
        got = pb.grad(lambda x: la.det(x))(a)
        assert got.dtype == a.dtype
        np.testing.assert_allclose(np.asarray(got, np.float64), [[3, -1], [-1, 4]])


def test_mixed_operands_are_promoted() -> None:
    a, b = pb.asarray(np.eye(2, dtype=np.float32)), pb.asarray(np.ones(2))
    assert la.solve(a, b).dtype == pb.float64
    assert la.solve(pb.asarray([[2, 0], [0, 4]]), pb.asarray([2, 4])).tolist() == [1, 1]


def test_layouts() -> None:
    a = normal(4, 4)
    for view in (a.T, a[::-1], a[:, ::-1], np.asfortranarray(a), a.astype(">f8"), np.broadcast_to(a, (2, 4, 4))):
        np.testing.assert_allclose(np.asarray(la.inv(pb.asarray(view))), np.linalg.inv(view), rtol=1e-11)
    x = pb.asarray(a)
    np.testing.assert_allclose(np.asarray(la.inv(x.mT)), np.linalg.inv(a.T), rtol=1e-11)
    np.testing.assert_allclose(np.asarray(pb.jit(lambda x: la.det(x.mT * 2))(x)), np.linalg.det(a.T * 2), rtol=1e-11)


def test_empty_batches_and_matrices() -> None:
    for shape in ((0, 3, 3), (2, 0, 0), (0, 0, 0)):
        x = pb.zeros(shape)
        lead, n = shape[:-2], shape[-1]
        for function in (la.inv, la.cholesky, la.expm, la.pinv, lambda x: la.solve(x, x), lambda x: la.lu(x)[2],
                         lambda x: la.solve_triangular(x, x), lambda x: la.eigh(x)[1], lambda x: la.svd(x)[0],
                         lambda x: la.qr(x)[0], lambda x: la.matrix_power(x, 3), lambda x: la.qr(x, "complete")[1]):
            assert np.asarray(function(x)).shape == shape
            assert gradient(lambda x, f=function: pb.sum(f(x)), np.zeros(shape)).shape == shape
        for function in (la.det, lambda x: la.slogdet(x)[1], la.matrix_rank, la.matrix_norm):
            assert np.asarray(function(x)).shape == lead
        assert np.asarray(la.eigvalsh(x)).shape == np.asarray(la.svdvals(x)).shape == (*lead, n)
    u, s, vh = la.svd(pb.zeros((2, 3, 0)))
    assert (u.shape, s.shape, vh.shape) == ((2, 3, 3), (2, 0), (2, 0, 0))
    np.testing.assert_array_equal(np.asarray(u)[0], np.eye(3))
    assert float(la.vector_norm(pb.zeros((0,)))) == 0


def test_results_are_named_and_pass_through_transforms() -> None:
    x = pb.asarray(normal(3, 3))
    result = pb.jit(la.svd)(x)
    assert isinstance(result, type(la.svd(x)))
    assert result._fields == ("U", "S", "Vh")
    np.testing.assert_allclose(np.asarray(result.U * result.S @ result.Vh), np.asarray(x), rtol=1e-12, atol=1e-13)
    assert la.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert la.slogdet(x)._fields == ("sign", "logabsdet")
    assert la.qr(x)._fields == ("Q", "R")
    per_example = pb.vmap(pb.grad(pb.jit(lambda a: la.slogdet(a)[1])))(pb.asarray(normal(4, 3, 3)))
    np.testing.assert_allclose(np.asarray(per_example), np.linalg.inv(normal(4, 3, 3)).swapaxes(-1, -2), rtol=1e-10)


def test_a_shared_matrix_is_factored_once() -> None:
    """A batch of right hand sides for one matrix becomes columns of one solve."""
    from pullback.graph.graph import graph_of

    text = str(graph_of(lambda a, b: la.solve(a, b))(pb.asarray(np.eye(3)), pb.asarray(normal(7, 3, 2))))
    assert "float64[3,14]" in text.replace(" ", "")
