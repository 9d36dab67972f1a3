"""Making tensors: from data, filled, counted, and grids of them.

Functions with a ``dtype`` argument take the default float dtype (float32, see ``set_default_dtype``) unless their
arguments say otherwise. ``device`` is accepted for the array API's sake and must be ``"cpu"`` or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from ..graph.node import Node
from ..graph.tracking import is_tracked
from ..interop import from_dlpack_node, numpy_to_node
from ..ops import elementwise as ops
from ..ops import leaf
from ..ops import movement as move
from ..shapes import Shape, as_shape, broadcast_shapes
from ..tensor import Tensor
from .convert import ArrayLike, as_node, cast_node, from_object, promote, scalar_node


def _check_device(device: Any, op: str) -> None:
    if device is not None and device != "cpu":
        raise DeviceError(f"{op}: device {device!r} is not available; tensors live on 'cpu'")


def asarray(obj: Any, /, dtype: Any = None, *, copy: bool | None = None, device: Any = None) -> Tensor:
    """A tensor of ``obj``: a tensor, a NumPy array, a Python number, a nested list of these, or an object with
    ``__array__`` or ``__dlpack__``.

    NumPy arrays keep their dtype, and their memory is shared where the layout allows: later writes to the array then
    show in the tensor, and in what was made of it but not computed yet. (An array given to any other function, or to
    one under ``jit``, is copied or used at once.) Python floats take the default float dtype, ints int64.

    copy: True never shares memory; False raises ValueError where a copy would be needed; None copies as needed.
    Raises DTypeError for objects without a numeric dtype, ShapeError for ragged lists.
    """
    _check_device(device, "asarray")
    target = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(obj, Tensor):
        node = obj.node
        if target is None or node.dtype is target:
            return Tensor(node) if copy else obj
        if copy is False:
            raise ArgumentError(f"asarray: {node.dtype.name} cannot become {target.name} without a copy")
        return Tensor(ops.cast(node, target))
    if isinstance(obj, np.ndarray | np.generic):
        return Tensor(numpy_to_node(obj if isinstance(obj, np.ndarray) else np.asarray(obj), target, copy))
    if copy is False:
        raise ArgumentError(f"asarray: a tensor of {type(obj).__name__} needs a copy, which copy=False forbids")
    return Tensor(from_object(obj, target))


def array(obj: Any, /, dtype: Any = None, *, copy: bool = True) -> Tensor:
    """As :func:`asarray`, but memory is never shared with ``obj`` unless ``copy`` is False."""
    return asarray(obj, dtype, copy=True if copy else None)


def tensor(obj: Any, /, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
    """A new tensor of a copy of ``obj`` (see :func:`asarray`); ``requires_grad`` as in PyTorch."""
    result = asarray(obj, dtype, copy=True)
    return result.requires_grad_() if requires_grad else result


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """The tensor of an object with ``__dlpack__`` (of PyTorch, JAX, NumPy), sharing its memory where possible."""
    _check_device(device, "from_dlpack")
    if isinstance(x, Tensor):
        return Tensor(x.node)
    return Tensor(from_dlpack_node(x, copy))


# -- filled ------------------------------------------------------------------------------------------------------------


def _filled(shape: Any, value: bool | int | float, dtype: Any, device: Any, op: str) -> Tensor:
    _check_device(device, op)
    found = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    return Tensor(leaf.full(as_shape(shape, op), value, found))


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """0 everywhere."""
    return _filled(shape, 0, dtype, device, "zeros")


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """1 everywhere."""
    return _filled(shape, 1, dtype, device, "ones")


def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """0 everywhere: values that nobody set are not worth a surprise."""
    return _filled(shape, 0, dtype, device, "empty")


def full(shape: Any, fill_value: ArrayLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """``fill_value`` (a number or a tensor that broadcasts) everywhere; its dtype unless ``dtype`` is given."""
    _check_device(device, "full")
    extents = as_shape(shape, "full")
    if isinstance(fill_value, bool | int | float) and not isinstance(fill_value, np.generic):
        node = scalar_node(fill_value, dtypes.of_scalar(fill_value) if dtype is None else dtypes.as_dtype(dtype))
    else:
        node = as_node(fill_value, None, "full")
        if dtype is not None:
            node = cast_node(node, dtypes.as_dtype(dtype))
    if broadcast_shapes(node.shape, extents, op="full") != extents:
        raise ShapeError(f"full: a fill value of shape {node.shape} does not broadcast to {extents}")
    return Tensor(move.broadcast_to(node, extents))


def _like(x: ArrayLike, dtype: Any, op: str) -> tuple[Shape, DType]:
    node = as_node(x, None, op)
    return node.shape, node.dtype if dtype is None else dtypes.as_dtype(dtype)


def zeros_like(x: ArrayLike, /, dtype: Any = None, *, device: Any = None) -> Tensor:
    """0 in x's shape and dtype."""
    shape, found = _like(x, dtype, "zeros_like")
    return _filled(shape, 0, found, device, "zeros_like")


