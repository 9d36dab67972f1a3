"""From what users pass (tensors, NumPy arrays, Python numbers, nested lists) to nodes of a common dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, RangeError, ShapeError
from ..graph.node import Node, bind
from ..graph.state import state
from ..interop import numpy_to_node
from ..ops import leaf
from ..ops import movement as move
from ..ops.leaf import CONSTANT
from ..ops.record import Op
from ..ops.registry import by_name
from ..shapes import broadcast_shapes
from ..tensor import Tensor

ArrayLike = Any  # Tensor, NumPy array, Python number, or a nested list of these

_PYTHON_NUMBERS = (bool, int, float)
_MAX_NESTING = 64
_CAST = by_name("cast")


def wrap(node: Node) -> Tensor:
    """A tensor that names ``node``."""
    return Tensor(node)


def scalar_node(value: Any, dtype: DType, weak: bool = False, static: bool = False, op: str = "") -> Node:
    """The 0-d constant ``value`` of ``dtype``; RangeError for an integer that ``dtype`` cannot hold."""
    kind = dtype.kind
    if kind == "f":
        value = float(value)
    elif kind == "b":
        value = bool(value)
    else:
        value = int(value)
        low, high = dtypes.integer_limits(dtype)
        if not low <= value <= high:
            wider = ", and no dtype is wider" if dtype.itemsize == 8 else "; cast the tensor to a wider dtype"
            raise RangeError(
                f"{op}{op and ': '}Python integer {value} out of bounds for {dtype.name} ({low} to {high}){wider}"
            )
    return leaf.constant(value, dtype, weak=weak, static=static)


def as_node(x: ArrayLike, like_dtype: DType | None = None, op: str = "asarray") -> Node:
    """The node of one operand. A Python number becomes a weak constant, or one of ``like_dtype`` if that is given."""
    if isinstance(x, Tensor):
        return x.node
    kind = type(x)
    if kind is float or kind is int or kind is bool:
        if like_dtype is None:
            return scalar_node(x, dtypes.of_scalar(x), weak=True, op=op)
        return scalar_node(x, dtypes.promote_weak(like_dtype, dtypes.of_scalar(x)), op=op)
    if isinstance(x, np.ndarray | np.generic):
        return numpy_to_node(np.asarray(x), None, True, op)
    return from_object(x, None, op)


def promote(*operands: ArrayLike, op: str = "operation") -> list[Node]:
    """Nodes of one common dtype, by the array API's promotion with weak Python scalars.

    Raises DTypeError if the operands have no common dtype, RangeError for a Python int out of the dtype's range.
    """
    alike = _alike(operands)
    if alike is not None:
        return alike
    nodes: list[Any] = []
    strong: DType | None = None
    weak: DType | None = None
    for x in operands:
        kind = type(x)
        if kind is float or kind is int or kind is bool:
            nodes.append(x)
            dtype = dtypes.of_scalar(x)
            weak = dtype if weak is None else _wider_kind(weak, dtype)
            continue
        node = x if kind is Node else as_node(x, None, op)
        nodes.append(node)
        dtype = node.dtype
        if node.weak:
            weak = dtype if weak is None else _wider_kind(weak, dtype)
        else:
            strong = dtype if strong is None else dtypes.promote_types(strong, dtype)
    if strong is None:
        if weak is None:
            raise DTypeError(f"{op}: at least one operand is needed")
        target = _weak_target(weak, nodes)
    else:
        target = strong if weak is None else dtypes.promote_weak(strong, weak)
    all_weak = strong is None
    return [
        cast_node(x, target, all_weak) if type(x) is Node else scalar_node(x, target, weak=all_weak, op=op)
        for x in nodes
    ]


def promote_to(preferred: Any, *nodes: Node, op: str) -> list[Node]:
    """The nodes, of one dtype, in a dtype that holds theirs; DTypeError for one that does not."""
    dtype = dtypes.as_dtype(preferred)
    for node in nodes:
        if not node.weak and not dtypes.can_cast(node.dtype, dtype):
            raise DTypeError(
                f"{op}: preferred_dtype {dtype.name} does not hold the operands' {node.dtype.name}; cast the operands "
                f"or the result with x.astype(pb.{dtype.name})"
            )
    return [cast_node(node, dtype, False) for node in nodes]


def _alike(operands: tuple[Any, ...]) -> list[Node] | None:
    """What ``promote`` mostly meets, and answers at once: tensors of one dtype, and Python numbers beside floating
    ones; else None."""
    dtype: DType | None = None
    numbers, all_weak = False, True
    for x in operands:
        kind = x.__class__
        if kind is float or kind is int:
            numbers = True
            continue
        if kind is Tensor:
            x = x.node
        elif kind is not Node:
            return None
        if dtype is None:
            dtype = x.dtype
        elif x.dtype is not dtype:
            return None
        if not x.weak:
            all_weak = False
    if dtype is None or (numbers and dtype.kind != "f"):
        return None
    return [
        x.node if x.__class__ is Tensor
        else x if x.__class__ is Node
        else Node(CONSTANT, (), (float(x), False), (), dtype, all_weak)
        for x in operands
    ]


def _wider_kind(a: DType, b: DType) -> DType:
    return dtypes.promote_types(a, b) if a.kind == b.kind else dtypes.promote_weak(a, b)


def _weak_target(weak: DType, nodes: list[Any]) -> DType:
    """All operands are weak: keep the dtype of the weak tensors among them if it is of the winning kind."""
    found: DType | None = None
    for x in nodes:
        if type(x) is Node and x.dtype.kind == weak.kind:
            found = x.dtype if found is None else dtypes.promote_types(found, x.dtype)
    return weak if found is None else found


def cast_node(node: Node, dtype: DType, weak: bool = False) -> Node:
    """``node`` as ``dtype``; the node itself if it has that dtype already."""
    if node.weak and dtype is dtypes.float64 and node.dtype.kind == "f" and state.trace is not None:
        node = state.trace.in_float64(node) or node
    return node if node.dtype is dtype else bind(_CAST, (node,), (dtype,), weak)


def floating(node: Node) -> Node:
    """``node``, or, if it holds integers or bools, its cast to the default float dtype."""
    return node if node.dtype.kind == "f" else cast_node(node, dtypes.get_default_dtype())


def binary(op: Op, x: ArrayLike, y: ArrayLike) -> Tensor:
    """``op(x, y)`` after promotion, broadcast NumPy's way."""
    a, b = promote(x, y, op=op.name)
    return Tensor(bind(op, (a, b), (), a.weak and b.weak))


