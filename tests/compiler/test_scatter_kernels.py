"""Scatters and gathers as kernels: against NumPy on random sizes, the same bits for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.api.convert import as_node
from pullback.compiler import options, simplify
from pullback.compiler.program import compile_program
from pullback.graph.graph import Graph
from pullback.ops import indexing
from pullback.ops.elementwise import check_index
from pullback.tensor import Tensor
from tests.threads import same_bits

AT = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
DTYPES = {"set": ("int32", "float32", "bool"), "add": ("int64", "uint8", "int32", "float32", "float64")}


@pytest.fixture
def small_chunks(monkeypatch):
    """Copies of the target for sizes that tests can afford."""
    monkeypatch.setattr(simplify, "SCATTER_CHUNK", 1 << 6)
    monkeypatch.setattr(simplify, "UPDATES_PER_PLACE", 1)


def scattered(x, updates, indices, axes, mode):
    """The primitive on arrays."""
    node = as_node(x, None, "test")
    checked = [check_index(as_node(i, None, "test"), x.shape[a], "test") for i, a in zip(indices, axes)]
    return Tensor(indexing.scatter(node, as_node(updates, None, "test"), checked, axes, mode))


def expected(x, updates, indices, axes, mode):
    """NumPy's, one update after the other."""
    out = x.copy()
    chosen = np.moveaxis(out, axes, range(len(axes)))
    if mode == "set":
        for place in np.ndindex(indices[0].shape):
            chosen[tuple(i[place] for i in indices)] = updates[place]
    else:
        AT[mode].at(chosen, tuple(indices), updates)
    return out


def computed(function):
    """The result of ``function``, which must have the same bits on any number of threads."""
    return same_bits(lambda: pb.jit(lambda: function())())  # a program of its own for each number


def numbers(rng, shape, dtype):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


@st.composite
def cases(draw):
    mode = draw(st.sampled_from(["set", "add", "multiply", "min", "max"]))
    dtype = draw(st.sampled_from(DTYPES.get(mode, DTYPES["add"])))
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 4, 5, 8, 17, 33, 64])) for _ in range(ndim))
    axes = tuple(draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))])
    lead = draw(st.sampled_from([(), (1,), (7,), (100,), (1000,), (3, 50), (40, 5)]))
    return mode, dtype, shape, axes, lead, draw(st.integers(0, 2**31))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_scatter_like_numpy(small_chunks, case):
    mode, dtype, shape, axes, lead, seed = case
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape, dtype)
    rest = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    updates = numbers(rng, (*lead, *rest), dtype)
    indices = [rng.integers(0, shape[a], lead) for a in axes]
    if mode == "multiply" and dtype.startswith("float"):
        updates = np.exp2(np.round(updates)).astype(dtype)  # products that are exact
        x = np.exp2(np.round(x)).astype(dtype)
    got = computed(lambda: scattered(x, updates, indices, axes, mode))
    with np.errstate(over="ignore", under="ignore"):
        want = expected(x, updates, indices, axes, mode)
    if mode in ("add", "multiply") and dtype.startswith("float"):
        size = expected(np.abs(x), np.abs(updates), indices, axes, mode)
        np.testing.assert_array_less(np.abs(got - want), 1e-5 * size + 1e-30)
    else:
        np.testing.assert_array_equal(got, want)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 64, 100]), st.sampled_from([1, 5, 300]), st.integers(0, 2**31))
