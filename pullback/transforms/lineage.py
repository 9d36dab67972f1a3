"""The history of what a compiled call returned, rebuilt only if a derivative is asked through it.

A call of a jitted function gives evaluated values. If one depends on a tensor that requires a gradient, it remembers
the call instead of a graph; the first derivative that comes by splices the recorded graph onto the nodes that were the
call's inputs. Intermediate values are then computed again, as ``checkpoint`` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any
from weakref import ref

from ..dtypes import DType
from ..errors import CompileError, GradientError
from ..graph.graph import substitute
from ..graph.node import Node, hooks_of
from ..graph.state import Site, describe_site, open_after_fork, state
from ..ops import movement
from ..ops.leaf import constant
from ..ops.record import NoDerivative, Op

_lock = open_after_fork(threading.RLock())


def _no_rule(*operands: Any) -> Any:
    raise CompileError("traced_output: it is always evaluated and is replaced before a derivative is taken")


def _batch(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    return movement.broadcast_to(node, (size, *node.shape))


TRACED_OUTPUT = Op(
    "traced_output", "leaf", _no_rule, _no_rule, NoDerivative("its history was not rebuilt"), _batch, "data", 0.0,
    ("call", "index"), "an output of a jitted call that may be differentiated",
)


class Recipe:
    """The recorded graph of the outputs of one variant that may be differentiated.

    parameters, outputs: nodes of the trace.   positions: of the parameters among the inputs of a call.
    lost: positions of outputs that depend on a tensor which the same call updates in place.
    pick: gives the inputs at ``positions``.
    """

    __slots__ = ("lost", "outputs", "parameters", "pick", "positions")

    def __init__(
        self, parameters: Sequence[Node], positions: Sequence[int], outputs: Sequence[Node], lost: frozenset[int]
    ) -> None:
        self.parameters = tuple(parameters)
        self.positions = tuple(positions)
        self.pick: Callable[[Sequence[Any]], Sequence[Any]] = (
            itemgetter(*positions) if len(positions) > 1 else lambda inputs: [inputs[k] for k in positions]
        )
        self.outputs = tuple(outputs)
        self.lost = lost


class Call:
    """One call: the nodes that were its inputs, and (weakly) the nodes that are its outputs."""

    __slots__ = ("_inputs", "_outputs", "_recipe")

    def __init__(self, recipe: Recipe, inputs: Sequence[Any]) -> None:
        self._recipe = recipe
        self._inputs: Sequence[Any] | None = recipe.pick(inputs)
        self._outputs: list[Any] = [None] * len(recipe.outputs)

    def bear(self, index: int, node: Node) -> None:
        """Make the evaluated ``node`` output ``index`` of this call."""
        node.op = TRACED_OUTPUT
        node.attrs = (self, index)
        self._outputs[index] = ref(node)

    def expand(self, index: int) -> None:
        """Give every output its op and inputs in place."""
        recipe = self._recipe
        with _lock:
            if self._inputs is None:
                return
            if index in recipe.lost:
                site = describe_site(recipe.outputs[index].site)
                raise GradientError(
                    f"the value computed at {site} came from a jitted function that also updated a tensor which it "
                    "depends on, in place; take the gradient inside the function, or return the new tensors instead of "
                    "assigning"
                )
            replacements = {
                traced: given if isinstance(given, Node) else constant(given, traced.dtype, weak=True)
                for traced, given in zip(recipe.parameters, self._inputs)
            }
            for traced, given in zip(recipe.parameters, self._inputs):
                if hooks_of(traced) and isinstance(given, Node):
                    given.hooks = [*hooks_of(given), *hooks_of(traced)]
            alive: list[tuple[Node, Node]] = []
            for position, (traced, reference) in enumerate(zip(recipe.outputs, self._outputs)):
                node = None if reference is None else reference()
                if node is not None and position not in recipe.lost:
                    replacements[traced] = node
                    alive.append((traced, node))
            trace, grad_enabled, site_before = state.trace, state.grad_enabled, state.site
            state.trace, state.grad_enabled = None, True
            try:
                flat = substitute([operand for traced, _ in alive for operand in traced.inputs], replacements)
            finally:
                state.trace, state.grad_enabled, state.site = trace, grad_enabled, site_before
            position = 0
            for traced, node in alive:
                count = len(traced.inputs)
                node.inputs = tuple(flat[position : position + count])
                node.attrs = traced.attrs
                node.op = traced.op
                if hooks_of(traced):
                    node.hooks = [*hooks_of(traced), *hooks_of(node)]
                position += count
            self._inputs = None


def evaluated_leaf(
    shape: tuple[int, ...], dtype: DType, weak: bool, buffer: Any, rg: bool, site: Site, op: Op
) -> Node:
    """An evaluated leaf, made without the checks of ``Node``'s constructor."""
    node = Node.__new__(Node)
    node.op = op
    node.inputs = ()
    node.attrs = ()
    node.shape = shape
    node.dtype = dtype
    node.weak = weak
    node.buffer = buffer
    node.handles = None
    node.trace = None
    node.epoch = 0
    node.constant = False
    node.rg = rg
    node.scope = None
    node.site = site
    return node