def broadcast_nodes(nodes: Sequence[Node], op: str) -> list[Node]:
    """The nodes, each broadcast to their common shape."""
    shape = broadcast_shapes(*[n.shape for n in nodes], op=op)
    return [n if n.shape == shape else move.broadcast_to(n, shape) for n in nodes]


def result_type(*operands: Any) -> DType:
    """The dtype that an operation on ``operands`` (tensors, NumPy arrays, dtypes, Python numbers) computes in."""
    strong: DType | None = None
    weak: DType | None = None
    for x in operands:
        kind = type(x)
        if kind is float or kind is int or kind is bool:
            dtype, is_weak = dtypes.of_scalar(x), True
        elif isinstance(x, Tensor):
            dtype, is_weak = x.node.dtype, x.node.weak
        elif isinstance(x, np.ndarray | np.generic):
            dtype, is_weak = dtypes.from_numpy(x.dtype), False
        else:
            dtype, is_weak = dtypes.as_dtype(x), False
        if is_weak:
            weak = dtype if weak is None else _wider_kind(weak, dtype)
        else:
            strong = dtype if strong is None else dtypes.promote_types(strong, dtype)
    if strong is None:
        if weak is None:
            raise DTypeError("result_type: at least one operand is needed")
        return weak
    return strong if weak is None else dtypes.promote_weak(strong, weak)


def can_cast(source: Any, target: Any, casting: str = "safe") -> bool:
    """Whether a tensor or dtype ``source`` casts to dtype ``target``: "safe" (the array API's rule) or "same_kind"."""
    found = source.dtype if isinstance(source, Tensor | np.ndarray | np.generic) else source
    return dtypes.can_cast(dtypes.as_dtype(found), dtypes.as_dtype(target), casting)


# -- nested lists ------------------------------------------------------------------------------------------------------


class _Contents:
    """What a nested list holds: the dtypes of its arrays, the kind of its Python numbers, whether tensors are in it."""

    def __init__(self) -> None:
        self.strong: DType | None = None
        self.weak: DType | None = None
        self.has_tensor = False
        self.has_object = False

    def add(self, obj: Sequence[Any], op: str, depth: int = 0) -> None:
        if depth > _MAX_NESTING:
            raise ShapeError(f"{op}: lists nested deeper than {_MAX_NESTING} levels")
        kinds = set(map(type, obj))
        if kinds <= {float, int, bool}:
            for kind in kinds:
                self._number(dtypes.as_dtype(kind))
            return
        for element in obj:
            kind = type(element)
            if kind is list or kind is tuple:
                self.add(element, op, depth + 1)
            elif isinstance(element, Tensor):
                self.has_tensor = True
                self._array(element.node.dtype, element.node.weak)
            elif isinstance(element, np.ndarray | np.generic):
                self._array(dtypes.from_numpy(element.dtype), False)
            elif isinstance(element, _PYTHON_NUMBERS):
                self._number(dtypes.of_scalar(element))
            elif isinstance(element, str | bytes) or element is None or isinstance(element, complex):
                raise DTypeError(f"{op}: cannot make a tensor from {type(element).__name__} {element!r}")
            elif isinstance(element, Sequence):
                self.add(element, op, depth + 1)
            else:
                array = _foreign_array(element, op)
                self.has_object = True
                self._array(dtypes.from_numpy(array.dtype), False)

    def _array(self, dtype: DType, weak: bool) -> None:
        if weak:
            self._number(dtype)
        else:
            self.strong = dtype if self.strong is None else dtypes.promote_types(self.strong, dtype)

    def _number(self, dtype: DType) -> None:
        self.weak = dtype if self.weak is None else _wider_kind(self.weak, dtype)

    def dtype(self) -> DType:
        if self.strong is None:
            return dtypes.get_default_dtype() if self.weak is None else self.weak
        return self.strong if self.weak is None else dtypes.promote_weak(self.strong, self.weak)


