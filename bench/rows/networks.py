"""Whole networks, against PyTorch: LeNet, ResNet-18, a depthwise-separable block and a small GPT (see models.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..limits import Work
from ..models import gpt, lenet, resnet18, run_pullback, run_torch, separable_block, train_pullback, train_torch
from ..row import Inputs, Job, Target, Timed

Make = Callable[..., Any]
LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 4, 192, 6, 128, 65
CLASSES = 1000


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def image_inputs(tiny: bool, *, shape: tuple[int, ...], classes: int, batch: int = 2) -> Inputs:
    """Images f32[batch, channels, side, side] and labels i64[batch]; where tiny, ``batch`` of them and small."""
    if tiny:
        side = min(shape[-1], 32)
        shape = (batch, shape[1], side, side)
    return {"x": _normal(*shape), "y": np.random.default_rng(1).integers(0, classes, shape[0])}


def classify(functional: Any, model: Any, x: Any, y: Any) -> Any:
    return functional.cross_entropy(model(x), y)


def train(make: Make, loss: Callable[..., Any], optimizer: str, **settings: Any) -> dict[str, Callable[[Inputs], Job]]:
    options: dict[str, Any] = {"make": make, "loss": loss, "optimizer": optimizer, **settings}
    return {"pullback": partial(train_pullback, **options), "torch": partial(train_torch, **options)}


# -- work: the products' multiply-adds, and twice as many again for the gradients --------------------------------------


def lenet_work(inputs: Inputs) -> Work:
    weights = 28 * 28 * 6 * 25 + 10 * 10 * 16 * 6 * 25 + 400 * 120 + 120 * 84 + 84 * 10
    return Work(6.0 * len(inputs["x"]) * weights)


def resnet_work(inputs: Inputs, *, passes: int, width: int) -> Work:
    """passes: 1 forward, 3 in training."""
    batch, channels, side, _ = inputs["x"].shape
    side = -(-side // 2)
    products = side * side * width * channels * 49
    side = -(-side // 2)
    inner = width
    for stage in range(4):
        outer = width << stage
        side = -(-side // 2) if stage else side
        products += side * side * 9 * outer * (inner + 3 * outer) + (side * side * inner * outer if stage else 0)
        inner = outer
    return Work(2.0 * passes * batch * (products + inner * CLASSES))


def separable_work(inputs: Inputs) -> Work:
    x = inputs["x"]
    channels = x.shape[1]
    return Work(6.0 * x.size * (9 + 2 * channels))


def gpt_work(inputs: Inputs) -> Work:
    batch, tokens = inputs["tokens"].shape
    each = LAYERS * (12 * WIDTH * WIDTH + tokens * WIDTH) + WIDTH * VOCABULARY  # causal: half of the scores
    return Work(6.0 * batch * tokens * each)


# -- the networks ------------------------------------------------------------------------------------------------------


def _lenet(library: Any, nn: Any) -> Any:
    return lenet(nn)


def _resnet(library: Any, nn: Any) -> Any:
    return resnet18(nn, classes=CLASSES)


def _separable(library: Any, nn: Any) -> Any:
    return separable_block(nn, 128, 256)


def separable_inputs(tiny: bool) -> Inputs:
    """Images f32[batch, 128, side, side] and a cotangent of the block's result."""
    batch, side = (2, 6) if tiny else (8, 28)
    return {"x": _normal(batch, 128, side, side), "g": _normal(batch, 256, side, side)[::-1].copy()}


def separable_loss(functional: Any, model: Any, x: Any, g: Any) -> Any:
    return (model(x) * g).mean()


def gpt_inputs(tiny: bool) -> Inputs:
    """Tokens and the next of each, i64[batch, tokens]."""
    shape = (2, 12) if tiny else (8, CONTEXT)
    rng = np.random.default_rng(0)
    return {"tokens": rng.integers(0, VOCABULARY, shape), "following": rng.integers(0, VOCABULARY, shape)}


def _gpt(library: Any, nn: Any) -> Any:
    return gpt(library, nn, LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY)


def gpt_loss(functional: Any, model: Any, tokens: Any, following: Any) -> Any:
    return functional.cross_entropy(model(tokens).reshape((-1, VOCABULARY)), following.reshape((-1,)))


IMAGES = (16, 3, 64, 64)

ROWS = (
    Timed(
        "lenet", "SGD-momentum step of LeNet-5, batch 64 of 28x28", Target(0.8, 1.0),
        partial(image_inputs, shape=(64, 1, 28, 28), classes=10), train(_lenet, classify, "SGD", lr=0.01, momentum=0.9),
        tolerance=1e-4, steps_to_check=3, work=lenet_work,
    ),
    Timed(
        "resnet18", "ResNet-18, 16x3x64x64, forward", Target(1.0, 1.0),
        partial(image_inputs, shape=IMAGES, classes=CLASSES),
        {"pullback": partial(run_pullback, make=_resnet), "torch": partial(run_torch, make=_resnet)}, tolerance=1e-4,
        first_call=False, work=partial(resnet_work, passes=1, width=64),
    ),
    Timed(
        "resnet18-train", "SGD-momentum step of ResNet-18, 16x3x64x64, batch norm in training", Target(1.0, 1.0),
        partial(image_inputs, shape=IMAGES, classes=CLASSES, batch=4),
        train(_resnet, classify, "SGD", lr=0.001, momentum=0.9), tolerance=1e-3, first_call=False,
        work=partial(resnet_work, passes=3, width=64),
    ),
    Timed(
        "separable", "SGD step of a depthwise-separable block, 8x128x28x28 to 256 channels", Target(1.0, 1.0),
        separable_inputs, train(_separable, separable_loss, "SGD", lr=0.1), tolerance=1e-4, first_call=False,
        work=separable_work,
    ),
    Timed(
        "gpt-nano", "Adam step of a GPT of 4 layers, width 192, 8 x 128 tokens", Target(0.5, 0.6), gpt_inputs,
        train(_gpt, gpt_loss, "Adam", lr=1e-3), tolerance=1e-3, steps_to_check=2, work=gpt_work,
    ),
)  # fmt: skip
