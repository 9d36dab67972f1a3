"""Pooling: ties, NaN, infinities in padding, integers, counts in ceil mode, modules, kernels, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ArgumentError, DTypeError, ShapeError

INF, NAN = np.inf, np.nan


def gradient(function, x):
    return np.asarray(pb.grad(lambda x: pb.sum(function(x)))(pb.asarray(x)))


# -- values that are equal, infinite or no numbers ---------------------------------------------------------------------


def test_the_gradient_of_equal_elements_goes_to_the_first():
    x = np.zeros((1, 1, 4, 4))
    expected = np.zeros((1, 1, 4, 4))
    expected[..., ::2, ::2] = 1
    np.testing.assert_array_equal(gradient(lambda x: nn.max_pool2d(x, 2), x), expected)
    _, indices = nn.max_pool2d(x, 2, return_indices=True)
    np.testing.assert_array_equal(np.asarray(indices), [[[[0, 2], [8, 10]]]])
    line = np.array([[1.0, 1.0, 0.0, 2.0, 2.0]])
    np.testing.assert_array_equal(gradient(lambda x: nn.adaptive_max_pool1d(x, 2), line), [[1, 0, 0, 1, 0]])


def test_padding_never_wins():
    x = np.full((1, 1, 3, 3), -INF)
    value, indices = nn.max_pool2d(x, 2, 2, 1, return_indices=True)
    np.testing.assert_array_equal(np.asarray(value), np.full((1, 1, 2, 2), -INF))
    np.testing.assert_array_equal(np.asarray(indices), [[[[0, 1], [3, 4]]]])
    slope = gradient(lambda x: nn.max_pool2d(x, 2, 2, 1), x)
    np.testing.assert_array_equal(slope[0, 0], [[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    lowest = np.full((1, 3), np.iinfo(np.int32).min, np.int32)
    value, indices = nn.max_pool1d(lowest, 2, 2, 1, return_indices=True)
    assert value.dtype is pb.int32
    np.testing.assert_array_equal(np.asarray(value), lowest[:, :2])
    np.testing.assert_array_equal(np.asarray(indices), [[0, 1]])


def test_a_nan_stays_in_the_windows_that_hold_it():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    x[0, 0, 1, 1] = NAN
    expected = np.array([[NAN, 7.0], [13.0, 15.0]])
    np.testing.assert_array_equal(np.asarray(nn.max_pool2d(x, 2))[0, 0], expected)
    expected = np.array([[NAN, 4.5], [10.5, 12.5]])
    np.testing.assert_array_equal(np.asarray(nn.avg_pool2d(x, 2))[0, 0], expected)
    found = np.asarray(nn.adaptive_avg_pool2d(x, (3, 4)))[0, 0]
    assert np.isnan(found).sum() == 2
    assert np.isnan(found[:2, 1]).all()
    found = np.asarray(nn.avg_pool2d(x, 3, 1, 1))[0, 0]
    np.testing.assert_array_equal(np.isnan(found), np.pad(np.ones((3, 3), bool), ((0, 1), (0, 1))))


def test_an_infinite_cotangent_stays_where_it_belongs():
    x = np.arange(6.0)[None]
    cotangent = np.array([[INF, 1.0, 2.0]])
    for function in (lambda x: nn.max_pool1d(x, 3, 2, 1), lambda x: nn.avg_pool1d(x, 3, 2, 1) * 3.0):
        value, pull = pb.vjp(function, pb.asarray(x))
        found = np.asarray(pull(pb.asarray(cotangent))[0])
        assert not np.isnan(found).any()
        assert np.isfinite(found[:, 2:]).all()
        assert value.shape == (1, 3)


def test_norms_of_windows_of_zeros():
    x = np.zeros((1, 6))
    x[0, 4] = 2.0
    assert (np.asarray(nn.lp_pool1d(x, 2, 2)) == [[0, 0, 2]]).all()
    np.testing.assert_array_equal(gradient(lambda x: nn.lp_pool1d(x, 2, 2), x), [[0, 0, 0, 0, 1, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64"])
def test_dtypes(dtype):
    x = pb.asarray(np.arange(24).reshape(1, 2, 3, 4)).astype(getattr(pb, dtype))
    found = nn.max_pool2d(x, 2, 1, 1)
    assert found.dtype is x.dtype
    expected = [[0, 1, 2, 3, 3], [4, 5, 6, 7, 7], [8, 9, 10, 11, 11], [8, 9, 10, 11, 11]]
    np.testing.assert_array_equal(np.asarray(found.astype(pb.float64))[0, 0], expected)
    if "float" in dtype:
        mean = nn.avg_pool2d(x, 2)
        assert mean.dtype is x.dtype
        np.testing.assert_array_equal(np.asarray(mean.astype(pb.float64)), [[[[2.5, 4.5]], [[14.5, 16.5]]]])
        assert nn.adaptive_avg_pool2d(x, (2, 3)).dtype is x.dtype


def test_half_types_sum_in_single_precision():
    x = pb.full((1, 64), 60000.0, dtype=pb.float16)
    assert float(nn.avg_pool1d(x, 64)) == 60000.0


# -- every small geometry ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", range(1, 18))
def test_every_small_geometry_of_one_axis(extent, reference_backend):
    """Values and gradients against PyTorch."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x = np.random.default_rng(extent).standard_normal((2, extent))
    cases = [
        (kernel, stride, padding, dilation, ceil)
        for kernel, stride, dilation, ceil in itertools.product((1, 2, 3), (1, 2, 4), (1, 2), (False, True))
        for padding in {0, kernel // 2}
        if extent + 2 * padding >= (kernel - 1) * dilation + 1 and (dilation == 1 or extent > padding + dilation)
    ]

    def pool(functional, x, case):
        kernel, stride, padding, dilation, ceil = case
        most, indices = functional.max_pool1d(x, kernel, stride, padding, dilation, ceil, True)
        results = [most, indices]
        if dilation == 1:
            results += [functional.avg_pool1d(x, kernel, stride, padding, ceil, count) for count in (True, False)]
        return results

    for case in cases:
        smooth, pull = pb.vjp(lambda x, case=case: [r for r in pool(nn, x, case) if r.dtype.kind == "f"], x)
        results, slope = pool(nn, x, case), pull([pb.cos(r) for r in smooth])[0]
        leaf = torch.tensor(x, requires_grad=True)
        expected = pool(functional, leaf, case)
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b.detach().numpy(), rtol=1e-12, atol=1e-12, err_msg=str(case))
        smooth = [b for b in expected if b.is_floating_point()]
        (wanted,) = torch.autograd.grad(smooth, [leaf], [torch.cos(b.detach()) for b in smooth])
        np.testing.assert_allclose(np.asarray(slope), wanted.numpy(), rtol=1e-12, atol=1e-12, err_msg=str(case))


