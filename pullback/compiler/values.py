"""The compiler's own view of a graph: small records that are cheap to rewrite.

``import_graph`` copies the nodes between a program's inputs and outputs into :class:`Value` records, in topological
order, and simplifies on the way: every record goes through ``ValueBuilder.make``, which shares equal expressions and
applies the rewrites of simplify.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import CompileError, DeviceError
from ..graph.node import Node, topological_order
from ..graph.state import describe_site
from ..graph.structure import is_static_constant
from ..ops.leaf import PARAMETER
from ..ops.registry import by_name
from ..shapes import size_of

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..ops.record import Op

# Kinds that exist only inside the compiler, besides those of ops/record.py:
#   "input": a buffer or a scalar slot of the program;  "literal": a number written into the code;
#   "copy": materialises its operand;  "partial": a reduction split into chunks;
#   "side": partial sums beside a row kernel (see fuse.py).


class Value:
    """One value of a program. ``op`` is the record (None for inputs, literals and copies)."""

    __slots__ = ("attrs", "dtype", "id", "inputs", "kind", "name", "node", "op", "shape", "size")

    def __init__(
        self,
        identity: int,
        kind: str,
        name: str,
        op: Op | None,
        inputs: tuple[Value, ...],
        attrs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: DType,
        node: Node | None,
    ) -> None:
        self.id = identity
        self.kind = kind
        self.name = name
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.node = node  # of a host step or a check, a copy of the node it came from
        size = 1
        for extent in shape:
            size *= extent
        self.size = size

    def __repr__(self) -> str:
        operands = ",".join(f"%{v.id}" for v in self.inputs)
        return f"%{self.id}={self.name}({operands}){self.attrs}:{self.dtype.name}{list(self.shape)}"


def splat(value: Value) -> Any:
    """The number that every element of ``value`` is, if it is a literal seen through views; else None."""
    while value.kind == "view":
        value = value.inputs[0]
    return value.attrs[0] if value.kind == "literal" else None


class ValueBuilder:
    """Makes values, each distinct one once, in an order where operands come first."""

    def __init__(self, simplify: Any = None, without: frozenset[str] = frozenset()) -> None:
        self.without = without  # passes that are off, from here to the kernels
        self.values: list[Value] = []
        self._shared: dict[Any, Value] = {}
        self._simplify = simplify

    def raw(
        self,
        kind: str,
        name: str,
        op: Op | None,
        inputs: tuple[Value, ...],
        attrs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: DType,
        node: Node | None = None,
    ) -> Value:
        """The value, shared with an equal earlier one."""
        if "share" in self.without:
            value = Value(len(self.values), kind, name, op, inputs, attrs, shape, dtype, node)
            self.values.append(value)
            return value
        # Numbers that compare equal need not be the same: 0.0 and -0.0, 1 and True.
        marks = tuple([repr(a) for a in attrs]) if kind == "literal" else attrs
        # Partial reductions are all named so, whatever they fold with.
        key = (name, None if op is None else op.name, tuple([v.id for v in inputs]), marks, shape, dtype)
        found = self._shared.get(key)
        if found is None:
            found = Value(len(self.values), kind, name, op, inputs, attrs, shape, dtype, node)
            self._shared[key] = found
            self.values.append(found)
        return found

    def literal(self, value: Any, dtype: DType) -> Value:
        return self.raw("literal", "literal", None, (), (value,), (), dtype)

    def make(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        attrs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: DType,
        node: Node | None = None,
    ) -> Value:
        """``op(*inputs)``, simplified."""
        if self._simplify is not None:
            simpler = self._simplify(self, op, inputs, attrs, shape, dtype, node)
            if simpler is not None:
                return simpler
        return self.raw(op.kind, op.name, op, inputs, attrs, shape, dtype, node)

    def broadcast(self, value: Value, shape: tuple[int, ...]) -> Value:
        """``value`` broadcast to ``shape``."""
        if value.shape == shape:
            return value
        return self.make(by_name("broadcast_to"), (value,), (shape,), shape, value.dtype)

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """``value`` reshaped to ``shape``."""
        if value.shape == shape:
            return value
        return self.make(by_name("reshape"), (value,), (shape,), shape, value.dtype)

    def filled(self, number: Any, shape: tuple[int, ...], dtype: DType) -> Value:
        """A literal broadcast to ``shape``."""
        return self.broadcast(self.literal(number, dtype), shape)


def import_graph(
    builder: ValueBuilder, inputs: Sequence[Node], outputs: Sequence[Node]
) -> tuple[list[Value], list[Node]]:
    """Copy the graph between ``inputs`` and ``outputs`` into ``builder``.

    Returns the outputs' values, and the leaves met besides: evaluated nodes and constants, which become inputs behind
    the given ones.
    """
    value_of: dict[int, Value] = {}
    leaves: list[Node] = []

    def add_input(node: Node, position: int) -> None:
        value_of[id(node)] = builder.raw("input", "input", None, (), (position,), node.shape, node.dtype)

    for position, node in enumerate(inputs):
        add_input(node, position)
    order = topological_order(list(outputs), stop=lambda n: id(n) in value_of or n.buffer is not None)
    pending = []
    for node in order:
        if id(node) in value_of:
            continue
        if node.buffer is not None or (node.op.name == "constant" and not is_static_constant(node)):
            add_input(node, len(inputs) + len(leaves))
            leaves.append(node)
        else:
            pending.append(node)
    make = builder.make
    for node in pending:
        op = node.op
        if op.name == "constant":
            value_of[id(node)] = builder.literal(node.attrs[0], node.dtype)
            continue
        if not node.inputs and op.name != "iota":
            raise CompileError(f"{op.name} is a leaf of the graph but not an input of the program")
        if size_of(node.shape) * node.dtype.itemsize >= 1 << 63:
            raise DeviceError(
                f"{op.name}: a result of shape {node.shape} and dtype {node.dtype.name} has 2**63 bytes or more, which "
                f"no memory holds (made at {describe_site(node.site)})"
            )
        operands = tuple([value_of[id(n)] for n in node.inputs])
        value_of[id(node)] = make(op, operands, node.attrs, node.shape, node.dtype, _origin(node))
    return [value_of[id(node)] for node in outputs], leaves


def _origin(node: Node) -> Node | None:
    """A copy of a node that may be needed when the program runs: by a host step, or to name the line of a failed check.

    A program outlives the graph that it was made for, so it must not hold that graph, nor the values in it.
    """
    if node.op.kind != "host" and node.op.name != "check_index":
        return None
    inputs = tuple([_stand_in(PARAMETER, (), (0,), operand) for operand in node.inputs])
    copy = _stand_in(node.op, inputs, node.attrs, node)
    copy.site = node.site
    return copy


def _stand_in(op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], like: Node) -> Node:
    node = Node(op, inputs, attrs, like.shape, like.dtype)
    node.trace = None
    node.scope = None
    return node
