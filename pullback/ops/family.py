"""What the ops of one family share: infer rules, references, batching, and the function that makes a node.

An elementwise op is then declared in a few lines: its name, its NumPy function and its partials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..graph.node import Node, bind
from ..shapes import Shape, broadcast_shapes
from . import leaf, movement
from .record import Derivative, NoDerivative, Op, Partials
from .registry import register

Number = bool | int | float
Operand = Node | Number
Array = np.ndarray[Any, Any]

FLOAT = "f"
NUMERIC = "iuf"
INTEGER = "iu"
BITS = "biu"
BOOL = "b"
ANY = "biuf"

_KIND_NAMES = {
    FLOAT: "floating", NUMERIC: "numeric", INTEGER: "integer", "u": "unsigned integer",
    BITS: "integer or bool", BOOL: "bool", ANY: "real",
}
_HALF = (dtypes.float16, dtypes.bfloat16)


# -- errors ------------------------------------------------------------------------------------------------------------


def describe(*nodes: Node) -> str:
    """``float32[3,4] and int64[3]``, for messages."""
    return " and ".join(f"{n.dtype.name}[{','.join(map(str, n.shape))}]" for n in nodes)


def kind_error(name: str, kinds: str, *nodes: Node) -> DTypeError:
    """The operands' dtype is of a kind that the op has no meaning for."""
    example = {"f": "pb.float32", "b": "bool"}.get(kinds[-1], "pb.int64")
    return DTypeError(
        f"{name}: {_KIND_NAMES[kinds]} operands expected, got {describe(*nodes)}; cast with x.astype({example})"
    )


def mixed_error(name: str, *nodes: Node) -> DTypeError:
    """Operands of different dtypes met below the level at which promotion happens."""
    return DTypeError(
        f"{name}: operands of one dtype expected, got {describe(*nodes)}; cast one of them with x.astype(...)"
    )


def rank_error(name: str, what: str, *nodes: Node) -> ShapeError:
    """Axes or extents that do not fit; ``what`` says which."""
    return ShapeError(f"{name}: {what}; operands are {describe(*nodes)}")


# -- infer rules -------------------------------------------------------------------------------------------------------


def infer_unary(name: str, kinds: str, result: DType | None = None) -> Callable[..., tuple[Shape, DType]]:
    """Shape of the operand, its dtype or ``result``."""

    def infer(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
        (x,) = inputs
        dtype = x.dtype
        if dtype.kind not in kinds:
            raise kind_error(name, kinds, x)
        return x.shape, dtype if result is None else result

    return infer


def infer_binary(name: str, kinds: str, result: DType | None = None) -> Callable[..., tuple[Shape, DType]]:
    """Broadcast shape of two operands of one dtype, that dtype or ``result``."""

    def infer(inputs: tuple[Node, ...]) -> tuple[Shape, DType]:
        x, y = inputs
        dtype = x.dtype
        if dtype is not y.dtype:
            raise mixed_error(name, x, y)
        if dtype.kind not in kinds:
            raise kind_error(name, kinds, x, y)
        shape, other = x.shape, y.shape
        if shape != other and other:
            shape = broadcast_shapes(shape, other, op=name) if shape else other
        return shape, dtype if result is None else result

    return infer


# -- batching ----------------------------------------------------------------------------------------------------------


def lift(x: Node, is_batched: bool, rank: int) -> Node:
    """``x`` with its batch axis first and axes of extent 1 after it, so that the others align with ``rank`` axes."""
    missing = rank + 1 - len(x.shape)
    if not is_batched or missing <= 0:
        return x
    return movement.reshape(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))


def with_batch(x: Node, is_batched: bool, size: int) -> Node:
    """``x`` with a leading batch axis, repeated if it has none."""
    return x if is_batched else movement.broadcast_to(x, (size, *x.shape))


def batch_elementwise(node: Node, inputs: tuple[Node, ...], batched: tuple[bool, ...], size: int) -> Node:
    """Elementwise ops broadcast, so aligning the batch axes is all there is to do."""
    rank = len(node.shape)
    lifted = tuple([lift(x, b, rank) for x, b in zip(inputs, batched)])
    return bind(node.op, lifted, node.attrs, node.weak)


# -- references --------------------------------------------------------------------------------------------------------


