"""Activations, normalisation, dropout and other functions of tensors without state.

Names and arguments are PyTorch's; derivatives at kinks follow docs/conventions.md. Inputs are tensors, or anything that
``pb.asarray`` takes, of a floating dtype unless said otherwise; the result has the input's shape and dtype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from .. import dtypes
from ..api import contraction, convert, manipulation, reduction
from ..api import elementwise as ew
from ..errors import ArgumentError, DTypeError, ShapeError
from ..ops import elementwise as ops
from ..ops import leaf
from ..tensor import Tensor

_SELU_ALPHA = 1.6732632423543772848170429916717  # Klambauer et al. 2017, eq. 14
_SELU_SCALE = 1.0507009873554804934193349852946


def _float(x: Any, op: str) -> Tensor:
    node = convert.as_node(x, None, op)
    if node.dtype.kind != "f":
        raise DTypeError(f"{op}: a floating tensor expected, got {node.dtype.name}; cast it with x.astype(pb.float32)")
    return x if isinstance(x, Tensor) else Tensor(node)


_P = ParamSpec("_P")
_HALF = (dtypes.float16, dtypes.bfloat16)


def _wide_inside(function: Callable[Concatenate[Any, _P], Tensor]) -> Callable[Concatenate[Any, _P], Tensor]:
    """The function, of float16 and bfloat16 computed in float32 and rounded once, at its end.

    Their squares and exponentials would overflow, their differences from 1 lose every digit.
    """

    @functools.wraps(function)
    def computed(x: Any, *args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        if not isinstance(x, Tensor):
            x = Tensor(convert.as_node(x, None, function.__name__))
        dtype = x.dtype
        if dtype not in _HALF:
            return function(x, *args, **kwargs)
        return convert.astype(function(convert.astype(x, dtypes.float32), *args, **kwargs), dtype)

    return computed


# -- activations -------------------------------------------------------------------------------------------------------


def relu(x: Any) -> Tensor:
    """``max(x, 0)``; derivative 0 at 0."""
    x = _float(x, "relu")
    return ew.where(x <= 0.0, 0.0, x)  # in this order NaN stays NaN


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``; derivative 0 on the limits."""
    if not min_val < max_val:
        raise ArgumentError(f"hardtanh: min_val {min_val} must be less than max_val {max_val}")
    x = _float(x, "hardtanh")
    return ew.where(x <= min_val, min_val, ew.where(x >= max_val, max_val, x))


def relu6(x: Any) -> Tensor:
    """``min(max(x, 0), 6)``; derivative 0 at 0 and 6."""
    return hardtanh(_float(x, "relu6"), 0.0, 6.0)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``; derivative ``negative_slope`` at 0."""
    x = _float(x, "leaky_relu")
    return ew.where(x > 0.0, x, x * negative_slope)


@_wide_inside
def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    x = _float(x, "elu")
    return ew.where(x > 0.0, x, ew.expm1(x) * alpha)


@_wide_inside
def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``, which is smooth for every alpha."""
    x = _float(x, "celu")
    return ew.where(x > 0.0, x, ew.expm1(x / alpha) * alpha)


@_wide_inside
def selu(x: Any) -> Tensor:
    """The scaled ``elu`` that keeps mean 0 and variance 1 (Klambauer et al. 2017)."""
    x = _float(x, "selu")
    return ew.where(x > 0.0, x, ew.expm1(x) * _SELU_ALPHA) * _SELU_SCALE


@_wide_inside
def gelu(x: Any, approximate: str = "none") -> Tensor:
    """``x * Phi(x)`` with the normal distribution function, or with ``approximate="tanh"`` the form of Hendrycks and
    Gimpel 2016: ``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``."""
    x = _float(x, "gelu")
    if approximate == "none":
        return x * 0.5 * (1.0 + ew.erf(x * math.sqrt(0.5)))
    if approximate != "tanh":
        raise ArgumentError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return x * 0.5 * (1.0 + ew.tanh((x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)))


