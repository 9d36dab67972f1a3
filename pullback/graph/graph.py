"""Graph: a function of placeholders, as nodes. Tracing, printing, checking, substitution.

Lazy evaluation has no Graph object: its graph is whatever the requested nodes depend on. The functions of this module
that take ``outputs`` serve both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import CompileError, ShapeError, TraceError
from .node import Node, hooks_of, topological_order
from .state import describe_site, state
from .structure import Key, structural_key


class Graph:
    """``outputs`` as a function of the placeholders ``inputs``.

    What the outputs need besides is *captured*: evaluated nodes, which the graph holds, and constants.
    """

    __slots__ = ("inputs", "outputs")

    def __init__(self, inputs: Iterable[Node], outputs: Iterable[Node]) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    @classmethod
    def trace(cls, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """The graph of ``function``, called once with placeholders of the shapes and dtypes of its arguments.

        Arguments are pytrees; tensors, NumPy arrays and Python ints and floats in them become inputs, whatever their
        values, and everything else is passed as it is. Outputs are the leaves of the result, in pytree order.
        Raises TraceError if the function asks a placeholder for its value or returns something that is no array.
        """
        from ..api.convert import as_node
        from ..ops.leaf import parameter
        from ..tensor import Tensor
        from ..transforms import pytree

        leaves, structure = pytree.flatten((args, kwargs))
        inputs: list[Node] = []
        given = []
        for leaf in leaves:
            if isinstance(leaf, (Tensor, np.ndarray, np.generic, int, float)) and not isinstance(leaf, bool):
                node = as_node(leaf)
                inputs.append(parameter(len(inputs), node.shape, node.dtype, node.weak))
                leaf = Tensor(inputs[-1])
            given.append(leaf)
        new_args, new_kwargs = pytree.unflatten(structure, given)
        result = function(*new_args, **new_kwargs)
        outputs = []
        for path, leaf in pytree.leaves_with_paths(result):
            if not isinstance(leaf, (Tensor, np.ndarray, np.generic, bool, int, float)):
                raise TraceError(
                    f"graph: the function returned a {type(leaf).__name__} at result{path}; expected tensors"
                )
            outputs.append(as_node(leaf))
        return cls(inputs, outputs)

    @property
    def nodes(self) -> list[Node]:
        """Every node, inputs before users: first the placeholders, also those that no output needs."""
        order = topological_order([*self.inputs, *self.outputs], stop=_is_evaluated)
        return order

    def substitute(self, values: Sequence[Node]) -> list[Node]:
        """The outputs with ``values`` in place of the placeholders."""
        if len(values) != len(self.inputs):
            raise ShapeError(f"graph: {len(values)} values given for {len(self.inputs)} inputs")
        for position, (old, new) in enumerate(zip(self.inputs, values)):
            if old.shape != new.shape or old.dtype is not new.dtype:
                raise ShapeError(
                    f"graph: input {position} is {_type(old)}, the value given for it is {_type(new)}"
                )
        return substitute(self.outputs, dict(zip(self.inputs, values)))

    def validate(self) -> None:
        """Check the graph; see :func:`validate`. Also that every placeholder below the outputs is an input."""
        validate(self.outputs, self.inputs)

    @property
    def key(self) -> Key:
        """Equal for graphs that compute the same function of inputs and captured values of the same types."""
        key, arguments = structural_key(self.outputs)
        positions = {id(node): position for position, node in enumerate(self.inputs)}
        inputs = tuple((node.shape, node.dtype) for node in self.inputs)
        return key, tuple(positions.get(id(node), -1) for node in arguments), inputs

    def structural_hash(self) -> str:
        """A digest of the structure that is the same in every process (captured values do not enter it)."""
        return hashlib.sha256(self.text(sites=False).encode()).hexdigest()

    def text(self, sites: bool = True) -> str:
        """The graph in single-assignment form, one node a line; ``sites`` adds the user's line that made it."""
        names: dict[int, str] = {}
        lines = []
        for node in self.nodes:
            names[id(node)] = f"%{len(names)}"
        given = {id(node) for node in self.inputs}
        for node in self.nodes:
            if id(node) in given:
                continue
            line = f"  {names[id(node)]}: {_type(node)} = {_expression(node, names)}"
            lines.append(f"{line:<70}  # {describe_site(node.site)}" if sites else line)
        head = ", ".join(f"{names[id(node)]}: {_type(node)}" for node in self.inputs)
        tail = ", ".join(names[id(node)] for node in self.outputs)
        return "\n".join([f"graph({head}) {{", *lines, f"  return {tail}", "}"])

    def __repr__(self) -> str:
        return self.text(sites=False)

    __str__ = text


def graph_of(function: Callable[..., Any]) -> Callable[..., Graph]:
    """``graph_of(f)(*args)`` is the :class:`Graph` of ``f``, traced with the shapes and dtypes of ``args``."""

    def traced(*args: Any, **kwargs: Any) -> Graph:
        return Graph.trace(function, *args, **kwargs)

    return traced


