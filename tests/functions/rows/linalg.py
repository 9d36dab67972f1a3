"""Linear algebra. Symmetric operands are made symmetric inside the function: elsewhere its triangle alone is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from tests.functions.row import Row, integers, normal, spread

ROWS: list[Row] = []
la = pb.linalg
INF = np.inf


def row(name: str, function: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    if isinstance(options.get("torch"), str):
        options["torch"] = _named(options["torch"])
    ROWS.append(Row(f"linalg.{name}", function, arrays, **options))


def _named(name: str) -> Callable[[Any], Callable[..., Any]]:
    return lambda torch: getattr(torch.linalg, name)


def positive(x: Any) -> Any:
    """A positive definite matrix made of ``x``, of tensors of this package or of torch."""
    eye = np.eye(x.shape[-1])
    if isinstance(x, pb.Tensor):
        return x @ x.mT + pb.asarray(eye)
    return x @ x.mT + x.new_tensor(eye)


def symmetric(x: Any) -> Any:
    return (x + x.mT) / 2


def projectors(values: Any, vectors: Any) -> Any:
    """What does not depend on the signs of the vectors in the columns."""
    return values, vectors[..., :, None, :] * vectors[..., None, :, :]


SQUARE, STACK = normal(3, 3, seed=1), normal(2, 4, 4, seed=2)
TALL, WIDE, TALLS = normal(5, 3, seed=3), normal(3, 5, seed=4), normal(2, 2, 4, 3, seed=5)
ONE = np.array([[0.8]])

# -- factorisations ----------------------------------------------------------------------------------------------------

for note, array in {"": SQUARE, "stack": STACK, "one": ONE}.items():
    row("cholesky", lambda x: la.cholesky(positive(x)), array, note=note,
        torch=lambda t: lambda x: t.linalg.cholesky(positive(x)))
    row("eigvalsh", lambda x: la.eigvalsh(symmetric(x)), array, note=note,
        torch=lambda t: lambda x: t.linalg.eigvalsh(symmetric(x)))
    row("eigh", lambda x: projectors(*la.eigh(symmetric(x))), array, note=note,
        torch=lambda t: lambda x: projectors(*t.linalg.eigh(symmetric(x))))
    row("eigh", lambda x: projectors(*la.eigh(symmetric(x), UPLO="U")), array, note=f"{note}upper",
        torch=lambda t: lambda x: projectors(*t.linalg.eigh(symmetric(x), UPLO="U")))
row("cholesky", lambda x: la.cholesky(positive(x), upper=True), STACK, note="upper",
    torch=lambda t: lambda x: t.linalg.cholesky(positive(x), upper=True))
row("cholesky", la.cholesky, np.zeros((2, 0, 0)), by=(), note="empty")
row("eigh", la.eigh, np.zeros((2, 0, 0)), by=(), note="empty")
row("eigvalsh", lambda x: la.eigvalsh(symmetric(x), UPLO="u"), STACK, note="upper")

for note, array in {"square": SQUARE, "tall": TALL, "wide": WIDE, "stack": TALLS, "one": ONE}.items():
    def reduced(x: Any) -> Any:
        u, s, vh = la.svd(x, full_matrices=False)
        return s, u[..., :, None, :] * vh.mT[..., None, :, :]

    def torch_reduced(t: Any) -> Any:
        def function(x: Any) -> Any:
            u, s, vh = t.linalg.svd(x, full_matrices=False)
            return s, u[..., :, None, :] * vh.mT[..., None, :, :]

        return function

    def full(x: Any) -> Any:
        """The projectors on the vectors that x determines one by one, and on all those that it does not."""
        u, s, vh = la.svd(x)
        k = s.shape[-1]
        return s, u[..., :, k:] @ u[..., :, k:].mT, vh[..., k:, :].mT @ vh[..., k:, :], u[..., :, :k] @ vh[..., :k, :]

    row("svd", reduced, array, note=note, torch=torch_reduced)
    row("svd", full, array, note=f"{note}full")
    row("svdvals", la.svdvals, array, note=note, torch="svdvals")
    row("qr", la.qr, array, note=note, torch="qr")
    row("qr", lambda x: la.qr(x, mode="r"), array, note=f"{note}r", torch=lambda t: lambda x: t.linalg.qr(x)[1])
    row("lu", la.lu, array, note=note, torch="lu")
    row("pinv", la.pinv, array, note=note, torch="pinv")
row("svd", lambda x: la.svd(x, compute_uv=False), TALL, note="values")
row("svd", la.svd, np.zeros((2, 0, 3)), by=(), note="empty")
row("qr", lambda x: la.qr(x, mode="complete"), WIDE, note="complete",
    torch=lambda t: lambda x: t.linalg.qr(x, "complete"))


def complete(x: Any) -> Any:
    q, r = la.qr(x, mode="complete")
    n = x.shape[-1]
    return q[..., :n], r, q[..., n:] @ q[..., n:].mT


row("qr", complete, TALL, note="tallcomplete")
row("qr", la.qr, np.zeros((2, 3, 0)), by=(), note="empty")
row("lu", la.lu, normal(10, 3, 3, seed=9), note="many", torch="lu")
row("lu", la.lu, np.zeros((2, 0, 0)), by=(), note="empty")

# -- solving -----------------------------------------------------------------------------------------------------------

B = normal(3, 2, seed=7)
row("solve", la.solve, SQUARE, B, torch="solve")
row("solve", la.solve, SQUARE, B[:, 0], note="vector", torch="solve")
row("solve", la.solve, STACK, normal(2, 4, 3, seed=8), note="stack", torch="solve")
row("solve", la.solve, SQUARE, normal(2, 4, 3, 2, seed=8), note="shared", torch="solve")
row("solve", la.solve, normal(2, 1, 3, 3, seed=1), normal(4, 3, 2, seed=8), note="broadcast", torch="solve")
row("solve", la.solve, normal(2, 3, 3, seed=1), B[:, 0], note="vectors")
row("solve", la.solve, np.zeros((2, 0, 0)), np.zeros((2, 0, 3)), by=(), note="empty")

TRIANGLE = spread(0.5, 2, 4, 4, seed=1)
TRIANGLES = spread(0.5, 2, 2, 4, 4, seed=1)
for upper in (False, True):
    for unit in (False, True):
        row("solve_triangular", lambda a, b, u=upper, d=unit: la.solve_triangular(a, b, upper=u, unit_diagonal=d),
            TRIANGLE, normal(4, 2, seed=2), note=f"{upper}{unit}",
            torch=lambda t, u=upper, d=unit: lambda a, b: t.linalg.solve_triangular(
                a.triu() if u else a.tril(), b, upper=u, unitriangular=d))
        row("solve_triangular",
            lambda a, b, u=upper, d=unit: la.solve_triangular(a, b, lower=not u, unit_diagonal=d, left=False),
            TRIANGLES, normal(2, 3, 4, seed=2), note=f"{upper}{unit}right",
            torch=lambda t, u=upper, d=unit: lambda a, b: t.linalg.solve_triangular(
                a.triu() if u else a.tril(), b, upper=u, unitriangular=d, left=False))
row("solve_triangular", lambda a, b: la.solve_triangular(a, b, lower=True, trans=True), TRIANGLE, normal(2, 4, 3),
    note="transposed")
row("solve_triangular", la.solve_triangular, TRIANGLE, normal(4), note="vector")
row("solve_triangular", lambda a, b: la.solve_triangular(a, b, left=False), TRIANGLE, normal(4), note="rightvector")
row("solve_triangular", la.solve_triangular, np.zeros((0, 0)), np.zeros((0, 2)), by=(), note="empty")

for note, array in {"": SQUARE, "stack": STACK, "one": ONE}.items():
    row("inv", la.inv, array, note=note, torch="inv")
    row("det", la.det, array, note=note, torch="det")
    row("slogdet", la.slogdet, array, note=note, torch="slogdet")
    row("expm", la.expm, array, note=note, torch="matrix_exp")
    for power in (0, 1, 2, 5, -3):
        row("matrix_power", lambda x, n=power: la.matrix_power(x, n), array, note=f"{note}{power}",
            by=(0,) if power else (), torch=lambda t, n=power: lambda x: t.linalg.matrix_power(x, n))
row("expm", la.expm, 20 * SQUARE - 40 * np.eye(3), note="large", torch="matrix_exp")
row("expm", la.matrix_exp, SQUARE, note="alias")
row("matrix_exp", la.matrix_exp, SQUARE, torch="matrix_exp")
for name in ("inv", "det", "slogdet", "expm"):
    row(name, getattr(la, name), np.zeros((2, 0, 0)), by=(), note="empty")
row("matrix_power", lambda x: la.matrix_power(x, 3), integers(-3, 4, 3, 3), note="integers",
    torch=lambda t: lambda x: t.linalg.matrix_power(x, 3))
row("det", la.det, np.outer(normal(3), normal(3)) + np.diag([1.0, 0, 0]), note="singular", torch="det")
row("det", la.det, np.outer(normal(3), normal(3)), note="rankone", torch="det")
row("det", la.det, np.zeros((3, 3)), note="zero", torch="det")

LOW = normal(5, 2, seed=1) @ normal(2, 3, seed=2)
row("pinv", lambda x, y: la.pinv(x @ y), normal(5, 2, seed=1), normal(2, 3, seed=2), note="lowrank",
    torch=lambda t: lambda x, y: t.linalg.pinv(x @ y))
row("pinv", lambda x: la.pinv(x, rtol=0.01), TALL, note="rtol", torch=lambda t: lambda x: t.linalg.pinv(x, rtol=0.01))
row("pinv", la.pinv, np.zeros((3, 0)), by=(), note="empty")
for note, array in {"square": SQUARE, "tall": TALL, "wide": WIDE}.items():
    row("lstsq", lambda a, b: la.lstsq(a, b)[0], array, normal(array.shape[0], 2, seed=6), note=note,
        torch=lambda t: lambda a, b: t.linalg.lstsq(a, b)[0])
row("lstsq", la.lstsq, TALL, normal(5, seed=6), note="vector")
row("lstsq", la.lstsq, TALLS, normal(2, 1, 4, 3, seed=6), note="stack")
row("lstsq", la.lstsq, np.zeros((3, 0)), np.zeros((3, 2)), by=(), note="empty")
row("matrix_rank", la.matrix_rank, TALLS, by=(), torch="matrix_rank")
row("matrix_rank", la.matrix_rank, LOW, by=(), note="low", torch="matrix_rank", vmap=False)
row("matrix_rank", lambda x: la.matrix_rank(x, rtol=0.5), TALLS, by=(), note="rtol",
    torch=lambda t: lambda x: t.linalg.matrix_rank(x, rtol=0.5))
row("matrix_rank", lambda x: la.matrix_rank(x, 1.0), TALLS, by=(), note="tol",
    torch=lambda t: lambda x: t.linalg.matrix_rank(x, tol=1.0))

# -- norms -------------------------------------------------------------------------------------------------------------

X = spread(-2, 2.2, 3, 4, seed=3)
for order in (2, 1, 3, 2.5, 0.5, -1, -2.5, INF, -INF, 0):
    row("vector_norm", lambda x, p=order: la.vector_norm(x, ord=p), X, note=f"{order}",
        torch=lambda t, p=order: lambda x: t.linalg.vector_norm(x, p))
    row("vector_norm", lambda x, p=order: la.vector_norm(x, ord=p, axis=-2, keepdims=True), X, note=f"{order}axis",
        torch=lambda t, p=order: lambda x: t.linalg.vector_norm(x, p, -2, True))
    row("norm", lambda x, p=order: la.norm(x, p, 0), X, note=f"{order}")
row("vector_norm", lambda x: la.vector_norm(x, axis=(0, 2)), spread(-1, 1, 2, 3, 2), note="axes",
    torch=lambda t: lambda x: t.linalg.vector_norm(x, dim=(0, 2)))
row("vector_norm", la.vector_norm, np.array(-1.7), note="0-d", torch="vector_norm")
row("vector_norm", la.vector_norm, np.zeros((0, 2)), by=(), note="empty", torch="vector_norm")
for order in ("fro", "nuc", 1, -1, 2, -2, INF, -INF):
    for note, array in {"": TALL, "wide": WIDE}.items():
        row("matrix_norm", lambda x, p=order: la.matrix_norm(x, ord=p), array, note=f"{order}{note}",
            torch=lambda t, p=order: lambda x: t.linalg.matrix_norm(x, p))
    row("matrix_norm", lambda x, p=order: la.matrix_norm(x, ord=p, axis=(2, 0), keepdims=True), normal(2, 3, 4),
        note=f"{order}axes", torch=lambda t, p=order: lambda x: t.linalg.matrix_norm(x, p, (2, 0), True))
    row("norm", lambda x, p=order: la.norm(x, p), SQUARE, note=f"matrix{order}")
    # PyTorch's cond has no gradient for most orders: it writes into its inverse.
    row("cond", lambda x, p=order: la.cond(x, p), SQUARE, note=f"{order}",
        torch=lambda t, p=order: lambda x: t.linalg.matrix_norm(x, p) * t.linalg.matrix_norm(t.linalg.inv(x), p))
row("cond", la.cond, TALLS, torch="cond")
row("cond", lambda x: la.cond(x, -2), WIDE, note="wide-2", torch=lambda t: lambda x: t.linalg.cond(x, -2))
row("norm", la.norm, normal(2, 3, 2), torch="norm")
row("norm", lambda x: la.norm(x, axis=(2, 0), keepdims=True), normal(2, 3, 2), note="axes",
    torch=lambda t: lambda x: t.linalg.norm(x, dim=(2, 0), keepdim=True))
ROWS.append(Row("norm", lambda x: pb.norm(x, axis=-1), (X,), torch=lambda t: lambda x: t.norm(x, dim=-1)))

# -- products and parts ------------------------------------------------------------------------------------------------

row("cross", la.cross, normal(2, 3), normal(2, 3, seed=1), torch="cross")
row("cross", lambda x, y: la.cross(x, y, axis=-2), normal(4, 3, 1), normal(3, 2, seed=1), note="broadcast")
row("cross", lambda x, y: la.cross(x, y, axis=0), normal(3, 2), normal(3, 2, seed=1), note="axis",
    torch=lambda t: lambda x, y: t.linalg.cross(x, y, dim=0))
row("cross", la.cross, integers(-9, 9, 3), integers(-9, 9, 3, seed=1), note="integers")
ROWS.append(Row("cross", pb.cross, (normal(3), normal(2, 3, seed=1))))
row("multi_dot", lambda *x: la.multi_dot(x), normal(2, 5), normal(5, 3), normal(3, 4), normal(4, 2),
    torch=lambda t: lambda *x: t.linalg.multi_dot(x))
row("multi_dot", lambda *x: la.multi_dot(x), normal(5), normal(5, 3), normal(3), note="vectors",
    torch=lambda t: lambda *x: t.linalg.multi_dot(x))
row("diagonal", lambda x: la.diagonal(x, offset=1), normal(2, 3, 4),
    torch=lambda t: lambda x: t.linalg.diagonal(x, offset=1))
row("diagonal", la.diagonal, normal(3, 2), note="tall", torch="diagonal")
row("trace", la.trace, normal(2, 3, 3), torch=lambda t: lambda x: t.linalg.diagonal(x).sum(-1))
row("matrix_transpose", la.matrix_transpose, normal(2, 3, 4), torch=lambda t: lambda x: x.mT)
row("outer", la.outer, normal(3), normal(2), torch=lambda t: t.outer)
row("matmul", la.matmul, normal(2, 3, 4), normal(4, 2), torch=lambda t: t.matmul)
row("vecdot", la.vecdot, normal(3, 4), normal(4), torch="vecdot")
row("tensordot", lambda x, y: la.tensordot(x, y, axes=1), normal(2, 3), normal(3, 4),
    torch=lambda t: lambda x, y: t.tensordot(x, y, dims=1))
