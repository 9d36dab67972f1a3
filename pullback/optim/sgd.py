"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..api import elementwise as ew
from ..errors import ArgumentError
from ..tensor import Tensor
from .optimizer import Hyper, Optimizer, State, zeros_like


class SGD(Optimizer):
    """``p -= lr * g``, with PyTorch's formulas and names for the rest.

    momentum: ``b = momentum * b + (1 - dampening) * g`` (the first time ``b = g``), and ``b`` takes the place of ``g``;
    nesterov: ``g + momentum * b`` does.   weight_decay: ``weight_decay * p`` is added to ``g`` first.
    maximize: the sign of ``g`` is turned.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        if nesterov and (not momentum > 0.0 or dampening != 0.0):
            raise ArgumentError("SGD: nesterov needs a momentum above 0 and no dampening")
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                "nesterov": nesterov, "maximize": maximize,
            },
        )

    def _new_state(self, param: Tensor, hyper: Hyper) -> State:
        return {"momentum_buffer": zeros_like(param)} if hyper.has("momentum") else {}

    def _lacks(self, found: State, hyper: Hyper) -> bool:
        return hyper.has("momentum") and "momentum_buffer" not in found

    def _update(self, param: Tensor, grad: Tensor, state: State, count: Tensor, hyper: Hyper) -> tuple[Tensor, State]:
        dtype = param.dtype
        if hyper.has("maximize"):
            grad = -grad
        if hyper.has("weight_decay"):
            grad = grad + param * hyper.rounded("weight_decay", dtype)
        new: State = {}
        if hyper.has("momentum"):
            momentum = hyper.rounded("momentum", dtype)
            buffer = state["momentum_buffer"] * momentum
            if hyper.has("dampening"):
                fresh = hyper.rounded("fresh", dtype, lambda: 1.0 - hyper["dampening"])
                buffer = ew.where(count == 1, grad, buffer + grad * fresh)
            else:
                buffer = buffer + grad  # from 0, so the first time it is the gradient
            new["momentum_buffer"] = buffer
            grad = grad + buffer * momentum if hyper.has("nesterov") else buffer
        return param - grad * hyper.rounded("lr", dtype), new
