"""Checking derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .errors import GradientError
from .graph.node import Node
from .ops.elementwise import cast
from .ops.leaf import data
from .tensor import Tensor
from .transforms import functional, pytree

Array = np.ndarray[Any, Any]


def check_grads(
    function: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float = 1e-5,
    rtol: float = 1e-5,
    eps: float = 1e-4,
    seed: int = 0,
) -> None:
    """Check the derivatives of ``function`` at ``args`` against central differences, in float64.

    Args:
        function: of pytrees of floating tensors, to a pytree of tensors; should be smooth within ``eps`` of ``args``.
        args: one entry for each argument; everything is cast to float64.
        order: 2 also checks the derivatives of the derivatives, in each pair of modes, and so on.
        modes: ``"fwd"`` checks the jvp in a random direction, ``"rev"`` the vjp with a random cotangent.
        eps: step of the differences, which are exact up to ``eps**4`` (two step sizes, extrapolated).

    Raises GradientError with the modes and both numbers where they differ.
    """
    primals = tuple([pytree.map(lambda leaf: Tensor(_float64(leaf)), arg) for arg in args])
    _check(function, primals, order, tuple(modes), atol, rtol, eps, np.random.default_rng(seed), "")


def _float64(leaf: Any) -> Node:
    return data(np.array(leaf, dtype=np.float64), False)


def _check(
    function: Callable[..., Any], primals: Any, order: int, modes: tuple[str, ...],
    atol: float, rtol: float, eps: float, rng: np.random.Generator, before: str,
) -> None:
    tangents = _random_like(primals, rng)
    numeric = _difference(function, primals, tangents, eps)
    for mode in modes:
        name = f"{before}{mode}"
        if mode == "fwd":
            output, tangent = functional.jvp(function, primals, tangents)
            for index, (found, expected) in enumerate(zip(_floats(tangent, output), numeric)):
                _compare(f"{name}: jvp, output {index}", found, expected, atol, rtol)
        elif mode == "rev":
            output, pullback = functional.vjp(function, *primals)
            cotangent = pytree.map(lambda leaf: _random_tensor(leaf, rng), output)
            product = sum(
                float(np.sum(a * b)) for a, b in zip(_arrays(pullback(cotangent)), _arrays(tangents))
            )
            expected_product = sum(float(np.sum(a * b)) for a, b in zip(_floats(cotangent, output), numeric))
            _compare(f"{name}: <vjp, direction>", np.asarray(product), np.asarray(expected_product), atol, rtol)
        else:
            raise GradientError(f"check_grads: modes are 'fwd' and 'rev', got {mode!r}")
        if order > 1:
            derivative = _jvp_function(function, tangents) if mode == "fwd" else _vjp_function(function, cotangent)
            _check(derivative, primals, order - 1, modes, atol, rtol, eps, rng, f"{name} then ")


def _jvp_function(function: Callable[..., Any], tangents: Any) -> Callable[..., Any]:
    return lambda *args: functional.jvp(function, args, tangents)[1]


def _vjp_function(function: Callable[..., Any], cotangent: Any) -> Callable[..., Any]:
    return lambda *args: functional.vjp(function, *args)[1](cotangent)


def _difference(function: Callable[..., Any], primals: Any, tangents: Any, eps: float) -> list[Array]:
    """The derivative along ``tangents`` by central differences at two steps, extrapolated (Richardson)."""

    def at(step: float) -> list[Array]:
        moved = pytree.map(lambda x, t: Tensor(_float64(np.asarray(x) + step * np.asarray(t))), primals, tangents)
        result = function(*moved)
        return _floats(result, result)

    wide = [(a - b) / (2 * eps) for a, b in zip(at(eps), at(-eps))]
    fine = [(a - b) / eps for a, b in zip(at(eps / 2), at(-eps / 2))]
    return [(4 * f - w) / 3 for f, w in zip(fine, wide)]


def _random_like(tree: Any, rng: np.random.Generator) -> Any:
    return pytree.map(lambda leaf: _random_tensor(leaf, rng), tree)


def _random_tensor(leaf: Any, rng: np.random.Generator) -> Tensor:
    return Tensor(cast(_float64(rng.standard_normal(leaf.shape)), leaf.dtype))



def _arrays(tree: Any) -> list[Array]:
    return [np.asarray(leaf) for leaf in pytree.leaves(tree)]


def _floats(tree: Any, like: Any) -> list[Array]:
    """The leaves of ``tree`` whose partners in ``like`` are floating."""
    pairs = zip(pytree.leaves(tree), pytree.leaves(like))
    return [np.asarray(leaf) for leaf, partner in pairs if partner.dtype.kind == "f"]


def _compare(what: str, found: Array, expected: Array, atol: float, rtol: float) -> None:
    if found.shape != expected.shape or not np.allclose(found, expected, atol=atol, rtol=rtol, equal_nan=True):
        raise GradientError(f"check_grads: {what}: the derivative is {found}, differences give {expected}")
