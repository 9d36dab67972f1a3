"""Functions of many nodes, built again from what their first call has built.

A softmax or a cross entropy is a few dozen nodes, each of which its definition makes by a function with checks and
rules of its own: 5 to 10 us a node in a program without ``jit``. But which nodes they are depends on the types of the
operands alone. So the first call for some types is recorded on placeholders, and the next ones make the same nodes over
their own operands, at 1 us a node. The graph is the same, node for node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any, ParamSpec

from .. import dtypes
from ..errors import PullbackError
from ..graph.node import Node, hooks_of, topological_order
from ..graph.state import Site, state
from ..ops import leaf
from ..runtime.evaluate import get_matmul_precision
from ..tensor import Tensor

_MAX_RECIPES = 256  # of one function

_P = ParamSpec("_P")

# How to make a node: op, what picks its inputs from the values so far (None: it has none), whether that is one, and the
# attributes, shape, dtype and weak of the node.
Step = tuple[Any, Callable[[list[Node]], Any] | None, bool, tuple[Any, ...], tuple[int, ...], Any, bool]


def composite(function: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
    """The ``function``, which must be pure: its result depends on its arguments, the default dtype and the precision
    of products, and the nodes that it makes depend on the types of tensors among these, not on their values. It draws
    no random numbers.

    Whatever is not plain (arrays, lists, Python numbers that ``jit`` traces) goes to the function itself, and so do
    calls that raise.
    """
    recipes: dict[Any, tuple[Step, ...] | None] = {}

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        nodes: list[Node] = []
        key: list[Any] = [dtypes.get_default_dtype(), state.grad_enabled, get_matmul_precision()]
        for x in args:
            if not _describe(x, key, nodes):
                return function(*args, **kwargs)
        for name, x in kwargs.items():
            key.append(name)
            if not _describe(x, key, nodes):
                return function(*args, **kwargs)
        types = tuple(key)
        try:
            steps = recipes[types]
        except KeyError:
            if len(recipes) >= _MAX_RECIPES:
                recipes.clear()
            steps = recipes[types] = _record(function, args, kwargs)
        if steps is None:
            return function(*args, **kwargs)
        return Tensor(_build(steps, nodes))

    return call


def _describe(x: Any, key: list[Any], nodes: list[Node]) -> bool:
    """Add to ``key`` what the graph may depend on, and to ``nodes`` the node of a tensor; False if it is not plain."""
    kind = x.__class__
    if kind is Tensor:
        node = x.node
        if node.weak and state.trace is not None:  # which may stand for a number in double precision
            return False
        nodes.append(node)
        key.append(node.shape)
        key.append(node.dtype)
        key.append(node.weak)
    elif kind is float or kind is tuple:
        key.append(repr(x))  # which tells 0.0 from -0.0, and (1,) from (True,)
        if kind is tuple and not all(e.__class__ is int for e in x):
            return False
    elif x is None or kind is int or kind is str or kind is bool:
        key.append(kind)
        key.append(x)
    else:
        return False
    return True


def _build(steps: tuple[Step, ...], values: list[Node]) -> Node:
    site: Site | None = None
    node = values[0]
    for op, pick, is_single, attrs, shape, dtype, weak in steps:
        if pick is None:
            inputs: tuple[Node, ...] = ()
        else:
            inputs = (pick(values),) if is_single else pick(values)
        node = Node(op, inputs, attrs, shape, dtype, weak, None, site)
        site = node.site
        values.append(node)
    return node


def _record(function: Callable[..., Tensor], args: Any, kwargs: Any) -> tuple[Step, ...] | None:
    """The steps that lead from the tensors among the arguments to the result; None if they cannot be repeated."""
    placeholders: list[Node] = []

    def stand_in(x: Any) -> Any:
        if x.__class__ is not Tensor:
            return x
        node = x.node
        placeholders.append(leaf.parameter(len(placeholders), node.shape, node.dtype, node.weak))
        return Tensor(placeholders[-1])

    before = state.site
    marker: Site = (_record.__code__, 0)
    state.site = marker
    try:
        # A list: of a map, Python would take the elements after those of the keyword arguments.
        result = function(*[stand_in(x) for x in args], **{name: stand_in(x) for name, x in kwargs.items()})
    except (PullbackError, ArithmeticError, LookupError, TypeError, ValueError):
        return None  # the call itself raises it again, in its own terms
    finally:
        state.site = before
    if result.__class__ is not Tensor or result._requires_grad or not placeholders:
        return None
    index = {node: position for position, node in enumerate(placeholders)}
    order = topological_order([result.node], lambda node: node in index or node.buffer is not None)
    steps: list[Step] = []
    for node in order:
        if node in index:
            continue
        # Nothing from outside, nothing that holds more than its attributes say.
        if node.site is not marker or node.buffer is not None or node.op.kind == "custom" or hooks_of(node):
            return None
        if node.constant is state.grad_enabled or node.rg or node.op is leaf.PARAMETER:
            return None
        pick = itemgetter(*[index[operand] for operand in node.inputs]) if node.inputs else None
        steps.append((node.op, pick, len(node.inputs) == 1, node.attrs, node.shape, node.dtype, node.weak))
        index[node] = len(placeholders) + len(steps) - 1
    return tuple(steps) or None
