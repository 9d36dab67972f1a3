"""Optimizers against PyTorch's formulas in NumPy (and PyTorch, where installed); groups, state, the pure form."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim, pytree
from pullback.errors import GradientError, ShapeError

STEPS = 6


def sgd(p, g, s, t, lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    g = (-g if maximize else g) + weight_decay * p
    if momentum:
        s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - lr * g


def adam(
    p, g, s, t, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False, decoupled=False
):
    g = -g if maximize else g
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    v = s["v"]
    if amsgrad:
        v = s["x"] = np.maximum(s.get("x", 0), v)
    return p - lr / (1 - betas[0] ** t) * s["m"] / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


CASES = [
    (optim.SGD, sgd, {"lr": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "weight_decay": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    (optim.Adam, adam, {"lr": 0.01}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Adam, adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    (optim.AdamW, adam, {"lr": 0.01, "weight_decay": 0.1, "decoupled": True}),
]


def options(case):
    return {name: value for name, value in case[2].items() if name != "decoupled"}


def gradients(shape, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for _ in range(STEPS)]


def in_place(cls, start, grads, jitted, **settings):
    p = nn.Parameter(start)
    optimizer = cls([p], **settings)

    def step(g):
        p.grad = g
        optimizer.step()

    step = pb.jit(step) if jitted else step
    values = []
    for g in grads:
        step(pb.asarray(g))
        values.append(np.asarray(p))
    assert p.requires_grad
    return values


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__} {options(case)}")
@pytest.mark.parametrize("jitted", [False, True])
def test_formulas(case, jitted):
    cls, formula, settings = case
    start = np.linspace(-1, 1, 5)
    grads = gradients(5)
    found = in_place(cls, start, grads, jitted, **options(case))
    p, memory = start, {}
    for t, g in enumerate(grads, 1):
        p = formula(p, g, memory, t, **settings)
        np.testing.assert_allclose(found[t - 1], p, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__} {options(case)}")
def test_pure_form(case):
    cls, formula, settings = case
    start = {"a": np.linspace(-1, 1, 5), "b": [np.ones((2, 2))]}
    params = pytree.map(pb.asarray, start)
    optimizer = cls([nn.Parameter(np.zeros(1))], **options(case))
    state = optimizer.init(params)
    apply = pb.jit(optimizer.apply)
    p, memory = start["a"], {}
    for t, g in enumerate(gradients(5), 1):
        grads = {"a": pb.asarray(g), "b": [pb.zeros((2, 2), dtype=pb.float64)]}
        params, state = apply(params, grads, state)
        p = formula(p, g, memory, t, **settings)
        np.testing.assert_allclose(np.asarray(params["a"]), p, rtol=1e-12, atol=1e-14)
    assert int(state["step"]) == STEPS


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__} {options(case)}")
def test_against_pytorch(case):
    torch = pytest.importorskip("torch")
    cls, _, _ = case
    start, grads = np.linspace(-1, 1, 5), gradients(5)
    p = torch.tensor(start, requires_grad=True)
    theirs = getattr(torch.optim, cls.__name__)([p], **options(case))
    found = in_place(cls, start, grads, False, **options(case))
    for g, value in zip(grads, found):
        p.grad = torch.tensor(g)
        theirs.step()
        np.testing.assert_allclose(value, p.detach().numpy(), rtol=1e-12)


def test_float32_and_half_parameters_keep_their_dtype():
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 2e-2)):
        start = np.linspace(-1, 1, 5)
        found = in_place(optim.AdamW, start.astype(dtype), [g.astype(dtype) for g in gradients(5)], False, lr=0.01)
        exact = in_place(optim.AdamW, start, gradients(5), False, lr=0.01)
        assert found[-1].dtype == dtype
        np.testing.assert_allclose(found[-1], exact[-1], rtol=tolerance, atol=tolerance)


def test_hyperparameters_change_from_outside_also_under_jit():
    runs = []
    p = nn.Parameter(np.zeros(1))
    optimizer = optim.SGD([p], lr=1.0)

    @pb.jit
    def step():
        runs.append(1)
        p.grad = pb.ones(1, dtype=pb.float64)
        optimizer.step()

    step()
    optimizer.lr = 0.5
    step()
    optimizer.lr *= 0.5
    step()
    optimizer.param_groups[0]["lr"] = 10.0
    step()
    np.testing.assert_allclose(np.asarray(p), [-11.75])
    assert len(runs) == 1 and float(optimizer.lr) == 10.0
    optimizer.param_groups[0]["weight_decay"] = 1.0
    p.assign([1.0])
    step()
    np.testing.assert_allclose(np.asarray(p), [-19.0])
    optimizer.param_groups[0]["momentum"] = 0.5
    p.assign([0.0])
    step()
    step()
    assert len(runs) == 3


def test_a_learning_rate_set_inside_jit():
    p = nn.Parameter(np.zeros(1))
    optimizer = optim.SGD([p], lr=1.0)

    @pb.jit
    def step():
        p.grad = pb.ones(1, dtype=pb.float64)
        optimizer.step()
        optimizer.lr = optimizer.lr * 0.5

    for _ in range(3):
        step()
    np.testing.assert_allclose(np.asarray(p), [-1.75])
    assert float(optimizer.lr) == 0.125


def test_groups():
    a, b = nn.Parameter(np.zeros(1)), nn.Parameter(np.zeros(1))
    optimizer = optim.SGD([{"params": [a], "lr": 1.0}, {"params": b}], lr=0.1)
    a.grad = b.grad = pb.ones(1, dtype=pb.float64)
    optimizer.step()
    assert (float(a[0]), float(b[0])) == (-1.0, -0.1)
    assert set(optimizer.param_groups[0]) == {
        "params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize",
    }
    optimizer.lr = 2.0
    optimizer.step()
    assert (float(a[0]), float(b[0])) == (-3.0, -2.1)
    assert "SGD" in repr(optimizer) and "lr" in repr(optimizer)
    adam_ = optim.Adam([nn.Parameter(np.zeros(1))])
    adam_.param_groups[0]["betas"] = (0.5, 0.6)
    assert [float(beta) for beta in adam_.param_groups[0]["betas"]] == [0.5, 0.6]


@pytest.mark.parametrize("jitted", [False, True])
def test_parameters_without_a_gradient_are_left_alone_and_count_their_own_steps(jitted):
    start, grads = np.linspace(-1, 1, 5), gradients(5) * 2
    a, b = nn.Parameter(start), nn.Parameter(start)
    optimizer = optim.Adam([a, b], lr=0.01)

    def step(g, which):
        optimizer.zero_grad()
        if which != "b":
            a.grad = g
        if which != "a":
            b.grad = g
        optimizer.step()

    step = pb.jit(step) if jitted else step
    seen = {"a": [], "b": []}
    for g, which in zip(grads, ["both", "a", "a", "both", "b", "b", "both", "a"]):
        step(pb.asarray(g), which)
        for name in "ab":
            if which in (name, "both"):
                seen[name].append(g)
    for name, p in (("a", a), ("b", b)):
        expected, memory = start, {}
        for t, g in enumerate(seen[name], 1):
            expected = adam(expected, g, memory, t)
        np.testing.assert_allclose(np.asarray(p), expected, rtol=1e-12)


def test_a_group_added_later_is_stepped_by_a_jitted_step():
    a, b = nn.Parameter(np.zeros(1)), nn.Parameter(np.zeros(1))
    optimizer = optim.SGD([a], lr=1.0)

    @pb.jit
    def step():
        optimizer.zero_grad()
        pb.sum(a + b).backward()
        optimizer.step()

    step()
    optimizer.add_param_group({"params": [b], "lr": 0.5})
    step()
    assert (float(a[0]), float(b[0])) == (-2.0, -0.5)


def test_zero_grad():
    p = nn.Parameter(np.zeros(2))
    optimizer = optim.SGD([p])
    p.grad = pb.ones(2, dtype=pb.float64)
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(np.asarray(p.grad), [0, 0])
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.step()
    np.testing.assert_array_equal(np.asarray(p), [0, 0])


def test_a_closure():
    p = nn.Parameter(np.ones(1))
    optimizer = optim.SGD([p], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = pb.sum(p * p)
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 1.0
    assert float(p[0]) == 0.0


def test_state_dict_resumes():
    start, grads = np.linspace(-1, 1, 5), gradients(5)

    def steps(p, optimizer, some):
        for g in some:
            p.grad = pb.asarray(g)
            optimizer.step()

    p = nn.Parameter(start)
    optimizer = optim.AdamW([p], lr=0.02)
    steps(p, optimizer, grads[:3])
    saved, value = optimizer.state_dict(), np.asarray(p).copy()
    steps(p, optimizer, grads[3:])
    q = nn.Parameter(value)
    other = optim.AdamW([q])
    other.load_state_dict(saved)
    assert float(other.lr) == 0.02
    steps(q, other, grads[3:])
    np.testing.assert_array_equal(np.asarray(p), np.asarray(q))
    with pytest.raises(ValueError, match="groups"):
        optim.AdamW([nn.Parameter(start), nn.Parameter(start)]).load_state_dict(saved)
    with pytest.raises(ShapeError, match="exp_avg"):
        optim.AdamW([nn.Parameter(np.ones(3))]).load_state_dict(saved)


def test_a_step_evaluates_everything_and_keeps_no_graph():
    p = nn.Parameter(np.ones(3))
    optimizer = optim.Adam([p])
    for _ in range(3):
        optimizer.zero_grad()
        pb.sum(p**2).backward()
        optimizer.step()
        assert p.node.buffer is not None and not p.node.inputs
        assert p.grad.node.buffer is not None


@pytest.mark.parametrize("jitted", [False, True])
def test_a_step_that_fails_changes_nothing(jitted):
    p = nn.Parameter(np.ones(3))
    optimizer = optim.Adam([p], lr=0.1)

    def step(index):
        optimizer.zero_grad()
        pb.sum(pb.take(p * p, index)).backward()
        optimizer.step()

    step = pb.jit(step) if jitted else step
    step(pb.asarray([0, 1]))
    before, saved = np.array(p), optimizer.state_dict()
    with pytest.raises(IndexError, match="index 7 is out of range for size 3"):
        step(pb.asarray([0, 1]) + pb.asarray([0, 6]))
    np.testing.assert_array_equal(np.asarray(p), before)
    for a, b in zip(pb.pytree.leaves(optimizer.state_dict()), pb.pytree.leaves(saved)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    step(pb.asarray([2, 1]))
    assert np.isfinite(np.asarray(p)).all() and float(p[2]) < 1.0


def test_refusals():
    p = nn.Parameter(np.ones(3))
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([])
    with pytest.raises(GradientError, match="does not require"):
        optim.SGD([pb.ones(2)])
    with pytest.raises(GradientError, match="not a tensor"):
        optim.SGD([np.ones(2)])
    with pytest.raises(ValueError, match="twice"):
        optim.SGD([p, p])
    with pytest.raises(ValueError, match="lr"):
        optim.SGD([p], lr=-1.0)
    with pytest.raises(ValueError, match="betas"):
        optim.Adam([p], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="nesterov"):
        optim.SGD([p], nesterov=True)
    with pytest.raises(ValueError, match="unknown option"):
        optim.SGD([{"params": [p], "beta": 1.0}])
    optimizer = optim.SGD([p])
    with pytest.raises(KeyError, match="no hyperparameter"):
        optimizer.param_groups[0]["betas"] = 1.0
    with pytest.raises(ShapeError):
        optimizer.apply([p], [p, p], optimizer.init([p]))
