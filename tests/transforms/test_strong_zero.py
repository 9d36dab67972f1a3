"""Strong zeros: gradients and Hessians through ``where`` and masks are finite and right, in every mode.

What a mask covers is evaluated like everything else, at points where its slope is infinite or NaN; none of that may
reach a derivative. The expected derivatives are those of the branch that is taken, written out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb

INF, NAN = np.inf, np.nan

pytestmark = pytest.mark.filterwarnings("error")


class Guarded(NamedTuple):
    """``function`` is safe where ``safe`` holds; elsewhere a mask takes its place."""

    function: Callable[[Any], Any]
    safe: Callable[[Any], Any]
    points: tuple[float, ...]
    slope: Callable[[Any], Any]
    curvature: Callable[[Any], Any]


ONE_OPERAND = {
    "sqrt": Guarded(pb.sqrt, lambda x: x > 0, (0.0, -0.0, -1.0, -INF, 4.0), lambda x: 0.5 / np.sqrt(x),
                    lambda x: -0.25 * x**-1.5),
    "rsqrt": Guarded(pb.rsqrt, lambda x: x > 0, (0.0, -1.0, 4.0), lambda x: -0.5 * x**-1.5, lambda x: 0.75 * x**-2.5),
    "cbrt": Guarded(pb.cbrt, lambda x: x > 0, (0.0, -0.0, 8.0), lambda x: x ** (-2 / 3) / 3,
                    lambda x: -2 / 9 * x ** (-5 / 3)),
    "log": Guarded(pb.log, lambda x: x > 0, (0.0, -1.0, -INF, 2.0), lambda x: 1 / x, lambda x: -1 / x**2),
    "log2": Guarded(pb.log2, lambda x: x > 0, (0.0, -1.0, 2.0), lambda x: 1 / x / np.log(2),
                    lambda x: -1 / x**2 / np.log(2)),
    "log10": Guarded(pb.log10, lambda x: x > 0, (0.0, -1.0, 2.0), lambda x: 1 / x / np.log(10),
                     lambda x: -1 / x**2 / np.log(10)),
    "log1p": Guarded(pb.log1p, lambda x: x > -1, (-1.0, -2.0, 2.0), lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2),
    "reciprocal": Guarded(pb.reciprocal, lambda x: x != 0, (0.0, -0.0, 2.0), lambda x: -1 / x**2, lambda x: 2 / x**3),
    "acos": Guarded(pb.acos, lambda x: abs(x) < 1, (1.0, -1.0, 2.0, INF, 0.6), lambda x: -((1 - x * x) ** -0.5),
                    lambda x: -x * (1 - x * x) ** -1.5),
    "asin": Guarded(pb.asin, lambda x: abs(x) < 1, (1.0, -1.0, 2.0, INF, 0.6), lambda x: (1 - x * x) ** -0.5,
                    lambda x: x * (1 - x * x) ** -1.5),
    "atanh": Guarded(pb.atanh, lambda x: abs(x) < 1, (1.0, -1.0, 2.0, INF, 0.6), lambda x: 1 / (1 - x * x),
                     lambda x: 2 * x / (1 - x * x) ** 2),
    "acosh": Guarded(pb.acosh, lambda x: x > 1, (1.0, 0.5, -2.0, 3.0), lambda x: (x * x - 1) ** -0.5,
                     lambda x: -x * (x * x - 1) ** -1.5),
    "erfinv": Guarded(pb.erfinv, lambda x: abs(x) < 1, (1.0, -1.0, 2.0, 0.0), lambda x: np.sqrt(np.pi) / 2 + 0 * x,
                      lambda x: 0 * x),
    "logit": Guarded(pb.logit, lambda x: (x > 0) & (x < 1), (0.0, 1.0, -1.0, 2.0, 0.25), lambda x: 1 / (x * (1 - x)),
                     lambda x: (2 * x - 1) / (x * (1 - x)) ** 2),
    "lgamma": Guarded(pb.lgamma, lambda x: x > 0, (0.0, -1.0, -INF, 1.0), lambda x: -np.euler_gamma + 0 * x,
                      lambda x: np.pi**2 / 6 + 0 * x),
    "digamma": Guarded(pb.digamma, lambda x: x > 0, (0.0, -1.0, -INF, 1.0), lambda x: np.pi**2 / 6 + 0 * x,
                       lambda x: -2.404113806319188570799 + 0 * x),
    "pow, fractional": Guarded(lambda x: x**1.5, lambda x: x > 0, (0.0, -1.0, -INF, 4.0), lambda x: 1.5 * x**0.5,
                               lambda x: 0.75 * x**-0.5),
    "pow, negative": Guarded(lambda x: x**-2, lambda x: x != 0, (0.0, -0.0, 2.0), lambda x: -2 / x**3,
                             lambda x: 6 / x**4),
    "pow, a tensor": Guarded(lambda x: pb.pow(x, pb.asarray(np.array(-0.7))), lambda x: x > 0, (0.0, -1.0, 2.0),
                             lambda x: -0.7 * x**-1.7, lambda x: 1.19 * x**-2.7),
    "pow, an exponent": Guarded(lambda x: pb.pow(pb.where(x > 0, 2.0, 0.0), x), lambda x: x > 0, (-1.0, -3.0, 2.0),
                                lambda x: np.log(2) * 2**x, lambda x: np.log(2) ** 2 * 2**x),
    "divide": Guarded(lambda x: 3 / x, lambda x: x != 0, (0.0, -0.0, 2.0), lambda x: -3 / x**2, lambda x: 6 / x**3),
    "divide by itself": Guarded(lambda x: pb.sin(x) / x, lambda x: x != 0, (0.0, np.pi), lambda x: -1 / x,
                                lambda x: 2 / x**2),
    "exp": Guarded(pb.exp, lambda x: x < 700, (1e4, INF, 1.0), np.exp, np.exp),
    "xlogy": Guarded(lambda x: pb.xlogy(x, x), lambda x: x > 0, (0.0, -1.0, 2.0), lambda x: np.log(x) + 1,
                     lambda x: 1 / x),
}  # fmt: skip


def _hypot(x: Any) -> Any:
    return pb.hypot(x, 2 * x)


def _norm(x: Any) -> Any:
    return pb.sqrt(pb.sum(pb.stack([x, x, x]) ** 2, axis=0))


ONE_OPERAND["hypot"] = Guarded(_hypot, lambda x: x > 0, (0.0, -0.0, 3.0), lambda x: np.sqrt(5) + 0 * x, lambda x: 0 * x)
ONE_OPERAND["norm"] = Guarded(_norm, lambda x: x > 0, (0.0, -0.0, 3.0), lambda x: np.sqrt(3) + 0 * x, lambda x: 0 * x)


def _replaced(case: Guarded) -> Callable[[Any], Any]:
    """The mask outside: the function is evaluated where it is not defined."""
    return lambda x: pb.where(case.safe(x), case.function(x), 3 * x)


def _multiplied(case: Guarded) -> Callable[[Any], Any]:
    """A mask that is multiplied with: values may be NaN, derivatives by what it covers are not."""
    return lambda x: pb.where(case.safe(x), case.function(x), 0.0) * pb.where(case.safe(x), 1.0, 0.0)


def _filled(case: Guarded) -> Callable[[Any], Any]:
    return lambda x: pb.masked_fill(case.function(x), pb.logical_not(case.safe(x)), 7.0)


FORMS = {"where": (_replaced, 3.0), "product": (_multiplied, 0.0), "masked_fill": (_filled, 0.0)}
FORMS_AND_BACKENDS = [
    ("where", "compiled"), ("where", "reference"), ("product", "compiled"), ("masked_fill", "reference"),
]  # fmt: skip
FIRST = {
    "grad": lambda f: pb.grad(lambda x: pb.sum(f(x))),
    "jacfwd": lambda f: lambda x: pb.sum(pb.jacfwd(f)(x), axis=1),
    "jacrev": lambda f: lambda x: pb.sum(pb.jacrev(f)(x), axis=1),
}
MODES = {"fwd": pb.jacfwd, "rev": pb.jacrev}
PAIRS = [(outer, inner) for outer in MODES for inner in MODES]


def _expected(case: Guarded, derivative: Callable[[Any], Any], outside: float) -> Any:
    x = np.array(case.points)
    with np.errstate(all="ignore"):
        safe = case.safe(x)
        return np.where(safe, derivative(np.where(safe, x, case.points[-1])), outside)


@pytest.mark.parametrize(("form", "backend"), FORMS_AND_BACKENDS, indirect=["backend"])
@pytest.mark.parametrize("name", ONE_OPERAND)
def test_first_derivatives(name: str, form: str, backend: str) -> None:
    case = ONE_OPERAND[name]
    make, outside = FORMS[form]
    x = pb.asarray(np.array(case.points))
    for mode, transform in FIRST.items():
        found = np.asarray(transform(make(case))(x))
        np.testing.assert_allclose(found, _expected(case, case.slope, outside), rtol=1e-12, err_msg=mode)


@pytest.mark.parametrize(("form", "backend"), FORMS_AND_BACKENDS, indirect=["backend"])
@pytest.mark.parametrize("name", ONE_OPERAND)
def test_second_derivatives(name: str, form: str, backend: str) -> None:
    """The Hessian of the sum, which is diagonal, by all four pairs of modes, and hessian and hvp themselves."""
    case = ONE_OPERAND[name]
    make, _ = FORMS[form]
    function = make(case)
    x = pb.asarray(np.array(case.points))
    expected = np.diag(_expected(case, case.curvature, 0.0))

    def total(x: Any) -> Any:
        return pb.sum(function(x))

    for outer, inner in PAIRS:
        found = np.asarray(MODES[outer](MODES[inner](total))(x))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14, err_msg=f"{outer} over {inner}")
    np.testing.assert_allclose(np.asarray(pb.hessian(total)(x)), expected, rtol=1e-11, atol=1e-14)
    product = np.asarray(pb.hvp(total, (x,), (pb.ones_like(x),)))
    np.testing.assert_allclose(product, np.diag(expected), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", ["sqrt", "log", "acos", "norm", "pow, a tensor", "lgamma"])
def test_under_jit_and_vmap(name: str, jitted: bool) -> None:
    case = ONE_OPERAND[name]
    function = _replaced(case)
    x = pb.asarray(np.array(case.points))
    second = pb.vmap(pb.grad(pb.grad(function)))
    found = np.asarray((pb.jit(second) if jitted else second)(x))
    np.testing.assert_allclose(found, _expected(case, case.curvature, 0.0), rtol=1e-11, atol=1e-14)


# -- vectors -----------------------------------------------------------------------------------------------------------


def _hessians(function: Callable[[Any], Any], x: Any) -> list[Any]:
    return [np.asarray(MODES[outer](MODES[inner](function))(x)) for outer, inner in PAIRS]


ROWS = np.array([[3.0, 4.0], [0.0, 0.0], [INF, 1.0], [NAN, 2.0]])


@pytest.mark.parametrize("norm", ["by hand", "hypot"])
def test_norms_of_masked_rows(norm: str, backend: str) -> None:
    """Rows of zeros, infinities and NaN that a mask leaves out."""
    keep = pb.asarray(np.array([True, False, False, False]))

    def function(x: Any) -> Any:
        lengths = pb.hypot(x[:, 0], x[:, 1]) if norm == "hypot" else pb.sqrt(pb.sum(pb.square(x), axis=1))
        return pb.sum(pb.where(keep, lengths, 0.0))

    x = pb.asarray(ROWS)
    expected = np.zeros((4, 2))
    expected[0] = [0.6, 0.8]
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_allclose(np.asarray(mode(function)(x)), expected, rtol=1e-14)
    curvature = np.zeros((4, 2, 4, 2))
    curvature[0, :, 0] = np.array([[16, -12], [-12, 9]]) / 125
    for found in _hessians(function, x):
        np.testing.assert_allclose(found, curvature, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("order", [1, 2, 3, 2.5, INF])
def test_vector_norms_of_masked_rows(order: float, backend: str) -> None:
    keep = pb.asarray(np.array([True, False, False, False]))

    def row(x: Any) -> Any:
        return pb.linalg.vector_norm(x, ord=order)

    def function(x: Any) -> Any:
        return pb.sum(pb.where(keep, pb.linalg.vector_norm(x, ord=order, axis=1), 0.0))

    x = pb.asarray(ROWS)
    expected, curvature = np.zeros((4, 2)), np.zeros((4, 2, 4, 2))
    expected[0] = np.asarray(pb.grad(row)(x[0]))
    curvature[0, :, 0] = np.asarray(pb.hessian(row)(x[0]))
    assert np.isfinite(expected).all() and np.isfinite(curvature).all() and expected.any()
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_allclose(np.asarray(mode(function)(x)), expected, rtol=1e-13)
    for found in _hessians(function, x):
        np.testing.assert_allclose(found, curvature, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("order", [1, 2, 3, 2.5, INF])
def test_vector_norm_of_nothing_is_flat(order: float, backend: str) -> None:
    x = pb.asarray(np.zeros(3))
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_array_equal(np.asarray(mode(lambda x: pb.linalg.vector_norm(x, ord=order))(x)), [0, 0, 0])
    for found in _hessians(lambda x: pb.linalg.vector_norm(x, ord=order), x):
        np.testing.assert_array_equal(found, np.zeros((3, 3)))


def test_norm_of_nothing_is_flat(backend: str) -> None:
    """Without a mask: hypot and the norm at 0 have gradient 0, and no NaN in the second derivative."""
    x = pb.asarray(np.zeros(2))
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_array_equal(np.asarray(mode(lambda x: pb.hypot(x[0], x[1]))(x)), [0, 0])
    for found in _hessians(lambda x: pb.hypot(x[0], x[1]), x):
        np.testing.assert_array_equal(found, np.zeros((2, 2)))


LOGITS = np.array([[0.0, np.log(3.0), -INF], [-INF, -INF, -INF], [1.0, 1.0, 1.0]])


@pytest.mark.parametrize("masking", ["where", "added", "already there"])
def test_logsumexp_with_masks(masking: str, backend: str) -> None:
    """Entries of -inf, and a whole row of them: its logsumexp is -inf, with gradient and Hessian 0."""
    keep = pb.asarray(np.isfinite(LOGITS))
    finite = np.where(np.isfinite(LOGITS), LOGITS, 5.0)
    x = pb.asarray(LOGITS if masking == "already there" else finite)

    def function(x: Any) -> Any:
        if masking == "where":
            x = pb.where(keep, x, -INF)
        elif masking == "added":
            x = x + pb.where(keep, 0.0, -INF)
        rows = pb.logsumexp(x, axis=1)
        return pb.sum(pb.where(pb.isfinite(rows), rows, 0.0)) if masking != "already there" else pb.sum(rows[::2])

    share = np.array([[0.25, 0.75, 0], [0, 0, 0], [1 / 3] * 3])
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_allclose(np.asarray(mode(function)(x)), share, rtol=1e-14, atol=1e-16)
    curvature = np.zeros((3, 3, 3, 3))
    for row in range(3):
        curvature[row, :, row] = np.diag(share[row]) - np.outer(share[row], share[row])
    for found in _hessians(function, x):
        np.testing.assert_allclose(found, curvature, rtol=1e-13, atol=1e-15)


def test_logsumexp_of_nothing_has_gradient_zero(backend: str) -> None:
    x = pb.asarray(np.full(3, -INF))
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_array_equal(np.asarray(mode(pb.logsumexp)(x)), [0, 0, 0])
    for found in _hessians(pb.logsumexp, x):
        np.testing.assert_array_equal(found, np.zeros((3, 3)))


@pytest.mark.parametrize("function", [pb.logaddexp, pb.logaddexp2])
def test_logaddexp_of_nothing_has_gradient_zero(function: Callable[..., Any], backend: str) -> None:
    x = pb.asarray(np.array([-INF, -INF]))
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_array_equal(np.asarray(mode(lambda x: function(x[0], x[1]))(x)), [0, 0])
    for found in _hessians(lambda x: function(x[0], x[1]), x):
        np.testing.assert_array_equal(found, np.zeros((2, 2)))


def test_softmax_with_masked_entries(backend: str) -> None:
    """Attention with masked keys and one row of nothing but masked keys."""
    keep = np.array([[True, True, False], [False, False, False]])
    scores = pb.asarray(np.array([[1.0, 1.0, 400.0], [2.0, INF, NAN]]))

    def function(x: Any) -> Any:
        masked = pb.where(pb.asarray(keep), x, -INF)
        weights = pb.nn.softmax(masked, axis=1)
        return pb.sum(pb.where(pb.asarray(keep), weights, 0.0) * pb.asarray(np.array([[1.0, 3.0, 9.0]] * 2)))

    expected = np.array([[-0.5, 0.5, 0], [0, 0, 0]])
    for mode in (pb.grad, pb.jacfwd, pb.jacrev):
        np.testing.assert_allclose(np.asarray(mode(function)(scores)), expected, rtol=1e-14, atol=1e-16)
    for found in _hessians(function, scores):
        assert np.isfinite(found).all()
        assert not found[1].any()


def test_two_operands(backend: str) -> None:
    """Division, power and atan2 by both operands, where the second is what makes them undefined."""
    x, y = pb.asarray(np.array([1.0, 0.0, 2.0, -2.0])), pb.asarray(np.array([0.0, 0.0, 4.0, 0.0]))
    cases: list[tuple[Callable[..., Any], Any, Any]] = [
        (pb.divide, [0, 0, 0.25, 0], [0, 0, -0.125, 0]),
        (lambda a, b: pb.pow(b, -a), [0, 0, -np.log(4) / 16, 0], [0, 0, -2 * 4.0**-3, 0]),
        (pb.atan2, [0, 0, 0.2, 0], [0, 0, -0.1, 0]),
        (pb.hypot, [0, 0, 0.2**0.5, 0], [0, 0, 0.8**0.5, 0]),
        (pb.fmod, [0, 0, 1, 0], [0, 0, 0, 0]),
        (pb.remainder, [0, 0, 1, 0], [0, 0, 0, 0]),
        (pb.xlogy, [0, 0, np.log(4), 0], [0, 0, 0.5, 0]),
    ]
    for function, by_x, by_y in cases:
        def guarded(x: Any, y: Any, f: Callable[..., Any] = function) -> Any:
            return pb.sum(pb.where(y > 0, f(x, y), 0.0))

        for mode in (pb.grad, pb.jacfwd, pb.jacrev):
            found = mode(guarded, argnums=(0, 1))(x, y)
            np.testing.assert_allclose([np.asarray(g) for g in found], [by_x, by_y], rtol=1e-13, atol=1e-16)

        def stacked(z: Any, f: Callable[..., Any] = guarded) -> Any:
            return f(z[0], z[1])

        hessians = _hessians(stacked, pb.stack([x, y]))
        for found in hessians:
            assert np.isfinite(found).all()
            np.testing.assert_allclose(found, hessians[0], rtol=1e-12, atol=1e-15)
            assert not np.delete(found, 2, axis=1).any()
