"""debug_nans names the first op that produced a NaN or an infinity, and its line; and raises no false alarm."""

from __future__ import annotations

import inspect
import re
import threading

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim


@pytest.fixture(params=["compiled", "reference"], autouse=True)
def _debugging(request):
    pb.set_backend(request.param)
    with pb.debug_nans():
        yield
    pb.set_backend("compiled")


def _x(*values, dtype=np.float64):
    return pb.asarray(np.array(values, dtype))


def _line_of(function) -> str:
    """The place of a function of one line, as messages have it."""
    return f"{re.escape(__file__)}:{function.__code__.co_firstlineno}, in {re.escape(function.__name__)}"


def _raises(match):
    return pytest.raises(pb.NonFiniteError, match=match)


# -- the op, the element, the operands, the line -----------------------------------------------------------------------


FORWARD = {
    "log": (lambda x: pb.log(x) * 2 + 1, [1.0, -1.0, 3.0], r"log produced nan at \[1\] \(1 of 3 elements\) in float64\[3\], from -1.0"),  # noqa: E501
    "0/0": (lambda x: pb.sum((x - x) / (x - x)), [2.0], r"divide produced nan at \[0\] .*, from 0.0 and 0.0"),
    "log of 0": (lambda x: pb.log(x), [0.0], r"log produced -inf at \[0\]"),
    "overflow": (lambda x: 1 / (1 + pb.exp(x)) + pb.exp(x), [800.0, 1.0], r"exp produced inf at \[0\] .*, from 800.0"),
    "inf first": (lambda x: pb.exp(x) - pb.exp(x), [800.0], r"exp produced inf"),
    "a sum": (lambda x: pb.sum(x * 1e308), [1.0, 1.0], r"reduce_sum produced inf in float64\[\], from float64\[2\]"),
    "a product": (lambda x: x * 1e200 @ (x * 1e200), [1.0, 1.0], r"dot_general produced inf"),
    "through a gather": (lambda x: pb.sqrt(x)[pb.asarray([1])], [1.0, -4.0], r"sqrt produced nan at \[1\]"),
    "through a sort": (lambda x: pb.sort(pb.log(x))[1:], [2.0, -4.0], r"log produced nan at \[1\]"),
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["lazy", "jit"])
def test_forward(name, wrap):
    function, values, message = FORWARD[name]
    with _raises(f"debug_nans: {message}.*; made at {_line_of(function)}"):
        np.asarray(wrap(function)(_x(*values)))


BACKWARD = {
    "sqrt at 0": (lambda x: pb.sum(pb.sqrt(x)), [4.0, 0.0], r"inf at \[1\] .*in the derivative of sqrt made at"),
    "of a sum": (lambda x: pb.sqrt(pb.sum(x)), [0.0, 0.0], r"produced inf in.*in the derivative of sqrt made at"),
    "through where": (
        lambda x: pb.sum(pb.where(x < 1, pb.sqrt(x), 0)), [0.0, 4.0], r"inf at \[0\].*in the derivative of sqrt made at"
    ),
    "asin at 1": (lambda x: pb.sum(pb.asin(x)), [1.0], r"produced inf .*in the derivative of asin made at"),
}


@pytest.mark.parametrize("name", BACKWARD)
@pytest.mark.parametrize(
    "wrap",
    [pb.grad, lambda f: pb.jit(pb.grad(f)), lambda f: pb.grad(pb.jit(f)), pb.jacfwd, lambda f: _backward(f)],
    ids=["grad", "jit of grad", "grad of jit", "jacfwd", "backward"],
)
def test_backward(name, wrap):
    function, values, message = BACKWARD[name]
    with _raises(f"{message} {_line_of(function)}"):
        np.asarray(wrap(function)(_x(*values)))


def _backward(function):
    def run(x):
        x.requires_grad_()
        function(x).backward()
        return x.grad

    return run


def test_an_overflow_of_the_cotangent():
    """The forward value is fine."""
    large = _x(1e200).sum()

    def function(x):
        return pb.sum(x * large) * large

    with _raises(r"strong_product produced inf .*, from 1e\+200 and 1e\+200; in the derivative of multiply made at "):
        np.asarray(pb.grad(function)(_x(1e-300)))


def test_second_derivatives():
    def function(x):
        return x**1.5

    assert float(pb.grad(function)(_x(0.0).sum())) == 0
    with _raises("in the derivative of .* in the derivative of pow"):
        float(pb.grad(pb.grad(function))(_x(0.0).sum()))


def test_vmap():
    with _raises(f"log produced nan .*made at {re.escape(__file__)}"):
        np.asarray(pb.vmap(pb.log)(_x(1.0, -1.0)))
    with _raises("in the derivative of sqrt made at"):
        np.asarray(pb.vmap(pb.grad(lambda x: pb.sqrt(x)))(_x(1.0, 0.0)))


