"""Examples of the linear algebra ops. Any arrangement of an array's elements must be a matrix that the op accepts."""

from __future__ import annotations

import numpy as np

from pullback.graph.node import bind
from pullback.ops import determinant, linalg, norm, spectral
from tests.ops.support import Array, Case, grid


def _positive(n: int, *lead: int) -> Array:
    a = grid(-1, 1, (*lead, n, n), 3)
    return a @ np.swapaxes(a, -1, -2) + n * np.eye(n)


def _cases() -> list[Case]:
    cases = []

    def case(op: str, build, *arrays: Array, by: tuple[int, ...] = (), note: str = "") -> None:  # type: ignore[no-untyped-def]
        cases.append(Case(op, build, tuple(map(np.asarray, arrays)), by, note))

    square, stack = grid(0.3, 4, (3, 3), 1), grid(-2, 2, (2, 4, 4), 2)
    empty, one = np.zeros((2, 0, 0)), np.array([[0.7]])
    squares = {"": square, "stack": stack, "one": one}
    for note, a in squares.items():
        for name in ("det", "slogdet", "cofactors", "expm", "eigvalsh"):
            case(name, getattr(determinant, name, None) or getattr(spectral, name, None) or (
                lambda x: bind(determinant.COFACTORS, (x,))), a, by=(0,), note=note)
        case("inv", linalg.inv, a, by=(0,), note=note)
        case("lu", linalg.lu, a, by=(0,), note=note)
        case("eigh", spectral.eigh, a, by=(0,), note=note)
        b = grid(-1, 1, (*a.shape[:-1], 2), 5)
        for transposed in (False, True):
            case("solve", lambda a, b, t=transposed: linalg.solve(a, b, t), a, b, by=(0, 1), note=f"{note}{transposed}")
        for name, op in (("cofactors_tangent", determinant.COFACTORS_TANGENT), ("expm_tangent", spectral.EXPM_TANGENT)):
            case(name, lambda a, t, op=op: bind(op, (a, t)), a, grid(-1, 1, a.shape, 7), by=(0, 1), note=note)
        case("singular_shift", lambda a: bind(determinant.SINGULAR_SHIFT, (a,)), a, note=note)
    for lower in (False, True):
        for transposed in (False, True):
            for unit in (False, True):
                def solve(a, b, flags=(lower, transposed, unit)):  # type: ignore[no-untyped-def]
                    return linalg.solve_triangular(a, b, *flags)

                a, b = grid(0.5, 2, (2, 3, 3), 4), grid(-1, 1, (2, 3, 2), 5)
                case("solve_triangular", solve, a, b, by=(0, 1), note=f"{lower}{transposed}{unit}")
    case("cholesky", lambda a: linalg.cholesky(a, check=False), _positive(3), by=(0,))
    case("cholesky", lambda a: linalg.cholesky(a, check=False), _positive(4, 2), by=(0,), note="stack")
    for note, shape in (("tall", (4, 2)), ("wide", (2, 4)), ("square", (3, 3)), ("stack", (2, 3, 2))):
        a = grid(-1, 1, shape, 1)
        if note != "square":
            case("lu", linalg.lu, a, by=(0,), note=note)
        full = shape[-1] == shape[-2]
        case("svd", lambda a: spectral.svd(a, False), a, by=(0,), note=note)
        case("svd", lambda a: spectral.svd(a, True), a, by=(0,) if full else (), note=f"{note}full")
        case("svdvals", spectral.svdvals, a, by=(0,), note=note)
        case("pinv", lambda a: spectral.pinv(a, 1e-15), a, by=(0,), note=note)
        case("qr", lambda a: spectral.qr(a, False), a, by=(0,), note=note)
        case("qr", lambda a: spectral.qr(a, True), a, by=(0,) if shape[-2] <= shape[-1] else (), note=f"{note}complete")
    for op in (determinant.det, spectral.eigh, spectral.expm, linalg.inv):
        case(op.__name__, op, empty, note="empty")
    x = grid(-2.2, 2.4, (2, 3, 4))
    for order in (2.0, 3.0, 2.5, 1.0, 0.5, -1.0, -2.0):
        for axes, keepdims in (((1,), False), ((0, 2), True), ((0, 1, 2), False)):
            case("vector_norm", lambda x, a=axes, k=keepdims, p=order: norm.vector_norm(x, a, k, p), x, by=(0,),
                 note=f"{order}{axes}")
    return cases


CASES = _cases()
