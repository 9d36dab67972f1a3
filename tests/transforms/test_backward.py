"""x.requires_grad_(), loss.backward(), x.grad."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import pullback as pb


def leaf(*values, dtype=None):
    return pb.asarray(np.array(values), dtype=dtype).requires_grad_()


def test_backward_accumulates():
    x = leaf(1.0, 2.0)
    loss = pb.sum(x * x)
    loss.backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2.0, 4.0])
    loss.backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [4.0, 8.0])
    x.grad = None
    pb.sum(3 * x).backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [3.0, 3.0])


@pytest.mark.parametrize("jitted", [False, True])
def test_a_loss_that_is_older_than_the_last_update(jitted):
    x = leaf(1.0, 2.0)
    optimizer = pb.optim.SGD([x], lr=0.5)

    def step():
        first, second = pb.sum(2 * x), pb.sum(x * x)
        first.backward()
        optimizer.step()
        optimizer.zero_grad()
        second.backward()  # at the value that x had
        return second

    result = (pb.jit(step) if jitted else step)()
    assert float(result) == 5.0
    np.testing.assert_array_equal(np.asarray(x), [0.0, 1.0])
    np.testing.assert_array_equal(np.asarray(x.grad), [2.0, 4.0])


def test_a_loss_of_a_jitted_function_that_is_older_than_the_last_update():
    x = leaf(1.0, 2.0)
    seen = []
    x.register_hook(seen.append)
    loss = pb.jit(lambda: pb.sum(x * x))()
    with pb.no_grad():
        x += 1
    update = pb.jit(lambda: x.assign(x * 2))
    update()
    update()
    loss.backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2.0, 4.0])
    assert len(seen) == 1
    half = leaf(1.0, dtype="float32")
    loss = pb.sum(half)
    half.rebind(half.astype("float16").detach().node)
    with pytest.raises(pb.errors.GradientError, match=r"float32 is float16\[1\] by now"):
        loss.backward()


def test_several_leaves_and_one_that_is_not_reached():
    a, b, c = leaf(1.0, 2.0), leaf(3.0), leaf(4.0)
    pb.sum(a * b).backward()
    np.testing.assert_array_equal(np.asarray(a.grad), [3.0, 3.0])
    np.testing.assert_array_equal(np.asarray(b.grad), [3.0])
    assert c.grad is None


def test_intermediate_tensors_get_no_grad():
    x = leaf(1.0)
    h = x * 2
    pb.sum(h).backward()
    assert h.requires_grad
    assert h.grad is None


def test_a_cotangent():
    x = leaf(1.0, 2.0)
    (x**2).backward(pb.asarray(np.array([1.0, 10.0])))
    np.testing.assert_array_equal(np.asarray(x.grad), [2.0, 40.0])


def test_one_element_needs_no_cotangent():
    x = leaf(3.0)
    (x[None] * 2).backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2.0])


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32, pb.float64])
def test_gradients_keep_the_dtype(dtype):
    x = pb.ones(3, dtype=dtype).requires_grad_()
    pb.sum(x.astype(pb.float64) * 2).backward()
    assert x.grad.dtype is dtype
    assert x.grad.shape == (3,)


def test_gradients_are_constants_unless_asked_otherwise():
    x = leaf(2.0)
    pb.sum(x**3).backward()
    assert not x.grad.requires_grad
    x.grad = None
    pb.sum(x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    second = pb.gradients(pb.sum(x.grad), x)
    np.testing.assert_array_equal(np.asarray(second), [12.0])


def test_a_training_loop_by_hand():
    w = leaf(5.0)
    for _ in range(60):
        loss = pb.sum((w - 2.0) ** 2)
        w.grad = None
        loss.backward()
        with pb.no_grad():
            w -= 0.1 * w.grad
    assert w.requires_grad
    np.testing.assert_allclose(np.asarray(w), [2.0], atol=1e-4)


def test_the_training_loop_does_not_keep_old_graphs():
    w = leaf(5.0)
    losses = []
    for _ in range(5):
        loss = pb.sum((w - 2.0) ** 2)
        losses.append(weakref.ref(loss.node))
        w.grad = None
        loss.backward()
        with pb.no_grad():
            w -= 0.1 * w.grad
        np.asarray(w)
    del loss
    gc.collect()
    assert [reference() for reference in losses] == [None] * 5


def test_assignment_cuts_history():
    x, y = leaf(1.0), leaf(2.0)
    x.assign(y * 3)
    pb.sum(x * x).backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [12.0])
    assert y.grad is None


def test_two_names_of_one_leaf():
    x = leaf(1.0, 2.0)
    alias = x
    pb.sum(alias * 2).backward()
    assert alias.grad is x.grad


def test_detach_and_no_grad():
    x = leaf(2.0)
    pb.sum(x.detach() * x).backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [2.0])
    with pb.no_grad():
        y = pb.sum(x * x)
    with pytest.raises(pb.GradientError, match="does not depend on a tensor that requires a gradient"):
        y.backward()


def test_after_evaluation_of_the_loss():
    x = leaf(0.5, 1.5)
    loss = pb.sum(pb.exp(x) * x)
    float(loss)
    loss.backward()
    v = np.array([0.5, 1.5])
    np.testing.assert_allclose(np.asarray(x.grad), np.exp(v) * (1 + v), rtol=1e-12)


def test_a_deep_chain():
    x = y = leaf(1.0)
    for _ in range(20_000):
        y = y * 1.0001
    y.backward()
    np.testing.assert_allclose(np.asarray(x.grad), [1.0001**20_000], rtol=1e-9)


def test_functional_transforms_leave_grad_alone_and_pass_through_leaves():
    x = leaf(2.0)
    gradient = pb.grad(lambda t: pb.sum(t**2 * x))(x)
    np.testing.assert_array_equal(np.asarray(gradient), [8.0])
    assert x.grad is None
    pb.sum(gradient).backward()  # 2 t x at t = x, differentiated by both
    np.testing.assert_array_equal(np.asarray(x.grad), [8.0])


def test_backward_inside_a_functional_transform():
    w = leaf(3.0)

    def f(x):
        pb.sum(w * w * x).backward()
        return pb.sum(x * w)

    np.testing.assert_array_equal(np.asarray(pb.grad(f)(pb.asarray(np.array([2.0])))), [3.0])
    np.testing.assert_array_equal(np.asarray(w.grad), [12.0])


def test_hooks():
    x = leaf(1.0, 2.0)
    h = x * x
    seen = []
    registered = h.register_hook(lambda g: seen.append(np.asarray(g)) or g * 10)
    x.register_hook(lambda g: g + 1)
    pb.sum(h * 3).backward()
    np.testing.assert_array_equal(seen[0], [3.0, 3.0])
    np.testing.assert_array_equal(np.asarray(x.grad), [61.0, 121.0])
    registered.remove()
    x.grad = None
    pb.sum(h * 3).backward()
    np.testing.assert_array_equal(np.asarray(x.grad), [7.0, 13.0])
    x.register_hook(lambda g: 5)
    with pytest.raises(pb.GradientError, match="a gradient hook must return"):
        pb.sum(h).backward()
    with pytest.raises(pb.GradientError, match="call x"):
        pb.asarray(1.0).register_hook(print)


def _hooked(x, seen):
    """A function that registers hooks on values that nobody holds when it has returned."""
    x.register_hook(lambda g: seen.append(("x", np.array(g))))
    h = pb.sin(x)
    h.register_hook(lambda g: seen.append(("h", np.array(g))) or 10 * g)
    h += 1  # another value, which has no hook
    return h * h


@pytest.mark.parametrize("wrap", [
    lambda f: f,
    pb.checkpoint,
    lambda f: pb.checkpoint(pb.checkpoint(f)),
    pb.jit,
    lambda f: pb.jit(pb.checkpoint(f)),
    lambda f: pb.checkpoint(pb.jit(f)),
], ids=["plain", "checkpoint", "nested", "jit", "jit checkpoint", "checkpoint jit"])
def test_a_hook_belongs_to_the_value(wrap):
    v = np.array([0.5, 2.0])
    seen = []
    f = wrap(lambda x: _hooked(x, seen))
    for _ in range(2):  # a jitted function is recorded once
        seen.clear()
        x = pb.asarray(v).requires_grad_()
        pb.sum(f(2 * x)).backward()
        outer = 2 * (np.sin(2 * v) + 1)
        inner = 10 * outer * np.cos(2 * v)
        assert [name for name, _ in seen] == ["h", "x"]
        for (_, found), expected in zip(seen, (outer, inner)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(np.array(x.grad), 2 * inner, rtol=1e-12)
        # Functional transforms are not told of hooks.
        seen.clear()
        gradient = pb.gradients(pb.sum(f(2 * x)), x)
        np.testing.assert_allclose(np.array(gradient), inner / 5, rtol=1e-12)
        assert seen == []


def test_a_hook_keeps_nothing_alive():
    x = leaf(1.0)
    h = x * 2
    h.register_hook(lambda g, h=h: g)
    node = weakref.ref(h.node)
    del h
    gc.collect()
    assert node() is None


def test_a_hook_inside_vmap_is_refused():
    def f(x):
        h = x * 2
        h.register_hook(print)
        return h

    for g in (f, pb.checkpoint(f), pb.jit(f)):
        with pytest.raises(pb.GradientError, match="vmap: register_hook was called inside"):
            pb.vmap(g)(leaf(1.0, 2.0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: (x * 2).backward(), pb.GradientError, r"has shape \(2,\); only a tensor of one element"),
        (lambda x: pb.asarray(1.0).backward(), pb.GradientError, r"call x.requires_grad_\(\)"),
        (lambda x: pb.argmax(x).backward(), pb.GradientError, r"dtype int64"),
        (lambda x: (x * 2).backward(pb.ones(3, dtype=pb.float64)), pb.ShapeError, r"gradient has shape \(3,\)"),
        (lambda x: (x * 2).backward(pb.ones(2, dtype=pb.float32)), pb.DTypeError, r"dtype float32, expected float64"),
        (lambda x: pb.asarray([1, 2]).requires_grad_(), pb.GradientError, r"int64"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(leaf(1.0, 2.0))