def _offers_array(obj: Any) -> bool:
    """Whether NumPy can read ``obj`` whole, by its array or buffer protocol."""
    if hasattr(obj, "__array__") or hasattr(obj, "__array_interface__"):
        return True
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _foreign_array(obj: Any, op: str) -> np.ndarray[Any, Any]:
    """The NumPy array of an object that offers one."""
    if _offers_array(obj):
        return np.asarray(obj)
    if hasattr(obj, "__dlpack__"):
        return np.from_dlpack(obj)
    raise DTypeError(f"{op}: cannot make a tensor from an object of type {type(obj).__name__}")


def from_object(obj: Any, dtype: DType | None, op: str = "asarray") -> Node:
    """The node of a nested list, a Python number or an object that offers an array.

    Python floats take the default float dtype, ints int64; NumPy arrays and tensors inside keep theirs and are
    promoted. Tensors inside stay in the graph, so derivatives flow through them.

    Raises ShapeError for ragged lists, DTypeError for what is not numeric.
    """
    if isinstance(obj, _PYTHON_NUMBERS) and not isinstance(obj, np.generic):
        found = dtypes.of_scalar(obj) if dtype is None else dtype
        return scalar_node(obj, found, op=op)
    if isinstance(obj, range):
        obj = list(obj)
    if isinstance(obj, str | bytes) or obj is None or isinstance(obj, complex | dict | set):
        raise DTypeError(f"{op}: cannot make a tensor from {type(obj).__name__} {obj!r}")
    if not isinstance(obj, list | tuple) and (not isinstance(obj, Sequence) or _offers_array(obj)):
        return numpy_to_node(_foreign_array(obj, op), dtype, True, op)
    contents = _Contents()
    contents.add(obj, op)
    target = contents.dtype() if dtype is None else dtype
    if contents.has_tensor or contents.has_object:
        return _stack(obj, target, op)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.array(obj, dtype=target.numpy)
    except OverflowError as error:
        raise RangeError(f"{op}: a Python integer is out of bounds for {target.name}") from error
    except (ValueError, TypeError) as error:
        if "inhomogeneous" in str(error) or "setting an array element" in str(error):
            raise ShapeError(f"{op}: ragged nested lists do not form an array ({error})") from error
        raise DTypeError(f"{op}: {error}") from error
    return leaf.data(np.ascontiguousarray(array).reshape(array.shape), False)


def _stack(obj: Any, dtype: DType, op: str) -> Node:
    """Nested lists with tensors in them, stacked in the graph."""
    if isinstance(obj, Tensor):
        return cast_node(obj.node, dtype)
    if isinstance(obj, _PYTHON_NUMBERS) and not isinstance(obj, np.generic):
        return scalar_node(obj, dtype, op=op)
    if isinstance(obj, np.ndarray | np.generic):
        return numpy_to_node(np.asarray(obj), dtype, True, op)
    if not isinstance(obj, Sequence):
        return numpy_to_node(_foreign_array(obj, op), dtype, True, op)
    parts = [_stack(element, dtype, op) for element in obj]
    if not parts:
        return leaf.data(np.zeros((0,), dtype.numpy), False)
    shape = parts[0].shape
    for part in parts[1:]:
        if part.shape != shape:
            raise ShapeError(
                f"{op}: ragged nested lists do not form an array (elements of shapes {shape} and {part.shape})"
            )
    expanded = [move.reshape(part, (1, *shape)) for part in parts]
    return expanded[0] if len(expanded) == 1 else move.concat(expanded, 0)


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = True) -> Tensor:
    """The values as ``dtype``. To bool: ``x != 0``; float to integer: truncated, saturated, NaN as 0; integers wrap.

    copy: accepted for the array API's sake; a tensor never shares changes with another.
    """
    node = as_node(x, None, "astype")
    target = dtypes.as_dtype(dtype)
    if node.dtype is target and not node.weak:
        return Tensor(node)
    return Tensor(bind(_CAST, (node,), (target,)))
