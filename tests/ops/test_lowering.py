"""Each op compiled, against its reference: every example, in several dtypes, and long enough for vector loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pullback import dtypes as dt
from pullback.compiler.llvm.scalar import INSTRUCTIONS
from pullback.graph.node import Node
from pullback.ops import contraction, indexing, leaf, movement, reduction
from pullback.ops import elementwise as e
from pullback.ops.registry import ALL
from pullback.runtime.evaluate import evaluate
from tests.ops.support import CASES, Case, node_of, value_of

RTOL = {dt.float16: 1e-3, dt.bfloat16: 1e-2, dt.float32: 1e-6, dt.float64: 1e-14}
#: the magnitude of what cancels near the zeros of these functions
CANCELS = {
    "lgamma": 1.0, "digamma": 1.0, "polygamma": 10.0, "logaddexp": 1.0, "logaddexp2": 1.0, "gelu": 1.0,
    "gelu_slope": 1.0, "gelu_tanh": 3.0, "gelu_tanh_slope": 10.0,
}  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e30, -1e30, 1e-40, np.inf, -np.inf, np.nan]


def check(nodes: Sequence[Node], rtol: float | None = None, scale: float = 1e-3) -> None:
    """The compiled values of ``nodes`` are those of the reference. scale: magnitude of what cancels in them."""
    expected = [value_of(node) for node in nodes]
    evaluate(list(nodes))
    for node, want in zip(nodes, expected):
        assert node.buffer is not None
        got = node.buffer.numpy(node.shape, node.dtype.numpy)
        if node.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, err_msg=repr(node))
            continue
        tolerance = RTOL[node.dtype] if rtol is None else rtol
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance * scale, err_msg=repr(node)
        )


def test_every_elementwise_op_has_an_instruction() -> None:
    assert {op.lower for op in ALL.values() if op.kind == "elementwise"} <= set(INSTRUCTIONS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_example(case: Case) -> None:
    check([case.build(*[node_of(a) for a in case.arrays])], 1e-12 if case.op != "cast" else 1e-6)


FLOATING = [
    op.name for op in ALL.values()
    if op.kind == "elementwise" and op.name not in ("where", "clip", "cast", "bitcast", "barrier")
    and any(c.op == op.name and c.arrays[0].dtype.kind == "f" for c in CASES)
]


@pytest.mark.parametrize("dtype", RTOL, ids=str)
@pytest.mark.parametrize("name", FLOATING)
def test_floating_elementwise(name: str, dtype: dt.DType) -> None:
    """Random and special values, in a length that leaves a tail."""
    rng = np.random.default_rng(0)
    count = len(next(c for c in CASES if c.op == name).arrays)
    with np.errstate(all="ignore"):
        columns = [
            np.concatenate([np.repeat(SPECIAL, 13) if k == 0 else np.tile(SPECIAL, 13), rng.normal(0, 3, 80)])
            .astype(dtype.numpy) for k in range(count)
        ]
    check([getattr(e, name)(*[node_of(c) for c in columns])], scale=CANCELS.get(name, 1e-3))


@pytest.mark.parametrize("source", dt.ALL, ids=str)
def test_casts(source: dt.DType) -> None:
    values = np.array([0, 1, 2, 100, 3, 7, 120, 0, 1, 55, 1, 1, 9])
    if source.kind in "if":
        values = np.concatenate([values, -values])
    x = values.astype(source.numpy)
    if source.kind == "f":
        with np.errstate(all="ignore"):
            x = np.concatenate([x, np.array([*SPECIAL, 0.3, 300.7, -40000.2, 3e9, 1e19]).astype(source.numpy)])
    check([e.cast(node_of(x), target) for target in dt.ALL if target is not source])


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d.is_integer], ids=str)
def test_integer_elementwise(dtype: dt.DType) -> None:
    low, high = dt.integer_limits(dtype)
    rng = np.random.default_rng(0)
    edge = np.array([low, high, 0, 1, high - 1, low + 1, 7], dtype.numpy)
    x = np.concatenate([np.repeat(edge, 7), rng.integers(low, high, 50, dtype.numpy, endpoint=True)])
    y = np.concatenate([np.tile(edge, 7), rng.integers(max(low, -9), 9, 50, dtype.numpy)])
    a, b = node_of(x), node_of(y)
    two = ("add", "subtract", "multiply", "floor_divide", "remainder", "pow", "maximum", "minimum", "equal",
           "not_equal", "less", "less_equal", "greater", "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor",
           "left_shift", "right_shift")
    check([getattr(e, name)(a, b) for name in two])
    check([getattr(e, name)(a) for name in ("negative", "abs", "sign", "square", "cube", "bitwise_invert")])
    check([reduction.reduce_sum(a, (0,)), reduction.reduce_prod(b, (0,)), reduction.reduce_max(a, (0,)),
           reduction.reduce_min(a, (0,)), reduction.argmax(a, (0,)), reduction.argmin(a, (0,))])


@pytest.mark.parametrize("dtype", RTOL, ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1), (0, 1, 2)])
def test_floating_reductions(axes: tuple[int, ...], dtype: dt.DType) -> None:
    x = np.random.default_rng(0).normal(size=(3, 19, 37)).astype(dtype.numpy)
    x[1, 3, 5] = x.max()
    node = node_of(x)
    summed = reduction.reduce_sum(e.multiply(node, 2), axes)
    check([summed, reduction.reduce_max(node, axes, True)], RTOL[dtype] * 4, 1.0)
    check([reduction.reduce_min(node, axes), reduction.reduce_all(e.less(node, 2), axes),
           reduction.reduce_any(e.greater(node, 2), axes)])
    if len(axes) == 1:
        with_nan = x.copy()
        with_nan[0, 0, 7] = with_nan[2, 3, 4] = np.nan
        check([reduction.argmax(node_of(with_nan), axes), reduction.argmin(node, axes),
               reduction.reduce_max(node_of(with_nan), axes)])


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_contraction_over_dtypes(dtype: dt.DType) -> None:
    rng = np.random.default_rng(0)
    low = 0 if dtype.kind in "bu" else -3
    a, b = (node_of(rng.integers(low, 4, shape).astype(dtype.numpy)) for shape in ((5, 7, 19), (19, 7, 33)))
    check([contraction.dot_general(a, b, ((2,), (0,)), ((1,), (1,))), contraction.dot_general(a, b, ((2, 1), (0, 1)))])


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_indexing_and_movement_over_dtypes(dtype: dt.DType) -> None:
    rng = np.random.default_rng(0)
    x = node_of(rng.integers(0, 2 if dtype.kind == "b" else 9, (6, 5, 17)).astype(dtype.numpy))
    index = node_of(rng.integers(-6, 6, (4, 3)))
    i = e.check_index(index, 6, "x")
    picked = indexing.gather(x, [i], (0,))
    modes = ("set", "min", "max") if dtype.kind == "b" else ("set", "add", "multiply", "min", "max")
    check([picked, *[indexing.scatter(x, picked, [i], (0,), mode) for mode in modes]])
    zero = leaf.constant(0, dtype)
    check([
        movement.pad(x, zero, (1, -2, 0), (2, 1, 3), (1, 0, 2)),
        movement.concat([x, movement.flip(x, (1, 2)), x], 1),
        movement.permute(movement.slice(x, (1, 0, 2), (6, 5, 16), (2, 1, 3)), (2, 0, 1)),
        movement.broadcast_to(movement.reshape(x, (30, 1, 17)), (30, 3, 17)),
    ])


def test_the_last_of_repeated_writes_wins() -> None:
    rng = np.random.default_rng(0)
    index = node_of(rng.integers(0, 5, (2000,)))
    for rest in ((), (33,)):
        x, u = node_of(np.zeros((5, *rest))), node_of(rng.normal(size=(2000, *rest)))
        check([indexing.scatter(x, u, [index], (0,), "set")])


def test_an_index_out_of_range_is_an_error_with_the_users_line() -> None:
    x, index = node_of(np.arange(5.0)), node_of(np.array([0, 7, -1]))
    picked = indexing.gather(x, [e.check_index(index, 5, "x[i]")], (0,))
    with pytest.raises(IndexError, match=r"x\[i\]: index 7 is out of range for size 5 .*test_lowering.py"):
        evaluate([picked])
