"""What the functional transforms share: arguments to differentiate by, one call of the function, checked tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, GradientError, ShapeError
from ..graph.node import Node
from ..graph.state import state
from ..graph.tracking import Scope, is_tracked, no_grad
from ..ops.elementwise import alias, cast
from ..ops.leaf import DATA, parameter
from ..tensor import Tensor
from . import pytree
from .derivative import zeros_of

Function = Callable[..., Any]

ARRAYS = (Tensor, np.ndarray, np.generic, bool, int, float)


class Primals:
    """The arguments that a transform differentiates by: their leaves as alias nodes of its scope."""

    def __init__(self, name: str, scope: Scope, trees: Any, labels: Callable[[str], str]) -> None:
        self.name = name
        self.given, self.structure = pytree.flatten(trees)
        self.labels = labels
        self.trees = trees
        self.nodes: list[Node] = []
        self.tensors: list[Tensor] = []
        for index, leaf in enumerate(self.given):
            node = _input_node(self._float_node(leaf, index))
            node.scope = scope
            self.nodes.append(node)
            self.tensors.append(Tensor(node))

    def path(self, index: int) -> str:
        """How the caller would write leaf ``index``."""
        return self.labels(pytree.leaves_with_paths(self.trees)[index][0])

    def _float_node(self, leaf: Any, index: int) -> Node:
        if not isinstance(leaf, ARRAYS):
            raise GradientError(
                f"{self.name}: {self.path(index)} is a {type(leaf).__name__}, not a floating tensor; "
                "differentiate by other arguments with argnums"
            )
        node = as_array_node(leaf)
        if node.dtype.kind != "f" and not self._is_buffer(leaf):
            raise GradientError(
                f"{self.name}: {self.path(index)} has dtype {node.dtype.name} and shape {node.shape}; only floating "
                "tensors have derivatives: cast it with x.astype(pb.float32), or differentiate by other arguments "
                "with argnums"
            )
        return node

    def _is_buffer(self, leaf: Any) -> bool:
        """Whether ``leaf`` is a module's own: its integer buffers (a step count) come along and get zeros."""
        from ..nn.module import Module

        modules = [tree for tree in pytree.leaves_above(self.trees, Module) if isinstance(tree, Module)]
        return any(leaf is own for module in modules for own in pytree.leaves(module))

    def arguments(self) -> Any:
        """The arguments as the function receives them."""
        return pytree.unflatten(self.structure, self.tensors)

    def write_back(self) -> None:
        """What the function rebound (``x += 1``, a running mean in a module) is rebound in the caller's tensors."""
        for leaf, tensor, node in zip(self.given, self.tensors, self.nodes):
            if tensor.node is not node and isinstance(leaf, Tensor):
                leaf.rebind(tensor.node)

    def release(self) -> None:
        """Keep only what ``tree`` needs: a closure that lives on must not keep arguments and their names alive."""
        self.nodes = [stand_in(node) for node in self.nodes]
        self.tensors = []
        self.given = []
        self.trees = None

    def tree(self, nodes: Sequence[Node | None]) -> Any:
        """Derivatives by the arguments, in their structure; 0 where there is no path."""
        return pytree.unflatten(
            self.structure,
            [Tensor(zeros_of(own) if node is None else node) for node, own in zip(nodes, self.nodes)],
        )


def _input_node(node: Node) -> Node:
    """A node of its own with the value of ``node``, to differentiate by."""
    if node.buffer is not None and not is_tracked(node):
        return Node(DATA, (), (), node.shape, node.dtype, node.weak, node.buffer)
    return alias(node)


def stand_in(node: Node) -> Node:
    """A node of the same shape and dtype without a value or a history."""
    return parameter(0, node.shape, node.dtype)