def test_a_long_graph_that_is_computed_in_pieces():
    x = _x(-1.0)
    y = pb.log(x)
    for _ in range(2500):
        y = y + 1
    for _ in range(2):  # the same error again: nothing was kept of the first try
        with _raises("log produced nan"):
            np.asarray(y)


def test_half_precision():
    for dtype in ("float16", "bfloat16"):
        with _raises(rf"exp produced inf at \[1\] .* in {dtype}\[2\]"):
            np.asarray(pb.exp(pb.asarray([1.0, 1e4], dtype=dtype)))


# -- what is at fault --------------------------------------------------------------------------------------------------


def test_the_first_op_is_named_not_what_came_of_it():
    def function(x):
        bad = pb.log(x)
        return pb.sum(pb.sqrt(bad - 1) / pb.sin(bad))

    line = inspect.getsourcelines(function)[1] + 1
    with _raises(f"log produced nan at .*made at {re.escape(__file__)}:{line}, in function"):
        float(function(_x(2.0, -2.0)))


def test_the_innocent_one_that_a_mask_hides():
    """log has NaN too, but only where it is not read; sqrt is at fault."""
    def function(x):
        hidden = pb.where(x > 0, pb.log(x), 0)
        return pb.sum(hidden + pb.sqrt(x - 1.5))

    with _raises(r"sqrt produced nan at \[1\]"):
        float(function(_x(2.0, 1.0)))
    with _raises(r"sqrt produced nan at \[0\]"):
        float(function(_x(-2.0, 2.0)))


def test_nan_that_was_given():
    bad = _x(1.0, np.nan)
    with _raises(r"nan at \[1\] \(1 of 2 elements\) in float64\[2\] was given as data"):
        np.asarray(bad * 2)
    with _raises(r"nan at \[1\] .* was given: it is leaf 1 of the jitted function's arguments"):
        np.asarray(pb.jit(lambda a, b: a * b)(_x(1.0, 2.0), bad))
    with _raises("was given: it is a tensor that the jitted function reads from outside"):
        np.asarray(pb.jit(lambda a: a * bad)(_x(1.0, 2.0)))


def test_nan_of_given_infinities_is_an_ops():
    mask = _x(-np.inf, 0.0)
    with _raises(r"subtract produced nan at \[0\] .*, from -inf and -inf"):
        np.asarray(mask - mask)


STEPS = [
    lambda x, rng: pb.tanh(x) + 0.5,
    lambda x, rng: nn.softmax(x, int(rng.integers(2))) * 3,
    lambda x, rng: x @ pb.asarray(rng.normal(size=(4, 4))) * 0.3,
    lambda x, rng: pb.where(x > 0, pb.log(x), x) if rng.random() < 0.5 else pb.where(x > 0, pb.sqrt(x), 0.1),
    lambda x, rng: x.reshape(2, 8).T.reshape(4, 4),
    lambda x, rng: x[:, rng.permutation(4)],
    lambda x, rng: pb.sort(x, axis=0) - pb.mean(x),
    lambda x, rng: x / (1 + pb.sum(x * x, axis=1, keepdims=True)),
    lambda x, rng: pb.concat([x[:1], x[1:] * 2.0]),
    lambda x, rng: pb.cumulative_sum(x, axis=1) * 0.1,
    lambda x, rng: pb.max(x, axis=0) - x,
    lambda x, rng: pb.exp(-x * x),
]


def _planted(x):
    return x + pb.log(-pb.abs(x) - 1.0)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["lazy", "jit"])
def test_a_planted_fault_is_found_in_random_graphs(seed, wrap):
    """The steps before it have NaN that a mask hides; those after it pass it on, or hide it as well."""
    rng = np.random.default_rng(seed)
    steps = [STEPS[i] for i in rng.integers(len(STEPS), size=8)]
    keys = rng.integers(2**32, size=8)
    place = int(rng.integers(8))
    start = pb.asarray(rng.normal(size=(4, 4)))

    def function(x, wrong):
        for i, (step, key) in enumerate(zip(steps, keys)):
            if wrong and i == place:
                x = _planted(x)
            x = pb.where(pb.isfinite(x), x, 0.3) if not wrong or i < place else x
            x = step(x, np.random.default_rng(key))
        return pb.sum(x)

    assert np.isfinite(np.asarray(wrap(lambda x: function(x, False))(start)))  # and no alarm
    with pb.debug_nans(False):
        is_hidden = np.isfinite(float(function(start, True)))
    if is_hidden:
        assert np.isfinite(np.asarray(wrap(lambda x: function(x, True))(start)))
    else:
        with _raises(rf"log produced nan at .*made at {re.escape(__file__)}:{_planted.__code__.co_firstlineno + 1}"):
            np.asarray(wrap(lambda x: function(x, True))(start))


