"""Pooling layers: the functions of pooling.py as modules, with PyTorch's names and arguments."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import pooling
from .module import Module
from .pooling import Sizes


class _Pool(Module):
    """A layer without parameters: ``function(x, **self.options)``."""

    function: Any
    options: dict[str, Any]

    def forward(self, x: Any) -> Any:
        return type(self).function(x, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class _MaxPool(_Pool):
    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:
        self.options = {
            "kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation,
            "ceil_mode": ceil_mode, "return_indices": return_indices,
        }


class MaxPool1d(_MaxPool):
    """See :func:`pullback.nn.max_pool1d`."""

    function = staticmethod(pooling.max_pool1d)


class MaxPool2d(_MaxPool):
    """See :func:`pullback.nn.max_pool2d`."""

    function = staticmethod(pooling.max_pool2d)


class MaxPool3d(_MaxPool):
    """See :func:`pullback.nn.max_pool3d`."""

    function = staticmethod(pooling.max_pool3d)


class AvgPool1d(_Pool):
    """See :func:`pullback.nn.avg_pool1d`."""

    function = staticmethod(pooling.avg_pool1d)

    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.options = {
            "kernel_size": kernel_size, "stride": stride, "padding": padding, "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad,
        }


class _AvgPool(_Pool):
    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:
        self.options = {
            "kernel_size": kernel_size, "stride": stride, "padding": padding, "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad, "divisor_override": divisor_override,
        }


class AvgPool2d(_AvgPool):
    """See :func:`pullback.nn.avg_pool2d`."""

    function = staticmethod(pooling.avg_pool2d)


class AvgPool3d(_AvgPool):
    """See :func:`pullback.nn.avg_pool3d`."""

    function = staticmethod(pooling.avg_pool3d)


class _LPPool(_Pool):
    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        self.options = {
            "norm_type": norm_type, "kernel_size": kernel_size, "stride": stride, "ceil_mode": ceil_mode,
        }


class LPPool1d(_LPPool):
    """See :func:`pullback.nn.lp_pool1d`."""

    function = staticmethod(pooling.lp_pool1d)


class LPPool2d(_LPPool):
    """See :func:`pullback.nn.lp_pool2d`."""

    function = staticmethod(pooling.lp_pool2d)


class LPPool3d(_LPPool):
    """See :func:`pullback.nn.lp_pool3d`."""

    function = staticmethod(pooling.lp_pool3d)


class _AdaptiveAvgPool(_Pool):
    def __init__(self, output_size: Any) -> None:
        self.options = {"output_size": output_size}


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """See :func:`pullback.nn.adaptive_avg_pool1d`."""

    function = staticmethod(pooling.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """See :func:`pullback.nn.adaptive_avg_pool2d`."""

    function = staticmethod(pooling.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """See :func:`pullback.nn.adaptive_avg_pool3d`."""

    function = staticmethod(pooling.adaptive_avg_pool3d)


class _AdaptiveMaxPool(_Pool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        self.options = {"output_size": output_size, "return_indices": return_indices}


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """See :func:`pullback.nn.adaptive_max_pool1d`."""

    function = staticmethod(pooling.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """See :func:`pullback.nn.adaptive_max_pool2d`."""

    function = staticmethod(pooling.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """See :func:`pullback.nn.adaptive_max_pool3d`."""

    function = staticmethod(pooling.adaptive_max_pool3d)


class _MaxUnpool(_Pool):
    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.options = {"kernel_size": kernel_size, "stride": stride, "padding": padding}

    def forward(self, x: Any, indices: Any = None, output_size: Any = None) -> Tensor:
        result: Tensor = type(self).function(x, indices, output_size=output_size, **self.options)
        return result


class MaxUnpool1d(_MaxUnpool):
    """See :func:`pullback.nn.max_unpool1d`."""

    function = staticmethod(pooling.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """See :func:`pullback.nn.max_unpool2d`."""

    function = staticmethod(pooling.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """See :func:`pullback.nn.max_unpool3d`."""

    function = staticmethod(pooling.max_unpool3d)
