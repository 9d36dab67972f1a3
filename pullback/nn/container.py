"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .module import Module


class Sequential(Module):
    """Calls its layers one after the other. A layer is a module, or any function of one tensor.

    Layers are the attributes "0", "1"..., so parameters are called "0.weight" and so on, as in PyTorch.
    """

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        for layer in layers:
            self.append(layer)

    @property
    def layers(self) -> tuple[Callable[[Any], Any], ...]:
        """The layers in order."""
        attributes = self.__dict__
        count = 0
        while str(count) in attributes:
            count += 1
        return tuple([attributes[str(i)] for i in range(count)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def append(self, layer: Callable[[Any], Any]) -> Sequential:
        """Add a layer at the end; returns the module."""
        if not callable(layer):
            raise TypeError(f"Sequential: a layer must be callable, got {type(layer).__name__}")
        setattr(self, str(len(self.layers)), layer)
        return self

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        return iter(self.layers)

    def __getitem__(self, index: Any) -> Any:
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]