def _is_evaluated(node: Node) -> bool:
    return node.buffer is not None


def _type(node: Node) -> str:
    return f"{node.dtype.name}[{','.join(map(str, node.shape))}]"


def _expression(node: Node, names: dict[int, str]) -> str:
    if node.buffer is not None:
        return "captured"
    operands = [names[id(operand)] for operand in node.inputs]
    attrs = [f"{name}={_attribute(value)}" for name, value in zip(node.op.attr_names, node.attrs)]
    return f"{node.op.name}({', '.join(operands + attrs)})"


def _attribute(value: Any) -> str:
    return getattr(value, "name", None) or repr(value)


def substitute(outputs: Sequence[Node], replacements: dict[Node, Node]) -> list[Node]:
    """``outputs`` with some nodes replaced by others of the same shapes and dtypes.

    Nodes that depend on a replaced one are made anew, with their line and whether they are constants; the rest is
    shared with the old graph.
    """
    new: dict[int, Node] = {id(old): replacement for old, replacement in replacements.items()}

    def stop(node: Node) -> bool:
        return node.buffer is not None or id(node) in new

    for node in topological_order(list(outputs), stop):
        if id(node) in new or node.buffer is not None:
            continue
        inputs = node.inputs
        for operand in inputs:
            if id(operand) in new:
                break
        else:
            continue
        new[id(node)] = remake(node, tuple([new.get(id(operand), operand) for operand in inputs]))
    return [new.get(id(node), node) for node in outputs]


def remake(node: Node, inputs: tuple[Node, ...]) -> Node:
    """``node`` over other inputs of the same shapes and dtypes."""
    site, grad_enabled = state.site, state.grad_enabled
    state.site = node.site
    if node.constant:
        state.grad_enabled = False
    try:
        new = Node(node.op, inputs, node.attrs, node.shape, node.dtype, node.weak)
        if node.constant and node.rg:  # a leaf at which gradients are collected
            new.rg = True
        hooks = hooks_of(node)
        if hooks:
            new.hooks = hooks
        return new
    finally:
        state.site, state.grad_enabled = site, grad_enabled


def validate(outputs: Sequence[Node], placeholders: Sequence[Node] | None = None) -> None:
    """Check that every node below ``outputs`` obeys its op's rule: inputs are nodes, attributes are complete and
    hashable, and the op's inference gives the node's shape and dtype. With ``placeholders``, also that no other
    placeholder occurs.

    Raises CompileError that names op, line and the difference: a broken graph is a fault of the package.
    """
    known = None if placeholders is None else {id(node) for node in placeholders}
    for node in topological_order(list(outputs), stop=_is_evaluated):
        op = node.op
        if len(node.attrs) != len(op.attr_names):
            _broken(node, f"has attributes {node.attrs!r} for the names {op.attr_names!r}")
        try:
            hash(node.attrs)
        except TypeError:
            _broken(node, f"has attributes that cannot be hashed: {node.attrs!r}")
        if any(type(extent) is not int or extent < 0 for extent in node.shape):
            _broken(node, f"has the shape {node.shape!r}")
        if node.buffer is not None:
            nbytes = node.size * node.dtype.itemsize
            if node.buffer.nbytes < nbytes:
                _broken(node, f"needs {nbytes} bytes and has a buffer of {node.buffer.nbytes}")
            continue
        if op.kind == "leaf":
            if node.inputs:
                _broken(node, "is a leaf and has inputs")
            if op.name == "data":
                _broken(node, "is data without a buffer")
            if op.name == "constant" and node.shape != ():
                _broken(node, f"is a constant of shape {node.shape}")
            if op.name == "parameter" and known is not None and id(node) not in known:
                _broken(node, "is a placeholder of another graph")
            continue
        try:
            shape, dtype = op.infer(node.inputs, *node.attrs)
        except (TypeError, ValueError) as error:
            raise CompileError(f"{_where(node)} is rejected by its op's rule: {error}") from error
        if tuple(shape) != node.shape or dtype is not node.dtype:
            _broken(node, f"is {_type(node)}, its op's rule says {dtype.name}[{','.join(map(str, shape))}]")


def _where(node: Node) -> str:
    operands = ", ".join(_type(operand) for operand in node.inputs)
    return f"graph: {node.op.name}({operands}) made at {describe_site(node.site)}"


def _broken(node: Node, what: str) -> None:
    raise CompileError(f"{_where(node)} {what}")


def lineage(node: Node) -> tuple[Node, ...]:
    """The nodes that a derivative follows from ``node``."""
    if node.op.name == "traced_output":  # made by a jitted call, which knows the rest (transforms/lineage.py)
        call, index = node.attrs
        call.expand(index)
    return node.inputs
