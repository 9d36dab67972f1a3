"""checkpoint: compute again in the backward pass instead of keeping.

The forward pass of a checkpointed function leaves nothing behind but its arguments, its results and what a policy
keeps. Its derivative is that of the same graph built once more on ``barrier`` nodes of the arguments: the compiler can
neither share these values with the forward pass nor begin with them before the cotangent is there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from weakref import ReferenceType, ref

from ..errors import ArgumentError, GradientError
from ..graph.graph import lineage, remake
from ..graph.handle import is_named
from ..graph.node import Node, hooks_of, topological_order
from ..graph.state import state
from ..graph.tracking import Scope, is_tracked, no_grad
from ..ops import movement
from ..ops.custom import NAMED, Rule, custom_call, custom_result, named, saved
from ..ops.elementwise import alias, barrier
from ..ops.leaf import CONSTANT, IOTA, parameter
from ..ops.random import THREEFRY
from ..tensor import Tensor
from . import pytree
from .backward import chained
from .batching import hook_error
from .derivative import Hook, gradients_of, tangents_of
from .primals import ARRAYS, Function, as_array_node, kind_of
from .rules import BatchedRule, own_sites

Policy = Collection[str] | Callable[[str], bool] | None


SMALL = 16  # elements of what may be copied without a thought: the key of a random number


class _Body:
    """The graph of one call as a function of placeholders: the arguments, then what it reads besides.

    again: positions of the placeholders behind which everything is computed again.
    order: its nodes, operands before users.   kept: those of them that the policy keeps.
    hooks: gradient hooks that the function registered inside, by node.
    """

    def __init__(
        self,
        placeholders: list[Node],
        again: set[int],
        order: list[Node],
        outputs: list[Node],
        kept: list[Node],
        hooks: dict[Node, Sequence[Any]],
    ) -> None:
        self.placeholders = placeholders
        self.again = again
        self.order = order
        self.outputs = outputs
        self.kept = kept
        self.hooks = hooks

    def forward(self, inputs: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Outputs and kept values, as constants: a derivative does not go through them."""
        with no_grad():
            new = _replay(self.order, dict(zip(self.placeholders, inputs)), {})
        return [new[node] for node in self.outputs], [new[node] for node in self.kept]

    def recompute(self, inputs: Sequence[Node], kept: Sequence[Node]) -> tuple[list[Node], dict[int, Hook]]:
        """Outputs computed once more, with the values that were kept, and the hooks by ``id`` of a new node."""
        new = _replay(self.order, dict(zip(self.placeholders, inputs)), dict(zip(self.kept, kept)))
        hooks = {id(new[node]): chained(functions) for node, functions in self.hooks.items()}
        return [new[node] for node in self.outputs], hooks


def _replay(order: list[Node], new: dict[Node, Node], kept: dict[Node, Node]) -> dict[Node, Node]:
    """The nodes of ``order`` made anew, by the old ones."""
    for node in order:
        made = remake(node, tuple([new.get(operand, operand) for operand in node.inputs]))
        new[node] = saved(kept[node], made) if node in kept else made
    return new


