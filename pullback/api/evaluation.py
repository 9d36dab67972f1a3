"""Forcing values, comparing them as wholes, and choosing what computes them."""

from __future__ import annotations

import builtins
from typing import Any

from ..interop import evaluate, is_traced, traced_error
from ..tensor import Tensor
from .convert import ArrayLike, as_node
from .elementwise import equal, isclose
from .reduction import all as all_true


def eval(*pytrees: Any) -> None:
    """Compute every tensor in the arguments (tensors, lists, dicts, modules...) in one program.

    Raises TraceError inside ``jit``, IndexError if an index tensor was out of range.
    """
    if builtins.all(map(_has_value, pytrees)):
        return
    from ..transforms import pytree

    nodes = [leaf.node for tree in pytrees for leaf in pytree.leaves(tree) if isinstance(leaf, Tensor)]
    for node in nodes:
        if is_traced(node):
            raise traced_error(node, "pb.eval")
    evaluate([node for node in nodes if node.buffer is None])


def _has_value(tree: Any) -> bool:
    """Whether ``tree`` plainly needs no evaluation: a tensor with a value, or a tuple or list of them."""
    kind = type(tree)
    if kind is Tensor:
        return tree.node.buffer is not None
    if kind is not tuple and kind is not list:
        return False
    return builtins.all(type(x) is Tensor and x.node.buffer is not None for x in tree)


def allclose(x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close (see ``isclose``), as a Python bool: evaluates both."""
    return bool(all_true(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)))


def array_equal(x1: ArrayLike, x2: ArrayLike, /) -> bool:
    """Whether both have one shape and equal elements, as a Python bool: evaluates both."""
    a, b = as_node(x1, None, "array_equal"), as_node(x2, None, "array_equal")
    if a.shape != b.shape:
        return False
    return bool(all_true(equal(Tensor(a), Tensor(b))))


