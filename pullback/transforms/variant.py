"""Variant: the compiled form of a jitted function for one set of argument types, and how it is called.

The path of a call is kept short: everything that can be decided when the variant is made is decided there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from sys import getrefcount
from typing import Any, NamedTuple
from weakref import ref

from ..dtypes import DType
from ..graph.node import Node
from ..graph.state import Site
from ..graph.tracking import open_scope
from ..ops.leaf import DATA
from ..tensor import Tensor
from . import pytree
from .guards import Guards
from .lineage import Call, Recipe, evaluated_leaf

MISS = object()  # the variant does not serve this call
IN_LINE = object()  # a running transform follows a tensor that the function reads: call it in line

# Variants that rebind tensors run one at a time: two threads that draw random numbers must not read the same state.
_stateful = threading.RLock()


class Spec(NamedTuple):
    """The type of a value that a program gives.

    rg: a derivative may be asked.   requires_grad: it is a leaf that collects its gradient.   lineage: position among
    the outputs of the recipe, or -1.
    """

    shape: tuple[int, ...]
    dtype: DType
    weak: bool
    rg: bool
    requires_grad: bool
    lineage: int
    site: Site


class Captured(NamedTuple):
    """A hidden input: a tensor that the function reads from elsewhere, and the type that it must have."""

    reference: Any
    shape: tuple[int, ...]
    dtype: DType
    weak: bool
    rg: bool


class Plan(NamedTuple):
    """How a variant is called. Inputs are counted over argument leaves, then captured tensors, then ``.grad`` slots.

    arguments: for each input from an argument, the leaf's position and kind ("tensor", "array", "number"); None if every
        leaf is a tensor and every one is an input.
    captured: hidden inputs.   slots: input whose ``.grad`` is a hidden input, with the type that it must have.
    empty: inputs whose ``.grad`` must be None.   pinned: argument leaves that must be these very tensors.
    specs: one for each output of the program.
    rebound: (input, output): tensors to bind to outputs.   gradients: (input, output or None): ``.grad`` slots to set.
    moved: (input, other input): ``.grad`` slots to set to a tensor that exists.
    results: what the function returned, leaf by leaf: ("value", output), ("tensor", input): that very tensor,
        ("input", input): a new tensor of its value, ("again", leaf), ("static", object).
    structure: of the results; None for a single tensor.
    reusable: inputs whose memory may become that of the output that they are rebound to.
    """

    arguments: tuple[tuple[int, str], ...] | None
    captured: tuple[Captured, ...]
    slots: tuple[tuple[int, Captured], ...]
    empty: tuple[int, ...]
    pinned: tuple[tuple[int, Any], ...]
    specs: tuple[Spec, ...]
    rebound: tuple[tuple[int, int], ...]
    gradients: tuple[tuple[int, int | None], ...]
    moved: tuple[tuple[int, int], ...]
    results: tuple[tuple[str, Any], ...]
    structure: Any
    reusable: frozenset[int]


class Variant:
    """A program and the plan to call it by. ``None`` for a program: nothing is computed."""

    __slots__ = (
        "_captured", "_captured_ids", "_guards", "_is_single", "_is_tuple", "_plan", "_program", "_recipe", "_values", "is_stateful",
    )

    def __init__(self, program: Any, plan: Plan, guards: Guards, recipe: Recipe | None) -> None:
        self._program = program
        self._plan = plan
        self._guards = guards
        self._recipe = recipe
        self._captured = plan.captured
        self.is_stateful = bool(plan.rebound or plan.gradients or plan.moved)
        self._captured_ids = self.captured_ids() if self.is_stateful else frozenset()
        outputs = [source for kind, source in plan.results if kind == "value"]
        # Returned values that are all new, in order: no need to look at what each one is.
        self._values = len(outputs) if outputs == list(range(len(plan.results))) else -1
        self._is_single = plan.structure is None
        self._is_tuple = plan.structure is tuple

    def captured_ids(self) -> frozenset[int]:
        """Identities of the hidden inputs that are alive."""
        handles = [item.reference() for item in self._captured]
        return frozenset([id(handle) for handle in handles if handle is not None])

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run on the argument leaves, whose types are this variant's. MISS or IN_LINE if it does not serve them."""
        if not self._guards.hold():
            return MISS
        if self.is_stateful:
            with _stateful:
                return self._run(leaves)
        return self._run(leaves)

    def _run(self, leaves: Sequence[Any]) -> Any:
        plan = self._plan
        if plan.pinned:
            for position, reference in plan.pinned:
                if leaves[position] is not reference():
                    return MISS
        if self._captured_ids and not self._captured_ids.isdisjoint(map(id, leaves)):
            return MISS
        handles: list[Any]
        nodes: list[Any]
        if plan.arguments is None:
            handles = list(leaves)
            nodes = [handle._node for handle in handles]
        else:
            handles, nodes = _arguments(plan.arguments, leaves)
        for reference, shape, dtype, weak, rg in self._captured:
            handle = reference()
            if handle is None:
                return MISS
            node = handle._node
            if node.shape != shape or node.dtype is not dtype or node.weak is not weak or node.rg is not rg:
                return MISS
            if node.scope is not None and open_scope(node.scope) is not None:
                return IN_LINE
            handles.append(handle)
            nodes.append(node)
        for position, item in plan.slots:
            handle = handles[position]._grad
            if handle is None:
                return MISS
            node = handle._node
            if node.shape != item.shape or node.dtype is not item.dtype or node.weak is not item.weak or node.rg is not item.rg:
                return MISS
            handles.append(handle)
            nodes.append(node)
        for position in plan.empty:
            if handles[position]._grad is not None:
                return MISS
        values = [node.buffer if type(node) is Node else node for node in nodes]
        if None in values:
            from ..runtime.evaluate import evaluate

            evaluate([node for node, value in zip(nodes, values) if value is None])
            values = [node.buffer if type(node) is Node else node for node in nodes]
        if not self.is_stateful:
            outputs = () if self._program is None else self._program(values)
            return self._results(outputs, handles, nodes)
        alone = []
        shared = []  # a second reference to what may not be overwritten
        for position, _ in plan.rebound:
            is_alone = position in plan.reusable and _is_alone(nodes, position)
            alone.append(is_alone)
            if not is_alone:
                shared.append(values[position])
        outputs = () if self._program is None else self._program(values)
        return self._results_and_changes(outputs, handles, nodes, alone)

    def _results_and_changes(self, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], alone: list[bool]) -> Any:
        plan = self._plan
        call = None if self._recipe is None else Call(self._recipe, nodes)
        result = self._results(outputs, handles, nodes, call)
        for (position, output), is_alone in zip(plan.rebound, alone):
            if is_alone:
                # Nobody else can see this node: its value changes and nothing has to be made.
                nodes[position].buffer = outputs[output]
            else:
                handle = handles[position]
                node = self._node(outputs[output], plan.specs[output], call)
                handle._node = node
                node.handles = ref(handle)
        for position, source in plan.moved:
            handles[position]._grad = handles[source]
        for position, wanted in plan.gradients:
            tensor = handles[position]
            tensor._grad = None if wanted is None else _tensor(self._node(outputs[wanted], plan.specs[wanted], call), False)
        return result

    def _node(self, buffer: Any, spec: Spec, call: Call | None) -> Node:
        shape, dtype, weak, rg, _, lineage, site = spec
        node = evaluated_leaf(shape, dtype, weak, buffer, rg, site, DATA)
        if lineage >= 0 and call is not None:
            call.bear(lineage, node)
        return node

    def _results(self, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], call: Call | None = None) -> Any:
        plan = self._plan
        recipe = self._recipe
        if recipe is not None and call is None:
            call = Call(recipe, nodes)
        if self._values >= 0:
            results = []
            for position, (shape, dtype, weak, rg, requires_grad, lineage, site) in zip(range(self._values), plan.specs):
                node = evaluated_leaf(shape, dtype, weak, outputs[position], rg, site, DATA)
                if lineage >= 0 and call is not None:
                    call.bear(lineage, node)
                results.append(_tensor(node, requires_grad))
        else:
            results = self._mixed_results(outputs, handles, nodes, call)
        if self._is_single:
            return results[0]
        if self._is_tuple:
            return tuple(results)
        return pytree.unflatten(plan.structure, results)

    def _mixed_results(
        self, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], call: Call | None
    ) -> list[Any]:
        results: list[Any] = []
        for kind, source in self._plan.results:
            if kind == "value":
                spec = self._plan.specs[source]
                results.append(_tensor(self._node(outputs[source], spec, call), spec.requires_grad))
            elif kind == "tensor":
                results.append(handles[source])
            elif kind == "input":
                results.append(Tensor(nodes[source]))
            elif kind == "again":
                results.append(results[source])
            else:
                results.append(source)
        return results


