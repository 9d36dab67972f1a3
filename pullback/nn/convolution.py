"""Convolutions and their transposes, over one, two and three axes.

x is ``(N, C, *spatial)``, or ``(N, *spatial, C)`` with ``layout="channels_last"``, and either without the N; the
weight's layout is PyTorch's in both. Windows are not flipped (what is called cross-correlation elsewhere). float16 and
bfloat16 accumulate in float32, integers wrap. Names, arguments and their order are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..api.composite import composite
from ..api.convert import promote
from ..errors import ArgumentError, ShapeError
from ..graph.node import Node
from ..ops import elementwise as ops
from ..ops import movement as move
from ..ops.convolution import convolution, output_extent, spread_extent
from ..shapes import as_int, size_of
from ..tensor import Tensor

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

LAYOUTS = ("channels_first", "channels_last")


# -- arguments ---------------------------------------------------------------------------------------------------------


def per_axis(value: Any, rank: int, op: str, name: str, least: int) -> Ints:
    """``value``, an int for all axes or one for each, as a tuple; ArgumentError unless all are ``least`` or more."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = tuple([as_int(n, op, name) for n in value])
        if len(found) != rank:
            raise ArgumentError(f"{op}: {name} must be an int or {_count(rank)}, got {value!r}")
    else:
        found = (as_int(value, op, name),) * rank
    for number in found:
        if number < least:
            raise ArgumentError(f"{op}: {name} must be at least {least}, got {value!r}")
    return found


def _count(rank: int) -> str:
    return "a sequence of one int" if rank == 1 else f"a sequence of {rank} ints, one for each spatial axis"


def padding_pairs(padding: Any, rank: int, op: str) -> Pairs:
    """What is put before and after each axis, from an int, an int for each axis or a pair for each axis."""
    if isinstance(padding, Sequence) and not isinstance(padding, str):
        entries = list(padding)
        if len(entries) == rank and all(isinstance(e, Sequence) and not isinstance(e, str) for e in entries):
            pairs = []
            for entry in entries:
                numbers = per_axis(entry, len(entry), op, "padding", 0)
                if len(numbers) != 2:
                    raise ArgumentError(f"{op}: padding of an axis is an int or a pair (before, after), got {entry!r}")
                pairs.append((numbers[0], numbers[1]))
            return tuple(pairs)
        if len(entries) != rank:
            raise ArgumentError(
                f"{op}: padding must be an int, {_count(rank)}, or so many pairs (before, after), got {padding!r}"
            )
    return tuple([(n, n) for n in per_axis(padding, rank, op, "padding", 0)])


