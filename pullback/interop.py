"""Values in and out of the graph: NumPy arrays, DLPack, pickled bytes.

NumPy arrays come in with their dtype and value kept, whatever their layout: big-endian arrays become native, strided
ones are copied. What holds no numbers that Pullback has (object, string, date, complex and masked arrays) is an error.
Values go out as read-only NumPy views of the buffers, without a copy: a node's value never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .dtypes import DType
from .errors import ArgumentError, CompileError, DTypeError, TraceError
from .graph.node import Node
from .graph.state import describe_site, state
from .graph.tracking import is_tracked
from .ops import leaf
from .ops.selection import float_to_integer
from .runtime.buffers import Buffer
from .runtime.evaluate import evaluate
from .shapes import Shape, size_of

if TYPE_CHECKING:
    from .tensor import Tensor

NumpyArray = np.ndarray[Any, Any]

_DLPACK_CPU = (1, 0)  # kDLCPU, device 0


def numpy_to_node(array: NumpyArray, dtype: DType | None, copy: bool | None, op: str = "asarray") -> Node:
    """The evaluated node of a NumPy array.

    copy: True copies, None copies only where the layout, byte order or dtype need it, False raises ValueError there.
    A node that shares the array's memory shows later writes to it.
    """
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):  # asking for np.ma imports it
        raise DTypeError(f"{op}: a masked array would lose its mask; fill it first with array.filled(value)")
    try:
        source = dtypes.from_numpy(array.dtype)
    except DTypeError as error:
        raise DTypeError(f"{op}: {error}") from None
    target = source if dtype is None else dtype
    if array.dtype != target.numpy or not array.dtype.isnative:
        if copy is False:
            raise ArgumentError(f"{op}: dtype {array.dtype} cannot become {target.name} without a copy")
        if source.kind == "f" and target.kind in "iu":
            converted = float_to_integer(np.array(array, source.numpy, ndmin=1), target).reshape(array.shape)
            return leaf.data(converted, False)
        with np.errstate(over="ignore", invalid="ignore"):
            return leaf.data(array.astype(target.numpy, order="C", subok=False), False)
    if not array.flags.c_contiguous or not array.flags.aligned or type(array) is not np.ndarray:
        if copy is False and not (array.flags.c_contiguous and array.flags.aligned):
            raise ArgumentError(f"{op}: an array that is not C-contiguous and aligned needs a copy")
        array = np.array(array, order="C", subok=False, copy=True)
        return leaf.data(array, False)
    return leaf.data(array, copy is True)


def materialize(node: Node, purpose: str) -> NumpyArray:
    """The value of ``node`` as a read-only NumPy view, evaluated now if it was not.

    purpose: what needs the value, for the TraceError raised while a function is being traced.
    """
    buffer = node.buffer
    if buffer is None:
        if node.trace is not None:
            raise traced_error(node, purpose)
        evaluate([node])
        buffer = node.buffer
        if buffer is None:
            raise CompileError(f"evaluation gave {node!r} no value")
    return buffer.numpy(node.shape, node.dtype.numpy)


def has_plain_value(node: Node) -> bool:
    """Whether ``node`` is a value and nothing more: evaluated, outside of any trace, of no interest to a derivative."""
    return node.buffer is not None and state.trace is None and not is_tracked(node)


def part_of(node: Node, shape: Shape, offset: int = 0) -> Node:
    """The elements of an evaluated node from ``offset`` on as a node of ``shape`` that shares its memory.

    The part keeps the whole alive, and neither is written in place while the other lives.
    """
    whole = node.buffer
    if whole is None:
        raise CompileError(f"{node!r} has no value to share")
    if offset or shape != node.shape:
        itemsize = node.dtype.itemsize
        whole = Buffer(whole.address + offset * itemsize, size_of(shape) * itemsize, whole)
    return Node(leaf.DATA, (), (), shape, node.dtype, node.weak, whole)


def traced_error(node: Node, purpose: str) -> TraceError:
    """The error for a value asked of a tensor that stands for any value."""
    return TraceError(
        f"{purpose} needs the value of a tensor of shape {node.shape} and dtype {node.dtype.name} that is being traced "
        f"(made at {describe_site(node.site)}): under jit or vmap it stands for any value. Choose between values with "
        "pb.where, between computations with pb.cond; or mark the argument as static"
    )


def is_traced(node: Node) -> bool:
    """Whether ``node`` stands for any value rather than having one."""
    return node.buffer is None and node.trace is not None


# -- DLPack ------------------------------------------------------------------------------------------------------------


def dlpack_device() -> tuple[int, int]:
    """The DLPack device of every tensor: the CPU."""
    return _DLPACK_CPU


def to_dlpack(tensor: Tensor, max_version: tuple[int, int] | None, dl_device: Any, copy: bool | None) -> Any:
    """A DLPack capsule of the tensor's value; consumers that know read-only arrays (DLPack 1.0) share its memory.

    Older consumers get a copy, since they could write to the shared value. Raises BufferError for bfloat16, which
    NumPy's exporter does not know, and for other devices.
    """
    if dl_device is not None and tuple(dl_device) != _DLPACK_CPU:
        raise BufferError(f"__dlpack__: tensors live on the CPU {_DLPACK_CPU}, not on device {tuple(dl_device)}")
    node = tensor.node
    if node.dtype is dtypes.bfloat16:
        raise BufferError("__dlpack__: bfloat16 cannot be exchanged through NumPy; use x.astype(pb.float32)")
    array = materialize(node, "__dlpack__")
    versioned = max_version is not None and max_version[0] >= 1
    if not versioned:
        if copy is False:
            raise BufferError("__dlpack__: a consumer older than DLPack 1.0 needs a copy, which copy=False forbids")
        return array.copy().__dlpack__()
    if copy:
        array = array.copy()
    return array.__dlpack__(max_version=max_version)


def from_dlpack_node(obj: Any, copy: bool | None) -> Node:
    """The node of an object with ``__dlpack__``, sharing its memory where the layout allows."""
    if not hasattr(obj, "__dlpack__"):
        raise DTypeError(f"from_dlpack: {type(obj).__name__} has no __dlpack__ method")
    try:
        array = np.from_dlpack(obj)
    except (BufferError, RuntimeError) as error:
        raise DTypeError(f"from_dlpack: NumPy cannot read this array ({error})") from error
    return numpy_to_node(array, None, copy, "from_dlpack")


# -- pickling ----------------------------------------------------------------------------------------------------------


def pack(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes, bool | None]:
    """What a pickled tensor holds: dtype name, shape, bytes in C order, whether it asks for a gradient."""
    node = tensor.node
    return node.dtype.name, node.shape, materialize(node, "pickling").tobytes(), tensor._requires_grad


def unpack(name: str, shape: tuple[int, ...], content: bytes, requires_grad: bool | None) -> Tensor:
    """The tensor that :func:`pack` described."""
    from .tensor import Tensor

    array = np.frombuffer(content, dtypes.by_name(name).numpy).reshape(shape)
    tensor = Tensor(leaf.data(array, True))
    if requires_grad:
        return tensor.requires_grad_()
    tensor._requires_grad = requires_grad
    return tensor
