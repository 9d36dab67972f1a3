"""The derivative engine: forward and reverse mode from the ops' declarations (see ``ops/record.py``).

Both modes read nodes and write nodes, so a derivative can be differentiated, batched and compiled like any graph.
Neither recurses, and both take time linear in the number of nodes between inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..errors import GradientError
from ..graph.graph import lineage
from ..graph.node import Node, bind
from ..graph.state import describe_site, state
from ..graph.tracking import Scope, is_tracked, open_scope
from ..ops.elementwise import (
    add,
    cast,
    isfinite,
    multiply,
    negative,
    stop_gradient,
    strong_product,
    where,
)
from ..ops.leaf import constant, full, parameter, zeros_like
from ..ops.movement import broadcast_to, uniform_value
from ..ops.record import CustomCall, CustomResult, Jvp, Limit, Linear, NoDerivative, Partials
from ..ops.reduction import sum_to
from ..shapes import broadcast_shapes

Number = bool | int | float
Hook = Callable[[Node], Node]


def gradients_of(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    inputs: Sequence[Node],
    scope: Scope | None = None,
    hooks: dict[int, Hook] | None = None,
) -> list[Node | None]:
    """Reverse mode: for each input, the sum over outputs of cotangent times derivative; None where no path leads to it.

    cotangents: one for each output, of its shape and dtype.
    scope: follow only nodes that depend on the inputs of this scope; else every tracked node is followed.
    hooks: by ``id`` of a node, what is applied to that node's cotangent once it is complete.
    Raises GradientError where a path leads through an op without a derivative.
    """
    order, needed = _paths(outputs, inputs, scope)
    if not state.grad_enabled and _limits(order):
        return _tracked(lambda: gradients_of(outputs, cotangents, inputs, scope, hooks))
    collected: dict[Node, Any] = {}  # a custom call collects one cotangent for each of its results, in a dict
    # What limits add goes its own way: were limits taken of it as well, the graph would grow exponentially in their
    # number, and it matters only where the results of two ops in a row coincide.
    added: dict[Node, Any] = {}
    for output, cotangent in zip(outputs, cotangents):
        if output in needed:
            _accumulate(collected, output, cotangent)
    wanted = set(inputs)
    result: dict[Node, Node] = {}
    site = state.site
    try:
        for node in reversed(order):
            cotangent_: Any = collected.pop(node, None)
            addition: Any = added.pop(node, None) if added else None
            if cotangent_ is None and addition is None:
                continue
            if hooks and id(node) in hooks:
                cotangent_, addition = hooks[id(node)](_sum(cotangent_, addition)), None
            if node in wanted:
                result[node] = cotangent_ if addition is None else _sum(cotangent_, addition)
            if node.constant or not node.inputs:
                continue
            if site is None:
                # What is built carries the user's line, and that it is part of this op's derivative.
                state.site = (*node.site, node.op.name)
            if cotangent_ is not None:
                _pull(node, cotangent_, needed, collected, hooks is not None)
                derivative = node.op.derivative
                if type(derivative) is Jvp and derivative.limit is not None:
                    positions = [i for i, operand in enumerate(node.inputs) if operand in needed]
                    for fn, (change,) in _moved_apart([cotangent_], node, derivative.limit, order):
                        if change is not None:
                            _transpose_tangent(fn, node, change, positions, added)
            if addition is not None:
                _pull(node, addition, needed, added, hooks is not None)
    finally:
        state.site = site
    return [result.get(node) for node in inputs]


def _pull(node: Node, cotangent: Any, needed: set[Node], collected: dict[Node, Any], hooked: bool) -> None:
    """Add what ``cotangent`` of one node contributes to the cotangents of its operands."""
    operands = node.inputs
    derivative = node.op.derivative
    if type(derivative) is Partials:
        for operand, slope in zip(operands, derivative.fn(node, *operands)):
            if slope is None or operand not in needed:
                continue
            contribution = _scale(cotangent, slope() if callable(slope) else slope)
            if contribution.shape != node.shape:
                contribution = broadcast_to(contribution, node.shape)
            if contribution.shape != operand.shape:
                contribution = sum_to(contribution, operand.shape)
            _accumulate(collected, operand, contribution)
    elif type(derivative) is Linear:
        for index in derivative.inputs or range(len(operands)):
            operand = operands[index]
            if operand in needed:
                _accumulate(collected, operand, derivative.transpose(node, cotangent, index))
        if derivative.others is not None:
            positions = [i for i, x in enumerate(operands) if i not in derivative.inputs and x in needed]
            _transpose_tangent(derivative.others, node, cotangent, positions, collected)
    elif type(derivative) is Jvp:
        positions = [i for i, operand in enumerate(operands) if operand in needed]
        _transpose_tangent(derivative.fn, node, cotangent, positions, collected)
    elif type(derivative) is CustomResult:
        if operands[1] in needed:
            results = collected.setdefault(operands[1], {})
            (index,) = node.attrs
            results[index] = add(results[index], cotangent) if index in results else cotangent
    elif type(derivative) is CustomCall:
        found = node.attrs[0].cotangents(node, cotangent, hooked)
        for operand, contribution in zip(operands, found):
            if contribution is not None and operand in needed:
                _accumulate(collected, operand, contribution)
    elif type(derivative) is NoDerivative and any(operand in needed for operand in operands):
        raise no_derivative(node)


def tangents_of(
    outputs: Sequence[Node],
    inputs: Sequence[Node],
    tangents: Sequence[Node],
    scope: Scope | None = None,
    with_limits: bool = True,
) -> list[Node | None]:
    """Forward mode: for each output, the sum over inputs of derivative times tangent; None where no path leads to it.

    tangents: one for each input, of its shape and dtype. The inputs are taken as independent of each other.
    scope, errors: as in :func:`gradients_of`.
    with_limits: also what ops leave to a limit (see ``ops.record.Limit``).
    """
    order, _ = _paths(outputs, inputs, scope)
    limits = _limits(order) if with_limits else []
    if limits and not state.grad_enabled:
        return _tracked(lambda: tangents_of(outputs, inputs, tangents, scope))
    known: dict[Node, Any] = {}  # a custom call knows the tangents of all its results
    for node, tangent in zip(inputs, tangents):
        if node.dtype.kind == "f":
            _accumulate(known, node, tangent)
    wanted = set(inputs)
    site = state.site
    try:
        for node in order:
            if node in wanted or node.constant:
                continue
            operands = node.inputs
            given = [known.get(operand) for operand in operands]
            if not any(tangent is not None for tangent in given):
                continue
            if site is None:
                # What is built carries the user's line, and that it is part of this op's derivative.
                state.site = (*node.site, node.op.name)
            if node.op.derivative.__class__ is CustomCall:
                known[node] = node.attrs[0].tangents(node, given)
                continue
            tangent_ = _tangent(node, operands, given)
            if tangent_ is not None:
                known[node] = tangent_
        found = [known.get(node) for node in outputs]
        for node, limit in limits:
            given = [known.get(operand) for operand in node.inputs]
            if node not in wanted and any(tangent is not None for tangent in given):
                def through(fn: Callable[..., Node], node: Node = node, given: Any = tuple(given)) -> list[Node | None]:
                    return tangents_of(outputs, [node], [fn(node, given)], with_limits=False)

                for _, changes in _moved_apart(through, node, limit, order):
                    found = list(map(_sum, found, changes))
    finally:
        state.site = site
    return found


def _limits(order: Sequence[Node]) -> list[tuple[Node, Limit]]:
    """The nodes whose derivative leaves out what a limit gives."""
    hosts = [node for node in order if node.op.kind == "host"]
    pairs = [(node, node.op.derivative.limit) for node in hosts if isinstance(node.op.derivative, Jvp)]
    return [(node, limit) for node, limit in pairs if limit is not None]


def _moved_apart(
    quantities: Sequence[Node | None] | Callable[[Callable[..., Node]], Sequence[Node | None]],
    node: Node,
    limit: Limit,
    order: Sequence[Node],
) -> Iterator[tuple[Callable[..., Node], list[Node | None]]]:
    """For each direction in which the results of ``node`` move apart: what its limit leaves out, as a function of
    tangents, and how ``quantities`` (or those made with this function) change; 0 where the change is not finite."""
    together = [x for x in order if x.op.name in limit.ops and x.inputs[0] is node.inputs[0]]
    for index, directions in enumerate(zip(*[limit.apart(x) for x in together])):
        fn = partial(limit.fn, index=index)
        given = quantities(fn) if callable(quantities) else quantities
        found = iter(tangents_of([x for x in given if x is not None], together, directions, with_limits=False))
        changes = [None if x is None else next(found) for x in given]
        yield fn, [None if x is None else where(isfinite(x), x, 0) for x in changes]


def _tracked(derivative: Callable[[], list[Node | None]]) -> list[Node | None]:
    """``derivative()``, built so that it can be differentiated on the way, though its results are constants."""
    state.grad_enabled = True
    try:
        found = derivative()
    finally:
        state.grad_enabled = False
    return [None if node is None else stop_gradient(node) for node in found]


def _sum(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else add(x, y)


def _tangent(node: Node, operands: tuple[Node, ...], given: list[Any]) -> Node | None:
    """The tangent of one node from those of its operands."""
    derivative = node.op.derivative
    total: Node | None = None
    if type(derivative) is Partials:
        for tangent, partial in zip(given, derivative.fn(node, *operands)):
            if tangent is None or partial is None:
                continue
            value = partial() if callable(partial) else partial
            term = _scale(tangent, value)
            if term.dtype is not node.dtype:
                term = cast(term, node.dtype)
            if uniform_value(term) != 0:
                total = term if total is None else add(total, term)
        if total is not None and total.shape != node.shape:
            total = broadcast_to(total, node.shape)
        return total
    if type(derivative) is Linear:
        positions = derivative.inputs or range(len(operands))
        linear = [index for index in positions if given[index] is not None]
        if derivative.others is not None:
            rest = [None if index in positions else tangent for index, tangent in enumerate(given)]
            if any(tangent is not None for tangent in rest):
                total = derivative.others(node, tuple(rest))
        if not linear:
            return total
        if derivative.joint:
            inputs = list(operands)
            for index in positions:
                tangent = given[index]
                inputs[index] = zeros_like(operands[index]) if tangent is None else tangent
            return bind(node.op, tuple(inputs), node.attrs)
        for index in linear:
            inputs = list(operands)
            inputs[index] = given[index]
            term = bind(node.op, tuple(inputs), node.attrs)
            total = term if total is None else add(total, term)
        return total
    if type(derivative) is Jvp:
        return derivative.fn(node, tuple(given))
    if type(derivative) is CustomResult:
        return given[1][node.attrs[0]] if given[1] is not None else None
    if type(derivative) is NoDerivative and not derivative.zero:
        raise no_derivative(node)
    return None


def transpose_linear(
    function: Callable[[tuple[Node, ...]], Sequence[Node | None]],
    like: Sequence[Node],
    cotangents: Sequence[Node | None],
) -> list[Node | None]:
    """Cotangents of the arguments of a linear ``function``: its transpose, applied to ``cotangents`` of its results.

    The function is called once with placeholders of the shapes and dtypes of ``like``. Being linear, its derivative
    is itself, so reverse mode over what it builds gives the transpose, in which no placeholder is left.
    """
    grad_enabled = state.grad_enabled
    with Scope() as scope:
        state.grad_enabled = True
        try:
            placeholders = []
            for index, node in enumerate(like):
                placeholder = parameter(index, node.shape, node.dtype)
                placeholder.scope = scope
                placeholders.append(placeholder)
            results = function(tuple(placeholders))
        finally:
            state.grad_enabled = grad_enabled
        pairs = [(r, c) for r, c in zip(results, cotangents) if r is not None and c is not None]
        return gradients_of([r for r, _ in pairs], [c for _, c in pairs], placeholders, scope)


def _transpose_tangent(
    rule: Callable[..., Node | None], node: Node, cotangent: Node, positions: list[int], collected: dict[Node, Node]
) -> None:
    """Add to ``collected`` the cotangents of the operands at ``positions``, in whose tangents ``rule`` is linear."""
    if not positions:
        return
    count = len(node.inputs)

    def tangent(placeholders: tuple[Node, ...]) -> list[Node | None]:
        given: list[Node | None] = [None] * count
        for position, placeholder in zip(positions, placeholders):
            given[position] = placeholder
        return [rule(node, tuple(given))]

    operands = [node.inputs[position] for position in positions]
    for operand, transposed in zip(operands, transpose_linear(tangent, operands, [cotangent])):
        if transposed is not None:
            _accumulate(collected, operand, transposed)


def _paths(outputs: Sequence[Node], inputs: Sequence[Node], scope: Scope | None) -> tuple[list[Node], set[Node]]:
    """The nodes on a differentiable path from an input to an output, inputs before users; and the same as a set."""
    needed = set(inputs)
    order: list[Node] = []
    seen: set[Node] = set()
    # A node, or, once its operands are done, a node and its operands.
    stack: list[Any] = [*reversed(outputs)]
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            node, operands = node
            if node not in needed:
                for operand in operands:
                    if operand in needed:
                        needed.add(node)
                        break
                else:
                    continue
            order.append(node)
        elif node not in seen:
            seen.add(node)
            operands = followed(node, scope)
            if operands:
                stack.append((node, operands))
                stack += operands[::-1]
            elif node in needed:
                order.append(node)
    return order, needed


def followed(node: Node, scope: Scope | None) -> tuple[Node, ...]:
    """The operands through which a derivative of ``node`` may lead."""
    if node.constant or node.dtype.kind != "f":
        return ()
    if scope is None:
        if not node.rg and open_scope(node.scope) is None:
            return ()
    elif node.scope is not scope and open_scope(node.scope) is not scope:
        return ()
    operands = lineage(node)
    derivative = node.op.derivative
    kind = derivative.__class__
    if kind is CustomResult:
        return operands[1:]  # not through the computation of the value
    return () if kind is NoDerivative and derivative.zero else operands  # type: ignore[union-attr]


def _accumulate(collected: dict[Node, Node], node: Node, contribution: Node) -> None:
    if contribution.dtype is not node.dtype:
        contribution = cast(contribution, node.dtype)
    if uniform_value(contribution) == 0:
        return
    before = collected.get(node)
    collected[node] = contribution if before is None else add(before, contribution)


def _scale(factor: Node, partial: Node | Number) -> Node:
    """A cotangent or tangent times a partial, a zero of either winning; ones and products of numbers cost nothing at
    run time. The result broadcasts to the shape of the product.

    What is infinite in one mode is a partial and in the other the product of those before, and the zero of a mask (or
    of the slope of clip or maximum) may be either: only with zeros strong on both sides do the modes agree.
    """
    number = uniform_value(partial) if isinstance(partial, Node) else partial
    uniform = uniform_value(factor)
    if number is not None and math.isfinite(number):
        # Finite, it needs no strong zeros.
        if number == 1:
            return factor
        if number == 0:
            return full(factor.shape, 0, factor.dtype)
        if uniform is not None:
            return full(factor.shape, uniform * number, factor.dtype)
        if number == -1:
            return negative(factor)
        # The same node, where there is one: it is one argument of the kernel.
        is_shared = isinstance(partial, Node) and partial.shape == () and partial.dtype is factor.dtype
        return multiply(factor, partial if is_shared else constant(number, factor.dtype))
    if not isinstance(partial, Node):
        partial = constant(partial, factor.dtype)
    if partial.dtype is not factor.dtype:
        factor = cast(factor, partial.dtype)
    if not uniform:
        return strong_product(factor, partial)
    # A number that is not 0.
    if uniform == 1:
        result = partial
    else:
        result = negative(partial) if uniform == -1 else multiply(partial, constant(uniform, partial.dtype))
    shape = broadcast_shapes(result.shape, factor.shape)
    return result if result.shape == shape else broadcast_to(result, shape)


def no_derivative(node: Node) -> GradientError:
    """The error of an op on the path that has no derivative."""
    why = node.op.derivative.why if isinstance(node.op.derivative, NoDerivative) else "none is declared"
    tracked = [
        f"argument {position} of shape {operand.shape} and dtype {operand.dtype.name}"
        for position, operand in enumerate(node.inputs)
        if operand.dtype.kind == "f" and is_tracked(operand)
    ]
    return GradientError(
        f"{node.op.name} has no derivative: {why} (asked by {' and '.join(tracked) or 'its operands'}, made at "
        f"{describe_site(node.site)}); pb.stop_gradient(x) treats a value as a constant"
    )


def zeros_of(node: Node) -> Node:
    """Zeros of the shape and dtype of ``node``: the derivative of something disconnected."""
    return full(node.shape, 0, node.dtype)


def ones_of(node: Node) -> Node:
    """Ones of the shape and dtype of ``node``."""
    return full(node.shape, 1, node.dtype)
