"""Convolutions and their transposes: every option, in one to three axes; unfold and fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import nn
from tests.functions.row import Row, integers, normal

FIRST, LAST = "channels_first", "channels_last"


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-3], *shape[-2:], shape[-3])


def _conv(
    name: str, note: str, x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, torch: bool = True, **options: Any
) -> Row:
    """A row of ``name``; the torch function takes the same options."""
    function = getattr(nn, name)
    outputs = w[1] * options.get("groups", 1) if "transpose" in name else w[0]
    arrays = (normal(*x, seed=1), normal(*w, seed=2), *((normal(outputs, seed=3),) if bias else ()))
    peer = (lambda t: lambda *a: getattr(t.nn.functional, name)(*a, **options)) if torch else None
    return Row(f"nn.{name}", lambda *a: function(*a, **options), arrays, torch=peer, note=note)


def _images_last(name: str, note: str, x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Row:
    """Two axes, channels last."""
    function = getattr(nn, name)
    outputs = w[1] * options.get("groups", 1) if "transpose" in name else w[0]
    arrays = (normal(*_last(x), seed=1), normal(*w, seed=2), normal(outputs, seed=3))

    def peer(t: Any) -> Any:
        def call(x: Any, w: Any, b: Any) -> Any:
            return getattr(t.nn.functional, name)(x.movedim(-1, -3), w, b, **options).movedim(-3, -1)

        return call

    return Row(f"nn.{name}", lambda *a: function(*a, layout=LAST, **options), arrays, torch=peer, note=f"last {note}")


def _unequal(x: Any, w: Any) -> Any:
    return nn.conv2d(x, w, padding=((1, 0), (2, 3)), stride=(1, 2))


def _unequal_peer(t: Any) -> Any:
    return lambda x, w: t.nn.functional.conv2d(t.nn.functional.pad(x, (2, 3, 1, 0)), w, stride=(1, 2))


CONV = [
    _conv("conv1d", "plain", (2, 3, 7), (2, 3, 3)),
    _conv("conv1d", "no bias, stride", (2, 2, 8), (3, 2, 3), bias=False, stride=2),
    _conv("conv1d", "single", (3, 6), (2, 3, 2), padding=1),
    _conv("conv1d", "groups", (2, 4, 6), (6, 2, 3), groups=2, padding=2, dilation=2),
    _conv("conv1d", "same", (1, 2, 5), (2, 2, 3), padding="same"),
    _conv("conv1d", "same, dilated", (1, 2, 6), (1, 2, 2), padding="same", dilation=2),
    _conv("conv1d", "valid", (1, 2, 5), (2, 2, 4), padding="valid"),
    _conv("conv1d", "same, stride", (1, 2, 7), (2, 2, 3), torch=False, padding="same", stride=3),
    _conv("conv1d", "one", (1, 1, 1), (1, 1, 1)),
    _conv("conv2d", "plain", (2, 2, 4, 5), (3, 2, 3, 2)),
    _conv("conv2d", "stride, pixels left over", (1, 2, 6, 8), (2, 2, 3, 3), stride=(2, 3), padding=(1, 0)),
    _conv("conv2d", "dilation", (1, 2, 6, 5), (2, 2, 2, 3), dilation=(3, 2), padding=(0, 1)),
    _conv("conv2d", "groups", (1, 4, 4, 4), (2, 2, 3, 3), groups=2, padding=1, stride=2),
    _conv("conv2d", "depthwise", (2, 3, 4, 5), (3, 1, 3, 3), groups=3, padding=1),
    _conv("conv2d", "depthwise, two each", (1, 2, 5, 4), (4, 1, 2, 3), groups=2, stride=(2, 1)),
    _conv("conv2d", "one tap", (2, 3, 3, 2), (2, 3, 1, 1)),
    _conv("conv2d", "one tap, stride", (2, 3, 5, 4), (2, 3, 1, 1), stride=2),
    _conv("conv2d", "one pixel", (3, 4, 1, 1), (2, 4, 1, 1)),
    _conv("conv2d", "window of all", (2, 2, 3, 4), (3, 2, 3, 4)),
    _conv("conv2d", "single", (2, 4, 3), (3, 2, 2, 2)),
    _conv("conv2d", "one axis of one", (2, 2, 1, 6), (3, 2, 1, 3), padding=(0, 1)),
    Row("nn.conv2d", _unequal, (normal(1, 2, 4, 5, seed=1), normal(2, 2, 3, 3, seed=2)), note="unequal padding",
        torch=_unequal_peer),
    _images_last("conv2d", "plain", (2, 2, 4, 5), (3, 2, 3, 2), padding=1),
    _images_last("conv2d", "groups", (2, 4, 4, 3), (4, 2, 3, 2), groups=2, stride=2, padding=(1, 0)),
    _images_last("conv2d", "depthwise", (1, 3, 4, 5), (3, 1, 3, 3), groups=3, padding=1),
    _images_last("conv2d", "one tap", (2, 3, 3, 2), (4, 3, 1, 1)),
    _images_last("conv2d", "single", (3, 3, 4), (2, 3, 2, 2)),
    _conv("conv3d", "plain", (1, 2, 3, 4, 3), (2, 2, 2, 3, 2)),
    _conv("conv3d", "groups", (1, 2, 4, 3, 4), (4, 1, 2, 2, 3), groups=2, stride=(2, 1, 2), padding=(1, 0, 1)),
    Row("nn.conv2d", nn.conv2d, (integers(-5, 5, 1, 2, 4, 3), integers(-5, 5, 2, 2, 2, 3)), note="integers"),
    Row("nn.conv2d", lambda x, w: nn.conv2d(x, w, padding=1), (np.zeros((0, 2, 3, 3)), np.ones((4, 2, 3, 3))), by=(),
        note="no batch", torch=lambda t: lambda x, w: t.nn.functional.conv2d(x, w, padding=1)),
]  # fmt: skip

TRANSPOSED = [
    _conv("conv_transpose1d", "plain", (2, 3, 4), (3, 2, 3)),
    _conv("conv_transpose1d", "stride", (1, 2, 4), (2, 3, 3), stride=2, padding=1, output_padding=1),
    _conv("conv_transpose1d", "window below stride", (1, 2, 3), (2, 2, 2), stride=3),
    _conv("conv_transpose1d", "groups, dilation", (1, 4, 4), (4, 2, 3), groups=2, dilation=2, stride=2),
    _conv("conv_transpose1d", "single", (2, 4), (2, 1, 4), stride=2, padding=2),
    _conv("conv_transpose2d", "plain", (2, 2, 3, 2), (2, 3, 2, 3)),
    _conv("conv_transpose2d", "stride", (1, 2, 3, 2), (2, 2, 4, 3), stride=2, padding=(1, 0), output_padding=(0, 1)),
    _conv("conv_transpose2d", "one stride", (1, 2, 2, 3), (2, 2, 3, 3), stride=(1, 3), padding=1),
    _conv("conv_transpose2d", "depthwise", (1, 3, 3, 3), (3, 1, 2, 2), groups=3, stride=2),
    _conv("conv_transpose2d", "one tap", (2, 3, 2, 3), (3, 2, 1, 1), stride=2, output_padding=1),
    _images_last("conv_transpose2d", "stride", (1, 2, 3, 2), (2, 3, 3, 3), stride=2, padding=1, output_padding=1),
    _images_last("conv_transpose2d", "groups", (2, 4, 2, 3), (4, 1, 2, 2), groups=2, stride=2),
    Row("nn.conv_transpose1d", lambda x, w: nn.conv_transpose1d(x, w, stride=2, padding=((2, 0),)),
        (normal(1, 2, 4, seed=1), normal(2, 2, 3, seed=2)), note="unequal padding",
        torch=lambda t: lambda x, w: t.nn.functional.conv_transpose1d(x, w, stride=2)[..., 2:]),
    _conv("conv_transpose3d", "plain", (1, 2, 2, 2, 2), (2, 2, 2, 3, 2), stride=(2, 1, 1), padding=(0, 1, 0)),
]  # fmt: skip


def _columns(name: str, note: str, shape: tuple[int, ...], *arguments: Any, peer: bool = True, **options: Any) -> Row:
    function = getattr(nn, name)
    there = (lambda t: lambda x: getattr(t.nn.functional, name)(x, *arguments, **options)) if peer else None
    return Row(f"nn.{name}", lambda x: function(x, *arguments, **options), (normal(*shape, seed=1),), note=note,
               torch=there)  # fmt: skip


PATCHES = [
    _columns("unfold", "plain", (2, 2, 4, 5), (2, 3)),
    _columns("unfold", "all options", (1, 2, 6, 5), (3, 2), dilation=(2, 1), padding=(1, 2), stride=(2, 3)),
    _columns("unfold", "single, int", (2, 4, 4), 2, stride=2),
    _columns("unfold", "one axis", (2, 3, 7), (3,), padding=((2, 0),), stride=2, peer=False),
    _columns("fold", "plain", (2, 12, 9), (4, 5), (2, 3)),
    _columns("fold", "all options", (1, 12, 6), (6, 5), (3, 2), dilation=(2, 1), padding=(1, 2), stride=(2, 3)),
    _columns("fold", "single, int", (8, 4), 4, 2, stride=2),
    _columns("fold", "pixels left over", (1, 4, 4), (5, 6), 2, stride=3),
    _columns("fold", "one axis", (2, 6, 3), (6,), (3,), stride=2, padding=((1, 0),), peer=False),
]

ROWS = [*CONV, *TRANSPOSED, *PATCHES]