def test_a_window_of_many_slots():
    """More than fit one byte."""
    x = np.random.default_rng(0).standard_normal((1, 20, 20))
    value, indices = nn.max_pool2d(x, 17, 3, return_indices=True)
    windows = np.lib.stride_tricks.sliding_window_view(x, (17, 17), (1, 2))[:, ::3, ::3]
    np.testing.assert_array_equal(np.asarray(value), windows.max((-1, -2)))
    np.testing.assert_array_equal(x.reshape(1, -1)[0][np.asarray(indices)], windows.max((-1, -2)))
    slope = gradient(lambda x: nn.max_pool2d(x, 17, 3), x)
    assert slope.sum() == 4
    assert (slope.ravel()[np.asarray(indices).ravel()] > 0).all()


# -- memory ------------------------------------------------------------------------------------------------------------


def test_windows_are_not_copied():
    """Pooling and its gradient need no buffer of the windows' size."""
    x = pb.asarray(np.random.default_rng(0).standard_normal((8, 64, 64)).astype(np.float32))
    for function in (lambda x: nn.max_pool2d(x, 5, 1), lambda x: nn.avg_pool2d(x, 5, 1)):
        for call in (function, pb.grad(lambda x, function=function: pb.sum(function(x) ** 2))):
            temporaries = sum(program.temporaries for program in pb.explain(call)(x).programs)
            assert temporaries < 5 * x.nbytes, "the windows have 25 times the input's size"


# -- modules -----------------------------------------------------------------------------------------------------------

MODULES = [
    ("MaxPool1d", (3, 2, 1)), ("MaxPool2d", (2,)), ("MaxPool3d", (2, 1)), ("AvgPool1d", (3, 2, 1, True)),
    ("AvgPool2d", (3, 2, 1, True, False)), ("AvgPool3d", (2, 2, 1, False, True, 3)), ("LPPool1d", (2, 3)),
    ("LPPool2d", (2, 2)), ("LPPool3d", (2, 2)), ("AdaptiveAvgPool1d", (3,)), ("AdaptiveAvgPool2d", ((3, None),)),
    ("AdaptiveAvgPool3d", (2,)), ("AdaptiveMaxPool1d", (3,)), ("AdaptiveMaxPool2d", ((2, 3),)),
    ("AdaptiveMaxPool3d", ((None, 2, 3),)),
]


