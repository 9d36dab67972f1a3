"""Examples of the ops that carry a derivative rule or a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pullback.graph.node import Node
from pullback.ops import custom
from pullback.ops import elementwise as e
from tests.ops.support import Case, grid


class Square(custom.Rule):
    """The derivative of a square, given by hand."""

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool = False) -> Sequence[Node | None]:
        (cotangent,) = cotangents.values()
        return [e.multiply(e.multiply(2, node.inputs[0]), cotangent)]

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        (tangent,) = tangents
        assert tangent is not None
        return [e.multiply(e.multiply(2, node.inputs[0]), tangent)]

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> custom.Rule:
        return self


_X = grid(-2, 2, (3, 4))

CASES = [
    Case("custom_call", lambda x: custom.custom_call([x], Square()), (_X,)),
    Case("named", lambda x: custom.named(x, "hidden"), (_X,), (0,)),
    Case("barrier", e.barrier, (_X, np.asarray(0.5)), (0,)),
]
