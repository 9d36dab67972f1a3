"""Normalisation: layer, group, batch and instance norm, and RMS norm.

Statistics are of float32 at least, in which elements may be as large as 1e19: their squares are scaled.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..api import convert, manipulation, reduction
from ..api import elementwise as ew
from ..api.composite import composite
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..shapes import size_of
from ..tensor import Tensor
from .operands import along_axis, compute_dtype, constant, float_tensor, narrowed


def _last_axes(x: Tensor, normalized_shape: int | tuple[int, ...], op: str) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{op}: the input's shape {x.shape} does not end in normalized_shape {shape}")
    return tuple(range(-len(shape), 0))


def _parameter(value: Any, shape: tuple[int, ...], name: str, op: str) -> Any:
    """``value`` itself; ShapeError unless it is None or of ``shape``."""
    if value is not None:
        found = convert.as_node(value, None, op).shape
        if found != shape:
            raise ShapeError(f"{op}: {name} must have shape {shape}, got {found}")
    return value


def _result_dtypes(x: Tensor, *parameters: Any) -> tuple[DType, DType]:
    """The dtype of a normalised ``x`` with ``parameters``, and the one to compute it in."""
    given = [Tensor(convert.as_node(parameter)) for parameter in parameters if parameter is not None]
    return convert.result_type(x, *given), compute_dtype(x.dtype)


# -- the mean square, without overflow ---------------------------------------------------------------------------------


def _shrink(dtype: DType, eps: float) -> float:
    """A power of two that elements are multiplied by before they are squared.

    In float32 the square of 1e19 is close to the largest number, and a sum of some is beyond it. What becomes too small
    by it is nothing beside eps. It is no smaller, so that powers of the root in higher derivatives are finite too.
    """
    return 2.0**-10 if dtype is dtypes.float32 and eps >= 1e-20 else 1.0


def _inverse_root(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """``1 / sqrt(mean(x^2) + eps)`` and ``mean(x^2)`` over ``axes``, with extent 1."""
    shrink = _shrink(x.dtype, eps)
    shrunk = x * shrink if shrink != 1.0 else x
    square = reduction.mean(shrunk * shrunk, axis=axes, keepdims=True)
    # In two steps, so that the derivative does not hold the root's third power, which is too small for large x.
    root = 1.0 / ew.sqrt(square + eps * shrink**2)
    return (root, square) if shrink == 1.0 else (root * shrink, square / shrink**2)


def _standardise(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(variance + eps)`` over ``axes``, the mean and the variance (with axes of extent 1)."""
    mean = reduction.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    root, variance = _inverse_root(centred, axes, eps)
    return centred * root, mean, variance


def _affine(x: Tensor, weight: Any, bias: Any) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


# -- over the last axes ------------------------------------------------------------------------------------------------


