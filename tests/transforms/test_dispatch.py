"""From a jitted call to its program: both ways of calling, the short ways, memory used again, threads."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
import time

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.compiler import program as program_module
from pullback.compiler.program import Program
from pullback.runtime import buffers, calling
from pullback.transforms.direct import MAX_ARGUMENTS


@pytest.fixture(params=["builtin", "ctypes"])
def way(request, monkeypatch):
    """Programs that are made from here on are called in this way."""
    if request.param == "ctypes":
        monkeypatch.setattr(calling, "_caller", None)
    elif calling.kind() != "builtin":
        pytest.skip("this interpreter does not show its functions")
    assert calling.kind() == request.param
    return request.param


def f32(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def three_times(call, expected, tolerance=1e-6):
    """The first call records, the second finds the variant, the third takes the short way."""
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(call()), expected, rtol=tolerance, atol=tolerance)


# -- both ways of calling ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, MAX_ARGUMENTS, MAX_ARGUMENTS + 1, 40])
def test_any_number_of_arguments(way, count):
    arrays = [f32(5, seed=k) for k in range(count)]
    tensors = [pb.asarray(a) for a in arrays]
    f = pb.jit(lambda *xs: sum(x * (k + 1.0) for k, x in enumerate(xs)))
    three_times(lambda: f(*tensors), sum(a * (k + 1) for k, a in enumerate(arrays)), 1e-4)


def test_numbers_arrays_and_tensors(way):
    x = f32(6)
    f = pb.jit(lambda x, s, n, a: (x * s + n, a - x, (x + a) * s))
    for s, n in ((2.5, 3), (-0.5, 4), (1e-3, -7), (0.1, 0)):
        for _ in range(3):
            found = f(pb.asarray(x), s, n, x * 2)
            for got, expected in zip(found, (x * np.float32(s) + n, x, 3 * x * np.float32(s))):
                np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-6)
    g = pb.jit(lambda s, x, n: x * s + n)
    for s, n in ((2.5, 3), (-0.5, 4), (0.1, 0), (1e300, 2)):
        with np.errstate(over="ignore"):
            three_times(lambda: g(s, pb.ones(3), n), np.ones(3, np.float32) * np.float32(s) + n)  # noqa: B023
    wide = pb.jit(lambda s: s * 3)
    three_times(lambda: wide(0.1), 0.1 * 3)
    assert int(pb.jit(lambda n: n + 1)(2**62)) == 2**62 + 1


def test_results_are_distinct_values(way):
    """Memory is used again only when nobody holds what was in it."""
    f = pb.jit(lambda x: (x + 1.0, x * 2.0))
    x = pb.zeros(16)
    kept, views = [], []
    for k in range(20):
        a, b = f(x)
        if k % 3 == 0:
            kept.append((k, a))
        if k % 4 == 0:
            views.append((2 * k, np.asarray(b)))
        x = pb.full((16,), float(k + 1))
        pb.eval(x)
        del a, b
    for k, a in kept:
        np.testing.assert_array_equal(np.asarray(a), k + 1.0)
    for k, b in views:
        np.testing.assert_array_equal(b, k)


def test_a_chain_of_calls(way):
    f = pb.jit(lambda x: x + 1)
    x = pb.zeros(8)
    for _ in range(50):
        x = f(x)
    np.testing.assert_array_equal(np.asarray(x), 50)


def test_a_failed_check_raises_and_the_next_call_is_right(way):
    f = pb.jit(lambda x, i: pb.take(x, i))
    x = pb.arange(5, dtype=pb.float32)
    good, bad = pb.asarray([1, 4]), pb.asarray([1, 7])
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(f(x, good)), [1, 4])
        with pytest.raises(IndexError, match="index 7 is out of range for size 5"):
            f(x, bad)
    np.testing.assert_array_equal(np.asarray(f(x, good)), [1, 4])


def test_host_steps_temporaries_and_constants(way):
    x = f32(40, 30)
    table = pb.asarray(f32(30, seed=1))
    pb.eval(table)
    f = pb.jit(lambda x: pb.sort(x * 2, axis=0) + nn.softmax(x @ pb.transpose(x), axis=1).sum() * table.detach())
    three_times(lambda: f(pb.asarray(x)), np.sort(x * 2, axis=0) + 40 * np.asarray(table), 1e-4)


def test_state_and_hidden_inputs(way):
    w, count = pb.asarray(f32(4)), pb.zeros((), dtype=pb.int64)

    @pb.jit
    def f(x):
        count.assign(count + 1)
        return w * x

    expected = np.asarray(w).copy()
    for k in range(5):
        np.testing.assert_allclose(np.asarray(f(pb.full((4,), float(k)))), expected * k, rtol=1e-6)
    assert int(count) == 5
    w.assign(w * 2)
    np.testing.assert_allclose(np.asarray(f(pb.ones(4))), expected * 2, rtol=1e-6)


def test_more_inputs_than_fit_the_stack():
    tensors = [pb.full((2,), float(k)) for k in range(calling.MAX_SLOTS + 5)]
    pb.eval(*tensors)
    f = pb.jit(lambda xs: sum(xs[1:], xs[0]))
    three_times(lambda: f(tensors), np.full(2, sum(range(len(tensors)))), 1e-5)


@pytest.mark.skipif(calling.kind() != "builtin", reason="this interpreter does not show its functions")
def test_the_lock_is_free_while_a_program_runs():
    """In place of a program runs ``usleep(400 ms)``: meanwhile this thread goes on."""
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
    record = calling.make_record(sleep, 400_000, 8, {}, {}, 4, 0, 0)
    call, started = calling.caller(), threading.Event()

    def work():
        started.set()
        call(record.ctypes.data)

    thread = threading.Thread(target=work)
    begin = time.perf_counter()
    thread.start()
    started.wait()
    time.sleep(0.02)  # the other thread is inside now
    waited = time.perf_counter() - begin
    thread.join()
    assert waited < 0.3 <= time.perf_counter() - begin


@pytest.mark.skipif(calling.kind() != "builtin", reason="this interpreter does not show its functions")
def test_what_is_no_integer_is_refused():
    record = calling.make_record(0, 0, 8, {}, {}, 4, 1, 0)
    with pytest.raises(TypeError, match="str"):
        calling.caller()(record.ctypes.data, "an address")


# -- the short ways ----------------------------------------------------------------------------------------------------


def test_one_tensor_twice_is_not_two_tensors():
    f = pb.jit(lambda x, y: x * 10 + y)
    x, y = pb.ones(3), pb.full((3,), 2.0)
    for _ in range(2):
        three_times(lambda: f(x, x), [11.0] * 3)
        three_times(lambda: f(x, y), [12.0] * 3)
    same = pb.jit(lambda x, y: x + y if x is y else x - y)
    for _ in range(2):
        three_times(lambda: same(x, x), [2.0] * 3)
        three_times(lambda: same(y, x), [1.0] * 3)
    many = pb.jit(lambda *xs: sum(xs) if xs[0] is not xs[-1] else xs[0])
    others = [pb.full((3,), float(k)) for k in range(12)]
    three_times(lambda: many(*others), [66.0] * 3)
    three_times(lambda: many(*others, others[0]), [0.0] * 3)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_any_arguments_may_be_one_tensor(count):
    weights = (2.0, 3.0, 5.0, 7.0, 11.0)[:count]
    f = pb.jit(lambda *xs: sum(w * x for w, x in zip(weights, xs, strict=True)))
    tensors = [pb.full((3,), 10.0**k) for k in range(3)]
    for places in itertools.product(range(3), repeat=count):
        expected = sum(w * 10.0**k for w, k in zip(weights, places, strict=True))
        three_times(lambda places=places: f(*[tensors[k] for k in places]), [expected] * 3)


def test_other_types_and_modes_are_other_calls():
    runs = []

    @pb.jit
    def f(x, y):
        runs.append(x.dtype)
        return x + y

    x, y = pb.ones(3), pb.ones(3)
    three_times(lambda: f(x, y), [2.0] * 3)
    three_times(lambda: f(x, 1.5), [2.5] * 3)
    three_times(lambda: f(pb.ones((2, 3)), y), np.full((2, 3), 2.0))
    three_times(lambda: f(x, pb.ones(3, dtype=pb.float64)), [2.0] * 3)
    assert f(x, pb.ones(3, dtype=pb.float64)).dtype is pb.float64
    leaf = pb.ones(3).requires_grad_()
    for _ in range(3):
        assert f(leaf, y).requires_grad
        with pb.no_grad():
            assert not f(leaf, y).requires_grad
    three_times(lambda: f(x, y), [2.0] * 3)
    before = len(runs)
    pb.set_default_dtype(pb.float64)
    try:
        three_times(lambda: f(x, y), [2.0] * 3)
    finally:
        pb.set_default_dtype(pb.float32)
    assert len(runs) == before + 1
    three_times(lambda: f(x + 0, y), [2.0] * 3)  # not evaluated yet


@pytest.mark.parametrize(
    ("tree", "others"),
    [
        ({"a": 1.0, "b": 2.0}, [{"a": 1.0, "c": 2.0}, {"a": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, [1.0, 2.0]]),
        ([1.0, (2.0, {"x": 3.0})], [[1.0, [2.0, {"x": 3.0}]], [1.0, (2.0, {"y": 3.0})], [1.0, 2.0, 3.0]]),
        ({"l": {"w": 1.0, "b": 2.0}}, [{"l": {"w": 1.0}}, {"l": 3.0}, {"l": [1.0, 2.0]}]),
        ((1.0,), [[1.0], (1.0, 1.0), ()]),
    ],
)
def test_structures(way, tree, others):
    def body(tree, x):
        leaves = pb.pytree.leaves(tree)
        total = x * 0
        for k, leaf in enumerate(leaves):
            total = total + leaf * (k + 1)
        return total + len(str(type(tree)))

    def tensors(tree):
        return pb.pytree.map(lambda value: pb.full((2,), value), tree)

    f, x = pb.jit(body), pb.ones(2)
    for _ in range(2):
        for each in (tree, *others):
            given = tensors(each)
            pb.eval(given)
            three_times(lambda: f(given, x), np.asarray(body(given, x)))  # noqa: B023


def test_the_order_of_a_dict_does_not_matter():
    f = pb.jit(lambda p: p["a"] - p["b"])
    a, b = pb.full((2,), 5.0), pb.ones(2)
    three_times(lambda: f({"a": a, "b": b}), [4.0] * 2)
    three_times(lambda: f({"b": b, "a": a}), [4.0] * 2)


def test_a_module_argument(way):
    class Net(nn.Module):
        def __init__(self):
            self.first = nn.Linear(4, 4)
            self.rest = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)], nn.Dropout(0.5))

        def forward(self, x):
            return self.rest(self.first(x))

    model = Net()
    f, x = pb.jit(lambda model, x: model(x)), pb.asarray(f32(2, 4))
    model.eval()
    three_times(lambda: f(model, x), np.asarray(model(x)), 1e-5)
    with pb.no_grad():
        model.first.weight.assign(model.first.weight * 2)
    three_times(lambda: f(model, x), np.asarray(model(x)), 1e-5)
    model.first = nn.Linear(4, 4)
    model.eval()
    three_times(lambda: f(model, x), np.asarray(model(x)), 1e-5)
    model.train()
    assert np.any(np.asarray(f(model, x)) != np.asarray(f(model, x)))


def test_a_value_that_is_watched_still_is():
    factor = 2.0
    f = pb.jit(lambda x: x * factor)
    x = pb.ones(2)
    three_times(lambda: f(x), [2.0] * 2)
    factor = 3.0
    three_times(lambda: f(x), [3.0] * 2)


def test_old_values_of_parameters_are_not_kept():
    """What a call remembers of its inputs does not keep them alive."""
    import weakref

    w = pb.ones(1000)
    for f in (pb.jit(lambda x: w * x), pb.jit(lambda x, w=w: w * x)):
        for _ in range(3):
            f(pb.ones(1000))
    node = weakref.ref(w.node)
    w.assign(pb.zeros(1000))
    pb.eval(w)
    gc.collect()
    assert node() is None


def test_explain_sees_what_takes_a_short_way():
    f = pb.jit(lambda x: pb.exp(x) + 1)
    x = pb.ones(8)
    for _ in range(3):
        f(x)
    assert pb.explain(f)(x).kernels == 1


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def allocations(monkeypatch):
    """The sizes that are asked of the allocator."""
    sizes = []
    allocate = buffers.allocate

    def counted(nbytes):
        sizes.append(nbytes)
        return allocate(nbytes)

    monkeypatch.setattr(buffers, "allocate", counted)
    monkeypatch.setattr(program_module, "allocate", counted)
    return sizes


@pytest.mark.parametrize("size", [3, 1000, 300_000])
def test_state_in_place_needs_no_memory(way, allocations, size):
    state, total = pb.zeros(size), pb.zeros(())

    @pb.jit
    def step(x, v):
        state.assign(state * 0.5 + v)
        total.assign(total + 1)
        x += v

    x, v = pb.zeros(size), pb.ones(size)
    pb.eval(state, total, x, v)
    for _ in range(4):
        step(x, v)
    allocations.clear()
    address = x.node.buffer.address, state.node.buffer.address
    for _ in range(20):
        step(x, v)
    assert not allocations
    assert address == (x.node.buffer.address, state.node.buffer.address)
    np.testing.assert_array_equal(np.asarray(x), 24)
    assert float(total) == 24


def test_an_optimizer_step_needs_no_memory(way, allocations):
    x = pb.asarray(f32(3, 8))

    def make():
        pb.random.seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = optim.Adam(model.parameters(), lr=1e-2)

        def step(x):
            loss = pb.mean(model(x) ** 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    plain, step = make(), pb.jit(make())
    expected = [float(plain(x)) for _ in range(25)]
    losses = [float(step(x)) for _ in range(5)]
    allocations.clear()
    losses += [float(step(x)) for _ in range(20)]
    temporaries = [size for size in allocations if size > buffers.RECYCLED_BYTES]
    assert len(allocations) == len(temporaries) <= 20  # at most a large arena a call
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_small_results_need_no_memory(way, allocations):
    f = pb.jit(lambda x, y: (x + y, pb.sum(x * y)))
    x, y = pb.ones(8), pb.ones(8)
    for _ in range(6):
        z, s = f(x, y)
    allocations.clear()
    for _ in range(20):
        z, s = f(x, y)
    assert not allocations
    np.testing.assert_array_equal(np.asarray(z), 2)
    assert float(s) == 8


# -- threads -----------------------------------------------------------------------------------------------------------


def together(work, count=4):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_threads_call_one_function_and_keep_the_results(way):
    f = pb.jit(lambda x, s: (x + s, nn.softmax(x * s)))
    g = pb.jit(lambda p: p["a"] * 2 + p["b"])

    def work(k):
        x = pb.full((64,), float(k))
        pb.eval(x)
        kept = []
        for i in range(300):
            a, _ = f(x, float(i))
            b = g({"a": a, "b": x})
            if i % 7 == 0:
                kept.append((i, a, b))
        for i, a, b in kept:
            np.testing.assert_array_equal(np.asarray(a), k + i)
            np.testing.assert_array_equal(np.asarray(b), 2 * (k + i) + k)

    together(work)


def test_threads_that_rebind_one_tensor_lose_nothing(way):
    count, x = pb.zeros((), dtype=pb.int64), pb.zeros(100)

    @pb.jit
    def hidden():
        count.assign(count + 1)

    @pb.jit
    def given(x, v):
        x += v

    v = pb.ones(100)
    pb.eval(count, x, v)

    def work(_):
        for _ in range(200):
            hidden()
            given(x, v)

    together(work)
    assert int(count) == 800
    np.testing.assert_array_equal(np.asarray(x), 800)


def test_a_program_is_called_by_many_threads(way):
    from pullback.compiler.program import compile_program
    from pullback.ops import elementwise
    from pullback.ops.leaf import parameter
    from pullback.runtime.buffers import from_numpy

    x = parameter(0, (256,), pb.float32, False)
    program = compile_program([x], [elementwise.multiply(x, x)])
    assert type(program) is Program

    def work(k):
        given = from_numpy(np.full(256, k, np.float32))
        kept = [program([given])[0] for _ in range(100)]
        for result in kept:
            np.testing.assert_array_equal(result.numpy((256,), np.float32), k * k)

    together(work)
