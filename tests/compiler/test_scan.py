"""Scans in kernels: what is fused with them, every direction and dtype, and each instruction set."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import dtypes as dt
from pullback.compiler.llvm.kernel import kernel_module
from pullback.compiler.llvm.target import by_target_name, host
from pullback.compiler.program import Program, compile_program
from pullback.graph.graph import Graph
from pullback.graph.node import Node
from pullback.ops import elementwise as e
from pullback.ops import indexing, leaf, movement, reduction, scan
from pullback.runtime.buffers import from_numpy
from pullback.runtime.evaluate import evaluate
from pullback.runtime.llvm_engine import compile_count
from pullback.runtime.reference import reference_values
from tests.compiler.harness import TARGETS, assembly
from tests.threads import on_threads, same_bits

F = pb.nn.functional
RTOL = {dt.float16: 1e-3, dt.bfloat16: 1e-2, dt.float32: 1e-6, dt.float64: 1e-12}
SHAPES = [((1000,), 0), ((37, 5), 0), ((3, 19, 67), 1), ((3, 19, 37), 2)]


def program_of(function: Callable[..., Any], *args: Any) -> Program:
    graph = Graph.trace(function, *args)
    return compile_program(graph.inputs, graph.outputs)


def modes(function: Callable[..., Any], *args: Any) -> list[str]:
    return [kernel.mode for kernel in program_of(function, *args).kernels]


def data(array: Any) -> Node:
    return leaf.data(np.asarray(array), copy=True)


def check(nodes: Sequence[Node], rtol: float = 1e-12) -> None:
    expected = reference_values(nodes)
    evaluate(list(nodes))
    for node, want in zip(nodes, expected, strict=True):
        assert node.buffer is not None
        got = node.buffer.numpy(node.shape, node.dtype.numpy)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=rtol, atol=rtol, err_msg=repr(node))


def all_scans(x: Node, axis: int, reverse: bool) -> list[Node]:
    functions = [scan.scan_max, scan.scan_min]
    if x.dtype.kind != "b":
        functions += [scan.scan_sum, scan.scan_prod]
    return [f(x, axis, reverse, exclusive) for f in functions for exclusive in (False, True)]


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_every_dtype(shape: tuple[int, ...], axis: int, dtype: dt.DType) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) if dtype.kind == "f" else rng.integers(0, 2 if dtype.kind == "b" else 9, shape)
    x = data(x.astype(dtype.numpy))
    nodes = [scan.shift(x, axis, offset) for offset in (1, -1, 2, -3)]
    for reverse in (False, True):
        nodes += all_scans(x, axis, reverse)
        if dtype.kind == "f":
            gates = data(rng.uniform(-1, 1, shape).astype(dtype.numpy))
            nodes.append(scan.gated_scan(gates, x, axis, reverse))
            nodes += [scan.strong_scan(gates, x, axis, reverse, late) for late in (False, True)]
    check(nodes, RTOL.get(dtype, 0))


@pytest.mark.parametrize("name", sorted({*TARGETS, "generic128"}))
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int32, dt.float16], ids=str)
def test_every_target(name: str, dtype: dt.DType) -> None:
    target = host() if name == host().name else by_target_name(name)
    rng = np.random.default_rng(0)
    for shape, axis in (((45,), 0), ((6, 45), 1), ((45, 11), 0)):
        array = rng.integers(-4, 5, shape).astype(dtype.numpy)
        x = leaf.parameter(0, shape, dtype)
        outputs = [scan.shift(x, axis, 1), scan.shift(x, axis, -2)]
        for reverse in (False, True):
            outputs += all_scans(x, axis, reverse)
            if dtype.kind == "f":
                outputs.append(scan.gated_scan(e.multiply(x, 0.25), x, axis, reverse))
        buffers = compile_program([x], outputs, target=target)([from_numpy(array)])
        for buffer, node, want in zip(buffers, outputs, reference_values(outputs, {x: array}), strict=True):
            got = buffer.numpy(node.shape, node.dtype.numpy)
            tolerance = RTOL.get(dtype, 0)
            np.testing.assert_allclose(got.astype(float), want.astype(float), tolerance, tolerance, err_msg=repr(node))


def test_code_for_a_machine_with_longer_vectors() -> None:
    """LLVM takes what is written for AVX-512, whether or not this machine runs it."""
    target = by_target_name("avx512")
    for dtype in (dt.float32, dt.float64, dt.int8, dt.bool_, dt.bfloat16):
        for shape, axis in (((45,), 0), ((45, 11), 0)):
            x = leaf.parameter(0, shape, dtype)
            outputs = [*all_scans(x, axis, False), scan.shift(x, axis, 1)]
            if dtype.kind == "f":
                outputs += [scan.gated_scan(x, x, axis), scan.strong_scan(x, x, axis, False, True)]
            kernels = compile_program([x], outputs).kernels
            text = kernel_module({f"k{number}": kernel for number, kernel in enumerate(kernels)}, target)
            assert "zmm" in assembly(text, target)


@pytest.mark.parametrize("reverse", [False, True])
def test_special_values_in_every_lane(reverse: bool) -> None:
    """NaN, infinities and masks reach the lanes after them, and no others."""
    for special in (np.nan, np.inf, 0.0):
        for place in range(0, 21, 3):
            x = np.linspace(0.5, 1.5, 21)
            x[place] = special
            for array, axis in ((x, 0), (np.stack([x, x[::-1]]), 1), (np.stack([x, x[::-1]], 1), 0)):
                node = data(array)
                gated = [scan.gated_scan(node, data(np.ones_like(array)), axis, reverse)]
                strong = [scan.strong_scan(node, data(np.where(array > 1, 1.0, 0)), axis, reverse, late)
                          for late in (False, True)]  # fmt: skip
                check([*all_scans(node, axis, reverse), *gated, *strong])


def test_nothing_outside_a_buffer_is_read() -> None:
    """A shifted operand at the edge of its memory, in the first and in the last row and lane."""
    mmap = pytest.importorskip("mmap")
    page = mmap.PAGESIZE
    size = 4 * page
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        for guard in (address, address + 3 * page):
            assert protect(guard, page, 0) == 0
        for shape in ((2 * page // 8,), (2 * page // 64, 8), (4, 2 * page // 32)):
            inside = (ctypes.c_double * (2 * page // 8)).from_address(address + page)
            array = np.frombuffer(inside).reshape(shape)
            array[...] = np.arange(array.size).reshape(shape)
            for axis in range(array.ndim):
                x = leaf.data(array, copy=False)
                for offset in (1, -1, 3, -3):
                    check([scan.shift(x, axis, offset)])
                    moved = scan.shift(x, axis, offset)
                    check([scan.scan_sum(e.multiply(moved, 0.5), axis, offset < 0)])
    finally:
        for guard in (address, address + 3 * page):
            protect(guard, page, 3)


# -- fusion ------------------------------------------------------------------------------------------------------------

A, B = np.full((20, 6, 40), 0.5), np.ones((20, 6, 40))
AXES = [0, 1, 2]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("reverse", [False, True])
def test_gated_scan_is_one_kernel_and_its_gradient_another(axis: int, reverse: bool) -> None:
    def forward(a: Any, b: Any) -> Any:
        return pb.gated_scan(a, b, axis, reverse=reverse)

    def gates_and_terms(a: Any, b: Any) -> Any:
        return pb.tanh(pb.gated_scan(pb.sigmoid(a), pb.exp(b) * 2.0, axis, reverse=reverse))

    mode = ["row" if axis == 2 else "walk"]
    assert modes(forward, A, B) == mode
    assert modes(gates_and_terms, A, B) == mode
    for function in (forward, gates_and_terms):
        def squares(a: Any, b: Any, function: Any = function) -> Any:
            return pb.sum(function(a, b) ** 2)

        # The value of the recurrence, then everything else.
        assert modes(pb.grad(squares, (0, 1)), A, B) == mode * 2


@pytest.mark.parametrize("axis", AXES)
def test_gradient_with_the_forward_kept_is_one_kernel(axis: int) -> None:
    a, b, h, g = (leaf.parameter(i, A.shape, dt.float64) for i in range(4))
    back = scan.strong_scan(a, g, axis, True, True)
    by_gate = e.strong_product(back, scan.step_before(h, axis, False))
    program = compile_program([a, b, h, g], [back, by_gate])
    assert len(program.kernels) == 1
    assert program.kernels[0].reverse
    arrays = [np.random.default_rng(i).normal(size=A.shape) for i in range(4)]
    found = [x.numpy(A.shape, np.dtype(float)) for x in program([from_numpy(x) for x in arrays])]
    expected = reference_values([back, by_gate], dict(zip((a, b, h, g), arrays)))
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, a: pb.logcumsumexp(x, a), 1),
        (lambda x, a: pb.cummax(x, a, return_indices=True), 1),
        (lambda x, a: pb.cumulative_sum(pb.cumulative_sum(x, axis=a), axis=a), 1),
        (lambda x, a: pb.cumulative_sum(F.softmax(x, axis=a), axis=a), 1),
        (lambda x, a: pb.cumulative_sum(x, axis=a) / pb.sum(x, axis=a, keepdims=True), 1),
        (lambda x, a: (pb.max(pb.cumulative_sum(x, axis=a), axis=a), pb.mean(x, axis=a)), 1),
        (lambda x, a: pb.gated_scan(x, x * 2.0, a, initial=0.5), 1),
        (lambda x, a: pb.cumulative_sum(x, axis=a) + pb.cumulative_sum(x, axis=a, reverse=True), 2),
        (pb.grad(lambda x, a: pb.sum(pb.cumulative_sum(pb.sin(x), axis=a) ** 2)), 2),
        (pb.grad(lambda x, a: pb.sum(pb.cumulative_prod(x, axis=a) ** 2)), 2),
        (pb.grad(lambda x, a: pb.sum(pb.cummax(x, a) ** 2)), 2),
        (pb.grad(lambda x, a: pb.sum(pb.logcumsumexp(x, a) ** 2)), 2),
    ],
)
def test_kernel_counts(function: Callable[..., Any], count: int, axis: int) -> None:
    assert len(modes(lambda x: function(x, axis), A)) == count


def test_gradient_of_the_initial_state_is_in_the_same_kernel() -> None:
    def loss(a: Any, b: Any, h: Any) -> Any:
        return pb.sum(pb.gated_scan(a, b, 0, initial=h) ** 2)

    assert modes(pb.grad(loss, (0, 1, 2)), A, B, A[0]) == ["walk", "column"]


def test_positions_with_a_backward_walk_are_right() -> None:
    """argmax takes the first of equal elements, which a walk from the end would meet last."""
    x = data(np.random.default_rng(0).integers(0, 3, (7, 30)).astype(float))
    for axis in (0, 1):
        for reverse in (False, True):
            check([scan.scan_sum(x, axis, reverse), reduction.argmax(x, (axis,)), reduction.argmin(x, (axis,))])
            check([reduction.argmax(x, (axis,)), scan.scan_sum(x, axis, reverse)])


# -- views, stages, and what cannot be fused ---------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_operands_and_results_through_views(reverse: bool) -> None:
    rng = np.random.default_rng(0)
    x = data(rng.normal(size=(6, 10, 8)))
    for axis in (0, 1, 2):
        permuted = movement.permute(x, (2, 0, 1))
        running = scan.scan_sum(movement.flip(permuted, (axis,)), axis, reverse)
        reshaped = movement.reshape(scan.scan_max(x, axis, reverse), (3, 2, 5, 16))
        deeper = scan.scan_sum(movement.reshape(x, (3, 2, 5, 16)), 3, reverse)
        sliced = scan.scan_prod(movement.slice(x, (1, 2, 0), (6, 9, 7), (2, 1, 3)), axis, reverse)
        broad = scan.scan_sum(movement.broadcast_to(movement.slice_axis(x, axis, 1, 2), x.shape), axis, reverse)
        joined = movement.concat((running, movement.permute(x, (2, 0, 1))), 1)
        padded = movement.pad(scan.scan_sum(x, axis, reverse), 1.5, (1, 0, 2), (0, 1, 0))
        check([running, e.multiply(reshaped, deeper), sliced, broad, joined, padded,
               e.add(movement.flip(scan.scan_sum(x, axis, reverse), (axis,)), x),
               e.add(scan.scan_sum(x, axis, reverse), scan.scan_sum(x, (axis + 1) % 3, reverse)),
               scan.shift(movement.permute(scan.scan_sum(x, axis), (1, 2, 0)), axis, 1),
               scan.shift(movement.broadcast_to(movement.slice_axis(x, axis, 1, 2), x.shape), axis, -1)])  # fmt: skip


def test_scans_of_gathered_elements_and_of_scattered() -> None:
    rng = np.random.default_rng(0)
    x = data(rng.normal(size=(9, 40)))
    index = e.check_index(data(rng.integers(-9, 9, 25)), 9, "x")
    picked = indexing.gather(x, [index], (0,))
    for reverse in (False, True):
        running = scan.scan_sum(picked, 0, reverse)
        back = indexing.scatter(x, running, [index], (0,), "add")
        check([running, back, scan.scan_sum(back, 1, reverse), indexing.gather(running, [index], (0,))])


@pytest.mark.parametrize("axis", [0, 1])
def test_stages_of_a_row(axis: int) -> None:
    """Values of an early stage that later ones need again: kept in scratch memory, or computed again from the start."""
    x = data(np.random.default_rng(0).normal(size=(23, 41)))
    for reverse in (False, True):
        dear = e.sin(scan.scan_sum(e.exp(x), axis, reverse))
        top = reduction.reduce_max(dear, (axis,), True)
        normal = e.exp(e.subtract(dear, top))
        share = e.divide(normal, reduction.reduce_sum(normal, (axis,), True))
        last = scan.scan_sum(share, axis, reverse, True)
        check([last, e.multiply(last, scan.scan_sum(x, axis, reverse)), top], 1e-11)


def test_long_rows_with_several_stages() -> None:
    x = data(np.random.default_rng(0).normal(size=300_000))
    running = scan.scan_sum(x, 0)
    total = reduction.reduce_sum(e.abs(running), (0,), True)
    check([e.divide(running, total), scan.scan_max(e.divide(x, total), 0, True)], 1e-11)


@pytest.mark.parametrize("columns", [1, 7, 64, 2047, 2049, 5003])
def test_blocks_of_columns(columns: int) -> None:
    """As many as the threads share, with a tail; small types, whose carries are packed, too."""
    rng = np.random.default_rng(0)
    array = rng.normal(size=(2, 5, columns))

    def compare() -> None:
        for x in (data(array), data(array.astype(np.float32)), data(array > 0), data((9 * array).astype(np.int8))):
            check([f(x, 1, reverse, True) for f in (scan.scan_max, scan.scan_min) for reverse in (False, True)])
        x, gates = data(array), data(rng.uniform(-1, 1, array.shape))
        check([scan.gated_scan(gates, x, 1), scan.strong_scan(gates, e.sin(x), 1, True, True)])

    on_threads(compare, (1, 3))


# -- random chains -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_random_recurrences_with_what_is_around_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice((1, 2, 3, 8, 13, 33), rng.integers(1, 5)))
    pool = [data(rng.uniform(-1, 1, shape)) for _ in range(3)]
    for _ in range(9):
        x, y = (pool[rng.integers(len(pool))] for _ in range(2))
        axis, reverse, flag = int(rng.integers(len(shape))), bool(rng.random() < 0.5), bool(rng.random() < 0.3)
        kind = rng.integers(8)
        if kind == 0:
            node = e.tanh(scan.scan_sum(e.sin(x), axis, reverse, flag))
        elif kind == 1:
            node = scan.scan_prod(e.tanh(x), axis, reverse, flag)
        elif kind == 2:
            node = e.clip(scan.scan_max(x, axis, reverse, flag), -2.0, 2.0)
        elif kind == 3:
            node = e.tanh(scan.gated_scan(e.tanh(x), y, axis, reverse))
        elif kind == 4:
            node = e.tanh(scan.strong_scan(e.sin(y), x, axis, reverse, flag))
        elif kind == 5:
            node = scan.step_before(x, axis, reverse, 1 if flag else 0)
        elif kind == 6:
            node = e.multiply(x, e.cos(y))
        else:
            fold = reduction.reduce_max if flag else reduction.reduce_sum
            node = e.add(e.tanh(fold(x, (axis,), True)), y)
        pool.append(node)
    check(pool[-5:], 1e-11)


# -- threads and lengths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_threads_do_not_change_results(axis: int) -> None:
    x = pb.asarray(np.random.default_rng(3).standard_normal((900, 401)).astype(np.float32))

    def function(x: Any) -> Any:
        return pb.cumulative_sum(pb.sin(x), axis=axis), pb.logcumsumexp(x, axis), pb.gated_scan(pb.cos(x), x, axis)

    same_bits(lambda: function(x), (1, 2, 3))


def test_new_lengths_compile_nothing() -> None:
    def function(x: Any) -> Any:
        return pb.cumulative_sum(x, axis=0, reverse=True), pb.grad(lambda x: pb.sum(pb.logcumsumexp(x, 0) ** 2))(x)

    jitted = pb.jit(function)
    for shape in ((2, 3), (2,)):
        pb.eval(jitted(np.ones(shape)))
    before = compile_count()
    for shape in ((5, 3), (100, 17), (3, 2), (3,), (1000,)):
        x = np.linspace(0.5, 1, int(np.prod(shape))).reshape(shape)
        expected = np.cumsum(x[::-1], 0)[::-1]
        np.testing.assert_allclose(np.asarray(jitted(x)[0]), expected, rtol=1e-12, atol=1e-13)
    assert compile_count() == before
