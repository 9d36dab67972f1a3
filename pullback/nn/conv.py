"""Convolution layers; the formulas are in convolution.py. Arguments, attributes and initial values are PyTorch's."""

from __future__ import annotations

from typing import Any, ClassVar

from ..api import convert, creation
from ..api import padding as pads
from ..errors import ArgumentError, ShapeError
from ..shapes import as_int, size_of
from ..tensor import Tensor
from . import convolution, init
from .convolution import LAYOUTS, Ints, padding_pairs, per_axis, same_pairs
from .module import Module, Parameter
from .patches import fold, unfold

# Of padding_mode: what pb.pad calls it.
_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


class _Convolution(Module):
    """What all layers of this module share: their settings, the weight and the bias.

    Both start uniform in ``+-1 / sqrt(fan_in)``, where ``fan_in`` is the second extent of the weight times its taps.
    """

    _rank: ClassVar[int] = 0
    transposed: ClassVar[bool] = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, output_padding: Any,
        dilation: Any, groups: int, bias: bool, padding_mode: str, layout: str, dtype: Any, key: Any,
    ) -> None:  # fmt: skip
        name, rank = type(self).__name__, self._rank
        self.in_channels = as_int(in_channels, name, "in_channels")
        self.out_channels = as_int(out_channels, name, "out_channels")
        self.groups = as_int(groups, name, "groups")
        if self.in_channels < 0 or self.out_channels < 0:
            raise ShapeError(
                f"{name}: numbers of channels must not be negative, got {in_channels} and {out_channels}"
            )
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise ArgumentError(
                f"{name}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}"
            )
        if layout not in LAYOUTS:
            raise ArgumentError(f"{name}: layout must be one of {', '.join(map(repr, LAYOUTS))}, got {layout!r}")
        self.kernel_size = per_axis(kernel_size, rank, name, "kernel_size", 1)
        self.stride = per_axis(stride, rank, name, "stride", 1)
        self.dilation = per_axis(dilation, rank, name, "dilation", 1)
        self.output_padding = per_axis(output_padding, rank, name, "output_padding", 0)
        self.padding = self._checked_padding(padding)
        modes = ("zeros",) if self.transposed else ("zeros", *_MODES)
        if padding_mode not in modes:
            raise ArgumentError(
                f"{name}: padding_mode must be one of {', '.join(map(repr, modes))}, got {padding_mode!r}"
            )
        self.padding_mode = padding_mode
        self.layout = layout
        first, second = self.out_channels, self.in_channels // self.groups
        if self.transposed:
            first, second = self.in_channels, self.out_channels // self.groups
        self.weight = Parameter(creation.zeros((first, second, *self.kernel_size), dtype=dtype))
        self.bias = Parameter(creation.zeros((self.out_channels,), dtype=dtype)) if bias else None
        init.layer_(self.weight, self.bias, second * size_of(self.kernel_size), key)

    def _checked_padding(self, padding: Any) -> Any:
        """A string, an int for each axis, or a pair for each axis where they are given or differ."""
        name = type(self).__name__
        if isinstance(padding, str):
            if self.transposed or padding not in ("same", "valid"):
                allowed = "ints" if self.transposed else "'same', 'valid', ints"
                raise ArgumentError(f"{name}: padding must be {allowed} or pairs of ints, got {padding!r}")
            return padding
        pairs = padding_pairs(padding, self._rank, name)
        return tuple([low for low, _ in pairs]) if all(low == high for low, high in pairs) else pairs

    def _spatial(self, x: Any) -> Ints:
        """The places of x's spatial axes."""
        first = x.ndim - self._rank
        return tuple(range(first, x.ndim)) if self.layout == "channels_first" else tuple(range(first - 1, x.ndim - 1))

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        plain = {
            "padding": (0,) * self._rank, "output_padding": (0,) * self._rank, "dilation": (1,) * self._rank,
            "groups": 1, "padding_mode": "zeros", "layout": "channels_first",
        }
        parts += [f"{n}={getattr(self, n)!r}" for n, default in plain.items() if getattr(self, n) != default]
        return ", ".join(parts) + ("" if self.bias is not None else ", bias=False")