@composite
def layer_norm(
    x: Any, normalized_shape: int | tuple[int, ...], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes, of shape ``normalized_shape`` (Ba et al.
    2016).

    weight, bias: of shape ``normalized_shape``, or None for 1 and 0. Raises ShapeError if the shapes do not fit.
    """
    x = float_tensor(x, "layer_norm")
    axes = _last_axes(x, normalized_shape, "layer_norm")
    shape = x.shape[len(x.shape) - len(axes) :]
    weight = _parameter(weight, shape, "weight", "layer_norm")
    bias = _parameter(bias, shape, "bias", "layer_norm")
    dtype, wide = _result_dtypes(x, weight, bias)
    return narrowed(_affine(_standardise(narrowed(x, wide), axes, eps)[0], weight, bias), dtype)


@composite
def rms_norm(
    x: Any, normalized_shape: int | tuple[int, ...], weight: Any = None, eps: float | None = None
) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axes (Zhang and Sennrich 2019).

    weight: of shape ``normalized_shape``, or None for 1. eps: None takes the dtype's machine epsilon, as PyTorch does.
    Raises ShapeError if the shapes do not fit.
    """
    x = float_tensor(x, "rms_norm")
    axes = _last_axes(x, normalized_shape, "rms_norm")
    weight = _parameter(weight, x.shape[len(x.shape) - len(axes) :], "weight", "rms_norm")
    if eps is None:
        eps = dtypes.finfo(x.dtype).eps
    dtype, wide = _result_dtypes(x, weight)
    x = narrowed(x, wide)
    result = x * _inverse_root(x, axes, eps)[0]
    return narrowed(_affine(result, weight, None), dtype)


# -- by channels -------------------------------------------------------------------------------------------------------


def _channels(x: Any, weight: Any, bias: Any, op: str) -> tuple[Tensor, Any, Any, DType]:
    """The input in the dtype to compute in, weight and bias along its axis 1, the dtype of the result."""
    x = float_tensor(x, op)
    if x.ndim < 2:
        raise ShapeError(f"{op}: the input needs a batch axis and a channel axis, got shape {x.shape}")
    dtype, wide = _result_dtypes(x, weight, bias)
    x = narrowed(x, wide)
    weight = None if weight is None else along_axis(weight, x, 1, "weight", op)
    bias = None if bias is None else along_axis(bias, x, 1, "bias", op)
    return x, weight, bias, dtype


@composite
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """The channels in ``num_groups`` groups, each of an example normalised as by :func:`layer_norm` (Wu and He 2018).

    x: (N, C, ...), its C channels a multiple of ``num_groups``; weight, bias: (C,), or None for 1 and 0.
    Raises ShapeError if the shapes do not fit, ArgumentError if ``num_groups`` does not divide C.
    """
    x, weight, bias, dtype = _channels(x, weight, bias, "group_norm")
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ArgumentError(
            f"group_norm: num_groups must be positive and divide the {x.shape[1]} channels of shape {x.shape}, "
            f"got {num_groups}"
        )
    grouped = manipulation.reshape(x, (x.shape[0], num_groups, size_of(x.shape[1:]) // num_groups))
    result = manipulation.reshape(_standardise(grouped, (2,), eps)[0], x.shape)
    return narrowed(_affine(result, weight, bias), dtype)


def batch_norm(
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` for each channel (Ioffe and Szegedy 2015).

    x: (N, C, ...); the others (C,), or None. In training mean and (biased) variance are those of ``x`` over all axes
    but 1, and the derivative goes through them; the running statistics, if given, are updated in place, to ``(1 -
    momentum) * running + momentum * new``, where the new variance is the unbiased one: inside ``jit`` too, but a
    ``vmap`` over ``x`` has no single value to give them. Otherwise mean and variance are the running ones.

    Raises ShapeError if shapes do not fit or training has one value for each channel; ArgumentError without training
    if there are no running statistics; DTypeError if they are to be updated and are no tensors.
    """
    x, weight, bias, dtype = _channels(x, weight, bias, "batch_norm")
    axes = (0, *range(2, x.ndim))
    if training:
        count = size_of(x.shape[a] for a in axes)
        if count == 1:
            raise ShapeError(f"batch_norm: training needs more than one value for each channel, got shape {x.shape}")
        result, mean, variance = _standardise(x, axes, eps)
        if count:
            _update_all(running_mean, running_var, mean, variance * (count / (count - 1)), momentum, "batch_norm")
    else:
        result = _by_running(x, running_mean, running_var, eps, "batch_norm")
    return narrowed(_affine(result, weight, bias), dtype)


def instance_norm(
    x: Any,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As :func:`batch_norm` with statistics of each example's channel for itself (Ulyanov et al. 2016).

    x: (N, C, ...) with one axis or more after the channels; the others (C,), or None. With ``use_input_stats`` mean and
    variance are those of ``x``, and running statistics that are given are updated in place with the examples' average;
    without, the running ones are used.

    Raises ShapeError if shapes do not fit or an example has one value for each channel; ArgumentError without
    ``use_input_stats`` if there are no running statistics.
    """
    x, weight, bias, dtype = _channels(x, weight, bias, "instance_norm")
    if x.ndim < 3:
        raise ShapeError(f"instance_norm: the input needs an axis after the channels, got shape {x.shape}")
    axes = tuple(range(2, x.ndim))
    if use_input_stats:
        count = size_of(x.shape[2:])
        if count == 1:
            raise ShapeError(f"instance_norm: more than one value for each channel is needed, got shape {x.shape}")
        result, mean, variance = _standardise(x, axes, eps)
        if x.size:
            mean, variance = reduction.mean(mean, axis=0), reduction.mean(variance, axis=0)
            _update_all(running_mean, running_var, mean, variance * (count / (count - 1)), momentum, "instance_norm")
    else:
        result = _by_running(x, running_mean, running_var, eps, "instance_norm")
    return narrowed(_affine(result, weight, bias), dtype)


def _by_running(x: Tensor, running_mean: Any, running_var: Any, eps: float, op: str) -> Tensor:
    if running_mean is None or running_var is None:
        raise ArgumentError(f"{op}: without the input's own statistics it needs running_mean and running_var")
    mean = along_axis(running_mean, x, 1, "running_mean", op)
    variance = along_axis(running_var, x, 1, "running_var", op)
    return (x - mean) * ew.rsqrt(variance + eps)


def _update_all(
    running_mean: Any, running_var: Any, mean: Tensor, variance: Tensor, momentum: float | Tensor, op: str
) -> None:
    """Move running statistics, where they are given, towards new ones in place."""
    for running, new, name in ((running_mean, mean, "running_mean"), (running_var, variance, "running_var")):
        if running is None:
            continue
        if not isinstance(running, Tensor):
            raise DTypeError(f"{op}: {name} is updated in place, so it must be a tensor, got {type(running).__name__}")
        if running.shape != (new.size,):
            raise ShapeError(f"{op}: {name} must have shape ({new.size},), got {running.shape}")
        flat = convert.astype(manipulation.reshape(constant(new), (-1,)), running.dtype)
        running.assign(constant(running) * (1.0 - momentum) + flat * momentum)