def sigmoid(x: Any) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return ew.sigmoid(_float(x, "sigmoid"))


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return ew.tanh(_float(x, "tanh"))


@_wide_inside
def silu(x: Any) -> Tensor:
    """``x * sigmoid(x)``, also called swish."""
    x = _float(x, "silu")
    return x * ew.sigmoid(x)


@_wide_inside
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta x)) / beta``; ``x`` itself where ``beta x > threshold``."""
    x = _float(x, "softplus")
    scaled = x * beta if beta != 1.0 else x
    soft = ew.log1p(ew.exp(scaled))
    return ew.where(scaled > threshold, x, soft / beta if beta != 1.0 else soft)


@_wide_inside
def mish(x: Any) -> Tensor:
    """``x * tanh(softplus(x))``."""
    x = _float(x, "mish")
    return x * ew.tanh(softplus(x))


@_wide_inside
def softsign(x: Any) -> Tensor:
    """``x / (1 + |x|)``."""
    x = _float(x, "softsign")
    return x / (1.0 + ew.abs(x))


@_wide_inside
def hardsigmoid(x: Any) -> Tensor:
    """``relu6(x + 3) / 6``."""
    return relu6(_float(x, "hardsigmoid") + 3.0) / 6.0


@_wide_inside
def hardswish(x: Any) -> Tensor:
    """``x * relu6(x + 3) / 6``."""
    x = _float(x, "hardswish")
    return x * relu6(x + 3.0) / 6.0


@_wide_inside
def log_sigmoid(x: Any) -> Tensor:
    """``log(sigmoid(x))`` without overflow."""
    x = _float(x, "log_sigmoid")
    # Beyond it e**x is far below the last digit of x; up to it e**-x and its square are finite.
    bound = 0.5 * math.log(dtypes.finfo(x.dtype).max)
    return ew.where(x < -bound, x, -ew.log1p(ew.exp(-x)))


# -- along an axis -----------------------------------------------------------------------------------------------------


def _shifted(x: Tensor, axis: int | tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """``x`` minus its largest value along ``axis``, and that value; an infinite one is taken as 0."""
    largest = Tensor(ops.stop_gradient(reduction.max(x, axis=axis, keepdims=True).node))
    largest = ew.where(ew.isfinite(largest), largest, 0.0)
    return x - largest, largest


@_wide_inside
def softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``. A row of -inf gives 0 everywhere, with derivative 0."""
    x = _float(x, "softmax")
    exponentials = ew.exp(_shifted(x, axis)[0])
    total = reduction.sum(exponentials, axis=axis, keepdims=True)
    return exponentials / ew.where(total == 0.0, 1.0, total)


@_wide_inside
def log_softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """``x - log(sum(exp(x)))`` along ``axis``. A row of -inf stays -inf, with derivative 0."""
    x = _float(x, "log_softmax")
    shifted, _ = _shifted(x, axis)
    total = reduction.sum(ew.exp(shifted), axis=axis, keepdims=True)
    return shifted - ew.log(ew.where(total == 0.0, 1.0, total))


def _last_axes(x: Tensor, normalized_shape: int | tuple[int, ...], op: str) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{op}: the input's shape {x.shape} does not end in normalized_shape {shape}")
    return tuple(range(-len(shape), 0))


def _result_dtypes(x: Tensor, *parameters: Any) -> tuple[dtypes.DType, dtypes.DType]:
    """The dtype of a normalised ``x`` with ``parameters``, and the one to compute it in: float32 for half types."""
    given = [Tensor(convert.as_node(parameter)) for parameter in parameters if parameter is not None]
    return convert.result_type(x, *given), dtypes.float32 if x.dtype in _HALF else x.dtype


