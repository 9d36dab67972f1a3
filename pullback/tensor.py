"""Tensor: what users hold. A mutable name for an immutable node, with NumPy's operators and methods.

Everything that changes a tensor (``x += 1``, ``x[i] = v``, ``x.assign(v)``) makes it name another node. No two tensors
ever share changes, and no recorded computation is ever disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from . import api, dtypes, interop, printing
from .dtypes import DType
from .errors import ArgumentError, DTypeError, GradientError, ShapeError
from .graph.handle import Handle, _add_handle
from .graph.node import Node
from .graph.state import state
from .graph.tracking import no_grad
from .methods import Methods
from .ops import elementwise as ops
from .ops import leaf, movement
from .ops.leaf import CONSTANT
from .ops.registry import by_name
from .shapes import broadcast_shapes

if TYPE_CHECKING:
    from types import ModuleType

    from .api.indexing import At

_NEGATIVE = by_name("negative")
_OPERANDS: tuple[type, ...] = (np.ndarray, np.generic, bool, int, float, complex, list, tuple)


def _operator(
    name: str, api_name: str, reflected: bool = False, kinds: str = "iuf", compares: bool = False
) -> Callable[[Any, Any], Any]:
    """The method of a binary operator. Tensors of one dtype, of the ``kinds`` that need no conversion, and floating
    ones with Python numbers take a short way: an operator costs a microsecond or two, and half of that again would go
    into what these cases do not need."""
    op = by_name(name)
    boolean = dtypes.bool_

    def operator(self: Tensor, other: Any) -> Any:
        x = self._node
        trace = state.trace
        if x.trace is not trace:
            x = self.node
        dtype = x.dtype
        kind = other.__class__
        if kind is Tensor:
            y = other._node
            if y.trace is not trace:
                y = other.node
            if dtype is y.dtype and dtype.kind in kinds:
                shape = x.shape
                if shape != y.shape:
                    shape = broadcast_shapes(shape, y.shape, op=name)
                if compares:
                    return Tensor(Node(op, (x, y), (), shape, boolean))
                return Tensor(Node(op, (x, y), (), shape, dtype, x.weak and y.weak))
        elif (kind is float or kind is int) and dtype.kind == "f":
            weak = x.weak
            y = Node(CONSTANT, (), (float(other), False), (), dtype, weak)
            pair = (y, x) if reflected else (x, y)
            if compares:
                return Tensor(Node(op, pair, (), x.shape, boolean, False, None, y.site))
            return Tensor(Node(op, pair, (), x.shape, dtype, weak, None, y.site))
        if isinstance(other, (Tensor, *_OPERANDS)):
            function = getattr(_elementwise, api_name)
            return function(other, self) if reflected else function(self, other)
        return NotImplemented

    return operator


def _slow_operator(module: str, api_name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method of a binary operator that always goes through the public function."""

    def operator(self: Tensor, other: Any) -> Any:
        if not isinstance(other, (Tensor, *_OPERANDS)):
            return NotImplemented
        function = getattr(getattr(api, module), api_name)
        return function(other, self) if reflected else function(self, other)

    return operator


def _in_place(name: str, symbol: str) -> Callable[[Any, Any], Any]:
    """The method of ``x op= v``: the tensor names the result, in its own dtype and shape."""

    def operator(self: Tensor, other: Any) -> Any:
        result = getattr(self, name)(other)
        if result is NotImplemented:
            return result
        self._rebind_in_place(result.node, f"x {symbol} v")
        return self

    return operator


