"""Every function of ``pb.nn``: here the activations, linear and dropout; those of its sister modules by their names.

Names and arguments are PyTorch's, but for ``axis`` and ``keepdims``; derivatives at kinks follow docs/conventions.md.
Inputs are tensors, or anything that ``pb.asarray`` takes, of a floating dtype unless said otherwise; the result has the
input's shape and dtype. float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..api import contraction, manipulation
from ..api import elementwise as ew
from ..api.composite import composite
from ..errors import ArgumentError, ShapeError
from ..ops import elementwise as ops
from ..shapes import as_number, normalize_axis
from ..tensor import Tensor
from .attention import packed_attention as packed_attention
from .attention import scaled_dot_product_attention as scaled_dot_product_attention
from .classification import binary_cross_entropy as binary_cross_entropy
from .classification import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .classification import cross_entropy as cross_entropy
from .classification import masked_cross_entropy as masked_cross_entropy
from .classification import nll_loss as nll_loss
from .convolution import conv1d as conv1d
from .convolution import conv2d as conv2d
from .convolution import conv3d as conv3d
from .convolution import conv_transpose1d as conv_transpose1d
from .convolution import conv_transpose2d as conv_transpose2d
from .convolution import conv_transpose3d as conv_transpose3d
from .ctc import ctc_loss as ctc_loss
from .distance import cosine_embedding_loss as cosine_embedding_loss
from .distance import cosine_similarity as cosine_similarity
from .distance import pairwise_distance as pairwise_distance
from .distance import triplet_margin_loss as triplet_margin_loss
from .labels import embedding as embedding
from .labels import one_hot as one_hot
from .linear_loss import linear_cross_entropy as linear_cross_entropy
from .normalization import batch_norm as batch_norm
from .normalization import group_norm as group_norm
from .normalization import instance_norm as instance_norm
from .normalization import layer_norm as layer_norm
from .normalization import rms_norm as rms_norm
from .operands import along_axis, float_tensor, narrowed, wide_inside, widened
from .patches import fold as fold
from .patches import unfold as unfold
from .pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from .pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from .pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from .pooling import adaptive_max_pool1d as adaptive_max_pool1d
from .pooling import adaptive_max_pool2d as adaptive_max_pool2d
from .pooling import adaptive_max_pool3d as adaptive_max_pool3d
from .pooling import avg_pool1d as avg_pool1d
from .pooling import avg_pool2d as avg_pool2d
from .pooling import avg_pool3d as avg_pool3d
from .pooling import lp_pool1d as lp_pool1d
from .pooling import lp_pool2d as lp_pool2d
from .pooling import lp_pool3d as lp_pool3d
from .pooling import max_pool1d as max_pool1d
from .pooling import max_pool2d as max_pool2d
from .pooling import max_pool3d as max_pool3d
from .pooling import max_unpool1d as max_unpool1d
from .pooling import max_unpool2d as max_unpool2d
from .pooling import max_unpool3d as max_unpool3d
from .position import alibi as alibi
from .position import rope as rope
from .probability import log_softmax as log_softmax
from .probability import softmax as softmax
from .probability import softmin as softmin
from .regression import gaussian_nll_loss as gaussian_nll_loss
from .regression import huber_loss as huber_loss
from .regression import kl_div as kl_div
from .regression import l1_loss as l1_loss
from .regression import mse_loss as mse_loss
from .regression import poisson_nll_loss as poisson_nll_loss
from .regression import smooth_l1_loss as smooth_l1_loss
from .resizing import interpolate as interpolate
from .resizing import pixel_shuffle as pixel_shuffle
from .resizing import pixel_unshuffle as pixel_unshuffle

_SELU_ALPHA = 1.6732632423543772848170429916717  # Klambauer et al. 2017, eq. 14
_SELU_SCALE = 1.0507009873554804934193349852946


# -- activations -------------------------------------------------------------------------------------------------------


@composite
def relu(x: Any) -> Tensor:
    """``max(x, 0)``; derivative 0 at 0."""
    x = float_tensor(x, "relu")
    return ew.where(x <= 0.0, 0.0, x)  # in this order NaN stays NaN


@composite
@wide_inside
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``; derivative 0 on the limits."""
    if not min_val < max_val:
        raise ArgumentError(f"hardtanh: min_val {min_val} must be less than max_val {max_val}")
    x = float_tensor(x, "hardtanh")
    return ew.where(x <= min_val, min_val, ew.where(x >= max_val, max_val, x))


