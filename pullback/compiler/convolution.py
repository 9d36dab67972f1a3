"""A convolution as ``dot_general`` over views: nothing of the size of all windows together is laid out here.

The windows are a view of the array, whose elements overlap; channels and taps are contracted. Padding is stored once,
around the array. Zeros between the elements of the array (the input gradient of a strided convolution, a transposed
one) are neither stored nor multiplied. Outputs that lie at the same distance from an element read the same taps: such a
*phase* is a set of outputs of its own, and all phases read windows of neighbouring elements. Phases with equally many
taps are one contraction, in which they are more outputs of the weights; there are at most two such sets an axis. Each
is written where its outputs lie.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..ops.convolution import LEAD, spread_extent
from ..ops.movement import inverse_permutation
from ..ops.registry import by_name
from ..shapes import size_of
from .products import has_tile
from .views import row_major

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..graph.node import Node
    from ..ops.record import Op
    from .values import Value, ValueBuilder

FEW_TERMS = 64  # of channels and taps, or of positions, up to which they are unrolled where a group has one output
FEW_OUTPUTS = 8  # a group, up to which the product reads windows where they are, if they follow each other
MAX_BETWEEN = 1.3  # of the positions of a row, to the next row
CHAINS = 4  # sums side by side, since each addition waits for the one before
FEW_POSITIONS = 16  # up to so many, the images of a batch are columns of one product, and not a product each
MANY_POSITIONS = 1 << 14  # in all images, from which on flipped weights (of a gradient) are laid out once, in order
FEW_PHASES = 4  # up to so many, each phase is cropped by itself where there are more of its outputs than are wanted


@dataclass(frozen=True)
class _Phases:
    """The phases ``first`` to ``first + number``, each of which reads ``taps`` elements, or none."""

    first: int
    number: int
    taps: int


@dataclass(frozen=True)
class _Piece:
    """Of ``phases``, those from ``place`` to ``place + number`` in the order of their outputs, in the windows ``start``
    to ``stop``; the first of these outputs lies at ``offset``."""

    phases: _Phases
    place: int
    number: int
    start: int
    stop: int
    offset: int


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

    def split(self) -> _Axis:
        """With each phase a set of its own."""
        sets = [_Phases(s.first + number, 1, s.taps) for s in self.sets for number in range(s.number)]
        return replace(self, sets=tuple(sets))

    def pieces(self, extent: int) -> tuple[list[_Piece], int, int]:
        """How the outputs are written, the length of the axis so made, and where in it the ``extent`` wanted begin."""
        length = self.count * self.spacing
        if (length == extent and self.start == 0) or self.spacing > FEW_PHASES:
            whole = [
                _Piece(s, 0, s.number, 0, self.count, self.spacing - s.first - s.number) for s in self.sets
            ]
            return whole, length, self.start
        pieces = []
        for phases in self.sets:
            for place in range(phases.number):
                # Of window q it lies at q * spacing + lead.
                lead = self.spacing - phases.first - phases.number + place - self.start
                first = max(0, -(lead // self.spacing))
                stop = min(self.count, -((lead - extent) // self.spacing))
                if first < stop:
                    pieces.append(_Piece(phases, place, 1, first, stop, first * self.spacing + lead))
        return pieces, extent, 0


def _axis(
    extent: int, taps: int, outputs: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> _Axis:
    if lhs_dilation == 1 or stride > 1 or rhs_dilation > 1 or extent == 1:
        window = spread_extent(taps, rhs_dilation)
        used = (outputs - 1) * stride + window
        high = used - low - spread_extent(extent, lhs_dilation)
        return _Axis(outputs, (_Phases(0, 1, taps),), stride, rhs_dilation, low, high, lhs_dilation - 1, 1, 0)
    # Output lhs_dilation * q - r + low, of phase r, reads the elements q + u with the taps lhs_dilation * u + r.
    first = -(low // lhs_dilation)
    last = -((low + 1 - outputs) // lhs_dilation)
    whole, more = divmod(taps, lhs_dilation)
    sets = [_Phases(0, more, whole + 1)] if more else []
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

    def zero(self, dtype: DType) -> Value:
        return self.builder.literal(False if dtype.kind == "b" else 0, dtype)

    def slice(self, x: Value, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> Value:
        if not any(starts) and stops == x.shape and all(step == 1 for step in steps):
            return x
        return self.apply("slice", (starts, stops, steps), x)

    def pad(
        self, x: Value, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...], name: str = "pad"
    ) -> Value:
        """``x`` with zeros around and between; a view where it is only cropped."""
        if any(n > 0 for n in (*low, *high)) or any(i and n > 1 for i, n in zip(interior, x.shape)):
            op, attrs, inputs = by_name("pad"), (low, high, interior), (x, self.zero(x.dtype))
            if name == "pad":
                return self.apply("pad", attrs, *inputs)
            return self.builder.raw("pad", name, op, inputs, attrs, op.infer(inputs, *attrs)[0], x.dtype, self.node)
        starts = tuple([-n for n in low])
        stops = tuple([extent + n for extent, n in zip(x.shape, high)])
        return self.slice(x, starts, stops, (1,) * len(starts))

    def padded(self, x: Value, axes: list[_Axis], name: str = "pad") -> Value:
        """``x`` with its padding, as far as any window reads it, in the order of axes in which ``x`` is stored.

        name: "stored_pad" for what kernels are not to compute as they read it."""
        none = (0,) * LEAD
        low, high = (*none, *[a.low for a in axes]), (*none, *[a.high for a in axes])
        interior = (*none, *[a.interior for a in axes])
        if x.name != "permute":
            return self.pad(x, low, high, interior, name)
        order = x.attrs[0]
        places = inverse_permutation(order)
        low, high, interior = (tuple([edges[place] for place in places]) for edges in (low, high, interior))
        return self.permute(self.pad(x.inputs[0], low, high, interior, name), order)

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

    def interleave(
        self,
        products: dict[tuple[_Phases, ...], Value],
        axes: list[_Axis],
        outputs: tuple[int, ...],
        order: tuple[int, ...],
    ) -> Value:
        """The outputs of all sets of phases, ``(groups, batch, outputs, *counts, *phases)``, in their places.

        order: axis k of the result is stored as axis ``order[k]``.
        """
        rank = len(axes)
        if all(axis.spacing == 1 for axis in axes):
            (x,) = products.values()
            return self.reshape(x, x.shape[: LEAD + rank])
        some = next(iter(products.values()))
        pieces, made, starts = zip(*[axis.pieces(extent) for axis, extent in zip(axes, outputs)], strict=True)
        shape = (*some.shape[:LEAD], *made)
        stored = tuple([shape[a] for a in inverse_permutation(order)])
        stored_strides = row_major(stored)
        strides = tuple([stored_strides[a] for a in order])
        operands, places = [], []
        for chosen in itertools.product(*pieces):
            sets = tuple([piece.phases for piece in chosen])
            if sets in products:
                x = products[sets]
            else:
                extents = (*[axis.count for axis in axes], *[phases.number for phases in sets])
                x = self.broadcast(self.zero(some.dtype), (*some.shape[:LEAD], *extents))
            for a, piece in enumerate(chosen, LEAD):
                x = self.along(x, a, piece.start, piece.stop)
                x = self.along(x, a + rank, piece.place, piece.place + piece.number)
            operands.append(x)
            offset = sum(piece.offset * stride for piece, stride in zip(chosen, strides[LEAD:]))
            apart = [axis.spacing * stride for axis, stride in zip(axes, strides[LEAD:])]
            places.append((offset, (*strides[:LEAD], *apart, *strides[LEAD:])))
        x = self.builder.raw(
            "concat", "interleave", by_name("concat"), tuple(operands), (tuple(places),), stored, some.dtype, self.node
        )
        x = self.permute(x, order)
        for position, (start, extent) in enumerate(zip(starts, outputs), LEAD):
            x = self.along(x, position, start, start + extent)
        return x


    # -- few outputs a group -------------------------------------------------------------------------------------------

    def flat_product(self, w: Value, x: Value, axes: list[_Axis], order: tuple[int, ...]) -> Value:
        """The convolution of the padded ``x`` with the positions of its last two axes as one line, as the lines of
        ``x`` are: what lies between one row and the next is computed, too, and passed by."""
        rank = len(axes)
        rows, columns = axes[-2:]
        x = self.permute(x, inverse_permutation(order))
        width = x.shape[-1]
        x = self.permute(self.reshape(x, (*x.shape[:-2], x.shape[-2] * width)), order[:-1])
        none = tuple([_Phases(0, 1, axis.sets[0].taps) for axis in axes[:-2]])
        x = self.windows(x, axes[:-2], none)
        # Here its axes are those of windows, but for one line instead of two axes of positions.
        at = LEAD + rank - 2
        across = spread_extent(columns.sets[0].taps, columns.gap)
        x = self.apply("windows", (at, (rows.sets[0].taps - 1) * rows.gap * width + across, 1), x)
        x = self.apply("windows", (len(x.shape) - 1, across, rows.gap * width), x)
        x = self.along(x, len(x.shape) - 1, 0, across, columns.gap)
        product = self.contract(w, self.reshape(x, (*x.shape[:at], 1, *x.shape[at:])), rank, True)
        product = self.reshape(product, (*product.shape[:at], product.shape[at + 1]))
        return self.apply("windows", (at, columns.count, width), product)

    # -- one output a group -------------------------------------------------------------------------------------------

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """``x`` and ``y``, of the same rank, broadcast against each other."""
        shape = tuple([max(extents) for extents in zip(x.shape, y.shape)])
        return self.apply(name, (), self.broadcast(x, shape), self.broadcast(y, shape))

    def stored(self, x: Value) -> Value:
        """``x`` in memory of its own, in the order of its axes."""
        places = ((0, row_major(x.shape)),)
        return self.builder.raw(
            "concat", "interleave", by_name("concat"), (x,), (places,), x.shape, x.dtype, self.node
        )

    @staticmethod
    def ends_with_groups(x: Value, order: tuple[int, ...]) -> bool:
        """Whether ``x`` is stored with its groups last, so that lanes run along them."""
        return all(x.shape[axis] == 1 for axis, place in enumerate(order) if place > order[0]) and x.shape[0] > 1

    def tap(self, x: Value, axes: list[_Axis], taps: tuple[int, ...]) -> Value:
        """What every window of the padded ``x`` has at ``taps``."""
        for position, (axis, tap) in enumerate(zip(axes, taps), LEAD):
            start = tap * axis.gap
            x = self.along(x, position, start, start + (axis.count - 1) * axis.step + 1, axis.step)
        return x

    def sum_of_taps(self, w: Value, x: Value, axes: list[_Axis], order: tuple[int, ...]) -> Value:
        """The padded ``x`` with ``w`` of ``(groups, channels, *taps)``, as one sum: ``(groups, batch, 1, *counts)``, in
        the order of axes in which ``x`` is stored."""
        rank = len(axes)
        back = inverse_permutation(order)
        multiply, add = ("logical_and", "logical_or") if x.dtype.kind == "b" else ("multiply", "add")
        w = self.permute(w, (*range(1, rank + 2), 0))
        if self.ends_with_groups(x, order):
            w = self.stored(w)
        sums: list[Value] = []
        for number, place in enumerate(itertools.product(*[range(n) for n in w.shape[:-1]])):
            channel, *taps = place
            weight = w
            for a, index in enumerate(place):
                weight = self.along(weight, a, index, index + 1)
            weight = self.reshape(weight, (w.shape[-1], 1, 1, *(1,) * rank))
            element = self.tap(self.along(x, 2, channel, channel + 1), axes, tuple(taps))
            term = self.binary(multiply, self.permute(element, back), self.permute(weight, back))
            if number < CHAINS:
                sums.append(term)
            else:
                sums[number % CHAINS] = self.binary(add, sums[number % CHAINS], term)
        while len(sums) > 1:
            odd = sums[len(sums) // 2 * 2 :]
            sums = [self.binary(add, *pair) for pair in zip(sums[::2], sums[1::2])] + odd
        return self.permute(sums[0], order)

    def sums_of_positions(self, w: Value, x: Value, axes: list[_Axis], order: tuple[int, ...]) -> Value:
        """The convolution of the padded ``x``, each position a sum of its own: ``(groups, batch, 1, *positions)``."""
        rank = len(axes)
        back = inverse_permutation(order)
        groups, batch = x.shape[:2]
        is_bool = x.dtype.kind == "b"
        right = self.permute(w, back)
        folded = sorted([order[a] for a in range(2, LEAD + rank)])
        steps = [tuple(folded)]
        if self.ends_with_groups(x, order):
            # The sums of a row at once; of all rows, each would be cut in chunks by itself.
            row = max([order[a] for a in range(2, LEAD + rank) if w.shape[a] != 1])
            steps = [(row,), tuple([place - (place > row) for place in folded if place != row])]
        counts = tuple([axis.count for axis in axes])
        sums = []
        for place in itertools.product(*[range(count) for count in counts]):
            part = x
            for position, (axis, number, taps) in enumerate(zip(axes, place, w.shape[LEAD:]), LEAD):
                start = number * axis.step
                part = self.along(part, position, start, start + spread_extent(taps, axis.gap), axis.gap)
            total = self.binary("logical_and" if is_bool else "multiply", self.permute(part, back), right)
            for step in steps:
                total = self.apply("reduce_any" if is_bool else "reduce_sum", (step, False), total)
            if order[0] > order[1]:
                total = self.permute(total, (1, 0))
            sums.append(self.reshape(total, (groups, batch, 1)))
        shape = (groups, batch, 1, *counts)
        strides = row_major(shape)
        places = tuple([(number, strides[:LEAD]) for number in range(len(sums))])
        return self.builder.raw(
            "concat", "interleave", by_name("concat"), tuple(sums), (places,), shape, sums[0].dtype, self.node
        )


def _is_flat(x: Value, axes: list[_Axis], order: tuple[int, ...]) -> bool:
    """Whether the padded ``x`` has its last two axes last in memory, windows of them follow each other one by one, and
    little lies between one row of positions and the next."""
    if len(axes) < 2 or order[-2:] != (len(order) - 2, len(order) - 1):
        return False
    are_neighbours = all(axis.step == 1 and axis.spacing == 1 and min(axis.low, axis.high) >= 0 for axis in axes[-2:])
    return are_neighbours and axes[-2].count > 1 and x.shape[-1] <= MAX_BETWEEN * axes[-1].count


def convolution(
    b: ValueBuilder, op: Op, inputs: Any, attrs: Any, shape: tuple[int, ...], dtype: DType, node: Node | None
) -> Value:
    """What the compiler makes of a convolution."""
    x, w = inputs
    build = _Builder(b, node)
    if 0 in (*shape, *x.shape, *w.shape):
        return build.broadcast(build.zero(dtype), shape)
    is_matrix = has_tile() and w.shape[1] > 1
    if dtype.kind == "f" and dtype.itemsize < 4 and not is_matrix:
        # Before the windows are taken: an element is in many of them. (The engine widens as it packs.)
        wide = _convolution(build, build.cast(x, dtypes.float32), build.cast(w, dtypes.float32), attrs, shape)
        return build.cast(wide, dtype)
    return _convolution(build, x, w, attrs, shape)


def _convolution(build: _Builder, x: Value, w: Value, attrs: tuple[Any, ...], shape: tuple[int, ...]) -> Value:
    """The convolution of operands of a dtype that is summed as it is, none of them empty."""
    strides, padding, lhs_dilation, rhs_dilation = attrs
    outputs, taps = shape[LEAD:], w.shape[LEAD:]
    lows = [low for low, _ in padding]
    axes = [_axis(*s) for s in zip(x.shape[LEAD:], taps, outputs, strides, lows, lhs_dilation, rhs_dilation)]
    order = x.attrs[0] if x.name == "permute" else tuple(range(len(x.shape)))
    positions = size_of([axis.count for axis in axes])
    is_single = w.shape[1] == 1  # output a group
    few_positions = is_single and positions <= FEW_TERMS < size_of(w.shape[2:]) and all(a.spacing == 1 for a in axes)
    few_taps = is_single and w.shape[2] * size_of([axis.sets[0].taps for axis in axes]) <= FEW_TERMS
    x = build.padded(x, axes, "stored_pad" if few_positions or few_taps else "pad")
    if few_positions:
        return build.sums_of_positions(w, x, axes, order)
    if few_taps:
        axes = [axis.split() for axis in axes]
    products = {}
    for sets in itertools.product(*[axis.sets for axis in axes]):
        if any(phases.taps == 0 for phases in sets):
            continue  # more outputs than taps: zeros between
        left = build.weights(w, axes, sets)
        if few_taps:
            left = build.reshape(left, (left.shape[0], *left.shape[2 + len(axes) :]))
            total = build.sum_of_taps(left, x, axes, order)
            products[sets] = build.reshape(total, (*total.shape, *(1,) * len(axes)))
            continue
        if w.name == "flip" and shape[1] * positions >= MANY_POSITIONS:
            left = build.stored(left)
        is_batch = positions > max(FEW_POSITIONS, size_of([phases.taps for phases in sets]))
        if is_batch and _is_flat(x, axes, order) and 1 < w.shape[1] <= FEW_OUTPUTS:
            return build.flat_product(left, x, axes, order)
        products[sets] = build.contract(left, build.windows(x, axes, sets), len(axes), is_batch)
    return build.interleave(products, axes, outputs, order)
