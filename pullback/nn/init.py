"""Initial values of parameters: PyTorch's formulas and names. Each fills ``tensor`` in place and returns it."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..tensor import Tensor

_GAINS = {
    "linear": 1.0, "identity": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a layer before ``nonlinearity`` is scaled up; ``param`` is the slope of ``leaky_relu``."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise ArgumentError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}; known: {known}")
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Inputs and outputs of one unit of a weight of shape (out, in, *kernel)."""
    shape = tensor.shape
    if len(shape) < 2:
        raise ShapeError(f"init: fan in and out need a weight with two axes or more, got shape {shape}")
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, key: Any = None) -> Tensor:
    """Uniform in ``[a, b)``."""
    from ..api import random

    return tensor.assign(random.uniform(tensor.shape, low=a, high=b, dtype=tensor.dtype, key=key))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, key: Any = None) -> Tensor:
    """Normal."""
    from ..api import random

    return tensor.assign(random.normal(tensor.shape, dtype=tensor.dtype, key=key) * std + mean)


def constant_(tensor: Tensor, value: float) -> Tensor:
    """``value`` everywhere."""
    return tensor.assign(value)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return tensor.assign(0.0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return tensor.assign(1.0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, key: Any = None) -> Tensor:
    """Uniform in ``+-gain * sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, key)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, key: Any = None) -> Tensor:
    """Normal of standard deviation ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), key)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", key: Any = None
) -> Tensor:
    """Uniform in ``+-gain * sqrt(3 / fan)`` (He et al. 2015)."""
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, key)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", key: Any = None
) -> Tensor:
    """Normal of standard deviation ``gain / sqrt(fan)`` (He et al. 2015)."""
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), key)


def layer_(weight: Tensor, bias: Tensor | None, fan_in: int, key: Any = None) -> None:
    """PyTorch's start of a linear layer or a convolution: all uniform within ``1 / sqrt(fan_in)`` of 0."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    keys: Any = (None, None)
    if key is not None:
        from ..api import random

        keys = random.split(key)
    uniform_(weight, -bound, bound, keys[0])
    if bias is not None:
        uniform_(bias, -bound, bound, keys[1])


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"init: mode must be 'fan_in' or 'fan_out', got {mode!r}")
    return fans(tensor)[mode == "fan_out"]