def test_rows_gathered_and_scattered(small_chunks, width, count, seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(-50, 50, (20, width)).astype(np.float32)
    index = rng.integers(-20, 20, count)
    np.testing.assert_array_equal(computed(lambda: pb.take(table, index, axis=0)), table[index])
    np.testing.assert_array_equal(computed(lambda: pb.take(table.T, index, axis=1)), table.T[:, index])
    rows = rng.integers(-50, 50, (count, width)).astype(np.float32)
    want = table.copy()
    np.add.at(want, index, rows)
    np.testing.assert_array_equal(computed(lambda: pb.index_put(table, (index,), rows, accumulate=True)), want)
    columns = rng.integers(0, width, count)
    want = table.copy()
    np.add.at(want, (index, columns), rows[:, 0])
    got = computed(lambda: pb.index_put(table, (index, columns), rows[:, 0], accumulate=True))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("mode", ["set", "add", "max"])
def test_lines_scattered_in_parallel(axis, mode):
    """Axes that an index merely counts along are loops of their own."""
    rng = np.random.default_rng(axis)
    x = rng.integers(0, 100, (6, 5, 9))
    index = rng.integers(0, x.shape[axis], x.shape)
    source = rng.integers(0, 100, x.shape)
    places = [np.broadcast_to(np.arange(n).reshape([-1 if a == d else 1 for d in range(3)]), x.shape)
              for a, n in enumerate(x.shape)]  # fmt: skip
    places[axis] = index
    want = expected(x, source, places, (0, 1, 2), mode)
    np.testing.assert_array_equal(computed(lambda: pb.scatter(x, axis, index, source, mode=mode)), want)


def test_many_updates_of_few_places():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 1000, 300_000)
    counts = computed(lambda: pb.bincount(index, length=1000))
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=1000))
    rows = rng.integers(-9, 9, (200_000, 3)).astype(np.float32)
    ids = np.sort(rng.integers(0, 50, 200_000))
    want = np.zeros((50, 3))
    np.add.at(want, ids, rows)
    np.testing.assert_array_equal(computed(lambda: pb.segment_sum(rows, ids, 50)), want)
    smallest = computed(lambda: pb.segment_min(rows, ids, 51))
    np.testing.assert_array_equal(smallest[:50], [rows[ids == s].min(0) for s in range(50)])
    assert np.isposinf(smallest[50]).all()


def test_sums_of_many_float32():
    """Of many updates of few places each sum is carried in float64."""
    value = np.full(1_000_000, 0.1, np.float32)
    got = computed(lambda: pb.segment_sum(value, np.zeros(1_000_000, np.int64), 10))
    np.testing.assert_allclose(got[0], value.sum(dtype=np.float64), rtol=1e-7)
    index = np.random.default_rng(0).integers(0, 1000, 1_000_000)
    want = np.bincount(index, value.astype(np.float64), 1000)
    np.testing.assert_allclose(computed(lambda: pb.bincount(index, value, length=1000)), want, rtol=1e-7)


@pytest.mark.parametrize("count", [5, 300_000])
@pytest.mark.parametrize("bad", [1000, -1])
def test_numbers_out_of_range(count, bad):
    index = np.zeros(count, np.int64)
    index[count // 2] = bad
    with pytest.raises(IndexError, match=rf"index {bad} is out of range for size 1000"):
        pb.eval(pb.bincount(index, length=1000))
    with pytest.raises(IndexError, match=r"index 1000 is out of"):
        index[count // 2] = 1000
        pb.eval(pb.take(np.zeros((1000, 3)), index, axis=0))


def test_without_copies():
    """Integers are the same without copies of the target, floats as near as one after the other gets."""
    rng = np.random.default_rng(0)
    index, value = rng.integers(0, 100, 200_000), rng.standard_normal(200_000)
    counts, sums = pb.bincount(index, length=100).numpy(), pb.bincount(index, value, length=100).numpy()
    with options.without("copies"):
        np.testing.assert_array_equal(pb.bincount(index, length=100).numpy(), counts)
        np.testing.assert_allclose(pb.bincount(index, value, length=100).numpy(), sums, rtol=1e-10, atol=1e-10)


def test_batches_scatter_in_parallel():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 10, (4, 500))
    got = computed(lambda: pb.vmap(lambda i: pb.bincount(i, length=10))(index))
    np.testing.assert_array_equal(got, [np.bincount(i, minlength=10) for i in index])


def kernel_modes(function, *args):
    graph = Graph.trace(function, *args)
    return [kernel.mode for kernel in compile_program(graph.inputs, graph.outputs).kernels]


def test_updates_are_computed_where_they_are_scattered():
    table, index = np.zeros((50, 128), np.float32), np.arange(30) % 7
    norm = lambda t, i: pb.nn.functional.layer_norm(pb.take(t, i, axis=0) + 1.0, (128,))  # noqa: E731
    assert kernel_modes(norm, table, index) == ["row"]
    assert kernel_modes(pb.grad(lambda t, i: (pb.take(t, i, axis=0) ** 3).sum()), table, index) == ["map", "scatter"]
    assert kernel_modes(lambda i: pb.bincount(i, length=10), index) == ["map", "scatter"]
    many = np.zeros(1_000_000, np.int64)
    assert kernel_modes(lambda i: pb.bincount(i, length=10), many) == ["map", "scatter", "column"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 4096])
