"""What a pending graph computes, whatever the values it is given: the key by which its program is found again.

Every evaluation without ``jit`` goes through here, so it is one pass with little to do for a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .handle import is_named
from .node import Node
from .tracking import is_tracked

Key = tuple[Any, ...]


def is_static_constant(node: Node) -> bool:
    """Whether a constant's value is part of the structure. Others are run-time arguments of the program."""
    value, static = node.attrs
    return static or value in (0, 1, -1)


def structural_key(outputs: Sequence[Node]) -> tuple[Key, list[Node]]:
    """What the pending graph below ``outputs`` computes.

    Returns ``(key, arguments)``. ``key`` is hashable and equal for two graphs that one program serves. ``arguments``
    are the nodes whose values the program is given at run time, in the order in which the key meets them: evaluated
    nodes, placeholders, and constants whose value is not part of the structure.
    """
    parts, arguments, _, number = _read(outputs, None)
    # A tuple of its own: the numbers must not read as more operands of the last node.
    parts.append(tuple([number[output] for output in outputs]))
    return tuple(parts), arguments


class Structure:
    """A pending graph as an evaluation sees it.

    key, arguments: see ``structural_key``.
    kept: the nodes that the program is to give a value: the requested ones first.
    nodes: all of them, breadth first.
    """

    __slots__ = ("arguments", "kept", "key", "nodes")

    def __init__(self, requested: Sequence[Node], keep: bool = True) -> None:
        """The graph below ``requested``, which are pending.

        keep: give values besides to the nodes that a live tensor names; to the contractions that a derivative may still
        need; and to those that an earlier evaluation passed by and that a later node uses: values that live on, so that
        a loop which only ever asks for something else does not compute them from the start again.
        """
        kept = dict.fromkeys(requested)
        parts, self.arguments, self.nodes, number = _read(requested, kept if keep else None)
        parts.append(tuple([number[node] for node in kept]))
        self.key = tuple(parts)
        self.kept = list(kept)


def _read(
    outputs: Sequence[Node], kept: dict[Node, None] | None
) -> tuple[list[Any], list[Node], list[Node], dict[Node, int]]:
    """The parts of the key but the last; the arguments; the nodes in the order in which they are met, breadth first;
    and their numbers in it. What has to be kept goes to ``kept``.

    The parts of a node are its op, its attributes and its operands' numbers; those of an argument, its dtype and shape.
    """
    number: dict[Node, int] = {}
    order: list[Node] = []
    for node in outputs:
        if node not in number:
            number[node] = len(order)
            order.append(node)
    parts: list[Any] = []
    arguments: list[Node] = []
    find, add = number.get, parts.append
    epoch = order[0].epoch if order else 0
    mixed = has_saved = False
    products: list[Node] = []
    for node in order:  # which grows meanwhile
        if node.buffer is not None:
            arguments.append(node)
            add(node.dtype)
            add(node.shape)
            continue
        op = node.op
        add(op)
        inputs = node.inputs
        if not inputs:
            _add_leaf(node, parts, arguments)
            continue
        add(node.attrs)
        for operand in inputs:
            known = find(operand)
            if known is None:
                known = number[operand] = len(order)
                order.append(operand)
            add(known)
        if kept is not None:
            handles = node.handles
            if handles is not None and (handles.__class__ is tuple or handles() is not None) and is_named(node):
                kept[node] = None
            if node.epoch != epoch:
                mixed = True
            kind = op.kind
            if kind == "contraction":
                if is_tracked(node):
                    products.append(node)
            elif kind == "custom" and op.name == "saved":
                has_saved = True
    if products and kept is not None:
        if has_saved:
            products = _computed(outputs, products)
        kept.update(dict.fromkeys(products))
    if mixed and kept is not None:
        _keep_older(order, kept)
    return parts, arguments, order, number


def _computed(outputs: Sequence[Node], nodes: list[Node]) -> list[Node]:
    """Those of ``nodes`` that the values of ``outputs`` depend on: what a ``saved`` value stands for is a derivative's
    affair, and not computed."""
    seen = set(outputs)
    pending = list(seen)
    while pending:
        node = pending.pop()
        if node.buffer is None:
            inputs = node.inputs[:1] if node.op.name == "saved" else node.inputs
            pending += [operand for operand in inputs if operand not in seen]
            seen.update(inputs)
    return [node for node in nodes if node in seen]


def _add_leaf(node: Node, parts: list[Any], arguments: list[Node]) -> None:
    name = node.op.name
    if name == "constant":
        parts.append(node.dtype)
        if is_static_constant(node):
            # The text tells 0.0 from -0.0 and 1 from True, and finds nan equal to itself.
            parts.append(repr(node.attrs[0]))
        else:
            arguments.append(node)
    elif name == "parameter":
        arguments.append(node)
        parts.append(node.dtype)
        parts.append(node.shape)
    else:
        parts.append(node.attrs)


def _keep_older(order: Sequence[Node], kept: dict[Node, None]) -> None:
    for node in order:
        if node.buffer is None:
            epoch = node.epoch
            for operand in node.inputs:
                if operand.epoch < epoch and operand.buffer is None:
                    while operand.op.kind == "view" and operand.buffer is None:
                        operand = operand.inputs[0]
                    if operand.buffer is None and operand.inputs:
                        kept[operand] = None
