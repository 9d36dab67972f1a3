"""Padding and concatenation read in place by the kernels that need them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import options
from pullback.compiler.program import compile_program
from pullback.compiler.validate import validate_kernel
from pullback.errors import CompileError
from pullback.graph.graph import Graph
from tests.threads import same_bits

F = pb.nn.functional
RNG = np.random.default_rng(0)
X = RNG.standard_normal((13, 21)).astype(np.float32)
Y = RNG.standard_normal((13, 21)).astype(np.float32)


def kernels_of(function, *args):
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs).kernels


def rotated(q, c):
    half = q.shape[-1] // 2
    return q * c + pb.concat([-q[..., half:], q[..., :half]], -1) * (c + 1)


def pad(x, *widths, value=0):
    return pb.pad(x, widths, constant_values=value)


ONE_KERNEL = {
    "rows": (lambda x, y: pad(x, (1, 2), (0, 0)) * 2, 1),
    "columns": (lambda x, y: pad(x, (0, 0), (3, 1)) * 2, 1),
    "both, filled": (lambda x, y: pb.exp(pad(x, (1, 2), (3, 1), value=1.5)), 1),
    "sum of paddings": (lambda x, y: pad(x, (1, 0), (0, 0)) + pad(y, (0, 1), (0, 0)), 1),
    "computed": (lambda x, y: pad(x * y - 1, (1, 1), (1, 1)) + 1, 1),
    "transposed": (lambda x, y: pad(x.T, (1, 1), (2, 0)) + 1, 1),
    "reversed": (lambda x, y: pad(x[::-1, ::-1], (1, 1), (2, 0)) + 1, 1),
    "spread": (lambda x, y: pad(pb.broadcast_to(x[:, :1], (13, 8)), (0, 0), (2, 3)) * 3, 1),
    "reduced": (lambda x, y: pb.sum(pad(x, (2, 2), (5, 5), value=1) ** 2, -1), 1),
    "reduced along columns": (lambda x, y: pb.max(pad(x, (2, 2), (5, 5), value=-9), 0), 1),
    "softmax": (lambda x, y: F.softmax(pad(x, (0, 0), (1, 1), value=-np.inf), -1), 1),
    "one behind the other": (lambda x, y: pb.concat([x, y], 0) * 2, 1),
    "side by side": (lambda x, y: pb.concat([x, y[:, :3], x * y], 1) * 2, 1),
    "with numbers": (lambda x, y: pb.concat([x, pb.ones((13, 2))], 1) * 2, 1),
    "stacked": (lambda x, y: pb.stack([x, y], -1) * 2 + 1, 1),
    "rotated": (lambda x, y: rotated(x[:, :20], y[:, :20]), 1),
    "halves": (lambda x, y: pad(pb.astype(x, "float16"), (1, 1), (1, 1)) * 2, 1),
    "masks": (lambda x, y: pb.logical_not(pad(x > 0, (1, 1), (1, 1), value=True)), 1),
    "integers": (lambda x, y: pad(pb.astype(x * 9, "int8"), (1, 1), (1, 1), value=7) + 1, 1),
    "divided": (lambda x, y: pad(7 // pb.astype(y * 50 + 300, "int32"), (1, 1), (1, 1)) + 1, 2),
    "long": (lambda x, y: pad(pb.asarray(x), (40, 1), (70, 2)) - 1, 1),
}


def results(function, *args):
    found = pb.jit(lambda *args: function(*args))(*map(pb.asarray, args))
    return [np.asarray(r) for r in (found if isinstance(found, (tuple, list)) else (found,))]


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name):
    function, count = ONE_KERNEL[name]
    assert len(kernels_of(function, X, Y)) == count
    found = results(function, X, Y)
    with options.without("window", "fuse"):
        expected = results(function, X, Y)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("function", [
    lambda x, y: pad(pad(x, (1, 1), (0, 3), value=2), (0, 2), (1, 1)) * 2,
    lambda x, y: pad(pb.concat([x, y], 0), (1, 1), (1, 1)) * 2,
    lambda x, y: (pad(x, (1, 1), (1, 1)), pad(x, (1, 1), (1, 1)) * 2),
    lambda x, y: pb.concat([F.softmax(x, -1), y], 0) * 2,
    lambda x, y: pad(pb.sum(x, -1, keepdims=True) + y, (1, 1), (1, 1)) * x[0, 0],
    lambda x, y: pb.concat([x, y, x, y, x, y], 0) * 2,
    lambda x, y: pad(x[pb.asarray([0, 3, 12])], (1, 1), (1, 1)) * 2,
    lambda x, y: pb.matmul(pad(pb.tanh(x), (1, 1), (1, 1)), pad(y, (1, 1), (1, 1)).T),
    lambda x, y: pb.grad(lambda x: pb.sum(pad(x, (1, 1), (2, 2)) ** 3) + pb.sum(pb.concat([x, y]) ** 2))(x),
    lambda x, y: pb.grad(lambda x: pb.sum((x[1:] - x[:-1]) ** 2) + pb.sum((x[:, 1:] * x[:, :-1]) ** 2))(x),
    lambda x, y: pb.cumulative_sum(pad(x, (1, 1), (1, 1)) + 1, axis=0),
    lambda x, y: (pb.concat([x, x + 1]) * 2, pb.sum(pb.concat([x, x + 1]), 0)),
])  # fmt: skip
def test_values(function):
    found = results(function, X, Y)
    with options.without("window", "fuse", "share"):
        expected = results(function, X, Y)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_an_index_that_no_element_uses_is_not_looked_at():
    table, indices = RNG.standard_normal((5, 8)).astype(np.float32), np.array([[0, 4], [2, 1]])
    found = results(lambda t, i: pb.take(t, pad(i, (1, 1), (0, 0), value=3), axis=0) + 1, table, indices)[0]
    np.testing.assert_array_equal(found, table[np.pad(indices, ((1, 1), (0, 0)), constant_values=3)] + 1)
    with pytest.raises(IndexError):
        results(lambda t, i: pb.take(t, pad(i, (1, 1), (0, 0), value=5), axis=0) + 1, table, indices)


def test_nothing_outside_of_an_operand_is_read():
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    view = np.frombuffer(memory, np.float32)
    row = view[page // 4 - 1 : page // 4 - 1 + 8]  # its neighbours must not come into the result
    view[:] = np.nan
    row[:] = np.arange(8)
    found = results(lambda x: pad(x, (5, 30)) + 1, row)[0]
    np.testing.assert_array_equal(found, np.pad(np.arange(8.0), (5, 30)) + 1)


def test_the_same_bits_for_any_number_of_threads():
    x = RNG.standard_normal((600, 500)).astype(np.float32)
    functions = (lambda x: pad(x, (1, 1), (1, 1)) * 2, lambda x: rotated(x, x), lambda x: pb.concat([x, x]) + 1)
    same_bits(lambda: [results(function, x)[0] for function in functions])


def test_the_validator_sees_a_read_out_of_bounds():
    (kernel,) = kernels_of(lambda x: pad(x, (1, 1), (1, 1)) * 2, X)
    validate_kernel(kernel)
    (number,) = (n for n, expression in enumerate(kernel.expressions) if expression[0] == "guarded")
    expressions = list(kernel.expressions)
    expressions[number] = (*expressions[number][:3], expressions[number][3][1:])
    with pytest.raises(CompileError, match="behind a guard"):
        validate_kernel(replace(kernel, expressions=expressions))