class _Recompute(Rule):
    """The derivative of a checkpointed call: of its body, computed again."""

    def __init__(self, body: _Body, hidden: Sequence[ReferenceType[Node]]) -> None:
        self.body = body
        self.hidden = hidden

    def _again(
        self, node: Node, scope: Scope, token: Node | None = None
    ) -> tuple[list[Node], list[Node], dict[int, Hook]]:
        """Leaves of ``scope`` for what the body reads, its outputs computed from them, and its hooks.

        token: what the arguments have to wait for.
        """
        count = len(self.body.placeholders)
        before = state.grad_enabled
        state.grad_enabled = True
        try:
            leaves = []
            for index, value in enumerate(node.inputs[:count]):
                leaf = alias(barrier(value, token) if token is not None and index in self.body.again else value)
                leaf.scope = scope
                leaves.append(leaf)
            return leaves, *self.body.recompute(leaves, node.inputs[count:])
        finally:
            state.grad_enabled = before

    def cotangents(self, node: Node, cotangents: Mapping[int, Node], hooked: bool) -> Sequence[Node | None]:
        arrived = [cotangents[key] for key in sorted(cotangents)]
        with Scope() as scope:
            leaves, outputs, hooks = self._again(node, scope, _token(arrived))
            arrived_at = [outputs[key] for key in sorted(cotangents)]
            with own_sites():
                found = gradients_of(arrived_at, arrived, leaves, scope, hooks if hooked else None)
        return [*found, *[None] * (len(node.inputs) - len(leaves))]

    def tangents(self, node: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        with Scope() as scope:
            leaves, outputs, _ = self._again(node, scope)
            pairs = [(leaf, tangent) for leaf, tangent in zip(leaves, tangents) if tangent is not None]
            with own_sites():
                return tangents_of(outputs, [leaf for leaf, _ in pairs], [tangent for _, tangent in pairs], scope)

    def batched(self, batched: tuple[bool, ...], size: int, node: Node) -> Rule:
        if self.body.hooks:
            raise hook_error()
        return BatchedRule(self, node, batched, size)


def _token(cotangents: Sequence[Node]) -> Node | None:
    """One element of a cotangent, known when the backward pass has come this far."""
    for node in cotangents:
        if node.size:
            corner = movement.slice(node, (0,) * node.ndim, (1,) * node.ndim, (1,) * node.ndim)
            return movement.reshape(corner, ())
    return None


def checkpoint(function: Function, policy: Policy = None) -> Function:
    """``function``, whose intermediate values are computed again for a derivative instead of being kept.

    Args:
        policy: which named values (see :func:`checkpoint_name`) are kept nevertheless: a collection of names, or a
            function from a name to bool. None keeps nothing.

    A derivative costs one more forward pass of the function and needs memory for its arguments and results only; what
    the function reads besides its arguments, the parameters of a module, gets its gradient as well. The function is
    called once: random numbers that it draws are the same both times.
    """
    if not callable(function):
        raise ArgumentError(f"checkpoint: expected a function, got {kind_of(function)}")
    keeps = _policy(policy)

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return _call(function, keeps, args, kwargs)

    return wrapped


def _policy(policy: Policy) -> Callable[[str], bool]:
    if policy is None:
        return lambda name: False
    if isinstance(policy, str):
        raise ArgumentError(f"checkpoint: policy={policy!r} is a string; give a collection of names: [{policy!r}]")
    if callable(policy):
        return policy
    if not isinstance(policy, Collection):
        raise ArgumentError(f"checkpoint: policy must be a collection of names, a function of a name, or None, got "
                            f"{kind_of(policy)}")
    names = frozenset(policy)
    return lambda name: name in names


def checkpoint_name(x: Any, name: str) -> Tensor:
    """``x`` under a name by which a policy of :func:`checkpoint` can keep its value."""
    if not isinstance(name, str):
        raise ArgumentError(f"checkpoint_name: a name must be a string, got {name!r}")
    return Tensor(named(as_array_node(x), name))


def _call(function: Function, keeps: Callable[[str], bool], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves, structure = pytree.flatten((args, kwargs))
    # A tensor that is given twice is one tensor inside as well: x += 1 changes both.
    handles = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}.values())
    arguments = [handle.node for handle in handles]
    names = [alias(node) for node in arguments]
    tensors = [Tensor(name) for name in names]
    inner = {id(handle): tensor for handle, tensor in zip(handles, tensors)}
    new_args, new_kwargs = pytree.unflatten(structure, [inner.get(id(leaf), leaf) for leaf in leaves])
    result = function(*new_args, **new_kwargs)
    for tensor, handle, name in zip(tensors, handles, names):
        if tensor.node is not name:  # the function rebound its argument: x += 1
            handle.rebind(tensor.node)
    results, result_structure = pytree.flatten(result)
    nodes = []
    for index, leaf in enumerate(results):
        if not isinstance(leaf, ARRAYS):
            path = pytree.leaves_with_paths(result)[index][0]
            raise GradientError(f"checkpoint: the function returned {kind_of(leaf)} at result{path}; expected tensors")
        nodes.append(as_array_node(leaf))
    floats = [i for i, node in enumerate(nodes) if node.dtype.kind == "f" and is_tracked(node)]
    members = _members([nodes[i] for i in floats], names)
    inside = {id(node) for node in members}
    floats = [i for i in floats if id(nodes[i]) in inside]
    if not floats:
        return result
    body, outer = _body(members, [nodes[i] for i in floats], names, keeps)
    inputs = [*arguments, *outer]
    values, kept = body.forward(inputs)
    hidden = [ref(node) for node in (*names, *members) if is_named(node)]
    call = custom_call([*inputs, *kept], _Recompute(body, hidden))
    for position, index in enumerate(floats):
        nodes[index] = custom_result(values[position], call, position)
    return pytree.unflatten(result_structure, [Tensor(node) for node in nodes])


def _members(outputs: list[Node], names: list[Node]) -> list[Node]:
    """The nodes below ``outputs`` that are to be computed again: those that depend on an argument, or on random numbers
    that have not been drawn yet (their keys are smaller than they are)."""
    given = {id(node) for node in names}
    inside = set(given)
    members = []
    for node in topological_order(outputs, lambda node: id(node) in given, lineage):
        if id(node) in given or (node.constant and node.rg):
            continue  # an argument, or a leaf made inside: it collects a gradient of its own, so it stays itself
        drawn = node.op is THREEFRY and node.buffer is None
        if drawn or any(id(operand) in inside for operand in node.inputs):
            inside.add(id(node))
            members.append(node)
    return members


def _body(
    members: list[Node], outputs: list[Node], names: list[Node], keeps: Callable[[str], bool]
) -> tuple[_Body, list[Node]]:
    """``members`` as a function of placeholders, and the nodes for those placeholders that are no arguments."""
    inside = {id(node) for node in (*names, *members)}
    outer: dict[int, Node] = {}
    for node in members:
        for operand in node.inputs:
            if id(operand) not in inside and operand.op not in (CONSTANT, IOTA):
                outer.setdefault(id(operand), operand)
    old = [*names, *outer.values()]
    placeholders = [parameter(i, node.shape, node.dtype, node.weak) for i, node in enumerate(old)]
    again = {i for i, node in enumerate(old) if i < len(names) or node.size <= SMALL}
    new = _replay(members, dict(zip(old, placeholders)), {})
    kept = [new[node] for node in members if node.op is NAMED and keeps(node.attrs[0])]
    hooks = {new[node]: hooks_of(node) for node in (*names, *members) if hooks_of(node)}
    body = _Body(placeholders, again, [new[node] for node in members], [new[node] for node in outputs], kept, hooks)
    return body, list(outer.values())
