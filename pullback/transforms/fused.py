"""Functions with a definition in ops and a kernel that computes the same faster.

The kernel gives the value, and the first cotangents if it has a second half for them; every other derivative is that of
the definition, whose graph is built only where it is asked for. So each of the two is tested against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..graph.node import Node
from ..graph.state import state
from ..graph.tracking import Scope, no_grad
from ..ops.custom import Rule, custom_call, custom_result, saved
from ..ops.elementwise import alias
from .derivative import gradients_of, tangents_of
from .rules import BatchedRule, own_sites

Inputs = Sequence[Node]


def fused(
    inputs: Inputs,
    definition: Callable[[Inputs], Node],
    kernel: Callable[[Inputs], Node],
    gradient: Callable[[Inputs, Node], Sequence[Node | None]],
    keeps_value: bool = False,
) -> Node:
    """``definition(inputs)``, computed by ``kernel(inputs)``.

    gradient: ``(inputs, cotangent) -> cotangents`` of the inputs, by kernels; None where the definition's is to be
        used.
    keeps_value: the gradient needs what the kernel gave, and gets it behind the inputs.
    """
    with no_grad():
        value = kernel(inputs)
    operands = (*inputs, value) if keeps_value else inputs
    return custom_result(value, custom_call(operands, _FusedRule(definition, gradient, len(inputs))), 0)


class _FusedRule(Rule):
    """The derivative of one call of a fused function."""

    def __init__(
        self, definition: Callable[[Inputs], Node], gradient: Callable[[Inputs, Node], Sequence[Node | None]],
        count: int,
    ) -> None:  # fmt: skip
        self._definition = definition
        self._gradient = gradient
        self._count = count  # of inputs; what the kernel gave may come behind them, and has no derivative

    def _defined(self, node: Node, scope: Scope) -> tuple[list[Node], Node]:
        """Leaves of ``scope`` for the inputs, and the definition's result."""
        before = state.grad_enabled
        state.grad_enabled = True
        try:
            leaves = []
            for value in node.inputs[: self._count]:
                leaf = alias(value)
                leaf.scope = scope
                leaves.append(leaf)
            return leaves, self._definition(leaves)
        finally:
            state.grad_enabled = before

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        (cotangent,) = cotangents.values()
        with Scope() as scope:
            leaves, output = self._defined(node, scope)
            with own_sites():
                defined = gradients_of([output], [cotangent], leaves, scope)
        with no_grad():
            values = self._gradient(node.inputs, cotangent)
        found = [
            source if value is None or source is None else saved(value, source)
            for value, source in zip(values, defined, strict=True)
        ]
        return [*found, *[None] * (len(node.inputs) - self._count)]

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        with Scope() as scope:
            leaves, output = self._defined(node, scope)
            pairs = [(leaf, tangent) for leaf, tangent in zip(leaves, tangents) if tangent is not None]
            with own_sites():
                return tangents_of([output], [leaf for leaf, _ in pairs], [tangent for _, tangent in pairs], scope)

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        return BatchedRule(self, node, batched, size)