def same_pairs(extents: Ints, taps: Ints, stride: Ints, dilation: Ints) -> Pairs:
    """Padding with which there are ``extent / stride`` positions, rounded up; the odd zero goes after."""
    pairs = []
    for extent, count, step, gap in zip(extents, taps, stride, dilation):
        missing = max((-(-extent // step) - 1) * step + spread_extent(count, gap) - extent, 0)
        pairs.append((missing // 2, missing - missing // 2))
    return tuple(pairs)


@dataclass(frozen=True)
class _Operands:
    """The promoted operands of a layer, x with a batch axis, and what is known about their axes."""

    op: str
    x: Node
    weight: Node
    bias: Node | None
    groups: int
    channels_last: bool
    is_single: bool

    @property
    def channels(self) -> int:
        return self.x.shape[-1 if self.channels_last else 1]

    @property
    def extents(self) -> Ints:
        return self.x.shape[1:-1] if self.channels_last else self.x.shape[2:]

    @property
    def taps(self) -> Ints:
        return self.weight.shape[2:]

    def described(self) -> str:
        """The shape of x as it was given."""
        return str(self.x.shape[1:] if self.is_single else self.x.shape)

    def place(self, axis: int) -> int:
        """Of spatial axis ``axis``, in x as it was given."""
        return axis + (1 if self.channels_last else 2) - self.is_single

    def grouped(self) -> Node:
        """x as ``(groups, N, channels of a group, *spatial)``."""
        x, groups, rank = self.x, self.groups, len(self.extents)
        batch, share = x.shape[0], self.channels // groups
        if self.channels_last:
            x = move.reshape(x, (batch, *self.extents, groups, share))
            return move.permute(x, (rank + 1, 0, rank + 2, *range(1, rank + 1)))
        if groups == 1:
            return move.reshape(x, (1, *x.shape))
        x = move.reshape(x, (batch, groups, share, *self.extents))
        return move.permute(x, (1, 0, 2, *range(3, rank + 3)))

    def finished(self, product: Node) -> Tensor:
        """``(groups, N, outputs of a group, *positions)`` in the layout of x, with the bias."""
        groups, batch, share, *positions = product.shape
        rank, outputs = len(positions), groups * share
        if self.channels_last:
            product = move.permute(product, (1, *range(3, rank + 3), 0, 2))
            result = move.reshape(product, (batch, *positions, outputs))
        else:
            if groups > 1:
                product = move.permute(product, (1, 0, *range(2, rank + 3)))
            result = move.reshape(product, (batch, outputs, *positions))
        if self.bias is not None:
            bias = self.bias if self.channels_last else move.reshape(self.bias, (outputs, *(1,) * rank))
            result = ops.logical_or(result, bias) if result.dtype.kind == "b" else ops.add(result, bias)
        return Tensor(move.reshape(result, result.shape[1:]) if self.is_single else result)


def _operands(
    op: str, rank: int, x: Any, weight: Any, bias: Any, groups: Any, layout: str, is_transposed: bool
) -> _Operands:
    if layout not in LAYOUTS:
        raise ArgumentError(f"{op}: layout must be one of {', '.join(map(repr, LAYOUTS))}, got {layout!r}")
    groups = as_int(groups, op, "groups")
    if groups < 1:
        raise ArgumentError(f"{op}: groups must be at least 1, got {groups}")
    given = promote(x, weight, *(() if bias is None else (bias,)), op=op)
    a, w = given[:2]
    b = None if bias is None else given[2]
    is_last = layout == "channels_last"
    axes = ("N", *["L", "HW", "DHW"][rank - 1], "C") if is_last else ("N", "C", *["L", "HW", "DHW"][rank - 1])
    if len(a.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: x must have the axes ({', '.join(axes)}) or ({', '.join(axes[1:])}), got shape {a.shape}"
        )
    roles = "(inputs, outputs / groups, *taps)" if is_transposed else "(outputs, inputs / groups, *taps)"
    if len(w.shape) != rank + 2:
        raise ShapeError(f"{op}: weight must have {rank + 2} axes, {roles}, got shape {w.shape}")
    if 0 in w.shape[2:]:
        raise ShapeError(f"{op}: the window must have an extent of at least 1 on each axis, got weight {w.shape}")
    is_single = len(a.shape) == rank + 1
    if is_single:
        a = move.reshape(a, (1, *a.shape))
    found = _Operands(op, a, w, b, groups, is_last, is_single)
    expected = w.shape[0] if is_transposed else w.shape[1] * groups
    if found.channels != expected:
        share = "" if is_transposed or groups == 1 else f" with groups={groups}"
        raise ShapeError(
            f"{op}: a weight of shape {w.shape}{share}, {roles}, takes x of {expected} channels; x of shape "
            f"{found.described()} and layout {layout!r} has {found.channels}"
        )
    if w.shape[0] % groups:
        what = "channels of x" if is_transposed else "outputs of the weight"
        raise ShapeError(f"{op}: groups={groups} does not divide the {w.shape[0]} {what}, whose shape is {w.shape}")
    outputs = w.shape[1] * groups if is_transposed else w.shape[0]
    if b is not None and b.shape != (outputs,):
        raise ShapeError(f"{op}: bias must have shape ({outputs},), one number for each output, got {b.shape}")
    return found


def _check_sizes(given: _Operands, padded: Ints, outputs: int, positions: Ints) -> None:
    """ShapeError for arrays that no address space holds."""
    batch, itemsize = given.x.shape[0], given.x.dtype.itemsize
    for what, shape in (
        ("x with its padding", (batch, given.channels, *padded)), ("the result", (batch, outputs, *positions))
    ):
        # Zero extents make no difference to how an array is addressed: none may overflow, even beside a 0.
        if size_of([max(n, 1) for n in shape]) * itemsize >= 1 << 63:
            raise ShapeError(
                f"{given.op}: {what} would have shape {shape} (channels first), more than 2**63 bytes of "
                f"{given.x.dtype.name}"
            )


# -- convolution -------------------------------------------------------------------------------------------------------


def _conv(
    op: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any,
    layout: str,
) -> Tensor:  # fmt: skip
    given = _operands(op, rank, x, weight, bias, groups, layout, False)
    steps = per_axis(stride, rank, op, "stride", 1)
    gaps = per_axis(dilation, rank, op, "dilation", 1)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ArgumentError(f"{op}: padding must be 'same', 'valid', ints or pairs of ints, got {padding!r}")
        pairs = same_pairs(given.extents, given.taps, steps, gaps) if padding == "same" else ((0, 0),) * rank
    else:
        pairs = padding_pairs(padding, rank, op)
    positions = []
    for axis, (extent, taps, step, pair, gap) in enumerate(zip(given.extents, given.taps, steps, pairs, gaps)):
        count = output_extent(extent, taps, step, pair, 1, gap)
        if count < 1:
            window = f"{taps} taps" if gap == 1 else f"{taps} taps with dilation {gap}"
            raise ShapeError(
                f"{op}: the window of {spread_extent(taps, gap)} elements ({window}) does not fit axis "
                f"{given.place(axis)} of x, of shape {given.described()}: {extent} elements and padding {pair}"
            )
        positions.append(count)
    padded = tuple([extent + sum(pair) for extent, pair in zip(given.extents, pairs)])
    _check_sizes(given, padded, given.weight.shape[0], tuple(positions))
    outputs, share = given.weight.shape[:2]
    w = move.reshape(given.weight, (given.groups, outputs // given.groups, share, *given.taps))
    return given.finished(convolution(given.grouped(), w, steps, pairs, None, gaps))


@composite
def conv1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    layout: str = "channels_first",
) -> Tensor:  # fmt: skip
    """Convolution over one axis: ``out[n, o, j] = bias[o] + sum over c, t of x[n, c, j stride + t dilation - padding]
    weight[o, c, t]``.

    x: (N, C, L) or (C, L); weight: (O, C / groups, K); bias: (O,). Result: (N, O, L') or (O, L'), where
    ``L' = (L + padding before and after - dilation (K - 1) - 1) // stride + 1``.

    stride, dilation: an int, or one for each axis.
    padding: zeros: an int, one for each axis, or a pair (before, after) for each axis; "valid" is none, "same" as many
        as make ``L' = L / stride``, rounded up, the odd one after.
    groups: channels and outputs are cut in so many groups; the outputs of one see its channels alone. As many groups as
        channels: a depthwise convolution.
    layout: "channels_first", or "channels_last": x and the result are (N, L, C).

    Raises ShapeError, naming the argument and the numbers, for shapes that do not fit, groups that do not divide, a
    window that fits nowhere, and sizes beyond the address space; ArgumentError for other wrong arguments; DTypeError
    for dtypes that do not promote.
    """
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups, layout)


@composite
def conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    layout: str = "channels_first",
) -> Tensor:  # fmt: skip
    """:func:`conv1d` over two axes.  x: (N, C, H, W) or (C, H, W), with ``layout="channels_last"`` (N, H, W, C);
    weight: (O, C / groups, KH, KW); bias: (O,). Result: (N, O, H', W')."""
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups, layout)


@composite
def conv3d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    layout: str = "channels_first",
) -> Tensor:  # fmt: skip
    """:func:`conv1d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W), with ``layout="channels_last"``
    (N, D, H, W, C); weight: (O, C / groups, KD, KH, KW); bias: (O,). Result: (N, O, D', H', W')."""
    return _conv("conv3d", 3, x, weight, bias, stride, padding, dilation, groups, layout)


# -- transposed convolution --------------------------------------------------------------------------------------------


def _conv_transpose(
    op: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: Any,
    dilation: Any, layout: str,
) -> Tensor:  # fmt: skip
    given = _operands(op, rank, x, weight, bias, groups, layout, True)
    steps = per_axis(stride, rank, op, "stride", 1)
    gaps = per_axis(dilation, rank, op, "dilation", 1)
    more = per_axis(output_padding, rank, op, "output_padding", 0)
    if isinstance(padding, str):
        raise ArgumentError(f"{op}: padding must be ints or pairs of ints, got {padding!r}")
    cropped = padding_pairs(padding, rank, op)
    pairs, positions = [], []
    for axis, (extent, taps, step, (low, high), gap, extra) in enumerate(
        zip(given.extents, given.taps, steps, cropped, gaps, more)
    ):
        if extra >= max(step, gap):
            raise ArgumentError(
                f"{op}: output_padding {output_padding!r} must be less than stride {stride!r} or dilation {dilation!r}"
            )
        window = spread_extent(taps, gap)
        pair = window - 1 - low, window - 1 - high + extra
        count = output_extent(extent, taps, 1, pair, step, gap)
        if extent < 1 or count < 1:
            raise ShapeError(
                f"{op}: nothing is left of axis {given.place(axis)} of x, of shape {given.described()}: {extent} "
                f"elements, stride {step} and a window of {window}, less padding {(low, high)}"
            )
        pairs.append(pair)
        positions.append(count)
    inputs, share = given.weight.shape[:2]
    _check_sizes(given, given.extents, share * given.groups, tuple(positions))
    w = move.reshape(given.weight, (given.groups, inputs // given.groups, share, *given.taps))
    w = move.permute(w, (0, 2, 1, *range(3, 3 + rank)))
    w = move.flip(w, tuple(range(3, 3 + rank)))
    return given.finished(convolution(given.grouped(), w, (1,) * rank, tuple(pairs), steps, gaps))


@composite
def conv_transpose1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, layout: str = "channels_first",
) -> Tensor:  # fmt: skip
    """The transpose of :func:`conv1d` as a map of its x, and a bias: each element of x adds the weights of a window,
    times itself, to the result: ``out[n, o, i stride + t dilation - padding] += x[n, c, i] weight[c, o, t]``.

    x: (N, C, L) or (C, L); weight: (C, O / groups, K); bias: (O,). Result: (N, O, L') or (O, L'), where
    ``L' = (L - 1) stride - padding before and after + dilation (K - 1) + 1 + output_padding``.

    stride, dilation: an int, or one for each axis.
    padding: what is cropped: an int, one for each axis, or a pair (before, after) for each axis.
    output_padding: elements more at the end, which tell apart the lengths that a stride makes one; below stride or
        dilation.
    groups, layout, errors: as in :func:`conv1d`.
    """
    return _conv_transpose(
        "conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, groups, dilation, layout
    )


@composite
def conv_transpose2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, layout: str = "channels_first",
) -> Tensor:  # fmt: skip
    """:func:`conv_transpose1d` over two axes.  x: (N, C, H, W) or (C, H, W), with ``layout="channels_last"``
    (N, H, W, C); weight: (C, O / groups, KH, KW); bias: (O,). Result: (N, O, H', W')."""
    return _conv_transpose(
        "conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, groups, dilation, layout
    )


@composite
def conv_transpose3d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, layout: str = "channels_first",
) -> Tensor:  # fmt: skip
    """:func:`conv_transpose1d` over three axes.  x: (N, C, D, H, W) or (C, D, H, W), with ``layout="channels_last"``
    (N, D, H, W, C); weight: (C, O / groups, KD, KH, KW); bias: (O,). Result: (N, O, D', H', W')."""
    return _conv_transpose(
        "conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, groups, dilation, layout
    )
