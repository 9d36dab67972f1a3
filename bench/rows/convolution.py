"""Convolutions with as many channels out as in, channels first: forward, and the gradients by the input and by the
weights. Dense, in groups (ResNeXt) and depthwise (ConvNeXt)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..jobs import builders_of
from ..limits import Work
from ..row import Inputs, Target, Timed


class Setting(NamedTuple):
    """``taps`` by ``taps`` on ``batch`` images of ``side`` pixels, padded so that as many come out."""

    name: str
    batch: int
    channels: int
    side: int
    taps: int
    groups: int


SETTINGS = (
    Setting("conv3x3-64", 8, 64, 56, 3, 1), Setting("conv3x3-256", 8, 256, 14, 3, 1),
    Setting("grouped3x3-256", 8, 256, 28, 3, 32), Setting("depthwise7x7-96", 4, 96, 56, 7, 96),
)  # fmt: skip
TARGET, FEW_CHANNELS = Target(1.0, 1.0), Target(1.0, 2.0)


def make_inputs(tiny: bool, *, setting: Setting, kind: str) -> Inputs:
    """Of x and the cotangent g f32[batch, channels, side, side] and w f32[channels, channels / groups, taps, taps]
    those needed. (The gradient by the weights takes only the shape of w.)"""
    _, batch, channels, side, taps, groups = setting
    if tiny:
        channels, side, groups = 6, 9, {1: 1, channels: 6}.get(groups, 3)
    rng = np.random.default_rng(0)
    image = (batch, channels, side, side)
    inputs = {"x": image, "w": (channels, channels // groups, taps, taps), "g": image}
    needed = {"forward": "xw", "input": "wg", "weight": "xwg"}[kind]
    arrays = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in inputs.items()}
    return {name: array for name, array in arrays.items() if name in needed}


def work(inputs: Inputs) -> Work:
    """Every product of the direct sum, those with the border's zeros too; of x, w, g two are read, one is written."""
    image, w = inputs["x"] if "x" in inputs else inputs["g"], inputs["w"]
    written = w.nbytes if len(inputs) == 3 else image.nbytes
    return Work(2.0 * image.size * w[0].size, 2.0 * image.nbytes + w.nbytes - written, float(written))


def _options(w: Any, image: Any) -> dict[str, int]:
    return {"padding": w.shape[2] // 2, "groups": image.shape[1] // w.shape[1]}


def forward_pullback(pb: Any, nn: Any, x: Any, w: Any) -> Any:
    return nn.conv2d(x, w, **_options(w, x))


def forward_torch(torch: Any, functional: Any, x: Any, w: Any) -> Any:
    return functional.conv2d(x, w, **_options(w, x))


def input_pullback(pb: Any, nn: Any, w: Any, g: Any) -> Any:
    return pb.grad(lambda x: pb.sum(nn.conv2d(x, w, **_options(w, g)) * g))(pb.zeros(g.shape))


def input_torch(torch: Any, functional: Any, w: Any, g: Any) -> Any:
    return torch.nn.grad.conv2d_input(g.shape, w, g, **_options(w, g))


def weight_pullback(pb: Any, nn: Any, x: Any, w: Any, g: Any) -> Any:
    return pb.grad(lambda w: pb.sum(nn.conv2d(x, w, **_options(w, x)) * g))(w)


def weight_torch(torch: Any, functional: Any, x: Any, w: Any, g: Any) -> Any:
    return torch.nn.grad.conv2d_weight(x, w.shape, g, **_options(w, x))


KINDS = {
    "forward": ("forward", builders_of(forward_pullback, forward_torch)),
    "input": ("gradient by the input", builders_of(input_pullback, input_torch)),
    "weight": ("gradient by the weights", builders_of(weight_pullback, weight_torch)),
}


def _what(setting: Setting, text: str) -> str:
    groups = f" in {setting.groups} groups" if setting.groups > 1 else ""
    images = f"{setting.batch}x{setting.channels}x{setting.side}x{setting.side}"
    return f"{setting.taps}x{setting.taps} convolution{groups} of {images}, {text}"


ROWS = tuple(
    Timed(
        f"{setting.name}-{kind}", _what(setting, text), TARGET if setting.groups == 1 else FEW_CHANNELS,
        partial(make_inputs, setting=setting, kind=kind), builders, tolerance=2e-5, first_call=False, work=work,
    )
    for setting in SETTINGS
    for kind, (text, builders) in KINDS.items()
)  # fmt: skip
