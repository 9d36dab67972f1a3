"""The NumPy evaluator: any graph, node by node, through the ops' references.

It is the oracle of the test suite and a debugging mode (``pb.set_backend("reference")``); the compiled path never
falls back to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import CompileError
from ..graph.node import Node, topological_order

Array = np.ndarray[Any, Any]


def _is_evaluated(node: Node) -> bool:
    return node.buffer is not None


def reference_values(nodes: Sequence[Node], arguments: Mapping[Node, Array] | None = None) -> list[Array]:
    """The values of ``nodes`` as NumPy arrays; no node is changed.

    arguments: values to take for some nodes (the parameters of a graph) instead of computing them.
    Raises IndexError for an index out of range.
    """
    given = {} if arguments is None else {id(node): value for node, value in arguments.items()}
    outputs = list(nodes)
    order = topological_order(outputs, lambda node: id(node) in given or _is_evaluated(node))
    uses: dict[int, int] = {}
    for node in order:
        if id(node) not in given and not _is_evaluated(node):
            for x in node.inputs:
                uses[id(x)] = uses.get(id(x), 0) + 1
    for node in outputs:
        uses[id(node)] = uses.get(id(node), 0) + 1
    values: dict[int, Array] = {}
    for node in order:
        if id(node) in given:
            value = np.asarray(given[id(node)])
        elif node.buffer is not None:
            value = node.buffer.numpy(node.shape, node.dtype.numpy)
        else:
            with np.errstate(all="ignore"):  # infinities and NaN pass silently, as in compiled code
                value = np.asarray(node.op.reference(node, *[values[id(x)] for x in node.inputs]))
            for x in node.inputs:
                uses[id(x)] -= 1
                if not uses[id(x)]:
                    del values[id(x)]
        if value.shape != node.shape or value.dtype != node.dtype.numpy:
            raise CompileError(
                f"{node.op.name}: the reference gave {value.dtype}{list(value.shape)} for {node!r}"
            )
        values[id(node)] = value
    return [values[id(node)] for node in outputs]


def evaluate_reference(nodes: Sequence[Node]) -> None:
    """Compute ``nodes`` and set their buffers. Raises IndexError for an index out of range."""
    from .buffers import from_numpy

    pending = [node for node in nodes if node.buffer is None]
    for node, value in zip(pending, reference_values(pending)):
        # A copy: the value may share memory with a buffer that is later reused in place.
        node.buffer = from_numpy(np.array(value, order="C", copy=True))


def argument_value(node: Node, value: Any) -> Array:
    """What a program was given for the input ``node``, a buffer or a Python number, as an array."""
    if isinstance(value, bool | int | float):
        with np.errstate(over="ignore"):
            return np.asarray(value, node.dtype.numpy)
    array: Array = value.numpy(node.shape, node.dtype.numpy)
    return array


class ReferenceProgram:
    """A graph run by the references, called like a compiled program: buffers and Python numbers in, buffers out."""

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        from .buffers import from_numpy

        arguments = {node: argument_value(node, value) for node, value in zip(self._inputs, values)}
        return [from_numpy(np.array(v, order="C", copy=True)) for v in reference_values(self._outputs, arguments)]
