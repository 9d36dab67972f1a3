"""One use of a public function, from which its tests are made: see test_rows.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """``function(*arrays)``, where the arrays come as tensors; it may return a pytree of tensors.

    name: the public name, as in ``pb.linalg.eigh``, "linalg.eigh" (one name has as many rows as it has cases).
    arrays: float64 where differentiable; anything else is passed on as it is.
    by: positions to differentiate by; None: all arrays of floats. Empty: no derivative (an integer result).
    order: of the derivatives that are compared with finite differences; the function must be smooth at ``arrays``.
    torch: given the torch module, the same function of torch tensors; None where torch has none.
    torch_by: positions whose gradients torch has; None: as ``by``.
    rtol: of the finite differences.
    vmap: False where a shape of the result depends on values.
    """

    name: str
    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    by: tuple[int, ...] | None = None
    order: int = 2
    torch: Callable[[Any], Callable[..., Any]] | None = None
    torch_by: tuple[int, ...] | None = None
    note: str = ""
    rtol: float = 1e-5
    vmap: bool = True

    def __str__(self) -> str:
        return f"{self.name}{'-' if self.note else ''}{self.note}"

    @property
    def differentiable(self) -> tuple[int, ...]:
        if self.by is not None:
            return self.by
        return tuple([i for i, a in enumerate(self.arrays) if isinstance(a, np.ndarray) and a.dtype == np.float64])

    @property
    def mapped(self) -> tuple[int, ...]:
        """The positions of arrays, which vmap maps over."""
        return tuple([i for i, a in enumerate(self.arrays) if isinstance(a, np.ndarray)])

    def of(self, positions: Sequence[int], operands: Sequence[Any] | None = None) -> Callable[..., Any]:
        """The function of the arguments at ``positions`` alone."""

        def function(*given: Any) -> Any:
            full = list(self.arrays if operands is None else operands)
            for position, value in zip(positions, given):
                full[position] = value
            return self.function(*full)

        return function


def spread(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Well separated float64 values in no order: no ties, none at a round number."""
    size = int(np.prod(shape, dtype=int))
    line = low + (high - low) * (np.arange(size) + 0.37) / max(size, 1)
    return np.random.default_rng(seed).permutation(line).reshape(shape)


def normal(*shape: int, seed: int = 0) -> Array:
    """Normal float64 values."""
    return np.random.default_rng(seed).standard_normal(shape)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> Array:
    """int64 values in [low, high)."""
    return np.random.default_rng(seed).integers(low, high, shape)
