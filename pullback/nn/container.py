"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .module import Module


class Sequential(Module):
    """Calls its layers one after the other. A layer is a module, or any function of one tensor."""

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        for layer in layers:
            if not callable(layer):
                raise TypeError(f"Sequential: a layer must be callable, got {type(layer).__name__}")
        self.layers = layers

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def append(self, layer: Callable[[Any], Any]) -> Sequential:
        """Add a layer at the end; returns the module."""
        if not callable(layer):
            raise TypeError(f"Sequential: a layer must be callable, got {type(layer).__name__}")
        self.layers = (*self.layers, layer)
        return self

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        return iter(self.layers)

    def __getitem__(self, index: Any) -> Any:
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]
