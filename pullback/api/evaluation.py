"""Forcing values, comparing them as wholes, and choosing what computes them."""

from __future__ import annotations

import builtins
from typing import Any

from ..graph.node import Node
from ..graph.state import state
from ..interop import evaluate, traced_error
from ..tensor import Tensor
from .convert import ArrayLike, as_node
from .elementwise import equal, isclose
from .reduction import all as all_true


def eval(*pytrees: Any) -> None:
    """Compute every tensor in the arguments (tensors, lists, dicts, modules...) in one program.

    Raises TraceError inside ``jit``, IndexError if an index tensor was out of range.
    """
    pending: list[Node] = []
    for tree in pytrees:
        kind = tree.__class__
        if kind is Tensor:
            if tree._node.buffer is not None and state.trace is None:
                continue  # the usual case: what a jitted function returned
            leaves: Any = (tree,)
        elif (kind is list or kind is tuple) and builtins.all(x.__class__ is Tensor for x in tree):
            leaves = tree
        else:
            from ..transforms import pytree

            leaves = pytree.leaves(tree)
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                node = leaf.node
                if node.buffer is None:
                    if node.trace is not None:
                        raise traced_error(node, "pb.eval")
                    pending.append(node)
    if pending:
        evaluate(pending)


def allclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close (see ``isclose``), as a Python bool: evaluates both."""
    return bool(all_true(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)))


def array_equal(x1: ArrayLike, x2: ArrayLike, /) -> bool:
    """Whether both have one shape and equal elements, as a Python bool: evaluates both."""
    a, b = as_node(x1, None, "array_equal"), as_node(x2, None, "array_equal")
    if a.shape != b.shape:
        return False
    return bool(all_true(equal(Tensor(a), Tensor(b))))


