"""Pooling and resizing of random settings against sums and maxima written out window by window, in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback import nn

NAN, INF = np.nan, np.inf


def positions(extent, kernel, stride, padding, dilation, ceil_mode):
    """Of every window along an axis its places, padding and what is beyond it too."""
    room = extent + 2 * padding - (kernel - 1) * dilation - 1
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= extent + padding:
        count -= 1
    return [[o * stride - padding + a * dilation for a in range(kernel)] for o in range(count)]


def windows(x, settings):
    """For each window its number and the elements' places in ``x``'s last axes that are inside of it, row-major."""
    n = len(settings)
    axes = [positions(extent, *setting) for extent, setting in zip(x.shape[-n:], settings, strict=True)]
    shape = tuple(map(len, axes))
    for number in np.ndindex(shape):
        places = itertools.product(*[axis[o] for axis, o in zip(axes, number, strict=True)])
        inside = [p for p in places if all(0 <= i < e for i, e in zip(p, x.shape[-n:], strict=True))]
        yield shape, number, inside


def pooled(x, g, settings, divisor):
    """Largest elements, their places and the means, and for the cotangent ``g`` the gradients of largest and mean.

    x: one image; divisor: of a window's places along each axis and the number of those inside, the mean's divisor.
    """
    extents = x.shape
    shape = next(windows(x, settings))[0]
    most, index, mean = np.empty(shape), np.empty(shape, np.int64), np.empty(shape)
    by_most, by_mean = np.zeros(extents), np.zeros(extents)
    axes = [positions(extent, *setting) for extent, setting in zip(extents, settings, strict=True)]
    for _, number, inside in windows(x, settings):
        values = np.array([x[p] for p in inside])
        first = int(np.argmax(values))  # of NumPy too: the first, and NaN before all
        most[number], index[number] = values[first], np.ravel_multi_index(inside[first], extents)
        by_most[inside[first]] += g[number]
        counted = divisor([axis[o] for axis, o in zip(axes, number, strict=True)], len(inside))
        mean[number] = values.sum() / counted
        for p in inside:
            by_mean[p] += g[number] / counted
    return most, index, mean, by_most, by_mean


def drawn(rng, n, dilated):
    """Extents of ``n`` axes, and kernel, stride, padding, dilation and ceil_mode for each."""
    ceil_mode = bool(rng.integers(2))
    while True:
        extents = tuple(int(e) for e in rng.integers(1, (17, 9, 6)[n - 1] + 1, n))
        settings = []
        for _ in extents:
            kernel = int(rng.integers(1, 5))
            padding, dilation = int(rng.integers(kernel // 2 + 1)), int(rng.integers(1, 3)) if dilated else 1
            settings.append((kernel, int(rng.integers(1, 5)), padding, dilation, ceil_mode))
        try:
            shapes = [len(positions(e, *s)) for e, s in zip(extents, settings, strict=True)]
            held = all(inside for _, _, inside in windows(np.zeros(extents), settings))
        except StopIteration:
            continue
        if min(shapes) > 0 and held:
            return extents, settings, ceil_mode


def options(settings, *names):
    known = dict(zip(("kernel_size", "stride", "padding", "dilation"), zip(*[s[:4] for s in settings], strict=True),
                     strict=True))  # fmt: skip
    return {name: known[name] for name in names}


@pytest.mark.parametrize("seed", range(30))
def test_random_pooling(seed):
    rng = np.random.default_rng(seed)
    n = 1 + seed % 3
    extents, settings, ceil_mode = drawn(rng, n, dilated=bool(seed % 2))
    # Few different numbers, so that many are equal; now and then what is not finite.
    x = rng.integers(-3, 4, extents).astype(float)
    if seed % 5 == 0:
        x[tuple(rng.integers(extents))] = NAN
    if seed % 5 == 1:
        x[rng.random(extents) < 0.6] = -INF
    shape = tuple(len(positions(e, *s)) for e, s in zip(extents, settings, strict=True))
    g = rng.standard_normal(shape)
    includes = bool(rng.integers(2))

    def divisor(places, inside):
        if not includes:
            return inside
        return np.prod([sum(i < e + s[2] for i in p) for p, e, s in zip(places, extents, settings, strict=True)])

    with np.errstate(invalid="ignore"):
        most, index, mean, by_most, by_mean = pooled(x, g, settings, divisor)
    given = options(settings, "kernel_size", "stride", "padding", "dilation")
    pool = getattr(nn, f"max_pool{n}d")
    found, places = pool(x[None], **given, ceil_mode=ceil_mode, return_indices=True)
    np.testing.assert_array_equal(np.asarray(found)[0], most)
    np.testing.assert_array_equal(np.asarray(places)[0], index)
    _, pull = pb.vjp(lambda x: pool(x, **given, ceil_mode=ceil_mode), pb.asarray(x[None]))
    np.testing.assert_allclose(np.asarray(pull(pb.asarray(g[None]))[0])[0], by_most, rtol=1e-12, atol=1e-12)
    if all(setting[3] == 1 for setting in settings):
        del given["dilation"]
        given |= {"ceil_mode": ceil_mode, "count_include_pad": includes}
        mean_pool = getattr(nn, f"avg_pool{n}d")
        found, pull = pb.vjp(lambda x: mean_pool(x, **given), pb.asarray(x[None]))
        np.testing.assert_allclose(np.asarray(found)[0], mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(np.asarray(pull(pb.asarray(g[None]))[0])[0], by_mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_of_derivatives(seed):
    rng = np.random.default_rng(seed)
    n = 1 + seed % 2
    extents, settings, ceil_mode = drawn(rng, n, dilated=False)
    x = rng.permutation(np.prod(extents)).reshape(1, *extents) / 7.0  # no two alike: the largest is well away
    given = options(settings, "kernel_size", "stride", "padding")
    for pool in (getattr(nn, f"max_pool{n}d"), getattr(nn, f"avg_pool{n}d")):
        pb.testing.check_grads(lambda x, pool=pool: pb.sin(pool(x, **given, ceil_mode=ceil_mode)), (x,), order=2)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers(dtype):
    rng = np.random.default_rng(0)
    low = np.iinfo(dtype).min
    x = rng.integers(low, low + 5, (2, 7, 6), dtype=dtype)  # their least, which padding must not pass for
    found, places = nn.max_pool2d(x, 3, 2, 1, return_indices=True)
    for image, most, place in zip(x, np.asarray(found), np.asarray(places), strict=True):
        above = (image.astype(np.int64) - low).astype(float)  # exact
        expected = pooled(above, np.zeros(most.shape), [(3, 2, 1, 1, False)] * 2, lambda *_: 1)
        np.testing.assert_array_equal(most.astype(np.int64) - low, expected[0])
        np.testing.assert_array_equal(place, expected[1])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nn.max_pool2d(x, 3, 2, 1), lambda x: nn.max_pool2d(x, 5, 1), lambda x: nn.avg_pool2d(x, 2),
        lambda x: nn.adaptive_avg_pool2d(x, 3), lambda x: nn.adaptive_max_pool2d(x, 3),
        lambda x: nn.interpolate(x, size=5), lambda x: nn.interpolate(x, size=(9, 4), mode="bicubic"),
    ],
)  # fmt: skip
def test_an_empty_batch(call):
    x = pb.zeros((0, 2, 7, 8), dtype=pb.float64)
    value, pull = pb.vjp(call, x)
    assert value.shape[0] == 0 and value.shape[1] == 2 and min(value.shape[2:]) >= 3
    assert pull(value)[0].shape == x.shape
    assert np.asarray(value).size == 0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 17])
def test_adaptive_means_of_every_extent(size):
    rng = np.random.default_rng(size)
    for extent in (1, 2, 4, 7, 13, 16, 17):
        x = rng.standard_normal((2, extent))
        bins = [slice(i * extent // size, -(-(i + 1) * extent // size)) for i in range(size)]
        g = rng.standard_normal((2, size))
        value, pull = pb.vjp(lambda x: nn.adaptive_avg_pool1d(x, size), pb.asarray(x))
        np.testing.assert_allclose(np.asarray(value), np.stack([x[:, b].mean(1) for b in bins], 1), rtol=1e-12)
        expected = np.zeros_like(x)
        for i, b in enumerate(bins):
            expected[:, b] += g[:, i : i + 1] / len(range(extent)[b])
        np.testing.assert_allclose(np.asarray(pull(pb.asarray(g))[0]), expected, rtol=1e-12, atol=1e-12)
