"""dot_general: products summed over contracted axes, batch axes in step. Every matmul and einsum is one.

``rounded_dot_general`` is the same of float32 operands that are rounded to bfloat16 first. Its derivatives are products
of its own kind.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..graph.node import Node, bind
from ..shapes import Shape, size_of
from . import movement
from .family import ANY, Array, kind_error, mixed_error, rank_error, widen
from .record import Linear, Op
from .registry import register

Ints = tuple[int, ...]
AxisPairs = tuple[Ints, Ints]
Precision = Literal["highest", "bf16"]


def free_axes(ndim: int, contract: Ints, batch: Ints) -> Ints:
    """The axes of an operand that are neither contracted nor batch, in order."""
    return tuple([a for a in range(ndim) if a not in contract and a not in batch])


def _infer_dot(inputs: tuple[Node, ...], contract: AxisPairs, batch: AxisPairs) -> tuple[Shape, DType]:
    a, b = inputs
    if a.dtype is not b.dtype:
        raise mixed_error("dot_general", a, b)
    if a.dtype.kind not in ANY:
        raise kind_error("dot_general", ANY, a, b)
    if len(contract[0]) == len(contract[1]) == 1 and not batch[0] and not batch[1]:  # most are
        (i,), (j,) = contract
        if 0 <= i < len(a.shape) and 0 <= j < len(b.shape) and a.shape[i] == b.shape[j]:
            return a.shape[:i] + a.shape[i + 1 :] + b.shape[:j] + b.shape[j + 1 :], a.dtype
    for what, (of_a, of_b) in (("contracted", contract), ("batch", batch)):
        if len(of_a) != len(of_b):
            raise rank_error("dot_general", f"{what} axes {of_a} and {of_b} do not pair up", a, b)
        for i, j in zip(of_a, of_b):
            if not (0 <= i < len(a.shape) and 0 <= j < len(b.shape)):
                raise rank_error("dot_general", f"{what} axes {i} and {j} are out of range", a, b)
            if a.shape[i] != b.shape[j]:
                raise rank_error(
                    "dot_general", f"{what} axis {i} of the first operand has {a.shape[i]} elements, "
                    f"axis {j} of the second {b.shape[j]}", a, b,
                )
    for used in ((*contract[0], *batch[0]), (*contract[1], *batch[1])):
        if len(set(used)) != len(used):
            raise rank_error("dot_general", f"an axis is used twice in contract={contract}, batch={batch}", a, b)
    shape = [a.shape[i] for i in batch[0]]
    shape += [a.shape[i] for i in free_axes(len(a.shape), contract[0], batch[0])]
    shape += [b.shape[i] for i in free_axes(len(b.shape), contract[1], batch[1])]
    return tuple(shape), a.dtype


def _dot_reference(node: Node, a: Array, b: Array) -> Array:
    contract, batch = node.attrs
    if node.op is ROUNDED_DOT_GENERAL and node.dtype is dtypes.float32:
        with np.errstate(over="ignore"):
            a, b = (x.astype(dtypes.bfloat16.numpy).astype(np.float32) for x in (a, b))
    if node.dtype.kind == "f" and node.dtype.itemsize <= 4:
        a, b = (widen(x, node.dtype).astype(np.float64) for x in (a, b))
    free_a = free_axes(a.ndim, contract[0], batch[0])
    free_b = free_axes(b.ndim, contract[1], batch[1])
    groups = [a.shape[i] for i in batch[0]]
    depth = size_of([a.shape[i] for i in contract[0]])
    rows, columns = size_of([a.shape[i] for i in free_a]), size_of([b.shape[i] for i in free_b])
    left = a.transpose((*batch[0], *free_a, *contract[0])).reshape(*groups, rows, depth)
    right = b.transpose((*batch[1], *contract[1], *free_b)).reshape(*groups, depth, columns)
    with np.errstate(all="ignore"):
        return np.matmul(left, right).reshape(node.shape).astype(node.dtype.numpy, copy=False)


def _transpose_dot(node: Node, cotangent: Node, index: int) -> Node:
    """The cotangent of one operand contracts the result's cotangent with the other operand over its free axes."""
    contract, batch = node.attrs
    mine, other = (0, 1) if index == 0 else (1, 0)
    x, y = node.inputs[mine], node.inputs[other]
    free_x = free_axes(len(x.shape), contract[mine], batch[mine])
    free_y = free_axes(len(y.shape), contract[other], batch[other])
    groups, first = len(batch[0]), free_x if index == 0 else free_y
    in_order = tuple(range(groups, len(node.shape)))
    of_first, of_second = in_order[: len(first)], in_order[len(first) :]
    of_y = of_second if index == 0 else of_first
    group_axes = tuple(range(groups))
    # The axes of x that were contracted come out in the order of y's.
    pairs = sorted(zip(contract[other], contract[mine]))
    from_y = tuple([i for _, i in pairs])
    if index == 0:
        product = bind(node.op, (cotangent, y), ((of_y, free_y), (group_axes, batch[other])))
        made = (*batch[mine], *free_x, *from_y)
    else:
        product = bind(node.op, (y, cotangent), ((free_y, of_y), (batch[other], group_axes)))
        made = (*batch[mine], *from_y, *free_x)
    return movement.permute(product, movement.inverse_permutation(made))


def _batch_dot(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    contract, batch = node.attrs
    shifted = [tuple([i + 1 for i in axes]) if b else axes for axes, b in zip(contract, batched)]
    groups = [tuple([i + 1 for i in axes]) if b else axes for axes, b in zip(batch, batched)]
    pair = (shifted[0], shifted[1])
    a, b = inputs
    if all(batched):
        return bind(node.op, (a, b), (pair, ((0, *groups[0]), (0, *groups[1]))))
    # The batch axis is a free axis of one operand, the first of that operand's.
    position = len(batch[0])
    if batched[1]:
        position += len(free_axes(len(node.inputs[0].shape), contract[0], batch[0]))
    return movement.move_axis(bind(node.op, (a, b), (pair, (groups[0], groups[1]))), position, 0)


DOT_GENERAL = register(Op(
    "dot_general", "contraction", _infer_dot, _dot_reference, Linear(_transpose_dot, (0, 1)), _batch_dot,
    "dot_general", 2.0, ("contract", "batch"),
    "sum over contracted axes of a * b; result axes: batch, free of a, free of b. bool: any of and",
))
ROUNDED_DOT_GENERAL = register(Op(
    "rounded_dot_general", "contraction", _infer_dot, _dot_reference, Linear(_transpose_dot, (0, 1)), _batch_dot,
    "dot_general", 2.0, ("contract", "batch"),
    "dot_general of operands rounded to bfloat16, if they are float32; summed in float32",
))


def dot_general(
    a: Node, b: Node, contract: AxisPairs, batch: AxisPairs = ((), ()), precision: Precision = "highest"
) -> Node:
    """Contract ``contract[0]`` of ``a`` with ``contract[1]`` of ``b``; ``batch`` axes are matched, not summed.

    Result: batch axes, then a's other axes, then b's other axes (the rule of JAX's ``lax.dot_general``).
    float16 and bfloat16 accumulate in float32; integers wrap. precision: with "bf16", float32 operands are rounded to
    bfloat16, here and in all derivatives.
    """
    op = ROUNDED_DOT_GENERAL if precision == "bf16" and a.dtype is dtypes.float32 else DOT_GENERAL
    return bind(op, (a, b), (contract, batch), a.weak and b.weak)


def matrix_product(a: Node, b: Node) -> Node:
    """``a @ b`` of two matrices."""
    return dot_general(a, b, ((1,), (0,)))
