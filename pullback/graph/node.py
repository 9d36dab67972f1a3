"""Node: an immutable value in the graph.

A node names an operation, its inputs and its static attributes, and knows its shape and dtype. Once evaluated it also
holds a buffer; unless a derivative may still be asked of it, it then lets go of its inputs. Nothing else about a node
ever changes, so a graph can be shared, differentiated and batched without copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .state import PACKAGE_DIRECTORY, Site, state
from .tracking import Scope, open_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..dtypes import DType
    from ..ops.record import Op
    from ..runtime.buffers import Buffer

from sys import _getframe

_MAX_FILES = 1 << 12


class _Files(dict[str, bool]):
    """By the name of a source file: whether it is part of the package."""

    def __missing__(self, name: str) -> bool:
        if len(self) >= _MAX_FILES:
            self.clear()
        inside = self[name] = name.startswith(PACKAGE_DIRECTORY)
        return inside


_is_inside = _Files()


class Node:
    """One value: ``op(*inputs, **attrs)``.

    attrs: static attributes in the order of ``op.attr_names``; hashable.
    weak: the dtype came from a Python scalar and yields to the dtype of what it meets.
    buffer: the evaluated value, C-contiguous, or None.
    rg, scope: see tracking.py.   constant: made under ``no_grad``.
    trace: the jit trace that made this node, or None.   epoch: how many evaluations there had been.
    site: code object and instruction of the user's line that made it; looked for unless it is given.
    handles: weak references to the tensors that name this node.
    hooks: functions of its gradient (transforms/backward.py); most nodes do not have the attribute.
    """

    __slots__ = (
        "__weakref__", "attrs", "buffer", "constant", "dtype", "epoch", "handles", "hooks", "inputs", "op", "rg",
        "scope", "shape", "site", "trace", "weak",
    )

    rg: bool
    scope: Scope | None
    hooks: Sequence[Any]

    def __init__(
        self,
        op: Op,
        inputs: tuple[Node, ...],
        attrs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: DType,
        weak: bool = False,
        buffer: Buffer | None = None,
        site: Site | None = None,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.weak = weak
        self.buffer = buffer
        self.handles: Any = None
        here = state.__dict__
        self.trace = here["trace"]
        self.epoch = here["epoch"]
        rg = False
        scope: Scope | None = None
        if here["grad_enabled"]:
            self.constant = False
            for node in inputs:
                if node.rg:
                    rg = True
                other = node.scope
                if other is not None and other is not scope:
                    other = open_scope(other)
                    if scope is None or (other is not None and other.depth > scope.depth):
                        scope = other
        else:
            self.constant = True
        self.rg = rg
        self.scope = scope
        if site is None:
            site = here["site"]
            if site is None:
                frame = _getframe(1)
                while _is_inside[frame.f_code.co_filename]:
                    back = frame.f_back
                    if back is None:
                        break
                    frame = back
                site = frame.f_code, frame.f_lasti
        self.site: Site = site

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    def attr(self, name: str) -> Any:
        """The attribute called ``name``."""
        return self.attrs[self.op.attr_names.index(name)]

    def __repr__(self) -> str:
        attrs = ", ".join(f"{k}={v}" for k, v in zip(self.op.attr_names, self.attrs, strict=False))
        shape = ",".join(map(str, self.shape))
        return f"<{self.op.name}({attrs}) {self.dtype.name}[{shape}]{' evaluated' if self.buffer is not None else ''}>"


def hooks_of(node: Node) -> Sequence[Any]:
    """The hooks that were registered on this value."""
    return getattr(node, "hooks", ())


def bind(op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...] = (), weak: bool = False) -> Node:
    """The node ``op(*inputs, *attrs)``, its shape and dtype checked and inferred by the op's rule."""
    shape, dtype = op.infer(inputs, *attrs)
    return Node(op, inputs, attrs, shape, dtype, weak)


def topological_order(outputs: list[Node], stop: Any = None, operands: Any = None) -> list[Node]:
    """Every node that ``outputs`` depend on, inputs before users, each once; iterative, so that depth is no limit.

    ``stop(node)`` true: the node is listed, its inputs are not followed. ``operands(node)``: its inputs, if these are
    not to be taken as they stand (see ``lineage``).
    """
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, int]] = []
    for output in outputs:
        if id(output) in seen:
            continue
        seen.add(id(output))
        stack.append((output, 0))
        while stack:
            node, position = stack.pop()
            inputs = node.inputs if operands is None else operands(node)
            if position == 0 and inputs and stop is not None and stop(node):
                inputs = ()
            count = len(inputs)
            while position < count:
                child = inputs[position]
                position += 1
                if id(child) not in seen:
                    seen.add(id(child))
                    stack.append((node, position))
                    stack.append((child, 0))
                    break
            else:
                order.append(node)
    return order
