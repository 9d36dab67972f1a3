"""The methods of a tensor that are public functions with the tensor as first argument: ``x.sum()`` is ``pb.sum(x)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import api
from .errors import ArgumentError
from .graph.handle import Handle

if TYPE_CHECKING:
    import pullback.api.contraction
    import pullback.api.convert
    import pullback.api.cumulative
    import pullback.api.elementwise
    import pullback.api.indexing
    import pullback.api.joining
    import pullback.api.manipulation
    import pullback.api.reduction
    import pullback.api.sorting
    import pullback.api.unary  # noqa: F401

    from .tensor import Tensor


def _no_out(out: Any, op: str) -> None:
    if out is not None:
        raise ArgumentError(f"{op}: out= is not available; assign the result instead")


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

    def flatten(self) -> Tensor:
        """One axis, in C order."""
        return api.manipulation.reshape(self, -1)

    ravel = flatten

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

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Sum over ``axis``; see ``pb.sum``."""
        _no_out(out, "sum")
        return api.reduction.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Product over ``axis``; see ``pb.prod``."""
        _no_out(out, "prod")
        return api.reduction.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
        """Running sum along ``axis``; see ``pb.cumsum``."""
        _no_out(out, "cumsum")
        return api.cumulative.cumsum(self, axis, dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Tensor:
        """Running product along ``axis``; see ``pb.cumprod``."""
        _no_out(out, "cumprod")
        return api.cumulative.cumprod(self, axis, dtype)

    def mean(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Mean over ``axis``; see ``pb.mean``."""
        _no_out(out, "mean")
        return api.reduction.mean(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        correction: float = 0.0,
    ) -> Tensor:
        """Variance over ``axis``; see ``pb.var``."""
        _no_out(out, "var")
        x = self if dtype is None else self.astype(dtype)
        return api.reduction.var(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float | None = None,
        keepdims: bool = False,
        correction: float = 0.0,
    ) -> Tensor:
        """Standard deviation over ``axis``; see ``pb.std``."""
        _no_out(out, "std")
        x = self if dtype is None else self.astype(dtype)
        return api.reduction.std(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Largest element along ``axis``; see ``pb.max``."""
        _no_out(out, "max")
        return api.reduction.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Smallest element along ``axis``; see ``pb.min``."""
        _no_out(out, "min")
        return api.reduction.min(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Whether any element along ``axis`` is true; see ``pb.any``."""
        _no_out(out, "any")
        return api.reduction.any(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Tensor:
        """Whether all elements along ``axis`` are true; see ``pb.all``."""
        _no_out(out, "all")
        return api.reduction.all(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index of the largest element along ``axis``, or of all in C order."""
        return api.reduction.argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Index of the smallest element along ``axis``, or of all in C order."""
        return api.reduction.argmin(self, axis=axis, keepdims=keepdims)

    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """Indices that sort along ``axis``."""
        return api.sorting.argsort(self, axis=axis, descending=descending, stable=stable)
