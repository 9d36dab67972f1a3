"""Nodes without inputs: evaluated data, Python numbers, the parameters of a graph, and counting along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import CompileError, DTypeError, ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape
from . import movement
from .record import NoDerivative, Op
from .registry import register

Array = np.ndarray[Any, Any]


def _batch_leaf(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    return movement.broadcast_to(node, (size, *node.shape))


def _given_shape(name: str) -> Any:
    def infer(inputs: tuple[Node, ...], *attrs: Any) -> tuple[Shape, DType]:
        raise CompileError(f"{name}: the shape and dtype are given when the node is made, there is no rule for them")

    return infer


def _data_reference(node: Node) -> Array:
    if node.buffer is None:
        raise CompileError("data: the node has no buffer")
    return node.buffer.numpy(node.shape, node.dtype.numpy)


def _constant_reference(node: Node) -> Array:
    return np.asarray(node.attrs[0], node.dtype.numpy)


def _parameter_reference(node: Node) -> Array:
    raise CompileError(f"parameter {node.attrs[0]} of a graph has no value of its own; give the graph its arguments")


def _infer_iota(inputs: tuple[Node, ...], shape: Shape, axis: int, dtype: DType) -> tuple[Shape, DType]:
    if not 0 <= axis < len(shape):
        raise ShapeError(f"iota: axis {axis} is out of range for shape {shape}")
    if dtype.kind == "b":
        raise DTypeError("iota: a numeric dtype expected, got bool")
    return shape, dtype


def _iota_reference(node: Node) -> Array:
    shape, axis, dtype = node.attrs
    line = np.arange(shape[axis]).astype(dtype.numpy)
    return np.broadcast_to(line.reshape(-1, *(1,) * (len(shape) - axis - 1)), shape)


DATA = register(Op(
    "data", "leaf", _given_shape("data"), _data_reference, NoDerivative("it has no inputs", zero=True), _batch_leaf,
    "data", 0.0, (), "an evaluated value",
))
CONSTANT = register(Op(
    "constant", "leaf", _given_shape("constant"), _constant_reference, NoDerivative("it has no inputs", zero=True),
    _batch_leaf, "constant", 0.0, ("value", "static"), "a Python number, 0-d",
))
PARAMETER = register(Op(
    "parameter", "leaf", _given_shape("parameter"), _parameter_reference, NoDerivative("it has no inputs", zero=True),
    _batch_leaf, "parameter", 0.0, ("index",), "input number `index` of a graph",
))
IOTA = register(Op(
    "iota", "leaf", _infer_iota, _iota_reference, NoDerivative("it has no inputs", zero=True), _batch_leaf,
    "iota", 1.0, ("shape", "axis", "dtype"), "0, 1, 2, ... along `axis`",
))


def data(array: Array, copy: bool = True) -> Node:
    """The node that holds ``array``'s values.

    copy: False shares the array's memory where its layout allows (C-contiguous, aligned, native byte order).
    Raises DTypeError for a dtype that Pullback has no type for.
    """
    from ..runtime.buffers import from_numpy

    dtype = dtypes.from_numpy(array.dtype)
    shape = tuple(array.shape)
    if copy or array.dtype != dtype.numpy or not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, dtype.numpy, order="C", copy=True)
    return Node(DATA, (), (), shape, dtype, False, from_numpy(array))


def constant(value: bool | int | float, dtype: DType, weak: bool = False, static: bool = False) -> Node:
    """A 0-d node of ``value``.

    static: the value is part of a kernel's identity; otherwise kernels read it at run time, unless it is 0, 1 or -1.
    Note for keys made of attrs: ``0.0 == -0.0`` in Python, and ``nan != nan``; compare such values by their bits.

    Raises DTypeError if ``dtype`` does not hold the value (300 as uint8, 0.5 as int64).
    """
    kind = dtype.kind
    if kind == "f":
        value = float(value)
    elif kind == "b":
        if value not in (0, 1):
            raise DTypeError(f"{value!r} is not a bool; compare it with 0 to make one")
        value = bool(value)
    else:
        exact = int(value) if value == value and abs(value) != float("inf") else None
        low, high = dtypes.integer_limits(dtype)
        if exact is None or exact != value or not low <= exact <= high:
            raise DTypeError(f"{dtype.name} cannot hold {value!r}; cast the other operand with x.astype(...)")
        value = exact
    return Node(CONSTANT, (), (value, static), (), dtype, weak)


def parameter(index: int, shape: Shape, dtype: DType, weak: bool = False) -> Node:
    """The placeholder of a graph's input ``index``."""
    return Node(PARAMETER, (), (index,), shape, dtype, weak)


def iota(shape: Shape, axis: int, dtype: DType) -> Node:
    """0, 1, 2, ... along ``axis`` of ``shape``, the same at every position of the other axes."""
    return bind(IOTA, (), (shape, axis, dtype))


def full(shape: Shape, value: bool | int | float, dtype: DType, weak: bool = False) -> Node:
    """``value`` everywhere: a broadcast constant, never stored unless it is asked for itself."""
    return movement.broadcast_to(constant(value, dtype, weak), shape)


def zeros_like(node: Node) -> Node:
    """0 in ``node``'s shape and dtype."""
    return full(node.shape, 0, node.dtype, node.weak)


def ones_like(node: Node) -> Node:
    """1 in ``node``'s shape and dtype."""
    return full(node.shape, 1, node.dtype, node.weak)