def _arguments(plan: tuple[tuple[int, str], ...], leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Handles and nodes of the inputs that come from argument leaves. A number stands for itself."""
    from ..interop import numpy_to_node

    handles: list[Any] = []
    nodes: list[Any] = []
    for position, kind in plan:
        leaf = leaves[position]
        handles.append(leaf)
        if kind == "tensor":
            nodes.append(leaf._node)
        elif kind == "number":
            nodes.append(leaf)
        else:
            nodes.append(numpy_to_node(leaf, None, False, "jit"))
    return handles, nodes


def _tensor(node: Node, requires_grad: bool) -> Tensor:
    tensor = Tensor.__new__(Tensor)
    tensor._node = node
    tensor._grad = None
    tensor._requires_grad = requires_grad
    tensor._hooks = None
    node.handles = ref(tensor)
    return tensor


def _is_alone(nodes: list[Any], position: int) -> bool:
    """Whether only the tensor itself and the list hold the node, and the node is a plain value."""
    return getrefcount(nodes[position]) <= _ALONE and nodes[position].op is DATA


_ALONE = 0


def _calibrate() -> int:
    """The reference count that ``_is_alone`` sees for a node held by one tensor and the list, on this interpreter."""

    class Probe:
        pass

    holder = Probe()
    holder.value = Probe()  # type: ignore[attr-defined]
    nodes: list[Any] = [holder.value]  # type: ignore[attr-defined]

    def count(nodes: list[Any], position: int) -> int:
        return getrefcount(nodes[position])

    return count(nodes, 0)


_ALONE = _calibrate()
