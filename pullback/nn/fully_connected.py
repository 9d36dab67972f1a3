"""Fully connected layers."""

from __future__ import annotations

import math
from typing import Any

from ..api import creation
from ..errors import ShapeError
from ..tensor import Tensor
from . import functional, init
from .module import Module, Parameter


class Linear(Module):
    """``activation(x @ weight.T + bias)``.  x: (..., in_features); result: (..., out_features).

    weight: (out_features, in_features); bias: (out_features,), or None. Both start uniform in
    ``+-1 / sqrt(in_features)``, as PyTorch's do.
    key: a random key for the start; without one the global generator is used.
    activation: None, a function or a name; see :func:`functional.linear`.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None, key: Any = None,
        activation: Any = None,
    ) -> None:  # fmt: skip
        if activation is not None:
            functional.as_activation(activation, "Linear")
        if in_features < 0 or out_features < 0:
            raise ShapeError(f"Linear: sizes must not be negative, got {in_features} and {out_features}")
        self.in_features = in_features
        self.out_features = out_features
        self.activation = activation
        self.weight = Parameter(creation.zeros((out_features, in_features), dtype=dtype))
        self.bias = Parameter(creation.zeros((out_features,), dtype=dtype)) if bias else None
        init.layer_(self.weight, self.bias, in_features, key)

    def forward(self, x: Any) -> Tensor:
        if x.shape[-1:] != (self.in_features,):
            raise ShapeError(
                f"Linear: the input's last axis needs {self.in_features} elements, got shape {x.shape}"
            )
        return functional.linear(x, self.weight, self.bias, self.activation)

    def extra_repr(self) -> str:
        bias = "" if self.bias is not None else ", bias=False"
        activation = ""
        if self.activation is not None and not isinstance(self.activation, Module):  # which is shown as a child
            activation = f", activation={getattr(self.activation, '__name__', self.activation)}"
        return f"in_features={self.in_features}, out_features={self.out_features}{bias}{activation}"


class Identity(Module):
    """Returns its input."""

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """The axes from ``start`` to ``end`` merged into one; by default all but the first."""

    def __init__(self, start: int = 1, end: int = -1) -> None:
        self.start = start
        self.end = end

    def forward(self, x: Any) -> Tensor:
        first, last = self.start % x.ndim, self.end % x.ndim
        return x.reshape((*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))

    def extra_repr(self) -> str:
        return f"start={self.start}, end={self.end}"
