"""Handle: a mutable name for an immutable node. Tensor derives from it.

All reading and rebinding of names goes through here, so that a trace sees it: reading a name that the trace did not
make gives the trace a hidden input, rebinding one gives it a hidden output, and the name itself is never touched while
tracing (other threads may be using it).
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from ..errors import TraceError
from .node import Node
from .state import describe_site, state


class Handle:
    """A name for a value."""

    __slots__ = ("__weakref__", "_node")

    _node: Node

    def __init__(self, node: Node) -> None:
        self._node = node
        node.handles = ref(self) if node.handles is None else _add_handle(node.handles, self)

    @property
    def node(self) -> Node:
        """The value that this name stands for now, as the current thread's trace sees it."""
        node = self._node
        trace = state.trace
        if node.trace is trace:
            return node
        if trace is not None:
            return trace.read(self)
        raise TraceError(
            f"this tensor was made while a function was being traced by jit, at {describe_site(node.site)}, "
            "and has no value outside; return it from the function instead of keeping it"
        )

    def rebind(self, node: Node) -> None:
        """Make this name stand for ``node`` from now on."""
        trace = state.trace
        if trace is not None and self._node.trace is not trace:
            trace.rebind(self, node)
            return
        self._node = node
        node.handles = ref(self) if node.handles is None else _add_handle(node.handles, self)
        if trace is None:
            state.changed[id(self)] = ref(self)


def _add_handle(handles: Any, handle: Handle) -> tuple[Any, ...]:
    known = handles if isinstance(handles, tuple) else (handles,)
    return (*(r for r in known if r() is not None), ref(handle))


def is_named(node: Node) -> bool:
    """Whether a live handle stands for ``node``."""
    handles = node.handles
    if handles is None:
        return False
    for reference in handles if isinstance(handles, tuple) else (handles,):
        handle = reference()
        if handle is not None and handle._node is node:
            return True
    return False
