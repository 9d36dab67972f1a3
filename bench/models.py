"""Models that rows train and run, written once: each is built from Pullback's ``nn`` or from PyTorch's.

Parameters are filled by name and shape, so that both libraries begin with the same numbers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .row import Inputs, Job

# ``(nn.functional, model, **inputs)``: a loss, in either library.
Loss = Callable[..., Any]


# -- models ------------------------------------------------------------------------------------------------------------


def lenet(nn: Any) -> Any:
    """LeNet-5 (LeCun et al. 1998) as it is taught today, of images 1x28x28: ReLU, max pooling, ten logits."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def resnet18(nn: Any, width: int = 64, classes: int = 1000) -> Any:
    """ResNet-18 (He et al. 2015), channels first; ``width`` channels after the first layer."""

    class Block(nn.Module):
        def __init__(self, channels: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(channels, outputs, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip
            self.shortcut = nn.Identity()
            if stride != 1 or channels != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
                )
            self.activation = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.activation(self.first(x) + self.shortcut(x))

    blocks: list[Any] = []
    channels = width
    for stage in range(4):
        outputs = width << stage
        blocks += [Block(channels, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(channels, classes),
    )  # fmt: skip


def separable_block(nn: Any, channels: int, outputs: int) -> Any:
    """A depthwise 3x3 and a pointwise convolution, each with batch norm and ReLU (MobileNet, Howard et al. 2017)."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


def gpt(library: Any, nn: Any, layers: int, width: int, heads: int, context: int, vocabulary: int) -> Any:
    """A decoder of ``layers`` blocks with the norm first (Radford et al. 2019); called with tokens and positions."""
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            q, k, v = (
                part.reshape((batch, tokens, heads, width // heads)).permute(0, 2, 1, 3)
                for part in self.qkv(self.norm1(x)).chunk(3, -1)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(y.permute(0, 2, 1, 3).reshape((batch, tokens, width)))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.positions(library.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x)))

    return GPT()


# -- their first parameters --------------------------------------------------------------------------------------------


def _first_value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter's first value: normal over the square root of the fan-in; scales of norms near 1, others small."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    x = rng.standard_normal(shape, dtype=np.float32)
    if len(shape) > 1:
        return x * np.float32(1 / math.sqrt(math.prod(shape[1:])))
    return x * np.float32(0.1) + np.float32(name.endswith("weight"))


def fill(model: Any, from_numpy: Callable[[np.ndarray], Any]) -> Any:
    """The model with its first parameters; its buffers stay as they are."""
    state = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        state[name] = from_numpy(_first_value(name, tuple(parameter.shape)))
    model.load_state_dict(state)
    return model


# -- jobs --------------------------------------------------------------------------------------------------------------


def train_pullback(inputs: Inputs, make: Callable[..., Any], loss: Loss, optimizer: str, **settings: Any) -> Job:
    """A step of ``optimizer``: the loss, its gradients, the update."""
    import pullback as pb
    from pullback import nn, optim

    model = fill(make(pb, nn), pb.asarray)
    update = getattr(optim, optimizer)(model.parameters(), **settings)
    arguments = {name: pb.asarray(value) for name, value in inputs.items()}

    @pb.jit
    def train_step(**arguments: Any) -> Any:
        update.zero_grad()
        value = loss(nn.functional, model, **arguments)
        value.backward()
        update.step()
        return value

    def step() -> Any:
        value = train_step(**arguments)
        pb.eval(value)
        return value

    return Job(step, lambda value: [np.asarray(value), *map(np.asarray, _watched(model))])


def train_torch(inputs: Inputs, make: Callable[..., Any], loss: Loss, optimizer: str, **settings: Any) -> Job:
    """The same in PyTorch, with its fused optimizer."""
    import torch
    from torch import nn

    model = fill(make(torch, nn), torch.from_numpy)
    update = getattr(torch.optim, optimizer)(model.parameters(), fused=True, **settings)
    arguments = {name: torch.from_numpy(value) for name, value in inputs.items()}

    def step() -> Any:
        update.zero_grad()
        value = loss(nn.functional, model, **arguments)
        value.backward()
        update.step()
        return value

    return Job(step, lambda value: [value.detach().numpy(), *(p.detach().numpy() for p in _watched(model))])


def _watched(model: Any) -> list[Any]:
    """The parameters that are compared: the first matrix and the last."""
    matrices = [parameter for parameter in model.parameters() if len(parameter.shape) > 1]
    return [matrices[0], matrices[-1]]


def run_pullback(inputs: Inputs, make: Callable[..., Any]) -> Job:
    """The model's results for one batch ``x``, not in training."""
    import pullback as pb
    from pullback import nn

    model = fill(make(pb, nn), pb.asarray).eval()
    function, x = pb.jit(model), pb.asarray(inputs["x"])

    def step() -> Any:
        with pb.no_grad():
            y = function(x)
        pb.eval(y)
        return y

    return Job(step, lambda y: [np.asarray(y)])


def run_torch(inputs: Inputs, make: Callable[..., Any]) -> Job:
    """The same in PyTorch."""
    import torch
    from torch import nn

    model, x = fill(make(torch, nn), torch.from_numpy).eval(), torch.from_numpy(inputs["x"])

    def step() -> Any:
        with torch.inference_mode():
            return model(x)

    return Job(step, lambda y: [y.numpy()])
