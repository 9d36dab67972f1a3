"""A convolution as one ``dot_general`` over views: nothing of the size of all windows together is laid out here.

The windows are a view of the array, whose elements overlap; channels and taps are contracted. Padding is stored once,
around the array. Zeros between the elements of the array (the input gradient of a strided convolution, a transposed
one) are neither stored nor multiplied: outputs that lie at the same distance from an element read the same taps, so
each such *phase* is a set of outputs of its own, and all read one window of neighbouring elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..ops.convolution import LEAD, spread_extent
from ..shapes import size_of

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..graph.node import Node
    from ..ops.record import Op
    from .values import Value, ValueBuilder

FEW_POSITIONS = 16  # up to so many, the images of a batch are columns of one product, and not a product each


@dataclass(frozen=True)
class _Axis:
    """How one spatial axis is read: ``count`` windows of ``taps`` elements, from each of which ``phases`` outputs come.

    step: from window to window; gap: from tap to tap. low, high: padding, below 0 cropped. interior: zeros that are
    stored between the elements. fill: taps of zero at the end of ``w``, so that they are ``taps * phases``.
    spacing: outputs from one window to the next; start: of the first output that is kept among those made.
    """

    count: int
    taps: int
    phases: int
    step: int
    gap: int
    low: int
    high: int
    interior: int
    fill: int
    spacing: int
    start: int


def _axis(
    extent: int, taps: int, outputs: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> _Axis:
    if lhs_dilation == 1 or stride > 1 or rhs_dilation > 1 or extent == 1:
        window = spread_extent(taps, rhs_dilation)
        used = (outputs - 1) * stride + window
        high = used - low - spread_extent(extent, lhs_dilation)
        return _Axis(outputs, taps, 1, stride, rhs_dilation, low, high, lhs_dilation - 1, 0, 1, 0)
    # Output j = lhs_dilation * q - r + low reads the elements q + u with the taps lhs_dilation * u + r.
    first = -(low // lhs_dilation)
    last = -((low + 1 - outputs) // lhs_dilation)
    phases = min(taps, lhs_dilation)
    length = -(-taps // lhs_dilation)
    count = last - first + 1
    start = lhs_dilation * (1 - first) - 1 - low
    high = last + length - extent
    return _Axis(count, length, phases, 1, 1, -first, high, 0, length * phases - taps, lhs_dilation, start)


class _Builder:
    """Makes values of one convolution."""

    def __init__(self, builder: ValueBuilder, node: Node | None) -> None:
        self.builder = builder
        self.node = node

    def apply(self, name: str, attrs: tuple[Any, ...], *inputs: Value) -> Value:
        """The op called ``name`` of ``inputs``."""
        from ..ops.registry import by_name

        op = by_name(name)
        shape, dtype = op.infer(inputs, *attrs)
        return self.builder.make(op, inputs, attrs, shape, dtype, self.node)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.shape == shape else self.apply("reshape", (shape,), x)

    def permute(self, x: Value, order: tuple[int, ...]) -> Value:
        return x if order == tuple(range(len(order))) else self.apply("permute", (order,), x)

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.shape == shape else self.apply("broadcast_to", (shape,), x)

    def flip(self, x: Value, axes: tuple[int, ...]) -> Value:
        return self.apply("flip", (axes,), x) if axes else x

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.apply("cast", (dtype,), x)

    def slice(self, x: Value, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> Value:
        if not any(starts) and stops == x.shape and all(step == 1 for step in steps):
            return x
        return self.apply("slice", (starts, stops, steps), x)

    def pad(self, x: Value, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]) -> Value:
        """``x`` with zeros around and between; a view where it is only cropped."""
        if any(n > 0 for n in (*low, *high)) or any(i and n > 1 for i, n in zip(interior, x.shape)):
            zero = self.builder.literal(False if x.dtype.kind == "b" else 0, x.dtype)
            return self.apply("pad", (low, high, interior), x, zero)
        starts = tuple([-n for n in low])
        stops = tuple([extent + n for extent, n in zip(x.shape, high)])
        return self.slice(x, starts, stops, (1,) * len(starts))

    def windows(self, x: Value, axes: list[_Axis]) -> Value:
        """``(groups, batch, channels, *counts, *taps)`` of the padded ``x``."""
        lead = (0,) * LEAD
        low, high = (*lead, *[a.low for a in axes]), (*lead, *[a.high for a in axes])
        x = self.pad(x, low, high, (*lead, *[a.interior for a in axes]))
        for position, axis in enumerate(axes, LEAD):
            if axis.taps == 1:
                steps = tuple([axis.step if a == position else 1 for a in range(len(x.shape))])
                x = self.slice(x, (0,) * len(x.shape), x.shape, steps)
                x = self.reshape(x, (*x.shape, 1))
                continue
            x = self.apply("windows", (position, spread_extent(axis.taps, axis.gap), axis.step), x)
            steps = (*(1,) * (len(x.shape) - 1), axis.gap)
            x = self.slice(x, (0,) * len(x.shape), x.shape, steps)
        return x

    def weights(self, w: Value, axes: list[_Axis]) -> Value:
        """``(groups, outputs, *phases, channels, *taps)``, the phases in the order of the outputs that they make."""
        none = (0,) * LEAD
        high = (*none, *[a.fill for a in axes])
        w = self.pad(w, (0,) * len(high), high, (0,) * len(high))
        groups, outputs, channels = w.shape[:LEAD]
        split = [extent for a in axes for extent in (a.taps, a.phases)]
        w = self.reshape(w, (groups, outputs, channels, *split))
        taps = range(LEAD, LEAD + 2 * len(axes), 2)
        phases = range(LEAD + 1, LEAD + 2 * len(axes), 2)
        w = self.flip(w, tuple([p for p, a in zip(phases, axes) if a.phases > 1]))
        return self.permute(w, (0, 1, *phases, 2, *taps))

    def contract(self, w: Value, x: Value, rank: int, is_batch: bool) -> Value:
        """Weights and windows contracted over channels and taps: ``(groups, batch, outputs, *counts, *phases)``.

        is_batch: the images of the batch are a product each; otherwise they are columns of one product. Axes of extent
        1 are left out, so that the contraction, and what is permuted afterwards, have no more axes than they need.
        """
        groups, batch = x.shape[:2]
        names = ("g", "o", *[f"p{a}" for a in range(rank)], "c", *[f"t{a}" for a in range(rank)])
        of_w = {name: extent for name, extent in zip(names, w.shape) if extent != 1}
        names = ("g", "n", "c", *[f"q{a}" for a in range(rank)], *[f"t{a}" for a in range(rank)])
        of_x = {name: extent for name, extent in zip(names, x.shape) if extent != 1}
        wanted = ("g", "n", "o", *[f"q{a}" for a in range(rank)], *[f"p{a}" for a in range(rank)])
        extents = {"g": groups, "n": batch} | of_w | of_x
        w, x = self.reshape(w, tuple(of_w.values())), self.reshape(x, tuple(of_x.values()))
        together = [name for name in ("n", "g") if extents[name] != 1]
        if is_batch and "n" in together:
            of_w = {"n": batch} | of_w
            w = self.broadcast(w, tuple(of_w.values()))
        elif "n" in together:
            together.remove("n")
        summed = [name for name in of_w if name in of_x and name not in together]
        w_axes, x_axes = list(of_w), list(of_x)

        def places(chosen: list[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
            return tuple([w_axes.index(name) for name in chosen]), tuple([x_axes.index(name) for name in chosen])

        product = self.apply("dot_general", (places(summed), places(together)), w, x)
        made = [*together, *[name for name in (*w_axes, *x_axes) if name not in summed and name not in together]]
        order = tuple([made.index(name) for name in wanted if name in made])
        return self.reshape(self.permute(product, order), tuple([extents.get(name, 1) for name in wanted]))

    def interleave(self, product: Value, axes: list[_Axis], outputs: tuple[int, ...]) -> Value:
        """The phases of each axis as neighbours along it."""
        rank = len(axes)
        if all(a.phases == a.spacing == 1 for a in axes):
            return self.reshape(product, product.shape[: LEAD + rank])
        paired = [p for a in range(LEAD, LEAD + rank) for p in (a, a + rank)]
        x = self.permute(product, (0, 1, 2, *paired))
        missing = [n for a in axes for n in (0, a.spacing - a.phases)]  # phases that no tap reaches
        low = (*(0,) * LEAD, *missing)
        x = self.pad(x, low, (0,) * len(low), (0,) * len(low))
        x = self.reshape(x, (*x.shape[:LEAD], *[a.count * a.spacing for a in axes]))
        starts = (*(0,) * LEAD, *[a.start for a in axes])
        stops = (*x.shape[:LEAD], *[a.start + n for a, n in zip(axes, outputs)])
        return self.slice(x, starts, stops, (1,) * len(starts))


def convolution(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value:
    """What the compiler makes of a convolution."""
    x, w = inputs
    build = _Builder(b, node)
    if 0 in (*shape, *x.shape, *w.shape):
        return build.broadcast(b.literal(False if dtype.kind == "b" else 0, dtype), shape)
    if dtype.kind == "f" and dtype.itemsize < 4:
        # Before the windows are taken: an element is in many of them.
        wide = convolution_of(build, build.cast(x, dtypes.float32), build.cast(w, dtypes.float32), attrs, shape)
        return build.cast(wide, dtype)
    return convolution_of(build, x, w, attrs, shape)


def convolution_of(
    build: _Builder, x: Value, w: Value, attrs: tuple[Any, ...], shape: tuple[int, ...]
) -> Value:
    """The convolution of operands of a dtype that is summed as it is, none of them empty."""
    strides, padding, lhs_dilation, rhs_dilation = attrs
    outputs, taps = shape[LEAD:], w.shape[LEAD:]
    axes = [
        _axis(extent, window, count, stride, low, spread, gap) for extent, window, count, stride, (low, _), spread, gap
        in zip(x.shape[LEAD:], taps, outputs, strides, padding, lhs_dilation, rhs_dilation)
    ]
    positions = size_of([a.count for a in axes])
    is_batch = positions > max(FEW_POSITIONS, size_of([a.taps for a in axes]))
    product = build.contract(build.weights(w, axes), build.windows(x, axes), len(axes), is_batch)
    return build.interleave(product, axes, outputs)
