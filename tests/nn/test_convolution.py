"""Convolutions: random settings against PyTorch, edges of the definition, vmap, half types, layers, errors."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn import functional as F
from tests.threads import same_bits


def sample(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def _last(x):
    return np.moveaxis(x, 1, -1)


# -- random settings against PyTorch -----------------------------------------------------------------------------------


def _setting(seed):
    """Operands and options of a convolution that fits; extents are 1 to 17 (in three axes less)."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, outputs = (int(n) * groups for n in rng.integers(1, 4, 2))
    if seed % 4 == 0:
        channels = groups = int(rng.integers(1, 5))
        outputs = groups * int(rng.integers(1, 3))
    most = {1: 18, 2: 18, 3: 8}[rank]
    while True:
        extents = tuple(rng.integers(1, most, rank).tolist())
        taps = tuple(rng.integers(1, 8 if rank < 3 else 4, rank).tolist())
        options = {
            "stride": tuple(rng.integers(1, 5, rank).tolist()), "dilation": tuple(rng.integers(1, 4, rank).tolist()),
            "padding": tuple(rng.integers(0, 4, rank).tolist()), "groups": groups,
        }
        room = [n + 2 * p - d * (k - 1) for n, k, p, d in zip(extents, taps, options["padding"], options["dilation"])]
        if min(room) > 0:
            break
    batch = int(rng.integers(1, 4))
    x, w = rng.standard_normal((batch, channels, *extents)), rng.standard_normal((outputs, channels // groups, *taps))
    return rank, x, w, rng.standard_normal(outputs), options


def _agrees(name, arrays, options, layout="channels_first"):
    """Values to 1e-9, gradients to 1e-8."""
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = getattr(torch.nn.functional, name)(*leaves, **options)
    cotangent = sample(*expected.shape, seed=9)
    wanted = torch.autograd.grad(expected, leaves, torch.tensor(cotangent))
    last = layout == "channels_last"

    def function(x, w, b, ct):
        value, pull = pb.vjp(lambda *a: getattr(nn, name)(*a, layout=layout, **options), x, w, b)
        return value, *pull(ct)

    x, w, b = arrays
    found = [np.asarray(a) for a in pb.jit(function)(*(
        (_last(x), w, b, _last(cotangent)) if last else (x, w, b, cotangent)
    ))]
    if last:
        found[:2] = [np.moveaxis(a, -1, 1) for a in found[:2]]
    np.testing.assert_allclose(found[0], expected.detach().numpy(), rtol=1e-9, atol=1e-9)
    for a, b in zip(found[1:], wanted, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_random_settings(seed):
    rank, x, w, b, options = _setting(seed)
    _agrees(f"conv{rank}d", (x, w, b), options, ("channels_first", "channels_last")[seed % 3 == 2])


@pytest.mark.parametrize("seed", range(40))
def test_random_settings_transposed(seed):
    """The operands of a convolution that fits, with x where its result would be."""
    rank, x, w, _, options = _setting(1000 + seed)
    shape = np.asarray(getattr(nn, f"conv{rank}d")(x, w, **options)).shape
    rng = np.random.default_rng(seed)
    extra = [int(rng.integers(0, max(s, d))) for s, d in zip(options["stride"], options["dilation"])]
    options["output_padding"] = tuple(extra)
    positions = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + e for n, k, s, p, d, e in
        zip(shape[2:], w.shape[2:], options["stride"], options["padding"], options["dilation"], extra)
    ]
    if min(positions) < 1:
        with pytest.raises(ShapeError, match="nothing is left of axis"):
            getattr(nn, f"conv_transpose{rank}d")(sample(*shape), w, **options)
        return
    arrays = (sample(*shape, seed=seed), w, sample(x.shape[1], seed=seed + 1))
    _agrees(f"conv_transpose{rank}d", arrays, options, ("channels_first", "channels_last")[seed % 3 == 2])


@pytest.mark.parametrize("extent", range(1, 18))
def test_every_extent(extent):
    """All windows of up to 7 taps that fit, at strides 1 and 2: what is left over at the end has gradient 0."""
    for taps, stride in itertools.product((1, 2, 3, 5, 7), (1, 2)):
        if taps <= extent:
            options = {"stride": stride, "padding": min(1, taps // 2), "groups": 1, "dilation": 1}
            _agrees("conv1d", (sample(2, 2, extent), sample(3, 2, taps, seed=1), sample(3, seed=2)), options)


@pytest.mark.parametrize("stride", [1, 2])
def test_input_gradient_of_many_positions(stride):
    # Flipped weights are laid out then.
    x, w = sample(2, 3, 191, 187), sample(4, 3, 3, 2, seed=1)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))[:, :, ::stride, ::stride]
    rows, columns = windows.shape[2:4]
    g = sample(2, 4, rows, columns, seed=2)
    want = np.zeros_like(x)
    for i, j in np.ndindex(3, 2):
        part = want[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
        part += np.einsum("boyx,oc->bcyx", g, w[:, :, i, j])
    weights, cotangent = pb.asarray(w), pb.asarray(g)
    got = pb.grad(lambda x: pb.sum(nn.conv2d(x, weights, stride=stride) * cotangent))(pb.asarray(x))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("taps", [(2, 4), (3, 2), (1, 6)])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_same_padding_of_even_windows(taps, dilation):
    torch = pytest.importorskip("torch")
    x, w = sample(1, 2, 5, 7), sample(3, 2, *taps, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it pads a copy
        expected = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), padding="same", dilation=dilation)
    found = F.conv2d(x, w, padding="same", dilation=dilation)
    np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_same_padding_of_strides(stride):
    """So many positions as the extent holds strides, rounded up, the odd zero after."""
    for extent, taps in itertools.product(range(1, 12), (1, 2, 3, 4)):
        x, w = sample(1, 1, extent), sample(1, 1, taps, seed=1)
        found = np.asarray(nn.conv1d(x, w, stride=stride, padding="same"))
        count = -(-extent // stride)
        assert found.shape == (1, 1, count)
        missing = max((count - 1) * stride + taps - extent, 0)
        padded = np.pad(x, ((0, 0), (0, 0), (missing // 2, missing - missing // 2)))
        wanted = [np.sum(padded[0, 0, j * stride : j * stride + taps] * w[0, 0]) for j in range(count)]
        np.testing.assert_allclose(found[0, 0], wanted, rtol=1e-12, atol=1e-12)


# -- vmap --------------------------------------------------------------------------------------------------------------

MAPPED = {
    "plain": ((2, 4, 6, 5), (6, 4, 3, 2), {"padding": 1}),
    "groups, stride": ((2, 4, 6, 5), (6, 2, 3, 2), {"groups": 2, "stride": 2, "dilation": (1, 2)}),
    "depthwise": ((1, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    "one tap": ((3, 4, 2, 2), (5, 4, 1, 1), {}),
}


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("name", MAPPED)
def test_vmap(name, axes, layout):
    """Over x, over the weight, over both: values and gradients of a loop, in one convolution each."""
    x_shape, w_shape, options = MAPPED[name]
    x, w = sample(3, *x_shape), sample(3, *w_shape, seed=1)
    if layout == "channels_last":
        x = np.moveaxis(x, 2, -1)

    def function(x, w):
        value, pull = pb.vjp(lambda x, w: nn.conv2d(x, w, layout=layout, **options), x, w)
        return value, *pull(pb.sin(value))

    operands = [a if axis is not None else a[0] for a, axis in zip((x, w), axes)]
    mapped = pb.vmap(function, in_axes=axes)
    found = pb.jit(mapped)(*operands)
    assert str(pb.graph_of(mapped)(*operands)).count(" = convolution(") == 3
    loop = [function(*[a if axis is None else a[i] for a, axis in zip(operands, axes)]) for i in range(3)]
    for index, got in enumerate(found):
        wanted = np.stack([np.asarray(one[index]) for one in loop])
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-10, atol=1e-11)


def test_vmap_of_vmap_over_weights():
    """An ensemble of ensembles of layers on one image."""
    x, w = sample(2, 3, 5, 5), sample(2, 3, 4, 3, 3, 3, seed=1)
    found = pb.vmap(pb.vmap(lambda w: nn.conv2d(x, w)))(w)
    wanted = np.stack([np.stack([np.asarray(nn.conv2d(x, one)) for one in row]) for row in w])
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12, atol=1e-12)


# -- what the definition says at its edges -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("options", [{"padding": 1}, {"padding": 2, "stride": 2}, {"padding": 2, "dilation": 2}])
def test_special_values_reach_only_windows_that_hold_them(value, options):
    x, w = sample(2, 2, 6, 7), np.abs(sample(3, 2, 3, 3, seed=1)) + 0.1
    plain = np.asarray(nn.conv2d(x, w, **options))
    for place in ((0, 0), (0, 6), (5, 0), (5, 6), (2, 3)):
        spoiled = x.copy()
        spoiled[(1, 0, *place)] = value
        found = np.asarray(nn.conv2d(spoiled, w, **options))
        mark = np.zeros_like(x)
        mark[(1, 0, *place)] = 1
        reached = np.asarray(nn.conv2d(mark, w, **options)) != 0
        np.testing.assert_array_equal(found[~reached], plain[~reached])
        assert np.all(np.isnan(found[reached]) if np.isnan(value) else found[reached] == value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_values_in_what_a_strided_gradient_reads(value):
    """A cotangent reaches the pixels of its window; a weight, the pixels that it was multiplied with."""
    x, w = sample(1, 1, 7), np.abs(sample(1, 1, 3, seed=1)) + 0.1
    _, pull = pb.vjp(lambda x: nn.conv1d(x, w, stride=2), x)
    found = np.asarray(pull(np.array([[[1.0, value, 1.0]]]))[0])[0, 0]
    np.testing.assert_array_equal(np.isfinite(found), [True, True, False, False, False, True, True])
    w[0, 0, 1] = value
    _, pull = pb.vjp(lambda x: nn.conv1d(x, w, stride=2), x)
    found = np.asarray(pull(np.ones((1, 1, 3)))[0])[0, 0]
    np.testing.assert_array_equal(np.isfinite(found[::2]), True)
    np.testing.assert_array_equal(np.isfinite(found[1::2]), False)


EMPTY = {
    "no batch": ((0, 4, 5, 5), (6, 2, 3, 3)),
    "no channels": ((2, 0, 5, 5), (6, 0, 3, 3)),
    "no outputs": ((2, 4, 5, 5), (0, 2, 3, 3)),
    "no pixels": ((2, 4, 0, 5), (6, 2, 3, 3)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_sum(name):
    """Zeros and the bias, and gradients of zeros."""
    x, w = (np.ones(shape) for shape in EMPTY[name])
    b = sample(w.shape[0])

    def function(x, w, b):
        return nn.conv2d(x, w, b, padding=(2, 1), groups=2)

    value, pull = pb.vjp(function, x, w, b)
    assert value.shape == (x.shape[0], w.shape[0], x.shape[2] + 2, 5)
    np.testing.assert_array_equal(np.asarray(value), np.zeros(value.shape) + (b[:, None, None] if w.size == 0 or x.size
                                  == 0 else np.asarray(value)))  # fmt: skip
    gradients = pull(pb.ones_like(value))
    np.testing.assert_array_equal(np.asarray(gradients[0]), np.zeros(x.shape))
    np.testing.assert_array_equal(np.asarray(gradients[1]), np.zeros(w.shape))
    np.testing.assert_array_equal(np.asarray(gradients[2]), np.full(b.shape, value.size / max(len(b), 1)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_accumulate_in_float32(dtype):
    """What is rounded is the result alone."""
    x = pb.asarray(sample(2, 64, 9, 9)).astype(dtype)
    w = pb.asarray(sample(8, 64, 3, 3, seed=1)).astype(dtype)
    for function in (
        lambda x, w: nn.conv2d(x, w, padding=1, stride=2),
        lambda x, w: nn.conv_transpose2d(x, w.swapaxes(0, 1), stride=2),
        lambda x, w: nn.conv2d(x, w.reshape((512, 1, 3, 3))[:64], groups=64),
        lambda x, w: pb.grad(lambda w: pb.sum(nn.conv2d(x, w).astype("float32")))(w),
    ):
        found = function(x, w)
        assert found.dtype.name == dtype
        wide = function(x.astype("float32"), w.astype("float32"))
        rtol = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        np.testing.assert_allclose(
            np.asarray(found.astype("float32")), np.asarray(wide), rtol=1.01 * rtol, atol=2e-5 * np.abs(wide).max()
        )


@pytest.mark.parametrize("name", MAPPED)
def test_the_number_of_threads_changes_no_bit(name):
    x_shape, w_shape, options = MAPPED[name]
    x = sample(x_shape[0] * 4, x_shape[1], *(5 * n for n in x_shape[2:])).astype(np.float32)
    w = sample(*w_shape, seed=1).astype(np.float32)

    def function(x, w):
        value, pull = pb.vjp(lambda x, w: nn.conv2d(x, w, **options), x, w)
        return value, *pull(pb.sin(value))

    same_bits(lambda: pb.jit(function)(x, w), (1, 2, 5))


def test_operands_by_name():
    x, w, b = (pb.asarray(sample(*shape)) for shape in ((1, 2, 5), (3, 2, 3), (3,)))
    wanted = np.asarray(nn.conv1d(x, w, b, padding=1))
    for _ in range(2):  # the second call is built from what the first has built
        np.testing.assert_array_equal(np.asarray(nn.conv1d(bias=b, padding=1, weight=w, x=x)), wanted)
        np.testing.assert_array_equal(np.asarray(nn.conv1d(x, bias=b, weight=w, padding=1)), wanted)


def test_dtypes_promote():
    x, w = np.arange(5, dtype=np.int8).reshape(1, 1, 5), np.array([[[1, -1, 2]]], np.int32)
    found = nn.conv1d(x, w, padding=1)
    assert found.dtype is pb.int32
    assert found.tolist() == [[[2, 3, 5, 7, -1]]]
    assert nn.conv1d(x, w.astype(np.float64)).dtype is pb.float64
    flags = nn.conv1d(x % 2 == 1, np.ones((1, 1, 2), bool), padding=1)
    assert flags.dtype is pb.bool
    assert flags.tolist() == [[[False, True, True, True, True, False]]]


def test_unfold_and_fold_are_transposes():
    torch = pytest.importorskip("torch")
    options = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    x = sample(2, 3, 7, 6)
    columns = F.unfold(x, **options)
    expected = torch.nn.functional.unfold(torch.tensor(x), **options)
    np.testing.assert_array_equal(np.asarray(columns), expected.numpy())
    y = sample(*columns.shape, seed=1)
    left, right = np.sum(np.asarray(columns) * y), np.sum(x * np.asarray(F.fold(y, (7, 6), **options)))
    np.testing.assert_allclose(left, right, rtol=1e-12)
    product = np.einsum("ok,nkl->nol", sample(4, 18, seed=2), np.asarray(columns)).reshape(2, 4, 4, 4)
    direct = nn.conv2d(x, sample(4, 18, seed=2).reshape(4, 3, 3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1))
    np.testing.assert_allclose(np.asarray(direct), product, rtol=1e-12, atol=1e-12)


# -- layers ------------------------------------------------------------------------------------------------------------

LAYERS = [
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 9)),
    ("Conv1d", (3, 2, 4), {"padding": "valid", "bias": False}, (3, 9)),
    ("Conv2d", (3, 5, (3, 2)), {"padding": (1, 0), "dilation": (1, 2)}, (2, 3, 6, 7)),
    ("Conv2d", (4, 4, 3), {"padding": "same", "groups": 4}, (2, 4, 5, 6)),
    ("Conv2d", (2, 3, 3), {"padding": (2, 1), "padding_mode": "reflect"}, (2, 2, 5, 6)),
    ("Conv2d", (2, 3, 3), {"padding": (2, 1), "padding_mode": "replicate", "stride": 2}, (2, 5, 6)),
    ("Conv2d", (2, 3, (4, 3)), {"padding": "same", "padding_mode": "circular", "dilation": 2}, (2, 2, 8, 6)),
    ("Conv3d", (2, 3, 2), {"stride": (1, 2, 1), "padding": 1}, (1, 2, 3, 4, 5)),
    ("ConvTranspose1d", (3, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}, (2, 3, 5)),
    ("ConvTranspose2d", (4, 6, 3), {"stride": (2, 1), "groups": 2, "dilation": 2}, (2, 4, 3, 4)),
    ("ConvTranspose3d", (2, 3, (1, 2, 3)), {"stride": 2, "bias": False}, (1, 2, 2, 3, 2)),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("name", "sizes", "options", "shape"), LAYERS)
def test_layers_are_pytorchs(name, sizes, options, shape):
    """Attributes, names and shapes of the state, values and gradients."""
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, name)(*sizes, dtype=torch.float64, **options)
    ours = getattr(nn, name)(*sizes, dtype=pb.float64, **options)
    for attribute in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
                      "output_padding", "padding_mode", "transposed"):  # fmt: skip
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = sample(*shape)
    expected = theirs(torch.tensor(x))
    np.testing.assert_allclose(np.asarray(ours(x)), expected.detach().numpy(), rtol=1e-9, atol=1e-9)
    cotangent = sample(*expected.shape, seed=1)
    expected.backward(torch.tensor(cotangent))
    pb.sum(ours(pb.asarray(x)) * cotangent).backward()
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(np.asarray(parameter.grad), other.grad.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("name", "fan"), [("Conv2d", 8 * 9), ("ConvTranspose2d", 16 * 9)])
def test_initial_values(name, fan):
    """PyTorch's: uniform in one over the root of the fan in, weight and bias alike; the same for the same key."""
    layer = getattr(nn, name)(32, 64, 3, groups=4, key=pb.random.key(3))
    bound = 1 / np.sqrt(fan)
    for parameter in layer.parameters():
        values = np.asarray(parameter)
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.9 * bound
        assert abs(values.std() / (bound / np.sqrt(3)) - 1) < 0.15
    again = getattr(nn, name)(32, 64, 3, groups=4, key=pb.random.key(3))
    np.testing.assert_array_equal(np.asarray(layer.weight), np.asarray(again.weight))
    assert not np.array_equal(np.asarray(layer.bias)[:32], np.asarray(layer.weight).reshape(-1)[:32])


def test_output_size():
    torch = pytest.importorskip("torch")
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, dtype=pb.float64)
    theirs = torch.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, dtype=torch.float64)
    layer.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = sample(1, 2, 4, 5)
    for size in ((7, 9), (8, 9), (8, 10)):
        expected = theirs(torch.tensor(x), output_size=size).detach().numpy()
        np.testing.assert_allclose(np.asarray(layer(x, output_size=size)), expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(ArgumentError, match=r"output_size must lie between \(7, 9\) and \(8, 10\).*got \(9, 9\)"):
        layer(x, output_size=(9, 9))


def test_channels_last_layers():
    for layer, shape in (
        (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect", layout="channels_last", dtype=pb.float64), (2, 5, 6, 3)),
        (nn.ConvTranspose1d(3, 4, 3, stride=2, layout="channels_last", dtype=pb.float64), (2, 5, 3)),
    ):
        x = sample(*shape)
        found = np.asarray(layer(x))
        layer.layout = "channels_first"
        wanted = np.asarray(layer(np.moveaxis(x, -1, 1)))
        np.testing.assert_allclose(np.moveaxis(found, -1, 1), wanted, rtol=1e-12, atol=1e-12)


def test_layers_describe_themselves():
    assert repr(nn.Conv2d(3, 8, 3, stride=2)).startswith("Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2))")
    text = repr(nn.Conv1d(4, 8, 3, padding="same", groups=2, bias=False))
    assert text.startswith("Conv1d(4, 8, kernel_size=(3,), stride=(1,), padding='same', groups=2, bias=False)")
    assert "output_padding=(1,)" in repr(nn.ConvTranspose1d(4, 8, 3, stride=2, output_padding=1))
    assert repr(nn.Unfold(3)) == "Unfold(kernel_size=3, dilation=1, padding=0, stride=1)"


def test_unfold_and_fold_layers():
    x = sample(1, 2, 4, 4)
    columns = nn.Unfold(2, stride=2)(x)
    np.testing.assert_array_equal(np.asarray(nn.Fold(4, 2, stride=2)(columns)), x)


def test_training_step_of_a_small_network():
    """Two layers fit a rule in a few steps, eagerly and under jit alike."""
    def losses(jit):
        pb.random.seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
        optimizer = pb.optim.Adam(model.parameters(), lr=0.02)
        x = pb.asarray(sample(4, 1, 8, 8).astype(np.float32))
        y = x * 0.5 + pb.roll(x, 1, axis=2) * 0.25

        def step():
            loss = pb.mean(pb.square(model(x) - y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step = pb.jit(step) if jit else step
        return [float(step()) for _ in range(40)]

    eager, jitted = losses(False), losses(True)
    assert eager[-1] < 0.2 * eager[0]
    np.testing.assert_allclose(eager, jitted, rtol=1e-4)


# -- errors ------------------------------------------------------------------------------------------------------------

X, W = np.ones((2, 4, 6, 5)), np.ones((6, 4, 3, 3))

WRONG = {
    "rank of x": (lambda: nn.conv2d(X[0, 0], W), ShapeError, r"the axes \(N, C, H, W\) or \(C, H, W\), got"),
    "rank of x, last": (
        lambda: nn.conv2d(X[0, 0], W, layout="channels_last"), ShapeError, r"\(N, H, W, C\) or \(H, W, C\)"
    ),
    "rank of weight": (lambda: nn.conv2d(X, W[0]), ShapeError, r"weight must have 4 axes, .* got shape \(4, 3, 3\)"),
    "channels": (
        lambda: nn.conv2d(X, W[:, :3]), ShapeError, r"\(6, 3, 3, 3\), .* takes x of 3 channels; x .*\(2, 4, 6, 5\).* 4$"
    ),
    "channels of groups": (lambda: nn.conv2d(X, W, groups=2), ShapeError, "with groups=2, .* takes x of 8 channels"),
    "channels, last": (
        lambda: nn.conv2d(X, W, layout="channels_last"), ShapeError, "layout 'channels_last' has 5"
    ),
    "groups do not divide": (
        lambda: nn.conv2d(X, W[:5, :2], groups=2), ShapeError, "groups=2 does not divide the 5 outputs of the weight"
    ),
    "groups do not divide, transposed": (
        lambda: nn.conv_transpose2d(X, np.ones((4, 2, 3, 3)), groups=3), ShapeError, "groups=3 does not divide the 4 ch"
    ),
    "no groups": (lambda: nn.conv2d(X, W, groups=0), ArgumentError, "groups must be at least 1, got 0"),
    "bias": (lambda: nn.conv2d(X, W, np.ones(4)), ShapeError, r"bias must have shape \(6,\).* got \(4,\)"),
    "stride 0": (lambda: nn.conv2d(X, W, stride=0), ArgumentError, "stride must be at least 1, got 0"),
    "stride below 0": (lambda: nn.conv2d(X, W, stride=(1, -2)), ArgumentError, r"stride must be .* \(1, -2\)"),
    "dilation 0": (lambda: nn.conv2d(X, W, dilation=0), ArgumentError, "dilation must be at least 1, got 0"),
    "negative padding": (lambda: nn.conv2d(X, W, padding=-1), ArgumentError, "padding must be at least 0, got -1"),
    "three strides": (lambda: nn.conv2d(X, W, stride=(1, 1, 1)), ArgumentError, "an int or a sequence of 2 ints"),
    "padding of three": (lambda: nn.conv2d(X, W, padding=(1, 1, 1)), ArgumentError, "or so many pairs"),
    "padding of triples": (
        lambda: nn.conv1d(X[0], np.ones((1, 6, 3)), padding=((1, 2, 3),)), ArgumentError, r"\(1, 2, 3\)"
    ),
    "padding by name": (lambda: nn.conv2d(X, W, padding="full"), ArgumentError, "'same', 'valid', .* got 'full'"),
    "fraction": (lambda: nn.conv2d(X, W, stride=1.5), ArgumentError, "stride must be an integer, got 1.5"),
    "layout": (lambda: nn.conv2d(X, W, layout="NHWC"), ArgumentError, "layout must be one of .* got 'NHWC'"),
    "too small": (
        lambda: nn.conv2d(X, W, dilation=(1, 3)), ShapeError,
        r"window of 7 elements \(3 taps with dilation 3\) does not fit axis 3 of x, of shape \(2, 4, 6, 5\): 5 el",
    ),
    "too small, last": (
        lambda: nn.conv1d(np.ones((4, 2)), np.ones((1, 2, 5)), layout="channels_last"), ShapeError, "axis 0 of x"
    ),
    "no taps": (lambda: nn.conv2d(X, W[..., :0]), ShapeError, "extent of at least 1 on each axis"),
    "padding beyond memory": (
        lambda: nn.conv1d(X[0], np.ones((1, 6, 3)), padding=1 << 61), ShapeError, r"x with its padding .* 2\*\*63 bytes"
    ),
    "result beyond memory": (
        lambda: nn.conv_transpose1d(X[0], np.ones((6, 1, 3)), stride=1 << 60), ShapeError, r"the result .* 2\*\*63"
    ),
    "no batch beyond memory": (
        lambda: nn.conv1d(np.ones((0, 1, 3)), np.ones((1, 1, 3)), padding=1 << 62), ShapeError, r"2\*\*63 bytes"
    ),
    "mixed dtypes": (
        lambda: nn.conv1d(pb.ones((1, 1, 3), dtype="uint64"), pb.ones((1, 1, 1), dtype="int8")), DTypeError,
        "uint64 and int8 have no common",
    ),
    "output_padding": (
        lambda: nn.conv_transpose1d(X[0], np.ones((6, 1, 3)), stride=2, output_padding=2), ArgumentError,
        "output_padding 2 must be less than stride 2 or dilation 1",
    ),
    "nothing left": (
        lambda: nn.conv_transpose1d(X[0], np.ones((6, 1, 3)), padding=4), ShapeError, r"nothing is left of axis 2 .*5"
    ),
    "nothing to transpose": (
        lambda: nn.conv_transpose1d(np.ones((1, 1, 0)), np.ones((1, 1, 3))), ShapeError, "nothing is left of axis 2"
    ),
    "same, transposed": (
        lambda: nn.conv_transpose1d(X[0], np.ones((6, 1, 3)), padding="same"), ArgumentError, "must be ints or pairs"
    ),
    "columns": (
        lambda: nn.fold(np.ones((1, 12, 5)), (4, 5), (2, 3)), ShapeError, r"\(N, C \* 6, 9\).*got \(1, 12, 5\)"
    ),
    "columns of half a channel": (lambda: nn.fold(np.ones((1, 9, 9)), (4, 5), (2, 3)), ShapeError, r"got \(1, 9, 9\)"),
    "unfold": (lambda: nn.unfold(X, 7), ShapeError, r"window of 7 elements does not fit an axis of 6"),
    "unfold, rank": (lambda: nn.unfold(X[0, 0], 2), ShapeError, r"x must have the axes"),
    "layer, groups": (lambda: nn.Conv2d(4, 6, 3, groups=3), ArgumentError, "groups=3 must divide in_channels=4"),
    "layer, mode": (lambda: nn.Conv2d(4, 6, 3, padding_mode="mirror"), ArgumentError, "padding_mode .* 'mirror'"),
    "layer, transposed mode": (
        lambda: nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect"), ArgumentError, "must be one of 'zeros'"
    ),
    "layer, padding": (lambda: nn.Conv2d(4, 6, 3, padding="full"), ArgumentError, "padding must be 'same', 'valid'"),
    "layer, channels": (lambda: nn.Conv2d(-4, 6, 3), ShapeError, "must not be negative, got -4 and 6"),
    "layer, window": (lambda: nn.Conv2d(4, 6, 0), ArgumentError, "kernel_size must be at least 1, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    call, kind, message = WRONG[name]
    with pytest.raises(kind, match=message) as info:
        call()
    assert isinstance(info.value, TypeError if kind is DTypeError else ValueError)


def test_errors_name_the_function():
    for function, w in ((nn.conv1d, np.ones((1, 9, 1))), (nn.conv_transpose1d, np.ones((9, 1, 1)))):
        with pytest.raises(ShapeError, match=f"^{function.__name__}: "):
            function(np.ones((1, 2, 3)), w)