@composite
def relu6(x: Any) -> Tensor:
    """``min(max(x, 0), 6)``; derivative 0 at 0 and 6."""
    return hardtanh(float_tensor(x, "relu6"), 0.0, 6.0)


@composite
@wide_inside
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``; derivative ``negative_slope`` at 0."""
    x = float_tensor(x, "leaky_relu")
    return ew.where(x > 0.0, x, x * negative_slope)


def prelu(x: Any, weight: Any) -> Tensor:
    """``x`` where positive, else ``weight * x`` (He et al. 2015); derivative ``weight`` at 0.

    weight: one number, or one for each channel: each position on axis 1 of ``x``. Both are promoted to one dtype.
    Raises ShapeError for another number of weights.
    """
    (x, slope), dtype = widened("prelu", x, weight)
    if slope.size == 1:
        slope = manipulation.reshape(slope, ())
    elif x.ndim < 2:
        raise ShapeError(f"prelu: an input of shape {x.shape} has no channel axis, so weight must hold one number, "
                         f"got shape {slope.shape}")
    else:
        slope = along_axis(slope, x, 1, "weight", "prelu")
    return narrowed(ew.where(x > 0.0, x, x * slope), dtype)


@composite
@wide_inside
def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    x = float_tensor(x, "elu")
    return ew.where(x > 0.0, x, ew.expm1(x) * alpha)


@composite
@wide_inside
def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``, which is smooth for every alpha but 0."""
    if alpha == 0.0:
        raise ArgumentError("celu: alpha must not be 0, by which x is divided; pb.nn.relu is the limit")
    x = float_tensor(x, "celu")
    return ew.where(x > 0.0, x, ew.expm1(x / alpha) * alpha)


@composite
@wide_inside
def selu(x: Any) -> Tensor:
    """The scaled ``elu`` that keeps mean 0 and variance 1 (Klambauer et al. 2017)."""
    x = float_tensor(x, "selu")
    return ew.where(x > 0.0, x, ew.expm1(x) * _SELU_ALPHA) * _SELU_SCALE


@composite
@wide_inside
def gelu(x: Any, approximate: str = "none") -> Tensor:
    """``x * Phi(x)``, the Gaussian error linear unit (Hendrycks and Gimpel 2016).

    approximate: ``"none"`` takes Phi, the normal distribution function; ``"tanh"`` their
        ``(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2``; ``"quick"`` their ``sigmoid(1.702 x)``.
    """
    x = float_tensor(x, "gelu")
    if approximate == "none":
        return Tensor(ops.gelu(x.node))
    if approximate == "tanh":
        return Tensor(ops.gelu_tanh(x.node))
    if approximate == "quick":
        return x * ew.sigmoid(x * 1.702)
    raise ArgumentError(f"gelu: approximate must be 'none', 'tanh' or 'quick', got {approximate!r}")


def sigmoid(x: Any) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return ew.sigmoid(float_tensor(x, "sigmoid"))


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return ew.tanh(float_tensor(x, "tanh"))


@composite
@wide_inside
def silu(x: Any) -> Tensor:
    """``x * sigmoid(x)``, also called swish."""
    x = float_tensor(x, "silu")
    return x * ew.sigmoid(x)