class Run:
    """One call of a function under a transform: what it returned, and the scope in which its graph is kept."""

    def __init__(self, name: str, function: Function, has_aux: bool) -> None:
        self.name = name
        self.function = function
        self.has_aux = has_aux
        self.aux: Any = None

    def __call__(self, primals: Primals, call: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        before = state.grad_enabled
        # Under no_grad the results are constants to derivatives taken outside, not to this one.
        state.grad_enabled = True
        try:
            args, kwargs = call(primals.arguments())
            result = self.function(*args, **kwargs)
        finally:
            state.grad_enabled = before
        primals.write_back()
        if self.has_aux:
            if not (isinstance(result, tuple) and len(result) == 2):
                raise GradientError(
                    f"{self.name}: with has_aux=True the function must return (output, aux), got {kind_of(result)}"
                )
            result, self.aux = result
        self.result = result
        self.leaves, self.structure = pytree.flatten(result)
        for index, leaf in enumerate(self.leaves):
            if not isinstance(leaf, ARRAYS):
                path = pytree.leaves_with_paths(result)[index][0]
                raise GradientError(
                    f"{self.name}: the function returned {kind_of(leaf)} at result{path}; expected tensors "
                    "(further results go through has_aux=True)"
                )
        self.nodes = [as_array_node(leaf) for leaf in self.leaves]

    def scalar(self) -> Node:
        """The only output, which must be a floating 0-d tensor."""
        if len(self.leaves) != 1 or self.leaves[0] is not self.result:
            raise GradientError(
                f"{self.name}: the function must return one scalar tensor, got {kind_of(self.result)}; "
                "return further results through has_aux=True, or use pb.vjp"
            )
        if not isinstance(self.result, Tensor):
            raise GradientError(
                f"{self.name}: the function returned a {type(self.result).__name__}, which no derivative reaches: "
                "float(x), x.item(), np.asarray(x) and the math module leave the graph; return a tensor made with pb"
            )
        node = self.nodes[0]
        if node.shape != ():
            raise GradientError(
                f"{self.name}: the function must return a scalar, got shape {node.shape}; reduce it with pb.sum or "
                "pb.mean, give a cotangent through pb.vjp, or use pb.jacrev"
            )
        if node.dtype.kind != "f":
            raise GradientError(f"{self.name}: the function must return a floating scalar, got {node.dtype.name}")
        return node

    def output(self, tree: Any) -> Any:
        """What the caller gets of the function's results: under ``no_grad``, constants."""
        if state.grad_enabled:
            return tree
        with no_grad():
            return pytree.map(lambda leaf: Tensor(alias(leaf.node)) if isinstance(leaf, Tensor) else leaf, tree)


def as_array_node(leaf: Any) -> Node:
    from ..api.convert import as_node

    return as_node(leaf)


def kind_of(value: Any) -> str:
    if value is None:
        return "None (is a return statement missing?)"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _positions(name: str, argnums: int | Sequence[int], count: int) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not numbers:
        raise GradientError(f"{name}: argnums is empty; name at least one positional argument")
    positions = []
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise GradientError(f"{name}: argnums must be an int or a tuple of ints, got {argnums!r}")
        if not -count <= number < count:
            raise GradientError(
                f"{name}: argnums={argnums!r} is out of range for {count} positional arguments "
                "(arguments passed by keyword cannot be differentiated by)"
            )
        positions.append(number % count)
    if len(set(positions)) != len(positions):
        raise GradientError(f"{name}: argnums={argnums!r} names an argument twice")
    return tuple(positions)


def select(
    name: str, scope: Scope, argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Primals, Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The arguments that ``argnums`` names, and how to put what replaces them among the others."""
    positions = _positions(name, argnums, len(args))
    single = isinstance(argnums, int)

    def label(path: str) -> str:
        if single:
            return f"argument {positions[0]}{path}"
        index, _, rest = path[1:].partition("]")
        return f"argument {positions[int(index)]}{rest}"

    trees = args[positions[0]] if single else tuple([args[p] for p in positions])
    primals = Primals(name, scope, trees, label)

    def call(new: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        full = list(args)
        for position, tree in zip(positions, (new,) if single else new):
            full[position] = tree
        return tuple(full), kwargs

    return primals, call


def all_of(name: str, scope: Scope, args: Any) -> tuple[Primals, Any]:
    if not isinstance(args, (tuple, list)):
        raise GradientError(f"{name}: primals must be a tuple, one entry for each argument, got {kind_of(args)}")
    primals = Primals(name, scope, tuple(args), lambda path: f"primals{path}")
    return primals, lambda new: (new, {})


def matching(name: str, what: str, nodes: Sequence[Node], structure: Any, given: Any) -> list[Node]:
    """Nodes of a cotangent or tangent, checked against what it belongs to."""
    found = pytree.match(structure, given, f"{name}: {what}")
    results = []
    for index, (leaf, node) in enumerate(zip(found, nodes)):
        if not isinstance(leaf, ARRAYS):
            raise GradientError(f"{name}: {what} holds {kind_of(leaf)}, expected tensors")
        result = as_array_node(leaf)
        where = f"{what}{pytree.leaves_with_paths(given)[index][0]}"
        if result.shape != node.shape:
            raise ShapeError(f"{name}: {where} has shape {result.shape}, expected {node.shape}")
        if result.dtype is not node.dtype:
            if not result.weak and result.dtype.kind == "f" and node.dtype.kind == "f":
                raise DTypeError(
                    f"{name}: {where} has dtype {result.dtype.name}, expected {node.dtype.name}; "
                    f"cast it with x.astype(pb.{node.dtype.name})"
                )
            result = cast(result, node.dtype)
        results.append(result)
    return results
