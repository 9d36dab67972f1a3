"""What the compiler makes of convolutions: contractions over views, with no work for zeros and no copy of a window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.fuse import live_values
from pullback.compiler.simplify import simplify
from pullback.compiler.values import Value, ValueBuilder, import_graph


def values_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[Value]:
    """The simplified values of ``function`` of arrays of these shapes; the last is its result."""
    graph = pb.graph_of(function)(*[np.ones(shape, np.float32) for shape in shapes])
    builder = ValueBuilder(simplify)
    outputs, _ = import_graph(builder, graph.inputs, graph.outputs)
    return live_values(builder, outputs)


def _all(values: list[Value], name: str) -> list[Value]:
    return [value for value in values if value.name == name]


def _names(values: list[Value]) -> set[str]:
    plain = {"input", "literal", "reshape", "permute", "broadcast_to", "slice", "flip"}
    return {value.name for value in values} - plain


def _depth(dot: Value) -> int:
    """Elements that one product sums."""
    return math.prod(dot.inputs[0].shape[axis] for axis in dot.attrs[0][0])


def _work(values: list[Value]) -> int:
    """Multiplications of all products."""
    return sum(dot.size * _depth(dot) for dot in _all(values, "dot_general"))


def _gradient(by: int, x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> list[Value]:
    """The values of the gradient of a convolution of two axes by x or by the weight, alone."""
    result = nn.conv2d(np.ones(x, np.float32), np.ones(w, np.float32), **options).shape

    def function(x: Any, w: Any, ct: Any) -> Any:
        if by == 0:
            return pb.vjp(lambda x: nn.conv2d(x, w, **options), x)[1](ct)[0]
        return pb.vjp(lambda w: nn.conv2d(x, w, **options), w)[1](ct)[0]

    return values_of(function, x, w, result)


X, W = (8, 16, 14, 14), (32, 16, 3, 3)


def test_forward_is_one_product_of_views() -> None:
    values = values_of(nn.conv2d, X, W)
    assert _names(values) == {"windows", "dot_general"}
    (dot,) = _all(values, "dot_general")
    assert _depth(dot) == 16 * 3 * 3
    assert dot.shape == (8, 32, 12, 12)
    assert dot is values[-1]
    assert all(operand.kind in ("view", "input") for operand in dot.inputs)


def test_padding_is_stored_once_and_around_the_array() -> None:
    values = values_of(lambda x, w: nn.conv2d(x, w, padding=1), X, W)
    assert _names(values) == {"pad", "windows", "dot_general"}
    (pad,) = _all(values, "pad")
    assert pad.size == 8 * 16 * 16 * 16


@pytest.mark.parametrize(("layout", "shape"), [("channels_first", X), ("channels_last", (8, 14, 14, 16))])
def test_padding_is_stored_in_the_order_of_the_array(layout: str, shape: tuple[int, ...]) -> None:
    """Channels last stay last, and the weight gradient reads what the forward pass padded."""
    def function(x: Any, w: Any) -> Any:
        value, pull = pb.vjp(lambda w: nn.conv2d(x, w, padding=1, layout=layout), w)
        return pb.sum(value) + pb.sum(pull(value)[0])

    (pad,) = _all(values_of(function, shape, W), "pad")
    assert [extent for extent in pad.shape if extent != 1] == [n + 2 if n == 14 else n for n in shape]


def test_phases_are_written_in_the_order_of_the_array() -> None:
    def function(x: Any, w: Any, ct: Any) -> Any:
        return pb.vjp(lambda x: nn.conv2d(x, w, padding=1, stride=2, layout="channels_last"), x)[1](ct)[0]

    values = values_of(function, (8, 14, 14, 16), W, (8, 7, 7, 32))
    base = values[-1]
    while base.name == "reshape":
        base = base.inputs[0]
    assert base.name == "interleave"


def test_padding_that_no_window_reaches_is_not_stored() -> None:
    values = values_of(lambda x, w: nn.conv2d(x, w, padding=((0, 1), (0, 1)), stride=2), (8, 16, 15, 15), W)
    assert _names(values) == {"windows", "dot_general"}
    values = values_of(lambda x, w: nn.conv2d(x, w, stride=3), X, W)
    assert _names(values) == {"windows", "dot_general"}


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_one_tap_needs_no_windows(layout: str) -> None:
    values = values_of(lambda x, w: nn.conv2d(x, w, layout=layout), (8, 16, 16, 16), (32, 16, 1, 1))
    assert _names(values) == {"dot_general"}
    assert values[-1].name == "dot_general"


@pytest.mark.parametrize("groups", [1, 4])
def test_channels_last_comes_out_of_the_product(groups: int) -> None:
    """With groups it is the channels of a group that do."""
    values = values_of(
        lambda x, w: nn.conv2d(x, w, groups=groups, layout="channels_last"), (8, 14, 14, 16), (32, 16 // groups, 3, 3)
    )
    (dot,) = _all(values, "dot_general")
    assert dot.shape == ((8, 12, 12, 32) if groups == 1 else (8, 4, 8, 12, 12))


@pytest.mark.parametrize("groups", [1, 4])
def test_weight_gradient_sums_over_batch_and_positions_at_once(groups: int) -> None:
    values = _gradient(1, X, (32, 16 // groups, 3, 3), groups=groups)
    assert _names(values) == {"windows", "dot_general"}
    (dot,) = _all(values, "dot_general")
    assert _depth(dot) == 8 * 12 * 12
    base = values[-1]
    while base.name == "reshape":
        base = base.inputs[0]
    assert base is dot, "the result is copied"


def test_input_gradient_is_one_product() -> None:
    values = _gradient(0, X, W, padding=1)
    assert _names(values) == {"pad", "windows", "dot_general"}
    assert _work(values) == 8 * 32 * 16 * 9 * 14 * 14


@pytest.mark.parametrize(("taps", "stride", "products"), [(3, 2, 4), (1, 2, 1), (2, 2, 1), (4, 2, 1), (5, 3, 4)])
def test_strided_input_gradient_multiplies_no_zeros(taps: int, stride: int, products: int) -> None:
    """As many multiplications as the convolution itself takes, but for those at the edge."""
    extent = 12 * stride
    x, w, options = (8, 16, extent, extent), (32, 16, taps, taps), {"padding": taps // 2, "stride": stride}
    values = _gradient(0, x, w, **options)
    assert len(_all(values, "dot_general")) == products
    forward = _work(values_of(lambda x, w: nn.conv2d(x, w, **options), x, w))
    assert _work(values) <= 1.25 * forward
    assert not any(any(pad.attrs[2]) for pad in _all(values, "pad")), "zeros between elements"
    (joined,) = _all(values, "interleave")
    assert joined.size == math.prod(x)


def test_a_window_as_wide_as_the_stride_is_one_product() -> None:
    values = values_of(lambda x, w: nn.conv_transpose2d(x, w, stride=16), (2, 8, 4, 4), (8, 3, 16, 16))
    assert len(_all(values, "dot_general")) == 1
    assert _work(values) == 2 * 8 * 3 * 16 * 16 * 16
    assert not _all(values, "pad")


def test_every_place_of_an_interleaving_is_written_once() -> None:
    """By the pieces that tile it, for strides and windows of all kinds, and extents that leave something over."""
    for taps in range(1, 8):
        for stride in (2, 3, 4, 5):
            for extra in range(stride):
                values = values_of(
                    lambda x, w, s=stride, e=extra: nn.conv_transpose1d(x, w, stride=s, output_padding=e),
                    (2, 3, 5), (3, 2, taps),
                )  # fmt: skip
                (joined,) = _all(values, "interleave")
                count = np.zeros(joined.size, int)
                for piece, (offset, strides) in zip(joined.inputs, joined.attrs[0], strict=True):
                    places = offset
                    for extent, step in zip(piece.shape, strides, strict=True):
                        places = np.add.outer(places, np.arange(extent) * step)
                    np.add.at(count, places.ravel(), 1)
                np.testing.assert_array_equal(count, 1, err_msg=f"{taps} taps, stride {stride}, {extra} more")


def test_axes_of_one_do_not_come_between_permutations() -> None:
    """A permutation above a reshape that only adds axes of extent 1 meets the one below it."""
    def function(x: Any, y: Any) -> Any:
        product = pb.einsum("ak,bkc->bac", x, y)
        return pb.permute_dims(pb.reshape(product, (1, 4, 3, 1, 5)), (0, 2, 3, 1, 4))

    values = values_of(function, (3, 7), (4, 7, 5))
    assert not _all(values, "permute")
    x, y = np.arange(21.0).reshape(3, 7), np.arange(140.0).reshape(4, 7, 5)
    wanted = np.einsum("ak,bkc->abc", x, y).reshape(1, 3, 1, 4, 5)
    np.testing.assert_array_equal(np.asarray(pb.jit(function)(x, y)), wanted)


# -- few outputs a group -----------------------------------------------------------------------------------------------


def _multiplying(function: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """Kernels that multiply, of ``function`` of arrays of these shapes."""
    report = str(pb.explain(function)(*[np.ones(shape, np.float32) for shape in shapes]))
    return sum("multiply" in line for line in report.splitlines())


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_depthwise_taps_are_one_kernel_over_one_stored_padding(layout: str) -> None:
    """Forward, and the gradients: no product, and what follows joins in."""
    shape, image = (2, 16, 12, 12), (2, 12, 12, 16)
    x = shape if layout == "channels_first" else image

    def function(x: Any, w: Any) -> Any:
        return nn.relu(nn.conv2d(x, w, padding=1, groups=16, layout=layout))

    values = values_of(function, x, (16, 1, 3, 3))
    assert not _all(values, "dot_general")
    assert len(_all(values, "stored_pad")) == 1
    assert len(_all(values, "multiply")) == 9
    assert _multiplying(function, x, (16, 1, 3, 3)) == 1


def test_depthwise_weight_gradient_is_a_sum_for_each_tap() -> None:
    shape = (4, 16, 28, 28)

    def function(x: Any, w: Any, ct: Any) -> Any:
        return pb.vjp(lambda w: nn.conv2d(x, w, padding=1, groups=16), w)[1](ct)[0]

    values = values_of(function, shape, (16, 1, 3, 3), shape)
    assert not _all(values, "dot_general")
    assert len(_all(values, "reduce_sum")) == 9
    assert _multiplying(function, shape, (16, 1, 3, 3), shape) == 1


@pytest.mark.parametrize(("outputs", "is_line"), [(4, True), (32, False)])
def test_few_outputs_are_computed_along_lines(outputs: int, is_line: bool) -> None:
    """What lies between two rows of positions is computed and left out; with many outputs it is not worth it."""
    values = values_of(lambda x, w: nn.conv2d(x, w, padding=1), (2, 3, 20, 20), (outputs, 3, 3, 3))
    (dot,) = _all(values, "dot_general")
    assert dot.size == 2 * outputs * ((19 * 22 + 20) if is_line else 20 * 20)
