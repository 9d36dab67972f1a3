"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..api import elementwise as ew
from ..errors import ArgumentError
from ..tensor import Tensor
from .optimizer import Hyper, Optimizer, State, zeros_like


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), with PyTorch's formulas and names.

    ``m = beta1 m + (1 - beta1) g``; ``v = beta2 v + (1 - beta2) g^2``;
    ``p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)``.
    weight_decay: ``weight_decay * p`` is added to ``g`` first.   amsgrad: the largest ``v`` so far is used.
    """

    _decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr, "betas": (betas[0], betas[1]), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def _check(self, name: str, value: float) -> None:
        super()._check(name, value)
        if name.startswith("betas") and not value < 1.0:
            raise ArgumentError(f"{type(self).__name__}: betas must be in [0, 1), got {value}")

    def _new_state(self, param: Tensor, hyper: Hyper) -> State:
        state = {"exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}
        if hyper.has("amsgrad"):
            state["max_exp_avg_sq"] = zeros_like(param)
        return state

    def _lacks(self, found: State, hyper: Hyper) -> bool:
        return hyper.has("amsgrad") and "max_exp_avg_sq" not in found

    def _update(self, param: Tensor, grad: Tensor, state: State, count: Tensor, hyper: Hyper) -> tuple[Tensor, State]:
        dtype = param.dtype
        steps = id(count)  # parameters that do not always step together have counts of their own
        if hyper.has("maximize"):
            grad = -grad
        if hyper.has("weight_decay"):
            if self._decoupled:
                kept = hyper.rounded("kept", dtype, lambda: 1.0 - hyper["lr"] * hyper["weight_decay"])
                param = param * kept
            else:
                grad = grad + param * hyper.rounded("weight_decay", dtype)
        fresh1 = hyper.rounded("fresh1", dtype, lambda: 1.0 - hyper["betas.0"])
        fresh2 = hyper.rounded("fresh2", dtype, lambda: 1.0 - hyper["betas.1"])
        mean = state["exp_avg"] + (grad - state["exp_avg"]) * fresh1
        square = state["exp_avg_sq"] * hyper.rounded("betas.1", dtype) + grad * grad * fresh2
        new: State = {"exp_avg": mean, "exp_avg_sq": square}
        if hyper.has("amsgrad"):
            square = new["max_exp_avg_sq"] = ew.maximum(state["max_exp_avg_sq"], square)
        size = hyper.rounded(f"size {steps}", dtype, lambda: hyper["lr"] / _correction(hyper["betas.0"], count))
        scale = hyper.rounded(
            f"scale {steps}", dtype, lambda: 1.0 / ew.sqrt(_correction(hyper["betas.1"], count))
        )
        return param - mean / (ew.sqrt(square) * scale + hyper.rounded("eps", dtype)) * size, new


def _correction(beta: Tensor, count: Tensor) -> Tensor:
    """``1 - beta^count``: what a moving average that started at 0 has taken in so far."""
    return 1.0 - ew.pow(beta, count.astype(beta.dtype))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): ``p *= 1 - lr * weight_decay`` first."""

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
