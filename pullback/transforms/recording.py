"""Recording a call of a jitted function: from the function and its arguments to a compiled variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any
from weakref import ref

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import TraceError
from ..graph.node import Node, topological_order
from ..graph.trace import Entry, GradSlot, Trace
from ..interop import numpy_to_node
from ..ops.leaf import DATA
from ..ops.registry import by_name
from ..runtime.evaluate import get_backend, looks_for
from ..runtime.nonfinite import CheckedProgram
from ..runtime.reference import ReferenceProgram
from ..tensor import Tensor
from . import pytree
from .guards import Guarded, Guards, recording
from .lineage import Recipe, evaluated_leaf
from .surroundings import Surroundings
from .variant import Captured, Plan, Source, Spec, Variant

# What a function may return besides tensors: the same at every call.
_VALUES = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic, np.dtype, DType, type, range, slice)

CAST, BROADCAST_TO, POW = by_name("cast"), by_name("broadcast_to"), by_name("pow")


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
        self.static: list[Any] = []  # whole arguments that are part of what is compiled

    def given(self) -> list[Any]:
        """All that is an argument or a leaf of one."""
        return [*self.leaves, *self.static]

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
            node = self.trace.placeholder((), dtypes.of_scalar(leaf), True, False)
            if type(leaf) is float:
                self.trace.numbers[id(node)] = None
            return node
        node = numpy_to_node(leaf[:0] if leaf.ndim else leaf, None, None, "jit")  # raises for what holds no numbers
        return self.trace.placeholder(tuple(leaf.shape), node.dtype, False, False)


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
    plain = [arg for arg in [*args, *kwargs.values()] if not isinstance(arg, Tensor)]
    surroundings = Surroundings(function, plain)
    try:
        with recording(), trace:
            _own_modules(trace, [*args, *kwargs.values()])
            arguments = _Arguments(trace)
            arguments.static += [arg for i, arg in enumerate(args) if is_static(i)]
            arguments.static += [arg for name, arg in kwargs.items() if is_static(name)]
            given = [arg if is_static(i) else arguments.enter(arg) for i, arg in enumerate(args)]
            entered = {name: arguments.enter(kwargs[name]) for name in sorted(kwargs) if not is_static(name)}
            named = {name: entered.get(name, arg) for name, arg in kwargs.items()}
            trace.pinned.update(pinned)
            try:
                result = function(*given, **named)
            except BaseException:
                surroundings.put_back(trace, rebind=False)
                raise
            surroundings.put_back(trace, rebind=True)
            leaves, structure = pytree.flatten(result)
            _read_all(trace, leaves)
        if leaves and result is leaves[0]:
            structure = None
        elif type(result) is tuple and len(result) == len(leaves) and all(map(_is, result, leaves)):
            structure = tuple
        surroundings.settle()
        return _Builder(trace, arguments, leaves, structure).variant(_modules(result), surroundings)
    finally:
        trace.close()


def _modules(result: Any) -> tuple[tuple[int, int, int], ...]:
    """The modules that a function returned, alone or in a tuple: position, first leaf, and the leaf after the last."""
    found = []
    start = 0
    for position, element in enumerate(result if type(result) is tuple else (result,)):
        stop = start + len(pytree.leaves(element))
        if isinstance(element, Guarded):
            found.append((position, start, stop))
        start = stop
    return tuple(found)


def _is(a: Any, b: Any) -> bool:
    return a is b


def _own_modules(trace: Trace, trees: list[Any]) -> None:
    """Objects that come in as arguments are part of the key and need no guards."""
    stack = list(trees)
    while stack:
        tree = stack.pop()
        if isinstance(tree, list | tuple):
            stack += tree
        elif isinstance(tree, dict):
            stack += tree.values()
        elif isinstance(tree, Guarded):
            trace.own.add(id(tree))
            stack += tree.__dict__.values()


def _read_all(trace: Trace, leaves: list[Any]) -> None:
    """Make hidden inputs of the tensors from outside that are returned, or put into a ``.grad``, without being read."""
    tensors = [slot.value for slot in trace.grads.values() if slot.is_written]
    for tensor in [*leaves, *tensors]:
        if isinstance(tensor, Tensor):
            tensor.node  # noqa: B018 - reading it is the point


class _Builder:
    """From a finished trace to the program and plan of a variant."""

    def __init__(self, trace: Trace, arguments: _Arguments, leaves: list[Any], structure: Any) -> None:
        self.trace = trace
        self.arguments = arguments
        self.structure = structure
        self.nodes: list[Node] = []  # placeholders
        self.input_of: dict[int, int] = {}  # number of an input, by id of its handle
        self.captured: list[Captured] = []
        self.slots: list[tuple[int, Captured]] = []
        self._number_inputs()
        self.placeholder_of = {id(node): i for i, node in enumerate(self.nodes)}
        self.outputs: list[Node] = []
        self.output_of: dict[int, int] = {}  # number of an output, by id of its node
        self.leaf_outputs: set[int] = set()  # outputs that collect a gradient of their own
        self.results = self._results(leaves)
        self.rebound: list[tuple[int, Source]] = []
        for entry in trace.rebound():
            source = self._source(entry.node, getattr(entry.handle, "_requires_grad", False))
            self.rebound.append((self.input_of[id(entry.handle)], source))
        self.gradients = [self._gradient(slot) for slot in trace.grads.values() if slot.is_written]

    def _number_inputs(self) -> None:
        self.nodes = self.trace.parameters[: len(self.arguments.inputs)]
        for node, given in list(zip(self.nodes, self.arguments.inputs)):
            wide = self.trace.numbers.get(id(node))
            if wide is not None:
                self.nodes.append(wide)
                self.arguments.inputs.append(given)
        entries = list(self.trace.entries.values())
        numbers = {id(node): i for i, node in enumerate(self.nodes)}
        for entry in entries:
            if entry.argument is not None:
                self.input_of[id(entry.handle)] = numbers[id(entry.parameter)]
        for entry in entries:
            if entry.argument is None and entry.slot is None:
                self._add_input(entry)
                self.captured.append(_captured(entry))
        for entry in entries:
            if entry.slot is not None:
                self._add_input(entry)
                self.slots.append((self.input_of[id(entry.slot.tensor)], _captured(entry)))

    def _add_input(self, entry: Entry) -> None:
        self.input_of[id(entry.handle)] = len(self.nodes)
        self.nodes.append(entry.parameter)

    def _source(self, node: Node, is_leaf: bool | None) -> Source:
        """Where the value of ``node`` comes from at a call. is_leaf: it is bound to a tensor that collects a
        gradient."""
        number = self.placeholder_of.get(id(node))
        if number is not None:
            return "input", number
        if node.buffer is not None and not node.rg:
            return "node", _without_trace(node)
        output = self.output_of.get(id(node))
        if output is None:
            output = self.output_of[id(node)] = len(self.outputs)
            self.outputs.append(node)
        if is_leaf:
            self.leaf_outputs.add(output)
        return "value", output

    def _results(self, leaves: list[Any]) -> list[Source]:
        results: list[Source] = []
        known: dict[int, int] = {}
        for position, leaf in enumerate(leaves):
            if isinstance(leaf, np.ndarray):
                results.append(("array", leaf.copy()))
            elif not isinstance(leaf, Tensor):
                if not isinstance(leaf, _VALUES) and not any(leaf is given for given in self.arguments.given()):
                    raise TraceError(
                        f"jit: the function returned a {type(leaf).__name__}, which would hold what this one call made "
                        "of it at every later call; return tensors, numbers, strings, None, or lists, tuples, dicts, "
                        "dataclasses and modules of these"
                    )
                results.append(("static", leaf))
            elif id(leaf) in self.trace.entries:
                results.append(("tensor", self.input_of[id(leaf)]))
            elif id(leaf) in known:
                results.append(("again", known[id(leaf)]))
            else:
                known[id(leaf)] = position
                results.append(self._source(leaf._node, leaf._requires_grad))
        return results

    def _gradient(self, slot: GradSlot) -> tuple[int, Source]:
        position = self.input_of[id(slot.tensor)]
        value = slot.value
        if value is None:
            return position, ("static", None)
        if id(value) in self.trace.entries:
            return position, ("tensor", self.input_of[id(value)])
        return position, self._source(value._node, value._requires_grad)

    # -- the variant -------------------------------------------------------------------------------------------------

    def variant(self, modules: tuple[tuple[int, int, int], ...], surroundings: Surroundings) -> Variant:
        """Compile."""
        differentiable = [
            i for i, node in enumerate(self.outputs)
            if node.rg and i not in self.leaf_outputs and id(node) not in self._consumed()
        ]
        kept = self._recipe_inputs(differentiable)
        updated = {
            self.input_of[id(entry.handle)]
            for entry in self.trace.rebound()
            if getattr(entry.handle, "_requires_grad", False)
        }
        lost = frozenset(k for k, i in enumerate(differentiable) if not updated.isdisjoint(kept[i]))
        needed = sorted(set().union(*(kept[i] for k, i in enumerate(differentiable) if k not in lost)))
        recipe = None
        if differentiable:
            recipe = Recipe(
                [self.nodes[i] for i in needed], needed, [self.outputs[i] for i in differentiable], lost
            )
        lineage = {output: k for k, output in enumerate(differentiable)}
        specs = tuple(
            Spec(
                node.shape, node.dtype, node.weak, i in lineage or i in self.leaf_outputs, i in self.leaf_outputs,
                lineage.get(i, -1), node.site,
            )
            for i, node in enumerate(self.outputs)
        )
        given_away = {source for kind, source in [*self.results, *(s for _, s in self.gradients)] if kind == "input"}
        given_away |= {source for _, (kind, source) in self.rebound if kind == "input"}
        reusable = frozenset(
            i for i, (kind, output) in self.rebound
            if kind == "value" and i not in needed and i not in given_away and _fits(self.nodes[i], specs[output])
        )
        plan = Plan(
            self._argument_plan(set(needed) | given_away),
            tuple(self.captured),
            tuple(self.slots),
            tuple(self._empty_slots()),
            tuple((i, ref(self.arguments.leaves[i])) for i in sorted(self.trace.pinned)),
            specs,
            tuple(self.rebound),
            tuple(self.gradients),
            tuple(self.results),
            self.structure,
            modules,
            reusable,
            self._ranges(),
        )
        program: Any = None
        if self.outputs and get_backend() == "reference":
            program = ReferenceProgram(self.nodes, self.outputs)
        elif self.outputs:
            from ..compiler.program import compile_program

            # What debug_nans may have to compute again must not have been overwritten.
            donate = sorted(reusable) if looks_for() is None else []
            program = compile_program(self.nodes, self.outputs, donate=donate)
        kinds = looks_for()
        if program is not None and kinds is not None:
            program = CheckedProgram(program, self.nodes, self.outputs, self._names(), kinds)
        variant = Variant(program, plan, Guards(self.trace), surroundings, recipe)
        variant.nodes = len(topological_order(self.outputs))
        return variant

    def _names(self) -> list[str]:
        """What a message calls the inputs."""
        names = [f"leaf {position} of the jitted function's arguments" for position, _ in self.arguments.inputs]
        names += ["a tensor that the jitted function reads from outside"] * len(self.captured)
        return names + ["a .grad that the jitted function reads"] * len(self.slots)

    def _argument_plan(self, kept: set[int]) -> tuple[tuple[int, str], ...] | None:
        inputs = self.arguments.inputs
        if inputs == [(i, "tensor") for i in range(len(self.arguments.leaves))]:
            return None
        # An array's memory belongs to the caller, who may write to it later.
        return tuple(
            (position, "copied array" if kind == "array" and i in kept else kind)
            for i, (position, kind) in enumerate(inputs)
        )

    def _ranges(self) -> tuple[tuple[int, int, int], ...]:
        """The values that Python integers among the arguments may have where they meet a narrower integer dtype, or are
        the exponent of an integer."""
        leaf_of = {
            id(node): position
            for node, (position, kind) in zip(self.nodes, self.arguments.inputs)
            if kind == "number" and node.dtype is dtypes.int64
        }
        if not leaf_of:
            return ()
        ranges: dict[int, tuple[int, int]] = {}

        def narrow(node: Node, low: int, high: int) -> None:
            while node.op in (CAST, BROADCAST_TO):
                node = node.inputs[0]
            position = leaf_of.get(id(node))
            if position is not None:
                before = ranges.get(position, (low, high))
                ranges[position] = max(before[0], low), min(before[1], high)

        for node in topological_order(self.outputs):
            if node.op is CAST and node.dtype.kind in "iu" and node.inputs[0].weak:
                narrow(node.inputs[0], *dtypes.integer_limits(node.dtype))
            elif node.op is POW and node.dtype.kind in "iu":
                narrow(node.inputs[1], 0, dtypes.integer_limits(node.dtype)[1])
        return tuple((position, low, high) for position, (low, high) in ranges.items())

    def _empty_slots(self) -> list[int]:
        return [
            self.input_of[id(slot.tensor)] for slot in self.trace.grads.values() if slot.is_read and slot.before is None
        ]

    def _consumed(self) -> set[int]:
        """Nodes through which no derivative is asked any more: ``backward`` inside used them, or what they depend
        on."""
        consumed = self.trace.consumed
        if not consumed:
            return set()
        found: set[int] = set()
        for node in topological_order(self.outputs):
            if id(node) in consumed or any(id(operand) in found for operand in node.inputs):
                found.add(id(node))
        return found

    def _recipe_inputs(self, outputs: list[int]) -> dict[int, set[int]]:
        """For each of ``outputs``, the inputs that it depends on."""
        result = {}
        for output in outputs:
            below = topological_order([self.outputs[output]])
            result[output] = {self.placeholder_of[id(node)] for node in below if id(node) in self.placeholder_of}
        return result


def _captured(entry: Entry) -> Captured:
    node = entry.parameter
    return Captured(ref(entry.handle), node.shape, node.dtype, node.weak, node.rg)


def _fits(before: Node, after: Spec) -> bool:
    """Whether a value of the type ``after`` can take the place of ``before`` without anyone noticing."""
    return (
        before.shape == after.shape
        and before.dtype is after.dtype
        and before.weak is after.weak
        and before.rg is after.rg
        and after.lineage < 0
    )


def _without_trace(node: Node) -> Node:
    """A value that was given inside the function, as every call returns it."""
    return evaluated_leaf(node.shape, node.dtype, node.weak, node.buffer, False, node.site, DATA)
