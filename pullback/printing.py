"""How a tensor prints: NumPy's layout of the values, then shape and dtype. Printing never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .errors import TraceError
from .graph.node import Node
from .graph.state import describe_site
from .interop import is_traced, materialize

if TYPE_CHECKING:
    from .tensor import Tensor


def tensor_repr(tensor: Tensor) -> str:
    """``Tensor([[1., 2.], [3., 4.]], shape=(2, 2), dtype=float32)``."""
    try:
        node = tensor.node
    except TraceError:
        return _left_over(tensor._node)
    suffix = [f"shape={node.shape}"] if node.shape else []
    suffix.append(f"dtype={node.dtype.name}")
    if tensor._requires_grad:
        suffix.append("requires_grad=True")
    ending = ", ".join(suffix)
    value = _value(node)
    if value is None:
        return f"Tensor(traced, made at {describe_site(node.site)}, {ending})"
    body = np.array2string(value, separator=", ", prefix="Tensor(", suffix=f", {ending})")
    return f"Tensor({body}, {ending})"


def tensor_str(tensor: Tensor) -> str:
    """The values alone, as NumPy prints them."""
    try:
        node = tensor.node
    except TraceError:
        return _left_over(tensor._node)
    value = _value(node)
    return tensor_repr(tensor) if value is None else str(value)


def tensor_format(tensor: Tensor, spec: str) -> str:
    """``f"{loss:.3f}"`` for one-element tensors; a traced tensor prints as it is."""
    if not spec:
        return tensor_str(tensor)
    try:
        node = tensor.node
    except TraceError:
        return _left_over(tensor._node)
    value = _value(node)
    if value is None:
        return tensor_repr(tensor)
    if value.size != 1:
        raise TypeError(f"unsupported format {spec!r} for a tensor of shape {node.shape}")
    return format(value.item(), spec)


def _value(node: Node) -> np.ndarray[Any, Any] | None:
    """The value to print (bfloat16 as float32, which holds it exactly), or None while it stands for any value."""
    if is_traced(node):
        return None
    try:
        value = materialize(node, "print")
    except TraceError:
        return None
    return value.astype(np.float32) if node.dtype is dtypes.bfloat16 else value


def _left_over(node: Node) -> str:
    return (
        f"Tensor(left over from a trace by jit, made at {describe_site(node.site)}, "
        f"shape={node.shape}, dtype={node.dtype.name})"
    )
