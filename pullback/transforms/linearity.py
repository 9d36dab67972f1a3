"""Whether a function that the user says is linear is so: what custom rules ask before they transpose one."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.graph import remake
from ..graph.node import Node
from ..ops.movement import uniform_value
from ..ops.record import NoDerivative
from ..ops.registry import by_name
from ..ops.selection import BARRIER
from .batching import dependents

# Ops that are linear in all floating operands together and not in one of them: another has to vanish.
_SUMS = frozenset(map(by_name, ("add", "subtract", "where", "concat", "pad", "scatter_add", "scatter_set")))
_PRODUCTS = frozenset(map(by_name, ("multiply", "strong_multiply", "strong_product")))
_NAMES = frozenset(map(by_name, ("alias", "cast", "negative", "broadcast_to", "reshape", "stop_gradient")))


def checked_transpose(
    results: Sequence[Node | None],
    transposed: Sequence[Node | None],
    placeholders: list[Node],
    given: Sequence[Node | None],
) -> list[Node | None] | None:
    """``transposed``, or None if ``results`` are not linear in ``placeholders``. They are if no placeholder is left in
    their transpose, none goes through an op that has no derivative (a sign, a comparison) or a constant, and nothing
    but 0 stands beside them in a sum.

    given: what the rule and its transpose were given, at which the search ends."""
    older = [node for node in given if node is not None]
    nodes = [node for node in results if node is not None]
    order, depends, _ = _without_barriers(nodes, placeholders, older)
    for node in order:
        if node.constant or isinstance(node.op.derivative, NoDerivative):
            return None
        if node.op in _SUMS and not all(
            id(operand) in depends or operand.dtype.kind != "f" or _vanishes(operand) for operand in node.inputs
        ):
            return None
    if not all(id(node) in depends or _vanishes(node) for node in nodes):
        return None
    _, left, new = _without_barriers([node for node in transposed if node is not None], placeholders, older)
    if any(id(node) in left for node in transposed):
        return None
    return [None if node is None else new.get(id(node), node) for node in transposed]


def _without_barriers(
    nodes: list[Node], placeholders: list[Node], older: list[Node]
) -> tuple[list[Node], set[int], dict[int, Node]]:
    """The nodes below ``nodes`` whose values depend on ``placeholders``, and their ids with those of the placeholders;
    and by id, what takes the place of those that only had to wait for a placeholder behind a barrier (see
    checkpoint.py): the same values computed at once."""
    depends = {id(node) for node in placeholders}
    order = []
    new: dict[int, Node] = {}
    for node in dependents(nodes, placeholders, older)[0]:
        inputs = node.inputs[:1] if node.op is BARRIER else node.inputs
        if any(id(operand) in depends for operand in inputs):
            depends.add(id(node))
            order.append(node)
            continue
        inputs = tuple([new.get(id(operand), operand) for operand in inputs])
        new[id(node)] = inputs[0] if node.op is BARRIER else remake(node, inputs)
    return order, depends, new


def _vanishes(node: Node) -> bool:
    """Whether every element is 0, as far as can be told without computing."""
    while True:
        if node.buffer is not None:
            return not node.buffer.numpy(node.shape, node.dtype.numpy).any()
        if node.op in _PRODUCTS:
            return any(uniform_value(operand) == 0 for operand in node.inputs)
        if node.op not in _NAMES:
            return uniform_value(node) == 0
        (node,) = node.inputs
