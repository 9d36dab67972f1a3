"""Convolutions of every size: random settings in float64 against sums written out tap by tap, and what is wrong."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, ShapeError
from tests.threads import same_bits

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
LAYOUTS = ("channels_first", "channels_last")


class Setting(NamedTuple):
    """One convolution. padding: what the function is given; pairs: what that means on each axis."""

    x: Array  # (batch, channels, *extents)
    w: Array
    b: Array
    stride: Ints
    dilation: Ints
    padding: Any
    pairs: tuple[tuple[int, int], ...]
    groups: int
    layout: str
    output_padding: Ints = ()

    @property
    def rank(self) -> int:
        return len(self.stride)

    @property
    def options(self) -> dict[str, Any]:
        found = {
            "stride": self.stride, "dilation": self.dilation, "padding": self.padding, "groups": self.groups,
            "layout": self.layout,
        }  # fmt: skip
        return {**found, "output_padding": self.output_padding} if self.output_padding else found

    @property
    def name(self) -> str:
        return f"conv{'_transpose' if self.output_padding else ''}{self.rank}d"

    def given(self, x: Array) -> Array:
        """An array of images, channels first, in the layout of this convolution."""
        return np.moveaxis(x, 1, -1) if self.layout == "channels_last" else x

    def __call__(self, x: Any, w: Any, b: Any) -> Any:
        return getattr(nn, self.name)(x, w, b, **self.options)


# -- the definition ----------------------------------------------------------------------------------------------------


def _cells(setting: Setting, positions: Ints, extents: Ints) -> Any:
    """For each tap: its place in the window, and the slices of x (padded) that meet every output of it."""
    for tap in itertools.product(*[range(n) for n in setting.w.shape[2:]]):
        starts = [t * gap for t, gap in zip(tap, setting.dilation)]
        yield tap, tuple([
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, positions, setting.stride)
        ])


def _padded(setting: Setting, x: Array) -> Array:
    return np.pad(x, ((0, 0), (0, 0), *setting.pairs))


def _lines(x: Array) -> Array:
    """The positions as one axis, after batch, group and channel."""
    return x.reshape(*x.shape[:3], math.prod(x.shape[3:]))


def direct(setting: Setting, x: Array, w: Array, ct: Array | None = None) -> tuple[Array, Array, Array]:
    """The sum for each output without the bias; and what the cotangent ``ct`` (ones) gives for x and w."""
    groups, taps = setting.groups, w.shape[2:]
    padded = _padded(setting, x)
    positions = tuple([
        (n - (k - 1) * gap - 1) // step + 1
        for n, k, gap, step in zip(padded.shape[2:], taps, setting.dilation, setting.stride)
    ])
    batch, outputs = x.shape[0], w.shape[0]
    y = np.zeros((batch, groups, outputs // groups, *positions))
    ct = np.ones(y.shape) if ct is None else ct.reshape(y.shape)
    split = padded.reshape(batch, groups, w.shape[1], *padded.shape[2:])
    weight = w.reshape(groups, outputs // groups, *w.shape[1:])
    of_x, of_w = np.zeros_like(split), np.zeros_like(weight)
    for tap, cells in _cells(setting, positions, padded.shape[2:]):
        part, by = split[(slice(None),) * 3 + cells], weight[(slice(None),) * 3 + tap]
        y += np.einsum("ngc...,goc->ngo...", part, by)
        of_x[(slice(None),) * 3 + cells] += np.einsum("ngo...,goc->ngc...", ct, by)
        of_w[(slice(None),) * 3 + tap] = np.einsum("ngcp,ngop->goc", _lines(part), _lines(ct))
    inside = tuple([slice(low, low + n) for (low, _), n in zip(setting.pairs, x.shape[2:])])
    of_x = of_x.reshape(padded.shape)[(slice(None), slice(None), *inside)]
    return y.reshape(batch, outputs, *positions), of_x, of_w.reshape(w.shape)


def transposed(setting: Setting, x: Array, w: Array, ct: Array | None = None) -> tuple[Array, Array, Array]:
    """The same of the transposed convolution: each element of x adds a window of weights to the result."""
    groups, taps = setting.groups, w.shape[2:]
    batch, share = x.shape[0], w.shape[1]
    whole = [
        (n - 1) * step + (k - 1) * gap + 1 + extra
        for n, k, step, gap, extra in zip(x.shape[2:], taps, setting.stride, setting.dilation, setting.output_padding)
    ]
    inside = tuple([slice(low, n - high) for (low, high), n in zip(setting.pairs, whole)])
    y = np.zeros((batch, groups, share, *whole))
    inputs = w.shape[0] // groups
    split, weight = x.reshape(batch, groups, inputs, *x.shape[2:]), w.reshape(groups, inputs, *w.shape[1:])
    spread = np.zeros(y.shape)
    kept = spread[(slice(None),) * 3 + inside]
    kept[...] = 1.0 if ct is None else ct.reshape(kept.shape)
    of_x, of_w = np.zeros_like(split), np.zeros_like(weight)
    for tap, cells in _cells(setting, x.shape[2:], tuple(whole)):
        by = weight[(slice(None),) * 3 + tap]
        y[(slice(None),) * 3 + cells] += np.einsum("ngc...,gco->ngo...", split, by)
        part = spread[(slice(None),) * 3 + cells]
        of_x += np.einsum("ngo...,gco->ngc...", part, by)
        of_w[(slice(None),) * 3 + tap] = np.einsum("ngcp,ngop->gco", _lines(split), _lines(part))
    y = y[(slice(None),) * 3 + inside]
    return y.reshape(batch, groups * share, *y.shape[3:]), of_x.reshape(x.shape), of_w.reshape(w.shape)


# -- random settings ---------------------------------------------------------------------------------------------------

MOST = {1: 17, 2: 17, 3: 9}  # extents


def _padding(rng: np.random.Generator, taps: Ints, gaps: Ints, steps: Ints, extents: Ints) -> tuple[Any, Any]:
    """What to give as padding, and the pairs that it stands for."""
    rank = len(taps)
    kind = rng.choice(["int", "ints", "pairs", "same", "valid"])
    if kind == "int":
        n = int(rng.integers(0, 4))
        return n, ((n, n),) * rank
    if kind == "ints":
        numbers = tuple(rng.integers(0, 4, rank).tolist())
        return numbers, tuple([(n, n) for n in numbers])
    if kind == "pairs":
        pairs = tuple([tuple(rng.integers(0, 5, 2).tolist()) for _ in range(rank)])
        return pairs, pairs
    if kind == "valid":
        return "valid", ((0, 0),) * rank
    missing = [
        max((-(-n // step) - 1) * step + (k - 1) * gap + 1 - n, 0)
        for n, k, gap, step in zip(extents, taps, gaps, steps)
    ]
    return "same", tuple([(n // 2, n - n // 2) for n in missing])


def _channels(rng: np.random.Generator) -> tuple[int, int, int]:
    """Groups, and inputs and outputs of each: dense, grouped, or depthwise with a multiplier; 1 to 17 channels."""
    kind = int(rng.integers(0, 4))
    if kind < 2:
        return 1, int(rng.integers(1, 18)), int(rng.integers(1, 18))
    if kind == 2:
        groups = int(rng.integers(2, 5))
        return groups, int(rng.integers(1, 17 // groups + 1)), int(rng.integers(1, 17 // groups + 1))
    groups = int(rng.integers(1, 18))
    return groups, 1, int(rng.integers(1, 4))


def setting_of(seed: int, is_transposed: bool) -> Setting:
    rng = np.random.default_rng((seed, is_transposed))
    rank = (1, 2, 2, 3)[seed % 4]
    groups, inputs, outputs = _channels(rng)
    while True:
        extents = tuple(rng.integers(1, MOST[rank] + 1, rank).tolist())
        taps = tuple(rng.integers(1, 8 if rank < 3 else 4, rank).tolist())
        steps = tuple(rng.choice([1, 1, 1, 2, 3, 4], rank).tolist())
        gaps = tuple(rng.choice([1, 1, 2, 3], rank).tolist())
        padding, pairs = _padding(rng, taps, gaps, steps, extents)
        windows = [(k - 1) * gap + 1 for k, gap in zip(taps, gaps)]
        extra = tuple([int(rng.integers(0, max(step, gap))) for step, gap in zip(steps, gaps)])
        if is_transposed:
            if isinstance(padding, str):
                continue
            left = [
                (n - 1) * s + k + e - sum(pair) for n, s, k, e, pair in zip(extents, steps, windows, extra, pairs)
            ]
            fits = min(left) > 0
        else:
            fits = all(n + sum(pair) >= k for n, k, pair in zip(extents, windows, pairs))
        if fits:
            break
    batch = int(rng.choice([0, 1, 1, 2, 3]))
    x = rng.standard_normal((batch, groups * inputs, *extents))
    shape = (groups * inputs, outputs, *taps) if is_transposed else (groups * outputs, inputs, *taps)
    return Setting(
        x, rng.standard_normal(shape), rng.standard_normal(groups * outputs), steps, gaps, padding, pairs, groups,
        LAYOUTS[int(rng.integers(0, 2))], extra if is_transposed else (),
    )  # fmt: skip


def _agree(setting: Setting) -> None:
    """Values and gradients to 1e-10 of the largest; and a second derivative, which the definition knows: the function
    is linear in x and in w, so that by both together it is the definition again."""
    define = transposed if setting.output_padding else direct
    x, w, b = setting.x, setting.w, setting.b
    rng = np.random.default_rng(7)
    plain, _, _ = define(setting, x, w)
    ct, dx, dw = (rng.standard_normal(shape) for shape in (plain.shape, x.shape, w.shape))
    _, of_x, of_w = define(setting, x, w, ct)
    # d/de of the gradients at x + e dx, w + e dw: by w from dx, by x from dw.
    _, second_x, _ = define(setting, x, dw, ct)
    _, _, second_w = define(setting, dx, w, ct)
    shift = b.reshape(-1, *(1,) * setting.rank)
    axes = (0, *range(2, 2 + setting.rank))

    def gradients(x: Any, w: Any, b: Any, ct: Any) -> Any:
        value, pull = pb.vjp(setting, x, w, b)
        return (value, *pull(ct))

    def second(x: Any, w: Any, b: Any, ct: Any, dx: Any, dw: Any) -> Any:
        def slope(x: Any, w: Any) -> Any:
            _, of_x, of_w, _ = gradients(x, w, b, ct)
            return pb.sum(of_x * dx) + pb.sum(of_w * dw)

        return pb.grad(slope, argnums=(0, 1))(x, w)

    given = [setting.given(x), w, b, setting.given(ct)]
    found = [np.asarray(a) for a in gradients(*given)]
    wanted = [setting.given(plain + shift), setting.given(of_x), of_w, ct.sum(axes)]
    if x.size:
        found += [np.asarray(a) for a in second(*given, setting.given(dx), dw)]
        wanted += [setting.given(second_x), second_w]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(want).max(initial=0.0)))


@pytest.mark.parametrize("seed", range(60))
def test_random_settings_against_the_definition(seed: int) -> None:
    _agree(setting_of(seed, False))


@pytest.mark.parametrize("seed", range(40))
def test_random_transposed_settings_against_the_definition(seed: int) -> None:
    _agree(setting_of(seed, True))


@pytest.mark.parametrize("extent", range(1, 18))
def test_every_extent_and_number_of_channels(extent: int) -> None:
    """Of images of 1 to 17 pixels a side and as many channels, with a window that leaves some over."""
    rng = np.random.default_rng(extent)
    channels, other = extent, 18 - extent
    for taps, stride in (((1, 1), (2, 2)), ((3, 3), (1, 1)), ((3, 2), (2, 3))):
        pad = max(taps) // 2
        x, w = rng.standard_normal((2, channels, extent, other)), rng.standard_normal((other, channels, *taps))
        layout = LAYOUTS[extent % 2]
        pairs = ((pad, pad),) * 2
        _agree(Setting(x, w, rng.standard_normal(other), stride, (1, 1), pad, pairs, 1, layout))
        w = rng.standard_normal((channels, 1, *taps))
        _agree(Setting(x, w, rng.standard_normal(channels), stride, (1, 1), pad, pairs, channels, layout))


@pytest.mark.parametrize("seed", range(6))
def test_vmap_is_a_loop(seed: int) -> None:
    setting = setting_of(100 + seed, seed % 2 == 1)
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal((3, *a.shape)) for a in (setting.given(setting.x), setting.w))

    def function(x: Any, w: Any) -> Any:
        value, pull = pb.vjp(lambda x, w: setting(x, w, setting.b), x, w)
        return (value, *pull(pb.sin(value)))

    for axes in ((0, 0), (0, None), (None, 0)):
        given = [a if axis == 0 else a[0] for a, axis in zip((x, w), axes)]
        found = pb.vmap(function, in_axes=axes)(*given)
        rows = [function(*[a[i] if axis == 0 else a for a, axis in zip(given, axes)]) for i in range(3)]
        for got, want in zip(found, zip(*rows), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.stack([np.asarray(a) for a in want]), rtol=1e-9, atol=1e-9)


SHAPES = {
    "dense": ((4, 16, 33, 31), (24, 16, 3, 3), {"padding": 1}),
    "few channels": ((8, 3, 33, 31), (6, 3, 5, 5), {"padding": 2}),
    "grouped, strided": ((4, 32, 33, 31), (32, 4, 3, 3), {"padding": 1, "groups": 8, "stride": 2}),
    "depthwise": ((4, 32, 33, 31), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
    "depthwise, many taps": ((4, 16, 33, 31), (16, 1, 7, 7), {"padding": 3, "groups": 16}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SHAPES)
def test_threads_change_no_bit(name: str, layout: str) -> None:
    shape, taps, options = SHAPES[name]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(taps).astype(np.float32)
    if layout == "channels_last":
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))

    def function(x: Any, w: Any) -> Any:
        value, pull = pb.vjp(lambda x, w: nn.conv2d(x, w, layout=layout, **options), x, w)
        return (value, *pull(value))

    same_bits(lambda: pb.jit(function)(x, w), (1, 2, 3))


# -- what does not leak ------------------------------------------------------------------------------------------------


def _reach(setting: Setting, place: Ints) -> Array:
    """Which outputs read the element of x, channels first, at ``place``."""
    mark = np.zeros_like(setting.x)
    mark[place] = 1
    return direct(setting, mark, np.ones_like(setting.w))[0] != 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_special_values_stay_with_the_outputs_that_read_them(seed: int, value: float) -> None:
    """Other channels, images, groups and the pixels that a stride passes by: nothing of them reaches an output."""
    setting = setting_of(200 + seed, False)
    x = setting.x if len(setting.x) else np.ones((1, *setting.x.shape[1:]))
    setting = setting._replace(w=np.abs(setting.w) + 0.1, x=x)
    rng = np.random.default_rng(seed)
    place = tuple([int(rng.integers(0, n)) for n in setting.x.shape])
    spoiled = setting.x.copy()
    spoiled[place] = value
    plain = np.asarray(setting(setting.given(setting.x), setting.w, setting.b))
    found = np.asarray(setting(setting.given(spoiled), setting.w, setting.b))
    reached = setting.given(_reach(setting, place))
    np.testing.assert_array_equal(found[~reached], plain[~reached])
    assert np.all(np.isnan(found[reached]) if np.isnan(value) else found[reached] == value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_an_infinite_weight_meets_the_zeros_of_the_padding(layout: str, groups: int) -> None:
    """They are multiplied like other elements, as in PyTorch: NaN where the tap lies in the padding."""
    x, w = np.ones((1, 4, 3, 4)), np.ones((4, 4 // groups, 3, 3))
    w[1, 0, 0, 1] = np.inf  # one tap above the middle, of output 1
    given = np.moveaxis(x, 1, -1) if layout == "channels_last" else x
    found = np.asarray(nn.conv2d(given, w, padding=1, groups=groups, layout=layout))
    found = np.moveaxis(found, -1, 1) if layout == "channels_last" else found
    assert np.all(np.isnan(found[0, 1, 0]))
    assert np.all(found[0, 1, 1:] == np.inf)
    assert np.all(np.isfinite(found[0, [0, 2, 3]]))


# -- what is wrong -----------------------------------------------------------------------------------------------------

X, W = np.ones((2, 6, 5, 7)), np.ones((4, 6, 3, 3))
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "channels": (lambda: nn.conv2d(X[:, :5], W), ShapeError, "takes x of 6 channels"),
    "groups that do not divide the channels": (
        lambda: nn.conv2d(X, np.ones((4, 1, 3, 3)), groups=4), ShapeError, "takes x of 4 channels",
    ),
    "groups that do not divide the outputs": (
        lambda: nn.conv2d(X, np.ones((4, 2, 3, 3)), groups=3), ShapeError, "groups=3 does not divide the 4 outputs",
    ),
    "stride 0": (lambda: nn.conv2d(X, W, stride=0), ArgumentError, "stride must be at least 1, got 0"),
    "negative stride": (lambda: nn.conv2d(X, W, stride=(1, -1)), ArgumentError, "stride must be at least 1"),
    "negative dilation": (lambda: nn.conv2d(X, W, dilation=-2), ArgumentError, "dilation must be at least 1"),
    "negative padding": (lambda: nn.conv2d(X, W, padding=((0, -1), (0, 0))), ArgumentError, "padding must be at lea"),
    "a window larger than the image": (
        lambda: nn.conv2d(X, np.ones((4, 6, 9, 3)), padding=1), ShapeError,
        "window of 9 elements (9 taps) does not fit axis 2 of x, of shape (2, 6, 5, 7): 5 elements and padding (1, 1)",
    ),
    "no pixels": (lambda: nn.conv2d(X[:, :, :0], W), ShapeError, "does not fit axis 2"),
    "padding beyond memory": (lambda: nn.conv2d(X, W, padding=1 << 40), ShapeError, "more than 2**63 bytes"),
    "a result beyond memory": (
        lambda: nn.conv_transpose2d(X, np.ones((6, 4, 3, 3)), stride=1 << 40), ShapeError, "more than 2**63 bytes",
    ),
    "a dilation beyond memory": (
        lambda: nn.conv_transpose1d(X[0], np.ones((5, 4, 3)), dilation=1 << 61), ShapeError, "more than 2**63 bytes",
    ),
    "cropped away": (
        lambda: nn.conv_transpose2d(X, np.ones((6, 4, 3, 3)), padding=5), ShapeError, "nothing is left of axis 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_come_before_anything_is_computed(name: str) -> None:
    call, kind, message = WRONG[name]
    with pytest.raises(kind, match=re.escape(message)):
        call()
