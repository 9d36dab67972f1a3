"""Variant: the compiled form of a jitted function for one set of argument types, and how it is called.

The path of a call is kept short: everything that can be decided when the variant is made is decided there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from sys import getrefcount
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..dtypes import DType, of_scalar
from ..graph.handle import _add_handle
from ..graph.node import Node
from ..graph.state import Site, open_after_fork
from ..graph.trace import depends_on_placeholder
from ..graph.tracking import open_scope
from ..interop import numpy_to_node
from ..ops.leaf import DATA, constant
from ..runtime.buffers import from_numpy
from ..runtime.evaluate import evaluate
from ..tensor import Tensor
from . import pytree
from .guards import Guarded, Guards
from .lineage import Call, Recipe, evaluated_leaf
from .surroundings import Surroundings

MISS = object()  # the variant does not serve this call
IN_LINE = object()  # the function has to be called in line: see Variant.__call__

# Variants that rebind tensors run one at a time: two threads that draw random numbers must not read the same state.
_stateful = open_after_fork(threading.RLock())


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


# Where a value comes from: ("value", output of the program), ("input", input): a new name for its value,
# ("tensor", input): that very tensor, ("node", a fixed value), ("again", an earlier result), ("static", any object),
# ("array", a NumPy array): a copy.
Source = tuple[str, Any]


class Plan(NamedTuple):
    """How a variant is called. Inputs are counted over argument leaves, then captured tensors, then ``.grad`` slots.

    arguments: for each input from an argument, the leaf's position and kind ("tensor", "array", "number"); None if
        every leaf is a tensor and every one is an input.
    captured: hidden inputs.   slots: input whose ``.grad`` is a hidden input, with the type that it must have.
    empty: inputs whose ``.grad`` must be None.   pinned: argument leaves that must be these very tensors.
    specs: one for each output of the program.
    rebound: (input, source): tensors to bind anew.   gradients: (input, source): ``.grad`` slots to set.
    results: what the function returned, leaf by leaf.   structure: theirs; None for a single leaf, or ``tuple``.
    modules: those in what it returned: position in the tuple, first leaf, and the leaf after the last.
    reusable: inputs whose memory may become that of the output that they are rebound to.
    ranges: (leaf, low, high): integers among the argument leaves that take part in the arithmetic of a dtype that holds
        only these values.
    """

    arguments: tuple[tuple[int, str], ...] | None
    captured: tuple[Captured, ...]
    slots: tuple[tuple[int, Captured], ...]
    empty: tuple[int, ...]
    pinned: tuple[tuple[int, Any], ...]
    specs: tuple[Spec, ...]
    rebound: tuple[tuple[int, Source], ...]
    gradients: tuple[tuple[int, Source], ...]
    results: tuple[Source, ...]
    structure: Any
    modules: tuple[tuple[int, int, int], ...]
    reusable: frozenset[int]
    ranges: tuple[tuple[int, int, int], ...]


class Variant:
    """A program and the plan to call it by. None for a program: nothing is computed."""

    __slots__ = (
        "_arguments", "_captured", "_captured_ids", "_guards", "_is_pure", "_is_single", "_is_stateful", "_is_tuple",
        "_late_gradients", "_only_values", "_plan", "_program", "_ranges", "_recipe", "_specs", "_surroundings",
        "_tokens",
    )

    def __init__(
        self, program: Any, plan: Plan, guards: Guards, surroundings: Surroundings, recipe: Recipe | None
    ) -> None:
        self._program = program
        self._plan = plan
        self._guards = guards
        self._surroundings = surroundings if surroundings else None
        self._recipe = recipe
        self._captured = plan.captured
        self._tokens: dict[int, Any] = {}  # of the modules among the results, or None
        self._is_stateful = bool(plan.rebound or plan.gradients)
        # A tensor that is rebound must not be both an argument and a hidden input.
        self._captured_ids = self.captured_ids() if self._is_stateful else frozenset()
        self._only_values = list(plan.results) == [("value", i) for i in range(len(plan.results))]
        self._is_single = plan.structure is None
        self._is_tuple = plan.structure is tuple
        self._specs = plan.specs
        late = getattr(program, "spare_outputs", ()) if plan.gradients else ()
        # (input, output) of the gradients that may be written over those before them
        self._late_gradients = [
            (position, output) for position, (kind, output) in plan.gradients if kind == "value" and output in late
        ]
        self._arguments = plan.arguments
        self._ranges = plan.ranges
        # Nothing but a program over arguments.
        self._is_pure = (
            program is not None
            and recipe is None
            and self._only_values
            and (plan.arguments is None or all(kind != "copied array" for _, kind in plan.arguments))
            and not (self._is_stateful or plan.captured or plan.slots or plan.empty or plan.pinned or guards)
        )

    def captured_ids(self) -> frozenset[int]:
        """Identities of the hidden inputs that are alive."""
        handles = [item.reference() for item in self._captured]
        return frozenset([id(handle) for handle in handles if handle is not None])

    def __call__(self, leaves: Sequence[Any], is_new: bool = False) -> Any:
        """Run on the argument leaves, whose types are this variant's. MISS or IN_LINE if it does not serve them.

        is_new: it was recorded for this call, so its guards hold.   IN_LINE: a running transform follows a tensor that
        the function reads, or an integer is not in its range, which without jit is an error, or not, case by case.
        """
        if self._surroundings is not None and not is_new and not self._surroundings.hold():
            return MISS
        for position, low, high in self._ranges:
            if not low <= leaves[position] <= high:
                return IN_LINE
        if self._is_pure:
            if self._arguments is None:
                values = [leaf._node.buffer for leaf in leaves]
            else:
                values = _values(self._arguments, leaves)
            if None not in values:
                outputs = self._program(values)
                specs = self._specs
                if self._is_single:
                    return _result(outputs[0], specs[0])
                return self._assemble([_result(buffer, spec) for buffer, spec in zip(outputs, specs)])
        if not is_new and not self._guards.hold():
            return MISS
        if not self._is_stateful:
            return self._run(leaves)
        with _stateful:
            return self._run(leaves)

    def _run(self, leaves: Sequence[Any]) -> Any:
        plan = self._plan
        for position, reference in plan.pinned:
            if leaves[position] is not reference():
                return MISS
        if self._captured_ids and not self._captured_ids.isdisjoint(map(id, leaves)):
            return MISS
        if plan.arguments is None:
            handles = list(leaves)
            nodes: list[Any] = [handle._node for handle in handles]
            values: list[Any] = [node.buffer for node in nodes]
        else:
            handles, nodes, values = _arguments(plan.arguments, leaves)
        given = len(nodes)
        for reference, shape, dtype, weak, rg in self._captured:
            handle = reference()
            if handle is None:
                return MISS
            node = handle._node
            if (
                node.dtype is not dtype
                or not (node.shape is shape or node.shape == shape)
                or node.weak is not weak
                or node.rg is not rg
            ):
                return MISS
            if node.scope is not None and open_scope(node.scope) is not None:
                return IN_LINE
            handles.append(handle)
            nodes.append(node)
        node = None  # no reference of ours may count in _is_alone
        if (plan.slots or plan.empty) and not _read_slots(plan, handles, nodes):
            return MISS
        values += [node.buffer for node in nodes[given:]]
        if None in values:
            pending = [node for node, value in zip(nodes, values) if value is None]
            if any(map(depends_on_placeholder, pending)):
                return IN_LINE
            evaluate(pending)
            values = [node.buffer if value is None else value for node, value in zip(nodes, values)]
        program = self._program
        if not self._is_stateful:
            return self._results(() if program is None else program(values), handles, nodes)
        alone = [position in plan.reusable and _is_alone(nodes, position) for position, _ in plan.rebound]
        # A second reference to what may not be overwritten.
        shared = [values[position] for (position, _), is_alone in zip(plan.rebound, alone) if not is_alone]
        if self._late_gradients:
            outputs = program(values, None, self._spare_gradients(handles))
        else:
            outputs = () if program is None else program(values)
        del shared
        return self._results_and_changes(outputs, handles, nodes, alone)

    def _spare_gradients(self, handles: list[Any]) -> dict[int, Any]:
        """Memory of old gradients that nobody else can see and no input is: the new ones are written there."""
        spare = {}
        for position, output in self._late_gradients:
            if _has_lone_gradient(handles[position]):
                node = handles[position]._grad._node
                if getrefcount(node.buffer) <= _ALONE - 1:
                    spare[output] = node.buffer
        return spare

    def _results_and_changes(
        self, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], alone: list[bool]
    ) -> Any:
        plan = self._plan
        call = None if self._recipe is None else Call(self._recipe, nodes)
        result = self._results(outputs, handles, nodes, call)
        new_nodes = [
            None if is_alone else self._node(source, outputs, nodes, call)
            for (_, source), is_alone in zip(plan.rebound, alone)
        ]
        for (position, source), node in zip(plan.rebound, new_nodes):
            if node is None:
                # Nobody else can see the old node: its value changes and nothing has to be made.
                nodes[position].buffer = outputs[source[1]]
            else:
                handle = handles[position]
                handle._node = node
                node.handles = ref(handle) if node.handles is None else _add_handle(node.handles, handle)
        for position, source in plan.gradients:
            tensor = handles[position]
            if source[0] == "value" and _has_lone_gradient(tensor):
                node, spec = tensor._grad._node, plan.specs[source[1]]
                if node.dtype is spec.dtype and node.shape == spec.shape and not (node.weak or node.rg or spec.rg):
                    node.buffer = outputs[source[1]]
                    continue
            tensor._grad = self._tensor(source, outputs, handles, nodes, call)
        return result

    def _node(self, source: Source, outputs: Sequence[Any], nodes: list[Any], call: Call | None) -> Node:
        kind, where = source
        if kind == "value":
            shape, dtype, weak, rg, _, lineage, site = self._plan.specs[where]
            node = evaluated_leaf(shape, dtype, weak, outputs[where], rg, site, DATA)
            if lineage >= 0 and call is not None:
                call.bear(lineage, node)
            return node
        if kind == "node":
            return where
        node = nodes[where]
        return node if type(node) is Node else constant(node, of_scalar(node), weak=True)

    def _tensor(
        self, source: Source, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], call: Call | None
    ) -> Any:
        kind, where = source
        if kind == "static":
            return where
        if kind == "array":
            return where.copy()
        if kind == "tensor":
            return handles[where]
        tensor = Tensor(self._node(source, outputs, nodes, call))
        tensor._requires_grad = kind == "value" and self._plan.specs[where].requires_grad
        return tensor

    def _results(self, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], call: Call | None = None) -> Any:
        plan = self._plan
        recipe = self._recipe
        if recipe is not None and call is None:
            call = Call(recipe, nodes)
        results: list[Any] = []
        if self._only_values:
            for buffer, spec in zip(outputs[: len(plan.results)], plan.specs):
                tensor = _result(buffer, spec)
                if spec.lineage >= 0 and call is not None:
                    call.bear(spec.lineage, tensor._node)
                results.append(tensor)
        else:
            for source in plan.results:
                if source[0] == "again":
                    results.append(results[source[1]])
                else:
                    results.append(self._tensor(source, outputs, handles, nodes, call))
        return results[0] if plan.structure is None else self._assemble(results)

    def _assemble(self, results: list[Any]) -> Any:
        """What the function returned, from its leaves."""
        plan = self._plan
        if self._is_tuple:
            return tuple(results)
        result = pytree.unflatten(plan.structure, results)
        for k, (position, start, stop) in enumerate(plan.modules):
            module: Guarded = result[position] if type(result) is tuple else result
            leaves = results[start:stop]
            if k not in self._tokens:
                # The first time it is looked at; later calls give modules of the same structure.
                flat = module.flat()
                same = flat is not None and len(flat[0]) == len(leaves) and all(map(_is, flat[0], leaves))
                self._tokens[k] = flat[1] if same and flat is not None else None
            elif self._tokens[k] is not None:
                module.remember_flat(leaves, self._tokens[k])
        return result


def _is(a: Any, b: Any) -> bool:
    return a is b


def _read_slots(plan: Plan, handles: list[Any], nodes: list[Any]) -> bool:
    """Append the tensors in ``.grad`` slots; False if a slot is not as it was when the function was recorded."""
    for position, (_, shape, dtype, weak, rg) in plan.slots:
        handle = handles[position]._grad
        if handle is None:
            return False
        node = handle._node
        if node.shape != shape or node.dtype is not dtype or node.weak is not weak or node.rg is not rg:
            return False
        handles.append(handle)
        nodes.append(node)
    return all(handles[position]._grad is None for position in plan.empty)


def _values(plan: tuple[tuple[int, str], ...], leaves: Sequence[Any]) -> list[Any]:
    """Values of the inputs that come from argument leaves."""
    values: list[Any] = []
    for position, kind in plan:
        leaf = leaves[position]
        if kind == "tensor":
            values.append(leaf._node.buffer)
        elif kind == "number":
            values.append(leaf)
        else:
            values.append(from_numpy(np.asarray(leaf)))
    return values


def _arguments(plan: tuple[tuple[int, str], ...], leaves: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Handles, nodes and values of the inputs that come from argument leaves. A number stands for itself, and so does
    the memory of an array that only the program reads."""
    handles: list[Any] = []
    nodes: list[Any] = []
    values: list[Any] = []
    for position, kind in plan:
        leaf = leaves[position]
        handles.append(leaf)
        if kind == "tensor":
            node = leaf._node
            nodes.append(node)
            values.append(node.buffer)
            continue
        if kind == "array":
            leaf = from_numpy(np.asarray(leaf))
        elif kind != "number":
            node = numpy_to_node(np.asarray(leaf), None, True, "jit")
            nodes.append(node)
            values.append(node.buffer)
            continue
        nodes.append(leaf)
        values.append(leaf)
    return handles, nodes, values


