"""Activations as modules; the formulas are in functional.py."""

from __future__ import annotations

from typing import Any

from ..api import creation
from ..errors import ShapeError
from ..tensor import Tensor
from . import functional
from .module import Module, Parameter


class ReLU(Module):
    """:func:`functional.relu`."""

    def forward(self, x: Any) -> Tensor:
        return functional.relu(x)


class ReLU6(Module):
    """:func:`functional.relu6`."""

    def forward(self, x: Any) -> Tensor:
        return functional.relu6(x)


class LeakyReLU(Module):
    """:func:`functional.leaky_relu`."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Tensor:
        return functional.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class PReLU(Module):
    """:func:`functional.prelu` with a weight for all elements, or one for each of ``num_parameters`` channels.

    The weight starts at ``init``.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None) -> None:
        if num_parameters < 1:
            raise ShapeError(f"PReLU: num_parameters must be positive, got {num_parameters}")
        self.num_parameters = num_parameters
        self.weight = Parameter(creation.full((num_parameters,), float(init), dtype=dtype))

    def forward(self, x: Any) -> Tensor:
        return functional.prelu(x, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(Module):
    """:func:`functional.elu`."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Any) -> Tensor:
        return functional.elu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(Module):
    """:func:`functional.celu`."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Any) -> Tensor:
        return functional.celu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class SELU(Module):
    """:func:`functional.selu`."""

    def forward(self, x: Any) -> Tensor:
        return functional.selu(x)


class GELU(Module):
    """:func:`functional.gelu`."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return functional.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """:func:`functional.silu`."""

    def forward(self, x: Any) -> Tensor:
        return functional.silu(x)


class Mish(Module):
    """:func:`functional.mish`."""

    def forward(self, x: Any) -> Tensor:
        return functional.mish(x)


class Sigmoid(Module):
    """:func:`functional.sigmoid`."""

    def forward(self, x: Any) -> Tensor:
        return functional.sigmoid(x)


class Tanh(Module):
    """:func:`functional.tanh`."""

    def forward(self, x: Any) -> Tensor:
        return functional.tanh(x)


class Softplus(Module):
    """:func:`functional.softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = beta
        self.threshold = threshold

    def forward(self, x: Any) -> Tensor:
        return functional.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """:func:`functional.softsign`."""

    def forward(self, x: Any) -> Tensor:
        return functional.softsign(x)


class Hardtanh(Module):
    """:func:`functional.hardtanh`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, x: Any) -> Tensor:
        return functional.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Hardsigmoid(Module):
    """:func:`functional.hardsigmoid`."""

    def forward(self, x: Any) -> Tensor:
        return functional.hardsigmoid(x)


class Hardswish(Module):
    """:func:`functional.hardswish`."""

    def forward(self, x: Any) -> Tensor:
        return functional.hardswish(x)


class Tanhshrink(Module):
    """:func:`functional.tanhshrink`."""

    def forward(self, x: Any) -> Tensor:
        return functional.tanhshrink(x)


class Hardshrink(Module):
    """:func:`functional.hardshrink`."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Any) -> Tensor:
        return functional.hardshrink(x, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Softshrink(Module):
    """:func:`functional.softshrink`."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Any) -> Tensor:
        return functional.softshrink(x, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Threshold(Module):
    """:func:`functional.threshold`."""

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold = threshold
        self.value = value

    def forward(self, x: Any) -> Tensor:
        return functional.threshold(x, self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class LogSigmoid(Module):
    """:func:`functional.log_sigmoid`."""

    def forward(self, x: Any) -> Tensor:
        return functional.log_sigmoid(x)


class Softmax(Module):
    """:func:`functional.softmax`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        return functional.softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class LogSoftmax(Module):
    """:func:`functional.log_softmax`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        return functional.log_softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class Softmin(Module):
    """:func:`functional.softmin`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        return functional.softmin(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class GLU(Module):
    """:func:`functional.glu`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        return functional.glu(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class SwiGLU(Module):
    """:func:`functional.swiglu`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        return functional.swiglu(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class GeGLU(Module):
    """:func:`functional.geglu`."""

    def __init__(self, axis: int = -1, approximate: str = "none") -> None:
        self.axis = axis
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return functional.geglu(x, self.axis, self.approximate)

    def extra_repr(self) -> str:
        return f"axis={self.axis}, approximate={self.approximate!r}"