@pytest.mark.parametrize(("name", "arguments"), MODULES)
def test_modules_are_those_of_pytorch(name, arguments):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).uniform(0.1, 1, (2, 3, 5, 4, 6)[: 2 + int(name[-2])])
    ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    expected = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(np.asarray(ours(x)), expected, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(pb.jit(ours)(pb.asarray(x))), expected, rtol=1e-12)
    assert not list(ours.parameters())
    assert name in repr(ours)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_modules(n):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6, 4)[: 2 + n])
    options = {"return_indices": True}
    largest, indices = getattr(nn, f"MaxPool{n}d")(2, **options)(x)
    found = getattr(nn, f"MaxUnpool{n}d")(2)(largest, indices)
    values, places = getattr(torch.nn, f"MaxPool{n}d")(2, **options)(torch.tensor(x))
    expected = getattr(torch.nn, f"MaxUnpool{n}d")(2)(values, places)
    np.testing.assert_array_equal(np.asarray(found), expected.numpy())


# -- errors ------------------------------------------------------------------------------------------------------------

X = np.zeros((2, 3, 5, 4))
ERRORS = [
    (lambda: nn.max_pool2d(X, 6), ShapeError, "spans 6 elements .* does not fit an axis of 5 with padding 0"),
    (lambda: nn.max_pool2d(X, 3, dilation=(1, 2)), ShapeError, "spans 5 elements .kernel_size 3, dilation 2"),
    (lambda: nn.avg_pool2d(X, (2, 5)), ShapeError, "axis of 4"),
    (lambda: nn.max_pool2d(X, 3, padding=2), ArgumentError, "padding 2 is more than half of kernel_size 3"),
    (lambda: nn.avg_pool2d(X, 2, padding=(0, 2)), ArgumentError, "padding 2"),
    (lambda: nn.max_pool2d(X, 0), ArgumentError, "kernel_size must be at least 1, got 0"),
    (lambda: nn.max_pool2d(X, 2, 0), ArgumentError, "stride must be at least 1"),
    (lambda: nn.max_pool2d(X, 2, -1), ArgumentError, "stride must be at least 1"),
    (lambda: nn.max_pool2d(X, 2, padding=-1), ArgumentError, "padding must be at least 0"),
    (lambda: nn.max_pool2d(X, 2, dilation=0), ArgumentError, "dilation must be at least 1"),
    (lambda: nn.max_pool2d(X, (2, 2, 2)), ArgumentError, "kernel_size must be one number or 2"),
    (lambda: nn.max_pool2d(X, 2.5), ArgumentError, "kernel_size must be an integer"),
    (lambda: nn.max_pool2d(X[0, 0], 2), ShapeError, r"\(N, C, H, W\) or \(C, H, W\) expected, got shape \(5, 4\)"),
    (lambda: nn.max_pool1d(X, 2), ShapeError, r"\(N, C, L\)"),
    (lambda: nn.max_pool2d(X[:, :, :0], 1), ShapeError, "axis of 0"),
    (lambda: nn.max_pool2d(X > 0, 2), DTypeError, "got bool"),
    (lambda: nn.avg_pool2d(X.astype(int), 2), DTypeError, "floating"),
    (lambda: nn.avg_pool2d(X, 2, divisor_override=0), ArgumentError, "divisor_override must not be 0"),
    (lambda: nn.lp_pool2d(X, 0, 2), ArgumentError, "norm_type must be positive"),
    (lambda: nn.adaptive_avg_pool2d(X, (1, 0)), ArgumentError, "output_size must be at least 1"),
    (lambda: nn.adaptive_avg_pool2d(X, (1, 2, 3)), ArgumentError, "one number or 2"),
    (lambda: nn.adaptive_max_pool2d(X[:, :, :0], 1), ShapeError, "extent 0"),
    (lambda: nn.max_unpool2d(X, np.zeros((2, 3, 5, 3), int), 2), ShapeError, "indices must have the input's shape"),
    (lambda: nn.max_unpool2d(X, X, 2), DTypeError, "indices must be integers"),
    (lambda: nn.max_unpool2d(X, X.astype(int), 2, output_size=(7, 8)), ArgumentError, "output_size"),
    (lambda: pb.eval(nn.max_unpool2d(X, X.astype(int) + 99, 2)), IndexError, "index 99 is out of range for size 80"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_name_what_does_not_fit(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()