@composite
@wide_inside
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta x)) / beta``; ``x`` itself where ``beta x > threshold``."""
    if beta == 0.0:
        raise ArgumentError("softplus: beta must not be 0, by which the result is divided")
    x = float_tensor(x, "softplus")
    is_plain = not isinstance(beta, Tensor) and beta == 1.0
    scaled = x if is_plain else x * beta
    soft = ew.log1p(ew.exp(scaled))
    return ew.where(scaled > threshold, x, soft if is_plain else soft / beta)


@composite
@wide_inside
def mish(x: Any) -> Tensor:
    """``x * tanh(softplus(x))``."""
    x = float_tensor(x, "mish")
    return x * ew.tanh(softplus(x))


@composite
@wide_inside
def softsign(x: Any) -> Tensor:
    """``x / (1 + |x|)``."""
    x = float_tensor(x, "softsign")
    return x / (1.0 + ew.abs(x))


@composite
@wide_inside
def hardsigmoid(x: Any) -> Tensor:
    """``relu6(x + 3) / 6``; derivative 0 at -3, at 3 and for NaN."""
    x = float_tensor(x, "hardsigmoid")
    line = ew.where(ew.isnan(x), math.nan, x / 6.0 + 0.5)
    return ew.where(x <= -3.0, 0.0, ew.where(x >= 3.0, 1.0, line))


@composite
@wide_inside
def hardswish(x: Any) -> Tensor:
    """``x * relu6(x + 3) / 6``; derivative 0 at -3 and 1 at 3."""
    x = float_tensor(x, "hardswish")
    return x * relu6(x + 3.0) / 6.0


@composite
@wide_inside
def tanhshrink(x: Any) -> Tensor:
    """``x - tanh(x)``."""
    x = float_tensor(x, "tanhshrink")
    return x - ew.tanh(x)


@composite
@wide_inside
def hardshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """``x`` outside ``[-lambd, lambd]``, else 0; derivative 0 on the limits."""
    if not lambd >= 0.0:
        raise ArgumentError(f"hardshrink: lambd must not be negative, got {lambd}")
    x = float_tensor(x, "hardshrink")
    return ew.where(ew.abs(x) <= lambd, 0.0, x)


@composite
@wide_inside
def softshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """``x`` moved towards 0 by ``lambd``, 0 where it would pass it; derivative 0 at ``-lambd`` and ``lambd``."""
    if not lambd >= 0.0:
        raise ArgumentError(f"softshrink: lambd must not be negative, got {lambd}")
    x = float_tensor(x, "softshrink")
    return ew.where(ew.abs(x) <= lambd, 0.0, ew.where(x > 0.0, x - lambd, x + lambd))


@composite
@wide_inside
def threshold(x: Any, threshold: float, value: float) -> Tensor:
    """``x`` where it is above ``threshold``, else ``value``; derivative 0 at the threshold."""
    x = float_tensor(x, "threshold")
    return ew.where(x <= threshold, value, x)


@composite
@wide_inside
def log_sigmoid(x: Any) -> Tensor:
    """``log(sigmoid(x))`` without overflow."""
    x = float_tensor(x, "log_sigmoid")
    # Beyond it e**x is far below the last digit of x; up to it e**-x and its square are finite.
    bound = 0.5 * math.log(dtypes.finfo(x.dtype).max)
    return ew.where(x < -bound, x, -ew.log1p(ew.exp(-x)))


# -- gates: half of an axis with the other half -----------------------------------------------------------------------


def _halves(x: Tensor, axis: int, op: str) -> tuple[Tensor, Tensor]:
    axis = normalize_axis(axis, x.ndim, op)
    extent = x.shape[axis]
    if extent % 2:
        raise ShapeError(f"{op}: axis {axis} of shape {x.shape} must have an even extent, to be halved")
    before = (slice(None),) * axis
    return x[(*before, slice(None, extent // 2))], x[(*before, slice(extent // 2, None))]


@composite
@wide_inside
def glu(x: Any, axis: int = -1) -> Tensor:
    """``a * sigmoid(b)`` of the halves ``a, b`` of ``x`` along ``axis`` (Dauphin et al. 2017), whose extent halves.

    Raises ShapeError for an odd extent.
    """
    a, b = _halves(float_tensor(x, "glu"), axis, "glu")
    return a * ew.sigmoid(b)


@composite
@wide_inside
def swiglu(x: Any, axis: int = -1) -> Tensor:
    """``silu(a) * b`` of the halves ``a, b`` of ``x`` along ``axis`` (Shazeer 2020), whose extent halves.

    The gate ``a`` comes first, as in layers that compute gate and value in one product. Raises ShapeError for an odd
    extent.
    """
    a, b = _halves(float_tensor(x, "swiglu"), axis, "swiglu")
    return a * ew.sigmoid(a) * b


@composite
@wide_inside
def geglu(x: Any, axis: int = -1, approximate: str = "none") -> Tensor:
    """``gelu(a) * b`` of the halves ``a, b`` of ``x`` along ``axis`` (Shazeer 2020), whose extent halves.

    The gate ``a`` comes first, as in :func:`swiglu`. approximate: see :func:`gelu`. Raises ShapeError for an odd
    extent.
    """
    a, b = _halves(float_tensor(x, "geglu"), axis, "geglu")
    return gelu(a, approximate) * b


_ACTIVATIONS: dict[str, Callable[[Any], Tensor]] = {
    function.__name__: function
    for function in (
        relu, relu6, leaky_relu, hardtanh, elu, celu, selu, gelu, sigmoid, tanh, silu, softplus, mish, softsign,
        hardsigmoid, hardswish, tanhshrink, hardshrink, softshrink, log_sigmoid, glu, swiglu, geglu,
    )
}  # fmt: skip


# -- layers ------------------------------------------------------------------------------------------------------------


def linear(x: Any, weight: Any, bias: Any = None, activation: Any = None) -> Tensor:
    """``activation(x @ weight.T + bias)``.  x: (..., in), weight: (out, in), bias: (out,); result (..., out).

    activation: a function of a tensor, or the name of one of this module's, ``"relu"`` or ``"gelu"``; a gate
        (``"swiglu"``) halves the result's last axis. None: the identity.

    The activation is computed with the product, block by block, and so is what is written after it: a scale, a
    residual, ``x + gelu(linear(x, w, b))``. Raises ShapeError naming the shapes that do not fit, ArgumentError for an
    activation that is none.
    """
    activate = None if activation is None else as_activation(activation, "linear")
    product = contraction.linear(x, weight, bias)
    return product if activate is None else activate(product)


def as_activation(activation: Any, op: str) -> Callable[[Tensor], Tensor]:
    """The function that ``activation`` is or names."""
    found = _ACTIVATIONS.get(activation) if isinstance(activation, str) else activation
    if not callable(found):
        raise ArgumentError(
            f"{op}: activation must be a function or one of {', '.join(map(repr, _ACTIVATIONS))}, got {activation!r}"
        )
    return found


def dropout(x: Any, p: float = 0.5, training: bool = True, key: Any = None) -> Tensor:
    """``x`` with each element set to 0 with probability ``p`` and the others divided by ``1 - p`` (Srivastava et al.
    2014); ``x`` itself unless ``training``.

    key: a random key; without one the global generator is used (once for all elements of a ``vmap``).
    Raises ArgumentError unless ``0 <= p <= 1``.
    """
    x = float_tensor(x, "dropout")
    return _dropped(x, x.shape, p, training, key, "dropout")


def _dropped(x: Tensor, shape: tuple[int, ...], p: float, training: bool, key: Any, op: str) -> Tensor:
    """``x`` with what each of ``shape`` draws set to 0."""
    if not 0.0 <= as_number(p, op, "p") <= 1.0:
        raise ArgumentError(f"{op}: p must be in [0, 1], got {p}")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return ew.where(False, x, 0.0)
    from ..api import random

    kept = random.bernoulli(1.0 - p, shape=shape, key=key)
    return ew.where(kept, x / (1.0 - p), 0.0)


def _drop_channels(
    x: Any, p: float, training: bool, key: Any, batched: tuple[int, ...], single: tuple[int, ...], op: str
) -> Tensor:
    """batched, single: the ranks of inputs with their channels on axis 1 and on axis 0."""
    x = float_tensor(x, op)
    if x.ndim not in batched + single:
        ranks = " or ".join(map(str, sorted(batched + single)))
        raise ShapeError(f"{op}: an input of {ranks} axes expected, got shape {x.shape}")
    channels = 1 if x.ndim in single else 2
    return _dropped(x, x.shape[:channels] + (1,) * (x.ndim - channels), p, training, key, op)


def dropout1d(x: Any, p: float = 0.5, training: bool = True, key: Any = None) -> Tensor:
    """As :func:`dropout` with whole channels dropped (Tompson et al. 2015).  x: (N, C, L) or (C, L)."""
    return _drop_channels(x, p, training, key, (3,), (2,), "dropout1d")


def dropout2d(x: Any, p: float = 0.5, training: bool = True, key: Any = None) -> Tensor:
    """As :func:`dropout1d`.  x: (N, C, H, W) or (N, C, L)."""
    return _drop_channels(x, p, training, key, (3, 4), (), "dropout2d")


def dropout3d(x: Any, p: float = 0.5, training: bool = True, key: Any = None) -> Tensor:
    """As :func:`dropout1d`.  x: (N, C, D, H, W) or (C, D, H, W)."""
    return _drop_channels(x, p, training, key, (5,), (4,), "dropout3d")


@wide_inside
def alpha_dropout(x: Any, p: float = 0.5, training: bool = True, key: Any = None) -> Tensor:
    """Dropout for :func:`selu`: what is dropped takes its lowest value, and all is scaled and moved so that mean 0 and
    variance 1 stay (Klambauer et al. 2017, section "alpha dropout").

    Arguments and errors are those of :func:`dropout`.
    """
    x = float_tensor(x, "alpha_dropout")
    if not 0.0 <= as_number(p, "alpha_dropout", "p") <= 1.0:
        raise ArgumentError(f"alpha_dropout: p must be in [0, 1], got {p}")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return ew.where(False, x, 0.0)
    from ..api import random

    lowest = -_SELU_ALPHA * _SELU_SCALE
    scale = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * lowest * lowest))
    kept = random.bernoulli(1.0 - p, shape=x.shape, key=key)
    return ew.where(kept, x, lowest) * scale - scale * p * lowest
