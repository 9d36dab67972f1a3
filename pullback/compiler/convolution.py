"""A convolution as ``dot_general`` over views: nothing of the size of all windows together is laid out here.

The windows are a view of the array, whose elements overlap; channels and taps are contracted. Padding is stored once,
around the array. Zeros between the elements of the array (the input gradient of a strided convolution, a transposed
one) are neither stored nor multiplied. Outputs that lie at the same distance from an element read the same taps: such a
*phase* is a set of outputs of its own, and all phases read windows of neighbouring elements. Phases with equally many
taps are one contraction, in which they are more outputs of the weights; there are at most two such sets an axis.
"""

from __future__ import annotations

import itertools
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
MAX_PIECES = 64  # phases that are copied to their places one by one; for more, zeros are stored between the elements


@dataclass(frozen=True)
class _Phases:
    """The phases ``first`` to ``first + number``, each of which reads ``taps`` elements."""

    first: int
    number: int
    taps: int


@dataclass(frozen=True)
class _Axis:
    """How one spatial axis is read: ``count`` windows, from each of which the outputs of ``sets`` of phases come.

    step: from window to window; gap: from tap to tap. low, high: padding, below 0 cropped. interior: zeros that are
    stored between the elements. spacing: outputs from one window to the next; start: of the first output that is kept.
    """

    count: int
    sets: tuple[_Phases, ...]
    step: int
    gap: int
    low: int
    high: int
    interior: int
    spacing: int
    start: int