def _result(buffer: Any, spec: Spec) -> Tensor:
    """A new tensor of an evaluated value: what the constructors of Node and Tensor do, without their questions."""
    node = Node.__new__(Node)
    node.shape, node.dtype, node.weak, node.rg, requires_grad, _, node.site = spec
    node.op = DATA
    node.inputs = node.attrs = ()
    node.buffer = buffer
    node.trace = node.scope = None
    node.constant = False
    node.epoch = 0
    tensor = Tensor.__new__(Tensor)
    tensor._node = node
    tensor._grad = tensor._hooks = None
    tensor._requires_grad = requires_grad
    node.handles = ref(tensor) if node.rg else None  # a plain value does not ask who names it
    return tensor


def _is_alone(nodes: list[Any], position: int) -> bool:
    """Whether only the tensor itself and the list hold the node, and the node is a plain value."""
    return getrefcount(nodes[position]) <= _ALONE and nodes[position].op is DATA


def _has_lone_gradient(tensor: Any) -> bool:
    """Whether only ``tensor`` holds its ``.grad``, a plain value, and only that holds its node."""
    grad = tensor._grad
    if grad is None:
        return False
    is_plain = type(grad) is Tensor and grad._grad is None and grad._hooks is None and grad._node.op is DATA
    del grad
    return is_plain and getrefcount(tensor._grad) <= _ALONE - 1 and getrefcount(tensor._grad._node) <= _ALONE - 1


def _calibrate() -> int:
    """The reference count that ``_is_alone`` sees for a node held by one tensor and the list, on this interpreter."""

    class Probe:
        value: Any = None

    holder = Probe()
    holder.value = Probe()
    nodes: list[Any] = [holder.value]

    def count(nodes: list[Any], position: int) -> int:
        return getrefcount(nodes[position])

    return count(nodes, 0)


_ALONE = _calibrate()