class Tensor(Methods):
    """A lazily evaluated array.

    Make one with ``pb.asarray``, ``pb.tensor``, ``pb.zeros`` and their like. Values are computed when something asks
    for them: printing, ``float(x)``, ``np.asarray(x)``, ``pb.eval(x)``.
    """

    __slots__ = ("_grad", "_hooks", "_requires_grad")

    __array_priority__ = 1000.0
    _grad: Tensor | None
    _requires_grad: bool | None  # None: a parameter that is frozen for now
    _hooks: Any

    def __init__(self, node: Node) -> None:
        self._node = node
        self._grad = None
        self._requires_grad = False
        self._hooks = None
        node.handles = ref(self) if node.handles is None else _add_handle(node.handles, self)

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.node.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.node.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        node = self.node
        return node.size * node.dtype.itemsize

    @property
    def device(self) -> str:
        """Where the value lives: ``"cpu"``."""
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """The tensor itself: there is one device so far."""
        if device != "cpu":
            from .errors import DeviceError

            raise DeviceError(f"to_device: device {device!r} is not available; tensors live on 'cpu'")
        return self

    def __len__(self) -> int:
        shape = self.node.shape
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    def __repr__(self) -> str:
        return printing.tensor_repr(self)

    def __str__(self) -> str:
        return printing.tensor_str(self)

    def __format__(self, spec: str) -> str:
        return printing.tensor_format(self, spec)

    __hash__ = object.__hash__

    # -- values out ----------------------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value as a read-only NumPy array that shares the tensor's memory; ``np.array(x)`` can be written to."""
        return interop.materialize(self.node, "numpy()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = interop.materialize(self.node, "np.asarray()")
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ArgumentError(f"np.asarray: {array.dtype} cannot become {np.dtype(dtype)} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The array API's way to find the functions that go with a tensor."""
        import pullback

        return pullback

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        return interop.to_dlpack(self, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return interop.dlpack_device()

    def item(self, *index: int) -> Any:
        """The only element, or the one at ``index``, as a Python bool, int or float."""
        if index:
            return self[index].item()
        return self._scalar("item()")

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return interop.materialize(self.node, "tolist()").tolist()

    def _scalar(self, purpose: str) -> Any:
        node = self.node
        if node.size != 1:
            raise ShapeError(f"{purpose}: a tensor of one element expected, got shape {node.shape}")
        return interop.materialize(node, purpose).item()

    def __bool__(self) -> bool:
        node = self.node
        if node.size != 1:
            raise ShapeError(
                f"the truth value of a tensor of shape {node.shape} is ambiguous; use pb.any(x) or pb.all(x)"
            )
        return bool(interop.materialize(node, "bool() or a branch").item())

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        node = self.node
        if node.dtype.kind not in "iu" or node.shape:
            raise DTypeError(f"only a 0-d integer tensor can be an index, got {node.dtype.name} of shape {node.shape}")
        return int(interop.materialize(node, "an integer index").item())

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Tensor:
        """NumPy's elementwise functions and its arrays' operators on a tensor: Pullback's function of that name."""
        import pullback

        function = getattr(pullback, ufunc.__name__, None)
        if method != "__call__" or options or function is None:
            call = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            extra = f" with {', '.join(options)}=" if options else ""
            raise DTypeError(
                f"np.{call}{extra} does not take a Tensor; use Pullback's functions, or NumPy's on np.asarray(tensor)"
            )
        result: Tensor = function(*inputs)
        return result

    # -- copies --------------------------------------------------------------------------------------------------------

    def __copy__(self) -> Tensor:
        copied = Tensor(_leaf(self.node) if self._requires_grad else self.node)
        copied._requires_grad = self._requires_grad
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = self.__copy__()
        memo[id(self)] = copied
        if self._grad is not None:
            copied._grad = Tensor(self._grad.node)
        return copied

    def copy(self) -> Tensor:
        """Another name for the same value; changing one does not change the other."""
        return Tensor(self.node)

    def __reduce__(self) -> tuple[Any, ...]:
        return interop.unpack, interop.pack(self)

    # -- changes -------------------------------------------------------------------------------------------------------

    def rebind(self, node: Node) -> None:
        """Make this tensor name ``node`` from now on; one that requires a gradient stays a leaf."""
        Handle.rebind(self, _leaf(node) if self._requires_grad else node)

    def _rebind_in_place(self, node: Node, op: str) -> None:
        """Take the result of an in-place operation, in this tensor's dtype and shape."""
        before = self.node
        if self._requires_grad and state.grad_enabled:
            raise GradientError(
                f"{op}: changing a tensor that requires a gradient in place would lose the gradient; "
                "change it under pb.no_grad(), use x.assign(value), or write y = x + ... instead"
            )
        if node.shape != before.shape:
            raise ShapeError(
                f"{op}: the result has shape {node.shape}, the tensor {before.shape}; write x = x + ... instead"
            )
        if node.dtype is not before.dtype:
            if not dtypes.can_cast(node.dtype, before.dtype, "same_kind"):
                raise DTypeError(
                    f"{op}: the result has dtype {node.dtype.name} and cannot be stored in {before.dtype.name} in "
                    "place; write x = x + ... instead"
                )
            node = ops.cast(node, before.dtype)
        if node.weak is not before.weak:
            node = ops.alias(node)
            node.weak = before.weak
        self.rebind(node)

    def assign(self, value: Any) -> Tensor:
        """Make this tensor hold ``value``, of the same shape (or broadcast to it) and a dtype that casts to it.

        A tensor that requires a gradient stays a leaf: gradients do not flow from it into ``value``.
        Raises ShapeError or DTypeError if the value does not fit.
        """
        before = self.node
        node = _convert.as_node(value, before.dtype, "assign")
        if node.shape != before.shape:
            if broadcast_shapes(node.shape, before.shape, op="assign") != before.shape:
                raise ShapeError(f"assign: a value of shape {node.shape} does not fit a tensor of shape {before.shape}")
            node = movement.broadcast_to(node, before.shape)
        if node.dtype is not before.dtype:
            if not dtypes.can_cast(node.dtype, before.dtype, "same_kind"):
                raise DTypeError(
                    f"assign: {node.dtype.name} cannot be stored in {before.dtype.name}; use value.astype(...)"
                )
            node = _convert.cast_node(node, before.dtype)
        if node.weak is not before.weak:
            node = ops.alias(node)
            node.weak = before.weak
        self.rebind(node)
        return self

    # -- derivatives ---------------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether the tensor was made with ``requires_grad_()``, or computed from one that was."""
        return self.node.rg

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Make ``backward()`` collect this tensor's gradient in ``.grad`` (or no longer); returns the tensor.

        A tensor that required a gradient once stays a parameter of its module while it is frozen by False.
        Raises GradientError for an integer or bool tensor.
        """
        node = self.node
        if not requires_grad:
            if self._requires_grad or node.rg:
                self._requires_grad = None if self._requires_grad else False
                with no_grad():
                    Handle.rebind(self, _cut(node))
            return self
        if node.dtype.kind != "f":
            raise GradientError(
                f"requires_grad_: only floating tensors have gradients, this one has dtype {node.dtype.name} and shape "
                f"{node.shape}"
            )
        if not node.rg:
            self._requires_grad = True
            Handle.rebind(self, _leaf(node))
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that ``backward()`` collected, or None."""
        trace = state.trace
        if trace is not None and self._node.trace is not trace:
            return trace.read_grad(self)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                value = _convert.wrap(_convert.as_node(value, self.dtype, "grad"))
            if value.shape != self.shape:
                raise ShapeError(f"grad: shape {value.shape} does not fit a tensor of shape {self.shape}")
        trace = state.trace
        if trace is not None and self._node.trace is not trace:
            trace.write_grad(self, value)
            return
        self._grad = value
        if value is not None and state.trace is None:
            state.changed[id(value)] = ref(value)

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Add the gradient of this tensor to ``.grad`` of every tensor with ``requires_grad_()`` that it depends on.

        gradient: the cotangent, of this tensor's shape; needed unless the tensor has one element.
        retain_graph: accepted for PyTorch's sake; a graph can always be differentiated again.
        create_graph: the gradients can be differentiated themselves.
        """
        from .transforms.backward import backward

        backward(self, gradient, create_graph)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Any:
        """Call ``hook(gradient)`` in every ``backward()`` that reaches this value; a tensor that it returns replaces
        the gradient. The result's ``remove()`` takes the hook away."""
        from .transforms.backward import register_hook

        return register_hook(self, hook)

    def detach(self) -> Tensor:
        """The same value as a constant: no derivative flows through it."""
        node = self.node
        with no_grad():
            return Tensor(_cut(node))

    # -- indexing ------------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Tensor:
        return _indexing.get_item(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._rebind_in_place(_indexing.set_item(self.node, index, value), "x[index] = value")

    @property
    def at(self) -> At:
        """``x.at[index].set(v)``, ``.add``, ``.multiply``, ``.min``, ``.max``: a changed copy, x stays as it is."""
        return _indexing.At(self)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.node.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(self.node.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool(_reduction.any(_elementwise.equal(self, value)))

    # -- operators -----------------------------------------------------------------------------------------------------

    __add__ = _operator("add", "add")
    __radd__ = _operator("add", "add", reflected=True)
    __sub__ = _operator("subtract", "subtract")
    __rsub__ = _operator("subtract", "subtract", reflected=True)
    __mul__ = _operator("multiply", "multiply")
    __rmul__ = _operator("multiply", "multiply", reflected=True)
    __truediv__ = _operator("divide", "divide", kinds="f")
    __rtruediv__ = _operator("divide", "divide", reflected=True, kinds="f")
    __floordiv__ = _operator("floor_divide", "floor_divide")
    __rfloordiv__ = _operator("floor_divide", "floor_divide", reflected=True)
    __mod__ = _operator("remainder", "remainder")
    __rmod__ = _operator("remainder", "remainder", reflected=True)
    __lt__ = _operator("less", "less", compares=True)
    __le__ = _operator("less_equal", "less_equal", compares=True)
    __gt__ = _operator("greater", "greater", compares=True)
    __ge__ = _operator("greater_equal", "greater_equal", compares=True)
    __eq__ = _operator("equal", "equal", compares=True)
    __ne__ = _operator("not_equal", "not_equal", compares=True)
    __pow__ = _slow_operator("elementwise", "pow")
    __rpow__ = _slow_operator("elementwise", "pow", reflected=True)
    __divmod__ = _slow_operator("elementwise", "divmod")
    __rdivmod__ = _slow_operator("elementwise", "divmod", reflected=True)
    __and__ = _slow_operator("elementwise", "bitwise_and")
    __rand__ = _slow_operator("elementwise", "bitwise_and", reflected=True)
    __or__ = _slow_operator("elementwise", "bitwise_or")
    __ror__ = _slow_operator("elementwise", "bitwise_or", reflected=True)
    __xor__ = _slow_operator("elementwise", "bitwise_xor")
    __rxor__ = _slow_operator("elementwise", "bitwise_xor", reflected=True)
    __lshift__ = _slow_operator("elementwise", "bitwise_left_shift")
    __rlshift__ = _slow_operator("elementwise", "bitwise_left_shift", reflected=True)
    __rshift__ = _slow_operator("elementwise", "bitwise_right_shift")
    __rrshift__ = _slow_operator("elementwise", "bitwise_right_shift", reflected=True)
    __matmul__ = _slow_operator("contraction", "matmul")
    __rmatmul__ = _slow_operator("contraction", "matmul", reflected=True)

    __iadd__ = _in_place("__add__", "+=")
    __isub__ = _in_place("__sub__", "-=")
    __imul__ = _in_place("__mul__", "*=")
    __itruediv__ = _in_place("__truediv__", "/=")
    __ifloordiv__ = _in_place("__floordiv__", "//=")
    __imod__ = _in_place("__mod__", "%=")
    __ipow__ = _in_place("__pow__", "**=")
    __iand__ = _in_place("__and__", "&=")
    __ior__ = _in_place("__or__", "|=")
    __ixor__ = _in_place("__xor__", "^=")
    __ilshift__ = _in_place("__lshift__", "<<=")
    __irshift__ = _in_place("__rshift__", ">>=")
    __imatmul__ = _in_place("__matmul__", "@=")

    def __neg__(self) -> Tensor:
        node = self.node
        if node.dtype.kind == "f":
            return Tensor(Node(_NEGATIVE, (node,), (), node.shape, node.dtype, node.weak))
        return _unary.negative(self)

    def __pos__(self) -> Tensor:
        return _unary.positive(self)

    def __abs__(self) -> Tensor:
        return _unary.abs(self)

    def __invert__(self) -> Tensor:
        return _unary.bitwise_invert(self)

    def __round__(self, ndigits: int | None = None) -> Tensor:
        return _unary.round(self, ndigits or 0)


def _leaf(node: Node) -> Node:
    """A node of the same value at which ``backward()`` collects a gradient; being constant, it ends the way there."""
    with no_grad():
        leaf_node = _cut(node)
    leaf_node.rg = True
    return leaf_node


def _cut(node: Node) -> Node:
    """A new node of the same value without a history; call it under ``no_grad``."""
    if node.buffer is not None and node.trace is state.trace:
        return Node(leaf.DATA, (), (), node.shape, node.dtype, node.weak, node.buffer)
    return ops.alias(node)


from .api import convert as _convert  # noqa: E402
from .api import elementwise as _elementwise  # noqa: E402
from .api import indexing as _indexing  # noqa: E402
from .api import reduction as _reduction  # noqa: E402
from .api import unary as _unary  # noqa: E402
