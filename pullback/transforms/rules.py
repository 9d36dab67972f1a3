"""What the rules of all calls with a derivative of their own share: custom functions, checkpoints, fused kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph.node import Node
from ..graph.state import state
from ..ops.custom import Rule
from ..ops.leaf import parameter
from ..ops.movement import broadcast_to
from ..ops.reduction import reduce_sum
from .batching import batch_nodes, dependents


class own_sites:
    """While a rule runs: its nodes carry the lines of the rule, and not that of the call."""

    def __enter__(self) -> None:
        self._site = state.site
        state.site = None

    def __exit__(self, *exc: object) -> None:
        state.site = self._site


class BatchedRule(Rule):
    """The rule of a call whose inputs have a batch axis in front: the plain rule, once, for every element."""

    def __init__(self, rule: Rule, call: Node, batched: tuple[bool, ...], size: int) -> None:
        self.rule = rule
        self.attrs = call.attrs
        self.shape = call.shape
        self.is_batched = batched
        self.size = size

    def _element(self, node: Node, placeholders: dict[Node, Node]) -> Node:
        """The call for one element, its batched inputs placeholders for those of ``node``."""
        inputs = [
            _element(value, placeholders) if is_batched else value
            for value, is_batched in zip(node.inputs, self.is_batched)
        ]
        return Node(node.op, tuple(inputs), self.attrs, self.shape, node.dtype)

    def _run(
        self, results: Sequence[Node | None], placeholders: dict[Node, Node], given: Iterable[Node | None]
    ) -> list[Node | None]:
        """``results`` of the rule, which was given ``given``, for every element, each with the batch axis in front."""
        found = [node for node in results if node is not None]
        order, depends = dependents(found, list(placeholders), [node for node in given if node is not None])
        new = iter(batch_nodes(order, placeholders, found, self.size))
        stacked: list[Node | None] = []
        for node in results:
            if node is None:
                stacked.append(None)
                continue
            value = next(new)
            stacked.append(value if id(node) in depends else broadcast_to(value, (self.size, *node.shape)))
        return stacked

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        placeholders: dict[Node, Node] = {}
        call = self._element(node, placeholders)
        given = {index: _element(value, placeholders) for index, value in cotangents.items()}
        found = self._run(self.rule.cotangents(call, given, hooked), placeholders, call.inputs)
        return [
            value if value is None or is_batched else reduce_sum(value, (0,))
            for value, is_batched in zip(found, self.is_batched)
        ]

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        placeholders: dict[Node, Node] = {}
        call = self._element(node, placeholders)
        # An input that all elements share has one tangent for all of them.
        given = [
            value if value is None or not is_batched else _element(value, placeholders)
            for value, is_batched in zip(tangents, self.is_batched)
        ]
        return self._run(self.rule.tangents(call, given), placeholders, [*call.inputs, *given])

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        return BatchedRule(self, node, batched, size)


def _element(value: Node, placeholders: dict[Node, Node]) -> Node:
    """A placeholder for one element of the stack ``value``, followed by derivatives as that is."""
    placeholder = parameter(len(placeholders), value.shape[1:], value.dtype)
    placeholder.rg, placeholder.scope = value.rg, value.scope
    placeholders[placeholder] = value
    return placeholder
