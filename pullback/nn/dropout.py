"""Dropout layers; what they compute is in functional.py."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError, DTypeError
from ..tensor import Tensor
from . import functional
from .module import Module


class _Dropout(Module):
    def __init__(self, p: float = 0.5) -> None:
        if not isinstance(p, int | float):
            raise DTypeError(f"{type(self).__name__}: p is a number in [0, 1], got {p!r}")
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"{type(self).__name__}: p must be in [0, 1], got {p}")
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(_Dropout):
    """While training, sets each element to 0 with probability ``p`` and divides the others by ``1 - p``.

    Draws from the global generator: anew at each call, also inside ``jit``.
    """

    def forward(self, x: Any) -> Tensor:
        return functional.dropout(x, self.p, self.training)


class Dropout1d(_Dropout):
    """As :class:`Dropout` with whole channels dropped, of (N, C, L) or (C, L)."""

    def forward(self, x: Any) -> Tensor:
        return functional.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """As :class:`Dropout1d`, of (N, C, H, W) or (N, C, L)."""

    def forward(self, x: Any) -> Tensor:
        return functional.dropout2d(x, self.p, self.training)


class Dropout3d(_Dropout):
    """As :class:`Dropout1d`, of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, x: Any) -> Tensor:
        return functional.dropout3d(x, self.p, self.training)


class AlphaDropout(_Dropout):
    """As :class:`Dropout` for layers of :class:`SELU`: mean 0 and variance 1 stay."""

    def forward(self, x: Any) -> Tensor:
        return functional.alpha_dropout(x, self.p, self.training)