def test_short_lines_are_searched_by_a_kernel(dtype, size):
    rng = np.random.default_rng(size)
    line = rng.integers(0, 50, size).astype(dtype)
    values = rng.integers(0, 52, (31, 7)).astype(dtype)
    if dtype.startswith("float"):
        line[rng.random(size) < 0.1] = np.nan
        line[rng.random(size) < 0.1] = -0.0
        values[0, :4] = np.nan, np.inf, -np.inf, -0.0
    line.sort()
    assert "host" not in str(pb.explain(lambda a, v: pb.searchsorted(a, v))(line, values)).splitlines()[3]
    for side in ("left", "right"):
        got = pb.searchsorted(line, values, side=side).numpy()
        np.testing.assert_array_equal(got, np.searchsorted(line, values, side))


def test_histogram_counts_in_two_kernels():
    x = np.random.default_rng(0).standard_normal(300_000)
    got = computed(lambda: pb.histogram(x, bins=100, range=(-3, 3)).hist)
    np.testing.assert_array_equal(got, np.histogram(x, 100, (-3, 3))[0])


def test_positions_that_count_need_no_check_and_go_in_parallel():
    x, labels = np.zeros((300, 40), np.float32), np.arange(300) % 40

    def chosen(x, labels):
        return x[pb.arange(300), labels] + x[pb.arange(300)[:, None], labels[:, None]][:, 0]

    graph = Graph.trace(chosen, x, labels)
    kernels = compile_program(graph.inputs, graph.outputs).kernels
    assert [kernel.mode for kernel in kernels] == ["map"] and len(kernels[0].checks) == 2  # of labels, twice
    graph = Graph.trace(pb.grad(lambda x, labels: chosen(x, labels).sum()), x, labels)
    kernels = compile_program(graph.inputs, graph.outputs).kernels
    assert [any(kernel.reduced) for kernel in kernels if kernel.scatter is not None] == [False] * 2
    got = computed(lambda: pb.grad(lambda x: chosen(x, labels).sum())(x))
    want = np.zeros_like(x)
    want[np.arange(300), labels] = 2
    np.testing.assert_array_equal(got, want)
    with pytest.raises(IndexError, match="out of range for size 250"):
        pb.eval(pb.jit(lambda x: x[pb.arange(300), 0])(x[:250]))


def test_an_index_that_all_columns_share_behind_a_mask():
    x = np.arange(8.0).reshape(2, 2, 2)
    index = np.array([1, 0, 1, -1])
    got = computed(lambda: pb.take(x, index, axis=0).sum(0))
    np.testing.assert_array_equal(got, x[index].sum(0))
    np.testing.assert_array_equal(computed(lambda: pb.take(x, index, axis=0).max(0)), x[index].max(0))
    wide = np.random.default_rng(0).standard_normal((5, 70))
    np.testing.assert_allclose(computed(lambda: pb.take(wide, index, axis=0).sum(0)), wide[index].sum(0), rtol=1e-12)