def layer_norm(
    x: Any, normalized_shape: int | tuple[int, ...], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes, of shape ``normalized_shape`` (Ba et al.
    2016).

    weight, bias: of shape ``normalized_shape``, or None for 1 and 0.
    """
    x = _float(x, "layer_norm")
    axes = _last_axes(x, normalized_shape, "layer_norm")
    dtype, wide = _result_dtypes(x, weight, bias)
    x = convert.astype(x, wide)
    centred = x - reduction.mean(x, axis=axes, keepdims=True)
    variance = reduction.mean(centred * centred, axis=axes, keepdims=True)
    result = centred * ew.rsqrt(variance + eps)
    if weight is not None:
        result = result * weight
    return convert.astype(result if bias is None else result + bias, dtype)


def rms_norm(
    x: Any, normalized_shape: int | tuple[int, ...], weight: Any = None, eps: float | None = None
) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axes (Zhang and Sennrich 2019).

    eps: None takes the dtype's machine epsilon, as PyTorch does.
    """
    x = _float(x, "rms_norm")
    axes = _last_axes(x, normalized_shape, "rms_norm")
    if eps is None:
        eps = dtypes.finfo(x.dtype).eps
    dtype, wide = _result_dtypes(x, weight)
    x = convert.astype(x, wide)
    result = x * ew.rsqrt(reduction.mean(x * x, axis=axes, keepdims=True) + eps)
    return convert.astype(result if weight is None else result * weight, dtype)


# -- layers ------------------------------------------------------------------------------------------------------------


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """``x @ weight.T + bias``.  x: (..., in), weight: (out, in), bias: (out,); result (..., out)."""
    result = contraction.matmul(x, manipulation.matrix_transpose(weight))
    return result if bias is None else result + bias


def dropout(x: Any, p: float = 0.5, training: bool = True, key: Any = None) -> Tensor:
    """``x`` with each element set to 0 with probability ``p`` and the others divided by ``1 - p`` (Srivastava et al.
    2014); ``x`` itself unless ``training``.

    key: a random key; without one the global generator is used.
    """
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p must be in [0, 1], got {p}")
    x = _float(x, "dropout")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0.0
    from ..api import random

    kept = random.bernoulli(1.0 - p, shape=x.shape, key=key)
    return ew.where(kept, x / (1.0 - p), 0.0)


def checked_labels(labels: Tensor, classes: int, op: str) -> Tensor:
    """Class numbers as int64; one that is negative or not below ``classes`` raises IndexError when it is evaluated."""
    node = labels.node
    # As unsigned numbers negative labels are out of range too, instead of counting from the end.
    node = ops.cast(node, dtypes.uint64) if node.dtype.kind == "i" else node
    return Tensor(ops.check_index(node, classes, op))


def one_hot(labels: Any, num_classes: int = -1, dtype: Any = dtypes.int64) -> Tensor:
    """1 at the position of each label, else 0.  labels: integers of any shape; result: that shape + (num_classes,).

    num_classes: -1 takes the largest label plus 1, which needs the labels' values.
    Raises IndexError for a label out of range, DTypeError for labels that are not integers.
    """
    labels = convert.wrap(convert.as_node(labels, None, "one_hot"))
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"one_hot: labels must be integers, got {labels.dtype.name}")
    if num_classes == -1:
        num_classes = int(reduction.max(labels).item()) + 1 if labels.size else 0
    checked = checked_labels(labels, num_classes, "one_hot: label")
    return convert.astype(is_label(checked, num_classes, labels.ndim), dtype)


def is_label(checked: Tensor, classes: int, axis: int) -> Tensor:
    """Bools with a new ``axis`` of extent ``classes``: whether the position on it is the label."""
    shape = list(checked.shape)
    shape.insert(axis, classes)
    # As narrow as the class numbers allow: kernels compare as many at once as they have floats.
    dtype = dtypes.int32 if classes < 1 << 31 else dtypes.int64
    positions = Tensor(leaf.iota(tuple(shape), axis, dtype))
    return positions == convert.astype(manipulation.expand_dims(checked, axis=axis), dtype)


# Losses are functions too; loss.py needs the functions above.
from .loss import cross_entropy as cross_entropy  # noqa: E402
from .loss import l1_loss as l1_loss  # noqa: E402
from .loss import mse_loss as mse_loss  # noqa: E402
