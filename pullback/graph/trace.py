"""Trace: what a function read and rebound while its graph was recorded.

A trace never touches the names that existed before it. It keeps, for each of them that the function reads, a
placeholder to stand for the value that the name will have at a call, and the node that the function last bound to it.
The finished trace is thus a pure function: the placeholders are its inputs, whatever was rebound is among its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..errors import GradientError, TraceError
from .node import Node, bind, topological_order
from .state import describe_site, state
from .tracking import open_scope

if TYPE_CHECKING:
    from types import TracebackType

    from .handle import Handle


_MAX_SCALAR_NODES = 64  # of arithmetic on Python floats that is repeated in float64


class Untraceable(BaseException):
    """Internal: the function reads a value that a transform outside of the trace is following, so that it has to be run
    in line. Derives from BaseException so that no ``except Exception`` of the traced function swallows it."""


class Entry:
    """A name from before the trace.

    parameter: its placeholder.   node: what it stands for now.
    argument: position among the argument leaves, or None.
    slot: for the tensor found in a ``.grad`` slot, the slot.
    """

    __slots__ = ("argument", "handle", "node", "parameter", "slot")

    def __init__(
        self, handle: Handle, parameter: Node, argument: int | None = None, slot: GradSlot | None = None
    ) -> None:
        self.handle = handle
        self.parameter = parameter
        self.node = parameter
        self.argument = argument
        self.slot = slot

    @property
    def is_rebound(self) -> bool:
        return self.node is not self.parameter


class GradSlot:
    """The ``.grad`` of a tensor from before the trace.

    before: what it held at the start, if the function asked (``is_read``).   value: what it holds now.
    """

    __slots__ = ("before", "is_read", "is_written", "tensor", "value")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.is_read = False
        self.is_written = False
        self.before: Any = None
        self.value: Any = None


class Guard(NamedTuple):
    """A static attribute that the trace depends on: ``read(owner, name)`` gave what ``value`` is a snapshot of.

    volatile: it may change without its owner taking notice (a list).
    """

    owner: Any
    name: str
    read: Any
    value: Any
    volatile: bool


class Trace:
    """One recording, entered as a context manager by the thread that records.

    entries, grads: the names and ``.grad`` slots of before that were met, by id (they are kept alive meanwhile).
    parameters: the placeholders in order; the first belong to the argument leaves.
    guards: see transforms/guards.py.   own, made: ids of guarded objects that need no guard: arguments, and those made
        inside.
    numbers: placeholders of Python floats among the arguments, by id, with a second one in float64 once it is needed.
    pinned: argument positions whose tensors the function also reaches in another way, so that their identity matters.
    consumed: ids of the nodes that a ``backward`` inside went through.
    """

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.grads: dict[int, GradSlot] = {}
        self.parameters: list[Node] = []
        self.numbers: dict[int, Node | None] = {}
        self.guards: dict[tuple[int, str], Guard] = {}
        self.own: set[int] = set()
        self.made: set[int] = set()
        self.pinned: set[int] = set()
        self.consumed: set[int] = set()
        self._consumed_nodes: list[Node] = []

    # -- the recording thread ----------------------------------------------------------------------------------------

    def __enter__(self) -> Trace:
        state.trace = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state.trace = None

    def close(self) -> None:
        """Let go of everything that was recorded."""
        self.entries = {}
        self.grads = {}
        self.parameters = []
        self.numbers = {}
        self.guards = {}
        self._consumed_nodes = []

    # -- inputs ------------------------------------------------------------------------------------------------------

    def placeholder(self, shape: tuple[int, ...], dtype: Any, weak: bool, rg: bool) -> Node:
        """A new input of the trace."""
        from ..ops.leaf import parameter

        node = parameter(len(self.parameters), shape, dtype, weak)
        node.rg = rg
        self.parameters.append(node)
        return node

    def in_float64(self, node: Node) -> Node | None:
        """The scalar that ``node``, a weak float, stands for, in float64; None if it is not computed from Python
        numbers alone. Python computes with floats in double precision, and so does a function that is not traced."""
        from ..dtypes import float64
        from ..ops.leaf import constant

        if not node.weak or node.shape or node.rg or node.scope is not None:
            return None
        order = topological_order([node])
        if len(order) > _MAX_SCALAR_NODES:
            return None
        wide: dict[int, Node] = {}
        for below in order:
            if id(below) in self.numbers:
                found = self.numbers[id(below)]
                if found is None:
                    found = self.numbers[id(below)] = self.placeholder((), float64, True, False)
                wide[id(below)] = found
            elif below.op.name == "constant":
                wide[id(below)] = constant(below.attrs[0], float64, weak=True)
            elif below.op.kind == "elementwise" and below.dtype.kind == "f" and below.op.name not in ("cast", "alias"):
                inputs = tuple([wide[id(operand)] for operand in below.inputs])
                wide[id(below)] = bind(below.op, inputs, below.attrs, True)
            else:
                return None
        return wide[id(node)]

    def bind_argument(self, handle: Handle, position: int) -> None:
        """Let ``handle``, the argument leaf at ``position``, stand for the next placeholder."""
        value = handle._node
        node = self.placeholder(value.shape, value.dtype, value.weak, value.rg)
        node.handles = ref(handle)
        self.entries[id(handle)] = Entry(handle, node, argument=position)

    def read(self, handle: Handle) -> Node:
        """What ``handle``, which this trace did not make, stands for in the traced function."""
        entry = self.entries.get(id(handle))
        if entry is None:
            entry = self._capture(handle, None)
        return entry.node

    def _capture(self, handle: Handle, slot: GradSlot | None) -> Entry:
        value = handle._node
        if value.trace is not None:
            raise TraceError(
                f"this tensor was made while another function was being traced by jit, at {describe_site(value.site)}, "
                "and has no value here; return it from that function instead of keeping it"
            )
        if open_scope(value.scope) is not None or depends_on_placeholder(value):
            raise Untraceable
        node = self.placeholder(value.shape, value.dtype, value.weak, value.rg)
        node.handles = ref(handle)
        entry = Entry(handle, node, slot=slot)
        self.entries[id(handle)] = entry
        return entry

    # -- outputs -----------------------------------------------------------------------------------------------------

    def rebind(self, handle: Handle, node: Node) -> None:
        """Record that ``handle``, which this trace did not make, stands for ``node`` from here on."""
        entry = self.entries.get(id(handle))
        if entry is None:
            entry = self._capture(handle, None)
        entry.node = node
        known = node.handles
        if known is None:
            node.handles = ref(handle)
        else:
            node.handles = (*known, ref(handle)) if isinstance(known, tuple) else (known, ref(handle))

    def _slot(self, tensor: Any) -> GradSlot:
        slot = self.grads.get(id(tensor))
        if slot is None:
            self.read(tensor)
            slot = self.grads[id(tensor)] = GradSlot(tensor)
        return slot

    def read_grad(self, tensor: Any) -> Any:
        """The ``.grad`` of a tensor that this trace did not make: a tensor or None."""
        slot = self._slot(tensor)
        if not slot.is_read and not slot.is_written:
            slot.is_read = True
            slot.before = slot.value = tensor._grad
            if slot.before is not None and id(slot.before) not in self.entries:
                self._capture(slot.before, slot)
        return slot.value

    def write_grad(self, tensor: Any, value: Any) -> None:
        """Record that the ``.grad`` of a tensor that this trace did not make is ``value``, a tensor or None."""
        slot = self._slot(tensor)
        slot.is_written = True
        slot.value = value

    # -- what the trace depends on -----------------------------------------------------------------------------------

    def guard(self, guard: Guard) -> None:
        """Record that the function saw a static attribute; the first sight of it counts."""
        if id(guard.owner) not in self.own and id(guard.owner) not in self.made:
            self.guards.setdefault((id(guard.owner), guard.name), guard)

    def pin(self, handle: Any) -> None:
        """Record that the function reaches ``handle`` otherwise than through its arguments."""
        entry = self.entries.get(id(handle))
        if entry is not None and entry.argument is not None:
            self.pinned.add(entry.argument)

    def consume(self, outputs: list[Node]) -> None:
        """Record that ``backward`` has used up the graph of ``outputs``: no gradient is asked of it after the trace.

        Raises GradientError if a gradient would have to go on through a tensor that was computed before the trace.
        """
        for node in topological_order(outputs):
            if node.rg and node.op.name == "parameter":
                handle = node.handles[0]() if isinstance(node.handles, tuple) else node.handles()
                if handle is not None and not getattr(handle, "_requires_grad", True):
                    raise GradientError(
                        f"backward: a tensor of shape {node.shape} that the jitted function takes from outside was "
                        f"computed, at {describe_site(handle._node.site)}, from tensors that require a gradient, and "
                        "backward() inside the "
                        "function cannot reach these; compute it inside, pass x.detach(), or call backward() outside"
                    )
            if node.rg and node.inputs:
                self.consumed.add(id(node))
                self._consumed_nodes.append(node)

    def rebound(self) -> Iterator[Entry]:
        """The names that have to be bound anew after each call."""
        return (entry for entry in self.entries.values() if entry.is_rebound)


def depends_on_placeholder(node: Node) -> bool:
    """Whether ``node`` has no value because a placeholder below it has none."""
    if node.buffer is not None:
        return False
    return any(
        below.op.name == "parameter" and below.buffer is None
        for below in topological_order([node], stop=lambda below: below.buffer is not None)
    )
