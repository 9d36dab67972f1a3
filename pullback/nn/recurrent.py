"""Layers that carry a state along the tokens of a sequence."""

from __future__ import annotations

from typing import Any

from ..api import elementwise as ew
from ..api.cumulative import gated_scan
from ..errors import ArgumentError, ShapeError
from ..tensor import Tensor
from . import functional
from .fully_connected import Linear
from .module import Module
from .norm import RMSNorm


class GatedRecurrentBlock(Module):
    """A residual block that mixes tokens by a gated linear recurrence, then features by a gated feed-forward layer.

    With ``u = rms_norm(x)``, a gate ``a = sigmoid(W_a u + b_a)`` and a candidate ``c = W_c u + b_c``, both of
    ``hidden`` features, the state is ``h[t] = a[t] h[t-1] + (1 - a[t]) c[t]`` (minGRU: Feng et al., "Were RNNs All We
    Needed?", 2024, its gate the other way round); then ``y = x + W_o h`` and
    ``result = y + W_d swiglu(W_u rms_norm(y))``. Gate and candidate are one product, as are the two halves of the
    feed-forward layer. The gate does not depend on the state, so the recurrence is one kernel, and one for its
    gradient; a block is five launches.

    x: (..., tokens, features); the result has its shape.

    Args:
        features: of a token.
        hidden: features of the state; None: as many.
        feed_forward: features between; None: four thirds of twice as many, rounded up to a multiple of 8.
        eps: of the norms; see :class:`RMSNorm`.
        key: a random key for the start; without one the global generator is used.
    """

    def __init__(
        self, features: int, hidden: int | None = None, feed_forward: int | None = None, eps: float | None = None,
        dtype: Any = None, key: Any = None,
    ) -> None:  # fmt: skip
        hidden = features if hidden is None else hidden
        feed_forward = -(-8 * features // 3 // 8) * 8 if feed_forward is None else feed_forward
        for name, size in (("features", features), ("hidden", hidden), ("feed_forward", feed_forward)):
            if size < 1:
                raise ArgumentError(f"GatedRecurrentBlock: {name} must be at least 1, got {size}")
        keys: Any = (None,) * 4
        if key is not None:
            from ..api import random

            keys = random.split(key, 4)
        self.features = features
        self.hidden = hidden
        self.norm = RMSNorm(features, eps, dtype=dtype)
        self.gates = Linear(features, 2 * hidden, dtype=dtype, key=keys[0])
        self.output = Linear(hidden, features, bias=False, dtype=dtype, key=keys[1])
        self.feed_forward_norm = RMSNorm(features, eps, dtype=dtype)
        self.up = Linear(features, 2 * feed_forward, bias=False, dtype=dtype, key=keys[2])
        self.down = Linear(feed_forward, features, bias=False, dtype=dtype, key=keys[3])

    def forward(self, x: Any, state: Any = None, return_state: bool = False) -> Any:
        """The block's result; with ``return_state``, also the state after the last token, (..., hidden), from which a
        call with the tokens that follow goes on as its ``state``. Raises ShapeError for operands that do not fit."""
        if x.ndim < 2 or x.shape[-1] != self.features:
            raise ShapeError(f"GatedRecurrentBlock: x of shape (..., tokens, {self.features}) expected, got {x.shape}")
        if return_state and not x.shape[-2] and state is None:
            raise ShapeError("GatedRecurrentBlock: no tokens and no state to return")
        h = self._states(self.norm(x), state)
        y = x + self.output(h)
        result = y + self.down(functional.swiglu(self.up(self.feed_forward_norm(y))))
        if not return_state:
            return result
        return result, (h[..., -1, :] if x.shape[-2] else state)

    def _states(self, u: Tensor, state: Any) -> Tensor:
        both = self.gates(u)
        gate, candidate = ew.sigmoid(both[..., : self.hidden]), both[..., self.hidden :]
        return gated_scan(gate, (1.0 - gate) * candidate, -2, initial=state)

    def extra_repr(self) -> str:
        return f"{self.features}, hidden={self.hidden}"