def ones_like(x: ArrayLike, /, dtype: Any = None, *, device: Any = None) -> Tensor:
    """1 in x's shape and dtype."""
    shape, found = _like(x, dtype, "ones_like")
    return _filled(shape, 1, found, device, "ones_like")


def empty_like(x: ArrayLike, /, dtype: Any = None, *, device: Any = None) -> Tensor:
    """0 in x's shape and dtype."""
    return zeros_like(x, dtype, device=device)


def full_like(x: ArrayLike, /, fill_value: ArrayLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """``fill_value`` in x's shape and dtype."""
    shape, found = _like(x, dtype, "full_like")
    return full(shape, fill_value, found, device=device)


# -- counted -----------------------------------------------------------------------------------------------------------


def arange(
    start: float, /, stop: float | None = None, step: float = 1, dtype: Any = None, *, device: Any = None
) -> Tensor:
    """``start, start + step, ...`` up to, not including, ``stop``; with one argument from 0 to it.

    Ints give int64, floats the default float dtype. Element i is ``start + i * step``, computed in the result's dtype
    (float32 for half types). ShapeError for a step of 0, GradientError for a tensor that a gradient depends on.
    """
    _check_device(device, "arange")
    if stop is None:
        start, stop = 0, start
    bounds = [_number(v, "arange") for v in (start, stop, step)]
    first, last, stride = bounds
    if stride == 0:
        raise ShapeError("arange: the step must not be 0")
    if dtype is not None:
        found = dtypes.as_dtype(dtype)
    else:
        found = dtypes.get_default_dtype() if any(isinstance(v, float) for v in bounds) else dtypes.int64
    if any(isinstance(v, float) for v in bounds):
        if not all(math.isfinite(v) for v in bounds):
            raise ShapeError(f"arange: bounds and step must be finite, got {first}, {last}, {stride}")
        count = max(math.ceil((last - first) / stride), 0)
    else:
        count = len(range(int(first), int(last), int(stride)))
    if found.kind == "b":
        raise DTypeError("arange: a numeric dtype expected, got bool")
    if found.kind in "iu" and any(isinstance(v, float) for v in bounds):
        positions = ops.cast(leaf.iota((count,), 0, dtypes.int64), dtypes.float64)
        return Tensor(ops.cast(ops.add(ops.multiply(positions, float(stride)), float(first)), found))
    work = dtypes.float32 if found.kind == "f" and found.itemsize == 2 else found
    if found.kind in "iu" and count:
        for v in (int(first), int(first) + (count - 1) * int(stride)):
            scalar_node(v, found)  # raises RangeError
        work = dtypes.int64 if found.itemsize < 8 or found.kind == "i" else found
        stride = int(stride) if work.kind == "i" else int(stride) % (1 << 64)
    node = leaf.iota((count,), 0, work)
    if stride != 1:
        node = ops.multiply(node, scalar_node(stride, work))
    if first != 0:
        node = ops.add(node, scalar_node(first, work))
    return Tensor(cast_node(node, found))


def _number(value: Any, op: str) -> int | float:
    """A bound given as a Python or NumPy number or as a 0-d tensor whose value is known, and which has no gradient."""
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return value
    if isinstance(value, Tensor) and value.dtype.kind == "f" and is_tracked(value.node):
        raise GradientError(
            f"{op}: bounds and step decide how many elements there are, and have no gradient; take it through "
            f"start + step * {op}(count), or give {op} a value by x.item()"
        )
    if isinstance(value, Tensor | np.ndarray | np.generic):
        number = value.item()
        if isinstance(number, int | float):
            return number
    raise DTypeError(f"{op}: a number expected, got {value!r}")


def linspace(
    start: ArrayLike, stop: ArrayLike, /, num: int = 50, dtype: Any = None, *, endpoint: bool = True, device: Any = None
) -> Tensor:
    """``num`` numbers at equal distances from ``start`` to ``stop``, both ends exact; without ``endpoint`` the last is
    left out. Tensor bounds broadcast, the new axis comes first.
    """
    _check_device(device, "linspace")
    if num < 0:
        raise ShapeError(f"linspace: num must not be negative, got {num}")
    a, b = promote(start, stop, op="linspace")
    work = a.dtype if a.dtype.kind == "f" else dtypes.get_default_dtype()
    found = dtypes.as_dtype(dtype) if dtype is not None else work
    if found.kind == "f" and found.itemsize > work.itemsize and a.weak:
        work = found
        a, b = promote_to(work, start, stop)
    if work.itemsize == 2:
        work = dtypes.float32
    a, b = cast_node(a, work), cast_node(b, work)
    shape = broadcast_shapes(a.shape, b.shape, op="linspace")
    line = (num, *shape)
    intervals = num - 1 if endpoint else num
    if intervals <= 0:
        return Tensor(cast_node(move.broadcast_to(a, line), found))
    position = leaf.iota(line, 0, work)
    # From the nearer end, so that both ends are exact and rounding errors are symmetric.
    step = ops.divide(ops.subtract(b, a), intervals)
    rising = ops.add(a, ops.multiply(position, step))
    falling = ops.subtract(b, ops.multiply(ops.subtract(float(intervals), position), step))
    node = ops.where(ops.less(position, intervals / 2), rising, falling)
    if found.kind in "iu":
        node = ops.floor(node)
    return Tensor(cast_node(node, found))


def promote_to(dtype: DType, *operands: ArrayLike) -> list[Node]:
    """Nodes of ``dtype``; Python numbers are rounded to it once."""
    return [
        scalar_node(x, dtype)
        if isinstance(x, bool | int | float) and not isinstance(x, np.generic)
        else cast_node(as_node(x), dtype)
        for x in operands
    ]


def eye(n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: Any = None, *, device: Any = None) -> Tensor:
    """1 on the diagonal ``k``, 0 elsewhere."""
    _check_device(device, "eye")
    found = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    shape = as_shape((n_rows, n_rows if n_cols is None else n_cols), "eye")
    rows, columns = leaf.iota(shape, 0, dtypes.int64), leaf.iota(shape, 1, dtypes.int64)
    return Tensor(cast_node(ops.equal(columns, ops.add(rows, int(k)) if k else rows), found))


def identity(n: int, dtype: Any = None) -> Tensor:
    """The identity matrix."""
    return eye(n, dtype=dtype)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy", sparse: bool = False) -> list[Tensor]:
    """Coordinate grids of vectors; ``indexing`` "ij" puts the first vector on axis 0, "xy" on axis 1.

    sparse: leave the other axes of each grid at extent 1, so that the grids broadcast against each other.
    Raises ArgumentError for another ``indexing``, ShapeError for more than one axis.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    nodes = [as_node(x, None, "meshgrid") for x in arrays]
    for n in nodes:
        if len(n.shape) > 1:
            raise ShapeError(f"meshgrid: vectors expected, got shape {n.shape}")
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[:2] = [1, 0]
    shape = [1] * len(nodes)
    for n, axis in zip(nodes, order, strict=True):
        shape[axis] = n.size
    grids = []
    for n, axis in zip(nodes, order, strict=True):
        line = [1] * len(nodes)
        line[axis] = n.size
        lined_up = move.reshape(n, tuple(line))
        grids.append(Tensor(lined_up if sparse else move.broadcast_to(lined_up, tuple(shape))))
    return grids


def fromfunction(function: Callable[..., ArrayLike], shape: Any, dtype: Any = None) -> Tensor:
    """``function`` of the coordinate grids of ``shape``, called once with tensors."""
    extents = as_shape(shape, "fromfunction")
    found = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    return asarray(function(*[Tensor(leaf.iota(extents, a, found)) for a in range(len(extents))]))