def widen(array: Array, dtype: DType) -> Array:
    """Half-precision arrays as float32, in which every op on them is computed."""
    return array.astype(np.float32) if dtype in _HALF else array


def reference_elementwise(function: Callable[..., Any]) -> Callable[..., Array]:
    """The reference of an op that ``function`` computes; float16 and bfloat16 are computed in float32, rounded once."""

    def reference(node: Node, *arrays: Array) -> Array:
        wide = [widen(a, x.dtype) for a, x in zip(arrays, node.inputs)]
        with np.errstate(all="ignore"):
            return np.asarray(function(*wide)).astype(node.dtype.numpy, copy=False)

    return reference


# -- declaring an op ---------------------------------------------------------------------------------------------------


def elementwise(
    name: str,
    infer: Callable[..., tuple[Shape, DType]],
    reference: Callable[..., Array],
    derivative: Derivative | Callable[..., tuple[Any, ...]],
    cost: float,
    doc: str,
    attr_names: tuple[str, ...] = (),
) -> Op:
    """Register an elementwise op; a function as ``derivative`` gives its partials."""
    rule = derivative if isinstance(derivative, Derivative) else Partials(derivative)
    return register(
        Op(name, "elementwise", infer, reference, rule, batch_elementwise, name, cost, attr_names, doc)
    )


def unary(
    name: str,
    function: Callable[..., Any],
    kinds: str,
    derivative: Derivative | Callable[..., tuple[Any, ...]],
    doc: str,
    cost: float = 1.0,
    result: DType | None = None,
) -> Op:
    """Register an elementwise op of one operand."""
    infer = infer_unary(name, kinds, result)
    return elementwise(name, infer, reference_elementwise(function), derivative, cost, doc)


def binary(
    name: str,
    function: Callable[..., Any],
    kinds: str,
    derivative: Derivative | Callable[..., tuple[Any, ...]],
    doc: str,
    cost: float = 1.0,
    result: DType | None = None,
) -> Op:
    """Register an elementwise op of two operands of one dtype."""
    infer = infer_binary(name, kinds, result)
    return elementwise(name, infer, reference_elementwise(function), derivative, cost, doc)


INTEGER_RESULT = NoDerivative("its result is an integer")
BOOL_RESULT = NoDerivative("its result is boolean")
BITWISE = NoDerivative("it works on bits")


def piecewise_constant(name: str) -> NoDerivative:
    """0 wherever the derivative exists, and used as 0 everywhere."""
    return NoDerivative(f"{name} is piecewise constant", zero=True)


class Unary(Protocol):
    """Makes a node from one operand."""

    def __call__(self, x: Node) -> Node: ...


class Binary(Protocol):
    """Makes a node from two operands; a Python number takes the other operand's dtype."""

    def __call__(self, x: Operand, y: Operand) -> Node: ...


def unary_function(op: Op) -> Unary:
    """The function that makes ``op``'s nodes."""
    infer = op.infer

    def apply(x: Node) -> Node:
        inputs = (x,)
        shape, dtype = infer(inputs)
        return Node(op, inputs, (), shape, dtype, x.weak)

    return _named(apply, op)


def rounding_function(op: Op) -> Unary:
    """As :func:`unary_function` for an op that leaves integers and bools as they are."""

    def apply(x: Node) -> Node:
        return bind(op, (x,), (), x.weak) if x.dtype.kind == "f" else x

    return _named(apply, op)


def binary_function(op: Op) -> Binary:
    """The function that makes ``op``'s nodes."""
    keeps_weak = op.derivative is not BOOL_RESULT
    infer = op.infer

    def apply(x: Operand, y: Operand) -> Node:
        if x.__class__ is not Node or y.__class__ is not Node:
            x, y = as_nodes(op.name, x, y)
        inputs = (x, y)
        shape, dtype = infer(inputs)
        return Node(op, inputs, (), shape, dtype, x.weak and y.weak and keeps_weak)

    return _named(apply, op)


def as_nodes(name: str, *operands: Operand) -> tuple[Node, ...]:
    """``operands`` with Python numbers made constants of the first node's dtype."""
    for operand in operands:
        if isinstance(operand, Node):
            dtype = operand.dtype
            return tuple([x if isinstance(x, Node) else leaf.constant(x, dtype) for x in operands])
    raise DTypeError(f"{name}: at least one operand must be a node, got {operands}")


def _named(function: Any, op: Op) -> Any:
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc
    return function
