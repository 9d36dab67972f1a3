"""Pooling and resizing of images, channels first: the value, and with it the gradient by the images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..jobs import builders_of, torch_gradients
from ..limits import Work
from ..row import Inputs, Target, Timed

TARGET = Target(0.8, 1.0)

# Of ``nn`` or ``torch.nn.functional``, whose names and arguments are the same.
Call = Callable[[Any, Any], Any]


def pooled(functional: Any, x: Any) -> Any:
    """The pooling behind ResNet's first convolution."""
    return functional.max_pool2d(x, 3, stride=2, padding=1)


def bins(functional: Any, x: Any) -> Any:
    """Bins of two and of three elements."""
    return functional.adaptive_avg_pool2d(x, 7)


def doubled(functional: Any, x: Any) -> Any:
    return functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


# Name: the call, what it is, the images' shape and the results' side.
CALLS: dict[str, tuple[Call, str, tuple[int, ...], int]] = {
    "max-pool": (pooled, "largest of 3x3 every 2, 32x64x56x56", (32, 64, 56, 56), 28),
    "adaptive-pool": (bins, "means of 7x7 bins, 32x256x13x13", (32, 256, 13, 13), 7),
    "bilinear": (doubled, "twice the size, 8x64x56x56", (8, 64, 56, 56), 112),
}


def make_inputs(tiny: bool, *, shape: tuple[int, ...]) -> Inputs:
    """x f32[batch, channels, side, side]."""
    shape = (2, 3, *shape[2:]) if tiny else shape
    return {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}


def work(inputs: Inputs, *, side: int, gradient: bool) -> Work:
    """The bytes of the images, of the results and, where they are asked for, of the gradients."""
    x = inputs["x"]
    results = 4.0 * x.shape[0] * x.shape[1] * side * side
    return Work(0.0, float(x.nbytes), results + (x.nbytes if gradient else 0.0))


def forward_pullback(pb: Any, nn: Any, x: Any, *, call: Call) -> Any:
    return call(nn, x)


def forward_torch(torch: Any, functional: Any, x: Any, *, call: Call) -> Any:
    return call(functional, x)


def gradient_pullback(pb: Any, nn: Any, x: Any, *, call: Call) -> Any:
    return pb.value_and_grad(lambda x: pb.sum(call(nn, x) ** 2))(x)


def gradient_torch(torch: Any, functional: Any, x: Any, *, call: Call) -> Any:
    return torch_gradients(lambda x: (call(functional, x) ** 2).sum(), x)


def rows(name: str) -> tuple[Timed, Timed]:
    call, what, shape, side = CALLS[name]
    inputs = partial(make_inputs, shape=shape)
    return (
        Timed(
            name, what, TARGET, inputs,
            builders_of(partial(forward_pullback, call=call), partial(forward_torch, call=call)),
            tolerance=1e-5, first_call=False, work=partial(work, side=side, gradient=False),
        ),
        Timed(
            f"{name}-grad", f"gradient of sum(y^2), y: {what}", TARGET, inputs,
            builders_of(partial(gradient_pullback, call=call), partial(gradient_torch, call=call)),
            tolerance=1e-4, first_call=False, work=partial(work, side=side, gradient=True),
        ),
    )  # fmt: skip


ROWS = tuple(row for name in CALLS for row in rows(name))