def _axis(
    extent: int, taps: int, outputs: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int, *,
    in_phases: bool,
) -> _Axis:  # fmt: skip
    if not in_phases or lhs_dilation == 1 or stride > 1 or rhs_dilation > 1 or extent == 1:
        window = spread_extent(taps, rhs_dilation)
        used = (outputs - 1) * stride + window
        high = used - low - spread_extent(extent, lhs_dilation)
        return _Axis(outputs, (_Phases(0, 1, taps),), stride, rhs_dilation, low, high, lhs_dilation - 1, 1, 0)
    # Output lhs_dilation * q - r + low, of phase r, reads the elements q + u with the taps lhs_dilation * u + r.
    first = -(low // lhs_dilation)
    last = -((low + 1 - outputs) // lhs_dilation)
    whole, more = divmod(taps, lhs_dilation)
    sets = [_Phases(0, more, whole + 1)] if more else []
    if whole:
        sets.append(_Phases(more, lhs_dilation - more, whole))
    high = last + sets[0].taps - extent
    start = lhs_dilation * (1 - first) - 1 - low
    return _Axis(last - first + 1, tuple(sets), 1, 1, -first, high, 0, lhs_dilation, start)


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

    def padded(self, x: Value, axes: list[_Axis]) -> Value:
        """``x`` with its padding, as far as any window reads it."""
        none = (0,) * LEAD
        low, high = (*none, *[a.low for a in axes]), (*none, *[a.high for a in axes])
        return self.pad(x, low, high, (*none, *[a.interior for a in axes]))

    def along(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """``x[start:stop:step]`` along one axis."""
        rank = len(x.shape)
        starts = tuple([start if a == axis else 0 for a in range(rank)])
        stops = tuple([stop if a == axis else n for a, n in enumerate(x.shape)])
        return self.slice(x, starts, stops, tuple([step if a == axis else 1 for a in range(rank)]))

    def windows(self, x: Value, axes: list[_Axis], sets: tuple[_Phases, ...]) -> Value:
        """``(groups, batch, channels, *counts, *taps)`` of the padded ``x``, for these phases of each axis."""
        for position, (axis, phases) in enumerate(zip(axes, sets), LEAD):
            window = spread_extent(phases.taps, axis.gap)
            x = self.along(x, position, 0, (axis.count - 1) * axis.step + window)
            if phases.taps == 1:
                x = self.along(x, position, 0, x.shape[position], axis.step)
                x = self.reshape(x, (*x.shape, 1))
            else:
                x = self.apply("windows", (position, window, axis.step), x)
                x = self.along(x, len(x.shape) - 1, 0, window, axis.gap)
        return x

    def weights(self, w: Value, axes: list[_Axis], sets: tuple[_Phases, ...]) -> Value:
        """``(groups, outputs, *phases, channels, *taps)``, the phases in the order of the outputs that they make."""
        rank = len(axes)
        for position, (axis, phases) in enumerate(zip(axes, sets), LEAD):
            if axis.spacing == 1:
                w = self.reshape(w, (*w.shape, 1))
                continue
            stop = phases.first + (phases.taps - 1) * axis.spacing + phases.number
            w = self.along(w, position, phases.first, stop)
            w = self.apply("windows", (position, phases.number, axis.spacing), w)
        w = self.flip(w, tuple([a for a in range(LEAD + rank, LEAD + 2 * rank) if w.shape[a] > 1]))
        return self.permute(w, (0, 1, *range(LEAD + rank, LEAD + 2 * rank), *range(2, LEAD + rank)))

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

    def gathered(self, products: dict[tuple[_Phases, ...], Value], axes: list[_Axis]) -> Value:
        """One array of the products of all sets, ``(groups, batch, outputs, *counts, *phases)``."""
        if len(products) == 1:
            return next(iter(products.values()))
        rank = len(axes)
        mixed = [a for a, axis in enumerate(axes) if len(axis.sets) > 1]
        pieces = []
        for places in itertools.product(*[range(axes[a].spacing) for a in mixed]):
            phase_of = {a: axes[a].spacing - 1 - place for a, place in zip(mixed, places)}
            sets = tuple([
                next(s for s in axis.sets if a not in phase_of or s.first <= phase_of[a] < s.first + s.number)
                for a, axis in enumerate(axes)
            ])
            piece = products[sets]
            for a, phase in phase_of.items():
                place = sets[a].first + sets[a].number - 1 - phase
                piece = self.along(piece, LEAD + rank + a, place, place + 1)
            pieces.append(self.reshape(piece, (1, *piece.shape)))
        x = self.apply("concat", (0,), *pieces)
        whole = list(range(len(mixed), len(mixed) + LEAD + 2 * rank))
        for place, a in enumerate(mixed):
            whole[LEAD + rank + a] = place
        single = [n for a, n in enumerate(x.shape[1:]) if a - LEAD - rank not in mixed]
        x = self.reshape(x, (*[axes[a].spacing for a in mixed], *single))
        # Behind the phases of mixed axes, which stand in front, the axes that follow each of theirs move up.
        order = []
        for a, axis in enumerate(whole):
            left_out = sum(m + LEAD + rank < a for m in mixed)
            order.append(axis if axis < len(mixed) else axis - left_out)
        return self.permute(x, tuple(order))

    def interleave(self, x: Value, axes: list[_Axis], outputs: tuple[int, ...]) -> Value:
        """``(groups, batch, outputs, *counts, *phases)`` with the phases of each axis as neighbours along it."""
        rank = len(axes)
        if all(axis.spacing == 1 for axis in axes):
            return self.reshape(x, x.shape[: LEAD + rank])
        x = self.permute(x, (0, 1, 2, *[p for a in range(LEAD, LEAD + rank) for p in (a, a + rank)]))
        phases = x.shape[LEAD + 1 :: 2]
        missing = [n for axis, found in zip(axes, phases) for n in (0, axis.spacing - found)]  # that no tap reaches
        none = (0,) * len(x.shape)
        x = self.pad(x, (*(0,) * LEAD, *missing), none, none)
        x = self.reshape(x, (*x.shape[:LEAD], *[axis.count * axis.spacing for axis in axes]))
        for position, (axis, extent) in enumerate(zip(axes, outputs), LEAD):
            x = self.along(x, position, axis.start, axis.start + extent)
        return x


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
        wide = _convolution(build, build.cast(x, dtypes.float32), build.cast(w, dtypes.float32), attrs, shape)
        return build.cast(wide, dtype)
    return _convolution(build, x, w, attrs, shape)


def _convolution(build: _Builder, x: Value, w: Value, attrs: tuple[Any, ...], shape: tuple[int, ...]) -> Value:
    """The convolution of operands of a dtype that is summed as it is, none of them empty."""
    strides, padding, lhs_dilation, rhs_dilation = attrs
    outputs, taps = shape[LEAD:], w.shape[LEAD:]
    lows = [low for low, _ in padding]
    settings = list(zip(x.shape[LEAD:], taps, outputs, strides, lows, lhs_dilation, rhs_dilation))
    axes = [_axis(*setting, in_phases=True) for setting in settings]
    if size_of([axis.spacing for axis in axes if len(axis.sets) > 1]) > MAX_PIECES:
        axes = [_axis(*setting, in_phases=False) for setting in settings]
    x = build.padded(x, axes)
    positions = size_of([axis.count for axis in axes])
    products = {}
    for sets in itertools.product(*[axis.sets for axis in axes]):
        is_batch = positions > max(FEW_POSITIONS, size_of([phases.taps for phases in sets]))
        left, right = build.weights(w, axes, sets), build.windows(x, axes, sets)
        products[sets] = build.contract(left, right, len(axes), is_batch)
    return build.interleave(build.gathered(products, axes), axes, outputs)