# -- no false alarm ----------------------------------------------------------------------------------------------------


def test_masks_of_infinity():
    scores = _x(1.0, 2.0, 3.0)
    mask = pb.where(scores > 1.5, 0.0, -pb.inf)
    assert np.asarray(mask).tolist() == [-np.inf, 0, 0]
    assert np.asarray(scores + mask)[0] == -np.inf
    for function in (nn.softmax, pb.jit(nn.softmax), lambda x: nn.softmax(x - pb.inf)):
        assert np.isfinite(np.asarray(function(scores + mask))).all()
    gradient = pb.grad(lambda x: pb.sum(nn.softmax(x + mask) ** 2))
    for function in (gradient, pb.jit(gradient)):
        assert np.isfinite(np.asarray(function(scores))).all()
    assert float(pb.logsumexp(scores + mask)) > 3


def test_strong_zeros():
    def function(x):
        return pb.sum(pb.where(x > 0, pb.sqrt(x), x) + pb.where(x > 0, pb.log(x), 0))

    for transform in (pb.grad, lambda f: pb.jit(pb.grad(f)), pb.hessian):
        assert np.isfinite(np.asarray(transform(function)(_x(0.0, -1.0, 4.0)))).all()


def test_values_nobody_asked_for():
    """An intermediate value that a tensor names is computed along, and is not what was asked for."""
    x = _x(-1.0, 1.0)
    logarithm = pb.log(x)
    assert float(pb.sum(pb.where(x > 0, logarithm, 0))) == 0
    assert np.isnan(np.asarray(logarithm)[0])  # it has its value by now


def test_literals_and_initial_values():
    assert np.isnan(np.asarray(pb.where(_x(1.0) > 2, 1.0, pb.nan))).all()
    best = pb.asarray(np.inf)
    assert float(pb.minimum(best, 3.0)) == 3
    assert np.isinf(float(pb.jit(lambda a: pb.minimum(a, pb.inf))(best)))
    assert np.isinf(np.asarray(pb.full(3, pb.inf))).all()


def test_finite_results_and_integers_pass():
    assert np.asarray(pb.jit(lambda x: (x + 1, pb.argmax(x)))(_x(1.0, 2.0))[1]) == 1
    assert np.asarray(pb.zeros(0) / 0).shape == (0,)


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit], ids=["lazy", "jit"])
def test_a_step_of_an_optimizer_that_fails_changes_nothing(wrap):
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = pb.mean(pb.sqrt(pb.abs(model(x)) * 0))
        loss = loss + pb.mean(pb.sqrt(model(x) - model(x)))
        loss.backward()
        optimizer.step()
        return loss

    before = [np.array(p) for p in model.parameters()]
    with _raises("in the derivative of sqrt made at"):
        wrap(step)(pb.ones((3, 2)))
    for a, p in zip(before, model.parameters()):
        np.testing.assert_array_equal(a, np.asarray(p))


def test_a_jitted_function_is_recorded_anew_when_the_mode_changes():
    traces = []

    @pb.jit
    def function(x):
        traces.append(None)
        return pb.log(x)

    x = _x(-1.0)
    with pb.debug_nans(False):
        assert np.isnan(np.asarray(function(x))).all()
        assert np.isnan(np.asarray(function(x))).all()
    for _ in range(2):
        assert float(function(-x)) == 0
    with _raises("log produced nan"):
        function(x)
    with pb.debug_nans(inf=False):
        assert np.isinf(np.asarray(function(x * 0))).all()
    with _raises("log produced -inf"):
        function(x * 0)
    with pb.debug_nans(False):
        assert np.isnan(np.asarray(function(x))).all()
    assert len(traces) == 3


def test_the_switch():
    x = _x(-1.0)
    pb.debug_nans(False)
    assert np.isnan(np.asarray(pb.log(x))).all()
    pb.debug_nans()
    with _raises("log"):
        np.asarray(pb.log(x))
    with pb.debug_nans(inf=False):
        assert np.isinf(np.asarray(pb.log(x * 0))).all()
        with _raises("log"):
            np.asarray(pb.log(x))
    with _raises("log produced -inf"):
        np.asarray(pb.log(x * 0))
    with pytest.raises(pb.ArgumentError, match="debug_nans: on and inf"):
        pb.debug_nans(1)


def test_it_holds_for_all_threads():
    caught = []

    def work():
        try:
            np.asarray(pb.log(_x(-1.0)))
        except pb.NonFiniteError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_the_error_is_numpys():
    with pytest.raises(FloatingPointError):
        np.asarray(pb.log(_x(-1.0)))
