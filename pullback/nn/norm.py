"""Normalisation layers."""

from __future__ import annotations

from typing import Any

from ..api import creation
from ..tensor import Tensor
from . import functional
from .module import Module, Parameter


class LayerNorm(Module):
    """:func:`functional.layer_norm` with a weight and a bias, which start at 1 and 0."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(creation.ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        has_bias = elementwise_affine and bias
        self.bias = Parameter(creation.zeros(self.normalized_shape, dtype=dtype)) if has_bias else None

    def forward(self, x: Any) -> Tensor:
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """:func:`functional.rms_norm` with a weight, which starts at 1."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(creation.ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None

    def forward(self, x: Any) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"