class _Conv(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        layout: str = "channels_first", dtype: Any = None, key: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode, layout,
            dtype, key,
        )  # fmt: skip

    def forward(self, x: Any) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = self._extended(x), 0
        function = getattr(convolution, f"conv{self._rank}d")
        found: Tensor = function(
            x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups, self.layout
        )
        return found

    def _extended(self, x: Any) -> Tensor:
        """``x`` padded by what ``padding_mode`` says."""
        name = type(self).__name__
        node = convert.as_node(x, None, name)
        if node.ndim not in (self._rank + 1, self._rank + 2):
            raise ShapeError(f"{name}: x must have {self._rank + 1} or {self._rank + 2} axes, got shape {node.shape}")
        axes = self._spatial(node)
        if self.padding == "same":
            pairs = same_pairs(tuple([node.shape[a] for a in axes]), self.kernel_size, self.stride, self.dilation)
        else:
            pairs = padding_pairs(0 if self.padding == "valid" else self.padding, self._rank, name)
        return pads.pad(Tensor(node), dict(zip(axes, pairs)), mode=_MODES[self.padding_mode])


class Conv1d(_Conv):
    """:func:`~pullback.nn.conv1d` with a weight of shape (out_channels, in_channels / groups, K) and a bias, or None.

    x: (N, in_channels, L) or (in_channels, L); with ``layout="channels_last"`` the channels come last.
    kernel_size, stride, dilation: an int, or one for each axis. padding: also "same", "valid" or pairs (before, after).
    padding_mode: "zeros", "reflect", "replicate" or "circular", what stands in the padding.
    Both parameters start uniform in ``+-1 / sqrt(in_channels / groups * K)``. key: a random key for the start; without
    one the global generator is used.
    """

    _rank = 1


class Conv2d(_Conv):
    """As :class:`Conv1d`, over two axes.  x: (N, in_channels, H, W); weight: (out_channels, in_channels / groups, KH,
    KW)."""

    _rank = 2


class Conv3d(_Conv):
    """As :class:`Conv1d`, over three axes.  x: (N, in_channels, D, H, W); weight: (out_channels, in_channels / groups,
    KD, KH, KW)."""

    _rank = 3


class _ConvTranspose(_Convolution):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros",
        layout: str = "channels_first", dtype: Any = None, key: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias,
            padding_mode, layout, dtype, key,
        )  # fmt: skip

    def forward(self, x: Any, output_size: Any = None) -> Tensor:
        """output_size: the result's spatial extents, in place of ``output_padding``."""
        more = self.output_padding if output_size is None else self._output_padding(x, output_size)
        function = getattr(convolution, f"conv_transpose{self._rank}d")
        found: Tensor = function(
            x, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation, self.layout
        )
        return found

    def _output_padding(self, x: Any, output_size: Any) -> Ints:
        name = type(self).__name__
        wanted = tuple(output_size)[-self._rank :] if self.layout == "channels_first" else tuple(output_size)
        wanted = per_axis(wanted, self._rank, name, "output_size", 1)
        least = []
        settings = zip(self._spatial(x), self.kernel_size, self.stride, self.dilation)
        for (axis, taps, step, gap), (low, high) in zip(settings, padding_pairs(self.padding, self._rank, name)):
            least.append((x.shape[axis] - 1) * step - low - high + gap * (taps - 1) + 1)
        most = [n + max(step, gap) - 1 for n, step, gap in zip(least, self.stride, self.dilation)]
        if not all(low <= n <= high for low, n, high in zip(least, wanted, most)):
            raise ArgumentError(
                f"{name}: output_size must lie between {tuple(least)} and {tuple(most)} for x of shape {x.shape}, got "
                f"{output_size!r}"
            )
        return tuple([n - low for n, low in zip(wanted, least)])


class ConvTranspose1d(_ConvTranspose):
    """:func:`~pullback.nn.conv_transpose1d` with a weight of shape (in_channels, out_channels / groups, K) and a bias,
    or None.

    x: (N, in_channels, L) or (in_channels, L); with ``layout="channels_last"`` the channels come last. Arguments are
    those of the function; both parameters start uniform in ``+-1 / sqrt(out_channels / groups * K)``, PyTorch's choice.
    key: a random key for the start; without one the global generator is used.
    """

    _rank = 1


class ConvTranspose2d(_ConvTranspose):
    """As :class:`ConvTranspose1d`, over two axes.  x: (N, in_channels, H, W); weight: (in_channels, out_channels /
    groups, KH, KW)."""

    _rank = 2


class ConvTranspose3d(_ConvTranspose):
    """As :class:`ConvTranspose1d`, over three axes.  x: (N, in_channels, D, H, W); weight: (in_channels, out_channels /
    groups, KD, KH, KW)."""

    _rank = 3


class Unfold(Module):
    """:func:`~pullback.nn.unfold` with its settings."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Any) -> Tensor:
        return unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Fold(Module):
    """:func:`~pullback.nn.fold` with its settings."""

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        self.output_size = output_size
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Any) -> Tensor:
        return fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
