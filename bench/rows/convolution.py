"""Convolutions of 3x3, channels first: forward, and the gradients by the input and by the weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..jobs import builders_of
from ..limits import Work
from ..row import Inputs, Target, Timed

# Batch, channels (in and out) and side of the images.
SIZES = ((8, 64, 56), (8, 256, 14))
TARGET = Target(1.0, 1.0)


def make_inputs(tiny: bool, *, size: tuple[int, int, int], kind: str) -> Inputs:
    """Of x and the cotangent g f32[batch, channels, side, side] and w f32[channels, channels, 3, 3] those needed."""
    batch, channels, side = (2, 5, 9) if tiny else size
    rng = np.random.default_rng(0)
    image = (batch, channels, side, side)
    inputs = {"x": image, "w": (channels, channels, 3, 3), "g": image}
    needed = {"forward": "xw", "input": "wg", "weight": "xg"}[kind]
    arrays = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in inputs.items()}
    return {name: array for name, array in arrays.items() if name in needed}


def work(inputs: Inputs) -> Work:
    """Every product of the direct sum, those with the border's zeros too."""
    image = inputs["x"] if "x" in inputs else inputs["g"]
    channels = image.shape[1]
    weights = 9 * channels * channels
    read = sum(array.nbytes for array in inputs.values())
    return Work(2.0 * image.size * 9 * channels, float(read), 4.0 * (2 * image.size + weights) - read)


def forward_pullback(pb: Any, nn: Any, x: Any, w: Any) -> Any:
    return nn.conv2d(x, w, padding=1)


def forward_torch(torch: Any, functional: Any, x: Any, w: Any) -> Any:
    return functional.conv2d(x, w, padding=1)


def input_pullback(pb: Any, nn: Any, w: Any, g: Any) -> Any:
    return pb.grad(lambda x: pb.sum(nn.conv2d(x, w, padding=1) * g))(pb.zeros(g.shape))


def input_torch(torch: Any, functional: Any, w: Any, g: Any) -> Any:
    return torch.nn.grad.conv2d_input(g.shape, w, g, padding=1)


def weight_pullback(pb: Any, nn: Any, x: Any, g: Any) -> Any:
    channels = x.shape[1]
    return pb.grad(lambda w: pb.sum(nn.conv2d(x, w, padding=1) * g))(pb.zeros((channels, channels, 3, 3)))


def weight_torch(torch: Any, functional: Any, x: Any, g: Any) -> Any:
    channels = x.shape[1]
    return torch.nn.grad.conv2d_weight(x, (channels, channels, 3, 3), g, padding=1)


KINDS = {
    "forward": ("forward", builders_of(forward_pullback, forward_torch)),
    "input": ("gradient by the input", builders_of(input_pullback, input_torch)),
    "weight": ("gradient by the weights", builders_of(weight_pullback, weight_torch)),
}

ROWS = tuple(
    Timed(
        f"conv3x3-{size[1]}-{kind}", f"3x3 convolution of {size[0]}x{size[1]}x{size[2]}x{size[2]}, {text}", TARGET,
        partial(make_inputs, size=size, kind=kind), builders, tolerance=2e-5, first_call=False, work=work,
    )
    for size in SIZES
    for kind, (text, builders) in KINDS.items()
)  # fmt: skip
