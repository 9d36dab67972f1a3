"""Dropout."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError, DTypeError
from ..tensor import Tensor
from . import functional
from .module import Module


class Dropout(Module):
    """While training, sets each element to 0 with probability ``p`` and divides the others by ``1 - p``.

    Draws from the global generator: anew at each call, also inside ``jit``.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not isinstance(p, int | float):
            raise DTypeError(f"Dropout: p is a number in [0, 1], got {p!r}")
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"Dropout: p must be in [0, 1], got {p}")
        self.p = p

    def forward(self, x: Any) -> Tensor:
        return functional.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
