"""Normalisation layers; the formulas are in normalization.py."""

from __future__ import annotations

from typing import Any, ClassVar

from ..api import convert, creation
from ..errors import ArgumentError, ShapeError
from ..tensor import Tensor
from . import normalization
from .module import Module, Parameter


class LayerNorm(Module):
    """:func:`~pullback.nn.layer_norm` with a weight and a bias, which start at 1 and 0."""

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
        return normalization.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """:func:`~pullback.nn.rms_norm` with a weight, which starts at 1."""

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
        return normalization.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class GroupNorm(Module):
    """:func:`~pullback.nn.group_norm` with a weight and a bias for each channel, which start at 1 and 0."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: Any = None
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: {num_groups} groups do not divide {num_channels} channels")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Parameter(creation.ones((num_channels,), dtype=dtype)) if affine else None
        self.bias = Parameter(creation.zeros((num_channels,), dtype=dtype)) if affine else None

    def forward(self, x: Any) -> Tensor:
        if x.shape[1:2] != (self.num_channels,):
            raise ShapeError(f"GroupNorm: axis 1 of the input needs {self.num_channels} channels, got shape {x.shape}")
        return normalization.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


class _RunningNorm(Module):
    """What batch and instance norm share: parameters and running statistics of ``num_features`` channels."""

    # The numbers of axes that inputs may have; without the batch axis, where that may be left out.
    _ranks: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = None,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.track_running_stats = track_running_stats
        self.weight = Parameter(creation.ones((num_features,), dtype=dtype)) if affine else None
        self.bias = Parameter(creation.zeros((num_features,), dtype=dtype)) if affine else None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        self.num_batches_tracked: Tensor | None = None
        if track_running_stats:
            self.running_mean = creation.zeros((num_features,), dtype=dtype)
            self.running_var = creation.ones((num_features,), dtype=dtype)
            self.num_batches_tracked = creation.zeros((), dtype="int64")

    def _checked(self, x: Any) -> Any:
        rank = len(x.shape)
        if rank not in self._ranks:
            raise ShapeError(
                f"{type(self).__name__}: an input of {' or '.join(map(str, self._ranks))} axes expected, got shape "
                f"{x.shape}"
            )
        return x

    def _momentum(self) -> float | Tensor:
        """Counts a batch; how far the running statistics move towards its own."""
        count = self.num_batches_tracked
        if count is not None:
            count.assign(count + 1)
        if self.momentum is not None:
            return self.momentum
        if count is None or self.running_mean is None:
            return 0.0
        return 1.0 / convert.astype(count, self.running_mean.dtype)

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the running variance to 1 and the number of batches to 0."""
        for buffer, value in ((self.running_mean, 0.0), (self.running_var, 1.0), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.assign(value)

    def extra_repr(self) -> str:
        settings = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"
        settings += "" if self.weight is not None else ", affine=False"
        return f"{settings}, track_running_stats={self.track_running_stats}"


class _BatchNorm(_RunningNorm):
    def forward(self, x: Any) -> Tensor:
        x = self._checked(x)
        uses_input = self.training or self.running_mean is None
        momentum = self._momentum() if uses_input else 0.0
        return normalization.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, uses_input, momentum, self.eps
        )


class BatchNorm1d(_BatchNorm):
    """:func:`~pullback.nn.batch_norm` of (N, C) or (N, C, L), its running statistics buffers of the module.

    Training uses the batch's statistics and moves the running ones towards them by ``momentum`` (None: they are the
    averages over all batches so far); after ``eval()`` the running ones are used. Without ``track_running_stats`` there
    are none, and the batch's are always used. weight and bias start at 1 and 0; ``affine=False`` leaves them out.
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """As :class:`BatchNorm1d`, of (N, C, H, W)."""

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """As :class:`BatchNorm1d`, of (N, C, D, H, W)."""

    _ranks = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Any) -> Tensor:
        x = self._checked(x)
        uses_input = self.training or self.running_mean is None
        momentum = self._momentum() if uses_input else 0.0
        is_single = len(x.shape) == self._ranks[0]
        result = normalization.instance_norm(
            x[None] if is_single else x, self.running_mean, self.running_var, self.weight, self.bias, uses_input,
            momentum, self.eps,
        )
        return result[0] if is_single else result


class InstanceNorm1d(_InstanceNorm):
    """:func:`~pullback.nn.instance_norm` of (N, C, L) or (C, L).

    Each example's own statistics are used, unless ``track_running_stats`` keeps running ones, as :class:`BatchNorm1d`
    does: then ``eval()`` uses those. ``affine=True`` adds a weight and a bias for each channel, which start at 1 and 0.
    """

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """As :class:`InstanceNorm1d`, of (N, C, H, W) or (C, H, W)."""

    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """As :class:`InstanceNorm1d`, of (N, C, D, H, W) or (C, D, H, W)."""

    _ranks = (4, 5)
