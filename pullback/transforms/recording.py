"""Recording a call of a jitted function: from the function and its arguments to a compiled variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from .. import dtypes
from ..errors import TraceError
from ..graph.node import Node, topological_order
from ..graph.state import state
from ..graph.trace import Entry, Trace
from ..tensor import Tensor
from . import pytree
from .guards import Guards, recording
from .lineage import Recipe
from .variant import Captured, Plan, Spec, Variant


def leaf_kind(leaf: Any) -> str:
    """``"tensor"``, ``"array"``, ``"number"`` (a run-time argument), or ``"static"``."""
    kind = type(leaf)
    if kind is Tensor or isinstance(leaf, Tensor):
        return "tensor"
    if kind is float or kind is int:
        return "number"
    return "array" if isinstance(leaf, np.ndarray | np.generic) else "static"


class _Arguments:
    """The argument leaves of the call that is recorded."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.leaves: list[Any] = []
        self.inputs: list[tuple[int, str]] = []  # (leaf, kind) of the first placeholders

    def enter(self, tree: Any) -> Any:
        """``tree`` as the function sees it: the object itself unless it holds arrays or numbers."""
        found, structure = pytree.flatten(tree)
        replaced = False
        seen = []
        for leaf in found:
            position = len(self.leaves)
            self.leaves.append(leaf)
            kind = leaf_kind(leaf)
            if kind == "tensor":
                if id(leaf) not in self.trace.entries:
                    self.trace.bind_argument(leaf, position)
                    self.inputs.append((position, kind))
            elif kind != "static":
                self.inputs.append((position, kind))
                leaf = Tensor(self._placeholder(leaf, kind))
                replaced = True
            seen.append(leaf)
        return pytree.unflatten(structure, seen) if replaced else tree

    def _placeholder(self, leaf: Any, kind: str) -> Node:
        if kind == "number":
            return self.trace.placeholder((), dtypes.of_scalar(leaf), True, False)
        return self.trace.placeholder(tuple(leaf.shape), dtypes.from_numpy(leaf.dtype), False, False)


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_static: Callable[[int | str], bool],
    pinned: Sequence[int],
) -> Variant:
    """Call ``function`` once on placeholders and compile what it did.

    is_static: whether the argument at a position or of a name is part of what is compiled.
    pinned: argument leaves whose identity matters. Raises Untraceable if the function cannot be recorded now.
    """
    trace = Trace()
    try:
        with recording(), trace:
            arguments = _Arguments(trace)
            given = [arg if is_static(i) else arguments.enter(arg) for i, arg in enumerate(args)]
            entered = {name: arguments.enter(kwargs[name]) for name in sorted(kwargs) if not is_static(name)}
            named = {name: entered.get(name, arg) for name, arg in kwargs.items()}
            trace.pinned.update(pinned)
            _own_modules(trace, [*args, *given, *kwargs.values(), *named.values()])
            result = function(*given, **named)
        return _Builder(trace, arguments, result).variant()
    finally:
        trace.close()


def _own_modules(trace: Trace, trees: list[Any]) -> None:
    """Objects that come in as arguments are part of the key and need no guards."""
    stack = list(trees)
    while stack:
        tree = stack.pop()
        if isinstance(tree, list | tuple):
            stack += tree
        elif isinstance(tree, dict):
            stack += tree.values()
        elif hasattr(tree, "_guarded_parts"):
            trace.own.add(id(tree))
            stack += tree._guarded_parts()


class _Builder:
    """From a finished trace to the program and plan of a variant."""

    def __init__(self, trace: Trace, arguments: _Arguments, result: Any) -> None:
        self.trace = trace
        self.arguments = arguments
        self.input_nodes: list[Node] = []
        self.input_of: dict[int, int] = {}  # by id of a handle
        self.output_nodes: list[Node] = []
        self.output_of: dict[tuple[int, bool], int] = {}
        self.leaf_outputs: list[bool] = []
        self.captured: list[Captured] = []
        self.slots: list[tuple[int, Captured]] = []
        self._collect_inputs()
        self.placeholders = {id(node): i for i, node in enumerate(self.input_nodes)}
        self.results, self.structure = self._collect_results(result)
        self.rebound = [
            (self.input_of[id(entry.handle)], self._output(entry.node, True)) for entry in trace.rebound()
        ]
        self._collect_gradients()

    # -- inputs ------------------------------------------------------------------------------------------------------

    def _collect_inputs(self) -> None:
        trace = self.trace
        self.input_nodes = trace.parameters[: len(self.arguments.inputs)]
        entries = list(trace.entries.values())
        for entry in entries:
            if entry.argument is not None:
                self.input_of[id(entry.handle)] = self.input_nodes.index(entry.parameter)
        for entry in entries:
            if entry.argument is None and entry.slot is None:
                self.input_of[id(entry.handle)] = len(self.input_nodes)
                self.input_nodes.append(entry.parameter)
                self.captured.append(_captured(entry))
        for entry in entries:
            if entry.slot is not None:
                self.input_of[id(entry.handle)] = len(self.input_nodes)
                self.input_nodes.append(entry.parameter)
                self.slots.append((self.input_of[id(entry.slot.tensor)], _captured(entry)))

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _output(self, node: Node, is_leaf: bool) -> int:
        """The number of the program's output that gives ``node``.

        is_leaf: it is bound to a tensor that keeps the derivative flags of its own; see ``_spec``.
        """
        key = (id(node), is_leaf)
        if key not in self.output_of:
            self.output_of[key] = len(self.output_nodes)
            self.output_nodes.append(node)
        return self.output_of[key]

    def _collect_results(self, result: Any) -> tuple[list[tuple[str, Any]], Any]:
        leaves, structure = pytree.flatten(result)
        results: list[tuple[str, Any]] = []
        known: dict[int, int] = {}
        self.requires_grad: dict[int, bool] = {}
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                results.append(("static", leaf))
                continue
            if id(leaf) in self.trace.entries:
                results.append(("tensor", self.input_of[id(leaf)]))
                continue
            if id(leaf) in known:
                results.append(("again", known[id(leaf)]))
                continue
            known[id(leaf)] = position
            with _reading(self.trace):
                node = leaf.node
            if id(leaf) in self.trace.entries:  # a tensor from outside that was not read before
                raise TraceError("jit: internal order of inputs")
            source = self.placeholders.get(id(node))
            if source is not None:
                results.append(("input", source))
                continue
            output = self._output(node, False)
            self.requires_grad[output] = leaf._requires_grad
            results.append(("value", output))
        if leaves and result is leaves[0]:
            structure = None
        elif type(result) is tuple and len(result) == len(leaves) and all(a is b for a, b in zip(result, leaves)):
            structure = tuple
        return results, structure
