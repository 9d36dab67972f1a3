"""Examples of convolution: plain, grouped, strided with pixels left over, dilated both ways, padded and cropped."""

from __future__ import annotations

from functools import partial

from pullback.ops.convolution import convolution
from tests.ops.support import Case, grid, ints

# x (groups, batch, channels, *spatial), w (groups, outputs, channels, *taps), strides, padding, lhs and rhs dilation
EXAMPLES = {
    "1d": ((1, 2, 3, 7), (1, 2, 3, 3), (1,), ((1, 1),), (1,), (1,)),
    "strided": ((1, 2, 2, 8), (1, 2, 2, 3), (2,), ((0, 1),), (1,), (1,)),
    "dilated": ((1, 1, 2, 9), (1, 3, 2, 3), (1,), ((2, 0),), (1,), (3,)),
    "spread": ((1, 2, 2, 4), (1, 2, 2, 3), (1,), ((2, 3),), (2,), (1,)),
    "spread far": ((1, 2, 1, 3), (1, 2, 1, 2), (1,), ((1, 1),), (3,), (1,)),
    "all at once": ((1, 1, 2, 6), (1, 2, 2, 3), (3,), ((3, 2),), (2,), (2,)),
    "cropped": ((1, 2, 1, 9), (1, 1, 1, 2), (2,), ((-1, -2),), (1,), (1,)),
    "cropped and spread": ((1, 1, 2, 5), (1, 2, 2, 3), (1,), ((-3, 4),), (2,), (1,)),
    "groups": ((3, 2, 2, 6), (3, 2, 2, 3), (1,), ((1, 1),), (1,), (1,)),
    "depthwise": ((4, 2, 1, 6), (4, 1, 1, 3), (2,), ((1, 1),), (1,), (1,)),
    "2d": ((1, 2, 2, 5, 4), (1, 3, 2, 3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1), (1, 1)),
    "2d groups": ((2, 1, 2, 4, 5), (2, 2, 2, 2, 3), (1, 2), ((0, 1), (1, 2)), (1, 1), (2, 1)),
    "2d spread": ((2, 1, 1, 3, 3), (2, 2, 1, 3, 2), (1, 1), ((1, 2), (0, 1)), (2, 3), (1, 1)),
    "2d mixed phases": ((1, 1, 2, 3, 4), (1, 2, 2, 3, 5), (1, 1), ((2, 1), (4, 3)), (2, 3), (1, 1)),
    "2d many phases": ((1, 1, 1, 2, 2), (1, 1, 1, 9, 10), (1, 1), ((8, 8), (9, 9)), (8, 9), (1, 1)),
    "2d one way": ((1, 2, 2, 3, 4), (1, 2, 2, 1, 3), (1, 1), ((0, 1), (1, 1)), (2, 1), (1, 1)),
    "one tap": ((1, 2, 3, 4, 5), (1, 2, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "one pixel": ((1, 3, 4, 1, 1), (1, 2, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "3d": ((1, 1, 2, 3, 4, 3), (1, 2, 2, 2, 3, 2), (1, 2, 1), ((0, 0), (1, 1), (1, 0)), (1, 1, 1), (1, 1, 1)),
    "no axes": ((2, 3, 2), (2, 2, 2), (), (), (), ()),
    "no batch": ((1, 0, 2, 5), (1, 3, 2, 3), (1,), ((0, 0),), (1,), (1,)),
    "no channels": ((2, 2, 0, 5), (2, 3, 0, 3), (1,), ((0, 0),), (1,), (1,)),
    "no outputs": ((1, 2, 2, 5), (1, 0, 2, 3), (1,), ((0, 0),), (1,), (1,)),
    "no pixels": ((1, 2, 2, 0), (1, 2, 2, 3), (1,), ((2, 2),), (1,), (1,)),
    "no positions": ((1, 2, 2, 2), (1, 2, 2, 3), (1,), ((0, 0),), (1,), (1,)),
}


def _case(note: str, dtype: str = "") -> Case:
    x, w, strides, padding, lhs, rhs = EXAMPLES[note]
    build = partial(convolution, strides=strides, padding=padding, lhs_dilation=lhs, rhs_dilation=rhs)
    if dtype:
        return Case("convolution", build, (ints(-4, 5, x, dtype, 1), ints(-4, 5, w, dtype, 2)), (), f"{note} {dtype}")
    return Case("convolution", build, (grid(-1, 1, x, 1), grid(-1, 1, w, 2)), (0, 1), note)


CASES = [*map(_case, EXAMPLES), _case("strided", "int32"), _case("2d spread", "int8"), _case("groups", "bool")]
