"""The methods of a tensor that are public functions with the tensor as first argument: ``x.sum()`` is ``pb.sum(x)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import api
from .errors import ArgumentError
from .graph.handle import Handle

if TYPE_CHECKING:
    import pullback.api.contraction
    import pullback.api.convert
    import pullback.api.cumulative
    import pullback.api.diagonal
    import pullback.api.elementwise
    import pullback.api.indexing
    import pullback.api.joining
    import pullback.api.manipulation
    import pullback.api.nan_reduction
    import pullback.api.reduction
    import pullback.api.sorting
    import pullback.api.statistics
    import pullback.api.unary
    import pullback.api.windows  # noqa: F401

    from .tensor import Tensor


def _no_out(out: Any, op: str) -> None:
    if out is not None:
        raise ArgumentError(f"{op}: out= is not available; assign the result instead")


def _function(module: str, name: str) -> Callable[..., Any]:
    """The method that calls the public function ``name`` of an api module with the tensor as its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(api, module), name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``pb.{name}`` of the tensor."
    return method


class Methods(Handle):
    """See the functions of the same names; those that reduce take NumPy's arguments."""

    __slots__ = ()

    def astype(self, dtype: Any, copy: bool = True) -> Tensor:
        """The values as ``dtype``."""
        return api.convert.astype(self, dtype, copy=copy)

    @property
    def T(self) -> Tensor:
        """All axes reversed."""
        return api.manipulation.permute_dims(self, None)

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        return api.manipulation.matrix_transpose(self)

    def reshape(self, *shape: Any) -> Tensor:
        """``x.reshape(2, 3)``, ``x.reshape((2, -1))``."""
        return api.manipulation.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        """``x.transpose()`` reverses the axes; ``x.transpose(1, 0)`` and ``x.transpose((1, 0))`` order them."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return api.manipulation.permute_dims(self, order or None)

    def view(self, *shape: Any) -> Tensor:
        """``x.view(pb.int32)`` reads the bits as another dtype (NumPy), ``x.view(2, -1)`` reshapes (PyTorch)."""
        if len(shape) != 1:
            return api.manipulation.reshape(self, shape)
        (only,) = shape
        is_extent = hasattr(only, "__index__") and not isinstance(only, type)
        if is_extent or isinstance(only, tuple | list):
            return api.manipulation.reshape(self, only)
        return api.elementwise.bitcast(self, only)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """The axes from ``start_axis`` to ``end_axis`` as one, in C order."""
        return api.manipulation.flatten(self, start_axis, end_axis)

    def ravel(self) -> Tensor:
        """One axis, in C order."""
        return api.manipulation.ravel(self)

    def permute(self, *axes: Any) -> Tensor:
        """``x.permute(1, 0)``, ``x.permute((1, 0))``: the axes in that order."""
        return api.manipulation.permute_dims(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

    def squeeze(self, axis: Any = None) -> Tensor:
        """Without the axes of extent 1."""
        return api.manipulation.squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Two axes exchanged."""
        return api.manipulation.swapaxes(self, axis1, axis2)

    def repeat(self, repeats: Any, axis: int | None = None) -> Tensor:
        """Each element repeated."""
        return api.joining.repeat(self, repeats, axis)

    def take(self, indices: Any, axis: int | None = None) -> Tensor:
        """Elements along ``axis``."""
        return api.indexing.take(self, indices, axis)

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Limited to ``min <= x <= max``."""
        return api.elementwise.clip(self, min, max)

    def round(self, decimals: int = 0) -> Tensor:
        """Rounded, halves to even."""
        return api.unary.round(self, decimals)

    def dot(self, other: Any) -> Tensor:
        """NumPy's ``dot``."""
        return api.contraction.dot(self, other)

    # ``out`` is what NumPy's functions (``np.sum(x)``) pass on; it must be None.

    def sum(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Tensor:
        """Sum over ``axis``; see ``pb.sum``."""
        _no_out(out, "sum")
        return api.reduction.sum(self, axis, dtype, keepdims, initial, where)

    def prod(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Tensor:
        """Product over ``axis``; see ``pb.prod``."""
        _no_out(out, "prod")
        return api.reduction.prod(self, axis, dtype, keepdims, initial, where)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
        """Running sum along ``axis``; see ``pb.cumsum``."""
        _no_out(out, "cumsum")
        return api.cumulative.cumsum(self, axis, dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
        """Running product along ``axis``; see ``pb.cumprod``."""
        _no_out(out, "cumprod")
        return api.cumulative.cumprod(self, axis, dtype)

    def mean(
        self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
    ) -> Tensor:
        """Mean over ``axis``; see ``pb.mean``."""
        _no_out(out, "mean")
        return api.reduction.mean(self, axis, dtype, keepdims, where)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        correction: float = 0.0,
        where: Any = None,
    ) -> Tensor:
        """Variance over ``axis``; see ``pb.var``."""
        _no_out(out, "var")
        x = self if dtype is None else self.astype(dtype)
        return api.reduction.var(x, axis, correction, keepdims, ddof, where)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        correction: float = 0.0,
        where: Any = None,
    ) -> Tensor:
        """Standard deviation over ``axis``; see ``pb.std``."""
        _no_out(out, "std")
        x = self if dtype is None else self.astype(dtype)
        return api.reduction.std(x, axis, correction, keepdims, ddof, where)

    def max(
        self, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Tensor:
        """Largest element along ``axis``; see ``pb.max``."""
        _no_out(out, "max")
        return api.reduction.max(self, axis, keepdims, initial, where)

    def min(
        self, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Tensor:
        """Smallest element along ``axis``; see ``pb.min``."""
        _no_out(out, "min")
        return api.reduction.min(self, axis, keepdims, initial, where)

    def any(self, axis: Any = None, out: None = None, keepdims: bool = False, where: Any = None) -> Tensor:
        """Whether any element along ``axis`` is true; see ``pb.any``."""
        _no_out(out, "any")
        return api.reduction.any(self, axis, keepdims, where)

    def all(self, axis: Any = None, out: None = None, keepdims: bool = False, where: Any = None) -> Tensor:
        """Whether all elements along ``axis`` are true; see ``pb.all``."""
        _no_out(out, "all")
        return api.reduction.all(self, axis, keepdims, where)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index of the largest element along ``axis``, or of all in C order."""
        return api.reduction.argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index of the smallest element along ``axis``, or of all in C order."""
        return api.reduction.argmin(self, axis=axis, keepdims=keepdims)

    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """Indices that sort along ``axis``."""
        return api.sorting.argsort(self, axis=axis, descending=descending, stable=stable)

    # As the functions, argument by argument.

    broadcast_to = _function("manipulation", "broadcast_to")
    expand_dims = _function("manipulation", "expand_dims")
    flip = _function("manipulation", "flip")
    moveaxis = _function("manipulation", "moveaxis")
    roll = _function("manipulation", "roll")
    rot90 = _function("manipulation", "rot90")
    chunk = _function("joining", "chunk")
    narrow = _function("joining", "narrow")
    tile = _function("joining", "tile")
    unfold = _function("windows", "unfold")
    diag = _function("diagonal", "diag")
    diagonal = _function("diagonal", "diagonal")
    trace = _function("diagonal", "trace")
    tril = _function("diagonal", "tril")
    triu = _function("diagonal", "triu")
    count_nonzero = _function("reduction", "count_nonzero")
    logsumexp = _function("reduction", "logsumexp")
    nansum = _function("nan_reduction", "nansum")
    nanmean = _function("nan_reduction", "nanmean")
    quantile = _function("statistics", "quantile")
    matmul = _function("contraction", "matmul")
    vdot = _function("contraction", "vdot")
