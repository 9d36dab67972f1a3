"""vmap: one call of a function over a batch, by the ops' batching rules.

The function runs once on placeholders for one element. Its graph is then rewritten, node by node, with a leading batch
axis; what does not depend on a mapped argument stays unbatched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import GradientError, ShapeError, TraceError
from ..graph.node import Node, hooks_of, topological_order
from ..graph.state import state
from ..ops.leaf import parameter
from ..ops.movement import broadcast_to, move_axis
from . import pytree


def batch_nodes(order: Sequence[Node], values: dict[Node, Node], outputs: Sequence[Node], size: int) -> list[Node]:
    """``outputs`` with the placeholders ``values`` replaced by stacks of them along a leading axis of ``size``.

    order: the nodes to rewrite, inputs before users: those that depend on a placeholder, and no other.
    An output that does not depend on a placeholder is returned as it is, without the axis.
    """
    new: dict[int, Node] = {id(placeholder): value for placeholder, value in values.items()}
    site, grad_enabled = state.site, state.grad_enabled
    try:
        for node in order:
            if id(node) in new:
                continue
            inputs = tuple([new.get(id(operand), operand) for operand in node.inputs])
            batched = tuple([id(operand) in new for operand in node.inputs])
            state.site = node.site
            state.grad_enabled = grad_enabled and not node.constant
            result = node.op.batch(node, inputs, batched, size)
            if result.shape != (size, *node.shape):
                raise ShapeError(
                    f"vmap: the batching rule of {node.op.name} gave shape {result.shape} for {(size, *node.shape)}"
                )
            new[id(node)] = result
    finally:
        state.site, state.grad_enabled = site, grad_enabled
    return [new.get(id(node), node) for node in outputs]


def dependents(
    outputs: Sequence[Node], placeholders: Sequence[Node], older: Sequence[Node] = ()
) -> tuple[list[Node], set[int]]:
    """The nodes below ``outputs`` that depend on ``placeholders``, inputs before users, and the ids of these and of the
    placeholders. An evaluated node depends on none; nor does one of ``older``, whose history is not looked at."""
    found = {id(node) for node in placeholders}
    ends = found.union(map(id, older))
    order = []
    for node in topological_order(list(outputs), stop=lambda node: node.buffer is not None or id(node) in ends):
        if node.buffer is None and id(node) not in found:
            for operand in node.inputs:
                if id(operand) in found:
                    found.add(id(node))
                    order.append(node)
                    break
    return order, found


def hook_error() -> GradientError:
    """The error of a gradient hook on a tensor inside of vmap."""
    return GradientError(
        "vmap: register_hook was called inside, on a tensor that stands for one element, where backward() sees the "
        "whole batch; register the hook on what vmap returns"
    )


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """``function`` of one element made a function of a batch.

    Args:
        in_axes: the batch axis of each positional argument: an int (negative counts from the end), None for an argument
            shared by all elements, or a tuple of these, with pytrees of them for arguments that are pytrees. Keyword
            arguments are mapped along axis 0.
        out_axes: where the batch axis goes in the outputs: an int, or a pytree of ints. None: the output does not
            depend on a mapped argument and has no batch axis.

    Random numbers drawn inside are drawn once, the same for every element; pass keys as a mapped argument for others.

    Raises ShapeError if mapped arguments have no such axis or differ in its length, TraceError if the function needs
    the value of a mapped argument (for a branch use ``pb.where`` or ``pb.cond``).
    """

    @functools.wraps(function, updated=())
    def batched(*args: Any, **kwargs: Any) -> Any:
        return _call(function, in_axes, out_axes, args, kwargs)

    return batched


def _call(function: Callable[..., Any], in_axes: Any, out_axes: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    from ..tensor import Tensor

    leaves, structure = pytree.flatten((args, kwargs))
    axes = _argument_axes(in_axes, args, kwargs)
    placeholders: list[Node] = []
    values: dict[Node, Node] = {}
    given: list[Any] = []
    size: int | None = None
    first = -1
    for index, (leaf, axis) in enumerate(zip(leaves, axes)):
        if axis is None:
            given.append(leaf)
            continue
        node = _mapped(leaf, axis, args, kwargs, index)
        position = axis + node.ndim if axis < 0 else axis
        extent = node.shape[position]
        if size is None:
            size, first = extent, index
        elif size != extent:
            raise ShapeError(
                f"vmap: mapped arguments differ in the length of their batch axis: "
                f"{_name(args, kwargs, first)} has {size}, {_name(args, kwargs, index)} has {extent} "
                f"(shape {node.shape}, axis {axis}); use in_axes=None for an argument that is shared"
            )
        placeholder = parameter(len(placeholders), node.shape[:position] + node.shape[position + 1 :], node.dtype)
        placeholder.weak = node.weak
        placeholder.rg, placeholder.scope = node.rg, node.scope  # followed like the value in whose place it stands
        placeholders.append(placeholder)
        values[placeholder] = move_axis(node, position, 0)
        given.append(Tensor(placeholder))
    if size is None:
        raise ShapeError(f"vmap: no argument is mapped (in_axes={in_axes!r}); map at least one along an axis")
    new_args, new_kwargs = pytree.unflatten(structure, given)
    result = function(*new_args, **new_kwargs)
    return _results(result, out_axes, placeholders, values, size)


def _argument_axes(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ShapeError(f"vmap: in_axes={in_axes!r} has {len(in_axes)} entries for {len(args)} positional arguments")
    axes = pytree.broadcast_prefix(in_axes, args, "vmap: in_axes")
    for axis in axes:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, (int, np.integer))):
            raise ShapeError(f"vmap: in_axes must hold ints and None, got {axis!r}")
    # The leaves of (args, kwargs) come in this order.
    return [*(None if axis is None else int(axis) for axis in axes), *[0] * len(pytree.leaves(kwargs))]


def _mapped(leaf: Any, axis: int, args: Any, kwargs: Any, index: int) -> Node:
    from ..api.convert import as_node
    from ..tensor import Tensor

    if not isinstance(leaf, (Tensor, np.ndarray, np.generic, bool, int, float)):
        raise TraceError(
            f"vmap: {_name(args, kwargs, index)} is a {type(leaf).__name__} and cannot be mapped; "
            "use in_axes=None for it"
        )
    node = as_node(leaf)
    if not -node.ndim <= axis < node.ndim:
        raise ShapeError(
            f"vmap: {_name(args, kwargs, index)} has shape {node.shape} and no axis {axis}; "
            "use in_axes=None for an argument that is shared"
        )
    return node


def _name(args: Any, kwargs: Any, index: int) -> str:
    path = pytree.leaves_with_paths((args, kwargs))[index][0]
    return f"argument args{path[3:]}" if path.startswith("[0]") else f"argument kwargs{path[3:]}"


def _results(result: Any, out_axes: Any, placeholders: list[Node], values: dict[Node, Node], size: int) -> Any:
    from ..api.convert import as_node
    from ..tensor import Tensor

    leaves, structure = pytree.flatten(result)
    axes = pytree.broadcast_prefix(out_axes, result, "vmap: out_axes")
    nodes = []
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, (Tensor, np.ndarray, np.generic, bool, int, float)):
            path = pytree.leaves_with_paths(result)[index][0]
            raise TraceError(f"vmap: the function returned a {type(leaf).__name__} at result{path}; expected tensors")
        nodes.append(as_node(leaf))
    order, found = dependents(nodes, placeholders)
    if any(map(hooks_of, order)):
        raise hook_error()
    results = []
    for index, (node, new, axis) in enumerate(zip(nodes, batch_nodes(order, values, nodes, size), axes)):
        is_batched = id(node) in found
        where = f"result{pytree.leaves_with_paths(result)[index][0]}" if axis is None or axis not in (0, -1) else ""
        if axis is None:
            if is_batched:
                raise ShapeError(
                    f"vmap: out_axes is None for {where}, which depends on a mapped argument and has a batch axis"
                )
            results.append(Tensor(new))
            continue
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
            raise ShapeError(f"vmap: out_axes must hold ints and None, got {axis!r}")
        rank = node.ndim + 1
        if not -rank <= axis < rank:
            raise ShapeError(f"vmap: {where} has shape {node.shape} without its batch axis, which out_axes={axis} puts "
                             "out of range")
        if not is_batched:
            new = broadcast_to(new, (size, *node.shape))
        elif node.weak and not new.handles:
            new.weak = True
        results.append(Tensor(move_axis(new, 0, int(axis) % rank)))
    return pytree.unflatten(structure, results)
