"""Control flow on values that need not be known: cond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DTypeError, ShapeError, TraceError
from ..graph.trace import depends_on_placeholder
from .convert import as_node, wrap
from .elementwise import where


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``.

    pred: a bool of shape (). Where its value is known, only the chosen branch runs. Inside ``jit`` and ``vmap``, where
    it stands for any value, both branches are computed and the results are chosen between, element by element, by
    ``where``: the branch not taken contributes nothing to a derivative, whatever its values. Branches are to be pure
    functions; one that rebinds tensors would do so whichever is taken.

    Raises ShapeError where ``pred`` has axes or the branches' results differ in structure or shape, DTypeError where
    ``pred`` is not bool or the results differ in dtype.
    """
    node = as_node(pred)
    if node.shape != ():
        raise ShapeError(f"cond: pred must have shape (), got {node.shape}; to choose element by element use where")
    if node.dtype.kind != "b":
        raise DTypeError(f"cond: pred must be bool, got {node.dtype.name}; compare it with something first")
    if not depends_on_placeholder(node):
        return true_fn(*operands) if wrap(node) else false_fn(*operands)
    from ..transforms import pytree

    taken, structure = pytree.flatten(true_fn(*operands))
    other = pytree.match(structure, false_fn(*operands), "cond: the result of false_fn")
    chosen = []
    for path, x, y in zip(_paths(structure, taken), taken, other, strict=True):
        a, b = _branch_node(x, path), _branch_node(y, path)
        if a.shape != b.shape:
            raise ShapeError(f"cond: the branches give shapes {a.shape} and {b.shape} at result{path}")
        if a.dtype is not b.dtype and not (a.weak or b.weak):
            raise DTypeError(f"cond: the branches give {a.dtype.name} and {b.dtype.name} at result{path}; cast one")
        chosen.append(where(wrap(node), x, y))
    return pytree.unflatten(structure, chosen)


def _paths(structure: Any, leaves: list[Any]) -> list[str]:
    from ..transforms import pytree

    return [path for path, _ in pytree.leaves_with_paths(pytree.unflatten(structure, leaves))]


def _branch_node(leaf: Any, path: str) -> Any:
    try:
        return as_node(leaf)
    except (TypeError, ValueError) as error:
        raise TraceError(f"cond: result{path} is a {type(leaf).__name__}, not a tensor") from error
