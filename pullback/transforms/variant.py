"""Variant: the compiled form of a jitted function for one set of argument types, and how it is called.

The path of a call is kept short: everything that can be decided when the variant is made is decided there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple
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

if TYPE_CHECKING:
    from ..compiler.program import Entry

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


class Seen:
    """Values that were looked at before: evaluated, followed by nothing, of the right types. None of that can change,
    so to see that they are the same ones is all that a later call has to do."""

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: list[Any] = []

    def are(self, nodes: list[Any]) -> bool:
        """Whether ``nodes`` are the values that were remembered."""
        return nodes == [reference() for reference in self._references]

    def remember(self, nodes: list[Any]) -> None:
        """Remember them if they are such values, and no two the same."""
        if all(node.buffer is not None and node.scope is None for node in nodes) and len(set(nodes)) == len(nodes):
            self._references = list(map(ref, nodes))


class DirectParts(NamedTuple):
    """What a call that is nothing but a program over its arguments needs.

    positions: for each input of the program, the leaf.   specs: of the results.   is_single: one result, else a tuple.
    hold: whether names outside still have their values; None if there are none.
    """

    entry: Entry
    positions: tuple[int, ...]
    specs: tuple[Spec, ...]
    is_single: bool
    hold: Callable[[], bool] | None


class Variant:
    """A program and the plan to call it by. None for a program: nothing is computed.

    is_stateful: it rebinds tensors.   shortcut: see shortcut.py; False: not looked for yet.
    nodes: in the graph that the program computes.
    """

    __slots__ = (
        "_captured", "_captured_ids", "_execute", "_gradients", "_guards", "_is_none", "_is_pure", "_is_single",
        "_is_tuple", "_late_gradients", "_only_values", "_pick", "_plan", "_ranges", "_rebound", "_recipe",
        "_references", "_seen", "_specs", "_surroundings", "_tokens", "is_stateful", "nodes", "shortcut",
    )

    def __init__(
        self, program: Any, plan: Plan, guards: Guards, surroundings: Surroundings, recipe: Recipe | None
    ) -> None:
        # A bound method is called without the detour through a type's call slot.
        self._execute: Any = None if program is None else program.__call__
        self.nodes = 1
        self._plan = plan
        self._guards = guards
        self._surroundings = surroundings if surroundings else None
        self._recipe = recipe
        self._captured = plan.captured
        self._references = [item.reference for item in plan.captured]
        self._seen = Seen()  # values of hidden inputs
        self._tokens: dict[int, Any] = {}  # of the modules among the results, or None
        self.is_stateful = bool(plan.rebound or plan.gradients)
        # A tensor that is rebound must not be both an argument and a hidden input.
        self._captured_ids = self.captured_ids() if self.is_stateful else frozenset()
        self._only_values = list(plan.results) == [("value", i) for i in range(len(plan.results))]
        self._is_single = plan.structure is None
        self._is_tuple = plan.structure is tuple
        self._is_none = not plan.results and not self._is_tuple and pytree.unflatten(plan.structure, []) is None
        self._specs = plan.specs
        late = getattr(program, "spare_outputs", ()) if plan.gradients else ()
        # (input, output) of the gradients that may be written over those before them
        self._late_gradients = [
            (position, output) for position, (kind, output) in plan.gradients if kind == "value" and output in late
        ]
        self._pick = _picker(plan.arguments)
        self._ranges = plan.ranges
        self._gradients = [_gradient_plan(position, source, plan.specs) for position, source in plan.gradients]
        self._rebound = [(position, position in plan.reusable) for position, _ in plan.rebound]
        # Nothing but a program over arguments.
        self._is_pure = (
            program is not None
            and recipe is None
            and self._only_values
            and not _copies(plan.arguments)
            and not (self.is_stateful or plan.captured or plan.slots or plan.empty or plan.pinned or guards)
        )
        self.shortcut: Any = False

    def captured_ids(self) -> frozenset[int]:
        """Identities of the hidden inputs that are alive."""
        handles = [item.reference() for item in self._captured]
        return frozenset([id(handle) for handle in handles if handle is not None])

    def __call__(self, leaves: Sequence[Any], is_new: bool = False) -> Any:
        """Run on the argument leaves, whose types are this variant's. MISS or IN_LINE if it does not serve them.

        is_new: it was recorded for this call, so its guards hold.   IN_LINE: a running transform follows a tensor that
        the function reads, or an integer is not in its range, which without jit is an error, or not, case by case.
        """
        surroundings = self._surroundings
        if surroundings is not None and not is_new and not surroundings.hold():
            return MISS
        for position, low, high in self._ranges:
            if not low <= leaves[position] <= high:
                return IN_LINE
        if not is_new and not self._guards.hold():
            return MISS
        if not self.is_stateful:
            return self._run(leaves, None, None)
        with _stateful:
            return self._run(leaves, None, None)

    def run(self, leaves: Sequence[Any], nodes: list[Any] | None, values: Sequence[Any]) -> Any:
        """The same on leaves that are all inputs and have values.

        nodes: theirs, if all are tensors.   values: the buffers of tensors and arrays, and numbers. Not for a variant
        that rebinds tensors, whose values may change before it has its turn: see ``run_in_turn``.
        """
        if not self._is_pure and (nodes is None or self._pick is not None):
            return self(leaves)
        surroundings = self._surroundings
        if surroundings is not None and not surroundings.hold():
            return MISS
        for position, low, high in self._ranges:
            if not low <= leaves[position] <= high:
                return IN_LINE
        if not self._is_pure:
            return self._run(leaves, nodes, list(values)) if self._guards.hold() else MISS
        outputs = self._execute(values if self._pick is None else self._pick(list(values)))
        if self._is_single:
            return new_result(outputs[0], self._specs[0])
        return self._assemble([new_result(buffer, spec) for buffer, spec in zip(outputs, self._specs)])

    def run_in_turn(self, leaves: Sequence[Any], nodes: list[Any]) -> Any:
        """The same for a variant that rebinds tensors, on leaves that are tensors and all inputs.

        nodes: theirs; no other reference to one may be held.
        """
        if self._pick is not None:
            return MISS
        surroundings = self._surroundings
        if surroundings is not None and not surroundings.hold():
            return MISS
        if not self._guards.hold():
            return MISS
        with _stateful:
            if nodes != [leaf._node for leaf in leaves]:
                return MISS
            return self._run(leaves, nodes, [node.buffer for node in nodes])

    def direct_parts(self, count: int) -> DirectParts | None:
        """For a function written for such calls, with ``count`` leaves; None where this one is to be called."""
        if not self._is_pure or self._ranges or not (self._is_single or self._is_tuple):
            return None
        from ..compiler.program import Program

        program = self._execute.__self__
        entry = program.entry() if type(program) is Program else None
        hold = None if self._surroundings is None else self._surroundings.hold
        arguments = self._plan.arguments
        positions = tuple(range(count)) if arguments is None else tuple([position for position, _ in arguments])
        return None if entry is None else DirectParts(entry, positions, self._specs, self._is_single, hold)

    def _run(self, leaves: Sequence[Any], nodes: list[Any] | None, values: list[Any] | None) -> Any:
        plan = self._plan
        for position, reference in plan.pinned:
            if leaves[position] is not reference():
                return MISS
        if self._captured_ids and not self._captured_ids.isdisjoint(map(id, leaves)):
            return MISS
        is_pending = False
        if nodes is not None and values is not None:
            handles = list(leaves)
        elif plan.arguments is None:
            handles = list(leaves)
            nodes = [handle._node for handle in handles]
            values = [node.buffer for node in nodes]
            is_pending = True
        else:
            handles, nodes, values = _arguments(plan.arguments, leaves)
            is_pending = True
        if self._captured:
            given = len(nodes)
            handles += [reference() for reference in self._references]
            try:
                nodes += [handle._node for handle in handles[given:]]
            except AttributeError:  # one is gone
                return MISS
            if not self._seen.are(nodes[given:]):
                status = self._check(nodes[given:])
                if status is not None:
                    return status
                is_pending = True
        else:
            given = len(nodes)
        if plan.slots or plan.empty:
            if not _read_slots(plan, handles, nodes):
                return MISS
            is_pending = True
        values += [node.buffer for node in nodes[given:]]
        if is_pending and None in values:
            pending = [node for node, value in zip(nodes, values) if value is None]
            if any(map(depends_on_placeholder, pending)):
                return IN_LINE
            evaluate(pending)
            del pending
            values = [node.buffer if value is None else value for node, value in zip(nodes, values)]
        execute = self._execute
        if not self.is_stateful:
            return self._results(() if execute is None else execute(values), handles, nodes)
        alone = [
            reusable and getrefcount(nodes[position]) <= _ALONE and nodes[position].op is DATA
            for position, reusable in self._rebound
        ]
        # A second reference to what may not be overwritten.
        shared = None
        if False in alone:
            shared = [values[position] for (position, _), is_alone in zip(self._rebound, alone) if not is_alone]
        if self._late_gradients:
            outputs = execute(values, None, self._spare_gradients(handles))
        else:
            outputs = () if execute is None else execute(values)
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

    def _check(self, nodes: list[Node]) -> object:
        """MISS or IN_LINE if hidden inputs do not have, or not only, the values that they should, else None."""
        for node, (_, shape, dtype, weak, rg) in zip(nodes, self._captured):
            if node.dtype is not dtype or node.weak is not weak or node.rg is not rg or node.shape != shape:
                return MISS
            if node.scope is not None and open_scope(node.scope) is not None:
                return IN_LINE
        self._seen.remember(nodes)
        return None

    def _results_and_changes(
        self, outputs: Sequence[Any], handles: list[Any], nodes: list[Any], alone: list[bool]
    ) -> Any:
        plan = self._plan
        call = None if self._recipe is None else Call(self._recipe, nodes)
        result = self._results(outputs, handles, nodes, call)
        # Where nobody else can see the old node its value changes, and nothing has to be made.
        if False not in alone:
            for position, (_, number) in plan.rebound:
                nodes[position].buffer = outputs[number]
        else:
            new_nodes = [
                None if is_alone else self._node(source, outputs, nodes, call)
                for (_, source), is_alone in zip(plan.rebound, alone)
            ]
            for (position, source), node in zip(plan.rebound, new_nodes):
                if node is None:
                    nodes[position].buffer = outputs[source[1]]
                else:
                    handle = handles[position]
                    handle._node = node
                    node.handles = ref(handle) if node.handles is None else _add_handle(node.handles, handle)
        for position, number, shape, dtype, source in self._gradients:
            tensor = handles[position]
            if number >= 0 and _has_lone_gradient(tensor):
                node = tensor._grad._node
                if node.dtype is dtype and node.shape == shape and not (node.weak or node.rg):
                    node.buffer = outputs[number]
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
        if self._is_none:
            return None
        plan = self._plan
        recipe = self._recipe
        if recipe is not None and call is None:
            call = Call(recipe, nodes)
        results: list[Any] = []
        if self._only_values:
            for spec, buffer in zip(plan.specs[: len(plan.results)], outputs):
                tensor = new_result(buffer, spec)
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


def _gradient_plan(position: int, source: Source, specs: Sequence[Spec]) -> tuple[int, int, Any, Any, Source]:
    """Of a ``.grad`` slot: the input, and the output whose buffer can be put into the tensor that is there, if that has
    this shape and dtype; -1 for none."""
    kind, where = source
    if kind != "value" or specs[where].weak or specs[where].rg:
        return position, -1, None, None, source
    return position, where, specs[where].shape, specs[where].dtype, source


def _copies(plan: tuple[tuple[int, str], ...] | None) -> bool:
    return plan is not None and any(kind == "copied array" for _, kind in plan)


def _picker(plan: tuple[tuple[int, str], ...] | None) -> Callable[[list[Any]], list[Any]] | None:
    """From the values of the leaves, which are all inputs, to those of the inputs; None where they are the same."""
    if plan is None:
        return None
    positions = [position for position, _ in plan]
    if positions == list(range(len(positions))):
        return None
    return lambda values: [values[position] for position in positions]


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


def new_result(buffer: Any, spec: Spec) -> Tensor:
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


def _has_lone_gradient(tensor: Any) -> bool:
    """Whether only ``tensor`` holds its ``.grad``, a plain value, and only that holds its node."""
    if type(tensor._grad) is not Tensor or getrefcount(tensor._grad) >= _ALONE:
        return False
    grad = tensor._grad
    return (
        grad._node.op is DATA and getrefcount(grad._node) < _ALONE and grad._grad is None and grad._hooks is None
    )


def _calibrate() -> int:
    """What ``Variant._run`` counts for a node that one tensor and the list hold, on this interpreter."""

    class Probe:
        value: Any = None

    holder = Probe()
    holder.value = Probe()
    nodes: list[Any] = [holder.value]

    def count(nodes: list[Any], position: int) -> int:
        return getrefcount(nodes[position])

    return count(nodes, 0)


_ALONE = _calibrate()
