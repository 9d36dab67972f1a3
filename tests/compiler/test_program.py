"""Programs: inputs, outputs, memory, errors, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import dtypes
from pullback.compiler.program import Program, compile_program
from pullback.ops import contraction, elementwise, indexing, leaf, movement, reduction, sorting
from pullback.runtime.buffers import Buffer, allocate, from_numpy


def parameter(index: int, shape: tuple[int, ...], dtype: dtypes.DType = dtypes.float32) -> Any:
    return leaf.parameter(index, shape, dtype)


def run(program: Program, *arrays: Any) -> list[Buffer]:
    return program([from_numpy(a) if isinstance(a, np.ndarray) else a for a in arrays])


def array(buffer: Buffer, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    return buffer.numpy(shape, dtype)


def test_outputs_may_be_inputs_constants_and_repeated() -> None:
    x = parameter(0, (3,))
    y = elementwise.add(x, 1.5)
    constant = leaf.full((2,), 7.0, dtypes.float32)
    program = compile_program([x], [y, x, y, constant, movement.reshape(x, (1, 3))])
    data = np.arange(3, dtype=np.float32)
    source = from_numpy(data)
    first, second, third, fourth, fifth = program([source])
    assert second is source and fifth is source and first is third
    np.testing.assert_array_equal(array(first, (3,)), data + 1.5)
    np.testing.assert_array_equal(array(fourth, (2,)), [7, 7])


def test_numbers_are_inputs_too() -> None:
    x, n = parameter(0, (3,)), parameter(1, ())
    program = compile_program([x, n], [elementwise.multiply(x, n)])
    data = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(array(run(program, data, 2.5)[0], (3,)), data * 2.5)
    np.testing.assert_array_equal(array(run(program, data, np.array(3, np.float32))[0], (3,)), data * 3)


def test_a_donated_input_is_overwritten_only_when_nobody_else_holds_it() -> None:
    x, y = parameter(0, (64,)), parameter(1, (64,))
    program = compile_program([x, y], [elementwise.add(x, y)], donate=[0])
    other = from_numpy(np.ones(64, np.float32))
    mine = allocate(256)
    mine.writable((64,), "float32")[:] = 3
    address = mine.address
    inputs = [mine, other]
    del mine  # the node that would hold it is not there, so the list's reference is the only one
    (result,) = program(inputs)
    assert result.address == address
    np.testing.assert_array_equal(array(result, (64,)), 4)
    inputs[0] = result
    keep, also = result, result
    (second,) = program(inputs)
    assert second.address != address
    np.testing.assert_array_equal(array(keep, (64,)), 4)
    np.testing.assert_array_equal(array(also, (64,)), 4)
    np.testing.assert_array_equal(array(second, (64,)), 5)


def test_foreign_memory_is_never_overwritten() -> None:
    x = parameter(0, (64,))
    program = compile_program([x], [elementwise.add(x, 1.0)], donate=[0])
    data = np.zeros(64, np.float32)
    (result,) = program([from_numpy(data)])
    assert data.max() == 0
    np.testing.assert_array_equal(array(result, (64,)), 1)


def test_a_read_at_another_place_forbids_overwriting() -> None:
    x = parameter(0, (8, 8))
    program = compile_program([x], [elementwise.add(x, movement.permute(x, (1, 0)))], donate=[0])
    assert not program.donations


def test_bad_indices_raise_and_the_program_runs_again() -> None:
    x, i = parameter(0, (5,)), parameter(1, (2,), dtypes.int64)
    program = compile_program([x, i], [indexing.gather(x, [elementwise.check_index(i, 5, "take")], axes=(0,))])
    data = np.arange(5, dtype=np.float32)
    for _ in range(3):
        with pytest.raises(IndexError, match="take: index 5 is out of range for size 5"):
            run(program, data, np.array([0, 5]))
        np.testing.assert_array_equal(array(run(program, data, np.array([-1, 1]))[0], (2,)), [4, 1])


def test_host_steps_split_the_program() -> None:
    x = parameter(0, (4, 50))
    doubled = elementwise.multiply(x, -2.0)
    order = sorting.argsort(doubled, 1)
    twice = sorting.argsort(elementwise.cast(order, dtypes.float32), 1)
    program = compile_program([x], [twice, elementwise.add(doubled, elementwise.cast(twice, dtypes.float32))])
    data = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    expected = np.argsort(np.argsort(data * -2, axis=1, kind="stable"), axis=1, kind="stable")
    first, second = run(program, data)
    np.testing.assert_array_equal(array(first, (4, 50), "int64"), expected)
    np.testing.assert_allclose(array(second, (4, 50)), data * -2 + expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "bool", "float16", "bfloat16", "uint8"])
def test_products_of_types_without_blas(dtype: str) -> None:
    rng = np.random.default_rng(1)
    kind = dtypes.by_name(dtype)
    a = rng.integers(0, 2, (3, 4, 5)).astype(kind.numpy)
    b = rng.integers(0, 2, (3, 5, 6)).astype(kind.numpy)
    x, y = leaf.parameter(0, a.shape, kind), leaf.parameter(1, b.shape, kind)
    program = compile_program([x, y], [contraction.dot_general(x, y, ((2,), (1,)), ((0,), (0,)))])
    found = array(run(program, a, b)[0], (3, 4, 6), kind.numpy)
    wide = np.matmul(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(found.astype(np.float64), wide if dtype != "bool" else wide > 0)


def test_reductions_are_accurate_and_cut_by_size_only() -> None:
    x = parameter(0, (1 << 20,))
    program = compile_program([x], [reduction.reduce_sum(x, (0,))])
    assert len(program.kernels) == 2
    data = np.random.default_rng(2).random(1 << 20, np.float32)
    np.testing.assert_allclose(array(run(program, data)[0], ()), data.sum(dtype=np.float64), rtol=3e-7)


def test_several_threads_run_one_program() -> None:
    x = parameter(0, (500, 300))
    program = compile_program([x], [reduction.reduce_sum(elementwise.exp(x), (1,))])
    rng = np.random.default_rng(4)
    data = [rng.standard_normal((500, 300)).astype(np.float32) for _ in range(4)]
    failures: list[int] = []

    def work(number: int) -> None:
        expected = np.exp(data[number].astype(np.float64)).sum(1)
        for _ in range(20):
            if not np.allclose(array(run(program, data[number])[0], (500,)), expected, rtol=1e-5):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_long_chain_builds_runs_and_is_freed() -> None:
    x = pb.asarray(np.ones(4, np.float32))
    y = x
    for _ in range(100_000):
        y = y + 1.0
    np.testing.assert_array_equal(np.asarray(y), 100_001)
    del y


def test_a_long_chain_differentiates() -> None:
    def chain(x: Any) -> Any:
        for _ in range(10_000):
            x = pb.sin(x) + 0.25
        return pb.sum(x)

    x = pb.asarray(np.full(3, 0.5))
    value, gradient = pb.value_and_grad(chain)(x)
    expected, slope = np.full(3, 0.5), np.ones(3)
    for _ in range(10_000):
        slope *= np.cos(expected)
        expected = np.sin(expected) + 0.25
    np.testing.assert_allclose(np.asarray(value), expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(gradient), slope, rtol=1e-6, atol=1e-300)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7])
@pytest.mark.parametrize(("shape", "axes"), [
    ((1_000_003,), (0,)), ((20_011, 40), (0,)), ((40, 20_011), (1,)), ((60, 57, 23, 8), (0, 2)), ((5001, 7, 5), (0, 2)),
])
def test_float32_sums_of_many_equal_values(value, shape, axes):
    """Equal values round alike: the worst case of a running sum, which drifts by 1e-5 and more."""
    x = np.full(shape, value, np.float32)
    got = np.asarray(pb.sum(pb.asarray(x), axis=axes)).astype(np.float64)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(axes), rtol=5e-7)
    mean = np.asarray(pb.mean(pb.asarray(x), axis=axes)).astype(np.float64)
    np.testing.assert_allclose(mean, x[(0,) * x.ndim], rtol=5e-7)


@pytest.mark.parametrize(("shape", "axes"), [
    ((1100, 1000), (0,)), ((70, 300, 100), (1,)), ((70, 300, 100), (0, 1)), ((40, 7, 60, 80), (0, 2)),
    ((1 << 14, 65), (0,)), ((3, 6000, 65), (1,)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_light_folds_over_much_memory_walk_wide_blocks(shape, axes, dtype):
    x = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
    t = pb.asarray(x)
    program = pb.explain(lambda t: (pb.sum(t, axis=axes), pb.max(t, axis=axes), pb.min(t * 2, axis=axes) + 1))(t)
    assert "walk" in {step.kind for step in program.steps}
    total, largest, smallest = (np.asarray(r) for r in program.result)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(total, wide.sum(axes), rtol=1e-6 if dtype is np.float32 else 1e-12, atol=1e-3)
    np.testing.assert_array_equal(largest, x.max(axes))
    np.testing.assert_array_equal(smallest, (x * dtype(2)).min(axes) + dtype(1))
    assert bool(pb.all(pb.any(t > 20, axis=axes) == pb.asarray((x > 20).any(axes))))
