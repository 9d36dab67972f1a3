"""interpolate and pixel_shuffle: sizes, rounding, what has no weight, kernels, modules, errors."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError
from pullback.graph.graph import Graph
from tests.backends import on_backend


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "area"])
def test_every_small_size_of_one_axis(mode):
    """From 1 to 17 elements to 1 to 17, and by factors, as PyTorch rounds."""
    torch = pytest.importorskip("torch")
    with on_backend("reference"):
        for extent in range(1, 18):
            x = np.random.default_rng(extent).standard_normal((1, 2, extent))
            cases = [{"size": size} for size in (1, 2, 3, 5, 8, 13, 16, 17)]
            cases += [{"scale_factor": f} for f in (0.3, 0.5, 1.3, 2.0, 2.7) if int(extent * f)]
            for case in cases:
                corners = [False, True] if mode == "linear" else [None]
                for align_corners in corners:
                    options = {**case, "mode": mode, "align_corners": align_corners}
                    found = np.asarray(nn.interpolate(x, **options))
                    expected = torch.nn.functional.interpolate(torch.tensor(x), **options).numpy()
                    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{extent} {options}")


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images(mode, align_corners, antialias):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 7))
    cotangent = np.random.default_rng(1).standard_normal
    for size in ((4, 15), (18, 3), (9, 7), (2, 2)):
        options = {"size": size, "mode": mode, "align_corners": align_corners, "antialias": antialias}
        leaf = torch.tensor(x, requires_grad=True)
        expected = torch.nn.functional.interpolate(leaf, **options)
        c = cotangent(tuple(expected.shape))
        expected.backward(torch.tensor(c))
        found, pull = pb.vjp(lambda x, options=options: nn.interpolate(x, **options), pb.asarray(x))
        np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.asarray(pull(pb.asarray(c))[0]), leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_what_has_no_weight_does_not_count():
    x = np.array([[[1.0, np.nan, 3.0, np.inf]]])
    np.testing.assert_array_equal(np.asarray(nn.interpolate(x, 2, mode="linear", align_corners=True)), [[[1, np.inf]]])
    np.testing.assert_array_equal(np.asarray(nn.interpolate(x, 4, mode="linear")), x)
    found = np.asarray(nn.interpolate(x[..., [0, 2, 2, 1]], 8, mode="linear"))[0, 0]
    np.testing.assert_array_equal(np.isnan(found), [False] * 5 + [True] * 3)


def test_dtypes():
    x = np.arange(12).reshape(1, 1, 3, 4)
    for dtype in (np.uint8, np.int64, bool):
        found = nn.interpolate(x.astype(dtype), scale_factor=2)
        assert np.asarray(found).dtype == dtype
        np.testing.assert_array_equal(np.asarray(found), x.astype(dtype).repeat(2, 2).repeat(2, 3))
    for dtype in (pb.float16, pb.bfloat16):
        found = nn.interpolate(pb.asarray(x).astype(dtype), (6, 8), mode="bilinear")
        assert found.dtype is dtype
        exact = np.asarray(nn.interpolate(x.astype(float), (6, 8), mode="bilinear"))
        np.testing.assert_allclose(np.asarray(found.astype(pb.float64)), exact, rtol=4e-3)


def test_an_axis_is_one_kernel_forward_and_backward():
    """No scatter, no buffer of neighbours."""
    from pullback.compiler.program import compile_program

    x = pb.asarray(np.zeros((2, 3, 16, 12), np.float32))

    def resize(x):
        return nn.interpolate(x, (32, 30), mode="bilinear")

    def backward(c):
        return pb.vjp(resize, x)[1](c)[0]

    for function, operand in ((resize, x), (backward, pb.asarray(np.zeros((2, 3, 32, 30), np.float32)))):
        graph = Graph.trace(function, operand)
        kernels = compile_program(graph.inputs, graph.outputs).kernels
        assert len(kernels) == 2
        assert all(kernel.scatter is None for kernel in kernels)


def test_pixels():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 2, 18, 4, 6))
    expected = torch.nn.functional.pixel_shuffle(torch.tensor(x), 3).numpy()
    np.testing.assert_array_equal(np.asarray(nn.PixelShuffle(3)(x)), expected)
    np.testing.assert_array_equal(np.asarray(nn.PixelUnshuffle(3)(expected)), x)
    assert nn.pixel_shuffle(np.zeros((0, 4, 2, 2)), 2).shape == (0, 1, 4, 4)


def test_upsample():
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4))
    layer = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
    np.testing.assert_array_equal(
        np.asarray(pb.jit(layer)(pb.asarray(x))),
        np.asarray(nn.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)),
    )
    assert repr(layer) == "Upsample(scale_factor=2, mode='bilinear')"
    assert nn.Upsample(size=(5, 6))(x).shape == (1, 2, 5, 6)


X = np.zeros((2, 3, 5, 4))
ERRORS = [
    (lambda: nn.interpolate(X), ArgumentError, "either size or scale_factor"),
    (lambda: nn.interpolate(X, 3, 2.0), ArgumentError, "either size or scale_factor"),
    (lambda: nn.interpolate(X, (3, 4, 5)), ArgumentError, "size must be one number or 2"),
    (lambda: nn.interpolate(X, (3, 0)), ArgumentError, r"makes \(3, 0\) of the axes \(5, 4\)"),
    (lambda: nn.interpolate(X, scale_factor=0.1), ArgumentError, r"makes \(0, 0\)"),
    (lambda: nn.interpolate(X, scale_factor=-1), ArgumentError, "positive and finite"),
    (lambda: nn.interpolate(X, scale_factor="2"), ArgumentError, "must be a number"),
    (lambda: nn.interpolate(X, 3.5), ArgumentError, "size must be an integer"),
    (lambda: nn.interpolate(X, 3, mode="cubic"), ArgumentError, "mode must be one of"),
    (lambda: nn.interpolate(X, 3, mode="linear"), ShapeError, "expects an input of 3 axes"),
    (lambda: nn.interpolate(X[0, 0], 3), ShapeError, r"got shape \(5, 4\)"),
    (lambda: nn.interpolate(X.astype(int), 3, mode="bilinear"), DTypeError, "floating"),
    (lambda: nn.interpolate(X, 3, align_corners=True), ArgumentError, "no meaning for mode 'nearest'"),
    (lambda: nn.interpolate(X, 3, mode="area", antialias=True), ArgumentError, "antialias"),
    (lambda: nn.interpolate(X[:, :, :0], 3), ShapeError, "extent 0"),
    (lambda: nn.pixel_shuffle(X, 2), ShapeError, r"3 channels .* no multiple of 2\*\*2 = 4"),
    (lambda: nn.pixel_unshuffle(X, 2), ShapeError, "extents 5 and 4"),
    (lambda: nn.pixel_shuffle(X, 0), ArgumentError, "at least 1"),
    (lambda: nn.pixel_shuffle(X[0, 0], 2), ShapeError, r"\(..., C, H, W\)"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_name_what_does_not_fit(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()
