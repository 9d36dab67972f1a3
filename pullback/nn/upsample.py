"""Layers that resize: the functions of resizing.py as modules."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import resizing
from .module import Module


class Upsample(Module):
    """Resizes to ``size`` or by ``scale_factor``; see :func:`pullback.nn.interpolate`."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None, antialias: bool = False,
    ) -> None:
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor
        self.antialias = antialias

    def forward(self, x: Any) -> Tensor:
        return resizing.interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor, self.antialias
        )

    def extra_repr(self) -> str:
        how = f"size={self.size!r}" if self.size is not None else f"scale_factor={self.scale_factor!r}"
        return f"{how}, mode={self.mode!r}"


class PixelShuffle(Module):
    """See :func:`pullback.nn.pixel_shuffle`."""

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    def forward(self, x: Any) -> Tensor:
        return resizing.pixel_shuffle(x, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """See :func:`pullback.nn.pixel_unshuffle`."""

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor

    def forward(self, x: Any) -> Tensor:
        return resizing.pixel_unshuffle(x, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
