"""jit against no jit: results, hidden inputs and outputs, guards, errors, derivatives through calls, threads."""

from __future__ import annotations

import copy
import enum
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import GradientError, TraceError


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Count:
    """How often a function ran in Python."""

    def __init__(self):
        self.n = 0

    def __call__(self):
        self.n += 1


def array(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(a, b, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# -- arguments and results ---------------------------------------------------------------------------------------------


def test_same_as_no_jit_and_recorded_once():
    runs = Count()

    def f(x, y):
        runs()
        return pb.tanh(x) @ y + 1.0

    x, y = pb.asarray(array(3, 4)), pb.asarray(array(4, 5, seed=1))
    g = pb.jit(f)
    expected = f(x, y)
    for _ in range(3):
        close(g(x, y), expected)
    assert runs.n == 2
    assert g(x, y).dtype is pb.float32


def test_decorator_forms_and_metadata():
    @pb.jit
    def f(x):
        """Doc."""
        return x + 1

    @pb.jit(static_argnames=("n",))
    def g(x, n):
        return x * n

    assert f.__name__ == "f" and f.__doc__ == "Doc."
    close(f(pb.asarray([1.0])), [2.0])
    close(g(pb.asarray([1.0]), 3), [3.0])


def test_new_shapes_dtypes_and_weak_types_are_recorded_anew():
    runs = Count()

    @pb.jit
    def f(x):
        runs()
        return x * 2

    for x in (pb.ones(3), pb.ones(4), pb.ones(4, dtype=pb.float64), pb.ones(4)):
        assert f(x).dtype is x.dtype
        close(f(x), np.asarray(x) * 2)
    assert runs.n == 3


def test_numpy_arrays_are_arguments():
    runs = Count()

    @pb.jit
    def f(x, y):
        runs()
        return x + y

    for k in range(3):
        close(f(np.full(3, k, np.float32), pb.ones(3)), np.full(3, k + 1.0))
    close(f(np.array([5, 4, 3])[::-1], pb.ones(3)), [4, 5, 6])
    assert runs.n == 2
    assert f(np.ones(3), pb.ones(3)).dtype is pb.float64


def test_an_array_written_to_after_the_call_does_not_change_the_result():
    f = pb.jit(lambda x: x)
    a = np.ones(3)
    result = f(a)
    a[:] = 7
    close(result, [1, 1, 1])


def test_python_numbers_are_run_time_weak_scalars():
    runs = Count()

    @pb.jit
    def f(x, s):
        runs()
        return x * s

    x = pb.ones(2, dtype=pb.float16)
    for s in (0.5, 1.0, 0.0, -3.25):
        result = f(x, s)
        assert result.dtype is pb.float16
        close(result, [s, s])
    assert runs.n == 1
    assert f(pb.ones(2, dtype=pb.int64), 2).dtype is pb.int64
    close(f(pb.ones(2, dtype=pb.int64), 5), [5, 5])
    assert runs.n == 2


def test_python_floats_keep_their_precision():
    x = pb.ones(2, dtype="float64")

    def f(x, s):
        y = pb.zeros(2, dtype="float64")
        y[0] = s
        y.assign(y + s)
        return x * s, x * (2 * pb.sqrt(s) - s), pb.where(x > 0, s, x), pb.full(2, s, dtype="float64"), y

    def g(x, s):  # what Python computes
        return x * s, x * (2 * s**0.5 - s), x * s, x * s, x * 0 + np.array([2 * s, s])

    for s in (0.1, 1e300):
        for a, b in zip(pb.jit(f)(x, s), g(x, s)):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-15)
    assert pb.jit(lambda x, s: x * s)(pb.ones(2), 0.1).dtype is pb.float32
    assert pb.jit(lambda s: s * 2)(0.1).dtype is pb.float32
    close(pb.jit(pb.grad(lambda s: pb.sum(x * s * s)))(0.1), 0.4)
    close(pb.jit(pb.grad(lambda x, s: pb.sum(x * s * s)))(x, 0.1), [0.01, 0.01])
    weight, optimizer = nn.Parameter(np.ones(2)), None
    optimizer = pb.optim.SGD([weight], lr=0.5)

    @pb.jit
    def step(lr):
        optimizer.lr = lr

    step(0.1)
    assert float(optimizer.lr) == 0.1


def test_an_integer_that_a_narrow_dtype_cannot_hold_behaves_as_without_jit():
    runs = Count()

    @pb.jit
    def add(x, n):
        runs()
        return x + n

    x = pb.asarray([1, 2, 3], dtype="int8")
    close(add(x, 4), [5, 6, 7])
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        add(x, 300)
    count = runs.n
    close(add(x, -3), [-2, -1, 0])
    assert runs.n == count
    with pytest.raises(OverflowError, match="-1 out of bounds for uint64"):
        pb.jit(lambda x, n: pb.where(x > 0, x, n))(pb.ones(2, dtype="uint64"), -1)
    close(pb.jit(lambda x, n: x < n)(x, 300), [True, True, True])
    close(pb.jit(lambda x, n: x < n)(pb.ones(2, dtype="uint64"), -1), [False, False])
    power = pb.jit(lambda x, n: x**n)
    close(power(x, 2), [1, 4, 9])
    with pytest.raises(ValueError, match="negative integer powers"):
        power(x, -2)


def test_bools_strings_none_and_enums_are_static():
    @pb.jit
    def f(x, flag, name, extra, colour):
        if flag:
            x = x + 1
        if name == "twice":
            x = x * 2
        if extra is not None:
            x = x + extra
        return x if colour is Color.RED else -x

    x = pb.ones(2)
    close(f(x, True, "twice", None, Color.RED), [4, 4])
    close(f(x, False, "twice", None, Color.RED), [2, 2])
    close(f(x, False, "once", None, Color.BLUE), [-1, -1])
    close(f(x, False, "once", x, Color.BLUE), [-2, -2])


def test_true_1_and_1_0_do_not_share_a_variant():
    f = pb.jit(lambda x, flag: x + 1 if flag is True else x * flag)
    x = pb.ones(2)
    close(f(x, True), [2, 2])
    close(f(x, 3), [3, 3])
    close(f(x, 1), [1, 1])
    close(f(x, 1.5), [1.5, 1.5])


def test_static_argnames_by_position_and_keyword():
    runs = Count()

    @pb.jit(static_argnames="axis")
    def f(x, axis):
        runs()
        return pb.sum(x, axis=axis)

    x = pb.asarray(array(2, 3))
    for axis in (0, 1, (0, 1)):
        close(f(x, axis), np.sum(np.asarray(x), axis=axis))
        close(f(x, axis=axis), np.sum(np.asarray(x), axis=axis))
    assert runs.n <= 6
    with pytest.raises(TraceError, match="no parameter"):
        pb.jit(lambda x: x, static_argnames="n")
    with pytest.raises(TraceError, match="hashable"):
        f(x, [0])


def test_an_int_used_as_a_size_says_what_to_do():
    @pb.jit
    def f(n):
        return pb.zeros((n,))

    with pytest.raises(TraceError, match="static"):
        f(3)


def test_what_a_function_may_return_besides_tensors():
    fixed = np.arange(3)
    marker = object()

    @partial(pb.jit, static_argnames="tag")
    def f(x, tag):
        return x, fixed, Color.RED, pb.float32, "s", None, 2.5, range(2), tag

    for _ in range(2):
        result = f(pb.ones(2), marker)
        assert result[2:] == (Color.RED, pb.float32, "s", None, 2.5, range(2), marker)
        np.testing.assert_array_equal(result[1], [0, 1, 2])
        result[1][:] = 7  # nobody else sees it

    def generator(x):
        yield x

    for function in (lambda x: {x}, lambda x: lambda y: x + y, generator):
        with pytest.raises(TraceError, match=r"returned a (set|function|generator)"):
            pb.jit(function)(pb.ones(2))


def doubled(x):
    return x * 2


@pb.jit
def tripled(x):
    return x * 3


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copies_and_pickles(copied):
    x = pb.ones(2)
    for function, factor in ((pb.jit(doubled), 2), (tripled, 3)):
        function(x)
        close(copied(function)(x), [factor, factor])
    static = pb.jit(lambda x, n: x.reshape(n), static_argnames="n")
    static(x, (2, 1))
    assert copy.deepcopy(static)(x, (1, 2)).shape == (1, 2)


def test_containers_in_and_out():
    @dataclass
    class Point:
        x: object
        y: object

    @pb.jit
    def f(tree, *, scale):
        a, b = tree["pair"]
        point = tree["point"]
        return {"sum": a + b * scale, "point": Point(point.y, point.x), "list": [a, "text", None, 3]}

    tree = {"pair": (pb.ones(2), np.full(2, 2.0, np.float32)), "point": Point(pb.zeros(1), 5.0)}
    for scale in (1.0, 10.0):
        result = f(tree, scale=scale)
        close(result["sum"], [1 + 2 * scale] * 2)
        close(result["point"].x, 5.0)
        close(result["point"].y, [0.0])
        assert result["list"][1:] == ["text", None, 3]


def test_an_output_may_be_an_input_a_constant_or_twice_the_same():
    captured = pb.arange(3)

    @pb.jit
    def f(x):
        y = x + 1
        return x, y, y, captured, pb.ones(2), 7

    x = pb.zeros(2)
    for _ in range(2):
        a, b, c, d, e, g = f(x)
        assert a is x and b is c and d is captured and g == 7
        close(b, [1, 1])
        close(e, [1, 1])


def test_one_tensor_given_twice():
    @pb.jit
    def f(x, y):
        x += 1
        return x + y

    def plain(x, y):
        x += 1
        return x + y

    for g in (plain, f, f):
        x, y = pb.zeros(2), pb.zeros(2)
        close(g(x, y), [1, 1])
        close(x, [1, 1])
        close(y, [0, 0])
        z = pb.zeros(2)
        close(g(z, z), [2, 2])
        close(z, [1, 1])


def test_pending_arguments():
    f = pb.jit(lambda x, y: x * y)
    x = pb.ones(3) + 1
    close(f(x, x + 1), [6, 6, 6])
    close(f(x * 2, x + 1), [12, 12, 12])


def test_nothing_computed():
    f = pb.jit(lambda x: (x, 3))
    x = pb.ones(2)
    assert f(x)[0] is x and f(x)[1] == 3
    assert pb.jit(lambda: None)() is None


def test_default_dtype_and_grad_mode_are_part_of_the_key():
    f = pb.jit(lambda x: x * pb.ones(2))
    p = pb.ones(2).requires_grad_()
    assert f(p).requires_grad
    with pb.no_grad():
        assert not f(p).requires_grad
    assert f(p).requires_grad
    g = pb.jit(lambda: pb.zeros(2))
    assert g().dtype is pb.float32
    pb.set_default_dtype(pb.float64)
    try:
        assert g().dtype is pb.float64
    finally:
        pb.set_default_dtype(pb.float32)
    assert g().dtype is pb.float32


def test_methods():
    class Model:
        def __init__(self):
            self.w = pb.full((2,), 3.0)

        @pb.jit
        def __call__(self, x):
            return self.w * x

    assert not hasattr(pb.jit(nn.Linear(2, 2)), "weight")
    a, b = Model(), Model()
    b.w = pb.full((2,), 5.0)
    for _ in range(2):
        close(a(pb.ones(2)), [3, 3])
        close(b(pb.ones(2)), [5, 5])


# -- hidden inputs -----------------------------------------------------------------------------------------------------


def test_captured_tensors_are_read_at_each_call():
    runs = Count()
    w = pb.ones(3)

    @pb.jit
    def f(x):
        runs()
        return x * w

    x = pb.full((3,), 2.0)
    close(f(x), [2, 2, 2])
    w.assign([1.0, 2.0, 3.0])
    close(f(x), [2, 4, 6])
    w += 1
    close(f(x), [4, 6, 8])
    w[0] = 0.0
    close(f(x), [0, 6, 8])
    assert runs.n == 1


def test_a_captured_tensor_of_a_new_type_is_recorded_anew():
    class Holder:
        w = pb.ones(3)

    f = pb.jit(lambda x: x * Holder.w)
    close(f(2.0), [2, 2, 2])
    Holder.w.rebind(pb.ones(2, dtype=pb.float64).node)
    result = f(2.0)
    assert result.dtype is pb.float64 and result.shape == (2,)


def test_captured_tensors_are_not_kept_alive():
    f = pb.jit(lambda holder: holder["w"] * 2 if isinstance(holder, dict) else holder)
    w = pb.ones(3)
    close(f({"w": w}), [2, 2, 2])
    alive = weakref.ref(w)
    del w
    gc.collect()
    assert alive() is None


def test_objects_given_as_arguments_are_not_kept_alive():
    class Settings:
        factor = 2.0

    f = pb.jit(lambda settings, x: x * settings.factor)
    a, b = Settings(), Settings()
    b.factor = 3.0
    for _ in range(2):
        close(f(a, 1.0), 2.0)
        close(f(b, 1.0), 3.0)
    alive = weakref.ref(a)
    del a
    gc.collect()
    assert alive() is None


# -- hidden outputs ----------------------------------------------------------------------------------------------------


def test_every_kind_of_rebinding_is_written_back():
    def make():
        return [pb.arange(4, dtype=pb.float32) for _ in range(4)]

    def body(state, x):
        a, b, c, d = state
        a += x
        b[1] = x[0]
        c.assign(c * 2 + a)
        d[1:3] += x[:2]
        return a + b + c + d

    plain, jitted = make(), make()
    f = pb.jit(lambda x: body(jitted, x))
    for k in range(4):
        x = pb.asarray(array(4, seed=k))
        close(body(plain, x), f(x))
        for p, q in zip(plain, jitted):
            close(p, q)


def test_rebound_arguments_are_written_back_to_the_callers_tensor():
    runs = Count()

    @pb.jit
    def f(x, y):
        runs()
        x += y
        return x * 2

    for k in range(3):
        x, y = pb.full((2,), float(k)), pb.ones(2)
        close(f(x, y), [2 * k + 2] * 2)
        close(x, [k + 1] * 2)
        close(y, [1, 1])
    assert runs.n == 1


def test_a_value_shared_with_others_is_not_overwritten():
    count = pb.zeros(3)

    @pb.jit
    def f():
        before = count.copy()
        count.assign(count + 1)
        return before

    view = np.asarray(count)
    other = count.copy()
    results = [f() for _ in range(4)]
    for k, result in enumerate(results):
        close(result, [k] * 3)
    close(count, [4] * 3)
    close(view, [0] * 3)
    close(other, [0] * 3)


def test_memory_is_reused_in_place():
    state = pb.zeros(1000)

    @pb.jit
    def f():
        state.assign(state + 1)

    for _ in range(3):
        f()
    addresses = {np.asarray(state).ctypes.data}
    for _ in range(5):
        f()
        addresses.add(state.node.buffer.address)
    if pb.get_backend() == "compiled":
        assert len(addresses) == 1
    close(state, np.full(1000, 8.0))


def test_a_tensor_stays_strong_when_a_weak_value_is_assigned():
    runs = Count()
    w = pb.asarray(np.float16(1))

    @pb.jit
    def f(s):
        runs()
        w.assign(s)
        return w * pb.ones(2, dtype=pb.float64)

    for s in (2.0, 3.0):
        close(f(s), [s, s])
        assert not w.node.weak and w.dtype is pb.float16
    assert runs.n == 1


def test_swapping_two_tensors():
    a, b = pb.zeros(2), pb.ones(2)

    @pb.jit
    def swap():
        x, y = a.copy(), b.copy()
        a.assign(y)
        b.assign(x)

    for k in range(4):
        swap()
        close(a, [(k + 1) % 2] * 2)
        close(b, [k % 2] * 2)


def test_a_captured_tensor_that_is_also_an_argument():
    w = pb.zeros(2)

    def body(x):
        x += 1
        return x + w

    f = pb.jit(body)
    x = pb.zeros(2)
    close(f(x), [1, 1])
    close(f(w), [2, 2])
    close(w, [1, 1])
    close(f(x), [3, 3])


def test_gradient_slots():
    p = pb.ones(3).requires_grad_()

    @pb.jit
    def accumulate(x):
        (p * x).sum().backward()

    @pb.jit
    def clear():
        p.grad = None

    @pb.jit
    def double():
        p.grad = p.grad * 2

    x = pb.asarray([1.0, 2.0, 3.0])
    for k in range(1, 4):
        accumulate(x)
        close(p.grad, np.asarray(x) * k)
    double()
    close(p.grad, np.asarray(x) * 6)
    clear()
    assert p.grad is None
    accumulate(x)
    close(p.grad, x)


def test_a_failing_function_leaves_everything_as_it_was():
    w = pb.ones(2)
    p = pb.ones(2).requires_grad_()

    @pb.jit
    def f(x):
        w.assign(w + 1)
        p.grad = x
        raise KeyError("oh")

    with pytest.raises(KeyError, match="oh"):
        f(pb.ones(2))
    close(w, [1, 1])
    assert p.grad is None
    close(w + 1, [2, 2])
    assert not hasattr(nn.Module, "__getattribute__") or nn.Module.__getattribute__ is object.__getattribute__


def test_an_index_out_of_range_is_raised_at_the_call():
    table = pb.arange(5)
    f = pb.jit(lambda i: table[i])
    close(f(pb.asarray([0, 4])), [0, 4])
    with pytest.raises(IndexError):
        f(pb.asarray([0, 5]))
    close(f(pb.asarray([1, -1])), [1, 4])


def test_random_numbers_are_drawn_anew():
    f = pb.jit(lambda: pb.random.uniform((4,)))
    pb.random.seed(3)
    jitted = [np.asarray(f()) for _ in range(3)]
    pb.random.seed(3)
    plain = [np.asarray(pb.random.uniform((4,))) for _ in range(3)]
    for a, b in zip(jitted, plain):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(jitted[0], jitted[1])


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_branch_on_a_traced_value_names_the_line_and_the_way_out():
    @pb.jit
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(TraceError, match=r"pb\.where.*pb\.cond") as caught:
        f(pb.ones(2))
    assert "test_jit.py" in str(caught.value)


@pytest.mark.parametrize("use", [float, np.asarray, lambda x: x.item(), lambda x: x.tolist(), pb.eval])
def test_values_are_not_there_while_tracing(use):
    with pytest.raises(TraceError):
        pb.jit(lambda x: use(x.sum()))(pb.ones(2))


def test_a_slice_from_a_traced_position_names_the_way_out():
    x = pb.arange(10)
    with pytest.raises(TraceError, match=r"index with start \+ pb.arange\(n\)"):
        pb.jit(lambda i: x[i : i + 2])(3)
    np.testing.assert_array_equal(pb.jit(lambda i: x[i + pb.arange(2)])(3), [3, 4])


def test_a_traced_tensor_that_outlives_its_trace():
    kept = []

    @pb.jit
    def f(x):
        kept.append(x * 2)
        return x

    f(pb.ones(2))
    with pytest.raises(TraceError, match=r"test_jit\.py:\d+"):
        kept[0] + 1
    with pytest.raises(TraceError):
        pb.jit(lambda x: x + kept[0])(pb.ones(2))
    with pytest.raises(TraceError):
        f(kept[0])


def test_bad_arguments():
    f = pb.jit(lambda x: x)
    with pytest.raises(OverflowError):
        f(1 << 70)
    with pytest.raises(TypeError):
        f(1 + 2j)
    with pytest.raises(TypeError):
        f(np.array(["a"]))
    with pytest.raises(TraceError, match="hashable"):
        f(bytearray(b"x"))
    with pytest.raises(TypeError):
        pb.jit(3)


# -- guards ------------------------------------------------------------------------------------------------------------


class Scaled(nn.Module):
    def __init__(self):
        self.scale = 2.0
        self.w = nn.Parameter(np.ones(2, np.float32))
        self.parts = [nn.Linear(2, 2, bias=False)]

    def forward(self, x):
        return x * self.w * self.scale if self.training else x


def test_settings_of_a_captured_module_are_guards():
    m, runs = Scaled(), Count()

    @pb.jit
    def f(x):
        runs()
        return m(x)

    x = pb.ones(2)
    close(f(x), [2, 2])
    m.scale = 5.0
    close(f(x), [5, 5])
    m.eval()
    close(f(x), [1, 1])
    m.train()
    close(f(x), [5, 5])
    m.scale = 2.0
    close(f(x), [2, 2])
    assert runs.n == 3
    m.w = nn.Parameter(np.full(2, 3.0, np.float32))
    close(f(x), [6, 6])
    assert runs.n == 4
    nn.Linear(2, 2)
    close(f(x), [6, 6])
    assert runs.n == 4


def test_a_list_of_a_captured_module_is_a_guard():
    m = Scaled()

    @pb.jit
    def f(x):
        for part in m.parts:
            x = part(x)
        return x

    x = pb.ones((1, 2))
    assert f(x).shape == (1, 2)
    m.parts.append(nn.Linear(2, 3))
    assert f(x).shape == (1, 3)


def test_parameters_of_a_captured_module_are_guards():
    m = nn.Sequential(nn.Linear(2, 2))
    f = pb.jit(lambda: sum(p.size for p in m.parameters()) + pb.zeros(1))
    close(f(), [6])
    m.append(nn.Linear(2, 1))
    close(f(), [9])


def test_an_attribute_that_the_function_counts_up_itself():
    m = Scaled()
    m.calls = 0

    @pb.jit
    def f(x):
        m.calls += 1
        return x * m.calls

    for k in range(1, 4):
        close(f(pb.ones(1)), [k])


def test_a_tensor_attribute_replaced_inside_is_rebound():
    class Running(nn.Module):
        def __init__(self):
            self.mean = pb.zeros(2)

        def forward(self, x):
            self.mean = self.mean * 0.5 + x * 0.5
            return self.mean

    plain, jitted = Running(), Running()
    f = pb.jit(jitted)
    for k in range(3):
        x = pb.full((2,), float(k))
        close(plain(x), f(x))
        close(plain.mean, jitted.mean)
    g = pb.jit(lambda m, x: m(x))
    for k in range(3):
        x = pb.full((2,), float(k))
        close(plain(x), g(jitted, x))
        close(plain.mean, jitted.mean)


def test_a_module_as_an_argument():
    runs = Count()

    @pb.jit
    def f(m, x):
        runs()
        return m(x)

    a, b = Scaled(), Scaled()
    b.w.assign([3.0, 4.0])
    x = pb.ones(2)
    close(f(a, x), [2, 2])
    close(f(b, x), [6, 8])
    assert runs.n == 1
    b.eval()
    close(f(b, x), [1, 1])
    close(f(a, x), [2, 2])
    assert runs.n == 2
    a.scale = 7.0
    close(f(a, x), [7, 7])


# -- other transforms --------------------------------------------------------------------------------------------------


gain = 2.0


def amplified(x):
    return x * gain


def test_closures_and_globals_are_watched():
    global gain
    offset, layers, settings, weight, runs = 1.0, [pb.sin], {"scale": 2.0}, pb.ones(2), Count()

    def shifted(x):
        return x + offset

    @pb.jit
    def f(x):
        runs()
        for layer in layers:
            x = layer(x)
        return shifted(amplified(x)) * settings["scale"] * weight

    def expected():
        value = np.full(2, 0.5)
        for layer in layers:
            value = getattr(np, layer.__name__)(value)
        return (value * gain + offset) * settings["scale"] * np.asarray(weight)

    x = pb.full(2, 0.5)
    close(f(x), expected())
    try:
        gain = 3.0
        close(f(x), expected())
        offset = -1.0
        close(f(x), expected())
        layers.append(pb.cos)
        close(f(x), expected())
        settings["scale"] = 0.5
        close(f(x), expected())
        old, weight = weight, pb.full(2, 7.0)
        close(f(x), expected())
        count = runs.n
        assert count == 6
        weight += 1  # a value, which is read at each call
        close(f(x), expected())
        assert runs.n == count and old is not weight
    finally:
        gain = 2.0
    close(f(x), expected())


total = pb.zeros(2)


def test_a_variable_that_the_function_replaces_is_rebound():
    global total

    class Average:
        def __init__(self):
            self.value = pb.zeros(2)

        @pb.jit
        def __call__(self, x):
            self.value = 0.5 * self.value + x
            return self.value

    previous, current, runs = pb.zeros(()), pb.ones(()), Count()

    @pb.jit
    def fibonacci():
        nonlocal previous, current
        runs()
        previous, current = current, previous + current

    @pb.jit
    def add(x):
        global total
        total = total + x

    averages = Average(), Average()
    for _ in range(3):
        fibonacci()
        add(pb.ones(2))
        averages[0](pb.ones(2))
    close(averages[1](pb.ones(2)), [1, 1])
    assert (float(previous), float(current), runs.n) == (2.0, 3.0, 1)
    close(total, [3, 3])
    close(averages[0].value, [1.75, 1.75])
    total = pb.zeros(2)
    add(pb.ones(2))
    close(total, [1, 1])


def test_a_variable_that_cannot_be_rebound_keeps_its_value():
    state, scale = {"weight": pb.ones(2)}, pb.ones(2)

    def replace():
        nonlocal state
        state = {"weight": state["weight"] * 2}

    def reduce():
        nonlocal scale
        scale = pb.sum(scale)

    def fail():
        nonlocal scale
        scale = scale * 2
        raise RuntimeError("no")

    with pytest.raises(TraceError, match="replaces the variable 'state'"):
        pb.jit(replace)()
    with pytest.raises(TraceError, match=r"'scale'.* not for float32\[2\] and float32\[\]"):
        pb.jit(reduce)()
    with pytest.raises(RuntimeError):
        pb.jit(fail)()
    close(state["weight"], [1, 1])
    close(scale, [1, 1])


def test_attributes_of_plain_objects_are_watched():
    runs = Count()

    class Trainer:
        def __init__(self):
            self.scale, self.layers, self.weight, self.count, self.losses = 2.0, [3.0], pb.ones(1), 0, []

        def scaled(self, x):
            return x * self.scale

        def step(self, x):
            runs()
            self.steps = getattr(self, "steps", 0) + 1
            return self.scaled(x) * sum(self.layers) * self.weight

        jitted = pb.jit(step)

        def fit(self, step, count):
            for _ in range(count):
                self.count += 1  # not what the step reads
                self.losses.append(float(step(pb.ones(1))))
            return self.losses[-1]

    trainer = Trainer()
    for step in (pb.jit(trainer.step), trainer.jitted, pb.jit(lambda x: trainer.step(x))):
        before = runs.n
        trainer.scale, trainer.layers, trainer.weight = 2.0, [3.0], pb.ones(1)
        assert trainer.fit(step, 3) == 6.0 and runs.n == before + 1
        trainer.scale = 4.0
        assert trainer.fit(step, 2) == 12.0 and runs.n == before + 2
        trainer.layers.append(1.0)
        trainer.weight = pb.full(1, 2.0)
        assert trainer.fit(step, 2) == 32.0 and runs.n == before + 3


def test_jit_inside_jit_runs_in_line():
    g = pb.jit(lambda x: x * 3)
    f = pb.jit(lambda x: g(x) + g(x + 1))
    for _ in range(2):
        close(f(pb.ones(2)), [9, 9])


def test_grad_of_jit_and_jit_of_grad():
    def f(x):
        return pb.sum(pb.tanh(x) ** 2)

    x = pb.asarray(array(5, dtype=np.float64))
    expected = pb.grad(f)(x)
    close(pb.grad(pb.jit(f))(x), expected)
    close(pb.jit(pb.grad(f))(x), expected)
    g = pb.jit(f)
    g(x)
    close(pb.grad(g)(x), expected)
    close(pb.grad(lambda x: pb.sum(pb.grad(g)(x) ** 2))(x), pb.grad(lambda x: pb.sum(pb.grad(f)(x) ** 2))(x))
    close(pb.jvp(g, (x,), (pb.ones(5, dtype=pb.float64),))[1], pb.sum(expected))


def test_grad_through_a_captured_tensor():
    x = pb.asarray([1.0, 2.0])

    def loss(w):
        return pb.sum(pb.jit(lambda y: y * w * w)(x))

    inner = {}

    def shared(w):
        inner["w"] = w
        return pb.sum(multiply(x))

    multiply = pb.jit(lambda y: y * inner["w"] ** 2)
    w = pb.asarray([3.0, 4.0])
    close(pb.grad(loss)(w), [6, 16])
    for _ in range(2):
        close(pb.grad(shared)(w), [6, 16])


def test_vmap_of_jit_and_jit_of_vmap():
    def f(x):
        return pb.sum(x * x)

    x = pb.asarray(array(4, 3))
    expected = np.sum(np.asarray(x) ** 2, axis=1)
    g = pb.jit(f)
    close(g(x[0]), expected[0])
    close(pb.vmap(g)(x), expected)
    close(pb.jit(pb.vmap(f))(x), expected)


def test_backward_through_a_call():
    p = pb.asarray(array(3)).requires_grad_()
    q = pb.asarray(array(3, seed=1)).requires_grad_()
    x = pb.asarray(array(3, seed=2))

    def f(x, q):
        h = pb.exp(p * x)
        return pb.sum(h * q), h

    def gradients(function):
        p.grad = q.grad = None
        loss, h = function(x, q)
        (loss * 2 + pb.sum(h)).backward()
        return np.asarray(p.grad), np.asarray(q.grad)

    g = pb.jit(f)
    expected = gradients(f)
    for _ in range(2):
        for a, b in zip(gradients(g), expected):
            close(a, b)
    loss, h = g(x, q)
    close(pb.gradients(loss, h), q)
    assert loss.requires_grad and not g(x, q.detach())[0].detach().requires_grad


def test_a_higher_derivative_through_a_call():
    p = pb.asarray([2.0], dtype=pb.float64).requires_grad_()
    f = pb.jit(lambda: pb.sum(p**3))
    f()
    loss = f()
    first = pb.gradients(loss, p)
    close(first, [12.0])
    close(pb.gradients(first.sum(), p), [12.0])


def test_a_random_draw_is_the_same_in_the_derivative():
    p = pb.ones(50).requires_grad_()
    f = pb.jit(lambda: pb.where(pb.random.bernoulli(0.5, shape=(50,)), p, 0.0))
    f()
    for _ in range(2):
        out = f()
        p.grad = None
        out.sum().backward()
        close(p.grad, out)


def test_backward_inside_detaches_what_it_used():
    p = pb.ones(2).requires_grad_()

    @pb.jit
    def step(x):
        p.grad = None
        loss = pb.sum(p * x)
        loss.backward()
        return loss, pb.sum(p * 3)

    for _ in range(2):
        loss, other = step(pb.ones(2))
        assert not loss.requires_grad
        assert other.requires_grad
        with pytest.raises(GradientError):
            loss.backward()
    close(pb.gradients(other, p), [3, 3])


def test_a_gradient_past_an_update_in_place_is_an_error():
    p = pb.ones(2).requires_grad_()

    @pb.jit
    def step():
        loss = pb.sum(p * p)
        p.assign(p * 0.5)
        return loss

    step()
    loss = step()
    close(loss, 0.5)
    with pytest.raises(GradientError, match="in place"):
        loss.backward()


def test_backward_inside_cannot_go_on_outside():
    p = pb.ones(2).requires_grad_()
    h = p * 2

    @pb.jit
    def step():
        pb.sum(h * h).backward()

    with pytest.raises(GradientError, match="outside"):
        step()


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_call_one_function():
    count = pb.zeros((), dtype=pb.int64)

    @pb.jit
    def f(x, k):
        count.assign(count + 1)
        return pb.sum(x * k)

    errors: list[BaseException] = []

    def work(seed):
        try:
            x = array(100, seed=seed)
            for k in range(20):
                close(f(pb.asarray(x), float(k)), (x * k).sum(), 1e-4)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert int(count) == 80


def test_a_trace_belongs_to_its_thread():
    started, go_on = threading.Event(), threading.Event()
    w = pb.ones(2)

    @pb.jit
    def f(x):
        w.assign(x)
        started.set()
        assert go_on.wait(10)
        return w * 2

    results = []
    thread = threading.Thread(target=lambda: results.append(np.asarray(f(pb.full((2,), 3.0)))))
    thread.start()
    assert started.wait(10)
    close(w + 1, [2, 2])
    go_on.set()
    thread.join()
    close(results[0], [6, 6])
    close(w, [3, 3])


FORK = """
import os, signal, threading
import pullback as pb
from pullback.api import random
from pullback.compiler import cache
from pullback.runtime import evaluate
from pullback.transforms import guards, lineage, variant

pb.random.seed(0)
step = pb.jit(lambda x: x + pb.random.uniform((2,)))
step(pb.ones(2)).numpy()
locks = [evaluate._lock, cache._lock, guards._lock, lineage._lock, variant._stateful, random._generator.lock]
held, done = threading.Event(), threading.Event()

def hold():
    for lock in locks:
        lock.acquire()
    held.set()
    done.wait()
    for lock in reversed(locks):
        lock.release()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    weight = pb.ones(3).requires_grad_()
    pb.sum(pb.jit(lambda w: pb.tanh(w) * 5)(weight)).backward()
    weight.grad.numpy(), step(pb.ones(2)).numpy()
    os._exit(0)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
assert status == 0, status
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_computes():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=120)
